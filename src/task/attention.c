// SPDX-License-Identifier: Apache-2.0
//
// Chains of attention: two matmuls, where the result of the first, the scores, reaches the left operand of the second through pointwise nodes, views of as
// many elements, and reductions, as in softmax(q k^T * scale + mask) v. In one kernel the scores of some rows stay in the caches. What lies between is any
// function of the scores, in any spelling; for one kernel, nothing else may need its values but sums of their columns, which are a result, too. Where statistics of
// rows are given, there is an exponential in place of reductions. Whether a kernel family knows it, and whether it pays, is decided later. Likewise the first
// matmul alone, with the statistics of its rows, or sums of columns, of exponentials. The same search finds the attentions of a network that is only looked
// at (task_attentions): there, exponentials of scores are summed up.
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
    bool has_reductions; /* of rows, too; else they are where it ends, as matmuls */
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
    else if (may_lie_between(c->g, p) && (f->has_reductions || !node_is(c->g, p, OP_REDUCE))) f->v[f->n++] = p;
}

/* The stack is the list itself. */
static void front_of(const struct cutter *c, struct front *f, value_id v, bool has_reductions)
{
    u32 search = cutter_search(c);
    *f = (struct front){.has_reductions = has_reductions};
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

/* Adds the nodes of the front that depend on the set; false: they are too many. */
static bool add_between(const struct cutter *c, const struct front *f, struct node_set *s)
{
    for (bool more = true; more;) {
        more = false;
        for (u32 i = 0; i < f->n; i++) {
            if (set_has(s, f->v[i]) || !reads(c, f->v[i], s)) continue;
            if (s->n == MAX_REGION - SPARE) return false;
            set_add(s, f->v[i]);
            more = true;
        }
    }
    return true;
}

static bool has_reduction(const struct cutter *c, const struct node_set *s)
{
    for (u32 i = 0; i < s->n; i++)
        if (node_is(c->g, s->v[i], OP_REDUCE)) return true;
    return false;
}

static bool has_exp(const struct cutter *c, const struct node_set *s)
{
    for (u32 i = 0; i < s->n; i++)
        if (str_is(graph_node(c->g, s->v[i])->op, "Exp")) return true;
    return false;
}

static sym columns(const struct graph *g, value_id v)
{
    const struct shape *s = &graph_value(g, v)->shape;
    return s->rank ? s->dim[s->rank - 1] : 0;
}

static bool has_as_many(const struct graph *g, value_id a, value_id b) { return shape_count(g->sym, &graph_value(g, a)->shape) == shape_count(g->sym, &graph_value(g, b)->shape); }

/* Does the node compute as many numbers as there are rows, from those of the set alone? */
static bool is_of_rows(const struct cutter *c, const struct node_set *s, value_id rows, node_id n)
{
    const struct node *x = graph_node(c->g, n);
    if (!may_lie_between(c->g, n) || node_is(c->g, n, OP_REDUCE) || !has_as_many(c->g, rows, node_out(c->g, n))) return false;
    for (u32 k = 0; k < x->in.n; k++) {
        node_id p = x->in.v[k] ? graph_value(c->g, x->in.v[k])->producer : 0;
        if (p ? !set_has(s, p) : x->in.v[k] && !graph_value(c->g, x->in.v[k])->is_const) return false;
    }
    return true;
}

/* Adds what is computed from the results of reductions alone and is of as many elements: statistics of rows, which may be results. */
static bool add_statistics(const struct cutter *c, struct node_set *s)
{
    value_id rows = 0;
    for (u32 i = 0; i < s->n && !rows; i++)
        if (node_is(c->g, s->v[i], OP_REDUCE)) rows = node_out(c->g, s->v[i]);
    for (u32 i = 0; rows && i < s->n; i++) {
        value_id v = node_out(c->g, s->v[i]);
        for (u32 k = 0; has_as_many(c->g, rows, v) && k < c->users[v].n; k++) {
            node_id n = c->users[v].v[k];
            if (set_has(s, n) || !is_of_rows(c, s, rows, n)) continue;
            if (s->n == MAX_REGION - SPARE) return false;
            set_add(s, n);
        }
    }
    return true;
}

static bool reduces(const struct cutter *c, node_id n, u32 from_last, struct op_reduce *r)
{
    const struct node *x = graph_node(c->g, n);
    const u32 rank = graph_value(c->g, x->in.v[0])->shape.rank;
    return op_of(c->g, n)->reduce && op_of(c->g, n)->reduce(c->g, x, r) && r->n_axes == 1 && r->axis[0] + 1 + from_last == rank;
}

/* Does it sum up the columns of scores? */
static bool is_sum_of_columns(const struct cutter *c, node_id n)
{
    struct op_reduce r;
    return reduces(c, n, 1, &r) && r.combine == KI_ADD;
}

/* Adds the sums of columns of what has as many elements as the scores; false: they are too many. */
static bool add_columns(const struct cutter *c, struct node_set *s, value_id scores)
{
    for (u32 i = 0; i < s->n; i++) {
        value_id v = node_out(c->g, s->v[i]);
        for (u32 k = 0; has_as_many(c->g, scores, v) && k < c->users[v].n; k++) {
            node_id n = c->users[v].v[k];
            if (set_has(s, n) || !is_sum_of_columns(c, n)) continue;
            if (s->n == MAX_REGION - SPARE) return false;
            set_add(s, n);
        }
    }
    return true;
}

/* Only the second matmul, and what is computed beside, reads its left operand, which is no result. Others may need values in front of it, as gradients in the same graph do: statistics of
   rows are results, too, all else they compute themselves. */
static bool is_private(const struct cutter *c, const struct node_set *between, value_id left, node_id second)
{
    const struct node *x = graph_node(c->g, second);
    for (u32 k = 1; k < x->in.n; k++)
        if (x->in.v[k] == left) return false;
    for (u32 k = 0; k < c->users[left].n; k++)
        if (c->users[left].v[k] != second && !set_has(between, c->users[left].v[k])) return false;
    return !c->is_output[left];
}

/* Statistics of rows, and sums of columns, that are needed outside of what lies between the products, into `out`; false: so is something else, or they are too many. */
static bool find_statistics(const struct cutter *c, const struct node_set *between, value_id left, struct value_list *out)
{
    value_id live[MAX_REGION];
    u32 n = set_live_outs(c, between, live, countof(live)), n_others = 0;
    if (n > countof(live)) return false;
    for (u32 i = 0; i < n; i++) {
        bool is_of_scores = has_as_many(c->g, live[i], left);
        if (is_of_scores && live[i] != left) n_others++;
        if (is_of_scores && c->is_output[live[i]]) return false;
        if (!is_of_scores) *arr_push(c->a, out) = live[i];
    }
    return out->n < MAX_ATTENTION_RESULTS && (!n_others || out->n);
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

/* The next matmul with a column of scores for each column of v, whose front this is, and what lies between. 0: there is none. */
static node_id next_scores(const struct cutter *c, struct front *f, value_id v, struct node_set *s)
{
    node_id first;
    while ((first = take_largest(c, f)) != 0) {
        if (columns(c->g, node_out(c->g, first)) != columns(c->g, v)) continue;
        *s = set_new(c);
        set_add(s, first);
        if (add_between(c, f, s) && (has_reduction(c, s) || has_exp(c, s))) return first;
    }
    return 0;
}

u32 grow_attention(const struct cutter *c, struct node_set *s, bool has_statistics, value_id out[MAX_ATTENTION_RESULTS])
{
    struct front f;
    struct node_set own;
    node_id second = s->v[0];
    value_id left = graph_node(c->g, second)->in.v[0];
    if (!node_is(c->g, second, OP_MATMUL) || set_live_outs(c, s, out, 1) != 1) return 0;
    front_of(c, &f, left, true);
    while (next_scores(c, &f, left, &own)) {
        struct value_list statistics = {0};
        bool ok = (!has_statistics || add_statistics(c, &own)) && add_columns(c, &own, left) && is_private(c, &own, left, second);
        if (!ok || !find_statistics(c, &own, left, &statistics) || s->n + own.n > MAX_REGION - SPARE) continue;
        for (u32 i = 0; i < own.n; i++) set_add(s, own.v[i]);
        for (u32 i = 0; i < statistics.n; i++) out[i + 1] = statistics.v[i];
        return statistics.n + 1;
    }
    return 0;
}

/* Does the node compute something for each score, for each row, or for each column, from these alone and what is in front of them? `rows`: of rows; 0: none so far. */
static bool may_follow(const struct cutter *c, const struct node_set *s, value_id scores, value_id rows, node_id n)
{
    struct op_reduce r;
    if (graph_node(c->g, n)->out.n != 1 || !may_lie_between(c->g, n)) return false;
    if (node_is(c->g, n, OP_REDUCE)) return reduces(c, n, 0, &r) || is_sum_of_columns(c, n);
    return has_as_many(c->g, scores, node_out(c->g, n)) || (rows && is_of_rows(c, s, rows, n));
}

/* Adds what follows the scores; false: it is too much. */
static bool add_behind_scores(const struct cutter *c, struct node_set *s, value_id scores)
{
    value_id rows = 0;
    for (u32 i = 0; i < s->n; i++) {
        value_id v = node_out(c->g, s->v[i]);
        struct op_reduce r;
        if (!rows && reduces(c, s->v[i], 0, &r)) rows = v;
        if (i && is_sum_of_columns(c, s->v[i])) continue;
        for (u32 k = 0; k < c->users[v].n; k++) {
            node_id n = c->users[v].v[k];
            if (set_has(s, n) || !may_follow(c, s, scores, rows, n)) continue;
            if (s->n == MAX_REGION - SPARE) return false;
            set_add(s, n);
        }
    }
    return true;
}

u32 grow_scores(const struct cutter *c, struct node_set *s, value_id out[MAX_ATTENTION_RESULTS])
{
    struct node_set own = set_copy(c, s, 1);
    value_id scores = node_out(c->g, s->v[0]);
    if (!node_is(c->g, s->v[0], OP_MATMUL) || !add_behind_scores(c, &own, scores) || !has_reduction(c, &own) || !has_exp(c, &own)) return 0;
    u32 n = set_live_outs(c, &own, out, MAX_ATTENTION_RESULTS);
    if (n > MAX_ATTENTION_RESULTS) return 0;
    for (u32 i = 0; i < n; i++)
        if (has_as_many(c->g, out[i], scores)) return 0;
    *s = own;
    set_sort(s);
    return n;
}

/* Gradients: five matmuls. Their scores and slopes, products of rows of queries with keys and with values, reach the left operands of three more through
   pointwise nodes and views alone; one of these, of dq or dk, is where the search begins. Others may need what lies between, too, as the forward pass in the
   same graph does: they compute it themselves. */

static bool add_all(struct node_set *s, const struct node_set *more)
{
    if (s->n + more->n > MAX_REGION - SPARE) return false;
    for (u32 i = 0; i < more->n; i++)
        if (!set_has(s, more->v[i])) set_add(s, more->v[i]);
    return true;
}

static bool has_node(const struct front *f, node_id n)
{
    for (u32 i = 0; i < f->n; i++)
        if (f->v[i] == n) return true;
    return false;
}

/* Is the matmul a product of the gradients of these scores? Then it needs nothing but views that is not in front of the first one, `of`. Adds what lies in
   front of it. */
static bool add_product(const struct cutter *c, const struct front *of, const struct node_set *scores, node_id n, struct node_set *s)
{
    struct front f;
    struct node_set own = set_copy(c, scores, scores->n);
    if (graph_node(c->g, n)->dead || !node_is(c->g, n, OP_MATMUL) || set_has(scores, n) || !c->owner[n]) return false;
    front_of(c, &f, graph_node(c->g, n)->in.v[0], false);
    for (u32 i = 0; i < f.n_matmuls; i++)
        if (!set_has(scores, f.matmul[i])) return false;
    if (!f.n_matmuls || !add_between(c, &f, &own)) return false;
    for (u32 i = scores->n; i < own.n; i++)
        if (!node_is(c->g, own.v[i], OP_VIEW) && !has_node(of, own.v[i])) return false;
    return add_all(s, &own);
}

/* Adds what alone reads a result, views of as many elements and pointwise nodes with constants, and returns what becomes of it: several results are needed at a
   time where a program is selected. */
static value_id add_behind(const struct cutter *c, struct node_set *s, value_id v)
{
    while (!c->is_output[v] && c->users[v].n == 1 && s->n < MAX_REGION - SPARE) {
        node_id n = c->users[v].v[0];
        const struct node *x = graph_node(c->g, n);
        bool fits = !node_is(c->g, n, OP_REDUCE) && may_lie_between(c->g, n) && x->out.n == 1 && has_as_many(c->g, v, x->out.v[0]);
        for (u32 k = 0; k < x->in.n; k++) fits = fits && (!x->in.v[k] || x->in.v[k] == v || graph_value(c->g, x->in.v[k])->is_const);
        if (!fits || set_has(s, n)) break;
        set_add(s, n);
        v = x->out.v[0];
    }
    return v;
}

u32 grow_attention_grad(const struct cutter *c, struct node_set *s, value_id out[MAX_ATTENTION_RESULTS])
{
    struct front f;
    struct node_set scores = set_new(c), own;
    node_id last = s->v[0];
    u32 n_out = 0;
    if (!node_is(c->g, last, OP_MATMUL)) return 0;
    front_of(c, &f, graph_node(c->g, last)->in.v[0], false);
    if (f.n_matmuls != 2) return 0;
    for (u32 i = 0; i < 2; i++) set_add(&scores, f.matmul[i]);
    own = set_copy(c, &scores, scores.n);
    for (node_id n = 1; n < c->g->node.n; n++) {
        if (!add_product(c, &f, &scores, n, &own)) continue;
        const struct node_set *core = &c->anchored[c->owner[n] - 1];
        if (n_out == MAX_GRADIENTS || set_live_outs(c, core, &out[n_out], 1) != 1 || !add_all(&own, core)) return 0;
        out[n_out] = add_behind(c, &own, out[n_out]);
        n_out++;
    }
    if (n_out != MAX_GRADIENTS) return 0;
    *s = own;
    set_sort(s);
    return n_out;
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
        front_of(&c, &f, left, true);
        for (node_id first; (first = next_scores(&c, &f, left, &own)) != 0;) {
            if (!sums_exponentials(&c, &own)) continue;
            *arr_push(a, out) = (struct attention_pair){first, n};
            break;
        }
    }
}
