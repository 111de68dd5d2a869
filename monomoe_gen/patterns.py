"""How tokens choose experts, as logits: the raw material of a rotation of launches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from monomoe_gen.shapes import Shape

_TIE_LEVELS = (-1.0, 0.5, 2.0)  # all sums of two scores differ, so groups tie exactly or not at all


def preferences(
    shape: Shape, tokens: int, routing: str, launch: int, generator: torch.Generator
) -> Tensor:
    """fp32 ``[tokens, experts]``: how much each token wants each expert, under provisional names.

    See `workload.rotation` for the kinds of ``routing``. For ``ties`` these are the logits.
    """
    size = (tokens, shape.experts)
    if routing == "uniform":
        return torch.randn(size, generator=generator)
    if routing == "zipf":
        rank = 1 + torch.randperm(shape.experts, generator=generator)
        gumbel = -torch.empty(size).exponential_(generator=generator).log()
        return gumbel - rank.log()
    if routing == "ties":
        low, middle, high = _TIE_LEVELS
        wants = torch.full(size, low)
        for row in wants:
            order = torch.randperm(shape.experts, generator=generator)
            above = int(torch.randint(shape.top_k, (), generator=generator))
            row[order[:above]] = high
            row[order[above : above + 2 * shape.top_k]] = middle
        return wants
    wants = 0.5 * torch.rand(size, generator=generator) - 0.25
    deals = _deal(shape, launch)
    hand = next(deals)
    for row in wants:
        row[hand] += 1.5 + 1.5 * torch.rand(shape.top_k, generator=generator)
        if routing == "disjoint":
            hand = next(deals)
    return wants


def captured_preferences(ids: Tensor, shape: Shape, generator: torch.Generator) -> Tensor:
    """As `preferences` fp32 ``[tokens, experts]``, of tokens that pick ``ids [tokens, top_k]``."""
    size = (len(ids), shape.experts)
    wants = 0.5 * torch.rand(size, generator=generator) - 0.25
    lift = 1.5 + 1.5 * torch.rand(ids.shape, generator=generator)
    return wants.scatter_add_(-1, ids, lift)


def _deal(shape: Shape, start: int) -> Iterator[list[int]]:
    """Hands out ``top_k`` experts at a time, from ``topk_group`` groups that change every time.

    An expert comes again only after all others of its group.
    """
    size = shape.group_experts
    dealt = [0] * shape.n_group
    while True:
        hand = []
        for i in range(shape.top_k):
            group = (start * shape.topk_group + i % shape.topk_group) % shape.n_group
            hand.append(group * size + dealt[group] % size)
            dealt[group] += 1
        yield hand
        start += 1


def fresh_names(shape: Shape, used: Sequence[Tensor], generator: torch.Generator) -> list[Tensor]:
    """Per launch, the new id of every expert: used experts get the ids that rested longest.

    Each group has a random cyclic order of its ids. A launch takes the next ids in it; the steps
    are stretched so that the last launch ends where the first began.
    """
    size = shape.group_experts
    names = [torch.empty(shape.experts, dtype=torch.int64) for _ in used]
    for first in range(0, shape.experts, size):
        order = first + torch.randperm(size, generator=generator)
        members = torch.arange(first, first + size)
        here = [torch.isin(members, ids) for ids in used]
        total = sum(int(mask.sum()) for mask in here)
        slack = -total % size
        taken = 0
        for i, (name, mask) in enumerate(zip(names, here, strict=True)):
            ids = order.roll(-(taken + slack * i // len(used)))
            name[torch.cat([members[mask], members[~mask]])] = ids
            taken += int(mask.sum())
    return names


def expert_bias(shape: Shape, generator: torch.Generator) -> Tensor | None:
    """An expert bias that changes the ranking but leaves room for any score within (0, 1)."""
    if not shape.expert_bias:
        return None
    bias = torch.rand(shape.experts, generator=generator) - 0.5
    if shape.scoring == "sigmoid":
        return 0.2 * bias
    return 0.2 * (bias - bias.mean()) / shape.experts  # scores of a softmax stay a sum of 1


def ranking(wants: Tensor, shape: Shape) -> Tensor:
    """The values, increasing with ``wants``, that the shape's policy is to rank by."""
    if not shape.expert_bias:
        return wants
    if shape.scoring == "sigmoid":
        return 0.45 + 0.25 * (wants / 2).tanh()
    return (wants.softmax(-1) + 1 / shape.experts) / 2


def logits(wants: Tensor, chosen: Tensor, bias: Tensor | None, shape: Shape) -> Tensor:
    """fp32 logits, exact in the shape's type, that rank by `ranking` and pick ``chosen``.

    The chosen experts are lifted by a margin that no rounding closes, neither here nor in a kernel.
    """
    values = ranking(wants, shape)
    picked = torch.zeros_like(values).scatter_(-1, chosen, 1.0)
    if bias is None:
        result = values + 0.25 * picked
    elif shape.scoring == "sigmoid":
        result = (values + 0.1 * picked - bias).logit()
    else:
        values = values + picked / shape.experts
        result = (values / values.sum(-1, keepdim=True) - bias).log()
    return result.to(getattr(torch, shape.logits_dtype)).float()
