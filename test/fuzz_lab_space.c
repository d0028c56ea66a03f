// SPDX-License-Identifier: Apache-2.0
//
// Files of value lists, of a GEMM and of attention: accepted spaces can be counted by every set of rules, and their first points have names.
#include "fuzz.h"
#include "lab/lab.h"

#include <stdlib.h>

static bool visit(void *user, const struct lab_config *c, i64 number)
{
    struct lab_config back;
    struct err e = {0};
    struct buf b = {0};
    lab_name_print(&b, c);
    if (!lab_name_parse(&back, buf_view(&b), &e)) abort();
    buf_release(&b);
    return number < 3;
}

static void read_as(struct str json, enum lab_kind kind)
{
    const struct lab_config of = {.kind = kind, .b = 1, .h = 2, .s = 64, .d = 32};
    struct arena a = {0};
    struct lab_space s;
    struct lab_count c;
    struct err e = {0};
    if (lab_space_read(&s, &a, json, &of, &e))
        for (u32 r = 0; r < N_LAB_RULES; r++)
            if (lab_space_count(&s, r, &c, &(struct err){0})) lab_space_each(&s, r, 0, visit, NULL);
    arena_release(&a);
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
    static const enum lab_kind kinds[] = {LAB_MM, LAB_ATTENTION_ORIGIN, LAB_H2O_K2};
    for (i64 k = 0; k < countof(kinds); k++) read_as((struct str){(const char *)p, (i64)n}, kinds[k]);
    return 0;
}
