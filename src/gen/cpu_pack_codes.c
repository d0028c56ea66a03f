// SPDX-License-Identifier: Apache-2.0
//
// cpu_pack_codes: operands of GEMMs whose right one is codes of few bits (struct op_codes).
//
// Codes were packed when the kernel was compiled, in the order of their leaf: [block of columns][block of terms][unit of terms][column], with their
// scales and zero points as [block of columns][block of terms][column]. A pass begins with a block of terms. They are read by tiles, or converted once for
// all tiles of an iteration, block of columns by block of columns.
//
// Where tile_code_dots multiplies, an iteration brings its rows into fixed point: every block of terms of a row becomes integers and a common scale. Where
// the left operand may be rounded (op_digits), they have 7 or 15 bits, and the scale maps the largest magnitude to the largest integer. Elsewhere the scale
// is the power of two by which the largest magnitude has 22 bits: each element is off by at most 2^-22 of the block's largest one, less than sums in f32 are
// of so many terms, and by nothing if all are integers of 22 bits times a power of two.
// Integers are stored as digits of 8 bits, [row][block][digit][term], so that products with codes are sums of bytes; or as they are, of 15 bits, for products
// of i16. A block with an infinity or a NaN has
// the scale NaN. Rows lie an odd number of blocks apart.
#include "gen/cpu_gemm.h"

/* Of the codes or what belongs to them: the outermost dimension. */
static struct pack *pack_columns(struct gemm_kernel *p)
{
    struct symtab *t = p->m->g->sym;
    struct pack *k = arena_new(p->m->arena, struct pack);
    pack_dim(k, sym_cdiv(t, p->x.n, sym_const(t, p->width)), 1, p->width);
    return k;
}

static i64 codes_blocks(const struct gemm_kernel *p) { return ceil_div(p->static_k, p->x.codes.block); }

/* Scales or zero points. */
static kval pack_per_block(struct gemm_kernel *p, value_id v)
{
    struct symtab *t = p->m->g->sym;
    struct pack *k = pack_columns(p);
    pack_dim_i(k, t, codes_blocks(p), 0, 1);
    pack_dim_i(k, t, p->width, 1, 1);
    return emit_pack(p->m, v, k);
}

void gemm_pack_codes(struct gemm_kernel *p)
{
    enum { BYTES = 4, PAIR = 2 }; /* of a word */
    struct symtab *t = p->m->g->sym;
    const struct op_codes *c = &p->x.codes;
    const i64 bits = code_bits(c->type), unit = code_unit(c->type);
    struct pack *k = pack_columns(p);
    pack_dim_i(k, t, codes_blocks(p) * c->block / unit, 0, unit);
    const bool are_dots = p->tile.leaf == &tile_code_dots;
    if (p->codes.in_words) {
        pack_dim_i(k, t, BYTES / PAIR, 0, PAIR);
        pack_dim_i(k, t, p->width, 1, 1);
        pack_dim_i(k, t, PAIR, 0, 1);
    } else if (bits < 8 || are_dots) {
        pack_dim_i(k, t, p->width, 1, 1);
        pack_dim_i(k, t, BYTES, 0, 1); /* term t of a unit is in byte t % 4 */
        if (bits < 8) pack_dim_i(k, t, 8 / bits, 0, BYTES), k->bits = (u32)bits, k->dtype = are_dots ? DT_U8 : DT_U32;
    } else {
        pack_dim_i(k, t, unit, 0, 1);
        pack_dim_i(k, t, p->width, 1, 1);
    }
    p->per = pack_per_word(k);
    p->constant = emit_pack(p->m, c->q, k);
    p->codes.type = c->type, p->codes.block = c->block, p->codes.offset = c->offset, p->codes.scale = pack_per_block(p, c->scale);
    if (c->zero) p->codes.zero = pack_per_block(p, c->zero);
}

i64 gemm_codes_step(const struct gemm_kernel *p) { return p->x.codes.block / p->per * p->width; }

