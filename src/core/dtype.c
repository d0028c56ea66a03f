// SPDX-License-Identifier: Apache-2.0
//
// Element types: names, sizes and kinds from the rows of dtype.inc.
#include "core/core.h"

struct dtype_row {
    const char *name;
    int size;
    enum dtype_kind kind;
    int onnx;
};

static const struct dtype_row rows[DT_TF32 + 1] = {
    [DT_NONE] = {"none", 0, DK_NONE, 0},
#define X(id, name, size, kind, onnx) [DT_##id] = {name, size, kind, onnx},
#include "core/dtype.inc"
#undef X
    [DT_TF32] = {"tf32", 4, DK_FLOAT, 0},
};

static const struct dtype_row *row(enum dtype t)
{
    assert((unsigned)t <= DT_TF32 && rows[t].name);
    return &rows[t];
}

const char *dtype_name(enum dtype t) { return row(t)->name; }
i64 dtype_size(enum dtype t) { return row(t)->size; }
enum dtype_kind dtype_kind(enum dtype t) { return row(t)->kind; }
int dtype_onnx(enum dtype t) { return row(t)->onnx; }
bool dtype_is_float(enum dtype t) { return row(t)->kind == DK_FLOAT; }
bool dtype_is_int(enum dtype t) { return row(t)->kind == DK_INT || row(t)->kind == DK_UINT; }

i64 dtype_int_extreme(enum dtype t, bool largest)
{
    i64 bits = 8 * dtype_size(t);
    switch (dtype_kind(t)) {
    case DK_NONE:
    case DK_FLOAT: return 0;
    case DK_BOOL: return largest;
    case DK_UINT: return !largest ? 0 : bits == 64 ? -1 : ((i64)1 << bits) - 1;
    case DK_INT:
        return largest ? (i64)(~(u64)0 >> (65 - bits)) : -(i64)(~(u64)0 >> (65 - bits)) - 1;
    }
    unreachable();
}

enum dtype dtype_parse(struct str s)
{
    for (int t = 1; t < N_DTYPES; t++)
        if (str_is(s, rows[t].name)) return (enum dtype)t;
    return DT_NONE;
}

enum dtype dtype_from_onnx(int onnx)
{
    for (int t = 1; t < N_DTYPES; t++)
        if (rows[t].onnx == onnx) return (enum dtype)t;
    return DT_NONE;
}

const char *dtype_onnx_name(int onnx)
{
    static const char *const other[] = {[8] = "string", [14] = "complex64", [15] = "complex128"};
    enum dtype t = dtype_from_onnx(onnx);
    if (t != DT_NONE) return dtype_name(t);
    return onnx > 0 && onnx < countof(other) && other[onnx] ? other[onnx] : onnx ? "that is unknown" : "that is not given";
}
