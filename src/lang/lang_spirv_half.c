// SPDX-License-Identifier: Apache-2.0
//
// lang_spirv_half.c: types smaller than a word. A half is the 16 bits of f16 or bf16 at the bottom
// of a word; vectors of small types can be packed, two or four lanes a word, lane 0 lowest.
//
// Rounding to f16 is to nearest, ties to even, on every device: if
// the target supports it (caps.has_rte_f16), by its conversion;
// else by integer arithmetic, because drivers may truncate.
#include "lang/lang_spirv.h"

enum { GLSL_UNPACK_HALF = 62 };

static u32 as_f32(struct spv *s, u32 x) { return SPV_BIN(s, SPV_BITCAST, SR_F32, x, 0); }

/* To f32. */

static u32 unpack_pair(struct spv *s, u32 w)
{
    return SPV_EXT(s, GLSL_UNPACK_HALF, spv_type_vec(s, spv_type_reg(s, SR_F32), 2), w, 0, 0);
}

static u32 extract(struct spv *s, enum spv_reg r, u32 composite, u32 i)
{
    u32 id = spv_id(s);
    SPV_PUT(&s->code, SPV_COMPOSITE_EXTRACT, spv_type_reg(s, r), id, composite, i);
    return id;
}

u32 spv_from_half(struct spv *s, enum dtype t, u32 bits)
{
    if (t == DT_F16) return extract(s, SR_F32, unpack_pair(s, bits), 0);
    return as_f32(s, SPV_BIN(s, SPV_SHIFT_LEFT_LOGICAL, SR_U32, bits, spv_u32(s, 16)));
}

void spv_from_half2(struct spv *s, enum dtype t, u32 w, u32 *x, u32 *y)
{
    if (t == DT_F16) {
        u32 pair = unpack_pair(s, w);
        *x = extract(s, SR_F32, pair, 0);
        *y = extract(s, SR_F32, pair, 1);
        return;
    }
    *x = as_f32(s, SPV_BIN(s, SPV_SHIFT_LEFT_LOGICAL, SR_U32, w, spv_u32(s, 16)));
    *y = as_f32(s, SPV_BIN(s, SPV_BITWISE_AND, SR_U32, w, spv_u32(s, 0xffff0000)));
}

/* From f32. */

/* Packs x, y as f16 into a word, by the target's conversion. */
static u32 convert_pair(struct spv *s, u32 x, u32 y)
{
    u32 f32 = spv_type_reg(s, SR_F32), f16 = SPV_TYPE(s, SPV_TYPE_FLOAT, 16);
    spv_need(s, SPV_CAP_F16);
    spv_need(s, SPV_CAP_ROUND_EVEN);
    u32 pair = SPV_INS(s, SPV_COMPOSITE_CONSTRUCT, spv_type_vec(s, f32, 2), x, y, 0);
    pair = SPV_INS(s, SPV_F_CONVERT, spv_type_vec(s, f16, 2), pair, 0, 0);
    return SPV_BIN(s, SPV_BITCAST, SR_U32, pair, 0);
}

/* The bits of |x| < 2^16, rounded to f16. Below 2^-14, adding 1/2 leaves the
   denormal's bits at the bottom, rounded; above, the 13 dropped bits are
   rounded by an addition that may carry into the exponent, up to infinity. */
static u32 round_f16(struct spv *s, u32 a)
{
    u32 half = spv_u32(s, 0x3f000000);
    u32 sum = SPV_INS(s, SPV_F_ADD, spv_type_reg(s, SR_F32), as_f32(s, a),
                      spv_const_f(s, SR_F32, 0.5), 0);
    SPV_PUT(&s->decorations, SPV_DECORATE, sum, SPV_DEC_NO_CONTRACTION);
    u32 tiny = SPV_BIN(s, SPV_I_SUB, SR_U32, SPV_BIN(s, SPV_BITCAST, SR_U32, sum, 0), half);
    u32 odd = SPV_INS(s, SPV_BIT_FIELD_U_EXTRACT, spv_type_reg(s, SR_U32), a, spv_u32(s, 13),
                      spv_u32(s, 1));
    u32 normal = SPV_BIN(s, SPV_I_ADD, SR_U32,
                         SPV_BIN(s, SPV_I_ADD, SR_U32, a, spv_u32(s, 0xc8000fff)), odd);
    normal = SPV_BIN(s, SPV_SHIFT_RIGHT_LOGICAL, SR_U32, normal, spv_u32(s, 13));
    return SPV_CHOOSE(s, SR_U32, SPV_BIN(s, SPV_U_LESS_THAN, SR_BOOL, a, spv_u32(s, 0x38800000)),
                      tiny, normal);
}

