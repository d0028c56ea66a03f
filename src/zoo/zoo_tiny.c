// SPDX-License-Identifier: Apache-2.0
//
// zoo_tiny.c: the parts of the four networks of MLPerf Tiny: convolutions with TensorFlow's padding ("SAME": the odd row or column is at the end), batch
// norms folded, as they are deployed.
#include "zoo/zoo.h"

#include <math.h>

/* Outputs ceil(in / stride). */
static void tiny_pads(i64 in, i64 size, i64 stride, i64 *before, i64 *after)
{
    i64 out = (in + stride - 1) / stride, all = i64_max((out - 1) * stride + size - in, 0);
    *before = all / 2, *after = all - all / 2;
}

value_id zoo_tiny_conv(struct net *n, value_id x, const struct zoo_tiny_conv *c)
{
    i64 groups = c->is_depthwise ? c->in : 1, pads[4];
    i64 dim[4] = {c->out, c->in / groups, c->kernel[0], c->kernel[1]};
    double fan = (double)(dim[1] * dim[2] * dim[3]);
    value_id w = net_normal(n, net_part(n, c->name, "weight"), 4, dim, 0, sqrt(2 / fan)), b = net_normal(n, net_part(n, c->name, "bias"), 1, dim, 0, 0.1);
    value_id y = graph_op(n->g, "Conv", str_of(c->name), 3, (value_id[]){x, w, b});
    node_id node = graph_value(n->g, y)->producer;
    tiny_pads(c->image[0], c->kernel[0], c->stride, &pads[0], &pads[2]);
    tiny_pads(c->image[1], c->kernel[1], c->stride, &pads[1], &pads[3]);
    attr_set_ints(n->g, node, "pads", pads, 4);
    attr_set_ints(n->g, node, "strides", (i64[]){c->stride, c->stride}, 2);
    attr_set_ints(n->g, node, "kernel_shape", c->kernel, 2);
    if (groups > 1) attr_set_int(n->g, node, "group", groups);
    return c->is_linear ? y : net_op(n, "Relu", net_part(n, c->name, "relu"), y, 0);
}

value_id zoo_tiny_separable(struct net *n, value_id x, const char *name, const struct zoo_tiny_conv *c)
{
    struct zoo_tiny_conv dw = *c, pw = *c;
    dw.name = net_part(n, name, "depthwise"), dw.out = c->in, dw.is_depthwise = true;
    pw.name = net_part(n, name, "pointwise"), pw.kernel[0] = pw.kernel[1] = 1, pw.stride = 1;
    for (u32 i = 0; i < 2; i++) pw.image[i] = (c->image[i] + c->stride - 1) / c->stride;
    return zoo_tiny_conv(n, zoo_tiny_conv(n, x, &dw), &pw);
}

value_id zoo_tiny_softmax(struct net *n, value_id x, i64 channels, i64 classes)
{
    value_id y = net_op(n, "Softmax", "softmax", net_classify(n, x, channels, classes), 0);
    attr_set_int(n->g, graph_value(n->g, y)->producer, "axis", 1);
    return y;
}
