# SPDX-License-Identifier: Apache-2.0
"""python_graphs.py [SEED [COUNT]]: random modules of common operators (python_graph_operators.py), compiled by torch.compile(backend="quern") and compared with
PyTorch: values, types, shapes, strides, writes to inputs and buffers, results that share memory with inputs and with each other. Without arguments it takes
SECONDS. SHOW=1 prints the programs.

Values must be equal where nothing is rounded. Others may differ by a few times what PyTorch's own result differs from that in f64, and by a few units in the
last place of the largest value; where both of these are not finite in the same places, everything is uncertain and nothing is compared. What PyTorch's back end
"aot_eager", the same graph in PyTorch's operators, does not do right either is PyTorch's and counts as `theirs`. What PyTorch's exporter does wrong must have been
found at the first call and stay in PyTorch: the operator is listed."""
import collections
import os
import sys
import time
import unittest
import warnings

from python_compiler import ALWAYS, can_compile

import torch

from python_graph_maker import BATCH, Maker, Module, widened
from python_graph_operators import KINDS

import quern.torch
from quern._compare import DIFFERS

SECONDS = 60
EPS = {torch.float64: 2e-13, torch.float32: 2e-5, torch.float16: 4e-3, torch.bfloat16: 3e-2}


def instance(seed):
    """(Module, inputs, inputs of another batch or None)"""
    is_dynamic = seed % 3 == 2
    m = Maker(seed, is_dynamic)
    net, inputs = m.made(m.rng.choice([1, 2, 4, 8, 16]), KINDS)
    other = [torch.cat([x, x[:2]]) if x.dim() and x.shape[0] == BATCH else x.clone() for x in inputs] if is_dynamic else None
    return net, inputs, other


def copies(inputs):
    return [x.clone(memory_format=torch.preserve_format) for x in inputs]


def called(f, net, inputs):
    """Results, inputs and buffers afterwards: list of tensors."""
    x = copies(inputs)
    with torch.no_grad():
        return [*f(*x), *x, *net.buffers()]


def called_in_f64(net, inputs):
    """The same of a module in f64."""
    torch.set_default_dtype(torch.float64)
    try:
        return called(net, net, [widened(x) for x in inputs])
    finally:
        torch.set_default_dtype(torch.float32)


def foreseen(net, inputs):
    """Likewise, without values."""
    from torch._subclasses import FakeTensorMode
    with FakeTensorMode() as mode, torch.no_grad():
        net = Module(net.text, *({n: mode.from_tensor(t) for n, t in some} for some in (net.named_parameters(), net.named_buffers())))
        x = [mode.from_tensor(x) for x in inputs]
        return [*net(*x), *x, *net.buffers()]


def sharing(tensors):
    """Which of them are in the same memory."""
    where = [t.untyped_storage().data_ptr() if t.numel() else None for t in tensors]
    return [where.index(w) if w is not None else None for w in where]


def value_error(got, want, exact):
    """Why values differ, None: they do not, as far as that can be said. exact: of the same in f64."""
    if not want.is_floating_point():
        return None if torch.equal(got, want) or not torch.equal(want, exact.to(want.dtype)) else "not equal"
    g, w, e = got.double(), want.double(), exact.double()
    if torch.equal(g.nan_to_num(9, 8, 7), w.nan_to_num(9, 8, 7)):
        return None
    finite = w.isfinite()
    if not torch.equal(finite, e.isfinite()) or not torch.equal(w[~finite].nan_to_num(9, 8, 7), e[~finite].nan_to_num(9, 8, 7)):
        return None
    if not torch.equal(g[~finite].nan_to_num(9, 8, 7), w[~finite].nan_to_num(9, 8, 7)) or not g[finite].isfinite().all():
        return "other elements are not finite"
    g, w, e = g[finite], w[finite], e[finite]
    allowed = 6 * (w - e).abs().max() + EPS[want.dtype] * w.abs().max()
    worst = (g - w).abs().max()
    return f"differs by {worst:.3g}, allowed is {allowed:.3g}" if worst > allowed else None


def layout(t):
    """A tensor's order of axes in memory, of those that have one; None if an element stands for several."""
    long = [(s, n) for s, n in zip(t.stride(), t.shape) if n > 1]
    return None if any(s == 0 for s, _ in long) or not t.numel() else [n for _, n in sorted(long, key=lambda a: -a[0])]


def is_dense(t):
    """Whether a tensor is in one block of memory, in any order of axes."""
    size = 1
    for s, n in sorted((s, n) for s, n in zip(t.stride(), t.shape) if n > 1):
        if s != size:
            return False
        size *= n
    return True


