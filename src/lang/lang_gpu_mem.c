// SPDX-License-Identifier: Apache-2.0
//
// lang_gpu_mem.c: arrays of GPU languages and accesses to them.
//
// A vector is a scalar per lane. Contiguous elements are moved up to 16 bytes at once if the
// first index is provably a multiple: arguments, TEMP arrays and shared ones are aligned to
// at least 16 bytes. Elements smaller than a word are then parts of words, which compilers
// keep together when they are only moved. A partial access is wide if all lanes are valid,
// else element by element. Arrays of registers are variables, one per lane of an element.
#include "lang/lang_gpu.h"

enum { WIDEST = 16 };

struct access {         /* one decomposed LOAD or STORE */
    struct str array;   /* name */
    struct str pointer; /* type of a pointer to its elements without the element type: address space, const */
    enum dtype dtype;   /* of an element in memory: bool is u8, halves are u16 */
    bool is_bool;       /* and a byte in memory */
    bool is_reg;
    u32 unit;           /* lanes of the array's elements */
    u32 lanes;          /* of the value */
    u32 wide;           /* elements moved at once */
    bool is_ramp;       /* neighbours */
    kval of, index;
    struct str n;       /* valid lanes; empty: all */
    i64 count;          /* REG: elements */
};

static u32 widest(const struct text *t, const struct access *a)
{
    if (a->is_reg || !a->is_ramp) return 1;
    u32 size = (u32)dtype_size(a->dtype), n = WIDEST / size;
    i64 known = kir_multiple(t->k, kir_at(t->k, a->index)->a);
    while (n > 1 && (n > a->lanes || known % n)) n /= 2;
    return n * size < 4 ? 1 : n;
}

static struct access access_of(struct text *t, kval array, kval index, kval n, u32 lanes)
{
    const struct kir_ins *x = kir_at(t->k, array), *i = kir_at(t->k, index);
    const struct gpu_words *w = gpu_words(t);
    bool is_shared = x->op == KI_ALLOC && x->aux == KS_SHARED, is_in = x->op == KI_BUF && x->aux == KA_IN;
    struct access a = {.array = gpu_array_name(t, array),
                       .pointer = text_fmt(t, "%s%s", is_shared ? w->close : w->far, is_in ? "const " : ""),
                       .unit = x->lanes ? x->lanes : 1,
                       .lanes = lanes,
                       .of = array,
                       .index = index,
                       .is_reg = x->op == KI_ALLOC && x->aux == KS_REG,
                       .is_ramp = i->op == KI_RAMP && i->imm.i == 1};
    a.is_bool = x->dtype == DT_BOOL && !a.is_reg;
    a.dtype = a.is_bool ? DT_U8 : text_rep(x->dtype);
    a.wide = widest(t, &a);
    if (a.is_reg) kir_is_const(t->k, x->a, &a.count);
    if (n) a.n = text_value(t, n);
    if (a.unit > 1 && (i->lanes > 1 || n))
        err_set(t->err, ERR_UNSUPPORTED, "vector index into an array of vectors in kernel '%.*s'",
                STR_ARG(t->k->name));
    return a;
}

/* The index of lane t->lane in the array. */
static struct str place(struct text *t, const struct access *a)
{
    if (!gpu_is_swizzled(t->k, a->of)) return text_bare(t, a->index);
    return gpu_swizzled(t, a->of, text_value(t, a->index));
}

/* The element of lane t->lane as the left side of an assignment. */
static struct str element(struct text *t, const struct access *a)
{
    if (a->is_reg && a->count == 1)
        return a->unit > 1 ? text_fmt(t, "%.*s_%u", STR_ARG(a->array), t->lane) : a->array;
    if (a->unit == 1) return text_fmt(t, "%.*s[%.*s]", STR_ARG(a->array), STR_ARG(place(t, a)));
    struct str i = text_value(t, a->index);
    return text_fmt(t, "%.*s[%.*s * %u + %u]", STR_ARG(a->array), STR_ARG(i), a->unit, t->lane);
}

static struct str load_element(struct text *t, const struct access *a)
{
    struct str s = element(t, a);
    if (a->is_bool) s = text_fmt(t, "(%.*s != 0)", STR_ARG(s));
    if (a->n.n) s = text_fmt(t, "(%.*s > %u ? %.*s : 0)", STR_ARG(a->n), t->lane, STR_ARG(s));
    return s;
}

/* Words that `wide` elements are moved as: their own type, or u32 for small ones. */
struct words {
    enum dtype dtype;
    u32 n, per; /* words; elements in one */
    struct str type, at;
};

static struct words words_of(struct text *t, const struct access *a)
{
    u32 size = (u32)dtype_size(a->dtype);
    struct words w = {.dtype = size < 4 ? DT_U32 : a->dtype, .per = size < 4 ? 4 / size : 1};
    w.n = a->wide / w.per;
    w.type = text_fmt(t, "%sx%u", dtype_name(w.dtype), w.n);
    if (!map_get(&t->known, w.type)) {
        map_put(&t->known, w.type, 1);
        gpu_words(t)->define_wide(&t->types, w.dtype, w.n);
    }
    struct str at = place(t, a);
    w.at = text_fmt(t, "*(%.*s%.*s *)(%.*s + (%.*s))", STR_ARG(a->pointer), STR_ARG(w.type), STR_ARG(a->array), STR_ARG(at));
    return w;
}

