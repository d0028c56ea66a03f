// SPDX-License-Identifier: Apache-2.0
//
// Values of a network as tensors of TFLite. TFLite's spatial operators have channels last, ONNX's
// have them second; a value therefore has up to three layouts, and up to three forms (real,
// quantised, restored from that). Each is made when a reader asks for it first: by the node that
// computes the value, or by TRANSPOSE, QUANTIZE or DEQUANTIZE.
#include "export/export_tflite.h"

#include <string.h>

value_id tfl_of(const struct tfl *t, value_id v) { return t->v[v].of; }
node_id tfl_node(const struct tfl *t, const struct node *n) { return (node_id)(n - t->g.node.v); }

bool tfl_refuse(struct tfl *t, const struct node *n, const char *fmt, ...)
{
    struct buf b = {0};
    va_list ap;
    va_start(ap, fmt);
    buf_vprintf(&b, fmt, ap);
    va_end(ap);
    op_unsupported(t->e, &t->g, tfl_node(t, n), "%.*s (export to tflite)", STR_ARG(buf_view(&b)));
    buf_release(&b);
    return false;
}

/* Layouts. */

u32 tfl_axis(u32 axis, u32 rank, enum tfl_layout l)
{
    if (l == TFL_ROWS || axis == 0) return axis;
    return axis == 1 ? rank - 1 : axis - 1;
}

static void own_dims(const struct tfl *t, value_id v, i64 dim[MAX_RANK])
{
    const struct shape *s = &graph_value(&t->g, v)->shape;
    bool is_static =
        shape_is_static(t->g.sym, s, dim); /* checked for all values at the beginning */
    assert(is_static);
    (void)is_static;
}

void tfl_dims(const struct tfl *t, value_id v, enum tfl_layout l, i64 dim[MAX_RANK])
{
    i64 own[MAX_RANK];
    u32 rank = graph_value(&t->g, v)->shape.rank;
    own_dims(t, v, own);
    if (l == TFL_FLAT) l = TFL_ROWS; /* the sizes are the same */
    for (u32 k = 0; k < rank; k++) dim[tfl_axis(k, rank, l)] = own[k];
}

static void perm_between(u32 rank, enum tfl_layout from, enum tfl_layout to, i64 *perm)
{
    for (u32 k = 0; k < rank; k++) perm[tfl_axis(k, rank, to)] = tfl_axis(k, rank, from);
}

enum tfl_layout tfl_layout_of(const struct tfl *t, value_id v) { return t->v[tfl_of(t, v)].layout; }

static u32 rank_of(const struct tfl *t, value_id v) { return graph_value(&t->g, v)->shape.rank; }

/* Nodes whose function chooses by itself: they read what there is, and write what readers need. */
static bool is_free(const struct node *n) { return str_is(n->op, "Transpose"); }

static bool likes_clast(const struct tfl *t, const struct node *n, const struct tfl_row *r, u32 k)
{
    u32 rank = rank_of(t, n->in.v[k]);
    if (rank < 3 || !r) return false;
    if (r->place == TFL_SPATIAL) return k == 0;
    return r->place == TFL_ANYWHERE && !is_free(n) && n->out.v[0] &&
           rank_of(t, n->out.v[0]) == rank && t->v[tfl_of(t, n->out.v[0])].likes_clast;
}

static enum tfl_layout layout_for(const struct tfl *t, const struct node *n,
                                  const struct tfl_row *r)
{
    value_id out = node_first_out(n);
    bool is_clast = false, is_rows = false;
    if (rank_of(t, out) < 3 || r->place == TFL_ROW_MAJOR) return TFL_ROWS;
    if (r->place == TFL_SPATIAL) return TFL_CLAST;
    if (is_free(n)) return t->v[tfl_of(t, out)].likes_clast ? TFL_CLAST : TFL_ROWS;
    for (u32 k = 0; k < n->in.n; k++) {
        value_id v = n->in.v[k] ? tfl_of(t, n->in.v[k]) : 0;
        if (!v || graph_value(&t->g, v)->is_const || rank_of(t, v) < 3) continue;
        if (rank_of(t, v) != rank_of(t, out)) return TFL_ROWS;
        is_clast |= t->v[v].layout == TFL_CLAST, is_rows |= t->v[v].layout == TFL_ROWS;
    }
    return is_clast && (!is_rows || t->v[tfl_of(t, out)].likes_clast) ? TFL_CLAST
           : is_rows && t->v[tfl_of(t, out)].likes_clast              ? TFL_CLAST
                                                                      : TFL_ROWS;
}

