# SPDX-License-Identifier: Apache-2.0
"""quern: a neural network becomes the fastest native code that was measured on its device.

    net = quern.compile("net.onnx")          # or quern.load("net.dnx"), which needs no compiler
    y = net(x)                               # numpy arrays or torch tensors, used in place

    conv = quern.Operator("Conv", {"pads": [1, 1, 1, 1]})
    y = conv(x, w)                           # any strides

Everything runs in libquern.so, through its C interface (include/quern.h). Kernels for processors are built with the system's C
compiler (cc) when they are first needed, and kept in a file (quern.cache_path()), so that this happens once.

`quern.torch` has layers for PyTorch.
"""
from ._library import Error, cache_path, library_path, version
from ._operator import Operator
from ._program import Program, compile, load, tune

__all__ = ["Error", "Operator", "Program", "cache_path", "compile", "library_path", "load", "tune", "version"]
__version__ = "0.1.0"
