# SPDX-License-Identifier: Apache-2.0
"""Tuning of collected computations: schedules are measured into quern's database, then the kernel is compared with PyTorch's operator, and both are
kept: results.json in PathManager.project_dir() has them by computation, layout of the operands, device and versions. What is there is not
measured again."""
import json
import os
import platform
from ctypes import byref

import torch

import quern
from quern._library import Context

from . import _native
from . import _products as products
from ._places import PathManager, say_once
from ._registry import TuneResult, name_of, size_name
from .attention import AttentionOp

TOLERANCE = {torch.float64: 1e-9, torch.float32: 1e-3, torch.float16: 2e-2, torch.bfloat16: 1e-1}  # relative to the largest element


def processor():
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as f:
            return next(line.split(":", 1)[1].strip() for line in f if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.machine()


def environment(device):
    place = torch.cuda.get_device_name(device) if device.type == "cuda" else f"{processor()}, {torch.get_num_threads()} threads"
    return f"{place}, torch {torch.__version__}, quern {quern.version()}"


class Results:
    """results.json. A damaged file is as good as none: everything in it can be measured again."""

    def __init__(self):
        self.path = os.path.join(PathManager.project_dir(), "results.json")
        try:
            with open(self.path, encoding="utf-8") as f:
                self.rows = {k: {"name": str(r["name"]), "time": float(r["time"]), "time_base": float(r["time_base"])} for k, r in json.load(f).items()}
        except FileNotFoundError:
            self.rows = {}
        except (OSError, ValueError, TypeError, KeyError, AttributeError) as e:
            say_once(f"'{self.path}' is not used: {type(e).__name__} {e}")
            self.rows = {}

    def put(self, key, row):
        self.rows[key] = row
        os.makedirs(os.path.dirname(self.path), exist_ok=True)
        with open(self.path + ".new", "w", encoding="utf-8") as f:
            json.dump(self.rows, f, indent=1)
        os.replace(self.path + ".new", self.path)


class Call:
    """A collected call with random operands: by quern, and by PyTorch."""

    def __init__(self, OpTy, site):
        self.operands = site.tensors()
        self.device = self.operands[0].device
        self.is_attention = OpTy is AttentionOp

    def call(self):
        return (products.Attention if self.is_attention else products.Product)(*self.operands).call()

    def ours(self):
        return products.Attention(*self.operands).run() if self.is_attention else products.matmul(*self.operands)

    def base(self):
        return products.Attention(*self.operands).formula() if self.is_attention else products.torch_matmul(*self.operands)

    def check(self, what):
        """A kernel that computes something else is an error of quern, and must not be used."""
        got, want = self.ours().double(), self.base().double()
        error = ((got - want).abs().max() / want.abs().max().clamp_min(1e-30)).item()
        if not error <= TOLERANCE[self.operands[0].dtype]:
            raise RuntimeError(f"{what}: quern's kernel differs from PyTorch's by {error:.2g} of the largest element")


def key_of(OpTy, args, site):
    layouts = ", ".join(f"{name_of(dtype)} {list(shape)} by {list(stride)}" for shape, stride, dtype, _ in site.operands)
    return f"{OpTy.__name__} {args}; {layouts}; {environment(site.operands[0][3])}"


def measure(OpTy, args, site, seconds, candidates):
    """Tunes one layout. Returns the row of results, and whether Ctrl-C ended the tuning."""
    call = Call(OpTy, site)
    with torch.no_grad():
        stopped = call.call().tune(seconds, candidates)
        products.forget_operators()
        call.check(size_name(OpTy, args))
        ours, base = products.in_turn(call.ours, call.base, call.device, min(1.0, seconds))
        return {"name": call.call().kernels(), "time": ours * 1e3, "time_base": base * 1e3}, stopped


def tune_one(OpTy, args, dtype, sites, seconds, candidates, again=False):
    """A TuneResult for a computation: sums over the layouts in which the model has it. Returns it, and whether Ctrl-C was pressed."""
    results, rows, stopped = Results(), [], False
    for site in sites:
        key = key_of(OpTy, args, site)
        if again or key not in results.rows:
            row, stopped = measure(OpTy, args, site, seconds, candidates)
            if not stopped:
                results.put(key, row)
            rows.append(row)
        else:
            rows.append(results.rows[key])
        if stopped:
            break
    time, base = (sum(r[k] for r in rows) for k in ("time", "time_base"))
    name = f"{size_name(OpTy, args)} {' '.join(dict.fromkeys(r['name'] for r in rows))}"
    return TuneResult(OpTy, args, base / time, name, dtype, time, base), stopped


def space_of(args, dtype, warp_size):
    """A configuration file for a matrix product (doc/gemm.md), as text."""
    batch, m, n, k = args
    batch = [b for b in batch if b != 1]
    c = Context(level=0)
    shape = _native.GemmShape(n_batch=len(batch), m=m, n=n, k=k, is_transposed=1, type=products.arrays.OF_TORCH[str(dtype)])
    shape.batch[:len(batch)] = batch
    with c.lock:
        return c.take_text(_native.lib.quern_gemm_space, c.handle, byref(shape), warp_size)
