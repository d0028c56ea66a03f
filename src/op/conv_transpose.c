// SPDX-License-Identifier: Apache-2.0
//
// ConvTranspose: the adjoint of Conv, with groups, dilations, output_padding and output_shape.
//
//   y[n, g*M/G + m, i*stride + k*dilation - begin ..] += x[n, g*C/G + c, i..] * w[g*C/G + c, m,
//   k..];   y starts at the bias
//
// The reference scatters as written above; kernels gather, for an output position p = o + begin:
// the taps k with (p - k*dilation) a multiple of the stride and its quotient inside the input.
// Without dilation these are the input positions i from ceil((p - K + 1) / stride) to floor(p /
// stride), with k = p - i*stride, so that no test is left.
//
// After infer kernel_shape, strides, dilations, pads and output_padding are explicit (output_shape
// and auto_pad are resolved).
#include "op/op.h"

enum { LIMIT = 1 << 30 };

/* Attribute of `count` non-negative entries, zeros if omitted. */
static bool read_list(const struct graph *g, node_id n, const char *name, i64 *out, u32 count,
                      struct err *e)
{
    const i64 *v;
    i64 k = attr_ints(graph_node(g, n), name, &v);
    if (k && k != count)
        return op_invalid(e, g, n, "attribute '%s' has %lld entries instead of %u", name,
                          (long long)k, count);
    for (u32 i = 0; i < count; i++) {
        out[i] = k ? v[i] : 0;
        if (out[i] < 0 || out[i] > LIMIT)
            return op_invalid(e, g, n, "attribute '%s' contains %lld", name, (long long)out[i]);
    }
    return true;
}

/* Size before anything is cut off, less extra: stride * (size - 1) + span */
static sym full_size(const struct graph *g, const struct op_window *w, u32 i, sym size)
{
    struct symtab *t = g->sym;
    sym steps = sym_mul(t, sym_sub(t, size, sym_const(t, 1)), sym_const(t, w->stride[i]));
    return sym_add(t, steps, sym_const(t, (w->kernel[i] - 1) * w->dilation[i] + 1));
}

/* Makes pads and output_padding explicit, given the wanted sizes (0: of the attributes). */
static bool solve_pads(struct graph *g, node_id n, const struct op_window *w, const sym *want,
                       bool upper, i64 *extra, struct err *e)
{
    const struct shape *x = op_in_shape(g, graph_node(g, n), 0);
    i64 pads[2 * MAX_RANK], total;
    for (u32 i = 0; i < w->n; i++) {
        sym full = sym_add(g->sym, full_size(g, w, i, x->dim[2 + i]), sym_const(g->sym, extra[i]));
        if (!sym_is_const(g->sym, sym_sub(g->sym, full, want[i]), &total) || total > LIMIT ||
            total < -LIMIT)
            return op_unsupported(e, g, n, "output_shape over a symbolic size");
        if (total < 0) extra[i] -= total, total = 0; /* more than there is: the rest is bias */
        pads[i] = upper ? total / 2 : total - total / 2;
        pads[w->n + i] = total - pads[i];
    }
    attr_set_ints(g, n, "pads", pads, 2 * w->n);
    return true;
}

/* Attribute output_shape; PyTorch's exporter and others include the batch and channel sizes. */
static bool read_output_shape(struct graph *g, node_id n, u32 spatial, sym *want, bool *has,
                              struct err *e)
{
    const i64 *v;
    i64 k = attr_ints(graph_node(g, n), "output_shape", &v);
    *has = k != 0;
    if (!k) return true;
    if (k != spatial && k != spatial + 2)
        return op_invalid(e, g, n, "output_shape has %lld entries", (long long)k);
    for (u32 i = 0; i < spatial; i++) {
        i64 size = v[k - spatial + i];
        if (size < 1 || size > LIMIT)
            return op_invalid(e, g, n, "output_shape contains %lld", (long long)size);
        want[i] = sym_const(g->sym, size);
    }
    return true;
}

