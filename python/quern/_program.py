# SPDX-License-Identifier: Apache-2.0
"""Networks: compiled, tuned, loaded, run."""
from __future__ import annotations

import atexit
import os
import statistics
import time
import weakref
from ctypes import byref, c_int, c_void_p, pointer
from typing import Any, Callable, Iterator, Mapping, Sequence

from . import _arrays as arrays
from ._inputs import counted, order, sizes_text
from ._library import (Array, Check, CompileOpts, Context, Error, Facts, ModelOpts, Names, RunOpts, Sizes, Step, TargetOpts, TuneOpts, lib, said,
                       text)
from ._measurements import Check as OutputCheck
from ._measurements import Profile, Timing, Verification, duration, memory
from ._progress import reporter
from ._state import State

Model = Any  # a path, or the content of a file as bytes
Inputs = Any  # a sequence of arrays, a dictionary of them by name, or None: random ones

alive: weakref.WeakSet[Program] = weakref.WeakSet()


@atexit.register
def close_all() -> None:
    """Before the process ends: closing a program waits until the library, in a thread of its own, has written it to the user's cache. That must not go on
    while the process' libraries are unloaded."""
    for p in list(alive):
        with p._context.lock:
            p.__del__()


class Program:
    """A compiled network: called with one array for each input, it returns its outputs.

    `quern.compile` and `quern.load` return programs.

    Attributes
    ----------
    inputs, outputs : list of str
        Their names.

    Notes
    -----
    NumPy arrays, torch tensors on the CPU, and whatever has `__dlpack__`, `__array_interface__` or `__array__` are used in place if they are
    dense, and copied otherwise; results are arrays of NumPy, or tensors if the first input is one. Programs for a CUDA (or ROCm) device also take
    tensors there, in the order of PyTorch's current stream, and arrays of CuPy and others by `__cuda_array_interface__` or DLPack.

    *Threads.* A program may be called from several threads; the calls wait for each other, since they share its temporary memory. Other
    Python threads run meanwhile (the interpreter's lock is released). For calls that run at the same time, load the program once per thread.

    *Processes.* A program does not survive a fork: using it in the child raises RuntimeError. Load it in the child, or start processes
    by "spawn". It cannot be pickled: `save` it.

    Examples
    --------
    >>> net = quern.compile("resnet50.onnx")
    >>> y = net(x)
    >>> net.bench()
    <quern.Timing: 9.81 ms, the median of 98 runs from 9.62 ms to 11.2 ms>
    """

    inputs: list[str]
    outputs: list[str]

    def __init__(self, context: Context, handle: c_void_p, model: Model = None, opener: Callable[[Context, Model], c_void_p] | None = None) -> None:
        """model: the path of its network if it is known; opener: opens a network with the same options."""
        self._context, self._handle = context, handle
        alive.add(self)
        self._model, self._opener = model, opener
        self._timing: Timing | None = None
        self.inputs = [said(lib.quern_program_input_name(handle, k)) for k in range(lib.quern_program_inputs(handle))]
        self.outputs = [said(lib.quern_program_output_name(handle, k)) for k in range(lib.quern_program_outputs(handle))]

    # --- description ---

    def input_shape(self, k: int) -> tuple[int | str, ...]:
        """The shape of input k: numbers, and names of symbolic sizes."""
        return shape_of(lib.quern_program_input_shape, self._checked(), k)

    def input_dtype(self, k: int) -> str:
        """NumPy's name of the element type of input k."""
        return arrays.type_name(lib.quern_program_input_dtype(self._checked(), k))

    @property
    def input_shapes(self) -> dict[str, tuple[int | str, ...]]:
        """The shape of each input: numbers, and names of symbolic sizes."""
        return {name: self.input_shape(k) for k, name in enumerate(self.inputs)}

    @property
    def output_shapes(self) -> dict[str, tuple[int | str, ...]]:
        """The shape of each output: numbers, and expressions of the inputs' symbolic sizes. `shapes_for` computes them."""
        return {name: shape_of(lib.quern_program_output_shape, self._checked(), k) for k, name in enumerate(self.outputs)}

    @property
    def input_dtypes(self) -> dict[str, str]:
        """NumPy's name of the element type of each input."""
        return {name: self.input_dtype(k) for k, name in enumerate(self.inputs)}

    @property
    def output_dtypes(self) -> dict[str, str]:
        """NumPy's name of the element type of each output."""
        return {name: arrays.type_name(lib.quern_program_output_dtype(self._checked(), k)) for k, name in enumerate(self.outputs)}

    def shapes_for(self, *inputs: Any, **named: Any) -> dict[str, tuple[int | None, ...]]:
        """The shapes of the outputs for these inputs.

        Parameters
        ----------
        *inputs, **named
            Arrays, or their shapes.

        Returns
        -------
        dict
            By name; None: a size that depends on the inputs' content.
        """
        given, c = order(self.inputs, inputs, named), self._context
        x, y = (Array * max(len(given), 1))(), (Array * len(self.outputs))()
        for k, a in enumerate(given):
            dims = tuple(a) if isinstance(a, (tuple, list)) else tuple(a.shape)
            if len(dims) > 8:
                raise ValueError(f"input '{self.inputs[k]}' has {len(dims)} axes, expected up to 8")
            x[k].type, x[k].rank = lib.quern_program_input_dtype(self._checked(), k), len(dims)
            x[k].dim[:len(dims)] = dims
        with c.lock:
            self._check(lib.quern_program_shape(self._handle, x, len(given), y, len(y)))
        return {name: tuple(None if n < 0 else n for n in arrays.sizes_of(a)) for name, a in zip(self.outputs, y)}

    def _facts(self) -> Facts:
        f = Facts()
        with self._context.lock:
            self._context.check(lib.quern_program_facts(self._checked(), byref(f)))
        return f

    @property
    def device(self) -> str:
        """The driver that runs it: "cpu", "cuda" ..."""
        return said(self._facts().device)

    @property
    def fingerprint(self) -> str:
        """The device that runs it, by which measurements are kept: its model, driver and features."""
        return said(self._facts().fingerprint)

    @property
    def memory(self) -> int:
        """Bytes of weights and, after a run, of temporary memory."""
        return int(self._facts().constants) + int(lib.quern_program_memory(self._checked()))

    @property
    def predicted_seconds(self) -> float | None:
        """The expected time of a run for the sizes that kernels were selected for: the sum of the kernels' times, measured by tuning or predicted.
        None: unknown."""
        return self._facts().seconds or None

    @property
    def seconds(self) -> float | None:
        """The time of the last run by the device's clock. None: there was none, or it was only enqueued."""
        last = float(lib.quern_program_seconds(self._checked()))
        return last if last > 0 else None

    def __repr__(self) -> str:
        if not self._context.is_ours():
            return "<quern.Program of another process>"
        f = self._facts()
        name = f" '{said(f.model)}'" if f.model else ""
        place = " ".join(filter(None, (said(f.device) or "no device here", said(f.isa).split("+")[0])))  # without extensions
        used = lib.quern_program_memory(self._handle)
        parts = [" -> ".join(self._interface()),
                 place, (f"{memory(f.constants)} of weights" if f.constants else "no weights") + (f", {memory(used)} temporary" if used else "")]
        if f.seconds:
            at = f" at {said(f.sizes).replace(':', '=')}" if f.sizes else ""
            parts.append(f"{'tuned' if f.is_measured else 'predicted'} {duration(f.seconds)}{at}")
        measured = self._timing.median if self._timing else self.seconds
        if measured:
            parts.append(f"measured {duration(measured)}")
        return f"<quern.Program{name}: {'; '.join(parts)}>"

    def _interface(self) -> tuple[str, str]:
        """Inputs and outputs, "x float32[N,3], ..."."""
        def listed(names: Sequence[str], shapes: Mapping[str, Sequence[object]], dtypes: Mapping[str, str]) -> str:
            return ", ".join(f"{n} {dtypes[n]}[{','.join(map(str, shapes[n]))}]" for n in names)
        return listed(self.inputs, self.input_shapes, self.input_dtypes), listed(self.outputs, self.output_shapes, self.output_dtypes)

    def __reduce__(self) -> Any:
        raise TypeError("a program cannot be pickled or copied: save() it to a file, which quern.load() reads")

    # --- files ---

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes a .dnx file, which `quern.load` reads without a compiler."""
        with self._context.lock:
            self._context.check(lib.quern_program_save(self._checked(), text(path)))

    def explain(self) -> str:
        """The selected kernels, and the alternatives with their times."""
        with self._context.lock:
            return self._context.take_text(lib.quern_program_explain, self._checked())

    # --- measurements and checks ---

    def bench(self, inputs: Inputs = None, sizes: Mapping[str, int] | None = None, seconds: float = 1.0, warm_up: int = 3, seed: int = 0) -> Timing:
        """Measures runs on the host's memory, moving of data to and from the device included.

        Parameters
        ----------
        inputs : sequence or dict, optional
            Arrays; None: random ones.
        sizes : dict, optional
            Symbolic sizes of random inputs, {"H": 1080}; others are those that kernels were selected for.
        seconds : float, optional
            Time for all runs; there are three at least.
        warm_up : int, optional
            Runs before them.
        seed : int, optional
            Of random inputs.

        Returns
        -------
        Timing
            `median`, `min`, `mean`, `std`, `samples` ... in seconds.
        """
        with self._repeated(inputs, sizes, seed) as run:
            for _ in range(warm_up):
                run()
            samples: list[float] = []
            end = time.perf_counter() + seconds
            while len(samples) < 3 or time.perf_counter() < end:
                start = time.perf_counter()
                run()
                samples.append(time.perf_counter() - start)
        self._timing = Timing(samples)
        return self._timing

    def profile(self, inputs: Inputs = None, sizes: Mapping[str, int] | None = None, runs: int = 10, seed: int = 0) -> Profile:
        """Measures each kernel.

        Parameters
        ----------
        inputs, sizes, seed
            As of `bench`.
        runs : int, optional
            Times are medians of so many runs.

        Returns
        -------
        Profile
            A list of dictionaries, for pandas.DataFrame; in notebooks it is a table.
        """
        with self._repeated(inputs, sizes, seed) as run:
            run()
            steps = (Step * max(lib.quern_profile_steps(self._handle, None, 0), 1))()
            times = []
            try:
                for _ in range(max(runs, 1)):
                    lib.quern_profile(self._handle, 1)  # from zero
                    run()
                    n = lib.quern_profile_steps(self._handle, steps, len(steps))
                    times.append([s.seconds for s in steps[:n]])
            finally:
                lib.quern_profile(self._handle, 0)
        medians = [statistics.median(t) for t in zip(*times)]
        return Profile(step_row(s, t, sum(medians)) for s, t in zip(steps, medians))

    def verify(self, model: Model = None, sizes: Mapping[str, int] | None = None, seed: int = 0) -> Verification:
        """Compares its results on random inputs with the reference evaluation of the network, which accumulates in 64 bits (and is slow).

        Parameters
        ----------
        model : path or bytes, optional
            The network; None: the file that it was compiled from.
        sizes : dict, optional
            Symbolic sizes, {"H": 17}; others are those that kernels were selected for.
        seed : int, optional
            Of the inputs.

        Returns
        -------
        Verification
            True if all outputs are within the tolerance.
        """
        model = self._model if model is None else model
        if model is None:
            raise ValueError("the network of this program is not known: verify(model) needs its path or its bytes")
        c, n = self._context, c_int()
        checks = (Check * max(len(self.outputs), 1))()
        self._checked()
        with c.lock:
            m = self._opener(c, model) if self._opener else open_model(c, model, None, None, False)
            try:
                c.wait(lib.quern_verify, m, self._handle, text(sizes_text(sizes)), seed, checks, len(checks), byref(n))
            finally:
                lib.quern_model_close(m)
        return Verification(OutputCheck(said(k.output), k.n_bad, k.count, k.max_abs, k.max_rel, k.ulp, k.bound) for k in checks[:n.value])

    def _repeated(self, inputs: Inputs, sizes: Mapping[str, int] | None, seed: int) -> Repeated:
        """For measurements. sizes, seed: of random inputs; inputs: see bench()."""
        self._checked()
        if inputs is None:
            return Repeated(self, None, sizes_text(sizes), seed)
        given = self._ordered(inputs)
        return Repeated(self, [arrays.dense(arrays.as_array(a)) for a in given], None, seed)

    # --- running ---

    def state(self, maximum: int, sizes: Mapping[str, int] | None = None) -> State:
        """The program's caches between runs (doc/decoding.md).

        Parameters
        ----------
        maximum : int
            The most positions that they can hold.
        sizes : dict, optional
            Their other symbolic sizes, {"batch": 2}; 1 if not named.
        """
        self._checked()
        return State(self, maximum, sizes)

    def __call__(self, *inputs: Any, **named: Any) -> Any:
        """Runs it.

        Parameters
        ----------
        *inputs, **named
            Arrays by position, by name, or both.

        Returns
        -------
        array or tuple
            The output, or all of them.
        """
        given = [arrays.as_array(a) for a in order(self.inputs, inputs, named)]
        self._checked()
        device = arrays.device_of(*given)
        with self._context.lock:
            out = self._run_host([arrays.dense(a) for a in given]) if device is None else self._run_device(given, device)
        return out[0] if len(out) == 1 else tuple(out)

    def run(self, inputs: Inputs, outputs: Sequence[Any]) -> None:
        """Writes the results into given arrays, without allocating memory for them.

        Parameters
        ----------
        inputs : sequence or dict
            Arrays, in order or by name.
        outputs : sequence
            Dense arrays of the results' shapes and types. Those that are not on a device are in the host's memory, as all inputs are.
        """
        given, out = [arrays.as_array(a) for a in self._ordered(inputs)], [arrays.as_array(a) for a in outputs]
        self._checked()
        if len(out) != len(self.outputs):
            raise TypeError(f"the program has {counted(len(self.outputs), 'output')} ({', '.join(self.outputs)}), {len(out)} were given: one array for each")
        device = arrays.device_of(*given, *out)
        with self._context.lock:
            if device is not None:
                self._enqueue([arrays.on_device(x, row_major=True) for x in given], out, device)
                return
            for name, y in zip(self.outputs, out):
                arrays.check_place(y, f"output '{name}'", None)
                if not arrays.is_dense(y) or not getattr(getattr(y, "flags", None), "writeable", True):
                    raise ValueError(f"output '{name}' is not a dense array that can be written")
            self._run_host([arrays.dense(a) for a in given], out)

    def _ordered(self, inputs: Any) -> list[Any]:
        """A sequence or a dictionary of arrays as one for each input. Raises TypeError."""
        return order(self.inputs, (), inputs) if isinstance(inputs, Mapping) else order(self.inputs, tuple(inputs), {})

    def _checked(self) -> c_void_p:
        """The handle, in the process that it belongs to."""
        if not self._context.is_ours():
            raise RuntimeError("a program does not survive a fork of the process: load or compile it in the child, or start processes by "
                               "multiprocessing.get_context('spawn')")
        return self._handle

    def _check(self, status: int, given: Sequence[Any] = ()) -> None:
        """The context's check, whose errors of inputs also say what to pass instead. given: the inputs, if they are more than their shapes."""
        try:
            self._context.check(status)
        except Error as e:
            raise Error(f"{e}{self._instead(given)}" if e.status in ("INPUT", "USAGE") else str(e), e.status) from None

    def _instead(self, given: Sequence[Any]) -> str:
        """What to pass instead of these inputs: another type, if one has a wrong one, else the program's shapes."""
        for k, (name, x) in enumerate(zip(self.inputs, given)):
            expected = self.input_dtype(k)
            if arrays.kind_of(x) != lib.quern_program_input_dtype(self._handle, k):
                return f"; convert it, {name}.to(torch.{expected})" if arrays.is_torch(x) else f"; convert it, {name}.astype('{expected}')"
        inputs, outputs = self._interface()
        return f"; inputs are {inputs}, outputs {outputs}: named sizes may vary, numbers are fixed"

    def _check_device(self, device: Any) -> None:
        """Raises ValueError if the program cannot use a device's memory by address."""
        if self.device not in ("cuda", "hip"):  # elsewhere the library would take their addresses as the host's
            name = arrays.device_name(device)
            raise ValueError(f"arrays are on device '{name}', and the program is for '{self.device}': pass arrays in the host's memory, x.cpu(), or "
                             f"compile or load it with device='{name}'")

    def _run_device(self, inputs: Sequence[Any], device: Any) -> list[Any]:
        """New arrays on the device, ready in its stream."""
        self._check_device(device)
        inputs = [arrays.on_device(x, row_major=True) for x in inputs]
        x, y = arrays.describe_all("input", inputs, device), (Array * len(self.outputs))()
        self._check(lib.quern_program_shape(self._handle, x, len(inputs), y, len(y)))
        for name, a in zip(self.outputs, y):
            if any(n < 0 for n in arrays.sizes_of(a)):
                raise TypeError(f"the size of output '{name}' depends on the inputs' content: pass inputs in the host's memory")
        like = next(i for i in inputs if arrays.device_of(i) is not None)
        out = [arrays.empty(arrays.sizes_of(a), a.type, like) for a in y]
        self._enqueue(inputs, [arrays.as_array(a) for a in out], device)
        return out

    def _enqueue(self, inputs: Sequence[Any], out: Sequence[Any], device: Any) -> None:
        """Runs on arrays on the device, in its stream, without waiting."""
        self._check_device(device)
        x, y = arrays.describe_all("input", inputs, device), arrays.describe_all("output", out, device)
        self._context.check(lib.quern_enqueue(self._handle, x, len(inputs), y, len(out), arrays.stream_of(device)))

    def _run_host(self, inputs: Sequence[Any], given: Sequence[Any] | None = None) -> list[Any]:
        """given: arrays for the results."""
        c = self._context
        with arrays.Views(c) as views:
            x = views.handles([views.add(arrays.describe(a, f"input '{n}'")) for n, a in zip(self.inputs, inputs)])
            y = views.handles([None] * len(self.outputs) if given is None else
                              [views.add(arrays.describe(a, f"output '{n}'")) for n, a in zip(self.outputs, given)])
            self._check(lib.quern_run(self._handle, x, len(inputs), y, len(self.outputs)), inputs)
        if given is not None:
            return list(given)
        like = inputs[0] if inputs else None
        return [arrays.adopt(c, c_void_p(o), like) for o in y[:len(self.outputs)]]

    def __del__(self) -> None:
        handle = getattr(self, "_handle", None)
        self._handle = c_void_p()
        if handle and self._context.is_ours():
            lib.quern_program_close(handle)


