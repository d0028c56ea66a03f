#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# deploy_gpu.sh BUILD: SPIR-V within the limits of described GPUs (INTELGPU, MALI, ADRENO): it is valid for the version of Vulkan that they are
# described with, keeps to the limits, and runs on the Vulkan device that is here, whose limits are wider.
. "$(dirname "$0")/common.sh"
needs_python numpy "package numpy in build/venv"
"$quern" devices 2> /dev/null | grep -q '"device":"[^"]*llvmpipe' || { echo "skipped: no lavapipe (tool/deps test)"; exit 77; }

cat > compare.py << 'END'
import sys
import numpy as np

if sys.argv[1] == "make":
    np.save("x.npy", np.random.default_rng(4).standard_normal([int(d) for d in sys.argv[2:]]).astype(np.float32))
else:
    want, got = np.load(sys.argv[1]), np.load(sys.argv[2])
    sys.exit(not np.abs(want - got).max() < 1e-4 * np.abs(want).max())
END
cat > small.graph << 'END'
graph {
  input %x: f32[1,8,12,12]
  %a: f32[1,8,12,12] = Softmax "soft"(%x) {axis=1}
  %b: f32[1,8,6,6] = AveragePool "pool"(%x) {kernel_shape=[2,2], strides=[2,2]}
  const %scales: f32[4] = [1, 1, 2, 2]
  %c: f32[1,8,12,12] = Resize "up"(%b, _, %scales) {mode="linear"}
  %d: f32[1,8,12,12] = Add "sum"(%a, %c)
  %e: f32[1,8,1,1] = GlobalAveragePool "mean"(%d)
  %f: f32[1,8,12,12] = Mul "scale"(%d, %e)
  output %f
}
END
"$quern" zoo oidn-small -o unet.onnx > /dev/null 2>&1 || fail "zoo"

# on NET NAME DEVICE ENVIRONMENT: deployed for the described device, run on lavapipe
on() {
    net=$1 name=$2 device=$3 env=$4
    exits 0 "$quern" deploy "$net" --devices "$name:0=device:vulkan:$device" --name "$device" -o to --untuned
    exits 0 "$quern" run "to/$device" --place "$name:0=*llvmpipe*" --input x.npy --output y.npy
    exits 0 "$python" compare.py want.npy y.npy
    for module in "to/$device"/Subgraph_0/*.spv; do
        is_file "$module"
        command -v spirv-val > /dev/null || continue
        exits 0 spirv-val --target-env "$env" "$module"
    done
    rm -r "to/$device"
}
# prepare NET SIZES...: input, and the result on the processor
prepare() {
    net=$1; shift
    exits 0 "$python" compare.py make "$@"
    exits 0 "$quern" run "$net" --input x.npy --output want.npy
}
prepare small.graph 1 8 12 12
on small.graph INTELGPU intel-xe vulkan1.3
on small.graph MALI mali-g78 vulkan1.1
on small.graph ADRENO adreno-640 vulkan1.1
on small.graph ADRENO adreno-530 vulkan1.0
prepare unet.onnx 1 3 16 32
on unet.onnx MALI mali-g78 vulkan1.1
exits 2 "$quern" compile small.graph --device vulkan:mali-g1 -o no.dnx
says "'vulkan' knows no architecture 'mali-g1'; there are: .*vulkan:mali-g78"
finish
