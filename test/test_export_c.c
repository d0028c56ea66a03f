// SPDX-License-Identifier: Apache-2.0
//
// Programs in C: random networks, exported, built by the system's compiler as C99 without warnings and with a sanitizer, and run on inputs whose
// results are known. Placement of buffers: minimal for few of them, valid for any, compared with all placements.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>

#include "export/export_c.h"
#include "quern.h"
#include "random_net.h"
#include "seeds.h"
#include "skip.h"

/* Programs. */

static struct str output_of(const char *const *argv, struct buf *out, bool *ok)
{
    struct os_status s = os_run(&(struct os_proc_opts){.argv = argv, .timeout = 300, .out = out});
    *ok = s.how == OS_EXITED && s.code == 0;
    return buf_view(out);
}

static bool run(const char *const *argv)
{
    struct buf out = {0};
    bool ok;
    struct str text = output_of(argv, &out, &ok);
    if (!ok) fprintf(stderr, "%.*s\n", STR_ARG(text));
    buf_release(&out);
    return ok;
}

struct options { const char *isa, *word[8]; };

/* Options of a network by its number: targets, threads, weights in a file. */
static struct options options_of(u64 seed)
{
    static const char *const isa[] = {"isa=generic", "isa=armv7e-m", "isa=rv32imac", "isa=x86-64"};
    struct options o = {0};
    u32 n = 0;
    o.word[n++] = isa[seed % 4];
    o.word[n++] = "samples=2";
    if (seed % 3 == 1) o.word[n++] = "threads=3";
    if (seed % 5 == 2) o.word[n++] = "weights=w.bin";
    return o;
}

static void check_network(u64 seed)
{
    struct net t;
    struct err e = {0};
    struct str dir;
    net_open(&t, seed);
    struct arena a = {0};
    quern *q = quern_open(NULL);
    quern_model *m = NULL;
    assert_true(os_temp_dir(&a, &dir, &e));
    const char *path = str_fmt(&a, "%.*s/n.onnx", STR_ARG(dir)).p, *to = str_fmt(&a, "%.*s/c", STR_ARG(dir)).p;
    if (!export_onnx_graph(&t.g, path, &e)) fail_msg("seed %llu: %s", (unsigned long long)seed, e.msg);
    struct quern_model_opts mo = {.size = sizeof mo, .assume = seed % 2 ? "H:9,W:14" : "H:8,W:8"};
    struct options o = options_of(seed);
    struct quern_export_opts eo = {.size = sizeof eo, .to = "c", .option = o.word};
    if (quern_model_open(q, path, &mo, &m)) fail_msg("seed %llu: %s", (unsigned long long)seed, quern_error(q));
    if (quern_model_export(m, to, &eo)) fail_msg("seed %llu: %s", (unsigned long long)seed, quern_error(q));
    const char *program = str_fmt(&a, "%s/t", to).p, *weights = str_fmt(&a, "%s/w.bin", to).p;
    const char *net = str_fmt(&a, "%s/net.c", to).p, *test = str_fmt(&a, "%s/net_test.c", to).p, *arrays = str_fmt(&a, "%s/net_weights.c", to).p;
    bool has_file = seed % 5 == 2;
    const char *const cc[] = {"cc", "-std=c99", "-Wall", "-Wextra", "-pedantic", "-Werror", "-O1", "-fsanitize=undefined", "-fno-sanitize-recover=all", "-o",
                              program, net, test, "-lm", has_file ? NULL : arrays, NULL};
    if (!run(cc)) fail_msg("seed %llu: not C99 without warnings", (unsigned long long)seed);
    if (!run((const char *const[]){program, has_file ? weights : NULL, NULL})) fail_msg("seed %llu: wrong results, options %s", (unsigned long long)seed, o.word[0]);
    quern_model_close(m);
    quern_close(q);
    os_remove_tree(dir.p);
    arena_release(&a);
    net_close(&t);
}

static void test_networks(void **state)
{
    if (!run((const char *const[]){"cc", "--version", NULL})) skip_test("no C compiler");
    for (u64 seed = first_seed(1, 21); seed < last_seed(1, 21); seed++) check_network(seed);
}

