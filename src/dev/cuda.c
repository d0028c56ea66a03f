// SPDX-License-Identifier: Apache-2.0
//
// cuda.c: NVIDIA's GPUs through CUDA's driver API. Binaries are cubins. The library is opened at run time; a
// machine without it has no devices of this kind, which is an error only if one is requested. doc/device-cuda.md
#include "dev/dev_cuda.h"

static u32 count(void) { return cuda_names(cuda_api(), NULL); }

static bool in_use(void) { return cuda_in_use(cuda_api()); }

static void names(struct buf *out) { cuda_names(cuda_api(), out); }

static struct dev *cuda_device_open(const struct dev_opts *o, struct err *e)
{
    extern const struct dev_driver dev_cuda;
    return cuda_open(cuda_api(), &dev_cuda, o, e);
}

const struct dev_driver dev_cuda = {
    .version = 1,
    .name = "cuda",
    .lang = "cuda",
    .is_foreign = true,
    .in_use = in_use,
    .count = count,
    .names = names,
    .open = cuda_device_open,
    CUDA_DEVICE_CALLS,
};
