// SPDX-License-Identifier: Apache-2.0
//
// zoo: built-in networks, as graphs with seeded weights. A plug-in file src/zoo/NAME.c exports one
// `const struct zoo zoo_NAME`. Weights are random unless the network is analytic; the same name
// yields the same bytes everywhere.
#ifndef QUERN_ZOO_H
#define QUERN_ZOO_H

#include "op/op.h"

enum { ZOO_MAX_SIZES = 16, ZOO_LARGEST = 1 << 20 };

/* A size that users choose. Values are 1 to ZOO_LARGEST, or 0 where `real` is 0: any, a symbolic size of the input. */
struct zoo_size {
    const char *name; /* "layers", an option of quern zoo; NULL ends a table */
    i64 real;         /* of the published network */
    i64 small;        /* that tests use */
    const char *what; /* one line */
};

struct zoo {
    u32 version;         /* of this struct: 2 */
    const char *name;    /* "oidn-small" */
    const char *summary; /* one line */
    const struct zoo_size *size; /* at most ZOO_MAX_SIZES; NULL: the network has one size */
    /* Into an initialised, empty graph; inputs and outputs set. sizes[k]: the value of .size[k]. */
    bool (*build)(struct graph *g, const i64 *sizes, struct err *e);
};

/* zoo.c: the registry */
const struct zoo *zoo_find(struct str name); /* NULL: unknown */
const struct zoo *zoo_at(i64 k);             /* k-th, NULL past the end */
/* Builds a network in the sizes "layers=2,width=64"; the others are those of tests, or of the published network. NULL, "": all.
   ERR_USAGE names unknown and contradicting sizes. */
bool zoo_build(const struct zoo *z, const char *sizes, bool is_small, struct graph *g, struct err *e);

/* zoo_net.c: building with seeded weights */

struct net {
    struct graph *g;
    struct rng rng;
    u32 axes; /* spatial axes of the last input: 2, 3 for volumes */
    struct err *e; /* of large networks: set when there is no memory for a weight, which has no elements then; NULL: never */
};

struct net_conv {
    const char *name;
    i64 in, out;           /* channels */
    i64 size, stride, pad; /* equal on all axes; stride 0: 1 */
    i64 groups;            /* 0: 1 */
    bool no_bias;
};

struct net net_start(struct graph *g, u64 seed);
const char *net_part(struct net *n, const char *name, const char *part); /* "name.part" */
value_id net_input(struct net *n, const char *name,
                   const char *dims); /* f32, sizes separated by spaces: "1 3 H W" */
void net_output(struct net *n, value_id v, const char *name); /* f32 */
value_id net_ints(struct net *n, const char *name, const i64 *v, i64 count);
struct tensor *net_floats(struct net *n, u32 rank, const i64 *dim); /* zeroed, to be filled */
value_id net_normal(struct net *n, const char *name, u32 rank, const i64 *dim, double mean,
                    double deviation);
value_id net_op(struct net *n, const char *op, const char *name, value_id a,
                value_id b);                                            /* b may be 0 */
value_id net_conv(struct net *n, value_id x, const struct net_conv *c); /* He-initialised */
value_id net_conv_relu(struct net *n, value_id x, const struct net_conv *c);
value_id net_batch_norm(struct net *n, value_id x, const char *name, i64 channels, double scale);
value_id net_pool(struct net *n, value_id x, const char *name, i64 size, i64 stride,
                  i64 pad);                                   /* maximum pooling */
value_id net_up(struct net *n, value_id x, const char *name); /* twice the size, nearest */
value_id net_concat(struct net *n, value_id a, value_id b, const char *name); /* channels */
/* Pads (1, c, h, w) by its border to multiples of `align`; *size is what net_crop needs. */
value_id net_pad_to(struct net *n, value_id x, i64 align, value_id *size);
value_id net_crop(struct net *n, value_id x, value_id size);
/* (1, in) -> (1, out) by a Gemm with bias; weights have mean 0. */
value_id net_linear(struct net *n, value_id x, const char *name, i64 in, i64 out, double deviation);
value_id net_classify(struct net *n, value_id x, i64 channels,
                      i64 classes); /* mean over the picture, Gemm */

/* zoo_transformer.c: transformers on values (b, s, width): b sequences of s tokens, both possibly symbolic. */

enum net_norm {
    NORM_LAYER,    /* LayerNormalization */
    NORM_UNBIASED, /* gain*(x - mean)/(deviation + epsilon) + bias, the deviation divided by width - 1 */
    NORM_RMS       /* gain*x/sqrt(mean of x^2 + epsilon) */
};
enum net_act { ACT_GELU, ACT_GELU_TANH, ACT_SILU /* times a second linear layer */ };

struct net_transformer {
    i64 layers, width, heads;
    i64 kv_heads;             /* heads of keys and values; 0: as many */
    i64 hidden;               /* width of the feed-forward layers; 0: 4 width */
    enum net_norm norm;
    double epsilon;
    enum net_act act;
    bool no_bias, no_key_bias; /* of linear layers; of that of the keys */
    bool is_packed;           /* queries, keys and values by one linear layer */
    bool is_post_norm;        /* norms behind the sums instead of in front of the branches */
    double theta;             /* base of the rotary embedding's wavelengths; 0: none */
    value_id cos, sin;        /* set by net_rotary: (s, width/heads) */
    value_id bias;            /* added to the scores (b, heads, s, s); 0: none */
    value_id allowed;         /* bool: keys that queries attend to, broadcasts to the scores; 0: all */
    value_id windows;         /* (n, 1, s, s): added to the scores of n windows of each picture, b a multiple of n; 0: none */
    i64 n_windows, window_tokens; /* n, s */
};

