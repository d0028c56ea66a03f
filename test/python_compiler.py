# SPDX-License-Identifier: Apache-2.0
#
# What tests of torch.compile(backend="quern") begin with; imported before quern. The user's cache is an empty one, for the whole test.
import os
import tempfile

cache = tempfile.TemporaryDirectory()
os.environ["XDG_CACHE_HOME"] = cache.name

try:
    import onnxscript  # noqa: F401
    from torch.onnx._internal.exporter import _core
    can_compile = hasattr(_core, "_translate_fx_graph")
except ImportError:
    can_compile = False

ALWAYS = {"measure": False}  # options: whatever is supported is run by the library
