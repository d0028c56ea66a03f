# SPDX-License-Identifier: Apache-2.0
"""GPT-2 (small) as deepgen has it: norms in front of the branches, no biases but that of the last layer, logits as the result."""
from dataclasses import dataclass

import torch.nn as nn
from blocks import CustomLinear, Embedding, FeedForward, SelfAttention, Sizes, Stack, product_of


@dataclass
class ModelArgs(Sizes):
    dim: int = 768
    n_layers: int = 12
    n_heads: int = 12
    ffn_dim: int = 3072


def norm(a):
    return nn.LayerNorm(a.dim, eps=1e-12)


class Layer(nn.Module):
    def __init__(self, a, f_mm):
        super().__init__()
        self.attention = nn.Sequential(norm(a), SelfAttention(a.dim, a.n_heads, f_mm))
        self.feed_forward = nn.Sequential(norm(a), FeedForward(a.dim, a.ffn_dim, f_mm))

    def forward(self, x, mask):
        x = x + self.attention[1](self.attention[0](x), mask)
        return x + self.feed_forward(x)


class Model(Stack):
    def __init__(self, a, is_baseline, baseline="torch"):
        f_mm = product_of(is_baseline, baseline)
        super().__init__(Embedding(a), (Layer(a, f_mm) for _ in range(a.n_layers)), nn.Sequential(norm(a), CustomLinear(a.dim, a.vocab_size, f_mm=f_mm)))
