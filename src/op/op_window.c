// SPDX-License-Identifier: Apache-2.0
//
// Shared by convolution, pooling and matrix products: windows sliding over spatial axes,
// and the row update of reference evaluations.
//
// infer makes the attributes explicit, so that every later reader sees kernel_shape, strides,
// dilations and pads. The one exception: auto_pad SAME_* with a stride over a symbolic size, whose
// pads are symbolic (max((ceil(H/s)-1)*s+k-H, 0)); and "ends" (op_window_crop), end pads that may
// be negative.
//
// Here also: small questions about a node's inputs.
//
// Kernels clamp the limits of their loops instead of testing every tap: with scalar positions no
// test is left inside.
#include "op/op.h"

enum {
    MAX_ATTR = 1 << 30
}; /* larger kernels, strides, dilations and pads are refused: products fit i64 */

enum auto_pad { PAD_NOTSET, PAD_UPPER, PAD_LOWER, PAD_VALID };

static bool auto_pad_parse(struct str s, enum auto_pad *out)
{
    static const char *const names[] = {"NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID"};
    for (u32 i = 0; i < 4; i++)
        if (str_is(s, names[i]) || (i == 0 && !s.n)) return *out = (enum auto_pad)i, true;
    return false;
}

/* Attribute `name` with `count` entries of at least `min`, or all `def` if omitted. */
static bool read_ints(const struct graph *g, node_id n, const char *name, i64 min, i64 def,
                      i64 *out, u32 count, struct err *e)
{
    const i64 *v;
    i64 k = attr_ints(graph_node(g, n), name, &v);
    if (k && k != count)
        return op_invalid(e, g, n, "attribute '%s' has %lld entries instead of %u", name,
                          (long long)k, count);
    for (u32 i = 0; i < count; i++) {
        out[i] = k ? v[i] : def;
        if (out[i] < min || out[i] > MAX_ATTR)
            return op_invalid(e, g, n, "attribute '%s' contains %lld", name, (long long)out[i]);
    }
    return true;
}

static i64 span(const struct op_window *w, u32 i)
{
    return (w->kernel[i] - 1) * w->dilation[i] + 1;
}

/* Pads of SAME_*: the output has ceil(size / stride) elements. */
static void same_pads(const struct graph *g, struct op_window *w, u32 i, sym size, bool upper)
{
    struct symtab *t = g->sym;
    sym s = sym_const(t, w->stride[i]), one = sym_const(t, 1);
    sym covered = sym_mul(t, sym_sub(t, sym_cdiv(t, size, s), one), s);
    sym total = sym_sub(t, sym_add(t, covered, sym_const(t, span(w, i))), size);
    total = sym_max(t, total, sym_const(t, 0));
    sym small = sym_div(t, total, sym_const(t, 2)), large = sym_sub(t, total, small);
    w->begin[i] = upper ? small : large;
    w->end[i] = upper ? large : small;
}

static bool read_pads(const struct graph *g, node_id n, struct op_window *w, struct err *e)
{
    const struct node *x = graph_node(g, n);
    enum auto_pad mode;
    struct str name = attr_str(x, "auto_pad", "NOTSET");
    if (!auto_pad_parse(name, &mode))
        return op_invalid(e, g, n, "auto_pad '%.*s' does not exist", STR_ARG(name));
    i64 pads[2 * MAX_RANK] = {0};
    const struct shape *s = &graph_value(g, x->in.v[0])->shape;
    if (mode == PAD_NOTSET && !read_ints(g, n, "pads", 0, 0, pads, 2 * w->n, e)) return false;
    for (u32 i = 0; i < w->n; i++) {
        w->begin[i] = sym_const(g->sym, pads[i]);
        w->end[i] = sym_const(g->sym, pads[w->n + i]);
        if (mode == PAD_UPPER || mode == PAD_LOWER)
            same_pads(g, w, i, s->dim[2 + i], mode == PAD_UPPER);
    }
    if (node_attr(x, "ends") && op_get_syms(g, x, "ends", w->end, w->n) != w->n)
        return op_invalid(e, g, n, "attribute 'ends'");
    i64 ceil_mode = attr_int(x, "ceil_mode", 0);
    if (ceil_mode != 0 && ceil_mode != 1)
        return op_invalid(e, g, n, "ceil_mode %lld", (long long)ceil_mode);
    w->ceil = ceil_mode && mode == PAD_NOTSET;
    return true;
}

