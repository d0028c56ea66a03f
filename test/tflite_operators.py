# SPDX-License-Identifier: Apache-2.0
"""tflite_operators.py QUERN FOLDER FORM SEED COUNT [NAME...]: networks of one operator with random sizes and attributes
are exported to TFLite, run by the interpreter of LiteRT, and compared with ONNX Runtime. Each function of OPERATORS
makes one network; of each COUNT are tried, with the layout of the network or with channels last. FORM is f32, or int8:
the network with pairs of QuantizeLinear and DequantizeLinear (tflite_quantise.py); results then differ by one step of
the output's scale for each operator of TFLite between rounded values. What the exporter refuses must be named: a node
and a reason. Prints what differs; the exit code is 1 then."""
import subprocess
import sys

import numpy as np
import onnx
import onnxruntime
import tflite_quantise
from ai_edge_litert.interpreter import Interpreter, OpResolverType
from onnx import TensorProto, helper, numpy_helper

QUERN, FOLDER, FORM = sys.argv[1:4]
TYPES = {np.dtype("float32"): TensorProto.FLOAT, np.dtype("int64"): TensorProto.INT64, np.dtype("int32"): TensorProto.INT32, np.dtype("bool"): TensorProto.BOOL}


class Net:
    """One operator: its inputs with values, its constants, its attributes."""

    def __init__(self, rng):
        self.rng, self.inputs, self.consts, self.nodes, self.opset = rng, {}, {}, [], 18

    def x(self, *shape, lo=-2.0, hi=2.0, dtype="float32"):
        name = f"x{len(self.inputs)}"
        v = self.rng.uniform(lo, hi, shape)
        self.inputs[name] = (v > 0) if dtype == "bool" else v.astype(dtype)
        return name

    def c(self, value, dtype=None):
        name = f"c{len(self.consts)}"
        self.consts[name] = np.asarray(value, dtype=dtype)
        return name

    def w(self, *shape, scale=0.5):
        return self.c(self.rng.normal(0, scale, shape).astype("float32"))

    def op(self, kind, *inputs, n_out=1, **attrs):
        outs = [f"y{len(self.nodes)}_{k}" for k in range(n_out)]
        self.nodes.append(helper.make_node(kind, inputs, outs, name=f"node_{len(self.nodes)}", **attrs))
        return outs if n_out > 1 else outs[0]

    def n(self, lo, hi):
        return int(self.rng.integers(lo, hi + 1))

    def any(self, *choices):
        return choices[int(self.rng.integers(len(choices)))]

    def model(self, out):
        outs = [out] if isinstance(out, str) else out
        infos = [helper.make_tensor_value_info(k, TYPES[v.dtype], v.shape) for k, v in self.inputs.items()]
        consts = [numpy_helper.from_array(v, k) for k, v in self.consts.items()]
        g = helper.make_graph(self.nodes, "net", infos, [helper.make_empty_tensor_value_info(o) for o in outs], consts)
        m = helper.make_model(g, opset_imports=[helper.make_opsetid("", self.opset)], ir_version=9)
        m = onnx.shape_inference.infer_shapes(m)
        return m


