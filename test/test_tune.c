// SPDX-License-Identifier: Apache-2.0
//
// The tuner. Planted candidates: kernels compiled from C text that crash, hang, exit, write out of
// bounds, are partly wrong or nondeterministic; each must yield its status with a reason, and the
// next trial must work. The whole loop on small networks: it resumes and never mixes environments.
// The database: test_db.c.
#include "pass/pass.h"
#include "tune/tune.h"

#include <math.h>
#include <setjmp.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "skip.h"
#include "tune_fixture.h"

/* A kernel with this body instead of the family's; x, y: input and output, first: is the first iteration here. */
static struct subject plant(struct fixture *b, const char *body)
{
    struct buf code = {0};
    u32 out = b->kernel.arg[1].is_out;
    struct str text = str_fmt(&b->arena,
        "#include <fcntl.h>\n#include <math.h>\n#include <signal.h>\n#include <stdint.h>\n#include <stdlib.h>\n#include <sys/socket.h>\n#include <unistd.h>\n"
        "enum { N = %d };\n"
        "void %s_0(void *const *buf, const int64_t *param, int64_t begin, int64_t end, void *work)\n"
        "{\n    volatile float *x = buf[%d], *y = buf[%d];\n    static int n_runs;\n    if (begin) return;\n    n_runs++;\n    %s\n}\n",
        N, b->kernel.name, 1 - (int)out, (int)out, body);
    bool ok = b->lang->build(&code, text, &b->caps, 60, &b->e);
    if (!ok) fail_msg("%s", b->e.msg);
    struct subject s = {.kernel = b->kernel, .code = str_dup(&b->arena, buf_view(&code))};
    buf_release(&code);
    return s;
}

static enum trial_status run(struct fixture *b, const struct subject *s, struct buf *why)
{
    const struct check *checks[] = {&b->check};
    b->n_samples = 0;
    buf_reset(why);
    return trial_run(s, checks, 1, &b->check, &b->o, count_sample, b, why);
}

#define RIGHT "for (int i = 0; i < N; i++) y[i] = x[i] > 0 ? x[i] : 0;"

static const struct { const char *name, *body; enum trial_status want; const char *reason; } planted[] = {
    {"right", RIGHT, TRIAL_OK, ""},
    {"null", RIGHT "*(volatile int *)0 = 1;", TRIAL_CRASH, "*signal 11*"},
    {"abort", "abort();", TRIAL_CRASH, "*signal 6*"},
    {"trap", "__builtin_trap();", TRIAL_CRASH, "*signal*"},
    {"leaves", "_exit(0);", TRIAL_CRASH, "*without a result, exit code 0*"},
    {"killed", "raise(SIGKILL);", TRIAL_CRASH, "*signal 9*"},
    {"hangs", "for (volatile int go = 1; go;) {}", TRIAL_TIMEOUT, "*in time*"},
    {"sleeps", "sleep(100);", TRIAL_TIMEOUT, "*in time*"},
    {"before", RIGHT "y[-1] = 1;", TRIAL_BOUNDS, "*before buffer*"},
    {"behind", RIGHT "y[N] = 1;", TRIAL_BOUNDS, "*after buffer*"},
    {"behind input", RIGHT "x[N] = 1;", TRIAL_BOUNDS, "*after buffer*"},
    {"input", RIGHT "x[N / 2] = 5;", TRIAL_BOUNDS, "*input*"},
    {"wrong", "for (int i = 0; i < N; i++) y[i] = x[i];", TRIAL_WRONG, "*output 0*differ*"},
    {"one wrong", RIGHT "y[N - 1] += 0.01f;", TRIAL_WRONG, "*1 of 300*"},
    {"nan", RIGHT "y[7] = NAN;", TRIAL_WRONG, "*nan*"},
    {"unwritten", "for (int i = 0; i < N - 1; i++) y[i] = x[i] > 0 ? x[i] : 0;", TRIAL_WRONG, "*1 of 300*"},
    {"nothing", "", TRIAL_WRONG, "*300 of 300*"},
    {"hangs later", RIGHT "while (n_runs > 3) {}", TRIAL_TIMEOUT, "*in time*"},
    {"crashes later", RIGHT "if (n_runs > 8) abort();", TRIAL_CRASH, "*signal 6*"},
};

