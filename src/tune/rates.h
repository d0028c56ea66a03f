// SPDX-License-Identifier: Apache-2.0
//
// Microbenchmarks: how fast a device is, as far as kernels of quern reach it. Kernels are texts of kernel IR, rendered and built like all
// others, so every kind of device and every restricted instruction set is measured the same way.
//
//   micro.c       kernels on an open device: built, filled, launched, timed
//   micro_text.c  their texts
//   micro_slice.c the parts of an array that workgroups take
//   link.c        copies between the memories of a device and the host
//   rates.c       all rates of a device (struct rates of core), measured in a child process and kept in the user's cache
#ifndef QUERN_TUNE_RATES_H
#define QUERN_TUNE_RATES_H

#include "tune/conformance.h"

/* micro.c */

struct micro { struct dev *dev; struct caps caps; };
enum { MICRO_BUFFERS = 3 };
struct micro_kernel {       /* called "k", of one grid and the parameters "G", "R" and "S" */
    i64 groups, rounds, slice; /* which are these: iterations or workgroups, iterations of the outer loop, elements of a group */
    u32 launches;           /* between two fences; 0: one */
    i64 size[MICRO_BUFFERS]; /* bytes; 0: no such buffer */
    struct dev_kernel *kernel;
    struct dev_mem buf[MICRO_BUFFERS];
    u32 n_buf;
    bool borrows;           /* the buffers belong to the caller */
};
/* Builds the kernel and allocates its buffers. After a failure it is to be closed, too. */
bool micro_open(struct micro_kernel *k, const struct micro *m, struct str text, struct err *e);
void micro_close(struct micro_kernel *k, const struct micro *m);
bool micro_launch(const struct micro_kernel *k, const struct micro *m, struct err *e); /* launches times, and waits */
double micro_seconds(const struct micro_kernel *k, const struct micro *m, struct err *e); /* of these launches; negative: failed */
/* Doubles the rounds (of a kernel without: the launches) until the launches take that long. */
bool micro_grow(struct micro_kernel *k, const struct micro *m, double seconds, struct err *e);
bool micro_fill(const struct micro *m, struct dev_mem buffer, struct err *e); /* with zeros in memory of their own */

/* micro_text.c: texts, and the work of one round of a group. */

u32 micro_group(const struct caps *c); /* threads of a workgroup; 1: the target is a processor */
/* Independent chains of multiply-adds in registers, buffers x and y; of a processor, with vectors of 1 / part of the widest, which may have
   a higher clock. Returns the operations; 0: no such instruction. */
double micro_ops_text(struct buf *t, const struct caps *c, enum rate_op op, u32 part);
/* c = a * b + c by matrix units, MICRO_FRAGMENTS times. Returns the operations. */
enum { MICRO_FRAGMENTS = 4 };
double micro_mma_text(struct buf *t, const struct caps *c, const struct caps_matrix *s);
void micro_mma_sizes(i64 size[MICRO_BUFFERS], const struct caps *c, const struct caps_matrix *s, i64 groups);
/* A group's slice of x is read, y written, or x copied to y. */
enum micro_access { MICRO_READ, MICRO_WRITE, MICRO_COPY, MICRO_NT_WRITE, N_MICRO_ACCESSES };
void micro_memory_text(struct buf *t, const struct caps *c, enum micro_access access);
i64 micro_memory_step(const struct caps *c); /* elements; slices are multiples of it */
void micro_chase_text(struct buf *t, const struct caps *c);   /* loads i32 from x, each the index of the next one; "S" is the first */
void micro_launch_text(struct buf *t, const struct caps *c);  /* little more than an empty kernel */
void micro_barrier_text(struct buf *t, const struct caps *c); /* a barrier per round; empty: a single thread */

/* micro_slice.c: arrays of `array` bytes, of which groups take slices side by side. */

i64 micro_groups(const struct caps *c, bool has_many); /* one thread or workgroup for each processor; has_many: of a GPU several */
/* Bytes of a memory level that slices fill, together or each; 0: there is no such level. Of a cache that others use, too, a part. */
i64 micro_level_bytes(const struct caps *c, enum rate_level level, i64 array);
/* Elements of f32 of a group's slice, a multiple of micro_memory_step, so that all slices together are no longer than the array; n 0: the level
   cannot be measured so. all: by as many groups as run at once; else by one. */
struct micro_slice { i64 groups, n; };
struct micro_slice micro_slice_of(const struct caps *c, enum rate_level level, enum micro_access access, i64 array, bool all);

/* rates.c */

/* Measured in a child process and rounded: a second of a processor, a quarter of a minute where workgroups run on few processors (lavapipe). False:
   nothing can be measured there. */
bool rates_measure(struct rates *r, const struct device_target *t, struct err *e);
/* In the user's cache by device, driver, threads and limits, which the fingerprint names. All processes use the rates that are there. */
void rates_keep(const struct rates *r, const struct dev_driver *v, struct str fingerprint);
bool rates_find(struct rates *r, const struct dev_driver *v, struct str fingerprint); /* false: not there, r is 0 */
/* Those that are kept; without, they are measured until two measurements agree, at most MOST_MEASUREMENTS times, and the best of each rate
   is kept. One process measures, others wait for it. False with r 0: they cannot be measured or kept. */
bool rates_at_first_use(struct rates *r, const struct device_target *t);

/* link.c */

struct link_rates { double bandwidth, latency; }; /* of copies between the memories of a device and the host: bytes per second, seconds */
/* Those that are kept in the user's cache; without, they are measured in a child process, and kept. False: they cannot be measured. */
bool link_at_first_use(struct link_rates *r, const struct device_target *t);

#endif
