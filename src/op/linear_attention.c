// SPDX-License-Identifier: Apache-2.0
//
// LinearAttention (opset 27): attention without a softmax, as a recurrence over the sequence. Each
// key head keeps a matrix s (dk, dv) that every step decays, updates by an outer product and reads:
//
//   linear       s += k v^T
//   gated        s = exp(g) s + k v^T
//   delta        s += beta k (v - s^T k)^T
//   gated_delta  s = exp(g) s, then as delta              o = scale q^T s
//
// Columns of s do not depend on each other, so kernels take one column of one head per grid
// iteration and keep its dk elements in scratch memory, in f32 at least.
//
// query (b, t, hq*dk), key (b, t, hk*dk), value (b, t, hk*dv), past state (b, hk, dk, dv), decay
// (b, t, hk*dk) or (b, t, hk), beta (b, t, hk) or (b, t, 1); hq/hk query heads read the same state.
#include "op/op.h"

#include <math.h>

enum { IN_Q, IN_K, IN_V, IN_PAST, IN_DECAY, IN_BETA, N_IN };
enum { OUT_Y, OUT_STATE };

struct rule {
    i64 hq, hk;
    sym dk, dv;
    bool gated, delta;
    bool per_key;       /* decay */
    bool beta_per_head;
};

static bool read_rule(const struct node *nd, struct rule *r)
{
    struct str s = attr_str(nd, "update_rule", "gated_delta");
    r->gated = str_is(s, "gated") || str_is(s, "gated_delta");
    r->delta = str_is(s, "delta") || str_is(s, "gated_delta");
    r->hq = attr_int(nd, "q_num_heads", 0), r->hk = attr_int(nd, "kv_num_heads", 0);
    return r->gated || r->delta || str_is(s, "linear");
}

static bool is_one(const struct graph *g, sym s)
{
    i64 c;
    return sym_is_const(g->sym, s, &c) && c == 1;
}

/* Of a node that was inferred. */
static struct rule get_rule(const struct graph *g, const struct node *nd)
{
    struct rule r = {0};
    read_rule(nd, &r);
    sym hk = sym_const(g->sym, r.hk), k = op_in_shape(g, nd, IN_K)->dim[2];
    r.dk = sym_div(g->sym, k, hk);
    r.dv = sym_div(g->sym, op_in_shape(g, nd, IN_V)->dim[2], hk);
    if (op_has_in(nd, IN_DECAY)) r.per_key = op_in_shape(g, nd, IN_DECAY)->dim[2] == k;
    if (op_has_in(nd, IN_BETA)) r.beta_per_head = !is_one(g, op_in_shape(g, nd, IN_BETA)->dim[2]);
    return r;
}

static bool inputs_fit(struct graph *g, node_id n, const struct rule *r, struct err *e)
{
    const struct node *nd = graph_node(g, n);
    for (u32 k = 0; k < nd->in.n; k++) {
        if (!op_has_in(nd, k)) continue;
        if (!dtype_is_float(op_in_dtype(g, nd, k)))
            return op_unsupported(e, g, n, "input %u of type %s", k, dtype_name(op_in_dtype(g, nd, k)));
        u32 rank = k == IN_PAST ? 4 : 3;
        if (op_in_shape(g, nd, k)->rank != rank)
            return op_invalid(e, g, n, "input %u of rank %u, expected %u", k, op_in_shape(g, nd, k)->rank, rank);
        for (u32 i = 0; k != IN_PAST && i < 2; i++)
            if (!op_sizes_agree(g, op_in_shape(g, nd, k)->dim[i], op_in_shape(g, nd, IN_Q)->dim[i]))
                return op_invalid(e, g, n, "batch or sequence of input %u does not fit the query's", k);
    }
    if (r->gated && !op_has_in(nd, IN_DECAY)) return op_invalid(e, g, n, "this update_rule needs input 'decay'");
    if (r->delta && !op_has_in(nd, IN_BETA)) return op_invalid(e, g, n, "this update_rule needs input 'beta'");
    return true;
}

