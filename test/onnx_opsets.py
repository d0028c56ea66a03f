# SPDX-License-Identifier: Apache-2.0
"""onnx_opsets.py QUERN DIR OPSET... [--match=REGEX]: exports every model of a suite in these opsets, and compares results.
onnx_opsets.py QUERN NET.onnx... OPSET... [--size=N]: likewise networks, whose results are compared with those of themselves.

DIR holds models in the layout that `quern verify --suite` reads (onnx_cases.py writes ONNX's own). Each is exported by
`quern export --to onnx --opset N`; what comes out has to pass ONNX's checker with that opset, and to give the suite's
outputs in ONNX Runtime, else in ONNX's reference evaluator. Prints what is refused, with --refused its reasons, and fails
if a result differs or a refusal has no reason. Needs the packages onnx and onnxruntime.
"""
import collections
import glob
import os
import re
import subprocess
import sys
import tempfile
import warnings

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper
from onnx.reference import ReferenceEvaluator

SHOW = "--refused" in sys.argv
SIZE = next((int(a[7:]) for a in sys.argv if a.startswith("--size=")), 64)  # of axes without a number


def tensors(path, kind):
    files = sorted(glob.glob(f"{path}/test_data_set_0/{kind}_*.pb"), key=lambda f: int(f.rsplit("_", 1)[1][:-3]))
    out = []
    for file in files:
        t = TensorProto()
        with open(file, "rb") as f:
            t.ParseFromString(f.read())
        out.append(numpy_helper.to_array(t))
    return out


def run(model, feeds):
    """By ONNX Runtime, which has no kernels for some types, else by ONNX's evaluator."""
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    try:
        return ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"]).run(None, feeds)
    except Exception:  # whatever it lacks
        return ReferenceEvaluator(model).run(None, feeds)


def is_random(model):
    return any(n.op_type.startswith("Random") or n.op_type in ("Bernoulli", "Multinomial") for n in model.graph.node)


def differs(got, want, any_content=False):
    got = np.asarray(got)
    if got.shape != want.shape or got.dtype != want.dtype:
        return f"{got.dtype}{list(got.shape)} instead of {want.dtype}{list(want.shape)}"
    if any_content:
        return ""
    if got.dtype.kind == "f" or got.dtype.name == "bfloat16":
        loose = got.dtype.itemsize == 2
        known = np.abs(want[np.isfinite(want)].astype(np.float64))
        scale = max(1, known.max(initial=0))
        ok = np.allclose(got.astype(np.float64), want.astype(np.float64), rtol=1e-2 if loose else 1e-3, atol=(1e-2 if loose else 1e-5) * scale, equal_nan=True)
    elif got.dtype.kind in "iu" and got.dtype.itemsize == 1:
        ok = np.abs(got.astype(int) - want.astype(int)).max(initial=0) <= 1  # quantised, ties
    else:
        ok = np.array_equal(got, want)
    return "" if ok else "other elements"


def check_model(model):
    """ONNX's definition of MeanVarianceNormalization, a function, cannot be read in older opsets."""
    onnx.checker.check_model(model, full_check=not any(n.op_type == "MeanVarianceNormalization" for n in model.graph.node))


def check(quern, folder, opset, tmp):
    """("same" | "refused" | "wrong" | "unread", why)"""
    path = f"{tmp}/net.onnx"
    done = subprocess.run([quern, "export", f"{folder}/model.onnx", "--to", "onnx", "--opset", str(opset), "-o", path],
                          stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, timeout=120)
    if done.returncode:
        plain = subprocess.run([quern, "export", f"{folder}/model.onnx", "--to", "onnx", "-o", path], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        if plain.returncode:
            return "unread", done.stderr.strip()
        return ("refused" if f"opset {opset}" in done.stderr or "control" in done.stderr else "wrong"), done.stderr.strip()
    model = onnx.load(path)
    if [(o.domain, o.version) for o in model.opset_import] != [("", opset)]:
        return "wrong", f"opsets {model.opset_import}"
    try:
        check_model(model)
        inputs = dict(zip((i.name for i in model.graph.input), tensors(folder, "input")))
        got = run(model, inputs)
    except Exception as e:
        return "wrong", f"{type(e).__name__}: {str(e)[:300]}"
    for k, (g, w) in enumerate(zip(got, tensors(folder, "output"))):
        why = differs(g, w, is_random(model))
        if why:
            return "wrong", f"output {k}: {why}; nodes {sorted({n.op_type for n in model.graph.node})}"
    return "same", ""


def shape_of(info, size):
    return [d.dim_value or size for d in info.type.tensor_type.shape.dim]


def check_net(quern, path, opset, tmp):
    """A network without outputs to compare with: against itself as it is, on random numbers."""
    plain = onnx.load(path)
    subprocess.run([quern, "export", path, "--to", "onnx", "--opset", str(opset), "-o", f"{tmp}/net.onnx"], check=True)
    lowered = onnx.load(f"{tmp}/net.onnx")
    onnx.checker.check_model(lowered, full_check=True)
    rng = np.random.default_rng(1)
    feeds = {}
    for i in plain.graph.input:
        kind, shape = i.type.tensor_type.elem_type, shape_of(i, SIZE)
        dtype = onnx.helper.tensor_dtype_to_np_dtype(kind)
        feeds[i.name] = rng.standard_normal(shape).astype(dtype) if dtype.kind == "f" else rng.integers(0, 2, shape).astype(dtype)
    for want, got in zip(run(plain, feeds), run(lowered, feeds)):
        why = differs(got, want)
        if why:
            return "wrong", why
    return "same", ""


def nets(quern, paths, opsets):
    bad = 0
    with tempfile.TemporaryDirectory() as tmp:
        for path in paths:
            for opset in opsets:
                how, why = check_net(quern, path, opset, tmp)
                bad += how != "same"
                print(f"{path} in opset {opset}: {how} {why}", flush=True)
    return bad > 0


def main():
    if sys.argv[2].endswith(".onnx"):
        paths = [a for a in sys.argv[2:] if a.endswith(".onnx")]
        return nets(sys.argv[1], paths, [int(a) for a in sys.argv if a.isdigit()])
    quern, suite = sys.argv[1:3]
    opsets = [int(a) for a in sys.argv[3:] if a.isdigit()]
    pattern = next((a[8:] for a in sys.argv[3:] if a.startswith("--match=")), "")
    warnings.simplefilter("ignore")
    bad = 0
    with tempfile.TemporaryDirectory() as tmp:
        for opset in opsets:
            count = collections.Counter()
            for name in sorted(n for n in os.listdir(suite) if re.search(pattern, n)):
                try:
                    how, why = check(quern, f"{suite}/{name}", opset, tmp)
                except Exception as e:  # inputs that are no tensors
                    how, why = "unread", str(e)
                count[how] += 1
                if how == "wrong" or (SHOW and how == "refused"):
                    print(f"{how} opset {opset} {name}: {why}", flush=True)
            bad += count["wrong"]
            print(f"opset {opset}: " + ", ".join(f"{n} {how}" for how, n in sorted(count.items())), flush=True)
    return bad > 0


if __name__ == "__main__":
    if len(sys.argv) < 4:
        sys.exit(__doc__)
    sys.exit(main())
