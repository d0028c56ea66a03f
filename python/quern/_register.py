# SPDX-License-Identifier: Apache-2.0
"""Registers torch.compile's back end "quern". An installed package also has an entry point for it, with which `import quern` is not needed."""
from __future__ import annotations

import importlib.abc
import importlib.machinery
import sys
from typing import Any

REGISTRY = "torch._dynamo.backends.registry"


def register(registry: Any) -> None:
    from ._dynamo import backend
    if "quern" not in registry._COMPILER_FNS:
        registry.register_backend(backend, name="quern")


class AtImport(importlib.abc.MetaPathFinder):
    """Registers it when PyTorch's compiler is imported, which takes seconds and is left to those who use it."""

    def find_spec(self, name: str, path: Any, target: Any = None) -> importlib.machinery.ModuleSpec | None:
        if name != REGISTRY:
            return None
        sys.meta_path.remove(self)
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        if spec and spec.loader:
            usual = spec.loader.exec_module

            def exec_module(module: Any) -> None:
                usual(module)
                register(module)

            spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def register_backend() -> None:
    if REGISTRY in sys.modules:
        register(sys.modules[REGISTRY])
    elif not any(isinstance(f, AtImport) for f in sys.meta_path):
        sys.meta_path.insert(0, AtImport())
