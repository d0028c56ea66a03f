// SPDX-License-Identifier: Apache-2.0
//
// Chains of attention: two matmuls, where the result of the first, the scores, reaches the left operand of the second through pointwise nodes, views of as
// many elements, and reductions, as in softmax(q k^T * scale + mask) v. In one kernel the scores of some rows stay in the caches. What lies between is any
// function of the scores, in any spelling; for one kernel, nothing else may need its values. Whether a kernel family knows it, and whether it pays, is decided
// later. The same search finds the attentions of a network that is only looked at (task_attentions): there, exponentials of scores are summed up.
#include "task/grow.h"

enum {
    MAX_BETWEEN = 96, /* nodes in front of the left operand that are examined */
    SPARE = 8,        /* nodes left for prologues */
    NOMINAL = 1024,   /* assumed value of an unknown size */
};

/* Nodes in front of a value, back to matmuls. */
struct front {
    node_id v[MAX_BETWEEN], matmul[MAX_BETWEEN];
    u32 n, n_matmuls;
};

static bool keeps_count(const struct graph *g, node_id n)
{
    const struct node *x = graph_node(g, n);
    return x->in.n == 1 && shape_count(g->sym, &graph_value(g, x->in.v[0])->shape) == shape_count(g->sym, &graph_value(g, node_out(g, n))->shape);
}

static bool may_lie_between(const struct graph *g, node_id n)
{
    if (node_is(g, n, OP_WHOLE | OP_HEAVY | OP_MATMUL | OP_CONV)) return false;
    return node_is(g, n, OP_POINTWISE | OP_REDUCE) || (node_is(g, n, OP_VIEW) && keeps_count(g, n));
}

static void front_visit(const struct cutter *c, struct front *f, value_id v, u32 search)
{
    node_id p = graph_value(c->g, v)->producer;
    if (!p || c->seen[p] == search || f->n == MAX_BETWEEN || f->n_matmuls == MAX_BETWEEN) return;
    c->seen[p] = search;
    if (node_is(c->g, p, OP_MATMUL)) f->matmul[f->n_matmuls++] = p;
    else if (may_lie_between(c->g, p)) f->v[f->n++] = p;
}

/* The stack is the list itself. */
static void front_of(const struct cutter *c, struct front *f, value_id v)
{
    u32 search = cutter_search(c);
    *f = (struct front){0};
    front_visit(c, f, v, search);
    for (u32 i = 0; i < f->n; i++) {
        const struct node *x = graph_node(c->g, f->v[i]);
        for (u32 k = 0; k < x->in.n; k++)
            if (x->in.v[k]) front_visit(c, f, x->in.v[k], search);
    }
}

static bool reads(const struct cutter *c, node_id n, const struct node_set *s)
{
    const struct node *x = graph_node(c->g, n);
    for (u32 k = 0; k < x->in.n; k++)
        if (x->in.v[k] && graph_value(c->g, x->in.v[k])->producer && set_has(s, graph_value(c->g, x->in.v[k])->producer)) return true;
    return false;
}

/* Adds the nodes of the front that depend on the set. */
static bool add_between(const struct cutter *c, const struct front *f, struct node_set *s)
{
    bool has_reduction = false;
    for (bool more = true; more;) {
        more = false;
        for (u32 i = 0; i < f->n; i++) {
            if (set_has(s, f->v[i]) || !reads(c, f->v[i], s)) continue;
            if (s->n == MAX_REGION - SPARE) return false;
            set_add(s, f->v[i]);
            has_reduction |= node_is(c->g, f->v[i], OP_REDUCE);
            more = true;
        }
    }
    return has_reduction;
}

/* Only the second matmul needs a value of the set, as its left operand. */
static bool is_private(const struct cutter *c, const struct node_set *s, node_id second)
{
    const struct node *x = graph_node(c->g, second);
    value_id live[1];
    if (set_live_outs(c, s, live, 1) != 1 || live[0] != x->in.v[0] || c->is_output[live[0]]) return false;
    for (u32 k = 1; k < x->in.n; k++)
        if (x->in.v[k] == live[0]) return false;
    return c->users[live[0]].n == 1 && c->users[live[0]].v[0] == second;
}

