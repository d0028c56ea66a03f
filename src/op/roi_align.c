// SPDX-License-Identifier: Apache-2.0
//
// RoiAlign: each output element is the mean (mode avg) of bilinear samples on a grid inside one bin
// of a region; in mode max the largest of all weighted taps of its samples, as ONNX defines it. A primitive with property OP_SAMPLE. x (n, c, h, w), rois (r, 4) = x1 y1 x2 y2,
// batch (r) -> y (r, c, oh, ow).
//
// The number of samples of a bin is sampling_ratio per axis, or ceil(region / bins) of each region
// when that is 0: then kernels loop to the largest count among the lanes and mask. A batch index
// outside the input is an error in the reference and clamped in kernels.
#include "op/op.h"

#include <math.h>

enum { MAX_GRID = 1024 }; /* samples of a bin along an axis, when regions ask for more */

struct roi {
    double scale, offset; /* spatial_scale; half a pixel, or none */
    i64 ratio, bins[2];   /* sampling_ratio; output width, height */
    bool max;
};

static bool roi_read(const struct node *nd, struct roi *r)
{
    bool half = str_is(attr_str(nd, "coordinate_transformation_mode", "half_pixel"), "half_pixel");
    *r = (struct roi){.scale = attr_float(nd, "spatial_scale", 1), .offset = half ? 0.5 : 0};
    r->ratio = attr_int(nd, "sampling_ratio", 0);
    r->max = str_is(attr_str(nd, "mode", "avg"), "max");
    r->bins[0] = attr_int(nd, "output_width", 1), r->bins[1] = attr_int(nd, "output_height", 1);
    return r->ratio >= 0 && r->ratio <= MAX_GRID && r->bins[0] > 0 && r->bins[1] > 0 &&
           r->bins[0] < 1 << 20 && r->bins[1] < 1 << 20;
}

static bool upgrade(struct graph *g, node_id n, i64 opset, struct err *e)
{
    if (opset < 16) attr_set_str(g, n, "coordinate_transformation_mode", S("output_half_pixel"));
    return true;
}

static bool infer(struct graph *g, node_id n, struct err *e)
{
    const struct node *nd = graph_node(g, n);
    const struct shape x = *op_in_shape(g, nd, 0), rois = *op_in_shape(g, nd, 1),
                       batch = *op_in_shape(g, nd, 2);
    struct str mode = attr_str(nd, "mode", "avg"),
               how = attr_str(nd, "coordinate_transformation_mode", "half_pixel");
    enum dtype t = op_in_dtype(g, nd, 0);
    struct roi r;
    i64 c;
    if (!str_is(mode, "avg") && !str_is(mode, "max")) return op_unsupported(e, g, n, "mode '%.*s'", STR_ARG(mode));
    if (!str_is(how, "half_pixel") && !str_is(how, "output_half_pixel"))
        return op_unsupported(e, g, n, "coordinate_transformation_mode '%.*s'", STR_ARG(how));
    if (!roi_read(nd, &r))
        return op_invalid(e, g, n, "sampling_ratio, output_width or output_height out of range");
    if (!dtype_is_float(t) || op_in_dtype(g, nd, 1) != t)
        return op_unsupported(e, g, n, "type %s", dtype_name(t));
    if (op_in_dtype(g, nd, 2) != DT_I64 && op_in_dtype(g, nd, 2) != DT_I32)
        return op_invalid(e, g, n, "batch indices are no integers");
    if (x.rank != 4 || rois.rank != 2 || batch.rank != 1 ||
        !sym_is_const(g->sym, rois.dim[1], &c) || c != 4)
        return op_invalid(e, g, n, "inputs of ranks %u, %u, %u", x.rank, rois.rank, batch.rank);
    for (u32 i = 0; i < 4; i += i ? 1 : 2) {
        if (sym_is_const(g->sym, x.dim[i], &c) && c < 1) return op_invalid(e, g, n, "empty input");
        if (!op_require_at_least(g, n, x.dim[i], sym_const(g->sym, 1), e, "axis %u of the input", i)) return false;
    }
    if (!op_sizes_agree(g, rois.dim[0], batch.dim[0]))
        return op_invalid(e, g, n, "different numbers of regions and batch indices");
    struct shape out = {.known = true, .rank = 4, .dim = {rois.dim[0], x.dim[1]}};
    for (u32 a = 0; a < 2; a++) out.dim[3 - a] = sym_const(g->sym, r.bins[a]);
    op_set_out(g, n, 0, t, &out);
    return true;
}

