// SPDX-License-Identifier: Apache-2.0
//
// Instruction sets: their texts, the processor flags of each extension, compiler options. The
// features a compiler uses with the options, by its own macros, never exceed the list that programs
// record.
#include "core/core.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "seeds.h"
#include "skip.h"

static struct isa parsed(const char *text)
{
    struct isa s;
    struct err e = {0};
    if (!isa_parse(&s, str_of(text), &e)) fail_msg("'%s': %s", text, e.msg);
    return s;
}

static bool prints(struct isa s, const char *text)
{
    struct buf b = {0};
    isa_print(&b, s, '+');
    bool same = str_is(buf_view(&b), text);
    if (!same) print_message("%.*s instead of %s\n", STR_ARG(buf_view(&b)), text);
    buf_release(&b);
    return same;
}

static void test_text(void **state)
{
    static const char *const bad[] = {"", "native", "x86", "i686-v3", "i686+amx-tile", "i686 amx-bf16", "x86-64-v5", "x86-64+avx11", "aarch64+avx2", "x86-64-v3+neon", "-wrapper", "x86-64+-wrapper"};
    assert_true(prints(parsed("x86-64"), "x86-64"));
    assert_true(prints(parsed(" x86-64-v3 + gfni "), "x86-64-v3+gfni"));
    assert_true(prints(parsed("x86-64-v3 cx16 avx512vl avx512dq avx512cd avx512bw"), "x86-64-v4"));
    assert_true(prints(parsed("aarch64+sve2"), "aarch64+crc+lse+rdma+fp16+sve+sve2"));
    assert_true(prints(parsed("i686+f16c"), "i686+sse3+ssse3+sse4.1+popcnt+sse4.2+avx+f16c"));
    assert_false(isa_contains(parsed("x86-64-v4"), parsed("i686")) || isa_contains(parsed("i686+avx512vl"), parsed("x86-64")));
    assert_true(isa_contains(parsed("x86-64-v4"), parsed("x86-64-v3")) && isa_contains(parsed("x86-64-v3"), parsed("x86-64-v2")));
    assert_false(isa_contains(parsed("x86-64-v3"), parsed("x86-64-v4")) || isa_contains(parsed("x86-64-v4"), parsed("aarch64")));
    assert_true(isa_contains(parsed("x86-64+avx512bf16"), parsed("x86-64+avx2+fma+f16c")) && isa_contains(parsed("x86-64+xop"), parsed("x86-64+sse4a+fma4")));
    for (i64 i = 0; i < countof(bad); i++) {
        struct isa s;
        struct err e = {0};
        if (isa_parse(&s, str_of(bad[i]), &e)) fail_msg("'%s' is taken", bad[i]);
        assert_true(e.code == ERR_USAGE && e.msg[0]);
    }
    for (i64 k = 0; isa_level(k); k++) assert_true(prints(parsed(isa_level(k)), isa_level(k)));
}

/* A processor by cpuid words: all ones with exceptions. */
static struct isa of_words_in(enum isa_family family, u32 word, u64 without, u64 state)
{
    struct os_isa o = {.family = family, .state = state};
    for (u32 i = 0; i < N_OS_ISA_WORDS; i++) o.word[i] = UINT32_MAX;
    o.word[word] &= ~without;
    return isa_of(&o);
}

static struct isa of_words(u32 word, u64 without, u64 state) { return of_words_in(ISA_X86_64, word, without, state); }

