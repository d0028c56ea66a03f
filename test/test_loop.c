// SPDX-License-Identifier: Apache-2.0
//
// Run-time control flow, from the text of a graph to results: programs of the interpreter, of the
// CPU and of a Vulkan device (if present) against the reference evaluator, run repeatedly with
// different data; saved programs.
#include "io/io.h"
#include "program_fixture.h"
#include "seeds.h"
#include "vulkan_fixture.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <onnx.pb-c.h>

static quern_tensor *number(const struct fixture *b, int64_t v)
{
    quern_tensor *t = NULL;
    must(b, quern_tensor_new(b->q, QUERN_I64, 0, NULL, &v, &t));
    return t;
}

static quern_tensor *flag(const struct fixture *b, bool v)
{
    quern_tensor *t = NULL;
    must(b, quern_tensor_new(b->q, QUERN_BOOL, 0, NULL, &v, &t));
    return t;
}

static size_t size_of(const quern_tensor *t)
{
    return (size_t)quern_tensor_count(t) * (quern_tensor_dtype(t) == QUERN_F32 ? 4 : quern_tensor_dtype(t) == QUERN_BOOL ? 1 : 8);
}

static void check_same(const quern_tensor *a, const quern_tensor *b)
{
    assert_int_equal(quern_tensor_rank(a), quern_tensor_rank(b));
    for (int d = 0; d < quern_tensor_rank(a); d++) assert_int_equal(quern_tensor_dims(a)[d], quern_tensor_dims(b)[d]);
    if (quern_tensor_count(a)) assert_memory_equal(quern_tensor_data(a), quern_tensor_data(b), size_of(a));
}

static void run_both(struct fixture *b, quern_tensor **in, int n_in, int n_out)
{
    quern_tensor *want[8] = {0}, *got[8] = {0};
    must(b, quern_model_eval(b->m, in, n_in, want, n_out));
    must(b, quern_run(b->p, in, n_in, got, n_out));
    for (int k = 0; k < n_out; k++) {
        check_same(got[k], want[k]);
        quern_tensor_free(want[k]);
        quern_tensor_free(got[k]);
    }
}

static const char *const devices[] = {"interp", "cpu", "vulkan"};

/* While the sum of x is below a bound, x is doubled; its previous values are collected. */
static const char doubled[] =
    "graph {\n"
    "  input %x: f32[N]\n  input %most: i64[]\n  input %go: bool[]\n"
    "  %a: f32[?] = Abs(%x)\n"
    "  const %one: f32[] = [1.0]\n"
    "  %b: f32[?] = Add(%a, %one)\n"
    "  %last: f32[?], %all: f32[?], %sizes: i64[?] = quern::Loop \"loop\"(%go, %b) {carried=1, conditional=1, trip_count=strs[\"m\"],\n"
    "    body=graph {\n"
    "      input %x: f32[N]\n"
    "      %y: f32[?] = Add(%x, %x)\n"
    "      const %axes: i64[1] = [0]\n"
    "      %s: f32[?] = ReduceSum(%y, %axes) {keepdims=0}\n"
    "      const %bound: f32[] = [1000.0]\n"
    "      %c: bool[?] = Less(%s, %bound)\n"
    "      output %c\n  output %y\n  output %x\n"
    "    }}\n"
    "  %y: f32[?] = Mul(%last, %a)\n"
    "  const %axis: i64[1] = [0]\n"
    "  %z: f32[?] = ReduceSum(%all, %axis) {keepdims=0}\n"
    "  size (m) = plus %most[0]\n"
    "  output %y\n  output %all\n  output %z\n"
    "}\n";

static void test_doubled(void **state)
{
    for (int d = 0; d < 3; d++) {
        struct fixture b;
        struct rng r = rng_seed(7);
        if (!fixture_open(&b, doubled, devices[d])) { fixture_close(&b); continue; }
        for (int k = 0; k < 10; k++) {
            quern_tensor *in[3] = {floats(&b, 1, (int64_t[]){k % 3 ? 5 : rng_range(&r, 1, 200)}, &r), number(&b, k == 4 ? 0 : rng_range(&r, 0, 20)),
                                   flag(&b, k != 7)};
            run_both(&b, in, 3, 3);
            for (int i = 0; i < 3; i++) quern_tensor_free(in[i]);
        }
        fixture_close(&b);
    }
}

