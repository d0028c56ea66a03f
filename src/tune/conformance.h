// SPDX-License-Identifier: Apache-2.0
//
// Conformance test of a device: compares every scalar operation of kernel IR, for every type, with
// the interpreter, on a table of difficult values (zeros of both signs, ties, extremes, denormals,
// infinities, NaN, limits of integers). Operations that a driver lacks or computes incorrectly are
// avoided from then on (caps.avoid, kir_avoid). A driver is tested when it is first used; the
// result is cached.
//
//   conformance.c        processes, findings, their consequences
//   conformance_case.c   one operation: kernel, values, comparison
#ifndef QUERN_TUNE_CONFORMANCE_H
#define QUERN_TUNE_CONFORMANCE_H

#include "dev/dev.h"
#include "lang/lang.h"
#include "tune/tune.h"

/* conformance_case.c */

enum conform_form {
    CONFORM_PLAIN,    /* operands from memory */
    CONFORM_CONST,    /* the second operand is a constant */
    CONFORM_LOOP,     /* in a loop-carried register array */
    CONFORM_SUBGROUP, /* by all threads of a subgroup */
};

struct conform_case {
    enum kir_op op;
    enum dtype t, to;    /* of operands and result */
    enum conform_form form;
    u32 constant;        /* CONFORM_CONST: index into the values of t */
};

/* All operations that the target claims to support. */
u32 conform_list(struct arena *a, const struct caps *c, struct conform_case **v);
bool conform_together(const struct conform_case *v, u32 n); /* whether these can share a kernel */
/* "rint:f64", as in caps.avoid */
void conform_print(struct buf *b, const struct conform_case *x);

struct conform_kernel {
    struct arena arena;
    struct kir kir;
    const struct conform_case *v;
    u32 n;
    i64 n_values, n_grid, rounds;
    struct kir_arg arg[16]; /* three operands, then results by type */
    bool is_out[16];
    u32 n_arg;
    struct { u32 arg; i64 at; } *result; /* per case */
};
void conform_build(struct conform_kernel *k, const struct caps *c, const struct conform_case *v, u32 n);
/* Returns the number of wrong results; why: the first of them as text. got: the arguments after the
   launch on the device; those of k: after the interpreter. */
u32 conform_compare(const struct conform_kernel *k, const struct caps *c, u32 at, void *const *got, struct buf *why);

/* conformance.c */

enum conform_status { CONFORM_OK, CONFORM_WRONG, CONFORM_REFUSED /* by language or driver */, CONFORM_CRASH };

enum conform_way { /* consequence of a finding */
    CONFORM_LACKING,  /* not available: kernels that need it are rejected */
    CONFORM_REPLACED, /* replaced by its second definition */
    CONFORM_CURED,    /* unchanged: right once others are replaced */
    N_CONFORM_WAYS
};

struct conform_finding {
    struct conform_case what;
    enum conform_status status;
    enum conform_way way;
    struct str name, why;
};

struct conformance {
    struct { struct conform_finding *v; u32 n, cap; } found;
    u32 n_cases;
    double seconds;
    bool is_known; /* from the cache */
};

struct device_target {
    const struct dev_driver *driver;
    const struct dev_opts *opts;
    const struct lang *lang;
    const struct caps *caps;
    struct str fingerprint, toolchain;
    const struct log *log;   /* may be NULL, and so may stop, which ends measuring */
    const struct stop *stop;
};
enum conform_when { CONFORM_KNOWN /* only from the cache */, CONFORM_NEW /* test if the cache has none */, CONFORM_AGAIN };
/* Tests in child processes. false: no result is cached, or the device cannot run tests. */
bool conform_device(struct conformance *x, const struct device_target *t, enum conform_when when, struct arena *a, struct err *e);
/* Removes the failing operations from the target's features. */
void conform_apply(struct caps *c, const struct conformance *x);
/* One line per finding, with its consequence. */
void conform_report(struct buf *b, const struct conformance *x);

#endif
