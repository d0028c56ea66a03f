// SPDX-License-Identifier: Apache-2.0
//
// ir: the tensor graph as data. Values and nodes are referred to by 32-bit ids into arrays; id 0
// is none. A node names its operator by text ("Conv", ONNX vocabulary of opset 18, domain ai.onnx
// unless "domain::Name"); this folder knows no operator by name: src/op defines their semantics.
//
// Invariants (graph_verify):
//  1. every id is in range; every value has at most one producer, and producer/out_index agree with the node
//  2. nodes are in topological order after graph_sort
//  3. a constant (data != NULL) has no producer, its tensor agrees with dtype and shape
//  4. rank <= MAX_RANK; a known shape has no sym 0 among its dims
//  5. value names are unique and not empty
//  6. a run-time size is computed once, after the sizes that it depends on
#ifndef QUERN_IR_H
#define QUERN_IR_H

#include "core/core.h"

typedef u32 value_id;
typedef u32 node_id;

struct shape {
    bool known;        /* rank and dims are valid */
    u32 rank;
    sym dim[MAX_RANK]; /* row-major order of the operator's definition, e.g. (n, c, h, w) */
};

/* Layout of a value in memory. Axis 1 is the channel axis. */
enum layout {
    LAYOUT_ROWS,  /* row-major in the order of the dims: NCHW */
    LAYOUT_CLAST, /* axis 1 moved to the end: NHWC; rank >= 3 */
    LAYOUT_C8,    /* axis 1 split: (n, c/8, h, w, 8), padded with zeros; rank >= 3 */
    LAYOUT_C16,   /* likewise by 16 */
    N_LAYOUTS
};

/* Placement of a value within a larger one (a concatenation in place): at from, from+1 ... of an
   axis of `whole` elements; the other axes are the value's own. Row-major or channels last only. */
struct part {
    sym whole;         /* 0: separate memory */
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
    const struct shape *given;   /* of a graph's input: its sizes as named by callers, before facts; NULL: shape */
    enum layout layout;          /* in tasks; for inputs and outputs of a graph: the caller's. LAYOUT_ROWS in an imported graph */
    struct part part;            /* in tasks, for inputs and outputs; in a graph: of caches in place (pass_state.c) */
    value_id shares;             /* of a graph's output: the input that begins the memory it is in, in tasks whose elements it has in their places but for those
                                    that the kernel writes; 0: none */
    node_id producer;            /* 0: graph input or constant */
    u32 out_index;               /* index of the producer's output */
    struct tensor *data;         /* content of a constant, NULL: not a constant (or content dropped, see is_const) */
    const struct sym_data *sdata; /* symbolic content, NULL: unknown */
    bool is_const;               /* a constant; in a task its content may be dropped (data == NULL) */
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
    struct graph *graph; /* body of a loop or branch; shares symtab. Its inputs are the node's; names are local */
};

struct node {
    struct str op;      /* operator name */
    struct str name;    /* for messages; may be empty */
    struct { value_id *v; u32 n, cap; } in;  /* 0 = omitted optional input */
    struct { value_id *v; u32 n, cap; } out; /* 0 = unused output */
    struct { struct attr *v; u32 n, cap; } attr;
    u32 op_at;          /* 1 + index in the registry of src/op, once looked up; 0: not yet */
    bool dead;          /* removed: skipped by passes, dropped by graph_sort */
};

struct value_list { value_id *v; u32 n, cap; };

/* The value of a data-dependent size, from an element x. Sizes are not negative; signed ones are differences of two. */
enum size_take {
    SIZE_TAKE,  /* x itself, which must not be negative */
    SIZE_PLUS,  /* max(x, 0) */
    SIZE_MINUS, /* max(-x, 0) */
    N_SIZE_TAKES
};

/* A size variable computed while the graph runs: from an element of an integer value, or from other
   sizes. Every node that uses it (shape, attribute) follows the node that computes the value. */