/* Attributes -> w and extra; written back explicit. */
static bool normalise(struct graph *g, node_id n, const i64 *kernel, struct op_window *w,
                      i64 *extra, struct err *e)
{
    struct str mode = str_dup(g->arena, attr_str(graph_node(g, n), "auto_pad", "NOTSET"));
    bool upper = str_is(mode, "SAME_UPPER"), same = upper || str_is(mode, "SAME_LOWER"), has_shape;
    u32 spatial = op_in_shape(g, graph_node(g, n), 0)->rank - 2;
    sym want[MAX_RANK];
    if (!read_list(g, n, "output_padding", extra, spatial, e)) return false;
    if (!read_output_shape(g, n, spatial, want, &has_shape, e)) return false;
    if (same || has_shape) attr_remove(g, n, "auto_pad"), attr_remove(g, n, "pads");
    if (!op_window_infer(g, n, kernel, w, e)) return false;
    for (u32 i = 0; i < spatial && same && !has_shape; i++)
        want[i] = sym_mul(g->sym, op_in_shape(g, graph_node(g, n), 0)->dim[2 + i],
                          sym_const(g->sym, w->stride[i]));
    if ((same || has_shape) && !solve_pads(g, n, w, want, upper, extra, e)) return false;
    attr_remove(g, n, "output_shape");
    attr_set_ints(g, n, "output_padding", extra, spatial);
    op_window_get(g, graph_node(g, n), w);
    return true;
}

static bool channels_fit(struct graph *g, node_id n, const i64 *w, i64 group, struct err *e)
{
    const struct node *nd = graph_node(g, n);
    i64 c, b;
    if (!sym_is_const(g->sym, op_in_shape(g, nd, 0)->dim[1], &c))
        return op_unsupported(e, g, n, "the number of channels is not known");
    if (group < 1 || c != w[0] || c % group || w[1] > LIMIT / group)
        return op_invalid(e, g, n, "%lld input channels in %lld groups, weight for %lld",
                          (long long)c, (long long)group, (long long)w[0]);
    if (!op_has_in(nd, 2)) return true;
    const struct shape *bias = op_in_shape(g, nd, 2);
    if (bias->rank != 1 || (sym_is_const(g->sym, bias->dim[0], &b) && b != w[1] * group))
        return op_invalid(e, g, n, "bias does not have %lld elements", (long long)(w[1] * group));
    return op_require_equal(g, n, bias->dim[0], sym_const(g->sym, w[1] * group), e, "the elements of the bias and the output channels");
}

static bool infer(struct graph *g, node_id n, struct err *e)
{
    const struct node *nd = graph_node(g, n);
    const struct shape x = *op_in_shape(g, nd, 0), ws = *op_in_shape(g, nd, 1);
    struct op_window w;
    i64 dim[MAX_RANK], extra[MAX_RANK], group = attr_int(nd, "group", 1);
    if (!op_types_fit_weights(g, n, e)) return false;
    if (!dtype_is_float(op_in_dtype(g, nd, 0)))
        return op_unsupported(e, g, n, "type %s", dtype_name(op_in_dtype(g, nd, 0)));
    if (x.rank < 3 || ws.rank != x.rank)
        return op_invalid(e, g, n, "weight of rank %u for an input of rank %u", ws.rank, x.rank);
    if (!shape_is_static(g->sym, &ws, dim))
        return op_unsupported(e, g, n, "the weight's shape is not constant");
    if (!channels_fit(g, n, dim, group, e) || !normalise(g, n, dim + 2, &w, extra, e)) return false;
    attr_set_int(g, n, "group", group);
    struct shape out = {
        .known = true, .rank = x.rank, .dim = {x.dim[0], sym_const(g->sym, dim[1] * group)}};
    for (u32 i = 0; i < w.n; i++) {
        sym full = sym_add(g->sym, full_size(g, &w, i, x.dim[2 + i]), sym_const(g->sym, extra[i]));
        out.dim[2 + i] = sym_sub(g->sym, full, sym_add(g->sym, w.begin[i], w.end[i]));
        if (!op_require_at_least(g, n, x.dim[2 + i], sym_const(g->sym, 1), e, "axis %u", 2 + i)) return false;
        if (!op_require_at_least(g, n, out.dim[2 + i], sym_const(g->sym, 1), e, "output's axis %u, from which pads are cut,", 2 + i)) return false;
    }
    op_set_out(g, n, 0, op_in_dtype(g, graph_node(g, n), 0), &out);
    return true;
}

/* Evaluation. */

