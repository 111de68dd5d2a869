"""One GPU worker that can be killed: whatever a kernel does, the caller gets an answer and goes on.

All GPU work runs in a process of its own. Every stage of a request has a deadline; a worker that
misses it, dies or talks nonsense is killed, and a fresh process proves that the GPU answers before
anything else is measured. A file lock keeps other processes from measuring on the same GPU.
"""

from __future__ import annotations

import contextlib
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol, TypeVar

from filelock import FileLock, Timeout

from monomoe_gen.errors import EnvironmentProblem, MonomoeError
from monomoe_gen.protocol import (
    Cell,
    Done,
    Env,
    Event,
    Failed,
    Measure,
    ProtocolError,
    Ready,
    Request,
    Stage,
    Timed,
    Trace,
    Traced,
    decode_event,
    encode,
)
from monomoe_gen.worker_process import Ahead, ProcessWorker, Worker

Status = Literal["ok", "launch_error", "timeout"]
Answer = TypeVar("Answer", Cell, Traced)


@dataclass(frozen=True)
class Limits:
    """How long things may take, in seconds, and how often a worker is started before giving up."""

    start_s: float = 180  # until a first kernel has run
    stage_s: float = 30
    death_s: float = 60  # from SIGKILL to the end of the process
    pause_s: float = 5  # between attempts to start
    lock_s: float = 10  # to wait for another process on the same GPU
    attempts: int = 3


@dataclass(frozen=True)
class Outcome:
    """What came of a request.

    ``status`` is ok (then there is a cell for every token count), launch_error or timeout, with a
    ``message``; ``cells`` holds what was measured before that.
    """

    status: Status
    message: str
    cells: tuple[Cell, ...]


@dataclass(frozen=True)
class TraceOutcome:
    """What came of a request for time stamps: as `Outcome`, with the launches that were traced."""

    status: Status
    message: str
    launches: tuple[Traced, ...]


class Box(Protocol):
    """What a tuning run needs of a `Sandbox`, which may be on another host."""

    env: Env
    restarts: int

    def __enter__(self) -> Box: ...

    def __exit__(self, *exception: object) -> None: ...

    def measure(self, request: Measure) -> Outcome: ...

    def renew(self) -> None: ...


