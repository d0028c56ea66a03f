// SPDX-License-Identifier: Apache-2.0
//
// Private to export/: networks as models of TFLite (doc/export-tflite.md).
//
// A network is prepared (export_tflite_prepare.c), the representation of each value is chosen
// (export_tflite_values.c, export_tflite_quant.c), and each node becomes operators of TFLite by a
// row of the table (export_tflite_table.c) and its function (export_tflite_conv.c, _matmul.c,
// _point.c, _move.c). The model is then checked for a device (export_tflite_edgetpu.c) and written
// (export_tflite_file.c).
#ifndef QUERN_EXPORT_TFLITE_H
#define QUERN_EXPORT_TFLITE_H

#include "op/op.h"

/* The model. */

enum tfl_type { /* numbers of the format */
                TFL_F32 = 0,
                TFL_F16 = 1,
                TFL_I32 = 2,
                TFL_U8 = 3,
                TFL_I64 = 4,
                TFL_BOOL = 6,
                TFL_I16 = 7,
                TFL_I8 = 9
};

enum tfl_code { /* operators, numbers of the format */
                TFL_ADD = 0,
                TFL_AVERAGE_POOL_2D = 1,
                TFL_CONCATENATION = 2,
                TFL_CONV_2D = 3,
                TFL_DEPTHWISE_CONV_2D = 4,
                TFL_DEPTH_TO_SPACE = 5,
                TFL_DEQUANTIZE = 6,
                TFL_FLOOR = 8,
                TFL_FULLY_CONNECTED = 9,
                TFL_LOGISTIC = 14,
                TFL_MAX_POOL_2D = 17,
                TFL_MUL = 18,
                TFL_RELU = 19,
                TFL_RELU_N1_TO_1 = 20,
                TFL_RELU6 = 21,
                TFL_RESHAPE = 22,
                TFL_RESIZE_BILINEAR = 23,
                TFL_SOFTMAX = 25,
                TFL_SPACE_TO_DEPTH = 26,
                TFL_TANH = 28,
                TFL_PAD = 34,
                TFL_GATHER = 36,
                TFL_TRANSPOSE = 39,
                TFL_MEAN = 40,
                TFL_SUB = 41,
                TFL_DIV = 42,
                TFL_STRIDED_SLICE = 45,
                TFL_EXP = 47,
                TFL_SPLIT = 49,
                TFL_LOG_SOFTMAX = 50,
                TFL_CAST = 53,
                TFL_PRELU = 54,
                TFL_MAXIMUM = 55,
                TFL_ARG_MAX = 56,
                TFL_MINIMUM = 57,
                TFL_LESS = 58,
                TFL_NEG = 59,
                TFL_PADV2 = 60,
                TFL_GREATER = 61,
                TFL_GREATER_EQUAL = 62,
                TFL_LESS_EQUAL = 63,
                TFL_SLICE = 65,
                TFL_SIN = 66,
                TFL_TRANSPOSE_CONV = 67,
                TFL_TILE = 69,
                TFL_EQUAL = 71,
                TFL_NOT_EQUAL = 72,
                TFL_LOG = 73,
                TFL_SUM = 74,
                TFL_SQRT = 75,
                TFL_RSQRT = 76,
                TFL_POW = 78,
                TFL_ARG_MIN = 79,
                TFL_REDUCE_PROD = 81,
                TFL_REDUCE_MAX = 82,
                TFL_LOGICAL_OR = 84,
                TFL_LOGICAL_AND = 86,
                TFL_LOGICAL_NOT = 87,
                TFL_REDUCE_MIN = 89,
                TFL_RESIZE_NEAREST_NEIGHBOR = 97,
                TFL_LEAKY_RELU = 98,
                TFL_SQUARED_DIFFERENCE = 99,
                TFL_MIRROR_PAD = 100,
                TFL_ABS = 101,
                TFL_CEIL = 104,
                TFL_COS = 108,
                TFL_ELU = 111,
                TFL_QUANTIZE = 114,
                TFL_ROUND = 116,
                TFL_HARD_SWISH = 117,
                TFL_SELECT_V2 = 123,
                TFL_BATCH_MATMUL = 126,
                TFL_CUMSUM = 128,
                TFL_BROADCAST_TO = 130,
                TFL_GELU = 150,
                TFL_SIGN = 158
};