void tfl_layouts_choose(struct tfl *t)
{
    const struct graph *g = &t->g;
    for (node_id n = g->node.n; n-- > 1;) {
        const struct node *x = graph_node(g, n);
        const struct tfl_row *r = t->row(x->op);
        for (u32 k = 0; k < x->in.n; k++)
            if (x->in.v[k] && likes_clast(t, x, r, k))
                t->v[tfl_of(t, x->in.v[k])].likes_clast = true;
    }
    for (u32 k = 0; k < g->input.n && !t->keeps_layout; k++)
        if (rank_of(t, g->input.v[k]) >= 3) t->v[tfl_of(t, g->input.v[k])].layout = TFL_CLAST;
    for (node_id n = 1; n < g->node.n; n++) {
        const struct node *x = graph_node(g, n);
        const struct tfl_row *r = t->row(x->op);
        if (!r->write) continue; /* its value is another one's, or gets that one's layout */
        enum tfl_layout l = layout_for(t, x, r);
        for (u32 k = 0; k < x->out.n; k++)
            if (x->out.v[k]) t->v[tfl_of(t, x->out.v[k])].layout = l;
    }
}

static enum tfl_type type_of(enum dtype d)
{
    switch ((int)d) {
    case DT_F32: return TFL_F32;
    case DT_I32: return TFL_I32;
    case DT_I64: return TFL_I64;
    case DT_BOOL: return TFL_BOOL;
    case DT_U8: return TFL_U8;
    case DT_I8: return TFL_I8;
    case DT_I16: return TFL_I16;
    default: return TFL_F16; /* refused by tfl_prepare */
    }
}

/* Constants. */

const struct tensor *tfl_content(const struct tfl *t, value_id v)
{
    return graph_value(&t->g, tfl_of(t, v))->data;
}

double tfl_real(const struct tfl *t, value_id v, i64 i)
{
    v = tfl_of(t, v);
    const struct value *x = graph_value(&t->g, v);
    const struct tfl_quant *q = &t->v[v].q;
    double stored = elem_f64(x->dtype, x->data->data, i);
    if (!q->n) return stored;
    i64 dim[MAX_RANK], inner = 1, at = 0;
    own_dims(t, v, dim);
    for (u32 k = q->axis + 1; q->n > 1 && k < x->shape.rank; k++) inner *= dim[k];
    if (q->n > 1) at = i / inner % q->n;
    if (x->dtype == DT_U8) stored -= 128;
    return (double)(float)((stored - (double)q->zero[at]) * (double)q->scale[at]);
}

/* u8 with zero point z as i8 with z - 128. */
static void *signed_bytes(struct arena *a, const void *data, i64 n, struct err *e)
{
    u8 *out = arena_try(a, n, e, "constant");
    for (i64 i = 0; i < n && out; i++) out[i] = (u8)(((const u8 *)data)[i] ^ 0x80);
    return out;
}

tfl_id tfl_weights(struct tfl *t, value_id v, const struct tfl_order *o)
{
    value_id of = tfl_of(t, v);
    const struct value *x = graph_value(&t->g, of);
    const struct tfl_quant *q = &t->v[of].q;
    enum tfl_type type = q->n ? TFL_I8 : type_of(x->dtype);
    const void *data = x->data->data;
    if (x->dtype == DT_U8 && q->n) data = signed_bytes(t->a, data, tensor_count(x->data), t->e);
    if (data) data = tfl_permute(t->a, data, tfl_type_size(type), o->rank, o->dim, o->perm, t->e);
    if (!data) return 0;
    tfl_id y = tfl_constant(t, "weights", type, o->n_to, o->to, data);
    tfl_at(t, y)->name = str_fmt(t->a, "%.*s_%u", STR_ARG(x->name), y);
    tfl_at(t, y)->q = *q;
    tfl_at(t, y)->q.axis = o->axis;
    return q->n && !t->is_q ? tfl_dequantize(t, y) : y;
}

