# SPDX-License-Identifier: Apache-2.0
"""The C library: its path, its functions and structures (include/quern.h), contexts and errors."""
from __future__ import annotations

import ctypes
import ctypes.util
import logging
import os
import pathlib
import queue
import signal
import threading
import weakref
from ctypes import POINTER, byref, c_char_p, c_double, c_int, c_int64, c_size_t, c_uint64, c_void_p
from typing import Any, Callable

log = logging.getLogger("quern")

STATUS = {1: "FAILED", 2: "USAGE", 3: "NOTHING", 4: "UNSUPPORTED", 5: "INPUT", 6: "SYSTEM", 7: "STOPPED"}


class Error(RuntimeError):
    """An error of the library.

    Attributes
    ----------
    status : str
        The kind of failure: "FAILED", "USAGE" (wrong arguments), "NOTHING" (nothing was measured or selected), "UNSUPPORTED" (valid, but not
        supported), "INPUT" (invalid or inconsistent input), "SYSTEM" (of the operating system) or "STOPPED".
    """

    status: str

    def __init__(self, message: str, status: str = "FAILED") -> None:
        super().__init__(message)
        self.status = status


# --- structures ---


class Sized(ctypes.Structure):
    """Options and facts: the first field is the structure's size."""

    def __init__(self, **values: Any) -> None:
        super().__init__(size=ctypes.sizeof(type(self)), **values)


class Event(ctypes.Structure):
    _fields_ = [("kind", c_int), ("level", c_int), ("text", c_char_p), ("done", c_int64), ("total", c_int64),
                ("failures", c_int64), ("best", c_double), ("seconds_left", c_double)]


EventFn = ctypes.CFUNCTYPE(None, c_void_p, POINTER(Event))


class Opts(Sized):
    _fields_ = [("size", c_size_t), ("on_event", EventFn), ("user", c_void_p), ("log_level", c_int), ("dump", c_char_p),
                ("dump_dir", c_char_p)]


class RunOpts(Sized):
    _fields_ = [("size", c_size_t), ("threads", c_int), ("device", c_char_p), ("require_signature", c_int), ("trusted", c_char_p),
                ("isa", c_char_p)]


class TargetOpts(Sized):
    _fields_ = [("size", c_size_t), ("devices", c_char_p), ("env", c_char_p), ("no_matrix", c_int), ("optimize", c_int), ("debug_info", c_int),
                ("source_info", c_int), ("no_winograd", c_int), ("isa", c_char_p), ("deterministic", c_int)]


class ModelOpts(Sized):
    _fields_ = [("size", c_size_t), ("optimize_for", c_char_p), ("constants", c_void_p), ("n_constants", c_int), ("io", c_void_p),
                ("n_io", c_int), ("f32_storage", c_int), ("assume", c_char_p), ("elements", c_char_p), ("run_at", c_char_p),
                ("external_data_links", c_int), ("state", c_char_p), ("constants_in_place", c_int)]


class StateOpts(Sized):
    _fields_ = [("size", c_size_t), ("sizes", c_char_p)]


class TuneOpts(Sized):
    _fields_ = [("size", c_size_t), ("device", c_char_p), ("threads", c_int), ("timeout", c_double), ("min_samples", c_int),
                ("max_candidates", c_int), ("stop_at_speedup", c_double), ("seed", c_uint64), ("populate_only", c_int), ("target", POINTER(TargetOpts))]


class CompileOpts(Sized):
    _fields_ = [("size", c_size_t), ("device", c_char_p), ("threads", c_int), ("no_fusion", c_int), ("untuned", c_int),
                ("target", POINTER(TargetOpts)), ("no_memory_concat", c_int), ("keep", c_int)]


class MeasureOpts(Sized):
    _fields_ = [("size", c_size_t), ("device", c_char_p), ("threads", c_int), ("target", POINTER(TargetOpts))]


class QuantizeOpts(Sized):
    _fields_ = [("size", c_size_t), ("method", c_char_p), ("percentile", c_double), ("max_error", c_double), ("keep", c_void_p),
                ("activations", c_char_p), ("no_bias_correction", c_int), ("device", c_char_p), ("threads", c_int), ("report", c_void_p),
                ("report_user", c_void_p), ("reduce_range", c_int), ("weights", c_char_p), ("block", c_int), ("gptq", c_int), ("full", c_int)]


