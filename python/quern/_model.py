# SPDX-License-Identifier: Apache-2.0
"""Networks of torch.compile's pieces, with their weights as arrays: read, quantised, tuned; by the process that runs them (_piece.py), and by the one that
measures on a GPU (_tuning_process.py)."""
from __future__ import annotations

from ctypes import addressof, byref, c_void_p, pointer
from typing import Any, Mapping

from ._arrays import Views
from ._library import STATUS, Array, Context, ModelOpts, QuantizeOpts, TargetOpts, TuneOpts, lib, text


def read(c: Context, onnx: bytes, name: str, constants: Mapping[int, Array], n: int, sizes: str | None) -> c_void_p:
    """The model in the bytes of an ONNX file.

    constants: inputs that become constants, by position, host arrays whose memory must stay until the model is closed; n: number of its inputs; sizes:
    "s77:8,s3:128", for which kernels are selected; None: all are fixed."""
    n = n if constants else 0
    with Views(c) as views:
        given = views.handles([views.add(constants[k]) if k in constants else None for k in range(n)])
        o = ModelOpts(optimize_for=text(sizes), constants=addressof(given), n_constants=n, constants_in_place=1)
        return c.make(lib.quern_model_read, c.handle, onnx, len(onnx), name.encode(), byref(o))


def quantised(c: Context, model: c_void_p, weights: str) -> c_void_p:
    """The model with matrices in few bits ("int8", "int4") in place of the given one, or that one if it has none that can be."""
    out = c_void_p()
    status = lib.quern_quantize(model, None, None, byref(QuantizeOpts(weights=text(weights))), byref(out))
    if STATUS.get(status) in ("NOTHING", "UNSUPPORTED"):  # no layer
        return model
    c.check(status)
    lib.quern_model_close(model)
    return out


def target(deterministic: bool, isa: str | None) -> Any:
    """A pointer to TargetOpts; None: no limits."""
    return pointer(TargetOpts(deterministic=deterministic, isa=text(isa))) if deterministic or isa else None


def tune(c: Context, db: c_void_p, model: c_void_p, device: str | None, threads: int, seconds: float, limits: Any) -> None:
    """Measures schedules of a model into a database. limits: of target()."""
    c.check(lib.quern_tune(db, model, byref(TuneOpts(device=text(device), threads=threads, timeout=seconds, target=limits))))
