// SPDX-License-Identifier: Apache-2.0
//
// lang_spirv_type.c: representation of values and fragments of kernel IR in a module: types, lanes,
// words.
#include "lang/lang_spirv.h"

enum { SUBGROUP = 3 }; /* scope */
enum { USE_A = 0, USE_B = 1, USE_ACC = 2 };

enum spv_reg spv_reg(const struct spv *s, kval v)
{
    switch (kir_dtype(s->k, v)) {
    case DT_BOOL: return SR_BOOL;
    case DT_F32: return SR_F32;
    case DT_F64: return SR_F64;
    case DT_U64: return SR_U64;
    case DT_I64: return s->wide[v] ? SR_U64 : SR_U32;
    case DT_U8:
    case DT_I8:
    case DT_U16:
    case DT_I16:
    case DT_U32:
    case DT_I32:
    case DT_F16:
    case DT_TF32: /* only of fragments, which have other types */
    case DT_BF16: return SR_U32;
    case DT_NONE:
#define Y(id, ...) case DT_##id:
#include "core/dtype_small.inc"
#undef Y
    case N_DTYPES:
    default: unreachable();
    }
}

u32 spv_lanes(const struct spv *s, kval v) { return (u32)i64_max(kir_lanes(s->k, v), 1); }
u32 spv_words(const struct spv *s, kval v)
{
    return spv_lanes(s, v) * (u32)dtype_size(kir_dtype(s->k, v)) / 4;
}

bool spv_has_words(const struct spv *s, kval v)
{
    i64 size = dtype_size(kir_dtype(s->k, v));
    return size < 4 && spv_lanes(s, v) * size >= 4 && !kir_is_frag(s->k, v);
}

u32 spv_type_component(struct spv *s, enum dtype t)
{
    switch (t) {
    case DT_F16: spv_need(s, SPV_CAP_F16); return SPV_TYPE(s, SPV_TYPE_FLOAT, 16);
    case DT_U16:
    case DT_I16: spv_need(s, SPV_CAP_I16); return spv_type_int(s, 16);
    case DT_U8:
    case DT_I8: spv_need(s, SPV_CAP_I8); return spv_type_int(s, 8);
    case DT_F32:
    case DT_F64:
    case DT_U32:
    case DT_I32:
    case DT_U64:
    case DT_I64: break;
    case DT_BF16: spv_fail(s, "has fragments of bf16, which spir-v lacks"); break;
    case DT_TF32: spv_fail(s, "has fragments of tf32, which spir-v lacks"); break;
    case DT_BOOL:
    case DT_NONE:
#define Y(id, ...) case DT_##id:
#include "core/dtype_small.inc"
#undef Y
    case N_DTYPES:
    default: unreachable();
    }
    enum spv_reg r = t == DT_F32          ? SR_F32
                     : t == DT_F64        ? SR_F64
                     : dtype_size(t) == 8 ? SR_U64
                                          : SR_U32;
    return spv_type_reg(s, r);
}

u32 spv_type_frag(struct spv *s, kval v)
{
    struct kir_frag f = kir_frag_of(kir_at(s->k, v));
    u32 use = f.role == KR_A ? USE_A : f.role == KR_B ? USE_B : USE_ACC;
    spv_need(s, SPV_CAP_MATRIX);
    return SPV_TYPE(s, SPV_TYPE_MATRIX, spv_type_component(s, f.dtype), spv_u32(s, SUBGROUP),
                    spv_u32(s, f.rows), spv_u32(s, f.cols), spv_u32(s, use));
}
