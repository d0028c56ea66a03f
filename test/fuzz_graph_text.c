// SPDX-License-Identifier: Apache-2.0
//
// Text form of graphs: parsed text is printed, and the print parses to the same print.
#include <stdlib.h>

#include "fuzz.h"
#include "ir/ir.h"

static void check_again(struct arena *a, struct symtab *st, const struct graph *g)
{
    struct graph h;
    struct err e = {0};
    struct buf b = {0}, c = {0};
    graph_print(&b, g, NULL);
    if (!graph_parse(&h, a, st, buf_view(&b), &e)) abort();
    graph_print(&c, &h, NULL);
    if (!str_eq(buf_view(&b), buf_view(&c))) abort();
    buf_release(&b);
    buf_release(&c);
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
    struct arena a = {0};
    struct symtab st;
    struct graph g;
    struct err e = {0};
    symtab_init(&st, &a);
    if (graph_parse(&g, &a, &st, (struct str){(const char *)p, (i64)n}, &e)) check_again(&a, &st, &g);
    arena_release(&a);
    return 0;
}
