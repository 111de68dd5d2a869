"""Is a kernel right? Runs it on known inputs and compares with both references.

The output is filled with NaN first and lies between canaries, as does the workspace. Launches
follow each other without a pause, eagerly and as replays of a graph whose inputs change, and every
repetition has to give the same bits.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from statistics import median
from typing import Literal

import torch
from torch import Tensor

from monomoe_gen import kernel as gpu
from monomoe_gen.comparison import in_words, required_cosine
from monomoe_gen.kernel import LayerWeights, Workspace, workspace_bytes
from monomoe_gen.reference import moe_fp32, moe_mirror, router_logits
from monomoe_gen.schedule import Router
from monomoe_gen.shapes import Shape
from monomoe_gen.weights import BlockWeights
from monomoe_gen.workload import Case, activations, rotation, routers_for, tied_router

# Against the reference that rounds where the kernel does. Two correct kernels add in different
# orders, so now and then an h falls on the other side of an e4m3 rounding boundary: a step of up
# to 1/8 in one of a token's top_k * intermediate values. Most tokens have no such step and agree
# closely; where one value dominates (heavy tails), a step is a few percent of the output. Steps of
# bf16 activations are 1/128 at most.
MIRROR_REL_L2_TYPICAL = 1e-3  # of the median token
MIRROR_REL_L2_MAX = 2e-2  # of every token

Run = Callable[[LayerWeights, Tensor, Tensor, Tensor, Workspace], None]
"""Enqueues one launch: weights, x, logits or router, y, workspace (see `kernel.launch_moe`)."""

Capture = Callable[[Callable[[], None]], Callable[[], None]]
"""Makes a replay of what a function enqueues."""

_ROUNDS = 2  # eager launches of each case
_GUARD = 512  # elements before and after what a launch may write
_CANARY = -1.5  # exact in bf16
_CANARY_BYTE = 0xA5


@dataclass(frozen=True)
class Problem:
    """Inputs of one `Case` on the GPU, with the answers: exact fp32 and mirror bf16, ``[B, H]``.

    ``router`` bf16 ``[E, H]`` gives the logits, bit for bit, where a kernel computes them itself.
    ``activations`` are the shape's.
    """

    case: Case
    weights: LayerWeights
    x: Tensor
    logits: Tensor
    exact: Tensor
    mirror: Tensor
    activations: str
    router: Tensor | None = None

    @property
    def routed(self) -> Tensor:
        """What the kernel routes by."""
        return self.logits if self.router is None else self.router

    @cached_property
    def required_cosines(self) -> tuple[float, ...]:
        """What each token of an output has to reach against the exact answer."""
        definition = cosines(self.mirror, self.exact).tolist()
        return tuple(required_cosine(self.activations, cosine) for cosine in definition)

    @property
    def name(self) -> str:
        return f"{self.x.shape[0]} tokens, {self.case.routing} routing, {self.case.distribution}"


@dataclass(frozen=True)
class Errors:
    """The worst token: cosine and relative L2 against fp32, relative L2 against the mirror."""

    cosine: float
    rel_l2: float
    mirror_rel_l2: float

    @property
    def finite(self) -> bool:
        return math.isfinite(self.cosine + self.rel_l2 + self.mirror_rel_l2)

    def worse(self, other: Errors) -> Errors:
        return Errors(
            min(self.cosine, other.cosine),
            max(self.rel_l2, other.rel_l2),
            max(self.mirror_rel_l2, other.mirror_rel_l2),
        )


@dataclass(frozen=True)
class Verdict:
    """``status`` is ok, wrong (numbers or a write out of bounds) or unstable (bits that change).

    ``message`` says what was found where, empty if ok. ``errors`` holds the worst of each data
    distribution whose output was finite.
    """

    status: Literal["ok", "wrong", "unstable"]
    message: str
    errors: Mapping[str, Errors]

    @property
    def ok(self) -> bool:
        return self.status == "ok"


def make_problem(
    shape: Shape,
    block_weights: BlockWeights,
    packed: LayerWeights,
    tokens: int,
    case: Case,
    seed: int,
    router: Router = "logits",
) -> Problem:
    """Draws the inputs of ``case`` and computes both references on the device of the weights.

    ``packed`` holds the same layer as ``block_weights``; its bias is replaced by the case's own.
    With ``router`` "weight" the logits are those of a router's weight that meets the drawn ones
    closely, so that the routing stays what the case says; for ties, of one with few different rows.
    """
    device = packed.w13.device
    routing = rotation(shape, tokens, case.routing, 1, 0, seed)
    logits = routing.logits[0].to(device, getattr(torch, shape.logits_dtype))
    bias = None if routing.bias is None else routing.bias.to(device)
    x = activations(shape, tokens, case.distribution, seed).to(device)
    weight = None
    if router == "weight":
        if case.routing == "ties":
            weight = tied_router(x.cpu(), shape, seed).to(device)
        else:
            weight = routers_for(x.cpu(), routing.logits)[0].to(device)
        logits = router_logits(x, weight, shape)
    b = block_weights
    return Problem(
        case=case,
        weights=replace(packed, bias=bias),
        x=x,
        logits=logits,
        exact=moe_fp32(x, logits, b.dequantized, bias, shape),
        mirror=moe_mirror(x, logits, b.w13, b.w13_scale, b.w2, b.w2_scale, bias, shape),
        router=weight,
        activations=shape.activations,
    )


def check(
    run: Run, problems: Sequence[Problem], half_bytes: int, capture: Capture | None = None
) -> Verdict:
    """Runs every problem (all of one token count) several times and judges the outputs.

    ``half_bytes`` is the workspace half that the kernel needs. ``capture`` is the CUDA graph
    capture unless a test replaces it. Errors of the GPU itself are raised as torch reports them.
    """
    tokens, hidden = problems[0].x.shape
    device = problems[0].x.device
    workspace, workspace_guards = _guarded_workspace(half_bytes, device)
    rounds = _ROUNDS + 1
    outputs = torch.full(
        (rounds, len(problems), tokens * hidden + 2 * _GUARD),
        _CANARY,
        dtype=torch.bfloat16,
        device=device,
    )
    inside = outputs[..., _GUARD:-_GUARD]
    inside.fill_(torch.nan)
    ys = inside.view(rounds, len(problems), tokens, hidden)
    for i in range(_ROUNDS):
        for problem, y in zip(problems, ys[i], strict=True):
            run(problem.weights, problem.x, problem.routed, y, workspace)
    _replay(run, problems, ys[-1], workspace, capture or _capture_graph)
    verdict = _compare(problems, ys)
    for what, guards, canary in (
        ("output", (outputs[..., :_GUARD], outputs[..., -_GUARD:]), _CANARY),
        ("workspace", workspace_guards, _CANARY_BYTE),
    ):
        if not all(bool((guard == canary).all()) for guard in guards):
            message = f"{tokens} tokens: wrote outside the {what}"
            return replace(verdict, status="wrong", message=message)
    return verdict


def measure_errors(y: Tensor, exact: Tensor, mirror: Tensor) -> Iterator[Errors]:
    """The errors of each token (row) of ``y``; NaN or infinity where only one of two is zero."""
    rows = (cosines(y, exact), relative_l2(y, exact), relative_l2(y, mirror))
    for row in torch.stack(rows, -1).tolist():
        yield Errors(*row)


def cosines(y: Tensor, expected: Tensor) -> Tensor:
    """fp64 ``[B]``: the cosine of each row; 1 if both are zero, NaN if one is."""
    y, expected = y.double(), expected.double()
    norms = torch.stack([y.norm(dim=-1), expected.norm(dim=-1)])
    return ((y * expected).sum(-1) / norms.prod(0)).masked_fill((norms == 0).all(0), 1.0)


def relative_l2(y: Tensor, expected: Tensor) -> Tensor:
    """fp64 ``[B]``: the relative error of each row; 0 where the rows are equal."""
    y, expected = y.double(), expected.double()
    errors = (y - expected).norm(dim=-1)
    return (errors / expected.norm(dim=-1)).masked_fill(errors == 0, 0.0)


def _compare(problems: Sequence[Problem], ys: Tensor) -> Verdict:
    """Judges outputs ``[rounds, problems, B, H]``; the last round is the graph's."""
    errors: dict[str, Errors] = {}
    mirror: list[float] = []
    status: Literal["ok", "wrong", "unstable"] = "ok"
    message = ""
    for i, problem in enumerate(problems):
        first = ys[0, i]
        tokens = measure_errors(first, problem.exact, problem.mirror)
        bounds = problem.required_cosines
        for token, (found, required) in enumerate(zip(tokens, bounds, strict=True)):
            mirror.append(found.mirror_rel_l2)
            complaint = _complaint(found, problem.activations, required)
            if complaint and status != "wrong":
                status, message = "wrong", f"{problem.name}: token {token}: {complaint}"
            if found.finite:
                name = problem.case.distribution
                errors[name] = errors.get(name, found).worse(found)
        for r in range(1, len(ys)):
            same = torch.equal(ys[r, i].view(torch.int16), first.view(torch.int16))
            if not same and status == "ok":
                how = "a graph replay" if r == len(ys) - 1 else "a second launch"
                status, message = "unstable", f"{problem.name}: {how} gave other bits"
    typical = median(mirror)
    if status != "wrong" and not typical <= MIRROR_REL_L2_TYPICAL:
        status = "wrong"
        message = (
            f"{ys.shape[2]} tokens: half of the tokens differ by {typical:.2e} or more from the "
            f"reference with the kernel's rounding, at most {MIRROR_REL_L2_TYPICAL:.0e} is allowed"
        )
    return Verdict(status, message, errors)


