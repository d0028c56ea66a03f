# SPDX-License-Identifier: Apache-2.0
"""The user's cache, for facts about graphs of PyTorch that other processes need: bytes by keys, sealed and limited by the library (quern_cache_put)."""
from __future__ import annotations

import functools
import hashlib
import importlib.metadata
import os
import platform
from ctypes import byref, c_size_t, c_void_p, string_at
from typing import Callable

import torch

from ._library import Context, lib, path


def version_of(package: str) -> str | None:
    """Of an installed package; None: it is not installed."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


@functools.cache
def environment() -> str:
    """Of what exports, compiles and runs: versions, the library's file and those of this package, the processor."""
    s = os.stat(path) if os.path.isfile(path) else None
    with os.scandir(os.path.dirname(__file__)) as files:
        own = sorted((f.name, f.stat().st_size, f.stat().st_mtime_ns) for f in files if f.name.endswith(".py"))
    return repr([hashlib.sha256(repr(own).encode()).hexdigest(), torch.__version__, version_of("onnxscript"), path,
                 s and (s.st_size, s.st_mtime_ns), platform.machine(), os.cpu_count(), processor()])


def processor() -> str:
    """The line of the system's description with its model."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as f:
            return next((line for line in f if line.startswith(("model name", "CPU part"))), "")
    except OSError:
        return platform.processor()


class Cache:
    """Bytes by keys that are texts."""

    def __init__(self) -> None:
        self.context: Context | None = None

    def open(self) -> Context:
        """The context, a new one after a fork."""
        if self.context is None or not self.context.is_ours():
            self.context = Context(level=0)
        return self.context

    def get(self, key: str) -> bytes | None:
        """The bytes under a key; None: there are none."""
        c, name, data, size = self.open(), key.encode(), c_void_p(), c_size_t()
        with c.lock:
            if lib.quern_cache_get(c.handle, name, len(name), byref(data), byref(size)):
                return None
            try:
                return string_at(data.value or 0, size.value)
            finally:
                lib.quern_text_free(data)

    def get_or_make(self, key: str, make: Callable[[], bytes]) -> bytes:
        """What is kept under a key; if nothing is, what make() returns, which is kept then."""
        data = self.get(key)
        if data is None:
            data = make()
            self.put(key, data)
        return data

    def put(self, key: str, data: bytes) -> None:
        """Keeps bytes, sealed with the user's key. Raises Error."""
        c, name = self.open(), key.encode()
        with c.lock:
            c.check(lib.quern_cache_put(c.handle, name, len(name), data, len(data)))


cache = Cache()
