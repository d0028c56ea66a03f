// SPDX-License-Identifier: Apache-2.0
//
// Gradients of a convolution y = Conv(x, w) (conv.c), given dy, that of y. The attributes are the
// convolution's own; a bias' gradient is ReduceSum of dy over all axes but the channels.
//
// quern::ConvGradInput(dy, w) -> dx: the adjoint, hence a transposed convolution with the same
// weights and pads. `input_shape` holds the spatial sizes of the input (integers, or expressions as
// strings): rows after the last window, which no output has read, are 0. If omitted, there are
// none.
//
// quern::ConvGradWeight(x, dy) -> dw, with kernel_shape:
//
//   dw[m, c, k..] = sum over n, o.. of dy[n, m, o..] * x[n, g*C/G + c, o*stride + k*dilation -
//   begin ..],  g = m / (M/G)
//
// Dims: n, m channels of y, c channels of x (in the formula: of a group), then the spatial axes.
#include "op/op.h"

static bool floats_only(const struct graph *g, node_id n, struct err *e)
{
    enum dtype t = op_in_dtype(g, graph_node(g, n), 0);
    if (!op_same_types(g, n, 0, e)) return false;
    return dtype_is_float(t) || op_unsupported(e, g, n, "type %s", dtype_name(t));
}

/* ConvGradInput. */

/* The transposed convolution: its extra rows after the last window, if known. */
struct adjoint {
    struct op_window w;
    i64 weight[MAX_RANK];  /* (m, c, k..) */
    i64 group;
    sym size[MAX_RANK];    /* of dx, spatial */
    i64 extra[MAX_RANK];
    bool known;            /* extra is known; otherwise it is the maximum, and cropped */
};

/* Attribute input_shape; absent: every row is read. */
static bool read_sizes(const struct graph *g, node_id n, struct adjoint *a, struct err *e)
{
    const struct node *nd = graph_node(g, n);
    const struct shape *dy = op_in_shape(g, nd, 0);
    const i64 *v;
    struct symtab *t = g->sym;
    i64 count = attr_ints(nd, "input_shape", &v);
    bool given = node_attr(nd, "input_shape");
    for (i64 i = 0; i < count && i < a->w.n; i++) a->size[i] = sym_const(t, v[i]);
    if (given && count != a->w.n && op_get_syms(g, nd, "input_shape", a->size, a->w.n) != a->w.n)
        return op_invalid(e, g, n, "attribute 'input_shape' does not have %u sizes", a->w.n);
    for (u32 i = 0; i < a->w.n && !given; i++) {
        sym last = sym_sub(t, dy->dim[2 + i], sym_const(t, 1));
        i64 span = (a->w.kernel[i] - 1) * a->w.dilation[i] + 1;
        sym all = sym_add(t, sym_mul(t, last, sym_const(t, a->w.stride[i])), sym_const(t, span));
        a->size[i] = sym_sub(t, all, sym_add(t, a->w.begin[i], a->w.end[i]));
    }
    return true;
}

/* dy must have the convolution's output sizes, so that fewer rows than a stride are unread. */
static bool solve_extra(struct graph *g, node_id n, struct adjoint *a, struct err *e)
{
    const struct shape *dy = op_in_shape(g, graph_node(g, n), 0);
    struct symtab *t = g->sym;
    struct shape x = *dy, y = *dy;
    i64 c, both;
    for (u32 i = 0; i < a->w.n; i++) {
        x.dim[2 + i] = a->size[i];
        if (sym_is_const(t, a->size[i], &c) && c < 1)
            return op_invalid(e, g, n, "input of size %lld on axis %u", (long long)c, 2 + i);
    }
    if (!op_window_out(g, n, &a->w, &x, &y, e)) return false;
    a->known = true;
    for (u32 i = 0; i < a->w.n; i++) {
        sym got = dy->dim[2 + i], want = y.dim[2 + i], s = sym_const(t, a->w.stride[i]);
        i64 span = (a->w.kernel[i] - 1) * a->w.dilation[i] + 1;
        if (got != want && sym_is_const(t, sym_sub(t, got, want), &both))
            return op_invalid(e, g, n, "input_shape does not lead to the gradient's size on axis %u", 2 + i);
        if (got != want)
            return op_unsupported(e, g, n, "input_shape is not known to lead to the gradient's size on axis %u", 2 + i);
        sym read = sym_add(t, sym_mul(t, sym_sub(t, got, sym_const(t, 1)), s), sym_const(t, span));
        sym room = sym_add(t, a->size[i], sym_add(t, a->w.begin[i], a->w.end[i]));
        if (sym_is_const(t, sym_sub(t, room, read), &a->extra[i])) continue;
        a->extra[i] = a->w.stride[i] - 1, a->known = false;
    }
    return true;
}

