# SPDX-License-Identifier: Apache-2.0
"""For test/quantize.sh.

quantize_ort.py archives DIR: the arrays of a folder as archives: plain.npz and packed.npz, and wrong.npz with other names.
quantize_ort.py compare NET QUANTISED INPUT GOT: results of ONNX Runtime for an input against GOT, those of quern. They may differ by
roundings to the neighbouring step, which are far fewer than all those by which quantisation changes the network's results.
quantize_ort.py same NET QUANTISED INPUT GOT: likewise of weights alone, of whose results only the order of sums differs.
"""
import glob
import sys

import numpy as np


def archives(folder):
    x = np.concatenate([np.load(p) for p in sorted(glob.glob(folder + "/*.npy"))]).astype(np.float32)
    np.savez("plain.npz", x=x)
    np.savez_compressed("packed.npz", x=x[:, None])
    np.savez("wrong.npz", a=x, b=x)


def same(net, quantised, given, got):
    compare(net, quantised, given, got, 0.15, 1e-4)


def compare(net, quantised, given, got, most=0.05, share=0.3):
    import onnxruntime

    def run(path):
        s = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
        return s.run(None, {s.get_inputs()[0].name: np.load(given).astype(np.float32)})[0]

    want, plain, got = run(quantised), run(net), np.load(got)
    size = np.sqrt(np.mean(plain.astype(np.float64) ** 2))
    error = np.sqrt(np.mean((want - plain) ** 2)) / size
    difference = np.sqrt(np.mean((want - got) ** 2)) / size
    print(f"{quantised}: error of quantisation {error:.5f}, difference of ONNX Runtime and quern {difference:.6f}")
    assert error < most and difference < share * error + 1e-6


{"archives": archives, "compare": compare, "same": same}[sys.argv[1]](*sys.argv[2:])
