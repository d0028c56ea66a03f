# SPDX-License-Identifier: Apache-2.0
"""onnx_versions.py QUERN DIR [OPERATOR...]: one model for each version of each operator that ONNX has defined.

Writes them to DIR/OPERATOR-VERSION/ in the layout that `quern verify --suite` reads, runs QUERN on them, and
lists every version that is neither computed as expected nor refused by name. Needs the packages onnx and
onnxruntime. A model is the first of ONNX's node cases that is valid as of that version (its expected outputs
come from ONNX Runtime, else from ONNX's reference evaluator, else from the case where the form is the same), or
is written out below for forms that no case has any more.
"""
import collections
import os
import subprocess
import sys
import warnings

import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto, defs, helper, numpy_helper
from onnx.backend.test.case import node as node_cases
from onnx.reference import ReferenceEvaluator

from onnx_cases import write, write_set

MAX_OPSET, MAX_TRIED = 28, 200
GOLDEN = os.path.join(os.path.dirname(os.path.abspath(__file__)), "golden", "ort")  # by ort_cases.py
rng = np.random.default_rng(0)


def rand(*shape, dtype=np.float32):
    return rng.standard_normal(shape).astype(dtype)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


# Forms of old opsets.


def binary_cases(op, f, make):
    """The forms of opsets 1 to 6: equal shapes, or a second operand whose axis is an attribute."""
    a, b = make(2, 3, 4, 5), make(2, 3, 4, 5)
    yield op, 1, {"consumed_inputs": [0, 0]} if op in ("Add", "Sub", "Mul", "Div") else {}, [a, b], [f(a, b)]
    for version in (1, 6):
        for shape, axis, full in (((4, 5), None, (4, 5)), ((3, 4), 1, (3, 4, 1)), ((2,), 0, (2, 1, 1, 1)), ((), None, ()), ((3,), -3, (3, 1, 1))):
            b = make(*shape)
            attrs = {"broadcast": 1} if axis is None else {"broadcast": 1, "axis": axis}
            yield op, version, attrs, [a, b], [f(a, b.reshape(full))]


def truth(*shape):
    return rng.integers(0, 2, shape).astype(bool)


def small(*shape):
    return rng.integers(-2, 3, shape).astype(np.float32)


def positive(*shape):
    return (rng.random(shape) + 0.5).astype(np.float32)


def elementwise():
    arith = {"Add": np.add, "Sub": np.subtract, "Mul": np.multiply, "Div": np.divide, "Pow": np.power}
    for op, f in arith.items():
        yield from binary_cases(op, f, positive)
    for op, f in {"And": np.logical_and, "Or": np.logical_or, "Xor": np.logical_xor}.items():
        yield from binary_cases(op, f, truth)
    for op, f in {"Greater": np.greater, "Less": np.less}.items():
        yield from binary_cases(op, f, small)
    yield from binary_cases("Equal", np.equal, lambda *s: rng.integers(0, 2, s).astype(np.int32))
    x = positive(2, 3, 4)
    unary = {
        "Abs": np.abs, "Ceil": np.ceil, "Exp": np.exp, "Floor": np.floor, "Log": np.log, "Neg": np.negative,
        "Reciprocal": np.reciprocal, "Relu": lambda x: np.maximum(x, 0), "Sigmoid": sigmoid, "Sqrt": np.sqrt, "Tanh": np.tanh,
    }
    for op, f in unary.items():
        yield op, 1, {"consumed_inputs": [0]}, [x], [f(x)]
    y = rand(2, 3, 4)
    for v in (1, 6):
        extra = {"consumed_inputs": [0]} if v == 1 else {}
        yield "Clip", v, {"min": -0.5, "max": 0.5, **extra}, [y], [np.clip(y, -0.5, 0.5)]
        yield "Clip", v, {"max": 0.5, **extra}, [y], [np.minimum(y, 0.5)]
        yield "Elu", v, extra, [y], [np.where(y < 0, np.expm1(y), y)]
        yield "HardSigmoid", v, extra, [y], [np.clip(0.2 * y + 0.5, 0, 1)]
        yield "LeakyRelu", v, extra, [y], [np.where(y < 0, 0.01 * y, y)]
        alpha, gamma = (1.6732, 1.0507) if v == 1 else (1.67326319217681884765625, 1.05070102214813232421875)
        yield "Selu", v, extra, [y], [(gamma * np.where(y < 0, alpha * np.expm1(y), y)).astype(np.float32)]
        slope = rand(3)
        yield "PRelu", v, extra, [y, slope], [np.where(y < 0, slope.reshape(3, 1) * y, y)]
        yield "PRelu", v, extra, [y, slope[:1]], [np.where(y < 0, slope[0] * y, y)]
        for op, f in {"Max": np.maximum, "Min": np.minimum, "Sum": np.add, "Mean": lambda a, b: (a + b) / 2}.items():
            yield op, v, extra, [x, y], [f(x, y)]


