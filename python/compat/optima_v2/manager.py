# SPDX-License-Identifier: Apache-2.0
"""Manager: from a graph and an allocation to the files of every device."""
import json
import os
from typing import Any, List, Optional, Tuple, Union

import quern
from zaiConverter import gpickle

from . import devices


def network(model_graph_or_gpickle: Any) -> bytes:
    """The ONNX network in a graph of zaiConverter, or in its file, which is read without running what a pickle may contain."""
    graph = model_graph_or_gpickle
    return gpickle.network(gpickle.read(graph) if isinstance(graph, (str, os.PathLike)) else graph)


def check_devices(allocation: Any, device_info: Any) -> None:
    """Every kind of the allocation is one of those that the caller lists."""
    known = {d.value if isinstance(d, devices.DeviceEnum) else str(d) for d in device_info}
    for name, device in allocation.items():
        if str(device).split(":")[0] not in known:
            raise ValueError(f"operator '{name}' is on '{device}', which is none of the listed devices ({', '.join(sorted(known))}): "
                             "add its kind to device_info, or change the allocation")


class Manager:
    """The entry to all steps. Graphs are `quern graph`'s, allocations `quern allocate`'s."""

    def optimize(
        self,
        module_name: str,
        device_info: List[devices.DeviceEnum],
        model_graph_or_gpickle: Union[str, Any],
        output_folder_dir: str,
        device_alloc_per_kernel_json_dir: str,
        sample_inputs: Optional[List[Tuple[Any, ...]]] = None,
        need_gpu: bool = False,
    ) -> str:
        """Writes OUTPUT/MODULE with model.meta and a folder for each sub-graph, and returns its path.

        Parameters
        ----------
        module_name
            Name of the module.
        device_info
            The kinds of devices that the allocation may use.
        model_graph_or_gpickle
            A graph of zaiConverter, or its file.
        output_folder_dir
            Folder in which the module's own is created.
        device_alloc_per_kernel_json_dir
            JSON file with the device of each operator, {"conv2d_2": "HEXAGON:0"}.
        sample_inputs
            Calibration data: a list of samples, each a tuple with a tensor for each input. For devices whose tools quantise.
        need_gpu
            True: floats are f16.
        """
        with open(os.path.expanduser(device_alloc_per_kernel_json_dir), encoding="utf-8") as f:
            allocation = json.load(f)
        check_devices(allocation, device_info)
        return quern.deploy(network(model_graph_or_gpickle), os.path.expanduser(output_folder_dir), allocation, name=module_name,
                            samples=sample_inputs, f16=need_gpu)
