// SPDX-License-Identifier: Apache-2.0
//
// Private to gen/: the emission of `gemm`, GEMM on processors with caches.
// Dims: y (b.., m, n) = a (b.., m, k) x b (b.., k, n).
#ifndef QUERN_GEN_CPU_GEMM_H
#define QUERN_GEN_CPU_GEMM_H

#include "gen/cpu_contract.h"
#include "gen/gemm.h"

enum gemm_left { LEFT_PLACE, LEFT_PACKED, LEFT_BYTES }; /* the left operand: read in place; packed; packed and rounded to 8 bits, where it may be */

enum gemm_right {
    RIGHT_PLACE,
    RIGHT_BLOCKS,
    RIGHT_ONCE,
    RIGHT_INNER
}; /* the right operand: read in place; packed block by block by every grid iteration, constants of 16 bits and codes converted from what was packed when
      compiled; packed once, constants when compiled; read in place along its terms, which are neighbours (cpu_inner.c) */

enum gemm_ahead {
    AHEAD_BLOCK = 1,
    AHEAD_SECOND
}; /* while a block of columns is computed with, the next one's terms of the pass are asked for, to the first or the second cache; else terms ahead */

struct gemm_sched { /* 0 in bk, mb, nb: all */
    i64 mr, nr;        /* register tile: rows, vectors of columns; a schedule's mr counts blocks of rows: gemm_tile */
    i64 columns;       /* RIGHT_INNER: columns that vectors of terms are multiplied with at once, a schedule's nr, set by gemm_tile; nr is 1 then */
    i64 bk;            /* terms per pass */
    i64 mb, nb;        /* per grid iteration: tiles of rows, blocks of columns, at most */
    i64 split_k;       /* parts of the sum, by different iterations */
    enum gemm_left pack;
    enum gemm_right right;
    i64 ku,
        ahead; /* terms per step of the inner loop; steps that the right one is asked for ahead, or enum gemm_ahead */
    bool nt;    /* results are stored past the caches */
    bool fetch; /* the left one's rows of the next tile are asked for while a tile is computed */
};

/* The numbers behind a schedule: pieces of equal size, as far as sizes are known. */
struct gemm_split {
    i64 mb, nb; /* 0: all */
    i64 chunk;  /* terms of a part; 0: all */
    bool many;  /* passes: more than one per part */
};
struct gemm_split gemm_split_of(const struct gemm *x, const struct gemm_sched *s,
                                      u32 lanes);

struct gemm_kernel {
    struct cpu_contraction c;
    struct emit *m;
    const struct task *t;
    struct gemm x;
    struct gemm_sched s;
    struct gemm_split d;
    struct tile tile;
    enum dtype type;                  /* of the sums */
    enum dtype left_type, right_type; /* of the packed operands; a constant right one keeps its own */
    i64 dot_k;                        /* neighbouring terms that a step adds, 1: multiply-adds */
    i64 group;                        /* of them, neighbours in the packed right operand */
    u32 lanes;
    i64 width;                        /* columns of a block */
    i64 static_m, static_n, static_k; /* -1: not known */
    kval left, right;                 /* arrays: packed, or the operands themselves */
    kval constant;                    /* a constant right operand as it was packed when compiled */
    struct tile_codes codes;          /* of it */
    i64 per;                          /* codes of an element of it */
    kval rows;           /* see struct tile_out */
    kval n_blocks, n, k; /* of columns; sizes */
    kval pos[MAX_RANK];  /* of y: batches */
    kval m0, m1;         /* rows of this iteration */
    kval part;           /* summand */
    struct cpu_piece piece; /* being computed */
    struct tile_run run; /* its terms of the pass */
    kval px[64];         /* of its rows */
    kval limit;          /* columns that the right operand has, where it is not padded */
    kval partial, collected; /* RIGHT_INNER: partial sums, REG array [row][column]; and of all columns of a tile, WORK array */
    bool left_by_terms;  /* packed left operand: [tile][term][row], else [row][term] */
    kval pitch;          /* of the latter */
    bool is_given;       /* the packed left operand is there already: whoever opens the grid has set left, pitch and first */
    kval first;          /* of its terms; 0: 0 */
    bool is_part;        /* terms c.at .. c.at + c.len - 1 are of any number */
    kval to, to_pitch;   /* gemm_leave: WORK array of sums, [row of the iteration][column], with room for whole tiles */
    kval to_first;       /* column of its first element; 0: 0 */
    kval to_row;         /* row of the array that the iteration's first one is; 0: 0 */
    /* attention: keys of the right operand, in place, that lie in one page, 0: all do; keys from one that is used to the one that is requested, 0: some; behind
       the last one that is requested, 0: of those that are computed with at a time */
    i64 page, apart;
    kval until;
};

/* The target's instruction for both operands' types; of several terms: the right operand is packed by groups of them. Codes are a step of a block, or
   converted (RIGHT_BLOCKS) and multiplied as floats. */
