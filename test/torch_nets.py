#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
#
# Networks as PyTorch exports them: each is exported once with symbolic sizes, compiled to one
# artifact, run at several sizes, none of them special, and compared with PyTorch's own output.
# Definitions are written out here, because torchvision may not be installed and because the
# padding and cropping in PyTorch is the shape arithmetic that an importer must survive.
#
#   test/torch_nets.py BUILD [NAME ...]     (all; needs python3-torch and python3-onnx)
#
# Kernels are cached in BUILD/torch/torch.db. One line per network, last line "N passed, N
# failed".
import os
import subprocess
import sys
import time
import warnings

import numpy as np
import onnx
import torch
import torch.nn.functional as F
from torch import nn

warnings.filterwarnings("ignore")
torch.set_num_threads(2)
torch.set_grad_enabled(False)

TOLERANCE = 2e-5  # of the largest magnitude in the output, times the root of the number of layers


# --- denoisers ----------------------------------------------------------------------------------


def conv3(n_in, n_out):
    return nn.Conv2d(n_in, n_out, 3, padding=1)


def init_relu_net(net):
    """Weights that keep the magnitude of signals through convolutions followed by Relu."""
    for m in net.modules():
        if isinstance(m, (nn.Conv2d, nn.Linear, nn.ConvTranspose2d)):
            nn.init.kaiming_normal_(m.weight)
            if m.bias is not None:
                nn.init.uniform_(m.bias, -0.1, 0.1)
        elif isinstance(m, nn.BatchNorm2d):
            nn.init.uniform_(m.weight, 0.5, 1)
            nn.init.uniform_(m.bias, -0.2, 0.2)
            m.running_mean.uniform_(-0.2, 0.2)
            m.running_var.uniform_(0.5, 1.5)
    return net


class Aligned(nn.Module):
    """Pads at right and bottom to a multiple by repeating the border, and crops the result."""

    def __init__(self, net, align):
        super().__init__()
        self.net, self.align = net, align

    def forward(self, x):
        h, w, a = x.shape[2], x.shape[3], self.align
        x = F.pad(x, (0, (a - w % a) % a, 0, (a - h % a) % a), mode="replicate")
        return self.net(x)[:, :, :h, :w]


class Oidn(nn.Module):
    def __init__(self, ec, dc):
        super().__init__()
        ec1, ec2, ec3, ec4, ec5 = ec
        dc4, dc3, dc2a, dc2b, dc1a, dc1b = dc
        self.enc0, self.enc1, self.enc2 = conv3(3, ec1), conv3(ec1, ec1), conv3(ec1, ec2)
        self.enc3, self.enc4 = conv3(ec2, ec3), conv3(ec3, ec4)
        self.enc5a, self.enc5b = conv3(ec4, ec5), conv3(ec5, ec5)
        self.dec4a, self.dec4b = conv3(ec5 + ec3, dc4), conv3(dc4, dc4)
        self.dec3a, self.dec3b = conv3(dc4 + ec2, dc3), conv3(dc3, dc3)
        self.dec2a, self.dec2b = conv3(dc3 + ec1, dc2a), conv3(dc2a, dc2b)
        self.dec1a, self.dec1b = conv3(dc2b + 3, dc1a), conv3(dc1a, dc1b)
        self.dec0 = conv3(dc1b, 3)

    @staticmethod
    def up(x, skip):
        return torch.cat((F.interpolate(x, scale_factor=2, mode="nearest"), skip), 1)

    def forward(self, x):
        pool = nn.MaxPool2d(2, 2)
        image = x
        x = F.relu(self.enc1(F.relu(self.enc0(x))))
        x = p1 = pool(x)
        x = p2 = pool(F.relu(self.enc2(x)))
        x = p3 = pool(F.relu(self.enc3(x)))
        x = pool(F.relu(self.enc4(x)))
        x = F.relu(self.enc5b(F.relu(self.enc5a(x))))
        x = F.relu(self.dec4b(F.relu(self.dec4a(self.up(x, p3)))))
        x = F.relu(self.dec3b(F.relu(self.dec3a(self.up(x, p2)))))
        x = F.relu(self.dec2b(F.relu(self.dec2a(self.up(x, p1)))))
        x = F.relu(self.dec1b(F.relu(self.dec1a(self.up(x, image)))))
        return self.dec0(x)


