// SPDX-License-Identifier: Apache-2.0
//
// mma: schedules of contractions whose leaf is a matrix instruction of subgroups: gm x gn subgroups stand in a block, each with wm x wn fragments
// of sums.
#include "gen/mma.h"

enum { MMA_PARAMS(GEN_PARAM_NUMBER) };
GEN_PARAM_READER(struct mma_sched, read_sched, MMA_PARAMS)

enum { PAD = 8, WIDE = 32 /* bytes */, MAX_FRAGMENTS = 16, MAX_STEPS = 16 /* of a K block */, SHORT = 2 /* bytes of the shortest operands */ };

bool mma_task_of(struct mma_task *x, const struct contract_form *f, const struct task *t, struct arena *a)
{
    const struct gemm *g = &x->c.x;
    if (!f->analyze(&x->c, t, a)) return false;
    x->operand = g->tf32 ? DT_TF32 : graph_value(g->g, g->a)->dtype;
    return graph_value(g->g, g->a)->dtype == graph_value(g->g, g->b)->dtype;
}

bool mma_analyze(const struct gen_problem *p, const struct contract_form *f)
{
    const struct mma_task *t = p->facts;
    return p->c->is_gpu && p->c->subgroup >= 2 && mma_task_of(p->facts, f, p->t, p->arena) && gen_static(t->c.x.g, t->c.x.k, 1) > 0;
}

static struct mma_sched sched_of(const struct caps *c, const struct sched *v)
{
    struct mma_sched s = read_sched(v);
    s.subgroup = c->subgroup, s.units = c->n_threads;
    return s;
}

static i64 pad_of(const struct mma_sched *s) { return s->swz ? 0 : PAD; }

static struct blocking blocking_of(const struct mma_sched *s)
{
    return (struct blocking){.bm = s->gm * s->wm * s->m,
                             .bn = s->gn * s->wn * s->n,
                             .bk = s->bk,
                             .threads = s->gm * s->gn * s->subgroup,
                             .pipe = (enum wg_pipe)i64_min(s->pipe, PIPE_ASYNC),
                             .stages = s->pipe < PIPE_DOUBLE ? 1 : s->pipe > PIPE_ASYNC ? 3 : 2,
                             .raster = s->raster,
                             .split_k = s->split_k,
                             .stream_k = s->stream_k * s->units};
}

static enum dtype acc_type(const struct mma_sched *s) { return s->acc == 32 ? DT_F32 : DT_F16; }

static struct mma_leaf leaf_of(enum dtype operand, const struct mma_sched *s)
{
    struct mma_leaf l = {.t = {.wm = s->wm, .wn = s->wn}, .gm = s->gm, .gn = s->gn, .subgroups = 1, .ahead = s->rp};
    mma_shape(&l.t, operand, acc_type(s), s->m, s->n, s->k);
    return l;
}

void mma_emit(struct emit *m, const struct task *t, const struct caps *c, const struct sched *v, const struct contract_form *f)
{
    struct mma_task x = {0};
    mma_task_of(&x, f, t, m->arena);
    struct mma_sched s = sched_of(c, v);
    enum dtype type = graph_value(&t->g, x.c.x.a)->dtype;
    i64 wide = WIDE / dtype_size(type);
    struct mma_leaf l = leaf_of(x.operand, &s);
    struct contraction p = {.m = m,
                            .x = x.c.x,
                            .s = blocking_of(&s),
                            .st = {.type = type, .swizzled = s.swz, .pad = pad_of(&s), .a_as_is = true, .b_as_is = true, .a_wide = wide, .b_wide = wide},
                            .type = emit_type(type),
                            .n_out = mma_out_size(&l),
                            .out_type = acc_type(&s),
                            .leaf = &leaf_mma,
                            .own = &l};
    wg_init(&p.g, m, p.s.threads, (u32)s.subgroup);
    f->open(&x.c, &p, t);
    contract_emit(&p, t, c);
}

/* Choice. */

struct registers { i64 sums, operands, copied; }; /* of a thread; copied: on their way to shared memory during the arithmetic */

