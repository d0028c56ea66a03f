// SPDX-License-Identifier: Apache-2.0
//
// STFT (opset 17): Fourier transforms of windowed frames of a signal, and MelWeightMatrix, the
// filters usually applied to its result. Dimensions: b batch, f frames, l length of a frame, p
// parts of a number (1 real, 2 complex), k frequencies.
//
// quern::Frames reads the frames (b, f, l*p) from the signal (b, s, p). If l is known and small, they
// are multiplied by a constant matrix (l*p, k*2) of cosines and sines; otherwise a DFT computes the
// transform.
#include "op/op.h"

#include <math.h>

enum { IN_SIGNAL, IN_STEP, IN_WINDOW, IN_LENGTH };
enum { MAX_MATRIX = 1 << 22 }; /* elements of the matrix */

static const double two_pi = 6.283185307179586476925286766559;

struct stft {
    sym b, s, frames, length, step;
    i64 parts;
    bool onesided;
};

static bool read_scalar(struct graph *g, node_id n, u32 k, const char *what, sym *out, struct err *e)
{
    i64 count;
    if (op_sym_ints(g, graph_node(g, n)->in.v[k], out, 1, &count) && count == 1) return true;
    return op_unsupported(e, g, n, "%s is only known at run time; make it a constant of the model", what);
}

static bool read_stft(struct graph *g, node_id n, struct stft *f, struct err *e)
{
    const struct node *nd = graph_node(g, n);
    const struct shape *x = op_in_shape(g, nd, IN_SIGNAL);
    struct symtab *t = g->sym;
    i64 c;
    if (!op_check_float(g, n, IN_SIGNAL, e) || !op_check_rank(g, n, IN_SIGNAL, 2, 3, e) || !op_check_rank(g, n, IN_WINDOW, 1, 1, e))
        return false;
    *f = (struct stft){.b = x->dim[0], .s = x->dim[1], .parts = 1, .onesided = attr_int(nd, "onesided", 1)};
    if (x->rank == 3 && (!sym_is_const(t, x->dim[2], &f->parts) || f->parts < 1 || f->parts > 2))
        return op_invalid(e, g, n, "the signal's last axis is neither 1 nor 2");
    if (f->onesided && f->parts == 2) return op_invalid(e, g, n, "onesided for a complex signal");
    if (op_has_in(nd, IN_WINDOW) && op_in_dtype(g, nd, IN_WINDOW) != op_in_dtype(g, nd, IN_SIGNAL))
        return op_invalid(e, g, n, "window and signal of different types");
    f->length = op_has_in(nd, IN_WINDOW) ? op_in_shape(g, nd, IN_WINDOW)->dim[0] : f->s;
    if (!read_scalar(g, n, IN_STEP, "frame_step", &f->step, e)) return false;
    if (op_has_in(nd, IN_LENGTH) && !read_scalar(g, n, IN_LENGTH, "frame_length", &f->length, e)) return false;
    if (op_has_in(nd, IN_WINDOW) && !op_sizes_agree(g, f->length, op_in_shape(g, nd, IN_WINDOW)->dim[0]))
        return op_invalid(e, g, n, "window and frame_length differ");
    if (!sym_is_const(t, f->step, &c)) return op_unsupported(e, g, n, "a symbolic frame_step");
    if (c < 1) return op_invalid(e, g, n, "frame_step %lld", (long long)c);
    f->frames = sym_add(t, sym_div(t, sym_sub(t, f->s, f->length), f->step), sym_const(t, 1));
    return !sym_is_const(t, f->frames, &c) || c >= 1 || op_invalid(e, g, n, "the signal is shorter than a frame");
}

static sym frequencies(struct graph *g, const struct stft *f)
{
    return f->onesided ? sym_add(g->sym, sym_div(g->sym, f->length, sym_const(g->sym, 2)), sym_const(g->sym, 1)) : f->length;
}

static bool infer(struct graph *g, node_id n, struct err *e)
{
    struct stft f;
    if (!read_stft(g, n, &f, e)) return false;
    struct shape s = {.rank = 4, .dim = {f.b, f.frames, frequencies(g, &f), sym_const(g->sym, 2)}};
    op_set_out(g, n, 0, op_in_dtype(g, graph_node(g, n), IN_SIGNAL), &s);
    return true;
}

