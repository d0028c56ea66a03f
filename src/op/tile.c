// SPDX-License-Identifier: Apache-2.0
//
// Tile and Expand: repetition along axes. They become quern::Tile, which holds the symbolic number
// of repeats of every axis, and quern::Expand, which holds the symbolic target shape.
#include "op/op.h"

enum { MAX_TARGET = 64 };

/* Expand: NumPy broadcasting, also with fewer target axes than the input has. */

/* A data-dependent target size, for an axis of the input (0: it has none there): that size if the
   input has 1, otherwise the input's, which it must equal, or be 1. */
static sym made_target(struct graph *g, node_id n, sym in, sym want)
{
    struct symtab *t = g->sym;
    sym one = sym_const(t, 1);
    if (!op_is_made(g, want)) return want;
    if (!in || in == one || in == want) return op_let(g, n, want, 0);
    sym is_one = op_sym_equals(t, want, 1);
    op_must_equal(g, n, sym_add(t, want, sym_mul(t, is_one, sym_sub(t, in, one))), in);
    return in;
}

static bool read_target(struct graph *g, node_id n, struct shape *to, struct err *e)
{
    const struct node *nd = graph_node(g, n);
    sym t[MAX_TARGET];
    struct shape want = {.known = true};
    i64 rank, c;
    if (!op_data_ints(g, nd->in.v[1], t, MAX_TARGET, &rank))
        return op_unsupported(e, g, n, "the length of the target shape is only known at run time");
    if (rank > MAX_RANK) return op_unsupported(e, g, n, "rank %lld", (long long)rank);
    want.rank = (u32)rank;
    const struct shape *in = &graph_value(g, nd->in.v[0])->shape;
    for (u32 a = 0; a < want.rank; a++) {
        want.dim[a] = made_target(g, n, a + in->rank >= want.rank ? in->dim[a + in->rank - want.rank] : 0, t[a]);
        if (sym_is_const(g->sym, t[a], &c) && c < 0)
            return op_invalid(e, g, n, "target size %lld", (long long)c);
    }
    in = &graph_value(g, nd->in.v[0])->shape;
    if (!op_broadcast(g, in, &want, to))
        return op_invalid(e, g, n, "the input's shape %.*s does not fit the target shape %.*s",
                          STR_ARG(op_shape_text(g, in)), STR_ARG(op_shape_text(g, &want)));
    return true;
}

struct numbers {
    u32 rank, in_rank;
    i64 dim[MAX_RANK]; /* of the input */
};

static i64 map_expand(const void *par, const i64 *out, i64 *in)
{
    const struct numbers *p = par;
    for (u32 a = 0; a < p->in_rank; a++) in[a] = p->dim[a] == 1 ? 0 : out[p->rank - p->in_rank + a];
    return 0;
}

static i64 map_tile(const void *par, const i64 *out, i64 *in)
{
    const struct numbers *p = par;
    for (u32 a = 0; a < p->in_rank; a++) in[a] = out[a] % p->dim[a];
    return 0;
}

/* Output `to` of node n, and its content where known. */
static void set_result(struct graph *g, node_id n, const struct shape *to, op_map_fn *map)
{
    const struct value *in = graph_value(g, graph_node(g, n)->in.v[0]);
    struct numbers p = {.rank = to->rank, .in_rank = in->shape.rank};
    bool known = shape_is_static(g->sym, &in->shape, p.dim);
    op_set_out(g, n, 0, in->dtype, to);
    if (known) op_map_sdata(g, n, 0, map, &p);
}

static bool expand_infer(struct graph *g, node_id n, struct err *e)
{
    struct shape to;
    if (!read_target(g, n, &to, e)) return false;
    set_result(g, n, &to, map_expand);
    return true;
}

static bool expand_expand(struct graph *g, node_id n, struct err *e)
{
    struct shape to;
    if (!read_target(g, n, &to, e)) return false;
    node_id new = op_replace(g, n, "quern::Expand", 1);
    op_set_syms(g, new, "shape", to.dim, to.rank);
    return true;
}

