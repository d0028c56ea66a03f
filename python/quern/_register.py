# SPDX-License-Identifier: Apache-2.0
"""Registers torch.compile's back end "quern". An installed package also has an entry point for it, with which `import quern` is not needed."""
from __future__ import annotations

import importlib.abc
import importlib.machinery
import sys
from typing import Any

COMPILER = "torch._dynamo"


def register() -> None:
    """Adds the back end to PyTorch's list, unless its entry point did, and lets it keep warm starts."""
    from torch._dynamo.backends import registry

    from ._dynamo import backend
    from ._warm_start import remember
    if "quern" not in registry._COMPILER_FNS:
        registry.register_backend(backend, name="quern")
    remember(backend)


class AtImport(importlib.abc.MetaPathFinder):
    """Registers it when PyTorch's compiler is imported, which takes seconds and is left to those who use it."""

    def find_spec(self, name: str, path: Any, target: Any = None) -> importlib.machinery.ModuleSpec | None:
        if name != COMPILER:
            return None
        sys.meta_path.remove(self)
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        if spec and spec.loader:
            usual = spec.loader.exec_module

            def exec_module(module: Any) -> None:
                usual(module)
                register()

            setattr(spec.loader, "exec_module", exec_module)
        return spec


def register_backend() -> None:
    """Now, or when PyTorch's compiler is imported."""
    if COMPILER in sys.modules:
        register()
    elif not any(isinstance(f, AtImport) for f in sys.meta_path):
        sys.meta_path.insert(0, AtImport())
