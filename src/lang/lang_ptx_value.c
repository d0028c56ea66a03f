// SPDX-License-Identifier: Apache-2.0
//
// lang_ptx_value.c: values by lanes and words. A vector of kernel IR is a register per lane; a vector of a
// small type may also exist as packed words, as loaded. Lanes of constants, ramps and splats are created where
// they are used; ptx_ins shares them. Indices are 32 bits wide where lang_text.c finds that these suffice.
#include "lang/lang_ptx.h"

#include <string.h>

enum ptx_class ptx_class_for(enum dtype t)
{
    switch (dtype_kind(t)) {
    case DK_BOOL: return PC_PRED;
    case DK_FLOAT: return t == DT_F32 ? PC_FLOAT : t == DT_F64 ? PC_DOUBLE : PC_WORD;
    case DK_INT:
    case DK_UINT: return dtype_size(t) == 8 ? PC_LONG : PC_WORD;
    case DK_NONE:
    default: unreachable();
    }
}

enum ptx_class ptx_class_of(const struct ptx *s, kval v)
{
    const struct kir_ins *x = kir_at(s->k, v);
    return ptx_class_for(x->op == KI_ALLOC || x->op == KI_BUF ? x->dtype : text_dtype(s->facts, v));
}

bool ptx_is_small(enum dtype t) { return t != DT_BOOL && dtype_size(t) < 4; }

/* An index plus a constant is mostly an offset of an access. */
static bool is_offset(const struct kir *k, const struct kir_ins *x)
{
    i64 v;
    return x->op == KI_ADD && x->dtype == DT_I64 && x->lanes == 1 && !x->role && kir_is_const(k, x->b, &v);
}

bool ptx_is_derived(const struct kir *k, kval v)
{
    const struct kir_ins *x = kir_at(k, v);
    switch (x->op) {
    case KIR_LEAVES: case KI_RAMP: case KI_SPLAT: case KI_LANE: case KI_HALVES: case KI_ZIP: return true;
    case KIR_NO_OP: case KIR_HORIZONTAL: case KIR_LANEWISE: case KIR_DOTS: case KIR_STRUCTURE: case KIR_COLLECTIVES:
    default: return is_offset(k, x);
    }
}

static u32 lanes_of(const struct ptx *s, kval v)
{
    const struct kir_ins *x = kir_at(s->k, v);
    if (x->role && x->op != KI_ALLOC) return ptx_frag_size(s, x);
    return x->lanes ? x->lanes : 1;
}

void ptx_number(struct ptx *s)
{
    u32 n = s->k->ins.n, n_lane = 0, n_word = 0;
    s->lane_at = arena_array(s->arena, u32, n + 1);
    s->word_at = arena_array(s->arena, u32, n + 1);
    for (kval v = 1; v < n; v++) {
        const struct kir_ins *x = kir_at(s->k, v);
        s->lane_at[v] = n_lane;
        s->word_at[v] = n_word;
        if (x->op == KI_ALLOC || x->op == KI_BUF || ptx_is_derived(s->k, v)) continue;
        n_lane += lanes_of(s, v);
        if (!x->role && x->lanes > 1 && ptx_is_small(x->dtype)) n_word += (u32)(x->lanes * dtype_size(x->dtype) + 3) / 4;
    }
    s->lane = arena_array(s->arena, pval, n_lane + 1);
    s->word = arena_array(s->arena, pval, n_word + 1);
}

void ptx_set(struct ptx *s, kval v, u32 i, pval x) { s->lane[s->lane_at[v] + i] = x; }
void ptx_set_word(struct ptx *s, kval v, u32 i, pval x) { s->word[s->word_at[v] + i] = x; }
pval *ptx_frag(struct ptx *s, kval v) { return &s->lane[s->lane_at[v]]; }

bool ptx_has_words(const struct ptx *s, kval v)
{
    const struct kir_ins *x = kir_at(s->k, v);
    bool may = !x->role && x->lanes > 1 && ptx_is_small(x->dtype) && x->lanes * dtype_size(x->dtype) >= 4;
    return may && !ptx_is_derived(s->k, v) && s->word[s->word_at[v]];
}

static pval constant(struct ptx *s, kval v)
{
    const struct kir_ins *x = kir_at(s->k, v);
    enum ptx_class c = ptx_class_of(s, v);
    union { float f; u32 u; } f = {(float)x->imm.f};
    union { double f; u64 u; } d = {x->imm.f};
    switch (dtype_kind(x->dtype)) {
    case DK_BOOL: return PTX_INS(s, c, "setp.ne.s32", ptx_reg(s, ptx_int(s, PC_WORD, x->imm.i != 0)), ptx_int(s, PC_WORD, 0));
    case DK_FLOAT:
        if (x->dtype == DT_F16) return ptx_int(s, c, f16_from_f32((float)x->imm.f));
        if (x->dtype == DT_BF16) return ptx_int(s, c, bf16_from_f32((float)x->imm.f));
        return ptx_imm(s, c, c == PC_FLOAT ? f.u : d.u);
    case DK_INT:
    case DK_UINT: return ptx_int(s, c, x->imm.i);
    case DK_NONE:
    default: unreachable();
    }
}