static bool prim_infer(struct graph *g, node_id n, struct err *e)
{
    const struct node *nd = graph_node(g, n);
    struct shape want = {.known = true};
    i64 rank = op_get_syms(g, nd, "shape", want.dim, MAX_RANK);
    if (rank < 0) return op_invalid(e, g, n, "bad attribute 'shape'");
    want.rank = (u32)rank;
    if (!op_broadcast_to(g, &graph_value(g, nd->in.v[0])->shape, &want))
        return op_invalid(e, g, n, "the input does not fit the target shape");
    set_result(g, n, &want, map_expand);
    return true;
}

static struct numbers eval_numbers(const struct op_eval *v)
{
    struct numbers p = {.rank = v->out[0]->rank, .in_rank = v->in[0]->rank};
    for (u32 a = 0; a < p.in_rank; a++) p.dim[a] = v->in[0]->dim[a];
    return p;
}

static bool expand_eval(const struct op_eval *v, struct err *e)
{
    struct numbers p = eval_numbers(v);
    return op_map_eval(v, map_expand, &p);
}

static kval expand_lower(struct emit *m, const struct node *n, u32 out, const kval *idx)
{
    kval src[MAX_RANK];
    emit_broadcast(m, n->in.v[0], graph_value(m->g, n->out.v[0])->shape.rank, idx, src);
    return emit_value(m, n->in.v[0], src);
}

/* Tile. */

static bool tile_result(struct graph *g, node_id n, const sym *rep, struct err *e)
{
    struct shape to = graph_value(g, graph_node(g, n)->in.v[0])->shape;
    i64 c;
    for (u32 a = 0; a < to.rank; a++) {
        if (sym_is_const(g->sym, rep[a], &c) && c < 0)
            return op_invalid(e, g, n, "%lld repeats", (long long)c);
        to.dim[a] = sym_mul(g->sym, to.dim[a], rep[a]);
    }
    set_result(g, n, &to, map_tile);
    return true;
}

static bool read_repeats(struct graph *g, node_id n, sym *rep, struct err *e)
{
    const struct node *nd = graph_node(g, n);
    i64 count;
    if (!op_data_sizes(g, n, nd->in.v[1], rep, MAX_RANK, &count))
        return op_unsupported(e, g, n, "the number of repeats is only known at run time");
    if (count != graph_value(g, nd->in.v[0])->shape.rank)
        return op_invalid(e, g, n, "%lld repeats for rank %u", (long long)count,
                          graph_value(g, nd->in.v[0])->shape.rank);
    return true;
}

static bool tile_infer(struct graph *g, node_id n, struct err *e)
{
    sym rep[MAX_RANK];
    return read_repeats(g, n, rep, e) && tile_result(g, n, rep, e);
}

static bool tile_expand(struct graph *g, node_id n, struct err *e)
{
    sym rep[MAX_RANK];
    if (!read_repeats(g, n, rep, e)) return false;
    node_id new = op_replace(g, n, "quern::Tile", 1);
    op_set_syms(g, new, "repeats", rep, graph_value(g, graph_node(g, new)->in.v[0])->shape.rank);
    return true;
}

static bool tile_prim_infer(struct graph *g, node_id n, struct err *e)
{
    sym rep[MAX_RANK];
    const struct node *nd = graph_node(g, n);
    if (op_get_syms(g, nd, "repeats", rep, MAX_RANK) != graph_value(g, nd->in.v[0])->shape.rank)
        return op_invalid(e, g, n, "bad attribute 'repeats'");
    return tile_result(g, n, rep, e);
}

static bool tile_eval(const struct op_eval *v, struct err *e)
{
    struct numbers p = eval_numbers(v);
    return op_map_eval(v, map_tile, &p);
}

