#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# cross.sh BUILD: quern built for other processors (make CROSS=TRIPLE), in an emulator (qemu-user, tool/deps cross). On ARM64: the example
# examples/run.c runs a program that this machine compiled; networks, a sample of ONNX's own test cases and filters are compiled and compared
# with the reference by the emulated quern, and so are random tasks of each kernel family. On ARM and x86 of 32 bits: the runtime, with the
# functions for files that the example calls, runs programs that this machine compiled, and refuses sizes that its addresses do not have; x86
# also without an emulator, if this system runs processes of 32 bits. The parts run at once, each in a folder of its own.
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
# picture WIDTH HEIGHT: halves, ones and twos. Sums of that network are exact, so results are the same bits on any processor.
picture() {
    printf 'PF\n%d %d\n-1.0\n' "$1" "$2"
    i=0; while [ $i -lt $(($1 * $2 / 4)) ]; do printf '\0\0\0\077\0\0\200\077\0\0\0\100\0\0\200\277%.0s' 1 2 3; i=$((i + 1)); done
}
picture 5 4 > x.pfm
picture 16 16 > square.pfm
"$quern" run net.graph -i x.pfm -o here.npy > out 2> err || wrong "quern run on this machine"

weights() { awk -v n="$1" 'BEGIN { for (i = 0; i < n; i++) printf "%s%.2f", i ? "," : "", (i * 7919 % 41 - 20) / 50 }'; }
cat > volume.graph <<X
graph {
  input %x: f32[1,4,12,10,9]
  const %v: f32[16,4,3,3,3] = [$(weights 1728)]
  const %w: f32[8,16,3,3,3] = [$(weights 3456)]
  const %b: f32[8] = [$(weights 8)]
  %c: f32[1,16,12,10,9] = Conv "first"(%x, %v) {kernel_shape=[3,3,3], pads=[1,1,1,1,1,1]}
  %d: f32[1,16,12,10,9] = LeakyRelu(%c) {alpha=0.125}
  %p: f32[1,16,6,5,4] = MaxPool(%d) {kernel_shape=[2,2,2], strides=[2,2,2]}
  %e: f32[1,8,4,3,2] = Conv "second"(%p, %w, %b) {kernel_shape=[3,3,3]}
  %y: f32[1,8,4,3,2] = Tanh(%e)
  output %y
}
X

# Networks of pictures, by the interpreter.
for net in vkdt-unet oidn-small; do
    { "$quern" zoo $net -o $net.onnx && "$quern" run $net.onnx --device interp -i square.pfm -o $net.npy; } > out 2> err || wrong "$net on this machine"
done
# near FILE FILE: no elements differ by more than a 10000th of the largest.
cat > near.c <<'X'
#include <math.h>
#include <stdio.h>
#include "quern.h"
int main(int argc, char **argv)
{
    quern *q = quern_open(NULL);
    quern_tensor *t[2] = {NULL};
    double most = 0, error = 0;
    for (int k = 0; k < 2; k++)
        if (argc != 3 || quern_tensor_read(q, argv[1 + k], &t[k])) return fprintf(stderr, "%s\n", quern_error(q)), 2;
    const float *a = quern_tensor_data(t[0]), *b = quern_tensor_data(t[1]);
    const int64_t n = quern_tensor_count(t[0]);
    if (quern_tensor_count(t[1]) != n) return fprintf(stderr, "sizes differ\n"), 2;
    for (int64_t i = 0; i < n; i++) {
        if (!isfinite(a[i]) || !isfinite(b[i])) return fprintf(stderr, "not finite\n"), 1;
        most = fmax(most, fabs(a[i])), error = fmax(error, fabs((double)a[i] - b[i]));
    }
    if (!(most > 0 && error <= 1e-4 * most)) return fprintf(stderr, "differ by %g, of %g\n", error, most), 1;
    return 0;
}
X
gcc -I"$top/include" near.c -o near -L"$build" -lquern -Wl,-rpath,"$build" -lm > out 2> err || wrong "near.c"

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
    make -C "$top" "-j$jobs" CROSS="$triple" BUILD="$there" OPT=-O1 HARDEN= $targets > out 2> err < /dev/null || { wrong "make CROSS=$triple $targets"; return 1; }
}
# link SOURCE PROGRAM LIBRARIES...
link() {
    source=$1 program=$2; shift 2
    n=$((n + 1))
    "$triple-gcc" -I"$top/include" "$source" -o "$program" "$@" -L"$libraries" -Wl,-rpath-link,"$libraries" > out 2> err || wrong "$source for $triple"
}
# there CODE PROGRAM...: in the emulator of a processor $cpu, with the compiler for it. The C library is named, too: this system may have another
# version for processes of 32 bits.
cpu=max
there() {
    want=$1; shift
    exits "$want" env QUERN_CC="$triple-gcc" "$emulator" -cpu "$cpu" -L "/usr/$triple" -E LD_LIBRARY_PATH="$there:$libraries:/usr/$triple/lib" "$@"
}
# on_exact_net: the last program, with what any processor does exactly
on_exact_net() {
    there 0 ./run net.dnx ../x.pfm there.npy
    same ../here.npy there.npy
}