/* real = (stored - zero) * scale, of i8 and i32 */
struct tfl_quant {
    u32 n;    /* 0: none; 1: of the whole tensor; else one for each index of an axis */
    u32 axis; /* in the order of the tensor's axes */
    const float *scale;
    const i64 *zero;
};

typedef u32 tfl_id; /* of a tensor; 0: none */

struct tfl_tensor {
    struct str name;
    enum tfl_type type;
    u32 rank;
    i64 dim[MAX_RANK];
    struct tfl_quant q;
    const void *data; /* of constants, else NULL */
    i64 size;         /* of data, bytes */
};

struct tfl_operator {
    enum tfl_code code;
    i32 version;
    struct {
        tfl_id *v;
        u32 n, cap;
    } in, out;
    const char *options; /* member of the schema's union; NULL: none */
    struct str fields;   /* of it, JSON without braces */
    node_id node;        /* of the network, for messages */
};

struct tfl_model {
    struct {
        struct tfl_tensor *v;
        u32 n, cap;
    } tensor; /* v[0] unused */
    struct {
        struct tfl_operator *v;
        u32 n, cap;
    } op;
    struct {
        tfl_id *v;
        u32 n, cap;
    } input, output;
    struct {
        struct str *v;
        u32 n, cap;
    } in_name, out_name;
};

/* Values of the network. */

enum tfl_layout {
    TFL_ROWS,  /* the axes of the network */
    TFL_CLAST, /* axis 1 at the end; rank 3 and more */
    TFL_FLAT,  /* of rank 2: what a value of TFL_CLAST becomes if its axes but the first are one */
    N_TFL_LAYOUTS
};

enum tfl_form {
    TFL_REAL,     /* as computed, in its own type */
    TFL_STORED,   /* quantised, i8 */
    TFL_RESTORED, /* f32, from TFL_STORED */
    N_TFL_FORMS
};

struct tfl_value {
    value_id of; /* the value that represents it: a value that is quantised and its pair are one. Of
                    others nothing else is used */
    struct tfl_quant q; /* its form TFL_STORED; n 0: there is none. Zero points are those of i8; the
                           axis is the network's */
    value_id from;      /* result of QuantizeLinear: the value that is quantised; 0: other */
    bool likes_clast;   /* readers need it with channels last */
    enum tfl_layout layout; /* in which it is computed */
    i64 flat[2];            /* of TFL_FLAT: channels, other elements */
    tfl_id id[N_TFL_FORMS][N_TFL_LAYOUTS];
};

typedef const struct tfl_row *tfl_row_fn(struct str op);

struct tfl {
    tfl_row_fn *row; /* tfl_row_find */
    struct graph g;  /* the network, prepared */
    struct arena *a;
    struct tfl_model m;
    struct tfl_value *v;   /* per value */
    u32 *uses;             /* per value of g */
    bool keeps_layout;     /* inputs and outputs have the network's axes; else channels last */
    bool rounds_constants; /* of f32 to 8 bits, and means twice; else such operators stay in f32 */
    node_id at;            /* being converted */
    bool is_q;             /* as quantised */
    const struct log *log;
    struct err *e;
};

enum tfl_place {
    TFL_ANYWHERE,
    TFL_SPATIAL,
    TFL_ROW_MAJOR
}; /* layouts that an operator computes in: both, channels last, the network's */
enum tfl_ability {
    TFL_NO_Q,  /* computes in f32 only */
    TFL_ANY_Q, /* of i8 with any scales */
    TFL_SAME_Q /* with one scale for all inputs and outputs: moves elements, or selects some */
};

struct tfl_row {
    const char *op;
    bool (*write)(struct tfl *t,
                  const struct node *n); /* NULL: of QuantizeLinear and DequantizeLinear */
    enum tfl_place place;
    enum tfl_ability ability;
    bool (*can)(struct tfl *t, const struct node *n); /* more conditions for i8; NULL: none */
    i32 code;                                         /* for rows that share a function */
};

/* export_tflite_table.c, called through tfl.row by the files of its functions */
const struct tfl_row *tfl_row_find(struct str op); /* NULL: none */

/* export_tflite_codes.c */
i32 tfl_version(const struct tfl_model *m, const struct tfl_operator *o);
const char *tfl_code_name(enum tfl_code c);

/* export_tflite_tensor.c: tensors and operators. Functions that fail return 0 or false, with the
 * error set. */