kval gemm_codes_at(struct gemm_kernel *p, kval block)
{
    struct kir *k = p->m->k;
    kval at = kir_add(k, kir_mul_i(k, block, codes_blocks(p)), kir_div_i(k, p->c.at, p->x.codes.block));
    return kir_mul_i(k, at, gemm_codes_step(p));
}

void gemm_convert_codes(struct gemm_kernel *p, kval block)
{
    struct kir *k = p->m->k;
    const i64 unit = code_unit(p->codes.type), step = gemm_codes_step(p), units = p->codes.block / unit;
    kval from = gemm_codes_at(p, block), right[CODE_UNIT];
    struct code_block b;
    struct code_place place = {.array = p->constant, .width = p->width, .lanes = p->lanes};
    kval n = kir_div_i(k, kir_add_i(k, p->c.len, p->codes.block - 1), p->codes.block), i = kir_loop(k, KL_SERIAL, kir_int(k, 0), n, 1);
    kval at = kir_add(k, from, kir_mul_i(k, i, step));
    for (i64 j = 0; j < p->s.nr; j++) {
        code_block_open(&b, p->m, &p->codes, kir_add_i(k, kir_div_i(k, at, step / p->width), j * p->lanes), 1, p->lanes);
        kval u = kir_loop(k, KL_SERIAL, kir_int(k, 0), kir_int(k, units), 1);
        place.at = kir_add_i(k, kir_add(k, at, kir_mul_i(k, u, step / units)), j * p->lanes);
        code_unit_load(p->m, &p->codes, &b, &place, 0, right);
        kval to = kir_mul_i(k, kir_add(k, kir_mul_i(k, i, p->codes.block), kir_mul_i(k, u, unit)), p->width);
        for (i64 t = 0; t < unit; t++)
            kir_store(k, p->right, kir_ramp(k, kir_add_i(k, to, t * p->width + j * p->lanes), 1, p->lanes), kir_mul(k, right[t], b.scale[0]));
        kir_end(k);
    }
    kir_end(k);
}

/* Digits. */

/* The largest integer of one or two digits that fit bytes. */
static double most_of(i64 digits)
{
    const i64 bits = code_digit_bits(digits);
    return digits == 1 ? 127 : (double)(127 * (1 << bits) + (1 << (bits - 1)) - 1);
}

struct digits { /* of a block of a row */
    struct gemm_kernel *p;
    kval values; /* WORK: f32 of the block, zeros behind the last term */
    kval row, at; /* of the pass: row, first term */
    kval to, index; /* first element of its digits, and of its scale and sum */
};

/* The block's terms, by the operand's prologue. */
static void copy_values(const struct digits *d)
{
    struct gemm_kernel *p = d->p;
    struct emit *m = p->m;
    struct kir *k = m->k;
    const i64 block = p->codes.block;
    kval n = kir_min(k, kir_int(k, block), kir_sub(k, p->c.len, d->at)), idx[MAX_RANK], zero = kir_int(k, 0);
    if (p->static_k % block) {
        kval i = kir_loop(k, KL_SERIAL, zero, kir_int(k, block), p->lanes);
        kir_store(k, d->values, kir_ramp(k, i, 1, p->lanes), kir_const_f(k, DT_F32, p->lanes, 0));
        kir_end(k);
    }
    struct vectors v = vectors_over(k, zero, n, p->lanes);
    while (vectors_next(&v)) {
        kval term = kir_add(k, kir_add(k, p->c.at, d->at), v.at);
        gemm_index(m, &p->x, p->x.a, p->pos, d->row, kir_ramp(k, term, 1, p->lanes), idx);
        emit_limit(m, v.limit);
        kval x = kir_cast(k, DT_F32, emit_value(m, p->x.a, idx));
        kir_store_n(k, d->values, kir_ramp(k, v.at, 1, p->lanes), kir_splat(k, x, p->lanes), v.limit);
        emit_limit(m, 0);
    }
}

static kval value_at(const struct digits *d, kval i) { return kir_load(d->p->m->k, d->values, kir_ramp(d->p->m->k, i, 1, d->p->lanes)); }

