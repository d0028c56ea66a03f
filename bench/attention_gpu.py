# SPDX-License-Identifier: Apache-2.0
#
# Attention of a GPU beside PyTorch's, for tool/device-check attention: its rows, the command that
# searches for one, and what of its output counts. The table is that of matmuls.py. Nothing here
# runs anything.
import json

import matmuls
from attention import Attention

TYPES = ("fp16", "bf16")
HEADS = ((16, 64), (32, 128))  # heads, size of a head
LENGTHS = (1024, 4096, 16384)


def sizes(row):
    return "1x%dx%dx%d" % (row.heads, row.queries, row.size)


SUBJECT = matmuls.Subject("attention", "batch x heads x queries x size", "PyTorch", sizes)


def row(n, heads, size, causal):
    return Attention("%s %d, %dx%d" % ("causal" if causal else "whole", n, heads, size), n, n, heads, heads, size, causal)


def rows():
    """Prompts, causal and whole, the shortest ones first: the time may end before the last."""
    return [row(n, heads, size, causal) for n in LENGTHS for heads, size in HEADS for causal in (False, True)]


def read_shapes(text):
    """Parses "HEADSxQUERIESxSIZE", several separated by commas, each causal and whole; ValueError."""
    found = []
    for word in text.split(","):
        n = [int(x) if x.isdecimal() else 0 for x in word.split("x")]
        if len(n) != 3 or min(n) < 1:
            raise ValueError("'%s' is not HEADSxQUERIESxSIZE" % word)
        found += [row(n[1], n[0], n[2], causal) for causal in (False, True)]
    return found


def command(x, device, db, seconds):
    """Options of quern. Every kernel is verified; the reference evaluator would take minutes for
    the whole of a large one."""
    kind = "attention_origin" if x.row.causal else "attn_v1"
    return ["attention", sizes(x.row), "--kind", kind, "--dtype", matmuls.TYPES[x.kind], "--device", device, "--timeout",
            "%ds" % seconds, "--max-candidates", "100000", "--no-verify", "--json", "--db", db]  # fmt: skip


def result(text):
    """(seconds of the whole program on the device, its kernels with the milliseconds of each) in the
    output; None if it has none."""
    for line in reversed(text.splitlines()):
        try:
            event = json.loads(line)
        except ValueError:
            continue
        if isinstance(event, dict) and event.get("event") == "done" and event.get("ms"):
            kernels = ["%s %.4f" % (k["kernel"].rsplit("_", 1)[0], k["ms"]) for k in event["kernels"]]
            return event["ms"] * 1e-3, "; ".join(kernels)
    return None