/* Models in test/golden/ort (ort_cases.py): programs compared with results of ONNX Runtime. */

static struct tensor *stored(const Onnx__GraphProto *g, const char *prefix, const char *name, struct arena *a)
{
    struct str full = str_fmt(a, "%s%s", prefix, name);
    struct err e = {0};
    for (size_t k = 0; k < g->n_initializer; k++) {
        struct tensor *t = arena_new(a, struct tensor);
        if (str_is(full, g->initializer[k]->name) && io_onnx_tensor(t, a, g->initializer[k], NULL, &e)) return t;
    }
    fail_msg("no content for %s", name);
    return NULL;
}

static quern_tensor *as_tensor(const struct fixture *b, const struct tensor *t)
{
    quern_tensor *x = NULL;
    must(b, quern_tensor_new(b->q, (quern_dtype)dtype_onnx(t->dtype), (int)t->rank, t->dim, t->data, &x));
    return x;
}

static void check_near(const char *file, const char *device, const quern_tensor *t, const struct tensor *want)
{
    struct tensor got = {.dtype = want->dtype, .rank = (u32)quern_tensor_rank(t), .data = (void *)(uintptr_t)quern_tensor_data((quern_tensor *)(uintptr_t)t)};
    for (u32 d = 0; d < got.rank; d++) got.dim[d] = quern_tensor_dims(t)[d];
    assert_int_equal(quern_tensor_dtype(t), dtype_onnx(want->dtype));
    /* no iteration yields other sizes */
    if (got.rank == want->rank && !tensor_count(&got) && !tensor_count(want)) return;
    struct tensor_diff d = tensor_compare(&got, want, want->dtype == DT_F16 ? 1e-2 : 1e-4, want->dtype == DT_F16 ? 1e-2 : 1e-4);
    if (d.n_bad) fail_msg("%s on %s: %lld wrong, first %lld: %g, expected %g", file, device, (long long)d.n_bad, (long long)d.first_bad, d.got, d.want);
}

static void run_golden(const char *file, const char *device)
{
    struct arena a = {0};
    struct err e = {0};
    struct fixture b = {.q = quern_open(NULL)};
    struct quern_compile_opts o = QUERN_OPTS(quern_compile_opts);
    struct str bytes;
    quern_tensor *in[8], *out[8] = {0};
    o.device = device;
    if (!os_read(&a, file, 1 << 28, &bytes, &e)) fail_msg("%s", e.msg);
    Onnx__ModelProto *m = io_onnx_unpack(&onnx__model_proto__descriptor, &a, bytes, &e);
    must(&b, quern_model_open(b.q, file, NULL, &b.m));
    if (quern_compile(b.m, NULL, &o, &b.p)) {
        if (strcmp(device, "vulkan")) fail_msg("%s on %s: %s", file, device, quern_error(b.q));
    } else {
        const Onnx__GraphProto *g = m->graph;
        for (size_t k = 0; k < g->n_input; k++) in[k] = as_tensor(&b, stored(g, "in:", g->input[k]->name, &a));
        for (int again = 0; again < 2; again++) {
            if (quern_run(b.p, in, (int)g->n_input, out, (int)g->n_output)) fail_msg("%s on %s: %s", file, device, quern_error(b.q));
            for (size_t k = 0; k < g->n_output; k++) {
                check_near(file, device, out[k], stored(g, "want:", g->output[k]->name, &a));
                quern_tensor_free(out[k]);
                out[k] = NULL;
            }
        }
        for (size_t k = 0; k < g->n_input; k++) quern_tensor_free(in[k]);
    }
    fixture_close(&b);
    arena_release(&a);
}

