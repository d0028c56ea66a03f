# SPDX-License-Identifier: Apache-2.0
"""The back end "quern" of torch.compile.

Dynamo traces Python to a graph; AOTAutograd makes it one or two graphs (forward and backward) of ATen operators without side effects but writes to buffers,
which are taken out of it (_mutations.py); sizes that may change are symbols. Each is then divided into pieces and the rest (_graph.py).
"""
from __future__ import annotations

import contextlib
import logging
from typing import Any, Callable, Iterator, Sequence

import torch

from . import _device, _fx, _onnx, _training, _warm_start
from ._graph import Graph, recorder
from ._options import Options

log = logging.getLogger("quern")


def needs_gradients(example_inputs: Sequence[Any]) -> bool:
    return torch.is_grad_enabled() and any(isinstance(x, torch.Tensor) and x.requires_grad for x in example_inputs)


def is_plain(facts: Any) -> bool:
    """Whether AOTAutograd's graph is called with what Dynamo's is, and has the same results: no writes to inputs, no views of them. facts: its metadata."""
    try:
        return (facts is not None and not torch._C._is_any_autocast_enabled() and not facts.mutated_inp_runtime_indices and not facts.num_intermediate_bases and
                not any(i.mutates_data for i in facts.input_info) and
                not facts.is_rng_op_functionalized and not facts.tokens and
                all(o.output_type.name in ("non_alias", "unsafe_view_alias") for o in facts.output_info) and
                all(type(t).__name__ in ("int", "PlainTensorMeta") for t in facts.subclass_inp_meta))
    except AttributeError:  # of another version
        return False


def stays(gm: torch.fx.GraphModule, why: str) -> Callable[..., Any]:
    """A graph that runs in PyTorch as it is."""
    log.info("torch.compile: a graph stays in PyTorch: %s", why)
    record = recorder.get()
    if record is not None:
        record.append(why)
    run: Callable[..., Any] = gm.forward
    return run


def backend(gm: Any, example_inputs: Any, *, mode: Any = None, options: Any = None, **_: Any) -> Any:
    """The function behind torch.compile(model, backend="quern", mode=..., options=...)."""
    o = Options(mode, options)
    others = {x.device.type for x in example_inputs if isinstance(x, torch.Tensor)}.difference(_device.KINDS)
    if others:
        return stays(gm, f"tensors on device '{others.pop()}'")
    from functorch.compile import make_boxed_func
    from torch._dynamo.backends.common import aot_autograd

    record = recorder.get()  # backward graphs are compiled by whichever thread runs them first
    graphs: list[Graph] = []

    def compiler(kind: str) -> Callable[..., Any]:
        def compile_graph(graph: torch.fx.GraphModule, inputs: Sequence[Any]) -> Any:
            context = torch._guards.TracingContext.try_get()
            n = len(_fx.placeholders(graph))
            facts = context.fw_metadata if context else None
            static = _training.static_inputs(facts, n, kind == "forward") if facts and kind != "backward" else [False] * n
            if kind != "inference":
                _training.keep_buffers(context)
            made = Graph(graph, static, o, kind, record)
            if kind == "inference" and n == len(example_inputs) and not made.devices and is_plain(facts):
                _warm_start.compiled(getattr(gm, "_backend_id", None), made)
            graphs.append(made)
            return made if kind == "inference" else make_boxed_func(made)
        return compile_graph

    if needs_gradients(example_inputs):
        from functorch.compile import default_partition
        with torch._functorch.config.patch(donated_buffer=False):  # see keep_buffers
            made = aot_autograd(fw_compiler=compiler("forward"), bw_compiler=compiler("backward"), inference_compiler=compiler("forward"),
                                partition_fn=default_partition)(gm, example_inputs)
        return or_original(gm, made, graphs, 2)
    with _onnx.whole():
        made = aot_autograd(fw_compiler=compiler("inference"), decompositions=dict(_onnx.decompositions()[1]),
                            keep_inference_input_mutations=True)(gm, example_inputs)  # see _mutations
    return or_original(gm, made, graphs, 1)


def or_original(gm: torch.fx.GraphModule, made: Callable[..., Any], graphs: Sequence[Graph], expected: int) -> Callable[..., Any]:
    """The compiled function; the one that Dynamo traced, without what AOTAutograd adds, once all of the expected number of graphs stay in PyTorch."""
    def run(*args: Any) -> Any:
        if len(graphs) == expected and all(g.is_left() for g in graphs):
            return gm.forward(*args)
        return made(*args)
    return run


@contextlib.contextmanager
def recording() -> Iterator[list[Graph | str]]:
    """The graphs that are compiled meanwhile: Graph, or the reason why one stays in PyTorch."""
    graphs: list[Graph | str] = []
    token = recorder.set(graphs)
    try:
        yield graphs
    finally:
        recorder.reset(token)
