#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# vkdt.sh BUILD: modules for vkdt. Networks are exported, main.c is compiled against stand-in
# headers (test/vkdt_stub) without a warning, and a stand-in for vkdt lets the module make its
# nodes, checks them and runs them: the same output as the program's, for any order that the
# connections permit. Shaders and kernels are validated by glslangValidator and spirv-val if
# installed. Then: names, several networks in one module, rejections.
. "$(dirname "$0")/common.sh"
stub=$here/vkdt_stub src=$(cd "$here/../src" && pwd) trained=$(cd "$here/../models" && pwd)/denoise.onnx
# Once Mesa's driver is unloaded, its leaks cannot be distinguished from ours.
ASAN_OPTIONS=detect_leaks=0; export ASAN_OPTIONS
cd "$dir" || exit 1
code() { want=$1; shift; exits "$want" "$quern" "$@"; } # code CODE ARGUMENTS: of quern
has() { n=$((n + 1)); grep -q -e "$2" "$1" || { : > out; : > err; wrong "$1 without $2"; }; }
refused() { code 2 export "$@"; } # as wrong usage
try() { n=$((n + 1)); "$@" > out 2> err || wrong "fails: $*"; }

"$quern" devices 2> /dev/null | grep -q '"name":"vulkan"' || {
    echo "skipped: no Vulkan device to compile for (Debian's mesa-vulkan-drivers has one)"
    exit 77
}

# Networks: a skip connection; two inputs and two outputs; an output of another size; sizes that do not
# change; a mean over the picture; many channels; a concatenation in memory; no picture at all.
weights() {
    awk -v n="$1" 'BEGIN { for (i = 0; i < n; i++) printf "%s%.3f", i ? ", " : "", (i * 37 % 17 - 8) / 40 }'
}
cat > skip.graph <<X
graph {
  input %x: f32[1,3,H,W]
  const %w0: f32[8,3,3,3] = [$(weights 216)]
  const %b0: f32[8] = [$(weights 8)]
  const %w1: f32[3,11,3,3] = [$(weights 297)]
  %c: f32[1,8,H,W] = Conv "first"(%x, %w0, %b0) {kernel_shape=[3,3], pads=[1,1,1,1]}
  %r: f32[1,8,H,W] = Relu "relu"(%c)
  %k: f32[1,11,H,W] = Concat "skip"(%r, %x) {axis=1}
  %y: f32[1,3,H,W] = Conv "last"(%k, %w1, _) {kernel_shape=[3,3], pads=[1,1,1,1]}
  output %y
}
X
cat > two.graph <<X
graph {
  input %colour: f32[1,3,H,W]
  input %mask: f32[1,1,H,W]
  %masked: f32[1,3,H,W] = Mul "mask"(%colour, %mask)
  %inverse: f32[1,1,H,W] = Neg "inverse"(%mask)
  output %masked
  output %inverse
}
X
cat > large.graph <<X
graph {
  input %x: f32[1,3,H,W]
  const %w: f32[12,3,3,3] = [$(weights 324)]
  %c: f32[1,12,H,W] = Conv "conv"(%x, %w, _) {kernel_shape=[3,3], pads=[1,1,1,1]}
  %y: f32[1,3,2*H,2*W] = DepthToSpace "shuffle"(%c) {blocksize=2}
  output %y
}
X
cat > fixed.graph <<X
graph {
  input %x: f32[1,3,20,28]
  const %w: f32[4,3,3,3] = [$(weights 108)]
  %y: f32[1,4,10,14] = Conv "half"(%x, %w, _) {kernel_shape=[3,3], pads=[1,1,1,1], strides=[2,2]}
  output %y
}
X
cat > mean.graph <<X
graph {
  input %x: f32[1,3,H,W]
  %m: f32[1,3,1,1] = GlobalAveragePool "mean"(%x)
  %y: f32[1,3,H,W] = Sub "centre"(%x, %m)
  output %y
}
X
cat > deep.graph <<X
graph {
  input %x: f32[1,3,H,W]
  const %w: f32[12,3,1,1] = [$(weights 36)]
  %y: f32[1,12,H,W] = Conv "conv"(%x, %w, _) {kernel_shape=[1,1]}
  output %y
}
X
cat > join.graph <<X
graph {
  input %x: f32[1,3,H,W]
  const %w0: f32[1,3,3,3] = [$(weights 27)]
  const %w1: f32[2,3,3,3] = [$(weights 54)]
  %a: f32[1,1,H,W] = Conv "a"(%x, %w0, _) {kernel_shape=[3,3], pads=[1,1,1,1]}
  %b: f32[1,2,H,W] = Conv "b"(%x, %w1, _) {kernel_shape=[3,3], pads=[1,1,1,1]}
  %y: f32[1,3,H,W] = Concat "both"(%a, %b) {axis=1}
  output %y
}
X
# weights that are read late, after a branch without weights whose buffers are free by then
cat > gate.graph <<X
graph {
  input %x: f32[1,3,H,W]
  const %w: f32[3,3,3,3] = [$(weights 81)]
  %p: f32[1,3,H,W] = MaxPool "p"(%x) {kernel_shape=[3,3], pads=[1,1,1,1]}
  %q: f32[1,3,H,W] = MaxPool "q"(%p) {kernel_shape=[3,3], pads=[1,1,1,1]}
  %c: f32[1,3,H,W] = Conv "c"(%x, %w, _) {kernel_shape=[3,3], pads=[1,1,1,1]}
  %y: f32[1,3,H,W] = Mul "gate"(%c, %q)
  output %y
}
X
# an input that is read late
cat > late.graph <<X
graph {
  input %x: f32[1,3,H,W]
  input %z: f32[1,3,H,W]
  %p: f32[1,3,H,W] = MaxPool "p"(%x) {kernel_shape=[3,3], pads=[1,1,1,1]}
  %q: f32[1,3,H,W] = MaxPool "q"(%p) {kernel_shape=[3,3], pads=[1,1,1,1]}
  %r: f32[1,3,H,W] = MaxPool "r"(%q) {kernel_shape=[3,3], pads=[1,1,1,1]}
  %m: f32[1,3,H,W] = MaxPool "m"(%z) {kernel_shape=[3,3], pads=[1,1,1,1]}
  %y: f32[1,3,H,W] = Mul "product"(%m, %r)
  output %y
}
X
# an input that a late node reads by its last argument, and another one that an earlier node reads
cat > far.graph <<X
graph {
  input %x: f32[1,3,H,W]
  input %z: f32[1,3,H,W]
  const %w: f32[3,3,3,3] = [$(weights 81)]
  %p: f32[1,3,H,W] = MaxPool "p"(%z) {kernel_shape=[3,3], pads=[1,1,1,1]}
  %q: f32[1,3,H,W] = MaxPool "q"(%p) {kernel_shape=[3,3], pads=[1,1,1,1]}
  %c: f32[1,3,H,W] = Conv "c"(%q, %w, _) {kernel_shape=[3,3], pads=[1,1,1,1]}
  %y: f32[1,3,H,W] = Add "sum"(%c, %x)
  output %y
}
X
cat > flat.graph <<X
graph {
  input %x: f32[N,10]
  %y: f32[N,10] = Relu(%x)
  output %y
}
X

