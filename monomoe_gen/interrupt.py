"""Ctrl-C: once asks to stop at the next good moment, twice aborts."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def stop_on_interrupt(say: Callable[[str], object]) -> Iterator[threading.Event]:
    """Yields an event that the first Ctrl-C sets; the second raises KeyboardInterrupt.

    Only the main thread of a process can do this; in any other the event is never set.
    """
    stop = threading.Event()

    def handle(number: int, frame: FrameType | None) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()
        say("stopping after the current candidate; press Ctrl-C again to abort")

    if threading.current_thread() is not threading.main_thread():
        yield stop
        return
    before = signal.signal(signal.SIGINT, handle)
    try:
        yield stop
    finally:
        signal.signal(signal.SIGINT, before)
