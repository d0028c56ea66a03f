// SPDX-License-Identifier: Apache-2.0
//
// Implementations of convolutions by name, for all rows of all data sets, made smaller: each has a schedule of its own that keeps to
// its label, and agrees with the reference in the interpreter; some do on devices, on processors by one thread and two,
// and what is made for GPUs that are not here is built. Tuned forms keep to the label, too, and differ. COUNT is how many rows of a data set are tried, DATA a pattern of data sets'
// names. With ALL=1 all rows with every implementation, in f32 and a quarter in 16 bits, too, on every device and for every target;
// else some with one each.
#include "gen_tasks.h"
#include "conv_fixture.h"
#include "lab/conv.h"
#include "vulkan_fixture.h"

enum { FLOPS = 40000, MOST_TUNED = 12 };

static enum layout layout_of(const struct conv_impl *x) { return x->channels_last ? LAYOUT_CLAST : LAYOUT_ROWS; }

/* Of some rows the gradient of the input, behind some a bias and an activation. */
static bool open_row(struct fixture *b, const struct conv_row *row, const struct conv_impl *x)
{
    struct conv_row small = *row, made;
    conv_row_shrink(&small, FLOPS);
    if (pick(b, 0, 2) == 0) small.pass = CONV_INPUT;
    else any_fusion(&b->rng, &small);
    if (!conv_row_computed(&made, &small, &b->e)) return false;
    small = made;
    return conv_row_task(&b->t, &b->arena, &b->sym, &small, b->type, layout_of(x), &b->e);
}

static void try_impl(struct fixture *b, const struct conv_impl *x, u64 seed)
{
    struct check k;
    struct candidate own, more[MOST_TUNED];
    if (!conv_impl_candidate(x, &b->t, &b->caps, b->var, &own, &b->e)) report(b, NULL, seed);
    assert_true(gen_matches(own.gen, &b->t, &b->caps) && gen_legal(&own, &b->t, &b->caps));
    assert_true(conv_impl_keeps(x, &own, &b->caps));
    assert_true(check_init(&k, &b->t, b->var, seed, true, &b->e));
    if (!run(b, &own, &k)) report(b, &own, seed);
    u32 n = seed % 5 ? 0 : conv_impl_tuned(x, &b->t, &b->caps, b->var, seed, more, MOST_TUNED, &b->e);
    for (u32 i = 0; i < n; i++) {
        assert_true(conv_impl_keeps(x, &more[i], &b->caps) && gen_legal(&more[i], &b->t, &b->caps));
        for (u32 j = 0; j < i; j++) assert_memory_not_equal(&more[i], &more[j], sizeof more[i]);
        if (i % 4 == 1 && !run(b, &more[i], &k)) report(b, &more[i], seed);
    }
    if (n) assert_memory_equal(&more[0], &own, sizeof own);
    check_release(&k);
}

typedef void row_fn(struct fixture *b, const struct conv_impl *x, u64 seed, void *user);

static void one_row(const struct conv_row *row, const struct conv_impl *x, u64 seed, bool on_gpu, enum dtype type, row_fn *fn, void *user)
{
    struct fixture b;
    fixture_open(&b, seed);
    if (on_gpu) fixture_use_workgroups(&b);
    b.type = type;
    if (!open_row(&b, row, x)) fail_msg("%s", b.e.msg);
    fn(&b, x, seed, user);
    fixture_close(&b);
}

/* A quarter in 16 bits; of all rows that is in addition to f32. */
static void each_type(const struct conv_row *row, const struct conv_impl *x, u64 seed, bool on_gpu, row_fn *fn, void *user)
{
    struct rng rng = rng_seed(seed);
    bool is_short = rng_range(&rng, 0, 3) == 0;
    enum dtype type = rng_range(&rng, 0, 1) ? DT_F16 : DT_BF16;
    if (!is_short || takes_all()) one_row(row, x, seed, on_gpu, DT_F32, fn, user);
    if (is_short) one_row(row, x, seed, on_gpu, type, fn, user);
}

