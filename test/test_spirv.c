// SPDX-License-Identifier: Apache-2.0
//
// SPIR-V: what a module declares, and language spirv: modules of random kernels, of every operator and type, and of whole
// operators' kernels are judged by spirv-val.
#include "core/spirv.h"
#include "lang_bed.h"
#include "spirv_tools.h"

static struct str read_module(struct arena *a, const char *path)
{
    struct str s = {0};
    struct err e = {0};
    if (!os_read(a, path, 1 << 20, &s, &e)) fail_msg("%s", e.msg);
    return s;
}

/* A module of another compiler: glslang. */
static void reads_declarations(void **state)
{
    struct arena a = {0};
    struct err e = {0};
    struct spirv_info f;
    struct str m = read_module(&a, "test/corpus/spirv/glsl.spv");
    if (!spirv_read_info(&f, m, &e)) fail_msg("%s", e.msg);
    assert_int_equal(f.version, 15);
    assert_int_equal(f.n_entry, 1);
    assert_true(str_is(f.entry[0].name, "main"));
    assert_int_equal(f.entry[0].local[0], 8);
    assert_int_equal(f.entry[0].local[1], 4);
    assert_int_equal(f.entry[0].local[2], 1);
    assert_int_equal(f.n_set, 1);
    assert_int_equal(f.n_binding, 3);
    assert_int_equal(f.push_bytes, 24);
    assert_int_equal(f.shared_bytes, 100 * 4 + 7 * 16);
    assert_int_equal(f.subgroup, 0);
    assert_true(spirv_has_capability(&f, SPV_CAP_SHADER));
    assert_true(spirv_has_capability(&f, SPV_CAP_SUBGROUP_ARITHMETIC));
    assert_false(spirv_has_capability(&f, SPV_CAP_F64));
    arena_release(&a);
}

static void refuses_what_is_no_module(void **state)
{
    struct arena a = {0};
    struct spirv_info f;
    struct str m = read_module(&a, "test/corpus/spirv/glsl.spv");
    struct str bad[] = {{0}, str_sub(m, 0, 16), str_sub(m, 0, m.n - 1), str_sub(m, 4, m.n)};
    for (i64 i = 0; i < countof(bad); i++) {
        struct err e = {0};
        assert_false(spirv_read_info(&f, bad[i], &e));
        assert_int_equal(e.code, ERR_INPUT);
    }
    arena_release(&a);
}

static void validate(const struct run *r, const struct caps *c, struct str module, const char *what)
{
    struct buf out = {0};
    struct err e = {0};
    struct spirv_info info;
    const char *option[] = {"--target-env", target_env(c), NULL};
    if (!spirv_read_info(&info, module, &e)) fail_with(r, what, &e);
    if (!run_tool("spirv-val", option, module, &out)) {
        if (os_env("QUERN_TEST_KEEP")) os_write(os_env("QUERN_TEST_KEEP"), module.p, module.n, &e);
        err_set(&e, ERR_FAILED, "%s", out.p);
        fail_with(r, what, &e);
    }
    buf_release(&out);
}

static void build_and_validate(struct run *r, const struct caps *c, const char *what)
{
    struct buf binary = {0};
    build_as(r, "spirv", c, &binary);
    validate(r, c, buf_view(&binary), what);
    buf_release(&binary);
}

static i64 n_random(void) { return os_env("QUERN_TEST_N") ? atoi(os_env("QUERN_TEST_N")) : 60; }
static u64 seed(void) { return os_env("QUERN_TEST_SEED") ? (u64)atoll(os_env("QUERN_TEST_SEED")) : 2000; }

static void random_kernels_are_valid(void **state)
{
    struct caps c = gpu_caps();
    for (i64 i = 0; i < n_random(); i++) {
        struct run r = {0};
        struct rng g = rng_seed(seed() + (u64)i);
        char what[64];
        snprintf(what, sizeof what, "kernel %lld", (long long)(seed() + (u64)i));
        random_kernel(&r, &g);
        build_and_validate(&r, &c, what);
        arena_release(&r.arena);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_declarations),
        cmocka_unit_test(refuses_what_is_no_module),
        cmocka_unit_test(random_kernels_are_valid),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
