"""Compares one output with full precision and with the mirror reference, element by element.

Two correct kernels add in different orders, so their h differ by a few units in the last fp32 bit.
Where an h lies that close to the middle between two e4m3 codes (two bf16 numbers, if activations
are not quantized), a close call, either code is right, and the choice shows in every element of the
token's output. `follow` therefore makes the choices that the output at hand made. What is left may
only differ where fp32 sums do: at the boundaries of bf16. A wrong kernel gains nothing by it: a
close call moves one of top_k * intermediate values by one code.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from monomoe_gen import e4m3
from monomoe_gen.comparison import Accuracy, Agreement, Comparison
from monomoe_gen.published import moe_published
from monomoe_gen.reference import (
    ExpertWeights,
    block_matmul,
    mirror_hidden,
    moe_fp32,
    round_activations,
)
from monomoe_gen.shapes import SCALE_BLOCK, Shape
from monomoe_gen.validate import Problem, cosines, relative_l2
from monomoe_gen.weights import BlockWeights

# How far fp32 sums in another order may move an h: relative to itself, and relative to the largest
# of its block, since a small h may be what is left of large sums.
_OF_ITSELF = 2.0**-13
_OF_LARGEST = 2.0**-18


def compare(
    shape: Shape,
    layer: BlockWeights,
    unquantized: ExpertWeights,
    problem: Problem,
    launch: Callable[[Problem, Tensor], None],
) -> Comparison:
    """Has ``launch`` write the output of ``problem`` and compares it, and the published operator's.

    ``layer`` is what the problem's weights were packed from, ``unquantized`` what they were before.
    """
    bias = problem.weights.bias
    y = torch.full_like(problem.mirror, torch.nan)
    launch(problem, y)
    parts = (layer.w13, layer.w13_scale, layer.w2, layer.w2_scale)
    operator = moe_published(problem.x, problem.logits, *parts, bias, shape)
    exact = moe_fp32(problem.x, problem.logits, unquantized, bias, shape)
    mirror, close_calls = follow(y, problem, layer, shape)
    return Comparison(
        tokens=len(y),
        distribution=problem.case.distribution,
        routing=problem.case.routing,
        largest=float(problem.exact.abs().max()),
        kernel_dequantized=accuracy(y, problem.exact),
        kernel_unquantized=accuracy(y, exact),
        operator_dequantized=accuracy(operator, problem.exact),
        operator_unquantized=accuracy(operator, exact),
        agreement=Agreement(
            rel_l2=_finite(relative_l2(y, mirror).max()),
            share=float((bf16_steps(y, mirror) <= 1).double().mean()),
            close_calls=close_calls,
        ),
        activations=shape.activations,
        required_cosine=min(problem.required_cosines),
    )


def accuracy(y: Tensor, exact: Tensor) -> Accuracy:
    """``y [B, H]`` against full precision of the same shape."""
    return Accuracy(
        cosine=_finite(cosines(y, exact).min()),
        rel_l2=_finite(relative_l2(y, exact).max()),
        max_abs=_finite((y.double() - exact.double()).abs().max()),
    )


def bf16_steps(a: Tensor, b: Tensor) -> Tensor:
    """How many bf16 numbers lie between two of them, plus one; 0 for equal ones, and -0 is 0.

    A NaN is further from everything than two finite numbers of one sign are from each other.
    """
    steps = (_place(a) - _place(b)).abs()
    return steps.masked_fill(a.isnan() | b.isnan(), 2**16)


def follow(y: Tensor, problem: Problem, layer: BlockWeights, shape: Shape) -> tuple[Tensor, int]:
    """`reference.moe_mirror` with the close calls that bring it nearer to ``y``, and their number.

    Of a token's close calls the one that makes most elements equal to those of ``y`` is taken, then
    the next, as long as the number of equal elements grows.
    """
    total = torch.zeros(y.shape, dtype=torch.float32, device=y.device)
    tokens_of, changes = [], []
    hidden = mirror_hidden(
        problem.x, problem.logits, layer.w13, layer.w13_scale, problem.weights.bias, shape
    )
    for expert, tokens, weights, h in hidden:
        codes, scale = round_activations(h, shape)
        w2, w2_scale = layer.w2[expert], layer.w2_scale[expert]
        total[tokens] += weights * block_matmul(codes, scale, w2, w2_scale)
        other = _other_codes(h, codes, shape)
        row, column = (other != codes.float()).nonzero(as_tuple=True)
        block = column // SCALE_BLOCK
        step = (other - codes.float())[row, column] * scale[row, block] * weights[row, 0]
        picked = w2.view(torch.uint8)[:, column].view(e4m3.E4M3).float()
        columns = picked * w2_scale.repeat_interleave(SCALE_BLOCK, 0)[:, block]
        tokens_of.append(tokens[row])
        changes.append(step[:, None] * columns.T)
    token, change = torch.cat(tokens_of), torch.cat(changes)
    taken = 0
    for t in range(len(y)):
        left = change[token == t]
        while len(left):
            differing = (total[t] + left).bfloat16().ne(y[t]).sum(-1)
            best = int(differing.argmin())
            if differing[best] >= total[t].bfloat16().ne(y[t]).sum():
                break
            total[t] += left[best]
            left = torch.cat([left[:best], left[best + 1 :]])
            taken += 1
    return total.bfloat16(), taken


def _other_codes(h: Tensor, codes: Tensor, shape: Shape) -> Tensor:
    """fp32 like ``h [T, N]``: the other code of each close call, the code itself elsewhere."""
    blocks = h.unflatten(-1, (-1, SCALE_BLOCK))
    largest = blocks.abs().amax(-1, keepdim=True)
    margin = blocks.abs() * _OF_ITSELF + largest * _OF_LARGEST

    def rounded(moved: Tensor) -> Tensor:
        codes = e4m3.quantize(moved, largest)[0] if shape.activations == "fp8" else moved.bfloat16()
        return codes.float().flatten(-2)

    low, high = rounded(blocks - margin), rounded(blocks + margin)
    return torch.where(low != codes.float(), low, high)


def _place(values: Tensor) -> Tensor:
    """int32: the place of each bf16 number among all of them; 0 for both zeros."""
    bits = values.view(torch.int16).int()
    return torch.where(bits < 0, -(2**15) - bits, bits)


def _finite(value: Tensor) -> float | None:
    number = float(value)
    return number if math.isfinite(number) else None
