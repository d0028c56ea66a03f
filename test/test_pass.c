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
    for (u32 k = 0; k < t->g.output.n && ran; k++)
        same = same && tensor_compare(got[k], want[k], 0, tolerance * fmax(1, tensor_largest(want[k]))).n_bad == 0;
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

/* Numbers of a type, of which `other` fits neither f16 nor bf16 (0: all fit). */
static value_id numbers_of(struct net *t, const char *name, enum dtype type, double other, const i64 dim[2])
{
    struct tensor *x = tensor_new(&t->arena, DT_F32, 2, dim);
    u16 half;
    for (i64 i = 0; i < tensor_count(x); i++) {
        elem_set_f64(type, &half, 0, rng_f64(&t->rng) * 2 - 1);
        elem_set_f64(DT_F32, x->data, i, elem_f64(type, &half, 0));
    }
    if (other != 0) elem_set_f64(DT_F32, x->data, tensor_count(x) - 1, other);
    return graph_add_const(&t->g, str_of(name), x);
}

/* Weights whose values fit 16 bits are stored so, once for all their users, and yield the same bits; others, small ones and left operands stay. */
static void test_compact(void **state)
{
    const i64 dim[2] = {128, 128}, few[2] = {128, 8};
    struct net t;
    struct err e = {0};
    struct tensor *x, **want, **got;
    bool changed;
    net_open(&t, 1);
    graph_init(&t.g, &t.arena, &t.sym);
    x = tensor_new(&t.arena, DT_F32, 2, dim);
    for (i64 i = 0; i < tensor_count(x); i++) elem_set_f64(DT_F32, x->data, i, rng_f64(&t.rng));
    value_id in = graph_add_value(&t.g, S("x"));
    graph_value(&t.g, in)->dtype = DT_F32;
    graph_value(&t.g, in)->shape = (struct shape){.known = true, .rank = 2, .dim = {sym_const(&t.sym, 128), sym_const(&t.sym, 128)}};
    *arr_push(&t.arena, &t.g.input) = in;
    value_id half = numbers_of(&t, "half", DT_F16, 0, dim), brain = numbers_of(&t, "brain", DT_BF16, 0, dim);
    const struct { value_id a, b; enum dtype type; } product[] = {
        {in, half, DT_F16}, {in, half, DT_F16}, {in, brain, DT_BF16}, {in, numbers_of(&t, "full", DT_F16, 0x1.0001p-1, dim), DT_F32},
        {in, numbers_of(&t, "large", DT_F16, 0x1.01p20, dim), DT_F32}, {in, numbers_of(&t, "nan", DT_BF16, NAN, dim), DT_F32},
        {in, numbers_of(&t, "few", DT_F16, 0, few), DT_F32}, {half, in, DT_F32},
    };
    for (u32 i = 0; i < countof(product); i++)
        *arr_push(&t.arena, &t.g.output) = graph_op(&t.g, "MatMul", S("y"), 2, (value_id[]){product[i].a, product[i].b});
    assert_true(op_infer_all(&t.g, &e));
    want = arena_array(&t.arena, struct tensor *, countof(product)), got = arena_array(&t.arena, struct tensor *, countof(product));
    assert_true(graph_eval(&t.g, &x, want, &t.arena, NULL, &e));
    assert_true(pass_compact(&t.g, &changed, &e) && changed);
    assert_true(op_infer_all(&t.g, &e) && graph_verify(&t.g, &e));
    assert_true(graph_eval(&t.g, &x, got, &t.arena, NULL, &e));
    for (u32 i = 0; i < countof(product); i++) {
        const struct node *n = graph_node(&t.g, graph_value(&t.g, t.g.output.v[i])->producer);
        assert_int_equal(graph_value(&t.g, n->in.v[1])->dtype, product[i].type);
        assert_memory_equal(want[i]->data, got[i]->data, (size_t)tensor_bytes(want[i]));
    }
    assert_int_equal(graph_node(&t.g, graph_value(&t.g, t.g.output.v[0])->producer)->in.v[1], graph_node(&t.g, graph_value(&t.g, t.g.output.v[1])->producer)->in.v[1]);
    assert_true(pass_compact(&t.g, &changed, &e) && !changed);
    net_close(&t);
}

