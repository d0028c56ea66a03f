// SPDX-License-Identifier: Apache-2.0
//
// Private to gen/: predicted seconds of loops on a processor with caches. A family states the loops of one thread around a body (the register
// tile, a row of elements): what the body computes, the bytes that it touches of each operand, and by how much every loop enlarges that. How
// often operands come from which cache, and how long that takes, follows here, from the target's rates (caps_rates).
#ifndef QUERN_GEN_NEST_H
#define QUERN_GEN_NEST_H

#include "gen/tile.h"

enum nest_operand { NEST_LEFT, NEST_RIGHT, NEST_SUMS, N_NEST_OPERANDS };
enum { NEST_LOOPS = 10 };

struct nest_loop {
    double trips;
    double grow[N_NEST_OPERANDS]; /* share of an operand's bytes that a trip has not in common with the one before: 0 the same bytes, 1 others */
};

struct nest {
    double seconds;                /* of the body's arithmetic, operands in the first cache */
    double bytes[N_NEST_OPERANDS]; /* that the body touches */
    struct nest_rows { double bytes, pitch, n; } rows[N_NEST_OPERANDS]; /* which lie in rows apart, n of them read side by side; pitch 0: in a piece */
    double burst;                  /* bytes of the right operand of which a step that asks for others waits; 0: few */
    double asked[N_NEST_OPERANDS]; /* prefetched while other bodies run: the share of lines that come in time; 0: not */
    struct nest_loop loop[NEST_LOOPS]; /* innermost first */
    u32 n;
};
void nest_loop(struct nest *n, double trips, double left, double right, double sums);

/* What nests are predicted from: the target's rates per instruction and cache, prepared once. */
struct nest_rates {
    double cycle;                      /* seconds; of instructions that nothing else is known about */
    double chain;                      /* seconds between multiply-adds that wait for each other */
    double work;                       /* seconds of two operations on vectors, or of a load and a store: code that is half of each */
    double fma, load;                  /* seconds of a vector */
    bool in_order;                     /* a load takes its time from multiply-adds; scalars are loaded by vectors of them (kir_ahead) */
    double line[N_RATE_LEVELS];        /* seconds of a byte from a level, read by one thread of all */
    double near[N_RATE_LEVELS];        /* bytes that a level keeps for one thread */
    double period[N_RATE_LEVELS];      /* bytes between lines of one set; 0: sets are chosen by a hash */
    double mma[2];                     /* seconds of a multiply-add of a matrix unit: of bf16, of bytes; 0: there is none */
    double launch;
};
struct nest_rates nest_rates_of(const struct caps *c, const struct rates *r);

/* Of one step of a register tile: pixels x nr multiply-adds of vectors, of which pixels scalars and nr vectors are loaded. */
double nest_step(const struct nest_rates *r, i64 pixels, i64 nr);
double nest_step_by(const struct nest_rates *r, struct tile_product p, i64 pixels, i64 nr); /* likewise by any instruction but a matrix unit's */
/* Likewise by a matrix unit: seconds that it takes for a block of rows and a vector (0: the product is by another instruction), and of all, with their loads. */
double nest_unit_seconds(const struct nest_rates *r, struct tile_product p, enum dtype operand);
double nest_unit(const struct nest_rates *r, double seconds, i64 pixels, i64 nr, i64 copied); /* rows that are copied for it */
double nest_tap(const struct nest_rates *r, double multiplies, double vectors); /* likewise, of multiply-adds whose operands are vectors loaded */
/* By which converting a vector from 16 bits delays the multiply-adds around it. */
double nest_conversion(const struct nest_rates *r);
double nest_both(double a, double b); /* of work that units do at the same time, as far as they can */
/* Of a register tile's ends: so many vectors of sums are cleared or loaded, and stored; elements of each that are stored apart. */
double nest_ends(const struct nest_rates *r, double cells, double apart);
double nest_seconds(const struct nest *n, const struct nest_rates *r); /* of all trips */
double nest_room(const struct nest_rates *r, u32 level, const struct nest_rows *rows); /* bytes of such rows that a level keeps */
/* Of so many bytes of a value of `size` bytes, read from where it lies: 0 where the second cache keeps it. rows: as above. */
double nest_read(const struct nest_rates *r, double bytes, double size, const struct nest_rows *rows);
/* front.c: as gen_front, of vectors along one axis, divided by their lanes: an element's share of a vector's operations. */
double front_along(const struct graph *g, value_id v, u32 axis);

#endif
