"""The statistics of the gate: what they claim of simulated times, and how often they are wrong.

The simulated noise is worse than that of a good machine: every process draws an offset of its own
for each kernel, launches drift within a block, and single measurements have heavy tails.
"""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pytest
from scipy import stats

from monomoe_gen import regress
from monomoe_gen.errors import MonomoeError
from monomoe_gen.gate import Plan
from monomoe_gen.regress import Block, Verdict

SEED = 20260704
CELLS = 12  # of a run
A_A_RUNS = 84  # 1008 cells


@dataclass(frozen=True)
class Noise:
    """Standard deviations of log times, and the Student-t scale of one measurement."""

    process: float = 0.01  # of a process, for both kernels alike
    kernel: float = 0.005  # of a process, for each kernel
    drift: float = 0.003  # from one measurement to the next
    single: float = 0.002  # times Student's t with 3 degrees of freedom


class Machine:
    """Times a candidate that is slower by ``effect`` than its baseline."""

    def __init__(self, effect: float, noise: Noise, random: np.random.Generator) -> None:
        self.effect, self.noise, self.random = math.log1p(effect), noise, random

    def process(self, number: int, blocks: int) -> list[Block]:
        n, random = self.noise, self.random
        offset = random.normal(0, n.process) + random.normal(0, n.kernel, 2) + (0, self.effect)
        found = []
        for _ in range(blocks):
            drift = random.normal(0, n.drift)
            single = n.single * random.standard_t(3, 4)
            times = [
                math.exp(offset[k] + drift * i + single[i]) for i, k in enumerate((0, 1, 1, 0))
            ]
            found.append(Block(number, regress.abba(*times)))
        return found


def run(effect: float, noise: Noise, random: np.random.Generator, plan: Plan) -> list[Verdict]:
    """The verdicts of one check of all cells, as `gate.check` takes them."""
    machines = [Machine(effect, noise, random) for _ in range(CELLS)]
    blocks: dict[int, list[Block]] = {cell: [] for cell in range(CELLS)}
    verdicts: dict[int, Verdict] = {}
    measured = 0
    for look in plan.looks:
        for cell in blocks.keys() - verdicts.keys():
            for number in range(measured, look):
                blocks[cell] += machines[cell].process(number, plan.blocks)
        measured = look
        for cell, judgement in regress.judge(blocks, plan.delta, len(plan.looks)).items():
            if judgement.verdict is not Verdict.INCONCLUSIVE:
                verdicts.setdefault(cell, judgement.verdict)
    return [verdicts.get(cell, Verdict.INCONCLUSIVE) for cell in blocks]


def rates(effect: float, noise: Noise, runs: int) -> dict[Verdict, float]:
    random = np.random.default_rng(SEED)
    counts = Counter(v for _ in range(runs) for v in run(effect, noise, random, Plan()))
    return {verdict: counts[verdict] / (runs * CELLS) for verdict in Verdict}


@pytest.mark.parametrize("kernel", [0.003, 0.01])
def test_false_alarms_are_at_most_one_percent(kernel: float) -> None:
    found = rates(0.0, Noise(kernel=kernel), A_A_RUNS)
    assert found[Verdict.REGRESSION] <= 0.01
    assert found[Verdict.IMPROVED] <= 0.01
    assert found[Verdict.OK] > 0.95


def test_no_false_alarm_at_the_threshold_itself_or_on_a_noisy_machine() -> None:
    """The worst case of the null hypothesis, and processes that differ more than the threshold."""
    assert rates(Plan().delta, Noise(), 10)[Verdict.REGRESSION] <= 0.01
    assert rates(0.0, Noise(kernel=0.03), 10)[Verdict.REGRESSION] <= 0.01


