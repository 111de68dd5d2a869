"""A GPU worker as its parent sees it: lines in, lines out, and a way to end it."""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Protocol

from monomoe_gen.paths import worker_environment

COMMAND = (sys.executable, "-m", "monomoe_gen.worker")
STANDBY = "--standby"  # import everything, then touch the GPU only after a line `GO`
GO = "go\n"
_LAST_S = 10.0  # to end a worker that has done nothing
_OUTPUT_CHARS = 2000  # of a dead worker's stderr in a message
# Linux ends a worker with the thread that started it (`worker`): this one lives to the end.
_STARTER = ThreadPoolExecutor(1)


class Worker(Protocol):
    """A process that speaks `protocol`, or a stand-in."""

    def send(self, line: str) -> None:
        """Hands over a line. A dead worker is found out by the next `receive`."""

    def receive(self, timeout_s: float) -> str:
        """The next line.

        Raises:
            TimeoutError: none came in time.
            EOFError: the worker has ended; the text says how.
        """

    def kill(self, timeout_s: float) -> None:
        """Ends the worker.

        Raises:
            TimeoutError: it is still there after ``timeout_s``.
        """


class ProcessWorker:
    """A `Worker` in a process of its own session, so that Ctrl-C does not reach it.

    ``gpu`` is the UUID of the only GPU it sees; None leaves it what this process sees.
    """

    def __init__(self, command: Sequence[str] = COMMAND, gpu: str | None = None) -> None:
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the process
        self._lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._process = _STARTER.submit(
            lambda: subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._stderr,
                text=True,
                start_new_session=True,
                env=worker_environment() | ({"CUDA_VISIBLE_DEVICES": gpu} if gpu else {}),
            )
        ).result()
        threading.Thread(target=self._read, daemon=True).start()

    @property
    def pid(self) -> int:
        return self._process.pid

    def send(self, line: str) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(line)
            self._process.stdin.flush()

    def receive(self, timeout_s: float) -> str:
        try:
            line = self._lines.get(timeout=timeout_s)
        except queue.Empty:
            raise TimeoutError from None
        if line is None:
            self._lines.put(None)  # for whoever asks again
            raise EOFError(self._obituary())
        return line

    def kill(self, timeout_s: float) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        try:
            self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise TimeoutError from None
        self._stderr.close()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line)
        self._lines.put(None)

    def _obituary(self) -> str:
        try:
            status = self._process.wait(5)
        except subprocess.TimeoutExpired:
            return "it closed its output"
        how = signal.Signals(-status).name if status < 0 else f"exit code {status}"
        self._stderr.seek(0)
        tail = self._stderr.read().decode(errors="replace").strip()[-_OUTPUT_CHARS:]
        return f"{how}\n{tail}" if tail else how


class Ahead:
    """Makes workers one after another, the next of which imports its libraries in the meantime.

    It waits with the GPU until it is taken, so that it costs the one that measures nothing. Use it
    as a context manager: it ends the worker that nobody took.
    """

    def __init__(self, command: Sequence[str] = COMMAND, gpu: str | None = None) -> None:
        self._command, self._gpu = (*command, STANDBY), gpu
        self._next: ProcessWorker | None = None

    def __call__(self) -> ProcessWorker:
        worker = self._next or ProcessWorker(self._command, self._gpu)
        self._next = None
        worker.send(GO)
        self._next = ProcessWorker(self._command, self._gpu)
        return worker

    def __enter__(self) -> Ahead:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        worker, self._next = self._next, None
        if worker:
            with contextlib.suppress(TimeoutError):
                worker.kill(_LAST_S)
