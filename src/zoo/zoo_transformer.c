// SPDX-License-Identifier: Apache-2.0
//
// Building blocks of transformers, as exporters write them: attention as MatMul, Mul, Add, Softmax, MatMul between reshapes and
// transposes; Gelu by Erf or Tanh; RMS norms and rotary embeddings operator by operator.
//
//   b  sequences   s  tokens   h  heads   d  size of a head
//
// Weights are scaled so that a wrong operator anywhere shows in the outputs (constant weights, as in some benchmarks, make every row of
// the activations equal: the norms behind them yield zeros, the softmax a mean, and a wrong kernel the right result):
//
// - A linear layer has weights of deviation gain/sqrt(in), so values keep the size of the input.
// - The last layers of both branches of a block have the gain 1/sqrt(2 layers) of GPT-2 (Radford and others, "Language Models are
//   Unsupervised Multitask Learners", 2019): all branches together contribute as much as the embeddings, each the same share, in networks
//   of any depth, with norms in front of the branches or behind the sums.
// - Queries and keys have gains of sqrt(2), so scores have a deviation of 2: a softmax that prefers few keys but none alone. With
//   smaller ones it is a mean of all values, which hides errors of queries, keys and masks.
// - Biases and gains of norms vary, so that a missing one changes the result. Tables of tokens and positions have equal shares.
#include "zoo/zoo.h"

#include <math.h>

enum { Q, K, V };

bool net_transformer_check(const struct net_transformer *t, struct err *e)
{
    if (t->width % t->heads)
        return err_set(e, ERR_USAGE, "a width of %lld is not a multiple of %lld heads", (long long)t->width, (long long)t->heads);
    if (t->theta > 0 && t->width / t->heads % 2)
        return err_set(e, ERR_USAGE, "heads of %lld elements cannot be rotated: the size is odd", (long long)(t->width / t->heads));
    if (t->kv_heads && t->heads % t->kv_heads)
        return err_set(e, ERR_USAGE, "%lld heads are not a multiple of %lld of the keys", (long long)t->heads, (long long)t->kv_heads);
    return true;
}

/* Operators by name. */

static node_id producer(const struct net *n, value_id v) { return graph_value(n->g, v)->producer; }

value_id net_ids(struct net *n, const char *name, i64 batch, i64 tokens)
{
    const char *b = batch ? str_fmt(n->g->arena, "%lld", (long long)batch).p : "batch";
    const char *s = tokens ? str_fmt(n->g->arena, "%lld", (long long)tokens).p : "sequence";
    value_id v = net_input(n, name, str_fmt(n->g->arena, "%s %s", b, s).p);
    graph_value(n->g, v)->dtype = DT_I64;
    return v;
}

value_id net_scalar(struct net *n, const char *name, double v)
{
    struct tensor *t = tensor_new(n->g->arena, DT_F32, 0, NULL);
    elem_set_f64(DT_F32, t->data, 0, v);
    return graph_add_const(n->g, str_of(name), t);
}

static value_id int_scalar(struct net *n, const char *name, i64 v)
{
    struct tensor *t = tensor_new(n->g->arena, DT_I64, 0, NULL);
    elem_set_i64(DT_I64, t->data, 0, v);
    return graph_add_const(n->g, str_of(name), t);
}

static value_id by_scalar(struct net *n, const char *op, value_id x, const char *name, double v)
{
    return net_op(n, op, name, x, net_scalar(n, net_part(n, name, "by"), v));
}

value_id net_axis(struct net *n, const char *op, value_id x, const char *name, i64 axis)
{
    value_id v = net_op(n, op, name, x, 0);
    attr_set_int(n->g, producer(n, v), "axis", axis);
    return v;
}

value_id net_join(struct net *n, value_id a, value_id b, const char *name, i64 axis)
{
    value_id v = net_op(n, "Concat", name, a, b);
    attr_set_int(n->g, producer(n, v), "axis", axis);
    return v;
}

value_id net_reshape(struct net *n, value_id x, const char *name, u32 rank, const i64 *dim)
{
    return net_op(n, "Reshape", name, x, net_ints(n, net_part(n, name, "shape"), dim, rank));
}

