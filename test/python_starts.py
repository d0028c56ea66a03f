# SPDX-License-Identifier: Apache-2.0
#
# What torch.compile(backend="quern") remembers across processes. Each test runs programs in new processes with one cache, and counts the functions that
# PyTorch's compiler traced in them; all compare their results with PyTorch's.
import json
import os
import pickle
import subprocess
import sys
import tempfile
import unittest

from python_compiler import can_compile

import torch

import quern
from quern import _warm_start

MODEL = """
import torch
from torch import nn
import helper

class Base(nn.Module):
    def shift(self, x):
        return x + 1

class Model(Base):
    def __init__(self, act, n=16):
        super().__init__()
        self.a, self.b, self.act = nn.Linear(24, n), nn.Linear(n, 5), act
    def forward(self, x):
        return self.b(self.act(self.a(x))), self.shift(x).sum(), helper.scaled(x)

class Broken(Model):
    def forward(self, x):
        y = self.act(self.a(x))
        torch._dynamo.graph_break()
        return self.b(y), self.shift(x).sum(), helper.scaled(x)

class Counting(Model):
    def __init__(self, act, n=16):
        super().__init__(act, n)
        self.register_buffer("calls", torch.zeros(()))
    def forward(self, x):
        self.calls.add_(1)
        return self.b(self.act(self.a(x))) * self.calls, x

class Generated(Model):
    def forward(self, x):
        return helper.Pair(self.b(self.a(x)), x * 2).both()
"""
HELPER = """
import dataclasses
import torch
FACTOR = 2

@dataclasses.dataclass
class Pair:
    a: torch.Tensor
    b: torch.Tensor
    def both(self):
        return self.a, self.b

def scaled(x, by=3):
    return x * FACTOR * by
"""
BEGIN = """
import copy, json, sys
import torch, quern.torch
from torch._dynamo.utils import counters
from quern._dynamo import recording
import helper, model
F = torch.nn.functional
torch.manual_seed(int(sys.argv[1]))
OPTIONS = {"measure": False}
frames = []

def fast_of(net, backend="quern", **more):
    return torch.compile(net, backend=backend, **({"options": OPTIONS} if backend == "quern" else {}), **more)

def call(f, net, *x):
    "Compares; net is called with copies, as it may write to its buffers."
    other = copy.deepcopy(net)
    for y, want in zip(f(*x), other(*x)):
        assert (y - want).abs().max() <= 1e-4 * max(want.abs().max(), 1), (y, want)
    frames.append(counters["stats"].get("unique_graphs", 0))

with torch.no_grad(), recording() as graphs:
"""
END = """
print(json.dumps({"frames": frames, "pieces": sum(p.bound is not None for g in graphs for p in g.pieces)}))
"""
USUAL = """
net = model.Model(F.relu).eval()
fast = fast_of(net)
for n in (7, 7, 9, 11):
    call(fast, net, torch.randn(n, 24))
"""


