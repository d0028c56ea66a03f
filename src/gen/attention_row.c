// SPDX-License-Identifier: Apache-2.0
//
// attention_row: what all ways to go through the keys share: where a row of scores lies in the values that are computed from it, and a product of the
// iteration's rows with some blocks of columns.
#include "gen/attention.h"

/* The index at which an element of p asks for elements of the reductions, of the same row. */
struct asked {
    kval idx[MAX_RANK];
    u32 rank;
};

static kval note_index(struct emit *m, const void *user, const kval *idx)
{
    struct asked *a = (struct asked *)user;
    for (u32 i = 0; i < a->rank; i++) a->idx[i] = idx[i];
    return kir_const_f(m->k, DT_F32, 1, 0);
}

static kval some_number(struct emit *m, const void *user, const kval *idx) { return kir_const_f(m->k, DT_F32, 1, 1); }

void attention_find_row(struct attention_kernel *a, kval row)
{
    struct emit *m = a->m;
    struct rows *r = &a->rows;
    struct asked asked = {.rank = r->s.sp.rank};
    gemm_index(m, &a->x.values, a->x.p, a->second.pos, row, kir_int(m->k, 0), a->p);
    for (u32 i = 0; i < MAX_RANK; i++) asked.idx[i] = kir_int(m->k, 0);
    for (u32 i = 0; i < r->x.n; i++) {
        emit_bind(m, r->x.red[i].in, note_index, &asked);
        emit_bind(m, r->x.red[i].out, some_number, NULL);
    }
    emit_bind(m, a->x.scores.y, note_index, &asked);
    emit_value(m, a->x.p, a->p);
    rows_forget(r);
    emit_bind(m, a->x.scores.y, NULL, NULL);
    for (u32 g = 0; g < r->s.sp.n; g++)
        if (!r->s.reduced[g]) r->at[g] = asked.idx[r->s.sp.g[g].axis];
}

void attention_product(struct gemm_kernel *p, kval from, kval to)
{
    p->c.n_levels = 0;
    gemm_set_levels(p, from, to);
    cpu_nest(&p->c, NULL, cpu_tile);
}
