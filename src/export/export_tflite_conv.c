// SPDX-License-Identifier: Apache-2.0
//
// Convolutions, transposed convolutions and pooling. TFLite has (n, h, w, c) and two rules for
// pads, SAME and VALID; pads that follow neither become a PAD, of a transposed convolution a SLICE.
// One spatial axis is a picture of height 1.
#include "export/export_tflite.h"

#include <float.h>

enum { Y, X, N_AXES };

struct window {
    u32 rank; /* of the value: 3 or 4 */
    i64 n, c; /* of the input */
    i64 kernel[N_AXES], stride[N_AXES], dilation[N_AXES], in[N_AXES], out[N_AXES];
    i64 before[N_AXES], after[N_AXES]; /* pads, and what windows need beyond */
};

static i64 span(const struct window *w, u32 i) { return (w->kernel[i] - 1) * w->dilation[i] + 1; }

static bool read_window(struct tfl *t, const struct node *n, struct window *w)
{
    struct op_window o;
    i64 x[MAX_RANK], y[MAX_RANK], pad[2];
    tfl_dims(t, n->in.v[0], TFL_ROWS, x);
    tfl_dims(t, n->out.v[0], TFL_ROWS, y);
    op_window_get(&t->g, n, &o);
    *w = (struct window){.rank = o.n + 2,
                         .n = x[0],
                         .c = x[1],
                         .kernel = {1, 1},
                         .stride = {1, 1},
                         .dilation = {1, 1},
                         .in = {1, 1},
                         .out = {1, 1}};
    if (o.n < 1 || o.n > N_AXES) return tfl_refuse(t, n, "%u spatial axes", o.n);
    for (u32 i = 0; i < o.n; i++) {
        u32 to = i + N_AXES - o.n;
        w->kernel[to] = o.kernel[i], w->stride[to] = o.stride[i], w->dilation[to] = o.dilation[i];
        w->in[to] = x[2 + i], w->out[to] = y[2 + i];
        if (!sym_is_const(t->g.sym, o.begin[i], &pad[0]) ||
            !sym_is_const(t->g.sym, o.end[i], &pad[1]))
            return tfl_refuse(t, n, "pads that are not constant");
        w->before[to] = pad[0], w->after[to] = pad[1];
    }
    return true;
}

/* Pads after, such that the last window ends with them: negative, of elements that no window reads.
 */
static void cover(struct window *w)
{
    for (u32 i = 0; i < N_AXES; i++)
        w->after[i] = (w->out[i] - 1) * w->stride[i] + span(w, i) - w->in[i] - w->before[i];
}

static bool is_same(const struct window *w)
{
    for (u32 i = 0; i < N_AXES; i++) {
        i64 total = i64_max((w->out[i] - 1) * w->stride[i] + span(w, i) - w->in[i], 0);
        if (w->out[i] != ceil_div(w->in[i], w->stride[i]) || w->before[i] != total / 2)
            return false;
    }
    return true;
}

static bool is_valid(const struct window *w)
{
    for (u32 i = 0; i < N_AXES; i++)
        if (w->before[i] || w->in[i] < span(w, i) ||
            w->out[i] != (w->in[i] - span(w, i)) / w->stride[i] + 1)
            return false;
    return true;
}

/* The input of a window operator as (n, h, w, c), padded with a value where its pads are no rule of
 * TFLite's. */
static tfl_id window_in(struct tfl *t, const struct node *n, const struct window *w, double value,
                        const char **padding)
{
    tfl_id x = tfl_in(t, n, 0, TFL_CLAST);
    if (x && w->rank == 3) x = tfl_reshape(t, x, 4, (i64[]){w->n, w->in[Y], w->in[X], w->c}, 0);
    *padding = is_valid(w) ? "VALID" : "SAME";
    if (!x || is_valid(w) || is_same(w)) return x;
    *padding = "VALID";
    i64 after[] = {0, i64_max(w->after[Y], 0), i64_max(w->after[X], 0), 0};
    return tfl_pad(t, x, (i64[]){0, w->before[Y], w->before[X], 0}, after, value);
}

/* The output as (n, h, w, c); window_done reshapes it to y. */
static tfl_id window_out(struct tfl *t, const struct window *w, tfl_id y)
{
    const struct tfl_tensor *out = tfl_at(t, y);
    return w->rank == 4
               ? y
               : tfl_like(t, y, "wide", 4, (i64[]){out->dim[0], w->out[Y], w->out[X], out->dim[2]});
}

