// SPDX-License-Identifier: Apache-2.0
//
// tile_code_dots: as tile_codes, with a left operand in fixed point: a row's block of terms is integers of 7, 15 or 22 bits and a scale, as digits of 8 bits
// (cpu_pack_codes.c), and codes are unsigned bytes, which products of bytes multiply, 4 terms in a lane (VNNI), or, of 2 or 4 bits, in pairs (vpmaddubsw)
// whose sums fit i16 for as many terms as are added in it. Signed codes are taken with a zero point 128 higher. Sums of a block are exact, up to the last
// addition of three digits' sums; what remains in f32 is one multiply-add per block:
//
//   sum of (q - zero) * a = sum of q * a - zero * sum of a, in i32, times both scales
//
// Where products of bytes do not suit codes of 8 bits (vpmaddubsw would saturate), both operands are i16, multiplied in pairs (vpmaddwd): the left one's
// integers have 15 bits then, in one piece, and a unit of 4 terms is [pair][column][term].
//
// The subtraction is what sums begin with. One or two digits add up in i32; of three, the first two do, and the third in another i32.
#include "gen/tile.h"

enum { FIELD_BYTES = 4, PAIR = 2, SIGN = 128 };

/* Instructions for both operands, if the target has them and codes suit. */
static bool has_pairs(const struct caps *c) { return caps_has_dot(c, DT_U8, DT_I8, DT_I16) && caps_has_dot(c, DT_I16, DT_I16, DT_I32); }

static bool are_integers(const struct caps *c, enum dtype codes)
{
    return !dtype_is_float(codes) && c->vector_bytes >= 16 && c->vector_bytes <= 64 && !c->deterministic;
}

bool code_words_suit(const struct caps *c, enum dtype codes)
{
    return are_integers(c, codes) && code_bits(codes) == 8 && !code_dots_suit(c, codes) && caps_has_dot(c, DT_I16, DT_I16, DT_I32);
}

bool code_dots_suit(const struct caps *c, enum dtype codes)
{
    return are_integers(c, codes) && (caps_has_dot(c, DT_U8, DT_I8, DT_I32) || (code_bits(codes) < 8 && has_pairs(c)));
}

/* Units whose products fit i16, a divisor of all of them: of each a lane has a pair of terms from every field. */
static i64 units_in_i16(i64 bits, i64 units)
{
    i64 pair = 2 * ((1 << bits) - 1) * SIGN, n = i64_max(1, INT16_MAX / pair / (8 / bits));
    while (units % n) n--;
    return n;
}

struct sums { /* REG arrays, an element per digit and cell */
    kval wide, narrow; /* i32; i16, 0: products are summed in i32 at once */
};

static kval cell(const struct tile *t, i64 digit, i64 row, i64 j) { return kir_int(t->m->k, (digit * t->ty * t->tx + row) * t->nr + j); }

static void clear(const struct tile *t, kval array, enum dtype type, u32 lanes)
{
    struct kir *k = t->m->k;
    for (i64 i = 0; i < t->codes->digits * t->ty * t->tx * t->nr; i++) kir_store(k, array, kir_int(k, i), kir_const_i(k, type, lanes, 0));
}

static bool are_shifted(const struct tile_codes *c) { return c->type == DT_I8 && !c->in_words; } /* signed codes become unsigned */

i64 code_dots_offset(const struct tile_codes *c) { return c->zero ? -1 : -(c->offset + (are_shifted(c) ? SIGN : 0)); }

/* The sums of the last digits begin with -zero * sum of a. at: of scales and zero points. */
static void subtract_zeros(const struct tile *t, const struct tile_in *a, const struct sums *s, kval at)
{
    struct kir *k = t->m->k;
    const struct tile_codes *c = t->codes;
    const i64 n = code_left_sums(c->digits);
    if (!code_dots_offset(c)) return;
    for (i64 j = 0; j < t->nr; j++) {
        kval zero = c->zero ? kir_cast(k, DT_I32, kir_load(k, c->zero, kir_ramp(k, kir_add_i(k, at, j * t->lanes), 1, t->lanes))) : 0;
        if (zero && are_shifted(c)) zero = kir_add(k, zero, kir_const_i(k, DT_I32, t->lanes, SIGN));
        for (i64 row = 0; row < t->ty * t->tx; row++) {
            if (!tile_takes_part(a, row)) continue;
            kval block = kir_div_i(k, tile_row_at(t, a, row), c->block * c->digits);
            for (i64 i = 0; i < n; i++) {
                kval sum = kir_splat(k, kir_load(k, c->left_sum, kir_add_i(k, kir_mul_i(k, block, n), i)), t->lanes);
                kir_store(k, s->wide, cell(t, c->digits - n + i, row, j), zero ? kir_mul(k, zero, sum) : sum);
            }
        }
    }
}

