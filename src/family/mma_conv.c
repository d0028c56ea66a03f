// SPDX-License-Identifier: Apache-2.0
//
// mma_conv: convolution by workgroups with matrix units. A row of m neighbouring pixels
// is the m side of a fragment, k input channels of one tap the inner side, n output channels the
// other: the input tile in shared memory serves all taps, each from another place. Subgroups stand
// wgm x wgn in the workgroup's tile, each with sgm x sgn sums. Weights come from shared memory or from
// the packed array. Outputs are stored through shared memory, in the input's type, sums of a split K in f32.
//
// A shape is one that the target lists with the input's type on both sides; sums are f32 or f16.
#include "gen/halo.h"
#include "gen/leaf.h"

// clang-format off
#define PARAMS(P)                                                                                     \
    P(m, "pixels of a fragment", 4, 8, 16, 32, 64)                                                    \
    P(n, "output channels of a fragment", 4, 8, 16, 32, 64)                                           \
    P(k, "input channels of a fragment", 2, 4, 8, 16, 32, 64)                                         \
    P(acc, "bits of a sum", 16, 32)                                                                   \
    P(sub, "threads of a subgroup", 4, 8, 16, 32, 64)                                                 \
    P(wgm, "subgroups along pixels", 1, 2, 4, 8)                                                      \
    P(wgn, "subgroups along output channels", 1, 2, 4)                                                \
    P(sgm, "fragments of a subgroup along pixels", 1, 2, 3, 4, 6, 8)                                  \
    P(sgn, "fragments of a subgroup along output channels", 1, 2, 3, 4)                               \
    P(mx, "fragments of a row of the workgroup's tile", 1, 2, 4)                                          \
    P(bk, "fragments of a block of input channels", 1, 2, 4)                                          \
    P(stage, "1: weights are copied to shared memory, too", 0, 1)                                     \
    P(pipe, "0 blocks in turn, 1 loads ahead, 2 and two buffers", PIPE_NONE, PIPE_AHEAD, PIPE_DOUBLE) \
    P(split_k, "workgroups that share the input channels of a tile", 1, 4)
// clang-format on
enum { MAX_FRAGMENTS = 16 /* of a subgroup */ };

GEN_PARAMS(PARAMS)
GEN_PARAM_READER(struct params, params_of, PARAMS)

/* The task, and a schedule's view. */
struct view {
    struct halo_task q;
    struct halo_plan p;
    struct params v;
    struct mma_leaf l;
};

/* Parts of the tile are fragments. */
static void look_at(struct view *w, const struct sched *s)
{
    const struct params v = w->v = params_of(s);
    enum dtype type = graph_value(w->q.c.g, w->q.c.x)->dtype;
    w->l = (struct mma_leaf){.t = {.wm = v.sgm, .wn = v.sgn}, .gm = v.wgm, .gn = v.wgn, .subgroups = 1, .rows_first = true};
    mma_shape(&w->l.t, type, v.acc == 32 ? DT_F32 : DT_F16, v.m, v.n, v.k);
    struct halo_work x = {.threads = v.sub * v.wgm * v.wgn,
                          .py = v.wgm * v.sgm / v.mx,
                          .px = v.mx,
                          .tc = v.wgn * v.sgn,
                          .ry = 1,
                          .rx = v.m,
                          .rc = v.n,
                          .near = v.m,
                          .bk = v.bk * v.k,
                          .deep = v.k,
                          .unroll_channels = true,
                          .split_k = v.split_k,
                          .readers = 8,
                          .apart = 1,
                          .input = true,
                          .weights = v.stage,
                          .store_shared = true,
                          .pipe = (enum wg_pipe)v.pipe};
    halo_plan_init(&w->p, &w->q, &x);
}

/* Emission. */

static void open(struct contraction *c)
{
    const struct mma_leaf *l = c->own;
    leaf_mma.open(c);
    kir_div_i(c->m->k, l->row, l->t.c.rows); /* the unit's first fragment: the builder finds it again within the loops */
}

