# SPDX-License-Identifier: Apache-2.0
"""quern.torch.Operator: single operators on tensors, with gradients where the library has operators for them."""
from __future__ import annotations

import functools
from typing import Any, Callable, Mapping, Sequence

import torch

from . import _arrays as arrays
from . import _operator
from ._torch_run import placed

Tensors = Sequence[Any]  # tensors; None: omitted


class Operator(torch.nn.Module):
    """One operator of ONNX, or of the library, on tensors.

    Parameters
    ----------
    name, attributes, sizes, outputs
        As of `quern.Operator`.

    Notes
    -----
    Tensors may have any strides and be on the CPU or a CUDA (or ROCm) device, where kernels run in the order of the current stream; tensors on
    other devices are copied to the CPU and back. There are first derivatives of Conv, ConvTranspose, MatMul, Gemm, Attention (of queries, keys,
    values and a mask) and quern::WeightedFilter. Other operators raise NotImplementedError for tensors that require gradients.

    Examples
    --------
    >>> conv = quern.torch.Operator("Conv", {"pads": [1, 1, 1, 1]})
    >>> conv(x, weight).sum().backward()
    """

    def __init__(self, name: str, attributes: Mapping[str, Any] | None = None, sizes: str | None = None, outputs: int = 1) -> None:
        super().__init__()
        self.name, self.attributes, self.sizes, self.outputs = name, dict(attributes or {}), sizes, outputs
        self._of: dict[Any, _operator.Operator] = {}
        self._on(None)  # checks name and attributes

    def _on(self, device: Any) -> _operator.Operator:
        """The operator for a device; None: the CPU."""
        key = (None, torch.get_num_threads()) if device is None else (str(device), 0)
        if key not in self._of:
            self._of[key] = _operator.Operator(self.name, self.attributes, sizes=self.sizes, outputs=self.outputs, threads=key[1],
                                               device=None if device is None else arrays.device_name(device))
        return self._of[key]

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_of": {}}

    def extra_repr(self) -> str:
        more = f", sizes={self.sizes!r}" if self.sizes else ""
        return f"{self.name!r}, {self.attributes!r}{more}"

    def forward(self, *inputs: Any) -> Any:
        """The output, or a tuple of them. None: an omitted optional input."""
        for k, t in enumerate(inputs):
            if t is not None and not isinstance(t, torch.Tensor):
                raise TypeError(f"input {k} of '{self.name}' is a {type(t).__name__}, expected a tensor")
        if torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in inputs):
            check_gradients(self, inputs)
            return Differentiable.apply(self, *inputs)
        return self.compute(inputs)

    def compute(self, inputs: Tensors, wanted: Sequence[bool] | None = None) -> Any:
        """Without autograd. wanted: which outputs; None: all."""
        like = next((t for t in inputs if t is not None), None)
        device = arrays.device_of(*inputs)
        out = self._on(device).compute(placed(inputs, device), wanted)
        if like is not None and device is None and like.device.type != "cpu":
            out = [None if t is None else t.to(like.device) for t in out]
        return out[0] if self.outputs == 1 else tuple(out)


class Differentiable(torch.autograd.Function):
    """An operator whose gradients are operators."""
    @staticmethod
    def forward(ctx: Any, op: Operator, *inputs: Any) -> Any:
        ctx.op, ctx.omitted = op, [t is None for t in inputs]
        y = op.compute(inputs)
        ctx.save_for_backward(*(t for t in inputs if t is not None), y)
        return y

    @staticmethod
    def backward(ctx: Any, dy: Any) -> Any:
        *saved, y = ctx.saved_tensors
        rest = iter(saved)
        inputs = [None if omitted else next(rest) for omitted in ctx.omitted]
        return (None, *Gradient.apply(ctx.op, ctx.needs_input_grad[1:], dy, y, *inputs))


class Gradient(torch.autograd.Function):
    """A function of its own, so that second derivatives are errors rather than zeros."""

    @staticmethod
    def forward(ctx: Any, op: Operator, need: Sequence[bool], dy: Any, y: Any, *inputs: Any) -> Any:
        ctx.op = op
        return tuple(GRADIENTS[op.name](op, inputs, y, dy, need))

    @staticmethod
    def backward(ctx: Any, *_: Any) -> Any:
        raise NotImplementedError(f"quern has no second derivatives of '{ctx.op.name}'")


@functools.lru_cache(maxsize=256)
def kept(name: str, attributes: tuple[tuple[str, Any], ...], outputs: int) -> Operator:
    return Operator(name, dict(attributes), outputs=outputs)


def operator(name: str, attributes: Mapping[str, Any], outputs: int = 1) -> Operator:
    """One operator for all calls with these attributes."""
    return kept(name, tuple((n, tuple(v) if isinstance(v, (list, tuple)) else v) for n, v in attributes.items()), outputs)


def run(name: str, attributes: Mapping[str, Any], *inputs: Any) -> Any:
    return operator(name, attributes).compute(inputs)


def summed(g: Any, shape: Sequence[int]) -> Any:
    """The gradient of an operand that was repeated along axes."""
    return g.sum_to_size(shape) if tuple(g.shape) != tuple(shape) else g


def window(op: Operator, *more: str) -> dict[str, Any]:
    """The attributes of a convolution that its gradients have, too."""
    return {n: v for n, v in op.attributes.items() if n in ("strides", "dilations", "pads", "group", *more)}


# --- gradients: operator, its inputs, its output, the gradient by it, which gradients are wanted -> one for each input ---


def of_bias(need: Sequence[bool], dy: Any) -> Any:
    """(m) of (n, m, ...)"""
    return dy.sum([0, *range(2, dy.dim())]) if len(need) > 2 and need[2] else None


