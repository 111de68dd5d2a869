"""The ways to choose the next candidate, by the names that ``--sampler`` takes.

All but ``exhaustive`` are Optuna's; `search` makes them propose every candidate at most once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from optuna.samplers import BaseSampler

STARTUP_TRIALS = 16  # results before a sampler has anything to say; a generation of nsga2

SAMPLERS = {
    "tpe": "tree-structured Parzen estimators, all parameters together",
    "gp": "a Gaussian process; tenths of a second where the others take milliseconds",
    "random": "uniform in the box of all parameter values, then the nearest candidate",
    "nsga2": "a genetic algorithm, all token counts as objectives of one population",
    "exhaustive": "every candidate once, in random order",
}
EVOLVING = ("nsga2",)  # they learn only from trials that they have proposed themselves
DEFAULT = "tpe"  # by `monomoe-gen search-study`; tuning_db/README.md shows its result


def make(name: str, seed: int) -> BaseSampler:
    """A sampler of Optuna, for integers.

    Sources: TPE, Bergstra et al., NeurIPS 2011; NSGA-II, Deb et al., IEEE TEVC 6(2), 2002.
    """
    from optuna import samplers

    if name == "gp":
        return samplers.GPSampler(seed=seed, n_startup_trials=STARTUP_TRIALS)
    if name == "nsga2":
        return samplers.NSGAIISampler(seed=seed, population_size=STARTUP_TRIALS)
    if name == "random":
        return samplers.RandomSampler(seed)
    return samplers.TPESampler(seed=seed, n_startup_trials=STARTUP_TRIALS, multivariate=True)