class GraphOpts(Sized):
    _fields_ = [("size", c_size_t), ("form", c_char_p), ("allocation", c_char_p), ("allocation_file", c_char_p), ("sizes", c_char_p),
                ("collapse", c_char_p), ("inches", c_double), ("params", c_int), ("device", c_char_p), ("threads", c_int), ("target", POINTER(TargetOpts))]


SampleFn = ctypes.CFUNCTYPE(c_int, c_void_p, c_int, c_void_p, c_int)


class DeployOpts(Sized):
    _fields_ = [("size", c_size_t), ("name", c_char_p), ("devices", c_void_p), ("allocation", c_char_p), ("sample", SampleFn), ("user", c_void_p),
                ("f16", c_int), ("fallback", c_int), ("packed", c_int), ("no_tools", c_int), ("key", c_char_p), ("tune", POINTER(TuneOpts)),
                ("compile", POINTER(CompileOpts)), ("allocation_file", c_char_p)]


class DeploymentOpts(Sized):
    _fields_ = [("size", c_size_t), ("threads", c_int), ("fallback", c_int), ("devices", POINTER(c_char_p)), ("require_signature", c_int),
                ("trusted", c_char_p), ("profile", c_int), ("only_list", c_int)]


class DeploymentValue(Sized):
    _fields_ = [("size", c_size_t), ("name", c_char_p), ("origin", c_char_p), ("type", c_int), ("rank", c_int), ("dim", c_int64 * 8),
                ("sym", c_char_p * 8)]


class SubgraphFacts(Sized):
    _fields_ = [("size", c_size_t), ("name", c_char_p), ("device", c_char_p), ("framework", c_char_p), ("target", c_char_p), ("missing", c_char_p),
                ("state", c_int), ("why", c_char_p), ("operators", c_int), ("files", c_int), ("expected", c_double), ("runs", c_int64),
                ("seconds", c_double)]


DoneFn = ctypes.CFUNCTYPE(None, c_void_p, c_void_p, c_int, c_char_p)


class SubgraphTime(ctypes.Structure):
    _fields_ = [("device", c_char_p), ("first", c_char_p), ("last", c_char_p), ("n_ops", c_int), ("n_inputs", c_int), ("n_outputs", c_int),
                ("start", c_double), ("seconds", c_double)]


class DeviceLoad(ctypes.Structure):
    _fields_ = [("device", c_char_p), ("n_ops", c_int), ("n_subgraphs", c_int), ("busy", c_double)]


class Placement(ctypes.Structure):
    _fields_ = [("aim", c_char_p), ("value", c_double), ("latency", c_double), ("period", c_double), ("joules", c_double), ("bound", c_double),
                ("single", c_char_p), ("single_value", c_double), ("n_subgraphs", c_int), ("is_minimal", c_int), ("subgraph", POINTER(SubgraphTime)),
                ("n_devices", c_int), ("device", POINTER(DeviceLoad)), ("n_tried", c_int64), ("n_compiled", c_int64), ("is_cut_short", c_int)]


PlacementFn = ctypes.CFUNCTYPE(None, c_void_p, POINTER(Placement))


class AllocateOpts(Sized):
    _fields_ = [("size", c_size_t), ("devices", c_void_p), ("on", c_char_p), ("check", c_char_p), ("minimise", c_char_p), ("seconds", c_double),
                ("report", PlacementFn), ("report_user", c_void_p), ("check_file", c_char_p)]


class Array(ctypes.Structure):
    _fields_ = [("type", c_int), ("rank", c_int), ("dim", c_int64 * 8), ("stride", c_int64 * 8), ("data", c_void_p)]


class OpOpts(Sized):
    _fields_ = [("size", c_size_t), ("device", c_char_p), ("threads", c_int), ("db", c_void_p), ("sizes", c_char_p)]


class Step(ctypes.Structure):
    _fields_ = [("label", c_char_p), ("layer", c_char_p), ("operators", c_char_p), ("kernel", c_char_p), ("task", c_char_p),
                ("seconds", c_double), ("flops", c_double), ("bytes", c_double)]


