#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
#
# kcg (python/compat), deepgen's Python names over quern. The quick start of that generator runs as printed (test/corpus/kcg: its classes, run.py,
# precompiled.json), as do collection, tuning and the tester's command line; matrix products and attentions of random sizes, strides, batches and types
# against PyTorch in float64, with gradients; calls run the registered kernel and nothing else; weights are random, the same in both models, and differ
# from layer to layer; files that are wrong; the models of examples/transformer. Needs torch; run by test/python_kcg.sh with each installed version.
import contextlib
import functools
import io
import json
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import unittest
import warnings
from unittest import mock

FOLDER = tempfile.TemporaryDirectory()
os.environ.update(KCG_HOME=FOLDER.name + "/kcg", QUERN_DATABASE=FOLDER.name + "/operators.db")

import torch

import kcg
import quern
from kcg import ModelUtils, SimpleLocalTester, _places, _products, _registry, _tuning
from kcg.ModelUtils import *
from kcg.TorchInjector import *

warnings.filterwarnings("ignore", category=UserWarning)
torch.set_num_threads(1)  # arrays are small

HERE = pathlib.Path(__file__).resolve().parent
SEED = HERE / "corpus" / "kcg"
NAME = json.loads((SEED / "precompiled.json").read_text())["kernels"][0]["kernelName"]
ATTENTION = ("kcg_AttentionOrigin_1_4_64_32_Br32Bc32Hd32_Sa8Sb8PTr4PTc4OTr4OTc4GLWQ4GLWK4GLWV4BLPY1BLPX1WLPY8WLPX8BSWQ2BSWK2WSWQ2WSWK2BLOY1BLOX1"
             "WLOY8WLOX8BSWP2BSWV2WSWP2WSWV2Un8W64LCP1LCO1SPP0RPP0RPO0SHP0SKP0")
TOLERANCE = {torch.float64: 1e-12, torch.float32: 1e-5, torch.float16: 3e-3, torch.bfloat16: 3e-2}


def start(*words, cwd=None, **environment):
    """A process: its exit code and its output. first: a folder that is searched for packages before others."""
    path = [environment.pop("first", ""), *(str(pathlib.Path(m.__file__).parent.parent) for m in (kcg, quern))]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path).lstrip(os.pathsep), **environment}
    p = subprocess.run([sys.executable, *map(str, words)], cwd=cwd, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                       timeout=600)
    return p.returncode, p.stdout


@functools.lru_cache(maxsize=None)
def has_opencl():
    """Found by another process: drivers do not survive the forks of this one."""
    return '"opencl"' in start("-c", "from kcg import _native; from quern._library import Context, lib; c = Context(); "
                               "print(c.take_text(lib.quern_devices, c.handle))")[1]


class Kcg(unittest.TestCase):
    def setUp(self):
        self.forget()
        self.addCleanup(self.forget)

    def forget(self):
        OpProxy.registry.clear()
        OpProxy.ResetOpCallCounts()
        _places.said.clear()
        DeviceInfo.release()

    def folder(self):
        d = tempfile.mkdtemp(dir=FOLDER.name)
        return pathlib.Path(d)

    def quietly(self, f, *args, **named):
        """The result of the call, and what it printed."""
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            y = f(*args, **named)
        return y, out.getvalue()


# --- the quick start ---