class Repeated:
    """Runs of a program on the same inputs in the host's memory, into the same outputs; the program is locked meanwhile."""

    def __init__(self, program: Program, inputs: Sequence[Any] | None, sizes: str | None, seed: int) -> None:
        self.program, self.inputs, self.sizes, self.seed = program, inputs, sizes, seed

    def __enter__(self) -> Callable[[], None]:
        p = self.program
        c, n = p._context, len(p.inputs)
        c.lock.acquire()
        self.views, self.x, self.y = arrays.Views(c), (c_void_p * max(n, 1))(), (c_void_p * max(len(p.outputs), 1))()
        try:
            if self.inputs is None:
                count = c_int()
                c.check(lib.quern_program_random_inputs(p._handle, text(self.sizes), self.seed, self.x, n, byref(count)))
                self.views.all += [c_void_p(h) for h in self.x[:count.value]]
            else:
                self.x = self.views.handles([self.views.add(arrays.describe(a, f"input '{name}'")) for name, a in zip(p.inputs, self.inputs)])
        except BaseException:
            self.__exit__()
            raise

        def run() -> None:
            c.check(lib.quern_run(p._handle, self.x, n, self.y, len(p.outputs)))
        return run

    def __exit__(self, *_: object) -> None:
        self.views.all += [c_void_p(h) for h in self.y if h]
        self.views.__exit__()
        self.program._context.lock.release()


