// SPDX-License-Identifier: Apache-2.0
//
// For families: the engine of contractions by workgroups. A workgroup computes a block of bm x bn results in K blocks of bk terms, whose operands it
// stages in shared memory. `blocking` says how the work is divided, `staging` how operands get to the leaf, `addressing` where elements of
// operands and results lie, `leaf` (leaf.h) which registers and instruction multiply.
#ifndef QUERN_GEN_CONTRACT_H
#define QUERN_GEN_CONTRACT_H

#include "gen/gemm.h"
#include "gen/wg.h"
#include "gen/wg_cost.h"

struct contraction;

/* A term of a K block as the addressing sees it. */
struct contract_term {
    kval at;             /* number in the K block */
    kval channel;        /* the first, of the conv group */
    kval tap[MAX_RANK];
    kval ok;             /* does it exist? 0: always */
    kval row, col;       /* the leaf's first ones, set before the addressing opens loops, if its others are a constant number of them away; 0: not */
    kval a, b;           /* where staged operands begin inside these loops, if the addressing moves them along */
};

/* An operand and its part of the SHARED array. i: row of a, column of b. */
struct operand {
    struct contraction *p;
    struct wg_copy copy;
    value_id v;
    sym across;          /* rows of a, columns of b */
    i64 block;           /* of them in a block */
    bool along_k;        /* copied in vectors along the terms */
    i64 term_step, step; /* elements of the array from one term, one i to the next */
    i64 panel_step;      /* from one panel to the next */
    i64 base, size;      /* of its part of the array: first element, elements of one stage */
    kval stage;          /* current */
    kval number, first;  /* of the block; its first row or column */
    kval array;          /* where leaves read it: the SHARED array, or one that lies in the order of the leaf already */
    kval (*at)(const struct operand *s, const struct contract_term *t, kval i); /* index of an element in it */
};

/* Contiguous elements of an operand: terms, or else rows of a, columns of b; their number, or a divisor of it. */
struct contract_run { bool along_k; sym n; };

/* Where the elements of operands and results lie (addr_matrix.c, addr_igemm.c, addr_grad.c). */
struct addressing {
    const void *user;    /* of the addressing */
    struct contract_run a, b;
    /* `lanes` elements from (term, i) on: term of the K block p->k_block, row or column i of the block. Terms behind the end are zeros. */
    kval (*read)(const struct operand *s, kval term, kval i, u32 lanes);
    /* Index in y of a row and column of the whole result. Returns the condition that it exists, 0: always. */
    kval (*index)(const struct contraction *p, kval row, kval col, kval idx[MAX_RANK]);


    /* For leaves that need no blocks: elements of an operand at rows of a, columns of b, and terms of the whole contraction, one of them a vector. */
    kval (*element)(const struct contraction *p, bool is_b, kval i, kval term);

    i64 direct_run;        /* terms of a that a thread reads at a time where a is not staged; those of a step of `loops` */
    /* For operands that are not staged; NULL where they always are. */
    void (*enter_row)(const struct contraction *p, kval i); /* computes the coordinates of row i of the block here, before all K blocks; NULL: not */
    void (*term)(const struct contraction *p, kval k_block, kval at, struct contract_term *t);
    kval (*direct_a)(const struct contraction *p, const struct contract_term *t, kval i, u32 lanes);
    kval (*direct_b)(const struct contraction *p, const struct contract_term *t, kval i, u32 lanes);
    /* Opens loops over all terms of a K block and returns their number; the caller closes them. The innermost is unrolled if it has at most
       `unroll` terms. NULL: one loop counts the terms. */
    u32 (*loops)(const struct contraction *p, kval k_block, i64 unroll, struct contract_term *t);
};

/* How the work is divided. */
struct blocking {
    i64 bm, bn, bk;       /* results of a workgroup's block, terms of a K block */
    i64 threads;
    enum wg_pipe pipe; /* how copies and arithmetic overlap */
    i64 stages;           /* K blocks in the SHARED array; PIPE_ASYNC: at least 2 */
    i64 raster;           /* rows of blocks that are walked column by column; 1: not */
    i64 split_k;          /* workgroups that share the terms of a block */
    i64 stream_k;         /* workgroups that share all K blocks evenly (stream_k.c), with split_k 1; 0: each has a block */
};

/* How operands get to the leaf. */
struct staging {
    enum dtype type;         /* of the SHARED array */
    bool a_direct, b_direct; /* not staged: threads read the operand through the addressing */
    bool a_as_is, b_as_is;   /* the SHARED array keeps the order of memory; else terms are the outer index */
    i64 a_wide, b_wide;      /* elements of a load, at most */
    bool by_rows;            /* how threads share a copy, struct wg_share */
    bool swizzled;           /* the SHARED array is */
    i64 pad;                 /* elements behind each of its lines, against bank conflicts */
    i64 panel;               /* elements of a line of it; longer ones go on in the next panel; 0: no panels */
    bool tma;                /* PIPE_ASYNC, in panels: the device copies boxes (tma.c) */
    bool copies_last;        /* PIPE_ASYNC: a K block is multiplied before the next copies begin */
    i64 least;               /* elements that the SHARED array has at least, for other uses */
};

