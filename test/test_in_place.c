// SPDX-License-Identifier: Apache-2.0
//
// The caller's memory in place: constants of a model (constants_in_place), which are neither copied nor parsed, and arrays of programs that work in the host's
// memory (quern_enqueue), at any address. Wrong numbers, shapes, streams and missing memory are errors.
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "core/core.h"
#include "quern.h"

static const char net[] = "graph {\n"
                          "  input %x: f32[N,3]\n"
                          "  input %w: f32[3,2]\n"
                          "  %y: f32[N,2] = MatMul(%x, %w)\n"
                          "  output %y\n"
                          "}\n";
static const char counts[] = "graph {\n"
                             "  input %x: f32[N]\n"
                             "  %y: i64[1,M] = NonZero(%x)\n"
                             "  output %y\n"
                             "}\n";

struct fixture {
    struct arena a;
    struct str dir, file; /* net as ONNX */
    quern *q;
};

static void fixture_open(struct fixture *f)
{
    struct err e = {0};
    quern_model *m;
    memset(f, 0, sizeof *f);
    assert_true(os_temp_dir(&f->a, &f->dir, &e));
    f->file = str_fmt(&f->a, "%.*s/net.onnx", STR_ARG(f->dir));
    f->q = quern_open(NULL);
    assert_int_equal(quern_model_read(f->q, net, sizeof net - 1, "net", NULL, &m), QUERN_OK);
    assert_int_equal(quern_model_save(m, f->file.p), QUERN_OK);
    quern_model_close(m);
}

static void fixture_close(struct fixture *f)
{
    quern_close(f->q);
    os_remove_tree(f->dir.p);
    arena_release(&f->a);
}

/* The sum of the model's results for ones. */
static float eval(struct fixture *f, quern_model *m)
{
    float ones[3] = {1, 1, 1};
    quern_tensor *x, *y = NULL;
    assert_int_equal(quern_tensor_view(f->q, QUERN_F32, 2, (int64_t[]){1, 3}, ones, &x), QUERN_OK);
    assert_int_equal(quern_model_eval(m, &x, 1, &y, 1), QUERN_OK);
    float sum = ((float *)quern_tensor_data(y))[0] + ((float *)quern_tensor_data(y))[1];
    quern_tensor_free(x), quern_tensor_free(y);
    return sum;
}

/* The memory is read when the model is evaluated, or was copied when it was opened. The tensor that describes it is not needed any more. */
static void test_constants(void **state)
{
    struct fixture f;
    fixture_open(&f);
    for (int in_place = 0; in_place < 2; in_place++) {
        float w[6] = {1, 2, 3, 4, 5, 6};
        quern_tensor *given[2] = {NULL};
        quern_model *m;
        struct quern_model_opts o = QUERN_OPTS(quern_model_opts);
        assert_int_equal(quern_tensor_view(f.q, QUERN_F32, 2, (int64_t[]){3, 2}, w, &given[1]), QUERN_OK);
        o.constants = given, o.n_constants = 2, o.constants_in_place = in_place;
        assert_int_equal(quern_model_open(f.q, f.file.p, &o, &m), QUERN_OK);
        quern_tensor_free(given[1]);
        assert_int_equal(quern_model_inputs(m), 1);
        assert_true(eval(&f, m) == 21);
        w[5] = 106;
        assert_true(eval(&f, m) == (in_place ? 121 : 21));
        quern_model_close(m);
    }
    fixture_close(&f);
}

static void test_wrong_constants(void **state)
{
    struct fixture f;
    fixture_open(&f);
    float w[8] = {0};
    quern_tensor *given[3] = {NULL};
    quern_model *m;
    struct quern_model_opts o = QUERN_OPTS(quern_model_opts);
    o.constants = given, o.n_constants = 3, o.constants_in_place = 1;
    assert_int_equal(quern_model_open(f.q, f.file.p, &o, &m), QUERN_INPUT);
    assert_non_null(strstr(quern_error(f.q), "model has fewer than 3 inputs"));
    o.n_constants = 2;
    assert_int_equal(quern_tensor_view(f.q, QUERN_F32, 2, (int64_t[]){4, 2}, w, &given[1]), QUERN_OK);
    assert_int_not_equal(quern_model_open(f.q, f.file.p, &o, &m), QUERN_OK); /* x has 3 columns */
    quern_tensor_free(given[1]);
    assert_int_equal(quern_tensor_view(f.q, QUERN_I32, 2, (int64_t[]){4, 2}, w, &given[1]), QUERN_OK);
    assert_int_not_equal(quern_model_open(f.q, f.file.p, &o, &m), QUERN_OK);
    quern_tensor_free(given[1]);
    fixture_close(&f);
}

