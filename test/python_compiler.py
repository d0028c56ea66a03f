# SPDX-License-Identifier: Apache-2.0
#
# What tests of torch.compile(backend="quern") begin with; imported before quern. The user's cache is an empty one, for the whole test; with CACHE=FOLDER in the
# environment it is that one, as a second run of a test needs it.
import contextlib
import os
import tempfile

cache = tempfile.TemporaryDirectory()
os.environ["XDG_CACHE_HOME"] = os.environ.get("CACHE") or cache.name

try:
    import onnxscript  # noqa: F401
    from torch.onnx._internal.exporter import _core
    can_compile = hasattr(_core, "_translate_fx_graph")
except ImportError:
    can_compile = False

import torch
from torch import nn

ALWAYS = {"measure": False}  # options: whatever is supported is run by the library


class Net(nn.Module):
    """A model from a function of its layers and inputs."""

    def __init__(self, f, **layers):
        super().__init__()
        self.f = f
        for name, layer in layers.items():
            setattr(self, name, layer)

    def forward(self, *x):
        return self.f(self, *x)


@contextlib.contextmanager
def mistranslated():
    """The exporter's translation of exp is that of sin meanwhile."""
    from quern import _onnx
    _onnx.known()
    functions = _onnx.exporter().registry.functions
    exp, sin = (next(k for k, found in functions.items() for m in found if m.fx_target == op)
                for op in (torch.ops.aten.exp.default, torch.ops.aten.sin.default))
    usual, functions[exp] = functions[exp], functions[sin]
    try:
        yield
    finally:
        functions[exp] = usual
