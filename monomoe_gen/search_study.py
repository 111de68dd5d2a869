"""How good the samplers are: the tuner's search on recorded times, over many seeds.

Regret after n trials is how much slower the best schedule found is than the best recorded one, as a
fraction, averaged over token counts. ``tuning_db/<gpu>/search-study.json`` keeps the last study of
each model; ``tuning_db/README.md`` shows them.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from monomoe_gen import cost, ranking, samplers
from monomoe_gen.errors import MonomoeError
from monomoe_gen.files import write_atomically
from monomoe_gen.paths import tuning_db_dir
from monomoe_gen.schedule import KernelSpec, Schedule
from monomoe_gen.search import Search
from monomoe_gen.shapes import Shape
from monomoe_gen.strict import read_versioned
from monomoe_gen.tuning_db import Record

FORMAT = 1
FILE = "search-study.json"
USUAL = tuple(name for name in samplers.SAMPLERS if name != "gp")  # gp takes minutes
SEEDS, TRIALS = 20, 128
LEAST = 2 * samplers.STARTUP_TRIALS  # schedules that say anything
STARTS = ("cost model", "nothing")

Times = Mapping[Schedule, Mapping[int, float]]
"""Median microseconds of each schedule by token count."""


@dataclass(frozen=True)
class Curve:
    """Regret of one sampler after each number of trials: mean and worst over the seeds.

    ``start`` is ``cost model`` if its favourites come first, as in `tune`, or ``nothing``.
    """

    sampler: str
    start: str
    mean: tuple[float, ...]
    worst: tuple[float, ...]


@dataclass(frozen=True)
class Study:
    """The curves of one model over ``schedules`` recorded ones, after ``trials`` trials."""

    model: str
    tokens: tuple[int, ...]
    schedules: int
    feasible: int
    seeds: int
    trials: tuple[int, ...]
    curves: tuple[Curve, ...]


def favoured(studies: Sequence[Study]) -> str:
    """The sampler of least mean regret over the studies, their numbers of trials and both starts.

    How `tune` begins, with the cost model's favourites, tells little: they leave little to find.
    The other start shows what is left where they mislead.
    """
    names = dict.fromkeys(curve.sampler for found in studies for curve in found.curves)

    def regret(name: str) -> float:
        curves = [c.mean for found in studies for c in found.curves if c.sampler == name]
        return float(np.mean([np.mean(curve) for curve in curves]))

    return min(names, key=regret)


@dataclass(frozen=True)
class _File:
    format: int
    studies: tuple[Study, ...]


def recorded_times(records: Sequence[Record], tokens: Sequence[int], token_tile: int) -> Times:
    """The screened medians of every schedule that was timed at all ``tokens``."""
    medians = {n: ranking.medians(records, n, token_tile) for n in tokens}
    everywhere = set.intersection(*(set(found) for found in medians.values()))
    return {s: {n: medians[n][s] for n in tokens} for s in sorted(everywhere)}


def study(
    shape: Shape,
    times: Times,
    feasible: int,
    names: Sequence[str] = USUAL,
    seeds: int = SEEDS,
    trials: int = TRIALS,
    token_tile: int = 8,
    done: Callable[[str], object] = lambda name: None,
) -> Study:
    """Searches ``times`` with each sampler and seed, with and without the cost model's favourites.

    ``feasible`` is the size of the whole space, for the record.

    Raises:
        MonomoeError: too few schedules to say anything.
    """
    if len(times) < LEAST:
        raise MonomoeError(
            f"{len(times)} schedules of {shape.name} are recorded at all these token counts, a "
            f"study needs {LEAST}; run `monomoe-gen tune --model "
            f"{shape.name}` on a GPU first"
        )
    tokens = tuple(next(iter(times.values())))
    after = _checkpoints(min(trials, len(times)))
    specs = [KernelSpec(shape, schedule, token_tile) for schedule in times]
    begin = {STARTS[0]: cost.favourites(specs, tokens), STARTS[1]: []}
    curves = []
    for name in names:
        for start, first in begin.items():
            runs = []
            for seed in range(seeds):
                runs.append(_regrets(times, name, seed, first, after))
                done(f"{name}, begun with {start}")
            mean, worst = np.mean(runs, axis=0), np.max(runs, axis=0)
            curves.append(Curve(name, start, _rounded(mean), _rounded(worst)))
    return Study(shape.name, tokens, len(times), feasible, seeds, after, tuple(curves))


def steps(names: Sequence[str], seeds: int) -> int:
    """How often `study` calls ``done``."""
    return len(names) * len(STARTS) * seeds


def _regrets(
    times: Times, sampler: str, seed: int, first: Sequence[Schedule], after: Sequence[int]
) -> list[float]:
    tokens = tuple(next(iter(times.values())))
    least = {n: min(t[n] for t in times.values()) for n in tokens}
    search = Search(times, tokens, seed, first, sampler)
    best = dict.fromkeys(tokens, math.inf)
    regrets = []
    for count in range(1, after[-1] + 1):
        schedule = search.ask(in_order=False)
        assert schedule, "trials are at most the candidates"
        search.tell(schedule, {n: math.log(us) for n, us in times[schedule].items()})
        best = {n: min(us, times[schedule][n]) for n, us in best.items()}
        if count in after:
            regrets.append(float(np.mean([best[n] / least[n] - 1 for n in tokens])))
    return regrets


def _checkpoints(trials: int) -> tuple[int, ...]:
    """Numbers of trials to look at: powers of two times 1 and 1.5, and the last."""
    points = {int(base * 2**i) for i in range(3, 20) for base in (1, 1.5)}
    return (*sorted(p for p in points if p < trials), trials)


def _rounded(values: Sequence[float]) -> tuple[float, ...]:
    return tuple(round(float(v), 5) for v in values)


def study_path(gpu: str) -> Path:
    """The project's file of studies for a kind of GPU (its slug)."""
    return tuning_db_dir() / gpu / FILE


def read(path: Path) -> tuple[Study, ...]:
    """The recorded studies; none if there is no such file.

    Raises:
        DatabaseError: a field is unknown, missing or wrong.
    """
    if not path.exists():
        return ()
    return read_versioned(_File, path, FORMAT).studies


def store(path: Path, new: Study) -> None:
    """Puts ``new`` in place of what was known of its model.

    Raises:
        DatabaseError: as `read`.
    """
    others = [old for old in read(path) if old.model != new.model]
    studies = tuple(sorted([*others, new], key=lambda s: s.model))
    path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(dataclasses.asdict(_File(FORMAT, studies)), indent=1) + "\n"
    write_atomically(path, text.encode())


def rows(found: Study) -> list[dict[str, str | int | float]]:
    """One row a sampler and start, the mean regret in per cent after each number of trials."""
    return [
        {
            "sampler": curve.sampler,
            "start": curve.start,
            **{f"{n}": round(100 * r, 2) for n, r in zip(found.trials, curve.mean, strict=True)},
            "worst": round(100 * curve.worst[-1], 2),
        }
        for curve in found.curves
    ]
