// SPDX-License-Identifier: Apache-2.0
//
// bands: masks of positions become quern::Band, which kernels of attention know, whatever the exporter wrote for them: comparisons of ranges, triangles of ones,
// constants (as folding makes of short ones), And, Not, Equal and Where of these. A value that has one number inside of a band and another one outside is a
// choice; a boolean one becomes the band itself, or the opposite one of a band with one side, and one that masks becomes Where of that, with the number that
// masks outside. Bands that meet in a conjunction become one; what else is in it stays, once. requires: expanded, inferred.
//
// What is found of a value is remembered: constants are looked at once, and values with several users are not followed again for each. Values are asked for in
// the order of nodes, so that those which they are computed from are known already; what replaces them has the same elements.
#include "pass/pass_ramp.h"

#include <math.h>

enum { MAX_DEPTH = 12 /* of values that are not known yet */, MAX_PARTS = 8, MAX_ANDS = 32, MIN_CONSTANT = 64, MAX_CONSTANT = 1 << 24 /* elements */ };
static const double masking = -1e4; /* what a mask adds, at most */

/* Elements whose index j along one axis lies in i + low .. i + high, i along an axis in front of it. Axes count from the last one, 0. */
struct band { u32 row, col; bool has_low, has_high; sym low, high; };

struct choice { struct band b; double yes, no; };

struct known { bool is_known, is_choice; struct choice c; };

struct finder {
    struct graph *g;
    struct arena *a;
    struct { struct known *v; u32 n, cap; } known; /* by value */
    u32 depth;
};

static bool find(struct finder *f, value_id v, struct choice *c);

static const struct shape *shape_of(const struct graph *g, value_id v) { return &graph_value(g, v)->shape; }
static sym dim_of(const struct shape *s, u32 from_last) { return s->dim[s->rank - 1 - from_last]; }
static sym plus(struct graph *g, sym a, i64 b) { return sym_add(g->sym, a, sym_const(g->sym, b)); }

/* Outside of it is a band, too? */
static bool invert(struct graph *g, struct band *b)
{
    if (b->has_low == b->has_high) return false;
    if (b->has_high) b->low = plus(g, b->high, 1);
    else b->high = plus(g, b->low, -1);
    b->has_low = !b->has_low, b->has_high = !b->has_high;
    return true;
}

/* The least (sign -1: the greatest) of two that differ by a number. */
static bool meet(struct graph *g, sym *a, sym b, i64 sign)
{
    i64 more;
    if (!sym_is_const(g->sym, sym_sub(g->sym, b, *a), &more)) return false;
    if (sign * more < 0) *a = b;
    return true;
}

static bool meet_all(struct graph *g, struct band *a, const struct band *b)
{
    if (a->row != b->row || a->col != b->col) return false;
    if (b->has_low && a->has_low && !meet(g, &a->low, b->low, -1)) return false;
    if (b->has_high && a->has_high && !meet(g, &a->high, b->high, 1)) return false;
    if (b->has_low && !a->has_low) a->has_low = true, a->low = b->low;
    if (b->has_high && !a->has_high) a->has_high = true, a->high = b->high;
    return true;
}

/* Attributes of quern::Band; false: its width depends on sizes. */
static bool encode(struct graph *g, const struct band *b, sym *offset, i64 *left, i64 *right)
{
    *left = b->has_low ? 0 : -1, *right = b->has_high ? 0 : -1;
    *offset = b->has_high ? b->high : b->low;
    if (!b->has_low || !b->has_high) return b->has_low || b->has_high;
    return sym_is_const(g->sym, sym_sub(g->sym, b->high, b->low), left) && *left >= 0;
}

/* Of a comparison: right - left is base and one index less another one. */
static bool of_comparison(struct graph *g, const struct node *n, struct band *b)
{
    struct ramp r;
    const u32 rank = shape_of(g, n->out.v[0])->rank;
    u32 axis[2], n_axes = 0;
    if (!ramp_compared(g, n, &r)) return false;
    for (u32 a = 0; a < rank; a++) {
        if (!r.step[a]) continue;
        if (n_axes == 2) return false;
        axis[n_axes++] = a;
    }
    if (n_axes != 2 || r.step[axis[0]] != -r.step[axis[1]] || (r.step[axis[0]] != 1 && r.step[axis[0]] != -1)) return false;
    *b = (struct band){.row = rank - 1 - axis[0], .col = rank - 1 - axis[1]};
    if (r.step[axis[0]] > 0) b->has_high = true, b->high = r.base; /* j <= i + base */
    else b->has_low = true, b->low = sym_sub(g->sym, sym_const(g->sym, 0), r.base);
    return true;
}

