// SPDX-License-Identifier: Apache-2.0
//
// Private to gen/: gradients of convolutions' weights taken apart (conv_grad, wg_conv_grad).
#ifndef QUERN_GEN_GRAD_H
#define QUERN_GEN_GRAD_H

#include "gen/conv.h"

struct grad { /* the anchor taken apart */
    const struct graph *g;
    value_id dw;
    struct conv x;       /* the convolution: reads x, its output is dy */
    struct conv y;       /* dy read as if by a convolution of single pixels */
    i64 groups, ic, oc;  /* channels of one group */
    bool depthwise;      /* grad_join_groups has joined them */
    bool y_in_rows;      /* dy can be loaded where it is, in rows */
    bool exact;          /* dy is known to have the sizes of the convolution's output */
    bool simple;         /* the epilogue is pointwise; else it is a grid of its own */
    u32 tap[MAX_RANK], n_taps; /* axes with several taps, innermost in the band first */
    struct space outer;  /* positions outside a band */
};
/* false: the anchor is none, or none of floats. */
bool grad_of(struct grad *q, const struct task *t);
/* Taps of all combinations along the first n axes of q->tap. */
i64 grad_combos(const struct grad *q, i64 n);
/* Groups of one channel on either side become one group whose channels y has, and x beside them: x.ic = oc, and ic 1. */
void grad_join_groups(struct grad *q);

/* cpu_addr_grad.c */
enum { GRAD_PIXELS = 32 }; /* of a register tile: taps times input channels, at most */
enum grad_y { /* the gradient of the output */
    GRAD_PLACE,  /* is read in place, channels last */
    GRAD_BLOCKS, /* is copied, channels last in blocks */
    GRAD_ROWS,   /* is read in place, in rows, and vectors run along positions; x is copied in planes */
};
struct grad_sched {
    i64 tx, taps, nr;    /* register tile: input channels, axes of q->tap all of whose taps are in it, vectors of output channels (GRAD_ROWS: channels) */
    i64 stage;           /* of x, enum conv_stage */
    enum grad_y dy;
    i64 th, tw;          /* rows and columns of positions of a band, 0: all */
    i64 mb, split_k;     /* blocks of output channels per grid iteration, 0: all; shares of the bands */
};
void grad_emit(struct emit *m, const struct task *t, const struct caps *caps, const struct grad_sched *s);

#endif
