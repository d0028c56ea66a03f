// SPDX-License-Identifier: Apache-2.0
//
// Pooling: MaxPool (with the positions of the maxima as second output), AveragePool, LpPool are
// primitives with property OP_WINDOW; the global forms are reductions. Windows as in op_window.c:
// padding takes no part in maxima and sums; AveragePool divides by the number of taps inside the
// input, or with count_include_pad inside the padded input.
//
// The position of a maximum is that of the first one in row-major order; storage_order = 1 counts
// it column-major.
#include "op/op.h"

#include <math.h>

enum kind { POOL_MAX, POOL_MEAN, POOL_LP };

struct row {
    enum kind kind;
    const char *reduce; /* global forms: the reduction */
};

static enum kind kind_of(const struct graph *g, const struct node *n)
{
    return ((const struct row *)op_of(g, (node_id)(n - g->node.v))->row)->kind;
}

static bool type_ok(enum kind kind, enum dtype t)
{
    return dtype_is_float(t) || (kind == POOL_MAX && (t == DT_I8 || t == DT_U8));
}

static bool infer(struct graph *g, node_id n, struct err *e)
{
    const struct node *nd = graph_node(g, n);
    const struct shape x = *op_in_shape(g, nd, 0);
    enum dtype t = op_in_dtype(g, nd, 0);
    struct op_window w;
    i64 p = attr_int(nd, "p", 2), order = attr_int(nd, "storage_order", 0), taps = 1;
    if (!type_ok(kind_of(g, nd), t)) return op_unsupported(e, g, n, "type %s", dtype_name(t));
    if (p < 1) return op_invalid(e, g, n, "p %lld", (long long)p);
    if (order != 0 && order != 1)
        return op_invalid(e, g, n, "storage_order %lld", (long long)order);
    if (!op_window_infer(g, n, NULL, &w, e)) return false;
    for (u32 i = 0; i < w.n; i++) taps = i64_min(taps * w.kernel[i], 1 << 30);
    if (taps >= 1 << 30) return op_unsupported(e, g, n, "kernel_shape this large");
    struct shape out = {.known = true, .rank = x.rank, .dim = {x.dim[0], x.dim[1]}};
    if (!op_window_out(g, n, &w, &x, &out, e)) return false;
    op_set_out(g, n, 0, t, &out);
    op_set_out(g, n, 1, DT_I64, &out);
    return true;
}

/* Evaluation: one window after the other. */

struct pool {
    struct op_window w;
    i64 begin[MAX_RANK], end[MAX_RANK];
    const struct tensor *x;
    i64 p;
    bool count_pad, columns;
};

struct result {
    double max, sum; /* of the taps inside */
    i64 at;          /* flat position of the maximum in its channel, of the first tap where none is above
                        -infinity; -1: no tap */
    i64 n;           /* taps that count for the mean */
};

/* Position of a tap; false: in the padding. *in_pad: whether it is at least in the padded input. */
static bool tap_at(const struct pool *c, i64 tap, const i64 *o, i64 *at, bool *in_pad)
{
    bool inside = true;
    *in_pad = true;
    for (u32 i = c->w.n; i-- > 0; tap /= c->w.kernel[i]) {
        i64 size = c->x->dim[2 + i];
        at[i] = o[i] * c->w.stride[i] + tap % c->w.kernel[i] * c->w.dilation[i] - c->begin[i];
        inside = inside && at[i] >= 0 && at[i] < size;
        *in_pad = *in_pad && at[i] < size + c->end[i];
    }
    return inside;
}

static i64 column_major(const struct pool *c, const i64 *at)
{
    i64 flat = 0;
    for (u32 i = c->w.n; i-- > 0;) flat = flat * c->x->dim[2 + i] + at[i];
    return flat;
}

static double power(double x, i64 p)
{
    return p == 1 ? fabs(x) : p == 2 ? x * x : pow(fabs(x), (double)p);
}

/* The maximum over no tap at all. */
static double least(enum dtype t) { return t == DT_U8 ? 0 : t == DT_I8 ? -128 : -INFINITY; }

