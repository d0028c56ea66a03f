// SPDX-License-Identifier: Apache-2.0
//
// Verification of convolutions that can fail: a kernel's outputs on contents that show different faults, each beside the definition.
//
//   conv_sum.c     the definition, in double; which outputs are looked at
//   conv_exam.c    contents, and what must come out for them
//   conv_check.c   all of it on a device, and the report
#ifndef QUERN_LAB_CONV_CHECK_H
#define QUERN_LAB_CONV_CHECK_H

#include "tune/tune.h"

enum conv_exam_kind {
    CE_RANDOM,   /* signed random numbers: errors, and their bound */
    CE_INTEGERS, /* small integers, all terms: sums are exact, so outputs are */
    CE_TAPS,     /* one weight of 1 for each channel, numbered inputs: which element of the input each output is */
    CE_POINTS,   /* single ones as inputs, numbered weights: which weight each output is */
    CE_UNIT,     /* random numbers from 0 to 1, as the seed's: for its criterion */
    N_CONV_EXAMS
};

struct conv_found {          /* of one exam; plain data, it comes from another process */
    i64 n_seen, n_border;    /* outputs that were compared; of those, with an index that is the first or the last of its axis */
    i64 n_bad;               /* outside of their bounds */
    i64 n_nonfinite;         /* NaN and infinities among all outputs */
    double max_abs, max_rel; /* error; relative to the output, where that is larger than its bound */
    double ratio;            /* largest error over its bound; of exact outputs 0 or infinity */
    double err2, want2, limit2; /* sums of squares: errors, outputs, and what random errors may come to */
    i64 worst;               /* output with that ratio, row-major; -1: none was compared */
    double got, want, bound; /* there */
};

struct conv_exam_result {
    u32 n_rounds;            /* runs on other contents of this kind; 0: none */
    enum trial_status status;
    struct conv_found found;
    char reason[400];
};

struct conv_report {
    bool ok;
    enum dtype type;
    u32 rank;
    i64 dim[MAX_RANK];       /* of the outputs (n, m, spatial axes) */
    i64 in_dim[MAX_RANK], w_dim[MAX_RANK];
    i64 n_outputs, n_terms;  /* terms of one output, bias included */
    i64 code;                /* numbers of elements begin again behind so many */
    struct conv_exam_result exam[N_CONV_EXAMS];
};

struct conv_check_opts {
    struct trial_opts trial; /* device, time-out of a run */
    u64 seed;
    i64 max_terms;           /* products that the definition computes for an exam of all terms; 0: 5e7. Outputs are sampled beyond */
    double growth;           /* how much larger errors may be than those of a sum of the terms, see gen_growth; 0: 1 */
};

/* The kernel of a task that is one Conv or ConvTranspose. A wrong kernel is a report with ok false; false: there is none, the task is
   another (ERR_UNSUPPORTED), or memory or the system failed. */
bool conv_check(struct conv_report *r, const struct task *t, const i64 *var, const struct subject *s, const struct conv_check_opts *o,
                struct err *e);
/* "right", "wrong", or why there is no answer: "did not run: ..." */
struct str conv_report_verdict(const struct conv_report *r, struct arena *a);
/* In words: one line for each exam, the worst element where one failed, the seed's figure and what its criterion would have said. */
void conv_report_print(struct buf *b, const struct conv_report *r);
/* The seed's figure: the norm of all errors over their number. rms: of one. It passed at 1e-4, later at 1e-5. */
double conv_seed_figure(double rms, double n_outputs);

/* ---- conv_sum.c ---- */

/* y[n, m, o] = b[m] + sum over c, k of x[n, c, source(o, k)] * w[c, m, k]; elements row-major: x (n, c, spatial axes), w (m, c, k) of Conv
   and (c, m, k) of ConvTranspose, c and m within a group in the second place. Of the gradient of weights: x (images, channels, spatial axes) is
   summed over images, so that those are c, of each group its own, and n a channel of the group; w is dy (images, m, spatial axes), all positions
   of which are taps; y (m, n, k). Where a Relu or LeakyRelu follows, outputs below 0 are scaled (negative), and y is what comes out of it. Sizes known. */
struct conv_sum {
    value_id x, w, b, y;     /* b 0: none */
    enum dtype type, out_type;
    bool is_transposed, is_gradient, tf32;
    u32 n;                   /* spatial axes */
    i64 batch, c, m;
    i64 cg, mg;              /* channels of a group */
    i64 in[MAX_RANK], out[MAX_RANK], kernel[MAX_RANK], dilation[MAX_RANK]; /* dilation: from tap to tap */
    i64 taps, in_plane, out_plane, count;
    double negative;         /* 1: nothing follows */
    i64 n_terms;             /* most that an output can have, bias included */
    const i64 *source[MAX_RANK]; /* per axis [out][kernel]: position in the input, -1: outside */
};
bool conv_sum_of(struct conv_sum *s, const struct task *t, const i64 *var, struct arena *a, struct err *e);
i64 conv_weight(const struct conv_sum *s, i64 m, i64 c, i64 tap); /* flat; m, c: of all channels, of the same group */
i64 conv_plane(const struct conv_sum *s, i64 n, i64 c);           /* number of a plane of x: all spatial axes */
i64 conv_out_plane(const struct conv_sum *s, i64 n, i64 m);          /* number of a plane of y */
void conv_split_plane(const struct conv_sum *s, i64 at, i64 *n, i64 *m);
struct conv_terms {
    double sum, size;        /* of the terms, and of their absolute values */
};
/* Output at a flat position, by its definition, in double. pick: room for 2 * taps. */
struct conv_terms conv_sum_at(const struct conv_sum *s, const struct tensor *value, i64 at, i64 *pick);
bool conv_is_border(const struct conv_sum *s, i64 at);
/* Outputs to look at, ascending: all, or about n: every face, edge and corner of the spatial axes, and what is inside. */
i64 *conv_sample(const struct conv_sum *s, i64 n, u64 seed, struct arena *a, i64 *n_out);

/* ---- conv_exam.c ---- */

struct conv_hit { i64 at; double v; };
struct conv_exam {
    struct judge judge;      /* of check; first, so that whoever has the one has the other */
    const struct conv_sum *s;
    enum conv_exam_kind kind;
    struct check check;
    struct conv_found found;
    double growth;
    const i64 *at; i64 n_at; /* outputs that are known: CE_RANDOM, CE_INTEGERS, CE_UNIT */
    double *want, *bound, *likely; /* of those: values, the most that they can be off, and what random errors come to */
    i64 *pick;               /* CE_TAPS: per output channel, input channel of its group and tap */
    struct conv_hit *hit; i64 n_hit; /* CE_POINTS: what is not 0, ascending */
    double exact;            /* of integers: the most that an output may be off */
    i64 code;                /* numbers of elements are 1 + index mod this */
};
/* How an exam is held; at, n_at: of conv_sample. round: of CE_TAPS, other taps. */
struct conv_exam_opts { u64 seed; u32 round; double growth; const i64 *at; i64 n_at; };
/* It must not move. */
bool conv_exam_init(struct conv_exam *x, const struct conv_sum *s, const struct task *t, const i64 *var, enum conv_exam_kind kind,
                    const struct conv_exam_opts *o, struct err *e);
void conv_exam_release(struct conv_exam *x);
i64 conv_code(const struct conv_sum *s, double growth); /* the largest prime whose numbers are exact */

#endif
