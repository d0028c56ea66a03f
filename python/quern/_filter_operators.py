# SPDX-License-Identifier: Apache-2.0
"""The weighted filter and its gradients as operators of PyTorch, torch.ops.quern.weighted_filter ..., for its compilers, which do not see into
autograd.Function's that call a library. They compute, and are differentiated, by the functions of _weighted_filter.py."""
from __future__ import annotations

from typing import Any, Callable, Sequence

import torch

from ._weighted_filter import Gradients, Spec, compute, compute_grad_input, compute_grad_weights

SPEC = "SymInt[2] kernel_size, bool splat, SymInt[2] dilation, str padding, str transform, str normalize, float epsilon"
N_SPEC = len(SPEC.split(","))

library = torch.library.Library("quern", "FRAGMENT")
ops = torch.ops.quern


def spec_of(given: Sequence[Any]) -> Spec:
    """From the last arguments of an operator."""
    kernel, splat, dilation, *rest = given[-N_SPEC:]
    return Spec(tuple(kernel), splat, tuple(dilation), *rest)


def define(name: str, arguments: str, compute: Callable[..., Any], fake: Callable[..., Any], gradients: Callable[..., Any]) -> None:
    """compute, fake: of the arguments, without the last ones, and a Spec; gradients: of them, the gradient of the result, and which are needed."""
    n = len(arguments.split(","))
    library.define(f"{name}({arguments}, {SPEC}) -> Tensor")
    library.impl(name, lambda *a: compute(*a[:n], spec_of(a)), "CompositeExplicitAutograd")
    torch.library.register_fake(f"quern::{name}", lambda *a: fake(*a[:n], spec_of(a)), lib=library)

    def keep(ctx: Any, inputs: Sequence[Any], output: Any) -> None:
        tensors = [isinstance(t, torch.Tensor) for t in inputs[:n]]
        ctx.save_for_backward(*(t for t, is_ in zip(inputs, tensors) if is_))
        ctx.rest = [None if is_ else t for t, is_ in zip(inputs, tensors)]
        ctx.is_saved, ctx.spec = tensors, spec_of(inputs)

    def backward(ctx: Any, g: torch.Tensor) -> tuple[Any, ...]:
        saved = iter(ctx.saved_tensors)
        inputs = [next(saved) if is_ else t for is_, t in zip(ctx.is_saved, ctx.rest)]
        return (*gradients(inputs, ctx.spec, g, ctx.needs_input_grad[:n]), *[None] * N_SPEC)

    torch.library.register_autograd(f"quern::{name}", backward, setup_context=keep, lib=library)


OPERATORS = Gradients(lambda x, w, spec: ops.weighted_filter(x, w, None, *spec.key()),
                      lambda g, w, spec, shape: ops.weighted_filter_grad_input(g, w, list(shape[2:]), *spec.key()),
                      lambda g, x, w, spec: ops.weighted_filter_grad_weights(g, x, w, *spec.key()))

define("weighted_filter", "Tensor x, Tensor w, Tensor? bias",
       lambda x, w, bias, spec: compute(x, w, spec, () if bias is None else (bias,)),
       lambda x, w, bias, spec: x.new_empty(spec.output_shape(x, w)),
       lambda t, spec, g, need: OPERATORS.of_filter(t[0], t[1], spec, g, need))
define("weighted_filter_grad_input", "Tensor g, Tensor w, SymInt[] size",
       lambda g, w, size, spec: compute_grad_input(g, w, spec, (*g.shape[:2], *size)),
       lambda g, w, size, spec: g.new_empty((*g.shape[:2], *size)),
       lambda t, spec, v, need: (*OPERATORS.of_grad_input(t[0], t[1], spec, v, need), None))
define("weighted_filter_grad_weights", "Tensor g, Tensor x, Tensor w",
       lambda g, x, w, spec: compute_grad_weights(g, x, w, spec),
       lambda g, x, w, spec: torch.empty_like(w, memory_format=torch.contiguous_format),
       lambda t, spec, v, need: OPERATORS.of_grad_weights(t[0], t[1], t[2], spec, v, need))
