// SPDX-License-Identifier: Apache-2.0
//
// Data-dependent sizes, from the text of a graph to results: programs of the interpreter and of the
// CPU against the reference evaluator, run repeatedly with different data; memory given by the
// caller; invalid sizes; saved programs; manipulated files.
#include "program_fixture.h"
#include "seeds.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static quern_tensor *ints(const struct fixture *b, int64_t n, const int64_t *v)
{
    quern_tensor *t = NULL;
    must(b, quern_tensor_new(b->q, QUERN_I64, 1, &n, v, &t));
    return t;
}

/* Shape and content of both alike. */
static void check_same(const quern_tensor *a, const quern_tensor *b)
{
    assert_int_equal(quern_tensor_rank(a), quern_tensor_rank(b));
    for (int d = 0; d < quern_tensor_rank(a); d++) assert_int_equal(quern_tensor_dims(a)[d], quern_tensor_dims(b)[d]);
    i64 size = quern_tensor_dtype(a) == QUERN_F32 ? 4 : 8;
    if (quern_tensor_count(a))
        assert_memory_equal(quern_tensor_data(a), quern_tensor_data(b), (size_t)(size * quern_tensor_count(a)));
}

static void run_both(struct fixture *b, quern_tensor **in, int n_in, int n_out)
{
    quern_tensor *want[4] = {0}, *got[4] = {0};
    must(b, quern_model_eval(b->m, in, n_in, want, n_out));
    must(b, quern_run(b->p, in, n_in, got, n_out));
    for (int k = 0; k < n_out; k++) {
        check_same(got[k], want[k]);
        quern_tensor_free(want[k]);
        quern_tensor_free(got[k]);
    }
}

static const char *const devices[] = {"interp", "cpu"};

static const char find[] = "graph {\n"
                           "  input %x: f32[N,M]\n"
                           "  %r: f32[?] = Relu(%x)\n"
                           "  %z: i64[?] = NonZero(%r)\n"
                           "  %t: i64[?] = Transpose(%z)\n"
                           "  %g: f32[?] = GatherND(%r, %t)\n"
                           "  const %half: f32[] = [0.5]\n"
                           "  %c: bool[?] = Greater(%g, %half)\n"
                           "  const %two: f32[] = [2.0]\n"
                           "  %d: f32[?] = Mul(%g, %two)\n"
                           "  const %one: f32[] = [1.0]\n"
                           "  %e: bool[?] = Greater(%g, %one)\n"
                           "  %y: f32[?] = Compress(%d, %e)\n" /* a run-time size that depends on another one */
                           "  output %y\n  output %z\n  output %g\n"
                           "}\n";

static void test_find(void **state)
{
    for (int d = 0; d < 2; d++) {
        struct fixture b;
        struct rng r = rng_seed(7);
        assert_true(fixture_open(&b, find, devices[d]));
        for (int k = 0; k < 12; k++) {
            quern_tensor *x = floats(&b, 2, (int64_t[]){rng_range(&r, 0, 9), k % 3 ? 40 : rng_range(&r, 1, 9)}, &r);
            run_both(&b, &x, 1, 3);
            quern_tensor_free(x);
        }
        fixture_close(&b);
    }
}

/* Buffers with an upper bound are laid out in advance, so memory does not depend on the data; with a large bound it does. */
static void test_ahead(void **state)
{
    static const char *const way[] = {"  %r: f32[?] = Relu(%x)\n", "  const %s: i64[2] = [1000,1]\n  %q: f32[?] = Tile(%x, %s)\n  %r: f32[?] = Relu(%q)\n"};
    for (int large = 0; large < 2; large++) {
        struct fixture b;
        char text[1000];
        i64 used[3];
        snprintf(text, sizeof text,
                 "graph {\n  input %%x: f32[N,M]\n%s  %%z: i64[?] = NonZero(%%r)\n  %%a: f32[?] = Cast(%%z) {to=1}\n  %%b: f32[?] = Softmax(%%a) {axis=1}\n"
                 "  %%y: f32[?] = ReduceSum(%%b) {keepdims=0}\n  output %%y\n}\n", way[large]);
        assert_true(fixture_open(&b, text, "interp"));
        for (int k = 0; k < 3; k++) {
            quern_tensor *x = NULL, *y[1] = {0};
            must(&b, quern_tensor_new(b.q, QUERN_F32, 2, (int64_t[]){40, 50}, NULL, &x));
            float *v = quern_tensor_data(x);
            for (int i = 0; i < 2000; i++) v[i] = i < 100 * k;
            must(&b, quern_run(b.p, &x, 1, y, 1));
            used[k] = quern_program_memory(b.p);
            quern_tensor_free(x);
            quern_tensor_free(y[0]);
        }
        if (large) assert_true(used[0] < used[1] && used[1] < used[2]);
        else assert_true(used[0] == used[1] && used[1] == used[2] && used[0] > 2 * 2000 * 8);
        fixture_close(&b);
    }
}

