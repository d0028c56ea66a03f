#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# python_attention.sh BUILD: attention for PyTorch and its gradients (test/python_attention.py), with each PyTorch that is there.
exec "$(dirname "$0")/python.sh" "$1" attention
