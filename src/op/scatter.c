// SPDX-License-Identifier: Apache-2.0
//
// ScatterElements (and its old name Scatter) and ScatterND: a copy of the data with updates written
// or combined at indices that come from data, in row-major order of the updates, so that duplicates
// have one defined result. Constant indices outside the axis are refused, others are clamped.
//
// Kernels emit whole: the data is copied first (op.base); then each grid iteration applies all updates, in order, to its piece
// of a slice of the data that no index crosses: some neighbours on the last axis. Writes of whole slices without a reduction
// become views before (pass/scatter.c).
#include "op/op.h"

#include <string.h>

enum reduction { NONE, ADD, MUL, MIN, MAX, N_REDUCTIONS };

static const char *const names[N_REDUCTIONS] = {
    [NONE] = "none", [ADD] = "add", [MUL] = "mul", [MIN] = "min", [MAX] = "max",
};

static bool read_reduction(const struct node *n, enum reduction *r)
{
    struct str s = attr_str(n, "reduction", "none");
    for (u32 k = 0; k < N_REDUCTIONS; k++)
        if (str_is(s, names[k])) {
            *r = (enum reduction)k;
            return true;
        }
    return false;
}

/* What both operators have in common: index i of the updates leads to an index of the data. */
struct scatter {
    bool nd; /* ScatterND */
    enum reduction reduction;
    u32 axis;     /* ScatterElements */
    u32 rank;     /* of the data */
    u32 n_tuples; /* ScatterND: leading axes of the updates that choose a tuple */
    u32 n_tuple;  /* ScatterND: axes a tuple names */
};

static bool read_scatter(const struct graph *g, const struct node *n, struct scatter *s)
{
    const struct shape *x = &graph_value(g, n->in.v[0])->shape,
                       *index = &graph_value(g, n->in.v[1])->shape;
    i64 tuple;
    *s = (struct scatter){.nd = str_is(n->op, "ScatterND"), .rank = x->rank};
    if (!read_reduction(n, &s->reduction)) return false;
    if (!s->nd) return index->rank == x->rank && op_axis(attr_int(n, "axis", 0), x->rank, &s->axis);
    if (index->rank == 0 || !sym_is_const(g->sym, index->dim[index->rank - 1], &tuple) ||
        tuple < 1 || tuple > x->rank)
        return false;
    s->n_tuples = index->rank - 1;
    s->n_tuple = (u32)tuple;
    return true;
}

/* The updates' sizes that follow from data and indices. */
static bool updates_fit(struct graph *g, const struct node *n, const struct scatter *s)
{
    const struct shape *x = &graph_value(g, n->in.v[0])->shape,
                       *index = &graph_value(g, n->in.v[1])->shape;
    const struct shape *u = &graph_value(g, n->in.v[2])->shape;
    if (!s->nd) {
        for (u32 a = 0; a < s->rank; a++) {
            if (a != s->axis && !op_size_reaches(g, x->dim[a], index->dim[a])) return false;
            if (index->rank != u->rank || !op_sizes_agree(g, index->dim[a], u->dim[a])) return false;
        }
        return true;
    }
    if (u->rank != s->n_tuples + s->rank - s->n_tuple) return false;
    for (u32 a = 0; a < u->rank; a++)
        if (!op_sizes_agree(g, u->dim[a], a < s->n_tuples ? index->dim[a] : x->dim[a - s->n_tuples + s->n_tuple]))
            return false;
    return true;
}

static bool indices_ok(struct graph *g, node_id n, const struct scatter *s, struct err *e)
{
    const struct node *nd = graph_node(g, n);
    const struct value *x = graph_value(g, nd->in.v[0]), *index = graph_value(g, nd->in.v[1]);
    i64 d;
    if (!dtype_is_int(index->dtype))
        return op_invalid(e, g, n, "indices of type %s", dtype_name(index->dtype));
    for (i64 i = 0; index->data && i < tensor_count(index->data); i++) {
        i64 at = elem_i64(index->dtype, index->data->data, i);
        if (sym_is_const(g->sym, x->shape.dim[s->nd ? i % s->n_tuple : s->axis], &d) &&
            (at < -d || at >= d))
            return op_invalid(e, g, n, "index %lld with size %lld", (long long)at, (long long)d);
    }
    return true;
}

