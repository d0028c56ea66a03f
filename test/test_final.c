// SPDX-License-Identifier: Apache-2.0
//
// The tuner's choice is not slower than the default, however noisy the machine. The whole loop with
// a simulated driver: each kernel has a true time, samples scatter around it, and now and then the
// machine is slowed, the default more than others. Finals and choices as functions of rows.
#include "pass/pass.h"
#include "seeds.h"
#include "tune/tune.h"

#include <math.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <cmocka.h>

/* The driver: computes on the CPU, and reports simulated times. */

enum { MOST_LOADED = 64 };
static const double base_seconds = 1e-3;

struct planted {              /* in memory that child processes share */
    u64 seed;
    struct rng rng;
    u64 base;                 /* the default */
    double spread;            /* of a sample, logarithm */
    bool is_correlated;
    u32 left;                 /* runs until is_slow changes */
    bool is_slow;
    struct { const struct dev_kernel *kernel; u64 code; } loaded[MOST_LOADED];
    double seconds, elapsed;  /* since the last fence, and between the last two */
};

static struct planted *planted;
static struct dev_driver driver;

/* A kernel's name has its schedule in it. */
static u64 code_of(struct str name) { return hash_bytes(name.p, name.n).lo; }

/* From a tenth faster than the default to half as slow again. */
static double true_seconds(u64 code)
{
    struct rng r = rng_seed(code ^ planted->seed * 0x9e3779b97f4a7c15u);
    return base_seconds * (code == planted->base ? 1 : 0.9 + 0.6 * rng_f64(&r));
}

static double normal(void)
{
    double s = -6;
    for (int i = 0; i < 12; i++) s += rng_f64(&planted->rng);
    return s;
}

/* While the machine is slow the default takes twice its time, others 1.1 to 2.2 times theirs. */
static double slowdown_of(u64 code)
{
    struct rng r = rng_seed(code + 1);
    if (planted->left-- == 0) {
        planted->is_slow = planted->is_correlated && !planted->is_slow;
        planted->left = (u32)rng_range(&planted->rng, 20, planted->is_slow ? 80 : 300);
    }
    double others = 1.1 + 1.1 * rng_f64(&r);
    return !planted->is_slow ? 1 : code == planted->base ? 2 : others;
}

static struct dev *open_planted(const struct dev_opts *o, struct err *e)
{
    struct dev *d = dev_find(S("cpu"))->open(o, e);
    if (d) d->driver = &driver;
    memset(planted->loaded, 0, sizeof planted->loaded); /* the child before owned these */
    return d;
}

static void fingerprint(struct dev *d, struct buf *out) { buf_printf(out, "planted %llu", (unsigned long long)planted->seed); }

static struct dev_kernel *load(struct dev *d, struct str binary, struct str entry, u32 n_grid, struct err *e)
{
    struct dev_kernel *k = dev_find(S("cpu"))->load(d, binary, entry, n_grid, e);
    u32 i = 0;
    while (k && i < MOST_LOADED && planted->loaded[i].kernel) i++;
    if (k && i == MOST_LOADED) abort();
    if (k) planted->loaded[i].kernel = k, planted->loaded[i].code = code_of(entry);
    return k;
}

static u32 loaded_at(const struct dev_kernel *k)
{
    u32 i = 0;
    while (planted->loaded[i].kernel != k) i++;
    return i;
}

static void unload(struct dev *d, struct dev_kernel *k)
{
    planted->loaded[loaded_at(k)].kernel = NULL;
    dev_find(S("cpu"))->unload(d, k);
}

static bool launch(struct dev *d, const struct dev_launch *l, struct err *e)
{
    u64 code = planted->loaded[loaded_at(l->kernel)].code;
    if (!planted->base) planted->base = code; /* the default comes first */
    planted->seconds += true_seconds(code) * slowdown_of(code) * exp(planted->spread * normal());
    return dev_find(S("cpu"))->launch(d, l, e);
}

static bool fence(struct dev *d, struct err *e)
{
    planted->elapsed = planted->seconds;
    planted->seconds = 0;
    return true;
}

static double elapsed(struct dev *d) { return planted->elapsed; }

