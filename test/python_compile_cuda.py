#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
#
# torch.compile(backend="quern") for models on a CUDA device, a real one or a simulated one (python_gpu.py): results and gradients beside PyTorch's, what stays
# in PyTorch; on the simulated one also which memory, stream and device programs get. Needs torch; run by test/python_compile_cuda.sh, and on a machine with a
# GPU by tool/device-check torch.
import copy
import json
import os
import tempfile
import unittest
from unittest import mock

from python_compiler import ALWAYS, Net, can_compile, mistranslated

import python_cuda

import torch
from torch import nn

import quern
import quern.torch
from quern import _tuning_process, _compare, _device

IS_REAL = torch.cuda.is_available()
can_simulate = can_compile and python_cuda.is_there and not IS_REAL
if can_simulate or can_compile and IS_REAL:
    from python_gpu import RealTorch, SimulatedTorch
else:
    RealTorch = SimulatedTorch = unittest.TestCase

torch.set_num_threads(1)


def conv_net():
    net = nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 5))
    with torch.no_grad():
        net[1].running_mean.normal_()
        net[1].running_var.uniform_(0.5, 2)
    return net.eval()


class Compared(SimulatedTorch if can_simulate else RealTorch):
    """Compiled models beside the CPU's."""

    def setUp(self):
        super().setUp()
        torch.manual_seed(1)
        torch._dynamo.reset()
        self.device = torch.device("cuda", self.index)
        trouble = _device.look(self.device).trouble
        if trouble and not IS_REAL:
            self.skipTest(trouble)
        self.assertIsNone(trouble)

    def near(self, got, want, tolerance=1e-4):
        got, want = ([y] if isinstance(y, torch.Tensor) else list(y) for y in (got, want))
        self.assertEqual(len(got), len(want))
        for a, b in zip(got, want):
            torch.testing.assert_close(self.host(a), self.host(b), rtol=tolerance, atol=tolerance)

    def compare(self, net, *calls, pieces=1, options=ALWAYS, dynamic=None, tolerance=1e-4):
        """Moves a model and its inputs to the device, but for inputs in a tuple of one; compiles, and compares each call with the CPU's. pieces: number of
        those for the device that the library must run, None: any. Returns the graphs, the compiled model, and the one that it is made of."""
        from quern._dynamo import recording
        usual, net = copy.deepcopy(net), self.put(net)
        with torch.no_grad(), recording() as graphs:
            fast = torch.compile(net, backend=self.backend(options=options), dynamic=dynamic)
            for x in calls:
                want = usual(*[a[0] if isinstance(a, tuple) else a for a in copy.deepcopy(x)])
                got = fast(*[a[0] if isinstance(a, tuple) else self.put(a) for a in x])
                self.near(got, want, tolerance)
                for y in got if isinstance(got, tuple) else [got]:
                    self.assertEqual(y.device, self.device)
        run = [p for g in graphs for p in g.pieces if p.bound and p.is_on_gpu]
        if pieces is not None:
            self.assertEqual(len(run), pieces, [p.reason for g in graphs for p in g.pieces] + [g.left for g in graphs])
        return graphs, fast, net