value_id net_transpose(struct net *n, value_id x, const char *name, u32 rank, const i64 *perm)
{
    value_id v = net_op(n, "Transpose", name, x, 0);
    attr_set_ints(n->g, producer(n, v), "perm", perm, rank);
    return v;
}

static value_id slice(struct net *n, value_id x, const char *name, i64 axis, i64 from, value_id to)
{
    value_id in[] = {x, net_ints(n, net_part(n, name, "from"), &from, 1), to, net_ints(n, net_part(n, name, "axis"), &axis, 1)};
    return graph_op(n->g, "Slice", str_of(name), countof(in), in);
}

value_id net_slice(struct net *n, value_id x, const char *name, i64 axis, i64 from, i64 to)
{
    return slice(n, x, name, axis, from, net_ints(n, net_part(n, name, "to"), &to, 1));
}

value_id net_first(struct net *n, value_id x, const char *name, i64 axis, value_id count) { return slice(n, x, name, axis, 0, count); }

value_id net_count(struct net *n, value_id x, const char *name, i64 axis)
{
    value_id shape = net_op(n, "Shape", net_part(n, name, "shape"), x, 0);
    return net_slice(n, shape, name, 0, axis, axis + 1);
}

/* Along the last axis, which stays. */
static value_id mean(struct net *n, value_id x, const char *name)
{
    value_id v = net_op(n, "ReduceMean", name, x, net_ints(n, net_part(n, name, "axis"), (i64[]){-1}, 1));
    attr_set_int(n->g, producer(n, v), "keepdims", 1);
    return v;
}

/* Layers. */

value_id net_dense(struct net *n, value_id x, const char *name, i64 in, i64 out, double gain, bool has_bias)
{
    value_id w = net_normal(n, net_part(n, name, "weight"), 2, (i64[]){in, out}, 0, gain / sqrt((double)in));
    value_id v = net_op(n, "MatMul", has_bias ? net_part(n, name, "product") : name, x, w);
    return has_bias ? net_op(n, "Add", name, v, net_normal(n, net_part(n, name, "bias"), 1, &out, 0, 0.1)) : v;
}

static value_id layer_norm(struct net *n, value_id x, const char *name, const struct net_transformer *t, value_id gain, value_id bias)
{
    value_id v = graph_op(n->g, "LayerNormalization", str_of(name), 3, (value_id[]){x, gain, bias});
    attr_set_int(n->g, producer(n, v), "axis", -1);
    attr_set_float(n->g, producer(n, v), "epsilon", t->epsilon);
    return v;
}

static value_id unbiased_norm(struct net *n, value_id x, const char *name, const struct net_transformer *t, value_id gain, value_id bias)
{
    value_id c = net_op(n, "Sub", net_part(n, name, "centred"), x, mean(n, x, net_part(n, name, "mean")));
    value_id square = net_op(n, "Mul", net_part(n, name, "square"), c, c);
    value_id sum = net_op(n, "ReduceSum", net_part(n, name, "sum"), square, net_ints(n, net_part(n, name, "axis"), (i64[]){-1}, 1));
    attr_set_int(n->g, producer(n, sum), "keepdims", 1);
    value_id variance = by_scalar(n, "Div", sum, net_part(n, name, "variance"), fmax(1, (double)(t->width - 1)));
    value_id deviation = net_op(n, "Sqrt", net_part(n, name, "deviation"), variance, 0);
    value_id whole = by_scalar(n, "Add", deviation, net_part(n, name, "divisor"), t->epsilon);
    value_id y = net_op(n, "Div", net_part(n, name, "normal"), net_op(n, "Mul", net_part(n, name, "scaled"), gain, c), whole);
    return net_op(n, "Add", name, y, bias);
}

