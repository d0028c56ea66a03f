// SPDX-License-Identifier: Apache-2.0
//
// avoid.c: replaces operators that a target's driver lacks or computes incorrectly by simpler ones. A list names them,
// words "rint:f64", "cast:f32:f16", "div:f32=0" (by a constant), "loop:i64" (loop-carried values in a register array). A
// '!' before a word says that the replacement does not work either: the operator is rejected. A replacement relies on
// arithmetic that is not reordered, as math.h does. Infinities, NaN, the sign of zero and ties are those of the operator.
#include "kir/legal.h"

#include <math.h>

enum { MAX_PASSES = 4 /* a replacement may use operators that have a replacement */ };

struct avoid {
    struct kir_copy copy;
    struct str list;
    kval *high; /* of an array stored as two arrays of halves: the second one */
};

enum way { WAY_OWN, WAY_OTHER /* the replacement */, WAY_NONE /* rejected */ };

/* The next word of a list, without its '!'. */
static enum way next_word(struct str *list, struct str *word)
{
    str_cut(*list, ' ', word, list);
    if (!str_starts(*word, S("!"))) return WAY_OTHER;
    *word = str_sub(*word, 1, word->n);
    return WAY_NONE;
}

/* to: DT_NONE except for cast and bits */
static bool is_word(struct str word, const char *op, enum dtype t, enum dtype to)
{
    struct str name, rest, type, target;
    if (!str_cut(word, ':', &name, &rest) || !str_is(name, op)) return false;
    bool has_to = str_cut(rest, ':', &type, &target);
    return dtype_parse(has_to ? type : rest) == t && (has_to ? dtype_parse(target) : DT_NONE) == to;
}

/* Whether operand b is the constant that a word "div:f32=0" names. */
static bool has_constant(const struct kir *k, const struct kir_ins *x, struct str value)
{
    double f, g;
    i64 i, j;
    if (!x->b) return false;
    if (kir_is_const(k, x->b, &i)) return str_to_i64(value, &j) && i == j;
    return kir_is_float(k, x->b, &f) && str_to_f64(value, &g) && ((isnan(f) && isnan(g)) || (f == g && signbit(f) == signbit(g)));
}

static bool is_constant_word(struct str word, const struct kir *k, const struct kir_ins *x, enum dtype t)
{
    struct str name, rest, type, value;
    bool is_it = str_cut(word, ':', &name, &rest) && str_is(name, kir_op_info(x->op)->name) && str_cut(rest, '=', &type, &value);
    return is_it && dtype_parse(type) == t && has_constant(k, x, value);
}

static enum dtype operand_type(const struct kir *k, const struct kir_ins *x)
{
    if (x->op == KI_ALLOC) return x->dtype;
    return kir_dtype(k, x->op == KI_SELECT ? x->b : x->a);
}

static bool is_array(const struct kir_ins *x) { return x->op == KI_ALLOC && x->aux == KS_REG && !x->role; }

/* The treatment of an instruction: if several words name it, a rejection has precedence. */
static enum way way_of(const struct avoid *v, const struct kir *k, kval at)
{
    const struct kir_ins *x = kir_at(k, at);
    bool is_array_ = is_array(x), is_cast = x->op == KI_CAST || x->op == KI_BITS;
    if (!is_array_ && (kir_op_info(x->op)->cls != 'P' || !x->a || kir_is_frag(k, at))) return WAY_OWN;
    enum dtype t = operand_type(k, x), to = is_cast ? kir_dtype(k, at) : DT_NONE;
    const char *name = is_array_ ? "loop" : kir_op_info(x->op)->name;
    enum way way = WAY_OWN, w;
    struct str word, list = v->list;
    while (list.n) {
        w = next_word(&list, &word);
        if (w > way && (is_word(word, name, t, to) || (!is_array_ && is_constant_word(word, k, x, t)))) way = w;
    }
    return way;
}

/* Floats as bits. */

struct bits { /* of a float type */
    enum dtype word;
    u32 digits;
    u64 sign, inf;
};

