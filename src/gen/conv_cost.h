// SPDX-License-Identifier: Apache-2.0
//
// Private to gen/: schedules of convolutions by register tiles (conv_gemm, conv_igemm, conv_blocked): how they divide the output, which divisions
// make sense, and what they cost. The families add what is theirs to a tile's cycles.
#ifndef QUERN_GEN_CONV_COST_H
#define QUERN_GEN_CONV_COST_H

#include "gen/conv.h"
#include "gen/nest.h"

struct conv_tiles {
    const struct conv *c;
    i64 lanes;
    i64 x, y, outer;         /* output pixels along the tile's axes, and others: images, phases */
    double n_x, n_y;         /* elements of input and output */
    double steps;            /* of a result: taps times channels, in groups of a DOT */
    double present;          /* share of the taps that tiles go through */
    double uneven;           /* of the grid iterations that divide the terms of a result, the longest over the mean one, less 1 */
    struct tile_product product;
    bool is_fma;             /* multiply-adds, before which elements are converted to the type of the sums */
    double size;             /* bytes of an input's element as tiles read it, where it was copied first */
    double x_size, w_size, y_size; /* bytes in memory: of an input's element, of a weight, of a result */
    /* By a schedule. */
    i64 tiles_x, tiles_y, tw, th; /* tiles in all, and of a grid iteration */
    i64 blocks, ob;          /* blocks of output channels in all, and of a grid iteration */
    i64 iterations;
    bool widens;             /* conv_tiles_widen of the kernel, whose tiles are those of sizes that are known when it is compiled */
};
/* What does not depend on the schedule, but for whether pixels are numbered through, for given sizes. */
void conv_tiles_open(struct conv_tiles *t, const struct conv *c, const struct caps *caps, bool is_flat, const i64 *var);
void conv_tiles_multiply_by(struct conv_tiles *t, struct tile_product p); /* if by another instruction than multiply-adds */
void conv_tiles_set(struct conv_tiles *t, const struct conv_sched *s);
/* Whatever the family: is no parameter larger than what it divides, none without effect? Sizes not known are GEN_NOMINAL. */
bool conv_tiles_fit(const struct conv_tiles *t, const struct caps *caps, const struct conv_sched *s);
/* Are weights of 16 bits converted once for all tiles of a block and grid iteration, instead of by each tile? Sizes not known are GEN_NOMINAL. */
bool conv_tiles_widen(const struct conv_tiles *t, const struct caps *caps, const struct conv_sched *s);
/* Cycles of a tile for elements that it reads in place and converts one by one, aside. */
double conv_tiles_spread(const struct conv_tiles *t, const struct conv_sched *s);
/* Elements of the input along an axis (-1: none) under n outputs side by side; the share of them that the n outputs before did not read. */
double conv_reach(const struct conv *c, i32 axis, double n);
double conv_fresh(const struct conv *c, i32 axis, double n);
double conv_tiles_band(const struct conv_tiles *t, const struct conv_sched *s); /* elements of the input that a grid iteration reads */

/* Beside multiply-adds and traffic, in cycles: of a tile, on the units that multiply; of a tile, addresses and loops, which other units work out
   meanwhile; of a grid iteration. */
struct conv_others { double tile, aside, iteration; };
double conv_tiles_seconds(const struct conv_tiles *t, const struct nest_rates *r, const struct caps *caps, const struct conv_sched *s,
                          struct conv_others others);

#endif
