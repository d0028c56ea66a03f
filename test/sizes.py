#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Random small networks of operators whose sizes follow from their inputs' (windows, views, shape arithmetic), with open height and width, at
many small sizes: quern agrees with ONNX Runtime, or refuses where that fails, by a message that names input, size and operator.

    sizes.py [SEED [COUNT [OPERATOR,..]]]      needs numpy, onnx, onnxruntime and the package quern

Not held against quern: sizes of 0, for which the two refuse different operators; results without elements; windows of pools that do not fit,
which ONNX Runtime counts as one; computed indices below 0, which count from the end there. Sizes that quern takes for equal where ONNX Runtime
broadcasts or passes over what is empty are reported: whether that is meant is for a person to say (doc/cli.md, --assume).
"""
import re
import sys

import numpy as np
import onnxruntime as ort
from onnx import helper, numpy_helper

import quern

ort.set_default_logger_severity(4)
arg = sys.argv[1:] + [""] * 3
seed, count, only = int(arg[0] or 1), int(arg[1] or 40), arg[2]
rng = np.random.default_rng(seed)
SIZES = [(1, 3), (2, 2), (3, 1), (3, 4), (4, 5), (5, 6), (6, 3), (7, 8), (8, 2), (9, 9)]


def among(a, b):
    return int(rng.integers(a, b + 1))


def pick(*values):
    return values[among(0, len(values) - 1)]


def ints(*v):
    return np.array(v, np.int64)


class Net:
    def __init__(self):
        self.nodes, self.init, self.n = [], [], 0

    def const(self, a):
        self.n += 1
        self.init.append(numpy_helper.from_array(np.asarray(a), f"c{self.n}"))
        return f"c{self.n}"

    def op(self, op, *inputs, **attributes):
        self.n += 1
        self.nodes.append(helper.make_node(op, inputs, [f"v{self.n}"], name=f"/{op}{self.n}", **attributes))
        return f"v{self.n}"

    def size(self, x, axis, op=None, by=0):
        """The size of an axis of x, as a vector of one element; less, more, or divided by a
        number."""
        s = self.op("Gather", self.op("Shape", x), self.const(ints(axis)), axis=0)
        return self.op(op, s, self.const(ints(by))) if op else s

    def bytes(self, y):
        self.op("Identity", y)
        self.nodes[-1].output[0] = "y"
        given = helper.make_tensor_value_info("x", 1, [1, 2, "H", "W"])
        g = helper.make_graph(self.nodes, "g", [given], [helper.make_tensor_value_info("y", 1, None)], self.init)
        return helper.make_model(g, opset_imports=[helper.make_opsetid("", 18)], ir_version=9).SerializeToString()


def window(pads=True, ceil=False):
    k = [among(1, 4), among(1, 3)]
    a = {"kernel_shape": k}
    if among(0, 1):
        a["strides"] = [among(1, 3), among(1, 2)]
    same = pads and not ceil and among(0, 3) == 0
    if same:
        a["auto_pad"] = pick("SAME_UPPER", "SAME_LOWER")
    elif among(0, 2) == 0:
        a["dilations"] = [among(1, 2), among(1, 2)]
    if pads and not same and among(0, 1):
        a["pads"] = [among(0, k[i % 2] - 1) for i in range(4)]
    if ceil and not same and among(0, 2) == 0:
        a["ceil_mode"] = 1
    return a


def weight(a):
    return rng.standard_normal((2, 2, *a["kernel_shape"])).astype(np.float32)


def conv(m, x):
    a = window()
    return m.op("Conv", x, m.const(weight(a)), **a)


def conv_transpose(m, x):
    a = window(pads=False)
    if among(0, 1):
        a["pads"] = [among(0, 3), 0, among(0, 2), among(0, 1)]
    return m.op("ConvTranspose", x, m.const(weight(a)), **a)


def pool(m, x):
    return m.op(pick("MaxPool", "AveragePool", "LpPool"), x, **window(ceil=True))


def global_pool(m, x):
    return m.op("Add", x, m.op(pick("GlobalAveragePool", "GlobalMaxPool"), x))


def pad(m, x):
    return m.op("Pad", x, m.const(ints(0, 0, among(-3, 3), among(-1, 2), 0, 0, among(-3, 3), among(-1, 2))))


def pad_edge(m, x):
    return m.op("Pad", x, m.const(ints(0, 0, among(0, 3), among(0, 2), 0, 0, among(0, 3), among(0, 2))), mode="edge")


def pad_to(m, x):
    zero = m.const(ints(0))
    missing = m.op("Sub", m.const(ints(among(2, 6))), m.size(x, 2))
    return m.op("Pad", x, m.op("Concat", m.const(ints(0, 0, 0, 0, 0, 0)), missing, zero, axis=0))


def cut(m, x):
    step = pick(1, 1, 2, -1, -2)
    start, end = (among(-4, 5), pick(among(-4, 6), 2**63 - 1)) if step > 0 else (pick(-1, 5, 2**31), pick(0, -6, -2**63, 1))
    return m.op("Slice", x, *(m.const(ints(v)) for v in (start, end, 2, step)))


def cut_at(m, x):
    at = m.op("Div", m.size(x, 2, pick("Sub", "Add"), among(0, 3)), m.const(ints(among(1, 3))))
    start, end = pick((m.const(ints(0)), at), (at, m.const(ints(1000))))
    return m.op("Slice", x, start, end, m.const(ints(2)), m.const(ints(1)))


def resize(m, x):
    scales = np.array([1, 1, pick(0.5, 2, 1.5, 0.25), 1], np.float32)
    return m.op("Resize", x, "", m.const(scales), mode="nearest", coordinate_transformation_mode="asymmetric", nearest_mode="floor")


def resize_to(m, x):
    to = m.op("Concat", m.const(ints(1, 2)), m.size(x, 2, pick("Sub", "Add", "Mul"), among(1, 3)), m.size(x, 3), axis=0)
    return m.op("Resize", x, "", "", to, mode="nearest", coordinate_transformation_mode="asymmetric", nearest_mode="floor")


def blocks(m, x):
    return m.op("DepthToSpace", m.op("SpaceToDepth", x, blocksize=2), blocksize=2)


def gather(m, x):
    return m.op("Gather", x, m.const(ints(*(among(-4, 4) for _ in range(among(1, 3))))), axis=2)


def top(m, x):
    y = m.op("TopK", x, m.const(ints(among(1, 4))), axis=2)
    m.nodes[-1].output.append(y + "i")
    return y


def split(m, x):
    parts = pick("equal", "given", "rest")
    if parts == "equal":
        y = m.op("Split", x, axis=2, num_outputs=2)
    elif parts == "given":
        y = m.op("Split", x, m.const(ints(among(1, 3), among(1, 3))), axis=2)
    else:
        y = m.op("Split", x, m.op("Concat", m.const(ints(2)), m.size(x, 2, "Sub", 2), axis=0), axis=2)
    m.nodes[-1].output.append(y + "b")
    return pick(y, y + "b")


def count_up(m, x):
    end = m.op("Squeeze", m.size(x, 3, "Sub", among(0, 3)))
    r = m.op("Range", m.const(np.int64(0)), end, m.const(np.int64(among(1, 2))))
    return m.op("Add", x, m.op("ReduceSum", m.op("Cast", r, to=1), keepdims=0))


def expand(m, x):
    row = m.op("Slice", x, m.const(ints(0)), m.const(ints(1)), m.const(ints(2)))
    return m.op("Expand", row, m.op("Concat", m.const(ints(1, 1)), m.size(x, 2, "Add", among(0, 1)), m.const(ints(1)), axis=0))


def reshape(m, x):
    return m.op("Reshape", x, m.const(ints(*pick((1, 2, -1, 2), (1, -1, 3, 1), (1, 2, 0, -1), (2, 1, -1, 4)))))


def tile(m, x):
    times = m.op("Add", m.size(x, 2, "Div", 2), m.const(ints(1)))
    return m.op("Tile", x, m.op("Concat", m.const(ints(1, 1)), times, m.const(ints(1)), axis=0))


def center(m, x):
    return m.op("CenterCropPad", x, m.const(ints(among(1, 5))), axes=[2])


OPS = [conv, conv_transpose, pool, global_pool, pad, pad_edge, pad_to, cut, cut_at, resize, resize_to, blocks, gather, top, split, count_up, expand,
       reshape, tile, center]
if only:
    OPS = [globals()[name] for name in only.split(",")]
EXPLAINED = re.compile(r"input 'x': .*but .* needs ")
STRICTER = re.compile(r"(Pool|Slice) '\S+' needs .+ to be at least ")


def differs(session, program, why, x):
    """None, or the description of a difference."""
    try:
        want = session.run(None, {"x": x})[0]
    except Exception:
        want = None
    try:
        if not program:
            raise quern.Error(why)
        got = np.asarray(program(x))
    except quern.Error as e:
        if not program or EXPLAINED.search(str(e)):
            return None if want is None or want.size == 0 or STRICTER.search(str(e)) else f"refused: {e}"
        return f"not explained: {e}"
    if want is None:
        return f"runs, {got.shape}" if got.size else None
    if got.shape != want.shape:
        return f"{got.shape}, expected {want.shape}"
    return None if np.allclose(got, want, 1e-4, 1e-4, equal_nan=True) else f"differs by {np.abs(got - want).max()}"


def build():
    m, x, names = Net(), "x", []
    for k in range(among(1, 3)):
        f = pick(*OPS)
        names.append(f.__name__)
        x = f(m, x)
    return m, m.bytes(x), names


failed = 0
for i in range(count):
    net, model, names = build()
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    try:
        session = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    except Exception:
        continue
    program, why = None, ""
    try:
        program = quern.compile(model, device="interp", sizes={"H": 8, "W": 6})
    except quern.Error as e:
        why = str(e)
    for h, w in SIZES:
        bad = differs(session, program, why, rng.standard_normal((1, 2, h, w)).astype(np.float32))
        if bad:
            failed += 1
            print(f"seed {seed}, network {i} ({', '.join(names)}) at {h} x {w}: {bad}")
            for n in net.nodes:
                print("   ", n.op_type, *n.input, {a.name: helper.get_attribute_value(a) for a in n.attribute})
            break
print(f"{count} networks, {failed} failed")
sys.exit(failed > 0)
