# SPDX-License-Identifier: Apache-2.0
"""Operators of the library on tensors of PyTorch, of any strides and on any device."""
from __future__ import annotations

import ctypes
import functools
import pathlib
from typing import Any, Sequence

import torch

from . import _arrays as arrays
from ._operator import Operator

TYPES = (torch.float32, torch.float64, torch.float16, torch.bfloat16)


@functools.lru_cache(maxsize=256)
def operator(name: str, spec: Any, sizes: str | None, threads: int, device: str | None = None, outputs: int = 1) -> Operator:
    return Operator(name, spec.attributes(), sizes=sizes, threads=threads, device=device, outputs=outputs)


def compilers(name: str) -> list[pathlib.Path]:
    """Files of the compiler for CUDA that PyTorch's packages include, outside of the linker's paths."""
    return sorted(pathlib.Path(torch.__file__).parent.parent.glob("nvidia/*/lib/" + name))


def compiler_folders() -> list[str]:
    """Where they are, for the linker of another process."""
    return list(dict.fromkeys(str(path.parent) for path in compilers("libnvrtc.so.*")))


@functools.lru_cache(maxsize=None)
def find_compiler() -> None:
    """Loads that compiler: once loaded it is found."""
    for path in compilers("libnvrtc-builtins.so.*") + compilers("libnvrtc.so.*"):
        try:
            ctypes.CDLL(str(path))
        except OSError:
            pass


def run_all(name: str, spec: Any, sizes: str | None, inputs: Sequence[Any], outputs: Sequence[Any]) -> list[Any]:
    """Runs one operator. inputs: tensors; outputs: shape and type of each; None: omitted. sizes: see Operator, None: constants of the kernel.
    The result, also with None for omitted outputs, has the device of the first input."""
    like = inputs[0]
    if like.is_meta or any(o and 0 in o[0] for o in outputs) or any(t is not None and t.numel() == 0 for t in inputs):
        return [o and torch.zeros(o[0], dtype=o[1], device=like.device) for o in outputs]
    inputs = [None if t is None else t.detach().resolve_neg() for t in inputs]
    device = arrays.device_of(like)
    if device is not None:
        find_compiler()
        y = [o and torch.empty(o[0], dtype=o[1], device=device) for o in outputs]
        inputs = [None if t is None else arrays.on_device(t) for t in inputs]
        operator(name, spec, sizes, 0, arrays.device_name(device), len(outputs)).run(inputs, y)
        return y
    y = [o and torch.empty(o[0], dtype=o[1]) for o in outputs]
    inputs = [None if t is None else t.cpu() for t in inputs]
    operator(name, spec, sizes, torch.get_num_threads(), outputs=len(outputs)).run(inputs, y)
    return [None if t is None else t.to(like.device) for t in y]


def run(name: str, spec: Any, sizes: Sequence[str], inputs: Sequence[Any], shape: Sequence[int], like: Any) -> Any:
    """The same with one output, of the type of `like`; sizes: of each input."""
    return run_all(name, spec, ",".join(sizes[:len(inputs)]), inputs, [(shape, like.dtype)])[0]
