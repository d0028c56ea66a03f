// SPDX-License-Identifier: Apache-2.0
//
// Llama 3.2 in the sizes of 1B: four heads of queries share one of keys and values, and the table of tokens is the head, too. 4.9 GB.
// Wavelengths are not stretched for long contexts.
#include "zoo/zoo.h"

enum { LAYERS, WIDTH, HEADS, KV_HEADS, HIDDEN, VOCABULARY, TOKENS, BATCH };

static const struct zoo_size size[] = {
    {"layers", 16, 2, "blocks"},
    {"width", 2048, 48, "elements of a token"},
    {"heads", 32, 6, "attention heads of queries"},
    {"kv-heads", 8, 2, "attention heads of keys and values"},
    {"hidden", 8192, 80, "width of the feed-forward layers"},
    {"vocabulary", 128256, 50, "rows of the table of tokens, which is also the head"},
    {"tokens", 0, 13, "tokens of a sequence; 0: any"},
    {"batch", 0, 2, "sequences; 0: any"},
    {0},
};

static bool build(struct graph *g, const i64 *sizes, struct err *e)
{
    struct net n = net_start(g, 10);
    n.e = e;
    struct net_transformer t = {.layers = sizes[LAYERS], .width = sizes[WIDTH], .heads = sizes[HEADS], .kv_heads = sizes[KV_HEADS],
                                .hidden = sizes[HIDDEN], .theta = 500000};
    return zoo_llama(&n, &t, &(struct zoo_llama){.vocabulary = sizes[VOCABULARY], .tokens = sizes[TOKENS], .batch = sizes[BATCH], .is_tied = true});
}

const struct zoo zoo_llama3_1b = {
    .version = 2,
    .name = "llama3-1b",
    .summary = "Llama 3.2 1B (4.9 GB), grouped heads, (batch,sequence) tokens to logits, random weights",
    .size = size,
    .build = build,
};
