// SPDX-License-Identifier: Apache-2.0
//
// fixed: requantisation of integer sums in integers. For devices that lack fast floating point. requires: expanded, inferred, factors folded (rescale).
// ensures: new nodes are inferred.
//
//   round(clamp(x * s)) [+ zero], x an i32, s a positive constant for each channel
//       clamp((x * m + 2^(shift-1)) >> shift) [+ zero], m an i32 for each channel         (quern::MulShift, or MulShiftEven where there are ties)
//   round(clamp((x * s + y * t) * c)) [+ zero], x and y bytes less their zero points
//       clamp((x * m + y * n + 2^(shift-1)) >> shift) [+ zero], in i64
//   round(clamp(mean of x * s)) [+ zero], x bytes less their zero point
//       that of the first, of the sum of x
//
// Factors have 31 bits, those of two as many as i64 holds: results are rounded once, and differ from those of f32 only where the exact value is nearer to a
// tie than f32 resolves (2^-24 of it). There f32 errs, too.
#include "pass/pass_linear.h"
#include "pass/pass_match.h"

#include <math.h>

enum { BITS = 31, WIDE_BITS = 44, MAX_STEPS = 1 << 8 };

struct fixer {
    struct graph *g;
    struct matcher m;
    struct arena *a;
    struct err *e;
    bool *ok;
};

/* A quantisation: cast(round(clamp(sum)) + zero). */
struct quantisation {
    value_id sum;
    double least, most; /* of the clamp, integers */
    value_id zero;      /* f32; 0: none */
};

static value_id input(const struct fixer *f, node_id n, i32 k) { return graph_node(f->g, n)->in.v[k]; }

/* Which input of the binary node n is a constant of f32. -1: none, or both. */
static i32 constant_side(const struct fixer *f, node_id n)
{
    for (i32 k = 0; k < 2; k++) {
        const struct value *c = graph_value(f->g, input(f, n, k));
        if (c->data && c->dtype == DT_F32 && !graph_value(f->g, input(f, n, 1 - k))->is_const) return k;
    }
    return -1;
}

/* v = op(x, c), c a constant of one element: the number, and x. */
static bool cut_number(const struct fixer *f, value_id *v, const char *op, double *number)
{
    node_id n = match_only(&f->m, *v, op);
    i32 k = n ? constant_side(f, n) : -1;
    if (k < 0 || !linear_number(f->g, input(f, n, k), number)) return false;
    *v = input(f, n, 1 - k);
    return true;
}

static bool find_quantisation(const struct fixer *f, node_id n, struct quantisation *q)
{
    const struct node *x = graph_node(f->g, n);
    value_id v = x->in.v[0];
    double zero = 0;
    *q = (struct quantisation){0};
    node_id add = match_only(&f->m, v, "Add");
    if (add) {
        i32 k = constant_side(f, add);
        if (k < 0 || !cut_number(f, &v, "Add", &zero) || zero != rint(zero)) return false;
        q->zero = input(f, add, k);
    }
    node_id round = match_only(&f->m, v, "Round");
    if (!round) return false;
    v = input(f, round, 0);
    if (!cut_number(f, &v, "quern::Min", &q->most) || !cut_number(f, &v, "quern::Max", &q->least)) return false;
    if (q->most != rint(q->most) || q->least != rint(q->least) || q->most - q->least >= MAX_STEPS || q->most < q->least) return false;
    if (fabs(q->most) > 512 || fabs(q->least) > 512 || fabs(zero) > 512) return false;
    q->sum = v;
    return true;
}

/* The i32 that v is in f32; 0: it is none. */
static value_id integer_of(const struct fixer *f, value_id v)
{
    node_id n = match_any(f->g, v, "Cast");
    if (!n || graph_value(f->g, v)->dtype != DT_F32 || graph_value(f->g, input(f, n, 0))->dtype != DT_I32) return 0;
    return input(f, n, 0);
}

/* Sums of one factor for each channel. */

/* The shift such that factors have as many bits as i32; 0: scales are too large, or too different. */
static u32 shift_for(const struct tensor *s)
{
    double most = 0, least = INFINITY;
    for (i64 i = 0; i < tensor_count(s); i++) {
        double x = elem_f64(DT_F32, s->data, i);
        if (!(x > 0)) return 0;
        most = fmax(most, x), least = fmin(least, x);
    }
    int e;
    frexp(most, &e); /* most < 2^e */
    return most > 0 && e <= 0 && e > -24 && least > most / 4096 ? (u32)(BITS - e) : 0;
}

