"""Walks a schedule through one launch on paper: which CTA streams what, and when.

A model, not a measurement: the CTAs that stream weights of a projection get equal shares of the
memory system, the constants are those of `cost`, and time counts from the first weight request.
What it is exact about is the order of things: who owns which unit, which stage waits for which slot
of the ring, and which down-projection for which h.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from monomoe_gen.cost import H200, MAX_OUTSTANDING, Constants, active_experts
from monomoe_gen.schedule import MMA_WARPS, Geometry, KernelSpec

FIRST_BYTE_US = 1.0  # from a request to its first byte: 1987 cycles in a trace


@dataclass(frozen=True)
class Stage:
    """One ring stage of a CTA; times in microseconds.

    `experts` are positions in the list of active experts, `stripe` is of the projection. A stage is
    `requested`, has `landed`, and is `done` when it is multiplied; `waits` is how much of the time
    before that passed in waiting for h.
    """

    up: bool
    experts: tuple[int, ...]
    stripe: int
    part: int  # of the unit, or of the expert
    bytes: int
    requested: float
    landed: float
    started: float
    done: float
    waits: float


@dataclass(frozen=True)
class Rehearsal:
    """The stages of every CTA in order, and when h of each active expert is complete.

    ``publish_us`` is from the last product of an up unit to its h in memory.
    """

    spec: KernelSpec
    tokens: int
    active: int
    ctas: tuple[tuple[Stage, ...], ...]
    h_complete: tuple[float, ...]
    publish_us: float

    @property
    def us(self) -> float:
        """From the first weight request to the last product."""
        return max(stage.done for stages in self.ctas for stage in stages)

    def ring_bytes(self, cta: int) -> list[tuple[float, int]]:
        """(time, bytes requested and not yet multiplied), at each change."""
        changes = [(s.requested, s.bytes) for s in self.ctas[cta]]
        changes += [(s.done, -s.bytes) for s in self.ctas[cta]]
        held, steps = 0, []
        for time, change in sorted(changes):
            held += change
            steps.append((time, held))
        return steps


@dataclass(frozen=True)
class _Planned:
    """A stage before it has times."""

    up: bool
    experts: tuple[int, ...]
    stripe: int
    part: int
    bytes: int
    blocks: int


def rehearse(
    spec: KernelSpec, tokens: int, active: int | None = None, constants: Constants = H200
) -> Rehearsal:
    """One cold launch of `tokens` tokens; `active` experts (default: the mean of random routing).

    With more than 8 tokens the list of active experts has some of them several times (the turns of
    `templates/README.md`): `active` is its length, which the default takes for that of the experts.

    The schedule keeps the rules of `space`.
    """
    if active is None:
        counts, probability = active_experts(spec.shape, tokens)
        active = max(1, round(float(counts @ probability)))
    geometry, grid = spec.geometry, spec.schedule.grid
    up = [_up_stages(geometry, cta, active) for cta in range(grid)]
    down = [_down_stages(geometry, cta, active) for cta in range(grid)]
    walked = [_walk(geometry, stages, constants, ()) for stages in up]
    publish_us = constants.publish_us * geometry.tiles_up
    complete = [0.0] * active
    for stages in walked:
        for stage in stages:
            expert = stage.experts[0]
            complete[expert] = max(complete[expert], stage.done + publish_us + constants.handoff_us)
    ctas = [_walk(geometry, [*u, *d], constants, complete) for u, d in zip(up, down, strict=True)]
    return Rehearsal(spec, tokens, active, tuple(ctas), tuple(complete), publish_us)


def _up_stages(p: Geometry, cta: int, active: int) -> list[_Planned]:
    g_up = p.schedule.g_up
    return [
        _Planned(True, (u // g_up,), u % g_up, part, p.stage_bytes_up, p.stage_blocks_up)
        for u in range(cta, active * g_up, p.schedule.grid)
        for part in range(p.stages_per_unit_up)
    ]


def _down_stages(p: Geometry, cta: int, active: int) -> list[_Planned]:
    stripe, group = divmod(cta, p.down_groups)
    if stripe >= p.schedule.g_down:
        return []
    mine = range(group, active, p.down_groups)
    blocks = p.expert_blocks_down
    side = p.experts_per_stage_down
    together = [tuple(mine[i : i + side]) for i in range(0, len(mine), side)]
    return [
        _Planned(
            False, experts, stripe, part, len(experts) * p.stage_bytes_down // side,
            len(experts) * blocks,
        )
        for experts in together
        for part in range(p.stages_per_expert_down)
    ]  # fmt: skip


def _walk(
    p: Geometry, planned: Sequence[_Planned], c: Constants, complete: Sequence[float]
) -> tuple[Stage, ...]:
    """Gives times to the stages of one CTA, one after another."""
    down_ctas = p.down_groups * p.schedule.g_down
    done: list[Stage] = []
    held: deque[Stage] = deque()  # in the ring, the oldest first
    flying: deque[Stage] = deque()  # of which these may still be on their way
    issued = landed = finished = 0.0
    for stage in planned:
        requested = issued + (c.issue_us if done else 0.0)
        while held and not _fits(held, stage, p):
            requested = max(requested, held.popleft().done)
        while flying and sum(s.bytes for s in flying) + stage.bytes > MAX_OUTSTANDING:
            requested = max(requested, flying.popleft().landed)
        share = c.bandwidth / (p.schedule.grid if stage.up else down_ctas)  # bytes per us
        landed = max(requested + FIRST_BYTE_US, landed) + stage.bytes / share
        ready = landed
        if not stage.up and complete:
            ready = max([landed, *(complete[e] for e in stage.experts)])
        started = max(ready, finished)
        waits = max(0.0, ready - max(landed, finished))
        rounds = -(-stage.blocks // MMA_WARPS)
        finished = started + c.stage_us + rounds * c.block_us
        issued = requested
        made = Stage(
            stage.up, stage.experts, stage.stripe, stage.part, stage.bytes,
            requested, landed, started, finished, waits,
        )  # fmt: skip
        for place in (done, held, flying):
            place.append(made)
    return tuple(done)


def _fits(held: Collection[Stage], stage: _Planned, p: Geometry) -> bool:
    """Whether the ring takes `stage` beside those it holds; ``RingWriter::open`` asks the same."""
    depth = p.schedule.d_up if stage.up else p.schedule.d_down
    return (
        sum(s.up == stage.up for s in held) < depth
        and len(held) < p.ring_stages
        and sum(s.bytes for s in held) + stage.bytes <= p.ring_bytes
    )
