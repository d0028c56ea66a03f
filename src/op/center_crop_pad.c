// SPDX-License-Identifier: Apache-2.0
//
// CenterCropPad: crops or pads with zeros, evenly on both sides, to a given shape. Becomes a
// quern::Slice and a quern::Pad; which of them has something to do may depend on symbolic sizes.
#include "op/op.h"

struct plan {
    u32 rank;
    sym want[MAX_RANK];
};

static bool read_plan(struct graph *g, node_id id, struct plan *p, struct err *e)
{
    const struct node *n = graph_node(g, id);
    const struct shape *x = &graph_value(g, n->in.v[0])->shape;
    const i64 *axes;
    sym want[MAX_RANK];
    i64 count, c, n_axes = attr_ints(n, "axes", &axes);
    bool given = node_attr(n, "axes"), seen[MAX_RANK] = {0};
    *p = (struct plan){.rank = x->rank};
    for (u32 a = 0; a < x->rank; a++) p->want[a] = x->dim[a];
    if (!op_data_sizes(g, id, n->in.v[1], want, MAX_RANK, &count))
        return op_unsupported(e, g, id, "the target shape is only known at run time");
    if (count != (given ? n_axes : x->rank))
        return op_invalid(e, g, id, "the target shape does not fit the axes");
    for (i64 i = 0; i < count; i++) {
        u32 a;
        if (!op_axis(given ? axes[i] : i, x->rank, &a) || seen[a])
            return op_invalid(e, g, id, "bad attribute 'axes'");
        if (sym_is_const(g->sym, want[i], &c) && c < 0)
            return op_invalid(e, g, id, "target size %lld", (long long)c);
        seen[a] = true;
        p->want[a] = want[i];
    }
    return true;
}

static bool infer(struct graph *g, node_id n, struct err *e)
{
    struct plan p;
    if (!read_plan(g, n, &p, e)) return false;
    struct shape to = {.known = true, .rank = p.rank};
    for (u32 a = 0; a < p.rank; a++) to.dim[a] = p.want[a];
    op_set_out(g, n, 0, graph_value(g, graph_node(g, n)->in.v[0])->dtype, &to);
    return true;
}

static bool expand(struct graph *g, node_id n, struct err *e)
{
    struct symtab *t = g->sym;
    struct plan p;
    if (!read_plan(g, n, &p, e)) return false;
    value_id v = graph_node(g, n)->in.v[0], out = graph_node(g, n)->out.v[0];
    sym zero = sym_const(t, 0), two = sym_const(t, 2), start[MAX_RANK], size[MAX_RANK],
        before[MAX_RANK], after[MAX_RANK];
    i64 step[MAX_RANK];
    for (u32 a = 0; a < p.rank; a++) {
        sym d = graph_value(g, v)->shape.dim[a],
            missing = sym_max(t, sym_sub(t, p.want[a], d), zero);
        start[a] = sym_div(t, sym_max(t, sym_sub(t, d, p.want[a]), zero), two);
        size[a] = sym_sub(t, p.want[a], missing);
        before[a] = sym_div(t, missing, two);
        after[a] = sym_sub(t, missing, before[a]);
        step[a] = 1;
    }
    value_id cut = op_node(g, n, "quern::Slice", 1, &v, 0);
    node_id s = graph_value(g, cut)->producer;
    op_set_syms(g, s, "start", start, p.rank);
    op_set_syms(g, s, "size", size, p.rank);
    attr_set_ints(g, s, "step", step, p.rank);
    op_node(g, n, "quern::Pad", 1, &cut, out);
    node_id pad = graph_value(g, out)->producer;
    op_set_syms(g, pad, "before", before, p.rank);
    op_set_syms(g, pad, "after", after, p.rank);
    return true;
}

static void random_center(const struct op *self, struct graph *g, struct rng *r)
{
    u32 rank = (u32)rng_range(r, 1, 4);
    i64 dim[4], want[4], axes[4], count = 0;
    bool given = rng_range(r, 0, 1);
    value_id in[2];
    for (u32 a = 0; a < rank; a++) {
        dim[a] = rng_range(r, 1, 7);
        if (given && rng_range(r, 0, 1)) continue;
        axes[count] = rng_range(r, 0, 1) ? a : (i64)a - rank;
        want[count++] = rng_range(r, 1, 8);
    }
    random_input(g, "x", DT_F32, rank, dim, &in[0]);
    in[1] = op_const_i(g, DT_I64, want, count);
    node_id n = random_node(g, self, 2, in, 1);
    if (given) attr_set_ints(g, n, "axes", axes, count);
}

static const struct op ops[] = {
    {.name = "CenterCropPad",
     .props = OP_VIEW,
     .min_in = 2,
     .max_in = 2,
     .min_out = 1,
     .max_out = 1,
     .infer = infer,
     .expand = expand,
     .random = random_center},
};

const struct op_family op_center_crop_pad = {ops, countof(ops)};