static bool is_multiple(const struct graph *g, sym s, i64 of)
{
    i64 c;
    return !sym_is_const(g->sym, s, &c) || c % of == 0;
}

static bool heads_fit(struct graph *g, node_id n, const struct rule *r, struct err *e)
{
    const struct node *nd = graph_node(g, n);
    sym hk = sym_const(g->sym, r->hk), hq = sym_const(g->sym, r->hq);
    for (u32 k = IN_Q; k <= IN_V; k++)
        if (!is_multiple(g, op_in_shape(g, nd, k)->dim[2], k == IN_Q ? r->hq : r->hk))
            return op_invalid(e, g, n, "columns of input %u are not a multiple of its heads", k);
    if (!op_sizes_agree(g, sym_mul(g->sym, r->dk, hq), op_in_shape(g, nd, IN_Q)->dim[2]))
        return op_invalid(e, g, n, "heads of query and key have different sizes");
    if (op_has_in(nd, IN_DECAY) && !r->per_key && !op_sizes_agree(g, op_in_shape(g, nd, IN_DECAY)->dim[2], hk))
        return op_invalid(e, g, n, "decay fits neither heads nor keys");
    if (op_has_in(nd, IN_BETA) && r->beta_per_head && !op_sizes_agree(g, op_in_shape(g, nd, IN_BETA)->dim[2], hk))
        return op_invalid(e, g, n, "beta does not fit the heads");
    const sym state[4] = {op_in_shape(g, nd, IN_Q)->dim[0], hk, r->dk, r->dv};
    for (u32 i = 0; i < 4 && op_has_in(nd, IN_PAST); i++)
        if (!op_sizes_agree(g, op_in_shape(g, nd, IN_PAST)->dim[i], state[i]))
            return op_invalid(e, g, n, "axis %u of past_state does not fit", i);
    return true;
}

static bool infer(struct graph *g, node_id n, struct err *e)
{
    const struct node *nd = graph_node(g, n);
    struct rule r = {0};
    if (!read_rule(nd, &r)) return op_unsupported(e, g, n, "attribute 'update_rule'");
    if (r.hk < 1 || r.hq < 1 || r.hq > INT32_MAX || r.hq % r.hk)
        return op_invalid(e, g, n, "q_num_heads %lld and kv_num_heads %lld", (long long)r.hq, (long long)r.hk);
    if (!inputs_fit(g, n, &r, e)) return false;
    r = get_rule(g, nd);
    if (!heads_fit(g, n, &r, e)) return false;
    const struct shape q = *op_in_shape(g, nd, IN_Q);
    enum dtype t = op_in_dtype(g, nd, IN_Q), s = op_has_in(nd, IN_PAST) ? op_in_dtype(g, nd, IN_PAST) : t;
    sym hk = sym_const(g->sym, r.hk), hq = sym_const(g->sym, r.hq);
    op_set_out(g, n, OUT_Y, t, &(struct shape){.rank = 3, .dim = {q.dim[0], q.dim[1], sym_mul(g->sym, hq, r.dv)}});
    op_set_out(g, n, OUT_STATE, s, &(struct shape){.rank = 4, .dim = {q.dim[0], hk, r.dk, r.dv}});
    return true;
}

static double scale_of(const struct node *nd, i64 dk)
{
    double s = attr_float(nd, "scale", 0);
    return s != 0 ? s : 1 / sqrt((double)i64_max(1, dk));
}

/* Evaluation: one column j of head h of sequence b. */

struct column {
    const struct op_eval *v;
    struct rule r;
    i64 b, h, j, dk, dv;
    double *s;
};

static double at3(const struct column *c, u32 k, i64 t, i64 i)
{
    const struct tensor *x = c->v->in[k];
    return elem_f64(x->dtype, x->data, (c->b * x->dim[1] + t) * x->dim[2] + i);
}

