// SPDX-License-Identifier: Apache-2.0
//
// Artifacts: accepted input passes plan_verify, is written and read again. Hashes of contents are
// not repaired: changed constants are rejected, changed headers are not.
//
// Accepted plans are also run on a device that computes nothing, unchanged and with random numbers
// of grids, parameters and scratch memory: nothing is launched beyond the bounds of its buffers.
// Bytes that end like a signed file are one, or are refused.
#include <math.h>
#include <string.h>

#include "art/art.h"
#include "fuzz.h"
#include "rt/rt.h"

enum { MAX_BYTES = 1 << 20 /* of a tensor or of temporary memory */, MAX_IO = 16, SIZE = 5, N_CHANGES = 8 };

/* The device null with checks of launches. */
static bool launch(struct dev *d, const struct dev_launch *l, struct err *e)
{
    double bytes = 0, rounds = 0, least = 0;
    for (u32 k = 0; k < l->n_buf; k++) {
        bytes += (double)l->buf[k].size;
        if (!l->buf[k].size) least = (double)((i64)1 << 31); /* an empty buffer bounds nothing */
    }
    for (u32 g = 0; g < l->n_grid; g++) {
        double n = (double)l->grid[g][0] * (double)l->grid[g][1] * (double)l->grid[g][2];
        if (n > fmax(65536 + 4 * bytes, least)) __builtin_trap();
        rounds += n;
    }
    for (u32 k = 0; k < l->n_param && rounds > 0; k++)
        if (fabs((double)l->param[k]) > fmax((1 << 20) + 64 * bytes, least)) __builtin_trap();
    return true;
}

static bool is_small(const struct plan *p, const struct plan_io *io, const i64 *var, struct tensor *t)
{
    i64 bytes;
    *t = (struct tensor){.dtype = io->dtype, .rank = io->rank};
    for (u32 d = 0; d < io->rank; d++)
        if (!sym_eval(&p->sym, io->dim[d], var, &t->dim[d])) return false;
    return tensor_size_ok(t->dtype, t->rank, t->dim, &bytes) && bytes <= MAX_BYTES;
}

static void run(struct plan *p, struct arena *a)
{
    struct dev_driver driver = *dev_find(S("null"));
    struct err e = {0};
    struct rt_memory m;
    driver.launch = launch;
    struct tensor *in = arena_array(a, struct tensor, p->input.n + 1), *out = arena_array(a, struct tensor, p->output.n + 1);
    i64 *var = arena_array(a, i64, p->sym.var.n + 1);
    bool ok = !plan_has_calls(p) && !p->made.n && p->input.n <= MAX_IO && p->output.n <= MAX_IO;
    for (u32 v = 0; v < p->sym.var.n; v++) var[v] = SIZE;
    for (u32 i = 0; i < p->dispatch.n; i++) p->dispatch.v[i].is_value = arena_array(a, bool, p->dispatch.v[i].n_param + 1); /* all are sizes */
    for (u32 i = 0; i < p->bin.n; i++) p->bin.v[i].lang = str_of(driver.lang);
    for (u32 k = 0; k < p->input.n && ok; k++) ok = is_small(p, &p->input.v[k], var, &in[k]);
    for (u32 k = 0; k < p->output.n && ok; k++) ok = is_small(p, &p->output.v[k], var, &out[k]);
    for (u32 k = 0; k < p->output.n; k++) out[k] = (struct tensor){.dtype = DT_NONE};
    if (!ok || !rt_plan_memory(p, var, a, &m, &e) || m.total > MAX_BYTES) return;
    for (u32 k = 0; k < p->input.n; k++) in[k].data = arena_alloc(a, i64_max(tensor_bytes(&in[k]), 64));
    struct dev *d = driver.open(&(struct dev_opts){.n_threads = 1}, &e);
    d->driver = &driver;
    struct rt_program *r = rt_load(p, d, &e);
    if (r) rt_run(r, in, out, a, &e);
    rt_unload(r);
    driver.close(d);
}

/* Small, large, beyond any integer; or as in a file. */
static sym any_size(struct plan *p, struct rng *r)
{
    static const i64 edge[] = {0, 1, -1, 65536, 1 << 30, (i64)1 << 31, (i64)1 << 40, (i64)1 << 62, INT64_MAX, INT64_MIN + 1};
    sym c = sym_const(&p->sym, edge[rng_range(r, 0, countof(edge) - 1)]);
    if (!p->sym.var.n || rng_range(r, 0, 1)) return c;
    return sym_mul(&p->sym, sym_var(&p->sym, p->sym.var.v[rng_range(r, 0, p->sym.var.n - 1)]), c);
}

static void change(struct plan *p, struct rng *r)
{
    struct plan_dispatch *d = &p->dispatch.v[rng_range(r, 0, p->dispatch.n - 1)];
    i64 what = rng_range(r, 0, 5);
    sym size = any_size(p, r);
    if (what == 0 && !d->call) d->work = size;
    else if (what == 1 && d->n_param) d->param[rng_range(r, 0, d->n_param - 1)] = size;
    else if (d->n_grid) d->grid[rng_range(r, 0, d->n_grid - 1)].extent[rng_range(r, 0, 2)] = size;
}

static void try_signatures(struct str bytes)
{
    struct dnx_signatures s;
    struct err e = {0};
    if (dnx_signatures(&s, bytes, &e) && s.n && (s.n > DNX_MAX_SIGNATURES || bytes.n < 1024)) __builtin_trap();
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
    struct arena a = {0};
    struct plan x, y;
    struct err e = {0};
    struct buf b = {0};
    struct str bytes = {(const char *)p, (i64)n};
    struct rng r = rng_seed(hash_bytes(p, (i64)n).lo);
    try_signatures(bytes);
    if (dnx_read(&x, &a, bytes, &e) && dnx_write(&x, &b, &e)) {
        bool ok = dnx_read(&y, &a, buf_view(&b), &e);
        if (!ok) __builtin_trap();
        run(&y, &a);
        for (int k = 0; k < N_CHANGES && x.dispatch.n; k++) {
            change(&y, &r);
            if (plan_verify(&y, &e)) run(&y, &a);
        }
    }
    buf_release(&b);
    arena_release(&a);
    return 0;
}
