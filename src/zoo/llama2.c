// SPDX-License-Identifier: Apache-2.0
//
// Llama 2 in the sizes of 7B: 27 GB of weights. With 4 layers: 4.3 GB.
#include "zoo/zoo.h"

enum { LAYERS, WIDTH, HEADS, HIDDEN, VOCABULARY, TOKENS, BATCH };

static const struct zoo_size size[] = {
    {"layers", 32, 2, "blocks"},
    {"width", 4096, 32, "elements of a token"},
    {"heads", 32, 4, "attention heads"},
    {"hidden", 11008, 88, "width of the feed-forward layers"},
    {"vocabulary", 32000, 50, "rows of the table of tokens, columns of the head"},
    {"tokens", 0, 13, "tokens of a sequence; 0: any"},
    {"batch", 0, 2, "sequences; 0: any"},
    {0},
};

static bool build(struct graph *g, const i64 *sizes, struct err *e)
{
    struct net n = net_start(g, 9);
    n.e = e;
    struct net_transformer t = {.layers = sizes[LAYERS], .width = sizes[WIDTH], .heads = sizes[HEADS], .hidden = sizes[HIDDEN], .theta = 10000};
    return zoo_llama(&n, &t, &(struct zoo_llama){.vocabulary = sizes[VOCABULARY], .tokens = sizes[TOKENS], .batch = sizes[BATCH]});
}

const struct zoo zoo_llama2 = {
    .version = 2,
    .name = "llama2",
    .summary = "Llama 2 7B (27 GB; --layers 4: 4.3 GB), (batch,sequence) tokens to logits, random weights",
    .size = size,
    .build = build,
};
