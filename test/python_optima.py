# SPDX-License-Identifier: Apache-2.0
"""OptimaV2's Manager over quern (python/compat/optima_v2): the text of its manual as printed (test/corpus/optima), from a module of PyTorch to its folder,
and that folder run on the devices that are here, beside PyTorch. Run by test/python_optima.sh."""
import json
import os
import pathlib
import shutil
import sys
import tempfile
import textwrap
import unittest

HOME = tempfile.TemporaryDirectory()
os.environ.update(HOME=HOME.name, XDG_CONFIG_HOME=HOME.name)  # where the manual's paths begin

import numpy as np
import torch
import torch.nn as nn
from optima_v2 import devices
from optima_v2.manager import Manager
from zaiConverter.pytorch_module import converter

import quern

HERE = pathlib.Path(__file__).resolve().parent
FOLDER = pathlib.Path(HOME.name)
HERE_TOO = sys.argv.pop(1).split() if len(sys.argv) > 1 else []  # devices besides processors: "OPENCL:0 VULKAN:0"
torch.manual_seed(1)
torch.set_num_threads(1)


class Block(nn.Module):
    """Of MediaPipe's detectors: a depthwise convolution, a pointwise one, a padded shortcut, PReLU."""

    def __init__(self, channels, out, stride=1):
        super().__init__()
        self.depth = nn.Conv2d(channels, channels, 3, stride, 1, groups=channels)
        self.point = nn.Conv2d(channels, out, 1)
        self.pool = nn.MaxPool2d(2, 2) if stride == 2 else nn.Identity()
        self.more, self.act = out - channels, nn.PReLU(out)

    def forward(self, x):
        return self.act(self.point(self.depth(x)) + nn.functional.pad(self.pool(x), (0, 0, 0, 0, 0, self.more)))


class MediapipeNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Sequential(nn.Conv2d(3, 8, 5, 2, 2), nn.PReLU(8))
        self.body = nn.ModuleList([Block(8, 8), Block(8, 16, 2), Block(16, 16), Block(16, 24, 2), Block(24, 24)])
        self.side = nn.Conv2d(24, 16, 1)
        self.score, self.box = nn.Conv2d(16, 2, 1), nn.Conv2d(16, 8, 1)

    def forward(self, x):
        kept, x = None, self.first(x)
        for k, block in enumerate(self.body):
            x = block(x)
            kept = x if k == 2 else kept
        x = kept + nn.functional.interpolate(self.side(x), scale_factor=2, mode="bilinear", align_corners=False)
        return self.score(x).flatten(2), self.box(x)


class UNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.down = nn.ModuleList([nn.Conv2d(3, 8, 3, 1, 1), nn.Conv2d(8, 16, 3, 1, 1), nn.Conv2d(16, 24, 3, 1, 1)])
        self.up = nn.ModuleList([nn.ConvTranspose2d(24, 16, 2, 2), nn.ConvTranspose2d(16, 8, 2, 2)])
        self.join = nn.ModuleList([nn.Conv2d(32, 16, 3, 1, 1), nn.Conv2d(16, 8, 3, 1, 1)])
        self.last = nn.Conv2d(8, 1, 1)

    def forward(self, x):
        kept = []
        for k, conv in enumerate(self.down):
            x = torch.relu(conv(x))
            if k < 2:
                kept.append(x)
                x = nn.functional.max_pool2d(x, 2)
        for up, join in zip(self.up, self.join):
            x = torch.relu(join(torch.cat([up(x), kept.pop()], 1)))
        return torch.sigmoid(self.last(x))


def convert(model, inputs, path):
    c = converter.Torch2GraphConverter(tf_flip=True, torch_flip=False)
    graph = c.convert(model=model.eval(), fake_torch_data=inputs, gpu=False)
    c.reset_module()
    path.parent.mkdir(parents=True, exist_ok=True)
    c.export_to_gpickle(str(path), graph)
    return [n for n in graph.nodes if graph.nodes[n]["data"]["kind"] == "OpNode"]


def run_block(name, **given):
    """The block as printed."""
    text = (HERE / "corpus" / "optima" / name).read_text().split("\n", 3)[3]  # without the heading
    exec(compile(textwrap.dedent(text), name, "exec"), given)


