// SPDX-License-Identifier: Apache-2.0
//
// Rows on the processor: the kernel that a name means, built once and then taken from the database; a search that the next choice knows of;
// rounds of two kernels; the files of a run.
#include "conv_fixture.h"

#include <math.h>
#include <setjmp.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

struct site { /* a processor, and a database that goes away */
    struct arena arena;
    struct symtab st;
    struct task task;
    struct db db;
    struct caps caps;
    struct buf fingerprint, toolchain;
    struct cache cache;
    struct conv_place p;
    struct err e;
};

static const struct conv_row row = {.axes = 3, .batch = 1, .groups = 1, .channels = 3, .out_channels = 8, .size = {5, 6, 7}, .kernel = {3, 2, 3},
                                    .stride = {1, 1, 1}, .dilation = {1, 1, 1}};

static void open_place(struct site *x)
{
    const struct dev_opts one = {.n_threads = 1};
    *x = (struct site){0};
    x->p = (struct conv_place){.db = &x->db, .driver = dev_find(S("cpu")), .dev = one, .caps = &x->caps, .lang = lang_find(S("c"))};
    symtab_init(&x->st, &x->arena);
    x->p.cache = &x->cache;
    bool ok = os_temp_dir(&x->arena, &x->cache.folder, &x->e) && db_open(&x->db, ":memory:", &x->e) && dev_ask(x->p.driver, &one, &x->caps, &x->fingerprint, &x->e) &&
              x->p.lang->toolchain(&x->toolchain, &x->caps, &x->e) && conv_row_task(&x->task, &x->arena, &x->st, &row, DT_F32, LAYOUT_CLAST, &x->e);
    if (!ok) fail_msg("%s", x->e.msg);
    x->p.toolchain = buf_view(&x->toolchain);
    x->p.env = db_env(&x->db, buf_view(&x->fingerprint), x->p.toolchain, &x->e);
    assert_true(x->p.env);
}

static void close_place(struct site *x)
{
    db_close(&x->db);
    os_remove_tree(x->cache.folder.p);
    buf_release(&x->fingerprint);
    buf_release(&x->toolchain);
    arena_release(&x->arena);
}

static void assert_same(const struct candidate *a, const struct candidate *b)
{
    assert_ptr_equal(a->gen, b->gen);
    assert_memory_equal(&a->sched, &b->sched, sizeof a->sched);
}

static void test_build(void **state)
{
    struct site x;
    struct candidate c, def;
    struct subject first, again;
    i64 none = 0;
    open_place(&x);
    assert_true(conv_choose(&c, &x.p, &x.task, S("tuned"), &x.e));
    assert_true(gen_default(&x.task, &x.caps, &none, &def));
    assert_same(&c, &def);
    assert_false(conv_build(&first, &x.p, &x.task, &c, true, &x.arena, &x.e));
    assert_int_equal(x.e.code, ERR_NOTHING);
    assert_non_null(strstr(x.e.msg, "was never built"));
    x.e = (struct err){0};
    if (!conv_build(&first, &x.p, &x.task, &c, false, &x.arena, &x.e)) fail_msg("%s", x.e.msg);
    if (!conv_build(&again, &x.p, &x.task, &c, true, &x.arena, &x.e)) fail_msg("%s", x.e.msg);
    assert_true(str_eq(first.code, again.code) && first.code.n > 0);
    assert_false(conv_choose(&c, &x.p, &x.task, S("mine"), &x.e));
    assert_int_equal(x.e.code, ERR_USAGE);
    assert_non_null(strstr(x.e.msg, "directConvNCDHWtileIC"));
    close_place(&x);
}

/* The search's result is selected. */
static void test_tune(void **state)
{
    struct site x;
    struct candidate c;
    struct task_known known;
    i64 none = 0;
    open_place(&x);
    const struct tune_opts o = {.driver = x.p.driver, .dev = x.p.dev, .min_samples = 2, .max_candidates = 4, .add_candidates = true, .measure = true};
    if (!conv_tune(&x.p, &x.task, S("tuned"), &o, &x.e)) fail_msg("%s", x.e.msg);
    assert_true(tune_best(&x.db, x.p.env, &x.task, &none, &known, &x.e));
    assert_true(known.measured && known.n_trials >= 2);
    assert_true(conv_choose(&c, &x.p, &x.task, S("tuned"), &x.e));
    assert_same(&c, &known.best);
    close_place(&x);
}

static void assert_ordered(struct stats s) { assert_true(s.low > 0 && s.low <= s.median && s.median <= s.high); }