static void test_processor(void **state)
{
    struct isa all = of_words(0, 0, ~0ull);
    assert_true(isa_contains(all, parsed("x86-64-v4+avx512bf16+fma4+xop+amx-int8")));
    /* The system does not save wide registers. */
    assert_true(isa_contains(of_words(0, 0, 0x6), parsed("x86-64-v3")) && !isa_contains(of_words(0, 0, 0x6), parsed("x86-64+avx512f")));
    assert_false(isa_contains(of_words(0, 0, 0x2), parsed("x86-64+avx")));
    assert_true(isa_contains(of_words(0, 0, 0x2), parsed("x86-64-v2")));
    assert_false(isa_contains(of_words(0, 0, 0xe6), parsed("x86-64+amx-tile")));
    /* An extension without its implied ones is absent. */
    assert_false(isa_contains(of_words(OS_ISA_1_ECX, 1 << 12, ~0ull), parsed("x86-64+avx512f"))); /* no fma */
    assert_true(isa_contains(of_words(OS_ISA_1_ECX, 1 << 12, ~0ull), parsed("x86-64+avx2")));
    /* The same processor in a process of 32 bits. */
    struct isa narrow = of_words_in(ISA_X86, 0, 0, ~0ull);
    assert_true(isa_contains(narrow, parsed("i686+avx512vl+avx512vnni+avx512bf16+avxvnni+fma4+gfni")) && isa_count(narrow) + 5 == isa_count(all));
    assert_true(isa_contains(of_words_in(ISA_X86, 0, 0, 0x6), parsed("i686+avx2+fma")));
    assert_false(isa_contains(of_words_in(ISA_X86, 0, 0, 0x2), parsed("i686+avx")));
    struct os_isa arm = {.family = ISA_AARCH64, .word = {1 << 20 | 1 << 8 | 1 << 7 | 1 << 12, 1 << 13}};
    assert_true(isa_equal(isa_of(&arm), parsed("aarch64+dotprod+i8mm")));
    /* Code for one length of SVE's registers is wrong for any other; bit n: n times 16 bytes. */
    struct os_isa sve = {.family = ISA_AARCH64, .word = {1 << 22 | 1 << 10 | 1 << 8 | 1 << 7 | 1 << 12}, .state = 1 << 2};
    assert_true(isa_equal(isa_of(&sve), parsed("aarch64+sve256")));
    for (sve.state = 1; sve.state <= 1 << 16; sve.state *= 2)
        assert_int_equal(isa_contains(isa_of(&sve), parsed("aarch64+sve256")), sve.state == 1 << 2);
    assert_true(isa_contains(isa_of(&sve), parsed("aarch64+sve")));
    struct os_isa armv7 = {.family = ISA_ARMV7, .word = {1 << 12 | 1 << 16}};
    assert_true(isa_equal(isa_of(&armv7), parsed("armv7+neon-vfpv4")));
    armv7.word[0] = 1 << 16; /* of the fourth version, without NEON */
    assert_true(isa_equal(isa_of(&armv7), parsed("armv7")));
}

static bool runs(const char *needed, const char *here, const char *says)
{
    struct buf b = {0};
    struct err e = {0};
    struct isa s;
    if (isa_parse(&s, str_of(needed), &e)) isa_print_all(&b, s);
    else buf_z(&b, needed); /* of a later version */
    e = (struct err){0};
    bool ok = isa_check(buf_view(&b), parsed(here), &e);
    if (ok != !says || (says && (e.code != ERR_UNSUPPORTED || !strstr(e.msg, says)))) fail_msg("%s on %s: %s", needed, here, e.msg);
    buf_release(&b);
    return ok;
}

static void test_check(void **state)
{
    runs("x86-64-v3", "x86-64-v3", NULL);
    runs("x86-64-v3", "x86-64-v4+gfni", NULL);
    runs("x86-64", "x86-64", NULL);
    runs("x86-64-v4", "x86-64-v3", "'avx512f'");
    runs("x86-64-v3+fma4", "x86-64-v4", "'fma4'");
    runs("x86-64-v4+amx-tile", "x86-64-v4", "'amx-tile'");
    runs("x86-64-v4+amx-tile", "x86-64-v4", "the system does not let this process use");
    runs("aarch64", "x86-64-v4", "'aarch64'");
    runs("x86-64 avx11", "x86-64-v4", "'avx11'");
    runs("mips", "x86-64-v4", "'mips'");
    runs("", "x86-64-v4", "''");
    runs("aarch64+sve", "aarch64+dotprod", "'sve'");
    runs("aarch64+sve256", "aarch64+sve", "'sve256'");
    runs("armv7", "aarch64", "'armv7'");
    runs("i686+avx2+fma", "i686+avx512vl", NULL);
    runs("i686+avx512vl", "i686+avx2", "'avx512f'");
    runs("i686 amx-tile", "i686", "'amx-tile'");
    runs("i686", "x86-64-v4", "is for processes of");
    runs("x86-64", "i686", "is for processes of");
    runs("i686", "aarch64", "of the kind 'i686'");
}

