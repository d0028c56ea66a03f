// SPDX-License-Identifier: Apache-2.0
//
// Private to gen/: what the families of filters with weights of their own for every pixel share (quern::Filter, quern::FilterOuter).
// On processors a grid iteration takes a strip of rows of one image, or a part of their columns. What taps meet is copied to scratch memory first, a band with
// its zeros around, a channel's row in one piece, so that vectors run along x whatever the layout, no tap is tested, and prologues are evaluated once.
#ifndef QUERN_GEN_FILTER_H
#define QUERN_GEN_FILTER_H

#include "gen/gen.h"

struct filtering {
    const struct graph *g;
    struct op_filter f;
    value_id met, side;    /* inputs: what taps meet, the other one */
    value_id out;          /* of the anchor */
    i64 channels, taps;    /* channels of what is met */
    sym batch, size[2];    /* rows and columns of the output */
    enum dtype type;       /* of sums */
    bool simple;           /* all outputs are pointwise functions of the anchor's */
    bool by_taps;          /* the other input is read in vectors along its channels: filtering_reads */
};
/* props: OP_FILTER or OP_FILTER_GRAD. false: the task is none. */
bool filtering_of(struct filtering *q, const struct task *t, u32 props);
i64 filtering_size(const struct filtering *q, u32 axis, const i64 *var); /* rows (0) or columns (1) of the output, at least 1 */
bool filtering_may_stream(const struct filtering *q, const struct caps *caps, i64 nr); /* are non-temporal stores of nr vectors a candidate? */
/* Sets by_taps: channels of the other input lie side by side, those of neighbouring pixels apart. */
void filtering_reads(struct filtering *q, const struct caps *caps);
/* Lanes of vectors along x. */
u32 filtering_lanes(const struct filtering *q, const struct caps *caps);

struct strip {
    struct emit *m;
    const struct filtering *q;
    u32 lanes;
    i64 th, tw;            /* rows and columns of an iteration, tw 0: all columns */
    i64 planes;            /* channels, and one behind them of ones where the image is, if the sums of weights are asked for */
    kval band;             /* WORK array [row][plane][column] */
    kval n, y0, y1, x0, x1; /* image; rows and columns of this iteration */
    sym rows, width;       /* of the band */
};
void strip_open(struct strip *s);   /* opens the grid, three dimensions, and copies the band */
void strip_close(struct strip *s);
/* Element of the band of tap (i, j) at output (y, x) of a plane. */
kval strip_at(const struct strip *s, kval plane, kval y, kval x, kval i, kval j);
double strip_band_bytes(const struct filtering *q, i64 planes, i64 th, i64 tw, const i64 *var); /* of the band */

#endif
