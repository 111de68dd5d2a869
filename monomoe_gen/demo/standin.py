"""A stand-in for the kernel with which transformers multiplies block-FP8 experts.

transformers' FP8 experts call a kernel that the `kernels` package downloads. Where that is not to
be had, this one takes its place, so that all the rest of their code runs as it is: Triton on a GPU,
plain torch on a CPU. Activations are rounded to FP8 per token and 128 columns, as there.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import Tensor

from monomoe_gen import e4m3
from monomoe_gen.errors import EnvironmentProblem, MonomoeError
from monomoe_gen.shapes import SCALE_BLOCK
from monomoe_gen.weights import dequantize_blocks


def batched_matmul(
    x: Tensor,
    weight: Tensor,
    scale: Tensor,
    *,
    block_size: Any,
    expert_ids: Tensor,
) -> Tensor:
    """Row i of x times the matrix of expert i: ``[S, K]`` -> ``[S, N]`` in the type of x.

    Args:
        weight: e4m3 ``[E, N, K]``.
        scale: fp32 ``[E, N/128, K/128]``.
        expert_ids: int64 or int32 ``[S]``, below E.
    """
    if tuple(block_size) != (SCALE_BLOCK, SCALE_BLOCK):
        raise MonomoeError(f"the stand-in takes blocks of 128 x 128, found {block_size}")
    if x.device.type == "cuda":
        from monomoe_gen.demo.standin_triton import row_times_expert

        return row_times_expert(x, weight, scale, expert_ids)
    blocks = x.float().unflatten(-1, (-1, SCALE_BLOCK))
    codes, step = e4m3.quantize(blocks, blocks.abs().amax(-1, keepdim=True))
    rounded = (codes.float() * step).flatten(1)
    y = x.new_empty(len(x), weight.shape[1])
    for expert in expert_ids.unique().tolist():
        rows = expert_ids == expert
        y[rows] = (rounded[rows] @ dequantize_blocks(weight[expert], scale[expert]).T).to(y.dtype)
    return y


@contextmanager
def standing_in() -> Iterator[None]:
    """Lets transformers use the stand-in meanwhile; only its ``batched_mm`` experts work with it.

    Raises:
        EnvironmentProblem: this transformers keeps its kernel elsewhere.
    """
    from transformers.integrations import finegrained_fp8

    if not hasattr(finegrained_fp8, "_FINEGRAINED_FP8"):
        raise EnvironmentProblem("this transformers has no place for a stand-in kernel")
    own = finegrained_fp8._FINEGRAINED_FP8
    finegrained_fp8._FINEGRAINED_FP8 = finegrained_fp8.FineGrainedFP8(
        matmul=_absent, batched_matmul=batched_matmul, grouped_matmul=_absent
    )
    try:
        yield
    finally:
        finegrained_fp8._FINEGRAINED_FP8 = own


def _absent(*_: Any, **__: Any) -> Tensor:
    raise EnvironmentProblem("the stand-in has only the batched product; use batched_mm")
