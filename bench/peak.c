// SPDX-License-Identifier: Apache-2.0
//
// What the processor can do at most, for the denominators of other measurements: f32 multiply-adds
// in registers and the rates of memory, in a triad (a = b + s * c; the fetch of a line before
// it is written is not counted) and when it is only read.
//
//   build/bench/peak [THREADS]      one JSON object: {"threads":..,"gflops":..,"gbytes":..,"read":..}, and where there are such
//                                   instructions "bf16":.. and "int8":.., in 10^9 operations: sums of products of neighbours
//   build/bench/peak THREADS turns  does one of them whenever it is told to, for bench/compare: see turns()
//
// The object has the best of several short tries, because a shared machine only ever makes them slower; what is sustained beside
// other work is less, and turns() measures that. Vectors are as wide as a processor may have them; two widths with enough chains each
// cover processors whose vectors are narrower or whose registers are fewer. Built for the host, with contraction of a * b + c.
#define _GNU_SOURCE /* threads' processors */
#include <immintrin.h>
#include <jansson.h>
#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { TRIES = 15, STEPS = 400000, MAX_THREADS = 256, STREAMS = 8, MAX_LINE = 4096 };
static const size_t n_triad = 16u << 20; /* elements of each array, far beyond any cache */

typedef float v16 __attribute__((vector_size(64)));
typedef float v8 __attribute__((vector_size(32)));
typedef float v16_at __attribute__((vector_size(64), aligned(4)));

/* One step is twelve independent multiply-adds. */
#define CHAINS(name, vec)                                                                          \
    __attribute__((noinline)) static void name(vec *out, long n)                                   \
    {                                                                                              \
        vec x = *out + 1.0f, y = *out + 0.5f, a = x, b = x + 1, c = x + 2, d = x + 3, e = x + 4,   \
            f = x + 5, g = x + 6, h = x + 7, i = x + 8, j = x + 9, k = x + 10, l = x + 11;         \
        for (; n; n--) {                                                                           \
            a = a * y + x, b = b * y + x, c = c * y + x, d = d * y + x, e = e * y + x,             \
            f = f * y + x;                                                                         \
            g = g * y + x, h = h * y + x, i = i * y + x, j = j * y + x, k = k * y + x,             \
            l = l * y + x;                                                                         \
        }                                                                                          \
        *out = a + b + c + d + e + f + g + h + i + j + k + l;                                      \
    }
CHAINS(chains16, v16)
CHAINS(chains8, v8)

/* One step is twelve independent sums of products of two or four neighbours a lane. */
#define DOT_CHAINS(name, features, vec, dot)                                                       \
    __attribute__((target(features), noinline)) static void name(float *out, long n)               \
    {                                                                                              \
        __m512i x = _mm512_set1_epi32((int)*out), y = x;                                           \
        vec a = {0}, b = a + 1, c = a + 2, d = a + 3, e = a + 4, f = a + 5, g = a + 6, h = a + 7,  \
            i = a + 8, j = a + 9, k = a + 10, l = a + 11;                                          \
        for (; n; n--) {                                                                           \
            a = dot(a, x, y), b = dot(b, x, y), c = dot(c, x, y), d = dot(d, x, y);                \
            e = dot(e, x, y), f = dot(f, x, y), g = dot(g, x, y), h = dot(h, x, y);                \
            i = dot(i, x, y), j = dot(j, x, y), k = dot(k, x, y), l = dot(l, x, y);                \
        }                                                                                          \
        a += b + c + d + e + f + g + h + i + j + k + l;                                            \
        *out = (float)a[0];                                                                        \
    }
#define DOT_BF16(s, x, y) _mm512_dpbf16_ps(s, (__m512bh)(x), (__m512bh)(y))
#define DOT_INT8(s, x, y) (v16_int)_mm512_dpbusd_epi32((__m512i)(s), x, y)
typedef int v16_int __attribute__((vector_size(64)));
DOT_CHAINS(dots_bf16, "avx512f,avx512bf16", v16, DOT_BF16)
DOT_CHAINS(dots_int8, "avx512f,avx512vnni", v16_int, DOT_INT8)

enum kind { FLOPS, BF16, INT8, TRIAD, READ, TOUCH };

struct seconds { double wall, cpu; };

