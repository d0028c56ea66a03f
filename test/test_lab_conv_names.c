// SPDX-License-Identifier: Apache-2.0
//
// Implementations of convolutions by name, for all rows of all data sets, made smaller: each has a schedule of its own that keeps to
// its label, and computes in the interpreter what the reference computes; some do on devices, on processors by one thread and two. Tuned forms keep to the label, too, and
// differ. COUNT is how many rows of a data set are tried; with ALL=1 each with every implementation, else with one.
#include "gen_tasks.h"
#include "lab/conv.h"
#include "vulkan_bed.h"

enum { FLOPS = 40000, MOST_TUNED = 12 };

static enum layout layout_of(const struct conv_impl *x) { return x->channels_last ? LAYOUT_CLAST : LAYOUT_ROWS; }

static bool open_row(struct bed *b, const struct conv_row *row, const struct conv_impl *x)
{
    struct conv_row small = *row;
    conv_row_shrink(&small, FLOPS);
    return conv_row_task(&b->t, &b->arena, &b->sym, &small, b->type, layout_of(x), &b->e);
}

static void try_impl(struct bed *b, const struct conv_impl *x, u64 seed)
{
    struct check k;
    struct candidate own, more[MOST_TUNED];
    if (!conv_impl_candidate(x, &b->t, &b->caps, b->var, &own, &b->e)) report(b, NULL, seed);
    assert_true(gen_matches(own.gen, &b->t, &b->caps) && own.gen->legal(&b->t, &b->caps, &own.sched));
    assert_true(conv_impl_keeps(x, &own, &b->caps));
    assert_true(check_init(&k, &b->t, b->var, seed, true, &b->e));
    if (!run(b, &own, &k)) report(b, &own, seed);
    u32 n = seed % 5 ? 0 : conv_impl_tuned(x, &b->t, &b->caps, b->var, seed, more, MOST_TUNED, &b->e);
    for (u32 i = 0; i < n; i++) {
        assert_true(conv_impl_keeps(x, &more[i], &b->caps) && more[i].gen->legal(&b->t, &b->caps, &more[i].sched));
        for (u32 j = 0; j < i; j++) assert_memory_not_equal(&more[i], &more[j], sizeof more[i]);
        if (i % 4 == 1 && !run(b, &more[i], &k)) report(b, &more[i], seed);
    }
    if (n) assert_memory_equal(&more[0], &own, sizeof own);
    check_release(&k);
}

typedef void row_fn(struct bed *b, const struct conv_impl *x, u64 seed, void *user);

static void one_row(const struct conv_row *row, const struct conv_impl *x, u64 seed, bool on_gpu, row_fn *fn, void *user)
{
    struct bed b;
    bed_open(&b, seed);
    if (on_gpu) bed_use_groups(&b);
    b.type = pick(&b, 0, 3) ? DT_F32 : pick(&b, 0, 1) ? DT_F16 : DT_BF16;
    if (!open_row(&b, row, x)) fail_msg("%s", b.e.msg);
    fn(&b, x, seed, user);
    bed_close(&b);
}

/* Calls fn for rows of all data sets, and each implementation in turn. */
static void each_row(bool on_gpu, row_fn *fn, void *user)
{
    u32 most = getenv("COUNT") ? (u32)strtoul(getenv("COUNT"), NULL, 10) : 9, n_impl = 0;
    struct str text;
    u64 seed = 0;
    bool all = getenv("ALL") != NULL;
    while (conv_impl_at(n_impl)) n_impl++;
    for (u32 d = 0; conv_data_at(d, &text); d++) {
        struct arena a = {0};
        struct conv_data data = {0};
        struct err e = {0};
        assert_true(conv_read(&data, &a, text, &e));
        u32 step = (u32)i64_max(1, data.row.n / most);
        for (u32 r = 0; r < data.row.n; r += step) {
            for (u32 i = all ? 0 : n_impl - 1; i < n_impl; i++, seed++)
                one_row(&data.row.v[r], conv_impl_at((u32)(seed % n_impl)), seed, on_gpu, fn, user);
        }
        arena_release(&a);
    }
}

static void on_kind(struct bed *b, const struct conv_impl *x, u64 seed, void *user)
{
    if (getenv("SEED") && seed != first_seed(0)) return;
    try_impl(b, x, seed);
    ++*(u32 *)user;
}

static void try_kind(bool on_gpu)
{
    u32 n = 0;
    each_row(on_gpu, on_kind, &n);
    print_message("%u rows\n", n);
    assert_true(n > 50 || getenv("SEED") || getenv("COUNT"));
}

static void test_gpu(void **state) { try_kind(true); }
static void test_processor(void **state) { try_kind(false); }

static void on_devices(struct bed *b, const struct conv_impl *x, u64 seed, void *user)
{
    const struct gpus *g = user;
    const char *driver = g->v[seed / 9 % g->n];
    struct dev_opts o = {.n_threads = 2};
    struct check k;
    struct candidate c;
    if (seed % 9 != seed / 9 % 9) return;
    assert_true(dev_ask(dev_find(str_of(driver)), &o, &b->caps, NULL, &b->e));
    if (!conv_impl_candidate(x, &b->t, &b->caps, b->var, &c, &b->e)) return; /* of a type that the device lacks */
    open_device_check(b, &k, seed);
    if (!verify_on(b, driver, &c, &k)) report(b, &c, seed);
    check_release(&k);
}

