// SPDX-License-Identifier: Apache-2.0
//
// dev_cuda: one driver for two interfaces that correspond function by function, CUDA's driver
// interface and HIP (struct cuda_api tells them apart). From the bottom: the interface; sharing
// with other users of the library; facts about one device; binaries; memory and launches; cuda.c
// and hip.c are the two drivers. Private to dev/. Types and numbers are declared here after the
// vendors' manuals, so that the build needs none of their headers.
#ifndef QUERN_DEV_CUDA_H
#define QUERN_DEV_CUDA_H

#include "dev/dev.h"

struct cuda_calls {
#define X(field, cuda, hip, parameters) i32(*field) parameters;
#include "dev/dev_cuda.inc"
#undef X
    const char *(*HipErrorName)(i32 r);
    i32 (*TensorMapEncode)(void *map, i32 type, u32 rank, u64 address, const u64 *size, const u64 *stride, const u32 *box, const u32 *every, i32 interleave,
                           i32 swizzle, i32 promotion, i32 fill); /* drivers of CUDA 12 and later */
};

enum cuda_attribute { /* of devices; numbers differ between the interfaces */
    CUDA_MAX_THREADS,
    CUDA_MAX_BLOCK_X,
    CUDA_MAX_BLOCK_Y,
    CUDA_MAX_BLOCK_Z,
    CUDA_MAX_GRID_X,
    CUDA_MAX_GRID_Y,
    CUDA_MAX_GRID_Z,
    CUDA_SHARED,
    CUDA_SHARED_OPTIN, /* maximal dynamic shared memory of a function */
    CUDA_WARP,
    CUDA_CLOCK_KHZ,
    CUDA_UNITS,
    CUDA_MEMORY_KHZ,
    CUDA_BUS_BITS,
    CUDA_L2,
    CUDA_MAJOR,
    CUDA_MINOR,
    CUDA_N_ATTRIBUTES
};

enum { /* of functions, the same in both */
    CUDA_FUNC_MAX_THREADS = 0,
    CUDA_FUNC_SHARED = 1,
    CUDA_FUNC_MAX_DYNAMIC_SHARED = 8,
};

struct cuda_api {
    const char *name, *what; /* "cuda", "CUDA" */
    struct dev_library library;
    bool has_gfx; /* architectures are named gfx... by the device's properties, not sm_... by its version */
    i32 attribute[CUDA_N_ATTRIBUTES]; /* < 0: the interface lacks it */
};

/* dev_cuda_api.c */

const struct cuda_api *cuda_api(void);
const struct cuda_api *hip_api(void);

struct cuda_facts {
    char name[256], arch[64];
    i32 version; /* of the driver */
    i32 value[CUDA_N_ATTRIBUTES];
    u64 memory; /* bytes */
};

struct cuda {
    const struct cuda_api *api;
    void *lib;
    struct cuda_calls cu;
    struct cuda_facts facts;
    i32 device;
    void *context, *stream, *start, *stop, *order; /* events */
    bool has_context, is_lost, is_timing;
    void *outer;      /* context, or device, that was current before an operation */
    i32 outer_device;
    struct cuda_memory *memory;
    struct dev_kernel *kernels;
    struct cuda_blas *blas; /* the vendor's GEMM library; NULL: not opened yet */
    struct cuda_dnn *dnn;   /* likewise for convolutions */
    double seconds, last; /* of launches since the last fence, between the last two; < 0: unknown */
};

bool cuda_start(struct cuda *c, const struct cuda_api *api, struct err *e); /* opens library and interface */
/* false, with an error that names the call, unless r says success. */
bool cuda_ok(struct cuda *c, i32 r, const char *call, struct err *e);
u64 cuda_address(const struct dev_mem *m); /* address of a range */

/* dev_cuda_share.c: other users of the device in this process. */

bool cuda_in_use(const struct cuda_api *api);
/* Every operation is enclosed in these two, which set and restore the current context. leave
   returns ok. They do not nest. */
bool cuda_enter(struct cuda *c, struct err *e);
bool cuda_leave(struct cuda *c, bool ok);
/* Checks that size bytes from the address on are in one allocation on this device. */
bool cuda_check_pointer(struct cuda *c, u64 at, i64 size, struct err *e);
bool cuda_follow(struct cuda *c, void *stream, struct err *e);
bool cuda_lead(struct cuda *c, void *stream, struct err *e);

/* dev_cuda_facts.c */

bool cuda_facts_init(struct cuda *c, i32 ordinal, struct err *e); /* sets device and facts */
void cuda_caps(const struct cuda *c, struct caps *out);
void cuda_fingerprint(const struct cuda *c, struct buf *out);

/* dev_cuda_binary.c: vendors' loaders take an address without a length; checks that an image is
   complete within its bytes. */
bool cuda_binary_check(struct str binary, struct err *e);

/* dev_cuda_map.c: tensor maps of tile copies. */

