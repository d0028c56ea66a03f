// SPDX-License-Identifier: Apache-2.0
//
// GEMMs that were never measured: the nearest task of the database provides its fastest legal
// schedule if that is expected to be faster than the default, and quern_compile uses it. Times are
// simulated.
#include "api/api_model.h"

#include "lab/lab.h"

#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

struct fixture {
    struct arena a;
    quern *q;
    quern_db *db;
    struct api_target cpu;
    i64 env;
    struct err e;
};

static void fixture_open(struct fixture *b)
{
    memset(b, 0, sizeof *b);
    b->q = quern_open(NULL);
    assert_int_equal(quern_db_open(b->q, ":memory:", &b->db), QUERN_OK);
    assert_true(api_target_open(&b->cpu, "cpu", 1, NULL, &b->e));
    api_target_rates(&b->cpu, b->q); /* choices depend on them */
    b->env = db_env(&b->db->db, buf_view(&b->cpu.fingerprint), buf_view(&b->cpu.toolchain), &b->e);
    assert_true(b->env);
}

static void fixture_close(struct fixture *b)
{
    api_target_close(&b->cpu);
    quern_db_close(b->db);
    quern_close(b->q);
    arena_release(&b->a);
}

static struct tune_task *product(struct fixture *b, i64 m, i64 n, i64 k)
{
    struct symtab *st = arena_new(&b->a, struct symtab);
    struct task *t = arena_new(&b->a, struct task);
    struct tune_task *x = arena_new(&b->a, struct tune_task);
    const struct lab_config c = {.m = m, .n = n, .k = k};
    symtab_init(st, &b->a);
    assert_true(lab_task(t, &b->a, st, &c, DT_F32, &b->e));
    *x = (struct tune_task){t, arena_array(&b->a, i64, 1), 1};
    return x;
}

/* A verified trial; base 0: the reference that others are timed beside. */
static void remember(struct fixture *b, const struct tune_task *t, const struct candidate *c, double seconds, double base)
{
    struct db *d = &b->db->db;
    struct buf text = {0};
    candidate_print(&text, c);
    i64 trial = db_trial(d, b->env, db_task(d, t->task, &b->e), S(""), buf_view(&text), &b->e);
    assert_true(trial && db_sample(d, trial, &(struct sample){.seconds = seconds, .base = base}, &b->e));
    assert_true(db_trial_status(d, trial, TRIAL_OK, S(""), &b->e));
    buf_release(&text);
}

static struct candidate default_of(const struct fixture *b, const struct tune_task *t)
{
    struct candidate c;
    assert_true(gen_default(t->task, &b->cpu.caps, t->var, &c));
    return c;
}

/* Legal for both, of no more than twice the default's predicted time there and here, and not the default of either. */
static struct candidate another(const struct fixture *b, const struct tune_task *t, const struct tune_task *u)
{
    struct rng r = rng_seed(1);
    const struct tune_task *both[] = {t, u};
    for (u32 try = 0; try < 5000; try++) {
        struct candidate c;
        bool fine = gen_random(t->task, &b->cpu.caps, &r, &c);
        for (u32 i = 0; i < 2 && fine; i++) {
            struct candidate d = default_of(b, both[i]);
            fine = gen_matches(c.gen, both[i]->task, &b->cpu.caps) && gen_legal(&c, both[i]->task, &b->cpu.caps) &&
                   memcmp(&c, &d, sizeof c) &&
                   gen_predict(&c, both[i]->task, &b->cpu.caps, both[i]->var) < 2 * gen_predict(&d, both[i]->task, &b->cpu.caps, both[i]->var);
        }
        if (fine) return c;
    }
    fail_msg("no second schedule");
    return (struct candidate){0};
}

static bool same(const struct candidate *a, const struct candidate *b)
{
    return a->gen == b->gen && !memcmp(&a->sched, &b->sched, sizeof a->sched);
}

