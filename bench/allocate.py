#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""allocate.py BUILD [--nets resnet8,..] [--tune S] [--seconds S]: predicted and measured times of allocations.

For each network: everything on each device, the best allocations for latency and for throughput,
and some random ones. Their sub-graphs are tuned for S seconds each into one database, so that
predictions are sums of measured kernels; then `quern allocate --check --report` predicts, and
`quern run --bench` runs the deployment: milliseconds of a request alone, and between requests of a
stream. Devices: this processor, PoCL and lavapipe, as far as they are installed; they share the
processors, so a stream is as fast as predicted only if there are enough of these. The last table is
kept in bench/results/allocate.md by hand."""
import argparse
import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile


def run(*command):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(command[:3])}: {done.stderr.strip()}")
    return done.stdout


def present(quern):
    """The devices of this machine by the names of allocations."""
    kinds = {"cpu": "X64:0", "opencl": "OPENCL:0", "vulkan": "VULKAN:0"}
    found = {d["name"] for d in json.loads(run(quern, "devices")) if not d.get("described")}
    return [name for driver, name in kinds.items() if driver in found]


def random_allocation(template, devices, rng):
    """Runs of operators, in topological order."""
    device, out = rng.choice(devices), {}
    for op in template:
        if rng.random() < 3 / len(template):
            device = rng.choice(devices)
        out[op] = device
    return out


def allocations(quern, net, devices, folder):
    """(what, {operator: device})"""
    template = json.loads(run(quern, "allocate", net, "--template", devices[0]))
    rng = random.Random(1)
    for d in devices:
        yield d, dict.fromkeys(template, d)
    for aim in ("latency", "throughput"):
        db = os.path.join(folder, "net.db")  # of the devices alone, which were tuned before
        yield "best " + aim, json.loads(run(quern, "allocate", net, "--devices", ",".join(devices), "--minimise", aim, "-q", "--db", db))
    for k in range(3):
        yield f"random {k}", random_allocation(template, devices, rng)


def measure(quern, net, alloc, folder, o):
    """(predicted, measured) of {"one", "stream"}, milliseconds."""
    path, db = os.path.join(folder, "alloc.json"), os.path.join(folder, "net.db")
    pathlib.Path(path).write_text(json.dumps(alloc))
    with tempfile.TemporaryDirectory(dir=folder) as out:
        run(quern, "deploy", net, "--alloc", path, "-o", out, "--name", "net", "--no-prove", "--db", db, "--tune", f"{o.tune}s", "-q")
        said = run(quern, "allocate", net, "--check", path, "--report", "--json", "-q", "--db", db)
        t = json.loads(run(quern, "run", os.path.join(out, "net"), "--bench", "--timeout", f"{o.seconds}s", "--json"))
    p = json.loads(said.strip().splitlines()[-1])
    return {"one": p["latency"] * 1e3, "stream": p["period"] * 1e3}, {"one": t["one_ms"], "stream": t["overlapped_ms"]}, len(p["subgraphs"])


def main():
    a = argparse.ArgumentParser(description=__doc__.split(":")[0])
    a.add_argument("build", type=pathlib.Path)
    a.add_argument("--nets", default="resnet8,dscnn")
    a.add_argument("--tune", type=float, default=10)
    a.add_argument("--seconds", type=float, default=4)
    o = a.parse_args()
    quern = str(o.build / "quern")
    devices = present(quern)
    print("| network | allocation | sub-graphs | one: predicted (ms) | run | ratio | stream: predicted | run | ratio |\n" + "|---" * 9 + "|")
    for name in o.nets.split(","):
        with tempfile.TemporaryDirectory() as folder:
            net = os.path.join(folder, name + ".onnx")
            run(quern, "zoo", name, "-o", net)
            for what, alloc in allocations(quern, net, devices, folder):
                p, t, n = measure(quern, net, alloc, folder, o)
                print(f"| {name} | {what} | {n} | {p['one']:.3f} | {t['one']:.3f} | {p['one'] / t['one']:.2f} | "
                      f"{p['stream']:.3f} | {t['stream']:.3f} | {p['stream'] / t['stream']:.2f} |", flush=True)


if __name__ == "__main__":
    main()
