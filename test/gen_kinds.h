// SPDX-License-Identifier: Apache-2.0
//
// Random tasks of single families, for tests of kernel families: chains of convolutions, attention, filters
// with weights per pixel and gradients of such weights (gather, scatter, normalised, softmax),
// matmuls and convolutions of bytes and of bf16, large matmuls.
#ifndef QUERN_TEST_GEN_KINDS_H
#define QUERN_TEST_GEN_KINDS_H

#include "gen/attention.h"
#include "gen_tasks.h"

#include <float.h>

/* Chains. */

enum { DENSE = 1 }; /* groups of a convolution that is not depthwise */

struct layer { i64 oc, kernel, stride, pad, dil; bool depthwise; };

static inline value_id add_conv(struct fixture *b, value_id x, const struct layer *l)
{
    if (graph_value(&b->g, x)->producer && !infer_last(b, x)) return 0;
    i64 ic;
    sym_is_const(&b->sym, graph_value(&b->g, x)->shape.dim[1], &ic);
    i64 oc = l->depthwise ? ic : l->oc, groups = l->depthwise ? ic : DENSE;
    i64 w[4] = {oc, ic / groups, l->kernel, l->kernel}, pads[4], two[2] = {l->stride, l->stride}, dil[2] = {l->dil, l->dil};
    for (u32 i = 0; i < 4; i++) pads[i] = l->pad ? pick(b, 0, l->pad) : 0;
    value_id y = add_weighted(b, "Conv", x, 4, w, pick(b, 0, 1) ? w : NULL);
    node_id n = graph_value(&b->g, y)->producer;
    attr_set_int(&b->g, n, "group", groups);
    attr_set_ints(&b->g, n, "strides", two, 2);
    attr_set_ints(&b->g, n, "dilations", dil, 2);
    attr_set_ints(&b->g, n, "pads", pads, 4);
    return y;
}

/* Operators between two convolutions. */
static inline value_id random_middle(struct fixture *b, value_id y)
{
    i64 c;
    if (!infer_last(b, y)) return y;
    sym_is_const(&b->sym, graph_value(&b->g, y)->shape.dim[1], &c);
    if (pick(b, 0, 1)) y = add_op(b, "Relu", y, 0, 0);
    if (pick(b, 0, 3) == 0) y = add_op(b, "Mul", y, add_const(b, "scale", 4, (i64[]){1, c, 1, 1}), 0);
    if (pick(b, 0, 3) == 0) y = add_op(b, "Mul", y, add_op(b, "Sigmoid", y, 0, 0), 0);
    return y;
}

static inline struct layer random_layer(struct fixture *b, bool depthwise, bool first)
{
    static const i64 channels[] = {1, 3, 5, 8, 16, 17, 33, 40};
    bool point = !depthwise && pick(b, 0, 1);
    struct layer l = {.oc = channels[pick(b, 0, countof(channels) - 1)], .kernel = point ? 1 : pick(b, 2, 3), .dil = 1, .depthwise = depthwise};
    l.pad = point ? 0 : pick(b, 0, 2);
    l.stride = point && first ? 1 : pick(b, 1, 2);
    if (pick(b, 0, 5) == 0) l.dil = 2;
    return l;
}

/* dense -> dense, depthwise -> dense, dense -> depthwise, dense -> depthwise -> dense */
static inline bool random_chain(struct fixture *b)
{
    static const struct { u32 n; i32 dw; } kind[] = {{2, -1}, {2, 0}, {2, 1}, {3, 1}};
    i64 which = pick(b, 0, countof(kind) - 1), symbolic = pick(b, 0, 1);
    sym dim[MAX_RANK] = {size_of(b, pick(b, 1, 2), false), sym_const(&b->sym, pick(b, 2, 40)), size_of(b, pick(b, 7, 20), symbolic),
                  size_of(b, pick(b, 7, 30), symbolic)};
    value_id x = add_input(b, "x", 4, dim);
    x = pick(b, 0, 2) == 0 ? random_prologue(b, x, 4, dim) : x;
    for (u32 i = 0; i < kind[which].n; i++) {
        struct layer l = random_layer(b, (i32)i == kind[which].dw, i == 0);
        x = add_conv(b, x, &l);
        if (!x) return false;
        if (i + 1 < kind[which].n) x = random_middle(b, x);
    }
    x = random_epilogue(b, x);
    *arr_push(&b->arena, &b->g.output) = x;
    return make_task(b);
}

/* Attention. */

struct attention_sizes { sym b, h, sq, n; i64 each, d, e; }; /* h heads of keys, each shared by `each` heads of queries */

static inline value_id with_perm(struct fixture *b, value_id v, const i64 *perm)
{
    v = add_op(b, "Transpose", v, 0, 0);
    attr_set_ints(&b->g, graph_value(&b->g, v)->producer, "perm", perm, 4);
    return v;
}

static inline value_id regroup(struct fixture *b, value_id v, const struct attention_sizes *z, sym last, bool back)
{
    sym each = sym_const(&b->sym, z->each), dim[4] = {z->b, back ? sym_mul(&b->sym, z->h, each) : z->h, back ? z->sq : sym_mul(&b->sym, z->sq, each), last};
    if (z->each == 1) return v;
    v = add_op(b, "quern::Reshape", v, 0, 0);
    op_set_syms(&b->g, graph_value(&b->g, v)->producer, "shape", dim, 4);
    return v;
}

/* Keys (b, h, d, n) or values (b, h, n, e), as views of how they lie in memory; or constants. */
static inline value_id random_keys(struct fixture *b, const char *name, const struct attention_sizes *z, sym rows, sym columns)
{
    i64 n[4];
    const sym heads[4] = {z->b, z->h, rows, columns};
    bool is_static = true;
    for (u32 i = 0; i < 4; i++) is_static &= sym_is_const(&b->sym, heads[i], &n[i]);
    if (is_static && pick(b, 0, 5) == 0) return add_const(b, name, 4, n);
    switch (pick(b, 0, 3)) {
    case 0: return add_input(b, name, 4, heads);
    case 1: return with_perm(b, add_input(b, name, 4, (const sym[]){z->b, z->h, columns, rows}), (const i64[]){0, 1, 3, 2});
    case 2: return with_perm(b, add_input(b, name, 4, (const sym[]){z->b, rows, z->h, columns}), (const i64[]){0, 2, 1, 3});
    default: return with_perm(b, add_input(b, name, 4, (const sym[]){z->b, columns, z->h, rows}), (const i64[]){0, 2, 3, 1});
    }
}

