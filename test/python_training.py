# SPDX-License-Identifier: Apache-2.0
#
# Training through torch.compile(backend="quern"): forward and backward graphs of small networks, with measurements off so that whatever is supported is run by
# the library. Gradients in f64 by gradcheck and beside PyTorch's; what training changes besides (buffers, random numbers); steps of an optimiser.
import copy
import threading
import unittest

from python_compiler import ALWAYS, can_compile

import torch
import torch.nn.functional as F
from torch import nn

import quern
import quern.torch

torch.set_num_threads(1)  # tensors are small


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.qkv, self.out = nn.LayerNorm(12), nn.Linear(12, 36), nn.Linear(12, 4)

    def forward(self, x):
        q, k, v = self.qkv(self.norm(x)).unflatten(2, (3, 2, 6)).permute(2, 0, 3, 1, 4)
        return self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))


class Filter(nn.Module):
    def __init__(self, splat):
        super().__init__()
        self.weights = nn.Conv2d(3, 9, 3, padding=1)
        self.filter = quern.torch.WeightedFilter(3, 3, splat=splat, padding="replicate", transform="softmax")

    def forward(self, x):
        return self.filter(x, self.weights(x)).tanh()


def mlp():
    return nn.Sequential(nn.Linear(6, 9), nn.GELU(), nn.LayerNorm(9), nn.Linear(9, 3)), torch.randn(4, 6)


def convolutions():
    return nn.Sequential(nn.Conv2d(2, 4, 3, 2, 1), nn.BatchNorm2d(4), nn.SiLU(), nn.Conv2d(4, 4, (3, 1), padding=(1, 0), groups=2), nn.Tanh(),
                         nn.ConvTranspose2d(4, 2, 2, 2), nn.MaxPool2d(2), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2, 3)), torch.randn(2, 2, 8, 10)


def attention():
    return Attention(), torch.randn(2, 5, 12)


def embedding():
    return nn.Sequential(nn.Embedding(7, 4), nn.Linear(4, 5), nn.LogSoftmax(-1)), torch.randint(0, 7, (2, 3))


class Recurrent(nn.Module):
    """kind: nn.LSTM or nn.GRU, with everything that they can do."""

    def __init__(self, kind, **how):
        super().__init__()
        self.layer = kind(3, 4, 2, batch_first=True, bidirectional=True, **how)
        self.out = nn.Linear(2 * (how.get("proj_size") or 4), 2)

    def forward(self, x):
        y, state = self.layer(x)
        return self.out(y).tanh() + (state[1] if isinstance(state, tuple) else state).sum()


