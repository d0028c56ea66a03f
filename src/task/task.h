// SPDX-License-Identifier: Apache-2.0
//
// task: the unit of generation, tuning and selection. A task is a small graph of primitives that one kernel implements: at
// most one heavy node (the anchor: convolution, matmul) or one set of reductions, with views and pointwise nodes before
// (prologue) and after (epilogue) it; or a chain of convolutions whose intermediate values are never in memory as a whole. Its
// values carry layouts. Equal computations have equal text and thus equal keys, wherever they occur in any network. The cover
// lists the tasks that a graph can be divided into; the selector chooses. Nothing here knows of schedules, kernels or devices.
#ifndef QUERN_TASK_H
#define QUERN_TASK_H

#include "op/op.h"

struct task {
    struct graph g;      /* inputs, constants (is_const; content dropped except for small ones), nodes, outputs; layouts set */
    node_id anchor;      /* the last node with OP_MATMUL, OP_CONV or OP_HEAVY; 0: none */
    u32 n_heavy;         /* nodes of that kind; more than one: a chain */
    struct str text;     /* graph_print with keys, content of constants omitted except for small ones */
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
/* A task from its text; shapes are inferred anew, and size constraints of operators become facts. */
bool task_parse(struct task *t, struct arena *a, struct symtab *st, struct str text, struct err *e);
/* The task that had this text: with its shapes, and the same text. The text does not contain its size
   constraints, so st is closed from then on, and sizes are valid only if task_fits accepts them. */
bool task_restore(struct task *t, struct arena *a, struct symtab *st, struct str text, struct err *e);
bool task_fits(const struct task *t, const i64 *var); /* valid sizes: all shapes follow from the inputs' */
double task_flops(const struct task *t, const i64 *var);
double task_bytes(const struct task *t, const i64 *var); /* inputs, constants and outputs touched once */

/* A value in one placement: a region's input or output. */
struct form {
    value_id v;
    enum layout layout;
    u32 join;        /* 0: separate memory; else 1 + index of the join that contains it */
    u32 device;      /* 0: the host's memory, or that of the only device; else 1 + index of the device */
};

static inline bool form_equal(struct form a, struct form b)
{
    return a.v == b.v && a.layout == b.layout && a.join == b.join && a.device == b.device;
}

/* A concatenation whose parts are written into one buffer, so that it is free. */
struct join_part {
    value_id v;
    sym from;        /* first index on the axis */
    bool is_whole;   /* itself a concatenation of parts of this join */
};
struct join {
    value_id v;      /* the concatenation */
    enum layout layout;
    u32 axis;
    sym whole;       /* size of the axis */
    struct { struct join_part *v; u32 n, cap; } part;
};

enum { NO_TASK = INT32_MAX }; /* region.task: no operation */

struct region {
    node_id *nodes;  u32 n_nodes;     /* of the graph, topological order; 0 nodes: a copy to another placement or layout */
    struct form *in; u32 n_in;        /* activations needed (constants are not listed) */
    struct form *out; u32 n_out;      /* delivered */
    u32 task;                         /* index into cover.task; equal tasks are shared. NO_TASK: inputs and output are the same memory */
    value_id *map_back;               /* per value of *this region's* task instance: value of the graph (for arguments) */
    double seconds;                   /* in addition to those of its task: of regions on one of several devices, and copies between these */
};

/* All regions worth considering, so that every value that a region or the graph's interface needs is produced by at
   least one. Default regions fuse greedily (pointwise chains after anchors, views before) and keep values channels
   last near convolutions; alternatives omit parts, fuse pooling, use the other layout at the graph's interface,
   keep channels in blocks between convolutions, or put the parts of concatenations into one buffer (join.c). */
struct cover {
    const struct graph *g;
    struct arena *arena;
    struct { struct task **v; u32 n, cap; } task;
    struct { struct region *v; u32 n, cap; } region;
    struct { struct join *v; u32 n, cap; } join;
    struct { struct cover **v; u32 n, cap; } body; /* of the graphs that nodes run */
};

/* A node that runs graphs: by the program, not by a kernel. */
bool task_is_call(const struct task *t);
const struct cover *cover_body(const struct cover *c, const struct graph *body, u32 *at); /* at: index into body */

struct cover_opts {
    bool no_fusion;     /* every node by itself */
    bool no_concat;     /* reads concatenations from memory only if a kernel cannot read the parts; no joins */
    bool only_joins;    /* a concatenation that a join can make is produced in no other way */
    enum layout blocks; /* additionally offered between convolutions: a blocked layout; LAYOUT_ROWS: none */
    i64 blocks_from;    /* for values of at least this many channels */
};

/* Placement of the form's value in its join; whole 0: separate memory. */
struct part cover_part(const struct cover *c, struct form f);
/* A cache in place: an input, or a slice of it, that lies in the join's memory already. */
bool cover_is_there(const struct cover *c, struct form f);

/* Two matmuls: the result of the first reaches the left operand of the second through a softmax and whatever else works on rows. */
struct attention_pair { node_id scores, values; };
struct attention_pairs { struct attention_pair *v; u32 n, cap; };
/* Those of a graph of primitives, inferred and sorted; a: for everything. */
void task_attentions(struct attention_pairs *out, const struct graph *g, struct arena *a);

/* g: primitives only, inferred. */
bool cover_build(struct cover *c, const struct graph *g, struct arena *a, const struct cover_opts *o, struct err *e);

#endif