/* Macros of extensions; other macros enabled by the options are none of them. */
static const struct { const char *macro, *name; } macros[] = {
    {"__SSE3__", "sse3"}, {"__SSSE3__", "ssse3"}, {"__SSE4_1__", "sse4.1"}, {"__SSE4_2__", "sse4.2"}, {"__POPCNT__", "popcnt"}, {"__CRC32__", "sse4.2"},
    {"__SSE4A__", "sse4a"}, {"__GCC_HAVE_SYNC_COMPARE_AND_SWAP_16", "cx16"}, {"__LAHF_SAHF__", "sahf"}, {"__MOVBE__", "movbe"}, {"__LZCNT__", "lzcnt"},
    {"__ABM__", "lzcnt"}, {"__BMI__", "bmi"}, {"__BMI2__", "bmi2"}, {"__TBM__", "tbm"}, {"__GFNI__", "gfni"}, {"__AVX__", "avx"}, {"__F16C__", "f16c"},
    {"__FMA__", "fma"}, {"__FMA4__", "fma4"}, {"__XOP__", "xop"}, {"__AVX2__", "avx2"}, {"__AVXVNNI__", "avxvnni"}, {"__AVXIFMA__", "avxifma"},
    {"__AVXVNNIINT8__", "avxvnniint8"}, {"__AVXNECONVERT__", "avxneconvert"}, {"__AVX512F__", "avx512f"}, {"__AVX512CD__", "avx512cd"},
    {"__AVX512BW__", "avx512bw"}, {"__AVX512DQ__", "avx512dq"}, {"__AVX512VL__", "avx512vl"}, {"__AVX512IFMA__", "avx512ifma"},
    {"__AVX512VBMI__", "avx512vbmi"}, {"__AVX512VBMI2__", "avx512vbmi2"}, {"__AVX512VNNI__", "avx512vnni"}, {"__AVX512BITALG__", "avx512bitalg"},
    {"__AVX512VPOPCNTDQ__", "avx512vpopcntdq"}, {"__AVX512BF16__", "avx512bf16"}, {"__AVX512FP16__", "avx512fp16"}, {"__AMX_TILE__", "amx-tile"},
    {"__AMX_INT8__", "amx-int8"}, {"__AMX_BF16__", "amx-bf16"}, {"__3dNOW__", "none"}, {"__AES__", "none"}, {"__PCLMUL__", "none"}, {"__SHA__", "none"},
    {"__VAES__", "none"}, {"__VPCLMULQDQ__", "none"}, {"__AVX512ER__", "none"}, {"__AVX512PF__", "none"}, {"__AVX512VP2INTERSECT__", "none"},
    {"__AVX5124FMAPS__", "none"}, {"__AVX5124VNNIW__", "none"}, {"__RTM__", "none"}, {"__ADX__", "none"}, {"__LWP__", "none"}, {"__APX_F__", "none"},
    {"__ARM_FEATURE_ATOMICS", "lse"}, {"__ARM_FEATURE_CRC32", "crc"}, {"__ARM_FEATURE_FP16_VECTOR_ARITHMETIC", "fp16"}, {"__ARM_FEATURE_QRDMX", "rdma"},
    {"__ARM_FEATURE_DOTPROD", "dotprod"}, {"__ARM_FEATURE_FP16_FML", "fp16fml"}, {"__ARM_FEATURE_SVE", "sve"}, {"__ARM_FEATURE_SVE2", "sve2"},
    {"__ARM_FEATURE_MATMUL_INT8", "i8mm"}, {"__ARM_FEATURE_BF16_VECTOR_ARITHMETIC", "bf16"}, {"__ARM_FEATURE_SME", "none"}, {"__ARM_FEATURE_CRYPTO", "none"},
    {"__ARM_NEON", "neon"}, {"__ARM_FEATURE_FMA", "neon-vfpv4"},
};

static bool defines(struct str text, const char *macro)
{
    char line[128];
    snprintf(line, sizeof line, "#define %s ", macro);
    for (struct str word; text.n && str_cut(text, '\n', &word, &text);)
        if (str_starts(word, str_of(line))) return true;
    return false;
}

/* The same by another name: clang's before 16 are "__AMXTILE__" and the like. */
static bool defines_old(struct str text, const char *macro)
{
    char old[64];
    snprintf(old, sizeof old, "__AMX%s", macro + 6);
    return str_starts(str_of(macro), S("__AMX_")) && defines(text, old);
}

static bool has_name(struct str list, const char *name)
{
    for (struct str word; list.n;) {
        str_cut(list, ' ', &word, &list);
        if (str_is(word, name)) return true;
    }
    return false;
}

