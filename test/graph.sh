#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# graph.sh BUILD: quern graph: every form of networks of all kinds, read by networkx, Graphviz and ONNX's checker; pictures in any size and collapsed in any
# way; allocations; measured times; errors. The converter of python/compat. What is not installed is skipped.
. "$(dirname "$0")/common.sh"
cd "$dir" || exit 1
graph() { want=$1; shift; exits "$want" "$quern" graph "$@"; }

# the network of OptimaV2's manual: its names, its allocation
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
echo '{"conv2d_2": "HEXAGON:0", "add_5": "X64:1"}' > alloc.json
for form in json graphml dot; do
    graph 0 sample.graph -o "sample.$form"; same "sample.$form" "$here/golden/graph/sample.$form"
    graph 0 sample.graph --alloc alloc.json --size 5 --params -o "a.$form"; same "a.$form" "$here/golden/graph/allocated.$form"
done
graph 0 sample.graph; same out sample.json
graph 0 sample.graph --to dot; same out sample.dot

# errors name what is wrong, and what to do; nothing is left behind
graph 2 sample.graph -o net.xyz; says "'xyz' is none of the forms json, graphml"
graph 2 sample.graph -o net; says "'net' has no suffix that tells the form"
graph 2 sample.graph --collapse all; says "'all' is none of auto, none, module"
graph 1 absent.onnx; says 'absent.onnx'
graph 1 sample.graph --alloc absent.json; says 'absent.json'
echo '{"conv2d_2": "HEXAGON:0", "add_6": "X64:1"}' > wrong.json
graph 1 sample.graph --alloc wrong.json -o wrong.svg; says "'wrong.json': line 1: no operator 'add_6', did you mean 'add_5'"
[ ! -e wrong.svg ] || wrong "half a picture"
echo '{"conv2d_2": "HEXAGON:0"' > wrong.json; graph 1 sample.graph --alloc wrong.json; says 'wrong.json'
exits 1 env PATH=/nowhere "$quern" graph sample.graph -o net.png; says 'graphviz'

# measured times: each operator's are its kernels'
exits 0 "$quern" zoo resnet50 --small -o net.onnx
exits 0 "$quern" tune sample.graph --db times.db --timeout 5 -q -o tuned.dnx
graph 0 sample.graph --db times.db --threads 0; says '"seconds": '; says '"measured_on": "cpu"'
graph 0 net.onnx --db times.db; silent '"seconds": '
graph 0 net.onnx --collapse fusion -o fused.json; grep -q '"group": "kernel' fused.json || wrong "no groups by kernels"

dot=$(command -v dot || true)
python=$(dirname "$here")/build/venv/bin/python
"$python" -c 'import networkx' 2> /dev/null || python=python3
"$python" -c 'import networkx' 2> /dev/null || python=
[ -n "$dot" ] || echo "skipped: pictures: no Graphviz (tool/deps graph)"
[ -n "$python" ] || echo "skipped: readers: no networkx"

# other programs read every network of the zoo and of the corpora
i=0
mkdir read converter
for net in $("$quern" zoo | sed 's/ .*//') ; do
    case $net in *llama*|gpt2-deepgen|bert-large-deepgen|cosmoflow*) continue ;; esac # alike, or large
    exits 0 "$quern" zoo "$net" --small -o "zoo.$net.onnx"
done
for net in zoo.*.onnx net.onnx "$here"/corpus/graphs/*; do
    i=$((i + 1))
    "$quern" graph "$net" -o "read/$i.json" > /dev/null 2> err || continue # corpora have networks that are refused
    graph 0 "$net" -o "read/$i.graphml"
    graph 0 "$net" -o "read/$i.dot"
    [ $((i % 4)) -ne 0 ] || "$quern" graph "$net" -o "read/$i.onnx" > out 2>&1 || grep -q 'cannot be exported\|of opset' out || wrong "$net as ONNX"
done
[ -z "$python" ] || exits 0 "$python" "$here/graph_readers.py" read

# with notes it is the same network
mkdir notes
graph 0 net.onnx -o notes/net.onnx
graph 0 net.onnx -o first.json; graph 0 notes/net.onnx -o second.json; same first.json second.json
for f in read/1.dot read/2.dot; do [ -z "$dot" ] || exits 0 dot -Tsvg -o "$f.svg" "$f"; done
if [ -n "$dot" ]; then
    for how in none module fusion blocks auto; do graph 0 net.onnx --collapse $how --size 12 -o "net.$how.svg"; is_file "net.$how.svg"; done
    graph 0 net.onnx --collapse none -o net.png; is_file net.png
    graph 0 sample.graph --alloc alloc.json -o first.svg; graph 0 sample.graph --alloc alloc.json -o second.svg; same first.svg second.svg
    [ "$(grep -o 'fill="#[0-9a-f]*"' first.svg | grep -v 555555 | sort -u | wc -l)" -eq 3 ] || wrong "other colours than those of two devices and of tensors"
fi

# OptimaV2's converter, as its manual has it
if "$python" -c 'import torch, networkx, onnx' 2> /dev/null && ! nm -D "$quern" | grep -q __asan; then
    top=$(dirname "$here")
    cd converter || exit 1
    PYTHONPATH="$top/python:$top/python/compat" QUERN_LIBRARY="$build/libquern.so" exits 0 "$python" "$here/python_converter.py" $dot
    says 'converter: right'
else echo "skipped: the converter: no PyTorch, networkx and ONNX"
fi
finish
