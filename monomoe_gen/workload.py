"""Seeded inputs: activations, weights, and routing that keeps the weights cold.

The same arguments give the same numbers on one kind of device. Weights are drawn on the device that
asks for them, so a CPU and a GPU see different weights; everything else is drawn on the CPU.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from monomoe_gen import e4m3, patterns
from monomoe_gen.errors import MonomoeError
from monomoe_gen.reference import rank_experts, route
from monomoe_gen.routing_trace import RoutingTrace
from monomoe_gen.routings import ROUTINGS
from monomoe_gen.shapes import SCALE_BLOCK, Shape
from monomoe_gen.weights import BlockWeights, quantize_blocks

WEIGHTS = ("gaussian", "student_t3")
DISTRIBUTIONS = (*WEIGHTS, "outlier_channels", "tiny_1e-3", "tiny_1e-6", "zeros", "huge_token")

_OUTLIERS = 128  # one channel in so many, on average
_OUTLIER_SIZE = 50.0
_HUGE = 1e4
_TIE_BIAS = 0.0625  # one bias for all: equal logits then tie whatever the rounding of the scores


@dataclass(frozen=True)
class Case:
    """One combination that a kernel is validated on; ``distribution`` is the activations'."""

    routing: str
    distribution: str

    @property
    def weights(self) -> str:
        """The distribution of the weights."""
        return self.distribution if self.distribution in WEIGHTS else WEIGHTS[0]


def validation_cases() -> tuple[Case, ...]:
    """Every routing with Gaussian and with heavy tails; every other distribution once."""
    return (
        *(Case(routing, name) for routing in ROUTINGS for name in WEIGHTS),
        *(Case(ROUTINGS[0], name) for name in DISTRIBUTIONS if name not in WEIGHTS),
    )


@dataclass(frozen=True)
class Rotation:
    """Router inputs of consecutive launches, on the CPU.

    ``logits`` fp32 ``[launches, B, E]``, one column more with a shared gate, hold values that are
    exact in the shape's ``logits_dtype``; ``bias`` fp32 ``[E]`` or None belongs to all launches.
    ``active`` lists the experts of each launch in ascending order, shared ones included.

    Launch i reads copy ``i % copies`` of the layer; there is one copy unless every launch uses the
    same shared experts or the layer is small. ``reuse_bytes`` is the least number of weight bytes
    that stream between two uses of the same weights when the launches are replayed in a loop.
    """

    logits: Tensor
    bias: Tensor | None
    active: tuple[tuple[int, ...], ...]
    reuse_bytes: int
    copies: int = 1

    @property
    def distinct(self) -> list[int]:
        """The number of distinct experts of each launch."""
        return [len(experts) for experts in self.active]


def activations(shape: Shape, tokens: int, distribution: str, seed: int) -> Tensor:
    """bf16 ``[tokens, hidden]`` on the CPU; a row has RMS 1 (before rounding) unless noted.

    * ``gaussian``
    * ``student_t3``: Student's t with 3 degrees of freedom
    * ``outlier_channels``: Gaussian; about 1 in 128 channels, the same of all tokens, is 50 times
      larger
    * ``tiny_1e-3``, ``tiny_1e-6``: Gaussian of that RMS
    * ``zeros``: the first token is 0; of the others every second block of 128 columns, and half of
      what remains
    * ``huge_token``: Gaussian; the last token has RMS 10000

    Raises:
        MonomoeError: unknown distribution.
    """
    _require(distribution, DISTRIBUTIONS)
    generator = _generator("cpu", "activations", seed)
    size = (tokens, shape.hidden)
    x = _draw(size, "student_t3" if distribution == "student_t3" else "gaussian", generator)
    if distribution == "outlier_channels":
        outliers = torch.randint(_OUTLIERS, (shape.hidden,), generator=generator) == 0
        outliers[torch.randint(shape.hidden, (), generator=generator)] = True
        x[:, outliers] *= _OUTLIER_SIZE
    elif distribution == "zeros":
        x.view(tokens, -1, SCALE_BLOCK)[:, ::2] = 0
        x *= torch.randint(2, size, generator=generator)
        x[0] = 0
    x /= x.square().mean(-1, keepdim=True).sqrt().clamp(min=torch.finfo(x.dtype).tiny)
    if distribution.startswith("tiny_"):
        x *= float(distribution.removeprefix("tiny_"))
    elif distribution == "huge_token":
        x[-1] *= _HUGE
    return x.bfloat16()


def routers_for(x: Tensor, logits: Tensor) -> Tensor:
    """Routers bf16 ``[..., E, H]`` that make about ``logits [..., B, E]`` of x ``[B, H]``.

    The shortest ones, as far as the rows of x are independent. They are on the device of
    ``logits``; x is on the CPU.
    """
    inverse = torch.linalg.pinv(x.double()).to(logits.device)
    return (inverse @ logits.double()).mT.bfloat16().contiguous()


