#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
#
# engines.py NAME: one engine in a process of its own, controlled by lines of JSON on standard input
# (see bench/worker.py), so that libraries with threads do not disturb each other.
#
# An engine has load(job), run(), results() and version. job: "row", "threads", and the files
# "model", and "program" of quern. run() computes the row once; `seconds`, if an engine sets it, is
# its time by the engine's own clock; `form`, of several forms of a row, the fastest one.
import ctypes
import gc
import json
import os
import sys
import time

import numpy as np

import attention
import attention_forms
import ggml
import onednn
import operands
import places
import rows
import stats

ROOT = rows.ROOT
SETTLED = 0.3  # seconds that threads are given to stop spinning
PLACING = 1.0  # seconds of runs, about, for finding out where threads should be
F32 = ctypes.POINTER(ctypes.c_float)


def address(array):
    return array.ctypes.data_as(F32)


def outputs(row):
    """Arrays for the results of a matmul."""
    left, _ = operands.gemm_shapes(row)
    return [np.zeros(left[:-1] + (row.n,), np.float32) for _ in range(row.copies)]


def channels_last(a):
    return operands.aligned(np.moveaxis(a, 1, -1))


class Unsupported(Exception):
    """The engine does not support this row."""


class Blas:
    """cblas_sgemm, one call per matrix; sgemv for one row. CBLAS has no packed weights."""

    def __init__(self):
        path, self.prefix = os.environ["BENCH_BLAS"].split(",")
        self.lib = ctypes.CDLL(path)

    def call(self, name):
        return getattr(self.lib, self.prefix + name)

    def load(self, job):
        row = job["row"]
        if row.kind != "gemm":
            raise Unsupported
        x, right = operands.operands(row)
        self.y = outputs(row)
        batch = (lambda a: a) if row.batch > 1 else (lambda a: [a])
        sgemm, sgemv = self.call("cblas_sgemm"), self.call("cblas_sgemv")
        one, zero, order, plain, trans = ctypes.c_float(1), ctypes.c_float(0), 101, 111, 112
        m, n, k, t = row.m, row.n, row.k, row.transposed
        self.keep, self.calls = (x, right), []
        for w, y in zip(right, self.y):
            for a, b, c in zip(batch(x), batch(w), batch(y)):
                a, b, c = address(a), address(b), address(c)
                if m == 1 and not t:
                    args = (order, trans, k, n, one, b, n, a, 1, zero, c, 1)
                    self.calls.append((sgemv, args))
                else:
                    args = (m, n, k, one, a, k, b, k if t else n, zero, c, n)
                    self.calls.append((sgemm, (order, plain, trans if t else plain, *args)))

    def run(self):
        for f, args in self.calls:
            f(*args)

    def results(self):
        return self.y


class OpenBlas(Blas):
    @property
    def version(self):
        config, core = self.call("openblas_get_config"), self.call("openblas_get_corename")
        config.restype = core.restype = ctypes.c_char_p
        return "%s (%s)" % (" ".join(config().decode().split()[:2]), core().decode())


class Blis(Blas):
    def __init__(self):
        super().__init__()
        self.lib.bli_init()

    @property
    def version(self):
        self.lib.bli_info_get_version_str.restype = self.lib.bli_arch_string.restype = (
            ctypes.c_char_p
        )
        arch = self.lib.bli_arch_string(self.lib.bli_arch_query_id())
        return "BLIS %s (%s)" % (self.lib.bli_info_get_version_str().decode(), arch.decode())