struct scatter {
    struct op_window w;
    i64 begin[MAX_RANK];
    const struct tensor *x, *wt, *b, *y;
    i64 cg, mg;              /* channels in and out of one group */
    i64 in_plane, out_plane; /* elements of one channel */
    i64 rows, row_taps;      /* all spatial axes but the last, of the input and of the kernel */
    const i64 *at; /* [row_taps][rows]: offset of the output row in its channel, -1: cut off */
};

static bool scatter_open(const struct op_eval *v, struct scatter *s, struct err *e)
{
    op_window_get(v->g, v->n, &s->w);
    if (!op_window_begin(v, &s->w, s->begin)) return false;
    u32 n = s->w.n;
    i64 group = attr_int(v->n, "group", 1);
    s->x = v->in[0], s->wt = v->in[1], s->y = v->out[0];
    s->b = op_has_in(v->n, 2) ? v->in[2] : NULL;
    s->cg = s->x->dim[1] / group, s->mg = s->wt->dim[1];
    s->in_plane = i64_product(n, s->x->dim + 2), s->out_plane = i64_product(n, s->y->dim + 2);
    s->rows = i64_product(n - 1, s->x->dim + 2), s->row_taps = i64_product(n - 1, s->w.kernel);
    s->at = op_window_rows(v, &s->w, s->begin, s->x->dim + 2, s->y->dim + 2, e);
    return s->at != NULL;
}

/* Adds the contribution of one channel and one row of taps. x, wt: flat positions. */
static void add_row_taps(const struct scatter *s, double *acc, i64 tap, i64 x, i64 wt)
{
    u32 l = s->w.n - 1;
    i64 size = s->x->dim[2 + l], out = s->y->dim[2 + l], stride = s->w.stride[l];
    for (i64 k = 0; k < s->w.kernel[l]; k++) {
        i64 first = k * s->w.dilation[l] - s->begin[l]; /* output position of input 0 */
        i64 lo = first < 0 ? ceil_div(-first, stride) : 0;
        i64 hi = first < out ? i64_min(size, ceil_div(out - first, stride)) : 0;
        double w = elem_f64(s->wt->dtype, s->wt->data, wt + k);
        for (i64 r = 0; r < s->rows && lo < hi; r++) {
            i64 at = s->at[tap * s->rows + r];
            if (at < 0) continue;
            struct op_row row = {
                acc + at + first + lo * stride, stride, s->x, x + r * size + lo, 1, hi - lo};
            op_row_add(&row, w);
        }
    }
}

static void scatter_channel(const struct scatter *s, double *acc, i64 n, i64 m)
{
    i64 plane = s->out_plane, y = (n * s->y->dim[1] + m) * plane, row = s->w.kernel[s->w.n - 1];
    double bias = s->b ? elem_f64(s->b->dtype, s->b->data, m) : 0;
    for (i64 i = 0; i < plane; i++) acc[i] = bias;
    for (i64 j = 0; j < s->cg; j++) {
        i64 c = m / s->mg * s->cg + j;
        for (i64 t = 0; t < s->row_taps; t++)
            add_row_taps(s, acc, t, (n * s->x->dim[1] + c) * s->in_plane,
                         ((c * s->mg + m % s->mg) * s->row_taps + t) * row);
    }
    for (i64 i = 0; i < plane; i++) elem_set_f64(s->y->dtype, s->y->data, y + i, acc[i]);
}

static bool eval(const struct op_eval *v, struct err *e)
{
    struct scatter s = {0};
    if (!scatter_open(v, &s, e)) return err_set(e, ERR_INPUT, "pads are not known");
    double *acc = op_eval_array(v, s.out_plane, sizeof *acc, e);
    for (i64 n = 0; acc && n < s.y->dim[0]; n++)
        for (i64 m = 0; m < s.y->dim[1]; m++) scatter_channel(&s, acc, n, m);
    return acc != NULL;
}

/* Lowering. */

struct gather {
    kval k[MAX_RANK], at[MAX_RANK]; /* position in the kernel and in the input */
    kval ok;                        /* vector positions only: the tap counts */
    u32 n_open;                     /* structures to close */
};

