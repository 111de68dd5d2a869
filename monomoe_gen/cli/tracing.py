"""The command that looks into a launch: trace."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from monomoe_gen.cli.options import (
    TokensType,
    layout_option,
    model_option,
    routing_option,
    schedule_option,
    token_tile_option,
)
from monomoe_gen.cli.output import format_option, print_rows, progress, say
from monomoe_gen.schedule import Layout, Schedule
from monomoe_gen.shapes import Shape

if TYPE_CHECKING:
    from monomoe_gen.tracing import Recording

TIMES = tuple(f"{when}_{what}" for when in ("first", "last") for what in ("min", "median", "max"))
MOST_LAUNCHES = 32  # of the graph that is traced


@click.command()
@model_option()
@click.option(
    "--tokens",
    type=TokensType(),
    required=True,
    help="Token counts, comma separated; each is a trace.",
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
@click.option(
    "--perfetto/--no-perfetto",
    default=True,
    show_default=True,
    help="Also write every mark of every CTA, for ui.perfetto.dev: megabytes.",
)
@format_option
def trace(
    shape: Shape,
    tokens: tuple[int, ...],
    schedule: Schedule | None,
    token_tile: int,
    layout: Layout,
    routing: str,
    launches: int,
    folder: Path,
    perfetto: bool,
    form: str,
) -> None:
    """Show what every warp of a kernel does, microsecond by microsecond.

    Compiles the dispatched kernel, or the one of --schedule, with time stamps and launches it on
    cold weights. Writes an SVG timeline of three CTAs, the same as JSON, which `draw --with` puts
    next to a model, and a trace of all CTAs for ui.perfetto.dev. Prints when each event happens in
    a CTA for the first and the last time, over the CTAs, in microseconds since the first CTA
    started.
    """
    from monomoe_gen import protocol, remeasure, tracing
    from monomoe_gen.sandbox import Sandbox

    device = remeasure.require_device()
    if schedule:
        spec = tracing.schedule_spec(shape, schedule, device, token_tile, layout)
        specs = dict.fromkeys(tokens, spec)
    else:
        specs = {n: tracing.dispatched_spec(device, shape.name, n, layout) for n in tokens}
    recordings = []
    with progress("tracing", None) as step, Sandbox() as box:

        def hear(event: protocol.Event) -> None:
            if isinstance(event, protocol.Stage):
                step(event.name)

        for n, spec in specs.items():
            recordings.append(tracing.record(spec, device, n, routing, launches, box, hear))
    rows = [row for recording in recordings for row in _rows(recording)]
    print_rows(rows, form, dict.fromkeys(TIMES, ".2f"))
    for recording in recordings:
        for fact in recording.provenance.values():
            say(fact)
        for path in tracing.write(recording, folder, perfetto):
            say(f"wrote {path}")


def _rows(recording: Recording) -> list[dict[str, Any]]:
    from monomoe_gen.trace_summary import summarize

    rows = []
    for row in summarize(recording.typical):
        spreads = (row.first, row.last)
        times = [us for s in spreads for us in (s.minimum, s.median, s.maximum)]
        rows.append(
            {
                "tokens": recording.tokens,
                "role": row.role.value,
                "event": row.event.label,
                "ctas": row.ctas,
                "count": row.count,
                **{name: round(us, 4) for name, us in zip(TIMES, times, strict=True)},
            }
        )
    return rows


COMMANDS = (trace,)
