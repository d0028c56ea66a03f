// SPDX-License-Identifier: Apache-2.0
//
// A loaded program, for program.c, bind.c, io.c and launch.c.
#ifndef QUERN_RT_PROGRAM_H
#define QUERN_RT_PROGRAM_H

#include "rt/rt_private.h"

/* Dispatches between two places where data-dependent sizes are read. Their derived values are
   computed when the sizes are known, and stay until one of them, or of the earlier ones, changes. */
struct phase {
    struct arena arena;    /* parameters and grids */
    struct dev_mem block;  /* temporaries whose sizes, or upper bounds of them, are known from here on */
    i64 total;             /* bytes of them */
    u32 from, to;          /* dispatches */
    bool waits;            /* for an element of a buffer */
    u32 made_from, made_to; /* sizes made before them */
    bool is_valid;
};

struct bound { /* everything derived from the sizes */
    i64 *var;                  /* INT64_MIN: unknown */
    i64 *buf_size;             /* per buffer, bytes; -1: unknown */
    u32 *laid_in;              /* per buffer: the phase of its block; UINT32_MAX: none */
    i64 *offset;               /* per buffer: offset in its block */
    i64 *room;                 /* per buffer: reserved bytes */
    struct dev_launch *launch; /* per dispatch; buf filled at each run */
    struct dev_mem **slot;     /* per dispatch: its buffers */
};

struct rt_program {
    struct arena arena;
    const struct plan *plan;
    struct dev *dev;
    bool shares_host;
    struct dev_kernel **kernel; /* per dispatch */
    bool *kernel_is_shared;     /* per dispatch: the kernel of an earlier one */
    struct dev_mem
        *mem; /* per buffer: constants, and copies of inputs and outputs on devices with memory of their own */
    struct dev_mem *io; /* per buffer: memory of inputs and outputs in this run */
    struct dev_mem *pin; /* per buffer: memory of a state for it; size 0: none */
    bool is_pinned;      /* any */
    i64 *room;           /* per output: bytes of the caller's memory, if its size depends on data */
    struct arena scratch; /* of one binding of sizes; keeps its memory */
    struct phase *phase;
    u32 n_phases, *phase_of; /* per buffer: when its size is known */
    bool *is_made;           /* per output: a size depends on data */
    u32 n_lost;           /* of the device, when the constants were uploaded */
    struct bound bound;
    struct call **call; /* per dispatch; NULL: a kernel */
    struct dev_mem *held; /* per buffer: memory of a call's result */
    i64 *given;           /* values of the plan's given variables */
    bool is_inner;        /* called by an outer plan */
    const struct inner_run *inner; /* during a run */
    rt_watch_fn *watch;   /* NULL: none */
    void *watcher;
    bool profiling;
    double *seconds, *flops, *bytes; /* per dispatch, see struct rt_times */
    double last;                     /* seconds of the last run */
    struct rt_moves moves;           /* likewise of its copies */
};

/* bind.c. A phase is bound anew only if sizes changed, or is_valid is false. */
bool bind_inputs(struct rt_program *r, const struct tensor *in, struct err *e);       /* checks inputs; binds the first phase */
bool bind_made(struct rt_program *r, u32 phase, const struct tensor *in, struct err *e); /* reads and checks the sizes made before it */
bool bind_phase(struct rt_program *r, u32 phase, struct err *e);
struct dev_mem bind_memory(const struct rt_program *r, u32 buf); /* size 0: it has none yet */

/* io.c. */
bool io_check_inputs(const struct rt_program *r, const struct tensor *in, struct err *e); /* against the sizes of their buffers */
bool io_output_dims(const struct rt_program *r, u32 k, struct tensor *out, struct err *e); /* -1: depends on data, and is not known yet */
bool io_place_inputs(struct rt_program *r, const struct tensor *in, struct err *e);
/* Outputs and states' inputs whose sizes are known from the phase on. room: bytes of the caller's memory per output; a: of outputs without any. */
bool io_place_outputs(struct rt_program *r, u32 phase, struct tensor *out, const i64 *room, struct arena *a, struct err *e);
bool io_fill_states(struct rt_program *r, u32 phase, const struct tensor *in, struct err *e);
bool io_move_inputs(struct rt_program *r, const struct tensor *in, struct err *e); /* to a device with memory of its own */
bool io_move_outputs(struct rt_program *r, struct tensor *out, struct err *e);
bool io_borrow(struct rt_program *r, const struct tensor *in, const struct tensor *out, struct err *e); /* all are in the device's memory */

/* launch.c. */
bool launch_phase(struct rt_program *r, const struct phase *h, struct err *e); /* which is bound */
bool launch_all(struct rt_program *r, const struct tensor *in, struct tensor *out, const i64 *room, struct arena *a, struct err *e);

#endif
