// SPDX-License-Identifier: Apache-2.0
//
// c99.c: the language c99: kernels as C99 without extensions, for programs that consist of sources alone (export/c.c). Its "binary" is the text.
//
// One function per grid s = 0, 1, ... of kernel NAME:
//
//     static void NAME_s(TYPE *b_..., TYPE *t_..., void *work, i32 p0, ..., i32 begin, i32 end);
//
// takes the BUF arguments and the TEMP arrays in order, scratch memory for the WORK arrays (aligned for any type; NULL if there are none), the kernel's
// parameters and a range of the iterations of the grid's dimensions, flattened in row-major order. A target with one thread has no range: the
// function runs all iterations, as nested loops of constant lengths.
//
// A vector is a scalar per lane, an index 32 bits wide: programs for machines with more memory are not exported as C. Functions of f32 are
// helpers or calls of <math.h>. Products of bytes are multiply-adds, or of words of four bytes where the target multiplies pairs of i16 (Arm's DSP
// extension): bytes 0 and 2 of both words are extended to such a pair, then bytes 1 and 3.
#include "lang/lang_text.h"

/* Memory. */

struct access {       /* one decomposed LOAD or STORE */
    struct str array; /* name */
    bool is_bool;     /* and a byte in memory */
    bool is_reg;
    u32 unit;         /* lanes of the array's elements */
    u32 lanes;        /* of the value */
    i64 count;        /* REG: elements */
    kval index;
    struct str n;     /* valid lanes; empty: all */
};

static struct access access_of(struct text *t, kval array, kval index, kval n, u32 lanes)
{
    const struct kir_ins *x = kir_at(t->k, array);
    struct access a = {.array = text_array_name(t, array), .unit = x->lanes ? x->lanes : 1, .lanes = lanes, .index = index};
    a.is_reg = x->op == KI_ALLOC && x->aux == KS_REG;
    a.is_bool = x->dtype == DT_BOOL && !a.is_reg;
    if (a.is_reg) kir_is_const(t->k, x->a, &a.count);
    if (n) a.n = text_value(t, n);
    if (a.unit > 1 && (kir_lanes(t->k, index) > 1 || n))
        err_set(t->err, ERR_UNSUPPORTED, "vector index into an array of vectors in kernel '%.*s'", STR_ARG(t->k->name));
    return a;
}

/* The element of lane t->lane as the left side of an assignment. */
static struct str element(struct text *t, const struct access *a)
{
    if (a->is_reg && a->count == 1) return a->unit > 1 ? text_fmt(t, "%.*s_%u", STR_ARG(a->array), t->lane) : a->array;
    if (a->unit == 1) return text_fmt(t, "%.*s[%.*s]", STR_ARG(a->array), STR_ARG(text_bare(t, a->index)));
    return text_fmt(t, "%.*s[%.*s * %u + %u]", STR_ARG(a->array), STR_ARG(text_value(t, a->index)), a->unit, t->lane);
}

static struct str load(struct text *t, kval v)
{
    const struct kir_ins *x = kir_at(t->k, v);
    struct access a = access_of(t, x->a, x->b, x->c, x->lanes);
    struct str s = element(t, &a);
    if (a.is_bool) s = text_fmt(t, "(%.*s != 0)", STR_ARG(s));
    return a.n.n ? text_fmt(t, "(%.*s > %u ? %.*s : 0)", STR_ARG(a.n), t->lane, STR_ARG(s)) : s;
}

static void store(struct text *t, kval v)
{
    const struct kir_ins *x = kir_at(t->k, v);
    struct access a = access_of(t, x->a, x->b, x->d, kir_lanes(t->k, x->c));
    for (t->lane = 0; t->lane < a.lanes; t->lane++) {
        struct str at = element(t, &a), s = text_bare(t, x->c);
        if (a.n.n) text_line(t, "if (%.*s > %u) %.*s = %.*s;", STR_ARG(a.n), t->lane, STR_ARG(at), STR_ARG(s));
        else text_line(t, "%.*s = %.*s;", STR_ARG(at), STR_ARG(s));
    }
    t->lane = 0;
}

