// SPDX-License-Identifier: Apache-2.0
//
// lower: from a task's graph to kernel IR. A kernel requests elements of values (emit_value) at
// indices; they come from values bound by the kernel family, from memory, from literals and sizes, or
// from the value's operator, which requests elements of its inputs in turn. Families and operators are
// written against this header; the operators' part is passed in (emit_init), so that this folder is
// below both.
//
// Types in kernels: elements of f16, bf16 and small floats (f8, f6, f4) are handled as f32 between load
// and store, those of 2 and 4 bits as i8 or u8, every other dtype as itself.
#ifndef QUERN_LOWER_H
#define QUERN_LOWER_H

#include "ir/ir.h"
#include "kir/kir.h"

struct emit;

/* pack.c */
/* An operand rearranged, a constant when the program is compiled, any other by a grid of the kernel
   (pack_grid.c): element (i0, i1 ...) of the packed array, row-major over extent[], is the operand's
   element at index[axis] = sum over the dims that name the axis of i*stride, or 0 where that is out of
   range. Before that an operand of floats may be multiplied along some of its axes by small matrices:
   element i along the axis becomes the sum over k of v[i][k] * element k, in f64, and the
   axis is `rows` long; one dim names it, not the last, with stride 1. */
enum { PACK_DIMS = 12 };
struct pack {
    u32 n;
    struct { sym extent; u32 axis; i64 stride; } dim[PACK_DIMS];
    u32 n_mat;
    struct pack_mat { u32 axis, rows; const double *v; } mat[3]; /* v: rows x size of the axis */
    enum dtype dtype;         /* of the packed array, which has the operand's elements, both floats or both integers; DT_NONE: the operand's */
    u32 bits;                 /* not 0, of constants: as many elements as a word of `dtype`, u8 or u32, has bits for are one, the first one lowest */
};

void pack_dim(struct pack *p, sym extent, u32 axis, i64 stride); /* adds an inner dimension */
void pack_dim_i(struct pack *p, struct symtab *st, i64 extent, u32 axis, i64 stride);
i64 pack_per_word(const struct pack *p); /* elements of a word, 1: without bits */
enum dtype pack_dtype(const struct pack *p, enum dtype t); /* of the packed array; t: the operand's */
/* A text that identifies the packing: packs with equal texts yield the same bytes. */
void pack_print(struct buf *b, const struct pack *p, const struct symtab *st, const struct tensor *t);
/* The constant rearranged, one-dimensional; NULL: an extent is not constant, or, and then
   the error (may be NULL) is set, it does not fit in memory. */
struct tensor *pack_apply(const struct pack *p, const struct tensor *t, struct symtab *st,
                          struct arena *a, struct err *e);

/* emit.c: values inside kernels. A task's graph is lowered by asking for its outputs' elements:
   each node's lower asks for its inputs' elements in turn until loads of the task's inputs (or
   values bound by the family) are reached. This implements fusion. */
typedef kval emit_fn(struct emit *m, const void *user, const kval *idx);

/* How an output of a node is computed element by element: the operators' part of the recursion (op_lower), handed in so
   that nothing here knows an operator. */
typedef kval emit_lower_fn(struct emit *m, node_id n, u32 out, const kval *idx);

struct emit_bind { emit_fn *fn; const void *user; };

struct emit_memo { value_id v; kval idx[MAX_RANK], val; bool bound; /* see emit.c */ };

struct kernel_arg {
    value_id v;               /* of the task's graph */
    bool is_out;
    const struct pack *pack;  /* NULL: in its layout */
};

struct emit {
    struct kir *k;
    const struct graph *g;                                        /* the task */
    struct arena *arena;
    emit_lower_fn *lower;
    kval *buf;                                                    /* per value: BUF, 0 = none */
    struct emit_bind *bind;                                       /* per value */
    struct { struct kernel_arg *v; u32 n, cap; } arg;             /* in order of the BUFs */
    /* operands that emit_args packs by grids, and their TEMP arrays */
    struct { struct emit_packed { value_id v; const struct pack *pack; kval to; } *v; u32 n, cap; } packing;
    i64 vector_bytes;                                             /* of the vectors of these grids */
    /* reductions accumulate floats in f64 (reference kernels) */
    bool acc_f64;
    /* per value: BUF of an output of the task (then also in buf unless the value is an input, too)
       */
    kval *out;
    bool *packed;                                                 /* per value: has a packed BUF */
    /* leading lanes that vector loads read, 0: all */
    kval limit;
    u32 *n_uses;                                                  /* per value */
    /* elements along the last axis that a grid iteration of emit_pieces has at the most; 0 or 1: one */
    i64 piece;
    /* outputs are stored past the caches */
    bool streams;
    /* a value produced by quern::Pad, and the axes along which only its inner elements are
       requested: emit_inside */
    value_id inside;
    u32 inside_axes;
    /* loads of floats are for their addresses: emit_ask */
    bool is_asked;
    /* the value being lowered depends on a bound one */
    bool touched_bind;
    /* values being lowered, one within another */
    u32 depth;
    /* values lowered before, see emit.c */
    struct { struct emit_memo *v; u32 n, cap; } memo;
};

/* Content of a single element: no argument, but a number in the kernel. */
static inline bool emit_is_literal(const struct value *x) { return x->data && tensor_count(x->data) == 1; }
/* Starts a kernel for a task: emit_pack for the operands that are rearranged first, then emit_args
   declares the rest. */
void emit_init(struct emit *m, struct kir *k, const struct graph *task, emit_lower_fn *lower, struct arena *a);
/* args.c. Array of the packed operand: a BUF that holds the packed constant, or a TEMP array that a grid fills. */
kval emit_pack(struct emit *m, value_id v, const struct pack *p);
/* Remaining inputs, then outputs; scalars with content become literals. Then the grids that pack operands:
   the size of workgroups is set before. */
