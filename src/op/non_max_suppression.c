// SPDX-License-Identifier: Apache-2.0
//
// NonMaxSuppression: of boxes that overlap, those with the best scores. Expands to quern::NonMaxOrder, which returns for every batch
// and class the selected boxes in order, followed by -1, and to NonZero, which extracts them; the number of rows is a size computed
// at run time.
//
// The kernel has one batch and class per grid iteration. Each round selects the best remaining box and removes those that overlap with
// it too much, so its time is the number of selected boxes times the number of boxes.
//
// Letters: b batches, c classes, n boxes, k chosen boxes at most.
#include "op/op.h"

#include <string.h>

enum input { BOXES, SCORES, MOST, IOU, SCORE, N_INPUTS };

static bool has(const struct node *n, u32 k) { return n->in.n > k && n->in.v[k]; }

/* (b, n, 4), (b, c, n) -> (b, c, k) */
static bool order_shape(struct graph *g, node_id n, struct shape *to, struct err *e)
{
    const struct node *x = graph_node(g, n);
    const struct value *boxes = graph_value(g, x->in.v[BOXES]), *scores = graph_value(g, x->in.v[SCORES]);
    i64 four, most;
    if (boxes->shape.rank != 3 || scores->shape.rank != 3 || !sym_is_const(g->sym, boxes->shape.dim[2], &four) || four != 4)
        return op_invalid(e, g, n, "boxes must be [batches, boxes, 4] and scores [batches, classes, boxes]");
    if (boxes->dtype != DT_F32 || scores->dtype != DT_F32) return op_unsupported(e, g, n, "boxes or scores that are not f32");
    for (u32 k = IOU; k <= SCORE; k++)
        if (has(x, k) && graph_value(g, x->in.v[k])->dtype != DT_F32) return op_invalid(e, g, n, "a threshold that is not f32");
    *to = scores->shape;
    if (!has(x, MOST)) to->dim[2] = sym_const(g->sym, 0);
    else if (op_const_ints(g, x->in.v[MOST], &most, 1) == 1)
        to->dim[2] = sym_min(g->sym, to->dim[2], sym_const(g->sym, i64_max(0, i64_min(most, 1 << 30))));
    return true;
}

/* New nodes: the order, and which of its elements are boxes. */
static bool build_order(struct graph *g, node_id n, value_id *order, value_id *is_box, struct err *e)
{
    value_id in[N_INPUTS] = {0}, none;
    u32 n_in = graph_node(g, n)->in.n;
    i64 center = attr_int(graph_node(g, n), "center_point_box", 0), zero = 0;
    for (u32 k = 0; k < n_in; k++) in[k] = graph_node(g, n)->in.v[k];
    *order = op_node(g, n, "quern::NonMaxOrder", n_in, in, 0);
    attr_set_int(g, op_made(g, *order), "center_point_box", center);
    if (!op_infer(g, op_made(g, *order), e)) return false;
    none = op_const_i(g, DT_I64, &zero, 1);
    *is_box = op_node2(g, n, "GreaterOrEqual", *order, none, 0);
    return op_infer(g, op_made(g, *is_box), e);
}

static bool infer(struct graph *g, node_id n, struct err *e)
{
    struct shape to = {.known = true, .rank = 2}, order;
    value_id v, is_box;
    sym size;
    if (!order_shape(g, n, &order, e)) return false;
    if (op_get_syms(g, graph_node(g, n), "made_size", &size, 1) != 1) {
        if (!build_order(g, n, &v, &is_box, e) || !op_count_nonzero(g, n, is_box, &size, e)) return false;
        op_set_syms(g, n, "made_size", &size, 1);
    }
    to.dim[0] = size;
    to.dim[1] = sym_const(g->sym, 3);
    op_set_out(g, n, 0, DT_I64, &to);
    return true;
}