class QuickStart(Kcg):
    def script(self, *replaced):
        d = self.folder()
        for f in SEED.iterdir():
            shutil.copy(f, d)
        text = (d / "run.py").read_text()
        for old, new in replaced:
            self.assertIn(old, text)
            text = text.replace(old, new)
        (d / "run.py").write_text(text)
        return d

    def test_run(self):
        """Device 7, the path of another machine, one registered kernel: the layers of 1024 x 1024 are quern's, and the results are equal."""
        code, out = start("run.py", cwd=self.script(("max_seq_len = 1024", "max_seq_len = 128")))
        self.assertEqual(code, 0, out)
        self.assertIn("===== model test correct", out)
        self.assertIn("==== call ops : {'MatmulOp': 48}", out)  # 8 in each of six runs
        if not torch.cuda.is_available():
            self.assertEqual(out.count("there is no GPU 7: 'cpu' is used instead"), 1, out)
            self.assertEqual(out.count("is a kernel for GPUs: on the CPU, bM1024N1024K1024 is served by quern's own best kernel"), 1, out)
        self.assertEqual(out.count("there is no '/home/xushilong/DeepGen/precompiled.json'"), 1, out)

    def test_collect(self):
        """The line for shapes only, with the model small."""
        d = self.script(("max_seq_len = 1024", "max_seq_len = 20"), ("# compile_model(7, run_model(model_bench,args,input_ids))",
                                                                     "compile_model(7, run_model(model_bench,args,input_ids), True)"))
        code, out = start("run.py", cwd=d)
        self.assertEqual(code, 0, out)
        for args in ("[[2], 20, 1024, 1024]", "[[2, 16], 20, 20, 64]", "[[2, 16], 20, 64, 20]", "[[2], 20, 4096, 1024]", "[[2], 20, 1024, 4096]"):
            self.assertEqual(out.count(f"kcg: collected matmul {args} float32"), 1, out)
        self.assertIn("===== model test correct", out)

    def test_error_shows(self):
        """A wrong kernel is seen: the comparison means something."""
        d = self.script(("    def f_benchmark", "    model_bench.attention[0].wq.weight.data[3, 5] += 4\n    def f_benchmark"),
                        ("max_seq_len = 1024", "max_seq_len = 20"))
        code, out = start("run.py", cwd=d)
        self.assertIn("===== model test error ! diff, maxerr = (", out)
        self.assertEqual(code, 0, out)

    def test_tester(self):
        """The command line as printed, in a copy of the package, whose configuration gets smaller sizes: one kernel on OpenCL."""
        if not has_opencl():
            self.skipTest("no OpenCL device (Debian's pocl-opencl-icd)")
        d = self.folder()
        shutil.copytree(pathlib.Path(kcg.__file__).parent, d / "kcg")
        config = d / "kcg" / "TuningConfigs" / "GEMM_cfg_32.json"
        config.write_text(config.read_text().replace("[2048]", "[128]"))
        words = "SimpleLocalTester.py /home/DeepGen/TuningConfigs/GEMM_cfg_32.json ./result_matmul.json 0 1 0 1.5".split()
        code, out = start(*words, cwd=d / "kcg", first=str(d), QUERN_CLBLAST_LIBRARY="/none")  # which builds its kernels for a minute
        self.assertEqual(code, 0, out)
        self.assertIn("kcg: matmul of", out)
        rows = json.loads((d / "kcg" / "result_matmul.json").read_text())["testResult"]
        self.assertTrue(any(r["name"].startswith("kcg_MM_bM128N128K128isAT1W64_") for r in rows), rows)
        self.assertTrue((d / "kcg" / "result_matmul.db").exists())
        code, out = start(*words, cwd=d / "kcg", first=str(d), QUERN_CLBLAST_LIBRARY="/none")  # which builds its kernels for a minute
        self.assertEqual(code, 0, out)


# --- products ---


def operand(r, batch, rows, columns, dtype):
    """Random content in a layout that is dense, transposed, sliced, reversed in its axes or repeated along some."""
    shape = [*batch, rows, columns]
    order = list(range(len(shape)))
    kind = r.choice(["dense", "transposed", "permuted", "sliced", "repeated"])
    if kind == "transposed":
        order[-2:] = order[-1], order[-2]
    if kind == "permuted":
        r.shuffle(order)
    step = 2 if kind == "sliced" else 1
    x = torch.randn([shape[i] * step for i in order])
    x = x[tuple(slice(None, None, step) for _ in order)]
    x = x.permute([order.index(i) for i in range(len(order))])
    if kind == "repeated" and batch:
        i = r.randrange(len(batch))
        x = x.select(i, 0).unsqueeze(i).expand(shape)
    return x.to(dtype) if dtype != torch.float32 else x


def random_batches(r):
    """Of two operands: equal, or each with fewer axes or axes of size 1."""
    batch = [r.choice([1, 2, 3]) for _ in range(r.randint(0, 3))]
    parts = []
    for _ in range(2):
        own = batch[r.randint(0, len(batch)):] if r.random() < 0.4 else batch
        parts.append([1 if r.random() < 0.2 else n for n in own])
    return parts