/* Views. */

static bool of_permutation(struct graph *g, const struct node *n, struct band *b)
{
    const i64 *perm;
    const u32 rank = shape_of(g, n->out.v[0])->rank;
    u32 row = b->row, col = b->col;
    if (attr_ints(n, "perm", &perm) != rank) return false;
    for (u32 a = 0; a < rank; a++) {
        if (rank - 1 - (u32)perm[a] == row) b->row = rank - 1 - a;
        if (rank - 1 - (u32)perm[a] == col) b->col = rank - 1 - a;
    }
    if (b->row > b->col) return true;
    const struct band x = *b;
    const sym zero = sym_const(g->sym, 0);
    *b = (struct band){.row = x.col, .col = x.row, .has_low = x.has_high, .has_high = x.has_low};
    if (x.has_high) b->low = sym_sub(g->sym, zero, x.high);
    if (x.has_low) b->high = sym_sub(g->sym, zero, x.low);
    return true;
}

static bool of_reshape(struct graph *g, const struct node *n, struct band *b)
{
    const struct shape *from = shape_of(g, n->in.v[0]), *to = shape_of(g, n->out.v[0]);
    const i32 row = (i32)(from->rank - 1 - b->row), col = (i32)(from->rank - 1 - b->col);
    i32 at[MAX_RANK];
    u32 found = 0;
    if (!ramp_same_axes(g, from, to, at)) return false;
    for (u32 a = 0; a < to->rank; a++) {
        if (at[a] == row) b->row = to->rank - 1 - a, found |= 1;
        if (at[a] == col) b->col = to->rank - 1 - a, found |= 2;
    }
    return found == 3;
}

static bool of_slice(struct graph *g, const struct node *n, struct band *b)
{
    const i64 *step;
    sym start[MAX_RANK];
    const u32 rank = shape_of(g, n->out.v[0])->rank, row = rank - 1 - b->row, col = rank - 1 - b->col;
    if (attr_ints(n, "step", &step) != rank || op_get_syms(g, n, "start", start, MAX_RANK) != rank || step[row] != 1 || step[col] != 1) return false;
    sym by = sym_sub(g->sym, start[row], start[col]);
    if (b->has_low) b->low = sym_add(g->sym, b->low, by);
    if (b->has_high) b->high = sym_add(g->sym, b->high, by);
    return true;
}

static bool of_view(struct finder *f, node_id id, struct choice *c)
{
    struct graph *g = f->g;
    const struct node *n = graph_node(g, id);
    if (!find(f, n->in.v[0], c)) return false;
    if (str_is(n->op, "Identity")) return true;
    if (str_is(n->op, "Transpose")) return of_permutation(g, n, &c->b);
    if (str_is(n->op, "quern::Slice")) return of_slice(g, n, &c->b);
    const struct shape *from = shape_of(g, n->in.v[0]), *to = shape_of(g, n->out.v[0]);
    if (str_is(n->op, "quern::Expand")) return dim_of(from, c->b.row) == dim_of(to, c->b.row) && dim_of(from, c->b.col) == dim_of(to, c->b.col);
    return of_reshape(g, n, &c->b);
}

/* Constants: two numbers, of which one is in a band. */

struct table { const struct tensor *t; i64 rows, cols; };

static double element(const struct table *x, i64 i, i64 j) { return elem_f64(x->t->dtype, x->t->data, i * x->cols + j); }

/* The distances j - i of elements that are `number`; false: there are none, or others are between them. */
static bool find_distances(const struct table *x, double number, i64 *low, i64 *high)
{
    *low = INT64_MAX, *high = INT64_MIN;
    for (i64 i = 0; i < x->rows; i++)
        for (i64 j = 0; j < x->cols; j++)
            if (element(x, i, j) == number) *low = i64_min(*low, j - i), *high = i64_max(*high, j - i);
    for (i64 i = 0; i < x->rows; i++)
        for (i64 j = 0; j < x->cols; j++)
            if ((element(x, i, j) == number) != (j - i >= *low && j - i <= *high)) return false;
    return *low <= *high;
}

