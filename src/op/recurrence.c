// SPDX-License-Identifier: Apache-2.0
//
// quern::Recurrence: the part of RNN, GRU and LSTM that depends on the previous step, after the products of inputs and
// weights of all steps. Step by step, the state h is multiplied by the recurrent weights and updated by the cell
// (op_cell.c).
//
//   x (t, b, d*g*u)   projected inputs with all biases but rb      y   (t, d, b, u)
//   r (d, g*u, u)     recurrent weights                            y_h (d, b, u)   h behind the last step
//   lens? (b)         steps of each sequence                       y_c (d, b, u)   c behind the last step (LSTM)
//   h0? c0? (d, b, u) states before the first step
//   p? (d, 3*u)       LSTM: peepholes of i, o, f
//   rb? (d, u)        GRU, linear_before_reset: bias of the recurrent product of h
//
// Dims: t steps, b batch, d directions, g gates, u hidden units. If a sequence is shorter than t, y is 0 after its end,
// where a reversed sequence begins; y_h and y_c are the states after its last step. Sums and states are f32, or f64 for
// f64.
//
// `whole` is the kernel for devices without a kernel family: one direction and sequence per grid
// iteration.
#include "op/op.h"

enum { IN_X, IN_R, IN_LENS, IN_H0, IN_C0, IN_P, IN_RB, N_INPUTS };
enum { OUT_Y, OUT_H, OUT_C };

/* Shapes. */

static bool size_fits(struct graph *g, node_id n, u32 k, u32 axis, sym want, struct err *e)
{
    sym has = op_in_shape(g, graph_node(g, n), k)->dim[axis];
    if (op_sizes_agree(g, has, want)) return true;
    struct buf a = {0}, b = {0};
    sym_print(&a, g->sym, has);
    sym_print(&b, g->sym, want);
    op_invalid(e, g, n, "axis %u of input %u is %.*s, expected %.*s", axis, k, STR_ARG(buf_view(&a)), STR_ARG(buf_view(&b)));
    buf_release(&a);
    buf_release(&b);
    return false;
}

static bool input_fits(struct graph *g, node_id n, u32 k, u32 rank, const sym *want, struct err *e)
{
    const struct node *nd = graph_node(g, n);
    if (!op_has_in(nd, k)) return true;
    if (op_in_shape(g, nd, k)->rank != rank)
        return op_invalid(e, g, n, "input %u of rank %u, expected %u", k, op_in_shape(g, nd, k)->rank, rank);
    for (u32 i = 0; i < rank; i++)
        if (!size_fits(g, n, k, i, want[i], e)) return false;
    enum dtype t = op_in_dtype(g, nd, k), x = op_in_dtype(g, nd, IN_X);
    if (k == IN_LENS && !dtype_is_int(t)) return op_invalid(e, g, n, "lengths of type %s", dtype_name(t));
    if (k != IN_LENS && t != x) return op_invalid(e, g, n, "input %u of type %s, expected %s", k, dtype_name(t), dtype_name(x));
    return true;
}

static bool inputs_fit(struct graph *g, node_id n, const struct op_cell *c, struct err *e)
{
    const struct shape x = *op_in_shape(g, graph_node(g, n), IN_X);
    sym d = sym_const(g->sym, c->n_dirs), u = sym_const(g->sym, c->hidden), b = x.dim[1],
        rows = sym_const(g->sym, c->n_gates * c->hidden);
    const sym weights[] = {d, rows, u}, state[] = {d, b, u}, peep[] = {d, sym_const(g->sym, 3 * c->hidden)};
    return size_fits(g, n, IN_X, 2, sym_mul(g->sym, d, rows), e) && input_fits(g, n, IN_R, 3, weights, e) &&
           input_fits(g, n, IN_LENS, 1, &b, e) && input_fits(g, n, IN_H0, 3, state, e) && input_fits(g, n, IN_C0, 3, state, e) &&
           input_fits(g, n, IN_P, 2, peep, e) && input_fits(g, n, IN_RB, 2, (sym[]){d, u}, e);
}

