# SPDX-License-Identifier: Apache-2.0
"""Layers with random weights.

A script builds its model twice, base and ours, and compares the results. So that this means something, weights are random, and each
layer has its own; so that it is possible, they depend only on the place of the layer in the outermost module under construction, and on
its sizes. Of layers that are built outside of any module, those of equal sizes are equal.
"""
import math
import sys

import torch
import torch.nn as nn

from ._products import torch_matmul


def outermost_module():
    """The module whose constructor runs, the outermost one. None: none does."""
    frame, found = sys._getframe(1), None
    while frame is not None:
        owner = frame.f_locals.get("self") if frame.f_code.co_name == "__init__" else None
        found = owner if isinstance(owner, nn.Module) else found
        frame = frame.f_back
    return found


def generator_of(*sizes):
    """Random numbers for the next layer: see the head of the file."""
    module, place = outermost_module(), 0
    if module is not None:
        place = module.__dict__.setdefault("_kcg_layers", 0) + 1
        module.__dict__["_kcg_layers"] = place
    seed = 0
    for n in (place, *sizes):
        seed = (seed * 1000003 + n + 1) % (1 << 63)
    return torch.Generator().manual_seed(seed)


class CustomLinear(nn.Module):
    """y = f_mm(x, weight^T) + bias: nn.Linear with a function for the product. Weights have a deviation of 1 / sqrt(in_features), so that values keep
    their size."""

    def __init__(self, in_features, out_features, bias=True, f_mm=torch_matmul):
        super().__init__()
        self.in_features, self.out_features, self.f_mm = in_features, out_features, f_mm
        g = generator_of(in_features, out_features)
        weight = torch.randn((in_features, out_features), generator=g) / math.sqrt(max(in_features, 1))
        self.weight = nn.Parameter(weight.t())  # in memory as products read it
        self.bias = nn.Parameter(torch.randn(out_features, generator=g) / 2) if bias else None

    @classmethod
    def of(cls, linear, f_mm):
        """One with the parameters of an nn.Linear: these very tensors."""
        self = cls.__new__(cls)
        nn.Module.__init__(self)
        self.in_features, self.out_features, self.f_mm = linear.in_features, linear.out_features, f_mm
        self.weight, self.bias = linear.weight, linear.bias
        self.train(linear.training)
        return self

    def forward(self, x):
        y = self.f_mm(x, self.weight.t())
        return y if self.bias is None else y + self.bias

    def extra_repr(self):
        return f"in_features={self.in_features}, out_features={self.out_features}, bias={self.bias is not None}"


def create_fixed_embedding(num_embeddings, embedding_dim):
    """nn.Embedding with random rows, the same in every run, which are not trained."""
    rows = torch.randn((num_embeddings, embedding_dim), generator=generator_of(num_embeddings, embedding_dim))
    return nn.Embedding.from_pretrained(rows, freeze=True)