static void test_planted(void **state)
{
    struct fixture b;
    struct buf why = {0};
    fixture_open(&b, "cpu");
    struct subject right = plant(&b, RIGHT);
    b.o.base = &right;
    for (i64 i = 0; i < countof(planted); i++) {
        struct subject s = plant(&b, planted[i].body);
        enum trial_status st = run(&b, &s, &why);
        if (st != planted[i].want || !str_glob(str_of(planted[i].reason), buf_view(&why)))
            fail_msg("%s: %s, %s", planted[i].name, trial_status_name(st), why.p ? why.p : "");
        assert_int_equal(run(&b, &right, &why), TRIAL_OK); /* the next one works */
        assert_int_equal(b.n_samples, 5);
    }
    buf_release(&why);
    fixture_close(&b);
}

/* Right, but with side effects when it is timed: the sandbox prevents them. */
static void test_confined(void **state)
{
    static const struct { const char *name, *body; } deed[] = {
        {"starts a process", RIGHT "fork();"},
        {"starts a program", RIGHT "execl(\"/bin/true\", \"true\", (char *)0);"},
        {"kills its parent", RIGHT "kill(getppid(), SIGKILL);"},
        {"opens a socket", RIGHT "socket(AF_INET, SOCK_STREAM, 0);"},
        {"writes a file", RIGHT "open(\"/tmp/quern-planted\", O_CREAT | O_WRONLY, 0600);"},
        {"removes a file", RIGHT "unlink(\"/tmp/quern-planted\");"},
    };
    struct fixture b;
    struct buf why = {0};
    if (os_sandbox_lacks(OS_SANDBOX_MEMORY)) skip_test("no %s", os_sandbox_lacks(OS_SANDBOX_MEMORY));
    fixture_open(&b, "cpu");
    struct subject right = plant(&b, RIGHT), reads = plant(&b, "if (open(\"/proc/self/maps\", O_RDONLY) < 0) {" RIGHT "}");
    b.o.base = &right;
    for (i64 i = 0; i < countof(deed); i++) {
        struct subject s = plant(&b, deed[i].body);
        enum trial_status st = run(&b, &s, &why);
        if (st != TRIAL_CRASH || !str_glob(S("*signal 31*"), buf_view(&why)))
            fail_msg("%s: %s, %s", deed[i].name, trial_status_name(st), why.p ? why.p : "");
        assert_int_equal(run(&b, &right, &why), TRIAL_OK);
    }
    assert_int_equal(run(&b, &reads, &why), TRIAL_OK); /* it had no way to read the file */
    assert_false(os_exists("/tmp/quern-planted"));
    buf_release(&why);
    fixture_close(&b);
}

static struct trial_session session(struct fixture *b, const struct subject *s, u32 n, const struct check *const *checks)
{
    return (struct trial_session){.subject = s, .n_subjects = n, .checks = checks, .n_checks = 1, .timing = &b->check, .o = &b->o};
}

