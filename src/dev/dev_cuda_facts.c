// SPDX-License-Identifier: Apache-2.0
//
// dev_cuda_facts.c: properties of a device: those of its architecture
// (dev_target.c), overridden by those that the driver reports.
#include "dev/dev_cuda.h"

#include <stdio.h>
#include <string.h>

/* "gfx90a:sramecc+:xnack-" is somewhere after the name in
   hipDeviceProp_t, whose layout differs between versions. */
static bool find_gfx(struct cuda *c, i32 d, struct err *e)
{
    enum { SIZE = 16 << 10, NAME = 256 };
    struct arena a = {0};
    char *p = arena_alloc(&a, SIZE);
    bool ok = cuda_ok(c, c->cu.DeviceProperties(p, d), "hipGetDeviceProperties", e);
    for (i64 i = NAME; i < SIZE - 64 && ok && !c->facts.arch[0]; i++) {
        i64 n = 3;
        if (memcmp(p + i, "gfx", 3)) continue;
        while (n < 16 && ((p[i + n] >= '0' && p[i + n] <= '9') || (p[i + n] >= 'a' && p[i + n] <= 'z'))) n++;
        if (n > 3) snprintf(c->facts.arch, sizeof c->facts.arch, "%.*s", (int)n, p + i);
    }
    arena_release(&a);
    return ok && (c->facts.arch[0] || err_set(e, ERR_UNSUPPORTED, "'%s' does not report its architecture", c->facts.name));
}

static bool find_arch(struct cuda *c, i32 d, struct err *e)
{
    struct cuda_facts *f = &c->facts;
    if (c->api->has_gfx) return find_gfx(c, d, e);
    i32 major = f->value[CUDA_MAJOR], minor = f->value[CUDA_MINOR];
    if (major < 5)
        return err_set(e, ERR_UNSUPPORTED, "'%s' has compute capability %d.%d, at least 5.0 is needed", f->name, major, minor);
    snprintf(f->arch, sizeof f->arch, "sm_%d%d%s", major, minor, major == 9 && minor == 0 ? "a" : "");
    return true;
}

static bool check_limits(const struct cuda *c, struct err *e)
{
    static const enum cuda_attribute needed[] = {CUDA_MAX_THREADS, CUDA_MAX_BLOCK_X, CUDA_MAX_BLOCK_Y,
                                                 CUDA_MAX_BLOCK_Z, CUDA_MAX_GRID_X,  CUDA_MAX_GRID_Y,
                                                 CUDA_MAX_GRID_Z,  CUDA_SHARED,      CUDA_WARP};
    for (i64 i = 0; i < countof(needed); i++)
        if (c->facts.value[needed[i]] <= 0)
            return err_set(e, ERR_UNSUPPORTED, "'%s' does not report its limits", c->facts.name);
    return true;
}

bool cuda_facts_init(struct cuda *c, i32 ordinal, struct err *e)
{
    struct cuda_facts *f = &c->facts;
    size_t memory = 0;
    if (!cuda_ok(c, c->cu.DeviceGet(&c->device, ordinal), "DeviceGet", e) ||
        !cuda_ok(c, c->cu.DeviceGetName(f->name, sizeof f->name - 1, c->device), "DeviceGetName", e) ||
        !cuda_ok(c, c->cu.DeviceTotalMem(&memory, c->device), "DeviceTotalMem", e) ||
        !cuda_ok(c, c->cu.DriverGetVersion(&f->version), "DriverGetVersion", e))
        return false;
    f->memory = memory;
    for (int i = 0; i < CUDA_N_ATTRIBUTES; i++) {
        i32 v = 0, what = c->api->attribute[i];
        if (what >= 0 && c->cu.DeviceGetAttribute(&v, what, c->device) == 0) f->value[i] = v;
    }
    return check_limits(c, e) && find_arch(c, c->device, e);
}

static u32 positive(i64 v, u32 otherwise) { return v > 0 && v < UINT32_MAX ? (u32)v : otherwise; }

void cuda_caps(const struct cuda *c, struct caps *out)
{
    const i32 *v = c->facts.value;
    dev_target_near(out, c->api->name, str_of(c->facts.arch));
    i64 lanes = out->n_threads ? (i64)out->gflops * 1000 / out->n_threads : 128 * 2 * 1500; /* mflops of a unit */
    out->max_group = (u32)i64_min(v[CUDA_MAX_THREADS], v[CUDA_MAX_BLOCK_X]);
    out->subgroup = out->subgroup_min = out->subgroup_max = (u32)v[CUDA_WARP];
    out->shared_bytes = i64_max(v[CUDA_SHARED], v[CUDA_SHARED_OPTIN]);
    if (v[CUDA_L2] > 0) out->l2_bytes = v[CUDA_L2];
    out->n_threads = positive(v[CUDA_UNITS], out->n_threads);
    out->gflops = positive(out->n_threads * lanes / 1000, out->gflops);
    /* two transfers per cycle */
    out->gbps = positive((i64)v[CUDA_MEMORY_KHZ] * 2 * v[CUDA_BUS_BITS] / 8 / 1000000, out->gbps);
}

void cuda_fingerprint(const struct cuda *c, struct buf *out)
{
    const struct cuda_facts *f = &c->facts;
    buf_printf(out, "%s %s, %s, %d units, %llu MiB, driver %d", c->api->name, f->name, f->arch,
               f->value[CUDA_UNITS], (unsigned long long)(f->memory >> 20), f->version);
}