static bool window_read(const struct graph *g, node_id n, const i64 *kernel, struct op_window *w,
                        struct err *e)
{
    const struct node *x = graph_node(g, n);
    *w = (struct op_window){.n = graph_value(g, x->in.v[0])->shape.rank - 2};
    const i64 *given;
    if (!kernel && !attr_ints(x, "kernel_shape", &given))
        return op_invalid(e, g, n, "attribute 'kernel_shape' is missing");
    if (!read_ints(g, n, "kernel_shape", 1, 1, w->kernel, w->n, e)) return false;
    for (u32 i = 0; kernel && i < w->n; i++) {
        if (node_attr(x, "kernel_shape") && w->kernel[i] != kernel[i])
            return op_invalid(e, g, n, "kernel_shape differs from the weight's shape");
        if (kernel[i] < 1 || kernel[i] > MAX_ATTR)
            return op_invalid(e, g, n, "kernel size %lld", (long long)kernel[i]);
        w->kernel[i] = kernel[i];
    }
    return read_ints(g, n, "strides", 1, 1, w->stride, w->n, e) &&
           read_ints(g, n, "dilations", 1, 1, w->dilation, w->n, e) && read_pads(g, n, w, e);
}

/* The attributes as they were understood. */
static void window_write(struct graph *g, node_id n, const struct op_window *w)
{
    i64 pads[2 * MAX_RANK];
    bool known = true;
    attr_set_ints(g, n, "kernel_shape", w->kernel, w->n);
    attr_set_ints(g, n, "strides", w->stride, w->n);
    attr_set_ints(g, n, "dilations", w->dilation, w->n);
    for (u32 i = 0; i < w->n; i++) {
        known = known && sym_is_const(g->sym, w->begin[i], &pads[i]);
        known = known && sym_is_const(g->sym, w->end[i], &pads[w->n + i]);
    }
    if (!w->ceil) attr_remove(g, n, "ceil_mode");
    if (!known || node_attr(graph_node(g, n), "ends")) return;
    attr_set_ints(g, n, "pads", pads, 2 * w->n);
    attr_remove(g, n, "auto_pad");
}

bool op_window_infer(struct graph *g, node_id n, const i64 *kernel, struct op_window *w,
                     struct err *e)
{
    u32 rank = graph_value(g, graph_node(g, n)->in.v[0])->shape.rank;
    if (rank < 3) return op_invalid(e, g, n, "input of rank %u has no spatial axes", rank);
    if (!window_read(g, n, kernel, w, e)) return false;
    window_write(g, n, w);
    return true;
}

void op_window_get(const struct graph *g, const struct node *n, struct op_window *w)
{
    struct err e = {0};
    bool ok = window_read(g, (node_id)(n - g->node.v), NULL, w, &e);
    assert(ok);
    (void)ok;
}

/* Floor: (size + begin + end - span) / stride + 1. Ceiling: likewise rounded up, but no window
   starts in the end pad, which would contain padding only: ceil((size + begin + min(end + stride -
   span, 0)) / stride). */
static sym window_count(const struct graph *g, const struct op_window *w, u32 i, sym size)
{
    struct symtab *t = g->sym;
    sym stride = sym_const(t, w->stride[i]);
    sym room = sym_sub(t, w->end[i], sym_const(t, span(w, i)));
    if (w->ceil) {
        sym over = sym_min(t, sym_add(t, room, stride), sym_const(t, 0));
        return sym_cdiv(t, sym_add(t, sym_add(t, size, w->begin[i]), over), stride);
    }
    sym last = sym_add(t, sym_add(t, size, w->begin[i]), room);
    return sym_add(t, sym_div(t, last, stride), sym_const(t, 1));
}

/* Whether there is a window along axis i, possibly by a new fact. */
static bool window_exists(struct graph *g, node_id n, const struct op_window *w, u32 i, sym size, struct err *e)
{
    struct symtab *t = g->sym;
    sym one = sym_const(t, 1), need = sym_const(t, span(w, i)), have = sym_add(t, sym_add(t, size, w->begin[i]), w->end[i]);
    bool same = !sym_is_const(t, w->end[i], NULL) || !sym_is_const(t, w->begin[i], NULL);
    if (same) have = size, need = one;
    else if (w->ceil) have = window_count(g, w, i, size), need = one;
    return op_require_at_least(g, n, have, need, e, "kernel larger than the padded input: its axis %u", 2 + i);
}

void op_window_sizes(const struct graph *g, const struct op_window *w, const struct shape *x, struct shape *out)
{
    for (u32 i = 0; i < w->n; i++) out->dim[2 + i] = window_count(g, w, i, x->dim[2 + i]);
}