/* Candidates share a child, and damage by one is not blamed on later ones. */
static void test_shared(void **state)
{
    static const struct { const char *body; enum trial_status want; } turn[] = {
        {RIGHT "setenv(\"QUERN_PLANTED\", \"1\", 1);", TRIAL_OK},
        {"if (!getenv(\"QUERN_PLANTED\")) return; " RIGHT, TRIAL_OK}, /* the same child */
        {"if (getenv(\"QUERN_PLANTED\")) abort(); " RIGHT, TRIAL_OK}, /* a new one */
        {RIGHT, TRIAL_OK},
        {RIGHT "y[N] = 1;", TRIAL_BOUNDS}, /* in both */
        {"if (!getenv(\"QUERN_PLANTED\")) return; " RIGHT, TRIAL_WRONG},
        {RIGHT "if (n_runs > 6) setenv(\"QUERN_PLANTED\", \"1\", 1);", TRIAL_OK},
        /* in the middle of its samples */
        {RIGHT "if (n_runs > 4 && getenv(\"QUERN_PLANTED\")) abort();", TRIAL_OK},
    };
    struct fixture b;
    struct buf why = {0};
    struct subject s[countof(turn)];
    fixture_open(&b, "cpu");
    for (i64 i = 0; i < countof(turn); i++) s[i] = plant(&b, turn[i].body);
    struct subject base = s[3];
    b.o.base = &base;
    struct trial_session t = session(&b, s, countof(turn), (const struct check *[]){&b.check});
    for (u32 i = 0; i < countof(turn); i++) {
        b.n_samples = 0;
        buf_reset(&why);
        enum trial_status st = trial_next(&t, i, count_sample, &b, &why);
        if (st != turn[i].want) fail_msg("%u: %s, %s", i, trial_status_name(st), why.p ? why.p : "");
        assert_int_equal(b.n_samples, st == TRIAL_OK ? 5 : 0);
        assert_true(st != TRIAL_OK || why.n == 0); /* nothing of the first attempt */
    }
    trial_close(&t);
    buf_release(&why);
    fixture_close(&b);
}

static bool enough(void *user, const struct sample *s, u32 n)
{
    struct fixture *b = user;
    assert_true(s->base > 0 && s->seconds > s->base);
    return count_sample(user, s, n) && n < b->o.max_samples - 2;
}

static bool one_is_enough(void *user, const struct sample *s, u32 n) { return count_sample(user, s, n) && false; }

/* A candidate that loses by its first run is reported at once; the caller may continue regardless. */
static void test_losing(void **state)
{
    struct fixture b;
    struct buf why = {0};
    fixture_open(&b, "cpu");
    struct subject base = plant(&b, RIGHT), slow = plant(&b, RIGHT "for (volatile int i = 0; i < 3000000; i++) {}");
    b.o.base = &base;
    for (int k = 0; k < 2; k++) {
        b.o.lost = k ? 2 : 0;
        struct trial_session t = session(&b, &slow, 1, (const struct check *[]){&b.check});
        assert_int_equal(trial_next(&t, 0, one_is_enough, &b, &why), TRIAL_OK);
        assert_int_equal(b.n_samples, 1);
        assert_int_equal(trial_next(&t, 0, enough, &b, &why), TRIAL_OK);
        assert_int_equal(b.n_samples, 3);
        trial_close(&t);
    }
    buf_release(&why);
    fixture_close(&b);
}

/* Binaries that are no kernels. */
static void test_binaries(void **state)
{
    struct fixture b;
    struct buf why = {0};
    fixture_open(&b, "cpu");
    struct subject s = plant(&b, RIGHT);
    struct str whole = s.code;
    for (i64 n = 0; n < whole.n; n += whole.n / 7 + 1) {
        s.code = str_sub(whole, 0, n);
        enum trial_status st = run(&b, &s, &why);
        bool complete = st == TRIAL_OK && n > whole.n / 2; /* truncated parts are not needed to run */
        assert_true(complete || ((st == TRIAL_LAUNCH || st == TRIAL_CRASH) && why.n > 0));
    }
    s.code = whole;
    s.kernel.name[0] ^= 1; /* a missing function */
    assert_int_equal(run(&b, &s, &why), TRIAL_LAUNCH);
    assert_true(str_glob(S("*no function*"), buf_view(&why)));
    buf_release(&why);
    fixture_close(&b);
}

/* State kept between runs is detected by repeating the same inputs, or other ones in the same
   memory. */
