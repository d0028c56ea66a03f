#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# tune.sh [OPTION...] [DEVICE...]: BERT, GPT-2 and Llama 2 on each device (default: cpu, and vulkan and opencl where there is one):
#
#   collect    the matrix products of the network, and a configuration file for each (quern shapes --space)
#   tune       each of them (quern gemm --search)
#   register   nothing to do: the measurements of all are in one database, DIR/DEVICE.db
#   run        the network, compiled with the database, and beside it with default schedules
#   compare    its results with the reference evaluator's, and the times of both
#
# --build DIR      folder of quern (build)          --out DIR       networks, configurations, results (build/transformer)
# --time SECONDS   for each matrix product (10)     --candidates N  at most, of each (256)
# --bench SECONDS  for each of six timings (2)
# --threads N      of the CPU (all)                 --nets "A B"    of bert-large-deepgen gpt2-deepgen llama2 (all)
# --sizes "..."    options of quern zoo (default: below; "--batch 1 --tokens 1024": the published networks)
set -eu

build=build out=build/transformer seconds=10 bench=2 candidates=256 nets='bert-large-deepgen gpt2-deepgen llama2' threads=
sizes='--layers 2 --width 256 --heads 4 --hidden 1024 --vocabulary 1000 --tokens 128 --batch 1'
while [ $# -gt 0 ]; do
    case $1 in
    --build) build=$2; shift 2 ;;
    --out) out=$2; shift 2 ;;
    --time) seconds=$2; shift 2 ;;
    --bench) bench=$2; shift 2 ;;
    --candidates) candidates=$2; shift 2 ;;
    --threads) threads="--threads $2"; shift 2 ;;
    --nets) nets=$2; shift 2 ;;
    --sizes) sizes=$2; shift 2 ;;
    -*) echo "tune.sh: no option '$1', see the head of the file" >&2; exit 2 ;;
    *) break ;;
    esac
done
quern=$build/quern
if [ $# -eq 0 ]; then
    set -- cpu
    for d in vulkan opencl; do
        if "$quern" devices 2> /dev/null | grep -q "\"name\":\"$d\""; then set -- "$@" $d; fi
    done
fi
mkdir -p "$out"
log=$out/log
: > "$log"

# Messages go to the log, which is shown if something fails.
do_quern() {
    "$quern" "$@" >> "$log" 2>&1 && return
    echo "tune.sh: failed: quern $*" >&2
    tail -n 5 "$log" >&2
    exit 1
}

# ms FILE DEVICE: median of a run
ms() {
    # shellcheck disable=SC2086 # two words or none
    "$quern" run "$1" --bench --json --device "$2" $threads --timeout "${bench}s" 2>> "$log" | sed -n 's/.*"median_ms":\([0-9.]*\).*/\1/p'
}

least() { printf '%s\n' "$@" | sort -n | head -n 1; }

collect() {
    # shellcheck disable=SC2086 # several words
    [ -s "$out/$1.onnx" ] || do_quern zoo "$1" $sizes -o "$out/$1.onnx"
    rm -rf "$out/$1"
    "$quern" shapes "$out/$1.onnx" --space "$out/$1" 2>> "$log" > "$out/$1.txt" || { echo "tune.sh: $1 cannot be collected" >&2; exit 1; }
}

tune() { # NET DEVICE
    for f in "$out/$1"/*.json; do
        # shellcheck disable=SC2086
        do_quern gemm "$f" "$out/$2-$(basename "$f")" --search --db "$out/$2.db" --device "$2" $threads --timeout "${seconds}s" \
            --max-candidates "$candidates" --min-samples 3
    done
}

compare() { # NET DEVICE
    net=$out/$1.onnx before=$out/$1-$2-default.dnx after=$out/$1-$2.dnx
    # shellcheck disable=SC2086
    do_quern compile "$net" --untuned -o "$before" --device "$2" $threads
    # shellcheck disable=SC2086
    do_quern compile "$net" --db "$out/$2.db" -o "$after" --device "$2" $threads
    do_quern verify "$net" --program "$after" --device "$2"
    # in turn, the shortest of three medians each
    b1=$(ms "$before" "$2"); a1=$(ms "$after" "$2"); b2=$(ms "$before" "$2"); a2=$(ms "$after" "$2"); b3=$(ms "$before" "$2"); a3=$(ms "$after" "$2")
    flops=$(tail -n 1 "$out/$1.txt" | awk '{ print $NF }')
    awk -v net="$1" -v device="$2" -v n="$(find "$out/$1" -name '*.json' | wc -l)" -v b="$(least "$b1" "$b2" "$b3")" -v a="$(least "$a1" "$a2" "$a3")" -v f="$flops" \
        'BEGIN { printf "%-20s %-8s %8d %12.3f %12.3f %9.2f %10.1f  correct\n", net, device, n, b, a, b / a, f / a * 1000 }'
}

printf '%-20s %-8s %8s %12s %12s %9s %10s\n' network device products 'default, ms' 'tuned, ms' speed-up GFLOP/s
for net in $nets; do collect "$net"; done
for device; do
    for net in $nets; do tune "$net" "$device"; done
    for net in $nets; do compare "$net" "$device"; done
done