static inline value_id add_mask(struct fixture *b, const struct attention_sizes *z, enum dtype t)
{
    sym one = sym_const(&b->sym, 1), dim[4] = {z->b, sym_mul(&b->sym, z->h, sym_const(&b->sym, z->each)), z->sq, z->n};
    for (u32 i = 0; i < 4; i++)
        if (pick(b, 0, i + 1 == 4 ? 4 : 1) == 0) dim[i] = one;
    u32 skip = (u32)pick(b, 0, 3);
    value_id v = add_input(b, "mask", 4 - skip, dim + skip);
    graph_value(&b->g, v)->dtype = t;
    return v;
}

static inline value_id add_band(struct fixture *b, const struct attention_sizes *z)
{
    sym offset = pick(b, 0, 1) ? sym_sub(&b->sym, z->n, z->sq) : sym_const(&b->sym, pick(b, -2, 3));
    i64 left = pick(b, -1, 5), right = pick(b, -1, 3);
    value_id v = graph_op(&b->g, "quern::Band", S("band"), 0, NULL);
    node_id n = graph_value(&b->g, v)->producer;
    op_set_syms(&b->g, n, "size", (const sym[]){z->sq, z->n}, 2);
    op_set_syms(&b->g, n, "offset", &offset, 1);
    attr_set_int(&b->g, n, "left", left);
    attr_set_int(&b->g, n, "right", right);
    return v;
}

/* What exporters add to scores: 0, or the lowest number (or -infinity) outside of a band, and of a mask. */
static inline value_id add_exported(struct fixture *b, value_id x, const struct attention_sizes *z)
{
    value_id open = add_band(b, z), lowest = op_const_f(&b->g, b->type, pick(b, 0, 2) ? -FLT_MAX : -INFINITY), zero = op_const_f(&b->g, b->type, 0);
    if (pick(b, 0, 1)) open = add_op(b, "And", open, add_mask(b, z, DT_BOOL), 0);
    bool is_swapped = pick(b, 0, 3) == 0;
    if (is_swapped) open = add_op(b, "Not", open, 0, 0);
    return add_op(b, "Add", x, is_swapped ? add_op(b, "Where", open, lowest, zero) : add_op(b, "Where", open, zero, lowest), 0);
}

/* Scale, softcap, masks: some leave no key to a row. may_be_large: exponentials overflow. */
static inline value_id random_scores(struct fixture *b, value_id x, const struct attention_sizes *z, bool may_be_large)
{
    value_id none = op_const_f(&b->g, b->type, -INFINITY);
    value_id two = op_const_f(&b->g, b->type, 2);
    if (pick(b, 0, 1)) x = add_op(b, "Mul", x, op_const_f(&b->g, b->type, 0.25), 0);
    if (may_be_large && pick(b, 0, 4) == 0 && b->type == DT_F32) x = add_op(b, "Add", x, op_const_f(&b->g, b->type, 100), 0);
    if (pick(b, 0, 4) == 0) x = add_op(b, "Mul", add_op(b, "Tanh", x, 0, 0), two, 0);
    if (pick(b, 0, 2) == 0) x = add_op(b, "Add", x, add_mask(b, z, b->type), 0);
    if (pick(b, 0, 3) == 0) x = add_op(b, "Where", add_mask(b, z, DT_BOOL), x, none);
    const i64 by_position = pick(b, 0, 3);
    if (by_position == 0) x = add_op(b, "Where", add_band(b, z), x, none);
    return by_position == 1 ? add_exported(b, x, z) : x;
}

static inline value_id reduced(struct fixture *b, const char *op, value_id x)
{
    value_id y = add_op(b, op, x, op_const_i(&b->g, DT_I64, (const i64[]){-1}, 1), 0);
    attr_set_int(&b->g, graph_value(&b->g, y)->producer, "keepdims", 1);
    return y;
}

/* Softmax as a quotient, with and without sinks: a term of each head's sums that no value belongs to. */
static inline value_id quotient(struct fixture *b, value_id x, const struct attention_sizes *z)
{
    sym one = sym_const(&b->sym, 1), heads = sym_mul(&b->sym, z->h, sym_const(&b->sym, z->each));
    value_id most = reduced(b, "ReduceMax", x), e = add_op(b, "Exp", add_op(b, "Sub", x, most, 0), 0, 0), sum = reduced(b, "ReduceSum", e);
    if (pick(b, 0, 2)) return add_op(b, "Div", e, sum, 0);
    value_id sink = add_input(b, "sink", 3, (const sym[]){heads, one, one});
    sum = add_op(b, "Add", sum, add_op(b, "Exp", add_op(b, "Sub", sink, most, 0), 0, 0), 0);
    return add_op(b, "Mul", e, add_op(b, "Reciprocal", sum, 0, 0), 0);
}

/* Softmax in several spellings, and another function that sums rows. */
static inline value_id random_softmax(struct fixture *b, value_id x, const struct attention_sizes *z)
{
    value_id e, one = op_const_f(&b->g, b->type, 1);
    switch (pick(b, 0, 4)) {
    case 0:
        return quotient(b, x, z);
    case 1:
        e = add_op(b, "Sigmoid", x, 0, 0);
        return add_op(b, "Div", e, add_op(b, "Add", reduced(b, "ReduceSum", e), one, 0), 0);
    case 2:
        e = add_op(b, "Relu", x, 0, 0);
        return add_op(b, "Mul", e, add_op(b, "Reciprocal", add_op(b, "Add", reduced(b, "ReduceMax", e), one, 0), 0, 0), 0);
    default:
        e = add_op(b, "Softmax", x, 0, 0);
        attr_set_int(&b->g, graph_value(&b->g, e)->producer, "axis", -1);
        return e;
    }
}

