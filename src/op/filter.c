// SPDX-License-Identifier: Apache-2.0
//
// Filters with weights per pixel: every pixel has a kernel of its own, shared by all channels. WeightedFilter and its
// gradients (weighted_filter.c) expand to these. x[c, q] is 0 outside, off(t) = (i, j)*dilation - begin for tap t = i*kw
// + j:
//
// quern::Filter(x, w) -> y      y[c, p] = sum over t of w[t, p] * x[c, p + off(t)]
//   with splat                  y[c, q] = sum over t of w[t, q - off(t)] * x[c, q - off(t)], y of size `out`: the adjoint
//   with normalize              divided by epsilon + the sum of the weights that met an x inside
//   with softmax                exp(w[t, p] - m) for w[t, p], m the largest of all taps, divided by the sum of that over all taps
//
// quern::FilterOuter(a, b) -> w[t, p] = sum over c of a[c, p] * b[c, p + off(t)]: the gradient of the weights
//
// quern::Fold(x): the adjoint of quern::Pad (reflect, edge) along one axis: elements of the padding are added to the elements
// that they were copied from.
//
// Weights outside the image are multiplied by zero: they must be finite.
#include "op/op.h"

#include <math.h>

void op_filter_get(const struct node *n, struct op_filter *f)
{
    const i64 *v;
    *f = (struct op_filter){.dilation = {1, 1}};
    for (u32 k = 0; k < 3; k++) {
        i64 *to = (i64 *[]){f->kernel, f->dilation, f->begin}[k];
        i64 count = attr_ints(n, (const char *[]){"kernel_shape", "dilations", "begins"}[k], &v);
        for (i64 i = 0; i < count && i < 2; i++) to[i] = v[i];
    }
    f->splat = attr_int(n, "splat", 0), f->normalize = attr_int(n, "normalize", 0), f->softmax = attr_int(n, "softmax", 0);
    f->epsilon = f->normalize ? attr_float(n, "epsilon", 0) : 0;
}

/* Sizes. */

static bool is_sane(const struct graph *g, node_id n, const struct op_filter *f, struct err *e)
{
    for (u32 i = 0; i < 2; i++) {
        if (f->kernel[i] < 1 || f->kernel[i] > 4096 || f->dilation[i] < 1 || f->dilation[i] > 1 << 20)
            return op_invalid(e, g, n, "kernel of %lld elements, dilation %lld", (long long)f->kernel[i], (long long)f->dilation[i]);
        if (f->begin[i] < 0 || f->begin[i] > 1LL << 32) return op_invalid(e, g, n, "begin %lld", (long long)f->begin[i]);
    }
    return true;
}

/* Both inputs: four axes, floats, one batch. */
static bool inputs_fit(struct graph *g, node_id n, struct err *e)
{
    const struct node *nd = graph_node(g, n);
    const struct shape *a = op_in_shape(g, nd, 0), *b = op_in_shape(g, nd, 1);
    for (u32 i = 0; i < 2; i++) {
        if (!dtype_is_float(op_in_dtype(g, nd, i))) return op_unsupported(e, g, n, "type %s", dtype_name(op_in_dtype(g, nd, i)));
        if (op_in_shape(g, nd, i)->rank != 4) return op_unsupported(e, g, n, "input %u of rank %u", i, op_in_shape(g, nd, i)->rank);
    }
    return op_sizes_agree(g, a->dim[0], b->dim[0]) || op_invalid(e, g, n, "batch sizes differ");
}

static bool filter_infer(struct graph *g, node_id n, struct err *e)
{
    const struct node *nd = graph_node(g, n);
    struct op_filter f;
    i64 taps;
    op_filter_get(nd, &f);
    if (!is_sane(g, n, &f, e) || !inputs_fit(g, n, e)) return false;
    if (f.softmax && (f.splat || f.normalize)) return op_invalid(e, g, n, "'softmax' with 'splat' or 'normalize'");
    const struct shape *x = op_in_shape(g, nd, 0), *w = op_in_shape(g, nd, 1);
    if (!sym_is_const(g->sym, w->dim[1], &taps) || taps != f.kernel[0] * f.kernel[1])
        return op_invalid(e, g, n, "weights of a %lld x %lld kernel with another number of channels", (long long)f.kernel[0],
                          (long long)f.kernel[1]);
    struct shape out = {.known = true, .rank = 4, .dim = {x->dim[0], x->dim[1], w->dim[2], w->dim[3]}};
    if (f.splat && op_get_syms(g, nd, "out", out.dim + 2, 2) != 2) return op_invalid(e, g, n, "attribute 'out' is no two sizes");
    for (u32 i = 2; f.splat && i < 4; i++)
        if (!op_sizes_agree(g, x->dim[i], w->dim[i])) return op_invalid(e, g, n, "sizes of input and weights differ");
    op_set_out(g, n, 0, op_in_dtype(g, nd, 0), &out);
    return true;
}