static struct result window(const struct pool *c, i64 plane, const i64 *o)
{
    struct result r = {.at = -1, .max = least(c->x->dtype)};
    i64 at[MAX_RANK], taps = op_window_taps(&c->w);
    for (i64 t = 0; t < taps; t++) {
        bool in_pad;
        bool inside = tap_at(c, t, o, at, &in_pad);
        r.n += inside || (in_pad && c->count_pad);
        if (!inside) continue;
        i64 flat = op_flat(c->w.n, c->x->dim + 2, at);
        double x = elem_f64(c->x->dtype, c->x->data, plane + flat);
        r.sum += c->p ? power(x, c->p) : x;
        if (r.at < 0 || x > r.max) r.at = c->columns ? column_major(c, at) : flat;
        r.max = x > r.max ? x : r.max; /* a NaN takes no part */
    }
    return r;
}

static double finish(enum kind kind, const struct result *r, i64 p)
{
    switch (kind) {
    case POOL_MAX: return r->max;
    case POOL_MEAN: return r->sum / (double)i64_max(r->n, 1);
    case POOL_LP: return p == 1 ? r->sum : p == 2 ? sqrt(r->sum) : pow(r->sum, 1.0 / (double)p);
    }
    unreachable();
}

static bool pool_open(const struct op_eval *v, struct pool *c)
{
    op_window_get(v->g, v->n, &c->w);
    c->x = v->in[0];
    c->p = kind_of(v->g, v->n) == POOL_LP ? attr_int(v->n, "p", 2) : 0;
    c->count_pad = attr_int(v->n, "count_include_pad", 0);
    c->columns = attr_int(v->n, "storage_order", 0);
    struct op_window ends = c->w;
    for (u32 i = 0; i < ends.n; i++) ends.begin[i] = ends.end[i];
    return op_window_begin(v, &c->w, c->begin) && op_window_begin(v, &ends, c->end);
}

static bool eval(const struct op_eval *v, struct err *e)
{
    struct pool c = {0};
    if (!pool_open(v, &c)) return err_set(e, ERR_INPUT, "pads are not known");
    enum kind kind = kind_of(v->g, v->n);
    const struct tensor *shape = v->out[0] ? v->out[0] : v->out[1];
    struct tensor *at = v->n->out.n > 1 ? v->out[1] : NULL;
    i64 idx[MAX_RANK] = {0}, n = tensor_count(shape), in_plane = 1;
    for (u32 i = 0; i < c.w.n; i++) in_plane *= c.x->dim[2 + i];
    for (i64 i = 0; i < n; i++, op_next(shape->rank, shape->dim, idx)) {
        i64 plane = (idx[0] * shape->dim[1] + idx[1]) * in_plane;
        struct result r = window(&c, plane, idx + 2);
        if (v->out[0]) elem_set_f64(v->out[0]->dtype, v->out[0]->data, i, finish(kind, &r, c.p));
        if (at) elem_set_i64(DT_I64, at->data, i, r.at < 0 ? -1 : plane + r.at);
    }
    return true;
}

/* Lowering. */

/* The element under a tap, in the accumulator's type; `other` where the tap is outside. */
static kval tap_value(struct emit *m, const struct node *n, const kval *idx,
                      const struct op_taps *t, kval other)
{
    struct kir *k = m->k;
    const struct value *x = graph_value(m->g, n->in.v[0]);
    kval at[MAX_RANK] = {idx[0], idx[1]};
    for (u32 i = 2; i < x->shape.rank; i++) at[i] = t->at[i - 2];
    kval v = kir_cast(k, kir_dtype(k, other), emit_value(m, n->in.v[0], at));
    return t->ok ? kir_select(k, t->ok, v, other) : v;
}

/* |x|^p */
static kval emit_power(struct kir *k, kval x, i64 p)
{
    if (p == 2) return kir_bin(k, KI_MUL, x, x);
    x = kir_un(k, KI_ABS, x);
    return p == 1 ? x : kir_bin(k, KI_POW, x, kir_const_f(k, kir_dtype(k, x), 1, (double)p));
}

/* Taps that the mean divides by, at least 1. */
static kval emit_count(struct emit *m, const struct op_window *w, const struct shape *x,
                       const kval *idx, bool padded)
{
    kval n = kir_int(m->k, 1);
    for (u32 i = 0; i < w->n; i++) {
        kval r[2];
        op_taps_range(m, w, x, i, idx[2 + i], padded, r);
        n = kir_bin(m->k, KI_MUL, n, kir_bin(m->k, KI_SUB, r[1], r[0]));
    }
    return kir_bin(m->k, KI_MAX, n, kir_int(m->k, 1));
}

