# SPDX-License-Identifier: Apache-2.0
"""What torch.compile(model, backend="quern", mode=..., options=...) may be given: names, kinds and values, checked before anything is compiled."""
from __future__ import annotations

import numbers
import os
from typing import Any, Callable, Collection, Mapping

from . import _advice as advice

Rule = tuple[str, Callable[[Any], bool]]  # what is expected, and whether a value is that


def is_count(x: Any) -> bool:
    return isinstance(x, numbers.Integral) and not isinstance(x, bool) and int(x) >= 0


def is_seconds(x: Any) -> bool:
    return isinstance(x, numbers.Real) and not isinstance(x, bool) and float(x) >= 0


def is_flag(x: Any) -> bool:
    return isinstance(x, bool)


def one_of(*values: Any) -> Callable[[Any], bool]:
    return lambda x: any(x is v or isinstance(x, str) and x == v for v in values)


WEIGHTS = ("int8", "int4", "in place", "packed")
MODES = ("default", "tune")
RULES: dict[str, Rule] = {
    "mode": ("'default', or 'tune', which measures schedules", one_of(*MODES)),
    "timeout": ("seconds, 0 or more", is_seconds),
    "database": ("the path of a file, or None for one in the user's cache", lambda x: x is None or isinstance(x, (str, os.PathLike))),
    "threads": ("a number of threads, 0 for PyTorch's", is_count),
    "deterministic": ("True or False", is_flag),
    "weights": ("'int8', 'int4', 'in place', 'packed' for copies in the layouts of kernels, or None for copies of all but large matrices", one_of(*WEIGHTS, None)),
    "measure": ("True or False", is_flag),
    "remember": ("True or False", is_flag),
    "isa": ("the name of an instruction set, such as 'x86-64-v3', or None for the processor's", lambda x: x is None or isinstance(x, str)),
}
STRINGS = {"mode": MODES, "weights": WEIGHTS}


def checked(mode: str | None, options: Mapping[str, Any] | None, known: Collection[str]) -> dict[str, Any]:
    """All that is given, by name. Raises TypeError or ValueError."""
    if options is not None and not isinstance(options, Mapping):
        raise TypeError(f"options is {options!r}, expected a dictionary with {', '.join(known)}")
    given = {**({"mode": mode} if mode is not None else {}), **(options or {})}
    for name, value in given.items():
        if name not in known:
            raise ValueError(f"backend 'quern' has no option {name!r}, it has {', '.join(known)}{advice.meant(name, known)}")
        expected, is_right = RULES.get(name, ("", lambda _: True))
        if not is_right(value):
            raise ValueError(f"{name} is {value!r}, expected {expected}{advice.meant(value, STRINGS.get(name, ()))}")
    return given