def window(t, axes, kernel=3, dilates=True, ceils=False):
    k = [t.n(1, kernel) for _ in range(axes)]
    d = [t.n(1, 2) if dilates and t.n(0, 3) == 0 else 1 for _ in range(axes)]
    a = {"kernel_shape": k, "strides": [t.n(1, 3) for _ in range(axes)]}
    if dilates:
        a["dilations"] = d
    if t.n(0, 3) == 0:
        a["auto_pad"] = t.any("SAME_UPPER", "SAME_LOWER", "VALID")
    else:
        if ceils:
            a["ceil_mode"] = t.n(0, 1)
        a["pads"] = [t.n(0, (d[i % axes] * (k[i % axes] - 1) + 1) // 2) for i in range(2 * axes)]
    return a


def picture(t, axes, c):
    return [t.any(1, 1, 2), c] + [t.n(6, 11) for _ in range(axes)]


def conv(t):
    axes, groups = t.any(1, 2, 2, 2), t.any(1, 1, 2)
    c, a = groups * t.n(1, 3), window(t, axes)
    m = groups * t.n(1, 3)
    w = t.w(m, c // groups, *a["kernel_shape"])
    x = t.x(*picture(t, axes, c))
    y = t.op("Conv", x, w, *([t.w(m)] if t.n(0, 1) else []), group=groups, **a)
    return activation(t, y)


def depthwise(t):
    axes, c = t.any(1, 2, 2), t.n(2, 5)
    a = window(t, axes)
    m = c * t.n(1, 2)
    return activation(t, t.op("Conv", t.x(*picture(t, axes, c)), t.w(m, 1, *a["kernel_shape"]), t.w(m), group=c, **a))


def activation(t, y):
    kind = t.any("", "", "Relu", "Relu6", "HardSwish", "Sigmoid", "Clip")
    if kind == "Relu6":
        return t.op("Clip", y, t.c(0, "float32"), t.c(6, "float32"))
    if kind == "Clip":
        return t.op("Clip", y, t.c(-0.5, "float32"), t.any("", t.c(0.75, "float32")))
    return t.op(kind, y) if kind else y


def conv_transpose(t):
    axes = t.any(1, 2, 2)
    c, m, a = t.n(1, 3), t.n(1, 3), window(t, axes, dilates=False)
    a["kernel_shape"] = [max(k, s) for k, s in zip(a["kernel_shape"], a["strides"])]
    if t.n(0, 2) == 0 and "auto_pad" not in a:
        a["output_padding"] = [t.n(0, s - 1) for s in a["strides"]]
    return t.op("ConvTranspose", t.x(*picture(t, axes, c)), t.w(c, m, *a["kernel_shape"]), *([t.w(m)] if t.n(0, 1) else []), **a)


def max_pool(t):
    axes = t.any(1, 2, 2)
    return t.op("MaxPool", t.x(*picture(t, axes, t.n(1, 4))), **window(t, axes, dilates=False, ceils=True))


def average_pool(t):
    axes = t.any(1, 2, 2)
    return t.op("AveragePool", t.x(*picture(t, axes, t.n(1, 4))), count_include_pad=t.n(0, 1), **window(t, axes, dilates=False))


def global_pool(t):
    return t.op(t.any("GlobalAveragePool", "GlobalMaxPool"), t.x(*picture(t, t.any(1, 2), t.n(1, 4))))


def flatten_gemm(t):
    c, h = t.n(1, 3), t.n(1, 4)
    y = t.op("Conv", t.x(1, 2, h, h), t.w(c, 2, 1, 1))
    y = t.any(lambda: t.op("Flatten", y), lambda: t.op("Reshape", y, t.c([1, -1], "int64")))()
    k, n = c * h * h, t.n(1, 5)
    return t.any(lambda: t.op("Gemm", y, t.w(n, k), t.w(n), transB=1), lambda: t.op("MatMul", y, t.w(k, n)), lambda: t.op("Relu", y))()


def gemm(t):
    m, k, n = t.n(1, 4), t.n(1, 6), t.n(1, 5)
    trans = {"transA": t.any(0, 0, 1), "transB": t.n(0, 1)}
    a = t.x(*((k, m) if trans["transA"] else (m, k)))
    b = (n, k) if trans["transB"] else (k, n)
    b = t.any(t.w, t.w, t.x)(*b)
    more = {"alpha": t.any(1.0, 1.0, 0.5), "beta": t.any(1.0, 1.0, 2.0)}
    c = t.any([], [lambda: t.w(n)], [lambda: t.w(m, n)], [lambda: t.w(1)], [lambda: t.w(m, 1)])
    return activation(t, t.op("Gemm", a, b, *[f() for f in c], **trans, **more))


def matmul(t):
    m, k, n, b = t.n(1, 4), t.n(1, 6), t.n(1, 5), t.n(1, 3)
    kind = t.n(0, 5)
    if kind == 0:
        return t.op("MatMul", t.x(b, m, k), t.w(k, n))
    if kind == 1:
        return t.op("MatMul", t.x(2, b, m, k), t.x(2, b, k, n))
    if kind == 2:
        return t.op("MatMul", t.x(b, m, k), t.x(1, k, n))
    if kind == 3:
        return t.op("MatMul", t.x(k), t.w(k, n))
    if kind == 4:
        return t.op("MatMul", t.x(b, m, k), t.x(k))
    return t.op("MatMul", t.x(k), t.x(b, k, n))


def shape(t):
    return [t.any(1, 1, 2)] + [t.n(1, 5) for _ in range(t.n(0, 3))]


def broadcast(t):
    s = shape(t)
    other = [d if t.n(0, 2) else 1 for d in s][t.n(0, len(s)):] if t.n(0, 1) else s
    return (s, other) if t.n(0, 1) else (other, s)


def binary(t):
    a, b = broadcast(t)
    kind = t.any("Add", "Sub", "Mul", "Div", "Max", "Min")
    lo = 0.5 if kind == "Div" else -2
    b = t.x(*b, lo=lo) if t.n(0, 1) else t.c(t.rng.uniform(lo, 2, b).astype("float32"))
    return activation(t, t.op(kind, t.x(*a), b))


def power(t):
    return t.op("Pow", t.x(*shape(t), lo=0.1), t.c(t.any(2, 0.5, 3, -1), "float32"))


def compare(t):
    a, b = broadcast(t)
    y = t.op(t.any("Equal", "Greater", "Less", "GreaterOrEqual", "LessOrEqual"), t.x(*a), t.x(*b))
    return t.op("Where", y, t.c(1.5, "float32"), t.x(*np.broadcast_shapes(tuple(a), tuple(b))))


def unary(t):
    kind = t.any("Relu", "Sigmoid", "Tanh", "Exp", "Log", "Sqrt", "Abs", "Neg", "Floor", "Ceil", "Round", "Sin", "Cos", "Sign", "Elu", "LeakyRelu",
                 "HardSwish", "HardSigmoid", "Reciprocal", "Softplus", "Mish", "Selu", "Celu", "Softsign", "Erf", "Gelu")
    t.opset = 20
    lo = 0.2 if kind in ("Log", "Sqrt", "Reciprocal") else -4
    attrs = {"LeakyRelu": {"alpha": 0.2}, "Elu": {"alpha": t.any(1.0, 0.5)}, "Celu": {"alpha": 0.7}, "HardSigmoid": {"alpha": t.any(0.2, 1 / 6)}, "Gelu": {"approximate": t.any("none", "tanh")}}
    return t.op(kind, t.x(*shape(t), lo=lo, hi=4), **attrs.get(kind, {}))


def swish(t):
    x = t.x(*shape(t), lo=-4, hi=4)
    return t.any(lambda: t.op("Mul", x, t.op("Sigmoid", x)), lambda: t.op("Mul", t.op("HardSigmoid", x, alpha=1 / 6), x))()


def prelu(t):
    c = t.n(1, 4)
    s = picture(t, t.any(1, 2), c)
    return t.op("PRelu", t.op("Conv", t.x(*s), t.w(c, c, *[1] * (len(s) - 2))), t.w(c, *[1] * (len(s) - 2)))


def clip(t):
    return t.op("Clip", t.x(*shape(t)), t.any("", t.c(-0.5, "float32")), t.any("", t.c(1, "float32")))


def softmax(t):
    s = shape(t)
    return t.op(t.any("Softmax", "LogSoftmax"), t.x(*s), axis=t.n(-len(s), len(s) - 1))


def transpose(t):
    s = shape(t)
    return t.op("Transpose", t.x(*s), **({"perm": [int(k) for k in t.rng.permutation(len(s))]} if t.n(0, 3) else {}))


def reshape(t):
    s = shape(t)
    return t.any(lambda: t.op("Reshape", t.x(*s), t.c([s[0], -1], "int64")), lambda: t.op("Flatten", t.x(*s), axis=t.n(0, len(s))),
                 lambda: t.op("Unsqueeze", t.x(*s), t.c([t.n(0, len(s))], "int64")), lambda: t.op("Squeeze", t.x(1, *s), t.c([0], "int64")),
                 lambda: t.op("Identity", t.x(*s)))()


def concat(t):
    s = shape(t)
    axis = t.n(0, len(s) - 1)
    parts = []
    for _ in range(t.n(1, 3)):
        s[axis] = t.n(1, 4)
        parts.append(t.x(*s))
    if t.n(0, 2) == 0:
        parts.append(t.w(*s))
    return t.op("Concat", *parts, axis=t.any(axis, axis - len(s)))


def pad(t):
    s = [t.n(2, 5) for _ in range(t.n(1, 4))]
    mode = t.any("constant", "constant", "reflect", "edge", "wrap")
    t.opset = 19
    pads = [t.n(0, 2) if mode != "reflect" else t.n(0, 1) for _ in range(2 * len(s))]
    if t.n(0, 3) == 0:
        pads[t.n(0, len(pads) - 1)] = -1
    value = [t.c(t.any(0, 1.5), "float32")] if mode == "constant" and t.n(0, 1) else []
    return t.op("Pad", t.x(*s), t.c(pads, "int64"), *value, mode=mode)


def slices(t):
    s = [t.n(2, 6) for _ in range(t.n(1, 4))]
    axis = t.n(0, len(s) - 1)
    step = t.any(1, 1, 2, -1)
    start, end = (t.n(0, 1), t.n(2, 9)) if step > 0 else (-1, t.any(-100, 0))
    return t.op("Slice", t.x(*s), t.c([start], "int64"), t.c([end], "int64"), t.c([axis], "int64"), t.c([step], "int64"))


def split(t):
    s = [t.n(2, 6) for _ in range(t.n(1, 4))]
    axis = t.n(0, len(s) - 1)
    return t.op("Split", t.x(*s), t.c([1, s[axis] - 1], "int64"), n_out=2, axis=axis)


def gather(t):
    s = [t.n(2, 6) for _ in range(t.n(1, 3))]
    axis = t.n(0, len(s) - 1)
    at = t.rng.integers(-s[axis] if t.n(0, 1) else 0, s[axis], t.any((3,), (2, 2), ()))
    if t.n(0, 1):
        return t.op("Gather", t.x(*s), t.c(at, "int64"), axis=axis)
    x = t.x(*s)
    t.inputs["at"] = np.array(np.abs(at) % s[axis], dtype=t.any("int64", "int32"))
    return t.op("Gather", x, "at", axis=axis)


def tile(t):
    s = shape(t)
    return t.any(lambda: t.op("Tile", t.x(*s), t.c([t.n(1, 3) for _ in s], "int64")),
                 lambda: t.op("Expand", t.x(*[d if t.n(0, 1) else 1 for d in s]), t.c(s, "int64")))()


def reduce(t):
    s = shape(t)
    kind = t.any("ReduceMean", "ReduceSum", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL2", "ReduceSumSquare", "ReduceLogSumExp")
    axes = sorted(int(k) for k in t.rng.choice(len(s), t.n(1, len(s)), replace=False))
    x = t.x(*s)
    if len(s) == 4:
        x = t.op("Conv", x, t.w(3, s[1], 1, 1))
    return t.op(kind, x, t.c(axes, "int64"), keepdims=t.n(0, 1))


def arg(t):
    s = shape(t)
    return t.op(t.any("ArgMax", "ArgMin"), t.x(*s), axis=t.n(-len(s), len(s) - 1), keepdims=t.n(0, 1))


def cumulative(t):
    s = shape(t)
    return t.op("CumSum", t.x(*s), t.c(t.n(-len(s), len(s) - 1), "int64"), exclusive=t.n(0, 1), reverse=t.n(0, 1))


def resize(t):
    s = [1, t.n(1, 3), t.n(2, 6), t.n(2, 6)]
    mode = t.any("nearest", "linear")
    coord = t.any("half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel")
    attrs = {"nearest_mode": t.any("floor", "round_prefer_floor", "ceil", "round_prefer_ceil")} if mode == "nearest" else {}
    # ONNX Runtime rounds in * scale before it aligns corners, ONNX's reference and quern do not: sizes then
    shrink = 2 if coord == "align_corners" else 0.5
    by = t.any(lambda: ["", t.c([1, 1, t.any(2, 3, shrink), t.any(2, 1.5, 1)][:3] + [2], "float32")],
               lambda: ["", "", t.c([s[0], s[1], t.n(1, 12), t.n(1, 12)], "int64")])()
    return t.op("Resize", t.x(*s), "", *by[1:], mode=mode, coordinate_transformation_mode=coord, **attrs)


def blocks(t):
    b = t.n(1, 3)
    return t.any(lambda: t.op("DepthToSpace", t.x(1, b * b * t.n(1, 3), t.n(1, 4), t.n(1, 4)), blocksize=b, mode=t.any("DCR", "CRD")),
                 lambda: t.op("SpaceToDepth", t.x(1, t.n(1, 3), b * t.n(1, 3), b * t.n(1, 3)), blocksize=b))()


def norm(t):
    c = t.n(2, 4)
    s = picture(t, t.any(1, 2), c)
    return t.any(lambda: t.op("BatchNormalization", t.x(*s), t.w(c), t.w(c), t.w(c), t.c(t.rng.uniform(0.5, 2, c).astype("float32"))),
                 lambda: t.op("InstanceNormalization", t.x(*s), t.w(c), t.w(c)),
                 lambda: t.op("LayerNormalization", t.x(*s), t.w(s[-1]), t.w(s[-1])),
                 lambda: t.op("GlobalAveragePool", t.op("BatchNormalization", t.op("Conv", t.x(*s), t.w(c, c, *[1] * (len(s) - 2))), t.w(c), t.w(c), t.w(c),
                                                        t.c(t.rng.uniform(0.5, 2, c).astype("float32")))))()


def cast(t):
    return t.op("Cast", t.x(*shape(t), lo=-9, hi=9, dtype=t.any("float32", "int32", "int64", "bool")), to=t.any(TensorProto.FLOAT, TensorProto.INT32, TensorProto.INT64))


def layouts(t):
    """Spatial operators, moves and elementwise ones in turn: transposes that cancel, and others."""
    c, h = t.n(2, 4), t.n(4, 7)
    y = x = t.x(1, c, h, h)
    for _ in range(t.n(2, 6)):
        kind = t.n(0, 8)
        if kind == 0:
            y = t.op("Conv", y, t.w(c, c, 3, 3, scale=0.2), pads=[1] * 4)
        elif kind == 1:
            y = t.op("Add", y, t.any(lambda: t.w(c, 1, 1), lambda: t.w(h), lambda: t.w(1, c, h, h), lambda: x)())
        elif kind == 2:
            y = t.op("Transpose", t.op("Transpose", y, perm=[0, 2, 3, 1]), perm=[0, 3, 1, 2])
        elif kind == 3:
            y = t.op("Softmax", y, axis=t.n(1, 3))
        elif kind == 4:
            y = t.op("Reshape", t.op("Reshape", y, t.c([1, c, h * h], "int64")), t.c([1, c, h, h], "int64"))
        elif kind == 5:
            y = t.op("Mul", y, t.op("Sigmoid", t.op("GlobalAveragePool", y)))
        elif kind == 6:
            y = t.op("Slice", t.op("Concat", y, x, axis=1), t.c([0], "int64"), t.c([c], "int64"), t.c([1], "int64"))
        elif kind == 7:
            y = t.op("MatMul", y, t.w(h, h, scale=0.3))
        else:
            y = t.op("MaxPool", y, kernel_shape=[3, 3], pads=[1] * 4)
    return y


OPERATORS = [conv, depthwise, conv_transpose, max_pool, average_pool, global_pool, flatten_gemm, gemm, matmul, binary, power, compare, unary, swish, prelu, clip,
             softmax, transpose, reshape, concat, pad, slices, split, gather, tile, reduce, arg, cumulative, resize, blocks, norm, cast, layouts]


def run_onnx(model, inputs):
    o = onnxruntime.SessionOptions()
    o.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    o.log_severity_level = 4
    return onnxruntime.InferenceSession(model.SerializeToString(), o, providers=["CPUExecutionProvider"]).run(None, inputs)


def last(a):
    return a.transpose(0, *range(2, a.ndim), 1) if a.ndim >= 3 else a


def run_tflite(path, inputs, is_last, kernels):
    r = Interpreter(path, experimental_op_resolver_type=kernels)
    r.allocate_tensors()
    details = {d["name"]: d for d in r.get_input_details()}
    for k, v in inputs.items():
        if k in details:
            r.set_tensor(details[k]["index"], np.array(last(v) if is_last else v, order="C"))
    r.invoke()
    return [r.get_tensor(d["index"]) for d in r.get_output_details()]


def all_values(model, inputs):
    """Every value of the network."""
    m = onnx.ModelProto()
    m.CopyFrom(model)
    names = [o for n in m.graph.node for o in n.output]
    del m.graph.output[:]
    m.graph.output.extend(helper.make_empty_tensor_value_info(k) for k in names)
    return dict(zip(names, run_onnx(m, inputs))) | inputs


def bound(want, steps, make):
    """The largest difference that is right."""
    if FORM == "f32":
        return 1e-5 * max(1.0, np.max(np.abs(want.astype("float64")))) if want.size else 0
    return {layouts: 3, swish: 4}.get(make, 1) * 1.001 * steps + 1e-5  # factors: products amplify


def check(make, seed):
    t = Net(np.random.default_rng(seed))
    model, steps = t.model(make(t)), None
    is_last = t.n(0, 1) == 1
    try:
        if FORM == "int8":
            model, steps = tflite_quantise.quantise(model, all_values(model, t.inputs), t.rng)
        want = run_onnx(model, t.inputs)
    except Exception as e:  # pylint: disable=broad-exception-caught
        return f"no network: {e}"  # that ONNX Runtime has a meaning for
    onnx.save(model, f"{FOLDER}/op.onnx")
    e = subprocess.run([QUERN, "export", f"{FOLDER}/op.onnx", "--to", "tflite", "-o", f"{FOLDER}/op.tflite", "--layout", "nhwc" if is_last else "nchw"],
                       capture_output=True, text=True, check=False)
    if e.returncode:
        return f"refused: {e.stderr.strip()}" if "(export to tflite)" in e.stderr and "'" in e.stderr else f"export: {e.stderr.strip()}"
    got = run_tflite(f"{FOLDER}/op.tflite", t.inputs, is_last, t.any(OpResolverType.AUTO, OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES))
    for a, b in zip(got, want):
        b = last(b) if is_last else b
        if a.shape != b.shape or a.dtype != b.dtype:
            return f"{a.dtype}{a.shape} instead of {b.dtype}{b.shape}"
        worst = np.max(np.abs(a.astype("float64") - b.astype("float64"))) if a.size else 0
        if not worst <= bound(b, steps, make):
            return f"differs by {worst}" + (f", {worst / steps:.2f} of the sum of steps" if steps else "")
    return None


def main():
    bad = n = none = 0
    refused = {}
    seed, count, only = int(sys.argv[4]), int(sys.argv[5]), sys.argv[6:]
    for make in OPERATORS:
        if only and make.__name__ not in only:
            continue
        for k in range(count):
            try:
                said = check(make, seed * 1000 + k)
            except Exception as e:  # pylint: disable=broad-exception-caught
                said = f"{type(e).__name__}: {str(e)[:300]}"
            n += 1
            if said and said.startswith("no network"):
                none += 1
                if only:
                    print(said)
            elif said and said.startswith("refused"):
                refused[make.__name__] = refused.get(make.__name__, 0) + 1
                if only:
                    print(said)
            elif said:
                bad += 1
                print(f"WRONG: {make.__name__} {seed * 1000 + k}: {said}")
    print(f"{n} networks, {bad} wrong, refused: {refused}, without a meaning: {none}")
    return 1 if bad or none > n // 4 else 0


if __name__ == "__main__":
    sys.exit(main())
