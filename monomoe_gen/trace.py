"""Time stamps of a traced launch: what the warps of every CTA did, and when.

A traced kernel (`render.render` with ``trace``) leaves a list of records for each warp, in the
format of ``templates/ops/trace.cuh``. Here they become marks in microseconds and spans between
marks. Nothing here needs a GPU.
"""

from __future__ import annotations

import enum
import zlib
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from monomoe_gen.errors import MonomoeError
from monomoe_gen.schedule import EPILOGUE_WARPS, MMA_WARPS, REQUANT_WARPS, WARPS

RECORDS = 1024  # u64 of a warp: its global start, then marks; the kernel drops those beyond


class Event(enum.IntEnum):
    """What a mark says, numbered as in the kernel."""

    START = 0
    SYNCED = 1
    ROUTED = 2
    LISTED = 3
    ISSUED = 4
    QUANTIZED = 5
    RECEIVED = 6
    STAGE_FULL = 7
    STAGE_DONE = 8
    UNIT_STORED = 9
    REQUANTIZED = 10
    H_READY = 11
    REDUCED = 12
    STORED = 13

    @property
    def label(self) -> str:
        return self.name.lower().replace("_", " ")


class Role(enum.Enum):
    """What a warp is for, in the order of the warps."""

    MMA = "MMA"
    REQUANT = "requant"
    EPILOGUE = "epilogue"
    PRODUCER = "producer"

    @classmethod
    def of(cls, warp: int) -> Role:
        for role, count in ROLE_WARPS.items():
            if warp < count:
                return role
            warp -= count
        raise ValueError(f"a CTA has {WARPS} warps")


ROLE_WARPS = {
    Role.MMA: MMA_WARPS,
    Role.REQUANT: REQUANT_WARPS,
    Role.EPILOGUE: EPILOGUE_WARPS,
    Role.PRODUCER: WARPS - MMA_WARPS - REQUANT_WARPS - EPILOGUE_WARPS,
}


class Kind(enum.Enum):
    """How a warp spends a span. Marks do not always tell working from waiting."""

    WORKS = "works"
    BOTH = "waits, then works"
    WAITS = "waits"


@dataclass(frozen=True)
class Mark:
    """``index`` counts units, stages or experts of the CTA, as the kernel gives it."""

    event: Event
    index: int
    us: float


@dataclass(frozen=True)
class Span:
    """What a warp did up to ``end``, since the mark before."""

    name: str
    kind: Kind
    start_us: float
    end: Mark

    @property
    def us(self) -> float:
        return self.end.us - self.start_us


@dataclass(frozen=True)
class WarpTrace:
    """The marks of one warp in order. ``full``: there was no room for later ones."""

    cta: int
    warp: int
    marks: tuple[Mark, ...]
    full: bool

    @property
    def role(self) -> Role:
        return Role.of(self.warp)

    def spans(self) -> Iterator[Span]:
        """What the warp did between its marks."""
        full = False  # whether a stage is there that has not been multiplied
        for before, mark in zip(self.marks, self.marks[1:], strict=False):
            name, kind = _ACTIVITIES[mark.event]
            if mark.event == Event.STAGE_FULL and full:
                name, kind = "multiply, then wait for weights", Kind.BOTH
            full = mark.event == Event.STAGE_FULL or (full and mark.event == Event.H_READY)
            yield Span(name, kind, before.us, mark)


_ACTIVITIES = {
    Event.SYNCED: ("make barriers, wait for other warps", Kind.BOTH),
    Event.ROUTED: ("route", Kind.WORKS),
    Event.LISTED: ("list experts", Kind.BOTH),
    Event.ISSUED: ("wait for room, request weights", Kind.BOTH),
    Event.QUANTIZED: ("quantize the input", Kind.WORKS),
    Event.RECEIVED: ("wait for the input", Kind.WAITS),
    Event.STAGE_FULL: ("wait for weights", Kind.WAITS),
    Event.STAGE_DONE: ("multiply", Kind.WORKS),
    Event.UNIT_STORED: ("wait for sums, publish h", Kind.BOTH),
    Event.REQUANTIZED: ("wait for h, requantize it", Kind.BOTH),
    Event.H_READY: ("wait for h", Kind.WAITS),
    Event.REDUCED: ("leave the down-projection", Kind.WORKS),
    Event.STORED: ("reduce, exchange, store", Kind.BOTH),
}


