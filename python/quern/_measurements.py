# SPDX-License-Identifier: Apache-2.0
"""The results of Program.bench(), profile() and verify()."""
from __future__ import annotations

import html
import math
import statistics
from dataclasses import dataclass, field
from typing import Any, Iterable, Sequence


def number(x: float) -> str:
    return "" if math.isnan(x) else f"{x:.4g}"


def duration(seconds: float) -> str:
    """"1.23 ms"."""
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if seconds >= scale:
            return f"{seconds / scale:.3g} {unit}"
    return f"{seconds * 1e9:.3g} ns"


def memory(size: int) -> str:
    """"1.5 MB"."""
    for unit, scale in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if size >= scale:
            return f"{size / scale:.3g} {unit}"
    return f"{size} bytes"


def table(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """HTML for notebooks."""
    def line(tag: str, cells: Iterable[Any]) -> str:
        return "<tr>" + "".join(f"<{tag}>{html.escape(number(c) if isinstance(c, float) else str(c))}</{tag}>" for c in cells) + "</tr>"
    return "<table><thead>" + line("th", columns) + "</thead><tbody>" + "".join(line("td", r) for r in rows) + "</tbody></table>"


@dataclass(frozen=True)
class Timing:
    """Times of runs in seconds.

    Attributes
    ----------
    samples : list of float
        The time of each run, in order.
    """

    samples: list[float] = field(repr=False)

    @property
    def median(self) -> float:
        """Half of the runs took longer."""
        return statistics.median(self.samples)

    @property
    def min(self) -> float:
        """The fastest run."""
        return min(self.samples)

    @property
    def max(self) -> float:
        """The slowest run."""
        return max(self.samples)

    @property
    def mean(self) -> float:
        """The arithmetic mean."""
        return statistics.fmean(self.samples)

    @property
    def std(self) -> float:
        """The standard deviation of the sample; 0 for one run."""
        return statistics.stdev(self.samples) if len(self.samples) > 1 else 0.0

    def __repr__(self) -> str:
        return f"<quern.Timing: {duration(self.median)}, the median of {len(self.samples)} runs from {duration(self.min)} to {duration(self.max)}>"


class Profile(list[dict[str, Any]]):
    """The kernels of a program in the order of execution, as dictionaries: pandas.DataFrame(profile) is a table of them.

    Notes
    -----
    The keys: `layer`, the nodes with most of the operations; `nodes`, all nodes that the kernel computes; `operators`, their operators, or
    "layout" for a copy; `ms`, the time of a run; `percent`, its part of all kernels' time; `gflops` and `gbps`, operations and bytes of memory
    in billions per second; `flops` and `bytes` of a run; `kernel` and `task`, names in the database.
    """

    columns = ("layer", "operators", "ms", "percent", "gflops", "gbps", "kernel")

    @property
    def seconds(self) -> float:
        """The time of all kernels in a run."""
        return sum(float(row["ms"]) for row in self) / 1e3

    def __repr__(self) -> str:
        rows = [[f"{r['ms']:.4f}", f"{r['percent']:.1f} %", r["operators"], r["layer"]] for r in self]
        widths = [max([len(r[k]) for r in rows], default=0) for k in range(3)]
        lines = [f"{r[0]:>{widths[0]}} ms  {r[1]:>{widths[1]}}  {r[2]:<{widths[2]}}  {r[3]}".rstrip() for r in rows]
        return "\n".join([*lines, f"{duration(self.seconds)} in {len(self)} kernels"])

    def _repr_html_(self) -> str:
        return table(self.columns, [[r[c] for c in self.columns] for r in self])


@dataclass(frozen=True)
class Check:
    """An output compared with the reference evaluation in 64 bits.

    Attributes
    ----------
    output : str
        Its name.
    n_bad, count : int
        Elements outside the tolerance, of all.
    max_abs, max_rel : float
        The greatest absolute and relative difference.
    ulp, bound : float
        The greatest difference and its bound, in units in the last place of the output's largest value.
    """

    output: str
    n_bad: int
    count: int
    max_abs: float
    max_rel: float
    ulp: float
    bound: float


class Verification(list[Check]):
    """One `Check` for each output. It is true if all are within the tolerance: `assert net.verify()`."""

    @property
    def ok(self) -> bool:
        """Whether no element of any output is outside the tolerance."""
        return all(c.n_bad == 0 for c in self)

    def __bool__(self) -> bool:
        return self.ok

    def __repr__(self) -> str:
        def line(c: Check) -> str:
            verdict = "right" if c.n_bad == 0 else f"WRONG in {c.n_bad} of {c.count} elements"
            return f"'{c.output}' is {verdict}: off by {c.max_abs:.3g} at most, {c.ulp:.2f} units in the last place (bound {c.bound:.1f})"
        return "\n".join(map(line, self))

    def _repr_html_(self) -> str:
        columns = ("output", "n_bad", "count", "max_abs", "max_rel", "ulp", "bound")
        return table(columns, [[getattr(c, n) for n in columns] for c in self])
