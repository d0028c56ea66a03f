// SPDX-License-Identifier: Apache-2.0
//
// multiple.c: the powers of two that divide an i64 value, all lanes of it, as the exponent.
// One step per instruction when it is appended, like its range. Languages use it to prove
// alignment of addresses. Wrapping is irrelevant: all holds modulo 2^64. A parameter is
// known only by its text, a size expression; any other text yields no information.
#include "kir/kir.h"

enum { MOST = 62, MAX_DEPTH = 16 };

static u32 twos_of_int(i64 v) { return v ? (u32)i64_min(__builtin_ctzll((u64)v), MOST) : MOST; }

static u32 less(u32 a, u32 b) { return a < b ? a : b; }

/* Size expressions: sums of products; quotients and
 * remainders yield no information, but their coefficients do. */

static void skip_space(struct str *s)
{
    while (s->n && s->p[0] == ' ') *s = str_sub(*s, 1, s->n);
}

static bool take(struct str *s, const char *z)
{
    skip_space(s);
    if (!str_starts(*s, str_of(z))) return false;
    *s = str_sub(*s, str_of(z).n, s->n);
    return true;
}

static bool is_word(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

static u32 give_up(struct str *s)
{
    *s = S("?"); /* rejected */
    return 0;
}

static u32 sum_twos(struct str *s, int depth);

static u32 factor_twos(struct str *s, int depth)
{
    if (take(s, "(")) {
        u32 n = depth < MAX_DEPTH ? sum_twos(s, depth + 1) : 0;
        return take(s, ")") ? n : give_up(s);
    }
    i64 n = 0, v;
    skip_space(s);
    while (n < s->n && is_word(s->p[n])) n++;
    u32 r = str_to_i64(str_sub(*s, 0, n), &v) ? twos_of_int(v) : 0;
    *s = str_sub(*s, n, s->n);
    return r;
}

static u32 product_twos(struct str *s, int depth)
{
    u32 n = factor_twos(s, depth);
    for (;;) {
        if (take(s, "*")) {
            n = less(n + factor_twos(s, depth), MOST);
        } else if (take(s, "//") || take(s, "%")) {
            factor_twos(s, depth);
            n = 0;
        } else {
            return n;
        }
    }
}

static u32 sum_twos(struct str *s, int depth)
{
    u32 all = MOST;
    do {
        take(s, "-");
        all = less(all, product_twos(s, depth));
    } while (take(s, "+") || (s->n && s->p[0] == '-'));
    return all;
}

static u32 text_twos(struct str text)
{
    u32 n = sum_twos(&text, 0);
    skip_space(&text);
    return text.n ? 0 : n; /* functions */
}

/* Instructions. */

static u32 twos(const struct kir *k, kval v)
{
    return (u32)__builtin_ctzll((u64)kir_multiple(k, v));
}

static u32 div_twos(const struct kir *k, const struct kir_ins *x)
{
    i64 c;
    if (!kir_is_const(k, x->b, &c) || c <= 0 || (c & (c - 1))) return 0;
    u32 a = twos(k, x->a), by = twos_of_int(c);
    return a > by ? a - by : 0;
}

static u32 shift_twos(const struct kir *k, const struct kir_ins *x)
{
    i64 c;
    if (!kir_is_const(k, x->b, &c) || c < 0 || c >= 64) return 0;
    return less(twos(k, x->a) + (u32)c, MOST);
}

u32 kir_twos_of(const struct kir *k, const struct kir_ins *x)
{
    if (x->dtype != DT_I64 || x->role) return 0;
    switch (x->op) {
    case KI_CONST: return twos_of_int(x->imm.i);
    case KI_PARAM:
        return x->imm.i >= 0 && x->imm.i < k->param.n ? text_twos(k->param.v[x->imm.i]) : 0;
    case KI_RAMP: return less(twos(k, x->a), twos_of_int(x->imm.i));
    case KI_SPLAT:
    case KI_LANE:
    case KI_HMIN:
    case KI_HMAX:
    case KI_NEG:
    case KI_ABS:
    case KI_SGMIN:
    case KI_SGMAX:
    case KI_SHUFFLE:
    case KI_HADD:
    case KI_SGADD: return twos(k, x->a);
    case KI_HALVES:
    case KI_ZIP:
    case KI_ADD:
    case KI_SUB:
    case KI_MOD:
    case KI_MIN:
    case KI_MAX: return less(twos(k, x->a), twos(k, x->b));
    case KI_MUL: return less(twos(k, x->a) + twos(k, x->b), MOST);
    case KI_AND: return twos(k, x->a) > twos(k, x->b) ? twos(k, x->a) : twos(k, x->b);
    case KI_DIV: return div_twos(k, x);
    case KI_SHL: return shift_twos(k, x);
    case KI_SELECT: return less(twos(k, x->b), twos(k, x->c));
    case KI_LOOP: return less(twos(k, x->a), twos(k, x->c));
    case KIR_NO_OP: case KIR_CONVERSIONS: case KI_NOT: case KIR_FUNCTIONS: case KIR_ROUNDING:
    case KIR_CLASSIFYING: case KI_POW: case KI_OR: case KI_XOR: case KI_SHR:
    case KIR_COMPARISONS: case KI_FMA: case KIR_DOTS: case KIR_ARRAYS: case KIR_MEMORY:
    case KI_GRID: case KI_IF: case KI_ELSE: case KI_END: case KIR_SYNC: case KI_THREAD:
    case KI_SUBGROUP: case KIR_FRAGMENTS: return 0;
    default: unreachable();
    }
}