static void test_profile(void **state)
{
    struct site x;
    struct candidate c;
    struct subject s;
    struct conv_times t;
    open_place(&x);
    bool ok = conv_choose(&c, &x.p, &x.task, S("tuned"), &x.e) && conv_build(&s, &x.p, &x.task, &c, false, &x.arena, &x.e);
    struct conv_pair pair = {.subject = &s, .base = &s, .warm_up = 2, .total = 5};
    if (!ok || !conv_profile(&t, &x.p, &x.task, &pair, &x.arena, &x.e)) fail_msg("%s", x.e.msg);
    assert_int_equal(t.n, 5);
    for (u32 i = 0; i < t.n; i++) assert_true(t.seconds[i] > 0 && t.base[i] > 0);
    assert_ordered(t.of);
    assert_ordered(t.of_base);
    assert_ordered(t.ratio);
    pair.base = NULL, pair.warm_up = 0, pair.total = 1;
    assert_true(conv_profile(&t, &x.p, &x.task, &pair, &x.arena, &x.e));
    assert_int_equal(t.n, 1);
    assert_true(t.ratio.median == 0);
    s.code = S("no shared object");
    assert_false(conv_profile(&t, &x.p, &x.task, &pair, &x.arena, &x.e));
    assert_int_equal(x.e.code, ERR_FAILED);
    assert_non_null(strstr(x.e.msg, "not timed"));
    close_place(&x);
}

static void assert_prints(void (*print)(struct buf *b, const struct conv_run *r), const struct conv_run *r, const char *text)
{
    struct buf b = {0};
    print(&b, r);
    assert_string_equal(b.p, text);
    buf_release(&b);
}

static void test_files(void **state)
{
    double a[] = {1e-3, 2e-3, 4e-3}, b[] = {2e-3, 4e-3, 8e-3};
    struct conv_result v[] = {
        {.layer = 2, .row = &row, .base = S("a, b"), .times = {a, b, 3, {2e-3, 1e-3, 4e-3}, {4e-3, 2e-3, 8e-3}, {2, 2, 2}}},
        {.layer = 3, .row = &row}, /* not timed */
    };
    struct conv_run r = {.implementation = S("x"), .type = DT_F32, .limit = {.ops[RATE_FMA_F32].all = 1e9}, .result = {v, 2, 2}};
#define LABEL "in_1X3X5X6X7_k_3X2X3_och_8"
    /* 3 x 5 x 5 outputs of 54 terms and 8 channels: 64800 operations; 630 + 432 + 600 elements */
    assert_prints(conv_print_samples, &r,
                  "layer,layer_name,implementation,iteration,ms\n"
                  "2," LABEL ",x,0,1.000000\n2," LABEL ",a_ b,0,2.000000\n2," LABEL ",x,1,2.000000\n2," LABEL ",a_ b,1,4.000000\n"
                  "2," LABEL ",x,2,4.000000\n2," LABEL ",a_ b,2,8.000000\n");
    assert_prints(conv_print_summary, &r,
                  "layer_name,x_median,a_ b_median,low_ms,high_ms,base_low_ms,base_high_ms,ratio,ratio_low,ratio_high,gflop,gbytes,gflops,"
                  "percent_of_limit,base\n" LABEL
                  ",2.000000,4.000000,1.000000,4.000000,2.000000,8.000000,2.000000,2.000000,2.000000,0.000065,0.000007,0.032,3.24,a_ b\n");
    assert_prints(conv_print_roofline, &r,
                  "layer,layer_name,implementation,flops,bytes,seconds\n"
                  "2," LABEL ",x,64800,6648,0.002000000\n2," LABEL ",a_ b,64800,6648,0.004000000\n");
    assert_prints(conv_print_ceilings, &r, "name,unit,value\nfma,GFLOP/s,1.000\n");
    r.limit = (struct rates){0};
    assert_prints(conv_print_ceilings, &r, "name,unit,value\n");
    assert_prints(conv_print_summary, &r,
                  "layer_name,x_median,a_ b_median,low_ms,high_ms,base_low_ms,base_high_ms,ratio,ratio_low,ratio_high,gflop,gbytes,gflops,"
                  "percent_of_limit,base\n" LABEL
                  ",2.000000,4.000000,1.000000,4.000000,2.000000,8.000000,2.000000,2.000000,2.000000,0.000065,0.000007,0.032,,a_ b\n");
    r.limit.memory[RATE_DRAM].read.all = 1e6;
    assert_true(fabs(conv_limit(&r, &row) - 6648e-6) < 1e-12);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_build),    cmocka_unit_test(test_tune),  cmocka_unit_test(test_profile),
                                       cmocka_unit_test(test_files)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
