# SPDX-License-Identifier: Apache-2.0
"""The C library: its path, its functions and structures (include/quern.h), contexts and errors."""
import ctypes
import ctypes.util
import logging
import os
import pathlib
import threading
from ctypes import POINTER, byref, c_char_p, c_double, c_int, c_int64, c_size_t, c_uint64, c_void_p

log = logging.getLogger("quern")

STATUS = {1: "FAILED", 2: "USAGE", 3: "NOTHING", 4: "UNSUPPORTED", 5: "INPUT", 6: "SYSTEM", 7: "STOPPED"}


class Error(RuntimeError):
    """An error of the library. `status` is the name of its kind: FAILED, USAGE, NOTHING, UNSUPPORTED, INPUT, SYSTEM or STOPPED."""

    def __init__(self, message, status="FAILED"):
        super().__init__(message)
        self.status = status


# --- structures ---


class Sized(ctypes.Structure):
    """Options: the first field is the structure's size."""

    def __init__(self, **values):
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
                ("external_data_links", c_int), ("state", c_char_p)]


class StateOpts(Sized):
    _fields_ = [("size", c_size_t), ("sizes", c_char_p)]


class TuneOpts(Sized):
    _fields_ = [("size", c_size_t), ("device", c_char_p), ("threads", c_int), ("timeout", c_double), ("min_samples", c_int),
                ("max_candidates", c_int), ("stop_at_speedup", c_double), ("seed", c_uint64), ("populate_only", c_int), ("target", POINTER(TargetOpts))]


class CompileOpts(Sized):
    _fields_ = [("size", c_size_t), ("device", c_char_p), ("threads", c_int), ("no_fusion", c_int), ("untuned", c_int),
                ("target", POINTER(TargetOpts)), ("no_memory_concat", c_int), ("keep", c_int)]


class Array(ctypes.Structure):
    _fields_ = [("type", c_int), ("rank", c_int), ("dim", c_int64 * 8), ("stride", c_int64 * 8), ("data", c_void_p)]


class OpOpts(Sized):
    _fields_ = [("size", c_size_t), ("device", c_char_p), ("threads", c_int), ("db", c_void_p), ("sizes", c_char_p)]


# --- functions: result, arguments ---

Handle = POINTER(c_void_p)
FUNCTIONS = {
    "quern_open": (c_void_p, POINTER(Opts)),
    "quern_close": (None, c_void_p),
    "quern_error": (c_char_p, c_void_p),
    "quern_version": (c_char_p,),
    "quern_tensor_view": (c_int, c_void_p, c_int, c_int, POINTER(c_int64), c_void_p, Handle),
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
    "quern_program_input_shape": (c_int, c_void_p, c_int, c_int64 * 8, c_char_p * 8),
    "quern_program_save": (c_int, c_void_p, c_char_p),
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
    "quern_model_open": (c_int, c_void_p, c_char_p, POINTER(ModelOpts), Handle),
    "quern_model_read": (c_int, c_void_p, c_char_p, c_size_t, c_char_p, POINTER(ModelOpts), Handle),
    "quern_model_close": (None, c_void_p),
    "quern_db_open": (c_int, c_void_p, c_char_p, Handle),
    "quern_db_close": (None, c_void_p),
    "quern_tune": (c_int, c_void_p, c_void_p, POINTER(TuneOpts)),
    "quern_compile": (c_int, c_void_p, c_void_p, POINTER(CompileOpts), Handle),
    "quern_op_open": (c_int, c_void_p, c_char_p, c_char_p, POINTER(OpOpts), Handle),
    "quern_op_close": (None, c_void_p),
    "quern_op_shape": (c_int, c_void_p, POINTER(Array), c_int, POINTER(Array), c_int),
    "quern_op_run": (c_int, c_void_p, POINTER(Array), c_int, POINTER(Array), c_int),
    "quern_op_enqueue": (c_int, c_void_p, POINTER(Array), c_int, POINTER(Array), c_int, c_void_p),
}


def candidates():
    """Paths of the library, in order: QUERN_LIBRARY, beside this file, the tree's build, the linker's."""
    here = pathlib.Path(__file__).resolve().parent
    if os.environ.get("QUERN_LIBRARY"):
        return [os.environ["QUERN_LIBRARY"]]
    there = [here / "libquern.so", here.parent.parent / "build" / "libquern.so"]
    return [str(p) for p in there if p.is_file()] + ["libquern.so"]


def open_library():
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


def library_path():
    """The loaded file."""
    return path


def version():
    """The library's version."""
    return lib.quern_version().decode()


def cache_path():
    """The database of measured schedules of operators: QUERN_DATABASE, or in the user's cache folder."""
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return os.environ.get("QUERN_DATABASE") or os.path.join(cache, "quern", "operators.db")


def text(s):
    return None if s is None else os.fsencode(s)


LEVELS = [logging.ERROR, logging.WARNING, logging.INFO, logging.DEBUG]


class Context:
    """A context of the library, for one thread at a time: callers hold `lock`."""

    def __init__(self, on_progress=None, level=1):
        self.on_progress = on_progress
        self.lock = threading.RLock()
        self.pid = os.getpid()
        self.closers = []
        self.event = EventFn(self.tell)  # must live as long as the handle
        self.handle = lib.quern_open(byref(Opts(on_event=self.event, log_level=level)))
        if not self.handle:
            raise MemoryError("quern_open")

    def tell(self, user, event):
        e = event.contents
        if e.kind == 0:
            log.log(LEVELS[min(max(e.level, 0), 3)], "%s", (e.text or b"").decode(errors="replace"))
        elif e.kind == 1 and self.on_progress:
            self.on_progress(dict(done=e.done, total=e.total, failures=e.failures, best=e.best, seconds_left=e.seconds_left,
                                  text=(e.text or b"").decode(errors="replace")))

    def check(self, status):
        if status:
            raise Error(lib.quern_error(self.handle).decode(errors="replace"), STATUS.get(status, "FAILED"))

    def make(self, function, *arguments):
        """The new handle returned in the function's last argument."""
        out = c_void_p()
        self.check(function(*arguments, byref(out)))
        return out

    def database(self, file):
        if file != ":memory:" and os.path.dirname(file):
            os.makedirs(os.path.dirname(file), exist_ok=True)
        db = self.make(lib.quern_db_open, self.handle, text(file))
        self.closers.append((lib.quern_db_close, db))
        return db

    def is_ours(self):
        """After a fork the threads of the library are gone: the child must not use objects of its parent."""
        return self.pid == os.getpid()

    def __del__(self):
        if getattr(self, "handle", None) and self.is_ours():
            for close, handle in reversed(self.closers):
                close(handle)
            lib.quern_close(self.handle)