static inline value_id multiplied(struct fixture *b, value_id x, value_id y)
{
    value_id z = add_op(b, "MatMul", x, y, 0);
    if (b->tf32) attr_set_int(&b->g, graph_value(&b->g, z)->producer, "tf32", 1);
    return z;
}

/* may_be_large: scores of which exponentials overflow; else exponentials of them are small, less whatever. */
static inline bool random_attention_of(struct fixture *b, bool may_be_large)
{
    static const i64 head[] = {1, 3, 4, 8, 16, 19, 32, 40}, keys[] = {1, 2, 5, 16, 17, 31, 48, 70, 129, 300};
    struct symtab *t = &b->sym;
    struct attention_sizes z = {.each = pick(b, 0, 2) ? 1 : pick(b, 2, 3)};
    z.b = draw_size(b, 1, 2, 4);
    z.h = sym_const(t, pick(b, 1, 3));
    z.d = head[pick(b, 0, 7)];
    z.e = head[pick(b, 0, 7)];
    z.sq = pick(b, 0, 2) ? draw_size(b, 1, 23, 3) : sym_const(t, 1);
    bool symbolic = pick(b, 0, 2) == 0;
    z.n = size_of(b, keys[pick(b, 0, 9)], symbolic);
    sym d = sym_const(t, z.d), e = sym_const(t, z.e), hq = sym_mul(t, z.h, sym_const(t, z.each));
    value_id q = pick(b, 0, 1) ? add_input(b, "q", 4, (const sym[]){z.b, hq, z.sq, d})
                               : with_perm(b, add_input(b, "q", 4, (const sym[]){z.b, z.sq, hq, d}), (const i64[]){0, 2, 1, 3});
    if (pick(b, 0, 1) || !may_be_large) q = add_op(b, "Mul", q, op_const_f(&b->g, b->type, may_be_large ? 0.5 : 1.0 / 128), 0);
    q = regroup(b, q, &z, d, false);
    value_id x = multiplied(b, q, random_keys(b, "k", &z, d, z.n)), zero = op_const_f(&b->g, b->type, 0);
    x = random_scores(b, regroup(b, x, &z, z.n, true), &z, may_be_large);
    x = random_softmax(b, x, &z);
    if (pick(b, 0, 3) == 0) x = add_op(b, "Where", add_mask(b, &z, DT_BOOL), zero, x);
    if (pick(b, 0, 3) == 0) x = add_op(b, "Where", add_op(b, "IsNaN", x, 0, 0), zero, x); /* as PyTorch writes it */
    x = regroup(b, x, &z, z.n, false);
    x = multiplied(b, x, random_keys(b, "v", &z, z.n, e));
    if (!infer_nodes(b)) return false;
    *arr_push(&b->arena, &b->g.output) = pick(b, 0, 2) ? x : behind(b, x);
    return make_task(b);
}

static inline bool random_attention(struct fixture *b) { return random_attention_of(b, true); }

/* Attention in parts, as the last results of a random one: statistics of rows without an output; an output from given statistics; sums of the probabilities'
   columns from given statistics, beside the statistics, or beside the output. */
enum attention_part { PART_STATISTICS, PART_OUTPUT, PART_COLUMNS, PART_STATISTICS_COLUMNS, PART_OUTPUT_COLUMNS, N_PARTS };

/* What rows are reduced to becomes an input; its number. */
static inline u32 give_statistics(struct fixture *b)
{
    u32 n = 0, n_all = 0;
    for (node_id i = 1; i < b->g.node.n; i++) n_all += !graph_node(&b->g, i)->dead && (op_of(&b->g, i)->props & OP_REDUCE);
    for (node_id i = 1, end = b->g.node.n; i < end; i++) {
        if (graph_node(&b->g, i)->dead || !(op_of(&b->g, i)->props & OP_REDUCE)) continue;
        value_id out = graph_node(&b->g, i)->out.v[0];
        const struct shape s = graph_value(&b->g, out)->shape;
        value_id given = add_input(b, n ? "sum" : "most", s.rank, s.dim);
        graph_value(&b->g, given)->dtype = graph_value(&b->g, out)->dtype;
        bool is_divisor = ++n == n_all;
        if (!is_divisor && pick(b, 0, 2) == 0) { /* rows without a greatest score: masked scores, too, count for them */
            value_id is_some = add_input(b, "some", s.rank, s.dim);
            graph_value(&b->g, is_some)->dtype = DT_BOOL;
            given = add_op(b, "Where", is_some, given, op_const_f(&b->g, b->type, -INFINITY));
        }
        graph_replace(&b->g, out, is_divisor ? add_op(b, "Exp", given, 0, 0) : given);
    }
    return n;
}

/* Sums of what a value's rows have in each column, with what may be behind them. */
static inline value_id add_columns(struct fixture *b, value_id p)
{
    value_id sums = add_op(b, "ReduceSum", p, op_const_i(&b->g, DT_I64, (const i64[]){-2}, 1), 0);
    attr_set_int(&b->g, graph_value(&b->g, sums)->producer, "keepdims", pick(b, 0, 1));
    return pick(b, 0, 2) ? sums : add_op(b, "Sqrt", sums, 0, 0);
}