/* Words of bytes. */

struct words {
    bool *is_word;  /* per LOAD: it is needed as words */
    bool *is_other; /* and, or, as lanes */
};

enum { TERMS = 4 };

static bool is_bytes(const struct kir *k, kval v)
{
    const struct kir_ins *x = kir_at(k, v), *array = kir_at(k, x->a), *at = kir_at(k, x->b);
    if (x->op != KI_LOAD || x->lanes % TERMS) return false;
    return !x->c && at->op == KI_RAMP && at->imm.i == 1 && array->lanes <= 1 && !(array->op == KI_ALLOC && array->aux == KS_REG);
}

/* Can v, an operand of a DOT, be made of words? It is loaded, a constant, one of these again and again, or one of two by a condition. */
static bool has_words(const struct kir *k, kval v)
{
    const struct kir_ins *x = kir_at(k, v);
    if (x->dtype != DT_U8 && x->dtype != DT_I8) return false;
    if (x->op == KI_SPLAT) return kir_lanes(k, x->a) == TERMS && has_words(k, x->a);
    if (x->op == KI_SELECT) return kir_at(k, x->a)->op == KI_SPLAT && kir_lanes(k, kir_at(k, x->a)->a) == 1 && has_words(k, x->b) && has_words(k, x->c);
    return x->op == KI_CONST || is_bytes(k, v);
}

/* Is v a DOT of words? */
static bool is_word_dot(const struct kir *k, const struct caps *c, kval v)
{
    const struct kir_ins *x = kir_at(k, v);
    if (x->op != KI_DOT || x->dtype != DT_I32 || !caps_has_dot(c, DT_I16, DT_I16, DT_I32)) return false;
    return has_words(k, x->a) && has_words(k, x->b) && kir_dtype(k, x->a) != kir_dtype(k, x->b);
}

static bool passes_words(const struct kir_ins *x) { return x->op == KI_SPLAT || x->op == KI_SELECT; }

/* From the last instruction on: what needs a value needs its operands in the same form. */
static void find_words(struct text *t, struct words *w)
{
    const struct kir *k = t->k;
    w->is_word = arena_array(t->arena, bool, k->ins.n + 1);
    w->is_other = arena_array(t->arena, bool, k->ins.n + 1);
    for (kval v = k->ins.n - 1; v > 0; v--) {
        const struct kir_ins *x = kir_at(k, v);
        bool is_dot = is_word_dot(k, t->caps, v), is_needed = kir_op_info(x->op)->cls != 'P' || w->is_other[v] || is_dot;
        for (u32 i = 0; i < kir_op_info(x->op)->n_args; i++) {
            kval y = kir_operand(x, i);
            bool is_condition = x->op == KI_SELECT && i == 0;
            if ((is_dot && i < 2) || (passes_words(x) && !is_condition && w->is_word[v])) w->is_word[y] = true;
            if ((is_dot ? i == 2 : is_needed) || (is_condition && w->is_word[v])) w->is_other[y] = true;
        }
        if (is_dot) w->is_other[v] = true;
    }
}

static bool load_lanes(struct text *t, kval v)
{
    const struct words *w = t->own;
    const struct kir_ins *x = kir_at(t->k, v);
    if (!w->is_word[v]) return false;
    assert(is_bytes(t->k, v));
    struct str word = text_helper(t, "word", x->dtype, 1, DT_NONE), array = text_array_name(t, x->a), at = text_value(t, kir_at(t->k, x->b)->a);
    for (u32 i = 0; i < x->lanes / TERMS; i++)
        text_line(t, "const u32 d%u_%u = %.*s(%.*s + %.*s + %u);", v, i, STR_ARG(word), STR_ARG(array), STR_ARG(at), TERMS * i);
    return !w->is_other[v];
}

/* Values of which only words are needed have no lanes of their own. */
static bool statement(struct text *t, kval v)
{
    const struct words *w = t->own;
    return passes_words(kir_at(t->k, v)) && w->is_word[v] && !w->is_other[v];
}

