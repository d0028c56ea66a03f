// SPDX-License-Identifier: Apache-2.0
//
// Configurations as kernels: the published names and random points of a space are schedules of the family, come back as the same names, and
// give the right product in the interpreter. Files of results.
#include "gen_fixture.h"

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
    assert_true(gen_legal(&x, &t, &caps));
    assert_true(lab_config_of(&back, &x, c, type));
    expect_name(&back, c);
    assert_true(check_init(&check, &t, &none, 1, true, &e));
    if (!gen_kernel(&k, &a, &x, &t, &caps, &e) || !interpret(&k, &check, &a, &e)) fail_msg("%s", e.msg);
    assert_int_equal(kir_threads(&k.kir), lab_threads(c));
    check_release(&check);
    arena_release(&a);
}

/* Published names at sizes with the same divisibility by their tiles: one and a half blocks, two and a part K blocks. All with ALL=1. */
static void test_published(void **state)
{
    static const char *const files[] = {"test/corpus/lab_name/registered", "test/corpus/lab_name/winners"};
    struct arena a = {0};
    struct err e = {0};
    i64 step = takes_all() ? 1 : 7, n = 0;
    for (i64 f = 0; f < countof(files); f++) {
        struct str text, name;
        assert_true(os_read(&a, files[f], 1 << 20, &text, &e));
        while (str_cut(text, '\n', &name, &text)) {
            struct lab_config c;
            struct candidate x;
            assert_true(lab_name_parse(&c, name, &e));
            if (!lab_candidate(&x, &c, DT_F32, &e)) fail_msg("%s", e.msg);
            if ((n++ + SHARE) % step) continue;
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
    u32 want = takes_all() ? 200 : 8;
    assert_true(os_read(&a, "test/corpus/lab_space/cfg_32.json", 1 << 20, &text, &e));
    assert_true(lab_space_read(&s, &a, text, &(struct lab_config){.kind = LAB_MM}, &e) && lab_space_count(&s, LAB_RULES_OWN, &count, &e));
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
    assert_non_null(strstr(e.msg, "'UN3': generator 'wg_gemm' has 1, 2, 4, 8, 16, 32, 64 for it"));
    c.v[LF_UN] = 16, c.v[LF_BLX] = 2;
    assert_false(lab_candidate(&x, &c, DT_F32, &why));
    assert_non_null(strstr(why.msg, "'BN64' is not TN4 x WLX4 x BLX2"));
    const struct caps small = {.max_group = 64, .shared_bytes = 4096};
    struct err many = {0}, much = {0};
    assert_false(lab_fits(&c, DT_F32, &small, &many));
    assert_non_null(strstr(many.msg, "128 threads, the device allows 64"));
    c.v[LF_BLX] = 1;
    assert_false(lab_fits(&c, DT_F32, &small, &much));
    assert_non_null(strstr(much.msg, "bytes of shared memory of a group, the device has 4096"));
}

/* The cover of a network with such a GEMM has the same task, so they share measurements. */
static void test_task(void **state)
{
    for (i32 k = 0; k < 4; k++) {
        struct arena a = {0};
        struct symtab st;
        struct graph g;
        struct task t;
        struct cover c;
        struct lab_config x = {.n_batch = (u32)k / 2, .batch = {k / 2 * 3}, .m = 24, .n = 40, .k = 16}, back;
        struct err e = {0};
        enum dtype type;
        u32 n = 0;
        x.v[LF_TRANS] = k % 2;
        symtab_init(&st, &a);
        graph_init(&g, &a, &st);
        lab_graph(&g, &x, DT_F32);
        assert_true(op_infer_all(&g, &e) && lab_task(&t, &a, &st, &x, DT_F32, &e));
        assert_true(cover_build(&c, &g, &a, &(struct cover_opts){0}, &e));
        for (u32 i = 0; i < c.task.n; i++) n += str_eq(c.task.v[i]->text, t.text);
        assert_int_equal(n, 1);
        assert_true(lab_product_of(&back, &type, &t) && type == DT_F32);
        assert_memory_equal(&back, &x, sizeof x);
        arena_release(&a);
    }
}

/* The registry. */

static void test_registry(void **state)
{
    struct arena a = {0};
    struct lab_registry r;
    struct str names, name;
    struct buf b = {0};
    struct err e = {0};
    assert_true(os_read(&a, "test/corpus/lab_name/registered", 1 << 20, &names, &e));
    buf_z(&b, "{\"kernels\": [{\"type\": \"attention\", \"kernelName\": \"x\", \"pklpath\": \"\"}");
    while (str_cut(names, '\n', &name, &names))
        for (int twice = 0; twice < 2; twice++)
            buf_printf(&b, ", {\"type\": \"matmul\", \"kernelName\": \"%.*s\", \"pklpath\": \"gone\"}", STR_ARG(name));
    buf_z(&b, "]}");
    assert_true(lab_is_registry(buf_view(&b)));
    assert_true(lab_registry_read(&r, &a, buf_view(&b), "matmul", &e));
    assert_int_equal(r.n, 9);
    assert_int_equal(r.n_others, 1);
    for (u32 i = 0; i < r.n; i++) assert_int_equal(r.v[i].listed.n, 2);
    assert_false(lab_is_registry(S("{\"BLOCK_SIZE_M\": [1]}")));
    assert_false(lab_registry_read(&r, &a, S("{\"kernels\": [{\"type\": \"matmul\", \"kernelName\": \"kcg_MM_bM1\"}]}"), "matmul", &e));
    assert_non_null(strstr(e.msg, "kernel 0: kernel name 'kcg_MM_bM1': column 11: expected 'N', found the end"));
    buf_release(&b);
    arena_release(&a);
}

struct test_env { struct arena a; struct db d; i64 env; struct err e; };

/* One verified trial of a configuration. */
static void remember(struct test_env *s, const struct lab_config *c, double seconds)
{
    struct symtab st;
    struct task t;
    struct candidate x;
    struct buf text = {0};
    symtab_init(&st, &s->a);
    assert_true(lab_task(&t, &s->a, &st, c, DT_F32, &s->e) && lab_candidate(&x, c, DT_F32, &s->e));
    candidate_print(&text, &x);
    i64 trial = db_trial(&s->d, s->env, db_task(&s->d, &t, &s->e), S(""), buf_view(&text), &s->e);
    assert_true(trial && db_sample(&s->d, trial, &(struct sample){.seconds = seconds}, &s->e));
    assert_true(db_trial_status(&s->d, trial, TRIAL_OK, S(""), &s->e));
    buf_release(&text);
}

static struct lab_config sized(const char *fields, i64 m, i64 n, i64 k)
{
    struct lab_config c;
    struct err e = {0};
    struct buf b = {0};
    buf_printf(&b, "kcg_MM_bM%lldN%lldK%lldisAT0W64_BM%s", (long long)m, (long long)n, (long long)k, fields);
    if (!lab_name_parse(&c, buf_view(&b), &e)) fail_msg("%s", e.msg);
    buf_release(&b);
    return c;
}

/* The fastest kernel of a known GEMM, else of the nearest one; none that is too large for this device. */
static void test_find(void **state)
{
    static const char small[] = "32BN32BK8TM4TN4BLY1BLX1WLY8WLX8GLWA4GLWB4BSWM2BSWN2WSWM1WSWN2LSU1Map4GSW0UN8RP0SP0LC1RC0",
                      large[] = "64BN64BK16TM4TN4BLY2BLX2WLY8WLX8GLWA4GLWB4BSWM2BSWN2WSWM1WSWN2LSU1Map4GSW0UN16RP1SP0LC1RC0";
    struct test_env s = {0};
    struct caps caps = large_device();
    struct lab_found f;
    struct lab_config x = sized(small, 1000, 100, 64), y = sized(large, 1000, 100, 64), z = sized(large, 2000, 100, 64), c;
    assert_true(db_open(&s.d, ":memory:", &s.e));
    s.env = db_env(&s.d, S("device"), S("compiler"), &s.e);
    assert_false(lab_find(&f, &s.d, s.env, &caps, &x, DT_F32, &s.e) || s.e.code);
    remember(&s, &x, 3), remember(&s, &y, 2), remember(&s, &z, 5);
    assert_true(lab_find(&f, &s.d, s.env, &caps, &x, DT_F32, &s.e));
    assert_true(f.distance == 0 && f.seconds == 2 && lab_config_of(&c, &f.cand, &x, DT_F32));
    expect_name(&c, &y);
    c = sized(small, 4000, 100, 64);
    assert_true(lab_find(&f, &s.d, s.env, &caps, &c, DT_F32, &s.e));
    assert_true(f.distance == 1 && f.product.m == 2000);
    caps.max_group = 128; /* the large one has 256 threads: the nearest that has another */
    assert_true(lab_find(&f, &s.d, s.env, &caps, &c, DT_F32, &s.e));
    assert_true(f.distance == 2 && f.seconds == 3 && lab_config_of(&z, &f.cand, &c, DT_F32));
    expect_name(&z, &c);
    c.n_batch = 1, c.batch[0] = 4; /* of another rank */
    assert_true(lab_find(&f, &s.d, s.env, &caps, &c, DT_F32, &s.e) && f.distance == 4 && f.product.m == 1000);
    c.n_batch = 0;
    caps.max_group = 32;
    assert_false(lab_find(&f, &s.d, s.env, &caps, &c, DT_F32, &s.e) || s.e.code);
    caps.max_group = 1024;
    assert_false(lab_find(&f, &s.d, s.env, &caps, &c, DT_F16, &s.e) || s.e.code);
    db_close(&s.d);
    arena_release(&s.a);
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
    lab_results_add(&r, &a, &(struct lab_result){S("a"), 1.25, 4, 5, S("")});
    lab_results_add(&r, &a, &(struct lab_result){S("d"), 2, 1, 2, S("")});
    lab_results_print(&b, &r, LAB_BEST);
    assert_true(lab_results_read(&again, &a, buf_view(&b), &e));
    assert_int_equal(again.n, 4);
    for (u32 i = 0; i < 4; i++) assert_int_equal(again.v[i].name.p[0], "dacb"[i]);
    assert_true(again.v[1].speedup == 1.25 && again.v[1].ms == 4 && again.v[1].base_ms == 5);
    for (int i = 0; i < 20; i++) lab_results_add(&r, &a, &(struct lab_result){str_fmt(&a, "x%d", i), 3 + i, 1, 1, S("blas 1")});
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
        cmocka_unit_test(test_task),      cmocka_unit_test(test_registry), cmocka_unit_test(test_find),
        cmocka_unit_test(test_results),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
