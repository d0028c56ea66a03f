#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
#
# graphs.py [BUILD] > bench/graphs.txt
#
# The f32 rows that are single layers (bench/rows.py) as networks in text form (doc/graph-ir.md),
# each after a line "# GROUP: NAME". Constants have no content, on which kernels do not depend.
# Pictures of convolutions have channels last, as between the layers of a network.
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
sys.dont_write_bytecode = True
import rows  # noqa: E402

GROUPS = ("squares", "matmul", "decode", "conv", "conv3d", "filter")


def numbers(v):
    return "[" + ",".join(map(str, v)) + "]"


def value(name, shape, layout=""):
    return "%%%s: f32%s%s" % (name, numbers(shape), layout)


def gemm(row):
    lead = (row.batch,) if row.batch > 1 else ()
    right = lead + ((row.n, row.k) if row.transposed else (row.k, row.n))
    yield "input " + value("x", lead + (row.m, row.k))
    yield ("const " if row.constant else "input ") + value("w", right)
    if row.transposed:
        perm = (0, 2, 1) if row.batch > 1 else (1, 0)
        yield "%%t: none[?] = Transpose(%%w) {perm=%s}" % numbers(perm)
    yield "%%y: none[?] = MatMul(%%x, %%%s)" % ("t" if row.transposed else "w")


def conv(row):
    last = " @clast"
    yield "input " + value("x", row.x, last)
    yield "const " + value("w", row.weights)
    yield "const " + value("b", (row.oc,))
    a = {"dilations": row.dilations, "kernel_shape": row.kernel, "pads": row.pads, "strides": row.strides}
    text = ", ".join("%s=%s" % (k, numbers(v)) for k, v in a.items())
    to = "c: none[?]" if row.activation else "y: none[?]" + last
    yield "%%%s = Conv(%%x, %%w, %%b) {%s, group=%d}" % (to, text, row.group)
    if row.activation == "Relu":
        yield "%y: none[?]" + last + " = Relu(%c)"
    if row.activation == "Relu6":
        yield "const %low: f32[] = [0.0]"
        yield "const %high: f32[] = [6.0]"
        yield "%y: none[?]" + last + " = Clip(%c, %low, %high)"


def filters(row):
    second = row.x if row.op == "WeightedFilterGradWeights" else row.weights
    yield "input " + value("x", row.x)
    yield "input " + value("w", second)
    yield "%%y: none[?] = quern::%s(%%x, %%w) {kernel_shape=[%d,%d]}" % (row.op, row.k, row.k)


def network(group, row):
    lines = {"gemm": gemm, "conv": conv, "filter": filters}[row.kind](row)
    return "\n".join(["# %s: %s" % (group, row.name), "graph {", *("  " + x for x in lines), "  output %y", "}", ""])


def text():
    return "".join(network(group, row) for group in GROUPS for row in rows.group(group))


if __name__ == "__main__":
    if len(sys.argv) > 1:
        rows.QUERN = os.path.join(sys.argv[1], "quern")
    print(text(), end="")
