"""How well the predictions of `cost` order schedules that have been measured."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from monomoe_gen.cost import TOP, estimate
from monomoe_gen.schedule import Schedule
from monomoe_gen.shapes import Shape
from monomoe_gen.tuning_db import Record
from monomoe_gen.variant import USUAL, Variant


@dataclass(frozen=True)
class Agreement:
    """Predictions beside the medians of one shape and token count.

    ``spearman`` is the rank correlation over all ``schedules``, ``near_best`` over those at most
    15 % slower than the fastest, both None where fewer than three schedules are left.
    ``ratio`` is the geometric mean of predicted over measured, ``error`` the mean absolute log
    ratio. ``regret`` says how much slower than the fastest schedule the best of the `cost.TOP`
    predicted fastest is, as a fraction.
    """

    tokens: int
    schedules: int
    spearman: float | None
    near_best: float | None
    ratio: float
    error: float
    regret: float


def timed(
    records: Iterable[Record],
    tokens: Container[int],
    token_tile: int,
    routing: str = "uniform",
    variant: Variant = USUAL,
) -> list[Record]:
    """The records that `medians` looks at, for one of ``tokens``."""
    asked = token_tile, routing, variant
    return [
        r
        for r in records
        if r.time_us
        and r.stage != "confirm"
        and r.tokens in tokens
        and (r.token_tile, r.routing, Variant.of(r)) == asked
    ]


def medians(
    records: Iterable[Record],
    tokens: int,
    token_tile: int,
    routing: str = "uniform",
    variant: Variant = USUAL,
) -> dict[Schedule, float]:
    """The median time of each schedule in microseconds, screened ones before final ones.

    Screening measures every schedule alike; final times exist for the best only. The latest record
    counts, whatever its sources: `Present.newest` keeps older ones out.
    """
    found: dict[str, dict[Schedule, float]] = {"screen": {}, "final": {}}
    for r in timed(records, (tokens,), token_tile, routing, variant):
        assert r.time_us
        found[r.stage][Schedule.from_dict(r.schedule)] = r.time_us.median
    return {**found["final"], **found["screen"]}


def agreement(
    shape: Shape,
    tokens: int,
    token_tile: int,
    measured: Mapping[Schedule, float],
    variant: Variant = USUAL,
) -> Agreement:
    """Compares predictions with ``measured`` medians, of which there is at least one."""
    us = np.array(list(measured.values()))
    specs = (variant.spec(shape, schedule, token_tile) for schedule in measured)
    predicted = np.array([estimate(spec, tokens).us for spec in specs])
    near = us <= 1.15 * us.min()
    logs = np.log(predicted / us)
    top = np.argsort(predicted, kind="stable")[:TOP]
    return Agreement(
        tokens=tokens,
        schedules=len(us),
        spearman=spearman(predicted, us),
        near_best=spearman(predicted[near], us[near]),
        ratio=float(np.exp(logs.mean())),
        error=float(np.abs(logs).mean()),
        regret=float(us[top].min() / us.min() - 1),
    )


def spearman(a: NDArray[np.float64], b: NDArray[np.float64]) -> float | None:
    """The rank correlation of two series; equal values share their mean rank.

    None if there are fewer than three values or all of a series are equal.
    """
    from scipy.stats import spearmanr

    if len(a) < 3 or np.ptp(a) == 0 or np.ptp(b) == 0:
        return None
    return float(spearmanr(a, b).statistic)
