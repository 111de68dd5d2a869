"""What the kernel computes, in plain torch: in full precision, and with the kernel's own rounding.

One function per op. Everything runs on the device of its inputs, expert by expert, so that a whole
layer never needs fp32 copies of all experts. Names: B tokens, H hidden, N intermediate, E experts.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping

import torch
from torch import Tensor

from monomoe_gen import e4m3
from monomoe_gen.shapes import SCALE_BLOCK, Shape

ExpertWeights = Callable[[int], tuple[Tensor, Tensor]]
"""Gives ``(w13 [2N, H], w2 [H, N])`` of an expert, in any float type; gate rows first in w13."""

ByExpert = Tensor | Mapping[int, Tensor]
"""One tensor per expert: a tensor's first dimension, or a mapping that holds the active ones."""

GELU_LINEAR = 2 * math.sqrt(2 / math.pi)
GELU_CUBIC = 0.044715


def router_logits(x: Tensor, router: Tensor, shape: Shape) -> Tensor:
    """x bf16 ``[B, H]`` @ router bf16 ``[E, H]`` ^T -> ``[B, E]`` in the shape's ``logits_dtype``.

    The same bits as a kernel that has the router inside: exact products, added in fp32 in the order
    that `templates/ops/router.cuh` fixes, whatever the schedule; one rounding to bf16 where logits
    are bf16.
    """
    warps, lanes, columns = 8, 32, 8
    missing = -x.shape[1] % (warps * lanes * columns)
    x, router = (torch.nn.functional.pad(t.float(), (0, missing)) for t in (x, router))
    split = (-1, warps, lanes, columns)
    experts = router.unflatten(-1, split)
    rows = []
    for row in x:  # one at a time: the products of all would not fit
        products = row.unflatten(-1, split) * experts
        sums = torch.zeros(products.shape[0], warps, lanes, device=x.device)
        for i in range(products.shape[1]):
            for column in range(columns):
                sums = sums + products[:, i, :, :, column]
        while sums.shape[-1] > 1:
            sums = sums[..., ::2] + sums[..., 1::2]
        total = torch.zeros_like(sums[:, 0, 0])
        for warp in range(warps):
            total = total + sums[:, warp, 0]
        rows.append(total)
    logits = torch.stack(rows) if rows else x.new_empty(0, router.shape[0])
    return logits.to(torch.bfloat16 if shape.logits_dtype == "bfloat16" else torch.float32)


def router_scores(logits: Tensor, scoring: str) -> Tensor:
    """``[..., E]`` logits -> fp32 scores, defined for every input and correctly rounded.

    A NaN logit scores 0. In a softmax, infinite logits share all the weight equally, and so do
    logits that are all -inf; a token with NaN logits only scores 0 everywhere. A sigmoid below the
    smallest normal fp32 number (of logits below -87.3) is 0.
    """
    # float64, so that equal logits have equal scores wherever they stand in a vectorised loop
    wide = logits.double()
    if scoring == "sigmoid":
        scores = wide.sigmoid().nan_to_num(nan=0.0)
        scores = scores.masked_fill(scores < torch.finfo(torch.float32).tiny, 0.0)
    else:
        number = wide.nan_to_num(nan=-torch.inf, posinf=torch.inf, neginf=-torch.inf)
        largest = number.amax(-1, keepdim=True)
        shares = torch.where(number == largest, 1.0, (number - largest).exp())
        shares = shares.masked_fill(wide.isnan(), 0.0)
        scores = shares / shares.sum(-1, keepdim=True).clamp(min=torch.finfo(wide.dtype).tiny)
    return scores.float()


def rank_experts(values: Tensor, shape: Shape) -> Tensor:
    """The experts that ``shape`` picks by the fp32 ranking ``values [B, E]``: int64 ``[B, top_k]``.

    Best first; the lowest id wins ties; NaN counts as -inf and ties with it; -0 equals +0. With
    groups of experts only the ``topk_group`` groups with the largest sum of their two best values
    take part; a sum of +inf and -inf is NaN and counts as -inf too.
    """
    values = _numbers(values)
    keys = _order(values)
    if shape.n_group > 1:
        size = shape.group_experts
        best = values.unflatten(-1, (shape.n_group, size)).topk(2, -1).values
        groups = _descending(_order(_numbers(best.sum(-1))))[..., : shape.topk_group]
        out = torch.ones(*keys.shape[:-1], shape.n_group, dtype=torch.bool, device=keys.device)
        out.scatter_(-1, groups, False)
        keys = keys.masked_fill(out.repeat_interleave(size, -1), torch.iinfo(keys.dtype).min)
    return _descending(keys)[..., : shape.top_k]