static bool outer_infer(struct graph *g, node_id n, struct err *e)
{
    const struct node *nd = graph_node(g, n);
    struct op_filter f;
    op_filter_get(nd, &f);
    if (!is_sane(g, n, &f, e) || !inputs_fit(g, n, e) || !op_same_types(g, n, 0, e)) return false;
    const struct shape *a = op_in_shape(g, nd, 0);
    if (!op_sizes_agree(g, a->dim[1], op_in_shape(g, nd, 1)->dim[1])) return op_invalid(e, g, n, "numbers of channels differ");
    struct shape out = *a;
    out.dim[1] = sym_const(g->sym, f.kernel[0] * f.kernel[1]);
    op_set_out(g, n, 0, op_in_dtype(g, nd, 0), &out);
    return true;
}

/* Evaluation. */

/* The pixel of the other map (h x w) that tap t at p reads: flat, -1 outside. */
static i64 pixel_of(const struct op_filter *f, i64 t, i64 py, i64 px, i64 h, i64 w)
{
    i64 y = t / f->kernel[1] * f->dilation[0] - f->begin[0], x = t % f->kernel[1] * f->dilation[1] - f->begin[1];
    y = f->splat ? py - y : py + y, x = f->splat ? px - x : px + x;
    return y >= 0 && y < h && x >= 0 && x < w ? y * w + x : -1;
}

static double at(const struct tensor *t, i64 i) { return elem_f64(t->dtype, t->data, i); }

/* The largest weight of a pixel, the first of which is element `first`. */
static double peak_of(const struct tensor *w, i64 first)
{
    double peak = -INFINITY;
    for (i64 t = 0; t < w->dim[1]; t++) peak = fmax(peak, at(w, first + t * w->dim[2] * w->dim[3]));
    return peak;
}

static double filter_at(const struct op_eval *v, const struct op_filter *f, i64 flat)
{
    const struct tensor *x = v->in[0], *w = v->in[1], *y = v->out[0];
    i64 px = flat % y->dim[3], py = flat / y->dim[3] % y->dim[2], bc = flat / (y->dim[2] * y->dim[3]);
    i64 plane = x->dim[2] * x->dim[3], w_plane = w->dim[2] * w->dim[3], first = bc / y->dim[1] * w->dim[1] * w_plane;
    double sum = 0, all = f->epsilon, peak = f->softmax ? peak_of(w, first + py * w->dim[3] + px) : 0;
    for (i64 t = 0; t < w->dim[1]; t++) {
        i64 q = pixel_of(f, t, py, px, x->dim[2], x->dim[3]);
        if (q < 0 && !f->softmax) continue;
        double weight = at(w, first + t * w_plane + (f->splat ? q : py * w->dim[3] + px));
        if (f->softmax) weight = exp(weight - peak);
        all += weight;
        if (q >= 0) sum += weight * at(x, bc * plane + q);
    }
    return f->normalize || f->softmax ? sum / all : sum;
}

static double outer_at(const struct op_eval *v, const struct op_filter *f, i64 flat)
{
    const struct tensor *a = v->in[0], *b = v->in[1], *w = v->out[0];
    i64 plane = w->dim[2] * w->dim[3], p = flat % plane, t = flat / plane % w->dim[1], n = flat / plane / w->dim[1];
    i64 q = pixel_of(f, t, p / w->dim[3], p % w->dim[3], b->dim[2], b->dim[3]);
    double sum = 0;
    for (i64 c = n * a->dim[1]; q >= 0 && c < (n + 1) * a->dim[1]; c++) sum += at(a, c * plane + p) * at(b, c * b->dim[2] * b->dim[3] + q);
    return sum;
}

