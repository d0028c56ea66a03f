# SPDX-License-Identifier: Apache-2.0
#
# The rows of bench/compare: matmuls, convolutions, networks (and attention.py). A row describes the computation, not
# its implementation. Pure functions of the standard library, so that other programs can use rows,
# too:
#
#   import rows; rows.group("matmul")
#
# m, n, k: rows, columns and summed axis of a matmul, (m, k) x (k, n). n, c, size: images, channels,
# height and width, or depth, height and width.
import json
import math
import os
import re
import subprocess
import tempfile
from dataclasses import dataclass, replace

import attention
import networks

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
QUERN = os.path.join(ROOT, "build/quern")
FAR = 128 << 20  # bytes of weights that no last-level cache keeps (of the machines at hand)


@dataclass(frozen=True)
class Gemm:
    """batch matmuls of (m, k) by (k, n), or by (n, k) transposed; the right operand is a constant
    or a second input. copies: the number of right operands for one left operand, used in turn like
    the layers of a network."""

    name: str
    m: int
    n: int
    k: int
    batch: int = 1
    transposed: bool = False
    constant: bool = False
    copies: int = 1

    kind = "gemm"

    @property
    def flops(self):
        return 2.0 * self.batch * self.m * self.n * self.k * self.copies

    @property
    def bytes(self):
        """Each operand is read and each result written once."""
        right = self.k * self.n * self.copies
        return 4.0 * self.batch * (self.m * self.k + right + self.m * self.n * self.copies)

    def describe(self):
        text = "%dx" % self.batch if self.batch > 1 else ""
        text += "(%d,%d)x(%d,%d)%s" % (self.m, self.k, self.k, self.n, "^T" * self.transposed)
        text += ", weights constant" if self.constant else ", two inputs"
        return text + (", %d of them" % self.copies if self.copies > 1 else "")


def joined(mark, numbers):
    return mark.join(map(str, numbers))