def layers():
    x, c, s = rand(2, 3, 4, 5), positive(3), (3, 1, 1)
    scale, shift, mean, var = c, rand(3), rand(3), positive(3)
    full = rand(3, 4, 5), rand(3, 4, 5), rand(3, 4, 5), positive(3, 4, 5)

    def norm(x, scale, shift, mean, var):
        return ((x - mean) / np.sqrt(var + np.float32(1e-5)) * scale + shift).astype(np.float32)

    of_batch = x.mean((0, 2, 3)), x.var((0, 2, 3))
    plain = norm(x, scale.reshape(s), shift.reshape(s), mean.reshape(s), var.reshape(s))
    trained = norm(x, scale.reshape(s), shift.reshape(s), of_batch[0].reshape(s), of_batch[1].reshape(s))
    running = [(0.9 * mean + 0.1 * of_batch[0]).astype(np.float32), (0.9 * var + 0.1 * of_batch[1]).astype(np.float32)]
    for v in (1, 6, 7):
        extra = {"consumed_inputs": [0, 0, 0, 0, 0]} if v == 1 else {}
        test = {"is_test": 1} if v < 7 else {}
        yield "BatchNormalization", v, {**test, **extra}, [x, scale, shift, mean, var], [plain]
        yield "BatchNormalization", v, {"spatial": 0, **test, **extra}, [x, *full], [norm(x, *full)]
        yield "BatchNormalization", v, extra, [x, scale, shift, mean, var], [trained, *running]
        if v < 7:
            yield "BatchNormalization", v, extra, [x, scale, shift, mean, var], [trained]
            yield "Dropout", v, {"is_test": 1, "ratio": 0.25, **extra}, [x], [x]
            yield "Dropout", v, {"ratio": 0.0, **extra}, [x], [x, np.ones_like(x)]
    yield "Dropout", 7, {"ratio": 0.25}, [x], [x]
    yield "Dropout", 10, {"ratio": 0.25}, [x], [x, np.ones(x.shape, bool)]
    mean, var = x.mean((2, 3), keepdims=True), x.var((2, 3), keepdims=True)
    yield "InstanceNormalization", 1, {"consumed_inputs": [0]}, [x, scale, shift], [norm(x, scale.reshape(s), shift.reshape(s), mean, var)]
    a, b = rand(3, 4), rand(4, 5)
    for v in (1, 6):
        yield "Gemm", v, {"broadcast": 1}, [a, b, rand(5) * 0 + 2], [a @ b + 2]
        yield "Gemm", v, {"transA": 1, "alpha": 0.5, "beta": 2.0}, [a.T.copy(), b, np.ones((3, 5), np.float32)], [0.5 * (a @ b) + 2]
    pooled = np.sqrt((x * x)[:, :, :, :4].reshape(2, 3, 2, 2, 2, 2).sum((3, 5)))
    yield "LpPool", 1, {"kernel_shape": [2, 2], "strides": [2, 2]}, [x[:, :, :, :4].copy()], [pooled]
    yield "GlobalLpPool", 1, {"p": 1.0}, [x], [np.abs(x).sum((2, 3), keepdims=True)]
    for op, n_gates, cell in (("RNN", 1, rnn), ("GRU", 3, gru), ("LSTM", 4, lstm)):
        w, r = 0.3 * rand(1, 2 * n_gates, 3), 0.3 * rand(1, 2 * n_gates, 2)
        y = rand(4, 2, 3)
        all_h, last = cell(y, w[0], r[0])
        for v in (1, 3) if op == "GRU" else (1,):
            yield op, v, {"hidden_size": 2, "output_sequence": 1}, [y, w, r], [all_h, *last]


