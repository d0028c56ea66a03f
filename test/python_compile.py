# SPDX-License-Identifier: Apache-2.0
#
# Models of PyTorch by the library. Each is compiled with measurements off, so that whatever is supported is run by the library, and compared with PyTorch, for
# several sizes of symbolic axes.
import copy
import gc
import io
import os
import pickle
import random
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

from python_compiler import ALWAYS, Net, can_compile, mistranslated

import torch
from torch import nn

import quern
import quern.torch

try:
    import transformers
except ImportError:
    transformers = None


SEED = int(os.environ.get("SEED", "1"))


def near(test, got, want, tolerance=2e-4):
    if isinstance(want, (tuple, list)):
        test.assertEqual(len(got), len(want))
        for g, w in zip(got, want):
            near(test, g, w, tolerance)
        return
    if isinstance(want, dict):
        test.assertEqual(list(got), list(want))
        for k in want:
            near(test, got[k], want[k], tolerance)
        return
    if not isinstance(want, torch.Tensor):
        test.assertEqual(got, want)
        return
    test.assertEqual((got.shape, got.dtype), (want.shape, want.dtype))
    if want.is_floating_point() and want.numel():
        bound = tolerance * max(want.abs().max().item(), 1e-3)
        test.assertTrue(((got - want).abs() <= bound).all(), f"differs by {(got - want).abs().max()}, allowed is {bound}")
    else:
        test.assertTrue(torch.equal(got, want))


def mlp():
    return nn.Sequential(nn.Linear(24, 160), nn.GELU(), nn.LayerNorm(160), nn.Linear(160, 160), nn.ReLU(), nn.Linear(160, 5)).eval()


def conv_net():
    return nn.Sequential(nn.Conv2d(3, 16, 3, 2, 1), nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, 16, 3, 1, 1, groups=4), nn.SiLU(), nn.MaxPool2d(2),
                         nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 10)).eval()


def with_statistics(net):
    """Batch normalisation with statistics that are not the initial ones."""
    with torch.no_grad():
        for m in net.modules():
            if isinstance(m, nn.BatchNorm2d):
                m.running_mean.normal_()
                m.running_var.uniform_(0.5, 2)
    return net


