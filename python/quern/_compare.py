# SPDX-License-Identifier: Apache-2.0
"""Results and times of two functions that compute the same, one of them by PyTorch."""
from __future__ import annotations

import math
import time
from typing import Any, Callable, Iterable, Optional, Sequence

import torch

FASTER = 1.03  # what takes longer than PyTorch times this is left to PyTorch
SAMPLE, MOST_CALLS = 2e-3, 100  # seconds of consecutive calls on a device, and their greatest number
DIFFERS = "its results differ from PyTorch's"
# Of differences, relative to the largest element of a result.
TOLERANCE = {torch.float64: 1e-9, torch.float32: 2e-3, torch.float16: 3e-2, torch.bfloat16: 1e-1}

Function = Callable[..., Any]
Wait = Optional[Callable[[], Any]]


def has_tf32() -> bool:
    """Whether PyTorch may round operands of f32 to 10 bits of mantissa on a GPU, as it does in convolutions by default."""
    try:
        return bool(torch.backends.cudnn.allow_tf32 or torch.backends.cuda.matmul.allow_tf32)
    except RuntimeError:  # set by the newer names, for each operator
        return True


def tolerance_of(t: torch.Tensor) -> float:
    """For PyTorch's result t, relative to the largest element."""
    return TOLERANCE[torch.float16 if t.dtype == torch.float32 and t.is_cuda and has_tf32() else t.dtype]


def close(got: Iterable[torch.Tensor], want: Iterable[torch.Tensor]) -> bool:
    """Whether results agree within rounding: relative to the largest of them."""
    for a, b in zip(got, want):
        if a.shape != b.shape or a.dtype != b.dtype:
            return False
        if a.dtype not in TOLERANCE:
            if not torch.equal(a, b):
                return False
            continue
        tolerance = tolerance_of(b)
        a, b = a.double(), b.double()
        finite = b.isfinite()
        if not torch.equal(a.isnan(), b.isnan()) or not torch.equal(a[~finite & ~b.isnan()], b[~finite & ~b.isnan()]):
            return False
        a, b = a[finite], b[finite]
        if b.numel() and (a - b).abs().max() > tolerance * max(b.abs().max().item(), 1e-6):
            return False
    return True


def seconds_of(f: Function, args: Sequence[Any], calls: int, wait: Wait) -> float:
    """The time of a call, the mean of so many consecutive ones, until they are done."""
    start = time.perf_counter()
    for _ in range(calls):
        f(*args)
    if wait:
        wait()
    return (time.perf_counter() - start) / calls


def best_times(a: Function, b: Function, args: Sequence[Any], most: float = 1.0, wait: Wait = None) -> list[float]:
    """The least times of two functions that are called in turn, for at most about `most` seconds. wait: ends when a device has done what these functions
    enqueued, which they do not wait for; as in an application, several calls are then enqueued one behind the other."""
    best, spent, rounds, calls = [math.inf, math.inf], 0.0, 0, [1, 1]
    if wait:
        wait()
        for k, f in enumerate((a, b)):  # not counted: the first ones may allocate memory
            calls[k] = max(1, min(MOST_CALLS, math.ceil(SAMPLE / min(seconds_of(f, args, 1, wait) for _ in range(2)))))
    while rounds < 3 or spent < most and rounds < 20:
        for k, f in enumerate((a, b)):
            seconds = seconds_of(f, args, calls[k], wait)
            best[k], spent = min(best[k], seconds), spent + seconds * calls[k]
        rounds += 1
        if spent > most / 4 and not 0.8 < best[0] / best[1] < 1.25:
            break
    return best


def columns(seconds: Sequence[float] | None) -> tuple[str, str]:
    """Both times (ours, PyTorch's) as cells of a table; None: not measured."""
    ours, theirs = (f"{s * 1e3:8.3f} ms" for s in seconds) if seconds else ("-", "-")
    return ours, theirs


def slower(seconds: Sequence[float]) -> str | None:
    """Why a function with these times (ours, PyTorch's) is not used; None: it is faster, or as fast."""
    ours, theirs = seconds
    return f"slower than PyTorch ({ours * 1e3:.3f} ms, {theirs * 1e3:.3f} ms)" if ours > theirs * FASTER else None


def compare(ours: Function, theirs: Function, args: Sequence[Any], is_exact: bool = True, is_measured: bool = True,
            wait: Wait = None, reference: Any = None) -> tuple[str | None, list[float] | None]:
    """Why a function is not used instead of PyTorch's (None: it has the same results and is no slower), and the times of both (None: not measured).
    is_exact: results must agree within rounding; wait: see best_times(); reference: a _reference.Reference, to which results that differ more than that may
    be as close as PyTorch's."""
    got, want = ours(*args), theirs(*args)
    if is_exact and not close(got, want) and not (reference and reference.approves(got, want)):
        return DIFFERS, None
    if not is_measured:
        return None, None
    seconds = best_times(ours, theirs, args, wait=wait)
    return slower(seconds), seconds
