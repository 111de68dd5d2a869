"""Times candidates against baselines and says what is known of each cell.

Every process of a run is a fresh worker in the sandbox. For each undecided cell it times blocks of
baseline, candidate, candidate, baseline, or the other way round in turns; where there is no other
binary to compare with, the candidate next to the stream floor. `regress` decides after 4, 8, 16
processes; a decided cell is not timed again. Candidates are validated before anything is timed.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from monomoe_gen import jobs, regress
from monomoe_gen.candidates import CellId, Method, Pair
from monomoe_gen.device import Device
from monomoe_gen.errors import EnvironmentProblem
from monomoe_gen.lab import Lab, Open, State, Step, undecided
from monomoe_gen.protocol import Env
from monomoe_gen.regress import Block, Judgement, Verdict
from monomoe_gen.sandbox import Sandbox

MOST_DISCARDED = 0.2  # of the blocks of a run


@dataclass(frozen=True)
class Plan:
    """How much to measure: processes of the first look and of the last, blocks in each.

    ``delta`` is the threshold, see `regress.threshold`. Nothing is begun once ``budget_s`` seconds
    are over; a look that they cut off decides nothing.
    """

    processes: int = 4
    cap: int = 16
    blocks: int = 2
    delta: float = regress.LEAST_DELTA
    budget_s: float = math.inf

    @property
    def looks(self) -> tuple[int, ...]:
        return regress.looks(self.processes, self.cap)


@dataclass(frozen=True)
class CellResult:
    """What became of one cell. Times are medians in microseconds, ``seconds`` were spent on it.

    ``discarded`` blocks met a GPU that lowered its clocks.
    """

    cell: CellId
    verdict: Verdict
    message: str
    method: Method
    kernel: str
    sources_hash: str
    compiler: str
    judgement: Judgement | None = None
    time_us: float | None = None
    baseline_us: float | None = None
    floor_us: float | None = None
    discarded: int = 0
    seconds: float = 0.0


@dataclass(frozen=True)
class Run:
    """All cells of a check, the GPU, the threshold they were judged by and the seconds it took."""

    cells: tuple[CellResult, ...]
    env: Env
    delta: float
    seconds: float


def check(
    pairs: Iterable[Pair],
    plan: Plan,
    floors: jobs.Floors,
    device: Device,
    open_sandbox: Open = Sandbox,
    step: Step = lambda note: None,
    validate: bool = True,
    stop: Callable[[], bool] = lambda: False,
) -> Run:
    """Judges every pair, in their order. ``step`` hears what is being measured.

    Once ``stop`` says so nothing more is measured; what was decided stays so.

    Without ``validate`` the candidates have to be known to be right.

    A GPU that is not ``device``, stops answering or throttles is the verdict ENVIRONMENT of the
    cells that were not decided before.

    Raises:
        RuntimeError: the worker's own code failed, which is a bug.
    """
    began = time.monotonic()
    lab = Lab(device, floors, open_sandbox, step)
    cells = [State(pair) for pair in pairs]
    left = f"undecided after {plan.cap} processes"

    def go_on(finished: State | None = None) -> bool:
        return not stop() and time.monotonic() - began < plan.budget_s

    try:
        if not validate or lab.validate(cells, go_on):
            _settle_untimed(cells)
        measured = 0
        for look in plan.looks:
            whole = all(
                go_on() and lab.measure(undecided(cells), process, plan.blocks, go_on)
                for process in range(measured, look)
            )
            measured = look
            refuse_throttling(cells)
            if not whole:
                over = "it was interrupted" if stop() else f"its {plan.budget_s:.0f} s were over"
                left = f"undecided when {over}"
                break
            _judge(cells, plan)
        _settle_unchanged(cells, plan.delta)
    except EnvironmentProblem as problem:
        for cell in undecided(cells):
            cell.close(Verdict.ENVIRONMENT, str(problem))
    for cell in undecided(cells):
        cell.close(Verdict.INCONCLUSIVE, left)
    seconds = round(time.monotonic() - began, 1)
    return Run(tuple(_result(cell) for cell in cells), lab.env, plan.delta, seconds)


def with_failed(run: Run, failed: Mapping[CellId, str]) -> Run:
    """The run with the cells added whose kernel does not compile, for the given reasons."""
    added = [
        CellResult(cell, Verdict.WRONG, f"does not compile: {reason}", "none", "", "", "")
        for cell, reason in failed.items()
    ]
    return replace(run, cells=tuple(sorted([*run.cells, *added], key=lambda r: r.cell)))


def compare(
    pairs: Sequence[Pair],
    plan: Plan,
    floors: jobs.Floors,
    device: Device,
    open_sandbox: Open = Sandbox,
    step: Step = lambda note: None,
    deadline: float = math.inf,
    least: int = Plan.processes,
) -> tuple[list[list[Block]], Env]:
    """Only the blocks of each pair, of ``plan.processes`` processes, and the GPU they come from.

    After the ``least`` number of processes none is begun that, if it takes as long as the last
    one, would end after ``deadline`` of `time.monotonic`.

    Raises:
        EnvironmentProblem: the GPU is another, does not answer or throttles, or a kernel fails.
    """
    lab = Lab(device, floors, open_sandbox, step)
    cells = [State(pair) for pair in pairs]
    lasted = 0.0
    for process in range(plan.processes):
        began = time.monotonic()
        if process >= least and began + lasted > deadline:
            break
        lab.measure(cells, process, plan.blocks)
        for cell in cells:
            if cell.verdict:
                raise EnvironmentProblem(f"{cell.pair.cell}: {cell.message}")
        lasted = time.monotonic() - began
    refuse_throttling(cells)
    return [cell.blocks for cell in cells], lab.env


def refuse_throttling(cells: Iterable[State]) -> None:
    """Raises `EnvironmentProblem` if the GPU lowered its clocks too often."""
    lost = kept = 0
    for cell in cells:
        lost += cell.discarded
        kept += len(cell.blocks)
    if lost > MOST_DISCARDED * (lost + kept):
        raise EnvironmentProblem(
            f"the GPU lowered its clocks during {lost} of {lost + kept} blocks; look at "
            "`nvidia-smi -q -d PERFORMANCE`"
        )


def _settle_untimed(cells: Iterable[State]) -> None:
    """Closes the cells that no time can decide."""
    for cell in undecided(cells):
        if cell.pair.method == "same":
            cell.close(Verdict.OK, "the same binary as the baseline: not timed")
        elif cell.pair.method == "none":
            reason = cell.message or "no baseline cubin"
            cell.close(Verdict.INCONCLUSIVE, f"{reason}, and no recorded ratio to compare with")


def _settle_unchanged(cells: Iterable[State], delta: float) -> None:
    """Closes the cells whose binary is the baseline's and seems not to be slower by ``delta``.

    There is no change to accept or refuse, only a GPU that may have become slower. A ratio to the
    floor differs by some per cent between processes and cards, also where nothing has happened.
    """
    for cell in undecided(cells):
        found = cell.judgement
        if cell.pair.unchanged and found and found.effect < delta and found.processes > 1:
            seen = f"not seen to be slower in {found.processes} processes"
            cell.close(Verdict.OK, f"unchanged, {seen}")


def _judge(cells: Iterable[State], plan: Plan) -> None:
    """Closes what this look decides. Cells decided before keep their place in Holm's procedure."""
    timed = dict(enumerate(cell for cell in cells if cell.blocks))
    found = regress.judge(
        {number: cell.blocks for number, cell in timed.items()},
        plan.delta,
        len(plan.looks),
        frozenset(number for number, cell in timed.items() if cell.pair.method == "floor"),
    )
    for number, judgement in found.items():
        cell = timed[number]
        if cell.verdict is None:
            cell.judgement = judgement
            if judgement.verdict is not Verdict.INCONCLUSIVE:
                cell.close(judgement.verdict, cell.message)


def _result(cell: State) -> CellResult:
    assert cell.verdict
    candidate = cell.pair.candidate
    return CellResult(
        cell=cell.pair.cell,
        verdict=cell.verdict,
        message=cell.message,
        method=cell.pair.method,
        kernel=candidate.spec.id,
        sources_hash=candidate.sources_hash,
        compiler=candidate.compiler,
        judgement=cell.judgement,
        time_us=_median(cell.candidate_us),
        baseline_us=_median(cell.baseline_us),
        floor_us=_median(cell.floors_us),
        discarded=cell.discarded,
        seconds=round(cell.seconds, 2),
    )


def _median(values: Sequence[float]) -> float | None:
    return round(float(np.median(values)), 3) if values else None
