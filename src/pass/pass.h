// SPDX-License-Identifier: Apache-2.0
//
// pass: rewriting of graphs before they are cut into tasks. One file per pass, each exporting one `const struct pass pass_NAME`.
// A pass returns whether it changed anything; verifying, dumping and re-inferring are the runner's business (pass.c).
// Passes ask for properties of operators, not their names, wherever a property says what they need.
#ifndef QUERN_PASS_H
#define QUERN_PASS_H

#include "op/op.h"

struct pass {
    u32 version;          /* of this struct: 1 */
    const char *name;
    const char *summary;  /* one line, shown by -d list */
    u32 rank;             /* order of running; passes of the same hundred repeat until none changes anything */
    /* g is sorted and inferred; new nodes must be inferred by the pass (op_infer). false in *ok: failed, e is set. */
    bool (*run)(struct graph *g, bool *ok, struct err *e);
};

struct pass_env {
    void (*dump)(void *user, const char *stage, const struct graph *g); /* after each pass that changed something; NULL: none */
    void *user;
};

/* Runs all passes in order of rank. Afterwards the graph holds primitives only, sorted and inferred. */
bool pass_run_all(struct graph *g, const struct pass_env *env, struct err *e);
const struct pass *pass_at(i64 k); /* in order of rank; NULL behind the last */

#endif
