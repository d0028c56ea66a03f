// SPDX-License-Identifier: Apache-2.0
//
// ir: the tensor graph as data. Values and nodes are referred to by 32-bit ids into arrays; id 0 means none.
// A node names its operator by text ("Conv", ONNX vocabulary of opset 18, domain ai.onnx unless "domain::Name");
// this folder knows no operator by name: src/op gives them meaning.
//
// Invariants (graph_verify):
//  1. every id is in range; every value has at most one producer, and producer/out_index agree with the node
//  2. nodes are in topological order after graph_sort
//  3. a constant (data != NULL) has no producer, its tensor agrees with dtype and shape
//  4. rank <= MAX_RANK; a known shape has no sym 0 among its dims
//  5. value names are unique and not empty
//  6. a size is made once; what is made of other sizes stands behind them
#ifndef QUERN_IR_H
#define QUERN_IR_H

#include "core/core.h"

typedef u32 value_id;
typedef u32 node_id;

struct shape {
    bool known;        /* rank and dims are meaningful */
    u32 rank;
    sym dim[MAX_RANK]; /* row-major order of the operator's definition, e.g. (n, c, h, w) */
};

/* How the elements of a value lie in memory. Axis 1 is the channel axis. */
enum layout {
    LAYOUT_ROWS,  /* row-major in the order of the dims: NCHW */
    LAYOUT_CLAST, /* axis 1 moved to the end: NHWC; rank >= 3 */
    LAYOUT_C8,    /* axis 1 split: (n, c/8, h, w, 8), padded with zeros; rank >= 3 */
    LAYOUT_C16,   /* likewise by 16 */
    N_LAYOUTS
};

/* Where a value lies when its memory is part of a larger value's (a concatenation made in memory): at from, from+1 ...
   of an axis that has `whole` elements there; the other axes are the value's own. Rows or channels last only. */
struct part {
    sym whole;         /* 0: the value has memory of its own */
    sym from;
    u32 axis;
};

/* Known content of a small integer (or integer-valued float) tensor, for shape arithmetic: element i = num[i] / den. */
struct sym_data {
    i64 n;     /* elements, row-major */
    sym *num;
    i64 den;   /* > 0; 1 for integers */
};

struct value {
    struct str name;
    enum dtype dtype;
    struct shape shape;
    const struct shape *given;   /* of a graph's input: its sizes as callers name them, before facts; NULL: shape */
    enum layout layout;          /* in tasks; of a graph's inputs and outputs: their caller's. LAYOUT_ROWS in an imported graph */
    struct part part;            /* in tasks, of inputs and outputs */
    node_id producer;            /* 0: graph input or constant */
    u32 out_index;               /* which output of the producer */
    struct tensor *data;         /* constant content, NULL: not a constant (or content stripped, see is_const) */
    const struct sym_data *sdata; /* symbolic content, NULL: unknown */
    bool is_const;               /* a constant; in a task its content may be stripped (data == NULL) */
};

enum attr_kind { ATTR_INT, ATTR_FLOAT, ATTR_STR, ATTR_INTS, ATTR_FLOATS, ATTR_STRS, ATTR_TENSOR, ATTR_GRAPH };

struct attr {
    struct str name;
    enum attr_kind kind;
    i64 n;              /* INTS, FLOATS, STRS: count */
    i64 i;
    double f;
    struct str s;
    i64 *ints;
    double *floats;
    struct str *strs;
    struct tensor *t;
    struct graph *graph; /* the body of a loop, a branch; shares symtab. Its inputs are the node's, no names reach into it */
};

struct node {
    struct str op;      /* operator name */
    struct str name;    /* for messages; may be empty */
    struct { value_id *v; u32 n, cap; } in;  /* 0 = optional input left out */
    struct { value_id *v; u32 n, cap; } out; /* 0 = output not wanted */
    struct { struct attr *v; u32 n, cap; } attr;
    u32 op_at;          /* 1 + the operator's place in the registry of src/op, where it was looked up; 0: not yet */
    bool dead;          /* removed; skipped by everyone, dropped by graph_sort */
};