struct tile_product gemm_product(const struct gemm *x, const struct caps *c, enum gemm_left left, enum gemm_right right);
/* Are codes multiplied as words (struct tile_codes)? */
bool gemm_has_words(const struct gemm *x, const struct caps *c);
/* Is the right operand a constant of 16 bits, or of codes, whose vectors are converted before multiply-adds? */
bool gemm_converts_right(const struct gemm *x, const struct caps *c);

/* The schedule with the tile that results are stored by: rows instead of blocks of as many rows as the instruction multiplies at once; RIGHT_INNER: one
   vector of columns. */
struct gemm_sched gemm_tile(struct gemm_sched s, struct tile_product p);

/* Rows of the lower one of two tiles for rows left over whose number is not known, of tiles of mr rows. */
i64 gemm_half(i64 mr, const struct tile_leaf *leaf);
i64 gemm_rest(i64 rows, i64 mr, const struct tile_leaf *leaf); /* rows of the tile that so many left over get, less than mr; 0: 0 */

/* cpu_pack.c */
kval gemm_pack_const(struct gemm_kernel *p);             /* BUF */
/* Elements along the side of the squares by which an operand whose terms are neighbours in memory is transposed where it is packed; 0: it is not. dot_k 1. */
i64 gemm_square(const struct task *t, const struct gemm *x, u32 lanes);
void gemm_pack_once(struct gemm_kernel *p);              /* a grid of its own into p->right */
void gemm_pack_right(struct gemm_kernel *p, kval block); /* this pass' terms */
void gemm_pack_left(struct gemm_kernel *p);              /* this pass' terms of all rows */
void gemm_ask(const struct gemm_kernel *p, enum kir_cache to, const kval *idx); /* requests the line of an element of the right operand where it lies; nothing, if it is computed */
kval gemm_block(struct gemm_kernel *p, kval block);      /* first element of a packed block */
i64 gemm_pitch(const struct gemm_sched *s, i64 k, enum dtype t); /* of [row][term] */

/* cpu_pack_codes.c */
void gemm_pack_codes(struct gemm_kernel *p);             /* as gemm_pack_const, into p->constant and p->codes */
i64 gemm_codes_step(const struct gemm_kernel *p);        /* elements of a block of terms and a block of columns */
kval gemm_codes_at(struct gemm_kernel *p, kval block);   /* first element of a block of columns at this pass' terms */
void gemm_convert_codes(struct gemm_kernel *p, kval block); /* as gemm_pack_right */
void gemm_open_digits(struct gemm_kernel *p, sym rows);  /* arrays of the left operand as tile_code_dots reads it, of an iteration */
void gemm_pack_digits(struct gemm_kernel *p);            /* as gemm_pack_left */

/* cpu_inner.c */
bool gemm_inner_suits(struct tile_product p); /* does the instruction take vectors of terms? */
bool gemm_inner_is_legal(const struct caps *c, i64 rows, i64 columns); /* fits the registers */
/* Columns that a tile of so many rows takes at once: tiles of rows left over take more than a schedule says, up to as many sums as others have, so that
   multiply-adds do not wait for each other. */
i64 gemm_inner_columns(const struct gemm_sched *s, i64 lanes, i64 rows);
bool gemm_has_dense_terms(const struct task *t, const struct gemm *x, u32 lanes); /* a vector of a column's terms is one of an array */
void gemm_open_inner(struct gemm_kernel *p);             /* its arrays, of an iteration */
void gemm_multiply_inner(struct gemm_kernel *p, const struct tile *t, const struct cpu_piece *e);

/* cpu_addr_matrix.c */
/* From p's m, t and x: everything that is known before arguments are declared; packs a constant right operand. The caller sets c.address. */
void gemm_init(struct gemm_kernel *p, const struct caps *c, const struct gemm_sched *s, struct tile_product product);
void gemm_open_temps(struct gemm_kernel *p);             /* arrays of the whole kernel */
void gemm_open_arrays(struct gemm_kernel *p, sym rows);  /* in a grid: scratch memory of an iteration of `rows` rows */
void gemm_set_levels(struct gemm_kernel *p, kval from, kval to); /* of blocks from..to-1, with pos, m0, m1, n_blocks, n, k set; packs the left operand */
/* Of struct cpu_addressing. */
struct tile_out gemm_target(struct cpu_contraction *c, const struct cpu_piece *e);
void gemm_find(struct cpu_contraction *c, const struct cpu_piece *e);
void gemm_multiply(struct cpu_contraction *c, struct tile *t, const struct cpu_piece *e, struct tile_out *o);
void gemm_leave(struct cpu_contraction *c, const struct tile *t, const struct cpu_piece *e); /* take: leaves sums in p->to */
void gemm_emit(struct emit *m, const struct task *t, const struct caps *c,
                  const struct gemm_sched *s);

#endif
