// SPDX-License-Identifier: Apache-2.0
//
// matrix_gemm: matrix products by groups of threads with matrix units. A group computes a block of
// results in rounds (gen_contract.c); gm x gn subgroups stand in it, each with wm x wn fragments
// of sums. Shared arrays keep the order in which the operands lie in memory, so that copies are
// wide on both sides: fragments are loaded by rows or by columns. Results pass through shared
// memory, a row of fragments at a time, where every thread gets vectors of them for the epilogue.
//
// A shape is one that the target lists with the operands' type on both sides; sums are f32 or f16. Operands of f32 that the product may
// round have one where tf32 has; they lie in the shared arrays as they are and are rounded when fragments are loaded.
//
// Dims: y (b.., m, n) = a (b.., m, k) x b (b.., k, n).
#include "gen/gen_leaf.h"

// clang-format off
#define PARAMS(P)                                                                                                                                 \
    P(m, "rows of a fragment", 4, 8, 16, 32)                                                                                                      \
    P(n, "columns of a fragment", 4, 8, 16, 32)                                                                                                   \
    P(k, "terms of a fragment", 2, 4, 8, 16, 32)                                                                                                  \
    P(acc, "bits of a sum", 16, 32)                                                                                                               \
    P(gm, "subgroups along rows", 1, 2, 4)                                                                                                        \
    P(gn, "subgroups along columns", 1, 2, 4)                                                                                                     \
    P(wm, "fragments of a subgroup along rows", 1, 2, 4)                                                                                          \
    P(wn, "fragments of a subgroup along columns", 1, 2, 4)                                                                                       \
    P(bk, "terms per round", 16, 32, 64)                                                                                                          \
    P(pipe, "0: copy, then multiply; 1: the next round is fetched to registers meanwhile; 2: and has shared arrays of its own; 3, 4: rounds are " \
            "copied ahead without registers, 2 and 3 in shared arrays", PIPE_NONE, PIPE_AHEAD, PIPE_DOUBLE, PIPE_ASYNC, PIPE_ASYNC + 1)           \
    P(rp, "1: a step's fragments are read before the last one's are multiplied", 0, 1)                                                            \
    P(swz, "1: the shared array is swizzled, else its rows are padded", 0, 1)                                                                     \
    P(raster, "rows of blocks that are walked column by column", 1, 8)                                                                            \
    P(chunks, "groups that share the terms of a block", 1, 8)                                                                                     \
    P(stream, "groups of a processor; all of them share all rounds evenly; 0: each has a block", 0, 1, 2, 4)
// clang-format on
GEN_PARAMS(PARAMS)

enum { PAD = 8, WIDE = 32 /* bytes */, MAX_FRAGMENTS = 16, MAX_STEPS = 16 /* of a round */, SHORT = 2 /* bytes of the shortest operands */ };

struct matrix_sched {
    PARAMS(GEN_PARAM_FIELD)
    i64 subgroup;
    i64 units; /* processors */
};

GEN_PARAM_READER(struct matrix_sched, read_sched, PARAMS)

static struct matrix_sched sched_of(const struct caps *c, const struct sched *v)
{
    struct matrix_sched s = read_sched(v);
    s.subgroup = c->subgroup, s.units = c->n_threads;
    return s;
}

static i64 pad_of(const struct matrix_sched *s) { return s->swz ? 0 : PAD; }

static struct blocking blocking_of(const struct matrix_sched *s)
{
    return (struct blocking){.bm = s->gm * s->wm * s->m,
                             .bn = s->gn * s->wn * s->n,
                             .bk = s->bk,
                             .threads = s->gm * s->gn * s->subgroup,
                             .pipe = (enum group_pipe)i64_min(s->pipe, PIPE_ASYNC),
                             .stages = s->pipe < PIPE_DOUBLE ? 1 : s->pipe > PIPE_ASYNC ? 3 : 2,
                             .raster = s->raster,
                             .split_k = s->chunks,
                             .stream_k = s->stream * s->units};
}

/* Of fragments. */
static enum dtype operand_type(const struct gemm *x) { return x->tf32 ? DT_TF32 : graph_value(x->g, x->a)->dtype; }

