# SPDX-License-Identifier: Apache-2.0
"""quern.torch.WeightedFilter: a filter whose weights are given for every pixel (doc/weighted-filter.md), by operators of the library.

PyTorch meets it in four ways: autograd calls functions (Filter, GradInput, GradWeights), torch.compile finds operators (_filter_operators.py), the exporter of
graphs gets a symbolic operator, and the exporter of traces replaces the call that it recorded by a node.
"""
from __future__ import annotations

import math
import numbers
from typing import Any, Callable, Literal, Optional, Sequence, Union

import torch
from torch import Tensor

from ._torch_run import TYPES, Keyed, is_autocast, opaque, run

HAS_OPERATORS = hasattr(torch.library, "register_autograd")  # PyTorch 2.4

MODES = {"padding": ("zero", "reflect", "replicate", "valid"), "transform": ("none", "exp", "softmax"), "normalize": ("none", "sum")}


Size = Union[int, Sequence[int]]  # one for both axes, or (height, width)
Padding = Literal["zero", "reflect", "replicate", "valid"]
Transform = Optional[Literal["none", "exp", "softmax"]]
Normalize = Union[Literal["none", "sum"], bool, None]


class Spec(Keyed):
    """The attributes of a filter operator."""

    def __init__(self, kernel: Size, splat: bool, dilation: Size, padding: str, transform: str | None, normalize: str | bool | None, epsilon: float) -> None:
        self.kernel, self.dilation = pair("kernel_size", kernel), pair("dilation", dilation)
        self.splat, self.epsilon = bool(splat), float(epsilon)
        flags: dict[Any, Any] = {False: "none", True: "sum", None: "none"}
        self.padding, self.transform, self.normalize = padding, transform or "none", flags.get(normalize, normalize)
        for name, known in MODES.items():
            if getattr(self, name) not in known:
                raise ValueError(f"{name} is {getattr(self, name)!r}, expected one of {', '.join(map(repr, known))}")
        if not 0 <= self.epsilon < math.inf:
            raise ValueError(f"epsilon is {self.epsilon}, expected a finite number, 0 or more")
        self.taps = self.kernel[0] * self.kernel[1]
        self.is_raw = self.transform == "none" and self.normalize == "none"
        # how much larger the input (gather) or the output (splat) is than the map of weights
        self.more = tuple((k - 1) * d if padding == "valid" else 0 for k, d in zip(self.kernel, self.dilation))

    def key(self) -> tuple[Any, ...]:
        return (self.kernel, self.splat, self.dilation, self.padding, self.transform, self.normalize, self.epsilon)

    def attributes(self) -> dict[str, Any]:
        """Those that differ from the operator's defaults."""
        a: dict[str, Any] = {"kernel_shape": list(self.kernel)}
        a.update({"mode": "splat"} if self.splat else {})
        a.update({"dilations": list(self.dilation)} if self.dilation != (1, 1) else {})
        for name in MODES:
            if getattr(self, name) != MODES[name][0]:
                a[name] = getattr(self, name)
        a.update({"epsilon": self.epsilon} if self.epsilon else {})
        return a

    def sizes(self) -> tuple[str, str, str]:
        """Sizes of x, w and y for the library: any batch and image size."""
        grown = "N:?:" + ":".join(f"{s}+{m}" if m else s for s, m in zip("HW", self.more))
        return ("N:?:H:W", "N:?:H:W", grown) if self.splat else (grown, "N:?:H:W", "N:?:H:W")

    def output_shape(self, x: Tensor, w: Tensor) -> tuple[Any, ...]:
        return (x.shape[0], x.shape[1], *((s + m for s, m in zip(x.shape[2:], self.more)) if self.splat else w.shape[2:]))


def is_size(value: object) -> bool:
    return isinstance(value, numbers.Integral) and not isinstance(value, bool) and int(value) > 0


def pair(name: str, value: Any) -> tuple[int, int]:
    """(height, width). Raises ValueError."""
    two = (value, value) if isinstance(value, numbers.Integral) else tuple(value) if isinstance(value, (tuple, list)) else ()
    if len(two) != 2 or not all(map(is_size, two)):
        raise ValueError(f"{name} is {value!r}, expected a positive integer or two of them (height, width)")
    return int(two[0]), int(two[1])


# --- running ---


