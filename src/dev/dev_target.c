// SPDX-License-Identifier: Apache-2.0
//
// dev_target.c: limits of GPUs by architecture, to compile kernels without the device. Sources: CUDA C++ Programming
// Guide, "Compute Capabilities" (threads, registers, shared memory of a block and of a multiprocessor, shapes of mma
// from the PTX ISA, "Matrix multiply-accumulate"); AMD's Instinct ISA and CDNA whitepapers. Speeds are estimates for
// a typical card: predictions order candidates before anything is measured. Of CPUs, instruction sets
// have typical caches and speeds; cores have their own (dev_core.c).
#include "dev/dev.h"

#include <stdio.h>
#include <string.h>

/* Shapes of mma.sync: f16 with sums of f32 and f16, then bf16, from sm_80 on tf32. */
#define MMA_8 "16x8x8:f16,f16,f32,f32 16x8x8:f16,f16,f16,f16"
#define MMA_TF32 " 16x8x8:tf32,tf32,f32,f32"
#define MMA_16 "16x8x16:f16,f16,f32,f32 16x8x16:f16,f16,f16,f16 16x8x16:bf16,bf16,f32,f32" MMA_TF32
/* Shapes of wgmma, by warpgroups of four subgroups. */
#define WGMMA(n) "64x" n "x16:f16,f16,f32,f32 64x" n "x16:f16,f16,f16,f16 64x" n "x16:bf16,bf16,f32,f32"
#define WGMMA_ALL WGMMA("64") " " WGMMA("128") " " WGMMA("256")
/* Shapes of v_mfma: f16 and f32, also with K of several instructions; bf16 in its first form, and
   the one from gfx90a on; tf32 from gfx942 on. */
#define MFMA "16x16x16:f16,f16,f32,f32 32x32x8:f16,f16,f32,f32 " \
             "16x16x4:f32,f32,f32,f32 32x32x2:f32,f32,f32,f32 16x16x16:f32,f32,f32,f32 32x32x8:f32,f32,f32,f32"
#define MFMA_OLD_BF16 " 16x16x8:bf16,bf16,f32,f32 32x32x4:bf16,bf16,f32,f32"
#define MFMA_BF16 " 16x16x16:bf16,bf16,f32,f32 32x32x8:bf16,bf16,f32,f32"
#define MFMA_TF32 " 16x16x8:tf32,tf32,f32,f32 32x32x4:tf32,tf32,f32,f32"

static const struct target {
    const char *driver, *arch;
    u32 subgroup;
    i64 shared_bytes, l1_bytes, l2_bytes;
    u32 n_units, lanes, mhz, gbps; /* lanes: multiply-adds of f32 per unit and cycle */
    u32 thread_regs, unit_regs, unit_threads;
    i64 unit_shared;
    const char *matrix;
} targets[] = {
    {"cuda", "sm_70", 32, 98304, 128 << 10, 6 << 20, 80, 64, 1530, 900, 255, 65536, 2048, 98304, ""},
    {"cuda", "sm_75", 32, 65536, 96 << 10, 4 << 20, 40, 64, 1590, 320, 255, 65536, 1024, 65536, MMA_8},
    {"cuda", "sm_80", 32, 166912, 192 << 10, 40 << 20, 108, 64, 1410, 1555, 255, 65536, 2048, 167936, MMA_16},
    {"cuda", "sm_86", 32, 101376, 128 << 10, 6 << 20, 82, 128, 1695, 936, 255, 65536, 1536, 102400, MMA_16},
    {"cuda", "sm_89", 32, 101376, 128 << 10, 72 << 20, 128, 128, 2520, 1008, 255, 65536, 1536, 102400, MMA_16},
    {"cuda", "sm_90", 32, 232448, 256 << 10, 50 << 20, 132, 128, 1755, 3350, 255, 65536, 2048, 233472, MMA_16},
    {"cuda", "sm_90a", 32, 232448, 256 << 10, 50 << 20, 132, 128, 1755, 3350, 255, 65536, 2048, 233472, MMA_16},
    {"hip", "gfx906", 64, 65536, 16 << 10, 4 << 20, 60, 64, 1725, 1024, 256, 65536, 2560, 65536, ""},
    {"hip", "gfx908", 64, 65536, 16 << 10, 8 << 20, 120, 64, 1502, 1228, 256, 65536, 2560, 65536, MFMA MFMA_OLD_BF16},
    {"hip", "gfx90a", 64, 65536, 16 << 10, 8 << 20, 110, 64, 1700, 1638, 512, 131072, 2048, 65536, MFMA MFMA_BF16},
    {"hip", "gfx942", 64, 65536, 32 << 10, 4 << 20, 304, 128, 2100, 5300, 512, 131072, 2048, 65536, MFMA MFMA_BF16 MFMA_TF32},
};

/* Fragments of warpgroups. */
static const struct { const char *arch; u32 warpgroup; const char *matrix; } warpgroups[] = {{"sm_90a", 4, WGMMA_ALL}};

