// SPDX-License-Identifier: Apache-2.0
//
// groups: statistics of groups of channels (group normalisation) from those of each channel. Networks write them as
//
//   x (n, c, d ..)  ->  Reshape (n, groups, rest)  ->  reductions of the last axis, pointwise nodes  ->  Reshape (n, c, d ..)
//
// The reshaped value merges channels with pixels, which no layout but the plain one can express: images with channels last would be
// transposed there and back. Here the pointwise nodes move in front of the first Reshape, with one number per channel where they had one per
// group, and a reduction is one over d .. and then, of (n, groups, c / groups), over the channels of a group.
//
// requires: expanded, inferred. x descends from a convolution or window by nodes that keep its rank.
#include "pass/pass.h"

enum { NEAR = 16 /* nodes between a convolution and x */, MOST_INPUTS = 4 };

/* x as (n, groups, rest). */
struct merged { value_id x; i64 channels, groups; };

struct rewrite {
    struct graph *g;
    struct merged *of;  /* per value of the original graph: what it is a Reshape of; x 0: nothing, or not found yet */
    u32 n;              /* their number */
    node_id next;       /* first node that is not inferred yet */
    bool *ok;
    struct err *e;
};

static void infer_new(struct rewrite *w)
{
    for (; w->next < w->g->node.n && *w->ok; w->next++) *w->ok = op_infer(w->g, w->next, w->e);
}

static bool is_one(const struct graph *g, sym s)
{
    i64 n;
    return sym_is_const(g->sym, s, &n) && n == 1;
}

static bool is_image_near(const struct graph *g, value_id v, u32 rank, u32 depth)
{
    const struct value *x = graph_value(g, v);
    if (!x->producer || x->shape.rank != rank || !depth) return false;
    if (op_of(g, x->producer)->props & (OP_CONV | OP_TRANSPOSED | OP_WINDOW)) return true;
    const struct node *n = graph_node(g, x->producer);
    for (u32 i = 0; i < n->in.n; i++)
        if (n->in.v[i] && is_image_near(g, n->in.v[i], rank, depth - 1)) return true;
    return false;
}

/* A Reshape that merges whole groups of several channels with all other axes but the batch's. */
static struct merged merged_by(const struct graph *g, const struct node *n)
{
    struct merged m = {0}, none = {0};
    if (!str_is(n->op, "quern::Reshape")) return none; /* others may have no input */
    m.x = n->in.v[0];
    const struct shape *x = &graph_value(g, m.x)->shape, *y = &graph_value(g, n->out.v[0])->shape;
    if (x->rank < 3 || y->rank != 3 || x->dim[0] != y->dim[0]) return none;
    if (!sym_is_const(g->sym, x->dim[1], &m.channels) || !sym_is_const(g->sym, y->dim[1], &m.groups)) return none;
    if (m.groups < 1 || m.channels <= m.groups || m.channels % m.groups) return none;
    sym rest = sym_const(g->sym, m.channels / m.groups), channels = rest;
    for (u32 a = 2; a < x->rank; a++) rest = sym_mul(g->sym, rest, x->dim[a]);
    return rest != channels && rest == y->dim[2] && is_image_near(g, m.x, x->rank, NEAR) ? m : none;
}

/* Has v, spread to three axes, one number for each group, or one for all? */
static bool is_per_group(const struct graph *g, value_id v)
{
    const struct shape *s = &graph_value(g, v)->shape;
    return s->rank <= 3 && (s->rank == 0 || is_one(g, s->dim[s->rank - 1]));
}

/* v of shape s, one number per group -> one per channel, as (n, c, 1 ..) for images of that rank. */
static value_id per_channel(struct graph *g, node_id like, value_id v, const struct shape *of, const struct merged *m, u32 rank)
{
    const struct shape s = *of;
    const sym one = sym_const(g->sym, 1);
    if (s.rank == 0) return v;
    sym three[3] = {one, one, one}, to[MAX_RANK];
    for (u32 a = 0; a < s.rank; a++) three[3 - s.rank + a] = s.dim[a];
    for (u32 a = 0; a < rank; a++) to[a] = a ? one : three[0];
    if (three[1] != one) {
        v = s.rank < 3 ? op_node_reshape(g, like, v, 3, three, 0) : v;
        three[2] = sym_const(g->sym, m->channels / m->groups);
        v = op_node_expand(g, like, v, 3, three, 0);
        to[1] = sym_const(g->sym, m->channels);
    }
    return op_node_reshape(g, like, v, rank, to, 0);
}

/* Inputs of a pointwise node in front of the Reshape, those with one number per group left 0; x 0: it cannot move there. */
static struct merged inputs_of(struct rewrite *w, node_id p, value_id *in);