@unittest.skipUnless(can_compile, "torch.compile needs PyTorch 2.6 or later, onnx and onnxscript")
class Compile(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(1)
        torch._dynamo.reset()

    def compare(self, net, *calls, pieces=1, options=ALWAYS, dynamic=None, tolerance=2e-4):
        """Compiles, calls with each list of inputs, and compares; pieces: number of those that the library must run, None: any."""
        from quern._dynamo import recording
        with torch.no_grad(), recording() as graphs:
            fast = torch.compile(net, backend="quern", options=options, dynamic=dynamic)
            for x in calls:
                near(self, fast(*copy.deepcopy(x)), net(*copy.deepcopy(x)), tolerance)
        run = [p for g in graphs for p in g.pieces if p.bound]
        if pieces is not None:
            self.assertEqual(len(run), pieces, [p.reason for g in graphs for p in g.pieces] + [g.left for g in graphs])
        return graphs, fast

    def test_mlp(self):
        self.compare(mlp(), [torch.randn(7, 24)])

    def test_conv(self):
        self.compare(with_statistics(conv_net()), [torch.randn(2, 3, 32, 32)])

    def test_channels_last(self):
        """Images are used in place, as they lie in memory, also if the weights do; sizes may be symbols."""
        def images(*shape):
            return torch.randn(shape).to(memory_format=torch.channels_last)
        for dynamic, to in ((None, torch.contiguous_format), (None, torch.channels_last), (True, torch.contiguous_format)):
            fast = None  # a model's graphs, which others of its class share, end with it
            gc.collect()
            torch._dynamo.reset()
            calls = [[images(2, 3, 32, 32)]] + [[images(4, 3, 40, 36)]] * (dynamic is True)
            graphs, fast = self.compare(with_statistics(conv_net()).to(memory_format=to), *calls, dynamic=dynamic, pieces=None)
            for g in graphs:
                shape = g.pieces[0].bound.program.input_shape(0)
                self.assertEqual((len(shape), shape[3]), (4, 3), shape)
            with torch.no_grad(), mock.patch.object(torch.Tensor, "contiguous", side_effect=AssertionError("a copy")):
                fast(*calls[0])

    def test_dynamic_batch(self):
        """One graph for all batches, by symbols."""
        graphs, _ = self.compare(mlp(), *([torch.randn(n, 24)] for n in (7, 2, 33, 7)), dynamic=True)
        self.assertEqual(len(graphs), 1)

    def test_dynamic_images(self):
        graphs, _ = self.compare(with_statistics(conv_net()), *([torch.randn(n, 3, h, w)] for n, h, w in ((2, 32, 40), (3, 48, 32), (5, 20, 36))), dynamic=True)
        self.assertEqual(len(graphs), 1)

    def test_dynamic_becomes(self):
        """Without a hint the second batch makes a graph with a symbol, which the third uses."""
        graphs, _ = self.compare(mlp(), *([torch.randn(n, 24)] for n in (4, 6, 9)), pieces=2)
        self.assertEqual(len(graphs), 2)

    def test_sizes_as_values(self):
        """Sizes that are used as numbers, and in shapes by arithmetic."""
        def f(net, x):
            n, c = x.shape
            y = torch.cat([x, x * n], 1).reshape(n * 2, c)
            return y[:n] / (c + 1), torch.arange(n) + c
        self.compare(Net(f), *([torch.randn(n, 6)] for n in (3, 5)), dynamic=True, pieces=None)

    def test_sizes_alone(self):
        """A piece that gets a size, which is also a value, and no tensor with it; its program need not wait for data."""
        def f(net, x):
            y = torch.linalg.svdvals(x.reshape(-1, 2, 3))  # not in the exporter
            return (torch.arange(x.shape[0]) * 2 + x.shape[0]).float().tanh(), y, torch.zeros(x.shape[0] - 3, 2).exp()
        graphs, _ = self.compare(Net(f), *([torch.randn(n, 6)] for n in (7, 5, 12)), dynamic=True)
        self.assertFalse(graphs[0].pieces[0].bound.is_made)

    def test_sizes_between(self):
        """A size that is computed between operators, from a result, and whose square is the number of columns of a constant."""
        def f(net, x):
            y = nn.functional.avg_pool2d(net.a(x).relu(), 2)
            return net.b(y.flatten(1)), x.shape[2] - 1
        net = Net(f, a=nn.Conv2d(3, 4, 3, stride=2), b=nn.Linear(36, 5)).eval()
        self.compare(net, *([torch.randn(n, 3, s, s)] for n, s in ((2, 13), (3, 13), (2, 14))), dynamic=True)

    def test_sizes_from_data(self):
        """Results whose sizes the inputs' values decide, inside of a graph and at its end."""
        def f(net, x, k):
            return net.a(x * k)[:k], torch.nn.functional.pad(net.a(x), (0, k))
        with torch._dynamo.config.patch(capture_scalar_outputs=True, capture_dynamic_output_shape_ops=True):
            self.compare(Net(f, a=nn.Linear(6, 6)).eval(), *([torch.randn(5, 6), k] for k in (2, 3, 4)), dynamic=True, pieces=None)
            torch._dynamo.reset()
            self.compare(Net(lambda net, x: (net.a(x)[x > 0] * 2, x.nonzero()), a=nn.Linear(6, 6)).eval(), [torch.randn(5, 6)], [torch.randn(5, 6)], pieces=1)

    def test_constants(self):
        """Tensors that a model makes of numbers."""
        def f(net, x):
            return net.a(x) + torch.tensor([0.5, 1, 2]), torch.bucketize(x, torch.tensor([-0.5, 0.5])), torch.full((2,), 3)
        self.compare(Net(f, a=nn.Linear(6, 3)).eval(), [torch.randn(5, 6)])

    def test_middle(self):
        """An operator in the middle that stays in PyTorch."""
        def f(net, x):
            y = net.a(x).relu()
            y = torch.linalg.svdvals(y.reshape(-1, 8, 8)) + 1  # not in the exporter
            return net.b(y).tanh() + net.c(y)
        net = Net(f, a=nn.Linear(16, 64), b=nn.Linear(8, 8), c=nn.Linear(8, 8)).eval()
        graphs, _ = self.compare(net, [torch.randn(5, 16)], pieces=2)
        self.assertTrue(any("exporter" in why for why in graphs[0].left.values()), graphs[0].left)

    def test_created(self):
        """Tensors that the model creates from numbers, an empty one among them, as caches of transformers begin with."""
        net = Net(lambda m, x: torch.cat([torch.tensor([]), torch.relu(m.a(x)) * torch.tensor([2.0])], 0), a=nn.Linear(8, 8)).eval()
        self.compare(net, [torch.randn(3, 8)], pieces=None)

    def test_refused_by_library(self):
        """An operator that the exporter knows, and the library does not."""
        def f(net, x):
            y = net.a(x)
            return net.a(torch.unique_consecutive(y.round()).sum() + y).exp()
        self.compare(Net(f, a=nn.Linear(12, 12)).eval(), [torch.randn(4, 12)], pieces=None)

    def test_wrong_operator(self):
        """Of a piece whose results differ only the operator that is to blame stays in PyTorch. Here the exporter's translation of one is replaced by another's."""
        with mistranslated():
            graphs, _ = self.compare(Net(lambda net, x: net.b(net.a(x).exp().tanh()) + x, a=nn.Linear(7, 9), b=nn.Linear(9, 7)).eval(), [torch.randn(3, 7)],
                                     pieces=2)
        self.assertEqual(list(graphs[0].left.values()), ["its results differ from PyTorch's"])

    def test_no_compiler(self):
        """Without a compiler models run in PyTorch, and one warning says what to install."""
        program = f"""
import os, torch, quern.torch
os.environ.update(PATH='/nonexistent')
os.environ.pop('QUERN_CC', None)
net, x = torch.nn.Sequential(torch.nn.Linear(24, 40), torch.nn.Tanh()).eval(), torch.randn(3, 24)
with torch.no_grad():
    for f in (net, lambda x: net(x).exp()):
        print(bool((torch.compile(f, backend='quern', options={ALWAYS})(x) - f(x)).abs().max() < 1e-5))
"""
        with tempfile.TemporaryDirectory() as empty:
            out = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env={**os.environ, "XDG_CACHE_HOME": empty})
        self.assertEqual(out.stdout.split(), ["True", "True"], out.stderr)
        self.assertEqual(out.stderr.count("models run in PyTorch: no C compiler found: install gcc or clang, or set QUERN_CC"), 1, out.stderr)

    def test_buffers(self):
        """Writes to buffers happen, once for each call."""
        def f(net, x):
            net.count += 1
            net.mean.mul_(0.9).add_(x.mean(0), alpha=0.1)
            return net.a(x - net.mean) * net.count
        net = Net(f, a=nn.Linear(6, 6)).eval()
        net.register_buffer("count", torch.zeros(()))
        net.register_buffer("mean", torch.zeros(6))
        other = copy.deepcopy(net)
        with torch.no_grad():
            fast = torch.compile(net, backend="quern", options=ALWAYS)
            for k in range(4):
                x = torch.randn(3, 6)
                near(self, fast(x), other(x))
        near(self, net.mean, other.mean)
        self.assertEqual(net.count.item(), 4)

    def test_written_input(self):
        def f(net, x):
            x += 1
            return net.a(x), x.view(-1)
        net = Net(f, a=nn.Linear(6, 6)).eval()
        a, b = torch.zeros(2, 6), torch.zeros(2, 6)
        with torch.no_grad():
            near(self, torch.compile(net, backend="quern", options=ALWAYS)(a), net(b))
        near(self, a, b)

    def test_structures(self):
        """Dictionaries, tuples, None, inputs and numbers as results."""
        def f(net, x, flag):
            return {"y": net.a(x), "rest": (x, None, flag + 1, x.sum(1, keepdim=True))}
        net = Net(f, a=nn.Linear(6, 6)).eval()
        self.compare(net, [torch.randn(2, 6), 3])

    def test_changed_weights(self):
        """Weights that change are seen at the next call, whether constants of the program or not, and as often as they change."""
        net = Net(lambda net, x: net.b(net.a(x).flatten(1)), a=nn.Conv1d(3, 4, 3), b=nn.Linear(4 * 30, 200)).eval()
        x = torch.randn(2, 3, 32)
        with torch.no_grad():
            fast = torch.compile(net, backend="quern", options=ALWAYS)
            for _ in range(6):
                near(self, fast(x), net(x))
                net.a.weight.mul_(1.5)
                net.b.weight.add_(0.25)
            net.load_state_dict({k: torch.randn_like(v) for k, v in net.state_dict().items()})
            near(self, fast(x), net(x))

    def test_weights_in_place(self):
        """Weights that are not copied: the program reads them in PyTorch's memory, and changes need no new program."""
        net = nn.Sequential(nn.Linear(1024, 1024), nn.Tanh()).eval()
        graphs, fast = self.compare(net, [torch.randn(3, 1024)], options={**ALWAYS, "weights": "in place"})
        bound = graphs[0].pieces[0].bound
        self.assertIn(net[0].weight.data_ptr(), [a.data for a in bound.x])
        with torch.no_grad():
            net[0].weight.mul_(2)
            x = torch.randn(3, 1024)
            near(self, fast(x), net(x))
        self.assertIs(bound, graphs[0].pieces[0].bound)

    def test_large_weights(self):
        """Matrices that are many bytes together are not copied, tied ones of an embedding and the last layer neither; other weights, and few bytes, are."""
        def f(net, x):
            return nn.functional.linear(net.n(net.a(net.e(x))), net.e.weight)

        net = Net(f, e=nn.Embedding(50, 16), a=nn.Linear(16, 16), n=nn.LayerNorm(16)).eval()
        matrices = {net.e.weight.data_ptr(), net.a.weight.data_ptr()}
        for most, weights, expected in ((0, None, matrices), (1 << 20, None, set()), (0, "packed", set())):
            with self.subTest(most=most, weights=weights), mock.patch("quern._piece.COPIES", most):
                torch._dynamo.reset()
                graphs, _ = self.compare(net, [torch.randint(0, 50, (2, 5))], options={**ALWAYS, "weights": weights})
                pieces = [p for p in graphs[0].pieces if p.bound]
                self.assertEqual({a.data for p in pieces for a in p.bound.x} & {p.data_ptr() for p in net.parameters()}, expected)

    def test_types(self):
        for t, tolerance in ((torch.float64, 1e-10), (torch.float16, 2e-2), (torch.bfloat16, 1e-1)):
            with self.subTest(t):
                torch._dynamo.reset()
                self.compare(mlp().to(t), [torch.randn(7, 24, dtype=t)], tolerance=tolerance)

    def test_mixed_types(self):
        def f(net, x, k):
            return net.e(k) * x + k.unsqueeze(-1), (x > 0) & (k.unsqueeze(-1) > 1), k // 2
        self.compare(Net(f, e=nn.Embedding(9, 6)).eval(), [torch.randn(4, 6), torch.randint(0, 9, (4,))])

    def test_views(self):
        """Operands that are not dense, and start anywhere."""
        x = torch.randn(31, 9)[1::2, 2:8]
        self.compare(Net(lambda net, x: net.a(x.t().contiguous().t()) + x, a=nn.Linear(6, 6)).eval(), [x], [x.flip(0)[3:]], pieces=None)

    def test_integers_become_floats(self):
        """Division and functions of integers: the results are floats, and so is what follows."""
        x = torch.tensor([[0, 1, -7], [3, 5, 2]], dtype=torch.int32)
        self.compare(Net(lambda net, x: ((x / x[:, 1:2]).abs() + 1, x.abs().sqrt() * 2, x / 2, (x[1] / 3).exp())), [x], [x.clone()], pieces=1)

    def test_extreme_values(self):
        """After a first call with moderate values, which do not tell results apart that overflow inside."""
        F = nn.functional
        net = Net(lambda net, x, y: (torch.logaddexp(x, y), torch.logaddexp2(x, y), torch.atan2(x, y), F.logsigmoid(x), F.softplus(x), torch.logsumexp(x, 1)))
        for dtype in (torch.float32, torch.float64):
            inf, most = float("inf"), torch.finfo(dtype).max
            v = torch.tensor([0.0, -0.0, 1, -1, 3, -20, 90, 1000, -1000, inf, -inf, float("nan"), most, -most, 1e-30], dtype=dtype)
            x, y = (a.contiguous() for a in torch.meshgrid(v, v, indexing="ij"))
            _, fast = self.compare(net, [torch.rand_like(x), torch.rand_like(x)])
            for got, want in zip(fast(x, y), net(x, y)):
                torch.testing.assert_close(got, want, equal_nan=True)
        angles = torch.compile(torch.atan2, backend="quern", options=ALWAYS)(x, y)
        self.assertEqual(angles.signbit()[~angles.isnan()].tolist(), torch.atan2(x, y).signbit()[~angles.isnan()].tolist())
        graphs, _ = self.compare(Net(lambda net, x: torch.logcumsumexp(x.exp(), 1) * 2), [torch.rand(3, 4)], pieces=None)
        self.assertIn("far below the maximum", str([g.left for g in graphs] + [p.reason for g in graphs for p in g.pieces]))

    def test_floor_divide(self):
        """Quotients rounded as in PyTorch, to the last bit: 1 // 0.1 is 9."""
        def f(net, x, y):
            return torch.floor_divide(x, y), torch.div(x, y, rounding_mode="floor"), torch.div(x, y, rounding_mode="trunc"), x // 3, torch.div(x, 2, rounding_mode="floor")
        inf = float("inf")
        for dtype, over, under in ((torch.float32, [0.0, -0.0, 1, -1, 2, .1, .3, 7.5, -7.5, 1e30, inf, -inf, float("nan")], [0.0, -0.0, .1, -.1, 3, inf, 1e-30]),
                                   (torch.float64, [0.0, -0.0, 1, -1, 2, 7.5, -1e30, inf], [0.0, .1, -.1, .3, 5]),
                                   (torch.int32, [0, 1, -1, 7, -7, 100, -100], [1, -1, 2, -2, 3, 7])):
            x, y = (a.contiguous() for a in torch.meshgrid(torch.tensor(over, dtype=dtype), torch.tensor(under, dtype=dtype), indexing="ij"))
            graphs, fast = self.compare(Net(f), [torch.full_like(x, 8), torch.full_like(x, 3)], pieces=1)
            self.assertEqual(graphs[0].left, {})
            for got, want in zip(fast(x, y), f(None, x, y)):
                self.assertTrue(torch.equal(got.nan_to_num(5), want.nan_to_num(5)), dtype)
                self.assertTrue(torch.equal(got.signbit()[got == got], want.signbit()[got == got]), dtype)

    def test_shared_results(self):
        """Results that share memory do so as in PyTorch, and what is done to one happens to the other."""
        net = Net(lambda net, x: [y := net.a(x).relu(), y[1:], y.t(), *(y + 1).split(3, 1), x[:1]], a=nn.Linear(6, 6)).eval()
        x = torch.randn(4, 6)
        with torch.no_grad():
            got, want = torch.compile(net, backend="quern", options=ALWAYS)(x), net(x)
            near(self, got, want)
            for y in (got, want):
                y[0][2:] = 5
                y[3][0] = 7
            near(self, got, want)
        self.assertEqual([a.stride() for a in got], [a.stride() for a in want])
        self.assertEqual(got[5].data_ptr(), x.data_ptr())

    def test_strides(self):
        """Results have the strides that they have in PyTorch, on which operators behind a piece may depend."""
        def f(net, x):
            y = net.a(x).transpose(1, 2)
            z = torch.linalg.svdvals(y[:, :3])  # not in the exporter
            return (y + z[:, :1, None]).transpose(1, 2).view(-1, 6), y.exp(), torch.linalg.svdvals(y.transpose(1, 2).view(2, -1)), net.c(x[:, None])
        net = Net(f, a=nn.Linear(6, 6), c=nn.Conv2d(1, 4, 3)).eval().to(memory_format=torch.channels_last)
        for dynamic in (False, True):
            x = torch.randn(3, 5, 6)
            with torch.no_grad():
                got, want = torch.compile(net, backend="quern", options=ALWAYS, dynamic=dynamic)(x), net(x)
            near(self, got, want)
            self.assertEqual([t.stride() for t in got], [t.stride() for t in want])

    def test_empty(self):
        self.compare(Net(lambda net, x: net.a(x).relu(), a=nn.Linear(6, 6)).eval(), [torch.randn(0, 6)], pieces=None)

    def test_lstm(self):
        net = Net(lambda net, x: net.b(net.a(x)[0]), a=nn.LSTM(12, 20, 2, batch_first=True, bidirectional=True), b=nn.Linear(40, 3)).eval()
        self.compare(net, [torch.randn(2, 9, 12)], pieces=None)
        with torch._dynamo.config.patch(allow_rnn=True):
            torch._dynamo.reset()
            self.compare(net, [torch.randn(2, 9, 12)])

    def test_attention(self):
        def f(net, q, k, v, mask):
            a = nn.functional.scaled_dot_product_attention
            return a(q, k, v), a(q, k, v, is_causal=True), a(q, k, v, mask), a(q, k, v, mask > 0, scale=0.3)
        q, k, v = (torch.randn(2, 3, 17, 8) for _ in range(3))
        self.compare(Net(f), [q, k, v, torch.randn(17, 17).abs()])

    def test_attention_heads(self):
        """Fewer heads of keys than of queries, one for all of them, operands without a batch, with two batches, without heads, and of different batches."""
        def f(net, q, k, v, x, y):
            a = nn.functional.scaled_dot_product_attention
            return (a(q, k, v, enable_gqa=True), a(q, k[:, :1], v[:, :1]), a(q, q, q, enable_gqa=True), a(q[0], k[0, :1], v[0, :1], is_causal=True),
                    a(x, x, x, y > 0), a(x[0, 0, 0], x[0, 0, 0], y), a(q, k[:1, :1], v[:1, :1]))
        q, k, v = torch.randn(2, 6, 7, 8), torch.randn(2, 3, 9, 8), torch.randn(2, 3, 9, 8)
        graphs, _ = self.compare(Net(f), [q, k, v, torch.randn(2, 3, 2, 5, 8), torch.randn(5, 5)])
        self.assertEqual(graphs[0].left, {})

    def test_known_sizes(self):
        """Sizes that only PyTorch knows as numbers: a network of a fixed number of patches, of images whose size is a symbol, computes the number of heads by
        -1."""
        def f(net, x):
            y = net.a(x)
            n = 1 + y.shape[2] * y.shape[3]
            y = torch.cat([net.c.expand(x.shape[0], -1, -1), y.flatten(2).transpose(1, 2)], 1) + net.p
            q = y.view(x.shape[0], n, -1, 8).transpose(1, 2)
            return nn.functional.scaled_dot_product_attention(q, q, q).transpose(1, 2).reshape(x.shape[0], n, -1)
        net = Net(f, a=nn.Conv2d(3, 32, 7, stride=7), c=nn.Parameter(torch.randn(1, 1, 32)), p=nn.Parameter(torch.randn(1, 17, 32))).eval()
        graphs, _ = self.compare(net, *([torch.randn(n, 3, 28, 28)] for n in (2, 3)), dynamic=True)
        self.assertEqual((len(graphs), [n for n, why in graphs[0].left.items() if why != "not an operator of PyTorch"]), (1, []))  # sizes' arithmetic is left

    def test_lone(self):
        """One operator between others that stay is a piece, too, but an elementwise one is not."""
        net, x = Net(lambda net, x: torch.rand(4, 6) * net.a(torch.rand(4, 6)), a=nn.Linear(6, 6)).eval(), torch.randn(4, 6)
        with torch.no_grad():
            torch.manual_seed(3)
            want = net(x)
            torch.manual_seed(3)
            near(self, torch.compile(net, backend="quern", options=ALWAYS)(x), want)
        for f, why in ((lambda net, x: torch.rand(5).relu(), ["draws random numbers", "too little, between operators that stay"]),
                       (lambda net, x: torch.rand(5, 5).softmax(1), ["draws random numbers"])):
            self.assertEqual([reason for _, _, reason, _ in quern.torch.explain(Net(f), x, options=ALWAYS).left], why)

    def test_random(self):
        """What draws numbers stays in PyTorch: its numbers are the same as without compilation."""
        net = Net(lambda net, x: net.a(x + torch.rand(4, 6)), a=nn.Linear(6, 6)).eval()
        x = torch.randn(4, 6)
        with torch.no_grad():
            torch.manual_seed(3)
            want = net(x)
            torch.manual_seed(3)
            near(self, torch.compile(net, backend="quern", options=ALWAYS)(x), want)

    def test_gradients(self):
        """Gradients, with measurements (test/python_training.py has more)."""
        net, x = mlp(), torch.randn(3, 24)
        y = torch.compile(net, backend="quern")(x)
        y.sum().backward()
        near(self, net[0].weight.grad, torch.autograd.grad(net(x).sum(), net[0].weight)[0])

    def test_inference_mode(self):
        net, x = with_statistics(conv_net()), torch.randn(2, 3, 32, 32)
        with torch.inference_mode():
            near(self, torch.compile(net, backend="quern", options=ALWAYS)(x), net(x))

    def test_threads(self):
        """Calls from several threads."""
        import threading
        net, x = mlp(), [torch.randn(n, 24) for n in (3, 4, 5, 6)]
        fast = torch.compile(net, backend="quern", options=ALWAYS, dynamic=True)
        bad = []

        def work(k):
            with torch.no_grad():
                for _ in range(20):
                    if (fast(x[k]) - net(x[k])).abs().max() > 1e-3:
                        bad.append(k)
        with torch.no_grad():
            fast(x[0])
        threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        self.assertEqual(bad, [])

    def test_few_bits(self):
        """Results in f32 of operators in bf16 differ by more than is rounding in f32; they are as close to f64 as PyTorch's."""
        net = nn.Sequential(nn.Linear(64, 200), nn.ReLU(), nn.Linear(200, 200), nn.GELU(), nn.Linear(200, 30)).eval()

        def f(net, x):
            with torch.autocast("cpu", torch.bfloat16):
                return net.net(x).float().softmax(1)
        self.compare(Net(f, net=net), [torch.randn(40, 64) * 3], tolerance=0.1)

    def test_reference(self):
        """What is further from f64 than PyTorch's result is wrong."""
        from quern._reference import Reference, is_as_good
        graph = torch.fx.symbolic_trace(lambda x, y: ((x @ y).float(),))
        x, y = torch.randn(70, 90).bfloat16(), torch.randn(90, 50).bfloat16()
        want, reference = graph(x, y), Reference(graph, (x, y))
        right = (x.double() @ y.double()).float()
        wrong = right.clone()
        wrong[3, 4] += 0.05 * right.abs().max()
        self.assertTrue(reference.approves(want, want) and reference.approves([right], want))
        for bad in ([wrong], [right.double()], [right[1:]], [right * float("nan")], []):
            self.assertFalse(reference.approves(bad, want))
        noise, zero = torch.randn(2, 9) * 1e-8, torch.randn(9).double() * 1e-17
        self.assertTrue(is_as_good(noise[0], noise[1], zero, 2e-3))
        self.assertFalse(is_as_good(noise[0] * 100, noise[1], zero, 2e-3))

    def test_all_stays(self):
        """If all graphs stay in PyTorch, the traced function runs as without AOTAutograd."""
        from quern import _compare
        usual, _compare.FASTER = _compare.FASTER, 0
        try:
            net, x = mlp(), torch.randn(33, 24)
            fast = torch.compile(net, backend="quern")
            for expected in (True, False):
                y = fast(x)
                self.assertEqual("CompiledFunction" in type(y.grad_fn).__name__, expected, y.grad_fn)
                y.sum().backward()
                near(self, (y, net[0].weight.grad), (net(x), torch.autograd.grad(net(x).sum(), net[0].weight)[0]))
                net.zero_grad()
            with torch.no_grad():
                near(self, (fast(x), fast(x)), (net(x), net(x)))
        finally:
            _compare.FASTER = usual

    def test_measured(self):
        """With measurements results are the same whatever is chosen, and the choice is kept."""
        net, x = mlp(), torch.randn(64, 24)
        graphs = self.compare(net, [x], options=None, pieces=None)[0]
        piece = graphs[0].pieces[0]
        self.assertIsNotNone(piece.seconds)
        gc.collect()  # the compiled model
        torch._dynamo.reset()
        again, _ = self.compare(net, [x], options=None, pieces=None)
        self.assertEqual((again[0].pieces[0].seconds, again[0].pieces[0].reason), (list(piece.seconds), piece.reason))

    def test_slower(self):
        """A piece that is slower than PyTorch is left out."""
        from quern import _compare
        usual, _compare.FASTER = _compare.FASTER, 0
        try:
            graphs, _ = self.compare(nn.Sequential(nn.Linear(24, 7), nn.Sigmoid()).eval(), [torch.randn(65, 24)], options=None, pieces=0)
        finally:
            _compare.FASTER = usual
        self.assertIn("slower than PyTorch", graphs[0].pieces[0].reason)

    def test_options(self):
        net, x = mlp(), torch.randn(7, 24)
        self.compare(net, [x], options={**ALWAYS, "deterministic": True, "threads": 1})
        with tempfile.TemporaryDirectory() as folder:
            torch._dynamo.reset()
            self.compare(net, [x], options={**ALWAYS, "mode": "tune", "timeout": 1, "database": os.path.join(folder, "t.db")})
            self.assertTrue(os.path.exists(os.path.join(folder, "t.db")))
        torch._dynamo.reset()
        with torch.no_grad():
            near(self, torch.compile(net, backend="quern", mode="default")(x), net(x))

    def test_wrong_options(self):
        """Names, kinds and values, before anything is compiled; an instruction set when the first program is made."""
        net, x = mlp(), torch.randn(7, 24)
        for wrong, words in (({"treads": 2}, "no option 'treads', it has .*; did you mean 'threads'?"), ({1: 2}, "no option 1"),
                             ({"mode": "fast"}, "mode is 'fast', expected 'default', or 'tune'"), ({"mode": 3}, "mode is 3"),
                             ({"weights": "int3"}, "weights is 'int3', expected 'int8'.*; did you mean 'int"), ({"weights": 8}, "weights is 8"),
                             ({"threads": "2"}, "threads is '2', expected a number of threads"), ({"threads": -1}, "threads is -1"), ({"threads": 1.5}, "threads is 1.5"),
                             ({"timeout": "1 min"}, "timeout is '1 min', expected seconds"), ({"deterministic": "no"}, "deterministic is 'no', expected True or False"),
                             ({"measure": 0}, "measure is 0, expected True or False"), ({"database": 3}, "database is 3, expected the path of a file"),
                             ({"isa": ["x86-64"]}, "isa is .*, expected the name of an instruction set"), ({"isa": "x86-65"}, "no instruction set 'x86-65'; there are: "),
                             (3, "options is 3, expected a dictionary with mode, timeout"), (["tune"], "options is ..tune.., expected a dictionary")):
            torch._dynamo.reset()
            with self.subTest(str(wrong)), self.assertRaisesRegex(Exception, words), torch.no_grad():
                torch.compile(net, backend="quern", options=wrong)(x)
        torch._dynamo.reset()
        with self.assertRaisesRegex(Exception, "mode is 'max-autotune', expected 'default', or 'tune', which measures schedules"), torch.no_grad():
            torch.compile(net, backend="quern", mode="max-autotune")(x)

    def test_other_types(self):
        """Complex, quantised and sparse tensors stay in PyTorch, with the reason; results are right."""
        x = torch.randn(4, 6)
        quantised = torch.quantize_per_tensor(x, 0.1, 0, torch.qint8)
        graph, none = "aten.* stays in PyTorch: ", "no graph of PyTorch's compiler"
        for f, x, says in ((lambda net, x: net.a(torch.fft.ifft(torch.fft.fft(net.a(x)) * 2).real), x, graph + "complex numbers"),
                           (lambda net, x: (x * 2).real + 1, x.to(torch.complex64), graph + "complex numbers"),
                           (lambda net, x: net.a(torch.quantize_per_tensor(net.a(x), 0.1, 0, torch.qint8).dequantize()), x, "quantize_per_tensor.* stays in PyTorch: not known"),
                           (lambda net, x: net.a(x.dequantize()), quantised, none + ".*quantized"),
                           (lambda net, x: net.a(x), x.to_sparse(), none + ".*sparse")):
            with self.subTest(says):
                torch._dynamo.reset()
                net = Net(f, a=nn.Linear(6, 6)).eval()
                self.assertRegex(str(quern.torch.explain(net, x, options=ALWAYS)), says)
                with torch.no_grad():
                    near(self, torch.compile(net, backend="quern", options=ALWAYS)(x), net(x))

    def test_small_types(self):
        """Codes of f8 are moved and cast by the library."""
        if not hasattr(torch, "float8_e4m3fn"):
            self.skipTest("PyTorch before 2.1")
        self.compare(Net(lambda net, x: net.a(net.a(x).to(torch.float8_e4m3fn).flip(0).float()), a=nn.Linear(6, 6)).eval(), [torch.randn(4, 6)], tolerance=0.1)

    def test_quantised(self):
        net = nn.Sequential(nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 64)).eval()
        x = torch.randn(5, 256)
        for weights, tolerance in (("int8", 2e-2), ("int4", 3e-1)):
            torch._dynamo.reset()
            graphs, fast = self.compare(net, [x], options={**ALWAYS, "weights": weights}, tolerance=tolerance)
            with torch.no_grad():
                self.assertGreater((fast(x) - net(x)).abs().max(), 1e-6)  # they are rounded

    def test_entry_point(self):
        """The installed package is found by torch.compile without an import of quern."""
        from importlib.metadata import entry_points
        if not [e for e in entry_points(group="torch_dynamo_backends") if e.name == "quern"]:
            self.skipTest("the package is not installed")
        program = "import torch; from torch._dynamo.backends.registry import lookup_backend; print(lookup_backend('quern').__module__); import quern.torch"
        out = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
        self.assertEqual(out.stdout.strip(), "quern._dynamo", out.stderr)

    def test_second_process(self):
        """Another process exports nothing."""
        program = f"""
import os, torch, quern.torch, quern._onnx
torch.manual_seed(5)
net, x = torch.nn.Sequential(torch.nn.Linear(24, 40), torch.nn.Tanh()).eval(), torch.randn(3, 24)
usual, n = quern._onnx.to_onnx, []
quern._onnx.to_onnx = lambda gm: n.append(1) or usual(gm)
with torch.no_grad():
    y = torch.compile(net, backend='quern', options={ALWAYS})(x)
    print(len(n), bool((y - net(x)).abs().max() < 1e-5))
"""
        with tempfile.TemporaryDirectory() as folder:
            for expected in ("1 True", "0 True"):
                out = subprocess.run([sys.executable, "-c", program], env={**os.environ, "XDG_CACHE_HOME": folder}, capture_output=True, text=True)
                self.assertEqual(out.stdout.strip(), expected, out.stderr)

    def test_explain(self):
        def f(net, x):
            y = net.a(x).relu()
            return net.a(torch.linalg.svdvals(y.reshape(-1, 4, 4)).repeat(1, 4)).tanh()
        text = str(quern.torch.explain(Net(f, a=nn.Linear(16, 16)).eval(), torch.randn(5, 16)))
        self.assertRegex(text, r"^1 graph, 2 pieces\n")
        self.assertRegex(text, "svd.* stays in PyTorch: not known to PyTorch's exporter to ONNX")
        net = mlp()
        e = quern.torch.explain(net, torch.randn(3, 24), options=ALWAYS)
        self.assertEqual([(p.reason, p.nodes) for p in e.pieces], [(None, 6)])
        self.assertIn("aten.linear.default", e.pieces[0].operators)

    @unittest.skipUnless(transformers, "no transformers")
    def test_bert(self):
        c = transformers.BertConfig(vocab_size=99, hidden_size=48, num_hidden_layers=2, num_attention_heads=4, intermediate_size=96, max_position_embeddings=64)
        net = transformers.BertModel(c).eval()

        def ids(b, s):
            return [torch.randint(0, 99, (b, s)), torch.ones(b, s, dtype=torch.int64)]
        graphs, _ = self.compare(Net(lambda n, i, m: tuple(n.bert(input_ids=i, attention_mask=m).values()), bert=net), ids(2, 16), ids(3, 21), dynamic=True,
                                 pieces=None)
        self.assertLessEqual(len(graphs), 2)
        self.assertTrue(all(len(g.pieces) == 1 and g.pieces[0].bound for g in graphs), [(g.left, [p.reason for p in g.pieces]) for g in graphs])

    @unittest.skipUnless(transformers, "no transformers")
    def test_llama(self):
        c = transformers.LlamaConfig(vocab_size=99, hidden_size=48, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, intermediate_size=96)
        net = transformers.LlamaForCausalLM(c).eval()
        graphs, _ = self.compare(Net(lambda n, i: n.net(input_ids=i, use_cache=False).logits, net=net), [torch.randint(0, 99, (2, 12))], pieces=None)
        self.assertTrue(any(p.bound for g in graphs for p in g.pieces), [(g.left, [p.reason for p in g.pieces]) for g in graphs])


