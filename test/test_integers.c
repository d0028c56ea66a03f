// SPDX-License-Identifier: Apache-2.0
//
// Inputs with exact sums (tune/integers.c): detection of a single missing term that passes with
// random inputs; which tasks qualify, and the largest integers; and exactness of the comparison.
#include "tune/tune.h"

#include <math.h>
#include <setjmp.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

struct fixture {
    struct arena a;
    struct symtab st;
    struct task t;
    i64 var[4];
    struct err e;
};

static void fixture_open(struct fixture *b, const char *text)
{
    struct graph g;
    memset(b, 0, sizeof *b);
    symtab_init(&b->st, &b->a);
    if (!graph_parse(&g, &b->a, &b->st, str_of(text), &b->e) || !op_infer_all(&g, &b->e)) fail_msg("%s", b->e.msg);
    node_id nodes[4];
    u32 n = 0;
    for (node_id i = 1; i < g.node.n; i++) nodes[n++] = i;
    enum layout *l = arena_array(&b->a, enum layout, g.value.n);
    if (!task_make(&b->t, &g, &b->a, nodes, n, &g.output.v[0], 1, l, NULL, &b->e)) fail_msg("%s", b->e.msg);
}

static i64 largest(const char *text)
{
    struct fixture b;
    fixture_open(&b, text);
    i64 n = check_largest_integer(&b.t, b.var);
    arena_release(&b.a);
    return n;
}

/* Matrix product without one term in output `at`; returns the omitted term. */
static double leave_out(const struct check *c, struct tensor *y, i64 at, i64 k, i64 n, i64 m)
{
    const struct tensor *a = &c->value[c->task->g.input.v[0]], *b = &c->value[c->task->g.input.v[1]];
    double term = elem_f64(a->dtype, a->data, at / m * n + k) * elem_f64(b->dtype, b->data, k * m + at % m);
    elem_set_f64(y->dtype, y->data, at, elem_f64(y->dtype, y->data, at) - term);
    return term;
}

/* Whether the check detects it. The omitted term is the first from `k` on that is large enough, and
   small compared with the tolerance. */
static bool finds(struct check *c, i64 at, i64 n, i64 m, bool is_small)
{
    struct tensor *want = c->want[0];
    i64 bytes = tensor_bytes(want);
    struct buf why = {0};
    char *keep = mem_alloc(bytes);
    memcpy(keep, want->data, (size_t)bytes);
    struct tensor got = *want;
    got.data = mem_alloc(bytes);
    bool found = false, tried = false;
    assert_true(check_output(c, 0, want->data, &why));
    for (i64 k = 0; k < n && !tried; k++) {
        memcpy(got.data, keep, (size_t)bytes);
        double term = fabs(leave_out(c, &got, at, k, n, m));
        tried = term != 0 && (!is_small || term < 0.02);
        if (tried) found = !check_output(c, 0, got.data, &why);
    }
    assert_true(tried);
    mem_free(got.data), mem_free(keep);
    buf_release(&why);
    return found;
}

static void test_missing_term(void **state)
{
    enum { N = 4096, M = 3 };
    struct fixture b;
    struct check random, integers;
    fixture_open(&b, "graph {\n  input %a: f16[2,4096]\n  input %b: f16[4096,3]\n  %y: f16[2,3] = MatMul(%a, %b)\n  output %y\n}\n");
    i64 most = check_largest_integer(&b.t, b.var);
    assert_true(most > 0);
    assert_true(check_init(&random, &b.t, b.var, 1, true, &b.e));
    assert_true(check_init_integers(&integers, &b.t, b.var, 1, most, &b.e));
    for (i64 at = 0; at < 2 * M; at++) {
        assert_false(finds(&random, at, N, M, true));
        assert_true(finds(&integers, at, N, M, false));
    }
    check_release(&random), check_release(&integers);
    arena_release(&b.a);
}

