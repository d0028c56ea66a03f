#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# attention.sh BUILD: quern attention: names explained and refused; every kind compiled and verified
# on the processor, and some on devices with workgroups; rows of a database, continued; points of
# files counted, listed and limited by rules; lists of names; messages for wrong arguments.
. "$(dirname "$0")/common.sh"
at_once=1
# Once Mesa's driver is unloaded, its leaks cannot be distinguished from ours.
ASAN_OPTIONS=detect_leaks=0; export ASAN_OPTIONS
cp test/corpus/lab_space/attention.json test/corpus/lab_space/attention_kernels.json test/corpus/lab_name/attention "$dir" || exit 1
cd "$dir" || exit 1

# code CODE ARGUMENTS: ends with this exit code; its output in out and err.
code() { want=$1; shift; exits "$want" "$quern" attention "$@"; }
fields=_Br64Bc64Hd64_Sa16Sb8PTr8PTc4OTr8OTc4GLWQ4GLWK4GLWV4BLPY4BLPX1WLPY2WLPX16BSWQ4BSWK2WSWQ4WSWK2BLOY4BLOX1WLOY2WLOX16BSWP4BSWV4WSWP4WSWV2Un16W32LCP1LCO1SPP1RPP0RPO0SHP0SKP0

# Names are explained, whether they are consistent or not, and run only if they are.
while read -r name; do
    exits 0 "$quern" show "$name"; says "^$name$"; says '^inputs  .*q (.*k ('; says '^group '; silent '^impossible'
done < attention
exits 0 "$quern" show "kcg_H2OOrigin_1_2_128_32$fields"; says "^impossible 'Hd64' is not the size of a head, 32"
exits 1 "$quern" show kcg_AttentionK1_1_2_8_Br8; says "column 23: expected a number from 1 to .* for 'size of a head', found 'Br8'"
code 1 "kcg_H2OOrigin_1_2_128_32$fields"; says "'Hd64' is not the size of a head, 32"
code 1 kcg_AttentionK9_1; says 'column 5'
code 2 kcg_MM_bM1024N1024K1024isAT1W64_BM32BN32BK8TM4TN4BLY1BLX1WLY8WLX8GLWA4GLWB4BSWM2BSWN2WSWM1WSWN2LSU1Map4GSW0UN8RP0SP0LC1RC0
says 'matmul: quern gemm'

# Wrong arguments.
code 2
code 2 1x2x16x8 --kind attn_v3; says "no kind 'attn_v3', expected one of .*attn_v2, attention_origin"
code 2 1x2x16x8 --kind matmul; says 'quern gemm'
code 2 1x2x16x8 --dtype f8; says "no element type 'f8'"
code 2 1x2x16x8 --points; says 'for files'
code 2 1x2x0x8; says 'batch, heads and length of attention are 1 to'
code 2 1x2x16x999999; says 'size of a head is 1 to'
code 2 attention.json --shape 1x2x3; says "shape '1x2x3', expected"
code 2 attention.json --rules mine; says "no rules 'mine'"
code 1 attention.json --rules deepgen-2025-06; says 'are of matmuls'
code 1 none.json; says 'none.json'
code 2 "kcg_AttentionK1_1_2_128_64$fields" --kind attn_k1; says 'a name states both'

# Every kind is right, named by a shape or by a kernel's name, and sizes need not be multiples of blocks.
for kind in attn_v1 attn_v2 attention_origin attn_split attn_k1 attn_k2 gemma2_origin gemma2_split gemma2_k1 gemma2_k2 \
    h2o_origin h2o_split h2o_k1 h2o_k2 h2o_k3; do
    code 0 2x3x37x20 --kind $kind --untuned --min-samples 1
    says "^$kind 2x3x37x20 f32: "; says 'GFLOP/s'; silent WRONG
    case $kind in
    *_k1) says 'verified max '; says 'verified denom ' ;;
    h2o_k2) says 'verified row_sum '; silent ' o  ' ;;
    h2o_origin|h2o_split) says 'verified o '; says 'verified row_sum ' ;;
    *) says 'verified o ' ;;
    esac
