// SPDX-License-Identifier: Apache-2.0
//
// wg_cost: predicted seconds of a grid of workgroups, from facts of its schedule and rates of the device (caps_rates).
//
// A device is some units, each as fast as one workgroup that has it to itself. Time is counted in slots of a unit: one multiply-add of one thread.
//
//   residency  Workgroups share a unit as long as registers, shared memory and threads last (CUDA C++ Programming Guide, "Hardware Multithreading").
//   issue      A step keeps the slower of two pipelines busy, instructions or accesses to shared memory and the first cache, and partly the other
//              one, too (Zhang and Owens, A Quantitative Performance Analysis Model for GPU Architectures, HPCA 2011, section 4: the bottleneck).
//   latency    Instructions wait for each other unless enough independent ones are under way, of all threads of the unit: Little's law (Volkov,
//              Understanding Latency Hiding on GPUs, 2016, chapter 4). A step waits for its loads and at its barriers; other workgroups of the unit
//              compute meanwhile: a unit takes as long as all of its workgroups are busy, or as long as one of them with its waits (Hong and
//              Kim, An Analytical Model for a GPU Architecture with Memory-level and Thread-level Parallelism Awareness, ISCA 2009, cases 2 and 3).
//   waves      The last wave of few workgroups leaves units idle; of many, workgroups begin and end at different times.
//   memory     A limit of the whole device, as is the cache that units share. Few threads do not keep it busy (Little's law again).
//
// What the device does not say is assumed here; rates are assumed by caps_rates.
#include "gen/wg_cost.h"

#include <math.h>

/* Limits of a unit that is not described: those of most GPUs. */
static const double usual_regs = 65536, usual_threads = 2048, usual_shared = 100 << 10, usual_subgroup = 32;
static const double most_workgroups = 32; /* of a unit */
static const double issuing = 384;        /* threads of a unit that keep it busy, whatever their instructions */
static const double spilling = 220;       /* registers of a thread, more of which are kept in memory */
static const double spilled = 2.5;        /* instructions, where they are, for one */
static const double overlap = 0.2;        /* of the pipeline that is not the bottleneck: the part that is not hidden */
static const double fill = 1024;          /* independent instructions under way that keep a unit going */
static const double missed = 0.2;         /* of bytes requested again: caches do not have them any more */
static const double fills_memory = 512;   /* threads of a unit that keep its share of memory busy */
static const double few_waves = 8;
static const double starting = 2e3;       /* slots of a unit that a workgroup takes to begin and to end */
static const double meeting = 2;          /* instructions of a thread at a barrier */
static const double copying = 8;          /* instructions that move a piece to shared memory */
static const double further = 1.4;        /* launches that a further grid takes, which waits for the first */
static const double tail = 0.1;           /* of the shorter one of computing and memory: the part that is not hidden */

static double at_least(double x, double least) { return x > least ? x : least; }
static double at_most(double x, double most) { return x < most ? x : most; }
static double known(double x, double otherwise) { return x > 0 ? x : otherwise; }

const double MMA_SHORT_SUMS = 1.75, WGMMA_SPEED = 1.9;

double wg_sectors(double run, double sector) { return at_least(sector / run, 1); }

double wg_copy_instructions(double piece) { return copying / piece; }

/* The longer of two, and a part of the other one. */
static double both(double x, double y, double part) { return at_least(x, y) + part * at_most(x, y); }

struct unit {
    double units, rate; /* slots per second of one */
    double fma;         /* slots of a multiply-add */
    double byte;        /* slots of a byte that is moved */
    double latency, barrier;
};

