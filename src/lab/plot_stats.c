// SPDX-License-Identifier: Apache-2.0
//
// Densities of samples and round numbers for axes.
//
// The density is a sum of normal curves (Silverman, Density Estimation for Statistics and Data Analysis, 1986, section 2.4) whose width
// follows his rule of thumb, 0.9 min(deviation, quartile distance / 1.34) n^(-1/5) (equation 3.31). It is not drawn beyond the samples.
#include "lab/plot.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Of sorted ones, linear between two. */
static double quantile(const double *v, u32 n, double q)
{
    double at = q * (n - 1), f = floor(at);
    u32 i = (u32)f;
    return i + 1 < n ? v[i] + (at - f) * (v[i + 1] - v[i]) : v[n - 1];
}

static double deviation(const double *v, u32 n)
{
    double mean = 0, squares = 0;
    for (u32 i = 0; i < n; i++) mean += v[i] / n;
    for (u32 i = 0; i < n; i++) squares += (v[i] - mean) * (v[i] - mean);
    return n > 1 ? sqrt(squares / (n - 1)) : 0;
}

static double kernel_width(const double *v, u32 n, double spread)
{
    double s = deviation(v, n);
    return 0.9 * (spread > 0 ? fmin(s, spread / 1.34) : s) * pow(n, -0.2);
}

static void set_range(struct plot_density *d, const double *v, u32 n)
{
    double spread = d->q3 - d->q1;
    d->low = v[0], d->high = v[n - 1];
    if (spread > 0) d->low = fmax(d->low, d->q1 - 3 * spread), d->high = fmin(d->high, d->q3 + 3 * spread);
    for (u32 i = 0; i < n; i++) d->n_below += v[i] < d->low, d->n_above += v[i] > d->high;
}

void plot_density(struct plot_density *d, const struct plot_list *list, struct arena *a)
{
    u32 n = list->n;
    double *v = arena_array(a, double, n), most = 0;
    memcpy(v, list->v, n * sizeof *v);
    qsort(v, n, sizeof *v, compare);
    *d = (struct plot_density){.n = n, .q1 = quantile(v, n, 0.25), .median = quantile(v, n, 0.5), .q3 = quantile(v, n, 0.75)};
    set_range(d, v, n);
    d->width = d->high > d->low ? kernel_width(v, n, d->q3 - d->q1) : 0;
    for (u32 k = 0; k <= PLOT_STEPS && d->width > 0; k++) {
        d->at[k] = d->low + (d->high - d->low) * k / PLOT_STEPS;
        for (u32 i = 0; i < n; i++) {
            double z = (d->at[k] - v[i]) / d->width;
            d->d[k] += exp(-z * z / 2);
        }
        most = fmax(most, d->d[k]);
    }
    for (u32 k = 0; k <= PLOT_STEPS && most > 0; k++) d->d[k] /= most;
}

/* Axes. */

/* The first of 1, 2, 5 times a power of ten that is not below v. */
static double round_number(double v)
{
    double p = pow(10, floor(log10(v)));
    const double m[] = {1, 2, 5};
    for (i64 i = 0; i < countof(m); i++)
        if (m[i] * p >= v * (1 - 1e-9)) return m[i] * p;
    return 10 * p;
}

struct plot_axis plot_axis(double low, double high, u32 steps)
{
    double middle = (low + high) / 2, span = fmax(high - low, high * 1e-3);
    struct plot_axis x = {.step = round_number(span / steps)};
    x.low = fmax(floor((middle - span / 2) / x.step + 1e-9) * x.step, 0), x.high = ceil((middle + span / 2) / x.step - 1e-9) * x.step;
    return x;
}

struct plot_axis plot_log_axis(double low, double high)
{
    struct plot_axis x = {.is_log = true, .high = round_number(high)};
    x.low = 1 / round_number(1 / low); /* 1, 1/2, 1/5 .. are 1, 0.5, 0.2 .. */
    if (x.high <= x.low * 1.01) x.high = round_number(x.low * 1.5);
    return x;
}

static void print_log_tics(struct buf *b, const struct plot_axis *x, char which)
{
    const double m[] = {1, 2, 5};
    i64 first = (i64)floor(log10(x->low) - 1e-9), last = (i64)ceil(log10(x->high) + 1e-9);
    bool is_long = log10(x->high / x->low) > 2.5;
    const char *sep = "";
    buf_printf(b, "set %ctics nomirror (", which);
    for (i64 p = first; p <= last; p++)
        for (i64 i = 0; i < countof(m); i++) {
            double v = m[i] * pow(10, (double)p);
            if (v < x->low * 0.999 || v > x->high * 1.001) continue;
            if (is_long && i) buf_printf(b, "%s'' %.6g 1", sep, v);
            else buf_printf(b, "%s'%.6g' %.6g", sep, v, v);
            sep = ", ";
        }
    buf_z(b, ")\n");
}

void plot_axis_print(struct buf *b, const struct plot_axis *x, char which)
{
    double slack = x->is_log ? 1e-4 : 0; /* gnuplot's logarithms round: without it the ends may have no tics */
    buf_printf(b, "%sset logscale %c\nset %crange [%.12g:%.12g]\n", x->is_log ? "" : "un", which, which, x->low * (1 - slack), x->high * (1 + slack));
    if (x->is_log) {
        print_log_tics(b, x, which);
        return;
    }
    i64 digits = i64_min(i64_max(-(i64)floor(log10(x->step) + 1e-9), 0), 15);
    buf_printf(b, "set format %c '%%.%lldf'\nset %ctics nomirror %.12g\n", which, (long long)digits, which, x->step);
}
