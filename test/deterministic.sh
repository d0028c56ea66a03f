#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# deterministic.sh BUILD: programs with a guaranteed order of sums (doc/deterministic.md) yield the
# same bits for a sample in any batch, with any number of threads, sizes to optimise for, fusion,
# and measured schedules.
. "$(dirname "$0")/common.sh"
at_once=1
cd "$dir" || exit 1

# numbers COUNT SEED: that many in (-1, 1), separated by commas
numbers() { awk -v n="$1" -v s="$2" 'BEGIN { for (i = 0; i < n; i++) { s = (s * 1103515245 + 12345) % 2147483648; printf "%s%.6f", i ? ", " : "", s / 1073741824 - 1 } }'; }

# A convolution of each kind of order, a mean, averages of windows, a sum over many terms with few results, a softmax.
cat > net.graph << END
graph {
  input %bytes: u8[N,3,20,24]
  const %w1: f32[8,3,5,5] = [$(numbers 600 1)]
  const %b1: f32[8] = [$(numbers 8 2)]
  const %w2: f32[16,8,3,3] = [$(numbers 1152 3)]
  const %w3: f32[12,16,1,1] = [$(numbers 192 4)]
  const %w4: f32[2880,8] = [$(numbers 23040 5)]
  const %scale: f32[1] = [0.0234375]
  const %flat: i64[2] = [-1, 2880]
  %cast: f32[N,3,20,24] = Cast "cast"(%bytes) {to=1}
  %x: f32[N,3,20,24] = Mul "x"(%cast, %scale)
  %c1: f32[N,8,20,24] = Conv "c1"(%x, %w1, %b1) {group=1, pads=[2,2,2,2]}
  %r1: f32[N,8,20,24] = Relu "r1"(%c1)
  %c2: f32[N,16,20,24] = Conv "c2"(%r1, %w2, _) {group=1, pads=[1,1,1,1]}
  %m2: f32[N,16,1,1] = ReduceMean "m2"(%c2) {axes=[2,3], keepdims=1}
  %s2: f32[N,16,20,24] = Sub "s2"(%c2, %m2)
  %p2: f32[N,16,10,12] = MaxPool "p2"(%s2) {kernel_shape=[2,2], strides=[2,2]}
  %c3: f32[N,12,10,12] = Conv "c3"(%p2, %w3, _) {group=1}
  %a3: f32[N,12,10,12] = AveragePool "a3"(%c3) {kernel_shape=[3,3], pads=[1,1,1,1]}
  %u3: f32[N,12,20,12] = Concat "u3"(%c3, %a3) {axis=2}
  %f3: f32[N,2880] = Reshape "f3"(%u3, %flat)
  %z: f32[N,8] = MatMul "z"(%f3, %w4)
  %y: f32[N,8] = Softmax "y"(%z) {axis=-1}
  output %y
  output %z
}
END

# Three samples of 1440 bytes, any text, alone and together.
tail -c 4320 net.graph > all.u8.raw
for i in 1 2 3; do tail -c +$((1440 * (i - 1) + 1)) all.u8.raw | head -c 1440 > $i.u8.raw; done

# together FILE ARGUMENTS: all outputs of the three samples in one batch, concatenated in FILE; alone: of each by itself.
run() { exits 0 "$quern" run "$@"; }
together() { to=$1; shift; run "$@" -i all.u8.raw -o y=y.raw -o z=z.raw; cat y.raw z.raw > "$to"; }
alone() {
    to=$1; shift
    for i in 1 2 3; do run "$@" -i $i.u8.raw -o y=y$i.raw -o z=z$i.raw; done
    cat y1.raw y2.raw y3.raw z1.raw z2.raw z3.raw > "$to"
}

d=--deterministic
together want net.graph $d --untuned --threads 1
[ "$(wc -c < want)" -eq 192 ] || fail "outputs of $(wc -c < want) bytes instead of 192"
together threads net.graph $d --untuned --threads 2;              same want threads
alone batch net.graph $d --untuned --threads 1;                   same want batch
alone both net.graph $d --untuned --threads 2 --assume N=1;       same want both
together large net.graph $d --untuned --optimize-for N=64;        same want large
together unfused net.graph $d --untuned --no-fusion --threads 2;  same want unfused
exits 0 "$quern" tune net.graph $d --db t.db -o t.dnx --optimize-for N=2 --timeout 10s
together tuned t.dnx --threads 2;                                 same want tuned
alone tuned1 t.dnx --threads 1;                                   same want tuned1

# The test can fail: without the option they are not all the same.
together free net.graph --untuned --threads 1
alone free1 net.graph --untuned --threads 2
if cmp -s free free1 && cmp -s want free; then fail "the network is no test: its bits are the same without the option"; fi

exits 0 "$quern" verify net.graph $d --exact --untuned; silent DIFFERS
finish
