# SPDX-License-Identifier: Apache-2.0
#
# ONNX Runtime's convolutions use a blocked channel layout, (1, c / b, h, w, b). Within a network it
# is kept between convolutions; around a single convolution there would be layout conversions that
# take as long as it. Here they are removed.
import numpy as np
import onnx

DOMAIN = "com.microsoft.nchwc"


def strip(path):
    """Rewrites an optimised model of one convolution; returns whether there were nodes to remove.
    The blocked number of channels becomes a name."""
    model = onnx.load(path)
    g = model.graph
    cut = [n for n in g.node if n.domain == DOMAIN and n.op_type.startswith("Reorder")]
    for n in cut:
        is_input = n.op_type == "ReorderInput"
        kept, gone = (n.input[0], n.output[0]) if is_input else (n.output[0], n.input[0])
        for other in g.node:
            rename(other.input, gone, kept)
            rename(other.output, gone, kept)
        for v in list(g.input) + list(g.output):
            if v.name == kept:
                v.type.tensor_type.shape.dim[1].dim_param = "blocked"
        g.node.remove(n)
    onnx.save(model, path)
    return bool(cut)


def strip_last(path):
    """Likewise for an 8-bit convolution, which is computed with channels last: without the
    transpositions at both ends."""
    model = onnx.load(path)
    g = model.graph
    cut = [n for n in g.node if n.op_type == "Transpose"]
    if not any(n.op_type == "QLinearConv" for n in g.node) or not cut:
        return False
    for n in cut:
        is_input = n.input[0] == g.input[0].name
        kept, gone = (n.input[0], n.output[0]) if is_input else (n.output[0], n.input[0])
        g.node.remove(n)
        for other in g.node:
            rename(other.input, gone, kept)
            rename(other.output, gone, kept)
        for v in [v for v in list(g.input) + list(g.output) if v.name == kept]:
            sizes = [d.dim_value for d in v.type.tensor_type.shape.dim]
            for d, size in zip(v.type.tensor_type.shape.dim, sizes[:1] + sizes[2:] + sizes[1:2]):
                d.dim_value = size
    onnx.save(model, path)
    return True


def rename(names, old, new):
    for i, n in enumerate(names):
        if n == old:
            names[i] = new


def block(x, b):
    """(1, c, h, w) in blocks of b channels, padded with zeros, as (1, c rounded up, h, w)."""
    _, c, h, w = x.shape
    full = np.zeros((1, -(-c // b) * b, h, w), x.dtype)
    full[:, :c] = x
    blocks = full.reshape(1, -1, b, h, w).transpose(0, 1, 3, 4, 2)
    return np.ascontiguousarray(blocks).reshape(full.shape)


def unblock(y, c, b):
    """The inverse, for c channels."""
    _, full, h, w = y.shape
    return y.reshape(1, full // b, h, w, b).transpose(0, 1, 4, 2, 3).reshape(y.shape)[:, :c]