static bool bits_of(struct bits *b, enum dtype t)
{
    if (t == DT_F32) *b = (struct bits){DT_U32, 23, 1u << 31, 0x7f800000};
    else if (t == DT_F64) *b = (struct bits){DT_U64, 52, 1ull << 63, 0x7ffull << 52};
    else if (t == DT_F16) *b = (struct bits){DT_U16, 10, 1u << 15, 0x7c00};
    else if (t == DT_BF16) *b = (struct bits){DT_U16, 7, 1u << 15, 0x7f80};
    else return false;
    return true;
}

struct def { /* operators used by a replacement */
    struct kir *k;
    struct bits b;
    enum dtype t;
    u32 lanes;
};

static kval word(const struct def *d, u64 v) { return kir_const_i(d->k, d->b.word, d->lanes, kir_wrap(d->b.word, (i64)v)); }
static kval number(const struct def *d, double v) { return kir_const_f(d->k, d->t, d->lanes, v); }
static kval to_bits(const struct def *d, kval x) { return kir_bits(d->k, d->b.word, x); }
static kval and(const struct def *d, kval a, kval b) { return kir_bin(d->k, KI_AND, a, b); }
static kval or(const struct def *d, kval a, kval b) { return kir_bin(d->k, KI_OR, a, b); }
static kval magnitude(const struct def *d, kval x) { return and(d, to_bits(d, x), word(d, ~d->b.sign)); }

/* a >= 0, or NaN, with the sign of x */
static kval signed_as(const struct def *d, kval a, kval x)
{
    return kir_bits(d->k, d->t, or(d, magnitude(d, a), and(d, to_bits(d, x), word(d, d->b.sign))));
}

/* From 2^digits on every float is an integer; below, adding and subtracting that number rounds to
   nearest, ties to even. */
static kval nearest(const struct def *d, kval a, kval x)
{
    kval big = number(d, (double)(1ull << d->b.digits));
    kval r = kir_sub(d->k, kir_add(d->k, a, big), big);
    return kir_select(d->k, kir_lt(d->k, a, big), r, x);
}

static kval define_rounding(const struct def *d, enum kir_op op, kval x)
{
    struct kir *k = d->k;
    kval a = kir_bits(k, d->t, magnitude(d, x)), r = nearest(d, a, a), one = number(d, 1), zero = number(d, 0);
    if (op == KI_RINT) return signed_as(d, r, x);
    kval down = kir_sub(k, r, kir_select(k, kir_lt(k, a, r), one, zero)); /* of the magnitude */
    if (op == KI_TRUNC) return signed_as(d, down, x);
    kval is_less = kir_lt(k, down, a), is_negative = kir_bin(k, KI_NE, and(d, to_bits(d, x), word(d, d->b.sign)), word(d, 0));
    if (op == KI_CEIL) is_negative = kir_un(k, KI_NOT, is_negative);
    kval grows = kir_bin(k, KI_AND, is_less, is_negative);
    return signed_as(d, kir_add(k, down, kir_select(k, grows, one, zero)), x);
}

/* By a constant zero, which compilers tend to fold as if signed zeros, infinities and NaN did not
   exist. */
static kval define_zero(const struct def *d, enum kir_op op, kval x, double zero)
{
    struct kir *k = d->k;
    bool is_minus = signbit(zero);
    kval sign = word(d, is_minus ? d->b.sign : 0), own = and(d, to_bits(d, x), word(d, d->b.sign)), nan = word(d, d->b.inf | d->b.inf >> 1);
    switch (op) {
    case KI_DIV: return kir_mul(k, x, number(d, is_minus ? -INFINITY : INFINITY)); /* the same by IEEE 754 */
    case KI_MUL: return kir_bits(k, d->t, kir_select(k, kir_lt(k, magnitude(d, x), word(d, d->b.inf)), kir_bin(k, KI_XOR, own, sign), nan));
    case KI_ADD:
        return is_minus ? x : kir_bits(k, d->t, kir_select(k, kir_bin(k, KI_EQ, magnitude(d, x), word(d, 0)), word(d, 0), to_bits(d, x)));
    case KIR_NOT_LANEWISE: case KIR_CONVERSIONS: case KIR_UNARY: case KI_SUB: case KI_MOD:
    case KI_MIN: case KI_MAX: case KI_POW: case KIR_LOGIC: case KIR_SHIFTS:
    case KIR_COMPARISONS: case KI_FMA: case KI_SELECT: return 0;
    default: unreachable();
    }
}