static quern_program *program_of(quern *q, const char *text, const char *device)
{
    quern_model *m;
    quern_program *p = NULL;
    struct quern_compile_opts o = QUERN_OPTS(quern_compile_opts);
    o.device = device, o.threads = 1;
    assert_int_equal(quern_model_read(q, text, strlen(text), "net", NULL, &m), QUERN_OK);
    if (quern_compile(m, NULL, &o, &p)) fail_msg("%s", quern_error(q));
    quern_model_close(m);
    return p;
}

static struct quern_array array(float *data, int64_t rows, int64_t columns)
{
    return (struct quern_array){.type = QUERN_F32, .rank = 2, .dim = {rows, columns}, .stride = {columns, 1}, .data = data};
}

static void test_arrays(void **state)
{
    static const char *const device[] = {"cpu", "interp"};
    struct fixture f;
    fixture_open(&f);
    for (int d = 0; d < 2; d++) {
        quern_program *p = program_of(f.q, net, device[d]);
        for (int at = 0; at < 3; at++) { /* elements behind an aligned address */
            for (int64_t n = 0; n < 40; n += 1 + n / 3) {
                float *x = calloc(3 * 40 + 8, sizeof *x), *y = calloc(2 * 40 + 8, sizeof *y), w[6] = {1, 2, 3, 4, 5, 6};
                for (int64_t i = 0; i < 3 * n; i++) x[at + i] = (float)(i % 7);
                for (int64_t i = 0; i < 2 * 40 + 8; i++) y[i] = -1;
                struct quern_array in[2] = {array(x + at, n, 3), array(w, 3, 2)}, out = array(y + at, n, 2);
                if (quern_enqueue(p, in, 2, &out, 1, NULL)) fail_msg("%s", quern_error(f.q));
                for (int64_t i = 0; i < 2 * 40 + 8; i++) {
                    int64_t row = (i - at) / 2, column = (i - at) % 2;
                    float want = -1;
                    if (i >= at && row < n) {
                        want = 0;
                        for (int64_t k = 0; k < 3; k++) want += x[at + 3 * row + k] * w[2 * k + column];
                    }
                    assert_true(y[i] == want);
                }
                free(x), free(y);
            }
        }
        quern_program_close(p);
    }
    fixture_close(&f);
}

static void refuse(quern *q, quern_program *p, struct quern_array *in, struct quern_array out, void *stream, const char *words)
{
    assert_int_not_equal(quern_enqueue(p, in, 2, &out, 1, stream), QUERN_OK);
    if (!strstr(quern_error(q), words)) fail_msg("'%s', expected '%s'", quern_error(q), words);
}

static void test_refusals(void **state)
{
    struct fixture f;
    fixture_open(&f);
    quern_program *p = program_of(f.q, net, "interp");
    float x[12] = {0}, w[6] = {0}, y[8] = {0};
    struct quern_array in[2] = {array(x, 4, 3), array(w, 3, 2)}, out = array(y, 4, 2);
    refuse(f.q, p, in, out, x, "has no streams");
    refuse(f.q, p, in, array(NULL, 4, 2), NULL, "output 0 has no memory");
    refuse(f.q, p, in, array(y, 3, 2), NULL, "the tensor given for output 'y' has another type or shape");
    in[0].stride[0] = 5;
    refuse(f.q, p, in, out, NULL, "input 0: the array is not dense, row by row");
    in[0] = array(NULL, 4, 3);
    refuse(f.q, p, in, out, NULL, "input 0 has no memory");
    in[0] = array(x, 4, 2);
    refuse(f.q, p, in, out, NULL, "has size 2 on axis 1, expected 3");
    quern_program_close(p);
    p = program_of(f.q, counts, "interp");
    int64_t found[4];
    struct quern_array v = {.type = QUERN_F32, .rank = 1, .dim = {4}, .stride = {1}, .data = x},
                       to = {.type = QUERN_I64, .rank = 2, .dim = {1, 4}, .stride = {4, 1}, .data = found};
    assert_int_equal(quern_enqueue(p, &v, 1, &to, 1, NULL), QUERN_UNSUPPORTED);
    assert_non_null(strstr(quern_error(f.q), "use quern_run"));
    quern_program_close(p);
    fixture_close(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_constants), cmocka_unit_test(test_wrong_constants), cmocka_unit_test(test_arrays),
                                       cmocka_unit_test(test_refusals)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
