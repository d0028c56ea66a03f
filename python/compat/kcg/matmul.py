# SPDX-License-Identifier: Apache-2.0
"""The operator 'matmul' of kernel lists: y (b.., m, n) = a (b.., m, k) x b (b.., k, n)."""

__all__ = ["MatmulOp"]


class MatmulOp:
    """Names the operator in counts, results and registrations."""

    type = "matmul"  # in kernel lists
