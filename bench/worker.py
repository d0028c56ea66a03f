# SPDX-License-Identifier: Apache-2.0
#
# Engines as processes (bench/engines.py), bound to as many processors as they have threads, waiting on
# a pipe between their turns. Environment variables for libraries are
# replaced by the settings found here: a library older than the processor may not detect it, and
# would use kernels for older ones. The machine's peak is measured by a process of the same
# kind (bench/peak.c).
import contextlib
import dataclasses
import glob
import json
import os
import select
import signal
import subprocess
import sys
import tempfile

import isa
from rows import ROOT

HERE = os.path.dirname(os.path.abspath(__file__))
LOAD_LIMIT, TIME_LIMIT = 300, 120  # seconds
SPEAKS_TO_LIBRARIES = (
    "OPENBLAS_",
    "BLIS_",
    "OMP_",
    "GOMP_",
    "KMP_",
    "MKL_",
    "DNNL_",
    "ONEDNN_",
    "ORT_",
    "OV_",
    "ATEN_",
)


class Failed(Exception):
    """The engine does not support this row, with the reason."""


def environment(threads, settings):
    e = {k: v for k, v in os.environ.items() if not k.startswith(SPEAKS_TO_LIBRARIES)}
    e.update(
        {k: str(threads) for k in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "BLIS_NUM_THREADS")}
    )
    return {**e, "MKL_NUM_THREADS": str(threads), "OMP_DYNAMIC": "false", **settings}


def command(engine, threads, python=sys.executable):
    if engine.split()[0] == "peak":  # perhaps with an instruction set
        limits = ["-lisa=" + s for s in engine.split()[1:]]
        return [os.path.join(ROOT, "build/bench/peak"), *limits, str(threads), "turns"]
    if engine in ("cublas", "sdpa", "torch_gpu"):
        return [python, os.path.join(HERE, engine + ".py")]
    return [python, os.path.join(HERE, "engines.py"), engine]


class Worker:
    """A process with one engine, and with a row after load(). python: the interpreter."""

    def __init__(self, engine, threads, settings, python=sys.executable):
        self.engine, self.threads = engine, threads
        cpus = sorted(os.sched_getaffinity(0))[-threads:]
        self.log = tempfile.TemporaryFile()
        self.p = subprocess.Popen(
            command(engine, threads, python),
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.log,
            env=environment(threads, settings), preexec_fn=lambda: os.sched_setaffinity(0, cpus),
        )  # fmt: skip

    def ask(self, limit, **what):
        try:
            self.p.stdin.write(json.dumps(what).encode() + b"\n")
            self.p.stdin.flush()
            ready = select.select([self.p.stdout], [], [], limit)[0]
            line = self.p.stdout.readline() if ready else b""
        except BrokenPipeError:
            ready, line = True, b""
        if not line:
            self.close()
            raise Failed(self.last_words() if ready else "no answer for %d s" % limit)
        answer = json.loads(line)
        if "error" in answer:
            raise Failed(answer["error"].splitlines()[0][:160])
        return answer

    def last_words(self):
        code = self.p.returncode
        how = signal.Signals(-code).name if code and code < 0 else "exit status %s" % code
        self.log.seek(0)
        text = self.log.read().decode(errors="replace").strip().splitlines()
        return how + (": " + text[-1] if text else "")

    def load(self, row, files):
        """{"most", "running", "flops", "form"}: MB of the process at most and after a run, beyond those
        without a row, and operations of a run if the engine knows them; None if it does not support
        the row."""
        fields = {**dataclasses.asdict(row), "kind": row.kind}
        a = self.ask(LOAD_LIMIT, do="load", row=fields, threads=self.threads, **files)
        return None if "unsupported" in a else a

    def load_peak(self, of):
        """For the engine "peak": sets what it measures, "flops" or "read"; returns flops or bytes
        of a run."""
        return self.ask(LOAD_LIMIT, do="load", of=of)["amount"]

    def time(self, count=1, warm=0):
        return self.ask(TIME_LIMIT, do="time", count=count, warm=warm)

    def place(self, count):
        """Selects the faster placement of threads in samples of count runs: "anywhere" (by the
        system) or "apart" (a processor for each)."""
        return self.ask(TIME_LIMIT, do="place", count=count, threads=self.threads)["where"]

    def cpu(self):
        """Jiffies of processor time."""
        try:
            with open("/proc/%d/stat" % self.p.pid) as f:
                return sum(map(int, f.read().rpartition(")")[2].split()[11:13]))
        except OSError:
            return 0

    def close(self):
        if self.p.poll() is None:
            self.p.kill()
        self.p.wait()
        with contextlib.suppress(BrokenPipeError):  # what was written after its end
            self.p.stdin.close()
        self.p.stdout.close()


