"""Validate and time kernels that exist already: the dispatched ones, or one schedule by itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from monomoe_gen import dispatch, jobs, untuned
from monomoe_gen.bench import Timing
from monomoe_gen.compile import compile_all, compile_source
from monomoe_gen.device import Device, current_device
from monomoe_gen.errors import EnvironmentProblem, MonomoeError, NoKernel
from monomoe_gen.protocol import Cell, Image
from monomoe_gen.render import render
from monomoe_gen.report import Result
from monomoe_gen.schedule import KernelSpec, Schedule
from monomoe_gen.shapes import Shape
from monomoe_gen.space import require_feasible
from monomoe_gen.variant import USUAL, Variant


@dataclass(frozen=True)
class Target:
    """A kernel and the token counts it is measured for."""

    spec: KernelSpec
    image: Image
    tokens: tuple[int, ...]


def require_device() -> Device:
    """The GPU of this machine.

    Raises:
        EnvironmentProblem: there is none.
    """
    device = current_device()
    if device is None:
        raise EnvironmentProblem(
            "this measures on a GPU, and there is no CUDA device here. Without one, `monomoe-gen "
            "tune` replays recorded measurements and `monomoe-gen show` prints the dispatch table"
        )
    return device


def dispatched_targets(
    folder: Path, models: Sequence[str], tokens: Sequence[int], variant: Variant = USUAL
) -> list[Target]:
    """The kernels that ``folder``'s table dispatches for ``models`` (none: all that it has).

    Raises:
        NoKernel: the table has nothing for a model and token count.
        DatabaseError: the table or a cubin cannot be read.
    """
    table = dispatch.load(folder)
    chosen: dict[str, list[int]] = {}
    known = sorted({entry.model for entry in table.entries if entry.variant == variant})
    if not models and not known:
        raise NoKernel(
            f"{variant} on {table.device.name}",
            f"the table has none; run `monomoe-gen tune{variant.options}`",
        )
    for model in dict.fromkeys(models) or known:
        for count in tokens:
            kernel = dispatch.lookup(table, model, count, variant).kernel
            chosen.setdefault(kernel.id, []).append(count)
    targets = []
    for kernel in table.kernels:
        if kernel.id in chosen:
            cubin = dispatch.read_cubin(folder, kernel)
            image = jobs.dispatched_image(kernel, cubin)
            targets.append(Target(kernel.spec, image, tuple(chosen[kernel.id])))
    return targets


def untuned_targets(
    shapes: Sequence[Shape],
    device: Device,
    tokens: Sequence[int],
    token_tile: int,
    variant: Variant = USUAL,
) -> list[Target]:
    """A kernel for each shape, of the schedule predicted fastest at the most of ``tokens``.

    Raises:
        MonomoeError: more tokens than the tile holds, or a shape without a feasible schedule.
        CompileError: one does not compile.
    """
    _require_room(tokens, token_tile)
    specs = list(untuned.favourites(shapes, device, max(tokens), token_tile, variant).values())
    binaries = compile_all([render(spec) for spec in specs], arch=device.arch)
    return [
        Target(spec, jobs.image(binary, spec), tuple(tokens))
        for spec, binary in zip(specs, binaries, strict=True)
    ]


def schedule_target(
    shape: Shape,
    schedule: Schedule,
    device: Device,
    tokens: Sequence[int],
    token_tile: int,
    variant: Variant = USUAL,
) -> Target:
    """The kernel of one schedule, compiled now.

    Raises:
        InfeasibleSchedule, CompileError: there is no such kernel.
        MonomoeError: more tokens than the tile holds.
    """
    _require_room(tokens, token_tile)
    require_feasible(shape, schedule, device, token_tile)
    spec = variant.spec(shape, schedule, token_tile)
    image = jobs.image(compile_source(render(spec), device.arch), spec)
    return Target(spec, image, tuple(tokens))


def _require_room(tokens: Sequence[int], token_tile: int) -> None:
    if max(tokens) > token_tile:
        raise MonomoeError(
            f"asked for {max(tokens)} tokens of a kernel for up to {token_tile}; give a larger "
            "--token-tile"
        )


def result(spec: KernelSpec, cell: Cell, routing: str) -> Result:
    """What ``bench.json`` says of a timed cell; the cosine is the worst of the validation."""
    assert cell.floor and cell.distinct_experts
    time_us = Timing(cell.samples).median_us
    streamed = cell.distinct_experts * spec.shape.expert_bytes
    return Result(
        model=spec.shape.name,
        tokens=cell.tokens,
        time_us=time_us,
        floor_us=cell.floor.stream_us,
        ratio=round(time_us / cell.floor.stream_us, 3),
        bandwidth_gb_s=round(streamed / time_us / 1000, 1),
        distinct_experts=round(cell.distinct_experts, 2),
        cosine=round(min(errors.cosine for errors in cell.errors.values()), 6),
        schedule=spec.schedule.id,
        routing=routing,
        layout=spec.layout,
        router=spec.router,
        pdl=spec.pdl,
    )
