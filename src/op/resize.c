// SPDX-License-Identifier: Apache-2.0
//
// Resize and the older Upsample: every mode of opset 18. Both become one of three primitives, which hold scales and sizes as
// symbolic attributes, so that no input is left that only holds sizes:
//
//   quern::Upsample       nearest by whole factors: out[i] = in[i // s]; a view
//   quern::ResizeNearest  any other nearest: a view, too
//   quern::Resize         linear, cubic, antialiased: a few weighted reads per axis
//
// A scale is a fraction num/den: out/in when sizes are given, otherwise the simplest fraction that rounds to the given float.
// The position in the input is then an exact fraction of integers (but for tf_crop_and_resize), so that ties and the sizes
// floor(H * num / den) come out the same for constant and symbolic sizes, on every machine.
//
// "length_resized" of the definition is in * scale, not rounded, as in ONNX's own reference.
#include "op/op.h"

#include <math.h>
#include <string.h>

enum mode { NEAREST, LINEAR, CUBIC, N_MODES };
enum rounding { FLOOR, CEIL, PREFER_FLOOR, PREFER_CEIL, SIMPLE, N_ROUNDINGS }; /* SIMPLE (opset 10): ceil where smaller */
enum coord { HALF_PIXEL, PYTORCH_HALF_PIXEL, ALIGN_CORNERS, ASYMMETRIC, TF_HALF_PIXEL, TF_CROP, N_COORDS };
enum policy { STRETCH, NOT_LARGER, NOT_SMALLER, N_POLICIES };

static const char *const mode_names[N_MODES] = {"nearest", "linear", "cubic"};
static const char *const rounding_names[N_ROUNDINGS] = {"floor", "ceil", "round_prefer_floor", "round_prefer_ceil",
                                                        "quern_simple"};
static const char *const coord_names[N_COORDS] = {"half_pixel", "pytorch_half_pixel", "align_corners",
                                                  "asymmetric", "tf_half_pixel_for_nn", "tf_crop_and_resize"};
static const char *const policy_names[N_POLICIES] = {"stretch", "not_larger", "not_smaller"};

struct resize {
    enum mode mode;
    enum rounding rounding;
    enum coord coord;
    enum policy policy;
    double cubic_a, extrapolation;
    bool exclude_outside, antialias;
    u32 rank;
    sym in[MAX_RANK], out[MAX_RANK], num[MAX_RANK], den[MAX_RANK];
    double start[MAX_RANK], end[MAX_RANK]; /* TF_CROP: region of interest, 0..1 */
};

/* Attributes. */

static bool read_name(struct graph *g, node_id n, const char *attr, const char *const *names, u32 count, u32 *out, struct err *e)
{
    struct str s = attr_str(graph_node(g, n), attr, names[*out]);
    for (u32 i = 0; i < count; i++)
        if (str_is(s, names[i])) return *out = i, true;
    return op_unsupported(e, g, n, "%s '%.*s'", attr, STR_ARG(s));
}

static bool read_modes(struct graph *g, node_id n, struct resize *r, struct err *e)
{
    const struct node *nd = graph_node(g, n);
    u32 mode = NEAREST, rounding = PREFER_FLOOR, coord = HALF_PIXEL, policy = STRETCH;
    if (!read_name(g, n, "mode", mode_names, N_MODES, &mode, e)) return false;
    if (!read_name(g, n, "nearest_mode", rounding_names, N_ROUNDINGS, &rounding, e)) return false;
    if (!read_name(g, n, "coordinate_transformation_mode", coord_names, N_COORDS, &coord, e)) return false;
    if (!read_name(g, n, "keep_aspect_ratio_policy", policy_names, N_POLICIES, &policy, e)) return false;
    *r = (struct resize){.mode = (enum mode)mode, .rounding = (enum rounding)rounding, .coord = (enum coord)coord,
                         .policy = (enum policy)policy};
    r->cubic_a = attr_float(nd, "cubic_coeff_a", -0.75);
    r->extrapolation = attr_float(nd, "extrapolation_value", 0);
    r->exclude_outside = attr_int(nd, "exclude_outside", 0);
    r->antialias = attr_int(nd, "antialias", 0) && r->mode != NEAREST;
    r->rank = op_in_shape(g, nd, 0)->rank;
    sym one = sym_const(g->sym, 1);
    for (u32 i = 0; i < r->rank; i++) {
        r->in[i] = r->out[i] = op_in_shape(g, nd, 0)->dim[i];
        r->num[i] = r->den[i] = one;
        r->end[i] = 1;
    }
    if (r->antialias && r->coord == TF_CROP) return op_unsupported(e, g, n, "antialias with tf_crop_and_resize");
    if (r->mode != NEAREST && !dtype_is_float(op_in_dtype(g, nd, 0)))
        return op_unsupported(e, g, n, "mode %s for type %s", mode_names[mode], dtype_name(op_in_dtype(g, nd, 0)));
    return true;
}