/* Weights behind a Cast, as exporters write them: what is stored is what it was made of, without a copy; not where numbers differ, if only in the sign
   of zero, or are NaN. */
static void test_compact_source(void **state)
{
    static const struct { enum dtype type, stored; double was, is; bool is_shared; } kind[] = { /* one element, before and after the Cast */
        {DT_F16, DT_F16, 0.5, 0.5, true}, {DT_BF16, DT_BF16, 0.5, 0.5, true}, {DT_F16, DT_F32, 0.5, 0.5 + 0x1p-20, false},
        {DT_F16, DT_F16, 0, -0.0, false}, {DT_BF16, DT_BF16, -0.0, 0, false}, {DT_F16, DT_F32, NAN, NAN, false}};
    for (u32 i = 0; i < countof(kind); i++) {
        const i64 dim[2] = {128, 130}, at = 128 * 130 - 1;
        struct net t;
        struct err e = {0};
        bool changed;
        net_open(&t, i + 1);
        graph_init(&t.g, &t.arena, &t.sym);
        value_id in = graph_add_value(&t.g, S("x"));
        graph_value(&t.g, in)->dtype = DT_F32;
        graph_value(&t.g, in)->shape = (struct shape){.known = true, .rank = 2, .dim = {sym_const(&t.sym, 3), sym_const(&t.sym, 128)}};
        *arr_push(&t.arena, &t.g.input) = in;
        struct tensor *w = tensor_new(&t.arena, kind[i].type, 2, dim);
        for (i64 k = 0; k < tensor_count(w); k++) elem_set_f64(w->dtype, w->data, k, rng_f64(&t.rng) * 2 - 1);
        elem_set_f64(w->dtype, w->data, at, kind[i].was);
        value_id wide = op_node_cast(&t.g, 0, graph_add_const(&t.g, S("w"), w), DT_F32, 0);
        *arr_push(&t.arena, &t.g.output) = graph_op(&t.g, "MatMul", S("y"), 2, (value_id[]){in, wide});
        if (!pass_run_all(&t.g, NULL, &e)) fail_msg("%s", e.msg);
        const struct node *product = graph_node(&t.g, graph_value(&t.g, t.g.output.v[0])->producer);
        struct tensor *folded = graph_value(&t.g, product->in.v[1])->data;
        assert_true(folded && folded->dtype == DT_F32);
        elem_set_f64(DT_F32, folded->data, at, kind[i].is);
        assert_true(pass_compact(&t.g, &changed, &e));
        const struct tensor *is = graph_value(&t.g, graph_node(&t.g, graph_value(&t.g, t.g.output.v[0])->producer)->in.v[1])->data;
        assert_int_equal(is->dtype, kind[i].stored);
        assert_int_equal(is->data == w->data, kind[i].is_shared);
        for (i64 k = 0; k < tensor_count(w); k++) {
            const double x = elem_f64(is->dtype, is->data, k), want = elem_f64(DT_F32, folded->data, k);
            assert_true((x == want && signbit(x) == signbit(want)) || (isnan(x) && isnan(want)));
        }
        net_close(&t);
    }
}

