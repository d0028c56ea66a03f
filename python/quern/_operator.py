# SPDX-License-Identifier: Apache-2.0
"""Single operators of ONNX, or of the library, on arrays of any strides."""
import functools
import os
import threading
from ctypes import byref

from . import _arrays as arrays
from ._library import Array, Context, Error, OpOpts, cache_path, lib, log, text


def attribute(value):
    """An attribute in the text form of graphs (doc/graph-ir.md)."""
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
    """The context of all operators of this process, with the file that caches their kernels."""

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
    sizes       sizes that may change from call to call without building a new kernel: "N:?:H:W,?:?:?:?", see quern_op_opts
    device      "cpu", a driver's name, "cuda:1" (its second device), or a pattern over device names
    threads     0: all processors
    outputs     number of outputs to compute
    database    file with built kernels and times; None: cache_path()

    An operator on a CUDA (or ROCm) device uses dense tensors there in place, row-major or channels last, in the order of PyTorch's
    current stream. Calls from several threads wait for each other. In a child after a fork it is opened again.
    """

    shared = handle = None  # of one that could not be made, too

    def __init__(self, name, attributes=None, sizes=None, device=None, threads=0, outputs=1, database=None):
        self.name, self.outputs, self.database = name, outputs, database
        self.attributes = ", ".join(f"{k}={attribute(v)}" for k, v in (attributes or {}).items())
        self.options = dict(device=text(device), threads=threads, sizes=text(sizes))
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
        """The shape of each output and the library's number of its element type."""
        return [(tuple(a.dim[:a.rank]), a.type) for a in self._shape(inputs)]

    def _shape(self, inputs):
        c, x, y = self._open(), arrays.describe_all("input", inputs, arrays.device_of(*inputs)), (Array * self.outputs)()
        with c.lock:
            c.check(lib.quern_op_shape(self.handle, x, len(inputs), y, self.outputs))
        return y

    def run(self, inputs, outputs):
        """Writes into given arrays of the right shapes, which must not overlap with the inputs."""
        self._run(inputs, outputs, [])

    def _run(self, inputs, outputs, kinds):
        """kinds: the outputs' element types if known, since NumPy lacks some types."""
        c, device = self._open(), arrays.device_of(*inputs, *outputs)
        x, y = arrays.describe_all("input", inputs, device), arrays.describe_all("output", outputs, device)
        for a, kind in zip(y, kinds):
            a.type = kind
        with c.lock:
            if device is None:
                c.check(lib.quern_op_run(self.handle, x, len(inputs), y, len(outputs)))
            else:
                c.check(lib.quern_op_enqueue(self.handle, x, len(inputs), y, len(outputs), arrays.stream_of(device)))

    def __call__(self, *inputs):
        """None is an omitted optional input. Returns new arrays of the same kind as the first input: one, or a tuple."""
        inputs = [None if a is None else arrays.as_array(a) for a in inputs]
        like = next((a for a in inputs if a is not None), None)
        described = self._shape(inputs)
        outputs = arrays.empty_all(described, like)
        self._run(inputs, outputs, [a.type for a in described])
        return outputs[0] if self.outputs == 1 else outputs

    def __del__(self):
        if self.handle and self.shared.context.is_ours():
            with self.shared.context.lock:
                lib.quern_op_close(self.handle)
