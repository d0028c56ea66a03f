#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes test/golden/ort: one small model per use of an operator of com.microsoft or ai.onnx.ml, of a recurrent layer, or of control flow, with its inputs and what
ONNX Runtime computed of them as initializers "in:NAME" and "want:NAME" (test_ort.c reads them).

    ort_cases.py DIR [GLOB]      needs onnx and onnxruntime
"""
import fnmatch, os, sys

import numpy as np
import onnx
import onnx.parser
import onnxruntime as ort
from onnx import helper, numpy_helper

MS, ML = "com.microsoft", "ai.onnx.ml"
F, H, U8, I8, I32, I64, B = np.float32, np.float16, np.uint8, np.int8, np.int32, np.int64, np.bool_
rng = np.random.default_rng(1)
out_dir, glob = sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else "*"
written = failed = 0


def f(*shape, t=F, lo=-2, hi=2):
    return (rng.random(shape) * (hi - lo) + lo).astype(t)


def q(*shape, t=U8, lo=None, hi=None):
    i = np.iinfo(t)
    return rng.integers(i.min if lo is None else lo, (i.max if hi is None else hi) + 1, shape).astype(t)


def i(*shape, hi=8, lo=0, t=I64):
    return rng.integers(lo, hi, shape).astype(t)


def s(x, t=F):
    return np.array(x, t)


class C:
    """A constant of the model; a plain array is an input."""

    def __init__(self, x):
        self.x = x


def run(name, model, feeds):
    """The results of ONNX Runtime for the model; None: it cannot run it."""
    global failed
    opts = ort.SessionOptions()
    opts.log_severity_level = 4
    opts.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    try:
        return ort.InferenceSession(model.SerializeToString(), opts, providers=["CPUExecutionProvider"]).run(None, feeds)
    except Exception as e:
        print("cannot run %s: %s" % (name, str(e).strip().split("\n")[0][:300]))
        failed += 1


def case(name, op, ins, n_out=1, domain=MS, onnx_opset=18, ml=3, keep=None, tolerance=None, **attrs):
    """ins: arrays, C(array), None. n_out: number of outputs, or a list of bool. keep: a slice of
    the compared ones."""
    global written
    if not fnmatch.fnmatch(name, glob):
        return
    rng_state = rng.bit_generator.state
    names, inputs, consts, feeds = [], [], [], {}
    for k, x in enumerate(ins):
        if x is None:
            names.append("")
            continue
        names.append("x%d" % k)
        if isinstance(x, C):
            consts.append(numpy_helper.from_array(x.x, names[-1]))
        else:
            inputs.append(helper.make_tensor_value_info(names[-1], helper.np_dtype_to_tensor_dtype(x.dtype), x.shape))
            feeds[names[-1]] = x
    want = [True] * n_out if isinstance(n_out, int) else n_out
    outs = ["y%d" % k if w else "" for k, w in enumerate(want)]
    node = helper.make_node(op, names, outs, name="node", domain=domain, **attrs)
    infos = [helper.make_empty_tensor_value_info(o) for o in outs if o]
    graph = helper.make_graph([node], name, inputs, infos, consts)
    opsets = [helper.make_opsetid("", onnx_opset), helper.make_opsetid(MS, 1), helper.make_opsetid(ML, ml)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=9)
    got = run(name, model, feeds)
    if got is None:
        return
    if keep:
        outs, got = outs[keep], got[keep]
    shown = [o for o in outs if o]
    del model.graph.output[:]
    model.graph.output.extend(helper.make_tensor_value_info(o, helper.np_dtype_to_tensor_dtype(v.dtype), v.shape)
                              for o, v in zip(shown, got))
    model.graph.initializer.extend(numpy_helper.from_array(v, "in:" + k) for k, v in feeds.items())
    model.graph.initializer.extend(numpy_helper.from_array(v, "want:" + o) for o, v in zip(shown, got))
    if tolerance:
        model.graph.initializer.append(numpy_helper.from_array(np.array(tolerance), "tolerance"))
    with open(os.path.join(out_dir, name + ".onnx"), "wb") as out:
        out.write(model.SerializeToString())
    written += 1


# Fused products.
for act, par in [("Relu", None), ("Clip", [-0.5, 1.5]), ("LeakyRelu", [0.2]), ("HardSigmoid", [0.3, 0.4]), ("Tanh", None)]:
    kw = {"activation_params": par} if par else {}
    case("fused_conv_" + act.lower(), "FusedConv", [f(1, 2, 4, 5), C(f(3, 2, 3, 3)), C(f(3))], activation=act,
         pads=[1, 1, 1, 1], **kw)
case("fused_conv_sum", "FusedConv", [f(1, 2, 4, 5), C(f(3, 2, 1, 1)), C(f(3)), f(1, 3, 4, 5)], activation="Relu")
case("fused_conv_group", "FusedConv", [f(1, 4, 4, 5), C(f(4, 1, 3, 3))], group=4, strides=[2, 2])
for ta in (0, 1):
    for tb in (0, 1):
        a = f(2, 4, 3) if ta else f(2, 3, 4)
        b = f(2, 5, 4) if tb else f(2, 4, 5)
        case("fused_matmul_%d%d" % (ta, tb), "FusedMatMul", [a, b], transA=ta, transB=tb, alpha=0.5)
case("fused_matmul_batch_a", "FusedMatMul", [f(3, 2, 4), f(2, 4, 5)], transBatchA=1)
case("fused_matmul_batch_a_t", "FusedMatMul", [f(4, 2, 3), f(2, 4, 5)], transBatchA=1, transA=1)
case("fused_matmul_batch_b_t", "FusedMatMul", [f(2, 3, 4), f(5, 2, 4)], transBatchB=1, transB=1)
case("transpose_matmul", "TransposeMatMul", [f(3, 4), f(5, 4)], transB=1, alpha=2.0)
case("fused_gemm", "FusedGemm", [f(3, 4), f(5, 4), f(5)], transB=1, alpha=0.5, beta=2.0, activation="Relu")
case("fused_gemm_leaky", "FusedGemm", [f(3, 4), f(4, 5)], activation="LeakyRelu", activation_alpha=0.3)

# Activations.
case("gelu", "Gelu", [f(3, 4)])
case("bias_gelu", "BiasGelu", [f(3, 4), f(4)])
case("fast_gelu", "FastGelu", [f(3, 4)])
case("fast_gelu_bias", "FastGelu", [f(2, 3, 4), f(4)])
case("quick_gelu", "QuickGelu", [f(3, 4)], alpha=1.5)
case("scaled_silu", "ScaledSiLU", [f(3, 4)], alpha=1.5)
case("trilu", "Trilu", [f(3, 4), C(s(1, I64))], upper=0)

# Normalisations.
SKIP = [f(2, 3, 8), f(2, 3, 8), f(8)]
case("skip_layer_norm", "SkipLayerNormalization", SKIP + [f(8), f(8)], [True, False, False, True])
case("skip_layer_norm_plain", "SkipLayerNormalization", SKIP, epsilon=1e-3)
case("skip_layer_norm_broadcast", "SkipLayerNormalization", [f(2, 3, 8), f(3, 8), f(8), f(8)])
case("skip_simplified", "SkipSimplifiedLayerNormalization", SKIP + [f(8)], [True, False, False, True])
case("simplified", "SimplifiedLayerNormalization", [f(2, 3, 8), f(8)], domain="", epsilon=1e-6)
WORDS = [C(f(9, 8)), C(f(6, 8)), C(f(2, 8)), f(8), f(8)]
IDS = [i(2, 3, hi=9, t=I32), i(2, 3, hi=2, t=I32)]
case("embed_layer_norm", "EmbedLayerNormalization", IDS + WORDS + [i(2, 3, hi=2, t=I32)], 2, mask_index_type=1)
case("embed_layer_norm_sum", "EmbedLayerNormalization", IDS + WORDS + [None, i(2, 3, hi=6, t=I32)], [True, False, True],
     mask_index_type=0)
case("embed_layer_norm_no_segments", "EmbedLayerNormalization",
     [IDS[0], None, WORDS[0], WORDS[1], None, f(8), f(8)], 2, mask_index_type=1)

# Quantised operators.
def qp(scale, zero, t=U8):
    return [C(s(scale)), C(s(zero, t))]


case("qlinear_add", "QLinearAdd", [q(2, 3, 4), *qp(0.1, 100), q(3, 4), *qp(0.05, 30), *qp(0.2, 90)])
case("qlinear_add_i8", "QLinearAdd", [q(3, 4, t=I8), *qp(0.1, 3, I8), q(3, 4, t=I8), *qp(0.05, -3, I8), *qp(0.2, 9, I8)])
case("qlinear_mul", "QLinearMul", [q(2, 3, 4), *qp(0.1, 100), q(3, 4), *qp(0.05, 30), *qp(0.3, 90)])
case("qlinear_concat", "QLinearConcat", [*qp(0.1, 90), q(2, 3), *qp(0.1, 90), q(2, 4), *qp(0.2, 30)], axis=1)
case("qlinear_where", "QLinearWhere", [np.array([[True, False, True]]), q(2, 3), *qp(0.1, 90), q(2, 3), *qp(0.2, 30),
                                       *qp(0.15, 60)])
POOL = [q(1, 3, 5, 6), *qp(0.1, 90), *qp(0.08, 60)]
case("qlinear_average_pool", "QLinearAveragePool", POOL, kernel_shape=[3, 3], pads=[1, 1, 1, 1], strides=[2, 2])
case("qlinear_average_pool_last", "QLinearAveragePool", POOL, kernel_shape=[2, 2], channels_last=1)
case("qlinear_average_pool_count", "QLinearAveragePool", POOL, kernel_shape=[3, 3], pads=[1, 1, 1, 1], count_include_pad=1)
case("qlinear_global_average_pool", "QLinearGlobalAveragePool", POOL)
case("qlinear_global_average_pool_last", "QLinearGlobalAveragePool", POOL, channels_last=1)
case("qlinear_leaky_relu", "QLinearLeakyRelu", POOL, alpha=0.2)
case("qlinear_sigmoid", "QLinearSigmoid", [q(3, 4), *qp(0.03, 128), *qp(1 / 256, 0)])
case("qlinear_softmax", "QLinearSoftmax", [q(3, 4), *qp(0.03, 128), *qp(1 / 256, 0)], axis=-1, opset=13)
case("qlinear_softmax_old", "QLinearSoftmax", [q(3, 2, 4), *qp(0.03, 128), *qp(1 / 256, 0)], axis=1, opset=12)
QCONV = [*qp(0.02, 120), C(q(4, 3, 3, 3, t=I8)), C(f(4, lo=0.01, hi=0.03)), C(q(4, t=I8, lo=0, hi=0)), *qp(0.5, 100),
         C(i(4, lo=-999, hi=999, t=I32))]
case("qlinear_conv", "QLinearConv", [q(1, 3, 5, 6)] + QCONV, pads=[1, 1, 1, 1])
case("qlinear_conv_last", "QLinearConv", [q(1, 5, 6, 3)] + QCONV, pads=[1, 1, 1, 1], channels_last=1)
case("quantize_linear", "QuantizeLinear", [f(3, 4), C(f(3, lo=0.01, hi=0.1)), C(q(3))], axis=0)
case("dequantize_linear", "DequantizeLinear", [q(3, 4), C(f(3, lo=0.01, hi=0.1)), C(q(3))], axis=0)

# Quantised products.
case("matmul_integer_to_float", "MatMulIntegerToFloat",
     [q(3, 4), C(q(4, 5, t=I8)), s(0.1), C(f(5, lo=0.01, hi=0.1)), s(100, U8), C(q(5, t=I8)), C(f(5))])
case("matmul_integer_to_float_plain", "MatMulIntegerToFloat", [q(3, 4, t=I8), q(4, 5, t=I8), s(0.1), s(0.2)])
case("matmul_integer_to_float_batch", "MatMulIntegerToFloat",
     [q(2, 3, 4), q(4, 5), s(0.1), s(0.2), None, s(7, U8), f(5)])
case("dynamic_quantize_matmul", "DynamicQuantizeMatMul",
     [f(3, 4), C(q(4, 5, t=I8)), C(f(5, lo=0.01, hi=0.1)), C(q(5, t=I8)), C(f(5))])
case("dynamic_quantize_matmul_u8", "DynamicQuantizeMatMul", [f(2, 3, 4), q(4, 5), s(0.1), s(120, U8)])
QGEMM = [q(3, 4), *qp(0.1, 100), C(q(5, 4, t=I8)), C(f(5, lo=0.01, hi=0.1)), C(q(5, t=I8)), C(i(5, lo=-99, hi=99, t=I32))]
case("qgemm", "QGemm", QGEMM + qp(0.5, 120), transB=1, alpha=0.5)
case("qgemm_float", "QGemm", QGEMM, transB=1)
case("qgemm_plain", "QGemm", [q(4, 3), *qp(0.1, 100), q(4, 5), *qp(0.2, 9), None] + qp(0.5, 120), transA=1)

# Weights of a few bits.
for bits in (2, 4, 8):
    n, k, block = 5, 40, 16
    blocks = (k + block - 1) // block
    W = [f(3, k), C(q(n, blocks, block * bits // 8)), C(f(n, blocks, lo=0.01, hi=0.1))]
    kw = dict(N=n, K=k, bits=bits, block_size=block)
    case("matmul_nbits_%d" % bits, "MatMulNBits", W, **kw)
    case("matmul_nbits_%d_zero" % bits, "MatMulNBits", W + [C(q(n, (blocks * bits + 7) // 8))], **kw)
    case("matmul_nbits_%d_bias" % bits, "MatMulNBits", W + [None, None, C(f(n))], **kw)
    T = [C(q(6, 2 * 16 * bits // 8)), i(2, 2, hi=6), C(f(6, 2, lo=0.1, hi=0.5))]
    kw = dict(bits=bits, block_size=16, gather_axis=0, quantize_axis=1)
    case("gather_block_quantized_%d" % bits, "GatherBlockQuantized", T, **kw)
    case("gather_block_quantized_%d_zero" % bits, "GatherBlockQuantized", T + [C(q(6, (2 * bits + 7) // 8))], **kw)
case("matmul_nbits_float_zero", "MatMulNBits", [f(2, 32), C(q(3, 1, 16)), C(f(3, 1)), C(f(3, 1, lo=0, hi=15))], N=3, K=32,
     bits=4, block_size=32)
for kind in (0, 1):
    case("matmul_bnb4_%d" % kind, "MatMulBnb4", [f(3, 24), C(q(5 * 24 // 2)), C(f((5 * 24 + 15) // 16))], N=5, K=24,
         block_size=16, quant_type=kind)

# Attention. The content of a cache after its valid part is not specified.
X = [f(2, 3, 8), C(f(8, 24)), C(f(24))]
case("attention", "Attention", X, num_heads=2)
case("attention_mask", "Attention", X + [i(2, 3, hi=2, t=I32)], num_heads=2)
case("attention_mask_3d", "Attention", X + [i(2, 3, 3, hi=2, t=I32)], num_heads=2, mask_filter_value=-500.0)
case("attention_lengths", "Attention", X + [np.array([2, 3], I32)], num_heads=2)
case("attention_left_pad", "Attention", X + [np.array([3, 3, 1, 0], I32)], num_heads=2)
case("attention_causal", "Attention", X, num_heads=2, unidirectional=1)
case("attention_past", "Attention", X + [None, f(2, 2, 2, 4, 4)], 2, num_heads=2, unidirectional=1)
case("attention_past_mask", "Attention", X + [i(2, 7, hi=2, t=I32), f(2, 2, 2, 4, 4)], 2, num_heads=2, unidirectional=1)
case("attention_bias", "Attention", X + [None, None, f(1, 2, 3, 3)], num_heads=2, scale=0.3)
case("attention_sizes", "Attention", [f(2, 3, 8), C(f(8, 22)), C(f(22))], num_heads=2, qkv_hidden_sizes=[8, 8, 6])
QX = [q(2, 3, 8), C(q(8, 24, t=I8)), C(f(24)), C(s(0.02)), C(s(0.01))]
case("qattention", "QAttention", QX + [np.array([2, 3], I32), C(s(128, U8)), C(s(3, I8))], num_heads=2)
case("qattention_past", "QAttention", QX + [None, C(s(128, U8)), None, f(2, 2, 2, 4, 4)], 2, num_heads=2, unidirectional=1)
QKV = [f(2, 3, 8), f(2, 4, 8), f(2, 4, 8)]
case("mha", "MultiHeadAttention", QKV, num_heads=2)
case("mha_bias", "MultiHeadAttention", QKV + [C(f(24))], num_heads=2, scale=0.3)
case("mha_mask", "MultiHeadAttention", QKV + [None, i(2, 4, hi=2, t=I32)], num_heads=2)
case("mha_lengths", "MultiHeadAttention", QKV + [None, np.array([2, 4], I32)], num_heads=2)
case("mha_scores", "MultiHeadAttention", QKV + [None, None, f(1, 2, 3, 4)], num_heads=2)
case("mha_cross", "MultiHeadAttention", [f(2, 3, 8), f(2, 2, 4, 4), f(2, 2, 4, 4)], num_heads=2)
case("mha_past", "MultiHeadAttention", [f(2, 1, 8), f(2, 1, 8), f(2, 1, 8), None, None, None, f(2, 2, 3, 4), f(2, 2, 3, 4)], 3,
     num_heads=2)
case("mha_causal", "MultiHeadAttention", [f(2, 3, 8), f(2, 3, 8), f(2, 3, 8)], num_heads=2, unidirectional=1)
case("mha_value_size", "MultiHeadAttention", [f(2, 3, 8), f(2, 4, 8), f(2, 4, 6)], num_heads=2)
TAB = [f(16, 8, lo=-1, hi=1), f(16, 8, lo=-1, hi=1)]


def gqa(name, b, n, past, last, total=None, packed=False, ins=(), h=4, hk=2, d=16, **kw):
    total = total or past + n
    qkv = [f(b, n, (h + 2 * hk) * d), None, None] if packed else [f(b, n, h * d), f(b, n, hk * d), f(b, n, hk * d)]
    cache = [f(b, hk, past, d), f(b, hk, past, d)] if past else [None, None]
    case(name, "GroupQueryAttention", qkv + cache + [np.array(last, I32), C(s(total, I32))] + list(ins), 3, num_heads=h,
         kv_num_heads=hk, **kw)


gqa("gqa_prompt", 2, 3, 0, [2, 2])
gqa("gqa_past", 2, 1, 4, [4, 4])
gqa("gqa_past_rotary", 2, 1, 4, [4, 4], ins=TAB, do_rotary=1)
gqa("gqa_prompt_rotary", 2, 3, 0, [2, 2], ins=TAB, do_rotary=1, rotary_interleaved=1)
gqa("gqa_packed_rotary", 1, 1, 4, [4], packed=True, ins=TAB, do_rotary=1)
gqa("gqa_window", 1, 5, 0, [4], local_window_size=2)
gqa("gqa_window_past", 2, 1, 4, [4, 4], local_window_size=3)
gqa("gqa_softcap", 1, 3, 0, [2], softcap=2.0, scale=0.4)
gqa("gqa_smooth", 1, 3, 0, [2], smooth_softmax=1)
gqa("gqa_sink", 1, 1, 3, [3], ins=[None, None, None, None, f(4)])
gqa("gqa_bias", 1, 3, 0, [2], ins=[None, None, None, f(1, 4, 3, 3)])
gqa("gqa_ids", 2, 1, 4, [4, 4], ins=TAB + [np.array([[4], [4]], I64)], do_rotary=1)
gqa("gqa_buffer", 2, 1, 8, [4, 4], total=5, keep=slice(1))
gqa("gqa_ragged", 2, 1, 8, [4, 6], total=7, ins=TAB, do_rotary=1, keep=slice(1))
gqa("gqa_chunk", 1, 2, 8, [4], total=5, ins=TAB, do_rotary=1, keep=slice(1))
case("rotary", "RotaryEmbedding", [f(2, 3, 8), i(2, 3, hi=9), C(f(10, 2)), C(f(10, 2))])
case("rotary_offset", "RotaryEmbedding", [f(2, 3, 8), np.array([4], I64), C(f(10, 2)), C(f(10, 2))], interleaved=1)
case("rotary_4d", "RotaryEmbedding", [f(2, 2, 3, 4), i(2, 3, hi=9), C(f(10, 2)), C(f(10, 2))])
case("rotary_part", "RotaryEmbedding", [f(2, 3, 16), i(2, 3, hi=9), C(f(10, 2)), C(f(10, 2))], num_heads=2,
     rotary_embedding_dim=4)

# Others.
case("expand_dims", "ExpandDims", [f(2, 3), C(s(-1, I32))])
case("inverse", "Inverse", [f(2, 3, 3) + 3 * np.eye(3, dtype=F)[[1, 2, 0]]])
case("cdist", "CDist", [f(3, 4), f(5, 4)], metric="euclidean")
case("cdist_square", "CDist", [f(3, 4), f(5, 4)], metric="sqeuclidean")
case("pad", "Pad", [f(2, 3), C(np.array([[1, 0, 0, 2]], I64)), C(np.array([0.5], F))], mode="constant")
case("conv_transpose_pads", "ConvTransposeWithDynamicPads", [f(1, 2, 3, 4), C(f(2, 3, 3, 3)), C(np.array([1, 0, 1, 1], I64)),
                                                             C(f(3))], strides=[2, 2])
case("nhwc_max_pool", "NhwcMaxPool", [q(1, 4, 5, 3)], kernel_shape=[2, 2], strides=[2, 2])

# ai.onnx.ml: features.
NAN = float("nan")


def ml(name, op, ins, n_out=1, **kw):
    case("ml_" + name, op, ins, n_out, domain=ML, **kw)


ml("scaler", "Scaler", [f(3, 4)], offset=[0.5, 1.0, -1.0, 0.0], scale=[2.0, 0.5, 1.0, 3.0])
ml("scaler_one", "Scaler", [i(3, 4)], offset=[0.5], scale=[2.0])
for norm in ("MAX", "L1", "L2"):
    ml("normalizer_" + norm.lower(), "Normalizer", [np.concatenate([f(3, 4), np.zeros((1, 4), F)])], norm=norm)
ml("imputer", "Imputer", [np.array([[1, NAN, 3], [NAN, 2, 2]], F)], imputed_value_floats=[7.0, 8.0, 9.0], replaced_value_float=NAN)
ml("imputer_int", "Imputer", [i(3, 3, hi=3)], imputed_value_int64s=[9], replaced_value_int64=1)
ml("binarizer", "Binarizer", [f(3, 4)], threshold=0.5)
ml("array_feature_extractor", "ArrayFeatureExtractor", [f(3, 4), C(np.array([[2, 0]], I64))])
ml("array_feature_extractor_1d", "ArrayFeatureExtractor", [f(4), C(np.array([2, 0, 1], I64))])
ml("feature_vectorizer", "FeatureVectorizer", [f(3, 2), f(3, 1)], inputdimensions=[2, 1])
ml("one_hot_encoder", "OneHotEncoder", [i(3, 2, hi=4)], cats_int64s=[2, 0, 1], zeros=1)
ml("label_encoder", "LabelEncoder", [i(3, 4, hi=6)], keys_int64s=[4, 1, 2, 3], values_floats=[0.5, 1.5, 2.5, 3.5], default_float=9.0, ml=4)
ml("label_encoder_float", "LabelEncoder", [np.array([1.5, NAN, 2, 3], F)], keys_floats=[NAN, 2.0, 1.5], values_int64s=[5, 6, 7], ml=4)

# ai.onnx.ml: linear models and support vector machines.
def floats(n, lo=-1, hi=1):
    return [float(x) for x in f(n, lo=lo, hi=hi)]


ml("linear_regressor", "LinearRegressor", [f(3, 4)], coefficients=floats(8), intercepts=floats(2), targets=2)
ml("linear_regressor_one", "LinearRegressor", [f(3, 4)], coefficients=floats(4))
for post in ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT"):
    x = [f(5, 4)] if post != "PROBIT" else [f(5, 4, lo=0, hi=0.2)]
    co = dict(coefficients=floats(12), intercepts=floats(3)) if post != "PROBIT" else \
        dict(coefficients=floats(12, 0.1, 1), intercepts=floats(3, 0.01, 0.1))
    ml("linear_classifier_" + post.lower(), "LinearClassifier", x, 2, classlabels_ints=[5, 3, 9], post_transform=post, **co)
    if post != "PROBIT":
        ml("linear_classifier_one_" + post.lower(), "LinearClassifier", [f(5, 4)], 2, coefficients=floats(4),
           intercepts=floats(1), classlabels_ints=[5, 3], post_transform=post)
for kind in ("LINEAR", "POLY", "RBF", "SIGMOID"):
    sv = dict(kernel_type=kind, kernel_params=[0.3, 0.2, 3.0])
    ml("svm_regressor_" + kind.lower(), "SVMRegressor", [f(3, 4)], coefficients=floats(5), rho=floats(1),
       support_vectors=floats(20), n_supports=5, **sv)
    ml("svm_classifier_" + kind.lower(), "SVMClassifier", [f(6, 4)], 2, classlabels_ints=[5, 3, 9], coefficients=floats(2 * 6),
       rho=floats(3), support_vectors=floats(24), vectors_per_class=[2, 3, 1], **sv)
ml("svm_regressor_one_class", "SVMRegressor", [f(5, 4)], coefficients=floats(5), rho=[0.0], support_vectors=floats(20),
   n_supports=5, one_class=1, kernel_type="RBF", kernel_params=[0.3, 0.0, 0.0])
ml("svm_regressor_no_vectors", "SVMRegressor", [f(5, 4)], coefficients=floats(4), rho=[0.5], kernel_params=[0.0, 0.0, 0.0], kernel_type="LINEAR")
TWO = dict(classlabels_ints=[5, 3], coefficients=floats(5), rho=floats(1), support_vectors=floats(20), vectors_per_class=[2, 3],
           kernel_type="RBF", kernel_params=[0.3, 0.0, 0.0])
for post in ("NONE", "LOGISTIC", "SOFTMAX"):
    ml("svm_classifier_two_" + post.lower(), "SVMClassifier", [f(6, 4)], 2, post_transform=post, **TWO)
ml("svm_classifier_two_probabilities", "SVMClassifier", [f(6, 4)], 2, prob_a=[-1.5], prob_b=[0.3], tolerance=5e-3, **TWO)
ml("svm_classifier_two_signs", "SVMClassifier", [f(6, 4)], 2, **dict(TWO, rho=[0.1], coefficients=[1.0, 0.8, -1.0, -0.5, -0.7]))
ml("svm_classifier_no_vectors", "SVMClassifier", [f(6, 4)], 2, classlabels_ints=[5, 3, 9], coefficients=floats(12), rho=[0.5],
   kernel_type="LINEAR", kernel_params=[0.0, 0.0, 0.0])

# ai.onnx.ml: trees.
def trees(n, features, k, votes, kind, modes=("BRANCH_LEQ",), positive=False):
    d = {"nodes_" + a: [] for a in ("treeids nodeids featureids values modes truenodeids falsenodeids "
                                    "missing_value_tracks_true").split()}
    v = {kind + "_" + a: [] for a in "treeids nodeids ids weights".split()}
    for t in range(n):
        size = 1 + 2 * int(rng.integers(1, 6))
        for j in range(size):
            inner = 2 * j + 2 < size
            for key, val in (("treeids", t), ("nodeids", j), ("featureids", int(rng.integers(features)) if inner else 0),
                             ("values", float(f(1)[0]) if inner else 0.0),
                             ("modes", str(rng.choice(modes)) if inner else "LEAF"), ("truenodeids", 2 * j + 1 if inner else 0),
                             ("falsenodeids", 2 * j + 2 if inner else 0), ("missing_value_tracks_true", int(rng.integers(2)))):
                d["nodes_" + key].append(val)
            for c in range(0 if inner else votes):
                for key, val in (("treeids", t), ("nodeids", j), ("ids", c if votes == k else int(rng.integers(k))),
                                 ("weights", float(f(1, lo=0.0 if positive else -1.0, hi=1)[0]))):
                    v[kind + "_" + key].append(val)
    return {**d, **v}


XT = [np.concatenate([f(7, 3), np.array([[NAN, 0.5, -0.5]], F)])]
for agg in ("SUM", "AVERAGE", "MIN", "MAX"):
    two = 2 if agg in ("SUM", "AVERAGE") else 1
    ml("tree_regressor_" + agg.lower(), "TreeEnsembleRegressor", XT, n_targets=two, aggregate_function=agg,
       base_values=[0.5, -0.5][:two], **trees(4, 3, two, two, "target"))
ml("tree_regressor_modes", "TreeEnsembleRegressor", XT, n_targets=1,
   **trees(5, 3, 1, 1, "target", ("BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_LEQ", "BRANCH_EQ", "BRANCH_NEQ")))
for post in ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO"):
    ml("tree_classifier_" + post.lower(), "TreeEnsembleClassifier", XT, 2, classlabels_int64s=[5, 3, 9], post_transform=post,
       **trees(4, 3, 3, 3, "class"))
    for positive in (False, True):
        name = "tree_classifier_two_%s%s" % (post.lower(), "_positive" if positive else "")
        ml(name, "TreeEnsembleClassifier", XT, 2, classlabels_int64s=[5, 3], post_transform=post,
           **trees(4, 3, 1, 1, "class", positive=positive))
    ml("tree_classifier_two_both_" + post.lower(), "TreeEnsembleClassifier", XT, 2,
       classlabels_int64s=[5, 3], keep=slice(1, 2), post_transform=post, **trees(4, 3, 2, 2, "class"))
ml("tree_classifier_base_one", "TreeEnsembleClassifier", XT, 2, classlabels_int64s=[5, 3], post_transform="LOGISTIC",
   base_values=[0.3], **trees(4, 3, 1, 1, "class"))
ml("tree_classifier_base_two", "TreeEnsembleClassifier", XT, 2, classlabels_int64s=[5, 3], post_transform="LOGISTIC",
   base_values=[0.1, 0.3], **trees(4, 3, 1, 1, "class"))
second = trees(4, 3, 1, 1, "class")
second["class_ids"] = [1 for _ in second["class_ids"]]
ml("tree_classifier_second", "TreeEnsembleClassifier", XT, 2, classlabels_int64s=[5, 3], **second)
ml("tree_classifier_base_three", "TreeEnsembleClassifier", XT, 2, classlabels_int64s=[5, 3, 9], base_values=[0.1, 0.3, 0.2],
   **trees(4, 3, 3, 3, "class"))
T = numpy_helper.from_array
ml("tree_ensemble", "TreeEnsemble", [np.array([[1.2], [-0.12], [1.66], [4.14], [1.77], [NAN]], F)], ml=5, n_targets=2,
   aggregate_function=1, post_transform=0, tree_roots=[0], nodes_modes=T(np.array([0, 6, 6], U8)),
   nodes_featureids=[0, 0, 0], nodes_splits=T(np.array([1.5, 232344.0, NAN], F)), nodes_truenodeids=[1, 0, 1],
   nodes_trueleafs=[0, 1, 1], nodes_falsenodeids=[2, 2, 3], nodes_falseleafs=[0, 1, 1], leaf_targetids=[0, 1, 0, 1],
   leaf_weights=T(np.array([5.23, 12.12, -12.23, 7.21], F)), membership_values=T(np.array([1.2, 3.7, 8, 9, NAN, 12, 7, NAN], F)))

# Recurrent layers: 4 steps, 2 sequences, 3 inputs, 5 hidden units.
def layer(name, op, dirs=1, bias=True, lens=None, h0=False, c0=False, peep=False, **attrs):
    gates = {"RNN": 1, "GRU": 3, "LSTM": 4}[op]
    w = [C(f(dirs, gates * 5, n, lo=-0.6, hi=0.6)) for n in (3, 5)]
    ins = [f(4, 2, 3), *w, C(f(dirs, 2 * gates * 5)) if bias else None, C(s(lens, I32)) if lens else None]
    ins += [f(dirs, 2, 5) if h0 else None]
    if op == "LSTM":
        ins += [f(dirs, 2, 5) if c0 else None, C(f(dirs, 15)) if peep else None]
    way = {2: "bidirectional"}.get(dirs, attrs.pop("direction", "forward"))
    case("recurrent_" + name, op, ins, 3 if op == "LSTM" else 2, domain="", hidden_size=5, direction=way, **attrs)


layer("lstm", "LSTM")
layer("lstm_reverse_lengths", "LSTM", direction="reverse", lens=[2, 4], h0=True, c0=True)
layer("lstm_both_peepholes", "LSTM", 2, lens=[4, 1], h0=True, c0=True, peep=True)
layer("lstm_clip", "LSTM", c0=True, clip=0.4, bias=False)
layer("lstm_coupled", "LSTM", 2, input_forget=1, peep=True)
layer("lstm_activations", "LSTM", 2, activations=["HardSigmoid", "Softsign", "ScaledTanh", "Affine", "LeakyRelu", "Elu"],
      activation_alpha=[0.3, 0.7, 0.4, 0.1, 0.8], activation_beta=[0.4, 0.9, 0.2])
layer("gru", "GRU", h0=True)
layer("gru_reverse_lengths", "GRU", direction="reverse", lens=[3, 4], linear_before_reset=1, h0=True)
layer("gru_both", "GRU", 2, lens=[1, 4], linear_before_reset=1, clip=0.8)
layer("gru_activations", "GRU", bias=False, activations=["Sigmoid", "Softplus"])
layer("rnn", "RNN", h0=True)
layer("rnn_both_relu", "RNN", 2, lens=[2, 3], activations=["Relu", "ThresholdedRelu"], activation_alpha=[0.3])


# Control flow that only running can decide: models as text, of which every input named N:, M: ... has that name as a size.
def control(name, text, n_opset=17, **feeds):
    global written
    name = "control_" + name
    if not fnmatch.fnmatch(name, glob):
        return
    model = onnx.parser.parse_model('<ir_version: 8, opset_import: ["": %d]>\n%s' % (n_opset, text))
    got = run(name, model, feeds)
    if got is None:
        return
    g = model.graph
    g.initializer.extend(numpy_helper.from_array(x, "in:" + k) for k, x in feeds.items())
    g.initializer.extend(numpy_helper.from_array(np.asarray(x), "want:" + o.name) for o, x in zip(g.output, got))
    onnx.save(model, os.path.join(out_dir, name + ".onnx"))
    written += 1


WHILE = """g (float[N] x, int64 m, bool go) => (float[N] last, float[a, b] all) {
  last, all = Loop (m, go, x) <body = b (int64 i, bool c, float[n] v) => (bool next, float[n] w, float[n] was) {
    one = Constant <value = float {1.5}> ()
    w = Mul (v, one)
    was = Add (v, x)
    sum = ReduceSum <keepdims = 0> (w)
    bound = Constant <value = float {20.0}> ()
    next = Less (sum, bound)
  }>
}"""
for n, m, go, tag in ((5, 100, True, "early"), (5, 3, True, "counted"), (4, 0, True, "no_rounds"), (3, 9, False, "not_begun")):
    control("while_" + tag, WHILE, x=f(n, lo=0.5, hi=1), m=s(m, I64), go=s(go, B))
control("while_endless", WHILE.replace("Loop (m, go, x)", "Loop (, go, x)").replace("int64 m, ", ""), x=f(4, lo=0.5, hi=1), go=s(True, B))
FOR = """g (float[N, 3] x, int64[k] steps) => (float[N, 3] y, float[a, b] seen, int64[c] at) {
  m = Shape <start = 0, end = 1> (x)
  zero = Constant <value = int64[1] {0}> ()
  begin = ReduceSum <keepdims = 0> (x, zero)
  yes = Constant <value = bool {1}> ()
  y0, seen, at = Loop (m, yes, begin) <body = b (int64 i, bool c, float[3] v) => (bool c2, float[3] w, float[3] row, int64 i2) {
    c2 = Identity (c)
    row = Gather <axis = 0> (x, i)
    half = Constant <value = float {0.5}> ()
    hv = Mul (v, half)
    w = Sub (row, hv)
    i2 = Mul (i, i)
  }>
  y = Add (x, y0)
}"""
for n in (1, 6):
    control("for_%d" % n, FOR, x=f(n, 3), steps=s([1], I64))
NESTED = """g (float[N] x, int64 m, int64 k) => (float[N] y, float[a, b, c] all) {
  y, all = Loop (m, , x) <body = outer (int64 i, bool c, float[n] v) => (bool c2, float[n] w, float[p, n] rows) {
    c2 = Identity (c)
    r = Add (i, k)
    one = Constant <value = bool {1}> ()
    w, rows = Loop (k, one, v) <body = inner (int64 j, bool d, float[n] u) => (bool d2, float[n] t, float[n] s) {
      d2 = Identity (d)
      ij = Add (r, j)
      fij = Cast <to = 1> (ij)
      tenth = Constant <value = float {0.1}> ()
      sc = Mul (fij, tenth)
      q = Mul (x, sc)
      t = Sub (u, q)
      s = Mul (t, v)
    }>
  }>
}"""
control("nested", NESTED, x=f(4), m=s(3, I64), k=s(2, I64))
control("nested_inner_none", NESTED, x=f(4), m=s(3, I64), k=s(0, I64))
IN_LOOP = """g (float[N] x, int64 m) => (float[N] y) {
  y = Loop (m, , x) <body = outer (int64 i, bool c, float[n] v) => (bool c2, float[n] w) {
    c2 = Identity (c)
    sum = ReduceSum <keepdims = 0> (v)
    zero = Constant <value = float {0.0}> ()
    pos = Greater (sum, zero)
    w = If (pos) <then_branch = t () => (float[n] a) {
      e1 = Exp (x)
      e2 = Softmax (e1)
      k = Constant <value = float {1.7}> ()
      e3 = Mul (e2, k)
      a = Sub (v, e3)
    }, else_branch = e () => (float[n] b) {
      s1 = ReduceMax (v)
      s2 = Abs (s1)
      b = Add (v, s2)
    }>
  }>
}"""
control("if_in_loop", IN_LOOP, x=f(5), m=s(6, I64))
LOOP_IN_IF = """g (float[N] x, bool c, int64 m) => (float[a] y, float[p] z) {
  y, z = If (c) <then_branch = t () => (float[n] w, float[n] w2) {
    yes = Constant <value = bool {1}> ()
    w = Loop (m, yes, x) <body = b (int64 i, bool d, float[n] v) => (bool d2, float[n] u) {
      d2 = Identity (d)
      u = Add (v, x)
    }>
    w2 = Softmax (w)
  }, else_branch = e () => (float[q] r, float[n] r2) {
    r = Concat <axis = 0> (x, x)
    s1 = Softmax (x)
    s2 = Exp (s1)
    r2 = Softmax (s2)
  }>
}"""
for c in (True, False):
    control("loop_in_if_%d" % c, LOOP_IN_IF, x=f(4), c=s(c, B), m=s(3, I64))
GROW = """g (float[N, 2] x, int64 m) => (float[a, 2] y, float[b] sums) {
  y, sums = Loop (m, , x) <body = b (int64 i, bool c, float[n, 2] v) => (bool c2, float[n2, 2] w, float t) {
    c2 = Identity (c)
    zero = Constant <value = int64[1] {0}> ()
    mean = ReduceMean <axes = [0], keepdims = 1> (v)
    w = Concat <axis = 0> (v, mean)
    t = ReduceSum <keepdims = 0> (w)
  }>
}"""
for m in (0, 1, 4):
    control("grow_%d" % m, GROW, x=f(3, 2), m=s(m, I64))
SCAN = """g (float[B, H] h, float[T, B, H] x, float[B, T, H] z) => (float[B, H] last, float[T, B, H] y, float[B, H, U] w) {
  last, y, w = Scan <num_scan_inputs = 2, scan_input_axes = [0, 1], scan_input_directions = [0, 1], scan_output_axes = [0, -1],
                     scan_output_directions = [1, 0], body = b (float[B, H] s, float[B, H] a, float[B, H] c) => (float[B, H] n, float[B, H] o, float[B, H] p) {
    half = Constant <value = float {0.5}> ()
    k = Mul (s, half)
    n = Add (k, a)
    o = Sub (n, c)
    p = Mul (a, c)
  }> (h, x, z)
}"""
for n in (1, 5):
    control("scan_%d" % n, SCAN, h=f(2, 3), x=f(n, 2, 3), z=f(2, n, 3))
control("scan_9", SCAN, 9, h=f(2, 3), x=f(4, 2, 3), z=f(2, 4, 3))
TYPES = """g (int64[N] x, float16[2] h, int64 m) => (int64[N] y, float16[2] k, bool[a, b] big, int32[a2] j) {
  y, k, big, j = Loop (m, , x, h) <body = b (int64 i, bool c, int64[n] v, float16[2] q) => (bool c2, int64[n] w, float16[2] r, bool[n] g, int32 i3) {
    two = Constant <value = int64 {2}> ()
    w = Mul (v, two)
    r = Neg (q)
    g = Greater (w, i)
    i3 = Cast <to = 6> (i)
    ten = Constant <value = int64 {50}> ()
    most = ReduceMax <keepdims = 0> (w)
    c2 = Less (most, ten)
  }>
}"""
control("types", TYPES, x=i(5, hi=9, lo=1), h=f(2, t=H), m=s(20, I64))

print("%d written, %d could not be run" % (written, failed))