/* Word number `at` of an operand. */
static struct str word_text(struct text *t, kval v, u32 at)
{
    const struct kir_ins *x = kir_at(t->k, v);
    if (x->op == KI_SPLAT) return word_text(t, x->a, 0);
    if (x->op == KI_CONST) return text_fmt(t, "%uu", (u32)(x->imm.i & 255) * 0x01010101u);
    if (x->op == KI_LOAD) return text_fmt(t, "d%u_%u", v, at);
    struct str c = text_value(t, kir_at(t->k, x->a)->a), a = word_text(t, x->b, at), b = word_text(t, x->c, at);
    return text_fmt(t, "(%.*s ? %.*s : %.*s)", STR_ARG(c), STR_ARG(a), STR_ARG(b));
}

static struct str dot(struct text *t, kval v)
{
    const struct kir_ins *x = kir_at(t->k, v);
    bool turns = kir_dtype(t->k, x->a) == DT_I8;
    struct str f = text_helper(t, "dot_u8_i8", DT_I32, 1, DT_NONE), sum = text_bare(t, x->c);
    struct str a = word_text(t, turns ? x->b : x->a, t->lane), b = word_text(t, turns ? x->a : x->b, t->lane);
    return text_fmt(t, "%.*s(%.*s, %.*s, %.*s)", STR_ARG(f), STR_ARG(sum), STR_ARG(a), STR_ARG(b));
}

/* There is no portable way to say it. */
static void prefetch(struct text *t, kval v) { text_line(t, "(void)(%.*s);", STR_ARG(text_value(t, kir_at(t->k, v)->b))); }

/* Arrays. */

static struct str element_type(struct text *t, const struct kir_ins *x)
{
    return x->dtype == DT_BOOL && !(x->op == KI_ALLOC && x->aux == KS_REG) ? S("u8") : text_type(t, x->dtype, 1);
}

static void alloc(struct text *t, kval v)
{
    const struct kir_ins *x = kir_at(t->k, v);
    if (x->aux == KS_WORK || x->aux == KS_TEMP) return;
    struct str type = element_type(t, x), name = text_array_name(t, v);
    u32 unit = x->lanes ? x->lanes : 1;
    i64 n = 0;
    if (!kir_is_const(t->k, x->a, &n) || n < 0 || n > 1 << 16) {
        err_set(t->err, ERR_UNSUPPORTED, "array of registers too large in kernel '%.*s'", STR_ARG(t->k->name));
        return;
    }
    if (n != 1 || x->aux != KS_REG) text_line(t, "%.*s %.*s[%lld];", STR_ARG(type), STR_ARG(name), (long long)n * unit);
    for (u32 i = 0; i < unit && n == 1 && x->aux == KS_REG; i++)
        if (unit == 1) text_line(t, "%.*s %.*s;", STR_ARG(type), STR_ARG(name));
        else text_line(t, "%.*s %.*s_%u;", STR_ARG(type), STR_ARG(name), i);
}

/* WORK arrays of the grid from..to, in one memory, each aligned for any type. */
static void declare_work(struct text *t, kval from, kval to)
{
    enum { ALIGN = 8 };
    struct str at = S("(u8 *)work");
    for (kval v = 1; v < t->k->ins.n; v++) {
        const struct kir_ins *x = kir_at(t->k, v);
        i64 n, bytes = dtype_size(x->dtype) * (x->lanes ? x->lanes : 1);
        if (x->op != KI_ALLOC || x->aux != KS_WORK) continue;
        struct str type = element_type(t, x), name = text_array_name(t, v);
        if (v > from && v < to)
            text_line(t, "%.*s *restrict const %.*s = (%.*s *)(void *)(%.*s);", STR_ARG(type), STR_ARG(name), STR_ARG(type), STR_ARG(at));
        if (kir_is_const(t->k, x->a, &n)) at = text_fmt(t, "%.*s + %lld", STR_ARG(at), (long long)round_up(n * bytes, ALIGN));
        else at = text_fmt(t, "%.*s + (%.*s * %lld + %d) / %d * %d", STR_ARG(at), STR_ARG(text_value(t, x->a)), (long long)bytes, ALIGN - 1, ALIGN, ALIGN);
    }
}

