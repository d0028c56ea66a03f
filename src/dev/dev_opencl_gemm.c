// SPDX-License-Identifier: Apache-2.0
//
// dev_opencl_gemm.c: GEMM by CLBlast, on the device's own queue. The library is opened with the first
// GEMM and stays loaded, because it keeps programs; QUERN_CLBLAST_LIBRARY names another one. It launches
// several kernels, and its event covers the last only, so such launches are timed by the host's clock. Its
// f16 GEMM accumulates in f16, unlike quern's kernels, and is not offered. Numbers are those of clblast_c.h.
#include "dev/dev_opencl.h"

enum { ROW_MAJOR = 101, AS_IT_IS = 111, TRANSPOSED = 112 };

#define GEMM(real)                                                                                                       \
    (i32 layout, i32 op_a, i32 op_b, size_t m, size_t n, size_t k, real alpha, cl_mem a, size_t at_a, size_t lda, cl_mem b, \
     size_t at_b, size_t ldb, real beta, cl_mem c, size_t at_c, size_t ldc, cl_queue *queue, cl_event *done)
#define GEMM_BATCH(real)                                                                                                 \
    (i32 layout, i32 op_a, i32 op_b, size_t m, size_t n, size_t k, real alpha, cl_mem a, size_t at_a, size_t lda,       \
     size_t step_a, cl_mem b, size_t at_b, size_t ldb, size_t step_b, real beta, cl_mem c, size_t at_c, size_t ldc,      \
     size_t step_c, size_t batch, cl_queue *queue, cl_event *done)

struct opencl_blas {
    void *lib;
    i32(*Sgemm) GEMM(float);
    i32(*Dgemm) GEMM(double);
    i32(*SgemmStridedBatched) GEMM_BATCH(float);
    i32(*DgemmStridedBatched) GEMM_BATCH(double);
    i32 (*ClearCache)(void);
};

#define CALL(name) {"CLBlast" #name, offsetof(struct opencl_blas, name), false}
static const struct dev_call calls[] = {CALL(Sgemm), CALL(Dgemm), CALL(SgemmStridedBatched), CALL(DgemmStridedBatched), CALL(ClearCache)};
static const struct dev_library clblast = {"CLBlast", "QUERN_CLBLAST_LIBRARY", "libclblast.so.1 libclblast.so", calls, countof(calls)};

static bool open_blas(struct opencl *o, struct err *e)
{
    if (o->blas) return true;
    struct opencl_blas *b = mem_alloc((i64)sizeof *b);
    b->lib = dev_library_open(&clblast, b, e);
    if (b->lib) o->blas = b;
    else mem_free(b);
    return b == o->blas;
}

/* Its programs belong to the context. */
void opencl_blas_close(struct opencl *o)
{
    if (o->blas) o->blas->ClearCache();
    mem_free(o->blas);
    o->blas = NULL;
}

bool opencl_gemm_check(struct opencl *o, const struct dev_gemm *p, struct buf *name, struct err *e)
{
    struct dev_columns s; /* whether the sizes are sensible */
    if (!open_blas(o, e) || !dev_columns_of(&s, p, e)) return false;
    if (p->type != DT_F32 && p->type != DT_F64)
        return err_set(e, ERR_UNSUPPORTED, "%s has no matmul of '%s' with longer sums", clblast.what, dtype_name(p->type));
    buf_z(name, clblast.what);
    return true;
}

static bool pieces(struct opencl *o, const struct dev_launch *l, cl_mem v[3], struct err *e)
{
    struct opencl_object x;
    opencl_spare_parts(o, l);
    for (u32 i = 0; i < 3; i++) {
        if (!opencl_piece(o, &l->buf[i], &x, e)) return err_prefix(e, "buffer %u", i);
        v[i] = x.mem;
    }
    return true;
}

static i32 run(struct opencl *o, const struct dev_gemm *p, const cl_mem v[3])
{
    const struct opencl_blas *x = o->blas;
    i32 op = p->a_transposed ? TRANSPOSED : AS_IT_IS;
    size_t m = (size_t)p->m, n = (size_t)p->n, k = (size_t)p->k, lda = p->a_transposed ? m : k, batch = (size_t)p->batch;
    if (batch == 1 && p->type == DT_F32)
        return x->Sgemm(ROW_MAJOR, op, AS_IT_IS, m, n, k, 1, v[0], 0, lda, v[1], 0, n, 0, v[2], 0, n, &o->queue, NULL);
    if (batch == 1) return x->Dgemm(ROW_MAJOR, op, AS_IT_IS, m, n, k, 1, v[0], 0, lda, v[1], 0, n, 0, v[2], 0, n, &o->queue, NULL);
    if (p->type == DT_F32)
        return x->SgemmStridedBatched(ROW_MAJOR, op, AS_IT_IS, m, n, k, 1, v[0], 0, lda, m * k, v[1], 0, n, k * n, 0, v[2], 0, n,
                                      m * n, batch, &o->queue, NULL);
    return x->DgemmStridedBatched(ROW_MAJOR, op, AS_IT_IS, m, n, k, 1, v[0], 0, lda, m * k, v[1], 0, n, k * n, 0, v[2], 0, n, m * n,
                                  batch, &o->queue, NULL);
}

bool opencl_gemm_launch(struct opencl *o, const struct dev_gemm *p, const struct dev_launch *l, struct err *e)
{
    cl_mem v[3];
    if (!dev_gemm_check(p, l, e) || !pieces(o, l, v, e)) return false;
    o->seconds = -1; /* unknown from events */
    i32 r = run(o, p, v);
    return r == CL_SUCCESS ||
           err_set(e, ERR_SYSTEM, "'%s': a matmul of %s: %s (%d)", o->facts.name, clblast.what, opencl_result_name(r), r);
}