class OneDnn:
    """Primitives of oneDNN, with weights reordered beforehand; activations stay in its own
    layouts."""

    def __init__(self):
        self.d = onednn.OneDnn(os.path.join(sys.prefix, "lib/libdnnl.so.3"))
        self.version = self.d.version()

    def load(self, job):
        row = job["row"]
        if row.kind not in ("gemm", "conv"):
            raise Unsupported
        x, rest = operands.operands(row)
        (self.load_gemm if row.kind == "gemm" else self.load_conv)(row, x, rest)

    def load_gemm(self, row, x, right):
        d = self.d
        left, shape = operands.gemm_shapes(row)
        self.y = outputs(row)
        strides, right_shape = None, shape
        if row.transposed:
            right_shape = shape[:-2] + (row.k, row.n)
            strides = (row.n * row.k,) * (row.batch > 1) + (1, row.k)
        plain = (right_shape, strides)
        pd = d.matmul((left,), plain, (self.y[0].shape,), row.constant)
        p = d.make("dnnl_primitive_create", pd)
        src = d.memory(d.plain(left), x)
        self.jobs = []
        for w, y in zip(right, self.y):
            desc = d.plain(*plain)
            weights = d.memory(desc, w)
            if row.constant:
                weights = d.reordered(desc, weights, d.asked(pd, onednn.WEIGHTS_MD))
            dst = d.memory(d.plain(y.shape), y)
            self.jobs.append((p, d.args(src=src, weights=weights, dst=dst)))
        self.results = lambda: self.y

    def load_conv(self, row, x, rest):
        d = self.d
        pd, shape = d.convolution(row)
        p = d.make("dnnl_primitive_create", pd)
        plain_x, plain_w, y = d.plain(x.shape), d.plain(shape), np.zeros(row.y, np.float32)
        src = d.reordered(plain_x, d.memory(plain_x, x), d.asked(pd, onednn.SRC_MD))
        weights = d.reordered(plain_w, d.memory(plain_w, rest[0]), d.asked(pd, onednn.WEIGHTS_MD))
        wanted, plain_y = d.asked(pd, onednn.DST_MD), d.plain(y.shape)
        dst = d.memory(wanted)
        bias = d.memory(d.plain(rest[1].shape), rest[1])
        self.jobs = [(p, d.args(src=src, weights=weights, bias=bias, dst=dst))]

        def results():
            self.keep = d.reordered(wanted, dst, plain_y)
            data = ctypes.c_void_p()
            d.call("dnnl_memory_get_data_handle", self.keep, ctypes.byref(data))
            return [np.ctypeslib.as_array(ctypes.cast(data, F32), y.shape)]

        self.results = results

    def run(self):
        for p, args in self.jobs:
            self.d.execute(p, args)
        self.d.wait()


def inputs(job):
    """The inputs of a row's models, by name: of all forms."""
    if job["inputs"]:
        return {n: operands.aligned(a) for n, a in np.load(job["inputs"]).items()}
    x, rest = operands.operands(job["row"])
    given = dict(zip(["x"] + ["w%d" % i for i in range(len(rest))], [x] + rest))
    if job["row"].kind == "attention":
        given.update(attention_forms.more_inputs(job["row"], x, rest), past_k=rest[0], past_v=rest[1])
    return given


def load_fastest(engine, forms, load):
    """Loads the form of a row that runs fastest, of those that the engine supports; forms: {name:
    what load needs}."""
    seconds, reason = {}, Unsupported()
    for name, form in forms.items():
        try:
            load(form)
            engine.run()
            seconds[name] = min(time_runs(engine, 1, 0)["wall"] for _ in range(3))
        except Exception as e:  # of any library
            reason = e
    if not seconds:
        raise reason
    engine.form = min(seconds, key=seconds.get)
    load(forms[engine.form])


