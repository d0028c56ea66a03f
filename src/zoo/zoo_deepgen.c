// SPDX-License-Identifier: Apache-2.0
//
// The models of the kernel generator deepgen (doc/gemm.md): three tables of embeddings and a norm in front of the blocks, no biases, a
// causal mask of infinities even for BERT.
#include "zoo/zoo.h"

#include <math.h>

bool zoo_deepgen(struct net *n, struct net_transformer *t, const struct zoo_deepgen *d)
{
    if (!net_transformer_check(t, n->e)) return false;
    value_id ids = net_ids(n, "input_ids", d->batch, d->tokens), count = net_count(n, ids, "tokens", 1);
    value_id x = net_embed(n, ids, "embeddings.token", d->vocabulary, t->width, sqrt(0.5), NULL);
    value_id p = net_positions(n, count, "embeddings.position", d->positions, t->width, sqrt(0.5));
    x = net_op(n, "Add", "embeddings.type.sum", x, net_normal(n, "embeddings.type", 1, &t->width, 0, 0.1));
    x = net_norm(n, net_op(n, "Add", "embeddings.sum", x, p), "embeddings.norm", t, 1);
    t->bias = net_causal(n, count, -INFINITY);
    x = net_blocks(n, x, t);
    if (d->has_head) x = net_dense(n, net_norm(n, x, "norm", t, 1), "head", t->width, d->vocabulary, 1, true);
    net_output(n, x, "output");
    return true;
}
