# SPDX-License-Identifier: Apache-2.0
"""onnx_cases.py DIR [KIND...]: writes ONNX's test cases to DIR/KIND/NAME/, in the layout that
`quern verify --suite DIR/KIND` reads (model.onnx, test_data_set_0/input_0.pb ...).

The Python package onnx (1.23 of PyPI) carries its node cases as code, the other kinds as files; a
newer package has newer operators. Kinds: node, simple, light, pytorch-converted, pytorch-operator;
all of them by default.
"""
import os
import shutil
import sys
import warnings

import numpy as np
import onnx
from onnx import numpy_helper
from onnx.backend.test.case import model, node

DATA = os.path.join(os.path.dirname(onnx.backend.__file__), "test", "data")


def proto(value, info):
    """The message of one input or output."""
    if isinstance(value, onnx.TensorProto):
        return value
    kind = info.type.WhichOneof("value")
    to_proto = {
        "sequence_type": numpy_helper.from_list,
        "optional_type": numpy_helper.from_optional,
        "map_type": numpy_helper.from_dict,
    }.get(kind, numpy_helper.from_array)
    return to_proto(value if kind != "tensor_type" else np.asarray(value), info.name)


def write(path, content):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as f:
        f.write(content)


def write_set(path, graph, inputs, outputs):
    for kind, values, infos in (("input", inputs, graph.input), ("output", outputs, graph.output)):
        for k, value in enumerate(values):
            write(f"{path}/{kind}_{k}.pb", proto(value, infos[k]).SerializeToString())


def write_case(out, case):
    write(f"{out}/{case.name}/model.onnx", case.model.SerializeToString())
    for k, (inputs, outputs) in enumerate(case.data_sets):
        write_set(f"{out}/{case.name}/test_data_set_{k}", case.model.graph, inputs, outputs)


def ramp(info):
    """The input from which the outputs in folder `light` were computed."""
    shape = [d.dim_value for d in info.type.tensor_type.shape.dim]
    n = int(np.prod(shape))
    return (np.arange(n).reshape(shape) / n).astype(np.float32)


def write_light(out):
    """Networks of a megabyte, with weights computed by nodes and one input without a file of its
    own."""
    folder = os.path.join(DATA, "light")
    for file in sorted(f for f in os.listdir(folder) if f.endswith(".onnx")):
        name = file[: -len(".onnx")]
        net = onnx.load(os.path.join(folder, file))
        consts = {t.name for t in net.graph.initializer}
        inputs = [ramp(x) for x in net.graph.input if x.name not in consts]
        write(f"{out}/{name}/model.onnx", net.SerializeToString())
        write_set(f"{out}/{name}/test_data_set_0", net.graph, inputs, [])
        shutil.copyfile(f"{folder}/{name}_output_0.pb", f"{out}/{name}/test_data_set_0/output_0.pb")


def write_kind(out, kind):
    if kind == "node":
        for case in node.collect_testcases(None):
            write_case(out, case)
    elif kind == "simple":
        for case in model.collect_testcases():
            if case.kind == kind:
                write_case(out, case)
    elif kind == "light":
        write_light(out)
    else:
        shutil.copytree(os.path.join(DATA, kind), out, dirs_exist_ok=True)


def main():
    kinds = sys.argv[2:] or ["node", "simple", "light", "pytorch-converted", "pytorch-operator"]
    warnings.simplefilter("ignore")  # casts that overflow are the subject of some cases
    for kind in kinds:
        out = os.path.join(sys.argv[1], kind)
        write_kind(out, kind)
        print(f"{kind}: {len(os.listdir(out))} cases")


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    main()
