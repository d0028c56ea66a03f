// SPDX-License-Identifier: Apache-2.0
//
// dev_cuda_gemm.c: GEMM by cuBLAS and rocBLAS, on the device's own stream, so that their times are measured by the same
// events as those of kernels. The library is opened with the first GEMM and stays with the device. QUERN_CUBLAS_LIBRARY
// and QUERN_ROCBLAS_LIBRARY name other libraries. Numbers are those of cublas_api.h, library_types.h and rocblas-types.h.
#include "dev/dev_cuda.h"

struct cublas_calls {
    i32 (*Create)(void **handle);
    i32 (*Destroy)(void *handle);
    i32 (*SetStream)(void *handle, void *stream);
    i32 (*GetVersion)(void *handle, i32 *v);
    i32 (*GemmEx)(void *handle, i32 op_a, i32 op_b, i32 m, i32 n, i32 k, const void *alpha, u64 a, i32 type_a, i32 lda, u64 b,
                  i32 type_b, i32 ldb, const void *beta, u64 c, i32 type_c, i32 ldc, i32 compute, i32 algorithm);
    i32 (*GemmStridedBatchedEx)(void *handle, i32 op_a, i32 op_b, i32 m, i32 n, i32 k, const void *alpha, u64 a, i32 type_a,
                                i32 lda, long long step_a, u64 b, i32 type_b, i32 ldb, long long step_b, const void *beta, u64 c,
                                i32 type_c, i32 ldc, long long step_c, i32 batch, i32 compute, i32 algorithm);
    const char *(*GetStatusName)(i32 r);
};

struct rocblas_calls {
    i32 (*create_handle)(void **handle);
    i32 (*destroy_handle)(void *handle);
    i32 (*set_stream)(void *handle, void *stream);
    i32 (*get_version_string)(char *text, size_t n);
    i32 (*gemm_strided_batched_ex)(void *handle, i32 op_a, i32 op_b, i32 m, i32 n, i32 k, const void *alpha, u64 a, i32 type_a,
                                   i32 lda, i64 step_a, u64 b, i32 type_b, i32 ldb, i64 step_b, const void *beta, u64 c,
                                   i32 type_c, i32 ldc, i64 step_c, u64 d, i32 type_d, i32 ldd, i64 step_d, i32 batch,
                                   i32 compute, i32 algorithm, i32 solution, u32 flags);
    const char *(*status_to_string)(i32 r);
};

#define CUBLAS(field, name, may_lack) {name, offsetof(struct cublas_calls, field), may_lack}
static const struct dev_call cublas_entries[] = {
    CUBLAS(Create, "cublasCreate_v2", false),
    CUBLAS(Destroy, "cublasDestroy_v2", false),
    CUBLAS(SetStream, "cublasSetStream_v2", false),
    CUBLAS(GetVersion, "cublasGetVersion_v2", false),
    CUBLAS(GemmEx, "cublasGemmEx", false),
    CUBLAS(GemmStridedBatchedEx, "cublasGemmStridedBatchedEx", false),
    CUBLAS(GetStatusName, "cublasGetStatusName", true),
};
#define ROCBLAS(field, may_lack) {"rocblas_" #field, offsetof(struct rocblas_calls, field), may_lack}
static const struct dev_call rocblas_entries[] = {
    ROCBLAS(create_handle, false),
    ROCBLAS(destroy_handle, false),
    ROCBLAS(set_stream, false),
    ROCBLAS(get_version_string, false),
    ROCBLAS(gemm_strided_batched_ex, false),
    ROCBLAS(status_to_string, true),
};
static const struct dev_library cublas = {
    "cuBLAS", "QUERN_CUBLAS_LIBRARY",
    "libcublas.so.13 libcublas.so.12 libcublas.so.11 libcublas.so /usr/local/cuda/lib64/libcublas.so", cublas_entries,
    countof(cublas_entries)};
static const struct dev_library rocblas = {
    "rocBLAS", "QUERN_ROCBLAS_LIBRARY",
    "librocblas.so.5 librocblas.so.4 librocblas.so.3 librocblas.so.0 librocblas.so /opt/rocm/lib/librocblas.so", rocblas_entries,
    countof(rocblas_entries)};

struct cuda_blas {
    void *lib, *handle;
    struct cublas_calls cu;   /* of CUDA */
    struct rocblas_calls roc; /* of HIP */
};

/* Types of operands and result, and the compute type; 0 for compute: unsupported by the
   library. Sums of 16-bit types are f32; tf32 is storage of f32 whose operands may be rounded. */
static const struct number {
    enum dtype type;
    i32 cu, cu_compute, roc, roc_compute;
} numbers[] = {
    {DT_F32, 0, 68, 151, 151},  {DT_F16, 2, 68, 150, 151}, {DT_BF16, 14, 68, 168, 151},
    {DT_F64, 1, 70, 152, 152},  {DT_TF32, 0, 77, 0, 0},
};

static const struct number *number_of(enum dtype t)
{
    for (i64 i = 0; i < countof(numbers); i++)
        if (numbers[i].type == t) return &numbers[i];
    return NULL;
}

static bool blas_ok(const struct cuda *c, i32 r, const char *call, struct err *e)
{
    const struct cuda_blas *b = c->blas;
    const char *name = NULL;
    if (r == 0) return true;
    if (b->cu.GetStatusName) name = b->cu.GetStatusName(r);
    if (b->roc.status_to_string) name = b->roc.status_to_string(r);
    return err_set(e, ERR_SYSTEM, "'%s': %s: %s (%d)", c->facts.name, call, name ? name : "an unknown failure", r);
}