class Products(Kcg):
    def compare(self, a, b, text):
        y = OpProxy.f_matmul(a, b)
        want = torch.matmul(a.double(), b.double())
        self.assertEqual((y.shape, y.dtype), (want.shape, a.dtype), text)
        error = (y.double() - want).abs().max().item() / (1 + want.abs().max().item())
        self.assertLess(error, TOLERANCE[a.dtype], text)
        return y

    def register(self, a, b):
        args = [list(_products.batch_of(a, b)), a.shape[-2], b.shape[-1], a.shape[-1]]
        OpProxy.registKernel(TuneResult(matmul.MatmulOp, args, 2.0, dtype=a.dtype))

    def test_random(self):
        for seed in range(int(os.environ.get("COUNT", 40))):
            r = random.Random(seed + 1000 * int(os.environ.get("SEED", 0)))
            torch.manual_seed(seed)
            (first, second), dtype = random_batches(r), r.choice(list(TOLERANCE))
            m, n, k = (r.choice([1, 2, 5, 17, 33]) for _ in range(3))
            a, b = operand(r, first, m, k, dtype), operand(r, second, k, n, dtype)
            self.register(a, b)
            with mock.patch.object(_products, "torch_matmul", side_effect=AssertionError("PyTorch's product was called")):
                self.compare(a, b, f"seed {seed}: {tuple(a.shape)} by {a.stride()}, {tuple(b.shape)} by {b.stride()} {dtype}")
        self.assertTrue(all(n["served"] == n["calls"] for n in OpProxy.GetOpCallCountsDetailed()["MatmulOp"].values()))

    def test_in_place(self):
        """Weights, transposed or not, transposed keys and repeated matrices are not copied."""
        k = torch.randn(2, 3, 9, 8)
        for a, b, trans in ((torch.randn(2, 5, 8), torch.randn(7, 8).t(), (False, True)), (torch.randn(2, 5, 8), CustomLinear(8, 7).weight.detach().t(),
                            (False, False)), (torch.randn(2, 3, 5, 8), k.transpose(2, 3), (False, True)), (k.transpose(2, 3), k, (True, False)),
                            (torch.randn(1, 5, 9).expand(2, 3, 5, 9), k, (False, False)),
                            (torch.randn(2, 3, 5, 9), k[:1, :1].expand(2, 3, 9, 8), (False, False))):
            p = _products.Product(a, b)
            self.assertEqual((p.trans_a, p.trans_b), trans)
            self.assertEqual((p.a.data_ptr(), p.b.data_ptr()), (a.data_ptr(), b.data_ptr()))
            self.register(a, b)
            self.compare(a, b, str(trans))

    def test_gradients(self):
        for a, b in (((2, 3, 5), (5, 4)), ((2, 1, 3, 5), (3, 5, 4)), ((3, 5), (2, 5, 4))):
            a, b = (torch.randn(s, dtype=torch.float64, requires_grad=True) for s in (a, b))
            self.register(a, b)
            torch.autograd.gradcheck(OpProxy.f_matmul, (a, b))
        w = CustomLinear(4, 3, f_mm=OpProxy.f_matmul)
        x = torch.randn(2, 6, 4)
        OpProxy.registKernel(TuneResult(matmul.MatmulOp, [[], 6, 3, 4], 2.0))
        got = torch.autograd.grad(w(x).pow(2).sum(), tuple(w.parameters()))
        want = torch.autograd.grad(torch.nn.functional.linear(x, w.weight, w.bias).pow(2).sum(), tuple(w.parameters()))
        for g, e in zip(got, want):
            torch.testing.assert_close(g, e, rtol=1e-4, atol=1e-5)

    def test_others(self):
        """Vectors, integers, nothing and wrong sizes are PyTorch's, its messages too."""
        for a, b in ((torch.randn(5), torch.randn(5)), (torch.randn(2, 5), torch.randn(5)), (torch.ones(2, 3).long(), torch.ones(3, 2).long()),
                     (torch.randn(0, 3), torch.randn(3, 2)), (torch.randn(2, 0), torch.randn(0, 2))):
            self.assertTrue(torch.equal(OpProxy.f_matmul(a, b), torch.matmul(a, b)))
        for a, b in ((torch.randn(2, 3), torch.randn(2, 3)), (torch.randn(2, 2, 3), torch.randn(5, 3, 3)),
                     (torch.randn(2, 3), torch.randn(3, 3).double())):
            with self.assertRaises(RuntimeError) as ours:
                OpProxy.f_matmul(a, b)
            with self.assertRaises(RuntimeError) as theirs:
                torch.matmul(a, b)
            self.assertEqual(str(ours.exception), str(theirs.exception))
        self.assertEqual(OpProxy.GetOpCallCounts(), {})

    def test_unsupported(self):
        """What the library refuses is left to PyTorch, once with the reason; other errors are not hidden."""
        a = torch.randn(3, 3)
        self.register(a, a)
        with mock.patch.object(_products.Product, "run", side_effect=quern.Error("not that", "UNSUPPORTED")):
            for _ in range(2):
                y, said = self.quietly(OpProxy.f_matmul, a, a)
                self.assertTrue(torch.equal(y, a @ a))
            self.assertEqual(said, "")
        with mock.patch.object(_products.Product, "run", side_effect=quern.Error("broken")), self.assertRaisesRegex(quern.Error, "broken"):
            OpProxy.f_matmul(a, a)

    def test_triton(self):
        """The baseline's kernel in Triton's interpreter: any strides, batches, remainders."""
        program = """
import torch
from kcg.triton_matmul import bmm, is_for_triton
for shapes in (((3, 5), (5, 7)), ((2, 70, 33), (33, 65)), ((2, 1, 3, 5), (3, 5, 4)), ((3, 5), (2, 5, 4)), ((65, 130), (130, 1))):
    a, b = (torch.randn(s) for s in shapes)
    for x, y in ((a, b), (a.transpose(-1, -2).contiguous().transpose(-1, -2), b.transpose(-1, -2).contiguous().transpose(-1, -2))):
        assert is_for_triton(x, y)
        torch.testing.assert_close(bmm(x, y), torch.matmul(x, y), rtol=1e-4, atol=1e-4)
print("equal")
"""
        if ModelUtils.triton_matmul.triton is None:
            self.skipTest("no Triton")
        code, out = start("-c", program, TRITON_INTERPRET="1")
        self.assertTrue(code == 0 and "equal" in out, out)

    def test_baseline(self):
        a, b = torch.randn(2, 3, 4), torch.randn(4, 5)
        self.assertTrue(torch.equal(triton_matmul.bmm(a, b), a @ b))


