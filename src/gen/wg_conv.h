// SPDX-License-Identifier: Apache-2.0
//
// Private to gen/: convolutions and windows by workgroups (wg_conv, wg_conv_dw, wg_pool,
// mma_conv).
#ifndef QUERN_GEN_WG_CONV_H
#define QUERN_GEN_WG_CONV_H

#include "gen/conv.h"
#include "gen/wg.h"
#include "gen/trans.h"

/* What a family decides about the work of one group; everything else follows from it. */
struct wg_work {
    i64 threads;
    i64 ty, tx;         /* output tile: rows, pixels of a row */
    i64 oc;             /* output channels */
    i64 bk;             /* input channels per block */
    i64 groups;         /* of channels, side by side, each with all its input; 0: 1, or a part of one */
    i64 run;            /* output channels that stay together in a thread, 0: 1 */
    i64 split_k;        /* workgroups that share the blocks of input channels, 0: 1 */
    i64 readers, apart; /* pixels read at the same time, and how many outputs apart: for bank conflicts */
    bool patch, weights; /* copied to shared memory: the input with its halo, the weights */
    bool wide;          /* shared memory holds the type of the arithmetic, not that of the input */
    bool store_shared;     /* outputs leave through shared memory */
    enum wg_pipe pipe;
};

/* A transposed convolution (trans.h) as one of stride 1: a tile is one of positions q, with the outputs of one phase or, where
   all phases have as many taps, of all of them, one after the other as if they were channels. */
struct wg_up {
    bool is;
    struct trans t;
    i64 tile;             /* phases of a tile: all, or 1 */
    i64 span[MAX_RANK];   /* from the first to the last input that a position meets, all phases */
    kval phase[MAX_RANK]; /* that of the tile, where it has one */
};

/* A convolution, or windows of a pooling (without weights), as one group does it. The patch in shared memory is [taps on axes outside the tile][rows][columns][cb], where
   rows and columns are those that some tap of the tile meets. Packed weights: [group][block of outputs][block of inputs]
   [taps][bk][oc]. */
struct wg_conv {
    struct conv c;
    struct conv_tail tail;
    struct wg_up up;
    struct wg_work s;
    enum dtype type, cell;         /* of the arithmetic; of the arrays in shared memory */
    i64 groups, ic, oc;            /* those of c, or all channels as one group where tiles hold several */
    i64 n_in, n_out;               /* blocks of channels; of outputs those of all phases */
    i64 width, n_wide;             /* output channels of a block, of one phase, and blocks of them */
    i64 terms;                     /* channels of a block that one output meets */
    i64 taps, rows, cols, planes;
    i64 unit[MAX_RANK];            /* input positions from one row (column) of the patch to the next */
    i64 step[MAX_RANK], tap[MAX_RANK]; /* elements of the patch from one output, one tap to the next */
    i64 plane[MAX_RANK];           /* positions of the patch on axes outside the tile */
    i64 place[MAX_RANK];           /* elements of the patch from one position to the next */
    i64 w_tap[MAX_RANK];           /* elements of the weights from one tap to the next */
    i64 pixel;                     /* elements of the patch from one pixel to the next */
    i64 result;                    /* likewise, of outputs that leave through shared memory */
    i64 vec, w_vec;                /* elements copied at a time */
    bool by_pixel;                 /* neighbouring threads copy neighbouring channels, else neighbouring pixels */
    u32 order[MAX_RANK], n_order;  /* axes with taps, in the patch's order */
    i64 n_patch, n_weights, n_result; /* elements of one buffer */
    i64 buffers;
    i64 patch_copies, weight_copies;  /* of a thread, of one block */

    struct emit *m;
    kval thread, group, block;     /* number of the group of channels, of the block of outputs */
    kval chunk;                    /* number of the share of input channels */
    struct result sums;            /* of chunks: TEMP array, without bias */
    bool bias_is_in;               /* the threads' sums began with it */
    kval left;                     /* shared array by which outputs leave */
    kval pos[MAX_RANK], y0, x0;    /* first output of the tile */
    kval packed, patch, weights;   /* arrays */
    kval next_patch, next_weights; /* registers on the way there */
    kval outside;                  /* what stands around the input, 0: zeros */
};