struct value_list { value_id *v; u32 n, cap; };

/* What a made size takes of an element x. Sizes are not negative, so what may be is made as a difference of two. */
enum size_take {
    SIZE_TAKE,  /* x itself, which must not be negative */
    SIZE_PLUS,  /* max(x, 0) */
    SIZE_MINUS, /* max(-x, 0) */
    N_SIZE_TAKES
};

/* A size variable that the graph itself makes while it runs: from an element of an integer value, or from other sizes. Whatever
   mentions the variable (shape, attribute) comes behind the node that makes the value. */
struct made_size {
    u32 var;             /* index into symtab.var */
    value_id v;          /* integer value with a known number of elements; 0: from `expr` */
    i64 at;              /* element of v, row-major */
    enum size_take take;
    sym expr;            /* v == 0: over inputs' sizes and made sizes that stand before this one */
    sym most;            /* never larger than this; 0: no bound known */
    struct sym_fact need; /* for messages. who: the node that needs it; a, b: what must hold for it to be a size, 0: no more than that */
};

struct graph {
    struct arena *arena;
    struct symtab *sym;                            /* shared between graphs of one compilation */
    struct { struct value *v; u32 n, cap; } value; /* v[0] unused */
    struct { struct node *v; u32 n, cap; } node;   /* v[0] unused */
    struct value_list input, output;               /* interface, in order */
    struct { struct made_size *v; u32 n, cap; } made; /* sizes that only running can tell */
    struct map names;                              /* value name -> id */
    node_id at;                                    /* being inferred: facts about sizes are ascribed to it; 0: none */
};

/* graph.c: build and edit. Pointers to values and nodes are valid until the next one is added. */
void graph_init(struct graph *g, struct arena *a, struct symtab *sym);
value_id graph_add_value(struct graph *g, struct str name); /* empty or taken names are made unique: "name_2" */
value_id graph_add_const(struct graph *g, struct str name, struct tensor *t); /* t is not copied */
node_id graph_add_node(struct graph *g, struct str op, struct str name);
void node_add_in(struct graph *g, node_id n, value_id v);
void node_set_out(struct graph *g, node_id n, u32 k, value_id v); /* sets producer, too */
/* A node with n_in inputs and one new output named after it, placed at the end. Returns the output. */
value_id graph_op(struct graph *g, const char *op, struct str name, u32 n_in, const value_id *in);
struct value *graph_value(const struct graph *g, value_id v);
struct node *graph_node(const struct graph *g, node_id n);
value_id node_first_out(const struct node *n);                     /* its first wanted output; 0: none */
value_id graph_find(const struct graph *g, struct str name);          /* 0: absent */
void graph_swap_names(struct graph *g, value_id a, value_id b);
bool graph_is_output(const struct graph *g, value_id v);               /* of the interface, or some size is made of it */
bool graph_is_read(const struct graph *g, value_id v);                 /* by a node that is not dead */
void graph_replace(struct graph *g, value_id old, value_id with);     /* in all uses, outputs included */
u32 *graph_use_counts(const struct graph *g, struct arena *a);        /* per value; graph outputs count */
bool graph_sort(struct graph *g, struct err *e);   /* topological order, stable; drops dead and unreachable nodes; false: cycle */
void graph_clone(struct graph *to, const struct graph *from, struct arena *a); /* same symtab; constants' data shared; bodies are cloned, too */
bool graph_verify(const struct graph *g, struct err *e);
sym shape_count(struct symtab *t, const struct shape *s);             /* number of elements */
bool shape_is_static(const struct symtab *t, const struct shape *s, i64 dim[MAX_RANK]);
bool shape_size_ok(const struct symtab *t, const struct shape *s, enum dtype d); /* no size is known to be negative or too large */
bool shape_equal(const struct shape *a, const struct shape *b);       /* proven equal */
bool shape_eval(const struct symtab *t, const struct shape *s, const i64 *var, i64 dim[MAX_RANK]);
struct shape value_given(struct symtab *t, const struct value *v); /* sizes as callers name them */
void value_set_given(struct graph *g, value_id v, const struct shape *s); /* s is copied */
/* Elements of storage of a value of this shape in that layout (padding included). */
sym layout_count(struct symtab *t, const struct shape *s, enum layout l);
/* The shape of the memory that a value lies in: its own, or the larger value's. */
struct shape value_room(const struct value *v);
sym value_storage(struct symtab *t, const struct value *v); /* elements of that memory, layout_count of value_room */
i64 layout_block(enum layout l);                   /* channels that lie together: 8, 16; 1: not in blocks */
const char *layout_name(enum layout l);           /* "rows" "clast" "c8" "c16" */
enum layout layout_parse(struct str s, bool *ok);

