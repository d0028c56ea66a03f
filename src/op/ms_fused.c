// SPDX-License-Identifier: Apache-2.0
//
// com.microsoft: convolutions and matrix products that ONNX Runtime's optimiser has fused with adjacent operators.
// Composites that undo the fusion, because the cover selects fusions here.
//
//   FusedConv, NhwcFusedConv   activation(Conv(x, w, bias) + z); Nhwc: channels of x, z and y last
//   NhwcConv                   Conv with channels last, of the weights, too (m, k.., c)
//   FusedMatMul                alpha * A x B, the operands transposed, also their batch axes
//   FusedMatMulActivation      with an activation behind
//   FusedGemm                  activation(Gemm(a, b, c))
//   GemmFastGelu               fast Gelu of A x B + bias
#include "op/op.h"

#include <string.h>

static const char *const act_attrs[] = {"activation",      "activation_params", "activation_alpha", "activation_beta",
                                        "activation_gamma", "activation_axis",  NULL};

/* Activations with the names of their parameters in ai.onnx. */
static const struct act {
    const char *name, *par[2];
} acts[] = {
    {"Relu", {0}},       {"Tanh", {0}},       {"Sigmoid", {0}},
    {"Softplus", {0}},   {"Softsign", {0}},   {"HardSwish", {0}},
    {"Gelu", {0}},       {"LeakyRelu", {"alpha", 0}}, {"Elu", {"alpha", 0}},
    {"ThresholdedRelu", {"alpha", 0}}, {"Clip", {"min", "max"}}, {"HardSigmoid", {"alpha", "beta"}},
    {"Selu", {"alpha", "gamma"}},
};

static const struct act *find_act(const struct node *nd)
{
    struct str name = attr_str(nd, "activation", "");
    for (u32 i = 0; i < countof(acts); i++)
        if (str_is(name, acts[i].name)) return &acts[i];
    return NULL;
}

static bool check_act(const struct graph *g, node_id n, struct err *e)
{
    const struct node *nd = graph_node(g, n);
    struct str name = attr_str(nd, "activation", "");
    if (!name.n || find_act(nd)) return true;
    return op_unsupported(e, g, n, "activation '%.*s'", STR_ARG(name));
}

/* Parameter i: from the list activation_params, or from attributes of their own. */
static const double *act_param(const struct node *nd, u32 i)
{
    static const char *const own[] = {"activation_alpha", "activation_beta"};
    const struct attr *list = node_attr(nd, "activation_params"), *one = node_attr(nd, own[i]);
    if (list && list->kind == ATTR_FLOATS && i < list->n) return &list->floats[i];
    return one && one->kind == ATTR_FLOAT ? &one->f : NULL;
}

static value_id activation(struct graph *g, node_id n, value_id y, value_id out)
{
    const struct node nd = *graph_node(g, n);
    const struct act *a = find_act(&nd);
    if (!a) return out ? op_node1(g, n, "Identity", y, out) : y;
    y = op_node1(g, n, a->name, y, out);
    for (u32 i = 0; i < 2; i++) {
        const double *p = act_param(&nd, i);
        if (a->par[i] && p) attr_set_float(g, op_made(g, y), a->par[i], *p);
    }
    return y;
}

static bool same_floats(const struct graph *g, node_id n, struct err *e)
{
    return op_check_float(g, n, 0, e) && op_same_types(g, n, 0, e) && check_act(g, n, e);
}

/* FusedConv, NhwcFusedConv, NhwcConv: x, w [, bias [, z]] */

static bool is_nhwc(const struct node *nd) { return !str_is(nd->op, "com.microsoft::FusedConv"); }

static bool conv_infer(struct graph *g, node_id n, struct err *e)
{
    return same_floats(g, n, e) && op_check_rank(g, n, 0, 3, MAX_RANK, e) && op_infer_expanded(g, n, e);
}

static value_id channels(struct graph *g, node_id n, value_id v, u32 rank, bool to_last, value_id out)
{
    i64 perm[MAX_RANK] = {0};
    for (u32 i = 1; i < rank; i++) perm[i] = to_last ? (i + 1 < rank ? i + 1 : 1) : (i == 1 ? rank - 1 : i - 1);
    return op_node_perm(g, n, v, rank, perm, out);
}

