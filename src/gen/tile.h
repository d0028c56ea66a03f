// SPDX-License-Identifier: Apache-2.0
//
// Private to gen/: the register tile of contractions on processors, and its leaves: the instructions that add a step's products to it. A leaf knows
// neither which operator it works for nor how operands got to where it reads them. A new instruction is a new leaf: a `struct tile_leaf` in a file
// tile_NAME.c.
#ifndef QUERN_GEN_TILE_H
#define QUERN_GEN_TILE_H

#include "gen/gen.h"

/* Right operands of few bits (struct op_codes), as tile_codes reads them. A unit of terms has a word, 4 bytes, for every column. */
struct tile_codes {
    enum dtype type;  /* of a code */
    i64 block, offset;
    kval scale, zero; /* arrays, [block of terms][column] like the codes; zero 0: `offset` */
    i64 digits;       /* tile_code_dots: of the left operand's integers, 1 to CODE_DIGITS */
    /* Likewise, of its blocks: scales, f32; sums times code_dots_offset, code_left_sums of i32; WORK array of a block. */
    kval left_scale, left_sum, values;
    bool in_pairs;    /* likewise: products are summed in i16 first */
    bool in_words;    /* likewise: codes of 8 bits are widened to i16, and so is the left operand, whose two digits are one */
    bool in_order;    /* sums are those of the numbers that codes stand for, term by term, each rounded once (caps.deterministic) */
};

/* ty x tx rows (pixels) times nr columns, or vectors of them; accumulators in registers. */
struct tile {
    struct emit *m;
    const struct tile_leaf *leaf;
    i64 ty, tx, nr;
    u32 lanes;                /* of an accumulator */
    enum dtype type;          /* of the accumulators */
    i64 dot_k;                /* terms that a step adds, neighbours in both operands (tile_dot, tile_mmla); else 1 */
    enum dtype left;          /* tile_matrix: of the left operand where the leaf reads it */
    kval acc;                 /* REG array: vectors, or what the leaf has instead while terms are added */
    i64 pitch;                /* vectors of the right operand from one step to the next, 0: nr. A tile with fewer columns reads a part of a block */
    i64 ahead;                /* steps that the right operand is asked for ahead of its use, 0: not */
    const struct tile_codes *codes; /* tile_codes */
    kval limit;               /* not 0: elements of a column's vectors that the right operand has, from the tile's first on; it is not padded */
    kval next;                /* tile_terms: from a column's vector to the next column's, 0: they follow each other */
    kval spill;               /* not 0: WORK array of all accumulators, see tile_loop_epilogue */
    kval rows;                /* tile_matrix: WORK array of copied rows */
    kval collected;           /* tile_terms: WORK array, see tile_collect */
    value_id bias;            /* tile_terms: added to collected sums; 0: none */
};
struct tile_in {              /* where a step's rows come from: a[at + dy*y_step + dx*x_step] */
    kval buf, at;
    kval y_step, x_step;
    const kval *px;           /* not NULL: index of each row instead of steps; a row whose index is 0 takes no part in the step */
    const kval *inside;       /* not NULL, with px: does a row lie inside the input? Others are `outside` */
    kval outside;             /* 0: zero */
    kval limit;               /* tile_terms: terms of the vectors that exist, 0: all */
};
struct tile_out {
    kval idx[MAX_RANK];       /* of the anchor's output: first pixel */
    i32 y_axis, x_axis;       /* -1: none */
    u32 c_axis;
    i64 x_step;               /* outputs from one pixel to the next along x, 0: 1 */
    kval c;                   /* first channel */
    kval y_end, x_end, c_end; /* behind the last that exists; c_end 0: all channels exist */
    bool y_exact, x_exact;    /* no tile hangs over the end */
    bool x_short;             /* this one does */
    value_id anchor;
    kval temp;                /* not 0: the anchor's elements go to this array, dense with c innermost; no epilogue */
    i64 parts;                /* 0: 1. Summands of each element in temp, see struct result */
    kval part;
    kval rows;                /* not 0: WORK array of lanes*nr x pitch; the epilogue runs along x, for outputs with x innermost */
    const struct scratch *to; /* not NULL: to scratch memory instead, pixels that hang over, too: there is room */
    const kval (*px)[MAX_RANK]; /* not NULL: index of each pixel, instead of the axes */
    const kval *exists;       /* with px: does it? 0: always */
};

