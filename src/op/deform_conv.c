// SPDX-License-Identifier: Apache-2.0
//
// DeformConv (opset 19): a convolution whose taps are read at positions moved by an input, with
// linear interpolation and zeros outside. Becomes quern::DeformColumns, which reads every tap of
// every position, and a matrix product of the weights with these columns.
//
// x (n, c, d0 ..), weights (m, c/group, K), offset (n, offset_group*K*s, o0 ..), mask (n,
// offset_group*K, o0 ..), K taps, s spatial axes; columns (n, c, K, o0 ..).
#include "op/op.h"

#include <math.h>

enum { IN_X, IN_W, IN_OFFSET, IN_BIAS, IN_MASK };
enum { COL_X, COL_OFFSET, COL_MASK };

static const double far_away = 16777216;

struct deform {
    struct op_window w;
    i64 taps, groups; /* groups of offsets */
};

static bool read_deform(const struct graph *g, const struct node *nd, struct deform *d)
{
    op_window_get(g, nd, &d->w);
    d->taps = op_window_taps(&d->w);
    d->groups = attr_int(nd, "offset_group", 1);
    return d->groups >= 1;
}

static bool const_weights(struct graph *g, node_id n, i64 *dim, struct err *e)
{
    const struct shape *w = op_in_shape(g, graph_node(g, n), IN_W);
    for (u32 i = 0; i < w->rank; i++)
        if (!sym_is_const(g->sym, w->dim[i], &dim[i])) return op_unsupported(e, g, n, "weights of symbolic size");
    return true;
}

/* Checks the operands; attributes of the window become explicit. */
static bool checks(struct graph *g, node_id n, struct deform *d, i64 *weight, struct err *e)
{
    const struct node *nd = graph_node(g, n);
    const struct shape *x = op_in_shape(g, nd, IN_X);
    i64 group = attr_int(nd, "group", 1), c;
    for (u32 k = 0; k < nd->in.n; k++)
        if (nd->in.v[k] && !op_check_float(g, n, k, e)) return false;
    if (!op_same_types(g, n, 0, e) || !op_check_rank(g, n, IN_X, 3, MAX_RANK - 1, e) ||
        !op_check_rank(g, n, IN_W, x->rank, x->rank, e) || !op_check_rank(g, n, IN_OFFSET, x->rank, x->rank, e) ||
        !op_check_rank(g, n, IN_MASK, x->rank, x->rank, e) || !op_check_rank(g, n, IN_BIAS, 1, 1, e))
        return false;
    if (!const_weights(g, n, weight, e) || !op_window_infer(g, n, weight + 2, &d->w, e)) return false;
    if (!read_deform(g, graph_node(g, n), d)) return op_invalid(e, g, n, "attribute 'offset_group'");
    if (group < 1 || weight[0] % group) return op_invalid(e, g, n, "%lld maps in %lld groups", (long long)weight[0], (long long)group);
    if (!sym_is_const(g->sym, op_in_shape(g, graph_node(g, n), IN_X)->dim[1], &c))
        return op_unsupported(e, g, n, "a symbolic number of channels");
    if (c != weight[1] * group || c % d->groups)
        return op_invalid(e, g, n, "%lld channels do not fit the weights, the groups or the groups of offsets", (long long)c);
    return true;
}

static bool infer(struct graph *g, node_id n, struct err *e)
{
    struct deform d;
    i64 weight[MAX_RANK];
    return checks(g, n, &d, weight, e) && op_infer_expanded(g, n, e);
}

static value_id columns(struct graph *g, node_id n)
{
    const struct node nd = *graph_node(g, n);
    static const char *const names[] = {"kernel_shape", "strides", "dilations", "pads", "offset_group"};
    value_id in[3] = {nd.in.v[IN_X], nd.in.v[IN_OFFSET], op_node_input(&nd, IN_MASK)};
    value_id v = op_node(g, n, "quern::DeformColumns", in[2] ? 3 : 2, in, 0);
    for (i64 i = 0; i < countof(names); i++)
        if (node_attr(&nd, names[i])) attr_copy(g, op_made(g, v), node_attr(&nd, names[i]));
    return v;
}