def _complaint(found: Errors, activations: str, required: float) -> str:
    if not found.finite:
        return "the output holds NaN or infinity, or is zero and should not be, or the reverse"
    if found.cosine < required:
        return f"cosine {found.cosine:.5f} against fp32, {in_words(activations, required)}"
    if found.mirror_rel_l2 > MIRROR_REL_L2_MAX:
        return (
            f"relative error {found.mirror_rel_l2:.2e} against the reference with the kernel's "
            f"rounding, at most {MIRROR_REL_L2_MAX:.0e} is allowed"
        )
    return ""


def _replay(
    run: Run, problems: Sequence[Problem], ys: Tensor, workspace: Workspace, capture: Capture
) -> None:
    """Writes ``ys [problems, B, H]`` by one graph per layer whose inputs are overwritten."""
    static = problems[0]
    x, routed, y = static.x.clone(), static.routed.clone(), torch.empty_like(ys[0])
    bias = None if static.weights.bias is None else static.weights.bias.clone()
    replays: dict[int, Callable[[], None]] = {}
    for problem, out in zip(problems, ys, strict=True):
        weights = replace(problem.weights, bias=bias)
        layer = weights.w13.data_ptr()
        if layer not in replays:
            replays[layer] = capture(partial(run, weights, x, routed, y, workspace))
        x.copy_(problem.x)
        routed.copy_(problem.routed)
        if bias is not None and problem.weights.bias is not None:
            bias.copy_(problem.weights.bias)
        y.fill_(torch.nan)
        replays[layer]()
        out.copy_(y)
    if y.is_cuda:
        torch.cuda.synchronize()  # a graph must not be destroyed while it runs


def _capture_graph(body: Callable[[], None]) -> Callable[[], None]:
    return gpu.capture(body).replay


def _guarded_workspace(
    half_bytes: int, device: torch.device
) -> tuple[Workspace, tuple[Tensor, Tensor]]:
    size = workspace_bytes(half_bytes)
    buffer = torch.full((size + 2 * _GUARD,), _CANARY_BYTE, dtype=torch.uint8, device=device)
    inside = buffer[_GUARD:-_GUARD]
    inside.zero_()
    return Workspace(inside, half_bytes), (buffer[:_GUARD], buffer[-_GUARD:])
