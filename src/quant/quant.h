// SPDX-License-Identifier: Apache-2.0
//
// quant: static quantisation of a network to 8 bits after its training (doc/quantize.md).
//
//   real = (quantised - zero point) * scale
//
// A *layer* (Conv, ConvTranspose, Gemm, MatMul with constant f32 weights) multiplies 8-bit
// activations, which have one scale and zero point per value, by i8 weights, which have a scale per
// output channel; its bias is i32 with the product of both scales (Jacob et al. 2018, Quantization
// and training of neural networks for efficient integer-arithmetic-only inference). The result is
// written in the QDQ form of ONNX: values pass through a pair of QuantizeLinear and
// DequantizeLinear, constants through a DequantizeLinear. Or only the weights of matmuls are
// quantised, in blocks (quant_weights.c).
//
// This folder decides and rewrites. It runs nothing: callers run the networks that it builds and
// show it their values.
#ifndef QUERN_QUANT_H
#define QUERN_QUANT_H

#include "op/op.h"

/* How the range of a value follows from the values that were seen. */
enum quant_method {
    QUANT_MIN_MAX,    /* all of them */
    QUANT_ENTROPY,    /* least divergence of the distributions (Migacz 2017, 8-bit inference with TensorRT) */
    QUANT_PERCENTILE, /* all but a fraction at either end */
    N_QUANT_METHODS
};
const char *quant_method_name(enum quant_method m); /* "min-max" "entropy" "percentile" */
enum quant_method quant_method_parse(struct str s, bool *ok);

struct quant_opts {
    enum quant_method method;
    double percentile;  /* QUANT_PERCENTILE: of the values that a range holds at either end, 50 to 100 */
    bool is_signed;     /* activations are i8 instead of u8 */
    bool no_correction; /* biases are not corrected */
    bool reduce_range;  /* weights of 7 bits */
    bool full;          /* from the network's inputs to its outputs, as if these were layers */
    enum dtype weights; /* DT_I4, DT_I8: only the weights of MatMul and Gemm are quantised, in blocks; DT_NONE: activations, too */
    i64 block;          /* with weights: terms of a sum with one scale */
};

/* quant_range.c: the values of a tensor seen in calibration runs. */
enum { QUANT_BINS = 2048 };
struct quant_seen {
    double lo, hi;   /* with 0 */
    i64 n;           /* elements */
    u64 *bin;        /* 2 * QUANT_BINS of equal width from -limit to limit, without zeros; NULL: none */
    double limit;    /* the larger one of -lo and hi when bins were made */
    i64 axis;        /* of channels; -1: means are not needed */
    double *sum;     /* per channel */
    i64 n_channels;
};
struct quant_range { double lo, hi; }; /* lo <= 0 <= hi */
/* First all tensors by quant_see, then, for methods that need a histogram, all of them again by
   quant_count. Tensors are f32. false: an element is not finite; its index is in *at. */
bool quant_see(struct quant_seen *s, const struct tensor *t, struct arena *a, i64 *at);
void quant_count(struct quant_seen *s, const struct tensor *t, struct arena *a);
bool quant_needs_bins(enum quant_method m);
struct quant_range quant_range_of(const struct quant_seen *s, const struct quant_opts *o);

/* Scale and zero point. */
struct quant_step { float scale; i64 zero; };
/* The finest one of an 8-bit type that represents 0 exactly and the range, up to half a step at its ends. */
struct quant_step quant_step_of(struct quant_range r, bool is_signed);