class OnnxRuntime:
    """Inputs and outputs are bound once. A single convolution keeps the blocked layout that the
    library computes in: the optimised model without the nodes that reorder its input and output."""

    def __init__(self):
        import onnxruntime
        import ort_blocked

        self.ort, self.blocked = onnxruntime, ort_blocked
        self.version = "ONNX Runtime " + onnxruntime.__version__
        self.block, self.last = 0, False

    def session(self, path, threads, optimised=None):
        o = self.ort.SessionOptions()
        o.intra_op_num_threads, o.inter_op_num_threads, o.log_severity_level = threads, 1, 3
        if optimised:
            o.optimized_model_filepath = optimised
        return self.ort.InferenceSession(path, o, providers=["CPUExecutionProvider"])

    def load(self, job):
        row, threads = job["row"], job["threads"]
        if row.kind == "filter":
            raise Unsupported
        if row.kind == "attention":
            forms = attention_forms.files(job["model"])
            return load_fastest(self, forms, lambda f: self.bind(job, self.session(f, threads)))
        if row.kind not in ("conv", "qconv"):
            return self.bind(job, self.session(job["model"], threads))
        optimised = job["model"] + ".ort.onnx"
        self.bind(job, self.session(job["model"], threads, optimised))
        self.run()
        plain = self.results()
        self.oc = row.oc
        if self.blocked.strip_last(optimised):
            self.last = True
            self.bind(job, self.session(optimised, threads))
            self.run()
            if not np.array_equal(self.results()[0], plain[0]):
                raise RuntimeError("layout not understood")
        elif self.blocked.strip(optimised):
            for self.block in (16, 8):  # of vectors of 512 and 256 bits
                self.bind(job, self.session(optimised, threads))
                self.run()
                if np.allclose(self.results()[0], plain[0], rtol=1e-3, atol=1e-4):
                    return os.remove(optimised)
            raise RuntimeError("blocked layout not understood")
        os.remove(optimised)

    def bind(self, job, session):
        self.s, self.io, self.row = session, session.io_binding(), job["row"]
        given, values = inputs(job), {}
        for i in session.get_inputs():
            a = given[i.name]
            if self.block and isinstance(i.shape[1], str):
                a = self.blocked.block(a, self.block)
            if self.last:
                a = channels_last(a)
            values[i.name] = self.ort.OrtValue.ortvalue_from_numpy(a)
            self.io.bind_ortvalue_input(i.name, values[i.name])
        for o in session.get_outputs():
            past = o.name.replace("present", "past")
            if job["row"].kind == "attention" and past in values:  # a cache in place
                self.io.bind_ortvalue_output(o.name, values[past])
            else:
                self.io.bind_output(o.name, "cpu")
        self.run()  # sizes of outputs are known now
        for o, y in zip(session.get_outputs(), self.io.get_outputs()):
            self.io.bind_ortvalue_output(o.name, y)

    def run(self):
        self.s.run_with_iobinding(self.io)

    def results(self):
        y = [y.numpy() for y in self.io.get_outputs()]
        if self.row.kind == "attention":
            return [attention_forms.heads_first(self.row, y[0])]
        if self.last:
            return [np.moveaxis(v, -1, 1) for v in y]
        return [self.blocked.unblock(v, self.oc, self.block) for v in y] if self.block else y


class OpenVino:
    """A single convolution is timed by the library's own profile: its part of the run, without the
    reordering of input and output."""

    def __init__(self):
        import openvino

        self.ov = openvino
        openvino.Core().get_property("CPU", "FULL_DEVICE_NAME")  # loads the library that computes
        self.version = "OpenVINO " + openvino.__version__.split("-")[0]

    def load(self, job):
        if job["row"].kind == "filter":
            raise Unsupported
        config = {
            "INFERENCE_NUM_THREADS": job["threads"],
            "PERFORMANCE_HINT": "LATENCY",
            "INFERENCE_PRECISION_HINT": "f32",
        }
        self.own_clock = job["row"].kind in ("conv", "qconv")
        if self.own_clock:
            config["PERF_COUNT"] = True
        if job["row"].kind == "attention":
            forms = attention_forms.files(job["model"])
            return load_fastest(self, forms, lambda f: self.compile(job, f, config))
        self.compile(job, job["model"], config)

    def compile(self, job, path, config):
        self.row = job["row"]
        self.model = self.ov.Core().compile_model(path, "CPU", config)
        self.request = self.model.create_infer_request()
        given, self.x = inputs(job), []
        for i in self.model.inputs:
            a = next(given[n] for n in i.get_names() if n in given)  # a Reshape to the same shape adds its name
            self.request.set_tensor(i, self.ov.Tensor(a, shared_memory=True))
            self.x.append(a)

    def run(self):
        self.request.infer()
        if self.own_clock:
            steps = self.request.get_profiling_info()
            times = [s.real_time for s in steps if "Convolution" in s.node_type]
            self.seconds = sum(t.total_seconds() for t in times)

    def results(self):
        y = [self.request.get_tensor(o).data for o in self.model.outputs]
        return [attention_forms.heads_first(self.row, y[0])] if self.row.kind == "attention" else y