def shape_of(function: Any, handle: c_void_p, k: int) -> tuple[int | str, ...]:
    """Of input or output k: sizes, and names or expressions of those that are not fixed."""
    dim, name = Sizes(), Names()
    rank = function(handle, k, dim, name)
    return tuple(dim[d] if dim[d] >= 0 else said(name[d]) for d in range(rank))


def step_row(s: Step, seconds: float, total: float) -> dict[str, Any]:
    """A row of a profile. s: the operations and bytes of one run; total: seconds of all kernels."""
    return dict(layer=said(s.layer), nodes=said(s.label), operators=said(s.operators), ms=seconds * 1e3, percent=100 * seconds / total if total else 0.0,
                gflops=s.flops / seconds / 1e9 if seconds else 0.0, gbps=s.bytes / seconds / 1e9 if seconds else 0.0, flops=s.flops, bytes=s.bytes,
                kernel=said(s.kernel), task=said(s.task))


# --- opening networks ---


def load(path: str | os.PathLike[str], device: str | None = None, threads: int = 0, require_signature: bool = False, trusted: str | None = None,
         isa: str | None = None) -> Program:
    """Opens the program in a .dnx file, which needs no compiler.

    Parameters
    ----------
    path : path
        The file.
    device : str, optional
        "cpu", a driver's name, "cuda:1", or a pattern over device names; None: the first device of the program's language.
    threads : int, optional
        0: all processors.
    require_signature : bool, optional
        Reject a file without a signature of a trusted key before it is parsed.
    trusted : path, optional
        A public key, or a folder of them (*.pem); None: those added by `quern key trust`.
    isa : str, optional
        Of a program with variants, that of this instruction set, "x86-64-v3"; None: the best one that the processor supports.

    Returns
    -------
    Program

    Notes
    -----
    A program is code: one for the CPU runs with the rights of this process, like a Python module. Load only programs that you made or trust, or
    require a signature. A program that this processor cannot run is an `Error` (UNSUPPORTED) that names the missing extensions.
    """
    c = Context()
    o = RunOpts(device=text(device), threads=threads, require_signature=bool(require_signature), trusted=text(trusted), isa=text(isa))
    return Program(c, c.make(lib.quern_program_open, c.handle, text(path), byref(o)))