static bool each_point(const struct op_eval *v, double (*fn)(const struct op_eval *, const struct op_filter *, i64))
{
    struct tensor *out = v->out[0];
    struct op_filter f;
    op_filter_get(v->n, &f);
    i64 n = v->n_points ? v->n_points : tensor_count(out);
    for (i64 i = 0; i < n; i++) {
        i64 p = v->n_points ? v->points[i] : i;
        elem_set_f64(out->dtype, out->data, p, fn(v, &f, p));
    }
    return true;
}

static bool filter_eval(const struct op_eval *v, struct err *e) { return each_point(v, filter_at); }

static bool outer_eval(const struct op_eval *v, struct err *e) { return each_point(v, outer_at); }

/* Lowering. */

/* The position of p under a tap's index k along axis i; *ok: inside. */
static kval position_of(struct emit *m, const struct op_filter *f, u32 i, kval p, kval tap, sym size, kval *ok)
{
    struct kir *k = m->k;
    kval off = kir_add_i(k, kir_mul_i(k, tap, f->dilation[i]), -f->begin[i]);
    kval q = kir_bin(k, f->splat ? KI_SUB : KI_ADD, p, off);
    kval in = kir_bin(k, KI_AND, kir_bin(k, KI_LE, kir_int(k, 0), q), kir_lt(k, q, emit_size(m, size)));
    *ok = *ok ? kir_bin(k, KI_AND, *ok, in) : in;
    return emit_clamp(m, q, size);
}

static kval masked(struct emit *m, kval ok, kval v) { return kir_select(m->k, ok, v, emit_neutral(m, KI_ADD, kir_dtype(m->k, v))); }

/* The largest weight of the pixel at idx. */
static void find_peak(struct emit *m, const struct node *n, enum dtype type, const kval *idx, struct emit_acc *peak)
{
    struct kir *k = m->k;
    emit_acc_open(m, peak, emit_lanes(m, 4, idx), kir_const_f(k, type, 1, -INFINITY));
    kval tap = kir_loop(k, KL_SERIAL, kir_int(k, 0), emit_dim(m, n->in.v[1], 1), 1);
    kval w = emit_value(m, n->in.v[1], (kval[]){idx[0], tap, idx[2], idx[3]});
    emit_acc_set(m, peak, kir_max(k, emit_acc_get(m, peak), kir_cast(k, type, w)));
    kir_end(k);
}

static kval filter_lower(struct emit *m, const struct node *n, u32 out, const kval *idx)
{
    struct kir *k = m->k;
    struct op_filter f;
    struct emit_acc sum, all, peak;
    const struct shape *x = op_in_shape(m->g, n, 0);
    enum dtype t = op_in_dtype(m->g, n, 0), type = emit_acc_type(m, t);
    u32 lanes = emit_lanes(m, 4, idx);
    op_filter_get(n, &f);
    emit_acc_open(m, &sum, lanes, kir_const_f(k, type, 1, 0));
    if (f.normalize || f.softmax) emit_acc_open(m, &all, lanes, kir_const_f(k, type, 1, f.epsilon));
    if (f.softmax) find_peak(m, n, type, idx, &peak);
    kval i = kir_loop(k, KL_SERIAL, kir_int(k, 0), kir_int(k, f.kernel[0]), 1);
    kval j = kir_loop(k, KL_SERIAL, kir_int(k, 0), kir_int(k, f.kernel[1]), 1), ok = 0;
    kval y = position_of(m, &f, 0, idx[2], i, x->dim[2], &ok), c = position_of(m, &f, 1, idx[3], j, x->dim[3], &ok);
    kval tap = kir_add(k, kir_mul_i(k, i, f.kernel[1]), j);
    kval w = emit_clamped(m, n->in.v[1], (kval[]){idx[0], tap, f.splat ? y : idx[2], f.splat ? c : idx[3]}, f.splat ? 12 : 0);
    w = kir_cast(k, type, w);
    if (f.softmax) {
        w = kir_un(k, KI_EXP, kir_sub(k, w, emit_acc_get(m, &peak)));
        emit_acc_set(m, &all, kir_add(k, emit_acc_get(m, &all), w));
    }
    w = masked(m, ok, w);
    emit_acc_fma(m, &sum, w, kir_cast(k, type, emit_clamped(m, n->in.v[0], (kval[]){idx[0], idx[1], y, c}, 12)));
    if (f.normalize) emit_acc_set(m, &all, kir_add(k, emit_acc_get(m, &all), w));
    kir_end(k);
    kir_end(k);
    kval v = emit_acc_get(m, &sum);
    if (f.normalize || f.softmax) v = kir_bin(k, KI_DIV, v, emit_acc_get(m, &all));
    return kir_cast(k, emit_type(t), v);
}