bool op_window_out(struct graph *g, node_id n, const struct op_window *w, const struct shape *x, struct shape *out, struct err *e)
{
    bool cropped = node_attr(graph_node(g, n), "ends"); /* perhaps to nothing */
    op_window_sizes(g, w, x, out);
    for (u32 i = 0; i < w->n; i++) {
        i64 c;
        if (cropped && sym_is_const(g->sym, out->dim[2 + i], &c) && c < 1) return op_invalid(e, g, n, "nothing is left of axis %u", 2 + i);
        if (!cropped && !window_exists(g, n, w, i, x->dim[2 + i], e)) return false;
        out->dim[2 + i] = sym_current(g->sym, out->dim[2 + i]);
    }
    return true;
}

void op_window_crop(struct graph *g, node_id n, const sym *size)
{
    struct symtab *t = g->sym;
    struct op_window w;
    sym end[MAX_RANK], one = sym_const(t, 1);
    op_window_get(g, graph_node(g, n), &w);
    const struct shape *in = &graph_value(g, graph_node(g, n)->in.v[0])->shape;
    for (u32 i = 0; i < w.n; i++) {
        sym last = sym_mul(t, sym_sub(t, size[i], one), sym_const(t, w.stride[i]));
        sym before = sym_add(t, in->dim[2 + i], w.begin[i]);
        end[i] = sym_sub(t, sym_add(t, last, sym_const(t, span(&w, i))), before);
    }
    op_set_syms(g, n, "ends", end, w.n);
}

bool op_window_begin(const struct op_eval *v, const struct op_window *w, i64 *begin)
{
    for (u32 i = 0; i < w->n; i++)
        if (!sym_is_const(v->g->sym, w->begin[i], &begin[i]) &&
            !sym_eval(v->g->sym, w->begin[i], v->var, &begin[i]))
            return false;
    return true;
}

i64 op_window_taps(const struct op_window *w)
{
    i64 n = 1;
    for (u32 i = 0; i < w->n; i++) n = i64_min(n * w->kernel[i], MAX_ATTR);
    return n;
}

static i64 row_offset(const struct op_window *w, const i64 *begin, const i64 *from, const i64 *to,
                      i64 tap, i64 row)
{
    i64 at = 0, scale = to[w->n - 1];
    for (u32 i = w->n - 1; i-- > 0;) {
        i64 k = tap % w->kernel[i], o = row % from[i];
        i64 p = o * w->stride[i] + k * w->dilation[i] - begin[i];
        if (p < 0 || p >= to[i]) return -1;
        at += p * scale;
        scale *= to[i];
        tap /= w->kernel[i];
        row /= from[i];
    }
    return at;
}

const i64 *op_window_rows(const struct op_eval *v, const struct op_window *w, const i64 *begin,
                          const i64 *from, const i64 *to, struct err *e)
{
    i64 rows = i64_product(w->n - 1, from), taps = i64_product(w->n - 1, w->kernel);
    i64 *at = op_eval_array(v, rows * taps, sizeof *at, e);
    for (i64 t = 0; at && t < taps; t++)
        for (i64 r = 0; r < rows; r++) at[t * rows + r] = row_offset(w, begin, from, to, t, r);
    return at;
}

/* Taps in kernels. */

static bool is_zero(const struct emit *m, sym s)
{
    i64 c;
    return sym_is_const(m->g->sym, s, &c) && c == 0;
}

/* max(a, 0) / d */
static kval div_clamped(struct kir *k, kval a, i64 d)
{
    return kir_bin(k, KI_DIV, kir_bin(k, KI_MAX, a, kir_int(k, 0)), kir_int(k, d));
}

/* Position of tap 0. */
static kval window_start(struct emit *m, const struct op_window *w, u32 i, kval o)
{
    kval at = kir_bin(m->k, KI_MUL, o, kir_int(m->k, w->stride[i]));
    return kir_bin(m->k, KI_SUB, at, emit_size(m, w->begin[i]));
}

void op_taps_range(struct emit *m, const struct op_window *w, const struct shape *x, u32 i, kval o,
                   bool padded, kval lohi[2])
{
    struct kir *k = m->k;
    i64 d = w->dilation[i];
    kval start = window_start(m, w, i, o), round = kir_int(k, d - 1);
    sym size = padded ? sym_add(m->g->sym, x->dim[2 + i], w->end[i]) : x->dim[2 + i];
    lohi[0] = kir_int(k, 0);
    lohi[1] = kir_int(k, w->kernel[i]);
    if (!padded && !is_zero(m, w->begin[i]))
        lohi[0] = div_clamped(k, kir_bin(k, KI_SUB, round, start), d);
    if (!w->ceil && (padded || is_zero(m, w->end[i]))) return;
    kval room = kir_bin(k, KI_SUB, kir_bin(k, KI_ADD, emit_size(m, size), round), start);
    lohi[1] = kir_bin(k, KI_MIN, lohi[1], div_clamped(k, room, d));
}

