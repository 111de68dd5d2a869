"""Several GPUs of one kind: one queue of candidates, a worker for each card, one database."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from statistics import median
from typing import TypeVar

from monomoe_gen.campaign import Campaign
from monomoe_gen.errors import EnvironmentProblem
from monomoe_gen.tuning_db import Record

SPREAD = 0.02  # between cards, that is worth a remark
T = TypeVar("T")


def share(
    queue: Iterator[T],
    campaigns: Sequence[Campaign],
    work: Callable[[Campaign, T], object],
    over: Callable[[], bool],
    failed: threading.Event,
    say: Callable[[str], object],
) -> list[Campaign]:
    """Hands the items of ``queue`` to the campaigns, one for each card; those that are left.

    A card that stops to answer is left out. Its item waits until the others are through with the
    queue, and is then tried once more, unless ``over`` by then; if that card stops too, it is lost.
    The first campaign works in the calling thread. ``failed`` is set when an exception ends the
    work, and has to end the queue.

    Raises:
        EnvironmentProblem: no card is left.
    """
    alive, waiting = _round(queue, campaigns, work, failed, say)
    if waiting and not over():
        alive, _ = _round(iter(waiting), alive, work, failed, say)
    return alive


def _round(
    queue: Iterator[T],
    campaigns: Sequence[Campaign],
    work: Callable[[Campaign, T], object],
    failed: threading.Event,
    say: Callable[[str], object],
) -> tuple[list[Campaign], list[T]]:
    """The campaigns that are left when the queue is empty, and the items that took the others."""
    turn = threading.Lock()
    alive = list(campaigns)
    lost: list[T] = []

    def consume(own: Campaign) -> None:
        while not failed.is_set():
            with turn:
                item = next(queue, None)
            if item is None:
                return
            try:
                work(own, item)
            except EnvironmentProblem as problem:
                with turn:
                    alive.remove(own)
                    lost.append(item)
                    if not alive:
                        failed.set()
                        raise
                say(f"{own.env.get('uuid')} is left out from now on: {problem}")
                return
            except BaseException:
                failed.set()
                raise

    first, *others = campaigns
    if not others:
        consume(first)
        return alive, lost
    pool = ThreadPoolExecutor(len(others))
    try:
        running = [pool.submit(consume, other) for other in others]
        consume(first)
        for future in running:
            future.result()
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
    return alive, lost


def spread(records: Iterable[Record]) -> str:
    """What to say when cards differ by more than `SPREAD`, else nothing.

    They are compared by the stream floors that were timed beside the candidates: the same copies
    at the same token count, whatever the candidate.
    """
    floors: dict[int, dict[str, list[float]]] = {}
    for record in records:
        if record.floor_us:
            cards = floors.setdefault(record.tokens, {})
            cards.setdefault(str(record.env.get("uuid")), []).append(record.floor_us)
    worst = ""
    largest = SPREAD
    for tokens, cards in sorted(floors.items()):
        typical = {uuid: median(times) for uuid, times in cards.items()}
        slow, fast = max(typical, key=typical.__getitem__), min(typical, key=typical.__getitem__)
        apart = typical[slow] / typical[fast] - 1
        if apart > largest:
            largest = apart
            worst = (
                f"the cards differ: at {tokens} tokens the stream floor of {slow} is {apart:.1%} "
                f"slower than that of {fast} ({typical[slow]:g} and {typical[fast]:g} us)"
            )
    return worst
