# SPDX-License-Identifier: Apache-2.0
"""Programs run again and again on tensors of PyTorch, in place: what does not change between calls, such as weights, is not described again."""
from __future__ import annotations

from ctypes import c_int64
from operator import attrgetter, methodcaller
from typing import Any, Iterable, Sequence

import torch

from . import _arrays as arrays
from ._library import Array, Error, lib
from ._program import Program

WORDS = 18  # of 64 bits in struct quern_array: type and rank, 8 sizes, 8 strides, address
ADDRESS = 17
CALLS = 16  # between two changes of weights, in the long run: with fewer, programs that contain them cost more than they gain

CPU = torch.device("cpu")

version_of, address_of = attrgetter("_version"), methodcaller("data_ptr")


class Changes:
    """Calls of programs that contain weights, and changes of these, each of which takes a new program."""

    UNSTEADY = "its weights change all the time"  # why there is no further program

    def __init__(self) -> None:
        self.calls = self.n = 0

    def are_too_many(self) -> bool:
        """Counts one more change."""
        self.n += 1
        return self.n > 2 and self.calls < CALLS * self.n


class Binding:
    """A program with its arguments. taken: positions of the program's inputs among the arguments, those of constants left out; constants:
    [(position, tensor)] of those that were made constants, which must not change: see has_changed(); device: PyTorch's, of the program and its tensors.

    On a GPU a run is enqueued in PyTorch's current stream of the device, which nobody waits for. The library restores the thread's current device, and
    PyTorch's own calls here name theirs."""

    def __init__(self, program: Program, taken: Iterable[int], constants: Sequence[tuple[int, torch.Tensor]] = (), device: torch.device = CPU) -> None:
        self.program, self.taken = program, list(taken)
        self.device, self.is_on_gpu = device, device.type != "cpu"
        self.fixed, self.weights = [at for at, _ in constants], [t for _, t in constants]
        self.versions, self.addresses = list(map(version_of, self.weights)), list(map(address_of, self.weights))
        n = len(self.taken)
        self.x, self.y = (Array * max(n, 1))(), (Array * max(len(program.outputs), 1))()
        self.x_words = (c_int64 * (WORDS * len(self.x))).from_buffer(self.x)
        self.y_words = (c_int64 * (WORDS * len(self.y))).from_buffer(self.y)
        self.last: list[tuple[Any, Any]] = [(None, None)] * n  # per input: address and shape of the last call
        self.outputs: list[tuple[tuple[int, ...], torch.dtype]] = []  # shapes and types for these inputs
        self.is_made = False            # some of the shapes depend on data

    def is_ours(self) -> bool:
        return self.program._context.is_ours()

    def has_changed(self, args: Sequence[Any]) -> bool:
        """Whether a constant was written to since, or is another tensor now."""
        now = [args[at] for at in self.fixed]
        return list(map(version_of, now)) != self.versions or list(map(address_of, now)) != self.addresses

    def run(self, args: Sequence[Any]) -> tuple[torch.Tensor, ...]:
        """The results, a tuple of new tensors. Any thread; they wait for each other."""
        c, p = self.program._context, self.program._handle
        with c.lock:
            held = self.place(args)
            if not self.outputs:
                self.find_outputs()
            if self.is_made and not self.is_on_gpu:
                return tuple(torch.as_tensor(y) for y in self.program._run_host(held))
            out = tuple([torch.empty(shape, dtype=t, device=self.device) for shape, t in self.outputs])
            for k, t in enumerate(out):
                self.y_words[WORDS * k + ADDRESS] = t.data_ptr()
            c.check(lib.quern_enqueue(p, self.x, len(held), self.y, len(out), arrays.stream_of(self.device) if self.is_on_gpu else None))
        return out

    def find_outputs(self) -> None:
        """Computes the results' shapes for the inputs that are described. Raises Error if data decide one on a GPU."""
        c, n = self.program._context, len(self.program.outputs)
        c.check(lib.quern_program_shape(self.program._handle, self.x, len(self.taken), self.y, n))
        self.outputs = [(tuple(a.dim[:a.rank]), getattr(torch, arrays.TO_TORCH[a.type])) for a in self.y[:n]]
        self.is_made = any(d < 0 for shape, _ in self.outputs for d in shape)
        if self.is_made and self.is_on_gpu:
            raise Error("the size of a result depends on data, which the host would have to wait for", "UNSUPPORTED")

    def of_size(self, k: int, size: Any) -> torch.Tensor:
        """For input k: a tensor that has an axis of this size, see _fx_sizes.give_axis, or the number."""
        if self.program.input_shape(k):
            return torch.empty((size, 0), dtype=torch.uint8, device=self.device)
        return torch.full((), size, device=self.device)

    def place(self, args: Sequence[Any]) -> list[torch.Tensor]:
        """Writes the arguments' addresses, and their shapes if these differ from the last call's. Returns the tensors, some of which are dense copies."""
        held, last, is_on_gpu = [], self.last, self.is_on_gpu
        for k, at in enumerate(self.taken):
            t = args[at]
            if not isinstance(t, torch.Tensor):
                t = self.of_size(k, t)
            if is_on_gpu:
                t = arrays.on_device(t if t.is_cuda else t.to(self.device), row_major=True)  # of the CPU: a number
            elif not t.is_contiguous():
                t = t.contiguous()
            held.append(t)
            where, known = t.data_ptr(), last[k]
            if known[1] != t.shape:
                self.x[k] = arrays.describe(t, f"argument {at}", self.device if is_on_gpu else None)
                self.outputs = []
            elif known[0] != where:
                self.x_words[WORDS * k + ADDRESS] = where
            else:
                continue
            last[k] = (where, t.shape)
        return held
