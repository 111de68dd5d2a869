"""The seven schedule parameters and everything that follows from them.

`Schedule` is what a tuner chooses, `KernelSpec` adds the problem and the token capacity, and
`Geometry` derives the quantities that the rules (`space`), the templates and the launcher share.
Each parameter is defined once, here: its name converts mechanically (`k_up` in Python, JSON and on
the command line, `schedule::kKUp` in CUDA) and its doc string is the comment in the rendered
header.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Literal, get_args

from monomoe_gen.errors import MonomoeError
from monomoe_gen.shapes import SCALE_BLOCK, Shape

MMA_WARPS = 8
REQUANT_WARPS = 8
EPILOGUE_WARPS = 2
COLUMNS = 8  # of an MMA: tokens that are multiplied at a time
WARPS = MMA_WARPS + REQUANT_WARPS + EPILOGUE_WARPS + 1  # the last one is the producer
ROW_TILE = 16  # rows of one MMA tile; in w13 these are 8 gate rows and their 8 up rows
BLOCK_BYTES = (
    ROW_TILE * SCALE_BLOCK
)  # one MMA warp's share of a stage: 16 rows x 128 columns of e4m3
TOKEN_TILES = (8, 16, 24, 32)
ACTIVATION_BYTES = {"fp8": 1, "bf16": 2}  # of one value of x or h as it is multiplied
# Values between activation rows; keeps 16-byte B operand loads free of bank conflicts.
ROW_PAD = {"fp8": 64, "bf16": 8}
Layout = Literal["packed", "raw"]
"""Of the weights: regrouped for the kernel, or as the checkpoint has them (see `weights`)."""
LAYOUTS: tuple[Layout, ...] = get_args(Layout)
Router = Literal["logits", "weight"]
"""What a kernel routes by: logits that it is given, or the router's weight, which it multiplies."""
ROUTERS: tuple[Router, ...] = get_args(Router)
HEADER_BYTES = 128  # workspace header: done counter, epoch, dirty bytes of either half
H_STAGING_VALUES = 40 * 1024  # budget of the h slots; longer rows get fewer slots
# For x, h and partial sums in shared memory; an x that does not fit is read block by block.
STAGING_BYTES = 176 * 1024
INPUT_PACKET_BYTES = SCALE_BLOCK + 16  # 128 columns of one token, their scale, three words of fill
_NUMBER = "([0-9]{1,9})"
_ROLE = "x".join([_NUMBER] * 3)
_ID = re.compile(f"g{_NUMBER}-u{_ROLE}-d{_ROLE}")
_FORMS = (
    "write an id as tables print it, such as g132-u64x1024x8-d128x512x8 (grid, g_up x k_up x d_up, "
    "g_down x k_down x d_down), or name=integer, comma separated"
)


def _parameter(doc: str) -> int:
    return field(metadata={"doc": doc})


@dataclass(frozen=True, order=True)
class Schedule:
    """One point of the search space."""

    grid: int = _parameter("persistent CTAs, at most one per SM, all co-resident")
    g_up: int = _parameter("CTAs that share one expert's up-projection")
    k_up: int = _parameter("columns of one up stage")
    g_down: int = _parameter("CTAs that share one expert's down-projection")
    k_down: int = _parameter("columns of one down stage")
    d_up: int = _parameter("ring stages in flight during up")
    d_down: int = _parameter("ring stages in flight during down")

    @property
    def id(self) -> str:
        """Short name, e.g. ``g132-u64x1024x8-d128x512x8``.

        The grid, then CTAs x columns x depth of up and of down.
        """
        return (
            f"g{self.grid}-u{self.g_up}x{self.k_up}x{self.d_up}"
            f"-d{self.g_down}x{self.k_down}x{self.d_down}"
        )

    def to_dict(self) -> dict[str, int]:
        return {f.name: getattr(self, f.name) for f in fields(self)}

    @classmethod
    def from_dict(cls, values: Mapping[str, object]) -> Schedule:
        """Builds a schedule from exactly the seven names with positive integer values."""
        names = [f.name for f in fields(cls)]
        unknown = sorted(set(values) - set(names))
        missing = [n for n in names if n not in values]
        if unknown or missing:
            what = [f"unknown {', '.join(unknown)}"] if unknown else []
            what += [f"missing {', '.join(missing)}"] if missing else []
            raise MonomoeError(
                f"a schedule has the parameters {', '.join(names)}: {'; '.join(what)}"
            )
        for name in names:
            value = values[name]
            if type(value) is not int or value <= 0:
                raise MonomoeError(
                    f"schedule parameter {name} must be a positive integer, found {value!r}"
                )
        return cls(**{n: values[n] for n in names})  # type: ignore[arg-type]

    @classmethod
    def parse(cls, text: str) -> Schedule:
        """Reads an `id`, or ``grid=132,g_up=64,...`` (the seven names in any order).

        Raises:
            MonomoeError: it is neither, or a parameter is missing, unknown or no positive integer.
        """
        if match := _ID.fullmatch(text.strip()):
            names = ("grid", "g_up", "k_up", "d_up", "g_down", "k_down", "d_down")
            return cls.from_dict(dict(zip(names, map(int, match.groups()), strict=True)))
        values: dict[str, object] = {}
        for part in filter(None, (p.strip() for p in text.split(","))):
            name, _, number = part.partition("=")
            if not re.fullmatch(_NUMBER, number.strip()):
                raise MonomoeError(f"cannot read {part!r} in schedule {text!r}: {_FORMS}")
            values[name.strip()] = int(number)
        try:
            return cls.from_dict(values)
        except MonomoeError as error:
            raise MonomoeError(f"cannot read schedule {text!r}: {error}; {_FORMS}") from None


