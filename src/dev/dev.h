// SPDX-License-Identifier: Apache-2.0
//
// dev: devices, which run binaries. One file per device driver, each exporting one
// `const struct dev_driver dev_NAME`. Libraries of hardware are opened at run time;
// an absent library is an absent device, not an error. A device sees binaries,
// memory and numbers, never kernel IR (except `interp`, which interprets its text).
#ifndef QUERN_DEV_H
#define QUERN_DEV_H

#include "core/core.h"

struct dev;
struct dev_info;
struct dev_kernel;
struct dev_attached;

struct dev_mem { /* a range of device memory */
    void *host;  /* its address if the device shares the host's memory, else NULL */
    u64 handle;  /* driver's own */
    i64 offset;  /* of this range in the handle's memory */
    i64 size;    /* bytes */
};

/* One launch: all grids of a kernel in order. */
struct dev_launch {
    const struct dev_kernel *kernel;
    const struct dev_mem *buf; /* the arguments in order, then the kernel's TEMP arrays */
    u32 n_buf;
    const i64 *param; /* kernel parameters */
    u32 n_param;
    const i64 (*grid)[3]; /* extents per grid: x (innermost), y, z; unused dimensions 1 */
    u32 n_grid;
    i64 work_size; /* bytes of scratch memory per worker */
};

/* y (batch, m, n) = a (batch, m, k) x b (batch, k, n), row-major; a_transposed: a is stored as (batch, k, m). */
struct dev_gemm {
    enum dtype type;
    bool a_transposed;
    i64 batch, m, n, k;
};

/* y (batch, out_channels, outputs ..) = x (batch, channels, size ..) convolved with w (out_channels, channels /
   groups, kernel ..); transposed: w is (channels, out_channels / groups, kernel ..). channels_last: the second
   axis of all three is the innermost one. of_weights: the gradient of w, given x and that of y, of a convolution
   that is not transposed; the buffers are x, dy, dw, and the last axes of dw are always those of the kernel. */
enum { DEV_CONV_AXES = 3 };
struct dev_conv {
    enum dtype type;
    bool is_transposed, channels_last, of_weights;
    u32 axes; /* 1 to 3; lists have an entry for each, outermost first */
    i64 batch, channels, out_channels, groups;
    i64 size[DEV_CONV_AXES], kernel[DEV_CONV_AXES], outputs[DEV_CONV_AXES];
    i64 stride[DEV_CONV_AXES], dilation[DEV_CONV_AXES], pad_begin[DEV_CONV_AXES], pad_end[DEV_CONV_AXES];
};

struct dev_opts {
    u32 n_threads;   /* 0 = all processors */
    struct str name; /* glob over device names, empty = any */
    u32 index;       /* index among the matching devices */
    /* Set by dev_ask: limits taken away (caps_limit), or a whole description of an absent device. */
    struct str limits;
    const struct dev_info *as;
    /* A device that other code of this process opened (dev_vulkan_attach.c); it stays valid while
     * the device is open. NULL: the driver opens one. */
    const struct dev_attached *attached;
    /* An architecture (of the CPU: an instruction set or core) known to dev_target: kernels can be compiled for it, but it cannot be opened. */
    struct str target;
};
/* The device is a description and may be absent. */
static inline bool dev_is_described(const struct dev_opts *o) { return o->as || o->target.n; }

