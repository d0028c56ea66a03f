// SPDX-License-Identifier: Apache-2.0
//
// Operators at extreme values: graphs as PyTorch's exporter writes them, compiled for devices, against the functions that they stand for, computed in double
// (f64's own results are within its range there, too). Infinities and NaN must be in the same places. The reference evaluator is compared where a graph is
// one operator; others lose numbers between their nodes, which passes avoid.
#include "program_fixture.h"
#include "seeds.h"
#include "vulkan_fixture.h"

#include <math.h>

enum { ROWS = 40, COLUMNS = 7, N_CASES = 6 };

/* x, y (COLUMNS): element k of the result of a row; of a reduction only element 0 is asked for. */
typedef double function_of(const double *x, int k);

static double softplus(const double *x, int k) { return (x[k] > 0 ? x[k] : 0) + log1p(exp(-fabs(x[k]))) + (isnan(x[k]) ? NAN : 0); }
static double log_sigmoid(const double *x, int k) { return -softplus(&(double){-x[k]}, 0); }
static double hard_swish(const double *x, int k) { return x[k] * (isnan(x[k]) ? NAN : fmax(0, fmin(1, x[k] / 6 + 0.5))); }

static double sum_of_exp(const double *x, double less)
{
    double sum = 0;
    for (int k = 0; k < COLUMNS; k++) sum += exp(x[k] - less);
    return sum;
}

static double most_of(const double *x)
{
    double most = -INFINITY;
    for (int k = 0; k < COLUMNS; k++) most = fmax(most, x[k]);
    return most;
}

static double log_sum_exp(const double *x, int k)
{
    double most = isinf(most_of(x)) ? 0 : most_of(x);
    return log(sum_of_exp(x, most)) + most;
}

/* NaN where an infinity is the greatest, as in PyTorch */
static double log_softmax(const double *x, int k) { return x[k] - most_of(x) - log(sum_of_exp(x, most_of(x))); }

static const struct extreme_case { const char *name; function_of *f; bool is_reduced, is_one_operator; } cases[N_CASES] = {
    {"softplus", softplus, false, true},      {"logsigmoid", log_sigmoid, false, false},  {"hardswish", hard_swish, false, true},
    {"logsumexp", log_sum_exp, true, true},   {"logsumexp without its axis", log_sum_exp, true, true}, {"log softmax", log_softmax, false, false},
};

static const char graph[] =
    "graph {\n"
    "  input %%x: %s[R,7]\n"
    "  const %%axis: i64[1] = [1]\n"
    "  %%a: %s[?] = Softplus(%%x)\n"
    "  %%s: %s[?] = Sigmoid(%%x)\n"
    "  %%b: %s[?] = Log(%%s)\n"
    "  %%c: %s[?] = HardSwish(%%x)\n"
    "  %%d: %s[?] = ReduceLogSumExp(%%x, %%axis)\n"
    "  %%e: %s[?] = ReduceLogSumExp(%%x, %%axis) {keepdims=0}\n"
    "  %%m: %s[?] = Softmax(%%x) {axis=1}\n"
    "  %%f: %s[?] = Log(%%m)\n"
    "  output %%a\n  output %%b\n  output %%c\n  output %%d\n  output %%e\n  output %%f\n"
    "}\n";

static const struct extreme_type { enum dtype t; quern_dtype public; double most, tolerance; } types[] = {
    {DT_F32, QUERN_F32, 3.4028234663852886e38, 2e-6},
    {DT_F64, QUERN_F64, 1.7976931348623157e308, 1e-13},
    {DT_F16, QUERN_F16, 65504, 4e-3},
    {DT_BF16, QUERN_BF16, 3.3895313892515355e38, 3e-2},
};

/* Rows of a few different numbers, so that some have nothing but infinities or NaN. */
static quern_tensor *inputs(const struct fixture *b, const struct extreme_type *t, struct rng *r)
{
    const double some[] = {0, -0.0, 1, -1, 2.5, -3, 6, 20, -20, 104, -104, 1000, -1000, 1e-6, t->most, -t->most, t->most / 7, INFINITY, -INFINITY, INFINITY, -INFINITY, NAN};
    quern_tensor *x = NULL;
    must(b, quern_tensor_new(b->q, t->public, 2, (int64_t[]){ROWS, COLUMNS}, NULL, &x));
    for (int i = 0; i < ROWS; i++) {
        double drawn[3];
        i64 n = rng_range(r, 1, 3);
        for (i64 k = 0; k < n; k++) drawn[k] = some[rng_range(r, 0, countof(some) - 1)];
        for (int k = 0; k < COLUMNS; k++) elem_set_f64(t->t, quern_tensor_data(x), i * COLUMNS + k, drawn[rng_range(r, 0, n - 1)]);
    }
    return x;
}

static bool is_near(double got, double want, double tolerance)
{
    if (isnan(want) || isnan(got)) return isnan(want) && isnan(got);
    if (isinf(want) || isinf(got)) return want == got;
    return fabs(got - want) <= tolerance * fmax(1, fabs(want));
}

static void check(const struct extreme_case *c, const char *device, const struct extreme_type *t, quern_tensor *x, quern_tensor *y)
{
    int width = c->is_reduced ? 1 : COLUMNS;
    assert_int_equal(quern_tensor_count(y), ROWS * width);
    for (int i = 0; i < ROWS * width; i++) {
        double row[COLUMNS], want[1];
        elems_f64(t->t, quern_tensor_data(x), i / width * COLUMNS, COLUMNS, row);
        elem_set_f64(t->t, want, 0, c->f(row, i % width));
        double rounded = elem_f64(t->t, want, 0), got = elem_f64(t->t, quern_tensor_data(y), i);
        if (is_near(got, rounded, t->tolerance)) continue;
        fail_msg("%s of %s on %s: %.9g of row %g %g %g %g %g %g %g, element %d, should be %.9g", c->name, dtype_name(t->t), device, got, row[0], row[1],
                 row[2], row[3], row[4], row[5], row[6], i % width, rounded);
    }
}

static void check_on(const char *device, const struct extreme_type *t)
{
    struct arena a = {0};
    struct fixture b;
    const char *n = dtype_name(t->t), *text = str_fmt(&a, graph, n, n, n, n, n, n, n, n, n).p;
    bool is_there = fixture_open(&b, text, device);
    for (u64 seed = first_seed(0, 20), end = last_seed(0, 20); is_there && seed < end; seed++) {
        struct rng r = rng_seed(seed);
        quern_tensor *x = inputs(&b, t, &r), *got[N_CASES] = {0}, *want[N_CASES] = {0};
        must(&b, quern_run(b.p, &x, 1, got, N_CASES));
        must(&b, quern_model_eval(b.m, &x, 1, want, N_CASES));
        for (int k = 0; k < N_CASES; k++) {
            check(&cases[k], device, t, x, got[k]);
            if (cases[k].is_one_operator) check(&cases[k], "reference", t, x, want[k]);
            quern_tensor_free(got[k]), quern_tensor_free(want[k]);
        }
        quern_tensor_free(x);
    }
    fixture_close(&b);
    arena_release(&a);
}

static void on_device(const char *device)
{
    for (u32 k = 0; k < countof(types); k++) check_on(device, &types[k]);
}

static void on_interp(void **state) { on_device("interp"); }
static void on_cpu(void **state) { on_device("cpu"); }
static void on_vulkan(void **state) { on_device("vulkan"); }

int main(void)
{
    vulkan_stay_loaded();
    const struct CMUnitTest tests[] = {cmocka_unit_test(on_interp), cmocka_unit_test(on_cpu), cmocka_unit_test(on_vulkan)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
