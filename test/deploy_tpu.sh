#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# deploy_tpu.sh BUILD: the TFLite network of a deployment for the Edge TPU is in 8 bits from the inputs to the outputs, and computes in LiteRT on this
# processor what the network in floats does, as far as 8 bits tell it.
. "$(dirname "$0")/common.sh"
needs_python numpy,onnxruntime,ai_edge_litert.interpreter "package ai-edge-litert or onnxruntime in build/venv"
command -v flatc > /dev/null || { echo "skipped: no flatc (tool/deps tflite)"; exit 77; }

cat > litert.py << 'END'
import sys
import numpy as np

net, mode = sys.argv[1:3]
import onnxruntime as ort

s = ort.InferenceSession(net, providers=["CPUExecutionProvider"])
name, shape = s.get_inputs()[0].name, s.get_inputs()[0].shape
rng = np.random.default_rng(7)
samples = rng.standard_normal([8] + shape[1:]).astype(np.float32)
if mode == "make":
    np.savez("cal.npz", **{name: samples})
    sys.exit()
from ai_edge_litert.interpreter import Interpreter

i = Interpreter(model_path=mode)
i.allocate_tensors()
floats = [t["name"] for t in i.get_tensor_details() if t["dtype"] == np.float32]
x, y = i.get_input_details()[0], i.get_output_details()[0]
worst = 0
for k in range(4):
    i.set_tensor(x["index"], samples[k:k + 1])
    i.invoke()
    want = s.run(None, {name: samples[k:k + 1]})[0]
    got = i.get_tensor(y["index"])
    worst = max(worst, float(np.sqrt(((got - want) ** 2).mean() / (want ** 2).mean())))
print(f"{net}: {len(floats)} tensors in f32, relative error {worst:.3f}")
sys.exit(not (len(floats) <= 2 and worst < 0.15))
END
for net in resnet8 dscnn; do
    "$quern" zoo $net -o $net.onnx > /dev/null 2>&1 || fail "zoo $net"
    exits 0 "$python" litert.py $net.onnx make
    exits 0 "$quern" deploy $net.onnx --devices TPU:0 --name $net -o to --calibration cal.npz --no-tools
    exits 0 "$python" litert.py $net.onnx to/$net/Subgraph_0/subgraph_0.tflite
    cat out
done
finish
