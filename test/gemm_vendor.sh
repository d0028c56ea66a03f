#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# gemm_vendor.sh BUILD: quern gemm with the vendor baseline: on the CPU, if a BLAS library is
# installed, and messages without one. Results over either baseline come from the same database.
. "$(dirname "$0")/common.sh"
at_once=1
sed 's/"\([MN]\)_SIZE": \[2048\]/"\1_SIZE": [72]/; s/"K_SIZE": \[2048\]/"K_SIZE": [40]/; s/"BATCH_SIZE": \[1\]/"BATCH_SIZE": [1, 2]/' \
    test/corpus/lab_space/cfg_32.json > "$dir/cfg.json"
cd "$dir" || exit 1

# code CODE ARGUMENTS: ends with this exit code; output in out and err.
code() { want=$1; shift; exits "$want" "$quern" gemm cfg.json r.json --search --max-candidates 2 --min-samples 2 --threads 1 "$@"; }
says() { grep -q -e "$1" "${2:-out}" || fail "not said: $1"; }

code 2 --baseline mine; says "no baseline 'mine', expected vendor or reference" err
code 0 --baseline reference; says ' ms by reference'; says '"baseline": "reference"' r.json
# The winner has a name or, as here, is printed as GEMM, family and schedule.
says '^b2_M72N72K40 [a-z_]*gemm\.[0-9]* '
QUERN_BLAS_LIBRARY=libthere_is_none.so.7; export QUERN_BLAS_LIBRARY
code 1 --baseline vendor; says "no baseline 'vendor': no BLAS" err
code 0; says ' ms by reference'
unset QUERN_BLAS_LIBRARY
"$quern" gemm cfg.json x.json --search --max-candidates 1 --min-samples 1 --threads 1 --baseline vendor > out 2> err || {
    says 'no BLAS' err
    echo "skipped: quern gemm beside a library, for there is none (tool/deps blas)"
    exit 0
}
code 0; says ' ms by .*BL[AI]S'; says '"baseline": ".*BL[AI]S' r.json
code 0 --baseline vendor --json; says '"baseline":".*BL[AI]S'
code 0 --baseline reference --json; says '"baseline":"reference"'
code 0 --dtype f16; says ' ms by reference'
code 1 --dtype f16 --baseline vendor; says "has no matmul of 'f16'" err
echo "quern gemm beside a library: over it, over the reference, and where it is missing"
