# SPDX-License-Identifier: Apache-2.0
"""A baseline of matrix products: bmm(a, b) by a Triton kernel where Triton is installed and the tensors lie on a GPU, else torch.matmul.

The kernel is a plain one without tuning: blocks of 64 x 64, sums in f32, any strides and sizes."""
import torch

try:
    import triton
    import triton.language as tl
except ImportError:
    triton = None

__all__ = ["bmm"]

torch_matmul = torch.matmul  # MatmulReplacer may replace it
BLOCK_M, BLOCK_N, BLOCK_K = 64, 64, 32
TYPES = (torch.float32, torch.float16, torch.bfloat16)
BATCHES = 65535  # at most, of a grid's second axis


if triton is not None:
    @triton.jit
    def product(a, b, c, m, n, k, a_batch, a_m, a_k, b_batch, b_k, b_n, c_batch, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
        """One block (M, N) of c[batch] (m, n), which is dense, = a[batch] (m, k) x b[batch] (k, n)."""
        blocks = tl.cdiv(n, N)
        block, batch = tl.program_id(0), tl.program_id(1).to(tl.int64)
        rows = block // blocks * M + tl.arange(0, M)
        columns = block % blocks * N + tl.arange(0, N)
        terms = tl.arange(0, K)
        row, column = rows[:, None].to(tl.int64), columns[None, :].to(tl.int64)
        total = tl.zeros((M, N), dtype=tl.float32)
        for first in range(0, k, K):
            term = (first + terms).to(tl.int64)
            x = tl.load(a + batch * a_batch + row * a_m + term[None, :] * a_k, mask=(row < m) & (term[None, :] < k), other=0.0)
            y = tl.load(b + batch * b_batch + term[:, None] * b_k + column * b_n, mask=(term[:, None] < k) & (column < n), other=0.0)
            total += tl.dot(x, y, input_precision="ieee", out_dtype=tl.float32)
        tl.store(c + batch * c_batch + row * n + column, total.to(c.dtype.element_ty), mask=(row < m) & (column < n))


def is_for_triton(a, b):
    interpreted = triton is not None and triton.knobs.runtime.interpret if hasattr(triton, "knobs") else False
    return (triton is not None and (a.is_cuda or interpreted) and a.device == b.device and a.dtype == b.dtype and a.dtype in TYPES
            and min(a.dim(), b.dim()) >= 2 and a.shape[-1] == b.shape[-2] and not (torch.is_grad_enabled() and (a.requires_grad or b.requires_grad)))


def bmm(a, b):
    """a (b.., m, k) x b (b.., k, n), with torch.matmul's rules for batches."""
    if not is_for_triton(a, b):
        return torch_matmul(a, b)
    batch = torch.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    (m, k), n = a.shape[-2:], b.shape[-1]
    x, y = (t.expand(*batch, *t.shape[-2:]).reshape(-1, *t.shape[-2:]) if t.dim() > 2 else t[None] for t in (a, b))
    c = torch.empty(*batch, m, n, dtype=a.dtype, device=a.device)
    number = batch.numel()
    if number > BATCHES:
        return torch_matmul(a, b)
    if c.numel():
        strides = [[0 if t.shape[0] < number else t.stride(0), *t.stride()[1:]] for t in (x, y)]
        product[(triton.cdiv(m, BLOCK_M) * triton.cdiv(n, BLOCK_N), number)](x, y, c, m, n, k, *strides[0], *strides[1], m * n,
                                                                             BLOCK_M, BLOCK_N, BLOCK_K)
    return c
