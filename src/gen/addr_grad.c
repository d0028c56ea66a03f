// SPDX-License-Identifier: Apache-2.0
//
// addr_grad: the gradient of a convolution's weights as a contraction by a workgroup: rows are output channels, columns input channels and
// taps, the one innermost that lies densely, terms the positions of the batch's outputs. Which input a tap reads is found
// while it is copied to shared memory; outside of the input, and behind the last position, there are zeros.
//
// Weights are few and positions many: workgroups share the positions. The results pass through a TEMP array in any case, which has rows and columns
// as the GEMM has, and the epilogue is a second grid.
//
// Dims: rows m, columns n = taps x c (or c x taps) of a conv group, terms k = n, o...
#include "gen/addr_grad.h"

enum { FIND = 40 /* operations that find an element */ };

bool grad_address_of(struct grad_address *s, const struct task *t)
{
    const struct grad *q = &s->q;
    if (!grad_of(&s->q, t)) return false;
    struct symtab *st = t->g.sym;
    const struct conv *c = &q->x;
    s->by_channel = conv_input_layout(c) == LAYOUT_CLAST && q->ic > 1, s->taps = 1;
    for (u32 a = 2; a < c->rank; a++) s->taps *= c->k[a];
    s->x = (struct gemm){.g = &t->g, .a = q->y.x, .b = c->x, .y = q->dw, .m_axis = 0, .n_axis = s->by_channel ? 1 : c->rank - 1};
    struct gemm *x = &s->x;
    x->as = &graph_value(x->g, x->a)->shape, x->bs = &graph_value(x->g, x->b)->shape, x->ys = &graph_value(x->g, x->y)->shape;
    x->type = c->type;
    x->m = sym_const(st, q->oc), x->n = sym_const(st, q->ic * s->taps), x->k = sym_const(st, 1);
    for (u32 a = 0; a < c->rank; a++)
        if (a != 1) x->k = sym_mul(st, x->k, c->out[a]);
    x->outer = (struct space){.rank = c->rank};
    if (q->groups > 1) x->outer.g[x->outer.n++] = (struct axis_run){sym_const(st, q->groups), 0};
    return true;
}

/* Operands. */

/* A position of the outputs: its index on every axis but that of channels. */
static void position(struct emit *m, const struct conv *c, kval number, kval idx[MAX_RANK])
{
    for (u32 a = c->rank; a-- > 0;) {
        if (a == 1) continue;
        kval n = emit_size(m, c->out[a]);
        idx[a] = a ? kir_mod(m->k, number, n) : number;
        number = a ? kir_div(m->k, number, n) : number;
    }
}

/* From the index of an output to that of the input under a tap, clamped; is it inside? */
static void under_tap(struct emit *m, const struct conv *c, kval tap, kval idx[MAX_RANK], kval *ok)
{
    struct kir *k = m->k;
    kval zero = kir_int(k, 0);
    for (u32 a = c->rank; a-- > 2;) {
        kval n = emit_size(m, c->in[a]), own = kir_mul_i(k, kir_mod_i(k, tap, c->k[a]), c->dil[a]);
        tap = kir_div_i(k, tap, c->k[a]);
        kval at = kir_sub(k, kir_add(k, kir_mul_i(k, idx[a], c->stride[a]), own), emit_size(m, c->pad[a]));
        *ok = kir_and(k, *ok, kir_bin(k, KI_LE, zero, at));
        *ok = kir_and(k, *ok, kir_lt(k, at, n));
        idx[a] = kir_max(k, kir_min(k, at, kir_add_i(k, n, -1)), zero);
    }
}

/* Row or column i of a block; those behind the end are the last ones again. */
static kval across(const struct operand *s, kval i, u32 lanes)
{
    struct contraction *p = s->p;
    struct kir *k = p->m->k;
    kval at = kir_add(k, s->first, i);
    if (sym_divides(p->m->g->sym, s->block, s->across)) return at;
    return kir_min(k, at, kir_add_i(k, emit_size(p->m, s->across), -(i64)lanes));
}

static kval read(const struct operand *s, kval term, kval i, u32 lanes)
{
    struct contraction *p = s->p;
    struct kir *k = p->m->k;
    const struct grad_address *x = p->address->user;
    const struct conv *c = s == &p->a ? &x->q.y : &x->q.x;
    kval idx[MAX_RANK] = {0}, ok = 0, n = emit_size(p->m, p->x.k), at = across(s, i, lanes), channel = at;
    term = kir_add(k, kir_mul_i(k, p->k_block, p->s.bk), term);
    if (!sym_divides(p->m->g->sym, p->s.bk, p->x.k)) {
        ok = kir_lt(k, term, n);
        term = kir_min(k, term, kir_add_i(k, n, -1));
    }
    position(p->m, c, term, idx);
    if (s == &p->b) {
        kval tap = x->by_channel ? kir_div_i(k, at, c->ic) : kir_mod_i(k, at, x->taps);
        channel = x->by_channel ? kir_mod_i(k, at, c->ic) : kir_div_i(k, at, x->taps);
        under_tap(p->m, c, tap, idx, &ok);
    }
    idx[1] = kir_ramp(k, kir_add(k, kir_mul_i(k, p->pos[0], c->ic), channel), 1, lanes);
    kval v = kir_splat(k, emit_value(p->m, c->x, idx), lanes);
    return ok ? kir_select(k, ok, v, kir_const_f(k, kir_dtype(k, v), 1, 0)) : v;
}

/* In the TEMP array, where columns follow each other across the axes that they stand for. */
static kval index_of(const struct contraction *p, kval row, kval col, kval idx[MAX_RANK])
{
    struct kir *k = p->m->k;
    const struct grad_address *x = p->address->user;
    for (u32 i = 0; i < MAX_RANK; i++) idx[i] = kir_int(k, 0);
    idx[0] = kir_add(k, kir_mul_i(k, p->pos[0], x->q.oc), row);
    idx[p->x.n_axis] = col;
    return 0;
}

void grad_address_open(struct grad_address *x, struct contraction *p)
{
    struct symtab *st = p->m->g->sym;
    bool dense = conv_input_layout(&x->q.y) == LAYOUT_CLAST;
    x->address = (struct addressing){.user = x,
                                     .a = {!dense, sym_const(st, dense ? x->q.oc : 1)},
                                     .b = {false, sym_const(st, x->by_channel ? x->q.ic : 1)},
                                     .read = read,
                                     .index = index_of};
    p->address = &x->address;
}

static bool analyze(struct contract_task *c, const struct task *t, struct arena *a)
{
    struct grad_address *s = arena_new(a, struct grad_address);
    c->facts = s;
    if (!grad_address_of(s, t)) return false;
    c->x = s->x, c->find = FIND;
    return true;
}

static void open(const struct contract_task *c, struct contraction *p, const struct task *t)
{
    (void)t;
    grad_address_open(c->facts, p);
}

const struct contract_form contract_grad = {analyze, open};
