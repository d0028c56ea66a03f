// SPDX-License-Identifier: Apache-2.0
//
// Random graphs over all operators of the registry, and random contents. An operator's random
// instance is grafted onto the graph: its inputs become earlier values of the same type if
// inference accepts them, otherwise constants or new inputs of the graph, some with symbolic sizes.
// Variables are named by their initial size: D7.
#ifndef QUERN_RANDOM_GRAPH_H
#define QUERN_RANDOM_GRAPH_H

#include <math.h>
#include <string.h>

#include "op/op.h"
#include "sym_mark.h"

enum { MAX_ELEMENTS = 1 << 12, MAX_SIZES = 1 << 9 };

/* Distributions of the inputs' numbers. */
enum contents { CONTENTS_PLAIN, CONTENTS_TIES /* few different ones */, CONTENTS_HARD /* infinities, NaN, extremes */ };

struct random_graph {
    u64 seed;
    struct arena arena;
    struct symtab sym;
    struct graph g;
    struct rng rng;
    struct { value_id *v; u32 n, cap; } have;
    enum contents contents;
    struct err e;
};

static inline i64 pick(struct random_graph *s, i64 lo, i64 hi) { return rng_range(&s->rng, lo, hi); }

/* contents */

static double random_float(enum contents c, struct rng *r)
{
    static const double some[] = {0, -0.0, 1, -1, 0.5, -0.5, 2, 1.5};
    static const double odd[] = {INFINITY, -INFINITY, NAN, 3e38, -3e38, 1e-40, 1e300, 65504, -1e5};
    if (c == CONTENTS_TIES || rng_range(r, 0, 7) == 0) return some[rng_range(r, 0, countof(some) - 1)];
    if (c == CONTENTS_HARD && rng_range(r, 0, 9) == 0) return odd[rng_range(r, 0, countof(odd) - 1)];
    return rng_f64(r) * 4 - 2;
}

static i64 random_int(enum dtype t, enum contents c, struct rng *r)
{
    if (t == DT_BOOL) return rng_range(r, 0, 1);
    bool is_extreme = c == CONTENTS_HARD && rng_range(r, 0, 9) == 0;
    if (is_extreme) return dtype_int_extreme(t, rng_range(r, 0, 1));
    return rng_range(r, dtype_kind(t) == DK_UINT ? 0 : -5, 5);
}

static void fill_tensor(struct tensor *t, enum contents c, struct rng *r)
{
    for (i64 i = 0, n = tensor_count(t); i < n; i++) {
        if (dtype_is_float(t->dtype)) elem_set_f64(t->dtype, t->data, i, random_float(c, r));
        else elem_set_i64(t->dtype, t->data, i, random_int(t->dtype, c, r));
    }
}

/* For sizes var[]; p: layouts. Depends only on the seed and the inputs' types and shapes. NULL: too
   large, or a size is unknown. */
static struct tensor *make_inputs(struct random_graph *s, const i64 *var, struct tensor ***p)
{
    struct tensor *in = arena_array(&s->arena, struct tensor, s->g.input.n + 1);
    struct rng r = rng_seed(s->seed * 31 + 7);
    *p = arena_array(&s->arena, struct tensor *, s->g.input.n + 1);
    for (u32 k = 0; k < s->g.input.n; k++) {
        const struct value *x = graph_value(&s->g, s->g.input.v[k]);
        i64 dim[MAX_RANK], n = 1;
        if (!shape_eval(&s->sym, &x->shape, var, dim)) return NULL;
        for (u32 d = 0; d < x->shape.rank; d++) {
            if (dim[d] < 0 || dim[d] > MAX_ELEMENTS) return NULL; /* facts may exclude all sizes */
            n *= dim[d];
            if (n > 4 * MAX_ELEMENTS) return NULL;
        }
        in[k] = *tensor_new(&s->arena, x->dtype, x->shape.rank, dim);
        fill_tensor(&in[k], s->contents, &r);
        (*p)[k] = &in[k];
    }
    return in;
}

/* The sizes of variables; data-dependent ones are unknown. round 0: those in their names; later:
   small ones, including 0 and 1. */