struct contraction {
    /* Set before contract_emit. */
    struct emit *m;
    struct gemm x;                    /* sizes, batches, epilogue */
    const struct addressing *address;
    struct workgroup g;
    struct blocking s;
    struct staging st;
    enum dtype type;                  /* of the sums in the epilogue */
    i64 n_out;                        /* elements of another SHARED array, for sums on their way out; 0: there is none */
    enum dtype out_type;
    const struct leaf *leaf;          /* leaf.h */
    void *own;                        /* of the leaf */

    /* While it is emitted. */
    struct operand a, b;
    kval array, out;       /* SHARED: stages of a, then of b; the other one */
    kval pos[MAX_RANK];    /* of y: batches */
    kval k_block, n_k_blocks; /* K block that is being fetched, or multiplied where nothing is staged; their number */
    kval now;              /* the one that is being multiplied */
    kval from, to;         /* K blocks of this workgroup */
    struct result y;       /* TEMP: when the epilogue is a grid of its own, or with split_k */
    kval partial;          /* TEMP, with stream_k: [workgroup][begun before, ended by others][bm][bn] */
    kval sums, is_whole;   /* with stream_k: where there; does the workgroup have all K blocks of the block? 0: always */
    bool bias_is_in;       /* the sums began with it */
};

/* A task as a contraction. */
struct contract_task {
    struct gemm x;
    double find;  /* operations that find an element on its way to shared memory, beside those of a matrix */
    void *facts;  /* of the addressing */
};
/* An addressing as families name it. */
struct contract_form {
    bool (*analyze)(struct contract_task *c, const struct task *t, struct arena *a); /* false: the task is no such contraction */
    void (*open)(const struct contract_task *c, struct contraction *p, const struct task *t); /* sets p->address; p->m, p->x and p->s are set before */
};
extern const struct contract_form contract_matrix, contract_igemm, contract_grad; /* addr_matrix.c, addr_igemm.c, addr_grad.c */

/* contract_emit.c: the whole kernel. */
void contract_emit(struct contraction *p, const struct task *t, const struct caps *caps);

/* For leaves. */

/* Stores a vector along columns at a place in the block; elements behind the end are left out. */
void contract_store(struct contraction *p, kval row, kval col, kval val);
/* Can sums begin with the bias, because a thread has whole ones? Then the bias is not added when they are stored. */
bool contract_begins_with_bias(struct contraction *p);
/* The bias of `lanes` columns from `col` of the block on; undefined for columns behind the end. */
kval contract_bias(struct contraction *p, kval col, u32 lanes);

/* addr_matrix.c: addressing of matrices, constants packed. Sets p->address; p->m, p->x and p->s are set before. */
void contract_matrices(struct contraction *p, const struct task *t);
void contract_matrices_unpacked(struct contraction *p, const struct task *t); /* likewise, constants as any other operands */
void contract_matrices_in_place(struct contraction *p); /* without packing: elements and index only */

/* contract.c, for addressings, stream_k.c, tma.c and contract_emit.c. */
void operand_init(struct contraction *p, struct operand *s);
sym contract_k_blocks(const struct contraction *p);                  /* K blocks of a block */
sym contract_operand_blocks(const struct contraction *p, bool is_a); /* blocks along rows of a, along columns of b */
kval contract_blocks(const struct contraction *p);                   /* blocks of all batches */
kval contract_block_k_blocks(const struct contraction *p);           /* K blocks of a block, as a value of the kernel */
void contract_enter(struct contraction *p);                          /* first thing inside a grid */
sym contract_block_count(const struct contraction *p);               /* blocks of a batch */
sym contract_batch_count(const struct contraction *p);
void contract_walk(struct contraction *p, kval number, kval *row, kval *col); /* number of a block of a batch, column by column in s.raster rows of blocks */
void contract_place(struct contraction *p, kval number);             /* goes to a block, numbered in the order of the walk */
void contract_place_at(struct contraction *p, kval batch, kval row, kval col);
void contract_store_whole(struct contraction *p, kval row, kval col, kval val); /* contract_store of a whole sum */
kval contract_whole_sum(struct emit *m, const void *contraction, const kval *idx); /* emit_fn: of the result's TEMP array, with the bias */

/* tma.c */
bool contract_is_boxable(const struct gemm *x, i64 bk); /* static sizes, rows of both operands are multiples of 16 bytes */
void contract_copy_boxes(struct contraction *p);        /* copies the K block to the current stage, by the first thread */

/* stream_k.c */
void stream_k_init(struct contraction *p);
void stream_k_open(struct contraction *p);  /* loops over the workgroup's pieces of blocks; closed by stream_k_close */
void stream_k_keep(struct contraction *p, kval row, kval col, kval val); /* stores a vector of an incomplete sum */
void stream_k_close(struct contraction *p); /* and adds a grid that completes the sums */
bool stream_k_is_legal(const struct caps *c, i64 bm, i64 bn, i64 bk, i64 split_k);

/* blocking.c */

i64 blocking_shared(const struct blocking *s, i64 pad); /* elements of the SHARED array */
/* Is a block of so many elements along an axis, of which the least is allowed in any case, less than twice as long as the axis? */
bool blocking_fits_size(i64 block, i64 least, i64 size);
bool blocking_is_useful(const struct gemm *x, const struct blocking *s); /* blocks are not much larger than the result, splits have enough terms */
/* Facts of the division for a leaf that multiplies and adds; the leaf's own are added. a, b: instructions that bring an element of either operand to
   shared memory. */
struct wg_facts blocking_facts(const struct gen_problem *p, const struct gemm *x, const struct blocking *s, double a, double b);

#endif
