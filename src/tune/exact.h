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
    bool same_order; /* equal only if rounded the same way, too: is a kernel of the definition's order of sums (kir/term.h)? */
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
   ones as long as the kernel keeps its structure: loops, branches, accesses. false: the system failed. */
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

#endif
