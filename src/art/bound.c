// SPDX-License-Identifier: Apache-2.0
//
// Bounds of the numbers passed to a dispatch. Kernels trust their parameters: a size of 2^40 is an endless loop, or an address outside
// of every buffer. The numbers of an artifact are therefore compared with the buffers of the dispatch before anything is launched:
// iterations, sizes and distances are at most the number of bytes of the buffers, times a factor and plus a margin for padding.
//
// Nearly every parameter of a kernel is such a size. Exceptions (the 4096 positions before the one position that a step of a language model
// computes are a number to compute with, and no buffer of the step need be as long) cannot be recognised by their expression, so the compiler marks
// them: it tries sizes of all magnitudes, and parameters that break the bound are marked as values. So no program that quern wrote is rejected.
#include "art/art.h"

/* Sizes with empty buffers are bounded only by a run time of seconds. */
static i64 most_of(i64 bytes, bool is_empty, i64 per_byte, i64 margin)
{
    i64 most = margin + per_byte * i64_min(bytes, (INT64_MAX - margin) / per_byte);
    return is_empty ? i64_max(most, INT64_C(1) << 31) : most;
}

i64 plan_most_iterations(i64 bytes, bool is_empty) { return most_of(bytes, is_empty, 4, 1 << 16); }

i64 plan_most_size(i64 bytes, bool is_empty) { return most_of(bytes, is_empty, 64, 1 << 20); }

static bool is_over(i64 x, i64 most) { return x > most || x < -most; }

bool plan_size_is_over(const struct plan_dispatch *d, u32 param, i64 x, i64 most) { return !(d->is_value && d->is_value[param]) && is_over(x, most); }

/* finding the values */

enum { N_RANDOM = 64 };

/* false: the buffers have no such sizes */
static bool sample_most(const struct plan *p, const struct plan_dispatch *d, const i64 *var, i64 *most)
{
    i64 bytes = 0;
    bool is_empty = false;
    for (u32 k = 0; k < d->n_buf; k++) {
        i64 size;
        if (!sym_eval(&p->sym, p->buf.v[d->buf[k]].size, var, &size) || size < 0 || size > INT64_MAX / 4 - bytes) return false;
        bytes += size;
        is_empty |= size == 0;
    }
    *most = plan_most_size(bytes, is_empty) / 2;
    return true;
}

static void find_values(const struct plan *p, struct plan_dispatch *d, i64 *var)
{
    struct rng r = rng_seed(1);
    for (u32 k = 0; k < p->sym.var.n + N_RANDOM; k++) {
        i64 most, x;
        /* Sizes of a sample: first each variable alone is large, then any of them are. */
        static const i64 small[] = {1, 1, 2, 7, 16, 64, 640, 1000}, large[] = {1 << 12, 1 << 20, 1 << 26};
        u32 n = p->sym.var.n;
        for (u32 v = 0; v < n; v++) {
            i64 any = rng_range(&r, 0, 2) ? small[rng_range(&r, 0, countof(small) - 1)] : large[rng_range(&r, 0, countof(large) - 1)];
            var[v] = k >= n ? any : v == k ? large[countof(large) - 1] : 1;
        }
        if (!sample_most(p, d, var, &most)) continue;
        for (u32 i = 0; i < d->n_param; i++) d->is_value[i] |= sym_eval(&p->sym, d->param[i], var, &x) && is_over(x, most);
    }
}

void plan_find_values(struct plan *p)
{
    struct arena tmp = {0};
    i64 *var = arena_array(&tmp, i64, p->sym.var.n + 1);
    for (u32 i = 0; i < p->dispatch.n; i++) {
        struct plan_dispatch *d = &p->dispatch.v[i];
        d->is_value = arena_array(p->arena, bool, d->n_param + 1);
        if (d->n_param) find_values(p, d, var);
    }
    arena_release(&tmp);
}