static bool infer(struct graph *g, node_id n, struct err *e)
{
    struct op_cell c;
    const struct node *nd = graph_node(g, n);
    const struct shape x = *op_in_shape(g, nd, IN_X);
    enum dtype t = op_in_dtype(g, nd, IN_X);
    if (x.rank != 3) return op_invalid(e, g, n, "input of rank %u, expected 3", x.rank);
    if (!dtype_is_float(t)) return op_invalid(e, g, n, "type %s", dtype_name(t));
    if (!op_cell_read(g, n, IN_R, &c, e) || !inputs_fit(g, n, &c, e)) return false;
    if (op_has_in(nd, IN_RB) && !c.linear_before_reset) return op_invalid(e, g, n, "input %u without linear_before_reset", IN_RB);
    sym d = sym_const(g->sym, c.n_dirs), u = sym_const(g->sym, c.hidden);
    op_set_out(g, n, OUT_Y, t, &(struct shape){.rank = 4, .dim = {x.dim[0], d, x.dim[1], u}});
    for (u32 k = OUT_H; k <= OUT_C; k++) op_set_out(g, n, k, t, &(struct shape){.rank = 3, .dim = {d, x.dim[1], u}});
    return true;
}

/* Reference: one sequence of one direction after the other. */

struct run {
    const struct op_eval *v;
    struct op_cell c;
    i64 t, b, u, len; /* steps, batch, units; steps of this sequence */
    i64 dir, seq;
    double *h, *s, *mem, *gate; /* [u], [u], [u], [gates][u]: state, next state or r*h, LSTM's c, recurrent
                                   products */
};

static double at_or(const struct run *r, u32 k, i64 i, double otherwise)
{
    const struct tensor *t = k < r->v->n->in.n ? r->v->in[k] : NULL;
    return t ? elem_f64(t->dtype, t->data, i) : otherwise;
}

static void put(const struct run *r, u32 k, i64 i, double x)
{
    struct tensor *t = k < r->v->n->out.n ? r->v->out[k] : NULL;
    if (t) elem_set_f64(t->dtype, t->data, i, x);
}

/* Projected input of a gate's unit. */
static double projected(const struct run *r, i64 step, u32 gate, i64 unit)
{
    i64 row = (r->dir * r->c.n_gates + gate) * r->u + unit, n = r->c.n_dirs * r->c.n_gates * r->u;
    return at_or(r, IN_X, (step * r->b + r->seq) * n + row, 0);
}

static void multiply(const struct run *r, u32 gate, const double *h)
{
    for (i64 i = 0; i < r->u; i++) {
        double sum = 0;
        i64 row = (r->dir * r->c.n_gates + gate) * r->u + i;
        for (i64 k = 0; k < r->u; k++) sum += h[k] * at_or(r, IN_R, row * r->u + k, 0);
        r->gate[gate * r->u + i] = sum;
    }
}

static void eval_step(struct run *r, i64 at)
{
    for (u32 g = 0; g < r->c.n_gates; g++) multiply(r, g, r->h);
    if (op_cell_has_two_stages(&r->c)) {
        for (i64 i = 0; i < r->u; i++)
            r->s[i] = r->h[i] * op_cell_activate_f(&r->c, 0, (u32)r->dir, projected(r, at, 1, i) + r->gate[r->u + i]);
        multiply(r, 2, r->s);
    }
    for (i64 i = 0; i < r->u; i++) {
        struct op_cell_numbers x = {.dir = (u32)r->dir, .h = r->h[i], .c = r->mem[i]};
        for (u32 g = 0; g < r->c.n_gates; g++) {
            bool apart = r->c.kind == CELL_GRU && g == 2;
            x.gate[g] = projected(r, at, g, i) + (apart ? 0 : r->gate[g * r->u + i]);
            if (apart) x.gate[3] = r->gate[g * r->u + i] + at_or(r, IN_RB, r->dir * r->u + i, 0);
        }
        for (u32 k = 0; k < 3; k++) x.peep[k] = at_or(r, IN_P, (r->dir * 3 + k) * r->u + i, 0);
        op_cell_eval(&r->c, &x);
        r->s[i] = x.h, r->mem[i] = x.c;
        put(r, OUT_Y, ((at * r->c.n_dirs + r->dir) * r->b + r->seq) * r->u + i, x.h);
    }
    for (i64 i = 0; i < r->u; i++) r->h[i] = r->s[i];
}

