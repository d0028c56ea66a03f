#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# python_compile_cuda.sh BUILD: torch.compile(backend="quern") for models on a simulated CUDA device (test/python_compile_cuda.py), with each PyTorch that is
# there; it needs 2.6 with onnx and onnxscript.
exec "$(dirname "$0")/python.sh" "$1" compile_cuda
