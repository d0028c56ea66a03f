# SPDX-License-Identifier: Apache-2.0
"""gpickle files: pickled graphs of networkx, with the network as ONNX among the graph's attributes.

A pickle is a program: `pickle.load` runs whatever it names. `read` builds graphs of networkx and plain containers only, and rejects a file that names
anything else."""
from __future__ import annotations

import os
import pathlib
import pickle
from typing import Any

__all__ = ["network", "read", "write"]

# Of networkx: graphs, and the views of them that a graph keeps once they were asked for.
CLASSES = {
    "networkx.classes.graph": {"Graph", "_CachedPropertyResetterAdj"},
    "networkx.classes.digraph": {"DiGraph", "_CachedPropertyResetterAdjAndSucc", "_CachedPropertyResetterPred"},
    "networkx.classes.multigraph": {"MultiGraph"},
    "networkx.classes.multidigraph": {"MultiDiGraph"},
    "networkx.classes.coreviews": {"AdjacencyView", "AtlasView", "MultiAdjacencyView"},
    "networkx.classes.reportviews": {"NodeView", "EdgeView", "OutEdgeView", "InEdgeView", "DegreeView", "DiDegreeView", "InDegreeView", "OutDegreeView"},
    "collections": {"OrderedDict"},
    "builtins": {"bytearray", "complex", "dict", "float", "frozenset", "int", "list", "object", "set", "str", "tuple"},
    "copyreg": {"_reconstructor"},
}
MOST_BYTES = 1 << 32


class Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if name not in CLASSES.get(module, ()):
            raise pickle.UnpicklingError(f"it holds a '{module}.{name}': only graphs of networkx and plain containers are read")
        return super().find_class(module, name)

    def persistent_load(self, pid: Any) -> Any:
        raise pickle.UnpicklingError("it refers to objects outside of it")


def read(path: str | os.PathLike[str]) -> Any:
    """The graph in a gpickle file. No code of the file runs. Raises OSError, or ValueError if the file holds no graph, or anything besides."""
    import networkx
    path = pathlib.Path(path).expanduser()
    if path.stat().st_size > MOST_BYTES:
        raise ValueError(f"'{path}' is larger than 4 GiB")
    try:
        with open(path, "rb") as f:
            graph = Unpickler(f).load()
    except OSError:
        raise
    except RecursionError:
        raise ValueError(f"'{path}' is nested too deeply") from None
    except Exception as e:  # of broken files, any
        raise ValueError(f"'{path}' is no gpickle file of a graph: {e}") from None
    if not isinstance(graph, networkx.DiGraph):
        raise ValueError(f"'{path}' holds a {type(graph).__name__}, no networkx.DiGraph")
    return graph


def write(path: str | os.PathLike[str], graph: Any) -> None:
    """Writes the graph; folders are made. The file replaces an earlier one only when it is complete."""
    path = pathlib.Path(path).expanduser()
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with open(part, "wb") as f:
            pickle.dump(graph, f, protocol=4)
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)


def network(graph: Any) -> bytes:
    """The network of a graph, as ONNX. ValueError: it has none."""
    onnx = graph.graph.get("onnx")
    if not isinstance(onnx, (bytes, bytearray)):
        raise ValueError("the graph has no network (attribute 'onnx'): it was not made by this package's zaiConverter, convert the model again")
    return bytes(onnx)
