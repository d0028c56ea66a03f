# SPDX-License-Identifier: Apache-2.0
#
# Per-pixel filters on a GPU, alone and as PyTorch's layer, beside its unfold, for tool/device-check
# filter: rows as graphs for quern, and the table. Nothing here runs anything.
import dataclasses
import math
import os

import rows

KINDS = {"f32": 4, "f16": 2}  # bytes of an element
GOAL = 0.8  # of the copy bandwidth

# One row by PyTorch on its device: operator, channels, height, width, kernel, type, how (unfold; layer: quern.torch, first compared
# with unfold), device; median milliseconds, including waits of PyTorch's stream.
TORCH = r"""
import statistics, sys, time, torch
import torch.nn.functional as F
op, kind, how, device = sys.argv[1], *sys.argv[6:9]
c, h, w, k = (int(x) for x in sys.argv[2:6])
is_cuda = device == "cuda"
if is_cuda and not torch.cuda.is_available(): sys.exit(3)
make = lambda n: torch.rand(1, n, h, w, device=device, dtype=torch.half if kind == "f16" else torch.float)
a, b = make(c), make(c if op == "WeightedFilterGradWeights" else k * k)
shifted, whole = (1, c, k * k, h, w), (1, c * k * k, h * w)
run = unfold = {
    "WeightedFilter": lambda: (F.unfold(a, k, padding=k // 2).view(shifted) * b[:, None]).sum(2),
    "WeightedFilterGradInput": lambda: F.fold((a[:, :, None] * b[:, None]).view(whole), (h, w), k, padding=k // 2),
    "WeightedFilterGradWeights": lambda: (a[:, :, None] * F.unfold(b, k, padding=k // 2).view(shifted)).sum(1),
}[op]
if how == "layer":
    from quern import _weighted_filter as weighted
    spec, like = weighted.Spec(k, False, 1, "zero", "none", "none", 0.0), make(k * k)
    run = {
        "WeightedFilter": lambda: weighted.Filter.apply(a, b, spec),
        "WeightedFilterGradInput": lambda: weighted.GradInput.apply(a, b, spec, tuple(a.shape)),
        "WeightedFilterGradWeights": lambda: weighted.GradWeights.apply(a, b, like, spec),
    }[op]
    rtol = 2e-2 if kind == "f16" else 1e-4
    torch.testing.assert_close(run(), unfold(), rtol=rtol, atol=rtol)
def host():
    start = time.perf_counter(); run()
    return 1e3 * (time.perf_counter() - start)
def events():
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record(); run(); end.record(); torch.cuda.synchronize()
    return start.elapsed_time(end)
with torch.no_grad(): ms = [events() if is_cuda else host() for i in range(20)]
print(f"{statistics.median(ms[5:]):.4f}")
"""


@dataclasses.dataclass
class Measured:
    row: rows.Filter
    kind: str
    ms: float = None
    peer: float = None
    layer: float = None  # by quern.torch, on PyTorch's tensors
    text: str = ""  # candidate, or why there is no time

    @property
    def name(self):
        return f"{self.row.name}, {self.kind}"


def torch_command(python, root, build, row, kind, how, device, database):
    """Arguments and environment of TORCH."""
    args = [python, "-c", TORCH, row.op, *map(str, (row.c, row.h, row.w, row.k)), kind, how, device]
    here = dict(PYTHONPATH=os.path.join(root, "python"), QUERN_LIBRARY=os.path.join(build, "libquern.so"), QUERN_DATABASE=database)
    return args, {**os.environ, **here}


def graph(row, kind):
    """The text of the row's graph (doc/graph-ir.md)."""
    names = ("dy", "x") if row.op == "WeightedFilterGradWeights" else ("x", "w")
    second = row.x if row.y == row.weights else row.weights
    value = lambda name, shape: f"  input %{name}: {kind}[{','.join(map(str, shape))}]"
    return "\n".join([
        "graph {", value(names[0], row.x), value(names[1], second),
        f"  %y: none[?] = quern::{row.op}(%{names[0]}, %{names[1]}) {{kernel_shape=[{row.k},{row.k}]}}",
        "  output %y", "}", "",
    ])  # fmt: skip


def gbps(x):
    """Operands are read once, the result is written once."""
    return row_bytes(x) / x.ms * 1e-6


def row_bytes(x):
    return KINDS[x.kind] * (math.prod(x.row.weights) + 2 * math.prod(x.row.x))


def line(x, limit):
    """limit: output of bench/device; "gbps" of copying."""
    if x.ms is None:
        return "%-28s %s" % (x.name, x.text)
    share = "%5.1f" % (100 * gbps(x) / limit["gbps"]) if limit.get("gbps") else "%5s" % "-"
    peer = "%10.4f %8.2f" % (x.peer, x.peer / x.ms) if x.peer else "%10s %8s" % ("-", "-")
    layer = "%10.4f" % x.layer if x.layer else "%10s" % "-"
    return "%-28s %10.4f %8.1f %s %s %s %s" % (x.name, x.ms, gbps(x), share, layer, peer, x.text)


def table(measured, limit):
    head = ("row", "ms", "GB/s", "%", "layer ms", "PyTorch ms", "times", "candidate")
    out = ["%-28s %10s %8s %5s %10s %10s %8s %s" % head]
    out += [line(x, limit) for x in measured]
    done = [x for x in measured if x.ms]
    if done and limit.get("gbps"):
        n = sum(gbps(x) >= GOAL * limit["gbps"] for x in done)
        out.append(f"{n} of {len(done)} at {100 * GOAL:.0f} % of the rate of copying, {limit['gbps']:.1f} GB/s, or more")
    return out