/* made.c: sizes that the graph makes. */
const struct made_size *graph_made(const struct graph *g, u32 var); /* how variable var is made; NULL: inputs bind it */
void graph_make_size(struct graph *g, const struct made_size *m);   /* adds it, unless the variable is made already */
/* Per node: the producers of the values that the sizes it mentions are made of. */
struct value_list *graph_size_sources(const struct graph *g, struct arena *a);
/* Per node: how many times running must wait for sizes before it. Nodes are sorted. */
u32 *graph_phases(const struct graph *g, struct arena *a);
/* Is x, an element, what variable m->var may be? Its value, INT64_MIN: it is negative. Beyond 2^40 all is the same. */
i64 made_size_take(const struct made_size *m, i64 x);
/* Values of all variables that are made of those that are known by now (not INT64_MIN). false: one is negative or beyond its bound. */
bool graph_make_sizes(const struct graph *g, i64 *var, struct err *e);
/* The error that g->made.v[k], whose value var has, is no size. */
bool made_size_fails(const struct graph *g, u32 k, const i64 *var, struct err *e);
/* Values to optimise for where nothing is known: var has all inputs' sizes; made ones get their bound, or `def`. */
void graph_guess_sizes(const struct graph *g, i64 *var, i64 def);

/* attr.c: typed attributes. Getters return the default when absent (or of another kind). */
const struct attr *node_attr(const struct node *n, const char *name);
i64 attr_int(const struct node *n, const char *name, i64 def);
double attr_float(const struct node *n, const char *name, double def);
struct str attr_str(const struct node *n, const char *name, const char *def);
i64 attr_ints(const struct node *n, const char *name, const i64 **v); /* count; 0 when absent */
void attr_set_int(struct graph *g, node_id n, const char *name, i64 v);
void attr_set_float(struct graph *g, node_id n, const char *name, double v);
void attr_set_str(struct graph *g, node_id n, const char *name, struct str v);
void attr_set_ints(struct graph *g, node_id n, const char *name, const i64 *v, i64 count);
void attr_set_tensor(struct graph *g, node_id n, const char *name, struct tensor *t);
struct graph *attr_graph(const struct node *n, const char *name); /* NULL when absent */
void attr_set_graph(struct graph *g, node_id n, const char *name, struct graph *body); /* not copied */
void attr_copy(struct graph *g, node_id to, const struct attr *from); /* bodies are shared */
void attr_remove(struct graph *g, node_id n, const char *name);

/* text.c: the textual form (doc/graph-ir.md), round-trips. With `keys`, names are replaced by numbers in order of
   appearance, node names and the content of large constants are left out (small ones, up to 64 elements, are kept), so
   that equal computations print alike: the text that keys a task. */
struct graph_text_opts { bool keys; };
void graph_print(struct buf *b, const struct graph *g, const struct graph_text_opts *o);
bool graph_parse(struct graph *g, struct arena *a, struct symtab *sym, struct str text, struct err *e);

/* extract.c: the sub-graph made of these nodes (in order), as a graph of its own sharing symtab and constants' data.
   Values that come from outside become inputs (constants stay constants), `out` lists the values to deliver.
   map_back (may be NULL) receives, per new value id, the old id. */
void graph_extract(struct graph *to, const struct graph *from, struct arena *a, const node_id *nodes, u32 n,
                   const value_id *out, u32 n_out, value_id **map_back);

#endif
