// SPDX-License-Identifier: Apache-2.0
//
// WeightedFilter and its gradients (doc/weighted-filter.md): every pixel has a kernel of its own, shared by all channels.
//
//   quern::WeightedFilter(x, w, bias?) -> y
//   quern::WeightedFilterGradInput(dy, w) -> dx
//   quern::WeightedFilterGradWeights(dy, x, w?) -> dw
//
// Composites: gathering and splatting are adjoint to each other, so one primitive (quern::Filter) computes y and dx of both,
// and one (quern::FilterOuter) dw of both (filter.c). Borders that repeat the image are a pad before a gather, and the pad's
// adjoint after a splat. With F the filter without normaliser, 1 an image of ones and y = F(x) / (F(1) + epsilon):
//
//   dx = F*(g)                          g = dy / (F(1) + epsilon), F* the adjoint
//   dw = sum over c of the products of (g, h) with (x, 1), h = - sum over c of g*y
//
// Transformed weights v = f(w): dw = dv * v for exp, v * (dv - sum over taps of dv*v) for softmax.
#include "op/op.h"

enum { PAD_ZERO, PAD_REFLECT, PAD_REPLICATE, PAD_VALID, N_PADS };
enum { W_NONE, W_EXP, W_SOFTMAX, N_TRANSFORMS };

static const char *const mode_names[] = {"gather", "splat"}, *const pad_names[] = {"zero", "reflect", "replicate", "valid"},
                         *const transform_names[] = {"none", "exp", "softmax"}, *const sum_names[] = {"none", "sum"};

struct filter {
    i64 kernel[2], dilation[2], begin[2]; /* begin: of the kernel's centre; valid: 0 */
    u32 splat, pad, transform, normalize; /* positions in the names */
    double epsilon;
    enum dtype weights;                   /* type of w */
};

static bool read_word(const struct graph *g, node_id n, const char *attr, const char *const *names, u32 count, u32 *out, struct err *e)
{
    struct str s = attr_str(graph_node(g, n), attr, names[0]);
    struct buf known = {0};
    for (u32 i = 0; i < count; i++) {
        if (str_is(s, names[i])) return *out = i, buf_release(&known), true;
        buf_printf(&known, "%s'%s'", i ? " or " : "", names[i]);
    }
    op_unsupported(e, g, n, "attribute '%s' = '%.*s', expected %.*s", attr, STR_ARG(s), STR_ARG(buf_view(&known)));
    buf_release(&known);
    return false;
}

static bool read_window(const struct graph *g, node_id n, struct filter *f, struct err *e)
{
    const i64 *kernel, *dilation;
    i64 nk = attr_ints(graph_node(g, n), "kernel_shape", &kernel), nd = attr_ints(graph_node(g, n), "dilations", &dilation);
    if (nk != 2) return op_invalid(e, g, n, "length of attribute 'kernel_shape' is %lld, expected 2 (rows, columns)", (long long)nk);
    if (nd && nd != 2) return op_invalid(e, g, n, "length of attribute 'dilations' is %lld, expected 2 (rows, columns)", (long long)nd);
    for (u32 i = 0; i < 2; i++) {
        f->kernel[i] = kernel[i], f->dilation[i] = nd ? dilation[i] : 1;
        if (f->kernel[i] < 1 || f->kernel[i] > 4096 || f->dilation[i] < 1 || f->dilation[i] > 1 << 20)
            return op_invalid(e, g, n, "kernel of %lld elements, dilation %lld", (long long)f->kernel[i], (long long)f->dilation[i]);
        f->begin[i] = f->pad == PAD_VALID ? 0 : (f->kernel[i] - 1) * f->dilation[i] / 2;
    }
    return true;
}

static bool read_filter(const struct graph *g, node_id n, struct filter *f, struct err *e)
{
    *f = (struct filter){.epsilon = attr_float(graph_node(g, n), "epsilon", 0)};
    return read_word(g, n, "mode", mode_names, 2, &f->splat, e) && read_word(g, n, "padding", pad_names, N_PADS, &f->pad, e) &&
           read_word(g, n, "transform", transform_names, N_TRANSFORMS, &f->transform, e) &&
           read_word(g, n, "normalize", sum_names, 2, &f->normalize, e) && read_window(g, n, f, e);
}

/* Elements from the first to the last tap. */
static sym reach(const struct graph *g, const struct filter *f, u32 i) { return sym_const(g->sym, (f->kernel[i] - 1) * f->dilation[i]); }

