// SPDX-License-Identifier: Apache-2.0
//
// dev_opencl: shared by the files of the OpenCL driver. From the bottom: the library and its
// devices; facts about one; memory; kernels and launches. opencl.c combines them. Private to dev/.
// Types and numbers are declared here after the OpenCL 3.0 specification, so that the build needs
// no header of OpenCL.
#ifndef QUERN_DEV_OPENCL_H
#define QUERN_DEV_OPENCL_H

#include "dev/dev.h"

typedef struct cl_platform_ *cl_platform;
typedef struct cl_device_ *cl_device;
typedef struct cl_context_ *cl_context;
typedef struct cl_queue_ *cl_queue;
typedef struct cl_mem_ *cl_mem;
typedef struct cl_program_ *cl_program;
typedef struct cl_kernel_ *cl_kernel;
typedef struct cl_event_ *cl_event;

enum { /* queries about devices, programs, kernels and events */
    CL_PLATFORM_VERSION = 0x0901,
    CL_PLATFORM_NAME = 0x0902,
    CL_DEVICE_TYPE = 0x1000,
    CL_DEVICE_MAX_COMPUTE_UNITS = 0x1002,
    CL_DEVICE_MAX_WORK_GROUP_SIZE = 0x1004,
    CL_DEVICE_MAX_WORK_ITEM_SIZES = 0x1005,
    CL_DEVICE_MAX_CLOCK_FREQUENCY = 0x100C,
    CL_DEVICE_MAX_MEM_ALLOC_SIZE = 0x1010,
    CL_DEVICE_MAX_PARAMETER_SIZE = 0x1017,
    CL_DEVICE_MEM_BASE_ADDR_ALIGN = 0x1019, /* in bits */
    CL_DEVICE_SINGLE_FP_CONFIG = 0x101B,
    CL_DEVICE_GLOBAL_MEM_CACHE_SIZE = 0x101E,
    CL_DEVICE_LOCAL_MEM_SIZE = 0x1023,
    CL_DEVICE_AVAILABLE = 0x1027,
    CL_DEVICE_COMPILER_AVAILABLE = 0x1028,
    CL_DEVICE_NAME = 0x102B,
    CL_DRIVER_VERSION = 0x102D,
    CL_DEVICE_VERSION = 0x102F,
    CL_DEVICE_EXTENSIONS = 0x1030,
    CL_DEVICE_DOUBLE_FP_CONFIG = 0x1032,
    CL_DEVICE_WAVEFRONT_WIDTH_AMD = 0x4043,
    CL_DEVICE_SUB_GROUP_SIZES_INTEL = 0x4108,
    CL_CONTEXT_PLATFORM = 0x1084,
    CL_PROGRAM_BUILD_LOG = 0x1183,
    CL_KERNEL_NUM_ARGS = 0x1191,
    CL_KERNEL_WORK_GROUP_SIZE = 0x11B0,
    CL_KERNEL_COMPILE_WORK_GROUP_SIZE = 0x11B1,
    CL_KERNEL_LOCAL_MEM_SIZE = 0x11B2,
    CL_BUFFER_CREATE_TYPE_REGION = 0x1220,
    CL_PROFILING_COMMAND_START = 0x1282,
    CL_PROFILING_COMMAND_END = 0x1283,
};

enum { /* bits */
    CL_DEVICE_TYPE_CPU = 1 << 1,
    CL_DEVICE_TYPE_GPU = 1 << 2,
    CL_DEVICE_TYPE_ACCELERATOR = 1 << 3,
    CL_FP_INF_NAN = 1 << 1,
    CL_FP_FMA = 1 << 5,
    CL_FP_CORRECTLY_ROUNDED_DIVIDE_SQRT = 1 << 7,
    CL_MEM_READ_WRITE = 1 << 0,
    CL_QUEUE_PROFILING_ENABLE = 1 << 1,
};

enum { /* results that are distinguished */
    CL_SUCCESS = 0,
    CL_DEVICE_NOT_FOUND = -1,
    CL_DEVICE_NOT_AVAILABLE = -2,
    CL_OUT_OF_RESOURCES = -5,
    CL_BUILD_PROGRAM_FAILURE = -11,
    CL_EXEC_STATUS_ERROR = -14,
    CL_INVALID_CONTEXT = -34,
    CL_INVALID_COMMAND_QUEUE = -36,
    CL_PLATFORM_NOT_FOUND_KHR = -1001,
};

/* dev_opencl_loader.c: the library and its devices. */

