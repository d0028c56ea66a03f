#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# python_imports.sh BUILD: modules of the Python package import only lower ones (tool/check-imports), and copies with imports that they may not have are
# rejected.
. "$(dirname "$0")/common.sh"
cd "$dir" || exit 1
command -v python3 > /dev/null || { echo "skipped: no python3"; exit 77; }
check=$here/../tool/check-imports
exits 0 "$check"

# imports MODULE LINE: a copy of the tree in which a module has one more line.
imports() {
    rm -rf tree && mkdir -p tree/python
    cp "$here/../ARCHITECTURE.md" tree
    cp -r "$here/../python/quern" tree/python
    echo "$2" >> "tree/python/quern/$1.py"
    exits 1 "$check" tree
}
imports _state 'from ._program import Program'
says '_state.py:[0-9]*: may not import _program, which is not listed before it'
imports _fx 'def f(): from . import _onnx'
says '_fx.py:[0-9]*: may not import _onnx'
imports _library 'import torch'
says '_library.py:[0-9]*: may not import PyTorch'
imports _fx 'from ._library import lib'
says '_fx.py:[0-9]*: may not import the library'
imports _piece 'import torch._dynamo'
says '_piece.py:[0-9]*: may import torch._dynamo in functions only'
imports _warm_start 'from ._warm_start_package import Start'
says '_warm_start.py:[0-9]*: may import _warm_start_package in functions only'
imports _unlisted 'import os'
says '_unlisted.py: has no row in ARCHITECTURE.md'
finish
