// SPDX-License-Identifier: Apache-2.0
//
// isa.c: instruction sets. A set is a family of processors and extensions of its base, bits of the family's table
// below. The table is the only place that knows extensions: the feature bits of a processor, implied extensions, and
// thereby compiler options. Code is thus never built for "native" but for a list of extensions, which a program records
// and which is compared with the processor before it runs. Names are the compilers' (gcc, clang: -mNAME, armv8-a+NAME).
//
// Sets are closed under implication, by the compilers' rules or because every
// processor has both. Parsing, reading from a processor and restriction preserve that.
#include "core/core.h"

#include <string.h>

enum { STATE_YMM = 0x6, STATE_ZMM = 0xe6, STATE_TILE = 0x60000 }; /* bits of XCR0: registers saved by the system */
enum { STATE_SVE256 = 1 << 2 };                                   /* bit n: SVE's registers have n times 16 bytes */

struct extension {
    const char *name;
    u8 word, bit;        /* of struct os_isa */
    u32 state;           /* bits that os_isa.state must have, too */
    const char *implies; /* names, NULL: none */
    bool is_unused;      /* kernels are never built with it: known for the sake of other programs' lists only */
};

static const struct extension x86_64[] = {
    {"sse3", OS_ISA_1_ECX, 0, 0, NULL, false},
    {"ssse3", OS_ISA_1_ECX, 9, 0, "sse3", false},
    {"sse4.1", OS_ISA_1_ECX, 19, 0, "ssse3", false},
    {"popcnt", OS_ISA_1_ECX, 23, 0, NULL, false},
    {"sse4.2", OS_ISA_1_ECX, 20, 0, "sse4.1 popcnt", false},
    {"sse4a", OS_ISA_EXT_ECX, 6, 0, "sse3", false},
    {"cx16", OS_ISA_1_ECX, 13, 0, NULL, false},
    {"sahf", OS_ISA_EXT_ECX, 0, 0, NULL, false},
    {"movbe", OS_ISA_1_ECX, 22, 0, NULL, false},
    {"lzcnt", OS_ISA_EXT_ECX, 5, 0, NULL, false},
    {"bmi", OS_ISA_7_EBX, 3, 0, NULL, false},
    {"bmi2", OS_ISA_7_EBX, 8, 0, NULL, false},
    {"tbm", OS_ISA_EXT_ECX, 21, 0, NULL, false},
    {"gfni", OS_ISA_7_ECX, 8, 0, NULL, false},
    {"avx", OS_ISA_1_ECX, 28, STATE_YMM, "sse4.2", false},
    {"f16c", OS_ISA_1_ECX, 29, STATE_YMM, "avx", false},
    {"fma", OS_ISA_1_ECX, 12, STATE_YMM, "avx", false},
    {"fma4", OS_ISA_EXT_ECX, 16, STATE_YMM, "avx sse4a", false},
    {"xop", OS_ISA_EXT_ECX, 11, STATE_YMM, "fma4", false},
    {"avx2", OS_ISA_7_EBX, 5, STATE_YMM, "avx", false},
    {"avxvnni", OS_ISA_7_1_EAX, 4, STATE_YMM, "avx2", false},
    {"avxifma", OS_ISA_7_1_EAX, 23, STATE_YMM, "avx2", true},
    {"avxvnniint8", OS_ISA_7_1_EDX, 4, STATE_YMM, "avx2", true},
    {"avxneconvert", OS_ISA_7_1_EDX, 5, STATE_YMM, "avx2", true},
    {"avx512f", OS_ISA_7_EBX, 16, STATE_ZMM, "avx2 fma f16c", false},
    {"avx512cd", OS_ISA_7_EBX, 28, STATE_ZMM, "avx512f", false},
    {"avx512bw", OS_ISA_7_EBX, 30, STATE_ZMM, "avx512f", false},
    {"avx512dq", OS_ISA_7_EBX, 17, STATE_ZMM, "avx512f", false},
    {"avx512vl", OS_ISA_7_EBX, 31, STATE_ZMM, "avx512f", false},
    {"avx512ifma", OS_ISA_7_EBX, 21, STATE_ZMM, "avx512f", false},
    {"avx512vbmi", OS_ISA_7_ECX, 1, STATE_ZMM, "avx512bw", false},
    {"avx512vbmi2", OS_ISA_7_ECX, 6, STATE_ZMM, "avx512bw", false},
    {"avx512vnni", OS_ISA_7_ECX, 11, STATE_ZMM, "avx512f", false},
    {"avx512bitalg", OS_ISA_7_ECX, 12, STATE_ZMM, "avx512bw", false},
    {"avx512vpopcntdq", OS_ISA_7_ECX, 14, STATE_ZMM, "avx512f", false},
    {"avx512bf16", OS_ISA_7_1_EAX, 5, STATE_ZMM, "avx512bw", false},
    {"avx512fp16", OS_ISA_7_EDX, 23, STATE_ZMM, "avx512bw avx512vl avx512dq", true},
    {"amx-tile", OS_ISA_7_EDX, 24, STATE_TILE, NULL, false},
    {"amx-int8", OS_ISA_7_EDX, 25, STATE_TILE, "amx-tile", false},
    {"amx-bf16", OS_ISA_7_EDX, 22, STATE_TILE, "amx-tile", false},
};

