// SPDX-License-Identifier: Apache-2.0
//
// dev: how binaries run. One file per device driver, each exporting one `const struct dev_driver
// dev_NAME`. Drivers of hardware are opened at run time; an absent driver is an absent device, not
// an error. A device sees binaries, memory and numbers, never kernel IR (but `interp`, which runs
// its text).
#ifndef QUERN_DEV_H
#define QUERN_DEV_H

#include "core/core.h"

struct dev;
struct dev_info;
struct dev_kernel;

struct dev_mem { /* one piece of device memory */
    void *host;  /* address of this piece when the device shares the host's memory, else NULL */
    u64 handle;  /* driver's own */
    i64 offset;  /* of this piece in the handle's memory */
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
    i64 work_size; /* bytes of scratch memory one worker needs */
};

/* y (batch, m, n) = a (batch, m, k) x b (batch, k, n), rows behind each other; a_transposed: a is stored as (batch, k, m). */
struct dev_product {
    enum dtype type;
    bool a_transposed;
    i64 batch, m, n, k;
};

/* y (batch, out_channels, outputs ..) = x (batch, channels, size ..) convolved with w (out_channels, channels / groups, kernel ..);
   transposed: w is (channels, out_channels / groups, kernel ..). channels_last: the second axis of all three lies behind the others.
   of_weights: the gradient of w, given x and that of y, of a convolution that is not transposed; the buffers are x, dy, dw, and the last axes of dw
   are always those of the kernel. */
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
    u32 index;       /* which of those that match */
    /* What dev_ask says of it: limits taken away (caps_limit), or all of it: the device is absent. */
    struct str limits;
    const struct dev_info *as;
    /* An architecture (of the cpu: an instruction set) that dev_target knows: kernels can be made for it, it cannot be opened. */
    struct str target;
};
/* What is meant is told by what was said of it, it need not be here. */
static inline bool dev_is_described(const struct dev_opts *o) { return o->as || o->target.n; }

struct dev_driver {
    u32 version;      /* of this struct: 1 */
    const char *name; /* "cpu", "interp", "null" */
    const char *lang; /* language of the binaries it loads: "c" (a shared object), "kir" (text) */
    /* It loads a vendor's library into the process, after which children made by fork cannot use
     * the device. Who starts such children asks by dev_ask, which opens it in a child of its own. */
    bool is_foreign;
    bool shares; /* its state lies in memory that child processes share with their parent: a simulation */
    /* Optional: whether this process has begun to use that library, in which case it is asked here. NULL: not known. */
    bool (*in_use)(void);
    /* Optional, where the library does not tell: it is in this process, so that threads of it may be running that children would wait for. Asked here,
     * too, then. */
    bool (*is_loaded)(void);
    /* Number of devices present; never fails (0 when the driver is absent). */
    u32 (*count)(void);
    /* Optional: their names, each followed by a line feed, the preferred one first; NULL: one that
     * is named like the driver. */
    void (*names)(struct buf *out);
    struct dev *(*open)(const struct dev_opts *o, struct err *e);
    void (*close)(struct dev *d);
    void (*caps)(struct dev *d, struct caps *c);
    /* One line: device name, driver and what else a time depends on (threads, features). No clock
     * values. */
    void (*fingerprint)(struct dev *d, struct buf *out);
    /* Optional: its processor has what a program's native code needs, by the program's list of extensions (isa_print_all; empty: it has none) and
     * the fingerprint of the device that it was compiled for. NULL: binaries are not native code of this process's processor. */
    bool (*can_run)(struct dev *d, struct str isa, struct str made_on, struct err *e);
    bool (*alloc)(struct dev *d, i64 size, struct dev_mem *m, struct err *e);
    void (*release)(struct dev *d, struct dev_mem *m);
    bool (*upload)(struct dev *d, struct dev_mem m, const void *p, i64 n, struct err *e);
    bool (*download)(struct dev *d, struct dev_mem m, void *p, i64 n, struct err *e);
    /* Binary to kernel; entry is the kernel's name, n_grid how many grids it has. */
    struct dev_kernel *(*load)(struct dev *d, struct str binary, struct str entry, u32 n_grid,
                               struct err *e);
    void (*unload)(struct dev *d, struct dev_kernel *k);
    bool (*launch)(struct dev *d, const struct dev_launch *l, struct err *e);
    bool (*fence)(struct dev *d, struct err *e); /* waits for all that was launched */
    /* Optional: n bytes from one piece to another, neither of which overlaps, in the order of the launches, without waiting. */
    bool (*copy)(struct dev *d, struct dev_mem to, struct dev_mem from, i64 n, struct err *e);
    /* Optional: seconds that the launches between the last two fences took by the device's clock,
     * waiting for the host and moving data left out. Negative: not known. */
    double (*elapsed)(struct dev *d);
    /* Optional: a matrix product by the library that the device's vendor (or who comes next to it) has for them, opened at run
     * time; launched and unloaded like a kernel: buffers a, b, y, no parameters, one grid. Its name with the version goes to
     * `name`. NULL: the library is not there, or has no such product. */
    struct dev_kernel *(*product)(struct dev *d, const struct dev_product *p, struct buf *name, struct err *e);
    /* Optional: likewise a convolution: buffers x, w, y. */
    struct dev_kernel *(*conv)(struct dev *d, const struct dev_conv *c, struct buf *name, struct err *e);
    /* Optional, all three or none: memory and streams of others in this process who use the device by its vendor's library. None of them waits.
     * borrow: memory of theirs as a piece that launches may name until the next lead; at is the address that kernels see.
     * follow: launches that come now begin when what is in the stream (NULL: the default one) has ended.
     * lead: what comes into the stream from now on begins when the launches have ended.
     * A device that has these is not made anew after it was lost. */
    bool (*borrow)(struct dev *d, const void *at, i64 size, struct dev_mem *m, struct err *e);
    bool (*follow)(struct dev *d, void *stream, struct err *e);
    bool (*lead)(struct dev *d, void *stream, struct err *e);
};
/* Borrowed pieces begin at multiples of this, which kernels rely on (doc/lang-gpu.md). */
enum { DEV_BORROW_ALIGN = 16 };

