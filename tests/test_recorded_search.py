"""The search on recorded times: how far from the exhaustive optimum it is after n trials."""

import math
from pathlib import Path

import numpy as np
import pytest

from monomoe_gen import cost, ranking, tuning_db
from monomoe_gen.device import DEFAULT
from monomoe_gen.paths import checkout
from monomoe_gen.schedule import KernelSpec, Schedule
from monomoe_gen.search import Search
from monomoe_gen.shapes import load_shape

MODEL = "qwen3.5-35b"
TOKENS = (1, 2, 4, 8)
TRIALS = (20, 60)
FITTED_UNTIL = "2026-11-29T20"  # later records are of a kernel that hands its input over
SHAPE = load_shape(MODEL)


@pytest.fixture(scope="module")
def times() -> dict[Schedule, dict[int, float]]:
    """Screened medians of every schedule that was measured at all token counts, of one kernel."""
    every = tuning_db.read(
        tuning_db.database_path(DEFAULT, MODEL, (checkout() or Path()) / "tuning_db")
    )
    records = [record for record in every if record.at < FITTED_UNTIL]
    medians = {n: ranking.medians(records, n, 8) for n in TOKENS}
    everywhere = set.intersection(*(set(m) for m in medians.values()))
    return {s: {n: medians[n][s] for n in TOKENS} for s in sorted(everywhere)}


def regrets(
    times: dict[Schedule, dict[int, float]], seed: int, first: list[Schedule]
) -> dict[int, list[float]]:
    """After each of TRIALS, for each token count: slower than the best by this fraction."""
    best = {n: min(t[n] for t in times.values()) for n in TOKENS}
    search = Search(times, TOKENS, seed, first)
    seen: list[Schedule] = []
    found = {}
    while len(seen) < max(TRIALS):
        schedule = search.ask(in_order=False)
        assert schedule
        seen.append(schedule)
        search.tell(schedule, {n: math.log(us) for n, us in times[schedule].items()})
        if len(seen) in TRIALS:
            found[len(seen)] = [min(times[s][n] for s in seen) / best[n] - 1 for n in TOKENS]
    return found


def test_favourites_find_the_optimum_sooner(times: dict[Schedule, dict[int, float]]) -> None:
    """Twenty trials: at most 1 % off with the cost model, several per cent without it."""
    favourites = cost.favourites([KernelSpec(SHAPE, s) for s in times], TOKENS)
    assert len(times) > 500 and 10 <= len(favourites) <= 40
    plain = [regrets(times, seed, []) for seed in range(2)]
    helped = [regrets(times, seed, favourites) for seed in range(2)]
    for after in TRIALS:
        assert max(max(found[after]) for found in helped) <= 0.01
        mean = {
            name: np.mean([f[after] for f in runs])
            for name, runs in (("with", helped), ("without", plain))
        }
        assert mean["with"] <= mean["without"] / (4 if after == 20 else 1)
