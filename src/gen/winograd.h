// SPDX-License-Identifier: Apache-2.0
//
// Convolutions of 3x3 and 3x3x3 by Winograd's minimal filtering (conv_winograd). Private to gen/.
#ifndef QUERN_GEN_WINOGRAD_H
#define QUERN_GEN_WINOGRAD_H

#include "gen/cpu_band.h"

struct wino_sched {
    i64 m;     /* outputs of a tile along y and x: 2, 4, 6 */
    i64 mz;    /* along z: 1 (the plain sum over its taps), 2; 1 where there is no z */
    i64 tx, nr; /* register tile of the products: tiles by vectors of output channels */
    i64 tb;    /* register tiles per grid iteration */
    i64 ob;    /* blocks of output channels per grid iteration, 0 = all */
    i64 ku;    /* input channels per step of the inner loop */
    i64 ahead; /* steps that weights are prefetched ahead, 0: not */
    i64 far;   /* 1: inputs of the next iteration and the places of outputs are prefetched during the products */
    bool nt;   /* outputs are stored past the caches, and their places not asked for */
};

enum { WINO_TAPS = 3, WINO_MAX = 8 }; /* most points: inputs of a tile along an axis */

/* F(m, taps), one axis at a time: inputs are brought to n points, of which the last is infinity, multiplied there with g times the
   weights, and summed to outputs. m = 1 is the plain sum: n = taps, and `in` and g are the identity. */
struct wino {
    i64 m, n, taps;                   /* outputs, points = inputs, taps; n = m + taps - 1 */
    double point[WINO_MAX];           /* n - 1 finite ones: 0, then pairs of opposite sign */
    double g[WINO_MAX * WINO_TAPS];   /* n x taps */
    double even[WINO_MAX][WINO_MAX];  /* rows of to_points: of point k and its opposite, terms with even index ... */
    double odd[WINO_MAX][WINO_MAX];   /* ... and with odd index, which the point's value multiplies and its sign turns */
    double in[WINO_MAX][WINO_MAX];    /* n x n: the same in full, inputs -> values at points */
    double out[WINO_MAX][WINO_MAX];   /* m x n: products -> outputs */
    i64 scale;                        /* the matrices of inputs and outputs are integers, and so is g times this; 0: they are fractions */
};
/* winograd_points.c */
/* Errors of F(m, 3) along one axis over those of the plain sum, at most: the product of the norms of its matrices. */
double wino_growth(i64 m);
void wino_init(struct wino *w, i64 m, i64 taps); /* m: 1, 2, 4, 6; taps: 3, for m = 1 fewer, too */
/* Of integers, whose values at points are i16: pairs of products by one instruction. leaf NULL: the target has none. */
struct tile_product wino_product(const struct conv *c, const struct caps *caps);
static inline bool wino_is_integer(const struct conv *c) { return !dtype_is_float(c->type); }
/* Of integers: do these tiles have the exact sums (winograd_points.c)? */
bool wino_is_exact(const struct conv *c, const struct wino_sched *s);
/* false: not a convolution of this kind. Its window is 3x3 along the last two axes, which are the tile's; a third axis is wino_z.
   tail->pool: what is pooled where tiles hold whole windows, wino_pools; else it is a grid of its own. */
bool wino_of(struct conv *c, struct conv_tail *tail, const struct task *t);
bool wino_window(const struct conv *c); /* strides, dilations and window are such */
bool wino_pools(const struct conv *c, const struct conv_tail *tail, const struct wino_sched *s);
static inline i32 wino_z(const struct conv *c) { return c->rank == 5 ? 2 : -1; }
static inline i64 wino_z_taps(const struct conv *c) { return c->rank == 5 ? c->k[2] : 1; }
static inline i64 wino_size(const struct conv *c) { return wino_is_integer(c) ? 2 : 4; } /* bytes of a value at a point, roughly: floats of 16 bits are f32 there */
/* Lanes of vectors of values at points; lanes: of sums. */
static inline i64 wino_wide(const struct conv *c, i64 lanes) { return wino_is_integer(c) ? 2 * lanes : lanes; }
static inline i64 wino_steps(const struct conv *c) { return wino_is_integer(c) ? ceil_div(c->ic, 2) : c->ic; } /* of a product: pairs of channels, channels */
static inline i64 wino_points(const struct conv *c, const struct wino_sched *s) /* of a tile */
{
    return (s->mz + wino_z_taps(c) - 1) * (s->m + WINO_TAPS - 1) * (s->m + WINO_TAPS - 1);
}

/* Scratch memory of a grid iteration, elements. */
struct wino_scratch {
    i64 v_pitch, v_plane; /* inputs by point: from tile to tile, from point to point */
    i64 m_pitch, m_plane; /* products */
    i64 v, m;             /* all of them */
    i64 strip;            /* inputs copied at a time: of one tile that lies at the border, or of a row of tiles */
};
struct wino_scratch wino_scratch(const struct conv *c, const struct wino_sched *s, u32 lanes);

/* winograd.c */
void gen_winograd_emit(struct emit *m, const struct task *t, const struct caps *caps, const struct wino_sched *s);

#endif
