# SPDX-License-Identifier: Apache-2.0
"""NumPy arrays and torch tensors for the library: a pointer, a type, sizes and strides, without copies."""
import ctypes
import sys

import numpy as np

from ._library import Array, lib

# quern_dtype: number, numpy's name, torch's name
TYPES = [(1, "float32", "float32"), (2, "uint8", "uint8"), (3, "int8", "int8"), (4, "uint16", "uint16"), (5, "int16", "int16"),
         (6, "int32", "int32"), (7, "int64", "int64"), (9, "bool", "bool"), (10, "float16", "float16"), (11, "float64", "float64"),
         (12, "uint32", "uint32"), (13, "uint64", "uint64"), (16, None, "bfloat16"), (17, None, "float8_e4m3fn"),
         (18, None, "float8_e4m3fnuz"), (19, None, "float8_e5m2"), (20, None, "float8_e5m2fnuz"), (24, None, "float8_e8m0fnu")]
# of package ml_dtypes, a byte an element
ML_DTYPES = {16: "bfloat16", 17: "float8_e4m3fn", 18: "float8_e4m3fnuz", 19: "float8_e5m2", 20: "float8_e5m2fnuz", 21: "uint4", 22: "int4",
             23: "float4_e2m1fn", 24: "float8_e8m0fnu", 25: "uint2", 26: "int2", 27: "float6_e2m3fn", 28: "float6_e3m2fn"}
OF_ML_DTYPES = {n: k for k, n in ML_DTYPES.items()}
OF_NUMPY = {np.dtype(n): k for k, n, _ in TYPES if n}
TO_NUMPY = {k: np.dtype(n) for k, n, _ in TYPES if n}
OF_TORCH = {"torch." + t: k for k, _, t in TYPES}
TO_TORCH = {k: t for k, _, t in TYPES}


def numpy_type(kind):
    """NumPy's type: ml_dtypes' if that package is loaded, else integers with the elements' values (u4, i4, u2, i2) or codes (floats)."""
    if kind in TO_NUMPY:
        return TO_NUMPY[kind]
    named = getattr(sys.modules.get("ml_dtypes"), ML_DTYPES.get(kind, ""), None)
    if named is not None:
        return np.dtype(named)
    if kind == 16:
        raise TypeError("numpy has no type for bfloat16: use tensors of torch, or import ml_dtypes")
    return np.dtype(np.int8 if ML_DTYPES[kind].startswith("int") else np.uint8)


def is_torch(x):
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(x, torch.Tensor)


def as_array(x):
    """x itself if it is an array or a tensor, else a NumPy array of the same memory (DLPack) or with the same numbers."""
    if is_torch(x) or isinstance(x, np.ndarray):
        return x
    return np.from_dlpack(x) if hasattr(x, "__dlpack__") else np.asarray(x)


def device_of(*some):
    """PyTorch's device of any of the arrays, if the library can use its memory by address (CUDA; ROCm has the same name). None: the host."""
    return next((x.device for x in some if is_torch(x) and x.device.type == "cuda"), None)


def device_name(device):
    """The library's name of a PyTorch device."""
    return f"{'hip' if sys.modules['torch'].version.hip else 'cuda'}:{device.index}"


def stream_of(device):
    """PyTorch's current stream of the device."""
    return sys.modules["torch"].cuda.current_stream(device).cuda_stream


def on_device(x):
    """x itself if the device can use it in place (dense, 16-byte aligned), else a copy there."""
    torch = sys.modules["torch"]
    is_dense = x.is_contiguous() or (x.dim() == 4 and x.is_contiguous(memory_format=torch.channels_last))
    return x if is_dense and x.data_ptr() % 16 == 0 else x.clone(memory_format=torch.contiguous_format)


def describe(x, what, device=None):
    """struct quern_array of an array (None: omitted), which must outlive it. device: PyTorch's device that it must be on; None: host memory."""
    a = Array()
    if x is None:
        return a
    if device is not None and not is_torch(x):
        raise ValueError(f"{what} lies in the host's memory, expected device '{device}'")
    if is_torch(x):
        if x.device != device if device is not None else x.device.type != "cpu":
            raise ValueError(f"{what} lies on device '{x.device}', expected '{device or 'cpu'}'")
        if x.layout != sys.modules["torch"].strided:
            raise TypeError(f"{what} has layout {x.layout}, expected torch.strided")
        kind, strides, data = OF_TORCH.get(str(x.dtype)), x.stride(), x.data_ptr()
    else:
        if any(s % x.itemsize for s in x.strides):
            raise ValueError(f"{what} has strides of {x.strides} bytes, expected multiples of {x.itemsize}, an element's")
        kind = OF_NUMPY.get(x.dtype, OF_ML_DTYPES.get(x.dtype.name)) if x.dtype.isnative else None
        strides, data = [s // x.itemsize for s in x.strides], x.ctypes.data
    if kind is None:
        raise TypeError(f"{what} has elements of type {x.dtype}, which the library does not know")
    if x.ndim > 8:
        raise ValueError(f"{what} has {x.ndim} axes, expected up to 8")
    a.type, a.rank, a.data = kind, x.ndim, data
    a.dim[:x.ndim], a.stride[:x.ndim] = tuple(x.shape), tuple(strides)
    return a


def describe_all(what, some, device=None):
    """Those of several arrays, numbered in messages."""
    return (Array * max(len(some), 1))(*[describe(a, f"{what} {k}", device) for k, a in enumerate(some)])


def empty_all(described, like):
    """New arrays as the library describes them."""
    return tuple(empty(tuple(a.dim[:a.rank]), a.type, like) for a in described)


def empty(shape, kind, like):
    """A new dense array of the same kind as `like`."""
    if is_torch(like):
        torch = sys.modules["torch"]
        if not hasattr(torch, TO_TORCH.get(kind, "")):
            raise TypeError(f"this torch has no type for {ML_DTYPES.get(kind, kind)}: use arrays of numpy")
        return torch.empty(shape, dtype=getattr(torch, TO_TORCH[kind]), device=like.device)
    return np.empty(shape, numpy_type(kind))


def dense(x):
    return x.contiguous() if is_torch(x) else np.ascontiguousarray(x).reshape(x.shape)


class Owner:
    """Frees a tensor of the library together with the array over its memory."""

    def __init__(self, handle):
        self.handle = handle

    def __del__(self):
        if self.handle:
            lib.quern_tensor_free(self.handle)


class Exported:
    """A tensor of the library for torch.from_dlpack."""

    def __init__(self, context, handle):
        self.context, self.handle = context, handle

    def __dlpack_device__(self):
        return (1, 0)

    def __dlpack__(self, stream=None, **_):
        managed = self.context.make(lib.quern_tensor_to_dlpack, self.context.handle, self.handle)
        new = ctypes.pythonapi.PyCapsule_New
        new.restype, new.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
        return new(managed, b"dltensor", None)


def adopt(context, handle, like):
    """The library's tensor as an array or a tensor over the same memory, which it then owns."""
    if is_torch(like):
        return sys.modules["torch"].from_dlpack(Exported(context, handle))
    owner = Owner(handle)
    kind, rank = lib.quern_tensor_dtype(handle), lib.quern_tensor_rank(handle)
    t, shape = numpy_type(kind), tuple(lib.quern_tensor_dims(handle)[:rank])
    memory = (ctypes.c_char * max(lib.quern_tensor_count(handle) * t.itemsize, 1)).from_address(lib.quern_tensor_data(handle))
    memory.owner = owner
    return np.ndarray(shape, t, memory)
