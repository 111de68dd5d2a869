"""Which equal kernels to compare in a given time, to learn how much they seem to differ."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from monomoe_gen.bench import LAUNCHES
from monomoe_gen.candidates import CellId, Pair
from monomoe_gen.lab import BLOCK

PROCESS_S = 5.0  # until a worker with its libraries loaded has the GPU, and the weights are drawn
TIMING_S = 0.012  # to load a kernel, capture a graph and read the clocks
KINDS = 2  # a kernel beside itself, and beside its copy at another place
_FLOORS = 4  # kernels timed once a cell and process: three streams and an empty one


def block_seconds(time_us: float) -> float:
    """About how long a block takes of kernels that take ``time_us``."""
    return 4 * _timing_seconds(time_us)


def cell_seconds(time_us: float, blocks: int) -> float:
    """About how long a process takes for both comparisons of a cell, floors included."""
    return KINDS * blocks * block_seconds(time_us) + floor_seconds(time_us)


def floor_seconds(time_us: float) -> float:
    """About how long the floors of a cell take, at most: they are faster than its kernel."""
    return _FLOORS * _timing_seconds(time_us)


def _timing_seconds(time_us: float) -> float:
    return (BLOCK.warmups + BLOCK.replays) * LAUNCHES * time_us / 1e6 + TIMING_S


def choose(
    pairs: Sequence[Pair],
    times_us: Mapping[CellId, float],
    blocks: int,
    processes: int,
    budget_s: float,
) -> list[Pair]:
    """The pairs that ``processes`` processes have time for, in their order; at least one.

    Every kernel once before any comes again, a model's fastest cells first: a block of a slow
    kernel takes longer and tells no more.
    """
    room = budget_s / processes - PROCESS_S
    ordered = sorted(pairs, key=lambda pair: times_us[pair.cell])
    turns: dict[str, int] = {}
    ranked = []
    for pair in ordered:
        kernel = pair.candidate.sources_hash
        ranked.append((turns.get(kernel, 0), times_us[pair.cell], pair))
        turns[kernel] = turns.get(kernel, 0) + 1
    chosen: set[CellId] = set()
    for _, time_us, pair in sorted(ranked, key=lambda item: item[:2]):
        room -= cell_seconds(time_us, blocks)
        if chosen and room < 0:
            break
        chosen.add(pair.cell)
    return [pair for pair in pairs if pair.cell in chosen]
