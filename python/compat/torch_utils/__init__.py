# SPDX-License-Identifier: Apache-2.0
"""The weighted filter under the name that programs which predict kernels import it by."""
from quern.torch import WeightedFilter

__all__ = ["WeightedFilter"]