static struct str member(struct text *t, const struct words *w, const char *name, u32 i)
{
    return w->n == 1 ? str_of(name) : text_fmt(t, "%s.s%x", name, i);
}

static struct str unpack(struct text *t, const struct access *a, const struct words *w, u32 i)
{
    struct str s = member(t, w, "w", i / w->per);
    u32 shift = i % w->per * (32 / w->per);
    if (w->per == 1) return s;
    if (shift) s = text_fmt(t, "(%.*s >> %u)", STR_ARG(s), shift);
    s = text_fmt(t, "(%s)%.*s", dtype_name(a->dtype), STR_ARG(s));
    return a->is_bool ? text_fmt(t, "%.*s != 0", STR_ARG(s)) : s;
}

/* Lanes of v that are already declared. */
static void load_wide(struct text *t, kval v, const struct access *a)
{
    for (u32 from = 0; from < a->lanes; from += a->wide) {
        t->lane = from;
        struct words w = words_of(t, a);
        text_line(t, "{");
        text_line(t, "    const %.*s w = %.*s;", STR_ARG(w.type), STR_ARG(w.at));
        for (u32 i = 0; i < a->wide; i++) {
            t->lane = from + i;
            text_line(t, "    %.*s = %.*s;", STR_ARG(text_name(t, v)), STR_ARG(unpack(t, a, &w, i)));
        }
        text_line(t, "}");
    }
}

static void if_all(struct text *t, const struct access *a)
{
    if (a->n.n) text_line(t, "if (%.*s >= %u) {", STR_ARG(a->n), a->lanes);
    if (a->n.n) t->depth++;
}

static void else_some(struct text *t)
{
    t->depth--;
    text_line(t, "} else {");
    t->depth++;
}

static void end_if(struct text *t)
{
    t->depth--;
    text_line(t, "}");
}

/* Copies: a store to a shared array of the result of an argument's load, which
   may complete later. Memory is read at the store: it must be read-only. */

static bool has_copies(const struct text *t) { return gpu_words(t)->has_copies && t->caps->has_copy; }

/* Number of elements that one copy moves for a load and its store; 0: an ordinary load and store. */
static u32 copied_at_once(struct text *t, kval store)
{
    const struct kir_ins *x = kir_at(t->k, store), *load = kir_at(t->k, x->c);
    bool is_in = x->aux && load->op == KI_LOAD && kir_at(t->k, load->a)->op == KI_BUF && kir_at(t->k, load->a)->aux == KA_IN;
    if (!is_in || t->val[x->c].uses != 1 || !has_copies(t)) return 0;
    struct access to = access_of(t, x->a, x->b, 0, load->lanes), from = access_of(t, load->a, load->b, 0, load->lanes);
    u32 n = (u32)i64_min(to.wide, from.wide), bytes = n * (u32)dtype_size(to.dtype);
    return bytes >= 4 ? n : 0;
}

/* Whether a load is only used by such a copy. */
static bool is_copied(struct text *t, kval load)
{
    if (t->val[load].uses != 1 || !has_copies(t)) return false;
    for (kval v = load + 1; v < t->k->ins.n; v++) {
        const struct kir_ins *x = kir_at(t->k, v);
        for (u32 i = 0; i < kir_op_info(x->op)->n_args; i++)
            if (kir_operand(x, i) == load) return x->op == KI_STORE && i == 2 && copied_at_once(t, v);
    }
    return false;
}

static void copy(struct text *t, const struct kir_ins *x, u32 n)
{
    const struct kir_ins *load = kir_at(t->k, x->c);
    struct access to = access_of(t, x->a, x->b, 0, load->lanes), from = access_of(t, load->a, load->b, load->c, load->lanes);
    u32 size = (u32)dtype_size(to.dtype);
    for (t->lane = 0; t->lane < load->lanes; t->lane += n) {
        struct str a = element(t, &to), b = element(t, &from), valid = text_fmt(t, "%u", n * size);
        if (from.n.n)
            valid = text_fmt(t, "VALID(%.*s - %u, %u) * %u", STR_ARG(from.n), t->lane, n, size);
        text_line(t, "COPY(&%.*s, &%.*s, %u, %.*s);", STR_ARG(a), STR_ARG(b), n * size, STR_ARG(valid));
    }
    t->lane = 0;
}

static bool stores_copies(const struct kir *k)
{
    for (kval v = 1; v < k->ins.n; v++)
        if (kir_is_copy(k, v)) return true;
    return false;
}

void gpu_await(struct text *t, kval v)
{
    bool is_tiles = kir_has_op(t->k, KI_TILE);
    if (is_tiles) gpu_tile_await(t, v);
    if (has_copies(t) && (!is_tiles || stores_copies(t->k))) text_line(t, "AWAIT(%lld);", (long long)kir_at(t->k, v)->imm.i);
}

