#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# vulkan_c.sh BUILD: programs as C sources that record them into a command buffer (doc/export-vulkan-c.md). Networks are exported, built as C99 and as
# C++ without a warning, and run by their example on a device, under the validation layer with synchronisation: bit by bit what `quern run` yields, for
# several sizes, types and layouts, with split grids and parameters in memory. Then several networks in one process (vulkan_c/many.c), and rejections.
. "$(dirname "$0")/common.sh"
src=$(cd "$here/../src" && pwd)
# Once Mesa's driver is unloaded, its leaks cannot be distinguished from ours.
ASAN_OPTIONS=detect_leaks=0; export ASAN_OPTIONS
cd "$dir" || exit 1
code() { want=$1; shift; exits "$want" "$quern" "$@"; } # code CODE ARGUMENTS: of quern
try() { n=$((n + 1)); timeout "$seconds" "$@" > out 2> err || wrong "fails: $*"; }
has() { n=$((n + 1)); grep -q -e "$2" "$1" || { : > out; : > err; wrong "$1 without $2"; }; }

"$quern" devices 2> /dev/null | grep -q '"name":"vulkan"' || {
    echo "skipped: no Vulkan device to compile for (Debian's mesa-vulkan-drivers has one)"
    exit 77
}
validate=--validate
find /usr/share/vulkan /etc/vulkan -name 'VkLayer_khronos_validation.json' 2> /dev/null | grep -q . || {
    echo 'skipped: no validation layer (Debian: vulkan-validationlayers)'
    validate=
}
case $build in *clang*) cc=clang cxx=clang++ ;; *) cc=${CC:-gcc} cxx=g++ ;; esac
command -v $cxx > /dev/null || { echo "skipped: no $cxx"; cxx=; }

# Networks: sizes that must be even; a skip connection; fixed sizes; a mean over the picture (several grids); two inputs and outputs; a matmul; what cannot be
# recorded.
weights() { awk -v n="$1" 'BEGIN { for (i = 0; i < n; i++) printf "%s%.3f", i ? ", " : "", (i * 37 % 17 - 8) / 40 }'; }
cat > one.graph <<E
graph {
  input %x: f32[1,3,H,W]
  const %w0: f32[8,3,3,3] = [$(weights 216)]
  const %w1: f32[8,8,3,3] = [$(weights 576)]
  const %w2: f32[3,16,3,3] = [$(weights 432)]
  const %s: f32[4] = [1, 1, 2, 2]
  %a: f32[1,8,H,W] = Conv "a"(%x, %w0, _) {kernel_shape=[3,3], pads=[1,1,1,1]}
  %r: f32[1,8,H,W] = Relu "relu"(%a)
  %p: none[?] = MaxPool "pool"(%r) {kernel_shape=[2,2], strides=[2,2]}
  %b: none[?] = Conv "b"(%p, %w1, _) {kernel_shape=[3,3], pads=[1,1,1,1]}
  %u: none[?] = Resize "up"(%b, _, %s) {mode="nearest", coordinate_transformation_mode="asymmetric", nearest_mode="floor"}
  %k: none[?] = Concat "skip"(%u, %r) {axis=1}
  %y: none[?] = Conv "last"(%k, %w2, _) {kernel_shape=[3,3], pads=[1,1,1,1]}
  output %y
}
E
cat > two.graph <<E
graph {
  input %x: f32[1,3,H,W]
  const %w: f32[3,3,3,3] = [$(weights 81)]
  %m: f32[1,3,1,1] = GlobalAveragePool "mean"(%x)
  %d: f32[1,3,H,W] = Sub "centre"(%x, %m)
  %y: f32[1,3,H,W] = Conv "conv?\"*/"(%d, %w, _) {kernel_shape=[3,3], pads=[1,1,1,1]}
  output %y
}
E
cat > both.graph <<'E'
graph {
  input %colour: f32[1,3,H,W]
  input %mask: f32[1,1,H,W]
  %masked: f32[1,3,H,W] = Mul "mask"(%colour, %mask)
  %inverse: f32[1,1,H,W] = Neg "inverse"(%mask)
  output %masked
  output %inverse
}
E
cat > mlp.graph <<E
graph {
  input %x: f32[batch,12]
  const %w: f32[12,20] = [$(weights 240)]
  %m: f32[batch,20] = MatMul "dense"(%x, %w)
  %y: f32[batch,20] = Softmax "softmax"(%m) {axis=-1}
  output %y
}
E
cat > found.graph <<'E'
graph {
  input %x: f32[N]
  %y: none[?] = NonZero "found"(%x)
  output %y
}
E

