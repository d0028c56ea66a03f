// SPDX-License-Identifier: Apache-2.0
//
// exact: is a kernel its task? Both are run by the interpreter over a field (kir/field.h), where a sum in another order, Winograd's
// transformations, products in tiles and blocks give the same elements, and a wrong index, a missing term, a stale buffer others.
#ifndef QUERN_TUNE_EXACT_H
#define QUERN_TUNE_EXACT_H

#include "gen/gen.h"

enum exact_verdict {
    EXACT_YES,       /* equal for every evaluation */
    EXACT_TOLERANCE, /* not to be told so: why; right within the tolerance of check.c where it was run at all */
    EXACT_DIFFERS,   /* why */
    N_EXACT_VERDICTS
};
const char *exact_verdict_name(enum exact_verdict v); /* "exact" "by tolerance" "DIFFERS" */

struct exact_opts {
    i64 max_work; /* multiply-adds and elements of an evaluation: sizes are reduced to it; 0: EXACT_WORK */
    const struct caps *ordered; /* of exact_compare, not NULL: is it rounded as is promised on that device (gen/order.c, kir/term.h)? */
    bool once;    /* one evaluation at one set of sizes; else two at two */
    u64 seed;
};
enum { EXACT_WORK = 2000000 };

struct exact_result {
    enum exact_verdict verdict;
    struct buf sizes;  /* of the first output, per set of sizes tried: "1x64x37x43, 1x20x80x19"; released by the caller, as is why */
    struct buf why;
    i64 n_steps;       /* instructions interpreted */
};

/* The candidate's kernel of a task that is no call. Sizes are those of the task where they are small enough. Else they are reduced, fixed
   ones as long as the kernel keeps its structure: loops, branches, accesses. Where the device promises an order of sums the kernel must keep to it,
   too. false: the system failed. */
bool exact_check(struct exact_result *r, const struct task *t, const struct candidate *c, const struct caps *caps, const struct exact_opts *o,
                 struct err *e);
/* The same of a kernel that is given, at these sizes of the task as it is. For tests. */
bool exact_compare(struct exact_result *r, const struct task *t, const struct kernel *k, const i64 *var, const struct exact_opts *o,
                   struct err *e);
void exact_result_release(struct exact_result *r);

/* exact_conv.c: a node by its definition. Sizes and elements per value of the graph, in rows. false: it has none here. */
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
struct exact_structure { u64 all, kinds; }; /* of a kernel: how many there are of each kind of instruction at each depth; which there are */
struct exact_structure exact_structure_of(const struct kir *k);
i64 *exact_sizes(struct symtab *t, const i64 guess[2], struct arena *a); /* of variables, near the guess in turn, as facts want them */
bool exact_sizes_fit(const struct task *t, const i64 *var);
struct exact_variant { /* of a task, with other sizes */
    struct arena arena;
    struct symtab sym;
    struct task task;
    i64 *var;
    struct kernel kernel; /* the candidate's */
};
void exact_variant_close(struct exact_variant *v);
struct exact_reduce_opts {
    const struct candidate *cand;
    const struct caps *caps;
    struct exact_structure structure; /* of the kernel that is to be verified */
    const i64 *guess;                 /* two, for sizes that are symbolic */
    double most, may, limit;          /* work that is asked for; beyond may kinds of instructions are enough, whatever their numbers; beyond limit it is not
                                         evaluated at all */
};
/* The task with sizes reduced as far as its kernel keeps the structure, or until the work is what was asked for. NULL: its text does not give the
   kernel, not even as it is. n_steps is counted on by what it took, as steps of the interpreter. */
struct exact_variant *exact_reduce(const struct exact_reduce_opts *o, const struct task *t, i64 *n_steps);

#endif