/* Of a random attention whose graph is expanded; false: it has no such part. */
static inline bool take_part(struct fixture *b, enum attention_part part)
{
    struct graph *g = &b->g;
    node_id second = 0;
    for (node_id i = 1; i < g->node.n; i++)
        if (!graph_node(g, i)->dead && str_is(graph_node(g, i)->op, "MatMul")) second = i;
    value_id y = g->output.v[0], p = second ? graph_node(g, second)->in.v[0] : 0, statistics[2];
    u32 n = 0;
    if (!p) return false;
    if (str_is(graph_node(g, graph_value(g, p)->producer)->op, "quern::Reshape") && pick(b, 0, 5)) p = graph_node(g, graph_value(g, p)->producer)->in.v[0];
    bool has_columns = part >= PART_COLUMNS, is_given = part == PART_OUTPUT || part == PART_COLUMNS;
    for (node_id i = 1; i < g->node.n && !is_given; i++)
        if (!graph_node(g, i)->dead && (op_of(g, i)->props & OP_REDUCE) && n < 2) statistics[n++] = graph_node(g, i)->out.v[0];
    if (is_given && !give_statistics(b)) return false;
    g->output.n = 0;
    if (part == PART_OUTPUT || part == PART_OUTPUT_COLUMNS) *arr_push(&b->arena, &g->output) = y;
    if (part == PART_STATISTICS || part == PART_STATISTICS_COLUMNS)
        for (u32 i = 0; i < n; i++) *arr_push(&b->arena, &g->output) = i && pick(b, 0, 2) == 0 ? add_op(b, "Log", statistics[i], 0, 0) : statistics[i];
    if (has_columns) *arr_push(&b->arena, &g->output) = add_columns(b, p);
    return g->output.n && graph_sort(g, &b->e) && make_task(b);
}

/* Causal attention of a head whose rows a regrouping cuts into two pieces, with keys of their own: the band is that of the whole head. */
static inline void try_cut_heads(struct fixture *b, u64 seed)
{
    static const char text[] = "graph {\n  input %q: f32[1,2,70,16]\n  input %k: f32[1,4,16,70]\n  input %v: f32[1,4,70,8]\n"
                               "  %b: bool[70,70] = quern::Band() {left=-1, offset=strs[\"0\"], right=0, size=strs[\"70\",\"70\"]}\n  const %i: f32[] = [-inf]\n"
                               "  %g: none[?] = quern::Reshape(%q) {shape=strs[\"1\",\"4\",\"35\",\"16\"]}\n  %s: none[?] = MatMul(%g, %k)\n"
                               "  %h: none[?] = quern::Reshape(%s) {shape=strs[\"1\",\"2\",\"70\",\"70\"]}\n  %w: none[?] = Where(%b, %h, %i)\n"
                               "  %m: none[?] = quern::ReduceMax(%w) {axes=[3], keepdims=1}\n  %d: none[?] = Sub(%w, %m)\n  %e: none[?] = Exp(%d)\n"
                               "  %l: none[?] = quern::ReduceSum(%e) {axes=[3], keepdims=1}\n  %f: none[?] = Div(%e, %l)\n"
                               "  %p: none[?] = quern::Reshape(%f) {shape=strs[\"1\",\"4\",\"35\",\"70\"]}\n  %y: none[?] = MatMul(%p, %v)\n  output %y\n}\n";
    if (!task_parse(&b->t, &b->arena, &b->sym, S(text), &b->e)) fail_msg("%s", b->e.msg);
    assert_true(try_task(b, seed, 12) >= 6);
}

/* What rows are reduced to is a result, too: as it is, or without its axis of size 1, or a function of it. */
static inline bool add_statistics(struct fixture *b)
{
    u32 n = 0;
    for (node_id i = b->g.node.n; --i;) {
        if (!(op_of(&b->g, i)->props & OP_REDUCE) || n == 2) continue;
        value_id v = graph_node(&b->g, i)->out.v[0];
        const struct shape s = graph_value(&b->g, v)->shape;
        if (pick(b, 0, 1)) v = add_op(b, "Log", v, 0, 0);
        if (pick(b, 0, 1)) {
            v = add_op(b, "quern::Reshape", v, 0, 0);
            op_set_syms(&b->g, graph_value(&b->g, v)->producer, "shape", s.dim, s.rank - 1);
        }
        *arr_push(&b->arena, &b->g.output) = v;
        n++;
    }
    b->others_in_rows = true;
    return n && infer_nodes(b) && make_task(b);
}

/* Inputs lie in larger arrays, in front of room of unknown size: keys and values in caches (pass/pass_state.c). The room is NaN. */
static inline bool place_in_room(struct fixture *b)
{
    struct task own = b->t;
    struct part *part = arena_array(&b->arena, struct part, own.g.value.n);
    enum layout *layout = arena_array(&b->arena, enum layout, own.g.value.n);
    sym room = size_of(b, pick(b, 1, 70), true);
    u32 n = 0;
    for (u32 i = 0; i < own.g.input.n; i++) {
        value_id v = own.g.input.v[i];
        const struct value *x = graph_value(&own.g, v);
        layout[v] = x->layout;
        if (x->is_const || x->sdata || x->shape.rank < 3 || x->layout != LAYOUT_ROWS || pick(b, 0, 4) == 0) continue;
        u32 axis = pick(b, 0, 1) ? x->shape.rank - 2 : (u32)pick(b, 1, x->shape.rank - 1);
        part[v] = (struct part){.whole = sym_add(&b->sym, x->shape.dim[axis], room), .from = sym_const(&b->sym, 0), .axis = axis};
        n++;
    }
    return n && task_with_parts(&b->t, &own, &b->arena, part, layout, &b->e);
}

/* A random attention's part; of every fourth seed with inputs in caches. */
static inline bool random_attention_part(struct fixture *b, u64 seed, enum attention_part part)
{
    bool ok = random_attention_of(b, part != PART_OUTPUT && part != PART_COLUMNS) && take_part(b, part);
    return ok && (seed % 4 != 1 || place_in_room(b));
}

/* Of a size that depends on a variable: 0, by a value of the variable. false: of none. */
static inline bool make_empty(struct fixture *b, sym size)
{
    for (u32 i = 0; i < b->sym.var.n; i++) {
        const i64 before = b->var[i];
        b->var[i] = 0;
        if (gen_eval(&b->t.g, size, b->var) == 0) return true;
        b->var[i] = before;
    }
    return false;
}

