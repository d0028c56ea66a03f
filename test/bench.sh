#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# bench.sh BUILD: measurements and statistics of bench/compare (test/bench_rows.py), and of
# tool/device-check gemm (test/bench_matmuls.py), attention (test/bench_attention.py), conv
# (test/bench_convolutions.py) and filter (test/bench_filters.py); where bench/setup has run, results of
# libraries in all forms of a row (test/bench_forms.py).
set -eu
if ! python3 -c '' 2> /dev/null; then
    echo "skipped: no python3"
    exit 77
fi
python3 "$(dirname "$0")/bench_rows.py" "$1"
python3 "$(dirname "$0")/bench_convolutions.py" "$1"
python3 "$(dirname "$0")/bench_filters.py" "$1"
python3 "$(dirname "$0")/bench_attention.py" "$1"
python3 "$(dirname "$0")/bench_matmuls.py" "$1"
if "$1/venv/bin/python" -c 'import numpy, onnx' 2> /dev/null; then exec "$1/venv/bin/python" "$(dirname "$0")/bench_forms.py"; fi
echo "skipped: forms of attention, without the libraries of bench/setup"