/* The axes that roi, scales and sizes speak of. */
static bool read_axes(struct graph *g, node_id n, const struct resize *r, u32 *axis, u32 *count, struct err *e)
{
    const i64 *v;
    i64 k = attr_ints(graph_node(g, n), "axes", &v);
    bool seen[MAX_RANK] = {0};
    *count = node_attr(graph_node(g, n), "axes") ? (u32)i64_min(k, MAX_RANK + 1) : r->rank;
    if (*count > r->rank) return op_invalid(e, g, n, "%lld axes for rank %u", (long long)k, r->rank);
    for (u32 i = 0; i < *count; i++) {
        if (!op_axis(k ? v[i] : i, r->rank, &axis[i]) || seen[axis[i]])
            return op_invalid(e, g, n, "axis %lld is out of range or named twice", (long long)v[i]);
        seen[axis[i]] = true;
    }
    return true;
}

static bool read_roi(struct graph *g, node_id n, struct resize *r, const u32 *axis, u32 count, struct err *e)
{
    const struct node *nd = graph_node(g, n);
    if (r->coord != TF_CROP) return true;
    const struct tensor *t = op_has_in(nd, 1) ? graph_value(g, nd->in.v[1])->data : NULL;
    if (!t) return op_unsupported(e, g, n, "roi is not constant");
    if (tensor_count(t) != 2 * (i64)count) return op_invalid(e, g, n, "roi of %lld elements", (long long)tensor_count(t));
    for (u32 i = 0; i < count; i++) {
        r->start[axis[i]] = elem_f64(t->dtype, t->data, i);
        r->end[axis[i]] = elem_f64(t->dtype, t->data, i + count);
        if (!isfinite(r->start[axis[i]]) || !isfinite(r->end[axis[i]])) return op_invalid(e, g, n, "roi is not finite");
    }
    return true;
}

/* The simplest fraction that rounds to the same float: the first convergent of the continued fraction that does. */
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

static sym rounded_down(const struct graph *g, sym in, sym num, sym den) { return sym_div(g->sym, sym_mul(g->sym, in, num), den); }

/* Cropped: floor(in * (end - start) * scale). */
static bool crop_size(struct graph *g, node_id n, struct resize *r, u32 i, double scale, struct err *e)
{
    i64 in;
    if (r->coord != TF_CROP || (r->start[i] == 0 && r->end[i] == 1)) return true;
    if (!sym_is_const(g->sym, r->in[i], &in)) return op_unsupported(e, g, n, "roi with scales over a symbolic size");
    double size = floor((double)in * (r->end[i] - r->start[i]) * scale * (1 + 1e-7)); /* floats just below an integer */
    if (!(size >= 0 && size < 1e9)) return op_invalid(e, g, n, "size %g", size);
    r->out[i] = sym_const(g->sym, (i64)size);
    return true;
}