/* Each result has memory of its own, also of a value that is one twice, an input or a constant. */
static void test_results(void **state)
{
    static const char text[] = "graph {\n  input %x: f32[2]\n  const %c: f32[2] = [3.0, 4.0]\n  %y: none[?] = Add(%x, %c)\n  %z: none[?] = Mul(%y, %c)\n"
                               "  output %y\n  output %z\n  output %y\n  output %x\n  output %c\n}\n";
    static const float want[5][2] = {{4, 6}, {12, 24}, {4, 6}, {1, 2}, {3, 4}};
    struct arena a = {0};
    struct symtab st;
    struct graph g;
    struct err e = {0};
    float x[2] = {1, 2};
    struct tensor in = {.dtype = DT_F32, .rank = 1, .dim = {2}, .data = x}, *p = &in, *out[5];
    symtab_init(&st, &a);
    if (!graph_parse(&g, &a, &st, S(text), &e) || !op_infer_all(&g, &e) || !graph_eval(&g, &p, out, &a, NULL, &e)) fail_msg("%s", e.msg);
    for (u32 i = 0; i < 5; i++) {
        assert_memory_equal(out[i]->data, want[i], sizeof want[i]);
        for (u32 k = 0; k < i; k++) assert_ptr_not_equal(out[i]->data, out[k]->data);
        assert_ptr_not_equal(out[i]->data, x);
    }
    arena_release(&a);
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
    y = graph_op(g, "Relu", S("relu"), 1, &y);
    for (i64 i = rng_range(r, 0, 3); i > 0; i--) y = graph_op(g, "Mul", S("scaled"), 2, (value_id[]){y, op_const_f(g, DT_F32, 0.5 + rng_f64(r))});
    *arr_push(&t->arena, &g->output) = y;
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
            assert_true(in == DT_U8 || in == DT_I16);
        }
        assert_int_equal(n_products, 1);
        if (!same_meaning(&t, &g, (i64[]){6}, 1e-5) || !same_meaning(&t, &full, (i64[]){6}, 1e-5))
            fail_msg("seed %d: another meaning", (int)seed);
        net_close(&t);
    }
    assert_true(n_bytes > 50);
}

/* Networks of quantised layers. */

enum { CHANNELS = 5 };

/* Powers of two round nothing: all forms of a network have the same results. */
static double random_scale(struct net *t, bool exact) { return exact ? ldexp(1, (int)rng_range(&t->rng, -5, -1)) : 0.02 + rng_f64(&t->rng) / 3; }

struct quantised {
    value_id scale, zero;
    enum dtype type;
};

static struct quantised random_parameters(struct net *t, bool exact)
{
    struct quantised q = {op_const_f(&t->g, DT_F32, random_scale(t, exact)), 0, rng_range(&t->rng, 0, 1) ? DT_U8 : DT_I8};
    q.zero = rng_range(&t->rng, 0, 2) ? random_bytes(t, "zero", q.type, 0, NULL) : op_const_f(&t->g, q.type, q.type == DT_U8 ? 0 : -128);
    return q;
}

static value_id quantised(struct net *t, value_id x, const struct quantised *q)
{
    return graph_op(&t->g, "QuantizeLinear", S("q"), 3, (value_id[]){x, q->scale, q->zero});
}

static value_id dequantised(struct net *t, value_id x, const struct quantised *q)
{
    return graph_op(&t->g, "DequantizeLinear", S("d"), 3, (value_id[]){x, q->scale, q->zero});
}

/* x through bytes, by new parameters or the same. */
static value_id rounded(struct net *t, value_id x, struct quantised *q, bool exact)
{
    if (rng_range(&t->rng, 0, 1)) *q = random_parameters(t, exact);
    return dequantised(t, quantised(t, x, q), q);
}

static double scale_of(const struct net *t, value_id v) { return elem_f64(DT_F32, graph_value(&t->g, v)->data->data, 0); }

