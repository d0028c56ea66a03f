#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""requests.py BUILD [--rows N] [--seconds S]: throughput of requests on two devices, a processor instance and PoCL (OpenCL on the processor), each with half
of the processors. A chain of equal matmuls is divided at each place; the table has, for each division, milliseconds per run with one request at a time and
with three at once, and the ratio. Where the work is balanced it should be at least 1.7 on a machine that does nothing else (doc/deployment.md).
Needs numpy and PoCL; the last table is kept in bench/results/requests.md by hand."""
import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile

LAYERS, WIDTH = 8, 512


def graph():
    """The text form of a chain of LAYERS matmuls with Relu over (N, WIDTH); its weights are small numbers of a fixed pattern."""
    lines, x = ["graph {", f"  input %x0: f32[N,{WIDTH}]"], "%x0"
    for k in range(LAYERS):
        numbers = ",".join(f"{((i * 2654435761 + k) % 1000 / 1000 - 0.5) / 8:.4f}" for i in range(WIDTH * WIDTH))
        lines.append(f"  const %w{k}: f32[{WIDTH},{WIDTH}] = [{numbers}]")
    for k in range(LAYERS):
        lines.append(f"  %m{k}: f32[N,{WIDTH}] = MatMul({x}, %w{k})")
        lines.append(f"  %x{k + 1}: f32[N,{WIDTH}] = Relu(%m{k})")
        x = f"%x{k + 1}"
    return "\n".join([*lines, f"  output {x}", "}"])


def allocation(split):
    """matmul_1, paramtensor_2, tensor_3, relu_4, tensor_5, matmul_6 ...: five numbers a layer."""
    device = ["X64:0" if k < split else "OPENCL:0" for k in range(LAYERS)]
    return {name: device[k] for k in range(LAYERS) for name in (f"matmul_{5 * k + 1}", f"relu_{5 * k + 4}")}


def run(command, threads):
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "POCL_MAX_PTHREAD_COUNT": str(threads)})
    if done.returncode:
        sys.exit(f"{' '.join(command[:3])}: {done.stderr.strip()}")
    return done.stdout


def main():
    a = argparse.ArgumentParser(description=__doc__.split(":")[0])
    a.add_argument("build", type=pathlib.Path)
    a.add_argument("--rows", type=int, default=256)
    a.add_argument("--seconds", type=float, default=6)
    o = a.parse_args()
    quern, threads = str(o.build / "quern"), max(1, len(os.sched_getaffinity(0)) // 2)
    print(f"{LAYERS} layers of {WIDTH}, {o.rows} rows, {threads} threads each\n\n| layers on X64:0 | one (ms) | three (ms) | ratio |\n|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        net, alloc = os.path.join(folder, "net.graph"), os.path.join(folder, "alloc.json")
        pathlib.Path(net).write_text(graph())
        for split in range(1, LAYERS):
            pathlib.Path(alloc).write_text(json.dumps(allocation(split)))
            out = os.path.join(folder, str(split))
            run([quern, "deploy", net, "--alloc", alloc, "-o", out, "--name", "net", "--optimize-for", f"N:{o.rows}"], threads)
            t = json.loads(run([quern, "run", out + "/net", "--bench", "--set", f"N={o.rows}", "--threads", str(threads), "--timeout", f"{o.seconds}s", "--json"],
                               threads))
            print(f"| {split} | {t['one_ms']:.3f} | {t['overlapped_ms']:.3f} | {t['one_ms'] / t['overlapped_ms']:.2f} |", flush=True)


if __name__ == "__main__":
    main()