def compute(x: Tensor, w: Tensor, spec: Spec, bias: Sequence[Tensor]) -> Any:
    sx, sw, _ = spec.sizes()
    return run("quern::WeightedFilter", spec, (sx, sw, "?"), (x, w, *bias), tuple(int(s) for s in spec.output_shape(x, w)), x)


def compute_grad_input(g: Tensor, w: Tensor, spec: Spec, shape: Sequence[int]) -> Any:
    _, sw, sy = spec.sizes()
    return run("quern::WeightedFilterGradInput", spec, (sy, sw), (g, w), tuple(int(s) for s in shape), g)


def compute_grad_weights(g: Tensor, x: Tensor, w: Tensor, spec: Spec) -> Any:
    sx, sw, sy = spec.sizes()
    return run("quern::WeightedFilterGradWeights", spec, (sy, sx, sw), (g, x, w), tuple(w.shape), w)


class Gradients:
    """The derivatives of the three operators, each a method: tensors, gradient of the result, which gradients are needed -> gradients. The operators are
    given as functions like those above, which autograd knows: filter(x, w, spec), grad_input(g, w, spec, shape), grad_weights(g, x, w, spec)."""

    def __init__(self, filter: Callable[..., Any], grad_input: Callable[..., Any], grad_weights: Callable[..., Any]) -> None:
        self.filter, self.grad_input, self.grad_weights = filter, grad_input, grad_weights

    def of_filter(self, x: Tensor, w: Tensor, spec: Spec, g: Tensor, need: Sequence[bool]) -> tuple[Any, Any, Any]:
        """Of x, w, bias."""
        gx = self.grad_input(g, w, spec, x.shape) if need[0] else None
        gw = self.grad_weights(g, x, w, spec) if need[1] else None
        return gx, gw, g.sum((0, 2, 3)) if need[2] else None

    def of_grad_input(self, g: Tensor, w: Tensor, spec: Spec, v: Tensor, need: Sequence[bool]) -> tuple[Any, Any]:
        """Of g, w. It is linear in both: its gradients are the filter itself and grad_weights."""
        if need[1]:
            check_raw(spec)
        return self.filter(v, w, spec) if need[0] else None, self.grad_weights(g, v, w, spec) if need[1] else None

    def of_grad_weights(self, g: Tensor, x: Tensor, w: Tensor, spec: Spec, v: Tensor, need: Sequence[bool]) -> tuple[Any, Any, Any]:
        """Of g, x, w."""
        if any(need):
            check_raw(spec)
        gg = self.filter(x, v, spec) if need[0] else None
        gx = self.grad_input(g, v, spec, x.shape) if need[1] else None
        return gg, gx, torch.zeros_like(w) if need[2] else None


def check_raw(spec: Spec) -> None:
    if not spec.is_raw:
        raise NotImplementedError("second derivatives by weights are there for transform 'none' and normalize 'none'")


class Filter(torch.autograd.Function):
    """The filter with its derivatives; also what the exporter of traces sees."""
    @staticmethod
    def forward(ctx: Any, x: Tensor, w: Tensor, spec: Spec, *bias: Tensor) -> Any:
        ctx.spec = spec
        ctx.save_for_backward(x, w)
        shape, state = spec.output_shape(x, w), torch._C._get_tracing_state()
        # A trace records one operation that returns such a tensor, and replaces it; the library's operations are not recorded.
        traced = state and (x.clone() if shape == tuple(x.shape) else x.new_zeros([int(s) for s in shape]))
        torch._C._set_tracing_state(None)
        try:
            y = compute(x, w, spec, bias)
            return traced.copy_(y) if state else y
        finally:
            torch._C._set_tracing_state(state)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Any, ...]:
        need = (*ctx.needs_input_grad[:2], any(ctx.needs_input_grad[3:]))
        x, w = ctx.saved_tensors
        gx, gw, gb = FUNCTIONS.of_filter(x, w, ctx.spec, g, need)
        return (gx, gw, None, *(gb for _ in ctx.needs_input_grad[3:]))

    @staticmethod
    def symbolic(g: Any, x: Any, w: Any, spec: Spec, *bias: Any) -> Any:
        return node(g, x, w, spec, bias)


