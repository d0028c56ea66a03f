// SPDX-License-Identifier: Apache-2.0
//
// Joined texts of languages cuda and hip: each preprocesses to the same tokens as alone, and with a
// compiler all functions are in the program.
#include "lang_fixture.h"

static bool has_toolchain(const char *lang)
{
    struct buf b = {0};
    struct err e = {0};
    bool ok = lang_find(str_of(lang))->toolchain(&b, NULL, &e);
    if (!ok) print_message("skipped: %s: %s\n", lang, e.msg);
    buf_release(&b);
    return ok;
}

static struct caps caps_of(const char *arch)
{
    struct caps c = {.is_gpu = true, .has_f64 = true, .has_i64 = true, .max_group = 1024, .shared_bytes = 64 << 10};
    snprintf(c.arch, sizeof c.arch, "%s", arch);
    return c;
}

static void parse(struct run *r, const char *text)
{
    struct err e = {0};
    if (!kir_parse(&r->kir, &r->arena, str_of(text), &e)) fail_msg("%s\n%s", e.msg, text);
}

static u64 seed(void) { return seeds_env("SEED", 4000); }

static bool has_symbol(const struct buf *b, const char *name)
{
    i64 n = (i64)strlen(name) + 1;
    for (i64 i = 0; i + n <= b->n; i++)
        if (memcmp(b->p + i, name, (size_t)n) == 0) return true;
    return false;
}

/* Without white space, which preprocessors may change. Uses the C preprocessor, which is available
   without a C++ compiler. */
static struct str preprocess(struct arena *a, struct str text)
{
    struct err e = {0};
    struct buf said = {0}, out = {0};
    struct str dir;
    assert_true(os_temp_dir(a, &dir, &e));
    const char *file = str_fmt(a, "%.*s/k.c", STR_ARG(dir)).p;
    assert_true(os_write(file, text.p, text.n, &e));
    struct os_status s = os_run(&(struct os_proc_opts){.argv = (const char *const[]){"cc", "-E", "-P", "-w", file, NULL}, .timeout = 60, .out = &said});
    assert_true(s.how == OS_EXITED && s.code == 0);
    for (i64 i = 0; i < said.n; i++)
        if (said.p[i] > ' ') buf_char(&out, said.p[i]);
    struct str result = str_dup(a, buf_view(&out));
    os_remove_tree(dir.p);
    buf_release(&said);
    buf_release(&out);
    return result;
}

/* Macros differ with the size of subgroups, and are there for copies. */
static const char ahead[] =
    "kernel ahead(x: in %s, y: out %s; p0 = \"n\")\ngroup 32 1 1\ngrid %%1 = p0\n  shared %%2: %s[256]\n  %%3 = thread 0\n"
    "  %%4 = mul %%3, %d\n  %%5 = mul %%1, 256\n  %%6 = add %%5, %%4\n  %%7: i64x%d = ramp %%6, 1\n  %%8: i64x%d = ramp %%4, 1\n"
    "  %%9 = sub p0, %%3\n  %%10: %sx%d = load x[%%7]%s\n  copy %%2[%%8] = %%10\n  await 0\n  barrier\n"
    "  %%11: %sx%d = load %%2[%%8]\n  store y[%%7] = %%11\nend\n";
static const char across[] = "kernel across%d(x: in f32, y: out f32)\ngroup %d 1 1\ngrid %%1 = 1\n  %%2 = thread 0\n"
                             "  %%3: f32 = load x[%%2]\n  %%4: f32 = sgadd %%3\n  store y[%%2] = %%4\nend\n";

enum { COUNT = 8 };

struct joined { /* texts, and all of them in one */
    struct arena arena;
    struct run r[COUNT];
    struct str text[COUNT];
    struct caps caps;
    struct buf all;
};

