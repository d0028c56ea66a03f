// SPDX-License-Identifier: Apache-2.0
//
// Attention by matrix units of warpgroups: random instances (those of test_gen_attention: masks, bands, softcap, bias, sinks, heads that share keys, caches) in
// f16 and bf16, under the default schedule and random legal ones: the interpreted kernel agrees with the reference evaluator, without races, divergent barriers
// or accesses outside; also with keys divided among workgroups, and with usual heads. Some run on a device here that has such units. They are emitted for the
// architecture that has them, and some are built.
#include "attention_family.h"
#include "vulkan_fixture.h"

static void open_halves(struct fixture *b, u64 seed)
{
    fixture_open(b, seed);
    b->only = gen_find(S("wgmma_attention"));
    b->type = seed / 2 % 2 ? DT_F16 : DT_BF16;
}

static void open_units(struct fixture *b, u64 seed)
{
    open_halves(b, seed);
    fixture_use_workgroups(b);
    fixture_use_warpgroups(b);
}

struct seen { u32 n, type[N_DTYPES], gm[5], bc[257], stages[5], skip; };

static void tally(const struct fixture *b, const struct candidate *c, struct seen *s)
{
    s->n++;
    s->type[b->type]++;
    s->gm[value_of(c, "gm")]++, s->bc[value_of(c, "bc")]++, s->stages[value_of(c, "stages")]++, s->skip += value_of(c, "skip") > 0;
}

/* The default, a random schedule, and one far from those that are worth trying. */
static struct candidate choose_of(struct fixture *b, u32 i)
{
    struct candidate c = i == 1 ? fixture_schedule(b, b->only) : gen_initial(b->only, &b->t, &b->caps, b->var);
    if (i == 2) strew(b, &c);
    return c;
}

static void test_random(void **state)
{
    struct seen s = {0};
    for (u64 seed = first_seed(0, 300); seed < last_seed(0, 300); seed++) {
        struct fixture b;
        struct check k;
        if (open_check(&b, &k, open_units, seed)) {
            for (u32 i = 0; i < 3; i++) {
                struct candidate c = choose_of(&b, i);
                if (!run(&b, &c, &k)) report(&b, &c, seed);
                tally(&b, &c, &s);
            }
            check_release(&k);
        }
        fixture_close(&b);
    }
    print_message("%u kernels: f16 %u, bf16 %u; warpgroups 1: %u, 2: %u, 4: %u; keys of a block 64: %u, 128: %u; stages 2: %u, 3: %u, 4: %u; skip %u\n", s.n, s.type[DT_F16],
                  s.type[DT_BF16], s.gm[1], s.gm[2], s.gm[4], s.bc[64], s.bc[128], s.stages[2], s.stages[3], s.stages[4], s.skip);
    assert_true(is_enough(s.n, 200) && is_enough(s.type[DT_F16], 40) && is_enough(s.type[DT_BF16], 40) && is_enough(s.skip, 5));
    for (u32 i = 1; i <= 4; i *= 2) assert_true(is_enough(s.gm[i], 10));
    for (u32 i = 2; i <= 4; i++) assert_true(is_enough(s.stages[i], 10));
    assert_true(is_enough(s.bc[64], 20) && is_enough(s.bc[128], 10));
}

static void test_split(void **state) { try_splits(open_units, choose_wide_split, 2500); }

static void test_empty(void **state) { try_empty(open_units, 20); }

/* Some scores are so large that all but one exponential of a row vanish. */
static void open_head(struct fixture *b, u64 seed)
{
    open_halves(b, seed);
    assert_true(dev_target(&b->caps, "cuda", S("sm_90a")));
    make_head(b, seed % 3 ? 0.25 : 32.0);
}

static void test_heads(void **state) { try_heads(open_head); }
static void test_exact(void **state) { try_exact(open_units, 7060); }
static void test_device(void **state) { try_on_devices(open_halves); }

static bool choose_one(struct fixture *b, u64 seed, struct candidate *c)
{
    *c = choose_of(b, (u32)(seed / 2 % 3));
    return true;
}

static void test_cuda(void **state) { build_for(&(struct builds_for){open_halves, random_instance, choose_one, "cuda", "sm_90a", "cuda", 6}); }
static void test_ptx(void **state) { build_for(&(struct builds_for){open_halves, random_instance, choose_one, "cuda", "sm_90a", "ptx", 4}); }

/* Targets without warpgroups, and types that they do not multiply, are for other families. */
static void test_others(void **state)
{
    u32 n = 0;
    for (u64 seed = first_seed(5000, 5040); seed < last_seed(5000, 5040); seed++) {
        struct fixture b;
        open_halves(&b, seed);
        if (seed % 4 == 3) b.type = DT_F32, b.tf32 = true;
        assert_true(dev_target(&b.caps, "cuda", seed % 4 == 3 ? S("sm_90a") : S("sm_90")));
        if (random_attention(&b)) assert_false(gen_matches(b.only, &b.t, &b.caps)), n++;
        fixture_close(&b);
    }
    assert_true(is_enough(n, 10));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_random), cmocka_unit_test(test_split), cmocka_unit_test(test_empty), cmocka_unit_test(test_heads), cmocka_unit_test(test_exact),
                                       cmocka_unit_test(test_device), cmocka_unit_test(test_cuda),  cmocka_unit_test(test_ptx), cmocka_unit_test(test_others)};
    vulkan_stay_loaded();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