struct tile_operands {        /* what a leaf multiplies */
    enum dtype a, b, sum;
    i64 n;                    /* neighbouring terms, -1: not known */
    i64 acc16;                /* the anchor's attribute (op_acc16): products that fit i16 when they are summed; 0: not known */
};
struct tile_leaf {
    /* Neighbouring terms that a step adds, if the target has the instruction and it suits the operands; 0: it does not. NULL: it is no matter of the
       target. */
    i64 (*terms)(const struct caps *c, const struct tile_operands *o);
    i64 rows;                 /* rows are taken by so many, of which there are accumulators for whole numbers; 0: one by one */
    bool in_groups;           /* a step's terms of the right operand lie in groups of a DOT, [group][column][term]; else they are one group */
    /* Allocates what it needs instead of accumulators that are vectors of columns: outside of begin..end these are elements of `spill`. NULL: nothing. */
    void (*open)(struct tile *t);
    /* Adds the products of a step: its rows with nr columns, whose elements begin at b_at and follow each other in the order of accumulators. */
    void (*step)(const struct tile *t, const struct tile_in *a, kval b, kval b_at);
    void (*begin)(const struct tile *t); /* accumulators leave the form of vectors of columns before the first step, and return to it behind the last; */
    void (*end)(const struct tile *t);   /* NULL: they never do */
    /* With open: sums begin with a vector for each vector of columns; is_zero: they all are. */
    void (*fill)(const struct tile *t, const kval *init, bool is_zero);
    void (*resume)(const struct tile *t); /* with open: sums begin with what is in `spill` */
    /* Accumulators begin with the bias, as tile_clear; NULL: they are vectors of columns. */
    void (*clear)(const struct tile *t, value_id bias, kval c);
    /* Stores the tile through the epilogue; NULL: accumulators are vectors of columns. */
    void (*store)(const struct tile *t, const struct tile_out *o);
};
extern const struct tile_leaf tile_fma;      /* vectors of columns; a row's element is spread to all lanes */
extern const struct tile_leaf tile_dot;      /* likewise, and an instruction adds the products of dot_k terms: bytes, pairs of bf16 */
extern const struct tile_leaf tile_short;    /* likewise, of bytes: products of dot_k terms are summed in i16, whose pairs are then added to i32 */
extern const struct tile_leaf tile_mmla;     /* likewise, of two rows and two columns at once */
extern const struct tile_leaf tile_matrix;   /* blocks of rows and columns by a matrix unit */
extern const struct tile_leaf tile_codes;    /* vectors of columns, likewise; a step is a block of codes of few bits */
extern const struct tile_leaf tile_code_dots; /* likewise, by products of bytes with a left operand that is rounded */
extern const struct tile_leaf tile_rows;     /* vectors of rows along x; a column's element is spread to all lanes */
extern const struct tile_leaf tile_terms;    /* vectors of terms: accumulators are partial sums of one result */
extern const struct tile_leaf tile_channels; /* vectors of rows that are columns, too: each row's vectors meet the same columns alone */

/* How a target multiplies: the leaf for the operands, and the terms that its step adds. Multiply-adds, 1 term, where no other instruction is better. */
struct tile_product { const struct tile_leaf *leaf; i64 terms, group, sums; }; /* group: neighbouring terms of a column; sums: of an accumulator, 0: 1 */
extern const struct tile_product tile_multiply_add;
struct tile_product tile_product_of(const struct caps *c, const struct tile_operands *o);
/* Likewise for addressings whose tiles may have 16 rows and more: a matrix unit, if there is one. */
struct tile_product tile_product_of_rows(const struct caps *c, const struct tile_operands *o);
bool tile_is_matrix(struct tile_product p);
i64 tile_unit(struct tile_product p); /* rows that a matrix unit multiplies at once; of other instructions 1 */

void tile_open(struct tile *t);                                   /* allocates the accumulators */
/* For tiles that are stored through an epilogue, to the outputs or to the scratch memory of a value: allocates memory for a loop over
   them where it is long. */
void tile_loop_epilogue(struct tile *t, value_id anchor, u32 c_axis, value_id of);
/* Accumulators begin with the bias (0: zeros) of the channels from c on; end: behind the last that exists, 0: all of them do. */
void tile_clear(const struct tile *t, value_id bias, kval c, kval end);
void tile_step(const struct tile *t, const struct tile_in *a, kval b, kval b_at);
/* n steps, whose elements of the left operand lie `step` apart from a.at on, and of b behind each other from b_at on; ku of them in an iteration of
   a loop, the rest behind it. ku 0: all are written out. */