static void join(struct joined *j, const char *lang, const char *arch, u64 first)
{
    struct err e = {0};
    *j = (struct joined){.caps = caps_of(arch)};
    for (u32 i = 0; i < COUNT; i++) {
        struct rng g = rng_seed(first + i);
        struct buf one = {0};
        if (i % 4 == 0) parse(&j->r[i], str_fmt(&j->arena, across, i, i ? 32 : 8).p);
        else if (i == 2) parse(&j->r[i], str_fmt(&j->arena, ahead, "f32", "f32", "f32", 4, 4, 4, "f32", 4, "", "f32", 4).p);
        else random_kernel(&j->r[i], &g);
        j->r[i].kir.name = str_fmt(&j->arena, "part%u", i);
        if (!lang_render(&one, lang_find(str_of(lang)), &j->r[i].kir, &j->caps, &j->arena, &e)) fail_msg("%s", e.msg);
        j->text[i] = str_dup(&j->arena, buf_view(&one));
        buf_release(&one);
    }
    lang_find(str_of(lang))->join(&j->all, j->text, COUNT);
}

static void joined_release(struct joined *j)
{
    buf_release(&j->all);
    for (u32 i = 0; i < COUNT; i++) arena_release(&j->r[i].arena);
    arena_release(&j->arena);
}

static void check_joined(const char *lang, const char *arch, u64 first)
{
    struct joined j;
    struct buf alone = {0};
    join(&j, lang, arch, first);
    for (u32 i = 0; i < COUNT; i++) {
        struct str plain = preprocess(&j.arena, j.text[i]);
        buf_printf(&alone, "namespacejoined_%u{%.*s}", i, STR_ARG(plain));
    }
    assert_true(str_eq(preprocess(&j.arena, buf_view(&j.all)), buf_view(&alone)));
    buf_release(&alone);
    joined_release(&j);
}

/* All functions are in the program. */
static void build_joined(const char *lang, const char *arch, u64 first)
{
    struct joined j;
    struct buf binary = {0};
    struct err e = {0};
    join(&j, lang, arch, first);
    if (!lang_find(str_of(lang))->build(&binary, buf_view(&j.all), &j.caps, 120, &e)) fail_msg("%s", e.msg);
    for (u32 i = 0; i < COUNT; i++) assert_true(has_symbol(&binary, str_fmt(&j.arena, "part%u_0_info", i).p));
    buf_release(&binary);
    joined_release(&j);
}

static void joined_texts_mean_the_same(void **state)
{
    check_joined("cuda", "sm_75", seed());
    check_joined("cuda", "sm_80", seed() + 100);
    check_joined("hip", "gfx90a", seed() + 200);
}

static void cuda_builds(void **state)
{
    if (!has_toolchain("cuda")) skip();
    build_joined("cuda", "sm_75", seed());
    build_joined("cuda", "sm_80", seed() + 100);
}

static void hip_builds(void **state)
{
    if (!has_toolchain("hip")) skip();
    build_joined("hip", "gfx90a", seed() + 200);
}

/* A macro of one text may be a variable of the next. */
static void macros_end(void **state)
{
    static const char *const lang[] = {"cuda", "hip"};
    const struct str text[] = {S("#define R(x) x\n#define ONE \\\n  1\nint a = R(ONE);\n"), S("int R, ONE;\n"), S("#define R 2\nint b = R;\n")};
    for (i64 i = 0; i < countof(lang); i++) {
        struct arena a = {0};
        struct buf all = {0};
        lang_find(str_of(lang[i]))->join(&all, text, countof(text));
        assert_true(str_eq(preprocess(&a, buf_view(&all)), S("namespacejoined_0{inta=1;}namespacejoined_1{intR,ONE;}namespacejoined_2{intb=2;}")));
        buf_release(&all);
        arena_release(&a);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(joined_texts_mean_the_same),
        cmocka_unit_test(cuda_builds),
        cmocka_unit_test(hip_builds),
        cmocka_unit_test(macros_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
