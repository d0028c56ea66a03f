# SPDX-License-Identifier: Apache-2.0
"""Models of PyTorch by the library, and layers.

    fast = torch.compile(model, backend="quern")          # PyTorch 2.6 or later, with onnx and onnxscript
    quern.torch.optimize(model)                           # any PyTorch: single layers
    print(quern.torch.explain(model, x))                  # what is run by the library, and why not the rest
    quern.torch.export(model, (x,), "net.dnx"); net = quern.torch.load("net.dnx")

Layers: attention (scaled_dot_product_attention), and the weighted filter, whose weights a network predicts for every pixel.

    filter = quern.torch.WeightedFilter(channels=3, kernel_size=5, bias=False)
    y = filter(x, w)        # x (b, 3, h, w), w (b, 25, h, w) -> (b, 3, h, w)

Gather (the default):   y[c, p] = sum over taps t of w[t, p] * x[c, p + offset(t)]
Splat:                  y[c, p + offset(t)] += w[t, p] * x[c, p]

Taps are row-major, t = i * kernel_width + j, around the pixel. All channels share the weights, which are used unchanged
unless `transform` or `normalize` are set. Gradients for input and weights are operators of the library, too: sums in a
fixed order, the same bytes every time; that for the bias is PyTorch's sum. Second derivatives are supported if transform and normalize are
"none"; others raise NotImplementedError. doc/weighted-filter.md has the formulas.

Tensors may have any strides and be on the CPU or a CUDA (or ROCm) device. There kernels run in the order of the current stream,
in place on tensors that are dense (row-major or channels last) and 16-byte aligned; others are copied first. Tensors on
other kinds of devices are copied to the CPU and back. Exported to ONNX the layer is one node, WeightedFilter of domain ai.quern, which quern runs.

Modules can be copied, pickled and converted (`half()`, `to(dtype)`), and used by several threads. Within autocast the bias takes the input's
type. To torch.compile the layer is an operator, torch.ops.quern.weighted_filter, with gradients, and backend="quern" fuses it with its neighbours (PyTorch
2.4 or later; before, it is not compiled); a trace calls it; torch.jit.script and functions of torch.func, which need more, raise errors.
"""
import math
import numbers
import sys

import torch

from ._attention import scaled_dot_product_attention
from ._layers import optimize
from ._modules import export, load
from ._register import register_backend
from ._torch_operator import Operator
from ._torch_run import TYPES, run

__all__ = ["Operator", "WeightedFilter", "weighted_filter", "scaled_dot_product_attention", "explain", "export", "load", "optimize"]

HAS_OPERATORS = hasattr(torch.library, "register_autograd")  # PyTorch 2.4

MODES = {"padding": ("zero", "reflect", "replicate", "valid"), "transform": ("none", "exp", "softmax"), "normalize": ("none", "sum")}


register_backend()


def explain(model, *inputs, mode=None, options=None, dynamic=None, training=False, **named):
    """How torch.compile(model, backend="quern") divides a model for these inputs. Prints as a table of pieces, with the time of each beside that of its
    operators in PyTorch, and of what stays in PyTorch and why. Runs the model, without gradients; with training=True its forward and backward graphs, where
    gradients are those of the sum of its results, and kept nowhere. Of a model after optimize(), without inputs: its layers, with the same columns."""
    if not inputs and not named and isinstance(model, torch.nn.Module):
        from ._layers import Layers
        found = Layers(model)
        if found:
            return found
        raise TypeError("explain() needs the model's inputs: explain(model, x); without them it lists the layers of a model after optimize()")
    from ._explain import explain
    return explain(model, *inputs, mode=mode, options=options, dynamic=dynamic, training=training, **named)