static bool window_done(struct tfl *t, const struct node *n, tfl_id wide, tfl_id y)
{
    if (wide != y) tfl_reshape(t, wide, tfl_at(t, y)->rank, tfl_at(t, y)->dim, y);
    return tfl_settle(t, n, 0, TFL_CLAST, y);
}

/* Convolution. */

static value_id bias_of(const struct node *n) { return n->in.n > 2 ? n->in.v[2] : 0; }

bool tfl_conv_can(struct tfl *t, const struct node *n)
{
    value_id b = bias_of(n);
    u32 axis = str_is(n->op, "ConvTranspose");
    return tfl_is_symmetric(t, n->in.v[1], axis) && (!b || tfl_content(t, b)) &&
           t->v[tfl_of(t, n->in.v[0])].q.n <= 1;
}

static bool check_constants(struct tfl *t, const struct node *n)
{
    if (!tfl_content(t, n->in.v[1])) return tfl_refuse(t, n, "weights that are not constant");
    if (bias_of(n) && !tfl_content(t, bias_of(n)))
        return tfl_refuse(t, n, "a bias that is not constant");
    return true;
}

/* (o, i, h, w) to (o, h, w, i), of one group per channel to (1, h, w, o). */
static tfl_id filter(struct tfl *t, const struct node *n, const struct window *w, bool is_depthwise)
{
    i64 d[MAX_RANK];
    tfl_dims(t, n->in.v[1], TFL_ROWS, d);
    struct tfl_order o = {.rank = 4,
                          .dim = {d[0], d[1], w->kernel[Y], w->kernel[X]},
                          .perm = {0, 2, 3, 1},
                          .n_to = 4,
                          .to = {d[0], w->kernel[Y], w->kernel[X], d[1]}};
    const struct tfl_order deep = {.rank = 4,
                                   .dim = {d[0], d[1], w->kernel[Y], w->kernel[X]},
                                   .perm = {1, 2, 3, 0},
                                   .n_to = 4,
                                   .to = {1, w->kernel[Y], w->kernel[X], d[0]},
                                   .axis = 3};
    return tfl_weights(t, n->in.v[1], is_depthwise ? &deep : &o);
}

static void conv_options(struct tfl *t, const struct node *n, const struct window *w,
                         const char *padding, i64 multiplier)
{
    char more[64] = "";
    if (multiplier) {
        struct str s = str_fmt(t->a, "\"multiplier\":%lld,", (long long)multiplier);
        for (i64 k = 0; k < s.n; k++) more[k] = s.p[k];
    }
    tfl_options(t, multiplier ? "Depthwise" : "Conv",
                "\"padding\":\"%s\",\"stride_w\":%lld,\"stride_h\":%lld,%s\"activation\":\"%s\","
                "\"dilation_w\":%lld,\"dilation_h\":%lld",
                padding, (long long)w->stride[X], (long long)w->stride[Y], more, tfl_activation(n),
                (long long)w->dilation[X], (long long)w->dilation[Y]);
}

bool tfl_conv(struct tfl *t, const struct node *n)
{
    struct window w;
    const char *padding;
    i64 groups = attr_int(n, "group", 1), d[MAX_RANK];
    if (!read_window(t, n, &w) || !check_constants(t, n)) return false;
    cover(&w);
    tfl_dims(t, n->in.v[1], TFL_ROWS, d);
    bool is_depthwise = groups > 1 && groups == w.c;
    tfl_id x = window_in(t, n, &w, 0, &padding), f = x ? filter(t, n, &w, is_depthwise) : 0;
    tfl_id b = f ? tfl_bias(t, bias_of(n), d[0], x, f) : 0;
    if (!b) return false;
    tfl_id y = tfl_out(t, n, 0, TFL_CLAST), wide = window_out(t, &w, y);
    tfl_emit(t, is_depthwise ? TFL_DEPTHWISE_CONV_2D : TFL_CONV_2D, wide, 3, (tfl_id[]){x, f, b});
    conv_options(t, n, &w, padding, is_depthwise ? d[0] / groups : 0);
    return window_done(t, n, wide, y);
}

/* Transposed convolution. TRANSPOSE_CONV is told the size of its output and derives pads from it as
   a convolution in the other direction has them. */