struct made_size {
    u32 var;             /* index into symtab.var */
    value_id v;          /* integer value with a known number of elements; 0: from `expr` */
    i64 at;              /* element of v, row-major */
    enum size_take take;
    sym expr;            /* v == 0: over sizes of inputs and preceding data-dependent sizes */
    sym most;            /* upper bound; 0: unknown */
    sym usual;           /* what to optimise for; 0: the bound */
    bool is_kept;        /* computed, and its conditions checked, though no node may use it */
    struct sym_fact need; /* for messages. node: the node that requires it; a, b: the condition for it to be a size, 0: none */
};

struct graph {
    struct arena *arena;
    struct symtab *sym;                            /* shared between graphs of one compilation */
    struct { struct value *v; u32 n, cap; } value; /* v[0] unused */
    struct { struct node *v; u32 n, cap; } node;   /* v[0] unused */
    struct value_list input, output;               /* interface, in order */
    struct { struct made_size *v; u32 n, cap; } made; /* data-dependent sizes */
    struct map names;                              /* value name -> id */
    node_id at;                                    /* node being inferred, which facts about sizes are ascribed to; 0: none */
};

/* graph.c: building and editing. Pointers to values and nodes are valid until the next one is added. */
void graph_init(struct graph *g, struct arena *a, struct symtab *sym);
value_id graph_add_value(struct graph *g, struct str name); /* empty or taken names are made unique: "name_2" */
value_id graph_add_const(struct graph *g, struct str name, struct tensor *t); /* t is not copied */
node_id graph_add_node(struct graph *g, struct str op, struct str name);
void node_add_in(struct graph *g, node_id n, value_id v);
void node_set_out(struct graph *g, node_id n, u32 k, value_id v); /* sets producer, too */
/* Appends a node with n_in inputs and one new output named after it. Returns the output. */
value_id graph_op(struct graph *g, const char *op, struct str name, u32 n_in, const value_id *in);
struct value *graph_value(const struct graph *g, value_id v);
struct node *graph_node(const struct graph *g, node_id n);
value_id node_first_out(const struct node *n);                     /* its first used output; 0: none */
value_id graph_find(const struct graph *g, struct str name);          /* 0: absent */
void graph_swap_names(struct graph *g, value_id a, value_id b);
bool graph_is_output(const struct graph *g, value_id v);               /* of the interface, or the source of a size */
bool graph_is_read(const struct graph *g, value_id v);                 /* by a node that is not dead */
void graph_replace(struct graph *g, value_id old, value_id with);     /* in all uses, outputs included */
u32 *graph_use_counts(const struct graph *g, struct arena *a);        /* per value; graph outputs count */
bool graph_sort(struct graph *g, struct err *e);   /* topological order, stable; drops dead and unreachable nodes; false: cycle */
void graph_clone(struct graph *to, const struct graph *from, struct arena *a); /* same symtab; constants' data shared; bodies are cloned, too */
bool graph_verify(const struct graph *g, struct err *e);
sym shape_count(struct symtab *t, const struct shape *s);             /* number of elements */
bool shape_is_static(const struct symtab *t, const struct shape *s, i64 dim[MAX_RANK]);
bool shape_size_ok(const struct symtab *t, const struct shape *s, enum dtype d); /* no size is negative or too large, as far as known */
bool shape_equal(const struct shape *a, const struct shape *b);       /* proven equal */
bool shape_eval(const struct symtab *t, const struct shape *s, const i64 *var, i64 dim[MAX_RANK]);
struct shape value_given(struct symtab *t, const struct value *v); /* sizes as named by callers */
void value_set_given(struct graph *g, value_id v, const struct shape *s); /* s is copied */
/* Elements of storage of a value of this shape in that layout (padding included). */
sym layout_count(struct symtab *t, const struct shape *s, enum layout l);
/* The shape of the memory that contains a value: its own, or the larger value's. */
struct shape value_room(const struct value *v);
sym value_storage(struct symtab *t, const struct value *v); /* elements of that memory, layout_count of value_room */
i64 layout_block(enum layout l);                   /* channels of a block: 8, 16; 1: not blocked */
const char *layout_name(enum layout l);           /* "rows" "clast" "c8" "c16" */
enum layout layout_parse(struct str s, bool *ok);

