// SPDX-License-Identifier: Apache-2.0
//
// Plots: densities and axes by their properties; a run's files give the scripts and data of test/golden/plot (GOLDEN=1 writes them anew: read
// the difference), gnuplot draws them where it is installed, twice the same; what a run wrote is read; wrong files are named with line and column.
#include "lab/conv.h"
#include "lab/plot.h"

#include <math.h>
#include <setjmp.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const char golden[] = "test/golden/plot";
static const char *const plots[] = {"violin", "split", "medians", "roofline", "breakdown"};
static const char *const csv[] = {"samples.csv", "roofline.csv", "ceilings.csv", "breakdown.csv", "params.txt"};

/* Densities and axes. */

static void check_density(struct rng *r, struct arena *a)
{
    double shift = 5 + rng_f64(r), scale = 0.01 + rng_f64(r);
    struct plot_list v = {0}, w = {0};
    struct plot_density *d = arena_array(a, struct plot_density, 2);
    u32 within = 0;
    for (i64 n = rng_range(r, 1, 60); n > 0; n--) {
        double x = 10 + rng_normal(r) + (rng_range(r, 0, 20) == 0 ? 50 : 0);
        *arr_push(a, &v) = x, *arr_push(a, &w) = shift + scale * x;
    }
    plot_density(&d[0], &v, a);
    plot_density(&d[1], &w, a);
    for (u32 i = 0; i < v.n; i++) within += v.v[i] >= d->low && v.v[i] <= d->high;
    assert_int_equal(within + d->n_below + d->n_above, v.n);
    assert_true(d->q1 <= d->median && d->median <= d->q3 && d->low <= d->q1 && d->q3 <= d->high);
    assert_true(fabs(d[1].median - (shift + scale * d->median)) < 1e-9 && fabs(d[1].width - scale * d->width) < 1e-9 * scale);
    for (u32 k = 0; k <= PLOT_STEPS; k++) {
        assert_true(d->d[k] >= 0 && d->d[k] <= 1);
        assert_true(fabs(d[0].d[k] - d[1].d[k]) < 1e-6); /* neither unit nor origin matter */
    }
}

static void test_density(void **state)
{
    struct rng r = rng_seed(1);
    struct arena a = {0};
    struct plot_density d;
    double same[] = {0.25, 0.25, 0.25}, two[] = {1, 1.5, 2, 2.5, 3};
    for (int i = 0; i < 200; i++) check_density(&r, &a);
    plot_density(&d, &(struct plot_list){same, 3, 3}, &a);
    assert_true(d.width == 0 && d.low == 0.25 && d.high == 0.25);
    plot_density(&d, &(struct plot_list){two, 5, 5}, &a);
    assert_true(fabs(d.width - 0.9 * (1 / 1.34) * pow(5, -0.2)) < 1e-12); /* the quartiles' distance is 1, the deviation 0.79 */
    assert_true(d.d[PLOT_STEPS / 2] == 1 && fabs(d.d[0] - d.d[PLOT_STEPS]) < 1e-12);
    arena_release(&a);
}

static bool is_round(double v)
{
    double m = v / pow(10, floor(log10(v) + 1e-9));
    return fabs(m - 1) < 1e-6 || fabs(m - 2) < 1e-6 || fabs(m - 5) < 1e-6;
}

static void test_axes(void **state)
{
    struct rng r = rng_seed(2);
    for (int i = 0; i < 2000; i++) {
        double low = exp(rng_f64(&r) * 30 - 15), high = low * (1 + (rng_range(&r, 0, 1) ? rng_f64(&r) : exp(rng_f64(&r) * 10)));
        u32 steps = (u32)rng_range(&r, 3, 9);
        struct plot_axis x = plot_axis(low, high, steps), y = plot_log_axis(low, high);
        assert_true(x.low <= low * (1 + 1e-9) && x.high >= high * (1 - 1e-9) && x.low >= 0 && is_round(x.step));
        assert_true((x.high - x.low) / x.step < steps + 2.5);
        assert_true(y.low <= low * (1 + 1e-6) && y.high >= high * (1 - 1e-6) && is_round(y.low) && is_round(y.high) && y.low < y.high);
    }
}

/* Folders. */

struct folder {
    struct arena a;
    struct str dir;
    struct err e;
    bool has_gnuplot;
};

static void open_folder(struct folder *f)
{
    static const char *const ask[] = {"gnuplot", "--version", NULL};
    *f = (struct folder){0};
    assert_true(os_temp_dir(&f->a, &f->dir, &f->e));
    f->has_gnuplot = os_run(&(struct os_proc_opts){.argv = ask, .timeout = 60}).how == OS_EXITED;
}