static bool expand(struct graph *g, node_id n, struct err *e)
{
    value_id order, is_box, at, place, box, out = graph_node(g, n)->out.v[0];
    struct shape s = {.known = true, .rank = 2};
    sym size;
    if (op_get_syms(g, graph_node(g, n), "made_size", &size, 1) != 1 || !build_order(g, n, &order, &is_box, e)) return false;
    s.dim[0] = sym_const(g->sym, 3), s.dim[1] = size;
    at = op_node1(g, n, "NonZero", is_box, 0);
    op_set_syms(g, op_made(g, at), "made_size", &size, 1);
    place = op_node_swap(g, n, at, 2, 0, 1, 0);
    box = op_node2(g, n, "GatherND", order, place, 0);
    sym rows[2] = {size, sym_const(g->sym, 1)};
    box = op_node_reshape(g, n, box, 2, rows, 0);
    at = op_node_slice(g, n, at, &s, 0, sym_const(g->sym, 0), sym_const(g->sym, 2), 0);
    at = op_node_swap(g, n, at, 2, 0, 1, 0);
    op_node_concat(g, n, 2, (value_id[]){at, box}, 1, out);
    return true;
}

/* quern::NonMaxOrder. */

static bool order_infer(struct graph *g, node_id n, struct err *e)
{
    struct shape to;
    if (!order_shape(g, n, &to, e)) return false;
    op_set_out(g, n, 0, DT_I64, &to);
    return true;
}

struct box { float lo[2], hi[2]; };

static struct box read_box(const float *p, bool center)
{
    struct box b;
    for (u32 a = 0; a < 2; a++) {
        float x = center ? p[a] - p[a + 2] / 2 : p[a], y = center ? p[a] + p[a + 2] / 2 : p[a + 2];
        b.lo[a] = x < y ? x : y;
        b.hi[a] = x < y ? y : x;
    }
    return b;
}

static bool overlaps(const float *p, const float *q, bool center, float most)
{
    struct box x = read_box(p, center), y = read_box(q, center);
    float both = 1, one = 1, two = 1;
    for (u32 a = 0; a < 2; a++) {
        float lo = x.lo[a] > y.lo[a] ? x.lo[a] : y.lo[a], hi = x.hi[a] < y.hi[a] ? x.hi[a] : y.hi[a];
        both *= hi - lo > 0 ? hi - lo : 0;
        one *= x.hi[a] - x.lo[a];
        two *= y.hi[a] - y.lo[a];
    }
    float all = one + two - both;
    return one > 0 && two > 0 && all > 0 && both > most * all;
}

static double scalar(const struct op_eval *v, u32 k, double def)
{
    if (!has(v->n, k)) return def;
    const struct tensor *t = v->in[k];
    return dtype_is_float(t->dtype) ? elem_f64(t->dtype, t->data, 0) : (double)elem_i64(t->dtype, t->data, 0);
}

/* One batch and class. */
static void choose(const struct op_eval *v, const float *boxes, const float *scores, i64 *out, bool *left)
{
    bool center = attr_int(v->n, "center_point_box", 0);
    i64 n = v->in[SCORES]->dim[2], k = v->out[0]->dim[2], most = (i64)scalar(v, MOST, 0);
    for (i64 i = 0; i < n; i++) left[i] = !has(v->n, SCORE) || scores[i] > (float)scalar(v, SCORE, 0);
    for (i64 r = 0; r < k; r++) {
        i64 best = -1;
        for (i64 i = 0; i < n; i++)
            if (left[i] && (best < 0 || scores[i] > scores[best])) best = i;
        out[r] = r < most ? best : -1;
        if (best < 0) continue;
        left[best] = false;
        for (i64 i = 0; i < n; i++)
            if (overlaps(boxes + 4 * best, boxes + 4 * i, center, (float)scalar(v, IOU, 0))) left[i] = false;
    }
}

static bool order_eval(const struct op_eval *v, struct err *e)
{
    const struct tensor *s = v->in[SCORES];
    i64 n = s->dim[2], k = v->out[0]->dim[2];
    bool *left = op_eval_array(v, n, sizeof *left, e);
    if (!left) return false;
    if (v->in[BOXES]->dim[0] != s->dim[0] || v->in[BOXES]->dim[1] != n)
        return err_set(e, ERR_INPUT, "boxes and scores differ in batches or boxes");
    for (i64 i = 0; i < s->dim[0] * s->dim[1]; i++)
        choose(v, (const float *)v->in[BOXES]->data + i / s->dim[1] * n * 4, (const float *)s->data + i * n,
               (i64 *)v->out[0]->data + i * k, left);
    return true;
}

