// SPDX-License-Identifier: Apache-2.0
//
// DLPack exchange. The structures are declared here from the DLPack 0.8 specification
// (dmlc.github.io/dlpack, "C API"): they are an ABI, and nothing else of that project is needed.
// 8-bit floats have the codes of DLPack 1.1. DLPack packs smaller elements, which occupy a byte
// each here, so they are refused.
#include "api/api.h"

enum { DL_CPU = 1, DL_CUDA_HOST = 3 };
enum dl_code { DL_INT = 0, DL_UINT = 1, DL_FLOAT = 2, DL_BFLOAT = 4, DL_BOOL = 6 };

struct dl_tensor {
    void *data;
    struct {
        i32 device_type, device_id;
    } device;
    i32 ndim;
    struct {
        u8 code, bits;
        u16 lanes;
    } dtype;
    i64 *shape, *strides;
    u64 byte_offset;
};

struct DLManagedTensor {
    struct dl_tensor dl_tensor;
    void *manager_ctx;
    void (*deleter)(struct DLManagedTensor *self);
};

static const struct {
    u8 code;
    enum dtype dtype;
} small[] = {{10, DT_F8E4M3FN}, {11, DT_F8E4M3FNUZ}, {12, DT_F8E5M2}, {13, DT_F8E5M2FNUZ}, {14, DT_F8E8M0}};

static enum dtype from_dl(u8 code, u8 bits)
{
    for (i64 i = 0; i < countof(small); i++)
        if (small[i].code == code && bits == 8) return small[i].dtype;
    for (enum dtype t = DT_NONE + 1; t < N_DTYPES; t++) {
        if (dtype_size(t) * 8 != bits || dtype_is_small(t)) continue;
        enum dtype_kind k = dtype_kind(t);
        if ((code == DL_INT && k == DK_INT) || (code == DL_UINT && k == DK_UINT) ||
            (code == DL_BOOL && k == DK_BOOL))
            return t;
        if ((code == DL_BFLOAT && t == DT_BF16) ||
            (code == DL_FLOAT && k == DK_FLOAT && t != DT_BF16))
            return t;
    }
    return DT_NONE;
}

static u8 dl_code_of(enum dtype t)
{
    for (i64 i = 0; i < countof(small); i++)
        if (small[i].dtype == t) return small[i].code;
    switch (dtype_kind(t)) {
    case DK_INT: return DL_INT;
    case DK_UINT: return DL_UINT;
    case DK_BOOL: return DL_BOOL;
    case DK_FLOAT: return t == DT_BF16 ? DL_BFLOAT : DL_FLOAT;
    case DK_NONE:
    default: unreachable();
    }
}

static bool is_dense(const struct dl_tensor *d)
{
    i64 want = 1;
    if (!d->strides) return true;
    for (i32 i = d->ndim - 1; i >= 0; i--) {
        if (d->shape[i] != 1 && d->strides[i] != want) return false;
        want *= d->shape[i];
    }
    return true;
}

quern_status quern_tensor_from_dlpack(quern *q, struct DLManagedTensor *m, quern_tensor **out)
{
    if (!api_given(q, "m out", m, out)) return QUERN_USAGE;
    struct err *e = api_begin(q);
    const struct dl_tensor *d = &m->dl_tensor;
    struct tensor t = {.dtype = from_dl(d->dtype.code, d->dtype.bits), .rank = (u32)d->ndim};
    i64 bytes;
    if (d->device.device_type != DL_CPU && d->device.device_type != DL_CUDA_HOST)
        return api_end(q, err_set(e, ERR_UNSUPPORTED,
                                  "a DLPack tensor is on device type %d, expected the CPU",
                                  d->device.device_type));
    if (t.dtype == DT_NONE || d->dtype.lanes != 1)
        return api_end(q, err_set(e, ERR_UNSUPPORTED, "DLPack element type %d of %d bits",
                                  d->dtype.code, d->dtype.bits));
    if (d->ndim < 0 || d->ndim > MAX_RANK)
        return api_end(q, err_set(e, ERR_UNSUPPORTED, "DLPack rank %d", d->ndim));
    if (d->ndim > 0 && !d->shape) return api_end(q, err_set(e, ERR_USAGE, "the DLPack tensor's shape is NULL"));
    for (i32 i = 0; i < d->ndim; i++) t.dim[i] = d->shape[i];
    if (!tensor_size_ok(t.dtype, t.rank, t.dim, &bytes) || !mem_is_addressable(bytes) || d->byte_offset > PTRDIFF_MAX)
        return api_end(q, err_set(e, ERR_INPUT, "DLPack sizes are negative or too large"));
    if (!is_dense(d))
        return api_end(q,
                       err_set(e, ERR_UNSUPPORTED, "a DLPack tensor is not dense and row-major"));
    t.data = (char *)d->data + d->byte_offset;
    *out = api_tensor_take(&t);
    (*out)->owns = false;
    (*out)->managed = m;
    return QUERN_OK;
}

void quern_tensor_free(quern_tensor *t)
{
    if (!t) return;
    if (t->managed && t->managed->deleter) t->managed->deleter(t->managed);
    if (t->owns) mem_free(t->t.data);
    mem_free(t);
}

struct exported {
    struct DLManagedTensor m;
    quern_tensor *t;
    i64 shape[MAX_RANK];
};

static void release_exported(struct DLManagedTensor *m)
{
    struct exported *x = m->manager_ctx;
    quern_tensor_free(x->t);
    mem_free(x);
}

quern_status quern_tensor_to_dlpack(quern *q, quern_tensor *t, struct DLManagedTensor **out)
{
    if (!api_given(q, "t out", t, out)) return QUERN_USAGE;
    struct err *e = api_begin(q);
    if (dtype_bits(t->t.dtype) < 8)
        return api_end(q, err_set(e, ERR_UNSUPPORTED, "DLPack packs elements of type %s, here each has a byte: cast them first",
                                  dtype_name(t->t.dtype)));
    struct exported *x = mem_alloc(sizeof *x);
    x->t = t;
    for (u32 d = 0; d < t->t.rank; d++) x->shape[d] = t->t.dim[d];
    x->m.manager_ctx = x;
    x->m.deleter = release_exported;
    x->m.dl_tensor = (struct dl_tensor){
        .data = t->t.data, .device = {DL_CPU, 0}, .ndim = (i32)t->t.rank, .shape = x->shape};
    x->m.dl_tensor.dtype.code = dl_code_of(t->t.dtype);
    x->m.dl_tensor.dtype.bits = (u8)(dtype_size(t->t.dtype) * 8);
    x->m.dl_tensor.dtype.lanes = 1;
    *out = &x->m;
    return QUERN_OK;
}
