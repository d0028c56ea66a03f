// SPDX-License-Identifier: Apache-2.0
//
// group_gemm: matrix products by groups of threads. A group computes a block of bm x bn results in
// rounds (gen_group_gemm.c), each thread a tile of tm x tn of them in registers (gen_group_tile.c). With
// few results and many terms the threads form `lsu` teams, each with its share of a round's
// terms, whose sums are added through shared memory at the end. Schedules are gen_block.c's.
//
// The left operand's shared array keeps the order of memory, so that copies are wide on both sides:
// vectors along the terms, or along rows; or it has its terms outside in any case (ta). The right
// one's always has. An operand that is transposed in front of the product is read where it lies.
//
// Dims: y (b.., m, n) = a (b.., m, k) x b (b.., k, n). SHARED: a [stage][bm][bk + pad] or
// [stage][bk][bm + pad], b [stage][bk][bn + pad]; at the end sums [team][bm][bn].
#include "gen/gen_block.h"

struct tiled {
    struct product p;
    struct block s;
    struct group_tile t;
    kval team; /* of this thread */
};

/* Steps of this thread's team: terms (step*lsu + team)*deep .. + deep-1. */
struct steps {
    struct tiled *x;
    struct group_terms from;
    i64 n, many;  /* steps of a round; of them written out at once */
    kval first;   /* of those */
};

static kval term_of(const struct steps *q, kval first, i64 i)
{
    struct kir *k = q->x->p.m->k;
    i64 deep = q->x->t.deep, step = q->x->s.lsu * deep;
    kval term = kir_add(k, kir_mul_i(k, first, step), kir_mul_i(k, q->x->team, deep));
    return kir_add_i(k, term, i * step);
}

static void fetch(const struct steps *q, kval first, i64 i, i64 slot)
{
    struct group_frag f;
    group_tile_fetch(&q->x->t, &q->from, term_of(q, first, i), &f);
    if (q->x->t.keeps) group_tile_keep(&q->x->t, slot, &f);
    else group_tile_multiply(&q->x->t, &f);
}

/* Step i of those written out, whose fragments are kept; the next step's are fetched. The round's last step
   has none behind it: its own are fetched again. */
static void step_ahead(const struct steps *q, i64 i)
{
    struct kir *k = q->x->p.m->k;
    struct group_frag f;
    kval last = kir_int(k, q->n - 1);
    bool is_last = i + 1 == q->many, is_alone = q->many == 1 && q->n > 1;
    if (!is_last) fetch(q, q->first, i + 1, (i + 1) % 2);
    else if (q->many < q->n) fetch(q, kir_min(k, kir_add_i(k, q->first, i + 1), last), 0, 1 - i % 2);
    group_tile_kept(&q->x->t, i % 2, &f);
    group_tile_multiply(&q->x->t, &f);
    if (!is_alone) return;
    group_tile_kept(&q->x->t, 1, &f);
    group_tile_keep(&q->x->t, 0, &f);
}

static void multiply(struct product *p)
{
    struct tiled *x = (struct tiled *)p;
    struct kir *k = p->m->k;
    kval zero = kir_int(k, 0);
    i64 n = x->s.bk / x->s.lsu / x->t.deep;
    i64 many = i64_max(1, i64_min(x->s.un / x->t.deep, n));
    struct steps q = {.x = x, .n = n, .many = many, .from = {p->array, p->array, side_at, side_at, &p->a, &p->b}};
    if (x->t.keeps) fetch(&q, zero, 0, 0);
    q.first = many < n ? kir_loop(k, KL_SERIAL, zero, kir_int(k, n), many) : zero;
    for (i64 i = 0; i < many; i++)
        if (x->t.keeps) step_ahead(&q, i);
        else fetch(&q, q.first, i, 0);
    if (many < n) kir_end(k);
}

/* Storing. */

/* Where the sums of a team begin: [row][column]. */
static kval sum_at(const struct tiled *x, kval team, kval row, kval col, u32 lanes)
{
    struct kir *k = x->p.m->k;
    kval at = kir_add(k, kir_mul_i(k, kir_add(k, kir_mul_i(k, team, x->p.bm), row), x->p.bn), col);
    return kir_ramp(k, at, 1, lanes);
}

