// SPDX-License-Identifier: Apache-2.0
//
// Private to gen/: the cost model of kernels by workgroups. A family states the facts of a schedule; what they cost on the device, wg_cost.c says alone.
#ifndef QUERN_GEN_WG_COST_H
#define QUERN_GEN_WG_COST_H

#include "gen/gen.h"

/* What all threads of a workgroup do together. */
struct wg_work {
    double fmas;         /* multiply-adds, by the instruction wg_facts.op */
    double instructions; /* others, each of one thread: loads, addresses, tests, conversions, whatever their number of lanes */
    double moved;        /* bytes between registers and shared memory or the first cache: what threads of a subgroup read together counts once, bank
                            conflicts as often as they repeat an access */
    double barriers;
};

/* A grid; numbers are of a workgroup where nothing else is said. */
struct wg_facts {
    double workgroups;
    i64 threads;
    double regs;         /* 32-bit registers of a thread, about */
    i64 shared_bytes;
    enum rate_op op;     /* of multiply-adds */
    double op_rate;      /* in multiples of its rate; 0: 1 */
    double ilp;          /* instructions of a thread that do not depend on each other; 0: 1 */
    double steps;        /* one after the other, each of which begins with loads from memory: K blocks; 0: 1 */
    struct wg_work step; /* of one of them */
    struct wg_work rest; /* of a workgroup besides */
    double ahead;        /* so many steps before a step are its loads under way */
    double bytes;        /* of all workgroups, from and to memory: inputs and outputs, each once, and what else is in the sectors that are accessed */
    double requested;    /* bytes that all workgroups ask the caches for; less than `bytes`: as many */
    double misses;       /* of what is requested again, the part that the caches do not have any more; 0: the usual one */
    double later;        /* bytes that further grids read and write */
    u32 n_later;         /* these grids */
};
double wg_seconds(const struct gen_problem *p, const struct wg_facts *f);

/* Waste of accesses to memory by runs of so many neighbouring bytes: sectors of `sector` bytes are moved as a whole. */
double wg_sectors(double run, double sector);
/* Instructions that move an element of an operand to shared memory, in pieces of so many, besides those that find it. */
double wg_copy_instructions(double piece);
extern const double MMA_SHORT_SUMS, WGMMA_SPEED; /* speed of matrix instructions with sums of 16 bits, of warpgroups, in that of others */
enum {
    WG_ADDRESSES = 28, /* registers of a thread for addresses and indices */
    WG_COPY_ILP = 4    /* independent instructions of a thread that copies operands: addresses depend on each other */
};

#endif
