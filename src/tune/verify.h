// SPDX-License-Identifier: Apache-2.0
//
// Verification of contractions (convolutions of any kind, their gradients, matmuls) by their definition: contents that show different faults,
// comparison of all outputs, statistics of errors. The tuner verifies each candidate on numbered contents; the laboratory runs all cases and
// prints a report.
//
//   contraction.c        the definition, in double; samples of outputs
//   contraction_check.c  contents, and the outputs that they must have
//   numbered.c           checks of the tuner: numbered contents for tasks with a contraction and others behind it
//   verify.c             all cases on a device, and the report
#ifndef QUERN_TUNE_VERIFY_H
#define QUERN_TUNE_VERIFY_H

#include "tune/tune.h"

enum verify_case {
    VERIFY_RANDOM,   /* signed random numbers: errors, and their bound */
    VERIFY_INTEGERS, /* small integers, all terms: sums and outputs are exact */
    VERIFY_TAPS,     /* a single weight of 1 per output channel, numbered inputs: each output is the number of an input */
    VERIFY_POINTS,   /* single inputs of 1, numbered weights: each output is the number of a weight */
    VERIFY_UNIT,     /* random numbers from 0 to 1: errors without cancellation */
    N_VERIFY_CASES
};

struct verify_found {          /* of one case; plain data, sent from another process */
    i64 n_seen, n_border;    /* outputs that were compared; of those, with an index that is the first or the last of its axis */
    i64 n_bad;               /* outside of their bounds */
    i64 n_nonfinite;         /* NaN and infinities among all outputs */
    double max_abs, max_rel; /* error; relative to the output, where that is larger than its bound */
    double ratio;            /* largest error over its bound; of exact outputs 0 or infinity */
    double err2, want2, limit2; /* sums of squares: errors, outputs, and what random errors may come to */
    i64 worst;               /* output with that ratio, row-major; -1: none was compared */
    double got, want, bound; /* there */
};

struct verify_result {
    u32 n_rounds;            /* runs on other contents of this kind; 0: none */
    enum trial_status status;
    struct verify_found found;
    char reason[400];
};

struct verify_report {
    bool ok;
    enum dtype type;
    u32 rank;
    i64 dim[MAX_RANK];       /* of the outputs (n, m, spatial axes) */
    i64 in_dim[MAX_RANK], w_dim[MAX_RANK];
    i64 n_outputs, n_terms;  /* terms of one output, bias included */
    i64 code;                /* numbers of elements begin again behind so many */
    struct verify_result result[N_VERIFY_CASES];
};

struct verify_opts {
    struct trial_opts trial; /* device, time-out of a run */
    u64 seed;
    i64 max_terms;           /* multiply-adds computed by the definition per case; 0: 5e7. Beyond, outputs are sampled */
    double growth;           /* how much larger errors may be than those of a sum of the terms, see gen_growth; 0: 1 */
};

/* Verifies a kernel of a task that is one contraction. A wrong kernel is a report with ok false. false: there is no report, because the
   task is another one (ERR_UNSUPPORTED), or memory or the system failed. */
bool verify_contraction(struct verify_report *r, const struct task *t, const i64 *var, const struct subject *s, const struct verify_opts *o,
                struct err *e);
/* "right", "wrong", or why there is no answer: "did not run: ..." */
struct str verify_verdict(const struct verify_report *r, struct arena *a);
/* One line for each case, and the worst element of each that failed. */
void verify_print(struct buf *b, const struct verify_report *r);

/* contraction.c */

/* y[n, m, o] = b[m] + sum over c, k of x[n, c, source(o, k)] * w[c, m, k]; elements row-major: x (n, c, spatial axes), w (m, c, k) of Conv
   and (c, m, k) of ConvTranspose, c and m within a group in the second place. Of the gradient of weights: x (images, channels, spatial axes) is
   summed over images, so that those are c, of each group its own, and n a channel of the group; w is dy (images, m, spatial axes), all positions
   of which are taps; y (m, n, k). A matmul a x b has one tap: w is a, x is b, whose rows are channels and whose columns are the spatial axis; a batch
   of both operands is groups. Where a Relu or LeakyRelu follows, outputs below 0 are scaled (negative), and y is what comes out of it. Sizes known. */