build() { # build FOLDER PREFIX: three times; FOLDER/example is the last
    n=$((n + 1))
    [ -z "$cxx" ] || $cxx -x c++ -std=c++11 -Wall -Wextra -Werror "$1"/*.c -o "$1/example" -lvulkan > out 2> err || wrong "C++: $1"
    $cc -std=c99 -O1 -Wall -Wextra -Werror "$1"/*.c -o "$1/example" -lvulkan > out 2> err || wrong "C99: $1"
}

example() { # example FOLDER PROGRAM SIZES...: its outputs are those of the program
    folder=$1 program=$2; shift 2
    words=
    for s; do words="$words -s $s"; done
    rm -f "$folder"/t.*
    # shellcheck disable=SC2086
    (cd "$folder" && timeout "$seconds" ./example $words -o t $validate) > out 2> err || { wrong "example of $folder for $*"; return; }
    set --
    for f in "$folder"/t.in*.npy; do set -- "$@" -i "$f"; done
    for f in "$folder"/t.out*.npy; do set -- "$@" -o "${f%.npy}.want.npy"; done
    code 0 run "$program" "$@"
    for f in "$folder"/t.out?.npy; do same "$f" "${f%.npy}.want.npy"; done
}

export_to() { # export_to NAME [OPTIONS]: NAME.dnx to the folder NAME
    name=$1; shift
    rm -rf "$name"
    code 0 export "$name.dnx" --to vulkan-c -o "$name" --prefix "$name" "$@"
    build "$name"
}

code 0 compile one.graph --device vulkan -o one.dnx
code 0 compile two.graph --device vulkan -o two.dnx
export_to one --weights=array
example one one.dnx H=34 W=22
example one one.dnx H=2 W=98
(cd one && ./example -s H=33 -s W=22) > out 2> err && wrong 'an odd size is taken'
says "H = 33, W = 22, but Concat 'skip' needs H to be a multiple of 2"
has one/one_vk.h 'needs H to be a multiple of 2'
has one/one_vk.h '^ .   0  x  f32 (1, 3, H, W)$'
export_to two --kernels=file
example two two.dnx H=21 W=9
is_file two/two_vk0.spv
is_file two/two_vk.weights
if command -v spirv-val > /dev/null; then for f in two/*.spv; do try spirv-val --target-env vulkan1.3 "$f"; done; fi
printf x >> two/two_vk0.spv
(cd two && ./example) > out 2> err && wrong 'damaged kernels are taken'
says "two_vk0.spv' is not of this export"
export_to two
# the same input, the same bytes
rm -rf again
cp -r two again && rm -f again/example again/t.*
rm -rf two.first && mv two two.first
code 0 export two.dnx --to vulkan-c -o two --prefix two
same again two
build two

# several networks, instances and sizes in one process, as C and as C++
many() {
    rm -f m?.*
    # shellcheck disable=SC2086
    try ./many m 34 22 8 50
    for k in 0 1 2; do
        program=one.dnx
        [ $k -lt 2 ] || program=two.dnx
        code 0 run $program -i m$k.in0.npy -o m$k.want.npy
        same m$k.out0.npy m$k.want.npy
    done
}
if [ -n "$validate" ]; then
    for c in "$cc -std=gnu11" "$cxx -x c++ -std=c++11"; do
        [ -n "${c%% -*}" ] || continue
        # shellcheck disable=SC2086
        try $c -Wall -Wextra -Werror -I. -Ione -Itwo "$here/vulkan_c/many.c" one/one_vk.c one/one_vk_data.c two/two_vk.c two/two_vk_data.c -o many -lvulkan
        many
    done
fi

# grids in several parts, on a device with few workgroups
sed 's|^    n = MAX_FAMILIES;|    for (i = 0; i < 3; i++) a->facts.properties.limits.maxComputeWorkGroupCount[i] = 2;\n&|' one/main.c > few.c
grep -q GroupCount few.c || wrong 'no limit in few.c'
cp few.c one/main.c
try $cc -std=c99 -O1 one/*.c -o one/example -lvulkan
example one one.dnx H=34 W=40

# parameters in memory, on a device with few push constants; its grids in parts, too
"$quern" devices 2> /dev/null | sed 's/max_push=128/max_push=8/' > small.json
code 0 compile one.graph --device vulkan --devices small.json -o one.dnx --input-type f16 --input-layout HWC --output-type f16 --output-layout HWC
export_to one --weights=array
n=$((n + 1))
grep -q IN_MEMORY, one/one_vk.c || wrong 'no parameters in memory'
has one/one_vk.h 'f16 (H, W, 3), layout HWC'
example one one.dnx H=34 W=22
cp few.c one/main.c
try $cc -std=c99 -O1 one/*.c -o one/example -lvulkan
example one one.dnx H=34 W=40

code 0 compile both.graph --device vulkan -o both.dnx --input-type u8
export_to both
example both both.dnx H=5 W=7
code 0 compile mlp.graph --device vulkan -o mlp.dnx
export_to mlp
example mlp mlp.dnx batch=5

# timings of every step, and CMake
(cd mlp && ./example --steps) > out 2> err || wrong '--steps'
says ' ms  dense'
if command -v cmake > /dev/null; then
    try cmake -S mlp -B mlp/build
    try cmake --build mlp/build
    n=$((n + 1))
    (cd mlp && build/mlp_vk_example -s batch=3) > out 2> err || wrong 'what CMake built'
fi

# random networks, and with ALL=1 larger ones
case $build in */san*) san='-fsanitize=address,undefined' ;; *) san= ;; esac
libs="$(pkg-config --libs libprotobuf-c jansson sqlite3 libpng) -lpthreadpool -lm -ldl -lpthread"
# shellcheck disable=SC2086
try $cc $san -g -O1 -std=gnu11 -I"$src" -I"$here" "$here/vkdt_stub/networks.c" "$build/libquern.a" $libs -o networks
seed=${SEED:-0} left=${COUNT:-$([ -n "${ALL:-}" ] && echo 40 || echo 2)} ran=0
end=$((seed + 1000))
while [ "$left" -gt 0 ] && [ "$seed" -lt $end ]; do
    if [ -x networks ] && ./networks "$seed" > any.graph; then
        code 0 compile any.graph --device vulkan -o any.dnx
        if "$quern" export any.dnx --to vulkan-c -o any --prefix any > out 2> err; then
            build any
            example any any.dnx H=20 W=28
            ran=$((ran + 1))
        else grep -q -e 'loops or branches' -e 'computed while' err || wrong "not exported: random network $seed"
        fi
        rm -rf any
        left=$((left - 1))
    fi
    seed=$((seed + 1))