static bool infer(struct graph *g, node_id n, struct err *e)
{
    const struct node *nd = graph_node(g, n);
    const struct value *x = graph_value(g, nd->in.v[0]);
    struct scatter s;
    if (!read_scatter(g, nd, &s))
        return op_invalid(e, g, n, "indices, 'axis' or 'reduction' do not fit the data");
    if (!updates_fit(g, nd, &s) || graph_value(g, nd->in.v[2])->dtype != x->dtype)
        return op_invalid(e, g, n, "updates do not fit data and indices");
    if (!indices_ok(g, n, &s, e)) return false;
    op_set_out(g, n, 0, x->dtype, &x->shape);
    return true;
}

/* Scatter is the name of ScatterElements before opset 11. */
static bool rename_expand(struct graph *g, node_id n, struct err *e)
{
    i64 axis = attr_int(graph_node(g, n), "axis", 0);
    attr_set_int(g, op_replace(g, n, "ScatterElements", 3), "axis", axis);
    return true;
}

/* Evaluation. */

static double combine_f(enum reduction r, double a, double b)
{
    switch (r) {
    case NONE: return b;
    case ADD: return a + b;
    case MUL: return a * b;
    case MIN: return a < b ? a : b;
    case MAX: return a > b ? a : b;
    case N_REDUCTIONS: break;
    }
    unreachable();
}

static i64 combine_i(enum reduction r, i64 a, i64 b, bool is_unsigned)
{
    bool less = is_unsigned ? (u64)a < (u64)b : a < b;
    switch (r) {
    case NONE: return b;
    case ADD: return (i64)((u64)a + (u64)b);
    case MUL: return (i64)((u64)a * (u64)b);
    case MIN: return less ? a : b;
    case MAX: return less ? b : a;
    case N_REDUCTIONS: break;
    }
    unreachable();
}

/* A sum of truth values is any of them, a product all. */
static enum reduction of_truths(enum reduction r) { return r == ADD ? MAX : r == MUL ? MIN : r; }

static void update(const struct tensor *out, i64 at, const struct tensor *u, i64 from,
                   enum reduction r)
{
    enum dtype t = out->dtype;
    if (dtype_is_float(t)) {
        elem_set_f64(t, out->data, at,
                     combine_f(r, elem_f64(t, out->data, at), elem_f64(t, u->data, from)));
        return;
    }
    if (t == DT_BOOL) r = of_truths(r);
    i64 v = combine_i(r, elem_i64(t, out->data, at), elem_i64(t, u->data, from),
                      dtype_kind(t) == DK_UINT);
    elem_set_i64(t, out->data, at, v);
}

static i64 target(const struct scatter *s, const struct op_eval *v, const i64 *idx)
{
    const struct tensor *x = v->in[0], *index = v->in[1];
    i64 at[MAX_RANK], tuple[MAX_RANK + 1];
    if (!s->nd) {
        for (u32 a = 0; a < s->rank; a++) at[a] = idx[a];
        at[s->axis] =
            op_index(elem_i64(index->dtype, index->data, op_flat(index->rank, index->dim, idx)),
                     x->dim[s->axis]);
        return op_flat(x->rank, x->dim, at);
    }
    for (u32 a = 0; a < s->n_tuples; a++) tuple[a] = idx[a];
    for (u32 a = 0; a < s->rank; a++) {
        tuple[s->n_tuples] = a;
        at[a] = a >= s->n_tuple ? idx[s->n_tuples + a - s->n_tuple]
                                : op_index(elem_i64(index->dtype, index->data,
                                                    op_flat(index->rank, index->dim, tuple)),
                                           x->dim[a]);
    }
    return op_flat(x->rank, x->dim, at);
}

static bool eval(const struct op_eval *v, struct err *e)
{
    const struct tensor *u = v->in[2];
    struct tensor *out = v->out[0];
    struct scatter s;
    bool ok = read_scatter(v->g, v->n, &s);
    i64 idx[MAX_RANK] = {0}, n = tensor_count(u);
    assert(ok), (void)ok;
    memcpy(out->data, v->in[0]->data, (size_t)tensor_bytes(out));
    if (tensor_count(out) == 0) return true;
    for (i64 i = 0; i < n; i++, op_next(u->rank, u->dim, idx))
        update(out, target(&s, v, idx), u, i, s.reduction);
    return true;
}

/* Kernels. */