static bool read_scales(struct graph *g, node_id n, struct resize *r, const u32 *axis, u32 count, struct err *e)
{
    value_id v = graph_node(g, n)->in.v[2];
    const struct tensor *t = graph_value(g, v)->data;
    struct sym_data d = {0};
    bool known = t ? dtype_is_float(t->dtype) : op_sym_content(g, v, MAX_RANK, &d);
    if (!known) return op_unsupported(e, g, n, "scales are only known at run time");
    if ((t ? tensor_count(t) : d.n) != count) return op_invalid(e, g, n, "scales do not have %u elements", count);
    for (u32 k = 0; k < count; k++) {
        u32 i = axis[k];
        i64 num, den;
        double s = t ? elem_f64(t->dtype, t->data, k) : 1;
        if (t && !rational(s, &num, &den)) return op_invalid(e, g, n, "scale %g", s);
        r->num[i] = t ? sym_const(g->sym, num) : d.num[k];
        r->den[i] = sym_const(g->sym, t ? den : d.den);
        r->out[i] = rounded_down(g, r->in[i], r->num[i], r->den[i]);
        if (!crop_size(g, n, r, i, s, e)) return false;
    }
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

/* keep_aspect_ratio_policy: the scale of the axis with the smallest or the largest one goes for all. */
static bool keep_aspect(struct graph *g, node_id n, struct resize *r, const u32 *axis, u32 count, struct err *e)
{
    i64 in, num = 0, den = 1, want;
    for (u32 k = 0; k < count; k++) {
        u32 i = axis[k];
        if (!sym_is_const(g->sym, r->in[i], &in) || !sym_is_const(g->sym, r->out[i], &want))
            return op_unsupported(e, g, n, "keep_aspect_ratio_policy over symbolic sizes");
        bool smaller = (double)want * (double)den < (double)num * (double)in;
        if (!k || smaller == (r->policy == NOT_LARGER)) num = want, den = in;
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

static bool read_sizes(struct graph *g, node_id n, struct resize *r, const u32 *axis, u32 count, struct err *e)
{
    sym want[MAX_RANK];
    i64 k, c;
    if (!op_sym_ints(g, graph_node(g, n)->in.v[3], want, MAX_RANK, &k))
        return op_unsupported(e, g, n, "sizes are only known at run time");
    if (k != count) return op_invalid(e, g, n, "%lld sizes instead of %u", (long long)k, count);
    for (u32 j = 0; j < count; j++) {
        u32 i = axis[j];
        if (sym_is_const(g->sym, want[j], &c) && (c < 1 || c > 1 << 30)) return op_invalid(e, g, n, "size %lld", (long long)c);
        if (sym_is_const(g->sym, r->in[i], &c) && c < 1) return op_invalid(e, g, n, "empty input");
        r->out[i] = r->num[i] = want[j];
        r->den[i] = r->in[i];
        reduce_fraction(g->sym, &r->num[i], &r->den[i]);
    }
    return r->policy == STRETCH || keep_aspect(g, n, r, axis, count, e);
}

/* Optional input k is there and has elements. */
static bool is_given(const struct graph *g, const struct node *nd, u32 k)
{
    i64 c;
    if (!op_has_in(nd, k)) return false;
    const struct shape *s = op_in_shape(g, nd, k);
    return s->rank != 1 || !sym_is_const(g->sym, s->dim[0], &c) || c > 0;
}

static bool resize_read(struct graph *g, node_id n, struct resize *r, struct err *e)
{
    u32 axis[MAX_RANK], count;
    if (!read_modes(g, n, r, e) || !read_axes(g, n, r, axis, &count, e) || !read_roi(g, n, r, axis, count, e)) return false;
    bool scales = is_given(g, graph_node(g, n), 2), sizes = is_given(g, graph_node(g, n), 3);
    if (scales == sizes) return op_invalid(e, g, n, "either scales or sizes must be given");
    return scales ? read_scales(g, n, r, axis, count, e) : read_sizes(g, n, r, axis, count, e);
}

/* The size does not change and no element moves. */
static bool is_identity(const struct resize *r, u32 i)
{
    return r->in[i] == r->out[i] && r->num[i] == r->den[i] && r->start[i] == 0 && r->end[i] == 1;
}

static bool infer(struct graph *g, node_id n, struct err *e)
{
    struct resize r;
    if (!resize_read(g, n, &r, e)) return false;
    struct shape out = {.known = true, .rank = r.rank};
    memcpy(out.dim, r.out, sizeof out.dim);
    op_set_out(g, n, 0, op_in_dtype(g, graph_node(g, n), 0), &out);
    return true;
}

/* Whole factors of a nearest resize for which out[i] = in[i // s]. */
static bool whole_factors(const struct graph *g, const struct resize *r, i64 *scale)
{
    bool centred = (r->coord == HALF_PIXEL || r->coord == PYTORCH_HALF_PIXEL) &&
                   (r->rounding == PREFER_FLOOR || r->rounding == PREFER_CEIL);
    bool cornered = (r->coord == ASYMMETRIC || r->coord == TF_HALF_PIXEL) && (r->rounding == FLOOR || r->rounding == SIMPLE);
    i64 den;
    if (r->mode != NEAREST || !(centred || cornered)) return false;
    for (u32 i = 0; i < r->rank; i++) {
        scale[i] = 1;
        if (is_identity(r, i)) continue;
        if (!sym_is_const(g->sym, r->num[i], &scale[i]) || !sym_is_const(g->sym, r->den[i], &den) || den != 1) return false;
        if (r->out[i] != sym_mul(g->sym, r->in[i], r->num[i])) return false;
    }
    return true;
}

static void set_roi(struct graph *g, node_id n, const struct resize *r)
{
    struct attr a = {.name = S("roi"), .kind = ATTR_FLOATS, .n = 2 * (i64)r->rank};
    a.floats = arena_array(g->arena, double, a.n + 1);
    for (u32 i = 0; i < r->rank; i++) a.floats[i] = r->start[i], a.floats[i + r->rank] = r->end[i];
    attr_copy(g, n, &a);
}

static bool expand(struct graph *g, node_id n, struct err *e)
{
    static const char *const copied[] = {"mode", "nearest_mode", "coordinate_transformation_mode", "cubic_coeff_a",
                                         "extrapolation_value", "exclude_outside", "antialias"};
    const struct node nd = *graph_node(g, n);
    struct resize r;
    i64 scale[MAX_RANK];
    if (!resize_read(g, n, &r, e)) return false;
    bool whole = whole_factors(g, &r, scale);
    const char *op = whole ? "quern::Upsample" : r.mode == NEAREST ? "quern::ResizeNearest" : "quern::Resize";
    node_id to = op_made(g, op_node1(g, n, op, nd.in.v[0], nd.out.v[0]));
    if (whole) return attr_set_ints(g, to, "scales", scale, r.rank), true;
    for (i64 i = 0; i < countof(copied); i++)
        if (node_attr(&nd, copied[i])) attr_copy(g, to, node_attr(&nd, copied[i]));
    op_set_syms(g, to, "out", r.out, r.rank);
    op_set_syms(g, to, "num", r.num, r.rank);
    op_set_syms(g, to, "den", r.den, r.rank);
    if (r.coord == TF_CROP) set_roi(g, to, &r);
    return true;
}

/* Older forms. */

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
    if (opset >= 10) return op_invalid(e, g, n, "not an operator of opset %lld", (long long)opset);
    const struct attr *a = node_attr(graph_node(g, n), "scales");
    if (opset < 9) {
        if (!a || a->kind != ATTR_FLOATS) return op_invalid(e, g, n, "attribute 'scales' is missing");
        struct tensor *t = tensor_new(g->arena, DT_F32, 1, &a->n);
        for (i64 i = 0; i < a->n; i++) elem_set_f64(DT_F32, t->data, i, a->floats[i]);
        value_id v = graph_add_const(g, S("scales"), t);
        node_add_in(g, n, v);
        attr_remove(g, n, "scales");
    }
    graph_node(g, n)->op = S("Resize");
    return resize_upgrade(g, n, opset, e);
}

static bool upsample_infer(struct graph *g, node_id n, struct err *e)
{
    return op_unsupported(e, g, n, "not an operator since opset 10");
}

/* quern::Upsample */

static bool whole_infer(struct graph *g, node_id n, struct err *e)
{
    struct shape s = *op_in_shape(g, graph_node(g, n), 0);
    const i64 *scale;
    if (attr_ints(graph_node(g, n), "scales", &scale) != s.rank) return op_invalid(e, g, n, "attribute 'scales'");
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

static bool whole_eval(const struct op_eval *v, struct err *e) { return op_map_eval(v, whole_map, v->n); }

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

/* The primitives quern::ResizeNearest and quern::Resize. */

static bool resize_get(const struct graph *g, const struct node *nd, struct resize *r)
{
    struct err e = {0};
    const struct attr *roi = node_attr(nd, "roi");
    struct graph *any = (struct graph *)(uintptr_t)g; /* read_modes only reads */
    if (!read_modes(any, (node_id)(nd - g->node.v), r, &e)) return false;
    i64 rank = r->rank;
    if (op_get_syms(g, nd, "out", r->out, MAX_RANK) != rank || op_get_syms(g, nd, "num", r->num, MAX_RANK) != rank ||
        op_get_syms(g, nd, "den", r->den, MAX_RANK) != rank)
        return false;
    for (i64 i = 0; roi && roi->kind == ATTR_FLOATS && roi->n == 2 * rank && i < rank; i++)
        r->start[i] = roi->floats[i], r->end[i] = roi->floats[i + rank];
    return true;
}

static bool prim_infer(struct graph *g, node_id n, struct err *e)
{
    struct resize r;
    if (!resize_get(g, graph_node(g, n), &r)) return op_invalid(e, g, n, "malformed attributes");
    struct shape out = {.known = true, .rank = r.rank};
    memcpy(out.dim, r.out, sizeof out.dim);
    op_set_out(g, n, 0, op_in_dtype(g, graph_node(g, n), 0), &out);
    return true;
}

/* Evaluation: a table of taps per axis and output index. */

struct table {
    i64 n;          /* taps per output index */
    i64 *at;        /* [out][n] */
    double *w;      /* [out][n] */
    bool *outside;  /* [out] extrapolated */
};

struct axis { double in, out, num, den; }; /* sizes and scale in numbers */

static double position(const struct resize *r, u32 i, const struct axis *a, double x)
{
    double resized = a->in * a->num / a->den, from = r->start[i], to = r->end[i];
    switch (r->coord) {
    case HALF_PIXEL: return (x + 0.5) * a->den / a->num - 0.5;
    case PYTORCH_HALF_PIXEL: return resized > 1 ? (x + 0.5) * a->den / a->num - 0.5 : 0;
    case ALIGN_CORNERS: return resized == 1 ? 0 : x * (a->in - 1) * a->den / (a->in * a->num - a->den);
    case ASYMMETRIC: return x * a->den / a->num;
    case TF_HALF_PIXEL: return (x + 0.5) * a->den / a->num;
    case TF_CROP:
        if (a->out <= 1) return 0.5 * (from + to) * (a->in - 1);
        return from * (a->in - 1) + x * (to - from) * (a->in - 1) / (a->out - 1);
    case N_COORDS: break;
    }
    unreachable();
}

static double round_position(enum rounding how, double x, bool smaller)
{
    switch (how) {
    case FLOOR: return floor(x);
    case CEIL: return ceil(x);
    case PREFER_FLOOR: return ceil(x - 0.5);
    case PREFER_CEIL: return floor(x + 0.5);
    case SIMPLE: return smaller ? ceil(x) : floor(x);
    case N_ROUNDINGS: break;
    }
    unreachable();
}

static double cubic_weight(double a, double x)
{
    x = fabs(x);
    if (x <= 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
    return x < 2 ? ((a * x - 5 * a) * x + 8 * a) * x - 4 * a : 0;
}

static double tap_weight(const struct resize *r, double x)
{
    return r->mode == CUBIC ? cubic_weight(r->cubic_a, x) : fmax(0, 1 - fabs(x));
}

/* Half the number of taps: the reach of the filter, stretched when antialiased. */
static i64 reach(const struct resize *r, const struct axis *a)
{
    i64 base = r->mode == CUBIC ? 2 : 1;
    return r->antialias ? i64_max(base, (i64)ceil((double)base * a->den / a->num)) : base;
}

static void table_row(const struct resize *r, const struct axis *a, double x, i64 *at, double *w, i64 taps)
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

static void table_make(const struct resize *r, u32 i, const struct axis *a, struct arena *arena, struct table *t)
{
    i64 out = (i64)a->out;
    bool same = is_identity(r, i);
    t->n = same || r->mode == NEAREST ? 1 : 2 * reach(r, a);
    t->at = arena_array(arena, i64, out * t->n + 1);
    t->w = arena_array(arena, double, out *t->n + 1);
    t->outside = arena_array(arena, bool, out + 1);
    for (i64 o = 0; o < out; o++) {
        double x = same ? (double)o : position(r, i, a, (double)o);
        t->outside[o] = r->coord == TF_CROP && (x < 0 || x > a->in - 1);
        t->w[o * t->n] = 1;
        if (t->n > 1) table_row(r, a, x, t->at + o * t->n, t->w + o * t->n, t->n);
        else t->at[o] = (i64)fmin(fmax(same ? x : round_position(r->rounding, x, a->num < a->den), 0), a->in - 1);
    }
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
    struct resize r;
    struct table t[MAX_RANK] = {0};
    i64 num[MAX_RANK], den[MAX_RANK], idx[MAX_RANK] = {0};
    struct tensor *y = v->out[0];
    if (!op_eval_syms(v, "num", num, MAX_RANK, e) || !op_eval_syms(v, "den", den, MAX_RANK, e)) return false;
    resize_get(v->g, v->n, &r);
    for (u32 i = 0; i < r.rank; i++) {
        if (num[i] < 1 || den[i] < 1 || (y->dim[i] && v->in[0]->dim[i] < 1)) return err_set(e, ERR_INPUT, "bad scale or empty input");
        struct axis a = {(double)v->in[0]->dim[i], (double)y->dim[i], (double)num[i], (double)den[i]};
        table_make(&r, i, &a, v->scratch, &t[i]);
    }
    i64 n = tensor_count(y), size = dtype_size(y->dtype);
    for (i64 o = 0; o < n; o++, op_next(y->rank, y->dim, idx)) {
        bool outside = false;
        i64 at = 0;
        for (u32 i = 0; i < r.rank; i++) outside |= t[i].outside[idx[i]], at = at * v->in[0]->dim[i] + t[i].at[idx[i]];
        if (outside) elem_set_f64(y->dtype, y->data, o, r.extrapolation);
        else if (r.mode != NEAREST) elem_set_f64(y->dtype, y->data, o, blend(t, v->in[0], 0, idx, 0));
        else memcpy((char *)y->data + o * size, (const char *)v->in[0]->data + at * size, (size_t)size);
    }
    return true;
}

/* Lowering. */

struct place {
    kval a, b;      /* position a/b, a >= -b; or */
    kval x;         /* position in f64 (TF_CROP) */
    kval outside;   /* 0: never */
    kval base, frac; /* floor, and the rest in the type of the weights */
};

static void place_crop(struct emit *m, const struct resize *r, u32 i, kval o, struct place *p)
{
    struct kir *k = m->k;
    kval one = kir_int(k, 1), out = emit_size(m, r->out[i]);
    kval last = kir_cast(k, DT_F64, kir_bin(k, KI_SUB, emit_size(m, r->in[i]), one));
    kval steps = kir_cast(k, DT_F64, kir_bin(k, KI_MAX, kir_bin(k, KI_SUB, out, one), one));
    kval from = kir_const_f(k, DT_F64, 1, r->start[i]), width = kir_const_f(k, DT_F64, 1, r->end[i] - r->start[i]);
    kval middle = kir_const_f(k, DT_F64, 1, 0.5 * (r->start[i] + r->end[i]));
    kval x = kir_bin(k, KI_MUL, kir_bin(k, KI_MUL, kir_cast(k, DT_F64, o), width), last);
    x = kir_bin(k, KI_ADD, kir_bin(k, KI_MUL, from, last), kir_bin(k, KI_DIV, x, steps));
    p->x = kir_select(k, kir_bin(k, KI_LT, one, out), x, kir_bin(k, KI_MUL, middle, last));
    p->outside = kir_bin(k, KI_OR, kir_bin(k, KI_LT, p->x, kir_const_f(k, DT_F64, 1, 0)), kir_bin(k, KI_LT, last, p->x));
}

/* The position as a fraction. */
static void place_fraction(struct emit *m, const struct resize *r, u32 i, kval o, struct place *p)
{
    struct kir *k = m->k;
    kval num = emit_size(m, r->num[i]), den = emit_size(m, r->den[i]), in = emit_size(m, r->in[i]);
    kval one = kir_int(k, 1), two = kir_int(k, 2), zero = kir_int(k, 0);
    kval odd = kir_bin(k, KI_MUL, kir_bin(k, KI_ADD, kir_bin(k, KI_MUL, o, two), one), den); /* (2x + 1) den */
    kval resized = kir_bin(k, KI_MUL, in, num);
    p->b = kir_bin(k, KI_MUL, num, two);
    switch (r->coord) {
    case HALF_PIXEL: p->a = kir_bin(k, KI_SUB, odd, num); break;
    case PYTORCH_HALF_PIXEL:
        p->a = kir_select(k, kir_bin(k, KI_LT, den, resized), kir_bin(k, KI_SUB, odd, num), zero);
        break;
    case ALIGN_CORNERS:
        p->a = kir_bin(k, KI_MUL, kir_bin(k, KI_MUL, o, kir_bin(k, KI_SUB, in, one)), den);
        p->b = kir_bin(k, KI_MAX, kir_bin(k, KI_SUB, resized, den), one);
        break;
    case ASYMMETRIC: p->a = kir_bin(k, KI_MUL, o, den), p->b = num; break;
    case TF_HALF_PIXEL: p->a = odd; break;
    case TF_CROP:
    case N_COORDS: unreachable();
    }
}

static void place_make(struct emit *m, const struct resize *r, u32 i, kval o, struct place *p)
{
    *p = (struct place){0};
    if (r->coord == TF_CROP) place_crop(m, r, i, o, p);
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
static kval quotient(struct kir *k, kval a, kval b) { return kir_bin(k, KI_DIV, kir_bin(k, KI_MAX, a, kir_int(k, 0)), b); }

static kval nearest_fraction(struct emit *m, const struct resize *r, u32 i, const struct place *p)
{
    struct kir *k = m->k;
    kval one = kir_int(k, 1), two = kir_int(k, 2);
    kval down = quotient(k, p->a, p->b);
    kval up = quotient(k, kir_bin(k, KI_SUB, kir_bin(k, KI_ADD, p->a, p->b), one), p->b);
    kval twice = kir_bin(k, KI_ADD, kir_bin(k, KI_MUL, p->a, two), p->b), b2 = kir_bin(k, KI_MUL, p->b, two);
    switch (r->rounding) {
    case FLOOR: return down;
    case CEIL: return up;
    case PREFER_FLOOR: return quotient(k, kir_bin(k, KI_SUB, twice, one), b2);
    case PREFER_CEIL: return quotient(k, twice, b2);
    case SIMPLE: return kir_select(k, kir_bin(k, KI_LT, emit_size(m, r->num[i]), emit_size(m, r->den[i])), up, down);
    case N_ROUNDINGS: break;
    }
    unreachable();
}

static kval nearest_float(struct emit *m, const struct resize *r, u32 i, kval x)
{
    struct kir *k = m->k;
    kval half = kir_const_f(k, DT_F64, 1, 0.5), down = kir_un(k, KI_FLOOR, x), up = kir_un(k, KI_CEIL, x);
    switch (r->rounding) {
    case FLOOR: return down;
    case CEIL: return up;
    case PREFER_FLOOR: return kir_un(k, KI_CEIL, kir_bin(k, KI_SUB, x, half));
    case PREFER_CEIL: return kir_un(k, KI_FLOOR, kir_bin(k, KI_ADD, x, half));
    case SIMPLE: return kir_select(k, kir_bin(k, KI_LT, emit_size(m, r->num[i]), emit_size(m, r->den[i])), up, down);
    case N_ROUNDINGS: break;
    }
    unreachable();
}

/* Value v, or the extrapolation value where any axis is outside. */
static kval extrapolated(struct emit *m, const struct resize *r, const struct place *p, kval v)
{
    struct kir *k = m->k;
    enum dtype t = kir_dtype(k, v);
    kval other = dtype_is_float(t) ? kir_const_f(k, t, 1, r->extrapolation) : kir_const_i(k, t, 1, (i64)r->extrapolation);
    for (u32 i = 0; i < r->rank; i++)
        if (p[i].outside) v = kir_select(k, p[i].outside, other, v);
    return v;
}

static kval nearest_lower(struct emit *m, const struct node *n, u32 out, const kval *idx)
{
    struct resize r;
    struct place p[MAX_RANK] = {0};
    kval at[MAX_RANK];
    resize_get(m->g, n, &r);
    for (u32 i = 0; i < r.rank; i++) {
        at[i] = idx[i];
        if (is_identity(&r, i)) continue;
        place_make(m, &r, i, idx[i], &p[i]);
        at[i] = p[i].x ? kir_cast(m->k, DT_I64, nearest_float(m, &r, i, p[i].x)) : nearest_fraction(m, &r, i, &p[i]);
        at[i] = emit_clamp(m, at[i], r.in[i]);
    }
    return extrapolated(m, &r, p, emit_value(m, n->in.v[0], at));
}

struct lerp {
    struct emit *m;
    const struct resize *r;
    const struct node *n;
    struct place *p;
    enum dtype type;   /* of weights and sums */
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
    return polynomial(l, x, near ? (double[]){1, 0, -(a + 3), a + 2} : (double[]){-4 * a, 8 * a, -5 * a, a});
}

static kval fixed_weight(const struct lerp *l, u32 i, u32 tap)
{
    struct kir *k = l->m->k;
    kval t = l->p[i].frac, back = kir_bin(k, KI_SUB, constant(l, 1), t);
    if (l->r->mode == LINEAR) return tap ? t : back;
    if (tap == 1 || tap == 2) return cubic_part(l, tap == 1 ? t : back, true);
    return cubic_part(l, kir_bin(k, KI_ADD, tap ? back : t, constant(l, 1)), false);
}

/* Sum over the taps of the axes from i on; with exclude_outside also of the weights (*sum). */
static kval fixed_taps(struct lerp *l, u32 i)
{
    struct kir *k = l->m->k;
    const struct resize *r = l->r;
    if (i == r->rank) return kir_cast(k, l->type, emit_value(l->m, l->n->in.v[0], l->at));
    if (is_identity(r, i)) return fixed_taps(l, i + 1);
    u32 taps = r->mode == CUBIC ? 4 : 2;
    kval total = 0, weights = 0;
    for (u32 t = 0; t < taps; t++) {
        kval p = kir_bin(k, KI_ADD, l->p[i].base, kir_int(k, (i64)t + 1 - taps / 2)), w = fixed_weight(l, i, t);
        l->at[i] = emit_clamp(l->m, p, r->in[i]);
        if (r->exclude_outside) w = kir_select(k, kir_bin(k, KI_EQ, l->at[i], p), w, constant(l, 0));
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
    if (l->r->mode == LINEAR) return kir_bin(k, KI_MAX, kir_bin(k, KI_SUB, one, x), zero);
    kval far = kir_select(k, kir_bin(k, KI_LT, x, constant(l, 2)), cubic_part(l, x, false), zero);
    return kir_select(k, kir_bin(k, KI_LE, x, one), cubic_part(l, x, true), far);
}

/* Antialiased: loops over the reach of the stretched filter; sum of weighted values over sum of weights. */
static kval stretched_taps(struct lerp *l, u32 lanes)
{
    struct kir *k = l->m->k;
    const struct resize *r = l->r;
    struct op_acc sum, weights;
    u32 open = 0;
    kval w = constant(l, 1);
    op_acc_open(l->m, &sum, lanes, constant(l, 0));
    op_acc_open(l->m, &weights, lanes, constant(l, 0));
    for (u32 i = 0; i < r->rank; i++) {
        if (is_identity(r, i)) continue;
        sym base = sym_const(l->m->g->sym, r->mode == CUBIC ? 2 : 1), s = sym_mul(l->m->g->sym, base, r->den[i]);
        kval half = emit_size(l->m, sym_max(l->m->g->sym, base, sym_cdiv(l->m->g->sym, s, r->num[i]))), one = kir_int(k, 1);
        kval j = kir_loop(k, KL_SERIAL, kir_bin(k, KI_SUB, one, half), kir_bin(k, KI_ADD, half, one), 1);
        kval num = kir_cast(k, l->type, emit_size(l->m, r->num[i])), den = kir_cast(k, l->type, emit_size(l->m, r->den[i]));
        kval stretch = kir_bin(k, KI_MIN, constant(l, 1), kir_bin(k, KI_DIV, num, den));
        kval x = kir_bin(k, KI_SUB, kir_cast(k, l->type, j), l->p[i].frac), p = kir_bin(k, KI_ADD, l->p[i].base, j);
        kval wi = stretched_weight(l, kir_bin(k, KI_MUL, x, stretch));
        l->at[i] = emit_clamp(l->m, p, r->in[i]);
        if (r->exclude_outside) wi = kir_select(k, kir_bin(k, KI_EQ, l->at[i], p), wi, constant(l, 0));
        w = kir_bin(k, KI_MUL, w, wi);
        open++;
    }
    op_acc_fma(l->m, &sum, w, kir_cast(k, l->type, emit_value(l->m, l->n->in.v[0], l->at)));
    op_acc_set(l->m, &weights, kir_bin(k, KI_ADD, op_acc_get(l->m, &weights), w));
    while (open--) kir_end(k);
    return kir_bin(k, KI_DIV, op_acc_get(l->m, &sum), op_acc_get(l->m, &weights));
}

static kval resize_lower(struct emit *m, const struct node *n, u32 out, const kval *idx)
{
    struct resize r;
    struct place p[MAX_RANK] = {0};
    resize_get(m->g, n, &r);
    struct lerp l = {.m = m, .r = &r, .n = n, .p = p, .type = op_acc_type(m, op_in_dtype(m->g, n, 0))};
    for (u32 i = 0; i < r.rank; i++) {
        l.at[i] = idx[i];
        if (is_identity(&r, i)) continue;
        place_make(m, &r, i, idx[i], &p[i]);
        place_split(m, &p[i], l.type);
    }
    kval v = r.antialias ? stretched_taps(&l, op_lanes(m, r.rank, idx)) : fixed_taps(&l, 0);
    return extrapolated(m, &r, p, kir_cast(m->k, emit_type(op_in_dtype(m->g, n, 0)), v));
}

static double resize_flops(const struct graph *g, const struct node *n, const i64 *var)
{
    struct resize r;
    i64 y[MAX_RANK];
    double f = 1;
    if (!resize_get(g, n, &r) || !shape_eval(g->sym, &graph_value(g, n->out.v[0])->shape, var, y)) return 0;
    for (u32 i = 0; i < r.rank; i++) f *= (double)y[i] * (is_identity(&r, i) ? 1 : r.mode == CUBIC ? 4 : 2);
    return 2 * f;
}

/* Random instances of the ONNX operator. */

static value_id floats(struct graph *g, const char *name, const double *v, i64 n)
{
    struct tensor *t = tensor_new(g->arena, DT_F32, 1, &n);
    for (i64 i = 0; i < n; i++) elem_set_f64(DT_F32, t->data, i, v[i]);
    return graph_add_const(g, str_of(name), t);
}

static void random_resize(const struct op *self, struct graph *g, struct rng *r)
{
    static const double factors[] = {0.5, 0.6, 0.75, 1, 1.5, 2, 2.3, 3};
    i64 dim[MAX_RANK], sizes[MAX_RANK];
    double scales[MAX_RANK], roi[2 * MAX_RANK];
    u32 rank = (u32)rng_range(r, 2, 4), mode = (u32)rng_range(r, 0, N_MODES - 1), coord = (u32)rng_range(r, 0, N_COORDS - 1);
    bool by_size = rng_range(r, 0, 1);
    for (u32 i = 0; i < rank; i++) {
        bool fixed = rank > 2 && i + 2 < rank;
        dim[i] = rng_range(r, fixed ? 1 : 2, fixed ? 2 : 6);
        scales[i] = fixed ? 1 : factors[rng_range(r, 0, countof(factors) - 1)];
        sizes[i] = fixed ? dim[i] : rng_range(r, 1, 9);
        roi[i] = fixed ? 0 : 0.3 * rng_f64(r), roi[i + rank] = fixed ? 1 : 0.9 + 0.3 * rng_f64(r);
    }
    if (coord == TF_HALF_PIXEL && mode != NEAREST) coord = HALF_PIXEL;
    value_id in[4] = {0};
    random_input(g, "x", DT_F32, rank, dim, &in[0]);
    if (coord == TF_CROP) in[1] = floats(g, "roi", roi, 2 * rank);
    if (by_size || coord == TF_CROP) in[3] = op_const_i(g, DT_I64, sizes, rank);
    else in[2] = floats(g, "scales", scales, rank);
    random_node(g, self, in[3] ? 4 : 3, in, 1);
    node_id n = g->node.n - 1;
    attr_set_str(g, n, "mode", str_of(mode_names[mode]));
    attr_set_str(g, n, "nearest_mode", str_of(rounding_names[rng_range(r, 0, SIMPLE)]));
    attr_set_str(g, n, "coordinate_transformation_mode", str_of(coord_names[coord]));
    attr_set_float(g, n, "extrapolation_value", 3);
    if (mode == CUBIC) attr_set_int(g, n, "exclude_outside", rng_range(r, 0, 1));
    if (mode != NEAREST && coord != TF_CROP) attr_set_int(g, n, "antialias", rng_range(r, 0, 3) == 0);
}

static const struct op ops[] = {
    {.name = "Resize", .min_in = 1, .max_in = 4, .min_out = 1, .max_out = 1,
     .upgrade = resize_upgrade, .infer = infer, .expand = expand, .random = random_resize},
    {.name = "Upsample", .min_in = 1, .max_in = 2, .min_out = 1, .max_out = 1,
     .upgrade = upsample_upgrade, .infer = upsample_infer},
    {.name = "quern::Upsample", .props = OP_VIEW, .min_in = 1, .max_in = 1, .min_out = 1, .max_out = 1,
     .infer = whole_infer, .eval = whole_eval, .lower = whole_lower, .random = whole_random},
    {.name = "quern::ResizeNearest", .props = OP_VIEW, .min_in = 1, .max_in = 1, .min_out = 1, .max_out = 1,
     .infer = prim_infer, .eval = prim_eval, .lower = nearest_lower},
    {.name = "quern::Resize", .props = OP_SAMPLE, .min_in = 1, .max_in = 1, .min_out = 1, .max_out = 1,
     .infer = prim_infer, .eval = prim_eval, .lower = resize_lower, .flops = resize_flops},
};

const struct op_family op_resize = {ops, countof(ops)};
