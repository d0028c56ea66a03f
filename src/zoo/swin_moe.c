// SPDX-License-Identifier: Apache-2.0
//
// Swin transformer (Liu and others, "Swin Transformer", 2021) with mixtures of experts (Hwang and others, "Tutel", 2023), in the sizes of
// deepgen's RingMo. Pictures that are no multiple of the windows are padded, as torchvision does.
//
//   p  pictures   c  channels   w  edge of a window
//   t  tokens of all pictures   x  experts   r  room: tokens of an expert
//
// An expert takes at most r = ceil(1.25 t/x) tokens, in their order; the feed-forward layer of the others is zero. Tokens are moved to the
// experts and back by products with a matrix of zeros and ones (t, x*r), as GShard does (Lepikhin and others, 2020), so sizes are fixed.
// Which expert takes a token is decided by the largest of its x scores: results differ where two are equal within their rounding errors.
#include "zoo/zoo.h"

#include <math.h>

enum { WIDTH, HEADS, LAYERS, IMAGE, WINDOW, EXPERTS, CLASSES, BATCH };
enum { STAGES = 4, PATCH = 4 };

static const struct zoo_size size[] = {
    {"width", 96, 16, "channels of the first stage, doubled by each further one"},
    {"heads", 4, 2, "attention heads of the first stage, doubled likewise"},
    {"layers", 18, 2, "blocks of the third stage; the others have 2"},
    {"image", 192, 32, "rows and columns of a picture, a multiple of 32"},
    {"window", 7, 3, "rows and columns of a window"},
    {"experts", 4, 3, "experts of a mixture"},
    {"classes", 1000, 10, "columns of the head"},
    {"batch", 1, 2, "pictures"},
    {0},
};

struct stage {
    const char *name;
    struct net_transformer t;
    i64 p, edge;          /* pictures, rows and columns of tokens */
    i64 w, padded, shift; /* of a window; rows with padding; of every second block */
    i64 experts;
};

static const char *numbered(struct net *n, const char *name, i64 k)
{
    return str_fmt(n->g->arena, "%s.%lld", name, (long long)k).p;
}

/* Windows. */

/* (p, edge, edge, c) moved along both axes: element i becomes that of i + by. */
static value_id roll(struct net *n, value_id x, const char *name, i64 edge, i64 by)
{
    static const char *const axis[] = {"rows", "columns"};
    for (int k = 0; k < 2; k++) {
        const char *own = net_part(n, name, axis[k]);
        x = net_join(n, net_slice(n, x, net_part(n, own, "last"), 1 + k, by, edge), net_slice(n, x, net_part(n, own, "first"), 1 + k, 0, by), own, 1 + k);
    }
    return x;
}

/* (p, padded, padded, c) -> (windows, w*w, c) */
static value_id to_windows(struct net *n, value_id x, const char *name, const struct stage *s)
{
    i64 c = s->t.width, w = s->w, k = s->padded / w;
    x = net_reshape(n, x, net_part(n, name, "tiles"), 6, (i64[]){s->p, k, w, k, w, c});
    x = net_transpose(n, x, net_part(n, name, "tiled"), 6, (i64[]){0, 1, 3, 2, 4, 5});
    return net_reshape(n, x, net_part(n, name, "windows"), 3, (i64[]){s->p * k * k, w * w, c});
}

static value_id from_windows(struct net *n, value_id x, const char *name, const struct stage *s)
{
    i64 c = s->t.width, w = s->w, k = s->padded / w;
    x = net_reshape(n, x, net_part(n, name, "tiles"), 6, (i64[]){s->p, k, k, w, w, c});
    x = net_transpose(n, x, net_part(n, name, "untiled"), 6, (i64[]){0, 1, 3, 2, 4, 5});
    return net_reshape(n, x, net_part(n, name, "picture"), 4, (i64[]){s->p, s->padded, s->padded, c});
}

/* (1, heads, w*w, w*w): a number for each head and distance, from a table ((2w - 1)^2, heads). */
static value_id distances(struct net *n, const char *name, const struct stage *s)
{
    i64 w = s->w, area = w * w, span = 2 * w - 1, count = area * area, heads = s->t.heads;
    struct tensor *at = tensor_new(n->g->arena, DT_I64, 1, &count);
    for (i64 i = 0; i < count; i++) {
        i64 a = i / area, b = i % area;
        elem_set_i64(DT_I64, at->data, i, (a / w - b / w + w - 1) * span + a % w - b % w + w - 1);
    }
    value_id table = net_normal(n, net_part(n, name, "table"), 2, (i64[]){span * span, heads}, 0, 1);
    value_id v = net_op(n, "Gather", net_part(n, name, "distances"), table, graph_add_const(n->g, str_of(net_part(n, name, "index")), at));
    v = net_reshape(n, v, net_part(n, name, "pairs"), 4, (i64[]){1, area, area, heads});
    return net_transpose(n, v, net_part(n, name, "bias"), 4, (i64[]){0, 3, 1, 2});
}