static void test_golden(void **state)
{
    struct arena a = {0};
    struct err e = {0};
    struct str *names;
    const char *glob = getenv("TEST_LOOP");
    i64 n;
    int count = 0;
    assert_true(os_list(&a, "test/golden/ort", &names, &n, &e));
    for (i64 i = 0; i < n; i++) {
        if (!str_glob(S("control_*.onnx"), names[i]) || (glob && !str_glob(str_of(glob), names[i]))) continue;
        for (int d = 0; d < 3; d++) run_golden(str_fmt(&a, "test/golden/ort/%.*s", STR_ARG(names[i])).p, devices[d]);
        count++;
    }
    arena_release(&a);
    assert_true(count > 0);
}

/* Saved programs. */

static void test_saved(void **state)
{
    char path[] = "/tmp/quern_loop_XXXXXX";
    static const char *const change[][2] = { /* as long as they were */
        {"\\\"carried\\\":1", "\\\"carried\\\":7"}, {"\\\"kind\\\":\\\"loop\\\"", "\\\"kind\\\":\\\"pool\\\""},
        {"\\\"axes\\\":[1,0]", "\\\"axes\\\":[1,9]"},    {"\\\"axes\\\":[1,0]", "\\\"axes\\\":[5,0]"},
        {"\\\"results\\\":[", "\\\"resultz\\\":["},       {"\\\"trip_count\\\":", "\\\"trip_c0unt\\\":"},
        {"\\\"conditional\\\":true", "\\\"conditionaI\\\":true"}, {"\\\"given\\\":[{", "\\\"givem\\\":[{"},
    };
    struct arena a = {0};
    struct err e = {0};
    struct fixture b;
    struct str bytes;
    struct rng r = rng_seed(3);
    struct quern_run_opts run = QUERN_OPTS(quern_run_opts);
    run.device = "interp";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    assert_true(fixture_open(&b, doubled, "interp"));
    must(&b, quern_program_save(b.p, path));
    quern_program_close(b.p);
    must(&b, quern_program_open(b.q, path, &run, &b.p));
    quern_tensor *in[3] = {floats(&b, 1, (int64_t[]){5}, &r), number(&b, 9), flag(&b, true)};
    run_both(&b, in, 3, 3);
    for (int i = 0; i < 3; i++) quern_tensor_free(in[i]);
    assert_true(os_read(&a, path, 1 << 24, &bytes, &e));
    for (i64 i = 0; i < countof(change); i++) {
        char *copy = arena_alloc(&a, bytes.n);
        i64 n = (i64)strlen(change[i][0]), n_found = 0;
        quern_program *p = NULL;
        memcpy(copy, bytes.p, (size_t)bytes.n);
        for (i64 at = 0; at + n <= bytes.n; at++)
            if (!memcmp(copy + at, change[i][0], (size_t)n)) memcpy(copy + at, change[i][1], (size_t)n), n_found++;
        if (!n_found) fail_msg("no %s", change[i][0]);
        assert_true(os_write(path, copy, bytes.n, &e));
        if (!quern_program_open(b.q, path, &run, &p)) fail_msg("%s is accepted", change[i][1]);
    }
    fixture_close(&b);
    arena_release(&a);
    remove(path);
}

/* Loops at random: carried vectors of float, some outputs collected, a condition or none, bodies in bodies, branches; as text. */

struct maker {
    struct buf b;
    struct rng r;
    u32 n_values;
    int depth;
};

static void indent(struct maker *m) { buf_printf(&m->b, "%*s", 2 * m->depth, ""); }

/* A new vector of N floats made of two others; bounded, so that nothing explodes. */
static u32 make_vector(struct maker *m, const u32 *v, u32 n)
{
    static const char *const ops[] = {"Add", "Sub", "Mul", "Max"};
    u32 a = v[rng_range(&m->r, 0, n - 1)], b = v[rng_range(&m->r, 0, n - 1)], s = m->n_values++, t = m->n_values++;
    indent(m), buf_printf(&m->b, "%%v%u: f32[?] = %s(%%v%u, %%v%u)\n", s, ops[rng_range(&m->r, 0, 3)], a, b);
    indent(m), buf_printf(&m->b, "%%v%u: f32[?] = %s(%%v%u)\n", t, rng_range(&m->r, 0, 1) ? "Softsign" : "Tanh", s);
    return t;
}

