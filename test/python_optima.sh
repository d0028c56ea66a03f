#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# python_optima.sh BUILD: OptimaV2's Manager over quern (test/python_optima.py), from modules of PyTorch to folders that run on the devices that are here.
. "$(dirname "$0")/common.sh"
needs_python 'torch, networkx, onnx' 'PyTorch with networkx and onnx (bench/setup torch onnxscript)'
"$quern" devices > devices.json 2> /dev/null || fail "quern devices"
list=
for d in opencl vulkan; do
    if grep "\"name\":\"$d\"" devices.json | grep -qv described; then list="$list $(echo "$d" | tr '[:lower:]' '[:upper:]'):0"; fi
done
export PYTHONPATH="$PYTHONPATH:$top/python/compat"
seconds=300
exits 0 "$python" -W ignore "$here/python_optima.py" "$list"
finish