static enum dtype acc_type(const struct matrix_sched *s) { return s->acc == 32 ? DT_F32 : DT_F16; }

static struct mma_leaf leaf_of(enum dtype operand, const struct matrix_sched *s)
{
    struct mma_leaf l = {.t = {.wm = s->wm, .wn = s->wn}, .gm = s->gm, .gn = s->gn, .subgroups = 1, .ahead = s->rp};
    mma_shape(&l.t, operand, acc_type(s), s->m, s->n, s->k);
    return l;
}

static void emit(struct emit *m, const struct task *t, const struct caps *caps, const struct sched *v)
{
    struct matrix_sched s = sched_of(caps, v);
    struct gemm x;
    gemm_of(&x, t);
    struct mma_leaf l = leaf_of(operand_type(&x), &s);
    enum dtype type = graph_value(&t->g, x.a)->dtype;
    i64 wide = WIDE / dtype_size(type);
    struct contraction p = {.m = m,
                            .x = x,
                            .s = blocking_of(&s),
                            .st = {.type = type, .swizzled = s.swz, .pad = pad_of(&s), .a_as_is = true, .b_as_is = true, .a_wide = wide, .b_wide = wide},
                            .type = emit_type(type),
                            .n_out = mma_out_size(&l),
                            .out_type = acc_type(&s),
                            .leaf = &leaf_mma,
                            .own = &l};
    group_init(&p.g, m, p.s.threads, (u32)s.subgroup);
    contract_matrices(&p, t);
    contract_emit(&p, t, caps);
}

/* Choice. */

static bool is_listed(const struct caps *c, const struct matrix_sched *s, enum dtype t)
{
    struct str list = str_of(c->matrix);
    struct caps_matrix x;
    while (caps_matrix_next(&list, &x))
        if (x.m == s->m && x.n == s->n && x.k == s->k && x.a == t && x.b == t &&
            x.c == acc_type(s) && x.d == acc_type(s))
            return true;
    return false;
}

/* Rules of numbers alone: cheap. size: bytes of an operand's element. */
static bool fits(const struct caps *c, const struct matrix_sched *s, i64 size)
{
    struct blocking p = blocking_of(s);
    i64 copied = s->bk * (p.bm + p.bn) / p.threads * size / 4;
    i64 sums = s->wm * s->wn * s->m * s->n * s->acc / 32 / s->subgroup,
        operands = (s->wm * s->m + (s->rp ? s->wn : 1) * s->n) * s->k * size / 4 / s->subgroup * (1 + s->rp);
    if (s->rp && s->bk == s->k) return false; /* one step */
    if (s->stream && !stream_k_is_legal(c, p.bm, p.bn, p.bk, p.split_k)) return false;
    if (s->bk % s->k || s->bk / s->k > MAX_STEPS || s->wm * s->wn > MAX_FRAGMENTS || p.threads < group_least(c)) return false;
    i64 regs = sums + operands + (s->pipe && s->pipe < PIPE_ASYNC ? copied : 0);
    if (!group_has_registers(c, p.threads, regs)) return false;
    struct mma_leaf l = leaf_of(DT_NONE, s);
    i64 out = mma_out_size(&l) * s->acc / 8;
    return group_is_legal(c, p.threads, size * blocking_shared(&p, pad_of(s)) + out);
}

/* What fits with the shortest operands. */
static bool is_legal(const struct gemm *x, const struct caps *c, const struct matrix_sched *s)
{
    struct blocking p = blocking_of(s);
    i64 size = dtype_size(operand_type(x));
    return is_listed(c, s, operand_type(x)) && (size <= SHORT || fits(c, s, size)) && blocking_is_useful(x, &p);
}

static bool legal(const struct task *t, const struct caps *c, const struct sched *v)
{
    struct gemm x;
    struct matrix_sched s = sched_of(c, v);
    return fits(c, &s, SHORT) && gemm_of(&x, t) && is_legal(&x, c, &s);
}

