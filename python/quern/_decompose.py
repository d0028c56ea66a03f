# SPDX-License-Identifier: Apache-2.0
"""Operators in the parts that PyTorch itself decomposes them into, in copies of graphs that are exported: what stays in PyTorch remains whole.

Nodes keep the name of the one that they come from in meta["origin"].
"""
from __future__ import annotations

import contextlib
from typing import Any, Callable, Iterable

import torch

from . import _fx, _onnx


def retraced(gm: torch.fx.GraphModule, table: Any, run: Callable[..., Any] | None = None) -> torch.fx.GraphModule:
    """The graph as it is traced once more. table: decompositions; run(node, operate, interpreter): runs a node instead of operate()."""
    from torch._guards import detect_fake_mode
    from torch.fx.experimental.proxy_tensor import get_proxy_mode, make_fx
    given = [n.meta["val"] for n in _fx.placeholders(gm)]
    mode = detect_fake_mode(given)

    class Marking(torch.fx.Interpreter):
        def run_node(self, n: torch.fx.Node) -> Any:
            graph = get_proxy_mode().tracer.graph
            last = graph._root.prev
            operate = super().run_node
            result = run(n, lambda: operate(n), self) if run else operate(n)
            new = graph._root.prev
            while new is not last:
                new.meta.setdefault("origin", n.meta.get("origin", n.name))
                new = new.prev
            return result

    with mode or contextlib.nullcontext(), torch.no_grad():
        new = make_fx(Marking(gm).run, decomposition_table=table)(*given)
    for old, n in zip(_fx.placeholders(gm), new.graph.nodes):
        n.meta["val"] = old.meta["val"]
    return new


def has_parts(target: Any) -> bool:
    """Whether PyTorch decomposes an operator."""
    return isinstance(target, torch._ops.OpOverload) and bool(target._can_decompose() or target in torch._decomp.decomposition_table)


def split(gm: torch.fx.GraphModule, names: Iterable[str]) -> torch.fx.GraphModule:
    """The graph with these nodes in parts; itself, if it has none of them."""
    from torch._dispatch.python import no_python_dispatcher
    chosen = {n.name for n in gm.graph.nodes} & set(names)
    if not chosen:
        return gm

    def run(n: torch.fx.Node, operate: Callable[[], Any], interpreter: torch.fx.Interpreter) -> Any:
        if n.name not in chosen:
            return operate()
        args, kwargs = interpreter.fetch_args_kwargs_from_env(n)
        if n.target in torch._decomp.decomposition_table:
            return torch._decomp.decomposition_table[n.target](*args, **kwargs)
        with no_python_dispatcher():  # which knows what whole() says instead
            return n.target._op_dk(torch._C.DispatchKey.CompositeImplicitAutograd, *args, **kwargs)

    with _onnx.whole():
        return retraced(gm, _onnx.decompositions()[1], run)
