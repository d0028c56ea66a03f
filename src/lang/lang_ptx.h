// SPDX-License-Identifier: Apache-2.0
//
// Private to language ptx: the function under construction and its shared parts. lang_ptx_ins.c emits
// instructions, lang_ptx_op.c scalar operators, lang_ptx_cast.c conversions; lang_ptx_value.c has the lanes
// of values, lang_ptx_thread.c numbers of threads, lang_ptx_array.c addresses, lang_ptx_reg.c arrays of
// registers, lang_ptx_mem.c accesses; lang_ptx_layout.c and _frag.c fragments, lang_ptx_tile.c tile copies,
// lang_ptx_group.c exchange within subgroups, lang_ptx_body.c traverses a kernel. Only these files, lang_ptxas.c
// and ptx.c include this header.
//
// The assembler optimises within a loop body but moves little out of it and shares little between blocks.
// Therefore an instruction without effects goes to the outermost structure that has its operands, once.
// Every open structure has its own text, which is appended to that of the enclosing structure when it is
// closed: an instruction that is appended to an outer text thus precedes the loop.
#ifndef QUERN_LANG_PTX_H
#define QUERN_LANG_PTX_H

#include "lang/lang_gpu.h"

typedef u32 pval; /* number of a register or constant, 0 = none */

enum ptx_class { /* of registers */
    PC_PRED,   /* bool */
    PC_HALF,   /* 16 bits, within conversions only */
    PC_WORD,   /* integers up to 32 bits, extended by their sign; narrow indices; f16 and bf16: their bits */
    PC_LONG,   /* 64-bit integers, addresses */
    PC_FLOAT,
    PC_DOUBLE,
    N_PTX_CLASSES,
};

struct ptx_def {
    enum ptx_class cls;
    bool is_imm;  /* a constant: bits; WORD: extended by its sign */
    u32 level;    /* of the structure where it is known */
    u32 n;        /* number of the register in its class */
    u64 bits;
};

struct ptx_entry { /* an instruction whose result may be used again */
    u64 hash;
    const char *op; /* NULL: no longer, its structure was closed */
    pval arg[4], result;
    u32 next, peer; /* of the same bucket, of the same structure */
};

struct ptx_level { /* an open structure */
    kval open;         /* LOOP, IF; 0: the function */
    bool is_branch;
    struct buf code, other; /* its text; of an IF with ELSE: the text before the ELSE */
    pval counter, cond; /* of LOOP and IF */
    u32 label;         /* two labels from here on */
    u32 entries;       /* the newest */
    bool is_divided;   /* ELSE was met */
};

enum ptx_space { PX_GLOBAL, PX_SHARED, PX_LOCAL, PX_REG };

struct ptx_array {
    enum ptx_space space;
    bool is_constant;  /* an IN argument */
    u32 size, unit;    /* bytes of an element's lane in memory; lanes of an element */
    i64 count;         /* REG: elements */
    i64 at;            /* bytes from the beginning of its memory */
    pval base;         /* address; 0: not used yet */
    pval *var;         /* REG: registers of the elements, one after the other */
};

struct ptx {
    const struct kir *k;
    const struct caps *caps;
    struct arena *arena;
    struct err *err;      /* sticky */
    struct text *facts;   /* uses of values, width of indices (lang_text.c) */
    i64 arch;             /* 80 of sm_80 */
    u32 group[3];         /* threads of a workgroup */

    /* of the function being written */
    struct str name;
    struct { struct ptx_def *v; u32 n, cap; } def; /* v[0] unused */
    struct { struct ptx_entry *v; u32 n, cap; } entry; /* v[0] unused */
    u32 *bucket;
    struct { struct ptx_level *v; u32 n, cap; } level;
    u32 n_reg[N_PTX_CLASSES], n_label;
    struct buf memory;    /* declarations of shared and local arrays */
    const char *shared;   /* name of the dynamic block of shared memory; NULL: static arrays */
    kval from, to;        /* instructions of the grid */
    pval made, ended, objects; /* tile copies: groups closed, groups awaited, first barrier object */

    /* by kval */
    u32 *lane_at, *word_at; /* first lane and first packed word in lane[] and word[] */
    pval *lane, *word;
    struct ptx_array *array;
    kval *last;           /* last use, that of the loops that contain it included */
    kval *into;           /* an array of registers that the result is computed in; 0: none */
};

enum { PTX_BUCKETS = 4096, PTX_MAX_STATIC = 48 << 10 /* bytes of shared memory beyond which they are dynamic */ };