static void test_again(void **state)
{
    static const struct { const char *body; enum trial_status alone, twice, others; } planted_again[] = {
        {RIGHT, TRIAL_OK, TRIAL_OK, TRIAL_OK},
        {RIGHT "if (n_runs > 1) y[3] += 1;", TRIAL_OK, TRIAL_WRONG, TRIAL_WRONG},
        {RIGHT "if (n_runs > 1) y[N] = 1;", TRIAL_OK, TRIAL_BOUNDS, TRIAL_BOUNDS},
        {"for (int i = 0; i < N; i++) y[i] = (n_runs > 1 ? y[i] : 0) + (x[i] > 0 ? x[i] : 0);", TRIAL_OK, TRIAL_WRONG, TRIAL_WRONG},
        {"static float kept[N]; for (int i = 0; i < N; i++) if (n_runs == 1) kept[i] = x[i]; "
         "for (int i = 0; i < N; i++) y[i] = kept[i] > 0 ? kept[i] : 0;", TRIAL_OK, TRIAL_OK, TRIAL_WRONG},
        {"if (n_runs > 1) return; " RIGHT, TRIAL_OK, TRIAL_OK, TRIAL_WRONG}, /* keeps existing results */
    };
    struct fixture b;
    struct buf why = {0};
    struct check other;
    fixture_open(&b, "cpu");
    assert_true(check_init(&other, &b.task, NULL, 2, true, &b.e));
    other.in_place = true;
    const struct check *checks[] = {&b.check, &other};
    for (i64 i = 0; i < countof(planted_again); i++) {
        struct subject s = plant(&b, planted_again[i].body);
        b.check.twice = false;
        assert_int_equal(trial_run(&s, checks, 1, NULL, &b.o, count_sample, &b, &why), planted_again[i].alone);
        assert_int_equal(trial_run(&s, checks, 2, NULL, &b.o, count_sample, &b, &why), planted_again[i].others);
        b.check.twice = true;
        assert_int_equal(trial_run(&s, checks, 1, NULL, &b.o, count_sample, &b, &why), planted_again[i].twice);
    }
    buf_release(&why);
    check_release(&other);
    fixture_close(&b);
}

struct sum { double of; };

static bool look(const struct check *c, u32 k, const void *got, struct buf *why)
{
    struct sum *s = c->comparator->found;
    for (i64 i = 0; i < N; i++) s->of += ((const float *)got)[i];
    if (s->of != 3 * N) buf_z(why, "not threes");
    return s->of == 3 * N;
}

/* A custom comparator: its findings are copied back for right and for wrong outputs. */
static void test_comparator(void **state)
{
    struct fixture b;
    struct buf why = {0};
    struct sum sum = {0};
    const struct comparator comparator = {look, &sum, sizeof sum};
    fixture_open(&b, "cpu");
    struct subject threes = plant(&b, "for (int i = 0; i < N; i++) y[i] = 3;"), one = plant(&b, "for (int i = 0; i < N; i++) y[i] = i ? 3 : 4;");
    b.check.comparator = &comparator;
    assert_int_equal(run(&b, &threes, &why), TRIAL_OK);
    assert_true(sum.of == 3 * N && b.n_samples == 5);
    sum.of = 0;
    assert_int_equal(run(&b, &one, &why), TRIAL_WRONG);
    assert_true(sum.of == 3 * N + 1 && str_is(buf_view(&why), "not threes"));
    buf_release(&why);
    fixture_close(&b);
}

static void test_deadline(void **state)
{
    struct fixture b;
    struct buf why = {0};
    fixture_open(&b, "cpu");
    struct subject hangs = plant(&b, "for (volatile int go = 1; go;) {}");
    b.o.timeout = 50;
    b.o.deadline = os_now() + 0.3;
    assert_int_equal(run(&b, &hangs, &why), TRIAL_NEW); /* no verdict on it; that it did not end in 50 s would
                                                           be one */
    buf_release(&why);
    fixture_close(&b);
}

struct heard { struct fixture *b; u32 n_cold, n_warm; double warm; };

static bool hear(void *user, const struct sample *s, u32 n)
{
    struct heard *h = user;
    if (s->is_cold) h->n_cold++;
    else h->n_warm++, h->warm += s->seconds, assert_int_equal(n, h->n_warm);
    return true;
}

