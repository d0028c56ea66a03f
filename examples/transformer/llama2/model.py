# SPDX-License-Identifier: Apache-2.0
"""Llama 2 (7B): 32 layers, RMS norms in front of the branches, rotary positions, SwiGLU, logits as the result. The published sizes have 27 GB of
weights in f32, twice that for base and ours; --n-layers makes it smaller."""
from dataclasses import dataclass

import torch
import torch.nn as nn
from blocks import CustomLinear, SelfAttention, Sizes, Stack, create_fixed_embedding, product_of


@dataclass
class ModelArgs(Sizes):
    dim: int = 4096
    n_layers: int = 32
    n_heads: int = 32
    ffn_dim: int = 11008
    max_seq_len: int = 2048
    norm_eps: float = 1e-5
    rope_theta: float = 10000.0


class RMSNorm(nn.Module):
    def __init__(self, dim, eps):
        super().__init__()
        self.gain, self.eps = nn.Parameter(torch.ones(dim)), eps

    def forward(self, x):
        return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + self.eps) * self.gain


class Rotary(nn.Module):
    """Rotates neighbouring elements of a head as pairs, by an angle for each position and pair: theta^(-2 i / d) times the position."""

    def __init__(self, size, positions, theta):
        super().__init__()
        angle = torch.arange(positions)[:, None] * theta ** (-torch.arange(0, size, 2) / size)
        self.register_buffer("cos", angle.cos(), persistent=False)
        self.register_buffer("sin", angle.sin(), persistent=False)

    def forward(self, x):
        """x (b, h, s, d)"""
        cos, sin = self.cos[:x.shape[2]], self.sin[:x.shape[2]]
        a, b = x[..., 0::2], x[..., 1::2]
        return torch.stack((a * cos - b * sin, a * sin + b * cos), -1).flatten(-2)


class Layer(nn.Module):
    def __init__(self, a, f_mm, rotary):
        super().__init__()
        self.attention_norm, self.ffn_norm = RMSNorm(a.dim, a.norm_eps), RMSNorm(a.dim, a.norm_eps)
        self.attention = SelfAttention(a.dim, a.n_heads, f_mm, rotary)
        self.gate, self.up = CustomLinear(a.dim, a.ffn_dim, bias=False, f_mm=f_mm), CustomLinear(a.dim, a.ffn_dim, bias=False, f_mm=f_mm)
        self.down = CustomLinear(a.ffn_dim, a.dim, bias=False, f_mm=f_mm)

    def forward(self, x, mask):
        x = x + self.attention(self.attention_norm(x), mask)
        y = self.ffn_norm(x)
        return x + self.down(nn.functional.silu(self.gate(y)) * self.up(y))


class Model(Stack):
    def __init__(self, a, is_baseline, baseline="torch"):
        f_mm = product_of(is_baseline, baseline)
        rotary = Rotary(a.dim // a.n_heads, a.max_seq_len, a.rope_theta)
        super().__init__(create_fixed_embedding(a.vocab_size, a.dim), (Layer(a, f_mm, rotary) for _ in range(a.n_layers)),
                         nn.Sequential(RMSNorm(a.dim, a.norm_eps), CustomLinear(a.dim, a.vocab_size, bias=False, f_mm=f_mm)))
