// SPDX-License-Identifier: Apache-2.0
//
// CosmoFlow (A. Mathuriya and others, "CosmoFlow: Using Deep Learning to Learn the Universe at Scale", 2018) in the form of MLPerf HPC:
// a cube of the universe's matter at four times to four cosmological parameters. Five times a convolution 3x3x3 with zeros around,
// LeakyRelu and halving by a maximum pool, channels doubling from 32 to 512; then three layers that see everything, the last one
// through tanh, times 1.2. Dropout is left out, as in inference.
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

/* (1, features) -> (1, 4) */
static value_id parameters(struct net *n, value_id x, i64 features)
{
    const i64 out[] = {128, 64};
    for (i64 k = 0; k < countof(out); k++) {
        x = net_linear(n, x, numbered(n, "fc", k), features, out[k], sqrt(2.0 / (double)features));
        x = leaky(n, x, numbered(n, "fc_leaky", k));
        features = out[k];
    }
    x = net_op(n, "Tanh", "tanh", net_linear(n, x, "fc2", features, 4, sqrt(1.0 / (double)features)), 0);
    struct tensor *range = net_floats(n, 0, NULL);
    elem_set_f64(DT_F32, range->data, 0, 1.2);
    return net_op(n, "Mul", "scaled", x, graph_add_const(n->g, S("range"), range));
}

void cosmoflow(struct graph *g, i64 edge, u64 seed)
{
    struct net n = net_start(g, seed);
    long long e = (long long)edge;
    value_id x = net_input(&n, "input", str_fmt(g->arena, "1 4 %lld %lld %lld", e, e, e).p);
    i64 in = 4;
    for (i64 k = 0; k < 5; k++, edge /= 2) {
        i64 out = (i64)32 << k;
        x = net_conv(&n, x, &(struct net_conv){.name = numbered(&n, "conv", k), .in = in, .out = out, .size = 3, .pad = 1});
        x = net_pool(&n, leaky(&n, x, numbered(&n, "leaky", k)), numbered(&n, "pool", k), 2, 2, 0);
        in = out;
    }
    net_output(&n, parameters(&n, net_op(&n, "Flatten", "flatten", x, 0), in * edge * edge * edge), "output");
}