class Multihead(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.MultiheadAttention(8, 2, batch_first=True, kdim=6, vdim=5)
        self.k, self.v = nn.Linear(8, 6), nn.Linear(8, 5)

    def forward(self, x):
        padding = torch.tensor([[0, 0, 0, 1, 1], [0, 0, 0, 0, 0]], device=x.device).bool()
        causal = torch.ones(5, 5, device=x.device).triu(1).bool()
        y, weights = self.layer(x, self.k(x), self.v(x), key_padding_mask=padding, attn_mask=causal)
        return y + self.layer(y, self.k(x), self.v(x), need_weights=False)[0] + weights.sum(1, keepdim=True)[..., :1]


def lstm():
    return Recurrent(nn.LSTM), torch.randn(2, 5, 3)


def projected():
    return Recurrent(nn.LSTM, proj_size=3), torch.randn(2, 5, 3)


def gru():
    return Recurrent(nn.GRU), torch.randn(2, 5, 3)


def multihead():
    return Multihead(), torch.randn(2, 5, 8)


def gathered():
    return Filter(False), torch.randn(2, 3, 5, 6)


def splatted():
    return Filter(True), torch.randn(2, 3, 5, 6)


@unittest.skipUnless(can_compile, "torch.compile needs PyTorch 2.6 or later, onnx and onnxscript")
class Training(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(1)
        torch._dynamo.reset()

    def compiled(self, net, **how):
        return torch.compile(net, backend="quern", options=ALWAYS, **how)

    def gradients(self, f, net, *x):
        net.zero_grad()
        y = f(*x)
        y.square().sum().backward()
        return [y.detach(), *(p.grad.clone() for p in net.parameters() if p.grad is not None)]

    def close(self, got, want, tolerance=1e-9):
        self.assertEqual(len(got), len(want))
        for a, b in zip(got, want):
            torch.testing.assert_close(a, b, rtol=tolerance, atol=tolerance)

    def check(self, make):
        """Forward and backward graph are run by the library, and pass gradcheck in f64."""
        from quern._dynamo import recording
        net, x = make()
        net = net.double()
        other = copy.deepcopy(net)
        x = x.double().requires_grad_() if x.is_floating_point() else x
        with recording() as graphs:
            fast = self.compiled(net, fullgraph=True)
            self.close(self.gradients(fast, net, x), self.gradients(other, other, x))
        self.close(list(net.buffers()), list(other.buffers()), 1e-7)
        self.assertEqual([g.kind for g in graphs], ["forward", "backward"])
        for g in graphs:
            self.assertTrue(any(p.bound for p in g.pieces), (g.kind, g.left, [p.reason for p in g.pieces]))
        leaves = [x] * x.is_floating_point() + list(net.parameters())
        self.assertTrue(torch.autograd.gradcheck(lambda *_: fast(x), leaves, fast_mode=True))
        return graphs

    def test_mlp(self):
        self.check(mlp)

    def test_convolutions(self):
        self.check(convolutions)

    def test_channels_last(self):
        def make():
            net, x = convolutions()
            return net.to(memory_format=torch.channels_last), x.to(memory_format=torch.channels_last)
        self.check(make)

    def test_attention(self):
        graphs = self.check(attention)
        self.assertTrue(any("backward" in str(n.target) and "attention" in str(n.target) for p in graphs[1].pieces for n in p.nodes))

    def test_embedding(self):
        self.check(embedding)

    def test_filter(self):
        for make in (gathered, splatted):
            with self.subTest(make.__name__):
                torch._dynamo.reset()
                self.check(make)

    def test_recurrent(self):
        """Dynamo takes recurrent layers as graphs on request; otherwise they run between two graphs."""
        for make in (lstm, projected, gru):
            with self.subTest(make.__name__):
                torch._dynamo.reset()
                with torch._dynamo.config.patch(allow_rnn=True):
                    self.check(make)
        torch._dynamo.reset()
        net, x = gru()
        self.close(self.gradients(self.compiled(net), net, x), self.gradients(net, net, x), 1e-4)

    def test_multihead(self):
        self.check(multihead)

    def test_parts(self):
        """Gradients of slices and elements: zeros around them."""
        def f(x):
            return (x[:, 1:3] * x[:, -2:].tanh()).sum() + (x[..., ::2].exp() * x[..., 3, None]).sum() + x[-1, 2:100].sin().sum() + x[1:1].sum() + x[0, -4:-1, 1].prod()
        x = torch.randn(3, 4, 5, dtype=torch.float64, requires_grad=True)
        text = str(quern.torch.explain(f, x, options=ALWAYS, training=True))
        (got,), (want,) = torch.autograd.grad(self.compiled(f)(x), x), torch.autograd.grad(f(x), x)
        self.close([got], [want])
        self.assertIn("slice_backward", text)
        self.assertNotIn("slice_backward.default stays", text)

    def test_dropout(self):
        """Random numbers are drawn by PyTorch: the same ones for the same seed."""
        net = nn.Sequential(nn.Linear(6, 40), nn.Dropout(0.5), nn.ReLU(), nn.Linear(40, 3)).double()
        fast, x, got = self.compiled(net), torch.randn(5, 6).double(), []
        self.gradients(fast, net, x)
        for f in (fast, torch.compile(net, backend="aot_eager"), fast):
            torch.manual_seed(3)
            got.append(self.gradients(f, net, x))
        self.close(got[0], got[1])
        self.close(got[0], got[2], 0)
        torch.manual_seed(4)
        self.assertFalse(torch.equal(self.gradients(fast, net, x)[0], got[0][0]))

    def test_steps(self):
        """An optimiser writes to the parameters; some of them are frozen; gradients are accumulated."""
        net, x = mlp()
        net = net.double()
        net[0].weight.requires_grad_(False)
        other = copy.deepcopy(net)
        result = []
        for model, f in ((net, self.compiled(net)), (other, other)):
            optimiser = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], 0.05, momentum=0.9)
            for _ in range(4):
                optimiser.zero_grad()
                for part in x.double().split(2):
                    f(part).square().mean().backward()
                optimiser.step()
            result.append(list(model.parameters()))
        self.close(*result)

    def test_loss(self):
        """A compiled function, its graph kept for a second backward pass; second derivatives are an error of PyTorch's."""
        def loss(y, t):
            return F.cross_entropy(y, t, label_smoothing=0.1) + (y * y).mean()
        y, t = torch.randn(5, 7, dtype=torch.float64, requires_grad=True), torch.randint(0, 7, (5,))
        z = self.compiled(loss)(y, t)
        first = torch.autograd.grad(z, y, retain_graph=True)
        self.close(torch.autograd.grad(z, y), first)
        self.close(first, torch.autograd.grad(loss(y, t), y))
        (g,) = torch.autograd.grad(self.compiled(loss)(y, t), y, create_graph=True)
        with self.assertRaisesRegex(RuntimeError, "double backward"):
            g.sum().backward()

    def test_autocast(self):
        net, x = mlp()
        with torch.autocast("cpu", torch.bfloat16):
            got = self.gradients(self.compiled(net), net, x)
            want = self.gradients(net, net, x)
        self.close([t.float() for t in got], [t.float() for t in want], 0.1)

    def test_checkpoint(self):
        from torch.utils.checkpoint import checkpoint
        net, x = mlp()
        net, x = net.double(), x.double().requires_grad_()
        self.close(self.gradients(self.compiled(lambda x: checkpoint(net, x, use_reentrant=False)), net, x), self.gradients(net, net, x))

    def test_thread(self):
        """A backward graph that another thread runs first, as PyTorch's does for GPUs, is recorded, too."""
        from quern._dynamo import recording
        net, x = mlp()
        with recording() as graphs:
            y = self.compiled(net)(x).square().sum()
            thread = threading.Thread(target=y.backward)
            thread.start()
            thread.join()
        self.assertEqual([g.kind for g in graphs], ["forward", "backward"])
        self.close([net[0].weight.grad], torch.autograd.grad(net(x).square().sum(), [net[0].weight]), 1e-4)

    def test_explain(self):
        net, x = mlp()
        text = str(quern.torch.explain(net, x.requires_grad_(), options=ALWAYS, training=True))
        self.assertRegex(text, "^2 graphs, 2 pieces\n")
        self.assertIn("backward", text)


if __name__ == "__main__":
    print(f"PyTorch {torch.__version__}, quern {quern.version()}")
    unittest.main(verbosity=1)