static bool conv_expand(struct graph *g, node_id n, struct err *e)
{
    const struct node nd = *graph_node(g, n);
    u32 rank = op_in_shape(g, &nd, 0)->rank;
    bool last = is_nhwc(&nd), last_w = str_is(nd.op, "com.microsoft::NhwcConv");
    value_id in[3], z = op_node_input(&nd, 3);
    for (u32 k = 0; k < 3; k++) in[k] = op_node_input(&nd, k);
    if (last) in[0] = channels(g, n, in[0], rank, false, 0);
    if (last_w) in[1] = channels(g, n, in[1], rank, false, 0);
    value_id y = op_node_same(g, n, "Conv", 3, in, act_attrs, 0);
    if (last_w) attr_remove(g, op_made(g, y), "kernel_shape"); /* implied by the weight */
    if (z) y = op_node2(g, n, "Add", y, last ? channels(g, n, z, rank, false, 0) : z, 0);
    if (!last) return activation(g, n, y, nd.out.v[0]), true;
    channels(g, n, activation(g, n, y, 0), rank, true, nd.out.v[0]);
    return true;
}

static void random_act(struct graph *g, struct rng *r, bool list)
{
    const struct act *a = &acts[rng_range(r, 0, countof(acts) - 1)];
    node_id n = g->node.n - 1;
    if (rng_range(r, 0, 3) == 0) return;
    attr_set_str(g, n, "activation", str_of(a->name));
    if (!list || !a->par[0]) return;
    struct attr p = {.name = S("activation_params"), .kind = ATTR_FLOATS, .n = 2, .floats = (double[]){0.25, 0.75}};
    attr_copy(g, n, &p);
}

static void random_conv(const struct op *self, struct graph *g, struct rng *r)
{
    struct node named = {.op = str_of(self->name)};
    bool last = is_nhwc(&named), last_w = str_is(named.op, "com.microsoft::NhwcConv");
    i64 c = rng_range(r, 1, 3), m = rng_range(r, 1, 4), h = rng_range(r, 3, 6), w = rng_range(r, 3, 6);
    i64 x[] = {1, c, h, w}, xl[] = {1, h, w, c}, wt[] = {m, c, 2, 3}, wl[] = {m, 2, 3, c}, z[] = {1, m, h - 1, w - 2},
        zl[] = {1, h - 1, w - 2, m};
    value_id in[4] = {0};
    random_input(g, "x", DT_F32, 4, last ? xl : x, &in[0]);
    random_input(g, "w", DT_F32, 4, last_w ? wl : wt, &in[1]);
    if (rng_range(r, 0, 1)) random_input(g, "b", DT_F32, 1, &m, &in[2]);
    if (self->max_in > 3 && rng_range(r, 0, 1)) random_input(g, "z", DT_F32, 4, last ? zl : z, &in[3]);
    random_node(g, self, in[3] ? 4 : in[2] ? 3 : 2, in, 1);
    if (self->max_in > 3) random_act(g, r, true);
}

/* FusedMatMul, FusedMatMulActivation */

/* Operand k with axes in the order of a matrix product. */
static value_id operand(struct graph *g, node_id n, u32 k)
{
    const struct node nd = *graph_node(g, n);
    u32 rank = op_in_shape(g, &nd, k)->rank;
    i64 perm[MAX_RANK];
    bool batch = attr_int(&nd, k ? "transBatchB" : "transBatchA", 0), t = attr_int(&nd, k ? "transB" : "transA", 0);
    if (rank < 2 || (!batch && !t)) return nd.in.v[k];
    for (u32 i = 0; i < rank; i++) perm[i] = i;
    for (u32 i = 0; batch && i + 2 < rank; i++) perm[i] = i + 1;
    if (batch) perm[rank - 2] = 0;
    if (t) {
        i64 last = perm[rank - 1];
        perm[rank - 1] = perm[rank - 2], perm[rank - 2] = last;
    }
    return op_node_perm(g, n, nd.in.v[k], rank, perm, 0);
}

static bool matmul_infer(struct graph *g, node_id n, struct err *e)
{
    return same_floats(g, n, e) && op_infer_expanded(g, n, e);
}

static bool matmul_expand(struct graph *g, node_id n, struct err *e)
{
    const struct node nd = *graph_node(g, n);
    double alpha = attr_float(&nd, "alpha", 1);
    value_id right = operand(g, n, 1), y = op_node2(g, n, "MatMul", operand(g, n, 0), right, 0);
    if (alpha != 1) y = op_node_binf(g, n, "Mul", y, op_in_dtype(g, &nd, 0), alpha, 0);
    activation(g, n, y, nd.out.v[0]);
    return true;
}

