// SPDX-License-Identifier: Apache-2.0
//
// quern::ScatterMap and quern::Replace, by which pass/scatter.c writes slices into a tensor: what is stored at given places, as which update belongs to a place.
//
//   ScatterMap(indices (t, k))                      (n), n the product of the k numbers of attribute "sizes": per place, in row-major order, the number of the
//                                                   last tuple of indices that names it, -1 if none does. Indices below 0 count from the end, others outside
//                                                   are clamped, as those of ScatterND.
//   Replace(data (a.., s.., e..), map (s..), updates (a.., t, e..))
//                                                   data, with slice map[s] of the updates where that is at least 0; the axes s begin at attribute "axis"
//
// Replace only chooses elements, so it fuses with its readers. Each grid iteration of ScatterMap has a part of the places and looks at all tuples in their order:
// no order is lost, with as many threads as there are parts.
#include "op/op.h"

#include <string.h>

enum { PARTS = 16, LEAST_PART = 256 /* places */ };

/* ScatterMap */

static bool map_infer(struct graph *g, node_id n, struct err *e)
{
    const struct node *nd = graph_node(g, n);
    const struct shape index = *op_in_shape(g, nd, 0);
    sym size[MAX_RANK];
    const i64 n_sizes = op_get_syms(g, nd, "sizes", size, MAX_RANK);
    struct shape s = {.known = true, .rank = 1, .dim = {sym_const(g->sym, 1)}};
    if (n_sizes < 1) return op_invalid(e, g, n, "attribute 'sizes'");
    if (index.rank != 2 || !dtype_is_int(op_in_dtype(g, nd, 0))) return op_invalid(e, g, n, "indices must be tuples of integers, of rank 2");
    if (!op_require_equal(g, n, index.dim[1], sym_const(g->sym, n_sizes), e, "the number of indices in a tuple and of 'sizes'")) return false;
    for (u32 a = 0; a < (u32)n_sizes; a++) s.dim[0] = sym_mul(g->sym, s.dim[0], size[a]);
    op_set_out(g, n, 0, DT_I64, &s);
    return true;
}

static bool map_eval(const struct op_eval *v, struct err *e)
{
    const struct tensor *index = v->in[0];
    struct tensor *out = v->out[0];
    sym size[MAX_RANK];
    const i64 k = op_get_syms(v->g, v->n, "sizes", size, MAX_RANK), n = tensor_count(out);
    struct shape s = {.known = true, .rank = (u32)k};
    i64 dim[MAX_RANK];
    for (i64 a = 0; a < k; a++) s.dim[a] = size[a];
    if (!shape_eval(v->g->sym, &s, v->var, dim)) return err_set(e, ERR_INPUT, "'sizes' are unknown");
    for (i64 i = 0; i < n; i++) elem_set_i64(DT_I64, out->data, i, -1);
    for (i64 t = 0; n && t < index->dim[0]; t++) {
        i64 at = 0;
        for (i64 a = 0; a < k; a++) at = at * dim[a] + op_index(elem_i64(index->dtype, index->data, t * k + a), dim[a]);
        elem_set_i64(DT_I64, out->data, at, t);
    }
    return true;
}

static void map_whole(struct emit *m, const struct node *n)
{
    struct kir *k = m->k;
    struct symtab *st = m->g->sym;
    const value_id out = n->out.v[0];
    const sym places = graph_value(m->g, out)->shape.dim[0], part = sym_max(st, sym_const(st, LEAST_PART), sym_cdiv(st, places, sym_const(st, PARTS)));
    sym size[MAX_RANK];
    const i64 n_sizes = op_get_syms(m->g, n, "sizes", size, MAX_RANK);
    const kval zero = kir_int(k, 0), block = kir_grid(k, emit_size(m, sym_cdiv(st, places, part)));
    const kval from = kir_bin(k, KI_MUL, block, emit_size(m, part)), to = kir_min(k, kir_add(k, from, emit_size(m, part)), emit_size(m, places));
    kval place = kir_loop(k, KL_SERIAL, from, to, 1), tuple[2];
    emit_store(m, out, &place, kir_int(k, -1));
    kir_end(k);
    tuple[0] = kir_loop(k, KL_SERIAL, zero, emit_size(m, op_in_shape(m->g, n, 0)->dim[0]), 1);
    place = zero;
    for (i64 a = 0; a < n_sizes; a++) {
        tuple[1] = kir_int(k, a);
        place = kir_add(k, kir_bin(k, KI_MUL, place, emit_size(m, size[a])), emit_index(m, n->in.v[0], tuple, size[a]));
    }
    kir_if(k, kir_and(k, kir_bin(k, KI_LE, from, place), kir_lt(k, place, to)));
    emit_store(m, out, &place, tuple[0]);
    for (u32 i = 0; i < 3; i++) kir_end(k);
}