static void eval_step(const struct column *c, i64 t)
{
    double seen = 0, value = at3(c, IN_V, t, c->h * c->dv + c->j);
    for (i64 i = 0; i < c->dk; i++) {
        if (c->r.gated) c->s[i] *= exp(at3(c, IN_DECAY, t, c->r.per_key ? c->h * c->dk + i : c->h));
        seen += at3(c, IN_K, t, c->h * c->dk + i) * c->s[i];
    }
    if (c->r.delta) value = at3(c, IN_BETA, t, c->r.beta_per_head ? c->h : 0) * (value - seen);
    for (i64 i = 0; i < c->dk; i++) c->s[i] += at3(c, IN_K, t, c->h * c->dk + i) * value;
}

static void eval_read(const struct column *c, i64 t)
{
    struct tensor *y = c->v->out[OUT_Y];
    for (i64 k = 0, each = c->r.hq / c->r.hk; y && k < each; k++) {
        i64 head = c->h * each + k;
        double sum = 0;
        for (i64 i = 0; i < c->dk; i++) sum += at3(c, IN_Q, t, head * c->dk + i) * c->s[i];
        elem_set_f64(y->dtype, y->data, (c->b * y->dim[1] + t) * y->dim[2] + head * c->dv + c->j,
                     sum * scale_of(c->v->n, c->dk));
    }
}

static void eval_column(const struct column *c)
{
    const struct tensor *past = c->v->n->in.n > IN_PAST ? c->v->in[IN_PAST] : NULL;
    struct tensor *state = c->v->n->out.n > OUT_STATE ? c->v->out[OUT_STATE] : NULL;
    i64 at = (c->b * c->r.hk + c->h) * c->dk * c->dv + c->j;
    for (i64 i = 0; i < c->dk; i++) c->s[i] = past ? elem_f64(past->dtype, past->data, at + i * c->dv) : 0;
    for (i64 t = 0; t < c->v->in[IN_Q]->dim[1]; t++) {
        eval_step(c, t);
        eval_read(c, t);
    }
    for (i64 i = 0; state && i < c->dk; i++) elem_set_f64(state->dtype, state->data, at + i * c->dv, c->s[i]);
}

static bool eval(const struct op_eval *v, struct err *e)
{
    struct column c = {.v = v, .r = get_rule(v->g, v->n)};
    c.dk = v->in[IN_K]->dim[2] / c.r.hk, c.dv = v->in[IN_V]->dim[2] / c.r.hk;
    c.s = arena_array(v->scratch, double, c.dk + 1);
    for (c.b = 0; c.b < v->in[IN_Q]->dim[0]; c.b++)
        for (c.h = 0; c.h < c.r.hk; c.h++)
            for (c.j = 0; c.j < c.dv; c.j++) eval_column(&c);
    return true;
}

/* Kernels. */

struct work {
    struct emit *m;
    struct kir *k;
    const struct node *n;
    struct rule r;
    enum dtype t;             /* of the state */
    kval b, h, j, dk, dv;
    kval s;                   /* the column */
};

static kval read(const struct work *w, u32 input, kval t, kval i)
{
    return kir_cast(w->k, w->t, emit_value(w->m, w->n->in.v[input], (kval[]){w->b, t, i}));
}

/* Element i of head h. */
static kval in_head(const struct work *w, kval h, kval size, kval i)
{
    return kir_add(w->k, kir_bin(w->k, KI_MUL, h, size), i);
}

static kval decay(const struct work *w, kval t, kval at) { return kir_un(w->k, KI_EXP, read(w, IN_DECAY, t, at)); }

/* Decays the column; returns its prediction for the key, needed by the delta rules only. */
static kval emit_decay(const struct work *w, kval t)
{
    struct kir *k = w->k;
    struct emit_acc seen = {0};
    if (!w->r.gated && !w->r.delta) return 0;
    kval by = w->r.gated && !w->r.per_key ? decay(w, t, w->h) : 0;
    if (w->r.delta) emit_acc_open(w->m, &seen, 1, kir_const_f(k, w->t, 1, 0));
    kval i = kir_loop(k, KL_SERIAL, kir_int(k, 0), w->dk, 1), s = kir_load(k, w->s, i), at = in_head(w, w->h, w->dk, i);
    if (w->r.gated) s = kir_bin(k, KI_MUL, s, by ? by : decay(w, t, at));
    if (w->r.gated) kir_store(k, w->s, i, s);
    if (w->r.delta) emit_acc_fma(w->m, &seen, read(w, IN_K, t, at), s);
    kir_end(k);
    return w->r.delta ? emit_acc_get(w->m, &seen) : 0;
}

