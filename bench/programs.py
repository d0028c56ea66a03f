# SPDX-License-Identifier: Apache-2.0
#
# The programs that quern runs for a row, tuned and untuned, compiled from the row's ONNX file.
# Measurements are kept in one database for each number of threads, build/rows/tN.db.
import contextlib
import json
import os
import shutil
import subprocess
import sys
import time

import numpy as np

import attention_forms
import forms
import operands
from rows import QUERN, ROOT

WORK = os.path.join(ROOT, "build/rows")
EXPORTED = os.path.join(WORK, "networks")  # kept: exporting takes longer than measuring


def quern(*args, show=False):
    """Runs the command; returns its seconds."""
    start, pipe = time.time(), None if show else subprocess.PIPE
    err = None if show else subprocess.STDOUT
    r = subprocess.run([QUERN, *args], stdout=pipe, stderr=err, text=True)
    nothing_new = args[0] == "tune" and r.returncode == 3
    if r.returncode and not nothing_new:
        raise RuntimeError("quern %s failed\n%s" % (" ".join(args), r.stdout or ""))
    return time.time() - start


def database(threads):
    return os.path.join(WORK, "t%d.db" % threads)  # of all instruction sets: rows know theirs


def known(threads):
    """The database that tuned programs are selected from."""
    if not os.path.exists(database(threads)):
        return "nothing tuned"
    args = [QUERN, "db", "stats", database(threads), "--json"]
    s = json.loads(subprocess.run(args, capture_output=True, check=True).stdout)
    return "%d candidates measured when tuning" % s["trials"]


def interface(row):
    """Options: images of a single layer have channels last, as between the layers of a network."""
    if row.kind in ("conv", "qconv"):
        layout = {1: "NWC", 2: "NHWC", 3: "NDHWC"}[len(row.size)]
        return ["--input-layout=" + layout, "--output-layout=" + layout]
    if row.kind == "net" and row.sizes:
        return ["--optimize-for", ",".join("%s:%d" % s for s in row.sizes)]
    return []


class Tuning:
    """Seconds for tuning: per row, and for all n rows of a group, each of which gets an equal part
    of the remaining time; 0: unlimited, both 0: no tuning."""

    def __init__(self, of_row, of_group, n):
        self.of_row, self.of_group, self.n, self.spent = of_row, of_group, n, 0.0

    @property
    def most(self):
        bounds = [b for b in (self.of_row * self.n, self.of_group) if b > 0]
        return min(bounds, default=0.0) * (self.n > 0)

    def describe(self):
        row, group = ", %g s a row" % self.of_row, ", %g s for all rows" % self.of_group
        text = row * (self.of_row > 0) + group * (self.of_group > 0)
        return ", tuned" + text if text else ""

    @contextlib.contextmanager
    def turn(self):
        """Seconds for the next row."""
        left = max(0.0, self.of_group - self.spent) / self.n if self.of_group > 0 else self.of_row
        start, self.n = time.time(), self.n - 1
        try:
            yield min(left, self.of_row) if self.of_row > 0 else left
        finally:
            self.spent += time.time() - start


def save_network(row, model, inputs):
    """Writes the network's file, and its inputs by name."""
    if row.exported:
        of = os.path.join(EXPORTED, row.network)
        export = [sys.executable, os.path.join(ROOT, "bench/networks.py"), EXPORTED, row.network]
        r = subprocess.run(export, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if r.returncode:
            raise RuntimeError(r.stdout.strip().splitlines()[-1])
        shutil.copyfile(of + ".onnx", model)
        shutil.copyfile(of + ".npz", inputs)
    else:
        quern("zoo", row.network, "-o", model)
        np.savez(inputs, **{operands.first_input(model): operands.operands(row)[0]})
    if row.form:
        plain = model + ".f32.onnx"
        os.replace(model, plain)
        if row.form == "int8":
            forms.quantise(plain, inputs, model)
        else:
            forms.halve(plain, model, row.form)
        os.remove(plain)


class Programs:
    """The files of a row for a number of threads; remove() after its measurement: some are
    large."""

    def __init__(self, row, threads, tuning, isa=""):
        # a database knows a network by its file's name, with the interface that it was tuned for
        self.threads, base = threads, os.path.join(WORK, row.name.replace(" ", "-") if row.kind == "net" else row.kind)
        self.model, self.tuned, self.untuned = base + ".onnx", base + ".dnx", base + ".untuned.dnx"
        self.inputs = base + ".npz" if row.kind == "net" else None
        os.makedirs(WORK, exist_ok=True)
        if row.kind == "net":
            save_network(row, self.model, self.inputs)
        else:
            operands.save_model(row, self.model)
        args = ["--db", database(threads), "--threads", str(threads), *interface(row)]
        args += ["--isa", isa] if isa else []
        with tuning.turn() as seconds:
            if seconds > 0:
                bound = ("--timeout", "%gs" % seconds)
                quern("tune", self.model, "-o", self.tuned, *bound, "-q", *args)
        quern("compile", self.model, "-o", self.untuned, "--untuned", *args)
        quern("compile", self.model, "-o", self.tuned, *args)
        again = ("compile", self.model, "-o", self.tuned, *args)
        self.seconds = quern(*again) if row.kind == "net" else 0  # all kernels are known now

    def are_same(self):
        """Whether both programs dispatch the same kernels: tuning found nothing better."""
        shown = [subprocess.run([QUERN, "show", p], capture_output=True).stdout for p in (self.tuned, self.untuned)]
        return shown[0] == shown[1]

    def of(self, engine):
        """The parameters of an engine's process."""
        program = {"quern": self.tuned, "quern untuned": self.untuned}.get(engine)
        return {"model": self.model, "program": program, "inputs": self.inputs}

    def remove(self):
        for path in {self.model, self.tuned, self.untuned, self.inputs, *attention_forms.files(self.model).values()}:
            if path:
                os.remove(path)