static const char shapes[] = "graph {\n"
                             "  input %x: f32[N,6]\n  input %s: i64[3]\n  input %k: i64[1]\n"
                             "  %a: f32[?] = Reshape(%x, %s)\n"
                             "  const %from: i64[1] = [0]\n"
                             "  %b: f32[?] = Slice(%a, %from, %k)\n"
                             "  %y: f32[?] = Add(%b, %b)\n"
                             "  const %start: i64[] = [0]\n  const %step: i64[] = [2]\n  const %none: i64[0] = []\n"
                             "  %end: i64[?] = Reshape(%k, %none)\n"
                             "  %w: i64[?] = Range(%start, %end, %step)\n"
                             "  output %y\n  output %w\n"
                             "}\n";

static void test_shapes(void **state)
{
    static const int64_t to[][3] = {{-1, 0, 2}, {8, 3, 1}, {2, 3, -1}, {1, 24, 1}, {-1, 1, 1}};
    struct rng r = rng_seed(3);
    struct fixture b;
    assert_true(fixture_open(&b, shapes, "interp"));
    quern_tensor *in[3] = {floats(&b, 2, (int64_t[]){4, 6}, &r)};
    for (int i = 0; i < 15; i++) {
        in[1] = ints(&b, 3, to[i % 5]);
        in[2] = ints(&b, 1, (int64_t[]){(int64_t[]){-1, 3, INT64_MAX / 8 * (i % 2)}[i / 5]});
        if (i / 5 < 2 || !(i % 2)) run_both(&b, in, 3, 2);
        quern_tensor_free(in[1]);
        quern_tensor_free(in[2]);
    }
    quern_tensor_free(in[0]);
    fixture_close(&b);
}

/* Sizes that kernels compute: those kernels know them from their own sums only, and what else reads them waits for them. */
static void test_computed(void **state)
{
    static const char *const way[] = {
        "  %o: i64[?] = Add(%v, %two)\n", "  %o: i64[?] = ReduceMax(%pair) {axes=[0], keepdims=0}\n", "  %q: i64[?] = Add(%v, %two)\n  %o: i64[?] = Reshape(%q, %flat)\n",
        "  %a: i64[?] = Add(%v, %two)\n  %first: i64[?] = Gather(%a, %one)\n  %o: i64[?] = Concat(%first, %one) {axis=0}\n",
        "  %h: i64[?] = OneHot(%one, %two, %v) {axis=-1}\n  %o: i64[?] = Reshape(%h, %flat)\n"};
    struct rng r = rng_seed(11);
    for (u32 k = 0; k < 2 * countof(way); k++) {
        struct fixture b;
        char text[1000];
        snprintf(text, sizeof text,
                 "graph {\n  input %%x: f32[N,4]\n  input %%v: i64[2]\n  const %%two: i64[1] = [2]\n  const %%one: i64[1] = [1]\n  const %%flat: i64[1] = [-1]\n"
                 "  const %%grid: i64[2] = [2,2]\n  %%twice: i64[?] = Concat(%%v, %%v) {axis=0}\n  %%pair: i64[?] = Reshape(%%twice, %%grid)\n"
                 "%s  %%y: f32[?] = Tile(%%x, %%o)\n  %%z: i64[?] = Mul(%%o, %%two)\n  output %%y\n  output %%z\n}\n", way[k / 2]);
        assert_true(fixture_open(&b, text, devices[k % 2]));
        for (int i = 0; i < 4; i++) {
            quern_tensor *in[2] = {floats(&b, 2, (int64_t[]){3, 4}, &r), ints(&b, 2, (int64_t[]){rng_range(&r, 0, 2), rng_range(&r, 0, 3)})};
            run_both(&b, in, 2, 2);
            quern_tensor_free(in[0]);
            quern_tensor_free(in[1]);
        }
        fixture_close(&b);
    }
}

