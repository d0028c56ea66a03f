# SPDX-License-Identifier: Apache-2.0
"""Kernels that calls are served by: lists of them as files, and which one serves a call.

A list is {"kernels": [{"type": "matmul", "kernelName": "kcg_MM_...", "pklpath": ""}, ...]}. A kernelName states the computation, and for GPUs also
the kernel (doc/gemm.md, doc/attention.md); names that compile_model exports for other devices are sizes and quern's kernel, "b12_M1024N64K1024
gemm_f32_...". More keys may follow: "dtype" (float32 if missing), "speedup", "time", "time_base" (milliseconds).
"""
import json
import re

import torch

from quern._library import Context, text

from . import _native
from ._places import say_once
from .attention import AttentionOp
from .matmul import MatmulOp

MATMUL = re.compile(r"(?:kcg_MM_)?b?((?:\d+_)*)M(\d+)N(\d+)K(\d+)(?:isAT\w+_| |$)")
ATTENTION = re.compile(r"(?:kcg_\w*?_|b?)(\d+)_(\d+)_(\d+)_(\d+)(?:_Br| |$)")
OPERATORS = {o.type: o for o in (MatmulOp, AttentionOp)}


class TuneResult:
    """A kernel for a computation. bestKernelBaseArg: [batch, m, n, k] of a matrix product, [[batch, heads, positions, head size]] of an attention;
    time, time_base: milliseconds, None: not known."""

    def __init__(self, OpTy, bestKernelBaseArg, bestSpeedup, name="", dtype=torch.float32, time=None, time_base=None):
        self.OpTy, self.bestKernelBaseArg, self.bestSpeedup = OpTy, bestKernelBaseArg, bestSpeedup
        self.name, self.dtype, self.time, self.time_base = name, dtype, time, time_base

    def __repr__(self):
        return f"TuneResult({self.OpTy.__name__}, {self.bestKernelBaseArg}, {self.bestSpeedup:.3g}, {self.name!r})"

    def entry(self):
        """As in a file."""
        e = {"type": self.OpTy.type, "kernelName": self.name, "pklpath": ""}
        e.update({"dtype": name_of(self.dtype)} if self.dtype != torch.float32 else {})
        if self.time is not None:
            e.update(speedup=round(self.bestSpeedup, 4), time=round(self.time, 6), time_base=round(self.time_base, 6))
        return e


def name_of(dtype):
    return str(dtype).replace("torch.", "")


def size_name(OpTy, args):
    """The sizes of a computation as names begin."""
    if OpTy is AttentionOp:
        return "b" + "_".join(map(str, args[0]))
    batch, m, n, k = args
    return "b" + "".join(f"{b}_" for b in batch if b != 1) + f"M{m}N{n}K{k}"


def args_of(OpTy, name):
    """What the name states; ValueError: nothing."""
    found = (ATTENTION if OpTy is AttentionOp else MATMUL).match(name)
    if not found:
        raise ValueError(f"the name '{name}' of type '{OpTy.type}' states no sizes, expected "
                         + ("'kcg_Attention_1_32_2048_64_Br...'" if OpTy is AttentionOp else "'kcg_MM_b12_M1024N64K1024isAT1W64_BM...'"))
    if OpTy is AttentionOp:
        return [[int(n) for n in found.groups()]]
    batch, *sizes = found.groups()
    return [[int(b) for b in batch.split("_")[:-1]], *map(int, sizes)]


def is_for_gpu(name):
    return name.startswith("kcg_")


def check_name(name):
    """The library examines every field; its error names the one that is wrong."""
    c = Context(level=0)
    with c.lock:
        c.take_text(_native.lib.quern_show, c.handle, text(name))


def read_list(path):
    """The entries of a file: type, name, element type, and all of the entry."""
    try:
        with open(path, encoding="utf-8") as f:
            kernels = json.load(f)["kernels"]
        return [(e["type"], e["kernelName"], getattr(torch, e.get("dtype", "float32")), e) for e in kernels]
    except (KeyError, TypeError, AttributeError, json.JSONDecodeError) as e:
        form = '{"kernels": [{"type": "matmul", "kernelName": ...}]}'
        raise ValueError(f"'{path}' is no list of kernels, {form}: {type(e).__name__} {e}") from None


class Registry:
    """The kernels in use. A matrix product with a matrix on the right, as the weights of a layer are, is served whatever its rows are; another one
    whatever its batch is, for quern's kernels are not bound to the sizes that a name states."""

    def __init__(self):
        self.by_args = {}

    def clear(self):
        self.by_args.clear()

    def results(self):
        return list(dict.fromkeys(r for r in self.by_args.values()))

    @staticmethod
    def keys(OpTy, args, dtype):
        """From the closest on."""
        if OpTy is AttentionOp:
            batch, *sizes = args[0]
            return [(OpTy, (batch, *sizes), dtype), (OpTy, tuple(sizes), dtype)]
        batch, m, n, k = args
        batch = tuple(b for b in batch if b != 1)
        return [(OpTy, (batch, m, n, k), dtype), (OpTy, (m, n, k), dtype), (OpTy, (n, k), dtype)]

    def add(self, result):
        """The first kernel of a looser key stays; that of the same computation is replaced."""
        first, *looser = self.keys(result.OpTy, result.bestKernelBaseArg, result.dtype)
        self.by_args[first] = result
        for key in looser:
            self.by_args.setdefault(key, result)

    def find(self, OpTy, args, dtype, is_matrix=False):
        """is_matrix: the right operand of a product has no batches."""
        keys = self.keys(OpTy, args, dtype)
        return next((self.by_args[key] for key in (keys if OpTy is AttentionOp or is_matrix else keys[:2]) if key in self.by_args), None)


def write_list(path, results):
    with open(path, "w", encoding="utf-8") as f:
        json.dump({"kernels": [r.entry() for r in results]}, f, indent=4)
        f.write("\n")


def tell_cpu(result):
    if is_for_gpu(result.name):
        sizes = size_name(result.OpTy, result.bestKernelBaseArg)
        say_once(f"'{result.name}' is a kernel for GPUs: on the CPU, {sizes} is served by quern's own best kernel")