/* An attention, or a part of one, of sizes that are not known, with no keys or with no queries: each sum is 0. */
static inline bool random_empty_attention(struct fixture *b, u64 seed)
{
    const u64 part = seed / 10 % (N_PARTS + 1);
    struct attention x;
    bool ok = part < N_PARTS ? random_attention_part(b, seed, (enum attention_part)part) : random_attention(b);
    return ok && attention_of(&x, &b->t) && make_empty(b, seed % 2 ? x.scores.n : x.scores.m);
}

static inline const char *attention_part_name(enum attention_part part)
{
    static const char *const name[N_PARTS] = {"statistics", "output of given statistics", "columns of given statistics", "statistics and columns", "output and columns"};
    return name[part];
}

/* A number for each row of queries: an input, which scores are small against. */
static inline value_id row_numbers(struct fixture *b, const char *name, const struct attention_sizes *z)
{
    return add_input(b, name, 4, (const sym[]){z->b, sym_mul(&b->sym, z->h, sym_const(&b->sym, z->each)), z->sq, sym_const(&b->sym, 1)});
}

/* Keys (b, h, n, size) as they lie in memory, perhaps of a wider head in front. */
static inline value_id keys_in_rows(struct fixture *b, const char *name, const struct attention_sizes *z, i64 size)
{
    sym d = sym_const(&b->sym, size);
    if (pick(b, 0, 1)) return add_input(b, name, 4, (const sym[]){z->b, z->h, z->n, d});
    return with_perm(b, add_input(b, name, 4, (const sym[]){z->b, z->n, z->h, d}), (const i64[]){0, 2, 1, 3});
}

static inline value_id queries_in_rows(struct fixture *b, const char *name, const struct attention_sizes *z, i64 size)
{
    sym d = sym_const(&b->sym, size), heads = sym_mul(&b->sym, z->h, sym_const(&b->sym, z->each));
    if (pick(b, 0, 1)) return add_input(b, name, 4, (const sym[]){z->b, heads, z->sq, d});
    return with_perm(b, add_input(b, name, 4, (const sym[]){z->b, z->sq, heads, d}), (const i64[]){0, 2, 1, 3});
}

static inline value_id turned(struct fixture *b, value_id v) { return with_perm(b, v, (const i64[]){0, 1, 3, 2}); }

/* Probabilities of scores x, and the gradients dz by the scores, of slopes dp: of a softmax, or other functions. */
static inline value_id random_probabilities(struct fixture *b, value_id x, const struct attention_sizes *z)
{
    if (pick(b, 0, 4) == 0) return add_op(b, "Sigmoid", x, 0, 0);
    x = add_op(b, "Sub", x, row_numbers(b, "most", z), 0);
    if (pick(b, 0, 1)) x = add_op(b, "Sub", x, row_numbers(b, "sum", z), 0);
    return add_op(b, "Exp", x, 0, 0);
}

static inline bool random_attention_grad(struct fixture *b)
{
    static const i64 head[] = {1, 3, 4, 8, 16, 19, 32, 40}, keys[] = {2, 5, 16, 17, 31, 48, 70, 129, 150};
    struct symtab *t = &b->sym;
    struct attention_sizes z = {.each = pick(b, 0, 2) ? 1 : pick(b, 2, 3), .d = head[pick(b, 0, 7)], .e = head[pick(b, 0, 7)]};
    z.b = draw_size(b, 1, 2, 4);
    z.h = sym_const(t, pick(b, 1, 3));
    z.sq = draw_size(b, 2, 40, 3);
    bool symbolic = pick(b, 0, 2) == 0;
    z.n = size_of(b, keys[pick(b, 0, 8)], symbolic);
    sym d = sym_const(t, z.d), e = sym_const(t, z.e);
    value_id q = queries_in_rows(b, "q", &z, z.d), k = keys_in_rows(b, "k", &z, z.d), v = keys_in_rows(b, "v", &z, z.e), dy = queries_in_rows(b, "dy", &z, z.e);
    q = add_op(b, "Mul", q, op_const_f(&b->g, b->type, 1.0 / 128), 0); /* exponentials stay small */
    q = regroup(b, q, &z, d, false), dy = regroup(b, dy, &z, e, false);
    value_id x = regroup(b, add_op(b, "MatMul", q, turned(b, k), 0), &z, z.n, true);
    value_id p = random_probabilities(b, random_scores(b, x, &z, false), &z);
    value_id dp = regroup(b, add_op(b, "MatMul", dy, turned(b, v), 0), &z, z.n, true);
    value_id dz = add_op(b, "Mul", p, add_op(b, "Sub", dp, row_numbers(b, "d", &z), 0), 0);
    if (pick(b, 0, 3) == 0) dz = add_op(b, "Mul", dz, add_op(b, "Cos", x, 0, 0), 0);
    dz = regroup(b, dz, &z, z.n, false), p = regroup(b, p, &z, z.n, false);
    value_id out[3] = {add_op(b, "MatMul", dz, k, 0), add_op(b, "MatMul", turned(b, dz), q, 0), add_op(b, "MatMul", turned(b, p), dy, 0)};
    if (pick(b, 0, 1)) out[0] = add_op(b, "Mul", out[0], op_const_f(&b->g, b->type, 0.5), 0);
    if (pick(b, 0, 3) == 0) out[0] = with_perm(b, regroup(b, out[0], &z, d, true), (const i64[]){0, 2, 1, 3});
    if (pick(b, 0, 3) == 0) out[1] = add_op(b, "Abs", with_perm(b, out[1], (const i64[]){0, 2, 1, 3}), 0, 0);
    for (u32 i = 0; i < 3; i++) *arr_push(&b->arena, &b->g.output) = out[i];
    return infer_nodes(b) && make_task(b);
}

/* Filters. */

static inline value_id map_of(struct fixture *b, const char *name, i64 channels, const sym *size, sym batch)
{
    sym dim[4] = {batch, sym_const(&b->sym, channels), size[0], size[1]};
    return in_front(b, add_input(b, name, 4, dim), 4, dim);
}