static kval outer_lower(struct emit *m, const struct node *n, u32 out, const kval *idx)
{
    struct kir *k = m->k;
    struct op_filter f;
    struct emit_acc sum;
    const struct shape *b = op_in_shape(m->g, n, 1);
    enum dtype t = op_in_dtype(m->g, n, 0), type = emit_acc_type(m, t);
    kval ok = 0;
    op_filter_get(n, &f);
    kval i = kir_div_i(k, idx[1], f.kernel[1]), j = kir_mod_i(k, idx[1], f.kernel[1]);
    kval y = position_of(m, &f, 0, idx[2], i, b->dim[2], &ok), x = position_of(m, &f, 1, idx[3], j, b->dim[3], &ok);
    emit_acc_open(m, &sum, emit_lanes(m, 4, idx), kir_const_f(k, type, 1, 0));
    kval c = kir_loop(k, KL_SERIAL, kir_int(k, 0), emit_size(m, b->dim[1]), 1);
    kval v = kir_cast(k, type, emit_value(m, n->in.v[0], (kval[]){idx[0], c, idx[2], idx[3]}));
    emit_acc_fma(m, &sum, v, kir_cast(k, type, emit_clamped(m, n->in.v[1], (kval[]){idx[0], c, y, x}, 12)));
    kir_end(k);
    return kir_cast(k, emit_type(t), masked(m, ok, emit_acc_get(m, &sum)));
}

/* A multiply-add per tap and channel, inside or not. */
static double flops(const struct graph *g, const struct node *n, const i64 *var)
{
    i64 x[MAX_RANK], y[MAX_RANK];
    struct op_filter f;
    bool outer = op_find(n->op)->props & OP_FILTER_GRAD;
    op_filter_get(n, &f);
    if (!shape_eval(g->sym, op_in_shape(g, n, 0), var, x) || !shape_eval(g->sym, &graph_value(g, n->out.v[0])->shape, var, y)) return 0;
    return 2.0 * (double)i64_product(4, outer ? x : y) * (double)(f.kernel[0] * f.kernel[1]);
}

/* Fold. */

struct fold {
    bool edge;
    u32 axis;
    i64 before, after;
};

static void fold_get(const struct node *n, struct fold *f)
{
    *f = (struct fold){str_is(attr_str(n, "mode", "edge"), "edge"), (u32)attr_int(n, "axis", 0), attr_int(n, "before", 0),
                       attr_int(n, "after", 0)};
}

static bool fold_infer(struct graph *g, node_id n, struct err *e)
{
    const struct node *nd = graph_node(g, n);
    struct shape out = *op_in_shape(g, nd, 0);
    struct fold f;
    i64 left;
    fold_get(nd, &f);
    if (!dtype_is_float(op_in_dtype(g, nd, 0))) return op_unsupported(e, g, n, "type %s", dtype_name(op_in_dtype(g, nd, 0)));
    if (f.axis >= out.rank || f.before < 0 || f.after < 0 || f.before > INT32_MAX || f.after > INT32_MAX)
        return op_invalid(e, g, n, "bad attributes");
    out.dim[f.axis] = sym_sub(g->sym, out.dim[f.axis], sym_const(g->sym, f.before + f.after));
    if (sym_is_const(g->sym, out.dim[f.axis], &left) && left < 1) return op_invalid(e, g, n, "pads leave no element");
    op_set_out(g, n, 0, op_in_dtype(g, nd, 0), &out);
    return true;
}

/* What quern::Pad reads for position i of an axis of n elements. */
static i64 folded(const struct fold *f, i64 i, i64 n)
{
    if (f->edge) return i64_max(0, i64_min(n - 1, i));
    i64 period = i64_max(1, 2 * (n - 1));
    i = (i < 0 ? -i : i) % period;
    return i64_min(i, period - i);
}