struct team {
    int n;               /* threads */
    bool wide;           /* vectors of 512 bits */
    float *a, *b, *c;    /* n_triad elements each */
    enum kind kind;      /* of the work at hand */
    long count, warm;    /* how often, and so often before, untimed */
    pthread_barrier_t start;
};

struct member { struct team *team; int i; pthread_t thread; struct seconds took; };

static void do_chains(const struct team *t)
{
    v16 x = {0};
    v8 y = {0};
    if (t->wide) chains16(&x, STEPS);
    else chains8(&y, STEPS);
    volatile float sink = x[0] + y[0];
    (void)sink;
}

static void do_dots(void (*chains)(float *, long))
{
    volatile float sink = 1;
    float x = sink;
    chains(&x, STEPS);
    sink = x;
}

static void do_triad(float *restrict a, const float *b, const float *c, size_t n)
{
    for (size_t i = 0; i < n; i++) a[i] = b[i] + 0.5f * c[i];
}

/* Several streams, which one core needs to keep the memory busy, and sums that do not wait for each other. */
static void do_read(const float *array, size_t n)
{
    size_t part = n / STREAMS;
    v16 x = {0}, y = x, z = x, w = x;
    for (size_t i = 0; i + 64 <= part; i += 64)
        for (size_t s = 0; s < STREAMS; s++) {
            const v16_at *p = (const v16_at *)(array + s * part + i);
            x += p[0], y += p[1], z += p[2], w += p[3];
        }
    volatile float sink = x[0] + y[0] + z[0] + w[0];
    (void)sink;
}

static void do_touch(float *a, float *b, float *c, size_t n)
{
    for (size_t i = 0; i < n; i++) a[i] = 0, b[i] = 1, c[i] = 2;
}

/* Its part of the work, once. */
static void do_once(const struct member *m)
{
    const struct team *t = m->team;
    size_t n = n_triad / (size_t)t->n, at = n * (size_t)m->i;
    float *a = t->a + at, *b = t->b + at, *c = t->c + at;
    switch (t->kind) {
    case FLOPS: do_chains(t); break;
    case BF16: do_dots(dots_bf16); break;
    case INT8: do_dots(dots_int8); break;
    case TRIAD: do_triad(a, b, c, n); break;
    case READ: do_read(a, n), do_read(b, n), do_read(c, n); break;
    case TOUCH: do_touch(a, b, c, n); break;
    }
}

static double now(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void *work(void *arg)
{
    struct member *m = arg;
    for (long i = 0; i < m->team->warm; i++) do_once(m);
    pthread_barrier_wait(&m->team->start);
    double wall = now(CLOCK_MONOTONIC), cpu = now(CLOCK_THREAD_CPUTIME_ID);
    for (long i = 0; i < m->team->count; i++) do_once(m);
    m->took.wall = now(CLOCK_MONOTONIC) - wall;
    m->took.cpu = now(CLOCK_THREAD_CPUTIME_ID) - cpu;
    return NULL;
}

/* Thread i of n has the i-th of the processors that this process may use to itself, where there are so many: two that share one while
   another is idle would tell of the system's choice, not of what the machine does at most. */
static void keep_apart(pthread_t thread, int i, int n)
{
    cpu_set_t all, one;
    if (sched_getaffinity(0, sizeof all, &all) || CPU_COUNT(&all) < n) return;
    CPU_ZERO(&one);
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, &all) && i-- == 0) CPU_SET(cpu, &one);
    pthread_setaffinity_np(thread, sizeof one, &one);
}

/* Of one of count runs, of the slowest thread. */
static struct seconds run(struct team *t, enum kind kind, long count, long warm)
{
    struct member m[MAX_THREADS];
    struct seconds s = {0};
    t->kind = kind, t->count = count, t->warm = warm;
    pthread_barrier_init(&t->start, NULL, (unsigned)t->n);
    for (int i = 0; i < t->n; i++) {
        m[i] = (struct member){.team = t, .i = i};
        if (pthread_create(&m[i].thread, NULL, work, &m[i])) exit(1);
        keep_apart(m[i].thread, i, t->n);
    }
    for (int i = 0; i < t->n; i++) {
        pthread_join(m[i].thread, NULL);
        if (m[i].took.wall > s.wall) s.wall = m[i].took.wall;
        if (m[i].took.cpu > s.cpu) s.cpu = m[i].took.cpu;
    }
    pthread_barrier_destroy(&t->start);
    return (struct seconds){s.wall / (double)count, s.cpu / (double)count};
}