/* A cold sample comes first, is marked, and not counted. Runs below the timer's resolution are repeated: a run of some 50 ns
   must not be reported as the microsecond that starting a clock costs. */
static void test_samples(void **state)
{
    struct fixture b;
    struct buf why = {0};
    fixture_open(&b, "cpu");
    struct heard h = {&b, 0, 0, 0};
    struct subject s = plant(&b, "y[0] = x[0];");
    b.o.cold = true;
    b.o.max_samples = 9;
    assert_int_equal(trial_run(&s, NULL, 0, &b.check, &b.o, hear, &h, &why), TRIAL_OK);
    assert_int_equal(h.n_cold, 1);
    assert_int_equal(h.n_warm, 9);
    assert_true(h.warm / 9 < 2e-6);
    buf_release(&why);
    fixture_close(&b);
}

static void test_stats(void **state)
{
    struct rng r = rng_seed(5);
    u32 inside = 0, rounds = 2000;
    for (u32 k = 0; k < rounds; k++) {
        double v[15];
        for (i64 i = 0; i < countof(v); i++) v[i] = exp(rng_normal(&r)); /* skewed, median 1 */
        struct stats s = stats_of(v, countof(v));
        assert_true(s.low <= s.median && s.median <= s.high);
        inside += s.low <= 1 && 1 <= s.high;
    }
    assert_true(inside > rounds * 0.93 && inside < rounds * 0.99);
    double one[] = {3}, two[] = {4, 2};
    assert_true(stats_of(one, 1).median == 3 && stats_of(two, 2).median == 3 && stats_of(two, 2).high == 4);
    assert_true(stats_of(NULL, 0).median == 0);
}

/* Runs of a value in its buffer: addresses of its elements, one by one, and stores. */
static void test_places(void **state)
{
    static const enum layout layout[] = {LAYOUT_ROWS, LAYOUT_CLAST, LAYOUT_C8, LAYOUT_C16};
    struct rng r = rng_seed(11);
    for (i64 round = 0; round < 400; round++) {
        struct tensor t = {.dtype = DT_F32, .rank = (u32)rng_range(&r, 2, 5)};
        struct place p = {.layout = layout[rng_range(&r, 0, 3)]};
        i64 room = 1;
        for (u32 d = 0; d < t.rank; d++) t.dim[d] = rng_range(&r, 1, d == 1 ? 20 : 6);
        if (rng_u64(&r) & 1) p.axis = (u32)rng_range(&r, 0, t.rank - 1), p.from = 16 * rng_range(&r, 0, 2), p.whole = p.from + t.dim[p.axis] + rng_range(&r, 0, 9);
        for (u32 d = 0; d < t.rank; d++) room *= round_up(p.whole && d == p.axis ? p.whole : t.dim[d], d == 1 ? 16 : 1);
        float *in = mem_alloc(tensor_count(&t) * 4), *out = mem_alloc(room * 4);
        for (i64 i = 0; i < tensor_count(&t); i++) in[i] = (float)(i + 1);
        t.data = in;
        place_store(&p, &t, out);
        for (i64 k = 0; k < tensor_count(&t);) {
            i64 stride, n = place_run(&p, &t, k, &stride), at = place_flat(&p, &t, k);
            assert_true(n >= 1 && k + n <= tensor_count(&t));
            for (i64 i = 0; i < n; i++, k++) {
                assert_int_equal(place_flat(&p, &t, k), at + i * stride);
                assert_true(at + i * stride < room && out[at + i * stride] == in[k]);
            }
        }
        mem_free(in), mem_free(out);
    }
}

/* the loop */

struct tuned { struct arena arena; struct symtab sym; struct graph g; struct cover cover; struct tune_task *task; u32 n; i64 var[1]; };