/* (l*p, k*2): rows are parts of a frame's elements, columns parts of the result's. */
static value_id matrix(struct graph *g, const struct stft *f, enum dtype t, i64 length, i64 count)
{
    struct tensor *m = tensor_new(g->arena, t, 2, (i64[]){length * f->parts, count * 2});
    for (i64 i = 0; i < length * f->parts; i++)
        for (i64 j = 0; j < count * 2; j++) {
            double a = -two_pi * (double)(i / f->parts * (j / 2) % length) / (double)length;
            bool im = i % f->parts, to_im = j % 2;
            elem_set_f64(t, m->data, i * count * 2 + j, im == to_im ? cos(a) : im ? -sin(a) : sin(a));
        }
    return graph_add_const(g, S("dft"), m);
}

static value_id frames(struct graph *g, node_id n, const struct stft *f)
{
    const sym three[3] = {f->b, f->s, sym_const(g->sym, f->parts)};
    value_id v = op_node_reshape(g, n, graph_node(g, n)->in.v[IN_SIGNAL], 3, three, 0);
    v = op_node1(g, n, "quern::Frames", v, 0);
    op_set_syms(g, op_made(g, v), "frames", (const sym[]){f->frames, f->length, f->step}, 3);
    return v;
}

/* By a matrix; the window scales its rows. */
static void by_matrix(struct graph *g, node_id n, const struct stft *f, i64 length, i64 count)
{
    const struct node nd = *graph_node(g, n);
    value_id m = matrix(g, f, op_in_dtype(g, &nd, IN_SIGNAL), length, count), w = op_node_input(&nd, IN_WINDOW);
    const sym each[3] = {f->length, sym_const(g->sym, 1), sym_const(g->sym, 1)},
              rows[3] = {f->length, sym_const(g->sym, f->parts), sym_const(g->sym, count * 2)},
              out[4] = {f->b, f->frames, sym_const(g->sym, count), sym_const(g->sym, 2)};
    if (w) {
        w = op_node_reshape(g, n, w, 3, each, 0);
        m = op_node2(g, n, "Mul", op_node_reshape(g, n, m, 3, rows, 0), w, 0);
        const sym flat[2] = {sym_const(g->sym, length * f->parts), rows[2]};
        m = op_node_reshape(g, n, m, 2, flat, 0);
    }
    op_node_reshape(g, n, op_node2(g, n, "MatMul", frames(g, n, f), m, 0), 4, out, nd.out.v[0]);
}

static bool expand(struct graph *g, node_id n, struct err *e)
{
    const struct node nd = *graph_node(g, n);
    struct stft f;
    i64 length, count;
    if (!read_stft(g, n, &f, e)) return false;
    bool known = sym_is_const(g->sym, f.length, &length) && sym_is_const(g->sym, frequencies(g, &f), &count);
    if (known && length > 0 && (double)length * (double)count * 2 * (double)f.parts <= MAX_MATRIX)
        return by_matrix(g, n, &f, length, count), true;
    const sym four[4] = {f.b, f.frames, f.length, sym_const(g->sym, f.parts)}, each[2] = {f.length, sym_const(g->sym, 1)};
    value_id v = op_node_reshape(g, n, frames(g, n, &f), 4, four, 0), w = op_node_input(&nd, IN_WINDOW);
    if (w) v = op_node2(g, n, "Mul", v, op_node_reshape(g, n, w, 2, each, 0), 0);
    v = op_node1(g, n, "quern::DFT", v, nd.out.v[0]);
    op_set_syms(g, op_made(g, v), "length", &f.length, 1);
    attr_set_int(g, op_made(g, v), "axis", 2);
    attr_set_int(g, op_made(g, v), "onesided", f.onesided);
    return true;
}

static void random_stft(const struct op *self, struct graph *g, struct rng *r)
{
    i64 length = rng_range(r, 1, 8), step = rng_range(r, 1, 4), parts = rng_range(r, 1, 2);
    i64 x[3] = {rng_range(r, 1, 2), length + rng_range(r, 0, 9), parts};
    bool window = rng_range(r, 0, 1);
    value_id in[4] = {0};
    random_input(g, "x", DT_F32, 3, x, &in[IN_SIGNAL]);
    in[IN_STEP] = op_const_i(g, DT_I64, &step, 1);
    if (window) random_input(g, "w", DT_F32, 1, &length, &in[IN_WINDOW]);
    if (!window || rng_range(r, 0, 1)) in[IN_LENGTH] = op_const_i(g, DT_I64, &length, 1);
    node_id n = random_node(g, self, in[IN_LENGTH] ? 4 : 3, in, 1);
    attr_set_int(g, n, "onesided", parts == 1 && rng_range(r, 0, 1));
}