def require_layout(name: str) -> Layout:
    """``name`` if it is one of `LAYOUTS`; raises `MonomoeError` otherwise."""
    if name not in LAYOUTS:
        raise MonomoeError(f"a layout is one of {', '.join(LAYOUTS)}, found {name!r}")
    return name


def variant_names(layout: Layout, router: Router, pdl: bool) -> tuple[str, ...]:
    """What names of files and kernels say of a variant; nothing for the usual one."""
    chosen = (layout, layout != "packed"), ("router", router == "weight"), ("pdl", pdl)
    return tuple(name for name, said in chosen if said)


@dataclass(frozen=True)
class KernelSpec:
    """What one kernel is generated from.

    `token_tile` is the number of tokens it can take, `layout` how its weights lie in memory. A
    kernel of `router` "weight" takes the router's weight bf16 ``[E, H]`` where others take logits.
    With `pdl` it begins before the kernel ahead of it in the stream has ended (programmatic
    dependent launch). None of them changes a rule or the shared memory.
    """

    shape: Shape
    schedule: Schedule
    token_tile: int = 8
    layout: Layout = "packed"
    router: Router = "logits"
    pdl: bool = False

    def __post_init__(self) -> None:
        if self.token_tile not in TOKEN_TILES:
            raise MonomoeError(f"token tile must be one of {TOKEN_TILES}, found {self.token_tile}")
        require_layout(self.layout)
        if self.router not in ROUTERS:
            raise MonomoeError(f"a router is one of {', '.join(ROUTERS)}, found {self.router!r}")
        if self.router == "weight" and self.shape.shared_gate:
            raise MonomoeError(
                f"{self.shape.name} has a shared gate, whose logit the router inside does not "
                "compute: take the kernel that is given logits"
            )

    @property
    def variants(self) -> tuple[str, ...]:
        """What sets it apart from the usual kernel of its schedule."""
        return variant_names(self.layout, self.router, self.pdl)

    @property
    def id(self) -> str:
        suffix = "".join(f"-{name}" for name in self.variants)
        return f"{self.shape.name}-t{self.token_tile}-{self.schedule.id}{suffix}"

    @property
    def kernel_name(self) -> str:
        rest = self.id.removeprefix(f"{self.shape.name}-").replace("-", "_")
        return f"monomoe_{self.shape.slug}_{rest}"

    @cached_property
    def geometry(self) -> Geometry:
        return Geometry(self.shape, self.schedule, self.token_tile, self.router)