def rnn(x, w, r):
    h, all_h = np.zeros((x.shape[1], 2), np.float32), []
    for t in x:
        h = np.tanh(t @ w.T + h @ r.T)
        all_h.append(h[None])
    return np.stack(all_h), [h[None]]


def gru(x, w, r):
    h, all_h = np.zeros((x.shape[1], 2), np.float32), []
    (wz, wr, wh), (rz, rr, rh) = np.split(w, 3), np.split(r, 3)
    for t in x:
        z, reset = sigmoid(t @ wz.T + h @ rz.T), sigmoid(t @ wr.T + h @ rr.T)
        h = (1 - z) * np.tanh(t @ wh.T + (reset * h) @ rh.T) + z * h
        all_h.append(h[None])
    return np.stack(all_h), [h[None]]


def lstm(x, w, r):
    h = c = np.zeros((x.shape[1], 2), np.float32)
    all_h = []
    for t in x:
        i, o, f, g = np.split(t @ w.T + h @ r.T, 4, axis=1)
        c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
        h = sigmoid(o) * np.tanh(c)
        all_h.append(h[None])
    return np.stack(all_h), [h[None], c[None]]


def views():
    x = rand(2, 4, 4)
    for name, dtype in (("FLOAT16", np.float16), ("INT32", np.int32), ("DOUBLE", np.float64), ("BOOL", bool)):
        yield "Cast", 1, {"to": name}, [x], [x.astype(dtype)]
    yield "Concat", 1, {}, [x, x], [np.concatenate([x, x], 1)]
    yield "Concat", 1, {"axis": 2}, [x, x], [np.concatenate([x, x], 2)]
    yield "Pad", 1, {"paddings": [0, 1, 0, 0, 0, 2], "value": 1.5}, [x], [np.pad(x, ((0, 0), (1, 0), (0, 2)), constant_values=1.5)]
    yield "Pad", 2, {"pads": [0, 1, 0, 0, 0, 2], "mode": "reflect"}, [x], [np.pad(x, ((0, 0), (1, 0), (0, 2)), mode="reflect")]
    yield "Reshape", 1, {"shape": [0, -1, 2]}, [x], [x.reshape(2, -1, 2)]
    yield "Reshape", 1, {"shape": [32], "consumed_inputs": [0]}, [x], [x.reshape(32)]
    for v in (1, 2):
        yield "Split", v, {"axis": 1, "split": [1, 3]}, [x], np.split(x, [1], 1)
        yield "Split", v, {"axis": 1}, [x], np.split(x, 2, 1)
    yield "Split", 1, {"axis": 1}, [x, const(np.float32([1, 3]))], np.split(x, [1], 1)
    for axis in (0, 2):
        yield "Tile", 1, {}, [x, const(np.float32(3)), const(np.float32(axis))], [np.concatenate([x] * 3, axis)]
    yield "Slice", 1, {"starts": [1, -3], "ends": [9, -1], "axes": [0, 2]}, [x], [x[1:9, :, -3:-1]]
    top = np.sort(x, 1)[:, ::-1][:, :2], np.argsort(-x, 1, kind="stable")[:, :2]
    yield "TopK", 1, {"axis": 1, "k": 2}, [x], list(top)
    y = x[None]
    for v, attrs in ((1, {"height_scale": 2.0, "width_scale": 3.0}), (7, {"scales": [1.0, 1.0, 2.0, 3.0]})):
        yield "Upsample", v, attrs, [y], [y.repeat(2, 2).repeat(3, 3)]
    yield "Upsample", 9, {}, [y, const(np.float32([1, 1, 2, 3]))], [y.repeat(2, 2).repeat(3, 3)]
    i = np.int64([[[0, 1, 2, 3]]])
    yield "Scatter", 9, {"axis": 1}, [x, i.repeat(1, 0), rand(1, 1, 4) * 0 + 7], [scattered(x)]


