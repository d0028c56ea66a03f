# SPDX-License-Identifier: Apache-2.0
"""quern: compiles neural networks to the fastest native kernels measured on the device.

    net = quern.compile("net.onnx")          # or quern.load("net.dnx"), which needs no compiler
    y = net(x)                               # NumPy arrays or torch tensors, used in place
    net.bench(), net.profile(), net.explain(), net.verify()

    quern.tune("net.onnx", "net.db", seconds=600)     # measures schedules; Ctrl-C stops it and keeps them
    net = quern.compile("net.onnx", database="net.db")
    net.save("net.dnx")

    g = quern.graph("net.onnx")              # operators and tensors by name
    g.to_networkx(), g.draw("net.svg")

    where = quern.allocate("net.onnx", ["X64:0", "NVIDIA:0"])    # the device of each operator: a dictionary
    quern.deploy("net.onnx", "outputs/", {"conv2d_2": "X64:0", "add_5": "NVIDIA:0"})     # one network over several devices

    conv = quern.Operator("Conv", {"pads": [1, 1, 1, 1]})
    y = conv(x, w)                           # any strides

Functions: compile, load, tune, graph, allocate, deploy, operators; cache_path, library_path, version.
Classes: Program, Operator, State, Graph, Allocation; Timing, Profile, Verification, Check (results of a program's methods); Error.

Everything runs in libquern.so, through its C interface (include/quern.h). CPU kernels are built with the system's C compiler
(cc) when they are first needed, and cached (quern.cache_path()). Invalid input raises quern.Error with the library's message.

`quern.torch` has layers and operators for PyTorch.
"""
from ._allocate import Allocation, allocate
from ._deploy import deploy
from ._deployment import Deployment, Request, Subgraph
from ._library import Error, cache_path, library_path, version
from ._measurements import Check, Profile, Timing, Verification
from ._network_graph import Graph, graph
from ._operator import Operator, operators
from ._program import Program, compile, load, tune
from ._state import State

__all__ = ["Allocation", "Check", "Deployment", "Error", "Graph", "Operator", "Profile", "Program", "Request", "State", "Subgraph", "Timing", "Verification",
           "allocate", "cache_path", "compile", "deploy", "graph", "library_path", "load", "operators", "tune", "version"]
__version__ = "0.1.0"
