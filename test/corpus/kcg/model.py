# SPDX-License-Identifier: Apache-2.0
#
# A model as the quick start of deepgen tells to write it: the import lines and the classes BertEmbedding, FeedForward and Attention's constructor are
# quoted from there, the rest is what they leave open. test/python_kcg.py runs it.
import torch, math
import torch.nn as nn
import torch.nn.functional as F
from dataclasses import dataclass
from kcg.TorchInjector import *   # 导入Injector注入器
from kcg.ModelUtils import *   # 导入模型基础设施

g_FmmBaseline=triton_matmul.bmm  # baseline的matmul定义。如果选baseline为triton，选择triton_matmul.bmm； 若选torch，则为 torch.matmul


class LayerNorm(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.gain, self.shift = nn.Parameter(torch.linspace(0.5, 1.5, dim)), nn.Parameter(torch.linspace(-0.5, 0.5, dim))

    def forward(self, x):
        return self.gain * (x - x.mean(-1, keepdim=True)) / (x.std(-1, keepdim=True) + 1e-6) + self.shift


class BertEmbedding(nn.Module):
    def __init__(self, vocab_size, embedding_dim, max_position_embeddings, type_vocab_size):
        super(BertEmbedding, self).__init__()
        f_embedding = create_fixed_embedding # nn.Embedding 替换为 create_fixed_embedding
        
        self.token_embedding = f_embedding(vocab_size, embedding_dim)  # 
        self.position_embedding = f_embedding(max_position_embeddings, embedding_dim)
        self.type_embedding = f_embedding(type_vocab_size, embedding_dim)
        self.layer_norm = LayerNorm(embedding_dim)

    def forward(self, ids):
        at = torch.arange(ids.shape[1], device=ids.device)
        return self.layer_norm(self.token_embedding(ids) + self.position_embedding(at) + self.type_embedding(torch.zeros_like(ids)))


class FeedForward(nn.Module):
    def __init__(self, dim, ffn_hidden_dim, isBaseline):
        super(FeedForward, self).__init__()
        if isBaseline:
            f_mm = g_FmmBaseline
        else:
            f_mm = OpProxy.f_matmul
        self.start_linear = CustomLinear(dim, ffn_hidden_dim, bias=False,f_mm=f_mm)
        self.gelu = nn.GELU()
        self.end_linear = CustomLinear(ffn_hidden_dim, dim, bias=False,f_mm=f_mm)
    
    def forward(self, x):
        start = self.start_linear(x)
        gelu = self.gelu(start)
        end = self.end_linear(gelu)
        return end


class Attention(nn.Module):
    def __init__(self, dim, head_num, isBaseline):
        super(Attention, self).__init__()
        self.head_num = head_num
        self.head_dim = dim // head_num
        if isBaseline :
            f_mm = g_FmmBaseline
        else:
            f_mm = OpProxy.f_matmul
        # f_lin = nn.Linear
        f_lin = CustomLinear
        self.wq = f_lin(dim, head_num * self.head_dim, bias=False, f_mm=f_mm)
        self.wk = f_lin(dim, head_num * self.head_dim, bias=False, f_mm=f_mm)
        self.wv = f_lin(dim, head_num * self.head_dim, bias=False, f_mm=f_mm)
        self.wo = f_lin(head_num * self.head_dim, dim, bias=False, f_mm=f_mm)
        self.f_matmul = f_mm

    def forward(self, x):
        q, k, v = (w(x).view(*x.shape[:2], self.head_num, self.head_dim).transpose(1, 2) for w in (self.wq, self.wk, self.wv))
        scores = self.f_matmul(q, k.transpose(2, 3)) / math.sqrt(self.head_dim)
        mask = torch.full((x.shape[1], x.shape[1]), float("-inf"), device=x.device).triu(1)
        scores = F.softmax(scores + mask, dim=-1)
        return self.wo(self.f_matmul(scores, v).transpose(1, 2).contiguous().view(*x.shape))


@dataclass
class ModelArgs:
    dim: int = 1024
    n_layers: int = 1
    n_heads: int = 16
    ffn_dim: int = 4096
    vocab_size: int = 32000
    max_positions: int = 1024


class BERT(nn.Module):
    def __init__(self, isBaseline, args=ModelArgs()):
        super().__init__()
        self.embedding = BertEmbedding(args.vocab_size, args.dim, args.max_positions, 2)
        self.attention = nn.ModuleList(Attention(args.dim, args.n_heads, isBaseline) for _ in range(args.n_layers))
        self.feed_forward = nn.ModuleList(FeedForward(args.dim, args.ffn_dim, isBaseline) for _ in range(args.n_layers))
        self.norms = nn.ModuleList(LayerNorm(args.dim) for _ in range(2 * args.n_layers))

    def forward(self, ids):
        x = self.embedding(ids)
        for i, (attention, feed_forward) in enumerate(zip(self.attention, self.feed_forward)):
            x = self.norms[2 * i](x + attention(x))
            x = self.norms[2 * i + 1](x + feed_forward(x))
        return x
