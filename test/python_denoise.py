# SPDX-License-Identifier: Apache-2.0
#
# examples/denoise: the network computes weighted averages only, at any size; exported it is the
# same network; training data is rendered once, is a function of the seed and excludes the held-out
# scenes; a few steps of training improve it, reproducibly. Needs torch; run by
# test/python_denoise.sh with each installed version.
import argparse
import os
import pathlib
import shutil
import sys
import tempfile
import unittest
import warnings

import numpy as np
import torch

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "examples" / "denoise"))

import data
import evaluate
import net as network
import quern
import train

warnings.filterwarnings("ignore")
torch.set_num_threads(1)
WIDTHS = (6, 8, 10)  # quick


def setUpModule():
    global work, scenes
    work = tempfile.mkdtemp()
    program = data.build_renderer(os.path.dirname(quern.library_path()), work)
    scenes = data.Set(os.path.join(work, "train"), data.FIRST_TRAINING, 3, 24, 2, 32, check=8)
    scenes.render(program, 2, lambda text: None)


def tearDownModule():
    shutil.rmtree(work)


def denoiser(seed=1):
    torch.manual_seed(seed)
    net = network.Denoiser(WIDTHS)
    for level in net.level:
        torch.nn.init.normal_(level.head.weight, std=0.5)  # weights that differ
    return net


def inputs(h, w, seed=1):
    torch.manual_seed(seed)
    return [torch.rand(1, c, h, w) for c in network.INPUTS.values()]


class Network(unittest.TestCase):
    SIZES = ((24, 40), (1, 1), (5, 3), (13, 18))

    def test_averages(self):
        for h, w in self.SIZES:
            colour, albedo, normal, depth = inputs(h, w)
            light = torch.tensor([0.3, 5.0, 0.01]).reshape(1, 3, 1, 1)
            want = light * (albedo + network.FLOOR)
            torch.testing.assert_close(denoiser()(want, albedo, normal, depth), want, rtol=1e-5, atol=1e-6)
            light = denoiser()(colour, albedo, normal, depth) / (albedo + network.FLOOR)
            given = colour / (albedo + network.FLOOR)
            for k in range(3):
                self.assertLessEqual(light[:, k].max(), given[:, k].max() * 1.00001)
                self.assertGreaterEqual(light[:, k].min(), given[:, k].min() * 0.99999)

    def test_gradients(self):
        net = denoiser()
        net(*inputs(13, 18)).square().sum().backward()
        for name, p in net.named_parameters():
            self.assertTrue(p.grad is not None and p.grad.abs().sum() > 0, name)

    def test_multiplications(self):
        counted, net = [], denoiser()
        for c in net.modules():
            if isinstance(c, torch.nn.Conv2d):
                c.register_forward_hook(lambda c, i, o: counted.append(c.weight.numel() * o.shape[2] * o.shape[3]))
        net(*inputs(16, 32))
        self.assertEqual(sum(counted) / (16 * 32), network.multiplications(WIDTHS))

    def test_export(self):
        net, path = denoiser().eval(), os.path.join(work, "net.onnx")
        network.export(net, path)
        program = quern.compile(path)
        for h, w in self.SIZES:
            x = inputs(h, w, seed=2)
            with torch.no_grad():
                torch.testing.assert_close(program(*x), net(*x), rtol=1e-4, atol=1e-5)

    def test_size(self):
        path = os.path.join(work, "large.onnx")
        network.export(network.Denoiser(), path)
        self.assertLess(os.path.getsize(path), 1000000)


class Data(unittest.TestCase):
    def test_folders(self):
        self.assertEqual(sorted(os.listdir(scenes.folder)), [str(s) for s in scenes.scenes])
        noisy, reference = scenes.load()
        self.assertEqual(tuple(noisy.shape), (3, 2, 10, 24, 24))
        self.assertEqual(tuple(reference.shape), (3, 3, 24, 24))
        self.assertTrue(torch.isfinite(noisy).all() and torch.isfinite(reference).all())
        # All that is rendered for a scene has noise of its own, around the same picture.
        for s in scenes.scenes:
            pictures = [scenes.noisy(s, 0)[:3], scenes.noisy(s, 1)[:3], scenes.converged(s), scenes.converged(s, "check")]
            for k, a in enumerate(pictures):
                for b in pictures[:k]:
                    self.assertFalse(np.array_equal(a, b))
            far, near = evaluate.psnr(pictures[0], pictures[2]), evaluate.psnr(np.mean(pictures[:2], 0), pictures[2])
            self.assertGreater(near, far)

    def test_rendered_once(self):
        said = []
        half = scenes.folder / str(scenes.scenes[1])
        half.rename(scenes.folder / f"{half.name}.part")  # as if interrupted
        scenes.render(os.path.join(work, "render"), 1, said.append)
        self.assertEqual(len(said), 1)
        self.test_folders()

    def test_held_out(self):
        o = argparse.Namespace(data=work, test_scenes=data.FIRST_TRAINING, test_size=8, test_reference=8)
        with self.assertRaises(ValueError):
            evaluate.held_out(o)
        o.test_scenes -= 1
        self.assertLess(max(evaluate.held_out(o).scenes), data.FIRST_TRAINING)

    def test_crops(self):
        noisy, reference = scenes.load()
        # A picture whose noisy planes are functions of the reference stays one, however it is turned and tinted.
        noisy[:, :, 0:3], noisy[:, :, 9] = reference[:, None], 0.25
        noisy[:, :, 6:9] = reference[:, None].float().clamp(max=1).half()
        a, b = (data.Crops(noisy, reference, 16, 4, seed=3) for _ in range(2))
        changed = 0
        for _ in range(6):
            one, two = a.next(), b.next()
            for x, y in zip(one, two):
                self.assertTrue(torch.equal(x, y))
            colour, albedo, normal, depth, want = one
            self.assertEqual(tuple(want.shape), (4, 3, 16, 16))
            torch.testing.assert_close(colour, want)
            self.assertTrue((depth == 0.25).all())
            changed += int((normal < 0).any())
        self.assertGreater(changed, 0)
        self.assertFalse(torch.equal(a.next()[0], data.Crops(noisy, reference, 16, 4, seed=4).next()[0]))


