// SPDX-License-Identifier: Apache-2.0
//
// The random instances of a test run: four fifths, or with sanitizers, which are slow, the
// remaining fifth; continuous integration runs both. In the environment: ALL=1 selects all, COUNT=n
// that many, SEED=n that one, or COUNT from it on.
#ifndef QUERN_TEST_SEEDS_H
#define QUERN_TEST_SEEDS_H

#include <stdlib.h>

#include "core/core.h"

#ifndef __has_feature /* gcc before 14 */
#define __has_feature(x) 0
#endif
#if defined(__SANITIZE_ADDRESS__) || __has_feature(address_sanitizer)
enum { N_SHARES = 5, SHARE = 4, SHARE_END = 5 };
#else
enum { N_SHARES = 5, SHARE = 0, SHARE_END = 4 };
#endif

static inline u64 seeds_env(const char *name, u64 otherwise) { return getenv(name) ? strtoull(getenv(name), NULL, 10) : otherwise; }
static inline bool takes_all(void) { return getenv("ALL") != NULL; }
static inline bool seeds_are_given(void) { return getenv("SEED") || getenv("COUNT"); }

/* Of the seeds from .. to - 1 this run takes first_seed(from, to) .. last_seed(from, to) - 1: one at least. */
static inline u64 first_seed(u64 from, u64 to)
{
    if (seeds_are_given() || takes_all()) return seeds_env("SEED", from);
    return from + (to - from) * SHARE / N_SHARES;
}

static inline u64 last_seed(u64 from, u64 to)
{
    u64 first = first_seed(from, to), end = from + (to - from) * SHARE_END / N_SHARES;
    if (seeds_are_given()) return first + seeds_env("COUNT", 1);
    return takes_all() ? to : end > first ? end : first + 1;
}

/* Whether the i-th operator or type belongs to this run. */
static inline bool is_taken(u64 i)
{
    i64 k = (i64)(i % N_SHARES);
    return takes_all() || (k >= SHARE && k < SHARE_END);
}

/* Whether n instances of a kind suffice, if all seeds have more than `least`. A share of the seeds
   must have a quarter of its part, which may be 0 for a rare kind; given seeds need none. */
static inline bool is_enough(u64 n, u64 least)
{
    if (seeds_are_given() || getenv("GEN")) return true;
    return takes_all() ? n > least : n >= least / (4 * N_SHARES);
}

#endif
