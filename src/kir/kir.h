// SPDX-License-Identifier: Apache-2.0
//
// kir: kernel IR. One kernel is a flat list of instructions in execution order, with nested structure
// marked by GRID/LOOP/IF ... END, each instruction naming its operands by number. Small enough to know by heart:
//
//   kernel   = arguments (BUF), then one or more grids in sequence. A grid is 1 to 3 nested GRID instructions
//              closed by as many ENDs; its iterations may run in any order and at the same time. All writes
//              of a grid are visible to the next one.
//   values   = scalars or vectors (lanes 2..64) of a dtype. Index arithmetic is i64. There are no mutable values;
//              state lives in arrays (ALLOC) and buffers (BUF), read by LOAD and written by STORE.
//   indices  = count elements of the array's element type (lanes included for REG arrays of vectors).
//              A vector index addresses every lane by itself; ramp with stride 1 is a contiguous access.
//   sizes    = kernel parameters: i64 values computed by the host before the launch from symbolic sizes
//              (struct kir.param holds their text). Grid extents and ALLOC counts are CONST or PARAM only.
//
// Invariants (kir_verify): operands precede their use and are in scope; types match by the rules of kir.inc;
// every structure is closed; GRID only at top level; nothing outside grids but BUF, CONST, PARAM; BARRIER not
// inside IF. This folder knows nothing of tensors, operators, languages or devices.
#ifndef QUERN_KIR_H
#define QUERN_KIR_H

#include "core/core.h"

enum kir_op {
    KI_NONE,
#define X(id, name, n, cls, rule) KI_##id,
#include "kir/kir.inc"
#undef X
    N_KIR_OPS
};

enum kir_space {
    KS_REG,    /* per thread, small constant count, becomes registers when indexed by constants */
    KS_WORK,   /* per worker scratch memory of any size; undefined at the start of every grid iteration */
    KS_SHARED, /* per group of threads */
    KS_TEMP,   /* whole kernel: lives from grid to grid */
};

enum kir_loop {
    KL_SERIAL, /* as written */
    KL_UNROLL, /* constant bounds; replaced by copies of its body when legalised */
    KL_VECTOR, /* iterations are independent; the target's compiler may vectorise */
};

enum kir_access { KA_IN, KA_OUT, KA_INOUT }; /* OUT: every element is written before it is read */

typedef u32 kval; /* number of an instruction, 0 = none */

struct kir_ins {
    u8 op;      /* enum kir_op */
    u8 dtype;   /* enum dtype of the result (element type for BUF and ALLOC); DT_NONE: no result */
    u8 lanes;   /* 1 = scalar */
    u8 aux;     /* LOOP: enum kir_loop, ALLOC: enum kir_space, BUF: enum kir_access */
    kval a, b, c, d;
    union { i64 i; double f; } imm;
};

struct kir_buf {
    struct str name; /* identifier, unique in the kernel */
    kval id;         /* its BUF instruction */
};

struct kir_scope; /* builder's private stack */

struct kir {
    struct arena *arena;
    struct str name;                                  /* identifier: the kernel's entry point */
    struct { struct kir_ins *v; u32 n, cap; } ins;    /* v[0] unused */
    struct { struct kir_buf *v; u32 n, cap; } buf;    /* arguments in order */
    struct { struct str *v; u32 n, cap; } param;      /* text of the symbolic expression of each parameter */
    u32 group[3];                                     /* threads of a group per dimension, 0 = 1 */
    struct map cse;                                   /* builder: pure instructions in scope */
    struct { struct kir_scope *v; u32 n, cap; } scope; /* builder: open structures */
};

struct kir_op_info { const char *name; u8 n_args; char cls, rule; };
const struct kir_op_info *kir_op_info(enum kir_op op);

/* build.c: the builder. Folds constants, applies identities, shares equal pure instructions that are in scope
   (loads of KA_IN buffers count as pure), and splats scalars where the other operand is a vector. The result
   may be any earlier instruction. Types must match (assert). */