/* Part of a shifted axis that was not adjacent to the others before: 0, 1, 2. */
static i64 region(const struct stage *s, i64 i) { return i < s->padded - s->w ? 0 : i < s->padded - s->shift ? 1 : 2; }

/* (windows of a picture, 1, w*w, w*w): -100 for pairs of different regions. */
static value_id shifted_mask(struct net *n, const char *name, const struct stage *s)
{
    i64 w = s->w, k = s->padded / w, area = w * w;
    struct tensor *t = net_floats(n, 4, (i64[]){k * k, 1, area, area});
    for (i64 i = 0, count = tensor_count(t); i < count; i++) {
        i64 window = i / area / area, a = i / area % area, b = i % area, y = window / k * w, x = window % k * w;
        bool same = region(s, y + a / w) == region(s, y + b / w) && region(s, x + a % w) == region(s, x + b % w);
        elem_set_f64(DT_F32, t->data, i, same ? 0 : -100);
    }
    return graph_add_const(n->g, str_of(name), t);
}

/* (p, edge, edge, c), also padded */
static value_id padded(struct net *n, value_id x, const char *name, const struct stage *s)
{
    i64 more = s->padded - s->edge;
    if (!more) return x;
    return net_op(n, "Pad", net_part(n, name, "padded"), x, net_ints(n, net_part(n, name, "pads"), (i64[]){0, 0, 0, 0, 0, more, more, 0}, 8));
}

static value_id window_attention(struct net *n, value_id x, const char *name, const struct stage *s, bool is_shifted)
{
    struct net_transformer t = s->t;
    t.bias = distances(n, name, s);
    x = padded(n, x, name, s);
    if (is_shifted) {
        t.n_windows = s->padded / s->w * (s->padded / s->w), t.window_tokens = s->w * s->w;
        t.windows = shifted_mask(n, net_part(n, name, "regions"), s);
        x = roll(n, x, net_part(n, name, "shifted"), s->padded, s->shift);
    }
    x = from_windows(n, net_attention(n, to_windows(n, x, name, s), name, &t), net_part(n, name, "back"), s);
    if (is_shifted) x = roll(n, x, net_part(n, name, "unshifted"), s->padded, s->padded - s->shift);
    if (s->padded == s->edge) return x;
    x = net_slice(n, x, net_part(n, name, "cropped.rows"), 1, 0, s->edge);
    return net_slice(n, x, net_part(n, name, "cropped"), 2, 0, s->edge);
}

/* Mixtures of experts. */

static value_id sum(struct net *n, value_id x, const char *name, i64 axis)
{
    value_id v = net_op(n, "ReduceSum", name, x, net_ints(n, net_part(n, name, "axis"), &axis, 1));
    attr_set_int(n->g, graph_value(n->g, v)->producer, "keepdims", 1);
    return v;
}

static value_id cast(struct net *n, value_id x, const char *name, enum dtype to)
{
    value_id v = net_op(n, "Cast", name, x, 0);
    attr_set_int(n->g, graph_value(n->g, v)->producer, "to", dtype_onnx(to));
    return v;
}

/* Whether integers (t, 1) are 0 .. count-1, as (t, count) of f32. */
static value_id one_hot(struct net *n, value_id x, const char *name, i64 count)
{
    struct tensor *all = tensor_new(n->g->arena, DT_I64, 2, (i64[]){1, count});
    for (i64 i = 0; i < count; i++) elem_set_i64(DT_I64, all->data, i, i);
    value_id v = net_op(n, "Equal", net_part(n, name, "equal"), x, graph_add_const(n->g, str_of(net_part(n, name, "all")), all));
    return cast(n, v, name, DT_F32);
}

