# SPDX-License-Identifier: Apache-2.0
#
# Decoders of known language models' shapes with random weights, written once for all engines: as ONNX in the form of onnxruntime-genai's model
# builder (model.onnx, genai_config.json) and as GGUF for llama.cpp (model.gguf). Both files have the same weights, bit by bit:
#
#   f16     halves; in ONNX behind a Cast to f32, in which ONNX Runtime and quern compute
#   Q8_0    i8 and a scale of 16 bits for 32 elements; in ONNX MatMulNBits of 8 bits
#   Q4_0    4 bits likewise; MatMulNBits of 4 bits
#
# Weights are (n, k): n outputs of k inputs. Scores are those of the last token, as llama.cpp computes them by itself.
import json
import os
import struct
from dataclasses import dataclass

import numpy as np
from onnx import TensorProto as T
from onnx import helper

BLOCK = 32
POSITIONS = 1024
EPSILON, THETA = 1e-5, 10000.0
FORMS = ("f16", "Q8_0", "Q4_0")
GGML = {"f32": 0, "f16": 1, "Q4_0": 2, "Q8_0": 8}


@dataclass(frozen=True)
class Decoder:
    name: str
    arch: str  # of GGUF and of genai's configuration
    hidden: int
    inner: int
    layers: int
    heads: int
    groups: int
    head: int
    vocabulary: int
    tied: bool = False
    bias: bool = False  # of queries, keys and values

    @property
    def parameters(self):
        """Of the matmuls, which a token reads."""
        attention = self.hidden * self.head * (2 * self.heads + 2 * self.groups)
        return self.layers * (attention + 3 * self.hidden * self.inner) + self.vocabulary * self.hidden

    def bytes(self, form):
        return self.parameters * {"f16": 2, "Q8_0": 34 / 32, "Q4_0": 18 / 32}[form]


DECODERS = (
    Decoder("qwen2.5-0.5b", "qwen2", 896, 4864, 4, 14, 2, 64, 151936, tied=True, bias=True),
    Decoder("llama-3.2-1b", "llama", 2048, 8192, 4, 32, 8, 64, 128256, tied=True),
    Decoder("llama-2-7b", "llama", 4096, 11008, 4, 32, 32, 128, 32000),
)


