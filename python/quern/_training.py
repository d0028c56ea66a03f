# SPDX-License-Identifier: Apache-2.0
"""Graphs that record gradients: AOTAutograd's forward and backward graphs.

They are traced without decompositions, so what stays in PyTorch is PyTorch's own kernels (batch normalisation and its gradient are one operator each). Only
the copy of a piece that is exported is decomposed: by PyTorch's table, into operators of its exporter to ONNX.
"""
from __future__ import annotations

import functools
from typing import Any

import torch

from . import _decompose, _fx, _onnx, _onnx_translations

aten = torch.ops.aten


@functools.cache
def table() -> dict[Any, Any]:
    """Decompositions by PyTorch of what its exporter does not know: operator -> function. Nor is it taken at its word for operators with several results
    (normalisations): it translates them for inference, where only the first one counts."""
    from torch.onnx._internal.exporter import _decomp
    own = _onnx_translations.operators()
    found = dict(_decomp.create_onnx_friendly_decomposition_table({op for op in _onnx.known() if len(op._schema.returns) == 1 or op in own}))
    return {**found, aten.slice_backward.default: slice_backward, aten.select_backward.default: select_backward}


# Gradients of parts of a tensor are zeros around them. PyTorch's decompositions write into a tensor of zeros, which its exporter translates to ScatterND, with
# an index for every element: of the denoiser's backward graph that took half of the time.


def slice_backward(grad: Any, input_sizes: Any, dim: int, start: Any, end: Any, step: Any) -> Any:
    """grad (.., n, ..) -> (.., input_sizes[dim], ..)"""
    size = input_sizes[dim]
    if step != 1 or isinstance(start, torch.SymInt):
        return aten.slice_scatter.default(grad.new_zeros(input_sizes), grad, dim, start, end, step)
    first = 0 if grad.shape[dim] == 0 else start if start >= 0 else max(start + size, 0)
    return surrounded(grad, dim, first, size)


def select_backward(grad: Any, input_sizes: Any, dim: int, index: Any) -> Any:
    """grad without axis dim -> with it, (.., input_sizes[dim], ..)"""
    if isinstance(index, torch.SymInt):
        return aten.select_scatter.default(grad.new_zeros(input_sizes), grad, dim, index)
    dim, size = dim % len(input_sizes), input_sizes[dim]
    return surrounded(grad.unsqueeze(dim), dim, index if index >= 0 else index + size, size)


def surrounded(grad: Any, dim: int, first: Any, size: Any) -> Any:
    """With zeros in front of an axis' first element and behind the last one, to this size."""
    pads = [first, size - first - grad.shape[dim]]
    return aten.constant_pad_nd.default(grad, [0, 0] * (grad.dim() - 1 - dim % grad.dim()) + pads)


def is_composite(target: Any) -> bool:
    """Whether an operator is decomposed in the piece that is exported."""
    return isinstance(target, torch._ops.OpOverload) and target in table()


def decompose(gm: torch.fx.GraphModule) -> torch.fx.GraphModule:
    """The graph of a piece without operators that the exporter does not know but PyTorch can decompose; itself, if there are none."""
    if not any(is_composite(n.target) for n in _fx.calls(gm)):
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