def target(isa: str | Sequence[str] | None) -> Any:
    """Options of compile() and tune() for instruction sets: a name, or several."""
    names = isa if isa is None or isinstance(isa, str) else ",".join(isa)
    return pointer(TargetOpts(isa=text(names)))


def assumptions(assume: Mapping[str, Any] | None) -> str:
    """{"B": 1, "H": "%16", "S": "1..4096"} in the library's notation."""
    words: Iterator[tuple[str, str]] = ((str(k), str(v)) for k, v in (assume or {}).items())
    return ",".join(k + v if v.startswith("%") else f"{k}:{v}" for k, v in words)


def pairs(state: bool | Mapping[str, str] | None) -> str:
    """True, or {"past": "present"}, in the library's notation."""
    if state is True:
        return "auto"
    return ",".join(f"{i}={o}" for i, o in (state or {}).items())


def open_model(c: Context, model: Model, sizes: Mapping[str, int] | None, assume: Mapping[str, Any] | None, external_data_links: bool,
               state: bool | Mapping[str, str] | None = None) -> c_void_p:
    """A file, or its content as bytes. sizes: a dictionary of sizes to select kernels for; others: see compile()."""
    o = byref(ModelOpts(optimize_for=text(sizes_text(sizes)), assume=text(assumptions(assume) or None), external_data_links=bool(external_data_links),
                        state=text(pairs(state) or None)))
    if isinstance(model, (bytes, bytearray, memoryview)):
        data = bytes(model)
        return c.make_long(lib.quern_model_close, lib.quern_model_read, c.handle, data, len(data), b"model", o)
    if not isinstance(model, (str, os.PathLike)):
        raise TypeError(f"the network is a {type(model).__name__}, expected the path of a file or its content as bytes")
    return c.make_long(lib.quern_model_close, lib.quern_model_open, c.handle, text(model), o)


