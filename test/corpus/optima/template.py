# SPDX-License-Identifier: Apache-2.0
#
# A block of OptimaV2's documentation, as it is printed there. test/python_optima.py runs it.
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
