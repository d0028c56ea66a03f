// SPDX-License-Identifier: Apache-2.0
//
// Runs a fuzzer without libFuzzer: on every file of the given folders (or files), on parts of each
// file and on copies with a few changed bytes, deterministically. Each input has memory of exactly
// its size, so that sanitizers detect reads past its end.
#include <stdio.h>
#include <string.h>

#include "core/core.h"
#include "fuzz.h"

enum { MAX_FILE = 1 << 20, N_CUTS = 100, N_CHANGED = 300 };

static void run(const char *p, i64 n)
{
    u8 *own = mem_alloc(n); /* a fresh block: its neighbours are guarded under ASan */
    if (n) memcpy(own, p, (size_t)n);
    LLVMFuzzerTestOneInput(own, (size_t)n);
    mem_free(own);
}

static void run_changed(struct str s, struct rng *r)
{
    char *p = mem_alloc(s.n + 1);
    memcpy(p, s.p, (size_t)s.n);
    for (i64 k = rng_range(r, 1, 4); k > 0; k--) {
        i64 at = rng_range(r, 0, s.n - 1);
        if (rng_range(r, 0, 1)) p[at] ^= (char)(1 << rng_range(r, 0, 7));
        else p[at] = (char)rng_u64(r);
    }
    run(p, s.n);
    mem_free(p);
}

static bool run_file(const char *path, struct err *e)
{
    struct arena a = {0};
    struct rng r = rng_seed(1);
    struct str s;
    bool ok = os_read(&a, path, MAX_FILE, &s, e);
    if (ok) run(s.p, s.n);
    for (i64 k = 0; ok && k < N_CUTS; k++) run(s.p, s.n * k / N_CUTS);
    for (i64 k = 0; ok && s.n && k < N_CHANGED; k++) run_changed(s, &r);
    arena_release(&a);
    return ok;
}

static i64 run_path(struct arena *a, const char *path, struct err *e)
{
    struct str *names;
    i64 n, done = 0;
    if (!os_is_dir(path)) return run_file(path, e);
    if (!os_list(a, path, &names, &n, e)) return 0;
    for (i64 k = 0; k < n; k++) done += run_file(str_fmt(a, "%s/%.*s", path, STR_ARG(names[k])).p, e);
    return done;
}

int main(int argc, char **argv)
{
    struct arena a = {0};
    struct err e = {0};
    i64 done = 0;
    for (int k = 1; k < argc; k++) done += run_path(&a, argv[k], &e);
    arena_release(&a);
    if (e.code) printf("%s\n", e.msg);
    printf("%lld files\n", (long long)done);
    return e.code || !done;
}
