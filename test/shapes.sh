#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# shapes.sh BUILD: quern shapes: the contractions of networks with known ones, their roles and operations; attentions by sizes, masks and kinds,
# whoever wrote them; the configurations that it writes are those that quern gemm and quern attention read and measure.
. "$(dirname "$0")/common.sh"
cd "$dir" || exit 1
ASAN_OPTIONS=detect_leaks=0; export ASAN_OPTIONS # of Vulkan's driver, see denoise.sh

# has COUNT OPERATOR ROLE TYPE OPERANDS GFLOP ALL: a row of the table ("-": no role)
has() {
    n=$((n + 1))
    awk -v want="$*" '{ $1 = $1; row = $0; sub(/ [^ ]*$/, "", row) } row == want { found = 1 } END { exit !found }' out || wrong "no row: $*"
}

# BERT-large of deepgen, one of its 16 layers: the table of a forward pass is known
exits 0 "$quern" zoo bert-large-deepgen --layers 1 --vocabulary 20 --positions 1024 -o bert.onnx
exits 0 "$quern" shapes bert.onnx --space bert
has 4 MatMul f32 '1x1024x1024 * 1024x1024' 2.147 8.59
has 1 MatMul scores f32 '1x16x1024x64 * 1x16x64x1024' 2.147 2.147
has 1 MatMul values f32 '1x16x1024x1024 * 1x16x1024x64' 2.147 2.147
has 1 MatMul f32 '1x1024x1024 * 1024x4096' 8.59 8.59
has 1 MatMul f32 '1x1024x4096 * 4096x1024' 8.59 8.59
says '^ *8 .* 30.06$'
has 1 MatMul f32 1 16 1024 1024 64 causal - attention_origin
ls bert > files
for f in mm_1._1024_1024_1024 mm_16._1024_1024_64 mm_16._1024_64_1024 mm_1._1024_4096_1024 mm_1._1024_1024_4096 attn_attention_origin_1_16_1024_64; do is_file bert/$f.json; done
[ "$(wc -l < files)" -eq 6 ] || wrong "other files than six"
exits 0 "$quern" shapes bert.onnx --json
says '"role":"scores","type":"f32","count":1,"flops":2147483648,.*"batch":\[16\],"m":1024,"n":1024,"k":64}$'
says '{"event":"done","count":8,"flops":30064771072}'

# every attention is found, and nothing else: chains of operators in networks with gates, windows, shared heads and masks of all kinds
for net in bert-large:2 gpt2:2 llama2:2 llama3-1b:2 whisper-encoder:2 vit:2 swin-moe:8 resnet50:0; do
    exits 0 "$quern" zoo "${net%:*}" --small -o net.onnx
    exits 0 "$quern" shapes net.onnx --json
    for role in scores values; do
        count=$(sed -n "s/.*\"role\":\"$role\".*\"count\":\([0-9]*\),.*/\1/p" out | awk '{ n += $1 } END { print n + 0 }')
        [ "$count" = "${net#*:}" ] || wrong "$count $role of ${net%:*}"
    done
    exits 0 "$quern" shapes net.onnx
    count=$(awk '/^ *count  attention/ { on = 1; next } on { n += $1 } END { print n + 0 }' out)
    [ "$count" = "${net#*:}" ] || wrong "$count attentions of ${net%:*}"
    case ${net%:*} in
    bert-large) has 2 MatMul f32 2 4 13 13 8 mask - - ;;
    gpt2) has 2 MatMul f32 2 3 13 13 16 causal - attention_origin ;;
    llama2) has 2 MatMul f32 2 4 13 13 8 causal - attention_origin ;;
    llama3-1b) has 2 MatMul f32 2 6/2 13 13 8 causal - - ;;
    vit) has 2 MatMul f32 2 3 17 17 16 - - attn_v1 ;;
    swin-moe) has 2 MatMul f32 18 2 9 9 8 bias - - ;;
    esac
done
has 5 Conv f32 '1x256x14x14 * 256x256x3x3' 0.2312 1.156
has 1 Conv f32 '1x3x224x224 * 64x3x7x7 /2' 0.236 0.236
has 1 Gemm f32 '1x2048 * 2048x1000' 0.004096 0.004096
exits 0 "$quern" zoo mobilenetv2 -o net.onnx
exits 0 "$quern" shapes net.onnx; says '1x32x112x112 \* 32x1x3x3 g32 '

