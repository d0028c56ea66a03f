// SPDX-License-Identifier: Apache-2.0
//
// block_cost: predicted seconds of wg_gemm, and its schedule for an empty database. A device
// is some units of the same size, each with 128 multiply-adds (64 where subgroups have 64 threads)
// and one access of 32 words to shared memory per cycle. Groups share a unit as long as registers, shared memory and threads last. A
// round takes as long as the slower of arithmetic and shared memory, for all groups on a unit; or,
// with few of them, as one group waits for memory. The last wave of groups leaves units idle.
// Memory and what lies between it and the units are limits of the whole. All constants are rough:
// what counts is the order of candidates.
#include "gen/block.h"

#include <math.h>

static const double unit_rate = 180e9;    /* flops per second of a unit; this and the next, where the target does not say */
static const double unit_regs = 65536;
static const double unit_threads = 2048;
static const double unit_shared = 100 << 10;
static const double spare_regs = 28;      /* of a thread: addresses, indices */
static const double latency = 700;        /* cycles of a load from memory */
static const double copy_issue = 8;       /* instructions of a vector on its way to shared memory */
static const double barrier = 40;         /* cycles */
static const double missed = 0.2;         /* of what is copied, by the caches */
static const double between = 2;          /* bandwidth of caches that units share, in memory's */
static const double launch = 3e-6;        /* seconds */

static double at_least(double x, double least) { return x > least ? x : least; }
static double at_most(double x, double most) { return x < most ? x : most; }
static double known(double x, double otherwise) { return x > 0 ? x : otherwise; }

/* Of a unit, per cycle. */
static double fmas_of(const struct caps *c) { return c->subgroup >= 64 ? 64 : 128; }

/* Of the left operand's array: do vectors run along terms? */
static bool terms_inside(const struct block_task *x, const struct block *s)
{
    return x->x.a_plain && !s->ta;
}

/* Cycles of shared memory for one thread's part of a term, per subgroup of 32 threads: what is read by
   several at once counts once, what lies in the same bank waits. */
static double reads(const struct block_task *x, const struct block *s)
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

/* Instructions of one thread for a round, without multiply-adds. */
static double others(const struct block_task *x, const struct block *s)
{
    double share = (double)(s->bk / s->split_k_local), tm = (double)s->tm, tn = (double)s->tn;
    double frags = tm / (double)(terms_inside(x, s) ? 4 : i64_min(4, s->wswm)) + tn / (double)i64_min(4, s->wswn);
    double copies = (double)(s->bk * s->bm) / (double)(s->threads * s->glwa) +
                    (double)(s->bk * s->bn) / (double)(s->threads * s->glwb);
    double stores = x->x.a_plain && s->ta ? (double)(s->bk * s->bm) / (double)s->threads * 2 : 0;
    return share * (frags + 4 / (double)i64_min(s->un, (i64)share)) + at_least(copies, 2) * copy_issue + stores + 12;
}

struct round { double cycles, alone; }; /* of a unit per group; of one group by itself */

static struct round round_of(const struct block_task *x, const struct caps *c, const struct block *s)
{
    double unit_fmas = fmas_of(c), warps = (double)s->threads / 32, share = (double)(s->bk / s->split_k_local);
    double fmas = warps * share * (double)(s->tm * s->tn) * 32 / unit_fmas;
    double issue = fmas + warps * others(x, s) * 32 / unit_fmas, shared = warps * share * reads(x, s);
    double both = at_least(issue, shared) + 0.2 * at_most(issue, shared);
    double busy = at_least(both, both / at_most(warps / 4, 1)); /* a unit issues from four subgroups */
    double hides = s->rp ? 20 : 30; /* reading a fragment, little of it behind other subgroups */
    double chain = share * hides / at_least(warps / 4, 1) * 0.3;
    double waits = s->sp ? at_least(latency - busy, 0) : latency;
    return (struct round){both, busy + chain + waits + barrier * (block_blocking(s, c).stages > 1 ? 1 : 2)};
}

