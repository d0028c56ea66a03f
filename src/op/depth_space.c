// SPDX-License-Identifier: Apache-2.0
//
// DepthToSpace and SpaceToDepth: blocks of pixels to channels and back; tensors (n, c, h, w), block
// size b. In the order DCR the block's position is the outer part of the deep channel, so a ramp
// over channels stays one.
#include "op/op.h"

enum { N, C, H, W };

struct block {
    i64 b;
    bool crd;  /* channel = (c, by, bx), otherwise (by, bx, c) */
    bool deep; /* the output is the deep one: SpaceToDepth */
    i64 c;     /* channels of the wide side */
};

static bool read_block(const struct node *n, struct block *k)
{
    struct str mode = attr_str(n, "mode", "DCR");
    *k = (struct block){.b = attr_int(n, "blocksize", 0), .deep = str_is(n->op, "SpaceToDepth")};
    k->crd = str_is(mode, "CRD");
    return k->b >= 1 && k->b < 65536 && (k->crd || str_is(mode, "DCR"));
}

/* by, bx: position within the block, c: wide channel. */
static i64 deep_channel(const struct block *k, i64 by, i64 bx, i64 c)
{
    return k->crd ? (c * k->b + by) * k->b + bx : (by * k->b + bx) * k->c + c;
}

static i64 map(const void *par, const i64 *out, i64 *in)
{
    const struct block *k = par;
    in[N] = out[N];
    if (!k->deep) {
        in[C] = deep_channel(k, out[H] % k->b, out[W] % k->b, out[C]);
        in[H] = out[H] / k->b;
        in[W] = out[W] / k->b;
        return 0;
    }
    i64 area = k->b * k->b, at = k->crd ? out[C] % area : out[C] / k->c;
    in[C] = k->crd ? out[C] / area : out[C] % k->c;
    in[H] = out[H] * k->b + at / k->b;
    in[W] = out[W] * k->b + at % k->b;
    return 0;
}

static bool divide(struct graph *g, node_id n, u32 axis, sym *s, i64 by, struct err *e)
{
    if (!op_require_multiple(g, n, *s, by, e, "axis %u", axis)) return false;
    *s = sym_div(g->sym, sym_current(g->sym, *s), sym_const(g->sym, by));
    return true;
}

static bool infer(struct graph *g, node_id n, struct err *e)
{
    const struct value *in = graph_value(g, graph_node(g, n)->in.v[0]);
    struct shape to = in->shape;
    struct block k;
    if (!read_block(graph_node(g, n), &k))
        return op_invalid(e, g, n, "bad attribute 'blocksize' or 'mode'");
    if (to.rank != 4) return op_invalid(e, g, n, "rank %u, not 4", to.rank);
    sym b = sym_const(g->sym, k.b), area = sym_const(g->sym, k.b * k.b);
    bool ok = k.deep ? divide(g, n, H, &to.dim[H], k.b, e) && divide(g, n, W, &to.dim[W], k.b, e)
                     : divide(g, n, C, &to.dim[C], k.b * k.b, e);
    if (!ok) return false;
    if (k.deep) {
        to.dim[C] = sym_mul(g->sym, to.dim[C], area);
    } else {
        to.dim[H] = sym_mul(g->sym, to.dim[H], b);
        to.dim[W] = sym_mul(g->sym, to.dim[W], b);
    }
    op_set_out(g, n, 0, in->dtype, &to);
    return true;
}

static bool eval(const struct op_eval *v, struct err *e)
{
    struct block k;
    bool ok = read_block(v->n, &k);
    assert(ok), (void)ok;
    k.c = k.deep ? v->in[0]->dim[C] : v->out[0]->dim[C];
    return op_map_eval(v, map, &k);
}

static void lower_deep(struct emit *m, const struct block *k, const struct shape *in, kval *i)
{
    kval b = kir_int(m->k, k->b),
         c = emit_size(m, sym_max(m->g->sym, in->dim[C], sym_const(m->g->sym, 1)));
    if (k->crd) c = kir_int(m->k, k->b * k->b);
    kval outer = kir_bin(m->k, KI_DIV, i[C], c), inner = kir_bin(m->k, KI_MOD, i[C], c);
    kval at = k->crd ? inner : outer;
    i[C] = k->crd ? outer : inner;
    i[H] = kir_bin(m->k, KI_ADD, kir_bin(m->k, KI_MUL, i[H], b), kir_bin(m->k, KI_DIV, at, b));
    i[W] = kir_bin(m->k, KI_ADD, kir_bin(m->k, KI_MUL, i[W], b), kir_bin(m->k, KI_MOD, at, b));
}

static void lower_wide(struct emit *m, const struct block *k, const struct shape *out, kval *i)
{
    kval b = kir_int(m->k, k->b), c = emit_size(m, out->dim[C]);
    kval by = kir_bin(m->k, KI_MOD, i[H], b), bx = kir_bin(m->k, KI_MOD, i[W], b);
    i[H] = kir_bin(m->k, KI_DIV, i[H], b);
    i[W] = kir_bin(m->k, KI_DIV, i[W], b);
    if (k->crd) {
        kval at = kir_bin(m->k, KI_ADD, kir_bin(m->k, KI_MUL, i[C], b), by);
        i[C] = kir_bin(m->k, KI_ADD, kir_bin(m->k, KI_MUL, at, b), bx);
        return;
    }
    kval at = kir_bin(m->k, KI_ADD, kir_bin(m->k, KI_MUL, by, b), bx);
    i[C] = kir_bin(m->k, KI_ADD, kir_bin(m->k, KI_MUL, at, c), i[C]);
}

static kval lower(struct emit *m, const struct node *n, u32 out, const kval *idx)
{
    struct block k;
    kval src[4] = {idx[N], idx[C], idx[H], idx[W]};
    bool ok = read_block(n, &k);
    assert(ok), (void)ok;
    if (k.deep) lower_deep(m, &k, &graph_value(m->g, n->in.v[0])->shape, src);
    else lower_wide(m, &k, &graph_value(m->g, n->out.v[0])->shape, src);
    return emit_value(m, n->in.v[0], src);
}

static void random_block(const struct op *self, struct graph *g, struct rng *r)
{
    i64 b = rng_range(r, 1, 3), dim[4];
    bool deep = str_is(S("SpaceToDepth"), self->name);
    value_id in[1];
    dim[N] = rng_range(r, 1, 2);
    dim[C] = rng_range(r, 1, 4) * (deep ? 1 : b * b);
    dim[H] = rng_range(r, 1, 4) * (deep ? b : 1);
    dim[W] = rng_range(r, 1, 4) * (deep ? b : 1);
    random_input(g, "x", DT_F32, 4, dim, &in[0]);
    node_id n = random_node(g, self, 1, in, 1);
    attr_set_int(g, n, "blocksize", b);
    if (rng_range(r, 0, 1)) attr_set_str(g, n, "mode", S("CRD"));
}

static const struct op ops[] = {
    {.name = "DepthToSpace",
     .props = OP_VIEW,
     .min_in = 1,
     .max_in = 1,
     .min_out = 1,
     .max_out = 1,
     .infer = infer,
     .eval = eval,
     .lower = lower,
     .random = random_block},
    {.name = "SpaceToDepth",
     .props = OP_VIEW,
     .min_in = 1,
     .max_in = 1,
     .min_out = 1,
     .max_out = 1,
     .infer = infer,
     .eval = eval,
     .lower = lower,
     .random = random_block},
};

const struct op_family op_depth_space = {ops, countof(ops)};