/* v, or with pads, or cut off, at its rows and columns. */
static inline value_id within_pads(struct fixture *b, value_id v)
{
    static const char *const modes[] = {"reflect", "edge", "constant", "wrap"};
    struct symtab *t = &b->sym;
    sym before[4], after[4];
    if (pick(b, 0, 2)) return v;
    for (u32 i = 0; i < 4; i++) {
        before[i] = sym_const(t, i < 2 ? 0 : pick(b, -1, 5)), after[i] = sym_const(t, i < 2 ? 0 : pick(b, -1, 5));
        if (i >= 2 && gen_static(&b->g, graph_value(&b->g, v)->shape.dim[i], 1) < 3) before[i] = sym_const(t, 2);
    }
    value_id y = add_op(b, "quern::Pad", v, 0, 0);
    node_id n = graph_value(&b->g, y)->producer;
    attr_set_str(&b->g, n, "mode", str_of(modes[pick(b, 0, 3)]));
    op_set_syms(&b->g, n, "before", before, 4);
    op_set_syms(&b->g, n, "after", after, 4);
    return y;
}

static inline bool random_filter(struct fixture *b, bool grad)
{
    static const i64 channels[] = {1, 2, 3, 3, 4, 5, 8, 19, 40};
    struct symtab *t = &b->sym;
    i64 kernel[2], dilation[2], begin[2], c = channels[pick(b, 0, 8)];
    bool splat = !grad && pick(b, 0, 1), large = pick(b, 0, 5) == 0, normalize = !grad && pick(b, 0, 3) == 0;
    bool softmax = !grad && !splat && !normalize && pick(b, 0, 2) == 0;
    sym near[2], far[2], batch = draw_size(b, 1, 2, 4);
    for (u32 i = 0; i < 2; i++) {
        kernel[i] = large ? pick(b, 5, 11) : pick(b, 1, 5), dilation[i] = pick(b, 0, 3) ? 1 : 2;
        begin[i] = pick(b, 0, 3) ? (kernel[i] - 1) * dilation[i] / 2 : pick(b, 0, 4);
        bool symbolic = pick(b, 0, 2) == 0;
        near[i] = far[i] = size_of(b, pick(b, 0, 7) ? pick(b, 1, i ? 70 : 12) : 1, symbolic);
        if (pick(b, 0, 3) == 0) far[i] = sym_add(t, near[i], sym_const(t, pick(b, 0, 6)));
    }
    value_id side = map_of(b, "side", grad || splat ? c : kernel[0] * kernel[1], near, batch);
    value_id input = splat ? map_of(b, "w", kernel[0] * kernel[1], near, batch) : within_pads(b, map_of(b, "met", c, far, batch));
    value_id in[2] = {grad || splat ? side : input, grad || splat ? input : side};
    value_id y = add_op(b, grad ? "quern::FilterOuter" : "quern::Filter", in[0], in[1], 0);
    node_id n = graph_value(&b->g, y)->producer;
    attr_set_ints(&b->g, n, "kernel_shape", kernel, 2);
    attr_set_ints(&b->g, n, "dilations", dilation, 2);
    attr_set_ints(&b->g, n, "begins", begin, 2);
    if (splat) attr_set_int(&b->g, n, "splat", 1), op_set_syms(&b->g, n, "out", far, 2);
    if (softmax) attr_set_int(&b->g, n, "softmax", 1);
    if (normalize) attr_set_int(&b->g, n, "normalize", 1), attr_set_float(&b->g, n, "epsilon", 8 * (double)(kernel[0] * kernel[1]));
    if (!infer_nodes(b)) return false;
    *arr_push(&b->arena, &b->g.output) = behind(b, y);
    return make_task(b);
}

/* Sums by groups of neighbours. */

static inline value_id const_ints(struct fixture *b, const char *name, enum dtype t, u32 rank, const i64 *dim)
{
    struct tensor *x = tensor_new(&b->arena, t, rank, dim);
    i64 lo = t == DT_U8 ? 0 : t == DT_I8 ? -128 : t == DT_I16 ? -255 : -100000, hi = t == DT_U8 || t == DT_I16 ? 255 : t == DT_I8 ? 127 : 100000;
    for (i64 i = 0, n = tensor_count(x); i < n; i++) elem_set_i64(t, x->data, i, pick(b, 0, 9) ? pick(b, lo, hi) : lo);
    return graph_add_const(&b->g, str_of(name), x);
}

static inline value_id cast_to(struct fixture *b, enum dtype t, value_id v)
{
    value_id y = add_op(b, "Cast", v, 0, 0);
    attr_set_int(&b->g, graph_value(&b->g, y)->producer, "to", dtype_onnx(t));
    return y;
}

/* x, i8, as u8 of values 128 larger. */
static inline value_id shifted(struct fixture *b, value_id x)
{
    value_id shift = const_ints(b, "shift", DT_I32, 0, NULL);
    elem_set_i64(DT_I32, graph_value(&b->g, shift)->data->data, 0, 128);
    return cast_to(b, DT_U8, add_op(b, "Add", cast_to(b, DT_I32, x), shift, 0));
}

/* Sums as f32, times new constants. */
static inline value_id scaled(struct fixture *b, value_id y, u32 rank, const i64 *dim)
{
    value_id scale = add_const(b, "scale", rank, dim);
    return add_op(b, "Mul", cast_to(b, DT_F32, y), scale, 0);
}

