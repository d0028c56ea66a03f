# SPDX-License-Identifier: Apache-2.0
"""Allocations: which device runs which operator of a network, and what is expected of it."""
from __future__ import annotations

import json
import os
from ctypes import byref, c_char_p, c_void_p, cast
from typing import Any, Mapping, NamedTuple, Sequence

from ._library import AllocateOpts, Context, Handle, PlacementFn, lib, text
from ._program import Model, open_model
from ._progress import reporter


class SubgraphTime(NamedTuple):
    """A sub-graph of an allocation: `start` and `seconds` are expected of a request that runs alone."""
    device: str
    first: str
    last: str
    n_ops: int
    n_inputs: int
    n_outputs: int
    start: float
    seconds: float


class DeviceLoad(NamedTuple):
    """Expected seconds per request."""
    device: str
    n_ops: int
    n_subgraphs: int
    busy: float


class Allocation(dict):  # type: ignore[type-arg]
    """A device for each operator, in topological order: {"conv2d_2": "X64:0", "add_5": "NVIDIA:0"}.

    Attributes, None where nothing was predicted:
    aim, value: what was minimised, and its value; latency, period: seconds of a request alone, and between requests of a stream; joules;
    bound: no allocation can have less (0: unknown); single, single_value: the best device for everything;
    subgraphs, devices: lists of SubgraphTime and DeviceLoad; is_minimal: no division into fewer sub-graphs; n_tried, n_compiled, is_cut_short.
    """
    aim: str | None = None
    value: float | None = None
    latency: float | None = None
    period: float | None = None
    joules: float | None = None
    bound: float | None = None
    single: str | None = None
    single_value: float | None = None
    is_minimal: bool | None = None
    n_tried: int | None = None
    n_compiled: int | None = None
    is_cut_short: bool | None = None
    subgraphs: list[SubgraphTime] | None = None
    devices: list[DeviceLoad] | None = None

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the JSON file that `quern deploy` and `quern graph` read."""
        with open(path, "w", encoding="utf-8") as f:
            json.dump(self, f, indent=2)
            f.write("\n")

    def see(self, x: Any) -> None:
        """Takes the library's report."""
        self.aim, self.value, self.latency, self.period = x.aim.decode(), x.value, x.latency, x.period
        self.joules = x.joules or None
        self.bound, self.n_tried, self.n_compiled = x.bound, x.n_tried, x.n_compiled
        self.single = x.single.decode() if x.single else None
        self.single_value = x.single_value if x.single else None
        self.is_minimal, self.is_cut_short = bool(x.is_minimal), bool(x.is_cut_short)
        self.subgraphs = [SubgraphTime(s.device.decode(), s.first.decode(), s.last.decode(), s.n_ops, s.n_inputs, s.n_outputs, s.start, s.seconds)
                          for s in x.subgraph[:x.n_subgraphs]]
        self.devices = [DeviceLoad(d.device.decode(), d.n_ops, d.n_subgraphs, d.busy) for d in x.device[:x.n_devices]]


def allocate(model: Model, devices: str | Sequence[str] = (), minimise: str = "latency", on: str | None = None,
             check: str | os.PathLike[str] | Mapping[str, str] | None = None, database: str | os.PathLike[str] | None = None, seconds: float = 0,
             report: bool | None = None, sizes: Mapping[str, int] | None = None, assume: Mapping[str, Any] | None = None,
             external_data_links: bool = False, progress: Any = None) -> Allocation:
    """Chooses the device of each operator of a network (doc/allocation.md).

    Parameters
    ----------
    model : path or bytes
        An .onnx file, or its content.
    devices : str or sequence of str
        "X64:0", "NVIDIA:0", "INTELGPU:0=device:*llvmpipe*;slowdown:3": devices with settings.
    minimise : str, optional
        "latency" of a request, "throughput" of a stream (the time between requests), or "energy".
    on : str, optional
        A device for everything: no search.
    check : dict or path, optional
        An allocation, or its JSON file, to be checked: no search.
    database : path, optional
        Measurements; times are predicted where it has none.
    seconds : float, optional
        What the search may take; 0: until it has converged.
    report : bool, optional
        Predict the times of `on` or `check`, too; of a search they always are.
    sizes, assume, external_data_links
        As of `quern.compile`.
    progress : optional
        As of `quern.tune`.

    Returns
    -------
    Allocation
        A dictionary, with what is expected as attributes.
    """
    if on is not None and check is not None:
        raise ValueError("an allocation is either made for one device (on) or checked (check)")
    names = devices.split(",") if isinstance(devices, str) else list(devices)
    tell, end = reporter(progress, "placing")
    c = Context(on_progress=tell)
    try:
        db = c.database(os.fspath(database)) if database else None
        m = open_model(c, model, sizes, assume, external_data_links)
        try:
            given, file = sources(check)
            return run(c, m, db, names, AllocateOpts(on=text(on), check=given, check_file=file, minimise=text(minimise), seconds=seconds),
                       on is None and check is None if report is None else report)
        finally:
            lib.quern_model_close(m)
    finally:
        end()
        c.close()


def sources(allocation: Any) -> tuple[bytes | None, bytes | None]:
    """An allocation as the library takes it: JSON of a dictionary, or the path of a file."""
    return (json.dumps(dict(allocation)).encode(), None) if isinstance(allocation, Mapping) else (None, text(allocation))


def run(c: Context, m: c_void_p, db: c_void_p | None, devices: Sequence[str], o: AllocateOpts, wants_report: bool) -> Allocation:
    """Calls the library."""
    found, out = Allocation(), c_void_p()
    listed = (c_char_p * (len(devices) + 1))(*[text(d) for d in devices], None)
    function = PlacementFn(lambda user, x: found.see(x.contents))
    o.devices = cast(listed, c_void_p)
    if wants_report:
        o.report = function
    c.wait(lib.quern_allocate, m, db, byref(o), byref(out))
    found.update(json.loads(cast(out, c_char_p).value or b"{}"))
    lib.quern_text_free(out)
    return found
