// SPDX-License-Identifier: Apache-2.0
//
// hip.c: AMD's GPUs through HIP. Binaries are code objects, alone or in clang's bundle. The library is opened at run
// time; a machine without it has no devices of this kind, which is an error only if one is requested. doc/device-cuda.md
#include "dev/dev_cuda.h"

static u32 count(void) { return cuda_names(hip_api(), NULL); }

static bool in_use(void) { return cuda_in_use(hip_api()); }

static void names(struct buf *out) { cuda_names(hip_api(), out); }

static struct dev *hip_device_open(const struct dev_opts *o, struct err *e)
{
    extern const struct dev_driver dev_hip;
    return cuda_open(hip_api(), &dev_hip, o, e);
}

const struct dev_driver dev_hip = {
    .version = 1,
    .name = "hip",
    .lang = "hip",
    .is_foreign = true,
    .in_use = in_use,
    .count = count,
    .names = names,
    .open = hip_device_open,
    CUDA_DEVICE_CALLS,
};
