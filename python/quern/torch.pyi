# SPDX-License-Identifier: Apache-2.0
# The types of quern.torch.
from typing import Any, Callable, Literal, Mapping, Sequence

import torch

from ._torch_operator import Operator as Operator

_Size = int | Sequence[int]
_Padding = Literal["zero", "reflect", "replicate", "valid"]
_Transform = Literal["none", "exp", "softmax"] | None
_Normalize = Literal["none", "sum"] | bool | None

def scaled_dot_product_attention(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, attn_mask: torch.Tensor | None = None,
                                 dropout_p: float = 0.0, is_causal: bool | str = False, scale: float | None = None, enable_gqa: bool = True, *,
                                 softcap: float = 0.0, window: tuple[int | None, int | None] = (None, None),
                                 sinks: torch.Tensor | None = None) -> torch.Tensor: ...
def weighted_filter(input: torch.Tensor, weight: torch.Tensor, kernel_size: _Size, bias: torch.Tensor | None = None, splat: bool = False, *,
                    dilation: _Size = 1, padding: _Padding = "zero", transform: _Transform = "none", normalize: _Normalize = "none",
                    epsilon: float = 0.0) -> torch.Tensor: ...

class Explanation:
    def __str__(self) -> str: ...

def explain(model: Callable[..., Any], *inputs: Any, mode: Literal["default", "tune"] | None = None, options: Mapping[str, Any] | None = None,
            dynamic: bool | None = None, training: bool = False, **named: Any) -> Explanation: ...
def export(model: torch.nn.Module, inputs: tuple[Any, ...], path: str, dynamic_shapes: Any = None, database: Any = None, threads: int = 0,
           **options: Any) -> None: ...
def load(path: str, **options: Any) -> torch.nn.Module: ...
def optimize(model: torch.nn.Module, kinds: tuple[type, ...] = ...) -> torch.nn.Module: ...

class WeightedFilter(torch.nn.Module):
    def __init__(self, channels: int, kernel_size: _Size, bias: bool = True, splat: bool = False, *, dilation: _Size = 1,
                 padding: _Padding = "zero", transform: _Transform = "none", normalize: _Normalize = "none", epsilon: float = 0.0,
                 device: Any = None, dtype: torch.dtype | None = None) -> None: ...
    def reset_parameters(self) -> None: ...
    def forward(self, input: torch.Tensor, weight: torch.Tensor) -> torch.Tensor: ...
    def __call__(self, input: torch.Tensor, weight: torch.Tensor) -> torch.Tensor: ...

def __getattr__(name: str) -> Any: ...