@unittest.skipUnless(can_compile, "torch.compile needs PyTorch 2.6 or later, onnx and onnxscript")
@unittest.skipUnless(IS_REAL or python_cuda.is_there, "no CUDA device, and no library that looks like CUDA's (test/python.sh names it)")
class Cuda(Compared):
    def test_net(self):
        self.compare(conv_net(), [torch.randn(2, 3, 16, 16)])

    def test_types(self):
        for t in (torch.float16, torch.bfloat16, torch.float64):
            with self.subTest(t):
                torch._dynamo.reset()
                self.compare(nn.Sequential(nn.Linear(8, 8), nn.Tanh()).to(t), [torch.randn(3, 8, dtype=t)], tolerance=0.05 if t.itemsize == 2 else 1e-9)

    def test_changed_weights(self):
        """They are constants of the program, from copies on the host that are gone; a change of PyTorch's own is seen."""
        usual, x = nn.Sequential(nn.Linear(6, 8), nn.Tanh()), torch.randn(3, 6)
        _, fast, net = self.compare(copy.deepcopy(usual), [x])
        with torch.no_grad():
            for _ in range(2):
                net[0].weight.mul_(1.5)
                usual[0].weight.mul_(1.5)
                self.near(fast(self.put(x)), usual(x))

    def test_dynamic(self):
        """Sizes are symbols: one program for all, of which some are values, too."""
        net = Net(lambda net, x: (net.a(x) * x.shape[0], net.a(x).reshape(-1)[: x.shape[0] * 4]), a=nn.Linear(6, 8))
        graphs, _, _ = self.compare(net, *([torch.randn(n, 6)] for n in (7, 2, 12)), dynamic=True)
        self.assertEqual(len(graphs), 1)

    def test_sizes_alone(self):
        """A piece that gets a size and no tensor with it."""
        def f(net, x):
            y = torch.linalg.svdvals(x.reshape(-1, 2, 3))  # not in the exporter
            return (torch.arange(x.shape[0], device=x.device) * 2 + x.shape[0]).float().tanh(), y
        self.compare(Net(f), *([torch.randn(n, 6)] for n in (7, 3)), dynamic=True)

    def test_strides(self):
        """Any strides and addresses; results have PyTorch's strides."""
        net, x = self.put(nn.Sequential(nn.Conv2d(4, 4, 3), nn.Tanh()).eval()), torch.randn(2, 4, 9, 9)
        some = [self.put(x), self.put(x.to(memory_format=torch.channels_last)), self.put(x.transpose(2, 3)), self.put(x, offset=1)]
        for y in some:
            torch._dynamo.reset()
            with torch.no_grad():
                z = torch.compile(net, backend=self.backend(options=ALWAYS))(y)
                with self.operators:
                    want = net(y)
            self.near(z, want, 1e-2 if IS_REAL else 1e-4)
            self.assertEqual(z.stride(), want.stride())

    def test_numbers(self):
        """Tensors without axes may be the CPU's."""
        net = Net(lambda net, x, k: net.a(x) * net.b.scale + k + torch.tensor(0.5), a=nn.Linear(6, 6), b=nn.Module())
        net.b.stays = True
        net.b.register_buffer("scale", torch.tensor(3.0))
        self.compare(net, [torch.randn(2, 6), (torch.tensor(2.0),)], [torch.randn(2, 6), (torch.tensor(4.0),)])

    def test_moved(self):
        """What moves tensors between devices stays in PyTorch, and each device has its pieces."""
        def f(net, x):
            y = net.a(x).relu()
            z = net.b(y.cpu()).tanh() * 2
            return net.c(z.to(x.device) + y), y.exp()
        net = Net(f, a=nn.Linear(6, 6), b=nn.Linear(6, 6), c=nn.Linear(6, 6))
        net.b.stays = True
        graphs, _, _ = self.compare(net, [torch.randn(2, 6)], pieces=2)
        self.assertEqual([p.device.type for p in graphs[0].pieces if p.bound], ["cuda", "cpu", "cuda"])
        why = [why for name, why in graphs[0].left.items() if "copy" in name]
        self.assertEqual(why, ["tensors on devices 'cpu' and 'cuda:0'"] * 2)

    def test_mixed(self):
        """Operands of two devices: PyTorch takes indices of the CPU."""
        net = Net(lambda net, x, k: net.a(x)[k].exp(), a=nn.Linear(6, 6))
        graphs, _, _ = self.compare(net, [torch.randn(5, 6), (torch.tensor([3, 1]),)], pieces=None)
        self.assertIn("tensors on devices 'cpu' and 'cuda:0'", graphs[0].left.values())

    def test_other_devices(self):
        from quern._dynamo import recording
        with recording() as graphs, torch.no_grad():
            torch.compile(nn.Linear(6, 6, device="meta"), backend=self.backend(options=ALWAYS))(torch.randn(2, 6, device="meta"))
        self.assertEqual(graphs, ["tensors on device 'meta'"])

    def test_sizes_from_data(self):
        """They would make the host wait."""
        with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
            graphs, _, _ = self.compare(Net(lambda net, x: net.a(x)[x > 0] * 2, a=nn.Linear(6, 6)), [torch.randn(5, 6)], pieces=None)
        self.assertTrue(any("data decide the size" in why for why in graphs[0].left.values()), graphs[0].left)

    def test_random(self):
        """Numbers are PyTorch's, also if the graph is measured."""
        net = self.put(Net(lambda net, x: net.a(x + torch.rand_like(x)).tanh() @ x.t(), a=nn.Linear(16, 16)))
        x = self.put(torch.randn(8, 16))
        with torch.no_grad(), mock.patch.object(_compare, "FASTER", float("inf")):
            fast, got = torch.compile(net, backend=self.backend()), []
            for f in (fast, net, fast):
                torch.manual_seed(3)
                with self.operators:
                    got.append(f(x))
        self.near(got[0], got[1])
        self.near(got[2], got[1])

    def test_measured(self):
        """The choice is kept for the device, with its name and driver."""
        from quern._cache import cache
        keys = []
        with mock.patch.object(cache, "put", lambda key, data: keys.append(key)):
            graphs, _, _ = self.compare(nn.Sequential(nn.Linear(64, 64), nn.Tanh()), [torch.randn(32, 64)], pieces=None, options=None)
        self.assertIsNotNone(graphs[0].pieces[0].seconds)
        (verdict,) = (k for k in keys if k.startswith("verdict"))
        self.assertRegex(verdict, "(cuda|hip) .*, (sm_|gfx).*, driver [0-9]+")

    def test_wrong_operator(self):
        """Of a piece with wrong results one operator stays."""
        with mistranslated():
            graphs, _, _ = self.compare(Net(lambda net, x: net.a(x).exp().tanh() + 1, a=nn.Linear(7, 9)), [torch.randn(4, 7)], pieces=2)
        self.assertEqual(list(graphs[0].left.values()), [_compare.DIFFERS])

    def test_training(self):
        """Forward and backward graph."""
        from quern._dynamo import recording
        backend = self.backend(options=ALWAYS, is_traced_on_cpu=True)
        for net, x in ((nn.Sequential(nn.Linear(6, 9), nn.GELU(), nn.LayerNorm(9), nn.Linear(9, 3)), torch.randn(4, 6)),
                       (nn.Sequential(nn.Conv2d(2, 4, 3, 2, 1), nn.BatchNorm2d(4), nn.SiLU(), nn.Flatten(), nn.Linear(64, 3)), torch.randn(2, 2, 8, 8))):
            torch._dynamo.reset()
            net = net.double()
            usual = copy.deepcopy(net)
            with recording() as graphs:
                fast = torch.compile(self.put(net), backend=backend)
                for _ in range(2):
                    y, want = fast(self.put(x.double())), usual(x.double())
                    self.near(y, want, 1e-9)
                    with self.operators:
                        y.square().sum().backward()
                    want.square().sum().backward()
            self.near([p.grad for p in net.parameters()], [p.grad for p in usual.parameters()], 1e-9)
            self.near(list(net.buffers()), list(usual.buffers()), 1e-7)
            self.assertEqual([g.kind for g in graphs], ["forward", "backward"])
            for g in graphs:
                self.assertTrue(any(p.bound and p.is_on_gpu for p in g.pieces), (g.left, [p.reason for p in g.pieces]))

    def test_capture(self):
        """What is recorded for a CUDA graph."""
        _, fast, net = self.compare(nn.Sequential(nn.Linear(6, 8), nn.Tanh()), [torch.randn(3, 6)])
        x = self.put(torch.randn(3, 6))
        with torch.no_grad():
            y = self.capture(fast, x)
            with self.operators:
                self.near(y, net(x))

    def test_streams(self):
        """A call is in the order of the caller's stream."""
        if not IS_REAL:
            self.skipTest("the simulated driver checks the order of every launch by itself")
        _, fast, net = self.compare(nn.Sequential(nn.Linear(64, 64), nn.Tanh()), [torch.randn(500, 64)])
        x = self.put(torch.randn(500, 64))
        with torch.no_grad():
            want = net(x * 2) + 1
            torch.cuda.synchronize()
            for stream in [torch.cuda.Stream() for _ in range(4)]:
                with torch.cuda.stream(stream):
                    for _ in range(10):
                        torch.randn(2000, 2000, device=self.device) @ torch.randn(2000, 2000, device=self.device)
                    y = fast(x * 2) + 1
                stream.synchronize()
                self.near(y, want)

    def test_options(self):
        with self.assertRaisesRegex(Exception, "option isa is 'x86-64-v3', an instruction set of processors, but the model's tensors are on device 'cuda:0'"):
            self.compare(nn.Linear(6, 6), [torch.randn(2, 6)], options={"isa": "x86-64-v3"})
        for options, tolerance in (({"deterministic": True}, 1e-4), ({"weights": "int8"}, 0.1), ({"weights": "in place"}, 1e-4)):
            torch._dynamo.reset()
            self.compare(nn.Sequential(nn.Linear(256, 64), nn.Tanh()), [torch.randn(2, 256)], options={**ALWAYS, **options}, tolerance=tolerance)

    def test_explain(self):
        from quern import _explain
        from quern._dynamo import recording
        net, x = self.put(conv_net(), torch.randn(2, 3, 16, 16))
        with torch.no_grad(), recording() as graphs:
            torch.compile(net, backend=self.backend(options=ALWAYS))(x)
        self.assertRegex(str(_explain.Explanation(graphs)), "^1 graph, 1 piece\n")