def reductions():
    x = positive(2, 3, 4)
    fold = {
        "ReduceSum": np.sum, "ReduceMean": np.mean, "ReduceMax": np.max, "ReduceMin": np.min, "ReduceProd": np.prod,
        "ReduceL1": lambda x, a, keepdims: np.abs(x).sum(a, keepdims=keepdims), "ReduceL2": lambda x, a, keepdims: np.sqrt((x * x).sum(a, keepdims=keepdims)),
        "ReduceSumSquare": lambda x, a, keepdims: (x * x).sum(a, keepdims=keepdims), "ReduceLogSum": lambda x, a, keepdims: np.log(x.sum(a, keepdims=keepdims)),
        "ReduceLogSumExp": lambda x, a, keepdims: np.log(np.exp(x).sum(a, keepdims=keepdims)),
    }
    for op, f in fold.items():
        for v in [v for v in versions(op) if v < (13 if op == "ReduceSum" else 18)]:
            yield op, v, {"axes": [0, 2], "keepdims": 0}, [x], [f(x, (0, 2), keepdims=False)]
            yield op, v, {}, [x], [f(x, None, keepdims=True)]
    y = x[None, :, :, :1]
    for v in (1, 11):
        yield "Squeeze", v, {"axes": [0]}, [y], [y[0]]
        yield "Squeeze", v, {}, [y], [y.squeeze()]
        yield "Unsqueeze", v, {"axes": [0, 3]}, [x], [x[None, :, :, None]]
        flat = np.exp(x).reshape(2, 12)
        yield "Softmax", v, {}, [x], [(flat / flat.sum(1, keepdims=True)).reshape(x.shape)]
        yield "LogSoftmax", v, {}, [x], [np.log(flat / flat.sum(1, keepdims=True)).reshape(x.shape)]
    yield "Unsqueeze", 13, {}, [x, const(np.int64([0, 3]))], [x[None, :, :, None]]


def others():
    """Versions whose types or outputs no case covers."""
    x, n = positive(2, 3, 4, 4), numpy_helper.from_array
    for v in versions("Constant"):
        yield "Constant", v, {"value": n(x, "c")}, [], [x]
    yield "Constant", 12, {"value_float": 2.5}, [], [np.float32(2.5)]
    yield "Constant", 12, {"value_ints": [2, 3]}, [], [np.int64([2, 3])]
    for v in versions("Identity"):
        yield "Identity", v, {}, [x], [x]
    for v in versions("Cast"):
        if v >= 6:
            yield "Cast", v, {"to": TensorProto.DOUBLE}, [x], [x.astype(np.float64)]
    for v in versions("GlobalLpPool"):
        if v >= 2:
            yield "GlobalLpPool", v, {"p": 2}, [x], [np.sqrt((x * x).sum((2, 3), keepdims=True))]
    rois = np.float32([[0, 0, 0, 1, 1], [1, 0, 0, 3, 3]])
    for v in versions("MaxRoiPool"):
        yield "MaxRoiPool", v, {"pooled_shape": [1, 1]}, [x, rois], [np.stack([x[0, :, :2, :2].max((1, 2)), x[1].max((1, 2))])[:, :, None, None]]
    for v in (10, 11):
        scales = const(np.float32([1, 1, 2, 2]))
        yield "Resize", v, {"mode": "nearest"}, [x, scales] if v == 10 else [x, const(np.zeros(0, np.float32)), scales], [x.repeat(2, 2).repeat(2, 3)]
    yield "DepthToSpace", 1, {"blocksize": 1}, [x], [x]
    for op in ("RandomNormal", "RandomUniform"):
        for v in versions(op):
            yield op, v, {"shape": [2, 3], **({"scale": 0.0, "mean": 1.5} if op == "RandomNormal" else {"low": 1.5, "high": 1.5})}, [], [np.full((2, 3), 1.5, np.float32)]
            yield op + "Like", v, {"scale": 0.0, "mean": 1.5} if op == "RandomNormal" else {"low": 1.5, "high": 1.5}, [x], [np.full(x.shape, 1.5, np.float32)]
    certain = np.float32([[-90, 0, -90], [0, -90, -90]])
    for v in versions("Multinomial"):
        yield "Multinomial", v, {"sample_size": 2}, [certain], [np.int32([[1, 1], [0, 0]])]
    ones = np.float32([[[[1] * 4] * 4]])
    for v in versions("AveragePool"):
        yield "AveragePool", v, {"kernel_shape": [2, 2], "pads": [1, 0, 0, 0], "strides": [2, 2]}, [x[:, :, :3].copy()], [averaged(x[:, :, :3])]
    for v in versions("CastLike"):
        yield "CastLike", v, {}, [x, np.float64(1)], [x.astype(np.float64)]
    centred = x - x.mean((0, 2, 3), keepdims=True)
    for v in versions("MeanVarianceNormalization"):
        yield "MeanVarianceNormalization", v, {}, [x], [centred / x.std((0, 2, 3), keepdims=True)]
    yield "RoiAlign", 10, {"output_height": 2, "output_width": 2}, [ones, np.float32([[0, 0, 2, 2]]), np.int64([0])], [np.ones((1, 1, 2, 2), np.float32)]


