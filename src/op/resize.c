// SPDX-License-Identifier: Apache-2.0
//
// Resize and the older Upsample: every mode of opset 18. Both become one of three primitives
// (resample.c), which hold scales and sizes as symbolic attributes, so that no input is left that
// only holds sizes:
//
//   quern::Upsample       nearest by whole factors: out[i] = in[i // s]; a view
//   quern::ResizeNearest  any other nearest: a view, too
//   quern::Resize         linear, cubic, antialiased: a few weighted reads per axis
//
// A scale is a fraction num/den: out/in when sizes are given, otherwise the simplest fraction that
// rounds to the given float. The position in the input is then an exact fraction of integers (but
// for tf_crop_and_resize), so that ties and the sizes floor(H * num / den) come out the same for
// constant and symbolic sizes, on every machine.
//
// "length_resized" of the definition is in * scale, not rounded, as in ONNX's own reference.
#include "op/op.h"

#include <math.h>
#include <string.h>

enum { STRETCH, NOT_LARGER, NOT_SMALLER }; /* op_resize.aspect */

/* The axes that roi, scales and sizes speak of. */
static bool read_axes(struct graph *g, node_id n, const struct op_resize *r, u32 *axis, u32 *count,
                      struct err *e)
{
    const i64 *v;
    i64 k = attr_ints(graph_node(g, n), "axes", &v);
    bool seen[MAX_RANK] = {0};
    *count = node_attr(graph_node(g, n), "axes") ? (u32)i64_min(k, MAX_RANK + 1) : r->rank;
    if (*count > r->rank)
        return op_invalid(e, g, n, "%lld axes for rank %u", (long long)k, r->rank);
    for (u32 i = 0; i < *count; i++) {
        if (!op_axis(k ? v[i] : i, r->rank, &axis[i]) || seen[axis[i]])
            return op_invalid(e, g, n, "axis %lld is out of range or named twice", (long long)v[i]);
        seen[axis[i]] = true;
    }
    return true;
}

static bool read_roi(struct graph *g, node_id n, struct op_resize *r, const u32 *axis, u32 count,
                     struct err *e)
{
    const struct node *nd = graph_node(g, n);
    if (r->coord != COORD_TF_CROP) return true;
    const struct tensor *t = op_has_in(nd, 1) ? graph_value(g, nd->in.v[1])->data : NULL;
    if (!t) return op_unsupported(e, g, n, "roi is not constant");
    if (tensor_count(t) != 2 * (i64)count)
        return op_invalid(e, g, n, "roi of %lld elements", (long long)tensor_count(t));
    for (u32 i = 0; i < count; i++) {
        r->start[axis[i]] = elem_f64(t->dtype, t->data, i);
        r->end[axis[i]] = elem_f64(t->dtype, t->data, i + count);
        if (!isfinite(r->start[axis[i]]) || !isfinite(r->end[axis[i]]))
            return op_invalid(e, g, n, "roi is not finite");
    }
    return true;
}

/* The simplest fraction that rounds to the same float: the first convergent of the continued
 * fraction that does. */
static bool rational(double v, i64 *num, i64 *den)
{
    if (!(v >= 1e-6 && v <= 1e6)) return false;
    i64 p0 = 0, q0 = 1, p1 = 1, q1 = 0;
    double x = v;
    for (int i = 0; i < 40; i++) {
        i64 a = (i64)floor(x), p = a * p1 + p0, q = a * q1 + q0;
        p0 = p1, q0 = q1, p1 = p, q1 = q;
        if (p && (float)((double)p / (double)q) == (float)v) break;
        x = 1 / (x - (double)a);
    }
    *num = p1, *den = q1;
    return p1 > 0;
}

/* Cropped: floor(in * (end - start) * scale). */
static bool crop_size(struct graph *g, node_id n, struct op_resize *r, u32 i, double scale,
                      struct err *e)
{
    i64 in;
    if (r->coord != COORD_TF_CROP || (r->start[i] == 0 && r->end[i] == 1)) return true;
    if (!sym_is_const(g->sym, r->in[i], &in))
        return op_unsupported(e, g, n, "roi with scales over a symbolic size");
    double size = floor((double)in * (r->end[i] - r->start[i]) * scale *
                        (1 + 1e-7)); /* floats just below an integer */
    if (!(size >= 0 && size < 1e9)) return op_invalid(e, g, n, "size %g", size);
    r->out[i] = sym_const(g->sym, (i64)size);
    return true;
}

static i64 gcd(i64 a, i64 b)
{
    while (b) {
        i64 t = a % b;
        a = b, b = t;
    }
    return a;
}