static kval define_float(const struct def *d, enum kir_op op, kval p, kval q, kval r)
{
    struct kir *k = d->k;
    switch (op) {
    case KIR_ROUNDING: return d->t == DT_F32 || d->t == DT_F64 ? define_rounding(d, op, p) : 0;
    case KI_ABS: return kir_bits(k, d->t, magnitude(d, p));
    case KI_NEG: return kir_bits(k, d->t, kir_bin(k, KI_XOR, to_bits(d, p), word(d, d->b.sign)));
    case KI_ISNAN: return kir_lt(k, word(d, d->b.inf), magnitude(d, p));
    case KI_ISINF: return kir_bin(k, KI_EQ, magnitude(d, p), word(d, d->b.inf));
    case KI_FMA: return kir_add(k, kir_mul(k, p, q), r);
    case KIR_NOT_LANEWISE: case KIR_CONVERSIONS: case KI_NOT: case KIR_FUNCTIONS:
    case KIR_BINARY: case KI_SELECT: return 0;
    default: unreachable();
    }
}

/* Halves. */

/* Rounds the significand of an f32 to the 10 (7) digits of f16 (bf16), to nearest, ties to even,
   from its bits; for denormal results of f16 more digits are dropped. */
static kval f16_from(struct kir *k, u32 lanes, kval x)
{
    const struct def d = {k, {DT_U32, 23, 1u << 31, 0x7f800000}, DT_F32, lanes};
    kval bits = to_bits(&d, x), a = and(&d, bits, word(&d, 0x7fffffff)), sign = kir_bin(k, KI_SHR, and(&d, bits, word(&d, 1u << 31)), word(&d, 16));
    kval odd = and(&d, kir_bin(k, KI_SHR, a, word(&d, 13)), word(&d, 1));
    kval normal = kir_bin(k, KI_SHR, kir_add(k, kir_add(k, a, odd), word(&d, 0xfff - (112u << 23))), word(&d, 13));
    /* 0.5 has units of 2^-24 */
    kval tiny = kir_sub(k, kir_bits(k, DT_U32, kir_add(k, kir_bits(k, DT_F32, a), number(&d, 0.5))), word(&d, 0x3f000000));
    kval h = kir_select(k, kir_lt(k, a, word(&d, 113u << 23)), tiny, normal);
    h = kir_select(k, kir_lt(k, a, word(&d, 0x477ff000)), h, word(&d, 0x7c00));
    h = kir_select(k, kir_lt(k, word(&d, 0x7f800000), a), word(&d, 0x7e00), h);
    return kir_bits(k, DT_F16, kir_cast(k, DT_U16, or(&d, h, sign)));
}

static kval f16_to(struct kir *k, u32 lanes, kval x)
{
    const struct def d = {k, {DT_U32, 23, 1u << 31, 0x7f800000}, DT_F32, lanes};
    kval bits = kir_cast(k, DT_U32, kir_bits(k, DT_U16, x)), a = and(&d, bits, word(&d, 0x7fff));
    kval sign = kir_bin(k, KI_SHL, and(&d, bits, word(&d, 0x8000)), word(&d, 16)), up = kir_bin(k, KI_SHL, a, word(&d, 13));
    kval normal = kir_add(k, up, word(&d, 112u << 23)), special = kir_add(k, up, word(&d, 224u << 23));
    kval tiny = kir_bits(k, DT_U32, kir_sub(k, kir_bits(k, DT_F32, kir_add(k, up, word(&d, 113u << 23))), number(&d, 0x1p-14)));
    kval r = kir_select(k, kir_lt(k, a, word(&d, 0x400)), tiny, kir_select(k, kir_lt(k, a, word(&d, 0x7c00)), normal, special));
    return kir_bits(k, DT_F32, or(&d, r, sign));
}

