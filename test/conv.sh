#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# conv.sh BUILD: quern conv with the options of other tools, its files, kernels taken from the
# database, and messages for wrong arguments and rows.
. "$(dirname "$0")/common.sh"
at_once=1 seconds=300
cd "$dir" || exit 1

# code CODE ARGUMENTS: ends with this exit code; output in out and err.
code() { want=$1; shift; exits "$want" "$quern" conv "$@"; }
lines() { wc -l < "$1"; }

code 0 --list; says directConvNCDHWtileIC; says cosmoflow
code 2; says "nothing to do"
code 2 --verify --paramscsv cosmo; says "no file and no data set 'cosmo'"
code 2 --verify --implementation mine; says "no implementation 'mine'"
code 2 --verify --pass backwards; says "no pass 'backwards'; there are: forward, input, weights"
code 2 --verify --dtype f8; says "no element type 'f8'"
code 2 --verify --layers 3:2; says "--layers is '3:2'"
code 2 --verify --currlayer 3 --lastlayer 2; says "rows 3 to 2"
code 2 --verify --currlayer 7; says "row 7 does not exist"
code 2 --verify --enableplots; says "needs --compareprof"
code 2 --compareprof --baseline mine; says "no baseline 'mine'"
code 2 --verify --loadprecompiled --seconds 1; says "not to be done"
code 2 sample --verify --paramscsv sample; says "two data sets"
printf 'channels,width,kernel_w,out_channels\n4,9,3,8\n4,9,ten,8\n' > odd.csv
code 1 odd.csv --verify; says "'odd.csv': line 3: column 3 (kernel_w): expected a whole number, found 'ten'"
printf '"InChannel","InputDepth","InputHeight","InputWidth","KernelDepth","KernelHeight","KernelWidth","OutputChannel","OutputDepth","OutputHeight","OutputWidth"\n' > seed.csv
printf '3,6,7,8,3,2,1,5,9,6,8\n2,5,5,5,3,3,3,4,3,3,3\n' >> seed.csv

# Other tools' options; the second layer is left out.
code 0 --paramscsv seed.csv --currlayer 0 --lastlayer 1 --verify
says "line 2: outputs are said to be 9 x 6 x 8, the convolution gives 4 x 6 x 8"
says "layer 0: in_1X3X6X7X8_k_3X2X1_och_5"; says "^  right:"
grep -q "layer 1" out && fail "a row too many"
code 0 --currlayer 6 --lastlayer 7 --verify; says "in_1X256X4X4X4_k_3X3X3_och_256"

code 0 seed.csv --compareprof --warmupiter 1 --totaliter 5 --setlaunchwait --baseline reference --out run --batch 2
says "no clock of its own"; says "times as fast"
[ "$(lines run/summary.csv)" -eq 3 ] || fail "a summary of two layers"
[ "$(lines run/samples.csv)" -eq 21 ] || fail "five samples of two layers and two kernels"
[ "$(lines run/roofline.csv)" -eq 5 ] || fail "two layers and two kernels"
grep -q '^fma,GFLOP/s,[1-9]' run/ceilings.csv && grep -q '^memory,GB/s,[0-9]' run/ceilings.csv || fail "ceilings"
grep -q '^in_2X3X6X7X8_k_3X2X1_och_5,' run/summary.csv || fail "names of layers"
grep -q '^total iterations = 5' run/params.txt || fail "what was asked for"
code 0 seed.csv --layers 1 --compareprof --totaliter 2 --warmupiter 0 --json; says '"event":"layer","layer":1'
[ -s outputplots/out_tuned_1/summary.csv ] || fail "no folder of its own"

# Plots, and the same once more.
if python3 -c 'import matplotlib' 2> /dev/null || /usr/bin/python3 -c 'import matplotlib' 2> /dev/null; then
    code 0 seed.csv --compareprof --warmupiter 0 --totaliter 4 --baseline reference --enableplots --out drawn
    for plot in violin split medians roofline; do [ -s drawn/$plot.svg ] && [ -s drawn/$plot.png ] || fail "no $plot"; done
    cp drawn/split.svg first.svg
    code 0 --currlayer 6 --lastlayer 7 --compareprof --enableplots --warmupiter 0 --totaliter 3 --baseline reference --out alone
    for plot in violin split medians roofline; do [ -s alone/$plot.svg ] && [ -s alone/$plot.png ] || fail "no $plot of one layer"; done
    "$quern" plot drawn > out 2> err && cmp -s first.svg drawn/split.svg || fail "drawn again it is another"
else echo "skipped: plots, without matplotlib (tool/deps plot)"
fi

# Existing binaries are found again; missing ones are reported.
code 0 seed.csv --layers 1 --verify --loadprecompiled
code 1 seed.csv --layers 1 --verify --loadprecompiled --dtype bf16; says "was never built"

# Gradients, by themselves and beside the library or the default schedule; names are of convolutions.
for pass in input weights; do
    code 0 seed.csv --pass $pass --verify --compareprof --totaliter 2 --warmupiter 0 --out "$pass"
    says "layer 1: in_1X2X5X5X5_k_3X3X3_och_4_d$pass"; says "^  right:"
    grep -q "^pass = $pass" "$pass/params.txt" || fail "what was asked for"
done
code 2 --verify --activation tanhh; says "no activation 'tanhh'; there are: none, relu, leakyrelu"
code 2 --verify --pass input --bias; says "not of their gradients"
code 0 seed.csv --layers 1 --bias --activation leakyrelu --verify --compareprof --totaliter 2 --warmupiter 0 --out fused
says "och_4_bias_leakyrelu"; says "^  right:"; says "^  reference "
code 1 seed.csv --layers 1 --pass weights --verify --implementation implicitGemmdace; says "gradients of weights are not"

# A search finds a schedule, and the next run uses it.
code 0 seed.csv --layers 0 --verify --seconds 2 --max-candidates 6 --min-samples 2
says "right"
code 0 seed.csv --layers 0 --compareprof --loadprecompiled --totaliter 2 --out found

# Every implementation either is right or says why the device's kernels do not fit its name.
for name in $("$quern" conv --list | sed -n 's/^  \([a-zA-Z]*dace\|[a-zA-Z]*IC\|[a-zA-Z]*nobuffer\) .*/\1/p'); do
    timeout 300 "$quern" conv seed.csv --layers 1 --implementation "$name" --verify > out 2> err
    [ $? -le 1 ] || fail "$name"
    grep -q -e "right" -e "$name: .*" out || fail "$name says nothing"
done
exit 0
