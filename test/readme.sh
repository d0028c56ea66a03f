#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# readme.sh BUILD: the README's commands, in their order, as printed but for shorter times and smaller pictures and networks, on a small
# network and small files of the names that they have there. A command for a device that is missing must say so.
. "$(dirname "$0")/common.sh"
seconds=600 # compilers for four instruction sets
readme=$here/../README.md
if grep -q '__[at]san_init' "$build/quern"; then
    echo "skipped: a minute of compilers, which sanitizers do not see; cli.sh and others run the commands"
    exit 77
fi
PATH=$build:$PATH XDG_CONFIG_HOME=$dir/config XDG_CACHE_HOME=$dir/cache
export PATH XDG_CONFIG_HOME XDG_CACHE_HOME
cp "$here/corpus/png/rgb8.png" "$dir/in.png"
sed 's/"\([MNK]\)_SIZE": \[2048\]/"\1_SIZE": [40]/' "$here/corpus/lab_space/cfg_32.json" > "$dir/cfg.json"
cp "$here/corpus/lab_space/attention.json" "$dir/attn_llama2.json"
cd "$dir" || exit 1

# Files.
weights() { awk -v n="$1" 'BEGIN { for (i = 0; i < n; i++) printf "%s%.3f", i ? ", " : "", (i * 37 % 17 - 8) / 40 }'; }
cat > net.graph <<X
graph {
  input %x: f32[1,3,H,W]
  const %v: f32[8,3,3,3] = [$(weights 216)]
  const %w: f32[3,8,3,3] = [$(weights 216)]
  %a: f32[1,8,H,W] = Conv "first"(%x, %v) {kernel_shape=[3,3], pads=[1,1,1,1]}
  %b: f32[1,8,H,W] = Relu(%a)
  %y: f32[1,3,H,W] = Conv "last"(%b, %w) {kernel_shape=[3,3], pads=[1,1,1,1]}
  output %y
}
X
quern export net.graph --to onnx -o net.onnx || exit 1
cat > decoder.graph <<X
graph {
  input %input_ids: i64[N,S]
  input %past_key: f32[N,1,P,2]
  input %past_value: f32[N,1,P,2]
  const %e: f32[30000,2] = [$(weights 60000)]
  const %w: f32[2,30000] = [$(weights 60000)]
  const %heads: i64[4] = [0,0,1,2]
  const %flat: i64[3] = [0,0,2]
  %x: f32[?] = Gather(%e, %input_ids)
  %h: f32[?] = Reshape(%x, %heads)
  %q: f32[?] = Transpose(%h) {perm=[0,2,1,3]}
  %o: f32[?], %present_key: f32[?], %present_value: f32[?] = Attention(%q, %q, %q, _, %past_key, %past_value) {is_causal=1}
  %t: f32[?] = Transpose(%o) {perm=[0,2,1,3]}
  %y: f32[?] = Reshape(%t, %flat)
  %logits: f32[?] = MatMul(%y, %w)
  output %logits
  output %present_key
  output %present_value
}
X
quern export decoder.graph --to onnx -o decoder.onnx || exit 1
mkdir samples
cp in.png samples/1.png
{ printf 'PF\n8 6\n-1.0\n'; head -c 576 /dev/zero; } > noisy.pfm
{ printf '\223NUMPY\001\000\166\000'; printf '%-117s\n' "{'descr': '<f4', 'fortran_order': False, 'shape': (1, 9, 6, 8), }"; head -c 1728 /dev/zero; } > w.npy
layers() { # COUNT: rows of a data set
    echo '"InChannel","InputDepth","InputHeight","InputWidth","KernelDepth","KernelHeight","KernelWidth","OutputChannel","OutputDepth","OutputHeight","OutputWidth"'
    for k in $(seq "$1"); do echo "$k,5,6,7,3,3,3,4,3,4,5"; done
}
layers 6 > cosmoflow
layers 2 > ssd_mobilenet_v2
layers 2 > layers.csv

# The commands, one a line, without comments.
awk '/^```/ { inside = !inside; next } inside { line = line $0; if (sub(/\\$/, "", line)) next; if (line ~ /^quern /) print line; line = "" }' "$readme" |
    sed 's/  *# .*//; s/10min/2s/; s/--seconds 30/--seconds 1/; s/--bench/& --timeout 0.1s/; s/ 0 100 0 1.5/ 0 3/
         s/H:1080,W:1920/H:36,W:64/; s/H=1080 W=1920/H=36 W=64/; s/BM32\.\.\./BM32BN32BK16TM4TN4BLY1BLX1WLY8WLX8GLWA4GLWB4BSWM4BSWN4WSWM4WSWN4LSU1Map4GSW0UN16RP0SP0LC1RC0/
         s/llama2 --layers 4/llama2 --small/; s/1x32x2048x64/1x2x64x64 --timeout 0.5s/
         s/_1_32_2048_64_Br64Bc64\.\.\./_1_2_64_64_Br64Bc64Hd64_Sa16Sb8PTr8PTc4OTr8OTc4GLWQ4GLWK4GLWV4BLPY4BLPX1WLPY2WLPX16BSWQ4BSWK2WSWQ4WSWK2BLOY4BLOX1WLOY2WLOX16BSWP4BSWV4WSWP4WSWV2Un16W32LCP1LCO1SPP1RPP0RPO0SHP0SKP0 --timeout 0.5s/' > commands
n=$((n + 1)); [ "$(wc -l < commands)" -ge 25 ] || wrong "only $(wc -l < commands) commands found"

# Whether the command can be run here; says why not.
possible() {
    case $1 in
    *aarch64*) command -v aarch64-linux-gnu-gcc > why || { echo "skipped: $1 (no cross compiler: tool/deps build cross)"; return 1; } ;;
    *enableplots*) python3 -c 'import matplotlib' 2> why || { echo "skipped: $1 (no matplotlib: tool/deps plot)"; return 1; } ;;
    "quern graph"*) command -v dot > why || { echo "skipped: $1 (no Graphviz: tool/deps graph)"; return 1; } ;;
    *"to vkdt"* | *"to vulkan-c"*) quern compile net.onnx -o net.dnx --device vulkan > why 2>&1 || { echo "skipped: $1 (no Vulkan device)"; return 1; } ;;
    esac
}
while read -r command; do
    possible "$command" || continue
    n=$((n + 1))
    : > in
    eval "timeout $seconds $command" > out 2> err < in
    got=$?
    [ $got -ne 0 ] || continue
    if grep -q 'no device matches\|no [A-Za-z]*: cannot load' err; then echo "skipped: $command (no such device)"
    else wrong "exit code $got: $command"
    fi
done < commands
finish
