# SPDX-License-Identifier: Apache-2.0
"""tflite_networks.py make FOLDER: networks as they are deployed on small devices (the four structures of MLPerf Tiny,
one like those of MediaPipe, MobileNetV3's blocks, a U-Net, a layer of BERT) with random weights, NAME.onnx, and
samples, NAME.npz.
tflite_networks.py quantize NETWORK.onnx SAMPLES.npz QUANTISED.onnx: in QDQ form by ONNX Runtime's quantize_static.
tflite_networks.py compare NETWORK.onnx MODEL.tflite SAMPLES.npz [RESULT.npy]: results of LiteRT's interpreter and of
ONNX Runtime, for the first samples, or of another program for the first one. In f32 they differ by at most 1e-5 of the
largest value. Those of quantised networks differ by one step of the output's scale on the average, and none by more
than MOST steps: sums are exact on both sides, but TFLite multiplies them by scales of 32 bits and rounds twice, so that a
value near the middle between two steps may become either, layer after layer."""
import sys

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

MOST, SAMPLES = 4, 3


class Builder:
    def __init__(self, seed):
        self.rng, self.nodes, self.consts = np.random.default_rng(seed), [], []

    def const(self, value):
        name = f"c{len(self.consts)}"
        self.consts.append(numpy_helper.from_array(np.asarray(value), name))
        return name

    def w(self, *shape, scale=None):
        return self.const(self.rng.normal(0, scale or np.sqrt(2 / np.prod(shape[1:])), shape).astype("float32"))

    def op(self, kind, *inputs, **attrs):
        name = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, inputs, [name], name=f"{kind}_{len(self.nodes)}", **attrs))
        return name

    def conv(self, x, c, m, kernel, stride=1, groups=1, then="Relu", pads=None):
        k = kernel if isinstance(kernel, tuple) else (kernel, kernel)
        s = stride if isinstance(stride, tuple) else (stride, stride)
        y = self.op("Conv", x, self.w(m, c // groups, *k), self.w(m, scale=0.1), kernel_shape=k, strides=s, pads=pads or [k[0] // 2, k[1] // 2] * 2, group=groups)
        return self.op(then, y) if then else y

    def dense(self, x, k, n, then=""):
        y = self.op("Gemm", x, self.w(n, k), self.w(n, scale=0.1), transB=1)
        return self.op(then, y) if then else y

    def head(self, x, c, n):
        return self.dense(self.op("Flatten", self.op("GlobalAveragePool", x)), c, n)

    def save(self, folder, name, y, shape):
        x = helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)
        g = helper.make_graph(self.nodes, name, [x], [helper.make_empty_tensor_value_info(y)], self.consts)
        m = onnx.shape_inference.infer_shapes(helper.make_model(g, opset_imports=[helper.make_opsetid("", 17)], ir_version=8))
        onnx.checker.check_model(m)
        onnx.save(m, f"{folder}/{name}.onnx")
        np.savez(f"{folder}/{name}.npz", x=self.rng.normal(0, 1, (6, *shape[1:])).astype("float32"))


def keywords(b):
    y = b.conv("x", 1, 64, (10, 4), (2, 2), pads=[4, 1, 5, 1])
    for _ in range(4):
        y = b.conv(b.conv(y, 64, 64, 3, groups=64), 64, 64, 1)
    return b.op("Softmax", b.head(y, 64, 12), axis=1), [1, 1, 49, 10]


def visual_wake_words(b):
    y, c = b.conv("x", 3, 8, 3, 2), 8
    for m, s in [(16, 1), (32, 2), (32, 1), (64, 2), (64, 1), (128, 2), (128, 1), (256, 2), (256, 1)]:
        y, c = b.conv(b.conv(y, c, c, 3, s, groups=c), c, m, 1), m
    return b.op("Softmax", b.head(y, 256, 2), axis=1), [1, 3, 48, 48]


def resnet8(b):
    y, c = b.conv("x", 3, 16, 3), 16
    for m, s in [(16, 1), (32, 2), (64, 2)]:
        z = b.conv(b.conv(y, c, m, 3, s), m, m, 3, then="")
        y, c = b.op("Relu", b.op("Add", z, y if s == 1 else b.conv(y, c, m, 1, s, then="", pads=[0] * 4))), m
    y = b.op("Flatten", b.op("AveragePool", y, kernel_shape=[8, 8]))
    return b.op("Softmax", b.dense(y, 64, 10), axis=1), [1, 3, 32, 32]


def autoencoder(b):
    y, c = "x", 640
    for m in [128] * 4 + [8] + [128] * 4:
        y, c = b.dense(y, c, m, "Relu"), m
    return b.dense(y, c, 640), [1, 640]


def mediapipe(b):
    prelu = lambda v, n: b.op("PRelu", v, b.const(b.rng.uniform(0.1, 0.4, (n, 1, 1)).astype("float32")))  # noqa: E731
    y, c, skips = prelu(b.conv("x", 3, 16, 3, 2, then=""), 16), 16, []
    for m, s in [(16, 1), (24, 2), (24, 1), (32, 2)]:
        z = b.conv(b.conv(y, c, c, 5, s, groups=c, then=""), c, m, 1, then="")
        y, c = prelu(b.op("Add", z, y) if s == 1 and c == m else z, m), m
        skips.append(y)
    y = b.op("Resize", y, "", b.const(np.array([1, 1, 2, 2], "float32")), mode="linear", coordinate_transformation_mode="half_pixel")
    y = b.conv(b.op("Add", b.conv(y, 32, 24, 1, then=""), skips[2]), 24, 24, 3)
    return b.conv(y, 24, 8, 1, then=""), [1, 3, 64, 64]


def mobilenet_v3(b):
    y, c = b.conv("x", 3, 16, 3, 2, then="HardSwish"), 16
    for e, m, s in [(16, 16, 2), (48, 24, 2), (56, 24, 1)]:
        z = b.conv(b.conv(y, c, e, 1, then="HardSwish"), e, e, 3, s, groups=e, then="HardSwish")
        g = b.conv(b.conv(b.op("GlobalAveragePool", z), e, e // 4, 1), e // 4, e, 1, then="")
        z = b.conv(b.op("Mul", z, b.op("HardSigmoid", g, alpha=1 / 6, beta=0.5)), e, m, 1, then="")
        y, c = b.op("Add", z, y) if s == 1 and c == m else z, m
    return b.head(y, 24, 10), [1, 3, 64, 64]


def unet(b):
    a = b.conv("x", 3, 8, 3)
    y = b.conv(b.op("MaxPool", a, kernel_shape=[2, 2], strides=[2, 2]), 8, 16, 3)
    y = b.op("ConvTranspose", y, b.w(16, 8, 2, 2, scale=0.2), b.w(8, scale=0.1), strides=[2, 2], kernel_shape=[2, 2])
    return b.conv(b.op("Concat", y, a, axis=1), 16, 4, 3, then=""), [1, 3, 32, 40]


def attention(b):
    d, n, h = 32, 12, 4
    norm = lambda v: b.op("LayerNormalization", v, b.w(d, scale=1), b.w(d, scale=0.1), axis=-1)  # noqa: E731
    split = lambda v, p: b.op("Transpose", b.op("Reshape", v, b.const(np.array([1, n, h, d // h]))), perm=p)  # noqa: E731
    dense = lambda v, k, m: b.op("Add", b.op("MatMul", v, b.w(k, m, scale=0.15)), b.w(m, scale=0.1))  # noqa: E731
    v = norm("x")
    s = b.op("Softmax", b.op("MatMul", split(dense(v, d, d), [0, 2, 1, 3]), split(dense(v, d, d), [0, 2, 3, 1])), axis=-1)
    y = b.op("Reshape", b.op("Transpose", b.op("MatMul", s, split(dense(v, d, d), [0, 2, 1, 3])), perm=[0, 2, 1, 3]), b.const(np.array([1, n, d])))
    y = b.op("Add", dense(y, d, d), "x")
    z = dense(norm(y), d, 64)
    half = b.op("Mul", z, b.const(np.float32(0.5)))
    gelu = b.op("Mul", half, b.op("Add", b.op("Erf", b.op("Div", z, b.const(np.float32(np.sqrt(2))))), b.const(np.float32(1))))
    return b.op("Add", dense(gelu, 64, d), y), [1, n, d]


NETWORKS = [keywords, visual_wake_words, resnet8, autoencoder, mediapipe, mobilenet_v3, unet, attention]


def step_of(model):
    """The scale of the output, if it comes from a DequantizeLinear."""
    consts = {t.name: numpy_helper.to_array(t) for t in model.graph.initializer}
    for n in model.graph.node:
        if model.graph.output[0].name in n.output and n.op_type == "DequantizeLinear":
            return float(consts[n.input[1]])
    return 0.0


def real(v, d):
    scale, zero = d["quantization"]
    return (v.astype("float64") - zero) * scale if scale else v.astype("float64")


def run_tflite(path, x):
    from ai_edge_litert.interpreter import Interpreter
    r = Interpreter(path)
    r.allocate_tensors()
    i, o = r.get_input_details()[0], r.get_output_details()[0]
    is_last = x.ndim == 4 and list(i["shape"]) != list(x.shape)
    x = x.transpose(0, 2, 3, 1) if is_last else x
    if i["dtype"] != np.float32:
        scale, zero = i["quantization"]
        info = np.iinfo(i["dtype"])
        x = np.clip(np.rint(x / scale) + zero, info.min, info.max)
    r.set_tensor(i["index"], np.array(x, dtype=i["dtype"], order="C"))
    r.invoke()
    y = real(r.get_tensor(o["index"]), o)
    return y.transpose(0, 3, 1, 2) if is_last and y.ndim == 4 else y


def run_onnx(network, x):
    import onnxruntime
    o = onnxruntime.SessionOptions()
    o.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return onnxruntime.InferenceSession(network, o, providers=["CPUExecutionProvider"]).run(None, {"x": x})[0]


def compare(network, path, samples, result=None):
    x = np.load(samples)["x"][:1 if result else SAMPLES]
    want = np.load(result) if result else np.concatenate([run_onnx(network, x[k:k + 1]) for k in range(SAMPLES)])
    got, want = np.concatenate([run_tflite(path, x[k:k + 1]) for k in range(len(x))]), want.astype("float64")
    step, off = step_of(onnx.load(network)), np.abs(got - want)
    if not step:
        print(f"largest difference {off.max() / np.abs(want).max():.3g} of the largest value")
        return off.max() <= 1e-5 * np.abs(want).max()
    off = np.rint(off / step)
    print(f"{np.mean(off == 0):.4f} equal, {np.mean(off <= 1):.4f} within a step, none beyond {int(off.max())}")
    return np.mean(off) <= 1 and off.max() <= MOST


def quantize(network, samples, out):
    from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static

    class Samples(CalibrationDataReader):
        def __init__(self):
            self.left = list(np.load(samples)["x"])

        def get_next(self):
            return {"x": self.left.pop()[None]} if self.left else None

    quantize_static(network, out, Samples(), quant_format=QuantFormat.QDQ, activation_type=QuantType.QUInt8, weight_type=QuantType.QInt8, per_channel=True)


def main():
    if sys.argv[1] == "make":
        for k, make in enumerate(NETWORKS):
            b = Builder(k)
            y, shape = make(b)
            b.save(sys.argv[2], make.__name__, y, shape)
        return 0
    if sys.argv[1] == "quantize":
        quantize(*sys.argv[2:5])
        return 0
    return 0 if compare(*sys.argv[2:6]) else 1


if __name__ == "__main__":
    sys.exit(main())