static void test_device(void **state)
{
    struct gpus g = find_gpus();
    each_row(true, on_devices, &g);
}

/* Compiled, by one thread and two; with ALL=1 all, else some. */
static void on_cpu(struct bed *b, const struct conv_impl *x, u64 seed, void *user)
{
    struct dev_opts o = {.n_threads = 1 + seed / 9 % 2};
    struct check k;
    struct candidate c;
    if ((!getenv("ALL") && seed % 9 != seed / 9 % 9) || (getenv("SEED") && seed != first_seed(0))) return;
    assert_true(dev_ask(dev_find(S("cpu")), &o, &b->caps, NULL, &b->e));
    if (!conv_impl_candidate(x, &b->t, &b->caps, b->var, &c, &b->e)) report(b, NULL, seed);
    open_device_check(b, &k, seed);
    if (!verify_on(b, "cpu", &c, &k)) report(b, &c, seed);
    check_release(&k);
    ++*(u32 *)user;
}

static void test_cpu(void **state)
{
    u32 n = 0;
    each_row(false, on_cpu, &n);
    print_message("%u rows\n", n);
    assert_true(n > 5 || getenv("SEED") || getenv("COUNT"));
}

/* Names, entries, and what a label rules out. */
static void test_table(void **state)
{
    static const char *const names[] = {"implicitGemmdace", "implicitGemmTiledonlydace", "implicitGemmWarpTileddace", "implicitGemmNCDHWdace",
                                        "implicitGemmsplitKdace", "directConvNCDHWdace", "directConvNCDHWnobuffer",
                                        "directConvNCDHWmergeddace", "directConvNCDHWtileIC"};
    struct caps cpu = {.arch = "test"}, gpu = {.arch = "test", .is_gpu = true};
    struct candidate c;
    struct err e;
    for (u32 i = 0; i < countof(names); i++) {
        const struct conv_impl *x = conv_impl_find(str_of(names[i]));
        assert_true(x && x == conv_impl_at(i));
        assert_int_equal(x->channels_last, i < 3);
        assert_true(conv_impl_check(x, &cpu) && conv_impl_check(x, &gpu));
    }
    assert_null(conv_impl_at(countof(names)));
    assert_null(conv_impl_find(S("implicitGemm")));
    const struct conv_impl *split = conv_impl_find(S("implicitGemmsplitKdace")), *one = conv_impl_find(S("implicitGemmdace"));
    assert_true(candidate_parse(&c, S("group_igemm.2 tr=8 tc=2 tm=4 tn=8 near=1 order=2 bk=1 stage=2 pipe=1 chunks=8"), &e));
    assert_true(conv_impl_keeps(split, &c, &gpu) && !conv_impl_keeps(one, &c, &gpu));
    assert_true(candidate_parse(&c, S("group_igemm.2 tr=8 tc=2 tm=4 tn=8 near=1 order=2 bk=1 stage=2 pipe=1 chunks=1"), &e));
    assert_false(conv_impl_keeps(split, &c, &gpu));
    assert_true(candidate_parse(&c, S("group_igemm.2 tr=128 tc=2 tm=1 tn=1 near=1 order=0 bk=16 stage=0 pipe=0 chunks=1"), &e));
    assert_true(conv_impl_keeps(one, &c, &gpu) && !conv_impl_keeps(split, &c, &gpu));
    assert_true(candidate_parse(&c, S("conv_igemm.2 tx=12 nr=2 tb=8 ob=0 ib=1 ks=4 copy=1 order=0 ku=1 ahead=0 nt=0"), &e));
    assert_true(conv_impl_keeps(split, &c, &cpu) && !conv_impl_keeps(one, &c, &cpu) && !conv_impl_keeps(split, &c, &gpu));
}

/* What the family does not take is said with the family's name. */
static void test_refused(void **state)
{
    struct bed b;
    struct candidate c;
    bed_open(&b, 1);
    bed_use_groups(&b);
    b.caps.has_f64 = false;
    struct conv_row row = {.axes = 3, .batch = 1, .channels = 4, .out_channels = 4, .groups = 1, .size = {3, 3, 3}, .kernel = {2, 2, 2},
                           .stride = {2, 2, 2}, .dilation = {1, 1, 1}};
    const struct conv_impl *x = conv_impl_find(S("directConvNCDHWnobuffer"));
    assert_true(conv_row_task(&b.t, &b.arena, &b.sym, &row, DT_F64, LAYOUT_ROWS, &b.e));
    assert_false(conv_impl_candidate(x, &b.t, &b.caps, b.var, &c, &b.e));
    assert_int_equal(b.e.code, ERR_UNSUPPORTED);
    assert_non_null(strstr(b.e.msg, "'directConvNCDHWnobuffer' is family 'group_igemm', which does not take this convolution here"));
    bed_close(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_table),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_gpu),
        cmocka_unit_test(test_processor),
        cmocka_unit_test(test_cpu),
        cmocka_unit_test(test_device),
    };
    vulkan_stay_loaded();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
