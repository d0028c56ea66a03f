// SPDX-License-Identifier: Apache-2.0
//
// crop: outputs of a convolution that are cropped afterwards are not computed: the end padding is
// chosen for the remaining size, negative if need be. Pointwise nodes may be in between, if their
// other operands are uniform along the cropped axes. requires: expanded, inferred. Only ends are
// cropped, as in networks that pad their input to a multiple; no node in between has other users.
#include "pass/pass.h"

enum { MAX_CHAIN = 32 };

struct crop {
    sym size[MAX_RANK];
    bool cuts[MAX_RANK];      /* per axis */
    node_id chain[MAX_CHAIN]; /* pointwise nodes from the crop upwards, then the convolution */
    u32 n;
};

/* Whether node n only crops ends of spatial axes. */
static bool crop_of(const struct graph *g, node_id n, struct crop *c)
{
    const struct node *x = graph_node(g, n);
    sym start[MAX_RANK];
    const i64 *step;
    bool any = false;
    *c = (struct crop){0};
    if (!str_is(x->op, "quern::Slice") || graph_value(g, x->out.v[0])->sdata) return false;
    const struct shape *s = &graph_value(g, x->in.v[0])->shape;
    if (op_get_syms(g, x, "start", start, MAX_RANK) != s->rank ||
        op_get_syms(g, x, "size", c->size, MAX_RANK) != s->rank ||
        attr_ints(x, "step", &step) != s->rank)
        return false;
    for (u32 a = 0; a < s->rank; a++) {
        i64 from;
        if (!sym_is_const(g->sym, start[a], &from) || from != 0 || step[a] != 1) return false;
        c->cuts[a] = c->size[a] != s->dim[a];
        bool is_empty = sym_is_const(g->sym, c->size[a], &from) && from < 1;
        if (c->cuts[a] && (a < 2 || is_empty)) return false;
        any |= c->cuts[a];
    }
    return any;
}

/* Whether operand v of a node whose output has that rank is uniform along the cropped axes. */
static bool is_uniform(const struct graph *g, const struct crop *c, value_id v, u32 rank)
{
    const struct shape *s = &graph_value(g, v)->shape;
    for (u32 a = rank - s->rank; a < rank; a++) {
        i64 one;
        sym d = s->dim[a - (rank - s->rank)];
        if (c->cuts[a] && (!sym_is_const(g->sym, d, &one) || one != 1)) return false;
    }
    return true;
}

/* The operand of a pointwise node that carries the elements; 0: more than one. */
static value_id main_operand(const struct graph *g, const struct crop *c, node_id n)
{
    const struct node *x = graph_node(g, n);
    const struct shape *out = &graph_value(g, x->out.v[0])->shape;
    value_id main = 0;
    for (u32 k = 0; k < x->in.n; k++) {
        value_id v = x->in.v[k];
        if (!v || is_uniform(g, c, v, out->rank)) continue;
        if (main || !shape_equal(&graph_value(g, v)->shape, out)) return 0;
        main = v;
    }
    return main;
}

static bool find_chain(const struct graph *g, const u32 *n_uses, node_id n, struct crop *c)
{
    value_id v = graph_node(g, n)->in.v[0];
    while (v && n_uses[v] == 1 && c->n < MAX_CHAIN) {
        node_id p = graph_value(g, v)->producer;
        if (!p || graph_node(g, p)->out.n != 1) return false;
        c->chain[c->n++] = p;
        if (op_of(g, p)->props & OP_CONV) return true;
        v = op_of(g, p)->props & OP_POINTWISE ? main_operand(g, c, p) : 0;
    }
    return false;
}

static bool crop_one(struct graph *g, const u32 *n_uses, node_id n, bool *ok, struct err *e)
{
    struct crop c;
    if (!crop_of(g, n, &c) || !find_chain(g, n_uses, n, &c)) return false;
    value_id out = graph_node(g, n)->out.v[0];
    graph_node(g, n)->dead = true;
    node_set_out(g, c.chain[0], 0, out);
    op_window_crop(g, c.chain[c.n - 1], c.size + 2);
    for (u32 k = c.n; k-- > 0 && *ok;) *ok = op_infer(g, c.chain[k], e);
    return true;
}

static bool run(struct graph *g, bool *ok, struct err *e)
{
    struct arena a = {0};
    const u32 *n_uses = graph_use_counts(g, &a);
    bool changed = false;
    for (node_id n = 1; n < g->node.n && *ok; n++)
        if (!graph_node(g, n)->dead) changed |= crop_one(g, n_uses, n, ok, e);
    arena_release(&a);
    return changed;
}

const struct pass pass_crop = {
    .version = 1,
    .name = "crop",
    .summary = "removes outputs of convolutions that are cropped afterwards",
    .rank = 145,
    .run = run,
};