class Torch:
    """Eager PyTorch; matmuls write to the same memory each time. Convolutions have channels last,
    prepared weights and fused activations, as its compiler would call them."""

    def __init__(self):
        import torch

        self.t = torch
        self.version = "PyTorch " + torch.__version__
        torch.set_grad_enabled(False)

    def load(self, job):
        self.t.set_num_threads(job["threads"])
        loads = {
            "gemm": self.load_gemm, "conv": self.load_conv, "filter": self.load_filter, "rnn": self.load_rnn,
            "attention": self.load_attention,
        }  # fmt: skip
        if job["row"].kind not in loads:
            raise Unsupported
        loads[job["row"].kind](job["row"], *operands.operands(job["row"]))

    def load_gemm(self, row, x, right):
        x, right = self.t.from_numpy(x), [self.t.from_numpy(w) for w in right]
        right = [w.transpose(-1, -2) if row.transposed else w for w in right]
        self.y = [self.t.from_numpy(y) for y in outputs(row)]

        def run():
            for w, y in zip(right, self.y):
                self.t.matmul(x, w, out=y)

        self.run = run

    def load_conv(self, row, x, rest):
        t, ops = self.t, self.t.ops.mkldnn
        if row.begins != row.ends:
            raise Unsupported
        last = t.channels_last if x.ndim == 4 else t.channels_last_3d
        x = t.from_numpy(x).contiguous(memory_format=last)
        w, b = t.from_numpy(rest[0]), t.from_numpy(rest[1])
        fixed = (list(row.begins), list(row.strides), list(row.dilations), row.group)
        packed = ops._reorder_convolution_weight(w, *fixed, list(x.shape))
        then = {
            "": ("none", [], ""),
            "Relu": ("relu", [], ""),
            "Relu6": ("hardtanh", [0.0, 6.0], ""),
        }
        then = then[row.activation]

        def run():
            self.y = [ops._convolution_pointwise(x, packed, b, *fixed, *then)]

        self.run = run

    def load_filter(self, row, x, rest):
        """As sums over the shifted images that unfold creates, or fold accumulates."""
        f, p = self.t.nn.functional, row.k // 2
        x, w = self.t.from_numpy(x), self.t.from_numpy(rest[0])
        shifted = (1, row.c, row.k**2, row.h, row.w)
        whole = (1, row.c * row.k**2, row.h * row.w)
        run = {
            "WeightedFilter": lambda: (f.unfold(x, row.k, padding=p).view(shifted) * w[:, None]).sum(2),
            "WeightedFilterGradInput": lambda: f.fold(
                (x[:, :, None] * w[:, None]).view(whole), (row.h, row.w), row.k, padding=p
            ),
            "WeightedFilterGradWeights": lambda: (
                x[:, :, None] * f.unfold(w, row.k, padding=p).view(shifted)
            ).sum(1),
        }[row.op]

        def store():
            self.y = [run()]

        self.run = store

    def load_attention(self, row, x, rest):
        from torch.nn.attention import SDPBackend, sdpa_kernel

        x, k, v = (self.t.from_numpy(a) for a in (x, *rest))
        attend = self.t.nn.functional.scaled_dot_product_attention

        def load(backend):
            def run():
                with sdpa_kernel(backend):
                    self.y = [attend(x, k, v, is_causal=row.causal, enable_gqa=row.groups < row.heads)]

            self.run = run

        forms = {"flash": SDPBackend.FLASH_ATTENTION, "math": SDPBackend.MATH}
        if row.scores > attention_forms.MOST_SCORES:
            del forms["math"]
        load_fastest(self, forms, load)

    def load_rnn(self, row, x, rest):
        """PyTorch's order of gates is i, f, c, o and r, z, h."""
        order = {"RNN": [0], "GRU": [1, 0, 2], "LSTM": [0, 2, 3, 1]}[row.op]
        layer = getattr(self.t.nn, row.op)(row.hidden, row.hidden, bidirectional=row.directions == 2)
        u, both = row.hidden, np.split(rest[2], 2, axis=1)
        for name, of in zip(("weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0"), (*rest[:2], *both)):
            for d in range(row.directions):
                parts = [of[d, g * u : (g + 1) * u] for g in order]
                getattr(layer, name + "_reverse" * d).copy_(self.t.from_numpy(np.concatenate(parts)))
        x = self.t.from_numpy(x)

        def run():
            y = layer(x)[0]
            self.y = [y.view(row.steps, row.batch, row.directions, u).transpose(1, 2)]

        self.run = run

    def results(self):
        return [y.numpy() for y in self.y]