static const struct extension aarch64[] = {
    {"crc", OS_ISA_HWCAP, 7, 0, NULL, false},
    {"lse", OS_ISA_HWCAP, 8, 0, NULL, false},
    {"rdma", OS_ISA_HWCAP, 12, 0, "crc lse", false}, /* with them it is Armv8.1 */
    {"fp16", OS_ISA_HWCAP, 10, 0, "rdma", false}, /* asimdhp: implies scalar halves */
    {"dotprod", OS_ISA_HWCAP, 20, 0, "rdma", false},
    {"fp16fml", OS_ISA_HWCAP, 23, 0, "fp16", false},
    {"sve", OS_ISA_HWCAP, 22, 0, "fp16", false},
    {"sve2", OS_ISA_HWCAP2, 1, 0, "sve", false},
    {"sve256", OS_ISA_HWCAP, 22, STATE_SVE256, "sve", false}, /* of exactly that length: code for it is wrong for any other */
    {"i8mm", OS_ISA_HWCAP2, 13, 0, "rdma", false},
    {"bf16", OS_ISA_HWCAP2, 14, 0, "rdma", false},
};

/* Of 32 bits, with registers of floats as arguments (Debian: armhf). FMA and conversions of halves are in its fourth version. */
static const struct extension armv7[] = {
    {"neon", OS_ISA_HWCAP, 12, 0, NULL, false},
    {"neon-vfpv4", OS_ISA_HWCAP, 16, 0, "neon", false},
};

static const struct family {
    const char *name, *march;
    const struct extension *v;
    u32 n;
    const char *lacks; /* names of v that it has not, NULL: none */
} families[N_ISA_FAMILIES] = {
    [ISA_X86_64] = {"x86-64", "-march=x86-64 -mtune=generic", x86_64, countof(x86_64), NULL},
    [ISA_AARCH64] = {"aarch64", "-march=armv8-a", aarch64, countof(aarch64), NULL},
    [ISA_ARMV7] = {"armv7", "-march=armv7-a -mfpu=vfpv3-d16", armv7, countof(armv7), NULL},
    [ISA_RISCV64] = {"riscv64", "-march=rv64gc", NULL, 0, NULL},
    /* Of 32 bits. SSE2 belongs to its base, for x87 would round to other precisions; MMX, which gcc moves vectors of eight bytes with, would
       overwrite x87's registers, in which functions return floats. */
    [ISA_X86] = {"i686", "-m32 -march=i686 -mtune=generic -msse2 -mfpmath=sse -mno-mmx", x86_64, countof(x86_64), "cx16 sahf amx-tile amx-int8 amx-bf16"},
};

/* Extensions that compilers and assemblers accept only with a later version of the architecture, the last one in a
   set counts; extensions included in such a version are not named again, because compilers differ in their names. */
static const struct { enum isa_family family; const char *extension, *march, *has; } versions[] = {
    {ISA_AARCH64, "rdma", "-march=armv8.1-a", "rdma"},
    {ISA_AARCH64, "fp16", "-march=armv8.2-a", "rdma"},
    {ISA_AARCH64, "dotprod", "-march=armv8.2-a", "rdma"},
    {ISA_AARCH64, "i8mm", "-march=armv8.2-a", "rdma"},
    {ISA_AARCH64, "bf16", "-march=armv8.2-a", "rdma"},
    {ISA_ARMV7, "neon", "-march=armv7-a -mfpu=neon", "neon"},
    {ISA_ARMV7, "neon-vfpv4", "-march=armv7-a -mfpu=neon-vfpv4", "neon-vfpv4"},
};