class Facts(Sized):
    _fields_ = [("size", c_size_t), ("model", c_char_p), ("device", c_char_p), ("isa", c_char_p), ("sizes", c_char_p), ("dispatches", c_int),
                ("constants", c_int64), ("seconds", c_double), ("is_measured", c_int), ("fingerprint", c_char_p)]


class Check(ctypes.Structure):
    _fields_ = [("n_bad", c_int64), ("count", c_int64), ("max_abs", c_double), ("max_rel", c_double), ("tolerance", c_double),
                ("output", c_char_p), ("ulp", c_double), ("bound", c_double)]


class OperatorFacts(Sized):
    _fields_ = [("size", c_size_t), ("name", c_char_p), ("opset", c_int), ("changed", c_int), ("removed", c_int), ("form", c_char_p),
                ("types", c_uint64), ("needs", c_char_p), ("attributes", c_char_p)]


# --- functions: result, arguments ---

Handle = POINTER(c_void_p)
Sizes = c_int64 * 8
Names = c_char_p * 8
FUNCTIONS: dict[str, tuple[Any, ...]] = {
    "quern_open": (c_void_p, POINTER(Opts)),
    "quern_close": (None, c_void_p),
    "quern_error": (c_char_p, c_void_p),
    "quern_stop": (None, c_void_p),
    "quern_resume": (None, c_void_p),
    "quern_version": (c_char_p,),
    "quern_text_free": (None, c_void_p),
    "quern_tensor_view": (c_int, c_void_p, c_int, c_int, POINTER(c_int64), c_void_p, Handle),
    "quern_tensor_new": (c_int, c_void_p, c_int, c_int, POINTER(c_int64), c_void_p, Handle),
    "quern_tensor_free": (None, c_void_p),
    "quern_tensor_dtype": (c_int, c_void_p),
    "quern_tensor_rank": (c_int, c_void_p),
    "quern_tensor_dims": (POINTER(c_int64), c_void_p),
    "quern_tensor_data": (c_void_p, c_void_p),
    "quern_tensor_count": (c_int64, c_void_p),
    "quern_tensor_to_dlpack": (c_int, c_void_p, c_void_p, Handle),
    "quern_program_open": (c_int, c_void_p, c_char_p, POINTER(RunOpts), Handle),
    "quern_program_close": (None, c_void_p),
    "quern_program_inputs": (c_int, c_void_p),
    "quern_program_outputs": (c_int, c_void_p),
    "quern_program_input_name": (c_char_p, c_void_p, c_int),
    "quern_program_output_name": (c_char_p, c_void_p, c_int),
    "quern_program_input_dtype": (c_int, c_void_p, c_int),
    "quern_program_output_dtype": (c_int, c_void_p, c_int),
    "quern_program_input_shape": (c_int, c_void_p, c_int, Sizes, Names),
    "quern_program_output_shape": (c_int, c_void_p, c_int, Sizes, Names),
    "quern_program_save": (c_int, c_void_p, c_char_p),
    "quern_program_facts": (c_int, c_void_p, POINTER(Facts)),
    "quern_program_memory": (c_int64, c_void_p),
    "quern_program_seconds": (c_double, c_void_p),
    "quern_program_explain": (c_int, c_void_p, Handle),
    "quern_program_random_inputs": (c_int, c_void_p, c_char_p, c_uint64, Handle, c_int, POINTER(c_int)),
    "quern_profile": (None, c_void_p, c_int),
    "quern_profile_steps": (c_int, c_void_p, POINTER(Step), c_int),
    "quern_run": (c_int, c_void_p, Handle, c_int, Handle, c_int),
    "quern_program_shape": (c_int, c_void_p, POINTER(Array), c_int, POINTER(Array), c_int),
    "quern_enqueue": (c_int, c_void_p, POINTER(Array), c_int, POINTER(Array), c_int, c_void_p),
    "quern_state_create": (c_int, c_void_p, c_int64, POINTER(StateOpts), Handle),
    "quern_state_destroy": (None, c_void_p),
    "quern_state_fork": (c_int, c_void_p, Handle),
    "quern_state_copy": (c_int, c_void_p, c_void_p),
    "quern_state_truncate": (c_int, c_void_p, c_int64),
    "quern_state_length": (c_int64, c_void_p),
    "quern_state_max": (c_int64, c_void_p),
    "quern_state_memory": (c_int64, c_void_p),
    "quern_state_holds_input": (c_int, c_void_p, c_int),
    "quern_state_holds_output": (c_int, c_void_p, c_int),
    "quern_state_run": (c_int, c_void_p, Handle, c_int, Handle, c_int),
    "quern_state_save": (c_int, c_void_p, c_char_p),
    "quern_state_load": (c_int, c_void_p, c_char_p),
    "quern_deployment_open": (c_int, c_void_p, c_char_p, POINTER(DeploymentOpts), Handle),
    "quern_deployment_close": (None, c_void_p),
    "quern_deployment_pack": (c_int, c_void_p, c_char_p, c_char_p),
    "quern_deployment_name": (c_char_p, c_void_p),
    "quern_deployment_inputs": (c_int, c_void_p),
    "quern_deployment_outputs": (c_int, c_void_p),
    "quern_deployment_value": (c_int, c_void_p, c_int, c_int, POINTER(DeploymentValue)),
    "quern_deployment_device": (c_char_p, c_void_p, c_int),
    "quern_deployment_subgraph": (c_int, c_void_p, c_int, POINTER(SubgraphFacts)),
    "quern_deployment_trace": (c_int, c_void_p, c_char_p),
    "quern_subgraph_operator": (c_char_p, c_void_p, c_int, c_int),
    "quern_subgraph_file": (c_char_p, c_void_p, c_int, c_int, POINTER(c_char_p), POINTER(c_int64)),
    "quern_request_create": (c_int, c_void_p, Handle),
    "quern_request_destroy": (None, c_void_p),
    "quern_request_error": (c_char_p, c_void_p),
    "quern_request_input": (c_int, c_void_p, c_int, c_int, POINTER(c_int64), Handle),
    "quern_request_output": (c_int, c_void_p, c_int, Handle),
    "quern_request_on_done": (None, c_void_p, DoneFn, c_void_p),
    "quern_request_start": (c_int, c_void_p),
    "quern_request_wait": (c_int, c_void_p, c_double, POINTER(c_int)),
    "quern_request_cancel": (None, c_void_p),
    "quern_model_open": (c_int, c_void_p, c_char_p, POINTER(ModelOpts), Handle),
    "quern_model_read": (c_int, c_void_p, c_char_p, c_size_t, c_char_p, POINTER(ModelOpts), Handle),
    "quern_model_close": (None, c_void_p),
    "quern_model_inputs": (c_int, c_void_p),
    "quern_model_input_name": (c_char_p, c_void_p, c_int),
    "quern_operator_at": (c_int, c_int, POINTER(OperatorFacts)),
    "quern_dtype_text": (c_char_p, c_int),
    "quern_db_open": (c_int, c_void_p, c_char_p, Handle),
    "quern_db_close": (None, c_void_p),
    "quern_tune": (c_int, c_void_p, c_void_p, POINTER(TuneOpts)),
    "quern_compile": (c_int, c_void_p, c_void_p, POINTER(CompileOpts), Handle),
    "quern_graph_write": (c_int, c_void_p, c_void_p, POINTER(GraphOpts), c_char_p),
    "quern_graph_text": (c_int, c_void_p, c_void_p, POINTER(GraphOpts), Handle),
    "quern_allocate": (c_int, c_void_p, c_void_p, POINTER(AllocateOpts), Handle),
    "quern_deploy": (c_int, c_void_p, c_void_p, c_char_p, POINTER(DeployOpts)),
    "quern_measure": (c_int, c_void_p, POINTER(MeasureOpts), Handle),
    "quern_verify": (c_int, c_void_p, c_void_p, c_char_p, c_uint64, POINTER(Check), c_int, POINTER(c_int)),
    "quern_quantize": (c_int, c_void_p, c_void_p, c_void_p, POINTER(QuantizeOpts), Handle),
    "quern_cache_get": (c_int, c_void_p, c_char_p, c_size_t, Handle, POINTER(c_size_t)),
    "quern_cache_put": (c_int, c_void_p, c_char_p, c_size_t, c_char_p, c_size_t),
    "quern_op_open": (c_int, c_void_p, c_char_p, c_char_p, POINTER(OpOpts), Handle),
    "quern_op_close": (None, c_void_p),
    "quern_op_shape": (c_int, c_void_p, POINTER(Array), c_int, POINTER(Array), c_int),
    "quern_op_run": (c_int, c_void_p, POINTER(Array), c_int, POINTER(Array), c_int),
    "quern_op_enqueue": (c_int, c_void_p, POINTER(Array), c_int, POINTER(Array), c_int, c_void_p),
}


