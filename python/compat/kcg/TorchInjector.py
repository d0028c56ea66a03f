# SPDX-License-Identifier: Apache-2.0
"""OpProxy: matrix products and attentions of a model, computed by registered kernels.

A call whose sizes have a kernel runs it, and nothing else; others run PyTorch's operator. Either way it is counted, and its sizes are collected
for compile_model. Operands may have any strides, batches are broadcast as by torch.matmul, and results have gradients.
"""
from typing import List, Type

import torch

import quern

from . import _products as products
from . import attention, matmul
from ._places import device_of, find_file, say_once
from ._registry import OPERATORS, Registry, TuneResult, args_of, check_name, is_for_gpu, name_of, read_list, size_name, tell_cpu
from .attention import AttentionOp
from .matmul import MatmulOp

__all__ = ["OpBaseArgsCollector", "OpInjector", "OpProxy", "TuneResult", "attention", "matmul", "torch", "List", "Type"]


class Site:
    """The operands of a call: layouts from which equal ones can be made. What is tuned has the strides of what runs."""

    def __init__(self, operands):
        self.operands = tuple((tuple(t.shape), t.stride(), t.dtype, t.device) for t in operands)

    def __eq__(self, other):
        return self.operands == other.operands

    def __hash__(self):
        return hash(self.operands)

    def tensors(self):
        """With random content."""
        made = []
        for shape, stride, dtype, device in self.operands:
            length = 1 + sum((n - 1) * s for n, s in zip(shape, stride)) if 0 not in shape else 0
            memory = torch.randn(length, device=device)
            made.append((memory > 0 if dtype == torch.bool else memory.to(dtype)).as_strided(shape, stride))
        return made


class OpBaseArgsCollector:
    """The computations of calls, each once, in order, with their numbers of calls."""

    def __init__(self):
        self.clear()

    def clear(self):
        self.infoList = []   # {"optype": "MatmulOp", "baseArgs": [[batch], m, n, k], "dtype": torch.float32}
        self.calls = {}      # of each computation: calls, calls that a registered kernel served
        self.sites = {}      # of each computation: Sites, in order

    def addInfo(self, OpTy, baseArgs, dtype, site=None, served=False):
        key = (OpTy, str(baseArgs), dtype)
        if key not in self.calls:
            self.infoList.append({"optype": OpTy.__name__, "baseArgs": baseArgs, "dtype": dtype})
            self.calls[key], self.sites[key] = [0, 0], {}
        self.calls[key][0] += 1
        self.calls[key][1] += served
        if site is not None:
            self.sites[key][site] = None

    def each(self):
        """(operator, arguments, dtype, Sites) of each computation."""
        return [(OpTy, info["baseArgs"], dtype, list(self.sites[OpTy, key, dtype])) for (OpTy, key, dtype), info in zip(self.calls, self.infoList)]


