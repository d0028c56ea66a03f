// SPDX-License-Identifier: Apache-2.0
//
// attention_grad_emit: gradients of attention on processors (Dao, FlashAttention-2, 2023, section 3.1.2). A grid iteration owns a batch and a head of keys, or
// some of its blocks of rows. For each block of rows, and each block of keys that it may attend to, both products of scores go to scratch memory; row by row,
// where they lie, scores become probabilities p and slopes become dz; then dq += dz k, dk += dz^T q, dv += p^T dy. No memory grows with queries times keys.
//
// One pass, rows outside. Two passes, of dq by rows and of dk and dv by keys, need no sums that iterations share, but compute seven products
// instead of five, and each exponential twice; processors have far fewer threads than heads times blocks. With rows outside, dq of a block stays in
// scratch memory, and keys that masks exclude are known per block of rows, as in the forward pass; dk and dv, which all blocks add to, go through the
// second cache, 4 (d + e) bytes per key and block of rows, a fraction of the products' time. Where a head's rows are divided, each iteration has sums of dk
// and dv of its own, of every split_m-th block, so that causal masks leave all of them as much to do; a grid behind adds them up in the order of
// their numbers. Sums go on from what earlier blocks left, term by term: with one part their order is the definition's, and with any number of them it does
// not depend on threads.
#include "gen/attention_grad.h"

enum { LINE = 16 }; /* elements */

/* A product whose sums wait in an array between blocks of terms. */
struct summed {
    struct gemm_kernel p; /* p.to, p.to_pitch: the array */
    kval origin;          /* its element of row p.m0, column 0 */
    kval right_pitch;     /* of dk and dv: of the right operand, rows in scratch memory */
};

struct grad_kernel {
    struct attention_kernel a; /* a.first: scores; a.scores: they, later p */
    struct attention_grad x;
    struct attention_grad_sched s;
    struct gemm_kernel slopes;
    struct summed queries, keys, values;
    kval dz;                   /* WORK array like a.scores: slopes, later dz */
    struct result result;      /* of dq; its temp 0: it goes to the outputs */
    const struct task *t;
    i64 block_rows, block_keys; /* rows 0: all */
    i64 static_rows, static_keys; /* of each block; -1: not the same, or not known */
    kval n_rows, batch;
};

/* Products. */

/* Row i of a tile, of the iteration's; of those that hang over the last one. */
static kval tile_row(const struct gemm_kernel *p, const struct cpu_piece *e, i64 i)
{
    struct kir *k = p->m->k;
    kval row = kir_add_i(k, e->at[CPU_X], i);
    return kir_sub(k, e->is_over && i ? kir_min(k, row, kir_add_i(k, p->m1, -1)) : row, p->m0);
}

static kval sum_at(const struct summed *s, const struct tile *t, const struct cpu_piece *e, i64 i, i64 j)
{
    const struct gemm_kernel *p = &s->p;
    struct kir *k = p->m->k;
    kval row = tile_row(p, e, i);
    kval at = kir_add(k, kir_add(k, s->origin, kir_mul(k, row, p->to_pitch)), kir_mul_i(k, e->at[CPU_BLOCK], p->width));
    return kir_ramp(k, kir_add_i(k, at, j * p->lanes), 1, t->lanes);
}

/* Sums begin with what is in the array. */
static void multiply(struct cpu_contraction *c, struct tile *t, const struct cpu_piece *e, struct tile_out *o)
{
    struct summed *s = c->own;
    struct tile_run *run = &s->p.run;
    struct kir *k = s->p.m->k;
    i64 n;
    for (i64 i = 0; i < t->tx; i++)
        for (i64 j = 0; j < t->nr; j++) kir_store(k, t->acc, tile_acc(t, i, j), kir_load(k, s->p.to, sum_at(s, t, e, i, j)));
    t->limit = s->p.limit;
    run->n = c->len, run->ku = s->p.s.ku, run->exact = run->ku == 1 || (kir_is_const(k, c->len, &n) && n % run->ku == 0);
    tile_run(t, run);
}

