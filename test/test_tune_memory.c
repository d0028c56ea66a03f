// SPDX-License-Identifier: Apache-2.0
//
// A tuning run keeps little memory per candidate, whatever its kernel: a run may have a hundred
// thousand candidates.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "many_candidates.h"
#include "seeds.h"

enum { FEW = 40, MOST_BYTES = 3000 /* of one candidate: its schedule, row, text and places in tables that double */ };

static void memory_does_not_grow_with_kernels(void **state)
{
    struct many m;
    struct err e = {0};
    i64 kept[2], done[2];
    const struct dev_driver interp = many_driver(), *driver = &interp;
    assert_true(many_open(&m, driver, &e));
    for (int i = 0; i < 2; i++) {
        struct db d;
        assert_true(db_open(&d, ":memory:", &e));
        m.rng = rng_seed(1);
        if (!many_run(&m, &d, driver, i ? 4 * FEW : FEW, &e)) fail_msg("%s", e.msg);
        kept[i] = m.result.memory, done[i] = m.done;
        db_close(&d);
    }
    print_message("%lld candidates: %lld bytes, %lld: %lld\n", (long long)done[0], (long long)kept[0], (long long)done[1], (long long)kept[1]);
    assert_true(done[1] >= 4 * FEW && done[0] >= FEW && done[0] < 2 * FEW);
    assert_true(m.result.n_ok > FEW);
    assert_true(kept[1] > 0 && kept[1] - kept[0] < MOST_BYTES * (done[1] - done[0]));
    many_close(&m);
}

static struct stop stop;

static void stop_at_ten(struct many *m)
{
    if (m->done >= 10) __atomic_store_n(&stop.is_set, 1, __ATOMIC_RELAXED);
}

/* A stopped run ends like one whose time is over. */
static void a_stopped_run_keeps_its_results(void **state)
{
    for (int known = 0; known < 2; known++) {
        struct many m;
        struct db d;
        struct err e = {.stop = &stop};
        const struct dev_driver interp = many_driver(), *driver = &interp;
        stop.is_set = 0;
        assert_true(many_open(&m, driver, &e) && db_open(&d, ":memory:", &e));
        const struct tune_source source = {many_next, &m};
        struct tune_opts o = {.driver = driver, .dev = {.n_threads = 1}, .min_samples = 1, .source = &source, .add_candidates = true,
                              .measure = true, .progress = many_progress, .user = &m, .stop = &stop};
        struct tune_task t = {.task = &m.task, .var = arena_array(&m.arena, i64, 1), .weight = 1};
        m.want = 1000, m.look = stop_at_ten;
        if (!known) stop.is_set = 1;
        bool ok = tune_run(&d, &t, 1, &o, &m.result, &e);
        assert_int_equal(ok, known);
        assert_int_equal(e.code, known ? ERR_NONE : ERR_STOPPED);
        assert_true(m.result.was_stopped && m.result.n_measured == (known ? 10 : 0));
        db_close(&d);
        many_close(&m);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_does_not_grow_with_kernels),
        cmocka_unit_test(a_stopped_run_keeps_its_results),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
