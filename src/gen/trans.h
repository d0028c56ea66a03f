// SPDX-License-Identifier: Apache-2.0
//
// Private to gen/: transposed convolutions taken apart by phases (conv_transpose, conv_igemm, wg_conv, wg_igemm, mma_conv).
#ifndef QUERN_GEN_TRANS_H
#define QUERN_GEN_TRANS_H

#include "gen/conv.h"

enum { MAX_PHASES = 16 /* along an axis */ };

/* Outputs of a phase: those whose position (plus the begin pad) leaves residue r by the stride, at stride*q + lead. Its taps first +
   t*step, t < n, meet the inputs q + off - t*d. */
struct trans_phase { i64 first, n, off, lead; };

struct trans_axis {
    i64 s, k, begin;
    i64 step;   /* between the taps of a phase */
    i64 d;      /* between the inputs that they meet */
    i64 lo, hi; /* least and largest offset of an input, all phases */
    i64 n_max;  /* most taps of a phase */
    struct trans_phase phase[MAX_PHASES];
    sym in, out, q_lo, n_q; /* positions q: the first, and how many */
};

struct trans {
    const struct graph *g;
    value_id x, w, b, y;
    u32 rank;
    i64 groups, ic, oc; /* channels of one group */
    i64 phases;
    struct trans_axis ax[MAX_RANK];
    enum dtype type;
    bool clast; /* conv_transpose: outputs have channels innermost */
};
/* false: the anchor is none, or one of more than MAX_PHASES phases along an axis, or pads that are not known. */
bool trans_of(struct trans *c, const struct task *t);
/* Likewise as a convolution of stride 1 over positions q, of the most taps of a phase, in descending order of inputs: position q of a phase
   reads under tap t the input q + c->pad + lo + off - t*d. */
bool trans_as_conv(struct trans *x, struct conv *c, const struct task *t);

/* A phase's number, the last axis innermost -> its number along an axis. */
kval trans_phase_of(struct kir *k, const struct trans *c, kval number, u32 axis);
/* What differs from phase to phase along an axis: the first tap, 0 where there is none; how many; the offset of its input. */
enum trans_fact { FACT_FIRST, FACT_TAPS, FACT_OFFSET };
kval trans_fact(struct kir *k, const struct trans_axis *a, enum trans_fact f, kval phase); /* of a phase that the kernel knows */
bool trans_same_taps(const struct trans_axis *a); /* have all phases as many, and any? */
kval trans_output(struct emit *m, const struct trans_axis *a, kval q, kval phase); /* index of the output, which need not exist */

#endif
