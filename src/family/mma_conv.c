// SPDX-License-Identifier: Apache-2.0
//
// mma_conv: convolution by workgroups with matrix units. A row of m neighbouring pixels
// is the m side of a fragment, k input channels of one tap the inner side, n output channels the
// other: the patch in shared memory serves all taps, each from another place. Subgroups stand
// wgm x wgn in the group's tile, each with sgm x sgn sums. Weights come from shared memory or from
// the packed array. Outputs leave through shared memory, in the input's type, sums of chunks in f32.
//
// A shape is one that the target lists with the input's type on both sides; sums are f32 or f16.
#include "gen/wg_conv.h"
#include "gen/leaf.h"

#include <string.h>

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
    P(mx, "fragments of a row of the group's tile", 1, 2, 4)                                          \
    P(bk, "fragments of a block of input channels", 1, 2, 4)                                          \
    P(stage, "1: weights are copied to shared memory, too", 0, 1)                                     \
    P(pipe, "0 blocks in turn, 1 loads ahead, 2 and two buffers", PIPE_NONE, PIPE_AHEAD, PIPE_DOUBLE) \
    P(split_k, "workgroups that share the input channels of a tile", 1, 4)
// clang-format on
GEN_PARAMS(PARAMS)
GEN_PARAM_READER(struct params, params_of, PARAMS)

struct mma_conv {
    struct wg_conv g;
    struct params v;
    struct mma_tile t;
    kval at_m, at_n; /* number of the subgroup's first fragment along pixels, first channel */
    kval at, w;      /* where the tile's patch and weights begin, in a step */
};

static void take(struct mma_conv *t, const struct sched *s)
{
    const struct params v = t->v = params_of(s);
    const struct graph *g = t->g.c.g;
    enum dtype x = graph_value(g, t->g.c.x)->dtype, sum = v.acc == 32 ? DT_F32 : DT_F16;
    t->t.wm = t->v.sgm, t->t.wn = t->v.sgn;
    mma_shape(&t->t, x, sum, t->v.m, t->v.n, t->v.k);
    struct wg_work w = {.threads = t->v.sub * t->v.wgm * t->v.wgn,
                           .ty = t->v.wgm * t->v.sgm / t->v.mx,
                           .tx = t->v.mx * t->v.m,
                           .oc = t->v.wgn * t->v.sgn * t->v.n,
                           .bk = t->v.bk * t->v.k,
                           .split_k = v.split_k,
                           .readers = 8,
                           .apart = 1,
                           .patch = true,
                           .weights = v.stage,
                           .store_shared = true,
                           .pipe = (enum wg_pipe)v.pipe};
    wg_conv_plan(&t->g, &w);
}

/* Emission. */

/* Row of fragments of the tile, and first pixel in it, of the subgroup's i-th fragment along
 * pixels. */
static void fragment_place(const struct mma_conv *t, i64 i, kval *y, kval *x)
{
    struct kir *k = t->g.m->k;
    kval f = kir_add_i(k, t->at_m, i);
    *y = kir_div_i(k, f, t->v.mx);
    *x = kir_mul_i(k, kir_mod_i(k, f, t->v.mx), t->v.m);
}

/* Of k channels under one tap. */
static kval load_a(void *user, i64 term, i64 i)
{
    struct mma_conv *t = user;
    struct wg_conv *g = &t->g;
    struct kir *k = g->m->k;
    const struct conv *c = &g->c;
    kval y, x;
    fragment_place(t, i, &y, &x);
    kval p = kir_add(k, t->at, kir_mul_i(k, x, g->step[c->xa]));
    if (c->ya >= 0) p = kir_add(k, p, kir_mul_i(k, y, g->step[c->ya]));
    return kir_frag_load(k, &t->t.a, g->patch, p, kir_int(k, g->step[c->xa]), false);
}

static kval load_b(void *user, i64 term, i64 j)
{
    struct mma_conv *t = user;
    struct wg_conv *g = &t->g;
    struct kir *k = g->m->k;
    kval p = kir_add(k, t->w, kir_add_i(k, t->at_n, j * t->v.n));
    return kir_frag_load(k, &t->t.b, g->s.weights ? g->weights : g->packed, p, kir_int(k, g->s.oc), false);
}

static void step(struct wg_conv *g, void *user, const struct wg_block *b)
{
    struct mma_conv *t = user;
    struct kir *k = g->m->k;
    struct wg_taps p = {.at = b->patch, .w = b->weights};
    wg_conv_taps(g, &p, false);
    kval c = kir_loop(k, KL_UNROLL, kir_int(k, 0), kir_int(k, g->s.bk), t->v.k);
    struct mma_source from = {t, load_a, load_b};
    t->at = kir_add(k, p.at, c), t->w = kir_add(k, p.w, kir_mul_i(k, c, g->s.oc));
    mma_multiply(&t->t, k, &from, t->v.k, false);
    for (u32 i = 0; i < p.n_loops + 1; i++) kir_end(k);
}

