// SPDX-License-Identifier: Apache-2.0
//
// Transpose: permutes the axes. Lowering permutes the index, so a ramp stays a ramp on another
// axis.
#include "op/op.h"

struct perm {
    u32 rank;
    u32 axis[MAX_RANK]; /* output axis a is input axis axis[a] */
};

/* Reverses the axes without the attribute. */
static bool read_perm(const struct node *n, u32 rank, struct perm *p)
{
    const i64 *v;
    bool seen[MAX_RANK] = {0}, given = node_attr(n, "perm") != NULL;
    i64 count = attr_ints(n, "perm", &v);
    *p = (struct perm){.rank = rank};
    if (given && count != rank) return false;
    for (u32 a = 0; a < rank; a++) {
        i64 from = given ? v[a] : rank - 1 - a;
        if (from < 0 || from >= rank || seen[from]) return false;
        seen[from] = true;
        p->axis[a] = (u32)from;
    }
    return true;
}

static i64 map(const void *par, const i64 *out, i64 *in)
{
    const struct perm *p = par;
    for (u32 a = 0; a < p->rank; a++) in[p->axis[a]] = out[a];
    return 0;
}

static bool infer(struct graph *g, node_id n, struct err *e)
{
    const struct value *in = graph_value(g, graph_node(g, n)->in.v[0]);
    struct shape to = in->shape;
    struct perm p;
    if (!read_perm(graph_node(g, n), in->shape.rank, &p))
        return op_invalid(e, g, n, "attribute 'perm' is no permutation of %u axes", in->shape.rank);
    for (u32 a = 0; a < p.rank; a++) to.dim[a] = in->shape.dim[p.axis[a]];
    op_set_out(g, n, 0, in->dtype, &to);
    op_map_sdata(g, n, 0, map, &p);
    return true;
}

static bool eval(const struct op_eval *v, struct err *e)
{
    struct perm p;
    return read_perm(v->n, v->in[0]->rank, &p) && op_map_eval(v, map, &p);
}

static kval lower(struct emit *m, const struct node *n, u32 out, const kval *idx)
{
    struct perm p;
    kval src[MAX_RANK];
    bool ok = read_perm(n, graph_value(m->g, n->in.v[0])->shape.rank, &p);
    assert(ok), (void)ok;
    for (u32 a = 0; a < p.rank; a++) src[p.axis[a]] = idx[a];
    return emit_value(m, n->in.v[0], src);
}

static void random(const struct op *self, struct graph *g, struct rng *r)
{
    i64 dim[5], perm[5] = {0, 1, 2, 3, 4};
    u32 rank = (u32)rng_range(r, 0, 5);
    for (u32 a = 0; a < rank; a++) dim[a] = rng_range(r, 1, 5);
    for (u32 a = rank; a-- > 1;) {
        u32 b = (u32)rng_range(r, 0, a);
        i64 t = perm[a];
        perm[a] = perm[b];
        perm[b] = t;
    }
    value_id in[1];
    random_input(g, "x", rng_range(r, 0, 3) ? DT_F32 : DT_F16, rank, dim, &in[0]);
    node_id n = random_node(g, self, 1, in, 1);
    if (rng_range(r, 0, 3)) attr_set_ints(g, n, "perm", perm, rank);
}

static const struct op ops[] = {
    {.name = "Transpose",
     .props = OP_VIEW,
     .min_in = 1,
     .max_in = 1,
     .min_out = 1,
     .max_out = 1,
     .infer = infer,
     .eval = eval,
     .lower = lower,
     .random = random},
};

const struct op_family op_transpose = {ops, countof(ops)};