/* quant.c: the network. Values keep their ids from quant_open on, in every graph made of it. */
struct quant_layer {
    value_id out, x, w, bias;  /* result, activation, weights (constant), constant bias; 0: none */
    u32 axis;                  /* of w: output channels; MAX_RANK: one scale for all of w */
    bool is_float;             /* not quantised; set by callers */
    bool is_reduced;           /* quant_opts.reduce_range */
    struct tensor *qw, *scale, *qbias; /* i8; f32 and i32, one element per output channel; qbias NULL: none */
    double noise, signal;      /* quant_weights_settle: sums of squares of the weights' errors, and of the weights */
    double *squares;           /* quant_gptq.c: (terms, terms) of products of the layer's inputs; NULL: none */
};
enum quant_role {
    QUANT_OTHER, /* computed in f32 on f32 values */
    QUANT_LAYER,
    /* the following ones between layers only: */
    QUANT_POINT, /* a pointwise function of one value; computed in f32 with the producer of that value */
    QUANT_JOIN,  /* quantised values to another one, with a scale of its own */
    QUANT_MOVE,  /* moves elements: the result has the scale of input 0 */
};
struct quant {
    struct arena *arena;
    struct quant_opts opts;
    struct graph g;                 /* the network, batch normalisations folded */
    struct { struct quant_layer *v; u32 n, cap; } layer; /* in the order of execution */
    enum quant_role *role;          /* per node */
    bool *is_pair;                  /* per value: a quantised node reads it */
    struct quant_seen **seen;       /* per value; NULL: not needed */
    value_id *same;                 /* per value: another one with the same scale, itself at the end of such a chain */
    struct quant_step *step;        /* per value, at the end of its chain */
};
/* Clones the network, folds batch normalisations, finds the layers. false: also if there is none. */
bool quant_open(struct quant *t, const struct graph *g, const struct quant_opts *o, struct arena *a, struct err *e);
/* Which values are quantised: roles and pairs follow from is_float of the layers. */
void quant_mark(struct quant *t);
/* Creates `seen` for the values that are quantised and for the means that bias correction needs. */
void quant_watch(struct quant *t);
/* Scales of values and layers, from what was seen. Again after a change of is_float and quant_mark. */
bool quant_settle(struct quant *t, struct err *e);
struct quant_step quant_value_step(const struct quant *t, value_id v);
/* Node n reads the quantised form of its input k, if that is quantised. */
bool quant_reads(const struct quant *t, node_id n, u32 k);

/* quant_layer.c: weights and bias of a layer whose activation has that step. mean: per input channel,
   NULL: no correction. */
bool quant_layer_settle(const struct graph *g, struct quant_layer *l, struct quant_step x, const double *mean, struct arena *a,
                        struct err *e);
bool quant_layer_find(const struct graph *g, node_id n, struct quant_layer *l); /* false: it is none */
i64 quant_layer_channel_axis(const struct graph *g, const struct quant_layer *l); /* of x: input channels; -1: not corrected */
bool quant_fold_norms(struct graph *g, struct err *e); /* batch normalisations into the weights of layers */

/* quant_block.c: weights alone, in blocks. */
u32 quant_terms_axis(const struct quant_layer *l); /* of the weights */
i64 quant_weight_at(const struct quant_layer *l, i64 term, i64 column); /* element of the weights, and of qw */
float *quant_scale_at(const struct quant_layer *l, i64 block, i64 column);
/* Of the layer's block that begins at a term, of weights w by terms and columns: scales of all columns. Then a term's codes; the number that one stands for. */
void quant_weights_scale(struct quant_layer *l, const float *w, i64 term, i64 block, i64 columns);
float quant_weights_round(struct quant_layer *l, const float *w, i64 term, i64 column, i64 block, i64 columns);
/* quant_weights.c */
bool quant_weights_settle(struct quant *t, struct err *e); /* codes and scales of all layers */
/* The network with these weights, inferred; `more` values become outputs, too. */
bool quant_write_weights(const struct quant *t, struct graph *to, const value_id *more, u32 n_more, struct err *e);

/* quant_gptq.c: likewise, with later weights making up for the rounding of earlier ones on samples. */
bool quant_gptq_open(struct quant *t, struct err *e); /* before samples; false: not enough memory */
void quant_gptq_see(const struct quant_layer *l, const struct tensor *x); /* x: a value of the layer's input, f32; l has squares */
/* All codes and scales of a layer with squares, which are used up, as w is, by terms and columns. false: not enough memory. */
bool quant_gptq_round(const struct quant *t, struct quant_layer *l, float *w, i64 terms, i64 columns, struct err *e);

/* quant_write.c */
/* The network in QDQ form, inferred; `more` values become outputs, too. */
bool quant_write(const struct quant *t, struct graph *to, const value_id *more, u32 n_more, struct err *e);
/* The network in f32 with two outputs per layer, which replace its own: the sum of squared differences of the layer's
   results and its results if it alone is quantised, and the sum of its squared results. */
bool quant_write_probe(const struct quant *t, struct graph *to, struct err *e);

#endif
