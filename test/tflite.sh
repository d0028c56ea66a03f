#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# tflite.sh BUILD: quern export --to tflite. Random operators and small networks, in f32 and quantised, are run by the
# interpreter of LiteRT and compared with ONNX Runtime and with quern; wrong use, and what a device does not have, is
# refused with a reason. COUNT=20 tries so many networks of each operator, SEED=n others.
. "$(dirname "$0")/common.sh"
command -v flatc > /dev/null || { echo "skipped: no flatc (tool/deps tflite)"; exit 77; }
needs_python numpy,onnx,onnxruntime,ai_edge_litert "Python with LiteRT and ONNX Runtime (bench/setup)"
seconds=600

# operators
for form in f32 int8; do
    mkdir $form
    exits 0 "$python" "$here/tflite_operators.py" "$quern" $form $form "${SEED:-1}" "${COUNT:-2}"
    sed -n 's/^[0-9]* networks/'$form': &/p' out
done

# networks: quantised fully, for the Edge TPU; between layers; not at all
exits 0 "$python" "$here/tflite_networks.py" make .
compared() { # NETWORK OPTIONS...
    net=$1; shift
    exits 0 "$quern" export $net.onnx --to tflite -o $net.tflite "$@"
    exits 0 "$python" "$here/tflite_networks.py" compare $net.onnx $net.tflite "${net%.*}.npz"
    sed -n "s/^[0-9l]/$net $*: &/p" out
}
for name in keywords visual_wake_words resnet8 autoencoder mediapipe mobilenet_v3 unet attention; do
    compared $name
    full=--full
    [ $name != attention ] || full= # its products of two activations stay in f32 in any case
    exits 0 "$quern" quantize $name.onnx --data $name.npz $full --no-report -o $name.q.onnx
    ln -s $name.npz $name.q.npz
    compared $name.q
    case $name in
    mediapipe) compared $name.q --layout nhwc --interface int8 ;; # its slopes are not rounded without --for
    mobilenet_v3)
        compared $name.q --layout nhwc --interface uint8
        exits 1 "$quern" export $name.q.onnx --to tflite -o x.tflite --for edgetpu; says "HardSwish 'HardSwish_1': .*HARD_SWISH" ;;
    attention) exits 1 "$quern" export $name.q.onnx --to tflite -o x.tflite --for edgetpu; says "quantize --full" ;;
    *) compared $name.q --layout nhwc --interface int8 --for edgetpu ;;
    esac
done
exits 0 "$quern" quantize unet.onnx --data unet.npz --no-report --activations i8 -o between.onnx
ln -s unet.npz between.npz
compared between
exits 1 "$quern" export between.onnx --to tflite -o x.tflite --for edgetpu; says "is f32"

# as another tool quantises
for name in resnet8 mobilenet_v3; do
    exits 0 "$python" "$here/tflite_networks.py" quantize $name.onnx $name.npz $name.ort.onnx
    ln -s $name.npz $name.ort.npz
    compared $name.ort
done

# the program's own results of a quantised network
"$python" -c 'import numpy; numpy.save("x.npy", numpy.load("resnet8.npz")["x"][:1])'
exits 0 "$quern" run resnet8.q.onnx -i x.npy -o y.npy
exits 0 "$quern" export resnet8.q.onnx --to tflite -o resnet8.tflite
exits 0 "$python" "$here/tflite_networks.py" compare resnet8.q.onnx resnet8.tflite resnet8.npz y.npy

# the same bytes again, sizes fixed by options, the zoo
exits 0 "$quern" export resnet8.q.onnx --to tflite -o again.tflite
same resnet8.tflite again.tflite
printf 'graph {\n  input %%x: f32[B,3,H,8]\n  %%y: none[?] = Relu(%%x)\n  output %%y\n}\n' > open.graph
exits 1 "$quern" export open.graph --to tflite -o x.tflite; says "'x' has sizes \[B,3,H,8\] that are not fixed"
exits 0 "$quern" export open.graph --to tflite -o open.tflite --assume B=1 H=4
is_file open.tflite

# wrong use
exits 2 "$quern" export resnet8.onnx --to tflite; says '-o is missing'
exits 2 "$quern" export resnet8.onnx --to tflite -o x.tflite --layout chwn; says 'nchw or nhwc'
exits 2 "$quern" export resnet8.onnx --to tflite -o x.tflite --interface f16; says 'f32, int8 or uint8'
exits 2 "$quern" export resnet8.onnx --to tflite -o x.tflite --for tpu; says 'edgetpu'
exits 1 env PATH=/none "$quern" export resnet8.onnx --to tflite -o x.tflite; says "flatc.*flatbuffers-compiler"
printf 'graph {\n  input %%x: f32[3,3]\n  %%y: none[?] = Det "e"(%%x)\n  output %%y\n}\n' > det.graph
exits 1 "$quern" export det.graph --to tflite -o x.tflite; says "Det 'e': TFLite has no such operator"
n=$((n + 1)); [ ! -e x.tflite ] || wrong "a model is written after an error"
finish