static void take(struct cpu_contraction *c, const struct tile *t, const struct cpu_piece *e)
{
    const struct summed *s = c->own;
    struct kir *k = s->p.m->k;
    for (i64 i = 0; i < t->tx; i++) {
        bool guarded = e->is_over && i;
        if (guarded) kir_if(k, kir_lt(k, kir_add_i(k, e->at[CPU_X], i), s->p.m1));
        for (i64 j = 0; j < t->nr; j++) kir_store(k, s->p.to, sum_at(s, t, e, i, j), kir_load(k, t->acc, tile_acc(t, i, j)));
        if (guarded) kir_end(k);
    }
}

/* Rows of the result are columns of the left operand, its terms the rows of the iteration. */
static void find_transposed(struct cpu_contraction *c, const struct cpu_piece *e)
{
    struct summed *s = c->own;
    struct gemm_kernel *p = &s->p;
    struct kir *k = p->m->k;
    kval column = kir_mul_i(k, e->at[CPU_BLOCK], p->width), row = kir_sub(k, e->at[CPU_X], p->m0), last = kir_add_i(k, kir_sub(k, p->m1, e->at[CPU_X]), -1);
    for (i64 i = 0; e->is_over && i < e->rows; i++) p->px[i] = kir_min(k, kir_int(k, i), last);
    p->run = (struct tile_run){.a = {.buf = p->left, .at = row, .y_step = kir_int(k, 0), .x_step = kir_int(k, 1), .px = e->is_over ? p->px : NULL},
                               .a_step = p->pitch, .b = p->right, .b_at = column, .b_step = s->right_pitch};
    p->limit = e->is_full ? 0 : kir_sub(k, p->n, column);
}

static const struct cpu_addressing left_tiles = {.find = gemm_find, .multiply = gemm_multiply, .take = gemm_leave};
static const struct cpu_addressing row_tiles = {.find = gemm_find, .multiply = multiply, .take = take};
static const struct cpu_addressing key_tiles = {.find = find_transposed, .multiply = multiply, .take = take};

static struct gemm_kernel *product_of(struct grad_kernel *g, u32 i)
{
    struct gemm_kernel *const p[] = {&g->a.first, &g->slopes, &g->queries.p, &g->keys.p, &g->values.p};
    return p[i];
}

enum { N_PRODUCTS = 5, N_PACKED = 3 };

/* Sums of a block of n terms. */
static void add_terms(struct gemm_kernel *p, kval first, kval n)
{
    p->c.at = first, p->c.len = n, p->is_part = true;
    attention_product(p, kir_int(p->m->k, 0), p->n_blocks);
}

/* A row of a block: p in place of scores, dz in place of slopes. */
static void do_row(struct grad_kernel *g, kval row, kval key, kval n_keys)
{
    struct emit *m = g->a.m;
    struct kir *k = m->k;
    const u32 lanes = g->a.first.lanes;
    kval base = kir_mul(k, kir_sub(k, row, g->a.first.m0), g->a.pitch), idx[MAX_RANK];
    struct vectors v = vectors_over(k, kir_int(k, 0), n_keys, lanes);
    while (vectors_next(&v)) {
        kval at = kir_ramp(k, kir_add(k, base, v.at), 1, lanes), keys = kir_ramp(k, kir_add(k, key, v.at), 1, lanes);
        kval score = kir_load(k, g->a.scores, at), slope = kir_load(k, g->dz, at);
        emit_bind(m, g->x.scores.y, gen_given, &score);
        emit_bind(m, g->x.slopes.y, gen_given, &slope);
        emit_limit(m, v.limit);
        gemm_index(m, &g->x.values, g->x.values.a, g->values.p.pos, keys, row, idx);
        kval p = kir_splat(k, kir_cast(k, DT_F32, emit_value(m, g->x.values.a, idx)), lanes);
        gemm_index(m, &g->x.queries, g->x.queries.a, g->queries.p.pos, row, keys, idx);
        kval dz = kir_splat(k, kir_cast(k, DT_F32, emit_value(m, g->x.queries.a, idx)), lanes);
        emit_limit(m, 0);
        kir_store(k, g->a.scores, at, p);
        kir_store(k, g->dz, at, dz);
    }
    emit_bind(m, g->x.scores.y, NULL, NULL);
    emit_bind(m, g->x.slopes.y, NULL, NULL);
}

