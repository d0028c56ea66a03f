// SPDX-License-Identifier: Apache-2.0
//
// op: the semantics of operators. A plug-in file src/op/NAME.c describes one operator or one family
// and exports one `const struct op_family op_NAME`. It contains all facts about an operator:
// upgrading from older opsets, sizes, reference evaluation, expansion into simpler operators,
// per-element lowering to kernel IR, cost, random instances.
//
// Two kinds of operators:
//   composite   has `expand`: rewritten into simpler nodes (Softmax -> ReduceMax, Sub, Exp,
//               ReduceSum, Div). Needs no eval and no lower; the evaluator expands it, too.
//   primitive   has `eval` and `lower` (or `whole`). Passes and kernel families see only these after
//               pass `expand`.
// Passes and kernel families query properties, not names.
#ifndef QUERN_OP_H
#define QUERN_OP_H

#include "ir/ir.h"
#include "kir/kir.h"
#include "lower/lower.h"

enum op_prop {
    OP_POINTWISE = 1 << 0, /* out[i] = f(in0[i], in1[i] ...) with NumPy broadcasting */
    /* every output element is one input element or a constant; cheap to recompute */
    OP_VIEW      = 1 << 1,
    OP_REDUCE    = 1 << 2, /* see struct op.reduce */
    OP_MATMUL    = 1 << 3, /* batched matmul (MatMul semantics) */
    OP_CONV      = 1 << 4, /* N-d convolution (Conv semantics, explicit pads) */
    OP_WINDOW    = 1 << 5, /* pooling over windows */
    /* interpolating reads (Resize, GridSample): a bounded number of input elements per output */
    OP_SAMPLE    = 1 << 6,
    OP_HEAVY     = 1 << 7, /* never recomputed inside another kernel */
    OP_COMMUTES  = 1 << 8, /* binary, operands may be swapped */
    OP_WHOLE     = 1 << 9, /* has `whole` instead of `lower` */
    /* transposed convolution (ConvTranspose semantics, explicit pads); is OP_HEAVY, too */
    OP_TRANSPOSED = 1 << 10,
    /* gradient of a convolution's weights (quern::ConvGradWeight semantics); is OP_HEAVY, too */
    OP_CONV_GRAD = 1 << 11,
    /* filter with weights per pixel (quern::Filter semantics), gradient of those weights
       (quern::FilterOuter semantics); are OP_HEAVY, too */
    OP_FILTER = 1 << 12,
    OP_FILTER_GRAD = 1 << 13,
    /* recurrent layer without its input projection (quern::Recurrence semantics); is OP_HEAVY | OP_WHOLE, too */
    OP_RECURRENT = 1 << 14,
    /* supports storage-only types (f8, i4 ...), as views do */
    OP_SMALL = 1 << 15,
    /* float inputs have one type: constants of another one are converted by the importer */
    OP_ONE_TYPE = 1 << 16,
    OP_RANDOM = 1 << 17, /* its numbers differ from those of other implementations */
    OP_CALL = 1 << 18, /* runs graphs in its attributes (while.c), as a part of the program, not a kernel; is
                          OP_HEAVY | OP_WHOLE, too */
    /* every output element is one input element or a constant, as of a view, but is not cheap to recompute */
    OP_MOVES = 1 << 19,
    OP_RESHAPE = 1 << 20, /* a view: the elements of input 0 in their row-major order */
    OP_KEPT = 1 << 21, /* not evaluated when compiling: its constant inputs have fewer bytes than its result */
};

/* A reduction over `axes` of input 0: out = combine over i of in[i], from init. */
struct op_reduce {
    enum kir_op combine;      /* KI_ADD, KI_MUL, KI_MIN, KI_MAX */
    u32 n_axes;
    u32 axis[MAX_RANK];       /* ascending, of the input */
    bool keepdims;
};

/* Rows appended to a cache. They are what the operator writes if each element of `at`, the position of a sequence's last row, is `end`. Else
   it needs to know which rows count: by one more input, a mask (batch, rows) of the cache and the new rows, from which `at` was computed as
   their number less 1. */
struct op_append {
    value_id at;
    sym end;
    bool takes_mask;
    value_id total;           /* the declared number of rows of the cache and the new ones, end + 1, if it is data; else 0 */
};

/* Pooling: finish(tap(x0) combined with tap(x1) ...) over the taps of a window inside the input,
   for means divided by their number. */
struct op_pool {
    enum kir_op combine;      /* KI_MAX or KI_ADD */
    bool mean, count_pad;     /* count_pad: taps in the pads count, too */
    i64 p;
    kval (*tap)(struct kir *k, kval x, i64 p);      /* NULL: x itself */
    kval (*finish)(struct kir *k, kval sum, i64 p); /* NULL: identity */
};

/* Reference evaluation of one node. Sizes are known; out[k] is allocated (zeroed) by the caller
   with the inferred shape and dtype; in[k] or out[k] is NULL if omitted. Accumulates in double (or
   i64). */
