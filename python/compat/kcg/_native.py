# SPDX-License-Identifier: Apache-2.0
"""Functions of the library that kernel lists, configurations and tuning need, beside those of quern's own package (include/quern.h)."""
import contextlib
import ctypes
import signal
import threading
from ctypes import POINTER, byref, c_char, c_char_p, c_double, c_int, c_int64, c_size_t, c_void_p

from quern._library import Array, Handle, Sized, TuneOpts, lib


class GemmOpts(Sized):
    _fields_ = [("size", c_size_t), ("result", c_char_p), ("start", c_int64), ("max", c_int64), ("stop_at_tflops", c_int), ("rules", c_char_p),
                ("type", c_char_p), ("tune", POINTER(TuneOpts)), ("search", c_int), ("baseline", c_char_p)]


class GemmBest(ctypes.Structure):
    _fields_ = [("name", c_char * 768), ("seconds", c_double), ("base_seconds", c_double), ("speedup", c_double), ("tflops", c_double),
                ("n_points", c_int64), ("n_refused", c_int64), ("baseline", c_char * 64)]


class GemmShape(Sized):
    _fields_ = [("size", c_size_t), ("n_batch", c_int), ("batch", c_int64 * 4), ("m", c_int64), ("n", c_int64), ("k", c_int64),
                ("is_transposed", c_int), ("type", c_int)]


class AttentionShape(Sized):
    _fields_ = [("size", c_size_t), ("kind", c_char_p), ("part", c_int), ("batch", c_int64), ("heads", c_int64), ("length", c_int64),
                ("head_size", c_int64), ("type", c_char_p)]


class Step(ctypes.Structure):
    _fields_ = [(n, c_char_p) for n in ("label", "layer", "operators", "kernel", "task")] + [(n, c_double) for n in ("seconds", "flops", "bytes")]


FUNCTIONS = {
    "quern_gemm": (c_int, c_void_p, c_char_p, POINTER(GemmOpts), POINTER(GemmBest)),
    "quern_gemm_space": (c_int, c_void_p, POINTER(GemmShape), c_int, POINTER(c_void_p)),
    "quern_attention_name": (c_int, c_void_p, c_char_p, POINTER(AttentionShape)),
    "quern_attention_tiles": (c_int, c_void_p, c_char_p, POINTER(AttentionShape), POINTER(GemmOpts), POINTER(GemmBest)),
    "quern_op_model": (c_int, c_void_p, POINTER(Array), c_int, POINTER(Array), c_int, Handle),
    "quern_profile": (None, c_void_p, c_int),
    "quern_profile_steps": (c_int, c_void_p, POINTER(Step), c_int),
    "quern_devices": (c_int, c_void_p, POINTER(c_void_p)),
    "quern_show": (c_int, c_void_p, c_char_p, POINTER(c_void_p)),
    "quern_text_free": (None, c_void_p),
    "quern_stop": (None, c_void_p),
    "quern_resume": (None, c_void_p),
}
for _name, (_result, *_arguments) in FUNCTIONS.items():
    _f = getattr(lib, _name)
    _f.restype, _f.argtypes = _result, _arguments


def take_text(context, function, *arguments):
    """The text that the function returns in its last argument."""
    out = c_void_p()
    context.check(function(*arguments, byref(out)))
    try:
        return ctypes.string_at(out).decode(errors="replace")
    finally:
        lib.quern_text_free(out)


class Stopped:
    """Whether Ctrl-C was pressed within `stoppable`."""

    def __init__(self):
        self.is_set = False


@contextlib.contextmanager
def stoppable(context):
    """Within it, Ctrl-C ends the library's current call as at its time limit: results are kept. Elsewhere than in the main thread nothing
    changes."""
    stopped = Stopped()

    def stop(number, frame):
        stopped.is_set = True
        lib.quern_stop(context.handle)

    main = threading.current_thread() is threading.main_thread()
    before = signal.signal(signal.SIGINT, stop) if main else None
    try:
        yield stopped
    finally:
        if main:
            signal.signal(signal.SIGINT, before)
        lib.quern_resume(context.handle)