# operators that consist of several
cat > attention.graph << 'X'
graph {
  input %q: f16[B,S,32]
  input %k: f16[B,20,16]
  input %v: f16[B,20,8]
  %y: f16[B,S,16] = Attention "a"(%q, %k, %v) {q_num_heads=4, kv_num_heads=2}
  output %y
}
X
exits 0 "$quern" shapes attention.graph --set B=3 S=5 --json
says '"operator":"Attention","node":"a","role":"scores"'; says '"operator":"Attention","node":"a","role":"values"'
says '"flops":19200,.*"batch":\[3,2\],"m":10,"n":20,"k":8}'
says '"flops":9600,.*"batch":\[3,2\],"m":10,"n":4,"k":20}'
says '"role":"attention","type":"f16","count":1,"batch":3,"heads":4,"key_heads":2,"queries":5,"keys":20,"head_size":8,"value_size":4,"scale":0.353516,"softcap":0,"sums":false,"mask":"","kind":null,"why":"4 heads of queries share 2 of keys"}'
tail -n 1 out | grep -q '"event":"done"' || wrong "the last object is not the summary"
exits 2 "$quern" shapes attention.graph --set Q=3; says "'Q'"
exits 1 "$quern" shapes none.onnx; says none.onnx
exits 2 "$quern" shapes

# types: a graph's text, whose types of results are not stated
types() { sed 's/^  \(%[a-z0-9]*\) =/  \1: none[?] =/'; }

# Attentions of every kind, and those that none computes. form NAME INPUTS ATTRIBUTES: one on q, k and v.
form() {
    printf 'graph {\n%s\n  %%y = Attention "%s"(%%q, %%k, %%v)%s\n  output %%y\n}\n' "$2" "$1" "${3:+ {$3\}}" | types > form.graph
    rm -rf space
    exits 0 "$quern" shapes form.graph --space space
}
# operands TYPE BATCH HEADS LENGTH SIZE: inputs q, k and v
operands() { for i in q k v; do echo "  input %$i: $1[$2,$3,$4,$5]"; done; }
qkv=$(operands f32 2 4 64 32)
form none "$qkv" ''; has 1 Attention f32 2 4 64 64 32 - - attn_v1; is_file space/attn_attn_v1_2_4_64_32.json
form causal "$qkv" 'is_causal=1'; has 1 Attention f32 2 4 64 64 32 causal - attention_origin
form gemma "$qkv" 'is_causal=1, softcap=50.0'; has 1 Attention f32 2 4 64 64 32 causal 50 gemma2_origin; is_file space/attn_gemma2_origin_2_4_64_32.json
form cap "$qkv" 'is_causal=1, softcap=30.0'; has 1 Attention f32 2 4 64 64 32 causal 30 -; says "no configuration for attention 'cap': no kind has a softcap of 30"
form open_cap "$qkv" 'softcap=50.0'; says 'kinds without a causal mask have neither a softcap'
form scaled "$qkv" 'scale=0.5'; has 1 Attention f32 2 4 64 64 32 - - -; says 'scores are scaled by 0.5, not by 1 / sqrt(size of a head) = 0.1768'
form near "$qkv" 'is_causal=1, left_window_size=7'; has 1 Attention f32 2 4 64 64 32 causal+window 8 - -; says "kinds have a causal mask or none, not 'causal+window 8'"
form cross "$(echo "$qkv" | sed '/%[kv]/s/64/16/')" ''; says '64 queries attend to 16 keys'
form wide "$(echo "$qkv" | sed '/%v/s/,32/,48/')" ''; has 1 Attention f32 2 4 64 64 32/48 - - -; says 'heads of 32 elements have values of 48'
form small "$(operands f32 2 4 16 32)" ''; has 1 Attention f32 2 4 16 16 32 - - attn_v1; says "no configuration for attention 'small': rules 'own': .*Br and Bc of no more than all queries"
! ls space | grep -q attn || wrong "a configuration without points"

