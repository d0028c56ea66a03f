# SPDX-License-Identifier: Apache-2.0
"""The options of torch.compile(model, backend="quern", mode=..., options=...): names, usual values and kinds, checked before anything is compiled."""
from __future__ import annotations

import numbers
import os
from typing import Any, Callable, Mapping, NamedTuple

import torch

from . import _advice as advice
from . import _device, _model

WEIGHTS = ("int8", "int4", "in place", "packed")
MODES = ("default", "tune")


class Rule(NamedTuple):
    """Of an option."""
    usual: Any                      # the value of an option that is not given
    expected: str                   # for messages
    is_right: Callable[[Any], bool]
    words: tuple[str, ...] = ()     # strings that a wrong one may have been meant to be


def is_number(kind: Any) -> Callable[[Any], bool]:
    return lambda x: isinstance(x, kind) and not isinstance(x, bool) and x >= 0


def is_kind(*kinds: Any) -> Callable[[Any], bool]:
    return lambda x: isinstance(x, kinds)


def one_of(*values: Any) -> Callable[[Any], bool]:
    return lambda x: any(x is v or isinstance(x, str) and x == v for v in values)


RULES: dict[str, Rule] = {
    "mode": Rule("default", "'default', or 'tune', which measures schedules", one_of(*MODES), MODES),
    "timeout": Rule(60.0, "seconds, 0 or more", is_number(numbers.Real)),
    "database": Rule(None, "the path of a file, or None for one in the user's cache", is_kind(str, os.PathLike, type(None))),
    "threads": Rule(0, "a number of threads, 0 for PyTorch's", is_number(numbers.Integral)),
    "deterministic": Rule(False, "True or False", is_kind(bool)),
    "weights": Rule(None, "'int8', 'int4', 'in place', 'packed' for copies in the layouts of kernels, or None for copies of all but large matrices",
                    one_of(*WEIGHTS, None), WEIGHTS),
    "measure": Rule(True, "True or False", is_kind(bool)),
    "isa": Rule(None, "the name of an instruction set, such as 'x86-64-v3', or None for the processor's", is_kind(str, type(None))),
    "remember": Rule(True, "True or False", is_kind(bool)),
}


def checked(mode: str | None, options: Mapping[str, Any] | None) -> dict[str, Any]:
    """All that is given, by name. Raises TypeError or ValueError."""
    if options is not None and not isinstance(options, Mapping):
        raise TypeError(f"options is {options!r}, expected a dictionary with {', '.join(RULES)}")
    given = {**({"mode": mode} if mode is not None else {}), **(options or {})}
    for name, value in given.items():
        if name not in RULES:
            raise ValueError(f"backend 'quern' has no option {name!r}, it has {', '.join(RULES)}{advice.meant(name, RULES)}")
        rule = RULES[name]
        if not rule.is_right(value):
            raise ValueError(f"{name} is {value!r}, expected {rule.expected}{advice.meant(value, rule.words)}")
    return given


class Options:
    """How pieces are compiled. Raises TypeError or ValueError for options that do not exist, or have values of another kind."""

    mode: str
    timeout: float        # seconds of measurements for each piece
    database: str | None  # file of measurements; None: in the user's cache
    threads: int          # 0: PyTorch's
    deterministic: bool
    weights: str | None
    measure: bool         # whether pieces are used only if they are faster than PyTorch
    isa: str | None
    remember: bool        # see _warm_start.py

    def __init__(self, mode: str | None = None, options: Mapping[str, Any] | None = None) -> None:
        given = checked(mode, options)
        for name, rule in RULES.items():
            setattr(self, name, given.get(name, rule.usual))

    def few_bits(self) -> str | None:
        """The type in which matrices are stored in few bits; None: they are not."""
        return self.weights if self.weights in ("int8", "int4") else None

    def check_device(self, device: torch.device) -> None:
        """Raises ValueError if an option cannot be meant for a GPU."""
        if self.isa and device.type != "cpu":
            raise ValueError(f"option isa is {self.isa!r}, an instruction set of processors, but the model's tensors are on device '{device}': leave it out")

    def n_threads(self, device: torch.device) -> int:
        """Of kernels; 0 on a GPU."""
        return self.threads or torch.get_num_threads() if device.type == "cpu" else 0

    def target(self) -> Any:
        """See _model.target(). None: no limits."""
        return _model.target(bool(self.deterministic), self.isa)

    def key(self, device: torch.device) -> str:
        """All that a program for the device depends on."""
        place = self.n_threads(device) if device.type == "cpu" else _device.look(device).fingerprint
        return repr([self.mode, self.database, place, bool(self.deterministic), self.weights, self.isa])
