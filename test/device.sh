#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# device.sh BUILD: a sample of the ONNX node tests and a network on a Vulkan device
# (tool/verify-all runs them all), and a network with skip connections: the number of dispatches,
# and the explanation of an unfused program. Skipped without a device.
. "$(dirname "$0")/common.sh"
# Once Mesa's driver is unloaded, its leaks cannot be distinguished from ours.
ASAN_OPTIONS=detect_leaks=0; export ASAN_OPTIONS
"$quern" devices 2> /dev/null | grep -q '"name":"vulkan"' || {
    echo "skipped: no Vulkan device (Debian's mesa-vulkan-drivers has one)"
    exit 77
}
ASAN_OPTIONS=detect_leaks=0; export ASAN_OPTIONS # what drivers keep in their globals when they are unloaded

SAMPLE=1 tool/verify-all "$1" vulkan || fail "verify-all"

"$quern" zoo oidn-small -o "$dir/net.onnx" -q || fail zoo
hwc="--input-type=f16 --input-layout=HWC --output-type=f16 --output-layout=HWC"
# shellcheck disable=SC2086 # several words
"$quern" compile "$dir/net.onnx" --device vulkan --optimize-for H:1080,W:1920 $hwc -o "$dir/net.dnx" || fail compile
n=$("$quern" show "$dir/net.dnx" | sed -n 's/^\([0-9]*\) dispatches.*/\1/p')
[ "$n" -le 18 ] || fail "$n dispatches"
"$quern" explain "$dir/net.dnx" > "$dir/why" || fail explain
grep -q 'Conv) + enc_conv1.relu(Relu) + pool1(MaxPool)' "$dir/why" || fail "pooling is not considered behind convolutions"
unfused=$(sed -n 's/^a kernel for each operator: .* in \([0-9]*\) dispatches$/\1/p' "$dir/why")
[ "${unfused:-0}" -ge 40 ] || fail "explain lists ${unfused:-no} dispatches without fusion"
