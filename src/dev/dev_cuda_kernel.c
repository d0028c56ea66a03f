// SPDX-License-Identifier: Apache-2.0
//
// dev_cuda_kernel.c: modules and launches. A module holds a function NAME_0, NAME_1, ... for each grid, and for each of them a
// constant NAME_0_info[8] with its launch parameters: version 1, the workgroup's size in x, y, z, the size of subgroups (0: any),
// bytes of dynamic shared memory, number of tensor maps (dev_cuda_map.c). Parameters of a function: a pointer per buffer, the
// kernel's parameters as 32-bit int, then the first workgroup of the launched part of the grid, then the encoded tensor maps.
//
// Launches go to one stream, in order. Two events around all launches between two fences measure the time; a transfer in between stops the clock.
#include "dev/dev_cuda.h"

#include <string.h>

enum { N_INFO = 8, INFO_VERSION = 1, N_BASE = 3 };

struct function { /* one grid */
    void *function;
    u32 group[3], shared; /* threads; bytes of dynamic shared memory */
    u32 n_map;
    struct cuda_map *map;
};

struct dev_kernel {
    struct arena arena; /* with a copy of the image, which HIP continues to read */
    struct dev_kernel *next;
    void *module;
    u32 n_grid;
    struct function *function; /* per grid */
    const struct dev_gemm *gemm; /* both NULL: functions of a module */
    struct cuda_conv *conv;
};

/* Loading. */

/* Reads numbers of the constant NAME_what. */
static bool read_constant(struct cuda *c, struct dev_kernel *k, struct str name, const char *what, i32 *out, u32 count, struct err *e)
{
    u64 at = 0;
    size_t n = 0;
    struct str symbol = str_fmt(&k->arena, "%.*s_%s", STR_ARG(name), what);
    i32 r = c->cu.ModuleGetGlobal(&at, &n, k->module, symbol.p);
    if (!cuda_ok(c, r, "ModuleGetGlobal", e)) return err_prefix(e, "no '%.*s' in binary", STR_ARG(symbol));
    if (n < count * sizeof *out)
        return err_set(e, ERR_INPUT, "'%.*s' in binary has %zu bytes", STR_ARG(symbol), n);
    return cuda_ok(c, c->cu.CopyOut(out, at, count * sizeof *out, c->stream), "MemcpyDtoHAsync", e) &&
           cuda_ok(c, c->cu.StreamSynchronize(c->stream), "StreamSynchronize", e);
}

static bool check_group(struct cuda *c, struct function *f, const i32 info[N_INFO], struct str name, struct err *e)
{
    const i32 *v = c->facts.value;
    i32 most = 0;
    if (info[0] != INFO_VERSION)
        return err_set(e, ERR_INPUT, "'%.*s' is of version %d of the calling convention, %d is known", STR_ARG(name), info[0], INFO_VERSION);
    if (!cuda_ok(c, c->cu.FuncGetAttribute(&most, CUDA_FUNC_MAX_THREADS, f->function), "FuncGetAttribute", e)) return false;
    i64 threads = 1;
    bool ok = true;
    for (int d = 0; d < 3; d++) {
        ok = ok && info[1 + d] > 0 && info[1 + d] <= v[CUDA_MAX_BLOCK_X + d];
        threads = ok ? threads * info[1 + d] : threads;
        f->group[d] = (u32)info[1 + d];
    }
    if (!ok || threads > most || threads > v[CUDA_MAX_THREADS])
        return err_set(e, ERR_UNSUPPORTED, "workgroups of %d x %d x %d threads in '%.*s', '%s' allows %d", info[1], info[2],
                       info[3], STR_ARG(name), c->facts.name, most);
    return info[4] == 0 || info[4] == v[CUDA_WARP] ||
           err_set(e, ERR_UNSUPPORTED, "'%.*s' needs subgroups of %d threads, '%s' has %d", STR_ARG(name), info[4],
                   c->facts.name, v[CUDA_WARP]);
}

/* Shared memory beyond the default limit of functions is requested. */
static bool set_shared(struct cuda *c, struct function *f, i32 want, struct str name, struct err *e)
{
    const i32 *v = c->facts.value;
    i32 fixed = 0;
    if (!cuda_ok(c, c->cu.FuncGetAttribute(&fixed, CUDA_FUNC_SHARED, f->function), "FuncGetAttribute", e)) return false;
    i64 most = i64_max(v[CUDA_SHARED], v[CUDA_SHARED_OPTIN]);
    if (want < 0 || fixed < 0 || (i64)fixed + want > most)
        return err_set(e, ERR_UNSUPPORTED, "'%.*s' needs %lld bytes of shared memory, '%s' has %lld", STR_ARG(name),
                       (long long)fixed + want, c->facts.name, (long long)most);
    f->shared = (u32)want;
    if ((i64)fixed + want <= v[CUDA_SHARED] || !c->cu.FuncSetAttribute) return true;
    return cuda_ok(c, c->cu.FuncSetAttribute(f->function, CUDA_FUNC_MAX_DYNAMIC_SHARED, want), "FuncSetAttribute", e);
}