/* Functions. */

static struct str thread(struct text *t, kval v) { return S("0"); }

static bool has_range(const struct text *t) { return t->caps && t->caps->n_threads > 1; }

/* All iterations: a loop per dimension. */
static void loops_open(struct text *t, const kval *dim, const struct str *extent, u32 n)
{
    for (u32 i = 0; i < n; i++) {
        text_line(t, "for (i32 g%u = 0; g%u < %.*s; g%u++) {", dim[i], dim[i], STR_ARG(extent[i]), dim[i]);
        t->depth++;
    }
}

/* A range of them: indices of each number. */
static void range_open(struct text *t, const kval *dim, const struct str *extent, u32 n)
{
    struct str rest = S("at");
    text_line(t, "for (i32 at = begin; at < end; at++) {");
    t->depth++;
    for (u32 i = n; i-- > 0;) {
        if (i) text_line(t, "const i32 g%u = %.*s %% %.*s;", dim[i], STR_ARG(rest), STR_ARG(extent[i]));
        else text_line(t, "const i32 g%u = %.*s;", dim[i], STR_ARG(rest));
        text_line(t, "(void)g%u;", dim[i]);
        rest = text_fmt(t, "%.*s / %.*s", STR_ARG(rest), STR_ARG(extent[i]));
    }
}

static void grid_body(struct text *t, kval open)
{
    kval dim[3] = {0}, end;
    struct str extent[3];
    u32 n = text_grid(t, open, dim, &end);
    for (u32 i = 0; i < n; i++) extent[i] = text_value(t, kir_at(t->k, dim[i])->a);
    if (has_range(t)) range_open(t, dim, extent, n);
    else loops_open(t, dim, extent, n);
    text_body(t, open, end);
    for (u32 i = 0; i < (has_range(t) ? 1 : n); i++) {
        t->depth--;
        text_line(t, "}");
    }
}

static void put_parameters(struct text *t, struct buf *out)
{
    const struct kir *k = t->k;
    const char *comma = "";
    for (kval v = 1; v < k->ins.n; v++) {
        const struct kir_ins *x = kir_at(k, v);
        if (x->op != KI_BUF) continue;
        const char *type = x->dtype == DT_BOOL ? "u8" : dtype_name(text_rep(x->dtype));
        buf_printf(out, "%s%s%s *restrict const b_%.*s", comma, x->aux == KA_IN ? "const " : "", type, STR_ARG(k->buf.v[x->imm.i].name));
        comma = ", ";
    }
    for (kval v = 1; v < k->ins.n; v++) {
        const struct kir_ins *x = kir_at(k, v);
        if (x->op != KI_ALLOC || x->aux != KS_TEMP) continue;
        buf_printf(out, "%s%.*s *restrict const t%u", comma, STR_ARG(element_type(t, x)), v);
        comma = ", ";
    }
    buf_printf(out, "%svoid *const work", comma);
    for (u32 i = 0; i < k->param.n; i++) buf_printf(out, ", const i32 p%u", i);
    if (has_range(t)) buf_z(out, ", const i32 begin, const i32 end");
}

/* A kernel's functions have the same parameters, of which each uses some. */
static void put_unused(struct text *t, struct buf *out, const struct buf *arrays)
{
    const struct kir *k = t->k;
    for (u32 i = 0; i < k->buf.n; i++)
        if (!t->buf_used[i]) buf_printf(out, "    (void)b_%.*s;\n", STR_ARG(k->buf.v[i].name));
    for (kval v = 1; v < k->ins.n; v++)
        if (kir_at(k, v)->op == KI_ALLOC && kir_at(k, v)->aux == KS_TEMP) buf_printf(out, "    (void)t%u;\n", v);
    if (!arrays->n) buf_z(out, "    (void)work;\n");
    for (u32 i = 0; i < k->param.n; i++)
        if (!t->param_used[i]) buf_printf(out, "    (void)p%u;\n", i);
}

