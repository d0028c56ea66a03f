#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# python_operator.sh BUILD: operators with gradients for PyTorch, and arrays of CUDA devices (test/python_operator.py), with each PyTorch that is there.
exec "$(dirname "$0")/python.sh" "$1" operator
