// SPDX-License-Identifier: Apache-2.0
//
// Private to gen/: contractions and windows over spatial tiles by workgroups (wg_conv, mma_conv, wg_conv_dw, wg_pool). A workgroup computes a
// tile of outputs, ty rows by tx pixels by oc channels, block by block of input channels, for which the input tile with its halo is copied to
// shared memory once for all taps. The leaf is any of the engine's (leaf.h), or the family's own.
//
// State is divided by its lifetime: facts of the task, what a schedule makes of them, and the kernel being emitted.
#ifndef QUERN_GEN_HALO_H
#define QUERN_GEN_HALO_H

#include "gen/contract.h"
#include "gen/conv.h"
#include "gen/trans.h"

/* A convolution, or windows of a pooling (without weights). */
struct halo_task {
    struct conv c;
    struct conv_tail tail;
    bool up;                 /* transposed: c is of stride 1 over positions, each with an output of every phase (halo_up.c) */
    struct trans trans;
    i64 span[MAX_RANK];      /* up: from the first to the last input of a position, all phases */
};

/* What a family decides about the work of one workgroup; everything else follows from it. A tile consists of py x px parts of ry x rx pixels, and tc
   of rc channels: of threads, or of fragments of matrices. */
struct halo_work {
    i64 threads;
    i64 tc, px, py, rc, rx, ry;
    i64 near;                /* neighbouring pixels of a part that are neighbouring rows of the contraction */
    i64 bk;                  /* input channels per block */
    i64 groups;              /* conv groups in a tile, with all their input; 0: 1, or a part of one */
    i64 run;                 /* output channels that stay together in a thread, 0: 1 */
    i64 deep;                /* input channels that the leaf reads at a time */
    bool unroll_taps, unroll_channels; /* taps along x, channels of a block */
    i64 split_k;             /* workgroups that share the blocks of input channels, 0: 1 */
    i64 readers, apart;      /* pixels read at the same time, and how many outputs apart: for bank conflicts */
    bool input, weights;     /* copied to shared memory: the input tile with its halo, the weights */
    bool wide;               /* shared memory holds the type of the arithmetic, not that of the input */
    bool store_shared;       /* outputs are stored through shared memory */
    enum wg_pipe pipe;
};
/* Of parts of threads that read neighbouring pixels; the family sets what it does not know. */
struct halo_work halo_work_of_threads(i64 threads, i64 tc, i64 px, i64 rc, i64 rx, i64 ry);

/* Sizes that follow. The input tile in shared memory is [taps on axes outside the tile][rows][columns][bk], where rows and columns are those of
   the footprint of its taps. Packed weights: [conv group][block of outputs][block of inputs][taps][bk][oc]. */
struct halo_plan {
    const struct halo_task *q;
    struct halo_work s;
    i64 ty, tx, tile_oc;           /* the tile: rows, pixels of a row, channels */
    enum dtype type, cell;         /* of the arithmetic; of the arrays in shared memory */
    i64 groups, ic, oc;            /* those of the convolution, or all channels as one group where tiles hold several */
    i64 n_in, n_out;               /* blocks of channels; of outputs those of all phases */
    i64 phases;                    /* up, of a tile: all, or 1 */
    i64 width, n_wide;             /* output channels of a block, of one phase, and blocks of them */
    i64 terms;                     /* channels of a block that one output sums over */
    i64 taps, rows, cols, planes;
    i64 unit[MAX_RANK];            /* input positions from one row (column) of the input tile to the next */
    i64 step[MAX_RANK], tap[MAX_RANK]; /* elements of the input tile from one output, one tap to the next */
    i64 plane[MAX_RANK];           /* positions of the input tile on axes outside the tile */
    i64 place[MAX_RANK];           /* elements of the input tile from one position to the next */
    i64 w_tap[MAX_RANK];           /* elements of the weights from one tap to the next */
    i64 pixel;                     /* elements of the input tile from one pixel to the next */
    i64 result;                    /* likewise, of sums that are stored through shared memory */
    i64 vec, w_vec;                /* elements copied at a time */
    bool by_pixel;                 /* neighbouring threads copy neighbouring channels, else neighbouring pixels */
    u32 order[MAX_RANK], n_order;  /* axes with taps, in the order of the input tile */
    i64 n_input, n_weights, n_result; /* elements of one buffer */
    i64 buffers;
    i64 input_copies, weight_copies;  /* of a thread, of one block */
};

/* A place of the tile counts from its first row, pixel and channel; 0 where there is no such axis. */
enum { AT_Y, AT_X, AT_C, N_AT };

/* The kernel while it is emitted. */
struct halo {
    const struct halo_task *q;
    const struct halo_plan *p;
    struct emit *m;
    struct contraction *c;         /* as the leaf sees it */
    struct addressing form;
    kval thread, group, block;     /* number of the conv group, of the block of outputs */
    kval share;                    /* number of the share of input channels */
    kval phase[MAX_RANK];          /* up: that of the tile, where it has one */
    kval pos[MAX_RANK], y0, x0;    /* first output of the tile */
    kval at[N_AT];                 /* first place of the thread's part, if parts are threads' */
    struct result sums;            /* with split_k: TEMP array, without bias */
    kval tile;                     /* SHARED array of sums on their way out */
    kval packed, input, weights;   /* arrays */
    kval next_input, next_weights; /* registers on the way there */
    kval outside;                  /* the value around the input, 0: zeros */
};