static void random_matmul(const struct op *self, struct graph *g, struct rng *r)
{
    i64 i = rng_range(r, 1, 5), j = rng_range(r, 1, 5), k = rng_range(r, 1, 6), b = rng_range(r, 1, 3);
    bool batch = rng_range(r, 0, 1), ta = rng_range(r, 0, 1), tb = rng_range(r, 0, 1), ba = batch && rng_range(r, 0, 1);
    i64 rows = ta ? k : i, cols = ta ? i : k;
    i64 plain[] = {b, rows, cols}, moved[] = {rows, b, cols}, two[] = {tb ? j : k, tb ? k : j};
    value_id in[2];
    random_input(g, "a", DT_F32, batch ? 3 : 2, !batch ? plain + 1 : ba ? moved : plain, &in[0]);
    random_input(g, "b", DT_F32, 2, two, &in[1]);
    random_node(g, self, 2, in, 1);
    node_id n = g->node.n - 1;
    attr_set_int(g, n, "transA", ta), attr_set_int(g, n, "transB", tb), attr_set_int(g, n, "transBatchA", ba);
    if (rng_range(r, 0, 1)) attr_set_float(g, n, "alpha", 0.5);
    if (str_is(str_of(self->name), "com.microsoft::FusedMatMulActivation")) random_act(g, r, false);
}

/* FusedGemm */

static bool gemm_infer(struct graph *g, node_id n, struct err *e)
{
    return same_floats(g, n, e) && op_infer_expanded(g, n, e);
}

static bool gemm_expand(struct graph *g, node_id n, struct err *e)
{
    const struct node nd = *graph_node(g, n);
    value_id y = op_node_same(g, n, "Gemm", nd.in.n, nd.in.v, act_attrs, 0);
    activation(g, n, y, nd.out.v[0]);
    return true;
}

static void random_gemm(const struct op *self, struct graph *g, struct rng *r)
{
    i64 i = rng_range(r, 1, 5), j = rng_range(r, 1, 5), k = rng_range(r, 1, 6);
    value_id in[3];
    random_input(g, "a", DT_F32, 2, (i64[]){i, k}, &in[0]);
    random_input(g, "b", DT_F32, 2, (i64[]){j, k}, &in[1]);
    random_input(g, "c", DT_F32, 1, &j, &in[2]);
    random_node(g, self, (u32)rng_range(r, 2, 3), in, 1);
    attr_set_int(g, g->node.n - 1, "transB", 1);
    random_act(g, r, false);
}

/* GemmFastGelu: a, b [, bias] */

static bool gelu_expand(struct graph *g, node_id n, struct err *e)
{
    const struct node nd = *graph_node(g, n);
    value_id y = op_node2(g, n, "MatMul", nd.in.v[0], nd.in.v[1], 0);
    if (op_has_in(&nd, 2)) y = op_node2(g, n, "Add", y, nd.in.v[2], 0);
    y = op_node1(g, n, "Gelu", y, nd.out.v[0]);
    attr_set_str(g, op_made(g, y), "approximate", S("tanh"));
    return true;
}

static void random_gelu(const struct op *self, struct graph *g, struct rng *r)
{
    i64 i = rng_range(r, 1, 5), j = rng_range(r, 1, 5), k = rng_range(r, 1, 6);
    value_id in[3];
    random_input(g, "a", DT_F32, 3, (i64[]){1, i, k}, &in[0]);
    random_input(g, "b", DT_F32, 2, (i64[]){k, j}, &in[1]);
    random_input(g, "c", DT_F32, 1, &j, &in[2]);
    random_node(g, self, (u32)rng_range(r, 2, 3), in, 1);
}

static const struct op ops[] = {
    OP_COMPOSITE("com.microsoft::FusedConv", 2, 4, 1, conv),
    OP_COMPOSITE("com.microsoft::NhwcFusedConv", 2, 4, 1, conv),
    OP_COMPOSITE("com.microsoft::NhwcConv", 2, 3, 1, conv),
    OP_COMPOSITE("com.microsoft::FusedMatMul", 2, 2, 1, matmul),
    OP_COMPOSITE("com.microsoft::FusedMatMulActivation", 2, 2, 1, matmul),
    OP_COMPOSITE("com.microsoft::FusedGemm", 2, 3, 1, gemm),
    {.name = "com.microsoft::GemmFastGelu",
     .min_in = 2,
     .max_in = 3,
     .min_out = 1,
     .max_out = 1,
     .infer = gemm_infer,
     .expand = gelu_expand,
     .random = random_gelu},
};

const struct op_family op_ms_fused = {ops, countof(ops)};