struct contraction {
    value_id x, w, b, y;     /* b 0: none */
    enum dtype type, w_type, out_type; /* of x, w and y */
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
bool contraction_of(struct contraction *s, const struct task *t, const i64 *var, struct arena *a, struct err *e);
/* The contraction of a task with other nodes behind it: y is its own result. Operands are inputs of the task that nothing else reads. */
bool contraction_inside(struct contraction *s, const struct task *t, const i64 *var, struct arena *a, struct err *e);
i64 contraction_weight(const struct contraction *s, i64 m, i64 c, i64 tap); /* flat; m, c: of all channels, of the same group */
i64 contraction_plane(const struct contraction *s, i64 n, i64 c);           /* number of a plane of x: all spatial axes */
i64 contraction_out_plane(const struct contraction *s, i64 n, i64 m);          /* number of a plane of y */
void contraction_split_plane(const struct contraction *s, i64 at, i64 *n, i64 *m);
struct contraction_terms {
    double sum, size;        /* of the terms, and of their absolute values */
};
/* Output at a flat position, by its definition, in double. pick: room for 2 * taps. */
struct contraction_terms contraction_at(const struct contraction *s, const struct tensor *value, i64 at, i64 *pick);
bool contraction_is_border(const struct contraction *s, i64 at);
/* Outputs to look at, ascending: all, or about n: every face, edge and corner of the spatial axes, and what is inside. */
i64 *contraction_sample(const struct contraction *s, i64 n, u64 seed, struct arena *a, i64 *n_out);

/* contraction_check.c */

struct contraction_hit { i64 at; double v; };
struct contraction_check {
    struct comparator comparator;      /* of check; first, so that its address is that of the check */
    const struct contraction *s;
    enum verify_case kind;
    struct check check;
    struct verify_found found;
    double growth;
    const i64 *at; i64 n_at; /* outputs that are known: VERIFY_RANDOM, VERIFY_INTEGERS, VERIFY_UNIT */
    double *want, *bound, *likely; /* of those: values, the most that they can be off, and what random errors come to */
    i64 *pick;               /* VERIFY_TAPS: per output channel, input channel of its group and tap */
    struct contraction_hit *hit; i64 n_hit; /* VERIFY_POINTS: what is not 0, ascending */
    double exact;            /* of integers: the most that an output may be off */
    i64 code;                /* numbers of elements are 1 + index mod this */
};
/* at, n_at: of contraction_sample, unused by numbered contents. round: of VERIFY_TAPS, selects other taps. growth: of gen_growth; 0: 1 */
struct contraction_check_opts { u64 seed; u32 round; double growth; const i64 *at; i64 n_at; };
/* It must not move. */
bool contraction_check_init(struct contraction_check *x, const struct contraction *s, const struct task *t, const i64 *var, enum verify_case kind,
                    const struct contraction_check_opts *o, struct err *e);
/* VERIFY_TAPS, VERIFY_POINTS: the outputs of a row along the last axis. */
void contraction_expect(const struct contraction_check *x, i64 row, double *want);
void contraction_check_release(struct contraction_check *x);
i64 contraction_code(const struct contraction *s, double growth); /* the largest prime whose numbers are exact */

/* numbered.c */

/* VERIFY_TAPS or VERIFY_POINTS for a task with one contraction and others behind it, whose outputs are compared by check_output. Of a task that is
   fit for integers (check_largest_integer). c->task is NULL if the task has no such contraction, or is too large. */
bool check_init_numbered(struct check *c, const struct task *t, const i64 *var, enum verify_case kind, u64 seed, struct err *e);

#endif
