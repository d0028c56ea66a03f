// SPDX-License-Identifier: Apache-2.0
//
// lang_text: kernel IR as text of a language of the C family. The shared emitter (lang_text.c)
// names values, nests small expressions, traverses structures and collects the helper functions a
// text needs; a language provides a struct text_style of tables and a few functions. Private to
// this folder.
#ifndef QUERN_LANG_TEXT_H
#define QUERN_LANG_TEXT_H

#include "lang/lang.h"

/* A helper function that emitted text may call, `q_NAME_TYPE(...)`, written out once per type used.
   In texts: $F name of the function   $V the type   $E element type   $N lanes   $I $U signed,
   unsigned integer type of the same lanes and width   $e $i $u their elements   $W unsigned element
   type of arithmetic (>= 32 bit) $X the second type   $H u16 of the same lanes   $B $b bytes, bits
   $T the suffix   $m $f before and behind the name of a function of the language's library   $0 infinity
   $s bits per element   $A "x, x, ..." N times $M makes a mask of a comparison: - before a scalar's
   0 or 1, nothing before a vector's 0 or -1. */
struct text_helper {
    const char *name;
    u32 types;          /* set of 1 << enum dtype that it supports */
    const char *scalar; /* definition for one element; NULL: none */
    const char *
        vector; /* definition for lanes > 1; NULL: the scalar one for every lane, with n_args arguments */
    u8 n_args;
    const char *across; /* reduction of all lanes by halving: lane i (x) and lane i + N/2 (y) become this
                           expression, and so on */
    const char *needs; /* space-separated helpers of the same type that must precede it */
};

/* Sets of types of helpers. */
enum {
    T_F32 = 1 << DT_F32,
    T_F64 = 1 << DT_F64,
    T_FLOAT = T_F32 | T_F64,
    T_UINT = 1 << DT_U8 | 1 << DT_U16 | 1 << DT_U32 | 1 << DT_U64,
    T_SINT = 1 << DT_I8 | 1 << DT_I16 | 1 << DT_I32 | 1 << DT_I64,
    T_INT = T_UINT | T_SINT,
    T_NUMBER = T_FLOAT | T_INT,
    T_I64 = 1 << DT_I64,
    T_BOOL = 1 << DT_BOOL,
    T_BYTES1 = 1 << DT_U8 | 1 << DT_I8,
    T_BYTES2 = 1 << DT_U16 | 1 << DT_I16,
    T_BYTES4 = 1 << DT_U32 | 1 << DT_I32 | T_F32,
    T_BYTES8 = 1 << DT_U64 | 1 << DT_I64 | T_F64,
};

struct text;

struct text_style {
    const struct text_helper *helper; /* take precedence over text_helpers; ends with a NULL name; optional */
    const char *function;             /* before a helper: "static inline ..." */
    const char *math, *math_end[2];   /* around the name of a library function: f32, f64 */
    const char *infinity[2], *nan[2]; /* of f32, f64 */
    bool has_vectors; /* vector arithmetic is written like scalar arithmetic; otherwise a vector is a scalar per
                         lane */
    enum dtype index; /* representation of i64 that is not data: numbers of elements and iterations */
    struct str (*load)(struct text *t, kval v);        /* as an expression */
    bool (*load_lanes)(struct text *t, kval v);        /* as statements that define its lanes; false: it is an
                                                          expression; optional */
    void (*store)(struct text *t, kval v);
    void (*prefetch)(struct text *t, kval v);
    void (*alloc)(struct text *t, kval v);
    void (*loop_hint)(struct text *t, const struct kir_ins *loop); /* before a for; optional */
    struct str (*dot)(struct text *t, kval v);         /* DOT and MMLA, without vectors of lane t->lane; NULL: calls of a helper */
    struct str (*thread)(struct text *t, kval v);      /* THREAD, SUBGROUP and subgroup operations; optional */
    void (*barrier)(struct text *t);                   /* optional */
    void (*await)(struct text *t, kval v);             /* optional: otherwise stores of copies are synchronous */
    void (*tile)(struct text *t, kval v);              /* TILE; NULL: unsupported */
    struct str (*frag)(struct text *t, kval v);        /* a fragment as an expression; these three optional
                                                          together */
    struct str (*frag_type)(struct text *t, const struct kir_ins *x); /* of one, or of an array's elements */
    void (*frag_store)(struct text *t, kval v);
    bool (*statement)(struct text *t, kval v);         /* called before an instruction's statement, in order;
                                                          true: it emitted the statement; optional */
};

