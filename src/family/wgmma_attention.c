// SPDX-License-Identifier: Apache-2.0
//
// wgmma_attention: two matmuls with a softmax between them, by workgroups, in one kernel, both products by matrix units of warpgroups
// (gen/wgmma_attention_emit.c): which schedules there are, and which of them is good. Queries, keys and values are f16 or bf16, all of one type; scores,
// exponentials and sums are f32 in registers, and probabilities are rounded to the operands' type, as they are in the graph.
#include "gen/wgmma_attention.h"

GEN_PARAMS(WGMMA_ATTENTION_PARAMS)

enum { OWN_SUBGROUP = 32 /* threads: kernel IR, "A thread's own elements" */, MAX_COPIED = 128 /* elements of a block that a thread copies */ };

static bool analyze(const struct gen_problem *p)
{
    const struct wg_attention_facts *f = p->facts;
    if (p->c->warpgroup < 2 || !p->c->has_subgroup || p->c->subgroup != OWN_SUBGROUP || !wg_attention_analyze(p, p->facts)) return false;
    return (f->operand == DT_F16 || f->operand == DT_BF16) && gen_static(f->x.scores.g, f->x.scores.k, 1) > 0;
}

static struct wgmma_attention_sched view_of(const struct gen_problem *p, const struct sched *v)
{
    const struct wg_attention_facts *f = p->facts;
    return wgmma_attention_sched_of(v, p->c, f->operand, f->e);
}

/* Of a thread: sums of the output, scores, and exponentials in 16 bits. */
static i64 registers_of(const struct wg_attention_sched *w) { return w->otr * w->otc + w->ptr * w->ptc * 3 / 2 + 2 * w->ptr; }

static bool fits_copies(const struct wg_attention_facts *f, const struct wg_attention_sched *w)
{
    return i64_max(w->br, w->bc) * i64_max(wg_attention_terms(&f->x, w), w->columns) / w->threads <= MAX_COPIED;
}

static bool fits(const struct wg_attention_facts *f, const struct caps *c, const struct wgmma_attention_sched *s, u32 p)
{
    const struct wg_attention_sched *w = &s->w;
    switch (p) {
    case P_gm: return w->threads <= c->max_group;
    case P_bc: return w->units[0].t.wn && w->units[1].t.wn && w->units[1].t.wn <= MMA_MAX && wg_has_registers(c, w->threads, registers_of(w)) && fits_copies(f, w);
    case P_stages: return wg_is_legal(c, w->threads, wg_attention_shared_bytes(&f->x, w));
    case P_skip: return !s->skip || f->x.has_mask;
    case P_split: return wg_attention_fits_split(f, w) && wg_is_legal(c, w->threads, wg_attention_shared_bytes(&f->x, w));
    default: return true;
    }
}

static bool legal(const struct gen_problem *p, const struct sched *v)
{
    const struct wgmma_attention_sched s = view_of(p, v);
    for (u32 i = 0; i < N_PARAM; i++)
        if (!fits(p->facts, p->c, &s, i)) return false;
    return true;
}

/* The smallest schedule, of some numbers of warpgroups: long heads need several for their copies. */
static bool least(const struct gen_problem *p, u32 number, struct sched *v)
{
    if (number >= param[P_gm].n) return false;
    *v = (struct sched){.v = {[P_gm] = param[P_gm].values[number], [P_bc] = param[P_bc].values[0], [P_stages] = param[P_stages].values[0]}};
    return true;
}

/* What is worth trying. Searches change single values, and ask the last parameter's rule: that is all of them. */
static bool is_worth(const struct wg_attention_facts *f, const struct caps *c, const struct wgmma_attention_sched *s, u32 p)
{
    const struct wg_attention_sched *w = &s->w;
    if (p == P_split)
        for (u32 i = 0; i < P_split; i++)
            if (!is_worth(f, c, s, i)) return false;
    switch (p) {
    case P_gm: return blocking_fits_size(w->br, w->br / s->gm, f->m);
    case P_bc: return blocking_fits_size(w->bc, 64, f->n);
    case P_split: return wg_attention_is_split_worth(f, c, w);
    default: return true;
    }
}

static bool worth(const struct gen_problem *p, const struct sched *v, u32 n)
{
    const struct wgmma_attention_sched s = view_of(p, v);
    return fits(p->facts, p->c, &s, n - 1) && is_worth(p->facts, p->c, &s, n - 1);
}

/* The units read their operands from shared memory once per fragment of rows, but for the probabilities; nothing else passes through it. */
static struct wg_work block_work(const struct wg_attention_facts *f, const struct wgmma_attention_sched *s)
{
    const struct wg_attention_sched *w = &s->w;
    double size = (double)f->size, rows = (double)w->br / (double)s->gm, bc = (double)w->bc, d = (double)wg_attention_terms(&f->x, w);
    struct wg_work x = wg_attention_block_work(f, w);
    x.moved += size * (double)s->gm * (d * (rows + bc) + bc * (double)w->columns);
    x.barriers = 1;
    return x;
}

static double predict(const struct gen_problem *p, const struct sched *v)
{
    const struct wg_attention_facts *f = p->facts;
    const struct wgmma_attention_sched s = view_of(p, v);
    const struct wg_attention_step step = {.block = block_work(f, &s),
                                           .regs = (double)registers_of(&s.w),
                                           .ilp = (double)(s.w.ptr * s.w.ptc),
                                           .op = rate_op_mma(f->operand),
                                           .op_rate = WGMMA_SPEED,
                                           .ahead = (double)(s.stages - 1)};
    return wg_attention_seconds(p, f, &s.w, &step);
}

static void emit(struct emit *m, const struct task *t, const struct caps *c, const struct sched *v)
{
    struct attention x;
    attention_of(&x, t);
    const struct wgmma_attention_sched s = wgmma_attention_sched_of(v, c, graph_value(&t->g, x.scores.a)->dtype, gen_static(&t->g, x.values.n, 1));
    wg_attention_emit(m, t, c, &s.w);
}

const struct gen gen_wgmma_attention = {
    .version = 1, .name = "wgmma_attention", .revision = 2, .param = param, .n_param = N_PARAM,
    .sums = SUMS_IN_PARTS, .chains = true, .facts = sizeof(struct wg_attention_facts),
    .analyze = analyze, .least = least, .legal = legal, .worth = worth, .emit = emit, .predict = predict,
};
