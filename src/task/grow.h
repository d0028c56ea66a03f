// SPDX-License-Identifier: Apache-2.0
//
// Private to task/: the working state of building a cover and growing regions.
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
    bool *is_output;           /* per value: belongs to the graph's interface */
    enum layout *layout;       /* per value: preferred */
    bool *in_blocks;           /* per value: also offered in blocks of channels */
    u32 *owner;                /* per node: 1 + index of the anchor region that contains it, 0 = free */
    struct node_set *anchored; /* the anchor regions */
    u32 n_anchored;
    u32 *seen;                 /* per value or node: the last search that visited it, see cutter_search */
    u32 *search;               /* number of the last search */
};

enum { MAX_REGION = 64 }; /* nodes of one region */

void cutter_init(struct cutter *c, const struct graph *g, struct arena *a);
struct node_set set_new(const struct cutter *c);
struct node_set set_copy(const struct cutter *c, const struct node_set *s, u32 n);
void set_add(struct node_set *s, node_id n);
bool set_has(const struct node_set *s, node_id n);
void set_sort(struct node_set *s); /* ids are topological: ascending */
/* A new search: c->seen[i] != the returned number: not visited by it. */
u32 cutter_search(const struct cutter *c);

bool node_is(const struct graph *g, node_id n, u32 props);
value_id node_out(const struct graph *g, node_id n);  /* its first used output */
/* Values of the set that are needed outside; returns their number, v may be NULL. */
u32 set_live_outs(const struct cutter *c, const struct node_set *s, value_id *v, u32 max);
/* Whether an input of the set depends on one of its results. */
bool set_feeds_itself(const struct cutter *c, const struct node_set *s, const value_id *out, u32 n);
/* Adds pointwise nodes (and further reductions over the same axes) after the anchor as long as one value leaves the set. */
void grow_epilogue(const struct cutter *c, struct node_set *s, node_id anchor);
/* Adds producing views, and pointwise nodes used only here, to the set; not through nodes of anchor regions. */
void grow_prologue(const struct cutter *c, struct node_set *s);
/* Likewise, but no concatenation of several values: the set reads these, from one array. */
void grow_prologue_behind_joins(const struct cutter *c, struct node_set *s);

/* cover.c: the index of the task, or of the existing one with its text; known: from text to index. */
u32 cover_add_task(struct cover *c, struct map *known, struct task *t);
/* Task and map_back of a region without nodes, with one input and one output: Identity from one layout to the other. */
bool cover_conversion(struct cover *c, struct map *known, struct region *r, struct err *e);

/* join.c: see there. only: drops the regions that produce a concatenation of a join in another way. */
bool cover_add_joins(struct cover *c, const struct cutter *cut, struct map *tasks, bool only, struct err *e);

/* chain.c: the convolution that exclusively feeds `*head`, a convolution in the set, with the nodes in between,
   if computing both in one kernel may pay. It becomes the new head. false: there is none, the set is unchanged. */
bool grow_chain(const struct cutter *c, struct node_set *s, node_id *head);

/* attention.c: the matmul whose result reaches the left operand of the set's first node, another matmul, through reductions and whatever else lies between,
   of which nothing else is needed but statistics of rows and sums of columns. Returns the number of results, the second product and these, where statistics are
   what is computed from reductions for each row (has_statistics), or the reductions themselves; 0: there is none, the set is unchanged. */
enum { MAX_ATTENTION_RESULTS = 4 };
u32 grow_attention(const struct cutter *c, struct node_set *s, bool has_statistics, value_id out[MAX_ATTENTION_RESULTS]);

/* The set's first node is a matmul whose result becomes statistics of rows, or sums of columns, of exponentials, and nothing else: the set becomes it with all that
   follows. Returns the number of results; 0: it is no such matmul, the set is unchanged. */
u32 grow_scores(const struct cutter *c, struct node_set *s, value_id out[MAX_ATTENTION_RESULTS]);

/* The set's first node is a matmul of the gradients of attention by queries or by keys: the set becomes all of them, of scores and of gradients, with
   what lies between. Returns the number of results, 0: it is none, the set is unchanged. */
enum { MAX_GRADIENTS = 3 }; /* at most MAX_ATTENTION_RESULTS */
u32 grow_attention_grad(const struct cutter *c, struct node_set *s, value_id out[MAX_ATTENTION_RESULTS]);

#endif