static kval emit_reduction(struct emit *m, enum reduction r, kval a, kval b)
{
    if (kir_dtype(m->k, b) == DT_BOOL && r != NONE) return kir_bin(m->k, of_truths(r) == MAX ? KI_OR : KI_AND, a, b);
    switch (r) {
    case NONE: return b;
    case ADD: return kir_bin(m->k, KI_ADD, a, b);
    case MUL: return kir_bin(m->k, KI_MUL, a, b);
    case MIN: return kir_select(m->k, kir_bin(m->k, KI_LT, a, b), a, b);
    case MAX: return kir_select(m->k, kir_bin(m->k, KI_LT, b, a), a, b);
    case N_REDUCTIONS: break;
    }
    unreachable();
}

/* Combines the update at `from` into the output at `to`. */
static void emit_update(struct emit *m, const struct node *n, const struct scatter *s,
                        const kval *to, const kval *from)
{
    value_id out = n->out.v[0];
    kval old = 0, u = emit_value(m, n->in.v[2], from);
    if (s->reduction != NONE) {
        old = kir_load(m->k, m->out[out], emit_offset(m, out, to));
        old = emit_widen(m, graph_value(m->g, out)->dtype, old);
    }
    emit_store(m, out, to, emit_reduction(m, s->reduction, old, u));
}

/* Opens a loop for every axis of s from..to-1; returns their indices in idx. */
static void open_loops(struct emit *m, const struct shape *s, u32 from, u32 to, kval *idx)
{
    for (u32 a = from; a < to; a++)
        idx[a] = kir_loop(m->k, KL_SERIAL, kir_int(m->k, 0), emit_size(m, s->dim[a]), 1);
}

static void close(struct emit *m, u32 n)
{
    while (n--) kir_end(m->k);
}

/* An index into an empty axis cannot be clamped: if data may have no elements along these axes, the
   following code is conditional. 1: kir_if was opened. */
static u32 open_if_any(struct emit *m, const struct shape *x, u32 from, u32 to)
{
    kval any = 0;
    i64 least;
    for (u32 a = from; a < to; a++) {
        if (sym_lower_bound(m->g->sym, x->dim[a], &least) && least > 0) continue;
        kval here = kir_bin(m->k, KI_LT, kir_int(m->k, 0), emit_size(m, x->dim[a]));
        any = any ? kir_bin(m->k, KI_AND, any, here) : here;
    }
    if (any) kir_if(m->k, any);
    return any != 0;
}

/* Pieces of slices along the axis. Indices may cover fewer slices than the data has. */
static void whole_elements(struct emit *m, const struct node *n, const struct scatter *s)
{
    const struct shape *x = &graph_value(m->g, n->in.v[0])->shape, *index = &graph_value(m->g, n->in.v[1])->shape;
    bool inside[MAX_RANK] = {0};
    kval slice[MAX_RANK] = {0}, to[MAX_RANK], covered = 0;
    inside[s->axis] = true;
    struct emit_piece piece = emit_pieces(m, x, inside, slice);
    for (u32 a = 0; a < s->rank; a++) {
        if (a == s->axis || x->dim[a] == index->dim[a]) continue;
        if (piece.to && a == s->rank - 1) piece.to = kir_min(m->k, piece.to, emit_size(m, index->dim[a]));
        else covered = kir_and(m->k, covered, kir_lt(m->k, slice[a], emit_size(m, index->dim[a])));
    }
    if (covered) kir_if(m->k, covered);
    u32 n_open = open_if_any(m, x, s->axis, s->axis + 1) + (covered != 0);
    open_loops(m, index, s->axis, s->axis + 1, slice);
    n_open += emit_open_piece(m, &piece, &slice[s->rank - 1]);
    for (u32 a = 0; a < s->rank; a++) to[a] = slice[a];
    to[s->axis] = emit_index(m, n->in.v[1], slice, x->dim[s->axis]);
    emit_update(m, n, s, to, slice);
    close(m, n_open + 2);
}

/* Pieces of slices; a slice is addressed by one tuple. */
static void whole_nd(struct emit *m, const struct node *n, const struct scatter *s)
{
    const struct shape *x = &graph_value(m->g, n->in.v[0])->shape, *index = &graph_value(m->g, n->in.v[1])->shape;
    bool inside[MAX_RANK] = {0};
    kval slice[MAX_RANK] = {0}, tuple[MAX_RANK + 1], from[MAX_RANK];
    for (u32 a = 0; a < s->n_tuple; a++) inside[a] = true;
    const struct emit_piece piece = emit_pieces(m, x, inside, slice);
    u32 n_open = open_if_any(m, x, 0, s->n_tuple);
    open_loops(m, index, 0, s->n_tuples, tuple);
    for (u32 a = 0; a < s->n_tuples; a++) from[a] = tuple[a];
    for (u32 a = 0; a < s->n_tuple; a++) {
        tuple[s->n_tuples] = kir_int(m->k, a);
        slice[a] = emit_index(m, n->in.v[1], tuple, x->dim[a]);
    }
    n_open += emit_open_piece(m, &piece, &slice[s->rank - 1]);
    for (u32 a = s->n_tuple; a < s->rank; a++) from[s->n_tuples + a - s->n_tuple] = slice[a];
    emit_update(m, n, s, slice, from);
    close(m, n_open + s->n_tuples + 1);
}

