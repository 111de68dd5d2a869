"""The published quantized operator, against numpy that rounds one value at a time."""

import dataclasses

import numpy as np
import pytest
import torch
from test_e4m3 import MAGNITUDES, round_to_code
from test_reference import layer, rel_l2, shape

from monomoe_gen import reference
from monomoe_gen.published import moe_published
from monomoe_gen.shapes import Shape
from monomoe_gen.weights import BlockWeights


def bf16(values: np.ndarray) -> np.ndarray:
    """Rounds to bf16 on the bits of fp32: to nearest, ties to even."""
    bits = values.astype(np.float32).view(np.uint32).astype(np.uint64)
    rounded = (bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000
    return rounded.astype(np.uint32).view(np.float32)


def quantized(row: np.ndarray) -> np.ndarray:
    """fp32 [K] -> what e4m3 with the scale max(amax, 1e-10) / 448 makes of it, block by block."""
    result = []
    for block in row.astype(np.float32).reshape(-1, 128):
        scale = np.float32(max(np.abs(block).max(), np.float32(1e-10))) / np.float32(448)
        codes = [round_to_code(float(value)) for value in block / scale]
        numbers = [MAGNITUDES[c & 0x7F] * (-1 if c & 0x80 else 1) for c in codes]
        result += [number * float(scale) for number in numbers]
    return np.array(result)


def plain(x: torch.Tensor, logits: torch.Tensor, w: BlockWeights, s: Shape) -> torch.Tensor:
    ids, weights = reference.route(logits, None, s)
    y = np.zeros(x.shape)
    for t, row in enumerate(x.float().numpy()):
        for expert, weight in zip(ids[t].tolist(), weights[t].tolist(), strict=True):
            w13, w2 = (m.double().numpy() for m in w.dequantized(expert))
            gate, up = np.split(bf16(w13 @ quantized(row)), 2)
            silu = bf16(gate / (1 + np.exp(-gate.astype(float).clip(-700))))
            y[t] += bf16(weight * (w2 @ quantized(bf16(silu * up))))
    return torch.from_numpy(bf16(y))


@pytest.mark.parametrize("size", [1.0, 1e-6, 300.0])
def test_it_rounds_where_it_says(size: float) -> None:
    s = shape(experts=6, top_k=3)
    x, logits, weights = layer(s, 3, seed=4)
    x = x * size
    x[1, 128:] = 0
    found = moe_published(x, logits, *vars(weights).values(), None, s)
    assert found.dtype == torch.bfloat16
    expected = plain(x, logits, weights, s)
    # an fp32 sum near a boundary of bf16, or then of e4m3, may fall on its other side
    assert rel_l2(found, expected) < 2e-3
    assert (found.float() == expected).double().mean() > 0.9
    mirror = reference.moe_mirror(x, logits, *vars(weights).values(), None, s)
    assert rel_l2(found, mirror) > 4e-3  # the rounding points are others than the kernel's


def test_it_has_the_activation_of_the_shape() -> None:
    s = shape(experts=6, top_k=3)
    x, logits, weights = layer(s, 3, seed=4)
    for change in ({"swiglu_limit": 0.5}, {"activation": "gelu_tanh"}):
        other = dataclasses.replace(s, **change)
        found = moe_published(x, logits, *vars(weights).values(), None, other)
        exact = reference.moe_fp32(x, logits, weights.dequantized, None, other)
        assert rel_l2(found, exact) < 0.06
        assert rel_l2(reference.moe_fp32(x, logits, weights.dequantized, None, s), exact) > 0.1


def test_nothing_comes_of_nothing() -> None:
    s = shape()
    _, logits, weights = layer(s, 2, seed=5)
    zero = torch.zeros(2, s.hidden, dtype=torch.bfloat16)
    assert (moe_published(zero, logits, *vars(weights).values(), None, s) == 0).all()
