// SPDX-License-Identifier: Apache-2.0
//
// wg_gemm: GEMM by workgroups. A workgroup computes a block of bm x bn results in
// K blocks (gen/contract_emit.c), each thread a tile of tm x tn of them in registers (gen/leaf_fma.c). With
// few results and many terms the threads form `split_k_local` slices, each with its share of a K block's
// terms, whose sums are added through shared memory at the end. Schedules are gen/block.c's.
//
// The left operand's shared array keeps the order of memory, so that copies are wide on both sides:
// vectors along the terms, or along rows; or it has its terms outside in any case (ta). The right
// one's always has. An operand that is transposed before the GEMM is read in place.
//
// Dims: y (b.., m, n) = a (b.., m, k) x b (b.., k, n). SHARED: a [stage][bm][bk + pad] or
// [stage][bk][bm + pad], b [stage][bk][bn + pad]; at the end sums [slice][bm][bn].
#include "gen/block.h"
#include "gen/leaf.h"

static struct contraction contraction_of(struct emit *m, const struct task *t, const struct caps *caps, const struct block *s)
{
    struct contraction p = {.m = m,
                            .s = block_blocking(s, caps),
                            .st = {.swizzled = s->swz,
                                   .pad = s->pad,
                                   .a_as_is = !s->ta,
                                   .a_wide = s->glwa,
                                   .b_wide = s->glwb,
                                   .by_rows = !s->lc},
                            .leaf = &leaf_fma};
    i64 n_sums = s->split_k_local > 1 ? s->split_k_local * s->bm * s->bn : 0;
    gemm_of(&p.x, t);
    enum dtype own = graph_value(&t->g, p.x.a)->dtype;
    p.type = p.out_type = emit_type(own);
    p.st.type = s->half ? own : p.type;
    if (p.st.type == p.type) p.st.least = n_sums;
    else p.n_out = n_sums;
    return p;
}

static struct fma_leaf leaf_of(const struct contraction *p, const struct block *s)
{
    bool is_column = gen_static(p->m->g, p->x.n, 0) == 1;
    return (struct fma_leaf){.row = {s->tm, s->wswm, s->bswm, s->wly, s->bly},
                             .col = {s->tn, s->wswn, s->bswn, s->wlx, s->blx},
                             .lanes = is_column ? 1 : (u32)i64_min(4, s->wswn),
                             .split_k_local = s->split_k_local,
                             .unroll = s->un,
                             .ahead = s->rp,
                             .store_lanes = (u32)s->gsw,
                             .store_by_rows = !s->rc};
}

static void emit(struct emit *m, const struct task *t, const struct caps *caps, const struct sched *v)
{
    struct block s = block_of(v);
    struct contraction p = contraction_of(m, t, caps, &s);
    struct fma_leaf l = leaf_of(&p, &s);
    p.own = &l;
    wg_init(&p.g, m, s.threads, 0);
    contract_matrices(&p, t);
    contract_emit(&p, t, caps);
}

/* Choice. */

static bool analyze(const struct gen_problem *p)
{
    struct block_task *x = p->facts;
    return p->c->is_gpu && block_task_of(x, p->t, p->var) && gen_static(&p->t->g, x->x.k, 1) > 0 &&
           (p->c->has_f64 || graph_value(&p->t->g, x->x.a)->dtype != DT_F64);
}

static bool legal(const struct gen_problem *p, const struct sched *v)
{
    const struct block s = block_of(v);
    return block_is_legal(p->facts, p->c, &s);
}

static bool worth(const struct gen_problem *p, const struct sched *v, u32 n)
{
    const struct block s = block_of(v);
    return block_fits(p->facts, p->c, &s, n - 1) && block_is_worth(p->facts, p->c, &s, n - 1);
}

const struct gen gen_wg_gemm = {
    .version = 1,
    .name = "wg_gemm",
    .revision = 8,
    .param = block_param,
    .n_param = N_PARAM,
    .facts = sizeof(struct block_task),
    .analyze = analyze,
    .legal = legal,
    .worth = worth,
    .emit = emit,
    .predict = block_predict,
};
