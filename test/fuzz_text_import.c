// SPDX-License-Identifier: Apache-2.0
//
// Import of networks in text form: every operator's inference on arbitrary sizes and attributes.
#include "fuzz.h"
#include "import/import.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
    struct arena a = {0};
    struct symtab st;
    struct graph g;
    struct err e = {0};
    symtab_init(&st, &a);
    import_bytes(&g, &a, &st, (struct str){(const char *)p, (i64)n}, &e);
    arena_release(&a);
    return 0;
}
