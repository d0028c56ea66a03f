// SPDX-License-Identifier: Apache-2.0
//
// Attention as kernel names state it, and the kernels of a split one, as graphs of operators: b batch, h heads, s queries and keys, d size of
// a head.
//
//   scores (b, h, s, s) = q^T k / sqrt(d), then the softcap, then -inf above the diagonal
//   o = softmax(scores) v                      the operator Attention, for which all of its kernels can be used
//   max = largest score of a row, denom = sum of exp(score - max): the statistics of a split attention
//   p = exp(score - max) / denom,  o = p v,  row_sum (b, h, s) = sums of p over the queries
//
// The tool that the names come from stores exp(max) in place of max and multiplies exp(score), which overflow f32 from scores of 88.8 on, and
// f16 from 11.1 on. Here no exponent is above 0. Statistics are f32 at least.
#include "lab/lab.h"

#include "op/op.h"

#include <math.h>

struct build {
    struct graph *g;
    const struct lab_config *c;
    struct lab_attention what;
    enum dtype type, soft; /* of the inputs; of scores and statistics */
};

static value_id add_input(const struct build *b, const char *name, enum dtype type, i64 x, i64 y)
{
    struct graph *g = b->g;
    const i64 dim[4] = {b->c->b, b->c->h, x, y};
    value_id v = graph_add_value(g, str_of(name));
    struct value *value = graph_value(g, v);
    value->dtype = type;
    value->shape = (struct shape){.known = true, .rank = 4};
    for (u32 i = 0; i < 4; i++) value->shape.dim[i] = sym_const(g->sym, dim[i]);
    *arr_push(g->arena, &g->input) = v;
    return v;
}

static value_id add_output(const struct build *b, const char *name)
{
    value_id v = graph_add_value(b->g, str_of(name));
    *arr_push(b->g->arena, &b->g->output) = v;
    return v;
}

static value_id transposed(const struct build *b, value_id v) { return op_node_perm(b->g, 0, v, 4, (const i64[]){0, 1, 3, 2}, 0); }

static void column_sums(const struct build *b, value_id p)
{
    const i64 queries = 2;
    value_id sums = op_node_axes(b->g, 0, "ReduceSum", p, &queries, 1, add_output(b, "row_sum"));
    attr_set_int(b->g, op_made(b->g, sums), "keepdims", 0);
}

/* A whole attention. Its probabilities are the operator's fourth output. */
static void whole(const struct build *b, const value_id in[3])
{
    enum { Y, PROBABILITIES = 3, AFTER_SOFTMAX = 3 };
    struct graph *g = b->g;
    node_id n = graph_add_node(g, S("Attention"), S("attention"));
    node_add_in(g, n, transposed(b, in[0]));
    node_add_in(g, n, transposed(b, in[1]));
    node_add_in(g, n, in[2]);
    node_set_out(g, n, Y, add_output(b, "o"));
    if (b->what.is_causal) attr_set_int(g, n, "is_causal", 1);
    if (b->what.softcap > 0) attr_set_float(g, n, "softcap", b->what.softcap);
    if (!b->what.has_sums) return;
    value_id p = graph_add_value(g, S("p"));
    node_set_out(g, n, PROBABILITIES, p);
    attr_set_int(g, n, "qk_matmul_output_mode", AFTER_SOFTMAX);
    column_sums(b, p);
}

static value_id soft_cap(const struct build *b, value_id x)
{
    struct graph *g = b->g;
    if (!(b->what.softcap > 0)) return x;
    x = op_node1(g, 0, "Tanh", op_node_binf(g, 0, "Div", x, b->soft, b->what.softcap, 0), 0);
    return op_node_binf(g, 0, "Mul", x, b->soft, b->what.softcap, 0);
}

/* Keys up to the query's own. */
static value_id masked(const struct build *b, value_id x)
{
    struct graph *g = b->g;
    sym s = sym_const(g->sym, b->c->s), zero = sym_const(g->sym, 0);
    if (!b->what.is_causal) return x;
    value_id band = op_node(g, 0, "quern::Band", 0, NULL, 0);
    op_set_syms(g, op_made(g, band), "size", (const sym[]){s, s}, 2);
    op_set_syms(g, op_made(g, band), "offset", &zero, 1);
    attr_set_int(g, op_made(g, band), "left", -1);
    attr_set_int(g, op_made(g, band), "right", 0);
    return op_node_where(g, 0, band, x, op_const_f(g, b->soft, -INFINITY), 0);
}

static value_id scores(const struct build *b, value_id q, value_id k)
{
    struct graph *g = b->g;
    q = op_node_binf(g, 0, "Mul", q, b->type, 1 / sqrt((double)b->c->d), 0);
    value_id x = op_node2(g, 0, "MatMul", transposed(b, q), k, 0);
    return masked(b, soft_cap(b, b->type == b->soft ? x : op_node_cast(g, 0, x, b->soft, 0)));
}

static value_id exponentials(const struct build *b, value_id x, value_id max)
{
    return op_node1(b->g, 0, "Exp", op_node2(b->g, 0, "Sub", x, max, 0), 0);
}

static void statistics(const struct build *b, value_id x)
{
    const i64 keys = 3;
    value_id max = op_node_axes(b->g, 0, "ReduceMax", x, &keys, 1, add_output(b, "max"));
    value_id each = exponentials(b, x, max);
    op_node_axes(b->g, 0, "ReduceSum", each, &keys, 1, add_output(b, "denom"));
}

static value_id probabilities(const struct build *b, value_id x, value_id max, value_id denom)
{
    value_id p = op_node2(b->g, 0, "Div", exponentials(b, x, max), denom, 0);
    return b->type == b->soft ? p : op_node_cast(b->g, 0, p, b->type, 0);
}

void lab_attention_graph(struct graph *g, const struct lab_config *c, enum dtype type)
{
    struct build b = {.g = g, .c = c, .what = lab_attention_of(c->kind, c->part), .type = type, .soft = type == DT_F64 ? DT_F64 : DT_F32};
    value_id in[3] = {add_input(&b, "q", type, c->d, c->s)};
    in[1] = add_input(&b, "k", type, c->d, c->s);
    if (b.what.has_o) in[2] = add_input(&b, "v", type, c->s, c->d);
    if (!b.what.has_stats && !b.what.takes_stats) {
        whole(&b, in);
        return;
    }
    value_id max = b.what.takes_stats ? add_input(&b, "max", b.soft, c->s, 1) : 0;
    value_id denom = b.what.takes_stats ? add_input(&b, "denom", b.soft, c->s, 1) : 0;
    value_id x = scores(&b, in[0], in[1]);
    if (b.what.has_stats) {
        statistics(&b, x);
        return;
    }
    value_id p = probabilities(&b, x, max, denom);
    if (b.what.has_o) op_node2(g, 0, "MatMul", p, in[2], add_output(&b, "o"));
    if (b.what.has_sums) column_sums(&b, p);
}
