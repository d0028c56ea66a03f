# SPDX-License-Identifier: Apache-2.0
"""Deployments: a network over several devices, written as files."""
from __future__ import annotations

import os
from ctypes import byref, c_char_p, c_void_p, cast, pointer, sizeof
from typing import Any, Iterable, Mapping, Sequence

from . import _arrays as arrays
from ._allocate import sources
from ._inputs import order
from ._library import CompileOpts, Context, DeployOpts, SampleFn, TuneOpts, lib, text
from ._program import Model, open_model, target
from ._progress import reporter

NOTHING, USAGE = 3, 2  # of enum quern_status


class Samples:
    """Calibration data as the library asks for it: a sequence whose elements have an array for each input, by position or by name, or one array."""

    def __init__(self, c: Context, model: c_void_p, samples: Iterable[Any]) -> None:
        self.context, self.all = c, list(samples)
        self.failure: BaseException | None = None
        self.names = [lib.quern_model_input_name(model, k).decode() for k in range(lib.quern_model_inputs(model))]
        self.function = SampleFn(self.read)

    def ordered(self, k: int) -> list[Any]:
        s = self.all[k]
        if isinstance(s, Mapping):
            return order(self.names, (), s)
        return order(self.names, s if isinstance(s, (tuple, list)) else (s,), {})

    def read(self, user: Any, k: int, out: Any, n: int) -> int:
        if k >= len(self.all):
            return NOTHING
        try:
            for i, x in enumerate(self.ordered(k)):
                a = arrays.describe(arrays.dense(arrays.as_array(x)), f"sample {k}, input '{self.names[i]}'")
                slot = c_void_p.from_address(out + i * sizeof(c_void_p))
                self.context.check(lib.quern_tensor_new(self.context.handle, a.type, a.rank, a.dim, a.data or 64, byref(slot)))
        except BaseException as e:  # which must not leave the callback
            self.failure = e
            return USAGE
        return 0


def deploy(model: Model, path: str | os.PathLike[str], allocation: str | os.PathLike[str] | Mapping[str, str] | None = None,
           devices: str | Sequence[str] = (), name: str | None = None, samples: Iterable[Any] | None = None, f16: bool = False,
           fallback: bool = False, packed: bool = False, tools: bool = True, key: str | os.PathLike[str] | None = None,
           database: str | os.PathLike[str] | None = None, seconds: float = 0, sizes: Mapping[str, int] | None = None,
           assume: Mapping[str, Any] | None = None, isa: str | None = None, external_data_links: bool = False, progress: Any = None) -> str:
    """Divides a network over several devices and writes what runs on each.

    Parameters
    ----------
    model : path or bytes
        An .onnx file, or its content.
    path : path
        The folder in which the deployment's own is created; if `packed`, the file.
    allocation : dict or path, optional
        {"conv2d_2": "X64:0", "add_5": "NVIDIA:0"}: a device for each operator, or a JSON file of it (`quern.allocate` makes one); None: the
        first of `devices` runs everything.
    devices : str or sequence of str, optional
        "X64:0", "INTELGPU:0=device:*llvmpipe*;slowdown:3": devices with settings (doc/allocation.md).
    name : str, optional
        Of the deployment; None: the network's.
    samples : iterable, optional
        Calibration data for devices whose tools quantise: each element is a tuple with an array (or tensor) for each input, or a dictionary by name.
    f16 : bool, optional
        Floats are f16 in inputs, outputs and between kernels.
    fallback : bool, optional
        Sub-graphs for other devices get a program for the processor, too.
    packed : bool, optional
        Write one file instead of a folder.
    tools : bool, optional
        False: do not run vendors' converters that are on PATH.
    key : path, optional
        The private key to sign with.
    database, sizes, assume, isa, external_data_links
        As of `quern.compile`. With `seconds`, each sub-graph is tuned for so long before.
    progress : optional
        As of `quern.tune`; the events are the steps.

    Returns
    -------
    str
        The folder, or the file.
    """
    if seconds and not database:
        raise ValueError("seconds are given without a database for the measurements: pass database='net.db'")
    report, end = reporter(progress, "deploying")
    c = Context(on_progress=report)
    try:
        db = c.database(os.fspath(database)) if database else None
        m = open_model(c, model, sizes, assume, external_data_links)
        try:
            given, file = sources(allocation)
            write(c, m, db, path, devices, samples, seconds, isa,
                  DeployOpts(name=text(name), allocation=given, allocation_file=file, f16=f16, fallback=fallback, packed=packed, no_tools=not tools, key=text(key)))
            return os.fspath(path) if packed else os.path.join(os.fspath(path), name or name_of(model))
        finally:
            lib.quern_model_close(m)
    finally:
        end()
        c.close()


def name_of(model: Model) -> str:
    """The name that the library gives a model."""
    return "model" if isinstance(model, (bytes, bytearray, memoryview)) else os.path.splitext(os.path.basename(os.fspath(model)))[0]


def write(c: Context, m: c_void_p, db: c_void_p | None, path: Any, devices: str | Sequence[str], samples: Iterable[Any] | None,
          seconds: float, isa: str | None, o: DeployOpts) -> None:
    names = devices.split(",") if isinstance(devices, str) else list(devices)
    listed = (c_char_p * (len(names) + 1))(*[text(n) for n in names], None)
    o.devices = cast(listed, c_void_p)
    given = Samples(c, m, samples) if samples is not None else None
    if given:
        o.sample = given.function
    o.compile = pointer(CompileOpts(target=target(isa)))
    if seconds:
        o.tune = pointer(TuneOpts(timeout=seconds, target=target(isa)))
    try:
        c.wait(lib.quern_deploy, m, db, text(path), byref(o))
    except Exception as e:
        if given and given.failure:
            raise given.failure from e
        raise