/* made.c: data-dependent sizes. */
const struct made_size *graph_made(const struct graph *g, u32 var); /* definition of variable var; NULL: bound by inputs */
void graph_make_size(struct graph *g, const struct made_size *m);   /* adds it, unless it is defined already */
/* Per node: the producers of the values that its sizes are computed from. */
struct value_list *graph_size_sources(const struct graph *g, struct arena *a);
/* Calls see with each size whose name occurs in a text, an attribute with expressions. */
void graph_text_sizes(const struct graph *g, struct str s, void (*see)(void *user, sym s), void *user);
/* Per node: number of synchronisations for sizes before it. Nodes are sorted. */
u32 *graph_phases(const struct graph *g, struct arena *a);
/* The value of variable m->var for element x; INT64_MIN: negative. Values beyond 2^40 are equivalent. */
i64 made_size_take(const struct made_size *m, i64 x);
/* Computes all variables whose operands are known (not INT64_MIN). false: one is negative or beyond its bound. */
bool graph_make_sizes(const struct graph *g, i64 *var, struct err *e);
/* The error that g->made.v[k], with value var, is not a size. */
bool made_size_fails(const struct graph *g, u32 k, const i64 *var, struct err *e);
/* Values to optimise for without further knowledge: var has all sizes of inputs; data-dependent sizes get their bound, or `def`. */
void graph_guess_sizes(const struct graph *g, i64 *var, i64 def);

/* attr.c: typed attributes. Getters return the default if the attribute is absent (or of another kind). */
const struct attr *node_attr(const struct node *n, const char *name);
i64 attr_int(const struct node *n, const char *name, i64 def);
double attr_float(const struct node *n, const char *name, double def);
struct str attr_str(const struct node *n, const char *name, const char *def);
i64 attr_ints(const struct node *n, const char *name, const i64 **v); /* count; 0 if absent */
void attr_set_int(struct graph *g, node_id n, const char *name, i64 v);
void attr_set_float(struct graph *g, node_id n, const char *name, double v);
void attr_set_str(struct graph *g, node_id n, const char *name, struct str v);
void attr_set_ints(struct graph *g, node_id n, const char *name, const i64 *v, i64 count);
void attr_set_tensor(struct graph *g, node_id n, const char *name, struct tensor *t);
struct graph *attr_graph(const struct node *n, const char *name); /* NULL when absent */
void attr_set_graph(struct graph *g, node_id n, const char *name, struct graph *body); /* not copied */
void attr_copy(struct graph *g, node_id to, const struct attr *from); /* bodies are shared */
void attr_remove(struct graph *g, node_id n, const char *name);

/* text.c: the text form (doc/graph-ir.md), round-trips. With `keys`, names become numbers
   in order of appearance, and node names and the content of constants of more than 64
   elements are omitted, so that equal computations print alike: the text that keys a task. */
struct graph_text_opts { bool keys; };
void graph_print(struct buf *b, const struct graph *g, const struct graph_text_opts *o);
/* The attributes of a node as in its statement, without braces; "" if there are none. */
void node_print_attrs(struct buf *b, const struct graph *g, node_id n);
bool graph_parse(struct graph *g, struct arena *a, struct symtab *sym, struct str text, struct err *e);

/* digest.c: appends everything that distinguishes the graph from others: text, facts, names, hashes of constants. */
void graph_print_content(struct buf *b, const struct graph *g);

/* extract.c: the subgraph of these nodes (in order) as a graph of its own that shares
   symtab and constants' data. External values become inputs (constants stay constants),
   `out` lists the outputs. map_back (may be NULL) receives the old id of each new value id. */
void graph_extract(struct graph *to, const struct graph *from, struct arena *a, const node_id *nodes, u32 n,
                   const value_id *out, u32 n_out, value_id **map_back);

#endif
