// SPDX-License-Identifier: Apache-2.0
//
// Operators and tensors of a network by name: the names of OptimaV2's graphs, what counts as an
// operator, and the properties that hold for any network.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "place/place.h"
#include "random_net.h"
#include "seeds.h"

struct fixture {
    struct arena a;
    struct model *m;
    struct place_net x;
    struct err e;
};

static void fixture_open(struct fixture *f, const char *text)
{
    struct model_source s = {.path = "net", .bytes = str_of(text)};
    struct model_opts o = {0};
    *f = (struct fixture){0};
    f->m = model_open(&s, &o, &f->e);
    if (!f->m || !place_net_open(&f->x, f->m, &f->a, &f->e)) fail_msg("%s", f->e.msg);
}

static void fixture_close(struct fixture *f)
{
    arena_release(&f->a);
    model_close(f->m);
}

/* "conv2d_2(tensor_0, paramtensor_3) -> tensor_4; ..." */
static void print_names(struct buf *b, const struct place_net *x)
{
    for (u32 k = 0; k < x->op.n; k++) {
        const struct place_op *op = &x->op.v[k];
        buf_printf(b, "%s%.*s(", k ? "; " : "", STR_ARG(op->name));
        for (u32 i = 0; i < op->in.n; i++)
            buf_printf(b, "%s%.*s", i ? ", " : "", STR_ARG(x->tensor.v[op->in.v[i]].name));
        buf_z(b, ") ->");
        for (u32 i = 0; i < op->out.n; i++)
            buf_printf(b, "%s %.*s", i ? "," : "", STR_ARG(x->tensor.v[op->out.v[i]].name));
    }
}

static void expect(const char *text, const char *names)
{
    struct fixture f;
    struct buf b = {0};
    fixture_open(&f, text);
    print_names(&b, &f.x);
    assert_string_equal(b.p ? b.p : "", names);
    buf_release(&b);
    fixture_close(&f);
}

#define CONV_1 "const %w: f32[1,3,1,1] = [0.5, 0.25, 0.25] "

static void sample_model_has_optimas_names(void **state)
{
    expect("graph { input %x: f32[1,3,32,32] input %y: f32[1,1,32,32] " CONV_1
           "%c: f32[1,1,32,32] = Conv \"/conv/Conv\"(%x, %w) %z: f32[1,1,32,32] = Add(%c, %y) "
           "output %z }",
           "conv2d_2(tensor_0, paramtensor_3) -> tensor_4; add_5(tensor_4, tensor_1) -> tensor_6");
}

static void parameters_come_last_and_once(void **state)
{
    expect(
        "graph { input %x: f32[4] const %a: f32[4] = [1,2,3,4] "
        "%b: f32[4] = Sub(%a, %x) %c: f32[4] = Mul(%b, %a) output %c }",
        "sub_1(tensor_0, paramtensor_2) -> tensor_3; mul_4(tensor_3, paramtensor_2) -> tensor_5");
}

static void words_are_optimas(void **state)
{
    expect("graph { input %x: f32[1,1,8] const %w: f32[1,1,3] = [1,2,3] %a: f32[1,1,6] = Conv(%x, "
           "%w) %b: f32[1,1,6] = PRelu(%a, %s) "
           "const %s: f32[1] = [0.5] %c: f32[1,1,5] = MaxPool(%b) {kernel_shape=[2]} output %c }",
           "conv1d_1(tensor_0, paramtensor_2) -> tensor_3; prelu_4(tensor_3, paramtensor_5) -> "
           "tensor_6; maxpool1d_7(tensor_6) -> tensor_8");
    expect("graph { input %x: f32[2,3] const %w: f32[3,2] = [1,2,3,4,5,6] %y: f32[2,2] = Gemm(%x, "
           "%w) %z: f32[2,2] = Gelu(%y) output %z }",
           "linear_1(tensor_0, paramtensor_2) -> tensor_3; gelu_4(tensor_3) -> tensor_5");
}

static void constants_and_sizes_are_no_operators(void **state)
{
    /* A product of constants; a target shape computed from the input's; an Identity. */
    expect("graph { input %x: f32[N,4] const %a: f32[4] = [1,2,3,4] const %i: i64[1] = [0] const "
           "%m: i64[2] = [-1, 2] "
           "%k: f32[4] = Mul(%a, %a) %y: f32[N,4] = Add(%x, %k) %id: f32[N,4] = Identity(%y) "
           "%s: i64[2] = Shape(%id) %n: i64[1] = Gather(%s, %i) {axis=0} %t: i64[3] = Concat(%n, "
           "%m) {axis=0} "
           "%z: f32[N,2,2] = Reshape(%id, %t) output %z }",
           "add_1(tensor_0, paramtensor_2) -> tensor_3; reshape_4(tensor_3, paramtensor_5) -> "
           "tensor_6");
    /* What the network returns is an operator's. */
    expect("graph { input %x: f32[N,4] %s: i64[2] = Shape(%x) output %s }",
           "shape_1(tensor_0) -> tensor_2");
    expect("graph { input %x: f32[4] const %c: f32[1] = [2] output %c output %x }", "");
}

