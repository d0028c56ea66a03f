# SPDX-License-Identifier: Apache-2.0
#
# Random modules of common operators of PyTorch, as source text, for test/python_graphs.py.
#
# A program is grown statement by statement: each is tried on the values so far, and those that PyTorch refuses are dropped. Of each value is known
#   exact:   whether every implementation must give the same bits, because nothing is rounded: only such values are compared, rounded down, sorted or indexed
#            by, so that no decision depends on rounding;
#   extreme: whether it may have values near the ends of its type, sums of which depend on their order: it is only moved, compared and taken elementwise.
# Sizes are small and include 0 and 1. In programs with a symbolic batch that is BATCH, which no other size is, and the text says `b` instead.
import math
import random

import torch

BATCH = 7
FLOATS = ["f32", "f32", "f32", "f64", "f16", "bf16"]
TYPES = {"f32": torch.float32, "f64": torch.float64, "f16": torch.float16, "bf16": torch.bfloat16, "i64": torch.int64, "i32": torch.int32, "u8": torch.uint8,
         "bool": torch.bool}
MOST = 20000  # elements of a value


class Module(torch.nn.Module):
    """A program with its weights and buffers. Its types are attributes, so that the same text also runs in f64."""

    def __init__(self, text, weights, buffers):
        super().__init__()
        self.text = text
        for name, t in weights.items():
            setattr(self, name, torch.nn.Parameter(t, requires_grad=False))
        for name, t in buffers.items():
            self.register_buffer(name, t)
        for name, t in TYPES.items():
            setattr(self, name, t)
        space = {}
        exec(compile(text, "<random graph>", "exec"), {"torch": torch, "F": torch.nn.functional, "math": math}, space)
        self.f = space["f"]

    def forward(self, *x):
        return self.f(self, *x)

    def in_f64(self):
        """The same in f64, wherever floats are."""
        net = Module(self.text, {n: widened(p) for n, p in self.named_parameters()}, {n: widened(p) for n, p in self.named_buffers()})
        for name in ("f32", "f16", "bf16"):
            setattr(net, name, torch.float64)
        return net


def widened(t):
    return t.double() if t.is_floating_point() else t


class Value:
    def __init__(self, name, t, exact, extreme=False):
        self.name, self.t, self.exact, self.extreme = name, t, exact, extreme
        self.shape, self.rank = tuple(t.shape), t.dim()
        self.is_float, self.is_int = t.is_floating_point(), t.dtype in (torch.int64, torch.int32, torch.uint8)


