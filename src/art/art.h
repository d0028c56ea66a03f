// SPDX-License-Identifier: Apache-2.0
//
// art: the program as plain data, and its file. A plan is dispatches and buffers in order with sizes still symbolic; a .dnx
// file is a plan with weights and binaries: a valid safetensors file whose __metadata__ holds the plan as JSON text
// (doc/dnx.md is normative). Reading treats the file as hostile: every offset, index and expression is checked before use.
// Nothing here knows of graphs, kernel IR or devices.
#ifndef QUERN_ART_H
#define QUERN_ART_H

#include "core/core.h"

enum plan_buf_kind {
    PB_INPUT,  /* the caller's, one per interface input */
    PB_OUTPUT, /* the caller's, one per interface output */
    PB_CONST,  /* content in the file, already in the kernel's layout */
    PB_TEMP,   /* between dispatches first..last; memory is shared by lifetimes when sizes are bound */
    PB_HELD,   /* likewise, in memory of the call that makes it: its size may be known only behind that */
    N_PLAN_BUF_KINDS
};

struct plan_buf {
    enum plan_buf_kind kind;
    struct str name;     /* of the value, for people and profiles */
    sym size;            /* bytes */
    u32 first, last;     /* dispatches that use it, both included */
    const void *data;    /* PB_CONST: content (arena or mapped file), 64-byte aligned in a file */
    i64 data_size;
    struct hash content; /* PB_CONST: of data */
};

struct plan_bin {
    struct str lang;     /* "c", "kir" */
    struct str code;     /* the binary's bytes */
    struct hash content;
};

struct plan_grid { sym extent[3]; }; /* x, y, z: innermost first; unused dimensions: constant 1 */

/* A dispatch that runs other plans: a loop, or one of two branches. Each plan's inputs are `in` behind each other; its outputs are, for a
   conditional loop, whether there is another round, then what is carried (the first inputs of the next round), then what the rounds
   give, which is stacked; a branch's are its results. */
struct plan_give { u32 var; sym value; }; /* size of the plan that is run, and what it is in this one */
struct plan_call_in { u32 buf; u32 rank; sym dim[MAX_RANK]; };
struct plan_call {
    bool is_loop, is_conditional;
    u32 cond;            /* buffer of a bool: the loop begins, else/then; UINT32_MAX: a loop does */
    sym rounds;          /* of a loop: at most; 0 for a branch */
    u32 n_carried;
    struct plan_call_in *in; u32 n_in;
    u32 *out;   u32 n_out; /* buffers; UINT32_MAX: not wanted */
    u32 sizes;           /* buffer of i64 that receives sizes of results; UINT32_MAX: none */
    u32 *size;  u32 n_size; /* pairs of result and axis */
    struct plan *sub[2]; u32 n_sub; /* else, then */
    struct plan_give *give[2]; u32 n_give[2];
};

enum { PLAN_MAX_DEPTH = 16 }; /* of plans in plans */

struct plan_dispatch {
    struct plan_call *call; /* NULL: a kernel. Else bin, entry, param, grid and work mean nothing; buf lists its buffers, each once */
    u32 bin;             /* index */
    struct str entry;    /* kernel name in the binary */
    struct str label;    /* names of the graph's nodes, joined by '+' */
    struct str ops;      /* their operators, joined likewise, views left out; "layout" for a copy; empty: not known */
    struct str layer;    /* what it stands for: names of those nodes that take most of its operations; empty: not known */
    struct str task;     /* hex key */
    struct str candidate; /* text, see gen.h */
    struct str device;   /* name of the driver it was chosen for */
    double seconds;      /* cost it was chosen by, for the sizes in plan.var; 0 = none */
    bool is_measured;    /* seconds comes from measurements, not from the model */
    u32 *buf;   u32 n_buf;
    sym *param; u32 n_param;
    bool *is_value;      /* per parameter: no size, nothing bounds it, see bound.c; NULL: unknown, the file is from before they were told apart */
    struct plan_grid *grid; u32 n_grid;
    sym work;            /* bytes of scratch memory of one worker */
    sym flops;           /* 0 = unknown */
};

struct plan_io {
    struct str name;
    enum dtype dtype;
    u32 rank;
    sym dim[MAX_RANK];
    u32 buf;
    struct str layout;   /* what the axes are, where the caller asked for a layout: "HWC" "CHW" "CHWC8" "NWC" "NHWC" "NDHWC"; empty: as the network has them */
};

/* A size that is made while the program runs: from an integer element of a buffer, read on the host before dispatch `at`, or from
   other sizes. Negative sizes and those beyond `most` are errors of the run. */
enum plan_take {
    PLAN_TAKE,  /* the element itself */
    PLAN_PLUS,  /* max(element, 0) */
    PLAN_MINUS, /* max(-element, 0) */
    N_PLAN_TAKES
};

