# SPDX-License-Identifier: Apache-2.0
"""Single layers by the library, in models that cannot be compiled as graphs: quern.torch.optimize, for any PyTorch from 1.13 on.

A layer's program is made at its first call with inputs of these shapes, types and other arguments, from an export of its own forward function, and compared
with that: it must have the same results, within rounding, and be faster. Calls that no program is made for (training, gradients, autocast, packed sequences)
run as before; `Layers` says why.
"""
from __future__ import annotations

import collections
import logging
import os
import tempfile
import threading
from typing import Any, Callable, Iterable, Mapping, Optional, Sequence

import torch
from torch.nn.utils.rnn import PackedSequence

from . import _program
from ._binding import Binding, Changes
from ._compare import columns, compare
from ._export import write_onnx
from ._torch_run import is_autocast

log = logging.getLogger("quern")

KINDS = (torch.nn.Linear, torch.nn.Conv1d, torch.nn.Conv2d, torch.nn.Conv3d, torch.nn.ConvTranspose1d, torch.nn.ConvTranspose2d, torch.nn.ConvTranspose3d,
         torch.nn.MultiheadAttention, torch.nn.LSTM, torch.nn.GRU)
MOST = 16   # combinations of shapes and other arguments for which a layer has programs

Nest = Callable[[list[torch.Tensor]], Any]


def flatten(value: Any) -> tuple[list[torch.Tensor], Nest]:
    """The tensors of nested tuples and lists, and a function that nests others like them."""
    if isinstance(value, torch.Tensor):
        return [value], lambda flat: flat.pop(0)
    if isinstance(value, (tuple, list)):
        parts = [flatten(v) for v in value]
        return [t for tensors, _ in parts for t in tensors], lambda flat: tuple(nest(flat) for _, nest in parts)
    return [], lambda flat: value


def outline(value: Any) -> Any:
    """What a program is made for: shapes and types of tensors, other arguments as they are."""
    if isinstance(value, torch.Tensor):
        return tuple(value.shape), value.dtype
    return tuple(map(outline, value)) if isinstance(value, (tuple, list)) else value


