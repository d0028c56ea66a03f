// SPDX-License-Identifier: Apache-2.0
//
// The operators and tensors of a network under the names that users see: in pictures, in
// allocations, in the folders of a deployment. doc/graph.md has the rules.
//
// The graph is the network's own, with its operators as ONNX has them, not what the passes make of
// it: constants are folded, nodes without effect dropped. DequantizeLinear of constant codes stays,
// because whoever gets a part of the network as a file wants the codes. What depends on nothing but
// constants and the sizes of inputs is no operator either ("fixed"): a part that reads it has a
// copy. Not so what the network returns, what draws random numbers (twice would be different ones),
// and what depends on sizes that are found in data.
#include "place/place.h"

#include <string.h>

/* Names. */

/* Words of OptimaV2's graphs where they are not the operator in lower case. by_rank: followed by
 * the number of spatial axes and "d". */
static const struct word {
    const char *op, *word;
    bool by_rank;
} words[] = {
    {"Conv", "conv", true},
    {"ConvTranspose", "convtranspose", true},
    {"MaxPool", "maxpool", true},
    {"AveragePool", "avgpool", true},
    {"LpPool", "lppool", true},
    {"GlobalMaxPool", "globalmaxpool", true},
    {"GlobalAveragePool", "globalavgpool", true},
    {"GlobalLpPool", "globallppool", true},
    {"BatchNormalization", "batchnorm", true},
    {"InstanceNormalization", "instancenorm", true},
    {"GroupNormalization", "groupnorm", false},
    {"LayerNormalization", "layernorm", false},
    {"SkipLayerNormalization", "skiplayernorm", false},
    {"SimplifiedLayerNormalization", "rmsnorm", false},
    {"RMSNormalization", "rmsnorm", false},
    {"Gemm", "linear", false},
    {"Resize", "interpolate", false},
    {"Upsample", "interpolate", false},
};

static struct str unqualified(struct str op)
{
    for (i64 i = op.n - 1; i > 0; i--)
        if (op.p[i] == ':') return str_sub(op, i + 1, op.n);
    return op;
}

/* Spatial axes of (n, c, d0, d1 ...); at least 1, as BatchNorm1d of PyTorch takes (n, c), too. */
static u32 n_spatial(const struct graph *g, const struct node *x)
{
    u32 rank = x->in.n && x->in.v[0] ? graph_value(g, x->in.v[0])->shape.rank : 0;
    return rank > 3 ? rank - 2 : 1;
}