struct crop {
    i64 full[N_AXES];
    bool is_same, is_whole;
};

static void find_crop(const struct window *w, struct crop *c)
{
    c->is_same = c->is_whole = true;
    for (u32 i = 0; i < N_AXES; i++) {
        i64 whole = (w->in[i] - 1) * w->stride[i] + w->kernel[i],
            total = i64_max(whole - w->out[i], 0);
        c->is_same &= w->in[i] == ceil_div(w->out[i], w->stride[i]) && w->before[i] == total / 2 &&
                      whole >= w->out[i];
        c->full[i] = i64_max(whole, w->before[i] + w->out[i]);
        c->is_whole &= !w->before[i] && c->full[i] == w->out[i];
    }
}

/* The weights of one group, (i, m, h, w) to (m, h, w, i), with taps apart by the dilation. */
static tfl_id transposed_filter(struct tfl *t, const struct node *n, struct window *w)
{
    i64 d[MAX_RANK];
    tfl_dims(t, n->in.v[1], TFL_ROWS, d);
    struct tfl_order o = {.rank = 4,
                          .dim = {d[0], d[1], w->kernel[Y], w->kernel[X]},
                          .perm = {1, 2, 3, 0},
                          .n_to = 4,
                          .to = {d[1], w->kernel[Y], w->kernel[X], d[0]}};
    return tfl_weights(t, n->in.v[1], &o);
}

static tfl_id crop(struct tfl *t, const struct window *w, tfl_id x, tfl_id y)
{
    const struct tfl_tensor out = *tfl_at(t, y);
    tfl_id from = tfl_ints(t, "begin", 4, (i64[]){0, w->before[Y], w->before[X], 0}),
           size = tfl_ints(t, "size", 4, out.dim);
    tfl_emit(t, TFL_SLICE, y, 3, (tfl_id[]){x, from, size});
    tfl_options(t, "Slice", "%s", "");
    return y;
}

bool tfl_conv_transpose(struct tfl *t, const struct node *n)
{
    struct window w;
    struct crop c;
    i64 d[MAX_RANK];
    if (!read_window(t, n, &w) || !check_constants(t, n)) return false;
    if (attr_int(n, "group", 1) > 1) return tfl_refuse(t, n, "groups");
    if (w.dilation[Y] > 1 || w.dilation[X] > 1) return tfl_refuse(t, n, "dilations");
    tfl_dims(t, n->in.v[1], TFL_ROWS, d);
    find_crop(&w, &c);
    tfl_id x = tfl_in(t, n, 0, TFL_CLAST);
    if (x && w.rank == 3) x = tfl_reshape(t, x, 4, (i64[]){w.n, w.in[Y], w.in[X], w.c}, 0);
    tfl_id f = x ? transposed_filter(t, n, &w) : 0,
           b = f && bias_of(n) ? tfl_bias(t, bias_of(n), d[1], x, f) : 0;
    if (!f || (bias_of(n) && !b)) return false;
    tfl_id y = tfl_out(t, n, 0, TFL_CLAST), wide = window_out(t, &w, y);
    bool is_cropped = !c.is_same && !c.is_whole;
    i64 full[] = {w.n, is_cropped ? c.full[Y] : w.out[Y], is_cropped ? c.full[X] : w.out[X], d[1]};
    tfl_id whole = is_cropped ? tfl_like(t, y, "whole", 4, full) : wide,
           size = tfl_ints(t, "size", 4, full);
    tfl_emit(t, TFL_TRANSPOSE_CONV, whole, b ? 4 : 3, (tfl_id[]){size, f, x, b});
    tfl_options(t, "TransposeConv", "\"padding\":\"%s\",\"stride_w\":%lld,\"stride_h\":%lld",
                c.is_same ? "SAME" : "VALID", (long long)w.stride[X], (long long)w.stride[Y]);
    if (is_cropped) crop(t, &w, whole, wide);
    return window_done(t, n, wide, y);
}

/* Pooling. */

static bool is_mean(const struct node *n) { return str_is(n->op, "AveragePool"); }

/* Number of elements of the input, or of it with its pads, under a window. */
static i64 n_inside(const struct window *w, u32 i, i64 o, bool with_pads, const i64 *after)
{
    i64 first = o * w->stride[i] - w->before[i], from = with_pads ? -w->before[i] : 0;
    i64 to = w->in[i] + (with_pads ? after[i] : 0);
    return i64_max(i64_min(first + w->kernel[i], to) - i64_max(first, from), 0);
}

