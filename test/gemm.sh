#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# gemm.sh BUILD: quern gemm on a device with workgroups: a space measured in parts, continued,
# merged in one file; a speed-up as a stop criterion; killed and interrupted runs; messages for
# wrong arguments. Skipped without such a device.
. "$(dirname "$0")/common.sh"
at_once=1
# Once Mesa's driver is unloaded, its leaks cannot be distinguished from ours.
ASAN_OPTIONS=detect_leaks=0; export ASAN_OPTIONS
sed 's/"\([MN]\)_SIZE": \[2048\]/"\1_SIZE": [72]/; s/"K_SIZE": \[2048\]/"K_SIZE": [40]/; s/"BATCH_SIZE": \[1\]/"BATCH_SIZE": [1, 2]/' \
    test/corpus/lab_space/cfg_32.json > "$dir/cfg.json"
example=$dir/example
case $1 in *san*) flags=-fsanitize=address,undefined ;; *) flags= ;; esac
# shellcheck disable=SC2086 # none or one word
${CC:-cc} -std=gnu11 $flags -Iinclude -o "$example" examples/gemm.c -L"$1" -lquern -Wl,-rpath,"$(cd "$1" && pwd)" || exit 1
cd "$dir" || exit 1

# code CODE ARGUMENTS: ends with this exit code; output in out and err.
code() { want=$1; shift; exits "$want" "$quern" gemm "$@"; }
names() { grep -c '"name"' "$1"; }
trials() { grep -c '"candidate"' "$1"; }

code 2 cfg.json
code 2 cfg.json r.json x; says "START 'x'"
code 2 cfg.json r.json 0 1 2; says "CHECKTFLOPS '2'"
code 2 cfg.json r.json 0 1 0 fast; says "SPEEDUP 'fast'"
code 2 cfg.json r.json --rules mine; says "no rules 'mine'"
code 2 cfg.json r.json --dtype f8; says "no element type 'f8'"
code 1 none.json r.json; says 'none.json'
code 1 cfg.json r.json; says "has no workgroups"
echo '{"testResult": 3}' > broken.json
code 1 cfg.json broken.json; says "broken.json.*no list 'testResult'"
sed 's/BLOCK_SIZE_M/BLOCK_SIZE/' cfg.json > odd.json
code 1 odd.json r.json; says "odd.json.*unknown key 'BLOCK_SIZE'"
sed 's/"WARP_SIZE": \[64\]/"WARP_SIZE": [7]/' cfg.json > empty.json
code 3 empty.json r.json --device '*'; says "the rule for layouts of threads and subgroups removed the last"

# Killed in the middle and started again: every point is measured, and none twice, but for one whose verdict was on its way. The
# reference is measured in each run.
killed() {
    : > first # not that of an earlier run
    "$quern" gemm cfg.json "kill-$1.json" 0 12 --device "$1" --min-samples 2 --json > first 2> err < /dev/null &
    pid=$!
    for i in $(seq 600); do
        if [ "$(trials first)" -ge 4 ] || ! kill -0 $pid 2> /dev/null; then break; fi
        sleep 0.1
    done
    kill -9 $pid 2> /dev/null
    wait $pid 2> /dev/null
    code 0 cfg.json "kill-$1.json" 0 12 --device "$1" --min-samples 2 --json
    both=$(($(trials first) + $(trials out) - 2))
    { [ $both -eq 12 ] || [ $both -eq 11 ]; } || fail "$both trials of 12 points in a run that was killed and the next"
    says '"trials":13,'
}

