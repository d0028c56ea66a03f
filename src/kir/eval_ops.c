// SPDX-License-Identifier: Apache-2.0
//
// eval_ops.c: arithmetic of the interpreter. Frequent pairs of operator and type have a loop of
// their own; all others go through kir_scalar, which defines them. Both must agree to the last bit
// (test_kir compares them).
#include "kir/eval.h"

#include <math.h>

#define OP(name, stmt)                                                                             \
    static bool name(union kir_cell *m, const struct eval_op *o, u32 from, u32 n)                  \
    {                                                                                              \
        union kir_cell *r = m + o->r + from;                                                       \
        const union kir_cell *a = m + o->a + from, *b = m + o->b + from, *c = m + o->c + from;     \
        (void)b, (void)c;                                                                          \
        for (u32 l = 0; l < n; l++) stmt;                                                          \
        return true;                                                                               \
    }

OP(i64_add, r[l].i = (i64)((u64)a[l].i + (u64)b[l].i))
OP(i64_sub, r[l].i = (i64)((u64)a[l].i - (u64)b[l].i))
OP(i64_mul, r[l].i = (i64)((u64)a[l].i * (u64)b[l].i))
OP(i64_min_op, r[l].i = a[l].i < b[l].i ? a[l].i : b[l].i)
OP(i64_max_op, r[l].i = a[l].i > b[l].i ? a[l].i : b[l].i)
OP(i64_eq, r[l].i = a[l].i == b[l].i)
OP(i64_ne, r[l].i = a[l].i != b[l].i)
OP(i64_lt, r[l].i = a[l].i < b[l].i)
OP(i64_le, r[l].i = a[l].i <= b[l].i)
OP(f32_add, r[l].f = (float)(a[l].f + b[l].f))
OP(f32_sub, r[l].f = (float)(a[l].f - b[l].f))
OP(f32_mul, r[l].f = (float)(a[l].f * b[l].f))
OP(f32_div, r[l].f = (float)(a[l].f / b[l].f))
OP(f32_fma, r[l].f = fmaf((float)a[l].f, (float)b[l].f, (float)c[l].f))
OP(float_min, r[l].f = a[l].f < b[l].f ? a[l].f : b[l].f)
OP(float_max, r[l].f = a[l].f > b[l].f ? a[l].f : b[l].f)
OP(float_lt, r[l].i = a[l].f < b[l].f)
OP(float_le, r[l].i = a[l].f <= b[l].f)
OP(bits_and, r[l].i = a[l].i & b[l].i)
OP(bits_or, r[l].i = a[l].i | b[l].i)
OP(any_select, r[l] = a[l].i ? b[l] : c[l])

OP(any_copy, r[l] = a[l])
OP(float_to_half, r[l].f = f16_to_f32(f16_from_f32((float)a[l].f)))

static bool i64_div(union kir_cell *m, const struct eval_op *o, u32 from, u32 n)
{
    for (u32 l = from; l < from + n; l++) {
        i64 a = m[o->a + l].i, b = m[o->b + l].i;
        if (!b) return false;
        m[o->r + l].i = b == -1 ? (i64)(0 - (u64)a) : a / b;
    }
    return true;
}

static bool i64_mod(union kir_cell *m, const struct eval_op *o, u32 from, u32 n)
{
    for (u32 l = from; l < from + n; l++) {
        i64 a = m[o->a + l].i, b = m[o->b + l].i;
        if (!b) return false;
        m[o->r + l].i = b == -1 ? 0 : a % b;
    }
    return true;
}

/* Cells of other lanes: r, and operand a, in lane l of thread t. */

static bool any_splat(union kir_cell *m, const struct eval_op *o, u32 from, u32 n)
{
    for (u32 l = 0, of = 0; l < o->lanes; l++, of = of + 1 < o->lanes_a ? of + 1 : 0)
        for (u32 t = from; t < from + n; t++)
            m[o->r + l * o->threads + t] = m[o->a + of * o->threads + t];
    return true;
}

static bool any_ramp(union kir_cell *m, const struct eval_op *o, u32 from, u32 n)
{
    for (u32 l = 0; l < o->lanes; l++)
        for (u32 t = from; t < from + n; t++)
            m[o->r + l * o->threads + t].i = (i64)((u64)m[o->a + t].i + (u64)o->imm * l);
    return true;
}

static bool any_lane(union kir_cell *m, const struct eval_op *o, u32 from, u32 n)
{
    u32 step = o->lanes_a / o->lanes;
    for (u32 l = 0; l < o->lanes; l++)
        for (u32 t = from; t < from + n; t++)
            m[o->r + l * o->threads + t] = m[o->a + ((u32)o->imm + l * step) * o->threads + t];
    return true;
}

static bool any_halves(union kir_cell *m, const struct eval_op *o, u32 from, u32 n)
{
    u32 half = o->lanes / 2u;
    for (u32 l = 0; l < o->lanes; l++)
        for (u32 t = from; t < from + n; t++)
            m[o->r + l * o->threads + t] = m[(l < half ? o->a : o->b) + (l % half + (u32)o->imm * half) * o->threads + t];
    return true;
}

static bool any_zip(union kir_cell *m, const struct eval_op *o, u32 from, u32 n)
{
    for (u32 l = 0; l < o->lanes; l++) {
        const u32 at = (u32)o->imm + l, lane = (at % 2 ? o->b : o->a) + at / 2 * o->threads;
        for (u32 t = from; t < from + n; t++) m[o->r + l * o->threads + t] = m[lane + t];
    }
    return true;
}

