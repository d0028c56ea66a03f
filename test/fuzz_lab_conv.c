// SPDX-License-Identifier: Apache-2.0
//
// Files of convolutions: accepted input is printed and read again as the same, and has sizes, a name and a valid smaller version.
#include "fuzz.h"
#include "lab/conv.h"

#include <stdlib.h>
#include <string.h>

static void one(const struct conv_row *r)
{
    struct conv_row less = *r;
    struct buf b = {0};
    struct err e = {0};
    conv_row_label(&b, r);
    conv_row_shrink(&less, 1e3);
    if (!conv_row_check(&less, &e) || !(conv_row_flops(&less) <= conv_row_flops(r)) || !(conv_row_bytes(r, DT_F32) > 0)) abort();
    buf_release(&b);
}

static void check(struct arena *a, const struct conv_data *d)
{
    struct buf first = {0}, second = {0};
    struct conv_data again;
    struct err e = {0};
    for (u32 i = 0; i < d->row.n; i++) one(&d->row.v[i]);
    conv_print(&first, d);
    if (!conv_read(&again, a, buf_view(&first), &e)) abort();
    conv_print(&second, &again);
    if (again.note.n || !str_eq(buf_view(&first), buf_view(&second))) abort();
    buf_release(&first);
    buf_release(&second);
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
    struct arena a = {0};
    struct conv_data d;
    struct err e = {0};
    if (conv_read(&d, &a, (struct str){(const char *)p, (i64)n}, &e)) check(&a, &d);
    else if (!e.code) abort();
    arena_release(&a);
    return 0;
}
