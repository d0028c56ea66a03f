// SPDX-License-Identifier: Apache-2.0
//
// Private to gen/: convolutions as contractions on processors, and the band of input that a grid iteration works on (conv_gemm, conv_blocked, conv_direct,
// conv_dot, conv_dw, conv_transpose, conv_chain, conv_winograd).
#ifndef QUERN_GEN_CPU_BAND_H
#define QUERN_GEN_CPU_BAND_H

#include "gen/conv.h"
#include "gen/cpu_contract.h"

/* How a depthwise convolution multiplies: one instruction (DOT) adds the products of `terms` taps, neighbours along `axis`, as elements of `type`; terms 1:
   multiply-adds. */
struct dw_product { i64 terms; i32 axis; enum dtype type; };

/* cpu_band.c: a grid iteration's share of a convolution, and its input in scratch memory. */
struct band {
    struct emit *m;
    struct conv c;
    struct conv_sched s;
    struct tile t;
    enum dtype type;           /* of the sums */
    u32 lanes;
    i64 dot_k;                 /* channels that a step adds, 1: multiply-adds */
    i64 group_size;            /* of them, neighbours in the packed weights */
    i64 terms;                 /* channels of a group of the convolution, in whole groups of a DOT */
    enum dtype band_type;      /* of the band: the input's for a DOT, else as the sums */
    u32 band_lanes;            /* of the vectors that fill it */
    bool splits_rest;          /* columns behind the last whole block have code of their own */
    i64 n_blocks, width, per;  /* blocks of output channels; channels of a block, of an accumulator */
    struct space flat;         /* pixels, when flat */
    bool is_flat;
    i32 xa, ya;
    sym x_ext, y_ext, x_tile, y_tile; /* output pixels: all, and per grid iteration */
    kval wbuf, work, rows, temp;
    i64 block_weights;         /* packed weights of a block of output channels */
    bool widens;               /* those of 16 bits are converted once for all tiles of the block (conv_tiles_widen) */
    kval wide;                 /* where they are then, as the type of the sums; 0: tiles read wbuf */
    i64 rows_size;             /* elements of `rows`, 0: those of a tile */
    kval row;                  /* of few output channels: first element of the tile's rows */
    kval group;                /* number of the group of channels */
    kval channels;             /* channels of this group that exist, 0: all */
    i64 n_channels;            /* depthwise: in all */
    bool overlaps;             /* and the last block of them begins where it is whole */
    struct dw_product dw;
    kval pos[MAX_RANK];        /* output position on the axes outside the tile */
    kval x0, x1, y0, y1;       /* output range of this iteration */
    sym ext[MAX_RANK];         /* of the band in scratch */
    kval step[MAX_RANK];       /* elements from one position to the next, in scratch or in the input */
    kval c_step;               /* elements from one channel to the next */
    sym size;                  /* elements of the band */
    u32 order[MAX_RANK], n_order; /* axes without channel, outermost first, x last */
    i64 over_x;                /* columns behind the last tile's that are filled, too */
    i64 spare_y, spare_x;      /* rows and columns that may be written after its end when the band is filled */
    bool is_inner;             /* the inside of the band is computed, band_fill only adds the zeros around */
    kval share;                /* number of the iteration among those that share the terms */
    kval phase;                /* of a transposed convolution: number of the iteration's */
    const struct scratch *to;  /* where results go, NULL: through the epilogue to the outputs */
    const struct cpu_addressing *address;
};

/* In multiply-adds; then perhaps by another instruction. */
void band_init(struct band *b, struct emit *m, const struct conv *c, const struct caps *caps, const struct conv_sched *s);
void band_multiply_by(struct band *b, struct tile_product p, const struct caps *caps);
void band_set_columns(struct band *b, i64 lanes); /* vectors of output channels of so many lanes, instead of all that a vector has */
void band_layout(struct band *b);              /* sizes and strides of the scratch band */
/* Opens the grid (closed by three kir_end): its parts, pixels outside the tile, bands with their phases. Returns the number of the part. */
kval band_open(struct band *b, i64 parts);
sym bands_across(const struct band *b);         /* numbers of bands */
sym bands_down(const struct band *b);
void band_place(struct band *b, const struct space *outer, kval row, kval y, kval x); /* goes to a band: part of band_open */
void band_alloc(struct band *b);               /* its arrays; part of band_open */
void band_fill(struct band *b);
struct tile_out band_target(struct band *b, kval y, kval x); /* channels are the caller's */
static inline bool is_tile_axis(const struct band *b, u32 a) { return (i32)a == b->xa || (i32)a == b->ya; }

/* cpu_conv.c: convolutions as contractions; cpu_addr_*.c walk over their terms */
void conv_may_widen(struct band *b, const struct caps *caps); /* behind the packing of weights, whose blocks have block_weights: decides about b->widens */
kval conv_weights(const struct band *b);              /* the array that tiles read, */
kval conv_weights_at(struct band *b, kval block);     /* and where a block begins there */
void conv_in_place(struct band *b);                   /* instead of band_layout: pixels are read in place, in any layout (c_step: of a block of channels) */
void conv_emit(struct band *b, const struct task *t, const struct caps *caps); /* behind emit_args and the strides: all of the kernel */
void conv_walk(struct band *b, kval from, kval to);   /* all tiles of the iteration, b->group is set, blocks of output channels from..to-1 */
/* For addressings, whose own is the band. */
u32 conv_open(struct cpu_contraction *p);
void conv_levels(struct cpu_contraction *p, kval from, kval to); /* part of it: all tiles of the iteration, blocks of output channels from..to-1; from 0: there is one */
struct tile_out conv_target(struct cpu_contraction *p, const struct cpu_piece *e);

/* cpu_addr_band.c */
kval conv_pack(struct band *b);                       /* weights, before emit_args */
extern const struct cpu_addressing cpu_band;

/* cpu_addr_dw.c: depthwise ones. The band holds one block of channels. */
struct dw_product dw_product_of(const struct conv *c, const struct caps *caps);
/* Of a tile of so many pixels, with terms > 1: DOTs per vector of channels, groups of elements that they read, and vectors of weights. */
struct dw_work { i64 dots, groups, weights; };
struct dw_work dw_work_of(const struct conv *c, const struct dw_product *p, i64 ty, i64 tx);
void dw_init(struct band *b, const struct caps *caps); /* before emit_args: groups become blocks; packs weights */
void dw_enter(struct band *b, kval block);            /* before band_fill */
void dw_walk(struct band *b);                         /* all tiles of the iteration */
/* Without a band (conv_in_place): all tiles of the iteration, blocks of channels from..to-1; its columns are all there are. */
void dw_walk_in_place(struct band *b, kval from, kval to);

#endif
