// SPDX-License-Identifier: Apache-2.0
//
// Col2Im (opset 18): columns (n, c*K, L), K the taps of a window and L its positions, are summed
// into an image (n, c, d0, d1 ...). Becomes quern::Col2Im, whose image is symbolic ("image") and
// whose window is attributes; kernels gather: a pixel p takes from tap k of axis i the position
// (p + begin - k*dilation) / stride where that divides and exists.
#include "op/op.h"

enum { MAX_TAPS = 1 << 24 };

struct fold {
    u32 n;                                                            /* spatial axes */
    i64 kernel[MAX_RANK], stride[MAX_RANK], dilation[MAX_RANK], begin[MAX_RANK], end[MAX_RANK];
    sym image[MAX_RANK], out[MAX_RANK];                               /* sizes; positions of the window */
};

static bool read_list(const struct graph *g, node_id n, const char *name, u32 count, i64 def, i64 least, i64 *out,
                      struct err *e)
{
    const i64 *v;
    i64 k = attr_ints(graph_node(g, n), name, &v);
    if (k && k != count) return op_invalid(e, g, n, "attribute '%s' has %lld entries instead of %u", name, (long long)k, count);
    for (u32 i = 0; i < count; i++) {
        out[i] = k ? v[i] : def;
        if (out[i] < least || out[i] > 1 << 20) return op_invalid(e, g, n, "attribute '%s' contains %lld", name, (long long)out[i]);
    }
    return true;
}

static bool read_window(const struct graph *g, node_id n, struct fold *f, struct err *e)
{
    i64 pads[2 * MAX_RANK];
    if (!read_list(g, n, "strides", f->n, 1, 1, f->stride, e) || !read_list(g, n, "dilations", f->n, 1, 1, f->dilation, e) ||
        !read_list(g, n, "pads", 2 * f->n, 0, 0, pads, e))
        return false;
    i64 taps = 1;
    for (u32 i = 0; i < f->n; i++) {
        f->begin[i] = pads[i], f->end[i] = pads[f->n + i];
        if (f->kernel[i] < 1 || f->kernel[i] > MAX_TAPS || (taps *= f->kernel[i]) > MAX_TAPS)
            return op_invalid(e, g, n, "block of size %lld", (long long)f->kernel[i]);
    }
    /* Number of positions of the window along each axis. */
    struct symtab *t = g->sym;
    for (u32 i = 0; i < f->n; i++) {
        i64 span = (f->kernel[i] - 1) * f->dilation[i] + 1;
        sym room = sym_add(t, f->image[i], sym_const(t, f->begin[i] + f->end[i] - span));
        f->out[i] = sym_add(t, sym_div(t, room, sym_const(t, f->stride[i])), sym_const(t, 1));
    }
    return true;
}

static i64 taps_of(const struct fold *f)
{
    i64 n = 1;
    for (u32 i = 0; i < f->n; i++) n *= f->kernel[i];
    return n;
}

static bool set_result(struct graph *g, node_id n, const struct fold *f, struct err *e)
{
    const struct node *nd = graph_node(g, n);
    const struct shape *x = op_in_shape(g, nd, 0);
    i64 c;
    if (x->rank != 3) return op_invalid(e, g, n, "input of rank %u, expected 3", x->rank);
    if (sym_is_const(g->sym, x->dim[1], &c) && c % taps_of(f))
        return op_invalid(e, g, n, "%lld channels are not a multiple of the block's %lld elements", (long long)c,
                          (long long)taps_of(f));
    sym all = sym_const(g->sym, 1);
    for (u32 i = 0; i < f->n; i++) all = sym_mul(g->sym, all, f->out[i]);
    if (!op_sizes_agree(g, all, x->dim[2])) return op_invalid(e, g, n, "the window has another number of positions than columns");
    struct shape s = {.rank = f->n + 2, .dim = {x->dim[0], sym_div(g->sym, x->dim[1], sym_const(g->sym, taps_of(f)))}};
    for (u32 i = 0; i < f->n; i++) s.dim[2 + i] = f->image[i];
    op_set_out(g, n, 0, op_in_dtype(g, nd, 0), &s);
    return true;
}

static bool read_fold(struct graph *g, node_id n, struct fold *f, struct err *e)
{
    const struct node *nd = graph_node(g, n);
    i64 count;
    *f = (struct fold){0};
    if (!op_sym_ints(g, nd->in.v[1], f->image, MAX_RANK - 2, &count) || count < 1)
        return op_unsupported(e, g, n, "the image's shape is only known at run time");
    f->n = (u32)count;
    if (op_const_ints(g, nd->in.v[2], f->kernel, MAX_RANK - 2) != count)
        return op_unsupported(e, g, n, "the block's shape is not constant, or does not fit the image's");
    return read_window(g, n, f, e);
}

