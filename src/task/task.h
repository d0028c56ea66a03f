// SPDX-License-Identifier: Apache-2.0
//
// task: the unit of generating, tuning and choosing. A task is a small graph of primitives that one kernel implements: at
// most one heavy node (the anchor: convolution, matrix product) or one set of reductions, with views and pointwise nodes in
// front (prologue) and behind (epilogue); or a chain of convolutions whose values in between never are in memory as a whole. Its values carry layouts. Equal computations have equal text and so equal keys,
// wherever they stand in whatever network. The cover lists the tasks a graph could be cut into; the selector chooses.
// Nothing here knows of schedules, kernels or devices.
#ifndef QUERN_TASK_H
#define QUERN_TASK_H

#include "op/op.h"

struct task {
    struct graph g;      /* inputs, constants (is_const; content stripped but for small ones), nodes, outputs; layouts set */
    node_id anchor;      /* the last node with OP_MATMUL, OP_CONV or OP_HEAVY; 0: none */
    u32 n_heavy;         /* nodes of that kind; more than one: a chain */
    struct str text;     /* graph_print with keys, constants' content left out but for small ones */
    struct hash key;     /* of text */
};

/* Builds a task from nodes of a graph (see graph_extract). layouts of inputs and outputs are taken from `layout[value id]` of the
   old graph. map_back: per value of the task, the old value. */
bool task_make(struct task *t, const struct graph *from, struct arena *a, const node_id *nodes, u32 n,
               const value_id *out, u32 n_out, const enum layout *layout, value_id **map_back, struct err *e);
/* The same computation with some inputs or outputs as parts of larger values: part[v] per value of `from`, whole 0: as it is, with
   the larger value's layout[v]. Value ids stay. */
bool task_with_parts(struct task *t, const struct task *from, struct arena *a, const struct part *part, const enum layout *layout,
                     struct err *e);
/* A task by its text; shapes are inferred anew, and what operators need of sizes becomes facts. */
bool task_parse(struct task *t, struct arena *a, struct symtab *st, struct str text, struct err *e);
/* The task that had this text: with its shapes, and the same text. What it needs of its sizes the text does not tell, so st is closed from
   then on, and sizes are good only if task_fits says so. */
bool task_restore(struct task *t, struct arena *a, struct symtab *st, struct str text, struct err *e);
bool task_fits(const struct task *t, const i64 *var); /* such sizes can be: all shapes are what the operators make of the inputs' */
double task_flops(const struct task *t, const i64 *var);
double task_bytes(const struct task *t, const i64 *var); /* inputs, constants and outputs touched once */

/* A value in one place: what a region needs and delivers. */
struct form {
    value_id v;
    enum layout layout;
    u32 join;        /* 0: in memory of its own; else 1 + index of the join whose buffer it lies in */
};

static inline bool form_equal(struct form a, struct form b)
{
    return a.v == b.v && a.layout == b.layout && a.join == b.join;
}

/* A concatenation whose parts are written into one buffer, so that nothing is left to do for it. */
struct join_part {
    value_id v;
    sym from;        /* where it begins on the axis */
    bool is_whole;   /* itself a concatenation of parts of this join */
};
struct join {
    value_id v;      /* the concatenation */
    enum layout layout;
    u32 axis;
    sym whole;       /* size of the axis */
    struct { struct join_part *v; u32 n, cap; } part;
};

enum { NO_TASK = INT32_MAX }; /* region.task: nothing is to be done */

struct region {
    node_id *nodes;  u32 n_nodes;     /* of the graph, topological order; 0 nodes: a copy to another place or layout */
    struct form *in; u32 n_in;        /* activations needed (constants are not listed) */
    struct form *out; u32 n_out;      /* delivered */
    u32 task;                         /* index into cover.task; equal tasks are shared. NO_TASK: inputs and output are the same memory */
    value_id *map_back;               /* per value of *this region's* task instance: value of the graph (for arguments) */
};

/* All regions worth considering, so that every value a region or the graph's interface needs is delivered by at least one.
   Default regions fuse greedily (pointwise chains behind anchors, views in front) and keep values channels last near
   convolutions; alternatives leave parts out, fuse pooling, use the other layout at the graph's border, keep channels in blocks between
   convolutions, or put the parts of concatenations into one buffer (join.c). */
struct cover {
    const struct graph *g;
    struct arena *arena;
    struct { struct task **v; u32 n, cap; } task;
    struct { struct region *v; u32 n, cap; } region;
    struct { struct join *v; u32 n, cap; } join;
    struct { struct cover **v; u32 n, cap; } body; /* of the graphs that nodes run */
};

/* A node that runs graphs: a program does it, no kernel. */
bool task_is_call(const struct task *t);
const struct cover *cover_body(const struct cover *c, const struct graph *body, u32 *at); /* at: index into body */

struct cover_opts {
    bool no_fusion;     /* every node by itself */
    bool no_concat;     /* nothing reads a concatenation from memory that could do it itself; no joins */
    bool only_joins;    /* a concatenation that a join can make is made by nothing else */
    enum layout blocks; /* offered between convolutions, too: a layout with blocks of channels; LAYOUT_ROWS: none */
    i64 blocks_from;    /* for values of at least so many channels */
};

/* Where the memory of a form's value lies in that of its join; whole 0: it has its own. */
struct part cover_part(const struct cover *c, struct form f);

/* g: primitives only, inferred. */
bool cover_build(struct cover *c, const struct graph *g, struct arena *a, const struct cover_opts *o, struct err *e);

#endif