/* A block of keys. */
static void do_block(struct grad_kernel *g, kval key)
{
    struct kir *k = g->a.m->k;
    struct gemm_kernel *first = &g->a.first;
    kval m0 = first->m0, m1 = first->m1, n_rows = kir_sub(k, m1, m0), end = kir_min(k, kir_add_i(k, key, g->block_keys), first->n);
    kval n_keys = g->static_keys > 0 ? kir_int(k, g->static_keys) : kir_sub(k, end, key);
    kval from = kir_div_i(k, key, first->width), to = kir_div_i(k, kir_add_i(k, g->static_keys > 0 ? kir_add_i(k, key, g->static_keys) : end, first->width - 1), first->width);
    first->to_first = g->slopes.to_first = key;
    attention_product(first, from, to);
    attention_product(&g->slopes, from, to);
    do_row(g, kir_loop(k, KL_SERIAL, m0, m1, 1), key, n_keys);
    kir_end(k);
    add_terms(&g->queries.p, key, n_keys);
    struct summed *const by_keys[] = {&g->keys, &g->values};
    for (u32 i = 0; i < 2; i++) {
        struct summed *s = by_keys[i];
        s->p.m0 = key, s->p.m1 = kir_add(k, key, n_keys);
        s->origin = kir_mul(k, kir_add(k, kir_mul(k, g->batch, first->n), key), s->p.to_pitch);
        add_terms(&s->p, kir_int(k, 0), g->static_rows > 0 ? kir_int(k, g->static_rows) : n_rows);
    }
}

/* Rows. */

static void clear(struct grad_kernel *g, kval array, kval from, kval n)
{
    struct kir *k = g->a.m->k;
    const u32 lanes = g->a.first.lanes;
    kval i = kir_loop(k, KL_SERIAL, kir_int(k, 0), n, lanes);
    kir_store(k, array, kir_ramp(k, kir_add(k, from, i), 1, lanes), kir_const_f(k, DT_F32, lanes, 0));
    kir_end(k);
}

static void store_queries(struct grad_kernel *g)
{
    struct emit *m = g->a.m;
    struct kir *k = m->k;
    const struct gemm_kernel *p = &g->queries.p;
    kval idx[MAX_RANK], row = kir_loop(k, KL_SERIAL, p->m0, p->m1, 1), at = kir_mul(k, kir_sub(k, row, p->m0), p->to_pitch);
    struct vectors v = vectors_over(k, kir_int(k, 0), p->n, p->lanes);
    while (vectors_next(&v)) {
        kval sum = kir_load(k, p->to, kir_ramp(k, kir_add(k, at, v.at), 1, p->lanes));
        for (u32 i = 0; i < MAX_RANK; i++) idx[i] = p->pos[i];
        idx[p->x.m_axis] = row, idx[p->x.n_axis] = kir_ramp(k, v.at, 1, p->lanes);
        emit_limit(m, v.limit);
        result_store(m, &g->result, idx, sum, v.limit);
        emit_limit(m, 0);
    }
    kir_end(k);
}

/* The keys that some row attends to, in whole blocks. */
static void find_keys(struct grad_kernel *g, kval *from, kval *to)
{
    struct emit *m = g->a.m;
    struct kir *k = m->k;
    kval zero = kir_int(k, 0), none = kir_const_f(k, DT_F32, 1, 0);
    *from = zero, *to = g->a.first.n;
    if (!g->x.form.has_band && !g->x.form.has_mask) return;
    emit_bind(m, g->x.slopes.y, gen_given, &none);
    attention_find_keys(&g->a);
    emit_bind(m, g->x.slopes.y, NULL, NULL);
    *from = kir_mul_i(k, kir_div_i(k, g->a.from, g->block_keys), g->block_keys), *to = g->a.to;
}

