# SPDX-License-Identifier: Apache-2.0
"""Compiled code of PyTorch's compiler that another process made: its names among the globals of this one, and where the compiler finds it."""
from __future__ import annotations

import builtins
import dataclasses
import dis
import itertools
import re
import types
import weakref
from typing import Any, Callable, Mapping

from ._digests import NotPortable

BY_ADDRESS = re.compile(r"\b\w*_\d{6,}_c\d+(?:_\d+)*\b")  # names of globals that the compiler makes, other ones in each process

number = itertools.count(1)  # of names in this process


# --- names ---


def renamed(code: Any, names: Mapping[str, str]) -> Any:
    """Serialised code that reads other globals."""
    consts = tuple(renamed(c, names) if type(c) is type(code) else c for c in code.co_consts)
    return dataclasses.replace(code, co_names=tuple(names.get(n, n) for n in code.co_names), co_consts=consts)


def rename(entry: Any, graphs: Mapping[str, Any]) -> dict[str, Any]:
    """Gives what another process made names of this one, under which several models can have it."""
    names = {n: f"{n}_{next(number)}" for c in entry.codes for n in [*c.backend_ids, *(c.function_names if c.install_to_global else ())]}
    for c in entry.codes:
        c.backend_ids = [names[n] for n in c.backend_ids]
        if c.install_to_global:
            c.function_names = [names[n] for n in c.function_names]
        c.guarded_codes = [dataclasses.replace(g, dynamo_code=renamed(g.dynamo_code, names)) for g in c.guarded_codes]
    return {names[k]: g for k, g in graphs.items() if k in names}


def resumed(code: types.CodeType, variables: dict[str, Any], name: str) -> Callable[..., Any]:
    """What the compiler makes of the rest of a function behind what it cannot trace: a function, or, with free variables, a function that makes it."""
    if code.co_freevars:
        return lambda closure: types.FunctionType(code, variables, name, None, closure)
    return types.FunctionType(code, variables, name)


def globals_of(code: types.CodeType) -> set[str]:
    """Names of globals that code reads."""
    found = {i.argval for i in dis.get_instructions(code) if i.opname in ("LOAD_GLOBAL", "LOAD_NAME")}
    return found.union(*(globals_of(c) for c in code.co_consts if isinstance(c, types.CodeType)))


def check_globals(code: types.CodeType, variables: Mapping[str, Any]) -> None:
    """That compiled code finds its globals. Raises NotPortable."""
    missing = [n for n in globals_of(code) if n not in variables and not hasattr(builtins, n)]
    if missing:
        raise NotPortable(f"a global of another process, {missing[0]}")


# --- entries of the compiler's table ---


# Code -> [(reference to the Start, guard manager, compiled code)].
installed: dict[types.CodeType, list[tuple[weakref.ref[Any], Any, types.CodeType]]] = {}


def install(code: types.CodeType, start: Any, manager: Any, compiled: types.CodeType) -> None:
    """Lets the compiler run `compiled` instead of a code when its guards (manager) allow it, as long as start is not uninstalled."""
    from torch._C._dynamo.eval_frame import _load_precompile_entry
    installed.setdefault(code, []).append((weakref.ref(start), manager, compiled))
    _load_precompile_entry(code, manager, compiled)


def uninstall(start: Any) -> None:
    """Removes what install() did for a Start, and for those that are gone."""
    from torch._C._dynamo.eval_frame import _load_precompile_entry, _reset_precompile_entries
    for code, entries in list(installed.items()):
        left = [e for e in entries if e[0]() is not None and e[0]() is not start]
        if len(left) == len(entries):
            continue
        _reset_precompile_entries(code)
        for _, manager, compiled in left:
            _load_precompile_entry(code, manager, compiled)
        if left:
            installed[code] = left
        else:
            del installed[code]