/* All teams leave their sums, then all threads add them up, a share of the block each. */
static void store_teams(struct tiled *x)
{
    struct kir *k = x->p.m->k;
    const struct block *s = &x->s;
    struct group_share all = {&x->p.g, x->p.bm, x->p.bn, (u32)s->gsw, !s->rc};
    kval array = x->p.n_out ? x->p.out : x->p.array;
    kir_barrier(k);
    for (i64 i = 0; i < x->t.row.n; i++)
        for (i64 j = 0; j < x->t.col.n / x->t.lanes; j++)
            kir_store(k, array, sum_at(x, x->team, group_tile_row(&x->t, i), group_tile_col(&x->t, j), x->t.lanes),
                      group_tile_get(&x->t, i, j));
    kir_barrier(k);
    for (i64 i = 0; i < group_share_turns(&all); i++) {
        kval row, col, sum = 0;
        bool some = group_share_at(&all, i, &row, &col);
        for (i64 u = 0; u < s->lsu; u++) {
            kval one = kir_load(k, array, sum_at(x, kir_int(k, u), row, col, all.lanes));
            sum = u ? kir_add(k, sum, one) : one;
        }
        product_store(&x->p, row, col, sum);
        if (some) kir_end(k);
    }
}

static struct product product_of(struct emit *m, const struct task *t, const struct caps *caps, const struct block *s)
{
    i64 n_sums = s->lsu > 1 ? s->lsu * s->bm * s->bn : 0;
    struct product p = {.m = m,
                        .bm = s->bm,
                        .bn = s->bn,
                        .bk = s->bk,
                        .raster = i64_max(1, s->map),
                        .chunks = s->chunks,
                        .stream = s->stream * caps->n_threads,
                        .pipe = block_pipe(s),
                        .stages = block_stages(s),
                        .swizzled = s->swz,
                        .pad = s->pad,
                        .a_as_is = !s->ta,
                        .a_wide = s->glwa,
                        .b_wide = s->glwb,
                        .by_rows = !s->lc,
                        .multiply = multiply};
    gemm_of(&p.x, t);
    enum dtype own = graph_value(&t->g, p.x.a)->dtype;
    p.type = emit_type(own);
    p.held = s->half ? own : p.type;
    p.out_type = p.type;
    if (p.held == p.type) p.least = n_sums;
    else p.n_out = n_sums;
    return p;
}

static struct group_tile tile_of(struct product *p, const struct block *s)
{
    bool is_column = gen_static(p->m->g, p->x.n, 0) == 1, terms_inside = p->a.term_step == 1;
    return (struct group_tile){.g = &p->g,
                               .row = {s->tm, s->wswm, s->bswm, s->wly, s->bly},
                               .col = {s->tn, s->wswn, s->bswn, s->wlx, s->blx},
                               .lanes = is_column ? 1 : (u32)i64_min(4, s->wswn),
                               .run = terms_inside ? 1 : (u32)i64_min(4, s->wswm),
                               .type = p->type,
                               .keeps = s->rp,
                               .deep = terms_inside ? i64_min(4, s->bk / s->lsu) : 1};
}

static void emit(struct emit *m, const struct task *t, const struct caps *caps,
                 const struct sched *v)
{
    struct tiled *x = arena_new(m->arena, struct tiled);
    struct product *p = &x->p;
    x->s = block_of(v);
    *p = product_of(m, t, caps, &x->s);
    group_init(&p->g, m, x->s.threads, 0);
    product_init(p, t);
    x->t = tile_of(p, &x->s);
    product_open(p);
    x->team = kir_div_i(m->k, p->g.t, x->s.team);
    group_tile_open(&x->t, kir_mod_i(m->k, p->g.t, x->s.team));
    product_rounds(p);
    if (x->s.lsu > 1) store_teams(x);
    else product_store_tile(p, &x->t);
    product_close(p, t, caps);
}

/* Choice. */

static bool match(const struct task *t, const struct caps *c)
{
    struct gemm x;
    return c->is_gpu && gemm_of(&x, t) && gen_static(&t->g, x.k, 1) > 0 &&
           (c->has_f64 || graph_value(&t->g, x.a)->dtype != DT_F64);
}

static bool legal(const struct task *t, const struct caps *c, const struct sched *v)
{
    struct block_task x;
    struct block s = block_of(v);
    return block_task_of(&x, t, NULL) && block_is_legal(&x, c, &s);
}

static bool worth(const struct task *t, const struct caps *c, const struct sched *v, u32 n)
{
    struct block_task x;
    struct block s = block_of(v);
    return block_task_of(&x, t, NULL) && block_fits(&x, c, &s, n - 1) && block_is_worth(&x, c, &s, n - 1);
}

static double predict(const struct task *t, const struct caps *c, const struct sched *v,
                      const i64 *var)
{
    struct block_task x;
    struct block s = block_of(v);
    return block_task_of(&x, t, var) ? block_seconds(&x, c, &s) : 1e9;
}

static void initial(const struct task *t, const struct caps *c, const i64 *var, struct sched *out)
{
    struct block_task x;
    block_task_of(&x, t, var);
    block_initial(&x, c, out);
}

const struct gen gen_group_gemm = {
    .version = 1,
    .name = "group_gemm",
    .revision = 7,
    .param = block_param,
    .n_param = N_PARAM,
    .match = match,
    .initial = initial,
    .legal = legal,
    .worth = worth,
    .emit = emit,
    .predict = predict,
};