/* Options of their own; the extension's name is no compiler's if it has one instead. */
static const struct { enum isa_family family; const char *extension, *option; bool instead; } options[] = {
    {ISA_X86_64, "avx512f", "-mprefer-vector-width=512", false},
    {ISA_X86, "avx512f", "-mprefer-vector-width=512", false},
    {ISA_AARCH64, "sve256", "-msve-vector-bits=256", true},
};

/* Names of sets that other compilers define, too (of processors without the extensions that no kernel uses); the first of a
   family is its base. A later one contains the earlier ones of its family. */
static const struct { const char *name; enum isa_family family; const char *words; } levels[] = {
    {"x86-64", ISA_X86_64, ""},
    {"x86-64-v2", ISA_X86_64, "cx16 sahf sse4.2"},
    {"x86-64-v3", ISA_X86_64, "cx16 sahf sse4.2 avx2 bmi bmi2 f16c fma lzcnt movbe"},
    {"x86-64-v4", ISA_X86_64, "cx16 sahf sse4.2 avx2 bmi bmi2 f16c fma lzcnt movbe avx512bw avx512cd avx512dq avx512vl"},
    {"sapphirerapids", ISA_X86_64, "cx16 sahf sse4.2 avx2 bmi bmi2 f16c fma lzcnt movbe avx512bw avx512cd avx512dq avx512vl avx512ifma avx512vbmi avx512vbmi2 "
     "avx512vnni avx512bitalg avx512vpopcntdq avx512bf16 avxvnni gfni amx-int8 amx-bf16"},
    {"aarch64", ISA_AARCH64, ""},
    {"armv7", ISA_ARMV7, ""},
    {"riscv64", ISA_RISCV64, ""},
    {"i686", ISA_X86, ""},
};

/* sets */

static bool lacks(const struct family *f, struct str name)
{
    struct str rest = str_of(f->lacks), word;
    while (rest.n) {
        str_cut(rest, ' ', &word, &rest);
        if (str_eq(word, name)) return true;
    }
    return false;
}

/* f->n: it has none of that name. */
static u32 find_extension(const struct family *f, struct str name)
{
    u32 i = 0;
    while (i < f->n && !str_is(name, f->v[i].name)) i++;
    return lacks(f, name) ? f->n : i;
}

/* The extension with all that it implies. */
static u64 closure(const struct family *f, u32 i)
{
    struct str rest = str_of(f->v[i].implies), word;
    u64 has = 1ull << i;
    while (rest.n) {
        str_cut(rest, ' ', &word, &rest);
        u32 k = find_extension(f, word);
        assert(k < f->n);
        has |= closure(f, k);
    }
    return has;
}

static bool cut_word(struct str *rest, struct str *word)
{
    for (*word = (struct str){0}; rest->n && word->n == 0;) {
        i64 n = 0;
        while (n < rest->n && rest->p[n] != ' ' && rest->p[n] != '+') n++;
        *word = str_sub(*rest, 0, n);
        *rest = str_sub(*rest, n + 1, rest->n);
    }
    return word->n > 0;
}

/* Words that are no extensions of the family are collected in unknown, separated by spaces. */
static u64 read_words(const struct family *f, struct str words, struct buf *unknown)
{
    struct str word;
    u64 has = 0;
    while (cut_word(&words, &word)) {
        u32 i = find_extension(f, word);
        if (i < f->n) has |= closure(f, i);
        else buf_printf(unknown, "%s'%.*s'", unknown->n ? ", " : "", STR_ARG(word));
    }
    return has;
}

static struct isa level_set(i64 k)
{
    struct buf none = {0};
    struct isa s = {.family = levels[k].family};
    s.has = read_words(&families[s.family], str_of(levels[k].words), &none);
    assert(none.n == 0);
    return s;
}

const char *isa_level(i64 k) { return k < countof(levels) ? levels[k].name : NULL; }

static i64 find_level(struct str name)
{
    i64 k = 0;
    while (k < countof(levels) && !str_is(name, levels[k].name)) k++;
    return k;
}