static bool expand(struct graph *g, node_id n, struct err *e)
{
    struct deform d;
    i64 weight[MAX_RANK];
    if (!checks(g, n, &d, weight, e)) return false;
    const struct node nd = *graph_node(g, n);
    struct symtab *t = g->sym;
    struct shape out = *op_in_shape(g, &nd, IN_OFFSET);
    i64 group = attr_int(&nd, "group", 1), terms = weight[1] * d.taps;
    sym all = sym_const(t, 1), batch = op_in_shape(g, &nd, IN_X)->dim[0];
    for (u32 i = 2; i < out.rank; i++) all = sym_mul(t, all, out.dim[i]);
    const sym columns_of[4] = {batch, sym_const(t, group), sym_const(t, terms), all},
              weights_of[4] = {sym_const(t, 1), sym_const(t, group), sym_const(t, weight[0] / group), sym_const(t, terms)};
    value_id c = op_node_reshape(g, n, columns(g, n), 4, columns_of, 0), b = op_node_input(&nd, IN_BIAS);
    value_id w = op_node_reshape(g, n, nd.in.v[IN_W], 4, weights_of, 0);
    out.dim[0] = batch, out.dim[1] = sym_const(t, weight[0]);
    value_id y = op_node_reshape(g, n, op_node2(g, n, "MatMul", w, c, 0), out.rank, out.dim, b ? 0 : nd.out.v[0]);
    if (!b) return true;
    for (u32 i = 0; i < out.rank; i++) out.dim[i] = sym_const(t, i == 1 ? weight[0] : 1);
    op_node2(g, n, "Add", y, op_node_reshape(g, n, b, out.rank, out.dim, 0), nd.out.v[0]);
    return true;
}

/* quern::DeformColumns */

static bool col_infer(struct graph *g, node_id n, struct err *e)
{
    struct deform d;
    struct shape out;
    i64 channels;
    if (!op_window_infer(g, n, NULL, &d.w, e)) return false;
    const struct node *nd = graph_node(g, n);
    const struct shape x = *op_in_shape(g, nd, COL_X), *o = op_in_shape(g, nd, COL_OFFSET);
    if (!read_deform(g, nd, &d) || x.rank >= MAX_RANK || o->rank != x.rank)
        return op_invalid(e, g, n, "the window does not fit the input");
    if (!op_window_out(g, n, &d.w, &x, &out, e)) return false;
    if (!sym_is_const(g->sym, x.dim[1], &channels)) return op_unsupported(e, g, n, "a symbolic number of channels");
    if (channels % d.groups) return op_invalid(e, g, n, "attribute 'offset_group'");
    struct shape s = {.rank = x.rank + 1, .dim = {x.dim[0], x.dim[1], sym_const(g->sym, d.taps)}};
    for (u32 k = COL_OFFSET; k < nd->in.n; k++) {
        const struct shape *f = op_in_shape(g, nd, k);
        i64 each = d.groups * d.taps * (k == COL_OFFSET ? d.w.n : 1);
        bool fits = f->rank == x.rank && op_sizes_agree(g, f->dim[0], x.dim[0]) && op_sizes_agree(g, f->dim[1], sym_const(g->sym, each));
        for (u32 i = 0; fits && i < d.w.n; i++) fits = op_sizes_agree(g, f->dim[2 + i], out.dim[2 + i]);
        if (!fits) return op_invalid(e, g, n, "%s must be (batch, %lld, positions of the window)", k == COL_OFFSET ? "offset" : "mask", (long long)each);
    }
    for (u32 i = 0; i < d.w.n; i++) s.dim[3 + i] = op_in_shape(g, nd, COL_OFFSET)->dim[2 + i];
    op_set_out(g, n, 0, op_in_dtype(g, nd, COL_X), &s);
    return true;
}

/* Tap number along each axis. */
static void split_tap(const struct op_window *w, i64 tap, i64 *k)
{
    for (u32 a = w->n; a-- > 0; tap /= w->kernel[a]) k[a] = tap % w->kernel[a];
}

/* Linear interpolation at p, zero outside. */
static double sample(const struct tensor *x, i64 plane, u32 n, const double *p)
{
    double sum = 0;
    for (u32 corner = 0; corner < 1u << n; corner++) {
        double weight = 1;
        i64 at = plane;
        for (u32 a = 0; a < n; a++) {
            double base = floor(p[a]), f = p[a] - base;
            i64 i = (i64)base + (corner >> a & 1);
            weight *= i < 0 || i >= x->dim[2 + a] ? 0 : corner >> a & 1 ? f : 1 - f;
            at = at * x->dim[2 + a] + i64_max(0, i64_min(i, x->dim[2 + a] - 1));
        }
        if (weight != 0) sum += weight * elem_f64(x->dtype, x->data, at);
    }
    return sum;
}

