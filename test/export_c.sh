#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# export_c.sh BUILD: programs in C (quern export --to c): built by every C compiler that is here, as C99 without a warning, with a sanitizer, and run; options;
# the same files again; rejections.
. "$(dirname "$0")/common.sh"
cd "$dir" || exit 1
ASAN_OPTIONS=detect_leaks=0; export ASAN_OPTIONS
command -v cc > /dev/null || { echo "skipped: no C compiler"; exit 77; }
flags='-std=c99 -O1 -Wall -Wextra -pedantic -Werror'
program() { # program FOLDER PREFIX COMPILER FLAGS: builds its test
    folder=$1 prefix=$2; shift 2
    set -- "$@" -o "$folder/t" "$folder/$prefix.c" "$folder/${prefix}_test.c"
    [ -f "$folder/${prefix}_weights.c" ] && set -- "$@" "$folder/${prefix}_weights.c"
    exits 0 "$@" -lm
}
passes() { exits 0 "$@"; says ': 0 of [1-9]'; silent 'elements wrong, .*nan'; }

# compilers, and a sanitizer
for net in dscnn resnet8; do
    exits 0 "$quern" zoo "$net" -o "$net.onnx"
    exits 0 "$quern" export "$net.onnx" --to c -o "$net"
    for file in net.c net.h net_test.c net_weights.c Makefile CMakeLists.txt; do is_file "$net/$file"; done
    for cc in cc clang; do
        command -v "$cc" > /dev/null || continue
        # shellcheck disable=SC2086 # several words
        program "$net" net "$cc" $flags
        passes "$net/t"
    done
done
if echo 'int main(void) { return 0; }' > m.c && cc -fsanitize=address,undefined -o m m.c 2> /dev/null && ./m; then
    program resnet8 net cc -O1 -g -fsanitize=address,undefined -fno-sanitize-recover=all
    passes resnet8/t
else echo "skipped: sanitizers, which the compiler lacks"
fi

# its own files to build it
exits 0 make -C dscnn test; says ': 0 of 12'
if command -v cmake > /dev/null; then
    exits 0 cmake -S dscnn -B dscnn/b; exits 0 cmake --build dscnn/b; exits 0 env -C dscnn/b ctest; says '100% tests passed'
    rm -rf dscnn/b
else echo "skipped: no CMake"
fi

# the same again
exits 0 "$quern" export resnet8.onnx --to c -o again
rm -f resnet8/t; same resnet8 again

# a wrong result is noticed
sed 's/^\(const float net_w[0-9]*\[[0-9]*\] = {\)$/\1 9.0f +/' dscnn/net_weights.c > dscnn/w && mv dscnn/w dscnn/net_weights.c
program dscnn net cc -O1; exits 1 dscnn/t; says '[1-9][0-9]* of 12 elements wrong'

# options: names, targets, weights in a file, threads, interface, samples
for isa in armv7e-m cortex-m55 rv32imac x86-64 aarch64; do
    exits 0 "$quern" export dscnn.onnx --to c --isa "$isa" --prefix "net_$(echo "$isa" | tr -d -)" -o "$isa"
    # shellcheck disable=SC2086
    program "$isa" "net_$(echo "$isa" | tr -d -)" cc $flags
    passes "$isa/t"
done
exits 0 "$quern" export dscnn.onnx --to c --weights kws.bin --threads 4 --samples 3 -o both
# shellcheck disable=SC2086
program both net cc $flags
passes both/t both/kws.bin; says 'sample 2'
exits 2 both/t; says 'missing'
exits 0 "$quern" export resnet8.onnx --to c --input-type u8 --input-layout HWC -o bytes
# shellcheck disable=SC2086
program bytes net cc $flags
passes bytes/t
exits 0 cat bytes/net.h; says 'const uint8_t \*input; /\* (32, 32, 3) HWC \*/'

# 8 bits: in integers, but for the network's own floats
. "$here/bytes_graph.sh"
for isa in generic armv7e-m x86-64; do
    exits 0 "$quern" export bytes.graph --to c --isa "$isa" --samples 3 -o "bytes-$isa"
    # shellcheck disable=SC2086
    program "bytes-$isa" net cc $flags
    passes "bytes-$isa/t"; says 'sample 2, mean: 0 of 8'
done
rounds() { awk '/^static void conv/ { in_conv = 1 } in_conv && /q_rint/ { n++ } /^}/ { in_conv = 0 } END { print n + 0 }' "bytes-$1/net.c"; }
n=$((n + 1)); [ "$(rounds armv7e-m)" -eq 0 ] || wrong "floats between integer products"

# sizes
cat > any.graph <<X
graph {
  input %x: f32[N,3,H,4]
  %y: f32[N,3,H,4] = Relu "relu"(%x)
  output %y
}
X
exits 2 "$quern" export any.graph --to c -o any; says "axis 0 of input 'x' is N"
[ ! -e any ] || wrong "something was written"
exits 0 "$quern" export any.graph --to c --assume N=2 H=5 -o any
# shellcheck disable=SC2086
program any net cc $flags
passes any/t; says 'of 120'
cat > data.graph <<X
graph {
  input %x: f32[4]
  %y: i64[1,k] = NonZero "find"(%x)
  output %y
}
X
exits 1 "$quern" export data.graph --to c -o data; says 'depends on data'

# rejections
exits 2 "$quern" export dscnn.onnx --to c --isa z80 -o no; says "no instruction set 'z80'"; says 'rv32imac'
exits 2 "$quern" export dscnn.onnx --to c --prefix 2net -o no; says 'not an identifier'
exits 2 "$quern" export dscnn.onnx --to c --prefix int -o no; says 'not an identifier'
exits 2 "$quern" export dscnn.onnx --to c --weights ../w -o no; says 'name of a file'
exits 2 "$quern" export dscnn.onnx --to c --threads 1000 -o no; says '1 to 256'
exits 2 "$quern" export dscnn.onnx --to c --samples 0 -o no; says '1 to 16'
exits 2 "$quern" export dscnn.onnx --to c; says 'no folder'
exits 0 "$quern" compile dscnn.onnx -o dscnn.dnx
exits 2 "$quern" export dscnn.dnx --to c -o no; says 'needs a network'
[ ! -e no ] || wrong "something was written"
finish