/* The matrix (t, x*r) from the experts' one-hot numbers (t, x). */
static value_id dispatch(struct net *n, value_id chosen, const char *name, i64 tokens, i64 experts, i64 room)
{
    value_id before = net_op(n, "CumSum", net_part(n, name, "before"), chosen, net_ints(n, net_part(n, name, "along"), (i64[]){0}, 1));
    attr_set_int(n->g, graph_value(n->g, before)->producer, "exclusive", 1);
    value_id place = sum(n, net_op(n, "Mul", net_part(n, name, "places"), before, chosen), net_part(n, name, "place"), 1);
    place = one_hot(n, cast(n, place, net_part(n, name, "number"), DT_I64), net_part(n, name, "slot"), room);
    place = net_reshape(n, place, net_part(n, name, "slots"), 3, (i64[]){tokens, 1, room});
    chosen = net_reshape(n, chosen, net_part(n, name, "experts"), 3, (i64[]){tokens, experts, 1});
    return net_reshape(n, net_op(n, "Mul", net_part(n, name, "cells"), chosen, place), name, 2, (i64[]){tokens, experts * room});
}

/* (x, r, in) -> (x, r, out) */
static value_id expert_layer(struct net *n, value_id x, const char *name, const i64 dim[3], double gain)
{
    value_id w = net_normal(n, net_part(n, name, "weight"), 3, dim, 0, gain / sqrt((double)dim[1]));
    value_id b = net_normal(n, net_part(n, name, "bias"), 3, (i64[]){dim[0], 1, dim[2]}, 0, 0.1);
    return net_op(n, "Add", name, net_op(n, "MatMul", net_part(n, name, "product"), x, w), b);
}

/* (p, edge, edge, c) */
static value_id mixture(struct net *n, value_id x, const char *name, const struct stage *s)
{
    i64 c = s->t.width, hidden = 4 * c, experts = s->experts, tokens = s->p * s->edge * s->edge;
    i64 room = (5 * tokens + 4 * experts - 1) / (4 * experts);
    value_id rows = net_reshape(n, x, net_part(n, name, "tokens"), 2, (i64[]){tokens, c});
    value_id scores = net_dense(n, rows, net_part(n, name, "gate"), c, experts, 1, false);
    value_id share = net_axis(n, "Softmax", scores, net_part(n, name, "softmax"), -1);
    value_id chosen = one_hot(n, net_axis(n, "ArgMax", scores, net_part(n, name, "best"), 1), net_part(n, name, "chosen"), experts);
    value_id moves = dispatch(n, chosen, net_part(n, name, "dispatch"), tokens, experts, room);
    value_id v = net_op(n, "MatMul", net_part(n, name, "moved"), net_transpose(n, moves, net_part(n, name, "cells"), 2, (i64[]){1, 0}), rows);
    v = net_reshape(n, v, net_part(n, name, "inputs"), 3, (i64[]){experts, room, c});
    v = net_gelu(n, expert_layer(n, v, net_part(n, name, "up"), (i64[]){experts, c, hidden}, sqrt(2)), net_part(n, name, "act"));
    v = expert_layer(n, v, net_part(n, name, "down"), (i64[]){experts, hidden, c}, sqrt(0.5 / (double)s->t.layers));
    v = net_reshape(n, v, net_part(n, name, "outputs"), 2, (i64[]){experts * room, c});
    v = net_op(n, "MatMul", net_part(n, name, "returned"), moves, v);
    share = sum(n, net_op(n, "Mul", net_part(n, name, "shares"), share, chosen), net_part(n, name, "share"), 1);
    v = net_op(n, "Mul", net_part(n, name, "weighted"), v, share);
    return net_reshape(n, v, net_part(n, name, "picture"), 4, (i64[]){s->p, s->edge, s->edge, c});
}

/* Stages. */

static value_id block(struct net *n, value_id x, const char *name, const struct stage *s, bool is_shifted, bool is_mixture)
{
    value_id y = net_norm(n, x, net_part(n, name, "norm1"), &s->t, 1);
    y = window_attention(n, y, net_part(n, name, "attention"), s, is_shifted && s->shift);
    x = net_op(n, "Add", net_part(n, name, "sum1"), x, y);
    y = net_norm(n, x, net_part(n, name, "norm2"), &s->t, 1);
    y = is_mixture ? mixture(n, y, net_part(n, name, "moe"), s) : net_feed_forward(n, y, net_part(n, name, "mlp"), &s->t);
    return net_op(n, "Add", net_part(n, name, "sum2"), x, y);
}

