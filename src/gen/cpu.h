// SPDX-License-Identifier: Apache-2.0
//
// For families: the emission of contractions on processors, by the way in which their operands are read.
#ifndef QUERN_GEN_CPU_H
#define QUERN_GEN_CPU_H

#include "gen/cpu_band.h"
#include "gen/trans.h"

/* cpu_addr_igemm.c: convolutions and transposed ones whose rows are output pixels numbered through. */
enum { IGEMM_ROWS = 32 }; /* of a register tile, at most */
/* A task: its convolution, and which axes one number stands for. */
struct igemm {
    struct conv c;
    struct space space;
    bool up;             /* transposed: c is of stride 1 over positions */
    struct trans trans;
    bool has_batch;      /* images, too; else they lie outside */
    bool is_last;        /* the input has channels last, else outside */
    bool is_inside;      /* no window hangs over */
    u32 axis;            /* whose taps are in slices */
};
bool igemm_of(struct igemm *x, const struct task *t);
i64 igemm_channels(const struct igemm *x, const struct conv_sched *s); /* of a slice */
i64 igemm_slices(const struct igemm *x, const struct conv_sched *s);
struct tile_product igemm_product(const struct igemm *x, const struct caps *caps, const struct conv_sched *s);
void igemm_emit(struct emit *m, const struct task *t, const struct caps *caps, const struct conv_sched *s);

/* cpu_addr_blocked.c: convolutions of inputs whose channels lie in blocks. */
bool blocked_of(struct conv *c, const struct task *t); /* every group has whole blocks */
struct tile_product blocked_product(const struct conv *c, const struct caps *caps);
i64 conv_in_block(const struct conv *c);               /* channels of a block of the input */
void blocked_emit(struct emit *m, const struct task *t, const struct caps *caps, const struct conv_sched *s);

/* cpu_addr_phases.c: transposed convolutions phase by phase. */
struct phases_sched {
    i64 tx, nr;          /* register tile: pixels of one phase, vectors of output channels; 0: all output channels, vectors of input channels */
    i64 th, tw;          /* per grid iteration: rows of input positions, tiles along x, 0: all */
    i64 ob;              /* blocks of output channels per grid iteration, 0: all */
};
bool phases_of(struct trans *c, const struct task *t); /* with outputs that tiles can store */
bool phases_read_clast(const struct trans *c);         /* does the input lie with channels last? */
bool phases_by_terms(const struct trans *c, const struct caps *caps); /* may steps take vectors of input channels? For few output channels */
struct tile_product phases_product(const struct trans *c, const struct caps *caps);
void phases_emit(struct emit *m, const struct task *t, const struct caps *caps, const struct phases_sched *v);

/* cpu_addr_band.c: convolutions by taps and channels; of few output channels (at most TILE_COLUMNS) with vectors of pixels along x, or of input
   channels. */
enum { CONV_VECTORS = 4 }; /* so many vectors of input channels are written out, more are a loop */
void gen_conv_emit(struct emit *m, const struct task *t, const struct caps *caps, const struct conv_sched *s);
void conv_emit_planes(struct emit *m, const struct task *t, const struct caps *caps, const struct conv_sched *s);  /* s->ty, xv, th, tw */
void conv_emit_vectors(struct emit *m, const struct task *t, const struct caps *caps, const struct conv_sched *s); /* s->ty, tx, th, tw */

#endif