static bool fold_eval(const struct op_eval *v, struct err *e)
{
    const struct tensor *x = v->in[0];
    struct tensor *y = v->out[0];
    struct fold f;
    fold_get(v->n, &f);
    i64 inner = i64_product(y->rank - f.axis - 1, y->dim + f.axis + 1), n = y->dim[f.axis], all = x->dim[f.axis];
    double *sum = op_eval_array(v, n, sizeof *sum, e);
    if (!sum) return false;
    for (i64 i = 0, rows = n ? tensor_count(y) / n : 0; i < rows; i++) {
        for (i64 k = 0; k < n; k++) sum[k] = 0;
        for (i64 k = 0; k < all; k++) sum[folded(&f, k - f.before, n)] += at(x, (i / inner * all + k) * inner + i % inner);
        for (i64 k = 0; k < n; k++) elem_set_f64(y->dtype, y->data, (i / inner * n + k) * inner + i % inner, sum[k]);
    }
    return true;
}

struct folding {
    struct emit *m;
    const struct node *n;
    const struct fold *f;
    kval idx[MAX_RANK];
    struct emit_acc sum;
    kval size; /* of the output along the axis */
};

/* Adds position `from` of the padded axis where ok. */
static void add_position(struct folding *x, kval from, kval ok)
{
    kval v;
    x->idx[x->f->axis] = from;
    v = kir_cast(x->m->k, kir_dtype(x->m->k, emit_acc_get(x->m, &x->sum)), emit_value(x->m, x->n->in.v[0], x->idx));
    if (ok) v = masked(x->m, ok, v);
    emit_acc_set(x->m, &x->sum, kir_add(x->m->k, emit_acc_get(x->m, &x->sum), v));
}

/* All of one pad, the elements i = from .. to-1 of the padded axis, of which q is the one they came from. */
static void add_pad(struct folding *x, kval q, kval from, kval to)
{
    struct kir *k = x->m->k;
    kval i = kir_loop(k, KL_SERIAL, from, to, 1), source = kir_add_i(k, i, -x->f->before), last = kir_add_i(k, x->size, -1);
    if (x->f->edge) {
        source = kir_max(k, kir_int(k, 0), kir_min(k, source, last));
    } else {
        kval period = kir_max(k, kir_int(k, 1), kir_mul_i(k, last, 2));
        source = kir_mod(k, kir_un(k, KI_ABS, source), period);
        source = kir_min(k, source, kir_sub(k, period, source));
    }
    add_position(x, i, kir_bin(k, KI_EQ, source, q));
    kir_end(k);
}

static kval fold_lower(struct emit *m, const struct node *n, u32 out, const kval *idx)
{
    struct kir *k = m->k;
    struct fold f;
    enum dtype t = op_in_dtype(m->g, n, 0);
    const struct shape *y = &graph_value(m->g, n->out.v[0])->shape;
    fold_get(n, &f);
    struct folding x = {.m = m, .n = n, .f = &f, .size = emit_size(m, y->dim[f.axis])};
    for (u32 a = 0; a < y->rank; a++) x.idx[a] = idx[a];
    kval q = idx[f.axis], begin = kir_int(k, f.before), end = kir_add(k, x.size, begin);
    emit_acc_open(m, &x.sum, emit_lanes(m, y->rank, idx), kir_const_f(k, emit_acc_type(m, t), 1, 0));
    add_position(&x, kir_bin(k, KI_ADD, q, begin), 0);
    add_pad(&x, q, kir_int(k, 0), begin);
    add_pad(&x, q, end, kir_add_i(k, end, f.after));
    return kir_cast(k, emit_type(t), emit_acc_get(m, &x.sum));
}

/* Random instances. */

static void set_window(struct graph *g, node_id n, const struct op_filter *f)
{
    attr_set_ints(g, n, "kernel_shape", f->kernel, 2);
    attr_set_ints(g, n, "dilations", f->dilation, 2);
    attr_set_ints(g, n, "begins", f->begin, 2);
}

static struct op_filter random_window(struct rng *r)
{
    struct op_filter f = {.splat = rng_range(r, 0, 1), .normalize = !rng_range(r, 0, 3)};
    for (u32 i = 0; i < 2; i++)
        f.kernel[i] = rng_range(r, 1, 4), f.dilation[i] = rng_range(r, 1, 2), f.begin[i] = rng_range(r, 0, f.kernel[i] * f.dilation[i]);
    f.epsilon = 8 * (double)(f.kernel[0] * f.kernel[1]); /* sums of weights of both signs stay away from its
                                                            negative */
    return f;
}

