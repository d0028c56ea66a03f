#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
#
# Memory of models in torch.compile beside PyTorch: linear layers of 1 GiB of weights, run eagerly and by the back end with its values of `weights`, each in a
# process of its own. Prints the proportional set size of the process (PSS, /proc/self/smaps_rollup) with the model, after the third call, and the time of a
# call; caches are those of the user.
#
#   PYTHONPATH=python QUERN_LIBRARY=build/libquern.so bench/memory.py [--layers 16] [--width 4096] [--rows 128] [MODE ...]
import argparse
import gc
import subprocess
import sys
import time

MODES = {"eager": None, "packed": "packed", "default": None, "in place": "in place"}


def pss():
    """MiB."""
    with open("/proc/self/smaps_rollup") as f:
        return next(int(line.split()[1]) for line in f if line.startswith("Pss:")) / 1024


def run(args, mode):
    """One mode, in this process."""
    import torch
    torch.set_num_threads(1)
    net = torch.nn.Sequential(*[torch.nn.Linear(args.width, args.width) for _ in range(args.layers)]).eval()
    x = torch.randn(args.rows, args.width)
    call = net
    if mode != "eager":
        import quern.torch  # noqa: F401
        call = torch.compile(net, backend="quern", options={"weights": MODES[mode], "measure": False, "threads": 1})
    before, best = pss(), float("inf")
    with torch.no_grad():
        for _ in range(3):
            start = time.perf_counter()
            call(x)
            best = min(best, time.perf_counter() - start)
    gc.collect()
    print(f"{mode:9} {before:8.0f} MiB before  {pss():8.0f} MiB after  {best * 1e3:8.1f} ms a call", flush=True)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--layers", type=int, default=16)
    p.add_argument("--width", type=int, default=4096)
    p.add_argument("--rows", type=int, default=128)
    p.add_argument("--here", action="store_true", help="in this process, of one mode")
    p.add_argument("modes", nargs="*", metavar="MODE")
    args = p.parse_args()
    for mode in args.modes or MODES:
        if mode not in MODES:
            p.error(f"no mode {mode!r}, there are {', '.join(MODES)}")
        if args.here:
            run(args, mode)
        else:
            sizes = [f"--{n}={getattr(args, n)}" for n in ("layers", "width", "rows")]
            subprocess.run([sys.executable, __file__, "--here", *sizes, mode], check=True)


if __name__ == "__main__":
    main()