struct dev_driver {
    u32 version;      /* of this struct: 1 */
    const char *name; /* "cpu", "interp", "null" */
    const char *lang; /* language of the binaries it loads: "c" (a shared object), "kir" (text) */
    /* Loads a vendor's library into the process, after which children made by fork cannot use the device.
     * Processes that start such children query it by dev_ask, which opens it in a child of its own. */
    bool is_foreign;
    bool shares; /* its state is in memory shared with child processes: a simulation */
    /* Optional: whether this process already uses that library; the device is then queried in this process. NULL: unknown. */
    bool (*in_use)(void);
    /* Optional, if the library does not tell: it is loaded in this process, so its threads may
     * be running, which children would wait for. The device is then queried in this process. */
    bool (*is_loaded)(void);
    /* Number of devices present; never fails (0 when the driver is absent). */
    u32 (*count)(void);
    /* Optional: their names, each followed by a line feed, the
     * preferred one first; NULL: one device named like the driver. */
    void (*names)(struct buf *out);
    struct dev *(*open)(const struct dev_opts *o, struct err *e);
    void (*close)(struct dev *d);
    void (*caps)(struct dev *d, struct caps *c);
    /* One line: device name, driver and everything else that
     * a time depends on (threads, features). No clock values. */
    void (*fingerprint)(struct dev *d, struct buf *out);
    /* Optional: whether the processor supports a program's native code, by the program's list of extensions (isa_print_all; empty:
     * none) and the fingerprint of the device that it was compiled for. NULL: binaries are not native code of this process's processor. */
    bool (*can_run)(struct dev *d, struct str isa, struct str made_on, struct err *e);
    bool (*alloc)(struct dev *d, i64 size, struct dev_mem *m, struct err *e);
    void (*release)(struct dev *d, struct dev_mem *m);
    bool (*upload)(struct dev *d, struct dev_mem m, const void *p, i64 n, struct err *e);
    bool (*download)(struct dev *d, struct dev_mem m, void *p, i64 n, struct err *e);
    /* Binary to kernel; entry is the kernel's name, n_grid its number of grids. */
    struct dev_kernel *(*load)(struct dev *d, struct str binary, struct str entry, u32 n_grid,
                               struct err *e);
    void (*unload)(struct dev *d, struct dev_kernel *k);
    bool (*launch)(struct dev *d, const struct dev_launch *l, struct err *e);
    bool (*fence)(struct dev *d, struct err *e); /* waits for all launches */
    /* Optional: copies n bytes between ranges that do not overlap, in the order of the launches, without waiting. */
    bool (*copy)(struct dev *d, struct dev_mem to, struct dev_mem from, i64 n, struct err *e);
    /* Optional: seconds of the launches between the last two fences by the
     * device's clock, without waits for the host and transfers. Negative: unknown. */
    double (*elapsed)(struct dev *d);
    /* Optional: GEMM of the library of the device's vendor (or of the most common one), opened at
     * run time; launched and unloaded like a kernel: buffers a, b, y, no parameters, one grid. Its
     * name with the version is written to `name`. NULL: the library is missing, or lacks this GEMM. */
    struct dev_kernel *(*gemm)(struct dev *d, const struct dev_gemm *p, struct buf *name, struct err *e);
    /* Optional: likewise a convolution: buffers x, w, y. */
    struct dev_kernel *(*conv)(struct dev *d, const struct dev_conv *c, struct buf *name, struct err *e);
    /* Optional, all three or none: memory and streams of other code in this process that uses the
     * device by its vendor's library. None of them waits. borrow: foreign memory as a range that
     * launches may use until the next lead; at is its address in kernels, or of a struct dev_range.
     * follow: later launches start after the earlier work of the stream (NULL: the default one).
     * lead: later work of the stream starts after the launches. A device that has these is not
     * recreated after it was lost. */
    bool (*borrow)(struct dev *d, const void *at, i64 size, struct dev_mem *m, struct err *e);
    bool (*follow)(struct dev *d, void *stream, struct err *e);
    bool (*lead)(struct dev *d, void *stream, struct err *e);
};
/* Alignment of borrowed ranges, which kernels rely on (doc/lang-gpu.md) and borrow checks. */
enum { DEV_BORROW_ALIGN = 16 };

struct dev {
    const struct dev_driver *driver;
    void *priv;
    u32 n_lost; /* number of times that a lost device was recreated, with zeroed memory */
};

const struct dev_driver *const *dev_all(i64 *n);
const struct dev_driver *dev_find(struct str name); /* NULL: unknown */
/* Between the last two fences: by the device's clock, else the caller's measurement. */
double dev_elapsed(struct dev *d, double by_host);

/* dev_select.c: selection of a device, and queries
   about it without keeping it open in this process. */

struct dev_info {
    const struct dev_driver *driver;
    struct dev_opts opts; /* opens this device */
    struct str name;
    struct caps caps;
    struct str fingerprint;
    struct str trouble; /* why it is unusable; empty: usable */
};
/* Lists every device of every driver, in the order of the drivers' names, followed by the architectures that each
   driver's kernels can be compiled for without a device (opts.target); returns their number. Everything is in the arena. */
