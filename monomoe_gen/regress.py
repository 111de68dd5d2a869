"""Did a kernel get slower? The statistics of the regression gate; pure, nothing here measures.

The unit of replication is a fresh process: what one process knows of a kernel (where its memory
lies, where its code lies) is one draw, however often it repeats the measurement. A process times
blocks of baseline, candidate, candidate, baseline, so a steady drift cancels within a block. The
effect is the mean over processes of the log ratio of times; its interval comes from a bootstrap
over processes, then blocks, widened for the small number of processes as Student's t asks.

A run may look at the data several times, with more processes each time. The error level is shared
equally by the looks, and over the cells of a run Holm's procedure decides what is claimed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import TypeVar

import numpy as np
import numpy.typing as npt
from scipy.special import ndtri, stdtrit

from monomoe_gen.errors import MonomoeError

Floats = npt.NDArray[np.float64]
Key = TypeVar("Key", bound=Hashable)

LEAST_DELTA = 0.02  # no change below this is called a regression
LEVEL = 0.05  # of the two-sided interval, over all looks
RESAMPLES = 2000
SAME_CLOCK = 0.005  # log ratio of clocks up to which times speak for themselves
_TINY = 1e-9  # smallest p-value told apart


class Verdict(str, Enum):
    """What is known about one cell (model, tokens, routing), or about the run."""

    OK = "OK"
    IMPROVED = "IMPROVED"
    INCONCLUSIVE = "INCONCLUSIVE"
    CLOCK_CHANGED = "CLOCK_CHANGED"
    ENVIRONMENT = "ENVIRONMENT"
    REGRESSION = "REGRESSION"
    WRONG = "WRONG"


@dataclass(frozen=True)
class Block:
    """One comparison made in process number ``process``.

    ``ratio`` is log(candidate time / baseline time), ``clock`` log(candidate clock / baseline
    clock), so that their sum compares cycles; 0 if the clocks are unknown.
    """

    process: int
    ratio: float
    clock: float = 0.0


@dataclass(frozen=True)
class Estimate:
    """A mean log ratio and how it varies when processes and blocks are drawn again.

    ``clock`` is the mean log ratio of the clocks. ``deviations`` are the sorted deviations of the
    bootstrap means from ``effect``, already corrected for the number of ``processes``.
    """

    effect: float
    clock: float
    processes: int
    deviations: Floats

    def low(self, alpha: float) -> float:
        """The true effect is below this with probability ``alpha``."""
        return self.effect - self._reach(-self._quantile(alpha), alpha)

    def high(self, alpha: float) -> float:
        """The true effect is above this with probability ``alpha``."""
        return self.effect + self._reach(self._quantile(1 - alpha), alpha)

    def _quantile(self, q: float) -> float:
        position = q * (len(self.deviations) - 1)
        below = int(position)
        above = min(below + 1, len(self.deviations) - 1)
        part = position - below
        return float(self.deviations[below] * (1 - part) + self.deviations[above] * part)

    def _reach(self, distance: float, alpha: float) -> float:
        """Wider than the bootstrap says, which knows the spread from few processes only."""
        if self.processes < 2:
            return math.inf
        student = float(stdtrit(self.processes - 1, alpha) / ndtri(alpha))
        return max(distance, 0.0) * student


@dataclass(frozen=True)
class Judgement:
    """The verdict on one cell; effects and bounds are changes of the time, 0.03 is 3 % slower.

    ``low`` and ``high`` bound the effect at the level of one look. ``cycles`` is the effect in
    clock cycles.
    """

    verdict: Verdict
    effect: float
    low: float
    high: float
    cycles: float
    processes: int
    blocks: int


def abba(a1: float, b1: float, b2: float, a2: float) -> float:
    """The log ratio B / A of four times in this order; a steady drift cancels."""
    return (math.log(b1) + math.log(b2) - math.log(a1) - math.log(a2)) / 2


def threshold(noise: float | None, asked: float | None = None) -> float:
    """``delta``: the larger of 2 % and twice the A/A ``noise`` of this host, or what was ``asked``.

    Raises:
        MonomoeError: asked for less than the host can tell apart.
    """
    least = LEAST_DELTA if noise is None else 2 * noise
    if asked is None:
        return max(LEAST_DELTA, least)
    if asked < least:
        found = (
            "this GPU has not been calibrated, so nothing below 2 % is taken; run "
            "`monomoe-gen calibrate`"
            if noise is None
            else f"identical kernels differ by {noise:.2%} here, so give at least {least:.2%}"
        )
        raise MonomoeError(f"asked for a threshold of {asked:.2%}: {found}")
    return asked


def looks(first: int, cap: int) -> tuple[int, ...]:
    """Numbers of processes after which the data are looked at: doubling, the last one ``cap``."""
    counts = []
    while first < cap:
        counts.append(first)
        first *= 2
    return (*counts, cap)


def estimate(
    blocks: Sequence[Block], cycles: bool = False, against_record: bool = False
) -> Estimate:
    """The effect over ``blocks``, of cycles instead of time if asked.

    ``against_record``: the ratios are against one number from another process, whose own draw is
    as uncertain as any; the deviations include it.
    """
    by_process: dict[int, list[float]] = {}
    for block in blocks:
        by_process.setdefault(block.process, []).append(block.ratio + cycles * block.clock)
    values = list(by_process.values())
    n = len(values)
    effect = float(np.mean([np.mean(v) for v in values]))
    clock = float(np.mean([block.clock for block in blocks]))
    if n < 2:
        return Estimate(effect, clock, n, np.zeros(1))
    random = np.random.default_rng(n)
    width = max(map(len, values))
    table = np.array([v + [0.0] * (width - len(v)) for v in values])
    sizes = np.array([len(v) for v in values])
    process = random.integers(0, n, (RESAMPLES, n))
    size = sizes[process][..., None]
    block_index = (random.random((RESAMPLES, n, width)) * size).astype(np.intp)
    drawn = table[process[..., None], block_index]
    kept = np.arange(width) < size
    resampled = ((drawn * kept).sum(axis=2) / size[..., 0]).mean(axis=1)
    scale = math.sqrt(n / (n - 1)) * (math.sqrt(n + 1) if against_record else 1.0)
    return Estimate(effect, clock, n, np.sort(resampled - effect) * scale)


def judge(
    cells: Mapping[Key, Sequence[Block]],
    delta: float,
    look_count: int = 1,
    against_record: frozenset[Key] = frozenset(),
    level: float = LEVEL,
) -> dict[Key, Judgement]:
    """The verdicts of one look at all cells of a run; INCONCLUSIVE means: measure more, or give up.

    A slower or faster time is claimed if Holm's procedure over all cells rejects that the effect
    is within ``delta``; OK needs the interval of the cell alone to end below it. If the
    clocks differ, a claim has to hold for the cycles too; where they stay the same it is
    CLOCK_CHANGED.
    """
    alpha = level / 2 / look_count
    limit = math.log1p(delta)
    times = {k: estimate(b, against_record=k in against_record) for k, b in cells.items()}
    above = {k: _smallest_level(partial(_exceeds, e, limit)) for k, e in times.items()}
    below = {k: _smallest_level(partial(_falls_below, e, -limit)) for k, e in times.items()}
    slower, faster = _holm(above, alpha), _holm(below, alpha)
    found = {}
    for key, time in times.items():
        verdict = Verdict.INCONCLUSIVE
        if key in slower or key in faster:
            verdict = Verdict.REGRESSION if key in slower else Verdict.IMPROVED
            if abs(time.clock) > SAME_CLOCK:
                cycles = estimate(cells[key], cycles=True, against_record=key in against_record)
                verdict = _by_cycles(verdict, cycles, limit, alpha)
        elif time.high(alpha) < limit:
            verdict = Verdict.OK
        found[key] = Judgement(
            verdict=verdict,
            effect=math.expm1(time.effect),
            low=math.expm1(time.low(alpha)),
            high=math.expm1(time.high(alpha)),
            cycles=math.expm1(time.effect + time.clock),
            processes=time.processes,
            blocks=len(cells[key]),
        )
    return found


def _by_cycles(claim: Verdict, cycles: Estimate, limit: float, alpha: float) -> Verdict:
    """What is left of a claim about the time when the clocks differed too."""
    low, high = cycles.low(alpha), cycles.high(alpha)
    same = high < limit if claim is Verdict.REGRESSION else low > -limit
    holds = low > limit if claim is Verdict.REGRESSION else high < -limit
    return Verdict.CLOCK_CHANGED if same else claim if holds else Verdict.INCONCLUSIVE


def noise_floor(cells: Sequence[Sequence[Block]], processes: int) -> float:
    """The A/A floor: of comparisons of equal kernels, 95 % show a smaller change than this.

    ``cells`` are such comparisons. One takes ``processes`` of them, the first look of a run; they
    are drawn with replacement, so a bias of a cell stays in and chance is that of one look.
    """
    random = np.random.default_rng(processes)
    drawn = []
    for blocks in cells:
        by_process: dict[int, list[float]] = {}
        for block in blocks:
            by_process.setdefault(block.process, []).append(block.ratio)
        means = np.array([np.mean(v) for v in by_process.values()])
        picks = random.integers(0, len(means), (RESAMPLES, processes))
        drawn.append(np.abs(means[picks].mean(axis=1)))
    return float(math.expm1(np.quantile(np.concatenate(drawn), 0.95)))


def _holm(p_values: Mapping[Key, float], alpha: float) -> set[Key]:
    """The hypotheses that Holm's step-down procedure rejects."""
    rejected: set[Key] = set()
    for key, p in sorted(p_values.items(), key=lambda item: item[1]):
        if p > alpha / (len(p_values) - len(rejected)):
            break
        rejected.add(key)
    return rejected


def _exceeds(found: Estimate, limit: float, alpha: float) -> bool:
    return found.low(alpha) > limit


def _falls_below(found: Estimate, limit: float, alpha: float) -> bool:
    return found.high(alpha) < limit


def _smallest_level(holds: Callable[[float], bool]) -> float:
    """The smallest level at which a bound is on the far side; 1 if it never is."""
    least, most = math.log(_TINY), math.log(0.4999)
    if not holds(math.exp(most)):
        return 1.0
    for _ in range(30):
        middle = (least + most) / 2
        if holds(math.exp(middle)):
            most = middle
        else:
            least = middle
    return math.exp(most)
