// SPDX-License-Identifier: Apache-2.0
//
// Shared by tests of devices with memory of their own. Include after cmocka.h.
#ifndef QUERN_DEV_FIXTURE_H
#define QUERN_DEV_FIXTURE_H

#include "dev/dev.h"

enum { N_PARTS = 40 };

static inline u8 byte_of(u32 part, i64 i) { return (u8)(part * 31 + (u32)i * 7 + 1); }

static inline void fill_part(struct dev *d, struct dev_mem m, u32 part)
{
    struct err e = {0};
    u8 *p = mem_alloc(m.size + 1);
    assert_true(d->driver->download(d, m, p, m.size, &e));
    for (i64 i = 0; i < m.size; i++) assert_int_equal(p[i], 0); /* fresh */
    for (i64 i = 0; i < m.size; i++) p[i] = byte_of(part, i);
    assert_true(d->driver->upload(d, m, p, m.size, &e));
    mem_free(p);
}

static inline void check_part(struct dev *d, struct dev_mem m, u32 part)
{
    struct err e = {0};
    u8 *p = mem_alloc(m.size + 1);
    assert_true(d->driver->download(d, m, p, m.size, &e));
    for (i64 i = 0; i < m.size; i++)
        if (p[i] != byte_of(part, i)) fail_msg("part %u, byte %lld", part, (long long)i);
    mem_free(p);
}

/* Random allocations and releases: zeroed when allocated, never overlapping, contents preserved. */
static inline void use_memory(struct dev *d, u64 seed)
{
    struct dev_mem m[N_PARTS] = {0};
    bool there[N_PARTS] = {0};
    struct rng r = rng_seed(seed);
    for (u32 step = 0; step < 200; step++) {
        u32 k = (u32)rng_range(&r, 0, N_PARTS - 1);
        if (there[k]) {
            check_part(d, m[k], k);
            d->driver->release(d, &m[k]);
        } else {
            struct err e = {0};
            i64 size = (i64[]){0, rng_range(&r, 1, 600), rng_range(&r, 1, 100000), 65 << 20}
                [step % 67 == 66 ? 3 : rng_range(&r, 0, 2)];
            assert_true(d->driver->alloc(d, size, &m[k], &e));
            assert_true(m[k].size == size && m[k].offset % 256 == 0 && !m[k].host);
            fill_part(d, m[k], k);
        }
        there[k] = !there[k];
    }
    for (u32 k = 0; k < N_PARTS; k++)
        if (there[k]) check_part(d, m[k], k), d->driver->release(d, &m[k]);
}

/* Buffers of n numbers, the first holding 0, 1, 2 ... */
static inline void number_buffers(struct dev *d, struct dev_mem m[2], i64 n)
{
    struct err e = {0};
    i32 *p = mem_alloc(4 * n + 4);
    for (i64 i = 0; i < n; i++) p[i] = (i32)i;
    for (int k = 0; k < 2; k++) assert_true(d->driver->alloc(d, 4 * n, &m[k], &e));
    assert_true(d->driver->upload(d, m[0], p, 4 * n, &e));
    mem_free(p);
}

static inline void check_numbers(struct dev *d, struct dev_mem m, i64 n, i32 plus)
{
    struct err e = {0};
    i32 *p = mem_alloc(4 * n + 4);
    assert_true(d->driver->download(d, m, p, 4 * n, &e));
    for (i64 i = 0; i < n; i++)
        if (p[i] != (i32)i + plus) fail_msg("element %lld is %d", (long long)i, p[i]);
    mem_free(p);
}

#endif
