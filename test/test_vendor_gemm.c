// SPDX-License-Identifier: Apache-2.0
//
// GEMM by vendor libraries as offered to the tuner: random sizes, batches, left operands plain and
// transposed, against a plain loop; on the CPU and on OpenCL's device if their libraries are
// present, on cuda and hip with simulated ones (fake_cuda.c). Missing features and mismatching
// launches are errors.
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "skip.h"

#include <math.h>

#include "dev/dev.h"
#include "seeds.h"

static char fake_path[4096];

static void expect(const struct err *e, const char *words)
{
    if (!strstr(e->msg, words)) fail_msg("'%s' does not say '%s'", e->msg, words);
}

/* Skips the test if the device or its library is missing. */
static struct dev *open_with_library(const char *name)
{
    struct err e = {0};
    struct buf said = {0};
    const struct dev_driver *v = dev_find(str_of(name));
    const struct dev_gemm small = {.type = DT_F32, .batch = 1, .m = 3, .n = 4, .k = 5};
    bool there = dev_ask_gemm(v, &(struct dev_opts){.n_threads = 1}, &small, &said, &e);
    if (there) printf("%s: %.*s\n", name, STR_ARG(buf_view(&said)));
    buf_release(&said);
    if (!there) skip_test("%s: %s", name, e.msg);
    struct dev *d = v->open(&(struct dev_opts){.n_threads = 1}, &e);
    if (!d) fail_msg("%s", e.msg);
    return d;
}

struct operands { double *v; struct dev_mem mem; i64 n; };

static void fill(struct dev *d, struct operands *x, enum dtype t, i64 n, struct rng *r)
{
    struct err e = {0};
    char *p = mem_alloc(n * dtype_size(t));
    *x = (struct operands){.v = mem_alloc(n * (i64)sizeof(double)), .n = n};
    for (i64 i = 0; i < n; i++) {
        elem_set_f64(t, p, i, (double)rng_range(r, -8, 8));
        x->v[i] = elem_f64(t, p, i);
    }
    if (!d->driver->alloc(d, n * dtype_size(t), &x->mem, &e) || !d->driver->upload(d, x->mem, p, x->mem.size, &e)) fail_msg("%s", e.msg);
    mem_free(p);
}

/* Small whole numbers: every order of adding gives the same. */
static double expected(const struct dev_gemm *p, const struct operands *x, i64 batch, i64 i, i64 j)
{
    double sum = 0;
    const double *a = x[0].v + batch * p->m * p->k, *b = x[1].v + batch * p->k * p->n;
    for (i64 k = 0; k < p->k; k++) sum += (p->a_transposed ? a[k * p->m + i] : a[i * p->k + k]) * b[k * p->n + j];
    return sum;
}

static void compare(struct dev *d, const struct dev_gemm *p, const struct operands *x)
{
    struct err e = {0};
    char *got = mem_alloc(x[2].mem.size);
    assert_true(d->driver->download(d, x[2].mem, got, x[2].mem.size, &e));
    for (i64 at = 0; at < x[2].n; at++) {
        double want = expected(p, x, at / (p->m * p->n), at / p->n % p->m, at % p->n), v = elem_f64(p->type, got, at);
        /* a bf16 has 8 bits of them */
        if (fabs(v - want) > (p->type == DT_BF16 ? fabs(want) / 128 : 0))
            fail_msg("%s %lld x %lld x %lld x %lld, element %lld: %g, expected %g", d->driver->name, (long long)p->batch, (long long)p->m,
                     (long long)p->n, (long long)p->k, (long long)at, v, want);
    }
    mem_free(got);
}

static void launch(struct dev *d, const struct dev_gemm *p, const struct operands *x)
{
    struct err e = {0};
    struct buf name = {0};
    struct dev_kernel *k = d->driver->gemm(d, p, &name, &e);
    const i64 grid[1][3] = {{1, 1, 1}};
    struct dev_mem mem[3] = {x[0].mem, x[1].mem, x[2].mem};
    struct dev_launch l = {.kernel = k, .buf = mem, .n_buf = 3, .grid = grid, .n_grid = 1};
    if (!k || !d->driver->launch(d, &l, &e) || !d->driver->fence(d, &e)) fail_msg("%s", e.msg);
    assert_true(name.n > 0);
    compare(d, p, x);
    l.n_buf = 2;
    assert_false(d->driver->launch(d, &l, &e));
    expect(&e, "three buffers");
    e = (struct err){0}, l.n_buf = 3, mem[1].size -= dtype_size(p->type);
    assert_false(d->driver->launch(d, &l, &e));
    expect(&e, "buffer 1 of a GEMM has");
    d->driver->unload(d, k);
    buf_release(&name);
}