/* x (1, CHANNELS, h, w) convolved with bytes, with a bias of i32 or of f32, in either form. */
static value_id convolved(struct net *t, value_id x, struct quantised *q, bool exact)
{
    struct rng *r = &t->rng;
    struct graph *g = &t->g;
    bool linear = rng_range(r, 0, 2) == 0, per_channel = rng_range(r, 0, 1), depthwise = rng_range(r, 0, 3) == 0, has_bias = rng_range(r, 0, 1);
    i64 w[4] = {CHANNELS, depthwise ? 1 : CHANNELS, rng_range(r, 1, 3), 3}, n = per_channel ? CHANNELS : 1;
    enum dtype tw = rng_range(r, 0, 2) ? DT_I8 : DT_U8;
    struct tensor *s = tensor_new(&t->arena, DT_F32, 1, &n), *sb = tensor_new(&t->arena, DT_F32, 1, &n), *b = tensor_new(&t->arena, DT_I32, 1, w);
    for (i64 i = 0; i < n; i++) {
        elem_set_f64(DT_F32, s->data, i, random_scale(t, exact) / 16);
        elem_set_f64(DT_F32, sb->data, i, (double)((float)scale_of(t, q->scale) * (float)elem_f64(DT_F32, s->data, i)));
    }
    for (i64 i = 0; i < CHANNELS; i++) elem_set_i64(DT_I32, b->data, i, rng_range(r, -30000, 30000));
    if (tw == DT_U8 && rng_range(r, 0, 1)) tw = DT_I8;
    value_id ws = graph_add_const(g, S("ws"), s), wz = rng_range(r, 0, 3) ? graph_add_const(g, S("wz"), tensor_new(&t->arena, tw, 1, &n)) : random_bytes(t, "wz", tw, 1, &n), wq = random_bytes(t, "w", tw, 4, w), bias = graph_add_const(g, S("bias"), b), y;
    if (linear) {
        struct quantised to = random_parameters(t, exact);
        value_id in[9] = {quantised(t, x, q), q->scale, q->zero, wq, ws, wz, to.scale, to.zero, bias};
        y = graph_op(g, "QLinearConv", S("conv"), has_bias ? 9 : 8, in);
        *q = to;
    } else {
        value_id in[3] = {dequantised(t, quantised(t, x, q), q), graph_op(g, "DequantizeLinear", S("dw"), 3, (value_id[]){wq, ws, wz})};
        attr_set_int(g, graph_value(g, in[1])->producer, "axis", 0);
        if (has_bias) {
            in[2] = graph_op(g, "DequantizeLinear", S("db"), 2, (value_id[]){bias, graph_add_const(g, S("bs"), sb)});
            attr_set_int(g, graph_value(g, in[2])->producer, "axis", 0);
        }
        y = graph_op(g, "Conv", S("conv"), has_bias ? 3 : 2, in);
    }
    node_id id = graph_value(g, y)->producer;
    attr_set_ints(g, id, "pads", (i64[]){w[2] > 1, 1, w[2] > 2, 1}, 4);
    attr_set_int(g, id, "group", depthwise ? CHANNELS : 1);
    if (linear) y = dequantised(t, y, q);
    u32 bounds = (u32)rng_range(r, 0, 2);
    if (bounds == 1) y = graph_op(g, "Relu", S("relu"), 1, &y);
    if (bounds == 2) y = graph_op(g, "Clip", S("clip"), 3, (value_id[]){y, op_const_f(g, DT_F32, 0), op_const_f(g, DT_F32, rng_range(r, 1, 9))});
    return y;
}

static value_id largest(struct net *t, value_id x)
{
    value_id y = graph_op(&t->g, "MaxPool", S("pool"), 1, &x);
    attr_set_ints(&t->g, graph_value(&t->g, y)->producer, "kernel_shape", (i64[]){2, 3}, 2);
    attr_set_ints(&t->g, graph_value(&t->g, y)->producer, "pads", (i64[]){0, 1, 1, 1}, 4);
    return y;
}