/* The other number; false: there is none, or more than two. */
static bool find_other(const struct table *x, double number, double *other)
{
    bool has = false;
    for (i64 i = 0; i < x->rows * x->cols; i++) {
        const double v = elem_f64(x->t->dtype, x->t->data, i);
        if (v == number || (has && v == *other)) continue;
        if (has || isnan(v)) return false;
        *other = v, has = true;
    }
    return has;
}

static bool of_constant(struct graph *g, const struct tensor *t, struct choice *c)
{
    const u32 r = t->rank;
    const i64 n = tensor_count(t);
    double number, other = 0;
    i64 low, high;
    if (r < 2 || n < MIN_CONSTANT || n > MAX_CONSTANT || n != t->dim[r - 1] * t->dim[r - 2] || (t->dtype != DT_BOOL && !dtype_is_float(t->dtype))) return false;
    const struct table x = {.t = t, .rows = t->dim[r - 2], .cols = t->dim[r - 1]};
    if (x.rows < 2 || x.cols < 2 || isnan(number = element(&x, 0, 0)) || !find_other(&x, number, &other)) return false;
    if (t->dtype != DT_BOOL && fmin(number, other) > masking) return false;
    if (!find_distances(&x, number, &low, &high)) {
        const double swap = number;
        number = other, other = swap;
        if (!find_distances(&x, number, &low, &high)) return false;
    }
    c->yes = number, c->no = other;
    c->b = (struct band){.row = 1, .col = 0, .has_low = low > 1 - x.rows, .has_high = high < x.cols - 1, .low = sym_const(g->sym, low), .high = sym_const(g->sym, high)};
    return true;
}

/* Nodes. */

static bool is_boolean(const struct choice *c) { return c->yes == 1 && c->no == 0; }

static bool of_band(struct graph *g, const struct node *n, node_id id, struct band *b)
{
    struct op_band x;
    if (!op_of(g, id)->band || !op_of(g, id)->band(g, n, &x)) return false;
    *b = (struct band){.row = 1, .col = 0, .has_low = x.left >= 0, .has_high = x.right >= 0};
    if (b->has_low) b->low = plus(g, x.offset, -x.left);
    if (b->has_high) b->high = plus(g, x.offset, x.right);
    return true;
}

static bool of_triangle(struct graph *g, const struct node *n, struct choice *c)
{
    sym k;
    const bool is_upper = attr_int(n, "upper", 1);
    if (!ramp_is_uniform(g, n->in.v[0], &c->yes) || op_get_syms(g, n, "k", &k, 1) != 1) return false;
    c->no = 0;
    c->b = (struct band){.row = 1, .col = 0, .has_low = is_upper, .has_high = !is_upper, .low = k, .high = k};
    return true;
}

/* A band over the last axes of a result, of an operand that is broadcast there; rows and columns must be the result's. */
static bool spans(const struct graph *g, const struct choice *c, value_id of, value_id result)
{
    const struct shape *from = shape_of(g, of), *to = shape_of(g, result);
    return dim_of(from, c->b.row) == dim_of(to, c->b.row) && dim_of(from, c->b.col) == dim_of(to, c->b.col);
}

static bool of_where(struct finder *f, const struct node *n, struct choice *c)
{
    struct graph *g = f->g;
    double yes, no;
    if (!find(f, n->in.v[0], c) || !is_boolean(c) || !spans(g, c, n->in.v[0], n->out.v[0])) return false;
    if (!ramp_is_uniform(g, n->in.v[1], &yes) || !ramp_is_uniform(g, n->in.v[2], &no)) return false;
    c->yes = yes, c->no = no;
    return !isnan(yes) && !isnan(no);
}