# The example runs programs of this machine: for the instruction set, and for cores.
example() {
    for device; do
        exits 0 "$quern" compile ../net.graph -o net.dnx --device "$device" --threads 2
        on_exact_net
    done
}
# network NET SIZE...: compiled by this machine, verified there
network() {
    net=../$1; shift
    exits 0 "$quern" compile "$net" -o zoo.dnx --device "$core" ${1:+--optimize-for "$@"}
    there 0 "$there/quern" verify "$net" --program zoo.dnx ${1:+--set "$@"}; says '^ok'
}

arm64() {
    use aarch64-linux-gnu qemu-aarch64 all || return
    link "$top/examples/run.c" run -L"$there" -lquern
    example aarch64 aarch64+dotprod+i8mm+bf16 cpu:cortex-a53 cortex-a76 aarch64:neoverse-v2
    # SVE in the length that the code has, else the variant for NEON
    cpu=max,sve256=on
    example aarch64+sve256 neoverse-v1-sve
    cpu=max,sve512=on
    there 1 ./run net.dnx ../x.pfm there.npy; says "'sve256'"
    exits 0 "$quern" compile ../net.graph -o net.dnx --isa aarch64+dotprod,aarch64+dotprod+sve256 --threads 2
    for cpu in max,sve256=on max,sve=off; do on_exact_net; done
    cpu=max
    # networks of the zoo and one of volumes, for one core that executes in order and others that do not
    core=cortex-a53 network vkdt-unet.onnx H=16 W=16
    core=cortex-a76 network oidn-small.onnx H=16 W=16
    core=neoverse-v2 network volume.graph
    exits 0 "$quern" zoo dct-denoise -o ../dct-denoise.onnx
    core=cortex-a53 network dct-denoise.onnx H=16 W=16
    there 0 "$there/quern" filter ../x.pfm --kernel gauss:5,1 --padding replicate -o there.pfm
    exits 0 "$quern" filter ../x.pfm --kernel gauss:5,1 --padding replicate -o here.pfm
    same here.pfm there.pfm
    # ONNX's cases, a sample
    suite=/usr/share/libonnx-testdata/data/node
    if [ -d "$suite" ]; then
        for x in 'test_basic_conv*' 'test_convtranspose*' 'test_matmul*' 'test_*pool_2d_*' 'test_softmax*' 'test_lstm*' 'test_reduce_sum_*' 'test_quantize*'; do
            there 0 "$there/quern" verify --suite "$suite" --filter "$x"; says ' 0 failed, '
        done
    else echo "skipped: ONNX's cases (libonnx-testdata, tool/deps test)"
    fi
    families
}

# Random tasks of families: compiled and run, and interpreted where that does not take the emulator long.
families() {
    tests='test_gen test_gen2 test_gen_blocked test_gen_chain test_gen_dot test_gen_winograd test_gen_recurrence test_gen_filter'
    targets=; for x in $tests; do targets="$targets $there/test/$x"; done
    # shellcheck disable=SC2086 # several
    exits 0 make -C "$top" "-j$jobs" CROSS="$triple" BUILD="$there" OPT=-O1 HARDEN= $targets
    for x in $tests; do
        SEED=1000 COUNT=1 TEST='*'
        case $x in # seeds that have tasks of every kind
        *blocked) SEED=5000 ;;
        *chain) SEED=1004 ;;
        *dot) COUNT=8 TEST='*_compiled' ;;
        *winograd) COUNT=2 TEST='*_compiled' ;;
        esac
        export SEED COUNT TEST
        there 0 "$there/test/$x"
    done
    TEST='*' COUNT=1 cpu=max,sve256=on # kernels of its length: the emulated processor's own instruction set
    SEED=1000; there 0 "$there/test/test_gen2"
    SEED=1004; there 0 "$there/test/test_gen_chain"
}

