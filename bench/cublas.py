#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
#
# cublas.py: cuBLAS GEMM on the first CUDA device, timed by the device's events; a process of its
# own, controlled by lines of JSON on standard input (bench/worker.py).
#
# Uses only the driver and libcublas, by ctypes. Operands are uniform in [-1, 1), like those of
# candidates, and row-major, y (b, m, n) = a (b, m, k) x b (b, k, n). A sample is a number of
# consecutive runs that take SAMPLE seconds.
import array
import ctypes
import glob
import math
import os
import random
import struct
import sys
import time

import serve

BLOCK = 1048573  # elements of random content, a prime: rows that repeat it differ
SAMPLE, WARM, MOST = 2e-3, 0.05, 1000  # seconds of a sample, of warming up; runs of a sample
# element size, cudaDataType_t, cublasComputeType_t (library_types.h, cublas_api.h)
F32, F16, BF16 = 0, 2, 14
COMPUTE_32F, COMPUTE_32F_FAST_TF32 = 68, 77
TYPES = {
    "fp32": (4, F32, COMPUTE_32F),
    "tf32": (4, F32, COMPUTE_32F_FAST_TF32),
    "fp16": (2, F16, COMPUTE_32F),
    "bf16": (2, BF16, COMPUTE_32F),
}
Pointer, Int, Long = ctypes.c_void_p, ctypes.c_int, ctypes.c_longlong


def encode(values, size, kind):
    if kind == F16:
        return struct.pack("<%de" % len(values), *values)
    data = array.array("f", values).tobytes()
    if kind == F32:
        return data
    upper = bytearray(2 * len(values))
    upper[0::2], upper[1::2] = data[2::4], data[3::4]
    return bytes(upper)


def decode(data, kind):
    if kind == BF16:
        data, kind = b"\0\0" + data, F32
    return struct.unpack("<f" if kind == F32 else "<e", data)[0]


def open_library(names, folders):
    why = ""
    for path in [n for n in names] + [os.path.join(d, n) for d in folders for n in names]:
        try:
            return ctypes.CDLL(path)
        except OSError as e:
            why = why or str(e)
    raise RuntimeError("no %s: %s" % (names[-1], why))


def cublas_library():
    home = os.environ.get("CUDA_HOME", "/usr/local/cuda")
    packages = [p for d in sys.path for p in sorted(glob.glob(d + "/nvidia/*/lib"), reverse=True)]
    names = ["libcublas.so." + v for v in ("13", "12", "11")] + ["libcublas.so"]
    return open_library(names, [home + "/lib64", *packages])


