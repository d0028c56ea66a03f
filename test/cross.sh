#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# cross.sh BUILD: quern built for other processors (make CROSS=TRIPLE), in an emulator (qemu-user, tool/deps cross). On ARM64: the example
# examples/run.c runs a program that this machine compiled; networks of the zoo, a sample of ONNX's own test cases and filters are compiled and
# compared with the reference by the emulated quern, and so are random tasks of each kernel family. On ARM of 32 bits: the runtime, with the
# functions for files that the example calls, runs programs that this machine compiled, and refuses sizes that its addresses do not have.
. "$(dirname "$0")/common.sh"
cd "$dir" || exit 1
seconds=400
top=$(dirname "$here")
unset MAKEFLAGS MFLAGS MAKELEVEL CC
nm -D "$quern" | grep -q __asan && { echo "skipped: sanitizers do not run in an emulator"; exit 77; }

cat > net.graph <<'X'
graph {
  input %x: f32[1,3,H,W]
  const %w: f32[2,3,1,1] = [0.5, -0.25, 1, 0.125, 2, -1]
  const %b: f32[2] = [0.5, -0.25]
  %c: f32[1,2,H,W] = Conv "conv"(%x, %w, %b) {kernel_shape=[1,1]}
  %y: f32[1,2,H,W] = Relu "relu"(%c)
  output %y
}
X
# A picture of 5 x 4 pixels of halves, ones and twos: sums are exact, so results are the same bits on any processor.
{ printf 'PF\n5 4\n-1.0\n'; for i in 1 2 3 4 5; do printf '\0\0\0\077\0\0\200\077\0\0\0\100\0\0\200\277%.0s' 1 2 3; done; } > x.pfm
"$quern" run net.graph -i x.pfm -o here.npy > out 2> err || wrong "quern run on this machine"

# use TRIPLE EMULATOR TARGETS: builds these for it, in $there; false: something is missing.
use() {
    triple=$1 emulator=$2 targets=$3 there=$build/cross/$1 libraries=$top/build/sysroot/$1/usr/lib/$1
    for tool in "$triple-gcc" "$emulator"; do
        command -v "$tool" > /dev/null || { echo "skipped: $triple, for there is no $tool (tool/deps cross)"; return 1; }
    done
    if [ ! -d "$libraries" ] && ! (cd "$top" && tool/sysroot "$triple" "build/sysroot/$triple") > err 2>&1; then
        echo "skipped: $triple, for its libraries cannot be had: $(tail -n 1 err)"
        return 1
    fi
    # shellcheck disable=SC2086 # several
    make -C "$top" -j2 CROSS="$triple" BUILD="$there" OPT=-O1 HARDEN= $targets > out 2> err < /dev/null || { wrong "make CROSS=$triple $targets"; return 1; }
}
# link SOURCE PROGRAM LIBRARIES...
link() {
    source=$1 program=$2; shift 2
    n=$((n + 1))
    "$triple-gcc" -I"$top/include" "$source" -o "$program" "$@" -L"$libraries" -Wl,-rpath-link,"$libraries" > out 2> err || wrong "$source for $triple"
}
# there CODE PROGRAM...: in the emulator of a processor $cpu, with the compiler for it
cpu=max
there() {
    want=$1; shift
    exits "$want" env QUERN_CC="$triple-gcc" "$emulator" -cpu "$cpu" -L "/usr/$triple" -E LD_LIBRARY_PATH="$there:$libraries" "$@"
}

# The example runs programs of this machine: for the instruction set, and for cores.
example() {
    for device; do
        exits 0 "$quern" compile net.graph -o net.dnx --device "$device" --threads 2
        there 0 ./run net.dnx x.pfm there.npy
        same here.npy there.npy
    done
}
# network NET SIZE...: of the zoo, compiled by this machine
network() {
    net=$1; shift
    exits 0 "$quern" zoo "$net" -o zoo.onnx
    exits 0 "$quern" compile zoo.onnx -o zoo.dnx --device "$core" ${1:+--optimize-for "$@"}
    there 0 "$there/quern" verify zoo.onnx --program zoo.dnx ${1:+--set "$@"}; says '^ok'
}