@dataclass(frozen=True)
class Trace:
    """One launch: a `WarpTrace` for every warp, CTA by CTA. Times count from the first start."""

    warps: tuple[WarpTrace, ...]

    @property
    def grid(self) -> int:
        return len(self.warps) // WARPS

    @property
    def us(self) -> float:
        """Time of the last mark."""
        return max(self.end_us(cta) for cta in range(self.grid))

    def cta(self, index: int) -> tuple[WarpTrace, ...]:
        """The warps of one CTA."""
        return self.warps[index * WARPS : (index + 1) * WARPS]

    def end_us(self, cta: int) -> float:
        """Time of the last mark of a CTA."""
        return max(warp.marks[-1].us for warp in self.cta(cta))

    def typical_ctas(self) -> dict[int, str]:
        """The CTA that ends first, the median one and the last one, each with what it is."""
        order = sorted(range(self.grid), key=self.end_us)
        places = {0: "ends first", len(order) // 2: "median", len(order) - 1: "ends last"}
        return {order[place]: what for place, what in places.items()}


def pack(records: NDArray[np.uint64]) -> bytes:
    """A trace buffer for a journey: little endian, compressed by zlib."""
    return zlib.compress(records.astype("<u8").tobytes())


def unpack(data: bytes, grid: int) -> NDArray[np.uint64]:
    """The buffer ``[grid, WARPS, RECORDS]`` that `pack` was given.

    Raises:
        MonomoeError: it has another size.
    """
    words = np.frombuffer(zlib.decompress(data), dtype="<u8")
    if words.size != grid * WARPS * RECORDS:
        raise MonomoeError(f"expected the time stamps of {grid} CTAs, found {words.size} words")
    return words.reshape(grid, WARPS, RECORDS).astype(np.uint64)


def parse(records: NDArray[np.uint64], clock_mhz: float) -> Trace:
    """The marks in a trace buffer.

    Args:
        records: ``[grid, WARPS, RECORDS]``, cleared before the launch.
        clock_mhz: of the SMs during the launch. Global time aligns the CTAs, clocks do the rest.

    Raises:
        MonomoeError: this is no buffer of one launch.
    """
    if records.ndim != 3 or records.shape[1:] != (WARPS, RECORDS) or not len(records):
        raise MonomoeError(
            f"a trace is [CTAs, {WARPS} warps, {RECORDS} records], found {list(records.shape)}"
        )
    started = records[:, :, 0].astype(np.int64)
    if not started.all() or not clock_mhz > 0:
        raise MonomoeError(
            "the trace is incomplete: a warp has no start, or the clock is unknown "
            f"({clock_mhz:g} MHz)"
        )
    # Clocks wrap at 2^32: the distance to the first mark of the CTA's first warp does not.
    clocks = (records[:, :, 1:] & np.uint64(0xFFFFFFFF)).astype(np.int64)
    elapsed = (clocks - clocks[:, :1, :1] + 2**31) % 2**32 - 2**31
    elapsed -= elapsed[:, :, :1].min(axis=1, keepdims=True)
    offsets = (started.min(axis=1) - started.min()) / 1000
    times = offsets[:, None, None] + elapsed / clock_mhz
    codes = (records[:, :, 1:] >> np.uint64(56)).astype(np.int64)
    indices = (records[:, :, 1:] >> np.uint64(32) & np.uint64(0xFFFF)).astype(np.int64)
    warps = []
    for cta in range(len(records)):
        for warp in range(WARPS):
            count = int((codes[cta, warp] != 0).argmin()) or RECORDS - 1
            own = codes[cta, warp, :count], indices[cta, warp, :count], times[cta, warp, :count]
            _check(cta, warp, own[0], own[2])
            marks = tuple(
                Mark(Event(code - 1), index, us)
                for code, index, us in zip(*(values.tolist() for values in own), strict=True)
            )
            warps.append(WarpTrace(cta, warp, marks, count == RECORDS - 1))
    return Trace(tuple(warps))


def _check(cta: int, warp: int, codes: NDArray[np.int64], us: NDArray[np.float64]) -> None:
    where = f"the trace of CTA {cta}, warp {warp}"
    if codes[0] != Event.START + 1:
        raise MonomoeError(f"{where} does not begin with a start")
    if codes.max() > max(Event) + 1:
        raise MonomoeError(f"{where} has the unknown event {codes.max() - 1}")
    if (np.diff(us) < 0).any():
        raise MonomoeError(f"{where} goes back in time: the buffer holds more than one launch")