static bool of_equal(struct finder *f, const struct node *n, struct choice *c)
{
    struct graph *g = f->g;
    double number;
    const u32 k = ramp_is_uniform(g, n->in.v[0], &number);
    if (!k && !ramp_is_uniform(g, n->in.v[1], &number)) return false;
    if (!find(f, n->in.v[k], c) || !spans(g, c, n->in.v[k], n->out.v[0])) return false;
    c->yes = c->yes == number, c->no = c->no == number;
    return true;
}

static bool of_and(struct finder *f, const struct node *n, struct choice *c)
{
    struct graph *g = f->g;
    struct choice b;
    double number;
    for (u32 k = 0; k < 2; k++)
        if (ramp_is_uniform(g, n->in.v[k], &number) && number != 0) return find(f, n->in.v[1 - k], c) && is_boolean(c) && spans(g, c, n->in.v[1 - k], n->out.v[0]);
    if (!find(f, n->in.v[0], c) || !find(f, n->in.v[1], &b) || !is_boolean(c) || !is_boolean(&b)) return false;
    return spans(g, c, n->in.v[0], n->out.v[0]) && spans(g, &b, n->in.v[1], n->out.v[0]) && meet_all(g, &c->b, &b.b);
}

/* Numbers that are not rounded. */
static bool of_cast(struct finder *f, const struct node *n, struct choice *c)
{
    struct graph *g = f->g;
    if (!find(f, n->in.v[0], c)) return false;
    if (graph_value(g, n->out.v[0])->dtype == DT_BOOL) c->yes = c->yes != 0, c->no = c->no != 0;
    return (c->yes == 0 || c->yes == 1) && (c->no == 0 || c->no == 1);
}

/* With a number: (1 - mask) * -10000. */
static bool of_arithmetic(struct finder *f, const struct node *n, struct choice *c)
{
    struct graph *g = f->g;
    double number;
    const bool adds = str_is(n->op, "Add"), multiplies = str_is(n->op, "Mul");
    if ((!adds && !multiplies && !str_is(n->op, "Sub")) || graph_value(g, n->out.v[0])->dtype != DT_F32) return false;
    const u32 k = ramp_is_uniform(g, n->in.v[0], &number);
    if (!k && !ramp_is_uniform(g, n->in.v[1], &number)) return false;
    if (!find(f, n->in.v[k], c) || !spans(g, c, n->in.v[k], n->out.v[0])) return false;
    for (u32 i = 0; i < 2; i++) {
        double *x = i ? &c->no : &c->yes;
        const float a = (float)*x, b = (float)number;
        *x = (double)(adds ? a + b : multiplies ? a * b : k ? b - a : a - b);
    }
    return !isnan(c->yes) && !isnan(c->no);
}

static bool of_node(struct finder *f, node_id id, struct choice *c)
{
    struct graph *g = f->g;
    const struct node *n = graph_node(g, id);
    if (n->out.n != 1) return false;
    c->yes = 1, c->no = 0;
    if (of_band(g, n, id, &c->b) || of_comparison(g, n, &c->b)) return true;
    if (str_is(n->op, "quern::Trilu")) return of_triangle(g, n, c);
    if (str_is(n->op, "Where")) return of_where(f, n, c);
    if (str_is(n->op, "And")) return of_and(f, n, c);
    if (str_is(n->op, "Equal")) return of_equal(f, n, c);
    if (str_is(n->op, "Identity") || str_is(n->op, "Transpose") || str_is(n->op, "quern::Slice") || str_is(n->op, "quern::Expand") || op_of(g, id)->props & OP_RESHAPE)
        return of_view(f, id, c);
    if (str_is(n->op, "Not")) return find(f, n->in.v[0], c) && (c->yes = !c->yes, c->no = !c->no, true);
    if (str_is(n->op, "Cast")) return of_cast(f, n, c);
    return of_arithmetic(f, n, c);
}

/* A boolean choice is a band if that has it: true inside. */
static bool normalise(struct graph *g, struct choice *c)
{
    if (c->yes != 0 || c->no == 0) return true;
    c->yes = c->no, c->no = 0;
    return invert(g, &c->b);
}

static bool find_new(struct finder *f, value_id v, struct choice *c)
{
    const struct value *x = graph_value(f->g, v);
    const enum dtype t = x->dtype;
    bool ok = x->data ? of_constant(f->g, x->data, c) : x->producer && of_node(f, x->producer, c);
    return ok && (t != DT_BOOL || normalise(f->g, c));
}

