// SPDX-License-Identifier: Apache-2.0
//
// lang_c_tile: fragments of language c: tile registers of processors (AMX), eight of up to 16 rows of 64 bytes, whose instructions name them by number.
// A REG array of a fragment is a register of its own for the whole function; an operand that is loaded takes a free one until its last use. There is
// no instruction that copies a register, so sums are loaded, cleared and added to where their array is stored to.
//
// A function sets the shapes of the registers, which the processor keeps for each thread, and gives them back at its end: 8 KiB that the system would
// save for the thread whenever it switches to another. All registers have all rows: fewer would need other shapes, and setting them clears the registers.
//
// Intrinsics are written as instructions: the compilers' headers take longer to read than most kernels to compile. A text that is
// compiled for a processor without tiles may bring its own definitions (test/tile_model.h).
#include "lang/lang_text.h"

enum { TILES = 8, TILE_ROWS = 16, TILE_BYTES = 64 };

struct tiles {
    u8 *at;            /* per instruction: 1 + number of the register, 0: none */
    kval until[TILES]; /* last instruction that needs what the register holds */
    kval end;          /* of the function */
    struct str (*array)(struct text *t, kval v); /* name of an array */
    bool in_use;
};

static const struct { enum dtype a, b, sum; const char *name; } products[] = {
    {DT_BF16, DT_BF16, DT_F32, "dpbf16ps"}, {DT_U8, DT_I8, DT_I32, "dpbusd"}, {DT_I8, DT_I8, DT_I32, "dpbssd"},
    {DT_I8, DT_U8, DT_I32, "dpbsud"},       {DT_U8, DT_U8, DT_I32, "dpbuud"},
};

static const char *product_of(enum dtype a, enum dtype b, enum dtype sum)
{
    for (i64 i = 0; i < countof(products); i++)
        if (products[i].a == a && products[i].b == b && products[i].sum == sum) return products[i].name;
    return NULL;
}

/* Both sides of every register are full. */
static bool is_whole(const struct kir_ins *x)
{
    i64 size = dtype_size(x->dtype), row = x->role == KR_B ? x->rows * size : x->cols * size, rows = x->role == KR_B ? x->cols : x->rows;
    return rows == TILE_ROWS && row == (x->role == KR_ACC ? TILE_ROWS * size : TILE_BYTES) && (x->role != KR_ACC || size == 4);
}

static bool refuse(const struct kir *k, kval v, const char *why, struct err *e)
{
    return err_set(e, ERR_UNSUPPORTED, "'%s' of a fragment in kernel '%.*s': %s", kir_op_info(kir_at(k, v)->op)->name, STR_ARG(k->name), why);
}

bool c_tile_check(const struct kir *k, kval v, struct err *e)
{
    const struct kir_ins *x = kir_at(k, v);
    if (!kir_is_alone(k)) return err_set(e, ERR_UNSUPPORTED, "'%s' of subgroups in kernel '%.*s'", kir_op_info(x->op)->name, STR_ARG(k->name));
    if (x->op == KI_ADD || x->op == KI_MUL || x->op == KI_CAST) return refuse(k, v, "tiles are only multiplied", e);
    if (x->role && !is_whole(x)) return refuse(k, v, "tiles have 16 rows of 64 bytes", e);
    if (x->op == KI_FLOAD && x->d) return refuse(k, v, "tiles have no panels", e);
    if (x->op == KI_FLOAD && x->aux != (x->role == KR_B ? KF_GROUPS : KF_ROWS)) return refuse(k, v, "of a right operand in groups, of others by rows", e);
    if (x->op == KI_FSTORE && x->aux != KF_ROWS) return refuse(k, v, "by rows only", e);
    if (x->op == KI_FMMA && !product_of(kir_dtype(k, x->a), kir_dtype(k, x->b), x->dtype)) return refuse(k, v, "no instruction has these types", e);
    return true;
}

static struct tiles *tiles_of(const struct text *t) { return ((const struct c_own *)t->own)->tiles; }

