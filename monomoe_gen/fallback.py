"""The operator in plain torch on a kernel's weights: what runs without a GPU, or without a kernel.

It rounds where the kernel rounds, so that a model gives the same answers either way. It is slow,
and it waits for the GPU: a CUDA graph cannot hold it.
"""

from __future__ import annotations

from torch import Tensor

from monomoe_gen.kernel import LayerWeights
from monomoe_gen.reference import assign, moe_mirror
from monomoe_gen.schedule import Layout
from monomoe_gen.shapes import Shape
from monomoe_gen.weights import expert_codes

TOKENS_AT_ONCE = 1024  # bounds the memory for intermediate results, 128 KiB a token at most


def moe_in_torch(
    x: Tensor,
    logits: Tensor,
    weights: LayerWeights,
    shape: Shape,
    out: Tensor,
    layout: Layout = "packed",
) -> None:
    """``reference.moe_mirror`` into ``out``: x bf16 ``[B, H]``, out as x, logits as for
    `reference.assign`.

    Of packed weights, only the experts in use are unpacked, a copy of each.
    """
    pieces = (t.split(TOKENS_AT_ONCE) for t in (x, logits, out))
    for x_piece, logits_piece, out_piece in zip(*pieces, strict=True):
        active = assign(logits_piece, weights.bias, shape)[0].unique().tolist()
        codes = {e: expert_codes(layout, weights.w13, weights.w2, e) for e in active}
        y = moe_mirror(
            x_piece,
            logits_piece,
            {e: w13 for e, (w13, _) in codes.items()},
            weights.w13_scale,
            {e: w2 for e, (_, w2) in codes.items()},
            weights.w2_scale,
            weights.bias,
            shape,
        )
        out_piece.copy_(y)
