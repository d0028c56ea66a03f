#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# allocate.sh BUILD: quern allocate: templates, checks, the search with its report, settings of devices, errors; and quern.allocate of Python.
. "$(dirname "$0")/common.sh"
cd "$dir" || exit 1
allocate() { want=$1; shift; exits "$want" "$quern" allocate "$@"; }

cat > sample.graph << 'EOF'
graph {
  input %x: f32[1,3,32,32]
  input %y: f32[1,1,32,32]
  const %w: f32[1,3,1,1] = [0.5, 0.25, 0.25]
  %c: f32[1,1,32,32] = Conv "/conv/Conv"(%x, %w)
  %z: f32[1,1,32,32] = Add "/Add"(%c, %y)
  output %z
}
EOF
printf '{\n  "conv2d_2": "X64:0",\n  "add_5": "X64:0"\n}\n' > want.json

# a template, and what it becomes by hand
allocate 0 sample.graph --template X64:0; same out want.json
allocate 0 sample.graph --template X64:0 -o t.json; same t.json want.json
echo '{"add_5": "X64:1", "conv2d_2": "HEXAGON:0"}' > hand.json
allocate 0 sample.graph --check hand.json
allocate 0 sample.graph --check hand.json -o sorted.json
printf '{\n  "conv2d_2": "HEXAGON:0",\n  "add_5": "X64:1"\n}\n' > want.json; same sorted.json want.json

# errors name line, operator, device and alternatives; nothing is written
allocate 2 sample.graph; says '--devices is missing'
allocate 2 sample.graph --template X64:0 --check hand.json; says 'exclude each other'
allocate 2 sample.graph --devices HEXGON:0; says "did you mean 'HEXAGON'"
allocate 2 sample.graph --devices 'CPU:0=speed:3'; says "unknown setting 'speed'"
allocate 2 sample.graph --devices CPU:0 --minimise heat; says "cannot minimise 'heat'; there are: latency, throughput, energy"
allocate 2 sample.graph --devices CPU:0 --minimise energy; says "'CPU:0=watts:10'"
allocate 2 sample.graph --devices CPU:0,TPU:0 -o no.json; says "'TPU:0=gflops:1000;gbs:10'"
allocate 2 sample.graph --devices CPU:0,NVIDIA:7=device:cuda:sm_1; says 'sm_1'
printf '{"conv2d_2": "X64:0",\n "add_6": "X64:0"}' > wrong.json
allocate 1 sample.graph --check wrong.json; says "line 2: no operator 'add_6', did you mean 'add_5'"
printf '{"conv2d_2": "X64:0",\n "add_5": "TPUU:0"}' > wrong.json
allocate 1 sample.graph --check wrong.json -o no.json; says "line 2: operator 'add_5': device 'TPUU:0'"; says "did you mean 'TPU'"
echo '{"conv2d_2": "X64:0"}' > wrong.json; allocate 1 sample.graph --check wrong.json; says "operator 'add_5' has no device"
[ ! -e no.json ] || wrong "an allocation in spite of an error"

# the search: on described devices, so that nothing depends on this machine
"$quern" zoo oidn --small -o net.onnx > out 2> err || fail "quern zoo"
d='MALI:0=gflops:60;gbs:12;start:5e-5;watts:3'; t='TPU:0=gflops:4000;gbs:20;start:1e-4;link_gbs:0.4;watts:2'; a='ADRENO:0=gflops:90;gbs:14;watts:4'
for aim in latency throughput energy; do
    allocate 0 net.onnx --devices "$d" --devices "$a" --minimise "$aim" -o "$aim.json" -q
    says 'lower bound'; says "for everything"; cp out "$aim.txt"
    allocate 0 net.onnx --devices "$d" --devices "$a" --minimise "$aim" -o again.json -q
    same again.json "$aim.json"; same out "$aim.txt"
    allocate 0 net.onnx --devices "$d" --devices "$a" --check "$aim.json" --report; says 'MALI:0'
    allocate 0 net.onnx --devices "$d" --devices "$a" --minimise "$aim" -o again.json --json -q; says "^{\"aim\":\"$aim\",\"value\":"
done
grep -q 'MALI:0.*0.0000$' throughput.txt && wrong "a stream of requests keeps one of two like devices idle"
allocate 0 net.onnx --devices "$d" --devices "$t" --assume H=64,W=64 -o tpu.json -q; says 'sub-graphs'
allocate 3 sample.graph --devices "$t" --type x=f64 --auto; says "can run operator"

# in Python, where it is
if nm -D "$quern" | grep -q __asan || ! "$(dirname "$here")/build/venv/bin/python" -c 'import numpy' 2> /dev/null; then
    echo "skipped: quern.allocate (no NumPy in build/venv, or a library with sanitizers)"
    finish
fi
needs_python numpy "NumPy"
"$python" - net.onnx << 'EOF' > out 2> err || fail "quern.allocate"
import json, sys, quern
devices = ["MALI:0=gflops:60;gbs:12;start:5e-5;watts:3", "ADRENO:0=gflops:90;gbs:14;watts:4"]
a = quern.allocate(sys.argv[1], devices, "throughput")
assert a == json.load(open("throughput.json")), a
assert a.bound <= a.value == a.period <= a.single_value and a.aim == "throughput" and a.joules > 0
assert sum(s.n_ops for s in a.subgraphs) == len(a) == sum(d.n_ops for d in a.devices)
b = quern.allocate(sys.argv[1], devices, check=a, report=True)
assert b == a and b.latency == a.latency and b.bound == 0 and b.single is None
assert set(quern.allocate(sys.argv[1], on="X64:0").values()) == {"X64:0"}
a.save("saved.json")
assert quern.allocate(sys.argv[1], check="saved.json") == a
try:
    quern.allocate(sys.argv[1], check={"conv": "X64:0"})
    raise SystemExit("a wrong allocation is accepted")
except quern.Error as e:
    assert "no operator 'conv'" in str(e), e
EOF
finish
