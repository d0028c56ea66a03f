// SPDX-License-Identifier: Apache-2.0
//
// Private to gen/: tasks with reductions taken apart (row, wg_reduce).
#ifndef QUERN_GEN_ROW_H
#define QUERN_GEN_ROW_H

#include "gen/gen.h"

enum { MAX_REDUCE = 8 };

struct reduction {
    node_id node;
    value_id in, out;
    struct op_reduce r;
};

struct row_task { /* what is to be done */
    const struct graph *g;
    struct reduction red[MAX_REDUCE];
    u32 n;
    bool fused; /* one row at a time; else one reduction at a time */
    bool ordered; /* set by the family: row_space_of has reduced axes in row-major order, whatever the layout is */
};
/* false: no reductions, or something beside them that rows cannot do */
bool row_of(struct row_task *x, const struct task *t);
double row_length(const struct row_task *x, const i64 *var); /* elements that are reduced to one */
bool row_is_float_only(const struct graph *g);
bool row_may_be_vector(const struct row_task *x); /* floats are reduced, and no value is wider than a lane of them */
bool row_is_worth_keeping(const struct row_task *x, u32 i); /* is the input of reduction i computed, and read by more than the reduction? */
bool row_computes(const struct row_task *x); /* is there such a one? */
/* The only output, where the input of the last reduction is worth keeping and each of its elements has the place of one of the output's, of the
   same type: it may wait there. 0: there is none. */
value_id row_waiting_room(const struct row_task *x);

/* The elements a reduction reads, as groups of axes that are either reduced or kept; a row is one
   index of all kept groups. */
struct row_space {
    struct space sp;
    bool reduced[MAX_RANK]; /* per group */
    u32 inner;              /* innermost reduced group; sp.n: none */
    bool across;            /* the innermost group is kept: vectors run across rows */
};
void row_space_of(struct row_space *s, const struct row_task *x, const struct reduction *red);
/* Index of an element before reducing -> of the reduced value, with or without its axes of size 1. */
void row_less_index(struct emit *m, const struct reduction *red, const kval full[MAX_RANK],
                    kval idx[MAX_RANK]);
kval row_dense_index(struct emit *m, value_id v, const kval *idx); /* in an array of v's shape */

#endif