static bool find(struct finder *f, value_id v, struct choice *c)
{
    if (!v) return false;
    while (f->known.n <= v) arr_push(f->a, &f->known);
    if (!f->known.v[v].is_known) {
        if (f->depth == MAX_DEPTH) return false;
        f->depth++;
        struct known now = {.is_known = true};
        now.is_choice = find_new(f, v, &now.c);
        f->known.v[v] = now;
        f->depth--;
    }
    *c = f->known.v[v].c;
    return f->known.v[v].is_choice;
}

/* What it becomes. */

static value_id add_band(struct graph *g, node_id like, const struct band *b, const struct shape *s)
{
    sym offset, dim[MAX_RANK];
    i64 left, right;
    if (!encode(g, b, &offset, &left, &right)) return 0;
    value_id v = op_node(g, like, "quern::Band", 0, NULL, 0);
    op_set_syms(g, op_made(g, v), "size", (const sym[]){dim_of(s, b->row), dim_of(s, b->col)}, 2);
    op_set_syms(g, op_made(g, v), "offset", &offset, 1);
    attr_set_int(g, op_made(g, v), "left", left);
    attr_set_int(g, op_made(g, v), "right", right);
    for (u32 a = 0; a < s->rank; a++) dim[a] = s->rank - 1 - a == b->row || s->rank - 1 - a == b->col ? s->dim[a] : sym_const(g->sym, 1);
    if (s->rank > 2) v = op_node_reshape(g, like, v, s->rank, dim, 0);
    return v;
}

static value_id expanded(struct graph *g, node_id like, value_id v, const struct shape *s)
{
    return op_node_expand(g, like, v, s->rank, s->dim, 0);
}

/* Numbers inside and outside, of a mask with the one that masks outside. */
static value_id add_choice(struct graph *g, node_id like, struct choice *c, const struct value *of)
{
    const struct shape s = of->shape;
    const enum dtype t = of->dtype;
    if (t == DT_BOOL && !is_boolean(c)) return 0;
    if (t != DT_BOOL && c->yes < c->no && invert(g, &c->b)) {
        const double yes = c->no;
        c->no = c->yes, c->yes = yes;
    }
    value_id v = add_band(g, like, &c->b, &s);
    if (v && t != DT_BOOL) {
        const value_id no = op_const_f(g, t, c->no), yes = op_const_f(g, t, c->yes); /* in this order, whatever compiler builds it */
        v = op_node_where(g, like, v, yes, no, 0);
    }
    return v ? expanded(g, like, v, &s) : 0;
}

/* Nothing is left to do: the band itself, views, and Where of it. */
static bool is_done(struct graph *g, node_id id, const struct choice *c)
{
    const struct node *n = graph_node(g, id);
    struct band b;
    if (of_band(g, n, id, &b) || op_of(g, id)->props & OP_RESHAPE || str_is(n->op, "quern::Expand") || str_is(n->op, "Identity")) return true;
    const enum dtype t = graph_value(g, n->out.v[0])->dtype;
    if (t == DT_BOOL) return false;
    if (!dtype_is_float(t) || fmin(c->yes, c->no) > masking) return true; /* integers may have more digits than a double */
    return str_is(n->op, "Where") && (c->yes >= c->no || c->b.has_low == c->b.has_high);
}

static bool put(struct graph *g, value_id old, value_id new, node_id first, bool *ok, struct err *e)
{
    if (!new) return false;
    *ok = op_infer_from(g, first, e);
    graph_replace(g, old, new);
    return true;
}

static bool replace(struct finder *f, node_id id, bool *ok, struct err *e)
{
    struct graph *g = f->g;
    struct choice c;
    const struct node *n = graph_node(g, id);
    const value_id v = n->out.n == 1 ? n->out.v[0] : 0;
    const node_id first = g->node.n;
    if (!find(f, v, &c) || graph_is_output(g, v) || !graph_is_read(g, v) || is_done(g, id, &c)) return false;
    const struct value of = *graph_value(g, v);
    return put(g, v, add_choice(g, id, &c, &of), first, ok, e);
}

