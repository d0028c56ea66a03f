#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
#
# torch_gpu.py: networks on the first CUDA (or ROCm) device by torch.compile(backend="quern"), beside eager PyTorch and torch.compile's own back end
# (inductor): a process of its own, controlled by lines of JSON on standard input (bench/worker.py), for tool/device-check torch, which has the table.
#
# Engines are measured in turn: a sample of each in a round, of consecutive calls that take SAMPLE seconds, until the device has done its work. Results are
# compared with eager's of the same network in f64.
import math
import time

import serve
import stats

SAMPLE, ROUNDS = 20e-3, 25
KINDS = ("f16", "f32")
ENGINES = ("eager", "quern", "inductor")  # in the order in which they are started: the last one is missing if the time ends
NAMES = ("resnet50", "bert-base", "gpt2-token", "unet")  # of torch_compile.py
AGREE = {"f32": 1e-2, "f16": 5e-2}  # of the largest result; PyTorch may round operands of convolutions in f32 to 10 bits (TF32)
LEAST = 0.97  # "never slower", within what the times vary


# --- the process ----------------------------------------------------------------------------------


class Networks:
    device = "cuda"

    def __init__(self):
        import quern.torch  # noqa: F401
        import torch
        import torch_compile

        self.torch, self.networks = torch, torch_compile
        torch.set_grad_enabled(False)

    def hello(self, ask):
        t = self.torch
        return {"version": "PyTorch %s, %s" % (t.__version__, "ROCm " + t.version.hip if t.version.hip else "CUDA " + t.version.cuda)}

    def load(self, ask):
        """Builds a network; inputs that are not integers have its type, too."""
        t = self.torch
        t._dynamo.reset()
        self.run, self.want = {}, None
        t.cuda.empty_cache()
        self.kind = ask["type"]
        dtype = {"f32": t.float, "f16": t.half}[self.kind]
        net, inputs = self.networks.build(ask["network"])
        exact = net.to(self.device, t.double)
        inputs = [x.to(self.device) for x in inputs.values()]
        self.want = exact(*[x.double() if x.is_floating_point() else x for x in inputs])
        self.net = net.to(dtype)
        self.inputs = [x.to(dtype) if x.is_floating_point() else x for x in inputs]
        return {}

    def start(self, ask):
        """Compiles it by one engine. Returns the seconds until the first result, how much it differs, and what stays in PyTorch."""
        from quern._dynamo import recording

        t, engine = self.torch, ask["engine"]
        begun, run = time.perf_counter(), self.net
        with recording() as graphs:
            if engine != "eager":
                t._dynamo.reset()
                run = t.compile(self.net, backend=engine)
            got = run(*self.inputs)
            t.cuda.synchronize()
        first = time.perf_counter() - begun
        self.run[engine] = run
        self.seconds(engine, 3)
        return {"first": first, "differs": self.networks.difference(got, self.want), "pieces": told(graphs) if engine == "quern" else ""}

    def seconds(self, engine, count):
        run, start = self.run[engine], time.perf_counter()
        for _ in range(count):
            run(*self.inputs)
        self.torch.cuda.synchronize()
        return (time.perf_counter() - start) / count

    def time(self, ask):
        """Per engine the seconds of a call, in each round."""
        names = list(self.run)
        count = {n: max(1, math.ceil(SAMPLE / max(self.seconds(n, 3), 1e-7))) for n in names}
        samples = {n: [] for n in names}
        for k in range(ask["rounds"]):
            for n in names[k % len(names) :] + names[: k % len(names)]:
                self.seconds(n, 1)
                samples[n].append(self.seconds(n, count[n]))
        return {"seconds": samples}


def told(graphs):
    """"2 of 3 pieces; slower than PyTorch (...)": how many the library runs, and the first reasons why it does not run more."""
    made = [g for g in graphs if not isinstance(g, str)]
    pieces = [p for g in made for p in g.pieces]
    used = [p for g in made for p in g.pieces if p.bound is not None and not g.reason]
    why = [p.reason for p in pieces if p.reason] + [g.reason for g in made if g.reason] + [g for g in graphs if isinstance(g, str)]
    why += [w for g in made for w in g.left.values() if w != "a size"]
    return "; ".join(["%d of %d pieces" % (len(used), len(pieces)), *list(dict.fromkeys(why))[:2]])


# --- the table ------------------------------------------------------------------------------------


class Measured:
    """A row. started: {engine: what start() answers}; seconds: {engine: of each round}; note: why something is missing."""

    def __init__(self, network, kind):
        self.network, self.kind, self.started, self.seconds, self.note = network, kind, {}, {}, ""

    def is_right(self, engine):
        return self.started[engine]["differs"] < AGREE[self.kind]

    def best_peer(self):
        """The faster one of those with right results; None: there is none."""
        peers = [e for e in self.seconds if e != "quern" and self.is_right(e)]
        return min(peers, key=lambda e: stats.median(self.seconds[e]), default=None)

    def ratio(self):
        """How many times as fast as the best peer, with its interval; None: not measured."""
        best = self.best_peer()
        return stats.ratio(self.seconds[best], self.seconds["quern"]) if best and "quern" in self.seconds else None


def rows():
    """All networks in one type first: the time may end before the last."""
    return [Measured(n, k) for k in KINDS for n in NAMES]


FORMAT = "%-12s %-4s %s  %-24s %8s %8s  %s"


def line(x):
    cells = ["%11.3f" % (1e3 * stats.median(x.seconds[e])) if e in x.seconds else "%11s" % "-" for e in ENGINES]
    r, ours = x.ratio(), x.started.get("quern")
    notes = [ours["pieces"] if ours else "", *("%s is WRONG" % e for e in x.started if not x.is_right(e)), x.note]
    return FORMAT % (x.network, x.kind, " ".join(cells), "%.3f (%.3f to %.3f)" % r if r else "-", "%.1f" % ours["first"] if ours else "-",
                     "%.1e" % ours["differs"] if ours else "-", "; ".join(filter(None, notes)))  # fmt: skip


def table(measured):
    yield FORMAT % ("network", "", " ".join("%8s ms" % e for e in ENGINES), "times the best peer", "first s", "differs", "quern's pieces")
    yield from map(line, measured)
    ratios = [r[0] for r in (x.ratio() for x in measured) if r]
    if ratios:
        yield "geometric mean %.3f times the best peer, least %.3f; %d rows, %d under %.2f" % (
            stats.geomean(ratios), min(ratios), len(ratios), sum(r < LEAST for r in ratios), LEAST)  # fmt: skip


if __name__ == "__main__":
    serve.serve(Networks)
