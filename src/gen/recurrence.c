// SPDX-License-Identifier: Apache-2.0
//
// recurrence: recurrent layers, one step after the other within a grid iteration. A step multiplies the states of some
// sequences with the recurrent weights and applies the cell to what is in the accumulators, so that sums never go through
// memory. Weights are packed once, in panels of hidden units with the gates of a unit that are summed at once side by side, in the order in
// which they are read; they are copied to a temporary array first if they are not constant. States are in scratch memory that is as large
// as a few vectors of units, twice for h: a step reads the last step's and writes the other one.
//
// A GRU whose reset gate applies to h has two matmuls per step: z and r first, then that of r*h. There the gates of a
// panel lie one behind the other instead.
//
// Several threads may share a grid iteration: side by side in a panel (devices with groups), or with panels of their own. They
// synchronise once per matmul.
//
// Dims: (t, b, d*g*u) projected inputs, (d, g*u, u) weights, (t, d, b, u) outputs, see op/recurrence.c.
#include "gen/recurrence.h"

enum { IN_X, IN_R, IN_LENS, IN_H0, IN_C0, IN_P, IN_RB };
enum { OUT_Y, OUT_H, OUT_C };
enum { MAX_ROWS = 16, MAX_VECS = 4 };

struct rec {
    struct emit *m;
    struct recurrence q;
    struct recurrence_sched s;
    i64 width, panels, room; /* room: units with padding */
    bool exact;              /* no vector hangs over the last unit */
    kval pack, dir, t;       /* packed weights; direction; the thread, 0: there is one */
    kval seq[MAX_ROWS];      /* number of each sequence, clamped */
    kval exists[MAX_ROWS];   /* is it one? 0: always */
    kval len[MAX_ROWS];      /* its steps; 0: all */
    kval h, mem, z, rh;      /* states: h [2][rows][room], the others [rows][room] */
    kval step, old, new;     /* number of the step; parts of h */
};

/* Operands of a matmul. */
struct stage {
    u32 first, n;            /* gates */
    kval array, at;          /* states that it multiplies: element of row 0, unit 0 */
    bool resets;             /* its result is z and r*h, not yet the next state */
};

/* One vector of units of one sequence. */
struct spot {
    i64 row;
    kval unit;               /* first */
    kval valid;              /* lanes that are units; 0: all */
};

static value_id input_or_none(const struct node *n, u32 k) { return op_has_in(n, k) ? n->in.v[k] : 0; }

bool recurrence_of(struct recurrence *q, const struct task *t)
{
    const struct graph *g = &t->g;
    if (!t->anchor || t->n_heavy != 1 || !(op_of(g, t->anchor)->props & OP_RECURRENT)) return false;
    const struct node *n = graph_node(g, t->anchor);
    for (u32 i = 0; i < g->output.n; i++) {
        const struct value *v = graph_value(g, g->output.v[i]);
        if (v->producer != t->anchor || layout_block(v->layout) > 1) return false;
    }
    const struct shape *x = op_in_shape(g, n, IN_X);
    enum dtype type = op_in_dtype(g, n, IN_X);
    *q = (struct recurrence){.g = g, .n = n, .c = op_cell_get(g, n), .type = emit_type(type), .x = n->in.v[IN_X], .r = n->in.v[IN_R]};
    q->lens = input_or_none(n, IN_LENS), q->h0 = input_or_none(n, IN_H0), q->c0 = input_or_none(n, IN_C0);
    q->p = input_or_none(n, IN_P), q->rb = input_or_none(n, IN_RB);
    q->steps = x->dim[0], q->batch = x->dim[1];
    return true;
}

i64 recurrence_width(const struct recurrence_sched *s) { return s->threads * s->nr * s->lanes; }

i64 recurrence_panels(const struct recurrence *q, const struct recurrence_sched *s)
{
    return ceil_div(q->c.hidden, recurrence_width(s));
}

