#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
#
# quern.torch.WeightedFilter against PyTorch's own operators: the filter written as gathered or scattered copies of a padded image, and
# what autograd makes of that. Random kernels, sizes smaller than them, paddings, dilations, transforms, strides and types; gradcheck in
# float64, first and second derivatives; ONNX by the exporters that this PyTorch has, run by quern; a training step; every error.
# Needs torch; test/python_torch.sh runs it with each that is there.
import inspect
import itertools
import os
import random
import tempfile
import unittest
import warnings

import torch
import torch.nn.functional as F
from torch import nn

import quern
from quern.torch import WeightedFilter, weighted_filter

warnings.filterwarnings("ignore", category=UserWarning)
warnings.filterwarnings("ignore", category=DeprecationWarning)
torch.set_num_threads(1)  # arrays are small


# --- the reference ---


def outside(n, before, after, padding):
    """Which element each place of a padded axis shows; n: zero."""
    at = torch.arange(-before, n + after)
    if padding == "replicate":
        return at.clamp(0, n - 1)
    if padding == "reflect":
        period = max(2 * (n - 1), 1)
        at = at.remainder(period)
        return torch.where(at < n, at, period - at)
    return torch.where((at < 0) | (at >= n), torch.tensor(n), at)


def places(n, k, dilation, padding):
    """(n, k): for each pixel of the weights' map along an axis, what each tap shows."""
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
    """The same numbers in a tensor whose axes lie in any order, with gaps."""
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

    def test_large_kernels(self):
        for k, splat in ((7, False), (17, True), (21, False)):
            x, w = torch.randn(1, 8, 6, 11), torch.rand(1, k * k, 6, 11)
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
        """The way programs that predict kernels use the layer: network, filter, loss, gradients; equal to PyTorch's through unfold."""
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
                (ValueError, "channels is 0", lambda: WeightedFilter(0, 3)),
                (ValueError, "weight lies on 'meta', the input on 'cpu'", lambda: f(x, w.to("meta"))),
                (ValueError, "and padding 'valid'", lambda: weighted_filter(x, w, 3, padding="valid"))):
            with self.subTest(message=message), self.assertRaisesRegex(error, message):
                call()


class Net(nn.Module):
    def __init__(self, **how):
        super().__init__()
        self.predict = nn.Conv2d(3, 9, 3, padding=1)
        self.filter = WeightedFilter(3, 3, **how)

    def forward(self, x):
        return self.filter(x, self.predict(x))


class Export(unittest.TestCase):
    def check(self, name, **how):
        for options in (dict(), dict(bias=False, splat=True, transform="softmax", dilation=(2, 1), padding="reflect"),
                        dict(normalize="sum", epsilon=0.25, transform="exp")):
            torch.manual_seed(2)
            net = Net(**options).eval()
            with tempfile.TemporaryDirectory() as d, torch.no_grad():
                file = os.path.join(d, "net.onnx")
                torch.onnx.export(net, (torch.rand(1, 3, 8, 9),), file, input_names=["x"], output_names=["y"], **how)
                program = quern.compile(file)
                sizes = ((8, 9), (5, 14)) if how.get("dynamic_axes") or how.get("dynamic_shapes") else ((8, 9),)
                for size in sizes:
                    x = torch.rand(1, 3, *size)
                    torch.testing.assert_close(program(x), net(x), rtol=1e-4, atol=1e-5)

    def test_trace(self):
        can = inspect.signature(torch.onnx.export).parameters
        try:
            self.check("trace", dynamic_axes={"x": {2: "H", 3: "W"}}, **(dict(dynamo=False) if "dynamo" in can else {}))
        except (ImportError, AttributeError, ModuleNotFoundError) as e:
            self.skipTest(f"this PyTorch does not export traces: {e}")

    def test_graph(self):
        try:
            import onnxscript  # noqa: F401
            torch.onnx.ops
        except (ImportError, AttributeError):
            self.skipTest("no onnxscript, or PyTorch before 2.8: nothing exports graphs")
        h, w = torch.export.Dim("H", min=2), torch.export.Dim("W", min=2)
        self.check("graph", dynamo=True, dynamic_shapes={"x": {2: h, 3: w}}, verbose=False)


if __name__ == "__main__":
    print(f"torch {torch.__version__}, {quern.library_path()}")
    unittest.main(verbosity=0)