def compile(model: Model, device: str | None = None, threads: int = 0, database: str | os.PathLike[str] | None = None,
            sizes: Mapping[str, int] | None = None, assume: Mapping[str, Any] | None = None, external_data_links: bool = False,
            isa: str | Sequence[str] | None = None, state: bool | Mapping[str, str] | None = None) -> Program:
    """Compiles a network.

    Parameters
    ----------
    model : path or bytes
        An .onnx file, or its content.
    device : str, optional
        "cpu" (None), a driver's name, "cuda:1" (its second device), or a pattern over device names.
    threads : int, optional
        0: all processors.
    database : path, optional
        A file filled by `quern.tune`, whose measurements are used; None: default schedules.
    sizes : dict, optional
        {"H": 1080, "W": 1920}, sizes that kernels are selected for; the program runs at any sizes.
    assume : dict, optional
        {"B": 1, "H": "%16", "S": "1..4096"}: sizes that are fixed, multiples of a number, or in a range; the program rejects others.
    external_data_links : bool, optional
        Follow symbolic links to external data.
    isa : str or list of str, optional
        "x86-64-v3", or several instruction sets, each of which becomes a variant of the program; None: this processor's.
    state : bool or dict, optional
        True: caches in place, see `Program.state`: all pairs of inputs and outputs whose names differ in 'past' and 'present' only; or pairs by
        name, {"k_in": "k_out"}.

    Returns
    -------
    Program

    Notes
    -----
    Kernels for the CPU are built by the system's C compiler (`cc`, or the command in QUERN_CC); without one it is an `Error` (SYSTEM). A saved
    program needs none. Ctrl-C stops it.
    """
    c = Context()
    db = c.database(os.fspath(database)) if database else None
    m = open_model(c, model, sizes, assume, external_data_links, state)
    o = byref(CompileOpts(device=text(device), threads=threads, keep=1, target=target(isa)))
    try:
        handle = c.make_long(lib.quern_program_close, lib.quern_compile, m, db, o)
    finally:
        lib.quern_model_close(m)
    source = None if isinstance(model, (bytes, bytearray, memoryview)) else os.path.abspath(os.fspath(model))
    return Program(c, handle, source, lambda other, path: open_model(other, path, sizes, assume, external_data_links, state))


