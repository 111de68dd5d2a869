"""The stand-in's product on a GPU. Importing this module imports Triton."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from monomoe_gen.shapes import SCALE_BLOCK

CONFIGS = [
    triton.Config({"ROWS": rows}, num_warps=warps, num_stages=stages)
    for rows, warps in ((4, 2), (8, 2), (8, 4), (16, 4), (32, 4))
    for stages in (2, 4)
]


@triton.jit
def _product(  # type: ignore[no-untyped-def]
    x, w, w_scale, ids, y, S, N: tl.constexpr, K: tl.constexpr,
    BLOCKS: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """ROWS rows of the product of one token, BLOCKS scale blocks of K at a time."""
    first = tl.program_id(0) * ROWS
    pair = tl.program_id(1)
    expert = tl.load(ids + pair).to(tl.int64)
    rows = first + tl.arange(0, ROWS)
    columns = tl.arange(0, BLOCKS * 128)
    blocks = tl.arange(0, BLOCKS)
    matrix = w + expert * N * K + rows[:, None] * K
    scales = w_scale + expert * (N // 128) * (K // 128) + (first // 128) * (K // 128)
    total = tl.zeros([ROWS], dtype=tl.float32)
    for k in range(0, K, BLOCKS * 128):
        values = tl.load(x + pair * K + k + columns).to(tl.float32)
        values = tl.reshape(values, (BLOCKS, 128))
        top = tl.max(tl.abs(values), axis=1)
        step = tl.where(top > 0, top / 448.0, 0.0)
        factor = tl.where(top > 0, 448.0 / top, 0.0)
        codes = (values * factor[:, None]).to(tl.float8e4nv).to(tl.float32)
        weights = tl.load(matrix + k + columns[None, :]).to(tl.float32)
        products = tl.reshape(weights, (ROWS, BLOCKS, 128)) * codes[None, :, :]
        scale = step * tl.load(scales + k // 128 + blocks)
        total += tl.sum(tl.sum(products, axis=2) * scale[None, :], axis=1)
    tl.store(y + pair * N + rows, total.to(y.dtype.element_ty))


_tuned = triton.autotune(CONFIGS, key=["S", "N", "K"])(_product)


def row_times_expert(x: Tensor, weight: Tensor, scale: Tensor, expert_ids: Tensor) -> Tensor:
    """See `standin.batched_matmul`; the first call of a shape tries some launch configurations."""
    pairs, (_, n, k) = len(x), weight.shape
    y = torch.empty(pairs, n, dtype=x.dtype, device=x.device)
    blocks = next(b for b in (4, 2, 1) if k % (b * SCALE_BLOCK) == 0)

    def grid(meta: dict[str, int]) -> tuple[int, int]:
        return n // meta["ROWS"], pairs

    _tuned[grid](x.contiguous(), weight, scale, expert_ids, y, pairs, n, k, blocks)
    return y
