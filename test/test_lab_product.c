// SPDX-License-Identifier: Apache-2.0
//
// Configurations as kernels: the published names and random points of a space are schedules of the family, come back as the same names, and
// give the right product in the interpreter. Files of results.
#include "gen_bed.h"

#include "lab/lab.h"

static struct caps large_device(void)
{
    return (struct caps){.arch = "test", .vector_bytes = 16, .n_vector_regs = 255, .n_threads = 1, .l1_bytes = 64 << 10,
                         .l2_bytes = 4 << 20, .has_fma = true, .is_gpu = true, .max_group = 1024, .subgroup = 64,
                         .subgroup_min = 32, .subgroup_max = 64, .shared_bytes = 64 << 10, .max_push = 128,
                         .buffer_align = 64, .has_subgroup = true, .has_f16 = true, .has_f64 = true, .has_i8 = true,
                         .has_i16 = true, .has_i64 = true, .gflops = 10000, .gbps = 500};
}

static void expect_name(const struct lab_config *c, const struct lab_config *want)
{
    struct buf a = {0}, b = {0};
    lab_name_print(&a, c);
    lab_name_print(&b, want);
    assert_string_equal(a.p, b.p);
    buf_release(&a);
    buf_release(&b);
}

/* The product of one configuration, right and without races? */
static void try_config(const struct lab_config *c, enum dtype type)
{
    struct arena a = {0};
    struct symtab st;
    struct task t;
    struct candidate x;
    struct lab_config back;
    struct kernel k;
    struct check check;
    struct err e = {0};
    struct caps caps = large_device();
    i64 none = 0;
    symtab_init(&st, &a);
    if (!lab_task(&t, &a, &st, c, type, &e) || !lab_candidate(&x, c, type, &e)) fail_msg("%s", e.msg);
    assert_true(gen_matches(x.gen, &t, &caps));
    assert_true(x.gen->legal(&t, &caps, &x.sched));
    assert_true(lab_config_of(&back, &x, c, type));
    expect_name(&back, c);
    assert_true(check_init(&check, &t, &none, 1, true, &e));
    if (!gen_kernel(&k, &a, &x, &t, &caps, &e) || !interpret(&k, &check, &a, &e)) fail_msg("%s", e.msg);
    assert_int_equal(kir_threads(&k.kir), lab_threads(c));
    check_release(&check);
    arena_release(&a);
}

/* Published names at sizes that keep what their tiles divide: a block and a half, two rounds and a bit. All with EXHAUSTIVE=1. */
static void test_published(void **state)
{
    static const char *const files[] = {"test/corpus/lab_name/registered", "test/corpus/lab_name/winners"};
    struct arena a = {0};
    struct err e = {0};
    i64 step = getenv("EXHAUSTIVE") ? 1 : 7, n = 0;
    for (i64 f = 0; f < countof(files); f++) {
        struct str text, name;
        assert_true(os_read(&a, files[f], 1 << 20, &text, &e));
        while (str_cut(text, '\n', &name, &text)) {
            struct lab_config c;
            struct candidate x;
            assert_true(lab_name_parse(&c, name, &e));
            if (!lab_candidate(&x, &c, DT_F32, &e)) fail_msg("%s", e.msg);
            if (n++ % step) continue;
            c.m = c.v[LF_BM] + 4, c.n = c.v[LF_BN], c.k = 2 * c.v[LF_BK];
            if (c.n_batch) c.batch[0] = 2;
            try_config(&c, DT_F32);
        }
    }
    assert_int_equal(n, 62);
    arena_release(&a);
}

struct points { struct rng r; u32 n; };

static bool try_point(void *user, const struct lab_config *c, i64 number)
{
    static const enum dtype types[] = {DT_F32, DT_F16, DT_BF16};
    struct points *p = user;
    struct lab_config x = *c;
    enum dtype type = types[rng_range(&p->r, 0, 2)];
    struct candidate unused;
    x.m = rng_range(&p->r, 1, 70), x.n = rng_range(&p->r, 2, 70), x.k = rng_range(&p->r, 1, 40);
    x.v[LF_TRANS] = (i32)rng_range(&p->r, 0, 1);
    x.n_batch = (u32)rng_range(&p->r, 0, 2);
    for (u32 i = 0; i < x.n_batch; i++) x.batch[i] = rng_range(&p->r, 1, 2);
    if (lab_candidate(&unused, &x, type, &(struct err){0})) try_config(&x, type), p->n++;
    return false;
}

