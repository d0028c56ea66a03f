# SPDX-License-Identifier: Apache-2.0
"""NumPy arrays, torch tensors, and arrays of other packages for the library: a pointer, a type, sizes and strides, without copies.

Other packages' arrays are taken by the protocols that they have: __cuda_array_interface__ (CuPy, Numba) and DLPack on CUDA devices, DLPack and
__array_interface__ on the host."""
from __future__ import annotations

import ctypes
import sys
from typing import Any, Sequence

import numpy as np

from . import _advice as advice
from ._library import Array, Context, lib

# quern_dtype: number, numpy's name, torch's name
TYPES = [(1, "float32", "float32"), (2, "uint8", "uint8"), (3, "int8", "int8"), (4, "uint16", "uint16"), (5, "int16", "int16"),
         (6, "int32", "int32"), (7, "int64", "int64"), (9, "bool", "bool"), (10, "float16", "float16"), (11, "float64", "float64"),
         (12, "uint32", "uint32"), (13, "uint64", "uint64"), (16, None, "bfloat16"), (17, None, "float8_e4m3fn"),
         (18, None, "float8_e4m3fnuz"), (19, None, "float8_e5m2"), (20, None, "float8_e5m2fnuz"), (24, None, "float8_e8m0fnu")]
# of package ml_dtypes, a byte an element
ML_DTYPES = {16: "bfloat16", 17: "float8_e4m3fn", 18: "float8_e4m3fnuz", 19: "float8_e5m2", 20: "float8_e5m2fnuz", 21: "uint4", 22: "int4",
             23: "float4_e2m1fn", 24: "float8_e8m0fnu", 25: "uint2", 26: "int2", 27: "float6_e2m3fn", 28: "float6_e3m2fn"}
OF_ML_DTYPES = {n: k for k, n in ML_DTYPES.items()}
OF_NUMPY: dict[np.dtype[Any], int] = {np.dtype(n): k for k, n, _ in TYPES if n}
TO_NUMPY: dict[int, np.dtype[Any]] = {k: np.dtype(n) for k, n, _ in TYPES if n}
OF_TORCH = {"torch." + t: k for k, _, t in TYPES}
TO_TORCH = {k: t for k, _, t in TYPES}


def type_name(kind: int) -> str:
    """NumPy's name of an element type, or that of ml_dtypes."""
    return str(TO_NUMPY[kind]) if kind in TO_NUMPY else ML_DTYPES.get(kind, str(kind))


def numpy_type(kind: int) -> np.dtype[Any]:
    """NumPy's type: ml_dtypes' if that package is loaded, else integers with the elements' values (u4, i4, u2, i2) or codes (floats)."""
    if kind in TO_NUMPY:
        return TO_NUMPY[kind]
    named = getattr(sys.modules.get("ml_dtypes"), ML_DTYPES.get(kind, ""), None)
    if named is not None:
        found: np.dtype[Any] = np.dtype(named)
        return found
    if kind == 16:
        raise TypeError("numpy has no type for bfloat16: use tensors of torch, or import ml_dtypes")
    return np.dtype(np.int8 if ML_DTYPES[kind].startswith("int") else np.uint8)


def of_numpy(t: np.dtype[Any]) -> int | None:
    """The library's number of NumPy's type, or of one of ml_dtypes."""
    return OF_NUMPY.get(t, OF_ML_DTYPES.get(t.name)) if t.isnative else None


# --- torch ---


def is_torch(x: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(x, torch.Tensor)


# --- arrays in the memory of CUDA devices, by the protocols of their packages ---

CUDA = (2, 13)  # DLPack's kinds of devices: CUDA, and CUDA's managed memory


class DLTensor(ctypes.Structure):
    """DLPack 0.8"""
    _fields_ = [("data", ctypes.c_void_p), ("device_type", ctypes.c_int), ("device_id", ctypes.c_int), ("ndim", ctypes.c_int),
                ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16), ("shape", ctypes.POINTER(ctypes.c_int64)),
                ("strides", ctypes.POINTER(ctypes.c_int64)), ("byte_offset", ctypes.c_uint64)]