u32 dev_list(struct arena *a, struct dev_info **v);
/* Copies n bytes between ranges of memory that do not overlap, in the order of the launches. */
bool dev_copy(struct dev *d, struct dev_mem to, struct dev_mem from, i64 n, struct err *e);
/* glob: a driver's name (its first device), "cuda:1" for another one by its number, "cuda:sm_90" for an
   architecture without a device (of the CPU also without the driver: "aarch64", "cortex-a76", or with the family: "aarch64:cortex-a76"), else a
   pattern over names of drivers and devices, of which the first match is taken; NULL: "cpu". Sets driver and opts->name, which points into glob. The error lists the devices. */
bool dev_select(const char *glob, const struct dev_driver **driver, struct dev_opts *opts,
                struct err *e);
/* Whether the library of a driver is, or may be, in use in this process: children could then not use the device, so it is queried here and not
   examined. */
bool dev_is_taken(const struct dev_driver *v);
/* Limits and fingerprint of a device; either may be NULL. Removed limits are part of the fingerprint. */
bool dev_ask(const struct dev_driver *v, const struct dev_opts *o, struct caps *caps,
             struct buf *fingerprint, struct err *e);
/* Whether the device has a library with this GEMM, and the library's name with its version. */
bool dev_ask_gemm(const struct dev_driver *v, const struct dev_opts *o, const struct dev_gemm *p, struct buf *name,
                     struct err *e);

bool dev_ask_conv(const struct dev_driver *v, const struct dev_opts *o, const struct dev_conv *c, struct buf *name, struct err *e);

/* Alignment of ranges within other memory (rt's plans). A device that requires more cannot be used. */
enum { DEV_ALIGN = 512 };

/* dev_host_gemm.c: GEMM of the CPU. NULL: no library, or unsupported. */
struct host_gemm;
struct host_gemm *host_gemm_open(const struct dev_gemm *p, u32 n_threads, struct buf *name, struct err *e);
bool host_gemm_run(const struct host_gemm *x, const struct dev_launch *l, struct err *e);
void host_gemm_close(struct host_gemm *x); /* NULL: nothing */

/* dev_host_conv.c: convolution of the CPU. n_uploads: number of uploads to the device so far. */
struct host_conv;
struct host_conv *host_conv_open(const struct dev_conv *c, u32 n_threads, struct buf *name, struct err *e);
bool host_conv_run(struct host_conv *x, const struct dev_launch *l, u64 n_uploads, struct err *e);
void host_conv_close(struct host_conv *x); /* NULL: nothing */

/* dev_host.c: memory and fence of drivers that work in host memory. */
bool dev_host_alloc(struct dev *d, i64 size, struct dev_mem *m,
                    struct err *e); /* 64-byte aligned, zero */
void dev_host_release(struct dev *d, struct dev_mem *m);
bool dev_host_upload(struct dev *d, struct dev_mem m, const void *p, i64 n, struct err *e);
bool dev_host_download(struct dev *d, struct dev_mem m, void *p, i64 n, struct err *e);
bool dev_host_fence(struct dev *d, struct err *e);

/* dev_vulkan_attach.c: a device of Vulkan that other code of this process opened, as a device of
 * driver "vulkan". Handles are Vulkan's. */

struct dev_foreign {
    void *instance, *gpu, *device, *queue;
    u32 family;         /* of the queue */
    u32 version;        /* of the instance: VkApplicationInfo.apiVersion */
    void (*find)(void); /* vkGetInstanceProcAddr */
    const void *
        made; /* VkDeviceCreateInfo that the device was made with; read by dev_vulkan_attach only */
    void (*lock)(void *user),
        (*unlock)(void *user); /* around submissions to the queue; NULL: not needed */
    void *user;
};
/* What kernels may use of the physical device: extensions and features to enable, also as a chain
   for VkDeviceCreateInfo.pNext. Everything is in the arena. gpu, instance, version and find of f
   are read. */
struct dev_needs {
    const char **extension, **feature;
    u32 n_extension, n_feature;
    const void *chain;
};
bool dev_vulkan_needs(const struct dev_foreign *f, struct dev_needs *out, struct arena *a,
                      struct err *e);
/* NULL: error. Released by dev_vulkan_detach, after the devices opened with it. */
struct dev_attached *dev_vulkan_attach(const struct dev_foreign *f, struct err *e);
void dev_vulkan_detach(struct dev_attached *x); /* NULL: nothing */
struct str dev_vulkan_attached_name(const struct dev_attached *x);
/* What the address of a borrowed range points to: a part of a buffer of Vulkan. */
struct dev_range {
    u64 buffer, offset, size;
};