static void grid_function(struct text *t, struct buf *out, u32 number, kval open)
{
    struct buf body = {0}, arrays = {0};
    kval end = text_end(t->k, open);
    for (u32 i = 0; i < t->k->param.n; i++) t->param_used[i] = false;
    for (u32 i = 0; i < t->k->buf.n; i++) t->buf_used[i] = false;
    t->depth = 1;
    t->out = &arrays;
    declare_work(t, open, end);
    t->out = &body;
    grid_body(t, open);
    t->out = out;
    buf_printf(out, "\nstatic void %.*s_%u(", STR_ARG(t->k->name), number);
    put_parameters(t, out);
    buf_z(out, ")\n{\n");
    put_unused(t, out, &arrays);
    buf_str(out, buf_view(&arrays));
    buf_str(out, buf_view(&body));
    buf_z(out, "}\n");
    buf_release(&arrays);
    buf_release(&body);
}

/* Products of four u8 and four i8 by two instructions, once the bytes are extended; compilers share extended words among the sums that use them. The
   rotation is part of the instruction, which no intrinsic says. */
#define DOT_TEXT                                                                                    \
    "i32 $F(i32 z, u32 x, u32 y)\n{\n"                                                              \
    "#if defined __ARM_FEATURE_DSP && defined __GNUC__\n"                                           \
    "    u32 a, b, c, d;\n"                                                                         \
    "    __asm__(\"uxtb16 %0, %1\" : \"=r\"(a) : \"r\"(x));\n"                                      \
    "    __asm__(\"uxtb16 %0, %1, ror #8\" : \"=r\"(c) : \"r\"(x));\n"                              \
    "    __asm__(\"sxtb16 %0, %1\" : \"=r\"(b) : \"r\"(y));\n"                                      \
    "    __asm__(\"sxtb16 %0, %1, ror #8\" : \"=r\"(d) : \"r\"(y));\n"                              \
    "    __asm__(\"smlad %0, %1, %2, %0\" : \"+r\"(z) : \"r\"(a), \"r\"(b));\n"                     \
    "    __asm__(\"smlad %0, %1, %2, %0\" : \"+r\"(z) : \"r\"(c), \"r\"(d));\n    return z;\n"       \
    "#else\n"                                                                                      \
    "    return z + (i32)(x & 255) * (i8)(y & 255) + (i32)(x >> 8 & 255) * (i8)(y >> 8 & 255) +\n"  \
    "           (i32)(x >> 16 & 255) * (i8)(y >> 16 & 255) + (i32)(x >> 24) * (i8)(y >> 24);\n"    \
    "#endif\n}\n"
#define WORD_TEXT "u32 $F(const $E *p)\n{\n    u32 x;\n    memcpy(&x, p, sizeof x);\n    return x;\n}\n"

/* One rounding where that is an instruction: compilers in their mode for C99 contract no expressions. */
#define FMA_TEXT(flag)                                                                             \
    "$E $F($E x, $E y, $E z)\n{\n#if defined FP_FAST_FMA" flag " || defined __FP_FAST_FMA" flag "\n    return $mfma$f(x, y, z);\n"        \
    "#else\n    return x * y + z;\n#endif\n}\n"

static const struct text_helper helpers[] = {
    {.name = "fma", .types = T_F32, .scalar = FMA_TEXT("F")},
    {.name = "fma", .types = T_F64, .scalar = FMA_TEXT("")},
    {.name = "dot_u8_i8", .types = 1 << DT_I32, .scalar = DOT_TEXT},
    {.name = "word", .types = T_BYTES1, .scalar = WORD_TEXT},
    {0},
};

static const struct text_style style = {
    .helper = helpers,
    .function = "static inline ",
    .math = "",
    .math_end = {"f", ""},
    .infinity = {"INFINITY", "((f64)INFINITY)"},
    .nan = {"NAN", "((f64)NAN)"},
    .index = DT_I32,
    .load = load,
    .load_lanes = load_lanes,
    .store = store,
    .prefetch = prefetch,
    .alloc = alloc,
    .dot = dot,
    .thread = thread,
    .statement = statement,
};