static u32 to_f16(struct spv *s, u32 x)
{
    u32 u = SPV_BIN(s, SPV_BITCAST, SR_U32, x, 0),
        a = SPV_BIN(s, SPV_BITWISE_AND, SR_U32, u, spv_u32(s, 0x7fffffff));
    u32 is_nan = SPV_BIN(s, SPV_U_LESS_THAN, SR_BOOL, spv_u32(s, 0x7f800000), a);
    u32 large = SPV_CHOOSE(s, SR_U32, is_nan, spv_u32(s, 0x7e00), spv_u32(s, 0x7c00));
    u32 is_small = SPV_BIN(s, SPV_U_LESS_THAN, SR_BOOL, a, spv_u32(s, 0x47800000));
    u32 r = SPV_CHOOSE(s, SR_U32, is_small, round_f16(s, a), large);
    u32 sign =
        SPV_BIN(s, SPV_BITWISE_AND, SR_U32,
                SPV_BIN(s, SPV_SHIFT_RIGHT_LOGICAL, SR_U32, u, spv_u32(s, 16)), spv_u32(s, 0x8000));
    return SPV_BIN(s, SPV_BITWISE_OR, SR_U32, r, sign);
}

static u32 to_bf16(struct spv *s, u32 x)
{
    u32 u = SPV_BIN(s, SPV_BITCAST, SR_U32, x, 0), sixteen = spv_u32(s, 16);
    u32 a = SPV_BIN(s, SPV_BITWISE_AND, SR_U32, u, spv_u32(s, 0x7fffffff));
    u32 odd =
        SPV_INS(s, SPV_BIT_FIELD_U_EXTRACT, spv_type_reg(s, SR_U32), u, sixteen, spv_u32(s, 1));
    u32 r =
        SPV_BIN(s, SPV_I_ADD, SR_U32, SPV_BIN(s, SPV_I_ADD, SR_U32, u, spv_u32(s, 0x7fff)), odd);
    u32 nan = SPV_BIN(s, SPV_BITWISE_OR, SR_U32, u, spv_u32(s, 0x400000));
    r = SPV_CHOOSE(s, SR_U32, SPV_BIN(s, SPV_U_LESS_THAN, SR_BOOL, spv_u32(s, 0x7f800000), a), nan,
                   r);
    return SPV_BIN(s, SPV_SHIFT_RIGHT_LOGICAL, SR_U32, r, sixteen);
}

u32 spv_to_half(struct spv *s, enum dtype t, u32 x)
{
    if (t == DT_BF16) return to_bf16(s, x);
    return s->caps->has_rte_f16 ? convert_pair(s, x, spv_const_f(s, SR_F32, 0)) : to_f16(s, x);
}

u32 spv_to_half2(struct spv *s, enum dtype t, u32 x, u32 y)
{
    if (t == DT_F16 && s->caps->has_rte_f16) return convert_pair(s, x, y);
    const u32 lane[] = {spv_to_half(s, t, x), spv_to_half(s, t, y)};
    return spv_pack(s, t, lane);
}

/* Words and lanes. */

u32 spv_unpack(struct spv *s, enum dtype t, u32 w, u32 i)
{
    u32 bits = (u32)dtype_size(t) * 8;
    if (t == DT_BOOL) {
        u32 byte = SPV_BIN(s, SPV_BITWISE_AND, SR_U32, w, spv_u32(s, 0xffu << i * 8));
        return SPV_BIN(s, SPV_I_NOT_EQUAL, SR_BOOL, byte, spv_u32(s, 0));
    }
    enum spirv_op op = dtype_kind(t) == DK_INT ? SPV_BIT_FIELD_S_EXTRACT : SPV_BIT_FIELD_U_EXTRACT;
    return SPV_INS(s, op, spv_type_reg(s, SR_U32), w, spv_u32(s, i * bits), spv_u32(s, bits));
}

u32 spv_pack(struct spv *s, enum dtype t, const u32 *lane)
{
    u32 bits = (u32)dtype_size(t) * 8, r = 0;
    for (u32 i = 0; i < 32 / bits; i++) {
        u32 x =
            t == DT_BOOL ? SPV_CHOOSE(s, SR_U32, lane[i], spv_u32(s, 1), spv_u32(s, 0)) : lane[i];
        if (!i) {
            r = x;
            continue;
        }
        const u32 id = spv_id(s),
                  w[] = {spv_type_reg(s, SR_U32), id, r, x, spv_u32(s, i * bits), spv_u32(s, bits)};
        spv_put(&s->code, SPV_BIT_FIELD_INSERT, w, countof(w));
        r = id;
    }
    return r;
}