static void tuned_open(struct tuned *t)
{
    struct err e = {0};
    *t = (struct tuned){0};
    symtab_init(&t->sym, &t->arena);
    static const char text[] =
        "graph {\n  input %x: f32[1,3,16,20]\n"
        "  %a: f32[1,3,16,20] = Relu(%x)\n  %b: f32[1,3,8,10] = MaxPool(%a) {kernel_shape=[2,2], strides=[2,2]}\n"
        "  %c: f32[1,3,8,10] = Tanh(%b)\n  output %c\n}\n";
    if (!graph_parse(&t->g, &t->arena, &t->sym, str_of(text), &e)) fail_msg("%s", e.msg);
    if (!pass_run_all(&t->g, NULL, &e) || !cover_build(&t->cover, &t->g, &t->arena, NULL, &e)) fail_msg("%s", e.msg);
    t->n = t->cover.task.n;
    t->task = arena_array(&t->arena, struct tune_task, t->n);
    for (u32 i = 0; i < t->n; i++) t->task[i] = (struct tune_task){.task = t->cover.task.v[i], .var = t->var, .weight = 1};
}

static void tuned_close(struct tuned *t)
{
    struct arena a = t->arena;
    arena_release(&a);
}

static i64 number(const struct db *d, const char *key)
{
    struct buf b = {0};
    struct err e = {0};
    char want[64];
    i64 v = -1;
    assert_true(db_stats((struct db *)(uintptr_t)d, &b, &e));
    snprintf(want, sizeof want, "\"%s\":", key);
    const char *at = strstr(b.p, want);
    if (at) v = strtoll(at + strlen(want), NULL, 10);
    buf_release(&b);
    return v;
}

static const char *temp_db(struct arena *a, const char *name)
{
    struct err e = {0};
    struct str dir;
    assert_true(os_temp_dir(a, &dir, &e));
    return str_fmt(a, "%.*s/%s", STR_ARG(dir), name).p;
}

static struct tune_opts options(u32 threads)
{
    return (struct tune_opts){.driver = dev_find(S("cpu")), .dev = {.n_threads = threads}, .min_samples = 3, .max_candidates = 3,
                              .add_candidates = true, .measure = true};
}

/* Populate writes rows and binaries; bench measures them; a second run has nothing left to do; the best is the fastest. */
static void test_loop(void **state)
{
    struct tuned t;
    struct db d;
    struct err e = {0};
    struct tune_result r;
    tuned_open(&t);
    const char *path = temp_db(&t.arena, "a.db");
    assert_true(db_open(&d, path, &e));
    struct tune_opts o = options(1);
    o.measure = false;
    if (!tune_run(&d, t.task, t.n, &o, &r, &e)) fail_msg("%s", e.msg);
    assert_true(number(&d, "trials") >= t.n && r.n_built >= t.n);
    assert_int_equal(number(&d, "samples"), 0);
    i64 populated = number(&d, "trials");
    o.measure = true, o.add_candidates = false;
    if (!tune_bench(&d, &o, &r, &e)) fail_msg("%s", e.msg);
    assert_int_equal(number(&d, "trials"), populated);
    assert_true(number(&d, "samples") >= 3 * r.n_ok);
    assert_true(r.n_failed == 0 && r.n_ok >= t.n && number(&d, "new") == -1);
    i64 env = 1;
    for (u32 i = 0; i < t.n; i++) {
        struct task_known k;
        struct trial_row *row;
        u32 n;
        assert_true(tune_best(&d, env, t.task[i].task, t.var, &k, &e) && k.measured && k.seconds > 0);
        assert_true(db_trials(&d, env, db_task(&d, t.task[i].task, &e), S(""), &t.arena, &row, &n, &e) && n > 0);
        const struct trial_row *best = tune_choice(row, n); /* the reference, or shown to be faster */
        assert_true(best && memcmp(&best->cand, &k.best, sizeof k.best) == 0);
        assert_true(best->status == TRIAL_OK && (best->alone > 0 || best->ratio_high < 1));
    }
    /* another environment has no results */
    i64 other = db_env(&d, S("cpu of somebody else"), S("gcc"), &e);
    struct task_known k;
    assert_true(other != env && tune_best(&d, other, t.task[0].task, t.var, &k, &e) && !k.measured && k.n_trials == 0);
    o = options(2); /* other threads, other times */
    if (!tune_run(&d, t.task, 1, &o, &r, &e)) fail_msg("%s", e.msg);
    assert_true(tune_best(&d, env + 2, t.task[0].task, t.var, &k, &e) && k.measured);
    db_close(&d);
    os_remove_tree(str_z(&t.arena, str_sub(str_of(path), 0, (i64)strlen(path) - 5)));
    tuned_close(&t);
}

