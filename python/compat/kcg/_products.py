# SPDX-License-Identifier: Apache-2.0
"""Matrix products and attentions of tensors by quern's kernels: operands in place, gradients, tuning.

Operands whose matrices are dense, transposed or not, are used in place, as weights of layers are, and so are batches that repeat a matrix (stride
0). Others, as heads side by side, are copied. Batches are broadcast.
"""
import functools
import statistics
import time
from ctypes import byref, c_void_p

import torch

from quern import _arrays as arrays
from quern import _attention, _torch_run
from quern._library import CompileOpts, Step, TuneOpts, lib, said
from quern._nvrtc import find_compiler
from quern._operator import Operator
from quern.torch import scaled_dot_product_attention

from . import _native  # noqa: F401, declares quern_op_model

torch_matmul = torch.matmul  # MatmulReplacer may replace it
TYPES = _torch_run.TYPES
LIMIT = 6          # batch axes at most: arrays have eight
MOST_KERNELS = 64  # of one operator


# --- products ---


def batch_of(a, b):
    return tuple(torch.broadcast_shapes(a.shape[:-2], b.shape[:-2]))


def unrepeated(x, other, batch):
    """The operand with batch axes of stride 0 reduced to size 1, which the product repeats, where the other operand has them in full."""
    for i in range(x.dim() - 2):
        at = i - (x.dim() - 2)  # from the end of the batch axes
        is_full = -at <= other.dim() - 2 and other.shape[at - 2] == batch[at]
        if x.stride(i) == 0 and is_full:
            x = x.narrow(i, 0, 1)
    return x


def as_stored(x):
    """The operand as dense matrices, and whether these are transposed: that of the two forms which it has, or to which copying it is cheaper."""
    if x.is_contiguous():
        return x, False
    is_transposed = x.stride(-2) < x.stride(-1)
    return (x.transpose(-1, -2) if is_transposed else x).contiguous(), is_transposed


class Product:
    """The product of two tensors, (b.., m, k) x (b.., k, n). Rows of several batches are one matrix where the right operand has no batches."""

    def __init__(self, a, b):
        self.shape = (*batch_of(a, b), a.shape[-2], b.shape[-1])
        if b.dim() == 2 and a.dim() > 2:
            a = a.reshape(-1, a.shape[-1])
        batch = batch_of(a, b)
        self.folded = (*batch, a.shape[-2], b.shape[-1])
        a = unrepeated(a, b, batch)
        b = unrepeated(b, a, batch)
        (self.a, self.trans_a), (self.b, self.trans_b) = as_stored(a), as_stored(b)

    def operator(self):
        """Its operator, for these operands."""
        name, attributes = "MatMul", ()
        if self.trans_a or self.trans_b:
            name, attributes = "com.microsoft::FusedMatMul", (("transA", int(self.trans_a)), ("transB", int(self.trans_b)))
        device, threads = None, torch.get_num_threads()
        if self.a.is_cuda:
            find_compiler()
            device, threads = arrays.device_name(self.a.device), 0
        return operator(name, attributes, threads, device)

    def inputs(self):
        if self.a.is_cuda:
            return [arrays.on_device(self.a), arrays.on_device(self.b)]
        return [self.a, self.b]

    def call(self):
        return Call(self.operator(), self.inputs(), [torch.empty(self.folded, dtype=self.a.dtype, device=self.a.device)])

    def run(self):
        call = self.call()
        call.operator.run(call.inputs, call.outputs)
        return call.outputs[0].view(self.shape)


@functools.lru_cache(maxsize=256)
def operator(name, attributes, threads, device):
    return Operator(name, dict(attributes), threads=threads, device=device)


def is_supported(a, b):
    """Whether the operands are matrices that the library multiplies; others are left to PyTorch, which also has the messages about wrong ones."""
    return (isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor) and min(a.dim(), b.dim()) >= 2 and max(a.dim(), b.dim()) <= 2 + LIMIT
            and a.dtype == b.dtype and a.dtype in TYPES and a.device == b.device and a.device.type in ("cpu", "cuda")
            and a.layout == b.layout == torch.strided and a.shape[-1] == b.shape[-2] and a.shape[-1] > 0 and has_batch(a, b))


def has_batch(a, b):
    try:
        return 0 not in batch_of(a, b) and 0 not in (a.shape[-2], b.shape[-1])
    except RuntimeError:
        return False


class Matmul(torch.autograd.Function):
    @staticmethod
    def forward(ctx, a, b):
        ctx.save_for_backward(a, b)
        return Product(a.detach().resolve_neg(), b.detach().resolve_neg()).run()

    @staticmethod
    def backward(ctx, g):
        a, b = ctx.saved_tensors
        ga = torch_matmul(g, b.transpose(-1, -2)).sum_to_size(a.shape) if ctx.needs_input_grad[0] else None
        gb = torch_matmul(a.transpose(-1, -2), g).sum_to_size(b.shape) if ctx.needs_input_grad[1] else None
        return ga, gb


