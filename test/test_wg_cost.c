// SPDX-License-Identifier: Apache-2.0
//
// The cost model of workgroups: more work takes no less time, whatever the schedule and the device; loads ahead and a faster device no more.
#include "dev/dev.h"
#include "gen/wg_cost.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

enum { COUNT = 3000 };

static double draw(struct rng *r, i64 most) { return (double)rng_range(r, 1, most); }

static struct wg_work random_work(struct rng *r)
{
    struct wg_work w = {0};
    w.fmas = draw(r, 1 << 20), w.instructions = draw(r, 1 << 18);
    w.moved = draw(r, 1 << 20), w.barriers = draw(r, 3);
    return w;
}

static struct wg_facts random_facts(struct rng *r)
{
    struct wg_facts f = {.threads = (i64)16 << rng_range(r, 0, 6), .shared_bytes = rng_range(r, 0, 1) * rng_range(r, 1, 48 << 10)};
    f.workgroups = draw(r, 5000), f.regs = draw(r, 250), f.ilp = draw(r, 64), f.steps = draw(r, 100);
    f.step = random_work(r), f.rest = random_work(r);
    f.ahead = draw(r, 3) - 1, f.bytes = draw(r, 1 << 28), f.requested = f.bytes * draw(r, 8);
    f.later = draw(r, 1 << 24), f.n_later = (u32)rng_range(r, 0, 2);
    return f;
}

static bool device(struct rng *r, struct caps *c)
{
    static const char *const cuda[] = {"sm_70", "sm_80", "sm_90a"}, *const hip[] = {"gfx906", "gfx942"};
    i64 i = rng_range(r, 0, 4);
    return i < 3 ? dev_target(c, "cuda", str_of(cuda[i])) : dev_target(c, "hip", str_of(hip[i - 3]));
}

/* More of one fact. */
static void add(struct wg_facts *f, u32 which)
{
    double *fact[] = {&f->step.fmas, &f->step.instructions, &f->step.moved, &f->step.barriers, &f->rest.fmas, &f->rest.instructions, &f->rest.moved,
                      &f->rest.barriers, &f->steps, &f->later};
    if (which < countof(fact)) *fact[which] *= 2;
    else if (which == countof(fact)) f->n_later++;
    else if (which == countof(fact) + 1) f->bytes *= 2, f->requested *= 2;
    else f->workgroups *= 2, f->bytes *= 2, f->requested *= 2;
}

static void test_more_takes_longer(void **state)
{
    enum { N_FACTS = 13 };
    struct rng r = rng_seed(1);
    for (u32 i = 0; i < COUNT; i++) {
        struct caps c;
        assert_true(device(&r, &c));
        struct gen_problem p = {.c = &c, .rates = caps_rates(&c)};
        struct wg_facts f = random_facts(&r), more = f, ahead = f;
        double seconds = wg_seconds(&p, &f);
        assert_true(seconds > p.rates.launch && seconds < 1e3);
        add(&more, i % N_FACTS);
        if (wg_seconds(&p, &more) < seconds * (1 - 1e-9)) fail_msg("%s, fact %u: %g s instead of %g s", c.arch, i % N_FACTS, wg_seconds(&p, &more), seconds);
        ahead.ahead++;
        assert_true(wg_seconds(&p, &ahead) <= seconds * (1 + 1e-9));
    }
}

static void test_faster_device(void **state)
{
    struct rng r = rng_seed(2);
    for (u32 i = 0; i < COUNT; i++) {
        struct caps c;
        assert_true(device(&r, &c));
        struct gen_problem p = {.c = &c, .rates = caps_rates(&c)}, fast = p;
        const struct wg_facts f = random_facts(&r);
        for (u32 l = 0; l < N_RATE_LEVELS; l++) fast.rates.memory[l].read.all *= 2, fast.rates.memory[l].latency /= 2;
        assert_true(wg_seconds(&fast, &f) <= wg_seconds(&p, &f) * (1 + 1e-9));
    }
}

/* Nothing to do: a launch. */
static void test_nothing(void **state)
{
    struct caps c;
    assert_true(dev_target(&c, "cuda", S("sm_90")));
    struct gen_problem p = {.c = &c, .rates = caps_rates(&c)};
    double seconds = wg_seconds(&p, &(struct wg_facts){.threads = 64});
    assert_true(seconds >= p.rates.launch && seconds < 2 * p.rates.launch);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_more_takes_longer), cmocka_unit_test(test_faster_device), cmocka_unit_test(test_nothing)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
