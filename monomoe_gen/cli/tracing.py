"""The command that looks into a launch: trace."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from monomoe_gen.cli.options import (
    layout_option,
    model_option,
    routing_option,
    schedule_option,
    token_tile_option,
)
from monomoe_gen.cli.output import format_option, print_rows, progress, say
from monomoe_gen.schedule import TOKEN_TILES, Layout, Schedule
from monomoe_gen.shapes import Shape

if TYPE_CHECKING:
    from monomoe_gen.trace import Trace

TIMES = tuple(f"{when}_{what}" for when in ("first", "last") for what in ("min", "median", "max"))
MOST_LAUNCHES = 32  # of the graph that is traced


@click.command()
@model_option()
@click.option(
    "--tokens",
    type=click.IntRange(1, max(TOKEN_TILES)),
    required=True,
    help="Tokens of a launch.",
)
@schedule_option(required=False)
@token_tile_option
@layout_option
@routing_option
@click.option(
    "--launches",
    type=click.IntRange(1, MOST_LAUNCHES),
    default=9,
    show_default=True,
    help="Launches to trace; the one of median duration is written.",
)
@click.option(
    "--output",
    "-o",
    "folder",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("traces"),
    show_default=True,
    help="Folder for the files.",
)
@format_option
def trace(
    shape: Shape,
    tokens: int,
    schedule: Schedule | None,
    token_tile: int,
    layout: Layout,
    routing: str,
    launches: int,
    folder: Path,
    form: str,
) -> None:
    """Show what every warp of a kernel does, microsecond by microsecond.

    Compiles the dispatched kernel, or the one of --schedule, with time stamps and launches it on
    cold weights. Writes an SVG timeline of three CTAs and a trace of all of them for
    ui.perfetto.dev. Prints when each event happens in a CTA for the first and the last time, over
    the CTAs, in microseconds since the first CTA started.
    """
    from monomoe_gen import protocol, remeasure, tracing
    from monomoe_gen.sandbox import Sandbox

    device = remeasure.require_device()
    if schedule:
        spec = tracing.schedule_spec(shape, schedule, device, token_tile, layout)
    else:
        spec = tracing.dispatched_spec(device, shape.name, tokens, layout)
    with progress("tracing", None) as step, Sandbox() as box:

        def hear(event: protocol.Event) -> None:
            if isinstance(event, protocol.Stage):
                step(event.name)

        recording = tracing.record(spec, device, tokens, routing, launches, box, hear)
    print_rows(_rows(recording.typical), form, dict.fromkeys(TIMES, ".2f"))
    for fact in recording.provenance.values():
        say(fact)
    for path in tracing.write(recording, folder):
        say(f"wrote {path}")


def _rows(launch: Trace) -> list[dict[str, Any]]:
    from monomoe_gen.trace_summary import summarize

    rows = []
    for row in summarize(launch):
        spreads = (row.first, row.last)
        times = [us for s in spreads for us in (s.minimum, s.median, s.maximum)]
        rows.append(
            {
                "role": row.role.value,
                "event": row.event.label,
                "ctas": row.ctas,
                "count": row.count,
                **{name: round(us, 4) for name, us in zip(TIMES, times, strict=True)},
            }
        )
    return rows


COMMANDS = (trace,)