class GradInput(torch.autograd.Function):
    """The gradient by the input, with its derivatives."""
    @staticmethod
    def forward(ctx: Any, g: Tensor, w: Tensor, spec: Spec, shape: Sequence[int]) -> Any:
        ctx.spec = spec
        ctx.save_for_backward(g, w)
        return compute_grad_input(g, w, spec, shape)

    @staticmethod
    def backward(ctx: Any, v: Tensor) -> tuple[Any, ...]:
        g, w = ctx.saved_tensors
        return (*FUNCTIONS.of_grad_input(g, w, ctx.spec, v, ctx.needs_input_grad), None, None)


class GradWeights(torch.autograd.Function):
    """The gradient by the weights, with its derivatives."""
    @staticmethod
    def forward(ctx: Any, g: Tensor, x: Tensor, w: Tensor, spec: Spec) -> Any:
        ctx.spec = spec
        ctx.save_for_backward(g, x, w)
        return compute_grad_weights(g, x, w, spec)

    @staticmethod
    def backward(ctx: Any, v: Tensor) -> tuple[Any, ...]:
        g, x, w = ctx.saved_tensors
        return (*FUNCTIONS.of_grad_weights(g, x, w, ctx.spec, v, ctx.needs_input_grad), None)


FUNCTIONS = Gradients(Filter.apply, GradInput.apply, GradWeights.apply)


# --- ONNX ---


def node(g: Any, x: Any, w: Any, spec: Spec, bias: Sequence[Any]) -> Any:
    """For the exporter based on tracing."""
    a = {}
    for name, v in spec.attributes().items():
        a[name + ("_s" if isinstance(v, str) else "_f" if isinstance(v, float) else "_i")] = v
    y = g.op("ai.quern::WeightedFilter", x, w, *bias, **a)
    y.setType(x.type())
    if any(spec.more):
        sizes = x.type().sizes()
        if sizes:
            y.setType(x.type().with_sizes(list(sizes[:2]) + [None, None]))
    return y


def symbolic(x: Tensor, w: Tensor, spec: Spec, bias: Sequence[Tensor]) -> Any:
    """For the exporter based on graphs of fake tensors (PyTorch 2.8 and later)."""
    return torch.onnx.ops.symbolic("ai.quern::WeightedFilter", [x, w, *bias], spec.attributes(),
                                   dtype=x.dtype, shape=spec.output_shape(x, w), version=1)


def is_exported_as_graph() -> bool:
    compiler = getattr(torch, "compiler", None)
    return bool(hasattr(torch.onnx, "ops") and torch.onnx.is_in_onnx_export() and compiler and compiler.is_compiling())


# --- the filter ---


def check(x: Any, w: Any, bias: Any, spec: Spec) -> None:
    """Checks the tensors before they are passed to the library."""
    for name, t in (("input", x), ("weight", w), ("bias", bias)):
        if t is None and name == "bias":
            continue
        if not isinstance(t, torch.Tensor):
            raise TypeError(f"{name} is a {type(t).__name__}, expected a tensor")
        if t.dtype not in TYPES:
            raise TypeError(f"{name} has type {t.dtype}, expected one of {', '.join(map(str, TYPES))}")
        if t.device != x.device:
            raise ValueError(f"{name} lies on '{t.device}', the input on '{x.device}'")
    for name, t, axes in (("input", x, "(batch, channels, height, width)"), ("weight", w, "(batch, taps, height, width)")):
        if t.dim() != 4:
            raise ValueError(f"{name} has shape {tuple(t.shape)}, expected 4 axes {axes}")
    if w.shape[1] != spec.taps:
        raise ValueError(f"weight has {w.shape[1]} channels, expected {spec.taps}, one for each tap of a {spec.kernel[0]} x "
                         f"{spec.kernel[1]} kernel")
    want = (x.shape[0], *(s - (0 if spec.splat else m) for s, m in zip(x.shape[2:], spec.more)))
    got = (w.shape[0], *w.shape[2:])
    if got != want:
        raise ValueError(f"weight has batch, height and width {tuple(got)}, expected {want} for an input of shape {tuple(x.shape)}"
                         + (" and padding 'valid'" if any(spec.more) else ""))
    if bias is not None and tuple(bias.shape) != (x.shape[1],):
        raise ValueError(f"bias has shape {tuple(bias.shape)}, expected ({x.shape[1]},), one for each channel of the input")
    if bias is not None and bias.dtype != x.dtype:
        raise TypeError(f"bias has type {bias.dtype}, expected {x.dtype}, that of the input")