/* p = stride*i + k without dilation: loop over the input positions i, from the last to the first, which is in the order of the taps. */
static void gather_clamped(struct emit *m, const struct op_window *w, u32 i, kval p, sym size,
                           struct gather *t)
{
    struct kir *k = m->k;
    kval s = kir_int(k, w->stride[i]), zero = kir_int(k, 0);
    kval lo = kir_bin(k, KI_ADD, p, kir_int(k, w->stride[i] - w->kernel[i]));
    lo = kir_bin(k, KI_DIV, kir_bin(k, KI_MAX, lo, zero), s);
    kval hi = kir_bin(k, KI_ADD, kir_bin(k, KI_DIV, p, s), kir_int(k, 1));
    hi = kir_bin(k, KI_MIN, hi, emit_size(m, size));
    kval from = kir_loop(k, KL_SERIAL, lo, hi, 1), both = kir_bin(k, KI_ADD, lo, kir_bin(k, KI_SUB, hi, kir_int(k, 1)));
    t->at[i] = kir_bin(k, KI_SUB, both, from);
    t->k[i] = kir_bin(k, KI_SUB, p, kir_bin(k, KI_MUL, t->at[i], s));
    t->n_open++;
}

/* Loop over all taps; those outside the input are skipped (scalar) or masked (vector). */
static void gather_tested(struct emit *m, const struct op_window *w, u32 i, kval p, sym size,
                          struct gather *t)
{
    struct kir *k = m->k;
    kval s = kir_int(k, w->stride[i]), zero = kir_int(k, 0);
    t->k[i] = kir_loop(k, KL_SERIAL, zero, kir_int(k, w->kernel[i]), 1);
    kval q = kir_bin(k, KI_SUB, p, kir_bin(k, KI_MUL, t->k[i], kir_int(k, w->dilation[i])));
    kval limit = kir_bin(k, KI_MUL, emit_size(m, size), s);
    kval ok = kir_bin(k, KI_AND, kir_bin(k, KI_LE, zero, q), kir_bin(k, KI_LT, q, limit));
    ok = kir_bin(k, KI_AND, ok, kir_bin(k, KI_EQ, kir_bin(k, KI_MOD, q, s), zero));
    t->at[i] = kir_bin(k, KI_DIV, q, s);
    t->n_open++;
    if (kir_lanes(k, p) == 1) {
        kir_if(k, ok);
        t->n_open++;
        return;
    }
    t->at[i] = emit_clamp(m, t->at[i], size);
    t->ok = t->ok ? kir_bin(k, KI_AND, t->ok, ok) : ok;
}

static void add_tap(struct emit *m, const struct node *n, const struct gather *t,
                    const struct emit_acc *a, const kval xw[4])
{
    struct kir *k = m->k;
    u32 rank = op_in_shape(m->g, n, 0)->rank;
    kval xi[MAX_RANK] = {xw[0], xw[1]}, wi[MAX_RANK] = {xw[2], xw[3]};
    for (u32 i = 2; i < rank; i++) xi[i] = t->at[i - 2], wi[i] = t->k[i - 2];
    kval x = emit_value(m, n->in.v[0], xi);
    if (t->ok) x = kir_select(k, t->ok, x, emit_neutral(m, KI_ADD, kir_dtype(k, x)));
    enum dtype type = emit_acc_type(m, op_in_dtype(m->g, n, 0));
    emit_acc_fma(m, a, kir_cast(k, type, x), kir_cast(k, type, emit_value(m, n->in.v[1], wi)));
}

