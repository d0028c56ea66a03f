# SPDX-License-Identifier: Apache-2.0
"""Symbolic sizes in FX graphs: computed from the graph's arguments, so that they do not come between operators, and so that the library knows them by name."""
from __future__ import annotations

import operator
from typing import Any, Iterable

import torch

from ._fx import calls, first_of, placeholders, replace_all, tensors_of

MAX_POWER = 8  # of a size, written as a product


class Unexpressed(Exception):
    """A size that no operators of a graph compute from others."""


def emit_size(graph: torch.fx.Graph, expr: Any, where: dict[Any, Any]) -> Any:
    """Nodes that compute a sympy expression of sizes. where: expression -> (placeholder, axis) of a tensor, or the placeholder of a size.
    Raises Unexpressed."""
    import sympy
    from torch.utils._sympy.functions import FloorDiv, Mod, PythonMod
    if expr.is_Integer:
        return int(expr)
    if expr in where:
        if isinstance(where[expr], torch.fx.Node):
            return where[expr]
        tensor, axis = where[expr]
        node = graph.call_function(torch.ops.aten.sym_size.int, (tensor, axis))
        node.meta["val"] = tensor.meta["val"].shape[axis]
        return node
    is_power = expr.is_Pow and expr.exp.is_Integer and 1 < expr.exp <= MAX_POWER
    factors = [expr.base] * int(expr.exp) if is_power else expr.args
    name = {sympy.Add: operator.add, sympy.Mul: operator.mul, sympy.Pow: operator.mul, FloorDiv: operator.floordiv, Mod: operator.mod,
            PythonMod: operator.mod}.get(expr.func)
    if name is None or expr.is_Pow and not is_power:
        raise Unexpressed
    result = None
    for a in factors:
        x = emit_size(graph, a, where)
        if result is None:
            result = x
            continue
        node = graph.call_function(name, (result, x))
        node.meta["val"] = name(*[v.meta["val"] if isinstance(v, torch.fx.Node) else v for v in (result, x)])
        result = node
    return result


def sizes_of(places: Iterable[torch.fx.Node]) -> dict[Any, Any]:
    """Of placeholders: expression -> (placeholder, axis) of a tensor."""
    where: dict[Any, Any] = {}
    for p in places:
        t = p.meta.get("val")
        for d, s in enumerate(t.shape if isinstance(t, torch.Tensor) else ()):
            if isinstance(s, torch.SymInt):
                where.setdefault(s.node.expr, (p, d))
    return where


def hoist_sizes(gm: torch.fx.GraphModule) -> None:
    """Computes sizes from the graph's arguments rather than from the shapes of results, so that they do not come between operators."""
    places = placeholders(gm)
    where = sizes_of(places)
    where.update((p.meta["val"].node.expr, p) for p in places if isinstance(p.meta.get("val"), torch.SymInt))
    after = first_of(gm)
    for n in [n for n in calls(gm) if isinstance(n.meta.get("val"), torch.SymInt)]:
        expr = n.meta["val"].node.expr
        try:
            with gm.graph.inserting_before(after):
                new = emit_size(gm.graph, expr, where)
        except Unexpressed:
            continue
        if isinstance(new, torch.fx.Node):
            where.setdefault(expr, new)
        replace_all(gm.graph, n, new)
    gm.graph.eliminate_dead_code()
    gm.recompile()


def is_never_negative(size: torch.SymInt) -> bool:
    return bool(size.node.shape_env.bound_sympy(size.node.expr).lower >= 0)


def give_axis(gm: torch.fx.GraphModule, place: torch.fx.Node, before: torch.fx.Node) -> torch.fx.Node:
    """Makes an argument that is a size an empty tensor with an axis of that size, which the compiler knows by name: as a value, it would be data that the host
    has to read before it knows what it decides. Returns a node with the size."""
    size, mode = place.meta["val"], next(t.fake_mode for n in gm.graph.nodes for t in tensors_of(n.meta.get("val")))
    with mode:
        place.meta["val"] = torch.empty((size, 0), dtype=torch.uint8, device="cpu")
    with gm.graph.inserting_before(before):
        node = gm.graph.call_function(torch.ops.aten.sym_size.int, (place, 0))
    node.meta["val"] = size
    place.replace_all_uses_with(node, delete_user_cb=lambda user: user is not node)
    return node


def bind_sizes(gm: torch.fx.GraphModule) -> list[int]:
    """Computes sizes that a graph gets as arguments from its tensors' shapes, which the compiler knows by name, and removes these arguments where that is
    possible; others become tensors (give_axis). Returns the positions of the arguments that are left."""
    places = placeholders(gm)
    where, left = sizes_of(places), []
    after = first_of(gm)
    for k, p in enumerate(places):
        v = p.meta.get("val")
        if isinstance(v, torch.SymInt) or isinstance(v, int) and not isinstance(v, bool):
            try:
                with gm.graph.inserting_before(after):
                    new = emit_size(gm.graph, v.node.expr, where) if isinstance(v, torch.SymInt) else v
            except Unexpressed:
                left.append(k)
                if isinstance(v, torch.SymInt) and is_never_negative(v):
                    where[v.node.expr] = give_axis(gm, p, after)
                continue
            replace_all(gm.graph, p, new)
            gm.graph.erase_node(p)
        else:
            left.append(k)
    gm.graph.eliminate_dead_code()
    gm.recompile()
    return left


def settle_sizes(gm: torch.fx.GraphModule) -> None:
    """Where an operator is given sizes of its result (view, expand), replaces those that PyTorch knows as numbers: -1, and expressions that its guards make
    constant, which nothing in the piece need say."""
    for n in calls(gm):
        if not isinstance(n.target, torch._ops.OpOverload) or not isinstance(n.meta.get("val"), torch.Tensor):
            continue
        names = [a.name for a in n.target._schema.arguments]
        shape = n.meta["val"].shape
        for k, given in enumerate(n.args):
            if names[k] in ("size", "shape") and isinstance(given, (tuple, list)) and len(given) == len(shape):
                known = [s if isinstance(s, int) and not (isinstance(g, int) and g >= 0) else g for g, s in zip(given, shape)]
                n.update_arg(k, known)
    gm.graph.eliminate_dead_code()
    gm.recompile()