static void close_folder(struct folder *f)
{
    os_remove_tree(f->dir.p);
    arena_release(&f->a);
}

static const char *path_in(struct folder *f, const char *name) { return str_fmt(&f->a, "%.*s/%s", STR_ARG(f->dir), name).p; }

static struct str text_of(struct folder *f, const char *path)
{
    struct str s;
    if (!os_read(&f->a, path, 1 << 28, &s, &f->e)) fail_msg("%s", f->e.msg);
    return s;
}

static void put(struct folder *f, const char *name, struct str text)
{
    if (!os_write(path_in(f, name), text.p, text.n, &f->e)) fail_msg("%s", f->e.msg);
}

static void draw(struct folder *f)
{
    bool ok = plot_folder(f->dir.p, &(struct log){0}, &f->e);
    if (ok != f->has_gnuplot) fail_msg("%s", f->e.msg);
    if (!ok) assert_int_equal(f->e.code, ERR_UNSUPPORTED);
    f->e = (struct err){0};
}

static void put_golden(struct folder *f)
{
    for (i64 i = 0; i < countof(csv); i++) put(f, csv[i], text_of(f, str_fmt(&f->a, "%s/%s", golden, csv[i]).p));
}

static struct str end_of(struct folder *f, const char *plot, const char *end) { return str_fmt(&f->a, "%s.%s", plot, end); }

static void compare(struct folder *f, const char *name)
{
    const char *want = str_fmt(&f->a, "%s/%s", golden, name).p;
    struct str got = text_of(f, path_in(f, name));
    if (getenv("GOLDEN")) assert_true(os_write(want, got.p, got.n, &f->e));
    if (!str_eq(got, text_of(f, want))) fail_msg("'%s' is another: GOLDEN=1 writes it anew", want);
}

static void test_golden(void **state)
{
    struct folder f;
    struct str first[2 * countof(plots)];
    open_folder(&f);
    put_golden(&f);
    for (u32 turn = 0; turn < 2; turn++) {
        draw(&f);
        for (u32 i = 0; i < countof(plots); i++) {
            compare(&f, end_of(&f, plots[i], "gp").p);
            compare(&f, end_of(&f, plots[i], "dat").p);
            for (u32 k = 0; f.has_gnuplot && k < 2; k++) {
                struct str now = text_of(&f, path_in(&f, end_of(&f, plots[i], k ? "png" : "svg").p));
                assert_true(now.n > 2000 && (k ? str_starts(now, S("\x89PNG")) : str_ends(str_trim(now), S("</svg>"))));
                if (turn) assert_true(str_eq(first[2 * i + k], now));
                first[2 * i + k] = now;
            }
        }
    }
    close_folder(&f);
}

/* A plot that the files no longer give goes away; without anything there is an error. */
static void test_less(void **state)
{
    struct folder f;
    open_folder(&f);
    put_golden(&f);
    draw(&f);
    put(&f, "samples.csv", S("layer,layer_name,who,iteration,ms\n3,one,tuned,0,0.5\n"));
    put(&f, "breakdown.csv", S("network,layer,operator,ms\n"));
    draw(&f);
    assert_false(os_exists(path_in(&f, "split.gp")) || os_exists(path_in(&f, "split.svg")) || os_exists(path_in(&f, "breakdown.png")));
    assert_true(os_exists(path_in(&f, "violin.gp")) && os_exists(path_in(&f, "medians.dat")));
    for (i64 i = 0; i < countof(csv); i++) os_remove_tree(path_in(&f, csv[i]));
    assert_false(plot_folder(f.dir.p, &(struct log){0}, &f.e));
    assert_int_equal(f.e.code, ERR_NOTHING);
    close_folder(&f);
}

static void test_missing(void **state)
{
    struct folder f;
    struct buf path = {0};
    open_folder(&f);
    put_golden(&f);
    buf_z(&path, getenv("PATH"));
    setenv("PATH", f.dir.p, 1);
    bool ok = plot_folder(f.dir.p, &(struct log){0}, &f.e);
    setenv("PATH", path.p, 1);
    assert_false(ok);
    assert_int_equal(f.e.code, ERR_UNSUPPORTED);
    assert_non_null(strstr(f.e.msg, "gnuplot-nox"));
    assert_true(os_exists(path_in(&f, "violin.gp")) && os_exists(path_in(&f, "roofline.dat")));
    buf_release(&path);
    close_folder(&f);
}

