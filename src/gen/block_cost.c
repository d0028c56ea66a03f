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
    struct wg_facts f = blocking_facts(p, &x->x, &b, wg_copy_instructions((double)s->glwa), wg_copy_instructions((double)s->glwb));
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
