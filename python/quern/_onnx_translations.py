# SPDX-License-Identifier: Apache-2.0
"""Operators of PyTorch that become operators of the library (domain ai.quern), because PyTorch's exporter to ONNX has nothing for them and PyTorch no
decomposition that multiplies matrices: gradients of convolutions and of attention (doc/gradients.md), and the library's own layer (doc/weighted-filter.md);
and attention, of which the exporter refuses some. And operators of which the exporter writes what differs from PyTorch's results at extreme values,
which no comparison of a first call's results would find.

This is the whole list; everything else is the exporter's. A function gets the ONNX values and the numbers of an FX node, and adds nodes to the model.
"""
from __future__ import annotations

import math
from typing import Any, Callable, Iterable, Sequence

import torch

from ._weighted_filter import Spec


def emit(name: str, inputs: Iterable[Any], outputs: int = 1, **attributes: Any) -> Any:
    """A node of the library's domain in the model that is being exported; None: an omitted input. Its outputs, a single one without a list."""
    import onnx_ir as ir
    import onnxscript
    given = list(inputs)
    while given and given[-1] is None:
        given.pop()
    node = ir.Node("ai.quern", name, given, ir.convenience.convert_attributes({n: v for n, v in attributes.items() if v is not None}),
                   num_outputs=outputs, version=1)
    onnxscript.evaluator.default().nodes.append(node)
    return node.outputs[0] if outputs == 1 else list(node.outputs)


def absent() -> Any:
    """A result that nobody wants."""
    import onnx_ir as ir
    return ir.Value()


def total(x: Any, axes: Iterable[int]) -> Any:
    """Sums over these axes."""
    from onnxscript import opset18 as op
    return op.ReduceSum(x, op.Constant(value_ints=list(axes)), keepdims=0)


def spread(values: Sequence[int], rank: int) -> list[int]:
    """One number for each spatial axis: PyTorch also writes one for all of them."""
    values = list(values)
    return values * rank if len(values) == 1 else values


def window(rank: int, kernel: Sequence[int], stride: Sequence[int], padding: Sequence[int], dilation: Sequence[int], groups: int) -> dict[str, Any]:
    """The attributes of a convolution."""
    pads = spread(padding, rank)
    return {"kernel_shape": kernel, "strides": spread(stride, rank), "pads": pads + pads, "dilations": spread(dilation, rank), "group": groups}


def fixed(shape: Sequence[Any], what: str) -> list[int]:
    """Sizes as integers."""
    if not all(isinstance(d, int) for d in shape):
        raise NotImplementedError(f"{what} have the symbolic sizes {list(map(str, shape))}")
    return list(shape)


def convolution_backward(dy: Any, x: Any, w: Any, bias_sizes: Any, stride: Sequence[int], padding: Sequence[int], dilation: Sequence[int],
                         transposed: bool, output_padding: Sequence[int], groups: int, output_mask: Sequence[bool]) -> list[Any]:
    """dy (n, m, o..), x (n, c, d..); w (m, c/groups, k..), transposed (c, m/groups, k..). A transposed one is the adjoint of a convolution of y."""
    from onnxscript import opset18 as op
    rank = len(w.shape) - 2
    a = window(rank, fixed(w.shape[2:], "weights"), stride, padding, dilation, groups)
    dx = dw = None
    if output_mask[0]:
        if transposed:
            dx = op.Conv(dy, w, **a)
        else:
            is_plain = all(s == 1 for s in a["strides"])
            dx = emit("ConvGradInput", (dy, w), **a, input_shape=None if is_plain else fixed(x.shape[2:], "gradients by the input of a strided convolution"))
    if output_mask[1]:
        dw = emit("ConvGradWeight", (dy, x) if transposed else (x, dy), **a)
    db = total(dy, [0, *range(2, rank + 2)]) if output_mask[2] else None
    return [absent() if d is None else d for d in (dx, dw, db)]


def attention_attributes(dropout_p: float, is_causal: bool, scale: float | None) -> dict[str, Any]:
    """Those of ONNX's Attention. Raises NotImplementedError for dropout."""
    if dropout_p:
        raise NotImplementedError("dropout draws random numbers")
    return {"is_causal": int(is_causal), "scale": None if scale is None else float(scale)}