static i64 version_of(struct str arch) /* 90 of sm_90a; -1: none */
{
    i64 v;
    if (!str_starts(arch, S("sm_"))) return -1;
    arch = str_sub(arch, 3, arch.n);
    while (arch.n && (arch.p[arch.n - 1] < '0' || arch.p[arch.n - 1] > '9')) arch.n--;
    return str_to_i64(arch, &v) ? v : -1;
}

static void fill(const struct target *t, struct caps *c)
{
    *c = (struct caps){.is_gpu = true,
                       .vector_bytes = 16,
                       .n_vector_regs = 64,
                       .has_fma = true,
                       .max_group = 1024,
                       .subgroup = t->subgroup,
                       .subgroup_min = t->subgroup,
                       .subgroup_max = t->subgroup,
                       .shared_bytes = t->shared_bytes,
                       .thread_regs = t->thread_regs,
                       .unit_regs = t->unit_regs,
                       .unit_threads = t->unit_threads,
                       .unit_shared = t->unit_shared,
                       .l1_bytes = t->l1_bytes,
                       .l2_bytes = t->l2_bytes,
                       .max_bind = 128,
                       .max_push = DEV_MAX_PARAMETERS - 128 * 8 - 12,
                       .max_buffer = INT32_MAX, /* kernels with parameters use 32-bit indices */
                       .buffer_align = 16,
                       .has_subgroup = true,
                       .has_copy = t->arch && version_of(str_of(t->arch)) >= 80, /* cp.async */
                       .has_f16 = true,
                       .has_f64 = true,
                       .has_i8 = true,
                       .has_i16 = true,
                       .has_i64 = true,
                       .has_rte_f16 = true,
                       .has_nan = true,
                       .n_threads = t->n_units,
                       .gflops = (u32)((u64)t->n_units * t->lanes * 2 * t->mhz / 1000),
                       .gbps = t->gbps};
    snprintf(c->arch, sizeof c->arch, "%s", t->arch);
    snprintf(c->matrix, sizeof c->matrix, "%s", t->matrix);
    for (i64 i = 0; i < countof(warpgroups) && t->arch; i++) {
        if (strcmp(warpgroups[i].arch, t->arch)) continue;
        c->warpgroup = warpgroups[i].warpgroup;
        c->has_tile = true;
        snprintf(c->warpgroup_matrix, sizeof c->warpgroup_matrix, "%s", warpgroups[i].matrix);
    }
}

/* Architectures of the CPU are instruction sets. */
static bool is_processor(const char *driver) { return strcmp(driver, "cpu") == 0; }

static bool is_vulkan(const char *driver) { return strcmp(driver, "vulkan") == 0; }

static bool processor(struct caps *c, struct str name)
{
    struct isa s;
    struct err e = {0};
    if (!isa_parse(&s, name, &e)) return false;
    *c = (struct caps){.n_threads = (u32)os_n_cpus(), .l1_bytes = 32 << 10, .l2_bytes = 1 << 20, .l3_bytes = 16 << 20};
    isa_limits(c, s);
    return true;
}

bool dev_target(struct caps *c, const char *driver, struct str arch)
{
    if (is_processor(driver)) return processor(c, arch) || dev_core(c, arch);
    if (is_vulkan(driver)) return dev_target_vulkan(c, arch);
    for (i64 i = 0; i < countof(targets); i++) {
        if (strcmp(targets[i].driver, driver) || !str_is(arch, targets[i].arch)) continue;
        fill(&targets[i], c);
        return true;
    }
    return false;
}

void dev_target_names(const char *driver, struct buf *out)
{
    for (i64 k = 0; is_processor(driver) && isa_level(k); k++) buf_printf(out, "%s:%s\n", driver, isa_level(k));
    for (i64 k = 0; is_vulkan(driver) && dev_target_vulkan_name(k); k++) buf_printf(out, "%s:%s\n", driver, dev_target_vulkan_name(k));
    for (i64 i = 0; i < countof(targets); i++)
        if (strcmp(targets[i].driver, driver) == 0) buf_printf(out, "%s:%s\n", driver, targets[i].arch);
}

void dev_core_names(const char *driver, struct buf *out)
{
    const char *name;
    for (i64 k = 0; is_processor(driver) && (name = dev_core_name(k)); k++) buf_printf(out, "%s:%s\n", driver, name);
}

void dev_target_near(struct caps *c, const char *driver, struct str arch)
{
    if (dev_target(c, driver, arch)) return;
    const struct target *best = NULL;
    for (i64 i = 0; i < countof(targets); i++) {
        i64 v = version_of(str_of(targets[i].arch));
        /* a feature of sm_90a that later ones lack */
        if (v >= 0 && targets[i].arch[strlen(targets[i].arch) - 1] == 'a') continue;
        if (strcmp(targets[i].driver, driver)) continue;
        if (!best || (v >= 0 && v <= version_of(arch))) best = &targets[i];
    }
    struct target plain = best ? *best : (struct target){0};
    fill(&plain, c);
    snprintf(c->arch, sizeof c->arch, "%.*s", STR_ARG(arch));
}