class Sandbox:
    """A worker on one GPU, restarted as often as it takes. Use it as a context manager.

    ``env`` describes the GPU, ``restarts`` counts the workers that had to be replaced.
    """

    def __init__(
        self,
        start: Callable[[], Worker] = ProcessWorker,
        limits: Limits = Limits(),
        lock_folder: Path | None = None,
    ) -> None:
        self.env: Env = {}
        self.restarts = 0
        self._start = start
        self._limits = limits
        self._lock_folder = lock_folder or Path(tempfile.gettempdir())
        self._lock: FileLock | None = None
        self._worker: Worker | None = None
        self._immortal = False

    def __enter__(self) -> Sandbox:
        """Starts the worker and takes the GPU's lock.

        Raises:
            EnvironmentProblem: the GPU does not answer, or another process measures on it.
        """
        try:
            self._open()
            self._take_lock()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *exception: object) -> None:
        worker, self._worker = self._worker, None
        if worker:
            with contextlib.suppress(TimeoutError):
                worker.kill(self._limits.death_s)
        if self._lock:
            self._lock.release()

    def measure(
        self, request: Measure, on_event: Callable[[Event], object] = lambda event: None
    ) -> Outcome:
        """Has the worker answer ``request``; ``on_event`` hears every stage and cell.

        Raises:
            EnvironmentProblem: the GPU does not answer any more.
            MonomoeError: the worker refuses the request.
            RuntimeError: the worker's own code failed, which is a bug.
        """
        status, message, cells = self._ask(request, Cell, on_event)
        return Outcome(status, message, tuple(cells))

    def trace(
        self, request: Trace, on_event: Callable[[Event], object] = lambda event: None
    ) -> TraceOutcome:
        """Has the worker trace launches. Raises what `measure` raises."""
        status, message, launches = self._ask(request, Traced, on_event)
        return TraceOutcome(status, message, tuple(launches))

    def renew(self) -> None:
        """Ends the worker, which is no failure: the next request is served by a fresh process."""
        if self._worker:
            self._drop()
            self.restarts -= 1

    def _ask(
        self, request: Request, answer: type[Answer], on_event: Callable[[Event], object]
    ) -> tuple[Status, str, list[Answer]]:
        """Status, message and the worker's answers to ``request``, which are of type ``answer``."""
        worker = self._worker or self._open()
        answers: list[Answer] = []
        stage, limit_s = "the request", self._limits.stage_s
        status: Status = "launch_error"
        try:
            worker.send(encode(request))
            while True:
                event = decode_event(worker.receive(limit_s))
                on_event(event)
                if isinstance(event, Stage):
                    stage, limit_s = event.name, event.limit_s or self._limits.stage_s
                elif isinstance(event, answer):
                    answers.append(event)
                elif isinstance(event, Failed):
                    return "launch_error", self._failed(event, stage), answers
                elif isinstance(event, Done):
                    _check_complete(request, answers)
                    return "ok", "", answers
                else:
                    raise ProtocolError(f"unexpected {event.kind}")
        except TimeoutError:
            status, message = "timeout", f"{stage}: no answer within {limit_s:g} s, killed"
        except EOFError as error:
            message = f"{stage}: the worker died: {error}"
        except ProtocolError as error:
            message = f"{stage}: the worker talks nonsense: {error}"
        self._drop()
        return status, message, answers

    def _failed(self, event: Failed, stage: str) -> str:
        """What to say about a kernel that failed; other failures are raised."""
        if event.fatal:
            self._drop()
        if event.fault == "request":
            raise MonomoeError(event.message)
        if event.fault == "worker":
            raise RuntimeError(f"the GPU worker failed at {stage}:\n{event.message}")
        return f"{stage}: {event.message}"

    def _drop(self) -> None:
        """Ends the worker; the next request starts another, so that this one's result is safe."""
        self.restarts += 1
        worker, self._worker = self._worker, None
        assert worker is not None
        try:
            worker.kill(self._limits.death_s)
        except TimeoutError:
            self._immortal = True

    def _open(self) -> Worker:
        """A fresh worker that has run a kernel."""
        if self._immortal:
            raise EnvironmentProblem(
                f"a worker survives SIGKILL for {self._limits.death_s:g} s, so the GPU driver "
                "holds it; look at nvidia-smi, the GPU may need a reset"
            )
        found = ""
        for attempt in range(self._limits.attempts):
            if attempt:
                time.sleep(self._limits.pause_s)
            worker = self._start()
            event: Event | None = None
            try:
                event = decode_event(worker.receive(self._limits.start_s))
            except TimeoutError:
                found = f"no sign of life within {self._limits.start_s:g} s"
            except EOFError as error:
                found = f"the worker ended: {error}"
            except ProtocolError as error:
                found = str(error)
            else:
                if isinstance(event, Ready):
                    self._worker, self.env = worker, event.env
                    return worker
                found = f"unexpected {event}"
            with contextlib.suppress(TimeoutError):
                worker.kill(self._limits.death_s)
            if isinstance(event, Failed):
                raise EnvironmentProblem(event.message)
        raise EnvironmentProblem(
            f"asked the GPU to run a small kernel in a fresh process, {self._limits.attempts} "
            f"times: {found}. Look at nvidia-smi; the GPU may need a reset"
        )

    def _take_lock(self) -> None:
        path = self._lock_folder / f"monomoe-gen-{self.env['uuid']}.lock"
        self._lock = FileLock(path, timeout=self._limits.lock_s, mode=0o666)
        try:
            self._lock.acquire()
        except Timeout:
            raise EnvironmentProblem(
                f"another process is measuring on {self.env['gpu']} ({self.env['uuid']}) and "
                f"holds {path}; wait for it to end"
            ) from None


@contextlib.contextmanager
def sandboxes(gpu: str | None = None) -> Iterator[Callable[[], Sandbox]]:
    """What opens one fresh sandbox after another, of which the next is made ready in time.

    ``gpu`` is as in `ProcessWorker`.
    """
    with Ahead(gpu=gpu) as start:
        yield lambda: Sandbox(start)


def _timed(cell: Cell, asked: Timed) -> bool:
    return bool(cell.samples and (cell.floor or not asked.streams))


def _check_complete(request: Request, answers: Sequence[Cell | Traced]) -> None:
    """Raises `ProtocolError` unless all that was asked for is there: cells or traced launches."""
    if isinstance(request, Trace):
        if len(answers) != request.launches:
            raise ProtocolError(f"asked for {request.launches} launches, answered {len(answers)}")
        return
    cells = [answer for answer in answers if isinstance(answer, Cell)]
    if sorted(cell.tokens for cell in cells) != sorted(request.tokens):
        raise ProtocolError(f"asked for {request.tokens} tokens, answered {cells}")
    for cell in cells:
        if cell.status == "ok" and request.timed and not _timed(cell, request.timed):
            raise ProtocolError(f"asked for times, answered {cell}")
        if request.report and not cell.cases:
            raise ProtocolError(f"asked for comparisons, answered {cell}")
