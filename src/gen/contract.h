// SPDX-License-Identifier: Apache-2.0
//
// Private to gen/: a matrix product in blocks of bm x bn results by groups of threads, in rounds of
// bk terms (group_gemm, matrix_gemm). Who uses it says how a round is multiplied and where results
// are.
#ifndef QUERN_GEN_CONTRACT_H
#define QUERN_GEN_CONTRACT_H

#include "gen/gemm.h"
#include "gen/wg.h"

struct contraction;

/* An operand on its way to its part of the SHARED array, where element (term, i) stands at
   operand_at; i: row of a, column of b. */
struct operand {
    struct contraction *p;
    struct group_copy copy;
    value_id v;
    sym across;          /* rows of a, columns of b */
    i64 block;           /* of them in a group's block */
    bool along_k;        /* copied in vectors along the terms */
    i64 term_step, step;
    i64 panel_step;      /* from one panel to the next */
    i64 base, size;      /* of its part: first element, elements of one stage */
    kval stage;          /* the one that operand_at speaks of */
    kval number, first;  /* of the block; its first row or column */
};
kval operand_at(void *side, kval term, kval i);

/* A term of a K block as the addressing sees it. */
struct contract_term {
    kval at;             /* number in the K block */
    kval channel;        /* the first, of the conv group */
    kval tap[MAX_RANK];
    kval ok;             /* does it exist? 0: always */
};

/* Elements of an operand that lie side by side: terms, or rows of a, columns of b; so many, or what divides their number. */
struct contract_run { bool along_k; sym n; };

/* Addressing: where the elements of operands and results lie (addr_matrix.c, addr_igemm.c, group_grad.c). */
struct addressing {
    const void *user;    /* of the addressing */
    struct contract_run a, b;
    /* `lanes` elements from a term of the K block p->round and row or column i of the block on; zeros of terms behind the end. */
    kval (*read)(const struct operand *s, kval term, kval i, u32 lanes);
    /* Of y, where row and column of the whole are; returns a condition that they are any, 0: always. */
    kval (*index)(const struct contraction *p, kval row, kval col, kval idx[MAX_RANK]);

    /* Operands that are not staged; NULL where they always are. */
    i64 direct_run;        /* terms of a that a thread reads at a time */
    void (*enter_row)(const struct contraction *p, kval i); /* computes what belongs to row i of the block here, before all K blocks */
    void (*term)(const struct contraction *p, kval round, kval at, struct contract_term *t);
    kval (*direct_a)(const struct contraction *p, const struct contract_term *t, kval i, u32 lanes);
    kval (*direct_b)(const struct contraction *p, const struct contract_term *t, kval i, u32 lanes);
    /* Loops over all terms of a K block, whose number is returned; the caller closes them. The innermost is unrolled where it has at most
       `unroll` terms. NULL: terms are counted. */
    u32 (*loops)(const struct contraction *p, kval round, i64 unroll, struct contract_term *t);
};

/* How the work is divided. */
struct blocking {
    i64 bm, bn, bk;       /* results of a workgroup's block, terms of a K block */
    i64 threads;
    enum group_pipe pipe; /* how copies and arithmetic overlap */
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
    bool by_rows;            /* how threads share a copy, struct group_share */
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
    struct group g;
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
    kval round, n_rounds;  /* K block that is being fetched, or multiplied where nothing is staged; their number */
    kval now;              /* the one that is being multiplied */
    kval from, to;         /* K blocks of this workgroup */
    struct result y;       /* TEMP: when the epilogue is a grid of its own, or with split_k */
    kval partial;          /* TEMP, with stream_k: [workgroup][begun before, ended by others][bm][bn] */
    kval sums, is_whole;   /* with stream_k: where there; does the workgroup have all K blocks of the block? 0: always */
    bool bias_is_in;       /* the sums began with it */
};

/* The whole kernel. m, x, form, sizes, types, leaf and the group are set before. */
void contract_emit(struct contraction *p, const struct task *t, const struct caps *caps);

/* For leaves. */
/* A vector along columns, or what exists of it, at a place in the block. */
void contract_store(struct contraction *p, kval row, kval col, kval val);
/* May sums begin with the bias, because those of a thread are whole ones? Then it is not added when they are stored. */
bool contract_begins_with_bias(struct contraction *p);
/* The bias of `lanes` columns from `col` of the block on; of those behind the end anything. */
kval contract_bias(struct contraction *p, kval col, u32 lanes);

/* addr_matrix.c: matrices as struct gemm knows them, constants packed. Sets p->address; m, x and the sizes of blocks are set before. */
void contract_matrices(struct contraction *p, const struct task *t);

/* For addressings and stream_k.c. */
sym contract_k_blocks(const struct contraction *p);        /* K blocks */
sym contract_operand_blocks(const struct contraction *p, bool is_a); /* along rows of a, along columns of b */
kval contract_blocks(const struct contraction *p);       /* of all batches */
kval contract_block_k_blocks(const struct contraction *p); /* of one block */
void contract_enter(struct contraction *p);        /* first thing inside a grid */
void contract_place(struct contraction *p, kval number); /* the block of that number in the walk */

/* tma.c */
bool contract_is_boxable(const struct gemm *x, i64 bk); /* sizes that are known, both operands in rows of whole pieces of 16 bytes */
void contract_copy_boxes(struct contraction *p); /* the round to the sides' stage, as copies of the first thread */

/* stream_k.c */
void stream_k_init(struct contraction *p);
void stream_k_open(struct contraction *p);  /* the group's pieces, one after the other; closed by stream_k_close */
void stream_k_keep(struct contraction *p, kval row, kval col, kval val); /* a vector of an incomplete sum */
void stream_k_close(struct contraction *p); /* and a grid that completes the sums */
/* Can groups share the rounds of such blocks, on a device that says how many groups that are? */
bool stream_k_is_legal(const struct caps *c, i64 bm, i64 bn, i64 bk, i64 chunks);

/* Choice. */

i64 blocking_shared(const struct blocking *s, i64 pad); /* elements of the SHARED array */
bool blocking_is_useful(const struct gemm *x, const struct blocking *s);
/* A multiply-add takes `work` times as long as one at the peak rate. */
double blocking_seconds(const struct gemm *x, const struct caps *c, const struct blocking *s,
                       double work, const i64 *var);

#endif
