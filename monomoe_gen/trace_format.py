"""The fields of a kept launch's file, and what they have to hold for a drawing to make sense."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from monomoe_gen.device import DEFAULT, KNOWN
from monomoe_gen.errors import MonomoeError
from monomoe_gen.routings import ROUTINGS
from monomoe_gen.rules import violations
from monomoe_gen.schedule import WARPS, KernelSpec, Layout, Schedule, most_active
from monomoe_gen.shapes import Shape
from monomoe_gen.strict import shortened
from monomoe_gen.trace import Event, Role
from monomoe_gen.trace_summary import Spread

LONGEST_US = 1e6  # of a launch; the clock that the marks are made of wraps soon after
# A launch proves that its schedule fitted its GPU, whichever that was. Larger than this is none.
_LARGEST_GPU = replace(KNOWN[DEFAULT], name="any GPU", sms=4096, shared_per_block=2**20)
_CAPTURED = re.compile("trace-[0-9a-f]{12}")  # as `routing_trace.RoutingTrace.name`
_ROLES = tuple(role.value for role in Role)
_EVENTS = tuple(event.name.lower() for event in Event if event != Event.START)


@dataclass(frozen=True)
class Row:
    """An `EventSummary` with names in place of the enums."""

    role: str
    event: str
    ctas: int
    count: int
    first: Spread
    last: Spread


@dataclass(frozen=True)
class Warp:
    """The marks of one warp in columns: what happened, which one, when (us)."""

    events: tuple[int, ...]
    indices: tuple[int, ...]
    us: tuple[float, ...]
    full: bool


@dataclass(frozen=True)
class Cta:
    cta: int
    remark: str
    warps: tuple[Warp, ...]


@dataclass(frozen=True)
class File:
    format: int
    shape: Shape
    schedule: Schedule
    token_tile: int
    layout: Layout
    tokens: int
    routing: str
    us: float
    title: str
    facts: tuple[str, ...]
    summary: tuple[Row, ...]
    ctas: tuple[Cta, ...]


def spec_of(file: File) -> KernelSpec:
    """The kernel that was traced.

    Raises:
        MonomoeError: a field holds what no traced launch leaves; the message names it.
    """
    try:
        spec = KernelSpec(file.shape, file.schedule, file.token_tile, file.layout)
    except MonomoeError as error:
        raise MonomoeError(f"token_tile: {error}") from None
    for problem in _problems(file, spec):
        raise MonomoeError(problem)
    return spec


def _problems(file: File, spec: KernelSpec) -> Iterator[str]:
    """What is wrong, the first thing first; later checks rely on earlier ones."""
    schedule = file.schedule
    for violation in violations(file.shape, schedule, _LARGEST_GPU, file.token_tile):
        yield f"schedule: {schedule.id} is not feasible: {violation}"
    if not 1 <= file.tokens <= file.token_tile:
        yield f"tokens: must be from 1 to the token_tile {file.token_tile}, found {file.tokens}"
    if file.routing not in ROUTINGS and not _CAPTURED.fullmatch(file.routing):
        names = ", ".join(ROUTINGS)
        yield f"routing: must be one of {names}, or a captured one, found {shortened(file.routing)}"
    if not 0 < file.us <= LONGEST_US:
        yield f"us: must be more than 0 and at most {LONGEST_US:g}, found {shortened(file.us)}"
    if not file.summary:
        yield "summary: must have at least one row, found none"
    seen: set[tuple[str, str]] = set()
    for i, row in enumerate(file.summary):
        yield from _row_problems(f"summary[{i}]", row, file, spec)
        if (row.role, row.event) in seen:
            yield f"summary[{i}]: is a second row of {row.role} {row.event}"
        seen.add((row.role, row.event))
    if not file.ctas:
        yield "ctas: must have at least one CTA, found none"
    numbers: set[int] = set()
    for i, cta in enumerate(file.ctas):
        if cta.cta not in range(schedule.grid):
            yield (
                f"ctas[{i}].cta: must be from 0 to {schedule.grid - 1}, as the schedule's grid is "
                f"{schedule.grid}, found {shortened(cta.cta)}"
            )
        if cta.cta in numbers:
            yield f"ctas[{i}].cta: CTA {cta.cta} is there twice"
        numbers.add(cta.cta)
        if len(cta.warps) != WARPS:
            yield f"ctas[{i}].warps: must be {WARPS}, found {len(cta.warps)}"
        for number, warp in enumerate(cta.warps):
            yield from _warp_problems(f"ctas[{i}].warps[{number}]", warp, file.us)


def _row_problems(where: str, row: Row, file: File, spec: KernelSpec) -> Iterator[str]:
    grid = spec.schedule.grid
    if row.role not in _ROLES:
        yield f"{where}.role: must be one of {', '.join(_ROLES)}, found {shortened(row.role)}"
    if row.event not in _EVENTS:
        yield f"{where}.event: must be one of {', '.join(_EVENTS)}, found {shortened(row.event)}"
    if row.ctas not in range(1, grid + 1):
        yield f"{where}.ctas: must be from 1 to the grid {grid}, found {shortened(row.ctas)}"
    if row.count < row.ctas:
        yield f"{where}.count: must be at least its ctas {row.ctas}, found {shortened(row.count)}"
    units = most_active(spec.shape, file.tokens) * spec.schedule.g_up
    stored = (row.role, row.event) == (Role.EPILOGUE.value, Event.UNIT_STORED.name.lower())
    if stored and row.count > units:
        yield (
            f"{where}.count: {file.tokens} tokens of {file.shape.name} have at most {units} units "
            f"of the up-projection, found {shortened(row.count)}"
        )
    for name, spread in (("first", row.first), ("last", row.last)):
        if not 0 <= spread.minimum <= spread.median <= spread.maximum <= file.us:
            yield (
                f"{where}.{name}: minimum, median and maximum must rise, from 0 to the launch's us "
                f"{file.us:g} at most"
            )


def _warp_problems(where: str, warp: Warp, end_us: float) -> Iterator[str]:
    if not len(warp.events) == len(warp.indices) == len(warp.us):
        yield (
            f"{where}: events, indices and us must be of one length, found {len(warp.events)}, "
            f"{len(warp.indices)} and {len(warp.us)}"
        )
    if not warp.events or warp.events[0] != Event.START:
        yield f"{where}.events: must begin with a start ({int(Event.START)})"
    for i, event in enumerate(warp.events[1:], 1):
        if event not in range(1, len(Event)):
            yield (
                f"{where}.events[{i}]: must be from 1 to {max(Event)} after the start, found "
                f"{shortened(event)}"
            )
    before = 0.0
    for i, us in enumerate(warp.us):
        if not before <= us <= end_us:
            yield (
                f"{where}.us[{i}]: must rise from mark to mark, from 0 to the launch's us "
                f"{end_us:g} at most, found {shortened(us)}"
            )
        before = us