static void codes_stay_codes(void **state)
{
    expect("graph { input %x: f32[1,2] const %q: i8[2,2] = [1,2,3,4] const %s: f32[] = [0.5] "
           "%w: f32[2,2] = DequantizeLinear(%q, %s) %y: f32[1,2] = MatMul(%x, %w) output %y }",
           "matmul_1(tensor_0, paramtensor_2) -> tensor_3");
    struct fixture f;
    fixture_open(
        &f, "graph { input %x: f32[1,2] const %q: i8[2,2] = [1,2,3,4] const %s: f32[] = [0.5] "
            "%w: f32[2,2] = DequantizeLinear(%q, %s) %y: f32[1,2] = MatMul(%x, %w) output %y }");
    const struct place_op *op = &f.x.op.v[0];
    const value_id w = f.x.tensor.v[op->in.v[1]].value;
    const node_id n = graph_value(&f.x.g, w)->producer;
    assert_true(n && f.x.op_of[n] == UINT32_MAX && f.x.tensor.v[op->in.v[1]].is_param);
    fixture_close(&f);
}

static void sizes_found_in_data_are_operators(void **state)
{
    expect("graph { input %x: f32[8] %p: i64[?] = NonZero(%x) %s: i64[?] = Shape(%p) %o: f32[?] = "
           "Expand(%c, %s) const %c: f32[] = [1] output %o }",
           "countnonzero_1(tensor_0) -> tensor_2; reducesum_3(tensor_2, paramtensor_4) -> "
           "tensor_5; nonzero_6(tensor_0) -> tensor_7; "
           "shape_8(tensor_7) -> tensor_9; expand_10(tensor_9, paramtensor_11) -> tensor_12");
}

/* A node whose body runs until a sum is large is one operator, whatever is in the body. */
static void loops_are_one_operator(void **state)
{
    expect("graph { input %x: f32[N] input %most: i64[] input %go: bool[] %a: f32[?] = Abs(%x) "
           "%last: f32[?], %all: f32[?], %sizes: i64[?] = quern::Loop \"loop\"(%go, %a) "
           "{carried=1, conditional=1, trip_count=strs[\"m\"], body=graph { input %x: f32[N] "
           "%y: f32[?] = Add(%x, %x) const %axes: i64[1] = [0] "
           "%s: f32[?] = ReduceSum(%y, %axes) {keepdims=0} const %bound: f32[] = [1000.0] "
           "%c: bool[?] = Less(%s, %bound) output %c output %y output %x }} "
           "size (m) = plus %most[0] output %last output %all }",
           "abs_3(tensor_0) -> tensor_4; "
           "loop_5(tensor_2, tensor_4) -> tensor_6, tensor_7, tensor_8");
}

static void check_names(const struct place_net *x)
{
    for (u32 k = 0; k < x->op.n; k++) {
        const struct place_op *op = &x->op.v[k];
        const u64 *at = map_get(&x->op_by_name, op->name);
        assert_true(at && *at == k && x->op_of[op->node] == k);
        assert_true(k == 0 || op->node > x->op.v[k - 1].node);
        for (u32 i = 1; i < op->in.n; i++)
            assert_true(x->tensor.v[op->in.v[i]].is_param >= x->tensor.v[op->in.v[i - 1]].is_param);
        for (u32 i = 0; i < op->out.n; i++) assert_false(x->tensor.v[op->out.v[i]].is_param);
    }
    for (u32 k = 0; k < x->tensor.n; k++) assert_true(x->tensor_of[x->tensor.v[k].value] == k);
    for (u32 k = 0; k < x->g.output.n; k++)
        assert_true(x->tensor_of[x->g.output.v[k]] != UINT32_MAX);
}

/* The graph computes what the model's does. */
static void check_results(struct net *t, const struct fixture *f)
{
    struct arena a = {0};
    struct err e = {0};
    i64 var[64];
    for (u32 k = 0; k < t->sym.var.n; k++) var[k] = rng_range(&t->rng, 8, 16);
    sym_fact_adjust(&t->sym, var, NULL);
    struct tensor *in = net_inputs(t, &a, var), *p[32], *was[32], *is[32];
    for (u32 k = 0; k < t->g.input.n; k++) p[k] = &in[k];
    assert_true(t->g.output.n <= 32);
    if (!graph_eval(&f->m->graph, p, was, &a, NULL, &e) ||
        !graph_eval(&f->x.g, p, is, &a, NULL, &e))
        fail_msg("%s", e.msg);
    for (u32 k = 0; k < t->g.output.n; k++)
        assert_int_equal(tensor_compare(is[k], was[k], 1e-6, 1e-6).n_bad, 0);
    arena_release(&a);
}

static void random_networks_are_named(void **state)
{
    for (u64 seed = first_seed(1, 101); seed < last_seed(1, 101); seed++) {
        struct net t;
        struct buf text = {0};
        struct fixture f;
        net_open(&t, seed);
        graph_print(&text, &t.g, NULL);
        fixture_open(&f, text.p);
        check_names(&f.x);
        check_results(&t, &f);
        fixture_close(&f);
        buf_release(&text);
        net_close(&t);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sample_model_has_optimas_names),
        cmocka_unit_test(parameters_come_last_and_once),
        cmocka_unit_test(words_are_optimas),
        cmocka_unit_test(constants_and_sizes_are_no_operators),
        cmocka_unit_test(codes_stay_codes),
        cmocka_unit_test(sizes_found_in_data_are_operators),
        cmocka_unit_test(loops_are_one_operator),
        cmocka_unit_test(random_networks_are_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
