# SPDX-License-Identifier: Apache-2.0
"""Guards of PyTorch's compiler on the identity of functions, classes and modules of Python, as they are kept for another process: by what these objects are."""
from __future__ import annotations

import re
import threading
import types
from typing import Any, Iterable, Sequence

from ._digests import Describer, NotPortable

IDENTITY_GUARDS = ("ID_MATCH", "FUNCTION_MATCH", "CLASS_MATCH", "MODULE_MATCH", "CLOSURE_MATCH")  # PyTorch's types of guards

ADDRESS = re.compile(r"(?<=, )\d{5,}(?=\))|\b0x[0-9a-f]+")  # in texts of guards: "___check_type_id(x, 1234567), type=..."

current = threading.local()  # of this thread; start: the package whose compiled function runs; is_compiling: whether PyTorch compiles for one


class IdentityGuard:
    """Called at each call of a compiled function: whether objects are the same as when it was compiled. how: options of the compilation; places: Python
    expressions in L, the function's variables, and G, its globals; objects: those that they must be; None: those of another process, which `what` describes."""

    def __init__(self, how: str, variables: dict[str, Any], places: list[str], what: list[str], objects: Sequence[Any] | None = None) -> None:
        from torch._dynamo.guards import _get_closure_vars
        self.how, self.globals, self.places, self.what, self.objects = how, variables, places, what, objects
        self.get = eval(f"lambda L, G: ({''.join(p + ', ' for p in places)})", dict(_get_closure_vars()))  # sources as the compiler writes them

    def __call__(self, variables: dict[str, Any]) -> bool:
        start = getattr(current, "start", None)
        if start is None or start.how != self.how:  # another back end's call of the same function
            return False
        try:
            found = self.get(variables, self.globals)
            if self.objects is not None:
                return all(map(is_same, found, self.objects))
            if describe_all(found) != self.what:
                return False
        except Exception:
            return False
        self.objects = found
        return True


def describe_all(values: Iterable[Any]) -> list[str]:
    describe = Describer()
    return [describe(v) for v in values]


def is_same(a: Any, b: Any) -> bool:
    return a is b


def place_of(guard: Any) -> tuple[str, Any]:
    """The expression for what a guard on identities compares, and its value."""
    if not guard.has_value:
        raise NotPortable(f"no value of {guard.name}")
    if guard.guard_type == "CLOSURE_MATCH" and type(guard.value) is types.FunctionType:
        return f"({guard.orig_guard.name}).__code__", guard.value.__code__
    return guard.orig_guard.name, guard.value


def meaning(texts: Iterable[str] | None) -> set[str]:
    """Of what the compiler says a guard is: without addresses. A guard that another process made takes its values from what it finds in this one, if they are
    attributes of modules, functions or classes: then it may be another one now."""
    return {ADDRESS.sub("", t) for t in texts or ()}


def add(manager: Any, guard: IdentityGuard) -> None:
    manager.root.add_lambda_guard(guard, ["options, functions, classes and modules are those that were compiled"], None)
