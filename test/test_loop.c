// SPDX-License-Identifier: Apache-2.0
//
// Control flow that only running can decide, from the text of a graph to results: programs of the interpreter, of this processor and, where
// there is one, of a Vulkan device against the reference evaluator, run after run with other data; saved programs.
#include "core/core.h"
#include "io/io.h"
#include "quern.h"
#include "seeds.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <onnx.pb-c.h>

struct bed {
    quern *q;
    quern_model *m;
    quern_program *p;
};

static void must(const struct bed *b, quern_status s)
{
    if (s) fail_msg("%s", quern_error(b->q));
}

/* false: the device is not here. */
static bool bed_open(struct bed *b, const char *text, const char *device)
{
    struct quern_compile_opts o = QUERN_OPTS(quern_compile_opts);
    *b = (struct bed){.q = quern_open(NULL)};
    o.device = device;
    must(b, quern_model_read(b->q, text, strlen(text), "loop", NULL, &b->m));
    if (quern_compile(b->m, NULL, &o, &b->p)) {
        if (strcmp(device, "vulkan")) fail_msg("%s: %s", device, quern_error(b->q));
        return false;
    }
    return true;
}

static void bed_close(struct bed *b)
{
    quern_program_close(b->p);
    quern_model_close(b->m);
    quern_close(b->q);
}

static quern_tensor *floats(const struct bed *b, int rank, const int64_t *dim, struct rng *r)
{
    quern_tensor *t = NULL;
    must(b, quern_tensor_new(b->q, QUERN_F32, rank, dim, NULL, &t));
    float *v = quern_tensor_data(t);
    for (i64 i = 0; i < quern_tensor_count(t); i++) v[i] = (float)rng_range(r, -3, 3);
    return t;
}

static quern_tensor *number(const struct bed *b, int64_t v)
{
    quern_tensor *t = NULL;
    must(b, quern_tensor_new(b->q, QUERN_I64, 0, NULL, &v, &t));
    return t;
}

static quern_tensor *flag(const struct bed *b, bool v)
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

static void run_both(struct bed *b, quern_tensor **in, int n_in, int n_out)
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

/* As long as the sum of x is below a bound, x is doubled; what it was is collected. */
static const char doubled[] =
    "graph {\n"
    "  input %x: f32[N]\n  input %most: i64[]\n  input %go: bool[]\n"
    "  %a: f32[?] = Abs(%x)\n"
    "  const %one: f32[] = [1.0]\n"
    "  %b: f32[?] = Add(%a, %one)\n"
    "  %last: f32[?], %all: f32[?], %sizes: i64[?] = quern::Loop \"loop\"(%go, %b) {carried=1, conditional=1, rounds=strs[\"m\"],\n"
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
        struct bed b;
        struct rng r = rng_seed(7);
        if (!bed_open(&b, doubled, devices[d])) { bed_close(&b); continue; }
        for (int k = 0; k < 10; k++) {
            quern_tensor *in[3] = {floats(&b, 1, (int64_t[]){k % 3 ? 5 : rng_range(&r, 1, 200)}, &r), number(&b, k == 4 ? 0 : rng_range(&r, 0, 20)),
                                   flag(&b, k != 7)};
            run_both(&b, in, 3, 3);
            for (int i = 0; i < 3; i++) quern_tensor_free(in[i]);
        }
        bed_close(&b);
    }
}

/* Models in test/golden/ort (ort_cases.py): programs against what ONNX Runtime computed. */

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

static quern_tensor *as_tensor(const struct bed *b, const struct tensor *t)
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
    if (got.rank == want->rank && !tensor_count(&got) && !tensor_count(want)) return; /* other sizes are not told of no rounds */
    struct tensor_diff d = tensor_compare(&got, want, want->dtype == DT_F16 ? 1e-2 : 1e-4, want->dtype == DT_F16 ? 1e-2 : 1e-4);
    if (d.n_bad) fail_msg("%s on %s: %lld wrong, first %lld: %g, expected %g", file, device, (long long)d.n_bad, (long long)d.first_bad, d.got, d.want);
}

static void run_golden(const char *file, const char *device)
{
    struct arena a = {0};
    struct err e = {0};
    struct bed b = {.q = quern_open(NULL)};
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
    bed_close(&b);
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_doubled),
        cmocka_unit_test(test_golden),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
