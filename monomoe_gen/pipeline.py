"""Keeps the GPU fed: candidates are prepared in threads while earlier ones are measured."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import TypeVar

T = TypeVar("T")


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
