#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# quantize.sh BUILD: quern quantize on a small residual network, with samples from folders and
# archives, and of the weights alone of two layers, and wrong use of it. Where a Python has onnxruntime, its results of the quantised network
# are compared with quern's (test/quantize_ort.py).
. "$(dirname "$0")/common.sh"
cd "$dir" || exit 1

# consts NAME SIZES SCALE SEED: a line of the text form with pseudorandom numbers
consts() {
    awk -v name="$1" -v sizes="$2" -v scale="$3" -v seed="$4" 'BEGIN {
        n = 1; k = split(sizes, d, ","); for (i = 1; i <= k; i++) n *= d[i]
        printf "  const %%%s: f32[%s] = [", name, sizes
        for (i = 0; i < n; i++) { seed = (seed * 16807) % 2147483647; printf "%s%.5f", i ? ", " : "", (seed / 1073741823 - 1) * scale }
        print "]" }'
}
{
    echo 'graph {'
    echo '  input %x: f32[B,3,H,W]'
    consts w1 8,3,3,3 0.4 1; consts b1 8 0.2 2; consts w2 8,8,3,3 0.3 3; consts b2 8 0.2 4
    consts w3 12,16,1,1 0.5 5; consts w4 10,12 0.5 6; consts b4 10 0.3 7
    cat << 'X'
  %c1: none[?] = Conv "first"(%x, %w1, %b1) {kernel_shape=[3,3], pads=[1,1,1,1]}
  %r1: none[?] = Relu(%c1)
  %c2: none[?] = Conv "second"(%r1, %w2, %b2) {kernel_shape=[3,3], pads=[1,1,1,1]}
  %s: none[?] = Add(%c2, %r1)
  %r2: none[?] = Relu(%s)
  %p1: none[?] = MaxPool(%r2) {kernel_shape=[2,2], strides=[2,2]}
  %p2: none[?] = AveragePool(%r1) {kernel_shape=[2,2], strides=[2,2]}
  %j: none[?] = Concat(%p1, %p2) {axis=1}
  %c3: none[?] = Conv "third"(%j, %w3) {kernel_shape=[1,1]}
  %r3: none[?] = LeakyRelu(%c3)
  %m: none[?] = GlobalAveragePool(%r3)
  %f: none[?] = Flatten(%m)
  %y: none[?] = Gemm "last"(%f, %w4, %b4) {transB=1}
  output %y
}
X
} > net.graph
mkdir samples noise
for k in 0 1 2 3 4 5; do # u8 (1, 3, 16, 20)
    { printf '\223NUMPY\001\000\166\000'
      printf '%-117s\n' "{'descr': '|u1', 'fortran_order': False, 'shape': (1, 3, 16, 20), }"
      awk -v seed=$((k + 11)) 'BEGIN { for (i = 0; i < 960; i++) { seed = (seed * 16807) % 2147483647; printf "%c", 1 + seed % 120 } }'
    } > samples/$k.npy
done

# the command and its result
exits 0 "$quern" export net.graph --to onnx -o net.onnx
exits 0 "$quern" quantize net.onnx --data samples -o q.onnx
for layer in first second third last; do says "int8 .*$layer"; done
says '^output .* y$'
says '4 of 4 layers quantised with 6 samples'
exits 0 "$quern" quantize net.onnx --data samples -o again.onnx
same q.onnx again.onnx
exits 0 "$quern" show q.onnx
says QuantizeLinear
for method in entropy percentile; do
    exits 0 "$quern" quantize net.onnx --data samples --calibrate $method --activations i8 --samples 4 -o $method.onnx --json
    says '"output":"y".*"total":0\.0'
done
exits 0 "$quern" quantize net.onnx --data samples --keep 'sec*' -o kept.onnx
says 'f32 .*second'
says '3 of 4 layers'
exits 0 "$quern" verify q.onnx --set B=1 H=16 W=20
exits 0 "$quern" quantize net.onnx --data samples --full -o full.onnx
says '^output .* y$'
exits 0 "$quern" show full.onnx
says '%y: .*DequantizeLinear'
says 'QuantizeLinear.*(%x,'
exits 0 "$quern" verify full.onnx --set B=1 H=16 W=20
exits 0 "$quern" run q.onnx -i samples/0.npy -o q.npy
is_file q.npy

