// SPDX-License-Identifier: Apache-2.0
//
// Private to gen/: GEMMs taken apart (gemm, wg_gemm, wg_gemv, mma_gemm), and
// convolutions of single pixels as such.
// Dims: y (b.., m, n) = a (b.., m, k) x b (b.., k, n).
#ifndef QUERN_GEN_GEMM_H
#define QUERN_GEN_GEMM_H

#include "gen/gen.h"

struct gemm { /* the anchor taken apart */
    const struct graph *g;
    value_id a, b, y;
    const struct shape *as, *bs, *ys;
    i32 m_axis;         /* of y, -1: none */
    u32 n_axis, batch;  /* batch: number of batch axes of y */
    sym m, n, k;        /* rows, columns, terms */
    struct space outer; /* batches that are not rows */
    bool tf32;          /* operands of f32 may be rounded to tf32: the matmul's attribute */
    enum dtype type;    /* of the sums */
    i64 acc16;          /* see struct tile_operands */
    bool b_const;
    struct op_codes codes; /* the right operand as codes of few bits, block 0: it is none; set by gemm_take, then b_const, too */
    i64 digits;            /* with codes: of the left one where it is in fixed point (tile_code_dots): the fewest, 1 or 2 if it may be rounded, else CODE_DIGITS */
    bool a_plain, b_plain; /* can be read in place, in rows */
    bool simple;  /* the epilogue is pointwise and may run on tiles of y */
    bool by_rows; /* outputs are stored along m */
    bool merged;  /* m_axis stands for batches, too; a has the same axes */
    /* A convolution of single pixels: rows are pixels, columns are channels, axis 1 of a and y. */
    bool pixels;
    value_id bias;        /* one per column, 0: none */
    u32 rows;             /* bit mask: axes of y that m_axis stands for */
    i64 stride[MAX_RANK]; /* from one row to the next in a, per axis of y */
};
/* false: no matmul of floats with a right operand of rank 2 or more */
bool gemm_of(struct gemm *x, const struct task *t);
/* Likewise, of integers whose sums have 32 or 64 bits, too, or a convolution that is one: 1x1 kernels, channels last, no padding,
   constant weights. */
bool gemm_take(struct gemm *x, const struct task *t);
/* Index of an operand: batches of y (pos, per axis of y) broadcast, then row and column. */
void gemm_index(struct emit *m, const struct gemm *x, value_id v, const kval *pos, kval row,
                kval col, kval idx[MAX_RANK]);
/* Is an operand denser along its columns (the last axis) than along its rows? */
bool gemm_is_dense_along_last(const struct task *t, value_id v, u32 lanes);
/* Elements from one index of an operand's axis to the next, where it is read; 0: not the same for vectors of them, or not known. */
i64 gemm_step(const struct task *t, value_id v, u32 axis, u32 lanes);

#endif
