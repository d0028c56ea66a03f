# SPDX-License-Identifier: Apache-2.0
"""FX graphs as Python text, for another process, which runs them but does not look into them."""
from __future__ import annotations

import functools
import sys
import types
from typing import Any, Callable

from ._digests import NotPortable


class SerializedGraph:
    """The forward of an FX graph as a function that can be pickled, made at its first call. Raises NotPortable if the graph has nested attributes."""

    def __init__(self, gm: Any) -> None:
        code = gm.graph.python_code("self")
        self.src = code.src
        self.names = {k: ("module", v.__name__) if isinstance(v, types.ModuleType) else ("value", v) for k, v in code.globals.items()}
        self.own = {n.target: getattr(gm, n.target) for n in gm.graph.nodes if n.op in ("get_attr", "call_module")}
        if any("." in name for name in self.own):
            raise NotPortable("a nested attribute of a graph")
        self.function: Callable[..., Any] | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "function": None}

    def __call__(self, *args: Any) -> Any:
        if self.function is None:
            names: dict[str, Any] = {k: sys.modules.get(v) or __import__(v, fromlist=["_"]) if kind == "module" else v for k, (kind, v) in self.names.items()}
            exec(compile(self.src, "<quern graph>", "exec"), names)
            self.function = functools.partial(names["forward"], types.SimpleNamespace(**self.own))
        return self.function(*args)
