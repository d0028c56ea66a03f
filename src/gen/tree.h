// SPDX-License-Identifier: Apache-2.0
//
// Private to gen/ and its tests: spaces of families that say with which values schedules begin (struct gen), as trees; and the search
// for default schedules in two parts.
#ifndef QUERN_GEN_TREE_H
#define QUERN_GEN_TREE_H

#include "gen/gen.h"

enum { GEN_TREE_PATIENCE = 4000 /* branches that one way down may look at */ };

typedef bool gen_begins(const struct gen_problem *p, const struct sched *s, u32 n);
struct gen_tree {
    const struct gen_problem *p;
    gen_begins *may;           /* branches it refuses are not entered */
    struct sched s;            /* where it stands; the rest is private */
    i64 left;
    struct rng *rng;
    const struct sched *want;
};
/* Calls fn (may be NULL) for all leaves; false: it said so, or more than max branches were looked at. */
bool gen_tree_walk(struct gen_tree *x, i64 max, gen_visit *fn, void *user);
/* A random leaf; the leaf nearest to `want`, whose first values count most. false: none was found. */
bool gen_tree_draw(struct gen_tree *x, struct rng *r, struct sched *out);
bool gen_tree_near(struct gen_tree *x, const struct sched *want, struct sched *out);
/* As gen_scatter, of one family. false: fn said so. */
bool gen_tree_scatter(struct gen_tree *x, i64 max, u64 seed, gen_visit *fn, void *user);

/* search.c: the search of gen_problem_initial in two parts, so that only the promising ones of several families go on. Its memory is the
   problem's. */
struct gen_search;
struct gen_search *gen_search_open(const struct gen_problem *p);
void gen_search_pairs(struct gen_search *x); /* the second part: takes most of the time and gains a few percent */
const struct sched *gen_search_best(const struct gen_search *x); /* so far; legal */

/* gen.c: a random legal schedule of any family, of one with a tree worth trying. false: none was found. */
bool gen_draw(const struct gen_problem *p, struct rng *r, struct sched *out);

#endif