static bool adjoint_read(struct graph *g, node_id n, struct adjoint *a, struct err *e)
{
    const struct node *nd = graph_node(g, n);
    const struct shape *dy = op_in_shape(g, nd, 0), *w = op_in_shape(g, nd, 1);
    struct str pad = attr_str(nd, "auto_pad", "NOTSET");
    i64 m;
    *a = (struct adjoint){.group = attr_int(nd, "group", 1)};
    if (!floats_only(g, n, e)) return false;
    if (dy->rank < 3 || w->rank != dy->rank)
        return op_invalid(e, g, n, "weight of rank %u for a gradient of rank %u", w->rank, dy->rank);
    if (!shape_is_static(g->sym, w, a->weight))
        return op_unsupported(e, g, n, "the weight's shape is not constant");
    if (str_starts(pad, S("SAME")))
        return op_unsupported(e, g, n, "auto_pad '%.*s'", STR_ARG(pad));
    if (!op_window_infer(g, n, a->weight + 2, &a->w, e)) return false;
    if (!sym_is_const(g->sym, dy->dim[1], &m))
        return op_unsupported(e, g, n, "the number of channels is not known");
    if (a->group < 1 || m != a->weight[0] || m % a->group || a->weight[1] > (1 << 30) / a->group)
        return op_invalid(e, g, n, "gradient of %lld channels in %lld groups, weight for %lld", (long long)m,
                          (long long)a->group, (long long)a->weight[0]);
    return read_sizes(g, n, a, e) && solve_extra(g, n, a, e);
}

static bool input_infer(struct graph *g, node_id n, struct err *e)
{
    struct adjoint a;
    if (!adjoint_read(g, n, &a, e)) return false;
    struct shape out = *op_in_shape(g, graph_node(g, n), 0);
    out.dim[1] = sym_const(g->sym, a.weight[1] * a.group);
    for (u32 i = 0; i < a.w.n; i++) out.dim[2 + i] = a.size[i];
    op_set_out(g, n, 0, op_in_dtype(g, graph_node(g, n), 0), &out);
    return true;
}

/* The first elements of v. */
static void cut(struct graph *g, node_id like, value_id v, const struct shape *to, value_id out)
{
    sym start[MAX_RANK];
    i64 step[MAX_RANK];
    for (u32 i = 0; i < to->rank; i++) start[i] = sym_const(g->sym, 0), step[i] = 1;
    node_id n = op_made(g, op_node1(g, like, "quern::Slice", v, out));
    op_set_syms(g, n, "start", start, to->rank);
    op_set_syms(g, n, "size", to->dim, to->rank);
    attr_set_ints(g, n, "step", step, to->rank);
}

static bool input_expand(struct graph *g, node_id n, struct err *e)
{
    struct adjoint a;
    if (!adjoint_read(g, n, &a, e)) return false;
    value_id out = graph_node(g, n)->out.v[0];
    const struct shape shape = graph_value(g, out)->shape;
    value_id v = op_node2(g, n, "ConvTranspose", graph_node(g, n)->in.v[0], graph_node(g, n)->in.v[1],
                          a.known ? out : 0);
    node_id to = op_made(g, v);
    for (u32 i = 0; i < 4; i++) {
        const struct attr *x = node_attr(graph_node(g, n), (const char *[]){"kernel_shape", "strides", "dilations", "pads"}[i]);
        if (x) attr_copy(g, to, x);
    }
    attr_set_int(g, to, "group", a.group);
    attr_set_ints(g, to, "output_padding", a.extra, a.w.n);
    if (!a.known) cut(g, n, v, &shape, out);
    return true;
}

/* ConvGradWeight: sizes. */

static bool channels_fit(const struct graph *g, node_id n, i64 *per_group, i64 *m, struct err *e)
{
    const struct node *nd = graph_node(g, n);
    i64 c, group = attr_int(nd, "group", 1);
    if (!sym_is_const(g->sym, op_in_shape(g, nd, 0)->dim[1], &c) || !sym_is_const(g->sym, op_in_shape(g, nd, 1)->dim[1], m))
        return op_unsupported(e, g, n, "the number of channels is not known");
    if (group < 1 || c % group || *m % group)
        return op_invalid(e, g, n, "group %lld for %lld input and %lld output channels", (long long)group, (long long)c,
                          (long long)*m);
    *per_group = c / group;
    return true;
}

