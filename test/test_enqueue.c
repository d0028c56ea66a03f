// SPDX-License-Identifier: Apache-2.0
//
// Programs on foreign memory and streams in the same process, with a simulated library that tracks
// memory, current contexts and stream dependencies (fake_cuda.c: it aborts if two uses of the same
// memory are unordered): earlier work of the foreign stream is visible, later work sees the
// results, runs on host memory may be interleaved, the current context is preserved; invalid, too
// short or misaligned addresses are errors, and so are devices without sharing.
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "skip.h"

#include "art/art.h"
#include "dev/dev_cuda.h"
#include "lang/lang.h"
#include "quern.h"

enum { N = 40, ADD = 3, STEPS = 2 };

static char fake_path[4096], dnx_path[4096];
static const char *const names[] = {"cuda", "hip"};

typedef long question(void);
typedef void command(void);
static question *objects, *is_outer;
static long (*was_given)(uint64_t at);
static command *forget; /* that the device was lost, and launches */

/* y, overwritten, plus ADD for each step; the grid's extents are an input. */
static void write_program(int k)
{
    /* as fake_cuda.c has it */
    struct { char elf[64]; i32 n, info[3][8], matrix[8]; } image = {.elf = "\177ELF\2\1\1", .n = 1, .info = {{1, 32, 2, 1}}};
    struct arena a = {0};
    struct err e = {0};
    struct buf out = {0};
    struct plan p = {.arena = &a, .model = S("net"), .caps = S("arch=generic")};
    symtab_init(&p.sym, &a);
    sym n = sym_var(&p.sym, S("N")), one = sym_const(&p.sym, 1), three = sym_const(&p.sym, 3);
    (arr_push(&a, &p.var))->optimised_for = N;
    struct plan_io x = {.name = S("extents"), .dtype = DT_I32, .rank = 2, .dim = {n, three}}, y = {.name = S("y"), .dtype = DT_I32, .rank = 1, .dim = {n}, .buf = 1};
    *arr_push(&a, &p.input) = x;
    *arr_push(&a, &p.output) = y;
    *arr_push(&a, &p.buf) = (struct plan_buf){.kind = PB_INPUT, .name = x.name, .size = sym_mul(&p.sym, n, sym_const(&p.sym, 12)), .last = STEPS - 1};
    *arr_push(&a, &p.buf) = (struct plan_buf){.kind = PB_OUTPUT, .name = y.name, .size = sym_mul(&p.sym, n, sym_const(&p.sym, 4)), .last = STEPS - 1};
    struct str code = {(const char *)&image, sizeof image};
    *arr_push(&a, &p.bin) = (struct plan_bin){.lang = str_of(names[k]), .code = code, .content = hash_bytes(code.p, code.n)};
    struct plan_grid grid = {{n, one, one}};
    sym add = sym_const(&p.sym, ADD);
    u32 bufs[2] = {1, 0};
    for (int i = 0; i < STEPS; i++)
        *arr_push(&a, &p.dispatch) = (struct plan_dispatch){.entry = S("k"), .label = S("Add"), .device = str_of(names[k]), .n_grid = 1, .grid = &grid,
                                                            .buf = bufs, .n_buf = 2, .param = &add, .n_param = 1, .work = sym_const(&p.sym, 0)};
    if (!plan_verify(&p, &e) || !dnx_write(&p, &out, &e) || !os_write(dnx_path, out.p, out.n, &e)) fail_msg("%s", e.msg);
    buf_release(&out);
    arena_release(&a);
}

/* The foreign code. */
struct other {
    struct cuda c;
    void *stream;
    u64 extents, y;
};