class Capsule:
    """What __dlpack__ returns, owned until this object is gone."""

    def __init__(self, capsule: Any) -> None:
        api = ctypes.pythonapi
        api.PyCapsule_GetPointer.restype, api.PyCapsule_GetPointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
        api.PyCapsule_SetName.restype, api.PyCapsule_SetName.argtypes = ctypes.c_int, [ctypes.py_object, ctypes.c_char_p]
        self.capsule, self.at = capsule, api.PyCapsule_GetPointer(capsule, b"dltensor")
        api.PyCapsule_SetName(capsule, b"used_dltensor")
        self.tensor = DLTensor.from_address(self.at)

    def __del__(self) -> None:
        at = getattr(self, "at", None)
        if at:  # struct DLManagedTensor: tensor, manager_ctx, deleter
            deleter = ctypes.c_void_p.from_address(at + ctypes.sizeof(DLTensor) + ctypes.sizeof(ctypes.c_void_p)).value
            if deleter:
                ctypes.PYFUNCTYPE(None, ctypes.c_void_p)(deleter)(at)


class Place:
    """A CUDA device, and the stream that arrays on it are ready in: like PyTorch's device where there is no PyTorch."""

    type = "cuda"

    def __init__(self, index: int, stream: int | None) -> None:
        self.index, self.stream = index, stream

    def __str__(self) -> str:
        return f"cuda:{self.index}"


class OnDevice:
    """An array of another package in the memory of a CUDA device."""

    def __init__(self, owner: Any, data: int, dtype: np.dtype[Any] | int, shape: Sequence[int], strides: Sequence[int] | None, device: Place,
                 keep: Any = None) -> None:
        self.owner, self.keep, self.data, self.shape, self.device = owner, keep, data, tuple(shape), device
        self.kind = of_numpy(dtype) if isinstance(dtype, np.dtype) else dtype
        self.dtype, self.ndim = dtype, len(self.shape)
        dense = [1] * self.ndim
        for d in reversed(range(self.ndim - 1)):
            dense[d] = dense[d + 1] * max(self.shape[d + 1], 1)
        self.strides = tuple(dense if strides is None else strides)  # in elements
        self.is_dense = 0 in self.shape or all(s == t for s, t, n in zip(self.strides, dense, self.shape) if n > 1)


def device_index(x: Any) -> int:
    """CuPy's and others' number of a device."""
    device = getattr(x, "device", None)
    return int(getattr(device, "id", 0) or 0)


