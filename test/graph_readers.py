# SPDX-License-Identifier: Apache-2.0
"""graph_readers.py FOLDER: networkx reads each network's JSON and GraphML as the same graph: of operators beside tensors, without circles, in topological
order. ONNX's checker accepts the networks with notes, if it is installed."""
import json
import pathlib
import sys

import networkx

try:
    import onnx
except ImportError:
    onnx = None

n = 0
for path in sorted(pathlib.Path(sys.argv[1]).glob("*.json")):
    data = json.loads(path.read_text())
    a, b = networkx.node_link_graph(data, edges="edges"), networkx.read_graphml(path.with_suffix(".graphml"))
    assert isinstance(a, networkx.DiGraph) and isinstance(b, networkx.DiGraph) and not a.is_multigraph() and not b.is_multigraph(), path
    assert set(a.edges) == set(b.edges) and list(a) == list(b), path
    assert networkx.is_directed_acyclic_graph(a), path
    order = {name: k for k, name in enumerate(a)}
    for name, x in a.nodes(data="data"):
        flat = b.nodes[name]
        assert flat["kind"] == x["kind"] and flat["name"] == name and set(flat) == set(x), path
        for key, value in x.items():
            read = json.loads(flat[key]) if isinstance(value, (list, dict)) else flat[key]
            assert read == value or "\ufffd" in str(read), (path, name, key, value, flat[key])
        is_op = x["kind"] == "OpNode"
        for other in a.succ[name]:
            assert order[name] < order[other] and (a.nodes[other]["data"]["kind"] == "OpNode") != is_op, path
        if is_op:
            assert set(a.pred[name]) == {t for t in x["inputs"] if t} and set(a.succ[name]) == {t for t in x["outputs"] if t}, path
        else:
            assert len(a.pred[name]) <= 1, path
    if onnx and path.with_suffix(".onnx").exists():
        model = onnx.load(path.with_suffix(".onnx"))
        assert all(x.doc_string.split(";")[0].split()[0] in a for x in model.graph.node if x.doc_string), path
        if not any(x.domain for x in model.graph.node):
            onnx.checker.check_model(model)
    n += 1
print(f"{n} networks")
assert n > 10
