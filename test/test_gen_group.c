// SPDX-License-Identifier: Apache-2.0
//
// The families by groups of threads on random products and reductions, under random legal schedules, for devices from the smallest
// to large ones, in f32 and f16: the interpreted kernel gives what the reference evaluator gives, without races, divergent barriers
// or accesses outside. Some run on a Vulkan device, where one is present.
#include "gen_tasks.h"

extern const struct gen gen_matrix_gemm; /* its operands have 16 bits */

static void try_family(const char *name, bool (*build)(struct bed *b), u64 n_seeds)
{
    u32 n = 0, n_tasks = 0;
    for (u64 seed = first_seed(0); seed < last_seed(n_seeds); seed++) {
        struct bed b;
        bed_open(&b, seed);
        bed_use_groups(&b);
        b.only = gen_find(str_of(name));
        if (pick(&b, 0, 2) == 0 || b.only == &gen_matrix_gemm) b.type = DT_F16;
        if (build(&b)) n_tasks++, n += try_task(&b, seed, 5);
        bed_close(&b);
    }
    print_message("%u tasks, %u kernels\n", n_tasks, n);
    assert_true(n > n_seeds || getenv("SEED") || getenv("GEN"));
}

static void test_gemm(void **state) { try_family("group_gemm", random_gemm, 50); }
static void test_gemv(void **state) { try_family("group_gemv", random_gemm, 90); }
static void test_matrix(void **state) { try_family("matrix_gemm", random_gemm, 60); }
static void test_row(void **state) { try_family("group_row", random_row, 60); }
static void test_device(void **state)
{
    static const struct { const char *name; bool (*build)(struct bed *); } family[] = {
        {"group_gemm", random_gemm},
        {"group_row", random_row},
        {"group_gemv", random_gemm},
    };
    if (!dev_find(S("vulkan"))->count()) {
        print_message("no Vulkan device is present\n");
        skip();
    }
    for (u64 seed = first_seed(1000); seed < last_seed(1012); seed++) {
        struct bed b;
        bed_open(&b, seed);
        bed_use_groups(&b);
        if (pick(&b, 0, 2) == 0) b.type = DT_F16;
        b.only = gen_find(str_of(family[seed % countof(family)].name));
        if (family[seed % countof(family)].build(&b) && b.only->match(&b.t, &b.caps)) try_device(&b, "vulkan", seed);
        bed_close(&b);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gemm),
        cmocka_unit_test(test_gemv),
        cmocka_unit_test(test_matrix),
        cmocka_unit_test(test_row),
        cmocka_unit_test(test_device),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
