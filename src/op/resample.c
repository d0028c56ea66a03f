// SPDX-License-Identifier: Apache-2.0
//
// The primitives that Resize becomes (see resize.c): quern::Upsample, quern::ResizeNearest,
// quern::Resize.
//
// The reference works in doubles from the formulas of the ONNX definition, with a table of taps per
// axis. Kernels compute with fractions of integers: position = a/b, its floor and the rest exactly,
// so that both agree at ties. Along axes that keep their size the index is passed on as it is: a
// ramp stays a ramp.
#include "op/op.h"

#include <math.h>
#include <string.h>

/* quern::Upsample */

static bool whole_infer(struct graph *g, node_id n, struct err *e)
{
    struct shape s = *op_in_shape(g, graph_node(g, n), 0);
    const i64 *scale;
    if (attr_ints(graph_node(g, n), "scales", &scale) != s.rank)
        return op_invalid(e, g, n, "attribute 'scales'");
    for (u32 i = 0; i < s.rank; i++) {
        if (scale[i] < 1) return op_invalid(e, g, n, "scale %lld", (long long)scale[i]);
        s.dim[i] = sym_mul(g->sym, s.dim[i], sym_const(g->sym, scale[i]));
    }
    op_set_out(g, n, 0, op_in_dtype(g, graph_node(g, n), 0), &s);
    return true;
}

static i64 whole_map(const void *par, const i64 *out, i64 *in)
{
    const i64 *scale;
    i64 rank = attr_ints(par, "scales", &scale);
    for (i64 i = 0; i < rank; i++) in[i] = out[i] / scale[i];
    return 0;
}

static bool whole_eval(const struct op_eval *v, struct err *e)
{
    return op_map_eval(v, whole_map, v->n);
}

static kval whole_lower(struct emit *m, const struct node *n, u32 out, const kval *idx)
{
    const i64 *scale;
    kval at[MAX_RANK];
    i64 rank = attr_ints(n, "scales", &scale);
    for (i64 i = 0; i < rank; i++) at[i] = kir_bin(m->k, KI_DIV, idx[i], kir_int(m->k, scale[i]));
    return emit_value(m, n->in.v[0], at);
}

static void whole_random(const struct op *self, struct graph *g, struct rng *r)
{
    i64 dim[MAX_RANK], scale[MAX_RANK];
    u32 rank = (u32)rng_range(r, 1, 4);
    for (u32 i = 0; i < rank; i++) dim[i] = rng_range(r, 1, 5), scale[i] = rng_range(r, 1, 3);
    value_id x;
    random_input(g, "x", DT_F32, rank, dim, &x);
    random_node(g, self, 1, &x, 1);
    attr_set_ints(g, g->node.n - 1, "scales", scale, rank);
}

/* quern::ResizeNearest and quern::Resize. */

static bool prim_infer(struct graph *g, node_id n, struct err *e)
{
    struct op_resize r;
    if (!op_resize_get(g, graph_node(g, n), &r)) return op_invalid(e, g, n, "malformed attributes");
    struct shape out = {.known = true, .rank = r.rank};
    memcpy(out.dim, r.out, sizeof out.dim);
    op_set_out(g, n, 0, op_in_dtype(g, graph_node(g, n), 0), &out);
    return true;
}

/* Evaluation: a table of taps per axis and output index. */

struct table {
    i64 n;         /* taps per output index */
    i64 *at;       /* [out][n] */
    double *w;     /* [out][n] */
    bool *outside; /* [out] extrapolated */
};

struct axis {
    double in, out, num, den;
}; /* sizes and scale in numbers */

static double position(const struct op_resize *r, u32 i, const struct axis *a, double x)
{
    double resized = a->in * a->num / a->den, from = r->start[i], to = r->end[i];
    switch (r->coord) {
    case COORD_HALF_PIXEL: return (x + 0.5) * a->den / a->num - 0.5;
    case COORD_PYTORCH_HALF_PIXEL: return resized > 1 ? (x + 0.5) * a->den / a->num - 0.5 : 0;
    case COORD_ALIGN_CORNERS:
        return resized == 1 ? 0 : x * (a->in - 1) * a->den / (a->in * a->num - a->den);
    case COORD_ASYMMETRIC: return x * a->den / a->num;
    case COORD_TF_HALF_PIXEL: return (x + 0.5) * a->den / a->num;
    case COORD_TF_CROP:
        if (a->out <= 1) return 0.5 * (from + to) * (a->in - 1);
        return from * (a->in - 1) + x * (to - from) * (a->in - 1) / (a->out - 1);
    case COORD_HALF_PIXEL_SYMMETRIC: /* the rounding error of the size is cropped on both sides */
        return ((2 * x + 1) * a->den - a->num + a->in * a->num - a->out * a->den) / (2 * a->num);
    case N_COORDS: break;
    }
    unreachable();
}

