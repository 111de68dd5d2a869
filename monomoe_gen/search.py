"""Which schedule to try next: every candidate at most once, in random order or as Optuna proposes.

Optuna sees the index of each parameter's value among those that occur, since the values are ordered
but not evenly spaced. Every token count has a study of its own; they take turns to propose, and all
of them learn from every result. A genetic sampler has one study with an objective a token count.
"""

from __future__ import annotations

import itertools
import random
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields

import numpy as np
import optuna
from optuna.distributions import BaseDistribution, IntDistribution
from optuna.trial import Trial, TrialState, create_trial

from monomoe_gen import samplers
from monomoe_gen.schedule import Schedule

Values = Mapping[int, float]
"""What to minimise, by token count."""


@dataclass(frozen=True)
class _Study:
    """One of Optuna's studies and the token counts whose values are its objectives."""

    study: optuna.Study
    tokens: tuple[int, ...]

    def objectives(self, values: Values) -> list[float]:
        return [values[n] for n in self.tokens]


class Search:
    """Hands out the schedules of ``candidates``; ``first`` come before all others, in their order.

    ``tell`` results, also those of earlier runs, before and between the asking. ``sampler`` is one
    of `samplers.SAMPLERS`.
    """

    def __init__(
        self,
        candidates: Iterable[Schedule],
        tokens: Sequence[int],
        seed: int = 0,
        first: Iterable[Schedule] = (),
        sampler: str = samplers.DEFAULT,
    ) -> None:
        everything = sorted(candidates)
        self._domains = {
            f.name: sorted({getattr(s, f.name) for s in everything}) for f in fields(Schedule)
        }
        self._distributions: dict[str, BaseDistribution] = {
            name: IntDistribution(0, len(values) - 1)
            for name, values in self._domains.items()
            if len(values) > 1
        }
        order = random.Random(seed).sample(everything, len(everything))
        self._left = dict.fromkeys(order)
        self._first = [s for s in dict.fromkeys(first) if s in self._left]
        self._places = {s: i for i, s in enumerate(order)}
        self._order = order
        self._points = np.array([list(self._encode(s).values()) for s in order])
        self._free = np.ones(len(order), dtype=np.bool_)
        self._proposed: dict[Schedule, tuple[_Study, Trial]] = {}
        self._in_order = sampler == "exhaustive" or not self._distributions
        self._evolves = sampler in samplers.EVOLVING
        self._startup = 0 if sampler == "random" else samplers.STARTUP_TRIALS
        self._results = 0
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self._studies: list[_Study] = []
        if not self._in_order:
            groups = [tuple(tokens)] if self._evolves else [(n,) for n in tokens]
            self._studies = [_new_study(sampler, seed + i, g) for i, g in enumerate(groups)]
        self._turns = itertools.cycle(self._studies)

    def __len__(self) -> int:
        """How many candidates nobody has asked for."""
        return len(self._left)

    def ask(self, in_order: bool) -> Schedule | None:
        """The next candidate, None when there is none left.

        ``in_order`` goes on in random order, as it does until there are results to learn from: a
        random candidate is a better start than the one nearest to a random point of the box.
        Otherwise Optuna proposes, and what it proposes is replaced by the nearest candidate left.
        """
        if not self._left:
            return None
        wanted = next((s for s in self._first if s in self._left), None)
        if wanted:
            return self._take(wanted)
        if in_order or self._in_order or self._results < self._startup:
            return self._take(next(iter(self._left)))
        turn = next(self._turns)
        trial = turn.study.ask(self._distributions)
        wanted = self._decode(trial.params)
        schedule = wanted if wanted in self._left else self._nearest(wanted)
        # A genome stands for the nearest candidate; other samplers hear where that really is.
        if schedule == wanted or self._evolves:
            self._proposed[schedule] = turn, trial
        else:
            turn.study.tell(trial, state=TrialState.FAIL)
        return self._take(schedule)

    def tell(self, schedule: Schedule, values: Values | None) -> None:
        """Reports what ``schedule`` reached, or None if it failed."""
        if schedule in self._left:
            self._take(schedule)
        own, trial = self._proposed.pop(schedule, (None, None))
        if values is None:
            if own and trial:
                own.study.tell(trial, state=TrialState.FAIL)
            return
        self._results += 1
        for each in self._studies:
            if each is own and trial:
                each.study.tell(trial, each.objectives(values))
            else:
                self._inform(each, schedule, values)

    def _inform(self, each: _Study, schedule: Schedule, values: Values) -> None:
        """Tells a study what it has not proposed."""
        params, objectives = self._encode(schedule), each.objectives(values)
        if self._evolves:
            each.study.enqueue_trial(params)
            trial = each.study.ask(self._distributions)
            _ = trial.relative_params  # which makes it one of the present generation
            each.study.tell(trial, objectives)
            return
        each.study.add_trial(
            create_trial(params=params, distributions=self._distributions, values=objectives)
        )

    def _take(self, schedule: Schedule) -> Schedule:
        del self._left[schedule]
        self._free[self._places[schedule]] = False
        return schedule

    def _encode(self, schedule: Schedule) -> dict[str, int]:
        return {n: self._domains[n].index(getattr(schedule, n)) for n in self._distributions}

    def _decode(self, indices: Mapping[str, int]) -> Schedule:
        return Schedule(**{n: v[indices.get(n, 0)] for n, v in self._domains.items()})

    def _nearest(self, schedule: Schedule) -> Schedule:
        """The candidate left whose indices differ least, each relative to its range."""
        spans = np.array([len(self._domains[n]) - 1 for n in self._distributions])
        here = np.array(list(self._encode(schedule).values()))
        distances = (np.abs(self._points - here) / spans).sum(-1)
        return self._order[int(np.where(self._free, distances, np.inf).argmin())]


def _new_study(sampler: str, seed: int, tokens: tuple[int, ...]) -> _Study:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        made = samplers.make(sampler, seed)
    directions = [optuna.study.StudyDirection.MINIMIZE] * len(tokens)
    return _Study(optuna.create_study(sampler=made, directions=directions), tokens)
