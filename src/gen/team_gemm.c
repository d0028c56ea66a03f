// SPDX-License-Identifier: Apache-2.0
//
// team_gemm: matrix products by matrix units that teams of subgroups feed together, and that read both operands from
// swizzled shared arrays by themselves. A group computes a block of results in rounds (gen_contract.c), copied ahead
// without registers; gm x gn teams stand in it, each with wm x wn fragments of sums, its only registers. The
// arrays keep the order in which operands lie in memory, in panels: lines of 128 bytes, which is what units read.
// A round's products are asked for before the next copies are, so that both go on at once. Results pass through shared memory,
// a fragment at a time, of some teams at once, where every thread gets vectors of them for the epilogue.
//
// With `boxes` the device itself copies operands of known sizes, in boxes that the group's first thread asks for.
//
// A shape is one that the target lists for teams with the operands' type on both sides; sums are f32 or f16.
//
// Dims: y (b.., m, n) = a (b.., m, k) x b (b.., k, n).
#include "gen/gen_leaf.h"

// clang-format off
#define PARAMS(P)                                                                      \
    P(n, "columns of a fragment", 64, 128, 256)                                        \
    P(acc, "bits of a sum", 16, 32)                                                    \
    P(gm, "teams along rows", 1, 2, 4)                                                 \
    P(gn, "teams along columns", 1, 2, 4)                                              \
    P(wm, "fragments of a team along rows", 1, 2)                                      \
    P(wn, "fragments of a team along columns", 1, 2)                                   \
    P(bk, "terms per round", 64, 128)                                                  \
    P(stages, "rounds in shared arrays: all but one are on their way", 2, 3, 4, 5)     \
    P(raster, "rows of blocks that are walked column by column", 1, 8, 16)             \
    P(chunks, "groups that share the terms of a block", 1, 8)                          \
    P(boxes, "1: the device copies operands, in boxes that one thread asks for", 0, 1)
// clang-format on
GEN_PARAMS(PARAMS)

enum {
    LINE_BYTES = 128,   /* of a swizzled array: doc/kernel-ir.md */
    WIDE = 16,
    GROUP_BYTES = 8,    /* of shared memory for a group of copies of boxes under way */
    MAX_REGS = 232,     /* of a thread, and what of them are no sums: */
    OTHER_REGS = 40,
    ALL_REGS = 1 << 16, /* of a group */
};

struct team_sched {
    PARAMS(GEN_PARAM_FIELD)
    i64 m, k;           /* the shape's */
    i64 team;           /* threads */
};

GEN_PARAM_READER(struct team_sched, read_sched, PARAMS)

static enum dtype acc_type(const struct team_sched *s) { return s->acc == 32 ? DT_F32 : DT_F16; }

/* The shape with so many columns. false: there is none with the type on both sides and such sums. */
static bool find_shape(const struct caps *c, enum dtype t, struct team_sched *s)
{
    struct str list = str_of(c->team_matrix);
    struct caps_matrix x;
    while (caps_matrix_next(&list, &x)) {
        if (x.n != s->n || x.a != t || x.b != t || x.c != acc_type(s) || x.d != acc_type(s)) continue;
        s->m = x.m, s->k = x.k;
        return true;
    }
    return false;
}

static bool sched_of(const struct caps *c, enum dtype t, const struct sched *v, struct team_sched *s)
{
    *s = read_sched(v);
    s->team = (i64)c->team * c->subgroup;
    return find_shape(c, t, s);
}

static struct blocking blocking_of(const struct team_sched *s)
{
    return (struct blocking){.bm = s->gm * s->wm * s->m,
                             .bn = s->gn * s->wn * s->n,
                             .bk = s->bk,
                             .threads = s->gm * s->gn * s->team,
                             .pipe = PIPE_ASYNC,
                             .stages = s->stages,
                             .raster = s->raster,
                             .split_k = s->chunks};
}

static struct mma_leaf leaf_of(enum dtype t, const struct team_sched *s)
{
    struct mma_leaf l = {.t = {.wm = s->wm, .wn = s->wn}, .gm = s->gm, .gn = s->gn};
    mma_shape(&l.t, t, acc_type(s), s->m, s->n, s->k);
    return l;
}

static i64 part_bytes(const struct team_sched *s)
{
    struct mma_leaf l = leaf_of(DT_NONE, s);
    return wgmma_out_size(&l) * s->acc / 8;
}

static i64 held_bytes(enum dtype t, const struct team_sched *s)
{
    struct blocking p = blocking_of(s);
    return blocking_shared(&p, 0) * dtype_size(t) + (s->boxes ? s->stages * GROUP_BYTES : 0);
}

/* Teams whose fragments are stored at once: a power of two. */
static i64 stored_at_once(const struct caps *c, enum dtype t, const struct team_sched *s)
{
    i64 n = s->gm * s->gn;
    while (n > 1 && held_bytes(t, s) + n * part_bytes(s) > c->shared_bytes) n /= 2;
    return n;
}

static enum dtype type_of(const struct task *t)
{
    struct gemm x;
    return gemm_of(&x, t) ? graph_value(x.g, x.a)->dtype : DT_NONE;
}

