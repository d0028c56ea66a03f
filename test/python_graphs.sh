#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# python_graphs.sh BUILD: random modules through torch.compile(backend="quern") (test/python_graphs.py), with each PyTorch that is there; it needs 2.6 with onnx
# and onnxscript.
exec "$(dirname "$0")/python.sh" "$1" graphs
