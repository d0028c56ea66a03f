// SPDX-License-Identifier: Apache-2.0
//
// halo_up: transposed convolutions over spatial tiles, as convolutions of stride 1 over
// positions q (trans.h). A position has as many outputs as there are phases.
//
// Where the kernel is a multiple of the stride all phases meet the same inputs with as many taps,
// and a tile holds all of them: the input tile is copied once, and the outputs lie densely. Then phases
// count as channels: a tile's channels are [phase][channel]. Otherwise a tile has one phase, so that
// no tap is multiplied that is not there; the number of taps is known when the kernel runs.
//
// Packed weights: [conv group][block of outputs][block of inputs][taps][bk][phase][channel], or
// [conv group][first taps][block of outputs][block of inputs][taps][bk][channel].
#include "gen/halo.h"

bool halo_up_of(struct halo_task *q, const struct task *t)
{
    if (!trans_as_conv(&q->trans, &q->c, t) || q->trans.phases > MAX_PHASES) return false;
    q->up = true;
    for (u32 i = 2; i < q->c.rank; i++) q->span[i] = q->trans.ax[i].hi - q->trans.ax[i].lo;
    return true;
}

/* Do all phases meet the same inputs? */
static bool is_even(const struct trans *t)
{
    for (u32 i = 2; i < t->rank; i++)
        if (t->ax[i].d != 1 || t->ax[i].step != t->ax[i].s || t->ax[i].k % t->ax[i].s) return false;
    return true;
}

void halo_up_plan(struct halo_plan *p)
{
    i64 n = p->q->up ? p->q->trans.phases : 1, each = p->tile_oc / n;
    bool all = n > 1 && is_even(&p->q->trans) && p->tile_oc % n == 0 && each % i64_max(1, p->s.run) == 0;
    p->phases = all ? n : 1;
    p->width = p->tile_oc / p->phases;
    p->n_wide = ceil_div(p->oc, p->width);
    p->n_out = p->n_wide * (all ? 1 : n);
}

kval halo_up_open(struct halo *h, kval block)
{
    struct kir *k = h->m->k;
    if (!h->q->up || h->p->phases > 1) return block;
    kval n = kir_mod_i(k, block, h->q->trans.phases);
    for (u32 i = h->q->c.rank; i-- > 2;) {
        h->phase[i] = kir_mod_i(k, n, h->q->trans.ax[i].s);
        n = kir_div_i(k, n, h->q->trans.ax[i].s);
    }
    return kir_div_i(k, block, h->q->trans.phases);
}

/* A fact of the tile's phase along an axis. */
static kval fact(const struct halo *h, u32 axis, enum trans_fact f)
{
    const struct trans_axis *a = &h->q->trans.ax[axis];
    kval zero = kir_int(h->m->k, 0); /* of all phases alike */
    return trans_fact(h->m->k, a, f, h->p->phases > 1 ? zero : h->phase[axis]);
}

kval halo_up_first(const struct halo *h, kval number)
{
    struct kir *k = h->m->k;
    for (u32 i = 2; h->q->up && h->p->phases == 1 && i < h->q->c.rank; i++)
        number = kir_add(k, kir_mul_i(k, number, h->q->trans.ax[i].step), fact(h, i, FACT_FIRST));
    return number;
}

kval halo_up_base(const struct halo *h, u32 axis)
{
    if (!h->q->up) return kir_int(h->m->k, 0);
    return kir_add_i(h->m->k, fact(h, axis, FACT_OFFSET), -h->q->trans.ax[axis].lo);
}

kval halo_up_taps(const struct halo *h, u32 axis)
{
    return !h->q->up || trans_same_taps(&h->q->trans.ax[axis]) ? 0 : fact(h, axis, FACT_TAPS);
}

kval halo_up_output(const struct halo *h, u32 axis, kval q, kval c)
{
    struct emit *m = h->m;
    struct kir *k = m->k;
    const struct trans_axis *a = &h->q->trans.ax[axis];
    if (!h->q->up || axis < 2) return q;
    kval r = h->phase[axis];
    if (h->p->phases > 1) {
        i64 inner = h->p->width;
        for (u32 i = axis + 1; i < h->q->c.rank; i++) inner *= h->q->trans.ax[i].s;
        r = kir_mod_i(k, kir_div_i(k, c, inner), a->s);
    }
    return trans_output(m, a, q, r);
}
