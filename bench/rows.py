# SPDX-License-Identifier: Apache-2.0
#
# What bench/compare measures, row by row: matrix products, convolutions, networks. A row says
# what is computed, never how. Pure functions of the standard library, so that others can draw
# rows, too:
#
#   import rows; rows.group("matmul")
#
# m, n, k: rows, columns and terms of a matrix product, (m, k) x (k, n). c, h, w: channels,
# height, width.
import math
import os
import re
import subprocess
from dataclasses import dataclass

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
QUERN = os.path.join(ROOT, "build/quern")
FAR = 128 << 20  # bytes of weights that no last-level cache keeps (of the machines at hand)


@dataclass(frozen=True)
class Gemm:
    """batch products of (m, k) by (k, n), or by (n, k) transposed; the right operand is a
    constant or a second input. copies: so many right operands one after the other, as layers of
    a network, for one left operand."""

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
        """Each operand read and each result written once."""
        right = self.k * self.n * self.copies
        return 4.0 * self.batch * (self.m * self.k + right + self.m * self.n * self.copies)

    def describe(self):
        text = "%dx" % self.batch if self.batch > 1 else ""
        text += "(%d,%d)x(%d,%d)%s" % (self.m, self.k, self.k, self.n, "^T" * self.transposed)
        text += ", weights constant" if self.constant else ", two inputs"
        return text + (", %d of them" % self.copies if self.copies > 1 else "")


@dataclass(frozen=True)
class Conv:
    """(1, c, h, w) to (1, oc, oh, ow) with bias, and Relu if so. pads: top, left, bottom,
    right. part: of the rows that the network has, 1 in so many was kept."""

    name: str
    c: int
    h: int
    w: int
    oc: int
    kernel: tuple
    strides: tuple
    pads: tuple
    group: int = 1
    dilations: tuple = (1, 1)
    relu: bool = True
    part: int = 1

    kind = "conv"

    @property
    def out(self):
        pads = (self.pads[0] + self.pads[2], self.pads[1] + self.pads[3])
        size = zip((self.h, self.w), self.kernel, self.strides, self.dilations, pads)
        return tuple((x + p - d * (k - 1) - 1) // s + 1 for x, k, s, d, p in size)

    @property
    def weights(self):
        return (self.oc, self.c // self.group, *self.kernel)

    @property
    def flops(self):
        return 2.0 * math.prod(self.weights) * math.prod(self.out)

    @property
    def bytes(self):
        moved = self.c * self.h * self.w + self.oc * math.prod(self.out) + math.prod(self.weights)
        return 4.0 * moved

    def describe(self):
        text = "%dx%dx%d to %d, %dx%d" % (self.c, self.h, self.w, self.oc, *self.kernel)
        text += " stride %d" % self.strides[0] if self.strides != (1, 1) else ""
        text += " of %d groups" % self.group if self.group > 1 else ""
        text += " dilated" if self.dilations != (1, 1) else ""
        text += ", bias" + " and Relu" * self.relu
        return text + (", 1/%d of the rows" % self.part if self.part > 1 else "")


# --- matrix products ------------------------------------------------------------------------------


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
    """One, four and sixteen tokens through the layers with weights, of which there are as many
    as no cache keeps."""
    return [
        Gemm("%s %s, %d" % (net, name, m), m, n, k, constant=True, copies=-(-FAR // (4 * n * k)))
        for m in (1, 4, 16)
        for net, _, _, _, layers in TRANSFORMERS
        for name, n, k in layers
    ]


@dataclass(frozen=True)
class Goal:
    """How many times as fast as the best peer: the geometric mean of a group, and each row at
    least."""

    mean: float
    least: float


GOALS = {"squares": Goal(1.0, 1.0), "matmul": Goal(1.1, 0.97), "decode": Goal(1.1, 0.97)}
GROUPS = {"squares": squares, "matmul": matmul, "decode": decode}


def group(name):
    return GROUPS[name]()