/* Impossible sizes are the same error of the program and of the reference, and do not affect the next run. */
static void test_errors(void **state)
{
    static const struct { int64_t to[3]; const char *why; } bad[] = {
        {{-2, 4, 3}, "s_v = 0, s_m = 2, but Reshape 'a' needs -s_m+s_v (-2) to be at least -1; s_m is minus element 0 of 's'; s_v is element 0 of 's'"},
        {{5, 5, 1}, "N = 4, a_n4 = 5, a_n5 = 5, a_n6 = 1, but Reshape 'a' needs N*6 (24) to be a_n4*a_n5*a_n6 (25)"},
        {{7, -1, 2}, "but Reshape 'a' needs N*6 (24) to be "},
        {{INT64_MAX, 2, 1}, "Reshape 'a' needs"},
        {{INT64_MIN, -1, 1}, "Reshape 'a' needs"},
    };
    struct rng r = rng_seed(3);
    struct fixture b;
    assert_true(fixture_open(&b, shapes, "interp"));
    quern_tensor *in[3] = {floats(&b, 2, (int64_t[]){4, 6}, &r), NULL, ints(&b, 1, (int64_t[]){2})};
    for (int i = 0; i < countof(bad); i++) {
        quern_tensor *out[2] = {0};
        char said[500];
        in[1] = ints(&b, 3, bad[i].to);
        assert_int_equal(quern_run(b.p, in, 3, out, 2), QUERN_INPUT);
        snprintf(said, sizeof said, "%s", quern_error(b.q));
        if (!strstr(said, bad[i].why)) fail_msg("%s", said);
        assert_int_not_equal(quern_model_eval(b.m, in, 3, out, 2), QUERN_OK);
        if (!strstr(quern_error(b.q), bad[i].why)) fail_msg("%s", quern_error(b.q));
        quern_tensor_free(in[1]);
        in[1] = ints(&b, 3, (int64_t[]){2, 6, -1});
        run_both(&b, in, 3, 2);
        quern_tensor_free(in[1]);
    }
    quern_tensor_free(in[0]);
    quern_tensor_free(in[2]);
    fixture_close(&b);
}

/* The program from a file. */
static void reopen(struct fixture *b)
{
    char path[] = "/tmp/quern-made-XXXXXX";
    struct quern_run_opts run = QUERN_OPTS(quern_run_opts);
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    run.device = "interp";
    must(b, quern_program_save(b->p, path));
    quern_program_close(b->p);
    b->p = NULL;
    must(b, quern_program_open(b->q, path, &run, &b->p));
    remove(path);
}