static void plant(u64 seed, double spread, bool is_correlated)
{
    if (!planted) planted = mmap(NULL, sizeof *planted, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(planted != MAP_FAILED);
    *planted = (struct planted){.seed = seed, .rng = rng_seed(seed), .spread = spread, .is_correlated = is_correlated, .left = 50};
    driver = *dev_find(S("cpu"));
    driver.shares = true;
    driver.open = open_planted, driver.fingerprint = fingerprint, driver.load = load, driver.unload = unload;
    driver.launch = launch, driver.fence = fence, driver.elapsed = elapsed;
}

/* a task and its results */

struct fixture { struct arena arena; struct symtab sym; struct graph g; struct cover cover; struct tune_task task; struct db db; i64 var[1]; };

static void fixture_open(struct fixture *b)
{
    static const char text[] =
        "graph {\n  input %x: f32[16,16]\n  input %y: f32[16,32]\n  %z: f32[16,32] = MatMul(%x, %y)\n  output %z\n}\n";
    struct err e = {0};
    *b = (struct fixture){0};
    symtab_init(&b->sym, &b->arena);
    if (!graph_parse(&b->g, &b->arena, &b->sym, str_of(text), &e) || !pass_run_all(&b->g, NULL, &e) ||
        !cover_build(&b->cover, &b->g, &b->arena, NULL, &e) || !db_open(&b->db, ":memory:", &e))
        fail_msg("%s", e.msg);
    for (u32 i = 0; i < b->cover.task.n; i++)
        if (b->cover.task.v[i]->anchor) b->task = (struct tune_task){b->cover.task.v[i], b->var, 1};
    assert_non_null(b->task.task);
}

static void fixture_close(struct fixture *b)
{
    struct arena a = b->arena;
    db_close(&b->db);
    arena_release(&a);
}

/* Of a candidate, over the default's. */
static double true_ratio(struct fixture *b, const struct candidate *c, const struct caps *caps)
{
    struct arena a = {0};
    struct err e = {0};
    struct kernel k;
    assert_true(gen_kernel(&k, &a, c, b->task.task, caps, &e));
    double r = true_seconds(code_of(str_of(k.name))) / base_seconds;
    arena_release(&a);
    return r;
}

/* True time of the choice over the default's, and the least of all eligible candidates. */
struct outcome { double chosen, least; struct candidate cand; u32 n_final; };

static struct outcome tune(struct fixture *b, u64 seed, double spread, bool is_correlated)
{
    struct err e = {0};
    struct tune_result r;
    struct task_known k;
    struct trial_row *rows;
    struct caps caps;
    struct buf fp = {0};
    u32 n;
    plant(seed, spread, is_correlated);
    struct tune_opts o = {.driver = &driver, .dev = {.n_threads = 1}, .max_candidates = 20, .add_candidates = true, .measure = true};
    if (!tune_run(&b->db, &b->task, 1, &o, &r, &e) || !dev_ask(&driver, &o.dev, &caps, &fp, &e)) fail_msg("%s", e.msg);
    struct buf chain = {0};
    assert_true(lang_find(S("c"))->toolchain(&chain, &caps, &e));
    i64 env = db_env(&b->db, buf_view(&fp), buf_view(&chain), &e), task = db_task(&b->db, b->task.task, &e);
    assert_true(tune_best(&b->db, env, b->task.task, b->var, &k, &e) && k.measured);
    assert_true(db_trials(&b->db, env, task, S(""), &b->arena, &rows, &n, &e) && n > 10);
    struct outcome x = {.chosen = true_ratio(b, &k.best, &caps), .least = 1, .cand = k.best};
    for (u32 i = 0; i < n; i++) {
        x.n_final += rows[i].n_final;
        if (rows[i].status == TRIAL_OK) x.least = fmin(x.least, true_ratio(b, &rows[i].cand, &caps));
    }
    buf_release(&chain);
    buf_release(&fp);
    return x;
}

/* Over many seeds, no choice is slower than the default beyond the resolution of the samples, and
   most are nearly optimal. */
static void noise(double spread, bool is_correlated, double worst, double mean)
{
    struct fixture b;
    double sum = 0, most = 0;
    u32 n = 0, n_final = 0;
    fixture_open(&b);
    for (u64 seed = first_seed(1, 11); seed < last_seed(1, 11); seed++, n++) {
        struct outcome x = tune(&b, seed, spread, is_correlated);
        most = fmax(most, x.chosen);
        sum += x.chosen / x.least;
        n_final += x.n_final > 0;
    }
    if (most > worst || sum / n > mean) fail_msg("at worst %g times the default's time, %g times the best's in the mean", most, sum / n);
    assert_true(2 * n_final > n);
    fixture_close(&b);
}

static void test_quiet(void **state) { noise(0.003, false, 1.0, 1.01); }
static void test_noise(void **state) { noise(0.1, false, 1.03, 1.06); }
static void test_correlated_noise(void **state) { noise(0.05, true, 1.03, 1.06); }

/* The same rows, the same choice; the same noise, the same rows. */
static void test_repeatable(void **state)
{
    struct fixture a, b;
    fixture_open(&a);
    fixture_open(&b);
    for (u64 seed = first_seed(1, 5); seed < last_seed(1, 5); seed++) {
        struct outcome x = tune(&a, seed, 0.1, true), y = tune(&b, seed, 0.1, true);
        assert_true(x.chosen == y.chosen && x.least == y.least && x.n_final == y.n_final);
        assert_memory_equal(&x.cand, &y.cand, sizeof x.cand);
    }
    fixture_close(&a);
    fixture_close(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_quiet), cmocka_unit_test(test_noise), cmocka_unit_test(test_correlated_noise), cmocka_unit_test(test_repeatable),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