/* A listed shape's smallest schedule. */
static bool least_sched(const struct gemm *x, const struct caps *c, const struct caps_matrix *shape,
                        struct sched *out)
{
    *out = (struct sched){.v = {[P_m] = (i32)shape->m,
                                [P_n] = (i32)shape->n,
                                [P_k] = (i32)shape->k,
                                [P_acc] = shape->c == DT_F32 ? 32 : 16,
                                [P_gm] = 1,
                                [P_gn] = 1,
                                [P_wm] = 1,
                                [P_wn] = 1,
                                [P_bk] = (i32)i64_max(16, shape->k),
                                [P_pipe] = PIPE_NONE,
                                [P_rp] = 0,
                                [P_swz] = 0,
                                [P_raster] = 1,
                                [P_chunks] = 1,
                                [P_stream] = 0}};
    struct matrix_sched s = sched_of(c, out);
    while (blocking_of(&s).threads < group_least(c) && s.gm < 4) s.gm *= 2, out->v[P_gm] = (i32)s.gm;
    if (shape->m > 32 || shape->n > 32 || shape->k > 32) return false;
    return fits(c, &s, SHORT) && is_legal(x, c, &s);
}

static bool match(const struct task *t, const struct caps *c)
{
    struct gemm x;
    struct str list = str_of(c->matrix);
    struct caps_matrix shape;
    struct sched s;
    if (!c->is_gpu || c->subgroup < 2 || !list.n || !gemm_of(&x, t)) return false;
    if (gen_static(&t->g, x.k, 1) <= 0) return false;
    while (caps_matrix_next(&list, &shape))
        if (least_sched(&x, c, &shape, &s)) return true;
    return false;
}

/* Matrix units are eight times as fast, half that with tf32, twice as fast with f32, sums of 16 bits twice the first; loads of fragments from
   shared arrays keep them waiting. */
static double product_work(const struct gemm *x, const struct matrix_sched *s)
{
    if (s->acc == 16) return 0.07;
    return x->tf32 ? 0.25 : operand_type(x) == DT_F32 ? 0.5 : 0.125;
}

static double seconds(const struct gemm *x, const struct caps *c, const struct matrix_sched *s,
                      const i64 *var)
{
    struct blocking p = blocking_of(s);
    double wm = (double)(s->wm * s->m), wn = (double)(s->wn * s->n);
    double work = product_work(x, s) + 2 * (wm + wn) / (wm * wn);
    return blocking_seconds(x, c, &p, work, var) + 1e-7 * (double)s->wm;
}

static double predict(const struct task *t, const struct caps *c, const struct sched *v,
                      const i64 *var)
{
    struct gemm x;
    struct matrix_sched s = sched_of(c, v);
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
    struct matrix_sched s = sched_of(x->c, v);
    return fits(x->c, &s, SHORT) && is_legal(&x->x, x->c, &s) ? seconds(&x->x, x->c, &s, x->var) : 0;
}

/* The best of all shapes with such sums, all parameters but the shape's tried; 0: there is none. */
static double best_of_shapes(const struct choice *x, enum dtype sums, struct sched *out)
{
    struct str list = str_of(x->c->matrix);
    struct caps_matrix shape;
    double best = 0;
    while (caps_matrix_next(&list, &shape)) {
        struct sched v;
        if (shape.c != sums || !least_sched(&x->x, x->c, &shape, &v)) continue;
        gen_best(&(struct gen_search){param, P_gm, N_PARAM, cost_of, x}, &v);
        double sec = cost_of(x, &v);
        if (best == 0 || sec < best) best = sec, *out = v;
    }
    return best;
}

/* Short sums are for the measurements to choose. */
static void initial(const struct task *t, const struct caps *c, const i64 *var, struct sched *out)
{
    struct choice x = {.c = c, .var = var};
    gemm_of(&x.x, t);
    bool found = best_of_shapes(&x, DT_F32, out) > 0 || best_of_shapes(&x, DT_F16, out) > 0;
    assert(found);
}

const struct gen gen_matrix_gemm = {
    .version = 1,
    .name = "matrix_gemm",
    .revision = 7,
    .param = param,
    .n_param = N_PARAM,
    .match = match,
    .initial = initial,
    .legal = legal,
    .emit = emit,
    .predict = predict,
};