static value_id rms_norm(struct net *n, value_id x, const char *name, const struct net_transformer *t, value_id gain)
{
    value_id square = by_scalar(n, "Pow", x, net_part(n, name, "square"), 2);
    value_id m = by_scalar(n, "Add", mean(n, square, net_part(n, name, "mean")), net_part(n, name, "more"), t->epsilon);
    value_id r = net_op(n, "Reciprocal", net_part(n, name, "reciprocal"), net_op(n, "Sqrt", net_part(n, name, "rms"), m, 0), 0);
    return net_op(n, "Mul", name, gain, net_op(n, "Mul", net_part(n, name, "normal"), x, r));
}

value_id net_norm(struct net *n, value_id x, const char *name, const struct net_transformer *t, double gain)
{
    value_id g = net_normal(n, net_part(n, name, "weight"), 1, &t->width, gain, 0.1 * gain);
    if (t->norm == NORM_RMS) return rms_norm(n, x, name, t, g);
    value_id b = net_normal(n, net_part(n, name, "bias"), 1, &t->width, 0, 0.1 * gain);
    return t->norm == NORM_LAYER ? layer_norm(n, x, name, t, g, b) : unbiased_norm(n, x, name, t, g, b);
}

/* x/2 (1 + erf(x/sqrt(2))) */
value_id net_gelu(struct net *n, value_id x, const char *name)
{
    value_id v = by_scalar(n, "Div", x, net_part(n, name, "scaled"), sqrt(2));
    v = by_scalar(n, "Add", net_op(n, "Erf", net_part(n, name, "erf"), v, 0), net_part(n, name, "plus"), 1);
    return by_scalar(n, "Mul", net_op(n, "Mul", net_part(n, name, "product"), x, v), name, 0.5);
}

/* x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))) */
static value_id gelu_tanh(struct net *n, value_id x, const char *name)
{
    value_id v = by_scalar(n, "Pow", x, net_part(n, name, "cube"), 3);
    v = net_op(n, "Add", net_part(n, name, "sum"), x, by_scalar(n, "Mul", v, net_part(n, name, "part"), 0.044715));
    v = net_op(n, "Tanh", net_part(n, name, "tanh"), by_scalar(n, "Mul", v, net_part(n, name, "scaled"), sqrt(2 / 3.14159265358979323846)), 0);
    v = by_scalar(n, "Add", v, net_part(n, name, "plus"), 1);
    return net_op(n, "Mul", name, by_scalar(n, "Mul", x, net_part(n, name, "half"), 0.5), v);
}

value_id net_embed(struct net *n, value_id ids, const char *name, i64 rows, i64 width, double deviation, value_id *table)
{
    value_id w = net_normal(n, net_part(n, name, "weight"), 2, (i64[]){rows, width}, 0, deviation);
    if (table) *table = w;
    value_id v = net_op(n, "Gather", name, w, ids);
    attr_set_int(n->g, producer(n, v), "axis", 0);
    return v;
}

value_id net_positions(struct net *n, value_id count, const char *name, i64 rows, i64 width, double deviation)
{
    value_id w = net_normal(n, net_part(n, name, "weight"), 2, (i64[]){rows, width}, 0, deviation);
    return net_first(n, w, name, 0, count);
}

value_id net_causal(struct net *n, value_id count, double low)
{
    value_id all = net_op(n, "Expand", "mask.all", net_scalar(n, "mask.low", low), net_join(n, count, count, "mask.shape", 0));
    value_id v = net_op(n, "Trilu", "mask", all, int_scalar(n, "mask.diagonal", 1));
    attr_set_int(n->g, producer(n, v), "upper", 1);
    return v;
}

/* Rotary embedding (Su and others, "RoFormer", 2021), element i of a head with element i + d/2. */

