#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# deploy_vendors.sh BUILD: what deployments have for vendors' tools. The tools are not here: in their place are scripts that check what they are given and
# write a file, so it is known that they are run as they are to be, that what they make is collected, and that their failures are told.
. "$(dirname "$0")/common.sh"
cd "$dir" || exit 1
unset HTP_SOCS QUANTIZER_OPTIONS CVFLOW_ENV COERCE SHAVES
QUERN_OPENVINO=/nonexistent/libopenvino_c.so; export QUERN_OPENVINO
check_script() { # FILE: it is POSIX sh, quoted
    n=$((n + 1)); sh -n "$1" || wrong "syntax of $1"
    command -v shellcheck > /dev/null 2>&1 || return 0
    shellcheck -s sh "$1" > log 2>&1 || { cat log; wrong "shellcheck of $1"; }
}
deploy() { # CODE KIND NAME OPTION...
    code=$1 kind=$2 name=$3; shift 3
    exits "$code" "$quern" deploy net.graph --devices "$kind:0" --name "$name" -o to "$@"
}
# has FILE REGEX: a line of the file.
has() { n=$((n + 1)); grep -q -e "$2" "$1" 2> /dev/null || wrong "$1 has no '$2'"; }
absent() { n=$((n + 1)); [ ! -e "$1" ] || wrong "$1 is there"; }
tool() { # NAME: a program on PATH, its text on standard input
    mkdir -p "bin.$set"
    { echo '#!/bin/sh'; echo 'set -eu'; cat; } > "bin.$set/$1"
    chmod +x "bin.$set/$1"
}

cat > net.graph << 'END'
graph {
  input %"image:0": f32[1,2,4,4]
  const %w: f32[3,2,1,1] = [1, -0.5, 0.25, 2, -1, 0.75]
  const %s: f32[3,1,1] = [0.25, 0.5, 0.1]
  %a: f32[1,3,4,4] = Conv "conv"(%"image:0", %w) {kernel_shape=[1,1]}
  %b: f32[1,3,4,4] = PRelu "slope"(%a, %s)
  %c: f32[1,3,2,2] = MaxPool "pool"(%b) {kernel_shape=[2,2], strides=[2,2]}
  %d: f32[1,3,2,2] = Sigmoid "last"(%c)
  output %d
}
END
# shellcheck disable=SC2059 # the bytes of a number
floats() { k=0; while [ "$k" -lt 32 ]; do printf "$1"; k=$((k + 1)); done; }
mkdir cal
floats '\000\000\200\077' > cal/0.raw # 1
floats '\000\000\000\077' > cal/1.raw # 1/2

# Without tools: the files, and what is to be done.
deploy 0 HEXAGON hexagon --calibration cal
says 'cannot run yet: run Subgraph_0/convert.sh where these are on PATH: qairt-converter or snpe-onnx-to-dlc'
s=to/hexagon/Subgraph_0
has "$s/input_list.txt" '^%d$'
has "$s/input_list.txt" '^calib/image_0/1.raw$'
is_file "$s/subgraph_0.onnx"
n=$((n + 1)); cmp -s cal/1.raw "$s/calib/image_0/1.raw" || wrong "calibration data of the first layer differ"
check_script "$s/convert.sh"
deploy 0 HEXAGON without
says 'deploy with calibration data, then run Subgraph_0/convert.sh'
absent to/withto/Subgraph_0/input_list.txt
deploy 0 CV22 cv22 --calibration cal
has to/cv22/Subgraph_0/dra_bin_list.txt '^calib/image_0/0.bin$'
has to/cv22/Subgraph_0/convert.sh "is:1,2,4,4|iq|idf:fp32|i:image_0=dra_bin_list.txt"
check_script to/cv22/Subgraph_0/convert.sh
deploy 0 MYRIAD myriad --f16
has to/myriad/Subgraph_0/convert.sh '-d MYRIAD -o subgraph_0.blob -ip FP16 -op FP16'
check_script to/myriad/Subgraph_0/convert.sh
deploy 0 ARA1 ara1 --calibration cal
is_file to/ara1/Subgraph_0/calibration.npz
says 'follow Subgraph_0/convert.txt'
deploy 0 TPU plain
says 'the Edge TPU computes in 8 bits: deploy with calibration data'
if command -v flatc > /dev/null; then
    deploy 0 TPU tpu --calibration cal
    n=$((n + 1)); [ "$(dd if=to/tpu/Subgraph_0/subgraph_0.tflite bs=1 skip=4 count=4 2> /dev/null)" = TFL3 ] || wrong "no TFLite file"
    says 'edgetpu_compiler; it makes subgraph_0_edgetpu.tflite; until then subgraph_0.tflite runs on processors only'
    check_script to/tpu/Subgraph_0/convert.sh
