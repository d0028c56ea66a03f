// SPDX-License-Identifier: Apache-2.0
//
// order: the order of sums in programs that promise one (caps.deterministic). A task's sums are those of its definition: of a convolution or
// matmul bias, then the taps, channels innermost, each product added by one rounding; of a reduction row.h's. Families refuse
// schedules of another order, which tune/exact.c can tell. So the bits of a result depend neither on the number of threads nor on sizes
// that are not summed over.
//
// Convolutions of 3x3 and 3x3x3 are too much slower that way: on processors, their order is that of Winograd's minimal filtering, with tiles that
// depend on the weights' sizes alone (--no-winograd: the plain one).
#include "gen/conv.h"
#include "gen/winograd.h"

/* Fewer channels are cheaper without the transforms; more weights than this come from memory, and larger tiles have more of them. Few outputs leave lanes
   unused, as they do in the plain order. */
enum { LEAST_IC = 3, LARGE_TILES_TO = 192 * 192 };

bool gen_order_winograd(const struct conv *c, i64 *m, i64 *mz)
{
    if (!wino_window(c) || c->ic < LEAST_IC) return false;
    *m = c->ic * c->oc < LARGE_TILES_TO ? 4 : 2;
    *mz = wino_z(c) >= 0 && wino_z_taps(c) == WINO_TAPS ? 2 : 1;
    return true;
}

/* Of reductions in rows there is one order only there (row.h). */
static bool is_of_rows(const struct gen *g, const struct task *t)
{
    struct op_reduce r;
    for (node_id n = 1; n < t->g.node.n; n++) {
        const struct op *op = op_of(&t->g, n);
        if (!(op->props & OP_REDUCE) || !op->reduce(&t->g, graph_node(&t->g, n), &r)) continue;
        bool is_sum = r.combine != KI_MIN && r.combine != KI_MAX;
        if (is_sum && dtype_is_float(graph_value(&t->g, graph_node(&t->g, n)->in.v[0])->dtype)) return g->sums == SUMS_OF_ROWS;
    }
    return true;
}

static bool has_winograd(const struct task *t)
{
    struct conv c;
    i64 m, mz;
    for (node_id n = 1; n < t->g.node.n; n++)
        if (!graph_node(&t->g, n)->dead && conv_take(&c, &t->g, n) && gen_order_winograd(&c, &m, &mz)) return true;
    return false;
}

/* A convolution, or a window that is summed over. */
static bool take_window(struct conv *c, const struct graph *g, node_id n)
{
    const struct op *op = op_of(g, n);
    struct op_pool p;
    if (graph_node(g, n)->dead) return false;
    if (conv_take(c, g, n)) return true;
    if (!(op->props & OP_WINDOW) || !op->pool) return false;
    op->pool(g, graph_node(g, n), &p);
    conv_window(c, g, graph_node(g, n));
    return p.combine == KI_ADD;
}

/* If there is one output along an axis, families take its taps before those of the axes in front of it. */
static bool is_permuted(const struct task *t)
{
    struct conv c;
    for (node_id n = 1; n < t->g.node.n; n++) {
        if (!take_window(&c, &t->g, n)) continue;
        for (u32 a = 3; a < c.rank; a++)
            if (c.k[a] > 1 && gen_static(&t->g, c.out[a], 0) == 1) return true;
    }
    return false;
}

bool gen_order_is_winograd(const struct task *t, const struct caps *c) { return !c->is_gpu && !c->no_winograd && has_winograd(t); }

bool gen_order_allows(const struct gen *g, const struct task *t, const struct caps *c)
{
    if (!c->deterministic) return true;
    if (g->sums == SUMS_IN_PARTS || !is_of_rows(g, t)) return false;
    if (g->sums != SUMS_BY_ELEMENT && g->sums != SUMS_WINOGRAD && is_permuted(t)) return false;
    return g->sums == SUMS_WINOGRAD || !gen_order_is_winograd(t, c);
}
