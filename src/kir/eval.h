// SPDX-License-Identifier: Apache-2.0
//
// Private to the interpreter: eval.c (memory, grids, the machine), decode.c (kernel to decoded
// operations) and eval_ops.c (arithmetic). A value lives in `lanes` consecutive cells of a thread;
// each instruction has its own, so constants and parameters are written once and never executed.
#ifndef QUERN_KIR_EVAL_H
#define QUERN_KIR_EVAL_H

#include "kir/kir.h"

struct eval_op;
typedef bool eval_fn(union kir_cell *m, const struct eval_op *o); /* false: division by zero */

enum eval_code {
    EC_PURE, /* fn */
    EC_LOAD,
    EC_STORE,
    EC_ALLOC,
    EC_LOOP, /* to `jump` when there is nothing to do */
    EC_NEXT, /* back to `jump` */
    EC_IF,   /* to `jump` when false */
    EC_JUMP,
    EC_BARRIER,
    EC_STOP, /* end of a grid's body */
};

struct eval_op {
    eval_fn *fn; /* EC_PURE */
    i64 imm;
    u8 code;     /* enum eval_code */
    u8 op;       /* enum kir_op */
    u8 lanes;    /* of the result; of the index for memory; of the operand for HADD, HMIN, HMAX */
    u8 from, to; /* enum dtype of operand a (b for SELECT) and of the result */
    u32 r, a, b, c, d; /* cells; for memory a is the number of the array; 0 = none */
    u32 jump;
    kval src; /* the instruction, for messages */
};

struct eval_grid {
    u32 n_dims;
    u32 index[3], extent[3]; /* cells */
    u32 begin;               /* first operation of the body */
};

struct eval_code_list {
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
    u32 n_cells;
};

void eval_decode(struct eval_code_list *d, const struct kir *k, struct arena *a);
eval_fn *eval_find(enum kir_op op, enum dtype from); /* eval_ops.c */

#endif
