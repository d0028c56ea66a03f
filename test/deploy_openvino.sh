#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# deploy_openvino.sh BUILD: sub-graphs for OpenVINO's CPU: blobs made, imported and run here, alone and between sub-graphs of quern's, equal ONNX Runtime.
. "$(dirname "$0")/common.sh"
needs_python numpy,onnxruntime,openvino "package openvino or onnxruntime in build/venv"
PATH=$(dirname "$python"):$PATH; export PATH
unset QUERN_OPENVINO

cat > compare.py << 'END'
import sys
import numpy as np
import onnxruntime as ort

net, mode = sys.argv[1:3]
s = ort.InferenceSession(net, providers=["CPUExecutionProvider"])
shape = [d if isinstance(d, int) else 64 for d in s.get_inputs()[0].shape]
x = np.random.default_rng(3).standard_normal(shape).astype(np.float32)
if mode == "make":
    np.save("x.npy", x.astype(np.float16) if "f16" in sys.argv else x)
else:
    want, got = s.run(None, {s.get_inputs()[0].name: x})[0], np.load("y.npy").astype(np.float32)
    worst = np.abs(want - got).max() / np.abs(want).max()
    print(f"{net}: largest difference {worst:.2g} of the largest element")
    sys.exit(not worst < float(mode))
END
# runs NET DEPLOYMENT TOLERANCE
runs() {
    exits 0 "$python" compare.py "$1" make
    exits 0 "$quern" run "$2" --input x.npy --output y.npy
    exits 0 "$python" compare.py "$1" "$3"
}
"$quern" zoo mobilenetv2 -o mobile.onnx > /dev/null 2>&1 || fail "zoo"
exits 0 "$quern" deploy mobile.onnx --devices OPENVINO_CPU:0 --name whole -o to
silent 'cannot run yet'
is_file to/whole/Subgraph_0/subgraph_0.blob
runs mobile.onnx to/whole 1e-4
exits 0 "$quern" deploy mobile.onnx --devices OPENVINO_CPU:0 --name half -o to --f16
runs mobile.onnx to/half 1e-2

# Sizes that are fixed when the network is opened; every third operator of a U-Net for quern's CPU.
"$quern" zoo vkdt-unet -o unet.onnx > /dev/null 2>&1 || fail "zoo"
exits 0 "$quern" allocate unet.onnx --template OPENVINO_CPU:0 -o all.json --assume H:64,W:64
awk '/OPENVINO/ && ++k > 8 && k < 17 { sub("OPENVINO_CPU:0", "X64:0") } { print }' all.json > some.json
exits 0 "$quern" deploy unet.onnx --alloc some.json --name mixed -o to --assume H:64,W:64 --untuned
n=$((n + 1)); [ "$(find to/mixed -name '*.blob' | wc -l)" -ge 2 ] || wrong "fewer than two blobs"
runs unet.onnx to/mixed 1e-4

# Without the library: what is missing, and the script that makes the blob where it is.
exits 0 env QUERN_OPENVINO=/nonexistent/libopenvino_c.so "$quern" deploy mobile.onnx --devices OPENVINO_CPU:0 --name later -o to
says 'no OpenVINO: .*; run Subgraph_0/convert.sh'
exits 0 sh to/later/Subgraph_0/convert.sh
n=$((n + 1)); cmp -s to/later/Subgraph_0/subgraph_0.blob to/whole/Subgraph_0/subgraph_0.blob || wrong "the script makes another blob"
exits 1 "$quern" run to/later --input x.npy --output y.npy
says 'cannot run\|blob is not there\|run Subgraph_0/convert.sh'
exits 1 env QUERN_OPENVINO=/nonexistent/libopenvino_c.so "$quern" run to/whole --input x.npy --output y.npy
says 'no OpenVINO'
exits 0 "$quern" deploy mobile.onnx --devices OPENVINO_NPU:0 --name npu -o to
says 'finds no device NPU here'
finish