/* Softmax or a normalisation of bytes that are dequantised, perhaps to bytes again. */
static inline bool random_quantised_row(struct fixture *b)
{
    static const i64 sizes[] = {1, 2, 3, 5, 7, 16, 17, 32, 40, 70};
    sym dim[MAX_RANK];
    u32 rank = (u32)pick(b, 1, 3);
    for (u32 i = 0; i < rank; i++) dim[i] = size_of(b, sizes[pick(b, 0, rank > 2 ? 5 : 9)], false);
    b->type = pick(b, 0, 1) ? DT_U8 : DT_I8;
    value_id x = add_input(b, "x", rank, dim);
    b->type = DT_F32;
    value_id y = norm(b, add_op(b, "Mul", cast_to(b, DT_F32, x), op_const_f(&b->g, DT_F32, 0.25), 0), rank, dim);
    if (pick(b, 0, 2)) {
        y = add_op(b, "Mul", y, op_const_f(&b->g, DT_F32, 37), 0);
        y = add_op(b, "quern::Min", add_op(b, "quern::Max", y, op_const_f(&b->g, DT_F32, 0), 0), op_const_f(&b->g, DT_F32, 255), 0);
        y = cast_to(b, DT_U8, add_op(b, "Round", y, 0, 0));
    }
    *arr_push(&b->arena, &b->g.output) = y;
    return make_task(b);
}

/* (k, n), as it is or transposed. */
static inline value_id right_input(struct fixture *b, enum dtype t, i64 k, i64 n)
{
    bool is_transposed = pick(b, 0, 1);
    sym dim[2] = {size_of(b, is_transposed ? n : k, false), size_of(b, is_transposed ? k : n, false)};
    b->type = t;
    value_id w = add_input(b, "right", 2, dim);
    if (!is_transposed) return w;
    w = add_op(b, "Transpose", w, 0, 0);
    attr_set_ints(&b->g, graph_value(&b->g, w)->producer, "perm", (i64[]){1, 0}, 2);
    return w;
}

/* Bytes x bytes, of any signs, operands from memory or computed, with the usual epilogue of
   quantised networks. */
static const enum dtype words[] = {DT_I16, DT_I16};

/* Weights (row, term, tap) whose sums with values of 255 are the largest that attribute acc16 allows: of one sign in each group of terms. */
static inline value_id largest_weights(struct fixture *b, u32 rank, const i64 *dim, bool is_matmul)
{
    struct tensor *t = tensor_new(&b->arena, DT_I8, rank, dim);
    const i64 terms = dim[is_matmul ? 0 : 1], inner = is_matmul ? dim[1] : i64_product(rank - 2, dim + 2), most = INT16_MAX / (UINT8_MAX * b->acc16);
    for (i64 i = 0; i < tensor_count(t); i++) {
        i64 term = i / inner % terms, sign = (term / (2 * b->acc16) + i / inner / terms + i % inner) % 2;
        elem_set_i64(DT_I8, t->data, i, sign ? -most : most);
    }
    return graph_add_const(&b->g, S("w"), t);
}

/* Of u8 from 1 to 9, u8 up to 255. */
static inline value_id spread_bytes(struct fixture *b, value_id x)
{
    struct tensor *c = tensor_new(&b->arena, DT_U8, 0, NULL);
    elem_set_i64(DT_U8, c->data, 0, 85);
    return add_op(b, "Mul", x, graph_add_const(&b->g, S("c"), c), 0);
}

static inline bool random_bytes(struct fixture *b)
{
    static const i64 sizes[] = {1, 2, 3, 4, 5, 7, 8, 15, 16, 17, 31, 33, 40, 64, 65};
    static const enum dtype types[][2] = {{DT_U8, DT_I8}, {DT_U8, DT_I8}, {DT_I8, DT_U8}, {DT_I8, DT_I8}};
    const enum dtype *t = types[pick(b, 0, countof(types) - 1)];
    if (b->has_words) t = words;
    static const i64 large[] = {8, 16, 17, 31, 33, 47, 64, 65, 70, 100, 130, 200};
    const i64 *some = b->is_large ? large : sizes, last = b->is_large ? countof(large) - 1 : countof(sizes) - 1;
    i64 m = some[pick(b, 0, last)], n = some[pick(b, 0, last)], k = some[pick(b, 0, last)];
    if (b->acc16) t = types[0], k = i64_max(k, 2);
    bool is_computed = t[0] == DT_U8 && pick(b, 0, 1) && !b->acc16;
    sym dim[3] = {size_of(b, pick(b, 1, 2), false), size_of(b, m, pick(b, 0, 3) == 0), size_of(b, k, pick(b, 0, 5) == 0)};
    i64 size;
    if (!sym_is_const(&b->sym, dim[2], &size)) dim[2] = size_of(b, k, false);
    u32 rank = (u32)pick(b, 2, 3);
    b->type = is_computed ? DT_I8 : t[0];
    value_id x = add_input(b, "x", rank, dim + 3 - rank);
    if (is_computed) x = shifted(b, x);
    if (b->acc16 && pick(b, 0, 2)) x = spread_bytes(b, x);
    value_id w = b->acc16 ? largest_weights(b, 2, (i64[]){k, n}, true) : pick(b, 0, 2) ? const_ints(b, "w", t[1], 2, (i64[]){k, n}) : right_input(b, t[1], k, n);
    value_id y = add_op(b, "MatMul", x, w, 0);
    if (b->acc16) attr_set_int(&b->g, graph_value(&b->g, y)->producer, "acc16", b->acc16);
    if (pick(b, 0, 1)) y = add_op(b, "Sub", y, const_ints(b, "sums", DT_I32, 1, &n), 0);
    b->type = DT_F32;
    if (pick(b, 0, 1)) y = scaled(b, y, 1, &n);
    *arr_push(&b->arena, &b->g.output) = y;
    return make_task(b);
}

/* The epilogue of a quantised network after a matmul with c channels: scale, residual, conversion
   to bytes. */
static inline value_id requantised(struct fixture *b, value_id y, u32 rank, i64 c)
{
    i64 dim[MAX_RANK] = {1, c, 1, 1, 1};
    if (!infer_last(b, y)) return y;
    struct shape s = graph_value(&b->g, y)->shape;
    b->type = DT_F32;
    y = scaled(b, y, rank, dim);
    if (pick(b, 0, 2) == 0) y = add_op(b, "Add", y, add_input(b, "residual", rank, s.dim), 0);
    if (pick(b, 0, 1)) y = add_op(b, "Relu", y, 0, 0);
    return y;
}