def matmul(a, b):
    """torch.matmul(a, b) by quern, for operands that is_supported."""
    return Matmul.apply(a, b)


# --- attention ---


def heads_of(x, batch, heads, size):
    """(batch, heads, positions, size) of a tensor of that shape, or of (batch, positions, heads * size)."""
    return x if x.dim() == 4 else x.reshape(batch, -1, heads, size).transpose(1, 2)


class Attention:
    """softmax(q k^T / sqrt(d) + mask) v, all (batch, heads, positions, d); mask: boolean (False: not attended to), or numbers."""

    def __init__(self, q, k, v, mask=None):
        self.q, self.k, self.v, self.mask = q, k, v, mask

    def run(self):
        return scaled_dot_product_attention(self.q, self.k, self.v, self.mask)

    def formula(self):
        """The same by PyTorch's operators."""
        scores = torch_matmul(self.q, self.k.transpose(-1, -2)) / self.q.shape[-1] ** 0.5
        if self.mask is not None:
            scores = scores.masked_fill(~self.mask, float("-inf")) if self.mask.dtype == torch.bool else scores + self.mask
        return torch_matmul(torch.softmax(scores.float(), -1).to(self.q.dtype), self.v)

    def call(self):
        x = _attention.Operands(self.q, self.k, self.v, _attention.Spec(False, None, 0.0, (None, None)))
        shape = x.shape(*self.q.shape[:3], self.v.shape[3])
        device, threads = None, torch.get_num_threads()
        if self.q.is_cuda:
            device, threads = arrays.device_name(self.q.device), 0
        mask = _attention.fitted(self.mask, self.q, self.k)
        return Call(_torch_run.operator("quern::Attention", x.spec, None, threads, device, 1), [x.q, x.k, x.v, mask, None, None, None, None],
                    [torch.empty(shape, dtype=self.q.dtype, device=self.q.device)])


# --- tuning ---


class Call:
    """An operator with the arrays that it gets: what is tuned is exactly what runs."""

    def __init__(self, operator, inputs, outputs):
        self.operator, self.inputs, self.outputs = operator, inputs, outputs

    def model(self):
        """The operator as a model of the library, which the caller closes."""
        device = arrays.device_of(*self.inputs)
        x, y = arrays.describe_all("input", self.inputs, device), arrays.describe_all("output", self.outputs, device)
        return self.operator._open().make(lib.quern_op_model, self.operator.handle, x, len(self.inputs), y, len(self.outputs))

    def options(self, kind, **values):
        return kind(device=self.operator.options["device"], threads=self.operator.options["threads"], **values)

    def tune(self, seconds, candidates=0):
        """Measures schedules into the operator's database. Returns whether Ctrl-C ended it; measurements are kept then, too."""
        c, db = self.operator._open(), self.operator.shared.db
        o = self.options(TuneOpts, timeout=seconds, max_candidates=candidates, min_samples=3)
        with c.lock:
            model = self.model()
            try:
                c.wait(lib.quern_tune, db, model, byref(o))
            except KeyboardInterrupt:
                return True
            finally:
                lib.quern_model_close(model)
        return False

    def kernels(self):
        """Names of the kernels that the database makes of it."""
        c, db, program = self.operator._open(), self.operator.shared.db, c_void_p()
        with c.lock:
            model = self.model()
            try:
                c.check(lib.quern_compile(model, db, byref(self.options(CompileOpts)), byref(program)))
                lib.quern_profile(program, 1)
                steps = (Step * MOST_KERNELS)()
                n = lib.quern_profile_steps(program, steps, MOST_KERNELS)
                return "+".join(said(s.kernel) for s in steps[:n])
            finally:
                lib.quern_program_close(program)
                lib.quern_model_close(model)


def forget_operators():
    """Operators opened from now on use what was measured meanwhile."""
    operator.cache_clear()
    _torch_run.operator.cache_clear()


# --- timing ---


def wait(device):
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def seconds_of(f, device, repeat):
    wait(device)
    start = time.perf_counter()
    for _ in range(repeat):
        f()
    wait(device)
    return (time.perf_counter() - start) / repeat


def in_turn(ours, base, device, seconds=1.0):
    """Medians of both, in seconds, measured in turn for about this time, at least five rounds."""
    for f in (ours, base, ours, base):
        last = seconds_of(f, device, 1)
    repeat = max(1, int(2e-3 / max(last, 1e-7)))
    end, times = time.perf_counter() + seconds, ([], [])
    while len(times[0]) < 5 or time.perf_counter() < end:
        for f, t in zip((ours, base), times):
            t.append(seconds_of(f, device, repeat))
    return tuple(statistics.median(t) for t in times)
