#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""SimpleLocalTester.py CONFIG.json RESULT.json START MAX [CHECKTFLOPS SPEEDUP [OPERATOR [DEVICE [DTYPE]]]] [--seqlen N]

Measures the kernels that a configuration file describes on a device with workgroups, beside quern's reference and the device's library, as `quern gemm`
and `quern attention --tiles` do (doc/gemm.md, doc/attention.md).

    START        number of kernels to pass over
    MAX          number of kernels to measure, 0: all
    CHECKTFLOPS  1: stop at 60 % of the device's estimated peak
    SPEEDUP      stop at this speed-up over the baseline, 0: never
    OPERATOR     matmul, attn_v1, attention_origin ...; default: the one whose keys the file has
    DEVICE       a number of a GPU, or a pattern over devices of quern; default: CUDA, HIP, OpenCL, Vulkan, whichever is there, else the CPU, for
                 which quern's search takes the place of the file's points
    DTYPE        float32, float16, bfloat16
    --seqlen N   positions of an attention of one batch and 32 heads of 64

RESULT.json receives the ten best, in addition to those that it has, and RESULT.db beside it every measurement: the same command continues where an
earlier one ended, or was ended by Ctrl-C."""
import json
import os
import sys
from ctypes import byref, pointer

from quern._library import Context, Error, TuneOpts, lib, text
from quern._nvrtc import find_compiler

from kcg import _native
from kcg._places import find_file, say_once

DRIVERS = ("cuda", "hip", "opencl", "vulkan")
LONG = ("attn_k1", "attn_k2", "gemma2", "h2o")  # begin the kinds of 4096 positions by default, others have 2048


class Usage(Exception):
    """A wrong command line."""


def number(name, value, kind):
    try:
        n = kind(value)
    except ValueError:
        n = -1
    if not 0 <= n < 1e18:
        raise Usage(f"{name} is '{value}', expected a number")
    return n


class Arguments:
    def __init__(self, words):
        words, self.seqlen = list(words), 0
        if "--seqlen" in words:
            at = words.index("--seqlen")
            if at + 1 == len(words):
                raise Usage("--seqlen needs a number")
            self.seqlen = number("--seqlen", words[at + 1], int)
            del words[at:at + 2]
        if len(words) not in (4, 6, 7, 8, 9):
            raise Usage(f"{len(words)} arguments, expected 4, or 6 to 9")
        words += ["1", "0"][len(words) - 4:] + [None] * (9 - max(len(words), 6))
        self.config, self.result, start, most, tflops, speedup, self.operator, self.device, self.dtype = words
        self.start, self.max = number("START", start, int), number("MAX", most, int)
        self.check_tflops, self.speedup = number("CHECKTFLOPS", tflops, int), number("SPEEDUP", speedup, float)
        if self.check_tflops > 1:
            raise Usage(f"CHECKTFLOPS is '{tflops}', expected 0 or 1")


def operator_of(config):
    """By the keys of the file."""
    with open(config, encoding="utf-8") as f:
        try:
            keys = json.load(f)
        except ValueError as e:
            raise Usage(f"'{config}' is no configuration: {e}") from None
    listed = keys.get("kernels") if isinstance(keys, dict) else None
    if listed:
        return "matmul" if listed[0].get("type") == "matmul" else "attn_v1"
    return "attn_v1" if isinstance(keys, dict) and ("Br" in keys or "k1" in keys) else "matmul"


def device_of(context, wanted):
    """The library's name of the device."""
    names = [d["name"] for d in json.loads(context.take_text(lib.quern_devices, context.handle)) if not d.get("described")]
    if wanted is None:
        return next((d for d in DRIVERS if d in names), "cpu")
    if not wanted.isdigit():
        return wanted
    driver = next((d for d in DRIVERS[:2] if d in names), None)
    if driver:
        return f"{driver}:{wanted}"
    device = device_of(context, None)
    say_once(f"there is no GPU {wanted}: '{device}' is used instead")
    return device


def shape_of(a):
    positions = a.seqlen or (4096 if a.operator.startswith(LONG) else 2048)
    return _native.AttentionShape(kind=text(a.operator), batch=1, heads=32, length=positions, head_size=64, type=text(a.dtype))


def options_of(a, device, tune):
    o = _native.GemmOpts(result=text(a.result), start=a.start, max=a.max, stop_at_tflops=a.check_tflops, type=text(a.dtype), tune=pointer(tune))
    if device == "cpu" and a.operator == "matmul":
        say_once("no device with workgroups is here: quern's search for the CPU takes the place of the file's points")
        o.search, o.start, o.max = 1, 0, 0
        tune.max_candidates = a.max
    return o


class Report:
    """Progress, on standard error."""

    def __init__(self):
        self.done = -1

    def __call__(self, p):
        if p["done"] != self.done and p["done"] % 10 == 0:
            self.done = p["done"]
            print(f"kcg: {p['done']} of {p['total']} measured, {p['failures']} failed, best speed-up {p['best']:.3f}", file=sys.stderr, flush=True)


def measure(a):
    """Returns the exit code."""
    context, best = Context(on_progress=Report()), _native.GemmBest()
    device = device_of(context, a.device)
    if device.startswith("cuda"):
        find_compiler()
    tune = TuneOpts(device=text(device), stop_at_speedup=a.speedup)
    db = context.database(os.path.splitext(a.result)[0] + ".db")
    o = options_of(a, device, tune)
    print(f"kcg: {a.operator} of '{a.config}' on '{device}'", flush=True)
    code = 0
    with context.lock:
        try:
            if a.operator == "matmul":
                context.wait(lib.quern_gemm, db, text(a.config), byref(o), byref(best))
            else:
                context.wait(lib.quern_attention_tiles, db, text(a.config), byref(shape_of(a)), byref(o), byref(best))
        except KeyboardInterrupt:
            code = 130
    print(f"kcg: {best.n_points} kernels visited, {best.n_refused} of them refused")
    if best.name:
        print(f"{best.name.decode()}\n{best.seconds * 1e3:.4f} ms, {best.base_seconds * 1e3:.4f} ms by {best.baseline.decode() or 'the baseline'}, "
              f"speed-up {best.speedup:.3f}, {best.tflops:.3f} TFLOP/s\nkcg: the best are in '{a.result}'")
    return code


def main(words):
    try:
        a = Arguments(words)
        a.config = find_file(a.config)
        a.operator = a.operator or operator_of(a.config)
        return measure(a)
    except Usage as e:
        print(f"SimpleLocalTester.py: {e}\n\n{__doc__}", file=sys.stderr)
        return 2
    except (Error, OSError) as e:
        print(f"SimpleLocalTester.py: {e}", file=sys.stderr)
        return {"USAGE": 2, "NOTHING": 3, "STOPPED": 130}.get(getattr(e, "status", ""), 1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
