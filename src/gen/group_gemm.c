// SPDX-License-Identifier: Apache-2.0
//
// group_gemm: matrix products by groups of threads. A group computes a block of bm x bn results in
// rounds (gen_group_gemm.c), each thread a tile of tm x tn of them in registers (gen_group.c). With
// few results and many terms the threads form `split` teams, each with its share of a round's
// terms, and add up at the end.
//
// The left operand's shared array keeps the order of memory, so that copies are wide on both sides:
// vectors along the terms, or along rows. The right one's are always along columns.
//
// Dims: y (b.., m, n) = a (b.., m, k) x b (b.., k, n). SHARED: a [stage][bm][bk + pad] or
// [stage][bk][bm + pad], b [stage][bk][bn + pad].
#include "gen/gen_group_gemm.h"

enum { P_BM, P_BN, P_BK, P_TM, P_TN, P_SPLIT, P_PIPE, P_RASTER, P_HALF, P_CHUNKS, N_PARAM };

static const i32 v_bm[] = {8, 16, 32, 64, 128};
static const i32 v_bn[] = {8, 16, 32, 64, 128};
static const i32 v_bk[] = {8, 16, 32};
static const i32 v_tm[] = {1, 2, 4, 8};
static const i32 v_tn[] = {1, 2, 4, 8};
static const i32 v_split[] = {1, 4, 16};
static const i32 v_pipe[] = {PIPE_NONE, PIPE_AHEAD, PIPE_DOUBLE};
static const i32 v_raster[] = {1, 8};
static const i32 v_half[] = {0, 1};
static const i32 v_chunks[] = {1, 8};

static const struct gen_param param[N_PARAM] = {
    [P_BM] = {"bm", "rows of a group's block", v_bm, countof(v_bm)},
    [P_BN] = {"bn", "columns of a group's block", v_bn, countof(v_bn)},
    [P_BK] = {"bk", "terms per round", v_bk, countof(v_bk)},
    [P_TM] = {"tm", "rows of a thread", v_tm, countof(v_tm)},
    [P_TN] = {"tn", "columns of a thread", v_tn, countof(v_tn)},
    [P_SPLIT] = {"split", "teams that share the terms of a round", v_split, countof(v_split)},
    [P_PIPE] = {"pipe",
                "0: copy, then multiply; 1: the next round is fetched to registers "
                "meanwhile; 2: and has shared arrays of its own",
                v_pipe, countof(v_pipe)},
    [P_RASTER] = {"raster", "rows of blocks that are walked column by column", v_raster,
                  countof(v_raster)},
    [P_CHUNKS] = {"chunks", "groups that share the terms of a block", v_chunks, countof(v_chunks)},
    [P_HALF] = {"half", "1: shared arrays in the operands' own 16-bit type", v_half,
                countof(v_half)},
};

enum { PAD = 4, MAX_REGS = 200 };

struct block_sched {
    i64 bm, bn, bk, tm, tn, split, pipe, raster, half, chunks;
};

static struct block_sched sched_of(const struct sched *s)
{
    const i32 *v = s->v;
    return (struct block_sched){v[P_BM],    v[P_BN],   v[P_BK],     v[P_TM],   v[P_TN],
                                v[P_SPLIT], v[P_PIPE], v[P_RASTER], v[P_HALF], v[P_CHUNKS]};
}

static i64 team_size(const struct block_sched *s) { return s->bm / s->tm * (s->bn / s->tn); }
static i64 thread_count(const struct block_sched *s) { return team_size(s) * s->split; }

struct tiled {
    struct product p;
    struct block_sched s;
    struct group_tile t;
    kval team; /* of this thread */
};

/* The terms of this thread's team: `many` at a time, `deep` of them with one vector of each row. */
static void multiply(struct product *p, kval stage)
{
    struct tiled *x = (struct tiled *)p;
    struct kir *k = p->m->k;
    i64 share = x->s.bk / x->s.split, deep = p->a.term_step == 1 ? i64_min(4, share) : 1,
        many = deep;
    while (many < share && many * x->s.tm * x->s.tn < 128) many *= 2;
    kval from = kir_mul_i(k, x->team, share), zero = kir_int(k, 0);
    kval a0 = kir_mul_i(k, stage, p->a.size), b0 = kir_mul_i(k, stage, p->b.size);
    kval first = many < share ? kir_loop(k, KL_SERIAL, zero, kir_int(k, share), many) : zero;
    for (i64 u = 0; u < many; u += deep) {
        kval term = kir_add_i(k, kir_add(k, from, first), u);
        struct group_terms t = {.a = p->a.array,
                                .a_at = kir_add(k, a0, kir_mul_i(k, term, p->a.term_step)),
                                .b = p->b.array,
                                .b_at = kir_add(k, b0, kir_mul_i(k, term, p->b.term_step)),
                                .a_row = p->a.step,
                                .a_term = p->a.term_step,
                                .b_term = p->b.term_step,
                                .n = deep};
        group_tile_step(&x->t, &t);
    }
    if (many < share) kir_end(k);
}