static void preamble(struct buf *out, bool has_math, bool has_words)
{
    static const struct { const char *name, *type; } types[] = {
        {"u8", "uint8_t"}, {"u16", "uint16_t"}, {"u32", "uint32_t"}, {"u64", "uint64_t"}, {"i8", "int8_t"},
        {"i16", "int16_t"}, {"i32", "int32_t"}, {"i64", "int64_t"}, {"f32", "float"}, {"f64", "double"},
    };
    buf_z(out, has_math ? "#include <math.h>\n#include <stdint.h>\n" : "#include <stdint.h>\n");
    if (has_words) buf_z(out, "#include <string.h>\n");
    for (i64 i = 0; i < countof(types); i++) buf_printf(out, "typedef %s %s;\n", types[i].type, types[i].name);
}

static bool check(const struct kir *k, struct err *e)
{
    bool has_threads = kir_threads(k) > 1;
    for (kval v = 1; v < k->ins.n && !has_threads; v++)
        has_threads = kir_at(k, v)->op == KI_TILE || kir_at(k, v)->role || kir_at(k, v)->op == KI_FSTORE ||
                      (kir_is_collective(k, v) && kir_at(k, v)->op != KI_STORE) || kir_at(k, v)->op == KI_SUBGROUP;
    return !has_threads || err_set(e, ERR_UNSUPPORTED, "threads or matrix units in kernel '%.*s'", STR_ARG(k->name));
}

/* Products of neighbours are multiply-adds, unless they are the target's. user: caps */
static bool expands(const void *user, const struct kir *k, kval v)
{
    return kir_at(k, v)->op == KI_MMLA || (kir_at(k, v)->op == KI_DOT && !is_word_dot(k, user, v));
}

static bool print(struct buf *out, const struct kir *in, const struct caps *c, struct err *e)
{
    struct arena arena = {0};
    struct err err = {0};
    struct buf functions = {0};
    struct kir k;
    u32 n = 0;
    if (!check(in, e)) return false;
    if (!kir_lower(&k, &arena, in, expands, c, str_of(c->avoid), e)) {
        arena_release(&arena);
        return false;
    }
    struct words words;
    struct text t = {.style = &style, .caps = c, .arena = &arena, .err = &err, .own = &words};
    text_open(&t, &k);
    find_words(&t, &words);
    for (kval v = 1; v < k.ins.n; v++) {
        if (kir_at(&k, v)->op != KI_GRID) continue;
        grid_function(&t, &functions, n++, v);
        v = text_end(&k, v);
    }
    buf_printf(out, "/* %.*s */\n", STR_ARG(k.name));
    preamble(out, t.has_math, map_get(&t.known, S("q_dot_u8_i8_i32")) != NULL);
    buf_str(out, buf_view(&t.prelude));
    buf_str(out, buf_view(&functions));
    text_close(&t);
    buf_release(&functions);
    arena_release(&arena);
    return err.code == ERR_NONE || err_set(e, err.code, "%s", err.msg);
}

static bool build(struct buf *binary, struct str text, const struct caps *c, double timeout, struct err *e)
{
    buf_str(binary, text);
    return !binary->failed || err_set(e, ERR_SYSTEM, "out of memory");
}

static bool toolchain(struct buf *out, const struct caps *c, struct err *e)
{
    buf_z(out, "C99");
    return !out->failed || err_set(e, ERR_SYSTEM, "out of memory");
}

static struct kir_limits limits(const struct caps *c)
{
    return (struct kir_limits){.max_lanes_bytes = c->vector_bytes ? c->vector_bytes : 16, .max_unroll = 2000};
}

const struct lang lang_c99 = {
    .version = 1,
    .name = "c99",
    .suffix = ".c",
    .print = print,
    .build = build,
    .toolchain = toolchain,
    .limits = limits,
    .shares = true,
    .join_program = c_join,
};