static void random_filter(const struct op *self, struct graph *g, struct rng *r)
{
    struct op_filter f = random_window(r);
    f.softmax = !f.splat && !f.normalize && rng_range(r, 0, 1);
    i64 x[4] = {rng_range(r, 1, 2), rng_range(r, 1, 3), rng_range(r, 1, 7), rng_range(r, 1, 9)};
    i64 w[4] = {x[0], f.kernel[0] * f.kernel[1], x[2], x[3]};
    sym out[2];
    value_id in[2];
    for (u32 i = 0; i < 2; i++) {
        if (!f.splat) w[2 + i] = i64_max(1, x[2 + i] + rng_range(r, -3, 2));
        out[i] = sym_const(g->sym, rng_range(r, 1, x[2 + i] + 3));
    }
    random_input(g, "x", random_float_type(r), 4, x, &in[0]);
    random_input(g, "w", random_float_type(r), 4, w, &in[1]);
    node_id n = random_node(g, self, 2, in, 1);
    set_window(g, n, &f);
    attr_set_int(g, n, "splat", f.splat);
    attr_set_int(g, n, "normalize", f.normalize);
    if (f.softmax) attr_set_int(g, n, "softmax", 1);
    attr_set_float(g, n, "epsilon", f.epsilon);
    if (f.splat) op_set_syms(g, n, "out", out, 2);
}

static void random_outer(const struct op *self, struct graph *g, struct rng *r)
{
    struct op_filter f = random_window(r);
    i64 a[4] = {rng_range(r, 1, 2), rng_range(r, 1, 3), rng_range(r, 1, 7), rng_range(r, 1, 9)};
    i64 b[4] = {a[0], a[1], i64_max(1, a[2] + rng_range(r, -3, 3)), i64_max(1, a[3] + rng_range(r, -3, 3))};
    enum dtype t = random_float_type(r);
    value_id in[2];
    random_input(g, "a", t, 4, a, &in[0]);
    random_input(g, "b", t, 4, b, &in[1]);
    set_window(g, random_node(g, self, 2, in, 1), &f);
}

static void random_fold(const struct op *self, struct graph *g, struct rng *r)
{
    u32 rank = (u32)rng_range(r, 1, 4), axis = (u32)rng_range(r, 0, rank - 1);
    i64 dim[4], before = rng_range(r, 0, 5), after = rng_range(r, 0, 5);
    value_id in[1];
    for (u32 i = 0; i < rank; i++) dim[i] = rng_range(r, 1, 5);
    dim[axis] += before + after;
    random_input(g, "x", random_float_type(r), rank, dim, &in[0]);
    node_id n = random_node(g, self, 1, in, 1);
    attr_set_int(g, n, "axis", axis);
    attr_set_int(g, n, "before", before);
    attr_set_int(g, n, "after", after);
    attr_set_str(g, n, "mode", rng_range(r, 0, 1) ? S("edge") : S("reflect"));
}

static const struct op ops[] = {
    {.name = "quern::Filter",
     .attributes = "begins:ints dilations:ints epsilon:float kernel_shape:ints normalize:int out:strings softmax:int splat:int",
     .props = OP_HEAVY | OP_FILTER,
     .min_in = 2,
     .max_in = 2,
     .min_out = 1,
     .max_out = 1,
     .infer = filter_infer,
     .eval = filter_eval,
     .lower = filter_lower,
     .flops = flops,
     .random = random_filter},
    {.name = "quern::FilterOuter",
     .attributes = "begins:ints dilations:ints kernel_shape:ints",
     .props = OP_HEAVY | OP_FILTER_GRAD,
     .min_in = 2,
     .max_in = 2,
     .min_out = 1,
     .max_out = 1,
     .infer = outer_infer,
     .eval = outer_eval,
     .lower = outer_lower,
     .flops = flops,
     .random = random_outer},
    {.name = "quern::Fold",
     .attributes = "after:int axis:int before:int mode:string",
     .min_in = 1,
     .max_in = 1,
     .min_out = 1,
     .max_out = 1,
     .infer = fold_infer,
     .eval = fold_eval,
     .lower = fold_lower,
     .random = random_fold},
};

const struct op_family op_filter = {ops, countof(ops)};