static kval lower(struct emit *m, const struct node *n, u32 out, const kval *idx)
{
    struct kir *k = m->k;
    struct op_window w;
    struct emit_acc a;
    struct gather t = {0};
    i64 dim[MAX_RANK] = {0}, group = attr_int(n, "group", 1);
    const struct value *x = graph_value(m->g, n->in.v[0]);
    op_window_get(m->g, n, &w);
    shape_is_static(m->g->sym, op_in_shape(m->g, n, 1), dim);
    kval init =
        op_has_in(n, 2) ? emit_value(m, n->in.v[2], &idx[1]) : emit_neutral(m, KI_ADD, x->dtype);
    emit_acc_open(m, &a, emit_lanes(m, x->shape.rank, idx),
                kir_cast(k, emit_acc_type(m, x->dtype), init));
    kval mg = kir_int(k, i64_max(dim[1], 1)), cg = kir_int(k, dim[0] / group);
    kval base = group > 1 ? kir_bin(k, KI_MUL, kir_bin(k, KI_DIV, idx[1], mg), cg) : kir_int(k, 0);
    for (u32 i = 0; i < w.n; i++) {
        kval p = kir_bin(k, KI_ADD, idx[2 + i], emit_size(m, w.begin[i]));
        bool clamped = w.dilation[i] == 1 && kir_lanes(k, p) == 1;
        (clamped ? gather_clamped : gather_tested)(m, &w, i, p, x->shape.dim[2 + i], &t);
    }
    /* channels innermost, as in Conv */
    kval ch = kir_bin(k, KI_ADD, base, kir_loop(k, KL_SERIAL, kir_int(k, 0), cg, 1));
    kval in_group = group > 1 ? kir_bin(k, KI_MOD, idx[1], mg) : idx[1];
    add_tap(m, n, &t, &a, (kval[]){idx[0], ch, ch, in_group});
    for (u32 i = 0; i < t.n_open + 1; i++) kir_end(k);
    return kir_cast(k, emit_type(x->dtype), emit_acc_get(m, &a));
}

static double flops(const struct graph *g, const struct node *n, const i64 *var)
{
    i64 x[MAX_RANK], w[MAX_RANK];
    const struct shape *xs = op_in_shape(g, n, 0), *ws = op_in_shape(g, n, 1);
    if (!shape_eval(g->sym, xs, var, x) || !shape_eval(g->sym, ws, var, w)) return 0;
    return 2.0 * (double)i64_product(xs->rank, x) * (double)i64_product(ws->rank - 1, w + 1);
}

static void random_transpose(const struct op *self, struct graph *g, struct rng *r)
{
    u32 s = (u32)rng_range(r, 1, 3), how = (u32)rng_range(r, 0, 5);
    i64 group = rng_range(r, 1, 2), cg = rng_range(r, 1, 3), mg = rng_range(r, 1, 3);
    i64 x[MAX_RANK] = {rng_range(r, 1, 2), group * cg}, w[MAX_RANK] = {group * cg, mg},
        b = group * mg;
    i64 pads[2 * MAX_RANK], strides[MAX_RANK], dil[MAX_RANK], extra[MAX_RANK], shape[MAX_RANK];
    for (u32 i = 0; i < s; i++) {
        w[2 + i] = rng_range(r, 1, s == 3 ? 2 : 4);
        strides[i] = rng_range(r, 1, 3), dil[i] = rng_range(r, 1, 2);
        x[2 + i] = rng_range(r, 1, s == 3 ? 3 : 6);
        extra[i] = rng_range(r, 0, strides[i] - 1);
        i64 full = (x[2 + i] - 1) * strides[i] + (w[2 + i] - 1) * dil[i] + 1;
        pads[i] = rng_range(r, 0, i64_min(2, full - 1));
        pads[s + i] = rng_range(r, 0, i64_min(2, full - 1 - pads[i]));
        shape[i] = rng_range(r, 1, full + 1);
    }
    enum dtype type = random_float_type(r);
    value_id in[3] = {0};
    random_input(g, "x", type, s + 2, x, &in[0]);
    random_input(g, "w", type, s + 2, w, &in[1]);
    if (rng_range(r, 0, 1)) random_input(g, "b", type, 1, &b, &in[2]);
    random_node(g, self, in[2] ? 3 : 2, in, 1);
    node_id n = g->node.n - 1;
    attr_set_int(g, n, "group", group);
    attr_set_ints(g, n, "strides", strides, s);
    attr_set_ints(g, n, "dilations", dil, s);
    if (how < 4) attr_set_ints(g, n, "output_padding", extra, s);
    if (how == 0) attr_set_str(g, n, "auto_pad", S("SAME_UPPER"));
    else if (how == 1) attr_set_ints(g, n, "output_shape", shape, s);
    else attr_set_ints(g, n, "pads", pads, 2 * s);
}

static const struct op ops[] = {
    {.name = "ConvTranspose",
     .props = OP_HEAVY | OP_TRANSPOSED | OP_ONE_TYPE,
     .min_in = 2,
     .max_in = 3,
     .min_out = 1,
     .max_out = 1,
     .infer = infer,
     .eval = eval,
     .lower = lower,
     .flops = flops,
     .random = random_transpose},
};

const struct op_family op_conv_transpose = {ops, countof(ops)};