static void store(struct contraction *c)
{
    const struct mma_leaf *l = c->own;
    const struct halo *h = halo_of(c);
    struct kir *k = h->m->k;
    for (i64 i = 0; i < l->t.wm; i++)
        for (i64 j = 0; j < l->t.wn; j++) {
            kval at[N_AT] = {[AT_C] = kir_add_i(k, l->col, j * l->t.c.cols)};
            halo_pixel(h, kir_add_i(k, l->row, i * l->t.c.rows), &at[AT_Y], &at[AT_X]);
            kval sum = kir_cast(k, kir_dtype(k, h->tile), mma_get(&l->t, k, i, j));
            kir_frag_store(k, h->tile, halo_result(h, at), sum, kir_int(k, h->p->result), false);
        }
    kir_barrier(k);
    halo_store_shared(h);
}

static void emit(struct emit *m, const struct task *t, const struct caps *caps, const struct sched *s)
{
    struct view w = {0};
    halo_task_of(&w.q, t);
    look_at(&w, s);
    struct leaf leaf = leaf_mma;
    leaf.open = open, leaf.store = store;
    struct contraction c = {.leaf = &leaf, .own = &w.l};
    struct halo h = {.q = &w.q, .p = &w.p, .m = m};
    halo_emit(&h, &c, (u32)w.v.sub, t, caps);
}

/* Choosing. */

/* Does the list hold a shape of that size, of whatever types? Asked for millions of points: words
 * are not taken apart. */
static bool has_size(const char *list, struct params v)
{
    for (const char *p = list; *p;) {
        i32 size[3] = {0};
        for (u32 i = 0; *p && *p != ':'; p++) {
            if (*p == 'x') i = i < 2 ? i + 1 : i;
            else size[i] = size[i] * 10 + (*p - '0');
        }
        if (size[0] == v.m && size[1] == v.n && size[2] == v.k) return true;
        while (*p && *p++ != ' ') continue;
    }
    return false;
}

/* What depends on the schedule alone. */
static bool is_sensible(const struct caps *caps, struct params v)
{
    u32 sub = (u32)v.sub, threads = sub * (u32)(v.wgm * v.wgn);
    if (sub < caps->subgroup_min || sub > caps->subgroup_max || threads > caps->max_group)
        return false;
    return v.wgm * v.sgm % v.mx == 0 && has_size(caps->matrix, v);
}

static bool is_possible(const struct view *w, const struct caps *caps)
{
    const struct conv *c = &w->q.c;
    if (c->xa < 0) return false;
    if (graph_value(c->g, c->w)->dtype != w->l.t.a.dtype || !mma_is_listed(&w->l.t, caps)) return false;
    return halo_plan_fits(&w->p, caps);
}

/* 32-bit registers of a thread: sums, operands, what is loaded ahead, addresses. */
static double registers(const struct view *w)
{
    double acc = (double)(w->v.sgm * w->v.sgn * w->v.m * w->v.n * dtype_size(w->l.t.c.dtype));
    double a = (double)((w->v.sgm * w->v.m + w->v.n) * w->v.k * dtype_size(w->l.t.a.dtype));
    double ahead = w->p.s.pipe == PIPE_NONE ? 0 : 4 * (double)halo_plan_copies(&w->p);
    return (acc + a) / (4 * (double)w->v.sub) + ahead + 30;
}

/* Not more than one tile hangs over, by less than half of it, unless it is the smallest. */
static bool is_wasteful(i64 tile, i64 least, i64 size)
{
    return tile > least && 2 * (round_up(size, tile) - size) >= tile;
}

static bool is_worth_trying(const struct view *w)
{
    const struct conv *c = &w->q.c;
    const struct halo_work *s = &w->p.s;
    if (s->split_k > 1 && halo_plan_tiles(&w->p, NULL) * (double)s->split_k > 512) return false;
    if (s->threads < 64 || registers(w) > 200 || w->v.sgm * w->v.sgn > MAX_FRAGMENTS) return false;
    if (w->p.tx < w->p.ty && w->v.mx < 2 && w->p.ty > 16) return false;
    if (s->bk > w->v.k && s->bk > round_up(c->ic, w->v.k)) return false;
    if (w->p.tx * w->p.ty > w->v.m && halo_plan_overlap(&w->p) > 3) return false;
    return !is_wasteful(w->p.width, w->v.n, c->oc) && !is_wasteful(s->bk, w->v.k, c->ic) &&
           !is_wasteful(w->p.tx, w->v.m, halo_task_size(&w->q, c->xa)) &&
           !is_wasteful(w->p.ty, 4, halo_task_size(&w->q, c->ya));
}