static bool no_level(struct str name, struct err *e)
{
    struct buf b = {0};
    for (i64 k = 0; k < countof(levels); k++) buf_printf(&b, "%s%s", k ? ", " : "", levels[k].name);
    err_set(e, ERR_USAGE, "no instruction set '%.*s'; there are: %.*s, each optionally with extensions after '+'", STR_ARG(name), STR_ARG(buf_view(&b)));
    buf_release(&b);
    return false;
}

bool isa_parse(struct isa *s, struct str text, struct err *e)
{
    struct str name;
    struct buf unknown = {0};
    *s = (struct isa){0};
    cut_word(&text, &name);
    i64 k = find_level(name);
    if (k == countof(levels)) return no_level(name, e);
    *s = level_set(k);
    s->has |= read_words(&families[s->family], text, &unknown);
    bool ok = unknown.n == 0;
    if (!ok) err_set(e, ERR_USAGE, "%s has no extension %.*s that this version knows", families[s->family].name, STR_ARG(buf_view(&unknown)));
    buf_release(&unknown);
    return ok;
}

bool isa_contains(struct isa s, struct isa part) { return s.family == part.family && !(part.has & ~s.has); }
bool isa_equal(struct isa s, struct isa t) { return s.family == t.family && s.has == t.has; }
bool isa_is_x86(struct isa s) { return s.family == ISA_X86_64 || s.family == ISA_X86; }
u32 isa_count(struct isa s) { return (u32)__builtin_popcountll(s.has); }

static void put_names(struct buf *b, const struct family *f, u64 has, char sep)
{
    for (u32 i = 0; i < f->n; i++)
        if (has >> i & 1) buf_printf(b, "%c%s", sep, f->v[i].name);
}

void isa_print(struct buf *b, struct isa s, char sep)
{
    i64 best = -1;
    for (i64 k = 0; k < countof(levels); k++)
        if (isa_contains(s, level_set(k))) best = k;
    if (best < 0) return;
    buf_z(b, levels[best].name);
    put_names(b, &families[s.family], s.has & ~level_set(best).has, sep);
}

void isa_print_all(struct buf *b, struct isa s)
{
    if (!s.family) return;
    buf_z(b, families[s.family].name);
    put_names(b, &families[s.family], s.has, ' ');
}

/* target of the code */

struct isa isa_for_code(struct isa s)
{
    const struct family *f = &families[s.family];
    for (u32 i = 0; i < f->n; i++)
        if (f->v[i].is_unused) s.has &= ~(1ull << i);
    return s;
}

static bool has(struct isa s, const char *name)
{
    const struct family *f = &families[s.family];
    u32 i = find_extension(f, str_of(name));
    return i < f->n && s.has >> i & 1;
}

void isa_options(struct buf *b, struct isa s)
{
    const struct family *f = &families[s.family];
    const char *march = f->march;
    u64 named = 0;
    if (!s.family) return;
    s = isa_for_code(s);
    for (i64 i = 0; i < countof(versions); i++) {
        if (versions[i].family != s.family || !has(s, versions[i].extension)) continue;
        march = versions[i].march;
        named = closure(f, find_extension(f, str_of(versions[i].has)));
    }
    buf_z(b, march);
    for (i64 i = 0; i < countof(options); i++)
        if (options[i].family == s.family && options[i].instead) named |= 1ull << find_extension(f, str_of(options[i].extension));
    for (u32 i = 0; i < f->n; i++)
        if ((s.has & ~named) >> i & 1) buf_printf(b, "%s%s", isa_is_x86(s) ? " -m" : "+", f->v[i].name);
    for (i64 i = 0; i < countof(options); i++)
        if (options[i].family == s.family && has(s, options[i].extension)) buf_printf(b, " %s", options[i].option);
}

bool isa_is_option(struct str option)
{
    static const char *const of_arm[] = {"-march=", "-mcpu=", "-mfpu=", "-msve-vector-bits="};
    for (i64 i = 0; i < countof(of_arm); i++)
        if (str_starts(option, str_of(of_arm[i]))) return true;
    const struct family *f = &families[ISA_X86_64];
    return str_starts(option, S("-m")) && find_extension(f, str_sub(option, 2, option.n)) < f->n;
}