@unittest.skipUnless(can_simulate, "needs the simulated CUDA device")
class Driver(Compared):
    """What the library and PyTorch are asked for."""

    def setUp(self):
        super().setUp()
        for log in (self.twins.log, self.twins.targets, self.waits):
            log.clear()

    def test_call(self):
        """In place, in the caller's stream, without waiting; by a program for the device without threads."""
        graphs, fast, _ = self.compare(conv_net(), [torch.randn(2, 3, 16, 16)], options={**ALWAYS, "threads": 3})
        self.assertEqual(self.twins.targets, [(b"cuda:0", 0)])
        self.twins.log.clear()
        self.waits.clear()
        x = self.put(torch.randn(2, 3, 16, 16))
        with torch.no_grad():
            y = fast(x)
        ((_, inputs, outputs, stream),) = self.twins.log
        self.assertEqual((inputs, outputs, stream, self.waits), ([x.data_ptr()], [y.data_ptr()], self.stream.value, []))
        self.assertTrue(self.cuda.fake_was_given(x.data_ptr()))
        self.assertTrue(self.cuda.fake_is_outer())

    def test_copies(self):
        """Programs get dense tensors, in any order of axes, at multiples of 16 bytes: others are copied."""
        net, x = self.put(nn.Sequential(nn.Linear(6, 8), nn.Tanh())), torch.randn(8, 6)
        in_place = [self.put(x), self.put(x.t().contiguous().t()), self.put(x)[4:]]
        for y in [*in_place, self.put(torch.randn(8, 12))[:, ::2], self.put(x, offset=1), self.put(x)[1:]]:
            torch._dynamo.reset()
            with torch.no_grad():
                torch.compile(net, backend=self.backend(options=ALWAYS))(y)
            (at,) = self.twins.log[-1][1]
            self.assertEqual((at % 16, at == y.data_ptr()), (0, any(y is t for t in in_place)))

    def test_weights_in_place(self):
        _, _, net = self.compare(nn.Sequential(nn.Linear(6, 8), nn.Tanh()), [torch.randn(3, 6)], options={**ALWAYS, "weights": "in place"})
        self.assertIn(net[0].weight.data_ptr(), self.twins.log[-1][1])

    def test_second(self):
        self.doCleanups()
        self.index = 1
        self.setUp()
        self.compare(conv_net(), [torch.randn(2, 3, 16, 16)])
        self.assertEqual(self.twins.targets, [(b"cuda:1", 0)])

    def test_capture(self):
        """Nothing is enqueued while calls are recorded."""
        _, fast, _ = self.compare(nn.Sequential(nn.Linear(6, 8), nn.Tanh()), [torch.randn(3, 6)])
        self.twins.log.clear()
        with torch.no_grad():
            self.capture(fast, self.put(torch.randn(3, 6)))
        self.assertEqual(self.twins.log, [])

    def test_waiting(self):
        """Times are taken when the device has done its work; the device's random numbers are restored."""
        net = Net(lambda net, x: net.a(x + torch.rand_like(x)).tanh() @ x.t(), a=nn.Linear(16, 16))
        with torch.no_grad(), mock.patch.object(_compare, "FASTER", float("inf")):
            torch.compile(self.put(net), backend=self.backend())(self.put(torch.randn(8, 16)))
        self.assertIn(("rng", 0), self.waits)
        self.assertGreaterEqual(self.waits.count(self.device), 12)  # for a piece, and for the graph

    def test_rounding(self):
        """Results in f32 may differ by what PyTorch rounds operands to on a GPU, unless it may not."""
        want = self.put(torch.ones(4))
        for allowed, is_close in ((True, True), (False, False)):
            with mock.patch.object(_compare, "has_tf32", lambda allowed=allowed: allowed):
                self.assertEqual((_compare.close([want * 1.01], [want]), _compare.close([self.host(want) * 1.01], [self.host(want)])), (is_close, False))

    def test_foreign_memory(self):
        """A call whose memory the driver does not know runs in PyTorch."""
        _, fast, net = self.compare(nn.Sequential(nn.Linear(6, 8), nn.Tanh()), [torch.randn(3, 6)])
        outside = torch.empty(4096)[:18].view(3, 6).normal_()
        self.memory_of_torch.add(outside.data_ptr(), 72)
        with torch.no_grad(), self.assertLogs("quern", "WARNING") as said:
            for _ in range(2):
                y = fast(outside)
                with self.operators:
                    self.near(y, net(outside))
        self.assertEqual(len(said.output), 1)
        self.assertRegex(said.output[0], "a call of piece_1_0 runs in PyTorch: .*memory that CUDA knows")

    def test_tuning(self):
        """By another process, which gets the network and its weights."""
        jobs, usual = [], _tuning_process.run

        def run(folder, libraries, seconds):
            with open(os.path.join(folder, _tuning_process.JOB)) as f:
                job = json.load(f)
            jobs.append((job, [os.path.getsize(os.path.join(folder, f)) for f in os.listdir(folder) if f.endswith(".bin")]))
            with open(os.path.join(folder, _tuning_process.JOB), "w") as f:
                json.dump({**job, "device": None}, f)  # the simulated device has only wrong results
            usual(folder, libraries, seconds)

        with tempfile.TemporaryDirectory() as folder, mock.patch.object(_tuning_process, "run", run):
            file = os.path.join(folder, "t.db")
            for _ in range(2):
                torch._dynamo.reset()
                self.compare(nn.Sequential(nn.Linear(6, 8), nn.Tanh()), [torch.randn(3, 6)], options={**ALWAYS, "mode": "tune", "timeout": 1, "database": file})
            ((job, sizes),) = jobs
            self.assertEqual((job["device"], job["database"], job["seconds"], sorted(sizes)), ("cuda:0", file, 1, [4 * 8, 4 * 48]))
            self.assertTrue(os.path.getsize(file))

    def test_apart(self):
        """What fails in another process is an error here."""
        with tempfile.TemporaryDirectory() as folder:
            _tuning_process.write(folder, {"what": "measure", "device": "cuda:7"})
            with self.assertRaisesRegex(quern.Error, "a process of its own failed: .*no number 7"):
                _tuning_process.run(folder, [], 1)