void net_rotary(struct net *n, struct net_transformer *t, value_id ids)
{
    i64 d = t->width / t->heads;
    struct tensor *f = tensor_new(n->g->arena, DT_F32, 2, (i64[]){1, d / 2});
    for (i64 i = 0; i < d / 2; i++) elem_set_f64(DT_F32, f->data, i, pow(t->theta, -2 * (double)i / (double)d));
    value_id shape = net_op(n, "Shape", "rotary.shape", ids, 0);
    value_id count = net_op(n, "Gather", "rotary.count", shape, int_scalar(n, "rotary.at", 1));
    value_id in[] = {int_scalar(n, "rotary.from", 0), count, int_scalar(n, "rotary.step", 1)};
    value_id v = net_op(n, "Cast", "rotary.position", graph_op(n->g, "Range", S("rotary.range"), 3, in), 0);
    attr_set_int(n->g, producer(n, v), "to", dtype_onnx(DT_F32));
    v = net_op(n, "Unsqueeze", "rotary.column", v, net_ints(n, "rotary.axis", (i64[]){1}, 1));
    v = net_op(n, "Mul", "rotary.angle", v, graph_add_const(n->g, S("rotary.frequency"), f));
    v = net_join(n, v, v, "rotary.angles", -1);
    t->cos = net_op(n, "Cos", "rotary.cos", v, 0), t->sin = net_op(n, "Sin", "rotary.sin", v, 0);
}

static value_id rotate(struct net *n, value_id x, const char *name, const struct net_transformer *t)
{
    i64 d = t->width / t->heads;
    value_id a = net_slice(n, x, net_part(n, name, "first"), 3, 0, d / 2), b = net_slice(n, x, net_part(n, name, "second"), 3, d / 2, d);
    value_id r = net_join(n, net_op(n, "Neg", net_part(n, name, "negative"), b, 0), a, net_part(n, name, "rotated"), -1);
    value_id by_cos = net_op(n, "Mul", net_part(n, name, "cos"), x, t->cos);
    value_id by_sin = net_op(n, "Mul", net_part(n, name, "sin"), r, t->sin);
    return net_op(n, "Add", net_part(n, name, "rotary"), by_cos, by_sin);
}

/* Attention. */

/* (b, s, h*d) -> (b, h, s, d) */
static value_id split(struct net *n, value_id x, const char *name, i64 heads, const struct net_transformer *t)
{
    value_id v = net_reshape(n, x, net_part(n, name, "split"), 4, (i64[]){0, 0, heads, t->width / t->heads});
    return net_transpose(n, v, net_part(n, name, "heads"), 4, (i64[]){0, 2, 1, 3});
}

/* Every head of keys and values as often as queries share it. */
static value_id repeat(struct net *n, value_id x, const char *name, const struct net_transformer *t)
{
    if (!t->kv_heads || t->kv_heads == t->heads) return x;
    value_id v = net_op(n, "Unsqueeze", net_part(n, name, "group"), x, net_ints(n, net_part(n, name, "axis"), (i64[]){2}, 1));
    i64 times[] = {1, 1, t->heads / t->kv_heads, 1, 1};
    v = net_op(n, "Expand", net_part(n, name, "groups"), v, net_ints(n, net_part(n, name, "times"), times, countof(times)));
    return net_reshape(n, v, net_part(n, name, "repeated"), 4, (i64[]){0, t->heads, -1, t->width / t->heads});
}

/* Queries, keys and values, (b, h, s, d). */
static void project(struct net *n, value_id x, const char *name, const struct net_transformer *t, value_id out[3])
{
    static const char *const part[] = {"query", "key", "value"};
    i64 kv = t->kv_heads ? t->kv_heads : t->heads, d = t->width / t->heads;
    value_id all = t->is_packed ? net_dense(n, x, net_part(n, name, "qkv"), t->width, 3 * t->width, sqrt(2), !t->no_bias) : 0;
    for (int i = Q; i <= V; i++) {
        i64 heads = i == Q ? t->heads : kv;
        const char *own = net_part(n, name, part[i]);
        value_id v = all ? net_slice(n, all, own, 2, i * t->width, (i + 1) * t->width)
                         : net_dense(n, x, own, t->width, heads * d, i == V ? 1 : sqrt(2), !t->no_bias && !(i == K && t->no_key_bias));
        v = split(n, v, own, heads, t);
        if (i != V && t->cos) v = rotate(n, v, own, t);
        out[i] = i == Q ? v : repeat(n, v, own, t);
    }
}

