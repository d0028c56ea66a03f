// SPDX-License-Identifier: Apache-2.0
//
// dev_host_gemm.c: GEMM by a BLAS library on the CPU, OpenBLAS or else BLIS, with as many threads
// as the device. The library is opened with the first GEMM and stays loaded, because it keeps
// threads. QUERN_BLAS_LIBRARY names another one with CBLAS's interface (netlib.org/blas, cblas.h).
#include "dev/dev.h"

#include <string.h>

enum { ROW_MAJOR = 101, AS_IT_IS = 111, TRANSPOSED = 112 };

struct host_gemm {
    struct dev_gemm p;
    void (*sgemm)(int layout, int op_a, int op_b, int m, int n, int k, float alpha, const float *a, int lda, const float *b, int ldb,
                  float beta, float *c, int ldc);
    void (*dgemm)(int layout, int op_a, int op_b, int m, int n, int k, double alpha, const double *a, int lda, const double *b,
                  int ldb, double beta, double *c, int ldc);
    char *(*openblas_config)(void);          /* OpenBLAS's own */
    void (*openblas_threads)(int n);
    const char *(*blis_version)(void);       /* BLIS's own; its integers are of 64 bits */
    void (*blis_threads)(i64 n);
};

#define CALL(field, name, may_lack) {name, offsetof(struct host_gemm, field), may_lack}
static const struct dev_call calls[] = {
    CALL(sgemm, "cblas_sgemm", false),
    CALL(dgemm, "cblas_dgemm", false),
    CALL(openblas_config, "openblas_get_config", true),
    CALL(openblas_threads, "openblas_set_num_threads", true),
    CALL(blis_version, "bli_info_get_version_str", true),
    CALL(blis_threads, "bli_thread_set_num_threads", true),
};
static const struct dev_library blas = {"BLAS", "QUERN_BLAS_LIBRARY", "libopenblas.so.0 libopenblas.so libblis.so.4 libblis.so", calls, countof(calls)};

struct host_gemm *host_gemm_open(const struct dev_gemm *p, u32 n_threads, struct buf *name, struct err *e)
{
    struct dev_columns s; /* whether the sizes are sensible */
    struct host_gemm *x = mem_alloc((i64)sizeof *x);
    bool ok = dev_library_open(&blas, x, e) && dev_columns_of(&s, p, e);
    if (ok && p->type != DT_F32 && p->type != DT_F64)
        ok = err_set(e, ERR_UNSUPPORTED, "%s has no matmul of '%s'", blas.what, dtype_name(p->type));
    if (!ok) {
        mem_free(x);
        return NULL;
    }
    x->p = *p;
    if (x->openblas_threads) x->openblas_threads((int)n_threads);
    else if (x->blis_threads) x->blis_threads(n_threads);
    /* "OpenBLAS 0.3.21", the first words of the configuration. */
    struct str config = x->openblas_config ? str_of(x->openblas_config()) : (struct str){0}, word, rest, version;
    if (str_cut(config, ' ', &word, &rest)) {
        str_cut(rest, ' ', &version, &rest);
        buf_printf(name, "%.*s %.*s", STR_ARG(word), STR_ARG(version));
    } else if (x->blis_version) buf_printf(name, "BLIS %s", x->blis_version());
    else buf_z(name, blas.what);
    return x;
}

bool host_gemm_run(const struct host_gemm *x, const struct dev_launch *l, struct err *e)
{
    const struct dev_gemm *p = &x->p;
    int op = p->a_transposed ? TRANSPOSED : AS_IT_IS, m = (int)p->m, n = (int)p->n, k = (int)p->k, lda = p->a_transposed ? m : k;
    if (!dev_gemm_check(p, l, e)) return false;
    for (i64 i = 0; i < p->batch; i++) {
        i64 at_a = i * p->m * p->k, at_b = i * p->k * p->n, at_c = i * p->m * p->n;
        if (p->type == DT_F32)
            x->sgemm(ROW_MAJOR, op, AS_IT_IS, m, n, k, 1, (const float *)l->buf[0].host + at_a, lda,
                     (const float *)l->buf[1].host + at_b, n, 0, (float *)l->buf[2].host + at_c, n);
        else
            x->dgemm(ROW_MAJOR, op, AS_IT_IS, m, n, k, 1, (const double *)l->buf[0].host + at_a, lda,
                     (const double *)l->buf[1].host + at_b, n, 0, (double *)l->buf[2].host + at_c, n);
    }
    return true;
}

void host_gemm_close(struct host_gemm *x) { mem_free(x); }
