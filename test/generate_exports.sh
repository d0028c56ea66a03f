#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# generate_exports.sh BUILD: decoders of transformers as both exporters of PyTorch, transformers and onnxruntime-genai's model builder write them: quern
# generate has the tokens of ONNX Runtime, with all caches in place (generate_exports.py). With ALL=1 all networks by all exporters. Skipped without
# PyTorch, transformers and ONNX Runtime (bench/setup architectures); without onnxruntime-genai (bench/setup onnxruntime-genai) or transformers.exporters
# the networks of these are.
. "$(dirname "$0")/common.sh"
seconds=900
top=$(dirname "$here")
python=$top/build/venv/bin/python
nm -D "$quern" | grep -q __asan && { echo "skipped: a library with sanitizers cannot be loaded into Python"; exit 77; }
"$python" -c 'import onnx, onnxruntime, onnxscript, torch, transformers' 2> /dev/null || {
    echo "skipped: no PyTorch, transformers, onnxscript or ONNX Runtime (bench/setup architectures)"
    exit 77
}
cd "$dir" || exit 1
export PYTHONPATH="$top/python${PYTHONPATH:+:$PYTHONPATH}" QUERN_LIBRARY="$build/libquern.so" HF_HUB_OFFLINE=1
[ -n "${ALL:-}" ] && only= || only='llama gpt2.script qwen2.dynamo'
# shellcheck disable=SC2086 # words
exits 0 "$python" "$here/generate_exports.py" export nets $only
grep '^skipped' out
silent 'not exported'
exits 0 "$python" "$here/generate_exports.py" check "$quern" nets/*.onnx
cat out
finish
