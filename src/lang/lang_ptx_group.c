// SPDX-License-Identifier: Apache-2.0
//
// lang_ptx_group.c: exchange within a subgroup, a warp or a part of one.
#include "lang/lang_ptx.h"

enum { WARP = 32 };

/* The members of a thread's subgroup, as bits. */
static pval members(struct ptx *s, u32 size)
{
    if (size == WARP) return ptx_int(s, PC_WORD, -1);
    pval lane = ptx_mask(s, ptx_thread(s), WARP - 1), first = ptx_mask(s, lane, -(i64)size);
    return PTX_INS(s, PC_WORD, "shl.b32", ptx_int(s, PC_WORD, ~0u >> (WARP - size)), first);
}

/* x of the thread `from`: an exclusive-or of the own number if is_xor. Threads wait for each other: emitted here. */
static pval exchange_word(struct ptx *s, pval x, pval from, bool is_xor)
{
    u32 size = gpu_subgroup(s->k, WARP);
    pval r = ptx_new(s, PC_WORD), control = ptx_int(s, PC_WORD, (i64)(WARP - size) << 8 | (WARP - 1)), who = members(s, size);
    ptx_line(s, "\tshfl.sync.%s.b32 %r, %r, %r, %r, %r;", is_xor ? "bfly" : "idx", r, ptx_reg(s, x), from, control, who);
    return r;
}

static pval exchange(struct ptx *s, pval x, pval from, bool is_xor)
{
    enum ptx_class c = ptx_class(s, x);
    x = ptx_reg(s, x);
    if (c == PC_WORD) return exchange_word(s, x, from, is_xor);
    if (c == PC_FLOAT) return PTX_INS(s, c, "mov.b32", exchange_word(s, PTX_INS(s, PC_WORD, "mov.b32", x), from, is_xor));
    if (c == PC_PRED) {
        pval bit = PTX_INS(s, PC_WORD, "selp.b32", ptx_int(s, PC_WORD, 1), ptx_int(s, PC_WORD, 0), x);
        return PTX_INS(s, c, "setp.ne.s32", exchange_word(s, bit, from, is_xor), ptx_int(s, PC_WORD, 0));
    }
    pval part[2] = {ptx_new(s, PC_WORD), ptx_new(s, PC_WORD)}, r = ptx_new(s, c);
    ptx_line(s, "\tmov.b64 {%r, %r}, %r;", part[0], part[1], x);
    for (u32 i = 0; i < 2; i++) part[i] = exchange_word(s, part[i], from, is_xor);
    ptx_line(s, "\tmov.b64 %r, {%r, %r};", r, part[0], part[1]);
    return r;
}

/* Of the subgroup's threads in halves, as the sum of a tree. */
static pval reduce(struct ptx *s, enum kir_op op, enum dtype t, pval x)
{
    enum kir_op step = op == KI_SGADD ? KI_ADD : op == KI_SGMIN ? KI_MIN : KI_MAX;
    for (u32 i = gpu_subgroup(s->k, WARP) / 2; i; i /= 2)
        x = ptx_scalar(s, step, t, (const pval[3]){x, exchange(s, x, ptx_int(s, PC_WORD, i), true)});
    return x;
}

void ptx_collective(struct ptx *s, kval v)
{
    const struct kir_ins *x = kir_at(s->k, v);
    enum dtype t = kir_dtype(s->k, x->a);
    pval a = ptx_lane(s, x->a, 0);
    bool is_half = t == DT_F16 || t == DT_BF16;
    if (x->op == KI_SHUFFLE) {
        ptx_set(s, v, 0, ptx_resize(s, exchange(s, a, ptx_lane_as(s, x->b, 0, PC_WORD), false), ptx_class(s, a)));
        return;
    }
    if (is_half) a = ptx_from_half(s, t, a);
    a = reduce(s, x->op, is_half ? DT_F32 : t, a);
    ptx_set(s, v, 0, is_half ? ptx_to_half(s, t, a) : a);
}