def averaged(x):
    """Windows of 2 x 2, one row of padding above that is not counted."""
    wide = x.reshape(*x.shape[:3], -1, 2).mean(-1)
    return np.stack([wide[:, :, 0], wide[:, :, 1:3].mean(2)], 2)


def scattered(x):
    y = x.copy()
    for k in range(4):
        y[0, k, k] = 7
    return y


def experimental():
    """Operators that ONNX withdrew, with the semantics of other runtimes."""
    x = rand(2, 3, 5, 6)
    yield "Affine", 1, {"alpha": 2.0, "beta": -1.0}, [x], [2 * x - 1]
    yield "Scale", 1, {"scale": 0.5}, [x], [x / 2]
    yield "ParametricSoftplus", 1, {"alpha": 2.0, "beta": 0.5}, [x], [2 * np.log1p(np.exp(0.5 * x))]
    yield "ScaledTanh", 1, {"alpha": 2.0, "beta": 0.5}, [x], [2 * np.tanh(0.5 * x)]
    yield "ImageScaler", 1, {"scale": 0.5, "bias": [1.0, 2.0, 3.0]}, [x], [x / 2 + np.float32([1, 2, 3]).reshape(3, 1, 1)]
    yield "Crop", 1, {"border": [1, 2, 0, 1]}, [x], [x[:, :, 2:4, 1:]]
    yield "Crop", 1, {"border": [1, 2, 0, 0], "scale": [2, 3]}, [x], [x[:, :, 2:4, 1:4]]
    yield "DynamicSlice", 1, {}, [x, const(np.int64([1, 2])), const(np.int64([3, 9])), const(np.int64([1, 3]))], [x[:, 1:3, :, 2:9]]
    for axes, across in (((0, 2, 3), 0), ((0, 1, 2, 3), 1)):
        centred = x - x.mean(axes, keepdims=True)
        yield "MeanVarianceNormalization", 1, {"across_channels": across, "normalize_variance": 0}, [x], [centred]
        yield "MeanVarianceNormalization", 1, {"across_channels": across}, [x], [centred / x.std(axes, keepdims=True)]
    yield "ConstantFill", 1, {"value": 2.5, "shape": [2, 3]}, [], [np.full((2, 3), 2.5, np.float32)]
    yield "ConstantFill", 1, {"value": 2.0, "dtype": TensorProto.INT64, "extra_shape": [2]}, [x], [np.full((*x.shape, 2), 2)]
    yield "ConstantFill", 1, {"value": 2.5, "input_as_shape": 1}, [const(np.int64([4, 2]))], [np.full((4, 2), 2.5, np.float32)]


