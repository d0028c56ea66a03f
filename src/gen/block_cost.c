// SPDX-License-Identifier: Apache-2.0
//
// block_cost: the facts of wg_gemm's schedules for the cost model, and the schedule for an empty database.
#include "gen/block.h"

/* Of the left operand's array: do vectors run along terms? */
static bool terms_inside(const struct block_task *x, const struct block *s) { return x->x.a_plain && !s->ta; }

static double at_least(double x, double least) { return x > least ? x : least; }

/* Accesses to shared memory, of 32 words each, for one thread's part of a term, per subgroup of 32 threads: what is read by
   several at once counts once, what lies in the same bank waits. */
static double accesses(const struct block_task *x, const struct block *s)
{
    i64 run = i64_min(4, s->wswm), lanes = x->is_column ? 1 : i64_min(4, s->wswn);
    double rows = (double)(s->tm / run) * at_least((double)(i64_min(s->wly, 32) * s->wswm) / 32, 1),
           cols = (double)(s->tn / lanes) * at_least((double)(i64_min(s->wlx, 32) * s->wswn) / 32, 1);
    if (terms_inside(x, s)) { /* vectors of four terms, in eight places of four banks */
        i64 step = s->wswm * (s->bk + s->pad) / 4, places = 8;
        while (places > 1 && step % 2 == 0) step /= 2, places /= 2;
        rows = (double)s->tm / 4 * at_least((double)i64_min(s->wly, 32) / (double)places, 1);
    }
    return (rows + cols) * (s->half ? 0.75 : 1);
}

/* Instructions of one thread for its part of a K block, without multiply-adds and copies. */
static double others(const struct block_task *x, const struct block *s)
{
    double share = (double)(s->bk / s->split_k_local);
    double frags = (double)s->tm / (double)(terms_inside(x, s) ? 4 : i64_min(4, s->wswm)) + (double)s->tn / (double)i64_min(4, s->wswn);
    double transposes = x->x.a_plain && s->ta ? (double)(s->bk * s->bm) / (double)s->threads * 2 : 0;
    return share * (frags + 4 / (double)i64_min(s->un, (i64)share)) + transposes + 12;
}

/* Registers of a thread: fragments and what is on its way to shared memory at the same time, or one after the other. */
static double registers_of(const struct block *s)
{
    bool meanwhile = s->sp == SP_DOUBLE || s->sp == SP_AHEAD;
    i64 frags = (s->rp + 1) * (s->tm + s->tn), copied = s->sp >= SP_ASYNC ? 0 : s->bk * (s->bm + s->bn) / s->threads;
    return (double)(s->tm * s->tn + (meanwhile ? frags + copied : i64_max(frags, copied))) + WG_ADDRESSES;
}

static double seconds(const struct gen_problem *p, const struct block *s)
{
    const struct block_task *x = p->facts;
    const struct blocking b = block_blocking(s, p->c);
    double threads = (double)s->threads, block = (double)(s->bm * s->bn);
    struct wg_facts f = blocking_facts(&x->x, &b, wg_copy_instructions((double)s->glwa), wg_copy_instructions((double)s->glwb), p->var);
    f.regs = registers_of(s), f.shared_bytes = block_shared(s, p->c, x->size);
    f.ilp = (double)(s->tm * s->tn) * (s->rp ? 1.5 : 1);
    f.step.instructions += threads * others(x, s);
    f.step.moved += threads * (double)(s->bk / s->split_k_local) * 4 * accesses(x, s);
    if (s->split_k_local > 1) f.rest.instructions += (2 + 2 * (double)s->split_k_local) * block;
    return wg_seconds(p, &f);
}

double block_predict(const struct gen_problem *p, const struct sched *v)
{
    const struct block s = block_of(v);
    return seconds(p, &s);
}

/* Choice. */

/* The schedule of v, as far as it has values: may it have that of parameter n? */
static bool is_open(const struct gen_problem *p, const struct sched *v, u32 n) { return p->gen->worth(p, v, n + 1); }

static double cost_of(const void *problem, const struct sched *v)
{
    const struct gen_problem *p = problem;
    const struct block s = block_of(v);
    for (u32 i = 0; i < N_PARAM; i++)
        if (!block_fits(p->facts, p->c, &s, i) || !block_is_worth(p->facts, p->c, &s, i)) return 0;
    return seconds(p, &s);
}

/* For every parameter from p on, where it is not set: the largest value that is worth trying. */
static bool complete(const struct gen_problem *q, struct sched *v, u32 p)
{
    static const u8 first[N_PARAM] = {[P_bswm] = 1, [P_bswn] = 1, [P_wswm] = 1, [P_wswn] = 1, [P_un] = 1,
                                      [P_glwa] = 1, [P_glwb] = 1, [P_lc] = 1, [P_gsw] = 1, [P_rc] = 1};
    for (; p < N_PARAM; p++) {
        const struct gen_param *d = &block_param[p];
        bool found = false;
        for (u32 i = 0; i < d->n && !found; i++) {
            v->v[p] = d->values[first[p] ? d->n - 1 - i : i];
            found = is_open(q, v, p);
        }
        if (!found) return false;
    }
    return true;
}

/* Everything up to the intra-block split tried, and the split of K, the rest as usual. */
static void best_frame(const struct gen_problem *q, struct sched *v, u32 p, double *best, struct sched *out)
{
    const struct gen_param *d = &block_param[p];
    if (p == P_bswm) {
        struct sched all = *v;
        if (!complete(q, &all, p)) return;
        for (u32 i = 0; i < block_param[P_split_k].n; i++) {
            all.v[P_split_k] = block_param[P_split_k].values[i];
            gen_keep(cost_of(q, &all), &all, best, out);
        }
        return;
    }
    for (u32 i = 0; i < d->n; i++) {
        v->v[p] = d->values[i];
        if (is_open(q, v, p)) best_frame(q, v, p + 1, best, out);
    }
}

void block_initial(const struct gen_problem *p, struct sched *out)
{
    struct sched v = {0};
    double best = 0;
    best_frame(p, &v, 0, &best, out);
    assert(best > 0);
    gen_descend(&(struct gen_search){block_param, 0, N_PARAM, cost_of, p}, out);
}