static kval tile_lower(struct emit *m, const struct node *n, u32 out, const kval *idx)
{
    const struct value *in = graph_value(m->g, n->in.v[0]);
    struct symtab *t = m->g->sym;
    sym rep[MAX_RANK], one = sym_const(t, 1);
    kval src[MAX_RANK];
    i64 count = op_get_syms(m->g, n, "repeats", rep, MAX_RANK), c;
    for (i64 a = 0; a < count; a++) {
        sym d = in->shape.dim[a];
        if (sym_is_const(t, d, &c) && c == 0) return emit_zero(m, in->dtype);
        src[a] = d == one        ? kir_int(m->k, 0)
                 : rep[a] == one ? idx[a]
                                 : kir_bin(m->k, KI_MOD, idx[a], emit_size(m, d));
    }
    return emit_value(m, n->in.v[0], src);
}

/* Random instances. */

static void random_expand(const struct op *self, struct graph *g, struct rng *r)
{
    u32 rank = (u32)rng_range(r, 0, 4), in_rank = (u32)rng_range(r, 0, rank), skip = rank - in_rank;
    i64 dim[4], want[4];
    value_id in[2];
    sym s[4];
    bool prim = str_is(S("quern::Expand"), self->name);
    for (u32 a = 0; a < rank; a++) {
        want[a] = rng_range(r, 1, 5);
        if (a >= skip) dim[a - skip] = rng_range(r, 0, 1) ? 1 : want[a];
        if (a >= skip && !prim && rng_range(r, 0, 3) == 0)
            want[a] = 1; /* the input's size is kept */
        s[a] = sym_const(g->sym, want[a]);
    }
    random_input(g, "x", DT_F32, in_rank, dim, &in[0]);
    if (!prim) in[1] = op_const_i(g, DT_I64, want, rank);
    node_id n = random_node(g, self, prim ? 1 : 2, in, 1);
    if (prim) op_set_syms(g, n, "shape", s, rank);
}

static void random_tile(const struct op *self, struct graph *g, struct rng *r)
{
    u32 rank = (u32)rng_range(r, 1, 4);
    i64 dim[4], rep[4];
    value_id in[2];
    sym s[4];
    bool prim = str_is(S("quern::Tile"), self->name);
    for (u32 a = 0; a < rank; a++) {
        dim[a] = rng_range(r, 1, 5);
        rep[a] = rng_range(r, 0, 9) ? rng_range(r, 1, 3) : 0;
        s[a] = sym_const(g->sym, rep[a]);
    }
    random_input(g, "x", DT_F32, rank, dim, &in[0]);
    if (!prim) in[1] = op_const_i(g, DT_I64, rep, rank);
    node_id n = random_node(g, self, prim ? 1 : 2, in, 1);
    if (prim) op_set_syms(g, n, "repeats", s, rank);
}

static const struct op ops[] = {
    {.name = "Expand",
     .props = OP_VIEW,
     .min_in = 2,
     .max_in = 2,
     .min_out = 1,
     .max_out = 1,
     .infer = expand_infer,
     .expand = expand_expand,
     .random = random_expand},
    {.name = "Tile",
     .props = OP_VIEW,
     .min_in = 2,
     .max_in = 2,
     .min_out = 1,
     .max_out = 1,
     .infer = tile_infer,
     .expand = tile_expand,
     .random = random_tile},
    {.name = "quern::Expand",
     .attributes = "shape:strings",
     .props = OP_VIEW,
     .min_in = 1,
     .max_in = 1,
     .min_out = 1,
     .max_out = 1,
     .infer = prim_infer,
     .eval = expand_eval,
     .lower = expand_lower,
     .random = random_expand},
    {.name = "quern::Tile",
     .attributes = "repeats:strings",
     .props = OP_VIEW,
     .min_in = 1,
     .max_in = 1,
     .min_out = 1,
     .max_out = 1,
     .infer = tile_prim_infer,
     .eval = tile_eval,
     .lower = tile_lower,
     .random = random_tile},
};

const struct op_family op_tile = {ops, countof(ops)};