/* Vectors, the widest first; extension NULL: the base has them. */
static const struct {
    enum isa_family family;
    const char *extension, *arch;
    u32 vector_bytes, n_vector_regs;
} vectors[] = {
    {ISA_X86_64, "avx512vl", "x86_64-avx512", 64, 32},
    {ISA_X86_64, "avx2", "x86_64-avx2", 32, 16},
    {ISA_X86_64, "avx", "x86_64-avx", 32, 16},
    {ISA_X86_64, NULL, "x86_64-sse2", 16, 16},
    {ISA_AARCH64, "sve256", "aarch64-sve256", 32, 32},
    {ISA_AARCH64, NULL, "aarch64-neon", 16, 32},
    {ISA_ARMV7, "neon", "armv7-neon", 16, 16},
    {ISA_ARMV7, NULL, "armv7", 16, 16},
    {ISA_RISCV64, NULL, "riscv64", 16, 16},
    {ISA_X86, "avx512vl", "i686-avx512", 64, 8},
    {ISA_X86, "avx2", "i686-avx2", 32, 8},
    {ISA_X86, "avx", "i686-avx", 32, 8},
    {ISA_X86, NULL, "i686-sse2", 16, 8},
};

/* Sums of products of neighbours, for vectors of the arch's width, which is named by its end. A processor of another kind is a row here,
   its instruction a helper of language c. */
static const struct {
    const char *arch, *extension, *dot;
    const char *unless; /* has better instructions of these types; NULL: none has */
} dots[] = {
    {"-avx512", "avx512vnni", "u8,i8,i32 i16,i16,i32", NULL},
    {"-avx512", "avx512bf16", "bf16,bf16,f32", NULL},
    {"-avx512", "avx512bw", "i16,i16,i32 u8,i8,i16", "avx512vnni"}, /* a product and a sum: two instructions */
    {"-avx2", "avxvnni", "u8,i8,i32 i16,i16,i32", NULL},
    {"-avx2", "avx2", "i16,i16,i32 u8,i8,i16", "avxvnni"},
    {"aarch64-neon", "dotprod", "u8,i8,i32 i8,i8,i32 u8,u8,i32", NULL}, /* u8,i8: with i8mm one instruction */
    {"aarch64-sve256", "dotprod", "u8,i8,i32 i8,i8,i32 u8,u8,i32", NULL}, /* also narrow vectors, by NEON */
    {"aarch64-sve256", "bf16", "bf16,bf16,f32", NULL},
    {"aarch64-neon", "i8mm", "mmla:u8,i8,i32 mmla:i8,i8,i32 mmla:u8,u8,i32", NULL},
    {"aarch64-neon", "bf16", "bf16,bf16,f32 mmla:bf16,bf16,f32", NULL},
    {"aarch64-neon", "fp16fml", "f16,f16,f32", NULL}, /* exact products: of f16 sums see doc/element-types.md */
};

/* Matrix units: fragments of a thread, beside vectors of 64 bytes (all processors with tiles have these). */
static const struct { const char *extension, *matrix; } matrices[] = {
    {"amx-bf16", "16x16x32:bf16,bf16,f32,f32"},
    {"amx-int8", "16x16x64:u8,i8,i32,i32 16x16x64:i8,i8,i32,i32 16x16x64:i8,u8,i32,i32 16x16x64:u8,u8,i32,i32"},
};

static void set_text(char *to, i64 size, struct str text)
{
    memset(to, 0, (size_t)size);
    if (text.n) memcpy(to, text.p, (size_t)i64_min(size - 1, text.n));
}

