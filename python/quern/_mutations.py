# SPDX-License-Identifier: Apache-2.0
"""Writes to a graph's arguments (buffers, caches of keys and values). AOTAutograd puts them behind all operators, each as a copy of the argument's new
contents.

They are taken out, so the graph that is divided and measured has no side effects; what they need becomes further results. Where the new contents are the old
ones except for some rows (index_copy, index_put, scatter), only these rows are results and are written, not the whole argument: a cache of keys and values
changes by one row in each call.
"""
from __future__ import annotations

from typing import Any, NamedTuple, Sequence

import torch

from . import _fx

aten = torch.ops.aten

# operators that give their first argument with other elements in some places -> those that write these elements in place
PLACED = {aten.index_copy.default: aten.index_copy_.default, aten.index_put.default: aten.index_put_.default,
          aten.index_fill.int_Scalar: aten.index_fill_.int_Scalar, aten.scatter.src: aten.scatter_.src, aten.scatter.value: aten.scatter_.value}


class Slot(NamedTuple):
    """A result of the graph, as an operand."""
    at: int


class Write(NamedTuple):
    operator: Any       # its first operand is what it writes to
    at: int             # position of that among the graph's arguments
    operands: Any       # the others: numbers, Slot, sequences of these


def take(gm: torch.fx.GraphModule) -> tuple[list[Write], int]:
    """Takes the writes out of a graph. Returns them, in their order, and the number of the graph's own results, behind which it returns what they need."""
    places = {n: k for k, n in enumerate(_fx.placeholders(gm))}
    copies = [n for n in _fx.calls(gm) if n.target is aten.copy_.default and n.args[0] in places]
    out = _fx.output_of(gm)
    results = list(out.args[0])
    n_own, written = len(results), {n.args[0] for n in copies}

    def slot(node: torch.fx.Node) -> Slot:
        results.append(node)
        return Slot(len(results) - 1)

    writes = []
    for n in copies:
        place, new = n.args[:2]
        if is_placed(new, place, written):
            writes.append(Write(PLACED[new.target], places[place], torch.fx.node.map_arg(new.args[1:], slot)))
        else:
            writes.append(Write(aten.copy_.default, places[place], torch.fx.node.map_arg((new,), slot)))
    out.args = (tuple(results),)
    for n in copies:
        n.replace_all_uses_with(n.args[1])
        gm.graph.erase_node(n)
    gm.recompile()
    return writes, n_own


def is_placed(new: Any, place: torch.fx.Node, written: set[torch.fx.Node]) -> bool:
    """Whether a tensor is an argument (place) with other elements in some places, which do not come from memory that is written to."""
    if not isinstance(new, torch.fx.Node) or new.target not in PLACED or new.args[0] is not place or new.kwargs:
        return False
    if any(a is True for a in new.args):  # accumulate
        return False
    return not any(_fx.views_of(n)[0] in written for n in new.all_input_nodes if n is not place) and new.args.count(place) == 1


def perform(writes: Sequence[Write], args: Sequence[Any], results: Sequence[Any]) -> None:
    """Writes to a graph's arguments what its results, with those behind its own, say."""
    for w in writes:
        w.operator(args[w.at], *filled(w.operands, results))


def filled(operands: Any, results: Sequence[Any]) -> Any:
    """Operands with results in the place of slots."""
    if isinstance(operands, Slot):
        return results[operands.at]
    return [filled(o, results) for o in operands] if isinstance(operands, (list, tuple)) else operands