static bool col_eval(const struct op_eval *v, struct err *e)
{
    const struct tensor *x = v->in[COL_X], *off = v->in[COL_OFFSET], *mask = v->n->in.n > COL_MASK ? v->in[COL_MASK] : NULL;
    struct tensor *out = v->out[0];
    struct deform d;
    i64 begin[MAX_RANK], idx[MAX_RANK] = {0}, k[MAX_RANK], n = tensor_count(out);
    if (!read_deform(v->g, v->n, &d) || !op_window_begin(v, &d.w, begin)) return err_set(e, ERR_INPUT, "bad window");
    for (i64 i = 0; i < n; i++, op_next(out->rank, out->dim, idx)) {
        i64 og = idx[1] / (x->dim[1] / d.groups), row = og * d.taps + idx[2], at[MAX_RANK] = {idx[0]};
        double p[MAX_RANK];
        split_tap(&d.w, idx[2], k);
        for (u32 a = 0; a < d.w.n; a++) at[2 + a] = idx[3 + a];
        for (u32 a = 0; a < d.w.n; a++) {
            at[1] = row * d.w.n + a;
            p[a] = elem_f64(off->dtype, off->data, op_flat(off->rank, off->dim, at)) +
                   (double)(idx[3 + a] * d.w.stride[a] - begin[a] + k[a] * d.w.dilation[a]);
            p[a] = p[a] > -far_away ? fmin(p[a], far_away) : -far_away;
        }
        at[1] = row;
        double weight = mask ? elem_f64(mask->dtype, mask->data, op_flat(mask->rank, mask->dim, at)) : 1;
        elem_set_f64(out->dtype, out->data, i, weight * sample(x, idx[0] * x->dim[1] + idx[1], d.w.n, p));
    }
    return true;
}

struct work {
    struct emit *m;
    struct kir *k;
    const struct node *n;
    struct deform d;
    enum dtype t;
    kval at[MAX_RANK];       /* index in offset and mask */
    kval lo[MAX_RANK], f[MAX_RANK];
};

static kval num(const struct work *w, double v) { return kir_const_f(w->k, w->t, 1, v); }

/* The position of the tap along axis a, from the offset in row `row`. */
static void emit_position(struct work *w, u32 a, kval o, kval tap, kval row)
{
    struct kir *k = w->k;
    const struct op_window *win = &w->d.w;
    w->at[1] = kir_add_i(k, kir_bin(k, KI_MUL, row, kir_int(k, win->n)), a);
    kval p = kir_sub(k, kir_bin(k, KI_MUL, o, kir_int(k, win->stride[a])), emit_size(w->m, win->begin[a]));
    p = kir_add(k, p, kir_bin(k, KI_MUL, tap, kir_int(k, win->dilation[a])));
    kval x = kir_cast(k, w->t, emit_value(w->m, w->n->in.v[COL_OFFSET], w->at));
    x = kir_add(k, kir_cast(k, w->t, p), x);
    x = kir_bin(k, KI_MIN, kir_bin(k, KI_MAX, x, num(w, -far_away)), num(w, far_away)); /* a NaN is far away */
    kval base = kir_un(k, KI_FLOOR, x);
    w->f[a] = kir_sub(k, x, base);
    w->lo[a] = kir_cast(k, DT_I64, base);
}

static kval emit_corner(const struct work *w, const kval *idx, u32 corner)
{
    struct kir *k = w->k;
    const struct shape *x = op_in_shape(w->m->g, w->n, COL_X);
    kval at[MAX_RANK] = {idx[0], idx[1]}, weight = 0;
    for (u32 a = 0; a < w->d.w.n; a++) {
        bool up = corner >> a & 1;
        kval i = kir_add_i(k, w->lo[a], up), inside = emit_clamp(w->m, i, x->dim[2 + a]);
        kval f = up ? w->f[a] : kir_sub(k, num(w, 1), w->f[a]);
        f = kir_select(k, kir_bin(k, KI_EQ, i, inside), f, num(w, 0));
        weight = weight ? kir_bin(k, KI_MUL, weight, f) : f;
        at[2 + a] = inside;
    }
    return kir_bin(k, KI_MUL, weight, kir_cast(k, w->t, emit_clamped(w->m, w->n->in.v[COL_X], at, ~3u)));
}

static kval col_lower(struct emit *m, const struct node *n, u32 out, const kval *idx)
{
    struct kir *k = m->k;
    struct work w = {.m = m, .k = k, .n = n, .t = emit_acc_type(m, op_in_dtype(m->g, n, COL_X))};
    i64 channels = 1;
    read_deform(m->g, n, &w.d);
    sym_is_const(m->g->sym, op_in_shape(m->g, n, COL_X)->dim[1], &channels);
    kval row = kir_bin(k, KI_DIV, idx[1], kir_int(k, i64_max(1, channels / w.d.groups))), rest = idx[2], tap[MAX_RANK];
    row = kir_add(k, kir_bin(k, KI_MUL, row, kir_int(k, w.d.taps)), idx[2]);
    for (u32 a = w.d.w.n; a-- > 0;) {
        tap[a] = kir_bin(k, KI_MOD, rest, kir_int(k, w.d.w.kernel[a]));
        rest = kir_bin(k, KI_DIV, rest, kir_int(k, w.d.w.kernel[a]));
        w.at[2 + a] = idx[3 + a];
    }
    w.at[0] = idx[0];
    for (u32 a = 0; a < w.d.w.n; a++) emit_position(&w, a, idx[3 + a], tap[a], row);
    kval sum = 0;
    for (u32 c = 0; c < 1u << w.d.w.n; c++) sum = sum ? kir_add(k, sum, emit_corner(&w, idx, c)) : emit_corner(&w, idx, c);
    w.at[1] = row;
    if (op_has_in(n, COL_MASK)) sum = kir_bin(k, KI_MUL, sum, kir_cast(k, w.t, emit_value(m, n->in.v[COL_MASK], w.at)));
    return kir_cast(k, emit_type(op_in_dtype(m->g, n, COL_X)), sum);
}

