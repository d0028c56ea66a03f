// SPDX-License-Identifier: Apache-2.0
//
// Medians and their confidence intervals. Times are skewed and have outliers, hence order
// statistics: the 95 % interval of the median lies between ranks n/2 -+ 0.98 sqrt(n) (normal
// approximation of the binomial; Conover, Practical Nonparametric Statistics, section 3.2).
#include "tune/tune.h"

#include <math.h>
#include <stdlib.h>

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

struct stats stats_of(double *v, u32 n)
{
    if (n == 0) return (struct stats){0};
    qsort(v, n, sizeof *v, compare);
    double half = 0.98 * sqrt((double)n);
    i64 lo = i64_max((i64)floor((double)n / 2 - half), 0);
    return (struct stats){
        .median = n % 2 ? v[n / 2] : (v[n / 2 - 1] + v[n / 2]) / 2,
        .low = v[lo],
        .high = v[n - 1 - lo],
    };
}

bool tune_is_typical(double reference, double typical)
{
    static const double most = 1.25; /* times as long: more than clock frequencies vary on a quiet machine */
    return typical <= 0 || reference <= most * typical;
}

double tune_typical(const double *median, u32 n)
{
    struct arena tmp = {0};
    double *v = arena_array(&tmp, double, n + 1);
    u32 k = 0;
    for (u32 i = 0; i < n; i++)
        if (median[i] > 0) v[k++] = median[i];
    stats_of(v, k); /* sorts */
    double quartile = k ? v[(k - 1) / 4] : 0;
    arena_release(&tmp);
    return quartile;
}
