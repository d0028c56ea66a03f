# SPDX-License-Identifier: Apache-2.0
"""FX graphs of ATen operators (gm, a torch.fx.GraphModule, whose nodes have traced tensors or sizes in meta["val"]): nodes and graphs, results that share
memory, the order of axes in memory, and the graph as text. Symbolic sizes are in _fx_sizes.py, the translation to ONNX is in _onnx.py."""
from __future__ import annotations

import hashlib
import operator
from typing import Any, Sequence

import torch

# --- nodes ---


def placeholders(gm: torch.fx.GraphModule) -> list[torch.fx.Node]:
    """The graph's arguments."""
    return [n for n in gm.graph.nodes if n.op == "placeholder"]


def calls(gm: torch.fx.GraphModule) -> list[torch.fx.Node]:
    """The graph's operators, and elements of their results."""
    return [n for n in gm.graph.nodes if n.op == "call_function"]


def first_of(gm: torch.fx.GraphModule) -> torch.fx.Node:
    """The first node behind the arguments, before which new ones are inserted."""
    node: torch.fx.Node = next(n for n in gm.graph.nodes if n.op != "placeholder")
    return node


def output_of(gm: torch.fx.GraphModule) -> torch.fx.Node:
    """The node whose args[0] are the graph's results."""
    node: torch.fx.Node = next(n for n in gm.graph.nodes if n.op == "output")
    return node


def tensors_of(value: Any) -> list[torch.Tensor]:
    """Those of a node's value: a tensor, a sequence of results, or neither."""
    return [t for t in (value if isinstance(value, (tuple, list)) else [value]) if isinstance(t, torch.Tensor)]


def is_size(node: Any) -> bool:
    """A node whose value is an integer of the host: sizes and their arithmetic, which cost nothing."""
    return isinstance(node, torch.fx.Node) and isinstance(node.meta.get("val"), (int, float, bool, torch.SymInt, torch.SymFloat, torch.SymBool))


def device_of(node: torch.fx.Node) -> torch.device | None:
    """The device that the results of an operator are on; None: it has no tensor as a result."""
    return next((t.device for t in tensors_of(node.meta.get("val"))), None)


def replace_all(graph: torch.fx.Graph, node: torch.fx.Node, new: Any) -> None:
    """Lets all users of a node take another one, or a number, instead."""
    if isinstance(new, torch.fx.Node):
        node.replace_all_uses_with(new)
        return
    for user in list(node.users):
        user.args = torch.fx.node.map_arg(user.args, lambda n: new if n is node else n)
        user.kwargs = torch.fx.node.map_arg(user.kwargs, lambda n: new if n is node else n)


# --- graphs ---


def copy_of(gm: torch.fx.GraphModule) -> torch.fx.GraphModule:
    """A graph with nodes of its own, of the same names, and the same attributes."""
    graph = torch.fx.Graph()
    copied: dict[torch.fx.Node, torch.fx.Node] = {}
    graph.output(graph.graph_copy(gm.graph, copied))
    for old, new in copied.items():
        new.name, new.meta = old.name, dict(old.meta)
    return torch.fx.GraphModule(gm, graph)


def with_all_results(gm: torch.fx.GraphModule) -> tuple[torch.fx.GraphModule, list[torch.fx.Node]]:
    """The graph that returns every tensor that one of its operators computes, and the FX nodes of these."""
    probe = copy_of(gm)
    nodes = [n for n in calls(probe) if isinstance(n.meta.get("val"), torch.Tensor)]
    output_of(probe).args = (tuple(nodes),)
    probe.recompile()
    return probe, nodes


# --- results that share memory ---


SHARES = "a view of another result's memory"


def viewed(node: torch.fx.Node) -> torch.fx.Node | None:
    """The node whose memory an operator's result is in; None: the result is not a view, as far as the operator says."""
    if node.op != "call_function" or not node.args or not isinstance(node.args[0], torch.fx.Node):
        return None
    if node.target is operator.getitem:
        return node.args[0] if viewed(node.args[0]) else None
    if not isinstance(node.target, torch._ops.OpOverload):
        return None
    schema = node.target._schema
    return node.args[0] if not schema.is_mutable and any(r.alias_info for r in schema.returns) and schema.arguments[0].alias_info else None


def views_of(node: torch.fx.Node) -> tuple[torch.fx.Node, list[torch.fx.Node]]:
    """(the node whose memory it is in, views that lead from that to it)."""
    chain: list[torch.fx.Node] = []
    while viewed(node):
        chain.insert(0, node)
        node = node.args[0]
    return node, chain


