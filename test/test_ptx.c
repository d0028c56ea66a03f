// SPDX-License-Identifier: Apache-2.0
//
// Language ptx on kernels of all families: random tasks under the default and random legal schedules for described
// devices, of all element types. Every register is written before it is read, on every path; where NVIDIA's assembler
// is installed it accepts the text. (Random kernels over all operators: test_gpu.c.)
#include "gen_kinds.h"
#include "ptx_check.h"

static bool has_assembler(const char **why)
{
    static struct err e;
    struct buf b = {0};
    bool ok = lang_find(S("ptx"))->toolchain(&b, NULL, &e);
    if (!ok) *why = e.msg;
    buf_release(&b);
    return ok;
}

static bool bytes(struct fixture *b) { return random_bytes(b); }
static bool outer(struct fixture *b) { return random_filter(b, true); }
static bool filter(struct fixture *b) { return random_filter(b, false); }
static bool three(struct fixture *b) { return random_conv_like(b, true); }
static bool halves(struct fixture *b)
{
    b->type = pick(b, 0, 1) ? DT_F16 : DT_BF16;
    return random_large(b);
}

static bool (*const kinds[])(struct fixture *b) = {
    random_conv, three, random_point, random_depthwise, random_pool, random_transpose, random_grad, random_gemm, random_row, random_chain,
    filter, outer, bytes, random_conv_bytes, halves, halves, halves,
};
static const char *const arches[] = {"sm_75", "sm_80", "sm_86", "sm_90", "sm_90a"};

struct count { u32 n, built, refused, mma, wgmma, tiles, copies; };

/* A kernel that the target cannot run at all is refused by both languages. */
static void try_kernel(struct fixture *b, const struct candidate *c, u64 seed, bool builds, struct count *count)
{
    const struct lang *ptx = lang_find(S("ptx"));
    struct kernel k;
    struct buf text = {0}, cuda = {0}, binary = {0};
    struct err e = {0};
    if (!gen_kernel(&k, &b->arena, c, &b->t, &b->caps, &b->e)) report(b, c, seed);
    bool ok = lang_render(&text, ptx, &k.kir, &b->caps, &b->arena, &b->e);
    if (!ok && !lang_render(&cuda, lang_find(S("cuda")), &k.kir, &b->caps, &b->arena, &e)) {
        count->refused++;
    } else {
        const char *wrong = ok ? ptx_check(buf_view(&text), &b->arena) : NULL;
        if (ok && os_env("QUERN_TEST_KEEP")) os_write(os_env("QUERN_TEST_KEEP"), text.p, text.n, &e);
        if (wrong) ok = err_set(&b->e, ERR_FAILED, "%s", wrong);
        if (ok && builds) ok = ptx->build(&binary, buf_view(&text), &b->caps, 120, &b->e), count->built++;
        if (!ok) report(b, c, seed);
        count->mma += strstr(text.p, "\tmma.sync") != NULL;
        count->wgmma += strstr(text.p, "\twgmma.mma_async") != NULL;
        count->tiles += strstr(text.p, "\tcp.async.bulk.tensor") != NULL;
        count->copies += strstr(text.p, "\tcp.async.ca") != NULL;
        count->n++;
    }
    buf_release(&text);
    buf_release(&cuda);
    buf_release(&binary);
}

static void print_count(const struct count *c, const char *why_not)
{
    print_message("%u kernels, %u with mma, %u wgmma, %u tiles, %u copies; %u built%s%s\n", c->n, c->mma, c->wgmma, c->tiles, c->copies, c->built,
                  why_not ? ": " : "", why_not ? why_not : "");
}

static void families_are_emitted(void **state)
{
    const char *why = "";
    bool builds = has_assembler(&why);
    struct count count = {0};
    for (u64 seed = first_seed(0, 100); seed < last_seed(0, 100); seed++) {
        static const enum dtype types[] = {DT_F32, DT_F32, DT_F32, DT_F16, DT_BF16};
        struct fixture b;
        struct candidate c;
        fixture_open(&b, seed);
        assert_true(dev_target(&b.caps, "cuda", str_of(arches[pick(&b, 0, countof(arches) - 1)])));
        b.type = types[pick(&b, 0, countof(types) - 1)];
        b.tf32 = b.type == DT_F32 && pick(&b, 0, 1);
        b.gives_weights = pick(&b, 0, 3) == 0;
        if (kinds[seed % countof(kinds)](&b))
            for (u32 i = 0; i < 4 && choose(&b, i, &c); i++) try_kernel(&b, &c, seed, builds && i % 2 == 0, &count);
        fixture_close(&b);
    }
    print_count(&count, builds ? NULL : why);
    assert_int_equal(count.refused, 0);
    assert_true(is_enough(count.n, 150) && is_enough(count.mma, 10) && is_enough(count.copies, 5));
}

