// SPDX-License-Identifier: Apache-2.0
//
// GEMMs of f32 with operands rounded to tf32: rounding; fragments of kernel IR, the only users of
// the type; the task, which differs from the f32 one; and the tolerance, which accepts rounded and
// truncated operands for any size, and rejects operands of 7 bits and sums that lack a term.
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <math.h>

#include "kir/kir.h"
#include "lab/lab.h"

/* To 10 bits, midpoints away from zero; values of 10 bits are unchanged. */
static void test_rounding(void **state)
{
    struct rng r = rng_seed(3);
    assert_true(isnan(tf32_from_f32(NAN)) && tf32_from_f32(-INFINITY) == -INFINITY && isinf(tf32_from_f32(0x1.fffffep127f)));
    assert_true(tf32_from_f32(0x1.002p0f) == 0x1.004p0f && tf32_from_f32(-0x1.002p0f) == -0x1.004p0f && tf32_from_f32(0x1.001ffep0f) == 1);
    assert_true(signbit(tf32_from_f32(-0.0f)));
    for (int i = 0; i < 10000; i++) {
        float x = (float)((rng_f64(&r) - 0.5) * exp2((double)rng_range(&r, -100, 100))), y = tf32_from_f32(x), set;
        double step = ldexp(1, ilogbf(x) - 10);
        if (fabs((double)y - (double)x) > step / 2 || fmod((double)y, step) != 0) fail_msg("%a becomes %a", (double)x, (double)y);
        elem_set_f64(DT_TF32, &set, 0, (double)x);
        assert_true(tf32_from_f32(y) == y && set == y && elem_f64(DT_TF32, &set, 0) == (double)y);
    }
}

static void test_names(void **state)
{
    assert_int_equal(dtype_parse(S("tf32")), DT_NONE);
    assert_int_equal(dtype_parse_operand(S("tf32")), DT_TF32);
    assert_int_equal(dtype_parse_operand(S("f16")), DT_F16);
    assert_int_equal(dtype_parse_operand(S("none")), DT_NONE);
}

static bool parses(const char *text)
{
    struct arena a = {0};
    struct kir k;
    struct err e = {0};
    bool ok = kir_parse(&k, &a, str_of(text), &e) && kir_verify(&k, &e);
    arena_release(&a);
    return ok;
}

static void test_types_of_kernels(void **state)
{
    assert_true(parses("kernel k(x: in f32)\ngroup 32 1 1 subgroup 32\ngrid %1 = 1\n  %2: tf32_a16x8 = fload x[0] pitch 8\nend\n"));
    assert_false(parses("kernel k(x: in f16)\ngroup 32 1 1 subgroup 32\ngrid %1 = 1\n  %2: tf32_a16x8 = fload x[0] pitch 8\nend\n"));
    assert_false(parses("kernel k(x: in f32)\ngroup 32 1 1 subgroup 32\ngrid %1 = 1\n  %2: tf32_acc16x8 = fload x[0] pitch 8\nend\n"));
    assert_false(parses("kernel k(x: in tf32)\ngrid %1 = 1\nend\n"));
    assert_false(parses("kernel k(x: in f32, y: out f32)\ngrid %1 = 1\n  %2 = load x[0]\n  %3: tf32 = cast %2\nend\n"));
}

static float cut(float x)
{
    u32 u;
    memcpy(&u, &x, sizeof u);
    u &= ~0x1fffu;
    memcpy(&x, &u, sizeof u);
    return x;
}

static float seven_bits(float x)
{
    u32 u;
    memcpy(&u, &x, sizeof u);
    return bf16_to_f32((u16)(u >> 16));
}

static float as_it_is(float x) { return x; }

/* Sums in f32, of operands transformed by `how`; `miss`: without the last term. */
static bool passes(const struct check *c, const struct lab_config *p, float (*how)(float), bool miss)
{
    const struct graph *g = &c->task->g;
    const struct node *x = graph_node(g, graph_value(g, g->output.v[0])->producer);
    const float *a = c->value[x->in.v[0]].data, *b = c->value[x->in.v[1]].data;
    float *y = mem_alloc(p->m * p->n * (i64)sizeof *y);
    struct buf why = {0};
    for (i64 i = 0; i < p->m; i++)
        for (i64 j = 0; j < p->n; j++)
            for (i64 k = 0; k < p->k - miss; k++) y[i * p->n + j] += how(a[i * p->k + k]) * how(b[k * p->n + j]);
    bool ok = check_output(c, 0, y, &why);
    buf_release(&why);
    mem_free(y);
    return ok;
}

static void test_tolerance(void **state)
{
    struct rng r = rng_seed(5);
    for (u64 seed = 0; seed < 40; seed++) {
        struct arena a = {0};
        struct symtab st;
        struct task t, plain;
        struct check c;
        struct err e = {0};
        i64 none = 0;
        struct lab_config p = {.m = rng_range(&r, 8, 60), .n = rng_range(&r, 8, 60), .k = rng_range(&r, 1, 600)};
        symtab_init(&st, &a);
        assert_true(lab_task(&t, &a, &st, &p, DT_TF32, &e) && lab_task(&plain, &a, &st, &p, DT_F32, &e));
        assert_true(t.key.lo != plain.key.lo || t.key.hi != plain.key.hi);
        assert_true(check_init(&c, &t, &none, seed, true, &e));
        if (!passes(&c, &p, as_it_is, false) || !passes(&c, &p, tf32_from_f32, false) || !passes(&c, &p, cut, false))
            fail_msg("%lld x %lld x %lld is refused", (long long)p.m, (long long)p.n, (long long)p.k);
        assert_false(passes(&c, &p, as_it_is, true));
        assert_false(passes(&c, &p, seven_bits, false));
        check_release(&c);
        assert_true(check_init(&c, &plain, &none, seed, true, &e));
        assert_true(passes(&c, &p, as_it_is, false));
        assert_false(passes(&c, &p, tf32_from_f32, false));
        check_release(&c);
        struct lab_config back;
        enum dtype type;
        assert_true(lab_product_of(&back, &type, &t) && type == DT_TF32 && back.k == p.k);
        assert_true(lab_product_of(&back, &type, &plain) && type == DT_F32);
        arena_release(&a);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_rounding), cmocka_unit_test(test_names),
                                       cmocka_unit_test(test_types_of_kernels), cmocka_unit_test(test_tolerance)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