/* Convolutions of bytes and of i32, of any rank, grouped, depthwise, with something in the pads. */
static inline bool random_conv_bytes(struct fixture *b)
{
    static const i64 some[] = {1, 2, 3, 4, 5, 8, 16, 17, 32, 33, 64, 70}, large[] = {33, 64, 64, 70, 128, 192};
    static const enum dtype types[][2] = {{DT_U8, DT_I8}, {DT_U8, DT_I8}, {DT_U8, DT_I8}, {DT_I8, DT_U8}, {DT_I8, DT_I8}, {DT_I32, DT_I32}};
    const enum dtype *t = types[pick(b, 0, countof(types) - 1)];
    if (b->has_words) t = words;
    if (b->acc16) t = types[0];
    u32 s = (u32)pick(b, 1, 3), rank = s + 2, kind = b->is_depthwise ? 0 : (u32)pick(b, b->acc16 ? 1 : 0, 5); /* 0: depthwise, 1: grouped, 2: pixels */
    i64 groups = b->is_depthwise ? pick(b, 2, 140) : kind == 0 ? pick(b, 2, 40) : kind == 1 ? 2 : 1, ic = kind == 0 ? 1 : b->is_large ? large[pick(b, 0, countof(large) - 1)] : some[pick(b, 0, countof(some) - 1)];
    i64 w[MAX_RANK] = {groups * (kind == 0 ? 1 : some[pick(b, 0, countof(some) - 1)]), ic};
    i64 pads[2 * MAX_RANK] = {0}, strides[MAX_RANK], dil[MAX_RANK];
    sym dim[MAX_RANK] = {draw_size(b, 1, 2, 6), size_of(b, groups * ic, false)};
    bool symbolic = pick(b, 0, 3) == 0;
    for (u32 i = 0; i < s; i++) {
        w[2 + i] = kind == 2 ? 1 : pick(b, 1, 3), dil[i] = pick(b, 0, 3) ? 1 : 2;
        strides[i] = pick(b, 0, 2) ? 1 : 2;
        if (kind != 2) pads[i] = pick(b, 0, 2), pads[s + i] = pick(b, 0, 2);
        dim[2 + i] = size_of(b, (w[2 + i] - 1) * dil[i] + 1 + pick(b, 0, i + 1 == s ? 16 : 3), symbolic);
    }
    bool is_computed = t[0] == DT_U8 && pick(b, 0, 3) == 0 && !b->acc16, pads_hold = t[0] != DT_I32 && pick(b, 0, 1);
    b->type = is_computed ? DT_I8 : t[0];
    value_id x = add_input(b, "x", rank, dim), in[4] = {is_computed ? shifted(b, x) : b->acc16 && pick(b, 0, 1) ? spread_bytes(b, x) : x};
    bool is_given = b->is_depthwise && pick(b, 0, 4) == 0; /* weights that are computed while running */
    b->type = t[1];
    for (u32 i = 0; i < rank && is_given; i++) dim[i] = size_of(b, w[i], false);
    in[1] = is_given ? add_input(b, "w", rank, dim) : b->acc16 ? largest_weights(b, rank, w, false) : const_ints(b, "w", t[1], rank, w);
    if (pick(b, 0, 1)) in[2] = const_ints(b, "bias", DT_I32, 1, w);
    if (pads_hold) in[3] = const_ints(b, "pad", t[0], 0, NULL);
    value_id y = graph_op(&b->g, "Conv", S("conv"), pads_hold ? 4 : in[2] ? 3 : 2, in);
    node_id n = graph_value(&b->g, y)->producer;
    attr_set_int(&b->g, n, "group", groups);
    attr_set_ints(&b->g, n, "strides", strides, s);
    attr_set_ints(&b->g, n, "dilations", dil, s);
    attr_set_ints(&b->g, n, "pads", pads, 2 * s);
    if (b->has_words) attr_set_ints(&b->g, n, "most", (i64[]){255, 255}, 2);
    if (b->acc16) attr_set_int(&b->g, n, "acc16", b->acc16);
    if (pick(b, 0, 1)) y = requantised(b, y, rank, w[0]);
    *arr_push(&b->arena, &b->g.output) = y;
    return make_task(b);
}

static inline bool random_halves(struct fixture *b)
{
    b->type = DT_BF16;
    return random_gemm(b);
}

static inline bool random_conv_halves(struct fixture *b)
{
    b->type = DT_BF16;
    return random_conv(b);
}

/* Large products. */

/* Products of the sizes that the wgmma_gemm is for. */
static inline bool random_large(struct fixture *b)
{
    sym n[3], a[3], w[3];
    u32 ra = (u32)pick(b, 2, 3), rb = (u32)pick(b, 2, 3);
    bool symbolic = pick(b, 0, 2) == 0;
    for (u32 i = 0; i < 3; i++) {
        i64 whole = pick(b, 0, 1) ? 8 * pick(b, 5, 20) : pick(b, 33, 160);
        n[i] = size_of(b, whole, symbolic && pick(b, 0, 1));
    }
    a[0] = w[0] = size_of(b, pick(b, 1, 2), false);
    a[ra - 2] = n[0], a[ra - 1] = w[rb - 2] = n[2], w[rb - 1] = n[1];
    value_id right = operand(b, "b", rb, w, pick(b, 0, 1)), left = operand(b, "a", ra, a, false);
    value_id y = add_op(b, "MatMul", left, right, 0);
    for (node_id i = 1; i < b->g.node.n; i++)
        if (!op_infer(&b->g, i, &b->e)) return false;
    if (pick(b, 0, 1)) y = add_op(b, "Add", y, operand(b, "c", 1, &n[1], true), 0);
    if (pick(b, 0, 2) == 0) y = add_op(b, "Sigmoid", y, 0, 0);
    *arr_push(&b->arena, &b->g.output) = y;
    return make_task(b);
}

#endif