class LlamaCpp:
    """Attention as llama.cpp computes it, with caches of f32: its operator, or products and softmax
    with the values' cache transposed. Products with weights in 8 and 4 bits (Q8_0, Q4_0), whose left
    operand it rounds to 8 bits."""

    def __init__(self):
        self.version, self.g = "ggml " + ggml.Ggml(os.environ["BENCH_GGML"]).version, None

    def load(self, job):
        row = job["row"]
        if row.kind == "codes" and row.rounded:
            return self.load_codes(job, row)
        if row.kind != "attention":
            raise Unsupported
        x, (k, v) = operands.operands(row)
        scale, none = ctypes.c_float(row.size**-0.5), ctypes.c_float(0)
        mask = np.triu(np.full((row.queries, row.keys), -np.inf, np.float16), 1) if row.causal else None

        def load(form):
            copies = 3 if form == "parts" else 0
            if self.g:
                self.g.free()
            self.g = g = ggml.Ggml(os.environ["BENCH_GGML"])
            g.start(x.nbytes * 4 + 2 * k.nbytes + copies * row.scores + (mask.nbytes if row.causal else 0))
            m = g.tensor(mask) if row.causal else None
            if form == "flash":
                self.y = g.op("flash_attn_ext", g.tensor(x), g.tensor(k), g.tensor(v), m, scale, none, none)
            else:
                p = g.op("soft_max_ext", g.op("mul_mat", g.tensor(k), g.tensor(x)), m, scale, none)
                last = g.op("mul_mat", g.tensor(np.ascontiguousarray(np.swapaxes(v, 2, 3))), p)
                self.y = g.op("cont", g.op("permute", last, 0, 2, 1, 3))
            g.plan(job["threads"], self.y)

        forms = {f: f for f in ("flash", "parts")}
        if row.scores > attention_forms.MOST_SCORES:
            del forms["parts"]
        load_fastest(self, forms, load)
        shape = (1, row.queries, row.heads, row.size)
        self.results = lambda: [np.moveaxis(self.g.array(self.y, shape), 2, 1)]

    def load_codes(self, job, row):
        x, rest = operands.operands(row)
        self.g = g = ggml.Ggml(os.environ["BENCH_GGML"])
        g.start(int(row.bytes) + x.nbytes + 4096 * row.copies)
        left = g.tensor(x)
        y = [g.op("mul_mat", g.codes(q, s, row.bits), left) for q, s in zip(rest[::2], rest[1::2])]
        g.plan(job["threads"], *y)
        self.results = lambda: [g.array(t, (row.m, row.n)) for t in y]

    def run(self):
        self.g.run()


