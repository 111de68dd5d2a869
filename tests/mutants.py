"""Faults planted in the templates, for the simulator to find.

A mutant is one text edit. `tests/test_mutants.py` wants each to be caught, and
`templates/host/mutants.md` lists what caught it.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from unittest.mock import patch

from monomoe_gen import host_build, schedule
from monomoe_gen.paths import data_dir
from monomoe_gen.schedule import KernelSpec, Schedule
from monomoe_gen.shapes import load_shape

TOY = load_shape("toy")
MANY = replace(TOY, name="toy-many", experts=64, top_k=8)
TALL = replace(TOY, name="toy-tall", hidden=512)
SPEC = KernelSpec(TOY, Schedule(4, 4, 128, 2, 128, 3, 4))
RAW = KernelSpec(TOY, Schedule(5, 2, 128, 4, 128, 3, 2), layout="raw")
ROUTER = KernelSpec(TOY, Schedule(3, 4, 128, 2, 128, 3, 4), router="weight")
CROWD = KernelSpec(MANY, Schedule(3, 2, 256, 2, 128, 2, 2))
LONG = KernelSpec(TALL, Schedule(3, 4, 128, 1, 128, 4, 4))  # more pairs of the input than MMA warps
GROUPS = KernelSpec(TOY, Schedule(6, 4, 128, 2, 128, 3, 4))  # three down groups
TILES = KernelSpec(TOY, Schedule(4, 4, 128, 2, 128, 3, 4), 16)
WHOLE = KernelSpec(TOY, Schedule(3, 1, 128, 1, 128, 2, 2))  # half of a unit is an early stage
LEADS = KernelSpec(TOY, Schedule(8, 2, 128, 2, 128, 3, 4))  # two; more than their first units
TURNS = KernelSpec(TOY, Schedule(8, 2, 128, 2, 128, 3, 4), 16)
ODD = KernelSpec(  # blocks of a warp in several columns
    replace(TOY, name="toy-odd", hidden=768), Schedule(6, 4, 384, 6, 128, 3, 5)
)
TWINS = KernelSpec(MANY, Schedule(6, 2, 256, 2, 128, 2, 2))  # a lane has two experts
CLOSE = KernelSpec(  # and its leads are all of a token's
    replace(TOY, name="toy-close", experts=52, top_k=3), Schedule(6, 2, 128, 2, 128, 2, 3)
)
MIDDLE = KernelSpec(TALL, Schedule(3, 4, 128, 1, 128, 4, 4), 16)  # a lane has three packets
LARGE = KernelSpec(TALL, Schedule(3, 4, 128, 1, 128, 4, 4), 32)  # more packets than a lane asks for
DENSE = KernelSpec(  # lanes with more experts than they take to bound a token's
    replace(TOY, name="toy-dense", experts=96, top_k=24), Schedule(3, 4, 256, 2, 128, 2, 2)
)
PILE = replace(DENSE, token_tile=16)  # more experts than a requant warp notes the rows of at once
WIDE = KernelSpec(  # scales of more column blocks than half a warp
    replace(TOY, name="toy-2176", hidden=2176, experts=4), Schedule(4, 4, 128, 2, 128, 2, 2)
)
BLOCK = KernelSpec(  # a warp multiplies two tiles by two columns of a stage
    replace(TOY, name="toy-block", hidden=2048, experts=4), Schedule(4, 8, 2048, 4, 128, 2, 2)
)


def build_unshared(spec: KernelSpec, templates: Path | None = None) -> host_build.Program:
    """The kernel of ``spec`` as if shared memory had no room for its quantized input."""
    with patch.object(schedule, "STAGING_BYTES", 0):
        assert not spec.geometry.x_in_shared
        return host_build.build(spec, templates)


def build_parts(spec: KernelSpec, templates: Path | None = None) -> host_build.Program:
    """The kernel of ``spec`` as if a warp could receive half of a token's packets at once."""
    words = spec.shape.hidden // schedule.SCALE_BLOCK * schedule.INPUT_PACKET_BYTES // 16
    with patch.object(schedule.Geometry, "input_item_words", -(-words // 2)):
        assert spec.geometry.input_parts == 2
        return host_build.build(spec, templates)


Builder = Callable[
    ..., host_build.Program
]  # of a spec and, if not the usual ones, a folder of templates


@dataclass(frozen=True)
class Mutant:
    """``old`` becomes ``new``, once, in ``file``. ``resident`` is the fault when it is set.

    It is built by ``build_with``, which is one of the builders above where how the quantized input
    is received matters.
    """

    name: str
    file: str = ""
    old: str = ""
    new: str = ""
    spec: KernelSpec = SPEC
    tokens: tuple[int, ...] = (8, 3, 8)
    routing: str = "uniform"
    resident: int | None = None
    build_with: Builder = host_build.build

    def build(self, folder: Path) -> host_build.Program:
        """The kernel with this fault; ``folder`` is for its templates."""
        return self.build_with(self.spec, self.plant(folder))

    def plant(self, folder: Path) -> Path:
        """A copy of the templates with this fault, in ``folder``."""
        templates = folder / "templates"
        shutil.copytree(data_dir("templates"), templates)
        if self.file:
            path = templates / self.file
            text = path.read_text(encoding="utf-8")
            assert text.count(self.old) == 1, (
                f"{self.name}: {self.file} holds {self.old!r} not once"
            )
            path.write_text(text.replace(self.old, self.new), encoding="utf-8")
        return templates


MMA = "ops/up_proj.cuh"
DOWN = "ops/down_proj.cuh"
RING = "ops/ring.cuh"
ROUTER_OP = "ops/router.cuh"
COMBINE = "ops/combine.cuh"
HAND = "ops/handoff.cuh"
QUANT = "ops/quantize.cuh"
ROUTE = "ops/route.cuh"
STREAM = "ops/stream.cuh"
MAIN = "monomoe.cu.j2"

ARRIVE_MADE = "    device::arrive_named(NamedBarrier::kMade, schedule::kThreads);\n"
SYNC_MADE = ARRIVE_MADE.replace("arrive", "sync")
ARRIVE_EPOCH = "    device::arrive_named(NamedBarrier::kEpoch, kMakersAndOne);\n"
SYNC_EPOCH = ARRIVE_EPOCH.replace("arrive", "sync")
ARRIVE_RING = "    device::arrive_named(NamedBarrier::kRing, kMakersAndOne);\n"
SYNC_RING = ARRIVE_RING.replace("arrive", "sync")
ARRIVE_CLUSTER = (
    "    if constexpr (schedule::kPaired) device::cluster_arrive();"
    "  // its share of the barriers is made\n"
)
INIT = "    if (!schedule::kPdl && lane == 0) init_barriers(s, args.tokens, warp);\n"
MADE = INIT + ARRIVE_RING + ARRIVE_MADE  # the barriers, by the MMA warps
SELECT = (
    "    if constexpr (!schedule::kRouterWeight) {\n"
    "        tokens.select(args, s, warp, lane);\n"
    "        if (routes) trace.mark(Event::kRouted);\n"
    "    }\n"
)
RELEASE = (
    "    template <typename Stage>\n"
    "    MONOMOE_DEVICE void release(SharedStorage& s, u32 lane) {\n"
    "        device::sync_warp();\n"
)
GIVE = "        if (lane == 0) device::mbarrier_arrive(&s.barrier.empty[slot.index]);\n"

ASK_AHEAD = "scales.ask(units + UpScales::kAhead, ahead, ahead.valid(active_count));"
PUBLISH_BEHIND = "publish(notes.left ? RowNotes::local(behind) : first + RowNotes::kStep);"
NEXT = "for (; next < end && next < share.count; next += RowNotes::kTeams) {"
WAIT_X = (
    "                device::mbarrier_wait(&s.barrier.x_ready[((k + 1) * Stage::kColumnBlocks - 1) "
    "/ schedule::kPartBlocks], 0, args.wait_limit_ns);\n"
)

MUTANTS = (
    # -- arrivals
    Mutant(
        "a ring stage is never given back",
        RING,
        "if (lane == 0) device::mbarrier_arrive(&s.barrier.empty[slot.index]);",
        "",
    ),
    Mutant(
        "requantized h is never announced",
        DOWN,
        "if (lane == 0) device::mbarrier_arrive(&s.barrier.h_full[next % schedule::kHSlots]);",
        "",
    ),
    Mutant(
        "one of the warps that share an h slot is not waited for",
        "ops/storage.cuh",
        "if (index >= kHFull && index < kHEmpty) count = schedule::kSlotWarps;",
        "if (index >= kHFull && index < kHEmpty) count = schedule::kSlotWarps - 1;",
        routing="same",
    ),
    Mutant(
        "an h slot is never given back",
        DOWN,
        "if (present && lane == 0) device::mbarrier_arrive(&s.barrier.h_empty[slot]);",
        "",
        spec=CROWD,
    ),
    Mutant(
        "one partial sum too few is waited for",
        "ops/storage.cuh",
        "if (index >= kPartialFull && index < kPartialEmpty) count = schedule::kMmaWarps;",
        "if (index >= kPartialFull && index < kPartialEmpty) count = schedule::kMmaWarps - 1;",
    ),
    Mutant(
        "one share of x too few is waited for",
        "ops/storage.cuh",
        "if (index >= kXReady) count = schedule::kRequantWarps;",
        "if (index >= kXReady) count = schedule::kRequantWarps - 1;",
    ),
    Mutant(
        "more bytes announced than copied",
        STREAM,
        "ring.open<Down>(experts * kExpertBytes);",
        "ring.open<Down>(Down::kBytes);",
        spec=KernelSpec(TOY, Schedule(8, 16, 256, 8, 128, 4, 2)),
        routing="same",
    ),
    # -- phases
    Mutant(
        "readers take the ring's other parity",
        RING,
        "&s.barrier.full[slot.index], slot.parity, ",
        "&s.barrier.full[slot.index], slot.parity ^ 1, ",
    ),
    Mutant(
        "readers never turn the parity",
        RING,
        "device::mbarrier_wait(&s.barrier.full[slot.index], slot.parity, ",
        "device::mbarrier_wait(&s.barrier.full[slot.index], 0, ",
    ),
    Mutant(
        "the epilogue never turns the parity",
        MMA,
        "        parity ^= 1;\n",
        "",
        spec=CROWD,
    ),
    # -- waits
    Mutant(
        "the ring is read without a wait",
        DOWN,
        "if constexpr (!kOnlyBlock) {\n                ring.wait(args, s);\n",
        "if constexpr (!kOnlyBlock) {\n",
        spec=WHOLE,
    ),
    Mutant(
        "the only block of a stage is read without a wait",
        DOWN,
        "if constexpr (kOnlyBlock) {\n                ring.wait(args, s);\n",
        "if constexpr (kOnlyBlock) {\n",
    ),
    Mutant(
        "a stage is given back before it is read",
        RING,
        "slot.parity, args.wait_limit_ns); }\n" + RELEASE + GIVE,
        "slot.parity, args.wait_limit_ns);\n"
        "        const u32 lane = device::thread_index() % 32;\n" + GIVE + "    }\n" + RELEASE,
    ),
    Mutant(
        "the producer does not wait for free stages",
        RING,
        "device::mbarrier_wait(&storage.barrier.empty[tail.index], tail.parity, "
        "args.wait_limit_ns);",
        "",
    ),
    Mutant(
        "the ring is one stage short",
        RING,
        "u32 free_bytes = schedule::kRingBytes;",
        "u32 free_bytes = schedule::kRingBytes + schedule::UpStage::kBytes;",
        spec=KernelSpec(TOY, Schedule(3, 4, 128, 1, 128, 8, 3)),
    ),
    Mutant(
        "an h slot is overwritten while it is read",
        DOWN,
        "if (use) device::mbarrier_wait(&s.barrier.h_empty[local % schedule::kHSlots], "
        "(use - 1) & 1, args.wait_limit_ns);",
        "",
        spec=CROWD,
    ),
    Mutant(
        "h is multiplied before it is there",
        DOWN,
        "if (present && k == 0) device::mbarrier_wait(&s.barrier.h_full[slot], "
        "(mine / schedule::kHSlots) & 1, args.wait_limit_ns);",
        "",
    ),
    Mutant(
        "a partial buffer is overwritten while it is read",
        MMA,
        "if (units >= 2) device::mbarrier_wait(&s.barrier.partial_empty[buffer], "
        "(units / 2 - 1) & 1, args.wait_limit_ns);",
        "",
    ),
    Mutant(
        "x is multiplied before it is there",
        MMA,
        WAIT_X,
        "",
    ),
    Mutant(
        "only the first part of x is waited for",
        MMA,
        "x_ready[((k + 1) * Stage::kColumnBlocks - 1) / schedule::kPartBlocks]",
        "x_ready[0]",
        spec=LARGE,
        tokens=(32, 24, 32),
        build_with=build_parts,
    ),
    Mutant(
        "a part of x has the columns of another",
        QUANT,
        "part * schedule::kPartBlocks",
        "0 * schedule::kPartBlocks",
        spec=LARGE,
        tokens=(32, 24, 32),
        build_with=build_parts,
    ),
    Mutant(
        "the last tokens of the second part of x are not received",
        QUANT,
        "(warp - part * groups) % schedule::kRequantWarps; group < groups",
        "(warp - part * groups) % schedule::kRequantWarps; group < groups - part",
        spec=LARGE,
        tokens=(32, 24, 32),
        build_with=build_parts,
    ),
    Mutant(
        "scales of x are used before they are there",
        MMA,
        WAIT_X,
        "",
        build_with=build_unshared,
    ),
    Mutant(
        "routing weights are used before they are there",
        MAIN,
        "    device::mbarrier_wait(&s.barrier.weighted, 0, args.wait_limit_ns);\n",
        "",
    ),
    Mutant(
        "the output sums overwrite partials that are still read",
        COMBINE,
        "    drain_partials(args, s, units);\n",
        "",
    ),
    Mutant(
        "output sums are read before all are written",
        COMBINE,
        "store_partials(s.down[t], sums[t], warp, lane);\n"
        "    device::sync_named(NamedBarrier::kOutput, schedule::kMmaWarps * 32);\n",
        "store_partials(s.down[t], sums[t], warp, lane);\n",
        spec=RAW,  # tiles of two warps
    ),
    Mutant(
        "barriers are used before they are made",
        MAIN,
        INIT + ARRIVE_RING + ARRIVE_MADE,
        ARRIVE_RING + ARRIVE_MADE + INIT,
    ),
    Mutant(
        "the producer is told of the barriers before they are made",
        MAIN,
        INIT + ARRIVE_RING,
        ARRIVE_RING + INIT,
    ),
    Mutant("the producer does not wait until barriers are made", MAIN, SYNC_RING, ARRIVE_RING),
    Mutant(
        "the producer does not wait until every token is noted",
        MAIN,
        "leads = find_leads(args, s, trace, cta, lane);\n" + SYNC_MADE,
        "leads = find_leads(args, s, trace, cta, lane);\n" + ARRIVE_MADE,
    ),
    Mutant(
        "a token is noted behind the barrier that announces it",
        MAIN,
        SELECT + SYNC_MADE,
        SYNC_MADE + SELECT,
    ),
    Mutant(
        "routing warps do not wait until barriers are made",
        MAIN,
        SELECT + SYNC_MADE,
        SELECT + ARRIVE_MADE,
    ),
    Mutant(
        "the warp that reads the header does not wait until barriers are made",
        MAIN,
        SYNC_EPOCH + "        if (lane == 0) close_epoch",
        ARRIVE_EPOCH + "        if (lane == 0) close_epoch",
    ),
    Mutant(
        "the epoch is used before it is read",
        MAIN,
        ARRIVE_CLUSTER + SYNC_EPOCH,
        ARRIVE_CLUSTER + ARRIVE_EPOCH,
    ),
    Mutant(
        "the header is read behind the barrier that announces it",
        MAIN,
        "        if (lane == 0) open_epoch(args, s);\n    " + ARRIVE_MADE,
        "    " + ARRIVE_MADE + "        if (lane == 0) open_epoch(args, s);\n",
    ),
    Mutant(
        "one warp too few is waited for before the epoch is used",
        MAIN,
        "kMakersAndOne = (schedule::kMmaWarps + 1) * 32;",
        "kMakersAndOne = schedule::kMmaWarps * 32;",
    ),
    Mutant(
        "the list is made before every token is noted",
        MAIN,
        "        device::mbarrier_wait(&s.barrier.routed, 0, args.wait_limit_ns);\n",
        "",
        spec=ROUTER,
    ),
    # -- fences
    Mutant(
        "the copy engine does not know the barriers",
        MAIN,
        "    device::mbarrier_init_fence();\n",
        "",
    ),
    Mutant(
        "a token is announced before every lane has noted its experts",
        MAIN,
        "        device::sync_warp();\n"
        "        if (lane == 0) device::mbarrier_arrive(&s.barrier.routed);",
        "        if (lane == 0) device::mbarrier_arrive(&s.barrier.routed);",
        spec=ROUTER,
    ),
    Mutant(
        "h is announced before every lane has written it",
        DOWN,
        "            device::sync_warp();\n"
        "            if (lane == 0) device::mbarrier_arrive(&s.barrier.h_full[next",
        "            if (lane == 0) device::mbarrier_arrive(&s.barrier.h_full[next",
    ),
    Mutant(
        "a ring stage is given back before every lane has read it",
        RING,
        "        device::sync_warp();\n        if (lane == 0)",
        "        if (lane == 0)",
    ),
    Mutant(
        "partials are announced before every lane has written them",
        MMA,
        "        store_partials(s.up[buffer], sums, warp, lane);\n        device::sync_warp();\n",
        "        store_partials(s.up[buffer], sums, warp, lane);\n",
    ),
    Mutant(
        "partials are given back before every lane has read them",
        MMA,
        "        device::sync_warp();\n"
        "        if (lane == 0) device::mbarrier_arrive(&s.barrier.partial_empty[which]);",
        "        if (lane == 0) device::mbarrier_arrive(&s.barrier.partial_empty[which]);",
        spec=CROWD,
    ),
    Mutant(
        "the list is announced before every lane has written it",
        ROUTE,
        "    device::sync_warp();\n    if (lane == 0) device::mbarrier_arrive(&s.barrier.listed);",
        "    if (lane == 0) device::mbarrier_arrive(&s.barrier.listed);",
    ),
    Mutant(
        "rows of h are announced before every lane has numbered its own",
        ROUTE,
        "    device::sync_warp();\n"
        "    if (lane == 0) device::mbarrier_arrive(&s.barrier.numbered);",
        "    if (lane == 0) device::mbarrier_arrive(&s.barrier.numbered);",
    ),
    Mutant(
        "routing weights are announced before every lane has written them",
        MAIN,
        "        device::sync_warp();\n"
        "        if (lane == 0) device::mbarrier_arrive(&s.barrier.weighted);",
        "        if (lane == 0) device::mbarrier_arrive(&s.barrier.weighted);",
    ),
    Mutant(
        "x is announced before every lane has written it",
        QUANT,
        "    device::sync_warp();\n    static_assert(schedule::kInputParts",
        "    static_assert(schedule::kInputParts",
    ),
    Mutant(
        "much of x is announced before every lane has written it",
        QUANT,
        "        device::sync_warp();\n        if (lane == 0)",
        "        if (lane == 0)",
        spec=LARGE,
        tokens=(32, 24, 32),
    ),
    Mutant(
        "x is announced twice",
        QUANT,
        "    using Few = FewPackets;\n",
        "    using Few = FewPackets;\n"
        "    if (lane == 0) device::mbarrier_arrive(&s.barrier.x_ready[0]);\n",
    ),
    # -- scales of up units
    Mutant(
        "scales are used before they are there",
        MMA,
        "            if (k == 0) scales.receive();\n",
        "",
    ),
    Mutant(
        "scales are waited for a unit too late",
        MMA,
        "device::wait_async<kAhead>();",
        "device::wait_async<kAhead + 1>();",
    ),
    Mutant(
        "scales are waited for a stage too late",
        MMA,
        "if (k == 0) scales.receive();",
        "if (k == 1) scales.receive();",
    ),
    Mutant(
        "scales are read before every lane has received its own",
        MMA,
        "        device::wait_async<kAhead>();\n        device::sync_warp();\n",
        "        device::wait_async<kAhead>();\n",
    ),
    Mutant(
        "lanes meet before they have received their scales",
        MMA,
        "        device::wait_async<kAhead>();\n        device::sync_warp();\n",
        "        device::sync_warp();\n        device::wait_async<kAhead>();\n",
    ),
    Mutant(
        "units that are not there have no group of copies",
        MMA,
        "        }\n        device::commit_async();\n",
        "            device::commit_async();\n        }\n",
    ),
    Mutant(
        "scales of two units are one group of copies",
        MMA,
        "        device::commit_async();\n",
        "        if (unit % 2) device::commit_async();\n",
    ),
    Mutant(
        "scales are asked for over those of the unit that is multiplied",
        MMA,
        "kAhead = schedule::kStagesPerUnitUp > 2 ? 2 : 3;\n"
        "    static_assert(kAhead < schedule::kScaleSlots, ",
        "kAhead = schedule::kScaleSlots;\n    static_assert(true, ",
        spec=CROWD,
    ),
    Mutant(
        "scales of a unit are asked for in the slot of another",
        MMA,
        "ask(units + UpScales::kAhead, ",
        "ask(units + UpScales::kAhead - 1, ",
    ),
    Mutant(
        "scales of a unit are read from the slot of another",
        MMA,
        "scales.at(units, k, i)",
        "scales.at(units + 1, k, i)",
    ),
    Mutant(
        "all warps have one place for their scales",
        MMA,
        "copy_async(&storage.up_scale[warp]",
        "copy_async(&storage.up_scale[0]",
    ),
    Mutant(
        "scales of the next unit are asked for twice",
        MMA,
        "        " + ASK_AHEAD + "\n        ahead.advance();\n",
        "        " + ASK_AHEAD + "\n",
        tokens=(8, 8, 8),
    ),
    Mutant(
        "scales of units that are not there are asked for",
        MMA,
        ASK_AHEAD,
        ASK_AHEAD.replace("ahead.valid(active_count)", "true"),
    ),
    Mutant(
        "scales of gate and up are swapped",
        MMA,
        "(gate_row + is_up * ",
        "(gate_row + (1 - is_up) * ",
    ),
    Mutant(
        "up is scaled like gate",
        MMA,
        "(gate_row + is_up * ",
        "(gate_row + 0 * ",
    ),
    Mutant(
        "scales are of the first row block",
        MMA,
        "which.stripe() * (schedule::kStripeUp / 2) / schedule::kScaleBlock;",
        "0;",
        spec=KernelSpec(replace(TOY, name="toy-256", intermediate=256), SPEC.schedule),
    ),
    Mutant(
        "scales are of the first stage",
        MMA,
        "column = stage * schedule::UpStage::kColumnBlocks + ",
        "column = ",
    ),
    Mutant(
        "every warp has the scales of the first warp's columns",
        MMA,
        "schedule::UpStage::column_of(warp, ",
        "schedule::UpStage::column_of(0, ",
        spec=CROWD,
    ),
    Mutant(
        "every block of a warp has the scales of its first",
        MMA,
        " + i % schedule::UpStage::kWarpColumns;",
        ";",
        spec=ODD,
    ),
    Mutant(
        "blocks of a later tile have scales of their own",
        MMA,
        " + i % schedule::UpStage::kWarpColumns;",
        " + i;",
        spec=BLOCK,
    ),
    Mutant(
        "a warp has the scales of its first column alone",
        MMA,
        "column_of(warp, entry % schedule::UpStage::kWarpColumns)",
        "column_of(warp, 0)",
        spec=BLOCK,
    ),
    Mutant(
        "scales of the first round of lanes alone are asked for",
        MMA,
        "first < kWords; first += 32)",
        "first < 32; first += 32)",
        spec=WIDE,
    ),
    # -- rows of h that are noted ahead
    Mutant(
        "an expert is published before its row is there",
        DOWN,
        "            publish(local);\n",
        "            publish(local + 1);\n",
    ),
    Mutant(
        "an expert is published before its next row is there",
        DOWN,
        PUBLISH_BEHIND,
        "publish(local + 1);",
        spec=RAW,
        routing="same",
    ),
    Mutant(
        "the expert of the next row is published with the ones before",
        DOWN,
        PUBLISH_BEHIND,
        PUBLISH_BEHIND.replace("(behind)", "(behind) + 1"),
    ),
    Mutant(
        "an expert without rows of a warp is published again",
        DOWN,
        NEXT,
        NEXT.replace("(;", "(u32 next = warp % RowNotes::kTeams;"),
    ),
    Mutant(
        "experts of all teams are published by each",
        DOWN,
        NEXT,
        NEXT.replace("next += RowNotes::kTeams", "++next"),
        spec=CROWD,
    ),
    Mutant(
        "a warp publishes no experts behind its last row",
        DOWN,
        "        publish(first);\n",
        "",
    ),
    Mutant(
        "an h slot without rows of a warp is announced before it is given back",
        DOWN,
        "            wait_empty(next);\n",
        "",
        spec=CROWD,
    ),
    Mutant(
        "a row is written in a slot that is still read",
        DOWN,
        "            wait_empty(local);\n",
        "",
        spec=CROWD,
    ),
    Mutant(
        "rows are noted before they are numbered",
        DOWN,
        "    device::mbarrier_wait(&s.barrier.numbered, 0, args.wait_limit_ns);\n",
        "",
    ),
    Mutant(
        "a row has the place of the next",
        DOWN,
        "place = device::shuffle(notes.place, from)",
        "place = device::shuffle(notes.place, from + 1)",
    ),
    Mutant(
        "a row lies in the column of the next",
        DOWN,
        "column = RowNotes::column(place)",
        "column = (RowNotes::column(place) + 1) % schedule::kColumns",
    ),
    Mutant(
        "a row is read from the place of the next",
        DOWN,
        "handoff.h_row(RowNotes::row(place))",
        "handoff.h_row(RowNotes::row(place) + 1)",
    ),
    Mutant(
        "a row has the weight of the next",
        DOWN,
        "device::shuffle(notes.weight, from)",
        "device::shuffle(notes.weight, from + 1)",
    ),
    Mutant(
        "rows have the weights of others of their token",
        DOWN,
        "& 0xffff) == expert.expert",
        "& 0xffff) >= expert.expert",
    ),
    Mutant(
        "places behind a token's experts are left as they are",
        ROUTE,
        "    if (lane >= shape::kTokenExperts && lane < 8 * schedule::kSelectedWords) "
        "s.selected[token][lane] = kNoExpert;\n",
        "",
    ),
    Mutant(
        "rows of h are asked for before the time is known",
        DOWN,
        "if (until < ending) device::mbarrier_wait(&s.barrier.up_ending[until], 0, "
        "args.wait_limit_ns);\n",
        "",
    ),
    Mutant(
        "rows of an expert are all its first",
        DOWN,
        "place = (expert.first_row + rank)",
        "place = expert.first_row",
    ),
    Mutant(
        "a row has the down scales of another expert",
        DOWN,
        "scale = scale_of(local);",
        "scale = scale_of(local ? local - 1 : 0);",
    ),
    Mutant(
        "experts behind the noted ones are left out",
        DOWN,
        "first < share.count; notes.take(",
        "first == warp % RowNotes::kTeams; notes.take(",
        spec=PILE,
        tokens=(13, 3, 13),
        routing="same",
    ),
    Mutant(
        "the experts noted next overlap those noted before",
        DOWN,
        "        first += RowNotes::kStep;\n",
        "        first += RowNotes::kStep / 2;\n",
        spec=PILE,
        tokens=(13, 3, 13),
        routing="same",
    ),
    Mutant(
        "an expert that the share does not have is noted",
        DOWN,
        "const bool valid = local < share.count;",
        "const bool valid = local <= share.count;",
    ),
    Mutant(
        "all experts are published behind the last row that is noted",
        DOWN,
        PUBLISH_BEHIND,
        PUBLISH_BEHIND.replace("first + RowNotes::kStep", "share.count"),
        spec=PILE,
        tokens=(13, 3, 13),
        routing="same",
    ),
    # -- when rows of h are asked for
    Mutant(
        "the last unit is told of as the last but one",
        MMA,
        "device::mbarrier_arrive(&s.barrier.up_ending[left]);",
        "device::mbarrier_arrive(&s.barrier.up_ending[1 - left]);",
        spec=RAW,
        tokens=(1, 1),
    ),
    Mutant(
        "a CTA without up units does not tell that it has none",
        MMA,
        "    if (count == 0) tell_ending(0);\n",
        "",
        spec=LEADS,
        tokens=(1, 1),
    ),
    Mutant(
        "the end of the up-projection is told of before its time is noted",
        MMA,
        "        s.up_ending_since[left] = device::sm_clock();\n"
        "        device::mbarrier_arrive(&s.barrier.up_ending[left]);\n",
        "        device::mbarrier_arrive(&s.barrier.up_ending[left]);\n"
        "        s.up_ending_since[left] = device::sm_clock();\n",
    ),
    # -- between CTAs
    Mutant(
        "h is published with a plain store",
        MMA,
        "device::store_relaxed(handoff.h_row(expert.row(token)) + column, "
        "never_zero(swiglu(sum.x, sum.z)));",
        "handoff.h_row(expert.row(token))[column] = never_zero(swiglu(sum.x, sum.z));",
    ),
    Mutant(
        "an h of zero is published as it is",
        HAND,
        "device::float_to_bits(value) == 0 ? device::bits_to_float(0x80000000u) : value;  // -0",
        "value;",
    ),
    Mutant(
        "the flag of a vector is its first word",
        HAND,
        "    return least_word(U32x4{device::float_to_bits(v.x), ",
        "    if (true) return device::float_to_bits(v.x);\n"
        "    return least_word(U32x4{device::float_to_bits(v.x), ",
    ),
    Mutant(
        "a packet is published with plain stores",
        QUANT,
        "device::store_relaxed(words + lane, never_zero(values));",
        "words[lane] = never_zero(values);",
    ),
    Mutant("a packet's zeros are published as they are", QUANT, "never_zero(values)", "values"),
    Mutant(
        "a packet's scale of zero is published as it is",
        QUANT,
        "never_zero(scale.scale)",
        "scale.scale",
    ),
    Mutant("a packet is published without its fill", QUANT, "if (lane < 4)", "if (lane < 1)"),
    Mutant(
        "packets are published in the other launch's half",
        QUANT,
        "    InputPacket* const packets = HandOff::of(args, s.epoch)",
        "    InputPacket* const packets = HandOff::of(args, s.epoch ^ 1)",
    ),
    Mutant(
        "packets are received from the other launch's half",
        QUANT,
        "const InputPacket* const packets = HandOff::of(args, s.epoch)",
        "const InputPacket* const packets = HandOff::of(args, s.epoch ^ 1)",
    ),
    Mutant(
        "packets are multiplied from the other launch's half",
        MMA,
        "const InputPacket* const packets = HandOff::of(args, s.epoch)",
        "const InputPacket* const packets = HandOff::of(args, s.epoch ^ 1)",
        build_with=build_unshared,
    ),
    Mutant("a warp quantizes its first pair only", QUANT, "while (pair", "if (pair", spec=LONG),
    Mutant(
        "a warp quantizes its first pair again",
        QUANT,
        "        pair.load(args, lane);\n",
        "",
        spec=LONG,
    ),
    Mutant(
        "a packet's scale is not received",
        QUANT,
        "InputPacket::kWords - kFirstWord",
        "InputPacket::kScaleWord - kFirstWord",
    ),
    Mutant(
        "packets are received before they are there",
        QUANT,
        "        if (device::all(least != 0)) return;",
        "        return;",
    ),
    Mutant(
        "many packets are received before they are there",
        QUANT,
        "        if (device::all(least != 0)) return;",
        "        return;",
        spec=LARGE,
        tokens=(32, 24, 32),
    ),
    Mutant(
        "the last packets of a lane are not received",
        QUANT,
        "i < Few::kLoads; ++i) {\n        const u32 pair",
        "i < Few::kLoads - 3; ++i) {\n        const u32 pair",
        spec=MIDDLE,
        tokens=(16, 13, 16),
    ),
    Mutant(
        "more packets are received as if they were few",
        QUANT,
        "<= FewPackets::kLoads * FewPackets::kStep",
        "<= 2 * FewPackets::kLoads * FewPackets::kStep",
        spec=LARGE,
        tokens=(32, 24, 32),
    ),
    Mutant(
        "the flag of a packet's word is its first quarter",
        HAND,
        "return device::minimum(device::minimum(v.x, v.y), device::minimum(v.z, v.w));",
        "return v.x;",
    ),
    Mutant(
        "packets are multiplied before they are there",
        MMA,
        "return device::all(!routed || device::minimum(least_word(operands.part[0]), "
        "least_word(operands.part[1])) != 0);",
        "return true;",
        build_with=build_unshared,
    ),
    Mutant(
        "only half of a multiplied packet is waited for",
        MMA,
        "device::minimum(least_word(operands.part[0]), least_word(operands.part[1]))",
        "least_word(operands.part[0])",
        build_with=build_unshared,
    ),
    Mutant(
        "packets of tokens that nobody has are waited for",
        MMA,
        "const bool routed = tokens >> token_of(tokens, lane / 4) & 1;",
        "const bool routed = true;",
        build_with=build_unshared,
    ),
    Mutant(
        "packets lie over the partial outputs",
        HAND,
        "partial(tokens, 1 + kPartials, 0)",
        "partial(tokens, 1, 0)",
        spec=GROUPS,
    ),
    Mutant(
        "packets are not cleared",
        HAND,
        "schedule::kHiddenBlocks : 0) * static_cast<u32>(sizeof(InputPacket))",
        "0 : 0) * static_cast<u32>(sizeof(InputPacket))",
    ),
    Mutant(
        "the last packets are not cleared",
        HAND,
        "schedule::kHiddenBlocks : 0) * static_cast<u32>(sizeof(InputPacket))",
        "schedule::kHiddenBlocks : 0) * static_cast<u32>(sizeof(InputPacket)) - 16",
    ),
    Mutant(
        "the header is read again when others use the epoch",
        MAIN,
        "if (lane == 0) close_epoch(args, s);",
        "if (lane == 0) open_epoch(args, s), close_epoch(args, s);",
    ),
    Mutant(
        "the header is read when the epoch is closed",
        MAIN,
        "if (lane == 0) close_epoch(args, s);",
        "if (lane == 0) close_epoch(args, s), open_epoch(args, s);",
    ),
    Mutant("the epoch is not closed", MAIN, "if (lane == 0) close_epoch(args, s);", ""),
    Mutant(
        "the counter of CTAs is not reset",
        HAND,
        "device::atomic_increment_wrap(&header->done, schedule::kGrid - 1)",
        "device::atomic_increment_wrap(&header->done, 2 * schedule::kGrid - 1)",
    ),
    Mutant(
        "the epoch is closed while CTAs still open it",
        HAND,
        "schedule::kGrid - 1) == schedule::kGrid - 1)",
        "schedule::kGrid - 1) == 0)",
    ),
    Mutant(
        "the epoch does not alternate",
        HAND,
        "device::store_relaxed(&header->epoch, s.epoch ^ 1);",
        "device::store_relaxed(&header->epoch, s.epoch);",
    ),
    Mutant(
        "the other half is not cleared to its end",
        HAND,
        "at < s.dirty_bytes;",
        "at + 512 < s.dirty_bytes;",
    ),
    Mutant(
        "this launch's half is cleared instead of the other",
        HAND,
        "HandOff::of(args, s.epoch ^ 1)",
        "HandOff::of(args, s.epoch)",
    ),
    Mutant(
        "down groups add their sums as they come",
        COMBINE,
        "handoff.partial(args.tokens, share.group, at.token(c)) + column",
        "handoff.partial(args.tokens, 1, at.token(c)) + column",
        spec=GROUPS,
    ),
    Mutant(
        "partial outputs are taken when the first of four is there",
        COMBINE,
        "least_word(F32x4{value[0], value[1], value[2], value[3]}) != 0",
        "device::float_to_bits(value[0]) != 0",
        spec=GROUPS,
    ),
    Mutant("the grid is larger than what can be resident", resident=3),
    # -- within a cluster
    Mutant(
        "sums are sent before the other CTA is there",
        COMBINE,
        "            device::cluster_wait();  // the peer has made its barriers\n",
        "",
    ),
    Mutant(
        "one lane waits for the other CTA in place of its warp",
        COMBINE,
        "device::cluster_wait();",
        "if (lane == 0) device::cluster_wait();",
    ),
    Mutant(
        "MMA warps arrive before they have made the barriers",
        MAIN,
        MADE + ARRIVE_CLUSTER,
        ARRIVE_CLUSTER + MADE,
    ),
    Mutant(
        "MMA warps arrive before they have fenced the barriers",
        MAIN,
        MADE + ARRIVE_CLUSTER,
        "    for (u32 i = warp; lane == 0 && i < Barriers::kCount; i += schedule::kMmaWarps)\n"
        "        device::mbarrier_init(reinterpret_cast<device::Mbarrier*>(&s.barrier) + i, "
        "Barriers::arrivals(i, args.tokens));\n"
        + ARRIVE_CLUSTER
        + "    device::mbarrier_init_fence();\n"
        + MADE.removeprefix(INIT),
    ),
    Mutant("MMA warps do not arrive in their cluster", MAIN, ARRIVE_CLUSTER, ""),
    Mutant(
        "a routing warp does not arrive in its cluster",
        MAIN,
        "warp >= kFirstRequantWarp) device::cluster_arrive();",
        "warp > kFirstRequantWarp) device::cluster_arrive();",
    ),
    Mutant(
        "the producer does not arrive in its cluster",
        MAIN,
        "warp >= kFirstRequantWarp) device::cluster_arrive();",
        "warp >= kFirstRequantWarp && warp < kProducerWarp) device::cluster_arrive();",
    ),
    Mutant(
        "an MMA warp arrives twice in its cluster",
        MAIN,
        "warp >= kFirstRequantWarp) device::cluster_arrive();",
        "warp >= kFirstRequantWarp - 1) device::cluster_arrive();",
    ),
    Mutant(
        "half a warp arrives in its cluster at a time",
        MAIN,
        ARRIVE_CLUSTER,
        "    if (lane < 16) device::cluster_arrive();\n    device::sync_warp();\n"
        "    if (lane >= 16) device::cluster_arrive();\n",
    ),
    Mutant(
        "half a warp waits for the other CTA at a time",
        COMBINE,
        "device::cluster_wait();",
        "if (lane < 16) device::cluster_wait();\n"
        "            device::sync_warp();\n"
        "            if (lane >= 16) device::cluster_wait();",
    ),
    Mutant(
        "sums of the other CTA are not expected",
        COMBINE,
        "device::mbarrier_arrive_expect(&s.barrier.peer_summed, ",
        "static_cast<void>(",
    ),
    Mutant(
        "every MMA warp expects the sums of the other CTA",
        COMBINE,
        "} else if (warp == 0 && lane == 0) {",
        "} else if (lane == 0) {",
    ),
    Mutant(
        "fewer sums are expected than come",
        COMBINE,
        "static_cast<u32>(sizeof(float)));",
        "static_cast<u32>(sizeof(float)) - 4);",
    ),
    Mutant(
        "sums of an odd number of tokens are expected",
        COMBINE,
        "(args.tokens + args.tokens % 2)",
        "args.tokens",
    ),
    Mutant(
        "more sums are expected than come",
        COMBINE,
        "static_cast<u32>(sizeof(float)));",
        "static_cast<u32>(sizeof(float)) + 4);",
    ),
    Mutant(
        "sums of the other CTA are read before they are there",
        COMBINE,
        "device::mbarrier_wait_cluster(&s.barrier.peer_summed, 0, args.wait_limit_ns);\n",
        "{}\n",
    ),
    Mutant(
        "the other parity of the other CTA's sums is waited for",
        COMBINE,
        "&s.barrier.peer_summed, 0, args",
        "&s.barrier.peer_summed, 1, args",
    ),
    Mutant(
        "a CTA sends its sums to itself",
        COMBINE,
        "&s.barrier.peer_summed, 0);",
        "&s.barrier.peer_summed, 1);",
    ),
    Mutant(
        "a CTA sends its sums past its cluster",
        COMBINE,
        "&s.barrier.peer_summed, 0);",
        "&s.barrier.peer_summed, 2);",
    ),
    Mutant(
        "sums that are sent are counted on another barrier",
        COMBINE,
        "&s.barrier.peer_summed, 0);",
        "&s.barrier.routed, 0);",
    ),
    Mutant(
        "sums are sent to where those of another lane belong",
        COMBINE,
        "store_remote(&theirs,",
        "store_remote(&s.peer_sums[token_tile][tile][lane ^ 1],",
    ),
    Mutant(
        "sums of all lanes are sent to one place",
        COMBINE,
        "store_remote(&theirs,",
        "store_remote(&s.peer_sums[token_tile][tile][0],",
    ),
    Mutant(
        "sums are sent over the partial sums of the other CTA",
        COMBINE,
        "store_remote(&theirs,",
        "store_remote(&s.down[token_tile][warp][0][lane],",
    ),
    Mutant(
        "sums are sent past shared memory",
        COMBINE,
        "store_remote(&theirs,",
        "store_remote(reinterpret_cast<F32x4*>(&s + 1) + lane,",
    ),
    Mutant(
        "sums are sent to half of a word",
        COMBINE,
        "store_remote(&theirs,",
        "store_remote(reinterpret_cast<F32x4*>(reinterpret_cast<u64*>(&theirs) + 1),",
    ),
    Mutant(
        "the tiles of every second round are left out",
        COMBINE,
        "index += schedule::kMmaWarps",
        "index += 2 * schedule::kMmaWarps",
        spec=TILES,
        tokens=(16, 9, 16),
    ),
    Mutant(
        "a tile is taken by two warps",
        COMBINE,
        "index += schedule::kMmaWarps",
        "index += schedule::kMmaWarps - 1",
        spec=TILES,
        tokens=(16, 9, 16),
    ),
    Mutant(
        "CTAs of one output stripe are not of one cluster",
        STREAM,
        "        const u32 group = cta % schedule::kDownGroups;\n"
        "        const u32 stripe = cta / schedule::kDownGroups;\n",
        "        const u32 group = cta / schedule::kGDown;\n"
        "        const u32 stripe = cta % schedule::kGDown;\n",
    ),
    # -- reach
    Mutant(
        "quantization reads past the tokens",
        QUANT,
        "return index < args.tokens * schedule::kHiddenBlocks;",
        "return index < (args.tokens + 1) * schedule::kHiddenBlocks;",
    ),
    Mutant(
        "the output is written past the token tile",
        COMBINE,
        "if (at.token(c) >= args.tokens) continue;",
        "if (at.token(c) > args.tokens) continue;",
    ),
    Mutant(
        "a copy runs past its stage",
        RING,
        "device::bulk_copy(storage.ring + start, source, first, ",
        "device::bulk_copy(storage.ring + start + 16, source, first, ",
    ),
    Mutant(
        "odd rows of raw weights are read like even ones",
        "ops/weights.cuh",
        "odd ? rows[0][1 - c] : rows[0][c]",
        "rows[0][c]",
        spec=RAW,
    ),
    Mutant(
        "raw gate and up rows lie one run apart",
        "ops/weights.cuh",
        "(Stage::kIsUp ? Stage::kTiles : 1) * kHalfTile",
        "kHalfTile",
        spec=RAW,
    ),
    Mutant(
        "only the first of raw gate and up rows is requested",
        STREAM,
        "part < kParts;",
        "part < 1;",
        spec=RAW,
    ),
    Mutant(
        "logits are published before all warps have summed",
        ROUTER_OP,
        "s.routing.router[warp][mine] = sum;\n"
        "            device::sync_named(NamedBarrier::kLogits, kThreads);",
        "s.routing.router[warp][mine] = sum;",
        spec=ROUTER,
    ),
    Mutant(
        "sums of logits are overwritten while they are read",
        ROUTER_OP,
        "            }\n            device::sync_named(NamedBarrier::kLogits, kThreads);",
        "            }",
        spec=ROUTER,
    ),
    Mutant(
        "a logit of zero is published as it is",
        ROUTER_OP,
        "never_zero(logit));",
        "logit);",
        spec=ROUTER,
    ),
    Mutant(
        "routing does not wait for the logits",
        ROUTE,
        "if (device::all(least != 0)) return lanes;",
        "return lanes;",
        spec=ROUTER,
    ),
    Mutant(
        "logits are not cleared",
        HAND,
        "(schedule::kRouterWeight ? 4 * shape::kExperts : 0)",
        "0",
        spec=ROUTER,
    ),
    Mutant(
        "an exchange misses lanes",
        DOWN,
        "return device::all(least != 0);",
        "return device::thread_index() % 32 < 31 ? device::all(least != 0) : least != 0;",
    ),
    Mutant(
        "tokens of one column are multiplied together",
        ROUTE,
        "return schedule::kTokenTiles == 1 ? tokens : ",
        "return schedule::kTokenTiles == 2 ? tokens : ",
        spec=TILES,
        tokens=(16, 11, 16),
        routing="same",
    ),
    # -- the list and what is requested ahead of it
    Mutant(
        "experts of later tokens are noted over those of earlier ones",
        MAIN,
        "s.routing.chosen[lane][token(warp, round)]",
        "s.routing.chosen[lane][token(warp, 0)]",
        spec=TILES,
        tokens=(16, 11, 16),
    ),
    Mutant(
        "masks of tokens that are not there are not cleared",
        MAIN,
        "            s.routing.chosen[lane][token(warp, round)] =",
        "            if (token(warp, round) < args.tokens) "
        "s.routing.chosen[lane][token(warp, round)] =",
    ),
    Mutant(
        "tokens of a pair are taken for one",
        ROUTE,
        "(bits & 1) | (bits >> 15 & 2)",
        "(bits & 1) | (bits >> 16 & 1)",
    ),
    Mutant(
        "experts of the second token of a pair are not listed",
        ROUTE,
        "any = (any | any >> 16) & 0xffff;",
        "any = any & 0xffff;",
    ),
    Mutant(
        "the bound of every lane's two best is taken as it is",
        ROUTE,
        "if ((counts & 0xffff) < shape::kTopK) break;",
        "break;",
        spec=DENSE,
    ),
    Mutant(
        "early stages are requested twice",
        STREAM,
        "    if (UpUnit::first(cta).expert() < schedule::kLeads) {\n",
        "    if (false) {\n",
    ),
    Mutant(
        "a unit of no lead counts on early stages",
        STREAM,
        "UpUnit::first(cta).expert() < schedule::kLeads)",
        "UpUnit::first(cta).expert() < schedule::kLeads + 1)",
        spec=LEADS,
    ),
    Mutant(
        "early stages take no place in the ring",
        STREAM,
        "for (; k < early_stages(); ++k) ring.close<Up>();",
        "k = early_stages();",
    ),
    Mutant(
        "a unit begins again behind its early stages",
        STREAM,
        " + k * UpRuns::kBytes;\n#pragma unroll 1\n        for (; k < schedule::kStagesPerUnitUp",
        ";\n#pragma unroll 1\n        for (; k < schedule::kStagesPerUnitUp",
        spec=WHOLE,
    ),
    Mutant(
        "units behind the first lack as many stages as were early",
        STREAM,
        "        k = 0;\n",
        "        k = early_stages();\n",
        spec=WHOLE,
    ),
    Mutant(
        "early stages are all of the best expert",
        MAIN,
        "stream_early(args, s, trace, cta, expert);",
        "stream_early(args, s, trace, cta, leads.expert(0));",
        spec=LEADS,
    ),
    Mutant(
        "leads are those of another token",
        MAIN,
        "logits_of(args, s, 0, lane)",
        "logits_of(args, s, args.tokens - 1, lane)",
        spec=TWINS,
    ),
    Mutant(
        "leads are listed in reverse",
        MAIN,
        "leads.add(i, expert);",
        "leads.add(schedule::kLeads - 1 - i, expert);",
        spec=LEADS,
    ),
    Mutant(
        "a lead is taken again",
        ROUTE,
        "key[j] = lane * schedule::kLaneExperts + j == expert ? 0 : key[j];",
        "key[j] = key[j];",
        spec=LEADS,
    ),
    Mutant(
        "the later of a lane's equal experts leads",
        ROUTE,
        "for (u32 j = schedule::kLaneExperts; j-- > 0;) expert = ",
        "for (u32 j = 0; j < schedule::kLaneExperts; ++j) expert = ",
        spec=CLOSE,
        tokens=(1, 3, 1),
        routing="ties",
    ),
    Mutant(
        "the expert of the later of equal lanes leads",
        ROUTE,
        "expert = device::reduce_min(expert);",
        "expert = device::reduce_max(expert < shape::kExperts ? expert : 0);",
        spec=LEADS,
        routing="ties",
    ),
    Mutant(
        "the leads are counted among the others too",
        ROUTE,
        "count -= leads.expert(i) / schedule::kLaneExperts == lane;",
        "count -= 0;",
        spec=LEADS,
    ),
    Mutant(
        "the first turn of a lead is listed once more",
        ROUTE,
        "            s.active[at].expert = static_cast<u16>(expert);\n"
        "            s.active[at].tokens = first_of_columns(left);\n",
        "            s.active[at].expert = s.active[position].expert = static_cast<u16>(expert);\n"
        "            s.active[at].tokens = s.active[position].tokens = first_of_columns(left);\n"
        "            position += at < schedule::kLeads;\n",
        spec=LEADS,
    ),
    Mutant(
        "the first turn of a lead is listed among the others",
        ROUTE,
        "lead < schedule::kLeads ? lead : position++;",
        "position++;",
        spec=LEADS,
    ),
    Mutant(
        "all turns of a lead are listed in one place",
        ROUTE,
        "            lead = schedule::kLeads;\n",
        "",
        spec=TURNS,
        tokens=(16, 11, 16),
        routing="same",
    ),
    Mutant(
        "early stages are of the first stripe",
        STREAM,
        "expert, UpUnit::first(cta).stripe())",
        "expert, 0)",
    ),
    Mutant(
        "the next row of a shared slot is skipped",
        DOWN,
        "lane % kMost * schedule::kSlotWarps;",
        "lane % kMost * (schedule::kSlotWarps + 1);",
        spec=CROWD,
        routing="same",
    ),
)