/* num/den in lowest terms, as far as that can be seen. */
static void reduce_fraction(struct symtab *t, sym *num, sym *den)
{
    i64 a, b;
    if (sym_is_const(t, *num, &a) && sym_is_const(t, *den, &b) && a > 0 && b > 0) {
        i64 d = gcd(a, b);
        *num = sym_const(t, a / d), *den = sym_const(t, b / d);
        return;
    }
    for (i64 s = 1; s <= 16; s++) {
        sym k = sym_const(t, s), one = sym_const(t, 1);
        if (sym_mul(t, *den, k) == *num) *num = k, *den = one;
        else if (sym_mul(t, *num, k) == *den) *num = one, *den = k;
        else continue;
        return;
    }
}

/* Upsample is a Resize whose positions are o / scale, rounded down. */
static bool is_upsample(const struct node *nd) { return str_is(nd->op, "Upsample"); }

static bool read_scales(struct graph *g, node_id n, struct op_resize *r, const u32 *axis, u32 count,
                        struct err *e)
{
    value_id v = graph_node(g, n)->in.v[is_upsample(graph_node(g, n)) ? 1 : 2];
    const struct tensor *t = graph_value(g, v)->data;
    struct sym_data d = {0};
    bool known = t ? dtype_is_float(t->dtype) : op_sym_content(g, v, MAX_RANK, &d);
    if (!known) return op_unsupported(e, g, n, "scales are only known at run time");
    if ((t ? tensor_count(t) : d.n) != count)
        return op_invalid(e, g, n, "scales do not have %u elements", count);
    for (u32 k = 0; k < count; k++) {
        u32 i = axis[k];
        i64 num, den;
        double s = t ? elem_f64(t->dtype, t->data, k) : 1;
        if (t && !rational(s, &num, &den)) return op_invalid(e, g, n, "scale %g", s);
        r->num[i] = t ? sym_const(g->sym, num) : d.num[k];
        r->den[i] = sym_const(g->sym, t ? den : d.den);
        reduce_fraction(g->sym, &r->num[i], &r->den[i]);
        if (sym_is_const(g->sym, r->num[i], &num) && num < 1)
            return op_invalid(e, g, n, "scale %lld", (long long)num);
        r->out[i] = sym_div(g->sym, sym_mul(g->sym, r->in[i], r->num[i]), r->den[i]);
        if (!crop_size(g, n, r, i, s, e)) return false;
    }
    return true;
}

/* keep_aspect_ratio_policy: the scale of the axis with the smallest or the largest one goes for
 * all. */
static bool keep_aspect(struct graph *g, node_id n, struct op_resize *r, const u32 *axis, u32 count,
                        struct err *e)
{
    i64 in, num = 0, den = 1, want;
    for (u32 k = 0; k < count; k++) {
        u32 i = axis[k];
        if (!sym_is_const(g->sym, r->in[i], &in) || !sym_is_const(g->sym, r->out[i], &want))
            return op_unsupported(e, g, n, "keep_aspect_ratio_policy over symbolic sizes");
        bool smaller = (double)want * (double)den < (double)num * (double)in;
        if (!k || smaller == (r->aspect == NOT_LARGER)) num = want, den = in;
    }
    for (u32 k = 0; k < count; k++) {
        u32 i = axis[k];
        sym_is_const(g->sym, r->in[i], &in);
        r->num[i] = sym_const(g->sym, num), r->den[i] = sym_const(g->sym, den);
        r->out[i] = sym_const(g->sym, (2 * in * num + den) / (2 * den));
        reduce_fraction(g->sym, &r->num[i], &r->den[i]);
    }
    return true;
}

static bool read_sizes(struct graph *g, node_id n, struct op_resize *r, const u32 *axis, u32 count,
                       struct err *e)
{
    sym want[MAX_RANK];
    i64 k, c;
    if (!op_data_sizes(g, n, graph_node(g, n)->in.v[3], want, MAX_RANK, &k))
        return op_unsupported(e, g, n, "sizes are only known at run time");
    if (k != count) return op_invalid(e, g, n, "%lld sizes instead of %u", (long long)k, count);
    for (u32 j = 0; j < count; j++) {
        u32 i = axis[j];
        if (sym_is_const(g->sym, want[j], &c) && (c < 1 || c > 1 << 30))
            return op_invalid(e, g, n, "size %lld", (long long)c);
        if (sym_is_const(g->sym, r->in[i], &c) && c < 1) return op_invalid(e, g, n, "empty input");
        sym one = sym_const(g->sym, 1);
        if (r->in[i] != want[j] && (!op_require_at_least(g, n, r->in[i], one, e, "axis %u of the input", i) ||
                                    !op_require_at_least(g, n, want[j], one, e, "axis %u of the output", i)))
            return false;
        r->out[i] = r->num[i] = want[j];
        r->den[i] = r->in[i];
        reduce_fraction(g->sym, &r->num[i], &r->den[i]);
    }
    return r->aspect == STRETCH || keep_aspect(g, n, r, axis, count, e);
}

