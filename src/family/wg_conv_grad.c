// SPDX-License-Identifier: Apache-2.0
//
// wg_conv_grad: the gradient of a convolution's weights by workgroups with multiply-adds (gen/addr_grad.c): a workgroup computes bm = tr*tm by bn = tc*tn
// gradients in K blocks of bk positions, each thread a tile of tm by tn in registers.
#include "gen/addr_grad.h"
#include "gen/leaf.h"

enum { MAX_COPIED = 64 /* elements of one operand that a thread copies per K block */, PAD = 4 };

/* In the order in which a choice of one narrows down the next ones. */
// clang-format off
#define PARAMS(P)                                                                                       \
    P(tr, "threads along output channels", 1, 2, 4, 8, 16, 32)                                          \
    P(tc, "threads along input channels and taps", 1, 2, 4, 8, 16, 32)                                  \
    P(tm, "output channels of a thread", 1, 2, 4, 8)                                                    \
    P(tn, "input channels and taps of a thread", 1, 2, 4, 8)                                            \
    P(bk, "positions of a K block", 4, 8, 16, 32)                                                         \
    P(pipe, "0 K blocks in turn, 1 loads ahead, 2 and two buffers", PIPE_NONE, PIPE_AHEAD, PIPE_DOUBLE) \
    P(split_k, "workgroups that share the positions of a block", 1, 2, 4, 8, 16, 32, 64, 128)
// clang-format on
GEN_PARAMS(PARAMS)
GEN_PARAM_READER(struct params, params_of, PARAMS)

/* Emission. */

static struct blocking blocking_of(const struct params *v)
{
    return (struct blocking){.bm = v->tr * v->tm,
                             .bn = v->tc * v->tn,
                             .bk = v->bk,
                             .threads = v->tr * v->tc,
                             .pipe = (enum wg_pipe)v->pipe,
                             .stages = v->pipe == PIPE_DOUBLE ? 2 : 1,
                             .raster = 1,
                             .split_k = v->split_k};
}

static void emit(struct emit *m, const struct task *t, const struct caps *caps, const struct sched *s)
{
    const struct params v = params_of(s);
    struct grad_address x;
    grad_address_of(&x, t);
    i64 run = i64_min(4, v.tm), lanes = i64_min(4, v.tn);
    struct fma_leaf l = {.row = {v.tm, run, v.tm, v.tr, 1}, .col = {v.tn, lanes, v.tn, v.tc, 1}, .lanes = (u32)lanes};
    l.unroll = fma_unroll(&l, v.bk);
    struct contraction p = {.m = m,
                            .x = x.x,
                            .s = blocking_of(&v),
                            .st = {.type = graph_value(&t->g, x.x.a)->dtype, .pad = PAD, .a_wide = 8, .b_wide = 8},
                            .type = x.x.type,
                            .out_type = x.x.type,
                            .leaf = &leaf_fma,
                            .own = &l};
    wg_init(&p.g, m, p.s.threads, 0);
    grad_address_open(&x, &p);
    contract_emit(&p, t, caps);
}

/* Choice: rules about a parameter and those before it. */

struct view { struct grad_address s; i64 m, n, k, size; };

static bool analyze(const struct gen_problem *p)
{
    struct view *w = p->facts;
    if (!p->c->is_gpu || wg_least(p->c) <= 1 || !grad_address_of(&w->s, p->t) || (!p->c->has_f64 && w->s.x.type == DT_F64)) return false;
    w->m = w->s.q.oc, w->n = w->s.q.ic * w->s.taps, w->k = gen_eval(&p->t->g, w->s.x.k, NULL);
    w->size = dtype_size(graph_value(&p->t->g, w->s.x.a)->dtype);
    return true;
}

static i64 rows_of(struct params v) { return v.tr * v.tm; }

static i64 columns_of(struct params v) { return v.tc * v.tn; }

static i64 threads_of(struct params v) { return v.tr * v.tc; }

static i64 stages_of(struct params v) { return v.pipe == PIPE_DOUBLE ? 2 : 1; }

static i64 copied(struct params v, i64 block) { return ceil_div(block * v.bk, threads_of(v)); }