# Chains of operators: scales on both sides and repeated heads; masks that are computed and joined with others, or added; sums of columns; sinks.
types > chain.graph << 'X'
graph {
  input %x: f32[1,4,64,32]
  input %k: f32[1,2,64,32]
  input %keep: bool[1,1,1,64]
  const %d: f32[] = [0.4204482]
  const %half: f32[] = [0.0]
  const %low: f32[] = [-inf]
  const %one: f32[] = [1.0]
  const %cap: f32[] = [50.0]
  const %to: i64[5] = [1, 2, 2, 64, 32]
  const %flat: i64[4] = [1, 4, 64, 32]
  const %axis: i64[1] = [2]
  const %last: i64[1] = [-1]
  const %full: i64[2] = [64, 64]
  %ones = ConstantOfShape(%full)
  %lower = Equal(%ones, %half)
  %triangle = Trilu(%lower) {upper=0}
  %q = Mul(%x, %d)
  %k5 = Unsqueeze(%k, %axis)
  %ke = Expand(%k5, %to)
  %kh = Reshape(%ke, %flat)
  %ks = Mul(%kh, %d)
  %kt = Transpose(%ks) {perm=[0,1,3,2]}
  %raw = MatMul "grouped"(%q, %kt)
  %both = And(%triangle, %keep)
  %masked = Where(%both, %raw, %low)
  %p = Softmax(%masked) {axis=-1}
  %y = MatMul(%p, %kh)
  %raw2 = MatMul "sums"(%q, %kt)
  %bias = Where(%triangle, %half, %low)
  %masked2 = Add(%raw2, %bias)
  %p2 = Softmax(%masked2) {axis=-1}
  %sums = ReduceSum(%p2, %axis) {keepdims=0}
  %y2 = MatMul(%p2, %x)
  %k4 = Transpose(%x) {perm=[0,1,3,2]}
  %xs = Mul(%q, %d)
  %raw3 = MatMul "sinks"(%xs, %k4)
  %most = ReduceMax(%raw3, %last)
  %less = Sub(%raw3, %most)
  %e = Exp(%less)
  %s = ReduceSum(%e, %last)
  %more = Add(%s, %one)
  %p3 = Div(%e, %more)
  %y3 = MatMul(%p3, %x)
  %raw4 = MatMul "capped"(%xs, %k4)
  %r4 = Div(%raw4, %cap)
  %t4 = Tanh(%r4)
  %c4 = Mul(%cap, %t4)
  %masked4 = Where(%triangle, %c4, %low)
  %p4 = Softmax(%masked4) {axis=-1}
  %y4 = MatMul(%p4, %x)
  output %y
  output %y2
  output %sums
  output %y3
  output %y4
}
X
rm -rf space
exits 0 "$quern" shapes chain.graph --space space
has 1 MatMul f32 1 4/2 64 64 32 causal+mask - -
has 1 MatMul f32 1 4/2 64 64 32 causal - -
has 1 MatMul f32 1 4 64 64 32 - - -; says "attention 'sinks': scores pass through more than"
has 1 MatMul f32 1 4 64 64 32 causal 50 gemma2_origin; is_file space/attn_gemma2_origin_1_4_64_32.json
sed 's/Mul(%kh, %d)/Mul(%x, %d)/' chain.graph > sums.graph
exits 0 "$quern" shapes sums.graph --space space; has 1 MatMul f32 1 4 64 64 32 causal - h2o_origin; is_file space/attn_h2o_origin_1_4_64_32.json

# Files are those that quern attention reads: points by both rules, for warps of 32 and of 64 threads, and other types.
for shape in '1 16 1024 64' '2 3 100 128' '1 2 64 32'; do
    # shellcheck disable=SC2086 # several words
    set -- $shape
    name=$1_$2_$3_$4
    for warp in 32 64; do
        [ "$4 $warp" != '32 64' ] || continue
        printf 'graph {\n%s\n  %%y = Attention "a"(%%q, %%k, %%v) {is_causal=1}\n  output %%y\n}\n' "$(operands f16 "$@")" | types > one.graph
        rm -rf space
        exits 0 "$quern" shapes one.graph --space space --warp-size $warp; is_file space/attn_attention_origin_${name}_f16.json
        for rules in own deepgen; do
            exits 0 "$quern" attention space/attn_attention_origin_${name}_f16.json --shape "$1x$2x$3x$4" --dtype f16 --kind attention_origin --rules $rules --points --max 1
            says '^[1-9][0-9]* points of '; says "^0 kcg_AttentionOrigin_${name}_Br"
        done
    done
done
set -- "$build"
exits 0 "$quern" attention bert/attn_attention_origin_1_16_1024_64.json --shape 1x2x64x64 --kind attention_origin --untuned --min-samples 1
says 'verified o '

# rows that a mask makes more
cat > rows.graph << 'END'
graph {
  input %q: f32[1,1,64]
  input %k: f32[1,64,8]
  input %b: f32[5,8]
  input %v: f32[1,8,64]
  %s: f32[?] = MatMul(%q, %k)
  %a: f32[?] = Add(%s, %b)
  %p: f32[?] = Softmax(%a) {axis=-1}
  %y: f32[?] = MatMul(%p, %v)
  output %y
}
END
exits 0 "$quern" shapes rows.graph; says 'MatMul  *f32  *1  *1  *1  *8  *64  *mask'

# configurations: read and measured
exits 0 "$quern" zoo gpt2 --small --layers 1 -o small.onnx
exits 0 "$quern" shapes small.onnx --space small --warp-size 64
for f in small/mm_*.json; do
    exits 0 "$quern" gemm "$f" found.json --search --max-candidates 2 --min-samples 2 --threads 1
done
for device in vulkan opencl; do
    if "$quern" devices 2> /dev/null | grep -q "\"name\":\"$device\""; then
        for f in small/mm_1._*_48_48.json small/mm_2.3._13_13_16.json; do exits 0 "$quern" gemm "$f" "$device.json" 0 1 --device "$device" --min-samples 2; done
        grep -q kcg_MM_b2_3_M13N13K16isAT0W64 "$device.json" || wrong "no kernel of the scores on $device"
    else echo "skipped: no device '$device' (Debian's mesa-vulkan-drivers, pocl-opencl-icd)"
    fi
done
finish