/* Teams from..to store their sums (in `array`, counted from team `from`), or add what stands there.
 */
static void exchange(struct tiled *x, kval array, i64 from, i64 to, bool adds)
{
    struct kir *k = x->p.m->k;
    i64 count = group_tile_count(&x->t), size = team_size(&x->s);
    u32 lanes = x->t.lanes;
    kval mine = kir_mod_i(k, x->p.g.t, size), team = kir_add_i(k, x->team, -from);
    kval is_on = kir_bin(k, KI_AND, kir_bin(k, KI_LE, kir_int(k, from), x->team),
                         kir_lt(k, x->team, kir_int(k, to)));
    kir_if(k, is_on);
    for (i64 i = 0; i < count; i++) {
        kval at = kir_add(k, kir_mul_i(k, kir_add_i(k, kir_mul_i(k, team, count), i), size), mine);
        kval slot = kir_int(k, i), sum = kir_load(k, x->t.acc, slot);
        at = kir_ramp(k, kir_mul_i(k, at, lanes), 1, lanes);
        if (adds) kir_store(k, x->t.acc, slot, kir_add(k, sum, kir_load(k, array, at)));
        else kir_store(k, array, at, sum);
    }
    kir_end(k);
    kir_barrier(k);
}

/* The upper half of the teams hand their sums to the lower half, until one is left. */
static void add_teams(struct tiled *x)
{
    struct kir *k = x->p.m->k;
    if (x->s.split == 1) return;
    i64 n = x->s.split / 2 * group_tile_count(&x->t) * team_size(&x->s) * (i64)x->t.lanes;
    kval array = kir_alloc(k, KS_SHARED, x->p.type, 1, kir_int(k, n));
    for (i64 half = x->s.split / 2; half; half /= 2) {
        exchange(x, array, half, 2 * half, false);
        exchange(x, array, 0, half, true);
    }
}

static void store_tile(struct tiled *x)
{
    struct kir *k = x->p.m->k;
    if (x->s.split > 1) kir_if(k, kir_lt(k, x->team, kir_int(k, 1)));
    for (i64 j = 0; j < x->t.tn / x->t.lanes; j++)
        for (i64 i = 0; i < x->t.tm; i++)
            product_store(&x->p, group_tile_row(&x->t, i), group_tile_col(&x->t, j),
                          group_tile_get(&x->t, i, j));
    if (x->s.split > 1) kir_end(k);
}

static void emit(struct emit *m, const struct task *t, const struct caps *caps,
                 const struct sched *v)
{
    struct tiled *x = arena_new(m->arena, struct tiled);
    struct product *p = &x->p;
    struct block_sched s = sched_of(v);
    *x = (struct tiled){.s = s};
    *p = (struct product){.m = m,
                          .bm = s.bm,
                          .bn = s.bn,
                          .bk = s.bk,
                          .raster = s.raster,
                          .chunks = s.chunks,
                          .pipe = (enum group_pipe)s.pipe,
                          .pad = PAD,
                          .a_as_is = true,
                          .multiply = multiply};
    gemm_of(&p->x, t);
    enum dtype own = graph_value(&t->g, p->x.a)->dtype;
    bool is_column = gen_static(m->g, p->x.n, 0) == 1;
    p->type = emit_type(own);
    p->held = s.half ? own : p->type;
    group_init(&p->g, m, thread_count(&s), 0);
    x->t = (struct group_tile){.g = &p->g,
                               .nm = s.bm / s.tm,
                               .nn = s.bn / s.tn,
                               .tm = s.tm,
                               .tn = s.tn,
                               .lanes = is_column ? 1 : (u32)i64_min(4, s.tn),
                               .run = (u32)i64_min(4, s.tm),
                               .type = p->type};
    product_init(p, t);
    if (p->a.term_step == 1) x->t.run = 1; /* rows of neighbouring threads in different banks */
    product_open(p);
    x->team = kir_div_i(m->k, p->g.t, team_size(&s));
    group_tile_open(&x->t, kir_mod_i(m->k, p->g.t, team_size(&s)));
    product_rounds(p);
    add_teams(x);
    store_tile(x);
    product_close(p, t, caps);
}

