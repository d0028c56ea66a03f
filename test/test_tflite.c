// SPDX-License-Identifier: Apache-2.0
//
// Models of TFLite, as far as no interpreter is needed (test/tflite.sh has one): random instances
// of all operators, and random graphs of them, are exported, the same bytes each time, or refused
// with a reason. The command of the Edge TPU's compiler.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "export/export.h"
#include "random_graph.h"
#include "seeds.h"
#include "skip.h"

static bool has_flatc(void)
{
    const char *argv[] = {"flatc", "--version", NULL};
    struct os_status s = os_run(&(struct os_proc_opts){.argv = argv, .timeout = 60});
    return s.how == OS_EXITED && s.code == 0;
}

struct counts { u32 n, exported; };

/* Exported twice alike, or refused. */
static void check_graph(struct counts *c, const struct graph *g, u64 seed)
{
    const struct export_tflite_opts o = {
        .is_channels_last = seed & 1, .is_for_edgetpu = seed % 4 == 2, .type = seed % 3};
    struct buf one = {0}, two = {0};
    struct err e = {0};
    c->n++;
    if (!export_tflite_bytes(g, &o, &one, &e)) {
        assert_int_not_equal(e.code, ERR_NONE);
        if (e.code == ERR_FAILED) fail_msg("seed %d: %s", (int)seed, e.msg); /* by flatc, or a bug */
    } else {
        c->exported++;
        assert_true(export_tflite_bytes(g, &o, &two, &e));
        assert_true(one.n == two.n && !memcmp(one.p, two.p, (size_t)one.n));
        assert_true(one.n > 8 && !memcmp(one.p + 4, "TFL3", 4));
    }
    buf_release(&one), buf_release(&two);
}

static void test_operators(void **state)
{
    struct counts c = {0};
    u64 from = first_seed(0, 10), to = last_seed(0, 10);
    if (!has_flatc()) skip_test("no flatc (tool/deps tflite)");
    for (i64 k = 0; op_all(k); k++)
        for (u64 seed = from; seed < to && seed < from + 2; seed++) {
            struct arena a = {0};
            struct symtab t;
            struct graph g;
            struct err e = {0};
            struct rng r = rng_seed(seed * 1000 + (u64)k);
            symtab_init(&t, &a);
            graph_init(&g, &a, &t);
            op_all(k)->random(op_all(k), &g, &r);
            if (op_infer_all(&g, &e)) check_graph(&c, &g, seed);
            arena_release(&a);
        }
    printf("%u instances, %u exported\n", c.n, c.exported);
    assert_true(c.exported > c.n / 5);
}

static void test_graphs(void **state)
{
    struct counts c = {0};
    (void)make_inputs, (void)bind_sizes; /* graphs are not run here */
    if (!has_flatc()) skip_test("no flatc (tool/deps tflite)");
    for (u64 seed = first_seed(0, 250); seed < last_seed(0, 250); seed++) {
        struct random_graph s;
        if (random_graph_open(&s, seed)) check_graph(&c, &s.g, seed);
        random_graph_close(&s);
    }
    printf("%u graphs, %u exported\n", c.n, c.exported);
    assert_true(is_enough(c.exported, 1));
}

static void test_no_flatc(void **state)
{
    struct arena a = {0};
    struct symtab t;
    struct graph g;
    struct err e = {0};
    struct buf b = {0};
    char *path = getenv("PATH") ? strdup(getenv("PATH")) : NULL;
    symtab_init(&t, &a);
    const struct str text =
        S("graph {\n  input %x: f32[2]\n  %y: f32[2] = Relu(%x)\n  output %y\n}\n");
    assert_true(graph_parse(&g, &a, &t, text, &e));
    setenv("PATH", "/none", 1);
    assert_false(export_tflite_bytes(&g, &(struct export_tflite_opts){0}, &b, &e));
    if (path) setenv("PATH", path, 1);
    assert_non_null(strstr(e.msg, "flatbuffers-compiler"));
    free(path);
    arena_release(&a);
}

static void test_command(void **state)
{
    struct buf b = {0};
    export_edgetpu_command(&b, "a b.tflite", "it's");
    assert_string_equal(b.p, "edgetpu_compiler -s -o 'it'\\''s' 'a b.tflite'");
    buf_release(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_operators),
        cmocka_unit_test(test_graphs),
        cmocka_unit_test(test_no_flatc),
        cmocka_unit_test(test_command),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