/* wg_conv.c */
i64 wg_power_dividing(i64 most, i64 n); /* the largest power of two up to `most` that divides n */
/* Takes the task apart. false: not for these families. */
bool wg_conv_of(struct wg_conv *g, const struct task *t);
bool wg_conv_takes(struct wg_conv *g, const struct task *t); /* what stands behind g->c */
void wg_conv_plan(struct wg_conv *g, const struct wg_work *s);  /* sizes that follow from s */
bool wg_conv_fits(const struct wg_conv *g, const struct caps *c);  /* what both families ask of a plan */
i64 wg_conv_shared(const struct wg_conv *g);                       /* bytes of shared memory */
i64 wg_conv_copies(const struct wg_conv *g);                       /* of a thread, of one block */
/* Do all loads of a thread for a block go to registers before the first is stored, so that they are in flight at the same time? They are unrolled then. */
enum { GROUP_CONV_COPIES = 8 };
bool wg_conv_by_registers(const struct wg_conv *g);
i64 wg_conv_window(const struct wg_conv *g, i32 axis);             /* of the pooling, 1: none */
bool wg_conv_has_rows(const struct wg_conv *g);                    /* an output with x innermost */
i64 wg_conv_size(const struct wg_conv *g, i32 axis);               /* outputs along a tiled axis, 1: no such axis */
double wg_conv_halo(const struct wg_conv *g); /* elements of input copied per element that the tile stands on */

/* Packs, declares arguments, opens the grid and the arrays. */
void wg_conv_open(struct wg_conv *g, struct emit *m);
/* Closes the grid; with chunks adds them up in another one. */
void wg_conv_close(struct wg_conv *g, const struct task *t, const struct caps *c);

/* Taps of a block, outermost axis first. Elements of the patch and of the weights move along. */
struct wg_taps {
    kval at, w;
    kval tap[MAX_RANK];
    u32 n_loops;              /* that were opened; the caller closes them */
};
void wg_conv_taps(const struct wg_conv *g, struct wg_taps *p, bool unroll); /* those along x are written out */
/* Position in the padded input that output position o meets under a tap. */
kval wg_conv_input_at(const struct wg_conv *g, u32 axis, kval o, kval tap);

/* wg_up.c: transposed convolutions */
bool wg_up_of(struct wg_conv *g, const struct task *t);
void wg_up_plan(struct wg_conv *g);  /* phases of a tile */
void wg_up_pack(struct wg_conv *g, struct pack *p);
kval wg_up_open(struct wg_conv *g, kval block); /* sets the phase; returns the number of the block of channels */
kval wg_up_first(const struct wg_conv *g, kval number); /* block of weights: number of the one of the tile's first taps */
kval wg_up_base(const struct wg_conv *g, u32 axis); /* of tap 0, in positions of the patch */
kval wg_up_taps(const struct wg_conv *g, u32 axis); /* taps of the phase; 0: as many as c.k says */
/* Index of the output that position q of the tile's channel c is. *ok: condition that it exists, 0: always. */
kval wg_up_output(const struct wg_conv *g, u32 axis, kval q, kval c);

/* wg_patch.c */
kval wg_conv_weights(const struct wg_conv *g, kval block); /* where a block's begin in the packed array */
kval wg_conv_outside(const struct wg_conv *g, enum dtype t, u32 lanes); /* value outside the input */

/* All blocks of input channels: copies them to shared memory and calls step for the arithmetic of one. */
struct wg_block {
    kval first;               /* input channel */
    kval patch, weights;      /* where its part of the arrays begins; weights: of the packed ones where they are not copied */
};
typedef void wg_step(struct wg_conv *g, void *user, const struct wg_block *b);
void wg_conv_blocks(struct wg_conv *g, wg_step *step, void *user);

