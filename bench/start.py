# SPDX-License-Identifier: Apache-2.0
#
# Time to the first result: from the start of a process with a network's file to its first outputs.
# quern compiles its kernels on the way ("first": with empty caches; "again": after an earlier
# process) and fills its caches after the result, which "to its end" includes. Other tools are
# Python processes, timed from the import of the library on; torch.compile's networks are created in
# the process. Engines take turns; files are in the page cache.
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time

import numpy as np
import stats
from rows import ROOT

QUERN = ROOT + "/build/quern"
ROUNDS = 5  # at most

# Each prints the seconds until it has the outputs. Arguments: network, input.
PEERS = {
    "onnxruntime": """
import onnxruntime as ort
o = ort.SessionOptions(); o.intra_op_num_threads = threads
s = ort.InferenceSession(path, o, providers=["CPUExecutionProvider"])
s.run(None, {i.name: x[i.name] for i in s.get_inputs()})
""",
    "openvino": """
import openvino as ov
c = ov.Core()
c.set_property("CPU", {"INFERENCE_NUM_THREADS": threads, "INFERENCE_PRECISION_HINT": "f32"})
m = c.compile_model(path, "CPU")
m.create_infer_request().infer([x[i.any_name] for i in m.inputs])
""",
    "torch.compile": """
import torch
torch.set_num_threads(threads)
%s
with torch.no_grad(): torch.compile(net.eval())(*map(torch.from_numpy, x.values()))
""",
}
FRAME = """
import sys, time, json, os
import numpy as np
path, inputs, threads = sys.argv[1], sys.argv[2], int(sys.argv[3])
x = dict(np.load(inputs))
start = time.time()
%s
print(json.dumps(time.time() - start))
"""
BERT = "bert, 12 layers, 1x128"
# How PyTorch makes the networks.
TORCH = {
    "resnet50": "import torchvision; net = torchvision.models.resnet50(weights=None)",
    "mobilenetv2": "import torchvision; net = torchvision.models.mobilenet_v2(weights=None)",
    BERT: "import transformers; net = transformers.BertModel(transformers.BertConfig())",
    "ten small nodes": """
class net(torch.nn.Module):
    def forward(self, x):
        for f in (torch.relu, torch.sin, torch.tanh, torch.exp, torch.neg, torch.sigmoid, torch.abs, torch.sqrt, torch.cos, torch.floor): x = f(x)
        return x
net = net()
""",
}


def small_graph():
    """Ten small nodes."""
    lines = ["graph {", "  input %v0: f32[1,8,16,16]"]
    for k, op in enumerate(["Relu", "Sin", "Tanh", "Exp", "Neg", "Sigmoid", "Abs", "Sqrt", "Cos", "Floor"]):
        lines.append("  %%v%d: f32[1,8,16,16] = %s(%%v%d)" % (k + 1, op, k))
    return "\n".join([*lines, "  output %v10", "}", ""])


def bert(path):
    """Twelve layers as exported by transformers; false without PyTorch."""
    code = """
import sys, torch, transformers as tf
m = tf.BertModel(tf.BertConfig()).eval()
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.m = m
    def forward(self, ids, mask):
        return self.m(input_ids=ids, attention_mask=mask).last_hidden_state
x = (torch.ones(1, 128, dtype=torch.long), torch.ones(1, 128, dtype=torch.long))
torch.onnx.export(Net(), x, sys.argv[1], input_names=["ids", "mask"], opset_version=17, dynamo=False)
"""
    return subprocess.run([sys.executable, "-c", code, path], capture_output=True).returncode == 0


def zoo(name, path):
    subprocess.run([QUERN, "zoo", name, "-o", path], check=True, stdout=subprocess.DEVNULL)
    return True


def small(path):
    with open(path + ".txt", "w") as f:
        f.write(small_graph())
    subprocess.run([QUERN, "export", path + ".txt", "--to", "onnx", "-o", path], check=True, stdout=subprocess.DEVNULL)
    return True


def networks(folder, only):
    """(name, file, inputs)"""
    picture = np.random.default_rng(0).standard_normal((1, 3, 224, 224), dtype=np.float32)
    ones = np.ones((1, 128), np.int64)
    makers = {
        "resnet50": (lambda path: zoo("resnet50", path), {"input": picture}),
        "mobilenetv2": (lambda path: zoo("mobilenetv2", path), {"input": picture}),
        BERT: (bert, {"ids": ones, "mask": ones}),
        "ten small nodes": (small, {"v0": picture[:, :1, :16, :16].repeat(8, 1)}),
    }
    for k, (name, (make, inputs)) in enumerate(makers.items()):
        path = "%s/%d.onnx" % (folder, k)
        if only in name and make(path):
            yield name, path, inputs