/* Every kind of check names the node, its operator, the sizes and where they come from; also in a program that was saved. */
static void test_reasons(void **state)
{
    static const struct { const char *text; int64_t k; const char *why; } rows[] = {
        {"graph {\n input %x: f32[N]\n input %k: i64[1]\n %y: f32[?], %i: i64[?] = TopK \"top\"(%x, %k)\n output %y\n}\n", 9,
         "N = 4, y_n = 9, but TopK 'top' needs y_n to be at most N; y_n is -k_m+k_v; k_m is minus element 0 of 'k'; k_v is element 0 of 'k'"},
        {"graph {\n input %x: f32[N]\n input %k: i64[1]\n const %z: i64[1] = [0]\n %p: i64[?] = Concat(%z, %k) {axis=0}\n"
         " %y: f32[?] = Pad \"pad\"(%x, %p)\n output %y\n}\n", -7,
         "N = 4, k_v = 0, k_m = 7, but Pad 'pad' needs N-k_m+k_v (-3) to be at least 0; k_m is minus element 0 of 'k'; k_v is element 0 of 'k'"},
        {"graph {\n input %x: f32[N]\n input %k: i64[1]\n const %z: i64[1] = [0]\n %s: f32[?] = Slice(%x, %z, %k)\n const %c: f32[3] = [1.0, 2.0, 3.0]\n"
         " %y: f32[?] = Add \"sum\"(%s, %c)\n output %y\n}\n", 2,
         "s_n = 2, but Add 'sum' needs s_n to be 3"},
        {"graph {\n input %x: f32[1,1,4,N]\n input %k: i64[1]\n const %z: i64[1] = [0]\n const %a: i64[1] = [3]\n %s: f32[?] = Slice(%x, %z, %k, %a)\n"
         " const %w: f32[1,1,1,3] = [1.0, 2.0, 3.0]\n %y: f32[?] = Conv \"conv\"(%s, %w)\n output %y\n}\n", 2,
         "s_n = 2, but Conv 'conv' needs s_n to be at least 3"},
        {"graph {\n input %x: f32[N]\n input %k: i64[1]\n const %z: i64[1] = [0]\n %s: f32[?] = Slice(%x, %z, %k)\n const %t: i64[2] = [-1,3]\n"
         " %y: f32[?] = Reshape \"rows\"(%s, %t)\n output %y\n}\n", 4,
         "s_n = 4, but Reshape 'rows' needs s_n to be a multiple of 3"},
    };
    for (int i = 0; i < countof(rows); i++) {
        struct fixture b;
        struct rng r = rng_seed(3);
        assert_true(fixture_open(&b, rows[i].text, "interp"));
        const int64_t n = 4, d4[] = {1, 1, 4, 4};
        bool is_image = strstr(rows[i].text, "[1,1,4,N]") != NULL;
        quern_tensor *in[2] = {is_image ? floats(&b, 4, d4, &r) : floats(&b, 1, &n, &r), ints(&b, 1, &rows[i].k)}, *out[1] = {0};
        for (int saved = 0; saved < 2; saved++) {
            assert_int_equal(quern_run(b.p, in, 2, out, 1), QUERN_INPUT);
            if (!strstr(quern_error(b.q), rows[i].why)) fail_msg("row %d: %s", i, quern_error(b.q));
            if (!saved) reopen(&b);
        }
        assert_int_equal(quern_model_eval(b.m, in, 2, out, 1), QUERN_INPUT);
        if (!strstr(quern_error(b.q), rows[i].why)) fail_msg("row %d, reference: %s", i, quern_error(b.q));
        quern_tensor_free(in[0]);
        quern_tensor_free(in[1]);
        fixture_close(&b);
    }
}

/* A size that no node uses, of a value that only it needs, is neither computed nor checked. */
static void test_unused(void **state)
{
    static const char *const size[] = {"size (n) = %m[0]", "size (n) = %m[0] most (N)", "size (n) = %m[0]\n size (o) = (n+N)"};
    for (int i = 0; i < countof(size) * countof(devices); i++) {
        struct fixture b;
        struct rng r = rng_seed(3);
        struct buf text = {0};
        buf_printf(&text, "graph {\n input %%x: f32[N]\n input %%k: i64[1]\n %%m: i64[1] = Abs(%%k)\n %%y: f32[N] = Relu(%%x)\n %s\n output %%y\n}\n", size[i / countof(devices)]);
        assert_true(fixture_open(&b, text.p, devices[i % countof(devices)]));
        quern_tensor *in[2] = {floats(&b, 1, &(int64_t){4}, &r), ints(&b, 1, &(int64_t){-9})};
        for (int is_saved = 0; is_saved < (i % countof(devices) ? 1 : 2); is_saved++) {
            if (is_saved) reopen(&b);
            run_both(&b, in, 2, 1);
        }
        quern_tensor_free(in[0]), quern_tensor_free(in[1]);
        buf_release(&text);
        fixture_close(&b);
    }
}