void isa_limits(struct caps *c, struct isa s)
{
    struct buf list = {0}, matrix = {0};
    c->isa = isa_for_code(s);
    c->has_fma = isa_is_x86(s) ? has(c->isa, "fma") : s.family == ISA_ARMV7 ? has(c->isa, "neon-vfpv4") : s.family != ISA_NONE;
    set_text(c->arch, sizeof c->arch, S("generic"));
    c->vector_bytes = c->n_vector_regs = 16;
    for (i64 i = countof(vectors) - 1; i >= 0; i--) {
        if (vectors[i].family != s.family || (vectors[i].extension && !has(c->isa, vectors[i].extension))) continue;
        set_text(c->arch, sizeof c->arch, str_of(vectors[i].arch));
        c->vector_bytes = vectors[i].vector_bytes;
        c->n_vector_regs = vectors[i].n_vector_regs;
    }
    for (i64 i = 0; i < countof(dots); i++) {
        bool is_better = !dots[i].unless || !has(c->isa, dots[i].unless);
        if (str_ends(str_of(c->arch), str_of(dots[i].arch)) && has(c->isa, dots[i].extension) && is_better)
            buf_printf(&list, "%s%s", list.n ? " " : "", dots[i].dot);
    }
    for (i64 i = 0; i < countof(matrices) && s.family == ISA_X86_64; i++)
        if (c->vector_bytes == 64 && has(c->isa, matrices[i].extension)) buf_printf(&matrix, "%s%s", matrix.n ? " " : "", matrices[i].matrix);
    set_text(c->dot, sizeof c->dot, buf_view(&list));
    set_text(c->matrix, sizeof c->matrix, buf_view(&matrix));
    buf_release(&list), buf_release(&matrix);
}

/* extensions of a processor */

struct isa isa_of(const struct os_isa *o)
{
    struct isa s = {.family = o->family};
    const struct family *f = &families[o->family];
    u64 said = 0;
    for (u32 i = 0; i < f->n; i++) {
        const struct extension *x = &f->v[i];
        if (o->word[x->word] >> x->bit & 1 && (o->state & x->state) == x->state && !lacks(f, str_of(x->name))) said |= 1ull << i;
    }
    for (u32 i = 0; i < f->n; i++) /* an emulator may omit an implied extension, which code would use */
        if (said >> i & 1 && !(closure(f, i) & ~said)) s.has |= 1ull << i;
    return s;
}

struct isa isa_here(void)
{
    struct os_isa o = {0};
    os_isa(&o);
    return isa_of(&o);
}

static bool needs_tiles(const struct family *f, u64 missing)
{
    u64 tiles = 0;
    for (u32 i = 0; i < f->n; i++)
        if (f->v[i].state == STATE_TILE) tiles |= 1ull << i;
    return missing & tiles;
}

/* Whether processors with code of one run that of the other, too, in a process of its own. */
static bool are_kin(enum isa_family a, enum isa_family b)
{
    static const enum isa_family kin[][2] = {{ISA_X86_64, ISA_X86}, {ISA_AARCH64, ISA_ARMV7}};
    for (i64 i = 0; i < countof(kin); i++)
        if ((kin[i][0] == a && kin[i][1] == b) || (kin[i][0] == b && kin[i][1] == a)) return true;
    return false;
}

bool isa_check(struct str words, struct isa here, struct err *e)
{
    struct buf lacks = {0};
    struct str name;
    cut_word(&words, &name);
    i64 k = find_level(name);
    if (k < countof(levels) && are_kin(levels[k].family, here.family)) {
        const i64 bits = 8 * (i64)sizeof(void *);
        return err_set(e, ERR_UNSUPPORTED, "its code is for processes of %lld bits ('%s'), this one has %lld ('%s'); run it in such a process, or compile the network "
                       "for this one (--isa native, or a list: --isa x86-64-v3,i686)", (long long)(96 - bits), families[levels[k].family].name,
                       (long long)bits, families[here.family].name);
    }
    if (k == countof(levels) || levels[k].family != here.family) {
        return err_set(e, ERR_UNSUPPORTED, "its code is for processors of the kind '%.*s', this one is %s; compile the network for it (--isa native, or a list: "
                       "--isa x86-64-v3,aarch64)", STR_ARG(name), here.family ? families[here.family].name : "unknown");
    }
    const struct family *f = &families[here.family];
    u64 missing = (level_set(k).has | read_words(f, words, &lacks)) & ~here.has;
    /* "'avx2', 'fma'" */
    for (u32 i = 0; i < f->n; i++)
        if (missing >> i & 1) buf_printf(&lacks, "%s'%s'", lacks.n ? ", " : "", f->v[i].name);
    bool ok = lacks.n == 0;
    if (!ok)
        err_set(e, ERR_UNSUPPORTED, "its code needs %.*s, which this processor lacks%s; compile the network for it (--isa native, or a list: --isa "
                "x86-64-v2,x86-64-v3,x86-64-v4)", STR_ARG(buf_view(&lacks)), needs_tiles(f, missing) ? " or the system does not let this process use" : "");
    buf_release(&lacks);
    return ok;
}
