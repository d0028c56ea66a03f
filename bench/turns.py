# SPDX-License-Identifier: Apache-2.0
#
# Engines of tables with Python processes of their own (tokens.py, torch_compile.py), which wait on a pipe between their turns.
import json
import os
import select
import subprocess

import numpy as np

import worker
from rows import ROOT

LOAD_LIMIT, TURN_LIMIT = 900, 600  # seconds


class Process:
    """An engine, bound to as many processors as it has threads; args: its command, settings: environment variables. It answers lines of JSON, the first
    when it has loaded ("facts"). turns: the answers that measure() collected. Raises worker.Failed."""

    def __init__(self, name, args, threads, settings):
        self.name, self.turns = name, []
        cpus = sorted(os.sched_getaffinity(0))[-threads:]
        path = os.pathsep.join(filter(None, [ROOT + "/python", os.environ.get("PYTHONPATH")]))
        env = {**worker.environment(threads, settings), "PYTHONPATH": path, "QUERN_LIBRARY": ROOT + "/build/libquern.so"}
        self.p = subprocess.Popen(args, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=env,
                                  preexec_fn=lambda: os.sched_setaffinity(0, cpus))  # fmt: skip
        self.facts = self.answer(LOAD_LIMIT)

    def answer(self, limit):
        ready = select.select([self.p.stdout], [], [], limit)[0]
        line = self.p.stdout.readline() if ready else b""
        facts = json.loads(line) if line else {"error": "ended" if ready else "no answer for %d s" % limit}
        if "error" in facts:
            self.close()
            raise worker.Failed(facts["error"])
        return facts

    def turn(self, **what):
        """The answer to a line of JSON."""
        self.p.stdin.write(json.dumps(what).encode() + b"\n")
        self.p.stdin.flush()
        return self.answer(TURN_LIMIT)

    def close(self):
        self.p.kill()
        self.p.wait()

    def of(self, what):
        return [t[what] for t in self.turns]


def measure(made, rounds, **what):
    """Rounds of a turn of each, in changing order."""
    rng = np.random.default_rng(2)
    for _ in range(rounds):
        for e in rng.permutation(np.array(made, object)):
            e.turns.append(e.turn(**what))
