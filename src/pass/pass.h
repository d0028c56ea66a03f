// SPDX-License-Identifier: Apache-2.0
//
// pass: rewriting of graphs before they are divided into tasks. One file per pass, each exporting one `const struct
// pass pass_NAME`. A pass returns whether it changed anything; verification, dumps and re-inference are done by the
// runner (pass.c). Passes query properties of operators, not their names, wherever a property suffices.
#ifndef QUERN_PASS_H
#define QUERN_PASS_H

#include "op/op.h"

enum pass_flag {
    PASS_F16 = 1 << 0, /* values are stored in f16 wherever that is safe */
    PASS_INTEGER = 1 << 1, /* matmuls of dequantised operands become integer ones */
    PASS_FIXED = 1 << 3,   /* with PASS_INTEGER: without floating point between integer products, where that is exact */
    PASS_WORDS = 1 << 2,   /* with PASS_INTEGER: of i16, for devices that multiply those, but not bytes */
};

struct pass {
    u32 version;          /* of this struct: 1 */
    const char *name;
    const char *summary;  /* one line, shown by -d list */
    u32 when;             /* runs only with these flags of the environment; 0: always */
    bool once;            /* does not repeat */
    u32 rank;             /* order of running; passes of the same hundred are repeated until none changes anything */
    /* g is sorted and inferred; new nodes must be inferred by the pass (op_infer). false in *ok: failed, e is set. */
    bool (*run)(struct graph *g, bool *ok, struct err *e);
};

struct pass_env {
    u32 flags;            /* enum pass_flag */
    void (*dump)(void *user, const char *stage, const struct graph *g); /* after each pass that changed something; NULL: none */
    void *user;
};

/* Runs all passes in order of rank. Afterwards the graph holds primitives only, sorted and inferred. */
bool pass_run_all(struct graph *g, const struct pass_env *env, struct err *e);
const struct pass *pass_at(i64 k); /* in order of rank; NULL after the last */

/* integer.c: whether the pass applies to a graph as imported, inferred. */
bool pass_has_integer(const struct graph *g);

/* fold.c: as the pass, but nodes for which `stays` holds are not evaluated. Returns whether there were any. */
bool pass_fold_but(struct graph *g, bool (*stays)(const struct graph *g, node_id n));

/* pass_same.c: removes nodes without effect. Returns whether there were any. */
bool pass_drop_same(struct graph *g);

/* pass_compact.c: stores weights of f32 whose values fit 16 bits so, exactly; for processors, behind all passes. false: not enough memory. */
bool pass_compact(struct graph *g, bool *changed, struct err *e);

/* pass_state.c: caches in place (doc/decoding.md). */

struct state_pair { /* an input, and the output that the next run has there */
    u32 input, output; /* indices */
    sym size, room;    /* once placed: positions of the output; a variable, unused positions behind them */
};
struct state_pairs { struct state_pair *v; u32 n; };
/* "auto": all pairs told by names, types and shapes, or by a node that adds rows to an input; or "input=output,...", whose names are checked. */
bool state_find(struct state_pairs *s, const struct graph *g, const char *text, struct arena *a, struct err *e);
/* Before the passes: operators that write the new rows of these caches at positions that are data append them, which is checked at run time. */
bool state_append(struct graph *g, const struct state_pairs *s, struct err *e);
/* After the passes: the pairs that can be in place get a common memory, with more room on the axis; others stay as they are. */
bool state_place(struct graph *g, struct state_pairs *s, struct err *e);

/* pass_interface.c: the caller's interface of inputs and outputs. */

enum io_layout {
    IO_AS_IS, /* the network's axes */
    IO_HWC,   /* (h, w, c) */
    IO_CHW,   /* (c, h, w) */
    IO_CHWC8, /* (c/8, h, w, 8), the last channels padded with zeros */
    IO_NWC,   /* all axes of the network, channels last */
    IO_NHWC,
    IO_NDHWC,
};
enum io_layout io_layout_parse(struct str s, bool *ok); /* case-insensitive */
struct str io_layout_name(enum io_layout l);            /* empty: IO_AS_IS */

struct io_extent {
    struct str name; /* empty: none */
    i64 value;       /* -1: none */
};
struct io_shape { /* "H:W:C": three extents of a picture, or the axes in order */
    u32 n;        /* 0: as it is */
    struct io_extent extent[MAX_RANK];
};
bool io_shape_parse(struct io_shape *s, struct arena *a, struct str text, struct err *e);

struct io_view {
    struct io_shape shape;
    enum dtype dtype; /* DT_NONE: as it is */
    enum io_layout layout;
};
struct interface {
    struct io_view *v; /* of the inputs, then of the outputs */
    u32 n;
};

/* Defines the network's size variables in the fresh table st as the caller requests; the network must then be imported again with it. */
bool interface_sizes(const struct interface *f, const struct graph *g, struct symtab *st, struct err *e);
/* Afterwards: checks that constant sizes agree with the request, and that layouts fit. */
bool interface_check(const struct interface *f, const struct graph *g, struct err *e);
/* Element types; inputs and outputs with a layout get four axes. */
bool interface_types(struct graph *g, const struct interface *f, struct err *e);
/* Then, for the reference: the caller's view, as nodes. */
bool interface_show(struct graph *g, const struct interface *f, struct err *e);
/* Or, for compiling, after the passes: the same as layouts of the interface's values. */
void interface_layouts(struct graph *g, const struct interface *f);

#endif
