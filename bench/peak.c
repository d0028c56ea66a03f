// SPDX-License-Identifier: Apache-2.0
//
// What the processor can do at most, for the denominators of other measurements: f32 multiply-adds
// in registers and the rate of memory in a triad (a = b + s * c; the fetch of a line before
// it is written is not counted).
//
//   build/bench/peak [THREADS]      one JSON object: {"threads":..,"gflops":..,"gbytes":..}
//
// Both are the best of several short tries, because a shared machine only ever makes them slower.
// Vectors are as wide as a processor may have them; two widths with enough chains each cover
// processors whose vectors are narrower or whose registers are fewer. Built for the host, with
// contraction of a * b + c.
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { TRIES = 15, STEPS = 400000, MAX_THREADS = 256 };
static const size_t n_triad = 16u << 20; /* elements of each array, far beyond any cache */

typedef float v16 __attribute__((vector_size(64)));
typedef float v8 __attribute__((vector_size(32)));

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
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
    float *a, *b, *c; /* triad: this thread's part */
    size_t n;
    double flops[TRIES], bytes[TRIES]; /* seconds */
    int wide;
};

static double time_chains(struct job *j)
{
    v16 x = {0};
    v8 y = {0};
    double t = now();
    if (j->wide) chains16(&x, STEPS);
    else chains8(&y, STEPS);
    t = now() - t;
    volatile float sink = x[0] + y[0];
    (void)sink;
    return t;
}

static double time_triad(struct job *j)
{
    double t = now();
    for (size_t i = 0; i < j->n; i++) j->a[i] = j->b[i] + 0.5f * j->c[i];
    return now() - t;
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

static void run(int n, int wide, float *memory, double *gflops, double *gbytes)
{
    static struct job j[MAX_THREADS];
    pthread_t thread[MAX_THREADS];
    pthread_barrier_t start;
    size_t part = n_triad / (size_t)n;
    pthread_barrier_init(&start, NULL, (unsigned)n);
    for (int i = 0; i < n; i++) {
        float *at = memory + part * (size_t)i;
        j[i] = (struct job){.start = &start,
                            .a = at,
                            .b = at + n_triad,
                            .c = at + 2 * n_triad,
                            .n = part,
                            .wide = wide};
        if (pthread_create(&thread[i], NULL, work, &j[i])) exit(1);
    }
    for (int i = 0; i < n; i++) pthread_join(thread[i], NULL);
    pthread_barrier_destroy(&start);
    double flops = 2.0 * 12 * (wide ? 16 : 8) * STEPS * n / best_time(j, n, flops_of) * 1e-9;
    double bytes = 12.0 * (double)(part * (size_t)n) / best_time(j, n, bytes_of) * 1e-9;
    if (flops > *gflops) *gflops = flops;
    if (bytes > *gbytes) *gbytes = bytes;
}

int main(int argc, char **argv)
{
    int n = argc > 1 ? atoi(argv[1]) : 1;
    double gflops = 0, gbytes = 0;
    if (n < 1 || n > MAX_THREADS) return fprintf(stderr, "peak: 1 to %d threads\n", MAX_THREADS), 2;
    float *memory = malloc(3 * n_triad * sizeof *memory);
    if (!memory) return fprintf(stderr, "peak: out of memory\n"), 1;
    for (int wide = 0; wide < 2; wide++) run(n, wide, memory, &gflops, &gbytes);
    printf("{\"threads\":%d,\"gflops\":%.1f,\"gbytes\":%.1f}\n", n, gflops, gbytes);
    free(memory);
    return 0;
}
