// SPDX-License-Identifier: Apache-2.0
//
// zoo: built-in networks, as graphs with seeded weights. A plug-in file src/zoo/NAME.c exports one
// `const struct zoo zoo_NAME`. Weights are random unless the network is analytic; the same name
// yields the same bytes everywhere.
#ifndef QUERN_ZOO_H
#define QUERN_ZOO_H

#include "op/op.h"

struct zoo {
    u32 version;         /* of this struct: 1 */
    const char *name;    /* "oidn-small" */
    const char *summary; /* one line */
    bool (*build)(struct graph *g,
                  struct err *e); /* into an initialised, empty graph; inputs and outputs set */
};

/* zoo.c: the registry */
const struct zoo *zoo_find(struct str name); /* NULL: unknown */
const struct zoo *zoo_at(i64 k);             /* k-th, NULL past the end */

/* zoo_net.c: building with seeded weights */

struct net {
    struct graph *g;
    struct rng rng;
    u32 axes; /* spatial axes of the last input: 2, 3 for volumes */
};

struct net_conv {
    const char *name;
    i64 in, out;           /* channels */
    i64 size, stride, pad; /* equal on all axes; stride 0: 1 */
    i64 groups;            /* 0: 1 */
    bool no_bias;
};

struct net net_start(struct graph *g, u64 seed);
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