i64 recurrence_state_bytes(const struct recurrence *q, const struct recurrence_sched *s)
{
    i64 arrays = 2 + (q->c.kind == CELL_LSTM) + 2 * op_cell_has_two_stages(&q->c);
    return arrays * s->rows * recurrence_panels(q, s) * recurrence_width(s) * dtype_size(q->type);
}

i64 recurrence_accumulators(const struct recurrence *q, const struct recurrence_sched *s)
{
    i64 gates = s->gates ? s->gates : op_cell_has_two_stages(&q->c) ? 2 : q->c.n_gates;
    return gates * s->rows * s->nr;
}

bool recurrence_has_gates(const struct recurrence *q, i64 gates)
{
    return gates == 0 || (gates < q->c.n_gates && q->c.n_gates % gates == 0 && !op_cell_has_two_stages(&q->c));
}

/* Weights. */

/* Gates of a unit that lie side by side. */
static i64 gates_together(const struct rec *w)
{
    if (op_cell_has_two_stages(&w->q.c)) return 1;
    return w->s.gates ? w->s.gates : w->q.c.n_gates;
}

/* First element of term `term` of a gate in a panel. */
static kval weight_at(const struct rec *w, kval panel, u32 gate, kval term)
{
    struct kir *k = w->m->k;
    i64 near = gates_together(w), far = w->q.c.n_gates / near;
    kval at = kir_add(k, kir_mul_i(k, w->dir, w->panels), panel);
    at = kir_add_i(k, kir_mul_i(k, at, far), gate / near);
    at = kir_add(k, kir_mul_i(k, at, w->q.c.hidden), term);
    return kir_mul_i(k, kir_add_i(k, kir_mul_i(k, at, near), gate % near), w->width);
}

static void pack_constant(struct rec *w)
{
    struct pack *p = arena_new(w->m->arena, struct pack);
    i64 u = w->q.c.hidden, near = gates_together(w);
    pack_dim_i(p, w->m->g->sym, w->q.c.n_dirs, 0, 1);
    pack_dim_i(p, w->m->g->sym, w->panels, 1, w->width);
    pack_dim_i(p, w->m->g->sym, w->q.c.n_gates / near, 1, near * u);
    pack_dim_i(p, w->m->g->sym, u, 2, 1);
    pack_dim_i(p, w->m->g->sym, near, 1, u);
    pack_dim_i(p, w->m->g->sym, w->width, 1, 1);
    w->pack = emit_pack(w->m, w->q.r, p);
}

/* Likewise of weights that are only known when the kernel runs: a grid of its own. */
static void pack_given(struct rec *w)
{
    struct kir *k = w->m->k;
    i64 u = w->q.c.hidden, gates = w->q.c.n_gates;
    w->pack = kir_alloc(k, KS_TEMP, w->q.type, 1, kir_int(k, w->q.c.n_dirs * w->panels * gates * u * w->width));
    w->dir = kir_grid(k, kir_int(k, w->q.c.n_dirs));
    kval panel = kir_grid(k, kir_int(k, w->panels));
    i64 threads = w->s.threads * w->s.split;
    kval from = threads > 1 ? kir_thread(k, 0) : kir_int(k, 0);
    kval term = kir_loop(k, KL_SERIAL, kir_int(k, 0), kir_int(k, u), 1);
    for (u32 gate = 0; gate < gates; gate++) {
        kval j = kir_loop(k, KL_SERIAL, from, kir_int(k, w->width), threads);
        kval unit = kir_min(k, kir_add(k, kir_mul_i(k, panel, w->width), j), kir_int(k, u - 1));
        kval v = emit_value(w->m, w->q.r, (kval[]){w->dir, kir_add_i(k, unit, gate * u), term});
        kir_store(k, w->pack, kir_add(k, weight_at(w, panel, gate, term), j), kir_cast(k, w->q.type, v));
        kir_end(k);
    }
    kir_end(k);
    kir_end(k);
    kir_end(k);
}

/* Addresses. */

static kval number(const struct rec *w, double v) { return kir_const_f(w->m->k, w->q.type, w->s.lanes, v); }