/* Kernel. */

struct work {
    struct emit *m;
    struct kir *k;
    const struct node *n;
    kval b, c, boxes;
    kval left;          /* per box: 1 while it may be chosen */
    kval best, score;   /* registers: the box chosen last, or the best so far; -1: none */
};

static kval input(const struct work *w, u32 k, kval def)
{
    u32 rank = has(w->n, k) ? graph_value(w->m->g, w->n->in.v[k])->shape.rank : 0;
    kval idx[MAX_RANK];
    for (u32 a = 0; a < rank; a++) idx[a] = kir_int(w->k, 0);
    return has(w->n, k) ? emit_value(w->m, w->n->in.v[k], idx) : def;
}

struct vbox { kval lo[2], hi[2], area; };

static struct vbox emit_box(const struct work *w, kval i)
{
    struct kir *k = w->k;
    struct vbox b = {.area = kir_const_f(k, DT_F32, 1, 1)};
    bool center = attr_int(w->n, "center_point_box", 0);
    kval half = kir_const_f(k, DT_F32, 1, 0.5);
    for (u32 a = 0; a < 2; a++) {
        kval idx[3] = {w->b, i, kir_int(k, a)}, p = emit_value(w->m, w->n->in.v[BOXES], idx);
        idx[2] = kir_int(k, a + 2);
        kval q = emit_value(w->m, w->n->in.v[BOXES], idx), h = kir_mul(k, q, half);
        kval x = center ? kir_sub(k, p, h) : p, y = center ? kir_add(k, p, h) : q;
        b.lo[a] = kir_min(k, x, y), b.hi[a] = kir_max(k, x, y);
        b.area = kir_mul(k, b.area, kir_sub(k, b.hi[a], b.lo[a]));
    }
    return b;
}

static kval emit_overlaps(const struct work *w, const struct vbox *x, const struct vbox *y, kval most)
{
    struct kir *k = w->k;
    kval zero = kir_const_f(k, DT_F32, 1, 0), both = 0;
    for (u32 a = 0; a < 2; a++) {
        kval way = kir_max(k, kir_sub(k, kir_min(k, x->hi[a], y->hi[a]), kir_max(k, x->lo[a], y->lo[a])), zero);
        both = both ? kir_mul(k, both, way) : way;
    }
    kval all = kir_sub(k, kir_add(k, x->area, y->area), both);
    kval there = kir_bin(k, KI_AND, kir_lt(k, zero, x->area), kir_lt(k, zero, y->area));
    there = kir_bin(k, KI_AND, there, kir_lt(k, zero, all));
    return kir_bin(k, KI_AND, there, kir_lt(k, kir_mul(k, most, all), both));
}

/* The best box that is left. */
static void emit_best(const struct work *w)
{
    struct kir *k = w->k;
    kval zero = kir_int(k, 0);
    kir_store(k, w->best, zero, kir_int(k, -1));
    kir_store(k, w->score, zero, kir_const_f(k, DT_F32, 1, 0));
    kval i = kir_loop(k, KL_SERIAL, zero, w->boxes, 1), idx[3] = {w->b, w->c, i};
    kval s = emit_value(w->m, w->n->in.v[SCORES], idx), best = kir_load(k, w->best, zero), score = kir_load(k, w->score, zero);
    kval better = kir_bin(k, KI_OR, kir_lt(k, best, zero), kir_lt(k, score, s));
    better = kir_bin(k, KI_AND, better, kir_lt(k, zero, kir_load(k, w->left, i)));
    kir_store(k, w->best, zero, kir_select(k, better, i, best));
    kir_store(k, w->score, zero, kir_select(k, better, s, score));
    kir_end(k);
}

/* Removes the selected box and those that overlap with it. */
static void emit_strike(const struct work *w, kval most)
{
    struct kir *k = w->k;
    kval zero = kir_int(k, 0), best = kir_load(k, w->best, zero), at = kir_max(k, best, zero);
    kir_if(k, kir_bin(k, KI_LE, zero, best));
    struct vbox x = emit_box(w, at);
    kval i = kir_loop(k, KL_SERIAL, zero, w->boxes, 1);
    struct vbox y = emit_box(w, i);
    kval gone = kir_bin(k, KI_OR, emit_overlaps(w, &x, &y, most), kir_bin(k, KI_EQ, i, at));
    kir_store(k, w->left, i, kir_select(k, gone, zero, kir_load(k, w->left, i)));
    kir_end(k);
    kir_end(k);
}

