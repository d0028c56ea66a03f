# SPDX-License-Identifier: Apache-2.0
"""Descriptions of Python's objects that are the same in all processes: by them a process recognises functions and classes that another one compiled.

Functions are described by their code, classes by that of their methods, also inherited ones. What belongs to Python or PyTorch is described by its name: keys
of the cache contain their versions.
"""
from __future__ import annotations

import enum
import hashlib
import inspect
import os
import sys
import types
from typing import Any, Callable, Iterator

import torch

# Objects that are described by their repr (SIMPLE, NAMED) or their name (BUILT), and attributes of classes that are left out.
SIMPLE = (bool, int, float, complex, str, bytes, type(None), type(Ellipsis), type(NotImplemented))
NAMED = (torch.dtype, torch.device, torch.layout, torch.memory_format, torch.Size)
BUILT = (types.BuiltinFunctionType, types.MethodDescriptorType, types.WrapperDescriptorType, types.MethodWrapperType, types.ClassMethodDescriptorType,
         types.GetSetDescriptorType, types.MemberDescriptorType)
UNSTABLE = {"__dict__", "__weakref__", "__doc__", "__module__", "__annotations__", "__annotate_func__", "__annotations_cache__", "__firstlineno__",
            "__static_attributes__", "__parameters__", "__abstractmethods__", "_abc_impl", "__slotnames__"}


class NotPortable(Exception):
    """Something that another process could not recognise."""


class Describer:
    """Describes objects; each only once, so that functions and classes may refer to each other: descriptions depend on which came before."""

    def __init__(self) -> None:
        self.known: dict[int, tuple[Any, str]] = {}  # id -> (object, description; its name while it is being described)

    def __call__(self, value: Any, is_part: bool = False) -> str:
        """What an object is. Raises NotPortable if it is of no kind that has a description; is_part: its type is enough then."""
        if type(value) in SIMPLE or isinstance(value, NAMED):
            return f"{type(value).__name__} {value!r}"
        if isinstance(value, enum.Enum):
            return f"enum {type(value).__module__} {type(value).__qualname__} {value.name}"
        if isinstance(value, types.ModuleType):
            return f"module {value.__name__}"
        if isinstance(value, (torch._ops.OpOverload, torch._ops.OpOverloadPacket)):
            return f"operator {value}"
        if isinstance(value, BUILT):
            return f"{type(value).__name__} {getattr(value, '__module__', None)} {value.__qualname__}"
        if type(value) in (tuple, list, set, frozenset, dict):
            return self.container(value, is_part)
        if isinstance(value, (types.MethodType, staticmethod, classmethod)):
            return f"{type(value).__name__} {self(value.__func__, is_part)}"
        if isinstance(value, property):
            return f"property {[self(f, is_part) for f in (value.fget, value.fset, value.fdel)]}"
        if isinstance(value, types.CodeType):
            return f"code {self.code(value)}"
        if isinstance(value, types.FunctionType):
            return self.once(value, "function", self.function)
        if isinstance(value, type):
            return self.once(value, "class", self.methods)
        if is_part:
            return f"a {type(value).__module__} {type(value).__qualname__}"
        raise NotPortable(f"an object of type {type(value).__qualname__}")

    def once(self, value: Any, kind: str, content: Callable[[Any], str]) -> str:
        """A function or class with a digest of its content, unless Python or PyTorch defines it."""
        if id(value) not in self.known:
            name = f"{kind} {value.__module__} {value.__qualname__}"
            self.known[id(value)] = value, name
            if not belongs(value.__module__):
                self.known[id(value)] = value, f"{name} {content(value)}"
        return self.known[id(value)][1]

    def container(self, value: Any, is_part: bool) -> str:
        parts = [self(v, is_part) for v in (value.items() if isinstance(value, dict) else value)]
        return f"{type(value).__name__} {sorted(parts) if isinstance(value, (set, frozenset)) else parts}"

    def code(self, code: types.CodeType) -> str:
        """A digest of code, without lines and paths."""
        parts = [code.co_code, code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars, code.co_argcount, code.co_kwonlyargcount,
                 code.co_posonlyargcount, code.co_flags]
        return hashed(parts, [self(c, True) for c in code.co_consts])

    def function(self, f: types.FunctionType) -> str:
        return hashed(self.code(f.__code__), [self(v, True) for v in (f.__defaults__, f.__kwdefaults__, *map(content_of, f.__closure__ or ()))])

    def methods(self, c: type) -> str:
        """A digest of a class' attributes, also inherited ones."""
        return hashed([self(b) for b in c.__mro__[1:]], [(name, self(v, True)) for name, v in sorted(vars(c).items()) if name not in UNSTABLE])


def content_of(cell: types.CellType) -> Any:
    """A variable of a closure; None, if it has no value yet."""
    try:
        return cell.cell_contents
    except ValueError:  # empty
        return None


def hashed(*parts: Any) -> str:
    return hashlib.sha256(repr(parts).encode()).hexdigest()


def belongs(module: Any) -> bool:
    """Whether a module of this name is part of Python or PyTorch."""
    first = module.partition(".")[0] if isinstance(module, str) else ""
    standard = getattr(sys, "stdlib_module_names", ())  # from 3.10 on, which PyTorch with such packages needs
    return first == "torch" or first in standard and first != "__main__"


# --- places of functions and classes ---


def where_is(thing: Any) -> tuple[str, str, str] | None:
    """How another process finds a class or a function's code: (module, class, or function or property that contains it, digest). None: it belongs to Python or
    PyTorch. Raises NotPortable."""
    if isinstance(thing, type):
        return None if belongs(thing.__module__) else (thing.__module__, thing.__qualname__, Describer()(thing))
    if thing.co_filename.startswith((os.path.dirname(torch.__file__) + os.sep, "<frozen ")):
        return None
    module = inspect.getmodule(thing)
    if module is not None and belongs(module.__name__):
        return None
    name = thing.co_qualname.partition(".<locals>")[0]
    found = module and (module.__name__, name, Describer()(thing))
    if not found or not is_there(*found):
        raise NotPortable(f"code that cannot be found by a name, {thing.co_qualname}")
    return found


def is_there(module: str, name: str, digest: str) -> bool:
    """Whether this process has that class or code, too."""
    at = sys.modules.get(module)
    for part in name.split("."):
        at = vars(at).get(part) if isinstance(at, (type, types.ModuleType)) else None
    if isinstance(at, type):
        return Describer()(at) == digest
    return any(Describer()(c) == digest for c in codes_of(at, set()))


def codes_of(value: Any, seen: set[int]) -> Iterator[types.CodeType]:
    """Code of a function, and of those within it and behind it: nested ones, wrapped ones, getters."""
    if id(value) in seen or isinstance(value, type):
        return
    seen.add(id(value))
    if isinstance(value, types.CodeType):
        yield value
        parts = list(value.co_consts)
    elif isinstance(value, types.FunctionType):
        parts = [value.__code__, *map(content_of, value.__closure__ or ()), getattr(value, "__wrapped__", None)]
    else:
        parts = [getattr(value, k, None) for k in ("__func__", "fget", "fset", "fdel", "func", "__wrapped__")]
    for p in parts:
        if isinstance(p, types.CodeType) or callable(p):
            yield from codes_of(p, seen)
