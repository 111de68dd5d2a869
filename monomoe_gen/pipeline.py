"""Keeps the GPU fed: candidates are prepared in threads while earlier ones are measured."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import TypeVar

T = TypeVar("T")
PER_GPU = 16  # at most: seven kept an H200 busy for 60 % of a run, more only run ahead


def usable_cpus() -> int:
    """On how many CPUs this process may run."""
    if hasattr(os, "process_cpu_count"):  # from Python 3.13
        return os.process_cpu_count() or 1
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def preparers(gpus: int) -> int:
    """How many threads, each with a compiler, feed ``gpus`` GPUs from this host.

    One CPU is left to the caller and one to the worker process of each GPU. As GPUs of other hosts
    have theirs there, no more than half of the CPUs are left in all.
    """
    cpus = usable_cpus()
    return max(1, min(PER_GPU * gpus, max(cpus - 1 - gpus, cpus // 2)))


def prepared_ahead(
    prepare: Callable[[], T | None], workers: int, stop: Callable[[], bool]
) -> Iterator[T]:
    """Yields what ``prepare`` returns, in the order in which it is ready.

    ``prepare`` runs in ``workers`` threads, at most twice as many results ahead, until it returns
    None. Nothing more is yielded once ``stop`` is true. Exceptions of ``prepare`` pass on.
    """
    pool = ThreadPoolExecutor(workers)
    running: set[Future[T | None]] = set()
    ready: deque[T] = deque()
    more = True
    try:
        while not stop():
            while more and len(running) + len(ready) < 2 * workers:
                running.add(pool.submit(prepare))
            if not ready:
                if not running:
                    return
                done, running = wait(running, timeout=0.1, return_when=FIRST_COMPLETED)
                results = [future.result() for future in done]
                ready += [result for result in results if result is not None]
                more = more and len(ready) >= len(results)
            if ready and not stop():
                yield ready.popleft()
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