def quern(path, x, threads, folder, cold):
    """Seconds to the outputs, and to the end of the process."""
    cache = folder + "/cache"
    if cold:
        shutil.rmtree(cache, ignore_errors=True)
    args = [QUERN, "run", path, "--threads", str(threads), "-q", "-o", folder + "/y.npy"]
    for k, (name, v) in enumerate(x.items()):
        file = "%s/x%d.npy" % (folder, k)
        np.save(file, v)
        args += ["-i", file]
    outputs = folder + "/y.npy"
    if os.path.exists(outputs):
        os.remove(outputs)
    start = time.time()
    p = subprocess.Popen(args, env=dict(os.environ, XDG_CACHE_HOME=cache), stdout=subprocess.DEVNULL)
    while p.poll() is None and not os.path.exists(outputs):  # it appears as a whole
        time.sleep(0.001)
    first = time.time() - start
    if p.wait() or not os.path.exists(outputs):
        raise RuntimeError("quern run %s failed" % path)
    return first, time.time() - start


def peer(engine, name, path, x, threads, folder):
    inputs = folder + "/x.npz"
    np.savez(inputs, **x)
    code = PEERS[engine] % TORCH[name] if engine == "torch.compile" else PEERS[engine]
    args = [sys.executable, "-c", FRAME % code, path, inputs, str(threads)]
    p = subprocess.run(args, capture_output=True, text=True)
    return json.loads(p.stdout.strip().split("\n")[-1]) if p.returncode == 0 and p.stdout.strip() else None


def measure(name, path, x, threads, folder):
    """{engine: seconds}, of the supporting ones"""
    times = {}
    times["quern, first"], times["  to its end"] = quern(path, x, threads, folder, True)
    times["quern, again"], _ = quern(path, x, threads, folder, False)
    for e in PEERS:
        times[e] = peer(e, name, path, x, threads, folder)
    return {e: t for e, t in times.items() if t is not None}


def table(threads, only, rounds):
    """The table, as lines."""
    yield "start, %d thread%s: seconds from a network's file to its first outputs, medians of %d rounds" % (
        threads, "s" * (threads > 1), rounds)
    with tempfile.TemporaryDirectory() as folder:
        for name, path, x in networks(folder, only):
            times = {}
            for _ in range(rounds):
                for e, t in measure(name, path, x, threads, folder).items():
                    times.setdefault(e, []).append(t)
            yield name
            for e, t in times.items():
                yield "  %-14s %8.3f  %.3f to %.3f" % (e, stats.median(t), *stats.interval(t))
    yield ""


# --- many nodes -----------------------------------------------------------------------------------

SHAPE = "f32[1,8,16,16]"


def wide(n):
    """A graph with one input whose nodes are all outputs."""
    ops = ("Relu", "Sin", "Tanh", "Exp", "Neg", "Sigmoid", "Abs", "Sqrt", "Cos", "Floor")
    yield "input %v: " + SHAPE
    yield from ("%%y%d: %s = %s(%%v)" % (k, SHAPE, ops[k % len(ops)]) for k in range(n))
    yield from ("output %%y%d" % k for k in range(n))


def deep(n):
    yield "input %y0: " + SHAPE
    yield from ("%%y%d: %s = %s(%%y%d)" % (k + 1, SHAPE, ("Relu", "Sin")[k % 2], k) for k in range(n))
    yield "output %%y%d" % n


def dense(n):
    """Every node reads the two previous ones."""
    yield "input %y0: " + SHAPE
    yield "%%y1: %s = Relu(%%y0)" % SHAPE
    yield from ("%%y%d: %s = %s(%%y%d, %%y%d)" % (k, SHAPE, ("Max", "Add")[k % 2], k - 1, k - 2) for k in range(2, n + 1))
    yield "output %%y%d" % n


def concat(n):
    """One Concat with this number of inputs."""
    yield from ("input %%v%d: f32[1,3,32]" % k for k in range(n))
    yield "%%y: f32[1,%d,32] = Concat(%s) {axis=1}" % (3 * n, ", ".join("%%v%d" % k for k in range(n)))
    yield "output %y"


def compile_seconds(path, folder, cold):
    """Wall and processor time of `quern compile`, compilers included."""
    cache = folder + "/cache"
    if cold:
        shutil.rmtree(cache, ignore_errors=True)
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.time()
    args = [QUERN, "compile", path, "--threads", "1", "-q", "-o", folder + "/net.dnx"]
    subprocess.run(args, env=dict(os.environ, XDG_CACHE_HOME=cache), check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.time() - start, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def nodes():
    """The growth of the compile time with the number of nodes, as lines."""
    yield "quern compile, seconds: first (caches are empty) and again (all kernels are there); wall and processor time, and per node again"
    yield "  %-8s %7s  %8s %8s  %8s %8s  %9s" % ("", "nodes", "first", "cpu", "again", "cpu", "us/node")
    with tempfile.TemporaryDirectory() as folder:
        for make, sizes in ((wide, (100, 1000, 10000)), (deep, (100, 1000, 10000)), (dense, (100, 1000, 10000)), (concat, (50, 500))):
            for n in sizes:
                path = folder + "/net.txt"
                with open(path, "w") as f:
                    f.write("graph {\n  " + "\n  ".join(make(n)) + "\n}\n")
                first, again = compile_seconds(path, folder, True), compile_seconds(path, folder, False)
                yield "  %-8s %7d  %8.3f %8.3f  %8.3f %8.3f  %9.1f" % (make.__name__, n, *first, *again, again[1] / n * 1e6)
    yield ""
