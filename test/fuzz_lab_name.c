// SPDX-License-Identifier: Apache-2.0
//
// Names of kernels, one a line: accepted names are printed, read again and explained.
#include "fuzz.h"
#include "lab/lab.h"

#include <stdlib.h>

static void one(struct str name)
{
    struct lab_config c, again;
    struct err e = {0};
    struct buf b = {0}, words = {0};
    if (lab_name_parse(&c, name, &e)) {
        lab_name_print(&b, &c);
        if (!lab_name_parse(&again, buf_view(&b), &e)) abort();
        lab_explain(&words, &c);
    }
    buf_release(&b);
    buf_release(&words);
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
    struct str text = {(const char *)p, (i64)n}, line;
    while (str_cut(text, '\n', &line, &text)) one(line);
    one(text);
    return 0;
}
