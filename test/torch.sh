#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# torch.sh BUILD: networks exported by PyTorch yield PyTorch's results (test/torch_nets.py).
# PyTorch is large and never installed for this; without it the test is skipped.
set -eu
python=/usr/bin/python3
if ! $python -c 'import torch, onnx' 2> /dev/null; then
    echo "skipped: no python3-torch and python3-onnx (tool/deps torch installs them)"
    exit 77
fi
exec $python "$(dirname "$0")/torch_nets.py" "$1"
