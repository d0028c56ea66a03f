#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
#
# quern.torch.scaled_dot_product_attention against PyTorch's autograd of the formula in float64, and, where it has the options, against PyTorch's own function:
# random sizes, heads that share keys, causal masks of both kinds, windows, boolean and additive masks that repeat along axes, softcaps, sinks, types and
# strides; by parts; rows without positions, equal scores, scores and masks so large that exponentials overflow or one number per row is too coarse; gradcheck; a
# training step; ONNX by the exporters of this PyTorch, run by quern; every error. Needs torch; run by test/python_attention.sh with each installed version.
import os
import random
import unittest
import warnings
from unittest import mock

import torch
import torch.nn.functional as F

import quern
from python_export import Exports, run_exported
from quern._torch_run import run_all
from quern.torch import scaled_dot_product_attention as attention

warnings.filterwarnings("ignore", category=UserWarning)
warnings.filterwarnings("ignore", category=DeprecationWarning)
torch.set_num_threads(1)  # arrays are small

TOLERANCE = {torch.float64: 1e-11, torch.float32: 2e-5, torch.float16: 5e-3, torch.bfloat16: 4e-2}


def reference(q, k, v, mask=None, is_causal=False, scale=None, softcap=0.0, window=(None, None), sinks=None):
    (b, h, s, d), t = q.shape, k.shape[2]
    q, k, v = q.double(), k.double().repeat_interleave(h // k.shape[1], 1), v.double().repeat_interleave(h // k.shape[1], 1)
    x = torch.einsum("bhsd,bhtd->bhst", q, k) * (d ** -0.5 if scale is None else scale)
    x = softcap * torch.tanh(x / softcap) if softcap else x
    keep = torch.ones(b, h, s, t, dtype=torch.bool)
    if mask is not None:
        keep &= mask if mask.dtype == torch.bool else mask > -torch.inf
        x = x if mask.dtype == torch.bool else x + torch.where(mask > -torch.inf, mask.double(), torch.zeros((), dtype=torch.float64))
    at = torch.arange(s)[:, None] + (t - s if is_causal == "lower_right" else 0)
    for bound, sign in ((window[0], -1), (0 if is_causal else window[1], 1)):
        keep &= torch.ones((), dtype=torch.bool) if bound is None else sign * (torch.arange(t)[None] - at) <= bound
    e = torch.where(keep, x, torch.full_like(x, -1e300)).amax(3, keepdim=True).detach()
    e = e if sinks is None else torch.maximum(e, sinks.detach().double()[None, :, None, None])
    p = torch.where(keep, torch.exp(torch.where(keep, x - e, torch.zeros_like(x))), torch.zeros_like(x))
    total = p.sum(3, keepdim=True) + (0 if sinks is None else torch.exp(sinks.double()[None, :, None, None] - e))
    return torch.where(keep.any(3, keepdim=True), p / torch.where(total > 0, total, torch.ones_like(total)), torch.zeros_like(p)) @ v


def leaf(shape, dtype, way=0, size=1.0):
    """way: dense; heads of one position side by side; any other strides"""
    b, h, s, d = shape
    if way == 0:
        x = torch.randn(b, h, s, d)
    elif way == 1:
        x = torch.randn(b, s, h, d).transpose(1, 2)
    else:
        x = torch.randn(d, h, 2 * b, s).permute(2, 1, 3, 0)[::2]
    return (x * size).to(dtype).requires_grad_()


def compare(self, operands, how, mask=None, sinks=None):
    """Result and gradients by all operands, mask and sinks that have some."""
    dtype = operands[0].dtype
    y = attention(*operands, mask, sinks=sinks, **how)
    z = reference(*operands, mask, sinks=sinks, **how)
    g = torch.randn_like(y)
    by = [t for t in (*operands, mask, sinks) if t is not None and t.requires_grad]
    got, want = torch.autograd.grad(y, by, g), torch.autograd.grad(z, by, g.double())
    for what, a, b in zip(("y", "dq", "dk", "dv", "dm", "dm"), (y, *got), (z, *want)):
        self.assertEqual(a.dtype, dtype if a is y else b.dtype)
        error = ((a.double() - b.double()).abs().max() / (1 + b.double().abs().max())).item()
        self.assertLess(error, TOLERANCE[dtype], f"{what} of {[tuple(t.shape) for t in operands]} {dtype} {how}, mask {None if mask is None else tuple(mask.shape)}")
    return y


def random_mask(r, shape, dtype):
    """With rows that have no position."""
    rank = r.randint(1, 4)
    size = [1 if r.random() < 0.3 else n for n in shape[4 - rank:]]
    if r.random() < 0.5:
        return torch.rand(size) < 0.6
    m = torch.randn(size)
    m[torch.rand(size) < 0.3] = -torch.inf
    return m.to(dtype).requires_grad_(r.random() < 0.7)


class Gradients(unittest.TestCase):
    def test_random(self):
        for seed in range(int(os.environ.get("COUNT", 16))):
            r = random.Random(seed)
            torch.manual_seed(seed)
            hk, s, t = r.randint(1, 3), r.randint(1, 9), r.randint(1, 9)
            b, h, d, dv = r.randint(1, 2), hk * r.randint(1, 3), r.randint(1, 8), r.randint(1, 8)
            dtype, way = r.choice(list(TOLERANCE)), r.randint(0, 2)
            operands = [leaf((b, h, s, d), dtype, way), leaf((b, hk, t, d), dtype, way), leaf((b, hk, t, dv), dtype, way)]
            mask = random_mask(r, (b, h, s, t), dtype) if r.random() < 0.5 else None
            sinks = torch.randn(h).to(dtype).requires_grad_() if r.random() < 0.3 else None
            how = {"is_causal": r.choice([False, True, "lower_right"])}
            how.update({"scale": 0.3} if r.random() < 0.3 else {})
            how.update({"softcap": 1.5} if r.random() < 0.3 else {})
            how.update({"window": (r.choice([None, 0, 2]), r.choice([None, 0, 2]))} if r.random() < 0.3 else {})
            compare(self, operands, how, mask, sinks)

    def test_larger(self):
        """Rows of several vectors and blocks."""
        torch.manual_seed(1)
        for way in (0, 1):
            q, k, v = (leaf((1, h, s, 64), torch.float32, way) for h, s in ((4, 130), (2, 150), (2, 150)))
            y = compare(self, [q, k, v], {"is_causal": True})
            self.assertEqual(y.transpose(1, 2).is_contiguous(), way == 1)

    def test_parts(self):
        """Gradients by parts are those of all queries at once, and no part has more scores than it may have."""
        torch.manual_seed(6)
        longer, mask = (300, 230), lambda *shape: torch.randn(*shape, requires_grad=True)
        cases = [(0, {}, None), (1, {"is_causal": True}, None), (0, {"is_causal": "lower_right", "window": (50, None)}, None), (1, {"window": (3, 5)}, None),
                 (0, {"window": (None, 40)}, None), (0, {"window": (0, 0)}, None), (0, {"is_causal": True}, longer), (1, {"is_causal": "lower_right"}, longer),
                 (0, {"is_causal": True, "window": (20, None)}, longer), (0, {"is_causal": "lower_right", "window": (20, None)}, longer)]
        for i, (way, how, sizes) in enumerate(cases):
            s, t = sizes or (200, 230)
            q, k, v = (leaf((2, h, n, 8), torch.float32, way) for h, n in ((4, s), (2, t), (2, t)))
            m = (mask(4, 1, t), torch.rand(s, t) < 0.7, None, mask(2, 4, s, t), mask(t))[i % 5]
            with mock.patch("quern._attention.SCORES", 1 << 16), mock.patch("quern._attention.is_whole", return_value=False), \
                    mock.patch("quern._attention.run_all", wraps=run_all) as runs:
                compare(self, [q, k, v], how, m, torch.randn(4, requires_grad=True))
                self.check_scores(runs, 1 << 16, 4)

    def test_whole(self):
        """One call, whatever the number of scores is, with the statistics of the forward pass, unless a mask has gradients."""
        q, k, v = (leaf((1, 2, n, 8), torch.float32) for n in (150, 170, 170))
        for mask, calls in ((None, 1), (torch.rand(150, 170) < 0.9, 1), (torch.randn(150, 170, requires_grad=True), 3)):
            with mock.patch("quern._attention.SCORES", 1 << 15), mock.patch("quern._attention.run_all", wraps=run_all) as runs:
                compare(self, [q, k, v], {}, mask)
            grads = [x for name, _, _, x, _ in (c.args for c in runs.call_args_list) if name == "quern::AttentionGrad"]
            self.assertEqual(len(grads), calls)
            self.assertTrue(all(x[9] is not None and x[10] is not None for x in grads))

    def check_scores(self, runs, limit, heads):
        parts = [x for name, _, _, x, _ in (c.args for c in runs.call_args_list) if name == "quern::AttentionGrad"]
        self.assertGreater(len(parts), 1)
        for q, k, *_ in parts:
            self.assertLessEqual(q.shape[0] * heads * q.shape[-2 if q.dim() == 4 else 1] * k.shape[-2 if k.dim() == 4 else 1], limit)

    def test_against_function(self):
        torch.manual_seed(2)
        q, k, v = (leaf((2, 3, s, 16), torch.float32) for s in (20, 30, 30))
        for mask, how in ((None, {}), (torch.randn(20, 30), {}), (torch.rand(2, 1, 20, 30) < 0.8, {}), (None, {"is_causal": True})):
            g = torch.randn(2, 3, 20, 16)
            got = torch.autograd.grad(attention(q, k, v, mask, **how), (q, k, v), g)
            name = "scaled_dot_product_attention" if hasattr(F, "scaled_dot_product_attention") else "_scaled_dot_product_attention"
            want = getattr(F, name)(q, k, v, mask, **how)
            want = torch.autograd.grad(want[0] if isinstance(want, tuple) else want, (q, k, v), g)
            for a, b in zip(got, want):
                torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)

    def test_gradcheck(self):
        torch.manual_seed(3)
        q, k, v = (leaf((1, h, s, d), torch.float64) for h, s, d in ((4, 3, 2), (2, 4, 2), (2, 4, 3)))
        mask, sinks = torch.randn(4, 1, 4, dtype=torch.float64).requires_grad_(), torch.randn(4, dtype=torch.float64).requires_grad_()
        how = dict(is_causal="lower_right", softcap=2.0)
        torch.autograd.gradcheck(lambda q, k, v, m, s: attention(q, k, v, m, sinks=s, **how), (q, k, v, mask, sinks))

    def test_hard_values(self):
        torch.manual_seed(4)
        q, k, v = (leaf((1, 2, 6, 8), torch.float32) for _ in range(3))
        none = torch.ones(6, 6, dtype=torch.bool)
        none[2:4] = False
        y = compare(self, [q, k, v], {}, none)
        self.assertTrue((y[:, :, 2:4] == 0).all())
        (gq,) = torch.autograd.grad(attention(q, k, v, none), q, torch.ones_like(y))
        self.assertTrue((gq[:, :, 2:4] == 0).all())
        low = torch.zeros(6, 6)
        low[2:4] = torch.finfo(torch.float32).min  # a finite mask excludes nothing: all scores of the row are equal
        got = attention(q, k, v, low)
        torch.testing.assert_close(got[:, :, 2:4], v.mean(2, keepdim=True).expand(-1, -1, 2, -1))
        (gv,) = torch.autograd.grad(got[:, :, 2:4].sum(), v)
        torch.testing.assert_close(gv, torch.full_like(gv, 2 / 6))
        same = torch.zeros(1, 2, 6, 8).requires_grad_()  # ties
        compare(self, [same, k, v], {"is_causal": True})
        big = [leaf((1, 2, 6, 8), torch.float32, size=s) for s in (60, 60, 1)]  # exponentials of f32 end at 88
        self.assertTrue(all(t.isfinite().all() for t in torch.autograd.grad(attention(*big).sum(), big)))
        compare(self, [t.detach().double().requires_grad_() for t in big], {})
        compare(self, [q, k, v], {}, sinks=torch.tensor([200.0, -200.0], requires_grad=True))

    def test_training(self):
        torch.manual_seed(5)
        w = torch.nn.Linear(16, 48)
        optimizer = torch.optim.Adam(w.parameters(), lr=0.05)
        x, target, losses = torch.randn(2, 10, 16), torch.randn(2, 10, 16), []
        for _ in range(20):
            q, k, v = (t.view(2, 10, 4, 4).transpose(1, 2) for t in w(x).split(16, 2))
            y = attention(q, k, v, is_causal=True).transpose(1, 2).reshape(2, 10, 16)
            loss = ((y - target) ** 2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        self.assertLess(losses[-1], 0.9 * losses[0])

    def test_without(self):
        """No gradients, those of some operands, second ones, no elements."""
        q, k, v = (leaf((1, 2, 4, 8), torch.float32) for _ in range(3))
        with torch.no_grad():
            self.assertFalse(attention(q, k, v).requires_grad)
        y = attention(q.detach(), k, v.detach())
        (g,) = torch.autograd.grad(y.sum(), k)
        want = torch.autograd.grad(reference(q, k, v).sum(), k)[0]
        torch.testing.assert_close(g, want)
        (g,) = torch.autograd.grad(attention(q, k, v).sum(), q, create_graph=True)
        with self.assertRaisesRegex(NotImplementedError, "first derivatives only"):
            g.sum().backward()
        empty = [leaf((1, 2, s, 8), torch.float32) for s in (4, 0, 0)]
        y = attention(*empty)
        self.assertTrue((y == 0).all() and y.shape == (1, 2, 4, 8))
        self.assertTrue((torch.autograd.grad(y.sum(), empty[0])[0] == 0).all())

    def test_no_columns(self):
        """Without columns of queries and keys all scores are 0: a row is the mean of the values that its mask leaves."""
        for way, how in ((0, {}), (1, {"is_causal": True}), (0, {"window": (1, 1), "softcap": 2.0}), (0, {"scale": 3.0})):
            q, k, v = (leaf((2, h, n, d), torch.float32, way) for h, n, d in ((4, 5, 0), (2, 6, 0), (2, 6, 3)))
            for mask in (None, torch.randn(5, 6, requires_grad=True)):
                y = attention(q, k, v, mask, **how)
                g, by = torch.randn_like(y), [q, k, v] if mask is None else [q, k, v, mask]
                got = torch.autograd.grad(y, by, g)
                one = [F.pad(t, (0, 1)) for t in (q, k)]
                z = reference(*one, v, mask, **how)
                want = torch.autograd.grad(z, by, g.double())
                for a, b in zip((y, *got), (z, *want)):
                    torch.testing.assert_close(a, b.to(a.dtype), rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(attention(q[:, :, :, :0], k, v), v.mean(2, keepdim=True).repeat_interleave(2, 1).expand(2, 4, 5, 3))


class Errors(unittest.TestCase):
    def refuse(self, error, text, *operands, **how):
        with self.assertRaisesRegex(error, text):
            attention(*operands, **how)

    def test_errors(self):
        q, k, v = torch.zeros(2, 4, 5, 8), torch.zeros(2, 2, 7, 8), torch.zeros(2, 2, 7, 3)
        self.refuse(TypeError, "query is a list", [1], k, v)
        self.refuse(TypeError, "key has type torch.float64, expected torch.float32", q, k.double(), v)
        self.refuse(TypeError, "query has type torch.int64", q.long(), k, v)
        self.refuse(ValueError, r"key has shape \(2, 2, 7, 6\), which does not fit the query's \(2, 4, 5, 8\)", q, k[..., :6], v)
        self.refuse(ValueError, r"value has shape \(1, 2, 7, 3\), which does not fit the query's \(2, 4, 5, 8\)", q, k, v[:1])
        self.refuse(ValueError, r"value has shape \(2, 2, 6, 3\), expected heads and positions of the key's \(2, 2, 7, 8\)", q, k, v[:, :, :6])
        self.refuse(ValueError, r"query \(2, 3, 5, 8\) has 3 heads, which is no multiple of the 2 of the key \(2, 2, 7, 8\)", q[:, :3], k, v)
        self.refuse(ValueError, "enable_gqa is False", q, k, v, enable_gqa=False)
        self.refuse(ValueError, r"query has shape \(4, 5, 8\), expected 4 axes", q[0], k, v)
        self.refuse(ValueError, r"attn_mask has shape \(4, 7\), which cannot be expanded to \(2, 4, 5, 7\)", q, k, v, torch.zeros(4, 7))
        self.refuse(TypeError, "attn_mask has type torch.int32", q, k, v, torch.zeros(5, 7, dtype=torch.int32))
        self.refuse(ValueError, r"sinks have shape \(2,\) and type torch.float32, expected floats of shape \(4,\)", q, k, v, sinks=torch.zeros(2))
        self.refuse(ValueError, "is_causal is 'upper'", q, k, v, is_causal="upper")
        self.refuse(ValueError, "softcap is -1", q, k, v, softcap=-1)
        self.refuse(ValueError, r"window is \(1,\)", q, k, v, window=(1,))
        self.refuse(TypeError, r"window is 3, expected two integers", q, k, v, window=3)
        self.refuse(TypeError, "window is None, expected two integers", q, k, v, window=None)
        self.refuse(TypeError, "sinks is a list, expected a tensor", q, k, v, sinks=[1.0, 2.0, 3.0, 4.0])
        self.refuse(TypeError, "attn_mask is a list, expected a tensor", q, k, v, [[True] * 7] * 5)
        self.refuse(ValueError, "sinks lie on 'meta', the query on 'cpu'", q, k, v, sinks=torch.zeros(4, device="meta"))
        self.refuse(ValueError, "attn_mask lies on 'meta', the query on 'cpu'", q, k, v, torch.zeros(5, 7, device="meta"))
        self.refuse(NotImplementedError, "dropout_p is 0.1", q, k, v, dropout_p=0.1)


class Export(Exports, unittest.TestCase):
    def check(self, **how):
        class Net(torch.nn.Module):
            def forward(self, x):
                q, k, v = (t.reshape(2, 6, 2, 4).transpose(1, 2) for t in x.split(8, 2))
                return attention(q, k, v, is_causal=True)

        x = torch.randn(2, 6, 24)
        for got, want in run_exported(Net().eval(), x, [x], **how):
            torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)


if __name__ == "__main__":
    print(f"torch {torch.__version__}, {quern.library_path()}")
    unittest.main(verbosity=0)