/* Sizes of the filter's output for those of the map of weights (gathered: of its input for them). */
static sym far_size(const struct graph *g, const struct filter *f, sym size, u32 i)
{
    return f->pad == PAD_VALID ? sym_add(g->sym, size, reach(g, f, i)) : size;
}

/* Reports a size mismatch. size: both */
static bool misfit(const struct graph *g, node_id n, const char *what, const sym size[2], struct err *e)
{
    struct buf has = {0}, want = {0};
    sym_print(&has, g->sym, size[0]);
    sym_print(&want, g->sym, size[1]);
    op_invalid(e, g, n, "%s is %.*s, expected %.*s", what, STR_ARG(buf_view(&has)), STR_ARG(buf_view(&want)));
    buf_release(&has);
    buf_release(&want);
    return false;
}

static bool is_map(const struct graph *g, node_id n, u32 input, const char *what, struct err *e)
{
    const struct node *nd = graph_node(g, n);
    if (!dtype_is_float(op_in_dtype(g, nd, input)))
        return op_unsupported(e, g, n, "%s of type %s, expected f16, bf16, f32 or f64", what, dtype_name(op_in_dtype(g, nd, input)));
    if (op_in_shape(g, nd, input)->rank == 4) return true;
    return op_invalid(e, g, n, "%s of rank %u, expected 4 (batch, channels, rows, columns)", what, op_in_shape(g, nd, input)->rank);
}

/* Weights in input k. */
static bool weights_fit(struct graph *g, node_id n, u32 k, struct filter *f, struct err *e)
{
    i64 taps, want = f->kernel[0] * f->kernel[1];
    if (!is_map(g, n, k, "weights", e)) return false;
    f->weights = op_in_dtype(g, graph_node(g, n), k);
    if (!sym_is_const(g->sym, op_in_shape(g, graph_node(g, n), k)->dim[1], &taps))
        return op_unsupported(e, g, n, "the number of weights is not known");
    if (taps == want) return true;
    return op_invalid(e, g, n, "%lld weights per pixel, expected %lld for a kernel of %lld x %lld", (long long)taps, (long long)want,
                      (long long)f->kernel[0], (long long)f->kernel[1]);
}

/* Whether `map` has the size of the map of weights `w`, or, for is_far, of the area that the
   kernels read from there. */
static bool sizes_fit(struct graph *g, node_id n, const struct filter *f, const struct shape *map, const struct shape *w, bool is_far,
                      struct err *e)
{
    static const char *const names[] = {"batch size of the image", "height of the image", "width of the image"};
    for (u32 k = 0; k < 3; k++) {
        u32 d = k ? k + 1 : 0;
        sym size[] = {map->dim[d], k && is_far ? far_size(g, f, w->dim[d], k - 1) : w->dim[d]};
        if (!op_sizes_agree(g, size[0], size[1])) return misfit(g, n, names[k], size, e);
    }
    return true;
}

/* Shape of the result of filtering x with weights w. */
static struct shape filtered(struct graph *g, const struct filter *f, bool splat, const struct shape *x, const struct shape *w)
{
    struct shape out = *x;
    for (u32 i = 0; i < 2; i++) out.dim[2 + i] = splat ? far_size(g, f, w->dim[2 + i], i) : w->dim[2 + i];
    return out;
}

static bool bias_fits(struct graph *g, node_id n, struct err *e)
{
    const struct node *nd = graph_node(g, n);
    if (!op_has_in(nd, 2)) return true;
    const struct shape *b = op_in_shape(g, nd, 2);
    enum dtype t = op_in_dtype(g, nd, 2), want = op_in_dtype(g, nd, 0);
    if (t != want) return op_invalid(e, g, n, "bias of type %s, expected %s as the input", dtype_name(t), dtype_name(want));
    if (b->rank != 1) return op_invalid(e, g, n, "bias of rank %u, expected 1 (channels)", b->rank);
    sym size[] = {b->dim[0], op_in_shape(g, nd, 0)->dim[1]};
    return op_sizes_agree(g, size[0], size[1]) || misfit(g, n, "number of elements of the bias", size, e);
}

