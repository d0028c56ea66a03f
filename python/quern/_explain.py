# SPDX-License-Identifier: Apache-2.0
"""quern.torch.explain: how torch.compile(model, backend="quern") divides a model."""
from __future__ import annotations

import collections
import operator
from typing import Any, Iterable, Mapping, Sequence

import torch

from ._compare import columns
from ._dynamo import backend, recording
from ._fx import SHARES, calls
from ._graph import Graph
from ._piece import Piece


class PieceReport:
    """A piece of a graph. nodes: number of operators; operators: {name: number}; seconds: (by the library, by PyTorch), None: not measured; reason: why it
    stays in PyTorch, None: the library runs it."""

    def __init__(self, graph: int, piece: Piece) -> None:
        self.graph, self.name, self.reason, self.seconds = graph, piece.name, piece.reason, piece.seconds
        self.nodes = len(piece.nodes)
        self.operators = dict(collections.Counter(str(n.target) for n in piece.nodes if n.target is not operator.getitem).most_common())


class Explanation:
    """kinds: of each graph, "inference", "forward" or "backward"; pieces: a PieceReport each; left: [(graph, operator, reason, number of nodes)], operators
    outside of pieces; whole: [(graph, reason)], graphs that stay in PyTorch; breaks: [(reason, number)], where PyTorch's compiler leaves the model and runs
    Python. str() is a table."""

    def __init__(self, graphs: Sequence[Any], breaks: Iterable[tuple[str, int]] = ()) -> None:
        self.graphs, self.breaks = len(graphs), list(breaks)
        self.kinds = [getattr(g, "kind", "inference") for g in graphs]
        self.pieces: list[PieceReport] = []
        self.left: list[tuple[int, str, str, int]] = []
        self.whole: list[tuple[int, str]] = []
        for k, g in enumerate(graphs):
            if not isinstance(g, Graph):
                self.whole.append((k, g))
                continue
            if g.reason:
                self.whole.append((k, g.reason))
            self.pieces += [PieceReport(k, p) for p in g.pieces]
            self.left += [(k, *what) for what in left_of(g)]

    def __str__(self) -> str:
        lines = [f"{self.graphs} graph{'s' * (self.graphs != 1)}, {len(self.pieces)} piece{'s' * (len(self.pieces) != 1)}"]
        if self.pieces:
            lines.append(f"{'graph':>5} {'piece':10} {'operators':>9} {'quern':>11} {'PyTorch':>11}  most of them")
        for p in self.pieces:
            ours, theirs = columns(p.seconds)
            most = ", ".join(f"{n} {op}" for op, n in list(p.operators.items())[:3])
            lines.append(f"{p.graph:5} {p.name:10} {p.nodes:9} {ours:>11} {theirs:>11}  {most}")
            if p.reason:
                lines.append(f"{'':17}stays in PyTorch: {p.reason}")
        lines += [f"{k:5} is a {kind} graph" for k, kind in enumerate(self.kinds) if kind != "inference"]
        for graph, op, reason, n in self.left:
            lines.append(f"{graph:5} {op}{f' ({n} times)' if n > 1 else ''} stays in PyTorch: {reason}")
        for graph, reason in self.whole:
            lines.append(f"{graph:5} stays in PyTorch: {reason}")
        lines += [f"no graph of PyTorch's compiler{f' ({n} times)' if n > 1 else ''}: {reason}" for reason, n in self.breaks]
        return "\n".join(lines)

    __repr__ = __str__


def left_of(g: Graph) -> list[tuple[str, str, int]]:
    """Operators outside of pieces with the reason and their number; sizes, elements of results and views of them are not listed, nor is anything of
    a graph from another process."""
    if g.is_restored:
        return []
    inside = {n.name for p in g.pieces for n in p.nodes}
    found: collections.Counter[tuple[str, str]] = collections.Counter()
    for n in calls(g.gm):
        if isinstance(n.target, torch._ops.OpOverload) and n.name not in inside and g.left.get(n.name) not in ("a size", SHARES):
            found[str(n.target), g.left.get(n.name, "too little, between operators that stay")] += 1
    return [(op, reason, n) for (op, reason), n in found.items()]


def breaks_so_far() -> collections.Counter[str]:
    """Of this process, why PyTorch's compiler left a function to Python: {text: number}."""
    from torch._dynamo.utils import counters
    return collections.Counter(counters["unimplemented"]) | collections.Counter(counters["graph_break"])


def in_short(text: str) -> str:
    """The first line of a reason, and its explanation."""
    lines = [line.strip() for line in text.splitlines()]
    more = [line.partition(": ")[2] for line in lines if line.startswith("Explanation: ")]
    return ": ".join(lines[:1] + more)


def results(y: Any) -> list[torch.Tensor]:
    """Tensors of a model's results that require gradients."""
    if isinstance(y, torch.Tensor):
        return [y] if y.requires_grad else []
    if isinstance(y, dict):
        y = y.values()
    return [t for v in y for t in results(v)] if isinstance(y, (tuple, list)) or hasattr(y, "__iter__") and not isinstance(y, str) else []


def explain(model: Any, *inputs: Any, mode: str | None = None, options: Mapping[str, Any] | None = None, dynamic: bool | None = None,
            training: bool = False, **named: Any) -> Explanation:
    """An Explanation, see quern.torch.explain."""
    def explained(gm: torch.fx.GraphModule, example_inputs: Sequence[Any]) -> Any:
        return backend(gm, example_inputs, mode=mode, options=options)

    before = breaks_so_far()
    with torch.set_grad_enabled(training), recording() as graphs:
        y = results(torch.compile(model, backend=explained, dynamic=dynamic)(*inputs, **named))
        if y:
            leaves = [p for p in [*getattr(model, "parameters", list)(), *inputs] if isinstance(p, torch.Tensor) and p.requires_grad and p.is_leaf]
            torch.autograd.grad(y, leaves, [torch.ones_like(t) for t in y], allow_unused=True)
    return Explanation(graphs, [(in_short(text), n) for text, n in (breaks_so_far() - before).items()])
