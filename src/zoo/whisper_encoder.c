// SPDX-License-Identifier: Apache-2.0
//
// The encoder of Whisper, base size (Radford and others, "Robust Speech Recognition via Large-Scale Weak Supervision", 2022): a spectrogram
// of 80 channels and two frames for each token, two convolutions, sinusoidal positions. Keys have no bias.
#include "zoo/zoo.h"

#include <math.h>

enum { LAYERS, WIDTH, HEADS, TOKENS, BATCH, CHANNELS = 80 };

static const struct zoo_size size[] = {
    {"layers", 6, 2, "blocks"},
    {"width", 512, 32, "elements of a token"},
    {"heads", 8, 4, "attention heads"},
    {"tokens", 1500, 13, "tokens of a sequence: half of its frames"},
    {"batch", 0, 2, "sequences; 0: any"},
    {0},
};

/* (tokens, width): sines, then cosines, of wavelengths from 2 pi to 20000 pi. */
static value_id positions(struct net *n, i64 tokens, i64 width)
{
    i64 half = width / 2;
    struct tensor *t = net_floats(n, 2, (i64[]){tokens, width});
    if (t->rank != 2) return graph_add_const(n->g, S("positions"), t);
    for (i64 i = 0; i < tokens; i++)
        for (i64 k = 0; k < half; k++) {
            double angle = (double)i * pow(10000, -(double)k / fmax(1, (double)(half - 1)));
            elem_set_f64(DT_F32, t->data, i * width + k, sin(angle));
            elem_set_f64(DT_F32, t->data, i * width + half + k, cos(angle));
        }
    return graph_add_const(n->g, S("positions"), t);
}

static value_id conv_gelu(struct net *n, value_id x, const char *name, i64 in, i64 out, i64 stride)
{
    x = net_conv(n, x, &(struct net_conv){.name = name, .in = in, .out = out, .size = 3, .stride = stride, .pad = 1});
    return net_gelu(n, x, net_part(n, name, "gelu"));
}

static bool build(struct graph *g, const i64 *sizes, struct err *e)
{
    struct net n = net_start(g, 11);
    n.e = e;
    i64 width = sizes[WIDTH], tokens = sizes[TOKENS];
    struct net_transformer t = {.layers = sizes[LAYERS], .width = width, .heads = sizes[HEADS], .norm = NORM_LAYER, .epsilon = 1e-5,
                                .act = ACT_GELU, .no_key_bias = true};
    if (!net_transformer_check(&t, e)) return false;
    if (width % 2) return err_set(e, ERR_USAGE, "the width is odd: %lld", (long long)width);
    const char *batch = sizes[BATCH] ? str_fmt(g->arena, "%lld", (long long)sizes[BATCH]).p : "batch";
    value_id x = net_input(&n, "input_features", str_fmt(g->arena, "%s %d %lld", batch, CHANNELS, 2 * (long long)tokens).p);
    x = conv_gelu(&n, x, "conv1", CHANNELS, width, 1);
    x = conv_gelu(&n, x, "conv2", width, width, 2);
    x = net_op(&n, "Add", "embeddings", net_transpose(&n, x, "tokens", 3, (i64[]){0, 2, 1}), positions(&n, tokens, width));
    net_output(&n, net_norm(&n, net_blocks(&n, x, &t), "norm", &t, 1), "last_hidden_state");
    return true;
}

const struct zoo zoo_whisper_encoder = {
    .version = 2,
    .name = "whisper-encoder",
    .summary = "encoder of Whisper base, (batch,80,3000) spectrograms, random weights",
    .size = size,
    .build = build,
};
