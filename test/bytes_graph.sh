# SPDX-License-Identifier: Apache-2.0
# bytes_graph.sh: shared by shell tests that export programs in C. Writes bytes.graph, a network in 8 bits as quantisers write it: a convolution of each kind,
# an addition of two quantised values, a mean.
# shellcheck shell=sh
weights() { awk -v n="$1" 'BEGIN { for (i = 0; i < n; i++) printf "%s%d", i ? ", " : "", i * 37 % 117 - 58 }'; }
scales() { awk -v n="$1" 'BEGIN { for (i = 0; i < n; i++) printf "%s%.4f", i ? ", " : "", 0.003 + i * 0.0004 }'; }
cat > bytes.graph <<X
graph {
  input %x: f32[1,4,9,8]
  const %s: f32[] = [0.02]
  const %z: u8[] = [117]
  const %w: i8[8,4,3,3] = [$(weights 288)]
  const %ws: f32[8] = [$(scales 8)]
  const %cs: f32[] = [0.021]
  const %cz: u8[] = [130]
  const %v: i8[8,8,1,1] = [$(weights 64)]
  const %u: i8[8,1,3,3] = [$(weights 72)]
  const %as: f32[] = [0.043]
  const %az: u8[] = [120]
  %xq: u8[1,4,9,8] = QuantizeLinear "xq"(%x, %s, %z)
  %xd: f32[1,4,9,8] = DequantizeLinear "xd"(%xq, %s, %z)
  %wd: f32[8,4,3,3] = DequantizeLinear "wd"(%w, %ws) {axis=0}
  %vd: f32[8,8,1,1] = DequantizeLinear "vd"(%v, %ws) {axis=0}
  %ud: f32[8,1,3,3] = DequantizeLinear "ud"(%u, %ws) {axis=0}
  %c: f32[1,8,9,8] = Conv "c"(%xd, %wd) {kernel_shape=[3,3], pads=[1,1,1,1]}
  %cq: u8[1,8,9,8] = QuantizeLinear "cq"(%c, %cs, %cz)
  %cd: f32[1,8,9,8] = DequantizeLinear "cd"(%cq, %cs, %cz)
  %p: f32[1,8,9,8] = Conv "p"(%cd, %vd) {kernel_shape=[1,1]}
  %pq: u8[1,8,9,8] = QuantizeLinear "pq"(%p, %cs, %cz)
  %pd: f32[1,8,9,8] = DequantizeLinear "pd"(%pq, %cs, %cz)
  %a: f32[1,8,9,8] = Add "a"(%pd, %cd)
  %aq: u8[1,8,9,8] = QuantizeLinear "aq"(%a, %as, %az)
  %ad: f32[1,8,9,8] = DequantizeLinear "ad"(%aq, %as, %az)
  %d: f32[1,8,9,8] = Conv "d"(%ad, %ud) {kernel_shape=[3,3], pads=[1,1,1,1], group=8}
  %dq: u8[1,8,9,8] = QuantizeLinear "dq"(%d, %as, %az)
  %dd: f32[1,8,9,8] = DequantizeLinear "dd"(%dq, %as, %az)
  %g: f32[1,8,1,1] = GlobalAveragePool "g"(%dd)
  %gq: u8[1,8,1,1] = QuantizeLinear "gq"(%g, %s, %z)
  %mean: f32[1,8,1,1] = DequantizeLinear "mean"(%gq, %s, %z)
  output %dd
  output %mean
}
X
