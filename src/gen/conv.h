// SPDX-License-Identifier: Apache-2.0
//
// Private to gen/: convolutions taken apart, and the band of input that a grid iteration works on (conv_gemm, conv_blocked,
// conv_direct, conv_dot, conv_dw, conv_chain).
#ifndef QUERN_GEN_CONV_H
#define QUERN_GEN_CONV_H

#include "gen/cpu_contract.h"

enum conv_stage {
    STAGE_DIRECT, /* pixels are read from the input where it lies */
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
};
/* order.c: tiles of Winograd's filtering, mz 1 without any along z, that make the order of the convolution's sums; false: the plain order. */
bool gen_order_winograd(const struct conv *c, i64 *m, i64 *mz);
bool conv_of(struct conv *c, const struct task *t); /* of floats; false: not for this family */
bool conv_of_any(struct conv *c, const struct task *t); /* of integers, too */
/* Channels, neighbours, that one instruction of the target adds (DOT): of bytes. 1: none. */
i64 conv_dot_terms(const struct conv *c, const struct caps *caps);
/* Any convolution of floats of a graph, whatever stands behind it: simple and by_rows are not set. */
bool conv_take(struct conv *c, const struct graph *g, node_id n);
/* Likewise the anchor of a task without another heavy node. */
bool conv_anchor(struct conv *c, const struct task *t);
/* What the task's outputs make of the anchor: sets simple and by_rows; false: not for these families. */
bool conv_fit(struct conv *c, const struct task *t);
/* All windows along the axis certainly lie inside the input. */
bool conv_is_inside(const struct conv *c, u32 a);
/* What a node with a window says: x, y (of a gradient of weights: that of the output), sizes and axes. One group, channels and weights not set. */
void conv_window(struct conv *c, const struct graph *g, const struct node *n);
/* How the values lie that the input is made of: judged by the first found behind views and pointwise nodes. */
enum layout conv_input_layout(const struct conv *c);
i64 conv_lanes(const struct conv *c, const struct caps *caps); /* of vectors that hold sums */
bool conv_is_flat(const struct conv *c, const struct conv_sched *s);
struct space conv_space(const struct conv *c);      /* pixels of a flat convolution, merged; of a transposed one all positions */
/* Bytes that are stored side by side where `channels` channels of a pixel are; 0: none, or other kernels' business. */
i64 conv_run(const struct conv *c, i64 channels);
struct space conv_outer(const struct conv *c);      /* axes outside the tile, channels left out */


/* band.c: a grid iteration's share of a convolution, and its input in scratch memory. */
struct band {
    struct emit *m;
    struct conv c;
    struct conv_sched s;
    struct tile t;
    enum dtype type;           /* of the sums */
    u32 lanes;
    i64 dot;                   /* channels that one DOT adds, 1: multiply-adds */
    i64 terms;                 /* channels of a group of the convolution, in whole groups of a DOT */
    enum dtype band_type;      /* of the band: the input's for a DOT, else as the sums */
    u32 band_lanes;            /* of the vectors that fill it */
    i64 n_blocks, width, per;  /* blocks of output channels; channels of a block, of an accumulator */
    struct space flat;         /* pixels, when flat */
    bool is_flat;
    i32 xa, ya;
    sym x_ext, y_ext, x_tile, y_tile; /* output pixels: all, and per grid iteration */
    kval wbuf, work, rows, temp;
    kval row;                  /* of few output channels: first element of the tile's rows */
    kval group;                /* number of the group of channels */
    kval channels;             /* channels of this group that exist, 0: all */
    i64 n_channels;            /* depthwise: in all */
    kval pos[MAX_RANK];        /* output position on the axes outside the tile */
    kval x0, x1, y0, y1;       /* output range of this iteration */
    sym ext[MAX_RANK];         /* of the band in scratch */
    kval step[MAX_RANK];       /* elements from one position to the next, in scratch or in the input */
    kval c_step;               /* elements from one channel to the next */
    sym size;                  /* elements of the band */
    u32 order[MAX_RANK], n_order; /* axes without channel, outermost first, x last */
    i64 spare_y, spare_x;      /* rows and columns that whoever fills the band may write behind its end */
    bool is_inner;             /* the inside of the band is computed, band_fill only adds the zeros around */
    kval share;                /* number of the iteration among those that share the terms */
    kval phase;                /* of a transposed convolution: number of the iteration's */
    const struct scratch *to;  /* where results go, NULL: through the epilogue to the outputs */
    const struct cpu_addressing *address;
};

void band_init(struct band *b, struct emit *m, const struct conv *c, const struct caps *caps, const struct conv_sched *s);
void band_layout(struct band *b);              /* sizes and strides of the scratch band */
/* Opens the grid (closed by three kir_end): its parts, pixels outside the tile, bands with their phases. Returns the number of the part. */
kval band_open(struct band *b, i64 parts);
void band_alloc(struct band *b);               /* its arrays; part of band_open */
void band_fill(struct band *b);
struct tile_out band_target(struct band *b, kval y, kval x); /* channels are the caller's */
static inline bool is_tile_axis(const struct band *b, u32 a) { return (i32)a == b->xa || (i32)a == b->ya; }
bool sym_is(const struct graph *g, sym s, i64 want);

/* conv.c: convolutions as contractions; cpu_addr_*.c walk over their terms */
void conv_in_place(struct band *b);                   /* instead of band_layout: pixels are read where they lie */
void conv_emit(struct band *b, const struct task *t, const struct caps *caps); /* behind emit_args and the strides: all of the kernel */
void conv_walk(struct band *b, kval from, kval to);   /* all tiles of the iteration, b->group is set, blocks of output channels from..to-1 */
/* For addressings, whose own is the band. */
u32 conv_open(struct cpu_contraction *p);
void conv_levels(struct cpu_contraction *p, kval from, kval to); /* part of it: all tiles of the iteration, blocks of output channels from..to-1; from 0: there is one */
struct tile_out conv_target(struct cpu_contraction *p, const struct cpu_piece *e);

/* cpu_addr_band.c */
kval conv_pack(struct band *b);                       /* weights, before emit_args */
extern const struct cpu_addressing cpu_band;

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

/* dw.c: depthwise ones. The band holds one block of channels. */
void dw_init(struct band *b);                         /* before emit_args: groups become blocks; packs weights */
void dw_enter(struct band *b, kval block);            /* before band_fill */
void dw_walk(struct band *b);                         /* all tiles of the iteration */
/* Without a band (conv_in_place): all tiles of the iteration, blocks of channels from..to-1; its columns are all there are. */
void dw_walk_in_place(struct band *b, kval from, kval to);

#endif
