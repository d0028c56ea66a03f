// SPDX-License-Identifier: Apache-2.0
//
// Attention by workgroups: random instances (those of test_gen_attention) in f32, f16 and bf16 under random legal schedules, for devices from the smallest to
// large ones: the interpreted kernel agrees with the reference evaluator, without races, divergent barriers or accesses outside; also where inputs lie in
// caches, with keys divided among workgroups, and with statistics of rows as results; likewise statistics alone, outputs from given ones, sums of columns.
// Some run on Vulkan and OpenCL devices, some are built for GPUs that are described. Memory of a kernel grows with positions, not with their square.
#include "attention_family.h"
#include "vulkan_fixture.h"

static void open_attention(struct fixture *b, u64 seed)
{
    fixture_open(b, seed);
    fixture_use_workgroups(b);
    b->only = gen_find(S("wg_attention"));
    b->type = seed % 5 == 3 ? DT_F16 : seed % 5 == 4 ? DT_BF16 : DT_F32;
}

static bool build_random(struct fixture *b, u64 seed) { return random_attention(b) && (seed % 3 || place_in_room(b)); }

static void test_random(void **state) { try_instances(&(struct instances){open_attention, build_random, 0, 500, .least = 100, .tries = 3}); }

/* Statistics of rows are results, too. */
static bool build_statistics(struct fixture *b, u64 seed) { return random_attention(b) && add_statistics(b) && (seed % 3 || place_in_room(b)); }

static void test_statistics(void **state) { try_instances(&(struct instances){open_attention, build_statistics, 5000, 5400, .least = 80, .tries = 3}); }

/* Rows of a product that are not those of whole heads. */
static void test_cut_heads(void **state)
{
    struct fixture b;
    open_attention(&b, 5);
    try_cut_heads(&b, 5);
    fixture_close(&b);
}

static void test_empty(void **state) { try_empty(open_attention, 150); }

static bool choose_split(struct fixture *b, struct candidate *c)
{
    static const i64 splits[] = {128, 256};
    for (u32 try = 0; try < 40; try++) {
        if (!gen_random(&b->t, &b->caps, &b->rng, c)) return false;
        if (c->gen != b->only) continue;
        set_value(c, "split", (i32)splits[try % 2]);
        if (gen_legal(c, &b->t, &b->caps)) return true;
    }
    return false;
}

static void test_legal(void **state) { try_legal(&(struct instances){open_attention, random_instance, 1000, 1300, .least = 70}, choose_split); }

static void test_split(void **state) { try_splits(open_attention, choose_split, 2800); }

/* On the devices here, also with keys divided. */
static void try_devices(const struct instances *x)
{
    struct gpus g = find_gpus();
    u32 n = 0, n_split = 0;
    for (u64 seed = first_seed(x->from, x->to); seed < last_seed(x->from, x->to); seed++) {
        struct fixture b;
        struct candidate c;
        struct check k;
        x->open(&b, seed);
        if (x->build(&b, seed) && try_gpu(&b, &g, seed)) {
            n++;
            if (choose_split(&b, &c)) {
                open_device_check(&b, &k, seed);
                if (!verify_on(&b, g.v[seed / 2 % g.n], &c, &k)) report(&b, &c, seed);
                check_release(&k);
                n_split++;
            }
        }
        fixture_close(&b);
    }
    print_message("%u devices, %u kernels, %u of them divide the keys\n", g.n, n, n_split);
    assert_true(is_enough(n, x->least) && is_enough(n_split, 1));
}

static void test_device(void **state) { try_devices(&(struct instances){open_attention, random_instance, 3000, 3150, .least = 12}); }

static bool choose_one(struct fixture *b, u64 seed, struct candidate *c) { return choose(b, (u32)(seed % 2), c); }

static void test_sm_80(void **state) { build_for(&(struct builds_for){open_attention, random_instance, choose_one, "cuda", "sm_80", "cuda", 4}); }
static void test_sm_90(void **state) { build_for(&(struct builds_for){open_attention, random_instance, choose_one, "cuda", "sm_90", "cuda", 4}); }
static void test_gfx906(void **state) { build_for(&(struct builds_for){open_attention, random_instance, choose_one, "hip", "gfx906", "hip", 7}); }

/* Statistics alone, an output from given ones, sums of columns. */
static void test_parts(void **state) { try_parts(open_attention); }
static void test_legal_parts(void **state) { try_legal(&(struct instances){open_attention, any_attention_part, 11000, 11500, .least = 140}, choose_split); }
static void test_device_parts(void **state) { try_devices(&(struct instances){open_attention, any_attention_part, 12000, 12150, .least = 7}); }

static void test_parts_sm_80(void **state) { build_for(&(struct builds_for){open_attention, any_attention_part, choose_one, "cuda", "sm_80", "cuda", 5}); }
static void test_parts_sm_90(void **state) { build_for(&(struct builds_for){open_attention, any_attention_part, choose_one, "cuda", "sm_90", "cuda", 5}); }
static void test_parts_gfx906(void **state) { build_for(&(struct builds_for){open_attention, any_attention_part, choose_one, "hip", "gfx906", "hip", 7}); }

#define HEAD "graph {\n  input %%q: f32[1,8,%d,64]\n  input %%k: f32[1,8,64,%d]\n  input %%v: f32[1,8,%d,64]\n  %%s: none[?] = MatMul(%%q, %%k)\n"
#define MAX "  %%m: none[?] = quern::ReduceMax(%%s) {axes=[3], keepdims=1}\n  %%d: none[?] = Sub(%%s, %%m)\n  %%e: none[?] = Exp(%%d)\n"
#define SUM "  %%l: none[?] = quern::ReduceSum(%%e) {axes=[3], keepdims=1}\n  %%p: none[?] = Div(%%e, %%l)\n  %%y: none[?] = MatMul(%%p, %%v)\n  output %%y\n}\n"

