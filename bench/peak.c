// SPDX-License-Identifier: Apache-2.0
//
// Measured peak of a processor, by the library's microbenchmarks (tune/rates.h): the denominator of other measurements.
//
//   build/bench/peak [-l LIMITS] [THREADS]      one JSON object: {"threads":..,"gflops":..,"gbytes":..,"read":..}: f32 multiply-adds,
//                                               copying and reading of memory; with such instructions "bf16":.. and "int8":.., in 10^9
//                                               operations
//   build/bench/peak [-l LIMITS] THREADS turns  measures one of them on request, for bench/compare: see turns()
//
// LIMITS restrict the processor: "isa=x86-64-v3".
// The object contains the rates of bursts of a fraction of a second; turns() measures the lower sustained rates beside other work.
#include "target.h"
#include "tune/rates.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { MAX_THREADS = 256, MAX_LINE = 4096, FLOPS_ROUNDS = 1 << 17 /* about half a millisecond */ };
static const i64 array_bytes = 192 << 20; /* far beyond any cache */

/* turns */

enum kind { FLOPS, READ, N_KINDS };

struct work { struct micro_kernel k; double amount; /* flops or bytes of a run */ };

struct bench {
    struct micro m;
    struct work work[N_KINDS];
    enum kind kind; /* of the work at hand */
};

static bool open_work(struct bench *b, struct err *e)
{
    const struct caps *c = &b->m.caps;
    i64 n = c->n_threads, slice = array_bytes / 4 / n / micro_memory_step(c) * micro_memory_step(c);
    for (enum kind i = FLOPS; i < N_KINDS; i++) {
        struct work *w = &b->work[i];
        struct buf t = {0};
        w->k = (struct micro_kernel){.groups = n, .rounds = i == READ ? 1 : FLOPS_ROUNDS, .slice = slice, .size = {i == READ ? array_bytes : 4096, n * 4096}};
        if (i == FLOPS) w->amount = micro_ops_text(&t, c, RATE_FMA_F32, 1) * (double)n;
        else micro_memory_text(&t, c, MICRO_READ), w->amount = 4.0 * (double)(slice * n);
        bool ok = micro_open(&w->k, &b->m, buf_view(&t), e) && micro_fill(&b->m, w->k.buf[0], e);
        w->amount *= (double)w->k.rounds;
        buf_release(&t);
        if (!ok) return false;
    }
    return true;
}

static double processor_seconds(void) /* of all threads */
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static json_t *time_runs(const struct bench *b, long count, long warm)
{
    const struct micro_kernel *k = &b->work[b->kind].k;
    struct err e = {0};
    bool ok = true;
    for (long i = 0; i < warm && ok; i++) ok = micro_launch(k, &b->m, &e);
    double wall = os_now(), cpu = processor_seconds();
    for (long i = 0; i < count && ok; i++) ok = micro_launch(k, &b->m, &e);
    wall = os_now() - wall, cpu = processor_seconds() - cpu;
    if (!ok) return json_pack("{s:s}", "error", e.msg);
    return json_pack("{s:f s:f}", "wall", wall / (double)count, "cpu", cpu / b->m.caps.n_threads / (double)count);
}

static json_t *answer(struct bench *b, json_t *ask)
{
    const char *what = "", *of = "";
    json_int_t count = 0, warm = 0;
    json_unpack(ask, "{s?s s?s s?I s?I}", "do", &what, "of", &of, "count", &count, "warm", &warm);
    if (!strcmp(what, "load")) {
        b->kind = !strcmp(of, "read") ? READ : FLOPS;
        return json_pack("{s:f}", "amount", b->work[b->kind].amount);
    }
    if (strcmp(what, "time") != 0 || count < 1 || warm < 0) return json_pack("{s:s}", "error", "not understood");
    return time_runs(b, (long)count, (long)warm);
}

/* Commands of bench/worker.py, a line of JSON each, with an answer each. {"do": "load", "of": "flops"} or "read": selects the
   measurement; the answer is the number of flops or bytes of a run. {"do": "time", "count": N, "warm": M}: N runs after M untimed
   ones; the answer is the time of one, by the clock and of processor time of a thread. */
static bool turns(struct bench_target *t, struct err *e)
{
    char line[MAX_LINE];
    struct bench b = {.m = {.dev = t->driver->open(&t->dev, e), .caps = t->caps}};
    bool ok = b.m.dev && open_work(&b, e);
    while (ok && fgets(line, sizeof line, stdin)) {
        json_t *ask = json_loads(line, 0, NULL), *a = answer(&b, ask);
        json_dumpf(a, stdout, JSON_COMPACT);
        putchar('\n');
        fflush(stdout);
        json_decref(ask), json_decref(a);
    }
    for (enum kind i = FLOPS; i < N_KINDS && b.m.dev; i++) micro_close(&b.work[i].k, &b.m);
    if (b.m.dev) t->driver->close(b.m.dev);
    return ok;
}

static bool print_rates(const struct bench_target *t, struct err *e)
{
    struct rates r;
    struct device_target target = {
        .driver = t->driver, .opts = &t->dev, .lang = t->lang, .caps = &t->caps, .fingerprint = buf_view(&t->fingerprint),
        .toolchain = buf_view(&t->toolchain)};
    if (!rates_measure(&r, &target, e)) return false;
    const struct rate_memory *dram = &r.memory[RATE_DRAM];
    printf("{\"threads\":%u,\"gflops\":%.1f,\"gbytes\":%.1f,\"read\":%.1f", t->caps.n_threads, r.ops[RATE_FMA_F32].all * 1e-9,
           dram->copy.all * 1e-9, dram->read.all * 1e-9);
    if (r.ops[RATE_DOT_BF16].all > 0) printf(",\"bf16\":%.1f", r.ops[RATE_DOT_BF16].all * 1e-9);
    if (r.ops[RATE_DOT_I8].all > 0) printf(",\"int8\":%.1f", r.ops[RATE_DOT_I8].all * 1e-9);
    puts("}");
    return true;
}

int main(int argc, char **argv)
{
    struct err e = {0};
    struct bench_target t = {0};
    for (int c; (c = getopt(argc, argv, "l:")) != -1;) {
        if (c != 'l') return 2;
        t.dev.limits = str_of(optarg);
    }
    argc -= optind, argv += optind;
    t.dev.n_threads = argc > 0 ? (u32)atoi(argv[0]) : 1;
    if (t.dev.n_threads < 1 || t.dev.n_threads > MAX_THREADS) return fprintf(stderr, "peak: 1 to %d threads\n", MAX_THREADS), 2;
    bool ok = bench_target_open(&t, "cpu", &e) && (argc > 1 && !strcmp(argv[1], "turns") ? turns(&t, &e) : print_rates(&t, &e));
    if (!ok) fprintf(stderr, "peak: %s\n", e.msg);
    bench_target_release(&t);
    return !ok;
}