static bool eval(const struct op_eval *v, struct err *e)
{
    struct run r = {.v = v, .c = op_cell_get(v->g, v->n), .t = v->in[IN_X]->dim[0], .b = v->in[IN_X]->dim[1]};
    r.u = r.c.hidden;
    r.h = op_eval_array(v, r.u, sizeof *r.h, e), r.s = op_eval_array(v, r.u, sizeof *r.s, e);
    r.mem = op_eval_array(v, r.u, sizeof *r.mem, e), r.gate = op_eval_array(v, r.c.n_gates * r.u, sizeof *r.gate, e);
    if (!r.h || !r.s || !r.mem || !r.gate) return false;
    const struct tensor *lens = v->n->in.n > IN_LENS ? v->in[IN_LENS] : NULL;
    for (r.dir = 0; r.dir < r.c.n_dirs; r.dir++)
        for (r.seq = 0; r.seq < r.b; r.seq++) {
            i64 len = lens ? elem_i64(lens->dtype, lens->data, r.seq) : r.t;
            if (len < 0 || len > r.t)
                return err_set(e, ERR_INPUT, "sequence %lld has %lld steps of %lld", (long long)r.seq, (long long)len, (long long)r.t);
            r.len = len;
            i64 state = (r.dir * r.b + r.seq) * r.u;
            for (i64 i = 0; i < r.u; i++) {
                r.h[i] = at_or(&r, IN_H0, state + i, 0);
                r.mem[i] = at_or(&r, IN_C0, state + i, 0);
            }
            for (i64 t = 0; t < r.len; t++) eval_step(&r, r.c.reverse[r.dir] ? r.len - 1 - t : t);
            for (i64 i = 0; i < r.u; i++) put(&r, OUT_H, state + i, r.h[i]), put(&r, OUT_C, state + i, r.mem[i]);
        }
    return true;
}

/* The kernel: the same, a grid iteration per direction and sequence. */

struct work {
    struct emit *m;
    struct kir *k;
    const struct node *n;
    struct op_cell c;
    enum dtype t;
    kval dir, seq, len;
    kval h, s, mem; /* WORK arrays [u] */
};

static kval units(const struct work *w) { return kir_int(w->k, w->c.hidden); }

static kval read(const struct work *w, u32 k, const kval *idx)
{
    return kir_cast(w->k, w->t, emit_value(w->m, w->n->in.v[k], idx));
}

static kval state_or_zero(const struct work *w, u32 k, kval unit)
{
    return op_has_in(w->n, k) ? read(w, k, (kval[]){w->dir, w->seq, unit}) : kir_const_f(w->k, w->t, 1, 0);
}

static kval row_of(const struct work *w, u32 gate, kval unit) { return kir_add_i(w->k, unit, gate * w->c.hidden); }

static kval input_of(const struct work *w, kval at, u32 gate, kval unit)
{
    kval first = kir_mul_i(w->k, w->dir, w->c.n_gates * w->c.hidden);
    return read(w, IN_X, (kval[]){at, w->seq, kir_add(w->k, first, row_of(w, gate, unit))});
}

