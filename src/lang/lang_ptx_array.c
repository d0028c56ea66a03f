// SPDX-License-Identifier: Apache-2.0
//
// lang_ptx_array.c: memory of arrays and addresses of elements. An index is a variable part and a constant:
// the variable part makes an address once, constants are offsets of the access.
#include "lang/lang_ptx.h"

#include <string.h>

enum { ROW = 128, ATOM = 1024, PIECE = 16 }; /* bytes: of a swizzled row, eight rows, a contiguous piece */

static bool is_shared(const struct kir_ins *x) { return x->op == KI_ALLOC && x->aux == KS_SHARED; }

const char *ptx_space_name(const struct ptx *s, kval array)
{
    static const char *const name[] = {[PX_GLOBAL] = "global", [PX_SHARED] = "shared", [PX_LOCAL] = "local", [PX_REG] = "reg"};
    return name[s->array[array].space];
}

static struct ptx_array describe(const struct ptx *s, kval v)
{
    const struct kir_ins *x = kir_at(s->k, v);
    struct ptx_array a = {.unit = x->lanes ? x->lanes : 1};
    i64 n = 0;
    a.size = x->role ? 0 : x->dtype == DT_BOOL ? 1 : (u32)dtype_size(x->dtype);
    a.is_constant = x->op == KI_BUF && x->aux == KA_IN;
    if (x->op == KI_ALLOC) kir_is_const(s->k, x->a, &n);
    a.count = n;
    if (is_shared(x)) a.space = PX_SHARED;
    else if (x->op == KI_ALLOC && x->aux == KS_REG) a.space = n == 1 ? PX_REG : PX_LOCAL;
    else a.space = PX_GLOBAL;
    return a;
}

/* Shared arrays in the order of lang_gpu.c, so that both languages need the same memory. */
static i64 declare_shared(struct ptx *s)
{
    i64 at = 0;
    for (kval v = s->from; v < s->to; v++) {
        const struct kir_ins *x = kir_at(s->k, v);
        if (!is_shared(x)) continue;
        struct ptx_array *a = &s->array[v];
        i64 align = x->imm.i ? ATOM : PIECE;
        at = round_up(at, align);
        a->at = s->shared ? at : 0;
        at += round_up(a->count * a->size, PIECE);
        if (!s->shared)
            buf_printf(&s->memory, "\t.shared .align %lld .b8 s%u[%lld];\n", (long long)align, v, (long long)(a->count * a->size));
    }
    return at;
}

i64 ptx_arrays(struct ptx *s)
{
    u32 n_far = 0;
    for (kval v = 1; v < s->k->ins.n; v++) {
        const struct kir_ins *x = kir_at(s->k, v);
        if (x->op != KI_BUF && x->op != KI_ALLOC) continue;
        s->array[v] = describe(s, v);
        if (kir_is_far(x) && x->op == KI_BUF) s->array[v].at = n_far++;
    }
    for (kval v = 1; v < s->k->ins.n; v++) /* their places are constant, too */
        if (kir_is_own(s->k, kir_at(s->k, v))) s->array[kir_at(s->k, v)->a].space = PX_REG;
    for (kval v = 1; v < s->k->ins.n; v++)
        if (kir_at(s->k, v)->op == KI_ALLOC && kir_is_far(kir_at(s->k, v))) s->array[v].at = n_far++;
    return declare_shared(s);
}

static pval base_of(struct ptx *s, kval array)
{
    const struct ptx_array *a = &s->array[array];
    switch (a->space) {
    case PX_GLOBAL: {
        const char *name = str_fmt(s->arena, "[%.*s_p%lld]", STR_ARG(s->name), (long long)a->at).p;
        return PTX_INS(s, PC_LONG, "cvta.to.global.u64", ptx_source(s, PC_LONG, "ld.param.u64", name));
    }
    case PX_SHARED: return ptx_source(s, PC_WORD, "mov.u32", s->shared ? s->shared : str_fmt(s->arena, "s%u", array).p);
    case PX_LOCAL: return ptx_source(s, PC_LONG, "mov.u64", str_fmt(s->arena, "l%u", array).p);
    case PX_REG:
    default: unreachable();
    }
}