/* Calls fn for rows of all data sets, and each implementation in turn; each build takes others. */
static void each_row(bool on_gpu, row_fn *fn, void *user)
{
    u32 most = getenv("COUNT") ? (u32)seeds_env("COUNT", 0) : takes_all() ? UINT32_MAX : 5, n_impl = 0;
    struct str text, wanted = str_of(getenv("DATA") ? getenv("DATA") : "*");
    const char *name;
    u64 seed = 0;
    while (conv_impl_at(n_impl)) n_impl++;
    for (u32 d = 0; (name = conv_data_at(d, &text)) != NULL; d++) {
        struct arena a = {0};
        struct conv_data data = {0};
        struct err e = {0};
        if (!str_glob(wanted, str_of(name))) continue;
        assert_true(conv_read(&data, &a, text, &e));
        u32 step = (u32)i64_max(1, data.row.n / most);
        for (u32 r = takes_all() ? 0 : step * SHARE / N_SHARES; r < data.row.n; r += step) {
            for (u32 i = takes_all() ? 0 : n_impl - 1; i < n_impl; i++, seed++)
                if (seed == seeds_env("SEED", seed)) each_type(&data.row.v[r], conv_impl_at((u32)(seed % n_impl)), seed, on_gpu, fn, user);
        }
        arena_release(&a);
    }
}

/* As many as were to be expected; where less was asked for, some. */
static void assert_rows(u32 n, u32 least)
{
    bool is_narrowed = seeds_are_given() || getenv("DATA");
    assert_true(n > (is_narrowed ? 0 : least));
}

static void on_kind(struct fixture *b, const struct conv_impl *x, u64 seed, void *user)
{
    try_impl(b, x, seed);
    ++*(u32 *)user;
}

static void try_kind(bool on_gpu)
{
    u32 n = 0;
    each_row(on_gpu, on_kind, &n);
    print_message("%u rows\n", n);
    assert_rows(n, 25);
}

/* Each name with each that may follow the sums, on both kinds of device, of a convolution and a transposed one. */
static void test_fused(void **state)
{
    static const struct conv_row rows[] = {
        {.axes = 2, .batch = 2, .channels = 6, .out_channels = 10, .groups = 2, .size = {6, 7}, .kernel = {3, 2}, .stride = {1, 2}, .dilation = {2, 1}, .pad_begin = {1, 0}},
        {.axes = 3, .is_transposed = true, .batch = 1, .channels = 5, .out_channels = 4, .groups = 1, .size = {2, 3, 3}, .kernel = {2, 3, 2},
         .stride = {2, 1, 2}, .dilation = {1, 1, 1}, .pad_begin = {0, 1, 0}, .pad_end = {0, 1, 0}},
    };
    enum { FUSIONS = 2 * N_CONV_ACTS, CASES = 2 * FUSIONS * countof(rows) };
    const struct conv_impl *x;
    for (u32 i = 0; (x = conv_impl_at(i)); i++)
        for (u32 k = 0; k < CASES; k++) {
            u64 seed = 5 * (i * CASES + k) + 1; /* no tuned forms */
            struct conv_row row = rows[k / (2 * FUSIONS)];
            struct fixture b;
            row.has_bias = k % 2 != 0, row.act = (enum conv_act)(k / 2 % N_CONV_ACTS);
            fixture_open(&b, seed);
            if (k / FUSIONS % 2) fixture_use_workgroups(&b);
            if (!conv_row_task(&b.t, &b.arena, &b.sym, &row, b.type, layout_of(x), &b.e)) fail_msg("%s", b.e.msg);
            try_impl(&b, x, seed);
            fixture_close(&b);
        }
}

static void test_gpu(void **state) { try_kind(true); }
static void test_processor(void **state) { try_kind(false); }

/* On devices that are here. */
struct devices {
    struct gpus g;
    struct caps caps[4];
    u32 n[4], n_lacking; /* tried on each; of a type that the device lacks */
};