static void order_whole(struct emit *m, const struct node *n)
{
    struct kir *k = m->k;
    const struct shape *s = &graph_value(m->g, n->in.v[SCORES])->shape;
    struct work w = {.m = m, .k = k, .n = n};
    kval zero = kir_int(k, 0), one = kir_int(k, 1), f0 = kir_const_f(k, DT_F32, 1, 0), idx[3];
    emit_slices(m, s, (bool[MAX_RANK]){[2] = true}, idx);
    w.b = idx[0], w.c = idx[1];
    w.boxes = emit_size(m, s->dim[2]);
    w.left = kir_alloc(k, KS_WORK, DT_I64, 1, w.boxes);
    w.best = kir_alloc(k, KS_REG, DT_I64, 1, one);
    w.score = kir_alloc(k, KS_REG, DT_F32, 1, one);
    kval most = kir_cast(k, DT_I64, input(&w, MOST, zero)), iou = input(&w, IOU, f0), least = input(&w, SCORE, f0);
    idx[2] = kir_loop(k, KL_SERIAL, zero, w.boxes, 1);
    kval fits = has(n, SCORE) ? kir_select(k, kir_lt(k, least, emit_value(m, n->in.v[SCORES], idx)), one, zero) : one;
    kir_store(k, w.left, idx[2], fits);
    kir_end(k);
    idx[2] = kir_loop(k, KL_SERIAL, zero, emit_dim(m, n->out.v[0], 2), 1);
    emit_best(&w);
    kval best = kir_load(k, w.best, zero);
    emit_store(m, n->out.v[0], idx, kir_select(k, kir_lt(k, idx[2], most), best, kir_int(k, -1)));
    emit_strike(&w, iou);
    kir_end(k);
    kir_end(k);
}

static double order_flops(const struct graph *g, const struct node *n, const i64 *var)
{
    i64 s[MAX_RANK], k[MAX_RANK];
    if (!shape_eval(g->sym, &graph_value(g, n->in.v[SCORES])->shape, var, s) ||
        !shape_eval(g->sym, &graph_value(g, n->out.v[0])->shape, var, k))
        return 0;
    return 20.0 * (double)s[0] * (double)s[1] * (double)s[2] * (double)k[2];
}

static void random_instance(const struct op *self, struct graph *g, struct rng *r)
{
    i64 b = rng_range(r, 1, 2), c = rng_range(r, 1, 3), n = rng_range(r, 1, 9), most = rng_range(r, 0, 6);
    value_id in[N_INPUTS] = {0};
    random_input(g, "boxes", DT_F32, 3, (i64[]){b, n, 4}, &in[BOXES]);
    random_input(g, "scores", DT_F32, 3, (i64[]){b, c, n}, &in[SCORES]);
    in[MOST] = op_const_i(g, DT_I64, &most, 1);
    in[IOU] = op_const_f(g, DT_F32, 0.1 * (double)rng_range(r, 0, 7));
    in[SCORE] = op_const_f(g, DT_F32, 0.1 * (double)rng_range(r, -5, 5));
    node_id x = random_node(g, self, (u32)rng_range(r, 3, N_INPUTS), in, 1);
    attr_set_int(g, x, "center_point_box", rng_range(r, 0, 1));
}

static const struct op ops[] = {
    {.name = "NonMaxSuppression",
     .min_in = 2,
     .max_in = N_INPUTS,
     .min_out = 1,
     .max_out = 1,
     .infer = infer,
     .expand = expand,
     .random = random_instance},
    {.name = "quern::NonMaxOrder",
     .attributes = "center_point_box:int",
     .props = OP_HEAVY | OP_WHOLE,
     .min_in = 2,
     .max_in = N_INPUTS,
     .min_out = 1,
     .max_out = 1,
     .infer = order_infer,
     .eval = order_eval,
     .whole = order_whole,
     .flops = order_flops,
     .random = random_instance},
};

const struct op_family op_non_max_suppression = {ops, countof(ops)};
