"""The command that draws a schedule without a GPU: draw."""

from __future__ import annotations

from pathlib import Path

import click

from monomoe_gen.cli.options import (
    device_option,
    model_option,
    refuse_beside,
    schedule_option,
    token_tile_option,
)
from monomoe_gen.cli.output import say
from monomoe_gen.device import Device
from monomoe_gen.files import write_atomically
from monomoe_gen.schedule import KernelSpec, Schedule
from monomoe_gen.shapes import Shape


@click.command()
@model_option()
@click.option(
    "--tokens",
    type=click.IntRange(1, 32),
    help="Token count of the launch. Default: that of --with, else 1.",
)
@schedule_option(required=False)
@token_tile_option
@device_option
@click.option("--cta", type=click.IntRange(0), help="Draw this one in detail. Default: the last.")
@click.option(
    "--with",
    "trace",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="TRACE.trace.json",
    help="Draw next to this launch, which `trace` recorded, on one time axis.",
)
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write the SVG here instead of printing it.",
)
def draw(
    shape: Shape,
    tokens: int | None,
    schedule: Schedule | None,
    token_tile: int,
    device: Device,
    cta: int | None,
    trace: Path | None,
    output: Path | None,
) -> None:
    """Draw which CTA streams what and when, by the cost model: an SVG, no GPU needed.

    Draws the dispatched kernel, or the one of --schedule. All CTAs are shown, and one of them stage
    by stage with its ring. With --with the traced kernel is drawn, and below what the model says of
    a CTA what its warps did; a trace of another model, token count or schedule is refused.
    """
    if trace:
        refuse_beside("--with", "token_tile", "device")
        if cta is not None:
            raise click.UsageError("--cta: a trace says itself which CTAs it holds")
        text, remark = _beside(trace, shape, tokens, schedule)
    else:
        text, remark = _alone(shape, tokens or 1, schedule, token_tile, device, cta)
    if output is None:
        click.echo(text, nl=False)
        return
    write_atomically(output, text.encode())
    say(f"wrote {output}; {remark}")


def _beside(
    path: Path, shape: Shape, tokens: int | None, schedule: Schedule | None
) -> tuple[str, str]:
    """The drawing of model and trace, and what to say of it."""
    from monomoe_gen import trace_file
    from monomoe_gen.side_by_side import side_by_side_svg

    kept = trace_file.read(path)
    trace_file.require_same(path, kept, shape, tokens, schedule)
    return side_by_side_svg(kept), f"{kept.us:.1f} µs from the first start to the last mark"


def _alone(
    shape: Shape,
    tokens: int,
    schedule: Schedule | None,
    token_tile: int,
    device: Device,
    cta: int | None,
) -> tuple[str, str]:
    """The drawing of the model, and what to say of it."""
    from monomoe_gen.drawing import drawing_svg
    from monomoe_gen.rehearsal import rehearse
    from monomoe_gen.space import require_feasible

    if schedule is None:
        from monomoe_gen import dispatch

        table = dispatch.load(dispatch.table_folder(device.slug))
        spec = dispatch.lookup(table, shape.name, tokens).kernel.spec
    else:
        require_feasible(shape, schedule, device, token_tile)
        spec = KernelSpec(shape, schedule, token_tile)
    if tokens > spec.token_tile:
        raise click.UsageError(f"the kernel takes {spec.token_tile} tokens, not {tokens}")
    rehearsal = rehearse(spec, tokens)
    if cta is not None and (cta >= len(rehearsal.ctas) or not rehearsal.ctas[cta]):
        raise click.UsageError(f"--cta {cta}: no such CTA in the grid, or one without work")
    remark = f"{rehearsal.us:.1f} µs from the first request to the last product"
    return drawing_svg(rehearsal, cta), remark


COMMANDS = (draw,)
