# SPDX-License-Identifier: Apache-2.0
"""Parts that the three models share. Each model takes its matrix products from one function, f_mm(a, b): OpProxy.f_matmul, or a baseline.

    b  sequences   s  tokens   h  heads   d  size of a head
"""
import math
from dataclasses import dataclass

import torch
import torch.nn as nn
from kcg.ModelUtils import *
from kcg.TorchInjector import *

@dataclass
class Sizes:
    """Those of the network that deepgen calls BERT-large."""

    dim: int = 1024
    n_layers: int = 16
    n_heads: int = 16
    ffn_dim: int = 4096
    vocab_size: int = 32000
    max_seq_len: int = 1024


BASELINES = {"torch": torch.matmul, "triton": triton_matmul.bmm}


def product_of(is_baseline, baseline="torch"):
    return BASELINES[baseline] if is_baseline else OpProxy.f_matmul


def causal_mask(s, device):
    """(s, s): minus infinity where a key is behind its query."""
    return torch.full((s, s), -math.inf, device=device).triu(1)


class SelfAttention(nn.Module):
    """softmax(q k^T / sqrt(d) + mask) v between four linear layers. turn: applied to queries and keys, (b, h, s, d)."""

    def __init__(self, width, heads, f_mm, turn=None):
        super().__init__()
        self.heads, self.size, self.f_mm, self.turn = heads, width // heads, f_mm, turn or (lambda t: t)
        self.query, self.key, self.value, self.output = (CustomLinear(width, width, bias=False, f_mm=f_mm) for _ in range(4))

    def split(self, x):
        """(b, s, h d) as (b, h, s, d): a view."""
        return x.view(*x.shape[:2], self.heads, self.size).transpose(1, 2)

    def forward(self, x, mask):
        q, k, v = (self.split(layer(x)) for layer in (self.query, self.key, self.value))
        scores = self.f_mm(self.turn(q), self.turn(k).transpose(2, 3)) / math.sqrt(self.size) + mask
        mixed = self.f_mm(torch.softmax(scores, -1), v)
        return self.output(mixed.transpose(1, 2).reshape(x.shape))


class FeedForward(nn.Module):
    """Two linear layers with GELU between."""

    def __init__(self, width, hidden, f_mm):
        super().__init__()
        self.up, self.down = CustomLinear(width, hidden, bias=False, f_mm=f_mm), CustomLinear(hidden, width, bias=False, f_mm=f_mm)

    def forward(self, x):
        return self.down(nn.functional.gelu(self.up(x)))


class Embedding(nn.Module):
    """The sum of a table's rows for the tokens, one for the positions, and one for the kind of text, which is always the first of two."""

    def __init__(self, a):
        super().__init__()
        self.token = create_fixed_embedding(a.vocab_size, a.dim)
        self.position = create_fixed_embedding(a.max_seq_len, a.dim)
        self.kind = create_fixed_embedding(2, a.dim)
        self.norm = nn.LayerNorm(a.dim, eps=1e-12)

    def forward(self, ids):
        at = torch.arange(ids.shape[1], device=ids.device)
        return self.norm(self.token(ids) + self.position(at) + self.kind(torch.zeros_like(ids)))


class Stack(nn.Module):
    """An embedding, layers (x, mask), and an end."""

    def __init__(self, embedding, layers, end):
        super().__init__()
        self.embedding, self.layers, self.end = embedding, nn.ModuleList(layers), end

    def forward(self, ids):
        x, mask = self.embedding(ids), causal_mask(ids.shape[1], ids.device)
        for layer in self.layers:
            x = layer(x, mask)
        return self.end(x)
