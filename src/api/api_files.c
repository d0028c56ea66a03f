// SPDX-License-Identifier: Apache-2.0
//
// Tensor files. Declared and documented in include/quern.h.
#include "api/api.h"

#include "io/io.h"

#include <string.h>

/* The reader's arena ends with the call: copies the content to the heap. */
static quern_status take_copy(quern *q, const struct tensor *t, quern_tensor **out)
{
    return quern_tensor_new(q, (quern_dtype)dtype_onnx(t->dtype), (int)t->rank, t->dim, t->data,
                            out);
}

quern_status quern_tensor_read(quern *q, const char *path, quern_tensor **out)
{
    if (!api_given(q, "path out", path, out)) return QUERN_USAGE;
    struct err *e = api_begin(q);
    struct arena a = {0};
    struct tensor t = {0};
    quern_status s = io_read(&t, &a, path, e) ? take_copy(q, &t, out) : api_end(q, false);
    arena_release(&a);
    return s;
}

quern_status quern_tensor_read_raw(quern *q, const char *path, quern_dtype type, int rank,
                                   const int64_t *dim, quern_tensor **out)
{
    if (!api_given(q, "path dim out", path, rank > 0 ? (const void *)dim : "", out)) return QUERN_USAGE;
    struct err *e = api_begin(q);
    struct arena a = {0};
    struct tensor t = {.dtype = dtype_from_onnx((int)type), .rank = (u32)rank};
    if (rank < 0 || rank > MAX_RANK)
        return api_end(q, err_set(e, ERR_USAGE, "rank %d is not in 0..%d", rank, MAX_RANK));
    for (int d = 0; d < rank; d++) t.dim[d] = dim[d];
    quern_status s = io_read(&t, &a, path, e) ? take_copy(q, &t, out) : api_end(q, false);
    arena_release(&a);
    return s;
}

quern_status quern_tensors_read(quern *q, const char *path, quern_kind kind, quern_tensor **out, int max, int *n)
{
    if (!api_given(q, "path out n", path, max > 0 ? (const void *)out : "", n)) return QUERN_USAGE;
    struct err *e = api_begin(q);
    struct arena a = {0};
    struct io_list l = {0};
    *n = 0;
    if (kind <= QUERN_TENSOR || kind > QUERN_OPTIONAL_SEQUENCE)
        return api_end(q, err_set(e, ERR_USAGE, "'%s': kind %d is neither that of a sequence nor of an optional value", path, (int)kind));
    bool ok = io_read_list(&l, &a, (enum io_list_kind)kind, path, e);
    if (ok && (i64)l.n > max) ok = err_set(e, ERR_UNSUPPORTED, "'%s': %u elements, but room for only %d", path, l.n, max);
    quern_status s = ok ? QUERN_OK : api_end(q, false);
    for (; !s && *n < (int)l.n; *n += !s) s = take_copy(q, &l.v[*n], &out[*n]);
    while (s && *n > 0) quern_tensor_free(out[--*n]);
    if (!s && l.is_none) *n = -1;
    arena_release(&a);
    return s;
}

quern_status quern_tensor_write(quern *q, const char *path, const quern_tensor *t)
{
    if (!api_given(q, "path t", path, t)) return QUERN_USAGE;
    struct err *e = api_begin(q);
    return api_end(q, io_write(&t->t, path, e));
}

quern_status quern_npz_read(quern *q, const char *path, quern_tensor **out, char (*name)[256], int max, int *n)
{
    if (!api_given(q, "path out name n", path, max > 0 ? (const void *)out : "", max > 0 ? (const void *)name : "", n)) return QUERN_USAGE;
    struct err *e = api_begin(q);
    struct arena a = {0};
    struct os_file f = {0};
    struct io_npz z = {0};
    *n = 0;
    bool ok = os_map(&f, path, e) && (io_npz_read(&z, &a, (struct str){(const char *)f.p, f.n}, e) || err_prefix(e, "'%s'", path));
    if (ok && (i64)z.n > max) ok = err_set(e, ERR_UNSUPPORTED, "'%s': %u arrays, but room for only %d", path, z.n, max);
    for (u32 k = 0; ok && k < z.n; k++)
        if (z.v[k].name.n >= 256) ok = err_set(e, ERR_UNSUPPORTED, "'%s': name of more than 255 bytes", path);
    quern_status s = ok ? QUERN_OK : api_end(q, false);
    for (; !s && *n < (int)z.n; *n += !s) {
        memcpy(name[*n], z.v[*n].name.p, (size_t)z.v[*n].name.n + 1);
        s = take_copy(q, &z.v[*n].t, &out[*n]);
    }
    while (s && *n > 0) quern_tensor_free(out[--*n]);
    os_unmap(&f);
    arena_release(&a);
    return s;
}
