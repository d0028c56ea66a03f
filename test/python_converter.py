# SPDX-License-Identifier: Apache-2.0
"""OptimaV2's converter over quern (python/compat/zaiConverter): the text of its manual as printed, then what it leaves open: modules of every kind, layouts,
half floats, files that are none or that would run code. Run by test/graph.sh."""
import io
import json
import os
import pathlib
import pickle
import sys

import networkx
import torch

# --- the manual, its blocks as printed but for the paths ---

MODEL = '''
import torch
import torch.nn as nn

class SampleModel(nn.Module):
    def __init__(self):
        super(SampleModel, self).__init__()
        self.conv = nn.Conv2d(3, 1, 3, 1, 1, bias=False)
    def forward(self, x, y):
        out1 = self.conv(x)
        out2 = out1 + y
        return out2

# model and sample_input_data will be used in the below code block
model = SampleModel()
sample_input_list = [torch.rand(1, 3, 32, 32), torch.rand(1, 1, 32, 32)] # shape of each arguments matches with that of tensor x and tensor y
'''
CONVERT = '''
import zaiConverter
from zaiConverter.pytorch_module import converter

# Convert model to Networkx specification
need_gpu = True # or False
temp_gpickle_save_filename = "<SOME PATH WHERE GPICKLE WILL BE SAVED>"
graph_converter = converter.Torch2GraphConverter(tf_flip=True, torch_flip=False)
nx_graph = graph_converter.convert(
    model=model, fake_torch_data=sample_input_list, gpu=need_gpu
)
graph_converter.reset_module()
graph_converter.export_to_gpickle(temp_gpickle_save_filename, nx_graph)
'''
TEMPLATE = '''
import pickle
import networkx as nx
import json
# Create json file #
model_json_filename="<SOME PATH WHERE JSON WILL BE SAVED>"
default_device="<SOME DEVICE>" # You must select among above candidates
alloc_dict = {}
with open(temp_gpickle_save_filename, "rb") as f:
    generalized_graph = pickle.load(f)
    for node_name in nx.topological_sort(generalized_graph):
        nx_dict = generalized_graph.nodes[node_name]["data"]
        if nx_dict["kind"] == "OpNode":
            alloc_dict[node_name] = (
                default_device + ":0"
            )

with open(model_json_filename, "w") as f:
    json.dump(alloc_dict, f)
'''
PLOT = '''
from pathlib import Path
visual_graph_dir = "<SOME DIRECTORY PATH WHERE VISUALIZED GRAPH WILL BE SAVED>"
visual_graph_filename = "<VISUALIZED GRAPH FILENAME>"
graph_converter.plot_network(Path(visual_graph_dir), visual_graph_filename, \\
                             model_json_filename, figsizenum=5)
'''

has_dot = len(sys.argv) > 1
names = {}
for block in (MODEL, CONVERT, TEMPLATE):
    for what, is_ in (("<SOME PATH WHERE GPICKLE WILL BE SAVED>", "saved/net.gpickle"), ("<SOME PATH WHERE JSON WILL BE SAVED>", "alloc.json"),
                      ("<SOME DEVICE>", "X64")):
        block = block.replace(what, is_)
    exec(block, names)
assert pathlib.Path("alloc.json").read_text() == '{"conv2d_2": "X64:0", "add_5": "X64:0"}'  # the manual's
pathlib.Path("alloc.json").write_text('{"conv2d_2": "HEXAGON:0", "add_5": "X64:1"}')
if has_dot:
    exec(PLOT.replace("<SOME DIRECTORY PATH WHERE VISUALIZED GRAPH WILL BE SAVED>", "pictures").replace("<VISUALIZED GRAPH FILENAME>", "net"), names)
    assert pathlib.Path("pictures/net.png").read_bytes()[:4] == b"\x89PNG"

from zaiConverter import gpickle  # noqa: E402
from zaiConverter.pytorch_module.converter import Torch2GraphConverter  # noqa: E402

graph, model, inputs = names["nx_graph"], names["model"], names["sample_input_list"]
assert list(graph.succ["conv2d_2"]) == ["tensor_4"] and set(graph.pred["add_5"]) == {"tensor_1", "tensor_4"}
assert graph.nodes["paramtensor_3"]["data"]["kind"] == "ParamTensorNode" and graph.nodes["tensor_0"]["data"]["shape"] == [1, 3, 32, 32]
assert model.training and next(model.parameters()).device.type == "cpu"

# --- our reader, and the template by the converter ---