class Weight:
    """Random elements: x of f16; or codes q, unsigned, and scales of 16 bits."""

    def __init__(self, rng, n, k, form):
        self.n, self.k, self.form = n, k, form
        spread = 1 / np.sqrt(k)
        if form == "f16":
            self.x = (rng.standard_normal((n, k), np.float32) * spread).astype(np.float16)
            return
        top = {"Q8_0": 256, "Q4_0": 16}[form]
        self.q = rng.integers(0, top, (n, k), np.uint8)
        self.scale = ((rng.random((n, k // BLOCK), np.float32) + 0.5) * (3.4 * spread / top)).astype(np.float16)

    def permuted(self, heads):
        """Rows of each head in the order in which rotation pairs neighbours, as llama.cpp has them."""
        order = np.arange(self.n).reshape(heads, 2, -1).swapaxes(1, 2).ravel()
        w = object.__new__(Weight)
        w.n, w.k, w.form = self.n, self.k, self.form
        for part in ("x", "q", "scale"):
            if hasattr(self, part):
                setattr(w, part, getattr(self, part)[order])
        return w

    def ggml(self):
        if self.form == "f16":
            return self.x.tobytes()
        q, scale = self.q.reshape(self.n, -1, BLOCK), self.scale.view(np.uint8).reshape(self.n, -1, 2)
        if self.form == "Q8_0":
            q = q ^ 128  # as i8
        else:
            q = q[..., : BLOCK // 2] | q[..., BLOCK // 2 :] << 4
        return np.concatenate([scale, q], 2).tobytes()

    def codes(self):
        """(n, blocks, bytes), of 4 bits the low ones first."""
        q = self.q.reshape(self.n, -1, BLOCK)
        return q if self.form == "Q8_0" else q[..., ::2] | q[..., 1::2] << 4


def stacked(weights):
    w = object.__new__(Weight)
    w.n, w.k, w.form = sum(x.n for x in weights), weights[0].k, weights[0].form
    for part in ("x", "q", "scale"):
        if hasattr(weights[0], part):
            setattr(w, part, np.concatenate([getattr(x, part) for x in weights]))
    return w


class OnnxFile:
    """Nodes, and constants in a file of their own, written as they come."""

    def __init__(self, folder):
        self.folder, self.nodes, self.constants, self.at = folder, [], [], 0
        self.data = open(folder + "/model.onnx.data", "wb")

    def constant(self, name, a):
        t = {"float32": T.FLOAT, "float16": T.FLOAT16, "uint8": T.UINT8, "int64": T.INT64}[a.dtype.name]
        if a.nbytes < 4096:
            self.constants.append(helper.make_tensor(name, t, a.shape, a.tobytes(), raw=True))
            return name
        self.data.write(bytes(-self.at % 4096))
        self.at += -self.at % 4096
        x = T(name=name, data_type=t, dims=a.shape, data_location=T.EXTERNAL)
        for key, value in (("location", "model.onnx.data"), ("offset", self.at), ("length", a.nbytes)):
            x.external_data.add(key=key, value=str(value))
        self.constants.append(x)
        self.data.write(a.tobytes())
        self.at += a.nbytes
        return name

    def node(self, op, inputs, name, domain="", outputs=None, **attributes):
        outputs = outputs or [name + ":0"]
        self.nodes.append(helper.make_node(op, inputs, outputs, name, domain=domain, **attributes))
        return outputs[0]

    def matmul(self, x, w, name):
        if w.form == "f16":
            right = self.constant(name + ".weight", np.ascontiguousarray(w.x.T))
            return self.node("MatMul", [x, self.node("Cast", [right], name + ".cast", to=T.FLOAT)], name)
        q = self.constant(name + ".q", w.codes())
        scale = self.constant(name + ".scale", w.scale.astype(np.float32))
        return self.node("MatMulNBits", [x, q, scale], name, "com.microsoft", K=w.k, N=w.n, bits=8 if w.form == "Q8_0" else 4, block_size=BLOCK, accuracy_level=4)

    def rows(self, ids, w, name):
        if w.form == "f16":
            return self.node("Cast", [self.node("Gather", [self.constant(name, w.x), ids], name + ".gather")], name + ".cast", to=T.FLOAT)
        q = self.constant(name + ".q", w.codes().reshape(w.n, -1))
        scale = self.constant(name + ".scale", w.scale.astype(np.float32))
        return self.node("GatherBlockQuantized", [q, ids, scale], name + ".gather", "com.microsoft", bits=8 if w.form == "Q8_0" else 4, block_size=BLOCK,
                         gather_axis=0, quantize_axis=1)

    def close(self, inputs, outputs, path):
        self.data.close()
        g = helper.make_graph(self.nodes, "decoder", inputs, outputs, self.constants)
        m = helper.make_model(g, opset_imports=[helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)], ir_version=10)
        with open(path, "wb") as f:
            f.write(m.SerializeToString())


class GgufFile:
    """Entries and tensors; the latter's bytes are kept in a file until their number is known."""

    def __init__(self, folder):
        self.folder, self.entries, self.tensors, self.at = folder, [], [], 0
        self.data = open(folder + "/model.gguf.data", "wb+")

    def entry(self, key, value):
        text = lambda s: struct.pack("<Q", len(s)) + s.encode()
        kind, packed = (8, text(value)) if isinstance(value, str) else (6, struct.pack("<f", value)) if isinstance(value, float) else (4, struct.pack("<I", value))
        self.entries.append(text(key) + struct.pack("<I", kind) + packed)

    def tensor(self, name, dims, form, content):
        name = name.encode()
        head = struct.pack("<Q", len(name)) + name + struct.pack("<I", len(dims))
        self.tensors.append(head + struct.pack("<%dQ" % len(dims), *dims) + struct.pack("<IQ", GGML[form], self.at))
        self.data.write(content + bytes(-len(content) % 32))
        self.at += len(content) + -len(content) % 32

    def weight(self, name, w):
        self.tensor(name + ".weight", (w.k, w.n), w.form, w.ggml())

    def vector(self, name, a):
        self.tensor(name, a.shape, "f32", a.astype(np.float32).tobytes())

    def close(self, path):
        with open(path, "wb") as f:
            f.write(b"GGUF" + struct.pack("<IQQ", 3, len(self.tensors), len(self.entries)) + b"".join(self.entries) + b"".join(self.tensors))
            f.write(bytes(-f.tell() % 32))
            self.data.seek(0)
            while part := self.data.read(1 << 24):
                f.write(part)
        self.data.close()
        os.remove(self.folder + "/model.gguf.data")


def write_layer(o, g, d, form, i, rng, x, skip):
    """The sum of both (x, skip) through layer i: the two whose sum the next one has."""
    name, norm = "layer.%d" % i, lambda: rng.random(d.hidden, np.float32) + 0.5
    weights = {n: Weight(rng, *s, form) for n, s in {
        "q": (d.heads * d.head, d.hidden), "k": (d.groups * d.head, d.hidden), "v": (d.groups * d.head, d.hidden), "output": (d.hidden, d.heads * d.head),
        "gate": (d.inner, d.hidden), "up": (d.inner, d.hidden), "down": (d.hidden, d.inner)}.items()}  # fmt: skip
    scale = norm()
    g.vector("blk.%d.attn_norm.weight" % i, scale)
    y, x = normed(o, x, skip, o.constant(name + ".norm", scale), name + ".norm1")
    qkv = o.matmul(y, stacked([weights[n] for n in "qkv"]), name + ".qkv")
    if d.bias:
        bias = {n: rng.random(weights[n].n, np.float32) - 0.5 for n in "qkv"}
        qkv = o.node("Add", [qkv, o.constant(name + ".bias", np.concatenate(list(bias.values())))], name + ".biased")
        for n, b in bias.items():
            g.vector("blk.%d.attn_%s.bias" % (i, n), b)
    for n in "qkv":
        turned = d.arch == "llama" and n != "v"
        g.weight("blk.%d.attn_%s" % (i, n), weights[n].permuted(d.heads if n == "q" else d.groups) if turned else weights[n])
    caches = ["past_key_values.%d.%s" % (i, n) for n in ("key", "value")]
    y = o.node("GroupQueryAttention", [qkv, "", "", *caches, "last", "total", "cos", "sin"], name + ".attention", "com.microsoft",
               outputs=[name + ".attention:0", *("present.%d.%s" % (i, n) for n in ("key", "value"))],
               num_heads=d.heads, kv_num_heads=d.groups, do_rotary=1, rotary_interleaved=0, scale=d.head**-0.5)  # fmt: skip
    y = o.matmul(y, weights["output"], name + ".output")
    g.weight("blk.%d.attn_output" % i, weights["output"])
    scale = norm()
    g.vector("blk.%d.ffn_norm.weight" % i, scale)
    y, x = normed(o, x, y, o.constant(name + ".norm2", scale), name + ".norm3")
    gate, up = (o.matmul(y, weights[n], "%s.%s" % (name, n)) for n in ("gate", "up"))
    y = o.node("Mul", [o.node("Mul", [gate, o.node("Sigmoid", [gate], name + ".sigmoid")], name + ".silu"), up], name + ".inner")
    for n in ("gate", "up", "down"):
        g.weight("blk.%d.ffn_%s" % (i, n), weights[n])
    return x, o.matmul(y, weights["down"], name + ".down")


def normed(o, x, skip, scale, name):
    """The normalised sum, and the sum."""
    if skip is None:
        return o.node("SimplifiedLayerNormalization", [x, scale], name, axis=-1, epsilon=EPSILON, stash_type=1), x
    outputs = [name + ":0", "", "", name + ":3"]
    return o.node("SkipSimplifiedLayerNormalization", [x, skip, scale], name, "com.microsoft", outputs, epsilon=EPSILON), name + ":3"


def write_lengths(o):
    """Of the attention mask, as the model builder computes them."""
    one = o.constant("one", np.array([1]))
    last = o.node("Sub", [o.node("ReduceSum", ["attention_mask", one], "sum", keepdims=0), one], "less")
    o.node("Cast", [last], "last", outputs=["last"], to=T.INT32)
    total = o.node("Gather", [o.node("Shape", ["attention_mask"], "shape"), o.constant("axis", np.array(1))], "length", axis=0)
    o.node("Cast", [total], "total", outputs=["total"], to=T.INT32)
    angles = np.arange(POSITIONS)[:, None] * THETA ** (-np.arange(0, o.head, 2) / o.head)
    for name, f in (("cos", np.cos), ("sin", np.sin)):
        o.constant(name, f(angles).astype(np.float32))


def write_entries(g, d):
    g.entry("general.architecture", d.arch)
    g.entry("general.name", d.name)
    g.entry("tokenizer.ggml.model", "none")
    for key, value in (
        ("vocab_size", d.vocabulary), ("context_length", POSITIONS), ("embedding_length", d.hidden), ("block_count", d.layers),
        ("feed_forward_length", d.inner), ("attention.head_count", d.heads), ("attention.head_count_kv", d.groups), ("rope.dimension_count", d.head),
        ("rope.freq_base", THETA), ("attention.layer_norm_rms_epsilon", EPSILON),
    ):  # fmt: skip
        g.entry(d.arch + "." + key, value)


def write_config(d, folder):
    names = {"past_key_names": "past_key_values.%d.key", "past_value_names": "past_key_values.%d.value"}
    decoder = {
        "session_options": {"log_id": "onnxruntime-genai", "provider_options": []}, "filename": "model.onnx", "head_size": d.head, "hidden_size": d.hidden,
        "inputs": {"input_ids": "input_ids", "attention_mask": "attention_mask", **names},
        "outputs": {"logits": "logits", **{k.replace("past", "present"): v.replace("past_key_values", "present") for k, v in names.items()}},
        "num_attention_heads": d.heads, "num_hidden_layers": d.layers, "num_key_value_heads": d.groups,
    }  # fmt: skip
    model = {"bos_token_id": 1, "eos_token_id": d.vocabulary - 1, "pad_token_id": d.vocabulary - 1, "context_length": POSITIONS, "decoder": decoder, "type": d.arch,
             "vocab_size": d.vocabulary}  # fmt: skip
    search = {"do_sample": False, "max_length": POSITIONS, "num_beams": 1, "past_present_share_buffer": True}
    with open(folder + "/genai_config.json", "w") as f:
        json.dump({"model": model, "search": search}, f, indent=1)


def write(d, form, folder):
    """All files of a decoder."""
    rng = np.random.default_rng(1)
    os.makedirs(folder, exist_ok=True)
    o, g = OnnxFile(folder), GgufFile(folder)
    o.head = d.head
    write_entries(g, d)
    write_lengths(o)
    table = Weight(rng, d.vocabulary, d.hidden, form)
    g.weight("token_embd", table)
    x, skip = o.rows("input_ids", table, "embedding"), None
    for i in range(d.layers):
        x, skip = write_layer(o, g, d, form, i, rng, x, skip)
    scale = rng.random(d.hidden, np.float32) + 0.5
    g.vector("output_norm.weight", scale)
    y, _ = normed(o, x, skip, o.constant("norm", scale), "norm.last")
    ends = [o.constant(n, np.array([v])) for n, v in (("from", -1), ("to", 2**62), ("axis1", 1))]
    head = table if d.tied else Weight(rng, d.vocabulary, d.hidden, form)
    if not d.tied:
        g.weight("output", head)
    y = o.matmul(o.node("Slice", [y, *ends], "last_token"), head, "head")
    o.node("Identity", [y], "scores", outputs=["logits"])
    tensor = helper.make_tensor_value_info
    caches = lambda word, n: [tensor("%s.%d.%s" % (word, i, x), T.FLOAT, ["batch_size", d.groups, n, d.head]) for i in range(d.layers) for x in ("key", "value")]
    o.close([tensor("input_ids", T.INT64, ["batch_size", "sequence_length"]), tensor("attention_mask", T.INT64, ["batch_size", "total_sequence_length"]),
             *caches("past_key_values", "past_sequence_length")],
            [tensor("logits", T.FLOAT, ["batch_size", 1, d.vocabulary]), *caches("present", "total_sequence_length")], folder + "/model.onnx")  # fmt: skip
    g.close(folder + "/model.gguf")
    write_config(d, folder)
