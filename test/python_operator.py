#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
#
# quern.torch.Operator: gradients of random convolutions, transposed ones, matrix products, attentions and filters by gradcheck in f64 and beside
# PyTorch's; operators without gradients; and arrays of CUDA devices by __cuda_array_interface__ and DLPack, in a simulated driver (fake_cuda.c).
# Needs torch; run by test/python_operator.sh with each installed version.
import copy
import math
import os
import pickle
import random
import threading
import types
import unittest
import warnings
from unittest import mock

import numpy as np
import torch
import torch.nn.functional as F

import python_cuda
import quern
from quern.torch import Operator

warnings.filterwarnings("ignore", category=UserWarning)
warnings.filterwarnings("ignore", category=DeprecationWarning)
torch.set_num_threads(1)  # arrays are small
SEED = int(os.environ.get("SEED", 0))


def tensor(rng, *shape, dtype=torch.float64):
    """Of axes in any order in memory."""
    order = rng.sample(range(len(shape)), len(shape))
    g = torch.Generator().manual_seed(rng.getrandbits(31))
    x = torch.randn([shape[d] for d in order], dtype=dtype, generator=g).permute([order.index(d) for d in range(len(shape))])
    return x.requires_grad_()


class Gradients(unittest.TestCase):
    def agree(self, op, theirs, *inputs):
        """Values and gradients are PyTorch's, and those of finite differences."""
        y, want = op(*inputs), theirs(*inputs)
        torch.testing.assert_close(y, want, rtol=1e-9, atol=1e-9)
        g = torch.randn_like(want)
        of = [t for t in inputs if t is not None and t.requires_grad]
        for got, right in zip(torch.autograd.grad(y, of, g), torch.autograd.grad(want, of, g)):
            torch.testing.assert_close(got, right, rtol=1e-8, atol=1e-8)
        self.assertTrue(torch.autograd.gradcheck(op, inputs, fast_mode=True))

    def test_conv(self):
        rng = random.Random(SEED)
        for _ in range(8):
            s, group = rng.randint(1, 2), rng.randint(1, 2)
            kernel, stride, dilation = ([rng.randint(1, 3) for _ in range(s)] for _ in range(3))
            pads = [rng.randint(0, 2) for _ in range(s)]
            size = [(k - 1) * d + 1 + rng.randint(0, 4) for k, d in zip(kernel, dilation)]
            c, m, n = rng.randint(1, 3), rng.randint(1, 3), rng.randint(1, 2)
            x, w = tensor(rng, n, group * c, *size), tensor(rng, group * m, c, *kernel)
            bias = tensor(rng, group * m) if rng.randint(0, 1) else None
            op = Operator("Conv", {"strides": stride, "dilations": dilation, "pads": pads * 2, "group": group})
            conv = [F.conv1d, F.conv2d][s - 1]
            self.agree(op, lambda *a: conv(*a, stride=stride, padding=pads, dilation=dilation, groups=group), x, w, *([bias] if bias is not None else []))

    def test_conv_transpose(self):
        rng = random.Random(SEED + 1)
        for _ in range(6):
            s, group = rng.randint(1, 2), rng.randint(1, 2)
            kernel, stride, dilation = ([rng.randint(1, 3) for _ in range(s)] for _ in range(3))
            pads = [rng.randint(0, (k - 1) * d // 2) for k, d in zip(kernel, dilation)]
            more = [rng.randint(0, t - 1) for t in stride]
            size = [rng.randint(2, 4) for _ in range(s)]
            x, w = tensor(rng, 2, 2 * group, *size), tensor(rng, 2 * group, 2, *kernel)
            bias = tensor(rng, 2 * group) if rng.randint(0, 1) else None
            op = Operator("ConvTranspose", {"strides": stride, "dilations": dilation, "pads": pads * 2, "group": group, "output_padding": more})
            conv = [F.conv_transpose1d, F.conv_transpose2d][s - 1]
            self.agree(op, lambda *a: conv(*a, stride=stride, padding=pads, dilation=dilation, groups=group, output_padding=more), x, w,
                       *([bias] if bias is not None else []))

    def test_products(self):
        rng = random.Random(SEED + 2)
        for a, b in (((3, 4), (4, 5)), ((2, 3, 4), (4, 5)), ((2, 1, 3, 4), (5, 4, 2)), ((4,), (4, 3)), ((2, 3, 4), (4,)), ((4,), (4,)), ((4, 3), (2, 3, 1))):
            self.agree(Operator("MatMul"), torch.matmul, tensor(rng, *a), tensor(rng, *b))
        for _ in range(8):
            ta, tb, alpha, beta = rng.randint(0, 1), rng.randint(0, 1), rng.choice([1, 0.5, 2]), rng.choice([1, 3.0])
            m, n, k = (rng.randint(1, 4) for _ in range(3))
            a, b = tensor(rng, *((k, m) if ta else (m, k))), tensor(rng, *((n, k) if tb else (k, n)))
            c = rng.choice([None, tensor(rng, n), tensor(rng, m, 1), tensor(rng, m, n)])
            op = Operator("Gemm", {"transA": ta, "transB": tb, "alpha": alpha, "beta": beta})

            def theirs(a, b, c=None):
                y = alpha * ((a.T if ta else a) @ (b.T if tb else b))
                return y if c is None else y + beta * c
            self.agree(op, theirs, a, b, *([] if c is None else [c]))

    def test_attention(self):
        rng = random.Random(SEED + 3)
        for causal in (0, 1):
            for with_mask in (False, True):
                q, k, v = (tensor(rng, 2, 2, s, 4) for s in (3, 3, 3))
                mask = [tensor(rng, 3, 3)] if with_mask and not causal else []
                self.agree(Operator("Attention", {"is_causal": causal}),
                           lambda q, k, v, m=None: theirs_attention(q, k, v, m, causal), q, k, v, *mask)

    def test_filter(self):
        rng = random.Random(SEED + 4)
        x, w, b = tensor(rng, 1, 2, 4, 5), tensor(rng, 1, 9, 4, 5), tensor(rng, 2)
        layer = quern.torch.weighted_filter
        self.agree(Operator("quern::WeightedFilter", {"kernel_shape": [3, 3], "transform": "softmax"}),
                   lambda *a: layer(*a[:2], 3, *a[2:], transform="softmax"), x, w, b)

    def test_some(self):
        """Only those that are required; other types; no gradients at all."""
        rng = random.Random(SEED + 5)
        x, w = tensor(rng, 1, 2, 5, 5, dtype=torch.float32), tensor(rng, 3, 2, 3, 3, dtype=torch.float32).detach()
        op = Operator("Conv")
        op(x, w).sum().backward()
        torch.testing.assert_close(x.grad, torch.autograd.grad(F.conv2d(x, w).sum(), x)[0])
        self.assertFalse(op(x.detach(), w).requires_grad)
        with torch.no_grad():
            self.assertFalse(op(x, w).requires_grad)
        one, two = Operator("Split", {"axis": 1}, outputs=2)(x.detach())
        torch.testing.assert_close(torch.cat([one, two], 1), x.detach())

    def test_copies(self):
        x = torch.randn(2, 3)
        for op in (Operator("Concat", {"axis": 1}),):
            for same in (op, copy.deepcopy(op), pickle.loads(pickle.dumps(op))):
                torch.testing.assert_close(same(x, x), torch.cat([x, x], 1))
        self.assertEqual(repr(Operator("Concat", {"axis": 1})), "Operator('Concat', {'axis': 1})")

    def test_errors(self):
        x, w = torch.randn(1, 2, 5, requires_grad=True), torch.randn(2, 2, 3)
        with self.assertRaisesRegex(NotImplementedError, "no gradient of 'Softmax': there are those of Attention, Conv, .*no_grad"):
            Operator("Softmax")(x)
        with self.assertRaisesRegex(NotImplementedError, "'ConvTranspose' with attribute 'output_shape'"):
            Operator("ConvTranspose", {"output_shape": [7]})(x, w)
        with self.assertRaisesRegex(NotImplementedError, "with 2 outputs"):
            Operator("Attention", outputs=2)(*[torch.randn(1, 1, 2, 2, requires_grad=True)] * 3)
        with self.assertRaisesRegex(TypeError, "input 1 of 'Conv' is a list"):
            Operator("Conv")(x, [1])
        with self.assertRaisesRegex(quern.Error, "no attribute 'pad'"):
            Operator("Conv", {"pad": [1, 1]})
        with self.assertRaisesRegex(NotImplementedError, "no second derivatives of 'Conv'"):
            g, = torch.autograd.grad(Operator("Conv")(x, w).sum(), x, create_graph=True)
            g.sum().backward()


def theirs_attention(q, k, v, mask, causal):
    s = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
    if mask is not None:
        s = s + mask
    if causal:
        s = s.masked_fill(torch.ones(s.shape[-2:], dtype=torch.bool).triu(1), -math.inf)
    return s.softmax(-1) @ v


@unittest.skipUnless(python_cuda.is_there, "no library that looks like CUDA's (test/python.sh names it)")
@unittest.skipIf(torch.cuda.is_available(), "there is a CUDA device")
class Interfaces(python_cuda.Simulated):
    """Arrays like CuPy's in a simulated device's memory, which does not compute: kernels get their addresses and stream."""

    def array(self, *shape, **more):
        at, stream = self.memory(4 * math.prod(shape)), self.stream.value

        class ndarray:
            __module__ = "cupy"
            dtype = np.dtype("f")
            __cuda_array_interface__ = dict(shape=shape, typestr="<f4", data=(at, False), version=3, strides=None, stream=stream, **more)
            address = at
        return ndarray()

    def test_arrays(self):
        made = []
        cupy = types.SimpleNamespace(empty=lambda shape, dtype: made.append(self.array(*shape)) or made[-1], ndarray=())
        quern._nvrtc.find_compiler()
        with mock.patch.dict("sys.modules", cupy=cupy):
            x, y = self.array(4, 8), self.array(4, 8)
            try:
                z = quern.Operator("Add", device="cuda:0")(x, y)
            except quern.Error as e:
                if "nvrtc" in str(e) or "nvcc" in str(e):
                    self.skipTest(str(e))
                raise
            self.assertIs(z, made[-1])
            for a in (x, y, z):
                self.assertTrue(self.cuda.fake_was_given(a.address))
            net = quern.compile(b"graph {\n  input %x: f32[H,4]\n  %y: none[?] = Relu(%x)\n  output %y\n}\n", device="cuda:0")
            os.environ["QUERN_FAKE_CUDA"] = "buffers=2"
            x = self.array(6, 4)
            y = net(x)
            self.assertIs(y, made[-1])
            out, thrown = self.array(6, 4), []

            def work():
                try:
                    net.run([x], [out])
                except BaseException as e:
                    thrown.append(e)
            t = threading.Thread(target=work)
            t.start()
            t.join()
            self.assertEqual(thrown, [])
            for a in (x, y, out):
                self.assertTrue(self.cuda.fake_was_given(a.address))
            with self.assertRaisesRegex(ValueError, "lies in the host's memory"):
                quern.Operator("Add", device="cuda:0")(self.array(2, 2), np.ones((2, 2), "f"))


if __name__ == "__main__":
    print(f"torch {torch.__version__}, {quern.library_path()}")
    unittest.main(verbosity=0)
