// SPDX-License-Identifier: Apache-2.0
//
// attention_place: keys and values that are read where they lie, once, for few rows of queries: vectors along the head. What is between their place and the
// products (views of heads, prologues) is evaluated on the way.
//
// In a paged cache the place of a key is that of its page, which a table names, and of the key in the page. There the loop over keys is one over pages and one
// over the keys of a page, whose bounds are known: then the algebra of indices (kir/simplify.c) leaves of the page's place what depends on the page alone, so
// that it is computed once for all its keys. First and last keys of a page that is not attended to as a whole are done one by one.
#include "gen/attention.h"

/* bytes; bytes from what is used to what is requested; keys, see attention_sum_values; keys of a page whose places are computed together */
enum { LINE = 64, DISTANCE = 16384, TOGETHER = 4, CHUNK = 16 };

/* Bytes of an element of the right operand where it lies, as far as the graph says. */
static i64 size_in_place(const struct gemm_kernel *p) { return (i64)dtype_size(graph_value(p->x.g, p->x.b)->dtype); }

/* A key that is used, and the one to request meanwhile where keys lie in pages, both from the first keys of their pages on; else these are 0. */
struct key { kval at, next, page, next_page; };

/* The number of the key j behind one, in its page. A number of j that is known at once would hide that it is there: loops over j are unrolled later. */
static kval key_number(struct kir *k, const struct key *key, kval j)
{
    kval at = kir_add(k, key->at, j);
    return key->page ? kir_add(k, key->page, at) : at;
}

/* From a key of so many bytes that is used to the one that is requested. */
static i64 ahead_of(const struct gemm_kernel *p, i64 bytes) { return p->apart ? p->apart : i64_max(1, DISTANCE / bytes); }

/* Keys from..to-1, of n, by pages, and of a page by chunks. */
struct pages {
    struct kir *k;
    i64 size, chunk, ahead; /* keys; from one that is used to the one that is requested */
    kval from, to, n;
    kval begin, end;        /* of the current page and chunk, from its first key on */
    struct key first;
    kval at, at_next;       /* of the chunk in its page, of the requested one in its own */
};

i64 attention_chunk(i64 page) { return page % CHUNK ? page : CHUNK; }

static kval up(struct kir *k, kval n, i64 step) { return kir_div_i(k, kir_add_i(k, n, step - 1), step); }

/* Where keys begin and end may be data: the number of pages bounds it, so that indices do not wrap. */
static kval pages_bounded(const struct pages *x, kval page) { return kir_max(x->k, kir_min(x->k, page, up(x->k, x->n, x->size)), kir_int(x->k, 0)); }

/* Opens loops over pages and chunks, and a branch for a chunk that is whole. */
static void pages_open(struct pages *x, kval until)
{
    struct kir *k = x->k;
    kval zero = kir_int(k, 0), last = kir_max(k, kir_add_i(k, pages_bounded(x, up(k, until, x->size)), -1), zero);
    kval page = kir_loop(k, KL_SERIAL, pages_bounded(x, kir_div_i(k, x->from, x->size)), pages_bounded(x, up(k, x->to, x->size)), 1);
    x->first.at = kir_mul_i(k, page, x->size);
    x->begin = kir_max(k, kir_sub(k, x->from, x->first.at), zero), x->end = kir_min(k, kir_sub(k, x->to, x->first.at), kir_int(k, x->size));
    kval chunk = kir_loop(k, KL_SERIAL, kir_div_i(k, x->begin, x->chunk), up(k, x->end, x->chunk), 1), next = kir_add_i(k, chunk, i64_max(1, x->ahead / x->chunk));
    x->at = kir_mul_i(k, chunk, x->chunk), x->at_next = kir_mul_i(k, kir_mod_i(k, next, x->size / x->chunk), x->chunk);
    x->first.next = kir_mul_i(k, kir_min(k, kir_add(k, page, kir_div_i(k, next, x->size / x->chunk)), last), x->size);
    kir_if(k, kir_and(k, kir_bin(k, KI_LE, x->begin, x->at), kir_bin(k, KI_LE, kir_add_i(k, x->at, x->chunk), x->end)));
}

static struct key pages_key(const struct pages *x, kval j)
{
    return (struct key){kir_add(x->k, x->at, j), kir_add(x->k, x->at_next, j), x->first.at, x->first.next};
}

