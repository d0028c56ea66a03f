#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# opsets.sh BUILD: networks exported in older opsets (quern export --to onnx --opset N) pass ONNX's checker, and compute the same in ONNX
# Runtime: cases of ONNX's suite whose operators have changed since, and networks of the zoo. All cases: test/onnx_opsets.py.
. "$(dirname "$0")/common.sh"
needs_python onnx,onnxruntime "package onnx or onnxruntime in build/venv"
suite=/usr/share/libonnx-testdata/data/node
[ -d "$suite" ] || { echo "skipped: no libonnx-testdata (tool/deps test)"; exit 77; }
changed='^test_(reduce_(l1|l2|max|log_sum_exp)_.*(example|random)|split_|layer_normalization_[234]d_axis(0|1|_negative_1)|center_crop|mish|hardswish$'
changed="$changed|shape_|castlike_(DOUBLE|FLOAT)_to_FLOAT(16)?$|gru_(batch|seq)|lstm_batch|simple_rnn_b|tril_(neg|zero)|batchnorm|roialign_aligned_f|pad_edge)"

"$python" "$here/onnx_opsets.py" "$quern" "$suite" 13 "--match=$changed" > log 2>&1 || { cat log; fail "cases in opset 13"; }
tail -n 1 log
n=$((n + 1)); grep -q ' [1-9][0-9]* same' log || fail "no case was compared"
for net in oidn-small vkdt-unet; do
    "$quern" zoo $net -o $net.onnx > log 2>&1 || fail "zoo $net"
done
"$python" "$here/onnx_opsets.py" "$quern" oidn-small.onnx vkdt-unet.onnx 13 17 > log 2>&1 || { cat log; fail "networks"; }
cat log

cat > bits.graph << END
graph {
  input %x: i32[2,3]
  input %m: i32[3]
  %y: i32[2,3] = BitwiseAnd "mask"(%x, %m)
  output %y
}
END
# What an opset cannot express is refused by node and reason; nothing is written.
exits 2 "$quern" export oidn-small.onnx --to onnx --opset 12 -o no.onnx
says "opset 12: networks can be exported in opsets 13 to 18"
exits 1 "$quern" export bits.graph --to onnx --opset 17 -o no.onnx
says "BitwiseAnd 'mask' cannot be expressed in opset 17: opset 17 does not have it, opset 18 has it first"
exits 2 "$quern" export oidn-small.onnx --to onnx --opset seven -o no.onnx
says "'seven' is not a number"
n=$((n + 1)); [ ! -e no.onnx ] || wrong "a refused network was written"
finish
