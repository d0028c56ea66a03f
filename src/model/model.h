// SPDX-License-Identifier: Apache-2.0
//
// model: a network as its callers opened it: imported with their interface and their assumptions
// about sizes, lowered on demand, with the sizes that it is optimised for.
//
//   model.c      opening, lowering
//   sizes.c      sizes to optimise for
//   assume.c     assumptions about sizes
//   request.c    requests for inputs and outputs
//   call.c       one operator as a graph with one node
//   operators.c  types and required device features of operators
//   expanded.c   a network as primitives at given sizes, to be looked at
//   contractions.c  matrix products and convolutions, and their number
//   attentions.c attentions, by sizes and form, and their number
//   attention_mask.c  what a mask of scores excludes
#ifndef QUERN_MODEL_H
#define QUERN_MODEL_H

#include "import/import.h"
#include "pass/pass.h"

/* Requested properties of an input or output, as texts; NULL: unchanged. */
struct io_request {
    const char *name;   /* NULL: all inputs, or all outputs */
    bool is_output;
    const char *shape, *type, *layout, *storage;
};

/* A model to import, possibly more than once. */
struct model_source {
    const char *path;   /* in memory: for messages */
    struct str bytes;   /* p NULL: read from the file; otherwise external data is refused */
    bool follow_links;  /* to external data */
    struct tensor *const *given; i64 n_given; /* see struct import_job */
};

struct model_opts {
    const char *optimize_for;  /* sizes that kernels are selected for; NULL: defaults */
    const char *assume;        /* assumptions about sizes before inference; NULL: none */
    const char *run_at;        /* sizes of a run: assumed if the symbolic model does not support them */
    const char *elements;      /* numbers of elements of sequence inputs, see import.h */
    struct tensor *const *constants; i64 n_constants; /* content of inputs that become constants; NULL: stays an input */
    bool constants_in_place;   /* they are used in their memory, which outlives the model; false: they are copied */
    const struct io_request *io; i64 n_io; /* in order, later ones override */
    const char *state;         /* caches in place, see state_find; NULL: none */
    bool f32_storage;          /* stores values in f32 behind an f16 interface */
    void (*dump)(void *user, const char *stage, const struct graph *g); void *user; /* see struct pass_env; NULL: none */
};

enum { MODEL_MAX_BYTES = 1 << 30 };

enum lowering { LOWERED_FLOATS = 1, LOWERED_INTEGER = 2, LOWERED_WORDS = 4, LOWERED_FIXED = 8 };

struct model {
    struct arena arena;
    struct symtab sym;
    struct graph graph;    /* as seen by callers, inferred; defines the results */
    bool has_integer;      /* products of quantised operands: three ways to lower the graph, otherwise one */
    u32 lowered_as;        /* bits of enum lowering: which of the next three are complete */
    struct graph lowered;  /* after the passes: primitives; interface layouts are layouts of values */
    struct graph integer;  /* likewise for devices with dot products of bytes */
    struct graph words;    /* likewise for devices with dot products of i16 only */
    struct graph fixed;    /* as integer, for devices without fast floating point */
    struct graph compact;  /* lowered as floats, for processors that convert vectors of 16 bits: weights that fit them are stored so; without nodes: none do */
    struct interface io;   /* the request per input and output; n 0: none */
    struct state_pairs state; /* caches that are in place where possible */
    bool is_narrow;        /* values are stored in f16 */
    i64 *var;              /* per variable: size to optimise for */
    u32 n_var;
    struct str name;       /* file name without folder and suffix */
    void (*dump)(void *user, const char *stage, const struct graph *g); void *user; /* model_opts' */
};

