# SPDX-License-Identifier: Apache-2.0
"""What models and their scripts use beside OpProxy: layers with random weights that are the same in every run (_layers.py), replacement of layers and
functions (_replace.py), registration and tuning of kernels, comparison of two models."""
import gc
import math
import os
import statistics
import time
from ctypes import byref, pointer

import torch
import torch.nn as nn

import quern

from . import _native, _tuning, triton_matmul
from . import _products as products
from ._layers import CustomLinear, create_fixed_embedding
from ._places import DeviceInfo, PathManager, device_of, find_file, say_once
from ._registry import OPERATORS, args_of, check_name, is_for_gpu, read_list, size_name, tell_cpu, write_list
from ._replace import MatmulReplacer, get_baseline_model, get_op_optimized_model, replace_LinearToCustomLlinear
from .TorchInjector import AttentionOp, MatmulOp, OpBaseArgsCollector, OpInjector, OpProxy, TuneResult, attention, matmul

__all__ = ["AttentionOp", "CustomLinear", "DeviceInfo", "MatmulOp", "MatmulReplacer", "OpBaseArgsCollector", "OpInjector", "OpProxy",
           "PathManager", "TuneResult", "attention", "compare_with_error", "compile_model", "create_fixed_embedding", "evaluate_model_time",
           "exportPreCompiledKernels", "get_baseline_model", "get_op_optimized_model", "matmul", "nn", "registerCollectedKernels",
           "registerPreCompiledKernel", "registerPreCompiledKernelByJson", "release_model", "replace_LinearToCustomLlinear", "run_model", "torch",
           "triton_matmul"]


# --- registration ---


def registerPreCompiledKernel(OpTy, name, speedup, devId, dtype=torch.float32):
    """Registers a kernel by its name, if its speedup is above 1. A kernel for GPUs is built, verified and measured there, beside quern's own: what is
    fastest serves the computation. On the CPU quern's own kernel does."""
    if is_for_gpu(name):
        check_name(name)
    result = TuneResult(OpTy, args_of(OpTy, name), speedup, name, dtype)
    device = device_of(devId)
    if device.type == "cpu":
        tell_cpu(result)
    elif OpTy is MatmulOp and is_for_gpu(name):
        products.find_compiler()
        measure_named(result, products.arrays.device_name(device))
    OpProxy.registKernel(result)
    return result


def measure_named(result, device):
    """The kernel becomes a row of the database, from which operators are selected. deepgen's kernels take the left operand transposed; its twin for an
    operand as it is has all other fields. device: the library's name. Returns whether it was measured."""
    o = products.operator("MatMul", (), 0, device)
    c = o._open()
    path = os.path.join(PathManager.tmp_dir(), f"named-{os.getpid()}.json")
    os.makedirs(os.path.dirname(path), exist_ok=True)
    plain = TuneResult(result.OpTy, result.bestKernelBaseArg, 0, result.name.replace("isAT1", "isAT0").replace("isATTrue", "isAT0"))
    write_list(path, [plain])
    tune = _native.TuneOpts(device=o.options["device"], min_samples=5)
    options = _native.GemmOpts(tune=pointer(tune), type=os.fsencode(str(result.dtype).replace("torch.", "")), baseline=b"reference")
    try:
        with c.lock:
            c.wait(_native.lib.quern_gemm, o.shared.db, os.fsencode(path), byref(options), byref(_native.GemmBest()))
        return True
    except quern.Error as e:
        say_once(f"'{result.name}' is not measured on '{device}', quern's own best kernel is used: {e}")
        return False
    finally:
        os.unlink(path)
        products.forget_operators()


def registerPreCompiledKernelByJson(path, devid, speedup=11):
    """Registers all kernels of a list (kcg/_registry.py). Kernels of unknown types are counted and left out. Returns the registered ones."""
    results, others = [], 0
    for kind, name, dtype, entry in read_list(find_file(path)):
        if kind not in OPERATORS:
            others += 1
            continue
        results.append(registerPreCompiledKernel(OPERATORS[kind], name, float(entry.get("speedup", speedup)), devid, dtype))
    if others:
        say_once(f"'{path}': {others} kernels of unknown types were left out")
    return results


def registerCollectedKernels():
    """Registers quern's kernels for all computations collected so far, as the database has them, without measuring anything. Returns them."""
    results = [TuneResult(OpTy, args, math.inf, f"{size_name(OpTy, args)} default", dtype) for OpTy, args, dtype, _ in OpProxy.collector.each()]
    for r in results:
        OpProxy.registKernel(r)
    return results


def exportPreCompiledKernels(path):
    """Writes the registered kernels as a list that registerPreCompiledKernelByJson reads."""
    write_list(path, OpProxy.registry.results())


