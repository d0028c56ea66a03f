# SPDX-License-Identifier: Apache-2.0
"""Single operators of ONNX, or of the library, on arrays of any strides."""
from __future__ import annotations

import functools
import os
import threading
from ctypes import byref
from typing import Any, Mapping, Sequence

from . import _arrays as arrays
from ._library import Array, Context, Error, OperatorFacts, OpOpts, cache_path, lib, log, said, text


def attribute(name: str, value: Any) -> str:
    """An attribute in the text form of graphs (doc/graph-ir.md)."""
    if isinstance(value, str):
        return '"' + "".join(c if c.isprintable() and c not in '"\\' and ord(c) < 128 else
                             "".join(f"\\x{b:02x}" for b in c.encode()) for c in value) + '"'
    if isinstance(value, (bool, int)):
        return str(int(value))
    if isinstance(value, float):
        return repr(value) if any(c in repr(value) for c in ".einf") else repr(value) + ".0"
    if hasattr(value, "item") and getattr(value, "ndim", 0) == 0:  # a scalar of NumPy or PyTorch
        return attribute(name, value.item())
    try:
        parts = [p.item() if hasattr(p, "item") else p for p in value]
    except (TypeError, ValueError):
        parts = [None]
    if not all(isinstance(p, (str, int, float)) for p in parts) or len({isinstance(p, str) for p in parts}) > 1:
        raise TypeError(f"attribute '{name}' is {value!r}, expected an integer, a float, a string, or a list of one of them")
    kind = "strs" if parts and isinstance(parts[0], str) else "floats" if any(isinstance(p, float) for p in parts) else ""
    if kind == "floats":
        parts = [float(p) for p in parts]
    return kind + "[" + ", ".join(attribute(name, p) for p in parts) + "]"


def attributes_of(declared: str) -> dict[str, str]:
    """"axis:int pads:ints" as a dictionary."""
    return dict(one.split(":", 1) for one in declared.split())


def operators() -> dict[str, dict[str, Any]]:
    """The operators that `Operator` can run.

    Returns
    -------
    dict
        By name ("Conv", "com.microsoft::FusedConv", "quern::WeightedFilter"): `attributes`, a dictionary of names and kinds ("int", "floats",
        "ints|strings" ...), `types`, the element types of the first input, and `opset`, ONNX's version that introduced it (0: of another domain).
    """
    found, k, x = {}, 0, OperatorFacts()
    while lib.quern_operator_at(k, byref(x)):
        if x.form not in (b"", b"import", b"program"):
            types = [arrays.type_name(t) for t in range(64) if x.types >> t & 1]
            found[said(x.name)] = dict(attributes=attributes_of(said(x.attributes)), types=types, opset=x.opset)
        k, x = k + 1, OperatorFacts()
    return found


class Shared:
    """The context of all operators of this process, with the file that caches their kernels."""

    def __init__(self, file: str) -> None:
        self.context = Context(level=0)  # that nothing was measured yet is no news
        try:
            self.db = self.context.database(file)
        except (Error, OSError) as e:
            log.warning("kernels are not kept: %s", e)
            self.db = self.context.database(":memory:")


lock = threading.Lock()


def unlock_child() -> None:
    """Another thread may have held the lock at the time of a fork."""
    global lock
    lock = threading.Lock()


os.register_at_fork(after_in_child=unlock_child)


@functools.lru_cache(maxsize=None)
def shared_of(pid: int, file: str) -> Shared:
    return Shared(file)


def shared(file: str | None) -> Shared:
    with lock:
        return shared_of(os.getpid(), file or cache_path())