class Opts(ctypes.Structure):
    _fields_ = [
        ("size", ctypes.c_size_t),
        ("threads", ctypes.c_int),
        ("device", ctypes.c_char_p),
    ]


class Step(ctypes.Structure):
    _fields_ = [
        ("label", ctypes.c_char_p),
        ("layer", ctypes.c_char_p),
        ("operators", ctypes.c_char_p),
        ("kernel", ctypes.c_char_p),
        ("task", ctypes.c_char_p),
        ("seconds", ctypes.c_double),
        ("flops", ctypes.c_double),
        ("bytes", ctypes.c_double),
    ]


DTYPES = {"float32": 1, "uint8": 2, "int8": 3, "int32": 6, "int64": 7, "bool": 9, "float16": 10, "float64": 11}  # of quern.h


class Quern:
    """A program in the runtime library, with inputs and outputs in this process's memory."""

    version = "quern"

    def __init__(self):
        self.lib = lib = ctypes.CDLL(os.path.join(ROOT, "build/libquern_rt.so"))
        lib.quern_open.restype = lib.quern_tensor_data.restype = ctypes.c_void_p
        lib.quern_program_input_name.restype = lib.quern_error.restype = ctypes.c_char_p
        lib.quern_tensor_dims.restype = ctypes.POINTER(ctypes.c_int64)
        self.q = ctypes.c_void_p(lib.quern_open(None))

    def check(self, status):
        if status:
            raise RuntimeError(self.lib.quern_error(self.q).decode())

    def load(self, job):
        p, o = ctypes.c_void_p(), Opts(ctypes.sizeof(Opts), job["threads"], None)
        path = job["program"].encode()
        self.check(self.lib.quern_program_open(self.q, path, ctypes.byref(o), ctypes.byref(p)))
        self.p, n = p, self.lib.quern_program_inputs(p)
        names = [self.lib.quern_program_input_name(p, i).decode() for i in range(n)]
        given = inputs(job)
        self.last = job["row"].kind in ("conv", "qconv")
        self.x = [channels_last(given[n]) if self.last else given[n] for n in names]
        self.inputs = (ctypes.c_void_p * n)()
        for i, x in enumerate(self.x):
            self.inputs[i] = self.view(x)
        self.n_out = self.lib.quern_program_outputs(p)
        self.out = (ctypes.c_void_p * self.n_out)()

    def view(self, x):
        dims, t = (ctypes.c_int64 * x.ndim)(*x.shape), ctypes.c_void_p()
        data = x.ctypes.data_as(ctypes.c_void_p)
        kind = DTYPES[x.dtype.name]
        self.check(self.lib.quern_tensor_view(self.q, kind, x.ndim, dims, data, ctypes.byref(t)))
        return t

    def run(self):
        self.check(self.lib.quern_run(self.p, self.inputs, len(self.x), self.out, self.n_out))

    def flops(self):
        """Operations of one run, from the program's description of its steps."""
        self.lib.quern_profile(self.p, 1)
        self.run()
        steps = (Step * 8192)()
        n = self.lib.quern_profile_steps(self.p, steps, len(steps))
        self.lib.quern_profile(self.p, 0)
        return sum(s.flops for s in steps[:n])

    def results(self):
        y = [self.array(ctypes.c_void_p(t)) for t in self.out]
        return [np.moveaxis(v, -1, 1) for v in y] if self.last else y

    def array(self, t):
        rank = self.lib.quern_tensor_rank(t)
        shape = [self.lib.quern_tensor_dims(t)[d] for d in range(rank)]
        kind = next(n for n, k in DTYPES.items() if k == self.lib.quern_tensor_dtype(t))
        size = int(np.prod(shape)) * np.dtype(kind).itemsize
        data = (ctypes.c_char * size).from_address(self.lib.quern_tensor_data(t))
        return np.frombuffer(data, kind).reshape(shape)


