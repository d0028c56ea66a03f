// SPDX-License-Identifier: Apache-2.0
//
// Devices of allocations on command lines.
#include "cli.h"

#include <string.h>

int split_devices(const struct cli *c, char *text, const char **list)
{
    int n = 0;
    for (char *p = text ? strtok(text, ",") : NULL; p; p = strtok(NULL, ",")) {
        if (n == MAX_PLACES) return usage_error(c, "more than %d devices", MAX_PLACES);
        list[n++] = p;
    }
    list[n] = NULL;
    return EXIT_DONE;
}
