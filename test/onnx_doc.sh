#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# onnx_doc.sh BUILD: doc/onnx.md is the output of `quern operators --markdown`.
set -eu
doc=$(dirname "$0")/../doc/onnx.md
if ! "$1/quern" operators --markdown | diff -u "$doc" - | head -n 40 > "$1/onnx_doc.diff" || [ -s "$1/onnx_doc.diff" ]; then
    cat "$1/onnx_doc.diff"
    echo "FAILED: doc/onnx.md is not current; run: $1/quern operators --markdown > doc/onnx.md"
    exit 1
fi
echo "doc/onnx.md is current: OK"
