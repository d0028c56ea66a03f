#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# python_training.sh BUILD: models of PyTorch trained through torch.compile(backend="quern") (test/python_training.py), with each PyTorch that is there;
# it needs 2.6 with onnx and onnxscript.
exec "$(dirname "$0")/python.sh" "$1" training
