#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# vulkan_example.sh BUILD: examples/vulkan/renderer.c, with the runtime alone, under the validation layer: its pictures become better.
. "$(dirname "$0")/common.sh"
"$quern" devices 2> /dev/null | grep -q '"name":"vulkan"' || {
    echo "skipped: no Vulkan device (Debian's mesa-vulkan-drivers has one)"
    exit 77
}
case $build in */san*) echo 'skipped: the example is built without sanitizers'; exit 77 ;; esac
top=$(dirname "$here")
cd "$dir" || exit 1
exits 0 ${CC:-cc} -std=gnu11 -O2 -Wall -Wextra -Werror -I"$top/include" "$top/examples/vulkan/renderer.c" -o renderer \
    -L"$build" -lquern_rt -lvulkan -lm -Wl,-rpath,"$build"
exits 0 "$quern" zoo dct-denoise -o net.onnx
exits 0 "$quern" compile net.onnx --device vulkan --optimize-for=H:144,W:192 -o net.dnx
if find /usr/share/vulkan /etc/vulkan -name 'VkLayer_khronos_validation.json' 2> /dev/null | grep -q .; then
    VK_INSTANCE_LAYERS=VK_LAYER_KHRONOS_validation VK_LAYER_ENABLES=VK_VALIDATION_FEATURE_ENABLE_SYNCHRONIZATION_VALIDATION_EXT
    export VK_INSTANCE_LAYERS VK_LAYER_ENABLES
else echo 'skipped: no validation layer (Debian: vulkan-validationlayers)'
fi
exits 0 ./renderer net.dnx 3 noisy.pfm denoised.pfm
says 'ms per frame'
silent 'Validation\|SYNC-HAZARD\|VUID'
n=$((n + 1))
sed -n 's/noisy \([-0-9]*\).* denoised \([-0-9]*\).*/\1 \2/p' out | awk '{ exit !($2 > $1 + 2) }' || wrong 'the denoised picture is no better'
is_file denoised.pfm
exits 2 ./renderer
exits 6 ./renderer nothing.dnx
finish