static pval parameter(struct ptx *s, i64 i)
{
    u32 arrays = s->k->buf.n;
    for (kval v = 1; v < s->k->ins.n; v++) arrays += kir_at(s->k, v)->op == KI_ALLOC && kir_at(s->k, v)->aux == KS_TEMP;
    return ptx_source(s, PC_WORD, "ld.param.b32", str_fmt(s->arena, "[%.*s_p%lld]", STR_ARG(s->name), (long long)(arrays + i)).p);
}

static pval thread(struct ptx *s, i64 dim)
{
    static const char *const from[] = {"%tid.x", "%tid.y", "%tid.z"};
    return s->k->group[dim] > 1 ? ptx_source(s, PC_WORD, "mov.u32", from[dim]) : ptx_int(s, PC_WORD, 0);
}

/* Lane i of a packed value. */
static pval unpack(struct ptx *s, kval v, u32 i)
{
    enum dtype t = kir_dtype(s->k, v);
    u32 size = (u32)dtype_size(t), per = 4 / size, bits = size * 8, at = i % per;
    pval word = s->word[s->word_at[v] + i / per];
    bool is_signed = dtype_kind(t) == DK_INT;
    if (is_signed) return PTX_INS(s, PC_WORD, "bfe.s32", word, ptx_int(s, PC_WORD, at * bits), ptx_int(s, PC_WORD, bits));
    if (at == per - 1) return ptx_shr(s, word, at * bits);
    return ptx_mask(s, ptx_shr(s, word, at * bits), ((i64)1 << bits) - 1);
}

/* Of an index and a constant. */
static pval sum(struct ptx *s, kval v)
{
    const struct kir_ins *x = kir_at(s->k, v);
    enum ptx_class c = s->facts->val[v].is_wide || s->facts->val[x->a].is_wide || s->facts->val[x->b].is_wide ? PC_LONG : PC_WORD;
    return ptx_resize(s, ptx_add(s, ptx_lane_as(s, x->a, 0, c), ptx_lane_as(s, x->b, 0, c)), ptx_class_of(s, v));
}

pval ptx_lane(struct ptx *s, kval v, u32 i)
{
    const struct kir_ins *x = kir_at(s->k, v);
    switch (x->op) {
    case KI_CONST: return constant(s, v);
    case KI_PARAM: return parameter(s, x->imm.i);
    case KI_THREAD: return thread(s, x->imm.i);
    case KI_SUBGROUP: return ptx_subgroup(s, x->imm.i == 1);
    case KI_RAMP: {
        enum ptx_class c = ptx_class_of(s, v);
        return ptx_add(s, ptx_lane_as(s, x->a, 0, c), ptx_int(s, c, x->imm.i * i));
    }
    case KI_SPLAT: return ptx_lane(s, x->a, i % kir_lanes(s->k, x->a));
    case KI_LANE: return ptx_lane(s, x->a, (u32)x->imm.i + (x->lanes > 1 ? i * (kir_lanes(s->k, x->a) / x->lanes) : 0));
    case KI_HALVES: {
        u32 half = x->lanes / 2u, from = (u32)x->imm.i * half;
        return ptx_lane(s, i < half ? x->a : x->b, from + i % half);
    }
    case KI_ZIP: {
        u32 at = (u32)x->imm.i + i;
        return ptx_lane(s, at % 2 ? x->b : x->a, at / 2);
    }
    case KIR_NO_OP: case KIR_HORIZONTAL: case KIR_LANEWISE: case KIR_DOTS: case KIR_ARRAYS: case KIR_MEMORY: case KIR_CONTROL:
    case KIR_SYNC: case KIR_COLLECTIVES: break;
    }
    if (is_offset(s->k, x)) return sum(s, v);
    pval r = s->lane[s->lane_at[v] + i];
    return r ? r : unpack(s, v, i);
}

pval ptx_lane_as(struct ptx *s, kval v, u32 i, enum ptx_class c)
{
    pval x = ptx_lane(s, v, i);
    bool is_index = ptx_class(s, x) == PC_WORD || ptx_class(s, x) == PC_LONG;
    return is_index && (c == PC_WORD || c == PC_LONG) ? ptx_resize(s, x, c) : x;
}

pval ptx_pack(struct ptx *s, u32 size, const pval *lane)
{
    pval pair = ptx_int(s, PC_WORD, 0x5410), bytes = ptx_int(s, PC_WORD, 0x0040);
    pval l[4];
    for (u32 i = 0; i < 4 / size; i++) l[i] = ptx_reg(s, lane[i]);
    if (size == 2) return PTX_INS(s, PC_WORD, "prmt.b32", l[0], l[1], pair);
    pval low = PTX_INS(s, PC_WORD, "prmt.b32", l[0], l[1], bytes), high = PTX_INS(s, PC_WORD, "prmt.b32", l[2], l[3], bytes);
    return PTX_INS(s, PC_WORD, "prmt.b32", low, high, pair);
}

pval ptx_word(struct ptx *s, kval v, u32 i)
{
    enum dtype t = kir_dtype(s->k, v);
    u32 size = t == DT_BOOL ? 1 : (u32)dtype_size(t), per = 4 / size;
    pval lane[4];
    if (ptx_has_words(s, v)) return s->word[s->word_at[v] + i];
    for (u32 j = 0; j < per; j++) {
        lane[j] = ptx_lane(s, v, i * per + j);
        if (t == DT_BOOL) lane[j] = ptx_cast(s, DT_BOOL, DT_U8, lane[j], PC_WORD);
    }
    return ptx_pack(s, size, lane);
}