static void print_word(struct buf *b, const struct graph *g, const struct node *x)
{
    struct str op = unqualified(x->op);
    for (i64 k = 0; k < countof(words); k++) {
        if (!str_is(op, words[k].op)) continue;
        buf_z(b, words[k].word);
        if (words[k].by_rank) buf_printf(b, "%ud", n_spatial(g, x));
        return;
    }
    for (i64 i = 0; i < op.n; i++) {
        char c = op.p[i];
        if (c >= 'A' && c <= 'Z') c = (char)(c - 'A' + 'a');
        if ((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9')) buf_char(b, c);
    }
}

struct namer {
    struct place_net *x;
    struct arena *a;
    bool *is_fixed; /* per value: depends on constants and sizes of inputs only */
    u32 next;       /* number of the next name */
};

static struct str make_name(struct namer *m, const struct node *op, bool is_param)
{
    struct buf b = {0};
    if (op) print_word(&b, &m->x->g, op);
    else buf_z(&b, is_param ? "paramtensor" : "tensor");
    buf_printf(&b, "_%u", m->next++);
    struct str s = str_dup(m->a, buf_view(&b));
    buf_release(&b);
    return s;
}

static void add_tensor(struct namer *m, value_id v)
{
    struct place_net *x = m->x;
    if (x->tensor_of[v] != UINT32_MAX) return;
    x->tensor_of[v] = x->tensor.n;
    *arr_push(m->a, &x->tensor) = (struct place_tensor){
        .name = make_name(m, NULL, m->is_fixed[v]), .value = v, .is_param = m->is_fixed[v]};
}

static void add_op(struct namer *m, node_id n)
{
    struct place_net *x = m->x;
    const struct node *nd = graph_node(&x->g, n);
    const u32 k = x->op.n;
    struct place_op *op = arr_push(m->a, &x->op);
    *op = (struct place_op){.name = make_name(m, nd, false), .node = n};
    x->op_of[n] = k;
    *map_put(&x->op_by_name, op->name, 0) = k;
    for (u32 is_param = 0; is_param < 2; is_param++)
        for (u32 i = 0; i < nd->in.n; i++) {
            const value_id v = nd->in.v[i];
            if (!v || m->is_fixed[v] != (is_param != 0)) continue;
            add_tensor(m, v);
            *arr_push(m->a, &op->in) = x->tensor_of[v];
        }
    for (u32 i = 0; i < nd->out.n; i++) {
        if (!nd->out.v[i]) continue;
        add_tensor(m, nd->out.v[i]);
        *arr_push(m->a, &op->out) = x->tensor_of[nd->out.v[i]];
    }
}

/* Which nodes are operators. */

static bool lists_sizes(const struct graph *g, const struct node *x)
{
    if (!str_is(x->op, "Shape") && !str_is(x->op, "Size")) return false;
    const struct shape *s = &graph_value(g, x->in.v[0])->shape;
    for (u32 i = 0; i < s->rank; i++)
        if (op_is_made(g, s->dim[i])) return false;
    return s->known;
}

/* Sizes of results that are found in data are computed by the node, whatever its inputs are. */
static bool has_made_sizes(const struct graph *g, const struct node *x)
{
    for (u32 k = 0; k < x->out.n; k++) {
        const struct shape *s = x->out.v[k] ? &graph_value(g, x->out.v[k])->shape : NULL;
        for (u32 i = 0; s && i < s->rank; i++)
            if (op_is_made(g, s->dim[i])) return true;
    }
    return false;
}

static bool node_is_fixed(const struct namer *m, node_id n)
{
    const struct graph *g = &m->x->g;
    const struct node *x = graph_node(g, n);
    if (op_of(g, n)->props & (OP_RANDOM | OP_CALL) || has_made_sizes(g, x)) return false;
    bool is = true;
    for (u32 k = 0; k < x->in.n; k++) is &= !x->in.v[k] || m->is_fixed[x->in.v[k]];
    return is || lists_sizes(g, x);
}

static bool is_returned(const struct graph *g, const struct node *x)
{
    for (u32 k = 0; k < x->out.n; k++)
        for (u32 i = 0; i < g->output.n; i++)
            if (x->out.v[k] && x->out.v[k] == g->output.v[i]) return true;
    return false;
}

static void name_all(struct namer *m)
{
    struct place_net *x = m->x;
    const struct graph *g = &x->g;
    for (u32 k = 0; k < g->input.n; k++) add_tensor(m, g->input.v[k]);
    for (value_id v = 1; v < g->value.n; v++) m->is_fixed[v] = graph_value(g, v)->is_const;
    for (node_id n = 1; n < g->node.n; n++) {
        const struct node *nd = graph_node(g, n);
        const bool is_fixed = node_is_fixed(m, n) && !is_returned(g, nd);
        for (u32 k = 0; k < nd->out.n; k++)
            if (nd->out.v[k]) m->is_fixed[nd->out.v[k]] = is_fixed;
        if (!is_fixed) add_op(m, n);
    }
    for (u32 k = 0; k < g->output.n; k++)
        add_tensor(m, g->output.v[k]); /* a constant, or an input */
}

/* The graph. */

static bool is_decoding(const struct graph *g, node_id n)
{
    return str_is(unqualified(graph_node(g, n)->op), "DequantizeLinear");
}

static bool simplify(struct graph *g, struct err *e)
{
    bool changed = true;
    while (changed) {
        if (!mem_check(e, "in folding ", S("constants"))) return false;
        changed = pass_drop_same(g);
        changed |= pass_fold_but(g, is_decoding);
        if (!graph_sort(g, e) || !graph_verify(g, e)) return false;
    }
    return true;
}

static u32 *no_index(struct arena *a, u32 n)
{
    u32 *v = arena_array(a, u32, n);
    memset(v, 0xff, n * sizeof *v);
    return v;
}

bool place_net_open(struct place_net *x, struct model *m, struct arena *a, struct err *e)
{
    *x = (struct place_net){.name = m->name};
    graph_clone(&x->g, &m->graph, a);
    if (!simplify(&x->g, e)) return err_prefix(e, "'%.*s'", STR_ARG(m->name));
    map_init(&x->op_by_name, a);
    x->op_of = no_index(a, x->g.node.n);
    x->tensor_of = no_index(a, x->g.value.n);
    struct namer all = {.x = x, .a = a, .is_fixed = arena_array(a, bool, x->g.value.n)};
    name_all(&all);
    return true;
}
