// SPDX-License-Identifier: Apache-2.0
//
// Content hashes: XXH3, whose results are defined and the same on every platform. They name cached
// binaries and database rows, so changing the function invalidates both.
//
// The header is used inline, so nothing is linked. Not cryptographic: an
// attacker can create collisions, which is acceptable for a user's own cache.
#include "core/core.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

struct hash hash_bytes(const void *p, i64 n)
{
    XXH128_hash_t h = XXH3_128bits(n ? p : "", (size_t)n);
    return (struct hash){h.low64, h.high64};
}

u64 hash_u64(const void *p, i64 n) { return XXH3_64bits(n ? p : "", (size_t)n); }

void hash_hex(struct hash h, char out[33])
{
    static const char digit[] = "0123456789abcdef";
    for (int i = 0; i < 16; i++) {
        out[15 - i] = digit[h.hi >> (4 * i) & 15];
        out[31 - i] = digit[h.lo >> (4 * i) & 15];
    }
    out[32] = 0;
}