class Vkdt(nn.Module):
    """Six levels, each decoder two convolutions, the last at full size with 12 channels."""

    def __init__(self):
        super().__init__()
        c = [3, 32, 48, 64, 80, 112, 112]
        d = [112, 80, 64, 48, 16, 12]
        self.enc = nn.ModuleList(conv3(c[i], c[i + 1]) for i in range(6))
        wide, skip = [112] + d[:-1], [112, 80, 64, 48, 32, 3]
        self.dec = nn.ModuleList(conv3(wide[i] + skip[i], d[i]) for i in range(6))
        self.con = nn.ModuleList(conv3(n, n) for n in d)

    def forward(self, x):
        skips = []
        for e in self.enc:
            skips.append(x)
            x = F.max_pool2d(F.relu(e(x)), 2)
        for d, c, s in zip(self.dec, self.con, reversed(skips)):
            x = F.relu(c(F.relu(d(torch.cat((F.interpolate(x, scale_factor=2), s), 1)))))
        return x


def oidn():
    return Aligned(Oidn((32, 48, 64, 80, 96), (112, 96, 64, 64, 64, 32)), 16)


def oidn_small():
    return Aligned(Oidn((32, 32, 32, 32, 32), (64, 64, 64, 32, 32, 32)), 16)


def vkdt_unet():
    return Aligned(Vkdt(), 64)


# --- classifiers --------------------------------------------------------------------------------