void kir_init(struct kir *k, struct arena *a, struct str name);
kval kir_buf(struct kir *k, struct str name, enum dtype t, enum kir_access access);
kval kir_param(struct kir *k, struct str text);             /* equal texts share one parameter */
kval kir_int(struct kir *k, i64 v);                         /* i64 constant */
kval kir_const_i(struct kir *k, enum dtype t, u32 lanes, i64 v);
kval kir_const_f(struct kir *k, enum dtype t, u32 lanes, double v);
kval kir_ramp(struct kir *k, kval base, i64 stride, u32 lanes);
kval kir_splat(struct kir *k, kval a, u32 lanes);           /* lanes 1 or equal: a itself */
kval kir_lane(struct kir *k, kval a, i64 lane);
kval kir_un(struct kir *k, enum kir_op op, kval a);
kval kir_bin(struct kir *k, enum kir_op op, kval a, kval b);
kval kir_fma(struct kir *k, kval a, kval b, kval c);
kval kir_select(struct kir *k, kval cond, kval a, kval b);
kval kir_cast(struct kir *k, enum dtype t, kval a);
kval kir_bits(struct kir *k, enum dtype t, kval a);
kval kir_alloc(struct kir *k, enum kir_space s, enum dtype t, u32 lanes, kval count);
kval kir_load(struct kir *k, kval buf, kval idx);           /* lanes: those of idx, times the array's */
kval kir_load_n(struct kir *k, kval buf, kval idx, kval n); /* idx a ramp; lanes >= n read as 0 */
void kir_store(struct kir *k, kval buf, kval idx, kval val);
void kir_store_n(struct kir *k, kval buf, kval idx, kval val, kval n);
kval kir_grid(struct kir *k, kval extent);                  /* opens one dimension */
kval kir_loop(struct kir *k, enum kir_loop kind, kval from, kval to, i64 step);
void kir_if(struct kir *k, kval cond);
void kir_else(struct kir *k);
void kir_end(struct kir *k);                                /* closes the innermost structure */
void kir_barrier(struct kir *k);
kval kir_thread(struct kir *k, u32 dim);

bool kir_is_const(const struct kir *k, kval v, i64 *out);   /* integer constant */
bool kir_is_float(const struct kir *k, kval v, double *out);/* float constant */
static inline const struct kir_ins *kir_at(const struct kir *k, kval v) { return &k->ins.v[v]; }
u32 kir_lanes(const struct kir *k, kval v);
enum dtype kir_dtype(const struct kir *k, kval v);

/* text.c: the textual form, a language with a grammar (doc/kernel-ir.md). Round-trips. */
void kir_print(struct buf *b, const struct kir *k);
bool kir_parse(struct kir *k, struct arena *a, struct str text, struct err *e);

/* verify.c */
bool kir_verify(const struct kir *k, struct err *e);

/* legal.c: a new kernel in `out` with UNROLL loops unrolled, REG arrays that are only indexed by constants split
   into single elements, dead pure instructions dropped, and instructions the limits forbid rewritten. */
struct kir_limits {
    u32 max_lanes_bytes; /* widest vector in bytes; wider ones are split; 0 = any */
    u32 max_unroll;      /* refuse to grow beyond this many instructions */
};
bool kir_legalise(struct kir *out, struct arena *a, const struct kir *in, const struct kir_limits *l,
                  struct err *e);

/* cost.c: static counts for one launch, parameters given. */
struct kir_cost {
    double flops;        /* multiply-add counts two */
    double bytes_loaded, bytes_stored; /* from and to BUF and TEMP */
    double instructions; /* executed, scalar or vector alike */
    u32 n_regs;          /* most live vector values in an innermost loop, estimate */
};
void kir_count(const struct kir *k, const i64 *param, struct kir_cost *c);

/* eval.c: the interpreter. Runs a kernel on host memory and checks what hardware does not tell: access outside a
   buffer or array, reads of elements never written (OUT, REG, WORK, SHARED, TEMP), two iterations of one grid
   touching the same element when one of them writes, threads of a group likewise between barriers, barriers
   in divergent flow, division by zero, grids that did not write all of an OUT buffer. */
struct kir_arg { void *p; i64 n; }; /* n elements of the BUF's dtype */
struct kir_eval_opts {
    u64 seed;            /* order of the grid iterations (shuffled); 0 = in order */
    i64 max_steps;       /* give up after this many instructions; 0 = 1e10 */
    bool allow_unwritten; /* do not complain of OUT elements left unwritten */
};
bool kir_eval(const struct kir *k, const struct kir_arg *arg, const i64 *param, const struct kir_eval_opts *o,
              struct err *e);

#endif
