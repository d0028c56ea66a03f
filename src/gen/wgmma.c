// SPDX-License-Identifier: Apache-2.0
//
// wgmma: schedules of contractions whose leaf is a matrix instruction of a warpgroup.
#include "gen/wgmma.h"

GEN_PARAMS(WGMMA_PARAMS)

enum {
    LINE_BYTES = 128,   /* of a swizzled array: doc/kernel-ir.md */
    WIDE = 16,
    GROUP_BYTES = 8,    /* of shared memory for a group of pending copies of boxes */
    MAX_REGS = 232,     /* of a thread, and what of them are no sums: */
    OTHER_REGS = 40,
    ALL_REGS = 1 << 16, /* of a workgroup */
};

struct wgmma_sched {
    WGMMA_PARAMS(GEN_PARAM_FIELD)
    i64 m, k;           /* the shape's */
    i64 warpgroup;      /* threads */
};

GEN_PARAM_READER(struct wgmma_sched, read_sched, WGMMA_PARAMS)

static enum dtype acc_type(const struct wgmma_sched *s) { return s->acc == 32 ? DT_F32 : DT_F16; }

static bool sched_of(const struct caps *c, enum dtype t, const struct sched *v, struct wgmma_sched *s)
{
    *s = read_sched(v);
    s->warpgroup = (i64)c->warpgroup * c->subgroup;
    /* The shape with so many columns. false: there is none with the type on both sides and such sums. */
    struct str list = str_of(c->warpgroup_matrix);
    struct caps_matrix x;
    while (caps_matrix_next(&list, &x)) {
        if (x.n != s->n || x.a != t || x.b != t || x.c != acc_type(s) || x.d != acc_type(s)) continue;
        s->m = x.m, s->k = x.k;
        return true;
    }
    return false;
}

static struct blocking blocking_of(const struct wgmma_sched *s)
{
    return (struct blocking){.bm = s->gm * s->wm * s->m,
                             .bn = s->gn * s->wn * s->n,
                             .bk = s->bk,
                             .threads = s->gm * s->gn * s->warpgroup,
                             .pipe = PIPE_ASYNC,
                             .stages = s->stages,
                             .raster = s->raster,
                             .split_k = s->split_k};
}

static struct mma_leaf leaf_of(enum dtype t, const struct wgmma_sched *s)
{
    struct mma_leaf l = {.t = {.wm = s->wm, .wn = s->wn}, .gm = s->gm, .gn = s->gn};
    mma_shape(&l.t, t, acc_type(s), s->m, s->n, s->k);
    return l;
}

static i64 part_bytes(const struct wgmma_sched *s)
{
    struct mma_leaf l = leaf_of(DT_NONE, s);
    return wgmma_out_size(&l) * s->acc / 8;
}

static i64 held_bytes(enum dtype t, const struct wgmma_sched *s)
{
    struct blocking p = blocking_of(s);
    return blocking_shared(&p, 0) * dtype_size(t) + (s->tma ? s->stages * GROUP_BYTES : 0);
}

/* Warpgroups whose fragments are stored at once: a power of two. */
static i64 stored_at_once(const struct caps *c, enum dtype t, const struct wgmma_sched *s)
{
    i64 n = s->gm * s->gn;
    while (n > 1 && held_bytes(t, s) + n * part_bytes(s) > c->shared_bytes) n /= 2;
    return n;
}

