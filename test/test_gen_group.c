// SPDX-License-Identifier: Apache-2.0
//
// The families by groups of threads on random products and reductions, under random legal schedules, for devices from the smallest
// to large ones, in f32 and f16: the interpreted kernel gives what the reference evaluator gives, without races, divergent barriers
// or accesses outside. Some run on a Vulkan device, where one is present.
#include "gen_tasks.h"
#include "vulkan_bed.h"

extern const struct gen gen_matrix_gemm; /* its operands have 16 bits */

static void try_family(const char *name, bool (*build)(struct bed *b), u64 n_seeds)
{
    u32 n = 0, n_tasks = 0;
    for (u64 seed = first_seed(0); seed < last_seed(n_seeds); seed++) {
        struct bed b;
        bed_open(&b, seed);
        bed_use_groups(&b);
        b.only = gen_find(str_of(name));
        if (pick(&b, 0, 2) == 0) b.type = DT_F16;
        else if (b.only == &gen_matrix_gemm) b.type = strstr(b.caps.matrix, "bf16") ? DT_BF16 : DT_F16;
        if (build(&b)) n_tasks++, n += try_task(&b, seed, 5);
        bed_close(&b);
    }
    print_message("%u tasks, %u kernels\n", n_tasks, n);
    assert_true(n > n_seeds || getenv("SEED") || getenv("GEN"));
}

static void test_gemm(void **state) { try_family("group_gemm", random_gemm, 50); }
static void test_gemv(void **state) { try_family("group_gemv", random_gemm, 90); }
static void test_matrix(void **state) { try_family("matrix_gemm", random_gemm, 60); }
static void test_row(void **state) { try_family("group_row", random_row, 100); }
/* Instances of all operators, of all types, that one of the families takes. */
static void test_operators(void **state)
{
    static const char *const family[] = {"group_gemm", "group_gemv", "group_row"};
    u32 n = 0;
    for (u64 seed = first_seed(0); seed < last_seed(6); seed++)
        for (i64 i = 0; op_all(i); i++) {
            struct bed b;
            if (!op_all(i)->random) continue;
            bed_open(&b, seed * 1000 + (u64)i);
            bed_use_groups(&b);
            op_all(i)->random(op_all(i), &b.g, &b.rng);
            bool made = make_task(&b);
            for (u32 f = 0; made && f < countof(family); f++) {
                b.only = gen_find(str_of(family[f]));
                n += try_task(&b, seed, 2);
            }
            bed_close(&b);
        }
    print_message("%u kernels\n", n);
    assert_true(n > 100 || getenv("SEED") || getenv("GEN"));
}

/* What is chosen without measurements on a large device with matrix units. */
static void expect_default(const char *name, enum dtype t, const char *op, const i64 *a, const i64 *w)
{
    struct bed b;
    struct candidate c;
    sym dim[2];
    bed_open(&b, 1);
    b.type = t;
    assert_true(caps_parse(&b.caps, S("arch=test is_gpu=1 vector_bytes=16 max_group=1024 subgroup=32 subgroup_min=32 "
                                      "subgroup_max=32 shared_bytes=49152 has_subgroup=1 has_f16=1 gflops=60000 gbps=4000 "
                                      "matrix=\"16x16x16:f16,f16,f16,f16 16x16x16:f16,f16,f32,f32\""), &b.e));
    for (u32 i = 0; i < 2; i++) dim[i] = sym_const(&b.sym, a[i]);
    value_id x = add_input(&b, "a", 2, dim), y = 0;
    for (u32 i = 0; w && i < 2; i++) dim[i] = sym_const(&b.sym, w[i]);
    if (w) y = add_input(&b, "b", 2, dim);
    *arr_push(&b.arena, &b.g.output) = add_op(&b, op, x, y, 0);
    assert_true(make_task(&b) && gen_default(&b.t, &b.caps, NULL, &c));
    assert_string_equal(c.gen->name, name);
    if (c.gen == &gen_matrix_gemm) assert_int_equal(c.sched.v[3], 32); /* long sums, unless short ones were measured */
    bed_close(&b);
}

static void test_choice(void **state)
{
    const i64 square[] = {2048, 2048}, line[] = {1, 2048}, column[] = {2048, 1}, rows[] = {512, 1000};
    expect_default("matrix_gemm", DT_F16, "MatMul", square, square);
    expect_default("group_gemm", DT_F32, "MatMul", square, square);
    expect_default("group_gemv", DT_F16, "MatMul", line, square);
    expect_default("group_gemv", DT_F32, "MatMul", square, column);
    expect_default("group_row", DT_F32, "Softmax", rows, NULL);
}

struct shares { const struct gen *gen[32]; i64 n[32]; u32 count; };

static bool count_one(void *user, const struct candidate *c)
{
    struct shares *x = user;
    u32 i = 0;
    while (i < x->count && x->gen[i] != c->gen) i++;
    if (i == x->count) x->gen[x->count++] = c->gen;
    x->n[i]++;
    return true;
}

/* A search looks at so many schedules of each family: however large a space, that gives it a choice of legal ones. */
static void test_space(void **state)
{
    enum { LOOKED_AT = 40000 };
    for (u64 seed = first_seed(0); seed < last_seed(12); seed++) {
        struct bed b;
        struct shares x = {0};
        sym dim[2];
        bed_open(&b, seed);
        bed_use_groups(&b);
        b.type = DT_F16;
        dim[0] = dim[1] = sym_const(&b.sym, 4096);
        value_id v = add_input(&b, "a", 2, dim), w = add_input(&b, "b", 2, dim);
        *arr_push(&b.arena, &b.g.output) = add_op(&b, "MatMul", v, w, 0);
        assert_true(make_task(&b));
        gen_scatter(&b.t, &b.caps, LOOKED_AT, seed, count_one, &x);
        for (u32 i = 0; i < x.count; i++)
            if (x.gen[i] == gen_find(S("group_gemm")) || x.gen[i] == &gen_matrix_gemm) assert_in_range(x.n[i], 50, LOOKED_AT);
        bed_close(&b);
    }
}

static void test_device(void **state)
{
    static const struct { const char *name; bool (*build)(struct bed *); } family[] = {
        {"group_gemm", random_gemm},
        {"group_row", random_row},
        {"group_gemv", random_gemm},
    };
    struct gpus g = find_gpus();
    for (u64 seed = first_seed(1000); seed < last_seed(1012); seed++) {
        struct bed b;
        bed_open(&b, seed);
        bed_use_groups(&b);
        if (pick(&b, 0, 2) == 0) b.type = DT_F16;
        b.only = gen_find(str_of(family[seed % countof(family)].name));
        if (family[seed % countof(family)].build(&b)) try_gpu(&b, &g, seed);
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
        cmocka_unit_test(test_operators),
        cmocka_unit_test(test_choice),
        cmocka_unit_test(test_space),
        cmocka_unit_test(test_device),
    };
    vulkan_stay_loaded();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