/* Elements of the input: channels c .. c+lanes-1 (of the group) at positions `at` of the padded input, zeros outside. */
struct wg_source {
    kval idx[MAX_RANK];
    kval ok, limit;           /* 0: always, all */
};
void wg_conv_source(const struct wg_conv *g, struct wg_source *p, const kval *at, kval c, i64 lanes);
kval wg_conv_value(const struct wg_conv *g, const struct wg_source *p); /* under p->ok */

/* wg_store.c: outputs. A place counts from the tile's first row, pixel and channel; 0 where there is no such axis. */
enum { AT_Y, AT_X, AT_C, N_AT };
kval wg_conv_bias(const struct wg_conv *g, kval c, u32 lanes); /* of channels c and on; 0: none */
/* Stores the outputs that are not pooled. v: the convolution there, bias included, a vector of channels. */
void wg_conv_store(const struct wg_conv *g, const kval *at, kval v);
/* Stores the pooled outputs of one window: v, its elements in order, the window's first at `at`. */
void wg_conv_store_pool(const struct wg_conv *g, const kval *at, const kval *v);
kval wg_conv_result(const struct wg_conv *g, const kval *at); /* element of the tile in shared memory */
void wg_conv_store_shared(const struct wg_conv *g); /* the tile in shared memory to all outputs */

/* Sums that a thread holds: ry rows of rx pixels by rc channels, in whole windows unless they leave through shared memory. */
struct wg_cells {
    i64 tc, px;               /* threads along channels, then along x, the others along y */
    i64 ry, rx, rc;
    kval at[N_AT];            /* place of the first */
    kval acc;                 /* vectors of rc channels: [ry][rx] */
};
/* Places the thread; the sums begin as `init`, a scalar, 0: as the bias, or, of chunks, as zeros. */
void wg_cells_open(struct wg_conv *g, struct wg_cells *t, kval init);
void wg_cells_store(const struct wg_conv *g, const struct wg_cells *t); /* to all outputs */

/* wg_window.c */
enum wg_reuse { REUSE_NONE, REUSE_X, REUSE_ALL }; /* the axes whose taps are written out */
struct wg_side {           /* an axis of the tile as one thread sees it */
    i32 axis;                 /* -1: none */
    i64 n;                    /* outputs */
    i64 taps;                 /* written out; 1: they are a loop, or there is one only */
    i64 unit;                 /* input positions from one element of the footprint to the next */
    i64 size;                 /* elements of the footprint */
    i64 step, tap;            /* elements from one output, one tap to the next */
};
struct wg_footprint {           /* the elements that a thread's sums meet; a tile holds as many groups as channels */
    const struct wg_conv *g;
    const struct wg_cells *cells;
    struct wg_side y, x;
    kval tap[MAX_RANK];       /* where taps that are loops stand; 0: written out, or no such axis */
    u32 n_loops;
    kval patch;               /* where the patch begins, if there is one */
    bool inside;              /* all elements are known to exist */
};
void wg_footprint_of(struct wg_footprint *f, const struct wg_conv *g, const struct wg_cells *t,
                   enum wg_reuse reuse);
i64 wg_side_tap(const struct wg_side *s, i64 element, i64 output); /* that joins the two, -1: none */
void wg_footprint_open(struct wg_footprint *f); /* the loops */
void wg_footprint_close(struct wg_footprint *f);
kval wg_footprint_read(const struct wg_footprint *f, i64 y, i64 x); /* an element, of the type of the arithmetic */
kval wg_footprint_inside(const struct wg_footprint *f); /* do all elements exist? 0: always */

/* wg_cost.c */
double wg_conv_tiles(const struct wg_conv *g, const i64 *var); /* workgroups */
/* Moved by a family whose threads read straight from the input; what threads side by side leave unused included. */
double wg_cells_bytes(const struct wg_conv *g, const struct wg_cells *t, const i64 *var);
struct wg_cost {
    double loads;             /* from shared memory or caches, per multiply-add: what they cost, in multiply-adds */
    double regs;              /* 32-bit registers of a thread */
    double rate;              /* of multiply-adds, in multiples of those of scalar ones */
    double chains;            /* independent multiply-adds of a thread */
};
double wg_conv_seconds(const struct wg_conv *g, const struct caps *c, const struct wg_cost *x, const i64 *var);

#endif