/* The keys of a whole chunk, n at a time, which divide it: opens a loop, counted by these, so that all of them are known to be in the chunk. */
static struct key pages_whole(struct pages *x, i64 n)
{
    struct kir *k = x->k;
    return pages_key(x, kir_mul_i(k, kir_loop(k, KL_SERIAL, kir_int(k, 0), kir_int(k, x->chunk / n), 1), n));
}

/* Those of another one: likewise. */
static struct key pages_part(struct pages *x)
{
    struct kir *k = x->k;
    kir_end(k);
    kir_else(k);
    kval from = kir_max(k, kir_sub(k, x->begin, x->at), kir_int(k, 0)), to = kir_min(k, kir_sub(k, x->end, x->at), kir_int(k, x->chunk));
    return pages_key(x, kir_loop(k, KL_SERIAL, from, to, 1));
}

static void pages_close(struct pages *x)
{
    for (u32 i = 0; i < 4; i++) kir_end(x->k);
}

/* Those of an operand, from key `from` to `to`, of n; bytes of one. */
static struct pages pages_of(const struct gemm_kernel *p, kval from, kval to, kval n, i64 bytes)
{
    return (struct pages){.k = p->m->k, .size = p->page, .chunk = attention_chunk(p->page), .ahead = ahead_of(p, bytes), .from = from, .to = to, .n = n};
}

/* The key to request while the key j behind `key` is used, of n; its bytes. */
static kval key_ahead(const struct gemm_kernel *p, struct key key, kval j, kval n, i64 bytes)
{
    struct kir *k = p->m->k;
    if (key.page) return kir_add(k, key.next_page, kir_add(k, key.next, j));
    return kir_min(k, kir_add_i(k, kir_add(k, key.at, j), ahead_of(p, bytes)), kir_add_i(k, n, -1));
}

static kval spread(const struct tile *t, const struct tile_in *a, kval at)
{
    struct kir *k = t->m->k;
    return kir_splat(k, kir_load(k, a->buf, at), t->lanes);
}

static void ask_values(const struct gemm_kernel *p, const struct tile *t, const struct cpu_piece *e, struct key key)
{
    struct kir *k = p->m->k;
    const i64 size = size_in_place(p);
    kval idx[MAX_RANK], next = key_ahead(p, key, kir_int(k, 0), p->k, size * gen_static(p->x.g, p->x.n, LINE));
    for (i64 j = 0; j < t->nr; j++) {
        if (j * p->lanes * size % LINE) continue;
        kval c = kir_add_i(k, kir_mul_i(k, e->at[CPU_BLOCK], p->width), j * p->lanes);
        gemm_index(p->m, &p->x, p->x.b, p->pos, next, e->is_full ? c : kir_min(k, c, kir_add_i(k, p->n, -1)), idx);
        gemm_ask(p, KC_SECOND, idx);
    }
}

/* The values of a key, vectors of columns; i: its number of those that are added. */
static void add_key(struct gemm_kernel *p, const struct tile *t, const struct cpu_piece *e, struct key key, kval i)
{
    struct emit *m = p->m;
    struct kir *k = m->k;
    struct tile_in in = p->run.a;
    kval right[TILE_COLUMNS], idx[MAX_RANK];
    for (i64 j = 0; j < t->nr; j++) {
        kval c = kir_add_i(k, kir_mul_i(k, e->at[CPU_BLOCK], p->width), j * p->lanes);
        gemm_index(m, &p->x, p->x.b, p->pos, key_number(k, &key, kir_int(k, 0)), kir_ramp(k, c, 1, p->lanes), idx);
        emit_limit(m, e->is_full ? 0 : kir_sub(k, p->n, c));
        right[j] = kir_splat(k, kir_cast(k, t->type, emit_value(m, p->x.b, idx)), p->lanes);
        emit_limit(m, 0);
    }
    if (p->s.ahead) ask_values(p, t, e, key);
    in.at = kir_add(k, in.at, i);
    tile_add(t, &in, right, spread, kir_fma);
}

