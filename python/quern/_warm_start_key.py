# SPDX-License-Identifier: Apache-2.0
"""Keys of what is kept about a compiled model: all that it may depend on and that no guard compares."""
from __future__ import annotations

import os
import sys
from typing import Any

import torch

from ._cache import environment
from ._digests import Describer, hashed

SETTINGS = ("TORCH", "PYTORCH", "QUERN", "TRANSFORMERS", "HF_", "OMP_", "MKL_", "KMP_", "ATEN_")  # environment variables that models may ask for


def surroundings() -> list[Any]:
    """What a trace may depend on without a guard."""
    import torch._functorch.config as functorch
    from torch.nn.modules import module
    hooks = [len(v) for k, v in sorted(vars(module).items()) if k.startswith("_global_") and hasattr(v, "__len__")]
    settings = sorted((k, v) for k, v in os.environ.items() if k.startswith(SETTINGS))
    options = [Describer()(c.get_config_copy(), True) for c in (torch._dynamo.config, functorch)]  # get_hash() differs between processes
    return [options, torch.get_num_threads(), torch.utils._device.CURRENT_DEVICE, torch.get_default_dtype(),
            torch.cuda.is_available(), torch.is_grad_enabled(), torch.is_inference_mode_enabled(), hooks, settings, sys.version,
            sys.flags.optimize]


def key_of(model: Any, fn: Any, how: str, around: list[Any]) -> str:
    """Of a model without its weights' contents, of what compiles it, and where. Raises NotPortable."""
    describe = Describer()
    parts = [how, fn.__module__, fn.__qualname__, describe(fn), around]
    model = model if isinstance(model, torch.nn.Module) else getattr(model, "__self__", None)
    if isinstance(model, torch.nn.Module):
        parts += [describe(t) for t in dict.fromkeys(type(m) for m in model.modules())]
        parts += [(n, type(m).__qualname__, m.training, sorted(vars(m)), hooks_of(m, describe)) for n, m in model.named_modules()]
        parts += [(n, tuple(t.shape), str(t.dtype), str(t.device)) for n, t in [*model.named_parameters(), *model.named_buffers()]]
    return f"start {environment()} {hashed(parts)}"


def hooks_of(module: torch.nn.Module, describe: Describer) -> list[tuple[str, list[str]]]:
    """Those around calls, which the compiler does not guard."""
    names = ("_forward_pre_hooks", "_forward_hooks", "_backward_pre_hooks", "_backward_hooks")
    return [(k, [describe(f) for f in vars(module)[k].values()]) for k in names if vars(module).get(k)]