static void emit_update(const struct work *w, kval t)
{
    struct kir *k = w->k;
    kval seen = emit_decay(w, t), value = read(w, IN_V, t, in_head(w, w->h, w->dv, w->j));
    if (seen) {
        kval beta = read(w, IN_BETA, t, w->r.beta_per_head ? w->h : kir_int(k, 0));
        value = kir_bin(k, KI_MUL, beta, kir_sub(k, value, seen));
    }
    kval i = kir_loop(k, KL_SERIAL, kir_int(k, 0), w->dk, 1), key = read(w, IN_K, t, in_head(w, w->h, w->dk, i));
    kir_store(k, w->s, i, kir_add(k, kir_load(k, w->s, i), kir_bin(k, KI_MUL, key, value)));
    kir_end(k);
}

static kval emit_scale(const struct work *w)
{
    double s = attr_float(w->n, "scale", 0);
    if (s != 0) return kir_const_f(w->k, w->t, 1, s);
    kval d = kir_cast(w->k, w->t, kir_max(w->k, w->dk, kir_int(w->k, 1)));
    return kir_bin(w->k, KI_DIV, kir_const_f(w->k, w->t, 1, 1), kir_un(w->k, KI_SQRT, d));
}

static void emit_read(const struct work *w, kval t, kval scale)
{
    struct kir *k = w->k;
    i64 each = w->r.hq / w->r.hk;
    value_id y = w->n->out.v[OUT_Y];
    if (!emit_wants(w->m, w->n, OUT_Y)) return;
    kval r = kir_loop(k, KL_SERIAL, kir_int(k, 0), kir_int(k, each), 1);
    kval head = kir_add(k, kir_bin(k, KI_MUL, w->h, kir_int(k, each)), r);
    struct emit_acc sum;
    emit_acc_open(w->m, &sum, 1, kir_const_f(k, w->t, 1, 0));
    kval i = kir_loop(k, KL_SERIAL, kir_int(k, 0), w->dk, 1);
    kval s = kir_load(k, w->s, i);
    emit_acc_fma(w->m, &sum, read(w, IN_Q, t, in_head(w, head, w->dk, i)), s);
    kir_end(k);
    kval v = kir_bin(k, KI_MUL, emit_acc_get(w->m, &sum), scale);
    emit_store(w->m, y, (kval[]){w->b, t, in_head(w, head, w->dv, w->j)},
               kir_cast(k, emit_type(graph_value(w->m->g, y)->dtype), v));
    kir_end(k);
}

static void emit_begin(const struct work *w)
{
    struct kir *k = w->k;
    kval i = kir_loop(k, KL_SERIAL, kir_int(k, 0), w->dk, 1), s = kir_const_f(k, w->t, 1, 0);
    if (op_has_in(w->n, IN_PAST))
        s = kir_cast(k, w->t, emit_value(w->m, w->n->in.v[IN_PAST], (kval[]){w->b, w->h, i, w->j}));
    kir_store(k, w->s, i, s);
    kir_end(k);
}

static void emit_finish(const struct work *w)
{
    struct kir *k = w->k;
    if (!emit_wants(w->m, w->n, OUT_STATE)) return;
    value_id out = w->n->out.v[OUT_STATE];
    kval i = kir_loop(k, KL_SERIAL, kir_int(k, 0), w->dk, 1);
    emit_store(w->m, out, (kval[]){w->b, w->h, i, w->j},
               kir_cast(k, emit_type(graph_value(w->m->g, out)->dtype), kir_load(k, w->s, i)));
    kir_end(k);
}

