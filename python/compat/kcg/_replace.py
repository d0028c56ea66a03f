# SPDX-License-Identifier: Apache-2.0
"""Matrix products of a model by another function, without changes of its text."""
import copy

import torch
import torch.nn as nn

from ._layers import CustomLinear
from ._products import torch_matmul
from .TorchInjector import OpProxy


def replace_LinearToCustomLlinear(model, f_mm=OpProxy.f_matmul):
    """Replaces each nn.Linear within the model by a CustomLinear of the same parameters. Returns the model; if it is an nn.Linear itself, its
    replacement."""
    if type(model) is nn.Linear:
        return CustomLinear.of(model, f_mm)
    for name, child in model.named_children():
        setattr(model, name, replace_LinearToCustomLlinear(child, f_mm))
    return model


class MatmulReplacer:
    """with MatmulReplacer(f): torch.matmul and the operator @ of tensors are f, in all threads; afterwards what they were."""

    def __init__(self, f_mm):
        self.f_mm = f_mm

    def __enter__(self):
        f = self.f_mm
        new = [(torch, "matmul", f), (torch.Tensor, "matmul", lambda a, b: f(a, b)), (torch.Tensor, "__matmul__", lambda a, b: f(a, b)),
               (torch.Tensor, "__rmatmul__", lambda b, a: f(a, b))]
        self.before = [(owner, name, name in vars(owner), getattr(owner, name)) for owner, name, _ in new]
        for owner, name, function in new:
            setattr(owner, name, function)
        return self

    def __exit__(self, *error):
        for owner, name, own, function in self.before:
            if own:
                setattr(owner, name, function)
            else:
                delattr(owner, name)  # inherited


class Replaced(nn.Module):
    """A model whose products are computed by a function."""

    def __init__(self, model, f_mm):
        super().__init__()
        self.model, self.f_mm = model, f_mm

    def forward(self, *args, **named):
        with MatmulReplacer(self.f_mm):
            return self.model(*args, **named)


def twin(model):
    """A copy of the modules with the same parameters and buffers: these very tensors."""
    shared = {id(t): t for t in (*model.parameters(), *model.buffers())}
    return copy.deepcopy(model, shared)


def get_op_optimized_model(model, f_mm=OpProxy.f_matmul):
    """The model with its linear layers and matrix products computed by OpProxy. The given model is unchanged; both have the same parameters."""
    return Replaced(replace_LinearToCustomLlinear(twin(model), f_mm), f_mm)


def get_baseline_model(model, f_mm=torch_matmul):
    """Likewise by a baseline, as triton_matmul.bmm."""
    return get_op_optimized_model(model, f_mm)