bool tfl_is_symmetric(const struct tfl *t, value_id v, u32 axis)
{
    value_id of = tfl_of(t, v);
    const struct tfl_quant *q = &t->v[of].q;
    enum dtype d = graph_value(&t->g, of)->dtype;
    if (!graph_value(&t->g, of)->data || !q->n || (d != DT_I8 && d != DT_U8)) return false;
    for (u32 k = 0; k < q->n; k++)
        if (q->zero[k]) return false;
    return q->n == 1 || q->axis == axis;
}

tfl_id tfl_bias(struct tfl *t, value_id v, i64 n, tfl_id x, tfl_id w)
{
    const struct tfl_quant sx = tfl_at(t, x)->q, sw = tfl_at(t, w)->q;
    float *scale = arena_array(t->a, float, n), *real = arena_array(t->a, float, n);
    i64 *zero = arena_array(t->a, i64, n), one = v ? tensor_count(tfl_content(t, v)) : 0;
    i32 *p = arena_array(t->a, i32, n);
    for (i64 c = 0; c < n; c++) {
        double b = v ? tfl_real(t, v, one == 1 ? 0 : c) : 0;
        real[c] = (float)b;
        if (!t->is_q) continue;
        scale[c] = sx.scale[0] * sw.scale[sw.n > 1 ? c : 0];
        b = __builtin_rint(b / (double)scale[c]);
        if (!(b > -2147483648.0 && b < 2147483647.0)) {
            err_set(t->e, ERR_UNSUPPORTED,
                    "export to tflite: element %lld of bias '%.*s' does not fit i32 with the "
                    "scales of activation and weights",
                    (long long)c, STR_ARG(graph_value(&t->g, v)->name));
            return 0;
        }
        p[c] = (i32)b;
    }
    tfl_id y = tfl_constant(t, "bias", t->is_q ? TFL_I32 : TFL_F32, 1, &n,
                            t->is_q ? (const void *)p : real);
    if (t->is_q)
        tfl_at(t, y)->q =
            (struct tfl_quant){.n = sw.n > 1 ? (u32)n : 1, .scale = scale, .zero = zero};
    return y;
}

static tfl_id make_constant(struct tfl *t, value_id v, enum tfl_form f, enum tfl_layout l)
{
    const struct value *x = graph_value(&t->g, v);
    i64 dim[MAX_RANK], perm[MAX_RANK], n = tensor_count(x->data);
    struct tfl_tensor c = {
        .name = x->name, .type = type_of(x->dtype), .rank = x->shape.rank, .data = x->data->data};
    if (f == TFL_STORED && x->dtype == DT_U8)
        c.type = TFL_I8, c.data = signed_bytes(t->a, c.data, n, t->e);
    if (f == TFL_STORED) c.q = t->v[v].q;
    if (c.q.n > 1) c.q.axis = tfl_axis(c.q.axis, c.rank, l);
    own_dims(t, v, dim);
    if (l == TFL_CLAST && c.data) {
        perm_between(c.rank, TFL_ROWS, l, perm);
        c.data = tfl_permute(t->a, c.data, tfl_type_size(c.type), c.rank, dim, perm, t->e);
        c.name = str_fmt(t->a, "%.*s_%u", STR_ARG(x->name), t->m.tensor.n);
    }
    if (!c.data) return 0;
    tfl_dims(t, v, l, c.dim);
    c.size = n * tfl_type_size(c.type);
    return tfl_new(t, &c);
}

/* Forms and layouts on demand. */

/* The layout of a form that is there; N_TFL_LAYOUTS: none. */
static enum tfl_layout any_layout(const struct tfl_value *x, enum tfl_form f)
{
    enum tfl_layout l = TFL_ROWS;
    while (l < N_TFL_LAYOUTS && !x->id[f][l]) l++;
    return l;
}

