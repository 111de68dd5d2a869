"""What pruning saves and loses: searches of recorded times with it and without."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from monomoe_gen import cost, prune
from monomoe_gen.schedule import KernelSpec, Schedule
from monomoe_gen.search import Search
from monomoe_gen.search_study import STARTS, Times
from monomoe_gen.shapes import Shape

MARGINS = (0.02, 0.05, 0.1, 0.2)


@dataclass(frozen=True)
class Pruned:
    """Searches of ``trials`` trials: ``margin`` None never prunes.

    ``timed`` is the share of timings that were made. ``regret`` is by how much the best schedule
    found is slower than the best recorded one: the mean over token counts and seeds, and the worst
    seed and token count.
    """

    start: str
    margin: float | None
    timed: float
    regret: float
    worst: float


def study(
    shape: Shape,
    times: Times,
    sampler: str,
    seeds: int,
    trials: int,
    token_tile: int = 8,
    margins: Sequence[float] = MARGINS,
) -> list[Pruned]:
    """Searches ``times`` with every margin and start, the same seeds for each."""
    tokens = tuple(next(iter(times.values())))
    trials = min(trials, len(times))
    specs = [KernelSpec(shape, schedule, token_tile) for schedule in times]
    begin = {STARTS[0]: cost.favourites(specs, tokens), STARTS[1]: []}
    found = []
    for start, first in begin.items():
        for margin in (None, *margins):
            runs = [_search(times, sampler, seed, first, trials, margin) for seed in range(seeds)]
            timed, regrets = zip(*runs, strict=True)
            share = float(np.sum(timed)) / (seeds * trials * len(tokens))
            mean, worst = float(np.mean(regrets)), float(np.max(regrets))
            found.append(Pruned(start, margin, share, mean, worst))
    return found


def _search(
    times: Times,
    sampler: str,
    seed: int,
    first: Sequence[Schedule],
    trials: int,
    margin: float | None,
) -> tuple[int, list[float]]:
    """The timings made, and the regret at each token count."""
    tokens = tuple(next(iter(times.values())))
    search = Search(times, tokens, seed, first, sampler)
    best: dict[int, float] = {}
    timed = 0
    for _ in range(trials):
        schedule = search.ask(in_order=False)
        assert schedule, "trials are at most the candidates"
        known: dict[int, float] = {}
        for group in prune.turns(tokens):
            if margin is not None and prune.hopeless(known, best, margin):
                break
            known |= {n: times[schedule][n] for n in group}
        timed += len(known)
        best |= {n: min(us, best.get(n, math.inf)) for n, us in known.items()}
        search.tell(schedule, prune.likely(known, best))
    least = {n: min(t[n] for t in times.values()) for n in tokens}
    return timed, [best[n] / least[n] - 1 for n in tokens]