void emit_args(struct emit *m);
/* pack_grid.c: a grid that fills the array `to`, of as many elements as p's extents say, with v packed. */
void emit_pack_grid(struct emit *m, value_id v, const struct pack *p, kval to);
void emit_bind(struct emit *m, value_id v, emit_fn *fn, const void *user); /* fn NULL: unbind */
/* from now on vector loads read the first n lanes only (n = 0: all): the end of a row */
void emit_limit(struct emit *m, kval n);
/* makes later stores of outputs non-temporal (kir_stream) */
void emit_stream(struct emit *m, bool on);
/* Declares that elements of v, produced by quern::Pad, are requested only inside the padding along
   the axes whose bits are set, so that they can be addressed directly. 0: resets. */
void emit_inside(struct emit *m, value_id v, u32 axes);
/* From now on elements are requested for the addresses of their loads alone, which are not executed: loads of floats need no condition. */
void emit_ask(struct emit *m, bool on);
kval emit_load(struct emit *m, kval buf, kval at);                /* a load that heeds the limit */
/* emit_value would load v's element from its BUF, which holds nothing but v, in rows. */
bool emit_is_stored(const struct emit *m, value_id v);
/* constant or kernel parameter */
kval emit_size(struct emit *m, sym s);
kval emit_dim(struct emit *m, value_id v, u32 axis);
/* element(s) at idx: bound, loaded or lowered */
kval emit_value(struct emit *m, value_id v, const kval *idx);
/* to an output of the task, converted to its dtype */
void emit_store(struct emit *m, value_id v, const kval *idx, kval val);
/* last or channel index a ramp; first n lanes only */
void emit_store_n(struct emit *m, value_id v, const kval *idx, kval val, kval n);
/* the plain kernel of an output: one grid over its elements */
void emit_output(struct emit *m, value_id v);
void emit_output_from(struct emit *m, value_id v, value_id from); /* likewise, the elements of another value of the same shape */
/* element index in the value's layout */
kval emit_offset(struct emit *m, value_id v, const kval *idx);
/* proven: the scalar v is a multiple of c */
bool emit_is_multiple(const struct kir *k, kval v, i64 c);
/* Of t's values in kernels: f32 of f16, bf16 and small floats, i8 and u8 of i4, i2, u4, u2, others themselves. */
enum dtype emit_type(enum dtype t);
/* small.c: between that and elements in memory, dtype_stored(t). Small floats by integer arithmetic, which every target has. */
kval emit_widen(struct emit *m, enum dtype t, kval element);
kval emit_narrow(struct emit *m, enum dtype t, kval val); /* as elem_set_f64, elem_set_i64 */
kval emit_narrow_by(struct emit *m, enum dtype t, kval val, struct small_rule r);
kval emit_wrap(struct emit *m, enum dtype t, kval val);   /* an i32 or shorter as an integer of 2 or 4 bits */
/* Index of a broadcast operand: idx of the result (rank r) -> idx of v, 0 on axes of size 1. */
void emit_broadcast(struct emit *m, value_id v, u32 r, const kval *idx, kval *out);
/* 0, 1, +-inf or the type's extreme */
kval emit_neutral(struct emit *m, enum kir_op combine, enum dtype t);
/* Adds one element to a reduction that began with the neutral one: NaN elements are ignored by MIN
   and MAX. Such accumulators may be combined in any order. */
kval emit_combine(struct kir *k, enum kir_op combine, kval acc, kval v);

/* index.c */
kval emit_clamp(struct emit *m, kval i, sym n);    /* to 0..n-1 */
/* The element of v at idx, zero where an axis of the bit set has no elements: for indices that were
   clamped. */
kval emit_clamped(struct emit *m, value_id v, const kval *idx, u32 axes);
/* A data-dependent index: negative ones count from the end, others are clamped to the axis. */
kval emit_index(struct emit *m, value_id v, const kval *idx, sym dim);
/* Opens one grid dimension over the axes of `s` that are not `inside`; sets their indices, the
   others to 0. */
void emit_slices(struct emit *m, const struct shape *s, const bool *inside, kval *idx);
/* Likewise, but where the last axis is not inside, a grid iteration has up to emit.piece of its indices, from..to-1, in order, which emit_open_piece opens a
   loop over, the innermost one; to 0: the index is set. */
struct emit_piece { kval from, to; };
struct emit_piece emit_pieces(struct emit *m, const struct shape *s, const bool *inside, kval *idx);
u32 emit_open_piece(struct emit *m, const struct emit_piece *p, kval *at); /* at: that index. Returns how many more levels are to be ended */
/* For outputs that `whole` has written: a grid that writes zeros to the channels that only a
   blocked layout has. */
void emit_padding(struct emit *m, value_id v);
/* output k is an output of the task */
bool emit_wants(const struct emit *m, const struct node *n, u32 k);
kval emit_zero(struct emit *m, enum dtype t);      /* of emit_type(t) */

/* acc.c */
/* A register that a loop accumulates into. Floats are f32 or f64 (m->acc_f64, or dtype f64). */
struct emit_acc { kval reg; u32 lanes; };
enum dtype emit_acc_type(const struct emit *m, enum dtype t);
/* init of type emit_acc_type */
void emit_acc_open(struct emit *m, struct emit_acc *a, u32 lanes, kval init);
kval emit_acc_get(struct emit *m, const struct emit_acc *a);
void emit_acc_set(struct emit *m, const struct emit_acc *a, kval v);
/* += x*y, both of the accumulator's type */
void emit_acc_fma(struct emit *m, const struct emit_acc *a, kval x, kval y);
u32 emit_lanes(const struct emit *m, u32 n, const kval *idx);               /* the widest */

#endif
