"""Quantization, packing and the mirror reference on drawn shapes, against torch code of its own.

Here e4m3 is a table of numbers that is searched, weights are dense matrices in double, and the
operator is written token by token. `test_e4m3` and `test_weights` pin down single bytes.
"""

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from monomoe_gen import e4m3
from monomoe_gen.reference import moe_mirror, quantize_activations, route
from monomoe_gen.shapes import Shape
from monomoe_gen.weights import (
    BlockWeights,
    dequantize_blocks,
    pack_w2,
    pack_w13,
    quantize_blocks,
    unpack_w2,
    unpack_w13,
)

CODE = torch.arange(127)
NUMBERS = torch.where(
    CODE < 8, CODE / 8 * 2.0**-6, (1 + CODE % 8 / 8) * torch.exp2(CODE // 8 - 7.0)
).double()
MIDDLES = (NUMBERS[1:] + NUMBERS[:-1]) / 2

seeds = st.integers(0, 2**32 - 1)
sizes = st.integers(1, 3).map(lambda blocks: 128 * blocks)
quick = settings(max_examples=12, deadline=None, derandomize=True)


def nearest(values: Tensor) -> Tensor:
    """fp32 -> the bytes of the nearest e4m3 numbers; the even one of two, at most 448."""
    magnitude = values.double().abs().contiguous()
    lower = torch.searchsorted(MIDDLES, magnitude)
    middle = MIDDLES[lower.clamp(max=len(MIDDLES) - 1)] == magnitude
    code = torch.where(middle & (lower % 2 == 1), lower + 1, lower)
    return (code + 128 * values.signbit()).to(torch.uint8)


def tile(scale: Tensor) -> Tensor:
    """One scale per block -> one per element of the last two dimensions."""
    return scale.repeat_interleave(128, -1).repeat_interleave(128, -2)


def round_blocks(matrix: Tensor, rows: int) -> tuple[Tensor, Tensor]:
    """Bytes of ``matrix`` in blocks of ``rows`` x 128, and the fp32 scale of every element."""
    amax = torch.empty_like(matrix)
    for r in range(0, matrix.shape[0], rows):
        for c in range(0, matrix.shape[1], 128):
            amax[r : r + rows, c : c + 128] = matrix[r : r + rows, c : c + 128].abs().max()
    whole = torch.full_like(amax, 448)
    empty = amax == 0
    factor = torch.where(empty, torch.zeros_like(amax), whole / amax)
    return nearest(matrix * factor), torch.where(empty, torch.zeros_like(amax), amax / whole)


def values_of(codes: Tensor) -> Tensor:
    """Bytes -> the numbers they stand for, in double."""
    return NUMBERS[(codes & 127).long()] * torch.where(codes > 127, -1.0, 1.0)


def draw(size: tuple[int, ...], exponent: int, seed: int) -> Tensor:
    """fp32 with heavy tails, zeros of either sign, and values halfway between codes if unscaled."""
    g = torch.Generator().manual_seed(seed)
    values = torch.randn(size, generator=g) * torch.randn(size, generator=g).exp()
    picks = torch.randint(4, size, generator=g)
    halfway = MIDDLES[torch.randint(len(MIDDLES), size, generator=g)].float() * values.sign()
    values = torch.where(picks == 0, halfway / 448 * values.abs().max(), values)
    values = torch.where(picks == 1, values * 0, values)
    return values * 2.0**exponent


def test_the_table_is_that_of_torch_and_rounds_halfway_to_even() -> None:
    codes = torch.arange(256, dtype=torch.uint8)
    finite = codes[codes % 128 < 127]
    assert torch.equal(values_of(finite), finite.view(e4m3.E4M3).double())
    assert torch.equal(nearest(finite.view(e4m3.E4M3).float()), finite)
    middles = torch.cat([MIDDLES, -MIDDLES]).float()
    edges = torch.tensor([448.0, 464.0, 1e30, torch.inf, 2.0**-11, 0.0])
    for values in (middles, middles * (1 + 2.0**-20), middles * (1 - 2.0**-20), edges, -edges):
        found = e4m3.quantize(values, torch.tensor([448.0]))[0]
        assert torch.equal(found.view(torch.uint8), nearest(values))


@quick
@given(sizes, sizes, st.integers(-60, 60), seeds)
def test_weights_are_rounded_packed_and_unpacked(
    rows: int, columns: int, exponent: int, seed: int
) -> None:
    weights = torch.stack([draw((2 * rows, columns), exponent, seed + i) for i in range(2)])
    codes, scale = quantize_blocks(weights)
    for expert in range(2):
        expected, scales = round_blocks(weights[expert], 128)
        assert torch.equal(codes[expert].view(torch.uint8), expected)
        assert torch.equal(tile(scale[expert]), scales)
        dense = dequantize_blocks(codes[expert], scale[expert])
        assert torch.equal(dense, values_of(expected).float() * scales)
    for pack, unpack in ((pack_w13, unpack_w13), (pack_w2, unpack_w2)):
        packed = pack(codes)
        assert packed.numel() == codes.numel()
        assert torch.equal(unpack(packed).view(torch.uint8), codes.view(torch.uint8))


@quick
@given(st.integers(1, 4), sizes, st.integers(-60, 60), seeds)
def test_activations_are_rounded(tokens: int, columns: int, exponent: int, seed: int) -> None:
    x = draw((tokens, columns), exponent, seed).bfloat16()
    codes, scale = quantize_activations(x)
    expected, scales = round_blocks(x.float(), 1)
    assert torch.equal(codes.view(torch.uint8), expected)
    assert torch.equal(scale.repeat_interleave(128, -1), scales)


@quick
@given(
    st.integers(1, 4), sizes, sizes, st.integers(1, 6), st.integers(-20, 20), st.booleans(), seeds
)
def test_the_mirror_is_the_operator_on_the_unpacked_weights(
    tokens: int, hidden: int, width: int, top_k: int, exponent: int, sigmoid: bool, seed: int
) -> None:
    s = Shape(
        name="drawn",
        hidden=hidden,
        intermediate=width,
        experts=6,
        top_k=top_k,
        scoring="sigmoid" if sigmoid else "softmax",
        renormalize=True,
    )
    g = torch.Generator().manual_seed(seed)
    w13 = torch.randn(6, 2 * width, hidden, generator=g) * hidden**-0.5
    w2 = torch.randn(6, hidden, width, generator=g) * width**-0.5
    layer = BlockWeights(*quantize_blocks(w13), *quantize_blocks(w2))
    x = draw((tokens, hidden), exponent, seed).bfloat16()
    logits = torch.randn(tokens, 6, generator=g)
    found = moe_mirror(x, logits, *vars(layer).values(), None, s)

    up_dense = values_of(unpack_w13(pack_w13(layer.w13)).view(torch.uint8)) * tile(layer.w13_scale)
    down_dense = values_of(unpack_w2(pack_w2(layer.w2)).view(torch.uint8)) * tile(layer.w2_scale)
    ids, amounts = route(logits, None, s)
    for t in range(tokens):
        codes, scales = round_blocks(x[t : t + 1].float(), 1)
        row = (values_of(codes) * scales)[0]
        y = torch.zeros(hidden, dtype=torch.float64)
        for expert, amount in zip(ids[t].tolist(), amounts[t].double(), strict=True):
            gate, up = (up_dense[expert] @ row).chunk(2)
            h = (gate * torch.sigmoid(gate) * up).float()[None]
            codes, scales = round_blocks(h, 1)
            y += amount * (down_dense[expert] @ (values_of(codes) * scales)[0])
        # one rounding of h that falls to the other side moves y by far less than this
        error = (found[t].double() - y).norm()
        assert error <= 1e-2 * y.norm()
