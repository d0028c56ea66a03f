#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
#
# quern.torch.WeightedFilter against PyTorch's own operators: the filter written as gathered or
# scattered copies of a padded image, and its derivatives by autograd. Random kernels, images
# smaller than them, paddings, dilations, transforms, strides and types; gradcheck in float64,
# first and second derivatives; ONNX by the exporters of this PyTorch, run by quern; a training
# step; every error. All but ONNX on the CPU and, if present, on CUDA; the tensors passed to the
# driver are checked by a simulated library (fake_cuda.c). Needs torch; run by test/python_torch.sh
# with each installed version.
import copy
import ctypes
import itertools
import math
import os
import pickle
import random
import threading
import unittest
import warnings
from unittest import mock

import torch
import torch.nn.functional as F
from torch import nn

import python_cuda
import quern
from python_export import Exports, run_exported
from quern.torch import WeightedFilter, weighted_filter

warnings.filterwarnings("ignore", category=UserWarning)
warnings.filterwarnings("ignore", category=DeprecationWarning)
torch.set_num_threads(1)  # arrays are small


# --- the reference ---


def outside(n, before, after, padding):
    """The source index of each position of a padded axis; n: zero."""
    at = torch.arange(-before, n + after)
    if padding == "replicate":
        return at.clamp(0, n - 1)
    if padding == "reflect":
        period = max(2 * (n - 1), 1)
        at = at.remainder(period)
        return torch.where(at < n, at, period - at)
    return torch.where((at < 0) | (at >= n), torch.tensor(n), at)


def places(n, k, dilation, padding):
    """(n, k): for each pixel of the weights along an axis, the source indices of the taps."""
    span = (k - 1) * dilation
    before = 0 if padding == "valid" else span // 2
    at = torch.arange(n)[:, None] + torch.arange(k)[None, :] * dilation
    return outside(n + span, 0, 0, "zero")[at] if padding == "valid" else outside(n, before, span - before, padding)[at]


def reference(x, w, bias=None, kernel=(3, 3), splat=False, dilation=(1, 1), padding="zero", transform="none", normalize="none",
              epsilon=0.0):
    (kh, kw), (dh, dw), (h, v) = kernel, dilation, w.shape[2:]
    if transform != "none":
        w = w.exp() if transform == "exp" else w.softmax(1)
    rows, columns = places(h, kh, dh, padding), places(v, kw, dw, padding)
    size = tuple(s + (k - 1) * d if padding == "valid" else s for s, k, d in zip((h, v), kernel, dilation))
    rows, columns = rows.clamp(max=size[0]), columns.clamp(max=size[1])

    def apply(x):
        c = x.shape[:2]
        y = x.new_zeros((*c, h, v)) if not splat else x.new_zeros((*c, size[0] + 1, size[1] + 1))
        z = x if splat else F.pad(x, (0, 1, 0, 1))  # zero is the element behind the last
        for t, (i, j) in enumerate(itertools.product(range(kh), range(kw))):
            r, s = rows[:, i][:, None], columns[:, j][None, :]
            if splat:
                flat = (r * y.shape[3] + s).reshape(-1)
                y = y.flatten(2).index_add(2, flat, (x * w[:, t:t + 1]).flatten(2)).view_as(y)
            else:
                y = y + z[:, :, r, s] * w[:, t:t + 1]
        return y[:, :, :size[0], :size[1]] if splat else y
    y = apply(x)
    if normalize == "sum":
        y = y / (apply(torch.ones_like(x[:, :1])) + epsilon)
    return y if bias is None else y + bias[:, None, None]


def scattered(rng, t):
    """The same numbers in a tensor with axes in any order in memory, with gaps."""
    order = rng.sample(range(t.dim()), t.dim())
    steps = [rng.choice([1, 1, 2]) for _ in order]
    room = t.new_zeros([t.shape[d] * steps[d] for d in order])
    back = [order.index(d) for d in range(t.dim())]
    x = room.permute(back)
    for d, s in enumerate(steps):
        x = x[(slice(None),) * d + (slice(None, None, s),)]
    return x.copy_(t)