static void random_layers(struct net *t, bool exact)
{
    struct rng *r = &t->rng;
    struct graph *g = &t->g;
    value_id x = graph_add_value(g, S("x"));
    graph_value(g, x)->dtype = DT_F32;
    graph_value(g, x)->shape = (struct shape){.known = true, .rank = 4, .dim = {sym_const(&t->sym, 1), sym_const(&t->sym, CHANNELS), sym_var(&t->sym, S("H")), sym_const(&t->sym, 4)}};
    *arr_push(&t->arena, &g->input) = x;
    struct quantised q = random_parameters(t, exact);
    value_id skip = x;
    for (i64 i = 0, n = rng_range(r, 2, 4); i < n; i++) {
        value_id y = convolved(t, x, &q, exact);
        switch (rng_range(r, 0, 4)) {
        case 0: y = largest(t, rounded(t, y, &q, exact)); break;
        case 1: y = graph_op(g, "Concat", S("both"), 2, (value_id[]){rounded(t, y, &q, exact), y}), attr_set_int(g, graph_value(g, y)->producer, "axis", 2); break;
        case 2: y = graph_op(g, "Transpose", S("turned"), 1, (value_id[]){rounded(t, y, &q, exact)}); attr_set_ints(g, graph_value(g, y)->producer, "perm", (i64[]){0, 1, 3, 2}, 4); break;
        default: break;
        }
        if (rng_range(r, 0, 1)) y = graph_op(g, "Add", S("sum"), 2, (value_id[]){rounded(t, y, &q, exact), y});
        x = rounded(t, y, &q, exact), skip = y;
    }
    if (rng_range(r, 0, 1)) *arr_push(&t->arena, &g->output) = quantised(t, x, &q);
    *arr_push(&t->arena, &g->output) = rng_range(r, 0, 1) ? x : skip;
}

/* Layers of bytes, for devices that multiply bytes or i16: exactly the same results where scales are powers of two, within a step otherwise. */
static void test_quantised(void **state)
{
    static const u32 flags[] = {PASS_INTEGER, PASS_INTEGER | PASS_WORDS, PASS_INTEGER | PASS_FIXED};
    u32 n_small = 0;
    for (u64 seed = 8000; seed < 8300; seed++) {
        struct net t = {.rng = rng_seed(seed)};
        symtab_init(&t.sym, &t.arena);
        graph_init(&t.g, &t.arena, &t.sym);
        random_layers(&t, true);
        if (!op_infer_all(&t.g, &t.e)) fail_msg("seed %d: %s", (int)seed, t.e.msg);
        for (u32 i = 0; i < countof(flags); i++) {
            struct graph g;
            graph_clone(&g, &t.g, &t.arena);
            if (!pass_run_all(&g, &(struct pass_env){.flags = flags[i]}, &t.e)) fail_msg("seed %d: %s", (int)seed, t.e.msg);
            for (node_id n = 1; n < g.node.n; n++) {
                if (!(op_of(&g, n)->props & OP_CONV)) continue;
                enum dtype type = graph_value(&g, graph_node(&g, n)->in.v[0])->dtype;
                assert_true(type != DT_I32);
                n_small += i == 1 && !op_acc16(graph_node(&g, n)) ? type == DT_I16 : type == DT_U8;
            }
            if (!same_meaning(&t, &g, (i64[]){6}, 0)) fail_msg("seed %d, form %d: another meaning", (int)seed, (int)i);
        }
        net_close(&t);
    }
    assert_true(n_small > 800);
}

/* Weights of n terms for each of two outputs, by `most`; of a Conv they have two taps. */
static struct tensor *random_weights(struct net *t, bool conv, i64 terms, i64 most)
{
    struct tensor *w = conv ? tensor_new(&t->arena, DT_I8, 3, (i64[]){2, terms, 2}) : tensor_new(&t->arena, DT_I8, 2, (i64[]){terms, 2});
    for (i64 i = 0; i < tensor_count(w); i++) elem_set_i64(DT_I8, w->data, i, rng_range(&t->rng, -most, most));
    return w;
}

/* Do sums of so many products fit i16, whatever bytes up to `high` are multiplied? By the definition of op_acc16. */
static bool sums_fit(const struct tensor *w, bool conv, i64 terms, i64 n, i64 high)
{
    for (i64 c = 0; c < (conv ? 4 : 2); c++)
        for (i64 at = 0; at < terms; at++) {
            i64 up = 0, down = 0;
            for (i64 k = at / (2 * n) * 2 * n; k < i64_min(terms, (at / (2 * n) + 1) * 2 * n); k++) {
                i64 x = k % 4 / 2 == at % 4 / 2 ? elem_i64(DT_I8, w->data, conv ? (c / 2 * terms + k) * 2 + c % 2 : k * 2 + c) : 0;
                up += x > 0 ? x * high : 0, down += x < 0 ? x * high : 0;
            }
            if (up > INT16_MAX || down < INT16_MIN) return false;
        }
    return true;
}

