#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# requests.sh BUILD: a deployment through the command and the C++ interface: run, trace and chart, bench, placement, show, sign, packed files, and errors.
. "$(dirname "$0")/common.sh"
include=$(cd "$here/../include" && pwd)
cd "$dir" || exit 1
XDG_CONFIG_HOME=$dir; export XDG_CONFIG_HOME

cat > net.graph <<'X'
graph {
  input %x: f32[N]
  const %one: f32[1] = [1]
  %r: f32[N] = Relu(%x)
  %y: f32[N] = Add(%r, %one)
  output %y
}
X
printf '{"relu_1": "X64:0", "add_3": "X64:1"}\n' > alloc.json
exits 0 "$quern" deploy net.graph --alloc alloc.json -o dep
exits 0 "$quern" deploy net.graph --alloc alloc.json -o net.packed --packed
exits 0 "$quern" compile net.graph -o net.dnx

# x: 1, -2, 3.5
printf '\223NUMPY\001\000\166\000%-117s\n' "{'descr': '<f4', 'fortran_order': False, 'shape': (3,), }" > x.npy
printf '\000\000\200\077\000\000\000\300\000\000\140\100' >> x.npy
exits 0 "$quern" run net.dnx -i x.npy -o want.npy
for d in dep/net net.packed dep/net/model.meta; do
    exits 0 "$quern" run "$d" -i x=x.npy -o y=y.npy --threads 2 --trace trace.json
    same y.npy want.npy
    for step in ModelInit SubgraphInit RequestInit SubgraphExecute ModelExecute Wait; do
        n=$((n + 1)); grep -q "\"name\":\"$step\"" trace.json || wrong "no $step in the trace of $d"
    done
done
exits 0 "$quern" run dep/net -i x.npy --trace trace.json --profile
n=$((n + 1)); grep -q '"name":"LayerExecute"' trace.json || wrong "no LayerExecute"
exits 0 "$quern" run dep/net -i x.npy --trace chart.svg
n=$((n + 1)); [ "$(grep -c '<rect' chart.svg)" -eq 3 ] || wrong "chart without two bars"
exits 0 "$quern" run dep/net --bench --requests 2 --timeout 200ms --set N=100 --json
says '"overlapped_ms":'
says 'Subgraph_1'
exits 2 "$quern" run dep/net -i x.npy --place X64:0=interp
says "'interp' is a device of interp"
exits 2 "$quern" run dep/net -i x.npy --place NVIDIA:0=cuda
says "no sub-graph is for device 'NVIDIA:0'"
exits 2 "$quern" run net.dnx -i x.npy --fallback
says 'fallback is for deployments'
exits 2 "$quern" run dep/net
says 'no input'
exits 2 "$quern" run dep/net -i x.npy --device cpu
says '--device does not apply'
exits 2 "$quern" run dep/net -i x.npy --profile
says 'written by --trace'

exits 0 "$quern" show dep/net
says "^input tensor_0: f32\[N\], 'x' in the network"
says '^Subgraph_1: device X64:1, native'
says '^not signed'
exits 0 "$quern" show net.packed
says '^Subgraph_1: device X64:1, native'
for f in dep/net/Subgraph_0/*.meta; do
    exits 0 "$quern" show "$f"
    says '^code.0: Subgraph_0/'
    says '"dispatches"'
done

exits 0 "$quern" key new me
exits 0 "$quern" sign dep/net --key me.key
exits 0 "$quern" sign net.packed --key me.key -o signed.packed
exits 0 "$quern" show dep/net
says '^signed by key'
for d in dep/net signed.packed; do
    exits 1 "$quern" run "$d" -i x.npy --require-signature
    says 'none of the 0 trusted keys'
    exits 0 "$quern" run "$d" -i x.npy -o y.npy --require-signature --trusted me.pub
    same y.npy want.npy
done
exits 1 "$quern" run net.packed -i x.npy --require-signature --trusted me.pub
says 'not signed'
cp -r dep/net bad
for f in bad/Subgraph_0/*.so; do printf 'x' >> "$f"; done
exits 1 "$quern" run bad -i x.npy
says 'Subgraph_0/.*.so. has .* bytes, model.meta says'
exits 1 "$quern" sign bad --key me.key
says '.so'
head -c 100 dep/net/model.meta > bad/model.meta
exits 1 "$quern" run bad -i x.npy
says 'model.meta'

if grep -q -e __asan_init -e __tsan_init "$build/libquern_rt.so"; then
    echo "skipped: a library with sanitizers cannot be loaded into a program without"
elif ! command -v c++ > /dev/null; then
    echo "skipped: no C++ compiler"
else
    exits 0 c++ -std=c++17 -Wall -Wextra -Werror -O1 -I"$include" "$here/requests.cpp" -o requests -L"$build" -lquern_rt -Wl,-rpath,"$build" -lpthread
    exits 0 ./requests dep/net
    says '^ok'
fi
finish
