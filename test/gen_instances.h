// SPDX-License-Identifier: Apache-2.0
//
// For tests of a family: random instances of a kind, seed by seed, under its schedules: interpreted, or over a field.
#ifndef QUERN_TEST_GEN_INSTANCES_H
#define QUERN_TEST_GEN_INSTANCES_H

#include "gen_kinds.h"
#include "tune/exact.h"

typedef void open_fixture(struct fixture *b, u64 seed); /* of a device, the family and an element type */

struct instances {
    open_fixture *open;
    bool (*build)(struct fixture *b, u64 seed); /* makes the task; false: this seed has none */
    u64 from, to;                               /* seeds from..to - 1 */
    u32 least;                                  /* kernels there are to be, of all seeds of a run */
    u32 tries;                                  /* of try_instances: schedules of each, the default one first */
    bool (*choose)(struct fixture *b, u64 seed, struct candidate *c); /* of try_exactly; NULL: one that is worth trying; false: none */
};

/* Kernels agree with the reference evaluator. */
static inline void try_instances(const struct instances *x)
{
    u32 n = 0;
    for (u64 seed = first_seed(x->from, x->to); seed < last_seed(x->from, x->to); seed++) {
        struct fixture b;
        x->open(&b, seed);
        if (x->build(&b, seed)) n += try_task(&b, seed, x->tries);
        fixture_close(&b);
    }
    print_message("%u kernels\n", n);
    assert_true(is_enough(n, x->least));
}

/* A candidate over a field: the kernel equals its task's nodes, whatever the order of sums, and where that is promised, in it. False: it is not decided. */
static inline bool check_exactly(struct fixture *b, u64 seed, const struct candidate *c)
{
    struct exact_result r = {0};
    if (!exact_check(&r, &b->t, c, &b->caps, &(struct exact_opts){.seed = seed}, &b->e)) report(b, c, seed);
    if (r.verdict == EXACT_DIFFERS) err_set(&b->e, ERR_FAILED, "%.*s", (int)r.why.n, r.why.p), report(b, c, seed);
    bool yes = r.verdict == EXACT_YES;
    exact_result_release(&r);
    return yes;
}

static inline bool choose_exactly(const struct instances *x, struct fixture *b, u64 seed, struct candidate *c)
{
    if (!gen_matches(b->only, &b->t, &b->caps)) return false;
    return x->choose ? x->choose(b, seed, c) : choose(b, 1, c) && c->gen == b->only;
}

/* One schedule of each instance; nine in ten are decided. */
static inline void try_exactly(const struct instances *x)
{
    u32 n = 0, n_exact = 0;
    for (u64 seed = first_seed(x->from, x->to); seed < last_seed(x->from, x->to); seed++) {
        struct fixture b;
        struct candidate c;
        x->open(&b, seed);
        if (x->build(&b, seed) && choose_exactly(x, &b, seed, &c)) n++, n_exact += check_exactly(&b, seed, &c);
        fixture_close(&b);
    }
    print_message("%u kernels, %u exact\n", n, n_exact);
    assert_true(is_enough(n, x->least) && n_exact * 10 >= n * 9);
}

#endif
