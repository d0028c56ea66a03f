// SPDX-License-Identifier: Apache-2.0
//
// lang_ptx_layout.c: the elements of a fragment that a thread holds: words of two halves, words of tf32, floats. The
// mapping is that of cuda.c; PTX ISA, "Matrix fragments for mma" and "Register Fragments for wgmma".
#include "lang/lang_ptx.h"

static bool is_half(enum dtype t) { return t == DT_F16 || t == DT_BF16; }

bool ptx_is_described(const struct ptx *s, const struct kir_ins *x) { return kir_warpgroup(s->k) > 1 && x->role != KR_ACC && !kir_is_own(s->k, x); }

struct ptx_layout ptx_layout(const struct ptx *s, const struct kir_ins *x)
{
    bool is_sum = x->role == KR_ACC && (x->dtype == DT_F32 || is_half(x->dtype)), half = is_half(x->dtype), tf32 = x->dtype == DT_TF32;
    if (kir_warpgroup(s->k) > 1) {
        bool ok = (is_sum || (x->role == KR_A && half)) && x->rows == 64 && x->cols % 8 == 0;
        return (struct ptx_layout){ok ? x->cols / 2u : 0, PTX_BY_QUAD, PTX_BY_PAIR, false};
    }
    if (x->role == KR_A && half && x->rows == 16 && (x->cols == 16 || x->cols == 8)) return (struct ptx_layout){x->cols / 2u, PTX_BY_QUAD, PTX_BY_PAIR, false};
    if (x->role == KR_B && half && x->cols == 8 && (x->rows == 16 || x->rows == 8)) return (struct ptx_layout){x->rows / 4u, PTX_BY_PAIR, PTX_BY_QUAD, true};
    if (x->role == KR_A && tf32 && x->rows == 16 && (x->cols == 8 || x->cols == 4)) return (struct ptx_layout){x->cols / 2u, PTX_BY_QUAD, PTX_BY_FOURTH, false};
    if (x->role == KR_B && tf32 && x->cols == 8 && (x->rows == 8 || x->rows == 4)) return (struct ptx_layout){x->rows / 4u, PTX_BY_FOURTH, PTX_BY_QUAD, true};
    if (is_sum && x->rows == 16 && x->cols == 8) return (struct ptx_layout){4, PTX_BY_QUAD, PTX_BY_PAIR, false};
    return (struct ptx_layout){0};
}

void ptx_offset(const struct ptx *s, const struct kir_ins *x, u32 i, i64 *row, i64 *col)
{
    if (x->role == KR_ACC) {
        bool wide = kir_warpgroup(s->k) > 1;
        *row = (wide ? i >> 1 & 1 : i >> 1) * 8;
        *col = (i & 1) + (wide ? (i >> 2) * 8 : 0);
    } else if (x->dtype == DT_TF32) {
        *row = x->role == KR_A ? (i & 1) * 8 : i * 4;
        *col = x->role == KR_A ? (i >> 1) * 4 : 0;
    } else {
        *row = x->role == KR_A ? (i >> 1 & 1) * 8 : (i & 1) + (i >> 1) * 8;
        *col = x->role == KR_A ? (i & 1) + (i >> 2) * 8 : 0;
    }
}

u32 ptx_frag_size(const struct ptx *s, const struct kir_ins *x)
{
    if (ptx_is_described(s, x)) return 1;
    u32 n = ptx_layout(s, x).n;
    return is_half(x->dtype) ? n / 2 : n;
}

enum ptx_class ptx_frag_class(const struct kir_ins *x) { return x->dtype == DT_F32 ? PC_FLOAT : PC_WORD; }