/* Offset of the thread's vector v in a panel. */
static kval vector_at(const struct rec *w, i64 v)
{
    struct kir *k = w->m->k;
    kval at = kir_int(k, v * w->s.threads * w->s.lanes);
    return w->s.threads > 1 ? kir_add(k, at, kir_mul_i(k, w->t, w->s.lanes)) : at;
}

static struct spot spot_at(const struct rec *w, kval panel, i64 row, i64 v)
{
    struct kir *k = w->m->k;
    struct spot p = {row, kir_add(k, kir_mul_i(k, panel, w->width), vector_at(w, v)), 0};
    if (!w->exact) p.valid = kir_min(k, kir_sub(k, kir_int(k, w->q.c.hidden), p.unit), kir_int(k, w->s.lanes));
    return p;
}

static kval state_at(const struct rec *w, const struct spot *p, kval base)
{
    struct kir *k = w->m->k;
    kval at = kir_add_i(k, p->unit, p->row * w->room);
    return kir_ramp(k, base ? kir_add(k, base, at) : at, 1, w->s.lanes);
}

/* Units of an input; those behind the last one are any number. */
static kval read_units(const struct rec *w, const struct spot *p, value_id v, kval *idx, u32 axis, kval first)
{
    struct kir *k = w->m->k;
    kval unit = p->unit;
    if (p->valid && w->s.lanes == 1) unit = kir_min(k, unit, kir_int(k, w->q.c.hidden - 1));
    else if (p->valid) emit_limit(w->m, p->valid);
    idx[axis] = kir_ramp(k, first ? kir_add(k, first, unit) : unit, 1, w->s.lanes);
    kval x = kir_splat(k, kir_cast(k, w->q.type, emit_value(w->m, v, idx)), w->s.lanes);
    if (p->valid && w->s.lanes > 1) emit_limit(w->m, 0);
    return x;
}

static kval initial_state(const struct rec *w, const struct spot *p, value_id v)
{
    kval idx[MAX_RANK] = {w->dir, w->seq[p->row]};
    return v ? read_units(w, p, v, idx, 2, 0) : number(w, 0);
}

/* Where step `step` of a sequence is in memory. Behind its end that is any step that it does not have. */
static kval place_of(const struct rec *w, i64 row)
{
    struct kir *k = w->m->k;
    const struct op_cell *c = &w->q.c;
    if (!c->reverse[0] && !c->reverse[1]) return w->step;
    kval len = w->len[row] ? w->len[row] : emit_size(w->m, w->q.steps);
    kval back = kir_sub(k, kir_add_i(k, len, -1), w->step);
    if (w->len[row]) back = kir_select(k, kir_lt(k, w->step, len), back, w->step);
    if (c->n_dirs == 1) return back;
    return kir_select(k, kir_bin(k, KI_EQ, w->dir, kir_int(k, 0)), w->step, back);
}

static kval projected(const struct rec *w, const struct spot *p, u32 gate)
{
    struct kir *k = w->m->k;
    kval idx[MAX_RANK] = {place_of(w, p->row), w->seq[p->row]};
    kval first = kir_add_i(k, kir_mul_i(k, w->dir, w->q.c.n_gates * w->q.c.hidden), gate * w->q.c.hidden);
    return read_units(w, p, w->q.x, idx, 2, first);
}

static void store_units(const struct rec *w, const struct spot *p, u32 out, kval *idx, u32 axis, kval v)
{
    struct kir *k = w->m->k;
    if (!emit_wants(w->m, w->q.n, out)) return;
    bool single = p->valid && w->s.lanes == 1;
    if (w->exists[p->row]) kir_if(k, w->exists[p->row]);
    if (single) kir_if(k, kir_lt(k, kir_int(k, 0), p->valid));
    idx[axis] = kir_ramp(k, p->unit, 1, w->s.lanes);
    v = kir_cast(k, emit_type(op_in_dtype(w->q.g, w->q.n, IN_X)), v);
    emit_store_n(w->m, w->q.n->out.v[out], idx, v, single ? 0 : p->valid);
    if (single) kir_end(k);
    if (w->exists[p->row]) kir_end(k);
}

