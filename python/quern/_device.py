# SPDX-License-Identifier: Apache-2.0
"""CUDA (and ROCm) devices of PyTorch for torch.compile: whether the library can use one, what identifies it, waiting for it.

A device is tried before the first graph is divided, by a small kernel on PyTorch's memory in PyTorch's current stream. If that fails, everything on the device
stays in PyTorch, and one warning says why.
"""
from __future__ import annotations

import functools
import logging
import tempfile
from typing import Any, Callable, Iterable, NamedTuple

import torch

from . import _arrays as arrays
from . import _tuning_process
from ._cache import cache
from ._library import Error
from ._nvrtc import compiler_folders, find_compiler
from ._program import compile

log = logging.getLogger("quern")

KINDS = ("cpu", "cuda")  # PyTorch's names of what the library can use; ROCm has the name of CUDA
PROBE = b"graph {\n  input %x: f32[N]\n  %y: f32[?] = Neg(%x)\n  output %y\n}\n"
RATES = 60  # seconds in which its speed is measured, at most


class Found(NamedTuple):
    """Of a device: why the library cannot use it, None: it can; the library's description, by which measurements are kept."""

    trouble: str | None
    fingerprint: str


def probe(device: Any) -> str:
    """The library's description of the device, on which it has just computed something. Raises Error and whatever PyTorch does."""
    program = compile(PROBE, device=arrays.device_name(device))
    x = torch.arange(64.0, device=device)
    if not torch.equal(program(x), -x):
        raise Error("a kernel on it computes something else than PyTorch", "FAILED")
    return str(program.fingerprint)


def measure(device: Any, fingerprint: str) -> None:
    """Measures how fast the device is, if that was not tried before in this environment."""
    key = f"rates {fingerprint}"
    if cache.get(key) is not None:
        return
    cache.put(key, b"tried")
    try:
        with tempfile.TemporaryDirectory() as folder:
            _tuning_process.write(folder, {"what": "measure", "device": arrays.device_name(device)})
            _tuning_process.run(folder, compiler_folders(), RATES)
    except (Error, OSError) as e:
        log.info("torch.compile: device '%s': its speed is assumed, not measured: %s", device, e)


@functools.cache
def found(name: str) -> Found:
    """What look() says of the device of this name, found out once in a process."""
    device = torch.device(name)
    find_compiler()
    try:
        # graphs are divided while PyTorch traces, where new tensors would be imaginary ones
        from torch._subclasses.fake_tensor import unset_fake_temporarily
        with unset_fake_temporarily(), torch.no_grad():
            fingerprint = probe(device)
    except (Error, RuntimeError, TypeError, ValueError) as e:
        why = str(e).splitlines()[0] if str(e) else type(e).__name__
        log.warning("torch.compile: models on device '%s' run in PyTorch, the library cannot use it: %s", name, why)
        return Found(why, "")
    measure(device, fingerprint)
    return Found(None, fingerprint)


def look(device: Any) -> Found:
    """What is known about a device, which is tried if nothing is."""
    return found(str(device))


def waiter(devices: Iterable[torch.device]) -> Callable[[], None] | None:
    """A function that returns when all that was enqueued on these devices is done; None: on the CPU there is nothing to wait for."""
    gpus = [d for d in devices if d.type != "cpu"]

    def wait() -> None:
        for d in gpus:
            torch.cuda.synchronize(d)
    return wait if gpus else None


def is_capturing() -> bool:
    """Whether calls are recorded for a CUDA graph."""
    return bool(torch.cuda.is_current_stream_capturing())