static void leave(struct mma_conv *t)
{
    struct wg_conv *g = &t->g;
    struct kir *k = g->m->k;
    for (i64 i = 0; i < t->v.sgm; i++)
        for (i64 j = 0; j < t->v.sgn; j++) {
            kval at[N_AT] = {[AT_C] = kir_add_i(k, t->at_n, j * t->v.n)};
            fragment_place(t, i, &at[AT_Y], &at[AT_X]);
            kval sum = kir_cast(k, kir_dtype(k, g->left), mma_get(&t->t, k, i, j));
            kir_frag_store(k, g->left, wg_conv_result(g, at), sum, kir_int(k, g->result),
                           false);
        }
    kir_barrier(k);
    wg_conv_store_shared(g);
}

static void emit(struct emit *m, const struct task *task, const struct caps *caps,
                 const struct sched *s)
{
    struct mma_conv *t = arena_new(m->arena, struct mma_conv);
    struct kir *k = m->k;
    wg_conv_of(&t->g, task);
    take(t, s);
    k->subgroup = (u32)t->v.sub;
    wg_conv_open(&t->g, m);
    kval sub = t->g.s.threads > t->v.sub ? kir_subgroup(k, 0) : kir_int(k, 0);
    t->at_m = kir_mul_i(k, kir_mod_i(k, sub, t->v.wgm), t->v.sgm);
    t->at_n = kir_mul_i(k, kir_div_i(k, sub, t->v.wgm), t->v.sgn * t->v.n);
    mma_open(&t->t, k);
    wg_conv_blocks(&t->g, step, t);
    leave(t);
    wg_conv_close(&t->g, task, caps);
}

/* Choosing. */

static bool is_listed(const struct mma_conv *t, const struct caps *caps)
{
    struct str list = str_of(caps->matrix);
    struct caps_matrix x;
    while (caps_matrix_next(&list, &x))
        if (x.m == t->v.m && x.n == t->v.n && x.k == t->v.k && x.a == t->t.a.dtype && x.b == t->t.b.dtype &&
            x.c == t->t.c.dtype && x.d == t->t.c.dtype)
            return true;
    return false;
}

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

static bool is_possible(const struct mma_conv *t, const struct caps *caps)
{
    const struct conv *c = &t->g.c;
    if (c->xa < 0 || (c->ya < 0 && t->g.s.ty > 1)) return false;
    if (graph_value(c->g, c->w)->dtype != t->t.a.dtype || !is_listed(t, caps)) return false;
    return wg_conv_fits(&t->g, caps);
}

/* 32-bit registers of a thread: sums, operands, what is loaded ahead, addresses. */
static double registers(const struct mma_conv *t)
{
    double acc = (double)(t->v.sgm * t->v.sgn * t->v.m * t->v.n * dtype_size(t->t.c.dtype));
    double a = (double)((t->v.sgm * t->v.m + t->v.n) * t->v.k * dtype_size(t->t.a.dtype));
    double ahead = t->g.s.pipe == PIPE_NONE ? 0 : 4 * (double)wg_conv_copies(&t->g);
    return (acc + a) / (4 * (double)t->v.sub) + ahead + 30;
}

/* Not more than one tile hangs over, by less than half of it, unless it is the smallest. */
static bool is_wasteful(i64 tile, i64 least, i64 size)
{
    return tile > least && 2 * (round_up(size, tile) - size) >= tile;
}

static bool is_worth_trying(const struct mma_conv *t)
{
    const struct conv *c = &t->g.c;
    const struct wg_work *s = &t->g.s;
    if (s->split_k > 1 && wg_conv_tiles(&t->g, NULL) * (double)s->split_k > 512) return false;
    if (s->threads < 64 || registers(t) > 200 || t->v.sgm * t->v.sgn > 16) return false;
    if (s->tx < s->ty && t->v.mx < 2 && s->ty > 16) return false;
    if (s->bk > t->v.k && s->bk > round_up(c->ic, t->v.k)) return false;
    if (s->tx * s->ty > t->v.m && wg_conv_halo(&t->g) > 3) return false;
    return !is_wasteful(t->g.width, t->v.n, c->oc) && !is_wasteful(s->bk, t->v.k, c->ic) &&
           !is_wasteful(s->tx, t->v.m, wg_conv_size(&t->g, c->xa)) &&
           !is_wasteful(s->ty, 4, wg_conv_size(&t->g, c->ya));
}

/* One subgroup with as few fragments as pooling allows. */
static bool is_least(const struct mma_conv *t)
{
    return t->v.wgm * t->v.wgn * t->v.sgn * t->v.mx * t->v.bk * t->g.s.split_k == 1 && !t->g.s.weights &&
           t->g.s.pipe == PIPE_NONE && t->v.sgm == wg_conv_window(&t->g, t->g.c.ya);
}

static bool view(const struct gen_problem *p, const struct sched *s)
{
    if (!is_sensible(p->c, params_of(s))) return false;
    take(p->facts, s);
    return true;
}