/* Whatever looked best by a few lucky samples was measured again in the end, and only that counts. */
static void test_lucky(void **state)
{
    struct tuned t;
    struct db d;
    struct err e = {0};
    struct tune_result r;
    struct trial_row *row;
    u32 n;
    tuned_open(&t);
    const char *path = temp_db(&t.arena, "a.db");
    assert_true(db_open(&d, path, &e));
    struct tune_opts o = options(1);
    o.measure = false, o.max_candidates = 8;
    if (!tune_run(&d, t.task, 1, &o, &r, &e)) fail_msg("%s", e.msg);
    i64 task = db_task(&d, t.task[0].task, &e);
    assert_true(db_trials(&d, 1, task, S(""), &t.arena, &row, &n, &e) && n > 5);
    for (u32 i = 1; i < n; i++)
        for (u32 k = 0; k < o.min_samples; k++) {
            struct sample lucky = {.seconds = 1e-9 * (1 + i), .base = 1};
            assert_true(db_sample(&d, row[i].id, &lucky, &e) && db_trial_status(&d, row[i].id, TRIAL_OK, S(""), &e));
        }
    o.measure = true;
    if (!tune_run(&d, t.task, 1, &o, &r, &e)) fail_msg("%s", e.msg);
    assert_true(db_trials(&d, 1, task, S(""), &t.arena, &row, &n, &e));
    const struct trial_row *best = tune_choice(row, n);
    assert_true(best && (best->alone > 0 || best->n_final > 0) && best->median > 1e-8);
    for (u32 i = 0; i < n; i++) assert_true(row[i].n_final == 0 || row[i].n >= o.min_samples + row[i].n_final);
    db_close(&d);
    os_remove_tree(str_z(&t.arena, str_sub(str_of(path), 0, (i64)strlen(path) - 5)));
    tuned_close(&t);
}

/* Counted in insertion order; unverified trials count and are never the best. */
static void test_reach(void **state)
{
    struct tuned t;
    struct db d;
    struct err e = {0};
    struct reach r;
    struct buf b = {0};
    tuned_open(&t);
    assert_true(db_open(&d, ":memory:", &e));
    i64 env = db_env(&d, S("x"), S("cc"), &e), task = db_task(&d, t.task[0].task, &e);
    const double ratio[] = {0, 1.3, 0.1, 0.52, 0.7, 0.5, 0.6}; /* the first is the reference, the third is wrong */
    struct candidate c;
    struct rng rng = rng_seed(1);
    struct caps caps = {.arch = "test", .vector_bytes = 32, .n_vector_regs = 16, .n_threads = 1};
    assert_true(tune_reach(&d, env, task, S(""), &r, &e) && r.n_trials == 0 && r.to_near == 0);
    struct map seen;
    map_init(&seen, &t.arena);
    while (seen.n < countof(ratio)) {
        u32 i = seen.n;
        assert_true(gen_random(t.task[0].task, &caps, &rng, &c));
        buf_reset(&b);
        candidate_print(&b, &c);
        if (map_get(&seen, buf_view(&b))) continue;
        map_put(&seen, buf_view(&b), 1);
        i64 id = db_trial(&d, env, task, S(""), buf_view(&b), &e);
        assert_true(id && db_sample(&d, id, &(struct sample){.seconds = i ? 2 * ratio[i] : 2, .base = i ? 2 : 0}, &e));
        assert_true(db_trial_status(&d, id, i == 2 ? TRIAL_WRONG : TRIAL_OK, S(""), &e));
    }
    assert_true(tune_reach(&d, env, task, S(""), &r, &e));
    assert_int_equal(r.n_trials, countof(ratio));
    assert_int_equal(r.to_near, 4); /* 0.52 is within 5 % of 0.5 */
    struct reaches all = reaches_of((struct reach[]){r, {1, 1}, {0, 0}, {20, 10}}, 4);
    assert_true(all.n_tasks == 2 && all.n_trials == 27 && all.median == 7 && all.most == 10);
    buf_reset(&b);
    assert_true(db_stats(&d, &b, &e));
    if (!strstr(b.p, "\"trials\":7,\"trials_to_95_percent\":4")) fail_msg("%s", b.p);
    buf_release(&b);
    db_close(&d);
    tuned_close(&t);
}

