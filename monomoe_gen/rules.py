"""The rules a schedule must keep, each with its reason.

A rule is checked three times: here before anything is rendered, by a `static_assert` with the same
reason in the rendered kernel (`cuda`), and by the tests that hold the two together. Rules about the
device have no twin: the launcher checks them on the device itself.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from monomoe_gen.device import Device
from monomoe_gen.schedule import (
    MMA_WARPS,
    ROW_TILE,
    Geometry,
    Schedule,
)
from monomoe_gen.shapes import SCALE_BLOCK, Shape

BYTES_IN_FLIGHT = 48 * 1024  # per SM: 4.6 TB/s over 132 SMs for 1.2 us of loaded latency is 41 KB
MAX_ACCUMULATOR_TILES = 16  # 16x8 fp32 tiles a warp can keep (64 registers)
LANES = 32


@dataclass(frozen=True)
class Rule:
    """`holds(geometry, device)` or the schedule is infeasible; `found` shows both sides."""

    name: str
    reason: str
    parameters: tuple[str, ...]  # the schedule parameters that its verdict depends on
    holds: Callable[[Geometry, Device], bool]
    found: Callable[[Geometry, Device], str]
    cuda: str | None = None


@dataclass(frozen=True)
class Violation:
    rule: Rule
    found: str

    def __str__(self) -> str:
        return f"{self.rule.name}: {self.rule.reason} ({self.found})"


RULES: tuple[Rule, ...] = (
    Rule(
        "up_stripe_is_whole_mma_tiles",
        "g_up stripes of w13 are whole 16-row tiles: 8 gate rows and their 8 up rows",
        ("g_up",),
        lambda p, d: 2 * p.shape.intermediate % (ROW_TILE * p.schedule.g_up) == 0,
        lambda p, d: f"2 * {p.shape.intermediate} rows / g_up {p.schedule.g_up} / 16",
        "2 * shape::kIntermediate % (kRowTile * kGUp) == 0",
    ),
    Rule(
        "up_stripe_has_one_scale_row",
        "the gate rows of an up stripe share one 128-row scale block",
        ("g_up",),
        lambda p, d: p.stripe_up > 0 and 2 * SCALE_BLOCK % p.stripe_up == 0,
        lambda p, d: f"256 / stripe of {p.stripe_up} rows",
        "kStripeUp > 0 && 2 * kScaleBlock % kStripeUp == 0",
    ),
    Rule(
        "up_stage_divides_hidden",
        "an up stage is whole 128-column scale blocks and divides the hidden size",
        ("k_up",),
        lambda p, d: p.schedule.k_up % SCALE_BLOCK == 0 and p.shape.hidden % p.schedule.k_up == 0,
        lambda p, d: f"hidden {p.shape.hidden} / k_up {p.schedule.k_up}",
        "kKUp % kScaleBlock == 0 && shape::kHidden % kKUp == 0",
    ),
    Rule(
        "down_stripe_is_whole_mma_tiles",
        "g_down stripes of the output are whole 16-row tiles",
        ("g_down",),
        lambda p, d: p.shape.hidden % (ROW_TILE * p.schedule.g_down) == 0,
        lambda p, d: f"{p.shape.hidden} rows / g_down {p.schedule.g_down} / 16",
        "shape::kHidden % (kRowTile * kGDown) == 0",
    ),
    Rule(
        "down_stage_divides_intermediate",
        "a down stage is whole 128-column scale blocks and divides the intermediate size",
        ("k_down",),
        lambda p, d: (
            p.schedule.k_down % SCALE_BLOCK == 0 and p.shape.intermediate % p.schedule.k_down == 0
        ),
        lambda p, d: f"intermediate {p.shape.intermediate} / k_down {p.schedule.k_down}",
        "kKDown % kScaleBlock == 0 && shape::kIntermediate % kKDown == 0",
    ),
    Rule(
        "down_group_fits_grid",
        "the CTAs of a down group are part of the grid",
        ("grid", "g_down"),
        lambda p, d: p.schedule.g_down <= p.schedule.grid,
        lambda p, d: f"g_down {p.schedule.g_down}, grid {p.schedule.grid}",
        "kGDown <= kGrid",
    ),
    Rule(
        "down_scales_fit_one_warp",
        "one lane holds each scale of a down stripe and expert",
        ("g_down",),
        lambda p, d: p.down_scale_rows * p.shape.intermediate // SCALE_BLOCK <= LANES,
        lambda p, d: (
            f"{p.down_scale_rows} row blocks x {p.shape.intermediate // SCALE_BLOCK} column "
            "blocks, 32 lanes"
        ),
        "kDownScaleRows * kIntermediateBlocks <= 32",
    ),
    Rule(
        "ring_has_two_stages",
        "one stage is in flight while another is read",
        ("d_up", "d_down"),
        lambda p, d: min(p.schedule.d_up, p.schedule.d_down) >= 2,
        lambda p, d: f"d_up {p.schedule.d_up}, d_down {p.schedule.d_down}",
        "kDUp >= 2 && kDDown >= 2",
    ),
    Rule(
        "ring_covers_latency",
        "48 KB in flight per SM or the memory latency shows in both projections",
        ("g_up", "k_up", "g_down", "k_down", "d_up", "d_down"),
        lambda p, d: (
            min(p.schedule.d_up * p.stage_bytes_up, p.schedule.d_down * p.stage_bytes_down)
            >= BYTES_IN_FLIGHT
        ),
        lambda p, d: (
            f"up {p.schedule.d_up} x {p.stage_bytes_up} bytes, "
            f"down {p.schedule.d_down} x {p.stage_bytes_down} bytes"
        ),
        "kDUp * UpStage::kBytes >= 49152 && kDDown * DownStage::kBytes >= 49152",
    ),
    Rule(
        "ring_is_shared",
        "either projection can fill three quarters of the ring; the rest of the shared memory "
        "would be idle",
        ("g_up", "k_up", "g_down", "k_down", "d_up", "d_down"),
        lambda p, d: (
            4 * min(p.schedule.d_up * p.stage_bytes_up, p.schedule.d_down * p.stage_bytes_down)
            >= 3 * p.ring_bytes
        ),
        lambda p, d: (
            f"up {p.schedule.d_up} x {p.stage_bytes_up} bytes, "
            f"down {p.schedule.d_down} x {p.stage_bytes_down} bytes"
        ),
        "4 * kDUp * UpStage::kBytes >= 3 * kRingBytes"
        " && 4 * kDDown * DownStage::kBytes >= 3 * kRingBytes",
    ),
    Rule(
        "up_stage_feeds_the_mma_warps",
        "an up stage has a block for each of the 8 MMA warps",
        ("k_up", "g_up"),
        lambda p, d: p.stage_blocks_up >= MMA_WARPS,
        lambda p, d: f"{p.stage_blocks_up} blocks",
        "UpStage::kBlocks >= kMmaWarps",
    ),
    Rule(
        "accumulators_fit_registers",
        "a warp keeps the partial sums of its tiles in at most 64 registers",
        ("g_up", "g_down", "k_up", "k_down"),
        lambda p, d: (
            max(p.accumulators_up, p.accumulators_down * p.token_tiles) <= MAX_ACCUMULATOR_TILES
        ),
        lambda p, d: (
            f"up {p.accumulators_up} tiles, down {p.accumulators_down} x {p.token_tiles} token "
            "tiles, at most 16"
        ),
        "UpStage::kAccumulators <= 16 && DownStage::kAccumulators * kTokenTiles <= 16",
    ),
    Rule(
        "grid_is_resident",
        "every CTA has an SM of its own, or a waiting CTA could wait for one that never starts",
        ("grid",),
        lambda p, d: p.schedule.grid <= d.sms,
        lambda p, d: f"grid {p.schedule.grid}, {d.sms} SMs",
    ),
    Rule(
        "shared_memory_fits",
        "the CTA's shared memory is at most what one block may have",
        ("g_up", "k_up", "g_down", "k_down", "d_up", "d_down"),
        lambda p, d: p.shared_bytes <= d.shared_per_block,
        lambda p, d: f"{p.shared_bytes} bytes, {d.shared_per_block} available",
    ),
)


def violations(
    shape: Shape, schedule: Schedule, device: Device, token_tile: int = 8
) -> tuple[Violation, ...]:
    """Every rule that the schedule breaks.

    A rule that assumes another (the byte counts assume whole tiles) is judged only when the
    divisibility rules hold.
    """
    geometry = Geometry(shape, schedule, token_tile)
    broken: list[Violation] = []
    for rule in RULES:
        if broken and rule.name in _ASSUME_DIVISIBILITY:
            continue
        if not rule.holds(geometry, device):
            broken.append(Violation(rule, rule.found(geometry, device)))
    return tuple(broken)


_ASSUME_DIVISIBILITY = frozenset(
    {
        "down_scales_fit_one_warp",
        "ring_covers_latency",
        "ring_is_shared",
        "up_stage_feeds_the_mma_warps",
        "accumulators_fit_registers",
        "shared_memory_fits",
    }
)