/* ERR_USAGE: the width is not a multiple of the heads, or the heads of those of the keys. */
bool net_transformer_check(const struct net_transformer *t, struct err *e);
value_id net_ids(struct net *n, const char *name, i64 batch, i64 tokens); /* input (batch, sequence) of i64; 0: symbolic */
value_id net_count(struct net *n, value_id x, const char *name, i64 axis); /* the size of an axis, 1 element of i64 */
value_id net_scalar(struct net *n, const char *name, double v);           /* f32 */
value_id net_slice(struct net *n, value_id x, const char *name, i64 axis, i64 from, i64 to);
value_id net_first(struct net *n, value_id x, const char *name, i64 axis, value_id count); /* elements 0 .. count-1 */
value_id net_reshape(struct net *n, value_id x, const char *name, u32 rank, const i64 *dim); /* dim 0: the input's, -1: the rest */
value_id net_transpose(struct net *n, value_id x, const char *name, u32 rank, const i64 *perm);
value_id net_join(struct net *n, value_id a, value_id b, const char *name, i64 axis); /* Concat */
value_id net_axis(struct net *n, const char *op, value_id x, const char *name, i64 axis); /* with attribute axis */
/* x (.., in) -> (.., out); weights of deviation gain/sqrt(in). */
value_id net_dense(struct net *n, value_id x, const char *name, i64 in, i64 out, double gain, bool has_bias);
value_id net_norm(struct net *n, value_id x, const char *name, const struct net_transformer *t, double gain);
value_id net_gelu(struct net *n, value_id x, const char *name);
/* Rows of a table (rows, width) by ids. *table, if not NULL, receives it. */
value_id net_embed(struct net *n, value_id ids, const char *name, i64 rows, i64 width, double deviation, value_id *table);
/* Rows 0 .. count-1 of a table (rows, width). */
value_id net_positions(struct net *n, value_id count, const char *name, i64 rows, i64 width, double deviation);
value_id net_causal(struct net *n, value_id count, double low); /* (s, s): 0, `low` for keys behind the query */
void net_rotary(struct net *n, struct net_transformer *t, value_id ids); /* of (b, s); sets cos, sin */
value_id net_attention(struct net *n, value_id x, const char *name, const struct net_transformer *t);
value_id net_feed_forward(struct net *n, value_id x, const char *name, const struct net_transformer *t);
value_id net_blocks(struct net *n, value_id x, const struct net_transformer *t); /* all layers; no norm behind the last */

/* zoo_deepgen.c, zoo_llama.c: whole networks. ERR_USAGE: sizes contradict each other. */
struct zoo_deepgen { i64 vocabulary, positions, tokens, batch; bool has_head; };
bool zoo_deepgen(struct net *n, struct net_transformer *t, const struct zoo_deepgen *d);
struct zoo_llama { i64 vocabulary, tokens, batch; bool is_tied; /* the head is the table of tokens */ };
bool zoo_llama(struct net *n, struct net_transformer *t, const struct zoo_llama *l);

/* zoo_tiny.c: parts of MLPerf Tiny's networks */
struct zoo_tiny_conv {
    const char *name;
    i64 in, out, kernel[2], stride;
    i64 image[2];          /* rows and columns of the input, whose padding follows ("SAME") */
    bool is_depthwise;
    bool is_linear;        /* without ReLU */
};
value_id zoo_tiny_conv(struct net *n, value_id x, const struct zoo_tiny_conv *c);
/* Depthwise, then 1 x 1. */
value_id zoo_tiny_separable(struct net *n, value_id x, const char *name, const struct zoo_tiny_conv *c);
value_id zoo_tiny_softmax(struct net *n, value_id x, i64 channels, i64 classes); /* mean over the picture, Gemm, Softmax */

/* zoo_unet.c: the OIDN family, one table of channels each */
struct unet_oidn {
    i64 ec1, ec2, ec3, ec4, ec5, dc4, dc3, dc2a, dc2b, dc1a, dc1b;
};
void unet_oidn(struct graph *g, const struct unet_oidn *c, u64 seed);

/* zoo_cosmoflow.c: cubes of edge^3 cells, edge a multiple of 2^pools */
struct cosmoflow {
    i64 channels;          /* of the input */
    i64 convs, pools;      /* a pool after each of the first convolutions */
    i64 first, most;       /* channels: of the first convolution, doubled by each further one up to a maximum */
    i64 hidden[2], parameters; /* features of the layers after them */
    double range;          /* of the parameters, by tanh; 0: unlimited */
};
/* The network of MLPerf HPC, and the one with seven convolutions whose layers are the data set
   cosmoflow1 (data/conv). */
extern const struct cosmoflow cosmoflow_mlperf, cosmoflow_first;
void cosmoflow(struct graph *g, const struct cosmoflow *c, i64 edge, u64 seed);

#endif
