// SPDX-License-Identifier: Apache-2.0
//
// Private to rt/.
#ifndef QUERN_RT_PRIVATE_H
#define QUERN_RT_PRIVATE_H

#include "rt/rt.h"

/* memory.c. */
bool memory_buf_size(const struct plan *p, u32 k, const i64 *var, i64 *size, struct err *e); /* bytes of buffer k */
/* A block for the temporary buffers with a size (bytes, per buffer; -1: placed elsewhere). offset: per buffer, unchanged for others. */
bool memory_lay_out(const struct plan *p, const i64 *size, i64 *offset, i64 *total, struct arena *tmp, struct err *e);

/* program.c for state.c: a program's parts, and what its next run shall use. */
const struct plan *program_plan(const struct rt_program *r);
struct dev *program_dev(const struct rt_program *r);
struct arena *program_scratch(struct rt_program *r); /* emptied by each run */
/* Memory of an interface buffer in the next runs, instead of the caller's; size 0: the caller's again. */
void program_pin(struct rt_program *r, u32 buf, struct dev_mem m);
void program_give(struct rt_program *r, u32 var, i64 value); /* one of plan.given */

/* program.c: a plan run by another plan's call. No synchronisation at its end; inputs and outputs are in device memory. */
struct inner_run {
    const struct tensor *in;   /* type and sizes of each input, no data */
    const struct dev_mem *mem; /* its buffer */
    const i64 *given;          /* values of the plan's given variables */
    /* memory for output k, requested once its size is known */
    bool (*place)(void *user, u32 k, i64 bytes, struct dev_mem *m, struct err *e);
    void *user;
    struct tensor *out;        /* receives types and sizes */
};
/* What call.c needs of program.c, handed in by call_load. */
struct inner_program {
    struct rt_program *(*load)(const struct plan *p, struct dev *d, struct err *e);
    bool (*run)(struct rt_program *r, const struct inner_run *x, struct err *e);
    i64 (*memory_used)(const struct rt_program *r);
    void (*unload)(struct rt_program *r);
};

/* call.c: loops and branches. */
struct call;
struct call_job {
    const struct symtab *sym;  /* of the outer plan, and the values of its variables */
    const i64 *var;
    struct dev_mem cond, sizes;
    struct dev_mem *in;        /* per input */
    struct dev_mem *out;       /* per result: its memory, if is_placed */
    bool *is_placed;
    struct dev_mem *held;      /* per result: receives its memory otherwise */
};
struct call *call_load(const struct plan_call *c, const struct inner_program *inner, struct dev *d, struct err *e);
void call_unload(struct call *x); /* NULL: nothing */
bool call_run(struct call *x, const struct call_job *j, struct err *e);
i64 call_memory_used(const struct call *x);

#endif
