// SPDX-License-Identifier: Apache-2.0
//
// Private to gen/: filters with weights of their own for every pixel by workgroups (wg_filter, wg_filter_grad). A workgroup has a tile of an image's pixels,
// a thread some rows of a vector of them; threads count x first. The input tile with its halo, padded by zeros, may be copied to shared
// memory first, so that no tap is tested and prologues are evaluated once; else the input comes through the caches.
#ifndef QUERN_GEN_WG_FILTER_H
#define QUERN_GEN_WG_FILTER_H

#include "gen/filter.h"
#include "gen/wg.h"
#include "gen/wg_cost.h"

/* The first parameters of both families. */
// clang-format off
#define FILTER_PARAMS(P)                                                            \
    P(threads, "threads of a workgroup", 32, 64, 128, 256)                          \
    P(px, "threads along x, the others along y", 4, 16, 32, 64, 128)                \
    P(vec, "pixels of a row of a thread", 1, 2, 4)                                  \
    P(ry, "rows of a thread", 1, 2, 4, 8)                                           \
    P(iu, "rows of taps written out, which share what they meet", 1, 2, 3, 4, 5, 7) \
    P(ju, "taps of a row written out", 1, 2, 4)                                     \
    P(halo, "1: what taps meet is copied to shared memory first", 0, 1)             \
    P(stage, "1: weights, or their gradients, taps innermost, pass through shared memory", 0, 1)
// clang-format on

struct filter_tile {
    struct emit *m;
    const struct filtering *q;
    struct workgroup g;
    FILTER_PARAMS(GEN_PARAM_FIELD)
    i64 py;             /* threads along y */
    i64 span;           /* rows of taps of the workgroup */
    i64 planes;         /* of the input tile: channels, and after them one that is 1 inside the image, if `ones` */
    bool ones;
    kval n, y0, x0;     /* image, the workgroup's first pixel */
    kval row, col;      /* the thread's first pixel, from there */
    kval y, x;          /* the same, of the image */
    kval first;         /* the workgroup's first row of taps */
    kval array;         /* SHARED array [plane][row][column] */
    kval staged;        /* SHARED array [row][column][tap], not densely */
};

/* Behind the parameters, what follows from them; the workgroup has all taps. */
void filter_tile_init(struct filter_tile *t, const struct filtering *q, i64 planes);
/* Copies the input tile of channels c .. c+n-1; again: it is not the first one. Called by all threads of the workgroup. */
void filter_tile_fill(const struct filter_tile *t, kval c, i64 n, bool again);
/* Does the thread have pixels? Has row a of it, if it has? 0: always. */
kval filter_tile_exists(const struct filter_tile *t);
kval filter_tile_has_row(const struct filter_tile *t, i64 a);
kval filter_tile_is_inside(const struct filter_tile *t); /* does all that the thread's taps meet exist? */
kval filter_tile_pixels(const struct filter_tile *t);    /* x of its vector */

kval filter_tile_own_row(const struct filter_tile *t, i64 a); /* y of the thread's row a; behind the end, the last row again */

/* A kernel of either family, whose state begins with it; as a problem's facts it is the analyzed task. */
struct filter_work {
    struct filtering q;
    struct filter_tile t;
    struct result r;
};
bool filter_work_analyze(const struct gen_problem *p, u32 props);
/* The whole kernel: fn emits one tile. Each of `shares` workgroups has some rows of taps of it, from t.first on. */
typedef void filter_work_fn(struct filter_work *w);
void filter_work_emit(struct filter_work *w, const struct task *t, const struct caps *caps, i64 shares, filter_work_fn *fn);

/* Rows of taps i .. i+n-1 of column j, written out. */
struct filter_taps {
    kval i, j;
    i64 n;
    bool inside; /* all that they meet exists */
};
/* Numbers of the rows that they meet, each once, counted from the first; how many. */
enum { FILTER_ROWS = 64 }; /* ry*n at most */
u32 filter_taps_rows(const struct filter_tile *t, const struct filter_taps *p, i64 row[FILTER_ROWS]);
/* The tap, of 0 .. n-1, of row a of the thread whose input is row r of them; -1: there is none. */
i64 filter_taps_tap(const struct filter_tile *t, const struct filter_taps *p, i64 a, i64 r);
/* The input of row r: its position in the image, clamped unless inside, and whether it was inside, 0: always. */
void filter_taps_place(const struct filter_tile *t, const struct filter_taps *p, i64 r, kval at[2], kval *ok);
/* Channel c of it in the type of the sums; plane: of the input tile. */
kval filter_taps_meet(const struct filter_tile *t, const struct filter_taps *p, i64 r, kval c, kval plane);
kval filter_taps_one(const struct filter_tile *t, const struct filter_taps *p, i64 r); /* likewise, 1 where the image is, 0 outside */

/* Calls fn for all columns of taps with rows i .. i+n-1, by loops with some written out. */
typedef void filter_taps_fn(const void *user, const struct filter_taps *p);
void filter_taps_columns(const struct filter_tile *t, struct filter_taps p, filter_taps_fn *fn, const void *user);
void filter_taps_all(const struct filter_tile *t, bool inside, filter_taps_fn *fn, const void *user); /* for all rows, too */

void filter_taps_blocks(const struct filter_tile *t, filter_taps_fn *fn, const void *user); /* once for every rows written out */

/* Staged weights of rows i .. i+n-1 of taps: where those of tap row `tap` of them and column j stand, for the thread's row a. */
kval filter_stage_at(const struct filter_tile *t, const struct filter_taps *p, i64 tap, i64 a);
/* Calls fn for all weights of the tile, shared out to all threads, those of a pixel side by side: index of a weight, clamped, whether it exists, its place. */
struct filter_stage { kval idx[4], exists, at; };
typedef void filter_stage_fn(const void *user, const struct filter_stage *s);
void filter_stage_each(const struct filter_tile *t, const struct filter_taps *p, filter_stage_fn *fn, const void *user);

/* Choosing. */
/* Does the tile fit kernel and device, and is it neither far larger than the image nor smaller than it need be? */
bool filter_tile_is_legal(const struct filter_tile *t, value_id weights, const struct caps *caps);
i64 filter_tile_bytes(const struct filter_tile *t);       /* of the input tile */
double filter_tile_groups(const struct filter_tile *t, const i64 *var);
/* In multiply-adds of a thread: reading one row of a tap's input, a vector of a row of v in memory, its part of the input tile. */
double filter_tile_meeting(const struct filter_tile *t);
double filter_tile_moving(const struct filter_tile *t, value_id v);
double filter_tile_copying(const struct filter_tile *t);
double filter_tile_staging(const struct filter_tile *t); /* all its weights through shared memory */
double filter_tile_slots(const struct filter_tile *t); /* threads of a workgroup, and what small workgroups leave idle */
/* Weights: the rate at which a tile's rows reach memory, of 1. */
double filter_tile_dense(const struct filter_tile *t, value_id weights, const struct caps *caps);
value_id filter_weights(const struct filtering *q); /* what lies in memory: the task's input or output that weights come from, or go to */

#endif