static struct unit unit_of(const struct gen_problem *p, const struct wg_facts *f)
{
    const struct rates *r = &p->rates;
    const struct rate *fma = &r->ops[RATE_FMA_F32], *op = &r->ops[f->op];
    struct unit u = {.units = at_least(floor(fma->all / fma->one + 0.5), 1)};
    u.rate = fma->all / 2 / u.units;
    u.fma = fma->all / known(op->all, fma->all) / known(f->op_rate, 1);
    u.byte = u.rate * u.units / r->memory[RATE_L1].read.all;
    double near = r->memory[RATE_L2].latency, far = r->memory[RATE_DRAM].latency;
    u.latency = (near + (far - near) * f->bytes / at_least(at_least(f->requested, f->bytes), 1)) * u.rate;
    u.barrier = r->barrier * u.rate;
    return u;
}

/* Workgroups on one unit at the same time. */
static double residents(const struct caps *c, const struct wg_facts *f)
{
    double threads = (double)f->threads, regs = known(c->unit_regs, usual_regs) / at_least(f->regs, 32);
    double n = at_most(known(c->unit_threads, usual_threads), regs) / threads;
    if (f->shared_bytes > 0) n = at_most(n, known((double)c->unit_shared, usual_shared) / (double)f->shared_bytes);
    return at_least(at_most(floor(n), most_workgroups), 1);
}

/* Slots that a unit is busy with the work of a workgroup. */
static double busy(const struct caps *c, const struct unit *u, const struct wg_facts *f, const struct wg_work *w)
{
    double issued = w->fmas * u->fma + w->instructions + meeting * w->barriers * (double)f->threads, idle = at_least(known(c->subgroup, usual_subgroup) / (double)f->threads, 1);
    if (f->regs > spilling) issued *= spilled;
    return idle * both(issued, w->moved * u->byte, overlap);
}

/* How much longer it takes n workgroups of a unit than if instructions had no latency. */
static double waiting(const struct wg_facts *f, double n)
{
    double threads = n * (double)f->threads;
    return at_least(1 + fill / (threads * known(f->ilp, 1)), issuing / threads);
}

/* Slots that a unit takes for the work of n workgroups at a time: as long as all are busy, or as one of them with its waits. */
static double together(const struct wg_facts *f, double n, double work, double wait)
{
    return at_least(n * work * waiting(f, n), work * waiting(f, 1) + wait);
}

/* Slots of a wave: for n whole workgroups. */
static double wave_slots(const struct caps *c, const struct unit *u, const struct wg_facts *f, double n)
{
    double step = busy(c, u, f, &f->step), rest = starting + busy(c, u, f, &f->rest);
    double wait = f->ahead > 0 ? at_least(u->latency / f->ahead - step, 0) : u->latency;
    return known(f->steps, 1) * together(f, n, step, wait + f->step.barriers * u->barrier) +
           together(f, n, rest, u->latency + f->rest.barriers * u->barrier);
}

static double waves(double workgroups, double slots)
{
    double n = workgroups / slots;
    return n < few_waves ? ceil(n) : n + 0.5;
}

static double memory_seconds(const struct gen_problem *p, const struct unit *u, const struct wg_facts *f)
{
    const struct rate_memory *m = p->rates.memory;
    double again = at_least(f->requested - f->bytes, 0), threads = f->workgroups * (double)f->threads;
    double part = at_most(at_least(threads, 1) / (u->units * fills_memory), 1);
    double far = (f->bytes + known(f->misses, missed) * again) / m[RATE_DRAM].read.all, near = at_least(f->requested, f->bytes) / m[RATE_L2].read.all;
    return both(far, near, tail) / part;
}

double wg_seconds(const struct gen_problem *p, const struct wg_facts *f)
{
    const struct unit u = unit_of(p, f);
    double n = at_most(residents(p->c, f), at_least(ceil(f->workgroups / u.units), 1));
    double seconds = waves(f->workgroups, n * u.units) * wave_slots(p->c, &u, f, n) / u.rate;
    double later = further * f->n_later * p->rates.launch + f->later / p->rates.memory[RATE_DRAM].read.all;
    return p->rates.launch + later + both(seconds, memory_seconds(p, &u, f), tail);
}
