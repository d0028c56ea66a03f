// SPDX-License-Identifier: Apache-2.0
//
// art: the program as plain data, and its file. A plan is dispatches and buffers in order with symbolic
// sizes; a .dnx file is a plan with weights and binaries: a valid safetensors file whose __metadata__
// holds the plan as JSON text (doc/dnx.md is normative). Files are untrusted: every offset, index and
// expression is checked before use. Nothing here knows of graphs, kernel IR or devices.
#ifndef QUERN_ART_H
#define QUERN_ART_H

#include "core/core.h"

enum plan_buf_kind {
    PB_INPUT,  /* the caller's, one per interface input */
    PB_OUTPUT, /* the caller's, one per interface output */
    PB_CONST,  /* content in the file, packed for its kernel */
    PB_TEMP,   /* between dispatches first..last; memory is shared by disjoint lifetimes when sizes are bound */
    PB_HELD,   /* likewise, in memory of the call that produces it: its size may be known only afterwards */
    PB_STATE,  /* the caller's or a state's, of an input and of the output that continues it: struct plan_state */
    N_PLAN_BUF_KINDS
};

struct plan_buf {
    enum plan_buf_kind kind;
    struct str name;     /* of the value, for reports and profiles */
    enum dtype dtype;    /* of its elements; DT_NONE: unknown, as in files and of scratch memory */
    sym size;            /* bytes */
    u32 first, last;     /* first and last dispatch that use it, inclusive */
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

/* A dispatch that runs other plans: a loop, or one of two branches. The inputs of each plan are `in`, in
   order. Its outputs are, for a conditional loop, the condition of another iteration, then the carried
   values (the first inputs of the next iteration), then the outputs to stack; for a branch, its results. */
struct plan_give { u32 var; sym value; }; /* a size of the inner plan, and its value in this plan */
struct plan_call_in { u32 buf; u32 rank; sym dim[MAX_RANK]; };
struct plan_call {
    bool is_loop, is_conditional;
    u32 cond;            /* buffer of a bool: whether the loop begins, or else/then; UINT32_MAX: the loop begins */
    sym trip_count;      /* of a loop: maximal number of iterations; 0 for a branch */
    u32 n_carried;
    struct plan_call_in *in; u32 n_in;
    u32 *out;   u32 n_out; /* buffers; UINT32_MAX: unused */
    u32 sizes;           /* buffer of i64 that receives sizes of results; UINT32_MAX: none */
    u32 *size;  u32 n_size; /* pairs of result and axis */
    struct plan *sub[2]; u32 n_sub; /* else, then */
    struct plan_give *give[2]; u32 n_give[2];
};

enum { PLAN_MAX_DEPTH = 16 }; /* of plans in plans */

struct plan_dispatch {
    struct plan_call *call; /* NULL: a kernel. Otherwise bin, entry, param, grid and work are meaningless; buf lists its buffers, each once */
    u32 bin;             /* index */
    struct str entry;    /* kernel name in the binary */
    struct str label;    /* names of the graph's nodes, joined by '+' */
    struct str ops;      /* their operators, joined likewise, without views; "layout" for a copy; empty: unknown */
    struct str layer;    /* names of the nodes with most of its operations; empty: unknown */
    struct str task;     /* hex key */
    struct str candidate; /* text, see gen.h */
    struct str device;   /* name of the driver that it was selected for */
    double seconds;      /* cost at selection, for the sizes in plan.var; 0 = none */
    bool is_measured;    /* seconds was measured, not predicted */
    u32 *buf;   u32 n_buf;
    sym *param; u32 n_param;
    bool *is_value;      /* per parameter: not a size, thus unbounded, see bound.c; NULL: unknown, in files of older writers */
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
    struct str layout;   /* order of axes, if the caller requested a layout: "HWC" "CHW" "CHWC8" "NWC" "NHWC" "NDHWC"; empty: as in the network */
};

/* A data-dependent size, computed while the program runs: from an integer element of a buffer, read by the host
   before dispatch `at`, or from other sizes. Negative sizes and those beyond `most` are errors of the run. */
enum plan_take {
    PLAN_TAKE,  /* the element itself */
    PLAN_PLUS,  /* max(element, 0) */
    PLAN_MINUS, /* max(-element, 0) */
    N_PLAN_TAKES
};

struct plan_made {
    u32 var;             /* index */
    u32 at;              /* all dispatches before this one have run; ascending */
    sym expr;            /* 0: from a buffer */
    u32 buf;
    enum dtype dtype;    /* of the buffer's elements: integers */
    i64 elem;
    enum plan_take take; /* larger elements count as 2^40 */
    sym most;            /* 0: no bound known */
    struct sym_fact need; /* for messages: the node that requires it, and (a not 0) the condition for it to be a size */
};

/* A cache: an output that the next run has as an input. It has the input's rows and new ones behind them on one axis, or the same shape. In place, both
   are in one buffer, whose axis is longer than the output's by the value of `room`: the rows of the input stay where they are. Other pairs have
   buffers of their own. */
enum { PLAN_NO_AXIS = MAX_RANK };
struct plan_state {
    u32 input, output;   /* indices */
    u32 axis;            /* that grows; PLAN_NO_AXIS: none */
    u32 room;            /* variable, one of plan.given; UINT32_MAX: none: no axis, or not in place */
};

struct plan_var { i64 optimised_for; }; /* value that costs refer to; INT64_MIN: none */

struct plan {
    struct arena *arena;
    struct symtab sym;   /* variables occur in inputs' dims; all expressions refer to it. Its facts must hold but are not applied */
    struct { struct plan_var *v; u32 n, cap; } var; /* parallel to sym.var */
    struct str model;    /* name of the network, no path */
    struct str caps;     /* required limits: caps text of the target */
    struct str isa;      /* instruction set of native code: isa_print_all's words; empty: none, or unknown */
    struct str fingerprint; /* device and driver of the measurements; empty: none */
    struct { struct plan_io *v; u32 n, cap; } input, output;
    struct { struct plan_made *v; u32 n, cap; } made; /* in order */
    struct { u32 *v; u32 n, cap; } given; /* variables whose values the runtime sets: the call of this plan, or a state; 0 without */
    struct { struct plan_state *v; u32 n, cap; } state; /* caches in place */
    struct { struct plan_buf *v; u32 n, cap; } buf;
    struct { struct plan_bin *v; u32 n, cap; } bin;
    struct { struct plan_dispatch *v; u32 n, cap; } dispatch;
    struct str explain;  /* JSON written by the selector: the alternatives; empty: none */
    const struct plan *also; /* the next variant of the program, for another instruction set: same inputs, outputs and model. NULL: end */
};

/* Per variable: the first dispatch before which it is known, 0 for those bound by inputs; UINT32_MAX: never. */
u32 *plan_known_at(const struct plan *p, struct arena *a);
u32 plan_sym_at(const struct plan *p, const u32 *known, sym s); /* likewise of an expression */
/* Sizes of inputs, and values of given variables -> values of variables; contradictions
   are not checked, INT64_MIN is unbound. in NULL: all sizes 0, to see which are bound. */
void plan_bind(const struct plan *p, const struct tensor *in, const i64 *given, i64 *var);
bool plan_has_calls(const struct plan *p);
void plan_call_buffers(struct plan_dispatch *d, struct arena *a); /* fills d->buf */
bool plan_same_interface(const struct plan *p, const struct plan *q); /* equal, as for variants of one program */
/* state.c. Whether its input and output are in one buffer. */
bool plan_is_in_place(const struct plan *p, const struct plan_state *s);
/* Whether an output continues an input by their names: past_key_values.0.key and present.0.key, past_k and present_k ... */
bool plan_is_past(struct str input, struct str output);
/* All caches of the program, those in place and those told by names, types and shapes; v has p->input.n elements. Returns their number. */
u32 plan_find_states(const struct plan *p, struct plan_state *v);
bool plan_verify(const struct plan *p, struct err *e);   /* indices, lifetimes, expressions' variables, sizes of constants */

/* bound.c: upper bounds of the iterations of a grid, and of a size in a
   parameter, for buffers of so many bytes in all; is_empty: one of them is empty. */
i64 plan_most_iterations(i64 bytes, bool is_empty);
i64 plan_most_size(i64 bytes, bool is_empty);
bool plan_size_is_over(const struct plan_dispatch *d, u32 param, i64 x, i64 most); /* outside of -most..most, and not a value */
void plan_find_values(struct plan *p); /* fills in is_value of all dispatches */

/* dnx.c: deterministic: same plan, same bytes. With all variants. */
bool dnx_write(const struct plan *p, struct buf *out, struct err *e);
/* The file in pieces, which are in the plan and in the arena: constants are not copied. */
bool dnx_pieces(const struct plan *p, struct arena *a, struct str **piece, i64 *n, struct err *e);
/* Selects a variant by the words of the plans' isa, in the file's order; n or more: none, the error is set. */
typedef u32 dnx_choose_fn(void *user, const struct str *isa, u32 n, struct err *e);
/* dnx_variant.c: a dnx_choose_fn, user: struct dnx_wanted. The variant of that name, or the one with the most extensions that this processor has. */
struct dnx_wanted {
    const char *isa;  /* NULL: the best one */
    bool runs_any;    /* the device does not run native code */
};
u32 dnx_choose_variant(void *user, const struct str *isa, u32 n, struct err *e);
/* bytes must stay valid as long as the plan: constants and code point into it. Only the selected variant is read. */
bool dnx_read_variant(struct plan *p, struct arena *a, struct str bytes, dnx_choose_fn *choose, void *user, struct err *e);
bool dnx_read(struct plan *p, struct arena *a, struct str bytes, struct err *e); /* all of them: p is the first, p->also the others */

/* A plan as text, which refers to its contents by their numbers ("const.K", "code.K" in doc/dnx.md): for other files than .dnx. */
struct dnx_code { struct str bytes, lang, entry; }; /* entry: of the first dispatch that uses it; only written */
struct dnx_text {
    struct str plan;     /* JSON */
    struct { struct str *v; u32 n, cap; } constant; /* equal ones once */
    struct { struct dnx_code *v; u32 n, cap; } code;
};
bool dnx_write_text(struct dnx_text *t, const struct plan *p, struct arena *a, struct err *e);
/* With choose NULL as dnx_read, else as dnx_read_variant; contents must stay valid as long as the plan. */
bool dnx_read_text(struct plan *p, struct arena *a, const struct dnx_text *t, dnx_choose_fn *choose, void *user, struct err *e);

/* dnx_sign.c: a file's signatures, sorted by key. */
enum { DNX_MAX_SIGNATURES = 10 };
struct dnx_signature { u8 key[SIGN_KEY_BYTES], signature[SIGN_BYTES]; bool is_right; /* after the check */ };
struct dnx_signatures { struct dnx_signature v[DNX_MAX_SIGNATURES]; u32 n; };
/* The signatures in the bytes, unchecked; n 0: not signed. bytes may be anything. */
bool dnx_signatures(struct dnx_signatures *s, struct str bytes, struct err *e);
/* Fills is_right. false: cannot be checked on this machine. */
bool dnx_check_signatures(struct dnx_signatures *s, struct str bytes, struct err *e);
/* After the check: all are valid, and one is of a key of the list, with index `by`. */
bool dnx_trusted(const struct dnx_signatures *s, const u8 (*key)[SIGN_KEY_BYTES], u32 n, u32 *by, struct err *e);
/* An artifact, as accepted by dnx_read, with an additional signature; only: without existing ones. */
bool dnx_sign(struct buf *out, struct str bytes, const u8 secret[SIGN_KEY_BYTES], bool only, struct err *e);
/* The same 1024 bytes as a file of their own, beside bytes of any kind; empty: not signed, n 0. Reads and checks them; adds one. */
bool dnx_check_beside(struct dnx_signatures *s, struct str bytes, struct str signatures, struct err *e);
bool dnx_sign_beside(struct buf *out, struct str bytes, struct str old, const u8 secret[SIGN_KEY_BYTES], bool only, struct err *e);

#endif