struct tfl_quant tfl_quant_one(struct arena *a, double scale, i64 zero);
struct tfl_quant tfl_quant_range(struct arena *a, double lo, double hi);
bool tfl_quant_same(const struct tfl_quant *x, const struct tfl_quant *y);
tfl_id tfl_new(struct tfl *t, const struct tfl_tensor *x);
i64 tfl_type_size(enum tfl_type type);
tfl_id tfl_dequantize(struct tfl *t, tfl_id in);
/* Elements in another order of axes: axis k of the result is perm[k] of the array. */
void *tfl_permute(struct arena *a, const void *data, i64 size, u32 rank, const i64 *dim,
                  const i64 *perm, struct err *e);
tfl_id tfl_like(struct tfl *t, tfl_id x, const char *suffix, u32 rank,
                const i64 *dim); /* a new tensor of x's type and scale */
tfl_id tfl_constant(struct tfl *t, const char *name, enum tfl_type type, u32 rank, const i64 *dim,
                    const void *data);
tfl_id tfl_ints(struct tfl *t, const char *name, u32 n, const i64 *v); /* i32, of one axis */
tfl_id tfl_int(struct tfl *t, const char *name, i64 v); /* i32, no axis */
tfl_id tfl_float(struct tfl *t, double v);
struct tfl_tensor *tfl_at(const struct tfl *t, tfl_id x);

/* Operators. fields: printf's. */
struct tfl_operator *tfl_emit(struct tfl *t, enum tfl_code c, tfl_id out, u32 n_in,
                              const tfl_id *in);
void tfl_options(struct tfl *t, const char *options, const char *fields, ...)
    QUERN_PRINTF(3, 4); /* of the last operator */
tfl_id tfl_reshape(struct tfl *t, tfl_id x, u32 rank, const i64 *dim,
                   tfl_id out); /* out 0: a new tensor */
tfl_id tfl_transpose(struct tfl *t, tfl_id x, const i64 *perm, tfl_id out);
tfl_id tfl_pad(struct tfl *t, tfl_id x, const i64 *before, const i64 *after,
               double value); /* value 0: PAD */
tfl_id tfl_requantize(struct tfl *t, tfl_id x, const struct tfl_quant *q, tfl_id out);

/* export_tflite_prepare.c: nodes that have no row are expanded, constants folded, activations
 * fused. */
bool tfl_prepare(struct tfl *t, const struct graph *g);
const char *tfl_activation(
    const struct node *n); /* that was fused into n: "NONE" "RELU" "RELU6" "RELU_N1_TO_1" */

/* export_tflite_function.c: replaces a node by others if it is such a function. false without an
   error: it is none. */
bool tfl_expand_function(struct graph *g, node_id n, struct err *e);

/* export_tflite_quant.c */
bool tfl_quant_find(struct tfl *t); /* fills of, q and from */
bool tfl_quant_runs(struct tfl *t, const struct node *n,
                    const struct tfl_row *r); /* whether n can be computed in i8 */
/* A constant of f32, in 8 bits, with a given scale, or one by its largest element: exact, then, if
 * it has one. Others are handed back. */
tfl_id tfl_quant_const(struct tfl *t, tfl_id real, const struct tfl_quant *given);

/* export_tflite_values.c */
void tfl_layouts_choose(struct tfl *t);
value_id tfl_of(const struct tfl *t, value_id v);
u32 tfl_axis(u32 axis, u32 rank, enum tfl_layout l); /* its place in a layout */
void tfl_dims(const struct tfl *t, value_id v, enum tfl_layout l, i64 dim[MAX_RANK]);
const struct tensor *
tfl_content(const struct tfl *t,
            value_id v); /* of a constant, through DequantizeLinear; NULL: none */
tfl_id tfl_get(struct tfl *t, value_id v, enum tfl_form f, enum tfl_layout l);
tfl_id tfl_in(struct tfl *t, const struct node *n, u32 k,
              enum tfl_layout l); /* input k, in the form that n computes in */
tfl_id tfl_in_wide(struct tfl *t, const struct node *n, u32 k, enum tfl_layout l,
                   u32 rank); /* with leading axes of size 1 */
tfl_id tfl_out(struct tfl *t, const struct node *n, u32 k,
               enum tfl_layout l); /* output k, a new tensor */
tfl_id
tfl_out_q(struct tfl *t, const struct node *n, u32 k, enum tfl_layout l,
          const struct tfl_quant *q); /* i8 with that scale, tfl_settle converts it afterwards */
bool tfl_settle(struct tfl *t, const struct node *n, u32 k, enum tfl_layout l, tfl_id x); /* true */
double tfl_real(const struct tfl *t, value_id v,
                i64 i); /* element of a constant, dequantised; row-major in the network's axes */