class Attentions(Kcg):
    def test_random(self):
        for seed in range(int(os.environ.get("COUNT", 12))):
            r = random.Random(seed)
            torch.manual_seed(seed)
            b, h, s, d = r.randint(1, 2), r.randint(1, 3), r.randint(1, 9), r.choice([4, 8])
            packed = r.random() < 0.5
            q, k, v = (torch.randn((b, s, h * d) if packed else (b, h, s, d), requires_grad=True) for _ in range(3))
            mask = r.choice([None, torch.rand(b, 1, s, s) < 0.7, torch.full((s, s), float("-inf")).triu(1), torch.randn(s, s)])
            if mask is not None and mask.dtype == torch.bool:
                mask = mask | torch.eye(s, dtype=torch.bool)
            args = (q, k, v, b, h, s, d, mask)
            base = OpProxy.f_attention(*args)
            OpProxy.registKernel(TuneResult(attention.AttentionOp, [[b, h, s, d]], 2.0))
            with mock.patch.object(_products, "torch_matmul", side_effect=AssertionError("PyTorch's product was called")):
                ours = OpProxy.f_attention(*args)
            OpProxy.registry.clear()
            self.assertEqual(ours.shape, q.shape)
            g = torch.randn_like(base)
            for x, y in zip((ours, *torch.autograd.grad(ours, (q, k, v), g)), (base, *torch.autograd.grad(base, (q, k, v), g))):
                torch.testing.assert_close(x, y, rtol=1e-4, atol=1e-5)
        self.assertEqual(set(OpProxy.GetOpCallCounts()), {"AttentionOp"})

    def test_injector(self):
        f, said = self.quietly(OpInjector("cpu").parseOp, ATTENTION, attention.AttentionOp)
        q, k, v = (torch.randn(1, 4, 64, 32) for _ in range(3))
        o = torch.empty(1, 4, 64, 32)
        self.quietly(f, q, k, v, o)
        torch.testing.assert_close(o, _products.Attention(q, k, v).formula(), rtol=1e-4, atol=1e-5)


# --- counts, kernels ---


