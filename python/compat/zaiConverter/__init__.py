# SPDX-License-Identifier: Apache-2.0
"""Networks of PyTorch as graphs of networkx, under the name that programs for OptimaV2 import the converter by."""
