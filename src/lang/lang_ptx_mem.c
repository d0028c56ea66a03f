// SPDX-License-Identifier: Apache-2.0
//
// lang_ptx_mem.c: loads and stores. Contiguous elements are moved up to 16 bytes at once if the first index is
// provably a multiple; elements smaller than a word are then packed words. A partial access is wide if all lanes
// are valid, else element by element.
#include "lang/lang_ptx.h"

#include <string.h>

enum { WIDEST = 16 };

struct access {
    kval array, index, n; /* n: valid lanes, 0: all */
    u32 lanes, wide;      /* of the value; elements moved at once */
    enum dtype dtype;
    u32 size;             /* bytes of an element in memory */
    pval count;           /* n in a register */
    enum ptx_class cls;   /* of a lane in a register, words if wide and small */
};

static u32 widest(const struct ptx *s, const struct access *a)
{
    const struct kir_ins *i = kir_at(s->k, a->index);
    u32 n = WIDEST / a->size;
    if (s->array[a->array].space == PX_LOCAL || i->op != KI_RAMP || i->imm.i != 1) return 1;
    i64 known = kir_multiple(s->k, i->a);
    while (n > 1 && (n > a->lanes || known % n)) n /= 2;
    return n * a->size < 4 ? 1 : n;
}

static struct access access_of(struct ptx *s, kval array, kval index, kval n, u32 lanes)
{
    enum dtype t = kir_dtype(s->k, array);
    struct access a = {.array = array, .index = index, .n = n, .lanes = lanes, .dtype = t, .size = s->array[array].size};
    a.cls = ptx_class_for(t);
    a.wide = widest(s, &a);
    if (s->array[array].unit > 1 && (kir_lanes(s->k, index) > 1 || n)) ptx_fail(s, "has a vector index into an array of vectors");
    return a;
}

/* Element of lane i; its offset fits 32 bits. */
static struct ptx_place element(struct ptx *s, const struct access *a, u32 i)
{
    const struct ptx_array *x = &s->array[a->array];
    struct ptx_place p = ptx_address(s, a->array, a->index, x->unit > 1 ? 0 : i);
    if (x->unit > 1) p.offset += (i64)i * x->size;
    if (p.offset >= INT32_MIN && p.offset <= INT32_MAX) return p;
    return (struct ptx_place){ptx_add(s, p.base, ptx_int(s, ptx_class(s, p.base), p.offset)), 0};
}

static const char *type_of(const struct access *a)
{
    switch (a->cls) {
    case PC_FLOAT: return "f32";
    case PC_DOUBLE: return "f64";
    case PC_LONG: return "b64";
    case PC_PRED: return "u8";
    case PC_WORD: break;
    case PC_HALF:
    case N_PTX_CLASSES: unreachable();
    }
    bool is_signed = dtype_kind(a->dtype) == DK_INT;
    return a->size == 1 ? is_signed ? "s8" : "u8" : a->size == 2 ? is_signed ? "s16" : "u16" : "b32";
}

/* A word, whatever the width of the number. */
static void count_valid(struct ptx *s, struct access *a)
{
    if (!a->n) return;
    pval n = ptx_lane(s, a->n, 0);
    if (ptx_class(s, n) == PC_LONG) {
        n = PTX_INS(s, PC_LONG, "max.s64", ptx_reg(s, n), ptx_int(s, PC_LONG, 0));
        n = PTX_INS(s, PC_LONG, "min.s64", n, ptx_int(s, PC_LONG, a->lanes));
    }
    a->count = ptx_reg(s, ptx_resize(s, n, PC_WORD));
}

/* The number is often 0 or all by a condition. */
static pval is_valid(struct ptx *s, const struct access *a, u32 i)
{
    const struct kir_ins *n = kir_at(s->k, a->n);
    i64 all, none;
    bool is_choice = n->op == KI_SELECT && kir_is_const(s->k, n->b, &all) && kir_is_const(s->k, n->c, &none);
    if (is_choice && all > i && none <= i) return ptx_lane(s, n->a, 0);
    return PTX_INS(s, PC_PRED, "setp.gt.s32", a->count, ptx_int(s, PC_WORD, i));
}

