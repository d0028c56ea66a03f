// SPDX-License-Identifier: Apache-2.0
//
// What the processor can do at most, for the denominators of other measurements: f32 multiply-adds
// in registers and the rates of memory, in a triad (a = b + s * c; the fetch of a line before
// it is written is not counted) and when it is only read.
//
//   build/bench/peak [THREADS]      one JSON object: {"threads":..,"gflops":..,"gbytes":..,"read":..}
//
// All are the best of several short tries, because a shared machine only ever makes them slower.
// Vectors are as wide as a processor may have them; two widths with enough chains each cover
// processors whose vectors are narrower or whose registers are fewer. Built for the host, with
// contraction of a * b + c.
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { TRIES = 15, STEPS = 400000, MAX_THREADS = 256, STREAMS = 8 };
static const size_t n_triad = 16u << 20; /* elements of each array, far beyond any cache */

typedef float v16 __attribute__((vector_size(64)));
typedef float v8 __attribute__((vector_size(32)));
typedef float v16_at __attribute__((vector_size(64), aligned(4)));

static double now(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

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

struct job {
    pthread_barrier_t *start;
    clockid_t clock; /* of one thread alone its processor time, which others on the machine disturb less */
    float *a, *b, *c; /* triad: this thread's part */
    size_t n;
    double flops[TRIES], bytes[TRIES], read[TRIES]; /* seconds */
    int wide;
};

static double time_chains(struct job *j)
{
    v16 x = {0};
    v8 y = {0};
    double t = now(j->clock);
    if (j->wide) chains16(&x, STEPS);
    else chains8(&y, STEPS);
    t = now(j->clock) - t;
    volatile float sink = x[0] + y[0];
    (void)sink;
    return t;
}

static double time_triad(struct job *j)
{
    double t = now(j->clock);
    for (size_t i = 0; i < j->n; i++) j->a[i] = j->b[i] + 0.5f * j->c[i];
    return now(j->clock) - t;
}

/* Of all three arrays: several streams, which one core needs to keep the memory busy, and sums that do not wait for
 * each other. */
static double time_read(struct job *j)
{
    const float *array[] = {j->a, j->b, j->c};
    size_t part = j->n / STREAMS;
    v16 x = {0}, y = x, z = x, w = x;
    double t = now(j->clock);
    for (int k = 0; k < 3; k++)
        for (size_t i = 0; i + 64 <= part; i += 64)
            for (size_t s = 0; s < STREAMS; s++) {
                const v16_at *p = (const v16_at *)(array[k] + s * part + i);
                x += p[0], y += p[1], z += p[2], w += p[3];
            }
    t = now(j->clock) - t;
    volatile float sink = x[0] + y[0] + z[0] + w[0];
    (void)sink;
    return t;
}

static void *work(void *arg)
{
    struct job *j = arg;
    for (size_t i = 0; i < j->n; i++) j->a[i] = 0, j->b[i] = 1, j->c[i] = 2;
    for (int k = 0; k < TRIES; k++) {
        pthread_barrier_wait(j->start);
        j->flops[k] = time_chains(j);
        pthread_barrier_wait(j->start);
        j->bytes[k] = time_triad(j);
        pthread_barrier_wait(j->start);
        j->read[k] = time_read(j);
    }
    return NULL;
}

/* The slowest thread of each try counts; the best try is the result. */
static double best_time(const struct job *j, int n, const double *(*of)(const struct job *))
{
    double best = 1e9;
    for (int k = 0; k < TRIES; k++) {
        double slowest = 0;
        for (int i = 0; i < n; i++)
            if (of(&j[i])[k] > slowest) slowest = of(&j[i])[k];
        if (slowest < best) best = slowest;
    }
    return best;
}

static const double *flops_of(const struct job *j) { return j->flops; }
static const double *bytes_of(const struct job *j) { return j->bytes; }
static const double *read_of(const struct job *j) { return j->read; }

struct peak { double gflops, gbytes, read; };

static void keep_greater(double *best, double x)
{
    if (x > *best) *best = x;
}

static void run(int n, int wide, float *memory, struct peak *p)
{
    static struct job j[MAX_THREADS];
    pthread_t thread[MAX_THREADS];
    pthread_barrier_t start;
    size_t part = n_triad / (size_t)n;
    pthread_barrier_init(&start, NULL, (unsigned)n);
    for (int i = 0; i < n; i++) {
        float *at = memory + part * (size_t)i;
        j[i] = (struct job){.start = &start,
                            .clock = n == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC,
                            .a = at,
                            .b = at + n_triad,
                            .c = at + 2 * n_triad,
                            .n = part,
                            .wide = wide};
        if (pthread_create(&thread[i], NULL, work, &j[i])) exit(1);
    }
    for (int i = 0; i < n; i++) pthread_join(thread[i], NULL);
    pthread_barrier_destroy(&start);
    double bytes = 12.0 * (double)(part * (size_t)n) * 1e-9;
    keep_greater(&p->gflops, 2.0 * 12 * (wide ? 16 : 8) * STEPS * n / best_time(j, n, flops_of) * 1e-9);
    keep_greater(&p->gbytes, bytes / best_time(j, n, bytes_of));
    keep_greater(&p->read, bytes / best_time(j, n, read_of));
}

int main(int argc, char **argv)
{
    int n = argc > 1 ? atoi(argv[1]) : 1;
    struct peak p = {0};
    if (n < 1 || n > MAX_THREADS) return fprintf(stderr, "peak: 1 to %d threads\n", MAX_THREADS), 2;
    float *memory = malloc(3 * n_triad * sizeof *memory);
    if (!memory) return fprintf(stderr, "peak: out of memory\n"), 1;
    for (int wide = 0; wide < 2; wide++) run(n, wide, memory, &p);
    printf("{\"threads\":%d,\"gflops\":%.1f,\"gbytes\":%.1f,\"read\":%.1f}\n", n, p.gflops, p.gbytes, p.read);
    free(memory);
    return 0;
}
