// SPDX-License-Identifier: Apache-2.0
//
// Matmuls and convolutions with DOT and MMLA instructions: bytes to i32, exactly, and bf16 to f32, of random
// sizes under random legal schedules, against the reference evaluator: interpreted for targets with
// and without such instructions, and compiled for this CPU.
#include "gen_kinds.h"

extern const struct gen gen_gemm, gen_conv_gemm, gen_conv_igemm, gen_conv_blocked, gen_conv_transpose, gen_conv_dw;

static const char shorts[] = "i16,i16,i32 u8,i8,i16";
static const char dots[] = "u8,i8,i32 i16,i16,i32 bf16,bf16,f32 f16,f16,f32";
static const char mmlas[] = "u8,i8,i32 i8,i8,i32 bf16,bf16,f32 f16,f16,f32 mmla:u8,i8,i32 mmla:i8,i8,i32 mmla:bf16,bf16,f32"; /* of vectors of 16 bytes */

static u32 count(const struct kir *k, enum kir_op op)
{
    u32 n = 0;
    for (kval v = 1; v < k->ins.n; v++) n += kir_at(k, v)->op == op;
    return n;
}

/* Any family's kernels of a task, or those of one only; how many of its default ones have such instructions is counted. */
static void check_kind(bool (*make)(struct fixture *), const struct gen *gen, bool only, bool has_mmla, bool is_short)
{
    u32 n_tried = 0, n_dots = 0, n_mmlas = 0;
    for (u64 seed = first_seed(0, 120); seed < last_seed(0, 120); seed++) {
        struct fixture b;
        struct candidate c;
        struct kernel k;
        fixture_open(&b, seed);
        bool has = seed % 4 != 0;
        if (has && b.caps.vector_bytes == 16 && !is_short) memcpy(b.caps.dot, mmlas, sizeof mmlas);
        else if (has && is_short) memcpy(b.caps.dot, shorts, sizeof shorts), b.acc16 = (i64)2 << seed % 3;
        else if (has) memcpy(b.caps.dot, dots, sizeof dots);
        if (only) b.only = gen, b.in_blocks = gen == &gen_conv_blocked;
        if (make(&b)) {
            n_tried += try_task(&b, seed, 5);
            c = (struct candidate){.gen = gen};
            bool fits = gen_takes(gen, &b.t, &b.caps);
            if (fits) c = gen_initial(gen, &b.t, &b.caps, b.var);
            if (fits && gen_kernel(&k, &b.arena, &c, &b.t, &b.caps, &b.e)) {
                u32 dot = count(&k.kir, KI_DOT), mmla = count(&k.kir, KI_MMLA);
                n_dots += dot > 0, n_mmlas += mmla > 0;
                assert_true(has || !(dot + mmla));
            }
        }
        fixture_close(&b);
    }
    print_message("%u kernels, of default ones %u with DOT, %u with MMLA\n", n_tried, n_dots, n_mmlas);
    assert_true(is_enough(n_tried, only ? 20 : 100) && is_enough(n_dots, only ? 4 : 10) && (!has_mmla || is_enough(n_mmlas, only ? 1 : 5)));
}

static void check_tasks(bool (*make)(struct fixture *), const struct gen *gen, bool only, bool has_mmla) { check_kind(make, gen, only, has_mmla, false); }

/* Sums in i16 that reach its bounds, by instructions that saturate beyond. */
static void test_short(void **state)
{
    check_kind(random_bytes, &gen_gemm, true, false, true);
    check_kind(random_conv_bytes, &gen_conv_gemm, true, false, true);
    check_kind(random_conv_bytes, &gen_conv_igemm, true, false, true);
    check_kind(random_conv_bytes, &gen_conv_blocked, true, false, true);
}

static void test_bytes(void **state) { check_tasks(random_bytes, &gen_gemm, false, true); }
static bool random_words(struct fixture *b)
{
    b->has_words = true;
    return random_bytes(b);
}

static bool random_conv_words(struct fixture *b)
{
    b->has_words = true;
    return random_conv_bytes(b);
}

/* Pairs of i16, as of bytes less their zero points. */
static void test_words(void **state)
{
    check_tasks(random_words, &gen_gemm, false, false);
    check_tasks(random_conv_words, &gen_conv_gemm, true, false);
    check_tasks(random_conv_words, &gen_conv_igemm, true, false);
}

