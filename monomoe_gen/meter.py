"""How fast a tuning run is: compilations, what the cache answered, and how long the GPU waited."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass


@dataclass(frozen=True)
class Speed:
    """``compiled`` binaries took ``compile_s`` seconds altogether, in parallel, ``cached`` none.

    ``measured`` requests kept a GPU's worker busy for ``busy_s`` of ``seconds``, on average.
    """

    compiled: int
    cached: int
    compile_s: float
    measured: int
    busy_s: float
    seconds: float

    @property
    def idle(self) -> float:
        """The share of the time in which the GPU's worker had nothing to do."""
        return max(0.0, 1 - self.busy_s / self.seconds) if self.seconds else 0.0

    def __str__(self) -> str:
        rate = self.compiled / self.seconds if self.seconds else 0.0
        each = f", {self.compile_s / self.compiled:.1f} s each" if self.compiled else ""
        return (
            f"compiled {self.compiled} ({rate:.1f} a second{each}), {self.cached} from the cache; "
            f"{self.measured} requests to the GPU, idle {self.idle:.0%} of {self.seconds:.0f} s"
        )


class Meter:
    """Counts for one run with some GPU ``workers``; several threads may use it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._began = time.monotonic()
        self._compiled = self._cached = self._measured = 0
        self._compile_s = self._busy_s = 0.0
        self.workers = 1

    def compilation(self, seconds: float, cached: bool) -> None:
        with self._lock:
            self._cached += cached
            self._compiled += not cached
            self._compile_s += 0.0 if cached else seconds

    @contextmanager
    def busy(self) -> Iterator[None]:
        """The GPU's worker answers a request."""
        began = time.monotonic()
        try:
            yield
        finally:
            with self._lock:
                self._measured += 1
                self._busy_s += time.monotonic() - began

    def speed(self) -> Speed:
        """What was counted until now."""
        with self._lock:
            return Speed(
                self._compiled,
                self._cached,
                self._compile_s,
                self._measured,
                self._busy_s / self.workers,
                time.monotonic() - self._began,
            )
