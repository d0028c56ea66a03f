// SPDX-License-Identifier: Apache-2.0
//
// wg_up: transposed convolutions by workgroups, as convolutions of stride 1 over
// positions q (trans.h). A position has as many outputs as there are phases.
//
// Where the kernel is a multiple of the stride all phases meet the same inputs with as many taps,
// and a tile holds all of them: the patch is copied once, and the outputs lie densely. Then phases
// count as channels: a tile's channels are [phase][channel]. Otherwise a tile has one phase, so that
// no tap is multiplied that is not there; the number of taps is known when the kernel runs.
//
// Packed weights: [group][block of outputs][block of inputs][taps][cb][phase][channel], or
// [group][first taps][block of outputs][block of inputs][taps][cb][channel].
#include "gen/wg_conv.h"

bool wg_up_of(struct wg_conv *g, const struct task *t)
{
    if (!trans_as_conv(&g->up.t, &g->c, t) || g->up.t.phases > MAX_PHASES) return false;
    g->up.is = true;
    for (u32 i = 2; i < g->c.rank; i++) g->up.span[i] = g->up.t.ax[i].hi - g->up.t.ax[i].lo;
    return true;
}

/* Do all phases meet the same inputs? */
static bool is_even(const struct trans *t)
{
    for (u32 i = 2; i < t->rank; i++)
        if (t->ax[i].d != 1 || t->ax[i].step != t->ax[i].s || t->ax[i].k % t->ax[i].s) return false;
    return true;
}

void wg_up_plan(struct wg_conv *g)
{
    i64 n = g->up.is ? g->up.t.phases : 1, each = g->s.oc / n;
    bool all = n > 1 && is_even(&g->up.t) && g->s.oc % n == 0 && each % i64_max(1, g->s.run) == 0;
    g->up.tile = all ? n : 1;
    g->width = g->s.oc / g->up.tile;
    g->n_wide = ceil_div(g->oc, g->width);
    g->n_out = g->n_wide * (all ? 1 : n);
}

static void pack_dim(const struct wg_conv *g, struct pack *p, i64 n, u32 axis, i64 stride)
{
    p->dim[p->n].extent = sym_const(g->c.g->sym, n);
    p->dim[p->n].axis = axis;
    p->dim[p->n++].stride = stride;
}

static void pack_phases(struct wg_conv *g, struct pack *p)
{
    for (u32 i = 2; i < g->c.rank; i++) pack_dim(g, p, g->up.t.ax[i].step, i, 1);
}

void wg_up_pack(struct wg_conv *g, struct pack *p)
{
    bool all = g->up.tile > 1;
    pack_dim(g, p, g->groups, 0, g->ic);
    if (!all) pack_phases(g, p);
    pack_dim(g, p, g->n_wide, 1, g->width);
    pack_dim(g, p, g->n_in, 0, g->terms);
    for (u32 i = 0; i < g->n_order; i++)
        pack_dim(g, p, g->c.k[g->order[i]], g->order[i], g->up.t.ax[g->order[i]].step);
    pack_dim(g, p, g->terms, 0, 1);
    if (all) pack_phases(g, p);
    pack_dim(g, p, g->width, 1, 1);
}

kval wg_up_open(struct wg_conv *g, kval block)
{
    struct kir *k = g->m->k;
    if (!g->up.is || g->up.tile > 1) return block;
    kval n = kir_mod_i(k, block, g->up.t.phases);
    for (u32 i = g->c.rank; i-- > 2;) {
        g->up.phase[i] = kir_mod_i(k, n, g->up.t.ax[i].s);
        n = kir_div_i(k, n, g->up.t.ax[i].s);
    }
    return kir_div_i(k, block, g->up.t.phases);
}

/* A fact of the tile's phase along an axis. */
static kval fact(const struct wg_conv *g, u32 axis, enum trans_fact f)
{
    const struct trans_axis *a = &g->up.t.ax[axis];
    kval zero = kir_int(g->m->k, 0); /* of all phases alike */
    return trans_fact(g->m->k, a, f, g->up.tile > 1 ? zero : g->up.phase[axis]);
}

kval wg_up_first(const struct wg_conv *g, kval number)
{
    struct kir *k = g->m->k;
    for (u32 i = 2; g->up.is && g->up.tile == 1 && i < g->c.rank; i++)
        number = kir_add(k, kir_mul_i(k, number, g->up.t.ax[i].step), fact(g, i, FACT_FIRST));
    return number;
}

kval wg_up_base(const struct wg_conv *g, u32 axis)
{
    if (!g->up.is) return kir_int(g->m->k, 0);
    return kir_add_i(g->m->k, fact(g, axis, FACT_OFFSET), -g->up.t.ax[axis].lo);
}

kval wg_up_taps(const struct wg_conv *g, u32 axis)
{
    return !g->up.is || trans_same_taps(&g->up.t.ax[axis]) ? 0 : fact(g, axis, FACT_TAPS);
}

kval wg_up_output(const struct wg_conv *g, u32 axis, kval q, kval c)
{
    struct emit *m = g->m;
    struct kir *k = m->k;
    const struct trans_axis *a = &g->up.t.ax[axis];
    if (!g->up.is || axis < 2) return q;
    kval r = g->up.phase[axis];
    if (g->up.tile > 1) {
        i64 inner = g->width;
        for (u32 i = axis + 1; i < g->c.rank; i++) inner *= g->up.t.ax[i].s;
        r = kir_mod_i(k, kir_div_i(k, c, inner), a->s);
    }
    return trans_output(m, a, q, r);
}
