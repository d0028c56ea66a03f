// SPDX-License-Identifier: Apache-2.0
//
// GPT-2 in the form of deepgen: separate linear layers of queries, keys and values, exact Gelu, a vocabulary of 32,000, no biases but
// that of the head.
#include "zoo/zoo.h"

enum { LAYERS, WIDTH, HEADS, HIDDEN, VOCABULARY, POSITIONS, TOKENS, BATCH };

static const struct zoo_size size[] = {
    {"layers", 12, 2, "blocks"},
    {"width", 768, 48, "elements of a token"},
    {"heads", 12, 3, "attention heads"},
    {"hidden", 3072, 96, "width of the feed-forward layers"},
    {"vocabulary", 32000, 50, "rows of the table of tokens, columns of the head"},
    {"positions", 1024, 24, "rows of the table of positions: the longest sequence"},
    {"tokens", 1024, 16, "tokens of a sequence"},
    {"batch", 1, 2, "sequences"},
    {0},
};

static bool build(struct graph *g, const i64 *sizes, struct err *e)
{
    struct net n = net_start(g, 8);
    n.e = e;
    struct net_transformer t = {.layers = sizes[LAYERS], .width = sizes[WIDTH], .heads = sizes[HEADS], .hidden = sizes[HIDDEN],
                                .norm = NORM_LAYER, .epsilon = 1e-12, .act = ACT_GELU, .no_bias = true};
    const struct zoo_deepgen d = {.vocabulary = sizes[VOCABULARY], .positions = sizes[POSITIONS], .tokens = sizes[TOKENS], .batch = sizes[BATCH],
                                  .has_head = true};
    return zoo_deepgen(&n, &t, &d);
}

const struct zoo zoo_gpt2_deepgen = {
    .version = 2,
    .name = "gpt2-deepgen",
    .summary = "deepgen's GPT-2, 12 layers, separate projections, (1,1024) tokens, random weights",
    .size = size,
    .build = build,
};