/* model.c. Completes a source: reads pipes, freezes constants, expands sequences. Content is in the arena. */
bool model_source_open(struct model_source *s, struct arena *a, const struct model_opts *o, struct err *e);
struct model *model_open(const struct model_source *s, const struct model_opts *o, struct err *e); /* NULL: error */
/* All reasons why the model cannot be opened or lowered with these options; texts are in the arena. false: it cannot be read. */
bool model_problems(struct import_problems *all, struct arena *a, struct model_source s, const struct model_opts *o, struct err *e);
bool model_is_random(const struct model *m); /* contains a generator of random numbers */
/* A model whose graph the caller builds between these two; finish infers it. Of the options only dump and user are used. */
struct model *model_new(struct str name, const struct model_opts *o);
bool model_finish(struct model *m, struct err *e);
void model_close(struct model *m);
/* The graph after the passes, created on demand; c: for a device of these limits, NULL: for any. NULL: error. */
const struct graph *model_lowered(struct model *m, const struct caps *c, struct err *e);
/* A part of the model's graph, lowered as the whole is for such a device (but for weights in 16 bits); c NULL: for any. In the arena. */
bool model_lower_part(struct graph *to, const struct graph *part, const struct model *m, const struct caps *c, struct arena *a, struct err *e);
/* The passes for this device on g, a copy of the model's graph with other names of nodes, or without nodes that have no effect. New nodes are
   named after those that they come from. */
bool model_lower(struct graph *g, struct model *m, const struct caps *c, struct err *e);

/* sizes.c. Fills var: sizes of the text ("H=17,W=31", NULL: none), others from `usual`, adjusted to the facts. */
bool model_sizes(const struct model *m, const char *text, const i64 *usual, i64 *var, struct err *e);
bool model_default_sizes(struct model *m, const char *optimize_for, struct err *e); /* m->var */
void model_add_sizes(struct model *m); /* after lowering, which may add variables */
bool model_optimize_for(struct model *m, const char *sizes, struct err *e); /* changes m->var */

/* assume.c. Adds the assumptions of a text to the facts, before the import. */
bool model_assume(struct symtab *t, const char *text, struct err *e);
bool model_assume_check(const struct graph *g, struct err *e); /* after the import: whether the names are sizes of inputs */
/* Whether the sizes fixed by such a text and by an interface (NULL: none) satisfy the facts of an imported graph. false without an
   error: the text is malformed. */
bool model_assume_fits(const struct graph *g, const struct interface *io, const char *text, struct err *e);

/* request.c. Parses requests for the inputs and outputs of g. Texts are kept in the arena. */
bool model_interface(struct interface *f, const struct graph *g, const struct io_request *r, i64 n, struct arena *a, struct err *e);

/* call.c. An operator that is called with arrays. */
enum { CALL_MAX_ARRAYS = 16, CALL_MAX_NAMES = 64 };
struct call_op {
    struct str name, attrs; /* attributes in the form of the graph's text */
    struct { u32 rank; struct str size[MAX_RANK]; } sizes[CALL_MAX_ARRAYS]; /* of inputs; empty: fixed */
    u32 n_sizes;            /* inputs with named sizes; 0: all sizes are fixed */
};
struct call_array { enum dtype dtype; u32 rank; const i64 *dim; }; /* DT_NONE: omitted */
struct call_outputs { u32 n; bool is_omitted[CALL_MAX_ARRAYS]; };
struct call_text {
    struct buf text;        /* a graph with inputs i0 .. and outputs o0 .. of types to be inferred */
    struct buf sizes;       /* the values of names: "H:17,W:31" */
    struct { struct str name; i64 is; } size[CALL_MAX_NAMES];
    u32 n_sizes;
};
/* Names of sizes: "n:c:h:w,?:k", one list per input. */
bool model_call_sizes(struct call_op *op, struct arena *a, const char *text, struct err *e);
/* Whether there is such an operator with these attributes (op_check_attributes); they are written anew, into the arena, as the kinds that it declares. */
bool model_call_attributes(struct call_op *op, struct arena *a, struct err *e);
bool model_call_print(struct call_text *c, const struct call_op *op, const struct call_array *in, u32 n_in, const struct call_outputs *out, struct err *e);
void call_text_release(struct call_text *c);

