// SPDX-License-Identifier: Apache-2.0
//
// Passes on small graphs: test/golden/pass/NAME.graph becomes NAME.out (text form, doc/graph-ir.md)
// with the same results; f16-NAME.graph with storage in f16, with the same results up to rounding.
// Passes preserve the results of random networks, too. GOLDEN=1 writes the .out files: review the
// difference.
#include "pass/pass.h"
#include "random_net.h"

#include <math.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

static const char folder[] = "test/golden/pass";

/* Both graphs on the same inputs; tolerance of the largest value. */
static bool same_meaning(struct net *t, const struct graph *after, const i64 *var, double tolerance)
{
    struct arena a = {0};
    struct err e = {0};
    struct tensor *in = net_inputs(t, &a, var), *p[32];
    assert_true(t->g.input.n <= 32);
    struct tensor **want = arena_array(&a, struct tensor *, t->g.output.n), **got = arena_array(&a, struct tensor *, t->g.output.n);
    for (u32 k = 0; k < t->g.input.n; k++) p[k] = &in[k];
    bool ran = graph_eval(&t->g, p, want, &a, NULL, &e), same = true;
    if (ran && !graph_eval(after, p, got, &a, NULL, &e)) fail_msg("%s", e.msg);
    for (u32 k = 0; k < t->g.output.n && ran; k++) {
        double top = 1;
        for (i64 i = 0, n = tensor_count(want[k]); i < n; i++) top = fmax(top, fabs(elem_f64(want[k]->dtype, want[k]->data, i)));
        same = same && tensor_compare(got[k], want[k], 0, tolerance * top).n_bad == 0;
    }
    arena_release(&a);
    return same;
}

static void test_golden(void **state)
{
    struct arena a = {0};
    struct str *names;
    struct err e = {0};
    i64 n, done = 0;
    assert_true(os_list(&a, folder, &names, &n, &e));
    for (i64 i = 0; i < n; i++) {
        if (!str_ends(names[i], S(".graph"))) continue;
        struct net t = {.rng = rng_seed(1)};
        struct graph g;
        struct str text, want = {0};
        struct buf b = {0};
        const char *out = str_fmt(&a, "%s/%.*s.out", folder, (int)names[i].n - 6, names[i].p).p;
        symtab_init(&t.sym, &t.arena);
        assert_true(os_read(&a, str_fmt(&a, "%s/%.*s", folder, STR_ARG(names[i])).p, 1 << 20, &text, &e));
        bool ok = graph_parse(&t.g, &t.arena, &t.sym, text, &e) && op_infer_all(&t.g, &e);
        graph_clone(&g, &t.g, &t.arena);
        bool is_f16 = str_starts(names[i], S("f16-"));
        const struct pass_env env = {.flags = is_f16 ? PASS_F16 : 0};
        if (!ok || !pass_run_all(&g, &env, &e)) fail_msg("%.*s: %s", STR_ARG(names[i]), e.msg);
        graph_print(&b, &g, &(struct graph_text_opts){0});
        if (getenv("GOLDEN")) assert_true(os_write(out, b.p, b.n, &e));
        if (!os_read(&a, out, 1 << 20, &want, &e)) fail_msg("%s", e.msg);
        if (!str_eq(want, buf_view(&b))) fail_msg("%s differs:\n%s", out, b.p);
        assert_true(same_meaning(&t, &g, (i64[]){3, 4, 5, 6}, is_f16 ? 4e-3 : 1e-4));
        buf_release(&b);
        net_close(&t);
        done++;
    }
    arena_release(&a);
    assert_true(done >= 7);
}

/* Behind the passes: primitives only, distinct outputs that nodes deliver, the same meaning; a second run changes nothing. */
static void test_random(void **state)
{
    for (u64 seed = 5000; seed < 5150; seed++) {
        struct net t;
        struct graph g;
        struct buf once = {0}, twice = {0};
        net_open(&t, seed);
        graph_clone(&g, &t.g, &t.arena);
        if (!pass_run_all(&g, NULL, &t.e)) fail_msg("seed %d: %s", (int)seed, t.e.msg);
        for (node_id n = 1; n < g.node.n; n++) assert_true(!graph_node(&g, n)->dead && !op_of(&g, n)->expand);
        for (u32 k = 0; k < g.output.n; k++) {
            assert_true(graph_value(&g, g.output.v[k])->producer != 0);
            for (u32 j = 0; j < k; j++) assert_true(g.output.v[j] != g.output.v[k]);
        }
        if (!same_meaning(&t, &g, (i64[]){5, 7}, 1e-4)) fail_msg("seed %d: another meaning", (int)seed);
        graph_print(&once, &g, NULL);
        assert_true(pass_run_all(&g, NULL, &t.e));
        graph_print(&twice, &g, NULL);
        if (!str_eq(buf_view(&once), buf_view(&twice))) fail_msg("seed %d: passes go on changing things", (int)seed);
        buf_release(&once);
        buf_release(&twice);
        net_close(&t);
    }
}