static void try(struct dev *d, const struct dev_gemm *p, struct rng *r)
{
    struct operands x[3];
    fill(d, &x[0], p->type, p->batch * p->m * p->k, r);
    fill(d, &x[1], p->type, p->batch * p->k * p->n, r);
    fill(d, &x[2], p->type, p->batch * p->m * p->n, r);
    launch(d, p, x);
    for (int i = 0; i < 3; i++) {
        d->driver->release(d, &x[i].mem);
        mem_free(x[i].v);
    }
}

static void try_many(const char *name, int n, const enum dtype *type, int n_types)
{
    struct dev *d = open_with_library(name);
    struct rng r = rng_seed(7);
    for (int i = 0; i < n; i++) {
        struct dev_gemm p = {.type = type[i % n_types], .a_transposed = rng_u64(&r) & 1};
        p.batch = rng_range(&r, 0, 1) ? rng_range(&r, 2, 4) : 1;
        p.m = rng_range(&r, 1, 40), p.n = rng_range(&r, 1, 40), p.k = rng_range(&r, 1, 40);
        if (is_taken((u64)i)) try(d, &p, &r);
    }
    d->driver->close(d);
}

static void refuse(const char *name, const struct dev_gemm *p, const char *words)
{
    struct err e = {0};
    struct buf said = {0};
    assert_false(dev_ask_gemm(dev_find(str_of(name)), &(struct dev_opts){0}, p, &said, &e));
    expect(&e, words);
    buf_release(&said);
}

static void test_cpu(void **state) { try_many("cpu", 40, (const enum dtype[]){DT_F32, DT_F64}, 2); }
static void test_opencl(void **state) { try_many("opencl", 8, (const enum dtype[]){DT_F32}, 1); }

static void test_fakes(void **state)
{
    static const char *const name[] = {"cuda", "hip"};
    static const enum dtype type[] = {DT_F32, DT_BF16, DT_F64};
    setenv("QUERN_CUDA_LIBRARY", fake_path, 1), setenv("QUERN_HIP_LIBRARY", fake_path, 1);
    setenv("QUERN_CUBLAS_LIBRARY", fake_path, 1), setenv("QUERN_ROCBLAS_LIBRARY", fake_path, 1);
    for (int i = 0; i < 2; i++) {
        struct err e = {0};
        struct buf said = {0};
        const struct dev_gemm p = {.type = DT_F32, .batch = 1, .m = 3, .n = 4, .k = 5};
        assert_true(dev_ask_gemm(dev_find(str_of(name[i])), &(struct dev_opts){0}, &p, &said, &e));
        assert_string_equal(said.p, i ? "rocBLAS 4.1.0" : "cuBLAS 130002");
        buf_release(&said);
    }
    for (int i = 0; i < 2; i++) try_many(name[i], 60, type, 3);
}

static void test_absent(void **state)
{
    struct dev_gemm p = {.type = DT_F32, .batch = 1, .m = 3, .n = 4, .k = 5};
    refuse("null", &p, "device 'null' knows no library");
    setenv("QUERN_BLAS_LIBRARY", "libthere_is_none.so.7", 1);
    refuse("cpu", &p, "no BLAS");
    setenv("QUERN_BLAS_LIBRARY", "libm.so.6", 1);
    refuse("cpu", &p, "has no 'cblas_sgemm'");
    unsetenv("QUERN_BLAS_LIBRARY");
    setenv("QUERN_CUBLAS_LIBRARY", "libthere_is_none.so.7", 1);
    refuse("cuda", &p, "no cuBLAS");
    setenv("QUERN_CUBLAS_LIBRARY", fake_path, 1);
    p.type = DT_I8;
    refuse("cuda", &p, "cuBLAS has no matmul of 'i8'");
    p.type = DT_F32, p.k = (i64)1 << 31;
    refuse("cuda", &p, "sizes of a matmul");
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_cpu), cmocka_unit_test(test_opencl), cmocka_unit_test(test_fakes), cmocka_unit_test(test_absent)};
    const char *slash = strrchr(argv[0], '/');
    snprintf(fake_path, sizeof fake_path, "%.*sfake_cuda.so", slash ? (int)(slash + 1 - argv[0]) : 0, argv[0]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
