# SPDX-License-Identifier: Apache-2.0
"""A graph of PyTorch evaluated in f64, as the yardstick for graphs that compute in fewer bits: there two right results may differ by more than a fixed
tolerance allows, above all if one of them keeps more bits between operators. A result is as good as PyTorch's if it is no further from that in f64.
"""
from __future__ import annotations

from typing import Any, Iterable, Sequence

import torch

from ._compare import TOLERANCE
from ._fx import tensors_of

WORSE = 2.0  # times PyTorch's error, at most: both are the greatest of many
ULPS = 2.0   # rounding of the result itself, at least
NOISE = 1e-3


def widened(value: Any) -> Any:
    """Floating-point tensors and types as f64, in nested arguments, too."""
    if isinstance(value, torch.Tensor):
        return value.double() if value.is_floating_point() else value
    if isinstance(value, torch.dtype):
        return torch.float64 if value.is_floating_point else value
    if isinstance(value, (tuple, list)):
        return type(value)(map(widened, value))
    return value


class Float64(torch.fx.Interpreter):
    """Runs a graph with f64 for every other floating-point type: arguments, results of operators, and types that operators are given."""

    def run_node(self, n: torch.fx.Node) -> Any:
        return widened(super().run_node(n))

    def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
        return super().call_function(target, widened(args), {name: widened(x) for name, x in kwargs.items()})


def coarsest(gm: torch.fx.GraphModule, args: Iterable[Any]) -> torch.dtype:
    """The type of the fewest bits in which the graph computes."""
    values = [*args, *(n.meta.get("val") for n in gm.graph.nodes)]
    types = {t.dtype for v in values for t in tensors_of(v) if t.dtype in TOLERANCE}
    return max(types, key=lambda t: float(torch.finfo(t).eps), default=torch.float64)


class Reference:
    """The results of a graph in f64 for some arguments; evaluated when they are first needed. gm: with anything but a graph there are none."""

    def __init__(self, gm: Any, args: Sequence[Any]) -> None:
        self.gm, self.args = gm, args
        self.known: tuple[Any, ...] | None = None if isinstance(gm, torch.fx.GraphModule) else ()

    def results(self) -> tuple[Any, ...]:
        if self.known is None:
            try:
                with torch.no_grad():
                    self.known = tuple(Float64(self.gm).run(*self.args))
            except (RuntimeError, NotImplementedError, TypeError):  # an operator without f64
                self.known = ()
        return self.known

    def approves(self, got: Sequence[torch.Tensor], want: Sequence[torch.Tensor], first: int = 0) -> bool:
        """Whether results are as good as PyTorch's, which are those from the first one on."""
        exact = self.results()[first:first + len(got)]
        if not len(exact) == len(got) == len(want):
            return False
        most = TOLERANCE[coarsest(self.gm, self.args)]
        return all(is_as_good(a, b, c, most) for a, b, c in zip(got, want, exact))


def is_as_good(got: torch.Tensor, want: torch.Tensor, exact: Any, most: float) -> bool:
    """Whether a result is as close to the exact one as PyTorch's. most: PyTorch's error that can be rounding, of the greatest value."""
    if got.shape != want.shape or got.dtype != want.dtype:
        return False
    if got.dtype not in TOLERANCE or not isinstance(exact, torch.Tensor) or exact.shape != want.shape:
        return bool(torch.equal(got, want))
    if not want.numel():
        return True
    if not all(bool(t.isfinite().all()) for t in (got, want, exact)):
        return False
    scale, size = (t.double().abs().max().item() for t in (exact, want))
    ours, theirs = ((t.double() - exact).abs().max().item() for t in (got, want))
    if scale < NOISE * size:  # rounding alone: all terms cancel, as in the gradient of a bias without influence (of keys)
        return bool(ours <= 2 * WORSE * theirs)
    return bool(theirs <= most * scale and ours <= max(WORSE * theirs, ULPS * torch.finfo(got.dtype).eps * scale))
