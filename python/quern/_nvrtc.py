# SPDX-License-Identifier: Apache-2.0
"""The compiler for CUDA (NVRTC) in PyTorch's packages, which are outside of the linker's paths."""
from __future__ import annotations

import ctypes
import functools
import pathlib

import torch


def files(name: str) -> list[pathlib.Path]:
    return sorted(pathlib.Path(torch.__file__).parent.parent.glob("nvidia/*/lib/" + name))


def compiler_folders() -> list[str]:
    """Its folders, for the linker of another process."""
    return list(dict.fromkeys(str(path.parent) for path in files("libnvrtc.so.*")))


@functools.lru_cache(maxsize=None)
def find_compiler() -> None:
    """Loads it: once loaded, the library finds it."""
    for path in files("libnvrtc-builtins.so.*") + files("libnvrtc.so.*"):
        try:
            ctypes.CDLL(str(path))
        except OSError:
            pass