def control():
    """Running sums over the sequences of a batch (Scan), of 1 .. n (Loop), one of two constants (If)."""
    f, one = TensorProto.FLOAT, np.float32([1])
    x, s = rand(2, 5, 3), rand(2, 3)
    info = helper.make_tensor_value_info
    body = helper.make_graph([helper.make_node("Add", ["s", "x"], ["t"]), helper.make_node("Identity", ["t"], ["y"])], "sum",
                             [info("s", f, [3]), info("x", f, [3])], [info("t", f, [3]), info("y", f, [3])])
    sums = s[:, None] + np.cumsum(x, 1)
    yield "Scan", 8, {"num_scan_inputs": 1, "body": body}, [None, s, x], [sums[:, -1], sums]
    back = s[:, None] + np.cumsum(x[:, ::-1], 1)
    yield "Scan", 8, {"num_scan_inputs": 1, "body": body, "directions": [1]}, [None, s, x], [back[:, -1], back]
    cut = sums * (np.arange(5) < np.int64([[3], [5]]))[:, :, None]
    yield "Scan", 8, {"num_scan_inputs": 1, "body": body}, [const(np.int64([3, 5])), s, x], [np.stack([sums[0, 2], sums[1, 4]]), cut]
    for v in versions("Scan"):
        if v > 8:
            yield "Scan", v, {"num_scan_inputs": 1, "body": body}, [s[0], x[0]], [sums[0, -1], sums[0]]
    for v in versions("Loop"):
        body = helper.make_graph([helper.make_node("Add", ["s", "one"], ["t"]), helper.make_node("Identity", ["go"], ["on"]), helper.make_node("Identity", ["t"], ["y"])], "count",
                                 [info("i", TensorProto.INT64, []), info("go", TensorProto.BOOL, []), info("s", f, [1])],
                                 [info("on", TensorProto.BOOL, []), info("t", f, [1]), info("y", f, [1])], [numpy_helper.from_array(one, "one")])
        yield "Loop", v, {"body": body}, [const(np.int64(3)), None, one], [one + 3, one + np.float32([[1], [2], [3]])]
    for v in versions("If"):
        branch = [helper.make_graph([helper.make_node("Constant", [], [n], value=numpy_helper.from_array(np.float32([k]), n))], n, [], [info(n, f, [1])]) for k, n in enumerate(("no", "yes"))]
        yield "If", v, {"then_branch": branch[1], "else_branch": branch[0]}, [np.array(True)], [np.float32([1])]


def write_sequences(out):
    """The operators of sequences have one version; those of optional values came with 15."""
    node, info, x = helper.make_node, helper.make_tensor_value_info, rand(2, 3)
    one = numpy_helper.from_array(np.int64(1), "one")
    graph = helper.make_graph(
        [node("SequenceConstruct", ["x", "x"], ["s"]), node("SequenceEmpty", [], ["e"]), node("SequenceInsert", ["e", "x"], ["i"]),
         node("SequenceErase", ["s", "one"], ["r"]), node("SequenceLength", ["r"], ["n"]), node("SequenceAt", ["i", "n0"], ["a"]),
         node("Sub", ["n", "one"], ["n0"]), node("ConcatFromSequence", ["s"], ["c"], axis=0)],
        "sequences", [info("x", 1, [2, 3])], [info("n", 7, []), info("a", 1, [2, 3]), info("c", 1, [4, 3])], [one])
    graph.node.insert(5, graph.node.pop(6))
    ops = [n.op_type for n in graph.node if "Seq" in n.op_type]
    write(f"{out}/sequences/model.onnx", model_of(graph, 11).SerializeToString())
    write_set(f"{out}/sequences/test_data_set_0", graph, [x], [np.int64(1), x, np.concatenate([x, x])])
    for v in versions("Optional"):
        graph = helper.make_graph([node("Optional", ["x"], ["o"]), node("OptionalHasElement", ["o"], ["h"]), node("OptionalGetElement", ["o"], ["y"])],
                                  "optional", [info("x", 1, [2, 3])], [info("h", 9, []), info("y", 1, [2, 3])])
        write(f"{out}/optional-{v}/model.onnx", model_of(graph, v).SerializeToString())
        write_set(f"{out}/optional-{v}/test_data_set_0", graph, [x], [np.array(True), x])
    return {f"{op}-11" for op in ops} | {f"Optional-{v}" for v in versions("Optional")}