class Case:
    """A random filter."""

    def __init__(self, seed, kernels=(1, 2, 3, 4, 5), dtype=torch.float64, raw=False):
        self.rng = rng = random.Random(seed)
        torch.manual_seed(seed)
        self.kernel = (rng.choice(kernels), rng.choice(kernels))
        self.options = dict(splat=rng.random() < 0.5, dilation=(rng.randint(1, 3), rng.randint(1, 2)),
                            padding=rng.choice(["zero", "zero", "reflect", "replicate", "valid"]))
        if not raw:
            self.options.update(transform=rng.choice(["none", "exp", "softmax"]), normalize=rng.choice(["none", "sum"]), epsilon=0.5)
        b, c, h, w = rng.randint(1, 2), rng.randint(1, 4), rng.randint(1, 7), rng.randint(1, 9)
        more = [(k - 1) * d if self.options["padding"] == "valid" and not self.options["splat"] else 0
                for k, d in zip(self.kernel, self.options["dilation"])]
        self.x = torch.randn(b, c, h + more[0], w + more[1], dtype=dtype)
        self.w = torch.rand(b, self.kernel[0] * self.kernel[1], h, w, dtype=dtype)
        self.bias = torch.randn(c, dtype=dtype) if rng.random() < 0.5 else None

    def tensors(self):
        return [t for t in (self.x, self.w, self.bias) if t is not None]

    def filter(self, x, w, bias=None):
        return weighted_filter(x, w, self.kernel, bias, **self.options)

    def reference(self, x, w, bias=None):
        return reference(x, w, bias, self.kernel, **self.options)

    def __str__(self):
        return f"{self.kernel} {self.options} x {tuple(self.x.shape)}"


def gradients(f, tensors, weight):
    leaves = [t.detach().clone().requires_grad_() for t in tensors]
    y = f(*leaves)
    return y.detach(), torch.autograd.grad((y * weight(y)).sum(), leaves)


