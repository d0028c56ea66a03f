// SPDX-License-Identifier: Apache-2.0
//
// export_c_data.c: elements of tensors as initialisers of C. Floats are decimal with as many digits as they need to be read back exactly.
#include "export/export_c.h"

#include <math.h>

enum { LINE = 100, INDENT = 4 };

static void put_float(struct buf *b, double v, int digits, const char *end)
{
    i64 start = b->n;
    if (isnan(v)) buf_z(b, "NAN");
    else if (isinf(v)) buf_printf(b, "%sINFINITY", v < 0 ? "-" : "");
    if (b->n > start) return;
    buf_printf(b, "%.*g", digits, v);
    bool has_point = false;
    for (i64 i = start; i < b->n; i++) has_point |= b->p[i] == '.' || b->p[i] == 'e';
    buf_printf(b, "%s%s", has_point ? "" : ".0", end);
}

/* As few digits as are read back as the same number. */
static void put_f32(struct buf *b, float v)
{
    enum { LEAST = 6, MOST = 9 };
    i64 start = b->n;
    for (int digits = LEAST; digits <= MOST && !b->failed; digits++) {
        double back;
        b->n = start;
        buf_printf(b, "%.*g", digits, (double)v);
        if (!b->failed && str_to_f64(str_sub(buf_view(b), start, b->n), &back) && (float)back == v) {
            b->n = start;
            put_float(b, v, digits, "f");
            return;
        }
    }
    b->n = start;
    put_float(b, v, MOST, "f");
}

static void put_integer(struct buf *b, enum dtype d, i64 v)
{
    if (v == INT64_MIN) buf_z(b, "(-9223372036854775807 - 1)");
    else if (v == INT32_MIN) buf_z(b, "(-2147483647 - 1)");
    else if (d == DT_U64 || d == DT_U32) buf_printf(b, "%lluu", (unsigned long long)v);
    else buf_printf(b, "%lld", (long long)v);
}

static void put_element(struct buf *b, enum dtype d, const void *p, i64 i)
{
    if (d == DT_F32) put_f32(b, ((const float *)p)[i]);
    else if (d == DT_F64) put_float(b, ((const double *)p)[i], 17, "");
    else if (d == DT_F16 || d == DT_BF16) put_integer(b, DT_U16, elem_i64(DT_U16, p, i));
    else if (d == DT_BOOL) put_integer(b, DT_U8, elem_i64(DT_U8, p, i) != 0);
    else put_integer(b, dtype_stored(d), elem_i64(dtype_stored(d), p, i));
}

void c_print_elements(struct buf *b, enum dtype d, const void *p, i64 n)
{
    i64 line = 0;
    for (i64 i = 0; i < n && !b->failed; i++) {
        i64 start = b->n;
        if (line == 0) buf_printf(b, "%*s", INDENT, "");
        else buf_char(b, ' ');
        put_element(b, d, p, i);
        buf_char(b, ',');
        line += b->n - start;
        if (line >= LINE - 24 || i + 1 == n) buf_char(b, '\n'), line = 0;
    }
}