/* Products of bytes by constant weights remain such for devices that sum them in i16 exactly where no sum can overflow, by the weights and the largest
   value of the bytes. */
static void test_acc16(void **state)
{
    u32 n_found[9] = {0};
    for (u64 seed = 9000; seed < 9400; seed++) {
        struct net t = {.rng = rng_seed(seed)};
        struct graph g;
        symtab_init(&t.sym, &t.arena);
        graph_init(&t.g, &t.arena, &t.sym);
        struct rng *r = &t.rng;
        bool conv = rng_range(r, 0, 1), clipped = rng_range(r, 0, 1);
        i64 terms = rng_range(r, 2, 40), high = clipped ? rng_range(r, 0, 1) ? 127 : rng_range(r, 1, 254) : 255, n = 8, found = 0;
        struct tensor *w = random_weights(&t, conv, terms, (i64[]){9, 16, 32, 64, 127}[rng_range(r, 0, 4)]);
        sym dim[3] = {sym_const(&t.sym, conv ? 1 : 5), sym_const(&t.sym, terms), sym_const(&t.sym, 6)};
        value_id x = net_input(&t, "x", conv ? 3 : 2, dim), in[2] = {x, graph_add_const(&t.g, S("w"), w)};
        graph_value(&t.g, x)->dtype = DT_U8;
        if (clipped) in[0] = graph_op(&t.g, "Clip", S("clip"), 3, (value_id[]){x, 0, op_const_f(&t.g, DT_U8, (double)high)});
        if (clipped && rng_range(r, 0, 1)) { /* the lower bound of a second Clip may exceed all that the first one leaves */
            i64 least = rng_range(r, 0, 255), most = rng_range(r, least, 255);
            high = i64_min(i64_max(high, least), most);
            in[0] = graph_op(&t.g, "Clip", S("clip2"), 3, (value_id[]){in[0], op_const_f(&t.g, DT_U8, (double)least), op_const_f(&t.g, DT_U8, (double)most)});
        }
        *arr_push(&t.arena, &t.g.output) = graph_op(&t.g, conv ? "ConvInteger" : "MatMulInteger", S("product"), 2, in);
        if (!op_infer_all(&t.g, &t.e)) fail_msg("seed %d: %s", (int)seed, t.e.msg);
        graph_clone(&g, &t.g, &t.arena);
        if (!pass_run_all(&g, &(struct pass_env){.flags = PASS_INTEGER | PASS_WORDS}, &t.e)) fail_msg("seed %d: %s", (int)seed, t.e.msg);
        for (; n > 1 && !sums_fit(w, conv, terms, n, high); n /= 2) {}
        for (node_id k = 1; k < g.node.n; k++) {
            if (graph_node(&g, k)->dead || !(op_of(&g, k)->props & (OP_CONV | OP_MATMUL))) continue;
            found = op_acc16(graph_node(&g, k));
            assert_true(graph_value(&g, graph_node(&g, k)->in.v[0])->dtype == (found ? DT_U8 : DT_I16));
        }
        if (found != (n > 1 ? n : 0)) fail_msg("seed %d: sums of %d fit, found %d", (int)seed, (int)n, (int)found);
        n_found[found]++;
        if (!same_meaning(&t, &g, (i64[]){6}, 0)) fail_msg("seed %d: another meaning", (int)seed);
        net_close(&t);
    }
    assert_true(n_found[0] > 20 && n_found[2] > 20 && n_found[4] > 20 && n_found[8] > 20);
}

/* Updates written to slices of data. */
struct slices { bool is_nd, is_const, is_block; u32 rank, axis, n_axes; i64 dim[4], size, count; sym n_updates; };

