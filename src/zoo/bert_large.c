// SPDX-License-Identifier: Apache-2.0
//
// BERT-large (Devlin and others, "BERT", 2019), as transformers' BertModel: keys whose attention mask is 0 are padding. All tokens are of
// the first type.
#include "zoo/zoo.h"

#include <math.h>

enum { LAYERS, WIDTH, HEADS, HIDDEN, VOCABULARY, POSITIONS, TOKENS, BATCH };

static const struct zoo_size size[] = {
    {"layers", 24, 2, "blocks"},
    {"width", 1024, 32, "elements of a token"},
    {"heads", 16, 4, "attention heads"},
    {"hidden", 4096, 72, "width of the feed-forward layers"},
    {"vocabulary", 30522, 50, "rows of the table of tokens"},
    {"positions", 512, 24, "rows of the table of positions: the longest sequence"},
    {"tokens", 0, 13, "tokens of a sequence; 0: any"},
    {"batch", 0, 2, "sequences; 0: any"},
    {0},
};

/* (batch, 1, 1, sequence) */
static value_id padding(struct net *n, const i64 *sizes)
{
    value_id mask = net_ids(n, "attention_mask", sizes[BATCH], sizes[TOKENS]);
    value_id v = net_op(n, "Cast", "mask", mask, 0);
    attr_set_int(n->g, graph_value(n->g, v)->producer, "to", dtype_onnx(DT_BOOL));
    return net_op(n, "Unsqueeze", "mask.keys", v, net_ints(n, "mask.axes", (i64[]){1, 2}, 2));
}

static bool build(struct graph *g, const i64 *sizes, struct err *e)
{
    struct net n = net_start(g, 14);
    n.e = e;
    i64 width = sizes[WIDTH];
    struct net_transformer t = {.layers = sizes[LAYERS], .width = width, .heads = sizes[HEADS], .hidden = sizes[HIDDEN],
                                .norm = NORM_LAYER, .epsilon = 1e-12, .act = ACT_GELU, .is_post_norm = true};
    if (!net_transformer_check(&t, e)) return false;
    value_id ids = net_ids(&n, "input_ids", sizes[BATCH], sizes[TOKENS]);
    t.allowed = padding(&n, sizes);
    value_id x = net_embed(&n, ids, "embeddings.token", sizes[VOCABULARY], width, sqrt(0.5), NULL);
    value_id p = net_positions(&n, net_count(&n, ids, "tokens", 1), "embeddings.position", sizes[POSITIONS], width, sqrt(0.5));
    x = net_op(&n, "Add", "embeddings.type.sum", x, net_normal(&n, "embeddings.type", 1, &width, 0, 0.1));
    x = net_norm(&n, net_op(&n, "Add", "embeddings.sum", x, p), "embeddings.norm", &t, 1);
    x = net_blocks(&n, x, &t);
    net_output(&n, x, "last_hidden_state");
    x = net_reshape(&n, net_slice(&n, x, "pooler.first", 1, 0, 1), "pooler.row", 2, (i64[]){0, width});
    net_output(&n, net_op(&n, "Tanh", "pooler.tanh", net_dense(&n, x, "pooler", width, width, 1, true), 0), "pooler_output");
    return true;
}

const struct zoo zoo_bert_large = {
    .version = 2,
    .name = "bert-large",
    .summary = "BERT-large, 24 layers, (batch,sequence) tokens and attention mask, random weights",
    .size = size,
    .build = build,
};