#define MUST(call)                                                                                 \
    do {                                                                                           \
        i32 r_ = (call);                                                                           \
        if (r_) fail_msg("%s: %d", #call, r_);                                                     \
    } while (0)

static void other_open(struct other *o, int k, bool by_default)
{
    struct err e = {0};
    if (!cuda_start(&o->c, k ? hip_api() : cuda_api(), &e)) fail_msg("%s", e.msg);
    if (!k) MUST(o->c.cu.CtxRetain(&o->c.context, 0));
    assert_true(cuda_enter(&o->c, &e));
    o->stream = NULL;
    if (!by_default) MUST(o->c.cu.StreamCreate(&o->stream, 1));
    MUST(o->c.cu.MemAlloc(&o->extents, 12 * N));
    MUST(o->c.cu.MemAlloc(&o->y, 4 * N + 16));
    cuda_leave(&o->c, true);
}

static void other_close(struct other *o)
{
    struct err e = {0};
    assert_true(cuda_enter(&o->c, &e));
    MUST(o->c.cu.MemFree(o->extents));
    MUST(o->c.cu.MemFree(o->y));
    if (o->stream) MUST(o->c.cu.StreamDestroy(o->stream));
    cuda_leave(&o->c, true);
    if (o->c.cu.CtxRelease) MUST(o->c.cu.CtxRelease(0));
    os_dlclose(o->c.lib);
}

static void other_write(struct other *o, i32 n)
{
    i32 extents[3] = {n, 1, 1};
    struct err e = {0};
    assert_true(cuda_enter(&o->c, &e));
    MUST(o->c.cu.CopyIn(o->extents, extents, sizeof extents, o->stream));
    MUST(o->c.cu.MemsetAsync(o->y, 1, 4 * N, o->stream));
    cuda_leave(&o->c, true);
}

/* In its stream, without waiting. */
static void other_check(struct other *o, i32 n, i32 times)
{
    i32 y[N];
    struct err e = {0};
    assert_true(cuda_enter(&o->c, &e));
    MUST(o->c.cu.CopyOut(y, o->y, sizeof y, o->stream));
    cuda_leave(&o->c, true);
    for (i32 i = 0; i < N; i++)
        if (y[i] != 0x01010101 + (i < n ? times * STEPS * ADD : 0)) fail_msg("element %d: %d", i, y[i] - 0x01010101);
}

static struct quern_array array(u64 at, int rank, i64 n, i64 columns)
{
    return (struct quern_array){.type = QUERN_I32, .rank = rank, .dim = {n, columns}, .stride = {columns, 1}, .data = (void *)(uintptr_t)at};
}

struct fixture {
    struct other o;
    quern *q;
    quern_program *p;
    struct quern_array x, y;
};

static void start(struct fixture *b, int k, bool by_default, const char *options)
{
    struct quern_run_opts o = QUERN_OPTS(quern_run_opts);
    setenv(k ? "QUERN_HIP_LIBRARY" : "QUERN_CUDA_LIBRARY", fake_path, 1);
    setenv("QUERN_FAKE_CUDA", options, 1);
    write_program(k);
    other_open(&b->o, k, by_default);
    b->q = quern_open(NULL);
    o.device = names[k];
    if (quern_program_open(b->q, dnx_path, &o, &b->p)) fail_msg("%s", quern_error(b->q));
    assert_true(is_outer());
    b->x = array(b->o.extents, 2, N, 3), b->y = array(b->o.y, 1, N, 1);
}

static void end(struct fixture *b)
{
    quern_program_close(b->p);
    quern_close(b->q);
    other_close(&b->o);
    assert_true(is_outer() && objects() == 0);
    remove(dnx_path);
}

static void enqueue(struct fixture *b)
{
    if (quern_enqueue(b->p, &b->x, 1, &b->y, 1, b->o.stream)) fail_msg("%s", quern_error(b->q));
    assert_true(is_outer());
}

/* The host's memory, between others' runs. */
static void run_host(struct fixture *b, i64 n)
{
    quern_tensor *x, *y = NULL;
    i64 dim[2] = {n, 3};
    assert_int_equal(quern_tensor_new(b->q, QUERN_I32, 2, dim, NULL, &x), 0);
    memcpy(quern_tensor_data(x), (i32[]){(i32)n, 1, 1}, 12);
    i32 before = -1;
    for (int i = 0; i < 2; i++) {
        if (quern_run(b->p, &x, 1, &y, 1)) fail_msg("%s", quern_error(b->q));
        const i32 *v = quern_tensor_data(y);
        for (i64 j = 1; j < n; j++) assert_int_equal(v[j], v[0]);
        if (i) assert_int_equal(v[0] - before, STEPS * ADD); /* its copies stay where they are */
        before = v[0];
    }
    assert_true(quern_program_seconds(b->p) > 0 && is_outer());
    quern_tensor_free(x);
    quern_tensor_free(y);
}

static void test_order(void **state)
{
    for (int i = 0; i < 4; i++) {
        struct fixture b;
        start(&b, i & 1, i & 2, "");
        for (i32 n = N; n > 3; n -= 13) { /* other sizes: bound again */
            b.x.dim[0] = b.y.dim[0] = n;
            other_write(&b.o, n);
            for (int again = 0; again < 3; again++) enqueue(&b);
            assert_true(quern_program_seconds(b.p) < 0);
            other_check(&b.o, n, 3);
            enqueue(&b);
            run_host(&b, n);
            other_check(&b.o, n, 4);
        }
        struct quern_step step[STEPS];
        quern_profile(b.p, 1);
        other_write(&b.o, (i32)b.x.dim[0]);
        enqueue(&b);
        other_check(&b.o, (i32)b.x.dim[0], 1);
        assert_int_equal(quern_profile_steps(b.p, step, STEPS), STEPS);
        for (int k = 0; k < STEPS; k++) assert_true(step[k].seconds > 0.24e-3 && step[k].seconds < 0.26e-3);
        end(&b);
    }
}

static void test_shape(void **state)
{
    struct fixture b;
    struct quern_array y;
    start(&b, 0, true, "");
    b.x.dim[0] = 7, b.x.data = NULL;
    assert_int_equal(quern_program_shape(b.p, &b.x, 1, &y, 1), 0);
    assert_true(y.type == QUERN_I32 && y.rank == 1 && y.dim[0] == 7 && y.stride[0] == 1 && !y.data);
    b.x.dim[1] = 2;
    assert_int_equal(quern_program_shape(b.p, &b.x, 1, &y, 1), QUERN_INPUT);
    b.x.type = QUERN_F32, b.x.dim[1] = 3;
    assert_int_equal(quern_program_shape(b.p, &b.x, 1, &y, 1), QUERN_INPUT);
    assert_non_null(strstr(quern_error(b.q), "input 'extents' is f32, expected i32"));
    assert_int_equal(quern_program_shape(b.p, &b.x, 2, &y, 1), QUERN_USAGE);
    end(&b);
}

static void refuse(struct fixture *b, quern_status want, const char *words)
{
    quern_status s = quern_enqueue(b->p, &b->x, 1, &b->y, 1, b->o.stream);
    if (s != want || !strstr(quern_error(b->q), words)) fail_msg("status %d, '%s', expected '%s'", (int)s, quern_error(b->q), words);
    assert_true(is_outer());
    b->x = array(b->o.extents, 2, N, 3), b->y = array(b->o.y, 1, N, 1);
}

static void test_refusals(void **state)
{
    for (int k = 0; k < 2; k++) {
        struct fixture b;
        i32 mine[4 * N] __attribute__((aligned(64))) = {0};
        start(&b, k, false, "devices=2");
        other_write(&b.o, N);
        b.x.data = mine;
        refuse(&b, QUERN_USAGE, k ? "is in no memory that HIP knows" : "input 'extents': address 0x");
        b.y.data = NULL;
        refuse(&b, QUERN_USAGE, "output 'y': address 0x0 is in no memory");
        b.y.data = (char *)b.y.data + 4;
        refuse(&b, QUERN_USAGE, "is no multiple of 16");
        b.y.data = (char *)b.y.data + 32;
        refuse(&b, QUERN_USAGE, "160 bytes from address 0x");
        b.x.dim[0] = N + 1, b.x.stride[0] = 4;
        refuse(&b, QUERN_UNSUPPORTED, "input 0: the array is not dense, row by row");
        b.x.dim[0] = N - 1;
        refuse(&b, QUERN_USAGE, "output 'y' has another type or shape");
        b.x.dim[1] = 2, b.x.stride[0] = 2;
        refuse(&b, QUERN_INPUT, "has size 2 on axis 1, expected 3");
        b.x.type = 0;
        refuse(&b, QUERN_USAGE, "input 0: no element type has number 0");
        b.x.rank = 9;
        refuse(&b, QUERN_USAGE, "input 0: rank 9 is not in 0..8");
        assert_int_equal(quern_enqueue(b.p, &b.x, 1, &b.y, 0, NULL), QUERN_USAGE);
        setenv("QUERN_FAKE_CUDA", "devices=2 at=1", 1);
        refuse(&b, QUERN_USAGE, "is in memory of device 1, expected device 0, 'fake A'");
        setenv("QUERN_FAKE_CUDA", "devices=2 segment=64", 1); /* memory in a row of parts is as good as one allocation, up to its end */
        b.y.data = (char *)b.y.data + 32;
        refuse(&b, QUERN_USAGE, "160 bytes from address 0x");
        enqueue(&b);
        other_check(&b.o, N, 1);
        other_write(&b.o, N);
        setenv("QUERN_FAKE_CUDA", "devices=2", 1);
        b.x.dim[0] = b.y.dim[0] = 0, b.x.data = b.y.data = NULL; /* nothing to compute */
        assert_int_equal(quern_enqueue(b.p, &b.x, 1, &b.y, 1, b.o.stream), 0);
        b.x = array(b.o.extents, 2, N, 3), b.y = array(b.o.y, 1, N, 1);
        enqueue(&b);
        other_check(&b.o, N, 1); /* nothing came of the others */
        end(&b);
    }
}

static void test_lost(void **state)
{
    for (int k = 0; k < 2; k++) {
        struct fixture b;
        forget();
        start(&b, k, false, "lost=4");
        other_write(&b.o, N);
        enqueue(&b);
        refuse(&b, QUERN_SYSTEM, "FAKE_ILLEGAL_ADDRESS (700)");
        refuse(&b, QUERN_SYSTEM, "was lost by an earlier failure");
        quern_program_close(b.p);
        b.p = NULL;
        forget();
        end(&b);
    }
}

/* Single operators: layouts of arrays are checked before anything is built; those of the CPU are in
   host memory. */
static void test_operators(void **state)
{
    struct quern_op_opts o = QUERN_OPTS(quern_op_opts);
    quern *q = quern_open(NULL);
    quern_op *op;
    static float v[64] __attribute__((aligned(64)));
    struct quern_array x = {.type = QUERN_F32, .rank = 2, .dim = {3, 4}, .stride = {4, 1}, .data = v}, y = x;
    y.data = v + 32;
    assert_int_equal(quern_op_open(q, "Relu", NULL, &o, &op), 0);
    assert_int_equal(quern_op_enqueue(op, &x, 1, &y, 1, NULL), QUERN_UNSUPPORTED);
    assert_string_equal(quern_error(q), "'Relu': device 'cpu' cannot share memory within this process: arrays must be in host memory");
    x.stride[0] = 5;
    assert_int_equal(quern_op_enqueue(op, &x, 1, &y, 1, NULL), QUERN_UNSUPPORTED);
    assert_string_equal(quern_error(q), "'Relu': input 'i0' has strides (5, 1), on a device arrays must be dense, row by row or with channels last");
    assert_int_equal(quern_op_enqueue(op, &x, -1, &y, 1, NULL), QUERN_USAGE);
    quern_op_close(op);
    static const char *const others[] = {"opencl", "interp"};
    x.stride[0] = 4;
    for (int i = 0; i < 2; i++) {
        if (!dev_find(str_of(others[i]))->count()) continue;
        o.device = others[i];
        assert_int_equal(quern_op_open(q, "Relu", NULL, &o, &op), 0);
        assert_int_equal(quern_op_enqueue(op, &x, 1, &y, 1, NULL), QUERN_UNSUPPORTED);
        assert_non_null(strstr(quern_error(q), "cannot share memory within this process"));
        quern_op_close(op);
    }
    quern_close(q);
}

static void expect_op(quern *q, quern_op *op, const struct quern_array *v, void *stream, const char *words)
{
    quern_status s = quern_op_enqueue(op, v, 2, v + 2, 1, stream);
    if (!s || !strstr(quern_error(q), words)) fail_msg("status %d, '%s', expected '%s'", (int)s, quern_error(q), words);
    assert_true(is_outer());
}

/* From operator to launch: kernels built by CUDA's compiler get exactly the arrays' addresses, with
   and without parameters, in any layout. */
static void test_built(void **state)
{
    struct quern_op_opts o = QUERN_OPTS(quern_op_opts);
    struct buf tool = {0};
    struct err e = {0};
    struct other other;
    bool has_compiler = lang_find(S("cuda"))->toolchain(&tool, NULL, &e);
    buf_release(&tool);
    if (!has_compiler) skip_test("%s", e.msg);
    setenv("QUERN_CUDA_LIBRARY", fake_path, 1);
    setenv("QUERN_FAKE_CUDA", "devices=2 buffers=3", 1);
    other_open(&other, 0, false);
    for (int i = 0; i < 2; i++) {
        quern *q = quern_open(NULL);
        quern_op *op;
        i64 h = 4, w = 8, taps = 9;
        u64 at[3];
        o.device = i ? "cuda:0" : "cuda", o.sizes = i ? "N:?:H:W,N:?:H:W" : NULL;
        struct quern_array v[3] = {{.type = QUERN_F32, .rank = 4, .dim = {1, 3, h, w}, .stride = {3 * h * w, h * w, w, 1}}};
        v[1] = v[2] = v[0];
        v[1].dim[1] = taps, v[1].stride[0] = taps * h * w;
        if (i) v[1].stride[1] = 1, v[1].stride[2] = taps * w, v[1].stride[3] = taps; /* taps innermost */
        struct err none = {0};
        assert_true(cuda_enter(&other.c, &none));
        for (int k = 0; k < 3; k++) {
            MUST(other.c.cu.MemAlloc(&at[k], 4 * 9 * 4 * 8));
            v[k].data = (void *)(uintptr_t)at[k];
            MUST(other.c.cu.MemsetAsync(at[k], 0, 4 * 9 * 4 * 8, other.stream));
        }
        cuda_leave(&other.c, true);
        if (quern_op_open(q, "quern::WeightedFilter", "kernel_shape=[3,3]", &o, &op)) fail_msg("%s", quern_error(q));
        for (int again = 0; again < 2; again++) {
            if (quern_op_enqueue(op, v, 2, v + 2, 1, other.stream)) fail_msg("%s", quern_error(q));
            for (int k = 0; k < 3; k++) assert_true(was_given(at[k]) && is_outer());
        }
        v[0].data = (char *)v[0].data + 4;
        expect_op(q, op, v, other.stream, "input 'i0': address 0x");
        v[0].data = at;
        expect_op(q, op, v, other.stream, "'quern::WeightedFilter': input 'i0'");
        v[0].data = (void *)(uintptr_t)at[0], v[2].stride[3] = 2;
        expect_op(q, op, v, other.stream, "output 'o0' has strides (96, 32, 8, 2)");
        quern_op_close(op);
        quern_close(q);
        assert_true(cuda_enter(&other.c, &none));
        for (int k = 0; k < 3; k++) MUST(other.c.cu.MemFree(at[k]));
        cuda_leave(&other.c, true);
    }
    other_close(&other);
    assert_int_equal(objects(), 0);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_order), cmocka_unit_test(test_shape), cmocka_unit_test(test_refusals), cmocka_unit_test(test_lost),
                                       cmocka_unit_test(test_operators), cmocka_unit_test(test_built)};
    const char *slash = strrchr(argv[0], '/');
    int n = slash ? (int)(slash + 1 - argv[0]) : 0;
    struct err e = {0};
    snprintf(fake_path, sizeof fake_path, "%.*sfake_cuda.so", n, argv[0]);
    snprintf(dnx_path, sizeof dnx_path, "%.*stest_enqueue.dnx", n, argv[0]);
    void *lib = os_dlopen(fake_path, &e);
    if (!lib) return fprintf(stderr, "%s\n", e.msg), 1;
    void *f[] = {os_dlsym(lib, "fake_objects"), os_dlsym(lib, "fake_is_outer"), os_dlsym(lib, "fake_reset"), os_dlsym(lib, "fake_was_given")};
    memcpy(&objects, &f[0], sizeof objects);
    memcpy(&is_outer, &f[1], sizeof is_outer);
    memcpy(&forget, &f[2], sizeof forget);
    memcpy(&was_given, &f[3], sizeof was_given);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