void tile_steps(const struct tile *t, struct tile_in a, kval step, kval b, kval b_at, i64 n, i64 ku);
/* Likewise for a number of steps that need not be known. */
struct tile_run {
    struct tile_in a;
    kval a_step;           /* of the left operand, from one step to the next */
    kval b, b_at, b_step;  /* right one */
    kval n;                /* steps */
    i64 ku;                /* of them in an iteration; those behind it are a loop of their own */
    bool exact;            /* ku divides their number */
    void (*ask)(void *user, const struct tile *t, const struct tile_in *a, kval i); /* prefetches in an iteration, before its first step, i; NULL: not */
    void *user;
};
void tile_run(const struct tile *t, const struct tile_run *r);
void tile_resume(const struct tile *t, const struct tile_out *o); /* accumulators begin with what an earlier tile left in o->temp */
void tile_prefetch(const struct tile *t, const struct tile_out *o); /* asks for it */
kval tile_full(const struct tile *t, const struct tile_out *o);   /* all its pixels exist? 0: always */
void tile_store(const struct tile *t, const struct tile_out *o);
/* The tile to memory as [dy][column][dx]: element at + dx*step of every column, which lie `pitch` elements apart. Only the first n columns are needed. */
void tile_transpose(const struct tile *t, kval to, i64 at, i64 step, i64 pitch, i64 n);
i64 tile_rows_size(const struct tile *t);                         /* elements of tile_out.rows */
bool tile_is_legal(const struct caps *c, i64 pixels, i64 nr);     /* fits the registers and is worth it */
bool tile_is_legal_by(const struct caps *c, struct tile_product p, i64 pixels, i64 nr); /* likewise, by another instruction than multiply-adds */

/* tile_terms.c: adds up the lanes of the accumulators, for tile_terms's store: rows x, x + 1 ... of a tile that is `lanes` rows wide. */
void tile_collect(const struct tile *t, kval x);
i64 tile_collected_size(const struct tile *t);

enum { TILE_COLUMNS = 8 }; /* nr, at most */

/* tile_codes.c: codes of few bits as floats. */
enum { CODE_UNIT = 16, CODE_POSITIONS = 4 }; /* terms of a unit, at most; powers of two that codes become the last bits of */
struct code_block { kval scale[TILE_COLUMNS], zero[TILE_COLUMNS][CODE_POSITIONS]; }; /* vectors of columns */
struct code_place { kval array, at; i64 width; u32 lanes; }; /* first element of a unit; columns that lie side by side */
i64 code_bits(enum dtype t);        /* that a code has in memory */
i64 code_unit(enum dtype t);        /* terms of a unit */
i64 code_per_element(enum dtype t); /* terms that an element of the array has: words of u32 do, or codes of 8 bits themselves */
/* Scales and zero points of nr vectors of columns, from element `at` of their arrays on. */
void code_block_open(struct code_block *b, struct emit *m, const struct tile_codes *c, kval at, i64 nr, u32 lanes);
/* Vector j of the columns of all terms of a unit, less zero points. */
void code_unit_load(struct emit *m, const struct tile_codes *c, const struct code_block *b, const struct code_place *p, i64 j, kval out[CODE_UNIT]);
/* Prefetches the unit that lies t->ahead units behind the one that begins at `at`; element: bytes of one of the array. */
void code_unit_ask(const struct tile *t, kval array, kval at, i64 element);

/* tile_code_dots.c: the target has products of bytes that suit such codes. */
bool code_dots_suit(const struct caps *c, enum dtype codes);
/* It has none, but products of pairs of i16: they suit left operands of one or two digits. */
bool code_words_suit(const struct caps *c, enum dtype codes);
/* Digits of a left operand in fixed point: the first one has 7 bits and the sign, others so many. Of CODE_DIGITS the block's largest element has 21 to 22 bits,
   as many as matter in a sum in f32. */
enum { CODE_DIGITS = 3 };
static inline i64 code_digit_bits(i64 digits) { return digits > 2 ? 8 : 7; }
/* Sums of a block's integers: one; of three digits one of the first two, and one of the last. What they are multiplied by: -zero point, if it is one for all. */
static inline i64 code_left_sums(i64 digits) { return digits > 2 ? 2 : 1; }
i64 code_dots_offset(const struct tile_codes *c);
static inline bool tile_has_codes(const struct tile_leaf *l) { return l == &tile_codes || l == &tile_code_dots; }

/* For leaves. */
kval tile_acc(const struct tile *t, i64 row, i64 j); /* number of an accumulator */
static inline i64 tile_ahead(const struct tile *t, i64 j) { return t->ahead * (t->pitch ? t->pitch : t->nr) + j; } /* vector j of the step to ask for */
static inline bool tile_takes_part(const struct tile_in *a, i64 row) { return !a->px || a->px[row]; }
kval tile_outside(struct kir *k, const struct tile_in *a, enum dtype d); /* as type d */
kval tile_row_at(const struct tile *t, const struct tile_in *a, i64 row); /* element of a row */
/* The products of all rows that take part with the nr vectors of the right operand: `left` loads what a row has at an element, `multiply` adds. */
void tile_add(const struct tile *t, const struct tile_in *a, const kval *right, kval (*left)(const struct tile *t, const struct tile_in *a, kval at),
              kval (*multiply)(struct kir *k, kval left, kval right, kval sum));
bool tile_open_row(const struct tile *t, const struct tile_out *o, i64 dy); /* opens a condition that the row exists; false: there is none, it does */
/* Stores a vector of pixels along x of column c: those that exist. */
void tile_store_along(const struct tile *t, const struct tile_out *o, i64 dy, i64 dx, i64 c, kval sum);

#endif