/* Registers. */

static void fail(struct text *t, kval v, const char *why)
{
    struct err e = {0};
    refuse(t->k, v, why, &e);
    if (!t->err->code) *t->err = e;
}

/* The store of a product, or of a loaded fragment: its only user. 0: there is none. */
static kval store_of(const struct text *t, kval v)
{
    const struct tiles *s = tiles_of(t);
    for (kval u = v + 1; u < s->end; u++)
        if (kir_at(t->k, u)->op == KI_STORE && kir_at(t->k, u)->c == v) return u;
    return 0;
}

/* The last instruction that needs an operand: behind a loop that was opened since, its end. */
static kval last_use(const struct text *t, kval v)
{
    const struct tiles *s = tiles_of(t);
    kval last = v;
    u32 depth = 0;
    bool is_inside = false;
    for (kval u = v + 1; u < s->end; u++) {
        const struct kir_ins *x = kir_at(t->k, u);
        if (kir_opens(x->op)) depth++;
        if (x->op == KI_END && depth == 0) break;
        if (x->op == KI_END && --depth == 0 && is_inside) last = u, is_inside = false;
        if (x->op != KI_FMMA || (x->a != v && x->b != v)) continue;
        if (depth) is_inside = true;
        else last = store_of(t, u);
    }
    return last;
}

/* The register that has been free for longest: the next operands may be loaded while products of the last ones are not done. */
static void take_register(struct text *t, kval v, kval until)
{
    struct tiles *s = tiles_of(t);
    u32 first = 0;
    for (u32 i = 1; i < TILES; i++)
        if (s->until[i] < s->until[first]) first = i;
    if (s->until[first] < v) s->until[first] = until, s->at[v] = (u8)(first + 1);
    else fail(t, v, "more fragments at once than there are tiles");
}

static u32 register_of(struct text *t, kval v)
{
    struct tiles *s = tiles_of(t);
    if (!s->at[v]) fail(t, v, "not in a tile");
    return s->at[v] ? s->at[v] - 1u : 0;
}

/* Statements. */

static void move(struct text *t, const char *name, u32 tile, const struct kir_ins *x, kval pitch)
{
    const i64 size = dtype_size(kir_dtype(t->k, x->a));
    const struct tiles *s = tiles_of(t);
    struct str array = s->array(t, x->a), at = text_value(t, x->b), n = text_value(t, pitch);
    text_line(t, "_tile_%s(%u, %.*s + %.*s, %.*s * %lld);", name, tile, STR_ARG(array), STR_ARG(at), STR_ARG(n), (long long)size);
}

/* Is an array, or memory that a fragment was loaded from (0), untouched between two instructions? */
static bool is_same_since(const struct text *t, kval from, kval to, kval array)
{
    for (kval v = from + 1; v < to; v++) {
        const struct kir_ins *x = kir_at(t->k, v);
        bool is_store = x->op == KI_STORE || x->op == KI_FSTORE;
        if (kir_opens(x->op) || x->op == KI_ELSE || x->op == KI_END || (is_store && (array ? x->a == array : !kir_is_frag(t->k, x->a)))) return false;
    }
    return true;
}

static void multiply(struct text *t, kval store)
{
    const kval array = kir_at(t->k, store)->a, v = kir_at(t->k, store)->c;
    const struct kir_ins *x = kir_at(t->k, v), *sum = kir_at(t->k, x->c);
    if (sum->op != KI_LOAD || sum->a != array || !is_same_since(t, x->c, store, array)) {
        fail(t, v, "sums that do not stay in their array");
        return;
    }
    const char *name = product_of(kir_dtype(t->k, x->a), kir_dtype(t->k, x->b), x->dtype);
    text_line(t, "_tile_%s(%u, %u, %u);", name, register_of(t, array), register_of(t, x->a), register_of(t, x->b));
}

