"""A process that runs NVRTC, so that a crash or a hang costs one compilation and nothing else.

Both ends of the connection are here. The worker opens with ``("ready", compiler, library path)`` or
``("missing", message, "")``; then it answers each request ``(texts, options, seconds)`` with
``("cubin", cubin, log)`` or ``("refused", message, log)``. It ends when the other end closes.
"""

from __future__ import annotations

import atexit
import contextlib
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from multiprocessing.connection import Connection, Pipe, wait

from monomoe_gen import nvrtc
from monomoe_gen.errors import CompileError, EnvironmentProblem
from monomoe_gen.paths import worker_environment

START_S = 60.0  # to import CuPy and load NVRTC, on a slow disk
# NVRTC keeps programs in the driver's cache, and gives them back without what ptxas reports.
NO_DRIVER_CACHE = {"CUDA_CACHE_DISABLE": "1"}
GRACE_S = 10.0  # after which a worker whose parent did not stop it ends by itself

Reply = tuple[str, bytes | str, str]  # "cubin", "refused" or "crashed"; cubin or message; log


class Worker:
    """The parent's end of one worker process. One request at a time."""

    def __init__(self) -> None:
        self.compiler = self.library = ""  # known once the worker is ready
        self._request: tuple[Mapping[str, str], Sequence[str], float] | None = None
        self._deadline = time.monotonic() + START_S
        self._output = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the process
        self.connection, theirs = Pipe()
        with theirs:
            self.process = subprocess.Popen(
                [sys.executable, "-m", __name__, str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=self._output,
                stderr=self._output,
                env=worker_environment() | NO_DRIVER_CACHE,
            )

    def submit(self, texts: Mapping[str, str], options: Sequence[str], seconds: float) -> None:
        """Asks for a compilation, which must end within `seconds` once the worker is ready."""
        self._request = (dict(texts), tuple(options), seconds)
        self._send()

    def receive(self) -> Reply | None:
        """The answer to the request, if it is there or will not come any more.

        Raises:
            EnvironmentProblem: this worker cannot load NVRTC.
        """
        late = time.monotonic() >= self._deadline
        if not self.connection.poll():
            return self._stop_late() if late else None
        try:
            kind, first, second = self.connection.recv()
        except (EOFError, OSError):
            return self._bury()
        if kind == "missing":
            raise EnvironmentProblem(first)
        if kind != "ready":
            self._request, self._deadline = None, float("inf")
            return kind, first, second
        self.compiler, self.library, self._deadline = first, second, float("inf")
        self._send()
        return None

    def seconds_left(self) -> float:
        return max(0.0, self._deadline - time.monotonic())

    @property
    def usable(self) -> bool:
        """Ready, alive and without a request."""
        return bool(self.compiler) and self._request is None and self.process.poll() is None

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        self.connection.close()
        self._output.close()

    def _send(self) -> None:
        if not self.compiler or self._request is None:
            return
        self._deadline = time.monotonic() + self._request[2]
        with contextlib.suppress(OSError):  # the worker is dead, which the next receive finds out
            self.connection.send(self._request)

    def _stop_late(self) -> Reply:
        if not self.compiler:
            raise EnvironmentProblem(f"a compiler process did not start within {START_S:.0f} s")
        assert self._request is not None
        self.process.kill()
        return "crashed", f"NVRTC did not finish within {self._request[2]:g} s and was stopped", ""

    def _bury(self) -> Reply:
        status = self.process.wait()
        self._output.seek(0)
        output = self._output.read().decode(errors="replace")[-4000:].strip()
        if not self.compiler:
            raise EnvironmentProblem(f"a compiler process ended before it was ready:\n{output}")
        how = signal.Signals(-status).name if status < 0 else f"exit code {status}"
        return "crashed", f"NVRTC crashed its process ({how})", output


def wait_any(workers: Sequence[Worker]) -> list[Worker]:
    """Waits for messages or deadlines: those workers whose `receive` has something to say."""
    timeout = min(worker.seconds_left() for worker in workers)
    heard = wait([worker.connection for worker in workers], None if timeout > 1e6 else timeout)
    return [w for w in workers if w.connection in heard or not w.seconds_left()]


_idle: list[Worker] = []
_idle_lock = threading.Lock()


def acquire() -> Worker:
    """An idle worker, or a new one, which may still be getting ready."""
    with _idle_lock:
        while _idle:
            worker = _idle.pop()
            if worker.usable:
                return worker
            worker.kill()
    return Worker()


def release(worker: Worker) -> None:
    """Keeps the worker for the next `acquire` if it is fit for more, else ends it."""
    if worker.usable:
        with _idle_lock:
            _idle.append(worker)
    else:
        worker.kill()


@atexit.register
def stop_idle() -> None:
    """Ends the idle workers."""
    with _idle_lock:
        while _idle:
            _idle.pop().kill()


def serve(connection: Connection) -> None:
    """The worker's end."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides what Ctrl-C means
    try:
        binding, compiler = nvrtc.load()
    except EnvironmentProblem as error:
        connection.send(("missing", str(error), ""))
        return
    connection.send(("ready", compiler, nvrtc.loaded_library()))
    while True:
        try:
            texts, options, seconds = connection.recv()
        except EOFError:
            return
        signal.alarm(int(seconds + GRACE_S))  # kills even a process that is busy in NVRTC
        try:
            reply: Reply = ("cubin", *nvrtc.compile_texts(binding, texts, options))
        except CompileError as error:
            reply = ("refused", str(error).partition("\n")[0], error.log)
        signal.alarm(0)
        connection.send(reply)


if __name__ == "__main__":
    with Connection(int(sys.argv[1])) as parent:
        serve(parent)
