# SPDX-License-Identifier: Apache-2.0
"""Deployments: networks divided over several devices, and requests that run them."""
from __future__ import annotations

import ctypes
import itertools
import logging
import os
import threading
import weakref
from concurrent.futures import Future
from ctypes import byref, c_char_p, c_int, c_int64, c_void_p
from dataclasses import dataclass
from typing import Any, Callable, Mapping, Sequence

import numpy as np

from . import _arrays as arrays
from ._inputs import order
from ._library import STATUS, Context, DeploymentOpts, DeploymentValue, DoneFn, Error, SubgraphFacts, lib, said, text

log = logging.getLogger("quern")
PROFILES = {None: 0, "steps": 1, "layers": 2}
STATES = ("listed", "ready", "fallback")
Done = Callable[["Request", "Error | None"], object]


@dataclass(frozen=True)
class Value:
    """An input or output of a deployment."""
    name: str                     # in the network
    tensor: str                   # in the deployment
    dtype: str
    shape: tuple[int | str, ...]  # numbers, and expressions of symbolic sizes


@dataclass(frozen=True)
class Subgraph:
    """What one device runs.

    Attributes
    ----------
    name, device, framework, target : str
        "Subgraph_0", "X64:0", what runs it ("native", "vulkan" ...), what it was made for.
    state : str
        "ready", "fallback" (it runs on the CPU instead, `why` says the reason) or "listed".
    missing : str
        What has to be done before it can run; empty: nothing.
    operators, files : tuple of str
        Names of its operators, and paths of its files.
    expected, seconds : float
        Seconds of a run: as expected when it was made (0: unknown), and the mean of its `runs`.
    """
    name: str
    device: str
    framework: str
    target: str
    state: str
    why: str
    missing: str
    operators: tuple[str, ...]
    files: tuple[str, ...]
    expected: float
    runs: int
    seconds: float


