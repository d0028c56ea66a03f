# SPDX-License-Identifier: Apache-2.0
#
# The measuring machine: its measured peaks, other load, its name.
import json
import os
import subprocess
import time

from rows import ROOT


def peak(threads, isa=""):
    """{"gflops", "gbytes", "read", perhaps "bf16", "int8"}: multiply-adds, and GB/s of copying
    and of reading, with this number of threads."""
    limits = ["-l", "isa=" + isa] if isa else []
    args = [os.path.join(ROOT, "build/bench/peak"), *limits, str(threads)]
    return json.loads(subprocess.run(args, capture_output=True, text=True, check=True).stdout)


def busy():
    """Jiffies of all processors: busy, and total."""
    with open("/proc/stat") as f:
        v = [int(x) for x in f.readline().split()[1:9]]
    return sum(v) - v[3] - v[4], sum(v)


class Watch:
    """The fraction of the processors used by other processes since the creation; ended children of
    this process count as ours."""

    def __init__(self):
        self.start = self.now()

    def now(self):
        t = os.times()
        own = t.user + t.system + t.children_user + t.children_system
        return (*busy(), own * os.sysconf("SC_CLK_TCK"))

    def others(self):
        work, total, own = [b - a for a, b in zip(self.start, self.now())]
        return max(0.0, work - own) / max(1, total)


def wait_for_quiet(limit):
    end, share = time.time() + limit, 1.0
    while time.time() < end and share > 0.05:
        w = Watch()
        time.sleep(3)
        share = w.others()


def describe():
    with open("/proc/cpuinfo") as f:
        names = [line.split(":")[1].strip() for line in f if line.startswith("model name")]
    args = ["git", "-C", ROOT, "log", "-1", "--format=%h %cs"]
    commit = subprocess.run(args, capture_output=True, text=True).stdout.strip()
    name = names[0] if names else "unknown processor"
    return "%s, %d processors; quern %s" % (name, os.cpu_count(), commit)