# --- tuning ---


def run_model(model, args, input_ids):
    """The run of a model as a function, for compile_model."""
    return lambda: model(input_ids)


def compile_model(devId, f_run, collectInfoOnly=False, invokeDeepgenGraph=False, *, seconds=20.0, max_candidates=0, retune=False, export=None,
                  configs=None, warp_size=64):
    """Runs the model once, collects its matrix products and attentions, tunes each on the device, and registers the kernels that are faster than
    PyTorch's operators.

    devId               number of a GPU, or a device
    f_run               runs the model; if it is no function, the model has already run
    collectInfoOnly     only collects: returns the computations, as GetCollectedKernelArgs
    invokeDeepgenGraph  is accepted: torch.compile(model, backend="quern") compiles whole graphs
    seconds             for each computation; max_candidates: at most, of each, 0: any number
    retune              measures what results.json has, too
    export              a file for the registered kernels (exportPreCompiledKernels)
    configs             a folder for a configuration of each matrix product, mm_16._1024_64_1024.json, for SimpleLocalTester.py; warp_size: theirs

    Measurements are in quern's database as they arrive; another run continues. Ctrl-C ends the tuning and keeps what was found. Returns a TuneResult
    for each computation.
    """
    device = device_of(devId)
    if callable(f_run):
        with torch.no_grad():
            f_run()
    if invokeDeepgenGraph:
        say_once("graphs are compiled by torch.compile(model, backend='quern')")
    each = OpProxy.collector.each()
    for OpTy, args, dtype, _ in each:
        print(f"kcg: collected {OpTy.type} {args} {str(dtype).replace('torch.', '')}", flush=True)
    if configs is not None:
        write_configs(configs, each, warp_size)
    if collectInfoOnly:
        return OpProxy.GetCollectedKernelArgs()
    results = tune_all(each, device, seconds, max_candidates, retune)
    if export is not None:
        exportPreCompiledKernels(export)
    return results


def tune_all(each, device, seconds, candidates, again):
    results = []
    for OpTy, args, dtype, sites in each:
        here = [s for s in sites if s.operands[0][3].type == device.type]
        if not here:
            say_once(f"{size_name(OpTy, args)} was not called on '{device}', it is not tuned")
            continue
        result, stopped = _tuning.tune_one(OpTy, args, dtype, here, seconds, candidates, again)
        results.append(result)
        OpProxy.registKernel(result)
        verdict = "registered" if result.bestSpeedup > 1 else "left to PyTorch"
        print(f"kcg: {size_name(OpTy, args)}: {result.time:.4g} ms, PyTorch {result.time_base:.4g} ms, {verdict}", flush=True)
        if stopped:
            print("kcg: stopped; what was measured is kept", flush=True)
            break
    return results


def write_configs(folder, each, warp_size):
    os.makedirs(folder, exist_ok=True)
    for OpTy, args, dtype, _ in each:
        if OpTy is not MatmulOp:
            continue
        batch, m, n, k = args
        name = f"mm_{''.join(f'{b}.' for b in batch if b != 1) or '1.'}_{m}_{n}_{k}.json"
        try:
            content = _tuning.space_of(args, dtype, warp_size)
        except quern.Error as e:
            say_once(f"no configuration for {size_name(OpTy, args)}: {e}")
            continue
        with open(os.path.join(folder, name), "w", encoding="utf-8") as f:
            f.write(content)


# --- comparison ---


def evaluate_model_time(f, rounds=5):
    """The result of f(), and the median of its times in milliseconds, after one run that is not counted. Without gradients."""

    def wait():
        if torch.cuda.is_available():
            torch.cuda.synchronize()

    times = []
    with torch.no_grad():
        y = f()
        for _ in range(rounds):
            wait()
            start = time.perf_counter()
            y = f()
            wait()
            times.append((time.perf_counter() - start) * 1e3)
    return y, statistics.median(times)


def compare_with_error(a, b, abs_error=1e-2, rel_error=1e-2):
    """How many elements differ by more than abs_error + rel_error * |b|, and the largest difference. NaN differs from every number but NaN."""
    x, y = a.detach().double(), b.detach().to(a.device).double()
    same = (x == y) | (x.isnan() & y.isnan())
    d = (x - y).abs().masked_fill(same, 0.0)
    bad = ~same & ~(d <= abs_error + rel_error * y.abs())
    return int(bad.sum()), (d.nan_to_num(math.inf).max().item() if d.numel() else 0.0)


def release_model(model):
    """Gives the memory of its parameters back, on GPUs to the driver."""
    for t in (*model.parameters(), *model.buffers()):
        t.data = torch.empty(0, dtype=t.dtype, device=t.device)
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
