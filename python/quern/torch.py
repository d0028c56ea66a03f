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
from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, Mapping

import torch

from ._attention import scaled_dot_product_attention
from ._export import export, load
from ._optimize import Layers, optimize
from ._register import register_backend
from ._torch_operator import Operator
from ._weighted_filter import HAS_OPERATORS, WeightedFilter, weighted_filter

if TYPE_CHECKING:
    from ._explain import Explanation

__all__ = ["Operator", "WeightedFilter", "weighted_filter", "scaled_dot_product_attention", "explain", "export", "load", "optimize"]

if HAS_OPERATORS:
    from . import _filter_operators  # noqa: F401

register_backend()


def explain(model: Any, *inputs: Any, mode: Literal["default", "tune"] | None = None, options: Mapping[str, Any] | None = None, dynamic: bool | None = None,
            training: bool = False, **named: Any) -> Explanation | Layers:
    """How torch.compile(model, backend="quern") divides a model for these inputs. Prints as a table of pieces, with the time of each beside that of its
    operators in PyTorch, and of what stays in PyTorch and why. Runs the model, without gradients; with training=True its forward and backward graphs, where
    gradients are those of the sum of its results, and kept nowhere. Of a model after optimize(), without inputs: its layers, with the same columns."""
    if not inputs and not named and isinstance(model, torch.nn.Module):
        found = Layers(model)
        if found:
            return found
        raise TypeError("explain() needs the model's inputs: explain(model, x); without them it lists the layers of a model after optimize()")
    from ._explain import explain  # of PyTorch's compiler, which takes seconds to import
    return explain(model, *inputs, mode=mode, options=options, dynamic=dynamic, training=training, **named)