/* Points of a space at sizes that its tiles do not divide. */
static void test_points(void **state)
{
    struct arena a = {0};
    struct str text;
    struct lab_space s;
    struct lab_count count;
    struct err e = {0};
    struct points p = {.r = rng_seed(3)};
    u32 want = getenv("EXHAUSTIVE") ? 200 : 8;
    assert_true(os_read(&a, "test/corpus/lab_space/cfg_32.json", 1 << 20, &text, &e));
    assert_true(lab_space_read(&s, &a, text, &e) && lab_space_count(&s, LAB_RULES_OWN, &count, &e));
    for (u32 i = 0; i < 4 * want && p.n < want; i++)
        lab_space_each(&s, LAB_RULES_OWN, rng_range(&p.r, 0, (i64)count.n - 1), try_point, &p);
    assert_int_equal(p.n, want);
    arena_release(&a);
}

static void test_refused(void **state)
{
    struct lab_config c;
    struct candidate x;
    struct err e = {0}, why = {0};
    assert_true(lab_name_parse(&c, S("kcg_MM_bM64N64K64isAT1W64_BM64BN64BK16TM4TN4BLY1BLX4WLY16WLX4GLWA4GLWB4BSWM4BSWN4WSWM4WSWN4"
                                     "LSU1Map4GSW0UN3RP0SP0LC1RC0"), &e));
    assert_false(lab_candidate(&x, &c, DT_F32, &e));
    assert_non_null(strstr(e.msg, "parameter 'un' of generator 'group_gemm' cannot be 3"));
    c.v[LF_UN] = 16, c.v[LF_BLX] = 2;
    assert_false(lab_candidate(&x, &c, DT_F32, &why));
    assert_non_null(strstr(why.msg, "'BN64' is not TN4 x WLX4 x BLX2"));
}

/* Results. */

static void test_results(void **state)
{
    struct arena a = {0};
    struct lab_results r = {0}, again = {0};
    struct err e = {0};
    struct buf b = {0};
    assert_true(lab_results_read(&r, &a, S("{\"testResult\": [{\"name\": \"a\", \"speedup\": 1.5, \"time\": 2, \"time_base\": 3},"
                                           "{\"name\": \"b\", \"time\": 7}, {\"name\": \"c\", \"time\": 6}]}"), &e));
    lab_results_add(&r, &a, &(struct lab_result){S("a"), 1.25, 4, 5});
    lab_results_add(&r, &a, &(struct lab_result){S("d"), 2, 1, 2});
    lab_results_print(&b, &r, LAB_BEST);
    assert_true(lab_results_read(&again, &a, buf_view(&b), &e));
    assert_int_equal(again.n, 4);
    for (u32 i = 0; i < 4; i++) assert_int_equal(again.v[i].name.p[0], "dacb"[i]);
    assert_true(again.v[1].speedup == 1.25 && again.v[1].ms == 4 && again.v[1].base_ms == 5);
    for (int i = 0; i < 20; i++) lab_results_add(&r, &a, &(struct lab_result){str_fmt(&a, "x%d", i), 3 + i, 1, 1});
    buf_reset(&b);
    lab_results_print(&b, &r, LAB_BEST);
    again = (struct lab_results){0};
    assert_true(lab_results_read(&again, &a, buf_view(&b), &e));
    assert_int_equal(again.n, LAB_BEST);
    assert_true(again.v[0].speedup == 22);
    assert_false(lab_results_read(&again, &a, S("{\"testResult\": [{}]}"), &e));
    assert_non_null(strstr(e.msg, "has no 'name'"));
    e = (struct err){0};
    assert_false(lab_results_read(&again, &a, S("[]"), &e));
    buf_release(&b);
    arena_release(&a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_published), cmocka_unit_test(test_points), cmocka_unit_test(test_refused),
        cmocka_unit_test(test_results),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