else echo "skipped: no flatc for models of TFLite (tool/deps tflite)"
fi
deploy 0 OPENVINO_GPU gpu
says 'no OpenVINO'
check_script to/gpu/Subgraph_0/convert.sh

# The script itself says which tool is missing, and writes nothing.
exits 1 env "PATH=/usr/bin:/bin" sh to/hexagon/Subgraph_0/convert.sh
says 'neither qairt-converter nor snpe-onnx-to-dlc is on PATH'
absent to/hexagon/Subgraph_0/subgraph_0.dlc

# In the middle of a network: its inputs are recorded as they are there, channels in rows and last.
exits 0 "$quern" allocate net.graph --template X64:0 -o all.json
sed 's/\("\(maxpool\|sigmoid\)[^"]*": "\)X64:0/\1HEXAGON:0/' all.json > half.json
exits 0 "$quern" deploy net.graph --alloc half.json --name half -o to --calibration cal --untuned
s=to/half/Subgraph_1
in=$(sed -n 's|^calib/\(.*\)/0.raw$|\1|p' "$s/input_list.txt")
numbers() { od -An -v -tf4 "$1" | awk '{ for (i = 1; i <= NF; i++) printf "%g ", $i }'; }
n=$((n + 1)); [ "$(numbers "$s/calib/$in/0.raw" | cut -d' ' -f1,16,17,33)" = '0.5 0.5 2.25 -0.025' ] || wrong "recorded in rows: $(numbers "$s/calib/$in/0.raw")"
n=$((n + 1)); [ "$(numbers "$s/calib_last/$in/1.raw" | cut -d' ' -f1-3,46-48)" = '0.25 1.125 -0.0125 0.25 1.125 -0.0125' ] || wrong "recorded channels last"

# SNPE's older tools, which keep layouts if they are told to; then without that option.
set=snpe
tool snpe-onnx-to-dlc << 'END'
[ "$*" != --help ] || { echo '[--preserve_io [PRESERVE_IO ...]]'; exit; }
[ "$1 $2 $3 $4" = '--input_network subgraph_0.onnx --output_path float.dlc' ] && [ -s "$2" ]
case "$*" in *'--preserve_io layout'*'-d image_0 1,2,4,4'*'--out_node d') ;; *) exit 3 ;; esac
echo float > float.dlc
END
tool snpe-dlc-quantize << 'END'
[ "$1 $2 $3 $4" = '--input_dlc float.dlc --input_list input_list.txt' ]
[ "$5" = --output_dlc ]
while read -r line; do case $line in %*) ;; *) [ "$(wc -c < "$line")" -eq 128 ] ;; esac; done < input_list.txt
{ cat float.dlc; echo fixed; } > "$6"
END
tool snpe-dlc-graph-prepare << 'END'
[ "$5 $6 $7 $8" = '--htp_socs sm8650,sm8550 --set_output_tensors d' ]
{ cat "$2"; echo cache; } > "$4"
END
PATH_WAS=$PATH
PATH=$dir/bin.snpe:$PATH HTP_SOCS=sm8650,sm8550; export PATH HTP_SOCS
deploy 0 HEXAGON made --calibration cal
silent 'cannot run yet'
n=$((n + 1)); [ "$(cat to/made/Subgraph_0/subgraph_0.dlc)" = "$(printf 'float\nfixed\ncache')" ] || wrong "the container was not collected"
has to/made/model.meta 'HTP of sm8650,sm8550'
deploy 0 HEXAGON unasked --calibration cal --no-tools
says 'cannot run yet'
sed -i "s/^\[ \"\$\*\" != --help \].*/[ \"\$*\" != --help ] || exit 0/; s/'--preserve_io layout'\*//" bin.snpe/snpe-onnx-to-dlc
sed -i 's/input_list.txt/input_list_last.txt/' bin.snpe/snpe-dlc-quantize
deploy 0 HEXAGON last --calibration cal
is_file to/last/Subgraph_0/subgraph_0.dlc

