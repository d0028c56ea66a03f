# SPDX-License-Identifier: Apache-2.0
"""A piece of a graph for torch.compile: an FX graph of ATen operators, and the program that runs it instead.

The program is made at the first call, whose arguments say which sizes to select kernels for. It is then run beside the operators themselves: it must have
the same results, within rounding, and be faster; otherwise the piece stays in PyTorch, and `reason` says why. What was made and found is kept in the
user's cache (doc/pytorch.md), so the next process does neither.

Weights become constants of the program, which has them in the layouts of its kernels, except for matrices that have more than COPIES bytes together: they are
arguments like any other, which the program reads in PyTorch's memory. It is made anew if a constant changed since in PyTorch (its version counter says
so), unless that happens all the time. With weights="in place" all are arguments, with weights="packed" all are constants.
"""
from __future__ import annotations

import functools
import json
import logging
import operator
import os
import tempfile
import threading
from ctypes import byref, c_void_p
from typing import Any, Callable, Iterable, Mapping, Sequence

import torch

from . import _device, _fx, _fx_sizes, _model, _onnx, _tuning_process
from . import _arrays as arrays
from ._binding import Binding, Changes
from ._cache import cache, environment
from ._compare import DIFFERS, close, compare
from ._library import CompileOpts, Context, Error, cache_path, lib, text
from ._nvrtc import compiler_folders
from ._options import Options
from ._program import Program
from ._reference import Reference
from ._serialized_graph import SerializedGraph

log = logging.getLogger("quern")

COPIES = 512 << 20  # bytes of a piece's matrices (linear layers, embeddings) that may be copied: for more, memory matters more than some of the time


@functools.cache
def warn_once(message: str) -> None:
    """What a user can mend outside of the model: no compiler, a full disk."""
    log.warning("%s", message)


# --- pieces ---


def symbols_of(net: torch.fx.GraphModule, taken: Iterable[int]) -> list[tuple[str, int, int]]:
    """Where symbols of sizes are found: [(symbol, position among the arguments, axis)]."""
    found: list[tuple[str, int, int]] = []
    for n, at in zip(_fx.placeholders(net), taken):
        t = n.meta.get("val")
        for axis, s in enumerate(t.shape if isinstance(t, torch.Tensor) else ()):
            if isinstance(s, torch.SymInt) and s.node.expr.is_Symbol:
                found.append((str(s.node.expr), at, axis))
    return found


