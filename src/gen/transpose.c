// SPDX-License-Identifier: Apache-2.0
//
// transpose: square blocks of elements in scratch memory are transposed, as many rows as a vector has lanes. All languages have loads of every
// other element, two loads and a permutation on most processors; as many passes of them over a block as its side has bits bring rows
// to columns (Stone 1971, Parallel processing with the perfect shuffle): what lies in row r, column c goes from c + r*n to r + c'*n, c' being c with
// its bits reversed. A pass goes through many blocks before the next one begins: vectors that span two which were stored just before
// would have to wait for them.
#include "gen/gen.h"

void transpose_open(struct transpose *t, struct kir *k, enum dtype type, u32 lanes, i64 blocks)
{
    *t = (struct transpose){.k = k, .lanes = lanes};
    for (u32 i = 0; i < 2; i++) t->room[i] = kir_alloc(k, KS_WORK, type, 1, kir_int(k, blocks * lanes * lanes));
}

/* A row, or a vector of a pass. */
static kval element(const struct transpose *t, kval block, kval row)
{
    return kir_mul_i(t->k, kir_add(t->k, kir_mul_i(t->k, block, t->lanes), row), t->lanes);
}

void transpose_row(const struct transpose *t, kval block, kval row, kval v)
{
    kir_store(t->k, t->room[0], kir_ramp(t->k, element(t, block, row), 1, t->lanes), v);
}

/* The block's vector number u behind a pass that makes `groups` groups of half as many. */
static kval every_other(const struct transpose *t, kval room, kval block, i64 groups, i64 u)
{
    i64 n = t->lanes, per = n / groups, group = u / per, from = group / 2 * (2 * per * n) + u % per * 2 * n + group % 2;
    kval at = kir_add_i(t->k, element(t, block, kir_int(t->k, 0)), from);
    return kir_load(t->k, room, kir_ramp(t->k, at, 2, t->lanes));
}

static i64 reversed(i64 i, i64 n)
{
    i64 r = 0;
    for (; n > 1; n /= 2, i /= 2) r = 2 * r + i % 2;
    return r;
}

u32 transpose_blocks(const struct transpose *t, kval blocks)
{
    struct kir *k = t->k;
    u32 from = 0;
    for (i64 groups = 2; groups < t->lanes; groups *= 2, from ^= 1) {
        kval b = kir_loop(k, KL_SERIAL, kir_int(k, 0), blocks, 1);
        for (i64 u = 0; u < t->lanes; u++) {
            kval at = element(t, b, kir_int(k, u));
            kir_store(k, t->room[from ^ 1], kir_ramp(k, at, 1, t->lanes), every_other(t, t->room[from], b, groups, u));
        }
        kir_end(k);
    }
    return from;
}

void transpose_store(const struct transpose *t, u32 from, kval block, const struct transpose_to *to)
{
    struct kir *k = t->k;
    for (i64 u = 0; u < t->lanes; u++) {
        i64 column = reversed(u, t->lanes);
        if (column >= to->columns) continue;
        kval at = kir_ramp(k, kir_add_i(k, to->at, column * to->pitch), 1, t->lanes);
        kir_store(k, to->array, at, every_other(t, t->room[from], block, t->lanes, u));
    }
}

/* Each pass interleaves the lanes of rows i and i + n/2, so that row and column exchange a bit. */
void transpose_vectors(struct kir *k, kval *row, u32 lanes)
{
    kval next[64];
    assert(lanes <= countof(next));
    for (u32 pass = 1; pass < lanes; pass *= 2) {
        for (u32 i = 0; i < lanes; i++) next[i] = kir_zip(k, row[i / 2], row[i / 2 + lanes / 2], i % 2 ? lanes : 0, lanes);
        for (u32 i = 0; i < lanes; i++) row[i] = next[i];
    }
}