/* Storage in f16: the interface keeps its names and types, and every matmul that supports f16 uses
   it. */
static void test_narrow(void **state)
{
    u32 n_half = 0;
    for (u64 seed = 6000; seed < 6100; seed++) {
        struct net t;
        struct graph g, full;
        net_open(&t, seed);
        graph_clone(&g, &t.g, &t.arena);
        graph_clone(&full, &t.g, &t.arena);
        assert_true(pass_run_all(&full, NULL, &t.e));
        if (!pass_run_all(&g, &(struct pass_env){.flags = PASS_F16}, &t.e)) fail_msg("seed %d: %s", (int)seed, t.e.msg);
        for (u32 k = 0; k < g.output.n; k++) {
            const struct value *was = graph_value(&full, full.output.v[k]), *is = graph_value(&g, g.output.v[k]);
            if (!str_eq(was->name, is->name) || was->dtype != is->dtype) fail_msg("seed %d: output %d", (int)seed, (int)k);
        }
        for (node_id n = 1; n < g.node.n; n++) {
            const struct node *x = graph_node(&g, n);
            const struct value *out = graph_value(&g, x->out.v[0]);
            if (!(op_of(&g, n)->props & (OP_CONV | OP_MATMUL)) || !dtype_is_float(out->dtype)) continue;
            for (u32 k = 0; k < x->in.n; k++)
                if (x->in.v[k]) assert_int_equal(graph_value(&g, x->in.v[k])->dtype, out->dtype);
            n_half += out->dtype == DT_F16;
        }
        net_close(&t);
    }
    assert_true(n_half > 20);
}

static value_id random_bytes(struct net *t, const char *name, enum dtype type, u32 rank, const i64 *dim)
{
    struct tensor *x = tensor_new(&t->arena, type, rank, dim);
    for (i64 i = 0; i < tensor_count(x); i++) elem_set_i64(type, x->data, i, rng_range(&t->rng, type == DT_U8 ? 0 : -128, type == DT_U8 ? 255 : 127));
    return graph_add_const(&t->g, str_of(name), x);
}

static value_id random_floats(struct net *t, const char *name, u32 rank, const i64 *dim)
{
    struct tensor *x = tensor_new(&t->arena, DT_F32, rank, dim);
    for (i64 i = 0; i < tensor_count(x); i++) elem_set_f64(DT_F32, x->data, i, 0.001 + rng_f64(&t->rng) / 50);
    return graph_add_const(&t->g, str_of(name), x);
}

/* Of columns: numbers per column, or (0) a single one, as a scalar or a vector. */
static value_id scaled_back(struct net *t, value_id q, enum dtype type, i64 columns, i64 axis)
{
    i64 n = columns ? columns : 1;
    u32 rank = columns ? 1 : (u32)rng_range(&t->rng, 0, 1);
    value_id in[3] = {q, random_floats(t, "scale", rank, &n), random_bytes(t, "zero", type, rank, &n)};
    value_id y = graph_op(&t->g, "DequantizeLinear", S("back"), rng_range(&t->rng, 0, 2) ? 3 : 2, in);
    attr_set_int(&t->g, graph_value(&t->g, y)->producer, "axis", axis);
    return y;
}

