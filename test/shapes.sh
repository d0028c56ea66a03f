#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# shapes.sh BUILD: quern shapes: the contractions of networks with known ones, their roles and operations; the configurations that it
# writes are those that quern gemm reads and measures.
. "$(dirname "$0")/common.sh"
cd "$dir" || exit 1
ASAN_OPTIONS=detect_leaks=0; export ASAN_OPTIONS # of Vulkan's driver, see denoise.sh

# has COUNT OPERATOR ROLE TYPE OPERANDS GFLOP ALL: a row of the table ("-": no role)
has() {
    n=$((n + 1))
    awk -v want="$*" '{ $1 = $1; row = $0; sub(/ [^ ]*$/, "", row) } row == want { found = 1 } END { exit !found }' out || wrong "no row: $*"
}

# BERT-large of deepgen, one of its 16 layers: the table of a forward pass is known
exits 0 "$quern" zoo bert-large-deepgen --layers 1 --vocabulary 20 --positions 1024 -o bert.onnx
exits 0 "$quern" shapes bert.onnx --space bert
has 4 MatMul f32 '1x1024x1024 * 1024x1024' 2.147 8.59
has 1 MatMul scores f32 '1x16x1024x64 * 1x16x64x1024' 2.147 2.147
has 1 MatMul values f32 '1x16x1024x1024 * 1x16x1024x64' 2.147 2.147
has 1 MatMul f32 '1x1024x1024 * 1024x4096' 8.59 8.59
has 1 MatMul f32 '1x1024x4096 * 4096x1024' 8.59 8.59
says '^ *8 .* 30.06$'
ls bert > files
for f in mm_1._1024_1024_1024 mm_16._1024_1024_64 mm_16._1024_64_1024 mm_1._1024_4096_1024 mm_1._1024_1024_4096; do is_file bert/$f.json; done
[ "$(wc -l < files)" -eq 5 ] || wrong "other files than five"
exits 0 "$quern" shapes bert.onnx --json
says '"role":"scores","type":"f32","count":1,"flops":2147483648,.*"batch":\[16\],"m":1024,"n":1024,"k":64}$'
says '{"event":"done","count":8,"flops":30064771072}'

# every attention is found, and nothing else: chains of operators in networks with gates, windows, shared heads and masks of all kinds
for net in bert-large:2 gpt2:2 llama2:2 llama3-1b:2 whisper-encoder:2 vit:2 swin-moe:8 resnet50:0; do
    exits 0 "$quern" zoo "${net%:*}" --small -o net.onnx
    exits 0 "$quern" shapes net.onnx --json
    for role in scores values; do
        count=$(sed -n "s/.*\"role\":\"$role\".*\"count\":\([0-9]*\),.*/\1/p" out | awk '{ n += $1 } END { print n + 0 }')
        [ "$count" = "${net#*:}" ] || wrong "$count $role of ${net%:*}"
    done
done
exits 0 "$quern" shapes net.onnx
has 5 Conv f32 '1x256x14x14 * 256x256x3x3' 0.2312 1.156
has 1 Conv f32 '1x3x224x224 * 64x3x7x7 /2' 0.236 0.236
has 1 Gemm f32 '1x2048 * 2048x1000' 0.004096 0.004096
exits 0 "$quern" zoo mobilenetv2 -o net.onnx
exits 0 "$quern" shapes net.onnx; says '1x32x112x112 \* 32x1x3x3 g32 '

# operators that consist of several
cat > attention.graph << 'X'
graph {
  input %q: f16[B,S,32]
  input %k: f16[B,20,16]
  input %v: f16[B,20,8]
  %y: f16[B,S,16] = Attention "a"(%q, %k, %v) {q_num_heads=4, kv_num_heads=2}
  output %y
}
X
exits 0 "$quern" shapes attention.graph --set B=3 S=5 --json
says '"operator":"Attention","node":"a","role":"scores"'; says '"operator":"Attention","node":"a","role":"values"'
says '"flops":19200,.*"batch":\[3,2\],"m":10,"n":20,"k":8}'
says '"flops":9600,.*"batch":\[3,2\],"m":10,"n":4,"k":20}'
exits 2 "$quern" shapes attention.graph --set Q=3; says "'Q'"
exits 1 "$quern" shapes none.onnx; says none.onnx
exits 2 "$quern" shapes

# configurations: read and measured
exits 0 "$quern" zoo gpt2 --small --layers 1 -o small.onnx
exits 0 "$quern" shapes small.onnx --space small --warp-size 64
for f in small/*.json; do
    exits 0 "$quern" gemm "$f" found.json --search --max-candidates 2 --min-samples 2 --threads 1
done
for device in vulkan opencl; do
    if "$quern" devices 2> /dev/null | grep -q "\"name\":\"$device\""; then
        for f in small/mm_1._*_48_48.json small/mm_2.3._13_13_16.json; do exits 0 "$quern" gemm "$f" "$device.json" 0 1 --device "$device" --min-samples 2; done
        grep -q kcg_MM_b2_3_M13N13K16isAT0W64 "$device.json" || wrong "no kernel of the scores on $device"
    else echo "skipped: no device '$device' (Debian's mesa-vulkan-drivers, pocl-opencl-icd)"
    fi
done
finish