def of_conv(op: Operator, inputs: Tensors, y: Any, dy: Any, need: Sequence[bool]) -> list[Any]:
    x, w = inputs[:2]
    kernel = {"kernel_shape": list(w.shape[2:])}
    dx = run("quern::ConvGradInput", {**window(op, "auto_pad"), **kernel, "input_shape": list(x.shape[2:])}, dy, w) if need[0] else None
    dw = run("quern::ConvGradWeight", {**window(op, "auto_pad"), **kernel}, x, dy) if need[1] else None
    return [dx, dw, of_bias(need, dy)][:len(inputs)]


def of_conv_transpose(op: Operator, inputs: Tensors, y: Any, dy: Any, need: Sequence[bool]) -> list[Any]:
    """It is the adjoint of a convolution of y, whose weights it has."""
    x, w = inputs[:2]
    kernel = {"kernel_shape": list(w.shape[2:])}
    dx = run("Conv", {**window(op), **kernel}, dy, w) if need[0] else None
    dw = run("quern::ConvGradWeight", {**window(op), **kernel}, dy, x) if need[1] else None
    return [dx, dw, of_bias(need, dy)][:len(inputs)]


def of_matmul(op: Operator, inputs: Tensors, y: Any, dy: Any, need: Sequence[bool]) -> list[Any]:
    a, b = inputs
    # vectors are matrices of one row (a) or one column (b)
    m = a.unsqueeze(0) if a.dim() == 1 else a
    n = b.unsqueeze(1) if b.dim() == 1 else b
    g = dy.unsqueeze(-1) if b.dim() == 1 else dy
    g = g.unsqueeze(-2) if a.dim() == 1 else g
    da = summed(run("MatMul", {}, g, n.transpose(-1, -2)), m.shape).reshape(a.shape) if need[0] else None
    db = summed(run("MatMul", {}, m.transpose(-1, -2), g), n.shape).reshape(b.shape) if need[1] else None
    return [da, db]


def of_gemm(op: Operator, inputs: Tensors, y: Any, dy: Any, need: Sequence[bool]) -> list[Any]:
    a, b = inputs[:2]
    alpha, beta = {"alpha": float(op.attributes.get("alpha", 1))}, float(op.attributes.get("beta", 1))
    ta, tb = op.attributes.get("transA", 0), op.attributes.get("transB", 0)
    da = db = None
    if need[0]:
        da = run("Gemm", {**alpha, "transA": tb, "transB": 1}, b, dy) if ta else run("Gemm", {**alpha, "transB": 1 - tb}, dy, b)
    if need[1]:
        db = run("Gemm", {**alpha, "transA": 1, "transB": ta}, dy, a) if tb else run("Gemm", {**alpha, "transA": 1 - ta}, a, dy)
    dc = summed(dy, inputs[2].shape) * beta if len(need) > 2 and need[2] else None
    return [da, db, dc][:len(inputs)]


def of_filter(op: Operator, inputs: Tensors, y: Any, dy: Any, need: Sequence[bool]) -> list[Any]:
    x, w = inputs[:2]
    dx = run("quern::WeightedFilterGradInput", op.attributes, dy, w) if need[0] else None
    dw = run("quern::WeightedFilterGradWeights", op.attributes, dy, x, w) if need[1] else None
    return [dx, dw, of_bias(need, dy)][:len(inputs)]


def of_attention(op: Operator, inputs: Tensors, y: Any, dy: Any, need: Sequence[bool]) -> list[Any]:
    attributes = {n: v for n, v in op.attributes.items() if n != "qk_matmul_output_mode"}
    given = [*inputs, *[None] * (8 - len(inputs)), y, None, None, dy]
    wanted = [bool(n) for n in need] + [False] * (4 - len(need))
    last = max(k for k, w in enumerate(wanted) if w)
    grads = operator("quern::AttentionGrad", attributes, last + 1).compute(given, wanted[:last + 1])
    grads = [grads] if last == 0 else list(grads)
    return [*grads, *[None] * len(inputs)][:len(inputs)]


GRADIENTS: dict[str, Callable[[Operator, Tensors, Any, Any, Sequence[bool]], list[Any]]] = {
    "Attention": of_attention, "quern::Attention": of_attention, "Conv": of_conv, "ConvTranspose": of_conv_transpose, "Gemm": of_gemm,
    "MatMul": of_matmul, "quern::WeightedFilter": of_filter,
}
NO_ATTRIBUTE = {"ConvTranspose": ("auto_pad", "output_shape")}  # with which there is no gradient


def check_gradients(op: Operator, inputs: Tensors) -> None:
    """Raises NotImplementedError if an operator has no gradient for these inputs."""
    way_out = "run it under torch.no_grad(), or on tensors that do not require gradients (detach())"
    if op.name not in GRADIENTS:
        raise NotImplementedError(f"quern has no gradient of '{op.name}': there are those of {', '.join(sorted(GRADIENTS))}; {way_out}")
    for name in NO_ATTRIBUTE.get(op.name, ()):
        if op.attributes.get(name, "NOTSET") != "NOTSET":
            raise NotImplementedError(f"quern has no gradient of '{op.name}' with attribute '{name}': state pads instead, or {way_out}")
    if op.outputs > 1:
        raise NotImplementedError(f"quern has no gradient of '{op.name}' with {op.outputs} outputs: compute one, or {way_out}")
    if op.name.endswith("Attention") and any(t is not None for t in inputs[4:]):
        raise NotImplementedError(f"quern.torch.Operator has no gradient of '{op.name}' with more inputs than queries, keys, values and a mask; {way_out}")
