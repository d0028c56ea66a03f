// SPDX-License-Identifier: Apache-2.0
//
// Building blocks of the zoo's networks: nodes in the vocabulary of opset 18, as PyTorch's exporter
// would write them, and seeded weights. Convolutions are He-initialised, so that values keep their
// size through many layers and errors show.
#include "zoo/zoo.h"

#include <math.h>

struct net net_start(struct graph *g, u64 seed)
{
    return (struct net){.g = g, .rng = rng_seed(seed)};
}

const char *net_part(struct net *n, const char *name, const char *part)
{
    return str_fmt(n->g->arena, "%s.%s", name, part).p;
}

value_id net_input(struct net *n, const char *name, const char *dims)
{
    value_id v = graph_add_value(n->g, str_of(name));
    struct str rest = str_of(dims), head;
    struct shape s = {.known = true};
    while (rest.n) {
        str_cut(rest, ' ', &head, &rest);
        s.dim[s.rank++] = sym_parse(n->g->sym, head, NULL);
    }
    n->axes = s.rank > 2 ? s.rank - 2 : 0;
    graph_value(n->g, v)->dtype = DT_F32;
    graph_value(n->g, v)->shape = s;
    *arr_push(n->g->arena, &n->g->input) = v;
    return v;
}

void net_output(struct net *n, value_id v, const char *name)
{
    *arr_push(n->g->arena, &n->g->output) = net_op(n, "Identity", name, v, 0);
}

value_id net_ints(struct net *n, const char *name, const i64 *v, i64 count)
{
    struct tensor *t = tensor_new(n->g->arena, DT_I64, 1, &count);
    for (i64 i = 0; i < count; i++) elem_set_i64(DT_I64, t->data, i, v[i]);
    return graph_add_const(n->g, str_of(name), t);
}

struct tensor *net_floats(struct net *n, u32 rank, const i64 *dim)
{
    static const i64 none[MAX_RANK] = {0};
    if (!n->e) return tensor_new(n->g->arena, DT_F32, rank, dim);
    struct tensor *t = n->e->code ? NULL : tensor_try(n->g->arena, DT_F32, rank, dim, n->e, "the weights", (struct str){0});
    return t ? t : tensor_new(n->g->arena, DT_F32, 1, none);
}

value_id net_normal(struct net *n, const char *name, u32 rank, const i64 *dim, double mean,
                    double deviation)
{
    struct tensor *t = net_floats(n, rank, dim);
    for (i64 i = 0, count = tensor_count(t); i < count; i++)
        elem_set_f64(DT_F32, t->data, i, mean + deviation * rng_normal(&n->rng));
    return graph_add_const(n->g, str_of(name), t);
}

value_id net_op(struct net *n, const char *op, const char *name, value_id a, value_id b)
{
    return graph_op(n->g, op, str_of(name), b ? 2 : 1, (value_id[]){a, b});
}

static node_id producer(const struct net *n, value_id v) { return graph_value(n->g, v)->producer; }

/* An attribute with one number per axis of a picture, or two: at the beginning and the end. */
static void set_window(struct net *n, value_id v, const char *attr, i64 x)
{
    i64 all[2 * MAX_RANK];
    for (u32 i = 0; i < countof(all); i++) all[i] = x;
    attr_set_ints(n->g, producer(n, v), attr, all, str_is(str_of(attr), "pads") ? 2 * n->axes : n->axes);
}

value_id net_conv(struct net *n, value_id x, const struct net_conv *c)
{
    i64 groups = c->groups ? c->groups : 1, dim[MAX_RANK] = {c->out, c->in / groups}, terms = dim[1];
    for (u32 a = 0; a < n->axes; a++) dim[2 + a] = c->size, terms *= c->size;
    value_id in[3] = {x, net_normal(n, net_part(n, c->name, "weight"), 2 + n->axes, dim, 0, sqrt(2.0 / (double)terms))};
    if (!c->no_bias) in[2] = net_normal(n, net_part(n, c->name, "bias"), 1, dim, 0, 0.02);
    value_id v = graph_op(n->g, "Conv", str_of(c->name), c->no_bias ? 2 : 3, in);
    set_window(n, v, "kernel_shape", c->size);
    set_window(n, v, "strides", c->stride ? c->stride : 1);
    set_window(n, v, "pads", c->pad);
    attr_set_int(n->g, producer(n, v), "group", groups);
    return v;
}

value_id net_conv_relu(struct net *n, value_id x, const struct net_conv *c)
{
    return net_op(n, "Relu", net_part(n, c->name, "relu"), net_conv(n, x, c), 0);
}

