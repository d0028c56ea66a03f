// SPDX-License-Identifier: Apache-2.0
//
// exact: exact verification of a kernel against its task. Both are interpreted over a field
// (kir/field.h), where another order of a sum, Winograd transforms, tiles and blocks yield the same
// elements, and a wrong index, a missing term or a stale buffer different ones.
#ifndef QUERN_TUNE_EXACT_H
#define QUERN_TUNE_EXACT_H

#include "gen/gen.h"

enum exact_verdict {
    EXACT_YES,       /* equal in every evaluation */
    EXACT_TOLERANCE, /* not decidable, with a reason; within the tolerance of tolerance.c if it was run at all */
    EXACT_DIFFERS,   /* with a reason */
    N_EXACT_VERDICTS
};
const char *exact_verdict_name(enum exact_verdict v); /* "exact" "by tolerance" "DIFFERS" */

struct exact_opts {
    i64 max_work; /* multiply-adds and elements per evaluation, to which sizes are reduced; 0: EXACT_WORK */
    const struct caps *ordered; /* for exact_compare; not NULL: also verifies the order of rounding guaranteed
                                   on that device (gen/order.c, kir/term.h) */
    bool once;    /* one evaluation at one set of sizes; otherwise two at two */
    u64 seed;
};
enum { EXACT_WORK = 2000000 };

struct exact_result {
    enum exact_verdict verdict;
    struct buf sizes;  /* of the first output, per set of sizes: "1x64x37x43, 1x20x80x19"; released by the
                          caller, as is the reason */
    struct buf why;
    i64 n_steps;       /* instructions interpreted */
};

/* Verifies the candidate's kernel of a task that is no call. Large sizes are reduced, fixed ones as
   long as the kernel keeps its structure: loops, branches, accesses. If the device guarantees an
   order of sums, it is verified, too. false: the system failed. */
bool exact_check(struct exact_result *r, const struct task *t, const struct candidate *c, const struct caps *caps, const struct exact_opts *o,
                 struct err *e);
/* The same for a given kernel, at these sizes of the task. For tests. */
bool exact_compare(struct exact_result *r, const struct task *t, const struct kernel *k, const i64 *var, const struct exact_opts *o,
                   struct err *e);
void exact_result_release(struct exact_result *r);

/* exact_conv.c: a node by its definition. Sizes and elements per value of the graph, row-major.
   false: not implemented for the node. */
struct exact_values {
    const struct graph *g;
    const i64 *var;
    const struct tensor *shape; /* without data */
    union kir_cell *const *cell;
    enum kir_arithmetic arithmetic;
};
bool exact_define(const struct exact_values *v, node_id n);

/* exact_sizes.c */
double exact_work(const struct task *t, const i64 *var); /* multiply-adds and elements of inputs and outputs */
struct exact_structure { u64 all, kinds; }; /* of a kernel: counts per kind of instruction and depth; the set of
                                               kinds */
struct exact_structure exact_structure_of(const struct kir *k);
/* The task's text with the numbers blanked that a reduction may change, and floats that are no small whole numbers.
   Tasks of the same form whose kernels have the same structure, under one schedule, have the same reductions. */
void exact_form(struct buf *out, const struct task *t);
/* values of variables near the guess, satisfying the facts */
i64 *exact_sizes(struct symtab *t, const i64 guess[2], struct arena *a);
bool exact_sizes_fit(const struct task *t, const i64 *var);
struct exact_variant { /* a task with other sizes */
    struct arena arena;
    struct symtab sym;
    struct task task;
    i64 *var;
    struct kernel kernel; /* of the candidate */
};
void exact_variant_close(struct exact_variant *v);
struct exact_reduce_opts {
    const struct candidate *cand;
    const struct caps *caps;
    struct exact_structure structure; /* of the kernel to be verified */
    const i64 *guess;                 /* two guesses, for symbolic sizes */
    double most, may, limit;          /* requested work; beyond `may` only the kinds of instructions are
                                         compared, not their counts; beyond `limit` nothing is evaluated */
};
/* The task with sizes reduced as far as its kernel keeps its structure, or down to the requested
   work. NULL: the text does not yield the kernel even unchanged. Adds its cost to n_steps, in steps
   of the interpreter. */
struct exact_variant *exact_reduce(const struct exact_reduce_opts *o, const struct task *t, i64 *n_steps);

#endif