static void emit(struct emit *m, const struct task *t, const struct caps *caps, const struct sched *v)
{
    struct team_sched s;
    enum dtype type = type_of(t);
    sched_of(caps, type, v, &s);
    struct mma_leaf l = leaf_of(type, &s);
    l.subgroups = caps->team, l.at_once = stored_at_once(caps, type, &s);
    struct contraction p = {.m = m,
                            .s = blocking_of(&s),
                            .st = {.type = type,
                                   .swizzled = true,
                                   .panel = LINE_BYTES / dtype_size(type),
                                   .tma = s.boxes,
                                   .copies_last = true,
                                   .a_as_is = true,
                                   .b_as_is = true,
                                   .a_wide = WIDE,
                                   .b_wide = WIDE},
                            .type = emit_type(type),
                            .leaf = &leaf_wgmma,
                            .own = &l};
    gemm_of(&p.x, t);
    group_init(&p.g, m, p.s.threads, caps->subgroup);
    m->k->team = caps->team;
    contract_matrices(&p, t);
    contract_emit(&p, t, caps);
}

/* Choice. */

/* Rules of numbers alone: cheap. */
static bool fits(const struct caps *c, enum dtype t, const struct team_sched *s)
{
    struct blocking p = blocking_of(s);
    i64 sums = s->wm * s->wn * s->m * s->n * s->acc / 32 / s->team;
    struct mma_leaf l = leaf_of(t, s);
    if (sums + OTHER_REGS > MAX_REGS || (sums + OTHER_REGS) * p.threads > ALL_REGS) return false;
    if (s->bk % s->k || !wgmma_stores_whole(&l, s->team) || s->m % (LINE_BYTES / dtype_size(t))) return false;
    return group_is_legal(c, p.threads, held_bytes(t, s) + part_bytes(s));
}

static bool is_legal(const struct gemm *x, const struct caps *c, const struct sched *v)
{
    struct team_sched s;
    enum dtype t = graph_value(x->g, x->a)->dtype;
    if (!sched_of(c, t, v, &s) || !fits(c, t, &s) || gen_static(x->g, x->n, 0) == 1) return false;
    if (s.boxes && (!c->has_tile || !contract_is_boxable(x, s.bk))) return false;
    struct blocking p = blocking_of(&s);
    return blocking_is_useful(x, &p);
}

static bool legal(const struct task *t, const struct caps *c, const struct sched *v)
{
    struct gemm x;
    return gemm_of(&x, t) && is_legal(&x, c, v);
}

/* The smallest block of the shapes with such sums. */
static bool least_sched(const struct gemm *x, const struct caps *c, i32 acc, struct sched *out)
{
    for (i64 i = 0; i < param[P_n].n; i++) {
        *out = (struct sched){.v = {[P_n] = param[P_n].values[i],
                                    [P_acc] = acc,
                                    [P_gm] = 1,
                                    [P_gn] = 1,
                                    [P_wm] = 1,
                                    [P_wn] = 1,
                                    [P_bk] = param[P_bk].values[0],
                                    [P_stages] = param[P_stages].values[0],
                                    [P_raster] = 1,
                                    [P_chunks] = 1,
                                    [P_boxes] = 0}};
        if (is_legal(x, c, out)) return true;
    }
    return false;
}

static bool match(const struct task *t, const struct caps *c)
{
    struct gemm x;
    struct sched s;
    if (!c->is_gpu || c->team < 2 || c->subgroup < 2 || !gemm_of(&x, t) || gen_static(&t->g, x.k, 1) <= 0) return false;
    return least_sched(&x, c, 32, &s) || least_sched(&x, c, 16, &s);
}

/* Fifteen products of such units in the time of one multiply-add of the others; their operands pass through shared memory once per fragment. */
static double seconds(const struct gemm *x, const struct caps *c, const struct sched *v, const i64 *var)
{
    struct team_sched s;
    if (!sched_of(c, graph_value(x->g, x->a)->dtype, v, &s)) return 1e9;
    struct blocking p = blocking_of(&s);
    double read = (double)(s.m + s.n) / (double)(s.m * s.n);
    return blocking_seconds(x, c, &p, 0.065 * (1 + 20 * read) * (s.stages > 2 ? 1 : 1.05), var) + 1e-7 * (double)(s.wm * s.wn);
}

static double predict(const struct task *t, const struct caps *c, const struct sched *v, const i64 *var)
{
    struct gemm x;
    return gemm_of(&x, t) ? seconds(&x, c, v, var) : 1e9;
}

struct choice {
    struct gemm x;
    const struct caps *c;
    const i64 *var;
};

static double cost_of(const void *user, const struct sched *v)
{
    const struct choice *x = user;
    return is_legal(&x->x, x->c, v) ? seconds(&x->x, x->c, v, x->var) : 0;
}

/* Short sums and boxes are for the measurements to choose. */
static void initial(const struct task *t, const struct caps *c, const i64 *var, struct sched *out)
{
    struct choice x = {.c = c, .var = var};
    gemm_of(&x.x, t);
    bool found = least_sched(&x.x, c, 32, out) || least_sched(&x.x, c, 16, out);
    assert(found);
    i32 acc = out->v[P_acc], n = out->v[P_n];
    struct sched best = *out;
    for (i64 i = 0; i < param[P_n].n; i++) {
        struct sched v = *out;
        v.v[P_n] = param[P_n].values[i], v.v[P_acc] = acc;
        if (param[P_n].values[i] < n || cost_of(&x, &v) <= 0) continue;
        gen_best(&(struct gen_search){param, P_gm, N_PARAM, cost_of, &x}, &v);
        if (cost_of(&x, &v) < cost_of(&x, &best)) best = v;
    }
    *out = best;
}

const struct gen gen_team_gemm = {
    .version = 1,
    .name = "team_gemm",
    .revision = 3,
    .param = param,
    .n_param = N_PARAM,
    .sums = SUMS_IN_PARTS,
    .match = match,
    .initial = initial,
    .legal = legal,
    .emit = emit,
    .predict = predict,
};
