// SPDX-License-Identifier: Apache-2.0
//
// Positions, as exporters compute them: Range, sums and differences, constants, and views of these; in one normal form, the element's index times a number per
// axis. What is not of that form, or only for data, is not known.
#include "pass/pass_ramp.h"

enum { MAX_DEPTH = 12, MAX_VALUES = 64, MAX_CONTENT = 1 << 16 /* elements of a constant */ };
static const i64 most_position = (i64)1 << 40; /* beyond, arithmetic is no arithmetic of positions */

/* n: values that were looked at, those with several users again for each. */
struct finder { struct graph *g; u32 depth, n; };

static bool find(struct finder *f, value_id v, struct ramp *r);

static const struct shape *shape_of(const struct graph *g, value_id v) { return &graph_value(g, v)->shape; }

bool ramp_is_one(const struct graph *g, sym s)
{
    i64 c;
    return sym_is_const(g->sym, s, &c) && c == 1;
}

bool ramp_is_inside(struct graph *g, sym start, sym size, sym dim)
{
    i64 first, behind;
    return sym_lower_bound(g->sym, start, &first) && first >= 0 && sym_lower_bound(g->sym, sym_sub(g->sym, dim, sym_add(g->sym, start, size)), &behind) && behind >= 0;
}

static bool is_number(const struct ramp *r, u32 rank)
{
    for (u32 a = 0; a < rank; a++)
        if (r->step[a]) return false;
    return true;
}

static bool dtype_is_position(enum dtype t) { return t == DT_I64 || t == DT_I32; }

/* Of a constant: all elements (k -1), or those number k along the last axis. */
static bool of_elements(struct graph *g, const struct tensor *t, i64 k, struct ramp *r)
{
    i64 n = tensor_count(t), idx[MAX_RANK] = {0}, stride = 1;
    const u32 last = t->rank - 1;
    if (n < 1 || n > MAX_CONTENT || (k >= 0 && (!t->rank || k >= t->dim[last]))) return false;
    const i64 first = k < 0 ? 0 : k, base = elem_i64(t->dtype, t->data, first);
    *r = (struct ramp){.base = sym_const(g->sym, base)};
    for (u32 a = t->rank; a-- > 0; stride *= t->dim[a])
        if (t->dim[a] > 1 && (k < 0 || a != last)) r->step[a] = (i64)((u64)elem_i64(t->dtype, t->data, first + stride) - (u64)base);
    for (i64 i = 0; i < n; i++, op_next(t->rank, t->dim, idx)) {
        if (k >= 0 && idx[last] != k) continue;
        const i64 x = elem_i64(t->dtype, t->data, i);
        i64 want = base;
        if (x > most_position || x < -most_position) return false;
        for (u32 a = 0; a < t->rank; a++) want += r->step[a] * idx[a];
        if (want != x) return false;
    }
    return true;
}

static bool of_range(struct finder *f, const struct node *n, struct ramp *r)
{
    struct graph *g = f->g;
    struct ramp delta;
    i64 step;
    if (!find(f, n->in.v[0], r) || !find(f, n->in.v[2], &delta) || !sym_is_const(g->sym, delta.base, &step)) return false;
    r->step[0] = step;
    return true;
}

/* Steps of an operand along the axes of a broadcast result. */
static bool broadcast(struct finder *f, value_id v, u32 rank, struct ramp *r)
{
    struct graph *g = f->g;
    struct ramp own;
    const u32 own_rank = shape_of(g, v)->rank;
    if (!find(f, v, &own)) return false;
    *r = (struct ramp){.base = own.base};
    for (u32 a = 0; a < own_rank; a++) r->step[rank - own_rank + a] = own.step[a];
    return true;
}

/* a + sign * b */
static bool of_sum(struct finder *f, value_id a, value_id b, i64 sign, u32 rank, struct ramp *r)
{
    struct graph *g = f->g;
    struct ramp x;
    if (!broadcast(f, a, rank, r) || !broadcast(f, b, rank, &x)) return false;
    r->base = sign > 0 ? sym_add(g->sym, r->base, x.base) : sym_sub(g->sym, r->base, x.base);
    for (u32 i = 0; i < rank; i++) r->step[i] += sign * x.step[i];
    return true;
}

