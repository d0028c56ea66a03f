// SPDX-License-Identifier: Apache-2.0
//
// Private to op/: what the attention operators of com.microsoft share. They become Attention of ai.onnx, or quern::Attention. Dimensions:
// b batch, s queries, t keys attended to (past and present), h heads, hk of keys and values, d size of a head, dv of values.
#ifndef QUERN_OP_MS_H
#define QUERN_OP_MS_H

#include "op/op.h"

enum { MS_AT = 2 }; /* axis of (b, h, s, d) */

/* Attention operands: 4-d (b, h, s, d). */
struct ms_att {
    struct graph *g;
    node_id n;
    struct node nd;      /* the node as it was */
    value_id q, k, v;
    value_id bias;       /* added to the scores, float; 0: none */
    value_id allowed;    /* bool; 0: all */
    value_id sink;       /* (h); 0: none */
    value_id past_k, past_v;
    value_id present_k, present_v; /* outputs; 0: not wanted */
    value_id y3;         /* output (b, s, h*d) */
    sym b, s, t;         /* batch, queries, keys attended to */
    i64 h;
    sym dv;              /* of a head of values */
    enum dtype type;
    bool causal;
    i64 left;            /* left_window_size; -1: unbounded */
};

/* The sizes that operands, masks, biases and caches have to agree with. */
struct ms_sizes { sym b, s, t, d, dv; i64 h, hk; };

value_id ms_output(const struct node *nd, u32 k); /* 0: not wanted */
sym ms_num(const struct graph *g, i64 v);
/* NULL-terminated names of attributes that must be 0 */
bool ms_refuse_attr(const struct graph *g, node_id n, const char *const *names, struct err *e);

/* Checks; inputs that are missing pass. */
bool ms_mask_ok(struct graph *g, node_id n, u32 k, const struct ms_sizes *z, struct err *e); /* of integers: (b, t), (b, s, t); rank 1: see ms_read_mask */
bool ms_bias_ok(struct graph *g, node_id n, u32 k, const struct ms_sizes *z, struct err *e); /* attention_bias */
/* past_key and past_value, inputs k and k + 1; *past: their positions, 0 if there are none. */
bool ms_past_ok(struct graph *g, node_id n, u32 k, const struct ms_sizes *z, sym *past, struct err *e);
/* Size of each of so many heads along an axis of input k. */
bool ms_split_ok(struct graph *g, node_id n, u32 k, u32 axis, i64 heads, sym *d, struct err *e);

/* Expansion. */
void ms_start(struct ms_att *a, struct graph *g, node_id n);
value_id ms_by_heads(struct ms_att *a, value_id x, sym s, i64 heads, sym d); /* (b, s, h*d) -> (b, h, s, d) */
/* Whether key j is below (from: not below) the number of its batch, (b, 1, 1, t). */
value_id ms_below(struct ms_att *a, value_id lengths, bool from);
/* Adds what input k, if there is one, says to the bias: a raw mask (b, t) or (b, s, t), lengths (b), or ends and starts (2b). */
bool ms_read_mask(struct ms_att *a, u32 k, struct err *e);
void ms_add_bias(struct ms_att *a, u32 k); /* input k is attention_bias */
void ms_add_sink(struct ms_att *a, u32 k); /* input k, or attribute smooth_softmax, a sink of 0: one more term of each softmax */
/* Queries or keys (b, h, s, d): normalised by the weights of input k, if there is one; rotated by positions (b, s) of the tables, inputs k and k + 1.
   ids 0: not rotated. */
value_id ms_normalised(struct ms_att *a, value_id x, u32 k, double epsilon);
value_id ms_rotated(struct ms_att *a, value_id x, u32 k, value_id ids);
value_id ms_attend(struct ms_att *a);      /* the node Attention and the conversion of its output, which it returns */

#endif
