"""What a kernel computes in the simulator, bit for bit: its sums, in the order of its schedule.

`reference.moe_mirror` rounds where kernels round and adds as torch likes. A kernel adds in an order
that its schedule fixes (`templates/README.md`, "How the work is dealt"), whoever comes first. Here
the same order is written down once more, over whole tensors, with nothing of the kernel's indexing.

fp32 operations are rounded one by one, none is fused, and exponentials and quotients are correctly
rounded. The 16 products of an MMA, all of e4m3 or bf16 values, are added in fp64 (exactly, but for
bf16 values of very different size) and then to the running sum with one rounding to fp32. That is
the simulator's arithmetic; a GPU's differs in the last bits.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from monomoe_gen.reference import GELU_CUBIC, GELU_LINEAR, rank_experts, round_activations
from monomoe_gen.schedule import COLUMNS, MMA_WARPS, KernelSpec
from monomoe_gen.shapes import SCALE_BLOCK, Shape

Floats = NDArray[np.float32]
_ZERO, _ONE = np.float32(0), np.float32(1)

# The columns of a block that meet in each of its 8 MMAs: ``64c + 16q + 8p + 4i + 0 ... 3`` of every
# q in MMA ``4c + 2p + i``.
_MMAS = np.arange(SCALE_BLOCK).reshape(2, 4, 2, 2, 4).transpose(0, 2, 3, 1, 4).reshape(8, 16)


def moe_sums(
    spec: KernelSpec,
    x: Tensor,
    logits: Tensor,
    w13: Tensor,
    w13_scale: Tensor,
    w2: Tensor,
    w2_scale: Tensor,
    bias: Tensor | None,
) -> Tensor:
    """What ``spec``'s kernel rounds to bf16: x bf16 ``[B, H]`` -> fp32 ``[B, H]``, all on the CPU.

    ``logits`` is ``[B, E]`` in bf16 or fp32, ``bias`` fp32 ``[E]`` or None; weights are e4m3 ``[E,
    2N, H]`` and ``[E, H, N]`` with fp32 scales, as in a checkpoint.
    """
    shape, geometry = spec.shape, spec.geometry
    parts_up = _parts(spec.schedule.k_up, shape.hidden)
    parts_down = _parts(spec.schedule.k_down, shape.intermediate)
    biases = None if bias is None else bias.numpy()
    ids, weights, best = _assign(logits.float().numpy(), biases, shape)
    values, scales = round_activations(x, shape)

    # Of every active expert and each of its turns: its column blocks' shares of the output.
    turns: dict[int, list[Floats]] = {}
    for expert in np.unique(ids).tolist():
        tokens, slots = (ids == expert).nonzero()
        up = _products(values[tokens], w13[expert])
        up = up * (_by_token(scales[tokens]) * _by_row(w13_scale[expert]))
        gate, linear = np.split(_sum(_sum(up[part]) for part in parts_up), 2, axis=-1)
        h, h_scale = round_activations(torch.from_numpy(_gated(gate, linear, shape)), shape)
        down = _products(h, w2[expert])
        scale = _by_token(h_scale) * _by_row(w2_scale[expert]) * weights[tokens, slots, None]
        turns[expert] = []
        for turn in _turns(tokens):
            turns[expert].append(np.zeros((len(down), *x.shape), np.float32))
            turns[expert][-1][:, tokens[turn]] = (down * scale)[:, turn]
    # The list begins with the first turns of the leads; all others follow by expert.
    first = [turns[expert].pop(0) for expert in best[: geometry.leads].tolist()]
    terms = [*first, *(term for own in turns.values() for term in own)]

    groups, beside = [], geometry.experts_per_stage_down
    for group in range(geometry.down_groups):
        dealt = terms[group :: geometry.down_groups]
        warps = [(dealt[i::beside], part) for i in range(beside) for part in parts_down]
        sums = (_sum(term for turn in own for term in turn[part]) for own, part in warps)
        groups.append(_sum(sums))
    return torch.from_numpy(_sum(groups))


def _turns(tokens: NDArray[np.int64]) -> list[NDArray[np.bool_]]:
    """Which of an expert's tokens are multiplied together: the first of each column, the second ...

    Token t is multiplied in column ``t % 8``.
    """
    columns = tokens % COLUMNS
    turn = np.array([(columns[:i] == column).sum() for i, column in enumerate(columns)])
    return [turn == i for i in range(turn.max() + 1)]


def _parts(stage_columns: int, columns: int) -> list[slice]:
    """The column blocks of a row, by the warp's accumulator that adds them one after another.

    A stage's column blocks lie in as many accumulators, or in one of each warp where they are a
    multiple of the warps; later stages go on in the same.
    """
    blocks = stage_columns // SCALE_BLOCK
    count = MMA_WARPS if blocks % MMA_WARPS == 0 else blocks
    return [slice(first, columns // SCALE_BLOCK, count) for first in range(count)]


def _products(activations: Tensor, weights: Tensor) -> Floats:
    """Activations ``[T, K]``, e4m3 ``[R, K]`` -> products of each 128 columns ``[K/128, T, R]``.

    MMA m adds to chain ``m % 4``; the chains are added as a balanced tree.
    """
    left, right = (
        values.float().unflatten(-1, (-1, SCALE_BLOCK)).numpy()[..., _MMAS].astype(np.float64)
        for values in (activations, weights)
    )  # [rows, K/128, MMA, 16 columns]
    exact = left.transpose(1, 2, 0, 3) @ right.transpose(1, 2, 3, 0)
    sums = [np.zeros_like(exact[:, 0], np.float32) for _ in range(4)]
    for mma in range(len(_MMAS)):
        sums[mma % 4] = (sums[mma % 4] + exact[:, mma]).astype(np.float32)
    while len(sums) > 1:
        sums = [a + b for a, b in zip(sums[::2], sums[1::2], strict=True)]
    return sums[0]


def _by_token(scale: Tensor) -> Floats:
    """``[T, K/128]`` -> ``[K/128, T, 1]``."""
    return scale.T[:, :, None].numpy()


def _by_row(scale: Tensor) -> Floats:
    """``[R/128, K/128]`` -> ``[K/128, 1, R]``."""
    return scale.repeat_interleave(SCALE_BLOCK, 0).T[:, None, :].numpy()


def _sum(values: Iterable[Floats]) -> Floats:
    """One after another, from zero."""
    total = np.zeros((), np.float32)
    for value in values:
        total = total + value
    return total


# -- routing, as `templates/ops/route.cuh` adds


def _assign(
    logits: Floats, bias: Floats | None, shape: Shape
) -> tuple[NDArray[np.int64], Floats, NDArray[np.int64]]:
    """Experts ``[B, top_k + shared_experts]``, ascending, their weights; `_route`'s of token 0."""
    routed, gate = np.split(logits, [shape.experts], axis=-1)
    ids, weights, best = _route(routed, bias, shape)
    if not shape.shared_experts:
        return ids, weights, best
    shares = np.where(np.isnan(gate), _ZERO, _sigmoid(gate)) if shape.shared_gate else _ONE
    size = (len(ids), shape.shared_experts)
    shared = np.broadcast_to(np.array(shape.shared_ids), size)
    return np.hstack([ids, shared]), np.hstack([weights, np.broadcast_to(shares, size)]), best