/* lang_ptx_ins.c */
bool ptx_fail(struct ptx *s, const char *what); /* "kernel 'x' WHAT"; false */
pval ptx_new(struct ptx *s, enum ptx_class c);  /* a register of the current structure */
pval ptx_same(struct ptx *s, pval x);           /* the register under another number, known in the current structure only */
pval ptx_imm(struct ptx *s, enum ptx_class c, u64 bits);
pval ptx_int(struct ptx *s, enum ptx_class c, i64 v); /* WORD or LONG */
bool ptx_is_int(const struct ptx *s, pval x, i64 *v);
enum ptx_class ptx_class(const struct ptx *s, pval x);
/* The result of an instruction without effects; operands end at the first 0. */
pval ptx_ins(struct ptx *s, enum ptx_class c, const char *op, const pval arg[4]);
#define PTX_INS(s, c, op, ...) ptx_ins((s), (c), (op), (const pval[4]){__VA_ARGS__})
/* The same in a given register, here. */
void ptx_to(struct ptx *s, pval result, const char *op, const pval arg[4]);
#define PTX_TO(s, result, op, ...) ptx_to((s), (result), (op), (const pval[4]){__VA_ARGS__})
/* A value that is the same in the whole function: "mov.u32" of "%tid.x". */
pval ptx_source(struct ptx *s, enum ptx_class c, const char *op, const char *from);
/* Text here, as a line or a part of one. %r in the format is the next operand, a pval; %d, %s and %l (an i64) as in printf. */
void ptx_line(struct ptx *s, const char *fmt, ...);
void ptx_put(struct ptx *s, const char *fmt, ...);
pval ptx_reg(struct ptx *s, pval x);            /* in a register, if it is a constant */
void ptx_open(struct ptx *s, kval open, bool is_branch);
void ptx_close(struct ptx *s, struct ptx_level *l); /* what is known in the innermost structure is dropped; its text is the caller's */
void ptx_append(struct ptx *s, struct buf *text);   /* here; releases it */
void ptx_forget(struct ptx *s);                 /* ends what is known in the innermost structure, which goes on: ELSE */
struct ptx_level *ptx_inner(struct ptx *s);
u32 ptx_labels(struct ptx *s, u32 n);
pval ptx_add(struct ptx *s, pval a, pval b);    /* WORD or LONG, both alike */
pval ptx_times(struct ptx *s, pval a, i64 n);
pval ptx_mask(struct ptx *s, pval a, i64 mask);
pval ptx_shr(struct ptx *s, pval a, u32 n);     /* unsigned */
pval ptx_resize(struct ptx *s, pval x, enum ptx_class to); /* index: WORD or LONG */

/* lang_ptx_op.c: operators on lanes of type t. */
const char *ptx_opcode(enum kir_op op, enum dtype t, enum ptx_class c); /* of a single instruction; NULL: none */
pval ptx_scalar(struct ptx *s, enum kir_op op, enum dtype t, const pval x[3]);
pval ptx_wrap(struct ptx *s, enum dtype t, pval x); /* a WORD to the range of a small type */
pval ptx_divide(struct ptx *s, enum kir_op op, pval a, pval b); /* DIV or MOD of nonnegative indices */

/* lang_ptx_cast.c */
pval ptx_cast(struct ptx *s, enum dtype from, enum dtype to, pval x, enum ptx_class c);
pval ptx_bits(struct ptx *s, enum dtype from, enum dtype to, pval x);
pval ptx_from_half(struct ptx *s, enum dtype t, pval x);  /* bits to FLOAT */
pval ptx_to_half(struct ptx *s, enum dtype t, pval x);    /* FLOAT to bits */
pval ptx_to_halves(struct ptx *s, enum dtype t, pval lo, pval hi); /* to a word of two */
pval ptx_half_of(struct ptx *s, enum dtype t, pval word, u32 i);   /* half i of a word to FLOAT */

