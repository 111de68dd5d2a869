"""Which schedule to try next: every candidate at most once, in random order or as Optuna proposes.

Optuna sees the index of each parameter's value among those that occur, since the values are ordered
but not evenly spaced. Every token count has a study of its own; they take turns to propose, and all
of them learn from every result.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields

import numpy as np
import optuna
from optuna.distributions import BaseDistribution, IntDistribution
from optuna.samplers import TPESampler
from optuna.trial import Trial, TrialState, create_trial

from monomoe_gen.schedule import Schedule

STARTUP_TRIALS = 16  # results before TPE has anything to say

Values = Mapping[int, float]
"""What to minimise, by token count."""


class Search:
    """Hands out the schedules of ``candidates``; ``first`` come before all others, in their order.

    ``tell`` results, also those of earlier runs, before and between the asking.
    """

    def __init__(
        self,
        candidates: Iterable[Schedule],
        tokens: Sequence[int],
        seed: int = 0,
        first: Iterable[Schedule] = (),
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
        self._proposed: dict[Schedule, tuple[optuna.Study, Trial]] = {}
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self._studies = {
            n: optuna.create_study(
                sampler=TPESampler(
                    seed=seed + i, n_startup_trials=STARTUP_TRIALS, multivariate=True
                )
            )
            for i, n in enumerate(tokens)
        }
        self._turns = itertools.cycle(self._studies.values())

    def __len__(self) -> int:
        """How many candidates nobody has asked for."""
        return len(self._left)

    def ask(self, in_order: bool) -> Schedule | None:
        """The next candidate, None when there is none left.

        ``in_order`` goes on in random order; otherwise Optuna proposes, and what it proposes is
        replaced by the nearest candidate that is left.
        """
        if not self._left:
            return None
        wanted = next((s for s in self._first if s in self._left), None)
        if wanted:
            return self._take(wanted)
        if in_order or not self._distributions:
            return self._take(next(iter(self._left)))
        study = next(self._turns)
        trial = study.ask(self._distributions)
        schedule = self._decode(trial.params)
        if schedule in self._left:
            self._proposed[schedule] = study, trial
            return self._take(schedule)
        study.tell(trial, state=TrialState.FAIL)
        return self._take(self._nearest(schedule))

    def tell(self, schedule: Schedule, values: Values | None) -> None:
        """Reports what ``schedule`` reached, or None if it failed."""
        self._left.pop(schedule, None)
        own_study, trial = self._proposed.pop(schedule, (None, None))
        if values is None:
            if own_study and trial:
                own_study.tell(trial, state=TrialState.FAIL)
            return
        for tokens, study in self._studies.items():
            if study is own_study and trial:
                study.tell(trial, values[tokens])
            elif self._distributions:
                study.add_trial(
                    create_trial(
                        params=self._encode(schedule),
                        distributions=self._distributions,
                        value=values[tokens],
                    )
                )

    def _take(self, schedule: Schedule) -> Schedule:
        del self._left[schedule]
        return schedule

    def _encode(self, schedule: Schedule) -> dict[str, int]:
        return {n: self._domains[n].index(getattr(schedule, n)) for n in self._distributions}

    def _decode(self, indices: Mapping[str, int]) -> Schedule:
        return Schedule(**{n: v[indices.get(n, 0)] for n, v in self._domains.items()})

    def _nearest(self, schedule: Schedule) -> Schedule:
        """The candidate left whose indices differ least, each relative to its range."""
        left = list(self._left)
        spans = np.array([len(self._domains[n]) - 1 for n in self._distributions])
        points = np.array([list(self._encode(s).values()) for s in left])
        here = np.array(list(self._encode(schedule).values()))
        return left[int((np.abs(points - here) / spans).sum(-1).argmin())]
