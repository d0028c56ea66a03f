# SPDX-License-Identifier: Apache-2.0
"""A graph of torch.compile, divided into pieces that the library runs (_piece.py) and the rest, which stays in PyTorch.

An operator that PyTorch's exporter to ONNX does not know, or the library refuses, stays in PyTorch; of the others the largest connected pieces without cycles
are taken. Pieces whose results differ are divided again at the first call. A graph whose pieces gain less than the borders between them cost runs in PyTorch as
a whole.
"""
from __future__ import annotations

import contextvars
import logging
import operator
import threading
from typing import Any, Callable, Sequence

import torch

from . import _decompose, _device, _fx, _fx_sizes, _mutations, _onnx, _training
from ._binding import CPU
from ._compare import DIFFERS, best_times, slower
from ._digests import NotPortable
from ._library import Error
from ._options import Options
from ._piece import Piece
from ._serialized_graph import SerializedGraph

log = logging.getLogger("quern")

ROUNDS = 64  # of partitioning, each of which leaves out more nodes

# Every compiled graph, or the reason why one stays in PyTorch, for explain().
recorder: contextvars.ContextVar[list[Graph | str] | None] = contextvars.ContextVar("quern graphs", default=None)


class Graph:
    """A compiled graph of ATen operators: called with its arguments, it returns its results, and writes to arguments what the model does. gm: the graph as
    AOTAutograd traced it, which is changed; static: per argument, whether it is a weight (the same memory in every call); kind: "inference", "forward" or
    "backward"; record: a list that it is added to."""

    def __init__(self, gm: torch.fx.GraphModule, static: Sequence[bool], options: Options, kind: str = "inference",
                 record: list[Graph | str] | None = None) -> None:
        self.writes, self.n_results = _mutations.take(gm)
        _fx_sizes.hoist_sizes(gm)
        self.gm, self.static, self.options, self.kind = gm, static, options, kind
        shared = _fx.share_results(gm, self.n_results) if kind == "inference" else []
        self.devices: list[torch.device] = []  # GPUs on which operators compute
        self.left: dict[str, str] = {**self.refusals(), **dict.fromkeys(shared, _fx.SHARES)}  # name of a node -> why it stays in PyTorch
        self.split: set[str] = set()  # names of nodes whose parts are exported, because the exporter does not take all forms of the operator
        self.pieces: list[Piece] = []
        self.outer: Any = gm  # the graph with the pieces; restored: a SerializedGraph
        self.reason: str | None = None           # why all of it stays in PyTorch
        self.seconds: list[float] | None = None  # [with the pieces, in PyTorch], measured
        self.run: Callable[..., Any] | None = None   # what calls run: with the pieces, or `alone`; None: not decided
        self.alone: Callable[..., Any] = gm.forward  # the graph in PyTorch
        self.is_restored = False  # from another process: judged there, and without FX graphs (gm is None)
        self.lock = threading.Lock()
        self.divide()
        if record is not None:
            record.append(self)

    # --- partitioning ---

    def refusals(self) -> dict[str, str]:
        """Of every operator that the exporter cannot take, or whose device the library cannot use, the reason."""
        left = {}
        for n in self.gm.graph.nodes:
            why = _onnx.refusal(n, self.is_composite) if n.op == "call_function" else None
            place = _fx.device_of(n)
            if place is not None and place.type == "cuda":
                if place not in self.devices:
                    self.options.check_device(place)
                    self.devices.append(place)
                trouble = None if why else _device.look(place).trouble
                why = why or trouble and f"the library cannot use device '{place}': {trouble}"
            if why and n.op == "call_function":
                left[n.name] = why
        return left

    def is_composite(self, target: Any) -> bool:
        return self.kind != "inference" and _training.is_composite(target)

    def divide(self) -> None:
        """Partitions the graph until every piece is supported."""
        for _ in range(ROUNDS):
            outer, pieces = self.partition()
            bad: dict[str, str] = {}
            n = len(self.split)
            for p in pieces:
                bad.update(self.complaints(p))
            if not bad and len(self.split) == n:
                self.outer, self.pieces = outer, pieces
                return
            self.left.update(bad)
        log.warning("torch.compile: a graph of %d nodes is not divided after %d rounds, it stays in PyTorch", len(self.gm.graph.nodes), ROUNDS)

    def partition(self) -> tuple[torch.fx.GraphModule, list[Piece]]:
        """The graph with pieces as modules, and these."""
        from torch.fx.passes.infra.partitioner import CapabilityBasedPartitioner
        from torch.fx.passes.operator_support import OperatorSupportBase
        from torch.fx.passes.utils.fuser_utils import fuse_by_partitions

        class Support(OperatorSupportBase):
            def __init__(self, place: torch.device, left: dict[str, str]) -> None:
                self.place, self.left = place, left

            def is_node_supported(self, submodules: Any, node: torch.fx.Node) -> bool:
                return node.op == "call_function" and node.name not in self.left and _fx.device_of(node) == self.place

        gm = _fx.copy_of(self.gm)
        for k, place in enumerate([CPU, *self.devices]):  # pieces of one device are operators of the graph in which those of the next are looked for
            parts = CapabilityBasedPartitioner(gm, Support(place, self.left), allows_single_node_partition=True).propose_partitions()
            parts = [p for p in parts if is_worth(list(p.nodes))]
            fuse_by_partitions(gm, [dict.fromkeys(p.nodes) for p in parts], prefix=f"piece_{k}_" if k else "piece_", always_return_tuple=True)
        static = {n.name for n, s in zip(_fx.placeholders(self.gm), self.static) if s}
        static |= {n.name for n in self.gm.graph.nodes if n.op == "get_attr"}  # constants of the model's code
        pieces = []
        for n in gm.graph.nodes:
            if n.op == "call_module" and str(n.target).startswith("piece_"):
                sub = getattr(gm, n.target)
                pieces.append(Piece(n.target, sub, [a.name in static for a in n.args], self.options, self.exported, self.kind != "inference"))
        gm.graph.eliminate_dead_code()
        gm.recompile()
        return gm, pieces

    def exported(self, gm: torch.fx.GraphModule) -> torch.fx.GraphModule:
        """The form of a piece that is exported."""
        try:
            gm = _decompose.split(gm, self.split)
        except Exception as e:  # PyTorch's, for instance because data decide something: the operators are refused once more then, and stay
            log.info("torch.compile: operators are not traced in parts: %s", e)
        return gm if self.kind == "inference" else _training.decompose(gm)

    def complaints(self, piece: Piece) -> dict[str, str]:
        """Nodes of a piece that the exporter or the library refuses after all: name -> reason. A refusal without a node concerns the whole piece. An operator
        that is refused is tried in parts first, where PyTorch has some."""
        names: Sequence[str | None]
        try:
            piece.prepare()
            return {}
        except _onnx.Refused as e:
            names, why = [e.node], e.reason
        except Error as e:
            names, why = blamed(str(e), piece), str(e)
        except Exception as e:  # an exporter's bug must not be the end of the model
            log.warning("torch.compile: %s: %s: %s", piece.name, type(e).__name__, e)
            names, why = [], f"{type(e).__name__}: {e}"
        origins = {n.name: n.meta.get("origin", n.name) for n in piece.net.graph.nodes}
        known: dict[str, Any] = {n.name: n for n in piece.nodes}
        refused: list[str] = [n for n in map(origins.get, names) if n in known]
        whole = [n for n in refused if n not in self.split and _decompose.has_parts(known[n].target)]
        self.split.update(whole)
        return {} if whole else dict.fromkeys(refused or sorted(known), why)

    # --- other processes ---

    def saved(self) -> Graph:
        """This graph as it is kept for another process: without FX graphs, which take long to read, and not started. Raises NotPortable."""
        if self.run is None and not self.is_restored:
            raise NotPortable("a graph that did not run")
        kept = Graph.__new__(Graph)
        kept.__dict__.update(self.__dict__)
        if not self.is_restored:
            alone = SerializedGraph(self.gm)
            kept.__dict__.update(is_restored=True, gm=None, alone=alone, outer=alone if self.run == self.alone else SerializedGraph(self.outer))
        return kept

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "run": None, "lock": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.lock = threading.Lock()

    # --- running ---

    def __call__(self, *args: Any) -> Any:
        out = self.compute(args)
        if not self.writes:
            return out
        _mutations.perform(self.writes, args, out)
        return out[:self.n_results]

    def compute(self, args: Sequence[Any]) -> Any:
        """The results, and what is to be written to arguments."""
        if self.devices and _device.is_capturing():  # a graph of CUDA would keep the library's temporary memory and streams, which change between calls
            return self.alone(*args)
        return self.run(*args) if self.run else self.start(args)

    def as_before(self) -> Any:
        """A context after which generators of random numbers are as before."""
        return torch.random.fork_rng(devices=[d.index for d in self.devices])

    def start(self, args: Sequence[Any]) -> Any:
        """The first call, in which the pieces start."""
        with self.lock:
            if self.run:
                return self.run(*args)
            record = recorder.get()
            if self.is_restored and record is not None:
                record.append(self)
            if self.outer is self.alone:  # an earlier process left it in PyTorch
                self.run = self.alone
                return self.run(*args)
            out = self.first(args)
            for _ in range(ROUNDS):
                wrong = {p.nodes[p.wrong].name: DIFFERS for p in self.pieces if p.wrong is not None}
                if not wrong:
                    break
                self.left.update(wrong)
                self.divide()
                with self.as_before():
                    self.first(args)
            run = self.together()
            if not any(p.bound for p in self.pieces) or not self.is_restored and not self.judge(args):
                run = self.alone
            self.run = run
            return out

    def is_left(self) -> bool:
        """Whether it was decided that all of it stays in PyTorch."""
        return self.run is not None and (self.reason is not None or not any(p.bound for p in self.pieces))

    def first(self, args: Sequence[Any]) -> Any:
        """A call in which the pieces start."""
        if not self.is_restored:
            for p in self.pieces:  # plain attributes: modules' calls cost more
                delattr(self.outer, p.name)
                self.outer.__dict__[p.name] = p
        return self.together()(*args)

    def together(self) -> Callable[..., Any]:
        """The graph with its pieces, as a function."""
        forward: Callable[..., Any] = self.outer if self.is_restored else self.outer.forward
        return forward

    def judge(self, args: Sequence[Any]) -> bool:
        """Whether all pieces together, with their borders, are faster than the graph in PyTorch."""
        if not self.options.measure or len(self.pieces) == 1 and not self.left:
            return True
        with self.as_before():  # operators outside of pieces may draw numbers
            self.seconds = best_times(self.together(), self.alone, args, wait=_device.waiter(self.devices))
        self.reason = slower(self.seconds)
        if self.reason:
            log.info("torch.compile: a graph stays in PyTorch: %s", self.reason)
        return not self.reason


def works(node: torch.fx.Node) -> bool:
    """Whether a node computes something, rather than being an element of a result or a view."""
    return node.op == "call_function" and node.target is not operator.getitem and not any(r.alias_info for r in node.target._schema.returns)


def is_worth(nodes: Sequence[torch.fx.Node]) -> bool:
    """Whether a piece of these nodes may gain more than its border costs. Of a lone operator that is left to measurements, unless it is elementwise."""
    working = [n for n in nodes if works(n)]
    return len(working) > 1 or bool(working) and (len(nodes) > 1 or torch.Tag.pointwise not in working[0].target.tags)


def blamed(message: str, piece: Piece) -> list[str]:
    """The FX nodes that an error of the library names."""
    found = []
    for n in piece.net.graph.nodes:
        at = message.find(f"'{n.name}.")
        if at >= 0:
            found.append((at, n.name))
    return [name for _, name in sorted(found)[:1]]