static void guard(struct ptx *s, pval cond)
{
    if (cond) ptx_put(s, "\t@%r", cond);
}

/* {a, b, c, d} */
static void list(struct ptx *s, const pval *r, u32 n)
{
    ptx_put(s, n > 1 ? "{%r" : "%r", r[0]);
    for (u32 i = 1; i < n; i++) ptx_put(s, ", %r", r[i]);
    if (n > 1) ptx_put(s, "}");
}

static void move(struct ptx *s, const struct access *a, bool is_load, struct ptx_place p, const char *type, const pval *r, u32 n)
{
    const char *vector = n == 1 ? "" : n == 2 ? ".v2" : ".v4", *space = ptx_space_name(s, a->array);
    const char *way = is_load && s->array[a->array].is_constant ? ".nc" : "";
    ptx_put(s, "\t%s.%s%s%s.%s ", is_load ? "ld" : "st", space, way, vector, type);
    if (!is_load) ptx_put(s, "[%r+%l], ", p.base, p.offset);
    list(s, r, n);
    if (is_load) ptx_put(s, ", [%r+%l]", p.base, p.offset);
    ptx_line(s, ";");
}

/* Whether all lanes are valid chooses between two pieces of code, each a structure of its own. */
struct choice { pval all; int label; struct buf yes; };

static struct choice choice_open(struct ptx *s, const struct access *a)
{
    struct choice c = {is_valid(s, a, a->lanes - 1), (int)ptx_labels(s, 2), {0}};
    ptx_open(s, 0, true);
    return c;
}

static void choice_else(struct ptx *s, struct choice *c)
{
    struct ptx_level l;
    ptx_close(s, &l);
    c->yes = l.code;
    ptx_open(s, 0, true);
}

static void choice_end(struct ptx *s, struct choice *c)
{
    struct ptx_level l;
    ptx_close(s, &l);
    ptx_line(s, "\t@!%r bra L%d;", c->all, c->label);
    ptx_append(s, &c->yes);
    ptx_line(s, "\tbra L%d;\nL%d:", c->label + 1, c->label);
    ptx_append(s, &l.code);
    ptx_line(s, "L%d:", c->label + 1);
}

/* Loads. */

static u32 words_at_once(const struct access *a) { return a->size < 4 ? a->wide * a->size / 4 : a->wide; }

static bool is_packed(const struct access *a) { return a->wide > 1 && a->size < 4; }

static void load_wide(struct ptx *s, const struct access *a, const pval *r)
{
    u32 n = words_at_once(a);
    for (u32 i = 0; i < a->lanes / a->wide; i++)
        move(s, a, true, element(s, a, i * a->wide), is_packed(a) ? "b32" : type_of(a), r + i * n, n);
}

static const char *zero_of(enum ptx_class c)
{
    return c == PC_FLOAT ? "mov.f32" : c == PC_DOUBLE ? "mov.f64" : c == PC_LONG ? "mov.b64" : "mov.b32";
}

/* Lane i, to a register. */
static void load_one(struct ptx *s, const struct access *a, u32 i, pval to)
{
    struct ptx_place p = element(s, a, i);
    if (a->n) {
        pval valid = is_valid(s, a, i);
        PTX_TO(s, to, zero_of(ptx_class(s, to)), ptx_imm(s, ptx_class(s, to), 0));
        guard(s, valid);
    }
    move(s, a, true, p, type_of(a), &to, 1);
}

/* Words of small lanes that are loaded one by one. */
static void load_words(struct ptx *s, const struct access *a, const pval *r)
{
    u32 per = 4 / a->size;
    for (u32 w = 0; w < a->lanes / per; w++) {
        pval lane[4];
        for (u32 j = 0; j < per; j++) load_one(s, a, w * per + j, lane[j] = ptx_new(s, PC_WORD));
        PTX_TO(s, r[w], "mov.b32", ptx_pack(s, a->size, lane));
    }
}