class Operator:
    """One operator of ONNX, or of the library, as a function of arrays.

    Parameters
    ----------
    name : str
        Of ONNX, "Conv", or of another domain, "com.microsoft::FusedConv", "quern::WeightedFilter". `quern.operators()` lists them.
    attributes : dict, optional
        Integers, floats, strings, and lists of them by name. A name that the operator does not have, or a value of another kind than it
        has, is an `Error`.
    sizes : str, optional
        Sizes that may change from call to call without building a new kernel, of each input: "N:?:H:W,?:?:?:?". The same name is the same
        size; '?' is a constant of the kernel.
    device : str, optional
        "cpu", a driver's name, "cuda:1" (its second device), or a pattern over device names.
    threads : int, optional
        0: all processors.
    outputs : int, optional
        The number of outputs to compute.
    database : str, optional
        The file with built kernels and times; None: `quern.cache_path()`.

    Notes
    -----
    Arrays of NumPy and tensors of PyTorch have any strides and are used in place if they are dense (row-major or channels last). An
    operator on a CUDA (or ROCm) device takes tensors of PyTorch there in the order of the current stream, and arrays of other packages by
    `__cuda_array_interface__` (CuPy) or DLPack. Calls from several threads wait for each other. In a child after a fork, and where it was
    unpickled, it is opened again.

    Examples
    --------
    >>> conv = quern.Operator("Conv", {"pads": [1, 1, 1, 1]}, sizes="N:?:H:W,?:?:?:?")
    >>> y = conv(x, w)
    """

    shared: Shared | None = None  # of one that could not be made, too
    handle: Any = None

    def __init__(self, name: str, attributes: Mapping[str, Any] | None = None, sizes: str | None = None, device: str | None = None, threads: int = 0,
                 outputs: int = 1, database: str | None = None) -> None:
        self.name, self.outputs, self.database = name, outputs, database
        self.attributes = ", ".join(f"{k}={attribute(k, v)}" for k, v in (attributes or {}).items())
        self.options = dict(device=text(device), threads=threads, sizes=text(sizes))
        self._arguments = (name, dict(attributes or {}), sizes, device, threads, outputs, database)
        self._open()

    def __repr__(self) -> str:
        _, attributes, sizes, device, *_ = self._arguments
        more = "".join(f", {n}={v!r}" for n, v in (("sizes", sizes), ("device", device)) if v is not None)
        return f"quern.Operator({self.name!r}{', ' + repr(attributes) if attributes else ''}{more})"

    def __reduce__(self) -> tuple[Any, ...]:
        return (Operator, self._arguments)

    def _open(self) -> Context:
        """The context, with the operator open in it: again after a fork."""
        if self.shared and self.shared.context.is_ours():
            return self.shared.context
        self.shared = shared(self.database)
        c = self.shared.context
        with c.lock:
            self.handle = c.make(lib.quern_op_open, c.handle, text(self.name), text(self.attributes),
                                 byref(OpOpts(db=self.shared.db, **self.options)))
        return c

    def shape(self, *inputs: Any) -> list[tuple[tuple[int, ...], int]]:
        """The shape of each output and the library's number of its element type."""
        return [(arrays.sizes_of(a), a.type) for a in self._shape([None if a is None else arrays.as_array(a) for a in inputs], None)]

    def _shape(self, inputs: Sequence[Any], wanted: Sequence[bool] | None) -> Any:
        """The outputs without memory; those that are not wanted have rank -1."""
        c, x, y = self._open(), arrays.describe_all("input", inputs, arrays.device_of(*inputs)), (Array * self.outputs)()
        for a, is_wanted in zip(y, wanted or ()):
            a.rank = 0 if is_wanted else -1
        with c.lock:
            c.check(lib.quern_op_shape(self.handle, x, len(inputs), y, self.outputs))
        return y

    def run(self, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
        """Writes into given arrays.

        Parameters
        ----------
        inputs : sequence
            Arrays; None: an omitted optional input.
        outputs : sequence
            Arrays of the right shapes, of any strides, which do not overlap with the inputs; None: omitted.
        """
        inputs = [None if a is None else arrays.as_array(a) for a in inputs]
        self._run(inputs, [None if a is None else arrays.as_array(a) for a in outputs], [])

    def _run(self, inputs: Sequence[Any], outputs: Sequence[Any], kinds: Sequence[int]) -> None:
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

    def __call__(self, *inputs: Any) -> Any:
        """Runs it.

        Parameters
        ----------
        *inputs
            Arrays; None: an omitted optional input.

        Returns
        -------
        array or tuple
            New arrays of the same kind as the first input.
        """
        out = self.compute([None if a is None else arrays.as_array(a) for a in inputs])
        return out[0] if self.outputs == 1 else tuple(out)

    def compute(self, inputs: Sequence[Any], wanted: Sequence[bool] | None = None) -> list[Any]:
        """New arrays for the outputs that are wanted (None: all), and None for the others."""
        y = self._shape(inputs, wanted)
        like = next((a for a in inputs if a is not None), None)
        out = [None if a.rank < 0 else arrays.empty(arrays.sizes_of(a), a.type, like) for a in y]
        self._run(inputs, [None if a is None else arrays.as_array(a) for a in out], [a.type if a.rank >= 0 else 0 for a in y])
        return out

    def __del__(self) -> None:
        if self.handle and self.shared and self.shared.context.is_ours():
            with self.shared.context.lock:
                lib.quern_op_close(self.handle)