/* dev_target.c: descriptions of GPU architectures, CPU instruction sets and cores. */

enum { DEV_MAX_PARAMETERS = 4096 }; /* bytes of a launch's parameters */
/* arch: of a GPU; of the CPU an instruction set ("aarch64+dotprod") or a core (dev_core). false: not known */
bool dev_target(struct caps *c, const char *driver, struct str arch);
bool dev_target_vulkan(struct caps *c, struct str name); /* dev_target_vulkan.c: families of GPUs of Vulkan */
const char *dev_target_vulkan_name(i64 k);               /* NULL after the last */
/* The newest known architecture that is not newer, under the name arch. */
void dev_target_near(struct caps *c, const char *driver, struct str arch);
void dev_target_names(const char *driver, struct buf *out); /* "cuda:sm_90", one per line; without cores */
void dev_core_names(const char *driver, struct buf *out);   /* "cpu:cortex-a76", one per line */

/* dev_core.c: cores of processors, with their rates. */

bool dev_core(struct caps *c, struct str name); /* "cortex-a76"; false: not known */
const char *dev_core_name(i64 k);               /* NULL: end of the list */

/* dev_library.c: vendor libraries. */

struct dev_library {
    const char *what;     /* for messages: "OpenCL" */
    const char *variable; /* environment variable that names another library */
    const char *usual;    /* candidates in order of preference: "libx.so.2 libx.so.1" */
    const struct dev_call {
        const char *name; /* NULL: end of the list */
        size_t at;        /* offset of the pointer */
        bool may_lack;    /* optional: NULL if the library lacks it */
    } *call;
    i64 n_call;
};
/* Opens the library and stores the pointers to its functions in *calls; closed by os_dlclose. NULL: missing. */
void *dev_library_open(const struct dev_library *l, void *calls, struct err *e);
/* Whether it is loaded in this process. */
bool dev_library_loaded(const struct dev_library *l);

/* y = a x b in the column-major view of the libraries: y'
   (n, m) = b' (n, k) x a' (k, m), which is the same memory. */
struct dev_columns {
    i32 m, n, k;                  /* rows of y', columns of y', K */
    i32 lda, ldb, ldc;            /* of b', a' and y' */
    i64 step_a, step_b, step_c;   /* between matrices of a batch */
    bool b_transposed;            /* a' is stored as (m, k) */
};
/* false: sizes beyond the libraries' 32 bits. */
bool dev_columns_of(struct dev_columns *c, const struct dev_gemm *p, struct err *e);
/* Checks that the buffers of a launch fit the GEMM. */
bool dev_gemm_check(const struct dev_gemm *p, const struct dev_launch *l, struct err *e);

/* Strides in elements of a dense array of n axes in their order,
   with the axis `channel` innermost if is_last; INT64_MAX: overflow. */
void dev_conv_steps(i64 *step, u32 n, const i64 *dim, u32 channel, bool is_last);
void dev_conv_bytes(const struct dev_conv *c, i64 size[3]); /* of its buffers, in order */
/* Checks that the buffers of a launch fit the convolution. */
bool dev_conv_check(const struct dev_conv *c, const struct dev_launch *l, struct err *e);

/* dev_grid.c: launches on GPUs. most: maximal workgroups per launch in x, y and z, not 0; device: its name, for messages. */

/* Checks the number of grids, their extents, and that parameters fit 32 bits. */
bool dev_check_launch(const struct dev_launch *l, u32 n_grid, const u32 most[3], const char *device,
                      struct err *e);
/* Checks that no buffer exceeds the device's limit or, for kernels with parameters, the range
   of 32-bit indices, because sizes were unknown when the kernel was compiled (doc/lang-gpu.md). */
bool dev_check_reach(const struct dev_launch *l, i64 most, const char *device, struct err *e);

struct dev_piece { /* of a grid */
    i64 base[3]; /* its first group */
    u32 n[3];    /* groups */
};
/* All zero at first, then the next part of the grid at each call; false: end. */
bool dev_next_piece(struct dev_piece *p, const i64 extent[3], const u32 most[3]);

#endif
