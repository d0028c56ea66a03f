# SPDX-License-Identifier: Apache-2.0
"""Networks: compiled, tuned, loaded, run."""
import os
from ctypes import byref, c_char_p, c_int64, c_void_p, pointer

from . import _arrays as arrays
from ._library import Array, CompileOpts, Context, ModelOpts, RunOpts, TargetOpts, TuneOpts, lib, text
from ._state import State, order


class Program:
    """A compiled network: called with one array for each input, it returns its outputs.

    Created by load() and compile(). NumPy arrays and torch tensors on the CPU are used in place if they are dense, and copied
    otherwise; results are of the same kind as the first input. Programs for a CUDA (or ROCm) device also take tensors there, in the order of
    PyTorch's current stream. Calls from several threads wait for each other.
    """

    def __init__(self, context, handle):
        self._context, self._handle = context, handle
        self.inputs = [lib.quern_program_input_name(handle, k).decode() for k in range(lib.quern_program_inputs(handle))]
        self.outputs = [lib.quern_program_output_name(handle, k).decode() for k in range(lib.quern_program_outputs(handle))]

    def input_shape(self, k):
        """The shape of input k: numbers, and names of symbolic sizes."""
        dim, name = (c_int64 * 8)(), (c_char_p * 8)()
        rank = lib.quern_program_input_shape(self._handle, k, dim, name)
        return tuple(dim[d] if dim[d] >= 0 else name[d].decode() for d in range(rank))

    def input_dtype(self, k):
        """NumPy's name of the element type of input k."""
        kind = lib.quern_program_input_dtype(self._handle, k)
        return next(n or t for number, n, t in arrays.TYPES if number == kind)

    def save(self, path):
        """Saves a .dnx file, which load() reads without a compiler."""
        with self._context.lock:
            self._context.check(lib.quern_program_save(self._handle, text(path)))

    def state(self, maximum, sizes=None):
        """A State: the program's caches for at most this many positions. sizes: {"batch": 2}, their other symbolic sizes; 1 if not named."""
        return State(self, maximum, sizes)

    def __call__(self, *inputs, **named):
        """Inputs by position, by name, or both. Returns the output, or a tuple of them."""
        inputs = order(self.inputs, inputs, named)
        c = self._context
        if not c.is_ours():
            raise RuntimeError("a program does not survive a fork: load or compile it in the child")
        with c.lock:
            out = self._run([arrays.dense(arrays.as_array(a)) for a in inputs])
        return out[0] if len(out) == 1 else tuple(out)

    def _run(self, inputs):
        device = arrays.device_of(*inputs)
        return self._run_host(inputs) if device is None else self._run_device([arrays.on_device(x) for x in inputs], device)

    def _run_device(self, inputs, device):
        c, x, y = self._context, arrays.describe_all("input", inputs, device), (Array * len(self.outputs))()
        c.check(lib.quern_program_shape(self._handle, x, len(inputs), y, len(y)))
        out = arrays.empty_all(y, next(i for i in inputs if arrays.is_torch(i)))
        c.check(lib.quern_enqueue(self._handle, x, len(inputs), arrays.describe_all("output", out, device), len(out), arrays.stream_of(device)))
        return list(out)

    def _run_host(self, inputs):
        c, views = self._context, []
        out = (c_void_p * len(self.outputs))()
        try:
            for name, x in zip(self.inputs, inputs):
                a = arrays.describe(x, f"input '{name}'")
                views.append(c.make(lib.quern_tensor_view, c.handle, a.type, a.rank, a.dim, a.data or 64))
            x = (c_void_p * max(len(views), 1))(*[v.value for v in views])
            c.check(lib.quern_run(self._handle, x, len(views), out, len(out)))
        finally:
            for v in views:
                lib.quern_tensor_free(v)
        like = inputs[0] if inputs else None
        return [arrays.adopt(c, c_void_p(o), like) for o in out]

    def __del__(self):
        if getattr(self, "_handle", None) and self._context.is_ours():
            lib.quern_program_close(self._handle)


