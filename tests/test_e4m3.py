"""Rounding to e4m3, against the format's definition in plain Python and numpy."""

import bisect
import itertools
import math

import numpy as np
import pytest
import torch

from monomoe_gen import e4m3


def decode(code: int) -> float:
    """The number an e4m3 code stands for: bias 7, no infinities, 0x7f is NaN."""
    sign = -1.0 if code & 0x80 else 1.0
    exponent, mantissa = code >> 3 & 15, code & 7
    if exponent == 15 and mantissa == 7:
        return math.nan
    if exponent == 0:
        return sign * mantissa / 8 * 2.0**-6
    return sign * (1 + mantissa / 8) * 2.0 ** (exponent - 7)


MAGNITUDES = [decode(code) for code in range(0x7F)]  # ascending, index = code


def round_to_code(value: float) -> int:
    """Nearest code, ties to the even one, saturating."""
    magnitude = min(abs(value), MAGNITUDES[-1])
    above = bisect.bisect_left(MAGNITUDES, magnitude)
    code = above
    if above and MAGNITUDES[above] != magnitude:
        middle = (MAGNITUDES[above - 1] + MAGNITUDES[above]) / 2  # exact in double
        down = magnitude < middle or (magnitude == middle and (above - 1) % 2 == 0)
        code = above - 1 if down else above
    return code | (0x80 if math.copysign(1.0, value) < 0 else 0)


def codes_of(values: torch.Tensor, amax: float = 448.0) -> list[int]:
    """The codes under one scale; with an amax of 448 values are rounded as they are."""
    return e4m3.quantize(values, torch.tensor([amax]))[0].view(torch.uint8).tolist()


def test_every_code_decodes_and_survives() -> None:
    every = torch.arange(256, dtype=torch.uint8)
    values = every.view(e4m3.E4M3).float()
    for code, value in enumerate(values.tolist()):
        assert value == decode(code) or (math.isnan(value) and code & 0x7F == 0x7F)
    finite = every[~values.isnan()]
    assert codes_of(finite.view(e4m3.E4M3).float()) == finite.tolist()
    assert all(code & 0x7F == 0x7F for code in codes_of(values[values.isnan()]))


def test_halfway_values_go_to_the_even_code_and_their_neighbours_do_not() -> None:
    pairs = list(itertools.pairwise(MAGNITUDES))
    middles = np.array([(low + high) / 2 for low, high in pairs], dtype=np.float32)
    for sign, bit in ((1, 0), (-1, 0x80)):
        exact = codes_of(torch.from_numpy(sign * middles))
        below = codes_of(torch.from_numpy(sign * np.nextafter(middles, np.float32(0))))
        above = codes_of(torch.from_numpy(sign * np.nextafter(middles, np.float32(1e9))))
        for low in range(len(pairs)):
            assert exact[low] == (low if low % 2 == 0 else low + 1) | bit
            assert below[low] == low | bit
            assert above[low] == low + 1 | bit


def test_large_values_saturate() -> None:
    values = torch.tensor([448.0, 463.9, 464.0, 465.0, 480.0, 1e9, math.inf, -500.0, -math.inf])
    assert codes_of(values) == [0x7E] * 7 + [0xFE] * 2


@pytest.mark.parametrize("scale", [1e-30, 1e-6, 0.01, 1.0, 37.0, 1e20])
def test_codes_and_scale_follow_the_fp32_formula(scale: float) -> None:
    rng = np.random.default_rng(7)
    values = (rng.standard_t(3, size=(40, 128)) * scale).astype(np.float32)
    amax = np.abs(values).max(axis=1, keepdims=True)
    codes, scales = e4m3.quantize(torch.from_numpy(values), torch.from_numpy(amax))
    products = values * (np.float32(448) / amax)
    assert products.dtype == np.float32
    expected = [round_to_code(float(p)) for p in products.flat]
    assert codes.view(torch.uint8).flatten().tolist() == expected
    assert np.array_equal(scales.numpy(), amax / np.float32(448))


def test_products_next_to_halfway_values_round_as_in_fp32() -> None:
    """Where the last bit of 448 / amax, and of the product with it, decides the code."""
    rng = np.random.default_rng(8)
    middles = [(low + high) / 2 for low, high in itertools.pairwise(MAGNITUDES)]
    amax = rng.uniform(0.5, 2, size=(2000, 1)).astype(np.float32)
    chosen = rng.choice(middles, size=(2000, 8))
    values = (chosen * amax.astype(float) / 448).astype(np.float32)
    values = np.concatenate([np.nextafter(values, np.float32(0)), values], axis=1)
    codes, _ = e4m3.quantize(torch.from_numpy(values), torch.from_numpy(amax))
    expected = [round_to_code(float(p)) for p in (values * (np.float32(448) / amax)).flat]
    assert codes.view(torch.uint8).flatten().tolist() == expected


def test_blocks_of_zeros_and_of_vanishing_values_are_zero() -> None:
    smallest = torch.tensor([[e4m3.SMALLEST_AMAX, 0.0]])
    below = torch.tensor([[np.nextafter(np.float32(e4m3.SMALLEST_AMAX), np.float32(0)), 0.0]])
    values = torch.cat([torch.zeros(1, 2), smallest, below, torch.tensor([[1e-40, -1e-40]])])
    codes, scale = e4m3.quantize(values, values.abs().amax(-1, keepdim=True))
    assert codes.float().tolist() == [[0, 0], [448, 0], [0, 0], [0, 0]]
    assert (scale.flatten() > 0).tolist() == [False, True, False, False]


def test_nan_is_never_hidden() -> None:
    values = torch.tensor([[1.0, math.nan, 2.0]])
    for amax in (math.nan, 2.0):  # whether or not the block's maximum notices the NaN
        codes = e4m3.quantize(values, torch.tensor([[amax]]))[0]
        assert codes.float()[0, 1].isnan()


@pytest.mark.gpu
def test_the_gpu_rounds_to_the_same_codes() -> None:
    middles = torch.tensor([(a + b) / 2 for a, b in itertools.pairwise(MAGNITUDES)])
    up, down = (torch.full_like(middles, sign * math.inf) for sign in (1, -1))
    values = torch.cat([middles, middles.nextafter(up), middles.nextafter(down)])
    values = torch.cat([values, -values, torch.tensor([464.0, 1e9, math.inf, math.nan])])
    amax = torch.tensor([448.0])
    found = e4m3.quantize(values.cuda(), amax.cuda())[0].cpu()
    assert found.view(torch.uint8).tolist()[:-1] == codes_of(values)[:-1]
    assert found[-1].float().isnan()