/* base + index * size, bytes. */
static pval scaled(struct ptx *s, pval base, pval index, i64 size)
{
    enum ptx_class c = ptx_class(s, base);
    i64 v;
    if (ptx_is_int(s, index, &v)) return ptx_add(s, base, ptx_int(s, c, v * size));
    if (c == PC_WORD) {
        index = ptx_resize(s, index, PC_WORD);
        return size == 1 ? ptx_add(s, index, base) : PTX_INS(s, c, "mad.lo.s32", index, ptx_int(s, PC_WORD, size), base);
    }
    if (ptx_class(s, index) == PC_LONG) return PTX_INS(s, c, "mad.lo.s64", index, ptx_int(s, PC_LONG, size), base);
    return PTX_INS(s, c, "mad.wide.s32", index, ptx_int(s, PC_WORD, size), base);
}

/* The variable part of a scalar index, 0: none; adds the constant to *c. */
static kval variable(const struct ptx *s, kval v, i64 *c)
{
    i64 more;
    for (;;) {
        const struct kir_ins *x = kir_at(s->k, v);
        if (kir_is_const(s->k, v, &more)) {
            *c += more;
            return 0;
        }
        if (x->op == KI_RAMP || x->lanes != 1) return v;
        if (x->op != KI_ADD || !kir_is_const(s->k, x->b, &more)) return v;
        *c += more;
        v = x->a;
    }
}

static i64 swizzled(i64 byte) { return byte ^ (byte >> 7 & 7) << 4; }

/* Byte b of the array is at b ^ (b >> 7 & 7) << 4. */
static pval swizzle(struct ptx *s, pval index, u32 size)
{
    u32 log = (u32)__builtin_ctz(size);
    i64 v;
    if (ptx_is_int(s, index, &v)) return ptx_int(s, PC_WORD, swizzled(v * size) / size);
    pval row = ptx_mask(s, ptx_shr(s, index, 7 - log), 7);
    return PTX_INS(s, PC_WORD, "xor.b32", index, ptx_times(s, row, (i64)1 << (4 - log)));
}

struct ptx_place ptx_address_from(struct ptx *s, kval array, kval index, pval elements, i64 more)
{
    const struct ptx_array *a = &s->array[array];
    struct ptx_place p = {base_of(s, array), a->space == PX_SHARED ? a->at : 0};
    i64 c = more, size = (i64)a->size * a->unit;
    kval v = variable(s, index, &c);
    if (gpu_is_swizzled(s->k, array)) {
        pval i = v ? ptx_lane_as(s, v, 0, PC_WORD) : ptx_int(s, PC_WORD, 0);
        bool apart = !elements && (!v || kir_multiple(s->k, v) * size % ATOM == 0) && c >= 0;
        if (elements) i = ptx_add(s, i, elements);
        p.offset += apart ? swizzled(c * size) : 0;
        p.base = scaled(s, p.base, apart ? i : swizzle(s, ptx_add(s, i, ptx_int(s, PC_WORD, c)), a->size), size);
        return p;
    }
    if (elements) p.base = scaled(s, p.base, elements, size);
    if (v) p.base = scaled(s, p.base, ptx_lane(s, v, 0), size);
    p.offset += c * size;
    return p;
}

struct ptx_place ptx_address_plain(struct ptx *s, kval array, kval index)
{
    const struct ptx_array *a = &s->array[array];
    i64 c = 0;
    kval v = variable(s, index, &c);
    struct ptx_place p = {base_of(s, array), (a->space == PX_SHARED ? a->at : 0) + c * a->size};
    if (v) p.base = scaled(s, p.base, ptx_lane(s, v, 0), a->size);
    return p;
}

struct ptx_place ptx_address(struct ptx *s, kval array, kval index, u32 i)
{
    const struct kir_ins *x = kir_at(s->k, index);
    const struct ptx_array *a = &s->array[array];
    if (x->op == KI_RAMP) return ptx_address_from(s, array, x->a, 0, x->imm.i * i);
    if (x->lanes <= 1) return ptx_address_from(s, array, index, 0, 0);
    struct ptx_place p = {base_of(s, array), a->space == PX_SHARED ? a->at : 0};
    pval at = ptx_lane(s, index, i);
    if (gpu_is_swizzled(s->k, array)) at = swizzle(s, ptx_resize(s, at, PC_WORD), a->size);
    p.base = scaled(s, p.base, at, (i64)a->size * a->unit);
    return p;
}