/* Row by row, so that a row's terms, spread to all lanes, take one register: `terms` of them from `term` on, for lanes of the right operand's vectors. */
static void multiply(const struct tile *t, const struct tile_in *a, kval to, const kval *right, kval term, i64 terms)
{
    struct kir *k = t->m->k;
    const struct tile_codes *c = t->codes;
    for (i64 row = 0; row < t->ty * t->tx; row++)
        for (i64 d = 0; tile_takes_part(a, row) && d < c->digits; d++) {
            kval from = kir_add_i(k, kir_add(k, tile_row_at(t, a, row), term), d * c->block);
            kval left = kir_repeat(k, kir_load(k, a->buf, kir_ramp(k, from, 1, (u32)terms)), kir_lanes(k, right[0]));
            for (i64 j = 0; j < t->nr; j++) kir_store(k, to, cell(t, d, row, j), kir_dot(k, right[j], left, kir_load(k, to, cell(t, d, row, j))));
        }
}

/* Products of the terms of a unit, whose words begin at `at`; term: number of its first term in the block. */
static void add_unit(const struct tile *t, const struct tile_in *a, const struct sums *s, kval b, kval at, kval term)
{
    struct kir *k = t->m->k;
    const struct tile_codes *c = t->codes;
    const i64 bits = code_bits(c->type);
    const u32 lanes = t->lanes * FIELD_BYTES;
    kval to = s->narrow ? s->narrow : s->wide;
    kval right[TILE_COLUMNS];
    for (i64 f = 0; f < 8 / bits; f++) {
        for (i64 j = 0; j < t->nr; j++) {
            right[j] = kir_load(k, b, kir_ramp(k, kir_add_i(k, at, j * lanes), 1, lanes));
            if (c->type == DT_I8) right[j] = kir_bin(k, KI_XOR, kir_bits(k, DT_U8, right[j]), kir_const_i(k, DT_U8, lanes, SIGN));
            if (f) right[j] = kir_bin(k, KI_SHR, right[j], kir_const_i(k, DT_U8, lanes, f * bits));
            if (f + 1 < 8 / bits) right[j] = kir_bin(k, KI_AND, right[j], kir_const_i(k, DT_U8, lanes, (1 << bits) - 1));
        }
        multiply(t, a, to, right, kir_add_i(k, term, f * FIELD_BYTES), FIELD_BYTES);
    }
}

/* Likewise of words, pair by pair. */
static void add_words(const struct tile *t, const struct tile_in *a, const struct sums *s, kval b, kval at, kval term)
{
    struct kir *k = t->m->k;
    const u32 lanes = t->lanes * PAIR;
    kval right[TILE_COLUMNS];
    for (i64 pair = 0; pair < FIELD_BYTES / PAIR; pair++) {
        for (i64 j = 0; j < t->nr; j++)
            right[j] = kir_cast(k, DT_I16, kir_load(k, b, kir_ramp(k, kir_add_i(k, at, (pair * t->pitch + j) * lanes), 1, lanes)));
        multiply(t, a, s->wide, right, kir_add_i(k, term, pair * PAIR), PAIR);
    }
}

/* Sums of pairs are added to those in i32, the first two digits' to one. */
static void widen(const struct tile *t, const struct sums *s)
{
    struct kir *k = t->m->k;
    const i64 digits = t->codes->digits;
    for (i64 d = 0; d < digits; d++) {
        bool is_joined = digits > 1 && !d;
        kval factor = kir_const_i(k, DT_I16, 2 * t->lanes, is_joined ? 1 << code_digit_bits(digits) : 1);
        for (i64 row = 0; row < t->ty * t->tx; row++)
            for (i64 j = 0; j < t->nr; j++) {
                kval to = cell(t, is_joined ? 1 : d, row, j);
                kir_store(k, s->wide, to, kir_dot(k, kir_load(k, s->narrow, cell(t, d, row, j)), factor, kir_load(k, s->wide, to)));
            }
    }
}

