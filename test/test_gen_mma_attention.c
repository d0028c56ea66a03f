// SPDX-License-Identifier: Apache-2.0
//
// Attention by matrix units: random instances (those of test_gen_attention: masks, bands, softcap, bias, sinks, heads that share keys, caches) in each type
// that matrix units take, under the default schedule and random legal ones, for devices with fragments of many shapes: the interpreted kernel agrees with
// the reference evaluator, without races, divergent barriers or accesses outside; also with keys divided among workgroups; likewise statistics alone, outputs
// from given ones, sums of columns. Some run on a device here that has matrix units. They are emitted for GPUs that are described, some are built.
#include "attention_family.h"
#include "vulkan_fixture.h"

/* Now and then all operands of f32 are rounded to tf32. */
static void open_units(struct fixture *b, u64 seed)
{
    fixture_open(b, seed);
    do fixture_use_workgroups(b);
    while (!b->caps.matrix[0]);
    b->only = gen_find(S("mma_attention"));
    b->type = fixture_matrix_type(b);
    if (seed % 5 == 4 && strstr(b->caps.matrix, "tf32")) b->type = DT_F32, b->tf32 = true;
    b->caps.shared_bytes *= 2; /* fragments of 32 x 32, at least with a short head */
}

struct seen { u32 n, type[N_DTYPES], tf32, side[33], ahead, units, rows, apart; };

static void tally(const struct fixture *b, const struct candidate *c, struct seen *s)
{
    s->n++;
    s->type[b->type]++, s->tf32 += b->tf32;
    s->side[value_of(c, "m")]++;
    s->ahead += value_of(c, "sp") > 0, s->units += value_of(c, "gn") > 1, s->rows += value_of(c, "wm") > 1, s->apart += value_of(c, "kv") > 1;
}

static void test_random(void **state)
{
    struct seen s = {0};
    for (u64 seed = first_seed(0, 700); seed < last_seed(0, 700); seed++) {
        struct fixture b;
        struct check k;
        if (open_check(&b, &k, open_units, seed)) {
            for (u32 i = 0; i < 3; i++) {
                struct candidate c = i ? fixture_schedule(&b, b.only) : gen_initial(b.only, &b.t, &b.caps, b.var);
                if (!run(&b, &c, &k)) report(&b, &c, seed);
                tally(&b, &c, &s);
            }
            check_release(&k);
        }
        fixture_close(&b);
    }
    print_message("%u kernels: f16 %u, bf16 %u, f32 %u, of them tf32 %u; rows of a fragment 4: %u, 8: %u, 16: %u, 32: %u; ahead %u, units along columns %u, several rows %u, arrays apart %u\n",
                  s.n, s.type[DT_F16], s.type[DT_BF16], s.type[DT_F32], s.tf32, s.side[4], s.side[8], s.side[16], s.side[32], s.ahead, s.units, s.rows, s.apart);
    assert_true(is_enough(s.n, 200) && is_enough(s.type[DT_F16], 40) && is_enough(s.type[DT_BF16], 20) && is_enough(s.type[DT_F32], 20) && is_enough(s.tf32, 5));
    for (u32 i = 4; i <= 32; i *= 2) assert_true(is_enough(s.side[i], 5));
    assert_true(is_enough(s.ahead, 10) && is_enough(s.units, 10) && is_enough(s.rows, 10) && is_enough(s.apart, 20));
}

static void test_split(void **state) { try_splits(open_units, choose_wide_split, 2900); }

static void test_empty(void **state) { try_empty(open_units, 150); }

/* Statistics alone, an output from given ones, sums of columns. */
static void test_parts(void **state) { try_parts(open_units); }
static void test_legal_parts(void **state) { try_legal(&(struct instances){open_units, any_attention_part, 16000, 16500, .least = 130}, choose_wide_split); }

/* Some scores are so large that all but one exponential of a row vanish: not where operands are rounded to tf32, whose errors exponentials of large numbers
   magnify. */
static void open_head(struct fixture *b, u64 seed)
{
    static const struct { enum dtype type; const char *driver, *arch; } on[] = {
        {DT_F16, "cuda", "sm_80"}, {DT_BF16, "hip", "gfx90a"}, {DT_BF16, "cuda", "sm_90"}, {DT_F32, "cuda", "sm_80"}, {DT_F16, "hip", "gfx942"}, {DT_F32, "hip", "gfx908"}};
    const u32 i = (u32)(seed % countof(on));
    fixture_open(b, seed);
    assert_true(dev_target(&b->caps, on[i].driver, str_of(on[i].arch)));
    b->only = gen_find(S("mma_attention"));
    b->type = on[i].type;
    b->tf32 = b->type == DT_F32 && strstr(b->caps.matrix, "tf32");
    make_head(b, seed % 3 ? 0.25 : b->tf32 ? 1.0 : 32.0);
}

static void test_heads(void **state) { try_heads(open_head); }

static void test_exact(void **state) { try_exact(open_units, 7160); }

static void open_halves(struct fixture *b, u64 seed)
{
    fixture_open(b, seed);
    b->only = gen_find(S("mma_attention"));
    b->type = seed % 3 ? DT_F16 : DT_BF16;
}