/* Replace */

struct replaced {
    u32 axis, n_axes; /* of the data, that the map has */
    u32 rank;         /* of the data */
};

static bool read_replaced(const struct graph *g, const struct node *nd, struct replaced *p)
{
    const i64 axis = attr_int(nd, "axis", 0);
    *p = (struct replaced){.axis = (u32)axis, .n_axes = op_in_shape(g, nd, 1)->rank, .rank = op_in_shape(g, nd, 0)->rank};
    return axis >= 0 && p->n_axes >= 1 && axis + p->n_axes <= p->rank && op_in_shape(g, nd, 2)->rank == p->rank - p->n_axes + 1;
}

/* The axis of the updates that belongs to an axis of the data beside those of the map. */
static u32 update_axis(const struct replaced *p, u32 a) { return a < p->axis ? a : a - p->n_axes + 1; }

static bool is_mapped(const struct replaced *p, u32 a) { return a >= p->axis && a < p->axis + p->n_axes; }

static bool replace_infer(struct graph *g, node_id n, struct err *e)
{
    const struct node *nd = graph_node(g, n);
    const struct shape s = *op_in_shape(g, nd, 0), map = *op_in_shape(g, nd, 1), u = *op_in_shape(g, nd, 2);
    const enum dtype t = op_in_dtype(g, nd, 0);
    struct replaced p;
    if (!read_replaced(g, nd, &p)) return op_invalid(e, g, n, "map, updates or 'axis' do not fit the data");
    if (!dtype_is_int(op_in_dtype(g, nd, 1)) || op_in_dtype(g, nd, 2) != t) return op_invalid(e, g, n, "the map must be of integers, and updates of type %s", dtype_name(t));
    for (u32 a = 0; a < p.rank; a++) {
        const sym other = is_mapped(&p, a) ? map.dim[a - p.axis] : u.dim[update_axis(&p, a)];
        if (!op_require_equal(g, n, s.dim[a], other, e, "axis %u of data and of %s", a, is_mapped(&p, a) ? "map" : "updates")) return false;
    }
    op_set_out(g, n, 0, t, &s);
    return true;
}

static bool replace_eval(const struct op_eval *v, struct err *e)
{
    const struct tensor *data = v->in[0], *map = v->in[1], *u = v->in[2];
    struct tensor *out = v->out[0];
    const i64 bytes = (i64)dtype_size(out->dtype), n = tensor_count(out);
    i64 idx[MAX_RANK] = {0}, from[MAX_RANK];
    struct replaced p;
    read_replaced(v->g, v->n, &p);
    for (i64 i = 0; i < n; i++, op_next(out->rank, out->dim, idx)) {
        const i64 t = elem_i64(map->dtype, map->data, op_flat(map->rank, map->dim, idx + p.axis));
        const bool is_new = t >= 0 && u->dim[p.axis] > 0;
        for (u32 a = 0; a < p.rank; a++)
            if (!is_mapped(&p, a)) from[update_axis(&p, a)] = idx[a];
        from[p.axis] = i64_min(t, u->dim[p.axis] - 1);
        memcpy((char *)out->data + i * bytes, is_new ? (const char *)u->data + op_flat(u->rank, u->dim, from) * bytes : (const char *)data->data + i * bytes, (size_t)bytes);
    }
    return true;
}

