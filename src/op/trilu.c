// SPDX-License-Identifier: Apache-2.0
//
// Trilu: keeps the upper or lower triangle of the last two axes, zero elsewhere. Becomes
// quern::Trilu, which holds the symbolic diagonal "k".
#include "op/op.h"

static bool set_result(struct graph *g, node_id n, struct err *e)
{
    const struct value *x = graph_value(g, graph_node(g, n)->in.v[0]);
    if (x->shape.rank < 2) return op_invalid(e, g, n, "rank %u", x->shape.rank);
    op_set_out(g, n, 0, x->dtype, &x->shape);
    return true;
}

static bool read_k(struct graph *g, node_id id, sym *k)
{
    const struct node *n = graph_node(g, id);
    i64 count;
    *k = sym_const(g->sym, 0);
    if (n->in.n < 2 || !n->in.v[1]) return true;
    return op_data_ints(g, n->in.v[1], k, 1, &count) && count == 1;
}

static bool infer(struct graph *g, node_id n, struct err *e)
{
    sym k;
    if (!read_k(g, n, &k)) return op_unsupported(e, g, n, "the diagonal is only known at run time");
    return set_result(g, n, e);
}

static bool expand(struct graph *g, node_id n, struct err *e)
{
    sym k;
    if (!read_k(g, n, &k)) return op_unsupported(e, g, n, "the diagonal is only known at run time");
    i64 upper = attr_int(graph_node(g, n), "upper", 1);
    node_id to = op_replace(g, n, "quern::Trilu", 1);
    op_set_syms(g, to, "k", &k, 1);
    attr_set_int(g, to, "upper", upper);
    return true;
}

static bool prim_infer(struct graph *g, node_id n, struct err *e)
{
    sym k;
    if (op_get_syms(g, graph_node(g, n), "k", &k, 1) != 1)
        return op_invalid(e, g, n, "bad attribute 'k'");
    return set_result(g, n, e);
}

struct numbers {
    u32 rank;
    bool upper;
    i64 k;
};

static i64 map(const void *par, const i64 *out, i64 *in)
{
    const struct numbers *p = par;
    for (u32 a = 0; a < p->rank; a++) in[a] = out[a];
    i64 right = out[p->rank - 1] - out[p->rank - 2]; /* of the main diagonal */
    return (p->upper ? right >= p->k : right <= p->k) ? 0 : -1;
}

static bool prim_eval(const struct op_eval *v, struct err *e)
{
    struct numbers p = {.rank = v->in[0]->rank, .upper = attr_int(v->n, "upper", 1)};
    return op_eval_syms(v, "k", &p.k, 1, e) && op_map_eval(v, map, &p);
}

static kval prim_lower(struct emit *m, const struct node *n, u32 out, const kval *idx)
{
    const struct value *x = graph_value(m->g, n->in.v[0]);
    u32 rank = x->shape.rank;
    sym k = 0;
    op_get_syms(m->g, n, "k", &k, 1);
    kval right = kir_bin(m->k, KI_SUB, idx[rank - 1], idx[rank - 2]), diagonal = emit_size(m, k);
    kval keep = attr_int(n, "upper", 1) ? kir_bin(m->k, KI_LE, diagonal, right)
                                        : kir_bin(m->k, KI_LE, right, diagonal);
    return kir_select(m->k, keep, emit_value(m, n->in.v[0], idx), emit_zero(m, x->dtype));
}

static void random_trilu(const struct op *self, struct graph *g, struct rng *r)
{
    u32 rank = (u32)rng_range(r, 2, 4), n_in = self->max_in == 2 ? (u32)rng_range(r, 1, 2) : 1;
    i64 dim[4], k = rng_range(r, -4, 4);
    value_id in[2];
    for (u32 a = 0; a < rank; a++) dim[a] = rng_range(r, 1, 5);
    random_input(g, "x", rng_range(r, 0, 3) ? DT_F32 : DT_I64, rank, dim, &in[0]);
    in[1] = n_in == 2 ? op_const_i(g, DT_I64, &k, 1) : 0;
    node_id n = random_node(g, self, n_in, in, 1);
    sym s = sym_const(g->sym, k);
    if (self->max_in == 1) op_set_syms(g, n, "k", &s, 1);
    attr_set_int(g, n, "upper", rng_range(r, 0, 1));
}

static const struct op ops[] = {
    {.name = "Trilu",
     .min_in = 1,
     .max_in = 2,
     .min_out = 1,
     .max_out = 1,
     .infer = infer,
     .expand = expand,
     .random = random_trilu},
    {.name = "quern::Trilu",
     .attributes = "k:strings upper:int",
     .props = OP_VIEW,
     .min_in = 1,
     .max_in = 1,
     .min_out = 1,
     .max_out = 1,
     .infer = prim_infer,
     .eval = prim_eval,
     .lower = prim_lower,
     .random = random_trilu},
};

const struct op_family op_trilu = {ops, countof(ops)};