static void test_halves(void **state) { check_tasks(random_halves, &gen_gemm, false, true); }
static bool random_f16(struct fixture *b)
{
    b->type = DT_F16;
    return random_gemm(b);
}

static bool random_conv_f16(struct fixture *b)
{
    b->type = DT_F16;
    return random_conv(b);
}

static bool random_transpose_halves(struct fixture *b)
{
    b->type = DT_BF16;
    return random_transpose(b);
}

static void test_f16(void **state)
{
    check_tasks(random_f16, &gen_gemm, true, false);
    check_tasks(random_conv_f16, &gen_conv_gemm, true, false);
}

static void test_conv_bytes(void **state)
{
    check_tasks(random_conv_bytes, &gen_conv_gemm, false, true);
    check_tasks(random_conv_bytes, &gen_conv_igemm, true, true);
    check_tasks(random_conv_bytes, &gen_conv_blocked, true, true);
}
static void test_conv_halves(void **state)
{
    check_tasks(random_conv_halves, &gen_conv_gemm, true, true);
    check_tasks(random_conv_halves, &gen_conv_igemm, true, true);
    check_tasks(random_conv_halves, &gen_conv_blocked, true, true);
    check_tasks(random_transpose_halves, &gen_conv_transpose, true, true);
    check_tasks(random_transpose_halves, &gen_conv_igemm, true, true);
}

static bool random_dw_bytes(struct fixture *b)
{
    b->is_depthwise = true;
    return random_conv_bytes(b);
}

static bool random_dw_words(struct fixture *b)
{
    b->has_words = true;
    return random_dw_bytes(b);
}

/* Depthwise: terms are neighbouring taps. */
static void test_depthwise(void **state)
{
    check_tasks(random_dw_bytes, &gen_conv_dw, true, false);
    check_tasks(random_dw_words, &gen_conv_dw, true, false);
}

/* Compiled for this processor. */
static void test_compiled(void **state)
{
    static bool (*const make[])(struct fixture *) = {random_bytes,       random_conv_bytes, random_halves,   random_conv_halves,
                                                        random_words,       random_conv_words, random_dw_bytes, random_dw_words};
    const u64 n = countof(make);
    static const struct gen *const of_conv[] = {&gen_conv_gemm, &gen_conv_igemm};
    for (u64 seed = first_seed(1000, 1048); seed < last_seed(1000, 1048); seed++) {
        struct fixture b;
        fixture_open(&b, seed);
        if (seed % n >= 6) b.only = &gen_conv_dw;
        else if (seed % n != 1) b.only = seed % 2 ? of_conv[seed / n % 2] : &gen_gemm;
        if (make[seed % n](&b)) try_device(&b, "cpu", seed);
        fixture_close(&b);
    }
}

/* Likewise sums in i16, by the instructions of AVX2. */
static void test_short_compiled(void **state)
{
    static const struct gen *const of_conv[] = {&gen_conv_gemm, &gen_conv_igemm};
    for (u64 seed = first_seed(2000, 2024); seed < last_seed(2000, 2024); seed++) {
        const struct dev_opts o = {.n_threads = 2};
        struct fixture b;
        struct check k;
        struct candidate c;
        fixture_open(&b, seed);
        assert_true(dev_ask(dev_find(S("cpu")), &o, &b.caps, NULL, &b.e));
        if (!caps_limit(&b.caps, S("isa=x86-64-v3"), NULL, &b.e)) skip_test("no AVX2");
        b.acc16 = (i64)2 << seed % 3, b.only = seed % 2 ? of_conv[seed / 2 % 2] : &gen_gemm;
        if (seed % 2 ? random_conv_bytes(&b) : random_bytes(&b)) {
            open_device_check(&b, &k, seed);
            if (!choose(&b, (u32)(seed % 2), &c)) report(&b, NULL, seed);
            if (!verify_on(&b, "cpu", &c, &k)) report(&b, &c, seed);
            check_release(&k);
        }
        fixture_close(&b);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bytes),
        cmocka_unit_test(test_words),
        cmocka_unit_test(test_short),
        cmocka_unit_test(test_short_compiled),
        cmocka_unit_test(test_halves),
        cmocka_unit_test(test_f16),
        cmocka_unit_test(test_conv_bytes),
        cmocka_unit_test(test_conv_halves),
        cmocka_unit_test(test_depthwise),
        cmocka_unit_test(test_compiled),
    };
    select_tests();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
