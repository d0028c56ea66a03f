# SPDX-License-Identifier: Apache-2.0
"""Measurements on a device that this process uses already, in a process of their own.

Candidates are measured in children of the process that tunes, and a child made by fork cannot use CUDA if its parent does (doc/device-cuda.md). PyTorch does
by the time that a model is compiled. So another Python process is started, which has only the library; what it is to do is in a folder: job.json, the network
and its weights. Results are in the database, or in the user's cache.
"""
from __future__ import annotations

import json
import os
import subprocess
import sys
from ctypes import byref
from typing import Any, Iterable

from . import _model
from ._library import Array, Context, Error, MeasureOpts, lib, text

JOB, MODEL = "job.json", "net.onnx"
MORE = 600  # seconds beyond the time for measurements: the start, and the last candidate
PROGRAM = "import sys; from quern import _tuning_process; _tuning_process.main(sys.argv[1])"


def run(folder: str, libraries: Iterable[str], seconds: float) -> None:
    """Does the folder's job. libraries: folders with libraries that this process found and the linker does not; seconds: its time. Raises Error."""
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    paths = [*libraries, *filter(None, [os.environ.get("LD_LIBRARY_PATH")])]
    if paths:
        env["LD_LIBRARY_PATH"] = os.pathsep.join(paths)
    try:
        p = subprocess.run([sys.executable, "-c", PROGRAM, folder], env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace",
                           timeout=seconds + MORE)
    except (OSError, subprocess.TimeoutExpired) as e:
        raise Error(f"cannot measure in a process of its own: {e}", "SYSTEM") from None
    if p.returncode:
        lines = p.stderr.strip().splitlines()
        raise Error(f"measuring in a process of its own failed: {lines[-1] if lines else f'exit status {p.returncode}'}", "FAILED")


def write(folder: str, job: dict[str, Any]) -> None:
    with open(os.path.join(folder, JOB), "w", encoding="utf-8") as f:
        json.dump(job, f)


def write_tuning(folder: str, onnx: bytes, constants: dict[int, tuple[Array, bytes | memoryview]], **job: Any) -> None:
    """A job for tune() below. constants: by position, type and sizes, and the content, row-major; job: name, n, sizes, weights, database, device,
    seconds, deterministic."""
    with open(os.path.join(folder, MODEL), "wb") as f:
        f.write(onnx)
    for k, (_, content) in constants.items():
        with open(os.path.join(folder, f"{k}.bin"), "wb") as f:
            f.write(content)
    write(folder, {"what": "tune", "constants": {k: [a.type, a.dim[:a.rank]] for k, (a, _) in constants.items()}, **job})


def tune(folder: str, job: dict[str, Any]) -> None:
    """The job of write_tuning()."""
    import numpy as np
    c, held, constants = Context(), [], {}
    for k, (kind, dim) in job["constants"].items():
        path = os.path.join(folder, f"{k}.bin")
        held.append(np.memmap(path, np.uint8, "r") if os.path.getsize(path) else np.zeros(1, np.uint8))
        a = Array(type=kind, rank=len(dim), data=held[-1].ctypes.data)
        a.dim[:len(dim)] = dim
        constants[int(k)] = a
    with open(os.path.join(folder, MODEL), "rb") as f:
        model = _model.read(c, f.read(), job["name"], constants, job["n"], job["sizes"])
    if job["weights"]:
        model = _model.quantised(c, model, job["weights"])
    try:
        _model.tune(c, c.database(job["database"]), model, job["device"], 0, job["seconds"], _model.target(job["deterministic"], None))
    finally:
        lib.quern_model_close(model)


def measure(folder: str, job: dict[str, Any]) -> None:
    """How fast the device is, by which schedules are predicted; also tests its driver. Kept in the user's cache."""
    c = Context()
    c.take_text(lib.quern_measure, c.handle, byref(MeasureOpts(device=text(job["device"]))))


def main(folder: str) -> None:
    """What the other process does: the job in a folder. Exits with a message if it fails."""
    with open(os.path.join(folder, JOB), encoding="utf-8") as f:
        job = json.load(f)
    try:
        {"tune": tune, "measure": measure}[job["what"]](folder, job)
    except Error as e:
        sys.exit(str(e))