again = gpickle.read("saved/net.gpickle")
assert networkx.utils.graphs_equal(again, graph) and gpickle.network(again) == graph.graph["onnx"]
assert list(networkx.topological_sort(again)) == list(networkx.topological_sort(graph))
assert Torch2GraphConverter.get_onedevice_allocator("other.json", "TPU:1", "saved/net.gpickle") == {"conv2d_2": "TPU:1", "add_5": "TPU:1"}
assert json.loads(pathlib.Path("other.json").read_text()) == {"conv2d_2": "TPU:1", "add_5": "TPU:1"}
view = networkx.DiGraph(again)
view.nodes, view.edges, view.adj, view.pred, view.degree, view.in_edges  # kept in the graph from now on
gpickle.write("view.gpickle", view)
assert networkx.utils.graphs_equal(gpickle.read("view.gpickle"), view)


def raises(error, says, function, *arguments):
    try:
        function(*arguments)
    except error as e:
        assert says in str(e), e
    else:
        raise AssertionError(f"no error: {says}")


class Bomb:
    def __init__(self, *call):
        self.call = call

    def __reduce__(self):
        return self.call


ran = []
for call in ((os.system, ("touch ran",)), (eval, ("open('ran', 'w')",)), (getattr, (graph, "nodes")), (exec, ("import os",)), (print, ("ran",)),
             (networkx.read_gml, ("x",))):
    for content in (Bomb(*call), {"a": [Bomb(*call)]}):
        for protocol in (0, 2, 4):
            pathlib.Path("bomb").write_bytes(pickle.dumps(content, protocol))
            raises(ValueError, "only graphs of networkx and plain containers are read", gpickle.read, "bomb")
assert not os.path.exists("ran")
whole = pathlib.Path("saved/net.gpickle").read_bytes()
for n in list(range(0, len(whole) - 1, 97)):
    pathlib.Path("cut").write_bytes(whole[:n])
    raises(ValueError, "is no gpickle file", gpickle.read, "cut")
for i in range(0, len(whole), 41):  # any byte may be another: an error, or a graph
    pathlib.Path("cut").write_bytes(whole[:i] + bytes([whole[i] ^ 0x55]) + whole[i + 1:])
    try:
        gpickle.read("cut")
    except ValueError:
        pass
pathlib.Path("list").write_bytes(pickle.dumps([1, 2]))
raises(ValueError, "holds a list", gpickle.read, "list")
raises(ValueError, "has no network", gpickle.network, networkx.DiGraph())
raises(ValueError, "has no network", Torch2GraphConverter().export_to_gpickle, "x", networkx.DiGraph())
raises(ValueError, "'Z80' is no device", Torch2GraphConverter.get_onedevice_allocator, "x", "Z80", graph)
raises(RuntimeError, "call convert() first", Torch2GraphConverter().plot_network, ".", "x")
raises(TypeError, "something else than tensors", Torch2GraphConverter().convert, model, [1])
raises(OSError, "", gpickle.read, "absent")

# --- other modules ---


def operators(module, *inputs, **options):
    c = Torch2GraphConverter(**options)
    g = c.convert(module, list(inputs))
    return c, g, [g.nodes[n]["data"]["type"] for n in networkx.topological_sort(g) if g.nodes[n]["data"]["kind"] == "OpNode"]


class Many(torch.nn.Module):
    """Any number of inputs, several outputs, a branch, sizes that are computed, half floats."""

    def forward(self, *x):
        return torch.cat(x, 1).flatten(1), [y.mean() for y in x]


_, g, ops = operators(Many(), torch.rand(2, 3), torch.rand(2, 4))
assert "Concat" in ops and len(g.graph["outputs"]) == 3, ops
net = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.PReLU(), torch.nn.Upsample(scale_factor=2), torch.nn.MaxPool2d(2)).train()
_, g, ops = operators(net, torch.rand(1, 3, 8, 8))
assert net.training and ops == ["Conv", "PRelu", "Resize", "MaxPool"], ops
assert [n for n in g if g.nodes[n]["data"]["kind"] == "OpNode"][2].startswith("interpolate_")
flip, g, _ = operators(net, torch.rand(1, 3, 8, 8), torch_flip=True)
assert g.nodes["tensor_0"]["data"]["shape"] == [1, 8, 8, 3] and g.nodes[g.graph["outputs"][0]]["data"]["shape"] == [1, 6, 6, 4]
_, g, _ = operators(torch.nn.Linear(4, 3).half(), torch.rand(2, 4).half())
assert g.nodes["tensor_0"]["data"]["dtype"] == "f16"
print("converter: right")