static double col_flops(const struct graph *g, const struct node *n, const i64 *var)
{
    i64 dim[MAX_RANK];
    const struct shape *s = &graph_value(g, n->out.v[0])->shape;
    if (!shape_eval(g->sym, s, var, dim)) return 0;
    double count = (double)(4u << (s->rank - 3));
    for (u32 i = 0; i < s->rank; i++) count *= (double)dim[i];
    return count;
}

/* Offsets keep away from whole numbers, where the weights have a kink. */
static value_id random_offset(struct graph *g, struct rng *r, u32 rank, const i64 *dim)
{
    struct tensor *t = tensor_new(g->arena, DT_F32, rank, dim);
    for (i64 i = 0; i < tensor_count(t); i++) elem_set_f64(DT_F32, t->data, i, (double)rng_range(r, -10, 10) / 4 + 0.11);
    return graph_add_const(g, S("offset"), t);
}

static void random_deform(const struct op *self, struct graph *g, struct rng *r)
{
    u32 s = (u32)rng_range(r, 1, 2), rank = s + 2;
    bool whole = self->max_in == 5;
    i64 group = rng_range(r, 1, 2), og = rng_range(r, 1, 2), c = 2 * rng_range(r, 1, 2), x[4] = {rng_range(r, 1, 2), c},
        w[4] = {group * rng_range(r, 1, 2), c / group}, off[4] = {x[0]}, mask[4], pads[4], stride[2], taps = 1;
    for (u32 i = 0; i < s; i++) {
        w[2 + i] = rng_range(r, 1, 3), x[2 + i] = w[2 + i] + rng_range(r, 0, 3), stride[i] = rng_range(r, 1, 2);
        pads[i] = rng_range(r, 0, 1), pads[s + i] = rng_range(r, 0, 1), taps *= w[2 + i];
        off[2 + i] = (x[2 + i] + pads[i] + pads[s + i] - w[2 + i]) / stride[i] + 1;
    }
    for (u32 i = 0; i < rank; i++) mask[i] = off[i];
    off[1] = og * taps * s, mask[1] = og * taps;
    value_id in[5] = {0}, m = 0;
    random_input(g, "x", DT_F32, rank, x, &in[0]);
    if (whole) random_input(g, "w", DT_F32, rank, w, &in[IN_W]);
    in[whole ? IN_OFFSET : COL_OFFSET] = random_offset(g, r, rank, off);
    if (whole && rng_range(r, 0, 1)) random_input(g, "b", DT_F32, 1, w, &in[IN_BIAS]);
    if (rng_range(r, 0, 1)) random_input(g, "mask", DT_F32, rank, mask, &m);
    in[whole ? IN_MASK : COL_MASK] = m;
    node_id n = random_node(g, self, whole ? (m ? 5 : 4) : m ? 3 : 2, in, 1);
    if (whole) attr_set_int(g, n, "group", group);
    else attr_set_ints(g, n, "kernel_shape", w + 2, s);
    attr_set_int(g, n, "offset_group", og);
    attr_set_ints(g, n, "strides", stride, s);
    attr_set_ints(g, n, "pads", pads, 2 * s);
}

static const struct op ops[] = {
    {.name = "DeformConv",
     .min_in = 3,
     .max_in = 5,
     .min_out = 1,
     .max_out = 1,
     .infer = infer,
     .expand = expand,
     .random = random_deform},
    {.name = "quern::DeformColumns",
     .attributes = "dilations:ints kernel_shape:ints offset_group:int pads:ints strides:ints",
     .props = OP_SAMPLE,
     .min_in = 2,
     .max_in = 3,
     .min_out = 1,
     .max_out = 1,
     .infer = col_infer,
     .eval = col_eval,
     .lower = col_lower,
     .flops = col_flops,
     .random = random_deform},
};

const struct op_family op_deform_conv = {ops, countof(ops)};