enum tfl_form tfl_form_of(const struct tfl *t, value_id v); /* in which the node at hand reads it */
enum tfl_layout tfl_layout_of(const struct tfl *t, value_id v);
bool tfl_refuse(struct tfl *t, const struct node *n, const char *fmt, ...) QUERN_PRINTF(3, 4);
node_id tfl_node(const struct tfl *t, const struct node *n);

/* Weights: a constant in another order of axes, that becomes the right shape. In i8 if the node
   computes so; else, of a constant of i8, what DEQUANTIZE makes of it. */
struct tfl_order {
    u32 rank;
    i64 dim[MAX_RANK], perm[MAX_RANK]; /* as it is, as a shape of as many elements; axis k of the
                                          result is perm[k] */
    u32 n_to;
    i64 to[MAX_RANK]; /* its final shape */
    u32 axis;         /* of scales, there */
};
tfl_id tfl_weights(struct tfl *t, value_id v, const struct tfl_order *o);
/* n elements; in i8 of i32 with the product of the scales of x and w. v 0: zeros. */
tfl_id tfl_bias(struct tfl *t, value_id v, i64 n, tfl_id x, tfl_id w);
/* Whether a value is a constant of i8 without zero points and with one scale, or one per index of
 * an axis. */
bool tfl_is_symmetric(const struct tfl *t, value_id v, u32 axis);

/* Functions of rows. */
bool tfl_conv(struct tfl *t, const struct node *n);
bool tfl_conv_can(struct tfl *t, const struct node *n);
bool tfl_conv_transpose(struct tfl *t, const struct node *n);
bool tfl_pool(struct tfl *t, const struct node *n);
bool tfl_pool_can(struct tfl *t, const struct node *n);
bool tfl_global_pool(struct tfl *t, const struct node *n);
bool tfl_resize(struct tfl *t, const struct node *n);
bool tfl_blocks(struct tfl *t, const struct node *n);
bool tfl_gemm(struct tfl *t, const struct node *n);
bool tfl_gemm_can(struct tfl *t, const struct node *n);
bool tfl_matmul(struct tfl *t, const struct node *n);
bool tfl_matmul_can(struct tfl *t, const struct node *n);
bool tfl_unary(struct tfl *t, const struct node *n);
bool tfl_binary(struct tfl *t, const struct node *n);
bool tfl_compare(struct tfl *t, const struct node *n);
bool tfl_clip(struct tfl *t, const struct node *n);
bool tfl_prelu(struct tfl *t, const struct node *n);
bool tfl_operands_can(struct tfl *t, const struct node *n);
bool tfl_reciprocal(struct tfl *t, const struct node *n);
bool tfl_hard_sigmoid(struct tfl *t, const struct node *n);
bool tfl_hard_sigmoid_can(struct tfl *t, const struct node *n);
bool tfl_swish(struct tfl *t, const struct node *n);
bool tfl_swish_can(struct tfl *t, const struct node *n);
bool tfl_where(struct tfl *t, const struct node *n);
bool tfl_cast(struct tfl *t, const struct node *n);
bool tfl_softmax(struct tfl *t, const struct node *n);
bool tfl_transposed(struct tfl *t, const struct node *n);
bool tfl_reshaped(struct tfl *t, const struct node *n);
bool tfl_concat(struct tfl *t, const struct node *n);
bool tfl_padded(struct tfl *t, const struct node *n);
bool tfl_padded_can(struct tfl *t, const struct node *n);
bool tfl_slice(struct tfl *t, const struct node *n);
bool tfl_gather(struct tfl *t, const struct node *n);
bool tfl_tile(struct tfl *t, const struct node *n);
bool tfl_expand(struct tfl *t, const struct node *n);
bool tfl_reduce(struct tfl *t, const struct node *n);
bool tfl_arg(struct tfl *t, const struct node *n);
bool tfl_cumsum(struct tfl *t, const struct node *n);

/* export_tflite_edgetpu.c: whether the Edge TPU's compiler accepts the model; the error names the
 * first node that it does not. */
bool tfl_edgetpu_check(struct tfl *t);

/* export_tflite_file.c */
struct tfl_pieces { /* of a file, one after the other */
    struct str *v;
    u32 n, cap;
};
bool tfl_lay_out(const struct tfl *t, struct tfl_pieces *out);

#endif
