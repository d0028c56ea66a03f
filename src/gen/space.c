// SPDX-License-Identifier: Apache-2.0
//
// space: the index space of a value, with neighbouring axes merged.
//
// Merging works because addresses are sums of index * stride: with all of a group's index on its
// last axis and zero on the others the address comes out right, provided that every operand has the
// group's axes dense, in the same order and next to each other, or does not have them at all (size
// 1, broadcast). A part of a larger value is dense behind its axis, but not across it. Only pointwise nodes pass indices on unchanged; behind any other node nothing is
// merged.
#include "gen/gen.h"

#include <string.h>

u32 layout_order(enum layout l, u32 rank, u32 order[MAX_RANK])
{
    for (u32 i = 0; i < rank; i++) order[i] = i;
    switch (l) {
    case LAYOUT_ROWS:
    case LAYOUT_C8:
    case LAYOUT_C16: break;
    case LAYOUT_CLAST:
        for (u32 i = 1; i + 1 < rank; i++) order[i] = i + 1;
        order[rank - 1] = 1;
        break;
    case N_LAYOUTS: unreachable();
    }
    return rank;
}

static bool is_one(const struct graph *g, sym s)
{
    i64 x;
    return sym_is_const(g->sym, s, &x) && x == 1;
}

struct merge {
    const struct graph *g;
    const value_id *stop;
    u32 rank, p, q;
    u8 *known; /* per value, of this p and q: 0 not asked yet, 1 no, 2 yes */
};

/* Axis of the leaf for an axis of the result, -1: absent or of size 1. */
static i32 leaf_axis(const struct merge *m, const struct shape *s, u32 axis)
{
    i32 a = (i32)axis - (i32)m->rank + (i32)s->rank;
    return a < 0 || is_one(m->g, s->dim[a]) ? -1 : a;
}

static bool leaf_merges(const struct merge *m, const struct value *x)
{
    i32 p = leaf_axis(m, &x->shape, m->p), q = leaf_axis(m, &x->shape, m->q), before = -1;
    u32 order[MAX_RANK], n = layout_order(x->layout, x->shape.rank, order);
    const struct shape room = value_room(x);
    if (p < 0 && q < 0) return true;
    if (p < 0 || q < 0) return false;
    if (x->part.whole && q == (i32)x->part.axis) return false; /* other parts lie between */
    if (layout_block(x->layout) > 1 && (p <= 1 || q <= 1)) return false;
    for (u32 i = 0; i < n; i++) {
        if ((i32)order[i] == q) return before == p;
        if (!is_one(m->g, room.dim[order[i]])) before = (i32)order[i];
    }
    return false;
}

static bool is_stop(const struct merge *m, value_id v)
{
    for (u32 i = 0; m->stop && m->stop[i]; i++)
        if (m->stop[i] == v) return true;
    return false;
}

static bool value_merges(const struct merge *m, value_id v);

static bool inner_merges(const struct merge *m, value_id v)
{
    const struct value *x = graph_value(m->g, v);
    if (is_stop(m, v)) return true;
    if (!x->producer) return leaf_merges(m, x);
    if (!(op_of(m->g, x->producer)->props & OP_POINTWISE) || x->sdata) return false;
    const struct node *n = graph_node(m->g, x->producer);
    for (u32 i = 0; i < n->in.n; i++)
        if (n->in.v[i] && !value_merges(m, n->in.v[i])) return false;
    return true;
}

/* Diamonds are asked once. */
static bool value_merges(const struct merge *m, value_id v)
{
    if (!m->known[v]) m->known[v] = inner_merges(m, v) ? 2 : 1;
    return m->known[v] == 2;
}

static bool is_output(const struct graph *g, value_id v)
{
    for (u32 i = 0; i < g->output.n; i++)
        if (g->output.v[i] == v) return true;
    return false;
}

static bool all_merge(const struct merge *m, const value_id *v, u32 n)
{
    for (u32 i = 0; i < n; i++)
        if (!value_merges(m, v[i]) ||
            (is_output(m->g, v[i]) && !leaf_merges(m, graph_value(m->g, v[i]))))
            return false;
    return true;
}

enum { FEW_VALUES = 256 }; /* a task with more needs memory from the heap */

void space_of_all(struct space *s, const struct graph *g, const value_id *v, u32 n, enum layout l,
                  const value_id *stop, u32 set)
{
    const struct value *x = graph_value(g, v[0]);
    u32 order[MAX_RANK], rank = layout_order(l, x->shape.rank, order);
    struct arena a = {0};
    u8 few[FEW_VALUES], *known = g->value.n <= FEW_VALUES ? few : arena_array(&a, u8, g->value.n);
    struct merge m = {.g = g, .stop = stop, .rank = rank, .known = known};
    *s = (struct space){.rank = rank};
    for (u32 i = 0; i < rank; i++) {
        struct axis_run new = {x->shape.dim[order[i]], order[i]};
        if (is_one(g, new.extent)) continue;
        struct axis_run *last = s->n ? &s->g[s->n - 1] : NULL;
        m.p = last ? last->axis : 0;
        m.q = new.axis;
        memset(known, 0, g->value.n);
        bool apart = (set >> m.p & 1) != (set >> m.q & 1);
        if (last && !apart && all_merge(&m, v, n))
            *last = (struct axis_run){sym_mul(g->sym, last->extent, new.extent), new.axis};
        else s->g[s->n++] = new;
    }
    if (!s->n)
        s->g[s->n++] = (struct axis_run){sym_const(g->sym, 1), rank ? order[rank - 1] : 0};
    arena_release(&a);
}