def route(logits: Tensor, bias: Tensor | None, shape: Shape) -> tuple[Tensor, Tensor]:
    """Router logits ``[B, E]`` -> experts int64 ``[B, top_k]``, best first, and fp32 weights.

    ``bias`` fp32 ``[E]`` is added to the scores for ranking only. Without it, a softmax ranks by
    the logits themselves. Weights whose sum is zero stay zero when renormalised.

    A NaN logit weighs nothing, and for ranking its value is -inf. Only a softmax with a bias ranks
    it by its score, which is 0, plus the bias, unless all logits of the token are NaN.
    """
    scores = router_scores(logits, shape.scoring)
    if bias is None and shape.scoring == "softmax":
        ranking = logits.float()
    else:
        lost = logits.isnan()
        if shape.scoring == "softmax":
            lost = lost.all(-1, keepdim=True)
        ranking = scores.masked_fill(lost, -torch.inf)
        ranking = ranking if bias is None else ranking + bias
    ids = rank_experts(ranking, shape)
    if shape.renormalize and shape.scoring == "softmax":
        # the same as dividing by the sum, but defined however little the chosen experts score
        return ids, router_scores(logits.gather(-1, ids), "softmax") * shape.routed_scaling_factor
    weights = scores.gather(-1, ids)
    if shape.renormalize:
        total = weights.sum(-1, keepdim=True)
        weights = weights / total.masked_fill(total == 0, 1.0)
    return ids, weights * shape.routed_scaling_factor


def assign(logits: Tensor, bias: Tensor | None, shape: Shape) -> tuple[Tensor, Tensor]:
    """`route`, and the shared experts behind: ids and weights ``[B, top_k + shared_experts]``.

    ``logits`` is ``[B, E]``, or ``[B, E + 1]`` with the gate of the shared experts in the last
    column. Each of them weighs 1, or the sigmoid of the gate; a NaN gate weighs nothing.
    """
    ids, weights = route(logits[:, : shape.experts], bias, shape)
    if not shape.shared_experts:
        return ids, weights
    shared = torch.tensor(shape.shared_ids, device=ids.device).expand(len(ids), -1)
    gate = weights.new_ones(len(ids), 1)
    if shape.shared_gate:
        gate = router_scores(logits[:, shape.experts :], "sigmoid")
    return torch.cat([ids, shared], -1), torch.cat([weights, gate.expand(shared.shape)], -1)


def quantize_activations(x: Tensor) -> tuple[Tensor, Tensor]:
    """``[..., K]`` -> e4m3 ``[..., K]`` and fp32 scales ``[..., K/128]``, see `e4m3.quantize`."""
    blocks = x.float().unflatten(-1, (-1, SCALE_BLOCK))
    codes, scale = e4m3.quantize(blocks, blocks.abs().amax(-1, keepdim=True))
    return codes.flatten(-2), scale.squeeze(-1)