struct op_eval {
    const struct graph *g;
    const struct node *n;
    struct tensor *const *in;
    struct tensor **out;
    struct arena *scratch;
    /* values of the symbolic variables, symtab.var.n of them; INT64_MIN = unbound */
    const i64 *var;
    /* Optional sampling for costly operators: if n_points > 0 only the elements out[0][points[i]]
       (flat, row-major) are needed; an operator may compute all. */
    const i64 *points;
    i64 n_points;
};

/* op_eval.c: zeroed scratch memory of an evaluation, possibly as large as a tensor; NULL: out of
   memory, and the error is set. */
void *op_eval_array(const struct op_eval *v, i64 n, i64 elem_size, struct err *e);

/* Whether element (i, j) of the last two axes lies in a band: i + offset - left <= j <= i + offset + right; -1: unbounded. */
struct op_band { sym offset; i64 left, right; };

struct op {
    const char *name;       /* ONNX operator name, or "quern::Name" */
    /* of operators of domain quern: "axis:int shape:ints|strings", kinds int float string ints floats strings tensor graph; NULL: none. Of other domains those
       that are in this library's form only, besides those of op_attributes.inc */
    const char *attributes;
    u32 props;              /* enum op_prop */
    u8 min_in, max_in;      /* inputs; max 255 = variadic */
    u8 min_out, max_out;
    /* Converts a node imported with another opset to the form of opset 18 (attributes that became
       inputs ...). Optional. */
    bool (*upgrade)(struct graph *g, node_id n, i64 opset, struct err *e);
    /* Checks attributes, sets dtype and shape of every requested output, folds symbolic content
       (sdata) if possible. Unsupported attributes or combinations are ERR_UNSUPPORTED with
       operator, attribute and node. */
    bool (*infer)(struct graph *g, node_id n, struct err *e);
    bool (*eval)(const struct op_eval *v, struct err *e);
    /* OP_CALL: runs the node's graphs, instead of eval. out: results and sizes, in the arena; var: the values of the first n_var variables. */
    bool (*call)(const struct graph *g, const struct node *x, struct tensor *const *in, const i64 *var, u32 n_var, struct tensor **out, struct arena *a,
                 struct err *e);
    /* Rewrites the node into simpler ones; outputs keep their value ids; new nodes are inferred;
       the node becomes dead. */
    bool (*expand)(struct graph *g, node_id n, struct err *e);
    /* The element(s) of output `out` at idx (one kval per axis, i64; scalar, or vector lanes);
       emits into m->k and reads inputs with emit_value. Result: scalar, or the lanes of the widest
       index it depends on. */
    kval (*lower)(struct emit *m, const struct node *n, u32 out, const kval *idx);
    /* Emits the whole kernel body (grids, loops, stores with emit_store) for operators that are not
       computed element by element (scatter, top-k, cumulative sum). Inputs through emit_value. */
    void (*whole)(struct emit *m, const struct node *n);
    /* For operators with `whole` that write to some elements of output k only, the others being those of input *in, of the same shape: which must be in the
       output before; the caller emits a grid that copies it (op_copies). */
    bool (*base)(const struct graph *g, const struct node *n, u32 k, u32 *in);
    bool (*reduce)(const struct graph *g, const struct node *n, struct op_reduce *r);
    /* Output 0 is the concatenation of the inputs along one axis. */
    bool (*join)(const struct graph *g, const struct node *n, u32 *axis);
    /* For operators that write new rows of a cache at positions that are data. With attribute quern_appends the rows are appended. false: it
       writes elsewhere. */
    bool (*appends)(struct graph *g, node_id n, struct op_append *a);
    /* For operators that replace some elements of input *in: output k has the others in their places. */
    bool (*updates)(const struct graph *g, const struct node *n, u32 k, u32 *in);
    /* Output 0, of rank 2, tells whether an element lies in a band. */
    bool (*band)(const struct graph *g, const struct node *n, struct op_band *b);
    /* OP_WINDOW: output 0 as a reduction over windows */
    void (*pool)(const struct graph *g, const struct node *n, struct op_pool *p);
    /* Multiply-adds count two. NULL: one per output element for pointwise, none for views. */
    double (*flops)(const struct graph *g, const struct node *n, const i64 *var);
    /* Adds one random instance of itself to the empty graph g: inputs, attributes, outputs; small
       sizes (1..9), odd cases included. Tests compare eval, interpreter and compiled code. */
    void (*random)(const struct op *self, struct graph *g, struct rng *r);
    const void *row;        /* private to the family: a table row */
};