def by_cuda_interface(x: Any) -> OnDevice:
    """An object with __cuda_array_interface__ (version 2 or 3)."""
    a = x.__cuda_array_interface__
    t, strides, package = np.dtype(a["typestr"]), a.get("strides"), sys.modules.get("cupy")
    if a.get("mask") is not None:
        raise TypeError(f"an array of type {type(x).__name__} with a mask: pass it without")
    if strides is not None:
        if any(s % t.itemsize for s in strides):
            raise ValueError(f"strides of {strides} bytes, expected multiples of {t.itemsize}, an element's")
        strides = [s // t.itemsize for s in strides]
    stream = a.get("stream")
    if stream == 1:  # the default stream
        stream = 0
    if stream is None and package is not None and isinstance(x, package.ndarray):
        stream = package.cuda.get_current_stream().ptr
    named = OF_ML_DTYPES.get(str(getattr(x, "dtype", "")))  # interfaces have no names for bfloat16 and small types
    return OnDevice(x, a["data"][0] or 0, named or t, a["shape"], strides, Place(device_index(x), stream))


def by_dlpack(x: Any) -> OnDevice:
    """An object with __dlpack__, of a CUDA device, ready in the default stream."""
    capsule = Capsule(x.__dlpack__(stream=1))
    t = capsule.tensor
    names = {0: "int", 1: "uint", 2: "float", 4: "bfloat", 6: "bool"}
    name = "bool" if t.code == 6 else f"{names.get(t.code, '?')}{t.bits}"
    kind = 16 if name == "bfloat16" else OF_NUMPY.get(np.dtype(name)) if t.code in names and t.bits in (8, 16, 32, 64) else None
    if kind is None or t.lanes != 1:
        raise TypeError(f"an array of type {type(x).__name__} has elements of DLPack's type {t.code} with {t.bits} bits, which the library does not know")
    shape = t.shape[:t.ndim] if t.ndim else []
    strides = t.strides[:t.ndim] if t.ndim and t.strides else None
    return OnDevice(x, (t.data or 0) + t.byte_offset, kind, shape, strides, Place(t.device_id, 0), capsule)


def as_array(x: Any) -> Any:
    """x itself if it is an array or a tensor, else the same memory (on CUDA devices, by DLPack or an array interface), or an array with the same
    numbers."""
    if is_torch(x) or isinstance(x, (np.ndarray, OnDevice)):
        return x
    if hasattr(x, "__cuda_array_interface__"):
        return by_cuda_interface(x)
    if hasattr(x, "__dlpack__") and hasattr(x, "__dlpack_device__"):
        kind = int(x.__dlpack_device__()[0])
        if kind in CUDA:
            return by_dlpack(x)
        if kind in (1, 3):  # the host's memory, pageable or pinned
            try:
                return np.from_dlpack(x)
            except (TypeError, BufferError, RuntimeError):  # of a type that NumPy's DLPack lacks
                return np.asarray(x)
        raise TypeError(f"an array of type {type(x).__name__} lies on a device of DLPack's kind {kind}: copy it to the host, or to a CUDA device")
    return np.asarray(x)


# --- places ---


def device_of(*some: Any) -> Any:
    """PyTorch's device of any of the arrays, or a Place, if the library can use its memory by address (CUDA; ROCm has the same name). None: the host."""
    on = [x for x in some if is_torch(x) and x.device.type == "cuda"] + [x for x in some if isinstance(x, OnDevice)]
    return on[0].device if on else None


def device_name(device: Any) -> str:
    """The library's name of such a device."""
    is_hip = not isinstance(device, Place) and sys.modules["torch"].version.hip
    return f"{'hip' if is_hip else 'cuda'}:{device.index}"


def stream_of(device: Any) -> int | None:
    """The stream that arrays are ready in: PyTorch's current stream of the device, or the one that their package states."""
    if isinstance(device, Place):
        return device.stream
    return int(sys.modules["torch"].cuda.current_stream(device).cuda_stream)


ALIGN = 16  # bytes, of arrays on a device


def on_device(x: Any, row_major: bool = False) -> Any:
    """x itself if the device can use it in place (dense, aligned; programs take row-major arrays only, operators channels last, too), else a copy there."""
    if isinstance(x, OnDevice):
        if x.is_dense and x.data % ALIGN == 0:
            return x
        package = sys.modules.get("cupy")
        if package is not None and isinstance(x.owner, package.ndarray):
            return by_cuda_interface(x.owner.copy(order="C"))
        raise ValueError(f"an array of type {type(x.owner).__name__} is not dense and row-major from a multiple of {ALIGN} bytes: copy it")
    torch = sys.modules["torch"]
    is_dense = x.is_contiguous() or (not row_major and x.dim() == 4 and x.is_contiguous(memory_format=torch.channels_last))
    return x if is_dense and x.data_ptr() % ALIGN == 0 else x.clone(memory_format=torch.contiguous_format)


# --- descriptions ---


def check_place(x: Any, what: str, device: Any) -> None:
    """Raises ValueError if an array is not on the device; None: in the host's memory."""
    if is_torch(x):
        is_there = x.device.type == "cpu" if device is None else x.device.type == "cuda" if isinstance(device, Place) else x.device == device
        if not is_there:
            raise ValueError(f"{what} lies on device '{x.device}', expected '{device or 'cpu'}': " +
                             ("tensors there have no data" if x.is_meta else f"move it, x.to('{device or 'cpu'}')"))
    elif device is not None and not isinstance(x, OnDevice):
        raise ValueError(f"{what} lies in the host's memory, expected device '{device}', as the other arrays: move it there "
                         f"(torch.as_tensor(x, device='{device}'), cupy.asarray(x)), or pass all of them in the host's memory")


def kind_of(x: Any) -> int | None:
    """The library's number of the element type; None: it does not know it."""
    return OF_TORCH.get(str(x.dtype)) if is_torch(x) else x.kind if isinstance(x, OnDevice) else of_numpy(x.dtype)


def describe(x: Any, what: str, device: Any = None) -> Array:
    """struct quern_array of an array (None: omitted), which must outlive it. device: PyTorch's device that it must be on, or a Place; None: host memory."""
    a = Array()
    if x is None:
        return a
    check_place(x, what, device)
    if is_torch(x):
        if x.layout != sys.modules["torch"].strided:
            raise TypeError(f"{what} has layout {x.layout}, expected torch.strided: pass x.to_dense()")
        strides, data = x.stride(), x.data_ptr()
    elif isinstance(x, OnDevice):
        strides, data = x.strides, x.data
    elif isinstance(x, np.ndarray):
        if any(s % x.itemsize for s in x.strides):
            raise ValueError(f"{what} has strides of {x.strides} bytes, expected multiples of {x.itemsize}, an element's")
        strides, data = [s // x.itemsize for s in x.strides], x.ctypes.data
    else:
        raise TypeError(f"{what} is a {type(x).__name__}, expected an array or a tensor")
    kind = kind_of(x)
    if kind is None:
        raise TypeError(f"{what} has elements of type {x.dtype}, which the library does not know: {advice.other_type(x.dtype)}")
    if x.ndim > 8:
        raise ValueError(f"{what} has {x.ndim} axes, expected up to 8")
    a.type, a.rank, a.data = kind, x.ndim, data
    a.dim[:x.ndim], a.stride[:x.ndim] = tuple(x.shape), tuple(strides)
    return a


def describe_all(what: str, some: Sequence[Any], device: Any = None) -> Any:
    """Those of several arrays, numbered in messages."""
    return (Array * max(len(some), 1))(*[describe(a, f"{what} {k}", device) for k, a in enumerate(some)])


def sizes_of(a: Array) -> tuple[int, ...]:
    return tuple(a.dim[:a.rank])


# --- new arrays ---


def empty(shape: Sequence[int], kind: int, like: Any) -> Any:
    """A new dense array of the same kind as `like`."""
    if is_torch(like):
        torch = sys.modules["torch"]
        if not hasattr(torch, TO_TORCH.get(kind, "")):
            raise TypeError(f"this torch has no type for {ML_DTYPES.get(kind, kind)}: use arrays of numpy")
        return torch.empty(shape, dtype=getattr(torch, TO_TORCH[kind]), device=like.device)
    if isinstance(like, OnDevice):
        return empty_on_device(shape, kind, like)
    return np.empty(shape, numpy_type(kind))


def empty_on_device(shape: Sequence[int], kind: int, like: OnDevice) -> Any:
    """By the package of the array."""
    package = type(like.owner).__module__.split(".")[0]
    if package == "cupy":
        return sys.modules["cupy"].empty(shape, numpy_type(kind))
    if package == "numba":
        return sys.modules["numba.cuda"].device_array(shape, numpy_type(kind))
    raise TypeError(f"no new arrays on the device for arrays of type {type(like.owner).__name__}: pass arrays for the results, too (run), or "
                    "tensors of torch or arrays of CuPy")


def dense(x: Any) -> Any:
    """An array in the host's memory, row-major without gaps: itself, or a copy."""
    if is_torch(x):
        return x.contiguous() if x.layout == sys.modules["torch"].strided else x  # others are an error of describe()
    return np.ascontiguousarray(x).reshape(x.shape)


def is_dense(x: Any) -> bool:
    """A row-major array in the host's memory without gaps."""
    return bool(x.is_contiguous() if is_torch(x) else x.flags.c_contiguous)


# --- tensors of the library ---


class Views:
    """Tensors of the library over the memory of arrays, which must outlive them; freed together at the end of a with statement."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self.all: list[ctypes.c_void_p] = []

    def add(self, a: Array) -> int | None:
        """The handle of a new one. a: a dense array in the host's memory, see describe()."""
        c = self.context
        self.all.append(c.make(lib.quern_tensor_view, c.handle, a.type, a.rank, a.dim, a.data or 64))
        return self.all[-1].value

    @staticmethod
    def handles(some: Sequence[int | None]) -> Any:
        """An array of handles for the library, of one element at least. None: no tensor."""
        return (ctypes.c_void_p * max(len(some), 1))(*some)

    def __enter__(self) -> Views:
        return self

    def __exit__(self, *_: object) -> None:
        for v in self.all:
            lib.quern_tensor_free(v)


class Owner:
    """Frees a tensor of the library together with the array over its memory."""

    def __init__(self, handle: Any) -> None:
        self.handle = handle

    def __del__(self) -> None:
        if self.handle:
            lib.quern_tensor_free(self.handle)


class Exported:
    """A tensor of the library for torch.from_dlpack."""

    def __init__(self, context: Context, handle: Any) -> None:
        self.context, self.handle = context, handle

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)

    def __dlpack__(self, stream: Any = None, **_: Any) -> Any:
        managed = self.context.make(lib.quern_tensor_to_dlpack, self.context.handle, self.handle)
        new = ctypes.pythonapi.PyCapsule_New
        new.restype, new.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
        return new(managed, b"dltensor", None)


def adopt(context: Context, handle: Any, like: Any) -> Any:
    """The library's tensor as an array or a tensor over the same memory, which it then owns."""
    if is_torch(like):
        return sys.modules["torch"].from_dlpack(Exported(context, handle))
    owner = Owner(handle)
    kind, rank = lib.quern_tensor_dtype(handle), lib.quern_tensor_rank(handle)
    t, shape = numpy_type(kind), tuple(lib.quern_tensor_dims(handle)[:rank])
    memory = (ctypes.c_char * max(lib.quern_tensor_count(handle) * t.itemsize, 1)).from_address(lib.quern_tensor_data(handle))
    memory.owner = owner
    return np.ndarray(shape, t, memory)
