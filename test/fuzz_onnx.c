// SPDX-License-Identifier: Apache-2.0
//
// ONNX import: accepted models are printed and exported. Each file is also imported with all
// problems collected, and with numbers of elements for its first sequence inputs.
#include <onnx.pb-c.h>

#include "export/export.h"
#include "fuzz.h"
#include "import/import.h"
#include "io/io.h"

extern const struct importer import_onnx;

static void all_problems(struct str bytes)
{
    struct arena a = {0};
    struct symtab st;
    struct graph g;
    struct err e = {0};
    struct import_problems all = {0};
    struct import_job j = {.g = &g, .bytes = bytes, .all = &all};
    symtab_init(&st, &a);
    graph_init(&g, &a, &st);
    import_onnx.read(&j, &e);
    arena_release(&a);
}

static void with_elements(struct str bytes)
{
    struct arena a = {0};
    struct symtab st;
    struct graph g;
    struct err e = {0};
    struct str name;
    enum io_list_kind kind;
    struct buf text = {0};
    for (i64 k = 0; k < 3 && import_describe(bytes, false, k, &name, &kind, &a, &e); k++)
        if (kind != IO_TENSOR) buf_printf(&text, "%.*s:%s,", STR_ARG(name), k == 1 ? "none" : kind == IO_OPTIONAL ? "1" : "3");
    symtab_init(&st, &a);
    e = (struct err){0};
    if (text.n && import_elements(&bytes, &a, bytes, text.p, &e)) import_bytes(&g, &a, &st, bytes, &e);
    buf_release(&text);
    arena_release(&a);
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
    struct arena a = {0};
    struct symtab st;
    struct graph g;
    struct err e = {0};
    struct buf b = {0};
    symtab_init(&st, &a);
    if (import_bytes(&g, &a, &st, (struct str){(const char *)p, (i64)n}, &e)) {
        graph_print(&b, &g, NULL);
        buf_reset(&b);
        export_onnx_bytes(&g, &b, &e);
        buf_reset(&b);
        e = (struct err){0};
        export_onnx_bytes_at(&g, n % 2 ? 13 : 17, &b, &e);
    }
    buf_release(&b);
    arena_release(&a);
    all_problems((struct str){(const char *)p, (i64)n});
    with_elements((struct str){(const char *)p, (i64)n});
    return 0;
}