class Traced(torch.nn.Module):
    """A layer as a function of tensors, to be exported: its other arguments are fixed."""

    def __init__(self, function: Callable[..., Any], layer: torch.nn.Module, args: Sequence[Any], named: Mapping[str, Any]) -> None:
        super().__init__()
        self.function, self.layer, self.names = function, layer, list(named)
        self.nest = flatten((tuple(args), tuple(named.values())))[1]

    def forward(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        args, values = self.nest(list(tensors))
        return tuple(flatten(self.function(*args, **dict(zip(self.names, values))))[0])


class Case:
    """What was decided for one combination of arguments. bound: the program, None: calls run as before, for this reason; nest: of its results; seconds:
    (program, layer), None: not measured."""

    def __init__(self) -> None:
        self.bound: Optional[Binding] = None
        self.nest: Nest = tuple
        self.reason: Optional[str] = None
        self.seconds: Optional[Sequence[float]] = None


class Fast:
    """Instead of a layer's forward: by the library for inference on the CPU, if that is faster for inputs of these shapes, else as before."""

    def __init__(self, layer: torch.nn.Module) -> None:
        self.layer = layer
        self.__setstate__({})

    def __getstate__(self) -> dict[str, Any]:  # copies and files make their programs anew
        return {"layer": self.layer}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.made: dict[Any, Case] = {}
        self.left: collections.Counter[str] = collections.Counter()  # reason -> calls for which nothing was decided
        self.changes = Changes()
        self.lock = threading.Lock()

    def usual(self, *args: Any, **named: Any) -> Any:
        return type(self.layer).forward(self.layer, *args, **named)

    def __call__(self, *args: Any, **named: Any) -> Any:
        given = (args, tuple(named.values()))
        tensors, weights = flatten(given)[0], list(self.layer.parameters())
        why = unsuitable(self.layer, given, tensors, weights)
        if why is None:
            key = (outline(given), tuple(named), torch.get_num_threads())
            with self.lock:
                case = self.case(key, args, named, tensors, weights)
            if case is not None and case.bound is not None and case.bound.is_ours():
                return case.nest(list(case.bound.run(tensors)))
        else:
            self.left[why] += 1
        return self.usual(*args, **named)

    def case(self, key: Any, args: Sequence[Any], named: Mapping[str, Any], tensors: Sequence[torch.Tensor], weights: Sequence[torch.Tensor]) -> Optional[Case]:
        """What there is for these arguments, made if need be; None: nothing, and nothing will be."""
        self.changes.calls += 1
        case = self.made.get(key)
        if case is None and len(self.made) >= MOST:
            self.left[f"more than {MOST} combinations of shapes"] += 1
            return None
        if case is not None and case.bound is not None and case.bound.has_changed([*tensors, *weights]):
            if self.changes.are_too_many():
                case.bound, case.reason = None, Changes.UNSTEADY
            else:
                case = None
        if case is None:
            case = self.made[key] = self.make(args, named, tensors, weights)
        return case

    def make(self, args: Sequence[Any], named: Mapping[str, Any], tensors: Sequence[torch.Tensor], weights: Sequence[torch.Tensor]) -> Case:
        """A program for these arguments, compared with the layer."""
        def usual(*_: Any) -> list[torch.Tensor]:
            return flatten(self.usual(*args, **named))[0]

        case = Case()
        try:
            with tempfile.TemporaryDirectory() as folder:
                file = os.path.join(folder, "layer.onnx")
                # as tensors of their own: one that is given twice, as queries and keys, would be one input of the trace
                write_onnx(Traced(self.usual, self.layer, args, named).eval(), [t.detach() for t in tensors], file)
                program = _program.compile(file, threads=torch.get_num_threads())
            if len(program.inputs) != len(tensors):
                raise ValueError("its export leaves out some of its inputs")
            bound = Binding(program, range(len(tensors)), [(len(tensors) + k, w) for k, w in enumerate(weights)])
            case.reason, case.seconds = compare(lambda *t: bound.run(t), usual, tensors)
        except Exception as e:  # whatever an exporter raises: the layer runs as before
            case.reason = f"{type(e).__name__}: {e}"
        if case.reason is None:
            case.bound, case.nest = bound, flatten(self.usual(*args, **named))[1]
        else:
            log.info("optimize: a %s stays as it is: %s", type(self.layer).__name__, case.reason)
        return case


def unsuitable(layer: torch.nn.Module, given: Any, tensors: Sequence[torch.Tensor], weights: Sequence[torch.Tensor]) -> Optional[str]:
    """Why a call runs as before; None: a program may be made for it."""
    if torch.jit.is_tracing():
        return "it is traced"
    if layer.training:
        return "the layer is in training mode"
    if is_autocast("cpu"):
        return "autocast decides its types"
    for a in (a for part in given for a in part):
        if isinstance(a, PackedSequence):
            return "a packed sequence"
        if not isinstance(a, (torch.Tensor, tuple, list, int, float, str, type(None))):
            return f"an argument of type {type(a).__name__}"
    if not tensors:
        return "no tensor as an argument"
    for t in (*tensors, *weights):
        if torch.is_grad_enabled() and t.requires_grad:
            return "gradients are recorded (without torch.no_grad())"
        if t.device.type != "cpu":
            return f"a tensor on device '{t.device}'"
        if t.layout != torch.strided:
            return f"a tensor with layout {t.layout}"
        if type(t) not in (torch.Tensor, torch.nn.Parameter):
            return f"a tensor of class {type(t).__name__}"
    return None


def optimize(model: torch.nn.Module, kinds: Any = KINDS) -> torch.nn.Module:
    """Lets layers of a model (of these classes: linear, convolutions, attention, recurrent) run by the library where it is faster: for models that
    torch.compile cannot take as graphs, and for PyTorch before 2.0. For inference on the CPU; otherwise, as with gradients, layers run as before, and so do
    classes that were derived from these with a forward function of their own. Parameters and their names stay. Returns the model; explain(model) lists its
    layers."""
    own = {getattr(kind, "forward", None) for kind in (kinds if isinstance(kinds, (tuple, list)) else (kinds,))}
    for layer in model.modules():
        if isinstance(layer, kinds) and type(layer).forward in own and not isinstance(layer.forward, Fast):
            layer.forward = Fast(layer)
    return model


class Layers(list):  # type: ignore[type-arg]
    """The layers of a model after optimize(): dictionaries with name, kind, inputs (shapes), seconds (of the program, of the layer) and reason why calls run as
    before. str() is a table."""

    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__(row for name, layer in model.named_modules() if isinstance(layer.forward, Fast) for row in rows(name, layer.forward))

    def __str__(self) -> str:
        lines = [f"{len({r['name'] for r in self})} layers"]
        if self:
            lines.append(f"{'layer':24} {'class':18} {'inputs':28} {'quern':>11} {'PyTorch':>11}")
        for r in self:
            ours, theirs = columns(r["seconds"])
            lines.append(f"{r['name']:24} {r['kind']:18} {r['inputs']:28} {ours:>11} {theirs:>11}")
            if r["reason"]:
                lines.append(f"{'':25}runs as before: {r['reason']}")
        return "\n".join(lines)

    __repr__ = __str__


def rows(name: str, fast: Fast) -> Iterable[dict[str, Any]]:
    """The rows of Layers for one layer: of each combination of arguments, and of calls that run as before."""
    kind = type(fast.layer).__name__
    if not fast.made and not fast.left:
        yield dict(name=name, kind=kind, inputs="-", seconds=None, reason="it was not called yet")
    for key, case in fast.made.items():
        yield dict(name=name, kind=kind, inputs=shapes(key[0]), seconds=case.seconds, reason=case.reason)
    for reason, n in fast.left.items():
        yield dict(name=name, kind=kind, inputs="-", seconds=None, reason=f"{reason} ({n} call{'s' * (n != 1)})")


def shapes(outlined: Any) -> str:
    """Of outline()."""
    if isinstance(outlined, tuple):
        if len(outlined) == 2 and isinstance(outlined[1], torch.dtype):
            return "x".join(map(str, outlined[0])) or "1"
        return " ".join(filter(None, map(shapes, outlined)))
    return ""