/* Barrier of the threads, if there are several. */
static void synchronise(const struct rec *w)
{
    if (w->t) kir_barrier(w->m->k);
}

/* The panels of this thread. */
static kval open_panels(const struct rec *w)
{
    struct kir *k = w->m->k;
    return kir_loop(k, KL_SERIAL, w->s.split > 1 ? w->t : kir_int(k, 0), kir_int(k, w->panels), w->s.split);
}

/* The matmul. */

static kval acc_at(const struct rec *w, u32 gate, i64 row, i64 v)
{
    return kir_int(w->m->k, (gate * w->s.rows + row) * w->s.nr + v);
}

/* GRU, linear_before_reset: the recurrent product of h is not added to the projected input. */
static bool is_apart(const struct rec *w, u32 gate) { return w->q.c.linear_before_reset && gate == 2; }

static kval bias_apart(const struct rec *w, const struct spot *p)
{
    kval idx[MAX_RANK] = {w->dir};
    return w->q.rb ? read_units(w, p, w->q.rb, idx, 1, 0) : number(w, 0);
}

/* Gates from .. to-1 of a stage. */
struct pass { u32 from, to; };

static void begin_sums(const struct rec *w, const struct stage *s, struct pass p, kval panel, kval acc)
{
    for (u32 g = p.from; g < p.to; g++)
        for (i64 row = 0; row < w->s.rows; row++)
            for (i64 v = 0; v < w->s.nr; v++) {
                struct spot at = spot_at(w, panel, row, v);
                kval x = is_apart(w, s->first + g) ? bias_apart(w, &at) : projected(w, &at, s->first + g);
                kir_store(w->m->k, acc, acc_at(w, g, row, v), x);
            }
}

static void add_term(const struct rec *w, const struct stage *s, struct pass p, kval panel, kval acc, kval term)
{
    struct kir *k = w->m->k;
    kval h[MAX_ROWS];
    for (i64 row = 0; row < w->s.rows; row++)
        h[row] = kir_splat(k, kir_load(k, s->array, kir_add(k, s->at, kir_add_i(k, term, row * w->room))), w->s.lanes);
    for (u32 g = p.from; g < p.to; g++)
        for (i64 v = 0; v < w->s.nr; v++) {
            kval at = kir_add(k, weight_at(w, panel, s->first + g, term), vector_at(w, v));
            kval x = kir_cast(k, w->q.type, kir_load(k, w->pack, kir_ramp(k, at, 1, w->s.lanes)));
            for (i64 row = 0; row < w->s.rows; row++) {
                kval i = acc_at(w, g, row, v);
                kir_store(k, acc, i, kir_fma(k, x, h[row], kir_load(k, acc, i)));
            }
        }
}

static void multiply(const struct rec *w, const struct stage *s, struct pass p, kval panel, kval acc)
{
    struct kir *k = w->m->k;
    i64 n = w->q.c.hidden, whole = n / w->s.ku * w->s.ku;
    if (whole) {
        kval i = kir_loop(k, KL_SERIAL, kir_int(k, 0), kir_int(k, whole), w->s.ku);
        for (i64 j = 0; j < w->s.ku; j++) add_term(w, s, p, panel, acc, kir_add_i(k, i, j));
        kir_end(k);
    }
    for (i64 j = whole; j < n; j++) add_term(w, s, p, panel, acc, kir_int(k, j));
}

/* The cell. */

static kval is_running(const struct rec *w, i64 row)
{
    struct kir *k = w->m->k;
    return w->len[row] ? kir_splat(k, kir_lt(k, w->step, w->len[row]), w->s.lanes) : 0;
}

static kval sum_of(const struct rec *w, kval acc, u32 gate, const struct spot *p, i64 v)
{
    return kir_load(w->m->k, acc, acc_at(w, gate, p->row, v));
}

