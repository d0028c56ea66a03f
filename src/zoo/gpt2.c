// SPDX-License-Identifier: Apache-2.0
//
// GPT-2, the smallest (Radford and others, "Language Models are Unsupervised Multitask Learners", 2019), as transformers' GPT2LMHeadModel:
// queries, keys and values by one linear layer, scores selected by a stored triangle, the table of tokens as the head, too.
#include "zoo/zoo.h"

#include <math.h>

enum { LAYERS, WIDTH, HEADS, VOCABULARY, POSITIONS, TOKENS, BATCH };

static const struct zoo_size size[] = {
    {"layers", 12, 2, "blocks"},
    {"width", 768, 48, "elements of a token"},
    {"heads", 12, 3, "attention heads"},
    {"vocabulary", 50257, 50, "rows of the table of tokens, which is also the head"},
    {"positions", 1024, 24, "rows of the table of positions: the longest sequence"},
    {"tokens", 0, 13, "tokens of a sequence; 0: any"},
    {"batch", 0, 2, "sequences; 0: any"},
    {0},
};

/* (1, 1, s, s) of a stored (1, 1, positions, positions) */
static value_id triangle(struct net *n, i64 positions, value_id count)
{
    const i64 dim[] = {1, 1, positions, positions};
    struct tensor *t = tensor_try(n->g->arena, DT_BOOL, 4, dim, n->e, "the triangle of positions", (struct str){0});
    for (i64 i = 0; t && i < positions; i++)
        for (i64 j = 0; j <= i; j++) elem_set_i64(DT_BOOL, t->data, i * positions + j, 1);
    value_id v = t ? graph_add_const(n->g, S("triangle"), t) : 0;
    return v ? net_first(n, net_first(n, v, "triangle.rows", 2, count), "triangle.part", 3, count) : 0;
}

static bool build(struct graph *g, const i64 *sizes, struct err *e)
{
    struct net n = net_start(g, 7);
    n.e = e;
    i64 width = sizes[WIDTH];
    struct net_transformer t = {.layers = sizes[LAYERS], .width = width, .heads = sizes[HEADS], .norm = NORM_LAYER, .epsilon = 1e-5,
                                .act = ACT_GELU_TANH, .is_packed = true};
    if (!net_transformer_check(&t, e)) return false;
    value_id ids = net_ids(&n, "input_ids", sizes[BATCH], sizes[TOKENS]), count = net_count(&n, ids, "tokens", 1), table;
    value_id x = net_embed(&n, ids, "wte", sizes[VOCABULARY], width, sqrt(0.5), &table);
    x = net_op(&n, "Add", "embeddings", x, net_positions(&n, count, "wpe", sizes[POSITIONS], width, sqrt(0.5)));
    t.allowed = triangle(&n, sizes[POSITIONS], count);
    x = net_norm(&n, net_blocks(&n, x, &t), "norm", &t, sqrt(2 / (double)width));
    net_output(&n, net_op(&n, "MatMul", "head", x, net_transpose(&n, table, "head.weight", 2, (i64[]){1, 0})), "logits");
    return true;
}

const struct zoo zoo_gpt2 = {
    .version = 2,
    .name = "gpt2",
    .summary = "GPT-2, 12 layers of 768, (batch,sequence) tokens to logits, random weights",
    .size = size,
    .build = build,
};
