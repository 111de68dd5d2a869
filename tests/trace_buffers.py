"""Trace buffers made by hand."""

import numpy as np

from monomoe_gen.rehearsal import rehearse
from monomoe_gen.schedule import WARPS, KernelSpec
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


def as_rehearsed(spec: KernelSpec, tokens: int, late_us: float = 0.0) -> Buffer:
    """What a launch would leave that goes as the cost model says, from 2.5 us + ``late_us`` on."""
    rehearsal = rehearse(spec, tokens)
    geometry = spec.geometry
    buffer = Buffer(spec.schedule.grid)
    start = 2.5 + late_us
    for cta, stages in enumerate(rehearsal.ctas):

        def mark(warp: int, event: Event, index: int, us: float, cta: int = cta) -> None:
            buffer.mark(cta, warp, event, index, us)

        mark(PRODUCER, Event.LISTED, 0, start - 0.1)
        units, products = [], []
        for i, stage in enumerate(stages):
            mark(PRODUCER, Event.ISSUED, 0, start + stage.requested)
            products.append((Event.STAGE_FULL, i, start + stage.started))
            last = not stage.up or stage.part == geometry.stages_per_unit_up - 1
            if last:
                products.append((Event.STAGE_DONE, i, start + stage.done))
            if last and stage.up:
                units.append(start + stage.done + rehearsal.publish_us)
        end = start + rehearsal.us + 1
        for warp in range(MMA, REQUANT):
            for event, index, us in products:
                mark(warp, event, index, us + warp / 1000)
            mark(warp, Event.REDUCED, 0, end)
        for i, us in enumerate(units):
            mark(EPILOGUE + i % 2, Event.UNIT_STORED, i, us)
        for warp in range(REQUANT, EPILOGUE):
            mark(warp, Event.ROUTED, 0, 1.5)
            mine = [e for s in stages if not s.up for e in s.experts][warp - REQUANT :: 8]
            for i, expert in enumerate(dict.fromkeys(mine)):
                mark(warp, Event.REQUANTIZED, i, start + rehearsal.h_complete[expert])
            mark(warp, Event.STORED, 0, end + 1)
    return buffer
