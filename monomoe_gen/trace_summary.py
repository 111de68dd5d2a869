"""When things happen in a traced launch: the spread over its CTAs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from monomoe_gen.trace import Event, Role, Trace


@dataclass(frozen=True)
class Spread:
    """Over the CTAs, in microseconds."""

    minimum: float
    median: float
    maximum: float

    @classmethod
    def of(cls, values: list[float]) -> Spread:
        return cls(min(values), float(np.median(values)), max(values))


@dataclass(frozen=True)
class EventSummary:
    """When an event happens for the first and for the last time in a CTA, over the warps of a role.

    ``ctas`` have it at all, ``count`` times altogether.
    """

    role: Role
    event: Event
    ctas: int
    count: int
    first: Spread
    last: Spread


def summarize(trace: Trace) -> list[EventSummary]:
    """Every event of every role, over the CTAs that have it."""
    found: dict[tuple[Role, Event], dict[int, list[float]]] = {}
    for warp in trace.warps:
        for mark in warp.marks:
            if mark.event != Event.START:
                times = found.setdefault((warp.role, mark.event), {})
                times.setdefault(warp.cta, []).append(mark.us)
    roles = list(Role)
    return [
        EventSummary(
            role=role,
            event=event,
            ctas=len(times),
            count=sum(map(len, times.values())),
            first=Spread.of([min(t) for t in times.values()]),
            last=Spread.of([max(t) for t in times.values()]),
        )
        for (role, event), times in sorted(
            found.items(), key=lambda item: (roles.index(item[0][0]), item[0][1])
        )
    ]