class Cublas:
    def __init__(self, cuda, blas):
        self.cuda, self.blas = cuda, blas
        device, context, handle, version = Int(), Pointer(), Pointer(), Int()
        self.driver("cuInit", Int(0))
        self.driver("cuDeviceGet", ctypes.byref(device), Int(0))
        self.driver("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        self.driver("cuCtxSetCurrent", context)
        self.library("cublasCreate_v2", ctypes.byref(handle))
        self.handle = handle
        self.library("cublasGetVersion_v2", handle, ctypes.byref(version))
        self.version = "cuBLAS %d" % version.value
        self.events = [self.made("cuEventCreate", Pointer, Int(0)) for _ in range(2)]
        rng = random.Random(1)
        self.values = [rng.uniform(-1, 1) for _ in range(BLOCK)]
        self.content = {}

    def driver(self, name, *args):
        status = getattr(self.cuda, name)(*args)
        if status:
            raise RuntimeError("%s: CUDA error %d" % (name, status))

    def library(self, name, *args):
        status = getattr(self.blas, name)(*args)
        if status:
            raise RuntimeError("%s: status %d" % (name, status))

    def made(self, name, kind, *args):
        x = kind()
        self.driver(name, ctypes.byref(x), *args)
        return x

    def operand(self, n, size, kind):
        """n elements that repeat the random block; returns their address, to be freed by the
        caller."""
        if kind not in self.content:
            self.content[kind] = encode(self.values, size, kind)
        data = self.content[kind]
        at = self.made("cuMemAlloc_v2", ctypes.c_uint64, ctypes.c_size_t(n * size))
        self.memory.append(at)
        have = min(n * size, len(data))
        self.driver("cuMemcpyHtoD_v2", at, data, ctypes.c_size_t(have))
        while have < n * size:  # whole blocks, or the last piece
            more = min(have, n * size - have)
            to = ctypes.c_uint64(at.value + have)
            self.driver("cuMemcpyDtoD_v2", to, at, ctypes.c_size_t(more))
            have += more
        return at

    def prepare(self, kind, batch, m, n, k):
        """Returns a function without arguments that starts the GEMM, and y's address."""
        size, data, compute = TYPES[kind]
        a, b, y = (self.operand(batch * e, size, data) for e in (m * k, k * n, m * n))
        one, zero = ctypes.c_float(1), ctypes.c_float(0)
        self.factors = (one, zero)
        # cuBLAS is column-major: y^T = b^T a^T
        head = (self.handle, Int(0), Int(0), Int(n), Int(m), Int(k), ctypes.byref(one))

        def matrix(at, pitch, elements):
            return (Pointer(at.value), Int(data), Int(pitch), *([Long(elements)] if batch > 1 else []))

        args = (*head, *matrix(b, n, k * n), *matrix(a, k, m * k), ctypes.byref(zero), *matrix(y, n, m * n))
        tail = (Int(compute), Int(-1))
        if batch > 1:
            return (lambda: self.library("cublasGemmStridedBatchedEx", *args, Int(batch), *tail)), y
        return (lambda: self.library("cublasGemmEx", *args, *tail)), y

    def seconds(self, start, count):
        """Seconds of a run: the mean of count consecutive ones."""
        self.driver("cuEventRecord", self.events[0], Pointer())
        for _ in range(count):
            start()
        self.driver("cuEventRecord", self.events[1], Pointer())
        self.driver("cuEventSynchronize", self.events[1])
        ms = self.made("cuEventElapsedTime", ctypes.c_float, *self.events)
        return ms.value * 1e-3 / count

    def check(self, kind, y, batch, m, n, k):
        """Verifies the last element of the result against the operands."""
        size, data, _ = TYPES[kind]
        got = ctypes.create_string_buffer(size)
        at = ctypes.c_uint64(y.value + (batch * m * n - 1) * size)
        self.driver("cuMemcpyDtoH_v2", got, at, ctypes.c_size_t(size))
        left, right = batch * m * k - k, (batch - 1) * k * n + n - 1
        v = self.values
        want = sum(v[(left + i) % BLOCK] * v[(right + i * n) % BLOCK] for i in range(k))
        got = decode(got.raw, data)
        if not abs(got - want) <= 0.05 * math.sqrt(k):
            raise RuntimeError("result %g where %g is right" % (got, want))

    def time(self, ask):
        """Seconds of one run, per sample."""
        kind, shape = ask["type"], [ask[x] for x in ("batch", "m", "n", "k")]
        self.memory = []
        try:
            start, y = self.prepare(kind, *shape)
            self.seconds(start, 1)
            self.check(kind, y, *shape)
            count = max(1, min(MOST, math.ceil(SAMPLE / max(self.seconds(start, 1), 1e-7))))
            end = time.perf_counter() + WARM
            while time.perf_counter() < end:
                self.seconds(start, count)
            return {"seconds": [self.seconds(start, count) for _ in range(ask["samples"])]}
        finally:
            for at in self.memory:
                self.driver("cuMemFree_v2", at)

    def hello(self, ask):
        return {"version": self.version}


def open_engine():
    blas = cublas_library()
    return Cublas(open_library(["libcuda.so.1"], []), blas)


if __name__ == "__main__":
    serve.serve(open_engine)