/* WeightedFilter (adjoint false) and WeightedFilterGradInput: filters input 0 by input 1. */
static bool infer_filter(struct graph *g, node_id n, bool adjoint, struct err *e)
{
    struct filter f;
    if (!read_filter(g, n, &f, e) || !is_map(g, n, 0, "input", e) || !weights_fit(g, n, 1, &f, e)) return false;
    const struct shape x = *op_in_shape(g, graph_node(g, n), 0), w = *op_in_shape(g, graph_node(g, n), 1);
    bool splat = f.splat != adjoint;
    if (!sizes_fit(g, n, &f, &x, &w, !splat, e) || (!adjoint && !bias_fits(g, n, e))) return false;
    struct shape out = filtered(g, &f, splat, &x, &w);
    op_set_out(g, n, 0, op_in_dtype(g, graph_node(g, n), 0), &out);
    return true;
}

static bool forward_infer(struct graph *g, node_id n, struct err *e) { return infer_filter(g, n, false, e); }

static bool input_infer(struct graph *g, node_id n, struct err *e) { return infer_filter(g, n, true, e); }

static bool weights_infer(struct graph *g, node_id n, struct err *e)
{
    const struct node *nd = graph_node(g, n);
    struct filter f;
    bool given = op_has_in(nd, 2);
    if (!read_filter(g, n, &f, e) || !is_map(g, n, 0, "gradient", e) || !is_map(g, n, 1, "input", e)) return false;
    if (!given && (f.transform || f.normalize)) return op_invalid(e, g, n, "transformed or normalised weights are not given");
    f.weights = op_in_dtype(g, nd, 1);
    if (given && !weights_fit(g, n, 2, &f, e)) return false;
    const struct shape dy = *op_in_shape(g, graph_node(g, n), 0), x = *op_in_shape(g, graph_node(g, n), 1);
    const struct shape near = given ? *op_in_shape(g, graph_node(g, n), 2) : f.splat ? x : dy;
    if (!sizes_fit(g, n, &f, &dy, &near, f.splat, e) || !sizes_fit(g, n, &f, &x, &near, !f.splat, e)) return false;
    enum dtype t = op_in_dtype(g, graph_node(g, n), 0), want = op_in_dtype(g, graph_node(g, n), 1);
    if (t != want) return op_invalid(e, g, n, "gradient of type %s, expected %s as the input", dtype_name(t), dtype_name(want));
    sym channels[] = {dy.dim[1], x.dim[1]};
    if (!op_sizes_agree(g, channels[0], channels[1])) return misfit(g, n, "number of channels of the gradient", channels, e);
    struct shape out = near;
    out.dim[1] = sym_const(g->sym, f.kernel[0] * f.kernel[1]);
    op_set_out(g, n, 0, f.weights, &out);
    return true;
}

/* Expansion. */

struct expansion {
    struct graph *g;
    node_id n;
    struct filter f;
    value_id w;           /* as they were given, 0: none */
    value_id made;        /* transformed, 0: not yet */
    enum dtype type;      /* of the filtered image */
    struct shape from, to; /* of the forward filter's input and output */
};

static const i64 tap_axis[] = {1};

/* The transformed weights, in the wider of their type and the image's, so that nothing is rounded
   before use. */
static value_id transformed(struct expansion *x)
{
    value_id w = x->w;
    if (x->f.transform == W_NONE) return w;
    if (x->made) return x->made;
    if (dtype_size(x->type) > dtype_size(graph_value(x->g, w)->dtype)) w = op_node_cast(x->g, x->n, w, x->type, 0);
    x->made = op_node1(x->g, x->n, x->f.transform == W_EXP ? "Exp" : "Softmax", w, 0);
    if (x->f.transform == W_SOFTMAX) attr_set_int(x->g, op_made(x->g, x->made), "axis", 1);
    return x->made;
}

/* Whether the image continues beyond its borders. */
static bool repeats(const struct filter *f) { return f->pad == PAD_REFLECT || f->pad == PAD_REPLICATE; }

static struct str border_mode(const struct filter *f) { return f->pad == PAD_REFLECT ? S("reflect") : S("edge"); }

/* v with as much of its continuation around it as the kernels reach. */
static value_id padded(struct expansion *x, value_id v)
{
    struct graph *g = x->g;
    sym before[4], after[4];
    if (!repeats(&x->f)) return v;
    for (u32 i = 0; i < 4; i++) {
        before[i] = sym_const(g->sym, i < 2 ? 0 : x->f.begin[i - 2]);
        after[i] = i < 2 ? before[i] : sym_sub(g->sym, reach(g, &x->f, i - 2), before[i]);
    }
    node_id p = op_made(g, op_node1(g, x->n, "quern::Pad", v, 0));
    attr_set_str(g, p, "mode", border_mode(&x->f));
    op_set_syms(g, p, "before", before, 4);
    op_set_syms(g, p, "after", after, 4);
    return graph_node(g, p)->out.v[0];
}