static kval bf16_from(struct kir *k, u32 lanes, kval x)
{
    const struct def d = {k, {DT_U32, 23, 1u << 31, 0x7f800000}, DT_F32, lanes};
    kval bits = to_bits(&d, x), odd = and(&d, kir_bin(k, KI_SHR, bits, word(&d, 16)), word(&d, 1));
    kval r = kir_add(k, bits, kir_add(k, odd, word(&d, 0x7fff)));
    kval is_nan = kir_lt(k, word(&d, 0x7f800000), and(&d, bits, word(&d, 0x7fffffff)));
    r = kir_select(k, is_nan, or(&d, bits, word(&d, 0x400000)), r);
    return kir_bits(k, DT_BF16, kir_cast(k, DT_U16, kir_bin(k, KI_SHR, r, word(&d, 16))));
}

static kval bf16_to(struct kir *k, u32 lanes, kval x)
{
    const struct def d = {k, {DT_U32, 23, 1u << 31, 0x7f800000}, DT_F32, lanes};
    return kir_bits(k, DT_F32, kir_bin(k, KI_SHL, kir_cast(k, DT_U32, kir_bits(k, DT_U16, x)), word(&d, 16)));
}

/* f64 to f32 rounded to odd, that is with the last digit set if digits are lost: rounding the
   result again equals rounding once. */
static kval f32_odd(struct kir *k, u32 lanes, kval x)
{
    const struct def d = {k, {DT_U32, 23, 1u << 31, 0x7f800000}, DT_F32, lanes};
    kval near = kir_cast(k, DT_F32, x), back = kir_cast(k, DT_F64, near), bits = to_bits(&d, near);
    kval is_more = kir_lt(k, kir_un(k, KI_ABS, x), kir_un(k, KI_ABS, back)), less = kir_sub(k, bits, kir_select(k, is_more, word(&d, 1), word(&d, 0)));
    return kir_bits(k, DT_F32, kir_select(k, kir_bin(k, KI_EQ, x, back), bits, or(&d, less, word(&d, 1))));
}

static kval define_cast(struct kir *k, enum dtype from, enum dtype to, u32 lanes, kval x)
{
    bool is_from_half = from == DT_F16 || from == DT_BF16, is_to_half = to == DT_F16 || to == DT_BF16;
    if (from == DT_F32 && to == DT_F16) return f16_from(k, lanes, x);
    if (from == DT_F16 && to == DT_F32) return f16_to(k, lanes, x);
    if (from == DT_F32 && to == DT_BF16) return bf16_from(k, lanes, x);
    if (from == DT_BF16 && to == DT_F32) return bf16_to(k, lanes, x);
    if (from == DT_F64 && is_to_half) return kir_cast(k, to, f32_odd(k, lanes, x));
    if (from == DT_F32 || to == DT_F32 || (!is_from_half && !is_to_half)) return 0;
    return kir_cast(k, to, kir_cast(k, DT_F32, x)); /* integers are rounded to f32 first everywhere (kir_scalar) */
}

/* Integers. */

/* Subtracts twice a negative number, because compilers turn a select between a number and its
   negation into abs. */
static kval define_abs(struct kir *k, enum dtype t, u32 lanes, kval p)
{
    kval signs = kir_bin(k, KI_SHR, p, kir_const_i(k, t, lanes, dtype_size(t) * 8 - 1)), negative = kir_bin(k, KI_AND, p, signs);
    return kir_sub(k, p, kir_bin(k, KI_SHL, negative, kir_const_i(k, t, lanes, 1)));
}

static kval define_int(struct kir *k, enum kir_op op, enum dtype t, u32 lanes, kval p, kval q, kval r)
{
    kval zero = kir_const_i(k, t, lanes, 0), ones = kir_const_i(k, t, lanes, dtype_kind(t) == DK_UINT ? kir_wrap(t, -1) : -1);
    switch (op) {
    case KI_NEG: return kir_sub(k, zero, p);
    case KI_ABS: return dtype_kind(t) == DK_UINT ? p : define_abs(k, t, lanes, p);
    case KI_NOT: return kir_sub(k, ones, p);
    case KI_MOD: return kir_sub(k, p, kir_mul(k, kir_div(k, p, q), q));
    case KI_FMA: return kir_add(k, kir_mul(k, p, q), r);
    case KIR_NOT_LANEWISE: case KIR_CONVERSIONS: case KIR_FUNCTIONS: case KIR_ROUNDING:
    case KIR_CLASSIFYING: case KI_ADD: case KI_SUB: case KI_MUL: case KI_DIV: case KI_MIN:
    case KI_MAX: case KI_POW: case KIR_LOGIC: case KIR_SHIFTS: case KIR_COMPARISONS:
    case KI_SELECT: return 0;
    default: unreachable();
    }
}