@dataclass(frozen=True)
class Conv:
    """(n, c, *size) to (n, oc, *out) with bias and an activation: "", "Relu", "Relu6". pads: at the
    beginnings of the axes, then at their ends. part: the image has 1/part of the
    network's rows."""

    name: str
    c: int
    size: tuple
    oc: int
    kernel: tuple
    strides: tuple
    pads: tuple
    group: int
    dilations: tuple
    activation: str
    part: int = 1
    n: int = 1

    kind = "conv"

    @property
    def begins(self):
        return self.pads[: len(self.size)]

    @property
    def ends(self):
        return self.pads[len(self.size) :]

    @property
    def x(self):
        """The shapes of input and output."""
        return (self.n, self.c, *self.size)

    @property
    def y(self):
        axes = zip(self.size, self.kernel, self.strides, self.dilations, self.begins, self.ends)
        size = ((x + p + q - d * (k - 1) - 1) // s + 1 for x, k, s, d, p, q in axes)
        return (self.n, self.oc, *size)

    @property
    def weights(self):
        return (self.oc, self.c // self.group, *self.kernel)

    @property
    def flops(self):
        return 2.0 * math.prod(self.weights[1:]) * math.prod(self.y)

    @property
    def bytes(self):
        return 4.0 * sum(map(math.prod, (self.x, self.y, self.weights)))

    def shape(self):
        text = "%dx" % self.n if self.n > 1 else ""
        text += "%s>%d %s" % (joined(",", (self.c, *self.size)), self.oc, joined("x", self.kernel))
        text += "/%d" % self.strides[0] if max(self.strides) > 1 else ""
        text += " g%d" % self.group if self.group > 1 else ""
        return text + (" d%d" % self.dilations[0] if max(self.dilations) > 1 else "")

    def describe(self):
        text = "bias" + (" and " + self.activation if self.activation else "")
        return text + (", 1/%d of the rows" % self.part if self.part > 1 else "")


@dataclass(frozen=True)
class QuantisedGemm(Gemm):
    """u8 by i8, with i32 sums scaled back to u8 (QLinearMatMul)."""

    kind = "qgemm"

    @property
    def bytes(self):
        return super().bytes / 4

    def describe(self):
        return super().describe() + ", in 8 bits"


@dataclass(frozen=True)
class CodedGemm(Gemm):
    """(m, k) by constant weights in few bits, (k, n), in f32; with a scale in f16 for every BLOCK
    terms of a column if they are integers. rounded: the left operand may be rounded to 8 bits
    (MatMulNBits, accuracy_level 4)."""

    weights: str = ""  # f16, bf16, int8, int4
    rounded: bool = False

    kind = "codes"
    BLOCK = 32

    @property
    def bits(self):
        return {"f16": 16, "bf16": 16, "int8": 8, "int4": 4}[self.weights]

    @property
    def form(self):
        return "rounded" if self.rounded else ""

    @property
    def bytes(self):
        of_weight = self.bits / 8 + (2 / self.BLOCK if self.bits < 16 else 0)
        return 4.0 * self.m * (self.k + self.n * self.copies) + of_weight * self.k * self.n * self.copies

    def describe(self):
        return super().describe() + ", in " + self.weights + ", left operand in 8 bits" * self.rounded


@dataclass(frozen=True)
class QuantisedConv(Conv):
    """Likewise (QLinearConv), with a scale for each output channel. The activation is the
    saturation."""

    kind = "qconv"

    @property
    def bytes(self):
        return super().bytes / 4

    def describe(self):
        return "bias, in 8 bits" + (", 1/%d of the rows" % self.part if self.part > 1 else "")


@dataclass(frozen=True)
class Net:
    """A network of the zoo, or of networks.py (exported). goal: required speed-up over the best
    peer. sizes: of its free sizes; shape: of its input in the zoo. form: "" as it is, "int8"
    quantised by quern in QDQ form, "f16" or "bf16" with weights and activations in it. flops are
    determined by quern."""

    name: str
    goal: float
    sizes: tuple = ()
    shape: tuple = (1, 3, 224, 224)
    exported: bool = False
    form: str = ""
    flops: float = 0.0

    kind = "net"
    bytes = 0.0  # what has to be moved is not known

    @property
    def network(self):
        """The name without the form."""
        return self.name.removesuffix(" " + self.form) if self.form else self.name

    def describe(self):
        text = "exported network" if self.exported else "network, input " + "x".join(map(str, self.shape))
        return text + (", in " + self.form if self.form else "")


# --- matmuls --------------------------------------------------------------------------------------


def squares():
    return [
        Gemm("square %d" % n, n, n, n) for n in (256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096)
    ]


# Of one forward pass: network, rows (tokens), heads and their size, then name, n and k of each
# layer with weights.
TRANSFORMERS = (
    ("bert", 1024, 16, 64,
     (("proj", 1024, 1024), ("ffn up", 4096, 1024), ("ffn down", 1024, 4096))),
    ("gpt2", 1024, 12, 64,
     (("proj", 768, 768), ("ffn up", 3072, 768), ("ffn down", 768, 3072),
      ("lm head", 32000, 768))),
    ("llama2", 2048, 32, 128,
     (("proj", 4096, 4096), ("w1", 11008, 4096), ("w2", 4096, 11008),
      ("lm head", 32000, 4096))),
)  # fmt: skip


def matmul():
    found = []
    for net, m, heads, size, layers in TRANSFORMERS:
        found.append(Gemm(net + " QK^T", m, m, size, batch=heads, transposed=True))
        found.append(Gemm(net + " PV", m, size, m, batch=heads))
        found += [Gemm("%s %s" % (net, name), m, n, k, constant=True) for name, n, k in layers]
    return found


def decode():
    """One, four and sixteen tokens through the layers with weights, enough of them to exceed every
    cache."""
    return [
        Gemm("%s %s, %d" % (net, name, m), m, n, k, constant=True, copies=-(-FAR // (4 * n * k)))
        for m in (1, 4, 16)
        for net, _, _, _, layers in TRANSFORMERS
        for name, n, k in layers
    ]


def bits():
    """One token through layers whose weights have few bits, enough of them to exceed every cache;
    then prompts."""
    kinds = [(t, False) for t in ("f16", "bf16", "int8", "int4")] + [(t, True) for t in ("int8", "int4")]
    of_weight = {"f16": 2, "bf16": 2, "int8": 1, "int4": 0.5}
    found = []
    for m in (1, 4, 128, 512):
        for name, n, k in (("proj", 4096, 4096), ("w1", 11008, 4096), ("w2", 4096, 11008)):
            for weights, rounded in kinds if m == 1 or name == "proj" else []:
                copies = math.ceil(FAR / (of_weight[weights] * n * k)) if m < 128 else 1
                named = "llama2 %s, %s%s, %d" % (name, weights, " rounded" * rounded, m)
                found.append(CodedGemm(named, m, n, k, constant=True, copies=copies, weights=weights, rounded=rounded))
    return found


# --- networks and their convolutions --------------------------------------------------------------

PICTURE = {"sizes": (("H", 1088), ("W", 1920)), "shape": (1, 3, 1088, 1920)}
NETS = (
    Net("resnet50", 1.2),
    Net("mobilenetv2", 1.3),
    Net("oidn-small", 3.0, **PICTURE),
    Net("oidn", 3.0, **PICTURE),
    Net("cosmoflow", 3.0, shape=(1, 4, 128, 128, 128)),
    Net("cosmoflow-v1", 3.0, shape=(1, 1, 128, 128, 128)),
)
# Required of exported networks; of others what GOALS says.
REQUIRED = {
    "resnet50": 1.2, "mobilenet_v2": 1.3, "mobilenet_v3_large": 1.3, "mobilenet_v3_small": 1.3, "efficientnet_b0": 1.3,
    "densenet121": 1.2, "inception_v3": 1.2, "convnext_tiny": 1.2, "swin_t": 1.2, "vit_b_16": 1.15, "coatnet_0_rw_224": 1.2,
    "bert-large": 1.15, "bert-large-1024": 1.15, "bert-large-2x1024": 1.3, "gpt2": 1.3, "llama2": 1.3, "whisper-encoder": 1.15, "unet": 1.8, "raft-small": 1.5,
}  # fmt: skip
LARGE = 128 << 20  # bytes of input and output, more than caches keep; beyond, rows are left out


def nets():
    return list(NETS)


def foreign():
    """Networks as users export them from PyTorch."""
    return [Net(n, REQUIRED.get(n, GOALS["foreign"].least), exported=True) for n in networks.NAMES]


def network(name, goal, form):
    """One of either list, in another form."""
    net = {n.name: n for n in [*foreign(), *NETS]}[name]
    return replace(net, name="%s %s" % (name, form), goal=goal, form=form)


def halves():
    """Networks in 16 bits."""
    names = ("resnet50", "mobilenetv2", "oidn-small", "bert-large", "gpt2", "unet", "mlp")
    return [network(n, 1.0, form) for n in names for form in ("f16", "bf16")]


def tasks_of(net):
    """The parts of a network that one kernel may compute in quern: lists of lines
    (doc/graph-ir.md)."""
    with tempfile.TemporaryDirectory() as d:
        model = os.path.join(d, "net.onnx")
        subprocess.run([QUERN, "zoo", net.name, "-o", model], check=True, stdout=subprocess.DEVNULL)
        args = [QUERN, "compile", model, "-o", model + ".dnx", "--untuned", "-d", "tasks,kernels"]
        if net.sizes:
            args.append("--input-shape=" + ":".join("%s=%d" % s for s in net.sizes) + ":?")
        p = subprocess.Popen(args, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        task = []
        for line in p.stdout:
            if line.startswith("--- kernels"):
                break
            task.append(line)
            if line.startswith("}"):
                yield task
                task = []
        p.kill()  # the program is not wanted
        p.wait()
        p.stdout.close()


VALUE = re.compile(r"(%\d+): \w+\[([^\]]*)\]")
NODE = re.compile(r"= (\S+)\(([^)]*)\)")
ATTRIBUTE = re.compile(r"(\w+)=(\[[-\d,]*\]|-?\d+)")


def convs_of(task):
    """Convolutions of images, without names."""
    shape, nodes = {}, []
    for line in task:
        v, n = VALUE.search(line), NODE.search(line)
        if v:
            shape[v[1]] = tuple(map(int, v[2].split(","))) if v[2] else ()
        if n:
            nodes.append((n[1], n[2].split(", "), v[1], dict(ATTRIBUTE.findall(line))))
    for op, inputs, out, a in nodes:
        if op == "Conv" and len(shape[out]) == 4:
            a = {k: tuple(json.loads(v)) if v[0] == "[" else int(v) for k, v in a.items()}
            users = [n[0] for n in nodes if out in n[1]]
            yield make_conv(shape[inputs[0]], shape[out], a, users)


def make_conv(x, y, a, users):
    part = 1
    while 4 * (math.prod(x) + math.prod(y)) > part * LARGE:
        part *= 2
    activation = {"Relu": "Relu", "Clip": "Relu6"}.get(users[0], "") if len(users) == 1 else ""
    return Conv(
        "", x[1], (x[2] // part, x[3]), y[1], a["kernel_shape"], a["strides"], a["pads"], a["group"],
        a["dilations"], activation, part,
    )  # fmt: skip


def conv():
    """The distinct layers of the networks, each with the activation that may follow it."""
    found = {}
    for net in NETS:
        for row in (c for task in tasks_of(net) for c in convs_of(task)):
            bare = replace(row, activation="")
            known = found.get(bare, (net, bare))
            found[bare] = known if known[1].activation else (known[0], row)
    return [replace(row, name="%s %s" % (net.name, row.shape())) for net, row in found.values()]


# Channels, size of the cube with its padding, output channels.
COSMOFLOW = ((1, 130, 16), (16, 66, 32), (32, 34, 64), (64, 18, 128), (128, 10, 256), (256, 6, 256),
             (256, 4, 256))  # fmt: skip


def conv3d():
    """The convolutions of the first CosmoFlow, for one and four volumes."""
    rows = [
        Conv("", c, (s,) * 3, oc, (3,) * 3, (1,) * 3, (0,) * 6, 1, (1,) * 3, "", n=n)
        for n in (1, 4)
        for c, s, oc in COSMOFLOW
    ]
    return [replace(r, name="cosmoflow %s" % r.shape()) for r in rows]


def int8():
    """Convolutions of the networks that are used in 8 bits, the layers of BERT with weights, and
    whole networks."""
    used = ("resnet50", "mobilenetv2")
    found = {QuantisedConv(**{**vars(r), "activation": ""}) for r in conv() if r.name.split()[0] in used}
    layers = [QuantisedGemm(**vars(r)) for r in matmul() if r.name.startswith("bert") and r.constant]
    nets = [network(n, 1.1, "int8") for n in used + ("bert-large",)]
    return sorted(found, key=lambda r: r.name) + layers + nets


# --- filters --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Filter:
    """c channels of h x w filtered with k x k weights for every pixel (WeightedFilter), or the
    gradient of the input or of the weights. All operands are inputs."""

    name: str
    op: str
    c: int
    h: int
    w: int
    k: int

    kind = "filter"

    @property
    def x(self):
        return (1, self.c, self.h, self.w)

    @property
    def weights(self):
        return (1, self.k**2, self.h, self.w)

    @property
    def y(self):
        return self.weights if self.op == "WeightedFilterGradWeights" else self.x

    @property
    def flops(self):
        return 2.0 * self.c * math.prod(self.weights)

    @property
    def bytes(self):
        return 4.0 * (math.prod(self.weights) + 2 * math.prod(self.x))

    def describe(self):
        return "%s, (%d,%d,%d), %dx%d weights per pixel" % (self.op, self.c, self.h, self.w, self.k, self.k)


def filters():
    """Kernels as predicted by denoisers: small ones for a large image, large ones for a small
    one."""
    return [
        Filter("%s %dx%d, %d" % (name, w, h, k), "WeightedFilter" + op, 3, h, w, k)
        for h, w, k in ((1080, 1920, 5), (540, 960, 17))
        for name, op in (("filter", ""), ("input", "GradInput"), ("weights", "GradWeights"))
    ]


# --- recurrent layers -----------------------------------------------------------------------------


@dataclass(frozen=True)
class Recurrent:
    """A layer (RNN, GRU, LSTM of ONNX) with equal numbers of hidden units and inputs, for sequences
    of the given number of steps. Weights and biases are constant."""

    name: str
    op: str
    hidden: int
    batch: int
    steps: int
    directions: int = 1

    kind = "rnn"

    @property
    def x(self):
        return (self.steps, self.batch, self.hidden)

    @property
    def y(self):
        return (self.steps, self.directions, self.batch, self.hidden)

    @property
    def weights(self):
        """Weights of the inputs, and as many recurrent ones."""
        gates = {"RNN": 1, "GRU": 3, "LSTM": 4}[self.op]
        return (self.directions, gates * self.hidden, self.hidden)

    @property
    def flops(self):
        return 4.0 * self.steps * self.batch * math.prod(self.weights)

    @property
    def bytes(self):
        return 4.0 * (math.prod(self.x) + math.prod(self.y) + 2 * math.prod(self.weights))

    def describe(self):
        return "%s, %d hidden units, %d steps of %d sequences%s" % (
            self.op, self.hidden, self.steps, self.batch, ", two directions" * (self.directions - 1),
        )  # fmt: skip


def recurrent():
    sizes = [
        ("LSTM", 128, 1, 1), ("LSTM", 128, 1, 128), ("LSTM", 128, 8, 512), ("LSTM", 256, 1, 128),
        ("LSTM", 256, 8, 128), ("LSTM", 512, 1, 64), ("LSTM", 512, 8, 64), ("LSTM", 1024, 1, 1),
        ("LSTM", 1024, 1, 32), ("LSTM", 1024, 8, 32), ("LSTM", 256, 1, 128, 2), ("GRU", 256, 1, 128),
        ("GRU", 512, 8, 64), ("GRU", 1024, 1, 32), ("RNN", 256, 1, 512), ("RNN", 1024, 8, 32),
    ]  # fmt: skip
    name = lambda op, *n: op.lower() + " %d, %dx%d" % (n[0], n[1], n[2]) + ", both ways" * (n[3:] == (2,))
    return [Recurrent(name(*s), *s) for s in sizes]


# --- groups ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Goal:
    """Required speed-ups over the best peer: the geometric mean of a group, and the minimum of each
    row; and the fraction of the machine's limit that each row must reach."""

    mean: float
    least: float
    limit: float = 0.0


GOALS = {
    "squares": Goal(1.0, 1.0),
    "matmul": Goal(1.1, 0.97),
    "decode": Goal(1.0, 0.97, 0.9),
    "bits": Goal(1.1, 1.0, 0.9),
    "attention": Goal(1.3, 1.0),
    "conv": Goal(1.15, 0.95),
    "conv3d": Goal(1.5, 1.0),
    "nets": Goal(1.0, 1.0),
    "foreign": Goal(1.35, 0.97),
    "halves": Goal(1.0, 1.0),
    "int8": Goal(1.0, 1.0),
    "filter": Goal(10.0, 5.0, 0.8),
    "rnn": Goal(1.2, 1.0),
}
GROUPS = {
    "squares": squares, "matmul": matmul, "decode": decode, "bits": bits, "attention": attention.rows, "conv": conv, "conv3d": conv3d, "nets": nets,
    "foreign": foreign, "halves": halves, "int8": int8,
    "filter": filters, "rnn": recurrent,
}  # fmt: skip


def group(name):
    return GROUPS[name]()