static bool read_maps(struct cuda *c, struct dev_kernel *k, struct function *f, i32 n, struct str name, struct err *e)
{
    if (n < 0 || n > DEV_MAX_PARAMETERS / CUDA_MAP_BYTES)
        return err_set(e, ERR_INPUT, "'%.*s' in binary has %d matrices", STR_ARG(name), n);
    if (n == 0) return true;
    i32 *fact = arena_array(&k->arena, i32, n * CUDA_MAP_INTS);
    if (!read_constant(c, k, name, "maps", fact, (u32)n * CUDA_MAP_INTS, e)) return false;
    f->n_map = (u32)n;
    f->map = arena_array(&k->arena, struct cuda_map, n);
    for (i32 i = 0; i < n; i++) memcpy(f->map[i].fact, fact + i * CUDA_MAP_INTS, sizeof f->map[i].fact);
    return cuda_map_check(c, f->map, f->n_map, name, e);
}

static bool find_function(struct cuda *c, struct dev_kernel *k, struct str entry, u32 grid, struct err *e)
{
    struct function *f = &k->function[grid];
    struct str name = str_fmt(&k->arena, "%.*s_%u", STR_ARG(entry), grid);
    i32 info[N_INFO] = {0}, r = c->cu.ModuleGetFunction(&f->function, k->module, name.p);
    if (!cuda_ok(c, r, "ModuleGetFunction", e)) return err_prefix(e, "no function '%.*s' in binary", STR_ARG(name));
    return read_constant(c, k, name, "info", info, N_INFO, e) && check_group(c, f, info, name, e) && set_shared(c, f, info[5], name, e) &&
           read_maps(c, k, f, info[6], name, e);
}

static void destroy(struct cuda *c, struct dev_kernel *k)
{
    if (k->module) c->cu.ModuleUnload(k->module);
    cuda_conv_close(c, k->conv);
    struct arena a = k->arena;
    arena_release(&a);
}

static struct dev_kernel *keep(struct cuda *c, struct dev_kernel *k)
{
    k->next = c->kernels;
    return c->kernels = k;
}

struct dev_kernel *cuda_load_gemm(struct cuda *c, const struct dev_gemm *p, struct buf *name, struct err *e)
{
    struct arena a = {0};
    if (!cuda_gemm_check(c, p, name, e)) return NULL;
    struct dev_kernel *k = arena_new(&a, struct dev_kernel);
    struct dev_gemm *own = arena_new(&a, struct dev_gemm);
    *own = *p;
    *k = (struct dev_kernel){.arena = a, .n_grid = 1, .gemm = own};
    return keep(c, k);
}

struct dev_kernel *cuda_load_conv(struct cuda *c, const struct dev_conv *s, struct buf *name, struct err *e)
{
    struct arena a = {0};
    struct cuda_conv *x = cuda_conv_open(c, s, name, e);
    if (!x) return NULL;
    struct dev_kernel *k = arena_new(&a, struct dev_kernel);
    *k = (struct dev_kernel){.arena = a, .n_grid = 1, .conv = x};
    return keep(c, k);
}

struct dev_kernel *cuda_load(struct cuda *c, struct str binary, struct str entry, u32 n_grid, struct err *e)
{
    if (!cuda_binary_check(binary, e)) return NULL;
    struct arena a = {0};
    struct dev_kernel *k = arena_new(&a, struct dev_kernel);
    *k = (struct dev_kernel){.n_grid = n_grid};
    k->function = arena_array(&a, struct function, n_grid + 1);
    struct str image = str_dup(&a, binary); /* also aligned */
    k->arena = a;
    i32 r = c->cu.ModuleLoadData(&k->module, image.p);
    if (r != 0) k->module = NULL;
    bool ok = cuda_ok(c, r, "ModuleLoadData", e);
    for (u32 g = 0; g < n_grid && ok; g++) ok = find_function(c, k, entry, g, e);
    if (ok) return keep(c, k);
    destroy(c, k);
    return NULL;
}

void cuda_unload(struct cuda *c, struct dev_kernel *k)
{
    for (struct dev_kernel **at = &c->kernels; k && *at; at = &(*at)->next) {
        if (*at != k) continue;
        *at = k->next;
        if (!c->is_lost) c->cu.StreamSynchronize(c->stream); /* may still be running */
        destroy(c, k);
        break;
    }
}

/* The clock. */