/* A tap at positions that may be outside. */
static void tap_check(struct emit *m, const struct op_window *w, sym size, u32 i, struct op_taps *t)
{
    struct kir *k = m->k;
    if (!is_zero(m, w->begin[i])) t->ok = kir_and(k, t->ok, kir_bin(k, KI_LE, kir_int(k, 0), t->at[i]));
    if (w->ceil || !is_zero(m, w->end[i]))
        t->ok = kir_and(k, t->ok, kir_bin(k, KI_LT, t->at[i], emit_size(m, size)));
    if (t->ok) t->at[i] = emit_clamp(m, t->at[i], size);
}

void op_taps_open(struct emit *m, const struct op_window *w, const struct shape *x, const kval *o,
                  struct op_taps *t)
{
    struct kir *k = m->k;
    *t = (struct op_taps){0};
    for (u32 i = 0; i < w->n; i++) {
        bool vector = w->every || kir_lanes(k, o[i]) > 1;
        kval lohi[2] = {kir_int(k, 0), kir_int(k, w->kernel[i])};
        i64 least;
        if (!vector) op_taps_range(m, w, x, i, o[i], false, lohi);
        /* an index cannot be clamped to nothing */
        else if (!w->every && !(sym_lower_bound(m->g->sym, x->dim[2 + i], &least) && least > 0))
            lohi[1] = kir_select(k, kir_bin(k, KI_LT, lohi[0], emit_size(m, x->dim[2 + i])), lohi[1], lohi[0]);
        t->k[i] = kir_loop(k, KL_SERIAL, lohi[0], lohi[1], 1);
        kval step = kir_bin(k, KI_MUL, t->k[i], kir_int(k, w->dilation[i]));
        t->at[i] = kir_bin(k, KI_ADD, window_start(m, w, i, o[i]), step);
        if (vector) tap_check(m, w, x->dim[2 + i], i, t);
    }
}

void op_taps_close(struct emit *m, const struct op_window *w)
{
    for (u32 i = 0; i < w->n; i++) kir_end(m->k);
}

/* Inputs. */

const struct shape *op_in_shape(const struct graph *g, const struct node *n, u32 k)
{
    return &graph_value(g, n->in.v[k])->shape;
}

enum dtype op_in_dtype(const struct graph *g, const struct node *n, u32 k)
{
    return graph_value(g, n->in.v[k])->dtype;
}

bool op_has_in(const struct node *n, u32 k) { return k < n->in.n && n->in.v[k]; }

static bool is_compact(const struct graph *g, const struct node *x, u32 k)
{
    const struct value *w = graph_value(g, x->in.v[k]);
    return w->is_const && (w->dtype == DT_F16 || w->dtype == DT_BF16) && op_in_dtype(g, x, 0) == DT_F32;
}

/* weight: input that may be compact, 0: none. */
static bool types_fit(const struct graph *g, node_id n, u32 first, u32 weight, struct err *e)
{
    const struct node *x = graph_node(g, n);
    for (u32 i = first; i < x->in.n; i++)
        if (x->in.v[i] && op_in_dtype(g, x, i) != op_in_dtype(g, x, first) && !(i == weight && i && is_compact(g, x, i)))
            return op_invalid(e, g, n, "input %u is %s and input %u %s", first,
                              dtype_name(op_in_dtype(g, x, first)), i,
                              dtype_name(op_in_dtype(g, x, i)));
    return true;
}

bool op_same_types(const struct graph *g, node_id n, u32 first, struct err *e) { return types_fit(g, n, first, 0, e); }

bool op_types_fit_weights(const struct graph *g, node_id n, struct err *e) { return types_fit(g, n, 0, 1, e); }

/* Rows of reference evaluations. */

void op_row_add(const struct op_row *r, double w)
{
    double *restrict acc = r->acc;
    const struct tensor *t = r->x;
    if (t->dtype != DT_F32) {
        for (i64 i = 0; i < r->n; i++)
            acc[i * r->as] += w * elem_f64(t->dtype, t->data, r->at + i * r->xs);
        return;
    }
    const float *restrict x = (const float *)t->data + r->at;
    if (r->as == 1 && r->xs == 1)
        for (i64 i = 0; i < r->n; i++) acc[i] += w * (double)x[i];
    else
        for (i64 i = 0; i < r->n; i++) acc[i * r->as] += w * (double)x[i * r->xs];
}
