#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# python_compile.sh BUILD: models of PyTorch by the library: torch.compile(backend="quern"), explain, export, load, optimize (test/python_compile.py), with each
# PyTorch that is there; torch.compile needs 2.6 with onnx and onnxscript.
exec "$(dirname "$0")/python.sh" "$1" compile