/* Optional input k is present and not empty. */
static bool is_given(const struct graph *g, const struct node *nd, u32 k)
{
    i64 c;
    if (!op_has_in(nd, k)) return false;
    const struct shape *s = op_in_shape(g, nd, k);
    return s->rank != 1 || !sym_is_const(g->sym, s->dim[0], &c) || c > 0;
}

static bool resize_read(struct graph *g, node_id n, struct op_resize *r, struct err *e)
{
    u32 axis[MAX_RANK], count;
    bool old = is_upsample(graph_node(g, n));
    if (!op_resize_read(g, n, r, e)) return false;
    if (old) r->coord = COORD_ASYMMETRIC, r->rounding = ROUND_FLOOR;
    if (!read_axes(g, n, r, axis, &count, e) || !read_roi(g, n, r, axis, count, e)) return false;
    bool scales = is_given(g, graph_node(g, n), old ? 1 : 2),
         sizes = !old && is_given(g, graph_node(g, n), 3);
    if (scales == sizes) return op_invalid(e, g, n, "either scales or sizes must be given");
    return scales ? read_scales(g, n, r, axis, count, e) : read_sizes(g, n, r, axis, count, e);
}

static bool infer(struct graph *g, node_id n, struct err *e)
{
    struct op_resize r;
    if (!resize_read(g, n, &r, e)) return false;
    struct shape out = {.known = true, .rank = r.rank};
    memcpy(out.dim, r.out, sizeof out.dim);
    op_set_out(g, n, 0, op_in_dtype(g, graph_node(g, n), 0), &out);
    return true;
}

/* Whole factors of a nearest resize for which out[i] = in[i // s]. */
static bool whole_factors(const struct graph *g, const struct op_resize *r, i64 *scale)
{
    bool centred = (r->coord == COORD_HALF_PIXEL || r->coord == COORD_PYTORCH_HALF_PIXEL) &&
                   (r->rounding == ROUND_PREFER_FLOOR || r->rounding == ROUND_PREFER_CEIL);
    bool cornered = (r->coord == COORD_ASYMMETRIC || r->coord == COORD_TF_HALF_PIXEL) &&
                    (r->rounding == ROUND_FLOOR || r->rounding == ROUND_SIMPLE);
    i64 den;
    if (r->mode != RESIZE_NEAREST || !(centred || cornered)) return false;
    for (u32 i = 0; i < r->rank; i++) {
        scale[i] = 1;
        if (op_resize_same(r, i)) continue;
        if (!sym_is_const(g->sym, r->num[i], &scale[i]) || !sym_is_const(g->sym, r->den[i], &den) ||
            den != 1)
            return false;
        if (r->out[i] != sym_mul(g->sym, r->in[i], r->num[i])) return false;
    }
    return true;
}

/* Interpolated integers are truncated; overshoot beyond the range of a short type saturates. */
static void truncate_to(struct graph *g, node_id n, value_id y, enum dtype t, value_id out)
{
    if (dtype_size(t) < 4) {
        y = op_node_binf(g, n, "Max", y, DT_F32, (double)dtype_int_extreme(t, false), 0);
        y = op_node_binf(g, n, "Min", y, DT_F32, (double)dtype_int_extreme(t, true), 0);
    }
    op_node_cast(g, n, y, t, out);
}

static bool expand(struct graph *g, node_id n, struct err *e)
{
    const struct node nd = *graph_node(g, n);
    struct op_resize r;
    i64 scale[MAX_RANK];
    if (!resize_read(g, n, &r, e)) return false;
    bool whole = whole_factors(g, &r, scale);
    const char *op = whole                      ? "quern::Upsample"
                     : r.mode == RESIZE_NEAREST ? "quern::ResizeNearest"
                                                : "quern::Resize";
    enum dtype t = op_in_dtype(g, &nd, 0);
    bool is_int = r.mode != RESIZE_NEAREST && !dtype_is_float(t);
    value_id x = is_int ? op_node_cast(g, n, nd.in.v[0], DT_F32, 0) : nd.in.v[0];
    value_id y = op_node1(g, n, op, x, is_int ? 0 : nd.out.v[0]);
    node_id to = op_made(g, y);
    if (whole) attr_set_ints(g, to, "scales", scale, r.rank);
    else op_resize_put(g, to, &r);
    if (is_int) truncate_to(g, n, y, t, nd.out.v[0]);
    return true;
}

/* Older forms. */

static value_id floats(struct graph *g, const char *name, const double *v, i64 n)
{
    struct tensor *t = tensor_new(g->arena, DT_F32, 1, &n);
    for (i64 i = 0; i < n; i++) elem_set_f64(DT_F32, t->data, i, v[i]);
    return graph_add_const(g, str_of(name), t);
}