/* Evaluation. */

struct span {
    double start, bin;
    i64 n;
}; /* of one region along one axis: samples start + (o + (i + 0.5) / n) * bin */

static struct span span_of(const struct roi *r, const struct tensor *rois, i64 region, u32 axis)
{
    double lo = elem_f64(rois->dtype, rois->data, region * 4 + axis) * r->scale - r->offset;
    double size =
        elem_f64(rois->dtype, rois->data, region * 4 + 2 + axis) * r->scale - r->offset - lo;
    if (r->offset == 0) size = fmax(size, 1);
    struct span s = {lo, size / (double)r->bins[axis], r->ratio};
    if (!s.n) s.n = (i64)fmin(fmax(ceil(s.bin), 0), MAX_GRID);
    return s;
}

/* Two taps of a position; false: too far outside. */
static bool taps(double p, i64 size, i64 at[2], double w[2])
{
    if (!(p >= -1 && p <= (double)size) || size < 1) return false;
    p = fmin(fmax(p, 0), (double)(size - 1));
    at[0] = (i64)p;
    at[1] = i64_min(at[0] + 1, size - 1);
    w[1] = p - (double)at[0];
    w[0] = 1 - w[1];
    return true;
}

static double bilinear(const struct tensor *x, i64 plane, double py, double px, bool max)
{
    i64 ay[2], ax[2];
    double wy[2], wx[2], sum = 0;
    if (!taps(py, x->dim[2], ay, wy) || !taps(px, x->dim[3], ax, wx)) return 0;
    for (u32 i = 0; i < 4; i++) {
        double v = wy[i / 2] * wx[i % 2] *
                   elem_f64(x->dtype, x->data, (plane * x->dim[2] + ay[i / 2]) * x->dim[3] + ax[i % 2]);
        sum = !max ? sum + v : i ? fmax(sum, v) : v;
    }
    return sum;
}

static double bin_value(const struct tensor *x, i64 plane, const struct roi *r, const struct span s[2], const i64 *o)
{
    double sum = r->max && s[0].n * s[1].n > 0 ? -INFINITY : 0;
    for (i64 i = 0; i < s[1].n; i++)
        for (i64 j = 0; j < s[0].n; j++) {
            double py = s[1].start + ((double)o[0] + ((double)i + 0.5) / (double)s[1].n) * s[1].bin;
            double px = s[0].start + ((double)o[1] + ((double)j + 0.5) / (double)s[0].n) * s[0].bin;
            double v = bilinear(x, plane, py, px, r->max);
            sum = r->max ? fmax(sum, v) : sum + v;
        }
    return r->max ? sum : sum / (double)i64_max(s[0].n * s[1].n, 1);
}

static bool eval(const struct op_eval *v, struct err *e)
{
    const struct tensor *x = v->in[0], *batch = v->in[2];
    struct tensor *y = v->out[0];
    struct roi r;
    roi_read(v->n, &r);
    i64 idx[4] = {0}, n = tensor_count(y);
    for (i64 i = 0; i < n; i++, op_next(4, y->dim, idx)) {
        i64 b = elem_i64(batch->dtype, batch->data, idx[0]);
        if (b < 0 || b >= x->dim[0]) return err_set(e, ERR_INPUT, "batch index %lld", (long long)b);
        struct span s[2] = {span_of(&r, v->in[1], idx[0], 0), span_of(&r, v->in[1], idx[0], 1)};
        elem_set_f64(y->dtype, y->data, i, bin_value(x, b * x->dim[1] + idx[1], &r, s, idx + 2));
    }
    return true;
}

/* Lowering, in type t. */

struct lowering {
    struct emit *m;
    struct kir *k;
    enum dtype t;
};

static kval num(const struct lowering *l, double v) { return kir_const_f(l->k, l->t, 1, v); }

struct kspan {
    kval start, bin, n;
}; /* n: i64 */