static void store(struct text *t, kval v)
{
    const struct kir_ins *to = kir_at(t->k, v), *x = kir_at(t->k, to->c);
    const u32 tile = register_of(t, to->a);
    const struct kir_ins *zero = kir_at(t->k, x->a);
    bool is_zero = x->op == KI_FILL && zero->op == KI_CONST && (dtype_is_float(zero->dtype) ? zero->imm.f == 0 : zero->imm.i == 0);
    if (x->op == KI_FMMA) multiply(t, v);
    else if (x->op == KI_FLOAD && is_same_since(t, to->c, v, 0)) move(t, "loadd", tile, x, x->c);
    else if (is_zero) text_line(t, "_tile_zero(%u);", tile);
    else fail(t, v, "neither zeros, nor loaded or multiplied just before");
}

bool c_tile_statement(struct text *t, kval v)
{
    const struct kir_ins *x = kir_at(t->k, v);
    struct tiles *s = tiles_of(t);
    bool is_frag = x->role || x->op == KI_FSTORE || (x->op == KI_STORE && kir_is_frag(t->k, x->a));
    if (!is_frag) return false;
    s->in_use = true;
    if (x->op == KI_ALLOC) take_register(t, v, s->end);
    if (x->op == KI_FLOAD && x->role != KR_ACC) {
        take_register(t, v, last_use(t, v));
        move(t, "loadd", register_of(t, v), x, x->c);
    }
    if (x->op == KI_STORE) store(t, v);
    if (x->op == KI_FSTORE) {
        const struct kir_ins *from = kir_at(t->k, x->c);
        if (from->op == KI_LOAD && is_same_since(t, x->c, v, from->a)) move(t, "stored", register_of(t, from->a), x, x->d);
        else fail(t, v, "from anything but its array");
    }
    return true;
}

/* Functions. */

void c_tile_open(struct text *t, kval from, kval end, struct str (*array)(struct text *t, kval v))
{
    struct tiles *s = arena_new(t->arena, struct tiles);
    *s = (struct tiles){.at = arena_array(t->arena, u8, t->k->ins.n), .end = end, .array = array};
    for (u32 i = 0; i < TILES; i++) s->until[i] = from;
    ((struct c_own *)t->own)->tiles = s;
}

bool c_tile_in_use(const struct text *t) { return tiles_of(t)->in_use; }

void c_tile_functions(struct buf *out)
{
    buf_z(out, "#ifndef _tile_loadd\n"
               "#define _tile_loadconfig(p) __asm__ volatile(\"ldtilecfg %0\" : : \"m\"(*(const u8 (*)[64])(p)))\n"
               "#define _tile_release() __asm__ volatile(\"tilerelease\")\n"
               "#define _tile_zero(d) __asm__ volatile(\"tilezero %%tmm\" #d : :)\n"
               "#define _tile_loadd(d, p, n) __asm__ volatile(\"tileloadd (%0,%1,1), %%tmm\" #d : : \"r\"(p), \"r\"((i64)(n)) : \"memory\")\n"
               "#define _tile_stored(s, p, n) __asm__ volatile(\"tilestored %%tmm\" #s \", (%0,%1,1)\" : : \"r\"(p), \"r\"((i64)(n)) : \"memory\")\n");
    for (i64 i = 0; i < countof(products); i++)
        buf_printf(out, "#define _tile_%s(d, a, b) __asm__ volatile(\"t%s %%%%tmm\" #b \", %%%%tmm\" #a \", %%%%tmm\" #d : :)\n", products[i].name, products[i].name);
    buf_z(out, "#endif\n"
               "/* palette 1: eight tiles of 64 bytes by 16 rows */\n"
               "static const u8 tile_shapes[64] = {[0] = 1, [16] = 64, [18] = 64, [20] = 64, [22] = 64, [24] = 64, [26] = 64, [28] = 64, [30] = 64,\n"
               "                                   [48] = 16, [49] = 16, [50] = 16, [51] = 16, [52] = 16, [53] = 16, [54] = 16, [55] = 16};\n");
}
