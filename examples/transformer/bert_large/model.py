# SPDX-License-Identifier: Apache-2.0
"""The encoder that deepgen calls BERT-large: norms behind the sums, causal masks, no biases, hidden states as the result."""
import torch.nn as nn
from blocks import Embedding, FeedForward, SelfAttention, Sizes, Stack, product_of

ModelArgs = Sizes


class Layer(nn.Module):
    def __init__(self, a, f_mm):
        super().__init__()
        self.attention, self.feed_forward = SelfAttention(a.dim, a.n_heads, f_mm), FeedForward(a.dim, a.ffn_dim, f_mm)
        self.norms = nn.ModuleList(nn.LayerNorm(a.dim, eps=1e-6) for _ in range(2))

    def forward(self, x, mask):
        x = self.norms[0](x + self.attention(x, mask))
        return self.norms[1](x + self.feed_forward(x))


class Model(Stack):
    def __init__(self, a, is_baseline, baseline="torch"):
        f_mm = product_of(is_baseline, baseline)
        super().__init__(Embedding(a), (Layer(a, f_mm) for _ in range(a.n_layers)), nn.Identity())
