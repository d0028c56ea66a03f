#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# deploy.sh BUILD: networks divided over the devices that are here, each sub-graph verified alone and all of them together; files, errors, and that nothing
# is left after one.
. "$(dirname "$0")/common.sh"
cd "$dir" || exit 1
XDG_CONFIG_HOME=$dir; export XDG_CONFIG_HOME
ASAN_OPTIONS=detect_leaks=0; export ASAN_OPTIONS # what drivers keep in their globals when they are unloaded

devices='X64:0 X64:1'
"$quern" devices > devices.json 2> /dev/null || fail "quern devices"
for d in opencl vulkan; do
    if grep "\"name\":\"$d\"" devices.json | grep -qv described; then devices="$devices $(echo "$d" | tr '[:lower:]' '[:upper:]'):0"; fi
done

# allocation NET FILE EVERY: operators change their device every so many
allocation() {
    "$quern" allocate "$1" --template X64:0 -o template.json -q || fail "template of $1"
    # shellcheck disable=SC2086 # several devices
    awk -v every="$3" -v list="$devices" 'BEGIN { n = split(list, d, " ") }
        /X64:0/ { sub(/X64:0/, d[int((k++) / every) % n + 1]) } { print }' template.json > "$2"
}

# deploys NET NAME EVERY SIZES...: and verifies
deploys() {
    net=$1 name=$2
    allocation "$net" "$name.json" "$3"
    shift 3
    exits 0 "$quern" deploy "$net" --alloc "$name.json" --name "$name" -o to -q
    exits 0 "$quern" verify "$net" --program "to/$name" "$@"
    says '^ok  *Subgraph_1/'
    silent WRONG
}

# like MediaPipe's: depthwise convolutions, PRelu, padded channels, two scales
w=$(awk 'BEGIN { for (i = 0; i < 8 * 3 * 9; i++) printf "%s%.3f", i ? "," : "", sin(i) / 4 }')
v=$(awk 'BEGIN { for (i = 0; i < 8 * 9; i++) printf "%s%.3f", i ? "," : "", cos(i) / 3 }')
u=$(awk 'BEGIN { for (i = 0; i < 64; i++) printf "%s%.3f", i ? "," : "", sin(i * i) / 3 }')
s=$(awk 'BEGIN { for (i = 0; i < 8; i++) printf "%s%.3f", i ? "," : "", i / 10 }')
cat > pipe.graph << EOF
graph {
  input %x: f32[1,3,32,40]
  const %w: f32[8,3,3,3] = [$w]
  const %v: f32[8,1,3,3] = [$v]
  const %u: f32[8,8,1,1] = [$u]
  const %s: f32[8,1,1] = [$s]
  const %double: f32[4] = [1,1,2,2]
  %a = Conv(%x, %w) {pads=[1,1,1,1], strides=[2,2]}
  %b = PRelu(%a, %s)
  %c = Conv(%b, %v) {pads=[1,1,1,1], group=8}
  %d = Conv(%c, %u)
  %e = Add(%b, %d)
  %f = PRelu(%e, %s)
  %g = MaxPool(%f) {kernel_shape=[2,2], strides=[2,2]}
  %h = Conv(%g, %v) {pads=[1,1,1,1], group=8}
  %i = Resize(%h, _, %double) {mode="nearest", coordinate_transformation_mode="asymmetric", nearest_mode="floor"}
  %j = Concat(%i, %f) {axis=1}
  %k = GlobalAveragePool(%g)
  output %j
  output %k
}
EOF
sed -i 's/^  %\([a-k]\) =/  %\1: none[?] =/' pipe.graph
deploys pipe.graph pipe 2
deploys pipe.graph each 1
"$quern" zoo vkdt-unet -o unet.onnx -q || fail "zoo vkdt-unet"
deploys unet.onnx unet 5 --set H=37 W=50
"$quern" zoo resnet8 -o resnet.onnx -q || fail "zoo resnet8"
deploys resnet.onnx resnet 4

