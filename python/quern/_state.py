# SPDX-License-Identifier: Apache-2.0
"""States: the caches of a program between runs."""
from __future__ import annotations

from ctypes import byref, c_void_p
from typing import TYPE_CHECKING, Any, Mapping

from . import _arrays as arrays
from ._inputs import order, sizes_text
from ._library import StateOpts, lib, text

if TYPE_CHECKING:
    from ._program import Program


class State:
    """The caches of a decoder in the device's memory: called like its program, without the caches, it runs the new tokens only.

        net = quern.compile("decoder.onnx", state=True)
        state = net.state(2048)
        logits = state(input_ids=prompt, attention_mask=mask)

    Created by Program.state() and fork(). Inputs and outputs are in host memory.
    """

    def __init__(self, program: Program, maximum: int, sizes: Mapping[str, int] | None = None, handle: Any = None) -> None:
        c = self._context = program._context
        self._program, self._handle = program, handle
        if not handle:
            with c.lock:
                self._handle = c.make(lib.quern_state_create, program._handle, maximum, byref(StateOpts(sizes=text(sizes_text(sizes)))))
        self.inputs = [n for k, n in enumerate(program.inputs) if not lib.quern_state_holds_input(self._handle, k)]
        self.outputs = [n for k, n in enumerate(program.outputs) if not lib.quern_state_holds_output(self._handle, k)]

    def __len__(self) -> int:
        """Positions: the tokens of all runs."""
        return int(lib.quern_state_length(self._handle))

    def __bool__(self) -> bool:
        return True

    @property
    def maximum(self) -> int:
        """The most positions that it can hold."""
        return int(lib.quern_state_max(self._handle))

    @property
    def nbytes(self) -> int:
        """Memory of the caches."""
        return int(lib.quern_state_memory(self._handle))

    def fork(self) -> State:
        """Another state with the same content."""
        c = self._context
        with c.lock:
            return State(self._program, 0, handle=c.make(lib.quern_state_fork, self._handle))

    def copy(self, other: State) -> None:
        """The content of another state, of another program of the same network: one for prompts, one for single tokens."""
        a, b = sorted((self._context, other._context), key=id)  # one order for all threads
        with a.lock, b.lock:
            self._context.check(lib.quern_state_copy(self._handle, other._handle))

    def truncate(self, length: int) -> None:
        """Keeps the first positions; 0 empties it."""
        with self._context.lock:
            self._context.check(lib.quern_state_truncate(self._handle, length))

    def save(self, path: Any) -> None:
        """Writes the content to a file."""
        with self._context.lock:
            self._context.check(lib.quern_state_save(self._handle, text(path)))

    def load(self, path: Any) -> None:
        """The content of a saved state of the same network."""
        with self._context.lock:
            self._context.check(lib.quern_state_load(self._handle, text(path)))

    def __call__(self, *inputs: Any, **named: Any) -> Any:
        """The program's inputs but the caches, by position, by name, or both. Returns the output that is no cache, or a tuple of them."""
        given = [arrays.dense(arrays.as_array(a)) for a in order(self.inputs, inputs, named)]
        c = self._context
        if not c.is_ours():
            raise RuntimeError("a state does not survive a fork of the process: save() it in the parent, load() it in the child, or start processes by spawn")
        with c.lock:
            out = self._run(dict(zip(self.inputs, given)), given[0] if given else None)
        return out[0] if len(out) == 1 else tuple(out)

    def _run(self, given: Mapping[str, Any], like: Any) -> list[Any]:
        """The outputs that are no caches, in memory of their own, like `like`. given: by name."""
        c, p = self._context, self._program
        out = (c_void_p * len(p.outputs))()
        with arrays.Views(c) as views:
            at = {name: views.add(arrays.describe(x, f"input '{name}'")) for name, x in given.items()}
            c.check(lib.quern_state_run(self._handle, views.handles([at.get(n) for n in p.inputs]), len(p.inputs), out, len(out)))
        return [arrays.adopt(c, c_void_p(o), like) for o in out if o]

    def __del__(self) -> None:
        if getattr(self, "_handle", None) and self._context.is_ours():
            lib.quern_state_destroy(self._handle)