/* Whether means divide by what AVERAGE_POOL_2D divides by: the elements of the input under the
 * window, all of the kernel if there are no pads. */
static bool divides_alike(const struct node *n, const struct window *w, const i64 *after)
{
    bool with_pads = attr_int(n, "count_include_pad", 0);
    for (u32 i = 0; i < N_AXES; i++)
        for (i64 o = 0; o < w->out[i]; o++) {
            i64 ours = is_same(w) || is_valid(w) ? n_inside(w, i, o, false, after) : w->kernel[i];
            if (n_inside(w, i, o, with_pads, after) != ours) return false;
        }
    return true;
}

/* Whether they divide by all elements of the kernel, everywhere. */
static bool divides_by_kernel(const struct node *n, const struct window *w, const i64 *after)
{
    bool with_pads = attr_int(n, "count_include_pad", 0);
    for (u32 i = 0; i < N_AXES; i++)
        for (i64 o = 0; o < w->out[i]; o++)
            if (n_inside(w, i, o, with_pads, after) != w->kernel[i]) return false;
    return true;
}

static bool read_pool(struct tfl *t, const struct node *n, struct window *w, i64 *after)
{
    if (!read_window(t, n, w)) return false;
    after[Y] = w->after[Y], after[X] = w->after[X];
    cover(w);
    return true;
}

/* Whether the result has a finer scale than the input, which AVERAGE_POOL_2D rounds to. */
static bool is_finer(const struct tfl *t, const struct node *n)
{
    const struct tfl_quant *x = &t->v[tfl_of(t, n->in.v[0])].q,
                           *y = &t->v[tfl_of(t, n->out.v[0])].q;
    return x->n == 1 && y->n == 1 && y->scale[0] < x->scale[0];
}

/* The input of a pooling, with pads that count as zeros if it cannot divide as TFLite does. */
static tfl_id pool_in(struct tfl *t, const struct node *n, const struct window *w, bool is_alike,
                      const char **padding)
{
    struct window padded = *w;
    if (is_alike || is_valid(w))
        return window_in(t, n, w, is_mean(n) ? 0 : (double)-FLT_MAX, padding);
    tfl_id x = tfl_in(t, n, 0, TFL_CLAST);
    *padding = "VALID";
    if (x && w->rank == 3) x = tfl_reshape(t, x, 4, (i64[]){w->n, w->in[Y], w->in[X], w->c}, 0);
    for (u32 i = 0; i < N_AXES; i++) padded.after[i] = i64_max(w->after[i], 0);
    return x ? tfl_pad(t, x, (i64[]){0, w->before[Y], w->before[X], 0},
                       (i64[]){0, padded.after[Y], padded.after[X], 0}, 0)
             : 0;
}

bool tfl_pool_can(struct tfl *t, const struct node *n)
{
    struct err none = {0}, *e = t->e;
    struct window w;
    i64 after[N_AXES];
    t->e = &none;
    bool is_read = read_pool(t, n, &w, after);
    t->e = e;
    if (!is_read || !is_mean(n)) return is_read;
    if (divides_by_kernel(n, &w, after)) return true;
    return divides_alike(n, &w, after) && (!is_finer(t, n) || t->rounds_constants);
}

/* Means with the result's scale: a depthwise convolution with equal weights, whose sums are rounded
 * once. */
static bool mean_conv(struct tfl *t, const struct node *n, const struct window *w)
{
    const char *padding;
    i64 dim[] = {1, w->kernel[Y], w->kernel[X], w->c}, size = i64_product(4, dim);
    tfl_id x = pool_in(t, n, w, false, &padding);
    i8 *p = arena_try(t->a, size, t->e, "weights");
    if (!x || !p) return false;
    for (i64 i = 0; i < size; i++) p[i] = 127;
    tfl_id f = tfl_constant(t, "weights", TFL_I8, 4, dim, p);
    double scale = 1 / (127.0 * (double)(w->kernel[Y] * w->kernel[X]));
    tfl_at(t, f)->q = tfl_quant_one(t->a, scale, 0);
    tfl_id b = tfl_bias(t, 0, w->c, x, f), y = tfl_out(t, n, 0, TFL_CLAST);
    tfl_id wide = window_out(t, w, y);
    tfl_emit(t, TFL_DEPTHWISE_CONV_2D, wide, 3, (tfl_id[]){x, f, b});
    conv_options(t, n, w, padding, 1);
    return window_done(t, n, wide, y);
}

