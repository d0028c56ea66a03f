// SPDX-License-Identifier: Apache-2.0
//
// Bounds of the numbers that an artifact passes to kernels. Networks with unknown sizes are
// compiled; each parameter of each kernel is then replaced in the file by numbers beyond its
// buffers, and the program must be refused at once, or run if the parameter is a value. Programs as
// written by quern always run, whatever the numbers and however small their buffers.
#include "program_fixture.h"

#include <stdio.h>
#include <unistd.h>

#include "dnx_fixture.h"

/* Rows are added up, so that a size is a loop; positions begin at 1000 * P. */
static const char sums[] = "graph {\n"
                           "  input %x: f32[H,W]\n"
                           "  const %one: i64[1] = [1]\n"
                           "  %s: f32[?] = ReduceSum(%x, %one) {keepdims=1}\n"
                           "  %y: f32[?] = Div(%x, %s)\n"
                           "  output %y\n"
                           "}\n";
static const char product[] = "graph {\n"
                              "  input %a: f32[M,K]\n  input %b: f32[K,N]\n"
                              "  %y: f32[?] = MatMul(%a, %b)\n"
                              "  output %y\n"
                              "}\n";
static const char positions[] = "graph {\n"
                                "  input %past: u8[P]\n  input %x: f32[S]\n"
                                "  const %none: i64[0] = []\n  const %one: i64[] = [1]\n"
                                "  %p: i64[?] = Shape(%past)\n  %s: i64[?] = Shape(%x)\n"
                                "  %first: i64[?] = Reshape(%p, %none)\n  %n: i64[?] = Reshape(%s, %none)\n"
                                "  const %k: i64[] = [1000]\n  %from: i64[?] = Mul(%first, %k)\n"
                                "  %to: i64[?] = Add(%from, %n)\n"
                                "  %at: i64[?] = Range(%from, %to, %one)\n"
                                "  %f: f32[?] = Cast(%at) {to=1}\n"
                                "  %y: f32[?] = Add(%x, %f)\n"
                                "  output %y\n"
                                "}\n";

struct file { struct arena a; struct str dir, bytes; const char *path; };

static void file_open(struct file *f, const struct fixture *b)
{
    struct err e = {0};
    *f = (struct file){0};
    if (!os_temp_dir(&f->a, &f->dir, &e)) fail_msg("%s", e.msg);
    f->path = str_fmt(&f->a, "%.*s/net.dnx", STR_ARG(f->dir)).p;
    must(b, quern_program_save(b->p, f->path));
    if (!os_read(&f->a, f->path, 1 << 30, &f->bytes, &e)) fail_msg("%s", e.msg);
}

static void file_close(struct file *f)
{
    os_remove_tree(f->dir.p);
    arena_release(&f->a);
}

static quern_status run(quern_program *p, quern_tensor **in, int n)
{
    quern_tensor *out[1] = {NULL};
    quern_status s = quern_run(p, in, n, out, 1);
    if (!s) quern_tensor_free(out[0]);
    return s;
}

/* The program that was changed, on the same inputs. */
static void run_changed(struct fixture *b, const struct file *f, const struct dnx_fixture *x, quern_tensor **in, int n, bool is_value)
{
    struct buf c = {0};
    struct err e = {0};
    quern_program *p = NULL;
    dnx_fixture_write(x, NEW_HASH, &c);
    if (!os_write(f->path, c.p, c.n, &e)) fail_msg("%s", e.msg);
    must(b, quern_program_open(b->q, f->path, &(struct quern_run_opts){.size = sizeof(struct quern_run_opts), .device = "interp"}, &p));
    quern_status s = run(p, in, n);
    if (!is_value) assert_true(s != QUERN_OK && strstr(quern_error(b->q), "the program is invalid"));
    quern_program_close(p);
    buf_release(&c);
}

