// SPDX-License-Identifier: Apache-2.0
//
// Examination of a device: every scalar operation of kernel IR, for every type, on a table of hard values (zeros of both signs, ties,
// extremes, denormals, infinities, NaN, the edges of integers), against the interpreter. What a driver lacks or computes wrong is avoided from
// then on (caps.avoid, kir_avoid). Done when a driver is first seen, and remembered in the user's cache.
//
//   examine.c        what is examined, in which processes, what follows from it
//   examine_case.c   one operation: its kernel, its values, whether a result may be
#ifndef QUERN_TUNE_EXAMINE_H
#define QUERN_TUNE_EXAMINE_H

#include "dev/dev.h"
#include "lang/lang.h"
#include "tune/tune.h"

/* examine_case.c */

enum exam_form {
    EXAM_PLAIN,    /* of operands from memory */
    EXAM_CONST,    /* the second operand is a constant */
    EXAM_LOOP,     /* in a register array, carried from round to round */
    EXAM_SUBGROUP, /* by all threads of a subgroup */
};

struct exam_case {
    enum kir_op op;
    enum dtype t, to;    /* of the operands, of the result */
    enum exam_form form;
    u32 constant;        /* EXAM_CONST: number of a value of t */
};

/* All that the target claims to be able to do. */
u32 exam_list(struct arena *a, const struct caps *c, struct exam_case **v);
bool exam_together(const struct exam_case *v, u32 n); /* may be one kernel */
/* "rint:f64", as caps.avoid has it */
void exam_print(struct buf *b, const struct exam_case *x);

struct exam_kernel {
    struct arena arena;
    struct kir kir;
    const struct exam_case *v;
    u32 n;
    i64 n_values, n_grid, rounds;
    struct kir_arg arg[16]; /* three operands, then results by type */
    bool is_out[16];
    u32 n_arg;
    struct { u32 arg; i64 at; } *result; /* per case */
};
void exam_build(struct exam_kernel *k, const struct caps *c, const struct exam_case *v, u32 n);
/* Number of results that may not be; the first of them as text. got: the arguments as the device left them, want: as the interpreter did. */
u32 exam_compare(const struct exam_kernel *k, const struct caps *c, u32 at, void *const *got, struct buf *why);

/* examine.c */

enum exam_status { EXAM_OK, EXAM_WRONG, EXAM_REFUSED /* by language or driver */, EXAM_CRASH };

enum exam_way { /* how it is done from then on */
    EXAM_LACKING,  /* not at all: kernels that need it are refused */
    EXAM_REPLACED, /* by its second definition */
    EXAM_CURED,    /* as before: it is right once others are replaced */
    N_EXAM_WAYS
};

struct exam_finding {
    struct exam_case what;
    enum exam_status status;
    enum exam_way way;
    struct str name, why;
};

struct exam {
    struct { struct exam_finding *v; u32 n, cap; } found;
    u32 n_cases;
    double seconds;
    bool is_known; /* from the cache */
};

struct exam_target {
    const struct dev_driver *driver;
    const struct dev_opts *opts;
    const struct lang *lang;
    const struct caps *caps;
    struct str fingerprint, toolchain;
    const struct log *log;
};
enum exam_when { EXAM_KNOWN /* only what the cache knows */, EXAM_NEW /* now, where it knows nothing */, EXAM_AGAIN };
/* In processes of its own. False: nothing is known, or nothing can be run there. */
bool exam_device(struct exam *x, const struct exam_target *t, enum exam_when when, struct arena *a, struct err *e);
/* Takes from the target what was found wrong. */
void exam_apply(struct caps *c, const struct exam *x);
/* A line for each finding, and what follows from it. */
void exam_report(struct buf *b, const struct exam *x);

#endif