/* The adjoint of padded. */
static value_id folded(struct expansion *x, value_id v, value_id out)
{
    for (u32 i = 0; i < 2; i++) {
        node_id p = op_made(x->g, op_node1(x->g, x->n, "quern::Fold", v, i ? out : 0));
        attr_set_str(x->g, p, "mode", border_mode(&x->f));
        attr_set_int(x->g, p, "axis", 2 + i);
        attr_set_int(x->g, p, "before", x->f.begin[i]);
        attr_set_int(x->g, p, "after", (x->f.kernel[i] - 1) * x->f.dilation[i] - x->f.begin[i]);
        v = graph_node(x->g, p)->out.v[0];
    }
    return v;
}

static void set_window(struct expansion *x, node_id n)
{
    const i64 zero[2] = {0, 0};
    attr_set_ints(x->g, n, "kernel_shape", x->f.kernel, 2);
    attr_set_ints(x->g, n, "dilations", x->f.dilation, 2);
    attr_set_ints(x->g, n, "begins", repeats(&x->f) ? zero : x->f.begin, 2);
}

/* v filtered; to: sizes of the result. Gathered by softmax of the weights it is one pass over them. */
static value_id filter(struct expansion *x, value_id v, const struct shape *to, bool splat, bool normalize, value_id out)
{
    struct graph *g = x->g;
    bool folds = splat && repeats(&x->f), softmax = x->f.transform == W_SOFTMAX && !splat && !normalize;
    sym size[2];
    value_id w = softmax ? x->w : transformed(x), y = op_node2(g, x->n, "quern::Filter", splat ? v : padded(x, v), w, folds ? 0 : out);
    node_id n = op_made(g, y);
    set_window(x, n);
    if (softmax) attr_set_int(g, n, "softmax", 1);
    attr_set_int(g, n, "splat", splat);
    for (u32 i = 0; i < 2; i++) size[i] = folds ? sym_add(g->sym, to->dim[2 + i], reach(g, &x->f, i)) : to->dim[2 + i];
    if (splat) op_set_syms(g, n, "out", size, 2);
    if (normalize) attr_set_int(g, n, "normalize", 1), attr_set_float(g, n, "epsilon", x->f.epsilon);
    return folds ? folded(x, y, out) : y;
}

static value_id ones(struct expansion *x)
{
    value_id v = op_node1(x->g, x->n, "quern::Expand", op_const_f(x->g, x->type, 1), 0);
    sym dim[4] = {x->from.dim[0], sym_const(x->g->sym, 1), x->from.dim[2], x->from.dim[3]};
    op_set_syms(x->g, op_made(x->g, v), "shape", dim, 4);
    return v;
}

/* The filtered image of ones plus epsilon: the divisor of the output. */
static value_id divisor(struct expansion *x)
{
    value_id sum = filter(x, ones(x), &x->to, x->f.splat, false, 0);
    return op_node_binf(x->g, x->n, "Add", sum, x->type, x->f.epsilon, 0);
}

/* A normaliser separate from the pass's own: pads are accumulated after it. */
static bool is_apart(const struct expansion *p) { return p->f.normalize && p->f.splat && repeats(&p->f); }

/* The forward filter without bias. */
static value_id filtered_value(struct expansion *x, value_id v, value_id out)
{
    if (!is_apart(x)) return filter(x, v, &x->to, x->f.splat, x->f.normalize, out);
    value_id y = filter(x, v, &x->to, true, false, 0);
    return op_node2(x->g, x->n, "Div", y, divisor(x), out);
}

/* type: of the filtered image; weights: number of that input. */
static bool expansion_open(struct expansion *x, struct graph *g, node_id n, u32 weights, enum dtype type, struct err *e)
{
    *x = (struct expansion){.g = g, .n = n, .type = type};
    if (!read_filter(g, n, &x->f, e)) return false;
    if (op_has_in(graph_node(g, n), weights)) x->w = graph_node(g, n)->in.v[weights];
    return true;
}

static struct shape shape_of(const struct graph *g, value_id v) { return graph_value(g, v)->shape; }