void space_of(struct space *s, const struct graph *g, value_id v, const value_id *stop, u32 set)
{
    space_of_all(s, g, &v, 1, graph_value(g, v)->layout, stop, set);
}

void space_index(struct kir *k, const struct space *s, const kval *at, kval idx[MAX_RANK])
{
    for (u32 i = 0; i < MAX_RANK; i++) idx[i] = kir_int(k, 0);
    for (u32 i = 0; i < s->n; i++) idx[s->g[i].axis] = at[i];
}

sym space_count(const struct space *s, struct symtab *t, u32 from, u32 to)
{
    sym n = sym_const(t, 1);
    for (u32 i = from; i < to; i++) n = sym_mul(t, n, s->g[i].extent);
    return n;
}

void space_split(struct emit *m, const struct space *s, const u32 *group, u32 n, kval row,
                 kval at[MAX_RANK])
{
    for (u32 i = n; i-- > 0;) {
        kval size = emit_size(m, s->g[group[i]].extent);
        at[group[i]] = i ? kir_mod(m->k, row, size) : row;
        if (i) row = kir_div(m->k, row, size);
    }
}

void space_at(struct emit *m, const struct space *s, kval number, kval idx[MAX_RANK])
{
    const u32 all[MAX_RANK] = {0, 1, 2, 3, 4, 5, 6, 7};
    kval at[MAX_RANK] = {0};
    space_split(m, s, all, s->n, number, at);
    space_index(m->k, s, at, idx);
}

/* Reads from arguments in what was emitted. */
static void count_reads(struct probe *p, const struct kir *k)
{
    for (kval i = 1; i < k->ins.n; i++) {
        const struct kir_ins *x = kir_at(k, i), *at_ins = kir_at(k, x->b);
        p->n_ins++;
        if (x->op != KI_LOAD || kir_at(k, x->a)->op != KI_BUF) continue;
        if (x->lanes == 1) p->n_scalar++;
        else if (at_ins->op == KI_RAMP && at_ins->imm.i == 1) p->n_dense++;
        else p->n_gather++, p->n_step += at_ins->op == KI_RAMP;
        if (at_ins->op != KI_RAMP || at_ins->imm.i == 1) continue;
        p->n_near += at_ins->imm.i >= -4 && at_ins->imm.i <= 4;
        p->step = i64_max(p->step, at_ins->imm.i);
    }
}

void space_probe_channels(struct probe *p, const struct graph *g, value_id v, i64 c, u32 lanes)
{
    struct arena a = {0};
    struct kir k;
    struct emit m;
    kval idx[MAX_RANK] = {0};
    *p = (struct probe){0};
    kir_init(&k, &a, S("probe"));
    emit_init(&m, &k, g, op_lower, &a);
    emit_args(&m);
    kir_grid(&k, kir_param(&k, S("probe")));
    for (u32 i = 0; i < graph_value(g, v)->shape.rank; i++)
        if (i != 1) idx[i] = kir_loop(&k, KL_SERIAL, kir_int(&k, 0), emit_dim(&m, v, i), 1);
    idx[1] = kir_ramp(&k, kir_int(&k, c), 1, lanes);
    emit_value(&m, v, idx);
    count_reads(p, &k);
    arena_release(&a);
}

void space_probe_inside(struct probe *p, const struct task *t, const struct space *s, value_id v,
                        u32 group, u32 lanes, i64 edge)
{
    struct arena a = {0};
    struct kir k;
    struct emit m;
    kval at[MAX_RANK] = {0}, idx[MAX_RANK];
    *p = (struct probe){0};
    kir_init(&k, &a, S("probe"));
    emit_init(&m, &k, &t->g, op_lower, &a);
    emit_args(&m);
    kir_grid(&k, kir_param(&k, S("probe")));
    for (u32 i = 0; i < s->n; i++) {
        bool inside = i == group && (edge || gen_static(&t->g, s->g[i].extent, 0) >= (i64)lanes); /* whole vectors only */
        kval from = kir_int(&k, inside ? edge : 0), to = emit_size(&m, s->g[i].extent);
        if (inside)
            to = kir_add(&k, from,
                         kir_mul_i(&k, kir_div_i(&k, kir_add_i(&k, to, -2 * edge), lanes), lanes));
        at[i] = kir_loop(&k, KL_SERIAL, from, to, i == group ? lanes : 1);
    }
    at[group] = kir_ramp(&k, at[group], 1, lanes);
    space_index(&k, s, at, idx);
    emit_value(&m, v, idx);
    count_reads(p, &k);
    arena_release(&a);
}

void space_probe(struct probe *p, const struct task *t, const struct space *s, value_id v,
                 u32 group, u32 lanes)
{
    space_probe_inside(p, t, s, v, group, lanes, 0);
}
