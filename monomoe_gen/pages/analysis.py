"""Records to the numbers that a report shows. No plotting, no HTML."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from itertools import accumulate
from typing import Any

from monomoe_gen import objective
from monomoe_gen.present import Present
from monomoe_gen.report import Result
from monomoe_gen.schedule import Geometry, KernelSpec, Schedule
from monomoe_gen.search_study import Study
from monomoe_gen.shapes import Shape
from monomoe_gen.tuning_db import Record
from monomoe_gen.winner import winners

PARAMETERS = tuple(f.name for f in fields(Schedule))
UNIFORM = "uniform"


@dataclass(frozen=True)
class Point:
    """A screened schedule: median time in microseconds and its ratio to the stream floor."""

    schedule: Schedule
    time_us: float
    ratio: float


@dataclass(frozen=True)
class ModelData:
    """All that is known about one model on one kind of GPU.

    What is derived is of the present sources, as the dispatch table is; only where these were never
    timed it is of older ones.
    `published` are the anchors by token count; `space` is what `removal_counts` says,
    `study` the last comparison of samplers.
    """

    shape: Shape
    records: Sequence[Record]
    results: Sequence[Result]
    published: Mapping[int, Mapping[str, float]]
    space: tuple[int, Mapping[str, int], int]
    study: Study | None = None

    @cached_property
    def present(self) -> Present:
        return Present(self.shape)

    def winners(self, routing: str) -> dict[int, Record]:
        """The record under ``routing`` of each token count's winner.

        It is chosen as `emit` does unless told otherwise, by the default objective; under a routing
        that this leaves out, by that routing alone.
        """
        weights = objective.DEFAULT.routings
        if routing not in weights:
            weights = {}
        present = winners(self.records, routing, self.present.has, weights=weights)
        chosen = {**winners(self.records, routing, weights=weights), **present}
        return {tokens: winner.record for tokens, winner in chosen.items()}

    @cached_property
    def best(self) -> dict[int, Record]:
        """The record under uniform routing of each token count's winner."""
        return self.winners(UNIFORM)

    @cached_property
    def validated(self) -> Mapping[int, Sequence[Record]]:
        """By token count, the records that say how exact their kernels are."""
        found: dict[int, list[Record]] = {}
        for record in self.present.newest(r for r in self.records if r.errors).records:
            found.setdefault(record.tokens, []).append(record)
        return found

    @cached_property
    def points(self) -> dict[int, list[Point]]:
        """By token count, the screened schedules in the order in which they were measured."""
        found: dict[int, dict[Schedule, Point]] = {}
        screened = (
            r
            for r in self.records
            if r.stage == "screen" and r.routing == UNIFORM and r.time_us and r.floor_us
        )
        for r in self.present.newest(screened).records:
            assert r.time_us and r.floor_us
            point = Point(
                Schedule.from_dict(r.schedule), r.time_us.median, r.time_us.median / r.floor_us
            )
            found.setdefault(r.tokens, {})[point.schedule] = point
        return {tokens: list(points.values()) for tokens, points in sorted(found.items())}

    @cached_property
    def rows(self) -> list[dict[str, Any]]:
        """One row a token count: what is dispatched if it was measured again, else the best."""
        again = {r.tokens: r for r in self.results if r.routing == UNIFORM}
        return [
            self._row(tokens, record, again.get(tokens)) for tokens, record in self.best.items()
        ]

    def _row(self, tokens: int, record: Record, again: Result | None) -> dict[str, Any]:
        assert record.time_us
        time_us = again.time_us if again else record.time_us.median
        floor_us = again.floor_us if again else record.floor_us
        distinct = again.distinct_experts if again else record.distinct_experts
        published = self.published.get(tokens, {})
        known = [
            published[name]
            for name in ("published_monomoe_us", "triton_grouped_gemm_us")
            if name in published
        ]
        spread = record.time_us.p90 - record.time_us.p10
        return {
            "model": self.shape.name,
            "tokens": tokens,
            "time_us": time_us,
            "spread_us": round(spread, 3),
            "floor_us": floor_us,
            "ratio": time_us / floor_us if floor_us else None,
            "tb_s": terabytes_per_second(self.shape, distinct, time_us),
            "floor_tb_s": terabytes_per_second(self.shape, distinct, floor_us),
            "monomoe_us": published.get("published_monomoe_us"),
            "triton_us": published.get("triton_grouped_gemm_us"),
            "speedup": min(known) / time_us if known else None,
            "cosine": again.cosine
            if again
            else min((e.cosine for e in record.errors.values()), default=None),
            "schedule": again.schedule if again else Schedule.from_dict(record.schedule).id,
            "source": "bench" if again else record.stage,
        }

    def geometry(self, record: Record) -> Geometry:
        schedule = Schedule.from_dict(record.schedule)
        return KernelSpec(self.shape, schedule, record.token_tile).geometry


def terabytes_per_second(
    shape: Shape, distinct: float | None, time_us: float | None
) -> float | None:
    """Rate at which the FP8 weights of `distinct` experts pass in `time_us`."""
    if not distinct or not time_us:
        return None
    return distinct * shape.expert_bytes / time_us / 1e6


def best_so_far(values: Iterable[float]) -> list[float]:
    return list(accumulate(values, min))


def expected_best(values: Sequence[float], draws: Sequence[int]) -> list[float]:
    """Mean of the least of n values drawn without replacement, for each n of `draws`."""
    ordered = sorted(values)
    total = len(ordered)
    means = []
    for n in draws:
        mean, none_below = 0.0, 1.0  # probability that no draw is among the values before this one
        for i, value in enumerate(ordered):
            here = min(1.0, n / (total - i))  # that one is this value, given that
            mean += none_below * here * value
            none_below *= 1 - here
        means.append(mean)
    return means


def pair_minimum(points: Iterable[Point], across: str, down: str) -> dict[tuple[int, int], float]:
    """The least ratio to the floor for each pair of values of two parameters."""
    least: dict[tuple[int, int], float] = {}
    for point in points:
        key = getattr(point.schedule, across), getattr(point.schedule, down)
        least[key] = min(point.ratio, least.get(key, point.ratio))
    return least


def cross_regret(points: Mapping[int, Sequence[Point]]) -> dict[tuple[int, int], float]:
    """(tuned for, used for) -> time of the one's best schedule over the other's best time."""
    times = {tokens: {p.schedule: p.time_us for p in found} for tokens, found in points.items()}
    regret = {}
    for tuned, own in times.items():
        chosen = min(own, key=lambda s: (own[s], s))
        for used, theirs in times.items():
            if chosen in theirs:
                regret[tuned, used] = theirs[chosen] / min(theirs.values())
    return regret


def routing_times(data: ModelData) -> dict[tuple[int, str], Record]:
    """(tokens, routing) -> the winner's record, if any token count was timed under two routings."""
    found = {
        (tokens, routing): record
        for routing in sorted({r.routing for r in data.records})
        for tokens, record in data.winners(routing).items()
    }
    return found if len({routing for _, routing in found}) > 1 else {}