static struct slices pick_slices(struct net *t)
{
    struct slices s = {.is_nd = net_pick(t, 0, 1), .is_const = !net_pick(t, 0, 2), .rank = (u32)net_pick(t, 1, 4), .size = 1, .count = net_pick(t, 0, 4)};
    for (u32 a = 0; a < s.rank; a++) s.dim[a] = net_pick(t, 1, 7);
    s.axis = s.is_nd ? 0 : (u32)net_pick(t, 0, s.rank - 1);
    s.n_axes = s.is_nd ? (u32)net_pick(t, 1, s.rank) : 1;
    for (u32 a = 0; a < s.rank; a++) s.size *= a < s.axis || a >= s.axis + s.n_axes ? s.dim[a] : 1;
    if (s.is_const) s.count = i64_max(1, i64_min(s.count, s.dim[s.axis]));
    s.n_updates = s.is_const || net_pick(t, 0, 1) ? sym_const(&t->sym, s.count) : sym_var(&t->sym, S("K"));
    s.is_block = s.n_updates == sym_const(&t->sym, 0);
    return s;
}

/* (count, n_axes): consecutive ones now and then, from the end or not. */
static value_id constant_indices(struct net *t, struct slices *s)
{
    const i64 dim[2] = {s->count, s->n_axes}, size = s->dim[s->axis], first = net_pick(t, 0, size - s->count) - (net_pick(t, 0, 1) ? size : 0);
    const bool is_block = net_pick(t, 0, 1);
    struct tensor *x = tensor_new(&t->arena, DT_I64, 2, dim);
    s->is_block = s->n_axes == 1;
    for (i64 i = 0; i < tensor_count(x); i++) {
        const i64 d = s->dim[s->axis + (u32)(i % s->n_axes)], at = is_block && s->n_axes == 1 ? first + i : net_pick(t, -d, d - 1);
        elem_set_i64(DT_I64, x->data, i, at);
        s->is_block &= at == elem_i64(DT_I64, x->data, 0) + i;
    }
    const i64 begin = elem_i64(DT_I64, x->data, 0);
    s->is_block &= begin >= 0 ? begin + s->count <= size : begin + s->count <= 0;
    return graph_add_const(&t->g, S("at"), x);
}

/* Of data: from the end, outside of the axis, some of them equal. */
static value_id data_indices(struct net *t, const struct slices *s)
{
    const sym dim[2] = {s->n_updates, sym_const(&t->sym, s->n_axes)};
    value_id x = op_node_binf(&t->g, 0, "Mul", net_input(t, "at", 2, dim), DT_F32, 9, 0);
    return op_node_cast(&t->g, 0, x, net_pick(t, 0, 1) ? DT_I64 : DT_I32, 0);
}

static void add_scatter(struct net *t, struct slices *s, bool is_add)
{
    static const enum dtype types[] = {DT_F32, DT_F16, DT_I64, DT_U8};
    const enum dtype type = types[net_pick(t, 0, 3)];
    sym dim[4], updates[8], repeated[4];
    u32 n = 0;
    for (u32 a = 0; a < s->rank; a++) dim[a] = sym_const(&t->sym, s->dim[a]), repeated[a] = sym_const(&t->sym, 1);
    for (u32 a = 0; a < s->axis; a++) updates[n++] = dim[a];
    updates[n++] = repeated[s->axis] = s->n_updates;
    for (u32 a = s->axis + s->n_axes; a < s->rank; a++) updates[n++] = dim[a];
    value_id in[3] = {net_input(t, "x", s->rank, dim), s->is_const ? constant_indices(t, s) : data_indices(t, s), net_input(t, "u", n, updates)};
    graph_value(&t->g, in[0])->dtype = graph_value(&t->g, in[2])->dtype = type;
    if (!s->is_nd) in[1] = op_node_expand(&t->g, 0, op_node_reshape(&t->g, 0, in[1], s->rank, repeated, 0), s->rank, updates, 0);
    value_id v = graph_op(&t->g, s->is_nd ? "ScatterND" : "ScatterElements", S("scatter"), 3, in);
    attr_set_str(&t->g, op_made(&t->g, v), "reduction", is_add ? S("add") : S("none"));
    if (!s->is_nd) attr_set_int(&t->g, op_made(&t->g, v), "axis", s->axis);
    *arr_push(&t->arena, &t->g.output) = v;
}

