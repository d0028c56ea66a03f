// SPDX-License-Identifier: Apache-2.0
//
// Conv: N-dimensional convolution (cross-correlation) with groups. One primitive; property OP_CONV.
//
//   y[n,m,o..] = b[m] + sum over c, k..  x[n, g*C/G + c, o*stride + k*dilation - begin ..] * w[m,
//   c, k..],  g = m / (M/G)
//
// After infer, kernel families find kernel_shape, strides, dilations, pads and group explicit (op_window_get). Besides
// floats it supports the types that ConvInteger and QLinearConv expand to: i32, with wrapping arithmetic, and bytes of
// any signs, with i32 sums and bias. Bytes may have a scalar fourth input of x's type: the padding value instead of
// zero. An i16 operand is usually a byte less a zero point; attribute "most", two integers, promises the largest magnitudes of
// elements of the input, pads included, and of weights (op_conv_most), which kernels may rely on.
//
// The reference evaluation works row by row: for each weight, the matching row of inputs is scaled
// and added to the row of outputs.
#include "op/op.h"

/* Dims: n, m output channels, c input channels of a group, then spatial axes. */

enum { BIAS = 2, PAD }; /* inputs */

/* Largest magnitude of an integer type. */
static i64 most_of(enum dtype t) { return ((i64)1 << (8 * dtype_size(t) - (dtype_kind(t) != DK_UINT))) - (dtype_kind(t) == DK_UINT); }

bool op_conv_most(const struct graph *g, const struct node *n, i64 most[2])
{
    const i64 *promised;
    i64 n_promised = attr_ints(n, "most", &promised);
    for (u32 i = 0; i < 2; i++) {
        enum dtype t = op_in_dtype(g, n, i);
        if (!dtype_is_int(t) || dtype_size(t) > 4) return false;
        most[i] = n_promised ? i64_min(promised[i], most_of(t)) : most_of(t);
    }
    return true;
}

static bool is_most_valid(const struct graph *g, node_id n, struct err *e)
{
    const i64 *most;
    i64 count = attr_ints(graph_node(g, n), "most", &most);
    bool ok = !node_attr(graph_node(g, n), "most") || (count == 2 && most[0] >= 0 && most[1] >= 0);
    return ok || op_invalid(e, g, n, "attribute 'most' is not two magnitudes");
}

static bool types_fit(const struct graph *g, node_id n, struct err *e)
{
    const struct node *nd = graph_node(g, n);
    enum dtype t = op_in_dtype(g, nd, 0), w = op_in_dtype(g, nd, 1);
    if (t == op_sum_type(t)) {
        if (op_has_in(nd, PAD)) return op_invalid(e, g, n, "input %u for type %s", PAD, dtype_name(t));
        if (!op_types_fit_weights(g, n, e)) return false;
        if (!dtype_is_float(t) && t != DT_I32) return op_unsupported(e, g, n, "type %s", dtype_name(t));
        return true;
    }
    if (w == op_sum_type(w)) return op_invalid(e, g, n, "weight of type %s", dtype_name(w));
    if (op_has_in(nd, BIAS) && op_in_dtype(g, nd, BIAS) != DT_I32) return op_invalid(e, g, n, "bias is not i32");
    if (op_has_in(nd, PAD) && (op_in_dtype(g, nd, PAD) != t || op_in_shape(g, nd, PAD)->rank))
        return op_invalid(e, g, n, "pad is not a scalar of type %s", dtype_name(t));
    return true;
}

static bool infer(struct graph *g, node_id n, struct err *e)
{
    struct shape out;
    if (!types_fit(g, n, e) || !is_most_valid(g, n, e) || !op_acc16_fits(g, n, e) || !op_conv_shape(g, n, 1, BIAS, &out, e)) return false;
    op_set_out(g, n, 0, op_sum_type(op_in_dtype(g, graph_node(g, n), 0)), &out);
    return true;
}

/* Evaluation. */

