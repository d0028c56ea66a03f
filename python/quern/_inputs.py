# SPDX-License-Identifier: Apache-2.0
"""Inputs of programs: arrays given by position and name, and sizes by name in the library's notation."""
from __future__ import annotations

from typing import Any, Mapping, Sequence

from . import _advice as advice


def order(names: Sequence[str], inputs: Sequence[Any], named: Mapping[str, Any]) -> list[Any]:
    """One array for each of the names. inputs: by position; named: the others. Raises TypeError."""
    for n in named:
        if n not in names:
            raise TypeError(f"no input '{n}', there are {', '.join(names)}{advice.meant(n, names)}")
        if n in names[:len(inputs)]:
            raise TypeError(f"input '{n}' is given twice, by position and by name: pass it once")
    all_of = list(inputs) + [named[n] for n in names[len(inputs):] if n in named]
    if len(all_of) != len(names):
        raise TypeError(f"the program has {counted(len(names), 'input')} ({', '.join(names)}), {len(all_of)} were given" + instead(names, inputs, named))
    for n, x in zip(names, all_of):
        if x is None:
            raise TypeError(f"input '{n}' is None: every input of a program is needed")
    return all_of


def counted(n: int, what: str) -> str:
    return f"{n} {what}{'s' * (n != 1)}"


def instead(names: Sequence[str], inputs: Sequence[Any], named: Mapping[str, Any]) -> str:
    """Advice for a wrong number of inputs."""
    if len(inputs) == 1 and isinstance(inputs[0], Mapping):
        return ": pass the arrays of a dictionary by name, program(**inputs)"
    missing = [n for n in names[len(inputs):] if n not in named]
    return f": add {', '.join(missing)}" if missing else ": one array for each"


def sizes_text(sizes: Mapping[str, int] | None) -> str | None:
    """{"H": 17, "W": 31} in the library's notation; None: no sizes."""
    return ",".join(f"{k}:{v}" for k, v in sizes.items()) if sizes else None