# runtime TRIPLE EMULATOR: the runtime, and the example from its objects beside those of tensor files and the calls for them
runtime() {
    files="src/api/api_files.o gen/onnx.pb-c.o gen/meta.pb-c.o $(cd "$top" && echo src/io/*.c | sed 's/\.c/.o/g')" targets=rt objects=
    for x in $files; do targets="$targets $build/cross/$1/$x"; done
    use "$1" "$2" "$targets" || return 1
    for x in $files; do objects="$objects $there/$x"; done
    objects="$objects $(echo "$there"/src/core/*.o "$there"/src/kir/*.o "$there"/src/art/*.o "$there"/src/dev/*.o "$there"/src/rt/*.o "$there"/src/request/*.o "$there"/src/api/api_rt*.o)"
    # shellcheck disable=SC2086 # several
    link "$top/examples/run.c" run $objects -lprotobuf-c -ljansson -lpng -lz -lpthreadpool -lm -ldl -lpthread
    link ../large.c large -L"$there" -lquern_rt
}
# Networks of pictures, for devices
pictures() {
    for device; do
        for net in vkdt-unet oidn-small; do
            exits 0 "$quern" compile ../$net.onnx -o net.dnx --device "$device" --threads 2 --optimize-for H=16 W=16
            there 0 ./run net.dnx ../square.pfm there.npy
            exits 0 ../near ../$net.npy there.npy
        done
    done
}
# Sizes of more than 2 GiB
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
sizes() {
    truncate -s 3G large.dnx
    there 1 ./run large.dnx ../x.pfm there.npy; says "32 bits"
    there 0 ./large
}

arm32() {
    runtime arm-linux-gnueabihf qemu-arm || return
    example armv7 armv7+neon armv7+neon-vfpv4
    exits 0 "$quern" compile ../net.graph -o net.dnx --isa armv7,armv7+neon-vfpv4 --threads 2
    on_exact_net
    pictures armv7+neon-vfpv4
    sizes
}

# The emulator ends at AVX2.
x86() {
    runtime i686-linux-gnu qemu-i386 || return
    example i686 i686+sse4.2 i686+avx2+fma+f16c
    pictures i686 i686+avx2+fma+f16c
    sizes
    exits 0 "$quern" compile ../net.graph -o net.dnx --isa i686+avx512vl --threads 2
    there 1 ./run net.dnx ../x.pfm there.npy; says "'avx512vl', which this processor lacks"
    # One file for processes of both kinds: those of 32 bits take the variant with AVX2.
    exits 0 "$quern" compile ../net.graph -o net.dnx --isa i686,x86-64,i686+avx2+fma --threads 2
    on_exact_net
    [ "$(uname -m)" = x86_64 ] || return
    exits 0 "$quern" run net.dnx -i ../x.pfm -o there.npy
    same ../here.npy there.npy
    exits 0 "$quern" compile ../net.graph -o net.dnx --isa i686
    exits 1 "$quern" run net.dnx -i ../x.pfm -o there.npy; says "for processes of 32 bits ('i686'), this one has 64"

    loader=/usr/$triple/lib/ld-linux.so.2
    "$loader" --version > out 2> err || { echo "skipped: processes of 32 bits, which this system does not run"; return; }
    there() { want=$1; shift; exits "$want" "$loader" --library-path "$there:$libraries:/usr/$triple/lib" "$@"; }
    example i686
    sizes
    if grep -qw avx2 /proc/cpuinfo; then pictures i686+avx2+fma+f16c; fi
    if grep -qw avx512vl /proc/cpuinfo && grep -qw avx512dq /proc/cpuinfo; then pictures i686+avx512vl+avx512bw+avx512dq; fi
}

failed=
# part NAME JOBS: what it says is shown at the end, its last line has the number of checks.
part() (
    name=$1 jobs=$2 dir=$dir/$1
    mkdir "$dir" && cd "$dir" || exit 1
    "$name"
    finish
)
part arm64 2 > arm64.log 2>&1 &
arm64=$!
part arm32 1 > arm32.log 2>&1 || failed="arm32"
part x86 1 > x86.log 2>&1 || failed="$failed x86"
wait "$arm64" || failed="arm64 $failed"
cat arm64.log arm32.log x86.log
n=$((n + $(sed -n 's/^\([0-9]*\) checks, .*/\1/p' ./*.log | awk '{ n += $1 } END { print n + 0 }')))
[ -z "$failed" ] || wrong "above: $failed"
finish