static bool forward_expand(struct graph *g, node_id n, struct err *e)
{
    struct expansion x;
    const struct node nd = *graph_node(g, n);
    const i64 apart[] = {1, 2};
    if (!expansion_open(&x, g, n, 1, op_in_dtype(g, &nd, 0), e)) return false;
    x.from = shape_of(g, nd.in.v[0]), x.to = shape_of(g, nd.out.v[0]);
    bool bias = op_has_in(&nd, 2);
    value_id y = filtered_value(&x, nd.in.v[0], bias ? 0 : nd.out.v[0]);
    if (bias) op_node2(g, n, "Add", y, op_node_axes(g, n, "Unsqueeze", nd.in.v[2], apart, 2, 0), nd.out.v[0]);
    return true;
}

/* The gradient of the normaliser's dividend. */
static value_id divided(struct expansion *x, value_id dy)
{
    return x->f.normalize ? op_node2(x->g, x->n, "Div", dy, divisor(x), 0) : dy;
}

static bool input_expand(struct graph *g, node_id n, struct err *e)
{
    struct expansion x;
    const struct node nd = *graph_node(g, n);
    if (!expansion_open(&x, g, n, 1, op_in_dtype(g, &nd, 0), e)) return false;
    x.to = shape_of(g, nd.in.v[0]), x.from = shape_of(g, nd.out.v[0]);
    filter(&x, divided(&x, nd.in.v[0]), &x.from, !x.f.splat, false, nd.out.v[0]);
    return true;
}

static value_id concat(struct expansion *x, value_id a, value_id b)
{
    value_id v = op_node2(x->g, x->n, "Concat", a, b, 0);
    attr_set_int(x->g, op_made(x->g, v), "axis", 1);
    return v;
}

/* The gradient of the transformed weights: products of elements at the weights' positions with
   those that their taps read. */
static value_id products(struct expansion *p, value_id dy, value_id x, value_id out)
{
    struct graph *g = p->g;
    if (p->f.normalize) {
        value_id d = divided(p, dy), y = filtered_value(p, x, 0);
        value_id h = op_node_axes(g, p->n, "ReduceSum", op_node2(g, p->n, "Mul", d, y, 0), tap_axis, 1, 0);
        dy = concat(p, d, op_node1(g, p->n, "Neg", h, 0));
        x = concat(p, x, ones(p));
    }
    value_id v = op_node2(g, p->n, "quern::FilterOuter", p->f.splat ? x : dy, padded(p, p->f.splat ? dy : x), out);
    set_window(p, op_made(g, v));
    return v;
}

static bool weights_expand(struct graph *g, node_id n, struct err *e)
{
    struct expansion p;
    const struct node nd = *graph_node(g, n);
    value_id out = nd.out.v[0];
    enum dtype t = op_in_dtype(g, &nd, 0), to = graph_value(g, out)->dtype;
    /* Products are stored in the wider type: nothing is rounded twice. */
    enum dtype wide = dtype_size(to) > dtype_size(t) ? to : t;
    if (!expansion_open(&p, g, n, 2, wide, e)) return false;
    p.from = shape_of(g, nd.in.v[1]), p.to = shape_of(g, nd.in.v[0]);
    bool same = wide == to, plain = p.f.transform == W_NONE;
    value_id dy = op_as(g, n, nd.in.v[0], wide), x = op_as(g, n, nd.in.v[1], wide);
    value_id v = products(&p, dy, x, same && plain ? out : 0);
    if (!plain) { /* transformed weights are of the wider type */
        if (p.f.transform == W_SOFTMAX)
            v = op_node2(g, n, "Sub", v, op_node_axes(g, n, "ReduceSum", op_node2(g, n, "Mul", v, transformed(&p), 0), tap_axis, 1, 0), 0);
        v = op_node2(g, n, "Mul", v, transformed(&p), same ? out : 0);
    }
    if (!same) op_node_cast(g, n, v, to, out);
    return true;
}

/* Random instances. */

struct instance {
    struct filter f;
    i64 near[4], far[4], taps[4]; /* shapes: at the weights' positions, of the area read by taps, of the weights */
};

