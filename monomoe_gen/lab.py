"""Asks fresh GPU workers for the times of one check and notes the answers, cell by cell."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from monomoe_gen import jobs, regress
from monomoe_gen.bench import Effort, Timing
from monomoe_gen.candidates import Method, Pair, Side
from monomoe_gen.device import Device, device_slug
from monomoe_gen.errors import EnvironmentProblem
from monomoe_gen.protocol import Cell, Env
from monomoe_gen.regress import Block, Judgement, Verdict
from monomoe_gen.sandbox import Sandbox
from monomoe_gen.shapes import Shape

BLOCK = Effort(warmups=5, replays=50)  # a process draws once, however long it measures
# What spoils a block. A power limit does not: streaming weights reaches it on many GPUs, it meets
# both sides of a block, and its clocks (1800 to 1965 of 1980 MHz on an H200) are judged too.
THROTTLED = {"hw_slowdown", "sw_thermal", "hw_thermal", "hw_power_brake"}

Open = Callable[[], Sandbox]
Step = Callable[[str], object]


@dataclass
class State:
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

    def close(self, verdict: Verdict, message: str) -> None:
        self.verdict, self.message = verdict, message


class Lab:
    """Asks fresh workers on one GPU and notes the answers in cells."""

    def __init__(self, device: Device, floors: jobs.Floors, open_sandbox: Open, step: Step) -> None:
        self.env: Env = {}
        self._device, self._floors, self._open, self._step = device, floors, open_sandbox, step

    def validate(self, cells: Sequence[State]) -> None:
        """Closes the cells whose candidate does not run or computes wrong numbers.

        A baseline that does so, for instance since it was launched with other arguments, is none:
        the recorded ratio takes its place if there is one.
        """
        if not cells:
            return
        with self._open() as box:
            self._same_gpu(box)
            for group in _by_image(cells, lambda cell: cell.pair.candidate):
                for cell, problem in self._problems(box, group):
                    cell.close(Verdict.WRONG, problem)
            paired = [cell for cell in undecided(cells) if cell.pair.method == "paired"]
            for group in _by_image(paired, lambda cell: cell.pair.baseline):
                for cell, problem in self._problems(box, group):
                    method: Method = "floor" if cell.pair.recorded else "none"
                    cell.pair = replace(cell.pair, baseline=None, method=method)
                    cell.message = f"the baseline's cubin is of no use: {problem}"

    def _problems(
        self, box: Sandbox, group: Sequence[tuple[State, Side]]
    ) -> Iterator[tuple[State, str]]:
        """The cells for which the one kernel of ``group`` is not right, and why."""
        side = group[0][1]
        tokens = sorted({cell.pair.cell.tokens for cell, _ in group})
        self._step(f"validating {side.spec.id}")
        routing = group[0][0].pair.cell.routing
        request = jobs.measure(side.spec, side.image, tokens, routing, validate=True, timed=None)
        outcome = box.measure(request)
        answers = {answer.tokens: answer for answer in outcome.cells}
        for cell, _ in group:
            answer = answers.get(cell.pair.cell.tokens)
            if answer is None:
                yield cell, f"{outcome.status}: {outcome.message}"
            elif answer.status != "ok":
                yield cell, f"{answer.status}: {answer.message}"

    def measure(
        self,
        cells: Sequence[State],
        process: int,
        blocks: int,
        go_on: Callable[[State | None], bool] = lambda finished: True,
    ) -> None:
        """One fresh process: ``blocks`` blocks of every cell, all blocks of a cell together.

        ``go_on`` is asked before the first cell, and after each with that cell.
        """
        if not cells:
            return
        with self._open() as box:
            self._same_gpu(box)
            finished: State | None = None
            for cell in cells:
                if not go_on(finished):
                    return
                began = time.monotonic()
                for block in range(blocks):
                    if cell.verdict is None:
                        self._step(f"process {process + 1}: {cell.pair.cell}")
                        # Whatever is special about the first place falls on either in turn.
                        self._block(box, cell, process, swapped=(process + block) % 2 == 1)
                cell.seconds += time.monotonic() - began
                finished = cell
            go_on(finished)

    def _block(self, box: Sandbox, cell: State, process: int, swapped: bool) -> None:
        if cell.pair.method == "paired":
            block = self._paired(box, cell, swapped)
        else:
            block = self._against_floor(box, cell)
        if block:
            cell.blocks.append(Block(process, *block))

    def _paired(self, box: Sandbox, cell: State, swapped: bool) -> tuple[float, float] | None:
        """Log ratios of times and of clocks; ``swapped`` begins and ends with the candidate."""
        new, old = cell.pair.candidate, cell.pair.baseline
        assert old
        outer, inner = (new, old) if swapped else (old, new)
        answers = self._answers(box, cell, (outer, inner, inner, outer), BLOCK)
        if answers is None:
            return None
        sign = -1 if swapped else 1
        times = [Timing(answer.samples).median_us for answer in answers]
        cell.candidate_us += (times[0], times[3]) if swapped else times[1:3]
        cell.baseline_us += times[1:3] if swapped else (times[0], times[3])
        clocks = [clock for answer in answers if (clock := _clock(answer))]
        clock = regress.abba(*clocks) if len(clocks) == len(times) else 0.0
        return sign * regress.abba(*times), sign * clock

    def _against_floor(self, box: Sandbox, cell: State) -> tuple[float, float] | None:
        """Log ratios of time / floor and of the clock to what is recorded of them."""
        recorded = cell.pair.recorded
        assert recorded
        answers = self._answers(box, cell, (cell.pair.candidate,), BLOCK)
        if answers is None:
            return None
        (answer,) = answers
        assert answer.floor
        time_us, clock = Timing(answer.samples).median_us, _clock(answer)
        cell.candidate_us.append(time_us)
        ratio = math.log(time_us / answer.floor.stream_us / recorded.ratio)
        if clock is None or recorded.clock_mhz is None:
            return ratio, 0.0
        return ratio, math.log(clock / recorded.clock_mhz)

    def _answers(
        self, box: Sandbox, cell: State, sides: Sequence[Side], effort: Effort
    ) -> list[Cell] | None:
        """What timing ``sides`` in turn gives; None if the block is lost or the cell closed."""
        answers = []
        for side in sides:
            answer = self._time(box, cell, side, effort)
            if answer is None:
                return None
            answers.append(answer)
        if any(map(_throttled, answers)):
            cell.discarded += 1
            return None
        cell.floors_us += [answer.floor.stream_us for answer in answers if answer.floor]
        return answers

    def _time(self, box: Sandbox, cell: State, side: Side, effort: Effort) -> Cell | None:
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
            raise EnvironmentProblem(
                f"this is a check for {self._device.name}, the GPU is {found['gpu']}"
            )
        if self.env and self.env["uuid"] != found["uuid"]:
            raise EnvironmentProblem(
                f"the GPU changed from {self.env['uuid']} to {found['uuid']} during the check; "
                "let CUDA_VISIBLE_DEVICES name one"
            )
        self.env = found


def undecided(cells: Iterable[State]) -> list[State]:
    """Those without a verdict."""
    return [cell for cell in cells if cell.verdict is None]


def _by_image(
    cells: Iterable[State], side_of: Callable[[State], Side | None]
) -> list[list[tuple[State, Side]]]:
    """The cells and their kernels, those of one binary and shape together."""
    groups: dict[tuple[Shape, str, bytes], list[tuple[State, Side]]] = {}
    for cell in cells:
        side = side_of(cell)
        if side:
            key = (side.spec.shape, side.image.name, side.image.cubin)
            groups.setdefault(key, []).append((cell, side))
    return list(groups.values())


def _throttled(answer: Cell) -> bool:
    return not THROTTLED.isdisjoint(str(answer.env.get("throttle")).split("+"))


def _clock(answer: Cell) -> float | None:
    found = answer.env.get("sm_clock_mhz")
    return float(found) if isinstance(found, int | float) and found > 0 else None