static bool infer(struct graph *g, node_id n, struct err *e)
{
    struct fold f;
    if (!dtype_is_float(op_in_dtype(g, graph_node(g, n), 0)) && !dtype_is_int(op_in_dtype(g, graph_node(g, n), 0)))
        return op_unsupported(e, g, n, "type %s", dtype_name(op_in_dtype(g, graph_node(g, n), 0)));
    return read_fold(g, n, &f, e) && set_result(g, n, &f, e);
}

static bool expand(struct graph *g, node_id n, struct err *e)
{
    struct fold f;
    i64 pads[2 * MAX_RANK];
    if (!read_fold(g, n, &f, e)) return false;
    node_id to = op_replace(g, n, "quern::Col2Im", 1);
    for (u32 i = 0; i < f.n; i++) pads[i] = f.begin[i], pads[f.n + i] = f.end[i];
    op_set_syms(g, to, "image", f.image, f.n);
    attr_set_ints(g, to, "kernel_shape", f.kernel, f.n);
    attr_set_ints(g, to, "strides", f.stride, f.n);
    attr_set_ints(g, to, "dilations", f.dilation, f.n);
    attr_set_ints(g, to, "pads", pads, 2 * f.n);
    return true;
}

/* Of the primitive. */
static bool get_fold(const struct graph *g, node_id n, struct fold *f, struct err *e)
{
    i64 count;
    *f = (struct fold){0};
    count = op_get_syms(g, graph_node(g, n), "image", f->image, MAX_RANK - 2);
    if (count < 1) return op_invalid(e, g, n, "bad attribute 'image'");
    f->n = (u32)count;
    return read_list(g, n, "kernel_shape", f->n, 0, 1, f->kernel, e) && read_window(g, n, f, e);
}

static struct fold fold_of(const struct graph *g, const struct node *nd)
{
    struct fold f;
    struct err e = {0};
    node_id n = graph_value(g, nd->out.v[0])->producer;
    bool ok = get_fold(g, n, &f, &e);
    assert(ok), (void)ok;
    return f;
}

static bool prim_infer(struct graph *g, node_id n, struct err *e)
{
    struct fold f;
    return get_fold(g, n, &f, e) && set_result(g, n, &f, e);
}

/* Position of the window whose tap k covers pixel p; -1: none. */
static i64 source(const struct fold *f, u32 i, i64 p, i64 k, i64 count)
{
    i64 at = p + f->begin[i] - k * f->dilation[i];
    return at < 0 || at % f->stride[i] || at / f->stride[i] >= count ? -1 : at / f->stride[i];
}

static bool prim_eval(const struct op_eval *v, struct err *e)
{
    const struct tensor *x = v->in[0];
    struct tensor *out = v->out[0];
    struct fold f = fold_of(v->g, v->n);
    i64 idx[MAX_RANK] = {0}, n = tensor_count(out), taps = taps_of(&f), count[MAX_RANK];
    for (u32 i = 0; i < f.n; i++)
        count[i] = (out->dim[2 + i] + f.begin[i] + f.end[i] - (f.kernel[i] - 1) * f.dilation[i] - 1) / f.stride[i] + 1;
    for (i64 i = 0; i < n; i++, op_next(out->rank, out->dim, idx)) {
        double sum = 0;
        i64 isum = 0;
        for (i64 tap = 0; tap < taps; tap++) {
            i64 column = 0, place = 1, rest = tap, from = 0;
            for (u32 a = f.n; a-- > 0 && from >= 0; place *= count[a], rest /= f.kernel[a]) {
                from = source(&f, a, idx[2 + a], rest % f.kernel[a], count[a]);
                column += from * place;
            }
            if (from < 0) continue;
            i64 at = (idx[0] * x->dim[1] + idx[1] * taps + tap) * x->dim[2] + column;
            if (dtype_is_float(x->dtype)) sum += elem_f64(x->dtype, x->data, at);
            else isum = (i64)((u64)isum + (u64)elem_i64(x->dtype, x->data, at));
        }
        if (dtype_is_float(x->dtype)) elem_set_f64(out->dtype, out->data, i, sum);
        else elem_set_i64(out->dtype, out->data, i, isum);
    }
    return true;
}

