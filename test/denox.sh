#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# denox.sh BUILD: the command under the names of other tools. A network of one convolution in f16
# with free height and width goes through published command lines of those tools, unchanged except
# for small sizes: export, populate, measure, compile, make a module. The program must then yield
# the reference's results at other sizes. The device is any Vulkan device, under the name that the
# lines require (fake_name.c). Exported by PyTorch if installed, otherwise from a text.
. "$(dirname "$0")/common.sh"
cd "$dir" || exit 1
mkdir bin
ln -s "$quern" bin/denox
ln -s "$quern" bin/vkdt-denox
PATH=$dir/bin:$PATH
seconds=250
code() { exits "$@"; }

cat > net.graph <<'X'
graph {
  input %input: f16[1,3,s0,s1]
  const %w: f16[3,3,3,3] = hex "1f1fbfb07631ee229d30baa56fabc32f42a829a24bb162b1d931042f9eaa35aeb12cc32a4928a42a1d2a03b04ba5b1aea1a5a5b0e52d49ac913188af8fad58ad2c29ea316d9c85aa0d2ec02d3331242450b10632ba2c64153eb0b1a86d2e882b26ae643142b0e7b05a2a1fabdb2fc7ac22af0732b4acd5aecdadd522a82c762d8431c02e882b20aec6a195a957ae2420132f011def300b2cd9acc9a6262b9b2d12b2"
  const %b: f16[3] = [0.0120315, -0.155639, -0.187744]
  %output: f16[1,3,s0,s1] = Conv "conv"(%input, %w, %b) {kernel_shape=[3,3], pads=[1,1,1,1]}
  output %output
}
X
if /usr/bin/python3 -c 'import torch, onnx' 2> err; then
    code 0 /usr/bin/python3 "$here/denox_net.py" net.onnx
else
    code 0 "$quern" export net.graph --to onnx -o net.onnx
fi
is_file net.onnx

# What these options do does not need the device.
hwc='--input-shape=H:W:C --input-type=f16 --input-layout=HWC --output-type=f16 --output-layout=HWC'
code 0 denox net.onnx -o cpu.dnx --device cpu $hwc
code 0 "$quern" show cpu.dnx; says '^input input f16 \[H, W, 3\]'; says '^output output f16 \[H, W, 3\]'
code 0 denox compile net.onnx -o new.dnx --device cpu --shape input=H:W:C --type input=f16 output=f16 \
    --format input=hwc output=hwc --storage input=ssbo
same cpu.dnx new.dnx
code 0 denox net.onnx -o c8.dnx --device cpu --input-layout=CHWC8 --output-layout=CHWC8 -q
code 0 "$quern" show c8.dnx; says '^input input f16 \[1, s0, s1, 8\]'
# Sizes that denox assumes stay open; ours are fixed.
code 0 "$quern" compile net.onnx -o open.dnx --optimize-for=s0:40,s1:48
code 0 denox compile net.onnx -o assumed.dnx --device cpu --assume s0=40 s1=48; same open.dnx assumed.dnx
code 0 denox compile net.onnx -o assumed.dnx --device cpu --assume=s0=40 s1=48; same open.dnx assumed.dnx
code 0 "$quern" compile net.onnx -o fixed.dnx --assume s0=40 s1=48
code 1 "$quern" run fixed.dnx --bench --set s0=40 s1=47; says "s1 = 47, but option assume needs s1 to be 48"
code 0 denox net.onnx -o even.dnx --device cpu --input-shape=X=24:X:C
code 0 "$quern" show even.dnx; says '\[1, 3, 24, 24\]'
for s in 'H=1 W=1' 'H=17 W=31'; do
    code 0 "$quern" verify net.onnx $hwc --program cpu.dnx --set $s; says '^ok  *output'
    for o in '--input-type=f32 --output-layout=CHW' '--input-layout=CHWC8 --output-layout=CHWC8 --output-type=u8'; do
        code 0 "$quern" verify net.onnx --input-shape=H:W:C $o --set $s; says '^ok  *output'
    done
done
code 2 denox net.onnx --device cpu --input-shape=H:W:4; says "axis C: 4 was given, the network has 3"
code 2 denox net.onnx --device cpu --input-shape=H=5:W:C --output-shape=H=6:W:C; says "'H' is 6"
code 2 denox net.onnx --device cpu --input-type=f15; says "'f15'"
code 1 denox net.onnx --device cpu --input-storage=image; says 'only SSBO'
code 2 denox net.onnx --device cpu --target-env=vulkan2.0; says 'vulkan1.4'
code 2 denox net.onnx --device '*none such*'; says "'\*none such\*'"; says "'cpu'"
code 2 denox net.onnx --fcoopmatt; says "'--fcoopmat\|'--coopmat'"