/* Groups on one unit at the same time. */
static double residents(const struct block_task *x, const struct caps *c, const struct block *s)
{
    bool meanwhile = s->sp == SP_DOUBLE || s->sp == SP_AHEAD;
    double sums = (double)(s->tm * s->tn) + spare_regs, frags = (double)((s->rp + 1) * (s->tm + s->tn));
    double copied = s->sp >= SP_ASYNC ? 0 : (double)(s->bk * (s->bm + s->bn)) / (double)s->threads;
    double regs = sums + (meanwhile ? frags + copied : at_least(frags, copied));
    double n = at_most(known(c->unit_threads, unit_threads), known(c->unit_regs, unit_regs) / regs) / (double)s->threads;
    n = at_most(n, known((double)c->unit_shared, unit_shared) / (double)block_shared(s, c, x->size));
    return at_least(at_most(floor(n), 32), 1);
}

/* What memory moves, or the caches in as much time. */
static double memory_bytes(const struct block_task *x, const struct block *s, double copied)
{
    double m = (double)x->m, n = (double)x->n, k = (double)x->k, size = (double)x->size;
    double all = (double)x->batch * (m * k + k * n + m * n);
    double behind = all + at_least(copied - all, 0) * missed * (s->raster > 1 ? 0.8 : 1);
    return size * (at_least(behind, copied / between) + 0.1 * at_most(behind, copied / between));
}

/* Waves: the last one need not fill the units. */
static double wave_count(double groups, double slots)
{
    double n = groups / slots;
    return n < 8 ? ceil(n) : n + 0.5;
}

struct shares { /* how groups share the work */
    double groups, rounds, pieces; /* rounds and blocks of a group */
    double bytes;                  /* of sums that wait for another grid, which adds them */
};

static struct shares shares_of(const struct block_task *x, const struct caps *c, const struct block *s)
{
    double blocks = (double)block_count(x, s), rounds = (double)ceil_div(x->k, s->bk), groups = (double)(s->stream_k * c->n_threads);
    if (s->stream_k)
        return (struct shares){groups, ceil(blocks * rounds / groups), blocks / groups + 1, 16 * groups * (double)(s->bm * s->bn)};
    double bytes = x->x.simple && s->split_k == 1 ? 0 : 8 * (double)(s->split_k * x->batch * x->m * x->n);
    return (struct shares){blocks * (double)s->split_k, ceil(rounds / (double)s->split_k), 1, bytes};
}

double block_seconds(const struct block_task *x, const struct caps *c, const struct block *s)
{
    double units = at_least(floor(gen_flop_rate(c) / unit_rate), 1), rate = gen_flop_rate(c) / units / 2 / fmas_of(c);
    struct shares q = shares_of(x, c, s);
    double n = at_most(residents(x, c, s), at_least(ceil(q.groups / units), 1));
    struct round r = round_of(x, c, s);
    double out = (double)(s->bm * s->bn) / fmas_of(c) * (s->split_k_local > 1 ? 8 + 2 * (double)s->split_k_local : 6);
    double group = q.pieces * (n * out + latency) + q.rounds * at_least(n * r.cycles, r.alone); /* n of them together */
    double copied = (double)(block_count(x, s) * ceil_div(x->k, s->bk) * s->bk * (s->bm + s->bn));
    if (s->sp >= SP_ASYNC) group *= 1.01; /* not every target has such copies */
    double seconds = wave_count(q.groups, n * units) * group / rate, bytes = memory_bytes(x, s, copied) / gen_byte_rate(c);
    double rest = q.bytes > 0 ? 4e-6 + q.bytes / gen_byte_rate(c) : 0;
    return launch + rest + at_least(seconds, bytes) + 0.1 * at_most(seconds, bytes);
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
    return block_seconds(p->facts, p->c, &s);
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

/* Everything up to the teams tried, the rest as usual. */
static void best_frame(const struct gen_problem *q, struct sched *v, u32 p, double *best, struct sched *out)
{
    const struct gen_param *d = &block_param[p];
    if (p == P_bswm) {
        struct sched all = *v;
        if (complete(q, &all, p)) gen_keep(cost_of(q, &all), &all, best, out);
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