static struct kspan emit_span(const struct lowering *l, const struct node *nd, const struct roi *r,
                              kval region, u32 axis)
{
    struct kir *k = l->k;
    kval end[2];
    for (u32 i = 0; i < 2; i++) {
        kval p = kir_cast(
            k, l->t, emit_value(l->m, nd->in.v[1], (kval[]){region, kir_int(k, axis + 2 * i)}));
        end[i] = kir_bin(k, KI_SUB, kir_bin(k, KI_MUL, p, num(l, r->scale)), num(l, r->offset));
    }
    kval size = kir_bin(k, KI_SUB, end[1], end[0]);
    if (r->offset == 0) size = kir_bin(k, KI_MAX, size, num(l, 1));
    struct kspan s = {end[0], kir_bin(k, KI_DIV, size, num(l, (double)r->bins[axis])),
                      kir_int(k, r->ratio)};
    if (r->ratio) return s;
    kval n = kir_bin(k, KI_MIN, kir_bin(k, KI_MAX, kir_un(k, KI_CEIL, s.bin), num(l, 0)),
                     num(l, MAX_GRID));
    s.n = kir_cast(k, DT_I64, n);
    return s;
}

/* Taps of sample i of output position o; the weights are 0 where the sample does not count. */
static void emit_taps(const struct lowering *l, const struct kspan *s, kval o, kval i, sym size,
                      kval at[2], kval w[2])
{
    struct kir *k = l->k;
    kval zero = num(l, 0), one = num(l, 1), end = kir_cast(k, l->t, emit_size(l->m, size));
    kval n = kir_cast(k, l->t, kir_bin(k, KI_MAX, s->n, kir_int(k, 1)));
    kval step = kir_bin(k, KI_DIV, kir_bin(k, KI_ADD, kir_cast(k, l->t, i), num(l, 0.5)), n);
    kval p = kir_bin(k, KI_MUL, kir_bin(k, KI_ADD, kir_cast(k, l->t, o), step), s->bin);
    p = kir_bin(k, KI_ADD, s->start, p);
    kval ok = kir_bin(k, KI_AND, kir_bin(k, KI_LE, num(l, -1), p), kir_bin(k, KI_LE, p, end));
    ok = kir_bin(k, KI_AND, ok, kir_bin(k, KI_LT, i, s->n));
    p = kir_bin(k, KI_MIN, kir_bin(k, KI_MAX, p, zero), kir_bin(k, KI_SUB, end, one));
    kval base = kir_cast(k, DT_I64, p), f = kir_bin(k, KI_SUB, p, kir_cast(k, l->t, base));
    at[0] = emit_clamp(l->m, base, size);
    at[1] = emit_clamp(l->m, kir_bin(k, KI_ADD, base, kir_int(k, 1)), size);
    w[0] = kir_select(k, ok, kir_bin(k, KI_SUB, one, f), zero);
    w[1] = kir_select(k, ok, f, zero);
}

static kval largest(struct kir *k, kval v)
{
    return kir_lanes(k, v) > 1 ? kir_un(k, KI_HMAX, v) : v;
}

/* Sample (i, j) is one of the region's. */
static kval sampled(const struct lowering *l, const struct kspan *sy, kval i, const struct kspan *sx, kval j)
{
    return kir_bin(l->k, KI_AND, kir_bin(l->k, KI_LT, i, sy->n), kir_bin(l->k, KI_LT, j, sx->n));
}

static void emit_larger(const struct lowering *l, const struct emit_acc *a, kval v, kval counts)
{
    kval old = emit_acc_get(l->m, a);
    emit_acc_set(l->m, a, kir_select(l->k, counts, emit_combine(l->k, KI_MAX, old, v), old));
}

