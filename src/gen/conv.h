// SPDX-License-Identifier: Apache-2.0
//
// Private to gen/: convolutions taken apart, the schedules of those on processors, and what stands behind them.
#ifndef QUERN_GEN_CONV_H
#define QUERN_GEN_CONV_H

#include "gen/tile.h"

enum conv_stage {
    STAGE_DIRECT, /* pixels are read from the input in place */
    STAGE_PIXELS, /* copied to scratch first as [rows][x][channel] */
    STAGE_PLANES, /* copied to scratch first as [rows][channel][x] */
};
struct conv_sched {
    i64 ty, tx, nr;      /* register tile */
    i64 th, tw;          /* tiles per grid iteration, 0 = all */
    i64 ob;              /* blocks of output channels per grid iteration, 0 = all */
    i64 stage;           /* enum conv_stage */
    i64 order;           /* 0: channel blocks outside (weights stay), 1: pixels outside (pixels stay) */
    i64 ku;              /* input channels per step */
    i64 ahead;           /* steps that weights are prefetched ahead, 0: not */
    bool nt;             /* outputs are stored past the caches */
    bool merged;         /* output pixels are numbered through, whatever the window (conv_igemm) */
    i64 split_k;         /* iterations that share the terms of a result, 0: 1 */
    i64 xv;              /* conv_direct: vectors of pixels along x of the register tile */
    i64 tb, bk, copy;    /* conv_igemm: tiles of merged pixels per grid iteration, input channels inside of the taps, 1: elements of a tap are copied first */
};
struct conv {            /* a convolution taken apart; axes are those of the output, 1 = channel */
    const struct graph *g;
    value_id x, w, b, y;
    value_id fill;       /* what lies in the pads, a scalar, 0: zeros */
    enum dtype type;     /* of the sums: i32 of bytes and i32 */
    u32 rank;
    i64 groups, ic, oc;  /* channels of one group */
    i64 acc16;           /* see struct tile_operands */
    sym in[MAX_RANK], out[MAX_RANK], pad[MAX_RANK];
    i64 k[MAX_RANK], dil[MAX_RANK], stride[MAX_RANK];
    i32 xa, ya;          /* axes of the tile, -1: none */
    bool free[MAX_RANK]; /* nothing is padded or cut off on the axis */
    bool no_pad, plain;  /* on no axis; plain: the input lies in memory with channels last */
    bool pitched;        /* the input is part of a larger value: other channels may lie between its pixels */
    bool point;          /* 1x1, stride 1, no padding */
    bool simple;         /* the epilogue is pointwise; else it is a grid of its own */
    bool by_rows;        /* outputs are stored along x */
    i64 phases;          /* a transposed one taken as one of stride 1 (trans_as_conv): outputs of a position, which lie apart; 0: not one */
    double present;      /* share of the taps that such a phase has, on average; of others 1 */
};
bool sym_is(const struct graph *g, sym s, i64 want);
/* order.c: tiles of Winograd's filtering, mz 1 without any along z, that make the order of the convolution's sums; false: the plain order. */
bool gen_order_winograd(const struct conv *c, i64 *m, i64 *mz);
bool conv_of(struct conv *c, const struct task *t); /* of floats; false: not for this family */
bool conv_of_any(struct conv *c, const struct task *t); /* of integers, too */
/* The target's instruction for input and weights, of neighbouring channels. */
struct tile_product conv_product(const struct conv *c, const struct caps *caps);
struct tile_product conv_product_of_rows(const struct conv *c, const struct caps *caps); /* perhaps by a matrix unit */
/* Any convolution of floats of a graph, whatever stands behind it: simple and by_rows are not set. */
bool conv_take(struct conv *c, const struct graph *g, node_id n);
/* Likewise the anchor of a task without another heavy node; of integers, too. */
bool conv_anchor(struct conv *c, const struct task *t);
bool conv_anchor_any(struct conv *c, const struct task *t);
/* What the task's outputs make of the anchor: sets simple and by_rows; false: not for these families. */
bool conv_fit(struct conv *c, const struct task *t);
/* All windows along the axis are known to be inside the input. */
bool conv_is_inside(const struct conv *c, u32 a);
/* What a node with a window says: x, y (of a gradient of weights: that of the output), sizes and axes. One group, channels and weights not set. */
void conv_window(struct conv *c, const struct graph *g, const struct node *n);
/* Layout of the values that the input is computed from: that of the first found behind views and pointwise nodes. */
enum layout conv_input_layout(const struct conv *c);
i64 conv_lanes(const struct conv *c, const struct caps *caps); /* of vectors that hold sums */
/* Of those whose lanes are output channels: narrower if a group has so few that most lanes would be idle. Processors that split wide vectors multiply
   twice as many of half the width, and none multiplies fewer. */
i64 conv_column_lanes(const struct conv *c, const struct caps *caps);
bool conv_is_flat(const struct conv *c, const struct conv_sched *s);
struct space conv_space(const struct conv *c);      /* pixels of a flat convolution, merged; of a transposed one all positions */
/* Bytes that are stored side by side where `channels` channels of a pixel are; 0: none, or other kernels' business. */
i64 conv_run(const struct conv *c, i64 channels);
struct space conv_outer(const struct conv *c);      /* axes outside the tile, channels left out */

/* tail.c: what stands behind a convolution: pointwise nodes, then perhaps windows side by side (pooling) and pointwise nodes
   again. */
struct conv_tail {
    value_id pool;      /* output of the pooling, 0: none */
    i64 win[MAX_RANK];  /* its windows, in outputs of the convolution */
    bool ragged;        /* the last windows may be smaller */
    u32 pooled;         /* bit mask of the task's outputs that stand behind it */
    bool all_pooled;    /* that is all of them */
};
/* false: something else stands there. Layouts are the caller's business. */
bool conv_tail_of(struct conv_tail *t, const struct conv *c);
/* The pooling's operand at idx where the convolution's element there is v, a vector of channels, of which limit exist (0: all). */
kval conv_tail_element(struct emit *m, const struct conv_tail *t, value_id y, const kval *idx, kval v, kval limit);
/* What the pooling makes of the n operands of a window. */
kval conv_tail_pool(struct emit *m, const struct conv_tail *t, const kval *x, i64 n);
/* Those outputs that stand behind the pooling, or before it, through their epilogues: v is the pooling's or the convolution's element. */
void conv_tail_store(struct emit *m, const struct conv_tail *t, value_id of, const kval *idx, kval v, kval limit);

#endif
