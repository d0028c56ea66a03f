// SPDX-License-Identifier: Apache-2.0
//
// attention_place: keys and values that are read where they lie, once, for few rows of queries: vectors along the head. What is between their place and the
// products (views of heads, prologues) is evaluated on the way.
#include "gen/attention.h"

static kval spread(const struct tile *t, const struct tile_in *a, kval at)
{
    struct kir *k = t->m->k;
    return kir_splat(k, kir_load(k, a->buf, at), t->lanes);
}

/* The values of a key, vectors of columns. */
static void add_key(struct gemm_kernel *p, const struct tile *t, const struct cpu_piece *e, kval i)
{
    struct emit *m = p->m;
    struct kir *k = m->k;
    struct tile_in in = p->run.a;
    kval right[TILE_COLUMNS], idx[MAX_RANK], key = kir_add(k, p->c.at, i);
    for (i64 j = 0; j < t->nr; j++) {
        kval c = kir_add_i(k, kir_mul_i(k, e->at[CPU_BLOCK], p->width), j * p->lanes);
        gemm_index(m, &p->x, p->x.b, p->pos, key, kir_ramp(k, c, 1, p->lanes), idx);
        emit_limit(m, e->is_full ? 0 : kir_sub(k, p->n, c));
        right[j] = kir_splat(k, kir_cast(k, t->type, emit_value(m, p->x.b, idx)), p->lanes);
        emit_limit(m, 0);
    }
    in.at = kir_add(k, in.at, i);
    tile_add(t, &in, right, spread, kir_fma);
}

void attention_multiply_values(struct cpu_contraction *c, struct tile *t, const struct cpu_piece *e, struct tile_out *o)
{
    struct gemm_kernel *p = c->own;
    struct kir *k = p->m->k;
    add_key(p, t, e, kir_loop(k, KL_SERIAL, kir_int(k, 0), c->len, 1));
    kir_end(k);
}

const struct cpu_addressing attention_value_rows = {.target = gemm_target, .find = gemm_find, .multiply = attention_multiply_values};

/* A vector of terms of n keys, from `key` on, times those of all rows of the tile. */
static void add_terms(struct attention_kernel *a, kval acc, kval key, i64 n, kval at, kval limit)
{
    struct gemm_kernel *p = &a->first;
    struct emit *m = a->m;
    struct kir *k = m->k;
    kval right[TILE_COLUMNS], idx[MAX_RANK];
    emit_limit(m, limit);
    for (i64 j = 0; j < n; j++) {
        gemm_index(m, &p->x, p->x.b, p->pos, kir_ramp(k, at, 1, p->lanes), kir_add_i(k, key, j), idx);
        right[j] = kir_splat(k, kir_cast(k, DT_F32, emit_value(m, p->x.b, idx)), p->lanes);
        if (limit) right[j] = kir_select(k, kir_lt(k, kir_ramp(k, kir_int(k, 0), 1, p->lanes), limit), right[j], kir_const_f(k, DT_F32, p->lanes, 0));
    }
    for (i64 i = 0; i < a->s.mr; i++) {
        kval left = emit_load(m, p->left, kir_ramp(k, kir_add(k, kir_mul_i(k, p->pitch, i), at), 1, p->lanes));
        for (i64 j = 0; j < n; j++) {
            kval to = kir_int(k, i * n + j);
            kir_store(k, acc, to, kir_fma(k, left, right[j], kir_load(k, acc, to)));
        }
    }
    emit_limit(m, 0);
}

/* Scores of n keys. */
static void dot_keys(struct attention_kernel *a, kval key, i64 n)
{
    struct gemm_kernel *p = &a->first;
    struct kir *k = a->m->k;
    i64 cells = a->s.mr * n, lanes = p->lanes, whole = p->static_k / lanes * lanes;
    kval acc = kir_alloc(k, KS_REG, DT_F32, p->lanes, kir_int(k, cells)), column = p->to_first ? kir_sub(k, key, p->to_first) : key;
    for (i64 i = 0; i < cells; i++) kir_store(k, acc, kir_int(k, i), kir_const_f(k, DT_F32, p->lanes, 0));
    if (whole) {
        kval at = kir_loop(k, KL_SERIAL, kir_int(k, 0), kir_int(k, whole), lanes);
        add_terms(a, acc, key, n, at, 0);
        kir_end(k);
    }
    if (whole < p->static_k) add_terms(a, acc, key, n, kir_int(k, whole), kir_int(k, p->static_k - whole));
    for (i64 i = 0; i < a->s.mr; i++)
        for (i64 j = 0; j < n; j++) {
            kval sum = kir_load(k, acc, kir_int(k, i * n + j)), to = kir_add(k, kir_mul_i(k, a->pitch, i), kir_add_i(k, column, j));
            kir_store(k, a->scores, to, kir_un(k, KI_HADD, sum));
        }
}

void attention_dot_keys(struct attention_kernel *a, kval from, kval to)
{
    struct kir *k = a->m->k;
    kval n = kir_sub(k, to, from), whole = kir_add(k, from, kir_mul_i(k, kir_div_i(k, n, a->s.nr), a->s.nr));
    dot_keys(a, kir_loop(k, KL_SERIAL, from, whole, a->s.nr), a->s.nr);
    kir_end(k);
    if (a->s.nr == 1) return;
    dot_keys(a, kir_loop(k, KL_SERIAL, whole, to, 1), 1);
    kir_end(k);
}