class Filter(unittest.TestCase):
    def close(self, got, want, case, rtol=1e-5, atol=1e-5):
        torch.testing.assert_close(got, want, rtol=rtol, atol=atol, msg=lambda m: f"{case}: {m}")

    def compare(self, case, tensors, **how):
        with self.subTest(case=str(case)):
            torch.manual_seed(1)
            factor = {}

            def weight(y):
                return factor.setdefault("is", torch.randn_like(y))
            got, dgot = gradients(case.filter, tensors, weight)
            want, dwant = gradients(case.reference, tensors, weight)
            self.close(got, want, case, **how)
            for g, v in zip(dgot, dwant):
                self.close(g, v, case, **how)

    def test_random(self):
        for seed in range(4):
            case = Case(seed, dtype=torch.float32)
            self.compare(case, case.tensors(), rtol=1e-4, atol=1e-4)

    def test_kernel_sizes(self):
        for k in range(1, 22):
            x, w, splat = torch.randn(1 + k % 2, 1 + k % 8, 6, 11), torch.rand(1 + k % 2, k * k, 6, 11), k % 3 == 0
            self.close(weighted_filter(x, w, k, splat=splat), reference(x, w, kernel=(k, k), splat=splat), k, 1e-4, 1e-4)

    def test_strides(self):
        rng = random.Random(5)
        for splat in (False, True):
            op = WeightedFilter(3, 3, bias=False, splat=splat)
            for _ in range(4):
                x, w = torch.randn(2, 3, 5, 6), torch.rand(2, 9, 5, 6)
                xs, ws = scattered(rng, x).requires_grad_(), scattered(rng, w).requires_grad_()
                y = op(xs, ws)
                self.close(y, reference(x, w, splat=splat), "strides")
                y.sum().backward()  # the gradient of a sum has strides 0
                xr, wr = x.requires_grad_(), w.requires_grad_()
                reference(xr, wr, splat=splat).sum().backward()
                self.close(xs.grad, xr.grad, "strides")
                self.close(ws.grad, wr.grad, "strides")
            x = x.detach().to(memory_format=torch.channels_last)
            w = w.detach().to(memory_format=torch.channels_last)
            self.close(op(x, w), reference(x, w, splat=splat), "channels last")
            one = torch.rand(1, 9, 1, 1).expand(2, 9, 5, 6)  # for all pixels
            self.close(op(x, one), reference(x, one, splat=splat), "strides 0")

    def test_backwards(self):
        """Negative strides, which NumPy arrays may have."""
        op = quern.Operator("quern::WeightedFilter", {"kernel_shape": [3, 3]}, sizes="N:?:H:W,N:?:H:W")
        x, w = torch.randn(2, 3, 5, 6), torch.rand(2, 9, 5, 6)
        back = [t.flip(1, 2).numpy()[:, ::-1, ::-1] for t in (x, w)]
        self.assertTrue(all(min(b.strides) < 0 for b in back))
        self.close(torch.from_numpy(op(*back)), reference(x, w), "backwards")

    def test_bias_gradient(self):
        """The bias gradient is an operator of the library, too."""
        op = quern.Operator("ReduceSum", {"axes": [0, 2, 3], "keepdims": 0})
        g, bias = torch.randn(2, 3, 5, 6), torch.randn(3, requires_grad=True)
        weighted_filter(g, torch.rand(2, 9, 5, 6), 3, bias).backward(g)
        self.close(op(g.cpu()).to(g.device), bias.grad, "bias")

    def test_gradcheck(self):
        for seed in range(2):
            case = Case(seed, kernels=(1, 2, 3))
            leaves = [t.requires_grad_() for t in case.tensors()]
            with self.subTest(case=str(case)):
                self.assertTrue(torch.autograd.gradcheck(case.filter, leaves))

    def test_gradgradcheck(self):
        for seed in range(1):
            case = Case(seed, kernels=(1, 2, 3), raw=True)
            leaves = [t.requires_grad_() for t in (case.x, case.w)]
            with self.subTest(case=str(case)):
                self.assertTrue(torch.autograd.gradgradcheck(case.filter, leaves))
        w = torch.rand(1, 9, 4, 4, dtype=torch.float64, requires_grad=True)
        x = torch.rand(1, 1, 4, 4, dtype=torch.float64)
        (g,) = torch.autograd.grad(weighted_filter(x, w, 3, transform="softmax").sum(), w, create_graph=True)
        with self.assertRaisesRegex(NotImplementedError, "second derivatives"):
            g.sum().backward()

    def test_adjoint(self):
        for padding in ("zero", "reflect", "replicate"):
            x, y, w = torch.randn(2, 3, 5, 8).double(), torch.randn(2, 3, 5, 8).double(), torch.randn(2, 15, 5, 8).double()
            gather = (weighted_filter(x, w, (3, 5), padding=padding) * y).sum()
            splat = (x * weighted_filter(y, w, (3, 5), splat=True, padding=padding)).sum()
            self.close(gather, splat, padding, 1e-12, 1e-12)

    def test_types(self):
        x, w = torch.randn(1, 2, 6, 7), torch.rand(1, 9, 6, 7)
        want = reference(x, w)
        for tx, tw, tol in ((torch.float16, torch.float16, 1e-2), (torch.bfloat16, torch.bfloat16, 6e-2), (torch.float32, torch.float16, 1e-2),
                            (torch.float32, torch.bfloat16, 6e-2)):
            a, b = x.to(tx).requires_grad_(), w.to(tw).requires_grad_()
            y = weighted_filter(a, b, 3)
            y.sum().backward()
            self.assertEqual((y.dtype, a.grad.dtype, b.grad.dtype), (tx, tx, tw))
            self.close(y.float(), want, (tx, tw), tol, tol)

    def test_same_bytes(self):
        x, w = torch.randn(1, 3, 33, 35, requires_grad=True), torch.rand(1, 25, 33, 35, requires_grad=True)
        first = torch.autograd.grad(weighted_filter(x, w, 5).pow(2).sum(), (x, w))
        for _ in range(3):
            again = torch.autograd.grad(weighted_filter(x, w, 5).pow(2).sum(), (x, w))
            self.assertTrue(all(torch.equal(a, b) for a, b in zip(first, again)))

    def test_empty(self):
        for shape in ((0, 2, 4, 4), (1, 2, 0, 4)):
            x, w = torch.ones(shape, requires_grad=True), torch.ones(shape[0], 9, *shape[2:], requires_grad=True)
            y = weighted_filter(x, w, 3)
            y.sum().backward()
            self.assertEqual((y.shape, x.grad.shape, w.grad.shape), (x.shape, x.shape, w.shape))


