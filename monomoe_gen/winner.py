"""Which finalist wins a token count: one that is as good as the fastest and serves most others.

A time is known up to an interval. How much the median of one and the same kernel moves from run to
run is seen in the records: the residuals of all kernels with several final ones. They are drawn
again to give the interval of the others (a bootstrap of residuals, Efron 1979). With too few of
them only the scatter within a run is known: the median of n draws from the recorded quantiles.

Finalists whose interval overlaps that of the fastest cannot be told apart from it. Among them the
schedule wins that is in the same position at most token counts, then the fastest.
"""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaincinv

from monomoe_gen.schedule import Schedule
from monomoe_gen.tuning_db import Record, Time, latest_of
from monomoe_gen.variant import USUAL, Variant

LEVEL = 0.95  # of the two-sided intervals
LEAST_RESIDUALS = 12  # degrees of freedom that say more than the scatter within a run
RESAMPLES = 4000
SESSION_S = 2  # at most, from one record of a session of finals to the next


Candidate = tuple[int, int, str, str, str]
"""What `Record.candidate` gives."""


@dataclass(frozen=True)
class Winner:
    """The record that decides a token count, and the one that `confirmed` its time, if any.

    The median of ``carried`` lies in ``low_us`` to ``high_us``, None if it was only screened.
    ``ties`` are the ids of the other schedules that cannot be told apart from the fastest, the
    fastest first. ``overlooked`` is a finalist that is clearly faster under the routing asked for,
    but was not timed under all those that decided.
    """

    record: Record
    low_us: float | None = None
    high_us: float | None = None
    ties: tuple[str, ...] = ()
    confirmed: Record | None = None
    overlooked: Record | None = None

    @property
    def carried(self) -> Record:
        """The record whose time is told: that of a process of its own, if there was one."""
        return self.confirmed or self.record


def winners(
    records: Iterable[Record],
    routing: str = "uniform",
    valid: Callable[[Record], bool] = lambda record: True,
    variant: Variant = USUAL,
    weights: Mapping[str, float] = MappingProxyType({}),
) -> dict[int, Winner]:
    """The winner of each token count under ``routing``, among kernels of ``variant``.

    With ``weights`` of several routings, ``routing`` among them, finalists are compared by the mean
    of their times under all of these. Where none was a finalist under all, ``routing`` decides.

    A candidate stands for its latest record, a final one if it has any: what a re-measurement
    found wrong, unstable or slow replaces what the screening said. A candidate with a final record
    is preferred to any with only a screened one; those are ranked by their medians alone.
    ``valid`` is asked in order of preference, as rarely as possible.
    """
    every = [record for record in records if Variant.of(record) == variant]
    spread = run_to_run(r for r in every if r.routing == routing)
    latest = {r.candidate: r for r in latest_of(every, routing) if r.time_us}
    means = _mixed(latest, every, weights)
    whole, mixed = {r.candidate for r in means}, _by_tokens(means)
    timed = _by_tokens(latest.values())
    level = {
        n: _level(mixed.get(n, []), spread, valid) or _level(found, spread, valid)
        for n, found in timed.items()
    }
    confirmed = _confirmed(r for r in every if r.routing == routing)
    places = Counter(_kernel(r) for records_ in level.values() for r in records_)
    chosen = {}
    for n, equal in level.items():
        if equal:
            best = min(equal, key=lambda r: (-places[_kernel(r)], _rank(r)))
            own = latest[best.candidate]
            winner = _winner(own, equal, spread, confirmed.get(_measured(best)))
            if own.candidate in whole:
                part = [r for r in timed[n] if r.stage == "final" and r.candidate not in whole]
                faster = _clearly_faster(part, own, spread, valid)
                winner = dataclasses.replace(winner, overlooked=faster)
            chosen[n] = winner
    return chosen


def _clearly_faster(
    ranked: Sequence[Record],
    than: Record,
    spread: NDArray[np.float64],
    valid: Callable[[Record], bool],
) -> Record | None:
    """The first valid one whose interval lies below that of ``than``."""
    assert than.time_us
    low, _ = interval(than.time_us, spread)
    below = (r for r in ranked if r.time_us and interval(r.time_us, spread)[1] < low)
    return next(filter(valid, below), None)


def _by_tokens(records: Iterable[Record]) -> dict[int, list[Record]]:
    """The best first."""
    found: dict[int, list[Record]] = {}
    for record in sorted(records, key=_rank):
        found.setdefault(record.tokens, []).append(record)
    return dict(sorted(found.items()))


def _mixed(
    latest: Mapping[Candidate, Record], every: Sequence[Record], weights: Mapping[str, float]
) -> list[Record]:
    """Those of ``latest`` that are final under all routings, with the weighted mean as time."""
    times = [
        {r.candidate: r.time_us for r in latest_of(every, routing) if r.stage == "final"}
        for routing in weights
    ]
    shares = np.array(list(weights.values())) / sum(weights.values()) if weights else np.zeros(0)
    mixed = []
    for candidate, record in latest.items():
        found = [time for each in times if (time := each.get(candidate))]
        if weights and len(found) == len(weights):
            p10, median, p90 = shares @ [[time.p10, time.median, time.p90] for time in found]
            time = Time(float(median), float(p10), float(p90), min(time.n for time in found))
            mixed.append(dataclasses.replace(record, time_us=time))
    return mixed