/* Placement. */

static bool overlap(const struct c_piece *a, const struct c_piece *b)
{
    bool meet = a->first <= b->last && b->first <= a->last;
    return meet && a->size && b->size && a->at < b->at + b->size && b->at < a->at + a->size;
}

static void random_pieces(struct c_piece *v, u32 n, struct rng *r, i64 unit)
{
    for (u32 i = 0; i < n; i++) {
        u32 x = (u32)rng_range(r, 0, n), y = (u32)rng_range(r, 0, 3);
        v[i] = (struct c_piece){.size = rng_range(r, 0, 9) * unit, .first = x, .last = x + y};
    }
}

static void check_placement(const struct c_piece *v, u32 n, const struct c_arena *m, u64 seed)
{
    i64 top = 0;
    for (u32 i = 0; i < n; i++) {
        assert_true(v[i].at >= 0);
        top = i64_max(top, v[i].at + v[i].size);
        for (u32 k = 0; k < i; k++)
            if (overlap(&v[i], &v[k])) fail_msg("seed %llu: %u and %u overlap", (unsigned long long)seed, i, k);
    }
    assert_int_equal(top, m->bytes);
    assert_true(m->bound <= m->bytes);
}

/* The least number of bytes by trying all offsets. */
static bool fits_within(struct c_piece *v, u32 n, u32 at, i64 bytes)
{
    if (at == n) return true;
    for (i64 x = 0; x + v[at].size <= bytes; x++) {
        bool free = true;
        v[at].at = x;
        for (u32 k = 0; k < at; k++) free = free && !overlap(&v[at], &v[k]);
        if (free && fits_within(v, n, at + 1, bytes)) return true;
    }
    return false;
}

static void test_minimal(void **state)
{
    for (u64 seed = first_seed(1, 400); seed < last_seed(1, 400); seed++) {
        struct rng r = rng_seed(seed);
        struct c_piece v[7], w[7];
        struct c_arena m;
        struct arena a = {0};
        struct err e = {0};
        u32 n = (u32)rng_range(&r, 0, 7);
        random_pieces(v, n, &r, 1);
        memcpy(w, v, sizeof v);
        assert_true(c_arena_place(v, n, &m, &a, &e));
        check_placement(v, n, &m, seed);
        assert_true(m.is_minimal);
        if (m.bytes > m.bound && fits_within(w, n, 0, m.bytes - 1)) fail_msg("seed %llu: %lld bytes are not minimal", (unsigned long long)seed, (long long)m.bytes);
        arena_release(&a);
    }
}

static void test_many(void **state)
{
    static const u32 sizes[] = {20, 30, 31, 300, 2000};
    u32 n_minimal = 0, n_close = 0, n_all = 0;
    for (u64 seed = first_seed(1, 50); seed < last_seed(1, 50); seed++) {
        struct rng r = rng_seed(seed);
        struct c_arena m;
        struct arena a = {0};
        struct err e = {0};
        u32 n = sizes[seed % countof(sizes)];
        struct c_piece *v = arena_array(&a, struct c_piece, n);
        random_pieces(v, n, &r, rng_range(&r, 1, 4096) * 8);
        assert_true(c_arena_place(v, n, &m, &a, &e));
        check_placement(v, n, &m, seed);
        n_minimal += m.is_minimal, n_all++;
        n_close += (double)m.bytes <= 1.02 * (double)m.bound;
        arena_release(&a);
    }
    printf("%u of %u minimal, %u within 2%% of the bound\n", n_minimal, n_all, n_close);
    assert_true(seeds_are_given() || n_minimal >= n_all / 2);
}

static void test_too_large(void **state)
{
    struct c_piece v[2] = {{.size = INT64_MAX / 2 + 8, .last = 1}, {.size = INT64_MAX / 2 + 8, .last = 1}};
    struct c_arena m;
    struct arena a = {0};
    struct err e = {0};
    assert_false(c_arena_place(v, 2, &m, &a, &e));
    assert_int_equal(e.code, ERR_FAILED);
    arena_release(&a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_networks), cmocka_unit_test(test_minimal), cmocka_unit_test(test_many), cmocka_unit_test(test_too_large)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