static bool weight_infer(struct graph *g, node_id n, struct err *e)
{
    const struct node *nd = graph_node(g, n);
    const struct shape x = *op_in_shape(g, nd, 0), dy = *op_in_shape(g, nd, 1);
    struct op_window w;
    struct shape y = dy;
    i64 c = 0, m = 0;
    if (!floats_only(g, n, e)) return false;
    if (x.rank < 3 || dy.rank != x.rank)
        return op_invalid(e, g, n, "gradient of rank %u for an input of rank %u", dy.rank, x.rank);
    if (!op_window_infer(g, n, NULL, &w, e) || !channels_fit(g, n, &c, &m, e)) return false;
    if (!op_window_out(g, n, &w, &x, &y, e)) return false;
    if (!op_sizes_agree(g, x.dim[0], dy.dim[0])) return op_invalid(e, g, n, "batch sizes differ");
    for (u32 i = 0; i < w.n; i++)
        if (!op_sizes_agree(g, y.dim[2 + i], dy.dim[2 + i]))
            return op_invalid(e, g, n, "the gradient does not have the output's size on axis %u", 2 + i);
    attr_set_int(g, n, "group", attr_int(graph_node(g, n), "group", 1));
    struct shape out = {.known = true, .rank = x.rank, .dim = {sym_const(g->sym, m), sym_const(g->sym, c)}};
    for (u32 i = 0; i < w.n; i++) out.dim[2 + i] = sym_const(g->sym, w.kernel[i]);
    op_set_out(g, n, 0, op_in_dtype(g, graph_node(g, n), 0), &out);
    return true;
}

/* ConvGradWeight: evaluation, one element of dw after the other. Rows: all spatial axes but the last. */

struct sums {
    struct op_window w;
    i64 begin[MAX_RANK];
    const struct tensor *x, *dy, *dw;
    i64 cg, mg;              /* channels of x and y in a group */
    i64 x_plane, y_plane;    /* elements of one channel */
    i64 rows;
    const i64 *at;           /* [row taps][rows]: offset of the input row in its channel, -1: in the pad */
};

static bool sums_open(const struct op_eval *v, struct sums *s, struct err *e)
{
    op_window_get(v->g, v->n, &s->w);
    if (!op_window_begin(v, &s->w, s->begin)) return false;
    u32 n = s->w.n;
    s->x = v->in[0], s->dy = v->in[1], s->dw = v->out[0];
    s->cg = s->dw->dim[1], s->mg = s->dw->dim[0] / attr_int(v->n, "group", 1);
    s->x_plane = i64_product(n, s->x->dim + 2), s->y_plane = i64_product(n, s->dy->dim + 2);
    s->rows = i64_product(n - 1, s->dy->dim + 2);
    s->at = op_window_rows(v, &s->w, s->begin, s->dy->dim + 2, s->x->dim + 2, e);
    return s->at != NULL;
}

static double dot_rows(const struct tensor *x, i64 xa, i64 step, const struct tensor *y, i64 ya, i64 n)
{
    double sum = 0;
    if (x->dtype == DT_F32) {
        const float *p = (const float *)x->data + xa, *q = (const float *)y->data + ya;
        for (i64 i = 0; i < n; i++) sum += (double)p[i * step] * (double)q[i];
        return sum;
    }
    for (i64 i = 0; i < n; i++) sum += elem_f64(x->dtype, x->data, xa + i * step) * elem_f64(y->dtype, y->data, ya + i);
    return sum;
}

/* Of flat number `point` of dw. */
static double sum_at(const struct sums *s, i64 point)
{
    u32 l = s->w.n - 1;
    i64 taps = op_window_taps(&s->w), tap = point % taps, row_tap = tap / s->w.kernel[l];
    i64 c = point / taps % s->cg, m = point / taps / s->cg;
    i64 size = s->x->dim[2 + l], out = s->dy->dim[2 + l], stride = s->w.stride[l];
    i64 first = tap % s->w.kernel[l] * s->w.dilation[l] - s->begin[l]; /* input position at output 0 */
    i64 lo = first < 0 ? ceil_div(-first, stride) : 0;
    i64 hi = first < size ? i64_min(out, ceil_div(size - first, stride)) : 0;
    double sum = 0;
    for (i64 n = 0; n < s->x->dim[0] && lo < hi; n++) {
        i64 x = (n * s->x->dim[1] + m / s->mg * s->cg + c) * s->x_plane;
        i64 y = (n * s->dy->dim[1] + m) * s->y_plane;
        for (i64 r = 0; r < s->rows; r++) {
            i64 at = s->at[row_tap * s->rows + r];
            if (at >= 0) sum += dot_rows(s->x, x + at + first + lo * stride, stride, s->dy, y + r * out + lo, hi - lo);
        }
    }
    return sum;
}