/* A product as quantisers write it, of an input in bytes. */
static void random_quantised(struct net *t)
{
    static const char *const ops[] = {"Conv", "MatMul", "Gemm"};
    struct rng *r = &t->rng;
    struct graph *g = &t->g;
    u32 op = (u32)rng_range(r, 0, 2), rank = op == 0 ? 4 : 2;
    enum dtype tx = rng_range(r, 0, 1) ? DT_U8 : DT_I8, tw = rng_range(r, 0, 3) ? DT_I8 : DT_U8;
    i64 k = rng_range(r, 1, 40), n = rng_range(r, 1, 9), turned = op == 2 && rng_range(r, 0, 1);
    i64 w[2][4] = {{n, k, rng_range(r, 1, 3), rng_range(r, 1, 3)}, {turned ? n : k, turned ? k : n}};
    value_id x = graph_add_value(g, S("x"));
    sym dim[4] = {sym_const(&t->sym, rng_range(r, 1, 3)), sym_const(&t->sym, k), sym_var(&t->sym, S("H")), sym_const(&t->sym, 5)};
    graph_value(g, x)->dtype = DT_F32;
    graph_value(g, x)->shape = (struct shape){.known = true, .rank = rank, .dim = {dim[0], dim[1], dim[2], dim[3]}};
    *arr_push(&t->arena, &g->input) = x;
    value_id q[3] = {x, op_const_f(g, DT_F32, 0.01), random_bytes(t, "offset", tx, 0, NULL)};
    value_id in[3] = {scaled_back(t, graph_op(g, "QuantizeLinear", S("bytes"), 3, q), tx, 0, 1)};
    bool per_column = rng_range(r, 0, 1);
    in[1] = scaled_back(t, random_bytes(t, "w", tw, rank, w[op > 0]), tw, per_column ? n : 0, op == 0 || turned ? 0 : 1);
    if (op != 1 && rng_range(r, 0, 1)) in[2] = random_floats(t, "bias", 1, &n);
    value_id y = graph_op(g, ops[op], S("product"), in[2] ? 3 : 2, in);
    node_id id = graph_value(g, y)->producer;
    if (op == 0) attr_set_ints(g, id, "pads", (i64[]){rng_range(r, 0, 2), 1, rng_range(r, 0, 1), rng_range(r, 0, 2)}, 4);
    if (op == 2) attr_set_int(g, id, "transB", turned);
    *arr_push(&t->arena, &g->output) = graph_op(g, "Relu", S("relu"), 1, &y);
}

/* Matmuls of dequantised operands become integer ones, if requested, with the same results. */
static void test_integer(void **state)
{
    u32 n_bytes = 0;
    for (u64 seed = 7000; seed < 7150; seed++) {
        struct net t = {.rng = rng_seed(seed)};
        struct graph g, full;
        u32 n_products = 0;
        symtab_init(&t.sym, &t.arena);
        graph_init(&t.g, &t.arena, &t.sym);
        random_quantised(&t);
        if (!op_infer_all(&t.g, &t.e)) fail_msg("seed %d: %s", (int)seed, t.e.msg);
        assert_true(pass_has_integer(&t.g));
        graph_clone(&g, &t.g, &t.arena);
        graph_clone(&full, &t.g, &t.arena);
        if (!pass_run_all(&g, &(struct pass_env){.flags = PASS_INTEGER}, &t.e)) fail_msg("seed %d: %s", (int)seed, t.e.msg);
        assert_true(pass_run_all(&full, NULL, &t.e) && !pass_has_integer(&g));
        for (node_id n = 1; n < g.node.n; n++) {
            if (!(op_of(&g, n)->props & (OP_CONV | OP_MATMUL))) continue;
            enum dtype in = graph_value(&g, graph_node(&g, n)->in.v[0])->dtype;
            n_products++, n_bytes += in == DT_U8;
            assert_true(in == DT_U8 || in == DT_I32);
        }
        assert_int_equal(n_products, 1);
        if (!same_meaning(&t, &g, (i64[]){6}, 1e-5) || !same_meaning(&t, &full, (i64[]){6}, 1e-5))
            fail_msg("seed %d: another meaning", (int)seed);
        net_close(&t);
    }
    assert_true(n_bytes > 50);
}

static void test_order(void **state)
{
    u32 last = 0;
    for (i64 k = 0; pass_at(k); k++) {
        assert_true(pass_at(k)->rank >= last && pass_at(k)->name && pass_at(k)->summary && pass_at(k)->run);
        last = pass_at(k)->rank;
    }
    assert_true(last > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_golden), cmocka_unit_test(test_random), cmocka_unit_test(test_narrow),
        cmocka_unit_test(test_integer), cmocka_unit_test(test_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
