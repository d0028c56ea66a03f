# SPDX-License-Identifier: Apache-2.0
#
# The tensor library of llama.cpp through its C interface, as far as attention and products need it: a graph of
# one computation, evaluated on the processor. Shapes are listed innermost first. Libraries:
# bench/setup llama.cpp; BENCH_GGML: their folder.
import ctypes
import os

import numpy as np

F32, F16, Q4_0, Q8_0 = 0, 1, 2, 8
SPARE = 1 << 20  # bytes beyond those of the tensors: headers and the graph
Handle, F, I64 = ctypes.c_void_p, ctypes.c_float, ctypes.c_int64


class Init(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("buffer", Handle), ("no_alloc", ctypes.c_bool)]


class Plan(ctypes.Structure):
    _fields_ = [
        ("work_size", ctypes.c_size_t), ("work", Handle), ("threads", ctypes.c_int), ("pool", Handle),
        ("abort", Handle), ("abort_data", Handle), ("use_ref", ctypes.c_bool),
    ]  # fmt: skip


class Ggml:
    """A context with a graph."""

    def __init__(self, folder):
        self.base = ctypes.CDLL(os.path.join(folder, "libggml-base.so"), ctypes.RTLD_GLOBAL)
        self.cpu = ctypes.CDLL(os.path.join(folder, "libggml-cpu.so"))
        self.base.ggml_version.restype = ctypes.c_char_p
        self.cpu.ggml_graph_plan.restype = Plan
        self.version = self.base.ggml_version().decode()
        self.cpu.ggml_cpu_init()

    def call(self, name, *args):
        f = getattr(self.base, name)
        f.restype = Handle
        return Handle(f(*args))

    def start(self, size):
        self.context = self.call("ggml_init", Init(size + SPARE, None, False))
        if not self.context:
            raise RuntimeError("no memory for the graph")

    def free(self):
        self.base.ggml_free(self.context)

    def tensor(self, a):
        """A copy of an array of f32 or f16, of at most four axes."""
        kind = {np.dtype(np.float32): F32, np.dtype(np.float16): F16}[a.dtype]
        t = self.call("ggml_new_tensor", self.context, kind, a.ndim, (I64 * a.ndim)(*a.shape[::-1]))
        ctypes.memmove(self.data(t), a.ctypes.data, a.nbytes)
        return t

    def codes(self, q, scale, bits):
        """Weights (n, k) from MatMulNBits' codes (n, blocks of 32, bytes) with scales (n, blocks), in blocks
        of a scale in f16 and codes: less 128, or of 4 bits in pairs of elements 16 apart."""
        half = scale.astype(np.float16)[..., None].view(np.uint8)
        if bits == 4:
            fields = np.stack((q & 15, q >> 4), -1).reshape(*q.shape[:2], 32)
            q = fields[..., :16] | fields[..., 16:] << 4
        else:
            q = q ^ 128
        blocks = np.concatenate((half, q), -1)
        shape = (I64 * 2)(32 * q.shape[1], q.shape[0])
        t = self.call("ggml_new_tensor", self.context, Q4_0 if bits == 4 else Q8_0, 2, shape)
        ctypes.memmove(self.data(t), blocks.ctypes.data, blocks.nbytes)
        return t

    def data(self, t):
        return self.call("ggml_get_data", t)

    def op(self, name, *args):
        return self.call("ggml_" + name, self.context, *args)

    def plan(self, threads, *results):
        self.graph = self.call("ggml_new_graph", self.context)
        for result in results:
            self.call("ggml_build_forward_expand", self.graph, result)
        self.planned = self.cpu.ggml_graph_plan(self.graph, threads, None)
        self.work = np.empty(max(1, self.planned.work_size), np.uint8)
        self.planned.work = self.work.ctypes.data

    def run(self):
        status = self.cpu.ggml_graph_compute(self.graph, ctypes.byref(self.planned))
        if status:
            raise RuntimeError("ggml_graph_compute: status %d" % status)

    def array(self, t, shape):
        data = (ctypes.c_char * (4 * int(np.prod(shape)))).from_address(self.data(t).value)
        return np.frombuffer(data, np.float32).reshape(shape)