static u32 make_call(struct maker *m, const u32 *v, u32 n, bool branch);

/* Some vectors, the last of them is returned. */
static u32 make_some(struct maker *m, u32 *v, u32 *n)
{
    for (i64 k = rng_range(&m->r, 1, 3); k > 0; k--) {
        bool call = m->depth < 3 && rng_range(&m->r, 0, 2) == 0;
        v[*n] = call ? make_call(m, v, *n, rng_range(&m->r, 0, 1)) : make_vector(m, v, *n);
        ++*n;
    }
    return v[*n - 1];
}

static u32 make_condition(struct maker *m, u32 v, double bound)
{
    u32 s = m->n_values;
    m->n_values += 4;
    indent(m), buf_printf(&m->b, "const %%v%u: i64[1] = [0]\n", s);
    indent(m), buf_printf(&m->b, "const %%v%u: f32[] = [%.1f]\n", s + 1, bound);
    indent(m), buf_printf(&m->b, "%%v%u: f32[?] = ReduceMax(%%v%u, %%v%u) {keepdims=0}\n", s + 2, v, s);
    indent(m), buf_printf(&m->b, "%%v%u: bool[?] = Less(%%v%u, %%v%u)\n", s + 3, s + 2, s + 1);
    return s + 3;
}

static void make_body(struct maker *m, u32 n_in, bool conditional, u32 n_carried, u32 n_scan)
{
    u32 v[64], n = n_in;
    buf_z(&m->b, "graph {\n");
    m->depth++;
    for (u32 k = 0; k < n_in; k++) {
        v[k] = m->n_values++;
        indent(m), buf_printf(&m->b, "input %%v%u: f32[N]\n", v[k]);
    }
    u32 last = make_some(m, v, &n), c = conditional ? make_condition(m, last, 0.4) : 0;
    if (conditional) indent(m), buf_printf(&m->b, "output %%v%u\n", c);
    for (u32 k = 0; k < n_carried; k++) indent(m), buf_printf(&m->b, "output %%v%u\n", k ? v[rng_range(&m->r, 0, n - 1)] : last);
    for (u32 k = 0; k < n_scan; k++) indent(m), buf_printf(&m->b, "output %%v%u\n", v[rng_range(&m->r, 0, n - 1)]);
    m->depth--;
    indent(m), buf_z(&m->b, "}");
}

/* A loop or a branch that returns a vector; of collected values their sum. */
static u32 make_call(struct maker *m, const u32 *v, u32 n, bool branch)
{
    u32 n_carried = branch ? 0 : (u32)rng_range(&m->r, 1, 2), n_scan = branch ? 1 : (u32)rng_range(&m->r, 0, 2), n_captured = (u32)rng_range(&m->r, 0, 2),
        first = m->n_values, axes, sum, end;
    bool conditional = !branch && rng_range(&m->r, 0, 1), begins = branch || rng_range(&m->r, 0, 2) == 0;
    if (branch && !n_captured) n_captured = 1;
    u32 cond = begins ? make_condition(m, v[rng_range(&m->r, 0, n - 1)], 0.6) : 0;
    first = m->n_values;
    m->n_values += n_carried + n_scan;
    indent(m);
    for (u32 k = 0; k < n_carried + n_scan; k++) buf_printf(&m->b, "%s%%v%u: f32[?]", k ? ", " : "", first + k);
    buf_printf(&m->b, " = quern::%s(", branch ? "If" : "Loop");
    if (begins) buf_printf(&m->b, "%%v%u", cond);
    else buf_z(&m->b, "_");
    for (u32 k = 0; k < n_carried + n_captured; k++) buf_printf(&m->b, ", %%v%u", v[rng_range(&m->r, 0, n - 1)]);
    if (branch) {
        buf_z(&m->b, ") {then=");
        make_body(m, n_captured, false, 0, 1);
        buf_z(&m->b, ", else=");
        make_body(m, n_captured, false, 0, 1);
    } else {
        const char *trips = ((const char *[]){"N", "m", "0", "1", "3"})[rng_range(&m->r, 0, m->depth > 1 ? 4 : 1)];
        buf_printf(&m->b, ") {carried=%u, conditional=%d, trip_count=strs[\"%s\"], body=", n_carried, conditional, trips);
        make_body(m, n_carried + n_captured, conditional, n_carried, n_scan);
    }
    buf_z(&m->b, "}\n");
    if (branch || !n_scan) return first;
    axes = m->n_values++, sum = m->n_values++, end = m->n_values++;
    indent(m), buf_printf(&m->b, "const %%v%u: i64[1] = [0]\n", axes);
    indent(m), buf_printf(&m->b, "%%v%u: f32[?] = ReduceSum(%%v%u, %%v%u) {keepdims=0}\n", sum, first + n_carried, axes);
    indent(m), buf_printf(&m->b, "%%v%u: f32[?] = Add(%%v%u, %%v%u)\n", end, sum, first);
    return end;
}