done
code 0 "kcg_Attention_1_2_64_64${fields}_k2" --untuned --min-samples 1 --json
says '"kind":"attn_split","part":2,"shape":\[1,2,64,64\],"type":"f32","verified":true,"ms":'; says '"kernels":\[{"task":"'
code 0 1x2x33x16 --kind gemma2_origin --dtype fp16 --untuned --min-samples 1; says 'verified o '
code 0 1x1x16x8 --kind attn_k1 --dtype f64 --untuned --no-verify --min-samples 1; silent verified

# Written instead of run, for devices that are not here, too.
code 0 1x2x33x16 --kind attn_k1 --untuned -o k1.dnx; is_file k1.dnx; silent GFLOP
exits 0 "$quern" run k1.dnx --bench --min-samples 1 --timeout 1; says 'median'
devices='cpu:aarch64 cuda:sm_80 cuda:sm_90'
"$quern" attention 1x2x33x16 --untuned --device cuda:sm_80 -o k2.dnx > out 2>&1 || ! grep -q 'no compiler for cuda' out || {
    devices=cpu:aarch64
    echo "skipped: names built for CUDA: $(cat out)"
}
for kind in AttentionOrigin AttentionK1 Gemma2K2 H2OK2 H2OOrigin; do
    for device in $devices; do
        rm -f k2.dnx
        code 0 "kcg_${kind}_1_2_128_64$fields" --untuned --device $device -o k2.dnx; is_file k2.dnx
    done
done
for kind in attn_v1 attn_k1 gemma2_k2 h2o_k2 h2o_origin; do
    code 0 1x2x19x12 --kind $kind --untuned --device interp --min-samples 1; says 'verified '; silent WRONG
done
code 2 attention.json -o k1.dnx; says '-o is for'

# Memory grows with positions, not with scores: of the statistics, of what they are given to, and of sums of columns.
memory() { "$quern" attention "1x1x$1x16" --kind "$2" --untuned --no-verify --min-samples 1 --threads 1 --json | sed -n 's/.*"memory":\([0-9]*\).*/\1/p'; }
for kind in attn_k1 attn_k2 h2o_k2 h2o_origin; do
    few=$(memory 2048 $kind) many=$(memory 4096 $kind)
    [ "${few:-0}" -gt 0 ] && [ "$many" -le $((few * 5 / 2)) ] && [ "$many" -lt $((4096 * 4096)) ] || fail "$kind: $few bytes of temporary memory, of twice as many positions $many"
done

# Kernels as they are tiled.
small=_Br16Bc32Hd32_Sa8Sb8PTr4PTc4OTr4OTc4GLWQ4GLWK4GLWV4BLPY1BLPX1WLPY4WLPX8BSWQ4BSWK4WSWQ4WSWK4BLOY1BLOX1WLOY4WLOX8BSWP4BSWV4WSWP4WSWV4Un8W32LCP1LCO1SPP1RPP0RPO0SHP0SKP0
for kind in Attention AttentionK1 Gemma2K2 H2OK2 H2OOrigin; do
    code 0 "kcg_${kind}_1_1_40_32$small" --tiles --min-samples 1 --timeout 60
    says "^kcg_${kind}_1_1_40_32$small"; says 'times as fast as .* by reference'
done
code 0 attention.json --kind attn_k1 --shape 1x1x64x64 --tiles --max 20 --result k1.json --min-samples 1 --timeout 60 --json
says '"event":"done","points":20'; is_file k1.json
code 2 1x1x40x32 --tiles; says '--tiles is for a name or a file'
code 2 attention.json --result a.json; says '--result is for --tiles'

# Tuned: the program's kernels are rows of the database, and the next run continues from there.
code 0 1x2x48x16 --kind attention_origin --db a.db --max-candidates 3 --min-samples 2 --json
says '"event":"done","kind":"attention_origin"'
sed -n 's/.*"kernels":\[{"task":"\([^"]*\)".*/\1/p' out > task
first=$(grep -c '"candidate"' out)
[ "$first" -ge 1 ] || fail "nothing was measured"
exits 0 "$quern" db export a.db; says "$(cat task)"
code 0 1x2x48x16 --kind attention_origin --db a.db --max-candidates 3 --min-samples 2 --json
[ "$(grep -c '"candidate"' out)" -le "$first" ] || fail "the second run measures more than the first"