static bool open_head(struct fixture *b, int queries, int keys)
{
    fixture_open(b, 1);
    assert_true(dev_target(&b->caps, "cuda", S("sm_80")));
    b->only = gen_find(S("wg_attention"));
    struct str text = str_fmt(&b->arena, HEAD MAX SUM, queries, keys, keys);
    return task_parse(&b->t, &b->arena, &b->sym, text, &b->e);
}

static i64 temp_bytes(const struct fixture *b, const struct kernel *k)
{
    i64 all = 0;
    for (u32 i = 0; i < k->n_temp; i++) {
        i64 n = 0;
        assert_true(sym_eval(b->t.g.sym, k->temp[i], b->var, &n));
        all += n;
    }
    return all;
}

/* The default schedules of prompts that occupy the device need no memory; those of tokens have parts, which do. */
static void test_memory(void **state)
{
    static const struct { int queries, keys; bool has_parts; } p[] = {{4096, 4096, false}, {16384, 16384, false}, {1, 8192, true}, {1, 32768, true}};
    for (u32 i = 0; i < countof(p); i++) {
        struct fixture b;
        struct candidate c;
        struct kernel k;
        if (!open_head(&b, p[i].queries, p[i].keys)) fail_msg("%s", b.e.msg);
        c = gen_initial(b.only, &b.t, &b.caps, b.var);
        if (!gen_kernel(&k, &b.arena, &c, &b.t, &b.caps, &b.e)) report(&b, &c, 0);
        if (getenv("VERBOSE")) {
            struct buf text = {0};
            candidate_print(&text, &c);
            fprintf(stderr, "%d x %d: %lld bytes, %.*s\n", p[i].queries, p[i].keys, (long long)temp_bytes(&b, &k), STR_ARG(buf_view(&text)));
            buf_release(&text);
        }
        assert_int_equal(temp_bytes(&b, &k) > 0, p[i].has_parts);
        assert_in_range(temp_bytes(&b, &k), 0, (i64)p[i].queries * p[i].keys * 8 * 4); /* less than one score of each pair */
        assert_int_equal(value_of(&c, "split") > 0, p[i].has_parts);
        fixture_close(&b);
    }
}

/* Seconds of a schedule that leaves out what a mask of so many rows excludes, over those of one that does not. */
static double share_shown(int queries, int keys, int rows)
{
    static const char schedule[] = "half=0 wlpy=4 wlpx=8 blpy=4 blpx=1 ptr=4 ptc=4 wlox=8 blox=1 sa=16 sb=16 bswq=4 bswk=4 wswq=1 wswk=4 bswp=4 bswv=8 wswp=1 wswv=4 sp=0 rpp=0 rpo=0 "
                                   "un=4 pad=4 glwq=4 glwk=4 glwv=4 lcp=1 lco=1 sub=1 skip=%d split=0";
    struct fixture b;
    double seconds[2];
    fixture_open(&b, 1);
    assert_true(dev_target(&b.caps, "cuda", S("sm_80")));
    struct str text = str_fmt(&b.arena, "graph {\n  input %%q: f32[1,8,%d,64]\n  input %%k: f32[1,8,64,%d]\n  input %%v: f32[1,8,%d,64]\n  input %%o: bool[1,1,%d,%d]\n"
                              "  const %%i: f32[] = [-inf]\n  %%r: none[?] = MatMul(%%q, %%k)\n  %%s: none[?] = Where(%%o, %%r, %%i)\n" MAX SUM,
                              queries, keys, keys, rows, keys);
    if (!task_parse(&b.t, &b.arena, &b.sym, text, &b.e)) fail_msg("%s", b.e.msg);
    for (int skip = 0; skip < 2; skip++) {
        const struct gen *g = gen_find(S("wg_attention"));
        struct candidate c;
        struct str name = str_fmt(&b.arena, "wg_attention.%u %.*s", g->revision, STR_ARG(str_fmt(&b.arena, schedule, skip)));
        if (!candidate_parse(&c, name, &b.e)) fail_msg("%s", b.e.msg);
        assert_true(gen_legal(&c, &b.t, &b.caps));
        seconds[skip] = gen_predict(&c, &b.t, &b.caps, b.var);
    }
    fixture_close(&b);
    return seconds[1] / seconds[0];
}

/* Masks of rows count as causal: of as many queries as keys a little more than half of the keys are left, of few behind many nearly all. */
static void test_shown(void **state)
{
    const double square = share_shown(2048, 2048, 2048), last = share_shown(64, 2048, 64), alike = share_shown(64, 2048, 1);
    print_message("%.2f of a square, %.2f of the last rows, %.2f where rows are alike\n", square, last, alike);
    assert_true(square > 0.4 && square < 0.65 && last > 0.95 && alike > 0.8 && alike < 0.99);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random), cmocka_unit_test(test_statistics), cmocka_unit_test(test_cut_heads), cmocka_unit_test(test_legal),
        cmocka_unit_test(test_split), cmocka_unit_test(test_empty), cmocka_unit_test(test_device),
        cmocka_unit_test(test_sm_80),  cmocka_unit_test(test_sm_90), cmocka_unit_test(test_gfx906), cmocka_unit_test(test_memory), cmocka_unit_test(test_shown),
        cmocka_unit_test(test_parts), cmocka_unit_test(test_legal_parts), cmocka_unit_test(test_device_parts),
        cmocka_unit_test(test_parts_sm_80), cmocka_unit_test(test_parts_sm_90), cmocka_unit_test(test_parts_gfx906),
    };
    vulkan_stay_loaded();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