static void on_device(struct fixture *b, const struct conv_impl *x, u64 seed, struct devices *d, u32 i)
{
    struct check k;
    struct candidate c;
    b->caps = d->caps[i];
    if (!conv_impl_candidate(x, &b->t, &b->caps, b->var, &c, &b->e)) {
        if (b->type == DT_F32) report(b, NULL, seed);
        d->n_lacking++;
        return;
    }
    open_device_check(b, &k, seed);
    if (!verify_on(b, d->g.v[i], &c, &k)) report(b, &c, seed);
    check_release(&k);
    d->n[i]++;
}

static void on_devices(struct fixture *b, const struct conv_impl *x, u64 seed, void *user)
{
    struct devices *d = user;
    for (u32 i = 0; takes_all() && i < d->g.n; i++) on_device(b, x, seed, d, i);
    if (!takes_all() && seed % 4 == 0) on_device(b, x, seed, d, (u32)(seed / 4 % d->g.n));
}

static void test_device(void **state)
{
    struct devices d = {.g = find_gpus()};
    struct dev_opts o = {.n_threads = 2};
    struct err e = {0};
    for (u32 i = 0; i < d.g.n; i++) assert_true(dev_ask(dev_find(str_of(d.g.v[i])), &o, &d.caps[i], NULL, &e));
    each_row(true, on_devices, &d);
    u32 n = d.n_lacking;
    for (u32 i = 0; i < d.g.n; n += d.n[i++]) print_message("%s: %u rows\n", d.g.v[i], d.n[i]);
    if (d.n_lacking) print_message("%u rows of types that a device lacks\n", d.n_lacking);
    assert_rows(n, 4);
}

/* Compiled, by one thread and two; with ALL=1 all, else some. */
static void on_cpu(struct fixture *b, const struct conv_impl *x, u64 seed, void *user)
{
    struct dev_opts o = {.n_threads = 1 + seed / 9 % 2};
    struct check k;
    struct candidate c;
    if (!takes_all() && seed % 9 != seed / 9 % 9) return;
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
    assert_rows(n, 2);
}

/* Kernels for absent devices: correct in the interpreter, and built if there is a compiler. */
struct target {
    const char *driver, *arch;
    bool builds;
    u32 step, n, n_built; /* every so many are built */
};

static void on_target(struct fixture *b, const struct conv_impl *x, u64 seed, void *user)
{
    struct target *t = user;
    const struct lang *l = lang_find(str_of(dev_find(str_of(t->driver))->lang));
    struct check k;
    struct kernel kernel;
    struct candidate c;
    struct buf text = {0}, binary = {0};
    assert_true(dev_target(&b->caps, t->driver, str_of(t->arch)));
    bool ok = conv_impl_candidate(x, &b->t, &b->caps, b->var, &c, &b->e) && check_init(&k, &b->t, b->var, seed, true, &b->e);
    if (!ok) report(b, NULL, seed);
    ok = run(b, &c, &k) && gen_kernel(&kernel, &b->arena, &c, &b->t, &b->caps, &b->e) &&
         lang_render(&text, l, &kernel.kir, &b->caps, &b->arena, &b->e);
    if (ok && t->builds && (takes_all() || t->n % t->step == 0))
        ok = l->build(&binary, buf_view(&text), &b->caps, 120, &b->e), t->n_built++;
    if (!ok) report(b, &c, seed);
    t->n++;
    check_release(&k);
    buf_release(&text), buf_release(&binary);
}

static void try_target(const char *driver, const char *arch)
{
    struct target t = {.driver = driver, .arch = arch, .step = 7};
    struct buf tool = {0};
    struct err none = {0};
    t.builds = lang_find(str_of(dev_find(str_of(driver))->lang))->toolchain(&tool, NULL, &none);
    each_row(true, on_target, &t);
    buf_release(&tool);
    print_message("%s: %u rows, %u built%s%s\n", arch, t.n, t.n_built, t.builds ? "" : ", others not: ", none.msg);
    assert_rows(t.n, 50);
}

static void test_sm_80(void **state) { try_target("cuda", "sm_80"); }
static void test_sm_90(void **state) { try_target("cuda", "sm_90"); }