/* The replacement of the operator; 0: none. */
static kval define(struct kir *k, enum kir_op op, enum dtype t, enum dtype to, const kval x[3])
{
    struct def d = {.k = k, .t = t, .lanes = kir_lanes(k, x[0])};
    if (op == KI_MIN) return kir_select(k, kir_lt(k, x[0], x[1]), x[0], x[1]);
    if (op == KI_MAX) return kir_select(k, kir_lt(k, x[1], x[0]), x[0], x[1]);
    if (op == KI_CAST) return define_cast(k, t, to, d.lanes, x[0]);
    double by;
    bool has_bits = dtype_is_float(t) && bits_of(&d.b, t);
    if (has_bits && x[1] && kir_is_float(k, x[1], &by) && by == 0 && define_zero(&d, op, x[0], by)) return define_zero(&d, op, x[0], by);
    if (dtype_is_float(t)) return bits_of(&d.b, t) ? define_float(&d, op, x[0], x[1], x[2]) : 0;
    return dtype_is_int(t) ? define_int(k, op, t, d.lanes, x[0], x[1], x[2]) : 0;
}

/* Register arrays of 64-bit integers as two arrays of their halves. */

static bool is_split(const struct avoid *v, kval array)
{
    const struct kir_ins *x = kir_at(v->copy.in, array);
    bool is_long = x->dtype == DT_I64 || x->dtype == DT_U64;
    return is_long && is_array(x) && way_of(v, v->copy.in, array) == WAY_OTHER;
}

static kval half_of(struct kir *k, kval x, bool is_high)
{
    kval u = kir_cast(k, DT_U64, x);
    if (is_high) u = kir_bin(k, KI_SHR, u, kir_const_i(k, DT_U64, kir_lanes(k, x), 32));
    return kir_cast(k, DT_U32, u);
}

static void split_array(struct avoid *v, kval at)
{
    struct kir_copy *c = &v->copy;
    const struct kir_ins *x = kir_at(c->in, at);
    kval count = kir_copy_get(c, x->a, 0);
    kir_copy_set(c, at, kir_alloc(c->out, KS_REG, DT_U32, x->lanes, count));
    v->high[at] = kir_alloc(c->out, KS_REG, DT_U32, x->lanes, count);
}

static void split_load(struct avoid *v, kval at)
{
    struct kir_copy *c = &v->copy;
    struct kir *k = c->out;
    const struct kir_ins *x = kir_at(c->in, at);
    kval idx = kir_copy_get(c, x->b, 0), n = kir_copy_get(c, x->c, 0);
    kval low = kir_cast(k, DT_U64, kir_load_n(k, kir_copy_get(c, x->a, 0), idx, n));
    kval high = kir_cast(k, DT_U64, kir_load_n(k, v->high[x->a], idx, n));
    kval both = kir_bin(k, KI_OR, low, kir_bin(k, KI_SHL, high, kir_const_i(k, DT_U64, kir_lanes(k, high), 32)));
    kir_copy_set(c, at, kir_cast(k, x->dtype, both));
}

static void split_store(struct avoid *v, kval at)
{
    struct kir_copy *c = &v->copy;
    const struct kir_ins *x = kir_at(c->in, at);
    kval idx = kir_copy_get(c, x->b, 0), val = kir_copy_get(c, x->c, 0), n = kir_copy_get(c, x->d, 0);
    kir_store_n(c->out, kir_copy_get(c, x->a, 0), idx, half_of(c->out, val, false), n);
    kir_store_n(c->out, v->high[x->a], idx, half_of(c->out, val, true), n);
}