void cuda_blas_close(struct cuda *c)
{
    struct cuda_blas *b = c->blas;
    if (!b) return;
    if (b->handle && b->cu.Destroy) b->cu.Destroy(b->handle);
    if (b->handle && b->roc.destroy_handle) b->roc.destroy_handle(b->handle);
    if (b->lib) os_dlclose(b->lib);
    mem_free(b);
    c->blas = NULL;
}

static bool start(struct cuda *c, struct cuda_blas *b, struct err *e)
{
    if (c->api->has_gfx)
        return blas_ok(c, b->roc.create_handle(&b->handle), "rocblas_create_handle", e) &&
               blas_ok(c, b->roc.set_stream(b->handle, c->stream), "rocblas_set_stream", e);
    return blas_ok(c, b->cu.Create(&b->handle), "cublasCreate", e) &&
           blas_ok(c, b->cu.SetStream(b->handle, c->stream), "cublasSetStream", e);
}

static bool open_blas(struct cuda *c, struct err *e)
{
    struct cuda_blas *b = c->blas;
    if (b) return true;
    c->blas = b = mem_alloc((i64)sizeof *b);
    b->lib = c->api->has_gfx ? dev_library_open(&rocblas, &b->roc, e) : dev_library_open(&cublas, &b->cu, e);
    if (b->lib && start(c, b, e)) return true;
    cuda_blas_close(c);
    return false;
}

static bool put_name(const struct cuda *c, struct buf *name, struct err *e)
{
    char text[64] = "";
    i32 v = 0;
    if (c->api->has_gfx) {
        if (!blas_ok(c, c->blas->roc.get_version_string(text, sizeof text - 1), "rocblas_get_version_string", e)) return false;
        buf_printf(name, "rocBLAS %s", text);
        return true;
    }
    if (!blas_ok(c, c->blas->cu.GetVersion(c->blas->handle, &v), "cublasGetVersion", e)) return false;
    buf_printf(name, "cuBLAS %d", v);
    return true;
}

bool cuda_gemm_check(struct cuda *c, const struct dev_gemm *p, struct buf *name, struct err *e)
{
    const struct number *t = number_of(p->type);
    struct dev_columns s;
    if (!open_blas(c, e) || !dev_columns_of(&s, p, e)) return false;
    if (!t || !(c->api->has_gfx ? t->roc_compute : t->cu_compute))
        return err_set(e, ERR_UNSUPPORTED, "%s has no matmul of '%s'", c->api->has_gfx ? rocblas.what : cublas.what,
                       dtype_name(p->type));
    return put_name(c, name, e);
}

/* Launching. */

struct operands { u64 a, b, c; }; /* addresses, in the terms of dev_columns */

static i32 run_cublas(const struct cuda *c, const struct dev_gemm *p, const struct dev_columns *s, const struct operands *x)
{
    enum { NO, YES, DEFAULT = -1 };
    static const float one = 1, zero = 0;
    static const double one64 = 1, zero64 = 0;
    const struct number *t = number_of(p->type);
    const struct cuda_blas *b = c->blas;
    const void *alpha = p->type == DT_F64 ? (const void *)&one64 : &one, *beta = p->type == DT_F64 ? (const void *)&zero64 : &zero;
    i32 op_b = s->b_transposed ? YES : NO;
    if (p->batch == 1)
        return b->cu.GemmEx(b->handle, NO, op_b, s->m, s->n, s->k, alpha, x->a, t->cu, s->lda, x->b, t->cu, s->ldb, beta, x->c,
                            t->cu, s->ldc, t->cu_compute, DEFAULT);
    return b->cu.GemmStridedBatchedEx(b->handle, NO, op_b, s->m, s->n, s->k, alpha, x->a, t->cu, s->lda, s->step_a, x->b, t->cu,
                                      s->ldb, s->step_b, beta, x->c, t->cu, s->ldc, s->step_c, (i32)p->batch, t->cu_compute,
                                      DEFAULT);
}

static i32 run_rocblas(const struct cuda *c, const struct dev_gemm *p, const struct dev_columns *s, const struct operands *x)
{
    enum { NO = 111, YES = 112, STANDARD = 0 };
    static const float one = 1, zero = 0;
    static const double one64 = 1, zero64 = 0;
    const struct number *t = number_of(p->type);
    const struct cuda_blas *b = c->blas;
    const void *alpha = p->type == DT_F64 ? (const void *)&one64 : &one, *beta = p->type == DT_F64 ? (const void *)&zero64 : &zero;
    return b->roc.gemm_strided_batched_ex(b->handle, NO, s->b_transposed ? YES : NO, s->m, s->n, s->k, alpha, x->a, t->roc,
                                          s->lda, s->step_a, x->b, t->roc, s->ldb, s->step_b, beta, x->c, t->roc, s->ldc,
                                          s->step_c, x->c, t->roc, s->ldc, s->step_c, (i32)p->batch, t->roc_compute, STANDARD, 0,
                                          0);
}

bool cuda_gemm_launch(struct cuda *c, const struct dev_gemm *p, const struct dev_launch *l, struct err *e)
{
    struct dev_columns s;
    if (!dev_gemm_check(p, l, e) || !dev_columns_of(&s, p, e) || !cuda_start_clock(c, e)) return false;
    struct operands x = {cuda_address(&l->buf[1]), cuda_address(&l->buf[0]), cuda_address(&l->buf[2])};
    if (c->api->has_gfx) return blas_ok(c, run_rocblas(c, p, &s, &x), "rocblas_gemm_strided_batched_ex", e);
    return blas_ok(c, run_cublas(c, p, &s, &x), p->batch == 1 ? "cublasGemmEx" : "cublasGemmStridedBatchedEx", e);
}