/* false: there is no such compiler. */
static bool check_compiler(const char *const compiler[3], struct isa s)
{
    const char *argv[96] = {compiler[1], compiler[2], "-dM", "-E", "-x", "c"};
    struct arena a = {0};
    struct buf options = {0}, said = {0}, list = {0};
    struct str rest, word;
    int n = 6;
    isa_options(&options, s);
    isa_print_all(&list, isa_for_code(s));
    for (rest = buf_view(&options); rest.n;) {
        str_cut(rest, ' ', &word, &rest);
        argv[n++] = str_z(&a, word);
    }
    argv[n] = "/dev/null";
    struct os_status st = os_run(&(struct os_proc_opts){.argv = argv, .timeout = 30, .out = &said});
    bool is_there = st.how != OS_NOT_STARTED && !(st.how == OS_EXITED && st.code == 127);
    if (is_there && (st.how != OS_EXITED || st.code)) fail_msg("%s %.*s: %.*s", compiler[1], STR_ARG(buf_view(&options)), STR_ARG(buf_view(&said)));
    for (i64 i = 0; i < countof(macros) && is_there; i++) {
        if (!isa_is_x86(s) && str_starts(str_of(macros[i].macro), S("__GCC_HAVE"))) continue; /* the base of others has them */
        if (s.family == ISA_X86 && strcmp(macros[i].name, "sahf") == 0) continue;
        bool is_of_armv7 = strcmp(macros[i].name, "neon") == 0 || strcmp(macros[i].name, "neon-vfpv4") == 0;
        if (s.family == ISA_AARCH64 && is_of_armv7) continue; /* likewise */
        bool on = defines(buf_view(&said), macros[i].macro) || defines_old(buf_view(&said), macros[i].macro), listed = has_name(buf_view(&list), macros[i].name);
        if (on && !listed) fail_msg("%s %.*s: may use %s, not in %.*s", compiler[1], STR_ARG(buf_view(&options)), macros[i].macro, STR_ARG(buf_view(&list)));
        bool is_macro_reliable = strcmp(macros[i].name, "none") && strcmp(macros[i].macro, "__CRC32__") && strcmp(macros[i].macro, "__ABM__");
        if (listed && !on && is_macro_reliable) fail_msg("%s %.*s: may not use %s", compiler[1], STR_ARG(buf_view(&options)), macros[i].name);
    }
    buf_release(&options), buf_release(&said), buf_release(&list);
    arena_release(&a);
    return is_there;
}

/* Any set of the family. */
static struct isa random_set(struct rng *r, struct isa all)
{
    struct buf b = {0}, some = {0};
    struct str rest, word;
    isa_print_all(&b, all);
    str_cut(buf_view(&b), ' ', &word, &rest);
    buf_str(&some, word);
    i64 share = rng_range(r, 1, 12);
    while (rest.n) {
        str_cut(rest, ' ', &word, &rest);
        if (rng_range(r, 0, share) == 0) buf_printf(&some, " %.*s", STR_ARG(word));
    }
    struct err e = {0};
    struct isa s;
    assert_true(isa_parse(&s, buf_view(&some), &e));
    assert_true(isa_contains(all, s));
    buf_release(&b), buf_release(&some);
    return s;
}

static void test_options(void **state)
{
    static const char *const compilers[][3] = {{"x86-64", "gcc", "-w"}, {"x86-64", "clang", "-w"}, {"aarch64", "aarch64-linux-gnu-gcc", "-w"},
                                               {"aarch64", "clang", "--target=aarch64-linux-gnu"}, {"armv7", "arm-linux-gnueabihf-gcc", "-w"},
                                               {"armv7", "clang", "--target=arm-linux-gnueabihf"}, {"i686", "i686-linux-gnu-gcc", "-w"},
                                               {"i686", "gcc", "-w"}, {"i686", "clang", "--target=i686-linux-gnu"}};
    struct isa all = of_words(0, 0, ~0ull), narrow = of_words_in(ISA_X86, 0, 0, ~0ull), here = isa_here();
    u32 n = 0;
    for (i64 i = 0; i < countof(compilers); i++) {
        struct isa family = parsed(compilers[i][0]), most = parsed("aarch64+lse+fp16fml+rdma+dotprod+sve2+sve256+i8mm+bf16");
        if (family.family == ISA_X86_64) most = all;
        if (family.family == ISA_ARMV7) most = parsed("armv7+neon-vfpv4");
        if (family.family == ISA_X86) most = narrow;
        if (isa_is_x86(family) && strcmp(compilers[i][1], "gcc") == 0 && !isa_is_x86(here)) continue; /* the compiler is for another one */
        for (u64 seed = first_seed(0, 10); seed < last_seed(0, 10); seed++) {
            struct rng r = rng_seed(seed);
            n += check_compiler(compilers[i], random_set(&r, most));
        }
        for (i64 k = 0; isa_level(k); k++)
            if (parsed(isa_level(k)).family == family.family) n += check_compiler(compilers[i], parsed(isa_level(k)));
        if (here.family == family.family) n += check_compiler(compilers[i], here);
    }
    if (n == 0) skip_test("no compiler");
}