/* Flops or bytes of a run. */
static double amount(const struct team *t, enum kind kind)
{
    if (kind == FLOPS) return 2.0 * 12 * (t->wide ? 16 : 8) * STEPS * t->n;
    if (kind == BF16 || kind == INT8) return 2.0 * 12 * (kind == INT8 ? 64 : 32) * STEPS * t->n;
    return 12.0 * (double)(n_triad / (size_t)t->n * (size_t)t->n);
}

/* Per second, of the fastest run. One thread alone is given its processor time, which others on the machine disturb less. */
static double best_rate(struct team *t, enum kind kind)
{
    double best = 1e9;
    for (int k = 0; k < TRIES; k++) {
        struct seconds s = run(t, kind, 1, 0);
        double took = t->n == 1 ? s.cpu : s.wall;
        if (took < best) best = took;
    }
    return amount(t, kind) / best;
}

/* Sets the width that is faster; its rate. */
static double choose_width(struct team *t)
{
    double rate[2];
    for (int wide = 0; wide < 2; wide++) t->wide = wide, rate[wide] = best_rate(t, FLOPS);
    t->wide = rate[1] > rate[0];
    return rate[t->wide];
}

/* turns */

static json_t *answer(struct team *t, json_t *ask, enum kind *kind)
{
    const char *what = "", *of = "";
    json_int_t count = 0, warm = 0;
    json_unpack(ask, "{s?s s?s s?I s?I}", "do", &what, "of", &of, "count", &count, "warm", &warm);
    if (!strcmp(what, "load")) {
        *kind = !strcmp(of, "read") ? READ : FLOPS;
        return json_pack("{s:f}", "amount", amount(t, *kind));
    }
    if (strcmp(what, "time") != 0 || count < 1 || warm < 0) return json_pack("{s:s}", "error", "not understood");
    struct seconds s = run(t, *kind, (long)count, (long)warm);
    return json_pack("{s:f s:f}", "wall", s.wall, "cpu", s.cpu);
}

/* Lines of JSON, as bench/worker.py writes them, each with an answer: {"do": "load", "of": "flops"} or "read": what is to be done
   from now on; the answer says how many flops or bytes a run has. {"do": "time", "count": N, "warm": M}: N runs behind M untimed ones;
   the answer is what one took, by the clock and of processor time, of the slowest thread. */
static void turns(struct team *t)
{
    char line[MAX_LINE];
    enum kind kind = FLOPS;
    choose_width(t);
    while (fgets(line, sizeof line, stdin)) {
        json_t *ask = json_loads(line, 0, NULL), *a = answer(t, ask, &kind);
        json_dumpf(a, stdout, JSON_COMPACT);
        putchar('\n');
        fflush(stdout);
        json_decref(ask), json_decref(a);
    }
}

static void print_best(struct team *t)
{
    double flops = choose_width(t);
    printf("{\"threads\":%d,\"gflops\":%.1f,\"gbytes\":%.1f,\"read\":%.1f", t->n, flops * 1e-9, best_rate(t, TRIAD) * 1e-9,
           best_rate(t, READ) * 1e-9);
    if (__builtin_cpu_supports("avx512bf16")) printf(",\"bf16\":%.1f", best_rate(t, BF16) * 1e-9);
    if (__builtin_cpu_supports("avx512vnni")) printf(",\"int8\":%.1f", best_rate(t, INT8) * 1e-9);
    puts("}");
}

int main(int argc, char **argv)
{
    struct team t = {.n = argc > 1 ? atoi(argv[1]) : 1};
    if (t.n < 1 || t.n > MAX_THREADS) return fprintf(stderr, "peak: 1 to %d threads\n", MAX_THREADS), 2;
    t.a = malloc(3 * n_triad * sizeof *t.a);
    if (!t.a) return fprintf(stderr, "peak: out of memory\n"), 1;
    t.b = t.a + n_triad, t.c = t.b + n_triad;
    run(&t, TOUCH, 1, 0);
    if (argc > 2 && !strcmp(argv[2], "turns")) turns(&t);
    else print_best(&t);
    free(t.a);
    return 0;
}
