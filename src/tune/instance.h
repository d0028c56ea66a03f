// SPDX-License-Identifier: Apache-2.0
//
// Private to trial.c: a kernel with memory of its own on an open device, filled by a check.
#ifndef QUERN_TUNE_INSTANCE_H
#define QUERN_TUNE_INSTANCE_H

#include "tune/tune.h"

/* A subject's code on a device; kernel NULL: not loaded, or no code. */
struct loaded { const struct subject *s; struct dev_kernel *kernel; struct err e; };

struct on {                /* an open device */
    const struct dev_driver *driver;
    struct dev *dev;
    struct loaded *loaded; u32 n_loaded; /* code that is already loaded; the rest is loaded on demand */
};

enum { POISON_BYTE = 0xFF }; /* in outputs before a run */

struct instance {
    struct arena arena; /* of the fields below */
    const struct subject *s;
    const struct check *k;
    struct dev_kernel *kernel;
    bool is_kept;           /* the kernel belongs to on.loaded */
    struct dev_mem *whole;  /* per buffer, including guards */
    bool *is_shared;        /* per buffer: owned and released by another instance */
    struct dev_mem *mem;    /* per buffer, without guards */
    i64 *size;              /* bytes per buffer */
    const void **content;   /* per buffer, its initial content; NULL: poisoned */
    struct dev_launch launch; /* foreign devices: buffers including the guards after them */
    struct dev_mem **variant; /* n_variants copies of mem with different memory for constants */
    struct dev_mem *copies; /* the memory of those */
    u32 n_variants, n_copies, turn;
    bool has_run;
};

struct dev_kernel *instance_load(const struct on *d, const struct subject *s, struct err *e); /* the code alone */
/* Loads the kernel, fills its inputs from k and poisons the rest. Inputs that `with` already has
   (same value, layout and check) are shared; NULL: none. Has one variant, mem itself. Must be
   closed even after a failure. */
bool instance_open(struct instance *x, const struct on *d, const struct subject *s, const struct check *k, const struct instance *with,
                   struct err *e);
/* Sets other inputs in the same memory; outputs and temporary arrays keep the last run's content. k
   has the same task and sizes. */
bool instance_feed(struct instance *x, const struct on *d, const struct check *k, struct err *e);
void instance_close(struct instance *x, const struct on *d); /* no-op unless open */
/* Creates enough variants to keep large constants cold. */
bool instance_vary(struct instance *x, const struct on *d, struct err *e);
bool instance_guards_intact(const struct instance *x, const struct on *d, u32 buffer, struct err *e);
bool mem_poison(const struct on *d, struct dev_mem m, i64 size, struct err *e);

#endif