/* z is kept, r*h is the operand of the second matmul. */
static void finish_reset(const struct rec *w, kval acc, const struct spot *p, i64 v)
{
    struct kir *k = w->m->k;
    kval at = state_at(w, p, 0), h = kir_load(k, w->h, state_at(w, p, w->old));
    kval r = op_cell_activate(k, &w->q.c, 0, w->dir, sum_of(w, acc, 1, p, v));
    kir_store(k, w->z, at, sum_of(w, acc, 0, p, v));
    kir_store(k, w->rh, at, kir_mul(k, r, h));
}

static void finish_step(const struct rec *w, const struct stage *s, kval acc, const struct spot *p, i64 v)
{
    struct kir *k = w->m->k;
    kval from = state_at(w, p, w->old), at = state_at(w, p, 0), runs = is_running(w, p->row), y;
    struct op_cell_step x = {.dir = w->dir, .h = kir_load(k, w->h, from)}, was;
    if (w->mem) x.c = kir_load(k, w->mem, at);
    was = x;
    for (u32 g = 0; g < s->n; g++) x.gate[s->first + g] = sum_of(w, acc, g, p, v);
    if (w->z) x.gate[0] = kir_load(k, w->z, state_at(w, p, 0));
    if (w->q.c.linear_before_reset) x.gate[3] = x.gate[2], x.gate[2] = projected(w, p, 2);
    for (u32 i = 0; i < 3 && w->q.p; i++) {
        kval idx[MAX_RANK] = {w->dir};
        x.peep[i] = read_units(w, p, w->q.p, idx, 1, kir_int(k, i * w->q.c.hidden));
    }
    op_cell_emit(k, &w->q.c, &x);
    y = x.h;
    if (runs) {
        y = kir_select(k, runs, x.h, number(w, 0));
        x.h = kir_select(k, runs, x.h, was.h);
        if (w->mem) x.c = kir_select(k, runs, x.c, was.c);
    }
    kir_store(k, w->h, state_at(w, p, w->new), x.h);
    if (w->mem) kir_store(k, w->mem, at, x.c);
    store_units(w, p, OUT_Y, (kval[MAX_RANK]){place_of(w, p->row), w->dir, w->seq[p->row]}, 3, y);
}

static void do_stage(const struct rec *w, const struct stage *s)
{
    struct kir *k = w->m->k;
    kval panel = open_panels(w);
    kval acc = kir_alloc(k, KS_REG, w->q.type, w->s.lanes, kir_int(k, s->n * w->s.rows * w->s.nr));
    u32 at_once = w->s.gates ? (u32)w->s.gates : s->n;
    for (u32 g = 0; g < s->n; g += at_once) {
        begin_sums(w, s, (struct pass){g, g + at_once}, panel, acc);
        multiply(w, s, (struct pass){g, g + at_once}, panel, acc);
    }
    for (i64 row = 0; row < w->s.rows; row++)
        for (i64 v = 0; v < w->s.nr; v++) {
            struct spot p = spot_at(w, panel, row, v);
            if (s->resets) finish_reset(w, acc, &p, v);
            else finish_step(w, s, acc, &p, v);
        }
    kir_end(k);
    synchronise(w);
}

static void do_step(struct rec *w)
{
    struct kir *k = w->m->k;
    i64 half = w->s.rows * w->room;
    kval odd = kir_mod_i(k, w->step, 2);
    w->old = kir_mul_i(k, odd, half), w->new = kir_sub(k, kir_int(k, half), w->old);
    if (!op_cell_has_two_stages(&w->q.c)) {
        do_stage(w, &(struct stage){0, w->q.c.n_gates, w->h, w->old, false});
        return;
    }
    do_stage(w, &(struct stage){0, 2, w->h, w->old, true});
    do_stage(w, &(struct stage){2, 1, w->rh, kir_int(k, 0), false});
}

/* States before the first and behind the last step. */