static kval lower_max(struct emit *m, const struct node *n, const struct op_window *w,
                      const kval *idx)
{
    const struct value *x = graph_value(m->g, n->in.v[0]);
    struct emit_acc a;
    struct op_taps t;
    kval least = emit_neutral(m, KI_MAX, x->dtype);
    emit_acc_open(m, &a, emit_lanes(m, x->shape.rank, idx), least);
    op_taps_open(m, w, &x->shape, idx + 2, &t);
    kval v = tap_value(m, n, idx, &t, least);
    emit_acc_set(m, &a, emit_combine(m->k, KI_MAX, emit_acc_get(m, &a), v));
    op_taps_close(m, w);
    return emit_acc_get(m, &a);
}

/* Flat position of the tap in the input. */
static kval flat_at(struct emit *m, const struct shape *x, const kval *idx, const struct op_taps *t,
                    bool columns)
{
    struct kir *k = m->k;
    u32 s = x->rank - 2;
    kval flat = kir_bin(k, KI_ADD, kir_bin(k, KI_MUL, idx[0], emit_size(m, x->dim[1])), idx[1]);
    kval in = kir_int(k, 0);
    for (u32 i = 0; i < s; i++) {
        u32 ax = columns ? s - 1 - i : i;
        kval size = emit_size(m, x->dim[2 + ax]);
        flat = kir_bin(k, KI_MUL, flat, size);
        in = kir_bin(k, KI_ADD, kir_bin(k, KI_MUL, in, size), t->at[ax]);
    }
    return kir_bin(k, KI_ADD, flat, in);
}

static kval lower_argmax(struct emit *m, const struct node *n, const struct op_window *w,
                         const kval *idx)
{
    struct kir *k = m->k;
    const struct value *x = graph_value(m->g, n->in.v[0]);
    struct emit_acc best, at;
    struct op_taps t;
    u32 lanes = emit_lanes(m, x->shape.rank, idx);
    kval least = emit_neutral(m, KI_MAX, x->dtype);
    emit_acc_open(m, &best, lanes, least);
    emit_acc_open(m, &at, lanes, kir_int(k, -1));
    op_taps_open(m, w, &x->shape, idx + 2, &t);
    kval v = tap_value(m, n, idx, &t, least), old = emit_acc_get(m, &at), max = emit_acc_get(m, &best);
    kval better =
        kir_bin(k, KI_OR, kir_bin(k, KI_LT, max, v), kir_bin(k, KI_LT, old, kir_int(k, 0)));
    if (t.ok) better = kir_bin(k, KI_AND, better, t.ok);
    kval flat = flat_at(m, &x->shape, idx, &t, attr_int(n, "storage_order", 0));
    emit_acc_set(m, &at, kir_select(k, better, flat, old));
    emit_acc_set(m, &best, kir_select(k, better, emit_combine(k, KI_MAX, max, v), max));
    op_taps_close(m, w);
    return emit_acc_get(m, &at);
}

static kval lower_sum(struct emit *m, const struct node *n, const struct op_window *w,
                      const kval *idx, i64 p)
{
    struct kir *k = m->k;
    const struct value *x = graph_value(m->g, n->in.v[0]);
    struct emit_acc a;
    struct op_taps t;
    kval zero = kir_const_f(k, emit_acc_type(m, x->dtype), 1, 0);
    emit_acc_open(m, &a, emit_lanes(m, x->shape.rank, idx), zero);
    op_taps_open(m, w, &x->shape, idx + 2, &t);
    kval v = tap_value(m, n, idx, &t, zero);
    emit_acc_set(m, &a, kir_bin(k, KI_ADD, emit_acc_get(m, &a), p ? emit_power(k, v, p) : v));
    op_taps_close(m, w);
    return emit_acc_get(m, &a);
}

/* sum^(1/p) */
static kval emit_root(struct kir *k, kval sum, i64 p)
{
    if (p == 1) return sum;
    if (p == 2) return kir_un(k, KI_SQRT, sum);
    return kir_bin(k, KI_POW, sum, kir_const_f(k, kir_dtype(k, sum), 1, 1.0 / (double)p));
}