class Module(unittest.TestCase):
    def test_bias(self):
        f = WeightedFilter(3, 5)
        self.assertTrue((f.bias == 0).all() and [n for n, _ in f.named_parameters()] == ["bias"])
        self.assertEqual(list(WeightedFilter(3, 5, bias=False).parameters()), [])
        self.assertEqual(repr(WeightedFilter(3, 5, False, True, padding="reflect")),
                         "WeightedFilter(3, kernel_size=5, bias=False, splat=True, padding='reflect')")
        torch.nn.init.normal_(f.bias)
        x, w = torch.randn(1, 3, 6, 6), torch.rand(1, 25, 6, 6)
        torch.testing.assert_close(f(x, w), reference(x, w, f.bias, (5, 5)), rtol=1e-4, atol=1e-5)
        f(x, w).sum().backward()
        torch.testing.assert_close(f.bias.grad, torch.full((3,), 36.0))
        f.load_state_dict(f.state_dict())

    def test_example(self):
        """As in programs that predict kernels: network, filter, loss, gradients; equal to PyTorch's
        by unfold."""
        from torch_utils import WeightedFilter as Layer
        self.assertIs(Layer, WeightedFilter)
        torch.manual_seed(0)
        in_channels, kernel_size = 3, 5
        network = nn.Sequential(nn.Conv2d(6, 8, 3, padding=1), nn.LeakyReLU(), nn.Conv2d(8, kernel_size * kernel_size, 3, padding=1))
        kpn_layer = Layer(in_channels, kernel_size, bias=False, splat=False)
        color, guide, target = torch.rand(1, 3, 24, 40), torch.rand(1, 3, 24, 40), torch.rand(1, 3, 24, 40)

        def by_unfold(x, w):
            parts = F.unfold(x, kernel_size, padding=kernel_size // 2).view(x.shape[0], 3, kernel_size**2, *x.shape[2:])
            return (parts * w[:, None]).sum(2)
        result = []
        for layer in (kpn_layer, by_unfold):
            network.zero_grad()
            kpn_weights = network(torch.cat([color, guide], 1))
            out = layer(color, kpn_weights)
            loss = torch.nn.MSELoss()(out, target)
            loss.backward()
            result.append((loss.detach(), [p.grad.clone() for p in network.parameters()]))
        torch.testing.assert_close(result[0][0], result[1][0])
        for a, b in zip(result[0][1], result[1][1]):
            torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-6)

    def test_copies(self):
        f = WeightedFilter(3, 5, padding="reflect")
        torch.nn.init.normal_(f.bias)
        x, w = torch.randn(1, 3, 6, 6), torch.rand(1, 25, 6, 6)
        for other in (copy.deepcopy(f), pickle.loads(pickle.dumps(f))):
            self.assertTrue(torch.equal(other(x, w), f(x, w)))
        self.assertEqual(list(f.state_dict()), ["bias"])
        for how, to, tol in ((lambda m: m.half(), torch.float16, 2e-2), (lambda m: m.to(torch.bfloat16), torch.bfloat16, 2e-1), (lambda m: m.double(), torch.float64, 1e-4)):
            y = how(copy.deepcopy(f))(x.to(to), w)
            self.assertEqual(y.dtype, to)
            torch.testing.assert_close(y.float(), f(x, w), rtol=tol, atol=tol)
        self.assertEqual(f.to("meta")(x.to("meta"), w.to("meta")).shape, x.shape)

    def test_autocast(self):
        f, network, x = WeightedFilter(3, 3), nn.Conv2d(3, 9, 3, padding=1), torch.rand(1, 3, 6, 7)
        for to in (torch.float32, torch.bfloat16):
            f.zero_grad()
            with torch.autocast(x.device.type, dtype=torch.bfloat16):
                w = network(x)
                y = f(x.to(to), w)
            self.assertEqual((w.dtype, y.dtype), (torch.bfloat16, to))
            y.float().sum().backward()
            self.assertEqual(f.bias.grad.dtype, torch.float32)
            torch.testing.assert_close(f.bias.grad, torch.full((3,), 42.0))

    @unittest.skipUnless(hasattr(torch, "compile"), "PyTorch before 2.0")
    def test_compile(self):
        torch.manual_seed(0)
        net, x = Net(), torch.rand(2, 3, 6, 7)
        result = []
        for f in (net, torch.compile(net, backend="aot_eager")):
            net.zero_grad()
            y = f(x)
            y.pow(2).sum().backward()
            result.append([y.detach(), *(p.grad.clone() for p in net.parameters())])
        for a, b in zip(*result):
            torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4)
        torch._dynamo.reset()  # what it knows of the code
        if quern._weighted_filter.HAS_OPERATORS:
            torch.testing.assert_close(torch.compile(net, backend="aot_eager", fullgraph=True)(x), net(x), rtol=1e-4, atol=1e-4)

    @unittest.skipUnless(quern._weighted_filter.HAS_OPERATORS, "PyTorch before 2.4")
    def test_operators(self):
        """The layer as operators of PyTorch: fake tensors, autograd, first and second derivatives."""
        for seed in range(2):
            case = Case(seed, kernels=(1, 2, 3))
            spec = quern._weighted_filter.Spec(case.kernel, **{"normalize": "none", "transform": "none", "epsilon": 0, **case.options}).key()
            leaves = [t.requires_grad_() for t in case.tensors()]
            with self.subTest(case=str(case)):
                torch.library.opcheck(torch.ops.quern.weighted_filter.default, (*leaves, *[None] * (3 - len(leaves)), *spec))

    def test_threads(self):
        f, wrong = WeightedFilter(3, 5), []
        given = [(torch.randn(1, 3, 9 + i, 11), torch.rand(1, 25, 9 + i, 11)) for i in range(4)]
        want = [gradients(f, g, torch.ones_like) for g in given]

        def work(i):
            for _ in range(10):
                y, d = gradients(f, given[i], torch.ones_like)
                if not all(torch.equal(a, b) for a, b in zip((y, *d), (want[i][0], *want[i][1]))):
                    wrong.append(i)
        threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        self.assertEqual(wrong, [])

    def test_training(self):
        torch.manual_seed(0)
        network, f = nn.Conv2d(3, 9, 3, padding=1), WeightedFilter(3, 3, transform="softmax")
        step = torch.optim.Adam([*network.parameters(), *f.parameters()], 0.02)
        x = torch.rand(2, 3, 16, 16)
        target, losses = F.avg_pool2d(x, 3, 1, 1) + 0.25, []
        for _ in range(30):
            loss = F.mse_loss(f(x, network(x)), target)
            step.zero_grad()
            loss.backward()
            step.step()
            losses.append(loss.item())
        self.assertLess(losses[-1], losses[0] / 4)

    def test_errors(self):
        f, x, w = WeightedFilter(3, 3), torch.ones(1, 3, 4, 5), torch.ones(1, 9, 4, 5)
        for error, message, call in (
                (ValueError, r"weight has 8 channels, expected 9", lambda: f(x, w[:, :8])),
                (ValueError, r"weight has batch, height and width \(1, 3, 5\), expected \(1, 4, 5\)", lambda: f(x, w[:, :, :3])),
                (ValueError, r"input has shape \(3, 4, 5\), expected 4 axes", lambda: f(x[0], w)),
                (ValueError, r"bias has shape \(3,\), expected \(1,\)", lambda: f(x[:, :1], w)),
                (TypeError, "input has type torch.int64", lambda: f(x.long(), w)),
                (TypeError, "weight is a int, expected a tensor", lambda: f(x, 3)),
                (TypeError, "bias has type torch.float32, expected torch.float64", lambda: f(x.double(), w.double())),
                (ValueError, "kernel_size is 4, expected an odd", lambda: WeightedFilter(3, 4)),
                (ValueError, "kernel_size is 0, expected a positive", lambda: weighted_filter(x, w, 0)),
                (ValueError, "dilation is -1", lambda: WeightedFilter(3, 3, dilation=-1)),
                (ValueError, "padding is 'mirror', expected one of 'zero'", lambda: WeightedFilter(3, 3, padding="mirror")),
                (ValueError, "kernel_size is 3.0, expected a positive integer", lambda: WeightedFilter(3, 3.0)),
                (ValueError, "epsilon is nan, expected a finite number", lambda: WeightedFilter(3, 3, normalize=True, epsilon=math.nan)),
                (ValueError, "epsilon is -1.0, expected a finite number", lambda: weighted_filter(x, w, 3, epsilon=-1)),
                (ValueError, "channels is 0", lambda: WeightedFilter(0, 3)),
                (ValueError, "weight lies on 'meta', the input on '(cpu|cuda:0)'", lambda: f(x, w.to("meta"))),
                (ValueError, "and padding 'valid'", lambda: weighted_filter(x, w, 3, padding="valid"))):
            with self.subTest(message=message), self.assertRaisesRegex(error, message):
                call()