/* One subgroup with as few fragments as pooling allows. */
static bool is_least(const struct view *w)
{
    return w->v.wgm * w->v.wgn * w->v.sgn * w->v.mx * w->v.bk * w->p.s.split_k == 1 && !w->p.s.weights &&
           w->p.s.pipe == PIPE_NONE && w->v.sgm == halo_task_window(&w->q, w->q.c.ya);
}

static bool view(const struct gen_problem *p, const struct sched *s)
{
    if (!is_sensible(p->c, params_of(s))) return false;
    look_at(p->facts, s);
    return true;
}

static bool legal(const struct gen_problem *p, const struct sched *s)
{
    const struct view *w = p->facts;
    return (is_worth_trying(w) || is_least(w)) && is_possible(w, p->c);
}

/* The least schedule of a shape that the target lists; false: none for this task. Sums of f16 are
   for measurements and tests, never a default. */
static bool least_sched(const struct gen_problem *p, const struct caps_matrix *x, struct sched *s)
{
    const struct view *w = p->facts;
    u32 sub = p->c->subgroup ? p->c->subgroup : p->c->subgroup_min;
    *s = (struct sched){
        .v = {[P_m] = (i32)x->m, [P_n] = (i32)x->n, [P_k] = (i32)x->k, [P_sub] = (i32)sub}};
    s->v[P_acc] = 32;
    s->v[P_wgm] = s->v[P_wgn] = s->v[P_sgn] = s->v[P_mx] = s->v[P_bk] = s->v[P_split_k] = 1;
    s->v[P_sgm] = (i32)halo_task_window(&w->q, w->q.c.ya);
    return x->c == DT_F32 && gen_problem_allows(p, s);
}

static bool analyze(const struct gen_problem *p)
{
    struct view *w = p->facts;
    return p->c->is_gpu && str_of(p->c->matrix).n && halo_task_of(&w->q, p->t);
}

static bool least(const struct gen_problem *p, u32 k, struct sched *s)
{
    struct str list = str_of(p->c->matrix);
    struct caps_matrix x;
    while (caps_matrix_next(&list, &x))
        if (least_sched(p, &x, s) && k-- == 0) return true;
    return false;
}

static bool sure(const struct gen_problem *p, const struct sched *s) { return s->v[P_acc] == 32; }

/* Every subgroup loads its fragments of both operands, of the weights from shared memory or from the packed array. */
static double predict(const struct gen_problem *p, const struct sched *s)
{
    const struct view *w = p->facts;
    double size = (double)dtype_size(w->l.t.a.dtype), fma = (double)(w->v.m * w->v.n * w->v.k * w->v.sgm * w->v.sgn);
    double a = (double)(w->v.sgm * w->v.m * w->v.k), b = (double)(w->v.sgn * w->v.n * w->v.k) * (w->p.s.weights ? 1 : 1.5);
    struct wg_facts f = halo_plan_facts(&w->p, p->var);
    f.op = rate_op_mma(w->l.t.a.dtype), f.op_rate = w->l.t.c.dtype == DT_F16 ? MMA_SHORT_SUMS : 1;
    f.regs = registers(w), f.ilp = 8 * (double)(w->v.sgm * w->v.sgn);
    f.step.moved += f.step.fmas * size * (a + b) / fma;
    return wg_seconds(p, &f);
}

const struct gen gen_mma_conv = {
    GEN_FAMILY("mma_conv", 3), .facts = sizeof(struct view), .analyze = analyze, .least = least,
    .sure = sure, .view = view, .legal = legal, .emit = emit, .predict = predict,
};