struct conv {
    struct op_window w;
    i64 begin[MAX_RANK];
    const struct tensor *x, *wt, *b, *y;
    double pad;              /* value of the padding */
    i64 group, cg, mg;       /* channels in and out of one group */
    i64 in_plane, out_plane; /* elements of one channel */
    i64 taps;
    /* Rows: all spatial axes but the last are rows of outputs and rows of taps. */
    i64 rows, row_taps;
    const i64 *at; /* [row_taps][rows]: offset of the input row in its channel, -1: in the pad */
};

static bool conv_open(const struct op_eval *v, struct conv *c, struct err *e)
{
    op_window_get(v->g, v->n, &c->w);
    if (!op_window_begin(v, &c->w, c->begin)) return false;
    u32 s = c->w.n;
    c->x = v->in[0], c->wt = v->in[1], c->y = v->out[0];
    c->b = v->n->in.n > BIAS ? v->in[BIAS] : NULL;
    if (op_has_in(v->n, PAD)) c->pad = elem_f64(v->in[PAD]->dtype, v->in[PAD]->data, 0);
    c->group = attr_int(v->n, "group", 1);
    c->cg = c->wt->dim[1], c->mg = c->wt->dim[0] / c->group;
    c->in_plane = i64_product(s, c->x->dim + 2), c->out_plane = i64_product(s, c->y->dim + 2);
    c->taps = i64_product(s, c->w.kernel);
    c->rows = i64_product(s - 1, c->y->dim + 2), c->row_taps = i64_product(s - 1, c->w.kernel);
    if (v->n_points) return true;
    c->at = op_window_rows(v, &c->w, c->begin, c->y->dim + 2, c->x->dim + 2, e);
    return c->at != NULL;
}

/* Adds the contribution of one channel and one row of taps to one output channel, initialised as
   for padding only. x, wt: flat positions. */
static void add_row_taps(const struct conv *c, double *acc, i64 tap, i64 x, i64 wt)
{
    u32 l = c->w.n - 1;
    i64 size = c->x->dim[2 + l], out = c->y->dim[2 + l], stride = c->w.stride[l];
    for (i64 k = 0; k < c->w.kernel[l]; k++) {
        i64 first = k * c->w.dilation[l] - c->begin[l]; /* input position at output 0 */
        i64 lo = first < 0 ? ceil_div(-first, stride) : 0;
        i64 hi = first < size ? i64_min(out, ceil_div(size - first, stride)) : 0;
        double w = elem_f64(c->wt->dtype, c->wt->data, wt + k);
        for (i64 r = 0; r < c->rows && lo < hi; r++) {
            i64 at = c->at[tap * c->rows + r];
            if (at < 0) continue;
            struct op_row row = {acc + r * out + lo,           1,      c->x,
                                 x + at + first + lo * stride, stride, hi - lo};
            op_row_add(&row, w);
            for (i64 i = 0; c->pad != 0 && i < row.n; i++) row.acc[i] -= w * c->pad;
        }
    }
}

static void conv_channel(const struct conv *c, double *acc, i64 n, i64 m)
{
    i64 plane = c->out_plane, y = (n * c->y->dim[1] + m) * plane, ch = m / c->mg * c->cg;
    double bias = c->b ? elem_f64(c->b->dtype, c->b->data, m) : 0;
    for (i64 i = 0; c->pad != 0 && i < c->cg * c->taps; i++)
        bias += c->pad * elem_f64(c->wt->dtype, c->wt->data, m * c->cg * c->taps + i);
    for (i64 i = 0; i < plane; i++) acc[i] = bias;
    for (i64 j = 0; j < c->cg; j++)
        for (i64 t = 0; t < c->row_taps; t++)
            add_row_taps(c, acc, t, (n * c->x->dim[1] + ch + j) * c->in_plane,
                         (m * c->cg + j) * c->taps + t * c->w.kernel[c->w.n - 1]);
    for (i64 i = 0; i < plane; i++) elem_set_f64(c->y->dtype, c->y->data, y + i, acc[i]);
}

/* Flat position of a tap in a channel, -1: in the pad. */
static i64 tap_offset(const struct conv *c, i64 tap, const i64 *o)
{
    i64 at = 0, scale = 1;
    for (u32 i = c->w.n; i-- > 0; tap /= c->w.kernel[i]) {
        i64 p = o[i] * c->w.stride[i] + tap % c->w.kernel[i] * c->w.dilation[i] - c->begin[i];
        if (p < 0 || p >= c->x->dim[2 + i]) return -1;
        at += p * scale;
        scale *= c->x->dim[2 + i];
    }
    return at;
}