def on_cuda(tests):
    """The same tests with tensors on a CUDA device."""
    @unittest.skipUnless(torch.cuda.is_available() and hasattr(torch, "set_default_device"), "no CUDA device, or PyTorch before 2.0")
    class WithCuda(tests):
        def setUp(self):
            torch.set_default_device("cuda")
            self.addCleanup(torch.set_default_device, "cpu")

        def test_streams(self):
            """The library waits for work in a side stream, and that stream for the library."""
            x, w = torch.randn(1, 3, 400, 500), torch.rand(1, 25, 400, 500)
            want = reference(x * 2, w, kernel=(5, 5)) + 1
            weighted_filter(x, w, 5)  # built now
            torch.cuda.synchronize()
            for stream in [torch.cuda.Stream() for _ in range(4)]:
                with torch.cuda.stream(stream):
                    for _ in range(10):
                        torch.randn(2000, 2000) @ torch.randn(2000, 2000)
                    y = weighted_filter(x * 2, w, 5) + 1
                stream.synchronize()
                torch.testing.assert_close(y, want, rtol=1e-4, atol=1e-4)
    WithCuda.__name__ = WithCuda.__qualname__ = tests.__name__ + "OnCuda"
    return WithCuda


FilterOnCuda, ModuleOnCuda = on_cuda(Filter), on_cuda(Module)


