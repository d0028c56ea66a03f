// SPDX-License-Identifier: Apache-2.0
//
// Private to the interpreter: eval.c (initialisation, grids), decode.c (kernel to decoded
// operations), eval_run.c (the machine), eval_ops.c (arithmetic), eval_field.c (the other
// arithmetics), eval_memory.c (accesses and races), eval_group.c (subgroups and fragments).
//
// The threads of a workgroup execute the operations together. A value has its own cells, written by
// its instruction only: lane l of thread t is cell[l * n_threads + t] of the value's first. So
// arithmetic is one loop over many cells, in which inactive threads may take part, because they
// never read its results. Operations that can fail or have visible effects use the mask of active
// threads. A fragment has rows * cols cells for each subgroup or warpgroup that holds one.
#ifndef QUERN_KIR_EVAL_H
#define QUERN_KIR_EVAL_H

#include "kir/kir.h"

struct eval_op;
/* n cells from `from` on of the value; false: division by zero. */
typedef bool eval_fn(union kir_cell *m, const struct eval_op *o, u32 from, u32 n);

enum eval_code {
    EC_PURE,  /* fn, cell by cell */
    EC_SHAPE, /* fn, lanes are mixed: from and n count threads */
    EC_GROUP, /* of a whole subgroup */
    EC_LOAD,
    EC_STORE,
    EC_COPY, /* a store that may complete later */
    EC_TILE, /* a tile copy: many of them */
    EC_AWAIT,
    EC_ALLOC,
    EC_LOOP, /* jumps if no thread is active */
    EC_NEXT, /* jumps back */
    EC_IF,   /* jumps to the EC_ELSE or EC_ENDIF if no thread is active; likewise EC_ELSE */
    EC_ELSE,
    EC_ENDIF,
    EC_BARRIER,
    EC_STOP, /* end of a grid's body */
};

struct eval_op {
    eval_fn *fn; /* EC_PURE, EC_SHAPE */
    i64 imm;
    enum eval_code code : 8;
    enum kir_op op : 8;
    u8 lanes;    /* of the result; of the index for memory */
    u8 lanes_a;  /* of operand a */
    u8 from, to; /* enum dtype of operand a (b for SELECT) and of the result */
    u32 r, a, b, c, d; /* first cells; for memory a is the number of the array; 0 = none */
    u32 threads;       /* of a workgroup: cells from one lane to the next */
    u32 jump;
    kval src; /* the instruction, for messages and fragments' shapes */
};

struct eval_grid {
    u32 n_dims;
    u32 index[3], extent[3]; /* cells */
    u32 begin;               /* first operation of the body */
};

struct eval_code_list {
    u32 n_threads, n_holders; /* given; holders: subgroups or warpgroups that hold a fragment each */
    enum kir_arithmetic arithmetic; /* given */
    struct {
        struct eval_op *v;
        u32 n, cap;
    } op;
    struct {
        struct eval_grid *v;
        u32 n, cap;
    } grid;
    struct {
        kval *v;
        u32 n, cap;
    } array;   /* BUF and ALLOC instructions, [0] unused */
    u32 *cell; /* per instruction: its first cell; for arrays their number */
    i64 n_cells, n_frag_cells;
};

bool eval_decode(struct eval_code_list *d, const struct kir *k,
                 struct arena *a);                                  /* false: too large */
eval_fn *eval_find(enum kir_op op, enum dtype from, enum dtype to); /* eval_ops.c */
/* eval_field.c: the same in one of the other arithmetics. */
eval_fn *eval_find_of(enum kir_arithmetic k, enum kir_op op, enum dtype from, enum dtype to);

struct eval_shadow { /* of an element that several threads can access; agents, 0 = none */
    u32 writer;      /* the last one */
    u32 reader;      /* the first one in this grid */
    u32 late;        /* the reader since the last barrier, or `several` */
    bool is_coming;  /* a copy to it is pending */
};

struct eval_array {
    u8 *host;                   /* BUF: the caller's memory, floats in their own format */
    union kir_cell *cell;       /* ALLOC; BUF in another arithmetic: the caller's memory */
    u8 *known;                  /* private: element was written */
    struct eval_shadow *shadow; /* OUT, INOUT, TEMP, SHARED */
    i64 n;                      /* elements */
    u32 lanes;                  /* cells of an element */
    u32 copies; /* private arrays of threads or subgroups are interleaved by element: their number; else 0 */
    u8 dtype;
    bool must_write; /* an element without a writer is undefined */
};

struct eval_copy { /* a pending element of a copy */
    u32 array, thread;
    i64 index;
    union kir_cell value;
    u64 group; /* of the thread's copies */
};

struct eval_mask { /* the active threads */
    u8 *on;
    u32 n, lo, hi; /* number; all of them are in lo .. hi-1 */
};

struct machine {
    const struct kir *k;
    struct arena arena; /* small allocations */
    struct {
        void **v;
        u32 n, cap;
    } heap; /* large allocations */
    i64 heap_left; /* bytes */
    struct eval_code_list code;
    struct err *e;
    i64 steps;     /* remaining */
    enum kir_arithmetic arithmetic; /* as code.arithmetic */
    u32 n_threads; /* of a group */
    u32 subgroup;  /* threads of a subgroup; the last one may have fewer */
    u32 frag_threads; /* that hold a fragment together: a subgroup or a warpgroup */
    union kir_cell *cell, *frag;
    struct eval_array *array;       /* by number */
    struct eval_mask mask[66], *on; /* stack, and its top */
    struct { struct eval_copy *v; u32 n, cap; } copy; /* pending, in program order */
    u64 *n_groups; /* of copies, closed, per thread */
    const struct eval_grid *grid;
    i64 index[3];       /* of the current iteration */
    u32 thread;         /* the current one */
    u32 agent, several; /* several: more than one thread, or unknown */
    u32 first_of_grid, first_of_iteration, first_of_epoch;
};

/* Whether the thread is active. */
static inline bool eval_is_on(const struct machine *m, u32 t)
{
    return t >= m->on->lo && t < m->on->hi && m->on->on[t];
}

/* eval_run.c: one grid iteration. */
bool eval_iteration(struct machine *m);

/* eval_memory.c */
bool eval_complain(struct machine *m, const struct eval_op *o, const char *what, i64 at);
bool eval_load(struct machine *m, const struct eval_op *o);
bool eval_store(struct machine *m, const struct eval_op *o);
void eval_alloc(struct machine *m, const struct eval_op *o);
bool eval_copy(struct machine *m, const struct eval_op *o);
bool eval_tile(struct machine *m, const struct eval_op *o);
void eval_await(struct machine *m, const struct eval_op *o);
/* Element i of an array: of a private one for m->thread, of others for m->agent. NULL, or the error. */
const char *eval_get(const struct machine *m, const struct eval_array *a, i64 i, union kir_cell *c);
const char *eval_set(const struct machine *m, const struct eval_array *a, i64 i,
                     const union kir_cell *c);

/* eval_group.c: EC_GROUP, for all subgroups with active threads. */
bool eval_group(struct machine *m, const struct eval_op *o);

#endif
