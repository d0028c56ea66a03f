#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
#
# A network of one convolution in f16, as people write it for current PyTorch, exported by the
# PyTorch that is installed:
#
#   test/denox_net.py NET.onnx                 writes it, sizes of the picture free
#   test/denox_net.py NET.onnx IN.npy OUT.npy  and its result for an image (h, w, c)
#
# PyTorch 1.13 has no convolution of f16 on a CPU and cannot export padding="same"; both are put in.
import sys
import warnings

import numpy as np
import torch
from torch import nn

warnings.filterwarnings("ignore")


def conv_in_f32(x, w, kernel, bias, stride, padding):
    n, _, *size = x.shape
    columns = nn.functional.unfold(x.float(), kernel, padding=padding, stride=stride)
    y = w.float().flatten(1) @ columns + bias.float()[:, None]
    size = [(s + 2 * p - k) // t + 1 for s, p, k, t in zip(size, padding, kernel, stride)]
    return y.reshape(n, w.shape[0], *size).half()


def conv_same(g, x, w, bias, stride, padding, dilation, groups):
    return g.op("Conv", x, w, bias, kernel_shape_i=[3, 3], pads_i=[1, 1, 1, 1])


library = torch.library.Library("aten", "IMPL")  # its functions live as long as it does
library.impl("_slow_conv2d_forward", conv_in_f32, "CPU")
torch.onnx.register_custom_op_symbolic("aten::_convolution_mode", conv_same, 14)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 3, 3, padding="same", dtype=torch.float16)

    def forward(self, input):
        return self.conv(input)


torch.manual_seed(1)
torch.set_grad_enabled(False)
example_input = torch.ones(1, 3, 48, 32, dtype=torch.float16)
net = Net()
torch.onnx.export(
    net,
    (example_input,),
    sys.argv[1],
    opset_version=14,
    input_names=["input"],
    output_names=["output"],
    dynamic_axes={"input": {2: "s0", 3: "s1"}},
)
if len(sys.argv) > 2:
    x = torch.from_numpy(np.load(sys.argv[2])).permute(2, 0, 1)[None]
    np.save(sys.argv[3], net(x)[0].permute(1, 2, 0).contiguous().numpy())
