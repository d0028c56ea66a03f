// SPDX-License-Identifier: Apache-2.0
//
// quern::ScatterRows(data, slots, rows): data with some of its rows replaced, as new keys in pages of a cache. Dimensions:
//
//   data (a.., e..)   slots (t)   rows (t, e..)   with as many axes a as the attribute "axes" says
//
// A slot is the number of a row of data, by its axes a in row-major order; of several rows with one slot the last one counts, and a slot that does not exist
// takes none. Where result and data are one memory (struct value, shares), a kernel writes the new rows alone, else it copies the data first (op.base). Grid
// iterations have parts of rows, so that the order of rows with one slot is kept.
#include "op/op.h"

#include <string.h>

enum { IN_DATA, IN_SLOTS, IN_ROWS };

static u32 axes_of(const struct node *nd) { return (u32)attr_int(nd, "axes", 1); }

static bool infer(struct graph *g, node_id n, struct err *e)
{
    const struct node *nd = graph_node(g, n);
    const struct shape s = *op_in_shape(g, nd, IN_DATA), slots = *op_in_shape(g, nd, IN_SLOTS), rows = *op_in_shape(g, nd, IN_ROWS);
    const i64 axes = attr_int(nd, "axes", 1);
    if (axes < 1 || axes >= (i64)s.rank) return op_invalid(e, g, n, "attribute 'axes' %lld with data of rank %u", (long long)axes, s.rank);
    if (slots.rank != 1 || !dtype_is_int(op_in_dtype(g, nd, IN_SLOTS))) return op_invalid(e, g, n, "slots (input %u) must be a vector of integers", IN_SLOTS);
    if (op_in_dtype(g, nd, IN_ROWS) != op_in_dtype(g, nd, IN_DATA) || rows.rank != s.rank - (u32)axes + 1)
        return op_invalid(e, g, n, "rows (input %u) of type %s and rank %u for data of type %s and rank %u", IN_ROWS, dtype_name(op_in_dtype(g, nd, IN_ROWS)), rows.rank,
                          dtype_name(op_in_dtype(g, nd, IN_DATA)), s.rank);
    if (!op_require_equal(g, n, rows.dim[0], slots.dim[0], e, "the numbers of rows and of slots")) return false;
    for (u32 i = 1; i < rows.rank; i++)
        if (!op_require_equal(g, n, rows.dim[i], s.dim[(u32)axes + i - 1], e, "axis %u of rows and axis %u of data", i, (u32)axes + i - 1)) return false;
    op_set_out(g, n, 0, op_in_dtype(g, nd, IN_DATA), &s);
    return true;
}

static bool eval(const struct op_eval *v, struct err *e)
{
    const struct tensor *slots = v->in[IN_SLOTS], *rows = v->in[IN_ROWS];
    struct tensor *y = v->out[0];
    const i64 count = i64_product(axes_of(v->n), y->dim), t = slots->dim[0], bytes = t ? tensor_bytes(rows) / t : 0;
    memcpy(y->data, v->in[IN_DATA]->data, (size_t)tensor_bytes(y));
    for (i64 i = 0; i < t; i++) {
        i64 slot = elem_i64(slots->dtype, slots->data, i);
        if (slot >= 0 && slot < count) memcpy((char *)y->data + slot * bytes, (const char *)rows->data + i * bytes, (size_t)bytes);
    }
    return true;
}

static void whole(struct emit *m, const struct node *n)
{
    struct kir *k = m->k;
    struct symtab *st = m->g->sym;
    const struct shape *s = op_in_shape(m->g, n, IN_DATA);
    const u32 axes = axes_of(n), last = s->rank - 1;
    bool inside[MAX_RANK] = {0};
    kval idx[MAX_RANK], from[MAX_RANK], zero = kir_int(k, 0);
    sym count = sym_const(st, 1);
    for (u32 a = 0; a < axes; a++) inside[a] = true, count = sym_mul(st, count, s->dim[a]);
    inside[last] = true;
    emit_slices(m, s, inside, idx);
    from[0] = kir_loop(k, KL_SERIAL, zero, emit_size(m, op_in_shape(m->g, n, IN_SLOTS)->dim[0]), 1);
    kval slot = kir_cast(k, DT_I64, emit_value(m, n->in.v[IN_SLOTS], from));
    kir_if(k, kir_and(k, kir_bin(k, KI_LE, zero, slot), kir_lt(k, slot, emit_size(m, count))));
    for (u32 a = axes; a-- > 0;) {
        kval size = emit_size(m, s->dim[a]);
        idx[a] = a ? kir_mod(k, slot, size) : slot;
        if (a) slot = kir_div(k, slot, size);
    }
    idx[last] = kir_loop(k, KL_SERIAL, zero, emit_size(m, s->dim[last]), 1);
    for (u32 a = axes; a <= last; a++) from[a - axes + 1] = idx[a];
    emit_store(m, n->out.v[0], idx, emit_value(m, n->in.v[IN_ROWS], from));
    for (u32 i = 0; i < 4; i++) kir_end(k);
}

static bool updates(const struct graph *g, const struct node *n, u32 k, u32 *in)
{
    *in = IN_DATA;
    return k == 0;
}

static void random_rows(const struct op *self, struct graph *g, struct rng *r)
{
    static const enum dtype types[] = {DT_F32, DT_F32, DT_I32, DT_F8E5M2};
    const enum dtype type = types[rng_range(r, 0, countof(types) - 1)];
    u32 axes = (u32)rng_range(r, 1, 2), rank = axes + (u32)rng_range(r, 1, 2);
    i64 dim[MAX_RANK], rows[MAX_RANK] = {rng_range(r, 0, 5)}, slot[8], count = 1;
    value_id in[3];
    for (u32 a = 0; a < rank; a++) dim[a] = rng_range(r, 1, 6);
    for (u32 a = 0; a < axes; a++) count *= dim[a];
    for (u32 a = axes; a < rank; a++) rows[a - axes + 1] = dim[a];
    for (i64 i = 0; i < rows[0]; i++) slot[i] = rng_range(r, -1, count);
    random_input(g, "data", type, rank, dim, &in[IN_DATA]);
    in[IN_SLOTS] = op_const_i(g, DT_I64, slot, rows[0]);
    random_input(g, "rows", type, rank - axes + 1, rows, &in[IN_ROWS]);
    attr_set_int(g, random_node(g, self, 3, in, 1), "axes", axes);
}

static const struct op ops[] = {
    {.name = "quern::ScatterRows", .attributes = "axes:int", .props = OP_HEAVY | OP_WHOLE | OP_SMALL,
     .min_in = 3, .max_in = 3, .min_out = 1, .max_out = 1, .infer = infer, .eval = eval,
     .whole = whole, .base = updates, .updates = updates, .random = random_rows},
};

const struct op_family op_scatter_rows = {ops, countof(ops)};