class Files(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(2)
        self.folder = tempfile.TemporaryDirectory()
        self.file = os.path.join(self.folder.name, "net.dnx")

    def tearDown(self):
        self.folder.cleanup()

    def test_export(self):
        net = mlp()
        quern.torch.export(net, (torch.randn(4, 24),), self.file)
        again = quern.torch.load(self.file)
        x = torch.randn(4, 24)
        with torch.no_grad():
            near(self, again(x), net(x))
        self.assertIn("inputs: ", repr(again))

    def test_sizes(self):
        net = with_statistics(conv_net())
        quern.torch.export(net, torch.randn(4, 3, 32, 32), self.file, dynamic_shapes=({0: "batch"},))
        again = quern.torch.load(self.file)
        for n in (2, 5):
            x = torch.randn(n, 3, 32, 32)
            with torch.no_grad():
                near(self, again(x), net(x))

    def test_wrong(self):
        net, x = mlp(), torch.randn(4, 24)
        part = mlp()
        part[2].train()
        svd = Net(lambda net, x: torch.linalg.svdvals(x)).eval()
        for error, says, model, given, options in (
                (ValueError, "the model is in training mode.*model.eval", mlp().train(), (x,), {}),
                (ValueError, "its layer '2' .LayerNorm. is in training mode.*model.eval", part, (x,), {}),
                (TypeError, "the model is a .*, expected a torch.nn.Module: make it the forward function of one", torch.sin, (x,), {}),
                (ValueError, "dynamic_shapes has 2 entries for 1 inputs: one for each", net, (x,), {"dynamic_shapes": (None, None)}),
                (TypeError, "no option 'devise', it has .*; did you mean 'device'?", net, (x,), {"devise": "cpu"}),
                (TypeError, r"the model takes \(input.*\), but 2 inputs were given", net, (x, x), {}),
                (TypeError, "0 inputs were given: missing a required argument", net, (), {}),
                (TypeError, "input 0 is a int, expected a tensor", net, (3,), {}),
                (TypeError, "input 0 has elements of type torch.complex64, which .*: pass real and imaginary parts", net, (x.to(torch.complex64),), {}),
                (TypeError, "input 0 has elements of type torch.qint8, which .*: pass x.dequantize", net, (torch.quantize_per_tensor(x, 0.1, 0, torch.qint8),), {}),
                (TypeError, "input 0 has layout torch.sparse_coo, expected torch.strided: pass x.to_dense", net, (x.to_sparse(),), {}),
                (ValueError, "input 0 lies on device 'meta', the model's weights on 'cpu': move one of them, x.to..cpu", net, (x.to("meta"),), {}),
                (ValueError, "the model's weights lie on device 'meta', where they have no values: load them first", nn.Linear(24, 3, device="meta").eval(), (x,), {}),
                (ValueError, "the model does not take these example inputs: .*shape", net, (x[:, 1:],), {}),
                (quern.Error, "PyTorch cannot export the model to ONNX: .*torch.compile.model, backend='quern'. leaves such operators in PyTorch", svd, (x,), {})):
            with self.subTest(says), self.assertRaisesRegex(error, says):
                quern.torch.export(model, given, self.file, **options)
        self.assertFalse(os.path.exists(self.file))

    def test_wrong_calls(self):
        x = torch.randn(4, 24)
        quern.torch.export(mlp(), (x,), self.file)
        net = quern.torch.load(self.file)
        (name,) = net.program.inputs
        for error, says, run in ((TypeError, f"1 input .{name}., 0 were given: add {name}", lambda: net()),
                                 (TypeError, f"1 input .{name}., 2 were given: one array for each", lambda: net(x, x)),
                                 (TypeError, f"no input '{name}s', there are {name}; did you mean '{name}'?", lambda: net(**{name + "s": x})),
                                 (TypeError, f"input '{name}' is None", lambda: net(None)),
                                 (TypeError, "expected torch.strided: pass x.to_dense", lambda: net(x.to_sparse())),
                                 (TypeError, "complex64, which .*: pass real and imaginary parts", lambda: net(x.to(torch.complex64))),
                                 (TypeError, "quint8, which .*: pass x.dequantize", lambda: net(torch.quantize_per_tensor(x, 0.1, 0, torch.quint8))),
                                 (ValueError, "lies on device 'meta', expected 'cpu': tensors there have no data", lambda: net(x.to("meta"))),
                                 (quern.Error, f"is f64, expected f32; convert it, {name}.to.torch.float32.", lambda: net(x.double())),
                                 (quern.Error, fr"has size 3 on axis 0, expected 4; inputs are {name} float32\[4,24\], .* numbers are fixed", lambda: net(x[:3])),
                                 (quern.Error, f"has rank 1, expected 2; inputs are {name} ", lambda: net(x[0])),
                                 (NotImplementedError, "no gradients: run it under torch.no_grad.., or on tensors .* .x.detach...", lambda: net(x.requires_grad_()))):
            with self.subTest(says), self.assertRaisesRegex(error, says):
                run()
        with torch.no_grad():
            self.assertEqual(net(x.requires_grad_()).shape, (4, 5))


class Optimize(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(3)
        from quern import _compare
        self.usual, _compare.FASTER = _compare.FASTER, float("inf")  # whatever is supported is used

    def tearDown(self):
        from quern import _compare
        _compare.FASTER = self.usual

    def used(self, net):
        from quern._optimize import Fast
        return [type(m).__name__ for m in net.modules() if isinstance(m.forward, Fast) and any(case.bound for case in m.forward.made.values())]

    def check(self, net, *x):
        want = copy.deepcopy(net)
        names = list(net.state_dict())
        quern.torch.optimize(net)
        with torch.no_grad():
            near(self, net(*x), want(*x))
            near(self, net(*x), want(*x))
        self.assertEqual(list(net.state_dict()), names)
        return self.used(net)

    def test_linear(self):
        self.assertEqual(self.check(mlp(), torch.randn(5, 24)), ["Linear"] * 3)

    def test_conv(self):
        self.assertEqual(self.check(with_statistics(conv_net()), torch.randn(2, 3, 32, 32)), ["Conv2d", "Conv2d", "Linear"])

    def test_lstm(self):
        net = Net(lambda net, x: net.a(x), a=nn.LSTM(12, 20, batch_first=True)).eval()
        self.check(net, torch.randn(2, 9, 12))

    def instance(self, layer, *args, used=True, **named):
        """A layer alone: the same results as without; run by the library, or left alone with a reason."""
        layer = layer.eval()
        want = copy.deepcopy(layer)
        quern.torch.optimize(layer)
        few = next(layer.parameters()).dtype in (torch.float16, torch.bfloat16)
        with torch.no_grad():
            for _ in range(2):
                near(self, layer(*args, **named), want(*args, **named), 3e-2 if few else 2e-4)
        rows = quern.torch.explain(layer)
        if used is not None:
            self.assertEqual(bool(self.used(layer)), used, str(rows))
        self.assertTrue(self.used(layer) or all(r["reason"] for r in rows), str(rows))
        return layer, str(rows)

    def test_convolutions(self):
        rng = random.Random(SEED)
        for transposed, d, mode, kind in ((False, 1, "reflect", torch.float64), (False, 2, "circular", torch.float32), (False, 3, "replicate", torch.float32),
                                          (False, 2, "zeros", torch.bfloat16), (True, 1, "zeros", torch.float64), (True, 2, "zeros", torch.float32),
                                          (True, 3, "zeros", torch.float32)):
            groups, stride, dilation = rng.choice((1, 2)), rng.choice((1, 2)), rng.choice((1, 2))
            make = getattr(nn, f"Conv{'Transpose' * transposed}{d}d")
            more = {"output_padding": rng.randrange(max(stride, dilation))} if transposed else {"padding_mode": mode}
            layer = make(4, 6, 3, stride=stride, padding=rng.randrange(3), dilation=dilation, groups=groups, bias=d == 3 or rng.random() < 0.5, dtype=kind, **more)  # 2.15 writes a wrong bias for Conv3d without one
            with self.subTest(str(layer)):
                is_sure = kind != torch.bfloat16 and mode != "circular"  # which 1.13 exports wrongly
                self.instance(layer, torch.randn([2, 4, *rng.choices((7, 8, 9), k=d)], dtype=kind), used=is_sure or None)
        self.instance(nn.Conv2d(4, 4, (3, 2), padding="same", padding_mode="reflect"), torch.randn(1, 4, 7, 8))

    def test_linear_types(self):
        for kind in (torch.float64, torch.bfloat16, torch.float16):
            if kind == torch.float16 and not can_compile:
                continue  # PyTorch 1.13 has no f16 on processors
            with self.subTest(str(kind)):
                self.instance(nn.Linear(24, 7, bias=kind != torch.float64, dtype=kind), torch.randn(5, 3, 24, dtype=kind), used=None)

    def test_recurrent(self):
        x, states = torch.randn(2, 9, 12), lambda n, size: torch.randn(n, 2, size)
        self.instance(nn.LSTM(12, 20, 2, batch_first=True, bidirectional=True), x)
        self.instance(nn.LSTM(12, 20, bias=False), x, (states(1, 20)[:, :1].expand(1, 9, 20), torch.randn(1, 9, 20)))
        self.instance(nn.GRU(12, 20, bidirectional=True, batch_first=True), x, states(2, 20))
        self.instance(nn.LSTM(12, 20, proj_size=5), x, used=None)  # ONNX has none; newer exporters write it as its parts
        packed = nn.utils.rnn.pack_padded_sequence(x, torch.tensor([9, 4]), batch_first=True)
        layer, want = nn.GRU(12, 20, batch_first=True).eval(), None
        with torch.no_grad():
            want = layer(packed)
            got = quern.torch.optimize(layer)(packed)
        near(self, (got[0].data, got[1]), (want[0].data, want[1]))
        self.assertIn("runs as before: a packed sequence (1 call)", str(quern.torch.explain(layer)))

    def test_attention(self):
        rng, n = random.Random(SEED), 5
        q, k, v = (torch.randn(2, n, 12) for _ in range(3))
        causal, padding = torch.ones(n, n).triu(1).bool(), torch.tensor([[False] * 3 + [True] * 2, [False] * n])
        for named in ({}, {"attn_mask": causal, "need_weights": False}, {"attn_mask": torch.randn(n, n), "key_padding_mask": padding},
                      {"key_padding_mask": torch.randn(2, n), "need_weights": True}, {"attn_mask": torch.randn(6, n, n), "need_weights": False}):
            batch_first = rng.random() < 0.5
            given = (q, k, v) if batch_first else tuple(t.transpose(0, 1) for t in (q, k, v))
            with self.subTest(f"{list(named)} {batch_first}"):
                layer = nn.MultiheadAttention(12, 3, batch_first=batch_first, bias=rng.random() < 0.5)
                want = copy.deepcopy(layer).eval()
                layer, _ = self.instance(layer, given[0], given[0], given[0], used=None, **named)  # self-attention; then other keys of the same shapes
                with torch.no_grad():
                    near(self, layer(*given, **named), want(*given, **named))

    def test_left_alone(self):
        """Calls that no program is made for, with the reason."""
        class Twice(nn.Linear):
            def forward(self, x):
                return 2 * super().forward(x)
        net, x = quern.torch.optimize(nn.Sequential(nn.Linear(24, 24), Twice(24, 24)).eval()), torch.randn(3, 24)
        self.assertIn("it was not called yet", str(quern.torch.explain(net)))
        net(x).sum().backward()
        with torch.no_grad():
            with torch.autocast("cpu", torch.bfloat16):
                self.assertEqual(net(x).dtype, torch.bfloat16)
            net.train()(x)
            net.eval()
            net(x)
        text = str(quern.torch.explain(net))
        for reason in ("gradients are recorded (without torch.no_grad()) (1 call)", "autocast decides its types (1 call)", "the layer is in training mode (1 call)"):
            self.assertIn(reason, text)
        self.assertRegex(text, "^1 layers")
        with self.assertRaisesRegex(TypeError, "explain.. needs the model's inputs: explain.model, x."):
            quern.torch.explain(mlp())

    def test_changed_weights(self):
        net, x = quern.torch.optimize(mlp()), torch.randn(5, 24)
        with torch.no_grad():
            first = net(x)
            net[0].weight.mul_(2)
            want = copy.deepcopy(net)
            near(self, net(x), want(x))
            self.assertFalse(torch.equal(net(x), first))

    def test_gradients(self):
        net, x = quern.torch.optimize(mlp()), torch.randn(5, 24)
        net(x).sum().backward()
        self.assertIsNotNone(net[0].weight.grad)
        self.assertEqual(self.used(net), [])

    def test_copies(self):
        net, x = quern.torch.optimize(mlp()), torch.randn(5, 24)
        with torch.no_grad():
            y = net(x)
            near(self, copy.deepcopy(net)(x), y)
            f = io.BytesIO()
            pickle.dump(net, f)
            near(self, pickle.loads(f.getvalue())(x), y)


if __name__ == "__main__":
    print(f"PyTorch {torch.__version__}, quern {quern.version()}")
    unittest.main(verbosity=1)