/* The largest magnitude; *odd: 0, or NaN if there is an infinity or a NaN. */
static kval largest(const struct digits *d, kval *odd)
{
    struct gemm_kernel *p = d->p;
    struct kir *k = p->m->k;
    kval reg = kir_alloc(k, KS_REG, DT_F32, p->lanes, kir_int(k, 2)), zero = kir_const_f(k, DT_F32, p->lanes, 0), first = kir_int(k, 0), second = kir_int(k, 1);
    kir_store(k, reg, first, zero), kir_store(k, reg, second, zero);
    kval i = kir_loop(k, KL_SERIAL, kir_int(k, 0), kir_int(k, p->codes.block), p->lanes), x = value_at(d, i);
    kir_store(k, reg, first, kir_max(k, kir_un(k, KI_ABS, x), kir_load(k, reg, first)));
    kir_store(k, reg, second, kir_fma(k, x, zero, kir_load(k, reg, second)));
    kir_end(k);
    *odd = kir_un(k, KI_HADD, kir_load(k, reg, second));
    return kir_un(k, KI_HMAX, kir_load(k, reg, first));
}

struct fixed { kval up, down; }; /* f32: by which elements become integers, and back */

/* The largest magnitude becomes the largest integer. A magnitude that has no reciprocal counts as 0. */
static struct fixed fixed_by_most(struct kir *k, kval most, i64 digits)
{
    kval least = kir_const_f(k, DT_F32, 1, 0x1p-100), up = kir_div(k, kir_const_f(k, DT_F32, 1, most_of(digits)), kir_max(k, most, least));
    return (struct fixed){kir_select(k, kir_lt(k, least, most), up, kir_const_f(k, DT_F32, 1, 0)), kir_mul(k, most, kir_const_f(k, DT_F32, 1, 1 / most_of(digits)))};
}

/* By a power of two, the largest magnitude becomes an integer of 22 bits: 2^e * 1.. times 2^(21 - e), from its exponent's bits. */
static struct fixed fixed_by_power(struct kir *k, kval most)
{
    enum { MANTISSA = 23, EXPONENT = 0x7f800000, BIAS = 127, BITS = 21 };
    kval least = kir_const_f(k, DT_F32, 1, 0x1p-105), e = kir_bin(k, KI_AND, kir_bits(k, DT_U32, kir_max(k, most, least)), kir_const_i(k, DT_U32, 1, EXPONENT));
    kval up = kir_bits(k, DT_F32, kir_sub(k, kir_const_i(k, DT_U32, 1, (i64)(2 * BIAS + BITS) << MANTISSA), e));
    kval down = kir_bits(k, DT_F32, kir_sub(k, e, kir_const_i(k, DT_U32, 1, (i64)BITS << MANTISSA)));
    return (struct fixed){up, down};
}

/* Stores the digits of a vector of integers from their first term on, and adds them to the block's sums. */
static void split_digits(const struct digits *d, kval q, kval term, kval sums)
{
    struct gemm_kernel *p = d->p;
    struct kir *k = p->m->k;
    const i64 n = p->codes.digits, n_sums = code_left_sums(n), bits = code_digit_bits(n);
    kval shift = kir_const_i(k, DT_I32, p->lanes, bits), half = kir_const_i(k, DT_I32, p->lanes, 1 << (bits - 1));
    for (i64 i = n - 1; i >= 0; i--) {
        kval up = i ? kir_bin(k, KI_SHR, kir_add(k, q, half), shift) : 0, digit = i ? kir_sub(k, q, kir_bin(k, KI_SHL, up, shift)) : q;
        kval sum = i == n - 1 && n_sums == 2 ? digit : i == n - n_sums ? q : 0, at = kir_int(k, i == n - 1 ? n_sums - 1 : 0);
        if (sum) kir_store(k, sums, at, kir_add(k, sum, kir_load(k, sums, at)));
        kir_store(k, p->left, kir_ramp(k, kir_add(k, d->to, kir_add_i(k, term, i * p->codes.block)), 1, p->lanes), kir_cast(k, kir_dtype(k, p->left), digit));
        q = up;
    }
}

