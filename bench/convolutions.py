# SPDX-License-Identifier: Apache-2.0
#
# Convolutions of a GPU beside its library, for tool/device-check conv: the options for quern conv,
# the interpretation of its layers, and the tables. Nothing here runs anything.
import dataclasses
import json

import stats

TUNED = "tuned"


def implementations(text):
    """The names printed by quern conv --list, "tuned" first."""
    part = text.split("implementations:")[-1].split("data sets:")[0]
    return [line.split()[0] for line in part.splitlines() if line.strip()]


def count(rows, wanted):
    """The number of rows selected by "A:B", "A:", ":B" or "A"; None: all. At least 1."""
    first, colon, last = (wanted or ":").partition(":")
    a = int(first or 0)
    b = int(last or rows) if colon else a + 1
    return max(1, min(b, rows) - a)


@dataclasses.dataclass
class Layer:
    """A layer of the output of quern conv --json; ms, base: median, low, high, or None."""

    number: int
    name: str
    ok: bool
    candidate: str = ""
    baseline: str = ""
    ms: tuple = None
    base: tuple = None
    ratio: tuple = None  # median, low, high
    gflop: float = 0.0
    gbytes: float = 0.0
    note: str = ""  # why there are no times


def times(found):
    return (found["median"], found["low"], found["high"]) if found else None


def layers(text):
    """{number: Layer} of the lines of a run, which may be truncated."""
    found = {}
    for line in text.splitlines():
        try:
            x = json.loads(line)
        except ValueError:
            continue
        if not isinstance(x, dict) or x.get("event") != "layer":
            continue
        ratio = (x["ratio"], x["ratio_low"], x["ratio_high"]) if "ratio" in x else None
        words = x["report"].split()
        found[x["layer"]] = Layer(
            x["layer"], x["name"], x["ok"], x["candidate"], x["baseline"], times(x.get("ms")),
            times(x.get("baseline_ms")), ratio, x["gflop"], x["gbytes"], "" if x["ok"] else " ".join(words)[:200],
        )  # fmt: skip
    return found


def share(x, limit):
    """Fraction of the roofline limit for the counted operations and bytes; None: unknown. limit:
    output of bench/device, "gflops" and "gbps"."""
    gflops, gbps = limit.get("gflops"), limit.get("gbps")
    if not x.ms or not gflops or not gbps:
        return None
    return max(x.gflop / gflops, x.gbytes / gbps) * 1e3 / x.ms[0]


def line(x, limit):
    part = share(x, limit)
    cells = [
        "%-48s" % x.name,
        "%10.4f" % x.ms[0] if x.ms else "%10s" % "-",
        "%9.3f" % (x.gflop / x.ms[0]) if x.ms else "%9s" % "-",
        "%5.1f" % (100 * part) if part else "%5s" % "-",
        "%10.4f" % x.base[0] if x.base else "%10s" % "-",
        "%-22s" % ("%6.3f (%.3f-%.3f)" % x.ratio if x.ratio else "     -"),
    ]
    return " ".join(cells) + " " + (x.candidate if x.ms else "FAILED: " + x.note)


def table(name, found, limit):
    """The table of one implementation, as lines."""
    if not found:
        return ["", name]
    baselines = sorted({x.baseline for x in found.values() if x.baseline}) or ["baseline"]
    out = ["", name, "%-48s %10s %9s %5s %10s %-22s %s" % (
        "layer", "ms", "TFLOP/s", "%", "ms", "times as fast (95 %)", "candidate; beside: " + ", ".join(baselines))]  # fmt: skip
    out += [line(found[k], limit) for k in sorted(found)]
    ratios = [x.ratio[0] for x in found.values() if x.ratio]
    if ratios:
        out.append("geometric mean of %d of %d: %.3f times as fast" % (len(ratios), len(found), stats.geomean(ratios)))
    return out


def overview(runs):
    """Speed-up over the baseline: a line for each layer, a column for each run {name: layers}."""
    names = {k: x.name for found in runs.values() for k, x in found.items()}
    if not names:
        return []
    out = ["", "times as fast as the baseline", "columns: " + ", ".join("%d %s" % (i, n) for i, n in enumerate(runs))]
    out.append("%-48s" % "layer" + "".join("%8d" % i for i in range(len(runs))))
    for k in sorted(names):
        cells = [found.get(k) for found in runs.values()]
        out.append("%-48s" % names[k] + "".join("%8.3f" % x.ratio[0] if x and x.ratio else "%8s" % "-" for x in cells))
    return out