@pytest.mark.parametrize(
    ("effect", "kernel", "least"),
    [(0.04, 0.003, 0.99), (0.04, 0.01, 0.9), (0.08, 0.003, 0.99), (0.08, 0.01, 0.99)],
)
def test_slow_downs_are_found(effect: float, kernel: float, least: float) -> None:
    assert rates(effect, Noise(kernel=kernel), 8)[Verdict.REGRESSION] >= least


def test_speed_ups_are_found() -> None:
    """Or at least not taken for anything worse: OK needs less evidence and ends the measuring."""
    found = rates(-0.06, Noise(kernel=0.003), 8)
    assert found[Verdict.IMPROVED] > 0.9
    assert found[Verdict.IMPROVED] + found[Verdict.OK] == 1


def blocks_of(ratios: Sequence[float], clock: float = 0.0) -> list[Block]:
    return [Block(i, ratio, clock) for i, ratio in enumerate(ratios)]


def test_a_steady_drift_cancels() -> None:
    a1, b1, b2, a2 = (10 * 1.02**i for i in range(4))
    assert regress.abba(a1, b1, b2, a2) == pytest.approx(0, abs=1e-12)
    assert regress.abba(10, 11, 11, 10) == pytest.approx(math.log(1.1))


def test_the_interval_covers_the_truth_as_often_as_it_says() -> None:
    random = np.random.default_rng(SEED)
    missed = 0
    for _ in range(400):
        machine = Machine(0.03, Noise(), random)
        found = regress.estimate([b for p in range(4) for b in machine.process(p, 2)])
        missed += not found.low(0.025) < math.log1p(0.03) < found.high(0.025)
    assert missed / 400 <= 0.06


def test_blocks_of_one_process_are_one_draw() -> None:
    """However often one process repeats itself, it does not make the others agree."""
    few = regress.estimate([Block(p, 0.05 + 0.01 * p) for p in range(4)])
    many = regress.estimate([Block(p, 0.05 + 0.01 * p) for p in range(4) for _ in range(50)])
    assert many.low(0.025) == pytest.approx(few.low(0.025), rel=0.1)


def test_processes_may_have_lost_blocks() -> None:
    uneven = [Block(0, 0.01), Block(0, 0.03), Block(1, 0.02), Block(2, 0.02), Block(2, 0.02)]
    found = regress.estimate(uneven)
    assert found.effect == pytest.approx(0.02)
    assert found.low(0.025) < 0.02 < found.high(0.025)


def test_one_process_decides_nothing() -> None:
    (found,) = regress.judge({"a": [Block(0, 0.5)]}, 0.02).values()
    assert found.verdict is Verdict.INCONCLUSIVE
    assert (found.low, found.high) == (-1, math.inf)


def test_a_recorded_ratio_is_no_truer_than_one_process() -> None:
    """With ever more processes the interval does not get narrower than the record is uncertain."""
    random = np.random.default_rng(SEED)
    blocks = blocks_of(random.normal(0, 0.01, 64))
    paired = regress.estimate(blocks)
    recorded = regress.estimate(blocks, against_record=True)
    assert paired.high(0.025) - paired.effect < 0.004
    assert 0.015 < recorded.high(0.025) - recorded.effect < 0.03


def test_holm_asks_more_of_each_cell_when_there_are_many() -> None:
    suspicious = blocks_of([0.030, 0.033, 0.024, 0.029])
    quiet = blocks_of([0.001, -0.001, 0.002, -0.002])
    alone = regress.judge({"a": suspicious}, 0.02)
    crowd = regress.judge({"a": suspicious, **{f"b{i}": quiet for i in range(11)}}, 0.02)
    assert alone["a"].verdict is Verdict.REGRESSION
    assert crowd["a"].verdict is Verdict.INCONCLUSIVE
    assert crowd["b0"].verdict is Verdict.OK


