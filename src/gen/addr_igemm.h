// SPDX-License-Identifier: Apache-2.0
//
// Private to gen/: a convolution as a GEMM of matrices that are never built (wg_igemm, mma_igemm, wgmma_igemm). Rows are all outputs of a channel,
// batch included, merged to one axis; columns are the output channels of a conv group; terms are taps times input channels. Of a
// transposed one rows are the outputs of a phase (trans.h).
#ifndef QUERN_GEN_ADDR_IGEMM_H
#define QUERN_GEN_ADDR_IGEMM_H

#include "gen/conv.h"
#include "gen/contract.h"
#include "gen/trans.h"

enum igemm_order {
    IGEMM_CHANNELS, /* terms count input channels innermost, then taps */
    IGEMM_TAPS,     /* taps innermost, then channels */
    IGEMM_LOOPS,    /* likewise, and a K block is all taps of some channels */
};

struct igemm_address {
    struct conv c;
    bool up;            /* transposed: c is of stride 1 over positions, of which each has an output of every phase */
    struct trans trans;
    i64 phases;         /* 1: not transposed, or as good as */
    enum igemm_order order;
    i64 taps, channels; /* of a kernel; with IGEMM_LOOPS: of a K block */
    bool by_channel;    /* the channels of a pixel lie side by side */
    bool is_stored;     /* the input can be loaded where it is; else something in front is evaluated */
    struct addressing form;
    kval packed;
};
/* Takes the task apart; x: sizes, epilogue and bias as a GEMM. false: not such a task. */
bool igemm_address_of(struct igemm_address *g, struct gemm *x, const struct task *t);
i64 igemm_terms(const struct igemm_address *g);                             /* taps * input channels */
bool igemm_is_dense(const struct igemm_address *g, enum igemm_order o);     /* are contiguous elements of the input terms? */
i64 igemm_k_block(const struct igemm_address *g, enum igemm_order o, i64 bk); /* terms of a K block of bk terms, or channels */

/* Terms of the input that a thread reads at a time where it is not staged. */
i64 igemm_direct_run(const struct igemm_address *g, enum igemm_order o, i64 bk);

/* Sets p->address, p->s.bk and how operands are read, in vectors of at most `wide` elements; packs the weights. Before contract_emit. */
void igemm_address_open(struct igemm_address *g, struct contraction *p, enum igemm_order o, i64 bk);

#endif
