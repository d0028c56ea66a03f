# SPDX-License-Identifier: Apache-2.0
"""Torch2GraphConverter: a module of PyTorch as a graph of networkx."""
from __future__ import annotations

import inspect
import io
import json
import logging
import os
import pathlib
import warnings
from typing import Any, Sequence

import torch

import quern

from .. import gpickle

__all__ = ["Torch2GraphConverter"]

log = logging.getLogger("quern")
OPSET = 17  # the newest that every vendor's converter reads
DEVICES = ("X86", "X64", "ARM", "ARM64", "NVIDIA", "AMDGPU", "INTELGPU", "MALI", "ADRENO", "HEXAGON", "MYRIAD", "ARA1", "TPU", "CV22",
           "CPU", "OPENCL", "VULKAN", "OPENVINO_CPU", "OPENVINO_GPU", "OPENVINO_NPU")


class ChannelsLast(torch.nn.Module):
    """The module with inputs and outputs of four axes as (n, h, w, c)."""

    def __init__(self, module: torch.nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, *inputs: Any) -> Any:
        out = self.module(*(x.permute(0, 3, 1, 2) if x.dim() == 4 else x for x in inputs))
        if isinstance(out, (list, tuple)):
            return type(out)(flipped(y) for y in out)
        return flipped(out)


def flipped(x: Any) -> Any:
    return x.permute(0, 2, 3, 1) if isinstance(x, torch.Tensor) and x.dim() == 4 else x


def input_names(model: torch.nn.Module, n: int) -> list[str] | None:
    """Of the arguments of forward; None: it takes them as a list, or more tensors than it names."""
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    names = [p.name for p in inspect.signature(model.forward).parameters.values() if p.kind in positional]
    return names[:n] if len(names) >= n else None


def to_onnx(model: torch.nn.Module, inputs: Sequence[Any], names: list[str] | None) -> bytes:
    """The module as ONNX. By PyTorch's exporter that traces, which names nodes by modules, else by the one that PyTorch has left."""
    out = io.BytesIO()
    options: dict[str, Any] = dict(input_names=names, opset_version=OPSET)
    has_two = "dynamo" in inspect.signature(torch.onnx.export).parameters
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        try:
            torch.onnx.export(model, tuple(inputs), out, **options, **(dict(dynamo=False) if has_two else {}))
        except Exception as e:
            if not has_two:
                raise
            log.info("exported by torch.export, as tracing failed: %s", e)
            out = io.BytesIO()
            options["opset_version"] = None
            torch.onnx.export(model, tuple(inputs), dynamo=True, **options).save(out)
    return out.getvalue()


class Torch2GraphConverter:
    """Converts modules of PyTorch to graphs of operators and tensors.

    Parameters
    ----------
    tf_flip : bool
        Noted in the graph (`G.graph["tf_flip"]`); the order of axes within sub-graphs is chosen by what compiles them.
    torch_flip : bool
        Inputs and outputs of the network with four axes are (n, h, w, c) instead of the module's (n, c, h, w).
    """

    def __init__(self, tf_flip: bool = False, torch_flip: bool = False) -> None:
        self.tf_flip, self.torch_flip = bool(tf_flip), bool(torch_flip)
        self.onnx: bytes | None = None
        self.reset_module()

    def reset_module(self) -> None:
        """Forgets the module and its inputs. The converted network stays, for plot_network."""
        self.module: torch.nn.Module | None = None
        self.inputs: list[Any] = []

    def convert(self, model: torch.nn.Module, fake_torch_data: Sequence[Any], gpu: bool = False) -> Any:
        """Converts a module.

        Parameters
        ----------
        model : torch.nn.Module
            It is exported as for inference; its mode and its device stay as they are.
        fake_torch_data : list of tensors
            Arguments of its forward. Their sizes are those of the graph.
        gpu : bool
            Run it on the GPU meanwhile, as modules of float16 may need to. Without a GPU it runs where it is.

        Returns
        -------
        networkx.DiGraph
            `G.nodes[name]["data"]` has what is known of an operator ("kind" is "OpNode") or tensor, `G.graph["onnx"]` the network.
        """
        data = list(fake_torch_data) if isinstance(fake_torch_data, (list, tuple)) else [fake_torch_data]
        if not all(isinstance(x, torch.Tensor) for x in data):
            raise TypeError("fake_torch_data holds something else than tensors")
        self.module, self.inputs = model, data
        names = input_names(model, len(data))
        was_training = model.training
        home = next((p.device for p in [*model.parameters(), *model.buffers()]), None)
        to_gpu = bool(gpu) and torch.cuda.is_available()
        try:
            model.eval()
            given = [x.cuda() for x in data] if to_gpu else data
            whole = ChannelsLast(model) if self.torch_flip else model
            if self.torch_flip:
                given = [flipped(x) for x in given]
            self.onnx = to_onnx(whole.cuda() if to_gpu else whole, given, names)
        finally:
            model.train(was_training)
            if to_gpu and home is not None:
                model.to(home)
        graph = quern.graph(self.onnx).to_networkx()
        graph.graph.update(name=type(model).__name__, onnx=self.onnx, tf_flip=self.tf_flip, torch_flip=self.torch_flip)
        return graph

    def export_to_gpickle(self, filename: str | os.PathLike[str], graph: Any) -> None:
        """Pickles the graph, with the network, into a file, whose folder is made."""
        gpickle.network(graph)  # it has one
        gpickle.write(filename, graph)

    def plot_network(self, dir: str | os.PathLike[str], filename: str, alloc_json: str | os.PathLike[str] | None = None, figsizenum: float = 5) -> pathlib.Path:
        """Draws the converted network in the colours of an allocation.

        Parameters
        ----------
        dir, filename
            The picture: .png (also without a suffix), .svg or .dot in this folder, which is made.
        alloc_json : path, optional
            The allocation.
        figsizenum : float
            Most inches of width and height, 5 to about 40.
        """
        if self.onnx is None:
            raise RuntimeError("there is no network yet: call convert() first")
        path = pathlib.Path(dir).expanduser() / filename
        if path.suffix not in (".png", ".svg", ".dot"):
            path = path.with_name(path.name + ".png")
        path.parent.mkdir(parents=True, exist_ok=True)
        alloc = None if alloc_json is None else pathlib.Path(alloc_json).expanduser()
        quern.graph(self.onnx, allocation=alloc).draw(path, size=figsizenum)
        return path

    @staticmethod
    def get_onedevice_allocator(json_out: str | os.PathLike[str], default_device: str, graph: Any) -> dict[str, str]:
        """Writes an allocation with the same device for every operator, to be changed.

        Parameters
        ----------
        json_out : path
            The JSON file.
        default_device : str
            "X64", or with the number of an instance, "X64:1".
        graph : path or networkx.DiGraph
            The gpickle file, or its graph.
        """
        import networkx
        device = default_device if ":" in default_device else f"{default_device}:0"
        if device.partition(":")[0] not in DEVICES or not device.partition(":")[2].isdigit():
            raise ValueError(f"'{default_device}' is no device: expected one of {', '.join(DEVICES)}")
        g = gpickle.read(graph) if isinstance(graph, (str, os.PathLike)) else graph
        alloc = {name: device for name in networkx.topological_sort(g) if g.nodes[name]["data"]["kind"] == "OpNode"}
        path = pathlib.Path(json_out).expanduser()
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(alloc))
        return alloc
