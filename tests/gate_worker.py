"""A GPU worker made up for the gate: it answers at once, in this process, with simulated times.

What it does with a kernel is written in the kernel's name, as words: ``slow=1.04`` (the factor of
its time), ``wrong``, ``hang``, ``hang_timed``, ``crash``, ``refuse``, ``clock=0.95``.
"""

import math
from collections import deque
from collections.abc import Callable
from pathlib import Path

import numpy as np

from monomoe_gen.protocol import (
    Cell,
    CellErrors,
    Done,
    Env,
    Event,
    Failed,
    Floor,
    Image,
    Measure,
    Ready,
    Stage,
    decode_request,
    encode,
)
from monomoe_gen.sandbox import Limits, Sandbox

H200: Env = {"gpu": "NVIDIA H200", "uuid": "GPU-one", "sms": 132, "driver": "600.1"}
LIMITS = Limits(start_s=1, stage_s=1, death_s=1, pause_s=0, lock_s=1, attempts=2)
FLOOR_US = 8.0
BASE_US = 10.0  # of a kernel for one token whose name says nothing
CLOCK_MHZ = 1980.0


class Gpu:
    """A machine: how noisy it is, what it is called, what is wrong with it.

    ``workers`` counts those started, ``asked`` the requests; ``throttled`` is the share of timings
    that meet clocks lowered by ``throttle``, ``dead_after`` the number of workers that start.
    """

    def __init__(self, seed: int = 1, noise: float = 0.003) -> None:
        self.random = np.random.default_rng(seed)
        self.noise = noise
        self.env: Callable[[int], Env] = lambda worker: H200
        self.throttled, self.throttle = 0.0, "idle+sw_thermal"
        self.dead_after = 10**9
        self.workers = 0
        self.asked: list[Measure] = []

    def sandbox(self, folder: Path) -> Callable[..., Sandbox]:
        """What opens a sandbox on this machine, with its lock in ``folder``."""
        return lambda *start: Sandbox(self.start, LIMITS, folder)

    def start(self) -> "FakeWorker":
        self.workers += 1
        return FakeWorker(self, self.workers)


class FakeWorker:
    """A `worker_process.Worker`. Its first lines are there before it is asked."""

    def __init__(self, gpu: Gpu, number: int) -> None:
        self.gpu = gpu
        self.lines: deque[str | type[Exception]] = deque()
        self.offset = gpu.random.normal(0, 0.01)
        self.own: dict[bytes, float] = {}
        if number <= gpu.dead_after:
            self._say(Ready(gpu.env(number)))
        else:
            self.lines.append(EOFError)

    def receive(self, timeout_s: float) -> str:
        if not self.lines:
            raise TimeoutError
        line = self.lines.popleft()
        if not isinstance(line, str):
            raise line("the worker ended: SIGSEGV")
        return line

    def kill(self, timeout_s: float) -> None:
        self.lines.clear()

    def send(self, line: str) -> None:
        request = decode_request(line)
        self.gpu.asked.append(request)
        words = dict(word.partition("=")[::2] for word in request.kernel.name.split())
        self._say(Stage("load the kernel"))
        if "hang" in words or ("hang_timed" in words and request.timed):
            return
        if "crash" in words:
            self.lines.append(EOFError)
            return
        if "refuse" in words:
            self._say(Failed("kernel", "too much shared memory", fatal=False))
            return
        for tokens in request.tokens:
            self._say(self._cell(request, tokens, words))
        self._say(Done())

    def _cell(self, request: Measure, tokens: int, words: dict[str, str]) -> Cell:
        if request.validate and "wrong" in words:
            errors = {"gaussian": CellErrors(0.9, 0.4, 0.3)}
            return Cell(tokens=tokens, status="wrong", message="cosine 0.9", errors=errors)
        if request.timed is None:
            return Cell(tokens=tokens, status="ok")
        cubin = request.kernel.cubin
        if cubin not in self.own:
            self.own[cubin] = self.gpu.random.normal(0, self.gpu.noise)
        jitter = 0.001 * self.gpu.random.standard_t(3, request.timed.replays)
        us = BASE_US * tokens * float(words.get("slow", 1))
        times = us * np.exp(self.offset + self.own[cubin] + jitter)
        slowed = self.gpu.random.random() < self.gpu.throttled
        return Cell(
            tokens=tokens,
            status="ok",
            samples=tuple(float(t) for t in times),
            floor=Floor(FLOOR_US * tokens * math.exp(self.offset), 0.8),
            env={
                "sm_clock_mhz": CLOCK_MHZ * float(words.get("clock", 1)),
                "throttle": self.gpu.throttle if slowed else "none",
            },
        )

    def _say(self, event: Event) -> None:
        self.lines.append(encode(event))


def image(words: str = "", binary: bytes = b"candidate") -> Image:
    """A kernel that behaves as ``words`` say."""
    return Image(words or "plain", binary, 128, 608, 1000)
