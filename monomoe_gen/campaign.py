"""One tuning run: its plan, progress and report, and what it does with a candidate."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from monomoe_gen import jobs, prune, samplers
from monomoe_gen.bench import FULL, QUICK, SCREEN, Effort
from monomoe_gen.compile import KernelBinary, compile_source, compiler_version
from monomoe_gen.device import Device
from monomoe_gen.emit import Emission
from monomoe_gen.errors import CompileError, MonomoeError
from monomoe_gen.jobs import Subject
from monomoe_gen.ledger import Ledger
from monomoe_gen.meter import Meter, Speed
from monomoe_gen.protocol import Cell, Env
from monomoe_gen.refute import Refuter
from monomoe_gen.render import render
from monomoe_gen.sandbox import Box, Outcome
from monomoe_gen.schedule import TOKEN_TILES, Schedule
from monomoe_gen.shapes import Shape
from monomoe_gen.tuning_db import Record, Stage, Status
from monomoe_gen.variant import USUAL, Variant
from monomoe_gen.winner import Winner

LOG_CHARS = 2000  # of a compiler's log in a record
Failure = tuple[Status, str]


@dataclass(frozen=True)
class Plan:
    """What to tune. Without ``budget_s`` and ``trials`` the whole space is measured.

    ``routing`` is a pattern, or the name of the captured one in ``trace_file``. With ``weights`` of
    several patterns, it among them, finalists are timed under all of these, which decide together.
    ``fresh`` measures again what the database already knows. ``sampler`` is one of
    `samplers.SAMPLERS`. ``simulate`` is the number of seeds, for every policy, that the simulator
    runs a kernel with before the GPU does; 0 leaves it out. ``prune`` is by what share a candidate
    may be slower than the best at the first token counts and still be timed at the others; None
    times everything, as does a run of the whole space. ``screen_only`` leaves out finals and
    confirmation, so that winners carry their screening times. ``from_winners`` is how many of the
    best schedules of the kernels that these are variants of are tried, of each token count, and
    nothing else; finals are short then, and winners are not confirmed. ``database`` and ``folder``
    default
    to the project's ``tuning_db`` and ``generated/<gpu>``.
    """

    shape: Shape
    tokens: Sequence[int] = (1, 2, 4, 8)
    budget_s: float | None = None
    trials: int | None = None
    routing: str = "uniform"
    trace_file: Path | None = None
    variant: Variant = USUAL
    seed: int = 0
    fresh: bool = False
    sampler: str = samplers.DEFAULT
    simulate: int = 0
    prune: float | None = prune.MARGIN
    screen_only: bool = False
    from_winners: int | None = None
    database: Path | None = None
    folder: Path | None = None
    weights: Mapping[str, float] = field(default_factory=dict)

    @property
    def margin(self) -> float | None:
        """``prune``, unless all is to be measured."""
        whole = self.budget_s is None and self.trials is None
        return None if whole or self.sampler == "exhaustive" else self.prune

    @property
    def final_effort(self) -> Effort:
        """Of one round of the finals."""
        return QUICK if self.from_winners else FULL

    @property
    def token_tile(self) -> int:
        """The smallest kernel that takes all the token counts."""
        most = max(self.tokens)
        fitting = [tile for tile in TOKEN_TILES if tile >= most]
        if not fitting:
            raise MonomoeError(f"asked for {most} tokens, kernels take at most {TOKEN_TILES[-1]}")
        return fitting[0]


@dataclass(frozen=True)
class Progress:
    """Where a run is: ``stage`` search, final or confirm, candidates ``done`` of ``total``.

    ``best`` holds the fastest record so far of each token count, ``failures`` counts candidates by
    status.
    """

    stage: str
    done: int
    total: int
    best: Mapping[int, Record]
    failures: Mapping[str, int]

    @property
    def note(self) -> str:
        """The best so far in a few words."""
        best = " ".join(f"{n}:{r.time_us.median:g}" for n, r in self.best.items() if r.time_us)
        failed = sum(self.failures.values())
        return f"best us {best or '-'}" + (f", {failed} failed" if failed else "")


@dataclass(frozen=True)
class Report:
    """What a run did.

    ``known`` candidates were in the database before, ``measured`` came new, ``left`` were not
    reached; ``pruned`` are not timed at every token count. ``winners`` are by token count.
    ``emission`` is None after an interruption, or if no candidate works. ``restarts`` counts the
    GPU workers that had to be replaced. ``replay``: nothing was timed. ``transfer`` says what
    beginning at another shape's records was worth, ``speed`` how fast the measuring went.
    ``left_out`` are the places of GPUs that stopped to answer, in the order of the sandboxes.
    """

    replay: bool
    interrupted: bool
    known: int
    measured: int
    left: int
    failures: Mapping[str, int]
    winners: Mapping[int, Winner]
    emission: Emission | None
    seconds: float
    restarts: int = 0
    transfer: str = ""
    speed: Speed | None = None
    pruned: int = 0
    left_out: frozenset[int] = frozenset()

    @property
    def best(self) -> dict[int, Record]:
        """The winning record of each token count."""
        return {n: winner.record for n, winner in self.winners.items()}


@dataclass
class Campaign:
    """The state that the stages of a run share."""

    plan: Plan
    device: Device
    ledger: Ledger
    sandbox: Box
    floors: jobs.Floors
    observe: Callable[[Progress], object]
    refuter: Refuter | None = None
    failures: Counter[str] = field(default_factory=Counter)
    meter: Meter = field(default_factory=Meter)
    _simulated: set[Schedule] = field(default_factory=set)

    def report(self, stage: str, done: int, total: int) -> None:
        """Tells the observer."""
        self.observe(Progress(stage, done, total, self.ledger.best(), dict(self.failures)))

    def prepare(
        self, schedule: Schedule, over: Callable[[], bool] = lambda: False
    ) -> tuple[Subject, Failure | None]:
        """A candidate, and why it may not run on the GPU, if so. ``over`` ends a simulation."""
        subject, failure = self._compile(schedule)
        if failure or self.refuter is None or schedule in self._simulated:
            return subject, failure
        finding = self.refuter.refute(subject.spec, over)
        if finding:
            return subject, ("infeasible", finding)
        if finding is not None:
            self._simulated.add(schedule)
        return subject, None

    def _compile(self, schedule: Schedule) -> tuple[Subject, Failure | None]:
        spec = self.ledger.spec(schedule)
        source = render(spec)
        began = time.monotonic()
        try:
            binary: KernelBinary | None = compile_source(source, self.device.arch)
            failure: Failure | None = None
        except CompileError as error:
            binary, failure = None, ("compile_error", str(error)[:LOG_CHARS])
        self.meter.compilation(time.monotonic() - began, bool(binary and binary.cached))
        return Subject(spec, source.sources_hash, compiler_version(), binary), failure

    def screen(self, subject: Subject) -> None:
        """Validates and times a candidate once, and records what came of it.

        Pruned, it is left without records of some token counts.
        """
        schedule = subject.spec.schedule
        groups = [tuple(self.plan.tokens)]
        if self.plan.margin is not None:
            groups = prune.turns(self.plan.tokens)
        for group in groups:
            left = self.ledger.missing(schedule)
            tokens = tuple(n for n in left if n in group)
            if not tokens:
                continue
            if self.hopeless(schedule):
                return
            for cell in self.measure(subject, tokens, "screen", validate=True, timed=True) or ():
                self.ledger.add(subject.success(cell, cell, self.plan.routing, "screen", self.env))

    def hopeless(self, schedule: Schedule) -> bool:
        """Whether nothing more is to be timed of a candidate that lacks times."""
        margin = self.plan.margin
        times = self.ledger.times(schedule)
        if margin is None or not times or len(times) == len(self.plan.tokens):
            return False
        return prune.hopeless(times, self._best(), margin)

    def values(self, schedule: Schedule) -> dict[int, float] | None:
        """What the search is told: as `Ledger.values`, what pruning left out being made up."""
        if not self.hopeless(schedule):
            return self.ledger.values(schedule)
        likely = prune.likely(self.ledger.times(schedule), self._best())
        return likely if set(likely) == set(self.plan.tokens) else None

    def _best(self) -> dict[int, float]:
        return {n: r.time_us.median for n, r in self.ledger.best().items() if r.time_us}

    def measure(
        self,
        subject: Subject,
        tokens: Sequence[int],
        stage: Stage,
        *,
        validate: bool,
        timed: bool,
        routing: str | None = None,
    ) -> tuple[Cell, ...] | None:
        """A cell for each token count, or None after recording that the candidate failed.

        ``routing`` is the plan's, unless given.
        """
        assert subject.binary, "only what compiled can be measured"
        effort = self.plan.final_effort if stage == "final" else SCREEN
        request = jobs.measure(
            subject.spec,
            jobs.image(subject.binary, subject.spec),
            tokens,
            routing or self.plan.routing,
            validate=validate,
            timed=self.floors.timed(effort) if timed else None,
            seed=self.plan.seed,
            trace_file=self.plan.trace_file,
        )
        with self.meter.busy():
            outcome = self.sandbox.measure(request)
        failure = _failure(outcome)
        if failure is None:
            return outcome.cells
        self.fail(subject, stage, *failure)
        return None

    def fail(self, subject: Subject, stage: Stage, status: Status, message: str) -> None:
        """Records a candidate that does not work.

        One kernel serves all token counts, so it fails for all of them.
        """
        self.failures[status] += 1
        for n in sorted({*self.plan.tokens, *self.ledger.recorded_tokens(subject.spec.schedule)}):
            self.ledger.add(subject.failure(n, self.plan.routing, stage, status, message, self.env))

    @property
    def env(self) -> Env:
        """What is known about the GPU."""
        return self.sandbox.env


def _failure(outcome: Outcome) -> Failure | None:
    """Status and message of the first thing that went wrong, if anything did."""
    for cell in outcome.cells:
        if cell.status != "ok":
            return cell.status, cell.message
    return None if outcome.status == "ok" else (outcome.status, outcome.message)