static bool is_listed(const json_t *list, size_t k)
{
    size_t i;
    json_t *x;
    json_array_foreach((json_t *)(uintptr_t)list, i, x) if (json_integer_value(x) == (json_int_t)k) return true;
    return false;
}

/* Returns the number of parameters that are values. */
static u32 change_all(struct fixture *b, const struct file *f, quern_tensor **in, int n)
{
    static const json_int_t to[] = {(json_int_t)1 << 40, -((json_int_t)1 << 40), INT64_MAX};
    struct dnx_fixture x;
    u32 n_values = 0, n_sizes = 0;
    dnx_fixture_open(&x, f->bytes);
    json_t *list = json_object_get(x.plan, "dispatches"), *d, *was;
    size_t i, k;
    json_array_foreach(list, i, d) {
        json_t *param = json_object_get(d, "params"), *values = json_object_get(d, "values");
        assert_non_null(values);
        json_array_foreach(param, k, was) {
            if (is_listed(values, k)) {
                n_values++;
                continue;
            }
            json_t *keep = json_copy(was);
            for (i64 t = 0; t < countof(to); t++, n_sizes++) {
                json_array_set_new(param, k, json_integer(to[t]));
                run_changed(b, f, &x, in, n, false);
            }
            json_array_set_new(param, k, keep);
        }
    }
    assert_true(n_sizes > 0);
    dnx_fixture_close(&x);
    return n_values;
}

static void test_sizes(void **state)
{
    static const struct { const char *text; i64 dim[2][2]; int n; } t[] = {{sums, {{7, 40}}, 1}, {product, {{5, 30}, {30, 9}}, 2}};
    for (i64 k = 0; k < countof(t); k++) {
        struct rng r = rng_seed(1);
        struct fixture b;
        struct file f;
        quern_tensor *in[2] = {NULL};
        assert_true(fixture_open(&b, t[k].text, "interp"));
        for (int i = 0; i < t[k].n; i++) in[i] = floats(&b, 2, t[k].dim[i], &r);
        must(&b, run(b.p, in, t[k].n));
        file_open(&f, &b);
        assert_int_equal(change_all(&b, &f, in, t[k].n), 0);
        for (int i = 0; i < t[k].n; i++) quern_tensor_free(in[i]);
        file_close(&f);
        fixture_close(&b);
    }
}

/* A number of positions is none that the buffers bound: three of them, from any number on. */
static void test_values(void **state)
{
    struct rng r = rng_seed(2);
    struct fixture b;
    struct file f;
    assert_true(fixture_open(&b, positions, "interp"));
    quern_tensor *in[2] = {NULL, floats(&b, 1, (int64_t[]){3}, &r)};
    for (int64_t n = 1; n <= (int64_t)1 << 25; n <<= 5) {
        must(&b, quern_tensor_new(b.q, QUERN_U8, 1, &n, NULL, &in[0]));
        must(&b, run(b.p, in, 2));
        if (n < (int64_t)1 << 25) quern_tensor_free(in[0]);
    }
    file_open(&f, &b);
    assert_true(change_all(&b, &f, in, 2) > 0);
    quern_tensor_free(in[0]), quern_tensor_free(in[1]);
    file_close(&f);
    fixture_close(&b);
}

/* Empty buffers are no reason to refuse a program. */
static void test_empty(void **state)
{
    static const i64 dim[][2] = {{0, 1 << 30}, {1 << 22, 0}, {0, 0}};
    struct rng r = rng_seed(3);
    struct fixture b;
    assert_true(fixture_open(&b, sums, "cpu"));
    for (i64 k = 0; k < countof(dim); k++) {
        quern_tensor *in = floats(&b, 2, dim[k], &r);
        must(&b, run(b.p, &in, 1));
        quern_tensor_free(in);
    }
    fixture_close(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_sizes), cmocka_unit_test(test_values), cmocka_unit_test(test_empty)};
    alarm(300); /* an undetected endless loop */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