static void add_pages(struct gemm_kernel *p, struct tile *t, const struct cpu_piece *e)
{
    struct kir *k = p->m->k;
    struct pages x = pages_of(p, p->c.at, kir_add(k, p->c.at, p->c.len), p->k, size_in_place(p) * gen_static(p->x.g, p->x.n, LINE));
    pages_open(&x, p->until ? p->until : x.to);
    struct key key = pages_whole(&x, 1);
    add_key(p, t, e, key, kir_sub(k, key_number(k, &key, kir_int(k, 0)), p->c.at));
    key = pages_part(&x);
    add_key(p, t, e, key, kir_sub(k, key_number(k, &key, kir_int(k, 0)), p->c.at));
    pages_close(&x);
}

void attention_multiply_values(struct cpu_contraction *c, struct tile *t, const struct cpu_piece *e, struct tile_out *o)
{
    struct gemm_kernel *p = c->own;
    struct kir *k = p->m->k;
    i64 n;
    if (p->page) {
        add_pages(p, t, e);
        return;
    }
    kval i = kir_loop(k, kir_is_const(k, c->len, &n) && n == TOGETHER ? KL_UNROLL : KL_SERIAL, kir_int(k, 0), c->len, 1);
    add_key(p, t, e, (struct key){.at = kir_add(k, c->at, i)}, i);
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
    if (a->s.values == VALUES_PLACE && !p->page && a->s.mr == 1 && !p->s.ahead && (columns < 0 || columns > p->width)) {
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

/* Likewise of the key j behind `key`, times those of all rows: n sums each. */
static void add_terms_of(struct attention_kernel *a, kval acc, const struct key *key, kval j, i64 n, kval at, kval limit)
{
    struct gemm_kernel *p = &a->first;
    struct kir *k = a->m->k;
    kval right = key_terms(p, key_number(k, key, j), at, limit);
    for (i64 i = 0; i < a->s.mr; i++) {
        kval left = emit_load(a->m, p->left, kir_ramp(k, kir_add(k, kir_mul_i(k, p->pitch, i), at), 1, (u32)terms_of_vector(p)));
        kval to = kir_add_i(k, j, i * n), sum = kir_load(k, acc, to);
        kir_store(k, acc, to, p->dot_k > 1 ? kir_dot(k, left, right, sum) : kir_fma(k, left, right, sum));
    }
}

/* A vector of terms of n keys, from `key` on, times those of all rows of the tile. */
static void add_terms(struct attention_kernel *a, kval acc, const struct key *key, i64 n, kval at, kval limit)
{
    struct gemm_kernel *p = &a->first;
    struct emit *m = a->m;
    struct kir *k = m->k;
    kval right[TILE_COLUMNS];
    emit_limit(m, limit);
    if (key->page) {
        add_terms_of(a, acc, key, kir_loop(k, KL_UNROLL, kir_int(k, 0), kir_int(k, n), 1), n, at, limit);
        kir_end(k);
        emit_limit(m, 0);
        return;
    }
    for (i64 j = 0; j < n; j++) right[j] = key_terms(p, key_number(k, key, kir_int(k, j)), at, limit);
    for (i64 i = 0; i < a->s.mr; i++) {
        kval left = emit_load(m, p->left, kir_ramp(k, kir_add(k, kir_mul_i(k, p->pitch, i), at), 1, (u32)terms_of_vector(p)));
        for (i64 j = 0; j < n; j++) {
            kval to = kir_int(k, i * n + j), sum = kir_load(k, acc, to);
            kir_store(k, acc, to, p->dot_k > 1 ? kir_dot(k, left, right[j], sum) : kir_fma(k, left, right[j], sum));
        }
    }
    emit_limit(m, 0);
}

static void ask_keys(const struct attention_kernel *a, struct key key, i64 n, kval at)
{
    const struct gemm_kernel *p = &a->first;
    struct kir *k = p->m->k;
    kval idx[MAX_RANK], j = kir_loop(k, KL_UNROLL, kir_int(k, 0), kir_int(k, n), 1);
    gemm_index(p->m, &p->x, p->x.b, p->pos, at, key_ahead(p, key, j, p->n, size_in_place(p) * p->static_k), idx);
    gemm_ask(p, KC_SECOND, idx);
    kir_end(k);
}

/* All terms of n keys. */
static void add_all_terms(struct attention_kernel *a, kval acc, struct key key, i64 n)
{
    const struct gemm_kernel *p = &a->first;
    struct kir *k = a->m->k;
    const i64 vector = terms_of_vector(p), line = i64_max(vector, LINE / size_in_place(p)), step = p->static_k % line ? vector : line;
    const i64 whole = p->static_k / vector * vector;
    for (i64 i = 0; i < a->s.mr * n; i++) kir_store(k, acc, kir_int(k, i), kir_const_f(k, DT_F32, p->lanes, 0));
    if (whole) {
        kval at = kir_loop(k, KL_SERIAL, kir_int(k, 0), kir_int(k, whole), step);
        for (i64 i = 0; i < step; i += vector) add_terms(a, acc, &key, n, kir_add_i(k, at, i), 0);
        if (p->s.ahead) ask_keys(a, key, n, at);
        kir_end(k);
    }
    if (whole < p->static_k) add_terms(a, acc, &key, n, kir_int(k, whole), kir_int(k, p->static_k - whole));
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
static void dot_keys(struct attention_kernel *a, struct key key, i64 n)
{
    struct gemm_kernel *p = &a->first;
    struct kir *k = a->m->k;
    kval acc = kir_alloc(k, KS_REG, DT_F32, p->lanes, kir_int(k, a->s.mr * n)), first = key_number(k, &key, kir_int(k, 0)), column = p->to_first ? kir_sub(k, first, p->to_first) : first;
    add_all_terms(a, acc, key, n);
    for (i64 i = 0; i < a->s.mr; i++) {
        kval sum[TILE_COLUMNS];
        for (i64 j = 0; j < n; j++) sum[j] = kir_load(k, acc, kir_int(k, i * n + j));
        store_scores(a, sum, n, kir_add(k, kir_mul_i(k, a->pitch, i), column));
    }
}

/* The number by which what a number is loaded of is divided, x depends on it; 0: none. */
static i64 divisor_of(const struct kir *k, kval v, kval x)
{
    i64 c;
    for (kval i = 1; i < k->ins.n; i++) {
        const struct kir_ins *d = kir_at(k, i);
        if (d->op == KI_DIV && kir_is_const(k, d->b, &c) && c > 1 && attention_depends(k, d->a, x) && attention_depends(k, v, i)) return c;
    }
    return 0;
}

i64 attention_page(const struct task *t, value_id v, u32 axis)
{
    struct arena a = {0};
    struct kir k;
    struct emit m;
    kval idx[MAX_RANK] = {0};
    i64 page = 0;
    kir_init(&k, &a, S("page"));
    emit_init(&m, &k, &t->g, op_lower, &a);
    emit_args(&m);
    kir_grid(&k, kir_param(&k, S("page")));
    for (u32 i = 0; i < graph_value(&t->g, v)->shape.rank; i++) idx[i] = kir_loop(&k, KL_SERIAL, kir_int(&k, 0), emit_dim(&m, v, i), 1);
    emit_value(&m, v, idx);
    for (kval i = 1; i < k.ins.n && !page; i++) {
        const struct kir_ins *x = kir_at(&k, i);
        if (x->op == KI_LOAD && kir_at(&k, x->a)->op == KI_BUF && !dtype_is_float(x->dtype)) page = divisor_of(&k, x->b, idx[axis]);
    }
    arena_release(&a);
    return page;
}

static void dot_pages(struct attention_kernel *a, kval from, kval to)
{
    struct pages x = pages_of(&a->first, from, to, a->first.n, size_in_place(&a->first) * a->first.static_k);
    pages_open(&x, a->first.until ? a->first.until : to);
    dot_keys(a, pages_whole(&x, a->s.nr), a->s.nr);
    dot_keys(a, pages_part(&x), 1);
    pages_close(&x);
}

void attention_dot_keys(struct attention_kernel *a, kval from, kval to)
{
    struct kir *k = a->m->k;
    if (a->first.page) {
        dot_pages(a, from, to);
        return;
    }
    kval n = kir_sub(k, to, from), whole = kir_add(k, from, kir_mul_i(k, kir_div_i(k, n, a->s.nr), a->s.nr));
    dot_keys(a, (struct key){.at = kir_loop(k, KL_SERIAL, from, whole, a->s.nr)}, a->s.nr);
    kir_end(k);
    if (a->s.nr == 1) return;
    dot_keys(a, (struct key){.at = kir_loop(k, KL_SERIAL, whole, to, 1)}, 1);
    kir_end(k);
}
