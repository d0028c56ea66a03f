// SPDX-License-Identifier: Apache-2.0
//
// tile_codes: a step of a block of terms whose right operand is codes of few bits (struct op_codes), with a scale and a zero point for every column.
//
// The codes of a block are multiplied and summed as small integers, and the sums by the scales: one multiply-add per block instead of a product per term.
//
// Codes of 2 and 4 bits lie in words of a column, [unit of terms][column]: 16 or 8 terms, of which term t is in byte t % 4. A code becomes a float without
// a conversion: its bits, where they lie in the word, are the last ones of the mantissa of a power of two, 2^23 and the code, or 2^19 and the code where it
// lies 4 bits higher; less the same power of two and the zero point, which is exact. That is a logical operation and a subtraction on 16 lanes (AVX-512).
// Words are shifted right where codes would leave the mantissa. Codes of 8 bits lie in bytes, [term][column], and are converted.
// Floats of 4 to 8 bits are converted by integer arithmetic (lower/small.c).
//
// Where results must not depend on the device (in_order), codes are converted and multiplied by their scale one by one, as the operator says.
#include "gen/tile.h"

enum { MANTISSA = 23, BIAS = 127, WORD = 32, FIELD_BYTES = 4 };

i64 code_bits(enum dtype t) { return dtype_bits(t) <= 4 ? dtype_bits(t) : 8; }
i64 code_unit(enum dtype t) { return WORD / code_bits(t); }
i64 code_per_element(enum dtype t) { return code_bits(t) < 8 ? code_unit(t) : 1; }

/* Where term t of a unit lies in its word. */
static i64 position_of(i64 bits, i64 t) { return t % FIELD_BYTES * 8 + t / FIELD_BYTES * bits; }

/* Bits of a word that are read before it is shifted: powers of two are not far above codes, and few of them are needed. */
static i64 window_of(i64 bits) { return bits == 4 ? 16 : 8; }

/* The power of two of which a code is the last bits of the mantissa, if it lies at that position. */
static double power_at(i64 position)
{
    double x = 1;
    for (i64 i = MANTISSA; i > position; i--) x *= 2;
    return x;
}

static u32 bits_at(i64 position) { return (u32)(BIAS + MANTISSA - position) << MANTISSA; }

/* Codes become the last bits of powers of two. */
static bool is_by_mantissa(const struct tile_codes *c) { return !dtype_is_float(c->type) && code_bits(c->type) < 8 && !c->in_order; }

void code_block_open(struct code_block *b, struct emit *m, const struct tile_codes *c, kval at, i64 nr, u32 lanes)
{
    struct kir *k = m->k;
    *b = (struct code_block){0};
    for (i64 j = 0; j < nr; j++) {
        kval idx = kir_ramp(k, kir_add_i(k, at, j * lanes), 1, lanes), zero = 0;
        b->scale[j] = kir_cast(k, DT_F32, kir_load(k, c->scale, idx));
        if (c->zero) zero = kir_cast(k, DT_F32, kir_load(k, c->zero, idx));
        else if (c->offset) zero = kir_const_f(k, DT_F32, lanes, (double)c->offset);
        if (!is_by_mantissa(c)) {
            b->zero[j][0] = zero;
            continue;
        }
        const i64 bits = code_bits(c->type);
        for (i64 p = 0; p < window_of(bits); p += bits) {
            kval power = kir_const_f(k, DT_F32, lanes, power_at(p));
            b->zero[j][p / bits] = zero ? kir_add(k, power, zero) : power;
        }
    }
}

/* A code that lies at a position of the word, less its zero point. */
static kval integer_at(const struct code_block *b, struct kir *k, kval word, i64 bits, i64 position, i64 j)
{
    const u32 lanes = kir_lanes(k, word);
    const i64 window = window_of(bits), shift = position / window * window, p = position % window;
    if (shift) word = kir_bin(k, KI_SHR, word, kir_const_i(k, DT_U32, lanes, shift));
    if (position + bits < WORD || p) word = kir_bin(k, KI_AND, word, kir_const_i(k, DT_U32, lanes, ((i64)(1 << bits) - 1) << p));
    word = kir_bin(k, KI_OR, word, kir_const_i(k, DT_U32, lanes, bits_at(p)));
    return kir_sub(k, kir_bits(k, DT_F32, word), b->zero[j][p / bits]);
}

/* Likewise by a conversion. */
static kval converted_at(const struct code_block *b, struct emit *m, enum dtype t, kval word, i64 position, i64 j)
{
    struct kir *k = m->k;
    const u32 lanes = kir_lanes(k, word);
    const i64 bits = code_bits(t);
    if (position) word = kir_bin(k, KI_SHR, word, kir_const_i(k, DT_U32, lanes, position));
    if (position + bits < WORD) word = kir_bin(k, KI_AND, word, kir_const_i(k, DT_U32, lanes, (1 << bits) - 1));
    kval v = dtype_is_float(t) ? emit_widen(m, t, word) : kir_cast(k, DT_F32, kir_cast(k, DT_U8, word));
    return b->zero[j][0] ? kir_sub(k, v, b->zero[j][0]) : v;
}

