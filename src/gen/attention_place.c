// SPDX-License-Identifier: Apache-2.0
//
// attention_place: keys and values that are read where they lie, once, for few rows of queries: vectors along the head. What is between their place and the
// products (views of heads, prologues) is evaluated on the way.
#include "gen/attention.h"

enum { LINE = 64, DISTANCE = 16384, TOGETHER = 4 }; /* bytes; bytes from what is used to what is requested; keys, see attention_sum_values */

/* Bytes of an element of the right operand where it lies, as far as the graph says. */
static i64 size_in_place(const struct gemm_kernel *p) { return (i64)dtype_size(graph_value(p->x.g, p->x.b)->dtype); }

/* The load that a value comes from, through conversions; NULL: it is computed. */
static const struct kir_ins *load_of(const struct kir *k, kval v)
{
    const struct kir_ins *x = kir_at(k, v);
    if (x->op == KI_CAST) return load_of(k, x->a);
    return x->op == KI_LOAD && kir_is_far(kir_at(k, x->a)) ? x : NULL;
}

/* Requests the line of an element of the right operand: rows of keys side by side, or by parts, are no streams that hardware knows. */
static void ask(const struct gemm_kernel *p, const kval *idx)
{
    struct kir *k = p->m->k;
    const struct kir_ins *x = load_of(k, emit_value(p->m, p->x.b, idx));
    if (x) kir_prefetch_to(k, KC_SECOND, x->a, x->b);
}

/* The key to request while `key` is used, of n; its bytes. */
static kval key_ahead(struct kir *k, kval key, kval n, i64 bytes)
{
    return kir_min(k, kir_add_i(k, key, i64_max(1, DISTANCE / bytes)), kir_add_i(k, n, -1));
}

static kval spread(const struct tile *t, const struct tile_in *a, kval at)
{
    struct kir *k = t->m->k;
    return kir_splat(k, kir_load(k, a->buf, at), t->lanes);
}

static void ask_values(const struct gemm_kernel *p, const struct tile *t, const struct cpu_piece *e, kval key)
{
    struct kir *k = p->m->k;
    const i64 size = size_in_place(p);
    kval idx[MAX_RANK], next = key_ahead(k, key, p->k, size * gen_static(p->x.g, p->x.n, LINE));
    for (i64 j = 0; j < t->nr; j++) {
        if (j * p->lanes * size % LINE) continue;
        kval c = kir_add_i(k, kir_mul_i(k, e->at[CPU_BLOCK], p->width), j * p->lanes);
        gemm_index(p->m, &p->x, p->x.b, p->pos, next, e->is_full ? c : kir_min(k, c, kir_add_i(k, p->n, -1)), idx);
        ask(p, idx);
    }
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
    if (p->s.ahead) ask_values(p, t, e, key);
    in.at = kir_add(k, in.at, i);
    tile_add(t, &in, right, spread, kir_fma);
}

void attention_multiply_values(struct cpu_contraction *c, struct tile *t, const struct cpu_piece *e, struct tile_out *o)
{
    struct gemm_kernel *p = c->own;
    struct kir *k = p->m->k;
    i64 n;
    add_key(p, t, e, kir_loop(k, kir_is_const(k, c->len, &n) && n == TOGETHER ? KL_UNROLL : KL_SERIAL, kir_int(k, 0), c->len, 1));
    kir_end(k);
}

const struct cpu_addressing attention_value_rows = {.target = gemm_target, .find = gemm_find, .multiply = attention_multiply_values};

static void sum_part(struct gemm_kernel *p, kval block, kval from, kval len)
{
    p->is_part = true, p->c.at = from, p->c.len = len;
    p->first = kir_sub(p->m->k, from, block);
    attention_product(p, kir_int(p->m->k, 0), p->n_blocks);
}

/* Of a single row and values in place whose rows are of several blocks of columns, a few keys at a time: whole rows follow each other, as hardware prefetches
   them. */
void attention_sum_values(struct attention_kernel *a, kval from, kval to)
{
    struct gemm_kernel *p = &a->second;
    struct kir *k = a->m->k;
    i64 columns = gen_static(p->x.g, p->x.n, -1);
    kval rest = from;
    if (a->s.values == VALUES_PLACE && a->s.mr == 1 && !p->s.ahead && (columns < 0 || columns > p->width)) {
        rest = kir_add(k, from, kir_mul_i(k, kir_div_i(k, kir_sub(k, to, from), TOGETHER), TOGETHER));
        sum_part(p, from, kir_loop(k, KL_SERIAL, from, rest, TOGETHER), kir_int(k, TOGETHER));
        kir_end(k);
    }
    sum_part(p, from, rest, kir_sub(k, to, rest));
}

/* Terms that a vector of the keys has: pairs, of a dot product of 16-bit operands. */
static i64 terms_of_vector(const struct gemm_kernel *p) { return p->lanes * p->dot_k; }

/* A vector of terms of a key, of which `limit` exist; 0: all. */
static kval key_terms(const struct gemm_kernel *p, kval key, kval at, kval limit)
{
    struct kir *k = p->m->k;
    const u32 n = (u32)terms_of_vector(p);
    kval idx[MAX_RANK];
    gemm_index(p->m, &p->x, p->x.b, p->pos, kir_ramp(k, at, 1, n), key, idx);
    kval v = kir_splat(k, kir_cast(k, DT_F32, emit_value(p->m, p->x.b, idx)), n);
    if (limit) v = kir_select(k, kir_lt(k, kir_ramp(k, kir_int(k, 0), 1, n), limit), v, kir_const_f(k, DT_F32, n, 0));
    return kir_cast(k, p->right_type, v);
}

