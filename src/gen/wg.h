// SPDX-License-Identifier: Apache-2.0
//
// Private to gen/: what families by groups of threads share. A grid iteration is one group; its
// threads are numbered 0..n-1 and share SHARED arrays. All functions here are called by every
// thread of the group alike (never within an IF), as they may contain barriers and subgroup
// operations.
#ifndef QUERN_GEN_WG_H
#define QUERN_GEN_WG_H

#include "gen/gen.h"

/* How copies to SHARED arrays and arithmetic take turns. */
enum group_pipe {
    PIPE_NONE,   /* load a block, wait, compute, wait */
    PIPE_AHEAD,  /* the next block's loads go to registers before the arithmetic of this one */
    PIPE_DOUBLE, /* likewise, and two buffers: one barrier per block */
    PIPE_ASYNC,  /* several buffers, copied to without registers, by copies that may end later */
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
/* Registers of a thread, as far as they are counted: without addresses. */
bool group_has_registers(const struct caps *c, i64 n, i64 regs);
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

/* A tile of rows x cols elements in the hands of all threads, in vectors of `lanes` along cols. */
struct group_share {
    struct group *g;
    i64 rows, cols; /* powers of two */
    u32 lanes;      /* divides cols */
    bool by_rows;   /* a thread stays in its row as long as there are as many threads as rows; else
                       vectors are counted through the whole tile */
};
i64 group_share_turns(const struct group_share *s); /* vectors of a thread, at most */
/* The thread's vector number `turn`. true: not every thread has one, an IF was opened. */
bool group_share_at(const struct group_share *s, i64 turn, kval *row, kval *col);

/* Such a tile, copied in two steps, from memory to registers and from there to a SHARED array, so
   that the arithmetic on the last tile can stand between. */
struct group_copy {
    struct group_share share;
    enum dtype type; /* of the SHARED array */
    kval (*read)(void *user, kval row, kval col); /* `lanes` elements of `type` from there on */
    kval (*at)(void *user, kval row, kval col);   /* where (row, col) stands in the array */
    void *user;
    i64 col_step;    /* elements of the array from one column to the next, within a vector */
    kval reg;        /* REG array, by group_copy_open */
};
void group_copy_open(struct group_copy *c);
void group_copy_fetch(const struct group_copy *c);           /* memory -> registers */
void group_copy_put(const struct group_copy *c, kval array); /* registers -> array */
/* Memory -> array; what is read may arrive as late as the thread's next kir_await. */
void group_copy_async(const struct group_copy *c, kval array);

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
