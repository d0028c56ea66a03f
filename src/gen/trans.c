// SPDX-License-Identifier: Apache-2.0
//
// trans: transposed convolutions taken apart. Outputs whose position (plus the begin pad) leaves
// the same residues by the strides meet the same taps, and among themselves they are an ordinary
// convolution of stride 1 with few taps: position p = stride*q + r takes input q + off - t*d for the
// taps k = first + t*step, t = 0 ...
#include "gen/trans.h"

static i64 gcd(i64 a, i64 b) { return b ? gcd(b, a % b) : a; }

static struct trans_phase phase_of(const struct trans_axis *a, i64 dilation, i64 r)
{
    struct trans_phase p = {.lead = r - a->begin};
    for (i64 k = 0; k < a->step && k < a->k; k++)
        if (k * dilation % a->s == r)
            p = (struct trans_phase){k, (a->k - k + a->step - 1) / a->step, (r - k * dilation) / a->s,
                               r - a->begin};
    return p;
}

static void axis_of(struct trans_axis *a, struct symtab *t, i64 dilation)
{
    sym begin = sym_const(t, a->begin), s = sym_const(t, a->s);
    i64 common = gcd(a->s, dilation);
    a->step = a->s / common, a->d = dilation / common;
    bool any = false;
    for (i64 r = 0; r < a->s; r++) {
        struct trans_phase p = a->phase[r] = phase_of(a, dilation, r);
        if (!p.n) continue;
        i64 last = p.off - (p.n - 1) * a->d;
        a->lo = any ? i64_min(a->lo, last) : last;
        a->hi = any ? i64_max(a->hi, p.off) : p.off;
        a->n_max = i64_max(a->n_max, p.n);
        any = true;
    }
    a->q_lo = sym_div(t, begin, s);
    a->n_q = sym_sub(t, sym_cdiv(t, sym_add(t, a->out, begin), s), a->q_lo);
}

bool trans_of(struct trans *c, const struct task *t)
{
    const struct graph *g = &t->g;
    struct op_window w;
    i64 wd[MAX_RANK];
    if (!t->anchor || !(op_of(g, t->anchor)->props & OP_TRANSPOSED)) return false;
    const struct node *n = graph_node(g, t->anchor);
    *c = (struct trans){.g = g,
                        .x = n->in.v[0],
                        .w = n->in.v[1],
                        .b = op_has_in(n, 2) ? n->in.v[2] : 0,
                        .y = n->out.v[0],
                        .phases = 1};
    const struct value *x = graph_value(g, c->x), *wt = graph_value(g, c->w),
                       *y = graph_value(g, c->y);
    if (!shape_is_static(g->sym, &wt->shape, wd) || !dtype_is_float(x->dtype)) return false;
    op_window_get(g, n, &w);
    c->rank = x->shape.rank, c->type = emit_type(y->dtype);
    c->groups = attr_int(n, "group", 1), c->ic = wd[0] / c->groups, c->oc = wd[1];
    for (u32 i = 2; i < c->rank; i++) {
        struct trans_axis *a = &c->ax[i];
        a->s = w.stride[i - 2], a->k = w.kernel[i - 2],
        a->begin = gen_static(g, w.begin[i - 2], -1);
        a->in = x->shape.dim[i], a->out = y->shape.dim[i];
        c->phases *= a->s;
        if (a->s > MAX_PHASES || a->begin < 0) return false;
        axis_of(a, g->sym, w.dilation[i - 2]);
    }
    return c->ic > 0 && c->oc > 0;
}

static void set_axis(struct conv *c, const struct trans_axis *a, u32 i)
{
    struct symtab *t = c->g->sym;
    c->stride[i] = 1, c->dil[i] = a->d, c->k[i] = i64_max(1, a->n_max);
    c->out[i] = a->n_q;
    c->pad[i] = sym_sub(t, sym_const(t, -a->lo), a->q_lo);
    c->free[i] = false;
    c->present *= (double)a->k / (double)(a->s * c->k[i]);
}

bool trans_as_conv(struct trans *x, struct conv *c, const struct task *t)
{
    if (!trans_of(x, t)) return false;
    conv_window(c, &t->g, graph_node(&t->g, t->anchor));
    c->w = x->w, c->b = x->b;
    c->groups = x->groups, c->ic = x->ic, c->oc = x->oc;
    c->no_pad = c->point = false;
    c->phases = x->phases;
    for (u32 i = 2; i < c->rank; i++) set_axis(c, &x->ax[i], i);
    return true;
}

static i64 fact_of(const struct trans_phase *p, enum trans_fact f)
{
    switch (f) {
    case FACT_FIRST: return p->n ? p->first : 0;
    case FACT_TAPS: return p->n;
    case FACT_OFFSET: return p->off;
    }
    unreachable();
}

kval trans_fact(struct kir *k, const struct trans_axis *a, enum trans_fact f, kval phase)
{
    kval v = kir_int(k, fact_of(&a->phase[0], f));
    for (i64 r = 1; r < a->s; r++) {
        i64 x = fact_of(&a->phase[r], f);
        if (x == fact_of(&a->phase[r - 1], f)) continue;
        v = kir_select(k, kir_lt(k, phase, kir_int(k, r)), v, kir_int(k, x));
    }
    return v;
}

kval trans_phase_of(struct kir *k, const struct trans *c, kval number, u32 axis)
{
    for (u32 a = c->rank - 1; a > axis; a--) number = kir_div_i(k, number, c->ax[a].s);
    return kir_mod_i(k, number, c->ax[axis].s);
}

bool trans_same_taps(const struct trans_axis *a)
{
    bool same = a->phase[0].n > 0;
    for (i64 r = 1; r < a->s; r++) same = same && a->phase[r].n == a->phase[0].n;
    return same;
}

kval trans_output(struct emit *m, const struct trans_axis *a, kval q, kval phase)
{
    struct kir *k = m->k;
    q = kir_add(k, q, emit_size(m, a->q_lo));
    return kir_add_i(k, kir_add(k, kir_mul_i(k, q, a->s), phase), -a->begin);
}