def golden_cases():
    """domain, operator -> models of ort_cases.py, which contain inputs and results of ONNX
    Runtime."""
    cases = collections.defaultdict(list)
    for name in sorted(os.listdir(GOLDEN)):
        model = onnx.load(os.path.join(GOLDEN, name))
        for n in model.graph.node:
            cases[n.domain, n.op_type].append(model)
    return cases


def write_golden(out, schema, cases):
    for model in cases[schema.domain, schema.name]:
        node = next(n for n in model.graph.node if n.op_type == schema.name)
        if not fits(node, schema):
            continue
        kept = {t.name: numpy_helper.to_array(t) for t in model.graph.initializer}
        copy = onnx.ModelProto()
        copy.CopyFrom(model)
        del copy.graph.initializer[:]
        copy.graph.initializer.extend(t for t in model.graph.initializer if ":" not in t.name)
        for o in copy.opset_import:
            if o.domain == schema.domain:
                o.version = schema.since_version
        write(f"{out}/model.onnx", copy.SerializeToString())
        write_set(f"{out}/test_data_set_0", copy.graph, [kept["in:" + i.name] for i in copy.graph.input], [kept["want:" + o.name] for o in copy.graph.output])
        return True
    return False


def write_unsupported(out, schema):
    """A node of an operator without other cases: it must be rejected with a reason."""
    node = helper.make_node(schema.name, ["x"], ["y"], domain=schema.domain)
    graph = helper.make_graph([node], schema.name, [info_of("x", np.zeros(2, np.float32))], [info_of("y", np.zeros(2, np.float32))])
    write(f"{out}/model.onnx", model_of(graph, schema.since_version, schema.domain).SerializeToString())
    write_set(f"{out}/test_data_set_0", graph, [np.zeros(2, np.float32)], [np.zeros(2, np.float32)])


class const(np.ndarray):
    """An operand that is an initializer."""

    def __new__(cls, x):
        return np.asarray(x).view(cls)


def old_cases():
    for family in (elementwise, layers, views, reductions, others, experimental, control):
        yield from family()


# Models.


def versions(op, domain=""):
    return sorted({s.since_version for s in defs.get_all_schemas_with_history() if (s.name, s.domain) == (op, domain) and not s.deprecated})


def model_of(graph, version, domain="", ir=None):
    opsets = [helper.make_opsetid(domain, version)]
    if domain:
        opsets.append(helper.make_opsetid("", 18))
    return helper.make_model(graph, opset_imports=opsets, ir_version=ir or (3 if version < 9 and not domain else 8))


def info_of(name, x):
    return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)


def write_old(out, op, version, attrs, inputs, outputs):
    names = ["" if x is None else f"x{k}" for k, x in enumerate(inputs)]
    given = [(n, x) for n, x in zip(names, inputs) if x is not None]
    fed = [(n, x) for n, x in given if not isinstance(x, const)]
    results = [(f"y{k}", np.asarray(y)) for k, y in enumerate(outputs)]
    node = helper.make_node(op, names, [n for n, _ in results], **attrs)
    graph = helper.make_graph([node], op, [info_of(n, x) for n, x in given], [info_of(n, y) for n, y in results],
                              [numpy_helper.from_array(np.asarray(x), n) for n, x in given if isinstance(x, const)])
    model = model_of(graph, version)
    write(f"{out}/model.onnx", model.SerializeToString())
    del graph.input[:]
    graph.input.extend([info_of(n, x) for n, x in fed])
    write_set(f"{out}/test_data_set_0", graph, [x for _, x in fed], [y for _, y in results])


def signature(s):
    """Properties that change the meaning of a node, besides element types."""
    attrs = {k: (a.type, a.required, None if a.required else a.default_value.SerializeToString()) for k, a in s.attributes.items()}
    return attrs, [(i.name, i.option) for i in s.inputs], [(o.name, o.option) for o in s.outputs]