/* Runs of any number of layers, of times that have nothing in common, with names that gnuplot would take for something else. */
static void put_random(struct folder *f, struct rng *r)
{
    static const char *const odd[] = {"{/Symbol a}", "@GPVAL_PWD", "it's", "a\\nb", "%s `ls`", "x_1^2", "\xc3\xa4\xc3\xb6", "$1", ""};
    struct buf s = {0}, p = {0};
    bool has_base = rng_range(r, 0, 2) > 0;
    buf_z(&s, "who,ms,iteration,layer_name,layer\n"); /* columns in any order */
    buf_z(&p, "layer,layer_name,who,flops,bytes,seconds\n");
    for (i64 i = 0, n = rng_range(r, 1, 40); i < n; i++)
        for (u32 who = 0; who <= has_base; who++) {
            const char *name = odd[rng_seed((u64)i).state % countof(odd)], *of = who ? "the other's" : "tuned";
            double ms = exp(rng_f64(r) * 12 - 8);
            for (i64 k = 0, m = rng_range(r, 0, 12); k < m; k++) buf_printf(&s, "%s,%.6f,%lld,%s,%lld\n", of, 0.001 + ms * (1 + rng_f64(r)), (long long)k, name, (long long)i);
            double bytes = exp(rng_f64(r) * 10 + 5), flops = exp(rng_f64(r) * 10 + 10);
            buf_printf(&p, "%lld,%s,%s,%.0f,%.0f,%.9g\n", (long long)i, name, of, flops, bytes, ms * 1e-3);
        }
    put(f, "samples.csv", buf_view(&s));
    put(f, "roofline.csv", buf_view(&p));
    if (rng_range(r, 0, 1)) put(f, "ceilings.csv", S("name,unit,value\nmemory,GB/s,30.5\nL2,GB/s,400\nfma,GFLOP/s,100\nmatrix,GFLOP/s,101\n"));
    buf_release(&s);
    buf_release(&p);
}

static void test_random(void **state)
{
    struct rng r = rng_seed(4);
    for (int i = 0; i < 6; i++) {
        struct folder f;
        open_folder(&f);
        f.dir = str_fmt(&f.a, "%.*s/it's a ~ folder", STR_ARG(f.dir));
        assert_true(os_mkdirs(f.dir.p, &f.e));
        put_random(&f, &r);
        draw(&f);
        f.dir = str_sub(f.dir, 0, f.dir.n - (i64)strlen("/it's a ~ folder"));
        os_remove_tree(str_z(&f.a, f.dir));
        arena_release(&f.a);
    }
}

/* What a run prints is what is drawn. */
static void test_written(void **state)
{
    struct arena a = {0};
    struct plot_run r = {0};
    struct err e = {0};
    struct buf b = {0};
    double ms[] = {0.0015, 0.001, 0.002}, base[] = {0.004, 0.003, 0.0025};
    const struct conv_row row = {.axes = 2, .batch = 1, .channels = 3, .out_channels = 8, .groups = 1, .size = {9, 9}, .kernel = {3, 3},
                                 .stride = {2, 2}, .dilation = {1, 1}};
    struct conv_run run = {.who = S("tuned"), .type = DT_F32};
    struct conv_result *x = arr_push(&a, &run.result);
    *x = (struct conv_result){.layer = 4, .row = &row, .base = S("reference"),
                                .times = {.seconds = ms, .base = base, .n = 3, .of = {.median = 0.0015}, .of_base = {.median = 0.003}}};
    conv_print_samples(&b, &run);
    if (!plot_read_text(&r, &a, PLOT_SAMPLES, buf_view(&b), &e)) fail_msg("%s", e.msg);
    buf_reset(&b);
    conv_print_roofline(&b, &run);
    if (!plot_read_text(&r, &a, PLOT_ROOFLINE, buf_view(&b), &e)) fail_msg("%s", e.msg);
    assert_int_equal(r.layer.n, 1);
    const struct plot_layer *l = &r.layer.v[0];
    assert_int_equal(l->number, 4);
    assert_true(str_is(r.who[0], "tuned") && str_is(r.who[1], "reference") && l->ms[0].n == 3 && l->ms[1].n == 3);
    for (u32 i = 0; i < 3; i++) assert_true(fabs(l->ms[0].v[i] - ms[i] * 1e3) < 1e-6 && fabs(l->ms[1].v[i] - base[i] * 1e3) < 1e-6);
    assert_true(l->flops == conv_row_flops(&row) && l->bytes == conv_row_bytes(&row, DT_F32) && fabs(l->seconds[1] - 0.003) < 1e-9);
    buf_release(&b);
    arena_release(&a);
}