static bool resize_upgrade(struct graph *g, node_id n, i64 opset, struct err *e)
{
    if (opset >= 11) return true;
    value_id scales = graph_node(g, n)->in.n == 2 ? graph_node(g, n)->in.v[1] : 0;
    if (!scales) return op_invalid(e, g, n, "no scales");
    graph_node(g, n)->in.v[1] = 0;
    node_add_in(g, n, scales);
    attr_set_str(g, n, "coordinate_transformation_mode", S("asymmetric"));
    attr_set_str(g, n, "nearest_mode", S("quern_simple"));
    return true;
}

static bool upsample_upgrade(struct graph *g, node_id n, i64 opset, struct err *e)
{
    const struct attr *a = node_attr(graph_node(g, n), "scales");
    if (opset >= 10)
        return op_unsupported(e, g, n, "not an operator of opset %lld", (long long)opset);
    if (opset >= 9) return true;
    if (!a || a->kind != ATTR_FLOATS) return op_invalid(e, g, n, "attribute 'scales' is missing");
    node_add_in(g, n, floats(g, "scales", a->floats, a->n));
    attr_remove(g, n, "scales");
    return true;
}

/* Random instances of the ONNX operator. */

static void random_resize(const struct op *self, struct graph *g, struct rng *r)
{
    static const double factors[] = {0.5, 0.6, 0.75, 1, 1.5, 2, 2.3, 3};
    i64 dim[MAX_RANK], sizes[MAX_RANK];
    double scales[MAX_RANK], roi[2 * MAX_RANK];
    u32 rank = (u32)rng_range(r, 2, 4), mode = (u32)rng_range(r, 0, N_RESIZE_MODES - 1),
        coord = (u32)rng_range(r, 0, N_COORDS - 1);
    bool by_size = rng_range(r, 0, 1);
    for (u32 i = 0; i < rank; i++) {
        bool fixed = rank > 2 && i + 2 < rank;
        dim[i] = rng_range(r, fixed ? 1 : 2, fixed ? 2 : 6);
        scales[i] = fixed ? 1 : factors[rng_range(r, 0, countof(factors) - 1)];
        sizes[i] = fixed ? dim[i] : rng_range(r, 1, 9);
        roi[i] = fixed ? 0 : 0.3 * rng_f64(r), roi[i + rank] = fixed ? 1 : 0.9 + 0.3 * rng_f64(r);
    }
    if (coord == COORD_TF_HALF_PIXEL && mode != RESIZE_NEAREST) coord = COORD_HALF_PIXEL;
    struct op_resize f = {.mode = mode,
                          .coord = coord,
                          .rounding = (u32)rng_range(r, 0, ROUND_SIMPLE),
                          .extrapolation = 3,
                          .cubic_a = -0.5};
    f.exclude_outside = mode == RESIZE_CUBIC && rng_range(r, 0, 1);
    f.antialias = mode != RESIZE_NEAREST && coord != COORD_TF_CROP && rng_range(r, 0, 3) == 0;
    enum dtype type = random_float_type(r);
    value_id in[4] = {0};
    random_input(g, "x", type, rank, dim, &in[0]);
    if (coord == COORD_TF_CROP) in[1] = floats(g, "roi", roi, 2 * rank);
    if (by_size || coord == COORD_TF_CROP) in[3] = op_const_i(g, DT_I64, sizes, rank);
    else in[2] = floats(g, "scales", scales, rank);
    random_node(g, self, in[3] ? 4 : 3, in, 1);
    op_resize_modes(g, g->node.n - 1, &f);
}

static void random_upsample(const struct op *self, struct graph *g, struct rng *r)
{
    static const double factors[] = {0.5, 1, 1.5, 2, 3};
    i64 dim[2];
    double scales[2];
    value_id in[2];
    for (u32 i = 0; i < 2; i++)
        dim[i] = rng_range(r, 2, 5), scales[i] = factors[rng_range(r, 0, countof(factors) - 1)];
    random_input(g, "x", DT_F32, 2, dim, &in[0]);
    in[1] = floats(g, "scales", scales, 2);
    random_node(g, self, 2, in, 1);
    attr_set_str(g, g->node.n - 1, "mode", rng_range(r, 0, 1) ? S("nearest") : S("linear"));
}

static const struct op ops[] = {
    {.name = "Resize",
     .min_in = 1,
     .max_in = 4,
     .min_out = 1,
     .max_out = 1,
     .upgrade = resize_upgrade,
     .infer = infer,
     .expand = expand,
     .random = random_resize},
    {.name = "Upsample",
     .min_in = 1,
     .max_in = 2,
     .min_out = 1,
     .max_out = 1,
     .upgrade = upsample_upgrade,
     .infer = infer,
     .expand = expand,
     .random = random_upsample},
};

const struct op_family op_resize = {ops, countof(ops)};