/* Of i32, which DEQUANTIZE does not read: biases. */
static tfl_id restore_bias(struct tfl *t, value_id v)
{
    const struct value *x = graph_value(&t->g, v);
    i64 n = tensor_count(x->data), dim[MAX_RANK];
    float *p = arena_try(t->a, n * 4, t->e, "constant");
    if (!p) return 0;
    for (i64 i = 0; i < n; i++) p[i] = (float)tfl_real(t, v, i);
    own_dims(t, v, dim);
    return tfl_constant(t, "bias", TFL_F32, x->shape.rank, dim, p);
}

static tfl_id restore(struct tfl *t, value_id v, enum tfl_layout l)
{
    if (graph_value(&t->g, v)->is_const && graph_value(&t->g, v)->dtype == DT_I32 && l == TFL_ROWS)
        return restore_bias(t, v);
    tfl_id in = tfl_get(t, v, TFL_STORED, l);
    if (!in) return 0;
    return tfl_dequantize(t, in);
}

static tfl_id change_layout(struct tfl *t, value_id v, enum tfl_form f, enum tfl_layout from,
                            enum tfl_layout to)
{
    const struct tfl_value *x = &t->v[v];
    tfl_id in = x->id[f][from];
    const struct tfl_tensor c = *tfl_at(t, in);
    i64 perm[MAX_RANK];
    if (from != TFL_FLAT && to != TFL_FLAT) {
        perm_between(c.rank, from, to, perm);
        return tfl_transpose(t, in, perm, 0);
    }
    if (to == TFL_FLAT) return 0;                     /* made by tfl_reshaped alone */
    i64 whole[] = {c.dim[0], x->flat[1], x->flat[0]}; /* (n, elements, channels) */
    tfl_id wide = tfl_transpose(t, tfl_reshape(t, in, 3, whole, 0), (i64[]){0, 2, 1}, 0);
    return tfl_reshape(t, wide, c.rank, c.dim, 0);
}

/* A value that is another one, quantised with other scales, or read from f32: converted in the
   layout that there is, since bytes are transposed with less traffic. */
static tfl_id quantize_from(struct tfl *t, value_id v, enum tfl_layout l)
{
    struct tfl_value *x = &t->v[v];
    value_id from = x->from ? tfl_of(t, x->from) : v;
    enum tfl_form f = from != v && t->v[from].q.n ? TFL_STORED : TFL_REAL;
    enum tfl_layout there = any_layout(&t->v[from], f);
    if (there == N_TFL_LAYOUTS) there = l;
    tfl_id in = tfl_get(t, from, f, there);
    if (!in) return 0;
    for (u32 k = 0; k < 2; k++) x->flat[k] = t->v[from].flat[k];
    x->id[TFL_STORED][there] = tfl_requantize(t, in, &x->q, 0);
    return there == l ? x->id[TFL_STORED][l] : change_layout(t, v, TFL_STORED, there, l);
}

tfl_id tfl_get(struct tfl *t, value_id v, enum tfl_form f, enum tfl_layout l)
{
    v = tfl_of(t, v);
    struct tfl_value *x = &t->v[v];
    if (rank_of(t, v) < 3 && l == TFL_CLAST) l = TFL_ROWS;
    if (x->id[f][l]) return x->id[f][l];
    bool is_const = graph_value(&t->g, v)->is_const;
    enum tfl_layout there = any_layout(x, f);
    tfl_id id;
    if (is_const && f != TFL_RESTORED) id = make_constant(t, v, f, l);
    else if (there < N_TFL_LAYOUTS) id = change_layout(t, v, f, there, l);
    else if (f == TFL_STORED) id = quantize_from(t, v, l);
    else if (f == TFL_RESTORED) id = restore(t, v, l);
    else id = 0;
    if (!id)
        err_set(t->e, ERR_FAILED, "export to tflite: value '%.*s' is not there",
                STR_ARG(graph_value(&t->g, v)->name));
    return t->v[v].id[f][l] = id;
}