done
[ $ran -gt 0 ] || wrong 'no random network was exported'
if [ -n "${ALL:-}" ]; then
    for z in oidn-small mobilenetv2 resnet50 vit dct-denoise; do
        code 0 zoo $z --small -o zoo.onnx
        code 0 compile zoo.onnx --device vulkan -o zoo.dnx
        export_to zoo
        case $z in oidn*|dct*) example zoo zoo.dnx H=48 W=80 ;; vit) example zoo zoo.dnx batch=2 ;; *) example zoo zoo.dnx ;; esac
    done
fi

# refused
code 0 compile mlp.graph -o cpu.dnx
code 1 export cpu.dnx --to vulkan-c -o x; says "language 'c'"
code 2 export mlp.graph --to vulkan-c -o x; says compiled
code 2 export mlp.dnx both.dnx --to vulkan-c -o x; says 'one program at a time'
code 2 export mlp.dnx --to vulkan-c; says 'FOLDER'
for prefix in 9a a-b '' _a 'a b' aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa; do
    code 2 export mlp.dnx --to vulkan-c -o x --prefix="$prefix"; says letter
done
code 2 export mlp.dnx --to vulkan-c -o x --weights=here; says "'array' or 'file'"
code 2 export mlp.dnx --to vulkan-c -o x --kernels=glsl; says "'file' or 'array'"
code 0 compile found.graph --device vulkan -o found.dnx
code 1 export found.dnx --to vulkan-c -o x; says 'computed while the program runs'
[ ! -e x ] || wrong 'something of what was refused is there'
code 0 export mlp.dnx --to vulkan-c -o my-net
is_file my-net/mlp_vk.h

finish