static bool weight_eval(const struct op_eval *v, struct err *e)
{
    struct sums s = {0};
    if (!sums_open(v, &s, e)) return err_set(e, ERR_INPUT, "pads are not known");
    i64 n = v->n_points ? v->n_points : tensor_count(s.dw);
    for (i64 i = 0; i < n; i++) {
        i64 at = v->n_points ? v->points[i] : i;
        elem_set_f64(s.dw->dtype, s.dw->data, at, sum_at(&s, at));
    }
    return true;
}

/* ConvGradWeight: lowering. */

/* Loops over the positions of dy along spatial axis i whose tap k is inside the input, or, if k is
   a vector, over all of them. */
static void open_positions(struct emit *m, const struct op_window *w, const struct node *n, u32 i, kval tap,
                           struct op_taps *t)
{
    struct kir *k = m->k;
    sym size = op_in_shape(m->g, n, 0)->dim[2 + i], out = op_in_shape(m->g, n, 1)->dim[2 + i];
    i64 s = w->stride[i];
    kval first = kir_sub(k, kir_mul_i(k, tap, w->dilation[i]), emit_size(m, w->begin[i]));
    kval zero = kir_int(k, 0), lo = zero, hi = emit_size(m, out), n_in = emit_size(m, size);
    bool vector = kir_lanes(k, tap) > 1;
    if (!vector) {
        lo = kir_div_i(k, kir_max(k, kir_sub(k, kir_int(k, s - 1), first), zero), s);
        kval room = kir_max(k, kir_add_i(k, kir_sub(k, n_in, first), s - 1), zero);
        hi = kir_min(k, hi, kir_div_i(k, room, s));
    }
    t->k[i] = kir_loop(k, KL_SERIAL, lo, hi, 1);
    t->at[i] = kir_add(k, kir_mul_i(k, t->k[i], s), first);
    if (!vector) return;
    kval ok = kir_bin(k, KI_AND, kir_bin(k, KI_LE, zero, t->at[i]), kir_lt(k, t->at[i], n_in));
    t->ok = t->ok ? kir_bin(k, KI_AND, t->ok, ok) : ok;
    t->at[i] = emit_clamp(m, t->at[i], size);
}

static kval weight_lower(struct emit *m, const struct node *n, u32 out, const kval *idx)
{
    struct kir *k = m->k;
    struct op_window w;
    struct op_taps t = {0};
    struct emit_acc a;
    const struct value *x = graph_value(m->g, n->in.v[0]), *dw = graph_value(m->g, n->out.v[0]);
    enum dtype type = emit_acc_type(m, x->dtype);
    i64 group = attr_int(n, "group", 1), dim[MAX_RANK] = {0};
    op_window_get(m->g, n, &w);
    shape_is_static(m->g->sym, &dw->shape, dim);
    emit_acc_open(m, &a, emit_lanes(m, x->shape.rank, idx), kir_cast(k, type, emit_neutral(m, KI_ADD, x->dtype)));
    kval base = group > 1 ? kir_mul_i(k, kir_div_i(k, idx[0], i64_max(1, dim[0] / group)), dim[1]) : kir_int(k, 0);
    kval xi[MAX_RANK] = {0}, yi[MAX_RANK] = {0};
    xi[0] = yi[0] = kir_loop(k, KL_SERIAL, kir_int(k, 0), emit_size(m, x->shape.dim[0]), 1);
    xi[1] = kir_add(k, base, idx[1]), yi[1] = idx[0];
    for (u32 i = 0; i < w.n; i++) {
        open_positions(m, &w, n, i, idx[2 + i], &t);
        xi[2 + i] = t.at[i], yi[2 + i] = t.k[i];
    }
    kval v = emit_value(m, n->in.v[0], xi);
    if (t.ok) v = kir_select(k, t.ok, v, emit_neutral(m, KI_ADD, kir_dtype(k, v)));
    emit_acc_fma(m, &a, kir_cast(k, type, v), kir_cast(k, type, emit_value(m, n->in.v[1], yi)));
    for (u32 i = 0; i < w.n + 1; i++) kir_end(k);
    return kir_cast(k, emit_type(x->dtype), emit_acc_get(m, &a));
}