/* With tile copies if they are legal. */
static bool choose_boxed(struct fixture *b, u32 i, struct candidate *c)
{
    if (!choose(b, i, c)) return false;
    struct candidate boxed = *c;
    if (c->gen == b->only) set_value(&boxed, "tma", 1);
    if (gen_legal(&boxed, &b->t, &b->caps)) *c = boxed;
    return true;
}

/* Matmuls of warpgroups and tile copies. */
static void warpgroups_are_emitted(void **state)
{
    const char *why = "";
    bool builds = has_assembler(&why);
    struct count count = {0};
    for (u64 seed = first_seed(0, 20); seed < last_seed(0, 20); seed++) {
        struct fixture b;
        struct candidate c;
        fixture_open_wgmma(&b, seed);
        if (random_large(&b))
            for (u32 i = 0; i < 4 && choose_boxed(&b, i, &c); i++)
                if (c.gen == b.only) try_kernel(&b, &c, seed, builds && i % 2 == 0, &count);
        fixture_close(&b);
    }
    print_count(&count, builds ? NULL : why);
    assert_int_equal(count.refused, 0);
    assert_int_equal(count.wgmma, count.n);
    assert_true(is_enough(count.n, 30));
}

/* A driver of cuda runs both languages, by the environment; no other driver is concerned. */
static void language_is_chosen(void **state)
{
    static const struct { const char *variable, *driver, *lang; } p[] = {
        {NULL, "cuda", "cuda"}, {"cuda", "cuda", "cuda"}, {"ptx", "cuda", "ptx"}, {"ptx", "c", "c"}, {"ptx", "spirv", "spirv"},
        {"c", "cuda", NULL}, {"nonsense", "cuda", NULL}, {"", "cuda", NULL}, {NULL, "nonsense", NULL},
    };
    for (i64 i = 0; i < countof(p); i++) {
        struct err e = {0};
        if (p[i].variable) setenv("QUERN_CUDA_LANGUAGE", p[i].variable, 1);
        else unsetenv("QUERN_CUDA_LANGUAGE");
        const struct lang *l = lang_for(str_of(p[i].driver), &e);
        if (p[i].lang) assert_string_equal(l->name, p[i].lang);
        else assert_true(!l && e.code && strstr(e.msg, p[i].variable ? p[i].variable : p[i].driver));
        if (l) assert_string_equal(lang_runs_as(l), p[i].driver);
    }
    unsetenv("QUERN_CUDA_LANGUAGE");
}

/* The check finds registers that are read unwritten after a branch, in a loop, and after a list. */
static void check_can_fail(void **state)
{
    static const struct { const char *text; bool is_right; } p[] = {
        {"{\n\tmov.b32 %r0, 1;\n\t@!%p0 bra L0;\n\tret;\nL0:\n}\n", false},
        {"{\n\tsetp.eq.s32 %p0, 1, 2;\n\t@!%p0 bra L0;\n\tadd.s32 %r0, 1, 2;\nL0:\n\tadd.s32 %r1, %r0, 1;\n}\n", false},
        {"{\n\tsetp.eq.s32 %p0, 1, 2;\n\t@!%p0 bra L0;\n\tmov.b32 %r0, 1;\n\tbra L1;\nL0:\n\tmov.b32 %r0, 2;\nL1:\n\tadd.s32 %r1, %r0, 1;\n}\n", true},
        {"{\n\tmov.b32 %r0, 0;\nL0:\n\tsetp.eq.s32 %p0, %r0, 2;\n\tadd.s32 %r0, %r0, 1;\n\t@%p0 bra L0;\n}\n", true},
        {"{\nL0:\n\tadd.s32 %r1, %r2, 1;\n\tadd.s32 %r2, 1, 0;\n\tbra L0;\n}\n", false},
        {"{\n\tmov.u32 %r4, %tid.x;\n\tld.shared.v2.b32 {%r0, %r1}, [%r4+16];\n\tst.global.v2.b32 [%r4+0], {%r0, %r1};\n}\n", true},
        {"{\n\tmov.u32 %r4, %tid.x;\n\tld.shared.v2.b32 {%r0, %r1}, [%r4+16];\n\tst.global.v2.b32 [%r4+0], {%r0, %r2};\n}\n", false},
    };
    for (i64 i = 0; i < countof(p); i++) {
        struct arena a = {0};
        const char *wrong = ptx_check(str_of(p[i].text), &a);
        if ((wrong == NULL) != p[i].is_right) fail_msg("%lld: %s", (long long)i, wrong ? wrong : "no error found");
        arena_release(&a);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(check_can_fail),
        cmocka_unit_test(language_is_chosen),
        cmocka_unit_test(families_are_emitted),
        cmocka_unit_test(warpgroups_are_emitted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