/* quern::Frames */

static bool frames_infer(struct graph *g, node_id n, struct err *e)
{
    const struct node *nd = graph_node(g, n);
    const struct shape *x = op_in_shape(g, nd, 0);
    sym f[3];
    if (x->rank != 3 || op_get_syms(g, nd, "frames", f, 3) != 3) return op_invalid(e, g, n, "bad attribute 'frames'");
    sym zero = sym_const(g->sym, 0), last = sym_mul(g->sym, sym_sub(g->sym, f[0], sym_const(g->sym, 1)), f[2]);
    if (!op_require_at_least(g, n, x->dim[1], sym_add(g->sym, last, f[1]), e, "the signal's length") ||
        !op_require_at_least(g, n, f[2], zero, e, "the step from frame to frame"))
        return false;
    x = op_in_shape(g, graph_node(g, n), 0), nd = graph_node(g, n);
    struct shape s = {.rank = 3, .dim = {x->dim[0], f[0], sym_mul(g->sym, f[1], x->dim[2])}};
    op_set_out(g, n, 0, op_in_dtype(g, nd, 0), &s);
    return true;
}

struct numbers {
    i64 step, parts, size;
};

static i64 map(const void *par, const i64 *out, i64 *in)
{
    const struct numbers *p = par;
    in[0] = out[0], in[1] = out[1] * p->step + out[2] / p->parts, in[2] = out[2] % p->parts;
    return in[1] < p->size ? 0 : -1;
}

static bool frames_eval(const struct op_eval *v, struct err *e)
{
    i64 f[3];
    if (!op_eval_syms(v, "frames", f, 3, e)) return false;
    struct numbers p = {f[2], i64_max(1, v->in[0]->dim[2]), v->in[0]->dim[1]};
    return op_map_eval(v, map, &p);
}

static kval frames_lower(struct emit *m, const struct node *n, u32 out, const kval *idx)
{
    struct kir *k = m->k;
    const struct shape *x = op_in_shape(m->g, n, 0);
    sym f[3] = {0};
    i64 parts = 0;
    op_get_syms(m->g, n, "frames", f, 3);
    bool real = sym_is_const(m->g->sym, x->dim[2], &parts) && parts == 1;
    kval p = emit_size(m, sym_max(m->g->sym, x->dim[2], sym_const(m->g->sym, 1)));
    kval at = kir_add(k, kir_bin(k, KI_MUL, idx[1], emit_size(m, f[2])), real ? idx[2] : kir_bin(k, KI_DIV, idx[2], p));
    return emit_value(m, n->in.v[0], (kval[]){idx[0], at, real ? kir_int(k, 0) : kir_bin(k, KI_MOD, idx[2], p)});
}

static void random_frames(const struct op *self, struct graph *g, struct rng *r)
{
    i64 length = rng_range(r, 1, 5), step = rng_range(r, 1, 3), frame = rng_range(r, 1, 4),
        x[3] = {rng_range(r, 1, 2), (frame - 1) * step + length + rng_range(r, 0, 2), rng_range(r, 1, 2)};
    value_id in;
    random_input(g, "x", DT_F32, 3, x, &in);
    node_id n = random_node(g, self, 1, &in, 1);
    sym f[3] = {sym_const(g->sym, frame), sym_const(g->sym, length), sym_const(g->sym, step)};
    op_set_syms(g, n, "frames", f, 3);
}

/* MelWeightMatrix: constant inputs give a constant. */

struct mel {
    i64 bins, length, rate;
    double low, high;
};