/* A block of rows. */
static void do_rows(struct grad_kernel *g, kval number)
{
    struct kir *k = g->a.m->k;
    kval from, to, m0 = kir_mul(k, number, g->n_rows), m1 = kir_min(k, kir_add(k, m0, g->n_rows), emit_size(g->a.m, g->x.scores.m));
    if (g->static_rows > 0) m1 = kir_add_i(k, m0, g->static_rows);
    for (u32 i = 0; i < N_PACKED; i++) product_of(g, i)->m0 = m0, product_of(g, i)->m1 = m1;
    gemm_pack_left(&g->a.first);
    gemm_pack_left(&g->slopes);
    clear(g, g->queries.p.to, kir_int(k, 0), kir_mul(k, g->n_rows, g->queries.p.to_pitch));
    find_keys(g, &from, &to);
    do_block(g, kir_loop(k, KL_SERIAL, from, to, g->block_keys));
    kir_end(k);
    store_queries(g);
}

/* The kernel. */

/* Size of an array of rows that are blocks of columns wide, with room for tiles that hang over. */
static sym rows_of_blocks(const struct gemm_kernel *p, sym rows)
{
    struct symtab *st = p->m->g->sym;
    sym width = sym_const(st, p->width);
    return sym_mul(st, rows, sym_mul(st, sym_cdiv(st, p->x.n, width), width));
}

static void place(struct grad_kernel *g, const kval *pos)
{
    struct symtab *st = g->a.m->g->sym;
    for (u32 i = 0; i < N_PRODUCTS; i++) {
        struct gemm_kernel *p = product_of(g, i);
        for (u32 d = 0; d < MAX_RANK; d++) p->pos[d] = pos[d];
        p->part = p->c.at = kir_int(p->m->k, 0);
        p->n = emit_size(p->m, p->x.n), p->k = p->c.len = emit_size(p->m, p->x.k);
        p->n_blocks = emit_size(p->m, sym_cdiv(st, p->x.n, sym_const(st, p->width)));
        p->to_pitch = kir_mul_i(p->m->k, p->n_blocks, p->width);
    }
}

static sym pitch_of(const struct grad_kernel *g)
{
    return sym_const(g->a.m->g->sym, (ceil_div(g->block_keys, LINE) | 1) * LINE);
}

static void open_arrays(struct grad_kernel *g, sym rows)
{
    struct emit *m = g->a.m;
    struct kir *k = m->k;
    struct symtab *st = m->g->sym;
    sym pitch = pitch_of(g), room = sym_add(st, sym_mul(st, rows, pitch), sym_const(st, 2 * LINE));
    g->a.pitch = emit_size(m, pitch);
    g->a.scores = kir_alloc(k, KS_WORK, DT_F32, 1, emit_size(m, room));
    g->dz = kir_alloc(k, KS_WORK, DT_F32, 1, emit_size(m, room));
    g->queries.p.to = kir_alloc(k, KS_WORK, DT_F32, 1, emit_size(m, rows_of_blocks(&g->queries.p, rows)));
    g->queries.origin = kir_int(k, 0);
    g->a.first.to = g->a.scores, g->slopes.to = g->dz;
    g->a.first.to_pitch = g->slopes.to_pitch = g->a.pitch;
    gemm_open_arrays(&g->a.first, rows);
    gemm_open_arrays(&g->slopes, rows);
    g->a.first.is_given = g->slopes.is_given = true; /* packed per block of rows */
    g->queries.p.left = g->keys.p.left = g->dz, g->values.p.left = g->a.scores;
    g->keys.p.right = g->a.first.left, g->values.p.right = g->slopes.left;
    g->keys.right_pitch = g->a.first.pitch, g->values.right_pitch = g->slopes.pitch;
    for (u32 i = 2; i < N_PRODUCTS; i++) {
        struct gemm_kernel *p = product_of(g, i);
        p->pitch = g->a.pitch, p->is_given = true;
        gemm_open_arrays(p, rows);
    }
}