class OnCuda(torch.Tensor):
    """A CPU tensor that reports a CUDA device."""
    device = property(lambda self: torch.device("cuda", 0))


@unittest.skipUnless(python_cuda.is_there, "no library that looks like CUDA's (test/python.sh names it)")
@unittest.skipIf(torch.cuda.is_available(), "there is a CUDA device")
class Imitation(python_cuda.Simulated):
    """The arguments of kernel launches: the tensors' own memory and the given stream. A simulated
    device does not compute."""

    def setUp(self):
        super().setUp()
        how = mock.patch("quern._arrays.stream_of", lambda device: self.stream.value)
        how.start()
        self.addCleanup(how.stop)

    def tensor(self, *shape, offset=0):
        n = math.prod(shape)
        at = ctypes.c_uint64(self.memory(4 * n + 4 * offset))
        self.within("cuMemsetD8Async", at, 0, ctypes.c_size_t(4 * n + 4 * offset), self.stream)
        t = torch.frombuffer((ctypes.c_char * (4 * n + 4 * offset)).from_address(at.value), dtype=torch.float32)
        return t[offset:].view(shape).as_subclass(OnCuda)

    def run_one(self, name, inputs, shape, spec=(3, False, 1, "zero", "none", "none", 0.0)):
        from quern import _weighted_filter as weighted
        spec = weighted.Spec(*spec)
        made = []

        def empty(*a, **how):
            made.append(self.tensor(*a[0]))
            return made[-1]
        with mock.patch("torch.empty", empty):
            sx, sw, sy = spec.sizes()
            y = weighted.run(name, spec, {"quern::WeightedFilter": (sx, sw), "quern::WeightedFilterGradInput": (sy, sw),
                                          "quern::WeightedFilterGradWeights": (sy, sx, sw)}[name], inputs, shape, inputs[0])
        self.assertIs(y, made[0])
        self.assertTrue(self.cuda.fake_is_outer())
        return y

    def need_compiler(self):
        try:
            self.run_one("quern::WeightedFilter", (self.tensor(1, 3, 4, 8), self.tensor(1, 9, 4, 8)), (1, 3, 4, 8))
        except quern.Error as e:
            if "no compiler for cuda found" in str(e):
                self.skipTest(str(e))
            raise

    def test_launches(self):
        self.need_compiler()
        x, w, g = self.tensor(1, 3, 6, 5), self.tensor(1, 9, 6, 5), self.tensor(1, 3, 6, 5)
        for name, inputs, shape in (("quern::WeightedFilter", (x, w), x.shape), ("quern::WeightedFilterGradInput", (g, w), x.shape),
                                    ("quern::WeightedFilterGradWeights", (g, x), w.shape)):
            y, thrown = None, []

            def work():
                nonlocal y
                try:
                    y = self.run_one(name, inputs, shape)
                except BaseException as e:
                    thrown.append(e)
            thread = threading.Thread(target=work)  # as autograd's
            thread.start()
            thread.join()
            self.assertEqual(thrown, [])
            for t in (*inputs, y):
                self.assertTrue(self.cuda.fake_was_given(t.data_ptr()), name)
        net = quern.compile(b"graph {\n  input %x: f32[H,4]\n  %y: none[?] = Relu(%x)\n  output %y\n}\n", device="cuda:0")
        x, made = self.tensor(6, 4), []
        os.environ["QUERN_FAKE_CUDA"] = "buffers=2"
        with mock.patch("torch.empty", lambda shape, **how: made.append(self.tensor(*shape)) or made[-1]):
            y = net(x)
        self.assertTrue(y is made[0] and y.shape == (6, 4))
        self.assertTrue(self.cuda.fake_was_given(x.data_ptr()) and self.cuda.fake_was_given(y.data_ptr()))
        last = self.tensor(1, 3, 4, 8).to(memory_format=torch.contiguous_format)
        self.assertIs(quern._arrays.on_device(last), last)
        self.assertIsNot(quern._arrays.on_device(last.transpose(2, 3)), last)
        last = last.to(memory_format=torch.channels_last)
        self.assertIs(quern._arrays.on_device(last), last)
        self.assertTrue(quern._arrays.on_device(last, row_major=True).is_contiguous())
        odd = self.tensor(1, 3, 4, 8, offset=1)
        self.assertEqual(quern._arrays.on_device(odd).data_ptr() % 16, 0)

    def test_errors(self):
        op = quern.Operator("Relu", device="cuda:0")
        x, y = self.tensor(4, 4), self.tensor(4, 4)
        for error, message, given in (
                (ValueError, "input 0 lies on device 'cpu', expected 'cuda:0'", (torch.ones(4, 4), y)),
                (ValueError, "output 0 lies on device 'cpu', expected 'cuda:0'", (x, torch.ones(4, 4))),
                (ValueError, "output 0 lies in the host's memory", (x, y.as_subclass(torch.Tensor).numpy())),
                (quern.Error, r"'Relu': input 'i0' has strides \(1, 4\)", (x.t(), y))):
            with self.subTest(message=message), self.assertRaisesRegex(error, message):
                op.run([given[0]], [given[1]])
        with self.assertRaisesRegex(quern.Error, "device 'cpu' cannot share memory within this process"):
            quern.Operator("Relu").run([x], [y])
        self.need_compiler()
        with self.assertRaisesRegex(quern.Error, "'Relu': .* memory that CUDA knows"):
            op.run([torch.ones(4, 4).as_subclass(OnCuda)], [y])


class Net(nn.Module):
    def __init__(self, **how):
        super().__init__()
        self.predict = nn.Conv2d(3, 9, 3, padding=1)
        self.filter = WeightedFilter(3, 3, **how)

    def forward(self, x):
        return self.filter(x, self.predict(x))


class Export(Exports, unittest.TestCase):
    def axes(self):
        return dict(dynamic_axes={"x": {2: "H", 3: "W"}})

    def shapes(self):
        return dict(dynamic_shapes={"x": {2: torch.export.Dim("H", min=2), 3: torch.export.Dim("W", min=2)}})

    def check(self, **how):
        for options in (dict(), dict(bias=False, splat=True, transform="softmax", dilation=(2, 1), padding="reflect"),
                        dict(normalize="sum", epsilon=0.25, transform="exp")):
            torch.manual_seed(2)
            inputs = [torch.rand(1, 3, *size) for size in ((8, 9), (5, 14))]
            for got, want in run_exported(Net(**options).eval(), inputs[0], inputs, **how):
                torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)


if __name__ == "__main__":
    print(f"torch {torch.__version__}, {quern.library_path()}")
    unittest.main(verbosity=0)
