// SPDX-License-Identifier: Apache-2.0
//
// halo_task: convolutions and windows taken apart for spatial tiles.
//
// Dims: n, spatial axes 2.., of which the last two longer than one pixel (y, x) are tiled; ic, oc.
#include "gen/halo.h"

/* Of pooling: on the tile's axes only. */
static bool takes_windows(const struct halo_task *q)
{
    const struct conv *c = &q->c;
    if (!q->tail.pool) return true;
    for (u32 a = 0; a < c->rank; a++) {
        bool tiled = (i32)a == c->xa || (i32)a == c->ya;
        if (q->tail.win[a] != 1 && (!tiled || (q->tail.win[a] != 2 && q->tail.win[a] != 4))) return false;
    }
    return !q->up;
}

/* Blocked layouts have channels of padding, which nobody here would write. */
static bool takes_layout(const struct conv *c, value_id v)
{
    return c->oc * c->groups % layout_block(graph_value(c->g, v)->layout) == 0;
}

/* One tap that moves nothing: pixels are merged where all operands allow. An axis that carries
   several has index 0 on the others, see space.c. */
static void flatten(struct conv *c)
{
    if (!c->point || !c->plain) return;
    struct space s = conv_space(c);
    if (!s.n) return;
    for (u32 a = 0; a < c->rank; a++)
        if (a != 1) c->in[a] = c->out[a] = sym_const(c->g->sym, 1);
    for (u32 i = 0; i < s.n; i++) c->in[s.g[i].axis] = c->out[s.g[i].axis] = s.g[i].extent;
    c->xa = (i32)s.g[s.n - 1].axis;
    c->ya = s.n > 1 && s.g[s.n - 2].axis ? (i32)s.g[s.n - 2].axis : -1;
}

bool halo_task_takes(struct halo_task *q, const struct task *t)
{
    for (u32 i = 0; i < t->g.output.n; i++)
        if (!takes_layout(&q->c, t->g.output.v[i])) return false;
    return conv_tail_of(&q->tail, &q->c) && takes_windows(q);
}

bool halo_task_of(struct halo_task *q, const struct task *t)
{
    *q = (struct halo_task){0};
    if (!conv_anchor(&q->c, t) && !halo_up_of(q, t)) return false;
    if (!halo_task_takes(q, t)) return false;
    if (!q->tail.pool) flatten(&q->c);
    return true;
}

bool halo_task_has_rows(const struct halo_task *q)
{
    const struct graph *t = q->c.g;
    for (u32 i = 0; i < t->output.n; i++)
        if (graph_value(t, t->output.v[i])->layout == LAYOUT_ROWS) return true;
    return false;
}

i64 halo_task_size(const struct halo_task *q, i32 axis)
{
    return axis < 0 ? 1 : gen_static(q->c.g, q->c.out[axis], GEN_NOMINAL);
}

i64 halo_task_window(const struct halo_task *q, i32 axis) { return q->tail.pool && axis >= 0 ? q->tail.win[axis] : 1; }
