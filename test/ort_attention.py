#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""ort_attention.py QUERN DIR [COUNT [SEED]]: random uses of the attention operators of ai.onnx and com.microsoft, compiled by QUERN, against ONNX Runtime.

Each instance draws every option of its operator that ONNX Runtime's CPU provider has: forms of queries, keys and values, biases, masks of all kinds, past and
present, a rotary embedding inside, windows, softcaps, sinks, scales. Those that ONNX Runtime refuses are counted and left out. Writes them to DIR in the
layout that `quern verify --suite` reads. Needs the packages onnx and onnxruntime.
"""
import collections
import os
import shutil
import subprocess
import sys

import numpy as np
import onnxruntime as ort
from onnx import TensorProto, helper, numpy_helper

from onnx_cases import write, write_set

MS = "com.microsoft"
rng = np.random.default_rng(int(sys.argv[4]) if len(sys.argv) > 4 else 1)


def pick(lo, hi):
    return int(rng.integers(lo, hi + 1))


def maybe(one_in=2):
    return pick(1, one_in) == 1


def f(*shape):
    return (rng.random(shape) * 4 - 2).astype(np.float32)


class Const:
    """A constant of the model; a plain array is an input."""

    def __init__(self, x):
        self.x = x


def attention():
    """ai.onnx: ranks 3 and 4, heads that share keys, past, boolean and additive masks, lengths (opset 24)."""
    b, hk, sq, sk, past = pick(1, 2), pick(1, 3), pick(1, 7), pick(1, 9), pick(1, 5)
    hq, d, dv = hk * pick(1, 3), 4 * pick(1, 4), 4 * pick(1, 4)
    packed, cached = maybe(), maybe()
    opset = pick(23, 24)
    at = {"is_causal": int(maybe())}
    if maybe():
        at["scale"] = 0.3
    if maybe(3):
        at["softcap"] = 1.5
    if packed:
        at.update(q_num_heads=hq, kv_num_heads=hk)
        ins = [f(b, sq, hq * d), f(b, sk, hk * d), f(b, sk, hk * dv)]
    else:
        ins = [f(b, hq, sq, d), f(b, hk, sk, d), f(b, hk, sk, dv)]
    total = sk + past if cached else sk
    mask = None
    if maybe():
        shape = [[sq, total], [1, 1, sq, total], [b, hq, sq, total], [b, 1, sq, total]][pick(0, 3)]
        mask = f(*shape) if maybe() else rng.random(shape) < 0.7
        if mask.dtype == np.bool_:
            mask[..., 0] = True  # no row is without a key
    ins += [mask] + ([f(b, hk, past, d), f(b, hk, past, dv)] if cached else [None, None])
    return "Attention", "", opset, ins, 3 if cached else 1, at, None


def mask_of(b, s, t):
    kind = pick(0, 3)
    if kind == 0:
        return None
    if kind == 1:
        return np.array([pick(1, t) for _ in range(b)], np.int32)
    m = rng.integers(0, 2, (b, t) if kind == 2 else (b, s, t)).astype(np.int32)
    m[..., 0] = 1
    return m


def merged():
    """Attention: projection, masks, past."""
    b, s, h, d, c, p = pick(1, 2), pick(1, 6), pick(1, 3), 4 * pick(1, 4), 4 * pick(1, 4), pick(1, 5)
    past = maybe()
    t = s + p if past else s
    at = {"num_heads": h, "unidirectional": int(maybe())}
    if maybe(3):
        at["scale"] = 0.3
    if maybe(3):
        at["mask_filter_value"] = -500.0
    if maybe(3) and not past:
        at["qkv_hidden_sizes"] = [h * d, h * d, h * 4]
    columns = sum(at["qkv_hidden_sizes"]) if "qkv_hidden_sizes" in at else 3 * h * d
    ins = [f(b, s, c), Const(f(c, columns)), Const(f(columns)), mask_of(b, s, t), f(2, b, h, p, d) if past else None,
           f(b, h, s, t) if maybe(3) else None]
    return "Attention", MS, 18, ins, 2 if past else 1, at, None


def multi():
    """MultiHeadAttention: apart, by heads, packed; bias, masks, past."""
    b, s, l, h, d, p = pick(1, 2), pick(1, 6), pick(1, 8), pick(1, 3), 4 * pick(1, 4), pick(1, 5)
    form = pick(0, 3)
    past = form == 0 and maybe()
    at = {"num_heads": h}
    if past or form == 3:
        l = s
    if form == 0 and maybe():
        l, at["unidirectional"] = s, 1
    if maybe(3):
        at["scale"] = 0.3
    t = l + p if past else l
    dv = d if past or form else 4 * pick(1, 4)
    ins = [[f(b, s, h * d), f(b, l, h * d), f(b, l, h * dv)], [f(b, s, h * d), f(b, h, l, d), f(b, h, l, d)], [f(b, s, h * d), f(b, l, h, 2, d), None],
           [f(b, s, h, 3, d), None, None]][form]
    ins += [Const(f(2 * h * d + h * dv)) if form == 0 and maybe() else None, mask_of(b, s, t), f(b if maybe() else 1, h, s, t) if maybe(3) else None]
    ins += [f(b, h, p, d), f(b, h, p, d)] if past else [None, None]
    return "MultiHeadAttention", MS, 18, ins, 3 if past else 1, at, None


def group():
    """GroupQueryAttention: prompts, single tokens of sequences of different lengths, chunks; rotation, windows, softcap, sinks, bias."""
    hk, d, step = pick(1, 3), 16 * pick(1, 2), pick(0, 2)
    h = hk * pick(1, 3)
    b = 1 if step == 2 else pick(1, 3)
    s = pick(1, 7) if step == 0 else 1 if step == 1 else pick(2, 4)
    at = {"num_heads": h, "kv_num_heads": hk}
    if step == 0:
        room, last = 0, [s - 1] * b
    else:
        room = pick(s, 9)
        last = [pick(s - 1 if step == 1 else s, room + (s if maybe() else 0) - 1) for _ in range(b)] if room > s else [room + s - 1] * b
    total = max(last) + 1
    if maybe(3):
        at["local_window_size"] = pick(1, 5)
    if maybe(3):
        at["softcap"] = 1.5
    if maybe(3):
        at["scale"] = 0.3
    sink = maybe(3)
    if not sink and maybe(3):
        at["smooth_softmax"] = 1
    rotary = maybe()
    table = [f(24, d // 2), f(24, d // 2)] if rotary else [None, None]
    if rotary:
        at.update(do_rotary=1, rotary_interleaved=int(maybe()))
    ids = None
    if rotary and maybe(3):
        ids = np.array([[x + 1 - s + i if step else i for i in range(s)] for x in last], np.int64)
    bias = f(1 if maybe() else b, h if maybe() else 1, s, total) if maybe(4) and total >= room else None
    qkv = [f(b, s, (h + 2 * hk) * d), None, None] if maybe() else [f(b, s, h * d), f(b, s, hk * d), f(b, s, hk * d)]
    cache = [f(b, hk, room, d), f(b, hk, room, d)] if step else [None, None]
    ins = qkv + cache + [np.array(last, np.int32), Const(np.array(total, np.int32))] + table + [ids, bias, f(h) if sink else None]
    # what a cache has behind its valid rows is not specified
    whole = all(x + 1 == total for x in last) and total >= room
    return "GroupQueryAttention", MS, 18, ins, 3, at, None if whole else 1


def rotary():
    """RotaryEmbedding."""
    b, s, h, half = pick(1, 2), pick(1, 5), pick(1, 3), pick(1, 4)
    ids = rng.integers(0, 9, (b, s)).astype(np.int64) if maybe() else np.array([pick(0, 3)], np.int64)
    x = f(b, h, s, 2 * half) if maybe() else f(b, s, h * 2 * half)
    return "RotaryEmbedding", MS, 18, [x, ids, f(9, half), f(9, half)], 1, {"interleaved": int(maybe())}, None


def build(op, domain, opset, ins, n_out, attributes):
    names, infos, consts, feeds = [], [], [], {}
    for k, x in enumerate(ins):
        names.append("" if x is None else "x%d" % k)
        if isinstance(x, Const):
            consts.append(numpy_helper.from_array(x.x, names[-1]))
        elif x is not None:
            infos.append(helper.make_tensor_value_info(names[-1], helper.np_dtype_to_tensor_dtype(x.dtype), x.shape))
            feeds[names[-1]] = x
    while names[-1] == "":
        names.pop()
    outs = ["y%d" % k for k in range(n_out)]
    node = helper.make_node(op, names, outs, name="node", domain=domain, **attributes)
    graph = helper.make_graph([node], "net", infos, [helper.make_empty_tensor_value_info(o) for o in outs], consts)
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid(MS, 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10), feeds


def add_case(path, op, domain, opset, ins, n_out, attributes, keep):
    """None, or why ONNX Runtime does not run it."""
    model, feeds = build(op, domain, opset, ins, n_out, attributes)
    opts = ort.SessionOptions()
    opts.log_severity_level = 4
    opts.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    try:
        want = ort.InferenceSession(model.SerializeToString(), opts, providers=["CPUExecutionProvider"]).run(None, feeds)
    except Exception as e:
        return str(e).strip().split("\n")[0][-160:]
    want = want[:keep] if keep else want
    infos = [helper.make_tensor_value_info("y%d" % k, TensorProto.FLOAT, x.shape) for k, x in enumerate(want)]
    del model.graph.output[:]
    model.graph.output.extend(infos)
    write(path + "/model.onnx", model.SerializeToString())
    write_set(path + "/test_data_set_0", model.graph, list(feeds.values()), want)
    return None


def main():
    quern, out = sys.argv[1:3]
    count = int(sys.argv[3]) if len(sys.argv) > 3 else 100
    kinds = [attention, merged, multi, group, group, rotary]
    refused = collections.Counter()
    shutil.rmtree(out, ignore_errors=True)
    for i in range(count):
        kind = kinds[i % len(kinds)]
        why = add_case("%s/%s-%03d" % (out, kind.__name__, i), *kind())
        if why:
            refused[kind.__name__ + ": " + why] += 1
    for why, n in sorted(refused.items()):
        print("%d refused by ONNX Runtime: %s" % (n, why))
    print("%d instances" % (count - sum(refused.values())))
    sys.stdout.flush()
    sys.exit(subprocess.run([quern, "verify", "--suite", out], check=False).returncode)


if __name__ == "__main__":
    main()
