# SPDX-License-Identifier: Apache-2.0
#
# The operands of rows of attention, and the forms in which they are ONNX files. Libraries differ in
# what they are fast at, so each may choose among the forms:
#
#   Attention  of opset 23, which is also what quern is given
#   parts      the products and the softmax as operators of their own
#   contrib    MultiHeadAttention, or GroupQueryAttention with its cache in place (com.microsoft),
#              with tokens in front of heads, which is how these want them
import math
import os
import zlib

import numpy as np

ENDS = {"Attention": "", "parts": ".parts.onnx", "contrib": ".contrib.onnx"}  # behind the name of the row's file
MOST_SCORES = 2 << 30  # bytes of scores in parts; a library may keep three copies


def files(path):
    """The forms that there are of a row's file: {name: path}."""
    return {name: path + end for name, end in ENDS.items() if os.path.exists(path + end)}


# --- operands -------------------------------------------------------------------------------------


def operands(row, random):
    """Queries, and [keys, values]: (1, heads, tokens, size). random(rng, shape): numbers of
    variance 1."""
    rng = np.random.default_rng(zlib.crc32(row.name.encode()))
    many = (1, row.groups, row.keys, row.size)
    return random(rng, (1, row.heads, row.queries, row.size)), [random(rng, many) for _ in range(2)]


def tokens_first(x):
    """(1, heads, tokens, size) as (1, tokens, heads * size)."""
    return np.ascontiguousarray(np.moveaxis(x, 1, 2)).reshape(1, x.shape[2], -1)


def is_cached(row):
    """Whether the contributed operator reads all keys but the last from a cache."""
    return row.queries == 1


def more_inputs(row, x, rest):
    """Inputs of the contributed operators, by name. The caches have all keys, the last of which is
    written again."""
    new = slice(-1, None) if is_cached(row) else slice(None)
    given = {"xs": tokens_first(x), "ks": tokens_first(rest[0][:, :, new]), "vs": tokens_first(rest[1][:, :, new])}
    if is_grouped(row):
        given["last"] = np.array([row.keys - 1], np.int32)
        given["total"] = np.array(row.keys, np.int32)
    return given


def heads_first(row, y):
    """The result of a contributed operator in the order of the others."""
    return y if y.ndim == 4 else np.moveaxis(y.reshape(1, row.queries, row.heads, row.size), 2, 1)


# --- files ----------------------------------------------------------------------------------------


def is_grouped(row):
    """Whether GroupQueryAttention is the contributed operator: the one with a cache in place."""
    return row.groups < row.heads or is_cached(row)


def attention(row, helper):
    return [helper.make_node("Attention", ["x", "w0", "w1"], ["y0"], "attention", is_causal=int(row.causal))]


def parts(row, helper, constants):
    """Heads that share keys are rows of one product."""
    share, nodes = row.heads // row.groups, []
    op = lambda kind, ins, out, **a: nodes.append(helper.make_node(kind, ins, [out], out, **a))
    constants["scale"] = np.float32(1 / math.sqrt(row.size))
    constants["folded"] = np.array([1, row.groups, share * row.queries, row.size], np.int64)
    constants["unfolded"] = np.array([1, row.heads, row.queries, row.size], np.int64)
    op("Reshape", ["x", "folded"], "q")
    op("Mul", ["q", "scale"], "scaled")
    op("Transpose", ["w0"], "kt", perm=[0, 1, 3, 2])
    op("MatMul", ["scaled", "kt"], "scores")
    last = "scores"
    if row.causal:
        mask = np.triu(np.full((row.queries, row.keys), np.finfo(np.float32).min, np.float32), 1)
        constants["mask"] = np.tile(mask, (share, 1))
        op("Add", [last, "mask"], "masked")
        last = "masked"
    op("Softmax", [last], "p", axis=-1)
    op("MatMul", ["p", "w1"], "folded_y")
    op("Reshape", ["folded_y", "unfolded"], "y0")
    return nodes


def contributed(row, helper):
    if not is_grouped(row):
        return [
            helper.make_node(
                "MultiHeadAttention", ["xs", "ks", "vs"], ["y0"], "attention", domain="com.microsoft",
                num_heads=row.heads, unidirectional=int(row.causal),
            )
        ]  # fmt: skip
    past = ["past_k", "past_v"] if is_cached(row) else ["", ""]
    return [
        helper.make_node(
            "GroupQueryAttention", ["xs", "ks", "vs", *past, "last", "total"], ["y0", "present_k", "present_v"],
            "attention", domain="com.microsoft", num_heads=row.heads, kv_num_heads=row.groups,
        )
    ]  # fmt: skip


def save_forms(row, path):
    """Writes the forms that there are, the first one at path. quern reads that one."""
    from onnx import TensorProto, helper, numpy_helper, save

    q, kv = [1, row.heads, row.queries, row.size], [1, row.groups, row.keys, row.size]
    value = lambda name, shape, t=TensorProto.FLOAT: helper.make_tensor_value_info(name, t, shape)

    def write(path, nodes, inputs, outputs, constants, opset):
        tensors = [numpy_helper.from_array(np.asarray(a), n) for n, a in constants.items()]
        graph = helper.make_graph(nodes, "row", inputs, outputs, tensors)
        opsets = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)]
        save(helper.make_model(graph, opset_imports=opsets, ir_version=10), path)

    plain = [value("x", q), value("w0", kv), value("w1", kv)]
    write(path, attention(row, helper), plain, [value("y0", q)], {}, 23)
    if row.scores <= MOST_SCORES:
        constants = {}
        nodes = parts(row, helper, constants)
        write(path + ENDS["parts"], nodes, plain, [value("y0", q)], constants, 17)
    if is_grouped(row) and not (row.causal or is_cached(row)):
        return  # that operator is always causal
    flat = lambda heads, n: [1, n, heads * row.size]
    new = 1 if is_cached(row) else row.keys
    inputs = [value("xs", flat(row.heads, row.queries)), *(value(n, flat(row.groups, new)) for n in ("ks", "vs"))]
    outputs = [value("y0", flat(row.heads, row.queries))]
    if is_grouped(row):
        inputs += [value(n, kv) for n in ("past_k", "past_v")] * is_cached(row)
        inputs += [value("last", [1], TensorProto.INT32), value("total", [], TensorProto.INT32)]
        outputs += [value(n, kv) for n in ("present_k", "present_v")]
    write(path + ENDS["contrib"], contributed(row, helper), inputs, outputs, {}, 17)