static void load_some(struct ptx *s, const struct access *a, const pval *r)
{
    if (is_packed(a)) load_words(s, a, r);
    else for (u32 i = 0; i < a->lanes; i++) load_one(s, a, i, r[i]);
}

static void load_guarded(struct ptx *s, const struct access *a, const pval *r)
{
    struct choice c = choice_open(s, a);
    load_wide(s, a, r);
    choice_else(s, &c);
    load_some(s, a, r);
    choice_end(s, &c);
}

static void set_lanes(struct ptx *s, kval v, const struct access *a, const pval *r)
{
    for (u32 i = 0; i < a->lanes; i++) {
        pval x = r[i];
        if (a->dtype == DT_BOOL) x = PTX_INS(s, PC_PRED, "setp.ne.s32", x, ptx_int(s, PC_WORD, 0));
        ptx_set(s, v, i, x);
    }
}

static void set_words(struct ptx *s, kval v, const struct access *a, const pval *r)
{
    u32 per = 4 / a->size;
    if (a->dtype != DT_BOOL) {
        for (u32 i = 0; i < a->lanes / per; i++) ptx_set_word(s, v, i, r[i]);
        return;
    }
    for (u32 i = 0; i < a->lanes; i++)
        ptx_set(s, v, i, PTX_INS(s, PC_PRED, "setp.ne.s32", ptx_mask(s, r[i / per], (i64)255 << i % per * 8), ptx_int(s, PC_WORD, 0)));
}

static void load_memory(struct ptx *s, kval v)
{
    const struct kir_ins *x = kir_at(s->k, v);
    struct access a = access_of(s, x->a, x->b, x->c, x->lanes);
    u32 n = is_packed(&a) ? a.lanes * a.size / 4 : a.lanes;
    pval *r = arena_array(s->arena, pval, n + 1);
    count_valid(s, &a);
    for (u32 i = 0; i < n; i++) r[i] = ptx_new(s, is_packed(&a) || a.cls == PC_PRED ? PC_WORD : a.cls);
    if (a.wide > 1 && a.n) load_guarded(s, &a, r);
    else if (a.wide > 1) load_wide(s, &a, r);
    else load_some(s, &a, r);
    if (is_packed(&a)) set_words(s, v, &a, r);
    else set_lanes(s, v, &a, r);
}

/* Stores. */

static pval stored(struct ptx *s, const struct access *a, kval value, u32 i)
{
    pval x = ptx_lane_as(s, value, i, a->cls);
    return ptx_reg(s, a->dtype == DT_BOOL ? ptx_cast(s, DT_BOOL, DT_U8, x, PC_WORD) : x);
}

static void store_wide(struct ptx *s, const struct access *a, kval value)
{
    u32 n = words_at_once(a);
    for (u32 i = 0; i < a->lanes / a->wide; i++) {
        pval r[4];
        for (u32 j = 0; j < n; j++)
            r[j] = ptx_reg(s, is_packed(a) ? ptx_word(s, value, i * n + j) : stored(s, a, value, i * a->wide + j));
        move(s, a, false, element(s, a, i * a->wide), is_packed(a) ? "b32" : type_of(a), r, n);
    }
}

static void store_some(struct ptx *s, const struct access *a, kval value)
{
    for (u32 i = 0; i < a->lanes; i++) {
        pval x = stored(s, a, value, i), valid = a->n ? is_valid(s, a, i) : 0;
        struct ptx_place p = element(s, a, i);
        guard(s, valid);
        move(s, a, false, p, type_of(a), &x, 1);
    }
}

static void store_memory(struct ptx *s, kval v)
{
    const struct kir_ins *x = kir_at(s->k, v);
    struct access a = access_of(s, x->a, x->b, x->d, kir_lanes(s->k, x->c));
    count_valid(s, &a);
    if (a.wide > 1 && a.n) {
        struct choice c = choice_open(s, &a);
        store_wide(s, &a, x->c);
        choice_else(s, &c);
        store_some(s, &a, x->c);
        choice_end(s, &c);
    } else if (a.wide > 1) {
        store_wide(s, &a, x->c);
    } else {
        store_some(s, &a, x->c);
    }
}

