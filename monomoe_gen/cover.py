"""Few kernels for many cells: the k schedules with the least maximal regret, from records.

The regret of a schedule in a cell is how much slower it is than the fastest one recorded there; of
a set, what its best member has. Choosing k of n to minimise the largest is the k-center problem.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, islice

import numpy as np
from numpy.typing import NDArray

from monomoe_gen.objective import Cell, Objective
from monomoe_gen.ranking import medians
from monomoe_gen.schedule import Schedule
from monomoe_gen.tuning_db import Record

Floats = NDArray[np.float64]
MOST_SUBSETS = 500_000  # that are all looked at


@dataclass(frozen=True)
class Times:
    """Recorded medians: us ``[schedules, cells]``, the least of each cell over all schedules.

    ``missing`` are cells of the objective that were not searched. ``schedules`` were measured in
    all the others, ``weights`` are the objective's over those, summing to 1.
    """

    schedules: tuple[Schedule, ...]
    cells: tuple[Cell, ...]
    us: Floats
    least: Floats
    weights: Floats
    missing: tuple[Cell, ...]

    @property
    def regret(self) -> Floats:
        return self.us / self.least - 1


@dataclass(frozen=True)
class Cover:
    """Schedules chosen (rows of `Times`), their largest and their weighted mean regret, and how."""

    chosen: tuple[int, ...]
    worst: float
    mean: float
    method: str


def recorded(records: Sequence[Record], objective: Objective, token_tile: int) -> Times | None:
    """What the records say about the cells of ``objective``; None if no schedule is in all cells.

    A cell counts if a schedule was screened in it: where only finalists were timed, there is little
    to choose from.
    """
    found: dict[Cell, Mapping[Schedule, float]] = {
        cell: medians(records, cell[0], token_tile, cell[1]) for cell in objective.weights
    }
    screened = {(r.tokens, r.routing) for r in records if r.stage == "screen"}
    cells = tuple(cell for cell, times in found.items() if times and cell in screened)
    missing = tuple(cell for cell in found if cell not in cells)
    everywhere = set.intersection(*(set(found[cell]) for cell in cells)) if cells else set()
    if not everywhere:
        return None
    schedules = tuple(sorted(everywhere))
    weights = np.array([objective.weights[cell] for cell in cells])
    return Times(
        schedules=schedules,
        cells=cells,
        us=np.array([[found[cell][s] for cell in cells] for s in schedules]),
        least=np.array([min(found[cell].values()) for cell in cells]),
        weights=weights / weights.sum(),
        missing=missing,
    )


def cover(regret: Floats, weights: Floats, count: int) -> Cover:
    """The best ``count`` rows of ``regret`` ``[schedules, cells]``, all of them if there are fewer.

    The largest regret decides, then the mean weighted by ``weights``. Rows that another row beats
    in every cell are left out first. All subsets are looked at if they are few enough; otherwise
    rows are added greedily and then exchanged one by one while that helps, which may miss the best.
    """
    rows = _undominated(regret)
    values = regret[rows]
    count = min(count, len(rows))
    subsets = math.comb(len(rows), count)
    if subsets <= MOST_SUBSETS:
        best = _exact(values, weights, count)
        method = f"exact, {subsets} subsets of {len(rows)}"
    else:
        best = _greedy(values, weights, count)
        method = f"greedy with exchanges, of {len(rows)}"
    worst, mean = _score(values, weights, best)
    return Cover(tuple(int(rows[i]) for i in best), worst, mean, method)


def _undominated(regret: Floats) -> NDArray[np.intp]:
    """Rows that no other row beats or equals in every cell; the first of equal ones stays."""
    kept: list[int] = []
    for i in np.argsort(regret.sum(axis=1), kind="stable"):  # only earlier rows can dominate
        if not kept or not (regret[kept] <= regret[i]).all(axis=1).any():
            kept.append(int(i))
    return np.array(sorted(kept), dtype=np.intp)


def _score(values: Floats, weights: Floats, chosen: Sequence[int]) -> tuple[float, float]:
    best = values[list(chosen)].min(axis=0)
    return float(best.max()), float(best @ weights)


def _exact(values: Floats, weights: Floats, count: int) -> tuple[int, ...]:
    best: tuple[tuple[float, float], tuple[int, ...]] = ((math.inf, math.inf), ())
    for block in _blocks(combinations(range(len(values)), count), 20_000):
        least = values[block].min(axis=1)
        worst, mean = least.max(axis=1), least @ weights
        i = int(np.lexsort((mean, worst))[0])
        best = min(best, ((float(worst[i]), float(mean[i])), tuple(block[i].tolist())))
    return best[1]


def _blocks(subsets: Iterator[tuple[int, ...]], size: int) -> Iterator[NDArray[np.intp]]:
    while block := list(islice(subsets, size)):
        yield np.array(block, dtype=np.intp)


def _greedy(values: Floats, weights: Floats, count: int) -> tuple[int, ...]:
    every = range(len(values))
    chosen: list[int] = []
    for _ in range(count):
        rest = [i for i in every if i not in chosen]
        chosen.append(min(rest, key=lambda i: _score(values, weights, [*chosen, i])))
    while True:
        exchanged = [
            [*chosen[:place], i, *chosen[place + 1 :]]
            for place in range(count)
            for i in every
            if i not in chosen
        ]
        best = min(exchanged, key=lambda c: _score(values, weights, c))
        if _score(values, weights, best) >= _score(values, weights, chosen):
            return tuple(sorted(chosen))
        chosen = best