static double conv_point(const struct conv *c, i64 point)
{
    i64 o[MAX_RANK], rest = point;
    for (u32 i = c->w.n; i-- > 0; rest /= c->y->dim[2 + i]) o[i] = rest % c->y->dim[2 + i];
    i64 m = rest % c->y->dim[1], n = rest / c->y->dim[1], ch = m / c->mg * c->cg;
    double sum = c->b ? elem_f64(c->b->dtype, c->b->data, m) : 0;
    for (i64 t = 0; t < c->taps; t++) {
        i64 at = tap_offset(c, t, o);
        for (i64 j = 0; j < c->cg; j++) {
            i64 x = (n * c->x->dim[1] + ch + j) * c->in_plane + at;
            sum += (at < 0 ? c->pad : elem_f64(c->x->dtype, c->x->data, x)) *
                   elem_f64(c->wt->dtype, c->wt->data, (m * c->cg + j) * c->taps + t);
        }
    }
    return sum;
}

static bool eval(const struct op_eval *v, struct err *e)
{
    struct conv c = {0};
    if (!conv_open(v, &c, e)) return err_set(e, ERR_INPUT, "pads are not known");
    for (i64 i = 0; i < v->n_points; i++)
        elem_set_f64(c.y->dtype, c.y->data, v->points[i], conv_point(&c, v->points[i]));
    if (v->n_points) return true;
    double *acc = op_eval_array(v, c.out_plane, sizeof *acc, e);
    for (i64 n = 0; acc && n < c.y->dim[0]; n++)
        for (i64 m = 0; m < c.y->dim[1]; m++) conv_channel(&c, acc, n, m);
    return acc != NULL;
}

/* Lowering. */

static void add_tap(struct emit *m, const struct node *n, const struct op_taps *t,
                    const struct emit_acc *a, const kval xw[4])
{
    struct kir *k = m->k;
    u32 rank = graph_value(m->g, n->in.v[0])->shape.rank;
    kval xi[MAX_RANK] = {xw[0], xw[1]}, wi[MAX_RANK] = {xw[2], xw[3]};
    for (u32 i = 2; i < rank; i++) xi[i] = t->at[i - 2], wi[i] = t->k[i - 2];
    kval x = op_has_in(n, PAD) ? emit_clamped(m, n->in.v[0], xi, ((1u << rank) - 1) & ~3u) : emit_value(m, n->in.v[0], xi);
    kval zero = kir_int(k, 0), pad = op_has_in(n, PAD) ? emit_value(m, n->in.v[PAD], &zero) : 0;
    if (t->ok) x = kir_select(k, t->ok, x, pad ? pad : emit_neutral(m, KI_ADD, kir_dtype(k, x)));
    enum dtype type = emit_acc_type(m, op_sum_type(op_in_dtype(m->g, n, 0)));
    emit_acc_fma(m, a, kir_cast(k, type, x), kir_cast(k, type, emit_value(m, n->in.v[1], wi)));
}

static kval lower(struct emit *m, const struct node *n, u32 out, const kval *idx)
{
    struct kir *k = m->k;
    struct op_window w;
    struct op_taps t;
    struct emit_acc a;
    i64 dim[MAX_RANK] = {0}, group = attr_int(n, "group", 1);
    const struct value *x = graph_value(m->g, n->in.v[0]);
    enum dtype type = op_sum_type(x->dtype);
    op_window_get(m->g, n, &w);
    w.every = op_has_in(n, PAD);
    shape_is_static(m->g->sym, op_in_shape(m->g, n, 1), dim);
    kval init = op_has_in(n, BIAS) ? emit_value(m, n->in.v[BIAS], &idx[1]) : emit_neutral(m, KI_ADD, type);
    emit_acc_open(m, &a, emit_lanes(m, x->shape.rank, idx), kir_cast(k, emit_acc_type(m, type), init));
    kval of = kir_int(k, i64_max(dim[0] / group, 1)), cg = kir_int(k, dim[1]);
    kval base = group > 1 ? kir_bin(k, KI_MUL, kir_bin(k, KI_DIV, idx[1], of), cg) : kir_int(k, 0);
    op_taps_open(m, &w, &x->shape, idx + 2, &t); /* channels innermost: the order in which most families add the
                                                    terms, too */
    kval c = kir_loop(k, KL_SERIAL, kir_int(k, 0), cg, 1);
    add_tap(m, n, &t, &a, (kval[]){idx[0], kir_bin(k, KI_ADD, base, c), idx[1], c});
    kir_end(k);
    op_taps_close(m, &w);
    return kir_cast(k, emit_type(type), emit_acc_get(m, &a));
}