# Files: the number of points, and names of some.
code 0 attention.json --kind attn_v1 --shape 1x32x2048x64 --rules deepgen --points --start 48143; says '^48144 points of '; says '^48143 kcg_Attention_1_32_2048_64_Br'
code 0 attention_kernels.json --kind h2o_k2 --shape 1x32x4096x64 --rules deepgen --points --max 1; says '^13968 points'; says '^0 kcg_H2OK2_1_32_4096_64_'
code 0 attention.json --kind gemma2_k2 --shape 1x2x64x32 --points --start 5 --max 2
[ "$(grep -c '^[56] kcg_Gemma2K2_1_2_64_32_' out)" -eq 2 ] || fail "not points 5 and 6"
sed -n 's/^5 //p' out > name
exits 0 "$quern" show "$(cat name)"; silent '^impossible'
code 2 attention.json --shape 1x2x64x32 --points --start 99999999; says 'no point with number 99999999'
code 1 attention_kernels.json; says "lists for several kernels, but none for kind 'attn_v1'"
sed 's/"PTr"/"PTR"/' attention.json > odd.json
code 1 odd.json; says "odd.json.*unknown key 'PTR'"
sed 's/"WARP_SIZE": \[32\]/"WARP_SIZE": [7]/' attention.json > empty.json
code 3 empty.json; says 'the rule for layouts of the scores removed the last'
code 0 attention.json --kind attn_k1 --shape 1x2x64x32 --untuned --min-samples 1 --json
says '"event":"space","raw":[0-9]*,"points":[0-9]*,"refused":0'; says '"kind":"attn_k1".*"verified":true'

# A list of names: each computation once; other types are counted, inconsistent names refused.
cat > list.json << END
{"kernels": [{"type": "attention", "kernelName": "kcg_AttentionK1_1_2_128_64$fields", "pklpath": ""},
             {"type": "attention", "kernelName": "kcg_AttentionK2_1_2_128_64$fields"},
             {"type": "attention", "kernelName": "kcg_AttentionK2_1_2_128_64${fields%SKP0}SKP1"},
             {"type": "attention", "kernelName": "kcg_AttentionK2_1_2_128_32$fields"},
             {"type": "matmul", "kernelName": "kcg_MM_bM1"}]}
END
code 0 list.json --untuned --min-samples 1
[ "$(grep -c '^attn_k[12] 1x2x128x64 f32' out)" -eq 2 ] || fail "not one run of each computation"
says '1 kernels other than attention are skipped'; says "1 names are refused, the first: .*'Hd64' is not the size of a head, 32"

for device in vulkan opencl; do
    if "$quern" devices 2> /dev/null | grep -q "\"name\":\"$device\""; then
        for kind in attention_origin gemma2_k1 h2o_k2; do
            code 0 1x2x40x16 --kind $kind --device $device --max-candidates 2 --min-samples 2; says 'verified '; silent WRONG
        done
        code 0 attention.json --kind gemma2_origin --shape 1x2x64x64 --points --max 1 --device $device; says '^0 kcg_Gemma2Origin_1_2_64_64'
        code 0 "kcg_AttentionOrigin_1_1_40_32$small" --tiles --device $device --min-samples 1 --timeout 20
        says "^kcg_AttentionOrigin_1_1_40_32$small"; says 'times as fast as .* by reference'
        code 0 attention.json --shape 1x1x64x64 --tiles --max 2 --result tiles.json --device $device --min-samples 1 --timeout 20 --json
        says '"event":"done","points":[1-9]'; is_file tiles.json
        for kind in AttentionK1 Gemma2K2 H2OK2 H2OOrigin; do
            code 0 "kcg_${kind}_1_1_40_32$small" --tiles --device $device --min-samples 1 --timeout 20
            says "^kcg_${kind}_1_1_40_32$small"; says 'times as fast as .* by reference'
        done
        echo "quern attention on $device: verified"
    else echo "skipped: no device '$device' (Debian's mesa-vulkan-drivers, pocl-opencl-icd)"
    fi
done
finish