if use aarch64-linux-gnu qemu-aarch64 all; then
    link "$top/examples/run.c" run -L"$there" -lquern
    example aarch64 aarch64+dotprod+i8mm+bf16 cpu:cortex-a53 cortex-a76 aarch64:neoverse-v2
    # SVE in the length that the code has, else the variant for NEON
    cpu=max,sve256=on
    example aarch64+sve256 neoverse-v1-sve
    cpu=max,sve512=on
    there 1 ./run net.dnx x.pfm there.npy; says "'sve256'"
    exits 0 "$quern" compile net.graph -o net.dnx --isa aarch64+dotprod,aarch64+dotprod+sve256 --threads 2
    for cpu in max,sve256=on max,sve=off; do
        there 0 ./run net.dnx x.pfm there.npy
        same here.npy there.npy
    done
    cpu=max
    # the zoo's small networks, for one core that executes in order and others that do not
    core=cortex-a53 network vkdt-unet H=16 W=16
    core=cortex-a76 network oidn-small H=16 W=16
    core=cortex-a53 network dct-denoise H=16 W=16
    core=neoverse-v2 network cosmoflow-small
    there 0 "$there/quern" filter x.pfm --kernel gauss:5,1 --padding replicate -o there.pfm
    exits 0 "$quern" filter x.pfm --kernel gauss:5,1 --padding replicate -o here.pfm
    same here.pfm there.pfm
    # ONNX's cases, a sample
    suite=/usr/share/libonnx-testdata/data/node
    if [ -d "$suite" ]; then
        for x in 'test_basic_conv*' 'test_convtranspose*' 'test_matmul*' 'test_*pool_2d_*' 'test_softmax*' 'test_lstm*' 'test_reduce_sum_*' 'test_quantize*'; do
            there 0 "$there/quern" verify --suite "$suite" --filter "$x"; says ' 0 failed, '
        done
    else echo "skipped: ONNX's cases (libonnx-testdata, tool/deps test)"
    fi
    # Families: random tasks under random schedules, interpreted, and compiled and run.
    tests='test_gen test_gen2 test_gen_blocked test_gen_chain test_gen_dot test_gen_winograd test_gen_recurrence test_gen_filter'
    targets=; for x in $tests; do targets="$targets $there/test/$x"; done
    # shellcheck disable=SC2086 # several
    exits 0 make -C "$top" -j2 CROSS="$triple" BUILD="$there" OPT=-O1 HARDEN= $targets
    for x in $tests; do
        case $x in # seeds that have tasks of every kind
        *blocked) SEED=5000 COUNT=1 ;;
        *winograd) SEED=1000 COUNT=2 ;;
        *) SEED=1000 COUNT=1 ;;
        esac
        export SEED COUNT
        there 0 "$there/test/$x"
    done
    SEED=1000 COUNT=1 cpu=max,sve256=on # kernels of its length: the emulated processor's own instruction set
    there 0 "$there/test/test_gen2"
    there 0 "$there/test/test_gen_chain"
    cpu=max
fi

# The example's objects beside those of the runtime: tensor files, and the calls for them.
files="src/api/api_files.o gen/onnx.pb-c.o gen/meta.pb-c.o $(cd "$top" && echo src/io/*.c | sed 's/\.c/.o/g')" targets=rt
for x in $files; do targets="$targets $build/cross/arm-linux-gnueabihf/$x"; done
if use arm-linux-gnueabihf qemu-arm "$targets"; then
    objects=
    for x in $files; do objects="$objects $there/$x"; done
    objects="$objects $(echo "$there"/src/core/*.o "$there"/src/kir/*.o "$there"/src/art/*.o "$there"/src/dev/*.o "$there"/src/rt/*.o "$there"/src/request/*.o "$there"/src/api/api_rt*.o)"
    # shellcheck disable=SC2086 # several
    link "$top/examples/run.c" run $objects -lprotobuf-c -ljansson -lpng -lz -lpthreadpool -lm -ldl -lpthread
    example armv7 armv7+neon armv7+neon-vfpv4
    exits 0 "$quern" compile net.graph -o net.dnx --isa armv7,armv7+neon-vfpv4 --threads 2
    there 0 ./run net.dnx x.pfm there.npy
    same here.npy there.npy
    # Sizes of more than 2 GiB
    truncate -s 3G large.dnx
    there 1 ./run large.dnx x.pfm there.npy; says "32 bits"
    cat > large.c <<'X'
#include <stdio.h>
#include <string.h>
#include "quern.h"
int main(void)
{
    const int64_t dim[] = {1 << 15, 1 << 14}, half[] = {1 << 15, 1 << 13};
    quern *q = quern_open(NULL);
    quern_tensor *t = NULL;
    static float x;
    if (quern_tensor_new(q, QUERN_F32, 2, dim, NULL, &t) != QUERN_USAGE || !strstr(quern_error(q), "2147483648 bytes")) return 1;
    if (quern_tensor_view(q, QUERN_F32, 2, dim, &x, &t) != QUERN_USAGE || !strstr(quern_error(q), "32 bits")) return 2;
    if (quern_tensor_new(q, QUERN_F32, 2, half, NULL, &t) != QUERN_OK) return 3;
    quern_tensor_free(t);
    quern_close(q);
    return 0;
}
X
    link large.c large -L"$there" -lquern_rt
    there 0 ./large
fi
finish
