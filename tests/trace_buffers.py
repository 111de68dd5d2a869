"""Trace buffers made by hand."""

import numpy as np

from monomoe_gen.schedule import WARPS
from monomoe_gen.trace import RECORDS, Event, Trace, parse

MHZ = 2000.0  # two cycles a nanosecond
MMA, REQUANT, EPILOGUE, PRODUCER = 0, 8, 16, 18  # the first warp of each role


class Buffer:
    """Writes what the kernel writes. Every warp starts; the clocks of CTAs are unrelated."""

    def __init__(self, grid: int = 2, clock: int = 0xFFFFFF00) -> None:
        self.records = np.zeros((grid, WARPS, RECORDS), dtype=np.uint64)
        self.clock = [clock + 12345 * cta for cta in range(grid)]
        self.count = np.ones((grid, WARPS), dtype=int)
        for cta in range(grid):
            for warp in range(WARPS):
                self.records[cta, warp, 0] = 7_000_000_000 + 100 * cta  # ns: a CTA a 0.1 us
                self.mark(cta, warp, Event.START, 0, warp / 1000)

    def mark(self, cta: int, warp: int, event: int, index: int, us: float) -> None:
        """``us`` counts from the start of the CTA's first warp."""
        clock = (self.clock[cta] + round(us * MHZ)) % 2**32
        self.records[cta, warp, self.count[cta, warp]] = (event + 1) << 56 | index << 32 | clock
        self.count[cta, warp] += 1

    def parse(self) -> Trace:
        return parse(self.records, MHZ)
