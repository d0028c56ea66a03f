// SPDX-License-Identifier: Apache-2.0
//
// Private to gen/: windows over spatial tiles where every channel is by itself (wg_conv_dw, wg_pool). A thread has a vector of rc neighbouring channels,
// on ry rows of rx pixels. Taps along the tile's axes may be written out: then its windows overlap to a footprint, each of whose elements is read
// once for all of them. Taps that are not, and axes outside the tile, are loops. To the tile, every channel is a conv group.
#ifndef QUERN_GEN_HALO_WINDOW_H
#define QUERN_GEN_HALO_WINDOW_H

#include "gen/halo.h"
#include "gen/leaf.h"

enum window_reuse { REUSE_NONE, REUSE_X, REUSE_ALL }; /* the axes whose taps are written out */
enum { WINDOW_LEAST = 16 /* threads */, WINDOW_CELLS = 64 /* sums of a thread */ };

/* Parameters of both families, with their own ones between. */
// clang-format off
#define WINDOW_TILE(P)                                                  \
    P(threads, "threads of a workgroup", WINDOW_LEAST, 64, 128, 256)    \
    P(tc, "threads along channels", 1, 2, 4, 8, 16, 32)                 \
    P(px, "threads along x, the others along y", 1, 2, 4, 8, 16, 32)    \
    P(rc, "channels of a thread", 1, 2, 4, 8)
#define WINDOW_REUSE(P)                                                 \
    P(reuse, "elements loaded once for all taps: 0 of none, 1 of x, 2 of y, too", REUSE_NONE, REUSE_X, REUSE_ALL)
#define WINDOW_STORE(P)                                                 \
    P(inner, "1: threads away from the edges have code of their own", 0, 1) \
    P(out, "outputs are stored 0 from registers, 1 through shared memory", 0, 1)
// clang-format on

struct window_params { i64 threads, tc, px, rc, rx, ry, reuse, stage, inner, out; };

struct window_side {          /* an axis of the tile as one thread sees it */
    i32 axis;                 /* -1: none */
    i64 n;                    /* outputs */
    i64 taps;                 /* written out; 1: they are a loop, or there is one only */
    i64 unit;                 /* input positions from one element of the footprint to the next */
    i64 size;                 /* elements of the footprint */
    i64 step, tap;            /* elements from one output, one tap to the next */
};
i64 window_side_tap(const struct window_side *s, i64 element, i64 output); /* that joins the two, -1: none */

/* A schedule's view. */
struct window_plan {
    struct halo_plan p;
    struct window_params v;
    struct window_side y, x;
};
/* false: not what a workgroup can be on the device. */
bool window_plan_init(struct window_plan *w, const struct halo_task *q, const struct caps *c, const struct window_params *v);
bool window_plan_is_least(const struct window_plan *w); /* the smallest workgroup, which can do any window: as a schedule, */
#define WINDOW_LEAST_SCHED(q)                                                                                                             \
    (struct sched){.v = {[P_threads] = WINDOW_LEAST, [P_tc] = WINDOW_LEAST, [P_px] = 1, [P_rc] = 1, [P_out] = (q)->tail.pool != 0,            \
                         [P_rx] = (i32)halo_task_window(q, (q)->c.xa), [P_ry] = (i32)halo_task_window(q, (q)->c.ya)}}
/* Do neighbouring threads access neighbours in memory, in tiles that are not much larger than the output? Never in the smallest workgroup. */
struct window_limits {
    i64 ty, tx;  /* of the tile */
    i64 taps;    /* along x that can be written out */
    bool rows;   /* threads follow each other along x, else along channels */
    bool small;  /* taps on both axes can be written out */
};
bool window_plan_is_useful(const struct window_plan *w, const struct window_limits *l);
bool window_begins(const struct halo_task *q, const struct caps *caps, const struct window_params *v, const struct window_limits *l, u32 n); /* struct gen */
/* Predicted for threads that do that much work each, with so many registers. */
double window_plan_seconds(const struct gen_problem *p, const struct window_plan *w, const struct wg_work *thread, double regs);
i64 window_taps(const struct conv *c, i32 axis);

/* The elements that a thread's sums meet, while the kernel is emitted. */
struct footprint {
    const struct window_plan *w;
    const struct halo *h;
    kval acc;                 /* sums: REG array [ry][rx] of vectors of rc channels */
    kval tap[MAX_RANK];       /* the taps that are loops; 0: written out, or no such axis */
    u32 n_loops;
    bool inside;              /* all elements are known to exist */
};
void footprint_open(struct footprint *f, const struct window_plan *w, struct halo *h, kval init); /* init: see halo_sums_open */
void footprint_open_loops(struct footprint *f);
void footprint_close_loops(struct footprint *f);
kval footprint_read(const struct footprint *f, i64 y, i64 x); /* an element, of the type of the arithmetic */
/* Calls fn; with parameter inner, in a branch of its own for threads whose elements all exist. */
typedef void footprint_fn(void *user, struct footprint *f);
void footprint_each(struct footprint *f, footprint_fn *fn, void *user);

#endif