class Spec:
    """The attributes of a filter operator."""

    def __init__(self, kernel, splat, dilation, padding, transform, normalize, epsilon):
        self.kernel, self.dilation = pair("kernel_size", kernel), pair("dilation", dilation)
        self.splat, self.epsilon = bool(splat), float(epsilon)
        normalize = {False: "none", True: "sum", None: "none"}.get(normalize, normalize)
        self.padding, self.transform, self.normalize = padding, transform or "none", normalize
        for name, known in MODES.items():
            if getattr(self, name) not in known:
                raise ValueError(f"{name} is {getattr(self, name)!r}, expected one of {', '.join(map(repr, known))}")
        if not 0 <= self.epsilon < math.inf:
            raise ValueError(f"epsilon is {self.epsilon}, expected a finite number, 0 or more")
        self.taps = self.kernel[0] * self.kernel[1]
        self.is_raw = self.transform == "none" and self.normalize == "none"
        # how much larger the input (gather) or the output (splat) is than the map of weights
        self.more = tuple((k - 1) * d if padding == "valid" else 0 for k, d in zip(self.kernel, self.dilation))

    def key(self):
        return (self.kernel, self.splat, self.dilation, self.padding, self.transform, self.normalize, self.epsilon)

    def __eq__(self, other):
        return self.key() == other.key()

    def __hash__(self):
        return hash(self.key())

    def attributes(self):
        """The attributes that differ from the operator's defaults."""
        a = {"kernel_shape": list(self.kernel)}
        a.update({"mode": "splat"} if self.splat else {})
        a.update({"dilations": list(self.dilation)} if self.dilation != (1, 1) else {})
        for name in MODES:
            if getattr(self, name) != MODES[name][0]:
                a[name] = getattr(self, name)
        a.update({"epsilon": self.epsilon} if self.epsilon else {})
        return a

    def sizes(self):
        """Sizes of x, w and y for the library: any batch and image size."""
        grown = "N:?:" + ":".join(f"{s}+{m}" if m else s for s, m in zip("HW", self.more))
        return ("N:?:H:W", "N:?:H:W", grown) if self.splat else (grown, "N:?:H:W", "N:?:H:W")

    def output_shape(self, x, w):
        return (x.shape[0], x.shape[1], *((s + m for s, m in zip(x.shape[2:], self.more)) if self.splat else w.shape[2:]))


def is_size(value):
    return isinstance(value, numbers.Integral) and not isinstance(value, bool) and value > 0


def pair(name, value):
    two = (value, value) if isinstance(value, numbers.Integral) else tuple(value) if isinstance(value, (tuple, list)) else ()
    if len(two) != 2 or not all(map(is_size, two)):
        raise ValueError(f"{name} is {value!r}, expected a positive integer or two of them (height, width)")
    return int(two[0]), int(two[1])


# --- running ---


def compute(x, w, spec, bias):
    sx, sw, _ = spec.sizes()
    return run("quern::WeightedFilter", spec, (sx, sw, "?"), (x, w, *bias), tuple(int(s) for s in spec.output_shape(x, w)), x)


def compute_grad_input(g, w, spec, shape):
    _, sw, sy = spec.sizes()
    return run("quern::WeightedFilterGradInput", spec, (sy, sw), (g, w), tuple(int(s) for s in shape), g)


def compute_grad_weights(g, x, w, spec):
    sx, sw, sy = spec.sizes()
    return run("quern::WeightedFilterGradWeights", spec, (sy, sx, sw), (g, x, w), tuple(w.shape), w)


class Gradients:
    """The derivatives of the three operators, each a method: tensors, gradient of the result, which gradients are needed -> gradients. The operators are
    given as functions like those above, which autograd knows: filter(x, w, spec), grad_input(g, w, spec, shape), grad_weights(g, x, w, spec)."""

    def __init__(self, filter, grad_input, grad_weights):
        self.filter, self.grad_input, self.grad_weights = filter, grad_input, grad_weights

    def of_filter(self, x, w, spec, g, need):
        """Of x, w, bias."""
        gx = self.grad_input(g, w, spec, x.shape) if need[0] else None
        gw = self.grad_weights(g, x, w, spec) if need[1] else None
        return gx, gw, g.sum((0, 2, 3)) if need[2] else None

    def of_grad_input(self, g, w, spec, v, need):
        """Of g, w. It is linear in both: its gradients are the filter itself and grad_weights."""
        if need[1]:
            check_raw(spec)
        return self.filter(v, w, spec) if need[0] else None, self.grad_weights(g, v, w, spec) if need[1] else None

    def of_grad_weights(self, g, x, w, spec, v, need):
        """Of g, x, w."""
        if any(need):
            check_raw(spec)
        gg = self.filter(x, v, spec) if need[0] else None
        gx = self.grad_input(g, v, spec, x.shape) if need[1] else None
        return gg, gx, torch.zeros_like(w) if need[2] else None


def check_raw(spec):
    if not spec.is_raw:
        raise NotImplementedError("second derivatives by weights are there for transform 'none' and normalize 'none'")