static value_id add_const(struct fixer *f, struct tensor *t) { return graph_add_const(f->g, S("factor"), t); }

static value_id number(struct fixer *f, enum dtype t, i64 v)
{
    struct tensor *x = tensor_new(f->g->arena, t, 0, NULL);
    elem_set_i64(t, x->data, 0, v);
    return add_const(f, x);
}

/* x * m is a tie, an odd multiple of 2^(shift-1), only for x that are multiples of 2^(shift-1) / (the power of two in m). These are beyond the clamp unless what
   remains of m is small. Powers of two are common scales. */
static bool may_tie(i64 m)
{
    enum { LARGEST_RESULT = 1 << 10 };
    while (m && m % 2 == 0) m /= 2;
    return m < 2 * LARGEST_RESULT;
}

/* x * scales as an integer; 0: impossible. */
static value_id scaled(struct fixer *f, node_id like, value_id x, const struct tensor *s)
{
    u32 shift = shift_for(s);
    if (!shift) return 0;
    struct tensor *m = tensor_try(f->g->arena, DT_I32, s->rank, s->dim, f->e, "factors of ", graph_node(f->g, like)->name);
    if (!m) return *f->ok = false, 0;
    bool has_ties = false;
    for (i64 i = 0; i < tensor_count(s); i++) {
        i64 factor = i64_min((i64)rint(elem_f64(DT_F32, s->data, i) * (double)((i64)1 << shift)), INT32_MAX);
        has_ties |= may_tie(factor);
        elem_set_i64(DT_I32, m->data, i, factor);
    }
    return op_node(f->g, like, has_ties ? "quern::MulShiftEven" : "quern::MulShift", 3, (value_id[]){x, add_const(f, m), number(f, DT_I32, shift)}, 0);
}

/* Sums of two bytes. */

struct term { value_id x; double scale; };

/* v = x * scale, x a byte less its zero point. */
static bool find_term(const struct fixer *f, value_id v, struct term *t)
{
    node_id n = match_any(f->g, v, "Mul");
    i32 k = n ? constant_side(f, n) : -1;
    if (k < 0 || !linear_number(f->g, input(f, n, k), &t->scale)) return false;
    t->x = integer_of(f, input(f, n, 1 - k));
    node_id sub = t->x ? match_any(f->g, t->x, "Sub") : 0;
    value_id byte = sub ? input(f, sub, 0) : t->x;
    node_id cast = byte ? match_any(f->g, byte, "Cast") : 0;
    if (!cast || (sub && !graph_value(f->g, input(f, sub, 1))->is_const)) return false;
    return dtype_size(graph_value(f->g, input(f, cast, 0))->dtype) == 1 && t->scale > 0;
}

static value_id both(struct fixer *f, node_id like, value_id sum)
{
    struct term t[2];
    double c = 1;
    value_id v = sum, part[2];
    cut_number(f, &v, "Mul", &c);
    node_id add = match_only(&f->m, v, "Add");
    if (!add || !(c > 0) || !find_term(f, input(f, add, 0), &t[0]) || !find_term(f, input(f, add, 1), &t[1])) return 0;
    double most = fmax(t[0].scale, t[1].scale) * c;
    int e;
    frexp(most, &e);
    if (!(most < 1) || e < -16) return 0;
    u32 shift = (u32)(WIDE_BITS - e);
    for (u32 k = 0; k < 2; k++) {
        value_id x = op_node_cast(f->g, like, t[k].x, DT_I64, 0);
        i64 m = (i64)rint(t[k].scale * c * (double)((i64)1 << shift));
        part[k] = op_node2(f->g, like, "Mul", x, number(f, DT_I64, m), 0);
    }
    v = op_node2(f->g, like, "Add", part[0], part[1], 0);
    v = op_node(f->g, like, "quern::MulShiftEven", 3, (value_id[]){v, number(f, DT_I64, 1), number(f, DT_I64, shift)}, 0);
    return op_node_cast(f->g, like, v, DT_I32, 0);
}

/* Means of bytes. */