static bool read_mel(struct graph *g, node_id n, struct mel *m, enum dtype *t, struct err *e)
{
    const struct node *nd = graph_node(g, n);
    i64 v[3], to = attr_int(nd, "output_datatype", 1);
    double f[2];
    for (u32 i = 0; i < 3; i++)
        if (op_const_ints(g, nd->in.v[i], &v[i], 1) != 1)
            return op_unsupported(e, g, n, "input %u is only known at run time; make it a constant of the model", i);
    for (u32 i = 0; i < 2; i++) {
        const struct tensor *x = graph_value(g, nd->in.v[3 + i])->data;
        if (!x || tensor_count(x) != 1 || !dtype_is_float(x->dtype))
            return op_unsupported(e, g, n, "input %u is only known at run time; make it a constant of the model", 3 + i);
        f[i] = elem_f64(x->dtype, x->data, 0);
    }
    *m = (struct mel){v[0], v[1], v[2], f[0], f[1]};
    *t = dtype_from_onnx((int)i64_max(0, i64_min(to, 255)));
    if (!dtype_is_float(*t) && !dtype_is_int(*t)) return op_unsupported(e, g, n, "attribute 'output_datatype' = %lld", (long long)to);
    if (m->bins < 1 || m->length < 1 || m->rate < 1 || m->bins > 1 << 16 || m->length > 1 << 20 ||
        (double)m->bins * (double)m->length > 1 << 28 || !(m->low >= 0) || !(m->high >= m->low) || !isfinite(m->high))
        return op_invalid(e, g, n, "%lld bands of a transform of %lld from %g to %g Hz", (long long)m->bins, (long long)m->length, m->low, m->high);
    return true;
}

static bool mel_infer(struct graph *g, node_id n, struct err *e)
{
    struct mel m;
    enum dtype t;
    if (!read_mel(g, n, &m, &t, e)) return false;
    struct shape s = {.rank = 2, .dim = {sym_const(g->sym, m.length / 2 + 1), sym_const(g->sym, m.bins)}};
    op_set_out(g, n, 0, t, &s);
    return true;
}

/* Frequency of edge i of bins + 2 as a position in the spectrum. */
static i64 mel_edge(const struct mel *m, i64 i)
{
    double low = 2595 * log10(1 + m->low / 700), high = 2595 * log10(1 + m->high / 700);
    double hertz = 700 * (pow(10, (low + (double)i * (high - low) / (double)(m->bins + 2)) / 2595) - 1);
    return (i64)fmin(floor((double)(m->length + 1) * hertz / (double)m->rate), (double)m->length);
}

static double mel_weight(i64 at, i64 left, i64 mid, i64 right)
{
    if (at == mid) return 1;
    if (at > left && at < mid) return (double)(at - left) / (double)(mid - left);
    return at > mid && at < right ? (double)(right - at) / (double)(right - mid) : 0;
}

static bool mel_expand(struct graph *g, node_id n, struct err *e)
{
    struct mel m;
    enum dtype t;
    if (!read_mel(g, n, &m, &t, e)) return false;
    struct tensor *w = tensor_try(g->arena, t, 2, (i64[]){m.length / 2 + 1, m.bins}, e, "its bands", S(""));
    if (!w) return false;
    for (i64 b = 0; b < m.bins; b++) {
        i64 left = mel_edge(&m, b), mid = mel_edge(&m, b + 1), right = mel_edge(&m, b + 2);
        for (i64 i = 0; i <= m.length / 2; i++) {
            double v = mel_weight(i, left, mid, right);
            if (dtype_is_float(t)) elem_set_f64(t, w->data, i * m.bins + b, v);
            else elem_set_i64(t, w->data, i * m.bins + b, (i64)v);
        }
    }
    op_node1(g, n, "Identity", graph_add_const(g, S("mel"), w), graph_node(g, n)->out.v[0]);
    return true;
}

static void random_mel(const struct op *self, struct graph *g, struct rng *r)
{
    i64 bins = rng_range(r, 1, 6), length = rng_range(r, 4, 40), rate = 8192;
    value_id in[5] = {op_const_i(g, DT_I64, &bins, 1), op_const_i(g, DT_I64, &length, 1), op_const_i(g, DT_I64, &rate, 1),
                      op_const_f(g, DT_F32, rng_range(r, 0, 1) ? 0 : 300), op_const_f(g, DT_F32, 4096)};
    random_node(g, self, 5, in, 1);
}

static const struct op ops[] = {
    {.name = "STFT",
     .min_in = 2,
     .max_in = 4,
     .min_out = 1,
     .max_out = 1,
     .infer = infer,
     .expand = expand,
     .random = random_stft},
    {.name = "quern::Frames",
     .attributes = "frames:strings",
     .props = OP_VIEW,
     .min_in = 1,
     .max_in = 1,
     .min_out = 1,
     .max_out = 1,
     .infer = frames_infer,
     .eval = frames_eval,
     .lower = frames_lower,
     .random = random_frames},
    {.name = "MelWeightMatrix",
     .min_in = 5,
     .max_in = 5,
     .min_out = 1,
     .max_out = 1,
     .infer = mel_infer,
     .expand = mel_expand,
     .random = random_mel},
};

const struct op_family op_stft = {ops, countof(ops)};