# the same bytes each time, whatever the folder; a packed file runs alike
allocation pipe.graph a.json 2
exits 0 "$quern" deploy pipe.graph --alloc a.json --name pipe -o again -q; same to/pipe again/pipe
exits 0 "$quern" deploy pipe.graph --alloc a.json -o pipe.packed --packed -q
exits 0 "$quern" verify pipe.graph --program pipe.packed
exits 0 "$quern" deploy pipe.graph --alloc a.json --name half -o to --f16 -q
exits 0 "$quern" verify pipe.graph --program to/half
n=$((n + 1)); "$quern" show to/half | grep -q '^input tensor_0: f16' || wrong "no f16"
exits 0 "$quern" deploy pipe.graph --devices X64:0 --name steps -o to
for step in 'initialise graph module' 'allocate kernel' compile split 'extract representative dataset' 'export to runtime' 'convert onnx'; do says "$step: [0-9.]* s"; done
for f in model.meta Subgraph_0/subgraph_0.meta; do is_file "to/steps/$f"; done
n=$((n + 1)); ls to/steps/Subgraph_0/*.so > /dev/null 2>&1 || wrong "no kernel"

# an allocation that comes back to a device needs it twice: one sub-graph would wait for itself
cat > back.graph << 'EOF'
graph {
  input %x: f32[64]
  %a: f32[64] = Relu(%x)
  %b: f32[64] = Sqrt(%a)
  %c: f32[64] = Add(%a, %b)
  output %c
}
EOF
echo '{"relu_1": "X64:0", "sqrt_3": "X64:1", "add_5": "X64:0"}' > back.json
exits 0 "$quern" deploy back.graph --alloc back.json -o to -q
exits 0 "$quern" verify back.graph --program to/back; says 'Subgraph_2/tensor_6'

# errors name file, line, operator, device; nothing is written
nothing() { n=$((n + 1)); [ ! -e no ] || { wrong "written: $(find no)"; rm -rf no; }; }
exits 2 "$quern" deploy back.graph -o no; says 'alloc is missing'; nothing
exits 2 "$quern" deploy back.graph --alloc back.json; says '-o is missing'
exits 1 "$quern" deploy back.graph --alloc missing.json -o no; says missing.json; nothing
echo '{"relu_1": "X64:0"' > wrong.json
exits 1 "$quern" deploy back.graph --alloc wrong.json -o no; says 'wrong.json'; says 'line 2'; nothing
echo '{"relu_1": "X64:0", "sqrt_3": "X64:0", "add_6": "X64:0"}' > wrong.json
exits 1 "$quern" deploy back.graph --alloc wrong.json -o no; says "did you mean 'add_5'"; nothing
echo '{"relu_1": "X64:0", "sqrt_3": "X64:0"}' > wrong.json
exits 1 "$quern" deploy back.graph --alloc wrong.json -o no; says "add_5"; nothing
echo '{"relu_1": "X64:0", "sqrt_3": "Z80:0", "add_5": "X64:0"}' > wrong.json
exits 1 "$quern" deploy back.graph --alloc wrong.json -o no; says "Z80"; nothing
exits 2 "$quern" deploy back.graph --alloc back.json --name a/b -o no; says "'a/b' cannot be the name"; nothing
exits 2 "$quern" deploy back.graph --alloc back.json -o to; says "exists already"
exits 1 "$quern" deploy back.graph --alloc back.json -o devices.json/no; says devices.json
exits 1 "$quern" verify back.graph --program to/unet; says 'another one'
head -c 300 to/pipe/model.meta > short.meta; cp short.meta again/pipe/model.meta
exits 1 "$quern" run again/pipe --bench; says 'model.meta'
cp to/pipe/model.meta again/pipe/model.meta
for f in again/pipe/Subgraph_0/*.so; do printf x >> "$f"; break; done
exits 1 "$quern" run again/pipe --bench; says '\.so'
finish
