#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# zoo.sh BUILD: networks of the zoo whose sizes can be chosen, in small sizes: programs for the CPU, the interpreter and Vulkan against the
# reference; sizes as options; symbolic ones.
. "$(dirname "$0")/common.sh"
cd "$dir" || exit 1
ASAN_OPTIONS=detect_leaks=0; export ASAN_OPTIONS # of Vulkan's driver, see denoise.sh

devices="cpu interp"
if "$quern" devices 2> /dev/null | grep -q '"name":"vulkan"'; then devices="$devices vulkan"
else echo "skipped: Vulkan, for which there is no device (Debian's mesa-vulkan-drivers has one)"; fi

"$quern" zoo | cut -d' ' -f1 > names
while read -r net; do
    "$quern" zoo "$net" | grep -q -e '^--' || continue
    exits 0 "$quern" zoo "$net" --small -o "$net.onnx"
    exits 0 "$quern" zoo "$net" --small -o again.onnx; same "$net.onnx" again.onnx
    for device in $devices; do exits 0 "$quern" verify "$net.onnx" --device "$device" --threads 1; says '^ok'; done
done < names
[ "$(wc -l < names)" -gt 15 ] || wrong "networks are missing"

# any number of sequences and tokens
exits 0 "$quern" zoo llama3-1b --small --batch 0 --tokens 0 -o any.onnx
exits 0 "$quern" show any.onnx; says 'input_ids: i64\[batch,sequence\]'
exits 0 "$quern" verify any.onnx --set batch=1 sequence=7; says '^ok'
exits 0 "$quern" zoo gpt2 --small --batch 0 --tokens 0 -o any.onnx
exits 0 "$quern" verify any.onnx --set batch=3 sequence=24; says '^ok'
exits 1 "$quern" verify any.onnx --set batch=3 sequence=25; says 24
exits 0 "$quern" zoo bert-large --small --batch 0 --tokens 0 -o any.onnx
exits 0 "$quern" verify any.onnx --set batch=1 sequence=1; says '^ok'

# sizes as options
exits 0 "$quern" zoo llama2; says '^--layers  *32  (--small: 2)  blocks'; says '^--tokens  *0 '
exits 0 "$quern" zoo resnet50; says 'fixed sizes'
exits 0 "$quern" zoo vit --small --layers 1 --width 24 --heads 2 --classes 3 --batch 1 -o v.onnx
exits 0 "$quern" show v.onnx; says 'output: f32\[1,3\]'; silent 'layer.1'
exits 2 "$quern" zoo resnet50 --layers 3 -o v.onnx; says "'resnet50' has no size 'layers'"
exits 2 "$quern" zoo vit --small --heads 5 -o v.onnx; says 'multiple of 5 heads'
exits 2 "$quern" zoo nothing; says "'nothing'"
exits 1 "$quern" zoo llama2 --width 1048576 --heads 1 -o v.onnx; says 'not enough memory'
finish