class Piece:
    """Called like the FX graph that it replaces. gm: the graph, runnable, with all results on one device; static: per argument, whether it is a weight (the
    same memory in every call); form: a function that gives the graph to export; keeps: weights keep the order of axes in memory, like other arguments."""

    def __init__(self, name: str, gm: torch.fx.GraphModule, static: Sequence[bool], options: Options,
                 form: Callable[[torch.fx.GraphModule], torch.fx.GraphModule], keeps: bool = False) -> None:
        self.name, self.static, self.options, self.form, self.keeps = name, static, options, form, keeps
        self.is_restored = False  # from another process: without FX graphs
        self.eager: Any = gm      # the piece in PyTorch; restored: a SerializedGraph
        self.nodes = _fx.calls(gm)
        self.device: torch.device = next(filter(None, map(_fx.device_of, self.nodes)))
        self.is_on_gpu = self.device.type != "cpu"
        self.reason: str | None = None           # why it stays in PyTorch
        self.wrong: int | None = None            # index of the operator because of which its results differ
        self.seconds: list[float] | None = None  # [program, operators], measured
        self.bound: Binding | None = None        # the program with its arguments
        self.lock = threading.Lock()
        self.is_started = False
        self.is_told = False                     # that a call on a GPU failed
        self.changes = Changes()
        self.net = _fx.copy_of(form(gm))         # what is exported
        self.arg_orders = _fx.take_strides(self.net, [keeps or not s for s in static])  # per argument, the order of its axes in the program
        orders = _fx.keep_strides(self.net)
        self.result_orders = orders if any(orders) else None  # per result, the axes that PyTorch's strides need
        _fx_sizes.settle_sizes(self.net)
        self.taken = _fx_sizes.bind_sizes(self.net)  # positions of the arguments that the program gets
        self.content = _fx.content(self.net)         # the piece as text, a part of all keys
        self.symbols = symbols_of(self.net, self.taken)
        self.model: bytes | None = None              # restored: the piece in ONNX

    def __getstate__(self) -> dict[str, Any]:
        """For another process: without what is made at the first call, and without FX graphs."""
        eager = self.eager if self.is_restored else SerializedGraph(self.eager)
        return {**self.__dict__, "is_restored": True, "eager": eager, "model": self.onnx(), "form": None, "net": None, "nodes": [], "bound": None, "lock": None,
                "is_started": False, "changes": Changes()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.lock = threading.Lock()

    def ordered(self, args: Sequence[Any]) -> Sequence[Any]:
        """Arguments with the axes in the order of the program's inputs."""
        return [a.permute(order) if order else a for a, order in zip(args, self.arg_orders)] if any(self.arg_orders) else args

    def __call__(self, *args: Any) -> Any:
        if not self.is_started:
            with self.lock:
                if not self.is_started:
                    self.start(args)
                    self.is_started = True
        if self.bound is None or not self.bound.is_ours():
            return self.eager(*args)
        return self.run(args)

    def run(self, args: Sequence[Any]) -> Any:
        """The results by the program, or by PyTorch in calls that it cannot take."""
        self.changes.calls += 1
        bound, given = self.bound, args
        args = self.ordered(args)
        if bound is not None and bound.has_changed(args):
            bound = self.remake(args)
        if bound is None:
            return self.eager(*given)
        try:
            out = self.with_memory(bound.run, args)
            return out if self.result_orders is None else tuple([t.permute(axes) if axes else t for t, axes in zip(out, self.result_orders)])
        except Error as e:
            if e.status == "INPUT":  # sizes that the network cannot have, as the library infers them
                log.info("torch.compile: a call of %s runs in PyTorch: %s", self.name, e)
            elif self.is_on_gpu and self.is_started:  # memory that the driver does not know, or too little of it
                log.log(logging.INFO if self.is_told else logging.WARNING, "torch.compile: a call of %s runs in PyTorch: %s", self.name, e)
                self.is_told = True
            else:
                raise
            return self.eager(*given)

    def remake(self, args: Sequence[Any]) -> Binding | None:
        """The program for changed weights; None if they change so often that the piece is left to PyTorch."""
        with self.lock:
            if self.bound is None or not self.bound.has_changed(args):  # by another thread meanwhile
                return self.bound
            if self.changes.are_too_many():
                self.bound, self.reason = None, Changes.UNSTEADY
                log.info("torch.compile: %s stays in PyTorch: %s", self.name, self.reason)
            else:
                self.bound = self.make(args)
            return self.bound

    # --- making the program ---

    def onnx(self) -> bytes:
        """The piece as an ONNX model, from the cache if it was exported before. Raises Refused."""
        if self.model is not None:
            return self.model
        return cache.get_or_make(f"onnx {_onnx.OPSET} {environment()}\n{self.content}", lambda: _onnx.to_onnx(self.net))

    def prepare(self) -> None:
        """Exports the piece and reads it without its weights, to find out whether it is supported. Raises Refused or Error."""
        context = Context()
        with context.lock:
            model = self.read(context, self.onnx(), {}, None)
            lib.quern_model_close(model)

    def read(self, context: Context, onnx: bytes, constants: Mapping[int, torch.Tensor], sizes: str | None) -> c_void_p:
        """The model with these arguments as constants: position of an input -> tensor, whose memory must stay until the model is closed."""
        given = {k: arrays.describe(t, f"weight {k}") for k, t in constants.items()}
        return _model.read(context, onnx, self.name, given, len(self.taken), sizes)

    def sizes(self, args: Sequence[Any]) -> str | None:
        """The first call's sizes by name, for which kernels are selected: "s77:8,s3:128"."""
        given = [a.shape if isinstance(a, torch.Tensor) else [a] for a in args]  # a size: of the first axis, see _fx_sizes.give_axis
        known = {name: int(given[at][axis]) for name, at, axis in self.symbols}
        return ",".join(f"{n}:{v}" for n, v in sorted(known.items())) or None

    def packed(self, args: Sequence[Any]) -> dict[int, torch.Tensor]:
        """Weights that become constants: position among the taken arguments -> tensor. Tensors of inference mode have no version counters."""
        if self.options.weights == "in place":
            return {}
        weights = {k: args[at].detach() for k, at in enumerate(self.taken)
                   if self.static[at] and isinstance(args[at], torch.Tensor) and not args[at].is_inference()}
        if self.options.weights is None and sum(t.nbytes for t in weights.values() if t.dim() == 2) > COPIES:
            return {k: t for k, t in weights.items() if t.dim() != 2}
        return weights

    def make(self, args: Sequence[Any]) -> Binding:
        """A program for these arguments."""
        o, c = self.options, Context()
        constants, sizes = self.packed(args), self.sizes(args)
        dense = {k: t.cpu().contiguous() for k, t in constants.items()}  # the model is in their memory; of a GPU's they are copies for so long
        with c.lock:
            model = self.read(c, self.onnx(), dense, sizes)
            try:
                bits = o.few_bits()
                if bits:
                    model = _model.quantised(c, model, bits)
                tuned = self.tune(c, model, dense, sizes) if o.mode == "tune" else None
                opts = CompileOpts(device=self.device_name(), threads=o.n_threads(self.device), keep=1, target=o.target())
                program = Program(c, self.with_memory(c.make, lib.quern_compile, model, tuned, byref(opts)))
            finally:
                lib.quern_model_close(model)
        taken = [at for k, at in enumerate(self.taken) if k not in constants]
        return Binding(program, taken, [(self.taken[k], t) for k, t in constants.items()], self.device)

    def with_memory(self, function: Callable[..., Any], *args: Any) -> Any:
        """Calls it; once more, without the memory that PyTorch keeps on a GPU for later, if that may have been missing."""
        try:
            return function(*args)
        except Error as e:
            if not self.is_on_gpu or e.status != "SYSTEM":
                raise
            torch.cuda.empty_cache()
            return function(*args)

    def device_name(self) -> bytes | None:
        """The library's, as bytes; None: the CPU."""
        return text(arrays.device_name(self.device)) if self.is_on_gpu else None

    def tune(self, c: Context, model: c_void_p, dense: Mapping[int, torch.Tensor], sizes: str | None) -> c_void_p:
        """The database with measurements of the piece, which are made once for each environment. dense: the weights in the host's memory."""
        o = self.options
        file = o.database or os.path.join(os.path.dirname(cache_path()), "torch.db")
        key = f"tuned {o.timeout} {sizes} {o.key(self.device)} {environment()}\n{self.content}"
        if cache.get(key) is None:
            if self.is_on_gpu:
                self.tune_apart(dense, sizes, os.path.abspath(file))
            else:
                _model.tune(c, c.database(file), model, None, o.n_threads(self.device), float(o.timeout), o.target())
            cache.put(key, b"tuned")
        return c.database(file)

    def tune_apart(self, dense: Mapping[int, torch.Tensor], sizes: str | None, file: str) -> None:
        """By another process: this one uses the device already."""
        o = self.options
        given = {k: (arrays.describe(t, f"weight {k}"), t.reshape(-1).view(torch.uint8).numpy().data) for k, t in dense.items()}
        with tempfile.TemporaryDirectory() as folder:
            _tuning_process.write_tuning(folder, self.onnx(), given, name=self.name, n=len(self.taken), sizes=sizes, database=file,
                                         weights=o.few_bits(), device=arrays.device_name(self.device),
                                         seconds=float(o.timeout), deterministic=bool(o.deterministic))
            _tuning_process.run(folder, compiler_folders(), float(o.timeout))

    def start(self, args: Sequence[Any]) -> None:
        """Makes the program, and decides whether it is used. Raises Error only for wrong values of options."""
        self.reason = self.seconds = self.wrong = None  # not those of another process
        try:
            self.decide(args)
        except (Error, _onnx.Refused) as e:
            if isinstance(e, Error) and e.status == "USAGE":  # an option's value
                raise
            self.reason = str(e)
            if isinstance(e, Error) and e.status == "SYSTEM":
                warn_once(f"torch.compile: models run in PyTorch: {e}")
        if self.reason:
            log.info("torch.compile: %s stays in PyTorch: %s", self.name, self.reason)
            self.bound = None

    def decide(self, args: Sequence[Any]) -> None:
        """As an earlier process did, if one did, else by a comparison."""
        o = self.options
        shapes = [tuple(a.shape) if isinstance(a, torch.Tensor) else a for a in args]
        key = f"verdict {shapes} {o.key(self.device)} {environment()}\n{self.content}"
        verdict = cache.get(key) if o.measure else None
        if verdict is not None:
            known = json.loads(verdict)
            self.reason, self.seconds = known["reason"], known["seconds"]
            self.wrong = None if self.is_restored else known["wrong"]
            if self.reason:
                return
        self.bound = self.make(self.ordered(args))
        if verdict is None:
            self.judge(args)
            if o.measure:
                cache.put(key, json.dumps({"reason": self.reason, "seconds": self.seconds, "wrong": self.wrong}).encode())

    def judge(self, args: Sequence[Any]) -> None:
        """Compares results and times with those of the operators."""
        self.reason, self.seconds = compare(lambda *a: self.run(a), self.eager, args, not self.options.few_bits(), self.options.measure,
                                            _device.waiter([self.device]), Reference(self.eager, args))
        if self.reason == DIFFERS:
            self.wrong = self.find_wrong(args)

    def find_wrong(self, args: Sequence[Any]) -> int | None:
        """The first operator, as an index of `nodes`, whose results differ from PyTorch's if the program returns all of them; None: none does then."""
        if self.is_restored:
            return None
        probe, nodes = _fx.with_all_results(self.eager)
        try:
            piece = Piece(self.name, probe, self.static, self.options, self.form, self.keeps)
            piece.bound = piece.make(piece.ordered(args))
            got = piece.run(args)
        except (Error, _onnx.Refused) as e:
            log.info("torch.compile: %s: %s", self.name, e)
            return None
        reference = Reference(probe, args)
        for k, (n, a, b) in enumerate(zip(nodes, got, probe(*args))):
            if not close([a], [b]) and not reference.approves([a], [b], k):
                name = n.args[0].name if n.target is operator.getitem else n.name
                return next(at for at, own in enumerate(self.nodes) if own.name == name)
        return None