def candidates() -> list[str]:
    """Paths of the library, in order: QUERN_LIBRARY, in this package, the tree's build, the linker's."""
    here = pathlib.Path(__file__).resolve().parent
    if os.environ.get("QUERN_LIBRARY"):
        return [os.environ["QUERN_LIBRARY"]]
    there = [here / "lib" / "libquern.so.0", here.parent.parent / "build" / "libquern.so"]
    return [str(p) for p in there if p.is_file()] + ["libquern.so"]


def open_library() -> tuple[Any, str]:
    """The first of candidates() that can be loaded, with its functions declared, and its path. Raises ImportError."""
    reasons = []
    for path in candidates():
        try:
            lib = ctypes.CDLL(path)
        except OSError as e:
            reasons.append(str(e))
            continue
        for name, (result, *arguments) in FUNCTIONS.items():
            try:
                f = getattr(lib, name)
            except AttributeError:
                raise ImportError(f"'{path}' has no '{name}': it is older than this package") from None
            f.restype, f.argtypes = result, arguments
        return lib, path
    raise ImportError("cannot load libquern.so (built by 'make'; its path may be in QUERN_LIBRARY): " + "; ".join(reasons))


lib, path = open_library()


def library_path() -> str:
    """The loaded file of the C library."""
    return path