def fits(node, s):
    return {a.name for a in node.attribute} <= set(s.attributes) and len(node.input) <= s.max_input and len(node.output) <= s.max_output


def expected(model, case, same):
    """The outputs of the case's first data set with the semantics of the model's opset; None:
    unknown."""
    inputs, outputs = case.data_sets[0]
    feeds = {i.name: x for i, x in zip(model.graph.input, inputs)}
    options = ort.SessionOptions()
    options.log_severity_level, options.intra_op_num_threads = 4, 1
    for run in (lambda: ort.InferenceSession(model.SerializeToString(), options).run(None, feeds), lambda: ReferenceEvaluator(model).run(None, feeds)):
        try:
            return run()
        except Exception:  # the table at the end lists what neither has
            pass
    return outputs if same else None


def write_case(out, schema, cases):
    domain, op, version = schema.domain, schema.name, schema.since_version
    for case in [c for c in cases[domain, op] if fits(node_of(c, op), schema)][:MAX_TRIED]:
        model = model_of(case.model.graph, version, domain, case.model.ir_version)
        if domain:
            model.opset_import[1].version = next((o.version for o in case.model.opset_import if not o.domain), 18)
        own = next(o.version for o in case.model.opset_import if o.domain in (domain, "ai.onnx" if not domain else domain))
        try:
            onnx.checker.check_model(model, full_check=True)
            same = signature(schema) == signature(defs.get_schema(op, own, domain))
            outputs = expected(model, case, same)
            if outputs is None:
                continue
            write(f"{out}/model.onnx", model.SerializeToString())
            write_set(f"{out}/test_data_set_0", model.graph, case.data_sets[0][0], outputs)
            return True
        except Exception:
            continue
    return False


def node_of(case, op):
    return next(n for n in case.model.graph.node if n.op_type == op)


def collect():
    cases = collections.defaultdict(list)
    for case in node_cases.collect_testcases(None):
        if len(case.model.graph.node) > 1 and not case.name.startswith("test_sequence_"):
            continue
        for n in case.model.graph.node:
            cases[n.domain if n.domain != "ai.onnx" else "", n.op_type].append(case)
    return cases


def write_all(out, wanted):
    """[(name, written)] of all versions; the explicit models come first, numbered."""
    names, count = {}, collections.Counter()
    for op, version, attrs, inputs, outputs in old_cases():
        if wanted and op not in wanted:
            continue
        name = f"{op}-{version}"
        write_old(f"{out}/{name}.{count[name]}", op, version, attrs, inputs, outputs)
        count[name] += 1
        names[name] = True
    for name in set() if wanted else write_sequences(out):
        names[name] = True
    cases, golden = collect(), golden_cases()
    for s in defs.get_all_schemas_with_history():
        if s.domain not in ("", "ai.onnx.ml", "ai.onnx.preview") or s.since_version > MAX_OPSET or s.deprecated or (wanted and s.name not in wanted):
            continue
        name = f"{s.domain + '.' if s.domain else ''}{s.name}-{s.since_version}"
        if name not in names:
            names[name] = write_case(f"{out}/{name}", s, cases) or write_golden(f"{out}/{name}", s, golden)
        if not names[name]:
            write_unsupported(f"{out}/{name}", s)
    return names


def main():
    quern, out = sys.argv[1:3]
    warnings.simplefilter("ignore")
    names = write_all(out, set(sys.argv[3:]))
    run = subprocess.run([quern, "verify", "--suite", out], stdout=subprocess.PIPE, text=True, check=False)
    lines = run.stdout.splitlines()
    failed = [line for line in lines[:-1] if not line.startswith(("pass", "unsupported"))]
    refused = [line for line in lines[:-1] if line.startswith("unsupported")]
    bare = [line for line in refused if not any(word in line for word in (" supported: ", "not tensors", "string"))]
    print("\n".join(failed + refused))
    print(f"{len(names)} versions of operators: {lines[-1] if lines else 'nothing was run'}, {len(bare)} without a reason")
    return int(bool(failed or bare or run.returncode))


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    sys.exit(main())
