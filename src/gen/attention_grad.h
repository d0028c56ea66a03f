// SPDX-License-Identifier: Apache-2.0
//
// Private to gen/: the gradients of attention taken apart, and their emission on processors (family/attention_grad.c).
// Dims: scores and slopes (b.., m, n); scores = q (b.., m, d) x k (b.., d, n); slopes = dy (b.., m, e) x v (b.., e, n), the gradients by probabilities.
// dz, p (b.., m, n): functions of a score and its slope. dq (b.., m, d) = dz x k; dk (b.., n, d) = dz^T x q; dv (b.., n, e) = p^T x dy.
// Rows m are queries, of several heads where these share keys; columns n are keys.
#ifndef QUERN_GEN_ATTENTION_GRAD_H
#define QUERN_GEN_ATTENTION_GRAD_H

#include "gen/attention.h"

struct attention_grad {
    struct gemm scores, slopes;
    struct gemm queries, keys, values; /* of dq, dk and dv; `simple`: of the outputs that depend on each */
    u32 n_between;                     /* nodes that compute something for each score */
    struct attention form;             /* the scores, and which of them masks exclude; p is dz */
};
/* false: not these five matmuls with pointwise functions and views between them. */
bool attention_grad_of(struct attention_grad *x, const struct task *t);
/* Sets form.has_band, band, has_mask: where p is an exponential of masked scores, times whose factor dz is. */
void attention_grad_form(struct attention_grad *x, const struct task *t, const struct caps *c);

struct attention_grad_sched {
    i64 mr, nr; /* register tiles of scores and slopes: rows, vectors of keys; mr: of dq, too */
    i64 mk, nv; /* of dk and dv: keys; vectors of columns, of dq, too */
    i64 mb;     /* tiles of rows at a time, at most; 0: all */
    i64 nb;     /* blocks of keys at a time */
    i64 split_m; /* grid iterations that share a head's rows */
    i64 ku;     /* terms per step of the inner loops */
};
void attention_grad_emit(struct emit *m, const struct task *t, const struct caps *c, const struct attention_grad_sched *s);

#endif