/* As many as the convolution's. */
static double weight_flops(const struct graph *g, const struct node *n, const i64 *var)
{
    i64 y[MAX_RANK], w[MAX_RANK];
    const struct shape *ys = op_in_shape(g, n, 1), *ws = &graph_value(g, n->out.v[0])->shape;
    if (!shape_eval(g->sym, ys, var, y) || !shape_eval(g->sym, ws, var, w)) return 0;
    return 2.0 * (double)i64_product(ys->rank, y) * (double)i64_product(ws->rank - 1, w + 1);
}

/* Random instances: of the convolution, its output's sizes last. */

struct instance {
    u32 s;
    i64 x[MAX_RANK], w[MAX_RANK], y[MAX_RANK], pads[2 * MAX_RANK], strides[MAX_RANK], dil[MAX_RANK], group;
};

static struct instance random_instance(struct rng *r)
{
    struct instance t = {.s = (u32)rng_range(r, 1, 3), .group = rng_range(r, 1, 2)};
    i64 cg = rng_range(r, 1, 4), mg = rng_range(r, 1, 4);
    t.x[0] = t.y[0] = rng_range(r, 0, 15) ? rng_range(r, 1, 2) : 0;
    t.x[1] = t.group * cg, t.w[0] = t.y[1] = t.group * mg, t.w[1] = cg;
    for (u32 i = 0; i < t.s; i++) {
        t.w[2 + i] = rng_range(r, 1, t.s == 3 ? 2 : 4);
        t.strides[i] = rng_range(r, 1, 3), t.dil[i] = rng_range(r, 1, 2);
        t.pads[i] = rng_range(r, 0, 3), t.pads[t.s + i] = rng_range(r, 0, 2);
        i64 span = (t.w[2 + i] - 1) * t.dil[i] + 1, pad = t.pads[i] + t.pads[t.s + i];
        t.x[2 + i] = i64_max(span - pad, 1) + rng_range(r, 0, 4);
        t.y[2 + i] = (t.x[2 + i] + pad - span) / t.strides[i] + 1;
    }
    return t;
}

static void set_window(struct graph *g, node_id n, const struct instance *t)
{
    attr_set_int(g, n, "group", t->group);
    attr_set_ints(g, n, "strides", t->strides, t->s);
    attr_set_ints(g, n, "dilations", t->dil, t->s);
    attr_set_ints(g, n, "pads", t->pads, 2 * t->s);
}

static void random_input_gradient(const struct op *self, struct graph *g, struct rng *r)
{
    struct instance t = random_instance(r);
    enum dtype type = random_float_type(r);
    value_id in[2];
    random_input(g, "dy", type, t.s + 2, t.y, &in[0]);
    random_input(g, "w", type, t.s + 2, t.w, &in[1]);
    node_id n = random_node(g, self, 2, in, 1);
    set_window(g, n, &t);
    attr_set_ints(g, n, "input_shape", t.x + 2, t.s);
}

static void random_weight_gradient(const struct op *self, struct graph *g, struct rng *r)
{
    struct instance t = random_instance(r);
    enum dtype type = random_float_type(r);
    value_id in[2];
    random_input(g, "x", type, t.s + 2, t.x, &in[0]);
    random_input(g, "dy", type, t.s + 2, t.y, &in[1]);
    node_id n = random_node(g, self, 2, in, 1);
    set_window(g, n, &t);
    attr_set_ints(g, n, "kernel_shape", t.w + 2, t.s);
}

static const struct op ops[] = {
    {.name = "quern::ConvGradInput",
     .attributes = "auto_pad:string dilations:ints group:int input_shape:ints|strings kernel_shape:ints pads:ints strides:ints",
     .min_in = 2,
     .max_in = 2,
     .min_out = 1,
     .max_out = 1,
     .infer = input_infer,
     .expand = input_expand,
     .random = random_input_gradient},
    {.name = "quern::ConvGradWeight",
     .attributes = "auto_pad:string dilations:ints group:int kernel_shape:ints pads:ints strides:ints",
     .props = OP_HEAVY | OP_CONV_GRAD,
     .min_in = 2,
     .max_in = 2,
     .min_out = 1,
     .max_out = 1,
     .infer = weight_infer,
     .eval = weight_eval,
     .lower = weight_lower,
     .flops = weight_flops,
     .random = random_weight_gradient},
};

const struct op_family op_conv_grad = {ops, countof(ops)};