/* Of integers: modulo 2^64, and then of the type. Products that are added to i16 are summed with saturation first. */
static bool int_dot(union kir_cell *m, const struct eval_op *o, u32 from, u32 n)
{
    for (u32 l = 0; l < o->lanes; l++) {
        u32 p, q, terms = kir_dot_places(o->op, o->lanes_a / o->lanes, l, &p, &q);
        for (u32 i = from; i < from + n; i++) {
            const union kir_cell *a = &m[o->a + p * o->threads + i], *b = &m[o->b + q * o->threads + i];
            u64 sum = 0;
            for (u32 j = 0; j < terms; j++) sum += (u64)a[j * o->threads].i * (u64)b[j * o->threads].i;
            if (o->to == DT_I16) sum = (u64)i64_max(INT16_MIN, i64_min((i64)sum, INT16_MAX));
            sum += (u64)m[o->c + l * o->threads + i].i;
            m[o->r + l * o->threads + i].i = kir_wrap((enum dtype)o->to, (i64)sum);
        }
    }
    return true;
}

static bool any_dot(union kir_cell *m, const struct eval_op *o, u32 from, u32 n)
{
    enum { MOST = 8 };
    for (u32 i = from; i < from + n; i++)
        for (u32 l = 0; l < o->lanes; l++) {
            union kir_cell a[MOST], b[MOST];
            u32 p, q, terms = kir_dot_places(o->op, o->lanes_a / o->lanes, l, &p, &q);
            assert(terms <= MOST);
            for (u32 j = 0; j < terms; j++) {
                a[j] = m[o->a + (p + j) * o->threads + i];
                b[j] = m[o->b + (q + j) * o->threads + i];
            }
            u32 at = l * o->threads + i;
            m[o->r + at] = kir_dot_cell(o->to, a, b, terms, m[o->c + at]);
        }
    return true;
}

/* The upper half onto the lower half until one lane is left. */
static bool any_reduce(union kir_cell *m, const struct eval_op *o, u32 from, u32 n)
{
    enum kir_op op = o->op == KI_HADD ? KI_ADD : o->op == KI_HMIN ? KI_MIN : KI_MAX;
    for (u32 i = from; i < from + n; i++) {
        union kir_cell t[64];
        for (u32 l = 0; l < o->lanes_a; l++) t[l] = m[o->a + l * o->threads + i];
        for (u32 h = o->lanes_a / 2; h; h /= 2)
            for (u32 l = 0; l < h; l++)
                kir_scalar(op, o->from, o->to, (union kir_cell[3]){t[l], t[l + h]}, &t[l]);
        m[o->r + i] = t[0];
    }
    return true;
}

static bool any_scalar(union kir_cell *m, const struct eval_op *o, u32 from, u32 n)
{
    u32 n_args = kir_op_info(o->op)->n_args;
    for (u32 l = from; l < from + n; l++) {
        union kir_cell x[3] = {m[o->a + l]};
        if (n_args > 1) x[1] = m[o->b + l];
        if (n_args > 2) x[2] = m[o->c + l];
        if (!kir_scalar(o->op, o->from, o->to, x, &m[o->r + l])) return false;
    }
    return true;
}

struct fast {
    enum kir_op op;
    enum dtype t;
    eval_fn *fn;
};

static eval_fn *find_fast(enum kir_op op, enum dtype t)
{
    static const struct fast list[] = {
        {KI_ADD, DT_I64, i64_add},    {KI_SUB, DT_I64, i64_sub},    {KI_MUL, DT_I64, i64_mul},
        {KI_MIN, DT_I64, i64_min_op}, {KI_MAX, DT_I64, i64_max_op}, {KI_EQ, DT_I64, i64_eq},
        {KI_DIV, DT_I64, i64_div},    {KI_MOD, DT_I64, i64_mod},    {KI_NE, DT_I64, i64_ne},
        {KI_LT, DT_I64, i64_lt},      {KI_LE, DT_I64, i64_le},      {KI_ADD, DT_F32, f32_add},
        {KI_SUB, DT_F32, f32_sub},    {KI_MUL, DT_F32, f32_mul},    {KI_DIV, DT_F32, f32_div},
        {KI_FMA, DT_F32, f32_fma},    {KI_MIN, DT_F32, float_min},  {KI_MAX, DT_F32, float_max},
        {KI_LT, DT_F32, float_lt},    {KI_LE, DT_F32, float_le},    {KI_AND, DT_BOOL, bits_and},
        {KI_OR, DT_BOOL, bits_or},
    };
    for (i64 i = 0; i < countof(list); i++)
        if (list[i].op == op && list[i].t == t) return list[i].fn;
    return any_scalar;
}

/* Between floats; cells hold the number independently of the type. */
static eval_fn *find_cast(enum dtype from, enum dtype to)
{
    if (!dtype_is_float(from) || !dtype_is_float(to)) return any_scalar;
    if (dtype_size(to) > dtype_size(from)) return any_copy;
    return from == DT_F32 && to == DT_F16 ? float_to_half : any_scalar;
}

eval_fn *eval_find(enum kir_op op, enum dtype from, enum dtype to)
{
    switch (op) {
    case KI_CAST: return find_cast(from, to);
    case KI_SELECT: return any_select;
    case KI_SPLAT: return any_splat;
    case KI_RAMP: return any_ramp;
    case KI_LANE: return any_lane;
    case KI_HALVES: return any_halves;
    case KI_ZIP: return any_zip;
    case KIR_DOTS: return dtype_is_float(to) ? any_dot : int_dot;
    case KIR_HORIZONTAL: return any_reduce;
    case KIR_NO_OP: case KIR_LEAVES: case KI_BITS: case KIR_UNARY: case KIR_BINARY: case KI_FMA:
    case KIR_STRUCTURE: case KIR_COLLECTIVES: return find_fast(op, from);
    default: unreachable();
    }
}