def attention(q: Any, k: Any, v: Any, dropout_p: float = 0.0, is_causal: bool = False, attn_mask: Any = None, scale: float | None = None) -> list[Any]:
    """(output, logsumexp); operands (batch, heads, positions, head size), logsumexp (batch, heads, positions)."""
    from onnxscript import opset18 as op
    y, most, rest = emit("AttentionForward", (q, k, v, attn_mask), 3, **attention_attributes(dropout_p, is_causal, scale))
    return [y, op.Add(most, rest)]


def scaled_dot_product_attention(q: Any, k: Any, v: Any, attn_mask: Any = None, dropout_p: float = 0.0, is_causal: bool = False, scale: float | None = None,
                                 enable_gqa: bool = False) -> Any:
    """Operands (batch, heads, positions, head size), or without the batch. Keys and values of fewer heads, or of a single one, which PyTorch spreads over those
    of the queries, are what ONNX's Attention takes; PyTorch's exporter refuses them."""
    from onnxscript import opset23 as op
    rank = len(q.shape)
    if rank not in (3, 4) or len(k.shape) != rank or len(v.shape) != rank:
        raise NotImplementedError("operands are not all of rank 3 or all of rank 4")
    heads = [x.shape[rank - 3] for x in (q, k, v)]
    if heads[1] != heads[2] or heads[0] != heads[1] and not (heads[1] == 1 or enable_gqa):
        raise NotImplementedError(f"heads {', '.join(map(str, heads))}")
    if rank == 4 and not q.shape[0] == k.shape[0] == v.shape[0]:
        raise NotImplementedError("operands of different batches")
    if rank == 3:
        first = op.Constant(value_ints=[0])
        q, k, v = (op.Unsqueeze(x, first) for x in (q, k, v))
    y = op.Attention(q, k, v, attn_mask, **attention_attributes(dropout_p, is_causal, scale))[0]
    return op.Squeeze(y, first) if rank == 3 else y


def attention_backward(dy: Any, q: Any, k: Any, v: Any, y: Any, logsumexp: Any, dropout_p: float, is_causal: bool, attn_mask: Any = None,
                       scale: float | None = None) -> Any:
    """dq, dk, dv. The statistics of rows are their logsumexp and 0."""
    from onnxscript import opset18 as op
    zero = op.CastLike(op.Expand(op.Constant(value_floats=[0.0]), op.Shape(logsumexp)), logsumexp)
    return emit("AttentionGrad", (q, k, v, attn_mask, None, None, None, None, y, logsumexp, zero, dy), 3,
                **attention_attributes(dropout_p, is_causal, scale))


def logaddexp(x: Any, y: Any, base: float = math.e) -> Any:
    """log(base^x + base^y) as the greater one plus a small number; the exporter's powers overflow. Where both are the same infinity, their difference is NaN."""
    from onnxscript import opset18 as op
    scale = math.log(base)
    more = op.Div(op.Softplus(op.Mul(op.Neg(op.Abs(op.Sub(x, y))), scale)), scale)
    return op.Where(op.Equal(x, y), op.Add(x, math.log(2) / scale), op.Add(op.Max(x, y), more))


def logaddexp2(x: Any, y: Any) -> Any:
    return logaddexp(x, y, 2.0)


def atan2(y: Any, x: Any) -> Any:
    """The angle in the first quadrant, then mirrored by the signs, also those of zeros; the exporter's is 0 for NaN."""
    from onnxscript import opset18 as op

    def is_negative(v: Any) -> Any:
        return op.Or(op.Less(v, 0.0), op.And(op.Equal(v, 0.0), op.Less(op.Reciprocal(v), 0.0)))
    ay, ax = op.Abs(y), op.Abs(x)
    is_equal = op.And(op.Equal(ay, ax), op.Or(op.Equal(ay, 0.0), op.IsInf(ay)))
    one_or_0 = op.Min(ay, op.CastLike(op.Constant(value_float=1.0), ay))
    angle = op.Atan(op.Where(is_equal, one_or_0, op.Div(ay, ax)))
    angle = op.Where(is_negative(x), op.Sub(math.pi, angle), angle)
    return op.Where(is_negative(y), op.Neg(angle), angle)


def alike(y: Any, x: Any) -> Any:
    """A number, or a tensor, in the type of x."""
    from onnxscript import opset18 as op
    return y if getattr(y, "dtype", None) == x.dtype else op.CastLike(y, x)