/* Sums of an iteration: all its keys. */
static void clear_keys(struct grad_kernel *g, kval batches, kval gb, kval part)
{
    struct kir *k = g->a.m->k;
    struct summed *const by_keys[] = {&g->keys, &g->values};
    g->batch = kir_add(k, kir_mul(k, part, batches), gb);
    for (u32 i = 0; i < 2; i++) {
        kval n = kir_mul(k, g->a.first.n, by_keys[i]->p.to_pitch);
        clear(g, by_keys[i]->p.to, kir_mul(k, g->batch, n), n);
    }
}

static void emit_rows(struct grad_kernel *g, const struct caps *c)
{
    struct emit *m = g->a.m;
    struct kir *k = m->k;
    struct symtab *st = m->g->sym;
    const struct space *outer = &g->x.scores.outer;
    sym mr = sym_const(st, g->s.mr), all = sym_mul(st, sym_cdiv(st, g->x.scores.m, mr), mr), rows = g->block_rows ? sym_const(st, g->block_rows) : all;
    sym blocks = g->block_rows ? sym_cdiv(st, g->x.scores.m, rows) : sym_const(st, 1), batches = space_count(outer, st, 0, outer->n);
    kval pos[MAX_RANK], gb = kir_grid(k, emit_size(m, batches)), part = kir_grid(k, kir_int(k, g->s.split_m));
    space_at(m, outer, gb, pos);
    place(g, pos);
    g->n_rows = emit_size(m, rows);
    open_arrays(g, rows);
    if (g->x.form.has_band || g->x.form.has_mask) attention_open_space(&g->a, c);
    clear_keys(g, emit_size(m, batches), gb, part);
    do_rows(g, kir_loop(k, KL_SERIAL, part, emit_size(m, blocks), g->s.split_m));
    for (u32 i = 0; i < 3; i++) kir_end(k);
}

/* An element of dk or dv: of all parts. */
struct whole_sum { const struct grad_kernel *g; const struct summed *s; };

static kval whole_sum(struct emit *m, const void *user, const kval *idx)
{
    const struct whole_sum *w = user;
    const struct gemm_kernel *p = &w->s->p;
    struct kir *k = m->k;
    struct symtab *st = m->g->sym;
    const struct space *outer = &w->g->x.scores.outer;
    kval batch = kir_int(k, 0), sum = 0;
    for (u32 i = 0; i < outer->n; i++) batch = kir_add(k, kir_mul(k, batch, emit_size(m, outer->g[i].extent)), idx[outer->g[i].axis]);
    kval pitch = emit_size(m, rows_of_blocks(p, sym_const(st, 1))), area = emit_size(m, rows_of_blocks(p, w->g->x.scores.n));
    kval at = kir_add(k, kir_add(k, kir_mul(k, batch, area), kir_mul(k, idx[p->x.m_axis], pitch)), idx[p->x.n_axis]);
    kval part = kir_mul(k, emit_size(m, space_count(outer, st, 0, outer->n)), area);
    for (i64 i = 0; i < w->g->s.split_m; i++) {
        kval v = emit_load(m, p->to, kir_add(k, at, kir_mul_i(k, part, i)));
        sum = sum ? kir_add(k, sum, v) : v;
    }
    return sum;
}

/* Grids that store what waits in TEMP arrays. */
static void emit_outputs(struct grad_kernel *g, const struct caps *c)
{
    struct emit *m = g->a.m;
    const struct whole_sum keys = {g, &g->keys}, values = {g, &g->values};
    emit_bind(m, g->x.keys.y, whole_sum, &keys);
    emit_bind(m, g->x.values.y, whole_sum, &values);
    if (g->result.temp) emit_bind(m, g->x.queries.y, result_load, &g->result);
    for (u32 i = 0; i < g->t->g.output.n; i++) {
        value_id out = g->t->g.output.v[i];
        struct elementwise_sched s;
        if (!g->result.temp && gen_depends(&g->t->g, out, g->x.queries.y)) continue;
        gen_elementwise_default(g->t, c, out, NULL, &s);
        gen_elementwise_grid(m, out, &s, NULL);
    }
    emit_bind(m, g->x.keys.y, NULL, NULL);
    emit_bind(m, g->x.values.y, NULL, NULL);
    emit_bind(m, g->x.queries.y, NULL, NULL);
}