def _confirmed(records: Iterable[Record]) -> dict[Hashable, Record]:
    """The confirmed time of each binary that has not been a finalist again since."""
    found: dict[Hashable, Record] = {}
    for record in records:
        if record.stage == "confirm" and record.time_us:
            found[_measured(record)] = record
        elif record.stage == "final":
            found.pop(_measured(record), None)
    return found


def run_to_run(records: Iterable[Record]) -> NDArray[np.float64]:
    """Log residuals of the final medians of equal kernels on one card; empty if too few.

    Finalists are timed in turns, so what moves all of a session alike does not tell them apart: the
    medians are explained by kernel and session, and what is left over is returned, scaled up for
    the degrees of freedom that this takes.
    """
    finals = [r for r in records if r.stage == "final" and r.time_us]
    kernels = [(*r.candidate, r.env.get("uuid"), r.env.get("driver")) for r in finals]
    times = Counter(kernels)
    again = [(r, k, s) for r, k, s in zip(finals, kernels, _sessions(finals), strict=True)]
    again = [item for item in again if times[item[1]] > 1]
    residuals = np.array([math.log(r.time_us.median) for r, _, _ in again if r.time_us])
    groups = [_numbered([k for _, k, _ in again]), _numbered([s for _, _, s in again])]
    freedom = len(residuals) - sum(int(g.max(initial=-1)) + 1 for g in groups)
    if freedom < LEAST_RESIDUALS:
        return np.zeros(0)
    for _ in range(50):  # least squares of the two factors, one in turn (backfitting)
        for group in groups:
            residuals -= (np.bincount(group, residuals) / np.bincount(group))[group]
    return residuals * math.sqrt(len(residuals) / freedom)


def _sessions(finals: Sequence[Record]) -> list[tuple[object, ...]]:
    """For each record what it shares with those that were timed in turns with it.

    The records of all finalists are written at once, after the last round.
    """
    labels: list[tuple[object, ...]] = []
    number, before, seen = 0, None, set[tuple[object, ...]]()
    for record in finals:
        at = datetime.fromisoformat(record.at)
        late = before is not None and abs((at - before).total_seconds()) > SESSION_S
        if late or record.candidate in seen:
            number, seen = number + 1, set()
        before = at
        seen.add(record.candidate)
        labels.append((number, record.tokens, record.env.get("uuid")))
    return labels


def _numbered(labels: Sequence[Hashable]) -> NDArray[np.intp]:
    numbers = {label: i for i, label in enumerate(dict.fromkeys(labels))}
    return np.array([numbers[label] for label in labels], dtype=np.intp)


def interval(time: Time, spread: NDArray[np.float64]) -> tuple[float, float]:
    """Where the median lies, in microseconds; ``spread`` is what `run_to_run` gives."""
    tails = np.array([(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    if len(spread):
        drawn = np.random.default_rng(0).choice(spread, RESAMPLES)
        low, high = time.median * np.exp(np.quantile(drawn, tails))
    else:
        half = (time.n + 1) / 2  # the median of n draws is the quantile of a beta variable
        low, high = np.interp(
            betaincinv(half, half, tails), [0.1, 0.5, 0.9], [time.p10, time.median, time.p90]
        )
    return min(float(low), time.median), max(float(high), time.median)


def _level(
    ranked: Sequence[Record], spread: NDArray[np.float64], valid: Callable[[Record], bool]
) -> list[Record]:
    """The fastest valid record and those that cannot be told apart from it."""
    best = next((r for r in ranked if valid(r)), None)
    if best is None or best.stage == "screen":
        return [best] if best else []
    assert best.time_us
    _, high = interval(best.time_us, spread)
    close = [
        r
        for r in ranked
        if r is not best
        and r.stage == "final"
        and r.time_us
        and interval(r.time_us, spread)[0] <= high
    ]
    return [best, *(r for r in close if valid(r))]


def _winner(
    best: Record, equal: Sequence[Record], spread: NDArray[np.float64], confirmed: Record | None
) -> Winner:
    if best.stage == "screen":
        return Winner(best)
    time = (confirmed or best).time_us
    assert time
    low, high = interval(time, spread)
    others = (r for r in equal if r.candidate != best.candidate)
    ties = tuple(Schedule.from_dict(r.schedule).id for r in others)
    return Winner(best, round(low, 3), round(high, 3), ties, confirmed)


def _rank(record: Record) -> tuple[bool, float, tuple[int, int, str, str, str]]:
    assert record.time_us, "only timed records are ranked"
    return record.stage == "screen", record.time_us.median, record.candidate


def _measured(record: Record) -> Hashable:
    return record.candidate, record.binary and record.binary.text_hash


def _kernel(record: Record) -> tuple[int, str]:
    return record.token_tile, Schedule.from_dict(record.schedule).id
