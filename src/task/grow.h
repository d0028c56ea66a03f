// SPDX-License-Identifier: Apache-2.0
//
// Private to task/: the working state of building a cover and the growing of regions.
#ifndef QUERN_TASK_GROW_H
#define QUERN_TASK_GROW_H

#include "task/task.h"

struct node_set {
    node_id *v;   /* in the order of adding */
    u32 n;
};

struct cutter {
    const struct graph *g;
    struct arena *a;
    struct value_list *users;  /* per value: consuming nodes (ids), each once */
    bool *is_output;           /* per value: in the graph's interface */
    enum layout *layout;       /* per value: preferred */
    bool *in_blocks;           /* per value: offered in blocks of channels, too */
    u32 *owner;                /* per node: 1 + index of the anchor region that contains it, 0 = free */
    struct node_set *anchored; /* the anchor regions */
    u32 n_anchored;
    u32 *seen;                 /* per value or node: the last search that met it, see cutter_search */
    u32 *search;               /* number of the last search */
};

enum { MAX_REGION = 48 }; /* nodes of one region */

void cutter_init(struct cutter *c, const struct graph *g, struct arena *a);
struct node_set set_new(const struct cutter *c);
struct node_set set_copy(const struct cutter *c, const struct node_set *s, u32 n);
void set_add(struct node_set *s, node_id n);
bool set_has(const struct node_set *s, node_id n);
void set_sort(struct node_set *s); /* ids are topological: ascending */
/* A new search: c->seen[i] != the number returned: not met by it. */
u32 cutter_search(const struct cutter *c);

bool node_is(const struct graph *g, node_id n, u32 props);
value_id node_out(const struct graph *g, node_id n);  /* its first wanted output */
/* Values of the set that somebody outside needs; returns their number, v may be NULL. */
u32 set_live_outs(const struct cutter *c, const struct node_set *s, value_id *v, u32 max);
/* Adds pointwise nodes (and further reductions over the same axes) behind the anchor as long as one value leaves the set. */
void grow_epilogue(const struct cutter *c, struct node_set *s, node_id anchor);
/* Pulls views, and pointwise nodes used only here, into the set; not through nodes that anchor regions own. */
void grow_prologue(const struct cutter *c, struct node_set *s);

/* cover.c: the index of the task, or of the one with its text that is there already; known: from text to index. */
u32 cover_add_task(struct cover *c, struct map *known, struct task *t);
/* Task and map_back of a region without nodes, that has one input and one output: Identity from the one layout to the other. */
bool cover_conversion(struct cover *c, struct map *known, struct region *r, struct err *e);

/* join.c: see there. only: drops the regions that make a concatenation of a join in another way. */
bool cover_add_joins(struct cover *c, const struct cutter *cut, struct map *tasks, bool only, struct err *e);

/* chain.c: the convolution that alone feeds `*head`, a convolution in the set, with what stands between them, where it may be worth to
   compute both in one kernel. It becomes the new head. false: there is none, the set stays. */
bool grow_chain(const struct cutter *c, struct node_set *s, node_id *head);

#endif
