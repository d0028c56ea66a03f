// SPDX-License-Identifier: Apache-2.0
//
// Private to gen/: what families by groups of threads share. A grid iteration is one group; its threads are numbered 0..n-1 and
// share SHARED arrays. All functions here are called by every thread of the group alike (never within an IF), as they may contain
// barriers and subgroup operations.
#ifndef QUERN_GEN_GROUP_H
#define QUERN_GEN_GROUP_H

#include "gen/gen.h"

struct group {
    struct emit *m;
    i64 n;            /* threads, a power of two */
    u32 subgroup;     /* required size of its subgroups, a power of two <= n; 0: subgroups are not used */
    kval t;           /* number of the thread in the group */
    kval sg, lane;    /* of its subgroup, and in its subgroup; 0: subgroups are not used */
};
void group_init(struct group *g, struct emit *m, i64 n, u32 subgroup); /* before the first grid */
void group_enter(struct group *g);                                    /* first thing inside a grid */

/* Limits. */
bool group_is_legal(const struct caps *c, i64 n, i64 shared_bytes); /* threads and memory of one group */
i64 group_least(const struct caps *c); /* threads of the smallest group that is worth it */
u32 group_subgroup(const struct caps *c, i64 n);  /* the usual size of a subgroup, if sums within may be used in a group of n; else 0 */
u32 group_lanes(const struct graph *g, sym extent, enum dtype t, u32 most); /* of vectors that move t: at most 16 bytes, divide the extent */

struct group_load {   /* what a grid does, for predictions */
    double groups, flops, bytes; /* of all groups; bytes that the caches do not absorb */
    double barriers;             /* one after the other in a group */
    i64 threads;                 /* of a group */
};
double group_seconds(const struct caps *c, const struct group_load *l);

/* A tile of rows x cols elements, copied by all threads, neighbours along cols. In two steps, from memory to registers and from there
   to a SHARED array, so that the arithmetic on the last tile can stand between. */
struct group_copy {
    struct group *g;
    i64 rows, cols;
    u32 lanes;                /* elements at a time along cols; divides cols */
    enum dtype type;          /* of the SHARED array */
    kval (*read)(void *user, kval row, kval col); /* lanes elements of `type` from (row, col) on */
    void *user;
    i64 row_step, col_step;   /* element (row, col) stands at row*row_step + col*col_step of the array */
    kval reg;                 /* REG array, by group_copy_open */
};
void group_copy_open(struct group_copy *c);
void group_copy_fetch(const struct group_copy *c);                  /* memory -> registers */
void group_copy_put(const struct group_copy *c, kval array, kval at); /* registers -> array, from element `at` on */

/* A block of (nm*tm) x (nn*tn) sums: nm x nn threads with tm x tn accumulators each. Rows of a thread come in runs of `run`
   neighbours, columns in vectors of `lanes`, so that neighbouring threads touch neighbouring elements. */
struct group_tile {
    struct group *g;
    i64 nm, nn, tm, tn;
    u32 lanes, run;
    enum dtype type;          /* of the accumulators */
    kval y, x;                /* the thread's place among nm x nn */
    kval acc;
};
void group_tile_open(struct group_tile *t, kval thread);            /* thread: 0 .. nm*nn-1; accumulators are zero */
kval group_tile_row(const struct group_tile *t, i64 i);             /* in the block, of the thread's i-th row */
kval group_tile_col(const struct group_tile *t, i64 j);             /* likewise, first column of the thread's j-th vector */
kval group_tile_get(const struct group_tile *t, i64 i, i64 j);      /* vector j of row i */
struct group_terms {          /* some terms: element (row, term) of a at a_at + row*a_row + term*a_term, likewise b */
    kval a, a_at, b, b_at;
    i64 a_row, a_term, b_term; /* a_row or a_term is 1: vectors run that way; columns of b are neighbours */
    i64 n;                    /* terms; at most 4 where a_term is 1 */
};
void group_tile_step(const struct group_tile *t, const struct group_terms *x);
i64 group_tile_count(const struct group_tile *t);                   /* accumulator vectors of a thread */

/* op over the values of `width` threads (a power of two) whose numbers are t, t + step, ...: thread numbers count step fastest, then
   width. Every thread gets its result. shared: an array of group.n elements of the value's type per lane. */
struct group_fold {
    struct group *g;
    enum kir_op op;
    i64 width, step;
    kval shared;              /* SHARED array */
};
kval group_fold(const struct group_fold *f, kval v);

#endif