/* The fastest candidate of the nearest task, and its reference. */
static void test_nearest(void **state)
{
    struct fixture b;
    struct known k;
    struct known_found f;
    fixture_open(&b);
    struct tune_task *near = product(&b, 64, 96, 128), *far = product(&b, 512, 96, 128), *here = product(&b, 72, 96, 128);
    struct candidate base = default_of(&b, near), fast = another(&b, near, here), slow = default_of(&b, far);
    struct known_for want = {.task = here->task, .var = here->var, .caps = &b.cpu.caps};
    assert_true(known_load(&k, &b.db->db, b.env, &b.a, &b.e) && !known_nearest(&k, &want, &f, &b.e) && !b.e.code);
    remember(&b, far, &slow, 3, 0);
    remember(&b, near, &base, 4, 0);
    remember(&b, near, &fast, 1, 4);
    assert_true(known_load(&k, &b.db->db, b.env, &b.a, &b.e) && known_nearest(&k, &want, &f, &b.e));
    assert_true(same(&f.cand, &fast) && same(&f.base, &base) && f.seconds == 1 && f.ratio == 0.25 && f.distance > 0 && f.distance < 1);
    fixture_close(&b);
}

/* Candidates that were slower there are not used, nor those without a reference. */
static void test_improves(void **state)
{
    struct fixture b;
    fixture_open(&b);
    struct tune_task *near = product(&b, 64, 96, 128), *here = product(&b, 72, 96, 128);
    struct candidate base = default_of(&b, near), other = another(&b, near, here), now = default_of(&b, here);
    struct known_for want = {.task = here->task, .var = here->var, .caps = &b.cpu.caps};
    struct known_found f = {.task = near, .cand = other, .base = base, .ratio = 0.01};
    assert_true(known_improves(&f, &want, &now));
    f.ratio = 100;
    assert_false(known_improves(&f, &want, &now));
    f.ratio = 0.01, f.base.gen = NULL;
    assert_false(known_improves(&f, &want, &now));
    fixture_close(&b);
}

/* The expected kernel of a compiled GEMM. */
static void expect_kernel(struct fixture *b, quern_model *m, const struct candidate *c)
{
    char path[] = "/tmp/quern_nearest_XXXXXX", *said = NULL;
    struct quern_compile_opts o = QUERN_OPTS(quern_compile_opts);
    quern_program *p = NULL;
    struct buf want = {0};
    int fd = mkstemp(path);
    o.device = "cpu", o.threads = 1;
    assert_true(fd >= 0);
    assert_int_equal(quern_compile(m, b->db, &o, &p), QUERN_OK);
    assert_int_equal(quern_program_save(p, path), QUERN_OK);
    assert_int_equal(quern_explain(b->q, path, &said), QUERN_OK);
    candidate_print(&want, c);
    buf_char(&want, 0);
    if (!strstr(said, want.p)) fail_msg("no %s in %s", want.p, said);
    buf_release(&want);
    quern_text_free(said);
    quern_program_close(p);
    remove(path);
}

static void test_compile(void **state)
{
    struct fixture b;
    quern_model *m = NULL;
    struct quern_gemm_shape x = QUERN_OPTS(quern_gemm_shape);
    x.m = 72, x.n = 96, x.k = 128;
    fixture_open(&b);
    struct tune_task *near = product(&b, 64, 96, 128), *here = product(&b, 72, 96, 128);
    struct candidate base = default_of(&b, near), fast = another(&b, near, here), usual = default_of(&b, here);
    assert_int_equal(quern_model_gemm(b.q, &x, &m), QUERN_OK);
    expect_kernel(&b, m, &usual);
    remember(&b, near, &base, 4, 0);
    expect_kernel(&b, m, &usual);
    remember(&b, near, &fast, 0.04, 4);
    expect_kernel(&b, m, &fast);
    remember(&b, here, &usual, 4, 0); /* measured schedules are never replaced */
    expect_kernel(&b, m, &usual);
    quern_model_close(m);
    fixture_close(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_nearest), cmocka_unit_test(test_improves), cmocka_unit_test(test_compile)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
