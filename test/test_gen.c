// SPDX-License-Identifier: Apache-2.0
//
// Every generator on random tasks under random legal schedules: the interpreted kernel gives what the reference evaluator
// gives, and touches nothing it must not. Tasks are random instances of all operators, and convolutions, matrix products and
// reductions with things fused in front and behind, sizes known or symbolic, in all layouts. Some are compiled and run, too.
#include "gen_tasks.h"

/* Random instances of every operator. */
static void test_operators(void **state)
{
    for (u64 seed = first_seed(0); seed < last_seed(3); seed++)
        for (i64 i = 0; op_all(i); i++) {
            struct bed b;
            bed_open(&b, seed * 1000 + (u64)i);
            if (getenv("OP") && strcmp(getenv("OP"), op_all(i)->name)) continue;
            if (!op_all(i)->random) continue;
            op_all(i)->random(op_all(i), &b.g, &b.rng);
            if (make_task(&b)) try_task(&b, seed, 3); /* what cannot be expanded fails in the operators' own tests */
            bed_close(&b);
        }
}

static void test_conv(void **state)
{
    u32 n = 0;
    for (u64 seed = first_seed(0); seed < last_seed(120); seed++) {
        struct bed b;
        bed_open(&b, seed);
        if (random_conv(&b)) n += try_task(&b, seed, 6);
        bed_close(&b);
    }
    assert_true(n > 0);
}

static void test_gemm(void **state)
{
    u32 n = 0;
    for (u64 seed = first_seed(0); seed < last_seed(150); seed++) {
        struct bed b;
        bed_open(&b, seed);
        if (random_gemm(&b)) n += try_task(&b, seed, 6);
        bed_close(&b);
    }
    assert_true(n > 0);
}

static void test_row(void **state)
{
    u32 n = 0;
    for (u64 seed = first_seed(0); seed < last_seed(120); seed++) {
        struct bed b;
        bed_open(&b, seed);
        if (random_row(&b)) n += try_task(&b, seed, 5);
        bed_close(&b);
    }
    assert_true(n > 0);
}

/* Compiled for this processor, in a child process, with guard bands. */
static bool no_sample(void *user, const struct sample *s, u32 n) { return false; }

static void run_compiled(struct bed *b, u64 seed)
{
    const struct lang *l = lang_find(S("c"));
    struct trial_opts o = {.driver = dev_find(S("cpu")), .dev = {.n_threads = 2}, .timeout = 20, .max_samples = 1};
    struct subject s = {0};
    struct check k;
    struct candidate c;
    struct buf text = {0}, bin = {0}, why = {0};
    struct dev *d = o.driver->open(&o.dev, &b->e);
    assert_non_null(d);
    o.driver->caps(d, &b->caps);
    o.driver->close(d);
    const struct check *checks[] = {&k};
    if (!check_init(&k, &b->t, b->var, seed, true, &b->e)) report(b, NULL, seed);
    if (!gen_random(&b->t, &b->caps, &b->rng, &c)) report(b, NULL, seed);
    k.rtol *= 20, k.atol *= 20;
    bool ok = gen_kernel(&s.kernel, &b->arena, &c, &b->t, &b->caps, &b->e) &&
              lang_render(&text, l, &s.kernel.kir, &b->caps, &b->arena, &b->e) &&
              l->build(&bin, buf_view(&text), &b->caps, 60, &b->e);
    s.code = buf_view(&bin);
    if (ok && trial_run(&s, checks, 1, &k, &o, no_sample, NULL, &why) != TRIAL_OK)
        ok = err_set(&b->e, ERR_FAILED, "%.*s", (int)why.n, why.p);
    if (!ok) report(b, &c, seed);
    buf_release(&text), buf_release(&bin), buf_release(&why);
    check_release(&k);
}

static void test_compiled(void **state)
{
    static bool (*const make[])(struct bed *) = {random_conv, random_gemm, random_row};
    for (u64 seed = first_seed(1000); seed < last_seed(1009); seed++) {
        struct bed b;
        bed_open(&b, seed);
        if (make[seed % 3](&b)) run_compiled(&b, seed);
        bed_close(&b);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_operators),
        cmocka_unit_test(test_conv),
        cmocka_unit_test(test_gemm),
        cmocka_unit_test(test_row),
        cmocka_unit_test(test_compiled),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
