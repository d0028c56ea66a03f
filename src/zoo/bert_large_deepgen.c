// SPDX-License-Identifier: Apache-2.0
//
// BERT-large in the form of deepgen: 16 layers, a vocabulary of 32,000, norms with the unbiased deviation, a causal mask. All of its
// matrix products are of powers of two.
#include "zoo/zoo.h"

enum { LAYERS, WIDTH, HEADS, HIDDEN, VOCABULARY, POSITIONS, TOKENS, BATCH };

static const struct zoo_size size[] = {
    {"layers", 16, 2, "blocks"},
    {"width", 1024, 32, "elements of a token"},
    {"heads", 16, 4, "attention heads"},
    {"hidden", 4096, 64, "width of the feed-forward layers"},
    {"vocabulary", 32000, 50, "rows of the table of tokens"},
    {"positions", 32000, 24, "rows of the table of positions: the longest sequence"},
    {"tokens", 1024, 16, "tokens of a sequence"},
    {"batch", 1, 2, "sequences"},
    {0},
};

static bool build(struct graph *g, const i64 *sizes, struct err *e)
{
    struct net n = net_start(g, 6);
    n.e = e;
    struct net_transformer t = {.layers = sizes[LAYERS], .width = sizes[WIDTH], .heads = sizes[HEADS], .hidden = sizes[HIDDEN],
                                .norm = NORM_UNBIASED, .epsilon = 1e-6, .act = ACT_GELU, .no_bias = true, .is_post_norm = true};
    const struct zoo_deepgen d = {.vocabulary = sizes[VOCABULARY], .positions = sizes[POSITIONS], .tokens = sizes[TOKENS], .batch = sizes[BATCH]};
    return zoo_deepgen(&n, &t, &d);
}

const struct zoo zoo_bert_large_deepgen = {
    .version = 2,
    .name = "bert-large-deepgen",
    .summary = "deepgen's BERT-large, 16 layers, causal, no biases, (1,1024) tokens, random weights",
    .size = size,
    .build = build,
};
