"""Arithmetic: inputs of the probes, and what numpy and torch make of them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from probes import Array, Column, Probe, spacing


def bits(values: Sequence[float] | Array) -> Array:
    return np.asarray(values, np.float32).view(np.uint32)


def neighbours(values: Array) -> Array:
    """The fp32 values, the halves between them, and the floats next to each, of both signs."""
    halves = (values[1:].astype(np.float64) + values[:-1]) / 2
    points = np.concatenate([values, halves.astype(np.float32)])
    up, down = (np.nextafter(points, np.float32(end)) for end in (np.inf, -np.inf))
    points = np.concatenate([points, up, down])
    return np.concatenate([points, -points])


E4M3 = torch.arange(256, dtype=torch.int32).to(torch.uint8).view(torch.float8_e4m3fn)
E4M3_VALUES = E4M3.float().numpy()
SPECIAL = np.concatenate(
    [
        np.array([0.0, -0.0, np.inf, -np.inf, 448.0, 464.0, 480.0, 1e9, -1e9], np.float32),
        np.array([0x7F800001, 0x7FFFFFFF, 0xFFC00000, 0x7F7FFFFF, 1], np.uint32).view(np.float32),
    ]
)


def to_e4m3(values: Array) -> Array:
    """Round to nearest even, saturating; NaN is 0x7f."""
    codes = torch.from_numpy(values).clamp(-448, 448).to(torch.float8_e4m3fn).view(torch.uint8)
    return np.where(np.isnan(values), 0x7F, codes.numpy()).astype(np.uint32)


def to_bf16(values: Array) -> Array:
    words = torch.from_numpy(values).bfloat16().view(torch.int16).numpy().view(np.uint16)
    return np.where(np.isnan(values), 0x7FFF, words).astype(np.uint32)


def bytes_of(words: Array) -> Array:
    """``[n]`` words -> ``[n, 4]`` bytes, the low one first."""
    return words.astype("<u4").view(np.uint8).reshape(-1, 4)


def words(random: np.random.Generator) -> Probe:
    every_code = np.arange(1, 256, dtype=np.uint32) * 0x01010101
    a = np.concatenate(
        [
            every_code,
            np.arange(256, dtype=np.uint32) << 8 | 1,  # 00 too, and every code beside another one
            bits(SPECIAL[2:]),
            np.uint32(1) << np.arange(32, dtype=np.uint32),
            random.integers(1, 2**32, 2000, np.uint32),
        ]
    )
    b = random.permutation(a)
    code = bytes_of(a)
    half = E4M3.half().numpy()
    columns = (
        Column("bits_to_float and back", a),
        Column("count_bits", np.array([int(w).bit_count() for w in a], "u4")),
        Column("lowest_bit", np.array([(int(w) & -int(w)).bit_length() - 1 for w in a], "u4")),
        Column("maximum", np.maximum(a, b)),
        Column("bf16_to_float", b << np.uint32(16)),
        Column("bf16x2_to_float, first", a << np.uint32(16)),
        Column("bf16x2_to_float, second", a & np.uint32(0xFFFF0000)),
        Column("e4m3x4_to_half, first two", half[code[:, :2].ravel()]),
        Column("e4m3x4_to_half, last two", half[code[:, 2:].ravel()]),
        *(Column(f"e4m3x4_to_bf16, {i}", E4M3_VALUES[code[:, i]]) for i in range(4)),
        Column("minimum", np.minimum(a, b)),
    )
    functions = ("bits_to_float(u32)", "float_to_bits(float)", "count_bits(u32)", "lowest_bit(u32)")
    functions += ("maximum(u32, u32)", "minimum(u32, u32)", "bf16_to_float(Bf16)")
    functions += ("bf16x2_to_float(u32)", "e4m3x4_to_half(u32)", "e4m3x4_to_bf16(u32)")
    return Probe("words", functions, len(a), np.stack([a, b], 1), columns)


def floats(random: np.random.Generator) -> Probe:
    codes = neighbours(E4M3_VALUES[:127])
    halves = np.concatenate([np.arange(0, 0x7F80, 37), np.arange(0x7F70, 0x7F80)])
    bf16 = neighbours((halves.astype(np.uint32) << np.uint32(16)).view(np.float32))
    noise = random.integers(0, 2**32, 2000, np.uint32).view(np.float32)
    gaussian = (random.standard_normal(2000) * 100).astype(np.float32)
    a = np.concatenate([E4M3_VALUES, SPECIAL, codes, bf16, noise, gaussian])
    rows = np.stack([a, *(random.permutation(a) for _ in range(3))], 1)
    a, b = rows[:, 0].copy(), rows[:, 1].copy()
    packed = sum(to_e4m3(rows[:, i].copy()) << np.uint32(8 * i) for i in range(4))
    magnitude = rows.view(np.uint16).reshape(-1, 8) & 0x7FFF
    free = np.zeros(len(a))  # which of two zeros, and which NaN, is nobody's promise
    columns = (
        Column("absolute", np.abs(a)),
        Column("maximum", np.fmax(a, b), free),
        Column("minimum", np.fmin(a, b), free),
        Column("float_to_bf16", to_bf16(a)),
        Column("float_to_e4m3x4", np.asarray(packed, np.uint32)),
        Column("bf16x8_absolute_max", magnitude.max(1).astype("u4")),
    )
    functions = ("absolute(float)", "maximum(float, float)", "minimum(float, float)")
    functions += ("float_to_bf16(float)", "float_to_e4m3x4(float, float, float, float)")
    functions += ("bf16x8_absolute_max(U32x4)",)
    return Probe("floats", functions, len(a), rows.view(np.uint32), columns)


def quotients(random: np.random.Generator) -> Probe:
    """Normal dividends, divisors up to 2^126 and normal quotients; and scales, as the kernel makes.

    `divide_fast` may be off by 2 units (CUDA C++ Programming Guide, intrinsic functions).
    """
    amax = np.arange(0x0400, 0x7E80, 5, dtype=np.uint32) << np.uint32(16)  # bf16 from 2^-119
    amax = amax.view(np.float32)
    most = np.full_like(amax, 448)
    exponents = random.integers(-60, 60, (4000, 2))
    drawn = (random.uniform(1, 2, (4000, 2)) * 2.0**exponents).astype(np.float32)
    drawn *= random.choice([-1, 1], drawn.shape).astype(np.float32)
    near = random.integers(0x3F800000, 0x40000000, (4000, 2), np.uint32).view(np.float32)
    a = np.concatenate([amax, most, drawn[:, 0], near[:, 0], [1, 3]]).astype(np.float32)
    b = np.concatenate([most, amax, drawn[:, 1], near[:, 1], [1, 2.0**126]]).astype(np.float32)
    a, b = a[np.abs(a / b) >= 2.0**-126], b[np.abs(a / b) >= 2.0**-126]
    columns = (
        Column("divide_rounded", a / b),
        Column("divide_fast", a / b, 2 * spacing(a / b)),
    )
    functions = ("divide_rounded(float, float)", "divide_fast(float, float)")
    return Probe("quotients", functions, len(a), bits(np.stack([a, b], 1)), columns)


def exponentials(random: np.random.Generator) -> Probe:
    """`exponential_fast` may be off by 2 + 1.173 |x| units (the same guide).

    Half a unit more, because what is expected is rounded itself.
    """
    x = np.concatenate(
        [
            np.linspace(-103, 88, 5000),
            random.uniform(-1, 1, 2000),
            [0.0, -0.0, 1.0, np.inf, -np.inf, np.nan, 200.0, -200.0, 2.0**-30],
        ]
    ).astype(np.float32)
    with np.errstate(over="ignore", under="ignore"):
        expected = np.exp(x.astype(np.float64)).astype(np.float32)
    with np.errstate(invalid="ignore"):
        allowed = (2.5 + 1.173 * np.abs(x)) * spacing(expected)
    column = Column("exponential_fast", expected, np.where(np.isfinite(allowed), allowed, 0))
    return Probe("exponentials", ("exponential_fast(float)",), len(x), bits(x), (column,))


def exact_products(random: np.random.Generator, cases: int) -> tuple[Array, Array, Array]:
    """Codes ``[cases, 16, 16]``, ``[cases, 16, 8]`` and ``d`` whose sums need at most 22 bits.

    Products and ``d`` are multiples of one unit, and their magnitudes add up to less than 2^22
    units, so no way to add them rounds. Among them subnormals and the largest codes.
    """
    unit = random.choice(2.0 ** np.array([-9, -6, 0, 3, 5]), (cases, 2, 1, 1))
    most = np.where(unit == 32, 14, np.where(unit == 2.0**-9, 7, 15))
    draw = [
        random.integers(-most[:, i], most[:, i], (cases, 16, n), endpoint=True)
        for i, n in ((0, 16), (1, 8))
    ]
    a, b = (to_e4m3((v * unit[:, i]).astype(np.float32)) for i, v in enumerate(draw))
    d = random.integers(-(2**20), 2**20, (cases, 16, 8)) * unit[:, 0] * unit[:, 1]
    d[::4] = 0
    return a, b, d.astype(np.float32)


def lanes(d: Array) -> Array:
    """``[cases, 16, 8]`` as the lanes hold it: ``[cases, 32, 4]``."""
    g, q = np.arange(32) // 4, np.arange(32) % 4
    rows, columns = np.stack([g, g, g + 8, g + 8], 1), np.stack([2 * q, 2 * q + 1] * 2, 1)
    return np.ascontiguousarray(d[:, rows, columns])


def fragments(a: Array, b: Array, d: Array) -> Array:
    """Every lane's inputs of ``d += a @ b``: uint32 ``[cases, 32, 8]``."""
    g, q = np.arange(32) // 4, np.arange(32) % 4
    k = (2 * q[:, None] + np.array([0, 1, 8, 9])).astype(int)  # the codes of a word
    shifts = np.array([0, 8, 16, 24], np.uint32)
    low, high = (a[:, rows[:, None], k] << shifts for rows in (g, g + 8))
    right = b[:, k, g[:, None]] << shifts
    codes = [part.astype(np.uint32).sum(-1, dtype=np.uint32) for part in (low, high, right)]
    inputs = np.stack([*codes, np.zeros_like(codes[0])], -1)
    return np.concatenate([inputs, lanes(d).view(np.uint32)], -1)