bool ramp_same_axes(const struct graph *g, const struct shape *from, const struct shape *to, i32 at[MAX_RANK])
{
    u32 j = 0;
    for (u32 a = 0; a < to->rank; a++) {
        at[a] = -1;
        if (ramp_is_one(g, to->dim[a])) continue;
        while (j < from->rank && ramp_is_one(g, from->dim[j])) j++;
        if (j == from->rank || from->dim[j] != to->dim[a]) return false;
        at[a] = (i32)j++;
    }
    while (j < from->rank && ramp_is_one(g, from->dim[j])) j++;
    return j == from->rank;
}

static bool of_view(struct finder *f, node_id n, struct ramp *r)
{
    struct graph *g = f->g;
    const struct node *x = graph_node(g, n);
    const struct shape from = *shape_of(g, x->in.v[0]), to = *shape_of(g, x->out.v[0]);
    struct ramp own;
    i32 at[MAX_RANK];
    const i64 *perm;
    if (!find(f, x->in.v[0], &own)) return false;
    *r = (struct ramp){.base = own.base};
    if (str_is(x->op, "Transpose")) {
        if (attr_ints(x, "perm", &perm) != from.rank) return false;
        for (u32 a = 0; a < to.rank; a++) r->step[a] = own.step[perm[a]];
        return true;
    }
    if (op_of(g, n)->props & OP_RESHAPE) {
        if (!ramp_same_axes(g, &from, &to, at)) return is_number(&own, from.rank);
        for (u32 a = 0; a < to.rank; a++) r->step[a] = at[a] < 0 ? 0 : own.step[at[a]];
        return true;
    }
    for (u32 a = 0; a < from.rank; a++) r->step[to.rank - from.rank + a] = own.step[a]; /* quern::Expand */
    return true;
}

static bool of_slice(struct finder *f, const struct node *n, struct ramp *r)
{
    struct graph *g = f->g;
    const i64 *step;
    sym start[MAX_RANK];
    const u32 rank = shape_of(g, n->out.v[0])->rank;
    if (attr_ints(n, "step", &step) != rank || op_get_syms(g, n, "start", start, MAX_RANK) != rank || !find(f, n->in.v[0], r)) return false;
    for (u32 a = 0; a < rank; a++) {
        r->base = sym_add(g->sym, r->base, sym_mul(g->sym, start[a], sym_const(g->sym, r->step[a])));
        r->step[a] *= step[a];
    }
    return true;
}

static bool of_node(struct finder *f, node_id id, struct ramp *r)
{
    struct graph *g = f->g;
    const struct node *n = graph_node(g, id);
    if (n->out.n != 1) return false;
    const u32 rank = shape_of(g, n->out.v[0])->rank;
    if (str_is(n->op, "Range")) return of_range(f, n, r);
    if (str_is(n->op, "Add")) return of_sum(f, n->in.v[0], n->in.v[1], 1, rank, r);
    if (str_is(n->op, "Sub")) return of_sum(f, n->in.v[0], n->in.v[1], -1, rank, r);
    if (str_is(n->op, "quern::Slice")) return of_slice(f, n, r);
    if (str_is(n->op, "Identity") || str_is(n->op, "Cast")) return find(f, n->in.v[0], r);
    if (str_is(n->op, "Transpose") || str_is(n->op, "quern::Expand") || op_of(g, id)->props & OP_RESHAPE) return of_view(f, id, r);
    return false;
}

static bool find(struct finder *f, value_id v, struct ramp *r)
{
    struct graph *g = f->g;
    const struct value *x = graph_value(g, v);
    bool ok = false;
    if (f->depth == MAX_DEPTH || f->n++ == MAX_VALUES || !dtype_is_position(x->dtype)) return false;
    f->depth++;
    if (x->data) ok = of_elements(g, x->data, -1, r);
    else if (x->sdata && x->sdata->n == 1 && x->sdata->den == 1) *r = (struct ramp){.base = x->sdata->num[0]}, ok = true;
    else ok = x->producer && of_node(f, x->producer, r);
    f->depth--;
    for (u32 a = 0; ok && a < shape_of(g, v)->rank; a++)
        if (ramp_is_one(g, shape_of(g, v)->dim[a])) r->step[a] = 0;
    return ok;
}