/* Of the scores (b, h, s, s). */
static value_id masked(struct net *n, value_id x, const char *name, const struct net_transformer *t)
{
    if (t->bias) x = net_op(n, "Add", net_part(n, name, "biased"), x, t->bias);
    if (t->allowed) {
        value_id in[] = {t->allowed, x, net_scalar(n, net_part(n, name, "low"), -3.4028234663852886e38)};
        x = graph_op(n->g, "Where", str_of(net_part(n, name, "allowed")), countof(in), in);
    }
    if (!t->windows) return x;
    i64 keys = t->window_tokens;
    x = net_reshape(n, x, net_part(n, name, "windows"), 5, (i64[]){-1, t->n_windows, t->heads, keys, keys});
    x = net_op(n, "Add", net_part(n, name, "shifted"), x, t->windows);
    return net_reshape(n, x, net_part(n, name, "rows"), 4, (i64[]){-1, t->heads, keys, keys});
}

value_id net_attention(struct net *n, value_id x, const char *name, const struct net_transformer *t)
{
    value_id p[3];
    i64 d = t->width / t->heads;
    project(n, x, name, t, p);
    value_id keys = net_transpose(n, p[K], net_part(n, name, "keys"), 4, (i64[]){0, 1, 3, 2});
    value_id scores = net_op(n, "MatMul", net_part(n, name, "scores"), p[Q], keys);
    scores = by_scalar(n, "Mul", scores, net_part(n, name, "scaled"), 1 / sqrt((double)d));
    value_id share = net_axis(n, "Softmax", masked(n, scores, name, t), net_part(n, name, "softmax"), -1);
    value_id y = net_op(n, "MatMul", net_part(n, name, "values"), share, p[V]);
    y = net_transpose(n, y, net_part(n, name, "tokens"), 4, (i64[]){0, 2, 1, 3});
    y = net_reshape(n, y, net_part(n, name, "joined"), 3, (i64[]){0, 0, t->width});
    return net_dense(n, y, net_part(n, name, "output"), t->width, t->width, sqrt(0.5 / (double)t->layers), !t->no_bias);
}

value_id net_feed_forward(struct net *n, value_id x, const char *name, const struct net_transformer *t)
{
    i64 hidden = t->hidden ? t->hidden : 4 * t->width;
    const char *act = net_part(n, name, "act");
    value_id up = net_dense(n, x, net_part(n, name, "up"), t->width, hidden, t->act == ACT_SILU ? 1 : sqrt(2), !t->no_bias), v;
    switch (t->act) {
    case ACT_GELU: v = net_gelu(n, up, act); break;
    case ACT_GELU_TANH: v = gelu_tanh(n, up, act); break;
    case ACT_SILU: {
        value_id gate = net_dense(n, x, net_part(n, name, "gate"), t->width, hidden, sqrt(2), !t->no_bias);
        gate = net_op(n, "Mul", act, gate, net_op(n, "Sigmoid", net_part(n, name, "sigmoid"), gate, 0));
        v = net_op(n, "Mul", net_part(n, name, "gated"), gate, up);
        break;
    }
    default: unreachable();
    }
    return net_dense(n, v, net_part(n, name, "down"), hidden, t->width, sqrt(0.5 / (double)t->layers), !t->no_bias);
}

value_id net_blocks(struct net *n, value_id x, const struct net_transformer *t)
{
    static const char *const branch[] = {"attention", "mlp"};
    for (i64 k = 0; k < 2 * t->layers && !(n->e && n->e->code); k++) {
        const char *layer = str_fmt(n->g->arena, "layer.%lld", (long long)(k / 2)).p, *name = net_part(n, layer, branch[k % 2]);
        value_id y = t->is_post_norm ? x : net_norm(n, x, net_part(n, name, "norm"), t, 1);
        y = k % 2 ? net_feed_forward(n, y, name, t) : net_attention(n, y, name, t);
        x = net_op(n, "Add", net_part(n, name, "sum"), x, y);
        if (t->is_post_norm) x = net_norm(n, x, net_part(n, name, "norm"), t, 1);
    }
    return x;
}
