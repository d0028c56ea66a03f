# SPDX-License-Identifier: Apache-2.0
"""Networks in QDQ form for the tests of the exporter to TFLite: pairs of QuantizeLinear and DequantizeLinear behind
every value of f32, with the range that it has for given inputs, weights of i8 per channel or per tensor, biases of i32.
Written here, and not by a tool, so that forms that no tool writes are tried, too: u8 and i8, pairs that are missing
between a layer and its activation, scales that differ where TFLite wants one."""
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

LAYERS = {"Conv": 0, "ConvTranspose": 1, "Gemm": None, "MatMul": 1}  # axis of output channels
MOVES = {"MaxPool", "Reshape", "Flatten", "Transpose", "Squeeze", "Unsqueeze", "Slice", "Split", "DepthToSpace", "SpaceToDepth", "Gather", "Tile", "Identity",
         "GlobalMaxPool", "Resize", "AveragePool", "Pad", "ReduceMax", "ReduceMin", "Concat", "Expand"}
FIXED = {"LogSoftmax": 16 / 256, "Softmax": 1 / 256, "Sigmoid": 1 / 256, "Tanh": 1 / 128}  # scales that TFLite prescribes
FUSED = {"Relu", "Clip"}


class Quantiser:
    def __init__(self, model, values, rng, completes=False):
        self.g, self.values, self.rng = model.graph, values, rng
        self.completes = completes  # activations that are no Relu or Clip have no pair before them, either
        self.signed = bool(rng.integers(2))
        self.consts = {t.name: numpy_helper.to_array(t) for t in self.g.initializer}
        self.nodes, self.new, self.pair, self.step = [], [], {}, {}
        self.readers = {}
        for n in self.g.node:
            for i in n.input:
                self.readers.setdefault(i, []).append(n)

    def const(self, name, value):
        self.new.append(numpy_helper.from_array(np.asarray(value), name))
        return name

    def make_step(self, value):
        lo, hi = min(0.0, float(value.min())), max(0.0, float(value.max()))
        scale = np.float32(max(hi - lo, 1e-3) / 255)
        least = -128 if self.signed else 0
        zero = int(np.clip(np.rint(least - lo / float(scale)), least, least + 255))
        return scale, zero

    def quantised(self, v):
        """The pair of a value of f32."""
        if v in self.pair:
            return self.pair[v]
        scale, zero = self.step.setdefault(v, self.make_step(self.values[v]))
        s, z = self.const(v + "_s", scale), self.const(v + "_z", np.int8(zero) if self.signed else np.uint8(zero))
        self.nodes.append(helper.make_node("QuantizeLinear", [v, s, z], [v + "_q"], name=v + "_quantize"))
        self.nodes.append(helper.make_node("DequantizeLinear", [v + "_q", s, z], [v + "_d"], name=v + "_dequantize"))
        self.pair[v] = v + "_d"
        return self.pair[v]

    def weights(self, name, w, axis):
        if axis is None or self.rng.integers(3) == 0:
            scale = np.float32(max(np.abs(w).max(), 1e-3) / 127)
            q, attrs = np.rint(w / scale), {}
        else:
            others = tuple(k for k in range(w.ndim) if k != axis)
            scale = np.maximum(np.abs(w).max(axis=others), 1e-3).astype("float32") / np.float32(127)
            q, attrs = np.rint(w / scale.reshape([-1 if k == axis else 1 for k in range(w.ndim)])), {"axis": axis}
        q = np.clip(q, -127, 127).astype("int8")
        ins = [self.const(name + "_q", q), self.const(name + "_s", scale), self.const(name + "_z", np.zeros(np.shape(scale), "int8"))]
        self.nodes.append(helper.make_node("DequantizeLinear", ins, [name + "_d"], name=name + "_dequantize", **attrs))
        return name + "_d", scale

    def bias(self, name, b, scale):
        b = np.atleast_1d(b)
        scale = np.broadcast_to(scale, b.shape) if b.ndim == 1 and b.shape[0] != 1 else np.atleast_1d(scale)[:1]
        q = np.rint(b / scale).astype("int32")
        per = scale.ndim == 1 and b.shape[0] > 1
        s = np.ascontiguousarray(scale if per else scale[0], dtype="float32")
        ins = [self.const(name + "_q", q), self.const(name + "_s", s)]
        self.nodes.append(helper.make_node("DequantizeLinear", ins, [name + "_d"], name=name + "_dequantize", axis=0))
        return name + "_d"

    def layer(self, n):
        x = self.quantised(n.input[0])
        axis = LAYERS[n.op_type]
        if n.op_type == "Gemm":
            axis = 0 if any(a.name == "transB" and a.i for a in n.attribute) else 1
        w, scale = self.weights(n.input[1], self.consts[n.input[1]], axis)
        ins = [x, w]
        if len(n.input) > 2 and n.input[2]:
            ins.append(self.bias(n.input[2], self.consts[n.input[2]], self.step[n.input[0]][0] * scale))
        self.emit(n, ins)

    def emit(self, n, ins):
        c = onnx.NodeProto()
        c.CopyFrom(n)
        del c.input[:]
        c.input.extend(ins)
        self.nodes.append(c)

    def is_float(self, v):
        return v in self.values and self.values[v].dtype == np.float32

    def other(self, n):
        source = n.input[0]
        alone = source not in {i.name for i in self.g.input} and len(self.readers[source]) == 1
        is_fused = alone and (n.op_type in FUSED or (self.completes and len([i for i in n.input if i and i not in self.consts]) == 1))
        ins = []
        for k, i in enumerate(n.input):
            skips = not i or i in self.consts or not self.is_float(i) or (k == 0 and is_fused)
            ins.append(i if skips else self.quantised(i))
        if n.op_type in MOVES and not is_fused and self.rng.integers(3) and self.is_float(n.input[0]):
            for o in n.output:  # mostly the scale of the operand
                self.step[o] = self.step[n.input[0]]
        self.emit(n, ins)

    def run(self):
        for n in self.g.node:
            if n.op_type in LAYERS and n.input[1] in self.consts and not (len(n.input) > 2 and n.input[2] and n.input[2] not in self.consts):
                self.layer(n)
            else:
                self.other(n)
        outs = []
        for o in self.g.output:
            name = self.quantised(o.name) if self.is_float(o.name) else o.name
            kind = TensorProto.FLOAT if self.is_float(o.name) else helper.np_dtype_to_tensor_dtype(self.values[o.name].dtype)
            outs.append(helper.make_tensor_value_info(name, kind, self.values[o.name].shape))
        used = {i for n in self.nodes for i in n.input}
        keep = [t for t in self.g.initializer if t.name in used]
        g = helper.make_graph(self.nodes, "net", self.g.input, outs, keep + self.new)
        return g, self.uncertain()

    def uncertain(self):
        """How far roundings along the network add up, where none is amplified."""
        inputs = {i.name for i in self.g.input}
        total = sum(float(s) for k, (s, _) in self.step.items() if k not in inputs)
        return total + sum(FIXED.get(n.op_type, 0) for n in self.g.node)


def quantise(model, values, rng, completes=False):
    """The model with pairs, and the sum of their steps."""
    g, steps = Quantiser(model, values, rng, completes).run()
    m = helper.make_model(g, opset_imports=model.opset_import, ir_version=model.ir_version)
    return m, steps
