// SPDX-License-Identifier: Apache-2.0
//
// dev_library.c: vendor libraries: opened at run time, with the functions that a driver needs of them; shared by
// drivers that offer GEMM and convolutions: the description of a row-major GEMM to column-major libraries, the
// layout of a convolution's elements, and the check of a launch's buffers. No operand is ever copied for it.
#include "dev/dev.h"

#include <string.h>

/* Opening. */

/* Opens the first candidate that exists. The error concerns the first one. */
static void *open_usual(const char *names, struct err *e)
{
    struct arena a = {0};
    struct str rest = str_of(names), name;
    void *lib = NULL;
    while (!lib && rest.n) {
        struct err none = {0};
        str_cut(rest, ' ', &name, &rest);
        lib = os_dlopen(str_z(&a, name), &none);
        if (!lib) err_set(e, none.code, "%s", none.msg);
    }
    if (lib) *e = (struct err){0};
    arena_release(&a);
    return lib;
}

static bool find_calls(const struct dev_library *l, void *lib, void *calls, struct err *e)
{
    for (i64 i = 0; i < l->n_call; i++) {
        if (!l->call[i].name) continue;
        void *f = os_dlsym(lib, l->call[i].name);
        if (!f && !l->call[i].may_lack)
            return err_set(e, ERR_SYSTEM, "the %s library has no '%s'", l->what, l->call[i].name);
        memcpy((char *)calls + l->call[i].at, &f, sizeof f);
    }
    return true;
}

bool dev_library_loaded(const struct dev_library *l)
{
    struct arena a = {0};
    const char *path = os_env(l->variable);
    struct str rest = str_of(path && *path ? path : l->usual), name;
    bool found = false;
    while (!found && rest.n) {
        if (path && *path) name = rest, rest = (struct str){0};
        else str_cut(rest, ' ', &name, &rest);
        found = os_dlloaded(str_z(&a, name));
    }
    arena_release(&a);
    return found;
}

void *dev_library_open(const struct dev_library *l, void *calls, struct err *e)
{
    struct err why = {0};
    const char *path = os_env(l->variable);
    void *lib = path && *path ? os_dlopen(path, &why) : open_usual(l->usual, &why);
    if (!lib) {
        err_set(e, why.code, "no %s: %s; install its driver, or choose a device that is there (quern devices)", l->what, why.msg);
        return NULL;
    }
    if (find_calls(l, lib, calls, e)) return lib;
    os_dlclose(lib);
    return NULL;
}

/* Buffers of a launch. */

/* Three buffers of at least these sizes. */
static bool check_buffers(const char *what, const i64 want[3], const struct dev_launch *l, struct err *e)
{
    if (l->n_buf != 3 || l->n_param != 0 || l->n_grid != 1)
        return err_set(e, ERR_USAGE, "a %s has three buffers and nothing else, not %u, with %u parameters and %u grids", what, l->n_buf,
                       l->n_param, l->n_grid);
    for (u32 i = 0; i < l->n_buf; i++)
        if (l->buf[i].size < want[i])
            return err_set(e, ERR_USAGE, "buffer %u of a %s has %lld bytes, it needs %lld", i, what, (long long)l->buf[i].size,
                           (long long)want[i]);
    return true;
}

/* GEMM. */

static bool fits(i64 v) { return v > 0 && v <= INT32_MAX; }

bool dev_columns_of(struct dev_columns *c, const struct dev_gemm *p, struct err *e)
{
    bool ok = fits(p->batch) && fits(p->m) && fits(p->n) && fits(p->k);
    *c = (struct dev_columns){.m = (i32)p->n,
                              .n = (i32)p->m,
                              .k = (i32)p->k,
                              .lda = (i32)p->n,
                              .ldb = (i32)(p->a_transposed ? p->m : p->k),
                              .ldc = (i32)p->n,
                              .step_a = p->k * p->n,
                              .step_b = p->m * p->k,
                              .step_c = p->m * p->n,
                              .b_transposed = p->a_transposed};
    return ok || err_set(e, ERR_UNSUPPORTED, "sizes of a matmul that exceed the range of libraries");
}

bool dev_gemm_check(const struct dev_gemm *p, const struct dev_launch *l, struct err *e)
{
    i64 size = dtype_size(p->type) * p->batch;
    return check_buffers("GEMM", (i64[]){size * p->m * p->k, size * p->k * p->n, size * p->m * p->n}, l, e);
}

/* Convolutions. */

void dev_conv_steps(i64 *step, u32 n, const i64 *dim, u32 channel, bool is_last)
{
    i64 at = 1;
    if (is_last) step[channel] = 1, at = dim[channel];
    for (u32 i = n; i-- > 0;) {
        if (is_last && i == channel) continue;
        step[i] = at;
        at = dim[i] > 0 && at > INT64_MAX / dim[i] ? INT64_MAX : at * dim[i];
    }
}

void dev_conv_bytes(const struct dev_conv *c, i64 size[3])
{
    i64 one = dtype_size(c->type);
    size[0] = one * c->batch * c->channels * i64_product(c->axes, c->size);
    size[c->of_weights ? 2 : 1] = one * (c->channels / c->groups) * c->out_channels * i64_product(c->axes, c->kernel);
    size[c->of_weights ? 1 : 2] = one * c->batch * c->out_channels * i64_product(c->axes, c->outputs);
}

bool dev_conv_check(const struct dev_conv *c, const struct dev_launch *l, struct err *e)
{
    i64 size[3];
    dev_conv_bytes(c, size);
    return check_buffers("convolution", size, l, e);
}