struct text_value { /* the emitter's facts about an instruction */
    u32 uses;       /* number of operands that refer to it */
    u32 block;      /* innermost enclosing structure */
    u8 size;        /* nodes of its expression if it is nested into its user */
    u8 mask;        /* bytes per lane of a vector of bool, represented as 0 and -1 */
    bool nested;    /* nested: has no name of its own */
    bool is_data;   /* an integer that came from memory: must wrap */
    bool is_wide;   /* an i64 that may exceed the style's index */
    bool is_spread; /* a scalar whose name is that of a vector of it, which its users, all of them SPLAT, stand for */
};

struct text {
    const struct text_style *style;
    const struct kir *k;
    const struct caps *caps;
    struct arena *arena;         /* for expressions */
    struct buf *out;             /* statements of the current function */
    struct buf prelude;          /* helper functions */
    struct buf types;            /* definitions of vector types */
    struct map known;            /* helpers and types that are defined already */
    struct text_value *val;      /* by kval */
    bool *param_used, *buf_used; /* by number, of the current function */
    u32 depth;                   /* indentation */
    u32 lane;                    /* without vectors: the current lane of expressions */
    struct err *err;             /* sticky */
    bool has_math;               /* it mentions names of the language's library: functions, infinity, NaN */
    void *own;                   /* the language's */
};

void text_open(struct text *t, const struct kir *k);
void text_close(struct text *t);
struct str text_value(struct text *t, kval v); /* an operand: a name or a parenthesised expression */
struct str text_bare(struct text *t, kval v);  /* the same without parentheses, between separators */
struct str text_type(struct text *t, enum dtype d,
                     u32 lanes); /* defines it on first use; bool: the mask of bytes */
struct str text_value_type(struct text *t, kval v);
struct str text_name(struct text *t, kval v);  /* of a value; of its lane t->lane without vectors */
struct str text_array_name(struct text *t, kval v); /* of a BUF, which is noted as used, or an ALLOC: "b_x", "w12" */
enum dtype text_dtype(const struct text *t, kval v); /* type of v in the text: i64 may become the style's index */
struct str text_mask(struct text *t, kval v,
                     u32 bytes);   /* a vector of bool with lanes of that many bytes */
enum dtype text_rep(enum dtype d); /* its representation: u16 for f16 and bf16 */
/* q_NAME_TYPE, defined on first use; other = $X. */
struct str text_helper(struct text *t, const char *name, enum dtype d, u32 lanes, enum dtype other);
struct str text_fmt(struct text *t, const char *fmt, ...) QUERN_PRINTF(2, 3);
void text_line(struct text *t, const char *fmt, ...) QUERN_PRINTF(2, 3);
/* The statements of instructions from..to-1. */
void text_body(struct text *t, kval from, kval to);
/* Whether the target has DOT or MMLA v as an instruction. */
bool text_has_dot(const struct caps *c, const struct kir *k, kval v);
void text_comment(struct buf *b, struct str s); /* untrusted text, made safe inside a comment */
kval text_end(const struct kir *k, kval open);  /* the END that closes a structure */
/* The dimensions of a grid, outermost first; returns their number. body_end: the first of the ENDs
   that close it. */
u32 text_grid(struct text *t, kval open, kval dim[3], kval *body_end);
/* A parameter's text as a comment. */
struct str text_param_note(struct text *t, u32 param);

/* struct text.own of language c. */
struct c_own {
    bool *is_sum;              /* per ALLOC: a variable that is unsigned in the text (c.c) */
    struct tiles *tiles;       /* of the function at hand (lang_c_tile.c) */
    struct in_order *in_order; /* of a processor that executes in order (c.c), else NULL */
};

/* lang_c_tile.c: fragments of language c, tile registers of a processor. */
bool c_tile_check(const struct kir *k, kval v, struct err *e); /* of an instruction of fragments */
/* A function of the grid from..end; array: the name of an array. */
void c_tile_open(struct text *t, kval from, kval end, struct str (*array)(struct text *t, kval v));
bool c_tile_statement(struct text *t, kval v);                 /* text_style.statement */
bool c_tile_in_use(const struct text *t);                      /* by the statements since c_tile_open */
void c_tile_functions(struct buf *out);

/* lang_c_join.c: lang.join_program */
void c_join(struct buf *out, const struct str *text, u32 n);

/* Follows the name in the initial comment of a C text whose kernel rounds as written: contraction within an expression only. */
#define TEXT_AS_WRITTEN ", rounds as written"
/* lang_cc.c: the system's C compiler, as lang.build and lang.toolchain. */
bool lang_cc_build(struct buf *binary, struct str text, const struct caps *c, double timeout,
                   struct err *e);
bool lang_cc_toolchain(struct buf *out, const struct caps *c, struct err *e);

extern const struct text_helper text_helpers[]; /* lang_math.c: of all languages */

#endif