class Training(unittest.TestCase):
    def run_once(self, steps, f32=True):
        torch.manual_seed(1)
        net = network.Denoiser(WIDTHS)
        crops = data.Crops(*scenes.load(), 16, 2, seed=1)
        train.train(net, crops, argparse.Namespace(rate=3e-3, steps=steps, minutes=0, f32=f32, compile=None), say=lambda *a, **k: None)
        fresh = data.Crops(*scenes.load(), 16, 16, seed=9)
        with torch.no_grad():
            return float(train.loss_of(net, fresh)), [p.detach().clone() for p in net.parameters()]

    def test_learns(self):
        before, _ = self.run_once(0)
        after, one = self.run_once(60)
        again, two = self.run_once(60)
        self.assertLess(after, 0.95 * before)
        self.assertEqual(after, again)
        self.assertTrue(all(torch.equal(a, b) for a, b in zip(one, two)))

    def test_learns_in_bf16(self):
        before, _ = self.run_once(0)
        after, weights = self.run_once(60, f32=False)
        self.assertLess(after, 0.95 * before)
        self.assertTrue(all(p.dtype == torch.float32 for p in weights))

    def test_ends_in_time(self):
        net, crops = denoiser(), data.Crops(*scenes.load(), 16, 2, seed=1)
        steps = train.train(net, crops, argparse.Namespace(rate=1e-3, steps=10 ** 9, minutes=0.01, f32=True, compile=None), say=lambda *a, **k: None)
        self.assertLess(steps, 10 ** 6)

    def test_keeps(self):
        net, path, said = denoiser(), os.path.join(work, "kept.pt"), []
        o = argparse.Namespace(rate=1e-3, steps=100, minutes=0, f32=True, compile=None)
        train.train(net, data.Crops(*scenes.load(), 16, 2, seed=1), o, lambda text, flush: said.append(text), lambda: train.keep(net, scenes, path))
        self.assertEqual(len(said), 50)
        again = denoiser(seed=2)
        again.load_state_dict(torch.load(path))
        self.assertTrue(all(torch.equal(a, b) for a, b in zip(net.parameters(), again.parameters())))
        self.assertIn(f"{train.gain(again, scenes):.2f} dB", said[-1])

    def test_rate(self):
        rates = [train.rate_at(k / 500) for k in range(501)]
        self.assertTrue(all(0 <= r <= 1 for r in rates))
        self.assertGreater(max(rates), 0.95)
        self.assertLess(rates[500], 1e-6)

    def test_tone(self):
        """Approximates the measured curve, except for the darkest values and those brighter than
        white; and is monotonic."""
        x = torch.linspace(0.01, 1, 500)
        self.assertLess((train.tone(x) - torch.from_numpy(evaluate.encode(x.numpy()))).abs().max(), 0.07)
        y = train.tone(torch.cat((torch.linspace(0, 1, 200), torch.logspace(0.01, 4, 200))))
        self.assertTrue((y[1:] > y[:-1]).all())


class Measure(unittest.TestCase):
    def test_encoding(self):
        x = np.linspace(0, 1, 1001, dtype=np.float32)
        np.testing.assert_allclose(evaluate.decode(evaluate.encode(x)), x, atol=2e-6)
        self.assertAlmostEqual(evaluate.psnr(np.zeros((3, 4, 4)), np.ones((3, 4, 4))), 0, places=6)
        self.assertAlmostEqual(evaluate.psnr(np.zeros((3, 4, 4)), np.full((3, 4, 4), 0.001)), -20 * np.log10(0.01292), places=4)


if __name__ == "__main__":
    print(f"torch {torch.__version__}, {quern.library_path()}")
    unittest.main(verbosity=0)