def load(path, device=None, threads=0, require_signature=False, trusted=None, isa=None):
    """The program in a .dnx file. device None: the first device of its language; threads 0: all processors.

    A program is code: one for the CPU runs with the rights of this process, like a Python module. Load only programs that you made or
    trust, or require a signature: then a file without one of a trusted key is rejected before it is parsed. trusted: a public key,
    or a folder of them (*.pem); None: those added by `quern key trust`.

    isa: for a program with variants, that of this instruction set, "x86-64-v3"; None: the best one that the processor supports.
    A program that this processor cannot run is an Error (UNSUPPORTED) that names the missing extensions.
    """
    c = Context()
    o = RunOpts(device=text(device), threads=threads, require_signature=bool(require_signature), trusted=text(trusted), isa=text(isa))
    return Program(c, c.make(lib.quern_program_open, c.handle, text(path), byref(o)))


def target(isa):
    """Options of compile() and tune() for instruction sets: a name, or several."""
    names = isa if isa is None or isinstance(isa, str) else ",".join(isa)
    return pointer(TargetOpts(isa=text(names)))


def assumptions(assume):
    """{"B": 1, "H": "%16", "S": "1..4096"} in the library's notation."""
    words = [(str(k), str(v)) for k, v in (assume or {}).items()]
    return ",".join(k + v if v.startswith("%") else f"{k}:{v}" for k, v in words)


def pairs(state):
    """True, or {"past": "present"}, in the library's notation."""
    return "auto" if state is True else ",".join(f"{i}={o}" for i, o in (state or {}).items())


def open_model(c, model, sizes, assume, external_data_links, state=None):
    """A file, or its content as bytes. sizes: a dictionary of sizes to select kernels for; others: see compile()."""
    wanted = ",".join(f"{k}:{v}" for k, v in (sizes or {}).items())
    o = byref(ModelOpts(optimize_for=text(wanted or None), assume=text(assumptions(assume) or None), external_data_links=bool(external_data_links),
                        state=text(pairs(state) or None)))
    if isinstance(model, (bytes, bytearray, memoryview)):
        data = bytes(model)
        return c.make(lib.quern_model_read, c.handle, data, len(data), b"model", o)
    return c.make(lib.quern_model_open, c.handle, text(model), o)


def compile(model, device=None, threads=0, database=None, sizes=None, assume=None, external_data_links=False, isa=None, state=None):
    """A network (path of an .onnx file, or its bytes) as a Program.

    database: a file filled by tune(), whose measurements are used; None: default schedules.
    sizes: {"H": 1080, "W": 1920}, sizes that kernels are selected for; the program runs at any sizes.
    assume: {"B": 1, "H": "%16", "S": "1..4096"}: sizes that are fixed, multiples of a number, or in a range; the program rejects others.
    external_data_links: follow symbolic links to external data.
    isa: "x86-64-v3", or a list of instruction sets, each of which becomes a variant of the program; None: this processor's.
    state: True: caches in place, see Program.state(): all pairs of inputs and outputs whose names differ in 'past' and 'present' only; or
    pairs by name, {"k_in": "k_out"}.
    """
    c = Context()
    db = c.database(os.fspath(database)) if database else None
    m = open_model(c, model, sizes, assume, external_data_links, state)
    try:
        return Program(c, c.make(lib.quern_compile, m, db, byref(CompileOpts(device=text(device), threads=threads, keep=1, target=target(isa)))))
    finally:
        lib.quern_model_close(m)


def tune(model, database, seconds=60, device=None, threads=0, sizes=None, seed=0, stop_at_speedup=0, progress=None, assume=None,
         external_data_links=False, isa=None, state=None):
    """Measures schedules for a network into a database, for this many seconds; a later call continues.

    progress: called occasionally with a dictionary: done, total, failures, best, seconds_left, text.
    isa, state: as in compile(); of several instruction sets those that this processor supports are measured.
    """
    c = Context(on_progress=progress)
    db = c.database(os.fspath(database))
    m = open_model(c, model, sizes, assume, external_data_links, state)
    o = TuneOpts(device=text(device), threads=threads, timeout=seconds, seed=seed, stop_at_speedup=stop_at_speedup,
                 target=target(isa))
    try:
        with c.lock:
            c.check(lib.quern_tune(db, m, byref(o)))
    finally:
        lib.quern_model_close(m)
