# SPDX-License-Identifier: Apache-2.0
#
# Matmuls of a GPU beside a library, for tool/device-check: their list, the options for quern gemm,
# the interpretation of a database of trials, and the table. Nothing here runs anything.
import csv
import dataclasses
import io
import re

import rows
import stats

# quern's names of element types
TYPES = {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16", "tf32": "tf32"}
SQUARES = (1024, 2048, 4096, 8192)
VERIFIED = ("ok", "slow")
DRIFT = 0.05

# A point of the space for every shape: of a search only the matmul counts.
POINT = {
    "BLOCK_SIZE_M": 32, "BLOCK_SIZE_N": 32, "BLOCK_SIZE_K": 8, "THREAD_SIZE_M": 4, "THREAD_SIZE_N": 4,
    "BLOCK_LAYOUT_Y": 1, "BLOCK_LAYOUT_X": 1, "WARP_LAYOUT_Y": 8, "WARP_LAYOUT_X": 8,
    "GLOB_LOAD_WIDTH_A": 4, "GLOB_LOAD_WIDTH_B": 4, "BLOCK_SCATTER_WIDTH_M": 2, "BLOCK_SCATTER_WIDTH_N": 2,
    "WARP_SCATTER_WIDTH_M": 1, "WARP_SCATTER_WIDTH_N": 1, "LOCAL_SPLIT_U": 1, "BLOCK_MAPPING": 4,
    "GLOB_STORE_WIDTH": 0, "UNROLL_NUM": 16, "REG_PREFETCH": 0, "SHARED_PREFETCH": 0, "LOAD_CONTINUOUS": 1,
    "STORE_CONTINUOUS": 0, "WARP_SIZE": 64, "IS_ATRANS": 0, "DATATYPE_A": 4, "DATATYPE_B": 4, "DATATYPE_C": 4,
}  # fmt: skip


def shape(row):
    return row.batch, row.m, row.n, row.k


def shapes():
    """Squares, then the layers of transformers, each distinct shape once, operands as (m, k) and
    (k, n)."""
    found = {}
    for r in [rows.Gemm("square %d" % n, n, n, n) for n in SQUARES] + rows.group("matmul"):
        found.setdefault(shape(r), r)
    return list(found.values())


def read_shapes(text):
    """Parses "MxNxK" or "BxMxNxK", several separated by commas; ValueError."""
    found = []
    for word in text.split(","):
        sizes = [int(x) if x.isdecimal() else 0 for x in word.split("x")]
        if len(sizes) not in (3, 4) or min(sizes) < 1:
            raise ValueError("'%s' is neither MxNxK nor BxMxNxK" % word)
        *batch, m, n, k = sizes
        found.append(rows.Gemm(word, m, n, k, *batch))
    return found


def configuration(row):
    """The configuration for quern gemm."""
    lists = {key: [value] for key, value in POINT.items()}
    return {**lists, "M_SIZE": [row.m], "N_SIZE": [row.n], "K_SIZE": [row.k], "BATCH_SIZE": [row.batch]}


# --- the contents of a database, as printed by quern db export ------------------------------------


def trials(text):
    """The trials of one matmul: {candidate: {"status", "reason", "samples": [(seconds,
    reference's)]}}; a reference of 0: this is the reference. Excludes samples with flushed
    caches."""
    found = {}
    for r in csv.DictReader(io.StringIO(text)):
        t = found.setdefault(r["candidate"], {"status": r["status"], "reason": r["reason"], "samples": []})
        if r["seconds"] and r["cold"] == "0":
            t["samples"].append((float(r["seconds"]), float(r["reference_seconds"])))
    return found


def times(trial, reference):
    """Seconds, normalised to a reference of constant speed."""
    return [s / r * reference if r else s for s, r in trial["samples"]]


def best(found):
    """(candidate, its seconds) of the fastest one that was verified and timed completely, by the
    median of its ratios to the reference (doc/database.md); None if there is none."""
    beside = [r for t in found.values() for _, r in t["samples"] if r]
    alone = [s for t in found.values() for s, r in t["samples"] if not r]
    if not beside and not alone:
        return None
    reference = stats.median(beside or alone)
    done = [(c, times(t, reference)) for c, t in found.items() if t["status"] == "ok" and t["samples"]]
    return min(done, key=lambda x: stats.median(x[1]), default=None)


def failures(found):
    """{status: [number, candidate of the first, reason]} of candidates that failed."""
    out = {}
    for candidate, t in found.items():
        if t["status"] not in (*VERIFIED, "new"):
            out.setdefault(t["status"], [0, candidate, t["reason"]])[0] += 1
    return out


# --- rows that were measured ----------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Subject:
    """What a table is of."""

    what: str
    sizes: str  # heading of their column
    peer: str  # the library beside
    of: object  # row -> text of its sizes


MATMULS = Subject("matmul", "batch x m x n x k", "cuBLAS", lambda row: "x".join(map(str, shape(row))))


@dataclasses.dataclass
class Measured:
    row: object  # with name and flops
    kind: str
    ours: list = dataclasses.field(default_factory=list)  # seconds
    before: list = dataclasses.field(default_factory=list)  # the library's, before ours and behind
    behind: list = dataclasses.field(default_factory=list)
    text: str = ""  # the candidate, or why there is none
    note: str = ""  # of the library

    @property
    def theirs(self):
        return self.before + self.behind

    def rate(self, seconds):
        """TFLOP/s."""
        return self.row.flops / stats.median(seconds) * 1e-12 if seconds else 0.0

    def drift(self):
        """Why the library's samples are inconsistent; "" if they are consistent."""
        if not self.before or not self.behind:
            return ""
        change = stats.median(self.behind) / stats.median(self.before) - 1
        return "library %+.0f %% later" % (100 * change) if abs(change) > DRIFT else ""


def ratio(ours, theirs):
    """Speed-up over the library: of the medians, and the worst and the best that both confidence
    intervals allow, hence with a probability of at least 90 %."""
    (a, b), (c, d) = stats.interval(theirs), stats.interval(ours)
    return stats.median(theirs) / stats.median(ours), a / d, b / c


def limits(text):
    """{type: TFLOP/s} in the output of bench/device: matrix units with f32 accumulators, otherwise
    multiply-adds."""
    found = {k: 0.0 for k in TYPES}
    for line in re.finditer(r"^\d+x\d+x\d+:(\w+),\w+,f32,f32 +([\d.]+) GFLOP/s, right", text, re.M):
        kind = {"f16": "fp16", "bf16": "bf16", "tf32": "tf32", "f32": "fp32"}.get(line.group(1))
        if kind:
            found[kind] = max(found[kind], float(line.group(2)) * 1e-3)
    fma = re.search(r"^f32 multiply-adds +([\d.]+) GFLOP/s", text, re.M)
    return {k: v or (float(fma.group(1)) * 1e-3 if fma else 0.0) for k, v in found.items()}


def peaks(limit, measured, subject=MATMULS):
    """{type: (TFLOP/s, source)}: small kernels in registers, or a matmul if that was faster."""
    found = {k: (v, "bench/device") for k, v in limit.items() if v}
    for x in measured:
        for tool, seconds in ((subject.peer, x.theirs), ("quern", x.ours)):
            if x.rate(seconds) > found.get(x.kind, (0,))[0]:
                found[x.kind] = (x.rate(seconds), "%s, %s" % (tool, x.row.name))
    return found


def line(x, peak, subject=MATMULS):
    name = "%-16s %-22s" % (x.row.name, subject.of(x.row))
    part = lambda rate: "%5.1f" % (100 * rate / peak) if peak and rate else "    -"
    number = lambda v: "%8.2f" % v if v else "       -"
    ours, theirs = x.rate(x.ours), x.rate(x.theirs)
    ms = "%9.4f" % (1e3 * stats.median(x.ours)) if x.ours else "        -"
    beside = "%6.3f (%.3f-%.3f)" % ratio(x.ours, x.theirs) if x.ours and x.theirs else "     -"
    notes = "  ".join(t for t in (x.text, x.note, x.drift()) if t)
    return "%s %s %s %s %s %s %-22s %s" % (name, ms, number(ours), part(ours), number(theirs), part(theirs), beside, notes)


def table(measured, limit, subject=MATMULS):
    """The table, as lines, with a part for each type."""
    found, out = peaks(limit, measured, subject), []
    for kind in TYPES:
        here = [x for x in measured if x.kind == kind]
        if not here:
            continue
        peak, source = found.get(kind, (0.0, "nothing was measured"))
        out += ["", "%s, 100 %%: %.2f TFLOP/s (%s)" % (kind, peak, source)]
        out.append("%-16s %-22s %9s %8s %5s %8s %5s %-22s %s" % (
            subject.what, subject.sizes, "ms", "TFLOP/s", "%", subject.peer, "%", "times as fast (90 %)", "candidate"))  # fmt: skip
        out += [line(x, peak, subject) for x in here]
        both = [ratio(x.ours, x.theirs)[0] for x in here if x.ours and x.theirs]
        if both:
            out.append("geometric mean of %d of %d: %.3f times as fast" % (len(both), len(here), stats.geomean(both)))
    return out


def weight(x):
    """A row's weight in the distribution of time: 1, and 1 for each 256 MB of a candidate's
    memory."""
    return 1 + x.row.bytes * (1.0 if x.kind == "fp32" else 0.5) / 2**28


class Budget:
    """Distributes the time until a deadline over the remaining rows by their weights. The time of a
    row beside its search is estimated from previous rows."""

    def __init__(self, end, weights):
        self.end, self.weights, self.beside = end, list(weights), [1.0]

    def search(self, now):
        """Whole seconds of searching for the next row; 0: the deadline has passed."""
        share = (self.end - now) * self.weights[0] / sum(self.weights)
        del self.weights[0]
        if now + self.beside[-1] >= self.end:
            return 0
        return max(1, int(share - stats.median(self.beside)))

    def spent(self, searched, seconds):
        self.beside.append(max(0.0, seconds - searched))