@dataclass(frozen=True)
class Geometry:
    """Derived quantities of a schedule that keeps the divisibility rules of `space`.

    Byte counts are exact: `shared_bytes` equals `sizeof(SharedStorage)` of the rendered kernel,
    which asserts it.
    """

    shape: Shape
    schedule: Schedule
    token_tile: int
    router: Router = "logits"

    threads = 32 * WARPS
    mma_warps = MMA_WARPS
    requant_warps = REQUANT_WARPS
    epilogue_warps = EPILOGUE_WARPS
    scale_slots = 4  # units whose w13 scales an MMA warp has or has asked for
    input_item_words = 256  # 16-byte words of packets that a warp receives at once

    # -- up-projection: unit (active expert, stripe), stage = all tiles of the stripe x k_up columns
    @property
    def stripe_up(self) -> int:
        """Rows of w13 (gate and up together) that one CTA owns in a unit."""
        return 2 * self.shape.intermediate // self.schedule.g_up

    @property
    def tiles_up(self) -> int:
        return self.stripe_up // ROW_TILE

    @property
    def stages_per_unit_up(self) -> int:
        return self.shape.hidden // self.schedule.k_up

    @property
    def stage_blocks_up(self) -> int:
        return self.tiles_up * self.schedule.k_up // SCALE_BLOCK

    @property
    def unit_columns(self) -> int:
        """Column blocks of a unit whose scales an MMA warp keeps.

        Its blocks of a stage meet column blocks in a cycle, so each of these counts once.
        """
        columns = self.schedule.k_up // SCALE_BLOCK
        cycle = columns // math.gcd(columns, MMA_WARPS)
        return self.stages_per_unit_up * min(-(-self.stage_blocks_up // MMA_WARPS), cycle)

    # -- down-projection: a CTA owns a stripe of output rows for every expert of its group
    @property
    def stripe_down(self) -> int:
        """Output rows that one CTA owns."""
        return self.shape.hidden // self.schedule.g_down

    @property
    def tiles_down(self) -> int:
        return self.stripe_down // ROW_TILE

    @property
    def stages_per_expert_down(self) -> int:
        return self.shape.intermediate // self.schedule.k_down

    @property
    def expert_blocks_down(self) -> int:
        """Blocks of one expert in one down stage."""
        return self.tiles_down * self.schedule.k_down // SCALE_BLOCK

    @property
    def experts_per_stage_down(self) -> int:
        """Experts side by side in one down stage.

        Small stripes are paired up until every MMA warp has a block.
        """
        blocks = self.expert_blocks_down
        whole = self.schedule.k_down == self.shape.intermediate
        if not whole or blocks >= MMA_WARPS or MMA_WARPS % blocks:
            return 1
        return min(MMA_WARPS // blocks, self.h_slots)

    @property
    def stage_blocks_down(self) -> int:
        return self.expert_blocks_down * self.experts_per_stage_down

    @property
    def down_groups(self) -> int:
        """CTA groups that stride over the experts in the down-projection."""
        return self.schedule.grid // self.schedule.g_down

    @property
    def cluster_ctas(self) -> int:
        """CTAs of a thread block cluster: two down groups are paired, more exchange through L2.

        Clusters of four would not fill the GPU: an H200 holds 30 of them.
        """
        return 2 if self.down_groups == 2 and self.schedule.grid % 2 == 0 else 1

    @property
    def partial_outputs(self) -> int:
        """Down groups whose sums of a token go through the workspace."""
        return 0 if self.cluster_ctas > 1 else self.down_groups - 1

    @property
    def down_scale_rows(self) -> int:
        """Most 128-row scale blocks that one output stripe touches."""
        rows = self.stripe_down
        return max(
            (first + rows - 1) // SCALE_BLOCK - first // SCALE_BLOCK + 1
            for first in range(0, self.shape.hidden, rows)
        )

    # -- shared memory
    @property
    def stage_bytes_up(self) -> int:
        return self.stage_blocks_up * BLOCK_BYTES

    @property
    def stage_bytes_down(self) -> int:
        return self.stage_blocks_down * BLOCK_BYTES

    @property
    def ring_bytes(self) -> int:
        return max(
            self.schedule.d_up * self.stage_bytes_up, self.schedule.d_down * self.stage_bytes_down
        )

    @property
    def ring_stages(self) -> int:
        """Full/empty barrier pairs of the ring."""
        return max(self.schedule.d_up, self.schedule.d_down)

    @property
    def activation_bytes(self) -> int:
        """Bytes of a value of x or h as the MMA warps read it."""
        return ACTIVATION_BYTES[self.shape.activations]

    @property
    def row_pad(self) -> int:
        """Values after each row of x and h in shared memory."""
        return ROW_PAD[self.shape.activations]

    @property
    def h_slots(self) -> int:
        """Experts whose rounded h is staged at a time: the most of 8, 4, 2 that fit."""
        slot = self._row_bytes(self.shape.intermediate) * COLUMNS
        budget = H_STAGING_VALUES * self.activation_bytes
        return next((n for n in (8, 4) if n * slot <= budget), 2)

    @property
    def slot_warps(self) -> int:
        """Requant warps that share the rows of one slot.

        Each of them visits all experts of its slots, so fewer share where a CTA serves all experts.
        """
        if self.down_groups > 1:
            return REQUANT_WARPS
        return max(2, REQUANT_WARPS // self.h_slots)

    @property
    def x_in_shared(self) -> bool:
        """Whether each CTA keeps all of the input, or reads it block by block."""
        return self._x_bytes + self._h_bytes + self._partial_bytes <= STAGING_BYTES

    @property
    def input_parts(self) -> int:
        """Parts of the columns in which a CTA receives the quantized input.

        What a warp receives at once is a part of a token's packets, or parts of several tokens.
        """
        if self.shape.activations != "fp8" or not self.x_in_shared:
            return 1
        words = self.shape.hidden // SCALE_BLOCK * INPUT_PACKET_BYTES // 16
        return -(-words // self.input_item_words)

    @property
    def _x_bytes(self) -> int:
        return self.token_tile * self._row_bytes(self.shape.hidden)

    @property
    def _h_bytes(self) -> int:
        return self.h_slots * COLUMNS * self._row_bytes(self.shape.intermediate)

    @property
    def _partial_bytes(self) -> int:
        accumulators = max(2 * self.accumulators_up, self.token_tiles * self.accumulators_down)
        routing = 32 * self.token_tile * self.lane_mask_bytes + MMA_WARPS * 16 * 4
        return max(MMA_WARPS * accumulators * 512, routing)

    def _row_bytes(self, columns: int) -> int:
        return (columns + self.row_pad) * self.activation_bytes

    @property
    def lane_experts(self) -> int:
        """Consecutive experts whose scores one lane of a routing warp holds."""
        return -(-self.shape.experts // 32)

    @property
    def leads(self) -> int:
        """Experts of token 0, best first, with which the list of active experts begins.

        As many as the CTAs' first units are of, but four at most. A CTA requests weights of its
        first unit before the list is made if that is of one of them.
        """
        return min(4, self.shape.top_k, -(-self.schedule.grid // self.schedule.g_up))

    @property
    def lane_mask_bytes(self) -> int:
        """Bytes of the word in which a lane notes its experts of one token, a bit for each."""
        return 2 if self.lane_experts <= 16 else 4

    @property
    def token_tiles(self) -> int:
        """Most tokens of a launch that share a column."""
        return self.token_tile // COLUMNS

    @property
    def max_active(self) -> int:
        """Most active experts of one launch (`most_active`)."""
        return most_active(self.shape, self.token_tile)

    @property
    def accumulators_up(self) -> int:
        return _accumulators(self.tiles_up, self.schedule.k_up // SCALE_BLOCK, 1)

    @property
    def accumulators_down(self) -> int:
        return _accumulators(
            self.tiles_down, self.schedule.k_down // SCALE_BLOCK, self.experts_per_stage_down
        )

    def shared_fields(self) -> dict[str, int]:
        """Bytes of each member of `SharedStorage`, in order; all keep 16-byte alignment."""
        shape, tile = self.shape, self.token_tile
        scaled_blocks = shape.hidden // SCALE_BLOCK if shape.activations == "fp8" else 1
        barriers = 2 * self.ring_stages + 2 * self.h_slots + 11 + self.input_parts
        return {
            "ring": self.ring_bytes,
            "x": self._x_bytes if self.x_in_shared else 16,
            "h": self._h_bytes,
            "partials": self._partial_bytes,
            "x_scale": scaled_blocks * tile * 4,
            "h_scale": self.h_slots
            * self.down_scale_rows
            * shape.intermediate
            // SCALE_BLOCK
            * COLUMNS
            * 4,
            "up_scale": MMA_WARPS * self.scale_slots * self.unit_columns * 2 * 4,
            "active": _up(self.max_active * 8, 16),
            "peer_sums": 4 * tile * self.stripe_down if self.cluster_ctas > 1 else 16,
            "weight": _up(tile * shape.token_experts * 4, 16),
            "selected": tile * _up(shape.token_experts * 2, 16),
            "barriers": _up(barriers * 8, 16),
            "state": 32,
        }

    @property
    def shared_bytes(self) -> int:
        return _up(sum(self.shared_fields().values()), 128)

    # -- workspace
    @property
    def workspace_half_bytes(self) -> int:
        """Bytes of one of the two alternating hand-off buffers at full token capacity."""
        rows = self.token_tile * self.shape.token_experts
        partials = self.partial_outputs * self.token_tile * self.shape.hidden
        packets = self.token_tile * self.shape.hidden // SCALE_BLOCK * INPUT_PACKET_BYTES
        if self.shape.activations == "bf16":
            packets = 0  # every CTA reads x itself
        logits = self.token_tile * self.shape.experts if self.router == "weight" else 0
        return _up(4 * (rows * self.shape.intermediate + partials + logits) + packets, 128)

    @property
    def workspace_bytes(self) -> int:
        return HEADER_BYTES + 2 * self.workspace_half_bytes


def most_active(shape: Shape, tokens: int) -> int:
    """Most entries in the list of active experts of a launch, shared experts included.

    Tokens that are multiplied in the same column make an expert active more than once.
    """
    turns = -(-tokens // COLUMNS)
    return min(turns * shape.experts, tokens * shape.top_k) + turns * shape.shared_experts


def _accumulators(tiles: int, blocks_k: int, experts: int) -> int:
    """Accumulator tiles an MMA warp keeps.

    `experts` x `tiles` x `blocks_k` blocks are dealt to the warps.
    """
    if blocks_k % MMA_WARPS == 0:
        return tiles
    return -(-experts * tiles * blocks_k // MMA_WARPS)


def _up(value: int, unit: int) -> int:
    return -(-value // unit) * unit