static kval lower(struct emit *m, const struct node *n, u32 out, const kval *idx)
{
    struct kir *k = m->k;
    struct op_window w;
    const struct value *x = graph_value(m->g, n->in.v[0]);
    enum dtype type = emit_acc_type(m, x->dtype);
    i64 p = attr_int(n, "p", 2);
    kval v = 0;
    op_window_get(m->g, n, &w);
    switch (kind_of(m->g, n)) {
    case POOL_MAX: return out ? lower_argmax(m, n, &w, idx) : lower_max(m, n, &w, idx);
    case POOL_MEAN:
        v = emit_count(m, &w, &x->shape, idx, attr_int(n, "count_include_pad", 0));
        v = kir_bin(k, KI_DIV, lower_sum(m, n, &w, idx, 0), kir_cast(k, type, v));
        break;
    case POOL_LP: v = emit_root(k, lower_sum(m, n, &w, idx, p), p); break;
    }
    return kir_cast(k, emit_type(x->dtype), v);
}

static void describe(const struct graph *g, const struct node *n, struct op_pool *p)
{
    enum kind kind = kind_of(g, n);
    bool lp = kind == POOL_LP;
    *p = (struct op_pool){.combine = kind == POOL_MAX ? KI_MAX : KI_ADD,
                          .mean = kind == POOL_MEAN,
                          .count_pad = attr_int(n, "count_include_pad", 0),
                          .p = attr_int(n, "p", 2),
                          .tap = lp ? emit_power : NULL,
                          .finish = lp ? emit_root : NULL};
}

static double flops(const struct graph *g, const struct node *n, const i64 *var)
{
    struct op_window w;
    i64 y[MAX_RANK];
    value_id out = n->out.v[0] ? n->out.v[0] : n->out.v[1];
    const struct shape *s = &graph_value(g, out)->shape;
    if (!shape_eval(g->sym, s, var, y)) return 0;
    op_window_get(g, n, &w);
    double f = (double)op_window_taps(&w);
    for (u32 i = 0; i < s->rank; i++) f *= (double)y[i];
    return f;
}

static void random_attrs(const struct op *self, struct graph *g, node_id n, struct rng *r)
{
    switch (((const struct row *)self->row)->kind) {
    case POOL_MAX: attr_set_int(g, n, "storage_order", rng_range(r, 0, 1)); break;
    case POOL_MEAN: attr_set_int(g, n, "count_include_pad", rng_range(r, 0, 1)); break;
    case POOL_LP: attr_set_int(g, n, "p", rng_range(r, 1, 3)); break;
    }
}

static void random_pool(const struct op *self, struct graph *g, struct rng *r)
{
    static const char *const autos[] = {"SAME_UPPER", "SAME_LOWER", "VALID"};
    u32 s = (u32)rng_range(r, 1, 3), same = (u32)rng_range(r, 0, 7),
        n_out = self->max_out > 1 ? (u32)rng_range(r, 1, 2) : 1;
    i64 x[MAX_RANK] = {rng_range(r, 1, 2), rng_range(r, 1, 3)};
    i64 kernel[MAX_RANK], pads[2 * MAX_RANK], strides[MAX_RANK], dil[MAX_RANK];
    for (u32 i = 0; i < s; i++) {
        kernel[i] = rng_range(r, 1, 3);
        strides[i] = rng_range(r, 1, 3), dil[i] = rng_range(r, 1, 2);
        pads[i] = rng_range(r, 0, kernel[i] - 1), pads[s + i] = rng_range(r, 0, kernel[i] - 1);
        x[2 + i] = (kernel[i] - 1) * dil[i] + 1 + rng_range(r, 0, s == 3 ? 2 : 4);
    }
    enum dtype type = random_float_type(r);
    value_id in;
    random_input(g, "x", type, s + 2, x, &in);
    random_node(g, self, 1, &in, n_out);
    node_id n = g->node.n - 1;
    attr_set_ints(g, n, "kernel_shape", kernel, s);
    attr_set_ints(g, n, "strides", strides, s);
    attr_set_ints(g, n, "dilations", dil, s);
    if (same < 3) attr_set_str(g, n, "auto_pad", str_of(autos[same]));
    else attr_set_ints(g, n, "pads", pads, 2 * s);
    if (same > 4) attr_set_int(g, n, "ceil_mode", 1);
    random_attrs(self, g, n, r);
}

/* Global forms. */

static bool global_infer(struct graph *g, node_id n, struct err *e)
{
    const struct node *nd = graph_node(g, n);
    struct shape s = *op_in_shape(g, nd, 0);
    enum dtype t = op_in_dtype(g, nd, 0);
    if (!dtype_is_float(t)) return op_unsupported(e, g, n, "type %s", dtype_name(t));
    if (s.rank < 3) return op_invalid(e, g, n, "input of rank %u has no spatial axes", s.rank);
    if (attr_int(nd, "p", 2) < 1)
        return op_invalid(e, g, n, "p %lld", (long long)attr_int(nd, "p", 2));
    for (u32 i = 2; i < s.rank; i++) {
        sym one = sym_const(g->sym, 1);
        if (!op_require_at_least(g, n, s.dim[i], one, e, "axis %u", i)) return false;
        s.dim[i] = one;
    }
    op_set_out(g, n, 0, t, &s);
    return true;
}

