// SPDX-License-Identifier: Apache-2.0
//
// CosmoFlow (A. Mathuriya and others, "CosmoFlow: Using Deep Learning to Learn the Universe at Scale", 2018), from a cube of the universe's matter
// to cosmological parameters. Convolutions 3x3x3 with zeros around and LeakyRelu, halving by maximum pools, channels doubling; then layers that see
// everything. Dropout is left out, as in inference.
#include "zoo/zoo.h"

#include <math.h>

static const char *numbered(struct net *n, const char *name, i64 k)
{
    return str_fmt(n->g->arena, "%s%lld", name, (long long)k).p;
}

static value_id leaky(struct net *n, value_id x, const char *name)
{
    value_id v = net_op(n, "LeakyRelu", name, x, 0);
    attr_set_float(n->g, graph_value(n->g, v)->producer, "alpha", 0.3);
    return v;
}

/* (1, features) -> (1, parameters) */
static value_id parameters(struct net *n, value_id x, i64 features, const struct cosmoflow *c)
{
    for (i64 k = 0; k < countof(c->hidden); k++) {
        x = net_linear(n, x, numbered(n, "fc", k), features, c->hidden[k], sqrt(2.0 / (double)features));
        x = leaky(n, x, numbered(n, "fc_leaky", k));
        features = c->hidden[k];
    }
    x = net_linear(n, x, "fc2", features, c->parameters, sqrt(1.0 / (double)features));
    if (!(c->range > 0)) return x;
    struct tensor *range = net_floats(n, 0, NULL);
    elem_set_f64(DT_F32, range->data, 0, c->range);
    value_id most = graph_add_const(n->g, S("range"), range);
    return net_op(n, "Mul", "scaled", net_op(n, "Tanh", "tanh", x, 0), most);
}

void cosmoflow(struct graph *g, const struct cosmoflow *c, i64 edge, u64 seed)
{
    struct net n = net_start(g, seed);
    long long e = (long long)edge;
    value_id x = net_input(&n, "input", str_fmt(g->arena, "1 %lld %lld %lld %lld", (long long)c->channels, e, e, e).p);
    i64 in = c->channels;
    for (i64 k = 0; k < c->convs; k++) {
        i64 out = i64_min(c->first << k, c->most);
        x = net_conv(&n, x, &(struct net_conv){.name = numbered(&n, "conv", k), .in = in, .out = out, .size = 3, .pad = 1});
        x = leaky(&n, x, numbered(&n, "leaky", k));
        if (k < c->pools) x = net_pool(&n, x, numbered(&n, "pool", k), 2, 2, 0), edge /= 2;
        in = out;
    }
    net_output(&n, parameters(&n, net_op(&n, "Flatten", "flatten", x, 0), in * edge * edge * edge, c), "output");
}

const struct cosmoflow cosmoflow_mlperf = {
    .channels = 4, .convs = 5, .pools = 5, .first = 32, .most = 512, .hidden = {128, 64}, .parameters = 4, .range = 1.2};
const struct cosmoflow cosmoflow_first = {.channels = 1, .convs = 7, .pools = 6, .first = 16, .most = 256, .hidden = {2048, 256}, .parameters = 3};
