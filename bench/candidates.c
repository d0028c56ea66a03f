// SPDX-License-Identifier: Apache-2.0
//
// Memory of a tuning run as a function of the number of its candidates.
//
//   build/bench/candidates [-b] [N]      default 10000; -b: candidates are only built, as by quern populate
//
// A line at 1, 2, 5, 10, 20 ... candidates: candidates, MiB of resident memory of the tuner, its
// peak, seconds since the start. Random schedules of a small GEMM, on the interpreter: measures the
// memory of the tuner, not of kernels. The database is in a file, as usual.
#include "../test/many_candidates.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const double mib = 1 << 20;
static double start;

static void say(i64 n)
{
    printf("%8lld %10.1f %10.1f %10.0f\n", (long long)n, (double)os_rss() / mib, (double)os_peak_rss() / mib, os_now() - start);
    fflush(stdout);
}

/* The next of 100, 200, 500, 1000 ... */
static i64 after(i64 n)
{
    i64 first = n;
    while (first >= 10) first /= 10;
    return first == 2 ? n / 2 * 5 : n * 2;
}

static i64 next = 100;

static void look(struct many *m)
{
    if (m->done < next) return;
    say(m->done);
    while (next <= m->done) next = after(next);
}

int main(int argc, char **argv)
{
    struct many m;
    struct db d = {0};
    struct err e = {0};
    struct str dir = {0};
    struct arena a = {0};
    const struct dev_driver interp = many_driver(), *driver = &interp;
    bool builds_only = argc > 1 && !strcmp(argv[1], "-b");
    i64 n = argc > 1 + builds_only ? atoll(argv[1 + builds_only]) : 10000;
    start = os_now();
    unsetenv("XDG_CACHE_HOME"), unsetenv("HOME"); /* a hundred thousand kernels must not be cached */
    printf("%8s %10s %10s %10s\n", "trials", "MiB", "peak MiB", "seconds");
    bool ok = many_open(&m, driver, &e) && os_temp_dir(&a, &dir, &e) && db_open(&d, str_fmt(&a, "%.*s/many.db", STR_ARG(dir)).p, &e);
    m.look = look, m.builds_only = builds_only;
    say(0);
    ok = ok && many_run(&m, &d, driver, n, &e);
    if (!ok) fprintf(stderr, "%s\n", e.msg);
    printf("%lld built alone, %lld verified, %lld failed; the tuner kept %.1f MiB\n", (long long)m.result.n_built, (long long)m.result.n_ok, (long long)m.result.n_failed, (double)m.result.memory / mib);
    say(m.done);
    db_close(&d);
    if (dir.n) os_remove_tree(str_z(&a, dir));
    many_close(&m);
    arena_release(&a);
    return !ok;
}