class ManualTest(unittest.TestCase):
    def setUp(self):
        self.model = MediapipeNet()
        self.input = torch.rand(1, 3, 64, 64)
        self.folder = FOLDER / "models" / "mediapipe"
        self.operators = convert(self.model, [self.input], self.folder / "mediapipe.gpickle")
        on = {name: "HEXAGON:0" if 3 <= k < 12 else "X64:0" for k, name in enumerate(self.operators)}
        (self.folder / "mediapipe_allocation.json").write_text(json.dumps(on))

    def tearDown(self):
        shutil.rmtree(FOLDER / "outputs", ignore_errors=True)

    def files(self):
        top = FOLDER / "outputs" / "MediapipeNet"
        return {str(p.relative_to(top)) for p in top.rglob("*") if p.is_file()}

    def test_blocks_as_printed(self):
        samples = [(torch.rand(1, 3, 64, 64),) for _ in range(3)]
        run_block("manager.py", devices=devices, representative_data=samples)
        files = self.files()
        self.assertIn("model.meta", files)
        lists = [f for f in files if f.endswith("input_list.txt")]
        self.assertTrue(lists)
        self.assertTrue(any(f.endswith(".so") for f in files) and any(f.endswith("_0.meta") for f in files))
        self.check_recorded(pathlib.Path(lists[0]).parent, samples)

    def test_representative_data_as_printed(self):
        run_block("calibration.py", devices=devices, Manager=Manager, model=self.model, some_dataset_iterator=[(torch.rand(1, 3, 64, 64),)])
        self.assertIn("model.meta", self.files())

    def check_recorded(self, part, samples):
        """What enters the sub-graph for HEXAGON, recorded: as PyTorch computes it."""
        seen = []
        modules = [self.model.first, *self.model.body]
        hooks = [m.register_forward_hook(lambda m, i, o: seen.append(o.detach().numpy())) for m in modules]
        self.model(*samples[1])
        for h in hooks:
            h.remove()
        raw = [np.fromfile(p, np.float32) for p in sorted((FOLDER / "outputs" / "MediapipeNet" / part / "calib").glob("*/1.raw"))]
        self.assertTrue(raw)
        self.assertTrue(any(r.size == s.size and np.allclose(r, s.ravel(), atol=1e-5) for r in raw for s in seen))

    def test_errors(self):
        alloc, gpickle, all_kinds = self.folder / "mediapipe_allocation.json", self.folder / "mediapipe.gpickle", list(devices.DeviceEnum)
        with self.assertRaisesRegex(ValueError, "none of the listed devices"):
            Manager().optimize("Net", [devices.DeviceEnum.DEVICE_KIND_X64], str(gpickle), str(FOLDER / "outputs"), str(alloc))
        with self.assertRaisesRegex(ValueError, "no gpickle file"):
            Manager().optimize("Net", all_kinds, str(alloc), str(FOLDER / "outputs"), str(alloc))
        alloc.write_text('{"conv2d_1": "X64:0"}')
        with self.assertRaisesRegex(quern.Error, "no device"):
            Manager().optimize("Net", all_kinds, str(gpickle), str(FOLDER / "outputs"), str(alloc))
        with self.assertRaises((quern.Error, ValueError)):
            alloc.write_text(json.dumps({name: "HEXAGON:0" for name in self.operators}))
            Manager().optimize("Net", all_kinds, str(gpickle), str(FOLDER / "outputs"), str(alloc), [(torch.rand(1, 3, 32, 64),)])
        self.assertFalse((FOLDER / "outputs" / "Net").exists())


class RunTest(unittest.TestCase):
    """Over all devices that are here, equal to PyTorch."""

    def check(self, model, inputs, every):
        names = ["X64:0", *HERE_TOO, "X64:1"]
        with tempfile.TemporaryDirectory() as d:
            gpickle, alloc = pathlib.Path(d) / "net.gpickle", pathlib.Path(d) / "alloc.json"
            operators = convert(model, inputs, gpickle)
            on = {name: names[k // every % len(names)] for k, name in enumerate(operators)}
            alloc.write_text(json.dumps(on))
            kinds = ["X64", *(n.split(":")[0] for n in HERE_TOO)]
            path = Manager().optimize("Net", kinds, str(gpickle), d, str(alloc))
            self.assertEqual(path, os.path.join(d, "Net"))
            net = quern.Deployment(path)
            used = {s.device for s in net.subgraphs}
            self.assertEqual(used, set(on.values()))
            with torch.no_grad():
                want = model(*inputs)
            want = want if isinstance(want, tuple) else (want,)
            got = net(*inputs)
            got = got if isinstance(got, (tuple, list)) else (got,)
            for w, g in zip(want, got):
                np.testing.assert_allclose(np.asarray(g), w.numpy(), rtol=1e-4, atol=1e-4)

    def test_mediapipe(self):
        self.check(MediapipeNet(), [torch.rand(1, 3, 64, 64)], 3)

    def test_unet(self):
        self.check(UNet(), [torch.rand(1, 3, 32, 48)], 2)


if __name__ == "__main__":
    unittest.main()
