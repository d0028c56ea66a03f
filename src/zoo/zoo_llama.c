// SPDX-License-Identifier: Apache-2.0
//
// Networks of the Llama family (Touvron and others, "Llama 2", 2023), as transformers' LlamaForCausalLM: RMS norms, rotary embeddings of
// halves, gated feed-forward layers, no biases, a causal mask that is added.
#include "zoo/zoo.h"

#include <math.h>

bool zoo_llama(struct net *n, struct net_transformer *t, const struct zoo_llama *l)
{
    t->norm = NORM_RMS, t->epsilon = 1e-5, t->act = ACT_SILU, t->no_bias = true;
    if (!net_transformer_check(t, n->e)) return false;
    value_id ids = net_ids(n, "input_ids", l->batch, l->tokens), table;
    value_id x = net_embed(n, ids, "embed_tokens", l->vocabulary, t->width, 1, &table);
    t->bias = net_causal(n, net_count(n, ids, "tokens", 1), -3.4028234663852886e38);
    net_rotary(n, t, ids);
    x = net_norm(n, net_blocks(n, x, t), "norm", t, l->is_tied ? sqrt(1 / (double)t->width) : 1);
    if (l->is_tied) x = net_op(n, "MatMul", "lm_head", x, net_transpose(n, table, "lm_head.weight", 2, (i64[]){1, 0}));
    else x = net_dense(n, x, "lm_head", t->width, l->vocabulary, 1, false);
    net_output(n, x, "logits");
    return true;
}
