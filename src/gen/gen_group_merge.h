// SPDX-License-Identifier: Apache-2.0
//
// Private to gen/: a convolution as a product of matrices that are never built (group_igemm). Rows are all outputs of a channel,
// batch included, merged to one axis; columns are the output channels of a group; terms are taps times input channels. Of a
// transposed one rows are the outputs of a phase (gen_trans.h).
#ifndef QUERN_GEN_GROUP_MERGE_H
#define QUERN_GEN_GROUP_MERGE_H

#include "gen/gen_conv.h"
#include "gen/gen_group_gemm.h"
#include "gen/gen_trans.h"

enum merge_order {
    MERGE_CHANNELS, /* terms count input channels innermost, then taps */
    MERGE_TAPS,     /* taps innermost, then channels */
    MERGE_LOOPS,    /* likewise, and a round is all taps of some channels */
};

struct merge {
    struct conv c;
    bool up;            /* transposed: c is of stride 1 over positions, of which each has an output of every phase */
    struct trans trans;
    i64 phases;         /* 1: not transposed, or as good as */
    enum merge_order order;
    i64 taps, channels; /* of a kernel; with MERGE_LOOPS: of a round */
    bool by_channel;    /* the channels of a pixel lie side by side */
    bool is_stored;     /* the input can be loaded where it is; else something in front is evaluated */
    struct product_form form;
    kval packed;
};
/* Takes the task apart; x: sizes, epilogue and bias of the product. false: not for this family. */
bool merge_of(struct merge *g, struct gemm *x, const struct task *t);
i64 merge_terms(const struct merge *g);                             /* taps * input channels */
bool merge_is_dense(const struct merge *g, enum merge_order o);     /* are elements of the input that lie side by side terms? */
i64 merge_round(const struct merge *g, enum merge_order o, i64 bk); /* terms of a round of bk terms, or channels */

/* Sets p->form, p->bk and how operands are read, in vectors of at most `wide` elements; packs the weights. Before product_init. */
void merge_open(struct merge *g, struct product *p, enum merge_order o, i64 bk);

/* A term of round p->now, or p->round, as the elements of both operands see it. */
struct merge_term {
    kval at;             /* number in the round */
    kval channel;        /* the first, of the group */
    kval tap[MAX_RANK];
    kval ok;             /* does it exist? 0: certainly */
};
void merge_term_of(const struct product *p, kval round, kval at, struct merge_term *t);
/* MERGE_LOOPS: loops over all terms of a round, whose number is returned; the caller closes them. Those along the last axis are written
   out where they are at most so many. */
u32 merge_loops(const struct product *p, kval round, i64 written_out, struct merge_term *t);
/* Takes row i of the block apart here, for all loops that follow. */
void merge_row(const struct product *p, kval i);
/* Elements of the input from a term on, `lanes` channels, of row i of the block; zeros where there are none. */
kval merge_input(const struct product *p, const struct merge_term *t, kval i, u32 lanes);
/* Weights of a term from column i of the block on. */
kval merge_weights(const struct product *p, const struct merge_term *t, kval round, kval i, u32 lanes);

#endif