class Filter(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w, spec, *bias):
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
    def backward(ctx, g):
        need = (*ctx.needs_input_grad[:2], any(ctx.needs_input_grad[3:]))
        gx, gw, gb = FUNCTIONS.of_filter(*ctx.saved_tensors, ctx.spec, g, need)
        return (gx, gw, None, *(gb for _ in ctx.needs_input_grad[3:]))

    @staticmethod
    def symbolic(g, x, w, spec, *bias):
        return node(g, x, w, spec, bias)


class GradInput(torch.autograd.Function):
    @staticmethod
    def forward(ctx, g, w, spec, shape):
        ctx.spec = spec
        ctx.save_for_backward(g, w)
        return compute_grad_input(g, w, spec, shape)

    @staticmethod
    def backward(ctx, v):
        return (*FUNCTIONS.of_grad_input(*ctx.saved_tensors, ctx.spec, v, ctx.needs_input_grad), None, None)


class GradWeights(torch.autograd.Function):
    @staticmethod
    def forward(ctx, g, x, w, spec):
        ctx.spec = spec
        ctx.save_for_backward(g, x, w)
        return compute_grad_weights(g, x, w, spec)

    @staticmethod
    def backward(ctx, v):
        return (*FUNCTIONS.of_grad_weights(*ctx.saved_tensors, ctx.spec, v, ctx.needs_input_grad), None)


FUNCTIONS = Gradients(Filter.apply, GradInput.apply, GradWeights.apply)


# --- ONNX ---


def node(g, x, w, spec, bias):
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


def symbolic(x, w, spec, bias):
    """For the exporter based on graphs of fake tensors (PyTorch 2.8 and later)."""
    return torch.onnx.ops.symbolic("ai.quern::WeightedFilter", [x, w, *bias], spec.attributes(),
                                   dtype=x.dtype, shape=spec.output_shape(x, w), version=1)


def is_exported_as_graph():
    compiler = getattr(torch, "compiler", None)
    return hasattr(torch.onnx, "ops") and torch.onnx.is_in_onnx_export() and bool(compiler) and compiler.is_compiling()


# --- the filter ---


def check(x, w, bias, spec):
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


def is_autocast(x):
    if hasattr(torch.amp, "is_autocast_available"):  # PyTorch 2.4
        return torch.amp.is_autocast_available(x.device.type) and torch.is_autocast_enabled(x.device.type)
    return torch.is_autocast_enabled() if x.is_cuda else torch.is_autocast_cpu_enabled()


def is_compiling():
    """Whether PyTorch's compiler traces the call: it then finds an operator of PyTorch (_filter_operators.py)."""
    compiler = getattr(torch, "compiler", None)
    return HAS_OPERATORS and bool(compiler) and compiler.is_compiling()


def opaque(*a):
    """Excludes the call from compilers of PyTorch that cannot trace it, without importing their modules (seconds) if they were never used."""
    f = Filter.apply
    return torch.compiler.disable(f)(*a) if not HAS_OPERATORS and "torch._dynamo" in sys.modules and hasattr(torch, "compiler") else f(*a)


def apply(x, w, bias, spec):
    check(x, w, bias, spec)
    given = () if bias is None else (bias,)
    if is_exported_as_graph():
        return symbolic(x, w, spec, given)
    if is_compiling():
        return torch.ops.quern.weighted_filter(x, w, bias, *spec.key())
    return opaque(x, w, spec, *given)


def weighted_filter(input, weight, kernel_size, bias=None, splat=False, *, dilation=1, padding="zero", transform="none",
                    normalize="none", epsilon=0.0):
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

    def __init__(self, channels, kernel_size, bias=True, splat=False, *, dilation=1, padding="zero", transform="none",
                 normalize="none", epsilon=0.0, device=None, dtype=None):
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

    def reset_parameters(self):
        if self.bias is not None:
            torch.nn.init.zeros_(self.bias)

    def forward(self, input, weight):
        bias = self.bias
        if bias is not None and isinstance(input, torch.Tensor) and input.dtype in TYPES and is_autocast(input):
            bias = bias.to(input.dtype)
        return apply(input, weight, bias, self.spec)

    def extra_repr(self):
        more = "".join(f", {k}={v!r}" for k, v in self.spec.attributes().items() if k not in ("kernel_shape", "mode"))
        return f"{self.in_channels}, kernel_size={self.kernel_size}, bias={self.bias is not None}, splat={self.splat}{more}"


if HAS_OPERATORS:
    from . import _filter_operators  # noqa: E402, F401
