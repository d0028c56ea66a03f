// SPDX-License-Identifier: Apache-2.0
//
// Private to trial.c: a kernel on an open device with memory of its own, fed by a check.
#ifndef QUERN_TUNE_INSTANCE_H
#define QUERN_TUNE_INSTANCE_H

#include "tune/tune.h"

/* A subject's code on a device; kernel NULL: it could not be loaded, or there is none. */
struct loaded { const struct subject *s; struct dev_kernel *kernel; struct err e; };

struct on {                /* where: an open device */
    const struct dev_driver *driver;
    struct dev *dev;
    struct loaded *loaded; u32 n_loaded; /* code that is there already; the rest is loaded when it is asked for */
};

enum { POISON_BYTE = 0xFF }; /* in outputs before a run */

struct instance {
    struct arena arena; /* of what follows */
    const struct subject *s;
    const struct check *k;
    struct dev_kernel *kernel;
    bool is_kept;           /* the kernel is of on.loaded */
    struct dev_mem *whole;  /* per buffer, guards included */
    bool *is_shared;        /* per buffer: another instance's, which releases it */
    struct dev_mem *mem;    /* per buffer, what the kernel sees */
    i64 *size;              /* bytes per buffer */
    const void **content;   /* per buffer, as it was fed; NULL: poisoned */
    struct dev_launch launch; /* foreign devices: of buffers with the guards behind them */
    struct dev_mem **variant; /* n_variants copies of mem that differ in the memory of the constants */
    struct dev_mem *copies; /* the memory of those */
    u32 n_variants, n_copies, turn;
    bool has_run;
};

struct dev_kernel *instance_load(const struct on *d, const struct subject *s, struct err *e); /* the code alone */
/* Loads the kernel, fills its inputs from k and poisons the rest. Inputs that with has already (same value, same form, of the same
   check) are shared, NULL: none are. One variant, of mem itself. After a failure it is to be closed, too. */
bool instance_open(struct instance *x, const struct on *d, const struct subject *s, const struct check *k, const struct instance *with,
                   struct err *e);
/* Other inputs in the same memory; outputs and temporary arrays stay as the last run left them. k is of the same task and sizes. */
bool instance_feed(struct instance *x, const struct on *d, const struct check *k, struct err *e);
void instance_close(struct instance *x, const struct on *d); /* of one that is not open: nothing */
/* As many variants as leave large constants cold. */
bool instance_vary(struct instance *x, const struct on *d, struct err *e);
bool instance_guards_intact(const struct instance *x, const struct on *d, u32 buffer, struct err *e);
bool mem_poison(const struct on *d, struct dev_mem m, i64 size, struct err *e);

#endif