ENGINES = {
    "quern": Quern,
    "quern untuned": Quern,
    "openblas": OpenBlas,
    "blis": Blis,
    "onednn": OneDnn,
    "onnxruntime": OnnxRuntime,
    "openvino": OpenVino,
    "torch": Torch,
    "llama.cpp": LlamaCpp,
}


# --- the process ----------------------------------------------------------------------------------


def memory(what):
    """Memory of this process, in MB."""
    with open("/proc/self/status") as f:
        return next(int(line.split()[1]) for line in f if line.startswith(what)) / 1e3


def forget_most():
    """Resets the peak, to exclude the import of libraries (proc(5), clear_refs); returns the
    current MB."""
    with open("/proc/self/clear_refs", "w") as f:
        f.write("5")
    return memory("VmRSS")


def settle():
    """Waits until this process's other threads have stopped spinning."""
    end, used = time.time() + SETTLED, time.process_time()
    while time.time() < end:
        time.sleep(0.004)
        last, used = used, time.process_time()
        if used - last < 0.0005:
            break


def time_runs(engine, count, warm):
    """Seconds of one run, wall clock and processor time (unknown for engines with a clock of their
    own): the mean of count consecutive runs."""
    for _ in range(warm):
        engine.run()
    own, start, used = 0.0, time.perf_counter(), time.process_time()
    for _ in range(count):
        engine.run()
        own += getattr(engine, "seconds", 0.0)
    wall, used = time.perf_counter() - start, time.process_time() - used
    settle()
    return {"wall": (own or wall) / count, "cpu": None if own else used / count}


class Server:
    """Executes commands from its input, for one row after the other."""

    def __init__(self, kind):
        self.make, self.places = ENGINES[kind], places.Places()
        self.engine = self.make()

    def hello(self, ask):
        return {"version": self.engine.version}

    def load(self, ask):
        kinds = (
            rows.Gemm, rows.Conv, rows.Net, rows.QuantisedGemm, rows.QuantisedConv, rows.CodedGemm, rows.Filter,
            rows.Recurrent,
            attention.Attention,
        )  # fmt: skip
        make = {k.kind: k for k in kinds}[ask["row"].pop("kind")]
        frozen = {k: tuple(v) if isinstance(v, list) else v for k, v in ask["row"].items()}
        self.engine = None  # what the last row needed is freed
        gc.collect()
        self.places.anywhere()
        self.engine, before = self.make(), forget_most()
        try:
            self.engine.load({**ask, "row": make(**frozen)})
        except Unsupported:
            return {"unsupported": True}
        self.engine.run()
        most, running = memory("VmHWM") - before, memory("VmRSS") - before
        flops = self.engine.flops() if hasattr(self.engine, "flops") else 0
        return {"most": most, "running": running, "flops": flops, "form": getattr(self.engine, "form", "")}

    def time(self, ask):
        return time_runs(self.engine, ask["count"], ask["warm"])

    def place(self, ask):
        """Places the threads as the system does or each on a processor of its own, whichever is
        faster in alternating samples of ask["count"] runs."""
        there, samples = self.places, {"anywhere": [], "apart": []}
        sample = lambda: time_runs(self.engine, ask["count"], 1)["wall"]
        rounds = max(3, min(9, int(PLACING / (2 * sample()))))
        for _ in range(rounds):
            there.anywhere()
            samples["anywhere"].append(sample())
            there.apart(sample, ask["threads"])
            samples["apart"].append(sample())
        best = min(samples, key=lambda w: stats.median(samples[w]))
        if best == "anywhere":
            there.anywhere()
        return {"where": best}

    def save(self, ask):
        np.savez(ask["path"], *self.engine.results())
        return {}


def main():
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print is no answer
    server = Server(sys.argv[1])
    for line in sys.stdin:
        ask = json.loads(line)
        try:
            answer = getattr(server, ask["do"])(ask)
        except Exception as e:  # of any library: the row says so
            answer = {"error": "%s: %s" % (type(e).__name__, e)}
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
