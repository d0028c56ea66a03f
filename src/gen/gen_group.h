// SPDX-License-Identifier: Apache-2.0
//
// Private to gen/: what families by groups of threads share. A grid iteration is one group; its
// threads are numbered 0..n-1 and share SHARED arrays. All functions here are called by every
// thread of the group alike (never within an IF), as they may contain barriers and subgroup
// operations.
#ifndef QUERN_GEN_GROUP_H
#define QUERN_GEN_GROUP_H

#include "gen/gen.h"

/* How copies to SHARED arrays and arithmetic take turns. */
enum group_pipe {
    PIPE_NONE,   /* load a block, wait, compute, wait */
    PIPE_AHEAD,  /* the next block's loads go to registers before the arithmetic of this one */
    PIPE_DOUBLE, /* likewise, and two buffers: one barrier per block */
};

struct group {
    struct emit *m;
    i64 n;         /* threads, a power of two */
    u32 subgroup;  /* required size of subgroups, a power of two <= n; 0: they are not used */
    kval t;        /* number of the thread in the group */
    kval sg, lane; /* of its subgroup, and in its subgroup; 0: subgroups are not used */
};
void group_init(struct group *g, struct emit *m, i64 n, u32 subgroup); /* before the first grid */
void group_enter(struct group *g); /* first thing inside a grid */

/* Limits. */

/* Threads and shared memory of one group. */
bool group_is_legal(const struct caps *c, i64 n, i64 shared_bytes);
i64 group_least(const struct caps *c); /* threads of the smallest group that is worth it */
/* The usual size of a subgroup, if a group of n may add up within subgroups; else 0. */
u32 group_subgroup(const struct caps *c, i64 n);
/* Of vectors that move t: at most 16 bytes and `most`, dividing the extent. */
u32 group_lanes(const struct graph *g, sym extent, enum dtype t, u32 most);

struct group_load { /* what a grid does, for predictions */
    double groups, flops, bytes; /* of all groups; bytes that the caches do not absorb */
    double barriers;             /* one after the other in a group */
    i64 threads;                 /* of a group */
};
double group_seconds(const struct caps *c, const struct group_load *l);

/* A tile of rows x cols elements, copied by all threads, neighbours along cols. In two steps, from
   memory to registers and from there to a SHARED array, so that the arithmetic on the last tile can
   stand between. Element (row, col) stands at row*row_step + col*col_step of the array. */
struct group_copy {
    struct group *g;
    i64 rows, cols;
    u32 lanes;       /* elements at a time along cols; divides cols */
    enum dtype type; /* of the SHARED array */
    kval (*read)(void *user, kval row, kval col); /* `lanes` elements of `type` from there on */
    void *user;
    i64 row_step, col_step;
    kval reg; /* REG array, by group_copy_open */
};
void group_copy_open(struct group_copy *c);
void group_copy_fetch(const struct group_copy *c); /* memory -> registers */
/* Registers -> array, from element `at` on. */
void group_copy_put(const struct group_copy *c, kval array, kval at);

/* A block of (nm*tm) x (nn*tn) sums: nm x nn threads with tm x tn accumulators each. Rows of a
   thread come in runs of `run` neighbours, columns in vectors of `lanes`, so that neighbouring
   threads touch neighbouring elements. */
struct group_tile {
    struct group *g;
    i64 nm, nn, tm, tn;
    u32 lanes, run;
    enum dtype type; /* of the accumulators */
    kval y, x;       /* the thread's place among nm x nn */
    kval acc;
};
/* Of the threads 0 .. nm*nn-1. The accumulators are zero. */
void group_tile_open(struct group_tile *t, kval thread);
/* In the block: the thread's i-th row, the first column of its j-th vector. */
kval group_tile_row(const struct group_tile *t, i64 i);
kval group_tile_col(const struct group_tile *t, i64 j);
kval group_tile_get(const struct group_tile *t, i64 i, i64 j); /* vector j of row i */
i64 group_tile_count(const struct group_tile *t);              /* vectors of a thread */

/* Some terms in two arrays: (row, term) of a at a_at + row*a_row + term*a_term, where one of the
   steps is 1 and vectors run that way; (term, column) of b at b_at + term*b_term + column. */
struct group_terms {
    kval a, a_at, b, b_at;
    i64 a_row, a_term, b_term;
    i64 n; /* terms; at most 4 where a_term is 1 */
};
void group_tile_step(const struct group_tile *t, const struct group_terms *x);

/* op over the values of `width` threads (a power of two) whose numbers are t, t + step, ...: thread
   numbers count step fastest, then width. Every thread gets its result. */
struct group_fold {
    struct group *g;
    enum kir_op op;
    i64 width, step;
    kval shared; /* SHARED array of group.n elements of the value's type per lane */
};
kval group_fold(const struct group_fold *f, kval v);

#endif