class Registered(Kcg):
    def test_counts(self):
        a, w = torch.randn(2, 3, 4), torch.randn(5, 4)
        for _ in range(3):
            OpProxy.f_matmul(a, w.t())
        OpProxy.f_matmul(a.transpose(1, 2), a)
        self.assertEqual(OpProxy.GetCollectedKernelArgs(), [{"optype": "MatmulOp", "baseArgs": [[2], 3, 5, 4], "dtype": torch.float32},
                                                            {"optype": "MatmulOp", "baseArgs": [[2], 4, 4, 3], "dtype": torch.float32}])
        self.assertEqual(OpProxy.GetOpCallCounts()[matmul.MatmulOp.__name__], 4)
        self.assertEqual(OpProxy.GetOpCallCountsDetailed(), {"MatmulOp": {"[[2], 3, 5, 4] float32": {"calls": 3, "served": 0},
                                                                          "[[2], 4, 4, 3] float32": {"calls": 1, "served": 0}}})

    def test_which(self):
        """Weights serve any rows, products with batches any batch; other sizes, types and slower kernels do not."""
        registry = OpProxy.registry
        OpProxy.registKernel(TuneResult(matmul.MatmulOp, [[12], 8, 6, 4], 1.5, "first"))
        OpProxy.registKernel(TuneResult(matmul.MatmulOp, [[], 7, 6, 4], 0.9, "slower"))
        for args, dtype, is_matrix, found in (([[12], 8, 6, 4], torch.float32, False, True), ([[1, 12], 8, 6, 4], torch.float32, False, True),
                                              ([[2, 16], 8, 6, 4], torch.float32, False, True), ([[2], 9, 6, 4], torch.float32, True, True),
                                              ([[2], 9, 6, 4], torch.float32, False, False), ([[12], 8, 6, 4], torch.float16, False, False),
                                              ([[12], 8, 4, 6], torch.float32, True, False)):
            self.assertEqual(registry.find(matmul.MatmulOp, args, dtype, is_matrix) is not None, found, (args, dtype, is_matrix))
        OpProxy.registKernel(TuneResult(matmul.MatmulOp, [[3], 8, 6, 4], 1.5, "second"))
        self.assertEqual(registry.find(matmul.MatmulOp, [[3], 8, 6, 4], torch.float32).name, "second")
        self.assertEqual(registry.find(matmul.MatmulOp, [[5], 8, 6, 4], torch.float32).name, "first")
        self.assertEqual(len(registry.results()), 2)

    def test_names(self):
        for name, args in ((NAME, [[], 1024, 1024, 1024]), (NAME.replace("bM", "b2_16_M"), [[2, 16], 1024, 1024, 1024]),
                           ("b12_M8N6K4 gemm_f32_12x8x6_0123456789", [[12], 8, 6, 4]), ("bM8N6K4 x", [[], 8, 6, 4])):
            self.assertEqual(_registry.args_of(matmul.MatmulOp, name), args)
        self.assertEqual(_registry.args_of(attention.AttentionOp, ATTENTION), [[1, 4, 64, 32]])
        for wrong in ("", "kcg_MM_", "kcg_MM_bM1N1", "gemm"):
            with self.assertRaisesRegex(ValueError, "states no sizes"):
                _registry.args_of(matmul.MatmulOp, wrong)
        with self.assertRaisesRegex(quern.Error, "BM"):  # the library's message, which names the field
            registerPreCompiledKernel(matmul.MatmulOp, NAME.replace("BM32", "BM032"), 11, "cpu")

    def test_files(self):
        d = self.folder()
        (d / "list.json").write_text(json.dumps({"kernels": [{"type": "matmul", "kernelName": NAME, "pklpath": ""}, {"type": "conv", "kernelName": "?"},
                                                             {"type": "attention", "kernelName": ATTENTION}]}))
        results, said = self.quietly(registerPreCompiledKernelByJson, str(d / "list.json"), "cpu")
        self.assertEqual([r.bestKernelBaseArg for r in results], [[[], 1024, 1024, 1024], [[1, 4, 64, 32]]])
        self.assertIn("1 kernels of unknown types were left out", said)
        exportPreCompiledKernels(d / "again.json")
        self.assertEqual([e["kernelName"] for e in json.loads((d / "again.json").read_text())["kernels"]], [NAME, ATTENTION])
        for text in ("", "{}", "[]", '{"kernels": 3}', '{"kernels": [{}]}', '{"kernels": [{"type": "matmul", "kernelName": "b", "dtype": "float33"}]}'):
            (d / "wrong.json").write_text(text)
            with self.assertRaisesRegex(ValueError, "wrong.json' is no list of kernels"):
                registerPreCompiledKernelByJson(str(d / "wrong.json"), "cpu")
        with self.assertRaisesRegex(FileNotFoundError, "there is no '/nowhere/none.json'"):
            registerPreCompiledKernelByJson("/nowhere/none.json", "cpu")

    def test_measured(self):
        """On a device with workgroups a named kernel is built, verified and measured; one that no device can run is left out, with the reason."""
        if not has_opencl():
            self.skipTest("no OpenCL device (Debian's pocl-opencl-icd)")
        name = NAME.replace("1024", "64")
        with mock.patch.dict(os.environ, QUERN_CLBLAST_LIBRARY="/none"):
            for each in (name, name.replace("BM32", "BM48")):
                result = TuneResult(matmul.MatmulOp, _registry.args_of(matmul.MatmulOp, each), 11, each)
                is_measured, said = self.quietly(ModelUtils.measure_named, result, "opencl")
                self.assertEqual((is_measured, "is not measured on 'opencl'" in said), (each == name, each != name), said)

    def test_injector(self):
        d = self.folder()
        (d / "list.json").write_text(json.dumps({"kernels": [{"type": "matmul", "kernelName": NAME.replace("1024", "32")}]}))
        f, _ = self.quietly(OpInjector("cpu").parseOp, str(d / "list.json"), matmul.MatmulOp)
        a, b, c = torch.randn(32, 32), torch.randn(32, 32), torch.empty(32, 32)
        self.quietly(f, a, b, c)
        torch.testing.assert_close(c, a.t() @ b, rtol=1e-4, atol=1e-4)
        with self.assertRaisesRegex(ValueError, r"has shape \(31, 32\), expected \(32, 32\)"):
            f(a[1:], b)
        with self.assertRaisesRegex(ValueError, "has no kernel of type 'attention'"):
            OpInjector("cpu").parseOp(str(d / "list.json"), attention.AttentionOp)


# --- models ---


class Small(torch.nn.Module):
    """Linear layers of nn, torch.matmul, the operator @ and a tied weight."""

    def __init__(self):
        super().__init__()
        self.first, self.second = torch.nn.Linear(8, 6), torch.nn.Sequential(torch.nn.Linear(6, 6, bias=False), torch.nn.ReLU())
        self.tied = torch.nn.Linear(6, 8)
        self.tied.weight.data.copy_(self.first.weight.data.t())

    def forward(self, x):
        y = self.second(self.first(x))
        return self.tied(torch.matmul(y, y.transpose(-1, -2)) @ y)