static void begin_states(const struct rec *w)
{
    struct kir *k = w->m->k;
    kval panel = open_panels(w);
    for (i64 row = 0; row < w->s.rows; row++)
        for (i64 v = 0; v < w->s.nr; v++) {
            struct spot p = spot_at(w, panel, row, v);
            kval at = state_at(w, &p, 0);
            kir_store(k, w->h, at, initial_state(w, &p, w->q.h0));
            if (w->mem) kir_store(k, w->mem, at, initial_state(w, &p, w->q.c0));
        }
    kir_end(k);
    synchronise(w);
}

static void end_states(const struct rec *w)
{
    struct kir *k = w->m->k;
    if (!emit_wants(w->m, w->q.n, OUT_H) && !emit_wants(w->m, w->q.n, OUT_C)) return;
    kval last = kir_mul_i(k, kir_mod_i(k, emit_size(w->m, w->q.steps), 2), w->s.rows * w->room), panel = open_panels(w);
    for (i64 row = 0; row < w->s.rows; row++)
        for (i64 v = 0; v < w->s.nr; v++) {
            struct spot p = spot_at(w, panel, row, v);
            kval idx[MAX_RANK] = {w->dir, w->seq[row]};
            store_units(w, &p, OUT_H, idx, 2, kir_load(k, w->h, state_at(w, &p, last)));
            if (w->mem) store_units(w, &p, OUT_C, idx, 2, kir_load(k, w->mem, state_at(w, &p, 0)));
        }
    kir_end(k);
}

/* The grid. */

static void find_sequences(struct rec *w, kval block)
{
    struct kir *k = w->m->k;
    kval n = emit_size(w->m, w->q.batch), steps = emit_size(w->m, w->q.steps);
    bool all = sym_divides(w->m->g->sym, w->s.rows, w->q.batch);
    for (i64 i = 0; i < w->s.rows; i++) {
        kval b = kir_add_i(k, kir_mul_i(k, block, w->s.rows), i);
        w->seq[i] = all ? b : kir_min(k, b, kir_add_i(k, n, -1));
        w->exists[i] = all ? 0 : kir_lt(k, b, n);
        if (!w->q.lens) continue;
        kval len = kir_cast(k, DT_I64, emit_value(w->m, w->q.lens, &w->seq[i]));
        w->len[i] = kir_max(k, kir_min(k, len, steps), kir_int(k, 0));
    }
}

static kval state_array(const struct rec *w, i64 copies)
{
    struct kir *k = w->m->k;
    return kir_alloc(k, w->t ? KS_SHARED : KS_WORK, w->q.type, 1, kir_int(k, copies * w->s.rows * w->room));
}

void recurrence_emit(struct emit *m, const struct task *t, const struct recurrence_sched *s)
{
    struct rec w = {.m = m, .s = *s};
    struct kir *k = m->k;
    recurrence_of(&w.q, t);
    w.width = recurrence_width(s), w.panels = recurrence_panels(&w.q, s), w.room = w.panels * w.width;
    w.exact = w.room == w.q.c.hidden;
    bool is_const = graph_value(m->g, w.q.r)->is_const;
    assert(s->rows <= MAX_ROWS && s->nr <= MAX_VECS && (s->threads == 1 || s->split == 1));
    if (is_const) pack_constant(&w);
    emit_args(m);
    if (!is_const) pack_given(&w);
    w.dir = kir_grid(k, kir_int(k, w.q.c.n_dirs));
    kval block = kir_grid(k, emit_size(m, sym_cdiv(m->g->sym, w.q.batch, sym_const(m->g->sym, s->rows))));
    if (s->threads * s->split > 1) w.t = kir_thread(k, 0);
    find_sequences(&w, block);
    w.h = state_array(&w, 2);
    if (w.q.c.kind == CELL_LSTM) w.mem = state_array(&w, 1);
    if (op_cell_has_two_stages(&w.q.c)) w.z = state_array(&w, 1), w.rh = state_array(&w, 1);
    begin_states(&w);
    w.step = kir_loop(k, KL_SERIAL, kir_int(k, 0), emit_size(m, w.q.steps), 1);
    do_step(&w);
    kir_end(k);
    end_states(&w);
    kir_end(k);
    kir_end(k);
}