# weights alone
{
    echo 'graph {'
    echo '  input %x: f32[B,130]'
    consts w1 130,140 0.4 1; consts w2 150,140 0.3 2; consts b2 150 0.2 3
    cat << 'X'
  %h: none[?] = MatMul "first"(%x, %w1)
  %r: none[?] = Relu(%h)
  %y: none[?] = Gemm "last"(%r, %w2, %b2) {transB=1}
  output %y
}
X
} > dense.graph
{ printf '\223NUMPY\001\000\166\000'
  printf '%-117s\n' "{'descr': '|u1', 'fortran_order': False, 'shape': (2, 130), }"
  awk 'BEGIN { for (i = 0; i < 260; i++) { seed = (seed * 16807 + 11) % 2147483647; printf "%c", 1 + seed % 120 } }'
} > dense.npy
exits 0 "$quern" export dense.graph --to onnx -o dense.onnx
for type in int4 int8; do
    exits 0 "$quern" quantize dense.onnx --weights $type --block 64 -o $type.onnx
    says "$type .* - .*first"
    says '2 of 2 layers quantised$'
    exits 0 "$quern" quantize dense.onnx --weights $type --block 64 -o again.onnx
    same $type.onnx again.onnx
    exits 0 "$quern" verify $type.onnx --set B=2
    exits 0 "$quern" run $type.onnx -i dense.npy -o $type.npy
done
mkdir dense
cp dense.npy dense/0.npy
exits 0 "$quern" quantize dense.onnx --weights int4 --keep first --data dense -o some.onnx
says 'f32 .*first'
says '^output .* y$'
says '1 of 2 layers quantised with 1 samples'
exits 0 "$quern" show some.onnx
says 'block_size=32'
exits 0 "$quern" quantize dense.onnx --weights int4 --gptq --data dense -o gptq.onnx
says '2 of 2 layers quantised with 1 samples'
exits 0 "$quern" verify gptq.onnx --set B=2
exits 2 "$quern" quantize dense.onnx --weights int4 --gptq -o x.onnx; says '--data is missing'
exits 2 "$quern" quantize dense.onnx --gptq --data dense -o x.onnx; says 'weights alone'
exits 2 "$quern" quantize dense.onnx --weights int3 -o x.onnx; says 'int4 or int8'
exits 2 "$quern" quantize dense.onnx --weights int4 --block 48 -o x.onnx; says '16, 32, 64, 128 or 256'
exits 2 "$quern" quantize dense.onnx --block 32 --data dense -o x.onnx; says 'weights alone'
exits 2 "$quern" quantize dense.onnx --weights int4 --full -o x.onnx; says 'activations do not apply'
exits 2 "$quern" quantize dense.onnx --weights int4 --activations i8 -o x.onnx; says 'activations do not apply'
exits 3 "$quern" quantize dense.onnx --weights int4 --max-error 1e-9 -o x.onnx; says 'max-error'
exits 1 "$quern" quantize int4.onnx --weights int4 -o x.onnx; says 'nothing to quantise'

# wrong use
exits 2 "$quern" quantize net.onnx --data samples; says '-o is missing'
exits 2 "$quern" quantize net.onnx -o x.onnx; says '--data is missing'
exits 2 "$quern" quantize net.onnx --data noise -o x.onnx; says 'no samples'
exits 2 "$quern" quantize net.onnx --data net.onnx -o x.onnx; says 'neither a folder nor'
exits 2 "$quern" quantize net.onnx --data samples --calibrate best -o x.onnx; says 'min-max, entropy, percentile'
exits 3 "$quern" quantize net.onnx --data samples --max-error 1e-9 -o x.onnx; says 'max-error'
exits 2 "$quern" quantize net.onnx --data samples --keep none -o x.onnx; says "no layer is named 'none'"
exits 1 "$quern" quantize q.onnx --data samples -o x.onnx; says 'nothing to quantise'
head -c 200 samples/0.npy > noise/0.npy
exits 1 "$quern" quantize net.onnx --data noise -o x.onnx; says 'too short'
head -c 100 q.onnx > noise.npz
exits 1 "$quern" quantize net.onnx --data noise.npz -o x.onnx; says 'not an npz file'
n=$((n + 1)); [ ! -e x.onnx ] || wrong "a network is written after an error"

# with other tools
found=
for python in /usr/bin/python3 "$here/../build/venv/bin/python"; do
    [ -x "$python" ] || continue
    "$python" -c 'import numpy' 2> /dev/null || continue
    exits 0 "$python" "$here/quantize_ort.py" archives samples
    for kind in plain packed; do
        exits 0 "$quern" quantize net.onnx --data $kind.npz -o npz.onnx
        same npz.onnx q.onnx
    done
    exits 2 "$quern" quantize net.onnx --data wrong.npz -o x.onnx; says "no array 'x'"
    "$python" -c 'import onnxruntime' 2> /dev/null || continue
    found=yes
    for net in q full entropy percentile kept; do
        exits 0 "$quern" run $net.onnx -i samples/0.npy -o got.npy
        exits 0 "$python" "$here/quantize_ort.py" compare net.onnx $net.onnx samples/0.npy got.npy
    done
    for type in int4 int8; do exits 0 "$python" "$here/quantize_ort.py" same dense.onnx $type.onnx dense.npy $type.npy; done
done
[ -n "$found" ] || echo "skipped: the comparison with ONNX Runtime, no Python has it (bench/setup)"
finish
