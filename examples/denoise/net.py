# SPDX-License-Identifier: Apache-2.0
"""A denoiser for path traced pictures that predicts, for every pixel, how its neighbours are to be mixed.

Colour is divided by albedo, so that textures are not blurred. A small U-Net looks at that, at albedo, normals and depth, and gives 5 x 5
kernels (softmax) at several scales. From the coarsest scale on, what was filtered there is doubled in size and mixed with the noisy
picture of the next finer scale, by a factor that the network gives, too, and filtered again: kernels of 25 weights reach far, and the finer ones
also choose from which pixels of the coarser scale to take. All that is done with light is averaging, so that
nothing appears that was not in the picture. (Bako et al. 2017: Kernel-predicting convolutional networks for denoising Monte Carlo
renderings; Vogels et al. 2018: Denoising with kernel prediction and asymmetric loss functions: several scales.)
"""
import inspect
import warnings

import torch
import torch.nn.functional as F
from quern.torch import WeightedFilter
from torch import nn

KERNEL = 5
WIDTHS = (24, 32, 48, 64)  # channels of each scale, the finest first
FLOOR = 0.05  # added to albedo before colour is divided by it
INPUTS = {"colour": 3, "albedo": 3, "normal": 3, "depth": 1}  # and their channels, as examples/denoise/render writes them


def conv(n_in, n_out, size=3, stride=1):
    return nn.Conv2d(n_in, n_out, size, stride=stride, padding=size // 2)


class Level(nn.Module):
    """One scale: on the way down from the finer one, on the way up to it, and what its kernels are made from."""

    def __init__(self, n_in, n, n_finer, is_coarsest):
        super().__init__()
        first = n_finer == 0
        self.down = conv(n_in, n, stride=1 if first else 2)
        self.here = conv(n, n)
        self.mixes = not is_coarsest
        self.back = conv(n, n) if self.mixes else None
        self.head = conv(n, KERNEL * KERNEL + self.mixes, 1)
        self.up = None if first else conv(n, n_finer, 1)


class Denoiser(nn.Module):
    def __init__(self, widths=WIDTHS):
        super().__init__()
        self.widths = tuple(widths)
        wide = (sum(INPUTS.values()), *widths)
        last = len(widths) - 1
        self.level = nn.ModuleList(Level(wide[k], wide[k + 1], wide[k] if k else 0, k == last) for k in range(last + 1))
        self.filter = WeightedFilter(3, KERNEL, bias=False, padding="replicate", transform="softmax")
        for m in self.modules():
            if isinstance(m, nn.Conv2d):
                nn.init.kaiming_normal_(m.weight)
                nn.init.zeros_(m.bias)
        for x in self.level:  # almost equal weights in the beginning
            nn.init.normal_(x.head.weight, std=0.01)

    def describe(self, x):
        """Down and up again: features of each scale, the finest first."""
        skips = []
        for level in self.level:
            x = F.relu(level.down(x))
            x = F.relu(level.here(x))
            skips.append(x)
        out = [x]
        for k in range(len(self.level) - 2, -1, -1):
            x = F.interpolate(self.level[k + 1].up(x), scale_factor=2, mode="nearest")
            x = F.relu(self.level[k].back(F.relu(x + skips[k])))
            out.insert(0, x)
        return out

    def reconstruct(self, light, features):
        scales = [light]
        for _ in self.level[1:]:
            scales.append(F.avg_pool2d(scales[-1], 2))
        y = None
        for level, c, f in reversed(list(zip(self.level, scales, features))):
            head = level.head(f)
            if y is not None:
                part = torch.sigmoid(head[:, KERNEL * KERNEL:])
                y = F.interpolate(y, scale_factor=2, mode="nearest")
                c = c + part * (y - c)
            y = self.filter(c, head[:, :KERNEL * KERNEL])
        return y

    def forward(self, colour, albedo, normal, depth):
        h, w, size = colour.shape[2], colour.shape[3], 2 ** (len(self.level) - 1)
        x = torch.cat((colour, albedo, normal, depth), 1)
        x = F.pad(x, (0, (size - w % size) % size, 0, (size - h % size) % size), mode="replicate")
        albedo = F.relu(x[:, 3:6]) + FLOOR
        light = F.relu(x[:, :3]) / albedo
        y = self.reconstruct(light, self.describe(torch.cat((torch.log(light + 1), x[:, 3:]), 1)))
        return (y * albedo)[:, :, :h, :w]


def multiplications(widths):
    """Of the convolutions, for each pixel."""
    net, n = Denoiser(widths), 0
    for k, level in enumerate(net.level):
        n += sum(c.weight.numel() for c in level.children()) / 4 ** k
    return n


def export(net, path):
    """ONNX with symbolic height and width."""
    legacy = {"dynamo": False} if "dynamo" in inspect.signature(torch.onnx.export).parameters else {}
    example = tuple(torch.rand(1, c, 24, 40) for c in INPUTS.values())
    axes = {name: {2: "H", 3: "W"} for name in (*INPUTS, "denoised")}
    with warnings.catch_warnings():  # of shapes that a trace holds fast: those are checks of arguments
        warnings.simplefilter("ignore")
        torch.onnx.export(net.eval(), example, path, opset_version=17, input_names=list(INPUTS), output_names=["denoised"],
                          dynamic_axes=axes, custom_opsets={"ai.quern": 1}, **legacy)