static bool base(const struct graph *g, const struct node *n, u32 k, u32 *in)
{
    *in = 0;
    return true;
}

static bool is_empty(const struct graph *g, value_id v)
{
    i64 c;
    return sym_is_const(g->sym, shape_count(g->sym, &graph_value(g, v)->shape), &c) && c == 0;
}

static void whole(struct emit *m, const struct node *n)
{
    struct scatter s;
    bool ok = read_scatter(m->g, n, &s);
    assert(ok), (void)ok;
    if (is_empty(m->g, n->in.v[0])) {
        kir_grid(m->k, kir_int(m->k, 0));
        kir_end(m->k);
    } else if (s.nd) {
        whole_nd(m, n, &s);
    } else {
        whole_elements(m, n, &s);
    }
}

/* Random instances: indices are constants. */

static void random_scatter(const struct op *self, struct graph *g, struct rng *r)
{
    u32 rank = (u32)rng_range(r, 1, 4), axis = (u32)rng_range(r, 0, rank - 1);
    bool nd = str_is(S("ScatterND"), self->name);
    enum dtype type = rng_range(r, 0, 3) ? DT_F32 : DT_I32;
    struct tensor x = {.rank = rank}, index = {0}, u = {0};
    value_id in[3];
    i64 least = 6;
    for (u32 a = 0; a < rank; a++) {
        x.dim[a] = rng_range(r, 1, 6);
        index.dim[a] = rng_range(r, 1, a == axis ? 7 : x.dim[a]);
        least = i64_min(least, x.dim[a]);
    }
    index.rank = rank;
    u = index;
    if (nd) {
        i64 tuple = rng_range(r, 1, rank);
        index.rank = (u32)rng_range(r, 1, 3);
        index.dim[0] = rng_range(r, 1, 4), index.dim[1] = 2;
        u = index;
        u.rank = index.rank - 1;
        index.dim[index.rank - 1] = tuple;
        for (i64 a = tuple; a < rank; a++) u.dim[u.rank++] = x.dim[a];
    }
    random_input(g, "x", type, rank, x.dim, &in[0]);
    i64 dim = nd ? least : x.dim[axis];
    struct tensor *t = tensor_new(g->arena, DT_I64, index.rank, index.dim);
    for (i64 i = 0; i < tensor_count(t); i++)
        elem_set_i64(DT_I64, t->data, i, rng_range(r, -dim, dim - 1));
    in[1] = graph_add_const(g, S("indices"), t);
    random_input(g, "updates", type, u.rank, u.dim, &in[2]);
    node_id n = random_node(g, self, 3, in, 1);
    if (!nd) attr_set_int(g, n, "axis", axis);
    if (!str_is(S("Scatter"), self->name))
        attr_set_str(g, n, "reduction", str_of(names[rng_range(r, 0, N_REDUCTIONS - 1)]));
}

static const struct op ops[] = {
    {.name = "Scatter",
     .min_in = 3,
     .max_in = 3,
     .min_out = 1,
     .max_out = 1,
     .infer = infer,
     .expand = rename_expand,
     .random = random_scatter},
    {.name = "ScatterElements",
     .props = OP_HEAVY | OP_WHOLE,
     .min_in = 3,
     .max_in = 3,
     .min_out = 1,
     .max_out = 1,
     .infer = infer,
     .eval = eval,
     .whole = whole,
     .base = base,
     .random = random_scatter},
    {.name = "ScatterND",
     .props = OP_HEAVY | OP_WHOLE,
     .min_in = 3,
     .max_in = 3,
     .min_out = 1,
     .max_out = 1,
     .infer = infer,
     .eval = eval,
     .whole = whole,
     .base = base,
     .random = random_scatter},
};

const struct op_family op_scatter = {ops, countof(ops)};