def version() -> str:
    """The library's version."""
    return str(lib.quern_version().decode())


def cache_path() -> str:
    """The database of measured schedules of operators: QUERN_DATABASE, or in the user's cache folder."""
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return os.environ.get("QUERN_DATABASE") or os.path.join(cache, "quern", "operators.db")


def text(s: Any) -> bytes | None:
    """A string or path for the library; None: NULL."""
    return None if s is None else os.fsencode(s)


def said(s: bytes | None) -> str:
    """A text of the library."""
    return (s or b"").decode(errors="replace")


# --- contexts ---

LEVELS = [logging.ERROR, logging.WARNING, logging.INFO, logging.DEBUG]
Report = Callable[[Any], object]  # takes a dictionary, see quern.tune()


class Interrupts:
    """While it is entered, Ctrl-C calls a function instead of raising KeyboardInterrupt in the middle of something. Handlers other than Python's own stay.
    For the main thread."""

    def __init__(self, function: Callable[[], object]) -> None:
        self.function, self.is_ours, self.arrived = function, False, False

    def arrive(self, number: int, frame: object) -> None:
        self.arrived = True
        self.function()

    def __enter__(self) -> Interrupts:
        self.is_ours = signal.getsignal(signal.SIGINT) is signal.default_int_handler
        if self.is_ours:
            signal.signal(signal.SIGINT, self.arrive)
        return self

    def __exit__(self, *_: object) -> None:
        if self.is_ours:
            signal.signal(signal.SIGINT, signal.default_int_handler)


def teller(context: weakref.ref[Context]) -> Callable[[Any, Any], None]:
    """A callback without a reference to its context, which would never be released."""
    def tell(user: Any, event: Any) -> None:
        c = context()
        if c is not None:
            c.tell(event)
    return tell