void wgmma_emit(struct emit *m, const struct task *t, const struct caps *c, const struct sched *v, const struct contract_form *f)
{
    struct mma_task x = {0};
    struct wgmma_sched s;
    mma_task_of(&x, f, t, m->arena);
    enum dtype type = x.operand;
    sched_of(c, type, v, &s);
    struct mma_leaf l = leaf_of(type, &s);
    l.subgroups = c->warpgroup, l.at_once = stored_at_once(c, type, &s);
    struct contraction p = {.m = m,
                            .x = x.c.x,
                            .s = blocking_of(&s),
                            .st = {.type = type,
                                   .swizzled = true,
                                   .panel = LINE_BYTES / dtype_size(type),
                                   .tma = s.tma,
                                   .copies_last = true,
                                   .a_as_is = true,
                                   .b_as_is = true,
                                   .a_wide = WIDE,
                                   .b_wide = WIDE},
                            .type = emit_type(type),
                            .leaf = &leaf_wgmma,
                            .own = &l};
    wg_init(&p.g, m, p.s.threads, c->subgroup);
    m->k->warpgroup = c->warpgroup;
    f->open(&x.c, &p, t);
    contract_emit(&p, t, c);
}

/* Choice. */

/* Rules of numbers alone: cheap. */
static bool fits(const struct caps *c, enum dtype t, const struct wgmma_sched *s)
{
    struct blocking p = blocking_of(s);
    i64 sums = s->wm * s->wn * s->m * s->n * s->acc / 32 / s->warpgroup;
    struct mma_leaf l = leaf_of(t, s);
    if (sums + OTHER_REGS > MAX_REGS || (sums + OTHER_REGS) * p.threads > ALL_REGS) return false;
    if (s->bk % s->k || !wgmma_stores_whole(&l, s->warpgroup) || s->m % (LINE_BYTES / dtype_size(t))) return false;
    return wg_is_legal(c, p.threads, held_bytes(t, s) + part_bytes(s));
}

bool wgmma_legal(const struct gen_problem *p, const struct sched *v)
{
    const struct mma_task *t = p->facts;
    const struct caps *c = p->c;
    struct wgmma_sched s;
    const struct gemm *x = &t->c.x;
    if (!sched_of(c, t->operand, v, &s) || !fits(c, t->operand, &s) || gen_static(x->g, x->n, 0) == 1) return false;
    if (s.tma && (!c->has_tile || !contract_is_boxable(x, s.bk))) return false;
    struct blocking b = blocking_of(&s);
    return blocking_is_useful(x, &b);
}

/* Blocks of one fragment, of every width, with sums of 32 and of 16 bits. */
bool wgmma_least(const struct gen_problem *p, u32 k, struct sched *s)
{
    if (p->c->warpgroup < 2 || k >= param[P_n].n * param[P_acc].n) return false;
    *s = (struct sched){.v = {[P_n] = param[P_n].values[k % param[P_n].n], [P_acc] = param[P_acc].values[k / param[P_n].n], [P_gm] = 1, [P_gn] = 1, [P_wm] = 1,
                              [P_wn] = 1, [P_bk] = param[P_bk].values[0], [P_stages] = param[P_stages].values[0], [P_raster] = 1, [P_split_k] = 1}};
    return true;
}

bool wgmma_sure(const struct gen_problem *p, const struct sched *s) { return s->v[P_acc] == 32 && !s->v[P_tma]; }

/* Such units are about twice as fast as those of subgroups; they read their operands from shared memory once per fragment. */
double wgmma_predict(const struct gen_problem *p, const struct sched *v)
{
    const struct mma_task *t = p->facts;
    struct wgmma_sched s;
    if (!sched_of(p->c, t->operand, v, &s)) return 1e9;
    struct blocking b = blocking_of(&s);
    double size = (double)dtype_size(t->operand), find = t->c.find + wg_copy_instructions(16 / size);
    struct wg_facts f = blocking_facts(p, &t->c.x, &b, find, find);
    f.op = rate_op_mma(t->operand), f.op_rate = WGMMA_SPEED, f.ahead = (double)(s.stages - 1);
    f.shared_bytes = held_bytes(t->operand, &s) + part_bytes(&s);
    f.regs = (double)(s.wm * s.wn * s.m * s.n * s.acc / 32 / s.warpgroup) + OTHER_REGS;
    f.step.moved += (double)(s.gm * s.gn * s.wm * s.wn * (s.m + s.n) * s.bk) * size;
    return wg_seconds(p, &f);
}
