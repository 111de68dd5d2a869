"""What is known about the candidates of one tuning run, and what is still missing."""

from __future__ import annotations

import math
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from monomoe_gen import tuning_db
from monomoe_gen.present import Present
from monomoe_gen.schedule import KernelSpec, Schedule
from monomoe_gen.shapes import Shape
from monomoe_gen.tuning_db import Record
from monomoe_gen.variant import USUAL, Variant
from monomoe_gen.winner import Winner, winners


@dataclass
class Ledger:
    """The records of one shape, GPU, token tile, routing and variant of the kernels.

    A record counts as long as its sources are what the templates render today. ``path`` is the
    database that `add` appends to; None keeps records in memory only. Several threads may add
    records and ask for times and the best. With ``weights`` of several routings, finalists have
    records of the others too, and they all decide who wins. ``dispatched`` is who serves each token
    count so far.
    """

    shape: Shape
    tokens: Sequence[int]
    token_tile: int
    routing: str
    path: Path | None
    variant: Variant = USUAL
    weights: Mapping[str, float] = field(default_factory=dict)
    dispatched: Mapping[int, Schedule] = field(default_factory=dict)
    stale: list[Record] = field(default_factory=list)
    _records: list[Record] = field(default_factory=list)
    _beside: dict[tuple[Schedule, int, str], Record] = field(default_factory=dict)
    _latest: dict[tuple[Schedule, int], Record] = field(default_factory=dict)
    _screened: dict[tuple[Schedule, int], Record] = field(default_factory=dict)

    @cached_property
    def present(self) -> Present:
        return Present(self.shape)

    def load(self, records: Iterable[Record]) -> None:
        """Takes over earlier records; those of older sources become ``stale``."""
        for record in records:
            asked = record.token_tile, Variant.of(record)
            wanted = record.routing == self.routing or record.routing in self.weights
            if wanted and asked == (self.token_tile, self.variant):
                schedule = Schedule.from_dict(record.schedule)
                if self.present.has(record):
                    self._note(schedule, record)
                elif record.routing == self.routing:
                    self.stale.append(record)

    def add(self, record: Record) -> None:
        """Appends a record to the database and counts it."""
        if self.path:
            tuning_db.append(self.path, record)
        self._note(Schedule.from_dict(record.schedule), record)

    def spec(self, schedule: Schedule) -> KernelSpec:
        return self.variant.spec(self.shape, schedule, self.token_tile)

    @property
    def records(self) -> Sequence[Record]:
        """All that counts, in the order it came."""
        return tuple(self._records)

    def schedules(self) -> list[Schedule]:
        """Every schedule with a record, in the order of the first."""
        return list(dict.fromkeys(schedule for schedule, _ in list(self._latest)))

    def record(self, schedule: Schedule, tokens: int) -> Record | None:
        return self._latest.get((schedule, tokens))

    def final(self, schedule: Schedule, tokens: int) -> int:
        """Samples of ``schedule`` as a finalist, the fewest of the routings that decide."""
        others = [r for r in self.weights if r != self.routing]
        beside = [self._beside.get((schedule, tokens, routing)) for routing in others]
        found = [self.record(schedule, tokens), *beside]
        return min(r.time_us.n if r and r.stage == "final" and r.time_us else 0 for r in found)

    def missing(self, schedule: Schedule) -> tuple[int, ...]:
        """Token counts without a record of ``schedule``; none if it is known to fail."""
        found = {n: self.record(schedule, n) for n in self.tokens}
        if any(record and record.status != "ok" for record in found.values()):
            return ()
        return tuple(n for n, record in found.items() if record is None)

    def values(self, schedule: Schedule) -> dict[int, float] | None:
        """Log of the median time for each token count; None if one failed or is missing."""
        values = {}
        for n in self.tokens:
            record = self.record(schedule, n)
            if record is None or record.time_us is None:
                return None
            values[n] = math.log(record.time_us.median)
        return values

    def times(self, schedule: Schedule) -> dict[int, float]:
        """Median microseconds by token count, as far as there are any; none if one failed."""
        found = {n: self.record(schedule, n) for n in self.tokens}
        if any(record and record.status != "ok" for record in found.values()):
            return {}
        return {n: r.time_us.median for n, r in found.items() if r and r.time_us}

    def failure(self, schedule: Schedule) -> Sequence[str]:
        """The status that ``schedule`` fails with; nothing if it does not."""
        records = (self.record(schedule, n) for n in self.tokens)
        return [r.status for r in records if r and r.status != "ok"][:1]

    def recorded_tokens(self, schedule: Schedule) -> set[int]:
        """Token counts that ``schedule`` has a record for, of this run or not."""
        return {n for s, n in list(self._latest) if s == schedule}

    def best(self, among: Container[Schedule] | None = None) -> dict[int, Record]:
        """The fastest record of each token count, a final one if there is any.

        Schedules that fail for a token count do not take part; ``among`` restricts the others.
        """
        latest = list(self._latest.items())
        failed = {s for (s, _), record in latest if record.status != "ok"}
        best: dict[int, tuple[bool, float, Record]] = {}
        for (schedule, n), record in latest:
            if record.time_us and schedule not in failed and (not among or schedule in among):
                found = record.stage == "screen", record.time_us.median, record
                if n in self.tokens and (n not in best or found[:2] < best[n][:2]):
                    best[n] = found
        return {n: best[n][2] for n in sorted(best)}

    def winners(self, among: Container[Schedule] | None = None) -> dict[int, Winner]:
        """Who wins each token count (see `winner`); restricted as by `best`."""
        failed = {s for (s, _), record in self._latest.items() if record.status != "ok"}

        def counts(record: Record) -> bool:
            schedule = Schedule.from_dict(record.schedule)
            chosen = among is None or schedule in among
            return chosen and record.tokens in self.tokens and schedule not in failed

        # What older sources took from run to run says how much a difference means, as for `emit`.
        every = [*self.stale, *filter(counts, self._records), *self._beside.values()]
        return winners(every, self.routing, self.present.has, self.variant, self.weights)

    def finalists(self, count: int) -> dict[Schedule, tuple[int, ...]]:
        """The ``count`` fastest schedules of each token count, each with the counts it leads at.

        They are ranked by their screening times alone. A final time replaces a lucky screening
        time by an honest one; ranking the two together would put one lucky candidate after
        another in the place of those already measured well. The dispatched kernel is one more of
        them: screening sees neither the other routings nor the other processes in which it won.
        """
        chosen: dict[Schedule, list[int]] = {}
        eligible = [s for s in self.schedules() if self.values(s)]
        for n in self.tokens:
            ranked = sorted(eligible, key=lambda s: self._screening_time(s, n))[:count]
            held = self.dispatched.get(n)
            if held in eligible and held not in ranked:
                ranked.append(held)
            for schedule in ranked:
                chosen.setdefault(schedule, []).append(n)
        return {schedule: tuple(tokens) for schedule, tokens in chosen.items()}

    def _screening_time(self, schedule: Schedule, tokens: int) -> float:
        record = self._screened.get((schedule, tokens)) or self._latest[schedule, tokens]
        assert record.time_us  # `values` has it
        return record.time_us.median

    def _note(self, schedule: Schedule, record: Record) -> None:
        if record.routing != self.routing:
            if record.stage == "final" and record.time_us:
                self._beside[schedule, record.tokens, record.routing] = record
            return
        self._records.append(record)
        if record.stage == "confirm":
            return
        if record.stage == "screen" and record.time_us:
            self._screened[schedule, record.tokens] = record
        old = self.record(schedule, record.tokens)
        if not (old and old.stage == "final" and record.stage == "screen"):
            self._latest[schedule, record.tokens] = record