static struct instance random_instance(struct rng *r)
{
    struct instance t = {.f = {.splat = (u32)rng_range(r, 0, 1), .pad = (u32)rng_range(r, 0, N_PADS - 1),
                               .transform = (u32)rng_range(r, 0, N_TRANSFORMS - 1)}};
    t.near[0] = rng_range(r, 1, 2), t.near[1] = rng_range(r, 1, 4);
    t.far[0] = t.taps[0] = t.near[0], t.far[1] = t.near[1], t.taps[1] = 1;
    for (u32 i = 0; i < 2; i++) {
        t.f.kernel[i] = rng_range(r, 1, 5), t.f.dilation[i] = rng_range(r, 1, 2);
        t.near[2 + i] = t.taps[2 + i] = rng_range(r, 1, 7);
        t.far[2 + i] = t.near[2 + i] + (t.f.pad == PAD_VALID ? (t.f.kernel[i] - 1) * t.f.dilation[i] : 0);
        t.taps[1] *= t.f.kernel[i];
    }
    bool met = t.taps[1] % 2 && t.f.pad != PAD_VALID; /* every pixel, by the tap at its own place */
    t.f.normalize = t.f.transform && rng_range(r, 0, 1); /* then weights are positive */
    t.f.epsilon = !met || rng_range(r, 0, 1) ? 0.125 : 0;
    return t;
}

static void set_filter(struct graph *g, node_id n, const struct filter *f)
{
    attr_set_ints(g, n, "kernel_shape", f->kernel, 2);
    attr_set_ints(g, n, "dilations", f->dilation, 2);
    attr_set_str(g, n, "mode", str_of(mode_names[f->splat]));
    attr_set_str(g, n, "padding", str_of(pad_names[f->pad]));
    attr_set_str(g, n, "transform", str_of(transform_names[f->transform]));
    attr_set_str(g, n, "normalize", str_of(sum_names[f->normalize]));
    attr_set_float(g, n, "epsilon", f->epsilon);
}

static void random_forward(const struct op *self, struct graph *g, struct rng *r)
{
    struct instance t = random_instance(r);
    enum dtype type = random_float_type(r);
    value_id in[3] = {0};
    random_input(g, "x", type, 4, t.f.splat ? t.near : t.far, &in[0]);
    random_input(g, "w", rng_range(r, 0, 1) ? type : random_float_type(r), 4, t.taps, &in[1]);
    bool bias = rng_range(r, 0, 1);
    if (bias) random_input(g, "bias", type, 1, &t.near[1], &in[2]);
    set_filter(g, random_node(g, self, bias ? 3 : 2, in, 1), &t.f);
}

static void random_input_gradient(const struct op *self, struct graph *g, struct rng *r)
{
    struct instance t = random_instance(r);
    value_id in[2];
    random_input(g, "dy", random_float_type(r), 4, t.f.splat ? t.far : t.near, &in[0]);
    random_input(g, "w", random_float_type(r), 4, t.taps, &in[1]);
    set_filter(g, random_node(g, self, 2, in, 1), &t.f);
}

static void random_weights_gradient(const struct op *self, struct graph *g, struct rng *r)
{
    struct instance t = random_instance(r);
    enum dtype type = random_float_type(r);
    value_id in[3] = {0};
    random_input(g, "dy", type, 4, t.f.splat ? t.far : t.near, &in[0]);
    random_input(g, "x", type, 4, t.f.splat ? t.near : t.far, &in[1]);
    bool given = t.f.transform || t.f.normalize || rng_range(r, 0, 1);
    if (given) random_input(g, "w", rng_range(r, 0, 1) ? type : random_float_type(r), 4, t.taps, &in[2]);
    set_filter(g, random_node(g, self, given ? 3 : 2, in, 1), &t.f);
}

static const struct op ops[] = {
    {.name = "quern::WeightedFilter",
     .attributes = "dilations:ints epsilon:float kernel_shape:ints mode:string normalize:string padding:string transform:string",
     .min_in = 2,
     .max_in = 3,
     .min_out = 1,
     .max_out = 1,
     .infer = forward_infer,
     .expand = forward_expand,
     .random = random_forward},
    {.name = "quern::WeightedFilterGradInput",
     .attributes = "dilations:ints epsilon:float kernel_shape:ints mode:string normalize:string padding:string transform:string",
     .min_in = 2,
     .max_in = 2,
     .min_out = 1,
     .max_out = 1,
     .infer = input_infer,
     .expand = input_expand,
     .random = random_input_gradient},
    {.name = "quern::WeightedFilterGradWeights",
     .attributes = "dilations:ints epsilon:float kernel_shape:ints mode:string normalize:string padding:string transform:string",
     .min_in = 2,
     .max_in = 3,
     .min_out = 1,
     .max_out = 1,
     .infer = weights_infer,
     .expand = weights_expand,
     .random = random_weights_gradient},
};

const struct op_family op_weighted_filter = {ops, countof(ops)};