def tied_router(x: Tensor, shape: Shape, seed: int) -> Tensor:
    """Router bf16 ``[E, H]`` on the CPU with few different rows, for x ``[B, H]``.

    Experts of one row tie for every token. The logits of different rows lie far apart: sums that
    only nearly tie would be ranked by the last bit of a score, which is nobody's promise.
    """
    rows = max(1, min(16, shape.experts // 2))
    generator = _generator("cpu", "tied router", len(x), seed)
    places = torch.stack([torch.randperm(rows, generator=generator) for _ in x])
    logits = torch.linspace(-2, 2, rows)[places]
    return routers_for(x, logits)[torch.arange(shape.experts) % rows]


def router_weight(shape: Shape, seed: int) -> Tensor:
    """bf16 ``[experts, hidden]`` on the CPU: inputs of RMS 1 give logits of RMS 1."""
    generator = _generator("cpu", "router", seed)
    drawn = _draw((shape.experts, shape.hidden), "gaussian", generator)
    return (drawn / shape.hidden**0.5).bfloat16()


def expert_weights(
    shape: Shape,
    expert: int,
    distribution: str,
    seed: int,
    device: torch.device | str = "cpu",
) -> tuple[Tensor, Tensor]:
    """``(w13 [2N, H], w2 [H, N])`` of one expert in fp32, before any quantization.

    The RMS of a matrix is 1 / sqrt(its columns): inputs of RMS 1 give gate and up values of RMS 1.

    Raises:
        MonomoeError: ``distribution`` is none of `WEIGHTS`.
    """
    _require(distribution, WEIGHTS)
    generator = _generator(device, "weights", seed, expert)
    w13 = _draw((shape.up_rows, shape.hidden), distribution, generator)
    w2 = _draw((shape.hidden, shape.intermediate), distribution, generator)
    for matrix in (w13, w2):
        matrix *= (matrix.shape[1] * matrix.square().mean()).rsqrt()
    return w13, w2


def block_weights(
    shape: Shape, distribution: str, seed: int, device: torch.device | str = "cpu"
) -> BlockWeights:
    """All of a layer's `expert_weights`, quantized to blocks, in checkpoint layout on ``device``.

    Only one expert exists in fp32 at a time.
    """
    sizes = ((shape.up_rows, shape.hidden), (shape.hidden, shape.intermediate))
    codes = [
        torch.empty(shape.all_experts, *size, dtype=e4m3.E4M3, device=device) for size in sizes
    ]
    scales = [
        torch.empty(shape.all_experts, rows // SCALE_BLOCK, columns // SCALE_BLOCK, device=device)
        for rows, columns in sizes
    ]
    for expert in range(shape.all_experts):
        matrices = expert_weights(shape, expert, distribution, seed, device)
        for matrix, code, scale in zip(matrices, codes, scales, strict=True):
            code[expert], scale[expert] = quantize_blocks(matrix)
    return BlockWeights(codes[0], scales[0], codes[1], scales[1])


def rotation(
    shape: Shape,
    tokens: int,
    routing: str,
    launches: int,
    l2_bytes: int,
    seed: int,
    trace: RoutingTrace | None = None,
) -> Rotation:
    """Routing patterns of ``launches`` launches that use fresh experts each time.

    Patterns are drawn under the shape's own policy; then the experts of each group are renamed so
    that consecutive launches walk through all of them in a random cyclic order. ``routing``:

    * ``uniform``: independent Gaussian logits
    * ``zipf``: the expert of popularity rank r is drawn in proportion to 1/r, in an order of its
      own for every launch
    * ``same``: all tokens pick the same experts
    * ``disjoint``: no two tokens share an expert as long as there are enough of them
    * ``ties``: logits of three values, so that only the order of ids decides. Nothing is renamed
    * the name of ``trace``: patterns are those of captured launches (`RoutingTrace.sample`). Which
      tokens of a launch share experts stays as captured; which experts those are does not, since
      consecutive launches of a model are of layers with weights of their own

    Raises:
        MonomoeError: unknown routing or no tokens or launches; a trace with too few tokens, or with
            experts that the shape's policy does not choose together; or a rotation long enough to
            replay cold that would not (less than twice ``l2_bytes`` between uses).
    """
    if routing not in (*ROUTINGS, trace and trace.name) or tokens < 1 or launches < 1:
        raise MonomoeError(
            f"asked for {launches} launches of {tokens} tokens with {routing!r} routing: take at "
            f"least one of each and one of {', '.join(ROUTINGS)}"
        )
    generator = _generator("cpu", "rotation", routing, tokens, seed)
    captured = None
    if trace and routing == trace.name:
        captured = trace.sample(tokens, launches, generator)
        wants = [patterns.captured_preferences(ids, shape, generator) for ids in captured]
    else:
        wants = [
            patterns.preferences(shape, tokens, routing, i, generator) for i in range(launches)
        ]
    if routing == "ties":
        bias = torch.full((shape.experts,), _TIE_BIAS) if shape.expert_bias else None
        logits = torch.stack(wants)
        chosen = [route(launch, bias, shape)[0] for launch in logits]
    else:
        bias = patterns.expert_bias(shape, generator)
        chosen = [rank_experts(patterns.ranking(want, shape), shape) for want in wants]
        for ids, asked in zip(chosen, captured or chosen, strict=True):
            if not torch.equal(ids.sort().values, asked.sort().values):
                raise MonomoeError(
                    f"{shape.name}: {routing} holds experts that its groups do not let a token "
                    f"choose together: {asked[(ids.sort().values != asked.sort().values).any(-1)]}"
                )
        names = patterns.fresh_names(shape, [ids.unique() for ids in chosen], generator)
        chosen = [name[ids] for name, ids in zip(names, chosen, strict=True)]
        # under its new name e, an expert is what was column name.argsort()[e]
        wants = [want[:, name.argsort()] for name, want in zip(names, wants, strict=True)]
        logits = torch.stack(
            [
                patterns.logits(want, ids, bias, shape)
                for want, ids in zip(wants, chosen, strict=True)
            ]
        )
        for launch, ids in zip(logits, chosen, strict=True):
            if not torch.equal(route(launch, bias, shape)[0].sort().values, ids.sort().values):
                raise MonomoeError(f"{shape.name}: {routing} logits do not select what they should")
    if shape.shared_gate:
        gates = torch.randn(
            (launches, tokens, 1), generator=_generator("cpu", "gate", routing, tokens, seed)
        )
        logits = torch.cat([logits, gates.to(getattr(torch, shape.logits_dtype)).float()], -1)
    active = tuple((*ids.unique().tolist(), *shape.shared_ids) for ids in chosen)
    divisors = [n for n in range(1, launches + 1) if launches % n == 0]
    small = shape.expert_bytes * shape.all_experts < 8 * l2_bytes
    for copies in divisors if small or shape.shared_experts else [1]:
        reuse = _reuse_bytes(active, shape, copies)
        if reuse >= 2 * l2_bytes:
            break
    streamed = shape.expert_bytes * min(sum(map(len, active)), shape.all_experts)
    if routing != "ties" and streamed >= 8 * l2_bytes and reuse < 2 * l2_bytes:
        raise MonomoeError(
            f"{shape.name}: {launches} launches of {tokens} tokens ({routing}) stream only {reuse} "
            f"bytes between two uses of an expert, less than twice the L2 ({l2_bytes} bytes); take "
            "another number of launches"
        )
    return Rotation(logits, bias, active, reuse, copies)


def _reuse_bytes(active: Sequence[Sequence[int]], shape: Shape, copies: int) -> int:
    """Least bytes between two uses of the same weights, the launches repeating for ever.

    Counted as if a launch streamed w13 of its experts in ascending order, then w2. A kernel begins
    with up to four experts of its first token (`Geometry.leads`).
    """
    parts = (("w13", shape.up_rows * shape.hidden), ("w2", shape.hidden * shape.intermediate))
    starts: dict[tuple[str, int, int], int] = {}
    ends: dict[tuple[str, int, int], int] = {}
    gaps = []
    position = 0
    for i, experts in enumerate(active):
        for part, size in parts:
            for key in ((part, i % copies, expert) for expert in experts):
                if key in ends:
                    gaps.append(position - ends[key])
                starts.setdefault(key, position)
                position += size
                ends[key] = position
    gaps += [start + position - ends[key] for key, start in starts.items()]
    return min(gaps)


def _generator(device: torch.device | str, *key: object) -> torch.Generator:
    """A generator of its own for every purpose: keys that differ give unrelated numbers."""
    digest = hashlib.blake2b(repr(key).encode(), digest_size=7).digest()
    return torch.Generator(device).manual_seed(int.from_bytes(digest, "little"))


def _draw(size: tuple[int, ...], distribution: str, generator: torch.Generator) -> Tensor:
    """fp32 samples on the generator's device; the scale is the caller's business."""

    def normal() -> Tensor:
        return torch.randn(size, generator=generator, device=generator.device)

    if distribution == "gaussian":
        return normal()
    chi_square = normal().square() + normal().square() + normal().square()
    return normal() / chi_square.sqrt()


def _require(distribution: str, known: Sequence[str]) -> None:
    if distribution not in known:
        raise MonomoeError(f"unknown distribution {distribution!r}: take one of {', '.join(known)}")
