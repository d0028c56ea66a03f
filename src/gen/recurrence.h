// SPDX-License-Identifier: Apache-2.0
//
// Private to gen/: kernels of quern::Recurrence (op/recurrence.c), shared by recurrence.c and wg_recurrence.c.
#ifndef QUERN_GEN_RECURRENCE_H
#define QUERN_GEN_RECURRENCE_H

#include "gen/gen.h"

/* The task's layer. Inputs are 0 where they are left out. */
struct recurrence {
    const struct graph *g;
    const struct node *n;
    struct op_cell c;
    enum dtype type;    /* of sums and states */
    value_id x, r, lens, h0, c0, p, rb;
    sym steps, batch;
};
bool recurrence_of(struct recurrence *q, const struct task *t);

/* A grid iteration is one direction of `rows` sequences. Units are done in panels of width = threads*nr*lanes, whose weights of all
   gates lie together. */
struct recurrence_sched {
    i64 rows;           /* sequences at once: what a weight that was loaded is used for */
    i64 nr;             /* vectors of units per thread and panel */
    i64 gates;          /* of a unit that are summed at once, a divisor of their number; 0: all */
    u32 lanes;          /* of a vector of units */
    i64 ku;             /* steps of the sum per iteration of its loop */
    i64 threads;        /* threads side by side in a panel */
    i64 split;          /* threads with panels of their own; threads or split is 1 */
};
i64 recurrence_width(const struct recurrence_sched *s);
i64 recurrence_panels(const struct recurrence *q, const struct recurrence_sched *s);
i64 recurrence_state_bytes(const struct recurrence *q, const struct recurrence_sched *s); /* of arrays that threads share */
i64 recurrence_accumulators(const struct recurrence *q, const struct recurrence_sched *s); /* vectors, at most */
bool recurrence_has_gates(const struct recurrence *q, i64 gates); /* may be summed at once */
void recurrence_emit(struct emit *m, const struct task *t, const struct recurrence_sched *s);

#endif
