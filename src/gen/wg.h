// SPDX-License-Identifier: Apache-2.0
//
// Private to gen/: what families by workgroups share. A grid iteration is one group; its
// threads are numbered 0..n-1 and share SHARED arrays. All functions here are called by every
// thread of the workgroup alike (never within an IF), as they may contain barriers and subgroup
// operations.
#ifndef QUERN_GEN_WG_H
#define QUERN_GEN_WG_H

#include "gen/gen.h"

/* How copies to SHARED arrays and arithmetic take turns. */
enum wg_pipe {
    PIPE_NONE,   /* load a block, wait, compute, wait */
    PIPE_AHEAD,  /* the next block's loads go to registers before the arithmetic of this one */
    PIPE_DOUBLE, /* likewise, and two buffers: one barrier per block */
    PIPE_ASYNC,  /* several buffers, copied to without registers, by copies that may end later */
};

struct workgroup {
    struct emit *m;
    i64 n;         /* threads, a power of two */
    u32 subgroup;  /* required size of subgroups, a power of two <= n; 0: they are not used */
    kval t;        /* number of the thread in the workgroup */
    kval sg, lane; /* of its subgroup, and in its subgroup; 0: subgroups are not used */
};
void wg_init(struct workgroup *g, struct emit *m, i64 n, u32 subgroup); /* before the first grid */
void wg_enter(struct workgroup *g); /* first thing inside a grid */

/* Limits. */

/* Threads and shared memory of one workgroup. */
bool wg_is_legal(const struct caps *c, i64 n, i64 shared_bytes);
/* Registers of a thread, as far as they are counted: without addresses. */
bool wg_has_registers(const struct caps *c, i64 n, i64 regs);
i64 wg_least(const struct caps *c); /* threads of the smallest workgroup worth launching */
/* The usual size of a subgroup, if a workgroup of n may add up within subgroups; else 0. */
u32 wg_subgroup(const struct caps *c, i64 n);
/* Of vectors that move t: at most 16 bytes and `most`, dividing the extent. */
u32 wg_lanes(const struct graph *g, sym extent, enum dtype t, u32 most);
i64 wg_power_dividing(i64 most, i64 n); /* the largest power of two up to `most` that divides n */

/* A tile of rows x cols elements in the hands of all threads, in vectors of `lanes` along cols. */
struct wg_share {
    struct workgroup *g;
    i64 rows, cols; /* powers of two */
    u32 lanes;      /* divides cols */
    bool by_rows;   /* a thread stays in its row as long as there are as many threads as rows; else
                       vectors are counted through the whole tile */
};
i64 wg_share_turns(const struct wg_share *s); /* vectors of a thread, at most */
/* The thread's vector number `turn`. true: not every thread has one, an IF was opened. */
bool wg_share_at(const struct wg_share *s, i64 turn, kval *row, kval *col);

/* Such a tile, copied in two steps, from memory to registers and from there to a SHARED array, so
   that the arithmetic on the last tile can stand between. */
struct wg_copy {
    struct wg_share share;
    enum dtype type; /* of the SHARED array */
    kval (*read)(void *user, kval row, kval col); /* `lanes` elements of `type` from there on */
    kval (*at)(void *user, kval row, kval col);   /* where (row, col) stands in the array */
    void *user;
    i64 col_step;    /* elements of the array from one column to the next, within a vector */
    kval reg;        /* REG array, by wg_copy_open */
};
void wg_copy_open(struct wg_copy *c);
void wg_copy_fetch(const struct wg_copy *c);           /* memory -> registers */
void wg_copy_put(const struct wg_copy *c, kval array); /* registers -> array */
/* Memory -> array; loads may complete as late as the thread's next kir_await. */
void wg_copy_async(const struct wg_copy *c, kval array);

/* op over the values of `width` threads (a power of two) whose numbers are t, t + step, ...: thread
   numbers count step fastest, then width. Every thread gets its result. */
struct wg_fold {
    struct workgroup *g;
    enum kir_op op;
    i64 width, step;
    kval shared; /* SHARED array of group.n elements of the value's type per lane */
};
kval wg_fold(const struct wg_fold *f, kval v);

#endif
