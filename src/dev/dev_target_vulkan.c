// SPDX-License-Identifier: Apache-2.0
//
// dev_target_vulkan.c: limits of GPUs of Vulkan by family, to compile SPIR-V without the device. A row is what every device of its family has had
// with its drivers since the version of Vulkan that it names, as vendors' documents and the specification's required limits say it; where they leave
// room, it is the smaller. So modules run on all of them, and on other implementations within these limits. Subgroups are not used, because their
// sizes differ within a family and with drivers; kernels for a device at hand, described by `quern devices` there, use them. Speeds are estimates for
// a typical device.
#include "dev/dev.h"

#include <stdio.h>
#include <string.h>

enum { REQUIRED_PUSH = 128, REQUIRED_RANGE = 1 << 27 /* bytes of a buffer: the specification's minima */ };

static const struct vulkan_target {
    const char *name;
    u32 version;                  /* of Vulkan: 11 is 1.1 */
    u32 max_group;                /* threads of a workgroup */
    i64 shared_bytes, max_buffer;
    u32 max_bind;                 /* storage buffers of a stage */
    bool has_f16, has_i8, has_i64, keeps_nan; /* arithmetic and storage of 16 and 8 bits; NaN and signed zeros in f32 */
    u32 n_units, mhz, lanes, gbps; /* lanes: multiply-adds of f32 per unit and cycle */
    i64 l1_bytes, l2_bytes;
} targets[] = {
    /* Intel: "Gen9 compute architecture", Xe-LP, Xe-HPG optimisation guides; EUs of 8 lanes */
    {"intel-gen9", 11, 256, 32768, 1 << 30, 32, true, true, true, true, 24, 1050, 8, 30, 64 << 10, 768 << 10},
    {"intel-xe", 13, 512, 32768, 1 << 30, 32, true, true, true, true, 96, 1300, 8, 60, 64 << 10, 4 << 20},
    {"intel-arc", 13, 1024, 32768, 1 << 30, 32, true, true, true, true, 512, 2100, 8, 500, 64 << 10, 16 << 20},
    /* Arm: "Mali GPU datasheet"; threads of a workgroup at full use of registers */
    {"mali-g52", 11, 256, 32768, REQUIRED_RANGE, 16, true, false, false, false, 2, 850, 24, 12, 16 << 10, 256 << 10},
    {"mali-g76", 11, 256, 32768, REQUIRED_RANGE, 16, true, false, false, false, 10, 720, 24, 25, 16 << 10, 2 << 20},
    {"mali-g78", 11, 512, 32768, REQUIRED_RANGE, 16, true, true, true, true, 14, 850, 32, 40, 16 << 10, 2 << 20},
    {"mali-g710", 11, 512, 32768, REQUIRED_RANGE, 16, true, true, true, true, 10, 850, 64, 50, 16 << 10, 2 << 20},
    /* Qualcomm: "Snapdragon Mobile Platform OpenCL general programming and optimization"; half precision is an extension there */
    {"adreno-530", 10, 256, 16384, REQUIRED_RANGE, 16, false, false, false, false, 4, 624, 64, 25, 1 << 10, 1 << 20},
    {"adreno-640", 11, 512, 32768, REQUIRED_RANGE, 16, true, false, false, false, 6, 585, 64, 30, 1 << 10, 1 << 20},
    {"adreno-740", 11, 512, 32768, REQUIRED_RANGE, 16, true, true, false, false, 6, 680, 256, 60, 1 << 10, 3 << 20},
};

static void fill(const struct vulkan_target *t, struct caps *c)
{
    *c = (struct caps){.is_gpu = true,
                       .vector_bytes = 16,
                       .n_vector_regs = 64,
                       .has_fma = true,
                       .max_group = t->max_group,
                       .shared_bytes = t->shared_bytes,
                       .l1_bytes = t->l1_bytes,
                       .l2_bytes = t->l2_bytes,
                       .max_bind = t->max_bind,
                       .max_push = REQUIRED_PUSH,
                       .max_buffer = i64_min(t->max_buffer, INT32_MAX),
                       .buffer_align = 256, /* the largest that a device may demand */
                       .has_f16 = t->has_f16,
                       .has_i16 = t->has_f16,
                       .has_i8 = t->has_i8,
                       .has_i64 = t->has_i64,
                       .has_nan = t->keeps_nan,
                       .spirv = t->version >= 13 ? 16 : t->version >= 11 ? 13 : 10,
                       .n_threads = t->n_units,
                       .gflops = (u32)((u64)t->n_units * t->lanes * 2 * t->mhz / 1000),
                       .gbps = t->gbps};
    snprintf(c->arch, sizeof c->arch, "%s", t->name);
}

bool dev_target_vulkan(struct caps *c, struct str name)
{
    for (i64 i = 0; i < countof(targets); i++) {
        if (!str_is(name, targets[i].name)) continue;
        fill(&targets[i], c);
        return true;
    }
    return false;
}

const char *dev_target_vulkan_name(i64 k) { return k >= 0 && k < countof(targets) ? targets[k].name : NULL; }