static double flops(const struct graph *g, const struct node *n, const i64 *var)
{
    i64 y[MAX_RANK], w[MAX_RANK];
    const struct shape *ys = &graph_value(g, n->out.v[0])->shape, *ws = op_in_shape(g, n, 1);
    if (!shape_eval(g->sym, ys, var, y) || !shape_eval(g->sym, ws, var, w)) return 0;
    return 2.0 * (double)i64_product(ys->rank, y) * (double)i64_product(ws->rank - 1, w + 1);
}

static enum dtype random_byte(struct rng *r) { return rng_range(r, 0, 1) ? DT_U8 : DT_I8; }

/* Windows that fit: pads first, then a size large enough. */
static void random_conv(const struct op *self, struct graph *g, struct rng *r)
{
    static const char *const autos[] = {"SAME_UPPER", "SAME_LOWER", "VALID"};
    u32 s = (u32)rng_range(r, 1, 3), same = (u32)rng_range(r, 0, 7);
    i64 group = rng_range(r, 1, 3), cg = rng_range(r, 1, 3), mg = rng_range(r, 1, 3);
    i64 x[MAX_RANK] = {rng_range(r, 0, 15) ? rng_range(r, 1, 2) : 0, group * cg},
        w[MAX_RANK] = {group * mg, cg};
    i64 pads[2 * MAX_RANK], strides[MAX_RANK], dil[MAX_RANK];
    for (u32 i = 0; i < s; i++) {
        w[2 + i] = rng_range(r, 1, s == 3 ? 2 : 4);
        strides[i] = rng_range(r, 1, 3), dil[i] = rng_range(r, 1, 2);
        pads[i] = rng_range(r, 0, 3), pads[s + i] = rng_range(r, 0, 2);
        i64 need = (w[2 + i] - 1) * dil[i] + 1 - (same < 3 ? 0 : pads[i] + pads[s + i]);
        x[2 + i] = i64_max(need, 1) + rng_range(r, 0, 4);
    }
    bool bytes = rng_range(r, 0, 3) == 0;
    enum dtype type = bytes ? random_byte(r) : random_float_type(r);
    value_id in[4] = {0};
    random_input(g, "x", type, s + 2, x, &in[0]);
    random_input(g, "w", bytes ? random_byte(r) : type, s + 2, w, &in[1]);
    if (rng_range(r, 0, 1)) random_input(g, "b", op_sum_type(type), 1, w, &in[BIAS]);
    if (bytes && rng_range(r, 0, 1)) random_input(g, "pad", type, 0, NULL, &in[PAD]);
    random_node(g, self, in[PAD] ? 4 : in[BIAS] ? 3 : 2, in, 1);
    node_id n = g->node.n - 1;
    attr_set_int(g, n, "group", group);
    attr_set_ints(g, n, "strides", strides, s);
    attr_set_ints(g, n, "dilations", dil, s);
    if (same < 3) attr_set_str(g, n, "auto_pad", str_of(autos[same]));
    else attr_set_ints(g, n, "pads", pads, 2 * s);
}

static const struct op ops[] = {
    {.name = "Conv",
     .props = OP_CONV | OP_HEAVY | OP_ONE_TYPE,
     .min_in = 2,
     .max_in = 4,
     .min_out = 1,
     .max_out = 1,
     .infer = infer,
     .eval = eval,
     .lower = lower,
     .flops = flops,
     .random = random_conv},
};

const struct op_family op_conv = {ops, countof(ops)};