class Maker:
    """values: those so far; a program is made() with its inputs."""

    def __init__(self, seed, is_dynamic):
        self.rng, self.is_dynamic = random.Random(seed), is_dynamic
        self.draws = torch.Generator().manual_seed(seed)
        self.values, self.lines, self.inputs = [], [], []
        self.weights, self.buffers, self.state = {}, {}, {}  # buffers: as they are at first; state: as statements so far leave them

    # --- values ---

    def tensor(self, type_, shape, hard=0.0):
        """Random: eighths between -4 and 4 or small integers, with ties; hard: fraction of zeros of either sign, infinities and NaN."""
        t = TYPES[type_]
        if type_ == "bool":
            return torch.randint(0, 2, shape, generator=self.draws).bool()
        if not t.is_floating_point:
            return torch.randint(0 if type_ == "u8" else -9, 10, shape, generator=self.draws).to(t)
        x = torch.randint(-32, 33, shape, generator=self.draws) / 8
        if hard:
            special = torch.tensor([0.0, -0.0, math.inf, -math.inf, math.nan])[torch.randint(0, 5, shape, generator=self.draws)]
            x = torch.where(torch.rand(shape, generator=self.draws) < hard, special, x)
        return x.to(t)

    def extremes(self, type_, shape):
        t = TYPES[type_]
        i = torch.finfo(t) if t.is_floating_point else torch.iinfo(t)
        some = [i.max, i.min, 0, 1, i.max - 1] + ([i.tiny, -i.tiny, math.inf, -math.inf, math.nan, -0.0] if t.is_floating_point else [])
        return torch.tensor(some, dtype=t)[torch.randint(0, len(some), shape, generator=self.draws)]

    def shape(self, rank=None):
        rank = self.rng.randrange(5) if rank is None else rank
        s = [self.rng.choice([1, 2, 3, 3, 4, 4, 5, 6, 8, 9, 16]) for _ in range(rank)]
        if s and self.rng.random() < 0.03:
            s[self.rng.randrange(rank)] = 0
        if s and self.is_dynamic:
            s[0] = BATCH
        return s

    def input(self, type_=None, shape=None):
        type_ = type_ or self.rng.choice(FLOATS + ["f32"] * 6 + ["i64", "i32", "u8", "bool"])
        shape = self.shape(self.rng.choice([1, 2, 2, 3, 3, 4, 4, 4])) if shape is None else shape
        roll = self.rng.random()
        extreme = roll < 0.12 and type_ != "bool"
        t = self.extremes(type_, shape) if extreme else self.tensor(type_, shape, 0.2 if roll < 0.3 else 0.0)
        if len(shape) > 1 and self.rng.random() < 0.15 and not self.is_dynamic:
            t = t.transpose(-1, -2).contiguous().transpose(-1, -2)
        self.values.append(Value(f"x{len(self.inputs)}", t.clone(memory_format=torch.preserve_format), True, extreme))
        self.inputs.append(t)

    def weight(self, shape, type_):
        name = f"w{len(self.weights)}"
        self.weights[name] = self.tensor(type_, shape)
        return f"net.{name}"

    def buffer(self, shape, type_):
        name = f"b{len(self.buffers)}"
        self.buffers[name] = self.tensor(type_, shape)
        self.state[name] = self.buffers[name].clone()
        return name

    # --- text ---

    def size(self, n):
        return "b" if self.is_dynamic and n == BATCH else str(n)

    def sizes(self, shape):
        return "[" + ", ".join(map(self.size, shape)) + "]"

    def type_of(self, v):
        return next(n for n, t in TYPES.items() if t == v.t.dtype)

    def pick(self, want=lambda v: True):
        """A value, the newer the likelier; None: none is like that."""
        good = [v for v in self.values if want(v)]
        return good[min(int(self.rng.expovariate(0.35)), len(good) - 1) * -1 - 1] if good else None

    def space(self):
        """The names that a statement may use, with their values so far."""
        net = Module("def f(net): pass", self.weights, {})
        for name, t in self.state.items():
            net.register_buffer(name, t)
        return {"torch": torch, "F": torch.nn.functional, "net": net, "b": BATCH, "math": math, **{v.name: v.t for v in self.values}}

    def add(self, text, exact, extreme=False):
        """One more statement: an expression, if PyTorch takes it."""
        try:
            got = eval(text, self.space())
        except Exception:
            return
        comma = "," if isinstance(got, (tuple, list)) else ""
        got = list(got) if comma else [got]
        if not got or not all(isinstance(t, torch.Tensor) and t.numel() <= MOST and t.dim() <= 6 and not t.is_complex() for t in got):
            return
        names = [f"v{len(self.values) + k}" for k in range(len(got))]
        self.lines.append(f"{', '.join(names)}{comma} = {text}")
        self.values += [Value(n, t, exact, extreme) for n, t in zip(names, got)]

    def write(self, text, to, exact, extreme):
        """A statement that writes to a tensor, and so to all values that share its memory."""
        try:
            exec(text, self.space())
        except Exception:
            return
        self.lines.append(text)
        for v in self.values:
            if v.t.untyped_storage().data_ptr() == to.untyped_storage().data_ptr():
                v.exact, v.extreme = v.exact and exact, v.extreme or extreme

    def made(self, n_statements, kinds):
        """(Module, inputs)"""
        for _ in range(self.rng.choice([1, 1, 2, 2, 3])):
            self.input()
        for _ in range(20 * n_statements):
            if len(self.lines) < n_statements:
                self.rng.choice(kinds)(self)
        return self.program(), [t.clone(memory_format=torch.preserve_format) for t in self.inputs]

    def program(self):
        names = [v.name for v in self.values]
        results = self.rng.sample(names, min(len(names), self.rng.choice([1, 2, 3, 4])))
        if names[-1] not in results:
            results.append(names[-1])
        inputs = ", ".join(f"x{k}" for k in range(len(self.inputs)))
        first = "    b = x0.shape[0]\n" if self.is_dynamic else ""
        text = f"def f(net, {inputs}):\n{first}" + "".join(f"    {line}\n" for line in self.lines) + f"    return {', '.join(results)},\n"
        return Module(text, self.weights, self.buffers)