/* Copies: a store to a shared array of the result of an argument's load, which may complete later. */

/* Number of elements that one copy moves for a load and its store; 0: an ordinary load and store. */
static u32 copied_at_once(struct ptx *s, kval store)
{
    const struct kir_ins *x = kir_at(s->k, store), *load = kir_at(s->k, x->c);
    bool is_in = x->aux == KW_COPY && load->op == KI_LOAD && s->array[load->a].is_constant;
    if (!is_in || s->facts->val[x->c].uses != 1 || !s->caps->has_copy) return 0;
    struct access to = access_of(s, x->a, x->b, 0, load->lanes), from = access_of(s, load->a, load->b, 0, load->lanes);
    u32 n = to.wide < from.wide ? to.wide : from.wide;
    return n * to.size >= 4 ? n : 0;
}

/* Whether a load is only used by such a copy. */
static bool is_copied(struct ptx *s, kval load)
{
    if (s->facts->val[load].uses != 1 || !s->caps->has_copy) return false;
    for (kval v = load + 1; v < s->k->ins.n && v <= s->last[load]; v++) {
        const struct kir_ins *x = kir_at(s->k, v);
        if (x->op == KI_STORE && x->c == load) return copied_at_once(s, v) != 0;
    }
    return false;
}

/* Bytes of the valid ones of n elements from lane i on. */
static pval valid_bytes(struct ptx *s, pval count, u32 i, u32 n, u32 size)
{
    pval left = ptx_add(s, count, ptx_int(s, PC_WORD, -(i64)i));
    left = PTX_INS(s, PC_WORD, "max.s32", left, ptx_int(s, PC_WORD, 0));
    return ptx_times(s, PTX_INS(s, PC_WORD, "min.s32", left, ptx_int(s, PC_WORD, n)), size);
}

static void copy(struct ptx *s, const struct kir_ins *x, u32 n)
{
    const struct kir_ins *load = kir_at(s->k, x->c);
    struct access to = access_of(s, x->a, x->b, 0, load->lanes), from = access_of(s, load->a, load->b, load->c, load->lanes);
    count_valid(s, &from);
    for (u32 i = 0; i < load->lanes; i += n) {
        struct ptx_place a = element(s, &to, i), b = element(s, &from, i);
        i64 bytes = (i64)n * to.size;
        if (from.n)
            ptx_line(s, "\tcp.async.ca.shared.global [%r+%l], [%r+%l], %l, %r;", a.base, a.offset, b.base, b.offset, bytes,
                     valid_bytes(s, from.count, i, n, to.size));
        else ptx_line(s, "\tcp.async.ca.shared.global [%r+%l], [%r+%l], %l;", a.base, a.offset, b.base, b.offset, bytes);
    }
}

void ptx_load(struct ptx *s, kval v)
{
    const struct kir_ins *x = kir_at(s->k, v);
    if (s->facts->val[v].uses == 0 || is_copied(s, v)) return;
    if (s->array[x->a].space == PX_REG) ptx_reg_load(s, v);
    else load_memory(s, v);
}

void ptx_store(struct ptx *s, kval v)
{
    const struct kir_ins *x = kir_at(s->k, v);
    u32 n = copied_at_once(s, v);
    if (n) copy(s, x, n);
    else if (s->array[x->a].space == PX_REG) ptx_reg_store(s, v);
    else store_memory(s, v);
}

static bool stores_copies(const struct kir *k)
{
    for (kval v = 1; v < k->ins.n; v++)
        if (kir_is_copy(k, v)) return true;
    return false;
}

void ptx_await(struct ptx *s, kval v)
{
    i64 newest = kir_at(s->k, v)->imm.i;
    bool is_tiles = kir_has_op(s->k, KI_TILE);
    if (is_tiles) ptx_tile_await(s, newest);
    if (s->caps->has_copy && (!is_tiles || stores_copies(s->k)))
        ptx_line(s, "\tcp.async.commit_group;\n\tcp.async.wait_group %l;", newest);
}
