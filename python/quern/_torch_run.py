# SPDX-License-Identifier: Apache-2.0
"""Operators of the library on tensors of PyTorch, of any strides and on any device."""
from __future__ import annotations

import functools
import sys
from typing import Any, Callable, Sequence

import torch

from . import _arrays as arrays
from ._nvrtc import find_compiler
from ._operator import Operator

TYPES = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
HAS_AUTOCAST_KINDS = hasattr(torch.amp, "is_autocast_available")  # PyTorch 2.4


class Keyed:
    """Attributes of an operator, equal and hashable by their key()."""

    def key(self) -> tuple[Any, ...]:
        raise NotImplementedError

    def attributes(self) -> dict[str, Any]:
        """By name, those that differ from the operator's defaults."""
        raise NotImplementedError

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Keyed) and type(other) is type(self) and self.key() == other.key()

    def __hash__(self) -> int:
        return hash(self.key())


@functools.lru_cache(maxsize=256)
def operator(name: str, spec: Keyed, sizes: str | None, threads: int, device: str | None = None, outputs: int = 1) -> Operator:
    """One for all calls with these arguments, see quern.Operator."""
    return Operator(name, spec.attributes(), sizes=sizes, threads=threads, device=device, outputs=outputs)


def is_autocast(kind: str) -> bool:
    """Whether autocast is on for a kind of device ("cpu", "cuda"), in the words of any PyTorch."""
    if HAS_AUTOCAST_KINDS:  # asking whether a kind has autocast takes longer than the rest
        return bool((kind in ("cpu", "cuda") or torch.amp.is_autocast_available(kind)) and torch.is_autocast_enabled(kind))
    return bool(torch.is_autocast_enabled() if kind == "cuda" else torch.is_autocast_cpu_enabled())


def opaque(function: Callable[..., Any], *args: Any) -> Any:
    """Calls a function that PyTorch's compiler must not trace, without importing its modules (seconds) if it was never used."""
    return torch.compiler.disable(function)(*args) if "torch._dynamo" in sys.modules and hasattr(torch, "compiler") else function(*args)


def placed(tensors: Sequence[Any], device: Any) -> list[Any]:
    """Tensors (None: omitted) as an operator on this device takes them, see arrays.device_of; None: the CPU, to which others are copied."""
    plain = [None if t is None else t.detach().resolve_neg() for t in tensors]
    if device is None:
        return [None if t is None else t.cpu() for t in plain]
    find_compiler()
    return [None if t is None else arrays.on_device(t) for t in plain]


def run_all(name: str, spec: Keyed, sizes: str | None, inputs: Sequence[Any], outputs: Sequence[Any]) -> list[Any]:
    """Runs one operator. inputs: tensors; outputs: shape and type of each; None: omitted. sizes: see Operator, None: constants of the kernel.
    The result, also with None for omitted outputs, has the device of the first input."""
    like = inputs[0]
    if like.is_meta or any(o and 0 in o[0] for o in outputs) or any(t is not None and t.numel() == 0 for t in inputs):
        return [o and torch.zeros(o[0], dtype=o[1], device=like.device) for o in outputs]
    device = arrays.device_of(like)
    given = placed(inputs, device)
    if device is not None:
        y = [o and torch.empty(o[0], dtype=o[1], device=device) for o in outputs]
        operator(name, spec, sizes, 0, arrays.device_name(device), len(outputs)).run(given, y)
        return y
    y = [o and torch.empty(o[0], dtype=o[1]) for o in outputs]
    operator(name, spec, sizes, torch.get_num_threads(), outputs=len(outputs)).run(given, y)
    return [None if t is None else t.to(like.device) for t in y]


def run(name: str, spec: Keyed, sizes: Sequence[str], inputs: Sequence[Any], shape: Sequence[int], like: Any) -> Any:
    """The same with one output, of the type of `like`; sizes: of each input."""
    return run_all(name, spec, ",".join(sizes[:len(inputs)]), inputs, [(shape, like.dtype)])[0]