/* halo_task.c */
bool halo_task_of(struct halo_task *q, const struct task *t);    /* false: not for these families */
bool halo_task_takes(struct halo_task *q, const struct task *t); /* what stands behind q->c */
bool halo_task_has_rows(const struct halo_task *q);              /* an output with x innermost */
i64 halo_task_size(const struct halo_task *q, i32 axis);         /* outputs along a tiled axis, 1: no such axis */
i64 halo_task_window(const struct halo_task *q, i32 axis);       /* of the pooling, 1: none */

/* halo_plan.c */
void halo_plan_init(struct halo_plan *p, const struct halo_task *q, const struct halo_work *s);
bool halo_plan_fits(const struct halo_plan *p, const struct caps *c); /* what all families ask of a plan */
i64 halo_plan_shared(const struct halo_plan *p);                      /* bytes of shared memory */
i64 halo_plan_copies(const struct halo_plan *p);                      /* of a thread, of one block */
/* Do all loads of a thread for a block go to registers before the first is stored, so that they are in flight at the same time? They are unrolled then. */
enum { HALO_COPIES = 8 };
bool halo_plan_by_registers(const struct halo_plan *p);
double halo_plan_overlap(const struct halo_plan *p); /* elements of input copied per element that the tile stands on */

/* halo_cost.c */
double halo_plan_tiles(const struct halo_plan *p, const i64 *var); /* workgroups */
/* Moved by a family whose threads read straight from the input; what neighbouring threads leave unused included. */
double halo_plan_bytes(const struct halo_plan *p, const i64 *var);
/* Facts without the registers, and the accesses that multiply-adds need. Prologues are not counted: most move elements, which copying counts. */
struct wg_facts halo_plan_facts(const struct halo_plan *p, const i64 *var);

/* halo_emit.c: the whole kernel. Set before: h's task, plan, m and outside, c's leaf and own. subgroup: of the leaf, 0: none. */
void halo_emit(struct halo *h, struct contraction *c, u32 subgroup, const struct task *t, const struct caps *caps);
struct halo *halo_of(const struct contraction *c); /* for leaves */
/* The pixel of a row of the contraction, from the tile's first. Rows count `near` pixels of a part fastest, then parts, then its further pixels. */
void halo_pixel(const struct halo *h, kval row, kval *y, kval *x);
/* Position in the padded input of output position o under a tap. */
kval halo_input_at(const struct halo *h, u32 axis, kval o, kval tap);

/* halo_up.c: transposed convolutions */
bool halo_up_of(struct halo_task *q, const struct task *t);
void halo_up_plan(struct halo_plan *p);  /* phases of a tile */
kval halo_up_open(struct halo *h, kval block); /* sets the phase; returns the number of the block of channels */
kval halo_up_first(const struct halo *h, kval number); /* block of weights: number of the one of the tile's first taps */
kval halo_up_base(const struct halo *h, u32 axis); /* of tap 0, in positions of the input tile */
kval halo_up_taps(const struct halo *h, u32 axis); /* taps of the phase; 0: as many as c.k says */
/* Index of the output that position q of the tile's channel c is. *ok: condition that it exists, 0: always. */
kval halo_up_output(const struct halo *h, u32 axis, kval q, kval c);

/* halo_copy.c: the staging */
kval halo_outside(const struct halo *h, enum dtype t, u32 lanes); /* value outside the input */
/* All blocks of input channels: copies them to shared memory and has the leaf multiply them. */
void halo_k_blocks(struct halo *h);
/* Of a block: its first channel; where its part of the arrays begins, of the packed weights where they are not copied. */
kval halo_first_channel(const struct halo *h, kval block);
kval halo_tile_at(const struct halo *h, kval block);
kval halo_weights_at(const struct halo *h, kval block);

/* Elements of the input: channels c .. c+lanes-1 (of the conv group) at positions `at` of the padded input, zeros outside. */
struct halo_source {
    kval idx[MAX_RANK];
    kval ok, limit;           /* 0: always, all */
};
void halo_source(const struct halo *h, struct halo_source *p, const kval *at, kval c, i64 lanes);
kval halo_value(const struct halo *h, const struct halo_source *p); /* under p->ok */
kval halo_read(const struct halo *h, const struct halo_source *p);  /* of the type of the arithmetic; outside, halo_outside */

/* halo_store.c: outputs */
kval halo_result(const struct halo *h, const kval *at);  /* element of the tile in shared memory */
void halo_store_shared(const struct halo *h);            /* the tile in shared memory to all outputs */
/* Sums of a thread's part, vectors of rc channels: REG array [ry][rx] that begins with `init`, a scalar, 0: with the bias or zeros. */
kval halo_sums_open(struct halo *h, kval init);
void halo_store_sums(const struct halo *h, kval acc);            /* to all outputs */

#endif