/* lang_ptx_value.c */
enum ptx_class ptx_class_of(const struct ptx *s, kval v); /* of a lane; of an element of an array in a register */
enum ptx_class ptx_class_for(enum dtype t);
bool ptx_is_small(enum dtype t);                /* less than a word, and not bool: may exist as packed words */
bool ptx_is_derived(const struct kir *k, kval v); /* follows from other values, emitted where it is used */
void ptx_number(struct ptx *s);                 /* the memory of lanes and words */
pval ptx_lane(struct ptx *s, kval v, u32 i);
pval ptx_lane_as(struct ptx *s, kval v, u32 i, enum ptx_class c); /* of an index: WORD or LONG */
pval ptx_word(struct ptx *s, kval v, u32 i);    /* packed lanes */
bool ptx_has_words(const struct ptx *s, kval v);
void ptx_set(struct ptx *s, kval v, u32 i, pval x);
void ptx_set_word(struct ptx *s, kval v, u32 i, pval x);
pval *ptx_frag(struct ptx *s, kval v);          /* the registers of a fragment */
pval ptx_pack(struct ptx *s, u32 size, const pval *lane); /* a word of lanes of that many bytes */

/* lang_ptx_array.c */
struct ptx_place { pval base; i64 offset; };    /* an address: register, and bytes */
i64 ptx_arrays(struct ptx *s);                  /* of the grid's function; returns the bytes of its shared ones */
struct ptx_place ptx_address(struct ptx *s, kval array, kval index, u32 i); /* of lane i */
/* Of a scalar index plus a number of elements in a register, 0: none, and a constant one. */
struct ptx_place ptx_address_from(struct ptx *s, kval array, kval index, pval elements, i64 more);
/* The place that a swizzled array's index would have without swizzling. */
struct ptx_place ptx_address_plain(struct ptx *s, kval array, kval index);
const char *ptx_space_name(const struct ptx *s, kval array); /* "global" */

/* lang_ptx_reg.c: arrays of registers. */
void ptx_find_in_place(struct ptx *s);          /* once per kernel: last and into */
void ptx_alloc(struct ptx *s, kval v);
pval *ptx_reg_at(struct ptx *s, kval array, kval index); /* registers of an element; NULL: an error */
void ptx_reg_load(struct ptx *s, kval v);
void ptx_reg_store(struct ptx *s, kval v);
pval ptx_into(struct ptx *s, kval v, u32 i);    /* the register for lane i of the result; 0: a new one */

/* lang_ptx_mem.c */
void ptx_load(struct ptx *s, kval v);
void ptx_store(struct ptx *s, kval v);
void ptx_await(struct ptx *s, kval v);

/* lang_ptx_thread.c */
pval ptx_thread(struct ptx *s);                 /* number in the workgroup */
pval ptx_subgroup(struct ptx *s, bool is_lane); /* the thread's number in its subgroup, or that of the subgroup */

/* lang_ptx_group.c */
void ptx_collective(struct ptx *s, kval v);     /* SGADD, SGMIN, SGMAX, SHUFFLE */

/* lang_ptx_layout.c: fragments. The position of element i of n is a part of the thread's number and a constant. */
struct ptx_layout {
    u32 n;             /* 0: unsupported */
    enum { PTX_BY_QUAD, PTX_BY_FOURTH, PTX_BY_PAIR } row, col; /* lane / 4; lane % 4; lane % 4 * 2 */
    bool is_down;      /* elements 2i and 2i + 1 are neighbours in a column */
};
struct ptx_layout ptx_layout(const struct ptx *s, const struct kir_ins *x);
void ptx_offset(const struct ptx *s, const struct kir_ins *x, u32 i, i64 *row, i64 *col); /* the constants */
bool ptx_is_described(const struct ptx *s, const struct kir_ins *x); /* an operand of warpgroups in shared memory: no registers */
u32 ptx_frag_size(const struct ptx *s, const struct kir_ins *x); /* registers of a fragment; 0: unsupported */
enum ptx_class ptx_frag_class(const struct kir_ins *x);

/* lang_ptx_frag.c */
void ptx_frag_op(struct ptx *s, kval v);        /* FILL, FLOAD, FSTORE, FMMA, CAST, ADD */

/* lang_ptx_tile.c */
void ptx_tile_open(struct ptx *s, i64 at);      /* at: bytes of shared arrays before the barrier objects */
void ptx_tile(struct ptx *s, kval v);
void ptx_tile_await(struct ptx *s, i64 newest);

/* lang_ptx_body.c: all functions of a kernel. */
void ptx_kernel(struct ptx *s, struct buf *out);

/* lang_ptxas.c: NVIDIA's assembler: the library nvJitLink, else the program ptxas; ERR_SYSTEM: neither. */
bool ptxas_build(struct buf *binary, struct str text, const struct caps *c, double timeout, struct err *e);
bool ptxas_toolchain(struct buf *out, struct err *e);

#endif
