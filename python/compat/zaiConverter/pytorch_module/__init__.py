# SPDX-License-Identifier: Apache-2.0
"""The converter of modules of PyTorch."""
