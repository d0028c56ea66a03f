// SPDX-License-Identifier: Apache-2.0
//
// Private to gen/: transposed convolutions taken apart by phases (conv_transpose, group_conv, matrix_conv).
#ifndef QUERN_GEN_TRANS_H
#define QUERN_GEN_TRANS_H

#include "gen/gen.h"

enum { MAX_PHASES = 16 };

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
/* false: the anchor is none, or one of more than MAX_PHASES phases, or pads that are not known. */
bool trans_of(struct trans *c, const struct task *t);

#endif
