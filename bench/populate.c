// SPDX-License-Identifier: Apache-2.0
//
// Candidates of GEMM per second that become binaries of a GPU language on one processor: random
// legal schedules of the GEMM families with workgroups, built one by one, and several in one run of
// the compiler.
//
//   taskset -c 1 build/bench/populate [DEVICE [CANDIDATES]]      default: cuda:sm_80 48
//
// QUERN_CUDA_LANGUAGE=ptx builds PTX. The device is only described. A line for each type and family: characters of a text; milliseconds
// from schedule to text; candidates per second of CPU time from schedule to binary, by the number
// that share a program; candidates that fail to build.
#include "target.h"
#include "lab/lab.h"
#include "tune/tune.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/times.h>
#include <unistd.h>

enum { MOST = 256 };

struct bench {
    struct arena arena;
    struct bench_target target;
    struct builder builder;
    struct str text[MOST];
    i64 bytes;
    u32 n;
    double emit; /* seconds from schedules to texts */
};

/* CPU time of this process and of finished children. */
static double seconds(void)
{
    struct tms t;
    times(&t);
    return (double)(t.tms_utime + t.tms_stime + t.tms_cutime + t.tms_cstime) / (double)sysconf(_SC_CLK_TCK);
}

static bool emit(struct bench *b, const struct candidate *c, const struct task *t, struct map *seen)
{
    struct err e = {0};
    struct kernel k;
    struct buf text = {0};
    bool ok = gen_kernel(&k, &b->arena, c, t, &b->target.caps, &e) && !map_get(seen, str_of(k.name)) &&
              lang_render(&text, b->builder.lang, &k.kir, &b->target.caps, &b->arena, &e);
    if (ok) {
        map_put(seen, str_dup(&b->arena, str_of(k.name)), 1);
        b->text[b->n++] = str_dup(&b->arena, buf_view(&text));
        b->bytes += text.n;
    }
    buf_release(&text);
    return ok;
}

/* Different random candidates of one family. */
static bool draw(struct bench *b, enum dtype type, const char *family, u32 want, struct err *e)
{
    struct symtab names;
    struct task t;
    struct map seen;
    struct rng r = rng_seed(1);
    struct lab_config c = {.m = 1024, .n = 1024, .k = 1024};
    symtab_init(&names, &b->arena);
    map_init(&seen, &b->arena);
    if (!lab_task(&t, &b->arena, &names, &c, type, e)) return false;
    b->n = 0, b->bytes = 0, b->emit = 0;
    for (u32 i = 0; i < 100 * want && b->n < want; i++) {
        struct candidate x;
        if (!gen_random(&t, &b->target.caps, &r, &x) || !str_is(str_of(family), x.gen->name)) continue;
        double start = seconds();
        emit(b, &x, &t, &seen);
        b->emit += seconds() - start;
    }
    return true;
}

/* Candidates per second, with `share` of them per program. */
static bool build(struct bench *b, u32 share, u32 *n_bad, double *rate, struct err *e)
{
    struct built out[MOST];
    double start = seconds();
    b->builder.may_join = share > 1;
    *n_bad = 0;
    for (u32 i = 0; i < b->n; i += share) {
        struct arena a = {0};
        u32 n = (u32)i64_min(share, b->n - i);
        if (!build_all(&b->builder, b->text + i, n, out, &a, e)) return false;
        for (u32 k = 0; k < n; k++) *n_bad += !out[k].ok;
        arena_release(&a);
    }
    *rate = b->n / (seconds() - start + b->emit);
    return true;
}

static bool measure(struct bench *b, enum dtype type, const char *family, u32 want, struct err *e)
{
    static const u32 share[] = {1, 4, 16};
    u32 n_bad = 0;
    double rate = 0;
    if (!draw(b, type, family, want, e)) return false;
    if (b->n == 0) return true; /* unsupported by the device */
    printf("%-5s %-12s %5u %9lld %8.2f", dtype_name(type), family, b->n, (long long)(b->bytes / b->n), 1e3 * b->emit / b->n);
    for (i64 i = 0; i < countof(share); i++) {
        if (!build(b, share[i], &n_bad, &rate, e)) return false;
        printf(" %8.1f", rate);
        fflush(stdout);
    }
    printf(" %5u\n", n_bad);
    return true;
}

int main(int argc, char **argv)
{
    static const struct { enum dtype type; const char *family; } row[] = {
        {DT_F32, "wg_gemm"}, {DT_F32, "mma_gemm"}, {DT_F16, "wg_gemm"}, {DT_F16, "mma_gemm"}};
    const char *device = argc > 1 ? argv[1] : "cuda:sm_80";
    u32 n = argc > 2 ? (u32)atoi(argv[2]) : 48;
    struct bench b = {0};
    struct err e = {0};
    bool ok = bench_target_open(&b.target, device, &e);
    b.builder = (struct builder){.n_parallel = 1, .lang = b.target.lang, .caps = &b.target.caps, .toolchain = buf_view(&b.target.toolchain)};
    if (ok) printf("# products of 1024 x 1024 x 1024 on %s; %s\n", device, b.target.toolchain.p);
    if (ok) printf("# type family          n     bytes  text ms    1 by 1  4 shared 16 shared  bad\n");
    for (i64 i = 0; i < countof(row) && ok; i++) ok = measure(&b, row[i].type, row[i].family, n < MOST ? n : MOST, &e);
    if (!ok) fprintf(stderr, "populate: %s\n", e.msg);
    bench_target_release(&b.target);
    arena_release(&b.arena);
    return !ok;
}