static void whole(struct emit *m, const struct node *n)
{
    struct kir *k = m->k;
    struct work w = {.m = m, .k = k, .n = n, .r = get_rule(m->g, n), .t = emit_acc_type(m, op_in_dtype(m->g, n, IN_Q))};
    const struct shape columns = {.known = true, .rank = 3, .dim = {op_in_shape(m->g, n, IN_Q)->dim[0],
                                  sym_const(m->g->sym, w.r.hk), w.r.dv}};
    const bool none[MAX_RANK] = {0};
    kval idx[MAX_RANK];
    emit_slices(m, &columns, none, idx);
    w.b = idx[0], w.h = idx[1], w.j = idx[2];
    w.dk = emit_size(m, w.r.dk), w.dv = emit_size(m, w.r.dv);
    w.s = kir_alloc(k, KS_WORK, w.t, 1, w.dk);
    kval scale = emit_scale(&w);
    emit_begin(&w);
    kval t = kir_loop(k, KL_SERIAL, kir_int(k, 0), emit_dim(m, n->in.v[IN_Q], 1), 1);
    emit_update(&w, t);
    emit_read(&w, t, scale);
    kir_end(k);
    emit_finish(&w);
    kir_end(k);
}

static double flops(const struct graph *g, const struct node *n, const i64 *var)
{
    i64 q[MAX_RANK], v[MAX_RANK], dk;
    struct rule r = get_rule(g, n);
    if (!shape_eval(g->sym, op_in_shape(g, n, IN_Q), var, q) || !shape_eval(g->sym, op_in_shape(g, n, IN_V), var, v) ||
        !sym_eval(g->sym, r.dk, var, &dk))
        return 0;
    return (double)q[0] * (double)q[1] * (double)v[2] * (double)dk * (4.0 + 2.0 * (double)(r.hq / r.hk));
}

static void random_linear(const struct op *self, struct graph *g, struct rng *r)
{
    static const char *const rules[] = {"linear", "gated", "delta", "gated_delta"};
    i64 b = rng_range(r, 1, 2), t = rng_range(r, 1, 4), hk = rng_range(r, 1, 2), hq = hk * rng_range(r, 1, 2),
        dk = rng_range(r, 1, 4), dv = rng_range(r, 1, 4), rule = rng_range(r, 0, 3);
    const i64 q[] = {b, t, hq * dk}, k[] = {b, t, hk * dk}, v[] = {b, t, hk * dv}, past[] = {b, hk, dk, dv},
              each[] = {b, t, hk}, one[] = {b, t, 1};
    value_id in[N_IN] = {0};
    random_input(g, "q", DT_F32, 3, q, &in[IN_Q]);
    random_input(g, "k", DT_F32, 3, k, &in[IN_K]);
    random_input(g, "v", DT_F32, 3, v, &in[IN_V]);
    if (rng_range(r, 0, 1)) random_input(g, "past", DT_F32, 4, past, &in[IN_PAST]);
    if (rule & 1) random_input(g, "decay", DT_F32, 3, rng_range(r, 0, 1) ? k : each, &in[IN_DECAY]);
    if (rule & 2) random_input(g, "beta", DT_F32, 3, rng_range(r, 0, 1) ? each : one, &in[IN_BETA]);
    node_id n = random_node(g, self, N_IN, in, (u32)rng_range(r, 1, 2));
    attr_set_int(g, n, "q_num_heads", hq);
    attr_set_int(g, n, "kv_num_heads", hk);
    attr_set_str(g, n, "update_rule", str_of(rules[rule]));
    if (rng_range(r, 0, 1)) attr_set_float(g, n, "scale", 0.5);
}

static const struct op ops[] = {
    {.name = "LinearAttention",
     .props = OP_HEAVY | OP_WHOLE,
     .min_in = 3,
     .max_in = N_IN,
     .min_out = 1,
     .max_out = 2,
     .infer = infer,
     .eval = eval,
     .whole = whole,
     .flops = flops,
     .random = random_linear},
};

const struct op_family op_linear_attention = {ops, countof(ops)};