static void init(struct grad_kernel *g, const struct caps *c)
{
    const struct attention_grad_sched *s = &g->s;
    const struct gemm *x[N_PRODUCTS] = {&g->x.scores, &g->x.slopes, &g->x.queries, &g->x.keys, &g->x.values};
    for (u32 i = 0; i < N_PRODUCTS; i++) {
        struct gemm_kernel *p = product_of(g, i);
        const struct gemm_sched own = {.mr = i < N_PACKED ? s->mr : s->mk, .nr = i < 2 ? s->nr : s->nv, .split_k = 1, .pack = LEFT_PACKED, .right = RIGHT_ONCE, .ku = s->ku};
        *p = (struct gemm_kernel){.m = g->a.m, .t = g->t, .x = *x[i]};
        gemm_init(p, c, &own, tile_multiply_add);
        p->c.own = p;
        p->c.address = i < 2 ? &left_tiles : i < N_PACKED ? &row_tiles : &key_tiles;
    }
    const i64 width = g->a.first.width, n = g->a.first.static_n, m = g->a.first.static_m;
    i64 tiles = ceil_div(m, s->mr), mb = s->mb;
    if (m > 0 && mb) mb = mb < tiles ? ceil_div(tiles, ceil_div(tiles, mb)) : 0;
    g->block_rows = mb * s->mr;
    g->static_rows = m <= 0 ? -1 : !mb ? m : m % g->block_rows == 0 ? g->block_rows : -1;
    g->block_keys = s->nb * width;
    if (n > 0 && n <= g->block_keys) g->block_keys = round_up(n, width);
    g->static_keys = n > 0 && n <= g->block_keys ? n : n > 0 && n % g->block_keys == 0 ? g->block_keys : -1;
    g->keys.p.static_m = g->values.p.static_m = g->static_keys > 0 ? g->static_keys : g->block_keys % s->mk == 0 ? n : -1;
    g->a.x = g->x.form;
}

static void open_temps(struct grad_kernel *g)
{
    struct emit *m = g->a.m;
    struct kir *k = m->k;
    struct symtab *st = m->g->sym;
    struct summed *const by_keys[] = {&g->keys, &g->values};
    const struct space *outer = &g->x.scores.outer;
    for (u32 i = 0; i < N_PACKED; i++) gemm_open_temps(product_of(g, i));
    for (u32 i = 0; i < 2; i++) {
        sym n = sym_mul(st, rows_of_blocks(&by_keys[i]->p, g->x.scores.n), sym_mul(st, space_count(outer, st, 0, outer->n), sym_const(st, g->s.split_m)));
        n = sym_add(st, n, rows_of_blocks(&by_keys[i]->p, sym_const(st, g->s.mk))); /* tiles hang over */
        by_keys[i]->p.to = kir_alloc(k, KS_TEMP, DT_F32, 1, emit_size(m, n));
    }
    g->result = (struct result){.v = g->x.queries.y, .inner = g->x.queries.n_axis};
    if (!g->x.queries.simple || g->x.queries.by_rows) result_open(m, &g->result, DT_F32);
    for (u32 i = 0; i < N_PACKED; i++) {
        struct gemm_kernel *p = product_of(g, i);
        if (!p->x.b_const) gemm_pack_once(p);
    }
}

void attention_grad_emit(struct emit *m, const struct task *t, const struct caps *c, const struct attention_grad_sched *s)
{
    struct grad_kernel *g = arena_new(m->arena, struct grad_kernel);
    const struct graph *all = m->g;
    g->a.m = m, g->s = *s, g->t = t;
    attention_grad_of(&g->x, t);
    attention_grad_form(&g->x, t, c);
    init(g, c);
    emit_args(m);
    open_temps(g);
    m->g = attention_graph_of(m, g->x.queries.y);
    emit_rows(g, c);
    m->g = all;
    emit_outputs(g, c);
}