bool ramp_of(struct graph *g, value_id v, struct ramp *r) { return find(&(struct finder){.g = g}, v, r); }

bool ramp_of_part(struct graph *g, value_id v, u32 k, struct ramp *r)
{
    const u32 rank = shape_of(g, v)->rank, last = rank - 1;
    const node_id p = graph_value(g, v)->producer;
    u32 axis;
    if (!rank) return false;
    if (p && op_of(g, p)->join && op_of(g, p)->join(g, graph_node(g, p), &axis) && axis == last) {
        const struct node *n = graph_node(g, p);
        for (u32 i = 0; i < n->in.n; i++)
            if (!ramp_is_one(g, shape_of(g, n->in.v[i])->dim[last])) return false;
        return k < n->in.n && ramp_of(g, n->in.v[k], r);
    }
    if (graph_value(g, v)->data) return dtype_is_position(graph_value(g, v)->dtype) && of_elements(g, graph_value(g, v)->data, k, r);
    if (!ramp_of(g, v, r)) return false;
    r->base = sym_add(g->sym, r->base, sym_const(g->sym, k * r->step[last]));
    r->step[last] = 0;
    return true;
}

bool ramp_compared(struct graph *g, const struct node *n, struct ramp *r)
{
    static const struct { const char *op; bool is_swapped; i64 less; } ops[] = {
        {"LessOrEqual", false, 0}, {"Less", false, 1}, {"GreaterOrEqual", true, 0}, {"Greater", true, 1}};
    for (u32 i = 0; i < countof(ops); i++) {
        if (!str_is(n->op, ops[i].op)) continue;
        value_id left = n->in.v[ops[i].is_swapped], right = n->in.v[!ops[i].is_swapped];
        if (!of_sum(&(struct finder){.g = g}, right, left, -1, shape_of(g, n->out.v[0])->rank, r)) return false;
        r->base = sym_sub(g->sym, r->base, sym_const(g->sym, ops[i].less));
        return true;
    }
    return false;
}

static bool is_uniform_constant(const struct tensor *t, double *number)
{
    const i64 n = tensor_count(t);
    if (n < 1 || n > MAX_CONTENT) return false;
    *number = elem_f64(t->dtype, t->data, 0);
    for (i64 i = 1; i < n; i++)
        if (elem_f64(t->dtype, t->data, i) != *number) return false;
    return true;
}

/* A comparison that holds for all indices. */
static bool is_always(struct graph *g, const struct node *n)
{
    struct ramp r;
    i64 least;
    if (!ramp_compared(g, n, &r) || !sym_lower_bound(g->sym, r.base, &least) || least < 0) return false;
    for (u32 a = 0; a < shape_of(g, n->out.v[0])->rank; a++)
        if (r.step[a] < 0) return false;
    return true;
}

bool ramp_is_uniform(struct graph *g, value_id v, double *number)
{
    for (u32 depth = 0; depth < MAX_DEPTH; depth++) {
        const struct value *x = graph_value(g, v);
        const struct node *n = x->producer ? graph_node(g, x->producer) : NULL;
        if (x->data) return is_uniform_constant(x->data, number);
        if (!n || n->out.n != 1) return false;
        if (str_is(n->op, "ConstantOfShape")) {
            const struct attr *a = node_attr(n, "value");
            *number = 0;
            return !a || (a->kind == ATTR_TENSOR && is_uniform_constant(a->t, number));
        }
        if (x->dtype == DT_BOOL && is_always(g, n)) return *number = 1, true;
        if (!(str_is(n->op, "quern::Expand") || str_is(n->op, "Identity") || op_of(g, x->producer)->props & OP_RESHAPE)) return false;
        v = n->in.v[0];
    }
    return false;
}