static bool legal(const struct gen_problem *p, const struct sched *s)
{
    const struct mma_conv *t = p->facts;
    return (is_worth_trying(t) || is_least(t)) && is_possible(t, p->c);
}

/* The least schedule of a shape that the target lists; false: none for this task. Sums of f16 are
   for those who measure and check, never a default. */
static bool least_sched(const struct gen_problem *p, const struct caps_matrix *x, struct sched *s)
{
    const struct mma_conv *t = p->facts;
    u32 sub = p->c->subgroup ? p->c->subgroup : p->c->subgroup_min;
    *s = (struct sched){
        .v = {[P_m] = (i32)x->m, [P_n] = (i32)x->n, [P_k] = (i32)x->k, [P_sub] = (i32)sub}};
    s->v[P_acc] = 32;
    s->v[P_wgm] = s->v[P_wgn] = s->v[P_sgn] = s->v[P_mx] = s->v[P_bk] = s->v[P_split_k] = 1;
    s->v[P_sgm] = (i32)wg_conv_window(&t->g, t->g.c.ya);
    return x->c == DT_F32 && x->m <= 64 && x->n <= 64 && x->k <= 64 && gen_problem_allows(p, s);
}

static bool analyze(const struct gen_problem *p)
{
    struct mma_conv *t = p->facts;
    return p->c->is_gpu && str_of(p->c->matrix).n && wg_conv_of(&t->g, p->t);
}

static bool match(const struct gen_problem *p)
{
    struct str list = str_of(p->c->matrix);
    struct caps_matrix x;
    struct sched s;
    while (caps_matrix_next(&list, &x))
        if (least_sched(p, &x, &s)) return true;
    return false;
}

/* Fragments are loaded at about the cost of six multiply-adds per 16 bytes of a thread; matrix
   units are eight times as fast with sums of f32, twice that with shorter ones, twice as fast with
   operands of f32. */
static double predict(const struct gen_problem *p, const struct sched *s)
{
    const struct mma_conv *t = p->facts;
    bool is_short = t->t.c.dtype == DT_F16, is_long = t->t.a.dtype == DT_F32;
    double fma = (double)(t->v.m * t->v.n * t->v.k * t->v.sgm * t->v.sgn);
    double a = (double)(t->v.sgm * t->v.m * t->v.k), b = (double)(t->v.sgn * t->v.n * t->v.k);
    struct wg_cost x = {.rate = is_short ? 14 : is_long ? 2 : 8, .regs = registers(t)};
    x.chains = 8 * (double)(t->v.sgm * t->v.sgn);
    x.loads = 0.75 * (a + b * (t->g.s.weights ? 1 : 1.5)) / fma;
    if (x.regs > 220) x.rate /= 3;
    return wg_conv_seconds(&t->g, p->c, &x, p->var);
}

/* Subgroups and fragments: wgm, wgn, sgm, sgn. */
static const i32 shapes[][4] = {{4, 1, 2, 2}, {4, 1, 2, 1}, {4, 1, 2, 4}, {4, 1, 1, 2},
                                {2, 2, 4, 2}, {4, 1, 4, 2}, {4, 2, 2, 2}, {8, 1, 1, 2},
                                {8, 1, 2, 2}, {2, 1, 2, 2}, {8, 1, 2, 1}, {4, 2, 4, 2}};

static void try_shape(const struct gen_problem *p, struct sched s, double *best, struct sched *out)
{
    for (u32 i = 0; i < countof(shapes) * param[P_mx].n * param[P_bk].n * 8; i++) {
        u32 j = i / countof(shapes);
        for (u32 k = 0; k < 4; k++) s.v[P_wgm + k] = shapes[i % countof(shapes)][k];
        s.v[P_mx] = param[P_mx].values[j % param[P_mx].n], j /= param[P_mx].n;
        s.v[P_bk] = param[P_bk].values[j % param[P_bk].n], j /= param[P_bk].n;
        s.v[P_stage] = j & 1, s.v[P_pipe] = j & 2 ? PIPE_DOUBLE : PIPE_NONE;
        s.v[P_split_k] = j & 4 ? 4 : 1;
        gen_try(p, &s, best, out);
    }
}

static void initial(const struct gen_problem *p, struct sched *out)
{
    struct str list = str_of(p->c->matrix);
    struct caps_matrix x;
    double best = 0;
    while (caps_matrix_next(&list, &x)) {
        struct sched s;
        if (!least_sched(p, &x, &s)) continue;
        gen_try(p, &s, &best, out);
        try_shape(p, s, &best, out);
    }
    assert(best > 0);
}

const struct gen gen_mma_conv = {
    .version = 1,
    .name = "mma_conv",
    .revision = 3,
    .param = param,
    .n_param = N_PARAM,
    .facts = sizeof(struct mma_conv),
    .analyze = analyze,
    .match = match,
    .view = view,
    .initial = initial,
    .legal = legal,
    .emit = emit,
    .predict = predict,
};
