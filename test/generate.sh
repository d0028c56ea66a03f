#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# generate.sh BUILD: quern generate and examples/generate.c on a small decoder: a generation is continued by one that begins with its
# tokens, programs and models, caches in place and copied give the same tokens; sampling repeats by its seed; errors.
. "$(dirname "$0")/common.sh"
top=$(dirname "$here")
cd "$dir" || exit 1

# numbers N SEED: N pseudorandom numbers, -2 to 2
numbers() {
    awk -v n="$1" -v s="$2" 'BEGIN { for (i = 0; i < n; i++) { s = (s * 1103 + 12345) % 65536; printf "%s%.4f", i ? "," : "", s / 16384 - 2 } }'
}
# decoder IDS KEY: with an attention mask, positions, and these names of the tokens and of the cache of keys
decoder() {
    echo "graph {
  input %$1: i64[N,S]
  input %attention_mask: i64[N,T]
  input %position_ids: i64[N,S]
  input %past_$2: f32[N,2,P,4]
  input %past_value: f32[N,2,P,4]"
    k=1
    for w in e:256,8 p:64,8 wq:8,8 wk:8,8 wv:8,8 wo:8,256; do
        k=$((k + 1))
        size=${w#*:}
        echo "  const %${w%:*}: f32[$size] = [$(numbers $((${size%,*} * ${size#*,})) $k)]"
    done
    echo "  const %heads: i64[4] = [0,0,2,4]
  const %flat: i64[3] = [0,0,8]
  const %one: f32[] = [1]
  const %far: f32[] = [1000]
  const %axes: i64[2] = [1,2]
  %x0: f32[?] = Gather(%e, %$1)
  %x1: f32[?] = Gather(%p, %position_ids)
  %x: f32[?] = Add(%x0, %x1)"
    for h in q k v; do
        echo "  %${h}0: f32[?] = MatMul(%x, %w$h)
  %${h}1: f32[?] = Reshape(%${h}0, %heads)
  %$h: f32[?] = Transpose(%${h}1) {perm=[0,2,1,3]}"
    done
    echo "  %m0: f32[?] = Cast(%attention_mask) {to=1}
  %m1: f32[?] = Sub(%m0, %one)
  %m2: f32[?] = Mul(%m1, %far)
  %mask: f32[?] = Unsqueeze(%m2, %axes)
  %o: f32[?], %present_$2: f32[?], %present_value: f32[?] = Attention(%q, %k, %v, %mask, %past_$2, %past_value) {is_causal=1}
  %ot: f32[?] = Transpose(%o) {perm=[0,2,1,3]}
  %of: f32[?] = Reshape(%ot, %flat)
  %y: f32[?] = Add(%of, %x)
  %logits: f32[?] = MatMul(%y, %wo)
  output %logits
  output %present_$2
  output %present_value
}"
}
decoder input_ids key > net.graph
decoder tokens key > tokens.graph
decoder input_ids other > other.graph
sed -i 's/present_other/now_other/g' other.graph

generate() { exits 0 "$quern" generate "$@"; }
for device in cpu interp; do
    generate net.graph --device $device --prompt-ids 7,3,200 --max-tokens 9; cp out $device
    [ "$(wc -w < $device)" -eq 9 ] || wrong "not 9 tokens"
    says 'prompt: 3 tokens in .* generation: 8 tokens in'
done
same cpu interp
more=$(cut -d' ' -f1-4 cpu)
generate net.graph --prompt-ids "7 3 200 $more" --max-tokens 5
cut -d' ' -f5- cpu > rest; same rest out

# caches that are copied, files, the example
exits 0 "$quern" compile net.graph --no-prove -o copied.dnx
exits 0 "$quern" compile net.graph --no-prove --state auto -o in_place.dnx
exits 0 "$quern" show in_place.dnx; says 'cache past_key -> present_key, in place'
for net in copied in_place; do generate $net.dnx --prompt-ids 7,3,200 --max-tokens 9; same cpu out; done
exits 0 "$quern" verify net.graph --state auto --set N=2 S=3 P=5 T=8
case $build in *san*) flags=-fsanitize=address,undefined;; *) flags=;; esac
${CC:-cc} -std=gnu11 -Wall -Wextra -Werror $flags -I"$top/include" -o example "$top/examples/generate.c" -L"$build" -lquern -Wl,-rpath,"$build" || exit 1
exits 0 ./example net.graph 9 7 3 200
tr '\n' ' ' < out | sed 's/ $//' > tokens; tr -d '\n' < cpu > want; same want tokens
says 'tokens/s of the prompt'

# names that are not told
exits 2 "$quern" generate tokens.graph --prompt-ids 1; says "input 'tokens' .* is unknown to generate"
generate other.graph --prompt-ids 7,3,200 --max-tokens 9; same cpu out # Attention appends to it
generate other.graph --state past_other=now_other,past_value=present_value --prompt-ids 7,3,200 --max-tokens 9
decoder input_ids key > net.graph

# names of sizes of any length
long=$(printf 'batch_of_sequences_%0150d' 1) more=$(printf 'tokens_of_a_sequence_%0300d' 2)
sed "s/\[N,/[$long,/; s/,S\]/,$more]/" net.graph > long.graph
generate long.graph --prompt-ids 7,3,200 --max-tokens 9; same cpu out
generate long.graph --prompt-ids 7,3,200 --max-tokens 9 --assume-range "$more=1..64"; same cpu out

# sampling
sampled() { generate net.graph --prompt-ids 7,3,200 --max-tokens 12 "$@"; }
sampled; cp out greedy
sampled --temperature 1 --top-k 1; same greedy out
sampled --temperature 1 --top-p 0.000001; same greedy out
sampled --temperature 4 --seed 1; mv out first
sampled --temperature 4 --seed 1; same first out
sampled --temperature 4 --seed 2; ! cmp -s first out || wrong "seeds 1 and 2 give the same tokens"
sampled --temperature 4 --seed 1 --top-k 40 --top-p 0.9

# texts: a byte is a token
generate net.graph --prompt ab --max-tokens 4; mv out text
generate net.graph --prompt-ids 97,98 --max-tokens 4
for t in $(cat out); do printf "\\$(printf %03o "$t")"; done > want; echo >> want; same text want
generate net.graph --prompt-ids 97,98 --max-tokens 4 --json; says '"prompt_tokens":2,'
stop=$(cut -d' ' -f2 greedy)
generate net.graph --prompt-ids 7,3,200 --stop "1000,$stop"
[ "$(wc -w < out)" -lt 12 ] || wrong "does not stop at token $stop"

# wrong usage
exits 1 "$quern" generate net.graph --prompt-ids 1,2,3 --max-tokens 5 --max-positions 4 --json
grep -q "^quern: error: .*are more than the state's maximum, 4" err || wrong "no error on standard error"
grep -q '"event":"message","level":0,"text":".*are more than' out || wrong "no event of the error"
exits 2 "$quern" generate net.graph; says 'give either --prompt TEXT or --prompt-ids LIST'
exits 2 "$quern" generate net.graph --prompt a --prompt-ids 1; says 'give either'
exits 2 "$quern" generate net.graph --prompt-ids 1,x; says 'is not a list of token numbers'
exits 2 "$quern" generate net.graph --prompt ''; says 'the prompt is empty'
exits 1 "$quern" generate net.graph --prompt-ids 1,2,3 --max-tokens 5 --max-positions 4; says "are more than the state's maximum, 4"
exits 2 "$quern" compile net.graph --state a=b; says "the network has no input 'a'"
finish