static kval lower(struct emit *m, const struct node *n, u32 out, const kval *idx)
{
    struct kir *k = m->k;
    struct roi r;
    struct emit_acc a;
    kval ay[2], ax[2], wy[2], wx[2];
    const struct shape *x = op_in_shape(m->g, n, 0);
    struct lowering l = {m, k, emit_acc_type(m, op_in_dtype(m->g, n, 0))};
    roi_read(n, &r);
    kval batch = emit_clamp(m, kir_cast(k, DT_I64, emit_value(m, n->in.v[2], idx)), x->dim[0]);
    struct kspan sx = emit_span(&l, n, &r, idx[0], 0), sy = emit_span(&l, n, &r, idx[0], 1);
    emit_acc_open(m, &a, emit_lanes(m, 4, idx), num(&l, r.max ? -INFINITY : 0));
    kval i = kir_loop(k, KL_SERIAL, kir_int(k, 0), largest(k, sy.n), 1);
    emit_taps(&l, &sy, idx[2], i, x->dim[2], ay, wy);
    kval j = kir_loop(k, KL_SERIAL, kir_int(k, 0), largest(k, sx.n), 1);
    emit_taps(&l, &sx, idx[3], j, x->dim[3], ax, wx);
    for (u32 t = 0; t < 4; t++) {
        kval v = emit_value(m, n->in.v[0], (kval[]){batch, idx[1], ay[t / 2], ax[t % 2]});
        kval weight = kir_bin(k, KI_MUL, wy[t / 2], wx[t % 2]);
        if (!r.max) emit_acc_fma(m, &a, kir_cast(k, l.t, v), weight);
        else emit_larger(&l, &a, kir_bin(k, KI_MUL, kir_cast(k, l.t, v), weight), sampled(&l, &sy, i, &sx, j));
    }
    kir_end(k);
    kir_end(k);
    kval count =
        kir_cast(k, l.t, kir_bin(k, KI_MAX, kir_bin(k, KI_MUL, sx.n, sy.n), kir_int(k, 1)));
    kval sum = emit_acc_get(m, &a);
    kval none = kir_bin(k, KI_EQ, kir_bin(k, KI_MUL, sx.n, sy.n), kir_int(k, 0));
    sum = r.max ? kir_select(k, none, num(&l, 0), sum) : kir_bin(k, KI_DIV, sum, count);
    return kir_cast(k, emit_type(op_in_dtype(m->g, n, 0)), sum);
}

static double flops(const struct graph *g, const struct node *n, const i64 *var)
{
    struct roi r;
    i64 y[MAX_RANK];
    if (!roi_read(n, &r) || !shape_eval(g->sym, &graph_value(g, n->out.v[0])->shape, var, y))
        return 0;
    double samples = r.ratio ? (double)(r.ratio * r.ratio) : 4;
    return 8 * samples * (double)y[0] * (double)y[1] * (double)y[2] * (double)y[3];
}

static void random_roi(const struct op *self, struct graph *g, struct rng *r)
{
    i64 x[4] = {rng_range(r, 1, 3), rng_range(r, 1, 3), rng_range(r, 2, 6), rng_range(r, 2, 6)},
        n = rng_range(r, 1, 4);
    struct tensor *rois = tensor_new(g->arena, DT_F32, 2, (i64[]){n, 4}),
                  *batch = tensor_new(g->arena, DT_I64, 1, &n);
    for (i64 i = 0; i < n; i++) {
        elem_set_i64(DT_I64, batch->data, i, rng_range(r, 0, x[0] - 1));
        for (i64 c = 0; c < 4; c++)
            elem_set_f64(DT_F32, rois->data, 4 * i + c, (c < 2 ? -1 : 2) + 5 * rng_f64(r));
    }
    value_id in[3] = {0, graph_add_const(g, S("rois"), rois),
                      graph_add_const(g, S("batch"), batch)};
    random_input(g, "x", DT_F32, 4, x, &in[0]);
    random_node(g, self, 3, in, 1);
    node_id node = g->node.n - 1;
    attr_set_int(g, node, "output_height", rng_range(r, 1, 4));
    attr_set_int(g, node, "output_width", rng_range(r, 1, 4));
    attr_set_int(g, node, "sampling_ratio", rng_range(r, 0, 2));
    if (!rng_range(r, 0, 2)) attr_set_str(g, node, "mode", S("max"));
    attr_set_float(g, node, "spatial_scale", rng_range(r, 0, 1) ? 1 : 0.75);
    if (rng_range(r, 0, 1))
        attr_set_str(g, node, "coordinate_transformation_mode", S("output_half_pixel"));
}

static const struct op ops[] = {
    {.name = "RoiAlign",
     .props = OP_SAMPLE,
     .min_in = 3,
     .max_in = 3,
     .min_out = 1,
     .max_out = 1,
     .upgrade = upgrade,
     .infer = infer,
     .eval = eval,
     .lower = lower,
     .flops = flops,
     .random = random_roi},
};

const struct op_family op_roi_align = {ops, countof(ops)};