# A tool that fails, one that makes nothing: the end of what it said; nothing is left.
tool snpe-dlc-quantize << 'END'
k=0; while [ $k -lt 50 ]; do echo "line $k"; k=$((k + 1)); done
echo 'ERROR_QUANT: no encodings' >&2
exit 4
END
deploy 1 HEXAGON broken --calibration cal
says 'sub-graph 0 on HEXAGON:0: convert.sh failed (exit code 4)'
says 'ERROR_QUANT: no encodings'
silent 'line 10$'
absent to/broken
echo 'exit 0' | tool snpe-dlc-quantize
deploy 1 HEXAGON broken --calibration cal
absent to/broken
PATH=$PATH_WAS; unset HTP_SOCS

# Ambarella's, Intel's and Coral's.
set=others
tool graph_surgery.py << 'END'
[ "$1 $2 $3 $4 $5 $6 $7" = 'onnx -m subgraph_0.onnx -o surgery.onnx -t Default' ]
cp "$3" "$5"
END
tool onnxparser.py << 'END'
case "$*" in *'-c act-force-fx8,coeff-force-fx8 -isrc is:1,2,4,4|iq|idf:fp32|i:image_0=dra_bin_list.txt -odst o:d|odf:fp32') ;; *) exit 3 ;; esac
while read -r f; do [ -s "$f" ]; done < dra_bin_list.txt
mkdir parsed && echo vas > "parsed/$4.vas"
END
tool vas << 'END'
[ "$*" = '-auto -show-progress subgraph_0.vas' ] && [ -s "$3" ] && mkdir vas_output
END
tool cavalry_gen << 'END'
[ "$1 $2" = '-d vas_output/' ] && echo cavalry > "$4"
END
tool compile_tool << 'END'
[ "$*" = '-m subgraph_0.onnx -d MYRIAD -o subgraph_0.blob -ip FP32 -op FP32 -VPU_NUMBER_OF_SHAVES 4 -VPU_NUMBER_OF_CMX_SLICES 4' ]
echo blob > subgraph_0.blob
END
tool edgetpu_compiler << 'END'
[ "$*" = '-s -o . subgraph_0.tflite' ] && cp subgraph_0.tflite subgraph_0_edgetpu.tflite
END
PATH=$dir/bin.others:$PATH SHAVES=4; export PATH SHAVES
for kind in CV22 MYRIAD TPU; do
    [ $kind != TPU ] || command -v flatc > /dev/null || continue
    deploy 0 $kind "made-$kind" --calibration cal
    silent 'cannot run yet'
done
PATH=$PATH_WAS; unset SHAVES
is_file to/made-CV22/Subgraph_0/subgraph_0.bin
is_file to/made-MYRIAD/Subgraph_0/subgraph_0.blob
[ ! -d to/made-TPU ] || is_file to/made-TPU/Subgraph_0/subgraph_0_edgetpu.tflite

# What converters do not take. Sizes that the caller fixes are numbers.
sed 's/f32\[1,2,4,4\]/f32[N,2,4,4]/; s/f32\[1,3/f32[N,3/' net.graph > any.graph
exits 1 "$quern" deploy any.graph --devices HEXAGON:0 --name any -o to
says "needs fixed sizes (--assume, --input-shape); those of 'image:0' depend on the input"
absent to/any
exits 0 "$quern" deploy any.graph --devices HEXAGON:0 --name any -o to --calibration cal --assume N:1
exits 1 "$quern" deploy any.graph --devices CV22:0 --name two -o to --assume N:2
says "takes one sample at a time; 'image:0' has 2"
absent to/two
floats '\000\000\200\077' | head -c 64 > cal/2.raw
exits 1 "$quern" deploy net.graph --devices HEXAGON:0 --name short -o to --calibration cal
says '2.raw'
absent to/short
finish