static void make_model(struct maker *m, u64 seed)
{
    *m = (struct maker){.r = rng_seed(seed), .depth = 1, .n_values = 2};
    u32 v[64] = {0, 1}, n = 2;
    buf_z(&m->b, "graph {\n  input %v0: f32[N]\n  input %v1: f32[N]\n  input %most: i64[]\n");
    u32 loop = v[n] = make_call(m, v, n, false);
    n++;
    u32 last = make_some(m, v, &n), end = m->n_values++;
    buf_printf(&m->b, "  %%v%u: f32[?] = Add(%%v%u, %%v%u)\n", end, last, loop);
    buf_printf(&m->b, "  size (m) = plus %%most[0]\n  output %%v%u\n  output %%v%u\n}\n", last, end);
    buf_char(&m->b, 0);
}

/* The model evaluates elements one after the other in another order than kernels do, so nearly the same. */
static void check_close(const struct fixture *b, const quern_tensor *x, const quern_tensor *y, u64 seed, const char *device)
{
    const float *v = quern_tensor_data((quern_tensor *)(uintptr_t)x), *w = quern_tensor_data((quern_tensor *)(uintptr_t)y);
    if (quern_tensor_count(x) != quern_tensor_count(y)) fail_msg("seed %llu on %s: another size", (unsigned long long)seed, device);
    for (i64 i = 0; i < quern_tensor_count(x); i++)
        if (!(v[i] - w[i] < 1e-3f && w[i] - v[i] < 1e-3f))
            fail_msg("seed %llu on %s: element %lld is %g, expected %g", (unsigned long long)seed, device, (long long)i, (double)v[i], (double)w[i]);
}

static void try_random(u64 seed, const char *device)
{
    struct maker m;
    struct fixture b;
    make_model(&m, seed);
    if (getenv("TEST_LOOP_TEXT")) printf("%s", m.b.p);
    if (fixture_open(&b, m.b.p, device))
        for (int k = 0; k < 3; k++) {
            quern_tensor *in[3], *want[2] = {0}, *got[2] = {0};
            const int64_t dim = rng_range(&m.r, 1, 9);
            in[0] = floats(&b, 1, &dim, &m.r), in[1] = floats(&b, 1, &dim, &m.r), in[2] = number(&b, rng_range(&m.r, 0, 4));
            must(&b, quern_model_eval(b.m, in, 3, want, 2));
            must(&b, quern_run(b.p, in, 3, got, 2));
            for (int i = 0; i < 2; i++) {
                check_close(&b, got[i], want[i], seed, device);
                quern_tensor_free(got[i]), quern_tensor_free(want[i]);
            }
            for (int i = 0; i < 3; i++) quern_tensor_free(in[i]);
        }
    fixture_close(&b);
    buf_release(&m.b);
}

static void test_random(void **state)
{
    for (u64 seed = first_seed(0, 24); seed < last_seed(0, 24); seed++)
        /* compiled programs take a second each */
        try_random(seed, seed % 8 == 5 ? "cpu" : seed % 8 == 7 ? "vulkan" : "interp");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_doubled),
        cmocka_unit_test(test_saved),
        cmocka_unit_test(test_random),
        cmocka_unit_test(test_golden),
    };
    vulkan_stay_loaded();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
