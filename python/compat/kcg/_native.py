# SPDX-License-Identifier: Apache-2.0
"""Functions of the library that kernel lists, configurations and tuning need, beside those of quern's own package (include/quern.h)."""
import ctypes
from ctypes import POINTER, c_char, c_char_p, c_double, c_int, c_int64, c_size_t, c_void_p

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


FUNCTIONS = {
    "quern_gemm": (c_int, c_void_p, c_char_p, POINTER(GemmOpts), POINTER(GemmBest)),
    "quern_gemm_space": (c_int, c_void_p, POINTER(GemmShape), c_int, Handle),
    "quern_attention_tiles": (c_int, c_void_p, c_char_p, POINTER(AttentionShape), POINTER(GemmOpts), POINTER(GemmBest)),
    "quern_op_model": (c_int, c_void_p, POINTER(Array), c_int, POINTER(Array), c_int, Handle),
    "quern_devices": (c_int, c_void_p, Handle),
    "quern_show": (c_int, c_void_p, c_char_p, Handle),
}
for _name, (_result, *_arguments) in FUNCTIONS.items():
    _f = getattr(lib, _name)
    _f.restype, _f.argtypes = _result, _arguments