static bool replace_constant(struct finder *f, value_id v, bool *ok, struct err *e)
{
    struct graph *g = f->g;
    struct choice c;
    if (!graph_value(g, v)->data || !graph_is_read(g, v) || graph_is_output(g, v) || !find(f, v, &c)) return false;
    const struct value of = *graph_value(g, v);
    const node_id first = g->node.n;
    return put(g, v, add_choice(g, 0, &c, &of), first, ok, e);
}

/* Conjunctions of several, not all of which are bands. */

struct parts {
    value_id v[MAX_PARTS];
    u32 n, n_ands;
    bool are_fewer; /* than stand there: some are always true, or the same */
};

static bool has_part(const struct parts *p, value_id v)
{
    for (u32 i = 0; i < p->n; i++)
        if (p->v[i] == v) return true;
    return false;
}

static bool add_parts(struct graph *g, value_id v, struct parts *p)
{
    const node_id id = graph_value(g, v)->producer;
    double number;
    if (id && str_is(graph_node(g, id)->op, "And"))
        return p->n_ands++ < MAX_ANDS && add_parts(g, graph_node(g, id)->in.v[0], p) && add_parts(g, graph_node(g, id)->in.v[1], p);
    if (has_part(p, v) || (ramp_is_uniform(g, v, &number) && number != 0)) return p->are_fewer = true;
    if (p->n == MAX_PARTS) return false;
    p->v[p->n++] = v;
    return true;
}

/* Bands of the result's rows and columns become one, in front of the other parts; 0: there are not several. */
static value_id join_bands(struct finder *f, node_id id, const struct parts *p)
{
    struct graph *g = f->g;
    const value_id out = graph_node(g, id)->out.v[0];
    const struct shape s = *shape_of(g, out);
    struct choice all = {0}, c;
    struct parts rest = {0};
    u32 n_bands = 0;
    for (u32 i = 0; i < p->n; i++) {
        bool is_band = find(f, p->v[i], &c) && is_boolean(&c) && spans(g, &c, p->v[i], out) && (!n_bands || meet_all(g, &all.b, &c.b));
        if (is_band && !n_bands++) all = c;
        if (!is_band) rest.v[rest.n++] = p->v[i];
    }
    if (n_bands < 2) return 0;
    value_id v = add_band(g, id, &all.b, &s);
    for (u32 i = 0; v && i < rest.n; i++) v = op_node2(g, id, "And", v, rest.v[i], 0);
    return v;
}

/* What is always true, or there already, is left out. */
static value_id join_others(struct graph *g, node_id id, const struct parts *p)
{
    if (!p->are_fewer || !p->n) return 0;
    value_id v = p->v[0];
    for (u32 i = 1; i < p->n; i++) v = op_node2(g, id, "And", v, p->v[i], 0);
    return v;
}

static bool join(struct finder *f, node_id id, bool *ok, struct err *e)
{
    struct graph *g = f->g;
    struct parts p = {0};
    if (!str_is(graph_node(g, id)->op, "And")) return false;
    const value_id out = graph_node(g, id)->out.v[0];
    const struct shape s = *shape_of(g, out);
    const node_id first = g->node.n;
    if (graph_is_output(g, out) || !graph_is_read(g, out) || !add_parts(g, out, &p)) return false;
    value_id v = join_bands(f, id, &p);
    if (!v) v = join_others(g, id, &p);
    return put(g, out, v ? expanded(g, id, v, &s) : 0, first, ok, e);
}

static bool run(struct graph *g, bool *ok, struct err *e)
{
    struct arena own = {0};
    struct finder f = {.g = g, .a = &own};
    bool changed = false;
    for (value_id v = 1, end = g->value.n; v < end && *ok; v++) changed |= replace_constant(&f, v, ok, e);
    for (node_id n = 1, end = g->node.n; n < end && *ok; n++)
        if (!graph_node(g, n)->dead) changed |= replace(&f, n, ok, e) || (*ok && join(&f, n, ok, e));
    arena_release(&own);
    return changed;
}

const struct pass pass_bands = {
    .version = 1,
    .name = "bands",
    .summary = "masks of positions become bands, in any spelling",
    .rank = 151,
    .run = run,
};
