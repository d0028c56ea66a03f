# SPDX-License-Identifier: Apache-2.0
#
# The operands of a row (signed, seeded by its name, so that every process creates the same; u8 and
# i8 for quantised rows), and its ONNX file.
import math
import zlib

import numpy as np

import attention_forms


def random(rng, shape, terms=1):
    """Uniform numbers of variance 1 / terms."""
    x = rng.random(shape, dtype=np.float32)
    x -= np.float32(0.5)
    x *= np.float32((12 / terms) ** 0.5)
    return x


def aligned(x):
    """A copy aligned to a cache line, like memory of the libraries."""
    line = 64 // x.itemsize
    room = np.empty(x.size + line, x.dtype)
    y = room[-room.ctypes.data // x.itemsize % line :][: x.size].reshape(x.shape)
    y[...] = x
    return y


def gemm_shapes(row):
    lead = (row.batch,) if row.batch > 1 else ()
    right = (row.n, row.k) if row.transposed else (row.k, row.n)
    return lead + (row.m, row.k), lead + right


def coded_operands(row, rng):
    """Per copy numbers of 16 bits (as f32), or codes with a scale for each block of a column: (n,
    blocks, bytes of a block), low bits first, and (n, blocks)."""
    x, shape = random(rng, (row.m, row.k)), (row.k, row.n)
    if row.bits == 16:
        return x, [to_16_bits(random(rng, shape, row.k), row.weights) for _ in range(row.copies)]
    blocks = row.k // row.BLOCK
    rest = []
    for _ in range(row.copies):
        rest.append(rng.integers(0, 255, (row.n, blocks, row.BLOCK * row.bits // 8), np.uint8, endpoint=True))
        scale = rng.uniform(0.5, 1, (row.n, blocks)) / 2 ** (row.bits - 1) * (3 / row.k) ** 0.5
        rest.append(scale.astype(np.float16).astype(np.float32))
    return x, rest


def to_16_bits(a, kind):
    """Rounded to f16, or (towards 0) to bf16; as f32."""
    if kind == "f16":
        return a.astype(np.float16).astype(np.float32)
    return (a.view(np.uint32) & np.uint32(0xFFFF0000)).view(np.float32)


def is_quantised(row):
    return row.kind in ("qgemm", "qconv")


def quantised_operands(row, rng):
    any_of = lambda shape, least, most, t: rng.integers(least, most, shape, endpoint=True).astype(t)
    if row.kind == "qgemm":
        return any_of((row.m, row.k), 0, 255, np.uint8), [any_of((row.k, row.n), -127, 127, np.int8)]
    weights = any_of(row.weights, -127, 127, np.int8)
    bias = any_of((row.oc,), -1000, 1000, np.int32)
    return any_of(row.x, 0, 255, np.uint8), [weights, bias]


def operands(row):
    """The left operand or image, then the right ones: [right ...], [weights, bias], or nothing: a
    network has its own weights."""
    rng = np.random.default_rng(zlib.crc32(row.name.encode()))
    if row.kind == "net":
        return random(rng, row.shape), []
    if row.kind == "attention":
        return attention_forms.operands(row, random)
    if is_quantised(row):
        return quantised_operands(row, rng)
    if row.kind == "codes":
        return coded_operands(row, rng)
    if row.kind == "filter":
        second = row.x if row.op == "WeightedFilterGradWeights" else row.weights
        return random(rng, row.x), [random(rng, second, row.k**2)]
    if row.kind == "rnn":
        weights = [random(rng, row.weights, 3 * row.hidden) for _ in range(2)]
        return random(rng, row.x), [*weights, random(rng, (row.weights[0], 2 * row.weights[1]), 3 * row.hidden)]
    if row.kind == "gemm":
        left, right = gemm_shapes(row)
        x = random(rng, left)
        return x, [random(rng, right, row.k) for _ in range(row.copies)]
    x = random(rng, row.x)
    terms = math.prod(row.weights[1:])
    return x, [random(rng, row.weights, terms), random(rng, (row.oc,))]


def first_input(model):
    """The name of a network's first input that is no constant."""
    import onnx

    graph = onnx.load(model, load_external_data=False).graph
    constants = {t.name for t in graph.initializer}
    return next(i.name for i in graph.input if i.name not in constants)


def gemm_nodes(row, helper):
    right = ["w%d" % i for i in range(row.copies)]
    nodes = []
    if row.transposed:
        assert row.copies == 1
        perm = [0, 2, 1] if row.batch > 1 else [1, 0]
        nodes.append(helper.make_node("Transpose", right, ["wt"], "transpose", perm=perm))
        right = ["wt"]
    for i, w in enumerate(right):
        nodes.append(helper.make_node("MatMul", ["x", w], ["y%d" % i], "matmul_%d" % i))
    left, _ = gemm_shapes(row)
    return nodes, left[:-1] + (row.n,)


def coded_nodes(row, helper):
    """Numbers of 16 bits are converted by a node; of integers MatMulNBits has the codes."""
    nodes, more = [], {"accuracy_level": 4} if row.rounded else {}
    for i in range(row.copies):
        y = "y%d" % i
        if row.bits == 16:
            nodes.append(helper.make_node("Cast", ["w%d" % i], ["f%d" % i], "cast_%d" % i, to=1))
            nodes.append(helper.make_node("MatMul", ["x", "f%d" % i], [y], "matmul_%d" % i))
            continue
        nodes.append(helper.make_node(
            "MatMulNBits", ["x", "w%d" % (2 * i), "w%d" % (2 * i + 1)], [y], "matmul_%d" % i, domain="com.microsoft",
            N=row.n, K=row.k, bits=row.bits, block_size=row.BLOCK, **more,
        ))  # fmt: skip
    return nodes, (row.m, row.n)


def conv_nodes(row, helper):
    ends = {"": ["y0"], "Relu": ["c", "y0"], "Relu6": ["c", "y0"]}[row.activation]
    nodes = [
        helper.make_node(
            "Conv", ["x", "w0", "w1"], ends[:1], "conv", kernel_shape=row.kernel,
            strides=row.strides, pads=row.pads, group=row.group, dilations=row.dilations,
        )
    ]  # fmt: skip
    if row.activation == "Relu":
        nodes.append(helper.make_node("Relu", ["c"], ["y0"], "relu"))
    if row.activation == "Relu6":
        bounds = [helper.make_tensor(n, 1, [], [x]) for n, x in (("low", 0.0), ("high", 6.0))]
        nodes += [helper.make_node("Constant", [], [b.name], value=b) for b in bounds]
        nodes.append(helper.make_node("Clip", ["c", "low", "high"], ["y0"], "clip"))
    return nodes, row.y


def filter_nodes(row, helper):
    node = helper.make_node(
        row.op, ["x", "w0"], ["y0"], "filter", domain="ai.quern", kernel_shape=[row.k, row.k]
    )
    return [node], row.y


def rnn_nodes(row, helper):
    more = {"linear_before_reset": 1} if row.op == "GRU" else {}
    direction = "bidirectional" if row.directions == 2 else "forward"
    node = helper.make_node(
        row.op, ["x", "w0", "w1", "w2"], ["y0"], "layer", hidden_size=row.hidden, direction=direction, **more
    )
    return [node], row.y


def quantised_nodes(row, helper):
    """With their parameters: zero points within the range, sums that cover the range of results."""
    conv = row.kind == "qconv"
    terms = math.prod(row.weights[1:]) if conv else row.k
    scales = np.linspace(0.8, 1.2, row.oc, dtype=np.float32) if conv else np.float32(1)
    given = {
        "sx": np.float32(1), "zx": np.uint8(128), "sw": scales, "zw": np.zeros_like(scales, np.int8),
        "sy": np.float32(100 * terms**0.5), "zy": np.uint8(100),
    }  # fmt: skip
    names = ["x", "sx", "zx", "w0", "sw", "zw", "sy", "zy"] + ["w1"] * conv
    if not conv:
        return [helper.make_node("QLinearMatMul", names, ["y0"], "matmul")], (row.m, row.n), given
    node = helper.make_node(
        "QLinearConv", names, ["y0"], "conv", kernel_shape=row.kernel, strides=row.strides,
        pads=row.pads, group=row.group, dilations=row.dilations,
    )  # fmt: skip
    return [node], row.y, given


def constant_of(row, a, name):
    from onnx import TensorProto, helper, numpy_helper

    if row.kind == "codes" and row.weights == "f16":
        a = a.astype(np.float16)
    if row.kind == "codes" and row.weights == "bf16":
        high = (a.view(np.uint32) >> 16).astype(np.uint16)
        return helper.make_tensor(name, TensorProto.BFLOAT16, a.shape, high.tobytes(), raw=True)
    return numpy_helper.from_array(a, name)


def save_model(row, path):
    """The row as ONNX, opset 17 (attention: attention_forms.py)."""
    if row.kind == "attention":
        return attention_forms.save_forms(row, path)
    from onnx import TensorProto, helper, save

    x, rest = operands(row)
    more, t = {}, TensorProto.FLOAT
    if is_quantised(row):
        (nodes, out, more), t = quantised_nodes(row, helper), TensorProto.UINT8
    else:
        make = {"gemm": gemm_nodes, "conv": conv_nodes, "filter": filter_nodes, "rnn": rnn_nodes, "codes": coded_nodes}
        nodes, out = make[row.kind](row, helper)
    value = lambda name, shape: helper.make_tensor_value_info(name, t, shape)
    names = ["w%d" % i for i in range(len(rest))]
    constant, count = (row.constant, row.copies) if row.kind in ("gemm", "codes") else (row.kind != "filter", 1)
    inputs = [value("x", x.shape)]
    if not constant:
        inputs += [value(n, w.shape) for n, w in zip(names, rest)]
    graph = helper.make_graph(
        nodes, "row", inputs, [value("y%d" % i, out) for i in range(count)],
        [constant_of(row, np.asarray(w), n) for n, w in [*zip(names, rest), *more.items()]]
        if constant
        else [],
    )  # fmt: skip
    opset = [helper.make_opsetid("", 17)]
    if row.kind == "filter":
        opset.append(helper.make_opsetid("ai.quern", 1))
    if row.kind == "codes":
        opset.append(helper.make_opsetid("com.microsoft", 1))
    save(helper.make_model(graph, opset_imports=opset, ir_version=8), path)