# Ctrl-C: ends in order, by its exit code, with all that was measured in the file; the next run goes on from there and measures nothing twice.
# A busy machine may see the fourth trial only after the last one: then once more.
interrupted() {
    env --default-signal=INT true 2> /dev/null || { echo "skipped: env knows no --default-signal (coreutils 8.31)"; return; }
    for _ in 1 2 3 4 5; do
        rm -f "int-$1.json" "int-$1.db"
        : > first
        env --default-signal=INT "$quern" gemm cfg.json "int-$1.json" 0 12 --device "$1" --min-samples 2 --json > first 2> err < /dev/null &
        pid=$!
        for i in $(seq 600); do
            if [ "$(trials first)" -ge 4 ] || ! kill -0 $pid 2> /dev/null; then break; fi
            sleep 0.1
        done
        kill -INT $pid 2> /dev/null
        wait $pid
        got=$?
        { [ $got -eq 0 ] && [ "$(trials first)" -eq 13 ]; } || break
    done
    [ $got -eq 130 ] || fail "exit code $got instead of 130 after Ctrl-C: quern gemm"
    [ "$(names "int-$1.json")" -ge 1 ] || fail "what was measured before Ctrl-C is not in the file"
    code 0 cfg.json "int-$1.json" 0 12 --device "$1" --min-samples 2 --json
    both=$(($(trials first) + $(trials out) - 2))
    { [ $both -eq 12 ] || [ $both -eq 11 ]; } || fail "$both trials of 12 points in a run that was interrupted and the next"
}

measure() {
    # The reference's own name may be among the results, too.
    code 0 cfg.json "$1.json" 0 3 --device "$1" --min-samples 2
    says "rules 'own': [0-9]* points"
    [ "$(names "$1.json")" -ge 3 ] || fail "no three results"
    before=$(names "$1.json")
    code 0 cfg.json "$1.json" 3 2 0 0 --device "$1" --min-samples 2
    [ "$(names "$1.json")" -ge "$before" ] || fail "results are lost"
    code 0 cfg.json "$1.json" 0 3 --device "$1" --min-samples 2 --json
    says '"name":"kcg_MM_b2_M72N72K40isAT1W'
    code 0 cfg.json "stop-$1.json" 0 40 0 0.001 --device "$1" --min-samples 2
    [ "$(names "stop-$1.json")" -le 10 ] || fail "not stopped"
    killed "$1"
    interrupted "$1"
    code 0 cfg.json "half-$1.json" 0 2 --device "$1" --min-samples 2 --dtype fp16
    code 3 cfg.json "$1.json" 99999999 1 --device "$1"; says "no point has number 99999999"
    code 0 cfg.json "found-$1.json" --search --max-candidates 3 --device "$1" --min-samples 2 --json
    says '"points":0'
    sed 's/.*/{"kernels": [{"type": "matmul", "kernelName": "&", "pklpath": ""}, {"type": "attention"}]}/' > list.json << END
kcg_MM_bM72N72K40isAT0W64_BM32BN32BK8TM4TN4BLY1BLX1WLY8WLX8GLWA4GLWB4BSWM2BSWN2WSWM1WSWN2LSU1Map4GSW0UN8RP0SP0LC1RC0
END
    code 2 list.json "list-$1.json" 1 --device "$1"; says "a registry has no points"
    code 0 list.json "list-$1.json" --device "$1" --min-samples 2; says "1 kernels other than matmuls"
    grep -q 'M72N72K40isAT0W64_BM32' "list-$1.json" || fail "the listed kernel is not among the results"
    "$example" "list-$1.db" 72 72 40 "$1" > out 2> err || fail example
    says "^ran in"
    "$example" "list-$1.db" 100 72 40 "$1" > out 2> err || fail example
    says "measured for 72 x 72 x 40, 2"
    "$example" "$1.db" 100 72 40 "$1" > out 2> err || fail example
    says "measured for 72 x 72 x 40, transposed, 2"
    "$example" "list-$1.db" 72 72 40 "$1" t > out 2> err || fail example
    says "measured for 72 x 72 x 40, 2^1.0"
    echo "quern gemm on $1: measured, resumed, stopped"
}
for device in vulkan opencl; do
    if "$quern" devices 2> /dev/null | grep -q "\"name\":\"$device\""; then measure "$device"
    else echo "skipped: no device '$device' (Debian's mesa-vulkan-drivers, pocl-opencl-icd)"
    fi
done