# A device that is not present, by its description.
cat > there.json <<'X'
[{"name":"vulkan","language":"spirv","device":"ACME Turbo 9","fingerprint":"vulkan ACME Turbo 9","caps":"arch=\"vulkan1.3\" vector_bytes=16 n_vector_regs=64 n_threads=64 l2_bytes=4194304 has_fma=1 is_gpu=1 max_group=1024 subgroup=32 subgroup_min=32 subgroup_max=32 shared_bytes=49152 max_push=256 buffer_align=64 has_subgroup=1 has_f16=1 has_i8=1 has_i16=1 has_i64=1 spirv=16 gflops=20000 gbps=500"}]
X
code 0 denox net.onnx --devices there.json --device '*turbo*' -o there.dnx $hwc --target-env=vulkan1.1
code 0 "$quern" show there.dnx; says 'ACME Turbo 9; spirv=13'
code 2 denox net.onnx --devices there.json --device '*NVIDIA*' -o no.dnx; says "'ACME Turbo 9'"

"$quern" devices > out 2> err
if ! grep -q '"name":"vulkan"' out || grep -q '"name":"vulkan".*trouble' out; then
    echo "skipped: all but options, for there is no Vulkan device (tool/deps test installs a software one)"
    finish
fi
ASAN_OPTIONS=detect_leaks=0; export ASAN_OPTIONS # what drivers keep in their globals when they are unloaded
QUERN_VULKAN_LOADER=$build/test/fake_name.so; export QUERN_VULKAN_LOADER
QUERN_DEVICE_NAME='NVIDIA GeForce RTX 4080 SUPER'; export QUERN_DEVICE_NAME

cat > populate.sh <<'X'
denox net.onnx --db gpu.db --populate \
    --optimize-for="H:24,W:40" \
    --input-shape=H:W:C  \
    --input-type=f16 \
    --input-layout=HWC \
    --input-storage=SSBO \
    --output-type=f16 \
    --output-layout=HWC \
    --output-storage=SSBO \
    --device="*NVIDIA*" \
    --target-env=vulkan1.4 \
    --spirv-no-debug-info \
    --no-spirv-non-semantic-debug-info \
    --spirv-optimize \
    --ffusion \
    --fcoopamt \
    --fmemory-concat
X
cat > bench.sh <<'X'
denox --bench=gpu.db --timeout=15min --min-samples=10
X
cat > compile.sh <<'X'
denox net.onnx --db gpu.db -o net.dnx\
    --optimize-for="H:24,W:40" \
    --input-shape=H:W:C  \
    --input-type=f16 \
    --input-layout=HWC \
    --input-storage=SSBO \
    --output-type=f16 \
    --output-layout=HWC \
    --output-storage=SSBO \
    --device="*NVIDIA*" \
    --target-env=vulkan1.4 \
    --spirv-no-debug-info \
    --no-spirv-non-semantic-debug-info \
    --spirv-optimize \
    --ffusion \
    --fcoopamt \
    --fmemory-concat
X
cat > module.sh <<'X'
vkdt-denox net.dnx -o pipe/modules/ --module-name=denox-conv \
    --preprocessing=input.comp --post-processing=output.comp
X
count() { "$quern" db stats gpu.db | sed 's/.*"samples":\([0-9]*\).*/\1/'; }
code 0 sh populate.sh; is_file gpu.db
[ "$(count)" = 0 ] || wrong "populate measures"
code 0 sh bench.sh
before=$(count)
[ "$before" -ge 10 ] || wrong "only $before samples"
code 0 sh bench.sh
[ "$(count)" = "$before" ] || wrong "measured again, though the samples are there"
code 0 sh compile.sh; is_file net.dnx
code 0 "$quern" explain net.dnx; says 'measured'
grep -q 'was populated with' err && wrong "populate and compile disagree"
for s in 'H=1 W=1' 'H=17 W=31' 'H=64 W=50'; do
    code 0 "$quern" verify net.onnx $hwc --program net.dnx --device '*nvidia*' --set $s; says '^ok  *output'
done
printf '#version 460\nvoid main() {}\n' > input.comp
cp input.comp output.comp
code 0 sh module.sh; is_file pipe/modules/denoxcnv/main.c
code 0 "$quern" show pipe/modules/denoxcnv/*.spv; says '^kernel main'
code 0 "$quern" compile net.onnx -o dump.dnx --device vulkan --untuned -d spirv
code 0 denox dumpcsv gpu.db -o gpu.csv; is_file gpu.csv
code 0 denox bench net.dnx --spec H=17 W=31 --samples 3 --timeout 1; says 'median'
code 0 denox net.onnx --db gpu.db -o other.dnx --device '*NVIDIA*' --input-shape=H:W:C; says 'was populated with'

finish