def round_activations(x: Tensor, shape: Shape) -> tuple[Tensor, Tensor]:
    """``[..., K]`` as ``shape``'s kernels multiply it: values and fp32 scales ``[..., K/128]``.

    By default e4m3 as `quantize_activations` gives it; where activations are not quantized, bf16
    and scales of one.
    """
    if shape.activations == "fp8":
        return quantize_activations(x)
    ones = torch.ones(*x.shape[:-1], x.shape[-1] // SCALE_BLOCK, device=x.device)
    return x.bfloat16(), ones


def activate(gate: Tensor, up: Tensor, shape: Shape) -> Tensor:
    """``activation(gate) * up`` of the clamped values."""
    gate, up = clamp_gate_up(gate, up, shape)
    return activation(gate, shape) * up


def clamp_gate_up(gate: Tensor, up: Tensor, shape: Shape) -> tuple[Tensor, Tensor]:
    """At most ``swiglu_limit`` for the gate, and at least its negative too for up; NaN stays NaN.

    As in ``Expert.forward`` of DeepSeek-V4 (inference/model.py beside its weights), where 0 is no
    limit, and as gpt-oss clamps (gpt_oss/torch/model.py).
    """
    limit = shape.swiglu_limit
    return (gate.clamp(max=limit), up.clamp(-limit, limit)) if limit else (gate, up)


def activation(gate: Tensor, shape: Shape) -> Tensor:
    """``silu(gate)``, or gelu with tanh for erf (Hendrycks and Gimpel, arXiv:1606.08415).

    ``(1 + tanh(z)) / 2`` is ``sigmoid(2z)``, which keeps its accuracy where tanh(z) is near -1.
    """
    if shape.activation == "silu":
        return torch.nn.functional.silu(gate)
    return gate * (GELU_LINEAR * gate * (1 + GELU_CUBIC * gate * gate)).sigmoid()


def block_matmul(x: Tensor, x_scale: Tensor, w: Tensor, w_scale: Tensor) -> Tensor:
    """``x [T, K] @ w[R, K]^T`` of e4m3 or bf16 operands -> fp32 ``[T, R]``.

    Products are summed in fp32 within each 128 columns, then scaled by ``x_scale [T, K/128]`` and
    ``w_scale [R/128, K/128]``, then summed in fp32. Operands may come as any wider float type.
    """
    # Operands are exact in TF32 and bf16, so a reduced matmul precision changes nothing here.
    x_blocks = x.float().unflatten(-1, (-1, SCALE_BLOCK)).transpose(0, 1)
    w_blocks = w.float().unflatten(-1, (-1, SCALE_BLOCK)).permute(1, 2, 0)
    scale = x_scale.T[:, :, None] * w_scale.repeat_interleave(SCALE_BLOCK, 0).T[:, None, :]
    return (x_blocks @ w_blocks * scale).sum(0)


def moe_fp32(
    x: Tensor, logits: Tensor, experts: ExpertWeights, bias: Tensor | None, shape: Shape
) -> Tensor:
    """The operator without any quantization of its own: x ``[B, H]`` -> fp32 ``[B, H]``.

    ``experts`` gives the weights to use, dequantized or never quantized; it is called once per
    active expert, in ascending order. Sums are taken in float64, so the result is exact to fp32
    whatever the matmul precision settings are.
    """
    y = torch.zeros(x.shape, dtype=torch.float64, device=x.device)
    for expert, tokens, weights in active_experts(*assign(logits, bias, shape)):
        w13, w2 = experts(expert)
        gate, up = (x[tokens].double() @ w13.double().T).chunk(2, -1)
        y[tokens] += weights.double() * (activate(gate, up, shape) @ w2.double().T)
    return y.float()


def moe_mirror(
    x: Tensor,
    logits: Tensor,
    w13: ByExpert,
    w13_scale: ByExpert,
    w2: ByExpert,
    w2_scale: ByExpert,
    bias: Tensor | None,
    shape: Shape,
) -> Tensor:
    """The operator with the kernel's rounding points: x bf16 ``[B, H]`` -> bf16 ``[B, H]``.

    x is quantized per token and 128 columns; h is fp32, quantized the same way; all sums are fp32;
    the sum over experts runs in ascending order, where a kernel's has the order of its list and of
    its down groups; the result is rounded once. With bf16 activations x enters as it is, and h is
    rounded to bf16.
    """
    y = torch.zeros(x.shape, dtype=torch.float32, device=x.device)
    for expert, tokens, weights, h in mirror_hidden(x, logits, w13, w13_scale, bias, shape):
        values, scale = round_activations(h, shape)
        y[tokens] += weights * block_matmul(values, scale, w2[expert], w2_scale[expert])
    return y.bfloat16()


def mirror_hidden(
    x: Tensor,
    logits: Tensor,
    w13: ByExpert,
    w13_scale: ByExpert,
    bias: Tensor | None,
    shape: Shape,
) -> Iterator[tuple[int, Tensor, Tensor, Tensor]]:
    """`active_experts` with what `moe_mirror` is about to round: h fp32 ``[T, N]``."""
    values, scale = round_activations(x, shape)
    values = values.float()
    for expert, tokens, weights in active_experts(*assign(logits, bias, shape)):
        up_rows = block_matmul(values[tokens], scale[tokens], w13[expert], w13_scale[expert])
        gate, up = up_rows.chunk(2, -1)
        yield expert, tokens, weights, activate(gate, up, shape)


def active_experts(ids: Tensor, weights: Tensor) -> Iterator[tuple[int, Tensor, Tensor]]:
    """Every active expert in ascending order, its tokens ``[T]`` and their weights ``[T, 1]``."""
    for expert in ids.unique().tolist():
        tokens, slots = (ids == expert).nonzero(as_tuple=True)
        yield expert, tokens, weights[tokens, slots, None]


def _numbers(values: Tensor) -> Tensor:
    """``values`` with -inf in place of NaN."""
    return values.masked_fill(values.isnan(), -torch.inf)


def _order(values: Tensor) -> Tensor:
    """int64 keys that order fp32 values, none of them NaN, as numbers."""
    bits = values.view(torch.int32).long()
    return torch.where(bits < 0, -(2**31) - bits, bits)  # minus the magnitude; 0 for -0


def _descending(keys: Tensor) -> Tensor:
    """Indices that sort the last dimension, largest first, lowest index first among equals."""
    return keys.sort(dim=-1, descending=True, stable=True).indices
