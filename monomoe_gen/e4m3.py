"""Rounding to e4m3 with one scale per block: the rule that weights, inputs and h share."""

from __future__ import annotations

import torch
from torch import Tensor

E4M3 = torch.float8_e4m3fn
E4M3_MAX = 448.0
SMALLEST_AMAX = 2.0**-119
"""A block whose largest magnitude is below this counts as zero: 448 / amax would overflow fp32."""


def quantize(values: Tensor, amax: Tensor) -> tuple[Tensor, Tensor]:
    """Rounds fp32 ``values`` to e4m3, given the fp32 ``amax`` of their blocks (broadcastable).

    Returns the codes and the scale, so that ``codes * scale`` approximates ``values``:
    ``scale = amax / 448`` and ``codes = values * (448 / amax)``, the quotient and the product each
    rounded to fp32, then to e4m3 by round-to-nearest-even, saturating at 448. A block of zeros
    (``amax < SMALLEST_AMAX``) has scale 0 and codes 0. NaN in a block makes NaN codes, never a
    wrong finite value.
    """
    # A tensor, because dividing by a Python number may become a product with its reciprocal.
    largest = torch.full_like(amax, E4M3_MAX)
    zero = amax < SMALLEST_AMAX
    factor = (largest / amax).masked_fill(zero, 0.0)
    scale = (amax / largest).masked_fill(zero, 0.0)
    return (values * factor).clamp(-E4M3_MAX, E4M3_MAX).to(E4M3), scale