/* Every second row or column from `from` on. */
static value_id every_second(struct net *n, value_id x, const char *name, i64 axis, i64 from)
{
    value_id in[] = {x, net_ints(n, net_part(n, name, "from"), &from, 1), net_ints(n, net_part(n, name, "to"), (i64[]){ZOO_LARGEST}, 1),
                     net_ints(n, net_part(n, name, "axis"), &axis, 1), net_ints(n, net_part(n, name, "step"), (i64[]){2}, 1)};
    return graph_op(n->g, "Slice", str_of(name), countof(in), in);
}

/* (p, edge, edge, c) -> (p, edge/2, edge/2, 2c) */
static value_id merge(struct net *n, value_id x, const char *name, const struct stage *s)
{
    value_id part[4];
    for (i64 k = 0; k < 4; k++) {
        const char *own = numbered(n, name, k);
        part[k] = every_second(n, every_second(n, x, net_part(n, own, "rows"), 1, k % 2), own, 2, k / 2);
    }
    value_id v = graph_op(n->g, "Concat", str_of(net_part(n, name, "four")), 4, part);
    attr_set_int(n->g, graph_value(n->g, v)->producer, "axis", -1);
    struct net_transformer wide = s->t;
    wide.width *= 4;
    v = net_norm(n, v, net_part(n, name, "norm"), &wide, 1);
    return net_dense(n, v, net_part(n, name, "half"), wide.width, 2 * s->t.width, 1, false);
}

static struct stage stage_at(struct net *n, const i64 *sizes, i64 k)
{
    i64 edge = sizes[IMAGE] / PATCH >> k, w = i64_min(sizes[WINDOW], edge);
    struct stage s = {.name = numbered(n, "stage", k), .p = sizes[BATCH], .edge = edge, .w = w, .padded = (edge + w - 1) / w * w,
                      .shift = w < edge ? w / 2 : 0, .experts = sizes[EXPERTS]};
    s.t = (struct net_transformer){.layers = sizes[LAYERS] + 6, .width = sizes[WIDTH] << k, .heads = sizes[HEADS] << k, .norm = NORM_LAYER,
                                   .epsilon = 1e-5, .act = ACT_GELU};
    return s;
}

/* Every block of the first stages, then every second one is a mixture. */
static value_id run_stage(struct net *n, value_id x, const struct stage *s, i64 k, i64 blocks)
{
    for (i64 i = 0; i < blocks; i++) x = block(n, x, numbered(n, net_part(n, s->name, "block"), i), s, i % 2, k < 2 || i % 2 == 0);
    return k + 1 < STAGES ? merge(n, x, net_part(n, s->name, "merge"), s) : x;
}

/* (p, c, rows, columns) -> (p, rows, columns, c) */
static value_id patches(struct net *n, const i64 *sizes, const struct net_transformer *t)
{
    long long edge = (long long)sizes[IMAGE];
    value_id x = net_input(n, "input", str_fmt(n->g->arena, "%lld 3 %lld %lld", (long long)sizes[BATCH], edge, edge).p);
    x = net_conv(n, x, &(struct net_conv){.name = "patches", .in = 3, .out = t->width, .size = PATCH, .stride = PATCH});
    return net_norm(n, net_transpose(n, x, "tokens", 4, (i64[]){0, 2, 3, 1}), "patches.norm", t, 1);
}

static bool build(struct graph *g, const i64 *sizes, struct err *e)
{
    struct net n = net_start(g, 13);
    n.e = e;
    struct stage s = stage_at(&n, sizes, 0);
    if (sizes[IMAGE] % (PATCH << (STAGES - 1)))
        return err_set(e, ERR_USAGE, "an image of %lld is not a multiple of %d", (long long)sizes[IMAGE], PATCH << (STAGES - 1));
    if (!net_transformer_check(&s.t, e)) return false;
    value_id x = patches(&n, sizes, &s.t);
    for (i64 k = 0; k < STAGES; k++) {
        s = stage_at(&n, sizes, k);
        x = run_stage(&n, x, &s, k, k == 2 ? sizes[LAYERS] : 2);
    }
    x = net_norm(&n, x, "norm", &s.t, 1);
    x = net_op(&n, "ReduceMean", "mean", x, net_ints(&n, "mean.axes", (i64[]){1, 2}, 2));
    attr_set_int(g, graph_value(g, x)->producer, "keepdims", 0);
    net_output(&n, net_dense(&n, x, "head", s.t.width, sizes[CLASSES], 1, true), "output");
    return true;
}

const struct zoo zoo_swin_moe = {
    .version = 2,
    .name = "swin-moe",
    .summary = "Swin transformer with mixtures of 4 experts, (1,3,192,192), random weights",
    .size = size,
    .build = build,
};