/* Slices of some elements, and consecutive ones, are written by views, whatever the indices; other writes remain. */
static void test_scatter(void **state)
{
    u32 n_found[2] = {0};
    for (u64 seed = 9500; seed < 10100; seed++) {
        struct net t = {.rng = rng_seed(seed)};
        struct graph g;
        symtab_init(&t.sym, &t.arena);
        graph_init(&t.g, &t.arena, &t.sym);
        struct slices s = pick_slices(&t);
        bool is_add = !net_pick(&t, 0, 4), is_left = false;
        add_scatter(&t, &s, is_add);
        if (!op_infer_all(&t.g, &t.e)) fail_msg("seed %d: %s", (int)seed, t.e.msg);
        graph_clone(&g, &t.g, &t.arena);
        if (!pass_run_all(&g, NULL, &t.e)) fail_msg("seed %d: %s", (int)seed, t.e.msg);
        for (node_id k = 1; k < g.node.n; k++)
            is_left |= !graph_node(&g, k)->dead && (str_is(graph_node(&g, k)->op, "ScatterND") || str_is(graph_node(&g, k)->op, "ScatterElements"));
        if (is_left != (is_add || (s.size < 16 && !s.is_block))) fail_msg("seed %d: the node %s", (int)seed, is_left ? "is left" : "is gone");
        n_found[is_left]++;
        if (!same_meaning(&t, &g, &s.count, 0)) fail_msg("seed %d: another meaning", (int)seed);
        net_close(&t);
    }
    assert_true(n_found[0] > 150 && n_found[1] > 150);
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

/* A table gathered from constants is folded, a number spread to as many elements is not. */
static void test_fold_tables(void **state)
{
    static const char *const from[] = {"Gather(%table, %at) {axis=1}", "quern::Expand(%one) {shape=strs[\"4\",\"256\",\"256\"]}"};
    for (i64 i = 0; i < countof(from); i++) {
        struct arena a = {0};
        struct symtab symbols;
        struct graph g;
        struct buf b = {0};
        struct err e = {0};
        symtab_init(&symbols, &a);
        buf_printf(&b, "graph {\n  input %%x: f32[4,256,256]\n  const %%one: f32[1] = [1.0]\n  const %%zero: i64[] = [0]\n  const %%n: i64[] = [65536]\n"
                       "  const %%by: i64[] = [1]\n  %%all: i64[65536] = Range(%%zero, %%n, %%by)\n"
                       "  %%t: i64[1,65536] = quern::Reshape(%%all) {shape=strs[\"1\",\"65536\"]}\n  %%u: i64[4,65536] = Concat(%%t, %%t, %%t, %%t) {axis=0}\n"
                       "  %%table: f32[4,65536] = Cast(%%u) {to=1}\n  %%at: i64[256,256] = quern::Reshape(%%all) {shape=strs[\"256\",\"256\"]}\n"
                       "  %%v: f32[4,256,256] = %s\n  %%y: f32[4,256,256] = Add(%%x, %%v)\n  output %%y\n}\n", from[i]);
        if (!graph_parse(&g, &a, &symbols, buf_view(&b), &e) || !op_infer_all(&g, &e) || !pass_run_all(&g, &(struct pass_env){0}, &e)) fail_msg("%s", e.msg);
        u32 n = 0;
        for (node_id k = 1; k < g.node.n; k++) n += !graph_node(&g, k)->dead;
        assert_int_equal(n, i == 0 ? 1 : 2);
        buf_release(&b);
        arena_release(&a);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_golden), cmocka_unit_test(test_random), cmocka_unit_test(test_narrow), cmocka_unit_test(test_compact),
        cmocka_unit_test(test_compact_source), cmocka_unit_test(test_results),
        cmocka_unit_test(test_integer), cmocka_unit_test(test_quantised), cmocka_unit_test(test_acc16), cmocka_unit_test(test_scatter), cmocka_unit_test(test_order),
        cmocka_unit_test(test_fold_tables),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