/* Adds the terms of the matmul one by one. */
static kval product(const struct work *w, u32 gate, kval unit, kval h, kval sum)
{
    struct kir *k = w->k;
    kval acc = kir_alloc(k, KS_REG, w->t, 1, kir_int(k, 1)), zero = kir_int(k, 0);
    kir_store(k, acc, zero, sum);
    kval i = kir_loop(k, KL_SERIAL, zero, units(w), 1);
    kval x = read(w, IN_R, (kval[]){w->dir, row_of(w, gate, unit), i});
    kir_store(k, acc, zero, kir_fma(k, x, kir_load(k, h, i), kir_load(k, acc, zero)));
    kir_end(k);
    return kir_load(k, acc, zero);
}

static void emit_reset(const struct work *w, kval at)
{
    struct kir *k = w->k;
    kval u = kir_loop(k, KL_SERIAL, kir_int(k, 0), units(w), 1);
    kval r = op_cell_activate(k, &w->c, 0, w->dir, product(w, 1, u, w->h, input_of(w, at, 1, u)));
    kir_store(k, w->s, u, kir_mul(k, r, kir_load(k, w->h, u)));
    kir_end(k);
}

static void gather_gates(const struct work *w, kval at, kval unit, kval reset_h, struct op_cell_step *s)
{
    struct kir *k = w->k;
    for (u32 g = 0; g < w->c.n_gates; g++) {
        bool is_new = w->c.kind == CELL_GRU && g == 2, apart = is_new && w->c.linear_before_reset;
        kval x = input_of(w, at, g, unit), sum = x;
        if (apart) sum = op_has_in(w->n, IN_RB) ? read(w, IN_RB, (kval[]){w->dir, unit}) : kir_const_f(k, w->t, 1, 0);
        kval p = product(w, g, unit, is_new ? reset_h : w->h, sum);
        s->gate[g] = apart ? x : p;
        if (apart) s->gate[3] = p;
    }
    for (u32 i = 0; i < 3; i++)
        if (op_has_in(w->n, IN_P)) s->peep[i] = read(w, IN_P, (kval[]){w->dir, row_of(w, i, unit)});
}

static void copy_state(const struct work *w, kval to, kval from)
{
    kval u = kir_loop(w->k, KL_SERIAL, kir_int(w->k, 0), units(w), 1);
    kir_store(w->k, to, u, kir_load(w->k, from, u));
    kir_end(w->k);
}

static void emit_step(const struct work *w, kval next, kval at)
{
    struct kir *k = w->k;
    bool two = op_cell_has_two_stages(&w->c);
    if (two) emit_reset(w, at);
    kval u = kir_loop(k, KL_SERIAL, kir_int(k, 0), units(w), 1);
    struct op_cell_step s = {.dir = w->dir, .h = kir_load(k, w->h, u)};
    if (w->c.kind == CELL_LSTM) s.c = kir_load(k, w->mem, u);
    gather_gates(w, at, u, two ? w->s : w->h, &s);
    op_cell_emit(k, &w->c, &s);
    kir_store(k, next, u, s.h);
    if (w->c.kind == CELL_LSTM) kir_store(k, w->mem, u, s.c);
    if (emit_wants(w->m, w->n, OUT_Y))
        emit_store(w->m, w->n->out.v[OUT_Y], (kval[]){at, w->dir, w->seq, u}, kir_cast(k, emit_type(op_in_dtype(w->m->g, w->n, IN_X)), s.h));
    kir_end(k);
    copy_state(w, w->h, next);
}

static kval reversed(const struct work *w, kval step)
{
    struct kir *k = w->k;
    kval back = kir_sub(k, kir_add_i(k, w->len, -1), step);
    if (w->c.n_dirs == 1) return w->c.reverse[0] ? back : step;
    return kir_select(k, kir_bin(k, KI_EQ, w->dir, kir_int(k, 0)), step, back);
}

static void begin_state(const struct work *w)
{
    struct kir *k = w->k;
    kval u = kir_loop(k, KL_SERIAL, kir_int(k, 0), units(w), 1);
    kir_store(k, w->h, u, state_or_zero(w, IN_H0, u));
    if (w->c.kind == CELL_LSTM) kir_store(k, w->mem, u, state_or_zero(w, IN_C0, u));
    kir_end(k);
}