/* A row of a composite whose functions are NAME_infer, NAME_expand and random_NAME. */
#define OP_COMPOSITE(op, least, most, outs, NAME) \
    {.name = op, .min_in = least, .max_in = most, .min_out = 1, .max_out = outs, .infer = NAME##_infer, .expand = NAME##_expand, \
     .random = random_##NAME}

struct op_family {
    const struct op *ops;
    i64 n;
};

/* op_onnx.c: the operators of ONNX's own domain, known here or not. */
struct op_onnx {
    const char *name;
    u8 first, last, gone; /* opsets that introduced, last changed, and removed it (0: none) */
};
const struct op_onnx *op_onnx_all(i64 k);              /* NULL after the last; sorted by name */
const struct op_onnx *op_onnx_find(struct str name);   /* NULL: not in ONNX's domain */

/* op_attributes.c */
/* The attributes of an operator's definition, as in struct op; "" if none, or if it is unknown. */
const char *op_attributes(struct str op);
/* Whether the node's attributes are those of its operator, of their kinds; integers become floats where floats are declared. The error does not name the
   node. */
bool op_check_attributes(struct graph *g, node_id n, struct err *e);

/* op.c: the registry */
const struct op *op_find(struct str name);   /* NULL: unknown */
const struct op *op_all(i64 k);              /* k-th, NULL after the last */
/* of a known operator; never NULL after op_infer */
const struct op *op_of(const struct graph *g, node_id n);
/* Checks the operator and its counts of inputs and outputs, then calls its infer; errors are
   prefixed with operator and node name. */
bool op_infer(struct graph *g, node_id n, struct err *e);
bool op_infer_all(struct graph *g, struct err *e);        /* in topological order; sorts first */
bool op_infer_from(struct graph *g, node_id first, struct err *e); /* the nodes added from that one on, in their order */
bool op_expand(struct graph *g, node_id n, struct err *e);
bool op_expand_all(struct graph *g, struct err *e);       /* until only primitives remain */
double op_flops(const struct graph *g, node_id n, const i64 *var);
double graph_flops(const struct graph *g, const i64 *var);
/* op_text.c */
/* prefixes the message with the node, once; returns false */
bool op_blame(struct err *e, const struct graph *g, node_id n);
bool op_unsupported(struct err *e, const struct graph *g, node_id n, const char *fmt, ...)
    QUERN_PRINTF(4, 5);
bool op_invalid(struct err *e, const struct graph *g, node_id n, const char *fmt, ...)
    QUERN_PRINTF(4, 5);

/* op_lower.c: kernels of graphs of primitives. */
/* For emit_init: calls the operator of node n. */
kval op_lower(struct emit *m, node_id n, u32 out, const kval *idx);
/* Whether output k of a node with `whole` has to be copied from *from first. */
bool op_copies(const struct graph *g, const struct node *n, u32 k, value_id *from);
/* These copies, element by element, and `whole`. */
void op_emit_whole(struct emit *m, const struct node *n);
/* The plain kernel: the body of a single node with `whole`, otherwise one grid per output. false:
   impossible in one kernel (a loop; a node with `whole` beside others). */
bool op_plain_kernel(struct emit *m, struct kir *k, const struct graph *g, struct arena *a);

/* op_util.c: helpers shared by the families */
/* dtype and shape of an output, if requested */
void op_set_out(struct graph *g, node_id n, u32 k, enum dtype t, const struct shape *s);
/* Sizes that must agree. If their expressions differ, equality becomes a fact (core.h) required by
   node n, and the program rejects other sizes. Errors name the subject, "axis 1 of inputs 0 and 2",
   and both sizes. */
bool op_require_equal(struct graph *g, node_id n, sym a, sym b, struct err *e, const char *what, ...) QUERN_PRINTF(6, 7);
bool op_require_multiple(struct graph *g, node_id n, sym a, i64 b, struct err *e, const char *what, ...)
    QUERN_PRINTF(6, 7);
bool op_require_at_least(struct graph *g, node_id n, sym a, sym b, struct err *e, const char *what, ...)
    QUERN_PRINTF(6, 7);
/* The shape of an input, in the terms of the operator's definition. */
struct op_wanted {
    const char *name, *axes; /* "past_key", "batch, heads, positions, head size" */
    u32 rank;
    sym dim[MAX_RANK];       /* 0: any */
    u32 may_be_one;          /* bits of axes that broadcast */
};
/* Input k, if there is one, has that shape. Errors name the input and show both shapes. */
bool op_require_shape(struct graph *g, node_id n, u32 k, const struct op_wanted *w, struct err *e);
/* all axes, and the ranks */
bool op_require_same(struct graph *g, node_id n, const struct shape *a, const struct shape *b, struct err *e, const char *what);
struct str op_size_text(struct graph *g, sym s);                 /* for messages: "H//2" */
struct str op_shape_text(struct graph *g, const struct shape *s); /* "[1,3,H,W]" */
/* NumPy rule; a symbolic size is assumed to equal the other one, not 1, which becomes a fact;
   false: incompatible */
bool op_broadcast_to(struct graph *g, const struct shape *from, const struct shape *to); /* the result is `to` */
bool op_broadcast(struct graph *g, const struct shape *a, const struct shape *b, struct shape *out);
/* The integer content of an input known now: constant tensor or constant symbolic content. Count,
   or -1 when unknown. */
i64 op_const_ints(const struct graph *g, value_id v, i64 out[], i64 max);
/* Symbolic content: of sdata, or of a constant integer tensor. false: unknown. */
bool op_sym_ints(const struct graph *g, value_id v, sym out[], i64 max, i64 *n);
/* Likewise with a denominator, including float constants that are small dyadic fractions. At most
   max elements. */
bool op_sym_content(const struct graph *g, value_id v, i64 max, struct sym_data *out);
void op_set_sdata(struct graph *g, value_id v, const sym *num, i64 n, i64 den);
bool op_axis(i64 axis, u32 rank, u32 *out);                     /* -rank..rank-1 -> 0..rank-1 */
value_id op_const_f(struct graph *g, enum dtype t, double v);   /* new scalar constant */
value_id op_const_i(struct graph *g, enum dtype t, const i64 *v, i64 n); /* new 1-d constant */
/* constant, or node quern::Sym: scalar with a symbolic value */
value_id op_sym_scalar(struct graph *g, enum dtype t, sym s);
/* For `expand`: a node named after node `like` (0: none) whose output is `out`, or a new value if
   out is 0. Returns the output. op_expand infers the new nodes in the order of insertion and marks
   the expanded one dead. */
value_id op_node(struct graph *g, node_id like, const char *op, u32 n_in, const value_id *in,
                 value_id out);
/* For `random`: a graph input of known sizes, with content chosen at random by tests (integers
   small, of both signs). Inputs that cannot be random (indices, axes, sizes) are constants of the
   instance. */
void random_input(struct graph *g, const char *name, enum dtype t, u32 rank, const i64 *dim,
                  value_id *out);
/* For `random`: the node of the instance, its outputs are the graph's. Returned for setting
   attributes. */
node_id random_node(struct graph *g, const struct op *op, u32 n_in, const value_id *in, u32 n_out);
enum dtype random_float_type(struct rng *r); /* f32, now and then f16 or f64 */

/* op_expand.c: nodes of expansions, see op_node (g, like, ..., out). */
value_id op_node1(struct graph *g, node_id like, const char *op, value_id a, value_id out);
value_id op_node2(struct graph *g, node_id like, const char *op, value_id a, value_id b,
                  value_id out);
/* An operator whose second input lists axes: reductions (with keepdims), Unsqueeze, Squeeze. */
value_id op_node_axes(struct graph *g, node_id like, const char *op, value_id x, const i64 *axes,
                      u32 n_axes, value_id out);
/* always a node */
value_id op_node_cast(struct graph *g, node_id like, value_id x, enum dtype t, value_id out);
/* b a constant */
value_id op_node_binf(struct graph *g, node_id like, const char *op, value_id a, enum dtype t,
                      double b, value_id out);
/* Part of x, which has shape s: `size` elements along one axis, with stride `step`. */
struct op_part { u32 axis; sym start, size; i64 step; };
value_id op_node_part(struct graph *g, node_id like, value_id x, const struct shape *s,
                      const struct op_part *p, value_id out);
/* the producer of v, for setting its attributes */
node_id op_made(const struct graph *g, value_id v);
/* x, cast if its known type differs */
value_id op_as(struct graph *g, node_id like, value_id x, enum dtype t);

/* op_build.c: nodes that move elements, with sizes that are expressions (g, like, ..., out). */
value_id op_node_reshape(struct graph *g, node_id like, value_id v, u32 rank, const sym *dim, value_id out);
value_id op_node_expand(struct graph *g, node_id like, value_id v, u32 rank, const sym *dim, value_id out);
value_id op_node_perm(struct graph *g, node_id like, value_id v, u32 rank, const i64 *perm, value_id out);
/* two axes */
value_id op_node_swap(struct graph *g, node_id like, value_id v, u32 rank, u32 a, u32 b, value_id out);
/* size elements of an axis of v, whose shape is s */
value_id op_node_slice(struct graph *g, node_id like, value_id v, const struct shape *s, u32 axis, sym from, sym size,
                       value_id out);
value_id op_node_concat(struct graph *g, node_id like, u32 n_in, const value_id *in, i64 axis, value_id out);
value_id op_node_softmax(struct graph *g, node_id like, value_id v, i64 axis, value_id out);
value_id op_node_where(struct graph *g, node_id like, value_id c, value_id a, value_id b, value_id out);
value_id op_node_range(struct graph *g, node_id like, enum dtype t, sym n, value_id out); /* 0 .. n-1 */
value_id op_node_gather(struct graph *g, node_id like, value_id v, value_id at, i64 axis, value_id out);
/* with n's attributes except those in `without` (NULL-terminated, may be NULL); absent last inputs
   are omitted */
value_id op_node_same(struct graph *g, node_id n, const char *op, u32 n_in, const value_id *in, const char *const *without,
                      value_id out);
value_id op_node_input(const struct node *nd, u32 k); /* input k, 0: omitted */
/* v of type `from` as type `to`: the last node of an expansion */
value_id op_node_into(struct graph *g, node_id like, value_id v, enum dtype from, enum dtype to, value_id out);
/* Sets the shape of v, which the expansion has just computed. */
bool op_know(struct graph *g, value_id v, struct err *e);
/* For `infer` of a composite, after its checks: infers types, shapes and contents of the outputs by
   expanding a copy. */
bool op_infer_expanded(struct graph *g, node_id n, struct err *e);
/* Checks input k if it is present; false with an error. */
bool op_check_float(const struct graph *g, node_id n, u32 k, struct err *e);
bool op_check_rank(const struct graph *g, node_id n, u32 k, u32 lo, u32 hi, struct err *e);
bool op_check_present(const struct graph *g, node_id n, u32 k, struct err *e); /* for inputs beyond min_in */
bool op_check_absent(const struct graph *g, node_id n, u32 k, const char *what, struct err *e);
/* For `random`: a constant of numbers from lo to hi. */
value_id random_const(struct graph *g, enum dtype t, u32 rank, const i64 *dim, double lo, double hi, struct rng *r);

/* op_ml.c: of domain ai.onnx.ml */
/* numbers of an attribute that is a list or a tensor of floats; 0: absent */
i64 op_ml_floats(const struct graph *g, const struct node *nd, const char *name, const double **v);
value_id op_ml_const(struct graph *g, enum dtype t, const double *v, u32 rank, const i64 *dim);
bool op_ml_check_transform(const struct graph *g, node_id n, struct err *e);
/* post_transform of scores (n, k) */
value_id op_ml_transform(struct graph *g, node_id n, value_id x, enum dtype t);
/* output 0, if requested, has integer labels */
bool op_ml_check_labels(const struct graph *g, node_id n, const char *ints, const char *strings, struct err *e);
/* of classes by index */
value_id op_ml_labels(struct graph *g, node_id n, value_id at, const char *ints, value_id out);
value_id op_ml_best(struct graph *g, node_id n, value_id scores); /* index of the largest element of each row */
value_id op_ml_pair(struct graph *g, node_id n, value_id a, value_id b); /* two columns */
/* Both scores of two classes from the second one's, (n, 1), transformed: 1 - s or -s beside s, as
   ONNX Runtime does. */
value_id op_ml_two(struct graph *g, node_id n, value_id s, bool complement);

/* op_fold.c: arithmetic on symbolic contents. Sets the content of output 0 if it is known exactly. */
enum op_fold {
    FOLD_NONE, FOLD_ADD, FOLD_SUB, FOLD_MUL, FOLD_DIV, FOLD_MOD, FOLD_MIN, FOLD_MAX, FOLD_NEG,
    FOLD_ABS, FOLD_FLOOR, FOLD_CEIL, FOLD_ROUND, FOLD_EQ, FOLD_LT, FOLD_LE, FOLD_GT, FOLD_GE,
    FOLD_NOT, FOLD_AND, FOLD_OR, FOLD_WHERE, FOLD_RELU, FOLD_CLIP,
};
void op_fold(struct graph *g, node_id n, enum op_fold f); /* after op_set_out */
void op_fold_cast(struct graph *g, node_id n, enum dtype to);
/* r = a f b, for operators with a common denominator (ADD SUB MUL MIN MAX and comparisons). */
bool op_fold_two(struct graph *g, enum op_fold f, const struct sym_data *a,
                 const struct sym_data *b, struct sym_data *r);

/* op_made.c: data-dependent sizes (struct made_size). */
bool op_is_made(const struct graph *g, sym s); /* some size in it is */
/* Symbolic content of an integer input with a known, small number of elements; unknown elements
   become differences of data-dependent sizes. */
bool op_data_ints(struct graph *g, value_id v, sym out[], i64 max, i64 *n);
/* Likewise for contents that must be sizes: non-negative. */
bool op_data_sizes(struct graph *g, node_id n, value_id v, sym out[], i64 max, i64 *count);
/* A size from an element of v, named after `like`; most: upper bound, 0: none. */
sym op_size_of(struct graph *g, value_id v, i64 at, value_id like, sym most);
void op_size_usual(struct graph *g, sym size, sym usual); /* kernels are selected for `usual`, else for the bound */
void op_size_keep(struct graph *g, sym size); /* checked though no node uses it */
sym op_size_plus(struct graph *g, value_id v, value_id like); /* the first element, clamped to 0 */
/* A variable for a size of node n that depends on data; other sizes are unchanged. */
sym op_let(struct graph *g, node_id n, sym expr, sym most);
/* Likewise if the size is valid only for at_least >= least, as messages state. */
sym op_let_if(struct graph *g, node_id n, sym expr, sym most, sym at_least, sym least);
/* compress.c: the number of nonzero elements of x as a size, computed by new nodes named after node
   n. */
bool op_count_nonzero(struct graph *g, node_id n, value_id x, sym *size, struct err *e);
void op_must_equal(struct graph *g, node_id n, sym a, sym b); /* checked at run time */
/* A fact about data-dependent sizes, checked at run time. false: known to be violated. n 0: not
   recorded. */
bool op_must(struct graph *g, node_id n, enum sym_fact_kind kind, sym a, sym b);
struct str op_owner_in(const struct graph *g, node_id n, char *room, size_t size); /* the same in room */
struct str op_owner(struct graph *g, node_id n); /* "Concat '/Concat'", the origin of a fact; n 0: the network */
sym op_sym_equals(struct symtab *t, sym a, i64 c);            /* 1 if a is c, else 0 */

/* op_contraction.c: shapes of convolutions and matmuls. */
/* x is input 0; makes the attributes explicit, group included. */
bool op_conv_shape(struct graph *g, node_id n, u32 weight, u32 bias, struct shape *out,
                   struct err *e);
/* conv.c: largest magnitudes of elements of input and weights of a Conv of integers, as promised by its attribute "most", else those of their types; false: of
   floats or longer integers. */
bool op_conv_most(const struct graph *g, const struct node *n, i64 most[2]);
bool op_matmul_shape(struct graph *g, node_id n, u32 ia, u32 ib, struct shape *out, struct err *e);
bool op_sizes_agree(struct graph *g, sym a, sym b); /* equal, possibly by a new fact */
bool op_size_reaches(struct graph *g, sym a, sym least); /* a >= least, possibly by a new fact */
/* Attribute acc16 of Conv and MatMul (quern's own) of u8 by constant i8: the passes have proven that sums fit i16 in which a term is multiplied by one
   weight of so many. In every 2 * acc16 neighbouring terms (of MatMul; input channels of a Conv's group, of every tap), from the first on, these are the
   terms 4i and 4i + 1, and the terms 4i + 2 and 4i + 3. 2, 4 or 8; 0: not proven. */
i64 op_acc16(const struct node *n);
bool op_acc16_fits(struct graph *g, node_id n, struct err *e); /* a valid value, for these types */
bool op_is_promise(struct str attribute); /* says what passes have proven ("acc16", Conv's "most", "quern_appends"): models may not have it */
enum dtype op_sum_type(enum dtype t); /* type of the sums: i32 for bytes and i16, otherwise that of the operands */

/* op_resize.c: shared by Resize and its primitives (see resize.c). */
enum resize_mode { RESIZE_NEAREST, RESIZE_LINEAR, RESIZE_CUBIC, N_RESIZE_MODES };
enum resize_round {
    ROUND_FLOOR, ROUND_CEIL, ROUND_PREFER_FLOOR, ROUND_PREFER_CEIL,
    ROUND_SIMPLE, /* ceil for downsampling */
    N_ROUNDS
};
enum resize_coord {
    COORD_HALF_PIXEL, COORD_PYTORCH_HALF_PIXEL, COORD_ALIGN_CORNERS, COORD_ASYMMETRIC,
    COORD_TF_HALF_PIXEL, COORD_TF_CROP, COORD_HALF_PIXEL_SYMMETRIC, N_COORDS
};
struct op_resize {
    enum resize_mode mode; enum resize_round rounding; enum resize_coord coord;
    /* keep_aspect_ratio_policy: 0 stretch, 1 not larger, 2 not smaller */
    u32 aspect;
    double cubic_a, extrapolation;
    bool exclude_outside, antialias;
    u32 rank;
    sym in[MAX_RANK], out[MAX_RANK], num[MAX_RANK], den[MAX_RANK]; /* sizes, scale num/den */
    double start[MAX_RANK], end[MAX_RANK]; /* COORD_TF_CROP: region of interest, 0..1 */
};
/* attributes; sizes unchanged, scales 1 */
bool op_resize_read(struct graph *g, node_id n, struct op_resize *r, struct err *e);
/* of a primitive; false: malformed */
bool op_resize_get(const struct graph *g, const struct node *nd, struct op_resize *r);
/* modes, sizes, scales */
void op_resize_put(struct graph *g, node_id n, const struct op_resize *r);
void op_resize_modes(struct graph *g, node_id n, const struct op_resize *r);     /* modes only */
/* the axis keeps its size and elements */
bool op_resize_same(const struct op_resize *r, u32 i);

/* op_eval.c: the reference evaluator. in: one tensor per graph input, whose shapes bind the
   symbolic variables; out: one new tensor per graph output, in the arena. Expands composites first.
   Simple rather than fast. */
struct graph_eval_opts {
    const i64 *points; i64 n_points; /* sampling of the last node, see struct op_eval */
    const i64 *var; /* sizes that inputs do not determine (a task with input H+7); NULL: from inputs */
    /* Called after each primitive node outside of bodies, with its inputs and outputs in row-major order; may change the
       outputs' elements. Optional. */
    void (*computed)(void *user, const struct node *n, struct tensor *const *in, struct tensor *const *out);
    void *user;
};
bool graph_eval(const struct graph *g, struct tensor *const *in, struct tensor **out,
                struct arena *a,
                const struct graph_eval_opts *o, struct err *e);
/* Binds the variables that are whole dims of the graph's inputs: var[] has symtab.var.n entries,
   unbound ones INT64_MIN. */
bool graph_bind(const struct graph *g, struct tensor *const *in, i64 *var, struct err *e);
/* Whether the facts hold for these sizes; facts about unknown ones (INT64_MIN) are skipped. */
bool graph_facts_hold(const struct graph *g, const i64 *var, struct err *e);

/* Sizes read from v, whose content is t, and those that depend on them; known entries of var are
   kept. */
bool graph_read_sizes(const struct graph *g, value_id v, const struct tensor *t, i64 *var, struct err *e);

/* op_call.c: of a node with OP_CALL. */
struct op_call {
    bool is_loop;              /* otherwise a branch */
    bool is_conditional;       /* the body's first output is the condition of the next iteration */
    u32 n_carried, n_captured; /* inputs after the condition */
    u32 n_out, n_scan;         /* results without the sizes: carried, then scanned ones, or a branch's */
    u32 n_body;
    const struct graph *body[2]; /* of a loop; of a branch: else, then */
    sym trip_count;            /* of a loop: maximal number of iterations */
    const i64 *size;           /* pairs of output and axis: data-dependent sizes, the elements of its last output */
    i64 n_size;
};
bool op_call_get(const struct graph *g, const struct node *x, struct op_call *c); /* false: malformed */
/* a size that changes between iterations, bound by the body's inputs */
bool op_call_varies(const struct node *x, struct str name);
/* while.c: constants read by bodies are copied into them, and inputs that no body reads are
   removed. Returns whether anything changed. */
bool op_call_trim(struct graph *g, node_id n);

/* op_view.c: symbolic parameters, and operators that only move elements. Operators that take sizes
   as inputs (Reshape, Slice, Pad ...) are rewritten to primitives that hold them as symbolic
   expressions in an attribute of strings ("H//2"): the shape arithmetic then has no users and drops
   out of the graph. */
void op_set_syms(struct graph *g, node_id n, const char *attr, const sym *v, i64 count);
/* count; -1: absent or malformed */
i64 op_get_syms(const struct graph *g, const struct node *n, const char *attr, sym *v, i64 max);
/* their values */
bool op_eval_syms(const struct op_eval *v, const char *attr, i64 *out, i64 max, struct err *e);
/* Maps an element of the output to its source: returns the number of the input, with the index in
   in[]; -1 = zero. */
typedef i64 op_map_fn(const void *par, const i64 *out, i64 *in);
bool op_map_eval(const struct op_eval *v, op_map_fn *fn, const void *par); /* computes out[0] */
/* Content of output k from the symbolic content of the inputs; all shapes static; no effect if
   unknown. */
void op_map_sdata(struct graph *g, node_id n, u32 k, op_map_fn *fn, const void *par);
/* next index in row-major order; false: past the last */
bool op_next(u32 rank, const i64 *dim, i64 *idx);
i64 op_flat(u32 rank, const i64 *dim, const i64 *idx);
/* same elements in the same order */
void op_copy_sdata(struct graph *g, value_id from, value_id to);
/* A node of operator `op` named like n takes n's first n_in inputs and all its outputs; n becomes
   dead. For expand. */
node_id op_replace(struct graph *g, node_id n, const char *op, u32 n_in);
/* A data-dependent index: negative ones count from the end, others are clamped to the axis.
   emit_index does so in kernels. */
i64 op_index(i64 i, i64 dim);

/* op_window.c: windows that slide over the spatial axes 2, 3 ... of (n, c, d0, d1 ...), for
   convolution and pooling. */
struct op_window {
    u32 n;                               /* spatial axes */
    i64 kernel[MAX_RANK], stride[MAX_RANK], dilation[MAX_RANK]; /* > 0 */
    /* pads; constant except for auto_pad SAME_* with stride > 1 over a symbolic size */
    sym begin[MAX_RANK], end[MAX_RANK];
    bool ceil;                           /* the last window may extend beyond the end padding */
    bool every;                          /* for op_taps_open: taps outside of the input, too */
};
/* Checks the attributes and writes them back explicitly: kernel_shape (given by `kernel` unless
   NULL), strides, dilations, pads. auto_pad remains only if pads are symbolic. */
bool op_window_infer(struct graph *g, node_id n, const i64 *kernel, struct op_window *w,
                     struct err *e);
/* of an inferred node */
void op_window_get(const struct graph *g, const struct node *n, struct op_window *w);
/* Sizes 2 ... of the output. */
void op_window_sizes(const struct graph *g, const struct op_window *w, const struct shape *x, struct shape *out);
/* The same for node n, whose input must be large enough, possibly by a new fact. false: the kernel
   is larger than the padded input. */
bool op_window_out(struct graph *g, node_id n, const struct op_window *w, const struct shape *x,
                   struct shape *out, struct err *e);
/* Crops the output to these sizes by changing the end pads, attribute "ends". For convolutions. */
void op_window_crop(struct graph *g, node_id n, const sym *size);
/* the begin pads' values */
bool op_window_begin(const struct op_eval *v, const struct op_window *w, i64 *begin);
i64 op_window_taps(const struct op_window *w); /* product of the kernel's sizes */
/* For row-wise evaluation, all spatial axes but the last being rows: the row of `to` that row r of
   `from` reads under row tap t, p = o*stride + k*dilation - begin: its offset in a channel of `to`,
   -1: outside. Table [row taps][rows] in the evaluation's scratch arena; NULL: out of memory. */
const i64 *op_window_rows(const struct op_eval *v, const struct op_window *w, const i64 *begin,
                          const i64 *from, const i64 *to, struct err *e);

/* Loops over the taps of the window at output position o[0..n). Loop limits are clamped to the
   input of shape x if o is scalar; on vector axes, or with w->every, `at` is clamped and `ok` is
   true inside (0: always). Closed by n x kir_end. */
struct op_taps {
    kval k[MAX_RANK];  /* position in the kernel */
    kval at[MAX_RANK]; /* position in the input */
    kval ok;
};
void op_taps_open(struct emit *m, const struct op_window *w, const struct shape *x, const kval *o,
                  struct op_taps *t);
void op_taps_close(struct emit *m, const struct op_window *w);
/* First and one past the last tap inside the input along axis i; with padded: inside the padded
   input. */
void op_taps_range(struct emit *m, const struct op_window *w, const struct shape *x, u32 i, kval o,
                   bool padded, kval lohi[2]);

/* filter.c: of an inferred quern::Filter or quern::FilterOuter node. Tap t = i*kernel[1] + j of the
   weights at p, or of all weights, reads p + (i, j)*dilation - begin. */
struct op_filter {
    i64 kernel[2], dilation[2], begin[2];
    bool splat;      /* weights have the input's positions, not the output's */
    bool normalize;  /* divided by the sum of the weights inside, plus epsilon */
    bool softmax;    /* of the weights, over all taps of a pixel; neither with splat nor with normalize */
    double epsilon;
};
void op_filter_get(const struct node *n, struct op_filter *f);

/* op_cell.c: the cells of RNN, GRU and LSTM. Gates are in ONNX's order: RNN h; GRU z, r, h; LSTM i, o, f, c. */
enum op_cell_kind { CELL_RNN, CELL_GRU, CELL_LSTM };
struct op_activation { u32 fn; double alpha, beta; };
struct op_cell {
    enum op_cell_kind kind;
    u32 n_gates, n_dirs;
    bool reverse[2];                     /* per direction */
    i64 hidden;                          /* units */
    struct op_activation act[2][3];      /* per direction: f, g, h */
    double clip;                         /* bound of the inputs of the gates' activations; INFINITY: not clipped */
    bool input_forget;                   /* LSTM: f = 1 - i */
    bool linear_before_reset;            /* GRU: r multiplies the recurrent product, not h */
};
/* Of an RNN, GRU, LSTM node, or of the primitive; r: the number of its input with the recurrent
   weights (dirs, gates*hidden, hidden). */
bool op_cell_read(const struct graph *g, node_id n, u32 r, struct op_cell *c, struct err *e);
/* The same for an inferred node. */
struct op_cell op_cell_get(const struct graph *g, const struct node *n);
/* GRU: the recurrent matmul of the candidate h needs r first, so a step has two matmuls. */
bool op_cell_has_two_stages(const struct op_cell *c);
/* One step of one unit. gate: projected input + recurrent matmul. GRU: gate[2] is the projected
   input of h, gate[3] its recurrent part (with its bias, for linear_before_reset), 0 if gate[2]
   includes it. peep: LSTM, 0: none. */
struct op_cell_step { kval dir, gate[4], peep[3], h, c; };
kval op_cell_activate(struct kir *k, const struct op_cell *c, u32 f, kval dir, kval x); /* clipped first */
void op_cell_emit(struct kir *k, const struct op_cell *c, struct op_cell_step *s); /* updates h and c */
struct op_cell_numbers { u32 dir; double gate[4], peep[3], h, c; };
double op_cell_activate_f(const struct op_cell *c, u32 f, u32 dir, double x);
void op_cell_eval(const struct op_cell *c, struct op_cell_numbers *s);
void op_cell_random(const struct op *self, struct graph *g, struct rng *r, bool is_primitive);

/* pad.c: v is produced by quern::Pad, and its elements from .. to-1 along the axis are not padding. */
bool op_pad_inner(const struct graph *g, value_id v, u32 axis, sym *from, sym *to);

/* codes.c: constant weights in few bits, quern::Dequantize: out[k, n] = (q[k, n] - zero[k / block, n]) * scale[k / block, n]. */
struct op_codes {
    value_id q, scale, zero; /* codes; floats; u8, 0: `offset` is the zero point of all */
    i64 block, offset;       /* block: terms of a sum with one scale */
    enum dtype type;         /* of q: u2, u4, u8, i8, or floats of 4 to 8 bits, which have no zero point */
};
bool op_is_code(enum dtype t);
bool op_codes_get(const struct graph *g, node_id n, struct op_codes *c); /* false: n (0: none) is another operator, or its operands are computed */

/* matmul.c: digits of 7 bits and a sign to which elements of the left operand may be rounded, relative to the largest in their block of terms; 0: not. */
i64 op_digits(const struct node *n);

/* of input k */
const struct shape *op_in_shape(const struct graph *g, const struct node *n, u32 k);
/* of input k */
enum dtype op_in_dtype(const struct graph *g, const struct node *n, u32 k);
/* of the inputs from `first` on */
bool op_same_types(const struct graph *g, node_id n, u32 first, struct err *e);
/* Likewise of all inputs, but input 1, if constant, may hold numbers of f32 in 16 bits (f16, bf16): networks have none, pass_compact.c makes them. */
bool op_types_fit_weights(const struct graph *g, node_id n, struct err *e);
/* optional input k is present */
bool op_has_in(const struct node *n, u32 k);

/* acc[i*as] += w * x[at + i*xs] for i < n: the inner loop of reference evaluations. */
struct op_row { double *acc; i64 as; const struct tensor *x; i64 at, xs, n; };
void op_row_add(const struct op_row *r, double w);

#endif