/* Node p with other inputs. Divisions by one number per group are multiplications by its reciprocal, computed once. */
static value_id moved_node(struct graph *g, node_id p, value_id *in, const struct merged *m)
{
    const struct node n = *graph_node(g, p);
    u32 rank = graph_value(g, m->x)->shape.rank;
    const char *name = op_of(g, p)->name;
    if (str_is(n.op, "Div") && dtype_is_float(graph_value(g, n.out.v[0])->dtype) && !in[1]) {
        in[1] = per_channel(g, p, op_node1(g, p, "Reciprocal", n.in.v[1], 0), &graph_value(g, n.in.v[1])->shape, m, rank), name = "Mul";
    }
    for (u32 i = 0; i < n.in.n; i++)
        if (n.in.v[i] && !in[i]) in[i] = per_channel(g, p, n.in.v[i], &graph_value(g, n.in.v[i])->shape, m, rank);
    return op_node_same(g, p, name, n.in.n, in, NULL, 0);
}

/* What v is a Reshape of, made if need be; x 0: it is none. */
static struct merged image_of(struct rewrite *w, value_id v)
{
    struct graph *g = w->g;
    node_id p = v < w->n ? graph_value(g, v)->producer : 0;
    if (!p || w->of[v].x) return p ? w->of[v] : (struct merged){0};
    struct merged m = merged_by(g, graph_node(g, p));
    value_id in[MOST_INPUTS] = {0};
    if (!m.x && (m = inputs_of(w, p, in)).x) {
        m.x = moved_node(g, p, in, &m);
        infer_new(w);
    }
    return w->of[v] = m;
}

static bool same_images(const struct graph *g, const struct merged *a, const struct merged *b)
{
    return a->groups == b->groups && shape_equal(&graph_value(g, a->x)->shape, &graph_value(g, b->x)->shape);
}

static struct merged inputs_of(struct rewrite *w, node_id p, value_id *in)
{
    struct graph *g = w->g;
    const struct node n = *graph_node(g, p);
    struct merged m = {0}, none = {0};
    if (!(op_of(g, p)->props & OP_POINTWISE) || n.out.n != 1 || n.in.n > MOST_INPUTS) return none;
    for (u32 i = 0; i < n.in.n; i++) {
        if (!n.in.v[i] || is_per_group(g, n.in.v[i])) continue;
        struct merged part = image_of(w, n.in.v[i]);
        if (!part.x || (m.x && !same_images(g, &m, &part))) return none;
        m = part, in[i] = part.x;
    }
    return m;
}

/* The last axis of a Reshape is reduced. */
static bool reduce_channels(struct rewrite *w, node_id n)
{
    struct graph *g = w->g;
    const struct op *op = op_of(g, n);
    const struct node nd = *graph_node(g, n);
    struct op_reduce r;
    if (!op->reduce || !op->reduce(g, &nd, &r) || !r.keepdims || r.n_axes != 1 || r.axis[0] != 2) return false;
    struct merged m = image_of(w, nd.in.v[0]);
    if (!m.x) return false;
    const struct shape s = graph_value(g, m.x)->shape;
    i64 pixels[MAX_RANK], last = 2;
    for (u32 a = 2; a < s.rank; a++) pixels[a - 2] = a;
    value_id v = op_node_same(g, n, op->name, 1, &m.x, NULL, 0);
    attr_set_ints(g, op_made(g, v), "axes", pixels, s.rank - 2);
    const sym three[] = {s.dim[0], sym_const(g->sym, m.groups), sym_const(g->sym, m.channels / m.groups)};
    v = op_node_reshape(g, n, v, 3, three, 0);
    graph_node(g, n)->dead = true;
    v = op_node_same(g, n, op->name, 1, &v, NULL, nd.out.v[0]);
    attr_set_ints(g, op_made(g, v), "axes", &last, 1);
    infer_new(w);
    return true;
}

/* A Reshape back to the image. */
static bool drop_reshape(struct rewrite *w, node_id n)
{
    struct graph *g = w->g;
    const struct node nd = *graph_node(g, n);
    if (!str_is(nd.op, "quern::Reshape") || graph_is_output(g, nd.out.v[0])) return false;
    if (graph_value(g, nd.out.v[0])->shape.rank < 3 || graph_value(g, nd.in.v[0])->shape.rank != 3) return false;
    struct merged m = image_of(w, nd.in.v[0]);
    if (!m.x || !shape_equal(&graph_value(g, m.x)->shape, &graph_value(g, nd.out.v[0])->shape)) return false;
    graph_node(g, n)->dead = true;
    graph_replace(g, nd.out.v[0], m.x);
    return true;
}

static bool run(struct graph *g, bool *ok, struct err *e)
{
    struct arena a = {0};
    struct rewrite w = {.g = g, .of = arena_array(&a, struct merged, g->value.n), .n = g->value.n, .next = g->node.n, .ok = ok, .e = e};
    bool changed = false;
    for (node_id n = 1, end = g->node.n; n < end && *ok; n++)
        if (!graph_node(g, n)->dead && (reduce_channels(&w, n) || drop_reshape(&w, n))) changed = true;
    arena_release(&a);
    return changed;
}

const struct pass pass_groups = {
    .version = 1,
    .name = "groups",
    .summary = "statistics of groups of channels from those of channels",
    .rank = 146,
    .run = run,
};
