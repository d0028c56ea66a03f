# SPDX-License-Identifier: Apache-2.0
"""Results and times of two functions that compute the same, one of them by PyTorch."""
import math
import time

import torch

FASTER = 1.03  # what takes longer than PyTorch times this is left to PyTorch
DIFFERS = "its results differ from PyTorch's"
TOLERANCE = {torch.float64: 1e-9, torch.float32: 2e-3, torch.float16: 3e-2, torch.bfloat16: 1e-1}


def close(got, want):
    """Whether results agree within rounding: relative to the largest of them."""
    for a, b in zip(got, want):
        if a.shape != b.shape or a.dtype != b.dtype:
            return False
        if a.dtype not in TOLERANCE:
            if not torch.equal(a, b):
                return False
            continue
        tolerance = TOLERANCE[a.dtype]
        a, b = a.double(), b.double()
        finite = b.isfinite()
        if not torch.equal(a.isnan(), b.isnan()) or not torch.equal(a[~finite & ~b.isnan()], b[~finite & ~b.isnan()]):
            return False
        a, b = a[finite], b[finite]
        if b.numel() and (a - b).abs().max() > tolerance * max(b.abs().max().item(), 1e-6):
            return False
    return True


def best_times(a, b, args, most=1.0):
    """The least times of two functions that are called in turn, for at most about `most` seconds."""
    best, spent, rounds = [math.inf, math.inf], 0.0, 0
    while rounds < 3 or spent < most and rounds < 20:
        for k, f in enumerate((a, b)):
            start = time.perf_counter()
            f(*args)
            seconds = time.perf_counter() - start
            best[k], spent = min(best[k], seconds), spent + seconds
        rounds += 1
        if spent > most / 4 and not 0.8 < best[0] / best[1] < 1.25:
            break
    return best


def slower(seconds):
    """Why a function with these times (ours, PyTorch's) is not used; None: it is faster, or as fast."""
    ours, theirs = seconds
    return f"slower than PyTorch ({ours * 1e3:.3f} ms, {theirs * 1e3:.3f} ms)" if ours > theirs * FASTER else None


def compare(ours, theirs, args, is_exact=True, is_measured=True):
    """Why a function is not used instead of PyTorch's (None: it has the same results and is no slower), and the times of both (None: not measured).
    is_exact: results must agree within rounding."""
    got, want = ours(*args), theirs(*args)
    if is_exact and not close(got, want):
        return DIFFERS, None
    if not is_measured:
        return None, None
    seconds = best_times(ours, theirs, args)
    return slower(seconds), seconds
