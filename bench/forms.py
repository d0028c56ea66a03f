# SPDX-License-Identifier: Apache-2.0
#
# Other forms of a network's ONNX file: with weights and activations in 16 bits behind the same f32
# interface (Casts at both ends), and quantised by quern.
import subprocess

from rows import QUERN


def halve(model, path, form):
    """Writes the network in "f16" or "bf16". What is f32 by definition (scales of Resize) stays."""
    import numpy as np
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    m = onnx.load(model)
    g, to = m.graph, {"f16": TensorProto.FLOAT16, "bf16": TensorProto.BFLOAT16}[form]
    kept = {n for node in g.node if node.op_type == "Resize" for n in node.input[1:]}

    def convert(t):
        if t.data_type != TensorProto.FLOAT:
            return
        a, name = np.ascontiguousarray(numpy_helper.to_array(t)), t.name
        if form == "f16":
            raw = a.astype(np.float16).tobytes()
        else:  # to nearest, ties to even
            bits = a.view(np.uint32).astype(np.uint64)
            raw = ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16).tobytes()
        t.CopyFrom(TensorProto(name=name, data_type=to, dims=a.shape, raw_data=raw))

    for t in g.initializer:
        if t.name not in kept:
            convert(t)
    for node in g.node:
        for a in node.attribute:
            if node.op_type in ("Constant", "ConstantOfShape") and a.name == "value" and node.output[0] not in kept:
                convert(a.t)
            if node.op_type == "Cast" and a.name == "to" and a.i == TensorProto.FLOAT:
                a.i = to
    del g.value_info[:]
    constants = {t.name for t in g.initializer}
    is_f32 = lambda v: v.type.tensor_type.elem_type == TensorProto.FLOAT and v.name not in constants
    inputs, outputs = ([v.name for v in of if is_f32(v)] for of in (g.input, g.output))
    inner = {n: n + "_" + form for n in inputs + outputs}
    nodes = list(g.node)
    for node in nodes:
        for names in (node.input, node.output):
            names[:] = [inner.get(n, n) for n in names]
    before = [helper.make_node("Cast", [n], [inner[n]], to=to) for n in inputs]
    after = [helper.make_node("Cast", [inner[n]], [n], to=TensorProto.FLOAT) for n in outputs]
    del g.node[:]
    g.node.extend(before + nodes + after)
    onnx.save(m, path)


def quantise(model, inputs, path):
    """Writes the network in QDQ form, calibrated on the inputs (an npz file)."""
    args = [QUERN, "quantize", model, "--data", inputs, "-o", path, "--no-report", "-q"]
    r = subprocess.run(args, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if r.returncode:
        raise RuntimeError("quern quantize failed\n" + r.stdout)
