// SPDX-License-Identifier: Apache-2.0
//
// place: which device runs which operator of a network. Operators and tensors under the names that users see, the devices, the allocation
// (a device per operator), its division into sub-graphs, the time that it is expected to take, and the search for the best one.
// Nothing here runs or writes a program.
//
//   names.c      operators and tensors by name
//   device.c     devices by name, what they can run, and how fast
//   accepts.c    operators that converters of other vendors accept
//   allocation.c allocations as text
//   split.c      sub-graphs of an allocation
//   part.c       a sub-graph's inputs, outputs and graph
//   cost.c       expected times of sub-graphs and copies
//   base.c       the network's operators on each device, as primitives
//   schedule.c   expected times of an allocation
//   search.c     the best allocation
#ifndef QUERN_PLACE_H
#define QUERN_PLACE_H

#include "model/model.h"
#include "plan/plan.h"

/* --- names.c --- */

/* An operator: a node that computes something at run time. Nodes of constants and of sizes alone
   belong to none: whichever part reads their results has copies of them. Of a value that depends on
   data, Shape and Size are the only such nodes that may read, and only where its sizes do not. */
struct place_op {
    struct str name;          /* "conv2d_2" */
    node_id node;
    struct { u32 *v; u32 n, cap; } in, out; /* tensors, parameters last; without omitted ones */
};
struct place_tensor {
    struct str name;          /* "tensor_4"; "paramtensor_3" */
    value_id value;
    bool is_param;            /* a constant (weights and the like), or computed by nodes of no operator */
};
struct place_net {
    struct graph g;           /* the model's graph with constants folded (but not DequantizeLinear), sorted */
    struct str name;          /* of the model */
    struct { struct place_op *v; u32 n, cap; } op;         /* in topological order */
    struct { struct place_tensor *v; u32 n, cap; } tensor;
    struct map op_by_name;    /* -> index into op */
    u32 *op_of;               /* per node: index of its operator; UINT32_MAX: none */
    u32 *tensor_of;           /* per value: index of its tensor; UINT32_MAX: none */
};
/* Names: the operator in lower case, in the words of OptimaV2's graphs ("conv2d", "interpolate"),
   and a number. One counter counts everything: the network's inputs, then, for each operator in
   topological order, itself, its parameters that no operator before it has, and its outputs; last,
   constants that the network returns. Equal networks have equal names. In the arena; the model must
   outlive it. */
bool place_net_open(struct place_net *x, struct model *m, struct arena *a, struct err *e);

/* --- device.c --- */

/* How sub-graphs for a device are made. */
enum place_route {
    PLACE_NATIVE,   /* machine code of a processor */
    PLACE_GPU,      /* binaries or SPIR-V of a GPU */
    PLACE_OPENVINO, /* OpenVINO's, of its own devices */
    PLACE_VENDOR,   /* a vendor's converter, which gets the sub-graph as a file: HEXAGON, CV22, ARA1, MYRIAD, TPU */
    N_PLACE_ROUTES
};
struct place_kind {
    const char *name;         /* "X64" */
    const char *what;         /* "x86 processor, 64 bits" */
    enum place_route route;
    const char *device;       /* of quern, if the user names none: "cpu", "cuda", "cpu:aarch64"; NULL: none */
    /* NULL: every operator that quern supports. Whether the device's converter accepts this node; the error says why not. */
    bool (*can_run)(const struct graph *g, node_id n, struct err *e);
};
const struct place_kind *place_kind_find(struct str name); /* NULL: unknown */
const struct place_kind *place_kind_at(u32 k);             /* NULL: end of the list */

struct place_device {
    struct str name;          /* "X64:0": kind and number of the instance */
    const struct place_kind *kind;
    u32 instance;
    struct str device;        /* of quern ("cpu", "*llvmpipe*"); empty: none, a vendor's */
    i64 threads;              /* of a processor; 0: its share of all */
    double slowdown;          /* its times are multiplied by it: 1, or what the user says to describe a slower device */
    double watts;             /* while it works; 0: unknown */
    bool is_described;        /* by rates that the user gives: flops per second, bytes per second, seconds per start of a sub-graph */
    double flops, bandwidth, start;
    double link_bandwidth, link_latency; /* of copies between its memory and the host's; 0: measured, or assumed from the device's limits */
};
struct place_devices { struct place_device *v; u32 n, cap; };
/* From texts "NAME:INSTANCE[=KEY:VALUE;KEY:VALUE ..]" with the keys device, threads, slowdown, watts, gflops, gbs, start, link_gbs, link_latency. Errors name
   the nearest known name. */
bool place_devices_parse(struct place_devices *d, const char *const *text, u32 n, struct arena *a, struct err *e);
/* One device by its name alone, "X64:0", with the kind's defaults. */
bool place_device_named(struct place_device *x, struct str name, struct arena *a, struct err *e);
u32 place_device_find(const struct place_devices *d, struct str name); /* UINT32_MAX: none */
/* Threads of a processor: as set, else what the others of its kind leave, divided by those that
   have none set. */
