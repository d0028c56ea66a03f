// SPDX-License-Identifier: Apache-2.0
//
// Private to gen/: convolutions of 3x3 by Winograd's minimal filtering (conv_winograd).
#ifndef QUERN_GEN_WINOGRAD_H
#define QUERN_GEN_WINOGRAD_H

#include "gen/gen_conv.h"

struct wino_sched {
    i64 m;     /* outputs of a tile along either axis: 2, 4, 6 */
    i64 tx, nr; /* register tile of the products: tiles by vectors of output channels */
    i64 tb;    /* register tiles per grid iteration */
    i64 ob;    /* blocks of output channels per grid iteration, 0 = all */
    i64 ku;    /* input channels per step of the inner loop */
    i64 ahead; /* steps that weights are prefetched ahead, 0: not */
    i64 far;   /* tiles that inputs are prefetched ahead, 0: not */
};

enum { WINO_TAPS = 3, WINO_MAX = 8 }; /* most points: inputs of a tile along an axis */

/* F(m,3), one axis at a time: inputs are brought to n points, of which the last is infinity, multiplied there with g times the
   weights, and summed to outputs. */
struct wino {
    i64 m, n;                         /* outputs, points = inputs; n = m + 2 */
    double point[WINO_MAX];           /* n - 1 finite ones: 0, then pairs of opposite sign */
    double g[WINO_MAX * WINO_TAPS];   /* n x 3 */
    double even[WINO_MAX][WINO_MAX];  /* rows of to_points: of point k and its opposite, terms with even index ... */
    double odd[WINO_MAX][WINO_MAX];   /* ... and with odd index, which the point's value multiplies and its sign turns */
};
void wino_init(struct wino *w, i64 m);
bool wino_of(struct conv *c, const struct task *t); /* false: not a convolution of this kind */

/* Scratch memory of a grid iteration, elements. */
struct wino_scratch {
    i64 v_pitch, v_plane; /* inputs by point: from tile to tile, from point to point */
    i64 m_pitch, m_plane; /* products */
    i64 v, m;             /* all of them */
    i64 strip;            /* inputs copied at a time: of one tile that lies at the border, or of a row of tiles */
};
struct wino_scratch wino_scratch(const struct conv *c, const struct wino_sched *s, u32 lanes);

void gen_winograd_emit(struct emit *m, const struct task *t, const struct caps *caps, const struct wino_sched *s);

#endif