@unittest.skipUnless(can_compile and _warm_start.package_class(), "this PyTorch cannot give away what it compiled")
class Starts(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.write("model", MODEL)
        self.write("helper", HELPER)

    def at(self, *parts):
        return os.path.join(self.folder.name, *parts)

    def write(self, module, text):
        with open(self.at(module + ".py"), "w", encoding="utf-8") as f:
            f.write(text)

    def run_one(self, body, seed=1, **env):
        """A program in a new process: its numbers of traced functions so far, after each call."""
        self.write("main", BEGIN + "\n".join("    " + line for line in body.splitlines()) + END)
        env = {**os.environ, "XDG_CACHE_HOME": self.at("cache"), "XDG_CONFIG_HOME": self.at("config"), "PYTHONDONTWRITEBYTECODE": "1", "PYTHONFAULTHANDLER": "1", **env}
        env["PYTHONPATH"] = os.pathsep.join(p for p in [os.environ.get("PYTHONPATH"), os.path.dirname(os.path.dirname(quern.__file__))] if p)
        p = subprocess.run([sys.executable, self.at("main.py"), str(seed)], env=env, capture_output=True, text=True)
        self.assertEqual(p.returncode, 0, p.stderr)
        self.assertEqual([line for line in p.stderr.splitlines() if not line.startswith("other processes used")], [])  # the tuner's
        self.result = json.loads(p.stdout.splitlines()[-1])
        return self.result["frames"]

    def test_weights(self):
        """Other weights are used; nothing is traced."""
        self.assertEqual(self.run_one(USUAL), [1, 1, 2, 2])
        self.assertEqual(self.run_one(USUAL), [0, 0, 0, 0])
        self.assertEqual(self.result["pieces"], 2)
        self.assertEqual(self.run_one(USUAL, seed=2), [0, 0, 0, 0])

    def test_source(self):
        """A changed method, helper, constant, default or override is seen."""
        self.run_one(USUAL)
        changes = [("model", MODEL, "x + 1", "x + 2"), ("helper", HELPER, "return x *", "return 1 - x *"), ("helper", HELPER, "FACTOR = 2", "FACTOR = 5"),
                   ("helper", HELPER, "by=3", "by=4"), ("model", MODEL, "class Model(Base):", "class Model(Base):\n    def shift(self, x):\n        return x - 1")]
        for module, text, old, new in changes:
            with self.subTest(new):
                self.assertIn(old, text)
                self.write(module, text.replace(old, new))
                self.assertGreater(self.run_one(USUAL)[0], 0)
                self.assertEqual(self.run_one(USUAL)[0], 0)
                self.write(module, text)
                self.assertEqual(self.run_one(USUAL)[0] > 0, module == "helper")  # of which there is one version in the cache

    def test_added(self):
        """What an earlier process traced is checked also if a later one added to it."""
        plain = "\nclass Plain:\n    def act(self, x):\n        return x * 2\n"
        self.write("helper", HELPER + plain)
        self.write("model", MODEL + """
class Either(Model):
    def forward(self, x, is_plain):
        return (self.act.act(self.a(x)) if is_plain else self.a(x)), x
""")
        calls = ["net = model.Either(helper.Plain()).eval()\nfast = fast_of(net)", "call(fast, net, torch.randn(7, 24), True)",
                 "call(fast, net, torch.randn(7, 24), False)"]
        self.assertEqual(self.run_one("\n".join(calls[:2])), [1])
        self.assertEqual(self.run_one("\n".join(calls)), [0, 1])
        self.write("helper", HELPER + plain.replace("x * 2", "x * 3"))
        self.assertGreater(self.run_one("\n".join(calls))[0], 0)

    def test_patched(self):
        """Methods and functions that are replaced at run time, before the first call or later."""
        self.run_one(USUAL)
        self.assertGreater(self.run_one("helper.scaled = lambda x: x - 7" + USUAL)[0], 0)
        self.assertGreater(self.run_one("model.Base.shift = lambda self, x: x - 7" + USUAL)[0], 0)
        later = USUAL + """
net.act = F.tanh
call(fast, net, torch.randn(7, 24))
net.act = F.relu
call(fast, net, torch.randn(7, 24))
helper.scaled = lambda x: x - 7
call(fast, net, torch.randn(7, 24))
"""
        self.assertEqual(self.run_one(later), [0, 0, 0, 0, 1, 1, 2])

    def test_hooks(self):
        hooked = USUAL.replace("fast =", "net.a.register_forward_hook(lambda m, x, y: y * 2)\nfast =")
        self.run_one(USUAL)
        self.assertGreater(self.run_one(hooked)[0], 0)

    def test_several(self):
        """Models of one class, other back ends and options, in one process."""
        several = """
nets = [model.Model(F.relu).eval() for _ in range(3)]
fast = [fast_of(net) for net in nets]
for _ in range(2):
    for f, net in zip(fast, nets):
        call(f, net, torch.randn(7, 24))
OPTIONS = {**OPTIONS, "deterministic": True}
call(fast_of(nets[0]), nets[0], torch.randn(7, 24))
call(fast_of(nets[0], "eager"), nets[0], torch.randn(7, 24))
del fast, nets[1:]
import gc; gc.collect()
OPTIONS.pop("deterministic")
call(fast_of(nets[0]), nets[0], torch.randn(7, 24))
"""
        self.assertEqual(self.run_one(several)[:7], [1] * 6 + [2])
        again = self.run_one(several)
        self.assertEqual(again, [0] * 7 + [1, 1])

    def test_breaks(self):
        """Functions in two parts, and the functions that dataclasses makes."""
        for name in ("Broken", "Generated"):
            with self.subTest(name):
                body = USUAL.replace("model.Model", f"model.{name}")
                self.assertGreater(self.run_one(body)[0], 0)
                self.assertEqual(self.run_one(body), [0] * 4)

    def test_modes(self):
        """Gradients, training and other settings are not those that were remembered."""
        self.run_one(USUAL)
        body = USUAL + """
with torch.enable_grad():
    x = torch.randn(7, 24, requires_grad=True)
    fast(x)[0].sum().backward()
    assert x.grad is not None
with torch.inference_mode():
    call(fast, net, torch.randn(7, 24))
torch.set_default_dtype(torch.float64)
call(fast, net, torch.randn(7, 24, dtype=torch.float32))
"""
        frames = self.run_one(body)
        self.assertEqual(frames[:4], [0] * 4)
        self.assertGreater(frames[-1], frames[4])

    def test_dynamic(self):
        body = USUAL.replace("fast_of(net)", "fast_of(net, dynamic=True, fullgraph=True)")
        self.assertEqual(self.run_one(body), [1] * 4)
        self.assertEqual(self.run_one(body), [0] * 4)
        self.assertEqual(self.result["pieces"], 1)

    def test_function(self):
        """A function that is decorated, and modules' compile()."""
        body = """
net = model.Model(F.relu).eval()
@torch.compile(backend="quern", options=OPTIONS)
def f(x):
    return net.a(x) * 2, x
call(f, lambda x: (net.a(x) * 2, x), torch.randn(3, 24))
other = model.Model(F.silu).eval()
want = other(torch.ones(2, 24))
other.compile(backend="quern", options=OPTIONS)
call(lambda x: other(x), lambda x: want, torch.ones(2, 24))
"""
        self.run_one(body)
        self.run_one(body)

    def test_copies(self):
        """A copy of a compiled model traces by itself, once."""
        body = USUAL + """
fast = copy.deepcopy(fast)
for _ in range(3):
    call(fast, net, torch.randn(7, 24))
"""
        self.run_one(body)
        frames = self.run_one(body)
        self.assertEqual((frames[:4], frames[5:]), ([0] * 4, [frames[4]] * 2))

    def test_not_kept(self):
        """What cannot be kept is compiled in each process, without a word."""
        counting = USUAL.replace("model.Model", "model.Counting")
        local = USUAL.replace("net = model.Model", "def local():\n    class Model(model.Model): pass\n    return Model\nnet = local()")
        for body in (counting, local):
            for _ in range(2):
                self.assertGreater(self.run_one(body)[0], 0)

    def test_tuned(self):
        body = """
from quern import _model
usual, tuned = _model.tune, []
_model.tune = lambda *a: tuned.append(1) or usual(*a)
OPTIONS = {"mode": "tune", "timeout": 1, "measure": False}
net = model.Model(F.relu).eval()
call(fast_of(net), net, torch.randn(7, 24))
frames.append(len(tuned))
"""
        self.assertEqual(self.run_one(body), [1, 1])
        self.assertEqual(self.run_one(body), [0, 0])

    def test_imports(self):
        body = USUAL + """
bad = [m for m in ("onnx", "onnxscript", "onnx_ir", "functorch.compile", "networkx") if m in sys.modules]
frames.append(bad)
"""
        self.run_one(USUAL)
        self.assertEqual(self.run_one(body)[-1], [])

    def test_planted(self):
        """Damaged and foreign files are neither used nor executed, and replaced."""
        self.run_one(USUAL)
        notes = self.at("cache", "quern", "notes")
        mark = self.at("mark")

        class Evil:
            def __reduce__(self):
                return open, (mark, "w")
        for content in (b"", pickle.dumps(Evil()), None):
            for name in os.listdir(notes):
                path = os.path.join(notes, name)
                with open(path, "rb") as f:
                    whole = f.read()
                with open(path, "wb") as f:
                    f.write(whole[:-1] + bytes([whole[-1] ^ 1]) if content is None else content)
            self.assertEqual(self.run_one(USUAL), [1, 1, 2, 2])
            self.assertFalse(os.path.exists(mark))
        self.assertEqual(self.run_one(USUAL), [0, 0, 0, 0])

    def test_off(self):
        body = USUAL.replace("fast =", 'OPTIONS["remember"] = False\nfast =')
        for _ in range(2):
            self.assertEqual(self.run_one(body), [1, 1, 2, 2])


if __name__ == "__main__":
    print(f"PyTorch {torch.__version__}, quern {quern.version()}")
    unittest.main(verbosity=1)