def floor_divide(x: Any, y: Any) -> Any:
    """As PyTorch (c10/util/generic_math.h, div_floor_floating): the quotient of what fmod leaves, so that 1 // 0.1 is 9. The exporter's floor(x / y) is 10."""
    from onnxscript import opset18 as op
    y = alike(y, x)
    if not x.dtype.is_floating_point():
        return op.Div(op.Sub(x, op.Mod(x, y)), y)
    rest = op.Mod(x, y, fmod=1)
    quotient = op.Div(op.Sub(x, rest), y)
    is_less = op.And(op.Not(op.Equal(rest, 0.0)), op.Xor(op.Less(y, 0.0), op.Less(rest, 0.0)))
    quotient = op.Where(is_less, op.Sub(quotient, 1.0), quotient)
    floor, ratio = op.Floor(quotient), op.Div(x, y)
    floor = op.Where(op.Greater(op.Sub(quotient, floor), 0.5), op.Add(floor, 1.0), floor)
    floor = op.Where(op.Equal(quotient, 0.0), op.Mul(ratio, 0.0), floor)  # zeros have the sign of the ratio
    return op.Where(op.Equal(y, 0.0), ratio, floor)


def divide(x: Any, y: Any, rounding_mode: str | None = None) -> Any:
    """Division with rounding as PyTorch computes it: towards zero ("trunc"), down ("floor"), or none."""
    from onnxscript import opset18 as op
    if rounding_mode == "floor":
        return floor_divide(x, y)
    y = alike(y, x)
    if not x.dtype.is_floating_point():
        if rounding_mode is None:
            raise NotImplementedError("a quotient of integers that is a fraction")
        return op.Div(x, y)
    ratio = op.Div(x, y)
    return ratio if rounding_mode is None else op.Where(op.Less(ratio, 0.0), op.Ceil(ratio), op.Floor(ratio))


def logcumsumexp(x: Any, dim: int) -> Any:
    raise NotImplementedError("what is far below the maximum of its row would be lost")


def filter_attributes(kernel_size: Any, splat: bool, dilation: Any, padding: str, transform: str, normalize: str, epsilon: float) -> dict[str, Any]:
    return dict(Spec(kernel_size, splat, dilation, padding, transform, normalize, epsilon).attributes())


def weighted_filter(x: Any, w: Any, bias: Any, *spec: Any) -> Any:
    return emit("WeightedFilter", (x, w, bias), **filter_attributes(*spec))


def weighted_filter_grad_input(dy: Any, w: Any, size: Any, *spec: Any) -> Any:
    return emit("WeightedFilterGradInput", (dy, w), **filter_attributes(*spec))


def weighted_filter_grad_weights(dy: Any, x: Any, w: Any, *spec: Any) -> Any:
    return emit("WeightedFilterGradWeights", (dy, x, w), **filter_attributes(*spec))


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "aten.scaled_dot_product_attention.default": scaled_dot_product_attention,
    "aten.convolution_backward.default": convolution_backward,
    "aten._scaled_dot_product_flash_attention_for_cpu.default": attention,
    "aten._scaled_dot_product_flash_attention_for_cpu_backward.default": attention_backward,
    "aten.atan2.default": atan2,
    "aten.div.Scalar_mode": divide,
    "aten.div.Tensor_mode": divide,
    "aten.floor_divide.default": floor_divide,
    "aten.logaddexp.default": logaddexp,
    "aten.logaddexp2.default": logaddexp2,
    "aten.logcumsumexp.default": logcumsumexp,
    "quern.weighted_filter.default": weighted_filter,
    "quern.weighted_filter_grad_input.default": weighted_filter_grad_input,
    "quern.weighted_filter_grad_weights.default": weighted_filter_grad_weights,
}


def overload(name: str) -> Any:
    """The operator of a name such as "aten.linear.default"; None: this process has none."""
    space, op, variant = name.split(".")
    return getattr(getattr(getattr(torch.ops, space), op, None), variant, None)


def operators() -> dict[Any, Callable[..., Any]]:
    """{operator: function} of those that this PyTorch has."""
    return {op: f for name, f in FUNCTIONS.items() for op in [overload(name)] if op is not None}


def register(registry: Any) -> None:
    """Adds them to the exporter's operators, before its own."""
    for op, f in operators().items():
        registry.register_op(op, f)
