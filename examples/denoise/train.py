#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Renders pictures of random scenes, trains the denoiser of net.py with them, and writes it as ONNX.

    PYTHONPATH=python examples/denoise/train.py --build build --data build/denoise/data --out denoiser.onnx

All is a function of the options: the same ones give the same pictures, and, with one thread and without --minutes, the same network where PyTorch and the processor are the same.
Ends with what evaluate.py says of the held-out scenes.
"""
import argparse
import math
import os
import time

import torch

import data
import evaluate
from net import WIDTHS, Denoiser, export, multiplications

SMALL = 0.05  # differences of tones up to about here count as squares


def arguments():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    evaluate.add_options(p)
    p.add_argument("--out", default="build/denoise/denoiser.onnx")
    p.add_argument("--scenes", type=int, default=512, help="to learn from (512)")
    p.add_argument("--size", type=int, default=128, help="of their pictures (128)")
    p.add_argument("--reference", type=int, default=64, help="samples of a reference (64)")
    p.add_argument("--steps", type=int, default=18000)
    p.add_argument("--minutes", type=float, default=0, help="that training may take: then it ends earlier, and the rate of learning falls earlier")
    p.add_argument("--batch", type=int, default=8)
    p.add_argument("--crop", type=int, default=96)
    p.add_argument("--rate", type=float, default=2e-3, help="of learning, in the beginning (0.002)")
    p.add_argument("--f32", action="store_true", help="convolutions in f32, not in bf16")
    p.add_argument("--compile", metavar="BACKEND", nargs="?", const="quern", help="train through torch.compile with this back end (quern)")
    p.add_argument("--widths", type=int, nargs="+", default=WIDTHS, help="channels of each scale, the finest first")
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--start", help="weights to begin with: a file OUT.pt of an earlier training")
    p.add_argument("--render-only", action="store_true")
    return p.parse_args()


def tone(x):
    """Colours as they are seen and as evaluate.py measures them: nearly sRGB. What is brighter than white counts little."""
    return (torch.clamp(x, max=1) + 0.003) ** (1 / 2.4) + 0.1 * torch.log(torch.clamp(x, min=1))


def loss_of(net, crops, f32=True):
    """Squares of small differences, as the measure has them, and the amounts of large ones: the references have noise, too."""
    *inputs, reference = crops.next()
    with torch.autocast("cpu", torch.bfloat16, enabled=not f32):
        y = net(*inputs)
    d = tone(y.float()) - tone(reference)
    return (torch.sqrt(d * d + SMALL * SMALL) - SMALL).mean()


def rate_at(part):
    """A part of the full rate, for a part of the training: rises for a while, then falls as a cosine to nothing."""
    return min(1.0, (part + 1e-4) * 50) * 0.5 * (1 + math.cos(math.pi * min(part, 1.0)))


def train(net, crops, o, say=print, watch=None):
    """Every fiftieth part of the steps `watch` is called."""
    net.to(memory_format=torch.channels_last)
    model = torch.compile(net, backend=o.compile) if o.compile else net
    optimiser = torch.optim.Adam(net.parameters(), lr=o.rate)
    started, mean, step = time.monotonic(), 0.0, 0
    while True:
        seconds = time.monotonic() - started
        part = max(step / max(1, o.steps), seconds / (60 * o.minutes) if o.minutes else 0)
        if part >= 1:
            break
        for group in optimiser.param_groups:
            group["lr"] = o.rate * rate_at(part)
        loss = loss_of(model, crops, o.f32)
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimiser.step()
        step += 1
        mean = loss.item() if step == 1 else 0.99 * mean + 0.01 * loss.item()
        if step % max(1, o.steps // 50) == 0:
            say(f"step {step}: loss {mean:.5f}, {time.monotonic() - started:.0f} s, {watch() if watch else ''}", flush=True)
    return step


def gain(net, scenes):
    """Over noisy pictures, in dB, of those scenes that are there. Nothing is decided by it."""
    inputs = [[torch.from_numpy(x) for x in evaluate.planes(scenes.noisy(s, 0))] for s in scenes.there()]
    with torch.no_grad():
        y = [net(*x)[0].numpy() for x in inputs]
    want = [scenes.converged(s) for s in scenes.there()]
    return sum(evaluate.psnr(a, c) - evaluate.psnr(b[0][0].numpy(), c) for a, b, c in zip(y, inputs, want)) / max(1, len(y))


def keep(net, scenes, path):
    """What there is so far, so that a training that is stopped leaves something."""
    torch.save(net.state_dict(), path + ".part")
    os.replace(path + ".part", path)
    return f"{gain(net, scenes):.2f} dB gained"


def main():
    o = arguments()
    torch.set_num_threads(o.threads)
    torch.manual_seed(o.seed)
    program = data.build_renderer(o.build, o.data)
    scenes = data.Set(os.path.join(o.data, f"train{o.size}_{o.reference}"), data.FIRST_TRAINING, o.scenes, o.size, 2, o.reference)
    held_out = evaluate.held_out(o)
    started = time.monotonic()
    scenes.render(program, o.threads)
    held_out.render(program, o.threads)
    print(f"rendering: {time.monotonic() - started:.0f} s")
    if o.render_only:
        return
    net = Denoiser(o.widths)
    if o.start:
        net.load_state_dict(torch.load(o.start))
    print(f"{sum(p.numel() for p in net.parameters())} parameters, {multiplications(o.widths):.0f} multiplications per pixel")
    started = time.monotonic()
    steps = train(net, data.Crops(*scenes.load(), o.crop, o.batch, o.seed), o, watch=lambda: keep(net, held_out, o.out + ".pt"))
    print(f"{steps} steps of training: {time.monotonic() - started:.0f} s")
    export(net, o.out)
    print(f"{o.out}: {os.path.getsize(o.out)} bytes")
    evaluate.report(o.out, held_out, o.build)


if __name__ == "__main__":
    main()
