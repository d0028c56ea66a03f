// SPDX-License-Identifier: Apache-2.0
//
// Private to gen/: a matrix product in blocks of bm x bn results by groups of threads, in rounds of
// bk terms (group_gemm, matrix_gemm). Who uses it says how a round is multiplied and where results
// are.
#ifndef QUERN_GEN_GROUP_GEMM_H
#define QUERN_GEN_GROUP_GEMM_H

#include "gen/gen_gemm.h"
#include "gen/gen_group.h"

struct product;

/* An operand on its way to its part of the SHARED array, where element (term, i) stands at
   side_at; i: row of a, column of b. */
struct side {
    struct product *p;
    struct group_copy copy;
    value_id v;
    sym across;          /* rows of a, columns of b */
    i64 block;           /* of them in a group's block */
    bool along_k;        /* copied in vectors along the terms */
    i64 term_step, step;
    i64 panel_step;      /* from one panel to the next */
    i64 base, size;      /* of its part: first element, elements of one stage */
    kval stage;          /* the one that side_at speaks of */
    kval number, first;  /* of the block; its first row or column */
};
kval side_at(void *side, kval term, kval i);

/* A term of a K block as the addressing sees it. */
struct product_term {
    kval at;             /* number in the K block */
    kval channel;        /* the first, of the conv group */
    kval tap[MAX_RANK];
    kval ok;             /* does it exist? 0: always */
};

/* Elements of an operand that lie side by side: terms, or rows of a, columns of b; so many, or what divides their number. */
struct product_run { bool along_k; sym n; };

/* Addressing: where the elements of operands and results lie (gen_addr_matrix.c, gen_group_merge.c, group_grad.c). */
struct product_form {
    const void *user;    /* of the addressing */
    struct product_run a, b;
    /* `lanes` elements from a term of the K block p->round and row or column i of the block on; zeros of terms behind the end. */
    kval (*read)(const struct side *s, kval term, kval i, u32 lanes);
    /* Of y, where row and column of the whole are; returns a condition that they are any, 0: always. */
    kval (*index)(const struct product *p, kval row, kval col, kval idx[MAX_RANK]);

    /* Operands that are not staged; NULL where they always are. */
    i64 near_run;        /* terms of a that a thread reads at a time */
    void (*enter_row)(const struct product *p, kval i); /* computes what belongs to row i of the block here, before all K blocks */
    void (*term)(const struct product *p, kval round, kval at, struct product_term *t);
    kval (*near_a)(const struct product *p, const struct product_term *t, kval i, u32 lanes);
    kval (*near_b)(const struct product *p, const struct product_term *t, kval i, u32 lanes);
    /* Loops over all terms of a K block, whose number is returned; the caller closes them. The innermost is unrolled where it has at most
       `unroll` terms. NULL: terms are counted. */
    u32 (*loops)(const struct product *p, kval round, i64 unroll, struct product_term *t);
};

struct product {
    struct emit *m;
    struct gemm x;
    const struct product_form *form;
    struct group g;
    i64 bm, bn, bk, raster, chunks;
    i64 stream;            /* groups that share all rounds evenly (gen_group_stream.c), with one chunk; 0: each has a block */
    enum group_pipe pipe;
    i64 stages;            /* rounds in the SHARED array, PIPE_ASYNC: at least 2 */
    bool swizzled;         /* the SHARED array is */
    i64 panel;             /* elements of a line of it, longer ones go on in the next panel; 0: no panels */
    bool in_boxes;         /* PIPE_ASYNC, in panels: operands are copied by the device, gen_group_box.c */
    bool copies_last;      /* PIPE_ASYNC: a round is multiplied before the next copies begin */
    enum dtype type, held; /* of the results, of the SHARED arrays */
    i64 pad;               /* elements behind each line of the arrays: banks of memory */
    bool a_near, b_near;   /* not copied: threads read the operand where it lies */
    bool a_as_is, b_as_is; /* the array keeps the order of memory; else terms are the outer index */
    i64 a_wide, b_wide;    /* elements of a load, at most */
    bool by_rows;          /* how threads share what is copied, struct group_share */
    i64 least;             /* elements that the SHARED array has at least, for other uses */
    i64 n_out;             /* elements of another SHARED array, for sums on their way out; 0: there is none */
    enum dtype out_type;
    struct side a, b;
    kval array, out;       /* SHARED: stages of a, then of b; the other one */
    kval pos[MAX_RANK];    /* of y: batches */
    kval round, n_rounds;  /* the one being fetched, or multiplied where nothing is copied; all */
    kval now;              /* the one being multiplied */
    kval from, to;         /* rounds of this group */
    struct result y;       /* TEMP: when the epilogue is a grid of its own, or with chunks */
    kval partial;          /* TEMP, with a stream: [group][begun before, ended by others][bm][bn] */
    kval sums, is_whole;   /* with a stream: where there; does the group have all rounds of the block? 0: certainly */
    bool bias_is_in;       /* the sums began with it */
    const struct leaf *leaf; /* gen_leaf.h */
    void *own;               /* of the leaf */
};

/* The whole kernel. m, x, form, sizes, types, leaf and the group are set before. */
void contract_emit(struct product *p, const struct task *t, const struct caps *caps);

/* For leaves. */
/* A vector along columns, or what exists of it, at a place in the block. */
void product_store(struct product *p, kval row, kval col, kval val);
/* A thread's sums, which are zeros, begin with the bias where they become whole ones. */
void product_begin_tile(struct product *p, const struct group_tile *t);

/* gen_addr_matrix.c: matrices as struct gemm knows them, constants packed. Sets p->form; m, x and the sizes of blocks are set before. */
void product_matrices(struct product *p, const struct task *t);

/* For addressings and gen_group_stream.c. */
sym product_rounds(const struct product *p);        /* K blocks */
sym product_side_blocks(const struct product *p, bool is_a); /* along rows of a, along columns of b */
kval product_blocks(const struct product *p);       /* of all batches */
kval product_block_rounds(const struct product *p); /* of one block */
void product_enter(struct product *p);        /* first thing inside a grid */
void product_place(struct product *p, kval number); /* the block of that number in the walk */

/* gen_group_box.c */
bool product_is_boxable(const struct gemm *x, i64 bk); /* sizes that are known, both operands in rows of whole pieces of 16 bytes */
void product_copy_boxes(struct product *p); /* the round to the sides' stage, as copies of the first thread */

/* gen_group_stream.c */
void stream_init(struct product *p);
void stream_open(struct product *p);  /* the group's pieces, one after the other; closed by stream_close */
void stream_keep(struct product *p, kval row, kval col, kval val); /* a vector of an incomplete sum */
void stream_close(struct product *p); /* and a grid that completes the sums */
/* Can groups share the rounds of such blocks, on a device that says how many groups that are? */
bool stream_is_legal(const struct caps *c, i64 bm, i64 bn, i64 bk, i64 chunks);

/* Choice. */

struct product_sched {
    i64 bm, bn, bk, pipe, stages, raster, chunks, threads;
    i64 stream; /* groups, 0: none */
};
i64 product_shared(const struct product_sched *s, i64 pad); /* elements of the SHARED array */
bool product_is_useful(const struct gemm *x, const struct product_sched *s);
/* A multiply-add takes `work` times as long as one at the peak rate. */
double product_seconds(const struct gemm *x, const struct caps *c, const struct product_sched *s,
                       double work, const i64 *var);

#endif
