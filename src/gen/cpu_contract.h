// SPDX-License-Identifier: Apache-2.0
//
// Private to gen/: the engine of contractions on processors. A grid iteration has some rows, some blocks of columns and perhaps a share of the terms of the
// result; a nest of loops goes through its register tiles (tile.h). An addressing says where operands and results lie and walks over a tile's terms; its leaf
// is the instruction.
#ifndef QUERN_GEN_CPU_CONTRACT_H
#define QUERN_GEN_CPU_CONTRACT_H

#include "gen/tile.h"

struct cpu_contraction;

/* What the levels of a nest count: passes over the terms, blocks of columns, rows along the tile's two axes, parts of a tile, taps of axes. */
enum cpu_axis { CPU_PASS, CPU_BLOCK, CPU_Y, CPU_X, CPU_PART, CPU_TAP, N_CPU_AXES = CPU_TAP + MAX_RANK };

/* A piece of the result: what the loops opened so far say. */
struct cpu_piece {
    kval at[N_CPU_AXES]; /* first position of every axis */
    i64 rows, columns;   /* of the register tile: rows along x; columns, of which a block may have fewer than tiles are wide */
    bool is_over;        /* rows hang over the end, which is not known */
    bool is_full;        /* all columns exist */
    i64 copy;            /* number of the copy of the levels that are written out, the innermost one's fastest */
};

typedef void cpu_body(struct cpu_contraction *p, const struct cpu_piece *e);

struct cpu_level {
    enum cpu_axis axis;
    kval from, to;
    i64 step;
    void (*place)(struct cpu_contraction *p, const struct cpu_piece *e, struct cpu_level *l); /* sets from and to, before the loop is opened; NULL: they are set */
    i64 copies;             /* not 0: no loop; what is inside is written out so often */
    /* The last piece, if it is smaller: `rest` rows or columns, with code of its own. 0: there is none, tiles hang over the end instead. */
    i64 rest;
    bool is_unknown;        /* its size: it hangs over, too */
    i64 half;               /* of rows whose number is not known: a tile of so many where no more are left; 0: there is none */
    bool always;            /* every iteration has it */
    kval columns;           /* CPU_BLOCK, with rest: of the whole result, of which the iteration has blocks from..to */
    cpu_body *enter, *leave; /* before and behind the levels inside; NULL: nothing */
};

struct cpu_addressing {
    /* Grids around the nest, arrays, operands of the iteration; sets the levels. Returns the structures it has opened. */
    u32 (*open)(struct cpu_contraction *p);
    /* Where the results of a tile go; NULL: `take` knows, and there is no bias. */
    struct tile_out (*target)(struct cpu_contraction *p, const struct cpu_piece *e);
    void (*find)(struct cpu_contraction *p, const struct cpu_piece *e); /* where the tile's operands lie, before its sums begin; NULL: nothing */
    /* Adds all products of the tile; it may say more about where results go. */
    void (*multiply)(struct cpu_contraction *p, struct tile *t, const struct cpu_piece *e, struct tile_out *o);
    /* Takes sums that are not stored at once, or go to memory of its own; NULL: they go where `target` says. */
    void (*take)(struct cpu_contraction *p, const struct tile *t, const struct cpu_piece *e);
    void (*close)(struct cpu_contraction *p); /* behind the nest, inside the grids; NULL: nothing */
};

struct cpu_contraction {
    struct emit *m;
    const struct cpu_addressing *address;
    void *own;               /* of the addressing */
    struct tile *t;          /* largest */
    i64 width, per;          /* columns of a block, of an accumulator */
    struct cpu_level level[N_CPU_AXES]; /* outermost first */
    u32 n_levels;

    struct result r;         /* TEMP: when the epilogue is a grid of its own, or iterations share the terms */
    value_id bias;           /* one per column, 0: none */
    bool bias_last;          /* it is added to whole sums where iterations, or lanes of an accumulator, share the terms; else sums begin with it */

    /* Terms, where a tile has them in passes or shares them. */
    kval sums;               /* array where they wait between passes; 0: there is one pass */
    kval first, end;         /* of this iteration */
    kval at, len;            /* of the pass */
    bool has_shares;         /* iterations begin at different terms */
};

/* The whole kernel, behind emit_args. is_apart: results go through a TEMP array. */
void cpu_emit(struct cpu_contraction *p, bool is_apart, const struct task *t, const struct caps *caps);
struct cpu_level *cpu_level_add(struct cpu_contraction *p, enum cpu_axis axis, kval from, kval to, i64 step); /* innermost so far */
/* Loops of all levels inside a piece (NULL: the whole), with the body inside. */
void cpu_nest(struct cpu_contraction *p, const struct cpu_piece *outer, cpu_body *body);
void cpu_tile(struct cpu_contraction *p, const struct cpu_piece *e); /* cpu_body: a register tile */

/* For addressings: walks over terms. Elements of both operands at the terms that the loops opened so far stand for. */
struct cpu_walk {
    struct kir *k;
    kval a, b;
    u32 n_loops;
};
/* Opens a loop over terms from..to of an axis, along which the left operand's elements are scale*step apart, the right one's b_step. Returns the index. */
kval cpu_walk_over(struct cpu_walk *w, enum kir_loop kind, kval from, kval to, i64 scale, kval step, i64 b_step);
void cpu_walk_close(struct cpu_walk *w);

#endif
