#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# python_torch.sh BUILD: the layers for PyTorch (test/python_filter.py), with each PyTorch that is there.
exec "$(dirname "$0")/python.sh" "$1" filter
