# SPDX-License-Identifier: Apache-2.0
"""The progress of tuning: a bar of tqdm where it is installed, else a line; in terminals and notebooks."""
from __future__ import annotations

import importlib
import sys
import time
from typing import Any, Callable

from ._library import Report

SHOWN = 60  # characters of the current activity


def is_notebook() -> bool:
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return shell is not None and hasattr(shell, "kernel")


def is_interactive() -> bool:
    return is_notebook() or bool(getattr(sys.stderr, "isatty", bool)())


def summary(event: dict[str, Any]) -> str:
    """"1.32x as fast, 3 failed": what a bar does not show."""
    failed = f", {event['failures']} failed" if event["failures"] else ""
    return f"{event['best']:.2f}x as fast{failed}" if event["best"] > 0 else f"measuring{failed}"


def duration(seconds: float) -> str:
    return "?" if seconds < 0 else f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"


class Line:
    """One line of a terminal, rewritten in place; elsewhere a line every few seconds."""

    def __init__(self) -> None:
        self.is_live = bool(getattr(sys.stderr, "isatty", bool)())
        self.last, self.has_line = -1e9, False

    def __call__(self, event: dict[str, Any]) -> None:
        now = time.monotonic()
        if now - self.last < (0.2 if self.is_live else 5):
            return
        self.last = now
        done = f"{event['done']} of {event['total']} done" if event["total"] >= 0 else f"{event['done']} done"
        line = f"{done}, {summary(event)}, {duration(event['seconds_left'])} left  {event['text'][:SHOWN]}"
        sys.stderr.write(f"\r\033[K{line}" if self.is_live else line + "\n")
        sys.stderr.flush()
        self.has_line = self.is_live

    def close(self) -> None:
        if self.has_line:
            sys.stderr.write("\r\033[K")
            sys.stderr.flush()


class Bar:
    """A bar of tqdm, or of anything with the same methods.

    Parameters
    ----------
    bar
        The bar.
    """

    def __init__(self, bar: Any) -> None:
        self.bar, self.done = bar, 0

    def __call__(self, event: dict[str, Any]) -> None:
        if event["total"] >= 0:
            self.bar.total = event["total"]
        if hasattr(self.bar, "set_postfix_str"):
            self.bar.set_postfix_str(summary(event), refresh=False)
        self.bar.update(event["done"] - self.done)
        self.done = event["done"]

    def close(self) -> None:
        if hasattr(self.bar, "refresh"):
            self.bar.refresh()


class OwnBar(Bar):
    """One that is closed afterwards."""

    def close(self) -> None:
        super().close()
        self.bar.close()


def tqdm_class() -> Any:
    try:
        return importlib.import_module("tqdm.auto").tqdm
    except Exception:  # not installed, or without what it needs in a notebook
        return None


def reporter(progress: Any, what: str) -> tuple[Report | None, Callable[[], None]]:
    """What is called with events, and what ends it. progress: see quern.tune()."""
    def nothing() -> None:
        pass

    if progress is False or (progress is None and not is_interactive()):
        return None, nothing
    if progress is None or progress is True:
        tqdm = tqdm_class()
        bar: Any = OwnBar(tqdm(desc=what, unit="run")) if tqdm else Line()
    elif hasattr(progress, "update") and hasattr(progress, "total"):
        bar = Bar(progress)
    elif isinstance(progress, type):  # tqdm itself, or a class like it
        bar = OwnBar(progress(desc=what, unit="run"))
    elif callable(progress):
        return progress, nothing
    else:
        raise TypeError(f"progress is {progress!r}, expected True, False, None, a function, or a bar of tqdm")
    return bar, bar.close
