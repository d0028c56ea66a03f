// SPDX-License-Identifier: Apache-2.0
//
// SPIR-V: what a module declares.
#include "core/spirv.h"

#include <setjmp.h>
#include <string.h>
#include <cmocka.h>

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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_declarations),
        cmocka_unit_test(refuses_what_is_no_module),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
