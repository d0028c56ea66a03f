#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# torch.sh BUILD: networks as PyTorch exports them give PyTorch's results (test/torch_nets.py).
# PyTorch is large, so it is not asked for: without it there is nothing to compare with.
set -eu
python=/usr/bin/python3
if ! $python -c 'import torch, onnx' 2> /dev/null; then
    echo "skipped: no python3-torch and python3-onnx (tool/deps torch installs them)"
    exit 77
fi
exec $python "$(dirname "$0")/torch_nets.py" "$1"