struct dev {
    const struct dev_driver *driver;
    void *priv;
    u32 n_lost; /* times the device was lost and made anew: its memory was zero then */
};

const struct dev_driver *const *dev_all(i64 *n);
const struct dev_driver *dev_find(struct str name); /* NULL: unknown */
/* Between the last two fences: by the device's clock, else what the caller measured. */
double dev_elapsed(struct dev *d, double by_host);

/* dev_select.c: which device is meant, and what can be said of it, without holding it in this
   process. */

struct dev_info {
    const struct dev_driver *driver;
    struct dev_opts opts; /* open this very device */
    struct str name;
    struct caps caps;
    struct str fingerprint;
    struct str trouble; /* why it cannot be used; empty: it can */
};
/* Every device of every driver, in the order of the drivers' names, behind them the architectures that each driver's kernels can
   be made for without one (opts.target); how many. All in the arena. */
u32 dev_list(struct arena *a, struct dev_info **v);
/* n bytes from one piece of memory to another, which do not overlap, in the order of the launches. */
bool dev_copy(struct dev *d, struct dev_mem to, struct dev_mem from, i64 n, struct err *e);
/* glob: a driver's name (its first device), "cuda:1" for another one by its number, "cuda:sm_90" for an architecture that need not be here, else a pattern over drivers' and devices' names of which
   the first that matches is taken; NULL: "cpu". Sets driver and opts->name, which points into glob.
   The error lists what is there. */
bool dev_select(const char *glob, const struct dev_driver **driver, struct dev_opts *opts,
                struct err *e);
/* The library of a driver is in use in this process, or may be: children could not use the device, so that it is asked here and not examined. */
bool dev_is_taken(const struct dev_driver *v);
/* Limits and fingerprint of a device; either may be NULL. Limits that were taken away are part of the fingerprint. */
bool dev_ask(const struct dev_driver *v, const struct dev_opts *o, struct caps *caps,
             struct buf *fingerprint, struct err *e);
/* Whether the device has a library with such a product, and the library's name with its version. */
bool dev_ask_product(const struct dev_driver *v, const struct dev_opts *o, const struct dev_product *p, struct buf *name,
                     struct err *e);

bool dev_ask_conv(const struct dev_driver *v, const struct dev_opts *o, const struct dev_conv *c, struct buf *name, struct err *e);

/* Pieces of memory that belong to something else (rt's plans) begin at multiples of this. A device that needs
   more cannot be used. */
enum { DEV_ALIGN = 512 };

/* dev_host_product.c: of the processor. NULL: no library, or no such product. */
struct host_product;
struct host_product *host_product_open(const struct dev_product *p, u32 n_threads, struct buf *name, struct err *e);
bool host_product_run(const struct host_product *x, const struct dev_launch *l, struct err *e);
void host_product_close(struct host_product *x); /* NULL: nothing */