static bool split_ins(struct avoid *v, kval at)
{
    const struct kir_ins *x = kir_at(v->copy.in, at);
    if (is_split(v, at)) split_array(v, at);
    else if (x->op == KI_LOAD && v->high[x->a]) split_load(v, at);
    else if (x->op == KI_STORE && v->high[x->a]) split_store(v, at);
    else return false;
    return true;
}

static bool refuse(const struct kir *k, kval at, struct err *e)
{
    const struct kir_ins *x = kir_at(k, at);
    const char *name = is_array(x) ? "register arrays in loops" : kir_op_info(x->op)->name;
    return err_set(e, ERR_UNSUPPORTED, "kernel '%.*s' needs '%s' of %s, which the device's driver lacks or computes incorrectly (quern devices --conformance)",
                   STR_ARG(k->name), name, dtype_name(operand_type(k, x)));
}

/* Replaces a listed instruction. */
static bool replace(struct avoid *v, kval at, struct err *e)
{
    struct kir_copy *c = &v->copy;
    const struct kir_ins *x = kir_at(c->in, at);
    if (is_array(x)) return refuse(c->in, at, e);
    kval arg[3] = {kir_copy_get(c, x->a, 0), kir_copy_get(c, x->b, 0), kir_copy_get(c, x->c, 0)};
    kval r = way_of(v, c->in, at) == WAY_OTHER ? define(c->out, x->op, operand_type(c->in, x), kir_dtype(c->in, at), arg) : 0;
    if (!r) return refuse(c->in, at, e);
    kir_copy_set(c, at, r);
    return true;
}

static bool rewrite(struct avoid *v, bool *changed, struct err *e)
{
    struct kir_copy *c = &v->copy;
    *changed = false;
    for (kval at = 1; at < c->in->ins.n; at++) {
        bool is_split = split_ins(v, at), is_listed = !is_split && way_of(v, c->in, at) != WAY_OWN;
        *changed |= is_split || is_listed;
        if (!is_split && !is_listed) kir_copy_ins(c, at);
        if (is_listed && !replace(v, at, e)) return false;
    }
    return true;
}

static bool avoid_once(struct kir *out, struct arena *a, const struct kir *in, struct str list, bool *changed, struct err *e)
{
    struct arena scratch = {0};
    struct avoid v = {.copy = {.in = in, .out = out}, .list = list, .high = arena_array(&scratch, kval, in->ins.n)};
    kir_init(out, a, in->name);
    kir_copy_init(&v.copy, &scratch);
    bool ok = rewrite(&v, changed, e);
    arena_release(&scratch);
    return ok;
}

bool kir_can_avoid(enum kir_op op, enum dtype t, enum dtype to)
{
    struct arena a = {0};
    struct kir k;
    kval x[3];
    kir_init(&k, &a, S("k"));
    for (u32 i = 0; i < countof(x); i++) x[i] = kir_load(&k, kir_buf(&k, str_fmt(&a, "b%u", i), t, KA_IN), kir_int(&k, i));
    bool ok = define(&k, op, t, to, x) != 0;
    arena_release(&a);
    return ok;
}

bool kir_avoid(struct kir *out, struct arena *a, const struct kir *in, struct str list, struct err *e)
{
    bool changed = list.n > 0;
    *out = *in;
    for (u32 pass = 0; changed; pass++) {
        struct kir *from = arena_new(a, struct kir);
        *from = *out;
        if (!avoid_once(out, a, from, list, &changed, e)) return false;
        if (changed && pass == MAX_PASSES)
            return err_set(e, ERR_UNSUPPORTED, "kernel '%.*s' needs operations that the device's driver lacks or computes incorrectly (quern devices --conformance)",
                           STR_ARG(in->name));
    }
    return true;
}

bool kir_lower(struct kir *out, struct arena *a, const struct kir *in, kir_wants *wants, const void *user, struct str avoid, struct err *e)
{
    struct kir *safe = arena_new(a, struct kir), *expanded = arena_new(a, struct kir);
    if (!kir_avoid(safe, a, in, avoid, e)) return false;
    kir_expand_math(expanded, a, safe, wants, user);
    return kir_avoid(out, a, expanded, avoid, e);
}