struct opencl_calls {
#define X(result, name, parameters) result(*name) parameters;
#include "dev/dev_opencl.inc"
#undef X
};

struct opencl_loader {
    void *lib;
    struct opencl_calls cl;
};

struct opencl_device {
    cl_platform platform;
    cl_device id;
    u64 type;
    struct str name; /* trimmed */
};

bool opencl_is_loaded(void);
bool opencl_loader_open(struct opencl_loader *l, struct err *e);
void opencl_loader_close(struct opencl_loader *l);
/* Devices of all platforms, in the arena: GPUs first, processors last. */
bool opencl_list(const struct opencl_loader *l, struct arena *a, struct opencl_device **v, u32 *n,
                 struct err *e);
const char *opencl_result_name(i32 r);

/* dev_opencl_facts.c */

struct opencl_facts {
    char name[128], platform[256], driver[128], version[128];
    u64 type;
    u32 major, minor; /* of OpenCL C that the device supports */
    u32 n_units, mhz, max_group, align;
    u64 max_item[3], max_alloc, local_bytes, cache_bytes, parameter_bytes;
    u64 f32, f64; /* CL_FP_... */
    bool has_f16, has_subgroup;
    u32 subgroup_min, subgroup_max; /* that can be required; 0: none */
};

bool opencl_facts_init(struct opencl_facts *f, const struct opencl_loader *l,
                       const struct opencl_device *d, struct err *e);
void opencl_caps(const struct opencl_facts *f, struct caps *c);
void opencl_fingerprint(const struct opencl_facts *f, struct buf *out);
/* Compiler options of programs. */
void opencl_build_options(const struct opencl_facts *f, struct buf *out);

/* The open device. */

enum { OPENCL_EVENTS = 512 };

struct opencl {
    struct opencl_loader loader;
    struct opencl_calls cl; /* of the loader */
    struct opencl_facts facts;
    cl_device id;
    cl_context context;
    cl_queue queue;
    bool is_lost;
    struct opencl_buffer *buffers;
    struct dev_kernel *kernels;
    struct opencl_blas *blas; /* GEMM by a library; NULL: not opened yet */
    u64 serial; /* of the newest memory object: an address may be reused */
    cl_event event[OPENCL_EVENTS]; /* of launches whose times have not been read */
    u32 n_event;
    double seconds, last; /* of launches since the last fence, between the last two */
};

/* false, with an error that names the call, unless r says success. */
bool opencl_ok(struct opencl *o, i32 r, const char *call, struct err *e);

/* dev_opencl_memory.c: one OpenCL buffer per allocation; ranges of it are sub-buffers, created when
   a launch first uses them. */

struct opencl_object {
    cl_mem mem;
    u64 serial;
};

bool opencl_alloc(struct opencl *o, i64 size, struct dev_mem *m, struct err *e);
void opencl_release(struct opencl *o, struct dev_mem *m);
void opencl_memory_destroy(struct opencl *o);
bool opencl_upload(struct opencl *o, struct dev_mem m, const void *p, i64 n, struct err *e);
bool opencl_download(struct opencl *o, struct dev_mem m, void *p, i64 n, struct err *e);
/* Called before a launch: limits the number of kept sub-buffers. */
void opencl_spare_parts(struct opencl *o, const struct dev_launch *l);
/* The memory object for exactly this range. */
bool opencl_piece(struct opencl *o, const struct dev_mem *m, struct opencl_object *x, struct err *e);

/* dev_opencl_kernel.c */

struct dev_kernel *opencl_kernel_load(struct opencl *o, struct str binary, struct str entry,
                                      u32 n_grid, struct err *e);
/* A GEMM of a library, as a kernel. */
struct dev_kernel *opencl_kernel_gemm(struct opencl *o, const struct dev_gemm *p, struct buf *name, struct err *e);
void opencl_kernel_unload(struct opencl *o, struct dev_kernel *k);
void opencl_kernels_destroy(struct opencl *o);
bool opencl_launch(struct opencl *o, const struct dev_launch *l, struct err *e);
bool opencl_fence(struct opencl *o, struct err *e);

/* dev_opencl_gemm.c: CLBlast. */

/* Opens the library on first use. Whether it has such a GEMM, and its name. */
bool opencl_gemm_check(struct opencl *o, const struct dev_gemm *p, struct buf *name, struct err *e);
bool opencl_gemm_launch(struct opencl *o, const struct dev_gemm *p, const struct dev_launch *l, struct err *e);
void opencl_blas_close(struct opencl *o);

#endif