/* Choice. */

static bool match(const struct task *t, const struct caps *c)
{
    struct gemm x;
    return c->is_gpu && gemm_of(&x, t) && gen_static(&t->g, x.k, 1) > 0 &&
           (c->has_f64 || graph_value(&t->g, x.a)->dtype != DT_F64);
}

static struct product_sched product_of(const struct block_sched *s)
{
    return (struct product_sched){s->bm,     s->bn,     s->bk,          s->pipe,
                                  s->raster, s->chunks, thread_count(s)};
}

static bool fits(const struct caps *c, const struct block_sched *s, i64 size)
{
    if (s->tm > s->bm || s->tn > s->bn || s->split > s->bk) return false;
    struct product_sched p = product_of(s);
    i64 acc_size = i64_max(4, size), copied = s->bk * (s->bm + s->bn) / p.threads;
    i64 teams = s->split / 2 * s->bm * s->bn * acc_size;
    if (p.threads < group_least(c) || (s->half && size != 2)) return false;
    if (s->tm * s->tn + 4 * s->tm + s->tn + (s->pipe ? copied : 0) > MAX_REGS) return false;
    return group_is_legal(c, p.threads, product_shared(&p, PAD, s->half ? size : acc_size) + teams);
}

/* Blocks that are not too long for what they compute, tiles not too small. */
static bool is_worth_trying(const struct gemm *x, const struct block_sched *s)
{
    i64 m = gen_eval(x->g, x->m, NULL), n = gen_eval(x->g, x->n, NULL);
    if (s->bm > 4 * s->bn && n > s->bn) return false;
    if (s->bn > 4 * s->bm && m > s->bm) return false;
    return s->tm * s->tn >= 4 || m * n < 4096;
}

static bool is_legal(const struct gemm *x, const struct caps *c, const struct block_sched *s)
{
    struct product_sched p = product_of(s);
    if (!fits(c, s, dtype_size(graph_value(x->g, x->a)->dtype))) return false;
    return product_is_useful(x, &p) && is_worth_trying(x, s) &&
           (s->split == 1 || gen_eval(x->g, x->k, NULL) >= 4 * s->bk);
}

static bool legal(const struct task *t, const struct caps *c, const struct sched *v)
{
    struct gemm x;
    struct block_sched s = sched_of(v);
    return fits(c, &s, s.half ? 2 : 4) && gemm_of(&x, t) && is_legal(&x, c, &s);
}

/* Per term and result: a multiply-add, and its share of loads from shared arrays. */
static double seconds(const struct gemm *x, const struct caps *c, const struct block_sched *s,
                      const i64 *var)
{
    struct product_sched p = product_of(s);
    double tile = (double)(s->tm * s->tn),
           work = 1 + 2.0 * (double)(s->tm + s->tn) / 4 / tile + 4 / tile;
    work += 8 * (double)(s->split - 1) / (double)gen_eval(x->g, x->k, var);
    return product_seconds(x, c, &p, work, var);
}

static double predict(const struct task *t, const struct caps *c, const struct sched *v,
                      const i64 *var)
{
    struct gemm x;
    struct block_sched s = sched_of(v);
    return gemm_of(&x, t) ? seconds(&x, c, &s, var) : 1e9;
}

struct choice {
    struct gemm x;
    const struct caps *c;
    const i64 *var;
};

static double cost_of(const void *user, const struct sched *v)
{
    const struct choice *x = user;
    struct block_sched s = sched_of(v);
    return is_legal(&x->x, x->c, &s) ? seconds(&x->x, x->c, &s, x->var) : 0;
}

static void initial(const struct task *t, const struct caps *c, const i64 *var, struct sched *out)
{
    struct choice x = {.c = c, .var = var};
    gemm_of(&x.x, t);
    bool found = gen_best(&(struct gen_search){param, 0, N_PARAM, cost_of, &x}, out);
    assert(found);
}

const struct gen gen_group_gemm = {
    .version = 1,
    .name = "group_gemm",
    .revision = 4,
    .param = param,
    .n_param = N_PARAM,
    .match = match,
    .initial = initial,
    .legal = legal,
    .emit = emit,
    .predict = predict,
};
