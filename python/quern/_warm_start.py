# SPDX-License-Identifier: Apache-2.0
"""Starts of compiled models that are remembered across processes: a later process traces nothing again.

PyTorch's compiler can give away what it made of a function, bytecode and guards (torch._dynamo.package), and take it back in another process. That is kept in
the user's cache, sealed by the library, with the divided graphs (_graph.Graph). What a process finds there it checks before use: that the functions that were
traced, and the classes of the model's modules, are the same (_digests.py), and the guards, at every call. Guards on identities (a function, a class, a module
of Python) mean nothing in another process, so PyTorch leaves them out. Here each of them becomes part of one guard that first compares what the objects are
with what they were, and from then on their identity. A model of which something cannot be described so is traced in every process.

PyTorch's interfaces for this are internal ones: versions that were not tested (TESTED), or that lack one of them, keep nothing.
"""
from __future__ import annotations

import contextlib
import functools
import logging
import threading
import weakref
from typing import Any, Callable, Iterator

import torch

from ._warm_start_guards import current

TESTED = ("2.15",)  # versions of PyTorch


@functools.cache
def package_class() -> Any:
    """_warm_start_package.Start; None: this PyTorch lacks what it needs, or was not tested."""
    if not torch.__version__.startswith(tuple(f"{v}." for v in TESTED)):
        return None
    try:
        from torch._C._dynamo.eval_frame import _load_precompile_entry, _reset_precompile_entries  # noqa: F401
        from torch._dynamo.guards import _get_closure_vars  # noqa: F401

        from ._warm_start_package import Start
    except ImportError:
        return None
    return Start


def compiled(name: str | None, graph: Any) -> None:
    """A back end's graph, by the compiler's name for it."""
    start = getattr(current, "start", None)
    if start is not None and name is not None:
        start.graphs[name] = graph


# --- torch.compile ---


patching = threading.Lock()  # of PyTorch's module


class Lazy:
    """A back end that PyTorch gets ready at its first compilation: that imports much, which a process that compiles nothing does not need."""

    def __init__(self, given: Any, get: Callable[[Any], Callable[..., Any]]) -> None:
        self._torchdynamo_orig_backend, self.get = given, get

    def __call__(self, *args: Any, **named: Any) -> Any:
        return self.get(self._torchdynamo_orig_backend)(*args, **named)


@contextlib.contextmanager
def lazily(ours: Any) -> Iterator[None]:
    """Lets torch.compile take our back end as it is, without getting it ready."""
    from torch._dynamo import eval_frame
    with patching:
        usual = eval_frame.get_compiler_fn
        eval_frame.get_compiler_fn = lambda given: Lazy(given, usual) if given is ours else usual(given)
        try:
            yield
        finally:
            eval_frame.get_compiler_fn = usual


def is_told(record: logging.LogRecord) -> bool:
    """Whether a message of PyTorch's compiler concerns users: not that a start is not kept."""
    return not (getattr(current, "is_compiling", False) and str(record.msg).startswith("Detected a package bypass"))


def remember(backend: Any) -> None:
    """Lets torch.compile(..., backend="quern") keep starts; backend: its function."""
    kind = package_class()
    usual = torch._dynamo.optimize
    if kind is None or hasattr(usual, "quern_usual"):
        return
    logging.getLogger("torch._dynamo.output_graph").addFilter(is_told)

    @functools.wraps(usual)
    def optimize(*args: Any, **named: Any) -> Any:
        given = named.get("backend", args[0] if args else None)
        options = getattr(given, "kwargs", {})
        if getattr(given, "compiler_fn", given) is not backend or any(named.get(k) for k in ("package", "guard_filter_fn", "disable", "dynamic_shapes")):
            return usual(*args, **named)
        own = options.get("options") or {}
        if not isinstance(own, dict) or not own.get("remember", True) or torch._dynamo.config.caching_precompile:
            return usual(*args, **named)
        how = repr(sorted((k, v) for k, v in named.items() if k != "backend")) + repr(options)
        start = kind(how)
        with lazily(given):
            context = usual(*args, **{**named, "package": start, "guard_filter_fn": start.filter})
        if not hasattr(context, "enter_exit_hooks"):
            return usual(*args, **named)

        def wrap(model: Any) -> Any:
            start.model = model
            context.enter_exit_hooks[:] = [start.begin, *context.enter_exit_hooks, start.enter]
            result = context(model)
            weakref.finalize(result, start.withdraw).atexit = False
            return result

        return wrap

    setattr(optimize, "quern_usual", usual)
    torch._dynamo.optimize = optimize