static void test_device(void **state) { try_on_devices(open_halves); }

/* Types of the target's own matrix units, on the tasks of all seeds. */
static void open_described(struct fixture *b, u64 seed)
{
    fixture_open(b, seed);
    b->only = gen_find(S("mma_attention"));
    b->type = seed % 3 == 0 ? DT_F16 : seed % 3 == 1 ? DT_BF16 : DT_F32;
    b->tf32 = b->type == DT_F32;
}

static void open_f16(struct fixture *b, u64 seed)
{
    open_described(b, seed);
    b->type = DT_F16, b->tf32 = false;
}

static void build(const char *driver, const char *arch, const char *lang, u64 every)
{
    open_fixture *open = strcmp(arch, "sm_75") ? open_described : open_f16; /* it has no other matrix units */
    build_for(&(struct builds_for){open, random_instance, choose_usual, driver, arch, lang, every});
}

static void test_parts_built(void **state)
{
    build_for(&(struct builds_for){open_described, any_attention_part, choose_usual, "cuda", "sm_80", "cuda", 6});
    build_for(&(struct builds_for){open_described, any_attention_part, choose_usual, "cuda", "sm_90", "ptx", 6});
    build_for(&(struct builds_for){open_described, any_attention_part, choose_usual, "hip", "gfx90a", "hip", 6});
}

static void test_cuda(void **state) { build("cuda", "sm_80", "cuda", 4), build("cuda", "sm_90", "cuda", 9), build("cuda", "sm_75", "cuda", 9); }
static void test_ptx(void **state) { build("cuda", "sm_80", "ptx", 4), build("cuda", "sm_90", "ptx", 9); }
static void test_hip(void **state) { build("hip", "gfx90a", "hip", 4), build("hip", "gfx908", "hip", 9); }

/* A device without matrix units, and operands of several types, are for other families. */
static void test_others(void **state)
{
    u32 n = 0;
    for (u64 seed = first_seed(5000, 5040); seed < last_seed(5000, 5040); seed++) {
        struct fixture b;
        open_described(&b, seed);
        assert_true(dev_target(&b.caps, "hip", S("gfx906")));
        if (random_attention(&b)) assert_false(gen_matches(b.only, &b.t, &b.caps)), n++;
        assert_true(dev_target(&b.caps, "cuda", S("sm_75")));
        if (b.type != DT_F16 && b.t.n_heavy) assert_false(gen_matches(b.only, &b.t, &b.caps));
        fixture_close(&b);
    }
    assert_true(is_enough(n, 10));
}

/* Fragments of sizes that parameters cannot have are not taken: what a target lists is data. Those behind them are. */
static void test_shapes(void **state)
{
    static const char text[] = "graph {\n  input %q: f16[1,8,100,64]\n  input %k: f16[1,8,64,100]\n  input %v: f16[1,8,100,64]\n  %s: none[?] = MatMul(%q, %k)\n"
                               "  %m: none[?] = quern::ReduceMax(%s) {axes=[3], keepdims=1}\n  %d: none[?] = Sub(%s, %m)\n  %e: none[?] = Exp(%d)\n"
                               "  %l: none[?] = quern::ReduceSum(%e) {axes=[3], keepdims=1}\n  %p: none[?] = Div(%e, %l)\n  %y: none[?] = MatMul(%p, %v)\n  output %y\n}\n";
    static const char *const odd[] = {"24x24x8", "16x24x16", "24x8x16", "64x16x8", "2x32x8", "16x16x1"};
    for (u32 i = 0; i < 2 * countof(odd); i++) {
        struct fixture b;
        struct buf printed = {0};
        struct candidate back;
        fixture_open(&b, i);
        b.only = gen_find(S("mma_attention"));
        assert_true(dev_target(&b.caps, "cuda", S("sm_80")));
        snprintf(b.caps.matrix, sizeof b.caps.matrix, "%s:f16,f16,f32,f32%s", odd[i / 2], i % 2 ? " 16x8x16:f16,f16,f32,f32" : "");
        if (!task_parse(&b.t, &b.arena, &b.sym, S(text), &b.e)) fail_msg("%s", b.e.msg);
        if (gen_matches(b.only, &b.t, &b.caps) != i % 2) fail_msg("%s", b.caps.matrix);
        if (i % 2) {
            struct candidate c = gen_initial(b.only, &b.t, &b.caps, b.var);
            candidate_print(&printed, &c);
            if (!candidate_parse(&back, buf_view(&printed), &b.e)) report(&b, &c, i);
            assert_true(value_of(&c, "m") == 16 && value_of(&c, "n") == 8);
        }
        buf_release(&printed);
        fixture_close(&b);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_random), cmocka_unit_test(test_split), cmocka_unit_test(test_empty), cmocka_unit_test(test_heads), cmocka_unit_test(test_exact), cmocka_unit_test(test_device), cmocka_unit_test(test_cuda),
                                       cmocka_unit_test(test_ptx),    cmocka_unit_test(test_hip),   cmocka_unit_test(test_others), cmocka_unit_test(test_shapes),
                                       cmocka_unit_test(test_parts),  cmocka_unit_test(test_legal_parts), cmocka_unit_test(test_parts_built)};
    vulkan_stay_loaded();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