/* size: bytes of an operand's element. */
static struct registers registers_of(const struct mma_sched *s, i64 size)
{
    struct blocking p = blocking_of(s);
    bool copies = s->pipe && s->pipe < PIPE_ASYNC;
    return (struct registers){.sums = s->wm * s->wn * s->m * s->n * s->acc / 32 / s->subgroup,
                              .operands = (s->wm * s->m + (s->rp ? s->wn : 1) * s->n) * s->k * size / 4 / s->subgroup * (1 + s->rp),
                              .copied = copies ? s->bk * (p.bm + p.bn) / p.threads * size / 4 : 0};
}

static i64 shared_bytes(const struct mma_sched *s, i64 size)
{
    struct blocking p = blocking_of(s);
    struct mma_leaf l = leaf_of(DT_NONE, s);
    return size * blocking_shared(&p, pad_of(s)) + mma_out_size(&l) * s->acc / 8;
}

/* Rules of numbers alone: cheap. */
static bool fits(const struct caps *c, const struct mma_sched *s, i64 size)
{
    struct blocking p = blocking_of(s);
    struct registers r = registers_of(s, size);
    if (s->rp && s->bk == s->k) return false; /* one step */
    if (s->stream_k && !stream_k_is_legal(c, p.bm, p.bn, p.bk, p.split_k)) return false;
    if (s->bk % s->k || s->bk / s->k > MAX_STEPS || s->wm * s->wn > MAX_FRAGMENTS || p.threads < wg_least(c)) return false;
    if (!wg_has_registers(c, p.threads, r.sums + r.operands + r.copied)) return false;
    return wg_is_legal(c, p.threads, shared_bytes(s, size));
}

/* What fits with the shortest operands. */
static bool is_legal(const struct mma_task *t, const struct caps *c, const struct mma_sched *s)
{
    struct blocking p = blocking_of(s);
    i64 size = dtype_size(t->operand);
    struct mma_leaf l = leaf_of(t->operand, s);
    return (size <= SHORT || fits(c, s, size)) && blocking_is_useful(&t->c.x, &p) && mma_is_listed(&l.t, c);
}

bool mma_legal(const struct gen_problem *p, const struct sched *v)
{
    const struct mma_sched s = sched_of(p->c, v);
    return fits(p->c, &s, SHORT) && is_legal(p->facts, p->c, &s);
}

/* A listed shape's smallest schedule. */
static bool least_sched(const struct gen_problem *p, const struct caps_matrix *shape, struct sched *out)
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
                                [P_split_k] = 1,
                                [P_stream_k] = 0}};
    struct mma_sched s = sched_of(p->c, out);
    while (blocking_of(&s).threads < wg_least(p->c) && s.gm < 4) s.gm *= 2, out->v[P_gm] = (i32)s.gm;
    return mma_legal(p, out);
}

bool mma_least(const struct gen_problem *p, u32 k, struct sched *s)
{
    struct str list = str_of(p->c->matrix);
    struct caps_matrix shape;
    while (caps_matrix_next(&list, &shape))
        if (least_sched(p, &shape, s) && k-- == 0) return true;
    return false;
}

bool mma_sure(const struct gen_problem *p, const struct sched *s) { return s->v[P_acc] == 32; }

/* Every subgroup loads its fragments of both operands from shared memory. */
static struct wg_facts facts_of(const struct gen_problem *p, const struct mma_sched *s)
{
    const struct mma_task *t = p->facts;
    struct blocking b = blocking_of(s);
    double size = (double)dtype_size(t->operand), find = t->c.find + wg_copy_instructions(16 / size);
    struct wg_facts f = blocking_facts(p, &t->c.x, &b, find, find);
    struct registers r = registers_of(s, dtype_size(t->operand));
    f.op = rate_op_mma(t->operand), f.op_rate = s->acc == 16 ? MMA_SHORT_SUMS : 1;
    f.shared_bytes = shared_bytes(s, dtype_size(t->operand)), f.regs = (double)(r.sums + r.operands + r.copied) + WG_ADDRESSES;
    f.step.moved += (double)(s->gm * s->gn * (s->wm * s->m + s->wn * s->n) * s->bk) * size;
    return f;
}

double mma_predict(const struct gen_problem *p, const struct sched *v)
{
    const struct mma_sched s = sched_of(p->c, v);
    const struct wg_facts f = facts_of(p, &s);
    return wg_seconds(p, &f);
}