/* A library may lack layers, which have another baseline then; the first name of all is the implementation. */
static void test_baselines(void **state)
{
    struct arena a = {0};
    struct plot_run r = {0};
    struct err e = {0};
    const char *text = "layer,layer_name,who,iteration,ms\n0,a,mine,0,1\n0,a,onednn 3,0,2\n1,b,onednn,0,3\n1,b,mine,0,4\n2,c,mine,0,5\n2,c,onednn 3,0,6\n3,d,mine,0,7\n";
    if (!plot_read_text(&r, &a, PLOT_SAMPLES, str_of(text), &e)) fail_msg("%s", e.msg);
    assert_int_equal(r.n_who, 2);
    assert_true(str_is(r.who[0], "mine") && str_is(r.who[1], "onednn 3 or onednn") && r.differ);
    assert_true(str_is(r.layer.v[1].base, "onednn") && str_is(r.layer.v[2].base, "onednn 3") && !r.layer.v[3].base.n);
    assert_true(r.layer.v[1].ms[0].v[0] == 4 && r.layer.v[1].ms[1].v[0] == 3 && r.layer.v[3].ms[1].n == 0);
    arena_release(&a);
}

static void test_errors(void **state)
{
    static const struct { enum plot_file k; const char *text, *said; } bad[] = {
        {PLOT_SAMPLES, "layer,layer_name,who,ms\n", "line 1: column 'iteration' is missing"},
        {PLOT_SAMPLES, "layer,layer_name,who,iteration,ms\n1,a,b,0\n", "line 2: 4 columns instead of 5"},
        {PLOT_SAMPLES, "layer,layer_name,who,iteration,ms\n\n1,a,b,0,x\n", "line 3: column 5 (ms): expected a number above 0, found 'x'"},
        {PLOT_SAMPLES, "layer,layer_name,who,iteration,ms\n1,a,b,0,-2\n", "line 2: column 5 (ms): expected a number above 0, found '-2'"},
        {PLOT_SAMPLES, "layer,layer_name,who,iteration,ms\n1,a,b,0,nan\n", "found 'nan'"},
        {PLOT_SAMPLES, "layer,layer_name,who,iteration,ms\n1,a,b,0,inf\n", "found 'inf'"},
        {PLOT_SAMPLES, "layer,layer_name,who,iteration,ms\n1,a,b,1,1\n", "column 4 (iteration): expected the next round of this layer, found '1'"},
        {PLOT_SAMPLES, "layer,layer_name,who,iteration,ms\n1,a,b,0,1\n1,c,b,1,1\n", "line 3: column 2 (layer_name): expected the name that this layer has before, found 'c'"},
        {PLOT_SAMPLES, "layer,layer_name,who,iteration,ms\n1,a,b,0,1\n1,a,c,0,1\n1,a,d,0,1\n", "line 4: column 3 (who): expected the baseline that this layer has before, found 'd'"},
        {PLOT_SAMPLES, "layer,layer_name,who,iteration,ms\n1,a,,0,1\n", "line 2: column 3 (who): expected a name, found ''"},
        {PLOT_SAMPLES, "layer,layer_name,who,iteration,ms\n-1,a,b,0,1\n", "column 1 (layer): expected a whole number, found '-1'"},
        {PLOT_SAMPLES, "layer,layer_name,who,iteration,ms\n1,\"a,b,0,1\n", "line 2: column 2: a quote that is not closed"},
        {PLOT_ROOFLINE, "layer,layer_name,who,flops,bytes,seconds\n1,a,b,5,0,1\n", "column 5 (bytes): expected a number above 0, found '0'"},
        {PLOT_CEILINGS, "name,unit,value\nfma,FLOP,5\n", "line 2: column 2 (unit): expected GFLOP/s or GB/s, found 'FLOP'"},
        {PLOT_BREAKDOWN, "network,layer,operator,ms\na,b,c,-1\n", "column 4 (ms): expected a number, not below 0, found '-1'"},
    };
    for (i64 i = 0; i < countof(bad); i++) {
        struct arena a = {0};
        struct plot_run r = {0};
        struct err e = {0};
        if (plot_read_text(&r, &a, bad[i].k, str_of(bad[i].text), &e) || !strstr(e.msg, bad[i].said)) fail_msg("%s: '%s'", bad[i].said, e.msg);
        assert_int_equal(e.code, ERR_INPUT);
        arena_release(&a);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_density), cmocka_unit_test(test_axes),   cmocka_unit_test(test_golden), cmocka_unit_test(test_less),
        cmocka_unit_test(test_missing), cmocka_unit_test(test_random), cmocka_unit_test(test_written), cmocka_unit_test(test_errors),
        cmocka_unit_test(test_baselines),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