bool gpu_load_lanes(struct text *t, kval v)
{
    const struct kir_ins *x = kir_at(t->k, v);
    if (is_copied(t, v)) return true;
    struct access a = access_of(t, x->a, x->b, x->c, x->lanes);
    if (a.wide == 1) return false;
    struct str type = text_value_type(t, v);
    for (t->lane = 0; t->lane < a.lanes; t->lane++)
        text_line(t, "%.*s %.*s;", STR_ARG(type), STR_ARG(text_name(t, v)));
    if_all(t, &a);
    load_wide(t, v, &a);
    if (a.n.n) {
        else_some(t);
        for (t->lane = 0; t->lane < a.lanes; t->lane++)
            text_line(t, "%.*s = %.*s;", STR_ARG(text_name(t, v)), STR_ARG(load_element(t, &a)));
        end_if(t);
    }
    t->lane = 0;
    return true;
}

struct str gpu_load(struct text *t, kval v)
{
    const struct kir_ins *x = kir_at(t->k, v);
    struct access a = access_of(t, x->a, x->b, x->c, x->lanes);
    return load_element(t, &a);
}

/* Element i of the value as bits at its position in a word. */
static struct str packed(struct text *t, const struct access *a, const struct words *w, kval value, u32 i)
{
    u32 bits = 32 / w->per, shift = i % w->per * bits;
    struct str s = text_value(t, value);
    s = text_fmt(t, a->is_bool ? "(u32)%.*s" : bits == 8 ? "(u32)(u8)%.*s" : "(u32)(u16)%.*s", STR_ARG(s));
    return shift ? text_fmt(t, "%.*s << %u", STR_ARG(s), shift) : s;
}

static void store_wide(struct text *t, const struct access *a, kval value)
{
    for (u32 from = 0; from < a->lanes; from += a->wide) {
        t->lane = from;
        struct words w = words_of(t, a);
        text_line(t, "{");
        text_line(t, "    %.*s w;", STR_ARG(w.type));
        for (u32 i = 0; i < w.n; i++) {
            struct str s = {0};
            for (u32 j = 0; j < w.per; j++) {
                t->lane = from + i * w.per + j;
                struct str one = w.per == 1 ? text_bare(t, value) : packed(t, a, &w, value, j);
                s = j ? text_fmt(t, "%.*s | %.*s", STR_ARG(s), STR_ARG(one)) : one;
            }
            text_line(t, "    %.*s = %.*s;", STR_ARG(member(t, &w, "w", i)), STR_ARG(s));
        }
        text_line(t, "    %.*s = w;", STR_ARG(w.at));
        text_line(t, "}");
    }
}

static void store_single(struct text *t, const struct access *a, kval value)
{
    for (t->lane = 0; t->lane < a->lanes; t->lane++) {
        struct str at = element(t, a), s = text_bare(t, value);
        if (a->n.n) text_line(t, "if (%.*s > %u) %.*s = %.*s;", STR_ARG(a->n), t->lane, STR_ARG(at), STR_ARG(s));
        else text_line(t, "%.*s = %.*s;", STR_ARG(at), STR_ARG(s));
    }
}

void gpu_store(struct text *t, kval v)
{
    const struct kir_ins *x = kir_at(t->k, v);
    u32 n = copied_at_once(t, v);
    if (n) {
        copy(t, x, n);
        return;
    }
    struct access a = access_of(t, x->a, x->b, x->d, kir_lanes(t->k, x->c));
    if (a.wide > 1) {
        if_all(t, &a);
        store_wide(t, &a, x->c);
        if (a.n.n) else_some(t);
    }
    if (a.wide == 1 || a.n.n) store_single(t, &a, x->c);
    if (a.wide > 1 && a.n.n) end_if(t);
    t->lane = 0;
}

/* A hint; GPU caches already share loads between threads, so it is ignored. */
void gpu_prefetch(struct text *t, kval v) {}

static void alloc_registers(struct text *t, kval v)
{
    const struct kir_ins *x = kir_at(t->k, v);
    struct str type = gpu_element_type(t, x), name = gpu_array_name(t, v);
    u32 lanes = x->lanes ? x->lanes : 1;
    i64 n = 0;
    if (!kir_is_const(t->k, x->a, &n) || n < 0 || n > 1 << 16)
        err_set(t->err, ERR_UNSUPPORTED, "array of registers too large in kernel '%.*s'", STR_ARG(t->k->name));
    else if (n > 1) text_line(t, "%.*s %.*s[%lld];", STR_ARG(type), STR_ARG(name), (long long)n * lanes);
    else if (lanes == 1) text_line(t, "%.*s %.*s;", STR_ARG(type), STR_ARG(name));
    for (u32 i = 0; n == 1 && lanes > 1 && i < lanes; i++)
        text_line(t, "%.*s %.*s_%u;", STR_ARG(type), STR_ARG(name), i);
}

/* Shared arrays are declared at the top of their function. */
void gpu_alloc(struct text *t, kval v)
{
    const struct kir_ins *x = kir_at(t->k, v);
    if (x->aux == KS_REG) alloc_registers(t, v);
}