class Models(Kcg):
    def test_weights(self):
        class Net(torch.nn.Module):
            def __init__(self, f_mm):
                super().__init__()
                self.table = create_fixed_embedding(10, 6)
                self.layers = torch.nn.ModuleList(CustomLinear(6, 6, f_mm=f_mm) for _ in range(3))

            def forward(self, ids):
                x = self.table(ids)
                for layer in self.layers:
                    x = torch.tanh(layer(x))
                return x

        base, ours = Net(torch.matmul), Net(OpProxy.f_matmul)
        for a, b in zip(base.parameters(), ours.parameters()):
            self.assertTrue(torch.equal(a, b))
            self.assertGreater(a.std().item(), 0.1)
        self.assertFalse(base.table.weight.requires_grad)
        self.assertFalse(torch.equal(base.layers[0].weight, base.layers[1].weight))
        self.assertTrue(torch.equal(CustomLinear(6, 5).weight, CustomLinear(6, 5).weight))
        self.assertEqual(list(base.state_dict()), list(ours.state_dict()))
        ids = torch.arange(10)[None]
        torch.testing.assert_close(base(ids), ours(ids))
        self.assertGreater(base(ids).std().item(), 0.1)
        self.assertIsNone(CustomLinear(3, 4, bias=False).bias)

    def test_replace(self):
        base, x = Small().eval(), torch.randn(2, 5, 8)
        want = base(x)
        for args in ([[2], 5, 6, 8], [[2], 5, 6, 6], [[2], 5, 5, 6], [[2], 5, 6, 5], [[2], 5, 8, 6]):
            OpProxy.registKernel(TuneResult(matmul.MatmulOp, args, 2.0))
        before = (torch.matmul, torch.Tensor.matmul, torch.Tensor.__matmul__, torch.Tensor.__rmatmul__)
        ours = get_op_optimized_model(base)
        torch.testing.assert_close(ours(x), want, rtol=1e-4, atol=1e-5)
        self.assertEqual(before, (torch.matmul, torch.Tensor.matmul, torch.Tensor.__matmul__, torch.Tensor.__rmatmul__))
        self.assertEqual({n: c["calls"] for n, c in OpProxy.GetOpCallCountsDetailed()["MatmulOp"].items()}, {
            "[[2], 5, 6, 8] float32": 1, "[[2], 5, 6, 6] float32": 1, "[[2], 5, 5, 6] float32": 1, "[[2], 5, 6, 5] float32": 1,
            "[[2], 5, 8, 6] float32": 1})
        self.assertTrue(all(c["served"] for c in OpProxy.GetOpCallCountsDetailed()["MatmulOp"].values()))
        self.assertIs(type(base.first), torch.nn.Linear)
        self.assertEqual([p.data_ptr() for p in base.parameters()], [p.data_ptr() for p in ours.parameters()])
        OpProxy.ResetOpCallCounts()
        torch.testing.assert_close(get_baseline_model(base, triton_matmul.bmm)(x), want)
        self.assertEqual(OpProxy.GetOpCallCounts(), {})
        self.assertIs(type(replace_LinearToCustomLlinear(Small()).second[0]), CustomLinear)
        self.assertIs(type(replace_LinearToCustomLlinear(torch.nn.Linear(2, 3))), CustomLinear)

    def test_replacer_restores(self):
        before = dict(vars(torch.Tensor)), torch.matmul
        with self.assertRaises(ZeroDivisionError), MatmulReplacer(lambda a, b: 1 / 0):
            torch.ones(2, 2) @ torch.ones(2, 2)
        self.assertEqual(before, (dict(vars(torch.Tensor)), torch.matmul))
        seen = []
        with MatmulReplacer(lambda a, b: seen.append((a.shape, b.shape))):
            torch.ones(2, 3).matmul(torch.ones(3, 4))
        self.assertEqual(seen, [((2, 3), (3, 4))])

    def test_compile(self):
        """Shapes are tuned, compared and remembered; files for the tester and the registered kernels are written."""
        model, x, d = get_op_optimized_model(Small().eval()), torch.randn(3, 4, 8), self.folder()
        with mock.patch.object(_tuning.products, "in_turn", return_value=(1e-3, 2e-3)):
            results, said = self.quietly(compile_model, "cpu", lambda: model(x), seconds=0.3, max_candidates=3, export=d / "out.json",
                                         configs=d / "configs")
        self.assertEqual(len(results), 5)
        self.assertTrue(all(r.bestSpeedup == 2 and r.time == 1 and "_f32_" in r.name for r in results), results)
        self.assertEqual(said.count("registered"), 5, said)
        self.assertTrue(os.path.exists(os.environ["QUERN_DATABASE"]))
        self.assertEqual(json.loads((d / "configs" / "mm_3._4_6_8.json").read_text())["BATCH_SIZE"], [3])
        entries = json.loads((d / "out.json").read_text())["kernels"]
        self.assertTrue(entries[0]["kernelName"].startswith("b3_M4N6K8 ") and entries[0]["speedup"] == 2, entries)
        OpProxy.ResetOpCallCounts()
        model(x)
        self.assertTrue(all(c["served"] for c in OpProxy.GetOpCallCountsDetailed()["MatmulOp"].values()))

        OpProxy.registry.clear()  # another process
        with mock.patch.object(_products.Call, "tune", side_effect=AssertionError("tuned again")):
            again, _ = self.quietly(compile_model, "cpu", lambda: model(x))
        self.assertEqual([r.name for r in again], [r.name for r in results])
        OpProxy.registry.clear()
        self.quietly(registerPreCompiledKernelByJson, str(d / "out.json"), "cpu")
        self.assertEqual(len(OpProxy.registry.results()), 5)

    def test_slower(self):
        """A kernel that is slower than PyTorch's is not registered, one that is wrong an error."""
        a, w = torch.randn(9, 10), torch.randn(11, 10)
        with mock.patch.object(_tuning.products, "in_turn", return_value=(2e-3, 1e-3)):
            results, said = self.quietly(compile_model, "cpu", lambda: OpProxy.f_matmul(a, w.t()), seconds=0.2, max_candidates=2)
        self.assertIn("left to PyTorch", said)
        self.assertEqual((results[0].bestSpeedup, OpProxy.registry.results()), (0.5, []))
        wrong = _products.Product.run
        with mock.patch.object(_products.Product, "run", lambda self: wrong(self) * 1.01), \
                self.assertRaisesRegex(RuntimeError, "differs from PyTorch's by 0.01"):
            self.quietly(compile_model, "cpu", lambda: OpProxy.f_matmul(a, w.t()), seconds=0.2, max_candidates=2, retune=True)

    def test_attention(self):
        q = torch.randn(1, 2, 16, 8)
        (result,), _ = self.quietly(compile_model, "cpu", lambda: OpProxy.f_attention(q, q, q, 1, 2, 16, 8), seconds=0.3, max_candidates=3)
        self.assertEqual((result.OpTy, result.bestKernelBaseArg), (attention.AttentionOp, [[1, 2, 16, 8]]))
        self.assertIn("attention_f32", result.name)

    def test_stopped(self):
        """Ctrl-C ends the tuning, and the rest is not tuned; the handler is what it was."""
        a = torch.randn(64, 64)
        self.addCleanup(signal.signal, signal.SIGINT, signal.signal(signal.SIGINT, signal.default_int_handler))  # ignored by some shells' jobs
        run = lambda: (OpProxy.f_matmul(a, a), OpProxy.f_matmul(a, a[:, :32]))
        timer = threading.Timer(1.0, lambda: os.kill(os.getpid(), signal.SIGINT))
        timer.start()
        results, said = self.quietly(compile_model, "cpu", run, seconds=60)
        timer.join()
        self.assertEqual(len(results), 1)
        self.assertIn("kcg: stopped; what was measured is kept", said)
        self.assertEqual(signal.getsignal(signal.SIGINT), signal.default_int_handler)

    def test_collect_only(self):
        a = torch.randn(4, 4)
        OpProxy.f_matmul(a, a)
        with mock.patch.object(_products.Call, "tune", side_effect=AssertionError("tuned")):
            got, said = self.quietly(compile_model, "cpu", OpProxy.f_matmul(a, a), True)  # has run already
        self.assertEqual(got, [{"optype": "MatmulOp", "baseArgs": [[], 4, 4, 4], "dtype": torch.float32}])
        self.assertEqual(said.count("collected"), 1)

    def test_results_damaged(self):
        path = pathlib.Path(PathManager.project_dir()) / "results.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        for text in ("{", "[]", '{"a": {"name": "x"}}', '{"a": 3}'):
            path.write_text(text)
            rows, said = self.quietly(lambda: _tuning.Results().rows)
            self.assertEqual(rows, {})
            _places.said.clear()
            self.assertIn("is not used", said)
        path.unlink()


class Tools(Kcg):
    def test_devices(self):
        if torch.cuda.device_count() > 7:
            self.skipTest("there is a GPU 7")
        place = torch.device("cuda", 0) if torch.cuda.is_available() else torch.device("cpu")
        _, said = self.quietly(DeviceInfo.init_cuda, [7])
        self.assertEqual(said.count("there is no GPU 7"), 1)
        x, m = torch.randn(2, 2), torch.nn.Linear(2, 2)
        for t in (x.to(7), x.to(7, torch.float64), x.to(device=7), next(m.to(7).parameters())):
            self.assertEqual(t.device, place)
        self.assertEqual(x.to(torch.float16).dtype, torch.float16)
        self.assertEqual(DeviceInfo.get_current_device(), 7)
        DeviceInfo.release()
        self.assertFalse(hasattr(torch.Tensor.to, "kcg_original"))

    def test_paths(self):
        PathManager.init()
        kept, gone = pathlib.Path(PathManager.project_dir()) / "results.json", pathlib.Path(PathManager.tmp_dir()) / "x"
        kept.write_text("{}")
        gone.write_text("")
        PathManager.init(clearPkl=True, clearCache=True, clearTmp=True, clearDump=True)
        self.assertTrue(kept.exists() and not gone.exists() and gone.parent.is_dir())
        kept.unlink()

    def test_comparison(self):
        a = torch.tensor([1.0, 2.0, float("nan"), float("inf")])
        self.assertEqual(compare_with_error(a, a), (0, 0.0))
        self.assertEqual(compare_with_error(a, torch.tensor([1.5, 2.0, float("nan"), float("inf")])), (1, 0.5))
        self.assertEqual(compare_with_error(a, torch.tensor([1.0, float("nan"), float("nan"), float("inf")])), (1, float("inf")))
        self.assertEqual(compare_with_error(torch.empty(0), torch.empty(0)), (0, 0.0))
        y, t = evaluate_model_time(lambda: torch.ones(3))
        self.assertTrue(y.sum() == 3 and t > 0)
        m = torch.nn.Linear(3, 3)
        release_model(m)
        self.assertEqual(m.weight.numel(), 0)

    def test_usage(self):
        d = self.folder()
        (d / "odd.json").write_text("{")
        for words, text in ((["a"], "1 arguments, expected 4, or 6 to 9"), (["a", "b", "x", "1"], "START is 'x'"),
                            (["a", "b", "0", "1", "2", "0"], "CHECKTFLOPS is '2'"),
                            (["a", "b", "0", "1", "0", "fast"], "SPEEDUP is 'fast'"), (["a", "b", "0", "1", "--seqlen"], "--seqlen needs a number"),
                            ([str(d / "odd.json"), "b", "0", "1"], "is no configuration")):
            err = io.StringIO()
            with contextlib.redirect_stderr(err):
                self.assertEqual(SimpleLocalTester.main(words), 2)
            self.assertIn(text, err.getvalue())
        with contextlib.redirect_stderr(io.StringIO()):
            self.assertEqual(SimpleLocalTester.main(["/none/none.json", "b", "0", "1"]), 1)

    def test_on_cpu(self):
        """Without a device with workgroups the search takes the place of the points."""
        d = self.folder()
        config = json.loads((pathlib.Path(kcg.__file__).parent / "TuningConfigs" / "GEMM_cfg_32.json").read_text())
        config.update(M_SIZE=[24], N_SIZE=[16], K_SIZE=[8])
        (d / "c.json").write_text(json.dumps(config))
        code, said = self.quietly(SimpleLocalTester.main, [str(d / "c.json"), str(d / "r.json"), "0", "2", "0", "0", "matmul", "cpu"])
        self.assertEqual(code, 0, said)
        self.assertIn("quern's search for the CPU takes the place of the file's points", said)
        self.assertTrue(json.loads((d / "r.json").read_text())["testResult"])

    def test_old_package(self):
        import torch_utils
        from quern.torch import WeightedFilter
        self.assertIs(torch_utils.WeightedFilter, WeightedFilter)


class Examples(Kcg):
    SIZES = {"bert_large": ["--ffn-dim", "96"], "gpt2": ["--ffn-dim", "96"], "llama2": ["--ffn-dim", "88"]}

    def run_example(self, name, *more):
        words = ["--dim", "48", "--n-layers", "2", "--n-heads", "4", "--vocab-size", "50", "--max-seq-len", "20", "--tokens", "20", "--device", "cpu",
                 "--threads", "1", "--rounds", "2"]
        return start(HERE.parent / "examples" / "transformer" / name / "run.py", *words, *self.SIZES[name], *more)

    def test_all(self):
        for name, calls in (("bert_large", 16), ("gpt2", 17), ("llama2", 19)):
            code, out = self.run_example(name, "--batch", "2")
            self.assertEqual(code, 0, out)
            self.assertIn("===== model test correct", out)
            counts = [int(line.split()[1]) for line in out.splitlines() if line.startswith("==== ")]
            self.assertEqual(sum(counts), 3 * calls, out)
            self.assertTrue(all(line.split()[1] == line.split()[-3] for line in out.splitlines() if line.startswith("==== ")), out)

    def test_files(self):
        d = self.folder()
        code, out = self.run_example("gpt2", "--collect", d / "configs")
        self.assertEqual(code, 0, out)
        self.assertEqual(sorted(os.listdir(d / "configs")), ["mm_1._20_48_48.json", "mm_1._20_48_96.json", "mm_1._20_50_48.json", "mm_1._20_96_48.json",
                                                             "mm_4._20_12_20.json", "mm_4._20_20_12.json"])
        code, out = self.run_example("gpt2", "--export", d / "list.json")
        self.assertEqual(code, 0, out)
        code, out = self.run_example("gpt2", "--kernels", d / "list.json")
        self.assertTrue(code == 0 and "17 calls" not in out and "by quern" in out, out)


if __name__ == "__main__":
    print(f"torch {torch.__version__}, {quern.library_path()}")
    unittest.main(verbosity=0)