static kval replace_lower(struct emit *m, const struct node *n, u32 out, const kval *idx)
{
    struct kir *k = m->k;
    kval from[MAX_RANK];
    struct replaced p;
    read_replaced(m->g, n, &p);
    for (u32 a = 0; a < p.rank; a++)
        if (!is_mapped(&p, a)) from[update_axis(&p, a)] = idx[a];
    const kval number = kir_cast(k, DT_I64, emit_value(m, n->in.v[1], idx + p.axis)), is_new = kir_bin(k, KI_LE, kir_int(k, 0), number);
    from[p.axis] = emit_clamp(m, number, op_in_shape(m->g, n, 2)->dim[p.axis]);
    const kval old = emit_value(m, n->in.v[0], idx), new = emit_clamped(m, n->in.v[2], from, 1u << p.axis);
    return kir_select(k, is_new, new, old);
}

/* Random instances */

static void random_map(const struct op *self, struct graph *g, struct rng *r)
{
    const u32 n_sizes = (u32)rng_range(r, 1, 3);
    const i64 dim[2] = {rng_range(r, 0, 6), n_sizes};
    const enum dtype type = rng_range(r, 0, 1) ? DT_I64 : DT_I32;
    const bool is_long = !rng_range(r, 0, 3);
    sym size[3];
    struct tensor *t = tensor_new(g->arena, type, 2, dim);
    for (u32 a = 0; a < n_sizes; a++) {
        const i64 s = a == 0 && is_long ? rng_range(r, 250, 700) : rng_range(r, 1, 6);
        size[a] = sym_const(g->sym, s);
        for (i64 i = 0; i < dim[0]; i++) elem_set_i64(type, t->data, i * n_sizes + a, rng_range(r, -s - 2, s + 1));
    }
    value_id in = graph_add_const(g, S("indices"), t);
    op_set_syms(g, random_node(g, self, 1, &in, 1), "sizes", size, n_sizes);
}

static void random_replace(const struct op *self, struct graph *g, struct rng *r)
{
    static const enum dtype types[] = {DT_F32, DT_F32, DT_F16, DT_I64, DT_BOOL, DT_F8E5M2};
    const enum dtype type = types[rng_range(r, 0, countof(types) - 1)];
    const u32 rank = (u32)rng_range(r, 1, 4), axis = (u32)rng_range(r, 0, rank - 1), n_axes = (u32)rng_range(r, 1, rank - axis);
    const i64 count = rng_range(r, 0, 4);
    i64 dim[4], updates[4] = {0};
    value_id in[3];
    for (u32 a = 0; a < rank; a++) dim[a] = rng_range(r, 1, a + 1 == rank ? 40 : 6);
    for (u32 a = 0; a < axis; a++) updates[a] = dim[a];
    updates[axis] = count;
    for (u32 a = axis + n_axes; a < rank; a++) updates[a - n_axes + 1] = dim[a];
    struct tensor *map = tensor_new(g->arena, DT_I64, n_axes, dim + axis);
    for (i64 i = 0; i < tensor_count(map); i++) elem_set_i64(DT_I64, map->data, i, rng_range(r, -1, count - 1));
    random_input(g, "data", type, rank, dim, &in[0]);
    in[1] = graph_add_const(g, S("map"), map);
    random_input(g, "updates", type, rank - n_axes + 1, updates, &in[2]);
    attr_set_int(g, random_node(g, self, 3, in, 1), "axis", axis);
}

static const struct op ops[] = {
    {.name = "quern::ScatterMap", .attributes = "sizes:strings", .props = OP_HEAVY | OP_WHOLE,
     .min_in = 1, .max_in = 1, .min_out = 1, .max_out = 1, .infer = map_infer, .eval = map_eval, .whole = map_whole, .random = random_map},
    {.name = "quern::Replace", .attributes = "axis:int", .props = OP_VIEW,
     .min_in = 3, .max_in = 3, .min_out = 1, .max_out = 1, .infer = replace_infer, .eval = replace_eval, .lower = replace_lower, .random = random_replace},
};

const struct op_family op_scatter_map = {ops, countof(ops)};
