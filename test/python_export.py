# SPDX-License-Identifier: Apache-2.0
#
# Tests that layers for PyTorch share: exports by both exporters of this PyTorch, where it has them. A test case of a layer derives from Exports and has
# check(self, **how), which exports a network with these arguments of torch.onnx.export and compares the file's results; axes(self) and shapes(self) are its
# sizes that may change, for the one exporter and for the other.
import inspect
import os
import tempfile

import torch

import quern


def run_exported(net, x, inputs, **how):
    """Pairs of results, of the network exported for x and of the network itself, on each of the inputs."""
    with tempfile.TemporaryDirectory() as d, torch.no_grad():
        file = os.path.join(d, "net.onnx")
        torch.onnx.export(net, (x,), file, input_names=["x"], output_names=["y"], **how)
        program = quern.compile(file)
        return [(program(i), net(i)) for i in inputs]


class Exports:
    def axes(self):
        return {}

    def shapes(self):
        return {}

    def test_trace(self):
        can = inspect.signature(torch.onnx.export).parameters
        try:
            self.check(**self.axes(), **(dict(dynamo=False) if "dynamo" in can else {}))
        except (ImportError, AttributeError, ModuleNotFoundError) as e:
            self.skipTest(f"this PyTorch does not export traces: {e}")

    def test_graph(self):
        try:
            import onnxscript  # noqa: F401
            torch.onnx.ops
        except (ImportError, AttributeError):
            self.skipTest("no onnxscript, or PyTorch before 2.8: nothing exports graphs")
        self.check(dynamo=True, verbose=False, **self.shapes())
