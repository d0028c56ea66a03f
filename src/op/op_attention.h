// SPDX-License-Identifier: Apache-2.0
//
// Private to op/: what Attention (attention.c) and its gradient (attention_grad.c) share: sizes, checks, masks, scores. Dimensions:
//
//   b   batch          hq, hk  heads of the queries, of keys and values (hq a multiple of hk)
//   sq  queries        sk      keys given; st = past + sk keys attended
//   d   size of a head of queries and keys, dv of values
//
// Inputs are (b, h, s, d) or (b, s, h*d). Attributes are those of ONNX, and lower_right, which only the domain ai.quern has: 1: causal masks and windows
// count from the last query, which belongs to the last key, instead of the first one, which belongs to key past.
#ifndef QUERN_OP_ATTENTION_H
#define QUERN_OP_ATTENTION_H

#include "op/op.h"

enum { ATT_Q, ATT_K, ATT_V, ATT_MASK, ATT_PAST_K, ATT_PAST_V, ATT_LENGTHS, ATT_SINK, ATT_N_IN };

struct att_heads {
    u32 rank;                 /* of the inputs: 3 or 4 */
    i64 hq, hk;
    sym b, sq, sk, past, st, d, dv;
    enum dtype t, soft;       /* of the queries; of the softmax */
};
/* Checks the inputs ATT_Q to ATT_PAST_V. */
bool att_read(struct graph *g, node_id n, struct att_heads *h, struct err *e);
bool att_mask_ok(struct graph *g, node_id n, const struct att_heads *h, struct err *e);
bool att_others_ok(struct graph *g, node_id n, const struct att_heads *h, struct err *e); /* lengths and sinks */
sym att_times(struct graph *g, i64 a, sym b);

/* Expansion. */

struct att_build {
    struct graph *g;
    node_id n;
    struct att_heads h;
};
value_id att_output(const struct att_build *b, u32 k); /* 0: not wanted */
value_id att_input(const struct att_build *b, u32 k);  /* 0: omitted */
/* (b, s, h*d) -> (b, h, s, d); others unchanged. */
value_id att_by_heads(const struct att_build *b, value_id x, i64 heads, sym s, sym d);
/* (b, hq, sq, last) as (b, hk, hq/hk*sq, last), or back */
value_id att_group(const struct att_build *b, value_id v, sym last, bool back, value_id out);
/* x, of type t, times the scale; 1/sqrt(d) by default, which may be symbolic */
value_id att_scaled(const struct att_build *b, value_id x, enum dtype t);

struct att_bias {
    value_id allowed, added; /* bool, float of the softmax's type; 0: none */
    bool may_block;          /* a row may have no position left */
};
struct att_bias att_bias(const struct att_build *b);
value_id att_allowed(const struct att_build *b, const struct att_bias *s, value_id x); /* x where allowed, else -inf */

/* (b, hq, sq, st), of the softmax's type. */
struct att_scores {
    value_id product; /* scaled */
    value_id tanh;    /* of the product by the softcap; 0: there is none */
    value_id capped, masked;
};
/* q, k: (b, h, s, d), keys of all positions. */
struct att_scores att_scores(const struct att_build *b, const struct att_bias *s, value_id q, value_id k);

#endif
