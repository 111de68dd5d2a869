"""Times candidates against baselines and says what is known of each cell.

Every process of a run is a fresh worker in the sandbox. For each undecided cell it times blocks of
baseline, candidate, candidate, baseline; where there is no baseline to compare with, the candidate
next to the stream floor. `regress` decides after 4, 8, 16 processes; a decided cell is not timed
again. Candidates are validated before anything is timed.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from monomoe_gen import jobs, regress
from monomoe_gen.bench import FULL, Effort, Timing
from monomoe_gen.candidates import CellId, Pair, Side
from monomoe_gen.device import Device, device_slug
from monomoe_gen.errors import EnvironmentProblem
from monomoe_gen.protocol import Cell, Env
from monomoe_gen.regress import Block, Judgement, Verdict
from monomoe_gen.sandbox import Sandbox

BLOCK = Effort(warmups=5, replays=50)  # a process draws once, however long it measures
THROTTLED = {"sw_power_cap", "hw_slowdown", "sw_thermal", "hw_thermal", "hw_power_brake"}
MOST_DISCARDED = 0.2

Method = Literal["paired", "floor", "none"]
Open = Callable[[], Sandbox]
Step = Callable[[str], object]


@dataclass(frozen=True)
class Plan:
    """How much to measure: processes of the first look and of the last, blocks in each.

    ``noise`` is the A/A floor of the GPU (None: not calibrated), ``delta`` the threshold asked for
    (None: the default).
    """

    processes: int = 4
    cap: int = 16
    blocks: int = 2
    noise: float | None = None
    delta: float | None = None

    @property
    def looks(self) -> tuple[int, ...]:
        return regress.looks(self.processes, self.cap)


@dataclass(frozen=True)
class CellResult:
    """What became of one cell. Times are medians in microseconds, ``seconds`` were spent on it."""

    cell: CellId
    verdict: Verdict
    message: str
    method: Method
    judgement: Judgement | None = None
    time_us: float | None = None
    baseline_us: float | None = None
    floor_us: float | None = None
    discarded: int = 0
    seconds: float = 0.0


@dataclass(frozen=True)
class Run:
    """All cells of a check, the GPU, the threshold they were judged by and how long it took."""

    cells: tuple[CellResult, ...]
    env: Env
    delta: float
    seconds: float


@dataclass
class _Cell:
    """A cell while it is measured."""

    pair: Pair
    blocks: list[Block] = field(default_factory=list)
    candidate_us: list[float] = field(default_factory=list)
    baseline_us: list[float] = field(default_factory=list)
    floors_us: list[float] = field(default_factory=list)
    discarded: int = 0
    seconds: float = 0.0
    judgement: Judgement | None = None
    verdict: Verdict | None = None
    message: str = ""

    @property
    def method(self) -> Method:
        if self.pair.baseline and not (self.pair.same_binary and self.pair.recorded):
            return "paired"
        return "floor" if self.pair.recorded else "none"

    def close(self, verdict: Verdict, message: str) -> None:
        self.verdict, self.message = verdict, message

    def result(self) -> CellResult:
        assert self.verdict
        return CellResult(
            cell=self.pair.cell,
            verdict=self.verdict,
            message=self.message,
            method=self.method,
            judgement=self.judgement,
            time_us=_median(self.candidate_us),
            baseline_us=_median(self.baseline_us),
            floor_us=_median(self.floors_us),
            discarded=self.discarded,
            seconds=round(self.seconds, 2),
        )


class _Stop(Exception):
    """Nothing more can be measured, for this reason."""


def check(
    pairs: Iterable[Pair],
    plan: Plan,
    floors: jobs.Floors,
    device: Device,
    open_sandbox: Open = Sandbox,
    step: Step = lambda note: None,
    validate: bool = True,
) -> Run:
    """Judges every pair. ``step`` hears what is being measured.

    A GPU that is not ``device``, stops answering or throttles is the verdict ENVIRONMENT of the
    cells that were not decided before.

    Raises:
        MonomoeError: ``plan.delta`` is finer than this GPU can tell.
        RuntimeError: the worker's own code failed, which is a bug.
    """
    began = time.monotonic()
    delta = regress.threshold(plan.noise, plan.delta)
    lab = _Lab(device, floors, open_sandbox, step)
    cells = [_Cell(pair) for pair in pairs]
    try:
        if validate and cells:
            lab.validate(cells)
        _settle_without_timing(cells)
        measured = 0
        for look in plan.looks:
            for process in range(measured, look):
                lab.measure(_open(cells), process, plan.blocks)
            measured = look
            _refuse_throttling(cells)
            _judge(cells, delta, len(plan.looks))
    except (EnvironmentProblem, _Stop) as problem:
        for cell in _open(cells):
            cell.close(Verdict.ENVIRONMENT, str(problem))
    for cell in _open(cells):
        cell.close(Verdict.INCONCLUSIVE, f"undecided after {plan.cap} processes")
    return Run(
        tuple(cell.result() for cell in cells), lab.env, delta, round(time.monotonic() - began, 1)
    )


def compare(
    pairs: Sequence[Pair],
    processes: int,
    blocks: int,
    floors: jobs.Floors,
    device: Device,
    open_sandbox: Open = Sandbox,
    step: Step = lambda note: None,
) -> tuple[list[list[Block]], Env]:
    """Only the blocks of each pair, for a calibration, and the GPU they come from.

    Raises:
        EnvironmentProblem: the GPU is another, does not answer or throttles, or a kernel fails.
    """
    lab = _Lab(device, floors, open_sandbox, step)
    cells = [_Cell(pair) for pair in pairs]
    try:
        for process in range(processes):
            lab.measure(cells, process, blocks)
            for cell in cells:
                if cell.verdict:
                    raise EnvironmentProblem(f"{cell.pair.cell}: {cell.message}")
        _refuse_throttling(cells)
    except _Stop as stop:
        raise EnvironmentProblem(str(stop)) from None
    return [cell.blocks for cell in cells], lab.env


class _Lab:
    """Asks fresh workers on one GPU and notes the answers in cells."""

    def __init__(self, device: Device, floors: jobs.Floors, open_sandbox: Open, step: Step) -> None:
        self.env: Env = {}
        self._device, self._floors, self._open, self._step = device, floors, open_sandbox, step

    def validate(self, cells: Sequence[_Cell]) -> None:
        """Closes the cells whose candidate does not run or computes wrong numbers."""
        with self._open() as box:
            self._same_gpu(box)
            groups: dict[tuple[str, bytes], list[_Cell]] = {}
            for cell in cells:
                image = cell.pair.candidate.image
                groups.setdefault((image.name, image.cubin), []).append(cell)
            for group in groups.values():
                self._validate(box, group)

    def _validate(self, box: Sandbox, group: Sequence[_Cell]) -> None:
        side = group[0].pair.candidate
        tokens = sorted({cell.pair.cell.tokens for cell in group})
        self._step(f"validating {side.spec.id}")
        request = jobs.measure(
            side.spec, side.image, tokens, group[0].pair.cell.routing, validate=True, timed=None
        )
        outcome = box.measure(request)
        answers = {answer.tokens: answer for answer in outcome.cells}
        for cell in group:
            answer = answers.get(cell.pair.cell.tokens)
            if answer is None:
                cell.close(Verdict.WRONG, f"{outcome.status}: {outcome.message}")
            elif answer.status != "ok":
                cell.close(Verdict.WRONG, f"{answer.status}: {answer.message}")

    def measure(self, cells: Sequence[_Cell], process: int, blocks: int) -> None:
        """One fresh process: ``blocks`` blocks of every cell, all blocks of a cell together."""
        if not cells:
            return
        with self._open() as box:
            self._same_gpu(box)
            for cell in cells:
                began = time.monotonic()
                for _ in range(blocks):
                    if cell.verdict is None:
                        self._step(f"process {process + 1}: {cell.pair.cell}")
                        self._block(box, cell, process)
                cell.seconds += time.monotonic() - began

    def _block(self, box: Sandbox, cell: _Cell, process: int) -> None:
        new, old = cell.pair.candidate, cell.pair.baseline
        paired = cell.method == "paired"
        answers = []
        for side in (old, new, new, old) if paired and old else (new,):
            effort = BLOCK if paired else FULL  # a recorded time is of a full measurement
            answer = self._time(box, cell, side, effort)
            if answer is None:
                return
            answers.append(answer)
        if any(_throttled(answer) for answer in answers):
            cell.discarded += 1
            return
        times = [Timing(answer.samples).median_us for answer in answers]
        clocks = [_clock(answer) for answer in answers]
        cell.floors_us += [answer.floor.stream_us for answer in answers if answer.floor]
        if paired:
            ratio = regress.abba(*times)
            clock = regress.abba(*clocks) if all(clocks) else 0.0  # type: ignore[arg-type]
            cell.candidate_us += times[1:3]
            cell.baseline_us += (times[0], times[3])
        else:
            recorded, floor = cell.pair.recorded, answers[0].floor
            assert recorded and floor
            ratio = math.log(times[0] / floor.stream_us / recorded.ratio)
            known = clocks[0] and recorded.clock_mhz
            clock = math.log(clocks[0] / recorded.clock_mhz) if known else 0.0  # type: ignore
            cell.candidate_us.append(times[0])
        cell.blocks.append(Block(process, ratio, clock))

    def _time(self, box: Sandbox, cell: _Cell, side: Side, effort: Effort) -> Cell | None:
        """The answer; None closes the cell."""
        request = jobs.measure(
            side.spec,
            side.image,
            (cell.pair.cell.tokens,),
            cell.pair.cell.routing,
            validate=False,
            timed=self._floors.timed(effort),
        )
        outcome = box.measure(request)
        if outcome.status == "ok":
            return outcome.cells[0]
        if side is cell.pair.candidate:
            cell.close(Verdict.WRONG, f"{outcome.status}: {outcome.message}")
        else:
            cell.close(
                Verdict.ENVIRONMENT,
                f"the baseline does not run here: {outcome.status}: {outcome.message}",
            )
        return None

    def _same_gpu(self, box: Sandbox) -> None:
        found = box.env
        if device_slug(str(found["gpu"])) != self._device.slug:
            raise _Stop(f"this is a check for {self._device.name}, the GPU is {found['gpu']}")
        if self.env and self.env["uuid"] != found["uuid"]:
            raise _Stop(
                f"the GPU changed from {self.env['uuid']} to {found['uuid']} during the check; "
                "let CUDA_VISIBLE_DEVICES name one"
            )
        self.env = found


def _open(cells: Iterable[_Cell]) -> list[_Cell]:
    return [cell for cell in cells if cell.verdict is None]


def _settle_without_timing(cells: Iterable[_Cell]) -> None:
    """Closes the cells that no time can decide."""
    for cell in _open(cells):
        if cell.method == "none":
            cell.close(
                Verdict.INCONCLUSIVE, "no baseline cubin and no recorded ratio to compare with"
            )


def _refuse_throttling(cells: Iterable[_Cell]) -> None:
    lost = sum(cell.discarded for cell in cells)
    kept = sum(len(cell.blocks) for cell in cells)
    if lost > MOST_DISCARDED * (lost + kept):
        raise _Stop(
            f"the GPU lowered its clocks during {lost} of {lost + kept} blocks; look at "
            "nvidia-smi -q -d PERFORMANCE"
        )


def _judge(cells: Iterable[_Cell], delta: float, looks: int) -> None:
    """Closes what this look decides. Cells decided before keep their place in Holm's procedure."""
    timed = {cell.pair.cell: cell for cell in cells if cell.blocks}
    if not timed:
        return
    found = regress.judge(
        {key: cell.blocks for key, cell in timed.items()},
        delta,
        looks,
        frozenset(key for key, cell in timed.items() if cell.method == "floor"),
    )
    for key, judgement in found.items():
        cell = timed[key]
        if cell.verdict is None:
            cell.judgement = judgement
            if judgement.verdict is not Verdict.INCONCLUSIVE:
                cell.close(judgement.verdict, "")


def _throttled(answer: Cell) -> bool:
    return not THROTTLED.isdisjoint(str(answer.env.get("throttle")).split("+"))


def _clock(answer: Cell) -> float | None:
    found = answer.env.get("sm_clock_mhz")
    return float(found) if isinstance(found, int | float) and found > 0 else None


def _median(values: Sequence[float]) -> float | None:
    return round(float(np.median(values)), 3) if values else None