@unittest.skipUnless(can_simulate, "needs the simulated CUDA device")
class Trouble(SimulatedTorch):
    """A device that the library cannot use: models run in PyTorch, one warning says why."""

    def check(self, pattern):
        from quern import _explain
        from quern._dynamo import recording
        net, x = self.put(nn.Sequential(nn.Linear(6, 8), nn.Tanh()), torch.randn(3, 6))
        with torch.no_grad(), recording() as graphs, self.assertLogs("quern", "WARNING") as said:
            for _ in range(2):
                torch._dynamo.reset()
                y = torch.compile(net, backend=self.backend(options=ALWAYS))(x)
                with self.operators:
                    torch.testing.assert_close(self.host(y), self.host(net(x)))
        self.assertEqual(len(said.output), 1, said.output)
        self.assertRegex(said.output[0], f"models on device 'cuda:0' run in PyTorch, the library cannot use it: .*{pattern}")
        self.assertRegex(str(_explain.Explanation(graphs)), f"stays in PyTorch: the library cannot use device 'cuda:0': .*{pattern}")

    def test_no_driver(self):
        with mock.patch.dict(os.environ, QUERN_CUDA_LIBRARY="/nonexistent/libcuda.so"):
            self.check("libcuda")

    def test_wrong_results(self):
        self.twins.is_right = False
        self.check("computes something else")


if __name__ == "__main__":
    print(f"PyTorch {torch.__version__}, {torch.cuda.get_device_name(0) if IS_REAL else 'a simulated device'}, quern {quern.version()}")
    unittest.main(verbosity=1)