static u32 n_events;
static void on_event(void *user, struct str json)
{
    assert_true(json.n > 2 && json.p[0] == '{' && json.p[json.n - 1] == '}');
    n_events++;
}

/* Candidates without end: the time ends the run, but not before one of them was tried. */
static void test_timeout(void **state)
{
    struct tuned t;
    struct db d;
    struct err e = {0};
    struct tune_result r;
    tuned_open(&t);
    assert_true(db_open(&d, ":memory:", &e));
    struct tune_opts o = options(1);
    o.timeout = 2, o.max_candidates = 100000, o.event = on_event;
    if (!tune_run(&d, t.task, t.n, &o, &r, &e)) fail_msg("%s", e.msg);
    assert_true(n_events >= r.n_measured && r.n_measured > 0);
    o.timeout = 1e-6;
    if (!tune_run(&d, t.task, t.n, &o, &r, &e)) fail_msg("%s", e.msg);
    assert_int_equal(r.n_measured, 0);
    db_close(&d);
    assert_true(db_open(&d, ":memory:", &e));
    if (!tune_run(&d, t.task, t.n, &o, &r, &e)) fail_msg("%s", e.msg);
    assert_int_equal(r.n_measured, 1);
    db_close(&d);
    tuned_close(&t);
}

/* A compiler that never succeeds: nothing measured, the reasons are counted. */
static void test_nothing(void **state)
{
    struct tuned t;
    struct db d;
    struct err e = {0};
    struct tune_result r;
    tuned_open(&t);
    const char *path = temp_db(&t.arena, "cc.sh");
    static const char script[] = "#!/bin/sh\n[ \"$1\" = --version ] && echo broken 1 && exit 0\necho no such thing >&2\nexit 1\n";
    assert_true(os_write(path, script, sizeof script - 1, &e));
    setenv("QUERN_CC", str_fmt(&t.arena, "sh %s", path).p, 1);
    assert_true(db_open(&d, ":memory:", &e));
    struct tune_opts o = options(1);
    assert_false(tune_run(&d, t.task, t.n, &o, &r, &e));
    unsetenv("QUERN_CC");
    assert_int_equal(e.code, ERR_NOTHING);
    if (!str_glob(S("*nothing was measured: * build*"), str_of(e.msg))) fail_msg("%s", e.msg);
    assert_int_equal(r.n_ok, 0);
    assert_true(r.n_failed > 0);
    db_close(&d);
    os_remove_tree(str_z(&t.arena, str_sub(str_of(path), 0, (i64)strlen(path) - 6)));
    tuned_close(&t);
}

/* the database */

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_planted), cmocka_unit_test(test_confined), cmocka_unit_test(test_shared), cmocka_unit_test(test_losing),
        cmocka_unit_test(test_binaries), cmocka_unit_test(test_again), cmocka_unit_test(test_comparator), cmocka_unit_test(test_deadline), cmocka_unit_test(test_places),
        cmocka_unit_test(test_samples), cmocka_unit_test(test_stats), cmocka_unit_test(test_loop), cmocka_unit_test(test_lucky),
        cmocka_unit_test(test_reach), cmocka_unit_test(test_timeout), cmocka_unit_test(test_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
