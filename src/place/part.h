// SPDX-License-Identifier: Apache-2.0
//
// Private to place/: dependencies between operators, runs of operators of one device, and the
// edges of sub-graphs.
#ifndef QUERN_PLACE_PART_H
#define QUERN_PLACE_PART_H

#include "place/place.h"

/* split.c */
struct place_dag {
    u32 n; /* operators, in topological order */
    struct place_ops {
        u32 *v;
        u32 n, cap;
    } * before,
        *behind; /* per operator: those whose values or sizes it needs, and those that need its */
};
void place_dag_make(struct place_dag *d, const struct place_net *x, struct arena *a);

struct place_runs {
    u32 *of;         /* per operator: its run */
    u32 n, least;    /* runs, and a lower bound of their number */
    bool is_minimal; /* there is no division into fewer */
};
enum { PLACE_MAX_STATES = 20000 }; /* of place_split */
/* device: per operator, below n_devices. most_states: of the exact search; 0: fast, without it. */
void place_runs(struct place_runs *r, const struct place_dag *d, const u32 *device, u32 n_devices,
                u32 most_states, struct arena *a);

/* The parts of a division: of[k] is that of operator k. */
bool place_parts_of(struct place_parts *p, const struct place_net *x,
                    const struct place_allocation *y, const u32 *of, u32 n, struct arena *a,
                    struct err *e);

/* part.c: inputs, outputs and predecessors of the parts, whose operators and devices are known. */
bool place_parts_connect(struct place_parts *p, const struct place_net *x, struct arena *a,
                         struct err *e);
/* Inputs and outputs of a part whose operators are known, by elements alone: without inputs that
 * only tell sizes. */
void place_part_alone(struct place_part *p, const struct place_net *x, struct arena *a);

#endif