def test_holm_steps_down() -> None:
    """A cell that half the level would not convict is convicted once the clearer one is out."""
    clear, borderline = (
        blocks_of([0.08, 0.081, 0.079, 0.08]),
        blocks_of([0.036, 0.033, 0.024, 0.029]),
    )
    quiet = blocks_of([0.001, -0.001, 0.002, -0.002])
    assert regress.judge({"a": clear, "b": borderline}, 0.02)["b"].verdict is Verdict.REGRESSION
    assert regress.judge({"a": quiet, "b": borderline}, 0.02)["b"].verdict is Verdict.INCONCLUSIVE


@pytest.mark.parametrize("processes", [4, 8])
def test_intervals_of_few_processes_are_as_wide_as_students(processes: int) -> None:
    values = np.random.default_rng(3).normal(0, 0.01, processes)
    found = regress.estimate(blocks_of(values.tolist()))
    expected = stats.t.ppf(0.975, processes - 1) * values.std(ddof=1) / math.sqrt(processes)
    assert found.high(0.025) - found.effect == pytest.approx(expected, rel=0.1)
    assert found.effect - found.low(0.025) == pytest.approx(expected, rel=0.1)


def test_every_look_spends_its_share() -> None:
    suspicious = blocks_of([0.031, 0.034, 0.023, 0.028])
    assert regress.judge({"a": suspicious}, 0.02)["a"].verdict is Verdict.REGRESSION
    assert regress.judge({"a": suspicious}, 0.02, 3)["a"].verdict is Verdict.INCONCLUSIVE


@pytest.mark.parametrize(("sign", "claim"), [(1, Verdict.REGRESSION), (-1, Verdict.IMPROVED)])
def test_a_time_that_the_clock_explains_is_no_claim(sign: int, claim: Verdict) -> None:
    ratios = [sign * r for r in (0.050, 0.051, 0.049, 0.050)]
    assert regress.judge({"a": blocks_of(ratios)}, 0.02)["a"].verdict is claim
    clocked = blocks_of(ratios, clock=-0.05 * sign)
    judgement = regress.judge({"a": clocked}, 0.02)["a"]
    assert judgement.verdict is Verdict.CLOCK_CHANGED
    assert judgement.cycles == pytest.approx(0, abs=0.001)
    partly = blocks_of(ratios, clock=-0.02 * sign)
    assert regress.judge({"a": partly}, 0.02)["a"].verdict is claim
    unclear = [
        Block(b.process, b.ratio, -sign * c)
        for b, c in zip(partly, (0.01, 0.05, 0.03, 0.04), strict=True)
    ]
    assert regress.judge({"a": unclear}, 0.02)["a"].verdict is Verdict.INCONCLUSIVE


def test_looks_double_up_to_the_cap() -> None:
    assert regress.looks(4, 16) == (4, 8, 16)
    assert regress.looks(4, 20) == (4, 8, 16, 20)
    assert regress.looks(4, 4) == (4,)


def test_the_threshold_depends_on_the_machine() -> None:
    assert regress.threshold(None) == 0.02
    assert regress.threshold(0.004) == 0.02
    assert regress.threshold(0.03) == 0.06
    assert regress.threshold(0.004, asked=0.01) == 0.01
    with pytest.raises(MonomoeError, match=r"identical kernels differ by 0.40%.*at least 0.80%"):
        regress.threshold(0.004, asked=0.005)
    with pytest.raises(MonomoeError, match="not been calibrated"):
        regress.threshold(None, asked=0.01)


def test_the_noise_floor_is_what_a_first_look_shows_of_equal_kernels() -> None:
    random = np.random.default_rng(SEED)
    noise = Noise(kernel=0.005, drift=0, single=0)
    cells = [
        [b for p in range(40) for b in Machine(0.0, noise, random).process(p, 2)] for _ in range(12)
    ]
    expected = 1.96 * 0.005 * math.sqrt(2 / 4)
    assert regress.noise_floor(cells, 4) == pytest.approx(expected, rel=0.15)
    biased = [[Block(p, 0.01) for p in range(8)]]
    assert regress.noise_floor(biased, 4) == pytest.approx(0.01, rel=0.02)