def tune(model: Model, database: str | os.PathLike[str], seconds: float = 60, device: str | None = None, threads: int = 0,
         sizes: Mapping[str, int] | None = None, seed: int = 0, stop_at_speedup: float = 0, progress: Any = None,
         assume: Mapping[str, Any] | None = None, external_data_links: bool = False, isa: str | Sequence[str] | None = None,
         state: bool | Mapping[str, str] | None = None) -> None:
    """Measures schedules for a network into a database. A later call continues.

    Parameters
    ----------
    model, device, threads, sizes, assume, external_data_links, state
        As of `quern.compile`.
    database : path
        The file; it is created if it is missing.
    seconds : float, optional
        Time limit; 0: until the search has converged.
    seed : int, optional
        Of the search.
    stop_at_speedup : float, optional
        Stop when the network is so many times as fast as by default schedules; 0: never.
    progress : optional
        None: a bar in terminals and notebooks, of tqdm if that is installed. True: everywhere; False: nowhere. A bar of tqdm, or its class, or a
        function, which is called with dictionaries: `done`, `total`, `failures`, `best`, `seconds_left`, `text`.
    isa : str or list of str, optional
        As of `quern.compile`; of several instruction sets those that this processor supports are measured.

    Raises
    ------
    KeyboardInterrupt
        After Ctrl-C. The measurements are in the database. An exception of `progress` has the same effect.
    """
    report, end = reporter(progress, "tuning")
    c = Context(on_progress=report)
    try:
        db = c.database(os.fspath(database))
        m = open_model(c, model, sizes, assume, external_data_links, state)
        o = TuneOpts(device=text(device), threads=threads, timeout=seconds, seed=seed, stop_at_speedup=stop_at_speedup, target=target(isa))
        try:
            c.wait(lib.quern_tune, db, m, byref(o))
        finally:
            lib.quern_model_close(m)
    finally:
        end()
        c.close()
