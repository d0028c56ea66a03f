# SPDX-License-Identifier: Apache-2.0
"""One operator of ONNX, or of the library, on arrays of any strides."""
import functools
import os
import threading
from ctypes import byref

from . import _arrays as arrays
from ._library import Array, Context, Error, OpOpts, cache_path, lib, log, text


def attribute(value):
    """As the text of graphs has it (doc/graph-ir.md)."""
    if isinstance(value, str):
        return '"' + "".join(c if c.isprintable() and c not in '"\\' and ord(c) < 128 else
                             "".join(f"\\x{b:02x}" for b in c.encode()) for c in value) + '"'
    if isinstance(value, bool):
        return str(int(value))
    if isinstance(value, float):
        return repr(value) if any(c in repr(value) for c in ".einf") else repr(value) + ".0"
    if isinstance(value, int):
        return str(value)
    parts = list(value)
    kind = "strs" if parts and isinstance(parts[0], str) else "floats" if any(isinstance(p, float) for p in parts) else ""
    if kind == "floats":
        parts = [float(p) for p in parts]
    return kind + "[" + ", ".join(attribute(p) for p in parts) + "]"


class Shared:
    """The context of all operators of this process, with the file that keeps their kernels."""

    def __init__(self, file):
        self.context = Context(level=0)  # that nothing was measured yet is no news
        try:
            self.db = self.context.database(file)
        except (Error, OSError) as e:
            log.warning("kernels are not kept: %s", e)
            self.db = self.context.database(":memory:")


lock = threading.Lock()


@functools.lru_cache(maxsize=None)
def shared_of(pid, file):
    return Shared(file)


def shared(file):
    with lock:
        return shared_of(os.getpid(), file or cache_path())


class Operator:
    """operator = Operator("Conv", {"pads": [1, 1, 1, 1]}); y = operator(x, w)

    name        of ONNX, or of the library: "quern::WeightedFilter"
    attributes  by name: integers, floats, strings, and lists of them
    sizes       which sizes may differ from call to call without building a kernel anew: "N:?:H:W,?:?:?:?", see quern_op_opts
    device      where it runs: "cpu", a driver's name, or a pattern for devices' names
    threads     0: all processors
    outputs     how many of its outputs are wanted
    database    file with built kernels and times; None: cache_path()

    Calls from several threads wait for each other. In a child after a fork it is opened anew.
    """

    def __init__(self, name, attributes=None, sizes=None, device=None, threads=0, outputs=1, database=None):
        self.name, self.outputs, self.database = name, outputs, database
        self.attributes = ", ".join(f"{k}={attribute(v)}" for k, v in (attributes or {}).items())
        self.options = dict(device=text(device), threads=threads, sizes=text(sizes))
        self.shared = self.handle = None
        self._open()

    def _open(self):
        if self.shared and self.shared.context.is_ours():
            return self.shared.context
        self.shared = shared(self.database)
        c = self.shared.context
        with c.lock:
            self.handle = c.make(lib.quern_op_open, c.handle, text(self.name), text(self.attributes),
                                 byref(OpOpts(db=self.shared.db, **self.options)))
        return c

    def shape(self, *inputs):
        """Of each output: its shape and the library's number of its element type."""
        c, n = self._open(), len(inputs)
        x = (Array * max(n, 1))(*[arrays.describe(a, f"input {k}") for k, a in enumerate(inputs)])
        y = (Array * self.outputs)()
        with c.lock:
            c.check(lib.quern_op_shape(self.handle, x, n, y, self.outputs))
        return [(tuple(a.dim[:a.rank]), a.type) for a in y]

    def run(self, inputs, outputs):
        """Into arrays that are there and have the right shapes; they must not overlap with the inputs."""
        c, n = self._open(), len(inputs)
        x = (Array * max(n, 1))(*[arrays.describe(a, f"input {k}") for k, a in enumerate(inputs)])
        y = (Array * len(outputs))(*[arrays.describe(a, f"output {k}") for k, a in enumerate(outputs)])
        with c.lock:
            c.check(lib.quern_op_run(self.handle, x, n, y, len(outputs)))

    def __call__(self, *inputs):
        """None is an optional input that is left out. New arrays of the same sort as the first input; one, or a tuple."""
        inputs = [None if a is None else arrays.as_array(a) for a in inputs]
        like = next((a for a in inputs if a is not None), None)
        outputs = tuple(arrays.empty(s, t, like) for s, t in self.shape(*inputs))
        self.run(inputs, outputs)
        return outputs[0] if self.outputs == 1 else outputs

    def __del__(self):
        if self.handle and self.shared.context.is_ours():
            with self.shared.context.lock:
                lib.quern_op_close(self.handle)