static double flops_of(const struct cutter *c, node_id n)
{
    i64 *var = arena_array(c->a, i64, c->g->sym->var.n + 1);
    for (u32 i = 0; i < c->g->sym->var.n; i++) var[i] = NOMINAL;
    return op_flops(c->g, n, var);
}

/* Takes the largest matmul from the front: smaller ones may be a bias. 0: there is none. */
static node_id take_largest(const struct cutter *c, struct front *f)
{
    double most = -1;
    u32 best = 0;
    for (u32 i = 0; i < f->n_matmuls; i++) {
        double flops = flops_of(c, f->matmul[i]);
        if (flops > most) most = flops, best = i;
    }
    if (!f->n_matmuls) return 0;
    node_id n = f->matmul[best];
    f->matmul[best] = f->matmul[--f->n_matmuls];
    return n;
}

static sym columns(const struct graph *g, value_id v)
{
    const struct shape *s = &graph_value(g, v)->shape;
    return s->rank ? s->dim[s->rank - 1] : 0;
}

/* The next matmul with a column of scores for each column of v, whose front this is, and what lies between. 0: there is none. */
static node_id next_scores(const struct cutter *c, struct front *f, value_id v, struct node_set *s)
{
    node_id first;
    while ((first = take_largest(c, f)) != 0) {
        if (columns(c->g, node_out(c->g, first)) != columns(c->g, v)) continue;
        *s = set_new(c);
        set_add(s, first);
        if (add_between(c, f, s)) return first;
    }
    return 0;
}

bool grow_attention(const struct cutter *c, struct node_set *s)
{
    struct front f;
    struct node_set own;
    node_id second = s->v[0];
    value_id left = graph_node(c->g, second)->in.v[0];
    if (!node_is(c->g, second, OP_MATMUL)) return false;
    front_of(c, &f, left);
    while (next_scores(c, &f, left, &own)) {
        if (!is_private(c, &own, second) || s->n + own.n > MAX_REGION - SPARE) continue;
        for (u32 i = 0; i < own.n; i++) set_add(s, own.v[i]);
        return true;
    }
    return false;
}

/* Does v depend on an exponential within the set? */
static bool has_exponential(const struct cutter *c, const struct node_set *s, value_id v, u32 search)
{
    node_id p = v ? graph_value(c->g, v)->producer : 0;
    if (!p || !set_has(s, p) || p == s->v[0] || c->seen[p] == search) return false;
    c->seen[p] = search;
    const struct node *x = graph_node(c->g, p);
    if (str_is(x->op, "Exp")) return true;
    for (u32 k = 0; k < x->in.n; k++)
        if (has_exponential(c, s, x->in.v[k], search)) return true;
    return false;
}

static bool sums_exponentials(const struct cutter *c, const struct node_set *s)
{
    struct op_reduce r;
    for (u32 i = 1; i < s->n; i++) {
        const struct node *x = graph_node(c->g, s->v[i]);
        const struct op *op = op_of(c->g, s->v[i]);
        if (op->reduce && op->reduce(c->g, x, &r) && r.combine == KI_ADD && has_exponential(c, s, x->in.v[0], cutter_search(c))) return true;
    }
    return false;
}

void task_attentions(struct attention_pairs *out, const struct graph *g, struct arena *a)
{
    struct cutter c;
    struct front f;
    struct node_set own;
    cutter_init(&c, g, a);
    *out = (struct attention_pairs){0};
    for (node_id n = 1; n < g->node.n; n++) {
        if (graph_node(g, n)->dead || !node_is(g, n, OP_MATMUL)) continue;
        value_id left = graph_node(g, n)->in.v[0];
        front_of(&c, &f, left);
        for (node_id first; (first = next_scores(&c, &f, left, &own)) != 0;) {
            if (!sums_exponentials(&c, &own)) continue;
            *arr_push(a, out) = (struct attention_pair){first, n};
            break;
        }
    }
}
