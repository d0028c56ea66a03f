// SPDX-License-Identifier: Apache-2.0
//
// Random graphs over all operators of the registry (random_graph.h), run as whole programs on
// devices and compared with the reference evaluator (graph_shake.h). Costs and schedules are
// random, so every region, layout and family is selected somewhere; a graph with symbolic sizes
// runs at several. Graphs that failed once are kept in test/corpus/graphs and always run, on every
// device.
//
// DEVICE=interp,cpu,vulkan,opencl selects devices; SEED=n one graph, COUNT=n a number; SHOW=1
// prints graphs, REFUSED=1 reasons of skipped ones; KEEP=test/corpus/graphs stores failures there,
// reduced; CORPUS=folder reads kept graphs from elsewhere.
#include "graph_reduce.h"

#include <setjmp.h>

#include <cmocka.h>

#include "seeds.h"
#include "skip.h"
#include "vulkan_fixture.h"


enum { N_GRAPHS = 150 };

static bool seed_open(const struct source *from, u64 i, struct random_graph *s)
{
    bool ok = random_graph_open(s, i);
    if (ok && getenv("SHOW")) fprintf(stderr, "%.*s", STR_ARG(graph_text(&s->g, &s->arena)));
    return ok;
}

static const struct source seeds = {seed_open, NULL};

static bool is_chosen(const char *device)
{
    struct str word, rest = str_of(getenv("DEVICE"));
    if (!rest.n) return true;
    while (rest.n) {
        str_cut(rest, ',', &word, &rest);
        if (str_is(word, device)) return true;
    }
    return false;
}

/* Reports a failure, reduced, and stores it if requested. */
static void report(const char *device, const struct found *f, const struct kept_graph *k)
{
    struct reduction r = {.device = device, .best = *k, .until = os_now() + (double)seeds_env("REDUCE", 60)};
    struct err e = {0};
    if (still_fails(&r, k)) reduce(&r);
    fprintf(stderr, "%s, SEED=%llu: %s\n# %llu %s %s: %s\n%.*s", device, (unsigned long long)f->seed, f->what, (unsigned long long)k->seed,
            contents_name[r.best.contents], device, f->what, STR_ARG(r.best.text));
    if (getenv("KEEP")) {
        struct str what = str_of(f->what), line, rest;
        str_cut(what, '\n', &line, &rest);
        struct str text = str_fmt(&r.arena, "# %llu %s %s: %.*s\n%.*s", (unsigned long long)k->seed, contents_name[r.best.contents], device, STR_ARG(line),
                                  STR_ARG(r.best.text));
        const char *path = str_fmt(&r.arena, "%s/%s-%llu.graph", getenv("KEEP"), device, (unsigned long long)f->seed).p;
        if (!os_write(path, text.p, text.n, &e)) fprintf(stderr, "%s\n", e.msg);
    }
    arena_release(&r.arena);
}

static void report_seed(const char *device, const struct found *f)
{
    struct random_graph s;
    if (random_graph_open(&s, f->seed)) {
        const struct kept_graph k = {f->seed, s.contents, graph_text(&s.g, &s.arena)};
        report(device, f, &k);
    }
    random_graph_close(&s);
}

static void graphs_on(const char *device, u64 share)
{
    struct board *sum = board_open();
    u64 first = first_seed(0, N_GRAPHS), end = last_seed(0, N_GRAPHS);
    if (!is_chosen(device)) skip_test("DEVICE names others");
    if (!seeds_are_given() && !takes_all()) end = first + (end - first) / share + 1;
    u32 n_reported = 0;
    for (u64 at = first; at < end && !sum->is_absent;) {
        u64 n = end - at < MAX_BATCH ? end - at : MAX_BATCH - at % MAX_BATCH;
        if (n > end - at) n = end - at;
        run_batch(device, &seeds, at, (u32)n, false, sum);
        at += n;
        for (; n_reported < sum->n_found && n_reported < MAX_FOUND; n_reported++) report_seed(device, &sum->found[n_reported]);
        if (getenv("PROGRESS") && at % 1024 < n) fprintf(stderr, "%s: %llu graphs to seed %llu, %u failed\n", device, (unsigned long long)sum->graphs, (unsigned long long)at, sum->n_found);
    }
    if (sum->is_absent) {
        static char why[400];
        memcpy(why, sum->why, sizeof why);
        munmap(sum, sizeof *sum);
        skip_test("%s", why);
    }
    print_message("%s: %llu graphs, %llu nodes, %llu refused; %llu runs, %llu of them shaken, %llu sizes refused\n", device,
                  (unsigned long long)sum->graphs, (unsigned long long)sum->nodes, (unsigned long long)sum->refused, (unsigned long long)sum->runs,
                  (unsigned long long)sum->shaken, (unsigned long long)sum->skipped_sizes);
    if (getenv("NEVER"))
        for (i64 k = 0; op_all(k); k++)
            if (!sum->ops[k]) print_message("never run: %s\n", op_all(k)->name);
    u64 failed = sum->n_found, graphs = sum->graphs;
    munmap(sum, sizeof *sum);
    if (failed) fail_msg("%llu graphs failed", (unsigned long long)failed);
    if (!seeds_are_given() && end - first > 9) assert_true(graphs > (end - first) / 4);
}

