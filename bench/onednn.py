# SPDX-License-Identifier: Apache-2.0
#
# oneDNN through its C interface (version 3), as far as matmuls and convolutions need it:
# descriptors are opaque handles, so only a few numbers of its headers are repeated. Weights are
# packed once into the library's preferred layout; f32 throughout.
import ctypes

import numpy as np

F32, ANY, INFERENCE, AUTO, RELU, CLIP = 3, 1, 96, 3, 0x20, 0x2E
SRC_MD, WEIGHTS_MD, DST_MD = 129, 131, 133
SRC, DST, WEIGHTS, BIAS = 1, 17, 33, 41
Handle, Dims = ctypes.c_void_p, ctypes.c_int64 * 12


class Arg(ctypes.Structure):
    _fields_ = [("arg", ctypes.c_int), ("memory", Handle)]


class OneDnn:
    """One engine and stream; its objects live as long as it does."""

    def __init__(self, path):
        self.lib = ctypes.CDLL(path)
        self.engine = self.make("dnnl_engine_create", 1, ctypes.c_size_t(0))
        self.stream = self.make("dnnl_stream_create", self.engine, 1)
        self.keep = []

    def call(self, name, *args):
        status = getattr(self.lib, name)(*args)
        if status:
            raise RuntimeError("%s: status %d" % (name, status))

    def make(self, name, *args):
        h = Handle()
        self.call(name, ctypes.byref(h), *args)
        return h

    def version(self):
        class Version(ctypes.Structure):
            _fields_ = [(n, ctypes.c_int) for n in ("major", "minor", "patch")]

        self.lib.dnnl_version.restype = ctypes.POINTER(Version)
        v = self.lib.dnnl_version().contents
        return "oneDNN %d.%d.%d" % (v.major, v.minor, v.patch)

    def plain(self, shape, strides=None):
        """Strides in elements, by default row-major."""
        strides = strides or [int(np.prod(shape[i + 1 :])) for i in range(len(shape))]
        name = "dnnl_memory_desc_create_with_strides"
        return self.make(name, len(shape), Dims(*shape), F32, Dims(*strides))

    def any(self, shape):
        return self.make("dnnl_memory_desc_create_with_tag", len(shape), Dims(*shape), F32, ANY)

    def asked(self, primitive, what):
        """The descriptor that a primitive requires; owned by the primitive."""
        self.lib.dnnl_primitive_desc_query_md.restype = Handle
        return Handle(self.lib.dnnl_primitive_desc_query_md(primitive, what, 0))

    def memory(self, desc, array=None):
        """Memory in the caller's array, or allocated by the library."""
        if array is not None:
            self.keep.append(array)
        data = ctypes.c_void_p(-1 if array is None else array.ctypes.data)
        return self.make("dnnl_memory_create", desc, self.engine, data)

    def execute(self, primitive, args):
        self.call("dnnl_primitive_execute", primitive, self.stream, len(args), args)

    def wait(self):
        self.call("dnnl_stream_wait", self.stream)

    def args(self, **memory):
        names = {"src": SRC, "dst": DST, "weights": WEIGHTS, "bias": BIAS}
        return (Arg * len(memory))(*[Arg(names[n], m) for n, m in memory.items()])

    def reordered(self, desc, memory, wanted):
        """A copy of memory with descriptor desc, reordered to the descriptor wanted."""
        e, to = self.engine, self.memory(wanted)
        pd = self.make("dnnl_reorder_primitive_desc_create", desc, e, wanted, e, None)
        self.execute(self.make("dnnl_primitive_create", pd), self.args(src=memory, dst=to))
        self.wait()
        return to

    def activation(self, name):
        """Attributes of a primitive with this activation."""
        if not name:
            return None
        attr, ops = self.make("dnnl_primitive_attr_create"), self.make("dnnl_post_ops_create")
        what, high = {"Relu": (RELU, 0), "Relu6": (CLIP, 6)}[name]
        bounds = ctypes.c_float(0), ctypes.c_float(high)
        self.call("dnnl_post_ops_append_eltwise", ops, what, *bounds)
        self.call("dnnl_primitive_attr_set_post_ops", attr, ops)
        return attr

    def matmul(self, left, right, out, free):
        """The primitive descriptor of shapes and strides; free: the library selects the layout of
        the right operand."""
        weights = self.any(right[0]) if free else self.plain(*right)
        return self.make(
            "dnnl_matmul_primitive_desc_create", self.engine, self.plain(*left), weights, None,
            self.plain(*out), None,
        )  # fmt: skip

    def convolution(self, row):
        """With all operands in the library's own layouts."""
        weights = row.weights
        if row.group > 1:
            weights = (row.group, row.oc // row.group, *weights[1:])
        dims = lambda v: Dims(*v)
        return self.make(
            "dnnl_convolution_forward_primitive_desc_create", self.engine, INFERENCE, AUTO,
            self.any(row.x), self.any(weights), self.plain((row.oc,)),
            self.any(row.y), dims(row.strides), dims([d - 1 for d in row.dilations]),
            dims(row.begins), dims(row.ends), self.activation(row.activation),
        ), weights  # fmt: skip