/* Zeros after the end of the sequence, and the final states. */
static void finish(const struct work *w, kval steps)
{
    struct kir *k = w->k;
    enum dtype t = emit_type(op_in_dtype(w->m->g, w->n, IN_X));
    if (op_has_in(w->n, IN_LENS) && emit_wants(w->m, w->n, OUT_Y)) {
        kval at = kir_loop(k, KL_SERIAL, w->len, steps, 1), u = kir_loop(k, KL_SERIAL, kir_int(k, 0), units(w), 1);
        emit_store(w->m, w->n->out.v[OUT_Y], (kval[]){at, w->dir, w->seq, u}, kir_const_f(k, t, 1, 0));
        kir_end(k);
        kir_end(k);
    }
    for (u32 o = OUT_H; o <= OUT_C; o++) {
        if (!emit_wants(w->m, w->n, o)) continue;
        kval u = kir_loop(k, KL_SERIAL, kir_int(k, 0), units(w), 1);
        emit_store(w->m, w->n->out.v[o], (kval[]){w->dir, w->seq, u}, kir_cast(k, t, kir_load(k, o == OUT_H ? w->h : w->mem, u)));
        kir_end(k);
    }
}

static void whole(struct emit *m, const struct node *n)
{
    struct kir *k = m->k;
    struct work w = {.m = m, .k = k, .n = n, .c = op_cell_get(m->g, n), .t = emit_acc_type(m, op_in_dtype(m->g, n, IN_X))};
    w.dir = kir_grid(k, kir_int(k, w.c.n_dirs));
    w.seq = kir_grid(k, emit_dim(m, n->in.v[IN_X], 1));
    kval steps = emit_dim(m, n->in.v[IN_X], 0);
    w.h = kir_alloc(k, KS_WORK, w.t, 1, units(&w)), w.s = kir_alloc(k, KS_WORK, w.t, 1, units(&w));
    kval next = kir_alloc(k, KS_WORK, w.t, 1, units(&w));
    if (w.c.kind == CELL_LSTM) w.mem = kir_alloc(k, KS_WORK, w.t, 1, units(&w));
    w.len = steps;
    if (op_has_in(n, IN_LENS)) {
        kval len = kir_cast(k, DT_I64, emit_value(m, n->in.v[IN_LENS], &w.seq));
        w.len = kir_max(k, kir_min(k, len, steps), kir_int(k, 0));
    }
    begin_state(&w);
    kval step = kir_loop(k, KL_SERIAL, kir_int(k, 0), w.len, 1);
    emit_step(&w, next, reversed(&w, step));
    kir_end(k);
    finish(&w, steps);
    kir_end(k);
    kir_end(k);
}

/* Multiply-adds of the recurrent products. */
static double flops(const struct graph *g, const struct node *n, const i64 *var)
{
    i64 x[MAX_RANK], r[MAX_RANK];
    if (!shape_eval(g->sym, op_in_shape(g, n, IN_X), var, x) || !shape_eval(g->sym, op_in_shape(g, n, IN_R), var, r)) return 0;
    return 2.0 * (double)x[0] * (double)x[1] * (double)x[2] * (double)r[2];
}

static void random_recurrence(const struct op *self, struct graph *g, struct rng *r) { op_cell_random(self, g, r, true); }

static const struct op ops[] = {
    {.name = "quern::Recurrence",
     .attributes = "activation_alpha:floats activation_beta:floats activations:strings cell:string clip:float direction:string hidden_size:int "
                   "input_forget:int linear_before_reset:int",
     .props = OP_HEAVY | OP_WHOLE | OP_RECURRENT,
     .min_in = 2,
     .max_in = N_INPUTS,
     .min_out = 1,
     .max_out = 3,
     .infer = infer,
     .eval = eval,
     .whole = whole,
     .flops = flops,
     .random = random_recurrence},
};

const struct op_family op_recurrence = {ops, countof(ops)};
