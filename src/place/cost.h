// SPDX-License-Identifier: Apache-2.0
//
// Private to place/: the model of time of an allocation.
#ifndef QUERN_PLACE_COST_H
#define QUERN_PLACE_COST_H

#include "place/part.h"

/* Devices for which kernels take the same time: of one target. */
struct cost_class {
    const struct plan_target *target;
    i64 env;          /* of its database */
    double scale;     /* of predictions, so that they agree with measurements */
    struct map index; /* key of a task -> index of its cost */
    struct {
        struct task_cost *v;
        u32 n, cap;
    } cost; /* predictions are not scaled yet */
};

struct place_costs {
    const struct place_net *x;
    struct model *m;
    const struct place_devices *d;
    const struct place_target *t; /* per device */
    struct arena a;
    struct place_dag dag;
    i64 *var; /* per variable: the size that the model is optimised for */
    u32 n_var;
    struct {
        struct cost_class *v;
        u32 n, cap;
    } class;
    u32 *class_of;   /* per device; UINT32_MAX: described by rates */
    bool **can;      /* per device and operator */
    double **alone;  /* per device and operator: its share of the device's time for the whole
                        network, without start and with slow-down; INFINITY: it  cannot run there */
    double *bytes;   /* per value of the network */
    u32 n_words;     /* of a set of operators */
    struct map part; /* class or device, and set of operators -> bits of the seconds */
    u64 n_parts;     /* sub-graphs that were compiled to find their time */
    /* The network of primitives that the surrogate costs and the joint selection are of. */
    struct graph low;
    u32 *op_of;           /* per node of low: operator; UINT32_MAX: unknown */
    struct cover **cover; /* per device */
    double **region;      /* per device: seconds of the regions of its cover, with slow-down */
};

/* cost.c */
/* Costs of the cover's tasks, and those of its bodies: measured, predicted or known from before. */
bool cost_tasks(struct cost_class *k, const struct cover *c, const i64 *var, struct err *e);
plan_cost_fn cost_of_task; /* user: struct cost_class */
/* Sizes for all variables, of which there may be new ones by now. */
const i64 *cost_sizes(struct place_costs *c);

/* schedule.c */
struct schedule {
    double latency, period, joules, sum; /* seconds of a request alone, between requests of a
                                            stream, energy, of all sub-graphs */
    u32 n_parts, least;                  /* sub-graphs, and a lower bound of their number */
    bool is_minimal;
    u32 *of;                 /* per operator: its sub-graph, in an order in which they can run */
    u32 *device;             /* per sub-graph */
    double *seconds, *start; /* per sub-graph: how long, and when */
    double *busy;            /* per device */
};
enum schedule_how {
    SCHEDULE_ROUGH, /* sub-graphs take the sum of their operators' shares, and there may be more of
                       them than needed */
    SCHEDULE_EXACT, /* by their own selection */
    SCHEDULE_FINAL  /* and divided as place_split does */
};
/* In the arena. An allocation that cannot run has infinite times. */
bool schedule_make(struct schedule *s, struct place_costs *c, const u32 *device,
                   enum schedule_how how, struct arena *a, struct err *e);
/* joint.c: devices of the additive placement, UINT32_MAX where there is none, and its total:
 * seconds or joules; 0: none, or not exact. */
bool joint_select(struct place_costs *c, enum place_aim aim, bool has_copies, u32 *device,
                  double *total, struct err *e);

#endif