static i64 *bind_sizes(struct random_graph *s, u32 round)
{
    static const i64 small[] = {0, 1, 1, 2, 3, 5, 7, 8, 13, 17};
    struct rng r = rng_seed(s->seed * 17 + round);
    i64 *var = arena_array(&s->arena, i64, MAX_SIZES);
    for (u32 i = 0; i < MAX_SIZES; i++) {
        struct str name = i < s->sym.var.n ? s->sym.var.v[i] : S("");
        if (!name.n || name.p[0] != 'D' || !str_to_i64(str_sub(name, 1, name.n), &var[i])) var[i] = INT64_MIN;
        else if (round && rng_range(&r, 0, 2)) var[i] = small[rng_range(&r, 0, countof(small) - 1)];
    }
    return var;
}

/* graphs */

static value_id new_input(struct random_graph *s, const struct value *like, bool may_vary)
{
    value_id v = graph_add_value(&s->g, S("in"));
    struct value *x = graph_value(&s->g, v);
    bool symbolic = pick(s, 0, 2) == 0 && may_vary;
    x->dtype = like->dtype;
    x->shape = like->shape;
    for (u32 d = 0; d < x->shape.rank && symbolic; d++) {
        i64 c;
        if (!sym_is_const(&s->sym, x->shape.dim[d], &c) || c < 2 || s->sym.var.n >= 60 || pick(s, 0, 1)) continue;
        x->shape.dim[d] = sym_var(&s->sym, str_fmt(&s->arena, "D%d", (int)c));
    }
    *arr_push(&s->arena, &s->g.input) = v;
    *arr_push(&s->arena, &s->have) = v;
    return v;
}

static value_id new_const(struct random_graph *s, const struct value *like)
{
    i64 dim[MAX_RANK];
    if (!shape_is_static(&s->sym, &like->shape, dim)) return new_input(s, like, false);
    struct tensor *t = tensor_new(&s->arena, like->dtype, like->shape.rank, dim);
    fill_tensor(t, s->contents, &s->rng);
    return graph_add_const(&s->g, S("c"), t);
}

/* An earlier value of that type; the shape is equal or, with `any`, none matters. 0: none. */
static value_id find_value(struct random_graph *s, const struct value *like, bool any)
{
    for (int i = 0; i < 12 && s->have.n; i++) {
        i64 back = pick(s, 0, 1) ? pick(s, 0, i64_min(3, s->have.n - 1)) : pick(s, 0, s->have.n - 1);
        value_id v = s->have.v[s->have.n - 1 - (u32)back];
        const struct value *x = graph_value(&s->g, v);
        if (x->dtype == like->dtype && (any ? x->shape.rank == like->shape.rank || pick(s, 0, 3) == 0
                                            : shape_equal(&x->shape, &like->shape)))
            return v;
    }
    return 0;
}

static bool too_large(const struct random_graph *s, value_id v)
{
    const struct shape *x = &graph_value(&s->g, v)->shape;
    i64 n = 1, c;
    for (u32 d = 0; d < x->rank; d++) {
        i64 size = sym_is_const(&s->sym, x->dim[d], &c) ? c : 9;
        if (size > MAX_ELEMENTS) return true;
        n *= size;
        if (n > MAX_ELEMENTS) return true;
    }
    return false;
}

static void drop_node(struct random_graph *s, node_id n)
{
    struct node *x = graph_node(&s->g, n);
    x->dead = true;
    for (u32 k = 0; k < x->out.n; k++)
        if (x->out.v[k]) graph_value(&s->g, x->out.v[k])->producer = 0;
}

/* Appends the instance's node to earlier values. how: 0 of any shape, 1 of equal shapes, 2 new
   inputs. false: inference rejects them. */
static bool graft(struct random_graph *s, const struct graph *from, node_id at, int how)
{
    const struct node *x = graph_node(from, at);
    node_id n = graph_add_node(&s->g, x->op, S("n"));
    u32 n_in = s->g.input.n, n_have = s->have.n;
    const struct sym_mark known = sym_mark(&s->sym, &s->arena);
    for (u32 k = 0; k < x->in.n; k++) {
        value_id v = 0;
        const struct value *like = x->in.v[k] ? graph_value(from, x->in.v[k]) : NULL;
        if (like && like->data) v = graph_add_const(&s->g, S("c"), like->data);
        else if (like && how < 2) v = find_value(s, like, how == 0);
        if (like && !v) v = k && pick(s, 0, 4) == 0 ? new_const(s, like) : new_input(s, like, !str_starts(x->op, S("quern::")));
        node_add_in(&s->g, n, v);
    }
    for (u32 k = 0; k < x->attr.n; k++) attr_copy(&s->g, n, &x->attr.v[k]);
    for (u32 k = 0; k < x->out.n; k++) node_set_out(&s->g, n, k, x->out.v[k] ? graph_add_value(&s->g, S("v")) : 0);
    struct err e = {0};
    bool ok = op_infer(&s->g, n, &e);
    const struct node *y = graph_node(&s->g, n);
    for (u32 k = 0; ok && k < y->out.n; k++) ok = !y->out.v[k] || (graph_value(&s->g, y->out.v[k])->shape.known && !too_large(s, y->out.v[k]));
    if (!ok) {
        drop_node(s, n);
        s->g.input.n = n_in, s->have.n = n_have;
        sym_rewind(&s->sym, &known);
        return false;
    }
    for (u32 k = 0; k < y->out.n; k++)
        if (y->out.v[k]) *arr_push(&s->arena, &s->have) = y->out.v[k];
    return true;
}

