// SPDX-License-Identifier: Apache-2.0
//
// mma: schedules of contractions whose leaf is a matrix instruction of subgroups: gm x gn subgroups stand in a block, each with wm x wn fragments
// of sums.
#include "gen/mma.h"

GEN_PARAMS(MMA_PARAMS)
GEN_PARAM_READER(struct mma_sched, read_sched, MMA_PARAMS)

enum { PAD = 8, WIDE = 32 /* bytes */, MAX_FRAGMENTS = 16, MAX_STEPS = 16 /* of a round */, SHORT = 2 /* bytes of the shortest operands */ };

bool mma_task_of(struct mma_task *x, const struct contract_form *f, const struct task *t, struct arena *a)
{
    const struct gemm *g = &x->c.x;
    if (!f->analyze(&x->c, t, a)) return false;
    x->operand = g->tf32 ? DT_TF32 : graph_value(g->g, g->a)->dtype;
    return graph_value(g->g, g->a)->dtype == graph_value(g->g, g->b)->dtype;
}

bool mma_analyze(const struct gen_problem *p, const struct contract_form *f)
{
    return p->c->is_gpu && mma_task_of(p->facts, f, p->t, p->arena);
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

/* Rules of numbers alone: cheap. size: bytes of an operand's element. */
static bool fits(const struct caps *c, const struct mma_sched *s, i64 size)
{
    struct blocking p = blocking_of(s);
    i64 copied = s->bk * (p.bm + p.bn) / p.threads * size / 4;
    i64 sums = s->wm * s->wn * s->m * s->n * s->acc / 32 / s->subgroup,
        operands = (s->wm * s->m + (s->rp ? s->wn : 1) * s->n) * s->k * size / 4 / s->subgroup * (1 + s->rp);
    if (s->rp && s->bk == s->k) return false; /* one step */
    if (s->stream_k && !stream_k_is_legal(c, p.bm, p.bn, p.bk, p.split_k)) return false;
    if (s->bk % s->k || s->bk / s->k > MAX_STEPS || s->wm * s->wn > MAX_FRAGMENTS || p.threads < wg_least(c)) return false;
    i64 regs = sums + operands + (s->pipe && s->pipe < PIPE_ASYNC ? copied : 0);
    if (!wg_has_registers(c, p.threads, regs)) return false;
    struct mma_leaf l = leaf_of(DT_NONE, s);
    i64 out = mma_out_size(&l) * s->acc / 8;
    return wg_is_legal(c, p.threads, size * blocking_shared(&p, pad_of(s)) + out);
}

/* What fits with the shortest operands. */
static bool is_legal(const struct mma_task *t, const struct caps *c, const struct mma_sched *s)
{
    struct blocking p = blocking_of(s);
    i64 size = dtype_size(t->operand);
    struct mma_leaf l = leaf_of(t->operand, s);
    return mma_is_listed(&l.t, c) && (size <= SHORT || fits(c, s, size)) && blocking_is_useful(&t->c.x, &p);
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
    return shape->m <= 32 && shape->n <= 32 && shape->k <= 32 && mma_legal(p, out);
}

bool mma_match(const struct gen_problem *p)
{
    const struct mma_task *t = p->facts;
    struct str list = str_of(p->c->matrix);
    struct caps_matrix shape;
    struct sched s;
    if (p->c->subgroup < 2 || gen_static(t->c.x.g, t->c.x.k, 1) <= 0) return false;
    while (caps_matrix_next(&list, &shape))
        if (least_sched(p, &shape, &s)) return true;
    return false;
}

/* Matrix units are eight times as fast, half that with tf32, twice as fast with f32, sums of 16 bits twice the first; loads of fragments from
   shared arrays keep them waiting. */
static double work_of(const struct mma_task *t, const struct mma_sched *s)
{
    if (s->acc == 16) return 0.07;
    return t->operand == DT_TF32 ? 0.25 : t->operand == DT_F32 ? 0.5 : 0.125;
}

static double seconds(const struct mma_task *t, const struct caps *c, const struct mma_sched *s, const i64 *var)
{
    struct blocking p = blocking_of(s);
    double wm = (double)(s->wm * s->m), wn = (double)(s->wn * s->n);
    double work = work_of(t, s) + 2 * (wm + wn) / (wm * wn);
    if (t->c.find > 0) work += t->c.find * (double)(p.bm + p.bn) / (double)(p.bm * p.bn);
    return blocking_seconds(&t->c.x, c, &p, work, var) + 1e-7 * (double)s->wm;
}

double mma_predict(const struct gen_problem *p, const struct sched *v)
{
    const struct mma_sched s = sched_of(p->c, v);
    return seconds(p->facts, p->c, &s, p->var);
}

/* The best of all shapes with such sums, all parameters but the shape's tried; 0: there is none. */
static double best_of_shapes(const struct gen_problem *p, enum dtype sums, struct sched *out)
{
    struct str list = str_of(p->c->matrix);
    struct caps_matrix shape;
    double best = 0;
    while (caps_matrix_next(&list, &shape)) {
        struct sched v;
        if (shape.c != sums || !least_sched(p, &shape, &v)) continue;
        gen_best(&(struct gen_search){param, P_gm, N_PARAM, gen_cost, p}, &v);
        double sec = gen_cost(p, &v);
        if (best == 0 || sec < best) best = sec, *out = v;
    }
    return best;
}

/* Short sums are for the measurements to choose. */
void mma_initial(const struct gen_problem *p, struct sched *out)
{
    bool found = best_of_shapes(p, DT_F32, out) > 0 || best_of_shapes(p, DT_F16, out) > 0;
    assert(found);
    (void)found;
}