/* Fractional results are right as long as the nearest integer is. */
static void test_near(void **state)
{
    struct fixture b;
    struct check c;
    struct buf why = {0};
    fixture_open(&b, "graph {\n  input %a: f32[2,8]\n  input %b: f32[8,3]\n  %y: f32[2,3] = MatMul(%a, %b)\n  output %y\n}\n");
    assert_true(check_init_integers(&c, &b.t, b.var, 3, 3, &b.e));
    float *y = c.want[0]->data, got[6];
    for (int i = 0; i < 6; i++) assert_true(y[i] == floorf(y[i])), got[i] = y[i] + 0.3f;
    assert_true(check_output(&c, 0, got, &why));
    got[5] += 0.2f;
    assert_false(check_output(&c, 0, got, &why));
    buf_release(&why);
    check_release(&c);
    arena_release(&b.a);
}

static void test_tasks(void **state)
{
    /* sums, and operators after them */
    assert_int_equal(largest("graph {\n  input %x: f32[1,8,9,9]\n  const %w: f32[4,8,3,3]\n  %y: f32[1,4,7,7] = Conv(%x, %w) {dilations=[1,1], group=1, "
                             "kernel_shape=[3,3], pads=[0,0,0,0], strides=[1,1]}\n  %z: f32[1,4,7,7] = Relu(%y)\n  output %z\n}\n"), 3);
    assert_int_equal(largest("graph {\n  input %x: f32[5,7]\n  input %y: f32[5,7]\n  %z: f32[5,7] = Add(%x, %y)\n  output %z\n}\n"), 3);
    /* elements that are moved */
    assert_int_equal(largest("graph {\n  input %x: f32[5,7]\n  input %i: i64[5,4]\n  %z: f32[5,4] = GatherElements(%x, %i) {axis=1}\n  output %z\n}\n"), 3);
    assert_int_equal(largest("graph {\n  input %a: f16[2,4096]\n  input %b: f16[4096,3]\n  const %i: i64[2,2] = [0, 2, 1, 1]\n  %y: f16[2,3] = MatMul(%a, %b)\n"
                             "  %z: f16[2,2] = GatherElements(%y, %i) {axis=1}\n  output %z\n}\n"), 1);
    /* smaller integers if a narrow type could not represent intermediate values; none if even 1 is
       too large */
    assert_int_equal(largest("graph {\n  input %a: f16[2,4096]\n  input %b: f16[4096,3]\n  %y: f16[2,3] = MatMul(%a, %b)\n  %z: f16[2,3] = Relu(%y)\n  output %z\n}\n"), 1);
    assert_int_equal(largest("graph {\n  input %a: bf16[2,4096]\n  input %b: bf16[4096,3]\n  %y: bf16[2,3] = MatMul(%a, %b)\n  %z: bf16[2,3] = Relu(%y)\n  output %z\n}\n"), 0);
    /* fractions, other functions, searches */
    assert_int_equal(largest("graph {\n  input %x: f32[5,7]\n  %z: f32[5,7] = Exp(%x)\n  output %z\n}\n"), 0);
    assert_int_equal(largest("graph {\n  input %x: f32[5,7]\n  const %c: f32[1] = [0.5]\n  %z: f32[5,7] = Mul(%x, %c)\n  output %z\n}\n"), 0);
    assert_int_equal(largest("graph {\n  input %x: f32[5,7]\n  input %y: f32[5,7]\n  %z: f32[5,7] = Div(%x, %y)\n  output %z\n}\n"), 0);
    assert_int_equal(largest("graph {\n  input %x: f32[1,4,8,8]\n  %z: f32[1,4,4,4] = AveragePool(%x) {kernel_shape=[2,2], strides=[2,2], pads=[0,0,0,0], ceil_mode=0, "
                             "count_include_pad=0, dilations=[1,1]}\n  output %z\n}\n"), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_missing_term), cmocka_unit_test(test_near), cmocka_unit_test(test_tasks)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
