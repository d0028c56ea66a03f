# SPDX-License-Identifier: Apache-2.0
#
# Time to the first result: from the start of a process that has nothing but a network's file to its first outputs. quern compiles
# its kernels on the way ("first": its caches are empty; "again": a process before it did the same). Peers are Python processes, and
# their time begins when the interpreter is ready, with the import of the library; torch.compile's networks are made in the process.
# Engines take turns; files are in the system's memory.
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time

import numpy as np
import stats
from rows import ROOT

QUERN = ROOT + "/build/quern"
ROUNDS = 5

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
import torch, torchvision
torch.set_num_threads(threads)
net = torch.compile(getattr(torchvision.models, name)(weights=None).eval())
with torch.no_grad(): net(torch.from_numpy(next(iter(x.values()))))
""",
}
FRAME = """
import sys, time, json, os
import numpy as np
path, inputs, threads, name = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4]
x = dict(np.load(inputs))
start = time.time()
%s
print(json.dumps(time.time() - start))
"""
TORCHVISION = {"resnet50": "resnet50", "mobilenetv2": "mobilenet_v2"}


def small_graph():
    """Ten small nodes."""
    lines = ["graph {", "  input %v0: f32[1,8,16,16]"]
    for k, op in enumerate(["Relu", "Sin", "Tanh", "Exp", "Neg", "Sigmoid", "Abs", "Sqrt", "Cos", "Floor"]):
        lines.append("  %%v%d: f32[1,8,16,16] = %s(%%v%d)" % (k + 1, op, k))
    return "\n".join([*lines, "  output %v10", "}", ""])


def bert(path):
    """Twelve layers as transformers export them; false without PyTorch."""
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


def networks(folder):
    """(name, file, inputs)"""
    picture = {"input": np.random.default_rng(0).standard_normal((1, 3, 224, 224), dtype=np.float32)}
    for name in ("resnet50", "mobilenetv2"):
        path = "%s/%s.onnx" % (folder, name)
        subprocess.run([QUERN, "zoo", name, "-o", path], check=True, stdout=subprocess.DEVNULL)
        yield name, path, picture
    path = folder + "/bert.onnx"
    if bert(path):
        yield "bert, 12 layers, 1x128", path, {"ids": np.ones((1, 128), np.int64), "mask": np.ones((1, 128), np.int64)}
    with open(folder + "/small.txt", "w") as f:
        f.write(small_graph())
    path = folder + "/small.onnx"
    subprocess.run([QUERN, "export", folder + "/small.txt", "--to", "onnx", "-o", path], check=True, stdout=subprocess.DEVNULL)
    yield "ten small nodes", path, {"v0": picture["input"][:, :1, :16, :16].repeat(8, 1)}


def quern(path, x, threads, folder, cold):
    cache = folder + "/cache"
    if cold:
        shutil.rmtree(cache, ignore_errors=True)
    args = [QUERN, "run", path, "--threads", str(threads), "-q", "-o", folder + "/y.npy"]
    for k, (name, v) in enumerate(x.items()):
        file = "%s/x%d.npy" % (folder, k)
        np.save(file, v)
        args += ["-i", file]
    start = time.time()
    subprocess.run(args, env=dict(os.environ, XDG_CACHE_HOME=cache), check=True, stdout=subprocess.DEVNULL)
    return time.time() - start


def peer(engine, name, path, x, threads, folder):
    inputs = folder + "/x.npz"
    np.savez(inputs, **x)
    args = [sys.executable, "-c", FRAME % PEERS[engine], path, inputs, str(threads), TORCHVISION.get(name, "")]
    p = subprocess.run(args, capture_output=True, text=True)
    return json.loads(p.stdout.strip().split("\n")[-1]) if p.returncode == 0 and p.stdout.strip() else None


def engines(name):
    yield "quern, first"
    yield "quern, again"
    for e in PEERS:
        if e != "torch.compile" or name in TORCHVISION:
            yield e


def once(engine, name, path, x, threads, folder):
    if engine.startswith("quern"):
        return quern(path, x, threads, folder, engine.endswith("first"))
    return peer(engine, name, path, x, threads, folder)


def table(threads, only):
    """Lines."""
    yield "start, %d thread%s: seconds from a network's file to its first outputs, medians of %d rounds" % (
        threads, "s" * (threads > 1), ROUNDS)
    with tempfile.TemporaryDirectory() as folder:
        for name, path, x in networks(folder):
            if only and only not in name:
                continue
            times = {e: [] for e in engines(name)}
            for _ in range(ROUNDS):
                for e, t in times.items():
                    s = once(e, name, path, x, threads, folder)
                    if s is not None:
                        t.append(s)
            yield name
            for e, t in times.items():
                if t:
                    yield "  %-14s %8.3f  %.3f to %.3f" % (e, stats.median(t), *stats.interval(t))
    yield ""