class Deployment:
    """A network divided over several devices: called with one array for each input, it returns its outputs, as a Program does.

    Parameters
    ----------
    path : str or path
        The folder of a deployment, or a packed file.
    threads : int
        Of all processor instances (X64:0, X64:1 ...) together; 0: one per processor.
    fallback : bool
        Run on the CPU what is for a device that is absent or fails, if the deployment has programs for it. A warning is logged.
    devices : dict, optional
        Which device here an instance is: ``{"INTELGPU:0": "*llvmpipe*"}``.
    require_signature, trusted
        As for `quern.load`.
    profile : "steps" or "layers", optional
        Record what runs when, for `trace`; layers, too, takes longer.

    Notes
    -----
    Requests share the weights and overlap: each device runs a sub-graph of one request while other devices run those of others. Calls from several threads,
    `submit` and `request` all do that. A deployment does not survive a fork.

    Examples
    --------
    >>> net = quern.Deployment("outputs/MediapipeNet")
    >>> y = net(x)
    >>> futures = [net.submit(x) for x in pictures]
    >>> results = [f.result() for f in futures]
    """

    def __init__(self, path: str | os.PathLike[str], *, threads: int = 0, fallback: bool = False, devices: Mapping[str, str] | None = None,
                 require_signature: bool = False, trusted: str | os.PathLike[str] | None = None, profile: str | None = None) -> None:
        if profile not in PROFILES:
            raise ValueError(f"profile is {profile!r}, expected None, 'steps' or 'layers'")
        places = [f"{name}={device}".encode() for name, device in (devices or {}).items()]
        o = DeploymentOpts(threads=threads, fallback=int(fallback), devices=(c_char_p * (len(places) + 1))(*places, None),
                           require_signature=int(require_signature), trusted=text(trusted), profile=PROFILES[profile])
        self._context = c = Context()
        self._handle: Any = None
        with c.lock:
            self._handle = c.make_long(lib.quern_deployment_close, lib.quern_deployment_open, c.handle, text(path), byref(o))
            self._inputs = [self._value(0, k) for k in range(lib.quern_deployment_inputs(self._handle))]
            self._outputs = [self._value(1, k) for k in range(lib.quern_deployment_outputs(self._handle))]
        self.name = said(lib.quern_deployment_name(self._handle))
        self.inputs = [v.name for v in self._inputs]
        self.outputs = [v.name for v in self._outputs]
        self._idle: list[Request] = []
        self._busy: set[Request] = set()  # of submit
        self._lock = threading.Lock()

    def __del__(self) -> None:
        self._idle = []
        if getattr(self, "_handle", None):
            lib.quern_deployment_close(self._handle)
            self._handle = None

    def _value(self, is_output: int, k: int) -> Value:
        v = DeploymentValue()
        self._context.check(lib.quern_deployment_value(self._handle, is_output, k, byref(v)))
        shape = tuple(v.dim[d] if v.dim[d] >= 0 else said(v.sym[d]) for d in range(v.rank))
        return Value(said(v.origin) or said(v.name), said(v.name), arrays.type_name(v.type), shape)

    @property
    def input_values(self) -> list[Value]:
        """The inputs, with types and shapes."""
        return list(self._inputs)

    @property
    def output_values(self) -> list[Value]:
        """The outputs, likewise."""
        return list(self._outputs)

    @property
    def devices(self) -> list[str]:
        """Names of the device instances."""
        names: list[str] = []
        while (name := lib.quern_deployment_device(self._handle, len(names))) is not None:
            names.append(said(name))
        return names

    @property
    def subgraphs(self) -> list[Subgraph]:
        """The sub-graphs in an order in which they can run, with what is known of them now."""
        found: list[Subgraph] = []
        x = SubgraphFacts()
        while lib.quern_deployment_subgraph(self._handle, len(found), byref(x)):
            k = len(found)
            found.append(Subgraph(said(x.name), said(x.device), said(x.framework), said(x.target), STATES[x.state], said(x.why), said(x.missing),
                                  tuple(said(lib.quern_subgraph_operator(self._handle, k, i)) for i in range(x.operators)),
                                  tuple(said(lib.quern_subgraph_file(self._handle, k, i, None, None)) for i in range(x.files)),
                                  x.expected, x.runs, x.seconds))
        return found

    def request(self) -> Request:
        """A request of its own, for arrays that are filled in place, callbacks, and runs without copies."""
        return Request(self)

    def _take(self) -> Request:
        with self._lock:
            r = self._idle.pop() if self._idle else Request(self)
            self._busy.add(r)
            return r

    def _give_back(self, r: Request) -> None:
        with self._lock:
            self._busy.discard(r)
            self._idle.append(r)

    def submit(self, *inputs: Any, **named: Any) -> Future[Any]:
        """Starts a run and returns at once.

        Returns
        -------
        concurrent.futures.Future
            Of the output, or a tuple of them; `asyncio.wrap_future` waits for it in a coroutine. It cannot be cancelled.

        Raises
        ------
        Error, TypeError
            An input is missing, or of another type or shape. Failures of the run are the future's.
        """
        given = order(self.inputs, inputs, named)
        result: Future[Any] = Future()
        result.set_running_or_notify_cancel()
        r = self._take()
        result.request = r  # type: ignore[attr-defined]  # lives as long as somebody waits

        def done(own: Request, error: Error | None) -> None:
            if error is not None:
                self._give_back(own)
                return result.set_exception(error)
            y = [own.output(k).copy() for k in range(len(self.outputs))]
            self._give_back(own)
            return result.set_result(y[0] if len(y) == 1 else tuple(y))

        try:
            for k, x in enumerate(given):
                r.set_input(k, x)
            r.on_done(done)
            r.start()
        except BaseException:
            self._give_back(r)
            raise
        return result

    def __call__(self, *inputs: Any, **named: Any) -> Any:
        """Runs once; one array, or a tuple of several outputs."""
        return self.submit(*inputs, **named).result()

    def trace(self, path: str | os.PathLike[str]) -> None:
        """With `profile`: writes what ran when, as Chrome's trace format (JSON), which Perfetto reads, or as a chart if the path ends in .svg."""
        with self._context.lock:
            self._context.check(lib.quern_deployment_trace(self._handle, text(path)))

    def __repr__(self) -> str:
        return f"<quern.Deployment {self.name!r} on {', '.join(self.devices)}>"