class Context:
    """A context of the library, for one thread at a time: callers hold `lock`."""

    def __init__(self, on_progress: Report | None = None, level: int = 1) -> None:
        self.on_progress = on_progress
        self.lock = threading.RLock()
        self.pid = os.getpid()
        self.closers: list[tuple[Any, Any]] = []
        self.failure: BaseException | None = None  # in a callback
        self.events: queue.SimpleQueue[dict[str, Any] | None] | None = None  # of a call in a thread of its own
        self.event = EventFn(teller(weakref.ref(self)))  # must live as long as the handle
        self.handle = lib.quern_open(byref(Opts(on_event=self.event, log_level=level)))
        if not self.handle:
            raise MemoryError("quern_open")

    def tell(self, event: Any) -> None:
        """The library's callback: exceptions stop the call, which raises them when it has ended."""
        try:
            e = event.contents
            if e.kind == 0:
                log.log(LEVELS[min(max(e.level, 0), 3)], "%s", said(e.text))
            elif e.kind == 1 and self.on_progress:
                x = dict(done=e.done, total=e.total, failures=e.failures, best=e.best, seconds_left=e.seconds_left, text=said(e.text))
                if self.events:
                    self.events.put(x)
                else:
                    self.on_progress(x)
        except BaseException as e:
            self.fail(e)

    def fail(self, e: BaseException) -> None:
        self.failure = self.failure or e
        lib.quern_stop(self.handle)

    def check(self, status: int) -> None:
        if status:
            raise Error(said(lib.quern_error(self.handle)), STATUS.get(status, "FAILED"))

    def wait(self, function: Any, *arguments: Any) -> None:
        """check() of a call that may take long. Ctrl-C and exceptions of `on_progress` stop it; they are raised when it has ended."""
        self.failure, status = None, 0
        try:
            if threading.current_thread() is threading.main_thread():
                status = self.in_thread(function, arguments)
            else:
                status = function(*arguments)  # signals arrive in the main thread
        finally:
            lib.quern_resume(self.handle)
        failure, self.failure = self.failure, None
        if failure:
            raise failure
        self.check(status)

    def in_thread(self, function: Any, arguments: tuple[Any, ...]) -> int:
        """Python runs signal handlers between instructions of the main thread, which therefore waits in Python, for events."""
        events: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
        self.events = events
        status: list[int] = []

        def work() -> None:
            try:
                status.append(function(*arguments))
            except BaseException as e:
                self.fail(e)
            finally:
                events.put(None)

        with Interrupts(lambda: lib.quern_stop(self.handle)) as interrupts:
            worker = threading.Thread(target=work, name="quern", daemon=True)
            worker.start()
            event: dict[str, Any] | None = {}
            while event is not None:
                try:
                    event = events.get()
                    if event is not None and self.on_progress and not self.failure:
                        self.on_progress(event)
                except BaseException as e:
                    self.fail(e)
            worker.join()
            self.events = None
        if interrupts.arrived:
            self.failure = self.failure or KeyboardInterrupt()
        return status[0] if status else 0

    def make(self, function: Any, *arguments: Any) -> c_void_p:
        """The new handle returned in the function's last argument."""
        out = c_void_p()
        self.check(function(*arguments, byref(out)))
        return out

    def make_long(self, close: Any, function: Any, *arguments: Any) -> c_void_p:
        """Likewise of a call that may take long, see wait(); close: of the handle, if the call was interrupted when it was complete."""
        out = c_void_p()
        try:
            self.wait(function, *arguments, byref(out))
        except BaseException:
            if out:
                close(out)
            raise
        return out

    def database(self, file: str) -> c_void_p:
        """A handle, closed with the context; its folder is made. file: ":memory:" for one without a file. Raises Error or OSError."""
        if file != ":memory:" and os.path.dirname(file):
            os.makedirs(os.path.dirname(file), exist_ok=True)
        db = self.make(lib.quern_db_open, self.handle, text(file))
        self.closers.append((lib.quern_db_close, db))
        return db

    def take_text(self, function: Any, *arguments: Any) -> str:
        """The text returned in the function's last argument."""
        out = self.make(function, *arguments)
        try:
            return said(ctypes.string_at(out.value or 0)) if out else ""
        finally:
            lib.quern_text_free(out)

    def is_ours(self) -> bool:
        """After a fork the threads of the library are gone: the child must not use objects of its parent."""
        return self.pid == os.getpid()

    def close(self) -> None:
        """Closes databases and the handle; before that, every other object of the context."""
        if getattr(self, "handle", None) and self.is_ours():
            for close, handle in reversed(self.closers):
                close(handle)
            lib.quern_close(self.handle)
        self.handle = None

    def __del__(self) -> None:
        self.close()
