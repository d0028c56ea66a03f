# SPDX-License-Identifier: Apache-2.0
"""quern: compiles neural networks to the fastest native kernels measured on the device.

    net = quern.compile("net.onnx")          # or quern.load("net.dnx"), which needs no compiler
    y = net(x)                               # numpy arrays or torch tensors, used in place

    conv = quern.Operator("Conv", {"pads": [1, 1, 1, 1]})
    y = conv(x, w)                           # any strides

Everything runs in libquern.so, through its C interface (include/quern.h). CPU kernels are built with the system's C compiler
(cc) when they are first needed, and cached (quern.cache_path()).

`quern.torch` has layers for PyTorch.
"""
from ._library import Error, cache_path, library_path, version
from ._operator import Operator
from ._program import Program, compile, load, tune
from ._state import State

__all__ = ["Error", "Operator", "Program", "State", "cache_path", "compile", "library_path", "load", "tune", "version"]
__version__ = "0.1.0"