static void store_digits(const struct digits *d)
{
    struct gemm_kernel *p = d->p;
    struct kir *k = p->m->k;
    const i64 n_sums = code_left_sums(p->codes.digits);
    kval odd, most = largest(d, &odd);
    struct fixed f = p->codes.digits == CODE_DIGITS ? fixed_by_power(k, most) : fixed_by_most(k, most, p->codes.in_words ? 2 : p->codes.digits);
    kval sums = kir_alloc(k, KS_REG, DT_I32, p->lanes, kir_int(k, n_sums));
    for (i64 i = 0; i < n_sums; i++) kir_store(k, sums, kir_int(k, i), kir_const_i(k, DT_I32, p->lanes, 0));
    kval i = kir_loop(k, KL_SERIAL, kir_int(k, 0), kir_int(k, p->codes.block), p->lanes);
    split_digits(d, kir_cast(k, DT_I32, kir_un(k, KI_RINT, kir_mul(k, value_at(d, i), kir_splat(k, f.up, p->lanes)))), i, sums);
    kir_end(k);
    kir_store(k, p->codes.left_scale, d->index, kir_add(k, f.down, odd));
    for (i64 s = 0; s < n_sums; s++) {
        kval sum = kir_un(k, KI_HADD, kir_load(k, sums, kir_int(k, s)));
        kir_store(k, p->codes.left_sum, kir_add_i(k, kir_mul_i(k, d->index, n_sums), s), kir_mul(k, sum, kir_const_i(k, DT_I32, 1, code_dots_offset(&p->codes))));
    }
}

/* Blocks from one row to the next. */
static i64 row_blocks(const struct gemm_kernel *p)
{
    i64 terms = p->d.many ? p->s.bk : p->static_k;
    return ceil_div(terms, p->codes.block) | 1;
}

void gemm_open_digits(struct gemm_kernel *p, sym rows)
{
    struct emit *m = p->m;
    struct kir *k = m->k;
    struct symtab *st = m->g->sym;
    sym blocks = sym_mul(st, rows, sym_const(st, row_blocks(p)));
    const i64 size = p->codes.block * p->codes.digits;
    p->pitch = kir_int(k, row_blocks(p) * size);
    p->left = kir_alloc(k, KS_WORK, p->codes.in_words ? DT_I16 : DT_I8, 1, emit_size(m, sym_mul(st, blocks, sym_const(st, size))));
    p->codes.left_scale = kir_alloc(k, KS_WORK, DT_F32, 1, emit_size(m, blocks));
    p->codes.left_sum = kir_alloc(k, KS_WORK, DT_I32, 1, emit_size(m, sym_mul(st, blocks, sym_const(st, code_left_sums(p->codes.digits)))));
    p->codes.values = kir_alloc(k, KS_WORK, DT_F32, 1, kir_int(k, p->codes.block));
}

void gemm_pack_digits(struct gemm_kernel *p)
{
    struct kir *k = p->m->k;
    const i64 block = p->codes.block;
    kval n = kir_sub(k, p->m1, p->m0), all = n;
    if (p->static_m < 0) all = kir_mul_i(k, kir_div_i(k, kir_add_i(k, n, p->s.mr - 1), p->s.mr), p->s.mr);
    kval row = kir_loop(k, KL_SERIAL, kir_int(k, 0), all, 1);
    kval b = kir_loop(k, KL_SERIAL, kir_int(k, 0), kir_div_i(k, kir_add_i(k, p->c.len, block - 1), block), 1);
    struct digits d = {.p = p, .values = p->codes.values, .at = kir_mul_i(k, b, block)};
    d.row = kir_add(k, p->m0, p->static_m < 0 ? kir_min(k, row, kir_add_i(k, n, -1)) : row);
    d.index = kir_add(k, kir_mul_i(k, row, row_blocks(p)), b);
    d.to = kir_mul_i(k, d.index, block * p->codes.digits);
    copy_values(&d);
    store_digits(&d);
    kir_end(k);
    kir_end(k);
}
