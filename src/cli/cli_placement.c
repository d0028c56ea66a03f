// SPDX-License-Identifier: Apache-2.0
//
// Devices and allocations on command lines.
#include "cli.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_ALLOCATION = 1 << 26 };

char *read_allocation(const struct cli *c, const char *path)
{
    FILE *f = fopen(path, "rb");
    char *text = f ? malloc(MAX_ALLOCATION + 1) : NULL;
    size_t n = text ? fread(text, 1, MAX_ALLOCATION, f) : 0;
    bool ok = text && !ferror(f) && feof(f);
    if (f) fclose(f);
    if (ok) text[n] = 0;
    else free(text), text = NULL, usage_error(c, "'%s' cannot be read as an allocation", path);
    return text;
}

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
