// SPDX-License-Identifier: Apache-2.0
//
// Private to gen/: leaves, the innermost level of a contraction by a workgroup: how its threads multiply the K block that the engine
// (contract.h) has staged, and where they hold the sums. A leaf knows registers and instructions; it does not know which operator it
// works for, nor how operands got to where it reads them. A new instruction is a new leaf: a `struct leaf` in a file gen_leaf_NAME.c.
#ifndef QUERN_GEN_LEAF_H
#define QUERN_GEN_LEAF_H

#include "gen/contract.h"

struct leaf {
    void (*open)(struct contraction *p);     /* registers of the sums: zeros, or the bias (contract_begins_with_bias) */
    void (*multiply)(struct contraction *p); /* adds the products of the K block in the operands' stage */
    void (*store)(struct contraction *p);    /* all sums, by contract_store */
};

/* leaf_fma.c: multiply-adds. A thread has a tile of row.n x col.n sums in registers, in vectors of `lanes` columns. With split-K inside
   the workgroup, the threads form slices, each with its share of the terms of a K block; their sums are added through shared memory at the end. */

/* Which elements of an axis of the block belong to which thread, from the inside out: `near` neighbours of a thread, those of the other threads of its
   subgroup, the next `near` of the thread until it has `within` of them, the other subgroups' parts, and so on until it has n. */
struct fma_axis {
    i64 n, near, within;    /* powers of two, near <= within <= n */
    i64 threads, subgroups; /* threads of a subgroup, subgroups of a slice, along this axis */
};

struct fma_leaf {
    struct fma_axis row, col;
    u32 lanes;           /* divides col.near */
    i64 split_k_local;   /* slices, a power of two; 0: 1 */
    i64 unroll;          /* terms of a thread that are unrolled */
    bool ahead;          /* the fragment of the next step is read before this one's is multiplied */
    u32 store_lanes;     /* elements of a store of the slices' sums */
    bool store_by_rows;  /* see struct wg_share */

    /* While it is emitted. */
    u32 run;             /* rows of a vector */
    i64 deep;            /* terms of a step; more than one: vectors of rows run along them */
    kval slice;          /* of this thread */
    kval row0, col0;     /* its first row and column */
    kval acc;            /* sums: REG array [row][vector of columns]; set before `open` if it exists already */
    kval rows, cols;     /* ahead: fragments of two steps */
    struct contract_term term; /* being multiplied: the first of the step */
};
extern const struct leaf leaf_fma;
/* A tile without a contraction: what `open` finds out of it, and zeros as its sums. */
void fma_open(struct fma_leaf *l, const struct workgroup *g, enum dtype type);
/* Behind `open`: a row of sums has so many vectors; in the block the thread's i-th row and the first column of its j-th vector; their sum in fma_leaf.acc. */
i64 fma_vectors(const struct fma_leaf *l);
kval fma_row(struct kir *k, const struct fma_leaf *l, i64 i);
kval fma_col(struct kir *k, const struct fma_leaf *l, i64 j);
kval fma_slot(struct kir *k, const struct fma_leaf *l, i64 i, i64 j);
/* Terms to unroll where the schedule does not say: a power of two up to `terms`, so that the code stays short. */
i64 fma_unroll(const struct fma_leaf *l, i64 terms);

/* leaf_mma.c: matrix instructions. A tile of wm x wn fragments of sums in the registers of a unit, which is a subgroup. */
struct mma_tile {
    struct kir_frag a, b, c; /* shapes and types of both operands and of the sums */
    i64 wm, wn;              /* at most MMA_MAX */
    kval acc;                /* REG array of fragments */
};
enum { MMA_MAX = 16 };
void mma_shape(struct mma_tile *t, enum dtype operand, enum dtype sum, i64 m, i64 n, i64 k);
void mma_open(struct mma_tile *t, struct kir *k); /* the sums are zeros */
void mma_clear(const struct mma_tile *t, struct kir *k); /* they become zeros again */
kval mma_get(const struct mma_tile *t, struct kir *k, i64 i, i64 j);
void mma_set(const struct mma_tile *t, struct kir *k, i64 i, i64 j, kval sums);
bool mma_is_listed(const struct mma_tile *t, const struct caps *c); /* does the target have such fragments? */
/* Fragments of the operands of a step that begins with a term: number i along rows, number j along columns of the tile. */
struct mma_source {
    void *user;
    kval (*a)(void *user, i64 term, i64 i);
    kval (*b)(void *user, i64 term, i64 j);
};
/* Steps over so many terms. ahead: the next step's fragments are loaded before this one's are multiplied. */
void mma_multiply(const struct mma_tile *t, struct kir *k, const struct mma_source *s, i64 terms, bool ahead);

struct mma_leaf {
    struct mma_tile t;
    i64 gm, gn;       /* units of the workgroup along rows and columns */
    bool rows_first;  /* neighbouring units are along rows, else along columns */
    i64 subgroups;    /* of a unit: 1; a warpgroup's for wgmma */
    i64 at_once;      /* wgmma: units whose fragments are stored at once, a power of two */
    bool ahead;
    kval unit;        /* of this thread */
    kval row, col;    /* in the block: the unit's first sum */
    struct contract_term term; /* of the step, where the addressing opens loops; else zero */
};
/* Subgroups load fragments from shared memory (cooperative matrices, mma.sync, MFMA, WMMA). Sums leave through contraction.out, which
   mma_out_size() sizes. */
extern const struct leaf leaf_mma;
i64 mma_out_size(const struct mma_leaf *l);
/* Fragment `term`, j of the K block of a contraction's right operand, whatever the left one is: as mma_source.b. */
kval mma_right(void *contraction, i64 term, i64 j);
/* Warpgroups that read both operands from swizzled shared memory by themselves (wgmma). Sums leave through shared memory of so many units at once. */
extern const struct leaf leaf_wgmma;
i64 wgmma_out_size(const struct mma_leaf *l); /* elements of one unit's */
bool wgmma_stores_whole(const struct mma_leaf *l, i64 threads); /* do so many threads store a fragment without remainder? */

#endif