void code_unit_load(struct emit *m, const struct tile_codes *c, const struct code_block *b, const struct code_place *p, i64 j, kval out[CODE_UNIT])
{
    struct kir *k = m->k;
    const i64 bits = code_bits(c->type), n = code_unit(c->type), at = j * p->lanes;
    if (bits < 8) {
        kval word = kir_load(k, p->array, kir_ramp(k, kir_add_i(k, p->at, at), 1, p->lanes));
        for (i64 t = 0; t < n; t++)
            out[t] = is_by_mantissa(c) ? integer_at(b, k, word, bits, position_of(bits, t), j) : converted_at(b, m, c->type, word, position_of(bits, t), j);
        return;
    }
    for (i64 t = 0; t < n; t++) {
        kval code = kir_load(k, p->array, kir_ramp(k, kir_add_i(k, p->at, t * p->width + at), 1, p->lanes));
        out[t] = kir_cast(k, DT_F32, emit_widen(m, c->type, code));
        if (b->zero[j][0]) out[t] = kir_sub(k, out[t], b->zero[j][0]);
    }
}

void code_unit_ask(const struct tile *t, kval array, kval at, i64 element)
{
    enum { LINE = 64 };
    struct kir *k = t->m->k;
    const i64 size = t->pitch * t->lanes * WORD / 8;
    for (i64 i = 0; t->ahead && i < size; i += LINE) kir_prefetch(k, array, kir_add_i(k, at, (t->ahead * size + i) / element));
}

static kval left(const struct tile *t, const struct tile_in *a, kval at)
{
    struct kir *k = t->m->k;
    return kir_splat(k, kir_cast(k, t->type, kir_load(k, a->buf, at)), t->lanes);
}

/* The products of a unit of terms, from the left operand's term `term` of the block on. */
static void add_unit(const struct tile *t, const struct tile_in *a, const struct code_block *b, const struct code_place *p, kval term, kval sums)
{
    struct kir *k = t->m->k;
    const i64 n = code_unit(t->codes->type);
    kval right[TILE_COLUMNS][CODE_UNIT];
    for (i64 j = 0; j < t->nr; j++) code_unit_load(t->m, t->codes, b, p, j, right[j]);
    for (i64 j = 0; t->codes->in_order && j < t->nr; j++)
        for (i64 i = 0; i < n; i++) right[j][i] = kir_mul(k, right[j][i], b->scale[j]);
    for (i64 i = 0; i < n; i++)
        for (i64 row = 0; row < t->ty * t->tx; row++) {
            if (!tile_takes_part(a, row)) continue;
            kval x = left(t, a, kir_add(k, tile_row_at(t, a, row), kir_add_i(k, term, i)));
            for (i64 j = 0; j < t->nr; j++) {
                kval at = tile_acc(t, row, j);
                kir_store(k, sums, at, kir_fma(k, x, right[j][i], kir_load(k, sums, at)));
            }
        }
}

static void step(const struct tile *t, const struct tile_in *a, kval b, kval b_at)
{
    struct kir *k = t->m->k;
    const struct tile_codes *c = t->codes;
    const i64 unit = code_unit(c->type), cells = t->ty * t->tx * t->nr;
    struct code_block block;
    struct code_place p = {.array = b, .lanes = t->lanes, .width = t->pitch * t->lanes};
    assert(!t->limit && t->pitch && !a->inside);
    code_block_open(&block, t->m, c, kir_div_i(k, b_at, c->block / code_per_element(c->type)), t->nr, t->lanes);
    kval sums = c->in_order ? t->acc : kir_alloc(k, KS_REG, t->type, t->lanes, kir_int(k, cells));
    for (i64 cell = 0; !c->in_order && cell < cells; cell++) kir_store(k, sums, kir_int(k, cell), kir_const_f(k, t->type, t->lanes, 0));
    kval i = kir_loop(k, KL_SERIAL, kir_int(k, 0), kir_int(k, c->block / unit), 1);
    p.at = kir_add(k, b_at, kir_mul_i(k, i, unit / code_per_element(c->type) * p.width));
    code_unit_ask(t, b, p.at, code_bits(c->type) < 8 ? WORD / 8 : 1);
    add_unit(t, a, &block, &p, kir_mul_i(k, i, unit), sums);
    kir_end(k);
    for (i64 row = 0; !c->in_order && row < t->ty * t->tx; row++)
        for (i64 j = 0; tile_takes_part(a, row) && j < t->nr; j++) {
            kval at = tile_acc(t, row, j);
            kir_store(k, t->acc, at, kir_fma(k, kir_load(k, sums, at), block.scale[j], kir_load(k, t->acc, at)));
        }
}

const struct tile_leaf tile_codes = {.in_groups = true, .step = step};