/* Names, entries, and values that a label excludes. */
static void test_table(void **state)
{
    static const char *const names[] = {"implicitGemmdace", "implicitGemmTiledonlydace", "implicitGemmWarpTileddace", "implicitGemmNCDHWdace",
                                        "implicitGemmsplitKdace", "directConvNCDHWdace", "directConvNCDHWnobuffer",
                                        "directConvNCDHWmergeddace", "directConvNCDHWtileIC"};
    struct caps cpu = {.arch = "test"}, gpu = {.arch = "test", .is_gpu = true};
    struct candidate c;
    struct err e = {0};
    for (u32 i = 0; i < countof(names); i++) {
        const struct conv_impl *x = conv_impl_find(str_of(names[i]));
        assert_true(x && x == conv_impl_at(i));
        assert_int_equal(x->channels_last, i < 3);
        assert_true(conv_impl_check(x, &cpu) && conv_impl_check(x, &gpu));
    }
    assert_null(conv_impl_at(countof(names)));
    assert_null(conv_impl_find(S("implicitGemm")));
    const struct conv_impl *split = conv_impl_find(S("implicitGemmsplitKdace")), *one = conv_impl_find(S("implicitGemmdace"));
    assert_true(candidate_parse(&c, S("wg_igemm.3 tr=8 tc=2 tm=4 tn=8 near=1 order=2 bk=1 stage=2 pipe=1 split_k=8"), &e));
    assert_true(conv_impl_keeps(split, &c, &gpu) && !conv_impl_keeps(one, &c, &gpu));
    assert_true(candidate_parse(&c, S("wg_igemm.3 tr=8 tc=2 tm=4 tn=8 near=1 order=2 bk=1 stage=2 pipe=1 split_k=1"), &e));
    assert_false(conv_impl_keeps(split, &c, &gpu));
    assert_true(candidate_parse(&c, S("wg_igemm.3 tr=128 tc=2 tm=1 tn=1 near=1 order=0 bk=16 stage=0 pipe=0 split_k=1"), &e));
    assert_true(conv_impl_keeps(one, &c, &gpu) && !conv_impl_keeps(split, &c, &gpu));
    assert_true(candidate_parse(&c, S("conv_igemm.7 tx=12 nr=2 tb=8 ob=0 bk=1 split_k=4 copy=1 order=0 ku=1 ahead=0 nt=0"), &e));
    assert_true(conv_impl_keeps(split, &c, &cpu) && !conv_impl_keeps(one, &c, &cpu) && !conv_impl_keeps(split, &c, &gpu));
}

/* Tasks that the family rejects are reported with its name. */
static void test_refused(void **state)
{
    struct fixture b;
    struct candidate c;
    fixture_open(&b, 1);
    fixture_use_workgroups(&b);
    b.caps.has_f64 = false;
    struct conv_row row = {.axes = 3, .batch = 1, .channels = 4, .out_channels = 4, .groups = 1, .size = {3, 3, 3}, .kernel = {2, 2, 2},
                           .stride = {2, 2, 2}, .dilation = {1, 1, 1}};
    const struct conv_impl *x = conv_impl_find(S("directConvNCDHWnobuffer"));
    assert_true(conv_row_task(&b.t, &b.arena, &b.sym, &row, DT_F64, LAYOUT_ROWS, &b.e));
    assert_false(conv_impl_candidate(x, &b.t, &b.caps, b.var, &c, &b.e));
    assert_int_equal(b.e.code, ERR_UNSUPPORTED);
    assert_non_null(strstr(b.e.msg, "'directConvNCDHWnobuffer' is family 'wg_igemm', which does not take this convolution here"));
    fixture_close(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_table),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_fused),
        cmocka_unit_test(test_gpu),
        cmocka_unit_test(test_processor),
        cmocka_unit_test(test_cpu),
        cmocka_unit_test(test_device),
        cmocka_unit_test(test_sm_80),
        cmocka_unit_test(test_sm_90),
    };
    vulkan_stay_loaded();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