class Processes:
    """Engines with one number of threads. Those whose libraries take seconds to load serve all rows
    of single layers; a network, whose memory is reported, has a process of its own."""

    SERVE_ALL = ("onnxruntime", "openvino", "torch")

    def __init__(self, threads):
        self.threads, self.kept = threads, {}

    def get(self, engine, settings, row):
        if row.kind == "net" or engine not in self.SERVE_ALL:
            return Worker(engine, self.threads, settings)
        if engine not in self.kept or self.kept[engine].p.poll() is not None:
            self.kept[engine] = Worker(engine, self.threads, settings)
        return self.kept[engine]

    def release(self, w):
        if w not in self.kept.values():
            w.close()

    def close(self):
        for w in self.kept.values():
            w.close()


# --- which library, with which kernels ------------------------------------------------------------

def libraries(*patterns):
    return [p for pattern in patterns for p in sorted(glob.glob(pattern))[:1]]


def openblas_settings(kernels):
    packaged = libraries(
        sys.prefix + "/lib/python*/site-packages/scipy_openblas32/lib/libscipy_openblas.so"
    )
    debian = libraries("/usr/lib/*/openblas-pthread/libopenblas.so.0")
    found = [(p, "scipy_") for p in packaged] + [(p, "") for p in debian]
    return [
        {"BENCH_BLAS": ",".join(f), **({"OPENBLAS_CORETYPE": k} if k else {})}
        for f in found
        for k in kernels
    ]


def blis_settings(kernels):
    return [
        {"BENCH_BLAS": p + ",", **({"BLIS_ARCH_TYPE": k} if k else {})}
        for p in libraries("/usr/lib/*/blis-*/libblis.so.4")
        for k in kernels
    ]


def ggml_settings(held_to):
    """Built by bench/setup for an instruction set, or for this processor."""
    folder = os.path.join(ROOT, "build/llama.cpp", held_to or "native", "bin")
    return [{"BENCH_GGML": folder}] if os.path.exists(folder) else []


ALTERNATIVES = {"openblas": openblas_settings, "blis": blis_settings}


def try_settings(engine, settings, row):
    """Seconds, and the engine's description of itself; infinite and the reason if it crashes."""
    w = Worker(engine, 1, settings)
    try:
        version = w.ask(LOAD_LIMIT, do="hello")["version"]
        if engine not in ALTERNATIVES:
            return 0.0, version
        w.load(row, {})
        return min(w.time()["cpu"] for _ in range(5)), version
    except Failed as e:
        return float("inf"), str(e)
    finally:
        w.close()


def find_engine(engine, row, held_to=""):
    """(settings, version): of several libraries or kernels the fastest for this row on one thread.
    Failed if the engine is not installed, or cannot be held to an instruction set."""
    held = isa.settings(held_to, engine)
    if held is None:
        raise Failed("cannot be held to " + held_to)
    ways = [{}]
    if engine in ALTERNATIVES:
        ways = ALTERNATIVES[engine](isa.kernels(held_to, engine))
    if engine == "llama.cpp":
        ways = ggml_settings(held_to)
    tried = [(*try_settings(engine, {**s, **held}, row), {**s, **held}) for s in ways]
    if not tried:
        raise Failed("not installed")
    seconds, version, settings = min(tried, key=lambda t: t[0])
    if seconds == float("inf"):
        raise Failed(version)
    return settings, version