bool cuda_pause(struct cuda *c, struct err *e)
{
    float ms = 0;
    bool timed = c->is_timing;
    c->is_timing = false;
    if (timed && !cuda_ok(c, c->cu.EventRecord(c->stop, c->stream), "EventRecord", e)) return false;
    if (!cuda_ok(c, c->cu.StreamSynchronize(c->stream), "StreamSynchronize", e)) return false;
    if (!timed) return true;
    if (!cuda_ok(c, c->cu.EventElapsedTime(&ms, c->start, c->stop), "EventElapsedTime", e)) return false;
    if (c->seconds >= 0) c->seconds += (double)ms * 1e-3;
    return true;
}

bool cuda_fence(struct cuda *c, struct err *e)
{
    bool ok = cuda_pause(c, e);
    c->last = ok ? c->seconds : -1;
    c->seconds = 0;
    return ok;
}

/* Launching. */

static void groups_at_once(const struct cuda *c, const struct function *f, u32 most[3])
{
    const i32 *v = c->facts.value;
    most[0] = (u32)i64_min(v[CUDA_MAX_GRID_X], INT32_MAX / (i64)f->group[0]); /* threads are counted in 32 bits */
    most[1] = (u32)v[CUDA_MAX_GRID_Y];
    most[2] = (u32)v[CUDA_MAX_GRID_Z];
}

static bool check(struct cuda *c, const struct dev_launch *l, struct err *e)
{
    u32 most[3];
    i64 bytes = 8 * (i64)l->n_buf + 4 * ((i64)l->n_param + N_BASE);
    for (u32 g = 0; g < l->kernel->n_grid; g++) {
        u32 n = l->kernel->function[g].n_map;
        if (bytes > DEV_MAX_PARAMETERS || (n && round_up(bytes, 64) + n * CUDA_MAP_BYTES > DEV_MAX_PARAMETERS))
            return err_set(e, ERR_UNSUPPORTED, "%u buffers, %u parameters and %u matrices are more than a launch can pass", l->n_buf, l->n_param, n);
        groups_at_once(c, &l->kernel->function[g], most);
        if (!dev_check_launch(l, l->kernel->n_grid, most, c->facts.name, e)) return false;
    }
    return dev_check_reach(l, INT64_MAX, c->facts.name, e);
}

struct arguments {
    void **p; /* one per parameter: its address */
    u64 *address;
    i32 *number; /* the last three: the base */
    void **map;  /* the last of p: encoded tensor maps */
};

static struct arguments gather(const struct dev_launch *l, struct arena *a)
{
    u32 n = l->n_param + N_BASE, n_map = 0;
    for (u32 g = 0; g < l->kernel->n_grid; g++) n_map = l->kernel->function[g].n_map > n_map ? l->kernel->function[g].n_map : n_map;
    void **p = arena_array(a, void *, l->n_buf + n + n_map);
    struct arguments x = {p, arena_array(a, u64, l->n_buf + 1), arena_array(a, i32, n), p + l->n_buf + n};
    for (u32 i = 0; i < l->n_buf; i++) {
        x.address[i] = cuda_address(&l->buf[i]);
        x.p[i] = &x.address[i];
    }
    for (u32 i = 0; i < n; i++) {
        x.number[i] = i < l->n_param ? (i32)l->param[i] : 0;
        x.p[l->n_buf + i] = &x.number[i];
    }
    return x;
}

static bool launch_grid(struct cuda *c, const struct dev_launch *l, u32 grid, const struct arguments *x, struct err *e)
{
    const struct function *f = &l->kernel->function[grid];
    struct dev_piece p = {0};
    u32 most[3];
    groups_at_once(c, f, most);
    if (!cuda_map_prepare(c, f->map, f->n_map, l, e)) return false;
    for (u32 i = 0; i < f->n_map; i++) x->map[i] = f->map[i].code;
    while (dev_next_piece(&p, l->grid[grid], most)) {
        if (!cuda_start_clock(c, e)) return false;
        for (int d = 0; d < N_BASE; d++) x->number[l->n_param + (u32)d] = (i32)p.base[d];
        i32 r = c->cu.LaunchKernel(f->function, p.n[0], p.n[1], p.n[2], f->group[0], f->group[1], f->group[2],
                                   f->shared, c->stream, x->p, NULL);
        if (!cuda_ok(c, r, "LaunchKernel", e)) return false;
    }
    return true;
}

bool cuda_launch(struct cuda *c, const struct dev_launch *l, struct err *e)
{
    struct arena a = {0};
    if (l->kernel->gemm) return cuda_gemm_launch(c, l->kernel->gemm, l, e);
    if (l->kernel->conv) return cuda_conv_launch(c, l->kernel->conv, l, e);
    bool ok = check(c, l, e);
    if (ok) {
        struct arguments x = gather(l, &a);
        for (u32 g = 0; g < l->n_grid && ok; g++) ok = launch_grid(c, l, g, &x, e);
    }
    arena_release(&a);
    return ok;
}
