// SPDX-License-Identifier: Apache-2.0
//
// Random numbers: SplitMix64, one addition and one mix per number, the same on every platform.
//
// rng_normal adds twelve uniform numbers instead of calling log and cos, whose last bits
// differ between C libraries: tests and databases depend on these numbers being the same
// everywhere. The tails end at six standard deviations, which suffices for test data.
#include "core/core.h"

struct rng rng_seed(u64 seed) { return (struct rng){seed}; }

u64 rng_u64(struct rng *r)
{
    u64 z = r->state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

i64 rng_range(struct rng *r, i64 lo, i64 hi)
{
    assert(lo <= hi);
    u64 span = (u64)hi - (u64)lo + 1;
    if (span == 0) return (i64)rng_u64(r);
    /* Multiply-high, redrawing in the part of the range that would make low values likelier. */
    u64 low_limit = -span % span;
    unsigned __int128 m;
    do m = (unsigned __int128)rng_u64(r) * span;
    while ((u64)m < low_limit);
    return (i64)((u64)lo + (u64)(m >> 64));
}

double rng_f64(struct rng *r) { return (double)(rng_u64(r) >> 11) * 0x1p-53; }

double rng_normal(struct rng *r)
{
    i64 sum = 0; /* of 12 numbers of 21 bits */
    for (int i = 0; i < 4; i++) {
        u64 u = rng_u64(r);
        sum += (i64)((u & 0x1fffff) + (u >> 21 & 0x1fffff) + (u >> 42 & 0x1fffff));
    }
    return (double)(2 * sum + 12 - ((i64)12 << 21)) * 0x1p-22;
}