/* A size that no node uses is computed and checked if it is kept, also in a saved program. */
static void test_kept(void **state)
{
    static const char text[] = "graph {\n input %x: f32[N]\n input %k: i64[1]\n %m: i64[1] = Abs(%k)\n %y: f32[N] = Relu(%x)\n size (n) = %m[0] most (N) kept\n output %y\n}\n";
    for (int k = 0; k < countof(devices); k++) {
        struct fixture b;
        struct rng r = rng_seed(3);
        assert_true(fixture_open(&b, text, devices[k]));
        quern_tensor *in[2] = {floats(&b, 1, &(int64_t){4}, &r), ints(&b, 1, &(int64_t){-4})}, *bad = ints(&b, 1, &(int64_t){-5}), *out[1] = {0};
        for (int is_saved = 0; is_saved < (k ? 1 : 2); is_saved++) {
            if (is_saved) reopen(&b);
            run_both(&b, in, 2, 1);
            assert_int_equal(quern_run(b.p, (quern_tensor *[]){in[0], bad}, 2, out, 1), QUERN_INPUT);
            if (!strstr(quern_error(b.q), "element 0 of 'm'")) fail_msg("%s", quern_error(b.q));
        }
        quern_tensor_free(in[0]), quern_tensor_free(in[1]), quern_tensor_free(bad);
        fixture_close(&b);
    }
}

/* A tensor that is given is room; too little of it is an error. */
static void test_room(void **state)
{
    struct fixture b;
    const int64_t n = 5, few = 2;
    float v[5] = {1, 0, 2, 0, 3};
    quern_tensor *x = NULL, *out = NULL;
    assert_true(fixture_open(&b, "graph {\n input %x: f32[N]\n %z: i64[?] = NonZero(%x)\n output %z\n}\n", "interp"));
    must(&b, quern_tensor_new(b.q, QUERN_F32, 1, &n, v, &x));
    must(&b, quern_tensor_new(b.q, QUERN_I64, 2, (int64_t[]){1, 5}, NULL, &out));
    must(&b, quern_run(b.p, &x, 1, &out, 1));
    assert_int_equal(quern_tensor_dims(out)[1], 3);
    assert_int_equal(((int64_t *)quern_tensor_data(out))[2], 4);
    quern_tensor_free(out);
    out = NULL;
    must(&b, quern_tensor_new(b.q, QUERN_I64, 2, (int64_t[]){1, few}, NULL, &out));
    assert_int_equal(quern_run(b.p, &x, 1, &out, 1), QUERN_INPUT);
    assert_non_null(strstr(quern_error(b.q), "its buffer has 16"));
    struct quern_array in = {.type = QUERN_F32, .rank = 1, .dim = {5}}, shape;
    must(&b, quern_program_shape(b.p, &in, 1, &shape, 1));
    assert_int_equal(shape.dim[0], 1);
    assert_int_equal(shape.dim[1], -1);
    quern_tensor_free(out);
    quern_tensor_free(x);
    fixture_close(&b);
}

/* Sizes that follow from constants are not data-dependent: an exporter writes a side as 16**0.5. */
static void test_constants(void **state)
{
    struct fixture b;
    const char text[] =
        "graph {\n input %x: f32[16]\n const %a: f32[1] = [16.0]\n const %h: f32[] = [0.5]\n %p: f32[?] = Pow(%a, %h)\n"
        " %s: i64[?] = Cast(%p) {to=7}\n %t: i64[?] = Concat(%s, %s) {axis=0}\n %y: f32[?] = Reshape(%x, %t)\n output %y\n}\n";
    assert_true(fixture_open(&b, text, "interp"));
    struct quern_array in = {.type = QUERN_F32, .rank = 1, .dim = {16}}, shape;
    must(&b, quern_program_shape(b.p, &in, 1, &shape, 1));
    assert_int_equal(shape.rank, 2);
    assert_int_equal(shape.dim[0], 4);
    assert_int_equal(shape.dim[1], 4);
    fixture_close(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_constants),
        cmocka_unit_test(test_find),
        cmocka_unit_test(test_ahead),
        cmocka_unit_test(test_shapes),
        cmocka_unit_test(test_computed),
        cmocka_unit_test(test_errors),
        cmocka_unit_test(test_reasons),
        cmocka_unit_test(test_unused), cmocka_unit_test(test_kept), cmocka_unit_test(test_room),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