/* operators.c. The types of the operator's first input, or else of its output: bit dtype_onnx(t). */
u64 model_op_types(const struct op *op);
/* Device features that types of 32 bits and fewer require: "", "f64", "i64", "f64 i64"; types: of model_op_types. */
const char *model_op_needs(const struct op *op, u64 types);
const struct op_onnx *model_op_missing(i64 k); /* the k-th operator of ONNX that is not supported; NULL: end */

/* expanded.c. */
struct model_expanded {
    struct model *m;
    struct graph g;        /* primitives */
    struct arena *a;
    i64 *var;              /* sizes */
};
/* At these sizes "H=17,W=31" (NULL: those the model is optimised for); a: for everything. */
bool model_expand(struct model_expanded *x, struct model *m, const char *sizes, struct arena *a, struct err *e);
node_id model_origin(const struct model_expanded *x, node_id n); /* the node of the model that primitive n is, or is part of */

/* contractions.c */
enum { MODEL_MAX_BATCH = 4 };
struct model_contraction {
    struct str op;         /* operator of the model that it is, or is part of: "Gemm" */
    struct str node;       /* name of the first such node */
    const char *role;      /* "scores", "values": of an attention; "": neither */
    struct str shape;      /* "1x64x56x56 * 64x64x3x3 /2" */
    enum dtype type;       /* of the first operand */
    i64 count;
    double flops;          /* of one; a multiply-add is two */
    u32 rank[2];           /* of both operands */
    i64 dim[2][MAX_RANK];
    /* Of a matrix product (b.., m, k) x (b.., k, n), sizes of 1 omitted: a right operand without b makes it rows of the left one. m 0: a
       convolution. */
    u32 n_batch;
    i64 batch[MODEL_MAX_BATCH], m, n, k;
};
struct model_contraction_list { struct model_contraction *v; u32 n, cap; };
/* In the order of the model, at its sizes "H=17,W=31" (NULL: those it is optimised for); texts are in the arena. */
bool model_contractions(struct model_contraction_list *out, struct model *m, const char *sizes, struct arena *a, struct err *e);

/* attention_mask.c. Which keys the queries may attend to, i + off - left <= j <= i + off + right, off so that the last query belongs to the last
   key; and what else is known of a mask. */
enum { MODEL_UNBOUNDED = INT32_MAX };
struct model_mask {
    i64 left, right;       /* MODEL_UNBOUNDED: not limited */
    bool is_more;          /* it depends on data, or is fixed but no such band */
    bool has_bias;         /* it adds other numbers than 0 and (as good as) -infinity */
};
struct model_masks {
    struct model_expanded *x;
    const bool *is_data;   /* per value: depends on inputs of the network */
    i64 queries, keys;
};
/* Restricts *m by a value: bool, true where a score is kept (polarity: or where it is not), or floats that are added. */
void model_mask_add(struct model_mask *m, struct model_masks *k, value_id v, bool polarity);
/* The number that all elements are, which depends on sizes at most. */
bool model_number(struct model_masks *k, value_id v, double *number);

/* attentions.c */
struct model_attention {
    struct str op, node;   /* operator of the model that computes the scores, or is all of it; name of the first such node */
    enum dtype type;       /* of the queries */
    i64 count;
    i64 batch, heads, key_heads; /* key_heads: of keys and values; each is used by heads / key_heads of the queries */
    i64 queries, keys, head_size, value_size;
    double scale, softcap; /* softcap 0: none */
    struct model_mask mask;
    bool has_sums;         /* the sums of the probabilities over the queries are needed, too */
    bool is_other;         /* between the products is more than scale, softcap, mask and softmax */
};
struct model_attention_list { struct model_attention *v; u32 n, cap; };
/* As model_contractions. Attentions with a size that depends on data are omitted. */
bool model_attentions(struct model_attention_list *out, struct model *m, const char *sizes, struct arena *a, struct err *e);

#endif
