"""Predicts how long a schedule takes, from its shape alone: which candidates to measure first.

The model follows the CTA with the most work through a launch. Everything counts from the first
weight request, in microseconds:

1. *up*: all up units of the CTA are multiplied. Three things bound it: the memory system, which
   also carries the down weights that full rings have asked for by then; the CTA's own copies,
   whose ring slot is free again only when its stage is multiplied; and the MMA warps.
2. *down*: the last expert's sums are there. Bounds are all bytes of the launch, the down stages
   that did not fit the ring by the end of *up*, the MMA warps, and the hand-off of the last h.
3. *finish*: the sums are reduced, exchanged between down groups, and stored.

Where several things bound a phase, each delays the others a little: a norm of high order replaces
the maximum. The number of active experts is a distribution, not its mean, since units are dealt to
the CTAs in whole rounds.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from monomoe_gen.schedule import MMA_WARPS, ROW_TILE, KernelSpec, Schedule
from monomoe_gen.shapes import Shape

Array = NDArray[np.float64]

TOP = 10  # candidates of each token count that a search begins with
MAX_OUTSTANDING = 64 * 1024  # bytes on their way to a CTA, as in ops/ring.cuh
RARE = 1e-3  # numbers of experts that are less likely than this do not count


def _constant(value: float, doc: str) -> float:
    return field(default=value, metadata={"doc": doc})


@dataclass(frozen=True)
class Constants:
    """What the hardware and the kernel's fixed parts cost; the defaults are of an H200.

    *Set* values were measured by themselves. *Fitted* ones are those with the least robust sum of
    squared log ratios to screened medians in ``tuning_db/nvidia-h200``: for the order to those of
    earlier kernels, of three shapes at 1, 2, 4 and 8 tokens (4012 records), less the mean of each
    shape and token count, fast schedules weighing more; for the level, which is ``start_us``, to
    those of the present kernels (nine schedules each). There is one value for all shapes.
    Cycles are converted at 1.9 GHz. ``monomoe-gen rank --recorded`` prints how well it works.
    """

    bandwidth: float = _constant(
        4.65e6, "bytes per us of the whole GPU; set: the slope of the stream floors over the bytes"
    )
    start_us: float = _constant(
        1.8, "launch, routing, expert list, first byte, end of the launch; fitted"
    )
    stage_us: float = _constant(0.091, "an MMA warp waits for a stage and gives it back; fitted")
    block_us: float = _constant(
        0.16, "an MMA warp multiplies a 16x128 block; set: 311 cycles in a loop of its own"
    )
    issue_us: float = _constant(
        0.093, "the producer opens a stage; set: 177 cycles between requests in a trace"
    )
    copy_us: float = _constant(0.09, "each bulk copy of a stage; fitted")
    row_us: float = _constant(
        0.022, "each copy of one row, of raw weights; fitted to the raw ones of four shapes"
    )
    publish_us: float = _constant(
        0.37, "an epilogue warp sums and publishes h of one row tile; fitted, 0.23 in a trace"
    )
    handoff_us: float = _constant(
        1.58, "from published h to requantized h elsewhere; set: medians of a trace"
    )
    eager: float = _constant(
        0.45, "share of a ring's down weights that delays the up weights of other CTAs; fitted"
    )
    reduce_us: float = _constant(0.95, "last product to stored output; fitted")
    exchange_us: float = _constant(
        0.17, "each 256 partial sums of one other down group are received; fitted"
    )
    order: float = _constant(6.0, "of the norm of competing bounds; chosen among 4 to 10")


H200 = Constants()


@dataclass(frozen=True)
class Estimate:
    """A prediction in microseconds: until the first byte, then by phase (see the module)."""

    start_us: float
    up_us: float
    down_us: float
    finish_us: float

    @property
    def us(self) -> float:
        return self.start_us + self.up_us + self.down_us + self.finish_us


def estimate(spec: KernelSpec, tokens: int, constants: Constants = H200) -> Estimate:
    """Predicts one cold launch of `tokens` tokens with uniform routing.

    The schedule keeps the rules of `space`. Calibrated for 1 to 8 tokens.
    """
    c, p, shape, schedule = constants, spec.geometry, spec.shape, spec.schedule
    active, probability = active_experts(shape, tokens)
    expert_us = shape.expert_bytes / c.bandwidth
    up_stages = np.ceil(active * schedule.g_up / schedule.grid) * p.stages_per_unit_up
    experts = np.ceil(active / p.down_groups)
    down_stages = np.ceil(experts / p.experts_per_stage_down) * p.stages_per_expert_down
    ahead = np.minimum(down_stages, schedule.d_down)  # stages that the ring holds when up ends

    up_load = p.stage_bytes_up * schedule.grid / c.bandwidth
    down_load = p.stage_bytes_down * schedule.grid / c.bandwidth
    up_mma = _mma_us(c, p.stage_blocks_up)
    down_mma = _mma_us(c, p.stage_blocks_down)
    up_copies, down_copies = _copies_us(c, spec)
    up_request = _request_us(c, p.stage_bytes_up, schedule.d_up, up_copies, up_load, up_mma)
    down_request = _request_us(
        c, p.stage_bytes_down, schedule.d_down, down_copies, down_load, down_mma
    )

    up = _norm(
        c.order,
        active * expert_us * 2 / 3 + c.eager * ahead * down_load,
        up_stages * up_request,
        up_load + up_stages * up_mma,
    )
    # Experts of the last round of up units reach the down-projection after everybody else's.
    late = np.ceil(np.minimum(active, schedule.grid / schedule.g_up) / p.down_groups)
    late_stages = np.ceil(late / p.experts_per_stage_down) * p.stages_per_expert_down
    handed_off = c.publish_us * p.tiles_up + c.handoff_us
    end = _norm(
        c.order,
        active * expert_us + down_mma,
        up + (down_stages - ahead) * down_request + down_mma,
        up
        + np.maximum(
            down_stages * down_mma,
            handed_off + np.minimum(late_stages, down_stages) * down_mma,
        ),
    )
    rounds = math.ceil(tokens * p.stripe_down / (32 * MMA_WARPS))
    return Estimate(
        start_us=c.start_us,
        up_us=float(up @ probability),
        down_us=float((end - up) @ probability),
        finish_us=c.reduce_us + c.exchange_us * rounds * (p.down_groups - 1),
    )


def _mma_us(c: Constants, blocks: int) -> float:
    """A stage of `blocks` blocks, dealt to the MMA warps."""
    return c.stage_us + c.block_us * math.ceil(blocks / MMA_WARPS)


def _copies_us(c: Constants, spec: KernelSpec) -> tuple[float, float]:
    """The copies of an up stage and of a down stage.

    Packed weights are copied by the tile, and all tiles at once where a stage has whole rows. Raw
    ones are copied by the row; where a stage has whole rows, all gate rows at once, all up rows,
    and all rows of an expert.
    """
    p = spec.geometry
    whole_up, whole_down = p.stages_per_unit_up == 1, p.stages_per_expert_down == 1
    down = c.copy_us * (p.experts_per_stage_down if whole_down else p.tiles_down)
    if spec.layout == "packed":
        return c.copy_us * p.tiles_up, down
    rows_up, rows_down = ROW_TILE * p.tiles_up, ROW_TILE * p.tiles_down
    up = c.copy_us * 2 if whole_up else c.row_us * rows_up
    return up, down if whole_down else c.row_us * rows_down


def _request_us(
    c: Constants, stage_bytes: int, depth: int, copies_us: float, load_us: float, mma_us: float
) -> float:
    """Least time between two requests of a CTA's producer.

    A stage takes `load_us` at the CTA's share of the bandwidth; `depth` slots are in turn loaded
    and multiplied, and only as many are on their way as the kernel allows.
    """
    loading = min(depth, max(1, MAX_OUTSTANDING // stage_bytes))
    return max(c.issue_us + copies_us, load_us / loading, (load_us + mma_us) / depth)


def _norm(order: float, *bounds: Array) -> Array:
    total = sum(bound**order for bound in bounds)
    return np.asarray(total) ** (1 / order)


def active_experts(shape: Shape, tokens: int) -> tuple[Array, Array]:
    """`distinct_experts` of a shape, and the shared ones with them."""
    routed, probability = distinct_experts(shape.experts, shape.top_k, tokens)
    return routed + shape.shared_experts, probability


@lru_cache(maxsize=256)
def distinct_experts(experts: int, top_k: int, tokens: int) -> tuple[Array, Array]:
    """``(numbers of active experts, their probabilities)`` if tokens choose uniformly.

    Numbers less likely than `RARE` are left out.
    """
    chances = {top_k: 1.0}
    choices = math.comb(experts, top_k)
    for _ in range(tokens - 1):
        previous, chances = chances, {}
        for active, chance in previous.items():
            for new in range(max(0, top_k - active), min(top_k, experts - active) + 1):
                ways = math.comb(experts - active, new) * math.comb(active, top_k - new)
                chances[active + new] = chances.get(active + new, 0.0) + chance * ways / choices
    likely = {active: chance for active, chance in sorted(chances.items()) if chance >= RARE}
    probability = np.array(list(likely.values()))
    return np.array(list(likely), dtype=np.float64), probability / probability.sum()


def ranked(specs: Iterable[KernelSpec], tokens: int) -> list[tuple[KernelSpec, Estimate]]:
    """The kernels with their predictions, the fastest first; ties keep their order."""
    return sorted(((s, estimate(s, tokens)) for s in specs), key=lambda pair: pair[1].us)


def favourites(
    specs: Sequence[KernelSpec], tokens: Sequence[int], count: int = TOP
) -> list[Schedule]:
    """The `count` schedules predicted fastest of each token count: all firsts, all seconds, ..."""
    lists = [[s.schedule for s, _ in ranked(specs, n)[:count]] for n in tokens]
    return list(dict.fromkeys(s for place in zip(*lists, strict=True) for s in place))
