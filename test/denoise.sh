#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# denoise.sh BUILD: the trained denoiser of models/, untuned and tuned for the CPU and for Vulkan:
# the same picture, better than the noisy one and than the result of dct-denoise. (vkdt.sh: also as
# a module for vkdt.)
. "$(dirname "$0")/common.sh"
net=$(pwd)/models/denoise.onnx
# Once Mesa's driver is unloaded, its leaks cannot be distinguished from ours.
ASAN_OPTIONS=detect_leaks=0; export ASAN_OPTIONS
flags=
case $1 in *san*) flags=-fsanitize=address,undefined ;; esac
example() { # NAME SOURCE...
    to=$dir/$1; shift
    ${CC:-cc} -O2 -std=gnu11 -ffp-contract=off -Wall -Wextra -Werror $flags -Iinclude -o "$to" "$@" -L"$build" -lquern \
        -Wl,-rpath,"$build" -lm -lpthread || fail "$to is not built"
}
example render examples/denoise/*.c
for name in psnr run encode; do example $name examples/$name.c; done
cd "$dir" || exit 1
try() { "$@" > out 2>&1 || { cat out; fail "$*"; }; }
size=$(wc -c < "$net")
[ "$size" -lt 1000000 ] || fail "$net has $size bytes"

# Scene 4 is not in the training set. The sides are not multiples of the network's alignment.
try ./render --scene 4 noisy.npy 85 61 8
try ./render --scene 4 --pass 1 --only-colour converged.npy 85 61 256
try ./encode noisy.npy noisy.png
try ./encode converged.npy converged.png
features="noisy.npy noisy.albedo.npy noisy.normal.npy noisy.depth.npy"
denoise() { # NAME: by NAME.dnx, to NAME.npy and NAME.png
    # shellcheck disable=SC2086
    try ./run "$1.dnx" $features "$1.npy"
    try ./encode "$1.npy" "$1.png"
}
# of linear colour, which may be brighter than 1: rounding alone
is_same() { awk -v x="$(./psnr "$1" "$2")" 'BEGIN { exit !(x > 90) }' || fail "$1 and $2 differ: $(./psnr "$1" "$2") dB"; }
made=untuned
tune() { # DEVICE
    try "$quern" tune "$net" --timeout 6s -o "$1.dnx" --device "$1" --optimize-for=H:61,W:85
    denoise "$1"
    is_same "$1.npy" untuned.npy
    made="$made $1"
}
try "$quern" compile "$net" --untuned -o untuned.dnx
denoise untuned
tune cpu
if "$quern" devices 2> /dev/null | grep -q '"name":"vulkan"'; then tune vulkan
else echo "skipped: Vulkan, for which there is no device (Debian's mesa-vulkan-drivers has one)"; fi

try "$quern" zoo dct-denoise -o dct.onnx
try "$quern" compile dct.onnx --untuned -o dct.dnx
try ./run dct.dnx noisy.png dct.png
error() { ./psnr "$1.png" converged.png; }
before=$(error noisy) after=$(error cpu) dct=$(error dct)
awk -v a="$before" -v b="$after" -v c="$dct" 'BEGIN { exit !(b > a + 6 && b > c + 2) }' || fail "$before dB noisy, $after dB denoised, $dct dB by dct-denoise"

# Fewer inputs, of other sizes, of other channels.
./run cpu.dnx noisy.npy none.npy > out 2>&1 && fail "one input is taken for four"
./run cpu.dnx noisy.npy noisy.albedo.npy noisy.depth.npy noisy.normal.npy none.npy > out 2>&1 && fail "depth is taken for normals"
[ -e none.npy ] && fail "a picture was written all the same"
echo "the same picture by $made: $before dB noisy, $after dB denoised, $dct dB by dct-denoise"