value_id net_batch_norm(struct net *n, value_id x, const char *name, i64 channels, double scale)
{
    value_id in[5] = {x,
                      net_normal(n, net_part(n, name, "weight"), 1, &channels, scale, 0.1 * scale),
                      net_normal(n, net_part(n, name, "bias"), 1, &channels, 0, 0.1),
                      net_normal(n, net_part(n, name, "mean"), 1, &channels, 0, 0.1)};
    struct tensor *var = net_floats(n, 1, &channels);
    for (i64 i = 0; i < channels; i++) elem_set_f64(DT_F32, var->data, i, 0.5 + rng_f64(&n->rng));
    in[4] = graph_add_const(n->g, str_of(net_part(n, name, "var")), var);
    value_id v = graph_op(n->g, "BatchNormalization", str_of(name), 5, in);
    attr_set_float(n->g, producer(n, v), "epsilon", 1e-5);
    return v;
}

value_id net_pool(struct net *n, value_id x, const char *name, i64 size, i64 stride, i64 pad)
{
    value_id v = net_op(n, "MaxPool", name, x, 0);
    set_window(n, v, "kernel_shape", size);
    set_window(n, v, "strides", stride);
    set_window(n, v, "pads", pad);
    return v;
}

value_id net_up(struct net *n, value_id x, const char *name)
{
    i64 four = 4;
    struct tensor *t = net_floats(n, 1, &four);
    for (i64 i = 0; i < 4; i++) elem_set_f64(DT_F32, t->data, i, i < 2 ? 1 : 2);
    value_id scales = graph_add_const(n->g, str_of(net_part(n, name, "scales")), t);
    value_id v = graph_op(n->g, "Resize", str_of(name), 3, (value_id[]){x, 0, scales});
    attr_set_str(n->g, producer(n, v), "mode", S("nearest"));
    attr_set_str(n->g, producer(n, v), "coordinate_transformation_mode", S("asymmetric"));
    attr_set_str(n->g, producer(n, v), "nearest_mode", S("floor"));
    return v;
}

value_id net_concat(struct net *n, value_id a, value_id b, const char *name)
{
    value_id v = net_op(n, "Concat", name, a, b);
    attr_set_int(n->g, producer(n, v), "axis", 1);
    return v;
}

value_id net_pad_to(struct net *n, value_id x, i64 align, value_id *size)
{
    value_id shape = net_op(n, "Shape", "shape", x, 0);
    value_id hw = graph_op(n->g, "Slice", S("size"), 3,
                           (value_id[]){shape, net_ints(n, "size.from", (i64[]){2}, 1),
                                        net_ints(n, "size.to", (i64[]){4}, 1)});
    value_id multiple = net_ints(n, "align", &align, 1), negative = net_op(n, "Neg", "size.negative", hw, 0);
    value_id missing = net_op(n, "Mod", "missing", negative, multiple);
    value_id pads =
        net_op(n, "Concat", "pads", net_ints(n, "pads.before", (i64[6]){0}, 6), missing);
    attr_set_int(n->g, producer(n, pads), "axis", 0);
    value_id v = net_op(n, "Pad", "pad", x, pads);
    attr_set_str(n->g, producer(n, v), "mode", S("edge"));
    *size = hw;
    return v;
}

value_id net_crop(struct net *n, value_id x, value_id size)
{
    value_id in[] = {x, net_ints(n, "crop.from", (i64[]){0, 0}, 2), size,
                     net_ints(n, "crop.axes", (i64[]){2, 3}, 2)};
    return graph_op(n->g, "Slice", S("crop"), 4, in);
}

value_id net_linear(struct net *n, value_id x, const char *name, i64 in, i64 out, double deviation)
{
    value_id w = net_normal(n, net_part(n, name, "weight"), 2, (i64[]){out, in}, 0, deviation);
    value_id b = net_normal(n, net_part(n, name, "bias"), 1, &out, 0, 0.02);
    value_id v = graph_op(n->g, "Gemm", str_of(name), 3, (value_id[]){x, w, b});
    attr_set_int(n->g, producer(n, v), "transB", 1);
    return v;
}

value_id net_classify(struct net *n, value_id x, i64 channels, i64 classes)
{
    value_id mean =
        net_op(n, "Flatten", "flatten", net_op(n, "GlobalAveragePool", "mean", x, 0), 0);
    return net_linear(n, mean, "fc", channels, classes, sqrt(1.0 / (double)channels));
}
