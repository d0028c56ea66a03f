// SPDX-License-Identifier: Apache-2.0
//
// Sparse tensors of ONNX become dense constants: the values are placed at their indices,
// which are row-major numbers (n) or indices of all axes (n, rank), and everything else is 0.
#include <string.h>

#include <onnx.pb-c.h>

#include "import/import.h"
#include "io/io.h"

enum { MAX_DENSE = 1 << 30 /* bytes: a small file must not demand all memory */ };

static bool bad(const Onnx__SparseTensorProto *p, struct err *e, const char *what)
{
    return err_set(e, ERR_INPUT, "sparse tensor '%s': %s", p->values && p->values->name ? p->values->name : "", what);
}

static bool read_dims(const Onnx__SparseTensorProto *p, const struct tensor *values, struct tensor *out, struct err *e)
{
    i64 count = 0;
    *out = (struct tensor){.dtype = values->dtype, .rank = (u32)p->n_dims};
    if (p->n_dims > MAX_RANK) return bad(p, e, "rank over 8");
    for (size_t i = 0; i < p->n_dims; i++) out->dim[i] = p->dims[i];
    if (!tensor_size_ok(out->dtype, out->rank, out->dim, &count)) return bad(p, e, "bad sizes");
    if (count > MAX_DENSE) return bad(p, e, "more than 1 GiB as a dense tensor");
    return true;
}

/* Row-major number of value i; -1: outside. */
static i64 place_of(const struct tensor *indices, const struct tensor *to, i64 i)
{
    i64 at = 0;
    if (indices->rank == 1) {
        at = elem_i64(DT_I64, indices->data, i);
        return at >= 0 && at < tensor_count(to) ? at : -1;
    }
    for (u32 a = 0; a < to->rank; a++) {
        i64 k = elem_i64(DT_I64, indices->data, i * to->rank + a);
        if (k < 0 || k >= to->dim[a]) return -1;
        at = at * to->dim[a] + k;
    }
    return at;
}

bool import_sparse(struct tensor *out, struct arena *a, struct Onnx__SparseTensorProto *p, const struct os_beside *beside, struct err *e)
{
    struct tensor values, indices;
    if (!p->values || !p->indices) return bad(p, e, "without values or indices");
    if (!io_onnx_tensor(&values, a, p->values, beside, e) || !io_onnx_tensor(&indices, a, p->indices, beside, e)) return false;
    if (!read_dims(p, &values, out, e)) return false;
    i64 n = tensor_count(&values), size = dtype_size(values.dtype);
    bool flat = indices.rank == 1 && indices.dim[0] == n;
    if (values.rank != 1 || indices.dtype != DT_I64 || !(flat || (indices.rank == 2 && indices.dim[0] == n && indices.dim[1] == out->rank)))
        return bad(p, e, "indices do not fit the values");
    struct tensor *dense = tensor_try(a, out->dtype, out->rank, out->dim, e, "sparse tensor ", str_of(p->values->name));
    if (!dense) return false;
    for (i64 i = 0; i < n; i++) {
        i64 at = place_of(&indices, dense, i);
        if (at < 0) return bad(p, e, "an index is outside");
        memcpy((char *)dense->data + at * size, (const char *)values.data + i * size, (size_t)size);
    }
    *out = *dense;
    return true;
}
