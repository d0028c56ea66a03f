# SPDX-License-Identifier: Apache-2.0
"""Graphs that record gradients: AOTAutograd's forward and backward graphs.

They are traced without decompositions, so what stays in PyTorch is PyTorch's own kernels (batch normalisation and its gradient are one operator each). Only
the copy of a piece that is exported is decomposed: by PyTorch's table, into operators of its exporter to ONNX.
"""
from __future__ import annotations

import functools
from typing import Any

import torch

from . import _decompose, _fx, _own


@functools.cache
def table() -> dict[Any, Any]:
    """Decompositions by PyTorch of what its exporter does not know: operator -> function. Nor is it taken at its word for operators with several results
    (normalisations): it translates them for inference, where only the first one counts."""
    from torch.onnx._internal.exporter import _decomp
    own = _own.operators()
    return dict(_decomp.create_onnx_friendly_decomposition_table({op for op in _fx.known() if len(op._schema.returns) == 1 or op in own}))


def is_composite(target: Any) -> bool:
    """Whether an operator is decomposed in the piece that is exported."""
    return isinstance(target, torch._ops.OpOverload) and target in table()


def decompose(gm: torch.fx.GraphModule) -> torch.fx.GraphModule:
    """The graph of a piece without operators that the exporter does not know but PyTorch can decompose; itself, if there are none."""
    if not any(n.op == "call_function" and is_composite(n.target) for n in gm.graph.nodes):
        return gm
    return _decompose.retraced(gm, table())


def static_inputs(metadata: Any, n: int, records: bool) -> list[bool]:
    """Which of the n arguments of a forward graph are the same memory, with the same contents, in every call: parameters and buffers, but not those that the
    graph writes to, nor, if it records gradients, parameters that an optimiser does."""
    indices = set(metadata.static_input_indices or ())
    return [k in indices and not (k < len(metadata.input_info) and (metadata.input_info[k].mutates_data or records and metadata.input_info[k].requires_grad))
            for k in range(n)]


def keep_buffers(context: Any) -> None:
    """Says that a backward graph leaves the tensors that were saved for it as they are, so it may run again (retain_graph=True)."""
    if context and hasattr(context.fw_metadata, "bw_donated_idxs"):
        context.fw_metadata.bw_donated_idxs = []