def products(random: np.random.Generator) -> Probe:
    """Exact sums bit for bit but for the sign of zero, NaN codes included; and random codes.

    How the tensor core adds inexact sums is not documented. If it keeps 24 bits of the largest of
    the 17 terms and of the result, truncating, the error is below 2^-18 of the sum of all
    magnitudes. The host rounds once.
    """
    exact, drawn = exact_products(random, 96), random_products(random, 96)
    a, b, d = (np.concatenate([x, y]) for x, y in zip(exact, drawn, strict=True))
    a[5, 3, 7] = a[40, 0, 0] = 0x7F
    b[6, 2, 1] = b[41, 15, 7] = 0xFF
    wide_a, wide_b, wide_d = (v.astype(float) for v in (E4M3_VALUES[a], E4M3_VALUES[b], d))
    size = np.nan_to_num(np.abs(wide_d) + np.abs(wide_a) @ np.abs(wide_b))
    expected = lanes((wide_d + wide_a @ wide_b).astype(np.float32)).reshape(2, -1)
    allowed = lanes(size * 2.0**-18).reshape(2, -1)
    columns = (
        Column("exact sums", expected[0], 0 * allowed[0]),
        Column("random codes", expected[1], allowed[1]),
    )
    functions = ("mma_16x8x16(float (&)[4], u32, u32, u32, u32, u32, u32)",)
    return Probe("products", functions, len(a), fragments(a, b, d), columns)