/* false: the graph has no such node more. */
static bool add_op(struct random_graph *s, const struct op *op)
{
    struct graph one;
    if (!op || !op->random) return false;
    graph_init(&one, &s->arena, &s->sym);
    op->random(op, &one, &s->rng);
    struct err e = {0};
    if (one.node.n != 2 || !op_infer_all(&one, &e)) return false;
    /* attributes of expanded nodes hold sizes: their inputs must have exactly the shapes of the
       expansion */
    for (int how = str_starts(str_of(op->name), S("quern::")); how < 3; how++)
        if (graft(s, &one, 1, how)) return true;
    return false;
}

static i64 count_ops(void)
{
    i64 n = 0;
    while (op_all(n)) n++;
    return n;
}

static void add_node(struct random_graph *s, i64 n_ops)
{
    static const char *const often[] = {"Add", "Mul", "Sub", "Relu", "Sin", "Softmax", "Concat", "Slice", "Transpose", "MatMul", "ReduceMean",
                                        "Expand", "Reshape", "Conv", "MaxPool", "Round", "Pad", "Gather", "Where", "Split"};
    add_op(s, pick(s, 0, 1) ? op_find(str_of(often[pick(s, 0, countof(often) - 1)])) : op_all(pick(s, 0, n_ops - 1)));
}

static void choose_outputs(struct random_graph *s)
{
    u32 *uses = graph_use_counts(&s->g, &s->arena);
    for (u32 i = 0; i < s->have.n; i++) {
        value_id v = s->have.v[i];
        bool made = graph_value(&s->g, v)->producer != 0;
        if (made && (!uses[v] || pick(s, 0, 7) == 0)) *arr_push(&s->arena, &s->g.output) = v;
    }
}

static void random_graph_start(struct random_graph *s, u64 seed)
{
    memset(s, 0, sizeof *s);
    s->seed = seed;
    s->rng = rng_seed(seed);
    s->contents = seed % 5 == 1 ? CONTENTS_HARD : seed % 5 == 3 ? CONTENTS_TIES : CONTENTS_PLAIN;
    symtab_init(&s->sym, &s->arena);
    graph_init(&s->g, &s->arena, &s->sym);
}

static void random_graph_close(struct random_graph *s)
{
    struct arena a = s->arena;
    arena_release(&a);
}

/* The graph from its text, as others read it: sizes that only refused nodes had are gone. */
static bool read_again(struct random_graph *s)
{
    struct random_graph made = *s;
    struct buf b = {0};
    graph_print(&b, &made.g, NULL);
    random_graph_start(s, made.seed);
    bool ok = graph_parse(&s->g, &s->arena, &s->sym, str_dup(&s->arena, buf_view(&b)), &s->e) && op_infer_all(&s->g, &s->e);
    buf_release(&b);
    random_graph_close(&made);
    return ok;
}

/* Cycles through all operators. false: no graph resulted. */
static bool random_graph_open(struct random_graph *s, u64 seed)
{
    random_graph_start(s, seed);
    i64 n_ops = count_ops(), n = pick(s, 0, 9) ? pick(s, 1, 10) : pick(s, 10, 60), at = pick(s, 0, n - 1);
    for (i64 i = 0; i < n; i++) {
        if (i == at) add_op(s, op_all((i64)(seed % (u64)n_ops)));
        else add_node(s, n_ops);
    }
    choose_outputs(s);
    return s->g.output.n && op_infer_all(&s->g, &s->e) && read_again(s);
}

#endif