def difference(got, want, exact, traced):
    """What is wrong with a call's results; None: nothing. traced: results as PyTorch's compiler foresees them, whose strides it may know better than its kernels;
    results that PyTorch has with gaps between the elements are dense, in the same order."""
    for k, (g, w, e, t) in enumerate(zip(got, want, exact, traced, strict=True)):
        if (g.dtype, g.shape) != (w.dtype, w.shape):
            return f"result {k} is {g.dtype}{list(g.shape)}, PyTorch has {w.dtype}{list(w.shape)}"
        same = [s for s, n in zip(g.stride(), w.shape) if n > 1] == [s for s, n in zip(w.stride(), w.shape) if n > 1]
        if not same and (is_dense(w) or not is_dense(g)) and layout(g) not in (layout(w), layout(t)):
            return f"result {k} {list(w.shape)} has strides {g.stride()}, PyTorch has {w.stride()}"
        why = value_error(g, w, e)
        if why:
            return f"result {k}, {w.dtype}{list(w.shape)}: {why}"
    if sharing(got) != sharing(want):
        return f"other results share memory: {sharing(got)}, PyTorch {sharing(want)}"
    return None


class Outcome(Exception):
    """What became of a seed, if not all was right: `theirs`, `refused` by eager PyTorch."""


def failure(f, net, make, calls):
    """What is wrong with the calls of a compiled function f of the module; None: nothing. make: a new module, as net was."""
    eager, wide = make(), make().in_f64()
    for k, inputs in enumerate(calls):
        try:
            want = called(eager, eager, inputs)
        except Exception as e:  # a size that another batch does not fit
            if k:
                return None
            raise Outcome("refused") from e
        exact = called_in_f64(wide, inputs)
        try:
            got = called(f, net, inputs)
        except Exception as e:
            return f"call {k}: {type(e).__name__}: {str(e).strip().splitlines()[0][:300] if str(e) else ''}"
        why = difference(got, want, exact, foreseen(eager, inputs))
        if why:
            return f"call {k}: {why}"
    return None


def check(seed):
    """None, or what is wrong with a seed, and the reasons for what stays in PyTorch."""
    from quern._dynamo import recording

    def make():
        return instance(seed)[0]
    net, inputs, other = instance(seed)
    calls = [inputs, inputs] + ([other, inputs] if other else [])
    if os.environ.get("SHOW"):
        print(net.text)
    torch._dynamo.reset()
    with recording() as graphs:
        why = failure(torch.compile(net, backend="quern", options=ALWAYS, dynamic=True if other else None), net, make, calls)
    reasons = [r for g in graphs if not isinstance(g, str) for r in [*g.left.items(), *((p.name, p.reason) for p in g.pieces if p.reason)]]
    nodes = {n.name: str(n.target) for g in graphs if not isinstance(g, str) for n in g.gm.graph.nodes}
    if why:
        torch._dynamo.reset()
        net = make()
        theirs = failure(torch.compile(net, backend="aot_eager", dynamic=True if other else None), net, make, calls)
        if theirs:
            raise Outcome("theirs: " + theirs)
    return why, [(nodes.get(name, name), reason) for name, reason in reasons]


def text_of(seed):
    net, inputs, _ = instance(seed)
    return f"{net.text}" + "".join(f"x{k}: {x.dtype}{list(x.shape)} {x.stride()}\n" for k, x in enumerate(inputs))


@unittest.skipUnless(can_compile, "torch.compile needs PyTorch 2.6 or later, onnx and onnxscript")
class Graphs(unittest.TestCase):
    first, count = 0, None

    def test_random(self):
        torch.set_num_threads(1)
        warnings.filterwarnings("ignore")
        start, seed, found = time.time(), self.first, collections.Counter()
        while seed < self.first + self.count if self.count else time.time() < start + SECONDS:
            with self.subTest(seed=seed):
                try:
                    why, left = check(seed)
                except Outcome as e:
                    found[str(e).split(":")[0]] += 1
                    if os.environ.get("SHOW"):
                        print("seed", seed, e)
                else:
                    found["checked"] += 1
                    for name, reason in left:
                        if reason == DIFFERS:
                            found[f"{name} differs"] += 1
                            print(f"seed {seed}: {name} differs", flush=True)
                        elif "exporter" not in reason:
                            found[f"left: {name}"] += 1
                            if os.environ.get("SHOW"):
                                print(name, reason)
                    if why:
                        print(f"seed {seed}: {why}\n{text_of(seed)}", flush=True)
                    self.assertIsNone(why, f"seed {seed}")
            seed += 1
        print(", ".join(f"{n} {what}" for what, n in found.most_common()))
        self.assertGreater(found["checked"], found["theirs"] + found["refused"])


if __name__ == "__main__":
    numbers = [int(a) for a in sys.argv[1:]]
    if numbers:
        Graphs.first, Graphs.count = numbers[0], numbers[1] if len(numbers) > 1 else 1
    print(f"PyTorch {torch.__version__}, quern {quern.version()}")
    unittest.main(argv=sys.argv[:1])