/* The sum of all digits, as f32. */
static kval sum_of(const struct tile *t, const struct sums *s, i64 row, i64 j)
{
    struct kir *k = t->m->k;
    const i64 digits = t->codes->digits, bits = code_digit_bits(digits);
    kval sum = kir_load(k, s->wide, cell(t, digits > 1 && s->narrow ? 1 : 0, row, j));
    if (digits > 1 && !s->narrow) sum = kir_add(k, kir_bin(k, KI_SHL, sum, kir_const_i(k, DT_I32, t->lanes, bits)), kir_load(k, s->wide, cell(t, 1, row, j)));
    sum = kir_cast(k, DT_F32, sum);
    if (digits < 3) return sum;
    kval last = kir_cast(k, DT_F32, kir_load(k, s->wide, cell(t, 2, row, j)));
    return kir_fma(k, sum, kir_const_f(k, DT_F32, t->lanes, (double)(1 << bits)), last);
}

/* Adds a block's sums. */
static void finish(const struct tile *t, const struct tile_in *a, const struct sums *s, kval at)
{
    struct kir *k = t->m->k;
    const struct tile_codes *c = t->codes;
    for (i64 j = 0; j < t->nr; j++) {
        kval scale = kir_cast(k, DT_F32, kir_load(k, c->scale, kir_ramp(k, kir_add_i(k, at, j * t->lanes), 1, t->lanes)));
        for (i64 row = 0; row < t->ty * t->tx; row++) {
            if (!tile_takes_part(a, row)) continue;
            kval block = kir_div_i(k, tile_row_at(t, a, row), c->block * c->digits), i = tile_acc(t, row, j);
            kval by = kir_mul(k, scale, kir_splat(k, kir_load(k, c->left_scale, block), t->lanes));
            kir_store(k, t->acc, i, kir_fma(k, sum_of(t, s, row, j), by, kir_load(k, t->acc, i)));
        }
    }
}

static void step(const struct tile *t, const struct tile_in *a, kval b, kval b_at)
{
    struct kir *k = t->m->k;
    const struct tile_codes *c = t->codes;
    const i64 unit = code_unit(c->type), units = c->block / unit, width = t->pitch * t->lanes * FIELD_BYTES, cells = c->digits * t->ty * t->tx * t->nr;
    const i64 many = c->in_pairs ? units_in_i16(code_bits(c->type), units) : units;
    struct sums s = {.wide = kir_alloc(k, KS_REG, DT_I32, t->lanes, kir_int(k, cells))};
    kval block = kir_div_i(k, b_at, units * FIELD_BYTES);
    assert(c->in_pairs || many == units);
    assert(!t->limit && t->pitch && !a->inside && c->digits <= CODE_DIGITS);
    if (c->in_pairs) s.narrow = kir_alloc(k, KS_REG, DT_I16, 2 * t->lanes, kir_int(k, cells));
    clear(t, s.wide, DT_I32, t->lanes);
    subtract_zeros(t, a, &s, block);
    kval part = many < units ? kir_loop(k, KL_SERIAL, kir_int(k, 0), kir_int(k, units), many) : kir_int(k, 0);
    if (c->in_pairs) clear(t, s.narrow, DT_I16, 2 * t->lanes);
    kval i = c->in_pairs ? kir_add(k, part, kir_loop(k, KL_UNROLL, kir_int(k, 0), kir_int(k, many), 1)) : kir_loop(k, KL_SERIAL, part, kir_int(k, units), 1);
    kval at = kir_add(k, b_at, kir_mul_i(k, i, width));
    code_unit_ask(t, b, at, 1);
    (c->in_words ? add_words : add_unit)(t, a, &s, b, at, kir_mul_i(k, i, unit));
    kir_end(k);
    if (c->in_pairs) widen(t, &s);
    if (many < units) kir_end(k);
    finish(t, a, &s, block);
}

const struct tile_leaf tile_code_dots = {.in_groups = true, .step = step};