def _route(
    logits: Floats, bias: Floats | None, shape: Shape
) -> tuple[NDArray[np.int64], Floats, NDArray[np.int64]]:
    """Experts ``[B, top_k]``, ascending, their weights, and those of token 0, best first."""
    softmax = shape.scoring == "softmax"
    top = _largest(logits)
    ranking = logits if softmax else _sigmoid(logits)
    if bias is not None:
        if softmax:
            shares = _shares(logits, top)
            ranking = _quotient(shares, _tree(_lanes(shares, 32, -1).transpose(2, 0, 1)))
        ranking = ranking + bias
    ranked = rank_experts(torch.from_numpy(ranking), shape)
    ids, best = ranked.sort(-1).values.numpy(), ranked[0].numpy()

    chosen = np.take_along_axis(logits, ids, -1)
    if not softmax:
        weights = np.where(np.isnan(chosen), _ZERO, _sigmoid(chosen))
        total = _tree([weights]) if shape.renormalize else np.full_like(top, 1)
    elif shape.renormalize:
        weights = _shares(chosen, _largest(chosen))
        total = _tree([weights])
    else:
        weights = _shares(chosen, top)
        total = _tree(_lanes(_shares(logits, top), -1, 32).transpose(1, 0, 2))
    weights = np.where(total == 0, _ZERO, _quotient(weights, total))
    return ids, weights * np.float32(shape.routed_scaling_factor), best


def _shares(logits: Floats, top: Floats) -> Floats:
    """``exp(logit - top)``; NaN has no share, equal infinities have equal ones."""
    numbers = _numbers(logits)
    with np.errstate(invalid="ignore"):
        shares = _exponential(numbers - top)
    return np.where(numbers == top, (~np.isnan(logits)).astype(np.float32), shares)


def _lanes(values: Floats, *shape: int) -> Floats:
    """``[B, n]``, filled up with zeros to a multiple of 32 and reshaped: ``[B, *shape]``."""
    filled = np.pad(values, ((0, 0), (0, -values.shape[1] % 32)))
    return filled.reshape(len(values), *shape)


def _tree(rounds: Iterable[Floats]) -> Floats:
    """Each of up to 32 lanes adds its values ``[B, lanes]``; then halves are added: ``[B, 1]``."""
    total = _lanes(_sum(rounds), 32)
    while total.shape[1] > 1:
        low, high = np.split(total, 2, axis=1)
        total = low + high
    return total


def _largest(logits: Floats) -> Floats:
    return _numbers(logits).max(-1, keepdims=True)


def _numbers(values: Floats) -> Floats:
    return np.where(np.isnan(values), np.float32(-np.inf), values)


def _sigmoid(values: Floats) -> Floats:
    return _quotient(_ONE, _ONE + _exponential(-values))


def _gated(gate: Floats, up: Floats, shape: Shape) -> Floats:
    """The activation of the gate times up, both clamped first, as `swiglu` of ops/up_proj.cuh."""
    if shape.swiglu_limit:
        limit = np.float32(shape.swiglu_limit)
        gate, up = np.minimum(gate, limit), np.clip(up, -limit, limit)
    slope = gate
    if shape.activation == "gelu_tanh":
        linear, cubic = np.float32(GELU_LINEAR), np.float32(GELU_LINEAR * GELU_CUBIC)
        slope = gate * (linear + cubic * (gate * gate))
    return _quotient(gate, _ONE + _exponential(-slope)) * up


def _quotient(a: Floats | np.float32, b: Floats) -> Floats:
    with np.errstate(invalid="ignore", divide="ignore"):
        return a / b


def _exponential(values: Floats) -> Floats:
    with np.errstate(over="ignore", under="ignore"):
        return np.exp(values.astype(np.float64)).astype(np.float32)
