// SPDX-License-Identifier: Apache-2.0
//
// Matmuls whose right operand's terms are neighbours in memory, as run-time weights (n, k) of linear layers: read in place by vectors of terms, or packed
// in squares. Random sizes, known or not, types, batches and prologues under random legal schedules, against the reference evaluator: interpreted for targets
// with and without DOT instructions, and compiled for this processor.
#include "gen_kinds.h"

extern const struct gen gen_gemm;

static void open_linear(struct fixture *b, u64 seed)
{
    static const enum dtype types[] = {DT_F32, DT_F32, DT_F64, DT_BF16, DT_F16};
    static const char dots[] = "bf16,bf16,f32 f16,f16,f32";
    fixture_open(b, seed);
    b->type = types[seed % 5], b->caps.n_vector_regs = 16u << seed % 2;
    if (seed % 3) memcpy(b->caps.dot, dots, sizeof dots);
    b->only = &gen_gemm;
}

static void test_interpreted(void **state)
{
    u32 n = 0;
    for (u64 seed = first_seed(0, 100); seed < last_seed(0, 100); seed++) {
        struct fixture b;
        open_linear(&b, seed);
        if (random_linear(&b)) n += try_task(&b, seed, 12);
        fixture_close(&b);
    }
    assert_true(is_enough(n, 200));
}

/* Of 16 and, where it has them, of 32 vector registers. */
static void test_compiled(void **state)
{
    struct isa avx2;
    assert_true(isa_parse(&avx2, S("x86-64-v3"), NULL));
    for (u64 seed = first_seed(0, 20); seed < last_seed(0, 20); seed++) {
        struct fixture b;
        struct dev_opts o = {.n_threads = 1};
        open_linear(&b, seed);
        assert_true(dev_ask(dev_find(S("cpu")), &o, &b.caps, NULL, &b.e));
        if (random_linear(&b)) try_limited(&b, "cpu", isa_contains(b.caps.isa, avx2) && seed / 5 % 2 ? S("isa=x86-64-v3") : (struct str){0}, seed);
        fixture_close(&b);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_interpreted), cmocka_unit_test(test_compiled)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
