# SPDX-License-Identifier: Apache-2.0
"""The operator 'attention' of kernel lists: softmax(q k^T / sqrt(d) + mask) v, all operands (batch, heads, positions, d)."""

__all__ = ["AttentionOp"]


class AttentionOp:
    """Names the operator in counts, results and registrations."""

    type = "attention"  # in kernel lists