enum { CUDA_MAP_INTS = 8, CUDA_MAP_BYTES = 128 };
struct cuda_map {
    i32 fact[CUDA_MAP_INTS];  /* as in the binary */
    u64 address;              /* architecture of the code; 0: unknown */
    u8 code[CUDA_MAP_BYTES];
};
/* checks facts and driver */
bool cuda_map_check(struct cuda *c, const struct cuda_map *m, u32 n, struct str name, struct err *e);
/* Encodes the arguments of a launch, which have room for the maps. */
bool cuda_map_prepare(struct cuda *c, struct cuda_map *m, u32 n, const struct dev_launch *l, struct err *e);

/* dev_cuda_kernel.c: modules, launches, times. */

struct dev_kernel *cuda_load(struct cuda *c, struct str binary, struct str entry, u32 n_grid, struct err *e);
void cuda_unload(struct cuda *c, struct dev_kernel *k);
bool cuda_launch(struct cuda *c, const struct dev_launch *l, struct err *e);
bool cuda_fence(struct cuda *c, struct err *e);
/* Called before timed work is enqueued. */
bool cuda_start_clock(struct cuda *c, struct err *e);
/* Waits; the timer of later launches starts again. */
bool cuda_pause(struct cuda *c, struct err *e);
/* A GEMM of the vendor's library, as a kernel. */
struct dev_kernel *cuda_load_gemm(struct cuda *c, const struct dev_gemm *p, struct buf *name, struct err *e);
/* likewise */
struct dev_kernel *cuda_load_conv(struct cuda *c, const struct dev_conv *s, struct buf *name, struct err *e);

/* dev_cuda_gemm.c: cuBLAS and rocBLAS. */

/* Opens the library on first use. Whether it has such a GEMM, and its name. */
bool cuda_gemm_check(struct cuda *c, const struct dev_gemm *p, struct buf *name, struct err *e);
bool cuda_gemm_launch(struct cuda *c, const struct dev_gemm *p, const struct dev_launch *l, struct err *e);
void cuda_blas_close(struct cuda *c);

/* dev_cuda_conv.c: cuDNN and MIOpen. */

struct cuda_conv;
/* Opens the library on first use. NULL: it, or the convolution, is missing. */
struct cuda_conv *cuda_conv_open(struct cuda *c, const struct dev_conv *s, struct buf *name, struct err *e);
void cuda_conv_close(struct cuda *c, struct cuda_conv *k); /* NULL: nothing */
bool cuda_conv_launch(struct cuda *c, const struct cuda_conv *k, const struct dev_launch *l, struct err *e);
void cuda_dnn_close(struct cuda *c);

/* dev_cuda_device.c: entries of the two drivers' descriptors. */

u32 cuda_names(const struct cuda_api *api, struct buf *out); /* number of devices; out may be NULL */
struct dev *cuda_open(const struct cuda_api *api, const struct dev_driver *driver, const struct dev_opts *o, struct err *e);
void cuda_device_close(struct dev *d);
void cuda_device_caps(struct dev *d, struct caps *c);
void cuda_device_fingerprint(struct dev *d, struct buf *out);
bool cuda_device_alloc(struct dev *d, i64 size, struct dev_mem *m, struct err *e);
void cuda_device_release(struct dev *d, struct dev_mem *m);
bool cuda_device_upload(struct dev *d, struct dev_mem m, const void *p, i64 n, struct err *e);
bool cuda_device_download(struct dev *d, struct dev_mem m, void *p, i64 n, struct err *e);
struct dev_kernel *cuda_device_load(struct dev *d, struct str binary, struct str entry, u32 n_grid, struct err *e);
void cuda_device_unload(struct dev *d, struct dev_kernel *k);
bool cuda_device_launch(struct dev *d, const struct dev_launch *l, struct err *e);
bool cuda_device_fence(struct dev *d, struct err *e);
double cuda_device_elapsed(struct dev *d);
bool cuda_device_borrow(struct dev *d, const void *at, i64 size, struct dev_mem *m, struct err *e);
bool cuda_device_follow(struct dev *d, void *stream, struct err *e);
bool cuda_device_lead(struct dev *d, void *stream, struct err *e);
struct dev_kernel *cuda_device_gemm(struct dev *d, const struct dev_gemm *p, struct buf *name, struct err *e);
struct dev_kernel *cuda_device_conv(struct dev *d, const struct dev_conv *s, struct buf *name, struct err *e);

#define CUDA_DEVICE_CALLS                                                                          \
    .close = cuda_device_close, .caps = cuda_device_caps, .fingerprint = cuda_device_fingerprint,  \
    .alloc = cuda_device_alloc, .release = cuda_device_release, .upload = cuda_device_upload,      \
    .download = cuda_device_download, .load = cuda_device_load, .unload = cuda_device_unload,      \
    .launch = cuda_device_launch, .fence = cuda_device_fence, .elapsed = cuda_device_elapsed, \
    .gemm = cuda_device_gemm, .conv = cuda_device_conv,                                      \
    .borrow = cuda_device_borrow, .follow = cuda_device_follow, .lead = cuda_device_lead

#endif