class OpProxy:
    """Put in place of torch.matmul and of attentions. Registered kernels are those of the process."""

    collector = OpBaseArgsCollector()
    registry = Registry()

    @staticmethod
    def registKernel(result: TuneResult):
        """From now on the kernel serves its computation, if it is faster than PyTorch's operator."""
        if result.bestSpeedup > 1:
            OpProxy.registry.add(result)

    @staticmethod
    def GetCollectedKernelArgs() -> List:
        return list(OpProxy.collector.infoList)

    @staticmethod
    def GetOpCallCounts():
        """Calls of each operator: {"MatmulOp": 96}."""
        counts = {}
        for (OpTy, _, _), (n, _) in OpProxy.collector.calls.items():
            counts[OpTy.__name__] = counts.get(OpTy.__name__, 0) + n
        return counts

    @staticmethod
    def GetOpCallCountsDetailed():
        """Calls of each computation, and how many of them a registered kernel served: {"MatmulOp": {"[[1, 16], 1024, 64, 1024] float32": {"calls": 16,
        "served": 16}}}."""
        detailed = {}
        for (OpTy, args, dtype), (n, served) in OpProxy.collector.calls.items():
            detailed.setdefault(OpTy.__name__, {})[f"{args} {name_of(dtype)}"] = {"calls": n, "served": served}
        return detailed

    @staticmethod
    def ResetOpCallCounts():
        """Forgets counts and collected computations; registered kernels stay."""
        OpProxy.collector.clear()

    @staticmethod
    def f_matmul(a, b):
        """torch.matmul(a, b)."""
        if not products.is_supported(a, b):
            return products.torch_matmul(a, b)
        args = [list(products.batch_of(a, b)), a.shape[-2], b.shape[-1], a.shape[-1]]
        return run(MatmulOp, args, (a, b), b.dim() == 2, lambda: products.matmul(a, b), lambda: products.torch_matmul(a, b))

    @staticmethod
    def f_attention(q, k, v, batch, head_num, seq_len, head_dim, mask=None):
        """softmax(q k^T / sqrt(head_dim) + mask) v. Operands (batch, heads, positions, head_dim), or (batch, positions, heads * head_dim), which the
        result then is, too; mask: boolean, False: not attended to, or numbers."""
        x = products.Attention(*(products.heads_of(t, batch, head_num, head_dim) for t in (q, k, v)), mask)
        operands = (x.q, x.k, x.v) if mask is None else (x.q, x.k, x.v, mask)
        y = run(AttentionOp, [[batch, head_num, seq_len, head_dim]], operands, False, x.run, x.formula)
        return y if q.dim() == 4 else y.transpose(1, 2).reshape(batch, seq_len, head_num * head_dim)


def run(OpTy, args, operands, is_matrix, ours, base):
    """Counts the call, and computes it by the registered kernel or by PyTorch."""
    kernel = OpProxy.registry.find(OpTy, args, operands[0].dtype, is_matrix)
    OpProxy.collector.addInfo(OpTy, args, operands[0].dtype, Site(operands), kernel is not None)
    if kernel is None:
        return base()
    if operands[0].device.type == "cpu":
        tell_cpu(kernel)
    try:
        return ours()
    except quern.Error as e:
        if e.status != "UNSUPPORTED":
            raise
        say_once(f"{size_name(OpTy, args)} is left to PyTorch: {e}")
        return base()


class OpInjector:
    """Single kernels as functions."""

    def __init__(self, devId=0):
        self.device = device_of(devId)

    def parseOp(self, source, OpTy):
        """The kernel of a name, or the first one of this operator in a list of kernels (a file), as a function. Of a matrix product:
        f(a, b, c=None) with a as the name states it, (k, m) if it has isAT1; of an attention: f(q, k, v, o=None). The result is written to the
        last argument if it is given, and returned."""
        name = source if is_for_gpu(source) else next((n for kind, n, _, _ in read_list(find_file(source)) if OPERATORS.get(kind) is OpTy), None)
        if name is None:
            raise ValueError(f"'{source}' has no kernel of type '{OpTy.type}'")
        check_name(name)
        result = TuneResult(OpTy, args_of(OpTy, name), 0, name)
        return self.of_matmul(result) if OpTy is MatmulOp else self.of_attention(result)

    def start(self, result, operands, shapes):
        for t, shape in zip(operands, shapes):
            if tuple(t.shape) != tuple(shape):
                raise ValueError(f"an operand of '{result.name}' has shape {tuple(t.shape)}, expected {tuple(shape)}")
        if self.device.type == "cpu":
            tell_cpu(result)
        return [t.to(self.device) for t in operands]

    def of_matmul(self, result):
        batch, m, n, k = result.bestKernelBaseArg
        is_transposed = "isAT1" in result.name or "isATTrue" in result.name

        def f(a, b, c=None):
            a, b = self.start(result, (a, b), ((*batch, k, m) if is_transposed else (*batch, m, k), (*batch, k, n)))
            return given(products.matmul(a.transpose(-1, -2) if is_transposed else a, b), c)

        return f

    def of_attention(self, result):
        shape = result.bestKernelBaseArg[0]

        def f(q, k, v, o=None):
            return given(products.Attention(*self.start(result, (q, k, v), [shape] * 3)).run(), o)

        return f


def given(y, out):
    return y if out is None else out.copy_(y)