/* Of means over windows that were padded with zeros: those that count fewer elements. */
static tfl_id rescale(struct tfl *t, const struct node *n, const struct window *w, const i64 *after,
                      tfl_id x, tfl_id y)
{
    float *p = arena_try(t->a, 4 * w->out[Y] * w->out[X], t->e, "factors of a pooling");
    if (!p) return 0;
    bool with_pads = attr_int(n, "count_include_pad", 0);
    for (i64 i = 0; i < w->out[Y]; i++)
        for (i64 j = 0; j < w->out[X]; j++)
            p[i * w->out[X] + j] = (float)((double)(w->kernel[Y] * w->kernel[X]) /
                                           (double)(n_inside(w, Y, i, with_pads, after) *
                                                    n_inside(w, X, j, with_pads, after)));
    tfl_id f = tfl_constant(t, "factors", TFL_F32, 4, (i64[]){1, w->out[Y], w->out[X], 1}, p);
    tfl_emit(t, TFL_MUL, y, 2, (tfl_id[]){x, f});
    tfl_options(t, "Mul", "\"activation\":\"%s\"", tfl_activation(n));
    return y;
}

static bool pool(struct tfl *t, const struct node *n, const struct window *w, const i64 *after)
{
    const char *padding;
    bool is_alike = !is_mean(n) || divides_alike(n, w, after);
    tfl_id x = pool_in(t, n, w, is_alike, &padding);
    if (!x) return false;
    const struct tfl_quant q = tfl_at(t, x)->q;
    tfl_id y = tfl_out_q(t, n, 0, TFL_CLAST, &q), wide = window_out(t, w, y);
    bool is_scaled = !is_alike && !divides_by_kernel(n, w, after);
    tfl_id raw = is_scaled ? tfl_like(t, wide, "raw", 4, tfl_at(t, wide)->dim) : wide;
    tfl_emit(t, is_mean(n) ? TFL_AVERAGE_POOL_2D : TFL_MAX_POOL_2D, raw, 1, &x);
    tfl_options(t, "Pool",
                "\"padding\":\"%s\",\"stride_w\":%lld,\"stride_h\":%lld,\"filter_w\":%lld,\"filter_"
                "h\":%lld,\"activation\":\"%s\"",
                padding, (long long)w->stride[X], (long long)w->stride[Y], (long long)w->kernel[X],
                (long long)w->kernel[Y], is_scaled ? "NONE" : tfl_activation(n));
    if (is_scaled && !rescale(t, n, w, after, raw, wide)) return false;
    return window_done(t, n, wide, y);
}

bool tfl_pool(struct tfl *t, const struct node *n)
{
    struct window w;
    i64 after[N_AXES];
    if (n->out.n > 1 && n->out.v[1])
        return tfl_refuse(t, n, "its second output, the positions of maxima");
    if (!read_pool(t, n, &w, after)) return false;
    if (w.dilation[Y] > 1 || w.dilation[X] > 1) return tfl_refuse(t, n, "dilations");
    if (t->is_q && is_mean(n) && is_finer(t, n) && divides_by_kernel(n, &w, after))
        return mean_conv(t, n, &w);
    return pool(t, n, &w, after);
}

bool tfl_global_pool(struct tfl *t, const struct node *n)
{
    bool is_mean_of_all = str_is(n->op, "GlobalAveragePool");
    tfl_id x = tfl_in(t, n, 0, TFL_CLAST);
    if (!x) return false;
    const struct tfl_quant q = tfl_at(t, x)->q;
    i64 axes[MAX_RANK];
    u32 n_axes = 0;
    for (u32 k = 1; k + 1 < tfl_at(t, x)->rank; k++) axes[n_axes++] = k;
    tfl_id y = tfl_out_q(t, n, 0, TFL_CLAST, is_mean_of_all ? NULL : &q),
           list = tfl_ints(t, "axes", n_axes, axes);
    tfl_emit(t, is_mean_of_all ? TFL_MEAN : TFL_REDUCE_MAX, y, 2, (tfl_id[]){x, list});
    tfl_options(t, "Reducer", "\"keep_dims\":true");
    return tfl_settle(t, n, 0, TFL_CLAST, y);
}
