// SPDX-License-Identifier: Apache-2.0
//
// dev_cuda_api.c: the two interfaces as data: libraries, function names, attribute numbers; and the interpretation
// of their results, which share numbers. QUERN_CUDA_LIBRARY and QUERN_HIP_LIBRARY name other libraries.
#include "dev/dev_cuda.h"

#include <string.h>

static const struct dev_call cuda_entries[] = {
#define X(field, cuda, hip, parameters) {cuda, offsetof(struct cuda_calls, field), false},
#include "dev/dev_cuda.inc"
#undef X
    {"cuTensorMapEncodeTiled", offsetof(struct cuda_calls, TensorMapEncode), true},
};

static const struct dev_call hip_entries[] = {
#define X(field, cuda, hip, parameters) {hip, offsetof(struct cuda_calls, field), false},
#include "dev/dev_cuda.inc"
#undef X
    {"hipGetErrorName", offsetof(struct cuda_calls, HipErrorName), true},
};

const struct cuda_api *cuda_api(void)
{
    static const struct cuda_api api = {
        .name = "cuda",
        .what = "CUDA",
        .library = {"CUDA", "QUERN_CUDA_LIBRARY", "libcuda.so.1 libcuda.so", cuda_entries, countof(cuda_entries)},
        .attribute = {[CUDA_MAX_THREADS] = 1, [CUDA_MAX_BLOCK_X] = 2, [CUDA_MAX_BLOCK_Y] = 3,
                      [CUDA_MAX_BLOCK_Z] = 4, [CUDA_MAX_GRID_X] = 5, [CUDA_MAX_GRID_Y] = 6,
                      [CUDA_MAX_GRID_Z] = 7, [CUDA_SHARED] = 8, [CUDA_SHARED_OPTIN] = 97,
                      [CUDA_WARP] = 10, [CUDA_CLOCK_KHZ] = 13, [CUDA_UNITS] = 16,
                      [CUDA_MEMORY_KHZ] = 36, [CUDA_BUS_BITS] = 37, [CUDA_L2] = 38,
                      [CUDA_MAJOR] = 75, [CUDA_MINOR] = 76},
    };
    return &api;
}

/* hipDeviceAttribute_t of ROCm 5.0 and later. */
const struct cuda_api *hip_api(void)
{
    static const struct cuda_api api = {
        .name = "hip",
        .what = "HIP",
        .library = {"HIP", "QUERN_HIP_LIBRARY", "libamdhip64.so.7 libamdhip64.so.6 libamdhip64.so.5 libamdhip64.so",
                    hip_entries, countof(hip_entries)},
        .has_gfx = true,
        .attribute = {[CUDA_MAX_THREADS] = 56, [CUDA_MAX_BLOCK_X] = 26, [CUDA_MAX_BLOCK_Y] = 27,
                      [CUDA_MAX_BLOCK_Z] = 28, [CUDA_MAX_GRID_X] = 29, [CUDA_MAX_GRID_Y] = 30,
                      [CUDA_MAX_GRID_Z] = 31, [CUDA_SHARED] = 74, [CUDA_WARP] = 87,
                      [CUDA_CLOCK_KHZ] = 5, [CUDA_UNITS] = 63, [CUDA_MEMORY_KHZ] = 60,
                      [CUDA_BUS_BITS] = 59, [CUDA_L2] = 19, [CUDA_MAJOR] = 23,
                      [CUDA_MINOR] = 61, [CUDA_SHARED_OPTIN] = -1},
    };
    return &api;
}

/* Errors after which the process cannot use the device (CUDA Driver API, CUresult: "leaves the
   process in an inconsistent state"), or the device is gone. */
static bool is_loss(i32 r)
{
    static const i32 v[] = {4, 46, 201, 214, 220, 226, 700, 702, 709, 710, 714, 715, 716, 717, 718, 719, 999};
    for (i64 i = 0; i < countof(v); i++)
        if (v[i] == r) return true;
    return false;
}

bool cuda_ok(struct cuda *c, i32 r, const char *call, struct err *e)
{
    const char *name = NULL;
    if (r == 0) return true;
    if (is_loss(r)) c->is_lost = true;
    if (c->cu.GetErrorName && c->cu.GetErrorName(r, &name) != 0) name = NULL;
    if (c->cu.HipErrorName) name = c->cu.HipErrorName(r);
    return err_set(e, ERR_SYSTEM, "'%s': %s: %s (%d)", c->facts.name[0] ? c->facts.name : c->api->what, call,
                   name ? name : "an unknown failure", r);
}

u64 cuda_address(const struct dev_mem *m) { return m->handle + (u64)m->offset; }

bool cuda_start(struct cuda *c, const struct cuda_api *api, struct err *e)
{
    *c = (struct cuda){.api = api};
    c->lib = dev_library_open(&api->library, &c->cu, e);
    return c->lib && cuda_ok(c, c->cu.Init(0), "Init", e);
}

bool cuda_start_clock(struct cuda *c, struct err *e)
{
    if (c->is_timing) return true;
    c->is_timing = true;
    return cuda_ok(c, c->cu.EventRecord(c->start, c->stream), "EventRecord", e);
}