enum tfl_form tfl_form_of(const struct tfl *t, value_id v)
{
    const struct tfl_value *x = &t->v[tfl_of(t, v)];
    if (!x->q.n) return TFL_REAL;
    bool is_bias = graph_value(&t->g, tfl_of(t, v))->dtype == DT_I32; /* no operand of others */
    bool is_stored = (t->is_q && !is_bias) || graph_value(&t->g, v)->dtype != DT_F32;
    return is_stored ? TFL_STORED : TFL_RESTORED;
}

tfl_id tfl_in(struct tfl *t, const struct node *n, u32 k, enum tfl_layout l)
{
    value_id v = n->in.v[k];
    return tfl_get(t, v, tfl_form_of(t, v), l);
}

tfl_id tfl_in_wide(struct tfl *t, const struct node *n, u32 k, enum tfl_layout l, u32 rank)
{
    value_id v = n->in.v[k];
    u32 own = rank_of(t, v);
    i64 dim[MAX_RANK] = {0}, perm[MAX_RANK];
    if (own == rank || own == 0) return tfl_in(t, n, k, l);
    tfl_id x = tfl_in(t, n, k, TFL_ROWS);
    if (!x) return 0;
    if (l == TFL_ROWS && tfl_at(t, x)->q.n <= 1)
        return x; /* broadcast by TFLite's own rule, which is the same */
    const struct tfl_tensor from = *tfl_at(t, x);
    for (u32 i = 0; i < rank; i++) dim[i] = i < rank - own ? 1 : from.dim[i - (rank - own)];
    perm_between(rank, TFL_ROWS, l, perm);
    if (!from.data) return tfl_transpose(t, tfl_reshape(t, x, rank, dim, 0), perm, 0);
    i64 to[MAX_RANK];
    for (u32 i = 0; i < rank; i++) to[i] = dim[perm[i]];
    const void *data =
        tfl_permute(t->a, from.data, tfl_type_size(from.type), rank, dim, perm, t->e);
    if (!data) return 0;
    tfl_id y = tfl_constant(t, "operand", from.type, rank, to, data);
    tfl_at(t, y)->q = from.q;
    return y;
}

static tfl_id make_out(struct tfl *t, value_id v, enum tfl_layout l, const struct tfl_quant *q)
{
    const struct value *x = graph_value(&t->g, v);
    struct tfl_tensor y = {
        .name = x->name, .type = q ? TFL_I8 : type_of(x->dtype), .rank = x->shape.rank};
    tfl_dims(t, v, l, y.dim);
    if (q) y.q = *q;
    return tfl_new(t, &y);
}

tfl_id tfl_out_q(struct tfl *t, const struct node *n, u32 k, enum tfl_layout l,
                 const struct tfl_quant *q)
{
    value_id v = n->out.v[k], of = tfl_of(t, v);
    const struct tfl_quant *own = &t->v[of].q;
    if (rank_of(t, v) < 3 && l == TFL_CLAST) l = TFL_ROWS;
    tfl_id x = make_out(t, v, l, t->is_q ? q ? q : own : NULL);
    if (!t->is_q || !q || tfl_quant_same(q, own))
        t->v[of].id[t->is_q ? TFL_STORED : TFL_REAL][l] = x;
    return x;
}

tfl_id tfl_out(struct tfl *t, const struct node *n, u32 k, enum tfl_layout l)
{
    return tfl_out_q(t, n, k, l, NULL);
}

bool tfl_settle(struct tfl *t, const struct node *n, u32 k, enum tfl_layout l, tfl_id x)
{
    value_id of = tfl_of(t, n->out.v[k]);
    enum tfl_form f = t->is_q ? TFL_STORED : TFL_REAL;
    if (rank_of(t, of) < 3 && l == TFL_CLAST) l = TFL_ROWS;
    if (!t->v[of].id[f][l]) t->v[of].id[f][l] = t->is_q ? tfl_requantize(t, x, &t->v[of].q, 0) : x;
    return true;
}