i64 place_device_threads(const struct place_devices *d, u32 k);
/* Whether the device can run operator k of the network. */
bool place_can_run(const struct place_device *d, const struct place_net *x, u32 k, struct err *e);

/* --- allocation.c --- */

/* A device per operator: {"conv2d_2": "X64:0", "add_5": "X64:1"}. */
struct place_allocation { u32 *device; }; /* per operator: index into the devices */
/* Devices that the text names and d lacks are added to it, with the kind's defaults. Errors name line, operator and device, and alternatives: operators that
   are unknown or missing, devices that are unknown or cannot run their operator. */
bool place_allocation_parse(struct place_allocation *y, const struct place_net *x, struct place_devices *d, struct str json, struct arena *a, struct err *e);
/* Likewise of a text, or of a file, which errors name; the other is NULL. */
bool place_allocation_read(struct place_allocation *y, const struct place_net *x, struct place_devices *d, const char *json, const char *path, struct arena *a,
                           struct err *e);
void place_allocation_print(struct buf *b, const struct place_allocation *y, const struct place_net *x, const struct place_devices *d);

/* --- split.c --- */

/* A sub-graph: operators of one device, convex (no path leaves it and comes back), so that sub-graphs run one after the other. */
struct place_part {
    u32 device;
    struct { u32 *v; u32 n, cap; } op;      /* in topological order */
    struct { value_id *v; u32 n, cap; } in, out; /* values of the network's graph, without parameters; what others or the caller read */
    struct { u32 *v; u32 n, cap; } after;   /* sub-graphs whose outputs it reads, ascending */
};
struct place_parts {
    struct place_part *v; u32 n, cap; /* in an order in which they can run */
    u32 least;                /* a lower bound of their number */
    bool is_minimal;          /* there is no division into fewer; not set if the search was given up */
};
/* As few sub-graphs as the allocation allows. ERR_UNSUPPORTED: one needs a size that none of its
   inputs tells. */
bool place_split(struct place_parts *p, const struct place_net *x, const struct place_allocation *y, struct arena *a, struct err *e);
/* The sub-graph as a network of its own. Shares x's symbols and constants, which must outlive it. */
void place_part_graph(struct graph *g, const struct place_net *x, const struct place_part *p, struct arena *a);

/* --- cost.c --- */

/* What the time of a device follows from. */
struct place_target {
    const struct plan_target *plan;      /* its limits and measurements; NULL: the device is described by rates */
    double link_bandwidth, link_latency; /* of copies between its memory and the host's: bytes per second, seconds. 0: it works in
                                            the host's */
};
struct place_costs;
/* The model of time of a network on these devices. All four must outlive it; the network is of this model. NULL: error. */
struct place_costs *place_costs_open(const struct place_net *x, struct model *m, const struct place_devices *d, const struct place_target *t, struct err *e);
void place_costs_close(struct place_costs *c); /* may be NULL */
/* Expected seconds of a set of operators (bits) as one sub-graph; INFINITY: the device cannot run it. */
bool place_part_seconds(struct place_costs *c, u32 device, const u64 *ops, double *seconds, struct err *e);
/* Of a copy between devices; UINT32_MAX: the host. */
double place_copy_seconds(const struct place_costs *c, value_id v, u32 from, u32 to);

/* --- search.c --- */

enum place_aim {
    PLACE_LATENCY,    /* seconds of one request alone */
    PLACE_THROUGHPUT, /* seconds between the requests of a stream */
    PLACE_ENERGY,     /* joules of a request; every device has its watts */
    N_PLACE_AIMS
};
const char *place_aim_name(enum place_aim aim); /* "latency" "throughput" "energy" */
bool place_aim_parse(struct str s, enum place_aim *aim);

/* What is expected of an allocation. */
struct place_expected {
    struct place_allocation y;
    double latency, period, joules; /* of a request, see place_aim; INFINITY: it cannot run */
    double value;             /* that of the aim */
    struct place_parts parts;
    double *seconds, *start;  /* per part: how long, and when in a request alone */
    double *busy;             /* per device: seconds per request */
};
struct place_progress { u64 n_tried; u32 n_done, n_starts; double best; }; /* allocations that were compared; starts of the search */
struct place_search {
    enum place_aim aim;
    double seconds;           /* ends the search; 0: never. Without it, the result depends on nothing but the arguments */
    void (*progress)(void *user, const struct place_progress *p); void *user; /* NULL: not told */
};
struct place_found {
    struct place_expected best;
    u32 single;               /* the best device for all operators; UINT32_MAX: none can run them all */
    double single_value;
    double bound;             /* no allocation is better, by the selector's costs; 0: unknown */
    u64 n_tried, n_compiled;  /* allocations; sub-graphs that were compiled to find their time */
    bool is_cut_short;        /* by the time limit */
};
bool place_expect(struct place_expected *x, struct place_costs *c, const struct place_allocation *y, enum place_aim aim, struct arena *a, struct err *e);
/* The best allocation that is found. ERR_NOTHING: there is none. */
bool place_search(struct place_found *f, struct place_costs *c, const struct place_search *o, struct arena *a, struct err *e);

#endif