static i64 registers_of(struct params v)
{
    return v.tm * v.tn + v.tm + v.tn + (v.pipe ? copied(v, rows_of(v)) + copied(v, columns_of(v)) : 0);
}

static i64 shared_bytes(const struct view *w, struct params v)
{
    return stages_of(v) * v.bk * (rows_of(v) + columns_of(v) + 2 * PAD) * w->size;
}

static bool fits_pipe(const struct view *w, const struct caps *c, struct params v)
{
    return wg_has_registers(c, threads_of(v), registers_of(v)) && wg_is_legal(c, threads_of(v), shared_bytes(w, v));
}

static bool fits(const struct view *w, const struct caps *c, struct params v, u32 p)
{
    switch (p) {
    case P_tc: return threads_of(v) > 1 && threads_of(v) <= c->max_group; /* a workgroup of one thread is none */
    case P_tn: return wg_has_registers(c, threads_of(v), v.tm * v.tn + v.tm + v.tn);
    case P_bk: return copied(v, rows_of(v)) <= MAX_COPIED && copied(v, columns_of(v)) <= MAX_COPIED;
    case P_pipe: return fits_pipe(w, c, v);
    case P_split_k: return v.split_k == 1 || ceil_div(w->k, v.bk) >= 2 * v.split_k;
    default: return true;
    }
}

static bool is_legal(const struct view *w, const struct caps *c, struct params v)
{
    for (u32 p = 0; p < N_PARAM; p++)
        if (!fits(w, c, v, p)) return false;
    return true;
}

static bool is_tile_worth(const struct view *w, struct params v)
{
    i64 sums = v.tm * v.tn;
    return blocking_fits_size(columns_of(v), 8, w->n) && sums <= 64 && (sums >= 4 || w->m * w->n <= 256);
}

static i64 block_count(const struct view *w, struct params v)
{
    return w->s.q.groups * ceil_div(w->m, rows_of(v)) * ceil_div(w->n, columns_of(v));
}

static bool is_worth(const struct view *w, const struct caps *c, struct params v, u32 p)
{
    switch (p) {
    case P_tc: return threads_of(v) >= wg_least(c) && threads_of(v) <= 256;
    case P_tm: return blocking_fits_size(rows_of(v), 8, w->m);
    case P_tn: return is_tile_worth(w, v);
    case P_bk: return v.bk >= 8 ? blocking_fits_size(v.bk, 8, w->k) : w->k < 16;
    case P_split_k: return v.split_k == 1 || block_count(w, v) * v.split_k <= 1024;
    default: return true;
    }
}

static bool legal(const struct gen_problem *p, const struct sched *s) { return is_legal(p->facts, p->c, params_of(s)); }

static bool worth(const struct gen_problem *p, const struct sched *s, u32 n)
{
    const struct params v = params_of(s);
    return fits(p->facts, p->c, v, n - 1) && is_worth(p->facts, p->c, v, n - 1);
}

static double predict(const struct gen_problem *p, const struct sched *s)
{
    enum { FIND = 20 /* instructions that find an element of either operand */ };
    const struct view *w = p->facts;
    const struct params v = params_of(s);
    const struct blocking b = blocking_of(&v);
    double reads = (double)(v.bk * b.threads * (v.tm / i64_min(4, v.tm) + v.tn / i64_min(4, v.tn)));
    struct wg_facts f = blocking_facts(p, &w->s.x, &b, FIND, FIND);
    f.regs = (double)registers_of(v) + WG_ADDRESSES, f.shared_bytes = shared_bytes(w, v);
    f.step.instructions += reads, f.step.moved += 4 * reads;
    return wg_seconds(p, &f);
}

static bool least(const struct gen_problem *p, u32 k, struct sched *s)
{
    *s = (struct sched){.v = {[P_tc] = 1, [P_tm] = 1, [P_tn] = 1, [P_bk] = param[P_bk].values[0], [P_split_k] = 1}};
    s->v[P_tr] = gen_nearest(&param[P_tr], wg_least(p->c));
    return k == 0;
}

const struct gen gen_wg_conv_grad = {
    GEN_FAMILY("wg_conv_grad", 1), .sums = SUMS_IN_PARTS, .facts = sizeof(struct view),
    .analyze = analyze, .least = least, .legal = legal, .worth = worth, .emit = emit,
    .predict = predict,
};