/* v = x / c */
static bool cut_divisor(const struct fixer *f, value_id *v, double *number)
{
    node_id n = match_only(&f->m, *v, "Div");
    if (!n || constant_side(f, n) != 1 || !linear_number(f->g, input(f, n, 1), number)) return false;
    *v = input(f, n, 0);
    return true;
}

static bool is_short_sum(const struct fixer *f, node_id n)
{
    enum { MAX_TERMS = INT32_MAX / 512 };
    i64 in[MAX_RANK], out[MAX_RANK];
    const struct shape *x = &graph_value(f->g, input(f, n, 0))->shape, *y = &graph_value(f->g, graph_node(f->g, n)->out.v[0])->shape;
    if (!shape_is_static(f->g->sym, x, in) || !shape_is_static(f->g->sym, y, out)) return false;
    i64 n_out = i64_product(y->rank, out);
    return n_out > 0 && i64_product(x->rank, in) / n_out <= MAX_TERMS;
}

static value_id mean(struct fixer *f, node_id like, value_id sum)
{
    double c = 1, number;
    bool more = true;
    struct term t;
    while (more) {
        more = cut_number(f, &sum, "Mul", &number);
        if (more) c *= number;
        else if ((more = cut_divisor(f, &sum, &number))) c /= number;
    }
    node_id r = match_only(&f->m, sum, "quern::ReduceSum");
    if (!r || !find_term(f, input(f, r, 0), &t) || !is_short_sum(f, r)) return 0;
    struct tensor *s = tensor_new(f->a, DT_F32, 0, NULL);
    elem_set_f64(DT_F32, s->data, 0, t.scale * c);
    if (!shift_for(s)) return 0;
    const struct node x = *graph_node(f->g, r);
    value_id *in = arena_array(f->g->arena, value_id, x.in.n);
    for (u32 k = 0; k < x.in.n; k++) in[k] = k ? x.in.v[k] : t.x;
    value_id y = op_node_same(f->g, r, "quern::ReduceSum", x.in.n, in, NULL, 0);
    return scaled(f, like, y, s);
}

/* The sum in integers; 0: impossible. */
static value_id integer_sum(struct fixer *f, node_id like, const struct quantisation *q)
{
    node_id mul = match_only(&f->m, q->sum, "Mul");
    i32 k = mul ? constant_side(f, mul) : -1;
    value_id x = k < 0 ? 0 : integer_of(f, input(f, mul, 1 - k));
    if (x) return scaled(f, like, x, graph_value(f->g, input(f, mul, k))->data);
    x = both(f, like, q->sum);
    return x ? x : mean(f, like, q->sum);
}

static bool fix(struct fixer *f, node_id n)
{
    struct quantisation q;
    const struct node x = *graph_node(f->g, n);
    enum dtype to = graph_value(f->g, x.out.v[0])->dtype;
    if (!str_is(x.op, "Cast") || (to != DT_U8 && to != DT_I8) || graph_value(f->g, x.in.v[0])->dtype != DT_F32) return false;
    if (!find_quantisation(f, n, &q)) return false;
    value_id y = integer_sum(f, n, &q);
    if (!y || !*f->ok) return false;
    graph_node(f->g, n)->dead = true;
    y = op_node2(f->g, n, "quern::Max", y, number(f, DT_I32, (i64)q.least), 0);
    y = op_node2(f->g, n, "quern::Min", y, number(f, DT_I32, (i64)q.most), 0);
    double zero = 0;
    if (q.zero && linear_number(f->g, q.zero, &zero)) y = op_node2(f->g, n, "Add", y, number(f, DT_I32, (i64)zero), 0);
    op_node_cast(f->g, n, y, to, x.out.v[0]);
    return true;
}

static bool run(struct graph *g, bool *ok, struct err *e)
{
    struct arena a = {0};
    struct fixer f = {.g = g, .m = matcher_of(g, &a), .a = &a, .e = e, .ok = ok};
    bool changed = false;
    node_id end = g->node.n;
    for (node_id n = 1; n < end && *ok; n++)
        if (!graph_node(g, n)->dead && graph_node(g, n)->in.n == 1 && graph_node(g, n)->out.n == 1) changed |= fix(&f, n);
    *ok = *ok && op_infer_from(g, end, e);
    arena_release(&a);
    return changed;
}

const struct pass pass_fixed = {
    .version = 1,
    .name = "fixed",
    .summary = "integer sums are requantised in integers",
    .when = PASS_FIXED,
    .rank = 165,
    .run = run,
};
