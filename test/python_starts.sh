#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# python_starts.sh BUILD: models of PyTorch that torch.compile(backend="quern") remembers across processes (test/python_starts.py), with each PyTorch that is
# there; it needs one of the versions in python/quern/_warm_start.py, with onnx and onnxscript.
exec "$(dirname "$0")/python.sh" "$1" starts
