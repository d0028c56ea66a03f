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

/* All 128 bits of a product, from products of halves: processors of 32 bits have no wider type. */
static inline u64 multiply(u64 x, u64 y, u64 *high)
{
    u64 x0 = x & UINT32_MAX, x1 = x >> 32, y0 = y & UINT32_MAX, y1 = y >> 32;
    u64 low = x0 * y0, middle = x1 * y0 + (low >> 32);
    if (!y1) { /* most ranges, which searches draw from by the million */
        *high = middle >> 32;
        return x * y;
    }
    u64 carry = x0 * y1 + (middle & UINT32_MAX);
    *high = x1 * y1 + (middle >> 32) + (carry >> 32);
    return carry << 32 | (low & UINT32_MAX);
}

i64 rng_range(struct rng *r, i64 lo, i64 hi)
{
    assert(lo <= hi);
    u64 span = (u64)hi - (u64)lo + 1;
    if (span == 0) return (i64)rng_u64(r);
    /* Multiply-high, redrawing in the part of the range that would make low values likelier: the first -span % span, which are fewer than
       span, so that few draws divide (Lemire, Fast random integer generation in an interval, ACM TOMACS 29(1), 2019). */
    u64 high, low = multiply(rng_u64(r), span, &high);
    if (low < span)
        for (const u64 limit = -span % span; low < limit;) low = multiply(rng_u64(r), span, &high);
    return (i64)((u64)lo + high);
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