struct plan_made {
    u32 var;             /* index */
    u32 at;              /* all dispatches before this one have run; never less than the one before has */
    sym expr;            /* 0: from a buffer */
    u32 buf;
    enum dtype dtype;    /* of the buffer's elements: integers */
    i64 elem;
    enum plan_take take; /* elements count as 2^40 where larger */
    sym most;            /* 0: no bound known */
    struct sym_fact need; /* for messages: what needs it, and (a not 0) what must hold for it to be a size */
};

struct plan_var { i64 optimised_for; }; /* value that costs refer to; INT64_MIN: none */

struct plan {
    struct arena *arena;
    struct symtab sym;   /* variables occur in inputs' dims; all expressions refer to it. Its facts must hold, none is used */
    struct { struct plan_var *v; u32 n, cap; } var; /* parallel to sym.var */
    struct str model;    /* name of the network, no path */
    struct str caps;     /* required limits: caps text of the target */
    struct str isa;      /* instructions that native code in it may use: isa_print_all's words; empty: it has none, or does not say */
    struct str fingerprint; /* device and driver the times were measured on; empty: none */
    struct { struct plan_io *v; u32 n, cap; } input, output;
    struct { struct plan_made *v; u32 n, cap; } made; /* in order */
    struct { u32 *v; u32 n, cap; } given; /* of a plan in a call: variables whose values the call says */
    struct { struct plan_buf *v; u32 n, cap; } buf;
    struct { struct plan_bin *v; u32 n, cap; } bin;
    struct { struct plan_dispatch *v; u32 n, cap; } dispatch;
    struct str explain;  /* JSON written by the selector: what was compared; empty: none */
    const struct plan *also; /* the next variant of the program, for another instruction set: same inputs, outputs and model. NULL: no more */
};

/* Per variable: the first dispatch before which it is known, 0 for those that inputs bind; UINT32_MAX: never. */
u32 *plan_known_at(const struct plan *p, struct arena *a);
u32 plan_sym_at(const struct plan *p, const u32 *known, sym s); /* likewise of an expression */
/* Sizes of inputs, and values of given variables -> values of variables; contradictions are left to the caller, INT64_MIN is not bound.
   in NULL: all sizes 0, to see what is bound. */
void plan_bind(const struct plan *p, const struct tensor *in, const i64 *given, i64 *var);
bool plan_has_calls(const struct plan *p);
void plan_call_buffers(struct plan_dispatch *d, struct arena *a); /* fills d->buf */
bool plan_same_interface(const struct plan *p, const struct plan *q); /* as variants of one program have */
bool plan_verify(const struct plan *p, struct err *e);   /* indices, lifetimes, expressions' variables, sizes of constants */

/* bound.c: iterations of a grid, and the size that a parameter says, are at most this for buffers of so many bytes together; is_empty: one of
   them has none. */
i64 plan_most_rounds(i64 bytes, bool is_empty);
i64 plan_most_size(i64 bytes, bool is_empty);
bool plan_size_is_over(const struct plan_dispatch *d, u32 param, i64 x, i64 most); /* or below -most, and no value */
void plan_find_values(struct plan *p); /* fills in is_value of all dispatches */

/* dnx.c: same plan, same bytes. With all its variants. */
bool dnx_write(const struct plan *p, struct buf *out, struct err *e);
/* The file in pieces, which lie in the plan and in the arena: constants are not copied. */
bool dnx_pieces(const struct plan *p, struct arena *a, struct str **piece, i64 *n, struct err *e);
/* Which variant is wanted, by the words of their plans' isa, in the file's order; n or more: none, the error is set. */
typedef u32 dnx_choose_fn(void *user, const struct str *isa, u32 n, struct err *e);
/* bytes must stay valid as long as the plan: constants and code point into it. Only the variant that is wanted is looked at. */
bool dnx_read_variant(struct plan *p, struct arena *a, struct str bytes, dnx_choose_fn *choose, void *user, struct err *e);
bool dnx_read(struct plan *p, struct arena *a, struct str bytes, struct err *e); /* all of them: p is the first, p->also the others */

/* dnx_sign.c: a file's signatures, sorted by key. */
enum { DNX_MAX_SIGNATURES = 10 };
struct dnx_signature { u8 key[SIGN_KEY_BYTES], signature[SIGN_BYTES]; bool is_right; /* once it was checked */ };
struct dnx_signatures { struct dnx_signature v[DNX_MAX_SIGNATURES]; u32 n; };
/* What the bytes have, not checked yet; n 0: they are not signed. bytes may be anything. */
bool dnx_signatures(struct dnx_signatures *s, struct str bytes, struct err *e);
/* Fills is_right. false: they cannot be checked here. */
bool dnx_check_signatures(struct dnx_signatures *s, struct str bytes, struct err *e);
/* Checked ones: all are right, and one is of a key of the list, of which `by` is then the index. */
bool dnx_trusted(const struct dnx_signatures *s, const u8 (*key)[SIGN_KEY_BYTES], u32 n, u32 *by, struct err *e);
/* An artifact, which dnx_read accepts, with the signature of one more key; only: without those that it has. */
bool dnx_sign(struct buf *out, struct str bytes, const u8 secret[SIGN_KEY_BYTES], bool only, struct err *e);

#endif
