#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# isa.sh BUILD: instruction sets of programs: descriptions of devices run nothing, a program is
# refused if the processor lacks one of its extensions, variants are selected by the processor.
# Other processors are emulated by qemu-user (tool/deps cross).
. "$(dirname "$0")/common.sh"
cd "$dir" || exit 1
seconds=300
code() { exits "$@"; }
# put FROM TO FILE TO-FILE: a copy with words of the same length in its header
put() { sed "s/$1/$2/g" "$3" > "$4"; n=$((n + 1)); ! cmp -s "$3" "$4" || wrong "no '$1' in $3"; }

cat > net.graph <<'X'
graph {
  input %x: f32[1,3,H,W]
  const %w: f32[2,3,1,1] = [0.5, -0.25, 1, 0.125, 2, -1]
  const %b: f32[2] = [0.1, -0.2]
  %c: f32[1,2,H,W] = Conv "conv"(%x, %w, %b) {kernel_shape=[1,1]}
  %y: f32[1,2,H,W] = Relu "relu"(%c)
  output %y
}
X
"$quern" compile net.graph -o net.dnx > out 2> err || wrong "cannot compile"

# A description of a device contains features, not commands of a compiler: nothing in it is executed.
cat > evil.sh <<'X'
#!/bin/sh
touch RAN
exec "$@"
X
chmod +x evil.sh
limits='arch=\"x86_64-avx2\" vector_bytes=32 n_vector_regs=16 n_threads=2 l1_bytes=49152 l2_bytes=1048576 l3_bytes=33554432 has_fma=1'
describe() { printf '[{"name":"cpu","language":"c","device":"cpu","fingerprint":"cpu Nobody","caps":"%s %s"}]\n' "$limits" "$1" > there.json; }
for words in 'cflags=\"-wrapper '"$dir"'/evil.sh\"' 'cflags=\"-march=native\"' 'isa=\"x86-64-v3 -wrapper '"$dir"'/evil.sh\"' \
    'isa=\"x86-64-v3+-wrapper+'"$dir"'/evil.sh\"' 'isa=\"-wrapper '"$dir"'/evil.sh\"' 'isa=\"native\"'; do
    describe "$words"
    code 2 "$quern" compile net.graph -o there.dnx --devices there.json --device cpu; says "there.json"; says 'isa\|extensions'
    n=$((n + 1)); [ ! -e RAN ] || wrong "a description ran a command: $words"
done
describe ''
code 2 "$quern" compile net.graph -o there.dnx --devices there.json --device cpu; says "instruction set"
describe 'isa=\"x86-64-v3\"'
code 0 "$quern" compile net.graph -o there.dnx --devices there.json --device cpu
code 0 "$quern" show there.dnx; says '^instruction set x86-64-v3$'; says 'Nobody'
code 0 "$quern" compile net.graph -o there.dnx --devices there.json --device cpu --isa x86-64-v2
code 0 "$quern" show there.dnx; says '^instruction set x86-64-v2$'
code 2 "$quern" compile net.graph -o there.dnx --devices there.json --device cpu --isa x86-64-v4; says "does not have"
QUERN_CC='gcc -march=native' code 2 "$quern" compile net.graph -o there.dnx; says "QUERN_CC"; says "isa"
unset QUERN_CC
code 0 "$quern" devices; says '"cpu:x86-64-v3"'; says '"cpu:aarch64"'; says 'isa=\\"'; silent cflags
mv out devices

# Words that are no instruction sets, and where there can be none.
code 2 "$quern" compile net.graph -o x.dnx --isa x86-64-v9; says "x86-64-v4"
code 2 "$quern" compile net.graph -o x.dnx --isa x86-64-v3+neon; says "'neon'"
code 2 "$quern" compile net.graph -o x.dnx --isa native,native; says "the same"
code 2 "$quern" compile net.graph -o x.dnx --device interp --isa x86-64-v3; says "not a CPU"
code 2 "$quern" compile net.graph -o x.dnx --device cpu:x86-63; says "cpu:x86-64-v3"
code 2 "$quern" run net.dnx --bench --isa x86-64-v3+xop; says "no variant"; says "its code is for"

# What the code may use is said by the program, and compared before anything is loaded: the extension that this processor lacks is named.
code 0 "$quern" show net.dnx; says '^instruction set '
for x in fma4 xop tbm sse4a avx512f amx-tile; do grep '"device":"cpu"' devices | grep -q "[ \\\\\"]$x[ \\\\\"]" || lacks=$x; done
case $(uname -m) in x86_64)
    code 0 "$quern" compile net.graph -o new.dnx --isa x86-64-v2+sse4a --threads 1
    put '"quern","hash"' '"quern","hasx"' new.dnx old.dnx # older programs had no hash of what they say
    for x in "$lacks" avx11; do
        put ' sse4a' " $(printf %-5.5s "$x")" old.dnx other.dnx
        case $x in ?????*) continue ;; esac
        code 1 "$quern" run other.dnx --bench --timeout 0; says "'$x'"; says "compile the network"
        code 1 "$quern" verify net.graph --program other.dnx; says "'$x'"
        code 0 "$quern" run other.dnx --bench --timeout 0 --device null # runs nothing
    done ;;