def is_compiling() -> bool:
    """Whether PyTorch's compiler traces the call: it then finds an operator of PyTorch (_filter_operators.py)."""
    compiler = getattr(torch, "compiler", None)
    return bool(HAS_OPERATORS and compiler and compiler.is_compiling())


def apply(x: Tensor, w: Tensor, bias: Tensor | None, spec: Spec) -> Tensor:
    """Runs the filter in the form that the caller (an exporter, a compiler, autograd) understands."""
    check(x, w, bias, spec)
    given = () if bias is None else (bias,)
    if is_exported_as_graph():
        y: Tensor = symbolic(x, w, spec, given)
    elif is_compiling():
        y = torch.ops.quern.weighted_filter(x, w, bias, *spec.key())
    elif HAS_OPERATORS:
        y = Filter.apply(x, w, spec, *given)
    else:
        y = opaque(Filter.apply, x, w, spec, *given)
    return y


def weighted_filter(input: Tensor, weight: Tensor, kernel_size: Size, bias: Tensor | None = None, splat: bool = False, *, dilation: Size = 1,
                    padding: Padding = "zero", transform: Transform = "none", normalize: Normalize = "none", epsilon: float = 0.0) -> Tensor:
    """Filters `input` (b, c, h, w) by `weight` (b, kernel_height * kernel_width, h, w); see WeightedFilter."""
    return apply(input, weight, bias, Spec(kernel_size, splat, dilation, padding, transform, normalize, epsilon))


class WeightedFilter(torch.nn.Module):
    """A filter whose weights are given for every pixel.

    channels     of the input and the output
    kernel_size  an odd integer; two integers (height, width) may be even
    bias         a learned bias per channel, initially zero
    splat        pixels are distributed by their weights instead of gathered
    dilation     distance of taps, an integer or two
    padding      values outside: "zero", "reflect", "replicate"; "valid": none, the input (splat: the output) is larger than the
                 weight map by (kernel_size - 1) * dilation
    transform    of the weights, for each pixel, before filtering: "none", "exp", "softmax" (over the taps)
    normalize    "sum" (or True): division by the sum of the applied weights plus epsilon

    forward(input, weight): input (b, channels, h, w), weight (b, kernel_height * kernel_width, h, w), floats of 16, 32 or 64 bits, which
    may differ between the two; any strides. The output has the input's type. Invalid tensors raise TypeError and ValueError.
    Without bias the number of channels may be any.
    """

    def __init__(self, channels: int, kernel_size: Size, bias: bool = True, splat: bool = False, *, dilation: Size = 1, padding: Padding = "zero",
                 transform: Transform = "none", normalize: Normalize = "none", epsilon: float = 0.0, device: Any = None,
                 dtype: torch.dtype | None = None) -> None:
        super().__init__()
        if not is_size(channels):
            raise ValueError(f"channels is {channels!r}, expected a positive integer")
        if isinstance(kernel_size, numbers.Integral) and kernel_size % 2 == 0:
            raise ValueError(f"kernel_size is {kernel_size}, expected an odd integer; an even size is given as two, (height, width)")
        self.spec = Spec(kernel_size, splat, dilation, padding, transform, normalize, epsilon)
        self.in_channels = self.out_channels = channels
        self.kernel_size, self.splat = kernel_size, self.spec.splat
        if bias:
            self.bias = torch.nn.Parameter(torch.zeros(channels, device=device, dtype=dtype))
        else:
            self.register_parameter("bias", None)

    def reset_parameters(self) -> None:
        if self.bias is not None:
            torch.nn.init.zeros_(self.bias)

    def forward(self, input: Tensor, weight: Tensor) -> Tensor:
        bias = self.bias
        if bias is not None and isinstance(input, torch.Tensor) and input.dtype in TYPES and is_autocast(input.device.type):
            bias = bias.to(input.dtype)
        return apply(input, weight, bias, self.spec)

    def extra_repr(self) -> str:
        more = "".join(f", {k}={v!r}" for k, v in self.spec.attributes().items() if k not in ("kernel_shape", "mode"))
        return f"{self.in_channels}, kernel_size={self.kernel_size}, bias={self.bias is not None}, splat={self.splat}{more}"