/* A description states features of a target, never compiler options. */
static void test_description(void **state)
{
    struct caps c, d;
    struct err e = {0};
    struct buf b = {0};
    assert_true(caps_parse(&c, S("arch=\"x\" vector_bytes=32 isa=\"x86-64-v3 gfni\""), &e));
    assert_true(isa_equal(c.isa, parsed("x86-64-v3+gfni")));
    caps_print(&b, &c);
    assert_true(strstr(b.p, "isa=\"x86-64-v3 gfni\"") && caps_parse(&d, buf_view(&b), &e) && isa_equal(c.isa, d.isa));
    assert_false(caps_parse(&c, S("arch=\"x\" cflags=\"-march=native\""), &e));
    assert_true(strstr(e.msg, "'cflags'") && strstr(e.msg, "quern devices"));
    e = (struct err){0};
    assert_false(caps_parse(&c, S("isa=\"x86-64 -wrapper,/bin/sh\""), &e));
    e = (struct err){0};
    assert_false(caps_parse(&c, S("isa=\"native\""), &e));
    e = (struct err){0};
    assert_true(caps_parse(&c, S("isa=\"x86-64-v4 avx512fp16 avx512vnni\""), &e) && isa_equal(c.isa, parsed("x86-64-v4+avx512vnni"))); /* no kernel uses it */
    buf_release(&b);
}

static void test_limits(void **state)
{
    struct caps c = {.n_threads = 3};
    struct err e = {0};
    bool changed;
    isa_limits(&c, parsed("x86-64-v4+avx512vnni+avxvnni"));
    assert_true(c.vector_bytes == 64 && c.n_vector_regs == 32 && c.has_fma && strcmp(c.arch, "x86_64-avx512") == 0 && strstr(c.dot, "u8,i8,i32"));
    assert_true(caps_limit(&c, S("isa=x86-64-v4+avx512vnni+avxvnni"), &changed, &e) && !changed);
    assert_true(caps_limit(&c, S("isa=x86-64-v3"), &changed, &e) && changed);
    assert_true(c.vector_bytes == 32 && c.n_vector_regs == 16 && c.has_fma && strcmp(c.dot, "i16,i16,i32 u8,i8,i16") == 0 && c.n_threads == 3);
    assert_false(caps_limit(&c, S("isa=x86-64-v4"), &changed, &e));
    isa_limits(&c, parsed("x86-64-v4+amx-bf16"));
    assert_true(strstr(c.matrix, "16x16x32:bf16,bf16,f32,f32") && !strstr(c.matrix, "i8"));
    assert_true(caps_limit(&c, S("deterministic isa=x86-64-v4+amx-tile"), &changed, &e) && changed && !c.matrix[0]); /* nothing that multiplies */
    isa_limits(&c, parsed("x86-64-v3+amx-int8"));
    assert_true(!c.matrix[0]); /* vectors are shorter than rows of tiles */
    isa_limits(&c, parsed("i686+avx512bw+avx512vl+avx512vnni"));
    assert_true(c.vector_bytes == 64 && c.n_vector_regs == 8 && c.has_fma && strcmp(c.arch, "i686-avx512") == 0 && strstr(c.dot, "u8,i8,i32"));
    assert_true(caps_limit(&c, S("isa=i686+avx2"), &changed, &e) && changed && c.vector_bytes == 32 && c.n_vector_regs == 8 && !c.has_fma);
    assert_true(strcmp(c.dot, "i16,i16,i32 u8,i8,i16") == 0);
    isa_limits(&c, parsed("i686"));
    assert_true(c.vector_bytes == 16 && c.n_vector_regs == 8 && !c.has_fma && strcmp(c.arch, "i686-sse2") == 0 && !c.dot[0]);
    isa_limits(&c, parsed("x86-64-v2"));
    assert_true(c.vector_bytes == 16 && !c.has_fma);
    isa_limits(&c, parsed("aarch64+dotprod"));
    assert_true(c.vector_bytes == 16 && c.n_vector_regs == 32 && c.has_fma && strstr(c.dot, "i8,i8,i32"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_text),    cmocka_unit_test(test_processor),   cmocka_unit_test(test_check),
        cmocka_unit_test(test_options), cmocka_unit_test(test_description), cmocka_unit_test(test_limits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