static kval prim_lower(struct emit *m, const struct node *n, u32 out, const kval *idx)
{
    struct kir *k = m->k;
    const struct fold f = fold_of(m->g, n);
    const struct shape *x = op_in_shape(m->g, n, 0);
    kval zero = kir_int(k, 0), tap = zero, column = zero, ok = 0;
    struct emit_acc sum;
    emit_acc_open(m, &sum, emit_lanes(m, f.n + 2, idx), kir_cast(k, emit_acc_type(m, op_in_dtype(m->g, n, 0)), emit_zero(m, op_in_dtype(m->g, n, 0))));
    for (u32 i = 0; i < f.n; i++) {
        kval at = kir_loop(k, KL_SERIAL, zero, kir_int(k, f.kernel[i]), 1), count = emit_size(m, f.out[i]);
        tap = kir_add(k, kir_bin(k, KI_MUL, tap, kir_int(k, f.kernel[i])), at);
        kval from = kir_sub(k, kir_add_i(k, idx[2 + i], f.begin[i]), kir_bin(k, KI_MUL, at, kir_int(k, f.dilation[i])));
        ok = kir_and(k, ok, kir_bin(k, KI_LE, zero, from));
        from = kir_max(k, from, zero);
        if (f.stride[i] > 1) ok = kir_and(k, ok, kir_bin(k, KI_EQ, kir_bin(k, KI_MOD, from, kir_int(k, f.stride[i])), zero));
        from = kir_bin(k, KI_DIV, from, kir_int(k, f.stride[i]));
        ok = kir_and(k, ok, kir_bin(k, KI_LT, from, count));
        column = kir_add(k, kir_bin(k, KI_MUL, column, count), from);
    }
    kval at[3] = {idx[0], kir_add(k, kir_bin(k, KI_MUL, idx[1], kir_int(k, taps_of(&f))), tap), emit_clamp(m, column, x->dim[2])};
    kval v = kir_cast(k, kir_dtype(k, emit_acc_get(m, &sum)), emit_clamped(m, n->in.v[0], at, 1 << 2));
    kval none = kir_cast(k, kir_dtype(k, v), emit_zero(m, op_in_dtype(m->g, n, 0)));
    emit_acc_set(m, &sum, kir_add(k, emit_acc_get(m, &sum), ok ? kir_select(k, ok, v, none) : v));
    for (u32 i = 0; i < f.n; i++) kir_end(k);
    return kir_cast(k, emit_type(op_in_dtype(m->g, n, 0)), emit_acc_get(m, &sum));
}

static double flops(const struct graph *g, const struct node *n, const i64 *var)
{
    i64 dim[MAX_RANK];
    struct fold f = fold_of(g, n);
    double count = (double)taps_of(&f);
    if (!shape_eval(g->sym, &graph_value(g, n->out.v[0])->shape, var, dim)) return 0;
    for (u32 i = 0; i < f.n + 2; i++) count *= (double)dim[i];
    return count;
}

static void random_fold(const struct op *self, struct graph *g, struct rng *r)
{
    struct fold f = {.n = (u32)rng_range(r, 1, 3)};
    i64 image[3], pads[6], columns = 1;
    for (u32 i = 0; i < f.n; i++) {
        f.kernel[i] = rng_range(r, 1, 3), f.stride[i] = rng_range(r, 1, 2), f.dilation[i] = rng_range(r, 1, 2);
        pads[i] = f.begin[i] = rng_range(r, 0, 1), pads[f.n + i] = f.end[i] = rng_range(r, 0, 1);
        i64 span = (f.kernel[i] - 1) * f.dilation[i] + 1;
        image[i] = span + rng_range(r, 0, 3);
        columns *= (image[i] + f.begin[i] + f.end[i] - span) / f.stride[i] + 1;
    }
    i64 dim[3] = {rng_range(r, 1, 2), taps_of(&f) * rng_range(r, 1, 3), columns};
    value_id in[3] = {0};
    random_input(g, "x", DT_F32, 3, dim, &in[0]);
    in[1] = op_const_i(g, DT_I64, image, f.n), in[2] = op_const_i(g, DT_I64, f.kernel, f.n);
    node_id n = random_node(g, self, self->max_in, in, 1);
    attr_set_ints(g, n, "strides", f.stride, f.n);
    attr_set_ints(g, n, "dilations", f.dilation, f.n);
    attr_set_ints(g, n, "pads", pads, 2 * f.n);
    if (self->max_in == 3) return;
    for (u32 i = 0; i < f.n; i++) f.image[i] = sym_const(g->sym, image[i]);
    op_set_syms(g, n, "image", f.image, f.n);
    attr_set_ints(g, n, "kernel_shape", f.kernel, f.n);
}

static const struct op ops[] = {
    {.name = "Col2Im",
     .min_in = 3,
     .max_in = 3,
     .min_out = 1,
     .max_out = 1,
     .infer = infer,
     .expand = expand,
     .random = random_fold},
    {.name = "quern::Col2Im",
     .attributes = "dilations:ints image:strings kernel_shape:ints pads:ints strides:ints",
     .props = OP_HEAVY,
     .min_in = 1,
     .max_in = 1,
     .min_out = 1,
     .max_out = 1,
     .infer = prim_infer,
     .eval = prim_eval,
     .lower = prim_lower,
     .flops = flops,
     .random = random_fold},
};

const struct op_family op_col2im = {ops, countof(ops)};