def conv_norm(n_in, n_out, k, stride=1, groups=1, act=None):
    layers = [
        nn.Conv2d(n_in, n_out, k, stride, k // 2, groups=groups, bias=False),
        nn.BatchNorm2d(n_out),
    ]
    return nn.Sequential(*layers, *([act] if act else []))


class Bottleneck(nn.Module):
    def __init__(self, n_in, n, stride):
        super().__init__()
        self.a = conv_norm(n_in, n, 1, act=nn.ReLU())
        self.b = conv_norm(n, n, 3, stride, act=nn.ReLU())
        self.c = conv_norm(n, 4 * n, 1)
        self.short = (
            conv_norm(n_in, 4 * n, 1, stride) if stride > 1 or n_in != 4 * n else nn.Identity()
        )

    def forward(self, x):
        return F.relu(0.5 * self.c(self.b(self.a(x))) + 0.5 * self.short(x))


class Head(nn.Module):
    def __init__(self, n_in, n_out):
        super().__init__()
        self.fc = nn.Linear(n_in, n_out)

    def forward(self, x):
        return self.fc(torch.flatten(F.adaptive_avg_pool2d(x, 1), 1))


def resnet50():
    layers, n_in = [conv_norm(3, 64, 7, 2, act=nn.ReLU()), nn.MaxPool2d(3, 2, 1)], 64
    for n, count, stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
        for i in range(count):
            layers.append(Bottleneck(n_in, n, stride if i == 0 else 1))
            n_in = 4 * n
    return nn.Sequential(*layers, Head(2048, 1000))


class Inverted(nn.Module):
    def __init__(self, n_in, n_out, stride, expand):
        super().__init__()
        n = n_in * expand
        first = [conv_norm(n_in, n, 1, act=nn.ReLU6())] if expand != 1 else []
        self.net = nn.Sequential(
            *first, conv_norm(n, n, 3, stride, n, nn.ReLU6()), conv_norm(n, n_out, 1)
        )
        self.is_residual = stride == 1 and n_in == n_out

    def forward(self, x):
        return x + self.net(x) if self.is_residual else self.net(x)


def mobilenetv2():
    layers, n_in = [conv_norm(3, 32, 3, 2, act=nn.ReLU6())], 32
    for t, c, n, s in (
        (1, 16, 1, 1),
        (6, 24, 2, 2),
        (6, 32, 3, 2),
        (6, 64, 4, 2),
        (6, 96, 3, 1),
        (6, 160, 3, 2),
        (6, 320, 1, 1),
    ):
        for i in range(n):
            layers.append(Inverted(n_in, c, s if i == 0 else 1, t))
            n_in = c
    return nn.Sequential(*layers, conv_norm(320, 1280, 1, act=nn.ReLU6()), Head(1280, 1000))


# --- transformers -------------------------------------------------------------------------------


class Transformer(nn.Module):
    """Patches of an image as tokens, two blocks, so that H and W reach Reshape and Transpose."""

    def __init__(self, dim=48, heads=4, patch=8):
        super().__init__()
        self.embed = nn.Conv2d(3, dim, patch, patch)
        self.blocks = nn.ModuleList(Block(dim, heads) for _ in range(2))
        self.norm, self.out = nn.LayerNorm(dim), nn.Linear(dim, 10)

    def forward(self, x):
        x = self.embed(x).flatten(2).transpose(1, 2)
        for b in self.blocks:
            x = b(x)
        return self.out(self.norm(x))


class Block(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.n1, self.n2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.qkv, self.proj = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.up, self.down = nn.Linear(dim, 4 * dim), nn.Linear(4 * dim, dim)

    def forward(self, x):
        b, n, d = x.shape
        q, k, v = (
            self.qkv(self.n1(x))
            .reshape(b, n, 3, self.heads, d // self.heads)
            .permute(2, 0, 3, 1, 4)
            .unbind(0)
        )
        a = torch.softmax(q @ k.transpose(-2, -1) * (d // self.heads) ** -0.5, -1)
        x = x + self.proj((a @ v).transpose(1, 2).reshape(b, n, d))
        return x + self.down(F.gelu(self.up(self.n2(x))))


# --- odd layers ---------------------------------------------------------------------------------


class Fn(nn.Module):
    def __init__(self, fn, **modules):
        super().__init__()
        for name, m in modules.items():
            setattr(self, name, m)
        self.fn = fn

    def forward(self, x):
        return self.fn(self, x)


def interpolate(mode, **options):
    return Fn(lambda m, x: F.interpolate(x, mode=mode, **options))


def resize_like():
    """Resizes to the size of another tensor: the size is computed from a shape."""
    return Fn(
        lambda m, x: F.interpolate(
            m.down(x), size=x.shape[2:], mode="bilinear", align_corners=False
        )
        + x,
        down=nn.Conv2d(3, 3, 3, 2, 1),
    )


def odd(make, *sizes):
    return make, sizes or ((17, 31), (50, 70), (8, 9))


ODD = {
    "conv-transpose": odd(lambda: nn.ConvTranspose2d(3, 5, 4, 2, 1)),
    "conv-transpose-odd": odd(
        lambda: nn.ConvTranspose2d(3, 6, 3, (3, 2), (2, 1), (1, 1), groups=3, dilation=(2, 1))
    ),
    "conv-grouped": odd(lambda: nn.Sequential(conv3(3, 12), nn.Conv2d(12, 18, 3, 1, 1, groups=3))),
    "conv-dilated": odd(lambda: nn.Conv2d(3, 7, 3, 1, 2, dilation=2)),
    "conv-strided": odd(lambda: nn.Conv2d(3, 7, (5, 2), (3, 2), (2, 1))),
    "conv-reflect": odd(lambda: nn.Conv2d(3, 8, 5, padding=2, padding_mode="reflect")),
    "conv1d": odd(lambda: Fn(lambda m, x: m.c(x.flatten(2)), c=nn.Conv1d(3, 8, 5, 2, 2))),
    "conv3d": odd(lambda: Fn(lambda m, x: m.c(x[:, None]), c=nn.Conv3d(1, 4, 3, padding=1))),
    "pool-ceil": odd(
        lambda: nn.Sequential(
            nn.AvgPool2d(3, 2, 1, ceil_mode=True), nn.MaxPool2d(3, 2, 1, ceil_mode=True)
        )
    ),
    "pool-average": odd(lambda: nn.AvgPool2d((3, 2), (2, 1), (1, 0), count_include_pad=False)),
    "pool-dilated": odd(lambda: nn.MaxPool2d(3, 1, 1, dilation=2)),
    "bilinear": odd(lambda: interpolate("bilinear", scale_factor=2, align_corners=False)),
    "bilinear-corners": odd(lambda: interpolate("bilinear", scale_factor=3, align_corners=True)),
    "bilinear-down": odd(lambda: interpolate("bilinear", scale_factor=0.5, align_corners=False)),
    "bicubic": odd(lambda: interpolate("bicubic", scale_factor=2, align_corners=False)),
    "nearest-fraction": odd(lambda: interpolate("nearest", scale_factor=1.5), (18, 32), (50, 70)),
    "resize-fixed": odd(lambda: interpolate("bilinear", size=(23, 45), align_corners=False)),
    "resize-like": odd(resize_like),
    "pixel-shuffle": odd(
        lambda: nn.Sequential(
            conv3(3, 27), nn.PixelShuffle(3), nn.Conv2d(3, 8, 1), nn.PixelUnshuffle(3)
        )
    ),
    "instance-norm": odd(lambda: nn.InstanceNorm2d(3, affine=True)),
    "group-norm": odd(lambda: nn.Sequential(conv3(3, 12), nn.GroupNorm(4, 12), nn.SiLU())),
    "layer-norm": odd(lambda: Fn(lambda m, x: m.n(x.permute(0, 2, 3, 1)), n=nn.LayerNorm(3))),
    "batch-norm-alone": odd(lambda: nn.Sequential(nn.BatchNorm2d(3), nn.PReLU(3), nn.Hardswish())),
    "activations": odd(
        lambda: Fn(
            lambda m, x: torch.cat(
                [
                    F.elu(x),
                    F.selu(x),
                    F.softplus(x),
                    F.hardtanh(x),
                    F.mish(x),
                    F.hardsigmoid(x),
                    torch.erf(x),
                    F.logsigmoid(x),
                ],
                1,
            )
        )
    ),
    "squeeze-excite": odd(
        lambda: Fn(
            lambda m, x: x * torch.sigmoid(m.b(F.relu(m.a(x.mean((2, 3), keepdim=True))))),
            a=nn.Conv2d(3, 8, 1),
            b=nn.Conv2d(8, 3, 1),
        )
    ),
    "statistics": odd(
        lambda: Fn(
            lambda m, x: torch.cat(
                [x.std(1), x.amax(1), x.prod(1), x.norm(dim=1), torch.logsumexp(x, 1)], 0
            )
        )
    ),
    "softmax-channels": odd(
        lambda: Fn(lambda m, x: torch.cat([F.softmax(x, 1), F.log_softmax(x, 3)], 1))
    ),
    "gather-flip": odd(
        lambda: Fn(lambda m, x: torch.flip(x[:, [2, 0, 1]], (3,))[:, :, ::2, 1::3])
    ),
    "where": odd(lambda: Fn(lambda m, x: torch.where(x > 0.5, x * x, -x).clamp(-0.5, 2) % 0.7)),
    "chunk-glu": odd(lambda: nn.Sequential(conv3(3, 8), nn.GLU(1))),
    "argmax": odd(lambda: Fn(lambda m, x: x.argmax(1).float())),
    "topk-sort": odd(lambda: Fn(lambda m, x: x.topk(2, 1)[0])),
    "cumulative": odd(lambda: Fn(lambda m, x: x.cumsum(3))),
    "einsum": odd(lambda: Fn(lambda m, x: torch.einsum("bchw,bdhw->bcd", x, x))),
    "grid": odd(lambda: Fn(lambda m, x: x + torch.arange(x.shape[3]).float() / x.shape[3])),
    "pad-constant": odd(
        lambda: Fn(
            lambda m, x: F.pad(F.pad(x, (1, 2, 3, 4), value=0.5), (2, 1, 0, 3), mode="reflect")
        )
    ),
    "half": odd(lambda: Fn(lambda m, x: (x.half() * 0.5).float())),
}


class Two(nn.Module):
    """Two inputs through one shared convolution, pooled, upsampled and concatenated."""

    def __init__(self):
        super().__init__()
        self.common, self.last = conv3(3, 3), conv3(6, 16)

    def forward(self, albedo, normal):
        parts = [
            F.interpolate(F.max_pool2d(self.common(t), 2, ceil_mode=True), scale_factor=2)
            for t in (albedo, normal)
        ]
        y = self.last(F.pad(torch.cat(parts, 1), (0, 4, 0, 4)))
        return y[:, :, : albedo.shape[2], : albedo.shape[3]]


class Encoder(nn.Module):
    """PyTorch's own attention over the rows of an image."""

    def __init__(self):
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(24, 3, 40, batch_first=True, activation="gelu")
        self.up = nn.Linear(3, 24)

    def forward(self, x):
        return self.layer(self.up(x.flatten(2).transpose(1, 2) + 0.0))


def in_opset(opset):
    """The operators that changed most; padding by computed amounts is exported from opset 11 on."""

    def make():
        net = nn.Sequential(
            conv_norm(3, 8, 3, act=nn.ReLU6()),
            nn.MaxPool2d(2),
            nn.Upsample(scale_factor=2),
            conv3(8, 3),
            nn.Softmax(1),
        )
        return Aligned(net, 4) if opset >= 11 else net

    return odd(make) + ({"opset": opset},)


ODD.update({"opset%d" % k: in_opset(k) for k in (9, 10, 11, 12, 13, 15, 16, 17)})
ODD["two-inputs"] = odd(Two) + ({"n_in": 2},)
ODD["attention"] = odd(Encoder, (3, 5), (7, 11))
ODD["any-batch"] = odd(
    lambda: nn.Sequential(conv3(3, 8), nn.BatchNorm2d(8), nn.ReLU(), Head(8, 5))
) + ({"batch": 3},)

ODD["lstm"] = odd(lambda: Fn(lambda m, x: m.l(x[:, 0])[0], l=nn.LSTM(96, 8, batch_first=True)), (17, 96), (5, 96))

NETS = {
    "oidn-small": (oidn_small, ((1, 1), (17, 31), (64, 64), (97, 133))),
    "oidn": (oidn, ((17, 31), (50, 70), (96, 128))),
    "vkdt-unet": (vkdt_unet, ((17, 31), (50, 70), (128, 192))),
    "resnet50": (resnet50, ((224, 224), (65, 97), (33, 40))),
    "mobilenetv2": (mobilenetv2, ((224, 224), (65, 97), (33, 40))),
    "transformer": (Transformer, ((64, 64), (17, 31), (50, 70))),
}


# --- running ------------------------------------------------------------------------------------


class Failed(Exception):
    pass


class Skipped(Exception):
    pass


def quern(build, *args):
    r = subprocess.run(
        [os.path.join(build, "quern"), *args], capture_output=True, text=True, timeout=300
    )
    return r.returncode, (r.stdout + r.stderr).strip()


def quern_ok(build, *args):
    code, text = quern(build, *args)
    if code:
        raise Failed(
            "quern %s: %s" % (args[0], text.splitlines()[-1] if text else "exit %d" % code)
        )


def export(net, size, path, n_in=1, opset=14, batch=1):
    names = ["x%d" % k for k in range(n_in)]
    axes = {2: "H", 3: "W"} if batch == 1 else {0: "N", 2: "H", 3: "W"}
    try:
        torch.onnx.export(
            net,
            tuple(torch.randn(1, 3, *size) for _ in names),
            path,
            opset_version=opset,
            input_names=names,
            output_names=["y"],
            dynamic_axes={n: axes for n in names},
        )
    except Exception as e:  # PyTorch's own limits are not ours
        return str(e).splitlines()[0]
    return None


def run(build, dnx, folder, inputs):
    args = []
    for k, x in enumerate(inputs):
        path = "%s/x%d.npy" % (folder, k)
        np.save(path, x.numpy())
        args += ["-i", "x%d=%s" % (k, path)]
    quern_ok(build, "run", dnx, *args, "-o", folder + "/y.npy", "--threads", "2")
    return np.load(folder + "/y.npy")


def difference(got, want):
    if got.shape != want.shape:
        raise Failed("shape %s, PyTorch has %s" % (got.shape, want.shape))
    if not np.isfinite(got).all():
        raise Failed("values that are not finite")
    if want.size == 0:
        return 0.0
    return float(np.abs(got.astype(np.float64) - want).max() / max(np.abs(want).max(), 1e-3))


def check(build, folder, name, make, sizes, options={}):
    torch.manual_seed(1)
    net = init_relu_net(make()).eval()
    onnx, dnx, worst = "%s/%s.onnx" % (folder, name), "%s/%s.dnx" % (folder, name), 0.0
    refused = export(net, (64, 96), onnx, **options)
    if refused:
        raise Skipped("PyTorch does not export it: " + refused[:80])
    quern_ok(build, "compile", onnx, "-o", dnx, "--untuned", "--db", folder + "/torch.db")
    layers = sum(isinstance(m, (nn.Conv2d, nn.Linear)) for m in net.modules())
    for h, w in sizes:
        x = [torch.randn(options.get("batch", 1), 3, h, w) for _ in range(options.get("n_in", 1))]
        d = difference(run(build, dnx, folder, x), net(*x).numpy())
        if d > TOLERANCE * max(layers, 1) ** 0.5:
            raise Failed("%d x %d: differs by %.3g of the largest value" % (h, w, d))
        worst = max(worst, d)
    return "worst %.2g at %s" % (worst, " ".join("%dx%d" % s for s in sizes))


def export_gradient(path, op, shapes, attributes):
    """A model of one operator of ours."""
    value = onnx.helper.make_tensor_value_info
    names = ["x%d" % k for k in range(len(shapes))]
    node = onnx.helper.make_node(op, names, ["y"], domain="ai.quern", **attributes)
    graph = onnx.helper.make_graph(
        [node],
        op,
        [value(n, onnx.TensorProto.FLOAT, s) for n, s in zip(names, shapes)],
        [value("y", onnx.TensorProto.FLOAT, None)],
    )
    opsets = [onnx.helper.make_opsetid("", 17), onnx.helper.make_opsetid("ai.quern", 1)]
    onnx.save(onnx.helper.make_model(graph, opset_imports=opsets, ir_version=8), path)


def check_gradients(build, folder, name, conv, shape):
    """Checks the gradients of a convolution with respect to its input and its weights."""
    torch.manual_seed(1)
    path, dnx = "%s/%s.onnx" % (folder, name), "%s/%s.dnx" % (folder, name)
    x, w, worst = torch.randn(shape), conv.weight.detach(), 0.0
    with torch.enable_grad():
        inputs = x.requires_grad_(), conv.weight
        y = conv(x)
        dy = torch.randn(y.shape)
        want = torch.autograd.grad(y, inputs, dy)
    attributes = {
        "kernel_shape": conv.kernel_size,
        "strides": conv.stride,
        "dilations": conv.dilation,
        "pads": conv.padding + conv.padding,
        "group": conv.groups,
    }
    of_input = {**attributes, "input_shape": shape[2:]}
    for op, args, attrs, grad in (
        ("ConvGradInput", (dy, w), of_input, want[0]),
        ("ConvGradWeight", (x.detach(), dy), attributes, want[1]),
    ):
        export_gradient(path, op, [a.shape for a in args], attrs)
        quern_ok(build, "compile", path, "-o", dnx, "--untuned", "--db", folder + "/torch.db")
        d = difference(run(build, dnx, folder, args), grad.numpy())
        if d > TOLERANCE:
            raise Failed("%s differs by %.3g of the largest value" % (op, d))
        worst = max(worst, d)
    return "worst %.2g" % worst


# The stride leaves rows of the input out.
GRADIENTS = {
    "gradients-1d": (nn.Conv1d(8, 12, 5, 3, 2, 2, groups=4, bias=False), (3, 8, 50)),
    "gradients-2d": (nn.Conv2d(7, 20, (3, 5), (2, 1), (1, 2), bias=False), (2, 7, 30, 41)),
    "gradients-3d": (nn.Conv3d(4, 17, 3, (1, 2, 2), 1, bias=False), (2, 4, 9, 16, 20)),
}


def main(build, names):
    folder = os.path.join(build, "torch")
    os.makedirs(folder, exist_ok=True)
    table = {n: (check, *v) for n, v in {**NETS, **ODD}.items()}
    table.update({n: (check_gradients, *v) for n, v in GRADIENTS.items()})
    passed = failed = 0
    for name in names or table:
        start, word = time.time(), "ok"
        fn, *args = table[name]
        try:
            text = fn(build, folder, name, *args)
            passed += 1
        except Skipped as e:
            text, word = str(e), "skip"
        except (Failed, subprocess.TimeoutExpired) as e:
            text, word = str(e), "FAILED"
            failed += 1
        print("%-6s %-20s %5.1f s  %s" % (word, name, time.time() - start, text), flush=True)
    print("%d passed, %d failed" % (passed, failed))
    return failed > 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
