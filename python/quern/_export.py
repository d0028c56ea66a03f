# SPDX-License-Identifier: Apache-2.0
"""Models of PyTorch as files: export, load. Any PyTorch from 1.13 on."""
from __future__ import annotations

import inspect
import os
import tempfile
import warnings
from typing import Any, Sequence

import torch

from . import _advice as advice
from . import _arrays as arrays
from . import _program
from ._library import Error

HAS_GRAPHS = "dynamo" in inspect.signature(torch.onnx.export).parameters and hasattr(torch, "export")  # exports of graphs, not only of traces
OPTIONS = ("device", "assume", "external_data_links", "isa", "state")  # of quern.compile, which export() passes on


def write_onnx(model: torch.nn.Module, inputs: Sequence[Any], file: str, dynamic_shapes: Any = None) -> None:
    """Exports a model for these inputs; dynamic_shapes: see export()."""
    names = list(inspect.signature(model.forward).parameters)[:len(inputs)]
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        if HAS_GRAPHS:
            sizes = {n: torch.export.Dim(n) for axes in dynamic_shapes or () for n in (axes or {}).values()}
            shapes = None if dynamic_shapes is None else tuple({d: sizes[n] for d, n in axes.items()} if axes else None for axes in dynamic_shapes)
            torch.onnx.export(model, tuple(inputs), file, dynamo=True, verbose=False, external_data=True, optimize=False, dynamic_shapes=shapes,
                              input_names=names)
            return
        names += [f"input_{k}" for k in range(len(names), len(inputs))]
        axes = {n: a for n, a in zip(names, dynamic_shapes or ()) if a}
        torch.onnx.export(model, tuple(inputs), file, input_names=names, dynamic_axes=axes)



def check_model(model: torch.nn.Module) -> None:
    """Raises TypeError or ValueError if it is no module, or in training mode."""
    if not isinstance(model, torch.nn.Module):
        raise TypeError(f"the model is a {type(model).__name__}, expected a torch.nn.Module: make it the forward function of one")
    for name, m in model.named_modules():
        if m.training:
            what = f"its layer '{name}' ({type(m).__name__})" if name else "the model"
            raise ValueError(f"{what} is in training mode, the file would hold its dropout and batch statistics: call model.eval() first")


def check_inputs(model: torch.nn.Module, inputs: Sequence[Any]) -> None:
    """Of export: their number, types, and places."""
    parameters = inspect.signature(model.forward)
    try:
        parameters.bind(*inputs)
    except TypeError as e:
        raise TypeError(f"the model takes {parameters}, but {len(inputs)} inputs were given: {e}") from None
    weights = next((t for t in (*model.parameters(), *model.buffers())), None)
    if weights is not None and weights.is_meta:
        raise ValueError("the model's weights lie on device 'meta', where they have no values: load them first")
    for k, x in enumerate(inputs):
        if not isinstance(x, torch.Tensor):
            raise TypeError(f"input {k} is a {type(x).__name__}, expected a tensor: other arguments become constants of a module around the model")
        if x.layout != torch.strided:
            raise TypeError(f"input {k} has layout {x.layout}, expected torch.strided: pass x.to_dense()")
        if str(x.dtype) not in arrays.OF_TORCH:
            raise TypeError(f"input {k} has elements of type {x.dtype}, which the library does not know: {advice.other_type(x.dtype)}")
        if weights is not None and x.device != weights.device:
            raise ValueError(f"input {k} lies on device '{x.device}', the model's weights on '{weights.device}': move one of them, x.to('{weights.device}')")
        if x.is_meta:
            raise ValueError(f"input {k} lies on device 'meta', where tensors have no values: pass an example with values")


def why_not(model: torch.nn.Module, inputs: Sequence[Any], e: BaseException) -> Exception:
    """The error for one of PyTorch's exporter, which is long: the model's own, if it does not take the inputs."""
    try:
        with torch.no_grad():
            model(*inputs)
    except Exception as own:
        return ValueError(f"the model does not take these example inputs: {type(own).__name__}: {own}")
    while e.__cause__ is not None:
        e = e.__cause__
    return Error(f"PyTorch cannot export the model to ONNX: {type(e).__name__}: {str(e).strip()}; torch.compile(model, backend='quern') leaves such "
                 "operators in PyTorch", "UNSUPPORTED")


def export(model: torch.nn.Module, inputs: Sequence[Any], path: str | os.PathLike[str], dynamic_shapes: Any = None, database: Any = None, threads: int = 0,
           **options: Any) -> None:
    """Compiles a model to a .dnx file, which load() reads, and the library without Python, too.

    inputs          example tensors, a tuple: their sizes are those that kernels are selected for, and fixed unless dynamic_shapes names them
    dynamic_shapes  for each input None, or the names of axes whose sizes may change: ({0: "batch", 1: "length"},)
    database        measurements, as for quern.compile, which has the other options
    """
    if not isinstance(inputs, (tuple, list)):
        inputs = (inputs,)
    advice.check_names("export()", options, OPTIONS)
    check_model(model)
    if dynamic_shapes is not None and len(dynamic_shapes) != len(inputs):
        raise ValueError(f"dynamic_shapes has {len(dynamic_shapes)} entries for {len(inputs)} inputs: one for each, None for fixed sizes")
    check_inputs(model, inputs)
    sizes = {name: x.shape[d] for x, axes in zip(inputs, dynamic_shapes or ()) for d, name in (axes or {}).items()}
    with tempfile.TemporaryDirectory() as folder:
        file = os.path.join(folder, "model.onnx")
        try:
            write_onnx(model, inputs, file, dynamic_shapes)
        except Exception as e:
            raise why_not(model, inputs, e) from e
        _program.compile(file, database=database, threads=threads, sizes=sizes or None, **options).save(path)


class Loaded(torch.nn.Module):
    """A compiled model: forward takes its inputs, by position or name, and returns its output, or a tuple of them. It has no parameters, and no gradients:
    inputs that require some are an error unless under torch.no_grad()."""

    def __init__(self, program: _program.Program) -> None:
        super().__init__()
        self.program = program

    def forward(self, *inputs: Any, **named: Any) -> Any:
        if torch.is_grad_enabled() and any(isinstance(x, torch.Tensor) and x.requires_grad for x in (*inputs, *named.values())):
            raise NotImplementedError("a compiled program has no gradients: run it under torch.no_grad(), or on tensors that do not require gradients "
                                      "(x.detach()); train the model that it was made of")
        return self.program(*inputs, **named)

    def extra_repr(self) -> str:
        p = self.program
        shapes = ", ".join(f"{n} {'x'.join(map(str, p.input_shape(k)))}" for k, n in enumerate(p.inputs))
        return f"inputs: {shapes}; outputs: {', '.join(p.outputs)}"


def load(path: str | os.PathLike[str], **options: Any) -> Loaded:
    """The model in a .dnx file as a module; options: see quern.load."""
    return Loaded(_program.load(path, **options))
