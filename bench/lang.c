// SPDX-License-Identifier: Apache-2.0
//
// Candidates per second that become binaries of a GPU language on one core: kernels of all tasks of
// a zoo network, under the first schedules of every family that matches a typical GPU.
//
//   build/bench/lang [LANGUAGE [NETWORK [SCHEDULES [ARCH]]]]      default: spirv oidn-small 40 gpu
//
// One line: candidates, candidates per second, CPU time per candidate by step, mean size.
#include "pass/pass.h"
#include "tune/tune.h"
#include "zoo/zoo.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

struct bench {
    struct arena arena;
    struct symtab sym;
    struct graph g;
    struct cover cover;
    struct caps caps;
    const struct lang *lang;
    const struct task *task;
    u32 most, n, n_task, n_bad; /* candidates: of a task, seen, of this task, without a module */
    double emit, print, build;  /* seconds */
    i64 bytes;
};

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static bool one(void *user, const struct candidate *c)
{
    struct bench *b = user;
    struct arena a = {0};
    struct err e = {0};
    struct kernel k;
    struct buf text = {0}, module = {0};
    double t[4] = {seconds()};
    bool ok = gen_kernel(&k, &a, c, b->task, &b->caps, &e);
    t[1] = seconds();
    ok = ok && lang_render(&text, b->lang, &k.kir, &b->caps, &a, &e);
    t[2] = seconds();
    ok = ok && b->lang->build(&module, buf_view(&text), &b->caps, 10, &e);
    t[3] = seconds();
    b->emit += t[1] - t[0], b->print += t[2] - t[1], b->build += t[3] - t[2];
    b->bytes += module.n;
    b->n_bad += !ok;
    if (!ok && b->n_bad == 1) fprintf(stderr, "%s\n", e.msg);
    buf_release(&text);
    buf_release(&module);
    arena_release(&a);
    b->n++;
    return ++b->n_task < b->most;
}

static bool load(struct bench *b, const char *name, struct err *e)
{
    const struct zoo *z = zoo_find(str_of(name));
    symtab_init(&b->sym, &b->arena);
    graph_init(&b->g, &b->arena, &b->sym);
    if (!z) return err_set(e, ERR_USAGE, "no network '%s'", name);
    return zoo_build(z, NULL, false, &b->g, e) && op_infer_all(&b->g, e) && pass_run_all(&b->g, NULL, e) &&
           cover_build(&b->cover, &b->g, &b->arena, NULL, e);
}

int main(int argc, char **argv)
{
    const char *name = argc > 1 ? argv[1] : "spirv", *net = argc > 2 ? argv[2] : "oidn-small";
    struct bench b = {.most = argc > 3 ? (u32)atoi(argv[3]) : 40, .lang = lang_find(str_of(name))};
    struct err e = {0};
    const char *target = "arch=\"gpu\" vector_bytes=16 n_vector_regs=255 n_threads=64 "
                         "l2_bytes=4194304 has_fma=1 is_gpu=1 max_group=1024 "
                         "subgroup=32 subgroup_min=32 subgroup_max=32 shared_bytes=49152 "
                         "max_push=128 buffer_align=16 has_subgroup=1 "
                         "has_f16=1 has_f64=1 has_i8=1 has_i16=1 has_i64=1 has_rte_f16=1 spirv=16 "
                         "gflops=10000 gbps=500 "
                         "matrix=\"16x16x16:f16,f16,f32,f32\"";
    bool ok = b.lang || err_set(&e, ERR_USAGE, "no language '%s'", name);
    ok = ok && caps_parse(&b.caps, str_of(target), &e) && load(&b, net, &e);
    if (!ok) {
        fprintf(stderr, "lang: %s\n", e.msg);
        return 1;
    }
    if (argc > 4) snprintf(b.caps.arch, sizeof b.caps.arch, "%s", argv[4]);
    if (!str_is(S("spirv"), name)) b.caps.matrix[0] = 0;
    for (u32 i = 0; i < b.cover.task.n; i++) {
        b.task = b.cover.task.v[i];
        b.n_task = 0;
        gen_each(NULL, b.task, &b.caps, one, &b);
    }
    double all = b.emit + b.print + b.build;
    printf("%u candidates of %u tasks, %u without a module: %.0f/s; ms each: kernel %.3f, text "
           "%.3f, module %.3f; %lld bytes\n",
           b.n, b.cover.task.n, b.n_bad, b.n / all, 1e3 * b.emit / b.n, 1e3 * b.print / b.n,
           1e3 * b.build / b.n, (long long)(b.bytes / b.n));
    arena_release(&b.arena);
    return 0;
}