esac
put '"quern","hash"' '"quern","hasx"' net.dnx old.dnx # nor had they a hash
put '"isa' '"xsa' old.dnx forgotten.dnx; put '\\"isa\\"' '\\"xsa\\"' old.dnx forgotten.dnx # a program that does not say it
code 0 "$quern" run forgotten.dnx --bench --timeout 0                                       # was compiled on such a processor
put 'features [0-9a-f]' 'features x' forgotten.dnx forgotten2.dnx
code 1 "$quern" run forgotten2.dnx --bench --timeout 0; says "does not say"; says "compile the network again"

case $(uname -m) in x86_64) ;; *)
    echo "skipped: the rest, for this processor is no x86-64"
    finish ;;
esac

# One instruction set of less than this processor's runs here; one of more is compiled all the same.
"$quern" run net.dnx --bench --timeout 0 --set H=9 > out 2> err || wrong "does not run"
code 0 "$quern" compile net.graph -o v2.dnx --isa x86-64-v2
code 0 "$quern" compile net.graph -o v2b.dnx --isa x86-64-v2; same v2.dnx v2b.dnx
code 0 "$quern" verify net.graph --program v2.dnx --set H=9; says '^ok'
code 0 "$quern" compile net.graph -o v3.dnx --isa x86-64-v3
code 0 "$quern" compile net.graph -o v4.dnx --device cpu:x86-64-v4 # described: no processor is asked
code 0 "$quern" show v4.dnx; says '^instruction set x86-64-v4$'; says 'vector_bytes=64'
code 0 "$quern" compile net.graph -o amx.dnx --isa sapphirerapids
code 0 "$quern" show amx.dnx; says '^instruction set sapphirerapids$'; says '16x16x32:bf16'
case $lacks in amx-tile) code 1 "$quern" run amx.dnx --bench --timeout 0; says "'amx-bf16'"; says "does not let this process use" ;; esac
code 0 "$quern" run net.graph --isa x86-64-v2 --bench --timeout 0 --set H=9

list=x86-64-v2,x86-64-v3,x86-64-v4
if command -v aarch64-linux-gnu-gcc > /dev/null; then
    list=$list,aarch64
    code 0 "$quern" compile net.graph -o arm.dnx --isa aarch64+dotprod
    code 1 "$quern" run arm.dnx --bench --timeout 0; says "'aarch64'"
    code 2 "$quern" run net.graph --isa aarch64 --bench --timeout 0; says "not here"
else
    echo "skipped: aarch64, for there is no aarch64-linux-gnu-gcc (tool/deps cross)"
    code 1 "$quern" compile net.graph -o arm.dnx --isa aarch64; says gcc-aarch64-linux-gnu
fi

# Several in one file.
code 0 "$quern" compile net.graph -o all.dnx --isa $list
code 0 "$quern" compile net.graph -o all2.dnx --isa $list; same all.dnx all2.dnx
code 0 "$quern" show all.dnx; says '^variant 0, x86-64-v2$'; says '^variant 1, x86-64-v3$'; says '^variant 2, x86-64-v4$'
code 0 "$quern" explain all.dnx; says '^variant 1, x86-64-v3$'; says 'predicted'; silent ' measured'
code 0 "$quern" verify net.graph --program all.dnx --set H=9; says '^ok'
code 0 "$quern" verify net.graph --program all.dnx --set H=9 --isa x86-64-v2; says '^ok'
code 2 "$quern" run all.dnx --bench --timeout 0 --isa x86-64; says "no variant 'x86-64'"; says "x86-64-v2, x86-64-v3, x86-64-v4"

# Tuned: variants that this processor supports are measured, the others are not reported as measured.
code 0 "$quern" tune net.graph -o tuned.dnx --db t.db --isa x86-64-v2,aarch64+sve2 --timeout 2 --max-candidates 2 --optimize-for H=9
case $list in *aarch64)
    says "aarch64+sve2"
    code 0 "$quern" explain tuned.dnx; says '^variant 1, aarch64+crc+lse+rdma+fp16+sve+sve2$'
    sed '/^variant 1/,$d' out > first; sed '1,/^variant 1/d' out > second
    n=$((n + 1)); grep -q ' measured' first || wrong "nothing was measured"
    n=$((n + 1)); ! grep -q ' measured' second || wrong "another processor's was measured" ;;
esac

# Other processors.
if ! command -v qemu-x86_64 > /dev/null; then echo "skipped: other processors, for there is no qemu-x86_64 (tool/deps cross)"
elif nm -D "$quern" | grep -q __asan; then echo "skipped: other processors, where sanitizers do not run"
else
    # shellcheck disable=SC2086 # options
    on() { code "$1" qemu-x86_64 -cpu "$2" "$quern" run "$3" --bench --timeout 0 --threads 1 $4; }
    on 1 Nehalem v3.dnx ""; says "'avx2'"; says 'lacks'
    on 1 Nehalem net.dnx ""; says 'lacks'
    on 0 Nehalem v2.dnx ""
    on 0 Nehalem all.dnx "--set H=9"
    on 1 Nehalem all.dnx "--isa x86-64-v3"; says "'avx2'"
    on 0 Haswell all.dnx "--set H=9"
    on 0 Haswell v3.dnx ""
    on 1 Haswell v4.dnx ""; says "'avx512f'"
    on 1 Conroe all.dnx ""; says "no variant that this processor can run"
fi
finish