def random_products(random: np.random.Generator, cases: int) -> tuple[Array, Array, Array]:
    finite = np.array([code for code in range(256) if code & 0x7F != 0x7F], np.uint32)
    d = random.standard_normal((cases, 16, 8)) * 10.0 ** random.integers(-2, 5, (cases, 1, 1))
    a, b = (random.choice(finite, (cases, 16, n)) for n in (16, 8))
    return a, b, d.astype(np.float32)


def wide_products(random: np.random.Generator) -> Probe:
    """`products` of bf16: b and d are far beyond the range of fp16 in half of the cases."""
    exact, drawn = exact_products(random, 64), random_products(random, 64)
    a, b, d = (np.concatenate([x, y]) for x, y in zip(exact, drawn, strict=True))
    scale = np.where(np.arange(len(a)) % 2, 2.0**60, 2.0**-50)[:, None, None]
    wide_a, wide_b, wide_d = E4M3_VALUES[a], E4M3_VALUES[b] * scale, d * scale
    exact_d = (wide_d + wide_a.astype(float) @ wide_b).astype(np.float32)
    expected = lanes(exact_d).reshape(2, -1)
    size = lanes(np.abs(wide_d) + np.abs(wide_a) @ np.abs(wide_b)).reshape(2, -1)
    columns = (
        Column("exact sums of bf16", expected[0], 0 * size[0]),
        Column("random bf16", expected[1], size[1] * 2.0**-18),
    )
    g, q = np.arange(32) // 4, np.arange(32) % 4
    low, high = 2 * q[:, None] + np.array([0, 1]), 2 * q[:, None] + np.array([8, 9])
    rows = [wide_a[:, r[:, None], k] for k in (low, high) for r in (g, g + 8)]
    rows += [wide_b[:, k, g[:, None]] for k in (low, high)]
    pairs = [to_bf16(np.ascontiguousarray(v, np.float32)) << np.array([0, 16], "u4") for v in rows]
    words = [pair.sum(-1, dtype=np.uint32) for pair in pairs]
    inputs = np.stack([*words, *[np.zeros_like(words[0])] * 2], -1)
    starts = lanes(wide_d.astype(np.float32)).view(np.uint32)
    functions = ("mma_bf16_16x8x16(float (&)[4], u32, u32, u32, u32, u32, u32)",)
    return Probe("wide_products", functions, len(a), np.concatenate([inputs, starts], -1), columns)
