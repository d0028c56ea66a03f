#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How well a denoiser does on scenes that it has not learnt from: PSNR against pictures of many samples, both encoded as sRGB.

    PYTHONPATH=python examples/denoise/evaluate.py denoiser.onnx --build build --data build/denoise/data

For each scene: the noisy picture, quern's dct-denoise, the network, and another picture with a quarter of the reference's samples, which shows
how much of what is left is the reference's own noise. The networks are run by quern, as they would be used.
"""
import argparse
import os
import subprocess
import tempfile

import numpy as np
import quern

import data
from net import INPUTS


def add_options(p):
    """Those that it has in common with train.py."""
    p.add_argument("--build", default="build", help="folder of libquern.so (build)")
    p.add_argument("--data", default="build/denoise/data", help="folder of the rendered pictures")
    p.add_argument("--threads", type=int, default=os.cpu_count())
    p.add_argument("--test-scenes", type=int, default=12, help="how many are held out (12)")
    p.add_argument("--test-size", type=int, default=128, help="of their pictures (128)")
    p.add_argument("--test-reference", type=int, default=1024, help="samples of their references (1024)")


def held_out(o):
    if not 0 < o.test_scenes < data.FIRST_TRAINING:
        raise ValueError(f"{o.test_scenes} test scenes are asked for, expected 1 to {data.FIRST_TRAINING - 1}")
    folder = os.path.join(o.data, f"test{o.test_size}_{o.test_reference}")
    return data.Set(folder, 1, o.test_scenes, o.test_size, 1, o.test_reference, max(1, o.test_reference // 4))


def encode(x):
    x = np.clip(x, 0, 1)
    return np.where(x <= 0.0031308, 12.92 * x, 1.055 * np.maximum(x, 0.0031308) ** (1 / 2.4) - 0.055).astype(np.float32)


def psnr(a, b):
    return -10 * np.log10(np.mean((encode(a).astype(np.float64) - encode(b)) ** 2) + 1e-12)


def decode(x):
    return np.where(x <= 0.04045, x / 12.92, ((np.maximum(x, 0.04045) + 0.055) / 1.055) ** 2.4)


def dct_denoiser(build):
    """quern's network without training, for linear colour."""
    with tempfile.TemporaryDirectory() as d:
        path = os.path.join(d, "dct.onnx")
        subprocess.run([os.path.join(build, "quern"), "zoo", "dct-denoise", "-o", path], check=True, stdout=subprocess.DEVNULL)
        net = quern.compile(path)
    return lambda colour: decode(np.clip(net(encode(colour)), 0, 1))


def planes(noisy):
    """noisy (10, h, w) -> the inputs of the network, (1, channels, h, w) each"""
    at = np.cumsum([0, *INPUTS.values()])
    return [np.ascontiguousarray(noisy[None, a:b], dtype=np.float32) for a, b in zip(at, at[1:])]


def denoise(net, noisy):
    """noisy (10, h, w) -> (3, h, w)"""
    return net(*planes(noisy))[0]


def report(path, scenes, build, say=print):
    net, dct, rows = quern.compile(path), dct_denoiser(build), []
    say("scene    noisy      dct      net    check")
    for scene in scenes.scenes:
        noisy, want = scenes.noisy(scene, 0), scenes.converged(scene)
        colour = np.ascontiguousarray(noisy[None, :3], dtype=np.float32)
        rows.append([psnr(x, want) for x in (noisy[:3], dct(colour)[0], denoise(net, noisy), scenes.converged(scene, "check"))])
        say(f"{scene:5} " + " ".join(f"{x:8.2f}" for x in rows[-1]))
    mean = np.mean(rows, 0)
    say(" mean " + " ".join(f"{x:8.2f}" for x in mean))
    say(f"gained: {mean[2] - mean[0]:.2f} dB over noisy, {mean[2] - mean[1]:.2f} dB over dct-denoise")
    return mean


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("net")
    add_options(p)
    o = p.parse_args()
    scenes = held_out(o)
    scenes.render(data.build_renderer(o.build, o.data), o.threads)
    report(o.net, scenes, o.build)


if __name__ == "__main__":
    main()
