# SPDX-License-Identifier: Apache-2.0
"""Networks as graphs: operators and tensors by name, for networkx, viewers and pictures."""
from __future__ import annotations

import json
import os
from ctypes import byref, c_void_p, pointer
from typing import Any, Mapping, Sequence

from ._allocate import sources
from ._inputs import sizes_text
from ._library import Context, GraphOpts, TargetOpts, lib, text
from ._program import Model, open_model

Allocation = Any  # a dictionary, the path of a JSON file, or None


class Graph:
    """Operators and tensors of a network as nodes of a directed graph, in topological order.

    `quern.graph` returns it. Names are those of allocations: "conv2d_2", "tensor_4", "paramtensor_3".

    Attributes
    ----------
    name : str
        Of the network.
    facts : dict
        Of the whole: "inputs", "outputs" (names of tensors), "sizes", with an allocation "devices" and "subgraphs", with measurements "seconds".
    nodes : dict
        The data of each node by its name. Operators ("kind": "OpNode") have "type", "node", "attributes", "inputs", "outputs", "flops", "bytes",
        and, where they are known, "device", "subgraph", "seconds", "fused_into"; tensors ("TensorNode", "ParamTensorNode") "value", "dtype",
        "shape", "bytes".
    edges : list of tuple
        Pairs of names, (from, to).

    Examples
    --------
    >>> g = quern.graph("net.onnx", allocation={"conv2d_2": "NVIDIA:0", "add_5": "X64:0"})
    >>> g.operators
    ['conv2d_2', 'add_5']
    >>> g.draw("net.svg")
    """

    name: str
    facts: dict[str, Any]
    nodes: dict[str, dict[str, Any]]
    edges: list[tuple[str, str]]

    def __init__(self, context: Context, model: c_void_p, database: c_void_p | None, options: Mapping[str, Any]) -> None:
        """model: a handle, which the graph owns."""
        self._context, self._model, self._database, self._options = context, model, database, dict(options)
        self._text = self._print("json")
        all = json.loads(self._text)
        self.facts, self.name = all["graph"], all["graph"].get("name", "")
        self.nodes = {x["id"]: x["data"] for x in all["nodes"]}
        self.edges = [(x["source"], x["target"]) for x in all["edges"]]

    @property
    def operators(self) -> list[str]:
        """Names of the operators, in topological order."""
        return [name for name, x in self.nodes.items() if x["kind"] == "OpNode"]

    @property
    def allocation(self) -> dict[str, str] | None:
        """The device of each operator. None: the graph has no allocation."""
        return {name: self.nodes[name]["device"] for name in self.operators} if "devices" in self.facts else None

    def __repr__(self) -> str:
        n = len(self.operators)
        return f"<quern.Graph '{self.name}': {n} operators, {len(self.nodes) - n} tensors>"

    def _repr_svg_(self) -> str:
        return self._print("svg")

    def __del__(self) -> None:
        c = getattr(self, "_context", None)
        if c is not None and c.is_ours() and self._model:
            lib.quern_model_close(self._model)
            self._model = c_void_p()

    def __reduce__(self) -> Any:
        raise TypeError("a graph of quern cannot be pickled or copied: save() it to a file, or pickle to_networkx()")

    def _opts(self, form: str | None, more: Mapping[str, Any]) -> Any:
        return byref(GraphOpts(form=text(form), **{**self._options, **more}))

    def _print(self, form: str, **more: Any) -> str:
        with self._context.lock:
            return self._context.take_text(lib.quern_graph_text, self._model, self._database, self._opts(form, more))

    def to_networkx(self) -> Any:
        """A networkx.DiGraph: `G.nodes[name]["data"]` has the data of a node, `G.graph` the facts. It needs networkx, and shares nothing with this graph."""
        import networkx
        g = networkx.DiGraph(**json.loads(self._text)["graph"])
        g.add_nodes_from((x["id"], {"data": x["data"]}) for x in json.loads(self._text)["nodes"])
        g.add_edges_from(self.edges)
        return g

    def save(self, path: str | os.PathLike[str], form: str | None = None) -> None:
        """Writes a file.

        Parameters
        ----------
        path : path
            The file; its suffix tells the form: .json (`networkx.node_link_graph` reads it), .graphml, .dot, .svg, .png or .onnx (the network,
            with notes for viewers).
        form : str, optional
            The form, if the suffix does not tell it.
        """
        with self._context.lock:
            self._context.check(lib.quern_graph_write(self._model, self._database, self._opts(form, {}), text(path)))

    def draw(self, path: str | os.PathLike[str] | None = None, size: float = 0, collapse: str | None = None, params: bool | None = None) -> str | None:
        """Draws a picture by Graphviz, which must be installed.

        Parameters
        ----------
        path : path, optional
            A file, .svg, .png or .dot. None: the text of an SVG file is returned; in notebooks, the graph shows itself.
        size : float, optional
            Most inches of width and height, usually 5 to 40; 0: what it takes.
        collapse : str, optional
            What is drawn as one: "auto" (None), "none", "module", "fusion" or "blocks".
        params : bool, optional
            Whether parameters are drawn; None: those of small networks.
        """
        more = dict(inches=size, collapse=text(collapse) or self._options.get("collapse"), params=0 if params is None else 1 if params else -1)
        if path is None:
            return self._print("svg", **more)
        with self._context.lock:
            self._context.check(lib.quern_graph_write(self._model, self._database, self._opts(None, more), text(path)))
        return None


def graph(model: Model, allocation: Allocation = None, database: str | os.PathLike[str] | None = None, sizes: Mapping[str, int] | None = None,
          collapse: str | None = None, device: str | None = None, threads: int = 0, isa: str | Sequence[str] | None = None,
          assume: Mapping[str, Any] | None = None, external_data_links: bool = False) -> Graph:
    """The operators and tensors of a network as a graph.

    Parameters
    ----------
    model
        As of `quern.compile`, or an onnx.ModelProto.
    assume, external_data_links
        As of `quern.compile`.
    allocation : dict or path, optional
        A device for each operator, {"conv2d_2": "HEXAGON:0", "add_5": "X64:1"}, or a JSON file of that.
    database : path, optional
        A file filled by `quern.tune`: operators have the measured times of their kernels.
    sizes : dict, optional
        {"H": 1080, "W": 1920}, sizes for operations and bytes.
    collapse : str, optional
        Groups of operators: "module" (by the paths in nodes' names), "fusion" (by kernel) or "blocks". None: pictures of large networks have some.
    device, threads, isa
        Of the measurements, as of `quern.compile`.

    Returns
    -------
    Graph
    """
    if hasattr(model, "SerializeToString"):
        model = model.SerializeToString()
    c = Context()
    db = c.database(os.fspath(database)) if database else None
    options: dict[str, Any] = dict(sizes=text(sizes_text(sizes)), collapse=text(collapse), device=text(device), threads=threads)
    if isa is not None:
        options["target"] = pointer(TargetOpts(isa=text(isa if isinstance(isa, str) else ",".join(isa))))
    options["allocation"], options["allocation_file"] = sources(allocation)
    return Graph(c, open_model(c, model, sizes, assume, external_data_links), db, options)