static value_id reduce(struct graph *g, node_id n, const char *op, value_id x, value_id out)
{
    i64 axes[MAX_RANK];
    u32 rank = op_in_shape(g, graph_node(g, n), 0)->rank;
    for (u32 i = 2; i < rank; i++) axes[i - 2] = i;
    return op_node(g, n, op, 2, (value_id[]){x, op_const_i(g, DT_I64, axes, rank - 2)}, out);
}

static bool global_expand(struct graph *g, node_id n, struct err *e)
{
    const struct op *op = op_of(g, n);
    const struct node nd = *graph_node(g, n);
    i64 p = attr_int(&nd, "p", 2);
    enum dtype t = op_in_dtype(g, &nd, 0);
    const struct row *row = op->row;
    value_id x = nd.in.v[0], y = nd.out.v[0];
    if (row->kind != POOL_LP) return reduce(g, n, row->reduce, x, y), true;
    if (p <= 2) return reduce(g, n, p == 1 ? "ReduceL1" : "ReduceL2", x, y), true;
    x = op_node(g, n, "Abs", 1, &x, 0);
    x = op_node(g, n, "Pow", 2, (value_id[]){x, op_const_f(g, t, (double)p)}, 0);
    x = reduce(g, n, "ReduceSum", x, 0);
    op_node(g, n, "Pow", 2, (value_id[]){x, op_const_f(g, t, 1.0 / (double)p)}, y);
    return true;
}

static void random_global(const struct op *self, struct graph *g, struct rng *r)
{
    i64 x[MAX_RANK];
    u32 rank = (u32)rng_range(r, 3, 5);
    for (u32 i = 0; i < rank; i++) x[i] = rng_range(r, 1, 5);
    value_id in;
    random_input(g, "x", DT_F32, rank, x, &in);
    random_node(g, self, 1, &in, 1);
    if (((const struct row *)self->row)->kind == POOL_LP)
        attr_set_int(g, g->node.n - 1, "p", rng_range(r, 1, 3));
}

static const struct row row_max = {POOL_MAX, "ReduceMax"}, row_mean = {POOL_MEAN, "ReduceMean"},
                        row_lp = {POOL_LP, NULL};

static const struct op ops[] = {
    {.name = "MaxPool",
     .props = OP_WINDOW,
     .min_in = 1,
     .max_in = 1,
     .min_out = 1,
     .max_out = 2,
     .infer = infer,
     .eval = eval,
     .lower = lower,
     .pool = describe,
     .flops = flops,
     .random = random_pool,
     .row = &row_max},
    {.name = "AveragePool",
     .props = OP_WINDOW,
     .min_in = 1,
     .max_in = 1,
     .min_out = 1,
     .max_out = 1,
     .infer = infer,
     .eval = eval,
     .lower = lower,
     .pool = describe,
     .flops = flops,
     .random = random_pool,
     .row = &row_mean},
    {.name = "LpPool",
     .props = OP_WINDOW,
     .min_in = 1,
     .max_in = 1,
     .min_out = 1,
     .max_out = 1,
     .infer = infer,
     .eval = eval,
     .lower = lower,
     .pool = describe,
     .flops = flops,
     .random = random_pool,
     .row = &row_lp},
    {.name = "GlobalMaxPool",
     .min_in = 1,
     .max_in = 1,
     .min_out = 1,
     .max_out = 1,
     .infer = global_infer,
     .expand = global_expand,
     .random = random_global,
     .row = &row_max},
    {.name = "GlobalAveragePool",
     .min_in = 1,
     .max_in = 1,
     .min_out = 1,
     .max_out = 1,
     .infer = global_infer,
     .expand = global_expand,
     .random = random_global,
     .row = &row_mean},
    {.name = "GlobalLpPool",
     .min_in = 1,
     .max_in = 1,
     .min_out = 1,
     .max_out = 1,
     .infer = global_infer,
     .expand = global_expand,
     .random = random_global,
     .row = &row_lp},
};

const struct op_family op_pool = {ops, countof(ops)};