/* dev_host_conv.c: likewise. n_uploads: how often anything was copied to the device so far. */
struct host_conv;
struct host_conv *host_conv_open(const struct dev_conv *c, u32 n_threads, struct buf *name, struct err *e);
bool host_conv_run(struct host_conv *x, const struct dev_launch *l, u64 n_uploads, struct err *e);
void host_conv_close(struct host_conv *x); /* NULL: nothing */

/* dev_host.c: memory and fence of drivers that work in the host's memory. */
bool dev_host_alloc(struct dev *d, i64 size, struct dev_mem *m,
                    struct err *e); /* 64-byte aligned, zero */
void dev_host_release(struct dev *d, struct dev_mem *m);
bool dev_host_upload(struct dev *d, struct dev_mem m, const void *p, i64 n, struct err *e);
bool dev_host_download(struct dev *d, struct dev_mem m, void *p, i64 n, struct err *e);
bool dev_host_fence(struct dev *d, struct err *e);

/* dev_target.c: architectures of GPUs, and instruction sets of processors, that need not be here. */

enum { DEV_MAX_PARAMETERS = 4096 }; /* bytes of a launch on them */
bool dev_target(struct caps *c, const char *driver, struct str arch); /* false: not known */
/* The newest known one that is not newer, named arch. */
void dev_target_near(struct caps *c, const char *driver, struct str arch);
void dev_target_names(const char *driver, struct buf *out); /* "cuda:sm_90", one a line */

/* dev_library.c: libraries of vendors. */

struct dev_library {
    const char *what;     /* for messages: "OpenCL" */
    const char *variable; /* of the environment; names the library instead of the usual one */
    const char *usual;    /* names, the first that is there is taken: "libx.so.2 libx.so.1" */
    const struct dev_call {
        const char *name; /* NULL: nothing to look up */
        size_t at;        /* where the pointer goes */
        bool may_lack;    /* NULL there if the library has none */
    } *call;
    i64 n_call;
};
/* The library, for os_dlclose, with the pointers to its functions in *calls. NULL: not there. */
void *dev_library_open(const struct dev_library *l, void *calls, struct err *e);
/* Whether this process has it already. */
bool dev_library_loaded(const struct dev_library *l);

/* Elements of y = a x b as the libraries count them, columns behind each other: y' (n, m) = b' (n, k) x a' (k, m), which is the
   same memory. */
struct dev_columns {
    i32 m, n, k;                  /* rows of y', its columns, terms */
    i32 lda, ldb, ldc;            /* of b', a' and y' */
    i64 step_a, step_b, step_c;   /* between matrices of a batch */
    bool b_transposed;            /* a' is stored as (m, k) */
};
/* false: sizes that do not fit the libraries' 32 bits. */
bool dev_columns_of(struct dev_columns *c, const struct dev_product *p, struct err *e);
/* The buffers of a launch are those of the product. */
bool dev_product_check(const struct dev_product *p, const struct dev_launch *l, struct err *e);

/* Elements from one index to the next of an array of n axes in their order, but that the axis `channel` lies innermost if is_last;
   INT64_MAX: more than that. */
void dev_conv_steps(i64 *step, u32 n, const i64 *dim, u32 channel, bool is_last);
void dev_conv_bytes(const struct dev_conv *c, i64 size[3]); /* of its buffers in their order */
/* The buffers of a launch are those of the convolution. */
bool dev_conv_check(const struct dev_conv *c, const struct dev_launch *l, struct err *e);

/* dev_grid.c: launches on GPUs. most: the groups that go at once in x, y and z, not 0; device: its name, for messages. */

/* The grids of the kernel are as many as the launch's, extents make sense and parameters fit 32 bits. */
bool dev_check_launch(const struct dev_launch *l, u32 n_grid, const u32 most[3], const char *device,
                      struct err *e);
/* No buffer has more bytes than a kernel can reach: the device's most, and with parameters what 32 bits count, since sizes were not
   known when the kernel was spelt (doc/lang-gpu.md). */
bool dev_check_reach(const struct dev_launch *l, i64 most, const char *device, struct err *e);

struct dev_piece { /* of a grid */
    i64 base[3]; /* its first group */
    u32 n[3];    /* groups */
};
/* All zero at first, then the next piece each time; false: no more. */
bool dev_next_piece(struct dev_piece *p, const i64 extent[3], const u32 most[3]);

#endif