def share_results(gm: torch.fx.GraphModule, n_results: int) -> list[str]:
    """Computes results, of the first n_results, that are in the same memory by views of their own, of that memory. Returns the names of these views, which are
    to stay in PyTorch; those of arguments are made outside of the graph."""
    out = output_of(gm)
    results = {n: views_of(n) for n in out.args[0][:n_results] if isinstance(n, torch.fx.Node)}
    bases = [base for base, _ in results.values()]
    names: list[str] = []
    copied: dict[torch.fx.Node, torch.fx.Node] = {}
    for n, (base, chain) in results.items():
        if chain and bases.count(base) > 1 and base.op == "call_function":
            with gm.graph.inserting_before(out):
                for v in chain:
                    if v not in copied:
                        copied[v] = gm.graph.node_copy(v, lambda a: copied.get(a, a))
                        names.append(copied[v].name)
    out.args = (torch.fx.node.map_arg(out.args[0], lambda n: copied.get(n, n)),)
    gm.graph.eliminate_dead_code()
    gm.recompile()
    return names


# --- strides ---


def known_size(v: Any) -> Any:
    """A size, or that of the call that is traced; None: data decide it."""
    if not isinstance(v, torch.SymInt):
        return v
    return v.node.hint if v.node.has_hint() else None


def memory_order(tensor: torch.Tensor) -> list[int] | None:
    """The axes of a traced tensor as its memory has them, outermost first; None: row-major, or an element stands for several."""
    shape, stride = ([known_size(v) for v in part] for part in (tensor.shape, tensor.stride()))
    if None in shape or None in stride:
        return None
    long = [d for d, n in enumerate(shape) if n != 1]
    order = sorted(long, key=lambda d: -int(stride[d]))
    if order == long or any(stride[d] == 0 for d in long):
        return None
    return [d for d in range(len(shape)) if d not in long] + order


def inverse(order: Sequence[int]) -> list[int]:
    return sorted(range(len(order)), key=order.__getitem__)


def permuted(graph: torch.fx.Graph, node: torch.fx.Node, order: Sequence[int]) -> torch.fx.Node:
    """A node that gives a tensor of node.meta["val"] with its axes in this order."""
    new = graph.call_function(torch.ops.aten.permute.default, (node, order))
    new.meta["val"] = node.meta["val"].permute(order)
    return new


def order_of(node: Any) -> list[int] | None:
    """memory_order() of a node's tensor; None: it has none."""
    return memory_order(node.meta["val"]) if isinstance(node, torch.fx.Node) and isinstance(node.meta.get("val"), torch.Tensor) else None


def take_strides(gm: torch.fx.GraphModule, which: Sequence[bool]) -> list[list[int] | None]:
    """Lets a graph take arguments (which: of each, whether) in the order in which PyTorch has them in memory. Returns, per argument, the axes to permute it by
    before; None: as it is."""
    places = placeholders(gm)
    orders = [order_of(n) if is_one else None for n, is_one in zip(places, which)]
    with gm.graph.inserting_before(first_of(gm)):
        for n, order in zip(places, orders):
            if order:
                n.meta["val"] = n.meta["val"].permute(order)
                back = permuted(gm.graph, n, inverse(order))
                n.replace_all_uses_with(back, delete_user_cb=lambda user, back=back: user is not back)
    gm.recompile()
    return orders


def keep_strides(gm: torch.fx.GraphModule) -> list[list[int] | None]:
    """Lets a graph return results in the order in which PyTorch has them in memory: operators that were traced behind it may depend on that (view), and so may
    callers. Returns, per result, the axes to permute it by then; None: as it is."""
    out = output_of(gm)
    orders = [order_of(r) for r in out.args[0]]
    with gm.graph.inserting_before(out):
        out.args = (tuple(permuted(gm.graph, r, order) if order else r for r, order in zip(out.args[0], orders)),)
    gm.recompile()
    return [order and inverse(order) for order in orders]


# --- identity ---


def describe(value: Any) -> str:
    """Type and sizes of a node's value, as a part of content()."""
    if isinstance(value, torch.Tensor):
        return f"{value.dtype}{tuple(map(str, value.shape))}"
    if isinstance(value, (tuple, list)):
        return "(" + ",".join(describe(v) for v in value) + ")"
    return str(value)


def content(gm: torch.fx.GraphModule) -> str:
    """The graph as text, without names: equal texts, equal networks but for the values of the arguments."""
    number, lines = {}, []
    for k, n in enumerate(gm.graph.nodes):
        number[n] = k
        args, kwargs = torch.fx.node.map_arg((n.args, n.kwargs), lambda a: f"%{number[a]}")
        target = "" if n.op in ("placeholder", "output") else str(n.target)
        lines.append(f"{n.op} {target} {args} {kwargs} {describe(n.meta.get('val')) if n.op != 'output' else ''}")
        if n.op == "get_attr":
            lines.append(digest(getattr(gm, n.target)))
    return "\n".join(lines)


def digest(tensor: Any) -> str:
    """Of a small constant's content."""
    if not isinstance(tensor, torch.Tensor):
        return str(tensor)
    return hashlib.sha256(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()).hexdigest()