static double round_position(u32 how, double x, bool smaller)
{
    switch ((enum resize_round)how) {
    case ROUND_FLOOR: return floor(x);
    case ROUND_CEIL: return ceil(x);
    case ROUND_PREFER_FLOOR: return ceil(x - 0.5);
    case ROUND_PREFER_CEIL: return floor(x + 0.5);
    case ROUND_SIMPLE: return smaller ? ceil(x) : floor(x);
    case N_ROUNDS: break;
    }
    unreachable();
}

static double cubic_weight(double a, double x)
{
    x = fabs(x);
    if (x <= 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
    return x < 2 ? ((a * x - 5 * a) * x + 8 * a) * x - 4 * a : 0;
}

static double tap_weight(const struct op_resize *r, double x)
{
    return r->mode == RESIZE_CUBIC ? cubic_weight(r->cubic_a, x) : fmax(0, 1 - fabs(x));
}

/* Half the number of taps: the reach of the filter, stretched when antialiased. */
static i64 reach(const struct op_resize *r, const struct axis *a)
{
    i64 base = r->mode == RESIZE_CUBIC ? 2 : 1;
    return r->antialias ? i64_max(base, (i64)ceil((double)base * a->den / a->num)) : base;
}

static void table_row(const struct op_resize *r, const struct axis *a, double x, i64 *at, double *w,
                      i64 taps)
{
    double base = floor(x), stretch = r->antialias ? fmin(1, a->num / a->den) : 1, sum = 0;
    for (i64 t = 0; t < taps; t++) {
        double p = base + 1 - (double)(taps / 2) + (double)t;
        bool outside = p < 0 || p > a->in - 1;
        at[t] = (i64)fmin(fmax(p, 0), a->in - 1);
        w[t] = r->exclude_outside && outside ? 0 : tap_weight(r, (p - x) * stretch);
        sum += w[t];
    }
    for (i64 t = 0; t < taps; t++) w[t] /= sum;
}

static bool table_make(const struct op_eval *v, const struct op_resize *r, u32 i, const struct axis *a, struct table *t, struct err *e)
{
    i64 out = (i64)a->out;
    bool same = op_resize_same(r, i);
    t->n = same || r->mode == RESIZE_NEAREST ? 1 : 2 * reach(r, a);
    t->at = op_eval_array(v, out * t->n, sizeof *t->at, e);
    t->w = op_eval_array(v, out * t->n, sizeof *t->w, e);
    t->outside = op_eval_array(v, out, sizeof *t->outside, e);
    if (!t->at || !t->w || !t->outside) return false;
    for (i64 o = 0; o < out; o++) {
        double x = same ? (double)o : position(r, i, a, (double)o);
        t->outside[o] = r->coord == COORD_TF_CROP && (x < 0 || x > a->in - 1);
        t->w[o * t->n] = 1;
        if (t->n > 1) table_row(r, a, x, t->at + o * t->n, t->w + o * t->n, t->n);
        else
            t->at[o] = (i64)fmin(
                fmax(same ? x : round_position(r->rounding, x, a->num < a->den), 0), a->in - 1);
    }
    return true;
}

static double blend(const struct table *t, const struct tensor *x, u32 i, const i64 *idx, i64 base)
{
    if (i == x->rank) return elem_f64(x->dtype, x->data, base);
    double sum = 0;
    for (i64 k = 0; k < t[i].n; k++) {
        i64 row = idx[i] * t[i].n + k;
        sum += t[i].w[row] * blend(t, x, i + 1, idx, base * x->dim[i] + t[i].at[row]);
    }
    return sum;
}

static bool prim_eval(const struct op_eval *v, struct err *e)
{
    struct op_resize r;
    struct table t[MAX_RANK] = {0};
    i64 num[MAX_RANK], den[MAX_RANK], idx[MAX_RANK] = {0};
    struct tensor *y = v->out[0];
    if (!op_eval_syms(v, "num", num, MAX_RANK, e) || !op_eval_syms(v, "den", den, MAX_RANK, e))
        return false;
    op_resize_get(v->g, v->n, &r);
    for (u32 i = 0; i < r.rank; i++) {
        if (num[i] < 1 || den[i] < 1 || (y->dim[i] && v->in[0]->dim[i] < 1))
            return err_set(e, ERR_INPUT, "bad scale or empty input");
        struct axis a = {(double)v->in[0]->dim[i], (double)y->dim[i], (double)num[i],
                         (double)den[i]};
        if (!table_make(v, &r, i, &a, &t[i], e)) return false;
    }
    i64 n = tensor_count(y), size = dtype_size(y->dtype);
    for (i64 o = 0; o < n; o++, op_next(y->rank, y->dim, idx)) {
        bool outside = false;
        i64 at = 0;
        for (u32 i = 0; i < r.rank; i++)
            outside |= t[i].outside[idx[i]], at = at * v->in[0]->dim[i] + t[i].at[idx[i]];
        if (outside) elem_set_f64(y->dtype, y->data, o, r.extrapolation);
        else if (r.mode != RESIZE_NEAREST)
            elem_set_f64(y->dtype, y->data, o, blend(t, v->in[0], 0, idx, 0));
        else
            memcpy((char *)y->data + o * size, (const char *)v->in[0]->data + at * size,
                   (size_t)size);
    }
    return true;
}

/* Lowering. */

struct place {
    kval a, b;       /* position a/b, a >= -b; or */
    kval x;          /* position in f64 (COORD_TF_CROP) */
    kval outside;    /* 0: never */
    kval base, frac; /* floor, and the rest in the type of the weights */
};

static void place_crop(struct emit *m, const struct op_resize *r, u32 i, kval o, struct place *p)
{
    struct kir *k = m->k;
    kval one = kir_int(k, 1), out = emit_size(m, r->out[i]);
    kval last = kir_cast(k, DT_F64, kir_bin(k, KI_SUB, emit_size(m, r->in[i]), one));
    kval steps = kir_cast(k, DT_F64, kir_bin(k, KI_MAX, kir_bin(k, KI_SUB, out, one), one));
    kval from = kir_const_f(k, DT_F64, 1, r->start[i]),
         width = kir_const_f(k, DT_F64, 1, r->end[i] - r->start[i]);
    kval middle = kir_const_f(k, DT_F64, 1, 0.5 * (r->start[i] + r->end[i]));
    kval x = kir_bin(k, KI_MUL, kir_bin(k, KI_MUL, kir_cast(k, DT_F64, o), width), last);
    x = kir_bin(k, KI_ADD, kir_bin(k, KI_MUL, from, last), kir_bin(k, KI_DIV, x, steps));
    p->x = kir_select(k, kir_bin(k, KI_LT, one, out), x, kir_bin(k, KI_MUL, middle, last));
    p->outside = kir_bin(k, KI_OR, kir_bin(k, KI_LT, p->x, kir_const_f(k, DT_F64, 1, 0)),
                         kir_bin(k, KI_LT, last, p->x));
}

/* The position as a fraction. */
static void place_fraction(struct emit *m, const struct op_resize *r, u32 i, kval o,
                           struct place *p)
{
    struct kir *k = m->k;
    kval num = emit_size(m, r->num[i]), den = emit_size(m, r->den[i]), in = emit_size(m, r->in[i]);
    kval one = kir_int(k, 1), two = kir_int(k, 2), zero = kir_int(k, 0);
    kval odd = kir_bin(k, KI_MUL, kir_bin(k, KI_ADD, kir_bin(k, KI_MUL, o, two), one),
                       den); /* (2x + 1) den */
    kval resized = kir_bin(k, KI_MUL, in, num);
    p->b = kir_bin(k, KI_MUL, num, two);
    switch (r->coord) {
    case COORD_HALF_PIXEL: p->a = kir_bin(k, KI_SUB, odd, num); break;
    case COORD_PYTORCH_HALF_PIXEL:
        p->a = kir_select(k, kir_bin(k, KI_LT, den, resized), kir_bin(k, KI_SUB, odd, num), zero);
        break;
    case COORD_ALIGN_CORNERS:
        p->a = kir_bin(k, KI_MUL, kir_bin(k, KI_MUL, o, kir_bin(k, KI_SUB, in, one)), den);
        p->b = kir_bin(k, KI_MAX, kir_bin(k, KI_SUB, resized, den), one);
        break;
    case COORD_ASYMMETRIC: p->a = kir_bin(k, KI_MUL, o, den), p->b = num; break;
    case COORD_TF_HALF_PIXEL: p->a = odd; break;
    case COORD_HALF_PIXEL_SYMMETRIC:
        p->a = kir_bin(k, KI_SUB, odd, num);
        p->a = kir_bin(k, KI_ADD, p->a, resized);
        p->a = kir_bin(k, KI_SUB, p->a, kir_bin(k, KI_MUL, emit_size(m, r->out[i]), den));
        break;
    case COORD_TF_CROP:
    case N_COORDS: unreachable();
    }
}

static void place_make(struct emit *m, const struct op_resize *r, u32 i, kval o, struct place *p)
{
    *p = (struct place){0};
    if (r->coord == COORD_TF_CROP) place_crop(m, r, i, o, p);
    else place_fraction(m, r, i, o, p);
}

/* Parts of the position for weights of type t. */
static void place_split(struct emit *m, struct place *p, enum dtype t)
{
    struct kir *k = m->k;
    if (p->x) {
        kval base = kir_un(k, KI_FLOOR, p->x);
        p->base = kir_cast(k, DT_I64, base);
        p->frac = kir_cast(k, t, kir_bin(k, KI_SUB, p->x, base));
        return;
    }
    kval q = kir_bin(k, KI_DIV, kir_bin(k, KI_ADD, p->a, p->b), p->b); /* no operand is negative */
    p->base = kir_bin(k, KI_SUB, q, kir_int(k, 1));
    kval rest = kir_bin(k, KI_SUB, p->a, kir_bin(k, KI_MUL, p->base, p->b));
    p->frac = kir_bin(k, KI_DIV, kir_cast(k, t, rest), kir_cast(k, t, p->b));
}

/* max(a, 0) / b */
static kval quotient(struct kir *k, kval a, kval b)
{
    return kir_bin(k, KI_DIV, kir_bin(k, KI_MAX, a, kir_int(k, 0)), b);
}

static kval nearest_fraction(struct emit *m, const struct op_resize *r, u32 i,
                             const struct place *p)
{
    struct kir *k = m->k;
    kval one = kir_int(k, 1), two = kir_int(k, 2);
    kval down = quotient(k, p->a, p->b);
    kval up = quotient(k, kir_bin(k, KI_SUB, kir_bin(k, KI_ADD, p->a, p->b), one), p->b);
    kval twice = kir_bin(k, KI_ADD, kir_bin(k, KI_MUL, p->a, two), p->b),
         b2 = kir_bin(k, KI_MUL, p->b, two);
    switch (r->rounding) {
    case ROUND_FLOOR: return down;
    case ROUND_CEIL: return up;
    case ROUND_PREFER_FLOOR: return quotient(k, kir_bin(k, KI_SUB, twice, one), b2);
    case ROUND_PREFER_CEIL: return quotient(k, twice, b2);
    case ROUND_SIMPLE:
        return kir_select(k, kir_bin(k, KI_LT, emit_size(m, r->num[i]), emit_size(m, r->den[i])),
                          up, down);
    case N_ROUNDS: break;
    }
    unreachable();
}

static kval nearest_float(struct emit *m, const struct op_resize *r, u32 i, kval x)
{
    struct kir *k = m->k;
    kval half = kir_const_f(k, DT_F64, 1, 0.5), down = kir_un(k, KI_FLOOR, x),
         up = kir_un(k, KI_CEIL, x);
    switch (r->rounding) {
    case ROUND_FLOOR: return down;
    case ROUND_CEIL: return up;
    case ROUND_PREFER_FLOOR: return kir_un(k, KI_CEIL, kir_bin(k, KI_SUB, x, half));
    case ROUND_PREFER_CEIL: return kir_un(k, KI_FLOOR, kir_bin(k, KI_ADD, x, half));
    case ROUND_SIMPLE:
        return kir_select(k, kir_bin(k, KI_LT, emit_size(m, r->num[i]), emit_size(m, r->den[i])),
                          up, down);
    case N_ROUNDS: break;
    }
    unreachable();
}

/* Value v, or the extrapolation value where any axis is outside. */
static kval extrapolated(struct emit *m, const struct op_resize *r, const struct place *p, kval v)
{
    struct kir *k = m->k;
    enum dtype t = kir_dtype(k, v);
    kval other = dtype_is_float(t) ? kir_const_f(k, t, 1, r->extrapolation)
                                   : kir_const_i(k, t, 1, (i64)r->extrapolation);
    for (u32 i = 0; i < r->rank; i++)
        if (p[i].outside) v = kir_select(k, p[i].outside, other, v);
    return v;
}

static kval nearest_lower(struct emit *m, const struct node *n, u32 out, const kval *idx)
{
    struct op_resize r;
    struct place p[MAX_RANK] = {0};
    kval at[MAX_RANK];
    op_resize_get(m->g, n, &r);
    for (u32 i = 0; i < r.rank; i++) {
        at[i] = idx[i];
        if (op_resize_same(&r, i)) continue;
        place_make(m, &r, i, idx[i], &p[i]);
        at[i] = p[i].x ? kir_cast(m->k, DT_I64, nearest_float(m, &r, i, p[i].x))
                       : nearest_fraction(m, &r, i, &p[i]);
        at[i] = emit_clamp(m, at[i], r.in[i]);
    }
    return extrapolated(m, &r, p, emit_value(m, n->in.v[0], at));
}

struct lerp {
    struct emit *m;
    const struct op_resize *r;
    const struct node *n;
    struct place *p;
    enum dtype type; /* of weights and sums */
    kval at[MAX_RANK];
};

static kval constant(const struct lerp *l, double v) { return kir_const_f(l->m->k, l->type, 1, v); }

/* ((c3 x + c2) x + c1) x + c0 */
static kval polynomial(const struct lerp *l, kval x, const double c[4])
{
    struct kir *k = l->m->k;
    kval v = constant(l, c[3]);
    for (u32 i = 3; i-- > 0;) v = kir_bin(k, KI_ADD, kir_bin(k, KI_MUL, v, x), constant(l, c[i]));
    return v;
}

/* Weight at distance x >= 0 of the cubic, near: x <= 1, far: 1 <= x <= 2 */
static kval cubic_part(const struct lerp *l, kval x, bool near)
{
    double a = l->r->cubic_a;
    return polynomial(
        l, x, near ? (double[]){1, 0, -(a + 3), a + 2} : (double[]){-4 * a, 8 * a, -5 * a, a});
}

static kval fixed_weight(const struct lerp *l, u32 i, u32 tap)
{
    struct kir *k = l->m->k;
    kval t = l->p[i].frac, back = kir_bin(k, KI_SUB, constant(l, 1), t);
    if (l->r->mode == RESIZE_LINEAR) return tap ? t : back;
    if (tap == 1 || tap == 2) return cubic_part(l, tap == 1 ? t : back, true);
    return cubic_part(l, kir_bin(k, KI_ADD, tap ? back : t, constant(l, 1)), false);
}

/* Sum over the taps of the axes from i on; with exclude_outside also of the weights (*sum). */
static kval fixed_taps(struct lerp *l, u32 i)
{
    struct kir *k = l->m->k;
    const struct op_resize *r = l->r;
    if (i == r->rank) return kir_cast(k, l->type, emit_value(l->m, l->n->in.v[0], l->at));
    if (op_resize_same(r, i)) return fixed_taps(l, i + 1);
    u32 taps = r->mode == RESIZE_CUBIC ? 4 : 2;
    kval total = 0, weights = 0;
    for (u32 t = 0; t < taps; t++) {
        kval p = kir_bin(k, KI_ADD, l->p[i].base, kir_int(k, (i64)t + 1 - taps / 2)),
             w = fixed_weight(l, i, t);
        l->at[i] = emit_clamp(l->m, p, r->in[i]);
        if (r->exclude_outside)
            w = kir_select(k, kir_bin(k, KI_EQ, l->at[i], p), w, constant(l, 0));
        kval v = kir_bin(k, KI_MUL, w, fixed_taps(l, i + 1));
        total = total ? kir_bin(k, KI_ADD, total, v) : v;
        weights = weights ? kir_bin(k, KI_ADD, weights, w) : w;
    }
    return r->exclude_outside ? kir_bin(k, KI_DIV, total, weights) : total;
}

static kval stretched_weight(const struct lerp *l, kval x)
{
    struct kir *k = l->m->k;
    kval one = constant(l, 1), zero = constant(l, 0);
    x = kir_un(k, KI_ABS, x);
    if (l->r->mode == RESIZE_LINEAR) return kir_bin(k, KI_MAX, kir_bin(k, KI_SUB, one, x), zero);
    kval far = kir_select(k, kir_bin(k, KI_LT, x, constant(l, 2)), cubic_part(l, x, false), zero);
    return kir_select(k, kir_bin(k, KI_LE, x, one), cubic_part(l, x, true), far);
}

/* Antialiased: loops over the reach of the stretched filter; sum of weighted values over sum of
 * weights. */
static kval stretched_taps(struct lerp *l, u32 lanes)
{
    struct kir *k = l->m->k;
    const struct op_resize *r = l->r;
    struct emit_acc sum, weights;
    u32 open = 0;
    kval w = constant(l, 1);
    emit_acc_open(l->m, &sum, lanes, constant(l, 0));
    emit_acc_open(l->m, &weights, lanes, constant(l, 0));
    for (u32 i = 0; i < r->rank; i++) {
        if (op_resize_same(r, i)) continue;
        sym base = sym_const(l->m->g->sym, r->mode == RESIZE_CUBIC ? 2 : 1),
            s = sym_mul(l->m->g->sym, base, r->den[i]);
        kval half =
                 emit_size(l->m, sym_max(l->m->g->sym, base, sym_cdiv(l->m->g->sym, s, r->num[i]))),
             one = kir_int(k, 1);
        kval j =
            kir_loop(k, KL_SERIAL, kir_bin(k, KI_SUB, one, half), kir_bin(k, KI_ADD, half, one), 1);
        kval num = kir_cast(k, l->type, emit_size(l->m, r->num[i])),
             den = kir_cast(k, l->type, emit_size(l->m, r->den[i]));
        kval stretch = kir_bin(k, KI_MIN, constant(l, 1), kir_bin(k, KI_DIV, num, den));
        kval x = kir_bin(k, KI_SUB, kir_cast(k, l->type, j), l->p[i].frac),
             p = kir_bin(k, KI_ADD, l->p[i].base, j);
        kval wi = stretched_weight(l, kir_bin(k, KI_MUL, x, stretch));
        l->at[i] = emit_clamp(l->m, p, r->in[i]);
        if (r->exclude_outside)
            wi = kir_select(k, kir_bin(k, KI_EQ, l->at[i], p), wi, constant(l, 0));
        w = kir_bin(k, KI_MUL, w, wi);
        open++;
    }
    emit_acc_fma(l->m, &sum, w, kir_cast(k, l->type, emit_value(l->m, l->n->in.v[0], l->at)));
    emit_acc_set(l->m, &weights, kir_bin(k, KI_ADD, emit_acc_get(l->m, &weights), w));
    while (open--) kir_end(k);
    return kir_bin(k, KI_DIV, emit_acc_get(l->m, &sum), emit_acc_get(l->m, &weights));
}

static kval resize_lower(struct emit *m, const struct node *n, u32 out, const kval *idx)
{
    struct op_resize r;
    struct place p[MAX_RANK] = {0};
    op_resize_get(m->g, n, &r);
    struct lerp l = {
        .m = m, .r = &r, .n = n, .p = p, .type = emit_acc_type(m, op_in_dtype(m->g, n, 0))};
    for (u32 i = 0; i < r.rank; i++) {
        l.at[i] = idx[i];
        if (op_resize_same(&r, i)) continue;
        place_make(m, &r, i, idx[i], &p[i]);
        place_split(m, &p[i], l.type);
    }
    kval v = r.antialias ? stretched_taps(&l, emit_lanes(m, r.rank, idx)) : fixed_taps(&l, 0);
    return extrapolated(m, &r, p, kir_cast(m->k, emit_type(op_in_dtype(m->g, n, 0)), v));
}

static double resize_flops(const struct graph *g, const struct node *n, const i64 *var)
{
    struct op_resize r;
    i64 y[MAX_RANK];
    double f = 1;
    if (!op_resize_get(g, n, &r) ||
        !shape_eval(g->sym, &graph_value(g, n->out.v[0])->shape, var, y))
        return 0;
    for (u32 i = 0; i < r.rank; i++)
        f *= (double)y[i] * (op_resize_same(&r, i) ? 1 : r.mode == RESIZE_CUBIC ? 4 : 2);
    return 2 * f;
}

/* Scales that give at least one element, or sizes. */
static void random_prim(const struct op *self, struct graph *g, struct rng *rng)
{
    struct op_resize r = {.rank = (u32)rng_range(rng, 1, 3), .extrapolation = 3, .cubic_a = -0.75};
    i64 dim[MAX_RANK];
    bool nearest = self->props & OP_VIEW;
    r.mode = nearest ? RESIZE_NEAREST : (u32)rng_range(rng, RESIZE_LINEAR, RESIZE_CUBIC);
    r.coord = (u32)rng_range(rng, 0, N_COORDS - 1),
    r.rounding = (u32)rng_range(rng, 0, N_ROUNDS - 1);
    if (!nearest && r.coord == COORD_TF_HALF_PIXEL) r.coord = COORD_HALF_PIXEL;
    r.antialias = !nearest && r.coord != COORD_TF_CROP && rng_range(rng, 0, 2) == 0;
    r.exclude_outside = !nearest && rng_range(rng, 0, 2) == 0;
    for (u32 i = 0; i < r.rank; i++) {
        i64 num = rng_range(rng, 1, 5), den = rng_range(rng, 1, 4), bend = rng_range(rng, 0, 1);
        dim[i] = rng_range(rng, den, 7);
        i64 out = bend ? rng_range(rng, 1, 8) : dim[i] * num / den;
        r.out[i] = sym_const(g->sym, out);
        r.num[i] = sym_const(g->sym, bend ? out : num),
        r.den[i] = sym_const(g->sym, bend ? dim[i] : den);
        r.start[i] = r.coord == COORD_TF_CROP ? 0.3 * rng_f64(rng) : 0;
        r.end[i] = r.coord == COORD_TF_CROP ? 0.8 + 0.4 * rng_f64(rng) : 1;
    }
    value_id x;
    random_input(g, "x", DT_F32, r.rank, dim, &x);
    random_node(g, self, 1, &x, 1);
    op_resize_put(g, g->node.n - 1, &r);
}

static const struct op ops[] = {
    {.name = "quern::Upsample",
     .attributes = "scales:ints",
     .props = OP_VIEW,
     .min_in = 1,
     .max_in = 1,
     .min_out = 1,
     .max_out = 1,
     .infer = whole_infer,
     .eval = whole_eval,
     .lower = whole_lower,
     .random = whole_random},
    {.name = "quern::ResizeNearest",
     .attributes = "antialias:int coordinate_transformation_mode:string cubic_coeff_a:float den:strings exclude_outside:int extrapolation_value:float mode:string "
                   "nearest_mode:string num:strings out:strings roi:floats",
     .props = OP_VIEW,
     .min_in = 1,
     .max_in = 1,
     .min_out = 1,
     .max_out = 1,
     .infer = prim_infer,
     .eval = prim_eval,
     .lower = nearest_lower,
     .random = random_prim},
    {.name = "quern::Resize",
     .attributes = "antialias:int coordinate_transformation_mode:string cubic_coeff_a:float den:strings exclude_outside:int extrapolation_value:float mode:string "
                   "nearest_mode:string num:strings out:strings roi:floats",
     .props = OP_SAMPLE,
     .min_in = 1,
     .max_in = 1,
     .min_out = 1,
     .max_out = 1,
     .infer = prim_infer,
     .eval = prim_eval,
     .lower = resize_lower,
     .flops = resize_flops,
     .random = random_prim},
};

const struct op_family op_resample = {ops, countof(ops)};
