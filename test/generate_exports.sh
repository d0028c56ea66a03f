#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# generate_exports.sh BUILD: decoders of transformers as both exporters of PyTorch, transformers and onnxruntime-genai's model builder write them: quern
# generate has the tokens of ONNX Runtime, with all caches in place (generate_exports.py). With ALL=1 all networks by all exporters. Skipped without
# PyTorch, transformers and ONNX Runtime (bench/setup architectures); without onnxruntime-genai (bench/setup onnxruntime-genai) or transformers.exporters
# the networks of these are.
. "$(dirname "$0")/common.sh"
seconds=900
needs_python 'onnx, onnxruntime, onnxscript, torch, transformers' 'PyTorch, transformers, onnxscript or ONNX Runtime (bench/setup architectures)'
[ -n "${ALL:-}" ] && only= || only='llama gpt2.script qwen2.dynamo mixtral.script'
# shellcheck disable=SC2086 # words
exits 0 "$python" "$here/generate_exports.py" export nets $only
grep '^skipped' out
silent 'not exported'
exits 0 "$python" "$here/generate_exports.py" check "$quern" nets/*.onnx
cat out
finish