static void on_interp(void **state) { graphs_on("interp", 1); }
static void on_cpu(void **state) { graphs_on("cpu", 8); }
static void on_vulkan(void **state) { graphs_on("vulkan", 8); }
static void on_opencl(void **state) { graphs_on("opencl", 40); }

/* kept graphs */

static u32 read_kept(struct arena *a, struct kept_graph **out, struct str **name)
{
    const char *folder = getenv("CORPUS") ? getenv("CORPUS") : "test/corpus/graphs";
    struct err e = {0};
    i64 n = 0;
    assert_true(os_list(a, folder, name, &n, &e));
    *out = arena_array(a, struct kept_graph, n + 1);
    for (i64 i = 0; i < n; i++) {
        struct str file;
        if (!os_read(a, str_fmt(a, "%s/%.*s", folder, STR_ARG((*name)[i])).p, 1 << 20, &file, &e) || !kept_parse(&(*out)[i], file))
            fail_msg("%.*s: %s", STR_ARG((*name)[i]), e.msg);
        struct random_graph s; /* valid for the importer once, possibly rejected today, but still a graph */
        random_graph_start(&s, 0);
        if (!graph_parse(&s.g, &s.arena, &s.sym, (*out)[i].text, &e)) fail_msg("%.*s: %s", STR_ARG((*name)[i]), e.msg);
        random_graph_close(&s);
    }
    return (u32)n;
}

static void kept_on(const char *device)
{
    struct arena a = {0};
    struct kept_graph *k;
    struct str *name;
    struct board *sum = board_open();
    if (!is_chosen(device)) skip_test("DEVICE names others");
    u32 n = read_kept(&a, &k, &name);
    for (u32 at = 0; at < n && !sum->is_absent; at += MAX_BATCH) {
        const struct source from = {kept_open, k + at};
        u32 was = sum->n_found;
        run_batch(device, &from, 0, n - at < MAX_BATCH ? n - at : MAX_BATCH, false, sum);
        for (u32 i = was; i < sum->n_found; i++) print_error("%s: graph of seed %llu: %s\n", device, (unsigned long long)sum->found[i].seed, sum->found[i].what);
    }
    static char why[400];
    memcpy(why, sum->why, sizeof why);
    bool is_absent = sum->is_absent;
    u64 failed = sum->n_found, graphs = sum->graphs + sum->refused;
    munmap(sum, sizeof *sum);
    arena_release(&a);
    if (is_absent) skip_test("%s", why);
    if (failed) fail_msg("%llu kept graphs failed on %s", (unsigned long long)failed, device);
    assert_int_equal(graphs, n);
}

static void kept_on_interp(void **state) { kept_on("interp"); }
static void kept_on_cpu(void **state) { kept_on("cpu"); }
static void kept_on_vulkan(void **state) { kept_on("vulkan"); }
static void kept_on_opencl(void **state) { kept_on("opencl"); }

/* Every operator's instances find their way into graphs. */
static void test_all_operators(void **state)
{
    u32 n_never = 0;
    for (i64 k = 0; op_all(k); k++) {
        bool there = false;
        for (u64 seed = 0; seed < 40 && !there; seed++) {
            struct random_graph s;
            random_graph_start(&s, seed);
            there = add_op(&s, op_all(k));
            random_graph_close(&s);
        }
        if (!there) print_error("never in a graph: %s\n", op_all(k)->name), n_never++;
    }
    assert_int_equal(n_never, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_operators), cmocka_unit_test(kept_on_interp), cmocka_unit_test(kept_on_cpu), cmocka_unit_test(kept_on_vulkan),
        cmocka_unit_test(kept_on_opencl), cmocka_unit_test(on_interp), cmocka_unit_test(on_cpu), cmocka_unit_test(on_vulkan), cmocka_unit_test(on_opencl),
    };
    vulkan_stay_loaded();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