# The stand-in for vkdt, and modules for it.
case $build in */san*) san='-fsanitize=address,undefined' ;; *) san= ;; esac
case $build in *clang*) cc=clang ;; *) cc=${CC:-gcc} ;; esac
libs="$(pkg-config --libs libprotobuf-c jansson sqlite3 libpng) -lpthreadpool -lm -ldl -lpthread"
# shellcheck disable=SC2086
try $cc $san -g -O1 -std=gnu11 -Wall -Wextra -Werror -Wno-unused-parameter -rdynamic -I"$src" -I"$stub" \
    "$stub/host.c" "$build/libquern.a" $libs -o host
# shellcheck disable=SC2086
try $cc $san -g -O1 -std=gnu11 -I"$src" -I"$stub/.." "$stub/networks.c" "$build/libquern.a" $libs -o networks
plain='-shared -fPIC -std=c11 -D_GNU_SOURCE -Wall -Wextra -Werror -Wno-unused-parameter'

make_module() { # make_module NAME [FLAGS]: what vkdt's makefile does
    m=modules/$1 flags=${2:-}
    for c in gcc clang; do
        command -v $c > /dev/null || continue
        # shellcheck disable=SC2086
        try $c $plain $flags -I"$stub" "$m/main.c" -o "$m/lib$1.so"
    done
    mkdir -p modules/data
    for f in "$m"/*.dat; do [ -e "$f" ] && cp "$f" modules/data; done
    for f in "$m"/*.comp.spv; do
        if command -v spirv-val > /dev/null; then try spirv-val --target-env vulkan1.3 "$f"; fi
    done
    for f in "$m"/*.comp; do
        if command -v glslangValidator > /dev/null; then
            try glslangValidator --target-env vulkan1.3 -I"$stub/modules" "$f" -o shader.spv
        fi
    done
}

module() { # module NAME H W [OPTIONS OF COMPILE]: from NAME.graph to a module that runs
    name=$1 h=$2 w=$3; shift 3
    code 0 compile "$name.graph" --device vulkan -o "$name.dnx" "$@"
    rm -rf "modules/$name"
    code 0 export "$name.dnx" --to vkdt -o modules --module-name="$name"
    make_module "$name"
    try ./host modules "$name" 0 "$h" "$w" "$name.dnx"
    [ -s out ] && cat out
}

module skip 21 38
try ./host modules skip 0 1 1 skip.dnx
try ./host modules skip 0 140 133 skip.dnx
nodes() { sed -n 's/.*: \([0-9]*\) nodes.*/\1/p' out; }
whole=$(nodes)
has modules/skip/connectors '^input:read:\*:\*$'
has modules/skip/readme.md '^\* `output` '
has modules/skip/flat.mk 'bin/data/skip-weights.dat: pipe/modules/skip/skip-weights.dat'
cp -r modules/skip once
rm once/*.so
code 0 export skip.dnx --to vkdt -o again --module-name=skip
same once again/skip
# where a dispatch may have few groups, it is several nodes
make_module skip -DDENOX_MAX_GROUPS=1
try ./host modules skip 0 140 133 skip.dnx; cat out
[ "$(nodes)" -gt "$whole" ] || wrong "nothing was split: $whole nodes both times"
module two 9 13
has modules/two/connectors '^input1:read'
has modules/two/connectors '^output1:write'
module large 11 6
has modules/large/main.c modify_roi_out
module fixed 31 17
has modules/fixed/main.c modify_roi_in
module mean 40 52
# two kernels write one buffer, the second after the first
module join 17 31
try ./host modules join 0 1 1 join.dnx
code 0 explain join.dnx; says 'both(Concat).*in memory'
has modules/join/denox_model.h modify
# sources are visited before memory is free that their staging would lie in
module gate 33 27
module late 26 31
module far 31 26
try ./host modules gate 0 1 1 gate.dnx
# weights that are missing or others: a message, and the picture as it came
for damage in 'rm -f' 'truncate -s 100'; do
    cp modules/data/gate-weights.dat kept.dat
    $damage modules/data/gate-weights.dat
    n=$((n + 1))
    ./host modules gate 0 33 27 gate.dnx > out 2> err
    [ $? -eq 3 ] || wrong "weights that are not there ($damage) end in a picture"
    says 'weights are missing'
    cp kept.dat modules/data/gate-weights.dat
done
module skip 14 19 --input-type f16 --input-layout HWC --output-type f16 --output-layout HWC
has modules/skip/input.comp float16_t
module skip 8 8 --input-type u8 --input-layout HWC
has modules/skip/input.comp uint8_t

# a trained network, tuned: colour and three features of every pixel are its inputs
code 0 tune "$trained" --device vulkan --timeout 6s --optimize-for=H:37,W:50 -o denoise.dnx
code 0 export denoise.dnx --to vkdt -o modules --module-name=denoise
make_module denoise
for x in colour albedo normal depth; do has modules/denoise/readme.md "^. .input[1-3]*. $x of the network, f32$"; done
for s in '37 50' '8 16'; do
    # shellcheck disable=SC2086
    try ./host modules denoise 0 $s denoise.dnx; cat out
done

# networks of the zoo, and random ones: values other than images are rejected
export_any() { # export_any NAME NETWORK H W
    n=$((n + 1))
    timeout 300 "$quern" compile "$2" --device vulkan -o any.dnx > out 2> err || { wrong "does not compile: $1"; return; }
    "$quern" export any.dnx --to vkdt -o modules --module-name=any --preprocessing=any.comp --post-processing=any.comp > out 2> err || {
        grep -q -e 'no image' -e 'neither height nor width' -e 'no height, width or batch' -e 'loops or branches' -e 'connectors' -e 'no variable' err || wrong "not exported: $1"
        return
    }
    # shellcheck disable=SC2086
    try $cc $plain -I"$stub" modules/any/main.c -o modules/any/libany.so
    mkdir -p modules/data
    rm -f modules/data/any-weights.dat
    for f in modules/any/*.dat; do [ -e "$f" ] && cp "$f" modules/data; done
    timeout 300 ./host modules any 0 "$3" "$4" any.dnx > out 2> err || wrong "$1 as a module"
    ran=$((ran + 1))
    rm -rf modules/any
}
: > any.comp
ran=0
if [ -n "${ALL:-}" ]; then
    for z in $("$quern" zoo | sed 's/ .*//'); do
        code 0 zoo "$z" --small -o "$z.onnx"
        export_any "$z" "$z.onnx" 64 96
    done
fi
seed=${SEED:-0} left=${COUNT:-$([ -n "${ALL:-}" ] && echo 60 || echo 6)}
end=$((seed + 1000))
while [ "$left" -gt 0 ] && [ "$seed" -lt $end ]; do
    if [ -x networks ] && ./networks "$seed" > any.graph; then
        export_any "random network $seed" any.graph 20 28
        left=$((left - 1))
    fi
    seed=$((seed + 1))
done
[ $ran -gt 0 ] || wrong "no random network is a module"
echo "$ran networks of the zoo and random ones"

# several networks in one module, distinguished by suffixes
code 0 compile skip.graph --device vulkan -o a.dnx
code 0 compile skip.graph --device vulkan -o b.dnx --no-fusion
code 0 export a.dnx b.dnx --to vkdt -o modules --module-name=both --suffix=one --suffix=sep
make_module both
for k in a:0 b:1; do try ./host modules both ${k#*:} 12 18 ${k%:*}.dnx; done
has modules/both/params.ui '^model:combo:one:sep$'
is_file modules/both/denox_sep.h
code 0 export a.dnx large.dnx --to vkdt -o modules --module-name=ab
is_file modules/ab/denox_large.h
make_module ab
try ./host modules ab 1 7 9 large.dnx

# names
code 0 export a.dnx --to vkdt -o modules --module-name=denox-conv; says "as 'denoxcnv'"
is_file modules/denoxcnv/main.c
make_module denoxcnv
code 0 export a.dnx --to vkdt -o modules --module-name=my-net
make_module my-net
try ./host modules my-net 0 5 7 a.dnx
refused a.dnx --to vkdt -o modules; says module-name
refused a.dnx --to vkdt -o modules --module-name=rhythmflysky; says 'too long'
for name in i-net display 9net a:b ''; do refused a.dnx --to vkdt -o modules --module-name="$name"; done
refused a.dnx b.dnx --to vkdt -o modules --module-name=x --suffix=A --suffix=b; says "'A'"
refused a.dnx b.dnx --to vkdt -o modules --module-name=x --suffix=a --suffix=a; says suffix
code 0 compile two.graph --device vulkan -o t.dnx
refused a.dnx t.dnx --to vkdt -o modules --module-name=x; says 'inputs and outputs'

# header, kernels and weights to folders of their own, for a module written by hand
refused a.dnx --to vkdt --module-name=hand; says 'src-dir'
refused a.dnx --to vkdt --module-name=hand --src-dir=s --shader-dir=k --weight-dir=w/data --bin-dir=w; says "'s'"
code 0 export a.dnx --to vkdt --module-name=hand --src-dir=s --shader-dir=k --weight-dir=w/data --bin-dir=w -p
is_file s/denox_model.h; is_file k/hand0.comp.spv; is_file w/data/hand-weights.dat
has s/denox_model.h '"data/hand-weights.dat"'
[ ! -e s/main.c ] || wrong "main.c in another's module"
refused a.dnx --to vkdt --module-name=hand --src-dir=s --shader-dir=k --weight-dir=w --bin-dir=s; says "'w'"
refused a.dnx --to vkdt --module-name=hand --src-dir=s --shader-dir=k --weight-dir='w/a"b' --bin-dir=w -p; says 'in C'
code 0 export a.dnx --to vkdt -o modules --module-name=apart --weight-dir=w --bin-dir=./w/
has modules/apart/denox_model.h '"apart-weights.dat"'
is_file w/apart-weights.dat
grep -q bin/data modules/apart/flat.mk && wrong "weights that are not there are copied"

# shaders of one's own
code 0 compile deep.graph --device vulkan -o deep.dnx
refused deep.dnx --to vkdt -o modules --module-name=deep; says post-processing
code 1 export deep.dnx --to vkdt -o modules --module-name=deep --post-processing=none.comp; says none.comp
sed 's/c<3/c<0/' modules/my-net/output.comp > mine.comp
code 0 export deep.dnx --to vkdt -o modules --module-name=deep --post-processing=mine.comp
same mine.comp modules/deep/output.comp
make_module deep
try ./host modules deep 0 6 6 deep.dnx

# under the name of another tool, its command line as it stands
ln -s "$quern" vkdt-denox
mkdir -p pipe/modules
cp a.dnx net.dnx
cp modules/my-net/input.comp modules/my-net/output.comp .
try ./vkdt-denox net.dnx -o pipe/modules/ --module-name=denox-conv \
    --preprocessing=input.comp --post-processing=output.comp
is_file pipe/modules/denoxcnv/main.c
same input.comp pipe/modules/denoxcnv/input.comp

# networks that vkdt does not support
code 0 compile skip.graph -o cpu.dnx
code 1 export cpu.dnx --to vkdt -o modules --module-name=x; says "'c'"
code 0 compile flat.graph --device vulkan -o flat.dnx
code 1 export flat.dnx --to vkdt -o modules --module-name=x; says 'no image'
refused skip.graph --to vkdt -o modules --module-name=x; says compiled
refused a.dnx --to nowhere -o x; says 'vkdt'
refused a.dnx; says '--to'

finish