/* A vector of terms of n keys, from `key` on, times those of all rows of the tile. */
static void add_terms(struct attention_kernel *a, kval acc, kval key, i64 n, kval at, kval limit)
{
    struct gemm_kernel *p = &a->first;
    struct emit *m = a->m;
    struct kir *k = m->k;
    kval right[TILE_COLUMNS];
    emit_limit(m, limit);
    for (i64 j = 0; j < n; j++) right[j] = key_terms(p, kir_add_i(k, key, j), at, limit);
    for (i64 i = 0; i < a->s.mr; i++) {
        kval left = emit_load(m, p->left, kir_ramp(k, kir_add(k, kir_mul_i(k, p->pitch, i), at), 1, (u32)terms_of_vector(p)));
        for (i64 j = 0; j < n; j++) {
            kval to = kir_int(k, i * n + j), sum = kir_load(k, acc, to);
            kir_store(k, acc, to, p->dot_k > 1 ? kir_dot(k, left, right[j], sum) : kir_fma(k, left, right[j], sum));
        }
    }
    emit_limit(m, 0);
}

static void ask_keys(const struct attention_kernel *a, kval key, i64 n, kval at)
{
    const struct gemm_kernel *p = &a->first;
    struct kir *k = p->m->k;
    kval idx[MAX_RANK];
    for (i64 j = 0; j < n; j++) {
        gemm_index(p->m, &p->x, p->x.b, p->pos, at, key_ahead(k, kir_add_i(k, key, j), p->n, size_in_place(p) * p->static_k), idx);
        ask(p, idx);
    }
}

/* All terms of n keys. */
static void add_all_terms(struct attention_kernel *a, kval acc, kval key, i64 n)
{
    const struct gemm_kernel *p = &a->first;
    struct kir *k = a->m->k;
    const i64 vector = terms_of_vector(p), line = i64_max(vector, LINE / size_in_place(p)), step = p->static_k % line ? vector : line;
    const i64 whole = p->static_k / vector * vector;
    for (i64 i = 0; i < a->s.mr * n; i++) kir_store(k, acc, kir_int(k, i), kir_const_f(k, DT_F32, p->lanes, 0));
    if (whole) {
        kval at = kir_loop(k, KL_SERIAL, kir_int(k, 0), kir_int(k, whole), step);
        for (i64 i = 0; i < step; i += vector) add_terms(a, acc, key, n, kir_add_i(k, at, i), 0);
        if (p->s.ahead) ask_keys(a, key, n, at);
        kir_end(k);
    }
    if (whole < p->static_k) add_terms(a, acc, key, n, kir_int(k, whole), kir_int(k, p->static_k - whole));
}

static kval add_halves(struct kir *k, kval a, kval b, u32 lanes) { return kir_add(k, kir_zip(k, a, b, 0, lanes), kir_zip(k, a, b, lanes, lanes)); }

/* The sums of the lanes of n vectors, all at once: each step interleaves two vectors and adds the halves, so that as many additions add up several vectors as
   one. Returns a vector of `each` lanes for each of the sums, alike. */
static kval sums_of_lanes(struct kir *k, kval *v, i64 n, u32 lanes, i64 *each)
{
    u32 step = 1;
    for (; n > 1; n = (n + 1) / 2, step *= 2) {
        const i64 half = (n + 1) / 2;
        for (i64 i = 0; i < half; i++) v[i] = add_halves(k, v[i], v[i + half < n ? i + half : i], lanes);
    }
    *each = lanes / step;
    for (; step < lanes; step *= 2) v[0] = add_halves(k, v[0], v[0], lanes);
    return v[0];
}

/* The scores of a row with n keys side by side, sums of lanes, to `to` on. */
static void store_scores(struct attention_kernel *a, kval *sum, i64 n, kval to)
{
    struct kir *k = a->m->k;
    const u32 lanes = a->first.lanes;
    i64 each;
    if (n == 1) {
        kir_store(k, a->scores, to, kir_un(k, KI_HADD, sum[0]));
        return;
    }
    kval all = sums_of_lanes(k, sum, n, lanes, &each);
    if (n * each == lanes) kir_store(k, a->scores, kir_ramp(k, to, 1, (u32)n), kir_every(k, all, 0, (u32)n));
    else
        for (i64 j = 0; j < n; j++) kir_store(k, a->scores, kir_add_i(k, to, j), kir_lane(k, all, j * each));
}

/* Scores of n keys side by side. */
static void dot_keys(struct attention_kernel *a, kval key, i64 n)
{
    struct gemm_kernel *p = &a->first;
    struct kir *k = a->m->k;
    kval acc = kir_alloc(k, KS_REG, DT_F32, p->lanes, kir_int(k, a->s.mr * n)), column = p->to_first ? kir_sub(k, key, p->to_first) : key;
    add_all_terms(a, acc, key, n);
    for (i64 i = 0; i < a->s.mr; i++) {
        kval sum[TILE_COLUMNS];
        for (i64 j = 0; j < n; j++) sum[j] = kir_load(k, acc, kir_int(k, i * n + j));
        store_scores(a, sum, n, kir_add(k, kir_mul_i(k, a->pitch, i), column));
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