class Request:
    """One run of a deployment at a time, with arrays of its own. Made by `Deployment.request`; it belongs to one thread at a time."""

    def __init__(self, deployment: Deployment) -> None:
        c = deployment._context
        with c.lock:
            self._handle: Any = c.make(lib.quern_request_create, deployment._handle)
        self._deployment = deployment
        self._done: Done | None = None
        self._key = next(keys)
        requests[self._key] = self

    def __del__(self) -> None:
        if getattr(self, "_handle", None):
            lib.quern_request_destroy(self._handle)
            self._handle = None

    def _check(self, status: int) -> None:
        if status:
            raise Error(said(lib.quern_request_error(self._handle)), STATUS.get(status, "FAILED"))

    def _array(self, tensor: Any) -> np.ndarray[Any, Any]:
        """The memory of a tensor of the request, which it keeps."""
        kind = arrays.numpy_type(lib.quern_tensor_dtype(tensor))
        dims = lib.quern_tensor_dims(tensor)
        shape = tuple(dims[d] for d in range(lib.quern_tensor_rank(tensor)))
        n = int(np.prod(shape, dtype=np.int64)) * kind.itemsize
        memory: Any = (ctypes.c_char * n).from_address(lib.quern_tensor_data(tensor))
        memory._quern_request = self
        return np.ndarray(shape, kind, memory)

    def input(self, k: int, shape: Sequence[int] | None = None) -> np.ndarray[Any, Any]:
        """The memory of input k for this shape, to be filled; None: the network's, if it is fixed. Valid until the next call for this input."""
        t = c_void_p()
        dim = None if shape is None else (c_int64 * max(len(shape), 1))(*shape)
        self._check(lib.quern_request_input(self._handle, k, 0 if shape is None else len(shape), dim, byref(t)))
        return self._array(t)

    def set_input(self, k: int, x: Any) -> None:
        """Copies an array to input k. Raises TypeError if it has another type."""
        a, want = np.asarray(x.detach().cpu() if arrays.is_torch(x) else x), self._deployment._inputs[k]
        if arrays.of_numpy(a.dtype) is None or arrays.type_name(arrays.of_numpy(a.dtype) or 0) != want.dtype:
            raise TypeError(f"input '{want.name}' has type {a.dtype}, expected {want.dtype}: convert it by astype")
        np.copyto(self.input(k, a.shape), a)

    def output(self, k: int) -> np.ndarray[Any, Any]:
        """Output k after a success, in the request's memory: valid until its next start."""
        t = c_void_p()
        self._check(lib.quern_request_output(self._handle, k, byref(t)))
        return self._array(t)

    def on_done(self, function: Done | None) -> None:
        """Calls function(request, error) when a run is done, in a thread of the library; error is None after a success. It may start this request or others
        again, but not wait; its exceptions are logged."""
        self._done = function
        lib.quern_request_on_done(self._handle, call_done if function else DoneFn(0), self._key)

    def start(self) -> None:
        """Returns at once. Raises Error if an input is missing, or has another shape."""
        self._check(lib.quern_request_start(self._handle))

    def wait(self, seconds: float | None = None) -> bool:
        """Waits until the run is done, for at most so many seconds. True: it is done; False: the time was up (OptimaV2's wait returned True for that).
        Raises Error if it failed. Ctrl-C arrives between two tenths of a second."""
        done, left = c_int(), seconds
        while True:
            step = 0.1 if left is None else min(left, 0.1)
            self._check(lib.quern_request_wait(self._handle, step, byref(done)))
            if left is not None:
                left -= step
            if done.value or (left is not None and left <= 0):
                return bool(done.value)

    def cancel(self) -> None:
        """Ends the run with the error STOPPED after the sub-graphs that run now."""
        lib.quern_request_cancel(self._handle)


keys = itertools.count(1)
requests: weakref.WeakValueDictionary[int, Request] = weakref.WeakValueDictionary()


def tell_done(key: Any, handle: Any, status: int, message: bytes) -> None:
    """The library's callback of all requests: one, so that it outlives each of them."""
    r = requests.get(key)
    if r is None or r._done is None:
        return
    try:
        r._done(r, Error(said(message), STATUS.get(status, "FAILED")) if status else None)
    except BaseException:
        log.exception("callback of a request")


call_done = DoneFn(tell_done)
